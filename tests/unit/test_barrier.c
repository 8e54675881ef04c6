/* test_barrier.c - what a barrier does when nothing goes wrong, what a round
 * costs, and its errors. */
#include "barrier_world.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(barrier_of_n_takes_log_n_steps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
