/* internal.h - the parts of a cache of pages, to each other.
 *
 *   pages.c   open, close, drop; a cover that was lost; generations, notes
 *   seat.c    which machine writes
 *   read.c    get, fill
 *   write.c   begin, write, change
 *   tidy.c    markers that the dead have left
 *
 * A cover is one reef_map, with LRU in its limit. Its keys, by their sizes:
 *
 *   record  a file's: {session}. Its version is the file's generation. Pinned
 *   note    a file's: {generation, the caller's bytes}. Pinned
 *   page    {file, page, generation}: the page's bytes; or a marker:
 *           {kind, session}, which is shorter than any page. A reader's expires
 *           after a second, a writer's is pinned
 *   seat    {machine, session} of who writes. Pinned
 *
 * Thread: as pages.h. */
#ifndef REEF_PAGES_INTERNAL_H
#define REEF_PAGES_INTERNAL_H

#include "pool/client/client.h"

#include <reef/map.h>
#include <reef/pages.h>

#define PAGES_FILES 64u	   /* whose generation a handle remembers */
#define PAGES_ATTEMPTS 16u /* in each of which something changed */

struct page_key {
	struct reef_page_file file;
	uint64_t page, generation;
};
#define RECORD_KEY_SIZE sizeof(struct reef_page_file)
struct note_key {
	struct reef_page_file file;
	uint64_t note; /* 0 */
};

enum marker_kind { MARKER_READER = 1, MARKER_WRITER };
struct marker {
	uint32_t kind, session;
	uint64_t reserved; /* 0 */
};

struct note {
	uint64_t generation;
	uint8_t bytes[REEF_PAGES_NOTE_MAX];
};

struct seat {
	uint8_t machine[16];
	uint32_t session, reserved;
};

/* What a handle remembers of a file. A hit is proved by the record itself. */
struct known {
	struct reef_page_file file;
	uint64_t generation; /* 0: not known */
};

struct reef_pages {
	struct reef_space *space;
	struct reef *reef;
	struct reef_map *map;
	char *name;
	struct reef_map_options of_map;
	uint32_t flags, page_size;
	uint32_t users; /* fibers inside a call */
	uint8_t machine[16];
	uint64_t term; /* version of the seat, as last seen; 0: none */
	struct known known[PAGES_FILES];
	struct reef_map_value spare[2]; /* rooms of get; in use: NULL */
	uint32_t lost;			/* keys that were met whose memory is */
	uint64_t cursor;		/* of tidy.c */
	uint32_t until_tidy;
	struct reef_pages_stats stats;
};

/* --- pages.c --- */

/* Enter and leave a call: only one that is alone may exchange the map. */
void pages_enter(struct reef_pages *pages);
void pages_leave(struct reef_pages *pages);
/* After an error: true if the cover was lost, or dropped, and is there again,
 * empty; then the call may be tried again. */
bool pages_heal(struct reef_pages *pages, int rc, uint32_t attempt);

/* A file as keys have it: (5). */
struct reef_page_file pages_file(const struct reef_page_file *file);
/* What is remembered of a file, by pages_file; it may be another file's place
 * until then, and after any wait. */
struct known *pages_known(struct reef_pages *pages,
			  const struct reef_page_file *file);
void pages_know(struct reef_pages *pages, const struct reef_page_file *file,
		uint64_t generation);
/* The generation of a file, as remembered, or READ.  -ENOENT: it has none. */
int pages_generation(struct reef_pages *pages,
		     const struct reef_page_file *file, uint64_t *generation);
/* Renew a file whose generation is that one; 0: whatever it is.  -ESTALE: it
 * has another, or none. */
int pages_renew(struct reef_pages *pages, const struct reef_page_file *file,
		uint64_t expected);
int pages_suspend(struct reef_pages *pages, const struct reef_page_file *file);

/* --- read.c --- */

/* True if these are the bytes of a marker. */
bool pages_is_marker(const struct reef_pages *pages,
		     const struct reef_map_value *value, struct marker *out);
/* The memory of a page's key is lost, and so perhaps a writer's marker with it:
 * the file is renewed. -EAGAIN: done.  -REEF_ELOST: that was so too often. */
int pages_meet_lost(struct reef_pages *pages, const struct reef_page_file *file,
		    uint64_t generation);
/* 1: the session has ended.  0: it has not, as far as is known. */
int pages_has_ended(struct reef_pages *pages, uint32_t session);

/* --- seat.c --- */

/* Take the seat for this machine, or find that it has it.  -EBUSY: another has
 * it. */
int pages_take_seat(struct reef_pages *pages);
/* What was READ of the seat along with something else. 0: it is this machine's.
 * -EPERM. */
int pages_check_seat(struct reef_pages *pages,
		     const struct reef_map_item *seat);
extern const char pages_seat_key[1];

/* --- tidy.c --- */

/* Now and then look at some keys, for markers of ended sessions. */
void pages_tidy(struct reef_pages *pages);

#endif
