/* table.c - see table.h. */
#include "cmd/print/table.h"

#include "base/text.h"

#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct column {
	char *title;
	enum reef_table_align align;
	uint32_t width;
	bool is_weighed; /* a cell of it is sorted by its weight */
};

struct row {
	char *cells[REEF_TABLE_COLUMNS_MAX];
	double weights[REEF_TABLE_COLUMNS_MAX];
	uint32_t place; /* before it was sorted */
	bool rule;	/* draw a line below this row */
};

struct reef_table {
	struct column columns[REEF_TABLE_COLUMNS_MAX];
	uint32_t columns_count;
	struct row *rows; /* rows_count whole ones, then the one under work */
	uint32_t rows_count, rows_max;
	uint32_t cells_count; /* of the row under work */
	bool ascii;
	int error; /* sticky */
};

/* Characters of a UTF-8 text: its bytes that do not continue one. */
static uint32_t text_width(const char *text)
{
	uint32_t width = 0;

	for (; *text; text++)
		width += ((unsigned char)*text & 0xc0) != 0x80;
	return width;
}

struct reef_table *reef_table_create(void)
{
	return calloc(1, sizeof(struct reef_table));
}

void reef_table_destroy(struct reef_table *table)
{
	if (!table)
		return;
	for (uint32_t c = 0; c < table->columns_count; c++)
		free(table->columns[c].title);
	/* The row that is not finished may hold cells, too. */
	for (uint32_t r = 0; r < table->rows_max; r++)
		for (uint32_t c = 0; c < table->columns_count; c++)
			free(table->rows[r].cells[c]);
	free(table->rows);
	free(table);
}

void reef_table_set_ascii(struct reef_table *table, bool ascii)
{
	if (table)
		table->ascii = ascii;
}

void reef_table_column(struct reef_table *table, const char *title,
		       enum reef_table_align align)
{
	struct column *column;

	if (!table)
		return;
	if (table->columns_count == REEF_TABLE_COLUMNS_MAX) {
		table->error = -ENOSPC;
		return;
	}
	column = &table->columns[table->columns_count];
	column->title = strdup(title);
	if (!column->title) {
		table->error = -ENOMEM;
		return;
	}
	column->align = align;
	column->width = text_width(title);
	table->columns_count++;
}

static bool grow(struct reef_table *table)
{
	uint32_t rows_max = table->rows_max ? table->rows_max * 2 : 16;
	struct row *rows;

	if (table->rows_count < table->rows_max)
		return true;
	rows = realloc(table->rows, rows_max * sizeof(*rows));
	if (!rows) {
		table->error = -ENOMEM;
		return false;
	}
	memset(rows + table->rows_max, 0,
	       (rows_max - table->rows_max) * sizeof(*rows));
	table->rows = rows;
	table->rows_max = rows_max;
	return true;
}

/* Put a cell into the row. What a terminal would act upon (a name of a file may
 * have it) is shown as a ?, as ls(1) does. */
static void put_cell(struct reef_table *table, const char *text)
{
	struct column *column = &table->columns[table->cells_count];
	uint32_t width;
	char *copy;

	if (table->cells_count == table->columns_count) {
		table->error = -ENOSPC; /* more cells than columns */
		return;
	}
	if (!grow(table))
		return;
	copy = strdup(text);
	if (!copy) {
		table->error = -ENOMEM;
		return;
	}
	reef_text_make_plain(copy, strlen(copy));
	width = text_width(copy);
	table->rows[table->rows_count].cells[table->cells_count++] = copy;
	if (width > column->width)
		column->width = width;
}

void reef_table_cell(struct reef_table *table, const char *format, ...)
{
	char text[REEF_TABLE_CELL_MAX];
	va_list args;

	if (!table)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put_cell(table, text);
}

void reef_table_bar(struct reef_table *table, double share, uint32_t width)
{
	/* U+2588 is a full block, U+2589 to U+258F are 7 to 1 eighths. */
	char text[REEF_TABLE_CELL_MAX], *end = text;
	uint32_t eighths;

	if (!table)
		return;
	if (width > 64)
		width = 64; /* 3 bytes each, and room to spare */
	if (!(share > 0)) {
		put_cell(table, "");
		return;
	}
	if (share > 1)
		share = 1;
	eighths = (uint32_t)lround(share * width * 8);
	if (eighths == 0)
		eighths = 1;
	for (; eighths >= 8; eighths -= 8)
		end = stpcpy(end, table->ascii ? "#" : "\xe2\x96\x88");
	if (eighths && table->ascii && (eighths >= 4 || end == text)) {
		end = stpcpy(end, "#");
	} else if (eighths && !table->ascii) {
		end = stpcpy(end, "\xe2\x96");
		*end++ = (char)(0x90 - eighths);
	}
	*end = '\0';
	put_cell(table, text);
}

void reef_table_end_row(struct reef_table *table)
{
	if (!table || !grow(table))
		return;
	table->rows_count++;
	table->cells_count = 0;
}

void reef_table_weigh(struct reef_table *table, double weight)
{
	uint32_t column;

	if (!table || !table->cells_count ||
	    table->rows_count == table->rows_max)
		return;
	column = table->cells_count - 1;
	table->rows[table->rows_count].weights[column] = weight;
	table->columns[column].is_weighed = true;
}

struct order {
	uint32_t column;
	bool is_weighed, falling;
};

static int compare_rows(const void *left, const void *right, void *context)
{
	const struct order *order = context;
	const struct row *a = left, *b = right;
	const char *text_a = a->cells[order->column];
	const char *text_b = b->cells[order->column];
	int sign;

	if (order->is_weighed)
		sign = (a->weights[order->column] > b->weights[order->column]) -
		       (a->weights[order->column] < b->weights[order->column]);
	else
		sign = strcmp(text_a ? text_a : "", text_b ? text_b : "");
	if (!sign)
		return a->place < b->place ? -1 : a->place > b->place;
	return order->falling ? -sign : sign;
}

