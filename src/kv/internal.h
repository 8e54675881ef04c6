/* internal.h - the parts of a map, to each other.
 *
 *   map.c     open, close, drop
 *   tree.c    maps whose keys are in a tree: ranges, and what tree.h adds
 *   clock.c   the pool's clock, as expiry has it
 *   use.c     when, or how often, an entry was used
 *   get.c     reading keys
 *   change.c  changing them: all by one decide
 *   stage.c   values that are in the pool before they are put
 *   plain.c   put, delete, add and so on, over reef_map_apply
 *   size.c    what its entries take, and eviction
 *   sweep.c   what changes do by the way: expired keys, the size anew
 *   walk.c    scan, count, clear, statistics
 *   figures.c what costs no access, for services over maps
 *
 * Thread: as map.h. */
#ifndef REEF_KV_INTERNAL_H
#define REEF_KV_INTERNAL_H

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "index/entry/hold.h"
#include "index/hash/table.h"
#include "object/object.h"

#include <reef/map.h>

#define MAP_KEY_MAX 65536u
#define MAP_VALUE_MAX (UINT32_C(64) << 20)
#define MAP_TOGETHER 64u  /* keys in one batch */
#define MAP_SAMPLE 1024u  /* of gets, and of changes, in place one is timed */
#define MAP_CANDIDATES 16 /* for eviction, kept from sample to sample */

/* What a key is read for. */
enum map_purpose { MAP_USE, MAP_PEEK, MAP_LOOK };

/* Options of the tables of maps that are made from now on, for tests; zero: the
 * usual ones. */
extern struct hash_options map_tables;

struct map_body {      /* words in the object's block; by CAS and FAA */
	uint64_t root; /* of its table; 0: not made yet; and: */
#define MAP_DROPPING UINT64_C(1)
	uint64_t expiring;     /* 1: some key was put that expires */
	uint64_t sweep_due_ms; /* not before; the pool's clock */
	uint64_t sweep_cursor; /* where it goes on */
	uint64_t entry_bytes;  /* only if it has a size_max */
	uint64_t pass_start;   /* entry_bytes when this pass began */
	uint64_t pass_bytes;   /* what was met in it so far */
	uint64_t reserved;
};
#define MAP_WORD(map, word)                                                    \
	((map)->object.body + offsetof(struct map_body, word))

struct map_clock {
	uint64_t time_ns, at_ns; /* the pool's time, and ours then; 0: unknown
				  */
	uint64_t told_ns;	 /* what was told last */
	uint64_t next_ns;	 /* ours, when to ask again */
	bool busy;		 /* a fiber asks */
};

struct map_candidate {
	uint64_t version;
	uint32_t score; /* the highest goes first */
	uint32_t key_size;
	uint16_t touched;
	bool expired;
	void *key; /* its own */
};

/* What has a map's keys: a hash table (map.c), or a tree (tree.c). `index` is
 * what open gave. All on the thread of the handle's owner, none optional. */
struct map_index {
	enum object_kind kind;
	uint8_t format;			/* of the object's body */
	bool notes_uses;		/* its entries have `touched` */
	const struct hold_index *holds; /* for transactions */
	/* of_index: a number, not 0, that is fixed when the map is made. */
	int (*create)(struct reef_space *space, uint32_t of_index,
		      uint64_t owner, uint64_t *root);
	int (*open)(struct reef_space *space, uint64_t root, uint64_t remember,
		    void **out);
	void (*close)(void *index); /* NULL is fine */
	uint64_t (*owner)(const void *index);
	int (*drop)(void *index);
	/* Look a key up, expired or not; the entry points into the room. */
	int (*get)(struct reef_map *map, const void *key, size_t key_size,
		   enum map_purpose purpose, struct entry_room *room,
		   struct entry *entry);
	int (*apply)(void *index, struct entry_change *change);
	/* As hash_put_many. */
	int (*put_many)(void *index, struct entry_change *changes,
			uint32_t count);
	/* Go through some of the keys, without values, from a cursor on, which
	 * is 0 at the beginning and at the end; of what cannot be read nothing
	 * is told. */
	int (*walk)(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		    int (*each)(void *context, const struct entry *entry),
		    void *context);
};

/* Which gets are plain (get.c): none, as LFU notes each, or as the clock was
 * not asked yet; those of memory with one copy; with two. */
enum map_plain { MAP_PLAIN_NONE, MAP_PLAIN_ONE, MAP_PLAIN_COPIED };

