/* sqlite.c - the scenarios with SQLite: a table that is larger than the
 * machine's memory, kept results, and a second server.
 *
 * What plays the server is a program of its own (peers/database_sqlite.c), with
 * SQLite as it is, and the extension if the pool is used. */
#include "bench/contest.h"
#include "bench/database/play.h"
#include "bench/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PROGRAM "database_sqlite"
#define PAGE 4096u
#define WORDS_MAX 8

/* --- the program --- */

/* Find the extension: beside the program as it was built, or where libraries
 * are. */
static void find_extension(const struct stage *stage, char path[PATH_MAX])
{
	char self[PATH_MAX];

	snprintf(self, sizeof(self), "%s", stage->self);
	*strrchr(self, '/') = '\0';
	snprintf(path, PATH_MAX, "%.3000s/integrations/sqlite/reef_sqlite.so",
		 self);
	if (access(path, R_OK))
		snprintf(path, PATH_MAX, "reef_sqlite");
}

/* Run it with these words, to NULL. figure: the number that it found. */
static int run_sqlite(struct stage *stage, bool with_pool,
		      const char *const *words, const char *watched,
		      const char *says, uint64_t size, double *figure,
		      struct stage_result *result)
{
	char program[PATH_MAX], extension[PATH_MAX];
	const char *arguments[WORDS_MAX + 2] = {program};
	const char *environment[] = {"REEF_SQLITE", with_pool ? extension : "",
				     NULL};
	const struct stage_program it = {
		.arguments = arguments,
		.environment = environment,
		.watched = watched,
		.says = says,
		.size = size,
	};
	const char *found;
	int rc;

	if (!contest_find_program(PROGRAM, program))
		return driver_fail(&stage->errors, -ENOENT,
				   "%s is not there: " BENCH_DATABASE_SQLITE,
				   program);
	find_extension(stage, extension);
	for (uint32_t i = 0; words[i] && i < WORDS_MAX; i++)
		arguments[i + 1] = words[i];
	rc = stage_run(stage, &it, result);
	if (rc)
		return rc;
	found = strstr(result->text, "figure ");
	*figure = found ? strtod(found + 7, NULL) : 0;
	return 0;
}

/* --- the table --- */

static const char *table_uri(struct stage *stage, bool with_pool,
			     char uri[PATH_MAX])
{
	if (with_pool)
		snprintf(uri, PATH_MAX,
			 "file:%s/table.db?vfs=reefcache&reef_size=%llu",
			 stage->directory,
			 (unsigned long long)(play_sizes()->table / 2 * 3));
	else
		snprintf(uri, PATH_MAX, "file:%s/table.db", stage->directory);
	return uri;
}

/* Make the table under another name first: what has its name is whole. */
static int make_table(struct stage *stage, bool with_pool)
{
	char path[PATH_MAX], made[PATH_MAX], size[24];
	const char *words[] = {"make", made, size, NULL};
	struct stage_result result;
	double rows;
	int rc;

	stage_path(stage, "table.db", path);
	if (access(path, F_OK) == 0)
		return 0;
	stage_path(stage, "table.made", made);
	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)play_sizes()->table);
	rc = run_sqlite(stage, false, words, made, "making the table",
			play_sizes()->table, &rows, &result);
	if (!rc && rename(made, path))
		rc = driver_fail(&stage->errors, -errno, "%s", path);
	return rc;
}

/* Make the table, and bring its pages into the pool: as a server leaves them
 * that has been running for a while. */
static int make_and_prime(struct stage *stage, bool with_pool)
{
	char uri[PATH_MAX], mark[PATH_MAX];
	const char *words[] = {"prime", table_uri(stage, true, uri), NULL};
	struct stage_result result;
	double pages;
	FILE *file;
	int rc = make_table(stage, with_pool);

	stage_path(stage, "primed", mark);
	if (rc || !with_pool || access(mark, F_OK) == 0)
		return rc;
	stage_tell(stage, "bringing the table's pages into the pool");
	rc = run_sqlite(stage, true, words, NULL, NULL, 0, &pages, &result);
	stage_tell(stage, "%s", "");
	file = rc ? NULL : fopen(mark, "we");
	if (file)
		fclose(file);
	return rc;
}

