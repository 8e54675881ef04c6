/* test_broker_count.c - what sessions say that they did: the sum of it only
 * rises, whatever they say, and stays when they are gone. In simulation. */
#include "base/mutant.h"
#include "fixture/broker_world.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <string.h>

#define READS operations[REEF_COUNTED_TCP][REEF_COUNTED_READ]

/* READs of all sessions, as the owner is told. */
static int ask_for_reads(struct actor *actor, uint64_t *out)
{
	struct reef_body answer;
	struct reef_counters told;

	TRY(actor_call(actor, REEF_POOL_STATUS, 0, NULL, &answer));
	memcpy(&told, answer.reply.status.counters, sizeof(told));
	*out = told.READS;
	return 0;
}

/* Says that it has done so many READs, and that the sum is that. */
static int say_and_compare(struct actor *actor, uint64_t said, uint64_t sum)
{
	uint64_t told;

	actor->counters.READS = said;
	TRY(actor_stay(actor, 3 * TTL));
	TRY(ask_for_reads(actor, &told));
	WANT(told == sum);
	return 0;
}

static int says_anything(struct actor *actor)
{
	uint64_t told;

	TRY(actor_join(actor));
	TRY(say_and_compare(actor, 10, 10));
	TRY(say_and_compare(actor, 25, 25));
	TRY(say_and_compare(actor, 25, 25));
	/* Less than before, and then more than that. */
	TRY(say_and_compare(actor, 5, 25));
	TRY(say_and_compare(actor, 12, 32));
	/* More than there can be, and then more than that. */
	TRY(say_and_compare(actor, UINT64_MAX / 2, 32));
	TRY(say_and_compare(actor, UINT64_MAX / 2 + 3, 35));
	TRY(say_and_compare(actor, 0, 35));
	/* What it says last counts, though it closes at once. */
	actor->counters.READS = UINT64_MAX / 2 + 7;
	TRY(actor_renew(actor));
	TRY(actor_call(actor, REEF_POOL_SESSION_CLOSE, 0, NULL, NULL));
	actor_hang_up(actor);
	actor->counters = (struct reef_counters){0};
	TRY(actor_join(actor));
	TRY(actor_stay(actor, 3 * TTL));
	TRY(ask_for_reads(actor, &told));
	WANT(told == 39);
	/* Another session begins at 0. */
	return say_and_compare(actor, 2, 41);
}

static void cast_sayer(struct broker_world *world)
{
	broker_world_add(world, says_anything);
}

static void broker_count_only_rises_whatever_is_said(void **state)
{
	broker_world_run(cast_sayer, 0);
	broker_world_find(cast_sayer, REEF_MUTANT_BROKER_COUNTS_BELIEVED);
}

static void broker_count_p99_is_the_bound_of_its_bucket(void **state)
{
	struct reef_counters counters = {0};

	assert_int_equal(broker_counters_p99(&counters), 0);
	counters.latencies[0] = 99;
	counters.latencies[4] = 1;
	assert_int_equal(broker_counters_p99(&counters), 250);
	counters.latencies[4] = 2;
	assert_int_equal(broker_counters_p99(&counters), 20000);
	counters.latencies[REEF_LATENCIES - 1] = 1000;
	assert_int_equal(broker_counters_p99(&counters), 100000000);
	assert_int_equal(reef_latency_bucket(250), 0);
	assert_int_equal(reef_latency_bucket(251), 1);
	assert_int_equal(reef_latency_bucket(UINT64_MAX), REEF_LATENCIES - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_count_only_rises_whatever_is_said),
		cmocka_unit_test(broker_count_p99_is_the_bound_of_its_bucket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
