/* sim.c - `reef sim`: what can be seen in simulation, without hardware. */
#include "bench/study.h"
#include "cmd/chart.h"
#include "cmd/cmd.h"
#include "cmd/table.h"

#include <errno.h>
#include <getopt.h>
#include <langinfo.h>
#include <locale.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BAR_WIDTH 16

struct wish {
	const char *directory;
	uint64_t seed;
	bool quick;
};

static void help(void)
{
	printf("usage: reef sim fabric [OPTIONS]\n\n"
	       "Shows how a fabric of RDMA NICs scales, by the cost model over "
	       "a simulated cluster:\nvirtual time, so the figures are the "
	       "same on every machine. Prints a table and\nwrites a chart "
	       "(SVG) for each of:\n\n");
	for (int i = 0; study_all[i]; i++)
		printf("  %-12s %s\n", study_all[i]->name, study_all[i]->title);
	printf("\n"
	       "  --out DIR       where the charts go, made if absent; the "
	       "current directory\n"
	       "  --seed N        of the random choices; 1\n"
	       "  --quick         fewer points\n"
	       "  --help          this text\n");
}

/* --- one study --- */

struct figures {
	uint32_t points_count, lines_count;
	double ops_per_s[STUDY_POINTS_MAX][STUDY_LINES_MAX];
	double most;
};

static int measure(const struct study *study, const struct wish *wish,
		   const uint64_t *points, struct figures *figures)
{
	struct shape_result result;

	for (uint32_t p = 0; points[p]; p++)
		for (uint32_t l = 0; study->lines[l]; l++) {
			int rc = study_run(study, l, points[p], wish->seed,
					   &result);

			if (rc)
				return rc;
			figures->ops_per_s[p][l] = result.ops_per_s;
			if (result.ops_per_s > figures->most)
				figures->most = result.ops_per_s;
			figures->points_count = p + 1;
			figures->lines_count = l + 1;
		}
	return 0;
}

static int print_table(const struct study *study, const uint64_t *points,
		       const struct figures *figures)
{
	struct reef_table *table = reef_table_create();
	char text[16];
	int rc;

	reef_table_set_ascii(table, strcmp(nl_langinfo(CODESET), "UTF-8") != 0);
	reef_table_column(table, study->point_name, REEF_TABLE_RIGHT);
	for (uint32_t l = 0; l < figures->lines_count; l++) {
		reef_table_column(table, study->lines[l], REEF_TABLE_RIGHT);
		reef_table_column(table, "", REEF_TABLE_LEFT);
	}
	for (uint32_t p = 0; p < figures->points_count; p++) {
		if (study->points_are_bytes)
			reef_table_cell(table, "%s",
					reef_table_bytes(points[p], text));
		else
			reef_table_cell(table, "%llu",
					(unsigned long long)points[p]);
		for (uint32_t l = 0; l < figures->lines_count; l++) {
			double rate = figures->ops_per_s[p][l];

			reef_table_cell(table, "%s/s",
					reef_table_number(rate, text));
			reef_table_bar(table, rate / figures->most, BAR_WIDTH);
		}
		reef_table_end_row(table);
	}
	printf("%s\n%s\n\n", study->title, study->subtitle);
	rc = reef_table_print(table, stdout);
	reef_table_destroy(table);
	return rc;
}

static int write_chart(const struct study *study, const char *directory,
		       const uint64_t *points, const struct figures *figures)
{
	struct reef_chart chart = {
		.title = study->title,
		.subtitle = study->subtitle,
		.x_title = study->point_name,
		.y_title = "operations per second",
		.x_log2 = true,
		.y_log10 = study->logarithmic,
		.x_unit = study->points_are_bytes ? REEF_CHART_BYTES
						  : REEF_CHART_NUMBER,
		.lines_count = figures->lines_count,
	};
	char *path = NULL;
	FILE *file;
	int rc;

	for (uint32_t l = 0; l < figures->lines_count; l++) {
		chart.lines[l].name = study->lines[l];
		for (uint32_t p = 0; p < figures->points_count; p++)
			reef_chart_add(&chart, l, (double)points[p],
				       figures->ops_per_s[p][l]);
	}
	if (asprintf(&path, "%s/fabric-%s.svg", directory, study->name) < 0)
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

static int run_study(const struct study *study, const struct wish *wish)
{
	const uint64_t *points =
		wish->quick ? study->quick_points : study->points;
	struct figures figures = {0};
	int rc = measure(study, wish, points, &figures);

	if (!rc)
		rc = print_table(study, points, &figures);
	if (!rc)
		rc = write_chart(study, wish->directory, points, &figures);
	if (rc)
		fprintf(stderr, "reef sim: %s: %s\n", study->name,
			reef_error_text(rc));
	return rc;
}

/* --- arguments --- */

static int run_fabric(const struct wish *wish)
{
	if (mkdir(wish->directory, 0777) && errno != EEXIST) {
		fprintf(stderr, "reef sim: %s: %s\n", wish->directory,
			strerror(errno));
		return 1;
	}
	for (int i = 0; study_all[i]; i++)
		if (run_study(study_all[i], wish))
			return 1;
	return 0;
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
	static const struct option options[] = {
		{"out", required_argument, NULL, 'o'},
		{"seed", required_argument, NULL, 's'},
		{"quick", no_argument, NULL, 'q'},
		{0},
	};
	struct wish wish = {.directory = ".", .seed = 1};
	int option;

	if (cmd_wants_help(argc, argv)) {
		help();
		return 0;
	}
	setlocale(LC_CTYPE, "");
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 'o':
			wish.directory = optarg;
			break;
		case 's':
			if (!parse_number(optarg, &wish.seed))
				return cmd_usage_error(
					"sim", "--seed %s: not a number",
					optarg);
			break;
		case 'q':
			wish.quick = true;
			break;
		default:
			return cmd_usage_error("sim", "wrong option");
		}
	}
	if (optind + 1 != argc)
		return cmd_usage_error("sim", "what shall be simulated?");
	if (strcmp(argv[optind], "fabric") != 0)
		return cmd_usage_error("sim", "\"%s\" is unknown",
				       argv[optind]);
	return run_fabric(&wish);
}
