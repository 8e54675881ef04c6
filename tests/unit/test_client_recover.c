/* test_client_recover.c - what outlives a session and what does not: pages,
 * kinds, memory that waits for readers, memory that is taken back. */
#include "pool/rpc.h"
#include "pool_world.h"

#define KIND 9

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = pool_first_seed(); seed <= pool_last_seed(); seed++) {
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
	uint64_t live; /* the one that is still part of something */
} seen;

static int kind_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	seen.asked++;
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
	for (i = 0; i < 20; i++) {
		TRY(reef_sleep(member->pool->ttl_ns / 2));
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
	pool_find(REEF_CLIENT_MUTANT_NO_PIN, 0, freer, reader);
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
	struct reef_body body = {.size = 8 * MIB};
	struct reef_node_status status;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_node_status(member->pool->lenders[0].node, &status);
	body.node = status.id;
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
		cmocka_unit_test(client_freed_for_later_waits_for_readers),
		cmocka_unit_test(client_mutant_that_does_not_pin_is_found),
		cmocka_unit_test(
			client_reclaimed_memory_is_lost_and_nothing_else),
	};

	reef_kind_register(KIND, &kind_ops);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
