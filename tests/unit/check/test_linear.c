/* The checker of histories: histories that are right, that are wrong, and small
 * random ones that are also tried in every order. */
#include "check/linear.h"

#include "base/random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A register of a value, 0: nothing there. */
enum { GET = 1, PUT, INSERT, REMOVE };

static bool step(const uint64_t state[LINEAR_STATE], const struct linear_op *op,
		 uint64_t next[LINEAR_STATE])
{
	bool known = op->returned_at != LINEAR_NEVER;
	uint64_t result = op->results[0];

	memcpy(next, state, LINEAR_STATE * sizeof(*next));
	switch (op->kind) {
	case GET:
		return !known || result == state[0];
	case PUT:
		next[0] = op->arguments[0];
		return true;
	case INSERT:
		if (!state[0])
			next[0] = op->arguments[0];
		return !known || result == !state[0];
	default:
		next[0] = 0;
		return !known || result == !!state[0];
	}
}

static const struct linear_model model = {.step = step};

static struct linear_op op(uint32_t kind, uint64_t argument, uint64_t result,
			   uint64_t from, uint64_t to)
{
	return (struct linear_op){
		.key = 7,
		.kind = kind,
		.arguments = {argument},
		.results = {result},
		.called_at = from,
		.returned_at = to,
	};
}

static enum linear_verdict judge(const struct linear_op *ops, size_t count)
{
	struct linear_result result;

	assert_int_equal(linear_check(&model, ops, count, 0, &result), 0);
	return result.verdict;
}

#define VERDICT(ops) judge(ops, sizeof(ops) / sizeof((ops)[0]))

static void linear_nothing_is_right(void **state)
{
	(void)state;
	assert_int_equal(judge(NULL, 0), LINEAR_YES);
}

static void linear_one_after_another_is_right(void **state)
{
	const struct linear_op ops[] = {
		op(GET, 0, 0, 1, 2),	 op(PUT, 5, 0, 3, 4),
		op(GET, 0, 5, 5, 6),	 op(INSERT, 6, 0, 7, 8),
		op(REMOVE, 0, 1, 9, 10), op(INSERT, 6, 1, 11, 12),
		op(GET, 0, 6, 13, 14),
	};

	(void)state;
	assert_int_equal(VERDICT(ops), LINEAR_YES);
}

static void linear_stale_read_is_found(void **state)
{
	const struct linear_op ops[] = {
		op(PUT, 5, 0, 1, 2),
		op(PUT, 6, 0, 3, 4),
		op(GET, 0, 5, 5, 6),
	};
	struct linear_result result;

	(void)state;
	assert_int_equal(linear_check(&model, ops, 3, 0, &result), 0);
	assert_int_equal(result.verdict, LINEAR_NO);
	assert_int_equal(result.key, 7);
	assert_int_equal(result.longest, 2);
	assert_int_equal(result.op, 2);
}

/* Two reads during a write: new, then old again. */
static void linear_value_that_flickers_is_found(void **state)
{
	struct linear_op ops[] = {
		op(PUT, 5, 0, 1, 2),
		op(PUT, 6, 0, 3, 20),
		op(GET, 0, 6, 4, 5),
		op(GET, 0, 5, 6, 7),
	};

	(void)state;
	assert_int_equal(VERDICT(ops), LINEAR_NO);
	ops[3].called_at = 4; /* side by side: either may be first */
	assert_int_equal(VERDICT(ops), LINEAR_YES);
}

static void linear_key_that_vanishes_is_found(void **state)
{
	const struct linear_op ops[] = {
		op(PUT, 5, 0, 1, 2),
		op(PUT, 6, 0, 3, 9),
		op(GET, 0, 0, 4, 5),
	};

	(void)state;
	assert_int_equal(VERDICT(ops), LINEAR_NO);
}

static void linear_two_inserts_that_both_win_are_found(void **state)
{
	const struct linear_op ops[] = {
		op(INSERT, 5, 1, 1, 9),
		op(INSERT, 6, 1, 1, 9),
	};

	(void)state;
	assert_int_equal(VERDICT(ops), LINEAR_NO);
}

static void linear_unknown_outcome_may_happen_late_or_never(void **state)
{
	const struct linear_op late[] = {
		op(PUT, 5, 0, 1, 2),
		op(PUT, 6, 0, 3, LINEAR_NEVER),
		op(GET, 0, 5, 4, 5),
		op(GET, 0, 6, 8, 9),
	};
	const struct linear_op never[] = {
		op(PUT, 6, 0, 3, LINEAR_NEVER),
		op(GET, 0, 0, 8, 9),
	};
	const struct linear_op early[] = {
		op(PUT, 6, 0, 5, LINEAR_NEVER),
		op(GET, 0, 6, 1, 2),
	};
	const struct linear_op twice[] = {
		op(PUT, 6, 0, 1, LINEAR_NEVER),
		op(GET, 0, 6, 2, 3),
		op(REMOVE, 0, 1, 4, 5),
		op(GET, 0, 6, 6, 7),
	};

	(void)state;
	assert_int_equal(VERDICT(late), LINEAR_YES);
	assert_int_equal(VERDICT(never), LINEAR_YES);
	assert_int_equal(VERDICT(early), LINEAR_NO);
	assert_int_equal(VERDICT(twice), LINEAR_NO);
}

