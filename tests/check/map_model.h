/* map_model.h - what a map answers, key by key, for linear.h.
 *
 * arguments[0]: the value to put, or to add; arguments[1]: the value that
 * MAP_REPLACE and MAP_REMOVE_IF expect. results[0]: was it there before?
 * results[1]: its value then; results[2]: the map was dropped. Values are such
 * that no two calls put the same, nor any sum of them (map_model_value).
 *
 * Thread: any. */
#ifndef REEF_TESTS_CHECK_MAP_MODEL_H
#define REEF_TESTS_CHECK_MAP_MODEL_H

#include "check/linear.h"

enum map_op {
	MAP_GET = 1,
	MAP_PUT,
	MAP_INSERT,
	MAP_UPDATE,
	MAP_REMOVE,
	MAP_ADD,
	MAP_REPLACE,   /* if it has that value */
	MAP_REMOVE_IF, /* likewise */
	MAP_BLIND,     /* a put that does not look: no result */
	MAP_DROP,
	MAP_OPS
};

extern const struct linear_model map_model;
extern const char *const map_op_names[MAP_OPS];

/* A value of the call with that number. */
static inline uint64_t map_model_value(uint64_t number)
{
	uint64_t value = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return value ^ value >> 31;
}

/* Take out the calls that never returned and whose value nobody ever saw: they
 * need not have happened, as all answers but those of blind puts tell the value
 * before. Without them the search is short, whoever died.  -ENOMEM. */
int map_model_prune(struct linear_op *ops, size_t *count);

#endif
