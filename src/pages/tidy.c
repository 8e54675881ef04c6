/* tidy.c - writer's markers that the dead have left.
 *
 * A writer's marker is pinned, and one whose file has another generation by now
 * is in nobody's way: so nobody would ever meet it. Whoever uses the cover
 * looks at some keys now and then. One of the file's generation is met as any
 * reader meets it; one of another is deleted, whoever's it is: a writer that is
 * still there finds that it is gone, and renews, as it has to anyway. */
#include "pages/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define PERIOD 256u /* calls */
#define GROUPS 4u
#define MARKERS_MAX 16u /* of one look */

struct found {
	uint32_t count;
	struct page_key keys[MARKERS_MAX];
};

static int note_marker(void *context, const struct reef_map_entry *entry)
{
	struct found *found = context;

	if (entry->key_size == sizeof(struct page_key) &&
	    entry->value_size == sizeof(struct marker) &&
	    entry->expires_ms == REEF_MAP_PINNED && found->count < MARKERS_MAX)
		memcpy(&found->keys[found->count++], entry->key,
		       sizeof(struct page_key));
	return 0;
}

static void judge_marker(struct reef_pages *pages, const struct page_key *key)
{
	struct reef_map_item items[2] = {
		{.key = key, .key_size = sizeof(*key)},
		{.key = &key->file, .key_size = RECORD_KEY_SIZE},
	};
	struct marker marker;
	bool is_over;

	if (reef_map_get_many(pages->map, items, 2) || items[0].status ||
	    (items[1].status && items[1].status != -ENOENT) ||
	    !pages_is_marker(pages, &items[0].value, &marker))
		goto out;
	is_over = items[1].status || items[1].value.version != key->generation;
	if (!is_over && !REEF_MUTATED(PAGES_MARK_FOREVER) &&
	    pages_has_ended(pages, marker.session) == 1) {
		pages->stats.ended++;
		is_over = !pages_renew(pages, &key->file, key->generation);
	}
	if (is_over)
		reef_map_delete(pages->map, key, sizeof(*key),
				items[0].value.version);
out:
	reef_map_value_free(&items[0].value);
	reef_map_value_free(&items[1].value);
}

void pages_tidy(struct reef_pages *pages)
{
	struct found found = {0};

	if (++pages->until_tidy < PERIOD)
		return;
	pages->until_tidy = 0;
	if (reef_map_scan_keys(pages->map, &pages->cursor, GROUPS, note_marker,
			       &found))
		return;
	for (uint32_t i = 0; i < found.count; i++)
		judge_marker(pages, &found.keys[i]);
}
