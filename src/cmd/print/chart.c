/* chart.c - see chart.h. */
#include "cmd/print/chart.h"

#include "cmd/print/table.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#define WIDTH 760
#define HEIGHT 430
#define LEFT 76
#define RIGHT 166 /* room for the names of the lines */
#define TOP 66
#define BOTTOM 58
#define PLOT_WIDTH (WIDTH - LEFT - RIGHT)
#define PLOT_HEIGHT (HEIGHT - TOP - BOTTOM)
#define NAME_GAP 17 /* between the names of two lines */
#define TICKS_MAX 16

struct axis {
	double low,
		high; /* as drawn: logarithms where the axis is logarithmic */
	double base;  /* 0: linear; 2, 10: logarithmic */
	double ticks[TICKS_MAX]; /* values */
	uint32_t ticks_count;
};

void reef_chart_add(struct reef_chart *chart, uint32_t line, double x, double y)
{
	struct reef_chart_line *to = &chart->lines[line];

	if (to->count == REEF_CHART_POINTS_MAX)
		return;
	to->x[to->count] = x;
	to->y[to->count++] = y;
}

/* --- axes --- */

static double drawn(const struct axis *axis, double value)
{
	return axis->base ? log(value) / log(axis->base) : value;
}

static double place(const struct axis *axis, double value)
{
	return (drawn(axis, value) - axis->low) / (axis->high - axis->low);
}

static double x_of(const struct axis *axis, double value)
{
	return LEFT + place(axis, value) * PLOT_WIDTH;
}

static double y_of(const struct axis *axis, double value)
{
	return TOP + (1 - place(axis, value)) * PLOT_HEIGHT;
}

/* A step of 1, 2 or 5 times a power of ten that gives about five ticks. */
static double round_step(double range)
{
	double step = pow(10, floor(log10(range / 5)));
	double steps = range / step;

	return steps > 25   ? step * 10
	       : steps > 12 ? step * 5
	       : steps > 6  ? step * 2
			    : step;
}

static void set_linear(struct axis *axis, double max)
{
	double step = round_step(max > 0 ? max : 1);
	double steps = ceil((max > 0 ? max : 1) / step);

	axis->low = 0;
	axis->high = steps * step;
	for (uint32_t i = 0; i <= (uint32_t)steps && i < TICKS_MAX; i++)
		axis->ticks[axis->ticks_count++] = i * step;
}

/* Set an axis that reaches from a power of the base to just over the greatest
 * value. */
static void set_logarithmic(struct axis *axis, double min, double max,
			    double intervals_max)
{
	double step, steps;

	axis->low = floor(drawn(axis, min) + 1e-9);
	axis->high = drawn(axis, max);
	if (axis->high < axis->low + 1)
		axis->high = axis->low + 1;
	step = ceil((axis->high - axis->low) / intervals_max);
	steps = floor((axis->high - axis->low) / step + 1e-9);
	for (uint32_t i = 0; i <= (uint32_t)steps && i < TICKS_MAX; i++)
		axis->ticks[axis->ticks_count++] =
			pow(axis->base, axis->low + i * step);
}

static int scale(const struct reef_chart *chart, struct axis *x, struct axis *y)
{
	double x_min = INFINITY, x_max = 0, y_min = INFINITY, y_max = 0;

	if (chart->lines_count > REEF_CHART_LINES_MAX)
		return -EINVAL;
	for (uint32_t l = 0; l < chart->lines_count; l++)
		for (uint32_t i = 0; i < chart->lines[l].count; i++) {
			double px = chart->lines[l].x[i];
			double py = chart->lines[l].y[i];

			if (!isfinite(px) || !isfinite(py) || px < 0 || py < 0)
				return -EINVAL;
			x_min = fmin(x_min, px);
			x_max = fmax(x_max, px);
			y_min = fmin(y_min, py);
			y_max = fmax(y_max, py);
		}
	if (!isfinite(x_min) || (chart->x_log2 && x_min <= 0) ||
	    (chart->y_log10 && y_min <= 0))
		return -EINVAL;
	x->base = chart->x_log2 ? 2 : 0;
	y->base = chart->y_log10 ? 10 : 0;
	if (chart->x_log2)
		set_logarithmic(x, x_min, x_max,
				chart->x_unit == REEF_CHART_BYTES ? 6 : 10);
	else
		set_linear(x, x_max);
	if (chart->y_log10)
		set_logarithmic(y, y_min, y_max * 1.5, 6);
	else
		set_linear(y, y_max);
	return 0;
}

