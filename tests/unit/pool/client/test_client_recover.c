/* test_client_recover.c - what outlives a session and what does not: pages,
 * kinds, memory that waits for readers, memory that is taken back. */
#include "base/mutant.h"
#include "fixture/pool_world.h"
#include "pool/broker/lending.h"
#include "pool/rpc.h"

#include <errno.h>
#include <string.h>

#define KIND 9

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		pool_add(&pool, second);
		pool_finish(&pool);
	}
}

/* --- pages and kinds --- */

/* What the kind was asked, in this process; one pool at a time. */
static struct {
	uint32_t session, pages, asked;
	uint64_t live;	   /* the one that is still part of something */
	uint64_t doubtful; /* the one about which `error` is said */
	int error;
} seen;

static int kind_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	seen.asked++;
	if (seen.error && address == seen.doubtful)
		return seen.error;
	return address == seen.live;
}

static int kind_recover(struct reef *reef, struct reef_space *space,
			uint32_t session, uint64_t page, uint64_t size)
{
	uint64_t intent;

	TRY(reef_read(reef, page, &intent, 8));
	seen.session = session;
	if (intent == 4711 && size >= 4096)
		seen.pages++;
	return 0;
}

static const struct reef_kind_ops kind_ops = {
	.name = "test",
	.is_live = kind_is_live,
	.recover = kind_recover,
};

static int leaves_intent(struct member *member)
{
	uint64_t page, again, block, intent = 4711, value = 1;
	struct reef_space *space;

	memset(&seen, 0, sizeof(seen));
	TRY(member_space(member, &space));
	TRY(reef_session_page(space, &page));
	TRY(reef_session_page(space, &again));
	WANT(page == again);
	TRY(reef_read(member->reef, page, &value, 8));
	WANT(value == 0);
	TRY(reef_write(member->reef, page, &intent, 8));
	TRY(reef_alloc_kind(space, KIND, 64, &block));
	TRY(reef_write(member->reef, block, &intent, 8));
	seen.live = block;
	TRY(reef_alloc_kind(space, KIND, 64, &block));
	TRY(reef_write(member->reef, block, &intent, 8));
	member->pool->note[1] = block;
	member->pool->note[2] = reef_session(member->reef);
	member->pool->note[0] = 1;
	return reef_sleep(REEF_FOREVER);
}

static int recovers(struct member *member)
{
	struct reef_space *space;
	uint64_t value;

	TRY(member_space(member, &space));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(member->pool->members[0].host);
	/* Until its page was seen, and both blocks asked about. */
	while (!seen.pages || seen.asked < 2)
		TRY(reef_sleep(MILLISECOND));
	WANT(seen.session == member->pool->note[2]);
	TRY(reef_read(member->reef, seen.live, &value, 8));
	WANT(value == 4711);
	TRY(reef_free(space, seen.live, 0));
	return 0;
}

static void client_kinds_are_asked_about_a_dead_session(void **state)
{
	run(leaves_intent, recovers);
}

/* --- blocks about which nobody can tell --- */

static int leaves_blocks(struct member *member)
{
	uint64_t block, value = 1;
	struct reef_space *space;
	uint32_t i;

	while (member->pool->note[0] + 1 < member->number)
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	for (i = 0; i < 16; i++) {
		TRY(reef_alloc_kind(space, KIND, 64, &block));
		TRY(reef_write(member->reef, block, &value, 8));
		if (i == 8 && member->number == 1)
			seen.doubtful = block;
	}
	member->pool->note[member->number] = reef_session(member->reef);
	return reef_sleep(REEF_FOREVER);
}

static int await_recovered(struct member *member, uint32_t number)
{
	uint64_t until_ns = reef_now_ns() + 30 * SECOND;
	bool has = true;

	while (has) {
		TRY(reef_sleep(10 * MILLISECOND));
		TRY(member_has_session(
			member, (uint32_t)member->pool->note[number], &has));
		WANT(reef_now_ns() < until_ns);
	}
	return 0;
}

