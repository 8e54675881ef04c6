/* demo.c - `reef demo`: what a database gains by the memory of a neighbour,
 * told to a person in a terminal. What is shown is what `reef bench database`
 * measures, once each way. */
#include "base/units.h"
#include "bench/database/play.h"
#include "cmd/cmd.h"
#include "cmd/print/table.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#define TABLE_SIZE (UINT64_C(512) << 20)
#define TABLE_QUICK (UINT64_C(256) << 20) /* twice the least memory */
#define SECONDS 5.0
#define SECONDS_QUICK 0.3

static const struct story {
	const char *name, *summary;
	const char *scenario;
	const char *tale; /* with the sizes of the table, the memory */
	const char *before, *after;
	const char *figure; /* what is counted */
} stories[] = {
	{"extend", "a table larger than the memory: pages from the pool",
	 "extend-sqlite",
	 "A database of SQLite has a table of %s, on a machine with %s of "
	 "memory. Rows\nanywhere in it are read: nearly each is a read from "
	 "the disk. Then the same\nprogram opens it with vfs=reefcache, and "
	 "the pages come from a neighbour's idle\nmemory. The database stays "
	 "where it is; losing the pool costs time, never data.",
	 "from the disk", "with the pool", "rows read a second"},
	{"spill", "a sort larger than the memory: temporary files in the pool",
	 "spill-sort",
	 "sort(1) sorts %s of lines on a machine with %s of memory, so it "
	 "writes\ntemporary files and merges them. First they are on the disk; "
	 "then in a directory\nthat `reef mount` shows, whose files are in a "
	 "neighbour's idle memory.",
	 "files on the disk", "files in the pool", "seconds"},
	{"semantic", "results that were computed once, kept in the pool",
	 "semantic-sqlite",
	 "A report asks questions of a table of %s, on a machine with %s of "
	 "memory: each\ntime a part of it is read from the disk. Then the "
	 "answers are kept in a small\ndatabase in the pool (vfs=reef), "
	 "which every machine can attach.",
	 "computed again", "results in the pool", "answers a second"},
	{"prime", "a second server that starts with the first one's pages",
	 "prime-sqlite",
	 "A second server starts, for a table of %s, on a machine with %s of "
	 "memory. How\nlong is it until 99 in 100 of its reads are as quick as "
	 "a warm server's? First it\nfinds nothing but the disk; then the "
	 "pages that the first one left in the pool.",
	 "from the disk", "from the pool", "seconds until it is warm"},
	{0},
};

enum { SIZE, QUICK };

static const struct reef_config_flag flags[] = {
	[SIZE] = {"size", "SIZE", "of the table; 512M, or 256M", NULL, NULL},
	[QUICK] = {"quick", NULL, "small, in seconds", NULL, NULL},
	{0},
};

static void print_help(void)
{
	cmd_help_text("usage: reef demo WHAT [OPTIONS]\n\n"
		      "Shows what a database gains by the idle memory of a "
		      "neighbour: once from\nthe disk alone, once with a "
		      "pool. The data, a pool and a machine with little\n"
		      "memory (a cgroup: it needs root) are made for it, and "
		      "are gone afterwards.\nA minute or two.\n\n");
	for (const struct story *one = stories; one->name; one++) {
		cmd_tell_word(one->name, one->summary);
		cmd_help_text("  %-10s %s\n", one->name, one->summary);
	}
	cmd_help_text("\nOptions; what stands behind a semicolon is the "
		      "default:\n");
	cmd_help_flags(flags);
	cmd_help_text("\n`reef bench database` measures the same, and more, "
		      "in rounds.\n");
}

/* Say what went wrong. Returns 1. */
static int fail(int rc)
{
	const char *why = play_stage()->errors.error;

	fprintf(stderr, "reef demo: %s\n", why[0] ? why : strerror(-rc));
	return 1;
}

static void add_row(struct reef_table *table, const char *name,
		    const struct play_turn *turn, double best)
{
	char number[16], bytes[16];

	reef_table_cell(table, "%s", name);
	if (turn->figure < 100)
		reef_table_cell(table, "%.3g", turn->figure);
	else
		reef_table_cell(table, "%s",
				reef_table_number(turn->figure, number));
	reef_table_bar(table, turn->figure / best, 24);
	reef_table_cell(
		table, "%s",
		reef_table_bytes((uint64_t)turn->cost.disk_bytes, bytes));
	reef_table_cell(table, "%.0f", turn->cost.faults);
	reef_table_end_row(table);
}

