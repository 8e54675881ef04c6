/* bench.c - `reef bench`: measure, beside the raw limit and beside peers. */
#include "bench/bench.h"
#include "base/units.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <getopt.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>

#define CASES_MAX 64
#define MAP_ENTRY 80u /* bytes of a key and a value: bench/map_work.h */

enum {
	CASE,
	SECONDS,
	ROUNDS,
	QUICK,
	HUGE_PAGES,
	SIZE,
	KEYS,
	JSON,
	CHARTS,
	LIST,
};

static const struct reef_config_flag flags[] = {
	[CASE] = {"case", "CASE", "only this, as 'shm-*'; may be repeated",
		  NULL, NULL},
	[SECONDS] = {"seconds", "S", "for each competitor in each case; 1.8",
		     NULL, NULL},
	[ROUNDS] = {"rounds", "N", "rounds that the time is cut into; 9", NULL,
		    NULL},
	[QUICK] = {"quick", NULL, "a few seconds for all, in less memory", NULL,
		   NULL},
	[HUGE_PAGES] = {"huge", NULL, "ask for huge pages", NULL, NULL},
	[SIZE] = {"size", "SIZE", "of the memory, as 512M; each case its own",
		  NULL, NULL},
	[KEYS] = {"keys", "N",
		  "keys of a map or tree, 80 bytes of the size each", NULL,
		  NULL},
	[JSON] = {"json", "FILE", "write a line of JSON per case; - is stdout",
		  NULL, NULL},
	[CHARTS] = {"charts", "DIR",
		    "write a chart (SVG) of each case's rounds there", NULL,
		    NULL},
	[LIST] = {"list", NULL, "show the cases, and the ratios they require",
		  NULL, NULL},
	{0},
};

static void print_help(void)
{
	cmd_help_text("usage: reef bench NAME [OPTIONS]\n\n"
		      "Measures Reef beside the raw limit of the machine and "
		      "beside the libraries\none would use instead, all in "
		      "one run.\n\n");
	for (int i = 0; bench_all[i]; i++) {
		cmd_tell_word(bench_all[i]->name, bench_all[i]->about);
		cmd_help_text("  %-10s %s\n", bench_all[i]->name,
			      bench_all[i]->about);
	}
	cmd_help_text("\nOptions; what stands behind a semicolon is the "
		      "default:\n");
	cmd_help_flags(flags);
	cmd_help_text("\nPeers (UCX, RocksDB, Redis and others) are programs "
		      "in bench/peers beside reef, or\nin the directory "
		      "REEF_PEERS.\n");
}

static const struct bench *find_bench(const char *name)
{
	for (int i = 0; bench_all[i]; i++)
		if (strcmp(bench_all[i]->name, name) == 0)
			return bench_all[i];
	return NULL;
}

static int run_bench(const struct bench *bench,
		     const struct bench_options *options)
{
	int rc = bench_run(bench, options);

	switch (rc) {
	case 0:
		return 0;
	case -EIO:
		return 1; /* the table, or a line, has shown it */
	case -ESRCH:
		return cmd_usage_error("bench",
				       "no such case; --list shows them all");
	default:
		fprintf(stderr, "reef bench: %s%s%s\n",
			options->json ? options->json : "",
			options->json ? ": " : "", reef_error_text(rc));
		return 1;
	}
}

/* Parse a number above 0 and up to `most`; 0: it is none. */
static double parse_number(const char *text, double most)
{
	char *end;
	double value = strtod(text, &end);

	return *end == '\0' && value > 0 && value <= most ? value : 0;
}

struct wish {
	struct bench_options options;
	const char *cases[CASES_MAX + 1];
	int cases_count;
	bool list;
};

/* Take a flag into the wish. NULL, or what is wrong with it. */
static const char *take_option(struct wish *wish, int option)
{
	switch (option) {
	case CASE:
		if (wish->cases_count == CASES_MAX)
			return "too many --case";
		wish->cases[wish->cases_count++] = optarg;
		wish->options.cases = wish->cases;
		return NULL;
	case SECONDS:
		wish->options.seconds = parse_number(optarg, 3600);
		return wish->options.seconds ? NULL : "--seconds takes a time";
	case ROUNDS:
		wish->options.rounds =
			(uint32_t)parse_number(optarg, BENCH_ROUNDS_MAX);
		return wish->options.rounds ? NULL : "--rounds takes 1 to 99";
	case QUICK:
		wish->options.quick = true;
		return NULL;
	case HUGE_PAGES:
		wish->options.huge = true;
		return NULL;
	case SIZE:
		return reef_size_parse(optarg, &wish->options.size) ||
				       !wish->options.size
			       ? "--size takes bytes, as in 512M"
			       : NULL;
	case KEYS:
		wish->options.size =
			(uint64_t)parse_number(optarg, 1e9) * MAP_ENTRY;
		return wish->options.size ? NULL : "--keys takes a number";
	case JSON:
		wish->options.json = optarg;
		return NULL;
	case CHARTS:
		wish->options.charts = optarg;
		return NULL;
	case LIST:
		wish->list = true;
		return NULL;
	default:
		return "unknown option";
	}
}

int cmd_bench(int argc, char **argv)
{
	struct wish wish = {0};
	const struct bench *bench;
	const char *wrong;
	int option;

	if (cmd_wants_help(argc, argv)) {
		print_help();
		return 0;
	}
	while ((option = cmd_next_flag(argc, argv, flags)) != -1) {
		wrong = take_option(&wish, option);
		if (wrong)
			return cmd_usage_error("bench", "%s", wrong);
	}
	if (optind + 1 != argc)
		return cmd_usage_error("bench",
				       "say which bench to run: see --help");
	bench = find_bench(argv[optind]);
	if (!bench)
		return cmd_usage_error("bench", "there is no bench \"%s\"",
				       argv[optind]);
	if (wish.list) {
		bench_list(bench, stdout);
		return 0;
	}
	if (wish.options.charts &&
	    cmd_make_directory("bench", wish.options.charts))
		return 1;
	return run_bench(bench, &wish.options);
}
