/* sim.c - `reef sim`: what can be seen in simulation, without hardware. */
#include "base/log.h"
#include "bench/copies_sim.h"
#include "bench/locks.h"
#include "bench/logs.h"
#include "bench/study.h"
#include "bench/trees.h"
#include "bench/txns_sim.h"
#include "cmd/operate.h"
#include "cmd/print/chart.h"

#include <assert.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BARS_WIDTH 48 /* of a row */

struct wish {
	const char *directory;
	uint64_t seed;
	bool quick;
};

/* --- one table, and its chart --- */

#define POINTS_MAX 16
#define LINES_MAX REEF_CHART_LINES_MAX
static_assert(STUDY_POINTS_MAX <= POINTS_MAX && STUDY_LINES_MAX <= LINES_MAX,
	      "room");
static_assert(TREES_POINTS_MAX <= POINTS_MAX && TREES_LINES <= LINES_MAX,
	      "room");
static_assert(LOGS_POINTS_MAX <= POINTS_MAX && LOGS_LINES <= LINES_MAX, "room");
static_assert(TXNS_POINTS_MAX <= POINTS_MAX && TXNS_LINES <= LINES_MAX, "room");
static_assert(LOCKS_POINTS_MAX <= POINTS_MAX && LOCKS_LINES_MAX <= LINES_MAX,
	      "room");

struct figures {
	char name[64]; /* of the chart's file, without .svg */
	const char *title, *subtitle;
	const char *point_name; /* what is varied */
	const char *unit;	/* what is measured */
	bool points_are_bytes, are_times, logarithmic;
	const char *const *lines;
	const uint64_t *points;
	uint32_t points_count, lines_count;
	double values[POINTS_MAX][LINES_MAX];
};

static void set_value(struct figures *figures, uint32_t point, uint32_t line,
		      double value)
{
	figures->values[point][line] = value;
	figures->points_count = point + 1;
	if (figures->lines_count < line + 1)
		figures->lines_count = line + 1;
}

/* The share of the full width that the bar of a value has. Bars of times are on
 * a logarithmic scale: the shortest time has a little, ten times that a good
 * deal more. */
static double share_of(const struct figures *figures, double value)
{
	double most = 0, least = INFINITY;

	for (uint32_t p = 0; p < figures->points_count; p++)
		for (uint32_t l = 0; l < figures->lines_count; l++) {
			most = fmax(most, figures->values[p][l]);
			least = fmin(least, figures->values[p][l]);
		}
	if (!figures->are_times)
		return value / most;
	return log(2 * value / least) / log(2 * most / least);
}

static void put_row(struct reef_table *table, const struct figures *figures,
		    uint32_t point)
{
	char text[16];

	if (figures->points_are_bytes)
		reef_table_cell(table, "%s",
				reef_table_bytes(figures->points[point], text));
	else
		reef_table_cell(table, "%llu",
				(unsigned long long)figures->points[point]);
	for (uint32_t l = 0; l < figures->lines_count; l++) {
		double value = figures->values[point][l];

		if (figures->are_times)
			reef_table_cell(table, "%s",
					reef_table_time(value, text));
		else
			reef_table_cell(table, "%s/s",
					reef_table_number(value, text));
		reef_table_bar(table, share_of(figures, value),
			       BARS_WIDTH / (figures->lines_count + 1));
	}
	reef_table_end_row(table);
}