void reef_table_sort(struct reef_table *table, uint32_t column, bool falling)
{
	struct order order = {.column = column, .falling = falling};

	if (!table || column >= table->columns_count || !table->rows_count)
		return;
	order.is_weighed = table->columns[column].is_weighed;
	for (uint32_t r = 0; r < table->rows_count; r++)
		table->rows[r].place = r;
	qsort_r(table->rows, table->rows_count, sizeof(table->rows[0]),
		compare_rows, &order);
}

const char *reef_table_title(const struct reef_table *table, uint32_t column)
{
	return table && column < table->columns_count
		       ? table->columns[column].title
		       : NULL;
}

uint32_t reef_table_columns(const struct reef_table *table)
{
	return table ? table->columns_count : 0;
}

uint32_t reef_table_rows(const struct reef_table *table)
{
	return table ? table->rows_count : 0;
}

void reef_table_rule(struct reef_table *table)
{
	if (table && table->rows_count && table->rows_count <= table->rows_max)
		table->rows[table->rows_count - 1].rule = true;
}

static void print_rule(const struct reef_table *table, FILE *out)
{
	for (uint32_t c = 0; c < table->columns_count; c++) {
		fputs(c ? "  " : "", out);
		for (uint32_t i = 0; i < table->columns[c].width; i++)
			fputc('-', out);
	}
	fputc('\n', out);
}

/* Lines do not end in blanks: gaps are printed with the text after them. */
static void print_cells(const struct reef_table *table, FILE *out,
			const char *const *cells)
{
	uint32_t gap = 0;

	for (uint32_t c = 0; c < table->columns_count; c++) {
		const char *text = cells[c] ? cells[c] : "";
		uint32_t width = text_width(text);
		uint32_t pad = table->columns[c].width - width;

		if (c)
			gap += 2;
		if (table->columns[c].align == REEF_TABLE_RIGHT)
			gap += pad;
		if (*text) {
			fprintf(out, "%*s%s", (int)gap, "", text);
			gap = 0;
		} else {
			gap += width;
		}
		if (table->columns[c].align == REEF_TABLE_LEFT)
			gap += pad;
	}
	fputc('\n', out);
}

int reef_table_print(const struct reef_table *table, FILE *out)
{
	return reef_table_print_part(table, out, 0, UINT32_MAX);
}

int reef_table_print_part(const struct reef_table *table, FILE *out,
			  uint32_t first, uint32_t rows_max)
{
	const char *titles[REEF_TABLE_COLUMNS_MAX];

	if (!table)
		return -ENOMEM;
	if (table->error)
		return table->error;
	for (uint32_t c = 0; c < table->columns_count; c++)
		titles[c] = table->columns[c].title;
	print_cells(table, out, titles);
	print_rule(table, out);
	for (uint32_t r = first; r < table->rows_count && r - first < rows_max;
	     r++) {
		print_cells(table, out,
			    (const char *const *)table->rows[r].cells);
		if (table->rows[r].rule)
			print_rule(table, out);
	}
	return ferror(out) ? -EIO : 0;
}

/* Three significant digits of a value under 1,000. */
static void put_digits(double value, const char *unit, char text[16])
{
	int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;

	snprintf(text, 16, "%.*f%s", decimals, value, unit);
}

char *reef_table_number(double value, char text[16])
{
	static const char *const letters[] = {"", "k", "M", "G", "T", "P"};
	uint32_t i = 0;

	if (!isfinite(value) || value < 0 || value >= 999.5e15) {
		snprintf(text, 16, "%.3g", value);
		return text;
	}
	/* 999.5 would be printed as 1000. */
	for (; value >= 999.5 && i < 5; i++)
		value /= 1000;
	if (i == 0 && value == floor(value))
		snprintf(text, 16, "%.0f", value);
	else
		put_digits(value, letters[i], text);
	return text;
}

char *reef_table_bytes(uint64_t bytes, char text[16])
{
	static const char *const units[] = {"",	    " KiB", " MiB", " GiB",
					    " TiB", " PiB", " EiB"};
	double value = (double)bytes;
	uint32_t i = 0;

	for (; value >= 1024 && i < 6; i++)
		value /= 1024;
	if (value == floor(value))
		snprintf(text, 16, "%.0f%s", value, units[i]);
	else
		snprintf(text, 16, "%.1f%s", value, units[i]);
	return text;
}

bool reef_table_locale_is_utf8(void)
{
	return strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

char *reef_table_time(double time_ns, char text[16])
{
	if (!isfinite(time_ns) || time_ns < 0)
		snprintf(text, 16, "%.3g ns", time_ns);
	else if (time_ns < 999.5 && time_ns == floor(time_ns))
		snprintf(text, 16, "%.0f ns", time_ns);
	else if (time_ns < 999.5)
		put_digits(time_ns, " ns", text);
	else if (time_ns < 999.5e3)
		put_digits(time_ns / 1e3,
			   reef_table_locale_is_utf8() ? " \xc2\xb5s" : " us",
			   text);
	else if (time_ns < 999.5e6)
		put_digits(time_ns / 1e6, " ms", text);
	else if (time_ns < 999.5e9)
		put_digits(time_ns / 1e9, " s", text);
	else if (time_ns < 2 * 3600e9)
		put_digits(time_ns / 60e9, " min", text);
	else if (time_ns < 48 * 3600e9)
		put_digits(time_ns / 3600e9, " h", text);
	else
		put_digits(time_ns / (24 * 3600e9), " days", text);
	return text;
}
