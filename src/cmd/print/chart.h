/* chart.h - a line chart as SVG.
 *
 * (1) The file stands alone: no script, no font, no other file; readable on
 *     light and on dark ground (it looks at prefers-color-scheme).
 * (2) Lines are told apart without colour too: each has its own marker, and its
 *     name stands at its end.
 * (3) Axes begin at 0, or are logarithmic; ticks are round numbers.
 *
 * Thread: any. */
#ifndef REEF_CMD_CHART_H
#define REEF_CMD_CHART_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define REEF_CHART_LINES_MAX 6
#define REEF_CHART_POINTS_MAX 64

struct reef_chart_line {
	const char *name;
	uint32_t count;
	double x[REEF_CHART_POINTS_MAX], y[REEF_CHART_POINTS_MAX];
};

/* How the numbers of an axis are written. */
enum reef_chart_unit {
	REEF_CHART_NUMBER, /* 1k, 20M */
	REEF_CHART_BYTES,  /* 4 KiB */
	REEF_CHART_TIME,   /* of nanoseconds: 20 µs */
};

/* Zero what is not named. Texts are borrowed. */
struct reef_chart {
	const char *title, *subtitle;
	const char *x_title, *y_title;
	bool x_log2, y_log10;
	enum reef_chart_unit x_unit, y_unit;
	uint32_t lines_count;
	struct reef_chart_line lines[REEF_CHART_LINES_MAX];
};

/* Add a point to a line; points beyond the maximum are left out. */
void reef_chart_add(struct reef_chart *chart, uint32_t line, double x,
		    double y);

/* Write it. -EINVAL: no points, or a coordinate that is not a number, negative,
 * or 0 on a logarithmic axis.  -EIO: the stream failed. */
int reef_chart_write(const struct reef_chart *chart, FILE *out);

#endif
