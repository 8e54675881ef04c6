/* bench.c - takes the cases through their rounds, and reports. */
#include "bench.h"

#include "cmd/print/chart.h"
#include "cmd/print/json.h"
#include "cmd/print/table.h"
#include "contest.h"

#include <errno.h>
#include <fnmatch.h>
#include <langinfo.h>
#include <math.h>
#include <reef/error.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECONDS 1.8
#define ROUNDS 9
#define QUICK_SECONDS 0.036
#define QUICK_ROUNDS 3
/* The table shows a ratio as a bar; half of it is what is required. */
#define BAR_WIDTH 16
#define FIGURE_SIZE 48

struct run {
	const struct bench *bench;
	const struct bench_group *group; /* under way */
	const struct bench_case *one;	 /* of it */
	const struct bench_options *options;
	struct reef_table *table;
	FILE *json;    /* NULL: none */
	FILE *out;     /* for people */
	bool progress; /* stderr is a terminal */
	uint32_t short_count, failed_count;
	bool lacks_charts; /* one could not be written */
};

/* --- what is asked for --- */

static bool is_wanted(const struct bench_options *options, const char *name)
{
	if (!options->cases)
		return true;
	for (uint32_t i = 0; options->cases[i]; i++)
		if (fnmatch(options->cases[i], name, 0) == 0)
			return true;
	return false;
}

static uint32_t count_wanted(const struct bench_group *group,
			     const struct bench_options *options)
{
	uint32_t count = 0;

	for (uint32_t i = 0; group->cases[i].name; i++)
		count += is_wanted(options, group->cases[i].name);
	return count;
}

/* True if every pattern of the options means at least one case. */
static bool patterns_match(const struct bench *bench,
			   const struct bench_options *options)
{
	for (uint32_t i = 0; options->cases && options->cases[i]; i++) {
		const char *only[] = {options->cases[i], NULL};
		struct bench_options one = {.cases = only};
		uint32_t count = 0;

		for (uint32_t g = 0; bench->groups[g].cases; g++)
			count += count_wanted(&bench->groups[g], &one);
		if (!count)
			return false;
	}
	return true;
}

void bench_list(const struct bench *bench, FILE *out)
{
	struct reef_table *table = reef_table_create();
	char text[80];

	reef_table_column(table, "case", REEF_TABLE_LEFT);
	reef_table_column(table, "what", REEF_TABLE_LEFT);
	reef_table_column(table, "required ratio", REEF_TABLE_LEFT);
	for (uint32_t g = 0; bench->groups[g].cases; g++) {
		const struct bench_case *one = bench->groups[g].cases;

		for (; one->name; one++) {
			size_t used = 0;

			text[0] = '\0';
			for (uint32_t p = 0; p < BENCH_PEERS_MAX; p++)
				if (one->peers[p].required > 0)
					used += (size_t)snprintf(
						text + used,
						sizeof(text) - used, "%s%s %g",
						used ? ", " : "",
						one->peers[p].name,
						one->peers[p].required);
			reef_table_cell(table, "%s", one->name);
			reef_table_cell(table, "%s", one->about);
			reef_table_cell(table, "%s", text);
			reef_table_end_row(table);
		}
	}
	reef_table_print(table, out);
	reef_table_destroy(table);
}

/* --- results --- */

/* The unit of the case under way.  NULL: the bench's. */
static const struct bench_unit *own_unit(const struct run *run,
					 struct bench_unit *room)
{
	const struct bench_unit *unit = run->group->units;

	for (; unit && unit->name; unit++)
		if (strcmp(unit->name, run->one->name) == 0)
			return unit;
	*room = (struct bench_unit){
		.unit = run->group->unit,
		.less_is_better = run->group->less_is_better,
	};
	return room->unit ? room : NULL;
}

static double ratio_of(const struct run *run, const struct contestant *reef,
		       const struct contestant *peer, uint32_t quartile)
{
	struct bench_unit room;
	const struct bench_unit *own = own_unit(run, &room);
	bool less = own ? own->less_is_better : run->bench->less_is_better;

	return contest_ratio(reef, peer, less, quartile);
}