/* The first to die left a block that cannot be judged now, or ever. */
static int recovers_all_others(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	uint64_t value;
	bool has;

	TRY(member_space(member, &space));
	while (!pool->note[1])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(pool->members[0].host);
	TRY(reef_sleep(2 * SECOND));
	TRY(member_has_session(member, (uint32_t)pool->note[1], &has));
	WANT(has == (seen.error == -REEF_ENOLINK));
	pool->note[0] = 1;
	while (!pool->note[2])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(pool->members[1].host);
	TRY(await_recovered(member, 2));
	if (seen.error == -REEF_ENOLINK) {
		seen.live = seen.doubtful;
		seen.error = 0;
		TRY(await_recovered(member, 1));
	}
	/* It is not used for something else. */
	TRY(reef_sleep(5 * SECOND));
	TRY(reef_read(member->reef, seen.doubtful, &value, 8));
	WANT(value == 1);
	TRY(reef_free(space, seen.doubtful, 0));
	return 0;
}

static void client_block_that_nobody_can_judge_holds_up_nobody(void **state)
{
	static const int errors[] = {-REEF_ECORRUPT, -REEF_ELOST,
				     -REEF_ENOLINK};
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		for (int i = 0; i < 3; i++) {
			struct pool pool = {0};

			memset(&seen, 0, sizeof(seen));
			seen.error = errors[i];
			pool_start(&pool, seed);
			pool_add(&pool, leaves_blocks);
			pool_add(&pool, leaves_blocks);
			pool_add(&pool, recovers_all_others);
			pool_finish(&pool);
		}
	}
}

/* The same, with a mutant that says too early that nothing is left. */
static void client_mutant_that_ends_recovery_early_is_found(void **state)
{
	struct pool pool = {0};

	memset(&seen, 0, sizeof(seen));
	seen.error = -REEF_ENOLINK;
	try_quiet = true;
	reef_mutate(REEF_MUTANT_HEAP_END_EARLY);
	pool_start(&pool, seeds_first());
	pool_add(&pool, leaves_blocks);
	pool_add(&pool, leaves_blocks);
	pool_add(&pool, recovers_all_others);
	assert_int_not_equal(pool_end(&pool), 0);
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
}

/* --- memory that is closed for a while --- */

/* Close all extents of the pool, as one who copies them does, or let them be
 * opened again. */
static void close_all(struct pool *pool, bool closed)
{
	struct reef_broker *broker = pool->broker;

	for (uint32_t i = 0; i < broker->extents_count; i++) {
		broker->extents[i].rekeying = closed;
		if (closed)
			broker_extent_set_closed(broker,
						 broker->extents[i].number);
	}
	if (!closed)
		broker_moves_resume(broker);
}

/* Who comes to a space while its memory is closed recovers nothing there before
 * it is open again. */
static int comes_while_closed(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	bool has;

	while (!pool->note[1])
		TRY(reef_sleep(MILLISECOND));
	close_all(pool, true);
	reef_sim_host_kill(pool->members[0].host);
	TRY(member_space(member, &space));
	TRY(reef_sleep(2 * SECOND));
	TRY(member_has_session(member, (uint32_t)pool->note[1], &has));
	WANT(has);
	close_all(pool, false);
	TRY(await_recovered(member, 1));
	WANT(seen.asked >= 16);
	return 0;
}

static void client_recovery_waits_for_memory_that_is_closed(void **state)
{
	memset(&seen, 0, sizeof(seen));
	run(leaves_blocks, comes_while_closed);
}

static void client_mutant_that_skips_what_is_closed_is_found(void **state)
{
	memset(&seen, 0, sizeof(seen));
	pool_find(REEF_MUTANT_CLIENT_SKIP_CLOSED, 0, leaves_blocks,
		  comes_while_closed);
}

/* --- R8 --- */

/* Inside reef_enter, sees a block through a name; its owner frees it for later.
 * It must not be handed out again until we leave. */
static int reader(struct member *member)
{
	uint64_t address, value;
	struct reef_space *space;
	uint32_t i;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	reef_enter(member->reef);
	reef_enter(member->reef); /* they nest */
	reef_leave(member->reef);
	address = member->pool->note[1];
	TRY(reef_read(member->reef, address, &value, 8));
	member->pool->note[0] = 2; /* now it is freed */
	/* Whoever is inside for a lease while others lack room is ended. */
	for (i = 0; i < 20; i++) {
		TRY(reef_sleep(member->pool->ttl_ns / 32));
		WANT(member->pool->note[2] == 0);
	}
	reef_leave(member->reef);
	member->pool->note[0] = 3;
	return 0;
}

