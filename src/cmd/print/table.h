/* table.h - columns that line up, for people to read.
 *
 * (1) A column is as wide as its widest cell. Width is counted in characters,
 *     not bytes, so that "µs" and bars line up (wide East Asian characters
 *     excepted).
 * (2) Rows are filled from left to right; a row that ends early has empty
 *     cells.
 * (3) Building never fails in the caller's hands: an allocation that fails is
 *     remembered, and print returns it.
 * (4) A cell is plain text (base/text.h): what is not is shown as a ?, so a row
 *     is one line, whatever names others have given.
 *
 *	struct reef_table *table = reef_table_create();
 *	reef_table_column(table, "case", REEF_TABLE_LEFT);
 *	reef_table_column(table, "ops/s", REEF_TABLE_RIGHT);
 *	reef_table_cell(table, "%s", "shm-read-64");
 *	reef_table_cell(table, "%.1f", 12.5);
 *	reef_table_end_row(table);
 *	reef_table_print(table, stdout);
 *	reef_table_destroy(table);
 *
 * Thread: owner. */
#ifndef REEF_CMD_TABLE_H
#define REEF_CMD_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct reef_table;

enum reef_table_align { REEF_TABLE_LEFT, REEF_TABLE_RIGHT };

#define REEF_TABLE_COLUMNS_MAX 32
#define REEF_TABLE_CELL_MAX 256 /* bytes; the rest of a cell is cut off */

/* Make an empty table. NULL when there is no memory, which every call below
 * accepts. Caller owns it. */
struct reef_table *reef_table_create(void);
void reef_table_destroy(struct reef_table *table); /* NULL is fine */

/* Bars out of '#' instead of block characters, for terminals without UTF-8. */
void reef_table_set_ascii(struct reef_table *table, bool ascii);

/* Add a column; before the first cell. The title is copied. */
void reef_table_column(struct reef_table *table, const char *title,
		       enum reef_table_align align);

/* Fill the next cell of the row. */
__attribute__((format(printf, 2, 3))) void
reef_table_cell(struct reef_table *table, const char *format, ...);

/* Fill the next cell with a bar `share` (0 to 1, clamped) of `width`
 * characters long; anything above 0 shows. */
void reef_table_bar(struct reef_table *table, double share, uint32_t width);

/* Finish the row; and draw a line below it. */
void reef_table_end_row(struct reef_table *table);
void reef_table_rule(struct reef_table *table);

/* The cell that was filled last is sorted by this number, not by its text. */
void reef_table_weigh(struct reef_table *table, double weight);
/* Sort the rows that are there by a column: by the numbers of its cells if one
 * has any, otherwise by their texts. Rows that are alike stay as they were. */
void reef_table_sort(struct reef_table *table, uint32_t column, bool falling);

/* What the columns are called, and how many of them and of the rows there are.
 * A title is borrowed; NULL: there is no such column. */
const char *reef_table_title(const struct reef_table *table, uint32_t column);
uint32_t reef_table_columns(const struct reef_table *table);
uint32_t reef_table_rows(const struct reef_table *table);

/* Print titles, a line, and the rows. -ENOMEM: a cell was lost on the way, and
 * nothing is printed.  -EIO: the stream failed. */
int reef_table_print(const struct reef_table *table, FILE *out);
/* The same with at most so many rows, from the row `first` on. */
int reef_table_print_part(const struct reef_table *table, FILE *out,
			  uint32_t first, uint32_t rows_max);

/* True if what is printed may contain more than ASCII: the locale is the one
 * that setlocale chose. */
bool reef_table_locale_is_utf8(void);

/* A number in three significant digits with an SI letter: 950, 1.50k, 111M,
 * 2.10G. Returns text. */
char *reef_table_number(double value, char text[16]);
/* A size in bytes: 512, 4 KiB, 64 MiB, 1.5 GiB. Returns text. */
char *reef_table_bytes(uint64_t bytes, char text[16]);
/* Nanoseconds: 850 ns, 2.10 µs, 480 ms, 1.50 s, 24.2 min, 18.0 h, 12.5 days;
 * where the locale has no µ, 2.10 us. Returns text. */
char *reef_table_time(double time_ns, char text[16]);

#endif
