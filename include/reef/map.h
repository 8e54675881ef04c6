/* map.h - hash maps in the memory of a pool, shared by all its clients.
 *
 * A map is a named object in a space. Its clients read and change it by
 * one-sided operations alone: no server has a part in it. An open map belongs
 * to the handle that opened the space; the fibers of that handle may share it.
 *
 * (1) Every call on one key is linearizable, whichever clients, on whichever
 *     fabrics, make it. Calls on several keys are not atomic as a whole; each
 *     key by itself is. Transactions (txn.h) are.
 * (2) A client may die, stop or be cut off between any two operations: a change
 *     happened, or it did not, and nobody waits for the dead. What is
 *     acknowledged is there until it is deleted, expires or is evicted, or its
 *     node dies.
 * (3) Every value has a *version*: a number not 0 that no other value of the
 *     map has. Versions are not in order.
 * (4) A key that has expired is not there for any call from that moment of the
 *     pool's clock on (the broker's; milliseconds since 1970; each handle knows
 *     it within a few milliseconds). Its memory comes back when somebody
 *     touches it or a sweep passes, of which every handle that changes keys
 *     does a little.
 * (5) A map grows while it is used. Deleted keys give their memory back; what
 *     the table itself has grown to stays.
 *
 * Errors that every call may return, besides those of access (reef.h):
 *   -EBUSY          other clients changed the same key, or made and dropped the
 *                   same map, at each of very many attempts of this call.
 *                   Nothing of a change happened; call again
 *   -ENOMEM         this process has no memory
 *   -REEF_ECORRUPT  what is there is no map, or damaged; it can be dropped
 *   -REEF_EDROPPED  the map was dropped; close it
 *   -REEF_ELOST     the map's node died, or the key's. Drop the map, or, in the
 *                   first case, open it with REEF_MAP_RENEW
 * Errors of every call on a key:
 *   -EINVAL         the key or the value is longer than the map's limit;
 *                   nothing happened
 *   -ENOENT         the key is not there (not of put, insert, add and append)
 *   -REEF_ENOLINK   also: the key can expire, and the broker, which was never
 *                   asked for the time before, is out of reach
 * Errors of every call that changes a key:
 *   -EACCES         only reading is granted
 *   -ENOSPC, -EDQUOT  there is no room for the value in the map, the pool or
 *                   the space's quota. Nothing happened; all else goes on
 *   -REEF_EINDOUBT  the connection was lost, and other clients have changed the
 *                   key since, or it is still out of reach: the change happened
 *                   before that, or never will
 *   -ETIMEDOUT      the connection was lost, and what was under way could not
 * be settled (reef.h, (4)): the change happened, or not, or still will
 *
 * Thread: owner of the handle. */
#ifndef REEF_MAP_H
#define REEF_MAP_H

#include <reef/reef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_map;

enum reef_map_eviction {
	REEF_MAP_KEEP, /* when size_max is reached, puts are -ENOSPC */
	REEF_MAP_LRU,  /* the one not used for longest, of a sample, goes */
	REEF_MAP_LFU,  /* the one used least often lately, of a sample, goes */
	REEF_MAP_EVICTIONS
};

/* As expires_ms: the key does not expire, and is not evicted, either. */
#define REEF_MAP_PINNED UINT64_MAX

#define REEF_MAP_EXISTING 1u /* open flags: do not make it */
#define REEF_MAP_RENEW 2u    /* if its memory is lost, make it anew, empty */

/* Zero means the default. */
struct reef_map_options {
	uint32_t flags;
	/* Fixed when the map is made; whoever opens it later has these: */
	uint32_t key_max;   /* bytes; 65,536, at most that */
	uint32_t value_max; /* bytes; 64 MiB, at most that */
	uint64_t size_max;  /* bytes that its entries may take, roughly; no
			     * limit */
	enum reef_map_eviction eviction;
	/* This handle's: */
	uint32_t remember; /* keys whose place it remembers, so that each is
			    * read by one READ; 4,096 (48 bytes each) */
};

/* Open a map, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space.
 * -ENOENT: there is none, with REEF_MAP_EXISTING.  -EEXIST: the name is
 * something else's.  -EINVAL: no name, a limit that is too high, or an unknown
 * flag.  -ENAMETOOLONG: the name has more than 255 bytes.  -EACCES: only
 * reading is granted, and there is none.  -ENOSPC, -EDQUOT: no room to make it.
 * -REEF_EVERSION: it was made by a version with another layout. */
REEF_API int reef_map_open(struct reef_space *space, const char *name,
			   const struct reef_map_options *options,
			   struct reef_map **out);
/* Close a map, and free what the handle has of it. NULL is fine. */
REEF_API void reef_map_close(struct reef_map *map);

