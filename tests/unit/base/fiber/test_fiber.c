/* test_fiber.c - life, parking, stacks, and what a switch keeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fenv.h>
#include <reef/fiber.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fiber/context.h"
#include "base/fiber/sched.h"
#include "base/fiber/stack.h"

static struct reef_sched *sched_make(struct reef_sched_options options)
{
	struct reef_sched_setup setup = {.options = options,
					 .virtual_time = true};
	struct reef_sched *sched;

	assert_int_equal(reef_sched_create_setup(&setup, &sched), 0);
	return sched;
}

static struct reef_sched *sched_default(void)
{
	return sched_make((struct reef_sched_options){0});
}

static void spawn(struct reef_sched *sched, int (*fn)(void *arg), void *arg,
		  struct reef_fiber **out)
{
	assert_int_equal(reef_fiber_spawn(sched, fn, arg, out), 0);
}

static void run(struct reef_sched *sched)
{
	assert_int_equal(reef_sched_run(sched), 0);
}

/* --- life --- */

static int return_arg(void *arg)
{
	return *(int *)arg;
}

static void fiber_outside_has_no_self(void **state)
{
	assert_null(reef_fiber_self());
	assert_null(reef_fiber_sched());
	assert_null(reef_fiber_group());
	reef_fiber_yield();
}

struct identity {
	struct reef_fiber *self;
	struct reef_sched *sched;
};

static int note_identity(void *arg)
{
	struct identity *identity = arg;

	identity->self = reef_fiber_self();
	identity->sched = reef_fiber_sched();
	return 0;
}

static void fiber_inside_knows_itself(void **state)
{
	struct reef_sched *sched = sched_default();
	struct identity identity = {0};
	struct reef_fiber *fiber;

	spawn(sched, note_identity, &identity, &fiber);
	run(sched);
	assert_ptr_equal(identity.self, fiber);
	assert_ptr_equal(identity.sched, sched);
	assert_null(reef_fiber_self());
	assert_int_equal(reef_fiber_join(fiber, NULL), 0);
	reef_sched_destroy(sched);
}

static int word_keeper(void *arg)
{
	uint32_t key = *(uint32_t *)arg, *word;

	if (reef_fiber_word(key, false))
		return 1;
	word = reef_fiber_word(key, true);
	if (!word || *word)
		return 2;
	*word = key;
	reef_fiber_yield();
	if (reef_fiber_word(key, true) != word || *word != key)
		return 3;
	for (uint32_t i = 1; i < REEF_FIBER_WORDS; i++)
		*reef_fiber_word(key + i, true) = 1;
	if (reef_fiber_word(key + REEF_FIBER_WORDS, true))
		return 4;
	*word = 0;
	if (reef_fiber_word(key, false))
		return 5;
	return reef_fiber_word(key + REEF_FIBER_WORDS, true) ? 0 : 6;
}

static void fiber_words_are_its_own(void **state)
{
	struct reef_sched *sched = sched_default();
	uint32_t keys[] = {7, 7, 9};
	struct reef_fiber *fibers[3];
	int result;

	for (int i = 0; i < 3; i++)
		spawn(sched, word_keeper, &keys[i], &fibers[i]);
	run(sched);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(reef_fiber_join(fibers[i], &result), 0);
		assert_int_equal(result, 0);
	}
	reef_sched_destroy(sched);
}

static void fiber_join_outside_gives_result(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fiber;
	int value = 42, result = 0;

	spawn(sched, return_arg, &value, &fiber);
	assert_int_equal(reef_sched_fibers(sched), 1);
	assert_int_equal(reef_fiber_join(fiber, &result), -EBUSY);
	assert_int_equal(result, 0);
	run(sched);
	assert_int_equal(reef_sched_fibers(sched), 0);
	assert_int_equal(reef_fiber_join(fiber, &result), 0);
	assert_int_equal(result, 42);
	reef_sched_destroy(sched);
}

static int add_one(void *arg)
{
	reef_fiber_yield();
	(*(int *)arg)++;
	return 0;
}

static void fiber_detached_runs_and_is_freed(void **state)
{
	struct reef_sched *sched = sched_default();
	int count = 0;

	for (int i = 0; i < 10; i++)
		spawn(sched, add_one, &count, NULL);
	run(sched);
	assert_int_equal(count, 10);
	reef_sched_destroy(sched);
}