static const char *unit_of(const struct run *run)
{
	struct bench_unit room;
	const struct bench_unit *own = own_unit(run, &room);

	return own ? own->unit : run->bench->unit;
}

/* True if a figure can be compared: a peer whose business is the disk must have
 * read from it. */
static bool has_ratio(const struct contestant *peer)
{
	return !peer->who->reads_disk || contestant_cost(peer).disk_bytes > 0;
}

/* What a ratio must be: more, where the peer mostly waited for the disk. */
static double required_of(const struct run *run, const struct bench_peer *peer,
			  const struct contestant *contestant)
{
	return peer->required > 0 && run->group->required_waiting > 0 &&
			       contestant_cost(contestant).waited > 0.5
		       ? run->group->required_waiting
		       : peer->required;
}

static double cost_of(const struct contestant *contestant, const char *key)
{
	struct driver_cost cost = contestant_cost(contestant);

	return strcmp(key, "disk_bytes") == 0 ? cost.disk_bytes
	       : strcmp(key, "faults") == 0   ? cost.faults
					      : cost.waited;
}

/* Write what the rounds of each took, under their names. */
static void write_costs(struct reef_json *json, struct contest *contest,
			const struct bench_case *one, const char *key)
{
	const struct contestant *reef = &contest->contestants[0];

	reef_json_begin(json, key, REEF_JSON_OBJECT);
	reef_json_double(json, reef->who->name, cost_of(reef, key));
	for (uint32_t i = 0; i < BENCH_PEERS_MAX && one->peers[i].name; i++) {
		struct contestant *peer =
			contest_find(contest, one->peers[i].name);

		if (!peer->error[0])
			reef_json_double(json, peer->who->name,
					 cost_of(peer, key));
	}
	reef_json_end(json);
}

/* Write between what half of the rounds' ratios lie. */
static void write_spread(struct run *run, struct reef_json *json,
			 const struct contestant *reef,
			 const struct contestant *peer, const char *name)
{
	reef_json_begin(json, name, REEF_JSON_ARRAY);
	reef_json_double(json, NULL, ratio_of(run, reef, peer, 1));
	reef_json_double(json, NULL, ratio_of(run, reef, peer, 3));
	reef_json_end(json);
}

/* Write a member "key" of the peers that have (or lack) a figure. */
static void write_peers(struct run *run, struct reef_json *json,
			struct contest *contest, const struct bench_case *one,
			const char *key)
{
	const struct contestant *reef = &contest->contestants[0];
	bool absent = strcmp(key, "absent") == 0;

	reef_json_begin(json, key, REEF_JSON_OBJECT);
	for (uint32_t i = 0; i < BENCH_PEERS_MAX && one->peers[i].name; i++) {
		const char *name = one->peers[i].name;
		struct contestant *peer = contest_find(contest, name);

		if (absent != (peer->error[0] != '\0'))
			continue;
		if (absent)
			reef_json_string(json, name, peer->error);
		else if (strcmp(key, "peers") != 0 && !has_ratio(peer))
			continue;
		else if (strcmp(key, "ratio") == 0)
			reef_json_double(json, name,
					 ratio_of(run, reef, peer, 2));
		else if (strcmp(key, "spread") == 0)
			write_spread(run, json, reef, peer, name);
		else
			reef_json_double(json, name, contestant_median(peer));
	}
	reef_json_end(json);
}

static void write_json(struct run *run, struct contest *contest,
		       const struct bench_case *one)
{
	struct reef_json json = {.stream = run->json};
	bool absent = false;

	if (!run->json)
		return;
	for (uint32_t i = 0; i < BENCH_PEERS_MAX && one->peers[i].name; i++)
		absent |= contest_find(contest, one->peers[i].name)->error[0] !=
			  '\0';
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "bench", run->bench->name);
	reef_json_string(&json, "case", one->name);
	reef_json_string(&json, "unit", unit_of(run));
	reef_json_double(&json, "value",
			 contestant_median(&contest->contestants[0]));
	write_peers(run, &json, contest, one, "peers");
	write_peers(run, &json, contest, one, "ratio");
	write_peers(run, &json, contest, one, "spread");
	if (absent)
		write_peers(run, &json, contest, one, "absent");
	if (run->bench->has_costs) {
		write_costs(&json, contest, one, "disk_bytes");
		write_costs(&json, contest, one, "faults");
		write_costs(&json, contest, one, "waited");
	}
	reef_json_end(&json);
	fflush(run->json);
}

