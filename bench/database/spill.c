/* spill.c - the scenarios where something is sorted that is larger than the
 * memory for it, with temporary files on the disk, or in the pool by a mounted
 * directory. */
#include "bench/database/play.h"
#include "bench/units.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
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

/* DuckDB comes by npm, for node. */
static const char duckdb_script[] =
	"const [limit, directory, rows] = process.argv.slice(2);\n"
	"(async () => {\n"
	"  const duckdb = require('@duckdb/node-api');\n"
	"  const base = await duckdb.DuckDBInstance.create(':memory:',\n"
	"    {threads: '1', memory_limit: limit, temp_directory: directory});\n"
	"  const it = await base.connect();\n"
	"  const answer = await it.runAndReadAll(\n"
	"    `select count(*) c, max(p) m from (select h, p from (select\n"
	"     hash(i) h, repeat(hash(i)::varchar, 20) p from range(${rows})\n"
	"     r(i)) order by h offset 1)`);\n"
	"  console.log('rows ' + answer.getRows()[0][0]);\n"
	"  process.exit(0);\n"
	"})().catch(e => { console.log(String(e.message || e)); "
	"process.exit(1); });\n";

static int duckdb_prepare(struct stage *stage, bool with_pool)
{
	char path[PATH_MAX];
	FILE *file;

	stage_path(stage, "duckdb.js", path);
	file = fopen(path, "we");
	if (!file || fputs(duckdb_script, file) < 0 || fclose(file))
		return driver_fail(&stage->errors, -errno, "%s: %s", path,
				   strerror(errno));
	return with_pool ? warm(stage) : 0;
}

/* Find npm's modules: where `tools/setup` puts them beside the build, or where
 * NODE_PATH says. */
static void find_modules(const struct stage *stage, char path[PATH_MAX])
{
	const char *given = getenv("NODE_PATH");
	char self[PATH_MAX];

	snprintf(self, sizeof(self), "%s", stage->self);
	*strrchr(self, '/') = '\0';
	snprintf(path, PATH_MAX,
		 "%.2000s/../build-node/duckdb/node_modules:%.2000s", self,
		 given ? given : "");
}

static int duckdb_turn(struct stage *stage, bool with_pool, double seconds,
		       struct play_turn *out)
{
	char limit[24], rows[24], script[PATH_MAX], modules[PATH_MAX];
	struct spill spill;
	const char *environment[] = {"NODE_PATH", modules, NULL};
	const char *arguments[] = {"node",	    script, limit,
				   spill.directory, rows,   NULL};
	struct stage_program program = {
		.arguments = arguments,
		.environment = environment,
	};
	struct stage_result result;
	uint64_t count;
	int rc;

	find_modules(stage, modules);
	stage_path(stage, "duckdb.js", script);
	/* Node itself takes some 50 MiB of the machine; with less than 64
	 * DuckDB cannot sort. */
	snprintf(limit, sizeof(limit), "%lluMiB",
		 (unsigned long long)(play_sizes()->limit / MIB / 2));
	/* Twice what it may keep: of more it says that it has no memory. */
	count = play_sizes()->limit / 400;
	if (count > play_sizes()->rows)
		count = play_sizes()->rows;
	snprintf(rows, sizeof(rows), "%llu", (unsigned long long)count);
	rc = spill_begin(stage, with_pool, 0, 0, &spill);
	rc = rc ? rc : stage_run(stage, &program, &result);
	if (rc && strstr(stage->errors.error, "Cannot find module"))
		snprintf(stage->errors.error, sizeof(stage->errors.error),
			 "npm's @duckdb/node-api is not installed (make bench "
			 "installs it, or set NODE_PATH)");
	if (!rc)
		fill_turn(&result, result.seconds, out);
	spill_end(stage, &spill);
	return rc;
}

const struct scenario spill_duckdb = {
	.name = "spill-duckdb",
	.unit = "seconds",
	.less_is_better = true,
	.prepare = duckdb_prepare,
	.turn = duckdb_turn,
};