struct reef_map {
	struct object object;
	struct reef *reef;
	const struct map_index *index;
	void *table; /* the index's */
	uint32_t key_max, value_max, of_index;
	enum reef_map_eviction eviction;
	enum map_plain plain;
	uint64_t size_max;
	/* time */
	struct map_clock clock;
	uint64_t tick_until_ns; /* coarse; then `tick` is to be looked at */
	uint32_t unit_ms;	/* of `touched`; LFU: of its minutes */
	uint16_t tick;		/* the time, in that */
	uint16_t use_units;	/* LRU, KEEP: older than that, it is noted */
	uint32_t beat;		/* client_beat when that was last thought of */
	bool expiring;		/* known to be set in the body */
	uint64_t care_ns;	/* coarse; when to look at the body again */
	/* size */
	uint64_t size_known; /* entry_bytes, as last seen, and */
	int64_t size_delta;  /* our own changes, not told yet */
	struct map_candidate candidates[MAP_CANDIDATES]; /* by score */
	uint32_t candidates_count;
	struct reef_random random;
	struct hash_reading *readings; /* MAP_TOGETHER of them; NULL: in use */
	/* A block for the status of a transaction that finds no room; 0: none.
	 */
	uint64_t spare;
	/* statistics */
	uint64_t hits, misses, changes, decisions, expired, evicted;
};

/* --- hold.c --- */

/* Have a spare block in hand, if there is room for one. Not inside reef_enter.
 */
void map_spare_keep(struct reef_map *map);
void map_spare_free(struct reef_map *map);

/* --- clock.c --- */

/* The pool's time; a handle's first call may fail. */
int map_now(struct reef_map *map, uint64_t *ms);
/* The pool's time without asking the broker, unless it is not known at all: for
 * code inside reef_enter. */
int map_time(struct reef_map *map, uint64_t *ms);

static inline bool map_has_expired(uint64_t expires_ms, uint64_t now_ms)
{
	return expires_ms && expires_ms <= now_ms;
}

/* --- get.c --- */

/* map_index's get, of a hash table. */
int map_get_hash(struct reef_map *map, const void *key, size_t key_size,
		 enum map_purpose purpose, struct entry_room *room,
		 struct entry *entry);
/* Read a key, without the shortcut of memory in place. */
int map_get(struct reef_map *map, const void *key, size_t key_size,
	    enum map_purpose purpose, struct reef_map_value *out);
/* Count a get that was not done in place, and how it ended. */
void map_note_found(struct reef_map *map, int rc);
/* True if the next get is to be timed, by map_get_timed, which calls `get` for
 * it. */
static inline bool map_is_sampled(const struct reef_map *map)
{
	return map->hits % MAP_SAMPLE == MAP_SAMPLE - 1;
}
int map_get_timed(struct reef_map *map, const void *key, size_t key_size,
		  struct reef_map_value *out,
		  int (*get)(struct reef_map *map, const void *key,
			     size_t key_size, struct reef_map_value *out));
/* End one lookup of many: the key's status and what was found are known.
 * most: longer values were not read; 0: all were. */
void map_end_item(struct reef_map *map, int status, const struct entry *entry,
		  const struct entry_room *room, uint32_t most,
		  struct reef_map_item *item);

/* --- use.c --- */

uint32_t map_use_unit_ms(enum reef_map_eviction eviction);
/* Set `tick` to the pool's time. */
void map_tick(struct reef_map *map);

static inline void map_refresh_tick(struct reef_map *map)
{
	if (reef_now_coarse_ns() >= map->tick_until_ns)
		map_tick(map);
}
#define MAP_AHEAD 4u /* units by which another's clock may be ahead */

/* LRU, KEEP: how many units ago an entry was touched. Another's clock may be a
 * little ahead of ours. */
static inline uint16_t map_since(const struct reef_map *map, uint16_t touched)
{
	uint16_t units = (uint16_t)(map->tick - touched);

	return units > UINT16_MAX - MAP_AHEAD ? 0 : units;
}
/* True if a use now has to be noted by writing *next as `touched`. */
bool map_use(struct reef_map *map, uint16_t touched, uint16_t *next);
/* The `touched` that an entry is put with; before: that of the value before it;
 * NULL: there is none. */
uint16_t map_use_first(struct reef_map *map, const uint16_t *before);
/* How good an entry is to evict: the highest score goes first. */
uint32_t map_use_score(const struct reef_map *map, uint16_t touched);
/* Learn from an entry with that score that was evicted: uses that are much
 * younger need not be told apart. */
void map_use_learn(struct reef_map *map, uint32_t score);
/* Fill in idle_ms and frequency of a value. */
void map_use_describe(struct reef_map *map, uint16_t touched,
		      struct reef_map_value *value);

/* --- change.c --- */

/* An entry of the table, as callers see it. */
static inline struct reef_map_entry map_entry_of(const struct entry *entry)
{
	return (struct reef_map_entry){
		.key = entry->key,
		.key_size = entry->key_size,
		.value = entry->value,
		.value_size = entry->value_size,
		.version = entry->version,
		.expires_ms = entry->stamp,
	};
}

/* One change of a key, on its way through the table. It is pointed into. */
struct map_work {
	struct reef_map *map;
	struct reef_map_change *change;
	struct reef_map_entry put;
	int64_t bytes;	  /* by which the map grows; of the last decision */
	bool met_expired; /* the last time */
	bool met_ghost;	  /* that was one: it counts for nothing */
	bool too_late;	  /* what is put has expired already */
	bool over;	  /* size_max was in the way */
	int rc;		  /* of the caller's decide */
	struct entry_staged *staged; /* what is put is there already; or NULL */
	struct entry ahead;
	struct entry_change below;
};
void map_work_begin(struct map_work *work, struct reef_map *map,
		    struct reef_map_change *change,
		    struct entry_staged *staged);
