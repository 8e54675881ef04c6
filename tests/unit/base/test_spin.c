/* test_spin.c - how long to look before sleeping. */
#include "base/spin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void spin_that_fails_halves_down_to_nothing(void **state)
{
	struct reef_spin spin;
	uint64_t last_ns;

	reef_spin_init(&spin, 20000);
	assert_int_equal(reef_spin_begin(&spin), 20000);
	do {
		last_ns = spin.part_ns;
		reef_spin_failed(&spin);
		assert_true(spin.part_ns <= last_ns / 2);
	} while (spin.part_ns);
	assert_true(last_ns >= REEF_SPIN_LEAST_NS);
}

static void spin_is_tried_again_now_and_then(void **state)
{
	struct reef_spin spin;
	uint32_t i, tries = 0;

	reef_spin_init(&spin, 20000);
	spin.part_ns = 0;
	for (i = 0; i < 10 * REEF_SPIN_TRY; i++) {
		if (!reef_spin_begin(&spin))
			continue;
		tries++;
		reef_spin_failed(&spin);
	}
	assert_int_equal(tries, 10);
}

static void spin_that_pays_comes_back_to_all(void **state)
{
	struct reef_spin spin;
	uint32_t i;

	reef_spin_init(&spin, 20000);
	spin.part_ns = 0;
	for (i = 0; i < 3; i++)
		reef_spin_paid(&spin);
	assert_int_equal(spin.part_ns, 20000);
	reef_spin_paid(&spin);
	assert_int_equal(spin.part_ns, 20000);
}

static void spin_of_nothing_stays_nothing(void **state)
{
	struct reef_spin spin;
	uint32_t i;

	reef_spin_init(&spin, 0);
	for (i = 0; i < 2 * REEF_SPIN_TRY; i++) {
		assert_int_equal(reef_spin_begin(&spin), 0);
		reef_spin_paid(&spin);
	}
}

static uint32_t waits_until_try(struct reef_spin *spin)
{
	uint32_t waits = 1;

	while (!reef_spin_begin(spin))
		waits++;
	return waits;
}

static void spin_that_was_robbed_is_tried_less_and_less(void **state)
{
	struct reef_spin spin;
	uint32_t before = 0, waits = 0, i;

	reef_spin_init(&spin, 20000);
	for (i = 0; i < 8; i++) {
		reef_spin_robbed(&spin);
		waits = waits_until_try(&spin);
		assert_true(waits > before);
		before = waits;
	}
	/* But always again. */
	for (i = 0; i < 8; i++)
		reef_spin_robbed(&spin);
	assert_int_equal(waits_until_try(&spin), waits);
	/* Once it has paid it is as before. */
	reef_spin_paid(&spin);
	assert_true(reef_spin_begin(&spin) > 0);
	reef_spin_robbed(&spin);
	assert_true(waits_until_try(&spin) < waits / 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spin_that_fails_halves_down_to_nothing),
		cmocka_unit_test(spin_is_tried_again_now_and_then),
		cmocka_unit_test(spin_that_pays_comes_back_to_all),
		cmocka_unit_test(spin_that_was_robbed_is_tried_less_and_less),
		cmocka_unit_test(spin_of_nothing_stays_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
