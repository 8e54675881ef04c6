/* map_model.c - a map, one call after the other. */
#include "check/map_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const map_op_names[MAP_OPS] = {
	"?",   "get",	  "put",       "insert", "update", "remove",
	"add", "replace", "remove-if", "blind",	 "drop",
};

enum { THERE, VALUE, DROPPED }; /* words of the model's state */

static void change(const struct linear_op *op, uint64_t *next)
{
	bool there = next[THERE];
	bool is_seen = there && next[VALUE] == op->arguments[1];

	switch (op->kind) {
	case MAP_REMOVE_IF:
		if (!is_seen)
			return;
		/* fallthrough */
	case MAP_REMOVE:
		next[THERE] = next[VALUE] = 0;
		return;
	case MAP_ADD:
		next[VALUE] += op->arguments[0];
		next[THERE] = 1;
		return;
	case MAP_INSERT:
		if (there)
			return;
		break;
	case MAP_UPDATE:
		if (!there)
			return;
		break;
	case MAP_REPLACE:
		if (!is_seen)
			return;
		break;
	default:
		break;
	}
	next[THERE] = 1;
	next[VALUE] = op->arguments[0];
}

static bool step(const uint64_t state[LINEAR_STATE], const struct linear_op *op,
		 uint64_t next[LINEAR_STATE])
{
	bool known = op->returned_at != LINEAR_NEVER;

	memcpy(next, state, LINEAR_STATE * sizeof(*next));
	if (op->kind == MAP_DROP) {
		next[THERE] = next[VALUE] = 0;
		next[DROPPED] = 1;
		return true;
	}
	if (known && op->results[2])
		return state[DROPPED];
	if (state[DROPPED])
		return !known;
	if (known && op->kind != MAP_BLIND &&
	    (op->results[0] != state[THERE] ||
	     (state[THERE] && op->results[1] != state[VALUE])))
		return false;
	if (op->kind != MAP_GET)
		change(op, next);
	return true;
}

const struct linear_model map_model = {.step = step};

static int compare_values(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

int map_model_prune(struct linear_op *ops, size_t *count)
{
	uint64_t *seen = malloc((*count + 1) * sizeof(*seen));
	size_t seen_count = 0, kept = 0, i;

	if (!seen)
		return -ENOMEM;
	for (i = 0; i < *count; i++)
		if (ops[i].returned_at != LINEAR_NEVER)
			seen[seen_count++] = ops[i].results[1];
	qsort(seen, seen_count, sizeof(*seen), compare_values);
	for (i = 0; i < *count; i++) {
		const struct linear_op *op = &ops[i];

		if (op->returned_at == LINEAR_NEVER && op->kind != MAP_ADD &&
		    op->kind != MAP_REMOVE && op->kind != MAP_REMOVE_IF &&
		    op->kind != MAP_DROP &&
		    !bsearch(&op->arguments[0], seen, seen_count, sizeof(*seen),
			     compare_values))
			continue;
		ops[kept++] = *op;
	}
	*count = kept;
	free(seen);
	return 0;
}
