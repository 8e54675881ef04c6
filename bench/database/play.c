/* play.c - the stage of this process, and what is played there. */
#include "bench/database/play.h"

#include "bench/database/files.h"
#include "bench/units.h"

#include <stdio.h>

#define TABLE (4096 * MIB)
#define TABLE_QUICK (64 * MIB)

static struct stage stage;
static struct play_sizes sizes;

void play_choose(uint64_t table, bool quick, struct play_sizes *out)
{
	if (!table)
		table = quick ? TABLE_QUICK : TABLE;
	*out = (struct play_sizes){
		.table = table,
		.cache = table / 64,
		.limit = table / 16,
		.sorted = table / 4,
		.file = table / 4,
		.scale = table / (64 * MIB),
	};
	/* A machine has room for its programs. */
	if (out->limit < 128 * MIB)
		out->limit = 128 * MIB;
	/* What is sorted is more than it can keep. */
	if (!quick && out->sorted < 2 * out->limit)
		out->sorted = 2 * out->limit;
	out->rows = out->sorted / 512;
	if (out->cache < 2 * MIB)
		out->cache = 2 * MIB;
	/* The table's pages, and what they take besides; a file, or what is
	 * spilled, twice, by DuckDB as much as the machine has; and what is not
	 * given back yet. */
	out->lend = (table / 4 * 7 + out->file + 2 * out->sorted +
		     2 * out->limit + 256 * MIB) /
		    (64 * MIB) * (64 * MIB);
}

struct stage *play_stage(void)
{
	return &stage;
}

const struct play_sizes *play_sizes(void)
{
	return &sizes;
}

int play_open(const struct play_sizes *wanted)
{
	struct stage_options options = {
		.lend = wanted->lend,
		.limit = wanted->limit,
	};

	sizes = *wanted;
	files_set_size(sizes.file);
	return stage_open(&stage, &options);
}

void play_close(void)
{
	stage_close(&stage);
}

static const struct scenario *const scenarios[] = {
	&extend_sqlite,	  &semantic_sqlite,   &prime_sqlite,
	&spill_sort,	  &spill_postgres,    &spill_duckdb,
	&extend_postgres, &extend_postgres_4, NULL};

const struct scenario *play_find(const char *name)
{
	for (int i = 0; scenarios[i]; i++)
		if (strcmp(scenarios[i]->name, name) == 0)
			return scenarios[i];
	return NULL;
}

int play_turn(const struct scenario *scenario, enum play_way way,
	      double seconds, struct play_turn *out)
{
	bool with_pool = way == PLAY_POOL;
	int rc;

	stage.errors.error[0] = '\0';
	rc = scenario->prepare(&stage, with_pool);
	rc = rc ? rc : stage_forget(&stage);
	if (!rc && way == PLAY_MEMORY && scenario->data)
		stage_remember(&stage, scenario->data);
	stage.is_unlimited = way == PLAY_MEMORY;
	rc = rc ? rc : scenario->turn(&stage, with_pool, seconds, out);
	stage.is_unlimited = false;
	return rc;
}
