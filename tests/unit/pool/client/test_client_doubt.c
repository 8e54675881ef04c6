/* test_client_doubt.c - what a call says of operations whose links were lost:
 * once it has returned, each of them happened or never will. */
#include "fixture/pool_world.h"

#include <string.h>

#define WORDS 8
#define ROUNDS 40

/* The two members take turns; simulated hosts share this memory. */
static struct {
	uint64_t words[WORDS];	 /* addresses, on both nodes */
	bool in_doubt[WORDS];	 /* by the first member's last call */
	uint32_t round, checked; /* the second has checked that many */
	uint32_t doubts, double_doubts;
	bool is_over;
} turn;

static int await_turn(const uint32_t *what, uint32_t value)
{
	while (*(const volatile uint32_t *)what < value && !turn.is_over)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

/* With links that fall all the time, the broker may not have one to any node
 * just now: no room. */
static int allocate_word(struct reef_space *space, uint64_t *address)
{
	int rc, tries = 0;

	do
		rc = reef_alloc(space, 2 * MIB, address);
	while (rc == -REEF_EINDOUBT ||
	       (rc == -ENOSPC && ++tries < 100 && !reef_sleep(SECOND)));
	if (rc)
		return rc;
	do
		rc = reef_keep(space, *address);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

/* Write words on both nodes in one call. */
static int writes_both(struct member *member)
{
	struct reef_access accesses[WORDS];
	uint64_t values[WORDS];
	struct reef_space *space;
	uint32_t i, doubts;

	TRY(member_space(member, &space));
	for (i = 0; i < WORDS; i++)
		TRY(allocate_word(space, &turn.words[i]));
	for (turn.round = 0; turn.round < ROUNDS;) {
		for (i = 0; i < WORDS; i++) {
			values[i] = 2 * turn.round + 1;
			accesses[i] = (struct reef_access){
				.kind = REEF_WRITE,
				.address = turn.words[i],
				.local = &values[i],
				.length = 8,
			};
		}
		reef_execute(member->reef, accesses, WORDS);
		for (doubts = i = 0; i < WORDS; i++) {
			turn.in_doubt[i] = accesses[i].status == -REEF_EINDOUBT;
			doubts += turn.in_doubt[i];
		}
		turn.doubts += doubts;
		turn.double_doubts += doubts > WORDS / 2;
		turn.round++;
		TRY(await_turn(&turn.checked, turn.round));
	}
	return 0;
}

static int write_surely(struct reef *reef, uint64_t address, uint64_t value)
{
	int rc;

	do
		rc = reef_write(reef, address, &value, 8);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

/* Whatever was in doubt is written anew; the old value must not come back. */
static int writes_after(struct member *member)
{
	struct reef_space *space;
	uint64_t value;
	uint32_t i, round;

	TRY(member_space(member, &space));
	for (round = 1; round <= ROUNDS; round++) {
		TRY(await_turn(&turn.round, round));
		for (i = 0; i < WORDS; i++)
			if (turn.in_doubt[i])
				TRY(write_surely(member->reef, turn.words[i],
						 2 * round));
		TRY(reef_sleep(6 * SECOND));
		for (i = 0; i < WORDS; i++) {
			if (!turn.in_doubt[i])
				continue;
			TRY(reef_read(member->reef, turn.words[i], &value, 8));
			WANT(value == 2 * round);
		}
		turn.checked = round;
	}
	turn.is_over = true;
	return 0;
}

static void client_doubt_on_two_links_is_settled_on_both(void **state)
{
	uint32_t doubts = 0, double_doubts = 0;
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.lose_link_ppm = 300000,
			.ttl_ns = 60 * SECOND,
			.node_ttl_ns = 60 * SECOND,
		};

		memset(&turn, 0, sizeof(turn));
		pool_start(&pool, seed);
		pool_add(&pool, writes_both);
		pool_add(&pool, writes_after);
		pool_finish(&pool);
		doubts += turn.doubts;
		double_doubts += turn.double_doubts;
	}
	/* Else it has shown nothing. */
	assert_true(doubts > 0 && double_doubts > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_doubt_on_two_links_is_settled_on_both),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
