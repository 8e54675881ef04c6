/* test_lock_budget.c - what a lock costs, counted: one atomic to take it and
 * one to give it where nobody contends; a hand-over costs the same however many
 * wait. */
#include "fixture/pool_world.h"
#include "sync/lock.h"

#include <stdlib.h>

#define WAITERS_MAX 512u
#define CROWDS 2u /* members that wait */
/* In the first round they find the way to each other's inbox, in the last they
 * are about to go. */
#define ROUNDS 3u
#define MEASURED 2u

static struct reef_counts counts_of(const struct member *member)
{
	return reef_count_read(&member->count);
}

static struct reef_counts since(const struct member *member,
				const struct reef_counts *before)
{
	struct reef_counts now = counts_of(member);

	return reef_counts_between(before, &now);
}

/* --- alone --- */

static int alone(struct member *member, enum reef_lock_kind kind,
		 enum reef_lock_mode mode)
{
	struct reef_lock_options options = {.kind = kind};
	struct reef_counts before, took, gave;
	struct reef_space *space;
	struct reef_lock *lock;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_lock_open(space, "alone", &options, &lock));
	/* The first reader says that there are some; the first writer finds out
	 * that there are none any more. */
	for (i = 0; i < 2; i++) {
		TRY(reef_lock_take(lock, mode, 0));
		TRY(reef_lock_give(lock));
	}
	for (i = 0; i < 5; i++) {
		before = counts_of(member);
		TRY(reef_lock_take(lock, mode, REEF_FOREVER));
		took = since(member, &before);
		WANT(took.cas + took.faa == 1);
		WANT(took.writes == 0);
		WANT(took.reads == (mode == REEF_LOCK_SHARED));
		WANT(took.round_trips == 1);
		before = counts_of(member);
		TRY(reef_lock_give(lock));
		gave = since(member, &before);
		WANT(gave.cas + gave.faa == 1);
		WANT(gave.writes == 0);
		WANT(gave.reads == (mode == REEF_LOCK_SHARED));
		WANT(gave.round_trips == 1);
	}
	reef_lock_close(lock);
	TRY(reef_lock_drop(space, "alone"));
	return 0;
}

static int alone_script(struct member *member)
{
	TRY(alone(member, REEF_LOCK_SHIFT, REEF_LOCK_EXCLUSIVE));
	TRY(alone(member, REEF_LOCK_SPIN, REEF_LOCK_EXCLUSIVE));
	TRY(alone(member, REEF_LOCK_MCS, REEF_LOCK_EXCLUSIVE));
	TRY(alone(member, REEF_LOCK_RW, REEF_LOCK_EXCLUSIVE));
	TRY(alone(member, REEF_LOCK_SHIFT, REEF_LOCK_SHARED));
	TRY(alone(member, REEF_LOCK_RW, REEF_LOCK_SHARED));
	return 0;
}

static void lock_budget_alone_is_one_atomic_each(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 60 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, alone_script);
		pool_finish(&pool);
	}
}

/* --- handed over --- */

struct crowd {
	struct reef_lock_options options;
	uint32_t waiters;
	uint32_t round; /* the lock is held, for that one */
	struct reef_lock *locks[WAITERS_MAX];
	uint32_t served;
	double operations, round_trips, sends; /* each */
};

struct guest {
	struct crowd *crowd;
	uint32_t number;
};

static int guest_run(struct guest *guest)
{
	struct crowd *crowd = guest->crowd;
	struct reef_lock *lock = crowd->locks[guest->number];
	uint32_t round;

	for (round = 1; round <= ROUNDS; round++) {
		while (crowd->round < round)
			TRY(reef_sleep(MILLISECOND));
		TRY(reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER));
		TRY(reef_lock_give(lock));
		crowd->served++;
	}
	return 0;
}

static int guest_main(void *arg)
{
	return guest_run(arg);
}

