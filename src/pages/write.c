/* write.c - what is done before and after a file is written.
 *
 *   anything --begin: put a writer's marker--> marked --write: replace, if it
 *   is still that one--> a page
 *
 * The record is looked at after the markers are there, and after they were
 * replaced: under a generation that was over by then they meant nothing. If the
 * record is the same after the page has replaced its marker, whoever renews it
 * later reads the file after it was written. */
#include "pages/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TOGETHER 64u /* markers that are put at once */

/* A page that was told before it was kept. */
struct later {
	struct page_key key;
	void *bytes;
};
static struct later later;

static void keep_later(struct reef_pages *pages)
{
	const struct later now = later;

	if (!now.bytes || !pages->map)
		return;
	later.bytes = NULL;
	reef_map_put(pages->map, &now.key, sizeof(now.key), now.bytes,
		     pages->page_size, 0, NULL);
	free(now.bytes);
}

/* 0: the file still has that generation, and, if `seat`, this machine the seat.
 * -ESTALE: another, or none.  -EPERM. */
static int check_still(struct reef_pages *pages,
		       const struct reef_page_file *file, uint64_t generation,
		       bool seat)
{
	struct reef_map_item items[2] = {
		{.key = file, .key_size = RECORD_KEY_SIZE},
		{.key = pages_seat_key, .key_size = sizeof(pages_seat_key)},
	};
	int rc = reef_map_get_many(pages->map, items, seat ? 2 : 1);

	if (!rc)
		rc = items[0].status;
	if (rc == -ENOENT || (!rc && items[0].value.version != generation)) {
		pages_know(pages, file, rc ? 0 : items[0].value.version);
		rc = -ESTALE;
	}
	if (!rc && seat)
		rc = pages_check_seat(pages, &items[1]);
	reef_map_value_free(&items[0].value);
	reef_map_value_free(&items[1].value);
	return rc;
}

/* Put markers for some pages. */
static int put_markers(struct reef_pages *pages, const struct page_key *first,
		       uint32_t count, uint64_t *tokens)
{
	const struct marker marker = {.kind = MARKER_WRITER,
				      .session = reef_session(pages->reef)};
	struct reef_map_item items[TOGETHER];
	struct page_key keys[TOGETHER];
	uint32_t attempt = 0;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		keys[i] = *first;
		keys[i].page += i;
		items[i] = (struct reef_map_item){
			.key = &keys[i],
			.key_size = sizeof(keys[i]),
			.value = {.bytes = &marker,
				  .size = sizeof(marker),
				  .expires_ms =
					  REEF_MUTATED(PAGES_MARKER_EVICTED)
						  ? 0
						  : REEF_MAP_PINNED},
		};
	}
	do {
		rc = reef_map_put_many(pages->map, items, count);
		for (uint32_t i = 0; !rc && i < count; i++)
			rc = items[i].status;
	} while (rc == -REEF_EINDOUBT && ++attempt < PAGES_ATTEMPTS);
	for (uint32_t i = 0; !rc && i < count; i++)
		tokens[i] = items[i].value.version;
	return rc;
}

/* -ESTALE: once more. */
static int begin_once(struct reef_pages *pages, struct page_key *key,
		      uint32_t count, uint64_t *tokens)
{
	const uint64_t first = key->page;
	uint32_t some;
	int rc;

	if (!pages->map)
		return -REEF_ELOST;
	rc = pages_generation(pages, &key->file, &key->generation);
	if (rc == -ENOENT) {
		/* Others may give it one while the file is written. */
		rc = pages_renew(pages, &key->file, 0);
		return rc ? rc : -ESTALE;
	}
	for (uint32_t i = 0; !rc && i < count; i += some) {
		some = count - i < TOGETHER ? count - i : TOGETHER;
		key->page = first + i;
		if (!REEF_MUTATED(PAGES_WRITE_BARE))
			rc = put_markers(pages, key, some, tokens + i);
	}
	key->page = first;
	if (rc == -REEF_ELOST) {
		rc = pages_meet_lost(pages, &key->file, key->generation);
		return rc == -EAGAIN ? -ESTALE : rc;
	}
	return rc ? rc : check_still(pages, &key->file, key->generation, true);
}

int reef_pages_begin(struct reef_pages *pages,
		     const struct reef_page_file *file, uint64_t first,
		     uint32_t count, uint64_t *tokens)
{
	struct page_key key = {.file = pages_file(file), .page = first};
	uint32_t attempt = 0, healed = 0;
	int rc;

	if (!count || !(pages->flags & REEF_PAGES_WRITER))
		return -EINVAL;
	pages_enter(pages);
	if (REEF_MUTATED(PAGES_WRITE_AFTER))
		keep_later(pages);
	do
		rc = begin_once(pages, &key, count, tokens);
	while ((rc == -ESTALE && ++attempt < PAGES_ATTEMPTS) ||
	       (rc && rc != -ESTALE && pages_heal(pages, rc, healed++)));
	if (rc == -ENOSPC || rc == -EDQUOT)
		pages_suspend(pages, &key.file);
	if (!rc && pages->map)
		pages_tidy(pages);
	pages_leave(pages);
	return rc == -ESTALE ? -EBUSY : rc;
}

static int write_later(struct reef_pages *pages, const struct page_key *key,
		       uint64_t token, const void *bytes)
{
	free(later.bytes);
	later.bytes = malloc(pages->page_size);
	if (!later.bytes)
		return -ENOMEM;
	memcpy(later.bytes, bytes, pages->page_size);
	later.key = *key;
	reef_map_delete(pages->map, key, sizeof(*key), token);
	return 0;
}

int reef_pages_write(struct reef_pages *pages,
		     const struct reef_page_file *file, uint64_t page,
		     uint64_t token, const void *bytes)
{
	struct page_key key = {.file = pages_file(file), .page = page};
	int rc;

	pages_enter(pages);
	key.generation = pages_known(pages, &key.file)->generation;
	if (!token || !key.generation || !pages->map)
		rc = -ESTALE;
	else if (!bytes)
		rc = reef_map_delete(pages->map, &key, sizeof(key), token);
	else if (REEF_MUTATED(PAGES_WRITE_AFTER))
		rc = write_later(pages, &key, token, bytes);
	else
		rc = reef_map_replace(pages->map, &key, sizeof(key), token,
				      bytes, pages->page_size, 0, NULL);
	if (REEF_MUTATED(PAGES_WRITE_BARE) && pages->map && bytes)
		rc = reef_map_put(pages->map, &key, sizeof(key), bytes,
				  pages->page_size, 0, NULL);
	if (!rc)
		rc = check_still(pages, &key.file, key.generation, false);
	if (REEF_MUTATED(PAGES_RESUME_SILENT))
		rc = 0;
	if (rc == -ENOENT || rc == -REEF_EINDOUBT)
		rc = -ESTALE;
	pages->stats.writes += !rc;
	pages->stats.lost += rc != 0;
	pages_leave(pages);
	return rc;
}

int reef_pages_change(struct reef_pages *pages,
		      const struct reef_page_file *file,
		      int (*change)(void *context), void *context,
		      bool *changed)
{
	int rc, result;

	if (changed)
		*changed = false;
	rc = REEF_MUTATED(PAGES_TRUNCATE_FORGET)
		     ? 0
		     : reef_pages_suspend(pages, file);
	if (rc)
		return rc;
	result = change(context);
	if (changed)
		*changed = true;
	if (!REEF_MUTATED(PAGES_TRUNCATE_FORGET))
		rc = reef_pages_renew(pages, file);
	return result ? result : rc;
}
