/* test_lock_threads.c - locks on shared memory: the interface, and threads that
 * compete. */
#include "fixture/try.h"
#include "fixture/units.h"
#include "sync/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define POOL "embedded:32M"
#define THREADS 4u
#define ROUNDS 400u

static const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};

/* --- one thread, two participants --- */

struct pair {
	struct reef *reef;
	struct reef_space *space;
	struct reef_lock *a, *b;
};

static void pair_open(struct pair *pair, enum reef_lock_kind kind)
{
	struct reef_lock_options options = {.kind = kind};

	assert_int_equal(reef_open(POOL, NULL, &pair->reef), 0);
	assert_int_equal(
		reef_space_open(pair->reef, "s", &create, &pair->space), 0);
	assert_int_equal(
		reef_lock_open(pair->space, "lock", &options, &pair->a), 0);
	assert_int_equal(
		reef_lock_open(pair->space, "lock", &options, &pair->b), 0);
}

static void pair_close(struct pair *pair)
{
	reef_lock_close(pair->a);
	reef_lock_close(pair->b);
	reef_close(pair->reef);
}

static void lock_wrong_use_changes_nothing(void **state)
{
	enum reef_lock_kind kind;

	for (kind = REEF_LOCK_SHIFT; kind < REEF_LOCK_KINDS; kind++) {
		struct reef_lock_info info;
		struct pair p;

		pair_open(&p, kind);
		assert_int_equal(reef_lock_give(p.a), -EPERM);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 0);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 -EDEADLK);
		assert_int_equal(reef_lock_give(p.b), -EPERM);
		assert_int_equal(reef_lock_take(p.b, REEF_LOCK_EXCLUSIVE, 0),
				 -EBUSY);
		assert_int_equal(reef_lock_take(p.b, REEF_LOCK_EXCLUSIVE,
						2 * MILLISECOND),
				 -ETIMEDOUT);
		assert_int_equal(reef_lock_take(p.b, (enum reef_lock_mode)7, 0),
				 -EINVAL);
		assert_int_equal(reef_lock_look(p.b, &info), 0);
		assert_int_equal(info.session, reef_session(p.reef));
		assert_int_equal(info.kind, kind);
		assert_int_equal(info.waiters, 0);
		assert_false(info.inherited);
		assert_int_equal(reef_lock_give(p.a), 0);
		assert_int_equal(reef_lock_give(p.a), -EPERM);
		assert_int_equal(reef_lock_take(p.b, REEF_LOCK_EXCLUSIVE, 0),
				 0);
		pair_close(&p); /* gives it */
	}
}

static void lock_readers_are_together_writers_are_not(void **state)
{
	static const enum reef_lock_kind kinds[] = {REEF_LOCK_SHIFT,
						    REEF_LOCK_RW};
	struct reef_lock_info info;
	struct pair p;
	int i, round;

	for (i = 0; i < 2; i++) {
		pair_open(&p, kinds[i]);
		for (round = 0; round < 3; round++) {
			assert_int_equal(
				reef_lock_take(p.a, REEF_LOCK_SHARED, 0), 0);
			assert_int_equal(
				reef_lock_take(p.b, REEF_LOCK_SHARED, 0), 0);
			assert_int_equal(reef_lock_look(p.a, &info), 0);
			assert_int_equal(info.readers, 2);
			assert_int_equal(reef_lock_give(p.a), 0);
			assert_int_equal(
				reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				-EBUSY);
			assert_int_equal(reef_lock_take(p.a,
							REEF_LOCK_EXCLUSIVE,
							MILLISECOND),
					 -ETIMEDOUT);
			assert_int_equal(reef_lock_give(p.b), 0);
			assert_int_equal(
				reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0), 0);
			assert_int_equal(
				reef_lock_take(p.b, REEF_LOCK_SHARED, 0),
				-EBUSY);
			assert_int_equal(reef_lock_take(p.b, REEF_LOCK_SHARED,
							MILLISECOND),
					 -ETIMEDOUT);
			assert_int_equal(reef_lock_give(p.a), 0);
		}
		pair_close(&p);
	}
	pair_open(&p, REEF_LOCK_MCS);
	assert_int_equal(reef_lock_take(p.a, REEF_LOCK_SHARED, 0), -EOPNOTSUPP);
	pair_close(&p);
}

static void lock_spin_gives_up_after_its_attempts(void **state)
{
	struct reef_lock_options options = {.kind = REEF_LOCK_SPIN,
					    .attempts_max = 3};
	struct reef_lock *lock;
	struct pair p;

	pair_open(&p, REEF_LOCK_SPIN);
	assert_int_equal(reef_lock_open(p.space, "lock", &options, &lock), 0);
	assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0), 0);
	assert_int_equal(
		reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER),
		-EBUSY);
	reef_lock_close(lock);
	pair_close(&p);
}

