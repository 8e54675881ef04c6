/* database.c - `reef bench database`: files in a pool, and databases that use
 * them, beside the disk.
 *
 * The required ratios are the project's promises; cases without one are there
 * to be seen side by side. */
#include "bench/bench.h"
#include "bench/database/files.h"
#include "bench/database/play.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- scenarios as competitors --- */

static int visit(struct driver_pair *pair)
{
	stage_visit(play_stage());
	pair->target_rests = true;
	return 0;
}

static int run_scenario(struct driver_pair *pair, const char *name,
			enum play_way way, double seconds, double *rate)
{
	const struct scenario *scenario = play_find(name);
	struct play_turn turn;
	int rc;

	if (!scenario)
		return -ENOSYS;
	rc = play_turn(scenario, way, seconds, &turn);
	if (rc)
		return driver_fail(pair, rc, "%s", play_stage()->errors.error);
	*rate = turn.figure;
	pair->cost = turn.cost;
	return 0;
}

static int scenario_pool_run(struct driver_pair *pair, const char *name,
			     double seconds, double *rate)
{
	return run_scenario(pair, name, PLAY_POOL, seconds, rate);
}

static int scenario_disk_run(struct driver_pair *pair, const char *name,
			     double seconds, double *rate)
{
	return run_scenario(pair, name, PLAY_DISK, seconds, rate);
}

static int scenario_memory_run(struct driver_pair *pair, const char *name,
			       double seconds, double *rate)
{
	return run_scenario(pair, name, PLAY_MEMORY, seconds, rate);
}

static const struct driver scenario_pool_driver = {
	.name = "reef",
	.open = visit,
	.run = scenario_pool_run,
};

static const struct driver scenario_disk_driver = {
	.name = "disk",
	.open = visit,
	.run = scenario_disk_run,
};

/* The most that this machine's processors let anybody show. */
static const struct driver scenario_memory_driver = {
	.name = "memory",
	.open = visit,
	.run = scenario_memory_run,
};

/* --- the bench --- */

static const struct bench_competitor file_competitors[] = {
	{.name = "reef", .driver = &files_reef_driver},
	{.name = "disk", .driver = &files_disk_driver, .reads_disk = true},
	{.name = "tmpfs", .driver = &files_tmpfs_driver},
	{.name = "staged", .driver = &files_staged_driver},
	{0},
};

static const struct bench_case file_cases[] = {
	{.name = "file-read-8k",
	 .about = "reads of 8 KiB anywhere, one at a time",
	 .peers = {{"disk", 40}, {"tmpfs", 0.8}, {"staged", 0}}},
	{.name = "file-read-8k-fibers16",
	 .about = "the same by 16 fibers; the disk's queue has 32",
	 .peers = {{"disk", 3}, {"staged", 0}}},
	{.name = "file-seq-512k",
	 .about = "reads of 512 KiB one after the other; the disk's queue "
		  "has 32",
	 .peers = {{"disk", 3}, {"staged", 0}}},
	{0},
};

static const struct bench_competitor tcp_competitors[] = {
	{.name = "reef", .driver = &files_reef_driver},
	{.name = "spin", .driver = &files_spin_driver},
	{.name = "sleep", .driver = &files_sleep_driver},
	{.name = "staged", .driver = &files_staged_driver},
	{0},
};

static const struct bench_case tcp_cases[] = {
	{.name = "file-read-8k-tcp",
	 .about = "reads of 8 KiB over tcp: polls 20 us, then sleeps",
	 .peers = {{"spin", 0}, {"sleep", 0}, {"staged", 0}}},
	{.name = "file-read-8k-tcp-fibers16",
	 .about = "the same by 16 fibers",
	 .peers = {{"spin", 0}, {"sleep", 0}, {"staged", 0}}},
	{0},
};

static const struct bench_competitor mount_competitors[] = {
	{.name = "reef", .driver = &files_mount_driver},
	{.name = "disk", .driver = &files_disk_driver, .reads_disk = true},
	{0},
};

static const struct bench_case mount_cases[] = {
	{.name = "mount-read-4k",
	 .about = "reads of 4 KiB anywhere by FUSE, one at a time",
	 .peers = {{"disk", 3}}},
	{0},
};

static const struct bench_competitor scenario_competitors[] = {
	{.name = "reef", .driver = &scenario_pool_driver},
	{.name = "disk", .driver = &scenario_disk_driver, .reads_disk = true},
	{.name = "memory", .driver = &scenario_memory_driver},
	{0},
};