static int print_table(const struct figures *figures)
{
	struct reef_table *table = reef_table_create();
	int rc;

	reef_table_set_ascii(table, !reef_table_locale_is_utf8());
	reef_table_column(table, figures->point_name, REEF_TABLE_RIGHT);
	for (uint32_t l = 0; l < figures->lines_count; l++) {
		reef_table_column(table, figures->lines[l], REEF_TABLE_RIGHT);
		reef_table_column(table, "", REEF_TABLE_LEFT);
	}
	for (uint32_t p = 0; p < figures->points_count; p++)
		put_row(table, figures, p);
	printf("%s\n%s\n\n", figures->title, figures->subtitle);
	rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

static int write_chart(const struct figures *figures, const char *directory)
{
	struct reef_chart chart = {
		.title = figures->title,
		.subtitle = figures->subtitle,
		.x_title = figures->point_name,
		.y_title = figures->unit,
		.x_log2 = true,
		.y_log10 = figures->logarithmic,
		.x_unit = figures->points_are_bytes ? REEF_CHART_BYTES
						    : REEF_CHART_NUMBER,
		.y_unit = figures->are_times ? REEF_CHART_TIME
					     : REEF_CHART_NUMBER,
		.lines_count = figures->lines_count,
	};
	char *path = NULL;
	FILE *file;
	int rc;

	for (uint32_t l = 0; l < figures->lines_count; l++) {
		chart.lines[l].name = figures->lines[l];
		for (uint32_t p = 0; p < figures->points_count; p++)
			reef_chart_add(&chart, l, (double)figures->points[p],
				       figures->values[p][l]);
	}
	if (asprintf(&path, "%s/%s.svg", directory, figures->name) < 0)
		return -ENOMEM;
	file = fopen(path, "w");
	if (!file) {
		rc = -errno;
		fprintf(stderr, "reef sim: %s: %s\n", path, strerror(errno));
		goto out;
	}
	rc = reef_chart_write(&chart, file);
	if (fclose(file) && !rc)
		rc = -errno;
	if (!rc)
		printf("\n%s\n\n", path);
out:
	free(path);
	return rc;
}

static int show_figures(const struct figures *figures, const char *directory)
{
	int rc = print_table(figures);

	return rc ? rc : write_chart(figures, directory);
}

/* --- fabric --- */

static int run_study(const struct study *study, const struct wish *wish)
{
	struct figures figures = {
		.title = study->title,
		.subtitle = study->subtitle,
		.point_name = study->point_name,
		.unit = "operations per second",
		.points_are_bytes = study->points_are_bytes,
		.logarithmic = study->logarithmic,
		.lines = study->lines,
		.points = wish->quick ? study->quick_points : study->points,
	};
	struct shape_result result;
	int rc = 0;

	snprintf(figures.name, sizeof(figures.name), "fabric-%s", study->name);
	for (uint32_t p = 0; !rc && figures.points[p]; p++)
		for (uint32_t l = 0; !rc && study->lines[l]; l++) {
			rc = study_run(study, l, figures.points[p], wish->seed,
				       &result);
			if (!rc)
				set_value(&figures, p, l, result.ops_per_s);
		}
	return rc ? rc : show_figures(&figures, wish->directory);
}

static int run_fabric(const struct wish *wish)
{
	int rc = 0;

	for (int i = 0; !rc && study_all[i]; i++)
		rc = run_study(study_all[i], wish);
	return rc;
}

/* --- locks --- */

/* Print on a terminal what is being measured, as it takes minutes; clients 0:
 * at all numbers of them; NULL clears the line. */
static void print_progress(const char *line, uint64_t clients)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K");
	if (clients)
		fprintf(stderr, "%llu clients, ", (unsigned long long)clients);
	if (line)
		fprintf(stderr, "%s ", line);
}

static int run_contention(const struct locks_study *study,
			  const struct wish *wish)
{
	struct figures rates = {
		.title = study->rate_title,
		.subtitle = study->subtitle,
		.point_name = "clients",
		.unit = "takes per second",
		.logarithmic = true,
		.lines = study->lines,
		.points = wish->quick ? study->quick_points : study->points,
	};
	struct figures waits = rates;
	struct locks_result result;
	int rc = 0;

	snprintf(rates.name, sizeof(rates.name), "locks-%s", study->name);
	snprintf(waits.name, sizeof(waits.name), "locks-%s-wait", study->name);
	waits.title = study->wait_title;
	waits.unit = "wait of 99 in 100 takes, at most";
	waits.are_times = true;
	for (uint32_t p = 0; !rc && rates.points[p]; p++)
		for (uint32_t l = 0; !rc && study->lines[l]; l++) {
			print_progress(study->lines[l], rates.points[p]);
			rc = locks_study_run(study, l, rates.points[p],
					     wish->seed, &result);
			print_progress(NULL, 0);
			if (rc)
				break;
			set_value(&rates, p, l, result.takes_per_s);
			set_value(&waits, p, l, result.p99_ns);
		}
	if (!rc)
		rc = show_figures(&rates, wish->directory);
	return rc ? rc : show_figures(&waits, wish->directory);
}

static int run_locks(const struct wish *wish)
{
	int rc = 0;

	for (int i = 0; !rc && locks_studies[i]; i++)
		rc = run_contention(locks_studies[i], wish);
	return rc;
}

/* --- trees --- */

