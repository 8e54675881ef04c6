/* test_sequencer.c - numbers that nobody else gets, in simulation: with links
 * that fall, clients that are killed, brokers that restart. */
#include "fixture/pool_world.h"

#include <errno.h>
#include <string.h>

#include <reef/sync.h>

static void run(int (*first)(struct member *), int (*second)(struct member *))
{
	pool_run_lossy(0, first, second);
}

/* --- alone --- */

static int alone(struct member *member)
{
	struct reef_sequencer *sequencer, *other, *none;
	struct reef_space *space;
	uint64_t first;

	TRY(member_space(member, &space));
	WANT_RC(reef_sequencer_open(space, "s", REEF_SYNC_EXISTING, &none),
		-ENOENT);
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	TRY(reef_sequencer_open(space, "s", REEF_SYNC_EXISTING, &other));
	TRY(reef_sequencer_next(sequencer, 1, &first));
	WANT(first == 1);
	TRY(reef_sequencer_next(other, 10, &first));
	WANT(first == 2);
	TRY(reef_sequencer_next(sequencer, 1, &first));
	WANT(first == 12);
	WANT_RC(reef_sequencer_next(sequencer, 0, &first), -EINVAL);
	WANT_RC(reef_sequencer_next(sequencer, UINT64_MAX, &first), -EINVAL);
	WANT_RC(reef_clock_drop(space, "s"), -EEXIST);
	TRY(reef_sequencer_drop(space, "s"));
	WANT_RC(reef_sequencer_drop(space, "s"), -ENOENT);
	/* Whoever has it open can draw nothing beside the next one. */
	WANT_RC(reef_sequencer_next(other, 1, &first), -ENOENT);
	WANT_RC(reef_sequencer_next(other, 1, &first), -ENOENT);
	reef_sequencer_close(other);
	reef_sequencer_close(sequencer);
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	TRY(reef_sequencer_next(sequencer, 1, &first));
	WANT(first == 1);
	reef_sequencer_close(sequencer);
	reef_sequencer_close(NULL);
	return 0;
}

static void sequencer_counts_from_one(void **state)
{
	run(alone, NULL);
}

static int budget(struct member *member)
{
	struct reef_sequencer *sequencer;
	struct reef_counts before, cost;
	struct reef_space *space;
	uint64_t first;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	before = reef_count_read(&member->count);
	for (i = 0; i < 10; i++)
		TRY(reef_sequencer_next(sequencer, 1 + i * 1000, &first));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	/* The keeper renews the lease meanwhile, by WRITE and READ. */
	WANT(cost.faa == 10 && cost.cas == 0);
	reef_sequencer_close(sequencer);
	return 0;
}

static void sequencer_costs_one_faa(void **state)
{
	run(budget, NULL);
}

static int runs_out(struct member *member)
{
	const uint64_t step = UINT64_C(1) << 48;
	struct reef_sequencer *sequencer, *late;
	struct reef_space *space;
	uint64_t first, i;

	TRY(member_space(member, &space));
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	TRY(reef_sequencer_open(space, "s", 0, &late));
	for (i = 0; i < (1u << 15) - 1; i++) {
		TRY(reef_sequencer_next(sequencer, step, &first));
		WANT(first == i * step + 1);
	}
	/* 2^48 - 1 are left. */
	WANT_RC(reef_sequencer_next(sequencer, step, &first), -EOVERFLOW);
	for (i = 0; i < 10; i++)
		WANT_RC(reef_sequencer_next(sequencer, 1, &first), -EOVERFLOW);
	WANT_RC(reef_sequencer_next(late, 1, &first), -EOVERFLOW);
	reef_sequencer_close(late);
	reef_sequencer_close(sequencer);
	TRY(reef_sequencer_drop(space, "s"));
	return 0;
}

static void sequencer_runs_out_and_never_wraps(void **state)
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, runs_out);
	pool_finish(&pool);
}

/* --- together --- */

#define NUMBERS_MAX 20000

/* What was handed out, in plain memory: time stands still while a fiber runs.
 */
static struct {
	uint8_t taken[NUMBERS_MAX];
	uint64_t highest; /* that a call has returned */
	uint64_t calls;
} truth;

/* A call that begins now is to get more than floor. */
static int note(uint64_t floor, uint64_t first, uint64_t count)
{
	uint64_t i;

	WANT(first > floor && first + count < NUMBERS_MAX);
	for (i = first; i < first + count; i++) {
		WANT(!truth.taken[i]);
		truth.taken[i] = 1;
	}
	if (first + count - 1 > truth.highest)
		truth.highest = first + count - 1;
	truth.calls++;
	return 0;
}

