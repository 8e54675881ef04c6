/* spill.c - the scenarios where something is sorted that is larger than the
 * memory for it, with temporary files on the disk, or in the pool by a mounted
 * directory. */
#include "bench/contest.h"
#include "bench/database/play.h"
#include "bench/units.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- where --- */

/* The directory for temporary files: on the disk, or in the mounted one, which
 * is mounted for that turn. */
struct spill {
	pid_t mount;
	char directory[PATH_MAX];
};

static int spill_begin(struct stage *stage, bool with_pool, uid_t user,
		       gid_t group, struct spill *spill)
{
	int rc = 0;

	*spill = (struct spill){0};
	if (with_pool)
		rc = stage_mount(stage, &spill->mount);
	if (rc)
		return rc;
	stage_path(stage, with_pool ? "spill/t" : "t", spill->directory);
	if (mkdir(spill->directory, 0700) && errno != EEXIST)
		rc = -errno;
	if (!rc && chown(spill->directory, user, group))
		rc = -errno;
	return rc ? driver_fail(&stage->errors, rc, "%s: %s", spill->directory,
				strerror(-rc))
		  : 0;
}

static void spill_end(struct stage *stage, struct spill *spill)
{
	stage_unmount(stage, &spill->mount);
}

static void fill_turn(const struct stage_result *result, double seconds,
		      struct play_turn *out)
{
	*out = (struct play_turn){
		.figure = seconds,
		.cost = result->cost,
	};
}

/* Twice what is sorted: a merge has what it reads and what it writes. */
static int warm(struct stage *stage)
{
	return stage_warm(stage, 2 * play_sizes()->sorted);
}

static const char *const plain[] = {"LC_ALL", "C", NULL};

/* --- sort --- */

#define LINE 100u

static int sort_prepare(struct stage *stage, bool with_pool)
{
	uint64_t lines = play_sizes()->sorted / LINE, state = 1;
	char path[PATH_MAX], made[PATH_MAX];
	FILE *file;
	int rc = with_pool ? warm(stage) : 0;

	stage_path(stage, "lines", path);
	if (rc || access(path, F_OK) == 0)
		return rc;
	file = fopen(stage_path(stage, "lines.made", made), "we");
	if (!file)
		return driver_fail(&stage->errors, -errno, "%s: %s", made,
				   strerror(errno));
	for (uint64_t i = 0; i < lines; i++) {
		state = state * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
		fprintf(file, "%016llx %081llu\n", (unsigned long long)state,
			(unsigned long long)i);
		if (i % 1000000 == 0)
			stage_tell(stage, "writing what is sorted: %.0f %%",
				   100.0 * (double)i / (double)lines);
	}
	stage_tell(stage, "%s", "");
	if (fclose(file) || rename(made, path))
		rc = driver_fail(&stage->errors, -errno, "%s: %s", made,
				 strerror(errno));
	return rc;
}

static int sort_turn(struct stage *stage, bool with_pool, double seconds,
		     struct play_turn *out)
{
	char size[24], path[PATH_MAX];
	struct spill spill;
	const char *arguments[] = {
		"sort",		 "--parallel=2", "-S",	      size, "-T",
		spill.directory, "-o",		 "/dev/null", path, NULL};
	struct stage_program program = {
		.arguments = arguments,
		.environment = plain,
	};
	struct stage_result result;
	int rc = spill_begin(stage, with_pool, 0, 0, &spill);

	snprintf(size, sizeof(size), "%llub",
		 (unsigned long long)play_sizes()->cache);
	stage_path(stage, "lines", path);
	rc = rc ? rc : stage_run(stage, &program, &result);
	if (!rc)
		fill_turn(&result, result.seconds, out);
	spill_end(stage, &spill);
	return rc;
}

const struct scenario spill_sort = {
	.name = "spill-sort",
	.unit = "seconds",
	.less_is_better = true,
	.prepare = sort_prepare,
	.turn = sort_turn,
};

/* --- DuckDB --- */

#define DUCKDB "database_duckdb" /* peers/database_duckdb.c */
#define DUCKDB_ROW 128u