static int spawn_and_join(void *arg)
{
	struct reef_fiber *early, *late;
	int value = 5, count = 0, result;

	assert_int_equal(reef_fiber_spawn(reef_fiber_sched(), return_arg,
					  &value, &early),
			 0);
	assert_int_equal(
		reef_fiber_spawn(reef_fiber_sched(), add_one, &count, &late),
		0);
	reef_fiber_yield();
	/* One has ended already, the other has not. */
	assert_int_equal(reef_fiber_join(early, &result), 0);
	assert_int_equal(result, 5);
	assert_int_equal(count, 0);
	assert_int_equal(reef_fiber_join(late, &result), 0);
	assert_int_equal(result, 0);
	*(int *)arg = count;
	return 0;
}

static void fiber_join_inside_waits(void **state)
{
	struct reef_sched *sched = sched_default();
	int count = 0;

	spawn(sched, spawn_and_join, &count, NULL);
	run(sched);
	assert_int_equal(count, 1);
	reef_sched_destroy(sched);
}

static int spawn_one_more(void *arg)
{
	*(int *)arg = reef_fiber_spawn(reef_fiber_sched(), add_one, arg, NULL);
	return 0;
}

static void fiber_spawn_at_limit_enospc(void **state)
{
	struct reef_sched *sched =
		sched_make((struct reef_sched_options){.fibers_max = 3});
	struct reef_fiber *fiber = (void *)1;
	int count = 0, error = 0;

	spawn(sched, spawn_one_more, &error, NULL);
	spawn(sched, add_one, &count, NULL);
	spawn(sched, add_one, &count, NULL);
	assert_int_equal(reef_fiber_spawn(sched, add_one, &count, &fiber),
			 -ENOSPC);
	assert_ptr_equal(fiber, (void *)1);
	run(sched);
	assert_int_equal(error, -ENOSPC);
	assert_int_equal(count, 2);
	/* The ended ones made room. */
	spawn(sched, add_one, &count, NULL);
	run(sched);
	assert_int_equal(count, 3);
	reef_sched_destroy(sched);
}

/* The sanitizers need address space of their own. */
#if !defined(REEF_ASAN) && !defined(REEF_TSAN)
static void fiber_spawn_without_memory_enomem(void **state)
{
	struct reef_sched *sched =
		sched_make((struct reef_sched_options){.stack_size = 1 << 30});
	struct reef_fiber *fiber = (void *)1;
	struct rlimit before, tight;
	int count = 0;

	assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
	tight = (struct rlimit){.rlim_cur = 1 << 30,
				.rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
	assert_int_equal(reef_fiber_spawn(sched, add_one, &count, &fiber),
			 -ENOMEM);
	assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
	assert_ptr_equal(fiber, (void *)1);
	assert_int_equal(reef_sched_fibers(sched), 0);
	spawn(sched, add_one, &count, NULL);
	run(sched);
	assert_int_equal(count, 1);
	reef_sched_destroy(sched);
}
#endif

/* --- parking --- */

static int park_and_note(void *arg)
{
	*(int *)arg = reef_fiber_park(REEF_FOREVER);
	return 0;
}

static void fiber_park_returns_when_unparked(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fiber;
	int wake = 1;

	spawn(sched, park_and_note, &wake, &fiber);
	assert_int_equal(reef_sched_run(sched), -EDEADLK);
	assert_int_equal(wake, 1);
	reef_fiber_unpark(fiber);
	run(sched);
	assert_int_equal(wake, 0);
	reef_fiber_join(fiber, NULL);
	reef_sched_destroy(sched);
}

static int park_thrice(void *arg)
{
	int *wakes = arg;

	for (int i = 0; i < 3; i++)
		wakes[i] = reef_fiber_park(10);
	return 0;
}

static void fiber_unpark_before_park_is_kept_once(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fiber;
	int wakes[3] = {1, 1, 1};

	spawn(sched, park_thrice, wakes, &fiber);
	reef_fiber_unpark(fiber);
	reef_fiber_unpark(fiber);
	reef_fiber_unpark(fiber);
	run(sched);
	assert_int_equal(wakes[0], 0);
	assert_int_equal(wakes[1], -ETIMEDOUT);
	assert_int_equal(wakes[2], -ETIMEDOUT);
	/* After its end it is harmless. */
	reef_fiber_unpark(fiber);
	reef_fiber_join(fiber, NULL);
	reef_sched_destroy(sched);
}

static int unpark_arg(void *arg)
{
	reef_fiber_unpark(arg);
	return 0;
}

static int sleep_then_park(void *arg)
{
	uint64_t before = reef_now_ns();

	assert_int_equal(reef_sleep(1000), 0);
	assert_true(reef_now_ns() - before == 1000);
	*(int *)arg = reef_fiber_park(5000);
	assert_true(reef_now_ns() - before == 1000);
	return 0;
}

static void fiber_unpark_during_sleep_is_kept_for_the_park(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fiber;
	int wake = 1;

	spawn(sched, sleep_then_park, &wake, &fiber);
	spawn(sched, unpark_arg, fiber, NULL);
	run(sched);
	assert_int_equal(wake, 0);
	reef_fiber_join(fiber, NULL);
	reef_sched_destroy(sched);
}

static int join_then_park(void *arg)
{
	struct reef_fiber **fibers = arg;

	assert_int_equal(reef_fiber_join(fibers[0], NULL), 0);
	return reef_fiber_park(1);
}

static int sleep_long(void *arg)
{
	return reef_sleep(1000);
}

static void fiber_unpark_during_join_is_kept_for_the_park(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fibers[2];
	int result = 1;

	spawn(sched, sleep_long, NULL, &fibers[0]);
	spawn(sched, join_then_park, fibers, &fibers[1]);
	spawn(sched, unpark_arg, fibers[1], NULL);
	run(sched);
	assert_int_equal(reef_fiber_join(fibers[1], &result), 0);
	assert_int_equal(result, 0);
	reef_sched_destroy(sched);
}

static int park_for(void *arg)
{
	return reef_fiber_park(*(uint64_t *)arg);
}

static void fiber_park_times_out(void **state)
{
	struct reef_sched *sched = sched_default();
	uint64_t timeouts[] = {0, 1, 1000000};
	struct reef_fiber *fibers[3];
	int result;

	for (int i = 0; i < 3; i++)
		spawn(sched, park_for, &timeouts[i], &fibers[i]);
	run(sched);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(reef_fiber_join(fibers[i], &result), 0);
		assert_int_equal(result, -ETIMEDOUT);
	}
	assert_int_equal(reef_sched_now_ns(sched), 1000000);
	reef_sched_destroy(sched);
}

