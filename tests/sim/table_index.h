/* table_index.h - what the simulation needs of an index, hash table or ordered
 * tree: keys and values are words.
 *
 * Thread: owner. */
#ifndef TESTS_SIM_TABLE_INDEX_H
#define TESTS_SIM_TABLE_INDEX_H

#include "index/entry/entry.h"
#include "index/hash/table.h"

/* Where a scan goes on; zero: at the beginning. */
struct index_cursor {
	struct hash_cursor hash;
	uint64_t last; /* key of a tree */
	bool is_begun, is_done;
	bool is_backward; /* of a tree: from the greatest key on */
};

struct index_ops {
	bool shrinks; /* keys that go give its nodes back: so there are ebbs */
	/* As small as can be; seed: for what there is to choose. */
	int (*create)(struct reef_space *space, uint64_t seed, uint64_t owner,
		      uint64_t *root);
	int (*open)(struct reef_space *space, uint64_t root, void **out);
	void (*close)(void *index);
	uint64_t (*id)(const void *index);
	uint64_t (*root)(const void *index);
	int (*drop)(void *index);
	int (*apply)(void *index, struct entry_change *change);
	/* notes: the use of the key is noted, too, if the index does that. */
	int (*get)(void *index, uint64_t key, bool notes, uint64_t *value,
		   uint64_t *version);
	/* Several keys: each has its status. */
	int (*get_many)(void *index, const uint64_t *keys, uint32_t count,
			uint64_t *values, int *statuses);
	int (*put_many)(void *index, struct entry_change *changes,
			uint32_t count);
	/* A part of all keys; is_done: that was all. */
	int (*scan)(void *index, struct index_cursor *cursor, uint32_t steps,
		    int (*each)(void *context, const struct entry *entry),
		    void *context);
	int (*count)(void *index, uint64_t *keys);
	/* NULL: it has no order. Which of two keys comes first; the keys from
	 * one on, up to another or, if it is that itself, to the end, counted;
	 * the first of them, and its value. backward: downward. */
	int (*compare)(uint64_t a, uint64_t b);
	int (*count_range)(void *index, uint64_t from, uint64_t to,
			   bool backward, uint64_t *keys);
	int (*first)(void *index, uint64_t from, bool backward, uint64_t *key,
		     uint64_t *value);
};

/* The index of this program. */
extern const struct index_ops index_ops;

#endif