static int freer(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = 4 * MIB,
	};
	uint64_t address, other, value = 1;
	struct reef_space *space;
	int rc;

	TRY(reef_space_open(member->reef, "space", &options, &space));
	TRY(reef_alloc(space, 32768, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	member->pool->note[1] = address;
	member->pool->note[0] = 1;
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_free(space, address, REEF_FREE_LATER));
	WANT_RC(reef_free(space, address, REEF_FREE_LATER), -EALREADY);
	/* It is the last room there is, and comes when the reader has left. */
	do {
		rc = reef_alloc(space, 32768, &other);
		if (rc == -EDQUOT)
			TRY(reef_sleep(10 * MILLISECOND));
		else
			TRY(rc);
	} while (rc || other != address);
	member->pool->note[2] = 1;
	WANT(member->pool->note[0] == 3);
	return 0;
}

static void client_freed_for_later_waits_for_readers(void **state)
{
	run(freer, reader);
}

static void client_mutant_that_does_not_pin_is_found(void **state)
{
	pool_find(REEF_MUTANT_CLIENT_NO_PIN, 0, freer, reader);
}

/* --- R8: fibers of one handle that are inside in turn --- */

#define CHURNERS 3

struct churner {
	struct member *member;
	uint64_t pause_ns, gap_ns;
	struct reef_fiber *fiber;
};

/* Without a gap, there is always somebody inside. What a fiber sees of the
 * epoch does not change under it, nested or not. */
static int churn(void *arg)
{
	struct churner *churner = arg;
	struct reef *reef = churner->member->reef;
	uint64_t epoch;
	int rc = 0;

	while (!rc && churner->member->pool->note[2] == 0) {
		reef_enter(reef);
		epoch = reef_epoch(reef);
		rc = reef_sleep(churner->pause_ns);
		reef_enter(reef);
		if (!rc && reef_epoch(reef) != epoch)
			rc = -EXDEV;
		reef_leave(reef);
		if (!rc && reef_epoch(reef) != epoch)
			rc = -EXDEV;
		reef_leave(reef);
		if (!rc && churner->gap_ns)
			rc = reef_sleep(churner->gap_ns);
		else
			reef_fiber_yield();
	}
	return rc;
}

/* As `reader`, among churners. */
static int read_in_a_crowd(struct member *member, uint64_t gap_ns)
{
	struct churner churners[CHURNERS];
	int rc = 0, one;

	for (int i = 0; i < CHURNERS; i++) {
		churners[i] =
			(struct churner){.member = member,
					 .pause_ns = (i + 2) * 3 * MILLISECOND,
					 .gap_ns = (i + 1) * gap_ns};
		TRY(reef_fiber_spawn(reef_fiber_sched(), churn, &churners[i],
				     &churners[i].fiber));
	}
	rc = reader(member);
	if (rc)
		member->pool->note[2] = 2;
	for (int i = 0; i < CHURNERS; i++) {
		reef_fiber_join(churners[i].fiber, &one);
		rc = rc ? rc : one;
	}
	return rc;
}

static int reader_in_a_crowd(struct member *member)
{
	return read_in_a_crowd(member, 0);
}

static int reader_among_some(struct member *member)
{
	return read_in_a_crowd(member, 7 * MILLISECOND);
}

static void client_fibers_inside_in_turn_let_epochs_pass(void **state)
{
	run(freer, reader_in_a_crowd);
	run(freer, reader_among_some);
}

static void client_mutant_that_pins_the_younger_is_found(void **state)
{
	pool_find(REEF_MUTANT_CLIENT_YOUNG_PIN, 0, freer, reader_among_some);
}

/* --- R8: waiting for memory --- */

/* Leases of 10 s: without a hurry it takes that and more. */
#define SOON (200 * MILLISECOND)

