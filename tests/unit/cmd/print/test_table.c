/* test_table.c - tables for people. */
#include "cmd/print/table.h"

#include <errno.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *printed(const struct reef_table *table)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(reef_table_print(table, out), 0);
	fclose(out);
	return text;
}

static void table_columns_line_up(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "case", REEF_TABLE_LEFT);
	reef_table_column(table, "n", REEF_TABLE_RIGHT);
	reef_table_cell(table, "%s", "a-long-name");
	reef_table_cell(table, "%d", 7);
	reef_table_end_row(table);
	reef_table_rule(table);
	reef_table_cell(table, "b");
	reef_table_cell(table, "1234");
	reef_table_end_row(table);
	text = printed(table);
	assert_string_equal(text, "case            n\n"
				  "-----------  ----\n"
				  "a-long-name     7\n"
				  "-----------  ----\n"
				  "b            1234\n");
	free(text);
	reef_table_destroy(table);
}

static void fill_rows(struct reef_table *table)
{
	static const struct {
		const char *name, *size;
		double weight;
	} rows[] = {{"b", "1 KiB", 1024},
		    {"c", "900", 900},
		    {"a", "2 KiB", 2048},
		    {"c", "1 KiB", 1024}};

	reef_table_column(table, "name", REEF_TABLE_LEFT);
	reef_table_column(table, "size", REEF_TABLE_LEFT);
	for (uint32_t i = 0; i < 4; i++) {
		reef_table_cell(table, "%s", rows[i].name);
		reef_table_cell(table, "%s", rows[i].size);
		reef_table_weigh(table, rows[i].weight);
		reef_table_end_row(table);
	}
}

static void table_sort_goes_by_text_or_weight_and_keeps_equals(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	fill_rows(table);
	assert_int_equal(reef_table_rows(table), 4);
	assert_int_equal(reef_table_columns(table), 2);
	assert_string_equal(reef_table_title(table, 1), "size");
	assert_null(reef_table_title(table, 2));
	reef_table_sort(table, 0, true);
	text = printed(table);
	assert_string_equal(text, "name  size\n----  -----\n"
				  "c     900\nc     1 KiB\nb     1 KiB\n"
				  "a     2 KiB\n");
	free(text);
	/* As texts "1 KiB" would come before "900". */
	reef_table_sort(table, 1, false);
	text = printed(table);
	assert_string_equal(text, "name  size\n----  -----\n"
				  "c     900\nc     1 KiB\nb     1 KiB\n"
				  "a     2 KiB\n");
	free(text);
	reef_table_sort(table, 1, true);
	reef_table_sort(table, 7, true);
	text = printed(table);
	assert_string_equal(text, "name  size\n----  -----\n"
				  "a     2 KiB\nc     1 KiB\nb     1 KiB\n"
				  "c     900\n");
	free(text);
	reef_table_destroy(table);
}

static void table_part_is_some_rows(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	fill_rows(table);
	assert_int_equal(reef_table_print_part(table, out, 1, 2), 0);
	assert_int_equal(reef_table_print_part(table, out, 9, 2), 0);
	fclose(out);
	assert_string_equal(text, "name  size\n----  -----\n"
				  "c     900\na     2 KiB\n"
				  "name  size\n----  -----\n");
	free(text);
	reef_table_destroy(table);
}

static void table_short_row_has_empty_cells_and_no_trailing_blanks(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "aaa", REEF_TABLE_LEFT);
	reef_table_column(table, "bbb", REEF_TABLE_RIGHT);
	reef_table_column(table, "ccc", REEF_TABLE_LEFT);
	reef_table_cell(table, "x");
	reef_table_end_row(table);
	reef_table_cell(table, "%s", "");
	reef_table_cell(table, "%s", "");
	reef_table_cell(table, "z");
	reef_table_end_row(table);
	text = printed(table);
	assert_string_equal(text, "aaa  bbb  ccc\n"
				  "---  ---  ---\n"
				  "x\n"
				  "          z\n");
	free(text);
	reef_table_destroy(table);
}

static void table_width_counts_characters_not_bytes(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "t", REEF_TABLE_RIGHT);
	reef_table_cell(table, "2 \xc2\xb5s");
	reef_table_end_row(table);
	reef_table_cell(table, "20 s");
	reef_table_end_row(table);
	text = printed(table);
	assert_string_equal(text, "   t\n----\n2 \xc2\xb5s\n20 s\n");
	free(text);
	reef_table_destroy(table);
}

static void table_cell_that_is_not_plain_has_marks(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "file", REEF_TABLE_LEFT);
	reef_table_column(table, "n", REEF_TABLE_RIGHT);
	reef_table_cell(table, "%s", "new\nline");
	reef_table_cell(table, "1");
	reef_table_end_row(table);
	reef_table_cell(table, "%s", "\033[2J\xff");
	reef_table_cell(table, "2");
	reef_table_end_row(table);
	text = printed(table);
	assert_string_equal(text, "file      n\n"
				  "--------  -\n"
				  "new?line  1\n"
				  "?[2J?     2\n");
	free(text);
	reef_table_destroy(table);
}