/* Print what an operation costs, with one client and with the most. */
static int print_costs(const uint64_t *points, uint32_t count,
		       struct trees_result results[][TREES_POINTS_MAX])
{
	struct reef_table *table =
		operate_table("<index|>clients|>round trips|>operations|>bytes "
			      "in|>bytes out|>cache a key|>half within|>99 in "
			      "100");
	char text[16];
	int rc;

	for (uint32_t i = 0; i < 2 * TREES_LINES; i++) {
		uint32_t point = i % 2 ? count - 1 : 0;
		const struct trees_result *one = &results[i / 2][point];

		reef_table_cell(table, "%s", trees_lines[i / 2]);
		reef_table_cell(table, "%llu",
				(unsigned long long)points[point]);
		reef_table_cell(table, "%.2f", one->round_trips);
		reef_table_cell(table, "%.2f", one->operations);
		reef_table_cell(table, "%.0f", one->bytes_in);
		reef_table_cell(table, "%.0f", one->bytes_out);
		reef_table_cell(table, "%.2f", one->cache);
		reef_table_cell(table, "%s",
				reef_table_time(one->p50_ns, text));
		reef_table_cell(table, "%s",
				reef_table_time(one->p99_ns, text));
		reef_table_end_row(table);
	}
	rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

static int run_trees_study(const struct trees_study *study,
			   const struct wish *wish)
{
	struct trees_result results[TREES_LINES][TREES_POINTS_MAX];
	struct figures rates = {
		.title = study->title,
		.subtitle = study->subtitle,
		.point_name = "clients",
		.unit = "operations per second",
		.logarithmic = true,
		.lines = trees_lines,
		.points = wish->quick ? trees_quick_points : trees_points,
	};
	int rc = 0;

	snprintf(rates.name, sizeof(rates.name), "tree-%s", study->name);
	for (uint32_t l = 0; !rc && l < TREES_LINES; l++) {
		print_progress(trees_lines[l], 0);
		rc = trees_study_run(study, l, rates.points, wish->seed,
				     results[l]);
		print_progress(NULL, 0);
		for (uint32_t p = 0; !rc && rates.points[p]; p++)
			set_value(&rates, p, l, results[l][p].ops_per_s);
	}
	if (!rc)
		rc = show_figures(&rates, wish->directory);
	return rc ? rc : print_costs(rates.points, rates.points_count, results);
}

static int run_trees(const struct wish *wish)
{
	int rc = 0;

	for (int i = 0; !rc && trees_studies[i]; i++) {
		rc = run_trees_study(trees_studies[i], wish);
		putchar('\n');
	}
	if (!rc)
		fputs(trees_papers, stdout);
	return rc;
}

/* --- logs --- */

static int run_logs(const struct wish *wish)
{
	struct figures rates = {
		.name = "log-append",
		.title = "Numbers from one word end at what a NIC's atomics "
			 "allow, a server's sooner; cuts go on",
		.subtitle = "appends of 100 bytes by the real code on the cost "
			    "model; the server is a model: 500 ns a request; "
			    "a log each has no common order",
		.point_name = "clients",
		.unit = "appends per second",
		.logarithmic = true,
		.lines = logs_lines,
		.points = wish->quick ? logs_quick_points : logs_points,
	};
	struct figures waits = rates;
	struct logs_result result;
	int rc = 0;

	snprintf(waits.name, sizeof(waits.name), "log-append-wait");
	waits.title = "How long 99 in 100 appends take at most";
	waits.unit = "time of 99 in 100 appends, at most";
	waits.are_times = true;
	for (uint32_t p = 0; !rc && rates.points[p]; p++)
		for (uint32_t l = 0; !rc && l < LOGS_LINES; l++) {
			print_progress(logs_lines[l], rates.points[p]);
			rc = logs_line_run(l, (uint32_t)rates.points[p],
					   wish->seed, &result);
			print_progress(NULL, 0);
			if (rc)
				break;
			set_value(&rates, p, l, result.appends_per_s);
			set_value(&waits, p, l, result.p99_ns);
		}
	if (!rc)
		rc = show_figures(&rates, wish->directory);
	return rc ? rc : show_figures(&waits, wish->directory);
}

/* --- copies --- */

static int run_copies(const struct wish *wish)
{
	struct figures rates = {
		.name = "copies-map",
		.title = "A second copy costs a get nothing, and a put half of "
			 "its rate",
		.subtitle = "gets and updates of a map by the real code on the "
			    "cost model, in a pool of two nodes",
		.point_name = "clients",
		.unit = "calls per second",
		.logarithmic = true,
		.lines = copies_lines,
		.points = wish->quick ? copies_quick_points : copies_points,
	};
	struct figures waits = rates;
	struct copies_result result;
	int rc = 0;

	snprintf(waits.name, sizeof(waits.name), "copies-map-wait");
	waits.title = "How long 99 in 100 calls take at most";
	waits.unit = "time of 99 in 100 calls, at most";
	waits.are_times = true;
	for (uint32_t p = 0; !rc && rates.points[p]; p++)
		for (uint32_t l = 0; !rc && l < COPIES_LINES; l++) {
			print_progress(copies_lines[l], rates.points[p]);
			rc = copies_line_run(l, (uint32_t)rates.points[p],
					     wish->seed, &result);
			print_progress(NULL, 0);
			if (rc)
				break;
			set_value(&rates, p, l, result.calls_per_s);
			set_value(&waits, p, l, result.p99_ns);
		}
	if (!rc)
		rc = show_figures(&rates, wish->directory);
	return rc ? rc : show_figures(&waits, wish->directory);
}

/* --- transactions --- */

/* Print what a transaction costs, with one coordinator and with the most. */
static int print_txn_costs(const uint64_t *points, uint32_t count,
			   struct txns_result results[][TXNS_POINTS_MAX])
{
	struct reef_table *table =
		operate_table("<transactions|>coordinators|>round trips|"
			      ">operations|>aborts|>half within|>99 in 100");
	char text[16];
	int rc;