/* Drop a map with all that is in it; everybody else gets -REEF_EDROPPED from
 * then on. Takes a moment for each thousand keys; if its caller dies meanwhile,
 * or gets an error, the next to drop or open that name goes on with it.
 * -ENOENT: there is none.  -EEXIST: the name is not a map's.  -EINVAL,
 * -ENAMETOOLONG, -REEF_EVERSION: as reef_map_open.  -EACCES. */
REEF_API int reef_map_drop(struct reef_space *space, const char *name);

/* --- one key --- */

/* What was found. Zero it before its first use; it keeps its room from call to
 * call, and the caller frees it at the end. */
struct reef_map_value {
	const void *bytes; /* valid until its next use; size 0: any */
	size_t size;
	uint64_t version;
	uint64_t expires_ms; /* 0: never */
	uint64_t idle_ms;    /* since it was last used, roughly: LRU, KEEP */
	uint32_t frequency;  /* 0 to 255, logarithmic: LFU */
	void *room;	     /* the map's; malloc's: free() may have it */
	size_t room_size;
};
/* Free its room and zero it. */
REEF_API void reef_map_value_free(struct reef_map_value *value);

/* Read a key. With a remembered place it is one READ, else two round trips. */
REEF_API int reef_map_get(struct reef_map *map, const void *key,
			  size_t key_size, struct reef_map_value *out);
/* Read a key as reef_map_get does, but do not count it as a use of the key. */
REEF_API int reef_map_peek(struct reef_map *map, const void *key,
			   size_t key_size, struct reef_map_value *out);
/* Read what is known of a key without its value, and do not count it as a use:
 * out->bytes is NULL, out->size says how long the value is. A large value is
 * not read. */
REEF_API int reef_map_look(struct reef_map *map, const void *key,
			   size_t key_size, struct reef_map_value *out);

/* Set a key, whatever it was. expires_ms 0: it does not expire; a time that has
 * passed: the key is not there afterwards. version (may be NULL): the new
 * value's; 0: there is none, it has expired. */
REEF_API int reef_map_put(struct reef_map *map, const void *key,
			  size_t key_size, const void *value, size_t value_size,
			  uint64_t expires_ms, uint64_t *version);
/* Set a key that is not there, else as reef_map_put.  -EEXIST: it is there. */
REEF_API int reef_map_insert(struct reef_map *map, const void *key,
			     size_t key_size, const void *value,
			     size_t value_size, uint64_t expires_ms,
			     uint64_t *version);
/* Set a key that is there, else as reef_map_put.  -ENOENT: it is not there. */
REEF_API int reef_map_update(struct reef_map *map, const void *key,
			     size_t key_size, const void *value,
			     size_t value_size, uint64_t expires_ms,
			     uint64_t *version);
/* Set a key whose version is `expected`, else as reef_map_put (compare and
 * put).  -ENOENT: it is not there.  -ESTALE: it has another version. */
REEF_API int reef_map_replace(struct reef_map *map, const void *key,
			      size_t key_size, uint64_t expected,
			      const void *value, size_t value_size,
			      uint64_t expires_ms, uint64_t *version);
/* Delete a key; expected 0: whatever its version is.  -ENOENT: it is not there.
 * -ESTALE: it has another version. */
REEF_API int reef_map_delete(struct reef_map *map, const void *key,
			     size_t key_size, uint64_t expected);
/* Add to a counter, which is a decimal number as text; a key that is not there
 * counts as 0. *after (may be NULL): the sum. When the key expires stays as it
 * was.  -EDOM: its value is not a number.  -ERANGE: the sum does not fit. */
REEF_API int reef_map_add(struct reef_map *map, const void *key,
			  size_t key_size, int64_t add, int64_t *after);
/* Put bytes behind a key's value; a key that is not there counts as empty.
 * *size (may be NULL): how long the value is then. When the key expires stays
 * as it was. */
REEF_API int reef_map_append(struct reef_map *map, const void *key,
			     size_t key_size, const void *bytes, size_t count,
			     size_t *size);
/* Set when a key expires; 0: never. A time that has passed deletes it.
 * -ENOENT: it is not there. */
REEF_API int reef_map_expire(struct reef_map *map, const void *key,
			     size_t key_size, uint64_t expires_ms);

/* --- any other change of one key, atomically --- */

struct reef_map_entry {
	const void *key, *value;
	size_t key_size, value_size;
	uint64_t version, expires_ms;
};

enum reef_map_verdict { REEF_MAP_LEAVE, REEF_MAP_PUT, REEF_MAP_DELETE };

/* Zero what is not named. */
struct reef_map_change {
	const void *key;
	size_t key_size;
	/* Says what is to become of the key. now: NULL if it is not there; good
	 * only during the call. For REEF_MAP_PUT it fills in value, value_size
	 * and expires_ms of *put (0 at first); the bytes stay the caller's,
	 * until the next call or the end of reef_map_apply, and may be those of
	 * `now`. It is called again whenever another client was quicker, and
	 * must not call into the handle. A negative value is an error, which
	 * reef_map_apply returns as it is; nothing happened then. */
	int (*decide)(void *context, const struct reef_map_entry *now,
		      struct reef_map_entry *put);
	void *context;
	/* Optional: what decide puts if it puts at all; then it is written
	 * ahead, which saves a round trip. */
	const struct reef_map_entry *ahead;
	/* Optional: decide does not look at now->value, which may be NULL then:
	 * so a large one is not read. */
	bool blind;
	uint64_t version; /* out: after REEF_MAP_PUT, the new value's */
	enum reef_map_verdict verdict; /* out: the last, which was done */
};