static int draw_many(struct member *member, uint32_t draws)
{
	struct reef_random *random = reef_sim_host_random(member->host);
	struct reef_sequencer *sequencer;
	struct reef_space *space;
	uint64_t first, floor, count;
	uint32_t i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	for (i = 0; !rc && i < draws; i++) {
		count = reef_random_between(random, 1, 9);
		floor = truth.highest;
		rc = reef_sequencer_next(sequencer, count, &first);
		if (!rc)
			rc = note(floor, first, count);
	}
	reef_sequencer_close(sequencer);
	TRY(rc);
	return 0;
}

static int draws(struct member *member)
{
	return draw_many(member, 300);
}

static void sequencer_numbers_are_each_once(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 4 * POOL_SEEDS); seed++) {
		/* With links that fall: some are in doubt, and skipped. */
		struct pool pool = {
			.lose_link_ppm = seed % 2 ? 0 : 20000,
			.node_ttl_ns = 60 * SECOND,
			.ttl_ns = 60 * SECOND,
		};

		memset(&truth, 0, sizeof(truth));
		pool_start(&pool, seed);
		pool_add(&pool, draws);
		pool_add(&pool, draws);
		pool_add(&pool, draws);
		pool_finish(&pool);
		assert_int_equal(truth.calls, 900);
		if (!pool.lose_link_ppm)
			for (uint64_t i = 1; i <= truth.highest; i++)
				assert_true(truth.taken[i]);
	}
}

static int draws_long(struct member *member)
{
	return draw_many(member, 1000);
}

/* Kills one of them, and the broker, at any moment. */
static int storm(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	uint32_t i;

	for (i = 0; i < 4; i++) {
		TRY(reef_sleep(reef_random_below(random, 10 * MILLISECOND)));
		if (i == 1)
			reef_sim_host_kill(member->pool->members[0].host);
		reef_sim_host_kill(member->pool->host);
		TRY(reef_sleep(reef_random_below(random, 10 * MILLISECOND)));
		TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
					  member->pool));
	}
	return 0;
}

static void sequencer_storm_repeats_no_number(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 4 * POOL_SEEDS); seed++) {
		struct pool pool = {.node_ttl_ns = 20 * SECOND};

		memset(&truth, 0, sizeof(truth));
		pool_start(&pool, seed);
		pool_add(&pool, draws_long);
		pool_add(&pool, draws_long);
		pool_add(&pool, draws_long);
		pool_add(&pool, storm);
		pool_finish(&pool);
	}
}

/* --- dropped and lost --- */

static int drops_it(struct member *member)
{
	struct reef_sequencer *sequencer;
	struct reef_space *space;
	uint64_t first;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < 20; i++) {
		TRY(reef_sequencer_open(space, "s", 0, &sequencer));
		do
			rc = reef_sequencer_next(sequencer, 1, &first);
		while (!rc && first < 20);
		WANT(!rc || rc == -ENOENT);
		reef_sequencer_close(sequencer);
		rc = reef_sequencer_drop(space, "s");
		WANT(!rc || rc == -ENOENT);
	}
	return 0;
}

static void sequencer_is_dropped_while_others_draw(void **state)
{
	run(drops_it, drops_it);
	pool_run_lossy(20000, drops_it, drops_it);
}

static int lost(struct member *member)
{
	struct reef_sequencer *sequencer;
	struct reef_space *space;
	uint64_t first;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	TRY(reef_sequencer_next(sequencer, 1, &first));
	reef_sim_host_kill(member->pool->lenders[0].host);
	reef_sim_host_kill(member->pool->lenders[1].host);
	TRY(reef_sim_host_restart(member->pool->lenders[1].host, pool_node_main,
				  &member->pool->lenders[1]));
	rc = reef_sequencer_next(sequencer, 1, &first);
	WANT(rc == -REEF_ELOST);
	reef_sequencer_close(sequencer);
	WANT_RC(reef_sequencer_open(space, "s", 0, &sequencer), -REEF_ELOST);
	TRY(reef_sequencer_drop(space, "s"));
	TRY(member_await_room(space));
	TRY(reef_sequencer_open(space, "s", 0, &sequencer));
	TRY(reef_sequencer_next(sequencer, 1, &first));
	WANT(first == 1);
	reef_sequencer_close(sequencer);
	return 0;
}

static void sequencer_lost_is_dropped_and_made_anew(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.witnesses = WITNESSES_MAX};

		pool_start(&pool, seed);
		pool_add(&pool, lost);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sequencer_counts_from_one),
		cmocka_unit_test(sequencer_costs_one_faa),
		cmocka_unit_test(sequencer_runs_out_and_never_wraps),
		cmocka_unit_test(sequencer_numbers_are_each_once),
		cmocka_unit_test(sequencer_storm_repeats_no_number),
		cmocka_unit_test(sequencer_is_dropped_while_others_draw),
		cmocka_unit_test(sequencer_lost_is_dropped_and_made_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