/* --- drawing --- */

static void put_text(FILE *out, const char *text)
{
	for (; text && *text; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc(*text, out);
		}
	}
}

static void put_label(FILE *out, const char *class, double x, double y,
		      const char *anchor, const char *text)
{
	fprintf(out,
		"<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">",
		class, x, y, anchor);
	put_text(out, text);
	fputs("</text>\n", out);
}

/* Colours that differ for people who see few of them, too; each has a lighter
 * twin for dark ground. */
static void put_head(const struct reef_chart *chart, FILE *out)
{
	static const char *const light[REEF_CHART_LINES_MAX] = {
		"#0b62a8", "#c2410c", "#15803d",
		"#7e22ce", "#a16207", "#334155"};
	static const char *const dark[REEF_CHART_LINES_MAX] = {
		"#6cb6ff", "#ff9e64", "#6bd68a",
		"#c99bff", "#e6c35c", "#b6c2cf"};

	fprintf(out,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
		"height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
		WIDTH, HEIGHT, WIDTH, HEIGHT);
	put_text(out, chart->title);
	fputs("</title>\n<style>\n"
	      "text{font:12px system-ui,'DejaVu "
	      "Sans',sans-serif;fill:#3b4754}\n"
	      ".title{font-size:17px;font-weight:600;fill:#10181f}\n"
	      ".name{font-weight:600}\n"
	      ".ground{fill:#ffffff}\n"
	      ".grid{stroke:#e3e8ee}\n"
	      ".axis{stroke:#8b98a5}\n"
	      ".line{fill:none;stroke-width:2.2;stroke-linejoin:round}\n",
	      out);
	for (uint32_t i = 0; i < REEF_CHART_LINES_MAX; i++)
		fprintf(out, ".s%u{stroke:%s}.f%u{fill:%s}\n", i, light[i], i,
			light[i]);
	fputs("@media (prefers-color-scheme:dark){\n"
	      "text{fill:#b6c2cf}.title{fill:#f0f4f8}.ground{fill:#14191f}\n"
	      ".grid{stroke:#2a323b}.axis{stroke:#66727f}\n",
	      out);
	for (uint32_t i = 0; i < REEF_CHART_LINES_MAX; i++)
		fprintf(out, ".s%u{stroke:%s}.f%u{fill:%s}\n", i, dark[i], i,
			dark[i]);
	fprintf(out,
		"}\n</style>\n<rect class=\"ground\" width=\"%d\" "
		"height=\"%d\"/>\n",
		WIDTH, HEIGHT);
	put_label(out, "title", LEFT, 28, "start", chart->title);
	put_label(out, "subtitle", LEFT, 48, "start", chart->subtitle);
}

/* Write the text of a tick, a round number: 20M, not 20.0M. */
static void put_tick_text(enum reef_chart_unit unit, double value,
			  char text[24])
{
	static const struct {
		double scale;
		const char *letter, *time;
	} scales[] = {{1e9, "G", " s"},
		      {1e6, "M", " ms"},
		      {1e3, "k", " µs"},
		      {0, "", " ns"}};
	bool is_time = unit == REEF_CHART_TIME;
	uint32_t i = 0;

	if (unit == REEF_CHART_BYTES) {
		reef_table_bytes((uint64_t)value, text);
		return;
	}
	/* Powers of two are not shortened: 4096 stays 4096. */
	while (value < scales[i].scale ||
	       (i < 3 && !is_time && fmod(value, scales[i].scale / 10) != 0))
		i++;
	snprintf(text, 24, "%g%s",
		 scales[i].scale ? value / scales[i].scale : value,
		 is_time ? scales[i].time : scales[i].letter);
}

