/* internal.h - the parts of a map, to each other.
 *
 *   map.c     open, close, drop
 *   clock.c   the pool's clock, as expiry has it
 *   get.c     reading keys
 *   change.c  changing them: all by one decide
 *   walk.c    scan, count, clear, sweep
 *
 * Thread: as map.h. */
#ifndef REEF_KV_INTERNAL_H
#define REEF_KV_INTERNAL_H

#include "base/log.h"
#include "index/hash/table.h"
#include "sync/object.h"

#include <reef/map.h>

#define MAP_KEY_MAX 65536u
#define MAP_VALUE_MAX (UINT32_C(64) << 20)
#define MAP_TOGETHER 64u /* keys in one batch */

struct map_body {      /* words in the object's block; changed by CAS and FAA */
	uint64_t root; /* of its table; 0: not made yet; and: */
#define MAP_DROPPING UINT64_C(1)
	uint64_t reserved[7];
};

struct map_clock {
	struct reef_clock *clock; /* NULL: not opened yet */
	uint64_t drawn_ns, at_ns; /* the pool's time, and ours then */
	uint64_t told_ns;	  /* what was told last */
	uint64_t next_ns;	  /* ours, when to draw again */
	bool busy;		  /* a fiber draws */
};

struct reef_map {
	struct sync_object object;
	struct reef *reef;
	struct hash_table *table;
	uint32_t key_max, value_max;
	uint64_t size_max;
	enum reef_map_eviction eviction;
	struct map_clock clock;
	struct hash_reading *readings; /* MAP_TOGETHER of them; NULL: in use */
	/* statistics */
	uint64_t gets, hits, changes, decisions, expired;
	uint64_t sweep_cursor;
};

/* --- clock.c --- */

/* The pool's time; the first call may fail. */
int map_now(struct reef_map *map, uint64_t *ms);
void map_clock_close(struct reef_map *map);

/* --- change.c --- */

/* Delete a key if it still has that version, or, if 0, whatever it has; expired
 * or not. 1: deleted.  0: it was not there, or has another. */
int map_remove(struct reef_map *map, const void *key, size_t key_size,
	       uint64_t version);

static inline bool map_has_expired(uint64_t expires_ms, uint64_t now_ms)
{
	return expires_ms && expires_ms <= now_ms;
}

#endif