static int updates(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = 4 * MIB,
	};
	uint64_t blocks[64], begun, value = 1;
	struct reef_space *space;
	uint32_t count = 0, i;
	int rc;

	TRY(reef_space_open(member->reef, "space", &options, &space));
	/* That nodes have come is told once. */
	rc = reef_reclaim(space, SOON);
	WANT(!rc || rc == -ENOSPC);
	WANT_RC(reef_reclaim(space, SOON), -ENOSPC);
	while (!(rc = reef_alloc(space, 256 << 10, &blocks[count])))
		TRY(reef_write(member->reef, blocks[count++], &value, 8));
	WANT(rc == -EDQUOT && count > 4);
	/* Each but the first few has to wait for one that was freed. */
	for (i = 0; i < 3 * count; i++) {
		begun = reef_now_ns();
		TRY(reef_free(space, blocks[i % count], REEF_FREE_LATER));
		TRY(reef_alloc(space, 256 << 10, &blocks[i % count]));
		TRY(reef_write(member->reef, blocks[i % count], &value, 8));
		WANT(reef_now_ns() - begun < SOON);
	}
	/* Inside, nobody waits for themselves. */
	TRY(reef_free(space, blocks[0], REEF_FREE_LATER));
	reef_enter(member->reef);
	begun = reef_now_ns();
	WANT_RC(reef_reclaim(space, SOON), -EDEADLK);
	WANT_RC(reef_alloc(space, 256 << 10, &blocks[0]), -EDQUOT);
	WANT(reef_now_ns() - begun < SOON);
	reef_leave(member->reef);
	begun = reef_now_ns();
	TRY(reef_reclaim(space, SOON));
	WANT(reef_now_ns() - begun < SOON);
	WANT_RC(reef_reclaim(space, SOON), -ENOSPC);
	TRY(reef_alloc(space, 256 << 10, &blocks[0]));
	/* Another is inside for long. */
	member->pool->note[0] = 1;
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_free(space, blocks[1], REEF_FREE_LATER));
	WANT_RC(reef_reclaim(space, SOON), -ETIMEDOUT);
	member->pool->note[0] = 3;
	TRY(reef_reclaim(space, SOON));
	member->pool->note[0] = 4;
	return 0;
}

static int stays_inside(struct member *member)
{
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_enter(member->reef);
	member->pool->note[0] = 2;
	while (member->pool->note[0] == 2)
		TRY(reef_sleep(MILLISECOND));
	reef_leave(member->reef);
	while (member->pool->note[0] == 3)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void run_slow(int (*first)(struct member *member),
		     int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 10 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		pool_add(&pool, second);
		pool_finish(&pool);
	}
}

static void client_memory_that_waits_comes_back_soon(void **state)
{
	run_slow(updates, stays_inside);
}

/* Much is waiting, and nobody allocates. */
static int frees_much(struct member *member)
{
	struct reef_block_stats stats;
	struct reef_space *space;
	uint64_t block[32], value = 1;
	uint32_t i;

	TRY(member_space(member, &space));
	for (i = 0; i < 32; i++) {
		TRY(reef_alloc(space, 100 << 10, &block[i]));
		TRY(reef_write(member->reef, block[i], &value, 8));
	}
	for (i = 0; i < 31; i++) {
		TRY(reef_free(space, block[i], REEF_FREE_LATER));
		TRY(reef_sleep(20 * MILLISECOND));
		TRY(reef_block_stats(space, &stats));
		WANT(stats.bytes_waiting <= 2 * MIB);
	}
	member->pool->note[0] = 1;
	return 0;
}

/* How many renewals, in ops of the broker's link, while nothing is short. */
static int watches_calm(struct member *member)
{
	uint64_t before;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(SECOND));
	before = member->count.writes;
	TRY(reef_sleep(50 * SECOND));
	WANT(member->count.writes - before <= 22);
	return 0;
}

static void client_hurries_only_while_memory_is_short(void **state)
{
	run_slow(frees_much, watches_calm);
}

/* --- heaps that nobody has --- */

/* Two heaps: of the first all that can come back has, long ago. */
static int leaves_heaps(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = 4 * MIB,
	};
	uint64_t block, value = 1;
	struct reef_space *space, *spaces[2];
	struct reef *reefs[2];

	TRY(reef_space_open(member->reef, "space", &options, &space));
	for (int i = 0; i < 2; i++) {
		TRY(reef_client_handle(member->client, &reefs[i]));
		TRY(reef_space_open(reefs[i], "space", &options, &spaces[i]));
		TRY(reef_alloc(spaces[i], i ? MIB : 64, &block));
		TRY(reef_write(reefs[i], block, &value, 8));
	}
	reef_close(reefs[0]); /* with its spaces */
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	TRY(reef_free(spaces[1], block, REEF_FREE_LATER));
	reef_close(reefs[1]);
	member->pool->note[0] = 1;
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int wants_memory(struct member *member)
{
	struct reef_space *space;
	uint64_t block;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(10 * member->pool->ttl_ns));
	TRY(member_space(member, &space));
	TRY(reef_alloc(space, MIB, &block));
	member->pool->note[0] = 2;
	return 0;
}