static void put_axes(const struct reef_chart *chart, const struct axis *x,
		     const struct axis *y, FILE *out)
{
	char text[24];

	for (uint32_t i = 0; i < y->ticks_count; i++) {
		double at = y_of(y, y->ticks[i]);

		put_tick_text(chart->y_unit, y->ticks[i], text);
		fprintf(out, "<path class=\"%s\" d=\"M%d %.1fH%d\"/>\n",
			i ? "grid" : "axis", LEFT, at, LEFT + PLOT_WIDTH);
		put_label(out, "tick", LEFT - 8, at + 4, "end", text);
	}
	for (uint32_t i = 0; i < x->ticks_count; i++) {
		double at = x_of(x, x->ticks[i]);

		put_tick_text(chart->x_unit, x->ticks[i], text);
		fprintf(out, "<path class=\"axis\" d=\"M%.1f %dv5\"/>\n", at,
			TOP + PLOT_HEIGHT);
		put_label(out, "tick", at, TOP + PLOT_HEIGHT + 20, "middle",
			  text);
	}
	put_label(out, "unit", LEFT + PLOT_WIDTH / 2.0, HEIGHT - 14, "middle",
		  chart->x_title);
	fprintf(out,
		"<text class=\"unit\" transform=\"translate(18 %.1f) "
		"rotate(-90)\" text-anchor=\"middle\">",
		TOP + PLOT_HEIGHT / 2.0);
	put_text(out, chart->y_title);
	fputs("</text>\n", out);
}

static void put_marker(FILE *out, uint32_t line, double x, double y)
{
	static const char *const shapes[] = {
		/* disc, box, triangle, diamond, triangle on its tip, bar */
		"m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
		"m-3.3 -3.3h6.6v6.6h-6.6z",
		"m0 -4.8l4.4 7.6h-8.8z",
		"m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z",
		"m0 4.8l4.4 -7.6h-8.8z",
		"m-4.6 -1.5h9.2v3h-9.2z",
	};

	static_assert(sizeof(shapes) / sizeof(shapes[0]) ==
			      REEF_CHART_LINES_MAX,
		      "one each");
	fprintf(out, "<path class=\"f%u\" d=\"M%.1f %.1f%s\"/>\n", line, x, y,
		shapes[line]);
}

static void put_line(const struct reef_chart_line *line, uint32_t index,
		     const struct axis *x, const struct axis *y, FILE *out)
{
	fprintf(out, "<path class=\"line s%u\" d=\"", index);
	for (uint32_t i = 0; i < line->count; i++)
		fprintf(out, "%s%.1f %.1f", i ? "L" : "M", x_of(x, line->x[i]),
			y_of(y, line->y[i]));
	fputs("\"/>\n", out);
	for (uint32_t i = 0; i < line->count; i++)
		put_marker(out, index, x_of(x, line->x[i]),
			   y_of(y, line->y[i]));
}

/* Names stand where their lines end, pushed apart where those are close. */
static void put_names(const struct reef_chart *chart, const struct axis *y,
		      FILE *out)
{
	uint32_t order[REEF_CHART_LINES_MAX], count = 0;
	double at[REEF_CHART_LINES_MAX], low = TOP;

	for (uint32_t l = 0; l < chart->lines_count; l++) {
		const struct reef_chart_line *line = &chart->lines[l];
		uint32_t i = count;

		if (!line->count)
			continue;
		at[l] = y_of(y, line->y[line->count - 1]);
		for (; i > 0 && at[order[i - 1]] > at[l]; i--)
			order[i] = order[i - 1];
		order[i] = l;
		count++;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t l = order[i];
		char class[16];

		/* Room is left below for the names that are still to come. */
		at[l] = fmin(at[l], TOP + PLOT_HEIGHT -
					    (double)(count - 1 - i) * NAME_GAP);
		at[l] = fmax(at[l], low);
		low = at[l] + NAME_GAP;
		put_marker(out, l, LEFT + PLOT_WIDTH + 14, at[l]);
		snprintf(class, sizeof(class), "name f%u", l);
		put_label(out, class, LEFT + PLOT_WIDTH + 24, at[l] + 4,
			  "start", chart->lines[l].name);
	}
}

int reef_chart_write(const struct reef_chart *chart, FILE *out)
{
	struct axis x = {0}, y = {0};
	int rc = scale(chart, &x, &y);

	if (rc)
		return rc;
	put_head(chart, out);
	put_axes(chart, &x, &y, out);
	for (uint32_t l = 0; l < chart->lines_count; l++)
		if (chart->lines[l].count)
			put_line(&chart->lines[l], l, &x, &y, out);
	put_names(chart, &y, out);
	fputs("</svg>\n", out);
	return ferror(out) ? -EIO : 0;
}
