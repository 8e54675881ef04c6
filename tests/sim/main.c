/* main.c - seeds, scenarios, mutants, of either program (program.h).
 *
 *   pool run [--seeds N] [--from SEED] [--scenario NAME] [--copies N]
 *   pool mutants [--seeds N] [--mutant NAME] [--scenario NAME]
 *   pool same [--seeds N]        the same seed twice, the same trace
 *   pool seed N [--scenario NAME] [--mutant NAME]    replays one, and tells
 *
 * A mutant that is not found within the seeds is a failure: then a check cannot
 * fail. REEF_SOAK=1: ten times the seeds. The last line counts. */
#include "program.h"

#include "base/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HANG_SECONDS 20

struct arguments {
	uint64_t seeds, from;
	const char *scenario, *mutant;
};

static struct cluster cluster; /* large */
static uint32_t copies;	       /* --copies; 0: as the scenario says */
static uint64_t soak = 1;      /* how many times the seeds */

static const char *name_of(const struct mutant *mutant)
{
	return reef_mutant_name(mutant->number);
}

static int run_one(const struct scenario *scenario, const struct mutant *mutant,
		   uint64_t seed, bool trace)
{
	struct cluster_options options = scenario->options;
	int rc;

	options.seed = seed;
	options.trace = trace;
	if (copies)
		options.copies = copies;
	reef_mutate(mutant ? mutant->number : REEF_MUTANT_NONE);
	rc = cluster_run(&options, &cluster);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static bool run_scenario(const struct scenario *scenario,
			 const struct arguments *arguments)
{
	uint64_t seeds = arguments->seeds;
	uint64_t most = scenario->options.seeds_max * soak;
	uint64_t steps = 0, kills = 0, fenced = 0, deaths = 0, seed;
	uint64_t harmed = 0;

	if (most && seeds > most)
		seeds = most;
	for (seed = arguments->from; seed < arguments->from + seeds; seed++) {
		if (run_one(scenario, NULL, seed, false)) {
			printf("FAIL %s: seed %llu: %s\n"
			       "     replay: %s seed %llu --scenario %s\n",
			       scenario->name, (unsigned long long)seed,
			       cluster.failure, program.name,
			       (unsigned long long)seed, scenario->name);
			return false;
		}
		steps += cluster.steps;
		kills += cluster.broker_kills;
		fenced += cluster.fenced;
		deaths += cluster.deaths;
		harmed += cluster.harmed;
	}
	printf("ok   %-14s %llu seeds, %llu steps; %llu broker deaths, %llu "
	       "client deaths, %llu sessions fenced, %llu nodes harmed\n",
	       scenario->name, (unsigned long long)seeds,
	       (unsigned long long)steps, (unsigned long long)kills,
	       (unsigned long long)deaths, (unsigned long long)fenced,
	       (unsigned long long)harmed);
	fflush(stdout);
	return true;
}

static const struct scenario *find_scenario(const char *name)
{
	for (size_t i = 0; i < *program.scenarios_count; i++)
		if (!strcmp(name, program.scenarios[i].name))
			return &program.scenarios[i];
	return NULL;
}

static const struct mutant *find_mutant(const char *name)
{
	for (size_t i = 0; i < program.mutants_count; i++)
		if (!strcmp(name, name_of(&program.mutants[i])))
			return &program.mutants[i];
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

	for (size_t i = 0; i < *program.scenarios_count; i++) {
		if (arguments->scenario &&
		    strcmp(arguments->scenario, program.scenarios[i].name))
			continue;
		if (run_scenario(&program.scenarios[i], arguments))
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
		printf("%-22s %-14s seed %-4llu %s\n", name_of(mutant),
		       scenario->name, (unsigned long long)seed,
		       cluster.failure);
		fflush(stdout);
		return true;
	}
	printf("FAIL %s: not found in %llu seeds of %s\n", name_of(mutant),
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
		printf("%-22s %-14s it goes round in circles\n",
		       name_of(mutant), mutant->scenario);
	return WIFSIGNALED(status) ? WTERMSIG(status) == SIGALRM
				   : WEXITSTATUS(status) == 0;
}

static int run_mutants(const struct arguments *arguments)
{
	int passed = 0, failed = 0;

	for (size_t i = 0; i < program.mutants_count; i++) {
		if (arguments->mutant &&
		    strcmp(arguments->mutant, name_of(&program.mutants[i])))
			continue;
		if (hunt(&program.mutants[i], arguments))
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

	for (size_t i = 0; i < *program.scenarios_count; i++) {
		for (seed = arguments->from;
		     seed < arguments->from + arguments->seeds; seed++) {
			run_one(&program.scenarios[i], NULL, seed, false);
			hash = cluster.hash;
			run_one(&program.scenarios[i], NULL, seed, false);
			passed += hash == cluster.hash;
			failed += hash != cluster.hash;
			if (hash != cluster.hash)
				printf("FAIL %s: seed %llu: another trace\n",
				       program.scenarios[i].name,
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
	fprintf(stderr,
		"usage: %s run|mutants|same|seed N [--seeds N] [--from SEED]\n"
		"            [--scenario NAME] [--mutant NAME] [--copies N]\n",
		program.name);
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
		else if (!strcmp(argv[i], "--copies"))
			copies = (uint32_t)strtoul(argv[i + 1], NULL, 10);
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
		soak = 10;
	arguments.seeds *= soak;
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
