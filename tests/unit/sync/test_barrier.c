/* test_barrier.c - what a barrier does when nothing goes wrong, what a round
 * costs, and its errors. */
#include "fixture/barrier_world.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t log2_up(uint32_t count)
{
	uint32_t steps = 0;

	while (1u << steps < count)
		steps++;
	return steps;
}

/* --- what a round costs --- */

#define WARM 2u
#define ROUNDS 5u

static struct reef_counts all_counts(const struct party *party)
{
	struct reef_counts sum = {0}, one;
	uint32_t i;

	for (i = 0; i < party->pool.count; i++) {
		one = reef_count_read(&party->pool.members[i].count);
		sum.memory_operations += one.memory_operations;
		sum.sends += one.sends;
		sum.cas += one.cas;
	}
	return sum;
}

static struct reef_counts counted[2];

static int counts_rounds(struct guest *guest)
{
	struct party *party = guest->party;
	uint64_t sends;
	uint32_t i;

	for (i = 0; i < WARM; i++)
		TRY(guest_meet(guest, REEF_FOREVER));
	TRY(guest_gather(guest, 0));
	TRY(reef_sleep(20 * MILLISECOND)); /* messages under way */
	if (!guest->index)
		counted[0] = all_counts(party);
	TRY(guest_gather(guest, 1));
	sends = barrier_sends(guest->barrier);
	for (i = 0; i < ROUNDS; i++)
		TRY(guest_meet(guest, REEF_FOREVER));
	WANT(barrier_sends(guest->barrier) - sends ==
	     (uint64_t)ROUNDS * log2_up(party->count));
	WANT(reef_barrier_members(guest->barrier) == party->count);
	TRY(guest_gather(guest, 2));
	TRY(reef_sleep(20 * MILLISECOND));
	if (!guest->index)
		counted[1] = all_counts(party);
	TRY(guest_gather(guest, 3));
	return 0;
}

static void costs(uint32_t count)
{
	struct party *party = calloc(1, sizeof(*party));
	struct reef_counts spent;

	party->pool.ttl_ns = 60 * SECOND; /* renewals are counted, too */
	party->pool.node_ttl_ns = 60 * SECOND;
	party->pool.extent_size = 64 * MIB;
	party->pool.capacity = 1024 * MIB;
	party->count = count;
	party->needed = count;
	party->members_max = count;
	party->pool.calm = true;
	party->script = counts_rounds;
	assert_int_equal(party_run(party, count), 0);
	spent = reef_counts_between(&counted[0], &counted[1]);
	print_message("%7u %7u %20.1f %20.1f\n", count, log2_up(count),
		      (double)spent.memory_operations / ROUNDS,
		      (double)spent.sends / ROUNDS);
	assert_int_equal(spent.memory_operations, ROUNDS);
	assert_int_equal(spent.cas, ROUNDS);
	/* Those between two of one handle are not. */
	if (count <= 64)
		assert_int_equal(spent.sends,
				 (uint64_t)ROUNDS * count * log2_up(count));
	free(party);
}

static void barrier_of_n_takes_log_n_steps(void **state)
{
	static const uint32_t counts[] = {1,  2,  3,  4,   5,	8,
					  16, 32, 64, 128, 256, 512};
	size_t i;

	print_message(
		"members   steps  memory-node op/round  messages/round\n");
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		costs(counts[i]);
}

/* --- errors and limits --- */

static int knows_errors(struct member *member)
{
	struct reef_barrier_options options = {.members_max = 2};
	struct reef_barrier_options existing = {.flags = REEF_SYNC_EXISTING};
	struct reef_barrier *first, *second, *third;
	struct reef_space *space;

	TRY(member_space(member, &space));
	WANT_RC(reef_barrier_open(space, "b", &existing, 0, &first), -ENOENT);
	WANT_RC(reef_barrier_open(space, "b", &options, 3, &first), -EINVAL);
	options.members_max = 4097;
	WANT_RC(reef_barrier_open(space, "b", &options, 0, &first), -EINVAL);
	WANT_RC(reef_barrier_drop(space, "b"), -ENOENT);
	options.members_max = 2;
	TRY(reef_barrier_open(space, "b", &options, 0, &first));
	TRY(reef_barrier_open(space, "b", NULL, 0, &second));
	WANT_RC(reef_barrier_open(space, "b", NULL, 0, &third), -ENOSPC);
	WANT_RC(reef_barrier_wait(first, 0, NULL), -ETIMEDOUT);
	WANT_RC(reef_barrier_wait(first, MILLISECOND, NULL), -ETIMEDOUT);
	WANT(reef_barrier_round(first) == 0);
	/* By its mark, as the first does nothing meanwhile. */
	TRY(reef_barrier_wait(second, SECOND, NULL));
	TRY(reef_barrier_wait(first, SECOND, NULL));
	WANT(reef_barrier_round(first) == 1);
	WANT(reef_barrier_round(second) == 1);
	/* One goes: the other meets itself, and there is room again. */
	TRY(reef_barrier_leave(second, SECOND));
	WANT_RC(reef_barrier_wait(second, 0, NULL), -EPERM);
	TRY(reef_barrier_leave(second, 0));
	TRY(reef_barrier_wait(first, SECOND, NULL));
	WANT(reef_barrier_members(first) == 1);
	TRY(reef_barrier_open(space, "b", NULL, 0, &third));
	WANT(reef_barrier_round(third) == 2);
	reef_barrier_close(second);
	/* Closing does not wait for a round that has begun. */
	WANT_RC(reef_barrier_wait(first, 0, NULL), -ETIMEDOUT);
	reef_barrier_close(third);
	TRY(reef_barrier_wait(first, SECOND, NULL));
	TRY(reef_barrier_drop(space, "b"));
	WANT_RC(reef_barrier_wait(first, SECOND, NULL), -ENOENT);
	reef_barrier_close(first);
	reef_barrier_close(NULL);
	/* The name is free for another. */
	TRY(reef_barrier_open(space, "b", NULL, 1, &first));
	TRY(reef_barrier_wait(first, SECOND, NULL));
	reef_barrier_close(first);
	return 0;
}

static void barrier_errors_are_told(void **state)
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, knows_errors);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(barrier_errors_are_told),
		cmocka_unit_test(barrier_of_n_takes_log_n_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
