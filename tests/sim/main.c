/* main.c - seeds, scenarios, mutants.
 *
 *   pool run [--seeds N] [--from SEED] [--scenario NAME]
 *   pool mutants [--seeds N] [--mutant NAME] [--scenario NAME]
 *   pool same [--seeds N]        the same seed twice, the same trace
 *   pool seed N [--scenario NAME] [--mutant NAME]    replays one, and tells
 *
 * A mutant that is not found within the seeds is a failure: then a check cannot
 * fail. REEF_SOAK=1: ten times the seeds. The last line counts. */
#include "cluster.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_SECONDS 20

static const struct scenario {
	const char *name, *text;
	struct cluster_options options;
} scenarios[] = {
	{"calm", "nothing goes wrong", {0}},
	{"broker",
	 "the broker is killed all the time",
	 {.chaos = CHAOS_BROKER, .chaos_every_ns = 15 * MILLISECOND}},
	{"fence",
	 "leases end while nodes are slow to confirm it",
	 {.chaos = CHAOS_FENCE | CHAOS_CLIENT_PAUSE | CHAOS_END}},
	{"drain",
	 "nodes are drained under load",
	 {.chaos = CHAOS_DRAIN, .nodes = 3, .patience_ns = SECOND / 2}},
	{"drain-crash",
	 "nodes are drained, the broker dies, links are lost",
	 {.chaos = CHAOS_DRAIN | CHAOS_BROKER | CHAOS_LINKS, .nodes = 3}},
	{"stale-broker",
	 "another broker takes over, and the old one comes back",
	 {.chaos = CHAOS_TAKEOVER | CHAOS_CLIENT_PAUSE}},
	{"revoke",
	 "memory is taken back",
	 {.chaos = CHAOS_RECLAIM, .revocable = true}},
	{"fence-crash",
	 "clients stand still, and brokers die as they say so",
	 {.chaos = CHAOS_BROKER | CHAOS_CLIENT_PAUSE,
	  .chaos_every_ns = 10 * MILLISECOND}},
	{"clients",
	 "clients die and stand still",
	 {.chaos = CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL}},
	{"links", "connections are lost", {.chaos = CHAOS_LINKS | CHAOS_CUT}},
	{"nodes",
	 "nodes die, stand still, come back",
	 {.chaos = CHAOS_NODE_KILL | CHAOS_NODE_PAUSE, .nodes = 3}},
	{"full",
	 "there is not enough memory for all",
	 {.chaos = CHAOS_CLIENT_KILL,
	  .nodes = 1,
	  .capacity = 6ull << 20,
	  .scarce = true}},
	{"all",
	 "everything at once",
	 {.chaos = (CHAOS_TAKEOVER - 1),
	  .nodes = 3,
	  .revocable = true,
	  .chaos_every_ns = 25 * MILLISECOND}},
	{"all-but-nodes",
	 "everything but the loss of memory",
	 {.chaos = CHAOS_BROKER | CHAOS_CLIENT_PAUSE | CHAOS_CLIENT_KILL |
		   CHAOS_CUT | CHAOS_LINKS}},
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

/* Which mutants the seeds must find, and where to look for them. Those that a
 * whole pool hides are found beside their module: the broker's EARLY_PUBLISH in
 * broker_crash, the node's STALE_EPOCH in node_life, the heap's others in
 * heap_sim. */
static const struct mutant {
	const char *name;
	const char *scenario;
	enum reef_broker_mutant broker;
	enum reef_node_mutant node;
	enum reef_client_mutant client;
	enum reef_heap_mutant heap;
} mutants[] = {
	{"broker-one-sample", "clients",
	 .broker = REEF_BROKER_MUTANT_ONE_SAMPLE},
	{"broker-early-fenced", "fence",
	 .broker = REEF_BROKER_MUTANT_EARLY_FENCED},
	{"broker-early-answer", "broker",
	 .broker = REEF_BROKER_MUTANT_EARLY_ANSWER},
	{"broker-old-epoch", "broker", .broker = REEF_BROKER_MUTANT_OLD_EPOCH},
	{"broker-no-grace", "broker", .broker = REEF_BROKER_MUTANT_NO_GRACE},
	{"broker-early-move", "drain", .broker = REEF_BROKER_MUTANT_EARLY_MOVE},
	{"broker-forget-request", "broker",
	 .broker = REEF_BROKER_MUTANT_FORGET_REQUEST},
	{"broker-early-safe", "calm", .broker = REEF_BROKER_MUTANT_EARLY_SAFE},
	{"node-no-fence", "fence", .node = REEF_NODE_MUTANT_NO_FENCE},
	{"node-same-life", "nodes", .node = REEF_NODE_MUTANT_SAME_LIFE},
	{"node-dirty", "drain", .node = REEF_NODE_MUTANT_DIRTY},
	{"client-stale-extent", "drain",
	 .client = REEF_CLIENT_MUTANT_STALE_EXTENT},
	{"client-repeat", "links", .client = REEF_CLIENT_MUTANT_REPEAT},
	{"heap-early-reuse", "calm", .heap = REEF_HEAP_MUTANT_EARLY_REUSE},
};
#define MUTANTS (sizeof(mutants) / sizeof(mutants[0]))

struct arguments {
	uint64_t seeds, from;
	const char *scenario, *mutant;
};

static struct cluster cluster; /* large */

static int run_one(const struct scenario *scenario, const struct mutant *mutant,
		   uint64_t seed, bool trace)
{
	struct cluster_options options = scenario->options;

	options.seed = seed;
	options.trace = trace;
	if (mutant) {
		options.broker_mutant = mutant->broker;
		options.node_mutant = mutant->node;
		options.client_mutant = mutant->client;
		options.heap_mutant = mutant->heap;
	}
	return cluster_run(&options, &cluster);
}

static bool run_scenario(const struct scenario *scenario,
			 const struct arguments *arguments)
{
	uint64_t seeds = arguments->seeds;
	uint64_t steps = 0, kills = 0, fenced = 0, deaths = 0, seed;

	if (scenario->options.seeds_max && seeds > scenario->options.seeds_max)
		seeds = scenario->options.seeds_max;
	for (seed = arguments->from; seed < arguments->from + seeds; seed++) {
		if (run_one(scenario, NULL, seed, false)) {
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
	       scenario->name, (unsigned long long)seeds,
	       (unsigned long long)steps, (unsigned long long)kills,
	       (unsigned long long)deaths, (unsigned long long)fenced);
	fflush(stdout);
	return true;
}

static const struct scenario *find_scenario(const char *name)
{
	for (size_t i = 0; i < SCENARIOS; i++)
		if (!strcmp(name, scenarios[i].name))
			return &scenarios[i];
	return NULL;
}

static const struct mutant *find_mutant(const char *name)
{
	for (size_t i = 0; i < MUTANTS; i++)
		if (!strcmp(name, mutants[i].name))
			return &mutants[i];
	return NULL;
}

static int count(int passed, int failed)
{
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed || !passed;
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
	return count(passed, failed);
}

static bool search(const struct mutant *mutant,
		   const struct arguments *arguments)
{
	const struct scenario *scenario = find_scenario(
		arguments->scenario ? arguments->scenario : mutant->scenario);
	uint64_t seed;

	for (seed = arguments->from;
	     scenario && seed < arguments->from + arguments->seeds; seed++) {
		alarm(HANG_SECONDS);
		if (!run_one(scenario, mutant, seed, false))
			continue;
		printf("%-22s %-14s seed %-4llu %s\n", mutant->name,
		       scenario->name, (unsigned long long)seed,
		       cluster.failure);
		fflush(stdout);
		return true;
	}
	printf("FAIL %s: not found in %llu seeds of %s\n", mutant->name,
	       (unsigned long long)arguments->seeds, mutant->scenario);
	fflush(stdout);
	return false;
}

/* In a process of its own: a mutant may loop without time passing. */
static bool hunt(const struct mutant *mutant, const struct arguments *arguments)
{
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_Exit(search(mutant, arguments) ? 0 : 1);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return false;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
		printf("%-22s %-14s it goes round in circles\n", mutant->name,
		       mutant->scenario);
	return WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM
				   : WEXITSTATUS(status) == 0;
}

static int run_mutants(const struct arguments *arguments)
{
	int passed = 0, failed = 0;

	for (size_t i = 0; i < MUTANTS; i++) {
		if (arguments->mutant &&
		    strcmp(arguments->mutant, mutants[i].name))
			continue;
		if (hunt(&mutants[i], arguments))
			passed++;
		else
			failed++;
	}
	return count(passed, failed);
}

/* Every scenario: the same seed twice, the same trace. */
static int run_same(const struct arguments *arguments)
{
	int passed = 0, failed = 0;
	uint64_t hash, seed;

	for (size_t i = 0; i < SCENARIOS; i++) {
		for (seed = arguments->from;
		     seed < arguments->from + arguments->seeds; seed++) {
			run_one(&scenarios[i], NULL, seed, false);
			hash = cluster.hash;
			run_one(&scenarios[i], NULL, seed, false);
			passed += hash == cluster.hash;
			failed += hash != cluster.hash;
			if (hash != cluster.hash)
				printf("FAIL %s: seed %llu: another trace\n",
				       scenarios[i].name,
				       (unsigned long long)seed);
		}
	}
	return count(passed, failed);
}

static int replay(const struct arguments *arguments, uint64_t seed)
{
	const struct mutant *mutant =
		arguments->mutant ? find_mutant(arguments->mutant) : NULL;
	const struct scenario *scenario =
		find_scenario(arguments->scenario ? arguments->scenario
			      : mutant		  ? mutant->scenario
						  : "all");

	if (!scenario || (arguments->mutant && !mutant))
		return 2;
	reef_log_set(reef_log_to_stream, stderr, REEF_LOG_DEBUG);
	if (!run_one(scenario, mutant, seed, true)) {
		printf("ok\n");
		return 0;
	}
	printf("FAIL: %s\n", cluster.failure);
	return 1;
}

static int usage(void)
{
	fprintf(stderr, "usage: pool run|mutants|same|seed N [--seeds N] "
			"[--from SEED]\n"
			"            [--scenario NAME] [--mutant NAME]\n");
	return 2;
}

static bool read_arguments(int argc, char **argv, int from,
			   struct arguments *arguments)
{
	for (int i = from; i < argc; i += 2) {
		if (i + 1 == argc)
			return false;
		if (!strcmp(argv[i], "--seeds"))
			arguments->seeds = strtoull(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--from"))
			arguments->from = strtoull(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--scenario"))
			arguments->scenario = argv[i + 1];
		else if (!strcmp(argv[i], "--mutant"))
			arguments->mutant = argv[i + 1];
		else
			return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {.seeds = 20, .from = 1};
	bool seed = argc >= 3 && !strcmp(argv[1], "seed");

	if (argc < 2 || !read_arguments(argc, argv, seed ? 3 : 2, &arguments))
		return usage();
	if (getenv("REEF_SOAK"))
		arguments.seeds *= 10;
	if (seed)
		return replay(&arguments, strtoull(argv[2], NULL, 10));
	if (!strcmp(argv[1], "run"))
		return run_all(&arguments);
	if (!strcmp(argv[1], "mutants"))
		return run_mutants(&arguments);
	if (!strcmp(argv[1], "same"))
		return run_same(&arguments);
	return usage();
}
