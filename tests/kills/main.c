/* main.c - locks and such, with processes that die.
 *
 *   kills KIND KILLS [NAME=VALUE...]    the test, in the pool $REEF_POOL
 *   kills worker FD FIRST COUNT         one of its processes
 *
 * KIND: shift, spin, mcs, rw, lease, election, barrier; nothing, which must
 * fail. NAME: stops, workers, fabrics (shm,tcp: in turn), limit and ttl
 * (milliseconds), seed, fences (1: who stands still is fenced), mutant (of
 * base/mutant.h), places (of a lock: for waiters, and for readers). */
#include "killer.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
	fprintf(stderr, "usage: kills KIND KILLS [stops=N] [workers=N] "
			"[fabrics=NAME,...] [limit=MS] [ttl=MS] [seed=N] "
			"[fences=1] [mutant=NAME] [places=N]\n");
	return 2;
}

static void split_fabrics(struct killer_options *options, char *text)
{
	const uint32_t most =
		sizeof(options->fabrics) / sizeof(options->fabrics[0]);
	char *rest, *word = strtok_r(text, ",", &rest);

	while (word && options->fabrics_count < most) {
		options->fabrics[options->fabrics_count++] = word;
		word = strtok_r(NULL, ",", &rest);
	}
}

static bool set_option(struct killer_options *options, char *text)
{
	char *value = strchr(text, '=');
	uint64_t number;

	if (!value)
		return false;
	*value++ = '\0';
	number = strtoull(value, NULL, 10);
	if (!strcmp(text, "stops"))
		options->stops = (uint32_t)number;
	else if (!strcmp(text, "workers"))
		options->workers = (uint32_t)number;
	else if (!strcmp(text, "fabrics"))
		split_fabrics(options, value);
	else if (!strcmp(text, "places"))
		options->places = (uint32_t)number;
	else if (!strcmp(text, "limit"))
		options->limit_ns = number * 1000000;
	else if (!strcmp(text, "ttl"))
		options->ttl_ns = number * 1000000;
	else if (!strcmp(text, "seed"))
		options->seed = number;
	else if (!strcmp(text, "fences"))
		options->stop_fences = number;
	else if (!strcmp(text, "mutant"))
		return (options->mutant = reef_mutant_named(value));
	else
		return false;
	return true;
}

static int run_worker(char **argv)
{
	struct board *board = board_attach(atoi(argv[2]));
	uint32_t first = (uint32_t)atoi(argv[3]);
	uint32_t count = (uint32_t)atoi(argv[4]);

	if (!board || count < 1 || count > PARTICIPANTS_MAX ||
	    first + count > SEATS_MAX)
		return 2;
	return worker_run(board, first, count);
}

int main(int argc, char **argv)
{
	struct killer_options options = {
		.workers = 5,
		.limit_ns = UINT64_C(30000000000),
		.ttl_ns = UINT64_C(300000000),
		.seed = 1,
	};

	if (argc == 5 && !strcmp(argv[1], "worker"))
		return run_worker(argv);
	if (argc < 3)
		return usage();
	for (int i = 3; i < argc; i++)
		if (!set_option(&options, argv[i]))
			return usage();
	while (options.kind < GUARD_KINDS &&
	       strcmp(argv[1], guard_names[options.kind]) != 0)
		options.kind++;
	options.kills = (uint32_t)atoi(argv[2]);
	if (options.kind == GUARD_KINDS || options.workers < 2 ||
	    options.workers > WORKERS_MAX)
		return usage();
	return killer_run(&options);
}
