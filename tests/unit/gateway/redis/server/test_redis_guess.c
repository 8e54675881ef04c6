/* test_redis_guess.c - how long those wait who guess the password. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/redis/server/guess.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define HERE 11
#define THERE 12

static int make_guesses(void **state)
{
	return redis_guesses_create((struct redis_guesses **)state);
}

static int drop_guesses(void **state)
{
	redis_guesses_destroy(*state);
	return 0;
}

/* A wrong guess, looked at when it may be. Returns that time. */
static uint64_t guess_wrong(struct redis_guesses *guesses, uint64_t place,
			    uint64_t now_ns)
{
	struct redis_guess guess;

	assert_true(redis_guess_begin(guesses, place, now_ns, &guess));
	redis_guess_end(guesses, &guess, guess.until_ns, true);
	return guess.until_ns;
}

/* How long the next one would wait. */
static uint64_t delay(struct redis_guesses *guesses, uint64_t place,
		      uint64_t now_ns)
{
	struct redis_guess guess;

	assert_true(redis_guess_begin(guesses, place, now_ns, &guess));
	redis_guess_end(guesses, &guess, now_ns, false);
	return guess.until_ns - now_ns;
}

static void redis_guess_wrong_ones_wait_twice_as_long(void **state)
{
	uint64_t now_ns = SECOND, last = 0, next;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		assert_int_equal(delay(*state, HERE, now_ns), 0);
		now_ns = guess_wrong(*state, HERE, now_ns);
	}
	for (i = 0; i < 40; i++) {
		next = delay(*state, HERE, now_ns);
		assert_true(next == 2 * SECOND || !last || next == 2 * last);
		assert_true(next > 0);
		last = next;
		now_ns = guess_wrong(*state, HERE, now_ns);
	}
	assert_int_equal(last, 2 * SECOND);
	assert_int_equal(delay(*state, THERE, now_ns), 0);
}

static void redis_guess_after_a_minute_place_is_new(void **state)
{
	uint64_t now_ns = SECOND;
	uint32_t i;

	for (i = 0; i < 20; i++)
		now_ns = guess_wrong(*state, HERE, now_ns);
	assert_int_equal(delay(*state, HERE, now_ns + 59 * SECOND), 2 * SECOND);
	now_ns += 60 * SECOND;
	assert_int_equal(delay(*state, HERE, now_ns), 0);
	guess_wrong(*state, HERE, now_ns);
	assert_int_equal(delay(*state, HERE, now_ns), 0);
}

static void redis_guess_crowd_of_one_place_is_refused(void **state)
{
	struct redis_guess guesses[64], other;
	uint64_t now_ns = SECOND;
	uint32_t i, let = 0;

	for (i = 0; i < 20; i++)
		now_ns = guess_wrong(*state, HERE, now_ns);
	for (i = 0; i < 64; i++)
		let += redis_guess_begin(*state, HERE, now_ns, &guesses[let]);
	assert_int_equal(let, 16);
	/* Others are not in their way, and it is over when they are done. */
	assert_true(redis_guess_begin(*state, THERE, now_ns, &other));
	assert_int_equal(other.until_ns, now_ns);
	redis_guess_end(*state, &other, now_ns, false);
	/* They are known for as long as they wait. */
	for (i = 0; i < let; i++)
		redis_guess_end(*state, &guesses[i], now_ns + 100 * SECOND,
				false);
	assert_true(redis_guess_begin(*state, HERE, now_ns, &other));
	redis_guess_end(*state, &other, now_ns, false);
}

static void redis_guess_many_places_slow_everybody_a_little(void **state)
{
	struct redis_guess waiting;
	uint64_t now_ns = SECOND;
	uint32_t i;

	for (i = 0; i < 8; i++)
		guess_wrong(*state, HERE, now_ns);
	assert_true(redis_guess_begin(*state, HERE, now_ns, &waiting));
	for (i = 0; i < 5000; i++)
		guess_wrong(*state, 1000 + i, now_ns);
	assert_int_equal(delay(*state, THERE, now_ns), 250 * MS);
	/* Others were forgotten, but not where somebody waits. */
	redis_guess_end(*state, &waiting, now_ns, true);
	assert_true(delay(*state, HERE, now_ns) > 0);
	assert_int_equal(delay(*state, THERE, now_ns + 20 * SECOND), 0);
}

#define GUESS_TEST(name)                                                       \
	cmocka_unit_test_setup_teardown(name, make_guesses, drop_guesses)

int main(void)
{
	const struct CMUnitTest tests[] = {
		GUESS_TEST(redis_guess_wrong_ones_wait_twice_as_long),
		GUESS_TEST(redis_guess_after_a_minute_place_is_new),
		GUESS_TEST(redis_guess_crowd_of_one_place_is_refused),
		GUESS_TEST(redis_guess_many_places_slow_everybody_a_little),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