static void table_bar_is_as_long_as_its_share(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "", REEF_TABLE_LEFT);
	reef_table_set_ascii(table, true);
	reef_table_bar(table, 0.5, 8);
	reef_table_end_row(table);
	reef_table_bar(table, 7, 8);
	reef_table_end_row(table);
	reef_table_bar(table, 0.0001, 8);
	reef_table_end_row(table);
	reef_table_bar(table, 0, 8);
	reef_table_end_row(table);
	reef_table_set_ascii(table, false);
	reef_table_bar(table, 0.1875, 8); /* one and a half blocks */
	reef_table_end_row(table);
	text = printed(table);
	assert_string_equal(text, "\n--------\n####\n########\n#\n\n"
				  "\xe2\x96\x88\xe2\x96\x8c\n");
	free(text);
	reef_table_destroy(table);
}

static void table_more_cells_than_columns_is_refused(void **state)
{
	struct reef_table *table = reef_table_create();

	(void)state;
	reef_table_column(table, "a", REEF_TABLE_LEFT);
	reef_table_cell(table, "1");
	reef_table_cell(table, "2");
	reef_table_end_row(table);
	assert_int_equal(reef_table_print(table, stdout), -ENOSPC);
	reef_table_destroy(table);
	reef_table_destroy(NULL);
	assert_int_equal(reef_table_print(NULL, stdout), -ENOMEM);
}

static void table_long_cell_is_cut_off(void **state)
{
	struct reef_table *table = reef_table_create();
	char *text;

	(void)state;
	reef_table_column(table, "a", REEF_TABLE_LEFT);
	for (int i = 0; i < 100; i++) {
		reef_table_cell(table, "%1000d", i);
		reef_table_end_row(table);
	}
	text = printed(table);
	assert_true(strlen(text) < 102 * (REEF_TABLE_CELL_MAX + 1));
	free(text);
	reef_table_destroy(table);
}

static void table_numbers_have_three_digits(void **state)
{
	char text[16];

	(void)state;
	assert_string_equal(reef_table_number(0, text), "0");
	assert_string_equal(reef_table_number(950, text), "950");
	assert_string_equal(reef_table_number(0.5, text), "0.50");
	assert_string_equal(reef_table_number(1500, text), "1.50k");
	assert_string_equal(reef_table_number(999600, text), "1.00M");
	assert_string_equal(reef_table_number(111.4e6, text), "111M");
	assert_string_equal(reef_table_number(19.04e6, text), "19.0M");
	assert_string_equal(reef_table_bytes(512, text), "512");
	assert_string_equal(reef_table_bytes(4096, text), "4 KiB");
	assert_string_equal(reef_table_bytes(3ull << 29, text), "1.5 GiB");
	assert_string_equal(reef_table_bytes(UINT64_MAX, text), "16 EiB");
	assert_string_equal(reef_table_time(850, text), "850 ns");
	assert_string_equal(reef_table_time(2100, text), "2.10 us");
	assert_non_null(setlocale(LC_CTYPE, "C.UTF-8"));
	assert_string_equal(reef_table_time(2100, text), "2.10 \xc2\xb5s");
	assert_non_null(setlocale(LC_CTYPE, "C"));
	assert_string_equal(reef_table_time(480e6, text), "480 ms");
	assert_string_equal(reef_table_time(1.5e9, text), "1.50 s");
	assert_string_equal(reef_table_time(999e9, text), "999 s");
	assert_string_equal(reef_table_time(1450e9, text), "24.2 min");
	assert_string_equal(reef_table_time(64800e9, text), "18.0 h");
	assert_string_equal(reef_table_time(86400e9 * 12.5, text), "12.5 days");
	assert_string_equal(reef_table_time(86400e9 * 4000, text), "4000 days");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(table_columns_line_up),
		cmocka_unit_test(
			table_sort_goes_by_text_or_weight_and_keeps_equals),
		cmocka_unit_test(table_part_is_some_rows),
		cmocka_unit_test(
			table_short_row_has_empty_cells_and_no_trailing_blanks),
		cmocka_unit_test(table_width_counts_characters_not_bytes),
		cmocka_unit_test(table_cell_that_is_not_plain_has_marks),
		cmocka_unit_test(table_bar_is_as_long_as_its_share),
		cmocka_unit_test(table_more_cells_than_columns_is_refused),
		cmocka_unit_test(table_long_cell_is_cut_off),
		cmocka_unit_test(table_numbers_have_three_digits),
	};

	return cmocka_run_group_tests_name("table", tests, NULL, NULL);
}