/* Format a figure; one whose unit is not the table's has it beside it. */
static const char *format_figure(const struct run *run, double value,
				 char text[FIGURE_SIZE])
{
	struct bench_unit room;
	const struct bench_unit *own = own_unit(run, &room);
	char number[16];

	if (!own)
		return reef_table_number(value, text);
	if (value < 1000)
		snprintf(number, sizeof(number), "%.3f", value);
	else
		reef_table_number(value, number);
	snprintf(text, FIGURE_SIZE, "%s %s", number, own->unit);
	return text;
}

/* Add what a round read from the disk, and its major faults. */
static void add_cost_cell(struct run *run, const struct contestant *contestant)
{
	struct driver_cost cost = contestant_cost(contestant);
	char bytes[16];

	if (!run->bench->has_costs)
		return;
	if (contestant->error[0])
		reef_table_cell(run->table, "-");
	else
		reef_table_cell(
			run->table, "%s, %.0f",
			reef_table_bytes((uint64_t)cost.disk_bytes, bytes),
			cost.faults);
}

/* Add whether the ratio is reached, and whether the other waited: for the disk,
 * or, on a machine that is busy, for a processor; it cannot tell. */
static void add_verdict(struct run *run, const struct contestant *contestant,
			double ratio, double required)
{
	double waited = contestant_cost(contestant).waited;
	const char *limit = "";

	if (run->group->required_waiting > 0)
		limit = waited > 0.5 ? "; it mostly waited"
				     : "; it mostly worked";
	reef_table_cell(run->table, "%s%s", ratio >= required ? "met" : "SHORT",
			limit);
	run->short_count += ratio < required;
}

static void add_peer_cells(struct run *run, const struct bench_peer *peer,
			   const struct contestant *contestant,
			   const struct contestant *reef)
{
	double ratio, required = required_of(run, peer, contestant);
	double value = contestant_median(contestant);
	char text[FIGURE_SIZE];

	reef_table_cell(run->table, "%s", peer->name);
	if (contestant->error[0]) {
		reef_table_cell(run->table, "-");
		add_cost_cell(run, contestant);
		reef_table_cell(run->table, "-");
		if (peer->required > 0)
			reef_table_cell(run->table, "%g", peer->required);
		else
			reef_table_cell(run->table, "%s", "");
		reef_table_cell(run->table, "%s", contestant->error);
		return;
	}
	reef_table_cell(run->table, "%s", format_figure(run, value, text));
	add_cost_cell(run, contestant);
	if (reef->error[0] || !reef->rates_count)
		return;
	if (!has_ratio(contestant)) {
		reef_table_cell(run->table, "-");
		reef_table_cell(run->table, "%g", required);
		reef_table_cell(run->table, "the disk was not read");
		return;
	}
	ratio = ratio_of(run, reef, contestant, 2);
	reef_table_cell(run->table, "%.*f", ratio < 100 ? 2 : 0, ratio);
	if (!(required > 0))
		return;
	reef_table_cell(run->table, "%g", required);
	reef_table_bar(run->table, ratio / required / 2, BAR_WIDTH);
	add_verdict(run, contestant, ratio, required);
}

static void add_rows(struct run *run, struct contest *contest,
		     const struct bench_case *one)
{
	const struct contestant *reef = &contest->contestants[0];
	char text[FIGURE_SIZE];

	for (uint32_t i = 0;
	     i == 0 || (i < BENCH_PEERS_MAX && one->peers[i].name); i++) {
		const struct bench_peer *peer = &one->peers[i];

		reef_table_cell(run->table, "%s", i ? "" : one->name);
		if (i == 0 && reef->error[0])
			reef_table_cell(run->table, "%s", reef->error);
		else
			reef_table_cell(
				run->table, "%s",
				i ? ""
				  : format_figure(run, contestant_median(reef),
						  text));
		if (i == 0)
			add_cost_cell(run, reef);
		else if (run->bench->has_costs)
			reef_table_cell(run->table, "%s", "");
		if (peer->name)
			add_peer_cells(run, peer,
				       contest_find(contest, peer->name), reef);
		reef_table_end_row(run->table);
	}
}

