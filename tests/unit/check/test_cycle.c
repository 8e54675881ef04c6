/* The checker of transactions: histories that are right, and for each anomaly
 * one that shows it. */
#include "check/cycle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { X = 1, Y = 2 };

#define LIST(...)                                                              \
	(const uint64_t[]){0, __VA_ARGS__} + 1,                                \
		sizeof((uint64_t[]){0, __VA_ARGS__}) / 8 - 1
#define NOTHING NULL, 0

static struct cycle_op append(uint64_t key, uint64_t value)
{
	return (struct cycle_op){
		.key = key,
		.is_append = true,
		.value = value,
	};
}

static struct cycle_op read_of(uint64_t key, const uint64_t *list, size_t count)
{
	return (struct cycle_op){
		.key = key,
		.list = list,
		.list_count = (uint32_t)count,
	};
}

#define TXN(result_, from, to, ...)                                            \
	{                                                                      \
		.ops = (const struct cycle_op[]){__VA_ARGS__},                 \
		.ops_count = sizeof((struct cycle_op[]){__VA_ARGS__}) /        \
			     sizeof(struct cycle_op),                          \
		.result = (result_), .called_at = (from), .returned_at = (to), \
	}

static void expect(const struct cycle_txn *txns, size_t count,
		   const char *wanted)
{
	size_t txn = SIZE_MAX;
	const char *wrong = cycle_check(txns, count, &txn);

	if (!wanted) {
		assert_null(wrong);
		return;
	}
	assert_non_null(wrong);
	assert_non_null(strstr(wrong, wanted));
	assert_true(txn < count);
}

#define EXPECT(wanted, ...)                                                    \
	do {                                                                   \
		const struct cycle_txn txns[] = {__VA_ARGS__};                 \
                                                                               \
		expect(txns, sizeof(txns) / sizeof(*txns), wanted);            \
	} while (0)

static void cycle_good_history_passes(void **state)
{
	(void)state;
	EXPECT(NULL,
	       TXN(CYCLE_DONE, 1, 2, read_of(X, NOTHING), append(X, 10),
		   append(Y, 20), append(Y, 21), read_of(Y, LIST(20, 21))),
	       TXN(CYCLE_REFUSED, 1, 3, append(X, 11)),
	       TXN(CYCLE_UNKNOWN, 1, CYCLE_NEVER, append(X, 12)),
	       TXN(CYCLE_UNKNOWN, 1, CYCLE_NEVER, append(X, 13), append(Y, 23)),
	       TXN(CYCLE_DONE, 3, 6, read_of(X, LIST(10)), append(Y, 22)),
	       TXN(CYCLE_DONE, 4, 5, read_of(Y, LIST(20, 21))),
	       TXN(CYCLE_DONE, 9, 9, read_of(X, LIST(10, 13)),
		   read_of(Y, LIST(20, 21, 22, 23))));
}

/* Plain calls that overlap may be in any order. */
static void cycle_overlap_passes(void **state)
{
	(void)state;
	EXPECT(NULL, TXN(CYCLE_DONE, 1, 9, append(X, 10)),
	       TXN(CYCLE_DONE, 2, 3, read_of(X, LIST(10))),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING)),
	       TXN(CYCLE_DONE, 1, 9, append(X, 11)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10, 11))));
}

static void cycle_value_of_nobody_is_found(void **state)
{
	(void)state;
	EXPECT("(1)", TXN(CYCLE_DONE, 1, 2, read_of(X, LIST(10))));
	EXPECT("(1)", TXN(CYCLE_DONE, 1, 2, append(X, 10)),
	       TXN(CYCLE_DONE, 3, 4, read_of(X, LIST(10, 10))));
}

static void cycle_aborted_read_is_found(void **state)
{
	(void)state;
	EXPECT("G1a", TXN(CYCLE_REFUSED, 1, 2, append(X, 10)),
	       TXN(CYCLE_DONE, 3, 4, read_of(X, LIST(10))));
}

static void cycle_intermediate_read_is_found(void **state)
{
	(void)state;
	EXPECT("G1b", TXN(CYCLE_DONE, 1, 9, append(X, 10), append(X, 11)),
	       TXN(CYCLE_DONE, 3, 4, read_of(X, LIST(10))));
}