/* Change a key as change->decide says. change is the caller's. 0: done as
 * decided last, also REEF_MAP_LEAVE. */
REEF_API int reef_map_apply(struct reef_map *map,
			    struct reef_map_change *change);

/* --- many keys --- */

/* One of many; zero what is not named. */
struct reef_map_item {
	const void *key;
	size_t key_size;
	/* get_many: what was found. put_many: bytes, size and expires_ms are
	 * the caller's, version is set. */
	struct reef_map_value value;
	int status; /* out, as the call on one key returns */
};

/* Read many keys in shared batches: 64 keys on one node take two round trips.
 * Returns 0, or an error that ended the call; each item has its own status. */
REEF_API int reef_map_get_many(struct reef_map *map,
			       struct reef_map_item *items, uint32_t count);
/* Put many keys in shared batches; returns as reef_map_get_many. A key that is
 * there twice gets one of the two values. */
REEF_API int reef_map_put_many(struct reef_map *map,
			       struct reef_map_item *items, uint32_t count);

/* Go through a map: call `each` for the entries of the next `steps` groups of
 * about 15. *cursor is 0 to begin, and 0 again when that was all:
 *
 *	uint64_t cursor = 0;
 *	do
 *		rc = reef_map_scan(map, &cursor, 100, each, context);
 *	while (!rc && cursor);
 *
 * A cursor stays good for any time, whatever is changed and however the map
 * grows, and for any handle; any number is some place in the map, or its end. A
 * key that is there from the first call to the last is met at least once; a few
 * are met twice. Any nonzero value from `each`, which must not call into the
 * handle, ends the call and is returned as it is; then, and after an error, the
 * cursor stays before the group that was not done, so whoever goes on from
 * there meets its entries again.  -EINVAL: steps is 0. */
REEF_API int reef_map_scan(struct reef_map *map, uint64_t *cursor,
			   uint32_t steps,
			   int (*each)(void *context,
				       const struct reef_map_entry *entry),
			   void *context);
/* Go through a map as reef_map_scan does, without the values: entry->value is
 * NULL, entry->value_size says how long it is. */
REEF_API int reef_map_scan_keys(struct reef_map *map, uint64_t *cursor,
				uint32_t steps,
				int (*each)(void *context,
					    const struct reef_map_entry *entry),
				void *context);

/* Count the keys, expired ones that nobody met yet among them, and those that a
 * transaction is about to insert, by reading the table, 12 bytes a key. While
 * others change it: roughly. */
REEF_API int reef_map_count(struct reef_map *map, uint64_t *count);

/* Delete every key that is there from the beginning of the call to its end.
 * After an error some are deleted; call again for the others.  -EACCES. */
REEF_API int reef_map_clear(struct reef_map *map);

/* --- about it --- */

/* Tell a map's limits, as whoever made it set them: key_max, value_max,
 * size_max and eviction of *out; the rest is 0. Costs nothing. */
REEF_API void reef_map_limits(const struct reef_map *map,
			      struct reef_map_options *out);

struct reef_map_stats {
	/* Of the map, as reef_map_count finds them: */
	uint64_t keys, slots; /* slots: places for keys at this size */
	uint64_t table_bytes; /* of the table itself, without entries */
	uint32_t subtables, depth;
	/* Of the map, roughly; counted only if it has a size_max: */
	uint64_t entry_bytes, size_max;
	enum reef_map_eviction eviction;
	uint32_t key_max, value_max;
	/* Of this handle since it was opened: */
	uint64_t gets, hits;	   /* hits: that found the key */
	uint64_t changes, retries; /* retries: another was quicker */
	uint64_t expired, evicted; /* keys that it removed */
};
/* Tell of a map's size and of what this handle did; costs what reef_map_count
 * does. */
REEF_API int reef_map_stats(struct reef_map *map, struct reef_map_stats *out);

/* Tell the pool's time, in milliseconds since 1970, as this map's expiry has
 * it.  -REEF_ENOLINK: the broker is out of reach, and was never asked before.
 */
REEF_API int reef_map_now(struct reef_map *map, uint64_t *ms);

/* Remove expired keys, and evict what is over size_max, looking at `steps`
 * groups of about 15. Calls that change keys do this by themselves now and
 * then; a program that only reads need not. Returns how many were removed, or
 * an error.  -EACCES. */
REEF_API int reef_map_sweep(struct reef_map *map, uint32_t steps);

#ifdef __cplusplus
}
#endif
#endif
