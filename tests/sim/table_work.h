/* table_work.h - indexes in the simulator: who works on them, and what is
 * recorded.
 *
 *   table_work.c   what clients do
 *   table_hash.c, table_tree.c  what it is that they work on
 *   table_truth.c  what was recorded, and is it linearizable?
 *
 * Thread: owner. */
#ifndef TESTS_SIM_TABLE_WORK_H
#define TESTS_SIM_TABLE_WORK_H

#include "cluster.h"

#include "check/map_model.h"

#define GENERATIONS_MAX 256

/* All that happened to the tables, one after the other. A key that is dropped
 * with its table is another one in the next. */
struct truth {
	struct linear_op *ops;
	size_t count, room;
	uint64_t clock;
	uint64_t generations[GENERATIONS_MAX]; /* ids of roots */
	uint32_t generations_count;
};

/* Note a call; returns its number, or SIZE_MAX. */
size_t truth_call(struct truth *truth, uint32_t client, uint32_t kind,
		  uint64_t key, uint64_t generation);
/* It returned: 0, or -REEF_EDROPPED. */
void truth_return(struct truth *truth, size_t op, int rc, bool was_there,
		  uint64_t value);
/* Which generation is the table with that id? */
uint64_t truth_generation(struct truth *truth, uint64_t id);
/* Is all of it linearizable? Else it is a failure of the cluster. */
void truth_check(struct truth *truth, struct cluster *cluster);
void truth_fini(struct truth *truth);

#endif