/* The timer of a park that was unparked must not end the next one. */
static int park_short_then_long(void *arg)
{
	assert_int_equal(reef_fiber_park(100), 0);
	assert_int_equal(reef_fiber_park(1000), -ETIMEDOUT);
	*(uint64_t *)arg = reef_now_ns();
	return 0;
}

static void fiber_unpark_cancels_the_timeout(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fiber;
	uint64_t ended = 0;

	spawn(sched, park_short_then_long, &ended, &fiber);
	spawn(sched, unpark_arg, fiber, NULL);
	run(sched);
	assert_int_equal(ended, 1000);
	reef_fiber_join(fiber, NULL);
	reef_sched_destroy(sched);
}

struct trace {
	char text[64];
	int size;
};
struct letter {
	struct trace *trace;
	char letter;
};

static int write_letter(void *arg)
{
	struct letter *letter = arg;

	for (int i = 0; i < 3; i++) {
		letter->trace->text[letter->trace->size++] = letter->letter;
		reef_fiber_yield();
	}
	return 0;
}

static void fiber_yield_lets_all_others_run_first(void **state)
{
	struct reef_sched *sched = sched_default();
	struct trace trace = {0};
	struct letter letters[] = {{&trace, 'a'}, {&trace, 'b'}, {&trace, 'c'}};

	for (int i = 0; i < 3; i++)
		spawn(sched, write_letter, &letters[i], NULL);
	run(sched);
	assert_string_equal(trace.text, "abcabcabc");
	reef_sched_destroy(sched);
}

/* --- stacks --- */

#define MANY 20000

static int wait_for_all(void *arg)
{
	volatile char page[3000];
	int *started = arg;

	memset((char *)page, 7, sizeof(page));
	(*started)++;
	assert_int_equal(reef_fiber_park(REEF_FOREVER), 0);
	return page[2999];
}

static int lines_of(const char *path)
{
	FILE *file = fopen(path, "r");
	int lines = 0, c;

	assert_non_null(file);
	while ((c = fgetc(file)) != EOF)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static void fiber_twenty_thousand_live_at_once(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber **fibers = calloc(MANY, sizeof(struct reef_fiber *));
	int started = 0, result;

	assert_non_null(fibers);
	for (int i = 0; i < MANY; i++)
		spawn(sched, wait_for_all, &started, &fibers[i]);
	assert_int_equal(reef_sched_run(sched), -EDEADLK);
	assert_int_equal(started, MANY);
	assert_int_equal(reef_sched_fibers(sched), MANY);
	/* Two mappings each is what a kernel without guard markers needs. */
	assert_true(lines_of("/proc/self/maps") < 2 * MANY + 10000);
	for (int i = 0; i < MANY; i++)
		reef_fiber_unpark(fibers[i]);
	run(sched);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(reef_fiber_join(fibers[i], &result), 0);
		assert_int_equal(result, 7);
	}
	free(fibers);
	reef_sched_destroy(sched);
}