/* End a change that the table has done; returns what the caller's decide said.
 */
int map_work_end(struct map_work *work);
/* As reef_map_apply; staged: a value that is there already, and the only one
 * that may be put; NULL: none. */
int map_apply(struct reef_map *map, struct reef_map_change *change,
	      struct entry_staged *staged);
/* True if a change is within the map's limits. */
bool map_is_within_limits(const struct reef_map *map,
			  const struct reef_map_change *change);

struct map_removal {
	const void *key;
	size_t key_size;
	uint64_t version;	 /* 0: any */
	const uint16_t *touched; /* NULL: any */
	bool gently;		 /* not one that a transaction has */
};
/* Delete a key, expired or not, if it is as the removal says.  1: deleted.  0:
 * it is not there, or not so. */
int map_remove(struct reef_map *map, const struct map_removal *removal);

/* --- size.c --- */

/* FAA of a word that is a hint: REEF_BLIND or REEF_SINGLE. *before: may be
 * NULL.
 */
int map_add_hint(struct reef_map *map, uint64_t at, uint64_t add, uint8_t flags,
		 uint64_t *before);

/* Bytes that an entry counts for size_max. */
static inline uint64_t map_bytes_of(uint64_t key_size, uint64_t value_size)
{
	uint64_t size = 40 + key_size + value_size;

	return (size < 56 ? 56 : size) + 8;
}
/* (R10) A sum of bytes, as it was read from a body; it may be a little below
 * zero for a moment. One that no map can have counts as nothing, so that
 * nothing overflows. */
static inline uint64_t map_bytes_told(uint64_t word)
{
	const uint64_t most = UINT64_C(1) << 56;

	return word + most < 2 * most ? word : 0;
}
static inline uint64_t map_size(const struct reef_map *map)
{
	int64_t size = (int64_t)map->size_known + map->size_delta;

	return size > 0 ? (uint64_t)size : 0;
}
/* Count a change of ours by that many bytes. */
void map_account(struct reef_map *map, int64_t bytes);
/* Add what we have counted to entry_bytes now. */
void map_account_flush(struct reef_map *map);
/* Evict what is over size_max, before `bytes` are added.  -ENOSPC: they do not
 * fit.
 */
int map_make_room(struct reef_map *map, uint64_t bytes);
/* Evict the best of a sample.  1: done.  0: there was no candidate. */
int map_evict(struct reef_map *map);
void map_candidates_free(struct reef_map *map);

/* --- sweep.c --- */

/* Do a step of the sweep, if one is due, after a change. Errors do not matter.
 */
void map_care_now(struct reef_map *map);
static inline void map_care(struct reef_map *map)
{
	if (reef_now_coarse_ns() >= map->care_ns)
		map_care_now(map);
}
/* Note in the body that a key was put that expires: then sweeps look for such.
 * Only when memory comes back depends on it. */
void map_note_expiring(struct reef_map *map);

/* --- walk.c --- */

/* map_index's walk, of a hash table. */
int map_walk_hash(struct reef_map *map, uint64_t *cursor, uint32_t steps,
		  int (*each)(void *context, const struct entry *entry),
		  void *context);
/* As hash_walk, with the public cursor. */
int map_walk(struct reef_map *map, uint64_t *cursor, uint32_t steps,
	     uint32_t flags,
	     int (*each)(void *context, const struct entry *entry),
	     void *context);
/* A cursor at some group, by chance. */
uint64_t map_cursor_random(struct reef_map *map);

/* Keys that are to go, noted while walking, deleted afterwards. */
struct map_doomed {
	char *bytes;
	size_t used, room;
};
/* Note a key and its version. */
int map_doomed_note(struct map_doomed *doomed, const struct entry *entry);
/* Delete the keys that have the version they were noted with, or all of them if
 * `any`, and forget them. *removed (may be NULL) grows by how many were
 * deleted, also where an error ended it. */
int map_doomed_remove(struct reef_map *map, struct map_doomed *doomed, bool any,
		      uint64_t *removed);
void map_doomed_free(struct map_doomed *doomed);

/* --- map.c --- */

/* What a map is made, or opened, with. */
struct map_making {
	const struct map_index *index;
	struct reef_map_options options;
	uint32_t of_index;
	uint64_t remember; /* the index's */
};
/* Open a map, or make it, in *map, which is zero. */
int map_init(struct reef_space *space, const char *name,
	     const struct map_making *making, struct reef_map *map);
void map_fini(struct reef_map *map);
int map_drop(struct reef_space *space, const char *name,
	     const struct map_index *index);

/* CAS a word of the body. *now (may be NULL): what is there then, also after a
 * doubt. */
int map_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	    uint64_t *now);

#endif