static void linear_keys_are_apart(void **state)
{
	struct linear_op ops[] = {
		op(PUT, 5, 0, 1, 2),
		op(GET, 0, 0, 3, 4),
	};
	struct linear_result result;

	(void)state;
	ops[1].key = 8;
	assert_int_equal(VERDICT(ops), LINEAR_YES);
	ops[1].results[0] = 5;
	assert_int_equal(linear_check(&model, ops, 2, 0, &result), 0);
	assert_int_equal(result.verdict, LINEAR_NO);
	assert_int_equal(result.key, 8);
}

static void linear_limit_is_told(void **state)
{
	struct linear_op ops[40];
	struct linear_result result;
	size_t i;

	(void)state;
	for (i = 0; i < 39; i++)
		ops[i] = op(PUT, i + 1, 0, 1, 100);
	ops[39] = op(GET, 0, 99, 101, 102);
	assert_int_equal(linear_check(&model, ops, 40, 1000, &result), 0);
	assert_int_equal(result.verdict, LINEAR_UNKNOWN);
}

static void linear_return_before_call_is_refused(void **state)
{
	const struct linear_op ops[] = {op(GET, 0, 0, 2, 1)};
	struct linear_result result;

	(void)state;
	assert_int_equal(linear_check(&model, ops, 1, 0, &result), -EINVAL);
}

/* Long, with few at a time: must not take more than a few steps each. */
static void linear_long_history_is_quick(void **state)
{
	static struct linear_op ops[20000];
	struct linear_result result;
	size_t i;

	(void)state;
	for (i = 0; i < 20000; i++)
		ops[i] = i % 4 < 2 ? op(PUT, i, 0, i, i + 4)
				   : op(GET, 0, i - i % 4 + 1, i, i + 4);
	assert_int_equal(linear_check(&model, ops, 20000, 0, &result), 0);
	assert_true(result.verdict != LINEAR_UNKNOWN);
	assert_true(result.steps < 20000 * 40);
}

/* --- against every order --- */

#define SMALL 6

static bool fits(const struct linear_op *ops, uint32_t count, uint32_t done,
		 const uint64_t now[LINEAR_STATE])
{
	uint64_t next[LINEAR_STATE];
	uint32_t i, j;
	bool over = true;

	for (i = 0; i < count; i++)
		if (!(done >> i & 1) && ops[i].returned_at != LINEAR_NEVER)
			over = false;
	if (over)
		return true;
	for (i = 0; i < count; i++) {
		if (done >> i & 1)
			continue;
		/* Nothing that is left may have ended before this began. */
		for (j = 0; j < count; j++)
			if (!(done >> j & 1) &&
			    ops[j].returned_at < ops[i].called_at)
				break;
		if (j == count && step(now, &ops[i], next) &&
		    fits(ops, count, done | 1u << i, next))
			return true;
	}
	return false;
}

static void linear_random_small_agrees_with_every_order(void **state)
{
	struct reef_random random;
	uint32_t verdicts[2] = {0}, round, i;

	(void)state;
	reef_random_init(&random, 1);
	for (round = 0; round < 20000; round++) {
		struct linear_op ops[SMALL];
		bool expected;

		for (i = 0; i < SMALL; i++) {
			uint32_t kind =
				1 + (uint32_t)reef_random_below(&random, 4);
			uint64_t from = reef_random_below(&random, 12);

			ops[i] = op(
				kind, 1 + reef_random_below(&random, 2),
				reef_random_below(&random, kind == GET ? 3 : 2),
				from, from + 1 + reef_random_below(&random, 6));
			if (reef_random_chance(&random, 1, 8))
				ops[i].returned_at = LINEAR_NEVER;
		}
		expected = fits(ops, SMALL, 0, model.start);
		assert_int_equal(judge(ops, SMALL),
				 expected ? LINEAR_YES : LINEAR_NO);
		verdicts[expected]++;
	}
	print_message("%u right, %u wrong\n", verdicts[1], verdicts[0]);
	assert_true(verdicts[0] > 1000 && verdicts[1] > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(linear_nothing_is_right),
		cmocka_unit_test(linear_one_after_another_is_right),
		cmocka_unit_test(linear_stale_read_is_found),
		cmocka_unit_test(linear_value_that_flickers_is_found),
		cmocka_unit_test(linear_key_that_vanishes_is_found),
		cmocka_unit_test(linear_two_inserts_that_both_win_are_found),
		cmocka_unit_test(
			linear_unknown_outcome_may_happen_late_or_never),
		cmocka_unit_test(linear_keys_are_apart),
		cmocka_unit_test(linear_limit_is_told),
		cmocka_unit_test(linear_return_before_call_is_refused),
		cmocka_unit_test(linear_long_history_is_quick),
		cmocka_unit_test(linear_random_small_agrees_with_every_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