static int crowd_script(struct member *member)
{
	struct crowd *crowd = (struct crowd *)(uintptr_t)member->pool->note[0];
	static struct reef_fiber *fibers[WAITERS_MAX];
	static struct guest guests[WAITERS_MAX];
	uint32_t i, first = member->number - 2;
	struct reef_space *space;
	int rc, result;

	while (!crowd->round)
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	for (i = first; i < crowd->waiters; i += CROWDS) {
		guests[i] = (struct guest){crowd, i};
		TRY(reef_lock_open(space, "crowd", &crowd->options,
				   &crowd->locks[i]));
		TRY(reef_fiber_spawn(reef_fiber_sched(), guest_main, &guests[i],
				     &fibers[i]));
	}
	rc = 0;
	for (i = first; i < crowd->waiters; i += CROWDS) {
		TRY(reef_fiber_join(fibers[i], &result));
		rc = rc ? rc : result;
		reef_lock_close(crowd->locks[i]);
	}
	return rc;
}

static struct reef_counts counts_of_all(const struct pool *pool)
{
	struct reef_counts sum = {0}, one;
	uint32_t i;

	for (i = 0; i < pool->count; i++) {
		one = counts_of(&pool->members[i]);
		sum.memory_operations += one.memory_operations;
		sum.round_trips += one.round_trips;
		sum.sends += one.sends;
	}
	return sum;
}

static bool is_crowd_parked(const struct crowd *crowd)
{
	uint32_t i;

	for (i = 0; i < crowd->waiters; i++)
		if (!crowd->locks[i] || !crowd->locks[i]->parked)
			return false;
	return true;
}

static int host_round(struct member *member, struct crowd *crowd,
		      struct reef_lock *lock)
{
	struct reef_counts before, after;

	TRY(reef_lock_take(lock, REEF_LOCK_EXCLUSIVE, REEF_FOREVER));
	crowd->served = 0;
	crowd->round++;
	while (!is_crowd_parked(crowd))
		TRY(reef_sleep(MILLISECOND));
	before = counts_of_all(member->pool);
	TRY(reef_lock_give(lock));
	while (crowd->served < crowd->waiters)
		TRY(reef_sleep(MILLISECOND));
	after = counts_of_all(member->pool);
	after = reef_counts_between(&before, &after);
	if (crowd->round != MEASURED)
		return 0;
	crowd->operations = (double)after.memory_operations / crowd->waiters;
	crowd->round_trips = (double)after.round_trips / crowd->waiters;
	crowd->sends = (double)after.sends / crowd->waiters;
	return 0;
}

static int host_script(struct member *member)
{
	struct crowd *crowd = (struct crowd *)(uintptr_t)member->pool->note[0];
	struct reef_space *space;
	struct reef_lock *lock;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_lock_open(space, "crowd", &crowd->options, &lock));
	for (i = 0; i < ROUNDS; i++)
		TRY(host_round(member, crowd, lock));
	reef_lock_close(lock);
	return 0;
}

/* most: operations at the memory node, for each of them. */
static void serve_crowd(enum reef_lock_kind kind, const char *name, double most)
{
	static const uint32_t sizes[] = {2, 8, 64, 512};
	uint32_t i, j;

	for (i = 0; i < 4; i++) {
		struct crowd *crowd = calloc(1, sizeof(*crowd));
		struct pool pool = {.ttl_ns = 600 * SECOND,
				    .note = {(uintptr_t)crowd}};

		crowd->options.kind = kind;
		crowd->options.waiters_max = WAITERS_MAX;
		crowd->waiters = sizes[i];
		pool_start(&pool, 1);
		pool_add(&pool, host_script);
		for (j = 0; j < CROWDS; j++)
			pool_add(&pool, crowd_script);
		pool_finish(&pool);
		print_message("%-8s %8u %12.2f %12.2f %8.2f\n", name, sizes[i],
			      crowd->operations, crowd->round_trips,
			      crowd->sends);
		/* With few of them it shows that the last gives it to nobody.
		 */
		assert_true(crowd->operations <= most);
		free(crowd);
	}
}

static void lock_budget_handover_does_not_grow(void **state)
{
	print_message("%-8s %8s %12s %12s %8s\n", "kind", "waiters",
		      "operations", "round trips", "sends");
	serve_crowd(REEF_LOCK_MCS, "mcs", 8);
	serve_crowd(REEF_LOCK_RW, "rw", 8);
	serve_crowd(REEF_LOCK_SHIFT, "shift", 12);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lock_budget_alone_is_one_atomic_each),
		cmocka_unit_test(lock_budget_handover_does_not_grow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