static long resident_pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	char text[128], *second;

	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	second = strchr(text, ' ');
	assert_non_null(second);
	return strtol(second, NULL, 10);
}

static int touch_much(void *arg)
{
	volatile char bytes[48 << 10];

	memset((char *)bytes, 1, sizeof(bytes));
	reef_fiber_yield();
	return bytes[100];
}

static void fiber_idle_stacks_give_memory_back(void **state)
{
	struct reef_sched *sched = sched_default();
	long before, peak, after;

	before = resident_pages();
	for (int i = 0; i < 2000; i++)
		spawn(sched, touch_much, NULL, NULL);
	run(sched);
	after = resident_pages();
	peak = 2000 * (48 << 10) / sysconf(_SC_PAGESIZE);
	/* A quarter of what they used, where at most 8 MiB are kept. The
	 * sanitizers' own memory would drown the difference. */
#if !defined(REEF_ASAN) && !defined(REEF_TSAN)
	assert_true(after - before < peak / 4);
#else
	(void)before, (void)peak, (void)after;
#endif
	reef_sched_destroy(sched);
}

static int note_stack(void *arg)
{
	volatile char here = 0;

	*(uintptr_t *)arg = (uintptr_t)&here & ~(uintptr_t)0xfff;
	return 0;
}

static void fiber_stack_is_reused(void **state)
{
	struct reef_sched *sched = sched_default();
	uintptr_t first = 0, second = 0;

	/* A fake stack of the address sanitizer would hide the real one. */
#ifndef REEF_ASAN
	spawn(sched, note_stack, &first, NULL);
	run(sched);
	spawn(sched, note_stack, &second, NULL);
	run(sched);
	assert_int_equal(first, second);
#else
	(void)note_stack, (void)first, (void)second;
#endif
	reef_sched_destroy(sched);
}

static int use_megabyte(void *arg)
{
	volatile char bytes[1000 << 10];

	memset((char *)bytes, 9, sizeof(bytes));
	reef_fiber_yield();
	return bytes[5];
}

static void fiber_stack_size_is_as_asked_for(void **state)
{
	struct reef_sched *sched =
		sched_make((struct reef_sched_options){.stack_size = 1 << 20});
	struct reef_fiber *fiber;
	int result;

	spawn(sched, use_megabyte, NULL, &fiber);
	run(sched);
	assert_int_equal(reef_fiber_join(fiber, &result), 0);
	assert_int_equal(result, 9);
	reef_sched_destroy(sched);
}

static size_t default_stack_size(void)
{
#if defined(REEF_ASAN) || defined(REEF_TSAN)
	return 4 * (64 << 10);
#else
	return 64 << 10;
#endif
}

/* As much as lies between two neighbours, so without a guard the last write
 * would hit the stack below, and the child ends well. */
static __attribute__((no_sanitize("address"))) int overflow(void *arg)
{
	size_t reach = default_stack_size() + STACK_GUARD_SIZE +
		       (size_t)sysconf(_SC_PAGESIZE);
	volatile char *here = __builtin_frame_address(0);

	for (size_t below = 4096; below < reach; below += 512)
		*(here - below) = 1;
	_exit(0);
}

/* What a function does whose frame is larger than a page and not touched from
 * its top: a guard of one page would be leapt over. */
static __attribute__((no_sanitize("address"))) int leap(void *arg)
{
	volatile char *here = __builtin_frame_address(0);

	*(here - default_stack_size() - (32 << 10)) = 1;
	_exit(0);
}

static void check_overflow_is_a_crash(int (*how)(void *arg))
{
	struct reef_sched *sched;
	pid_t child;
	int status;

	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* The default action, not a sanitizer's report. */
		signal(SIGSEGV, SIG_DFL);
		sched = sched_default();
		/* The first stack lies lowest: what is below the second is
		 * mapped, and only the guard is in the way. */
		for (int i = 0; i < 3; i++)
			reef_fiber_spawn(sched, i == 1 ? how : touch_much, NULL,
					 NULL);
		reef_sched_run(sched);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSEGV);
}

static void fiber_stack_overflow_is_a_crash(void **state)
{
	check_overflow_is_a_crash(overflow);
}

static void fiber_large_frame_past_the_end_is_a_crash(void **state)
{
	check_overflow_is_a_crash(leap);
}