static void cycle_lists_that_disagree_are_found(void **state)
{
	(void)state;
	EXPECT("(2)", TXN(CYCLE_DONE, 1, 9, append(X, 10)),
	       TXN(CYCLE_DONE, 1, 9, append(X, 11)),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, LIST(10))),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, LIST(11, 10))));
}

static void cycle_own_append_unseen_is_found(void **state)
{
	(void)state;
	EXPECT("(3)",
	       TXN(CYCLE_DONE, 1, 9, append(X, 10), read_of(X, NOTHING)));
	EXPECT("(3)", TXN(CYCLE_DONE, 1, 9, append(X, 11)),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING),
		   read_of(X, LIST(11))));
}

/* Both read the old list and append: the second covers the first. */
static void cycle_lost_update_is_found(void **state)
{
	(void)state;
	EXPECT("G2", TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING), append(X, 10)),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING), append(X, 11)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10))));
	EXPECT("real time", TXN(CYCLE_DONE, 1, 2, append(X, 10)),
	       TXN(CYCLE_DONE, 3, 4, read_of(X, NOTHING)));
}

static void cycle_write_skew_is_found(void **state)
{
	(void)state;
	EXPECT("G2",
	       TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING), read_of(Y, NOTHING),
		   append(X, 10)),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, NOTHING), read_of(Y, NOTHING),
		   append(Y, 20)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10)),
		   read_of(Y, LIST(20))));
}

static void cycle_read_skew_is_found(void **state)
{
	(void)state;
	EXPECT("G2", TXN(CYCLE_DONE, 1, 9, append(X, 10), append(Y, 20)),
	       TXN(CYCLE_DONE, 1, 9, read_of(X, LIST(10)), read_of(Y, NOTHING)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10)),
		   read_of(Y, LIST(20))));
}

/* One that nobody knows of is seen in one list and not in the other. */
static void cycle_half_of_unknown_is_found(void **state)
{
	(void)state;
	EXPECT("G2",
	       TXN(CYCLE_UNKNOWN, 1, CYCLE_NEVER, append(X, 10), append(Y, 20)),
	       TXN(CYCLE_DONE, 2, 3, append(Y, 21)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10)),
		   read_of(Y, LIST(21))));
}

static void cycle_write_cycle_is_found(void **state)
{
	(void)state;
	EXPECT("G0", TXN(CYCLE_DONE, 1, 9, append(X, 10), append(Y, 20)),
	       TXN(CYCLE_DONE, 1, 9, append(X, 11), append(Y, 21)),
	       TXN(CYCLE_DONE, 10, 11, read_of(X, LIST(10, 11)),
		   read_of(Y, LIST(21, 20))));
}

static void cycle_information_flow_is_found(void **state)
{
	(void)state;
	EXPECT("G1c",
	       TXN(CYCLE_DONE, 1, 9, append(X, 10), read_of(Y, LIST(20))),
	       TXN(CYCLE_DONE, 1, 9, append(Y, 20), read_of(X, LIST(10))));
}

/* What returned first is not seen by what was called later. */
static void cycle_real_time_violation_is_found(void **state)
{
	(void)state;
	EXPECT("real time", TXN(CYCLE_DONE, 1, 2, append(X, 10)),
	       TXN(CYCLE_DONE, 3, 4, append(X, 11)),
	       TXN(CYCLE_DONE, 5, 6, read_of(X, LIST(11, 10))));
	EXPECT("real time", TXN(CYCLE_DONE, 1, 9, append(X, 10)),
	       TXN(CYCLE_DONE, 2, 3, read_of(X, LIST(10))),
	       TXN(CYCLE_DONE, 4, 5, read_of(X, NOTHING)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cycle_good_history_passes),
		cmocka_unit_test(cycle_overlap_passes),
		cmocka_unit_test(cycle_value_of_nobody_is_found),
		cmocka_unit_test(cycle_aborted_read_is_found),
		cmocka_unit_test(cycle_intermediate_read_is_found),
		cmocka_unit_test(cycle_lists_that_disagree_are_found),
		cmocka_unit_test(cycle_own_append_unseen_is_found),
		cmocka_unit_test(cycle_lost_update_is_found),
		cmocka_unit_test(cycle_write_skew_is_found),
		cmocka_unit_test(cycle_read_skew_is_found),
		cmocka_unit_test(cycle_half_of_unknown_is_found),
		cmocka_unit_test(cycle_write_cycle_is_found),
		cmocka_unit_test(cycle_information_flow_is_found),
		cmocka_unit_test(cycle_real_time_violation_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