	for (uint32_t i = 0; i < 2 * TXNS_LINES; i++) {
		uint32_t point = i % 2 ? count - 1 : 0;
		const struct txns_result *one = &results[i / 2][point];

		reef_table_cell(table, "%s", txns_lines[i / 2]);
		reef_table_cell(table, "%llu",
				(unsigned long long)points[point]);
		reef_table_cell(table, "%.2f", one->round_trips);
		reef_table_cell(table, "%.2f", one->operations);
		reef_table_cell(table, "%.2f", one->aborts);
		reef_table_cell(table, "%s",
				reef_table_time(one->p50_ns, text));
		reef_table_cell(table, "%s",
				reef_table_time(one->p99_ns, text));
		reef_table_end_row(table);
	}
	rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

static int run_txns_study(const struct txns_study *study,
			  const struct wish *wish)
{
	struct txns_result results[TXNS_LINES][TXNS_POINTS_MAX];
	struct figures rates = {
		.title = study->title,
		.subtitle = study->subtitle,
		.point_name = "coordinators",
		.unit = "transactions per second",
		.logarithmic = true,
		.lines = txns_lines,
		.points = wish->quick ? txns_quick_points : txns_points,
	};
	int rc = 0;

	snprintf(rates.name, sizeof(rates.name), "txn-%s", study->name);
	for (uint32_t p = 0; !rc && rates.points[p]; p++)
		for (uint32_t l = 0; !rc && l < TXNS_LINES; l++) {
			print_progress(txns_lines[l], rates.points[p]);
			rc = txns_line_run(l, study->is_hot,
					   (uint32_t)rates.points[p],
					   wish->seed, &results[l][p]);
			print_progress(NULL, 0);
			if (!rc)
				set_value(&rates, p, l,
					  results[l][p].txns_per_s);
		}
	if (!rc)
		rc = show_figures(&rates, wish->directory);
	return rc ? rc
		  : print_txn_costs(rates.points, rates.points_count, results);
}

static int run_txns(const struct wish *wish)
{
	int rc = 0;

	for (int i = 0; !rc && txns_studies[i].name; i++) {
		rc = run_txns_study(&txns_studies[i], wish);
		putchar('\n');
	}
	if (!rc)
		fputs(txns_papers, stdout);
	return rc;
}

/* --- arguments --- */

static const struct subject {
	const char *name, *summary;
	int (*run)(const struct wish *wish);
} subjects[] = {
	{"fabric", "a fabric of NICs by itself", run_fabric},
	{"locks", "a whole pool, and clients that contend", run_locks},
	{"tree", "the ordered map, beside models of others", run_trees},
	{"log", "appends to a shared log, beside a server's numbers", run_logs},
	{"copies", "a map with two copies of all, beside one", run_copies},
	{"txn", "transactions, beside models of others", run_txns},
	{0},
};

enum { OUT, SEED, QUICK };

static const struct reef_config_flag flags[] = {
	[OUT] = {"out", "DIR", "of the charts, made if absent; the current one",
		 NULL, NULL},
	[SEED] = {"seed", "N", "seed of the random choices; 1", NULL, NULL},
	[QUICK] = {"quick", NULL, "fewer points", NULL, NULL},
	{0},
};

static void print_help(void)
{
	cmd_help_text("usage: reef sim WHAT [OPTIONS]\n\n"
		      "Shows how things scale, by a model of what RDMA NICs "
		      "cost over a simulated\ncluster: virtual time, so the "
		      "figures are the same on every machine. Prints "
		      "tables\nand writes charts (SVG).\n\n"
		      "fabric: a fabric of NICs by itself\n");
	for (int i = 0; study_all[i]; i++)
		cmd_help_text("  %-12s %s\n", study_all[i]->name,
			      study_all[i]->title);
	cmd_help_text("\nlocks: a whole pool, and clients that contend: takes "
		      "per second, and the wait that\n99 in 100 do not "
		      "exceed; about a minute\n");
	for (int i = 0; locks_studies[i]; i++)
		cmd_help_text("  %-12s %s\n", locks_studies[i]->name,
			      locks_studies[i]->rate_title);
	cmd_help_text(
		"\ntree: the ordered map in a whole pool, beside models of "
		"Sherman, CHIME and DMTree\nwith as much cache: "
		"operations per second, and what an operation costs\n");
	for (int i = 0; trees_studies[i]; i++)
		cmd_help_text("  %-12s %s\n", trees_studies[i]->name,
			      trees_studies[i]->title);
	cmd_help_text("\nlog: appends to a shared log, from 1 to 512 clients, "
		      "beside numbers from a server\n");
	cmd_help_text("\ncopies: gets and puts of a map with two copies of "
		      "all memory, beside one, from 1 to\n512 clients\n");
	cmd_help_text("\ntxn: transactions of three keys, beside models of "
		      "FaRM, FaSST, DrTM and FORD,\nfrom 1 to 512 "
		      "coordinators: transactions per second, and what one "
		      "costs; half\na minute and more\n");
	for (int i = 0; txns_studies[i].name; i++)
		cmd_help_text("  %-12s %s\n", txns_studies[i].name,
			      txns_studies[i].title);
	for (int i = 0; subjects[i].name; i++)
		cmd_tell_word(subjects[i].name, subjects[i].summary);
	cmd_help_text("\nOptions; what stands behind a semicolon is the "
		      "default:\n");
	cmd_help_flags(flags);
}

static int run_subject(const struct subject *subject, const struct wish *wish)
{
	int rc;

	if (cmd_make_directory("sim", wish->directory))
		return 1;
	/* Warnings are not shown: simulated hosts are killed when all is
	 * measured, and they log that. */
	reef_log_set(NULL, NULL, REEF_LOG_ERROR);
	rc = subject->run(wish);
	if (rc)
		fprintf(stderr, "reef sim: %s: %s\n", subject->name,
			reef_error_text(rc));
	return rc ? 1 : 0;
}

static bool parse_number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	return *text >= '0' && *text <= '9' && *end == '\0' && !errno;
}

int cmd_sim(int argc, char **argv)
{
	struct wish wish = {.directory = ".", .seed = 1};
	int option;

	if (cmd_wants_help(argc, argv)) {
		print_help();
		return 0;
	}
	while ((option = cmd_next_flag(argc, argv, flags)) != -1) {
		switch (option) {
		case OUT:
			wish.directory = optarg;
			break;
		case SEED:
			if (!parse_number(optarg, &wish.seed))
				return cmd_usage_error(
					"sim", "--seed %s: not a number",
					optarg);
			break;
		case QUICK:
			wish.quick = true;
			break;
		default:
			return cmd_usage_error("sim", "unknown option");
		}
	}
	if (optind + 1 != argc)
		return cmd_usage_error("sim",
				       "say what to simulate: fabric, locks, "
				       "tree, log, copies or txn");
	for (int i = 0; subjects[i].name; i++)
		if (strcmp(argv[optind], subjects[i].name) == 0)
			return run_subject(&subjects[i], &wish);
	return cmd_usage_error("sim",
			       "there is nothing to simulate called \"%s\"",
			       argv[optind]);
}