static const struct bench_case scenario_cases[] = {
	{.name = "extend-sqlite",
	 .about = "rows anywhere in a table 16 times the memory, by reefcache",
	 .peers = {{"disk", 15}, {"memory", 0}}},
	{.name = "extend-postgres",
	 .about = "pgbench -S -M prepared of 1 client, by reef pages",
	 .peers = {{"disk", 4}, {"memory", 0}}},
	{.name = "extend-postgres-4",
	 .about = "pgbench -S of 4 clients, which parse each query",
	 .peers = {{"disk", 0}, {"memory", 0}}},
	{.name = "semantic-sqlite",
	 .about = "queries by results kept in a database in the pool",
	 .peers = {{"disk", 10}}},
	{.name = "prime-sqlite",
	 .about = "a new server, until 99 in 100 reads are as when it is warm",
	 .peers = {{"disk", 8}}},
	{0},
};

static const struct bench_case spill_cases[] = {
	{.name = "spill-sort",
	 .about = "sort(1), its temporary files in a mounted directory",
	 .peers = {{"disk", 1.5}, {"memory", 0}}},
	{.name = "spill-postgres",
	 .about = "a sort of Postgres, temp_tablespaces in a mounted directory",
	 .peers = {{"disk", 1.5}, {"memory", 0}}},
	{.name = "spill-duckdb",
	 .about = "a sort of DuckDB, temp_directory in a mounted directory",
	 .peers = {{"disk", 1.5}, {"memory", 0}}},
	{0},
};

static const struct bench_unit scenario_units[] = {
	{"extend-sqlite", "reads/s", false},
	{"extend-postgres", "transactions/s", false},
	{"extend-postgres-4", "transactions/s", false},
	{"semantic-sqlite", "queries/s", false},
	{"prime-sqlite", "seconds", true},
	{0},
};

static const struct bench_group groups[] = {
	{.fabric = "shm",
	 .competitors = file_competitors,
	 .cases = file_cases,
	 .patience_s = 120},
	{.fabric = "tcp",
	 .competitors = tcp_competitors,
	 .cases = tcp_cases,
	 .patience_s = 120},
	{.fabric = "mount",
	 .competitors = mount_competitors,
	 .cases = mount_cases,
	 .patience_s = 120},
	{.fabric = "scenario",
	 .competitors = scenario_competitors,
	 .cases = scenario_cases,
	 .units = scenario_units,
	 .patience_s = 1800},
	{.fabric = "spill",
	 .competitors = scenario_competitors,
	 .cases = spill_cases,
	 .unit = "seconds",
	 .less_is_better = true,
	 .patience_s = 1800,
	 .required_waiting = 3},
	{0},
};

/* What is printed below the table; the end of it is this machine's. */
static char note[1024] =
	"All that plays the database's machine is in a cgroup with little "
	"memory, page cache included;\nthe pool is outside, on this machine, "
	"over shm. The kernel's caches are dropped before each turn.\nBeside "
	"each figure: what its turn read from the disk, and its major faults. "
	"`memory` is the same\nwithout a limit, all of its data in the "
	"kernel's caches: what the processors let anybody show.\n";

/* Say what the disk is that others read, and how busy the processors are. */
static void describe_machine(struct stage *stage)
{
	struct stage_disk disk;
	double load = 0;

	stage_look(stage, &disk);
	(void)!getloadavg(&load, 1);
	snprintf(note + strlen(note), sizeof(note) - strlen(note),
		 "The disk: %s, 8 KiB anywhere in %.0f us past the kernel's "
		 "cache. %ld processors, load %.1f before it began%s.",
		 disk.name, disk.read_us, sysconf(_SC_NPROCESSORS_ONLN), load,
		 load > 1 ? ":\nothers have some of them, which costs what "
			    "computes more than what waits for the disk"
			  : "");
}

static int open_database(const struct bench_options *options)
{
	struct play_sizes sizes;
	int rc;

	play_choose(options->size, options->quick, &sizes);
	rc = play_open(&sizes);
	if (!rc)
		describe_machine(play_stage());
	if (rc)
		fprintf(stderr, "reef bench database: %s\n",
			play_stage()->errors.error[0]
				? play_stage()->errors.error
				: strerror(-rc));
	return rc;
}

const struct bench database_bench = {
	.name = "database",
	.about = "files in a pool, and databases that use it, beside the disk",
	.unit = "ops/s",
	.note = note,
	.groups = groups,
	.has_costs = true,
	.seconds = 20,
	.seconds_quick = 0.3,
	.rounds = 5,
	.rounds_quick = 1,
	.open = open_database,
	.close = play_close,
};
