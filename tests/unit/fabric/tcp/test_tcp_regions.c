/* test_tcp_regions.c - the table of keys of a tcp fabric's memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/tcp/regions.h"

#include <stdlib.h>

#define MANY 1000u

static struct tcp_regions table;
static struct tcp_region *many[MANY];

static int fill_table(void **state)
{
	tcp_regions_init(&table);
	for (uint32_t i = 0; i < MANY; i++) {
		many[i] = calloc(1, sizeof(*many[i]));
		assert_non_null(many[i]);
		assert_int_equal(tcp_regions_add(&table, many[i]), 0);
	}
	return 0;
}

static int empty_table(void **state)
{
	tcp_regions_fini(&table);
	return 0;
}

/* Each bit is 1 in some keys and 0 in others: there is nothing to count on. */
static void regions_keys_are_random_in_every_bit(void **state)
{
	uint64_t ones[2] = {0}, zeros[2] = {0};

	for (uint32_t i = 0; i < MANY; i++) {
		ones[0] |= many[i]->base.key;
		zeros[0] |= ~many[i]->base.key;
		ones[1] |= many[i]->base.read_key;
		zeros[1] |= ~many[i]->base.read_key;
	}
	for (uint32_t i = 0; i < 2; i++) {
		assert_true(ones[i] == UINT64_MAX);
		assert_true(zeros[i] == UINT64_MAX);
	}
}

static void regions_are_taken_by_both_keys(void **state)
{
	for (uint32_t i = 0; i < MANY; i++) {
		const struct reef_region *base = &many[i]->base;

		assert_ptr_equal(tcp_regions_take(&table, base->key), many[i]);
		assert_ptr_equal(tcp_regions_take(&table, base->read_key),
				 many[i]);
		tcp_regions_give(many[i]);
		tcp_regions_give(many[i]);
		assert_null(tcp_regions_take(&table, base->key ^ 1));
		assert_null(tcp_regions_take(&table, base->key ^ 1ull << 63));
	}
	assert_null(tcp_regions_take(&table, 0));
}

static void regions_withdrawn_are_not_taken(void **state)
{
	uint64_t keys[2];

	for (uint32_t i = 0; i < MANY; i += 2) {
		keys[0] = many[i]->base.key;
		keys[1] = many[i]->base.read_key;
		assert_ptr_equal(tcp_regions_take(&table, keys[1]), many[i]);
		assert_int_equal(tcp_regions_withdraw(&table, many[i]),
				 -EAGAIN);
		assert_null(tcp_regions_take(&table, keys[0]));
		assert_null(tcp_regions_take(&table, keys[1]));
		tcp_regions_give(many[i]);
		assert_int_equal(tcp_regions_withdraw(&table, many[i]), 0);
		many[i] = calloc(1, sizeof(*many[i]));
		assert_non_null(many[i]);
		assert_int_equal(tcp_regions_add(&table, many[i]), 0);
	}
	regions_are_taken_by_both_keys(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			regions_keys_are_random_in_every_bit, fill_table,
			empty_table),
		cmocka_unit_test_setup_teardown(regions_are_taken_by_both_keys,
						fill_table, empty_table),
		cmocka_unit_test_setup_teardown(regions_withdrawn_are_not_taken,
						fill_table, empty_table),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