static void print_turns(const struct story *story,
			const struct scenario *scenario,
			const struct play_turn *disk,
			const struct play_turn *pool)
{
	struct reef_table *table = reef_table_create();
	double most = disk->figure > pool->figure ? disk->figure : pool->figure;
	double times = scenario->less_is_better ? disk->figure / pool->figure
						: pool->figure / disk->figure;

	reef_table_set_ascii(table, !reef_table_locale_is_utf8());
	reef_table_column(table, "", REEF_TABLE_LEFT);
	reef_table_column(table, story->figure, REEF_TABLE_RIGHT);
	reef_table_column(table, "", REEF_TABLE_LEFT);
	reef_table_column(table, "read from disk", REEF_TABLE_RIGHT);
	reef_table_column(table, "major faults", REEF_TABLE_RIGHT);
	add_row(table, story->before, disk, most);
	add_row(table, story->after, pool, most);
	putchar('\n');
	reef_table_print(table, stdout);
	reef_table_destroy(table);
	if (!(disk->cost.disk_bytes > 0))
		printf("\nThe disk was not read, so there is nothing to "
		       "compare.\n");
	else if (times >= 1)
		printf("\n%.1f times as quick with the pool.\n", times);
	else
		printf("\nNot quicker with the pool here: %.2f times.\n",
		       times);
}

static int play_story(const struct story *story, const struct play_sizes *sizes,
		      double seconds)
{
	const struct scenario *scenario = play_find(story->scenario);
	struct play_turn disk, pool;
	char size[16], memory[16];
	int rc;

	printf(story->tale,
	       reef_table_bytes(strcmp(story->name, "spill") == 0
					? sizes->sorted
					: sizes->table,
				size),
	       reef_table_bytes(sizes->limit, memory));
	printf("\n");
	fflush(stdout);
	stage_tell(play_stage(), "making what is needed");
	rc = scenario->prepare(play_stage(), false);
	stage_tell(play_stage(), "%s ...", story->before);
	rc = rc ? rc : play_turn(scenario, PLAY_DISK, seconds, &disk);
	stage_tell(play_stage(), "%s ...", story->after);
	rc = rc ? rc : play_turn(scenario, PLAY_POOL, seconds, &pool);
	stage_tell(play_stage(), "%s", "");
	if (!rc)
		print_turns(story, scenario, &disk, &pool);
	return rc;
}

static int run_story(const struct story *story, uint64_t size, bool quick)
{
	struct play_sizes sizes;
	int rc;

	if (!size)
		size = quick ? TABLE_QUICK : TABLE_SIZE;
	play_choose(size, false, &sizes);
	rc = play_open(&sizes);
	if (rc)
		return fail(rc);
	rc = play_story(story, &sizes, quick ? SECONDS_QUICK : SECONDS);
	play_close();
	return rc ? fail(rc) : 0;
}

int cmd_demo(int argc, char **argv)
{
	uint64_t size = 0;
	bool quick = false;
	int option;

	if (cmd_wants_help(argc, argv)) {
		print_help();
		return 0;
	}
	while ((option = cmd_next_flag(argc, argv, flags)) != -1) {
		if (option == QUICK)
			quick = true;
		else if (option != SIZE)
			return cmd_usage_error("demo", "unknown option");
		else if (reef_size_parse(optarg, &size) ||
			 size < UINT64_C(16) << 20 || size > UINT64_C(1) << 40)
			return cmd_usage_error("demo",
					       "--size takes 16M or more");
	}
	if (optind + 1 != argc)
		return cmd_usage_error("demo", "say what to show: extend, "
					       "spill, semantic or prime");
	for (const struct story *one = stories; one->name; one++)
		if (strcmp(argv[optind], one->name) == 0)
			return run_story(one, size, quick);
	return cmd_usage_error("demo", "there is nothing to show called \"%s\"",
			       argv[optind]);
}