/* --- what a switch keeps --- */

static int round_somehow(void *arg)
{
	int mode = *(int *)arg;
	volatile double one = 1, three = 3, third;
	volatile long double long_third;
	double up;

	fesetround(mode);
	third = one / three;
	long_third = (long double)one / three;
	for (int i = 0; i < 10; i++) {
		reef_fiber_yield();
		assert_int_equal(fegetround(), mode);
		up = one / three;
		assert_true(up == third);
		assert_true((long double)one / three == long_third);
	}
	return 0;
}

static void fiber_switch_keeps_rounding_modes(void **state)
{
	struct reef_sched *sched = sched_default();
	int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

	for (int i = 0; i < 4; i++)
		spawn(sched, round_somehow, &modes[i], NULL);
	run(sched);
	assert_int_equal(fegetround(), FE_TONEAREST);
	reef_sched_destroy(sched);
}

static void fiber_spawn_inherits_the_rounding_mode(void **state)
{
	struct reef_sched *sched = sched_default();
	int mode = FE_UPWARD;

	fesetround(FE_UPWARD);
	spawn(sched, round_somehow, &mode, NULL);
	fesetround(FE_TONEAREST);
	run(sched);
	assert_int_equal(fegetround(), FE_TONEAREST);
	reef_sched_destroy(sched);
}

static int mix(void *arg)
{
	/* More live values than there are registers for. */
	uint64_t a = *(uint64_t *)arg, b = a * 3, c = a * 5, d = a * 7,
		 e = a * 9, f = a * 11, g = a * 13, h = a * 15;

	for (int i = 0; i < 100; i++) {
		reef_fiber_yield();
		a += b ^ c, b += c ^ d, c += d ^ e, d += e ^ f;
		e += f ^ g, f += g ^ h, g += h ^ a, h += a ^ b;
	}
	return (int)((a ^ b ^ c ^ d ^ e ^ f ^ g ^ h) & 0x7fffffff);
}

static void fiber_switch_keeps_registers(void **state)
{
	struct reef_sched *sched = sched_default();
	struct reef_fiber *fibers[8], *alone;
	uint64_t seeds[8];
	int results[8], result;

	for (int i = 0; i < 8; i++) {
		seeds[i] = (uint64_t)i + 1;
		spawn(sched, mix, &seeds[i], &fibers[i]);
	}
	run(sched);
	for (int i = 0; i < 8; i++)
		assert_int_equal(reef_fiber_join(fibers[i], &results[i]), 0);
	/* Alone, nothing switches in between. */
	for (int i = 0; i < 8; i++) {
		spawn(sched, mix, &seeds[i], &alone);
		run(sched);
		assert_int_equal(reef_fiber_join(alone, &result), 0);
		assert_int_equal(result, results[i]);
	}
	reef_sched_destroy(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fiber_outside_has_no_self),
		cmocka_unit_test(fiber_inside_knows_itself),
		cmocka_unit_test(fiber_words_are_its_own),
		cmocka_unit_test(fiber_join_outside_gives_result),
		cmocka_unit_test(fiber_detached_runs_and_is_freed),
		cmocka_unit_test(fiber_join_inside_waits),
		cmocka_unit_test(fiber_spawn_at_limit_enospc),
#if !defined(REEF_ASAN) && !defined(REEF_TSAN)
		cmocka_unit_test(fiber_spawn_without_memory_enomem),
#endif
		cmocka_unit_test(fiber_park_returns_when_unparked),
		cmocka_unit_test(fiber_unpark_before_park_is_kept_once),
		cmocka_unit_test(
			fiber_unpark_during_sleep_is_kept_for_the_park),
		cmocka_unit_test(fiber_unpark_during_join_is_kept_for_the_park),
		cmocka_unit_test(fiber_park_times_out),
		cmocka_unit_test(fiber_unpark_cancels_the_timeout),
		cmocka_unit_test(fiber_yield_lets_all_others_run_first),
		cmocka_unit_test(fiber_twenty_thousand_live_at_once),
		cmocka_unit_test(fiber_idle_stacks_give_memory_back),
		cmocka_unit_test(fiber_stack_is_reused),
		cmocka_unit_test(fiber_stack_size_is_as_asked_for),
		cmocka_unit_test(fiber_stack_overflow_is_a_crash),
		cmocka_unit_test(fiber_large_frame_past_the_end_is_a_crash),
		cmocka_unit_test(fiber_switch_keeps_rounding_modes),
		cmocka_unit_test(fiber_spawn_inherits_the_rounding_mode),
		cmocka_unit_test(fiber_switch_keeps_registers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
