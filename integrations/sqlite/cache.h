/* cache.h - what the pool has of one open database: its pages, while the file
 * on disk is what they were read from.
 *
 * (1) A *state* of the file is its size, its times and its change counter.
 *     Pages of the pool are used only while the file has the state for which
 *     their generation was noted: this process looks at the file whenever
 *     SQLite begins to read it under a lock, and before it is the first to
 *     write under one. A process without the extension
 *     that writes the file leaves another state, and so a new generation.
 * (2) Times pass in ticks of the kernel: a file that was written a moment ago
 *     may be written again without another time. So a state is noted only when
 *     it is older than any tick; or when this process has set the time itself,
 *     after it has written the file and under the same lock, to one that no
 *     tick has: a nanosecond before the present one.
 * (3) The pool is told of what this process writes, page by page, before and
 *     after. When that fails, the file is written all the same, and the new
 *     state is not noted: the next one to read finds that, and renews.
 * (4) Nothing that the pool does, or does not do, is an error for SQLite.
 *
 * Thread: one at a time, as SQLite's files. */
#ifndef REEF_SQLITE_CACHE_H
#define REEF_SQLITE_CACHE_H

#include <sqlite3ext.h>

#include <reef/pages.h>

/* After so long a state can be noted, where times are this machine's: (2). */
#define CACHE_SETTLE_MS 60

/* What a file is known by; compared as bytes. */
struct cache_state {
	uint64_t size, mtime_ns, ctime_ns;
	uint64_t life;	  /* of the machine: (3) of disk.h */
	uint32_t counter; /* of SQLite's changes */
	uint32_t page_size;
};

struct cache {
	/* Where the pages are; each may be NULL, of which the text is
	 * SQLite's, with the name of the file. */
	const char *path, *pool, *space, *cover, *credential, *token;
	uint64_t size_max;
	sqlite3_file *under; /* the file itself */
	/* The pool, if it is open. */
	struct reef *reef;
	struct reef_space *opened;
	struct reef_pages *pages;
	uint32_t page_size; /* of pages */
	uint64_t retry_ms;  /* not before, if it is not */
	int why;	    /* it is not: the error */
	/* The file */
	struct reef_page_file file;
	bool is_known;	/* which file it is */
	bool is_remote; /* its times are another machine's */
	bool is_valid;	/* the pool's pages are those of: */
	struct cache_state state;
	bool has_written; /* since the last cache_finish */
	/* statistics, of this file since it was opened */
	uint64_t disk_reads, foreign;
	struct reef_pages_stats before; /* of pools that were left */
};

/* Begin with a file that is open; the texts stay the caller's. */
void cache_init(struct cache *cache, const char *path, sqlite3_file *under);
void cache_fini(struct cache *cache);

/* A lock was taken under which nobody else writes what is read. */
void cache_check(struct cache *cache);
/* Read, from the pool or from the file. As xRead. */
int cache_read(struct cache *cache, void *to, int size, sqlite3_int64 at);
/* Write the file, and tell the pool. As xWrite. */
int cache_write(struct cache *cache, const void *from, int size,
		sqlite3_int64 at);
/* Cut the file, and tell the pool. As xTruncate. */
int cache_truncate(struct cache *cache, sqlite3_int64 size);
/* What was written is all, and the lock is about to be given. */
void cache_finish(struct cache *cache);

/* Bring all pages into the pool, under a lock; how many were not there. */
sqlite3_int64 cache_prime(struct cache *cache);
/* What is known of it, in JSON, from sqlite3_malloc; NULL: no memory. */
char *cache_tell(struct cache *cache);

#endif