static void lock_limits_are_those_it_was_made_with(void **state)
{
	struct reef_lock_options options = {.waiters_max = 3,
					    .readers_max = 5,
					    .passes = 2,
					    .writers_phase = 6};
	const struct reef_lock_options bad[] = {
		{.kind = REEF_LOCK_KINDS}, {.waiters_max = 4097},
		{.readers_max = 4097},	   {.passes = 15},
		{.writers_phase = 16},	   {.flags = 6},
	};
	struct reef_lock_options existing = {.flags = REEF_SYNC_EXISTING};
	struct reef_lock_info info;
	struct reef_lock *lock;
	struct pair p;
	uint32_t i;

	pair_open(&p, REEF_LOCK_SHIFT);
	assert_int_equal(reef_lock_open(p.space, "l", &existing, &lock),
			 -ENOENT);
	assert_int_equal(reef_lock_open(p.space, "l", &options, &lock), 0);
	reef_lock_close(lock);
	assert_int_equal(reef_lock_open(p.space, "l", &existing, &lock), 0);
	assert_int_equal(reef_lock_look(lock, &info), 0);
	assert_int_equal(info.waiters_max, 3);
	assert_int_equal(info.readers_max, 5);
	assert_int_equal(info.passes, 2);
	assert_int_equal(info.writers_phase, 6);
	reef_lock_close(lock);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(reef_lock_open(p.space, "x", &bad[i], &lock),
				 -EINVAL);
	pair_close(&p);
}

static void lock_dropped_is_gone_but_for_its_holder(void **state)
{
	enum reef_lock_kind kind;
	struct pair p;

	for (kind = REEF_LOCK_SHIFT; kind < REEF_LOCK_KINDS; kind++) {
		struct reef_lock *next;

		pair_open(&p, kind);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 0);
		assert_int_equal(reef_lock_drop(p.space, "lock"), 0);
		assert_int_equal(reef_lock_drop(p.space, "lock"), -ENOENT);
		assert_int_equal(
			reef_lock_take(p.b, REEF_LOCK_EXCLUSIVE, REEF_FOREVER),
			-ENOENT);
		/* One of the same name is another. */
		assert_int_equal(reef_lock_open(p.space, "lock", NULL, &next),
				 0);
		assert_int_equal(reef_lock_take(next, REEF_LOCK_EXCLUSIVE, 0),
				 0);
		assert_int_equal(reef_lock_give(p.a), 0);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 -ENOENT);
		reef_lock_close(next);
		pair_close(&p);
		/* And one that nobody holds. */
		pair_open(&p, kind);
		assert_int_equal(reef_lock_drop(p.space, "lock"), 0);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 -ENOENT);
		pair_close(&p);
	}
}

/* --- cancelled --- */

struct cancelling {
	struct reef_lock *_Atomic lock;
	enum reef_lock_mode mode;
	_Atomic bool over; /* the main thread is done with it */
	int rc;
};

static int wait_in_thread(struct cancelling *cancelling)
{
	struct reef_space *space;
	struct reef_lock *lock;
	struct reef *reef;

	TRY(reef_open(POOL, NULL, &reef));
	TRY(reef_space_open(reef, "s", &create, &space));
	TRY(reef_lock_open(space, "lock", NULL, &lock));
	atomic_store(&cancelling->lock, lock);
	cancelling->rc = reef_lock_take(lock, cancelling->mode, REEF_FOREVER);
	while (!atomic_load(&cancelling->over))
		TRY(reef_sleep(MILLISECOND / 10));
	reef_lock_close(lock);
	reef_close(reef);
	return 0;
}

static void *cancelling_main(void *arg)
{
	struct cancelling *cancelling = arg;
	int rc = wait_in_thread(cancelling);

	if (rc)
		cancelling->rc = rc;
	return NULL;
}

static void lock_cancel_ends_a_wait(void **state)
{
	struct reef_lock_info info;
	pthread_t thread;
	struct pair p;
	int mode;

	for (mode = 0; mode < 2; mode++) {
		struct cancelling cancelling = {
			.mode = (enum reef_lock_mode)mode};

		pair_open(&p, REEF_LOCK_SHIFT);
		assert_int_equal(reef_lock_take(p.a, REEF_LOCK_EXCLUSIVE, 0),
				 0);
		assert_int_equal(pthread_create(&thread, NULL, cancelling_main,
						&cancelling),
				 0);
		do {
			assert_int_equal(reef_sleep(MILLISECOND / 10), 0);
			assert_int_equal(reef_lock_look(p.a, &info), 0);
		} while (!info.waiters);
		reef_lock_cancel(atomic_load(&cancelling.lock));
		atomic_store(&cancelling.over, true);
		pthread_join(thread, NULL);
		assert_int_equal(cancelling.rc, -ECANCELED);
		assert_int_equal(reef_lock_look(p.a, &info), 0);
		assert_int_equal(info.waiters, 0);
		pair_close(&p);
	}
}

/* --- many threads --- */

