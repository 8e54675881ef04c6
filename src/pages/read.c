/* read.c - getting pages, and filling the cache with what was missing.
 *
 *   absent --get: insert a reader's marker, whose version is the token-->
 *   marked --fill: replace, if it has that version--> a page
 *      `---- a second, a writer's marker, an eviction: the fill comes to
 * nothing
 *
 * A page that was READ under a generation which the record still had, in the
 * same call, was the file's at some moment of the call: whichever of the two
 * was READ first. A generation does not come back; under one that is over, and
 * so only there, a fill may have kept what had been written meanwhile, and that
 * was written while this call lasted. */
#include "pages/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <string.h>

#define READER_MS 1000u
#define LOST_MAX 4u /* keys; more of them: the cover itself is lost */

bool pages_is_marker(const struct reef_pages *pages,
		     const struct reef_map_value *value, struct marker *out)
{
	if (value->size != sizeof(*out))
		return false;
	memcpy(out, value->bytes, sizeof(*out));
	return true;
}

int pages_has_ended(struct reef_pages *pages, uint32_t session)
{
	enum reef_session_view view;
	int rc;

	if (session == reef_session(pages->reef))
		return 0;
	rc = reef_session_check(pages->reef, session, &view);
	if (rc == -REEF_ENOLINK)
		return 0; /* nobody knows */
	return rc ? rc : view == REEF_VIEW_ENDED;
}

/* Leave a marker where nothing is. *token 0: another did. */
static int leave_marker(struct reef_pages *pages, const struct page_key *key,
			uint64_t *token)
{
	const struct marker marker = {.kind = MARKER_READER,
				      .session = reef_session(pages->reef)};
	uint64_t now_ms;
	int rc = reef_map_now(pages->map, &now_ms);

	*token = 0;
	if (!rc)
		rc = reef_map_insert(pages->map, key, sizeof(*key), &marker,
				     sizeof(marker), now_ms + READER_MS, token);
	/* Without a marker the page is not kept: that is all. */
	if (rc)
		*token = 0;
	return -ENOENT;
}

/* Something is there that is no page. -EAGAIN: look again. */
static int meet_marker(struct reef_pages *pages, const struct page_key *key,
		       const struct reef_map_value *value)
{
	struct marker marker;
	int rc;

	if (!pages_is_marker(pages, value, &marker))
		return -REEF_ECORRUPT;
	if (marker.kind != MARKER_WRITER || REEF_MUTATED(PAGES_MARK_FOREVER))
		return -ENOENT;
	rc = pages_has_ended(pages, marker.session);
	if (rc <= 0)
		return rc ? rc : -ENOENT;
	/* (4): it may have written the file, or may yet. */
	pages->stats.ended++;
	rc = pages_renew(pages, &key->file, key->generation);
	if (rc && rc != -ESTALE)
		return rc;
	pages_know(pages, &key->file, 0);
	reef_map_delete(pages->map, key, sizeof(*key), value->version);
	return -EAGAIN;
}

int pages_meet_lost(struct reef_pages *pages, const struct reef_page_file *file,
		    uint64_t generation)
{
	int rc;

	if (pages->lost++ >= LOST_MAX)
		return -REEF_ELOST;
	rc = pages_renew(pages, file, generation);
	return rc && rc != -ESTALE ? rc : -EAGAIN;
}

static int judge_page(struct reef_pages *pages, const struct page_key *key,
		      const struct reef_map_item *item, void *to,
		      uint64_t *token)
{
	*token = 0;
	if (item->status == -ENOENT)
		return leave_marker(pages, key, token);
	if (item->status == -REEF_ELOST)
		return pages_meet_lost(pages, &key->file, key->generation);
	if (item->status)
		return item->status;
	if (item->value.size != pages->page_size)
		return meet_marker(pages, key, &item->value);
	memcpy(to, item->value.bytes, pages->page_size);
	return 0;
}

/* -EAGAIN: the generation was another one. */
static int get_once(struct reef_pages *pages, struct page_key *key,
		    struct reef_map_item *items, void *to, uint64_t *token)
{
	int rc;

	if (!pages->map)
		return -REEF_ELOST;
	rc = pages_generation(pages, &key->file, &key->generation);
	*token = 0;
	if (rc)
		return rc == -ENOENT ? -ENODATA : rc;
	if (REEF_MUTATED(PAGES_GENERATION_CACHED)) {
		rc = reef_map_get_many(pages->map, items, 1);
		return rc ? rc : judge_page(pages, key, &items[0], to, token);
	}
	/* Warm, on one node: one round trip. */
	rc = reef_map_get_many(pages->map, items, 2);
	if (rc)
		return rc;
	if (items[1].status) {
		pages_know(pages, &key->file, 0);
		return items[1].status == -ENOENT ? -ENODATA : items[1].status;
	}
	if (items[1].value.version != key->generation) {
		pages_know(pages, &key->file, items[1].value.version);
		return -EAGAIN;
	}
	return judge_page(pages, key, &items[0], to, token);
}

int reef_pages_get(struct reef_pages *pages, const struct reef_page_file *file,
		   uint64_t page, void *to, uint64_t *token)
{
	struct page_key key = {.file = pages_file(file), .page = page};
	struct reef_map_item items[2] = {
		{.key = &key, .key_size = sizeof(key)},
		{.key = &key.file, .key_size = RECORD_KEY_SIZE},
	};
	uint32_t attempt = 0, healed = 0;
	uint64_t given = 0;
	int rc;

	pages_enter(pages);
	for (uint32_t i = 0; i < 2; i++) {
		items[i].value = pages->spare[i];
		pages->spare[i] = (struct reef_map_value){0};
	}
	do
		rc = get_once(pages, &key, items, to, &given);
	while ((rc == -EAGAIN && ++attempt < PAGES_ATTEMPTS) ||
	       (rc && rc != -EAGAIN && rc != -ENOENT &&
		pages_heal(pages, rc, healed++)));
	for (uint32_t i = 0; i < 2; i++) {
		reef_map_value_free(&pages->spare[i]);
		pages->spare[i] = items[i].value;
	}
	pages_leave(pages);
	pages->stats.hits += !rc;
	pages->stats.misses += rc != 0;
	if (rc == -ENOENT)
		*token = given;
	return rc == -EAGAIN ? -EBUSY : rc;
}

int reef_pages_fill(struct reef_pages *pages, const struct reef_page_file *file,
		    uint64_t page, uint64_t token, const void *bytes)
{
	struct page_key key = {.file = pages_file(file), .page = page};
	int rc = -ESTALE;

	pages_enter(pages);
	key.generation = pages_known(pages, &key.file)->generation;
	/* If that is another one than the token's, no key is the marker's. */
	if (!token || !key.generation || !pages->map)
		rc = -ESTALE;
	else if (REEF_MUTATED(PAGES_FILL_BLIND))
		rc = reef_map_put(pages->map, &key, sizeof(key), bytes,
				  pages->page_size, 0, NULL);
	else
		rc = reef_map_replace(pages->map, &key, sizeof(key), token,
				      bytes, pages->page_size, 0, NULL);
	if (rc == -ENOENT)
		rc = -ESTALE;
	pages->stats.fills += !rc;
	pages->stats.late += rc == -ESTALE;
	if (pages->map)
		pages_tidy(pages);
	pages_leave(pages);
	return rc;
}
