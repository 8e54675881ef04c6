/* pages.c - covers: open, close, drop; generations and notes.
 *
 * A record that is put anew has a new version, and so the file a new
 * generation: pages that were kept under another one have keys that nobody
 * makes any more, and are evicted in time. */
#include "pages/internal.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE_SIZE_MIN 512u
#define PAGE_SIZE_MAX (1u << 20)
#define PAGE_SIZE 4096u
#define SIZE_MAX_BYTES (UINT64_C(1) << 30)
#define REMEMBER 65536u

/* --- covers --- */

static int open_map(struct reef_pages *pages, uint32_t flags)
{
	struct reef_map_options options = pages->of_map;
	struct reef_map_options made;
	int rc;

	options.flags |= flags;
	rc = reef_map_open(pages->space, pages->name, &options, &pages->map);
	if (rc) {
		pages->map = NULL;
		return rc;
	}
	reef_map_limits(pages->map, &made);
	if (made.value_max != pages->page_size) {
		reef_map_close(pages->map);
		pages->map = NULL;
		return -EINVAL;
	}
	pages->stats.size_max = made.size_max;
	return 0;
}

static bool is_page_size(uint32_t size)
{
	return size >= PAGE_SIZE_MIN && size <= PAGE_SIZE_MAX &&
	       !(size & (size - 1));
}

static int begin_pages(struct reef_pages *pages,
		       const struct reef_pages_options *options)
{
	pages->flags = options->flags;
	pages->page_size = options->page_size ? options->page_size : PAGE_SIZE;
	if (!is_page_size(pages->page_size) || (options->flags & ~3u))
		return -EINVAL;
	memcpy(pages->machine, options->machine, sizeof(pages->machine));
	pages->of_map = (struct reef_map_options){
		.flags = options->flags & REEF_PAGES_EXISTING
				 ? REEF_MAP_EXISTING
				 : REEF_MAP_RENEW,
		.key_max = sizeof(struct page_key),
		.value_max = pages->page_size,
		.size_max =
			options->size_max ? options->size_max : SIZE_MAX_BYTES,
		.eviction = REEF_MAP_LRU,
		.remember = options->remember ? options->remember : REMEMBER,
	};
	pages->stats.page_size = pages->page_size;
	return 0;
}

int reef_pages_open(struct reef_space *space, const char *cover,
		    const struct reef_pages_options *options,
		    struct reef_pages **out)
{
	static const struct reef_pages_options defaults;
	struct reef_pages *pages;
	int rc;

	if (!cover || !*cover)
		return -EINVAL;
	pages = calloc(1, sizeof(*pages));
	if (!pages)
		return -ENOMEM;
	pages->space = space;
	pages->reef = reef_space_handle(space);
	pages->name = strdup(cover);
	rc = pages->name ? begin_pages(pages, options ? options : &defaults)
			 : -ENOMEM;
	if (!rc)
		rc = open_map(pages, 0);
	if (!rc && pages->flags & REEF_PAGES_WRITER)
		rc = pages_take_seat(pages);
	if (rc) {
		reef_pages_close(pages);
		return rc;
	}
	*out = pages;
	return 0;
}

void reef_pages_close(struct reef_pages *pages)
{
	if (!pages)
		return;
	reef_map_close(pages->map);
	reef_map_value_free(&pages->spare[0]);
	reef_map_value_free(&pages->spare[1]);
	free(pages->name);
	free(pages);
}

int reef_pages_drop(struct reef_space *space, const char *cover)
{
	return reef_map_drop(space, cover);
}

void pages_enter(struct reef_pages *pages)
{
	pages->users++;
}

void pages_leave(struct reef_pages *pages)
{
	pages->users--;
}

/* At first the map is opened anew, which makes one whose root is lost; if some
 * other part of it is, that does not help, and it is dropped. Whoever else has
 * it open comes here, too. */
bool pages_heal(struct reef_pages *pages, int rc, uint32_t attempt)
{
	bool was_there = pages->map;

	if (rc != -REEF_ELOST && rc != -REEF_EDROPPED && rc != -REEF_ECORRUPT &&
	    was_there)
		return false;
	if (pages->users > 1 || attempt > 2)
		return false;
	memset(pages->known, 0, sizeof(pages->known));
	pages->term = 0;
	reef_map_close(pages->map);
	pages->map = NULL;
	if (attempt && rc == -REEF_ELOST) {
		reef_map_drop(pages->space, pages->name);
		pages->lost = 0;
	}
	if (open_map(pages, REEF_MAP_RENEW))
		return false;
	pages->stats.anew++;
	return true;
}

void reef_pages_stats(const struct reef_pages *pages,
		      struct reef_pages_stats *out)
{
	*out = pages->stats;
}

/* --- files and their generations --- */

struct reef_page_file pages_file(const struct reef_page_file *file)
{
	if (REEF_MUTATED(PAGES_KEY_SHORT))
		return (struct reef_page_file){.inode = file->inode};
	return *file;
}

struct known *pages_known(struct reef_pages *pages,
			  const struct reef_page_file *file)
{
	uint64_t mix = (file->inode ^ file->born_ns) * 0x9e3779b97f4a7c15u;
	struct known *known = &pages->known[mix >> 58];

	if (memcmp(&known->file, file, sizeof(*file)))
		*known = (struct known){.file = *file};
	return known;
}

void pages_know(struct reef_pages *pages, const struct reef_page_file *file,
		uint64_t generation)
{
	pages_known(pages, file)->generation = generation;
}