static void client_every_heap_that_nobody_has_is_collected(void **state)
{
	run(leaves_heaps, wants_memory);
}

/* Of one much waits: all that there is, but for what a heap keeps. */
static int leaves_much(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = 32 * MIB,
	};
	uint64_t blocks[64], value = 1;
	struct reef_space *space, *own;
	uint32_t count = 0;
	struct reef *reef;
	int rc;

	TRY(reef_space_open(member->reef, "space", &options, &own));
	TRY(reef_client_handle(member->client, &reef));
	TRY(reef_space_open(reef, "space", &options, &space));
	while (!(rc = reef_alloc(space, 900 << 10, &blocks[count])))
		TRY(reef_write(reef, blocks[count++], &value, 8));
	WANT(rc == -EDQUOT && count > 16);
	for (uint32_t i = 0; i < count; i++)
		TRY(reef_free(space, blocks[i], REEF_FREE_LATER));
	reef_close(reef);
	member->pool->note[1] = count;
	member->pool->note[0] = 1;
	while (member->pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int wants_much(struct member *member)
{
	struct reef_space *space;
	uint64_t block;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(SOON));
	TRY(member_space(member, &space));
	for (uint64_t i = 0; i < member->pool->note[1] - 8; i++)
		TRY(reef_alloc(space, 900 << 10, &block));
	member->pool->note[0] = 2;
	return 0;
}

static void client_heap_that_nobody_has_gives_back_soon(void **state)
{
	run_slow(leaves_much, wants_much);
}

/* --- revocable memory --- */

static int borrower(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_REVOCABLE,
	};
	uint64_t kept, lent[12], value = 1;
	struct reef_space *space, *revocable;
	uint32_t i, lost = 0;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_space_open(member->reef, "lent", &options, &revocable));
	TRY(reef_alloc(space, 64, &kept));
	TRY(reef_write(member->reef, kept, &value, 8));
	for (i = 0; i < 12; i++) {
		TRY(reef_alloc(revocable, 2 * MIB, &lent[i]));
		TRY(reef_write(member->reef, lent[i], &value, 8));
	}
	member->pool->note[0] = 1;
	while (!lost) {
		for (i = 0; i < 12; i++) {
			rc = reef_write(member->reef, lent[i], &value, 8);
			WANT(rc == 0 || rc == -REEF_ELOST);
			lost += rc != 0;
		}
		TRY(reef_write(member->reef, kept, &value, 8));
		TRY(reef_sleep(10 * MILLISECOND));
	}
	member->pool->note[0] = 2;
	return 0;
}

static int lender_wants_it_back(struct member *member)
{
	struct reef_body body = {.ask.node_reclaim.bytes = 8 * MIB};
	struct reef_node_status status;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_node_status(member->pool->lenders[0].node, &status);
	body.ask.node_reclaim.node = status.id;
	TRY(reef_client_ask(member->reef, REEF_POOL_NODE_RECLAIM, false, &body,
			    NULL));
	while (member->pool->note[0] != 2)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void client_reclaimed_memory_is_lost_and_nothing_else(void **state)
{
	run(borrower, lender_wants_it_back);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_kinds_are_asked_about_a_dead_session),
		cmocka_unit_test(
			client_block_that_nobody_can_judge_holds_up_nobody),
		cmocka_unit_test(
			client_mutant_that_ends_recovery_early_is_found),
		cmocka_unit_test(
			client_recovery_waits_for_memory_that_is_closed),
		cmocka_unit_test(
			client_mutant_that_skips_what_is_closed_is_found),
		cmocka_unit_test(client_freed_for_later_waits_for_readers),
		cmocka_unit_test(client_mutant_that_does_not_pin_is_found),
		cmocka_unit_test(client_fibers_inside_in_turn_let_epochs_pass),
		cmocka_unit_test(client_mutant_that_pins_the_younger_is_found),
		cmocka_unit_test(client_memory_that_waits_comes_back_soon),
		cmocka_unit_test(client_hurries_only_while_memory_is_short),
		cmocka_unit_test(
			client_every_heap_that_nobody_has_is_collected),
		cmocka_unit_test(client_heap_that_nobody_has_gives_back_soon),
		cmocka_unit_test(
			client_reclaimed_memory_is_lost_and_nothing_else),
	};

	reef_kind_register(KIND, &kind_ops);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
