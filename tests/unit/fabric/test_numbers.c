/* Which numbers of a session's links are used up. */
#include "fabric/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#define SESSION(slot, generation) ((uint32_t)(slot) << 16 | (generation))

static void numbers_used_up_to_the_highest(void **state)
{
	struct reef_numbers numbers = {0};

	(void)state;
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 1), 0);
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 5), 0);
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 3), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 5),
			 -ESTALE);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 1),
			 -ESTALE);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 6), 0);
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), UINT32_MAX),
			 0);
	assert_int_equal(
		reef_numbers_check(&numbers, SESSION(7, 1), UINT32_MAX),
		-ESTALE);
	reef_numbers_fini(&numbers);
}

static void numbers_0_is_none(void **state)
{
	struct reef_numbers numbers = {0};

	(void)state;
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 9), 0);
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 0), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 0), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 9),
			 -ESTALE);
	reef_numbers_fini(&numbers);
}

static void numbers_slots_are_apart(void **state)
{
	static const uint32_t slots[] = {0, 1, 255, 256, 257, 65535};
	struct reef_numbers numbers = {0};
	uint32_t i;

	(void)state;
	for (i = 0; i < 6; i++) {
		assert_int_equal(
			reef_numbers_check(&numbers, SESSION(slots[i], 1), 1),
			0);
		assert_int_equal(
			reef_numbers_use(&numbers, SESSION(slots[i], 1), i + 1),
			0);
	}
	for (i = 0; i < 6; i++) {
		assert_int_equal(reef_numbers_check(
					 &numbers, SESSION(slots[i], 1), i + 1),
				 -ESTALE);
		assert_int_equal(reef_numbers_check(
					 &numbers, SESSION(slots[i], 1), i + 2),
				 0);
	}
	reef_numbers_fini(&numbers);
}

static void numbers_begin_anew_with_a_generation(void **state)
{
	struct reef_numbers numbers = {0};

	(void)state;
	/* Generations are serial numbers: 1 follows 0xffff. */
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 0xffff), 9), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 1), 0);
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 2), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 0xffff), 10),
			 -ESTALE);
	/* An older one takes nothing away from the newer. */
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 0xffff), 99), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 2),
			 -ESTALE);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 1), 3), 0);
	reef_numbers_fini(&numbers);
}

/* Half the range of generations later the next one is not taken for an old
 * one, if a fence was heard of meanwhile. */
static void numbers_go_on_when_generations_wrap(void **state)
{
	struct reef_numbers numbers = {0};
	uint32_t i, generation = 1;

	(void)state;
	assert_int_equal(reef_numbers_use(&numbers, SESSION(7, 1), 9), 0);
	assert_int_equal(reef_numbers_check(&numbers, SESSION(7, 0x8002), 1),
			 -ESTALE);
	for (i = 0; i < 20; i++) {
		generation = (generation + 8192) % 0xffff + 1;
		assert_int_equal(
			reef_numbers_check(&numbers, SESSION(7, generation), 1),
			0);
		reef_numbers_fence(&numbers, SESSION(7, generation));
		assert_int_equal(reef_numbers_check(&numbers,
						    SESSION(7, generation),
						    UINT32_MAX),
				 -ESTALE);
	}
	/* Of a slot that nobody came from nothing is remembered. */
	reef_numbers_fence(&numbers, SESSION(8, 5));
	assert_int_equal(reef_numbers_check(&numbers, SESSION(8, 5), 1), 0);
	/* Who is fenced itself is told that, not that it is late. */
	assert_int_equal(reef_numbers_use(&numbers, SESSION(8, 5), 3), 0);
	reef_numbers_fence(&numbers, SESSION(8, 5));
	assert_int_equal(reef_numbers_check(&numbers, SESSION(8, 5), 4), 0);
	reef_numbers_fini(&numbers);
}

static void numbers_end_covers_what_is_not_newer(void **state)
{
	uint32_t session = SESSION(7, 2);

	(void)state;
	assert_true(reef_numbers_end_covers(session, 5, session, 1));
	assert_true(reef_numbers_end_covers(session, 5, session, 5));
	assert_false(reef_numbers_end_covers(session, 5, session, 6));
	assert_false(reef_numbers_end_covers(session, 5, session, 0));
	assert_false(reef_numbers_end_covers(session, 5, SESSION(7, 1), 1));
	assert_false(reef_numbers_end_covers(session, 5, SESSION(8, 2), 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_used_up_to_the_highest),
		cmocka_unit_test(numbers_0_is_none),
		cmocka_unit_test(numbers_slots_are_apart),
		cmocka_unit_test(numbers_begin_anew_with_a_generation),
		cmocka_unit_test(numbers_go_on_when_generations_wrap),
		cmocka_unit_test(numbers_end_covers_what_is_not_newer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