int pages_generation(struct reef_pages *pages,
		     const struct reef_page_file *file, uint64_t *generation)
{
	struct reef_map_value value = {0};
	int rc;

	*generation = pages_known(pages, file)->generation;
	if (*generation)
		return 0;
	rc = reef_map_peek(pages->map, file, RECORD_KEY_SIZE, &value);
	if (!rc) {
		*generation = value.version;
		pages_know(pages, file, value.version);
	}
	reef_map_value_free(&value);
	return rc;
}

int pages_suspend(struct reef_pages *pages, const struct reef_page_file *file)
{
	uint32_t attempt = 0;
	int rc;

	pages_know(pages, file, 0);
	do
		rc = reef_map_delete(pages->map, file, RECORD_KEY_SIZE, 0);
	while (rc == -REEF_EINDOUBT && ++attempt < PAGES_ATTEMPTS);
	return rc == -ENOENT ? 0 : rc;
}

static int put_record(struct reef_pages *pages,
		      const struct reef_page_file *file, uint64_t expected,
		      uint64_t *version)
{
	const uint64_t value = reef_session(pages->reef);

	if (expected)
		return reef_map_replace(pages->map, file, RECORD_KEY_SIZE,
					expected, &value, sizeof(value),
					REEF_MAP_PINNED, version);
	return reef_map_put(pages->map, file, RECORD_KEY_SIZE, &value,
			    sizeof(value), REEF_MAP_PINNED, version);
}

int pages_renew(struct reef_pages *pages, const struct reef_page_file *file,
		uint64_t expected)
{
	uint64_t version = 0;
	uint32_t attempt = 0;
	int rc;

	/* After a doubt: once more, and so a new one in any case. */
	do
		rc = put_record(pages, file, expected, &version);
	while (rc == -REEF_EINDOUBT && ++attempt < PAGES_ATTEMPTS);
	if (rc == -ENOSPC || rc == -EDQUOT)
		return pages_suspend(pages, file);
	if (rc == -ENOENT)
		rc = -ESTALE;
	pages_know(pages, file, rc ? 0 : version);
	pages->stats.renewals += !rc;
	return rc;
}

int reef_pages_renew(struct reef_pages *pages,
		     const struct reef_page_file *file)
{
	const struct reef_page_file self = pages_file(file);
	uint32_t attempt = 0;
	int rc;

	pages_enter(pages);
	do
		rc = pages->map ? pages_renew(pages, &self, 0) : -REEF_ELOST;
	while (rc && pages_heal(pages, rc, attempt++));
	pages_leave(pages);
	return rc;
}

int reef_pages_suspend(struct reef_pages *pages,
		       const struct reef_page_file *file)
{
	const struct reef_page_file self = pages_file(file);
	uint32_t attempt = 0;
	int rc;

	pages_enter(pages);
	do
		rc = pages->map ? pages_suspend(pages, &self) : -REEF_ELOST;
	while (rc && pages_heal(pages, rc, attempt++));
	pages_leave(pages);
	return rc;
}

/* --- notes --- */

int reef_pages_note(struct reef_pages *pages, const struct reef_page_file *file,
		    const void *bytes, size_t size)
{
	const struct note_key key = {.file = pages_file(file)};
	struct note note = {0};
	uint32_t attempt = 0;
	int rc;

	if (size > sizeof(note.bytes))
		return -EINVAL;
	note.generation = pages_known(pages, &key.file)->generation;
	if (!note.generation || !pages->map)
		return -ENOENT;
	memcpy(note.bytes, bytes, size);
	do
		rc = reef_map_put(pages->map, &key, sizeof(key), &note,
				  sizeof(note), REEF_MAP_PINNED, NULL);
	while (rc == -REEF_EINDOUBT && ++attempt < PAGES_ATTEMPTS);
	return rc;
}

static int compare_once(struct reef_pages *pages, const struct note_key *key,
			const void *bytes, size_t size)
{
	struct reef_map_item items[2] = {
		{.key = key, .key_size = sizeof(*key)},
		{.key = &key->file, .key_size = RECORD_KEY_SIZE},
	};
	struct note note;
	int rc = pages->map ? reef_map_get_many(pages->map, items, 2)
			    : -REEF_ELOST;

	if (!rc)
		rc = items[1].status ? items[1].status : items[0].status;
	if (!rc && items[0].value.size != sizeof(note))
		rc = -REEF_ECORRUPT;
	if (!rc) {
		memcpy(&note, items[0].value.bytes, sizeof(note));
		pages_know(pages, &key->file, items[1].value.version);
		if (note.generation != items[1].value.version &&
		    !REEF_MUTATED(PAGES_NOTE_LOOSE))
			rc = -ENOENT;
		else if (memcmp(note.bytes, bytes, size))
			rc = -ESTALE;
	}
	reef_map_value_free(&items[0].value);
	reef_map_value_free(&items[1].value);
	return rc;
}

int reef_pages_compare(struct reef_pages *pages,
		       const struct reef_page_file *file, const void *bytes,
		       size_t size)
{
	const struct note_key key = {.file = pages_file(file)};
	uint32_t attempt = 0;
	int rc;

	if (size > REEF_PAGES_NOTE_MAX)
		return -EINVAL;
	pages_enter(pages);
	do
		rc = compare_once(pages, &key, bytes, size);
	while (rc && pages_heal(pages, rc, attempt++));
	pages_leave(pages);
	return rc;
}