/* --- running --- */

__attribute__((format(printf, 2, 3))) static void tell(const struct run *run,
						       const char *format, ...)
{
	va_list args;

	if (!run->progress)
		return;
	fprintf(stderr, "\r\033[K");
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fflush(stderr);
}

/* Draw what each round of each competitor showed. */
static int write_chart(struct run *run, struct contestant *const *in,
		       uint32_t count)
{
	struct reef_chart chart = {
		.title = run->one->name,
		.subtitle = run->one->about,
		.x_title = "round",
		.y_title = unit_of(run),
	};
	char path[PATH_MAX];
	FILE *file;
	int rc;

	for (uint32_t i = 0; i < count && i < REEF_CHART_LINES_MAX; i++) {
		if (in[i]->error[0])
			continue;
		chart.lines[chart.lines_count++].name = in[i]->who->name;
		for (uint32_t r = 0; r < in[i]->rates_count; r++)
			reef_chart_add(&chart, chart.lines_count - 1, r + 1,
				       in[i]->rates[r]);
	}
	snprintf(path, sizeof(path), "%s/%s-%s.svg", run->options->charts,
		 run->bench->name, run->one->name);
	file = fopen(path, "we");
	rc = file ? reef_chart_write(&chart, file) : -errno;
	if (file && fclose(file) && !rc)
		rc = -errno;
	if (rc)
		fprintf(stderr, "reef bench: %s: %s\n", path,
			reef_error_text(rc));
	return rc;
}

static uint32_t rounds_of(const struct run *run)
{
	uint32_t often = run->group->often;
	uint32_t rounds = run->options->rounds * (often ? often : 1);

	return rounds < BENCH_ROUNDS_MAX ? rounds : BENCH_ROUNDS_MAX;
}

static void run_case(struct run *run, struct contest *contest,
		     const struct bench_case *one)
{
	uint32_t rounds = rounds_of(run);
	struct contestant *in[BENCH_PEERS_MAX + 1];
	uint32_t count = 0;

	run->one = one;
	in[count++] = &contest->contestants[0];
	for (uint32_t i = 0; i < BENCH_PEERS_MAX && one->peers[i].name; i++)
		in[count++] = contest_find(contest, one->peers[i].name);
	for (uint32_t i = 0; i < count; i++) {
		tell(run, "%s: starting %s", one->name, in[i]->who->name);
		contestant_prepare(contest, in[i]);
	}
	contest_settle(contest);
	/* Each competitor begins in turn, and every other round goes the other
	 * way: who runs after whom is part of the noise. */
	for (uint32_t turn = 0; turn < rounds * count; turn++) {
		uint32_t round = turn / count, place = turn % count;
		uint32_t from = round & 1 ? count - 1 - place : place;
		struct contestant *one_in = in[(from + round / 2) % count];

		tell(run, "%s: round %u, %s", one->name, round + 1,
		     one_in->who->name);
		contestant_round(one_in, one->name,
				 run->options->seconds / run->options->rounds,
				 run->group->patience_s);
	}
	tell(run, "%s", "");
	run->failed_count += in[0]->error[0] != '\0';
	/* A case where Reef itself has no figure has no line either: the table
	 * and the exit status tell. */
	if (!in[0]->error[0])
		write_json(run, contest, one);
	if (!in[0]->error[0] && run->options->charts &&
	    write_chart(run, in, count))
		run->lacks_charts = true;
	add_rows(run, contest, one);
}

static int run_group(struct run *run, const struct bench_group *group)
{
	struct contest contest;
	int rc;

	if (!count_wanted(group, run->options))
		return 0;
	run->group = group;
	rc = contest_open(&contest, group, run->options);
	if (rc)
		return rc;
	for (uint32_t i = 0; group->cases[i].name; i++)
		if (is_wanted(run->options, group->cases[i].name))
			run_case(run, &contest, &group->cases[i]);
	reef_table_rule(run->table);
	for (uint32_t i = 0; i < contest.count; i++) {
		const struct contestant *one = &contest.contestants[i];

		if (one->description[0])
			fprintf(run->out, "%s: %s is %s\n", group->fabric,
				one->who->name, one->description);
	}
	contest_close(&contest);
	return 0;
}