struct contest {
	enum reef_lock_kind kind;
	uint32_t readers; /* of a hundred */
	uint64_t timeout_ns;
	uint64_t data; /* address */
	uint32_t waiters_max;
	_Atomic uint64_t taken;
};

struct rival {
	struct contest *contest;
	uint32_t number;
	int rc;
};

static int compete_once(struct reef *reef, struct reef_lock *lock,
			struct contest *contest, bool shared)
{
	uint64_t words[2], after;
	int rc;

	rc = reef_lock_take(lock,
			    shared ? REEF_LOCK_SHARED : REEF_LOCK_EXCLUSIVE,
			    contest->timeout_ns);
	if (contest->timeout_ns != REEF_FOREVER &&
	    (rc == -ETIMEDOUT || rc == -EBUSY))
		return 0;
	TRY(rc);
	TRY(reef_read(reef, contest->data, &words[0], 8));
	TRY(reef_read(reef, contest->data + 64, &words[1], 8));
	if (words[0] != words[1])
		return -EXDEV;
	if (!shared) {
		after = words[0] + 1;
		TRY(reef_write(reef, contest->data, &after, 8));
		TRY(reef_write(reef, contest->data + 64, &after, 8));
		atomic_fetch_add(&contest->taken, 1);
	}
	TRY(reef_lock_give(lock));
	return 0;
}

static int compete(struct rival *rival)
{
	struct contest *contest = rival->contest;
	struct reef_lock_options options = {
		.kind = contest->kind,
		.waiters_max = contest->waiters_max,
	};
	struct reef_space *space;
	struct reef_random random;
	struct reef_lock *lock;
	struct reef *reef;
	uint32_t i;
	int rc = 0;

	reef_random_init(&random, rival->number + 1);
	TRY(reef_open(POOL, NULL, &reef));
	TRY(reef_space_open(reef, "s", &create, &space));
	TRY(reef_lock_open(space, "lock", &options, &lock));
	for (i = 0; i < ROUNDS && !rc; i++)
		rc = compete_once(reef, lock, contest,
				  reef_random_below(&random, 100) <
					  contest->readers);
	reef_lock_close(lock);
	reef_close(reef);
	return rc;
}

static void *rival_main(void *arg)
{
	struct rival *rival = arg;

	rival->rc = compete(rival);
	return NULL;
}

static void run_contest(struct contest contest)
{
	const uint64_t zeroes[16] = {0};
	struct rival rivals[THREADS];
	pthread_t threads[THREADS];
	struct reef_space *space;
	struct reef *reef;
	uint64_t word;
	uint32_t i;

	assert_int_equal(reef_open(POOL, NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_alloc(space, sizeof(zeroes), &contest.data), 0);
	assert_int_equal(reef_write(reef, contest.data, zeroes, sizeof(zeroes)),
			 0);
	for (i = 0; i < THREADS; i++) {
		rivals[i] = (struct rival){&contest, i, 1};
		assert_int_equal(pthread_create(&threads[i], NULL, rival_main,
						&rivals[i]),
				 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(rivals[i].rc, 0);
	}
	assert_int_equal(reef_read(reef, contest.data, &word, 8), 0);
	assert_int_equal(word, contest.taken);
	if (contest.timeout_ns == REEF_FOREVER && !contest.readers)
		assert_int_equal(word, THREADS * ROUNDS);
	reef_close(reef);
}

static void lock_threads_exclude_each_other(void **state)
{
	enum reef_lock_kind kind;

	for (kind = REEF_LOCK_SHIFT; kind < REEF_LOCK_KINDS; kind++) {
		run_contest((struct contest){.kind = kind,
					     .timeout_ns = REEF_FOREVER});
		run_contest((struct contest){.kind = kind,
					     .waiters_max = 1,
					     .timeout_ns = REEF_FOREVER});
		run_contest(
			(struct contest){.kind = kind, .timeout_ns = 20000});
		run_contest((struct contest){.kind = kind, .timeout_ns = 0});
	}
}

static void lock_threads_read_together(void **state)
{
	static const enum reef_lock_kind kinds[] = {REEF_LOCK_SHIFT,
						    REEF_LOCK_RW};
	int i;

	for (i = 0; i < 2; i++) {
		run_contest((struct contest){.kind = kinds[i],
					     .readers = 80,
					     .timeout_ns = REEF_FOREVER});
		run_contest((struct contest){
			.kind = kinds[i], .readers = 50, .timeout_ns = 20000});
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_wrong_use_changes_nothing),
		cmocka_unit_test(lock_readers_are_together_writers_are_not),
		cmocka_unit_test(lock_spin_gives_up_after_its_attempts),
		cmocka_unit_test(lock_limits_are_those_it_was_made_with),
		cmocka_unit_test(lock_dropped_is_gone_but_for_its_holder),
		cmocka_unit_test(lock_cancel_ends_a_wait),
		cmocka_unit_test(lock_threads_exclude_each_other),
		cmocka_unit_test(lock_threads_read_together),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