/* --- the scenarios --- */

static void fill_turn(const struct stage_result *result, double figure,
		      struct play_turn *out)
{
	*out = (struct play_turn){.figure = figure, .cost = result->cost};
}

static int extend_turn(struct stage *stage, bool with_pool, double seconds,
		       struct play_turn *out)
{
	char uri[PATH_MAX], cache[24], time[24];
	const char *words[] = {"points", table_uri(stage, with_pool, uri),
			       cache, time, NULL};
	struct stage_result result;
	double figure;
	int rc;

	snprintf(cache, sizeof(cache), "%llu",
		 (unsigned long long)play_sizes()->cache);
	snprintf(time, sizeof(time), "%.3f", seconds);
	rc = run_sqlite(stage, with_pool, words, NULL, NULL, 0, &figure,
			&result);
	if (!rc)
		fill_turn(&result, figure, out);
	return rc;
}

const struct scenario extend_sqlite = {
	.name = "extend-sqlite",
	.data = "table.db",
	.unit = "reads/s",
	.prepare = make_and_prime,
	.turn = extend_turn,
};

#define RESULTS "file:results.db?vfs=reef"

static int semantic_prepare(struct stage *stage, bool with_pool)
{
	char uri[PATH_MAX], mark[PATH_MAX];
	const char *words[] = {"keep", table_uri(stage, false, uri), RESULTS,
			       NULL};
	struct stage_result result;
	double count;
	FILE *file;
	int rc = make_table(stage, with_pool);

	stage_path(stage, "kept", mark);
	if (rc || !with_pool || access(mark, F_OK) == 0)
		return rc;
	stage_tell(stage, "computing all results once, and keeping them");
	rc = run_sqlite(stage, true, words, NULL, NULL, 0, &count, &result);
	stage_tell(stage, "%s", "");
	file = rc ? NULL : fopen(mark, "we");
	if (file)
		fclose(file);
	return rc;
}

static int semantic_turn(struct stage *stage, bool with_pool, double seconds,
			 struct play_turn *out)
{
	char uri[PATH_MAX], cache[24], time[24];
	const char *compute[] = {"compute", uri, cache, time, NULL};
	const char *look_up[] = {"lookup", uri, RESULTS, cache, time, NULL};
	struct stage_result result;
	double figure;
	int rc;

	table_uri(stage, false, uri);
	snprintf(cache, sizeof(cache), "%llu",
		 (unsigned long long)play_sizes()->cache);
	snprintf(time, sizeof(time), "%.3f", seconds);
	rc = run_sqlite(stage, with_pool, with_pool ? look_up : compute, NULL,
			NULL, 0, &figure, &result);
	if (!rc)
		fill_turn(&result, figure, out);
	return rc;
}

const struct scenario semantic_sqlite = {
	.name = "semantic-sqlite",
	.unit = "queries/s",
	.prepare = semantic_prepare,
	.turn = semantic_turn,
};

static int prime_turn(struct stage *stage, bool with_pool, double seconds,
		      struct play_turn *out)
{
	char uri[PATH_MAX], cache[24], time[24], hot[24];
	const char *words[] = {"start", table_uri(stage, with_pool, uri),
			       cache,	hot,
			       time,	NULL};
	struct stage_result result;
	double figure;
	int rc;

	snprintf(cache, sizeof(cache), "%llu",
		 (unsigned long long)play_sizes()->cache);
	/* Twice what SQLite keeps itself, half of what the machine does: a warm
	 * server has the rest in the kernel's cache, or in the pool. */
	snprintf(hot, sizeof(hot), "%llu",
		 (unsigned long long)(2 * play_sizes()->cache / PAGE));
	snprintf(time, sizeof(time), "%.3f", seconds);
	rc = run_sqlite(stage, with_pool, words, NULL, NULL, 0, &figure,
			&result);
	if (!rc)
		fill_turn(&result, figure, out);
	return rc;
}

const struct scenario prime_sqlite = {
	.name = "prime-sqlite",
	.unit = "seconds",
	.less_is_better = true,
	.prepare = make_and_prime,
	.turn = prime_turn,
};
