/* explain.h - where a key of a map lies, for operators.
 *
 * Thread: owner of the handle. */
#ifndef REEF_KV_EXPLAIN_H
#define REEF_KV_EXPLAIN_H

#include <reef/map.h>

struct map_explanation {
	bool is_there;	   /* else `entry` is 0, and so is what it has */
	uint64_t subtable; /* address of the part of the table that names it */
	uint32_t depth;	   /* how often that part was split */
	uint64_t entry;	   /* address */
	uint64_t value_size, expires_ms;
	/* Both lie in memory that this process has mapped. */
	bool is_near;
};

/* Look a key up, without noting that it was used. As reef_map_look, but a key
 * that is not there is no error. */
int map_explain(struct reef_map *map, const void *key, size_t key_size,
		struct map_explanation *out);

#endif
