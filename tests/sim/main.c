/* main.c - seeds, scenarios, mutants.
 *
 *   pool run [--seeds N] [--from SEED] [--scenario NAME]   default: all
 *   pool mutants [--seeds N]      each must be found by some seed
 *   pool seed SEED [--scenario NAME] [--mutant NAME]       one, with a trace
 *
 * With REEF_SOAK set: ten times the seeds. The last line counts. */
#include "cluster.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BROKER_ANY (CHAOS_BROKER_KILL | CHAOS_BROKER_POWER | CHAOS_BROKER_WRITE)

static const struct scenario {
	const char *name, *text;
	struct cluster_options options;
} scenarios[] = {
	{"calm", "nothing goes wrong", {0}},
	{"broker",
	 "the broker is killed all the time",
	 {.chaos = BROKER_ANY, .chaos_every_ns = 15 * MILLISECOND}},
	{"clients",
	 "clients die and stand still",
	 {.chaos = CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL}},
	{"links", "connections are lost", {.chaos = CHAOS_LINKS | CHAOS_CUT}},
	{"nodes",
	 "nodes die, stand still, come back",
	 {.chaos = CHAOS_NODE_KILL | CHAOS_NODE_PAUSE, .nodes = 3}},
	{"full",
	 "there is not enough memory for all",
	 {.chaos = CHAOS_CLIENT_KILL, .nodes = 1, .capacity = 6ull << 20}},
	{"all",
	 "everything at once",
	 {.chaos = 0x7ff, .nodes = 3, .chaos_every_ns = 25 * MILLISECOND}},
	{"all-but-nodes",
	 "everything but the loss of memory",
	 {.chaos = BROKER_ANY | CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL |
		   CHAOS_CUT | CHAOS_LINKS}},
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

struct arguments {
	uint64_t seeds, from;
	const char *scenario, *mutant;
};

static struct cluster cluster; /* large */

static int run_one(const struct scenario *scenario, uint64_t seed, bool trace)
{
	struct cluster_options options = scenario->options;

	options.seed = seed;
	options.trace = trace;
	return cluster_run(&options, &cluster);
}

static bool run_scenario(const struct scenario *scenario,
			 const struct arguments *arguments)
{
	uint64_t steps = 0, kills = 0, fenced = 0, deaths = 0, seed;

	for (seed = arguments->from; seed < arguments->from + arguments->seeds;
	     seed++) {
		if (run_one(scenario, seed, false)) {
			printf("FAIL %s: seed %llu: %s\n"
			       "     replay: pool seed %llu --scenario %s\n",
			       scenario->name, (unsigned long long)seed,
			       cluster.failure, (unsigned long long)seed,
			       scenario->name);
			return false;
		}
		steps += cluster.steps;
		kills += cluster.broker_kills;
		fenced += cluster.fenced;
		deaths += cluster.deaths;
	}
	printf("ok   %-14s %llu seeds, %llu steps; %llu broker deaths, %llu "
	       "client deaths, %llu sessions fenced\n",
	       scenario->name, (unsigned long long)arguments->seeds,
	       (unsigned long long)steps, (unsigned long long)kills,
	       (unsigned long long)deaths, (unsigned long long)fenced);
	fflush(stdout);
	return true;
}

static int run_all(const struct arguments *arguments)
{
	int passed = 0, failed = 0;

	for (size_t i = 0; i < SCENARIOS; i++) {
		if (arguments->scenario &&
		    strcmp(arguments->scenario, scenarios[i].name))
			continue;
		if (run_scenario(&scenarios[i], arguments))
			passed++;
		else
			failed++;
	}
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: pool run|mutants|seed N [--seeds N] [--from SEED]\n"
		"            [--scenario NAME] [--mutant NAME]\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {.seeds = 20, .from = 1};

	for (int i = 2; i < argc; i++) {
		if (i == 2 && argv[i][0] != '-')
			continue;
		if (i + 1 == argc)
			return usage();
		if (!strcmp(argv[i], "--seeds"))
			arguments.seeds = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--from"))
			arguments.from = strtoull(argv[++i], NULL, 10);
		else if (!strcmp(argv[i], "--scenario"))
			arguments.scenario = argv[++i];
		else if (!strcmp(argv[i], "--mutant"))
			arguments.mutant = argv[++i];
		else
			return usage();
	}
	if (getenv("REEF_SOAK"))
		arguments.seeds *= 10;
	if (argc >= 2 && !strcmp(argv[1], "run"))
		return run_all(&arguments);
	if (argc >= 3 && !strcmp(argv[1], "seed")) {
		const char *name =
			arguments.scenario ? arguments.scenario : "all";

		for (size_t i = 0; i < SCENARIOS; i++) {
			if (strcmp(name, scenarios[i].name))
				continue;
			reef_log_set(reef_log_to_stream, stderr,
				     REEF_LOG_DEBUG);
			if (!run_one(&scenarios[i], strtoull(argv[2], NULL, 10),
				     true)) {
				printf("ok\n");
				return 0;
			}
			printf("FAIL: %s\n", cluster.failure);
			return 1;
		}
	}
	return usage();
}
