/* table_truth.c - what was done to the tables, and is it linearizable? */
#include "table_work.h"

#include <stdlib.h>

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
		.arguments = {map_model_value(truth->count)},
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
	for (size_t i = 0; i < truth->count; i++) {
		const struct linear_op *op = &truth->ops[i];

		if (op->key != key)
			continue;
		cluster_trace(cluster,
			      "%8zu client %u %-9s %016llx %016llx -> %s "
			      "%016llx  %llu..%lld",
			      i, op->client, map_op_names[op->kind],
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

void truth_check(struct truth *truth, struct cluster *cluster)
{
	struct linear_result result;
	int rc = map_model_prune(truth->ops, &truth->count);

	if (!rc)
		rc = linear_check(&map_model, truth->ops, truth->count, 0,
				  &result);
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
