/* table_truth.c - what was done to the tables, and is it linearizable? */
#include "table_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THERE, VALUE, DROPPED }; /* words of the model's state */

static void change(const struct linear_op *op, uint64_t *next)
{
	bool there = next[THERE];
	bool is_seen = there && next[VALUE] == op->arguments[1];

	switch (op->kind) {
	case OP_REMOVE_IF:
		if (!is_seen)
			return;
		/* fallthrough */
	case OP_REMOVE:
		next[THERE] = next[VALUE] = 0;
		return;
	case OP_ADD:
		next[VALUE] += op->arguments[0];
		next[THERE] = 1;
		return;
	case OP_INSERT:
		if (there)
			return;
		break;
	case OP_UPDATE:
		if (!there)
			return;
		break;
	case OP_REPLACE:
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
	if (op->kind == OP_DROP) {
		next[THERE] = next[VALUE] = 0;
		next[DROPPED] = 1;
		return true;
	}
	if (known && op->results[2])
		return state[DROPPED];
	if (state[DROPPED])
		return !known;
	if (known && op->kind != OP_BLIND &&
	    (op->results[0] != state[THERE] ||
	     (state[THERE] && op->results[1] != state[VALUE])))
		return false;
	if (op->kind != OP_GET)
		change(op, next);
	return true;
}

size_t truth_call(struct truth *truth, uint32_t client, uint32_t kind,
		  uint64_t key, uint64_t generation)
{
	struct linear_op *ops = truth->ops;

	if (truth->count == truth->room) {
		size_t room = truth->room ? 2 * truth->room : 4096;

		ops = realloc(ops, room * sizeof(*ops));
		if (!ops)
			return SIZE_MAX;
		truth->ops = ops;
		truth->room = room;
	}
	ops[truth->count] = (struct linear_op){
		.key = generation << 32 | key,
		.client = client,
		.kind = kind,
		.arguments = {truth_value(truth->count)},
		.called_at = ++truth->clock,
		.returned_at = LINEAR_NEVER,
	};
	return truth->count++;
}

void truth_return(struct truth *truth, size_t op, int rc, bool was_there,
		  uint64_t value)
{
	truth->ops[op].results[0] = was_there;
	truth->ops[op].results[1] = was_there ? value : 0;
	truth->ops[op].results[2] = rc == -REEF_EDROPPED;
	truth->ops[op].returned_at = ++truth->clock;
}

uint64_t truth_generation(struct truth *truth, uint64_t id)
{
	for (uint32_t i = 0; i < truth->generations_count; i++)
		if (truth->generations[i] == id)
			return i;
	if (truth->generations_count == GENERATIONS_MAX)
		return 0;
	truth->generations[truth->generations_count] = id;
	return truth->generations_count++;
}

static void tell(const struct truth *truth, struct cluster *cluster,
		 uint64_t key)
{
	static const char *const names[] = {
		"?",   "get",	  "put",       "insert", "update", "remove",
		"add", "replace", "remove-if", "blind",	 "drop",
	};

	for (size_t i = 0; i < truth->count; i++) {
		const struct linear_op *op = &truth->ops[i];

		if (op->key != key)
			continue;
		cluster_trace(cluster,
			      "%8zu client %u %-9s %016llx %016llx -> %s "
			      "%016llx  %llu..%lld",
			      i, op->client, names[op->kind],
			      (unsigned long long)op->arguments[0],
			      (unsigned long long)op->arguments[1],
			      op->results[2]   ? "dropped"
			      : op->results[0] ? "there"
					       : "absent",
			      (unsigned long long)op->results[1],
			      (unsigned long long)op->called_at,
			      (long long)op->returned_at);
	}
}

static int compare_values(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* Calls that never returned, and whose value nobody ever saw, need not have
 * happened: all answers but those of blind puts tell the value before. Without
 * them the search is short, whoever died. */
static int forget_unseen(struct truth *truth)
{
	uint64_t *seen = malloc((truth->count + 1) * sizeof(*seen));
	size_t seen_count = 0, kept = 0, i;

	if (!seen)
		return -ENOMEM;
	for (i = 0; i < truth->count; i++)
		if (truth->ops[i].returned_at != LINEAR_NEVER)
			seen[seen_count++] = truth->ops[i].results[1];
	qsort(seen, seen_count, sizeof(*seen), compare_values);
	for (i = 0; i < truth->count; i++) {
		struct linear_op *op = &truth->ops[i];

		if (op->returned_at == LINEAR_NEVER && op->kind != OP_ADD &&
		    op->kind != OP_REMOVE && op->kind != OP_REMOVE_IF &&
		    op->kind != OP_DROP &&
		    !bsearch(&op->arguments[0], seen, seen_count, sizeof(*seen),
			     compare_values))
			continue;
		truth->ops[kept++] = *op;
	}
	truth->count = kept;
	free(seen);
	return 0;
}

void truth_check(struct truth *truth, struct cluster *cluster)
{
	const struct linear_model model = {.step = step};
	struct linear_result result;
	int rc = forget_unseen(truth);

	if (!rc)
		rc = linear_check(&model, truth->ops, truth->count, 0, &result);
	if (rc) {
		cluster_fail(cluster, "the checker: %s", reef_error_text(rc));
		return;
	}
	if (result.verdict == LINEAR_YES)
		return;
	tell(truth, cluster, result.key);
	cluster_fail(cluster, "%s: key %llu of table %llu, %zu fit, not op %zu",
		     result.verdict == LINEAR_NO ? "not linearizable"
						 : "nobody knows",
		     (unsigned long long)(result.key & UINT32_MAX),
		     (unsigned long long)(result.key >> 32), result.longest,
		     result.op);
}

void truth_fini(struct truth *truth)
{
	free(truth->ops);
	*truth = (struct truth){0};
}
