/* test_chart.c - line charts as SVG. */
#include "cmd/print/chart.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *written(const struct reef_chart *chart)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(reef_chart_write(chart, out), 0);
	fclose(out);
	return text;
}

static void assert_in(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" is missing in:\n%s", part, text);
}

static void chart_line_has_axes_names_and_points(void **state)
{
	struct reef_chart chart = {.title = "a < b & c",
				   .subtitle = "s",
				   .x_title = "size",
				   .y_title = "ops/s",
				   .x_log2 = true,
				   .x_unit = REEF_CHART_BYTES,
				   .lines_count = 2};
	char *text;

	(void)state;
	chart.lines[0].name = "first";
	chart.lines[1].name = "second";
	for (int i = 12; i <= 16; i++) {
		reef_chart_add(&chart, 0, pow(2, i), 1e6 * i);
		reef_chart_add(&chart, 1, pow(2, i), 1e7);
	}
	text = written(&chart);
	assert_int_equal(strncmp(text, "<svg ", 5), 0);
	assert_in(text, "<title>a &lt; b &amp; c</title>");
	assert_in(text, ">4 KiB</text>");
	assert_in(text, ">64 KiB</text>");
	assert_in(text, ">20M</text>");
	assert_in(text, ">0</text>");
	assert_in(text, ">first</text>");
	assert_in(text, ">second</text>");
	assert_in(text, "prefers-color-scheme:dark");
	/* 4 KiB and 64 KiB are the two ends; 10M is the middle of 0 to 20M. */
	assert_in(text, "d=\"M76.0 219.0L");
	assert_in(text, "L594.0 219.0\"");
	assert_in(text, "</svg>\n");
	free(text);
}

static void chart_linear_axes_start_at_nothing(void **state)
{
	struct reef_chart chart = {.title = "t", .lines_count = 1};
	char *text;

	(void)state;
	chart.lines[0].name = "only";
	reef_chart_add(&chart, 0, 0, 0);
	reef_chart_add(&chart, 0, 96, 0.4);
	text = written(&chart);
	assert_in(text, ">100</text>");
	assert_in(text, ">0.1</text>");
	assert_in(text, ">0.4</text>");
	free(text);
	/* Nothing but zeros is a chart too. */
	chart.lines[0].count = 1;
	text = written(&chart);
	free(text);
}

static void chart_logarithmic_axis_has_powers_as_ticks(void **state)
{
	struct reef_chart chart = {
		.title = "t", .y_log10 = true, .lines_count = 1};
	char *text;

	(void)state;
	chart.lines[0].name = "only";
	reef_chart_add(&chart, 0, 1, 2e6);
	reef_chart_add(&chart, 0, 2, 1.1e8);
	text = written(&chart);
	assert_in(text, ">1M</text>");
	assert_in(text, ">10M</text>");
	assert_in(text, ">100M</text>");
	free(text);
}

static void chart_powers_of_two_stay_what_they_are(void **state)
{
	struct reef_chart chart = {
		.title = "t", .x_log2 = true, .lines_count = 1};
	char *text;

	(void)state;
	chart.lines[0].name = "only";
	reef_chart_add(&chart, 0, 1024, 1);
	reef_chart_add(&chart, 0, 1 << 17, 2500);
	text = written(&chart);
	assert_in(text, ">1024</text>");
	assert_in(text, ">131072</text>");
	assert_in(text, ">2.5k</text>");
	free(text);
}

static void chart_without_sense_is_refused(void **state)
{
	struct reef_chart chart = {.title = "t", .lines_count = 1};

	(void)state;
	assert_int_equal(reef_chart_write(&chart, stdout), -EINVAL);
	reef_chart_add(&chart, 0, 1, NAN);
	assert_int_equal(reef_chart_write(&chart, stdout), -EINVAL);
	chart.lines[0].y[0] = -1;
	assert_int_equal(reef_chart_write(&chart, stdout), -EINVAL);
	chart.lines[0].y[0] = 0;
	chart.y_log10 = true;
	assert_int_equal(reef_chart_write(&chart, stdout), -EINVAL);
	chart.lines_count = REEF_CHART_LINES_MAX + 1;
	assert_int_equal(reef_chart_write(&chart, stdout), -EINVAL);
}

static void chart_points_over_the_maximum_are_left_out(void **state)
{
	struct reef_chart chart = {.title = "t", .lines_count = 1};

	(void)state;
	for (int i = 0; i < 2 * REEF_CHART_POINTS_MAX; i++)
		reef_chart_add(&chart, 0, i, i);
	assert_int_equal(chart.lines[0].count, REEF_CHART_POINTS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chart_line_has_axes_names_and_points),
		cmocka_unit_test(chart_linear_axes_start_at_nothing),
		cmocka_unit_test(chart_logarithmic_axis_has_powers_as_ticks),
		cmocka_unit_test(chart_powers_of_two_stay_what_they_are),
		cmocka_unit_test(chart_without_sense_is_refused),
		cmocka_unit_test(chart_points_over_the_maximum_are_left_out),
	};

	return cmocka_run_group_tests_name("chart", tests, NULL, NULL);
}