static struct reef_table *make_table(const struct bench *bench)
{
	struct reef_table *table = reef_table_create();
	char title[48];

	snprintf(title, sizeof(title), "Reef, %s", bench->unit);
	reef_table_set_ascii(table, strcmp(nl_langinfo(CODESET), "UTF-8") != 0);
	reef_table_column(table, "case", REEF_TABLE_LEFT);
	reef_table_column(table, title, REEF_TABLE_RIGHT);
	if (bench->has_costs)
		reef_table_column(table, "disk read, faults", REEF_TABLE_RIGHT);
	reef_table_column(table, "beside", REEF_TABLE_LEFT);
	reef_table_column(table, bench->unit, REEF_TABLE_RIGHT);
	if (bench->has_costs)
		reef_table_column(table, "disk read, faults", REEF_TABLE_RIGHT);
	reef_table_column(table, "ratio", REEF_TABLE_RIGHT);
	reef_table_column(table, "needs", REEF_TABLE_RIGHT);
	reef_table_column(table, "half: as needed", REEF_TABLE_LEFT);
	reef_table_column(table, "", REEF_TABLE_LEFT);
	return table;
}

static void print_end(const struct run *run)
{
	const struct bench_options *options = run->options;

	fprintf(run->out,
		"\nMedian of %u rounds or more of %.0f ms each, competitors in "
		"turn; a ratio is the\nmedian of the rounds' own, and above 1 "
		"means Reef is better.\n",
		options->rounds, options->seconds / options->rounds * 1000);
	if (options->quick)
		fprintf(run->out,
			"Short form, with little time and memory; for figures "
			"run `reef bench %s`.\n",
			run->bench->name);
	if (run->bench->note)
		fprintf(run->out, "%s\n", run->bench->note);
	if (run->short_count)
		fprintf(run->out, "%u ratio%s short of what is needed.\n",
			run->short_count,
			run->short_count == 1 ? " is" : "s are");
	if (run->failed_count)
		fprintf(run->out, "Reef failed in %u cases.\n",
			run->failed_count);
}

/* Fill in how long, and how often: as the bench has it, or as all do. */
static void choose_times(const struct bench *bench,
			 struct bench_options *options)
{
	double seconds = bench->seconds > 0 ? bench->seconds : SECONDS;
	double brief =
		bench->seconds_quick > 0 ? bench->seconds_quick : QUICK_SECONDS;
	uint32_t rounds = bench->rounds ? bench->rounds : ROUNDS;
	uint32_t few = bench->rounds_quick ? bench->rounds_quick : QUICK_ROUNDS;

	if (!options->seconds)
		options->seconds = options->quick ? brief : seconds;
	if (!options->rounds)
		options->rounds = options->quick ? few : rounds;
	if (options->rounds > BENCH_ROUNDS_MAX)
		options->rounds = BENCH_ROUNDS_MAX;
}

int bench_run(const struct bench *bench, const struct bench_options *asked)
{
	struct bench_options options = *asked;
	struct run run = {.bench = bench, .options = &options, .out = stdout};
	int rc = 0;

	if (!patterns_match(bench, &options))
		return -ESRCH;
	choose_times(bench, &options);
	if (bench->open && bench->open(&options))
		return -EIO;
	if (options.json && strcmp(options.json, "-") == 0) {
		run.json = stdout;
		run.out = stderr;
	} else if (options.json) {
		run.json = fopen(options.json, "we");
		rc = run.json ? 0 : -errno;
	}
	run.progress = isatty(STDERR_FILENO);
	run.table = make_table(bench);
	for (uint32_t g = 0; !rc && bench->groups[g].cases; g++)
		rc = run_group(&run, &bench->groups[g]);
	if (bench->close)
		bench->close();
	fputc('\n', run.out);
	if (!rc)
		rc = reef_table_print(run.table, run.out);
	print_end(&run);
	reef_table_destroy(run.table);
	if (run.json && run.json != stdout && fclose(run.json) && !rc)
		rc = -errno;
	return !rc && (run.failed_count || run.lacks_charts) ? -EIO : rc;
}
