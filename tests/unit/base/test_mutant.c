/* test_mutant.c - the list of mutants, and the switch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mutant.h"

#include <string.h>

static void mutant_names_are_distinct_and_found(void **state)
{
	enum reef_mutant i, j;

	for (i = REEF_MUTANT_NONE; i < REEF_MUTANT_COUNT; i++) {
		const char *text = reef_mutant_text(i);

		assert_int_equal(reef_mutant_named(reef_mutant_name(i)), i);
		assert_int_equal(text[strlen(text) - 1], '.');
		for (j = REEF_MUTANT_NONE; j < i; j++)
			assert_string_not_equal(reef_mutant_name(i),
						reef_mutant_name(j));
	}
	assert_int_equal(reef_mutant_named("SIM_F0"), REEF_MUTANT_NONE);
	assert_int_equal(reef_mutant_named(""), REEF_MUTANT_NONE);
}

static void mutant_one_is_on_at_a_time(void **state)
{
	assert_int_equal(reef_mutant_now(), REEF_MUTANT_NONE);
	assert_false(REEF_MUTATED(MAP_RANDOM));
	reef_mutate(REEF_MUTANT_MAP_RANDOM);
	assert_true(REEF_MUTATED(MAP_RANDOM));
	reef_mutate(REEF_MUTANT_HEAP_FREE_WRITE);
	assert_true(REEF_MUTATED(HEAP_FREE_WRITE));
	assert_false(REEF_MUTATED(MAP_RANDOM));
	reef_mutate(REEF_MUTANT_NONE);
	assert_false(REEF_MUTATED(HEAP_FREE_WRITE));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mutant_names_are_distinct_and_found),
		cmocka_unit_test(mutant_one_is_on_at_a_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