/* Find the library of npm's @duckdb/node-api in a directory of modules. */
static bool find_in(const char *modules, size_t size, char path[PATH_MAX])
{
	glob_t found = {0};
	bool is_there;

	snprintf(path, PATH_MAX, "%.*s/@duckdb/node-bindings-*/libduckdb.so",
		 (int)size, modules);
	is_there = glob(path, 0, NULL, &found) == 0;
	if (is_there)
		snprintf(path, PATH_MAX, "%s", found.gl_pathv[0]);
	globfree(&found);
	return is_there;
}

/* It is where NODE_PATH says, or where tools/setup puts it, beside the build.
 */
static bool find_duckdb(const struct stage *stage, char path[PATH_MAX])
{
	const char *given = getenv("NODE_PATH");
	char modules[PATH_MAX];
	size_t size;

	for (; given && *given; given += size + (given[size] == ':')) {
		size = strcspn(given, ":");
		if (size && size < PATH_MAX / 2 && find_in(given, size, path))
			return true;
	}
	snprintf(modules, sizeof(modules), "%.3000s", stage->self);
	snprintf(strrchr(modules, '/'), 64,
		 "/../build-node/duckdb/node_modules");
	return find_in(modules, strlen(modules), path);
}

/* Find what it needs.  -ENOENT: the stage's error says what is not there. */
static int duckdb_find(struct stage *stage, char program[PATH_MAX],
		       char library[PATH_MAX])
{
	if (!contest_find_program(DUCKDB, program))
		return driver_fail(&stage->errors, -ENOENT,
				   "%s is not there: " BENCH_DATABASE_DUCKDB,
				   program);
	if (!find_duckdb(stage, library))
		return driver_fail(&stage->errors, -ENOENT,
				   "npm's @duckdb/node-api is not installed "
				   "(make bench installs it; NODE_PATH says "
				   "where it is)");
	return 0;
}

/* DuckDB may keep three eighths of the machine's memory: its code, the mount
 * and some page cache need theirs. To merge, it keeps some of each part that it
 * has sorted: 32 MiB were too little for 256 MB, 48 MiB have merged 410 MB, 96
 * MiB 1.1 GB. So what it sorts is as much as the machine has, or twice that. */
static uint64_t duckdb_memory(void)
{
	return play_sizes()->limit / 8 * 3;
}

static uint64_t duckdb_bytes(void)
{
	const struct play_sizes *sizes = play_sizes();

	return sizes->sorted > sizes->limit ? 2 * sizes->limit : sizes->limit;
}

static int duckdb_prepare(struct stage *stage, bool with_pool)
{
	char program[PATH_MAX], library[PATH_MAX];
	int rc = duckdb_find(stage, program, library);

	return rc || !with_pool ? rc : warm(stage);
}

static int duckdb_turn(struct stage *stage, bool with_pool, double seconds,
		       struct play_turn *out)
{
	char memory[24], rows[24], program[PATH_MAX], library[PATH_MAX];
	struct spill spill;
	const char *arguments[] = {program,	    library, memory,
				   spill.directory, rows,    NULL};
	const struct stage_program it = {.arguments = arguments};
	struct stage_result result;
	double worked;
	int rc = duckdb_find(stage, program, library);

	rc = rc ? rc : spill_begin(stage, with_pool, 0, 0, &spill);
	if (rc)
		return rc;
	snprintf(memory, sizeof(memory), "%lluMiB",
		 (unsigned long long)(duckdb_memory() / MIB));
	snprintf(rows, sizeof(rows), "%llu",
		 (unsigned long long)(duckdb_bytes() / DUCKDB_ROW));
	rc = stage_run(stage, &it, &result);
	spill_end(stage, &spill);
	*out = (struct play_turn){0};
	if (!rc &&
	    sscanf(result.text, "figure %lf disk %lf faults %lf worked %lf",
		   &out->figure, &out->cost.disk_bytes, &out->cost.faults,
		   &worked) != 4)
		rc = driver_fail(&stage->errors, -EPROTO, "%s: %.110s", DUCKDB,
				 result.text);
	if (!rc && worked < out->figure)
		out->cost.waited = 1 - worked / out->figure;
	return rc;
}

const struct scenario spill_duckdb = {
	.name = "spill-duckdb",
	.unit = "seconds",
	.less_is_better = true,
	.prepare = duckdb_prepare,
	.turn = duckdb_turn,
};
