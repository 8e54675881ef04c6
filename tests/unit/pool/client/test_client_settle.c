/* test_client_settle.c - a client that reaches the broker and not its nodes:
 * what was under way on the links that it lost is settled by the broker, and
 * until it is, it meets no memory that was reused. */
#include "fixture/pool_world.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/view.h"

#include <string.h>

#define WORDS 8
#define BLOCK 1000
/* From when a link is cut to the last moment at which what was under way on it
 * may take effect: silence, and the simulator's lateness, with some to spare.
 */
#define LATE (17 * SECOND)

/* Simulated hosts share this memory. */
static struct {
	uint64_t words[WORDS]; /* addresses, on both nodes */
	int status[WORDS];     /* of the cut member's WRITEs */
	uint32_t step;	       /* how far the members are */
	uint32_t session;      /* of the cut member */
	bool heals_early; /* before what was under way had to take effect */
	bool has_waited;  /* a block stayed away as long as it should */
	uint32_t doubts, timeouts;
	uint32_t early; /* steps that came before the WRITEs were settled */
} scene;

static void reach_step(uint32_t step)
{
	if (scene.step < step)
		scene.step = step;
}

/* Write a value to all words in one call; note what it says. */
static void write_words(struct member *member, const uint64_t *value)
{
	struct reef_access accesses[WORDS];

	for (uint32_t i = 0; i < WORDS; i++)
		accesses[i] = (struct reef_access){
			.kind = REEF_WRITE,
			.address = scene.words[i],
			.local = (void *)value,
			.length = 8,
		};
	reef_execute(member->reef, accesses, WORDS);
	for (uint32_t i = 0; i < WORDS; i++) {
		scene.status[i] = accesses[i].status;
		scene.doubts += scene.status[i] == -REEF_EINDOUBT;
		scene.timeouts += scene.status[i] == -ETIMEDOUT;
	}
}

/* --- a cut client --- */

/* Have both links ready, then lose both with WRITEs under way. */
static int writes_cut_off(struct member *member)
{
	static const uint64_t first = 1, lost = 3;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	write_words(member, &first);
	pool_cut_nodes(member->pool, member->host, true);
	reach_step(2);
	write_words(member, &lost);
	reach_step(3);
	TRY(member_await(member, &scene.step, 4));
	pool_cut_nodes(member->pool, member->host, false);
	reach_step(5);
	return member_await(member, &scene.step, 6);
}

/* Allocate words on both nodes, for all to use. */
static int allocate_words(struct member *member, struct reef_space **space)
{
	TRY(member_space(member, space));
	for (uint32_t i = 0; i < WORDS; i++) {
		TRY(reef_alloc(*space, 2 * MIB, &scene.words[i]));
		TRY(reef_keep(*space, scene.words[i]));
	}
	return 0;
}

/* Whatever was in doubt is written anew; the old value must not come back, even
 * if the network between the cut client and the nodes heals. */
static int writes_anew(struct member *member)
{
	uint64_t value = 4;
	struct reef_space *space;
	uint32_t i;

	TRY(allocate_words(member, &space));
	reach_step(1);
	TRY(member_await(member, &scene.step, 3));
	for (i = 0; i < WORDS; i++)
		if (scene.status[i] == -REEF_EINDOUBT)
			TRY(reef_write(member->reef, scene.words[i], &value,
				       8));
	if (scene.heals_early)
		reach_step(4);
	TRY(reef_sleep(LATE));
	for (i = 0; i < WORDS; i++) {
		WANT(scene.status[i] == 0 ||
		     scene.status[i] == -REEF_EINDOUBT ||
		     scene.status[i] == -REEF_ENOTDONE);
		if (scene.status[i] != -REEF_EINDOUBT)
			continue;
		TRY(reef_read(member->reef, scene.words[i], &value, 8));
		WANT(value == 4);
	}
	reach_step(6);
	return 0;
}

static int run_cut(uint64_t seed, struct pool *pool,
		   int (*second)(struct member *member),
		   int (*third)(struct member *member))
{
	memset(&scene, 0, offsetof(typeof(scene), doubts));
	scene.heals_early = seed % 2;
	pool_start(pool, seed);
	pool_add(pool, writes_cut_off);
	pool_add(pool, second);
	if (third)
		pool_add(pool, third);
	return pool_end(pool);
}

static void run_cuts(int (*second)(struct member *member),
		     int (*third)(struct member *member))
{
	uint64_t seed;

	scene.doubts = 0;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 60 * SECOND,
				    .node_ttl_ns = 60 * SECOND};

		assert_int_equal(run_cut(seed, &pool, second, third), 0);
	}
	assert_true(scene.doubts > 0); /* else it has shown nothing */
}

static void find_cuts(enum reef_mutant mutant,
		      int (*second)(struct member *member))
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(mutant);
	for (seed = seeds_first(); seeds_has(seed, 20) && !found; seed++) {
		struct pool pool = {.ttl_ns = 60 * SECOND,
				    .node_ttl_ns = 60 * SECOND};

		found = run_cut(seed, &pool, second, NULL) != 0;
	}
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void client_settle_cut_from_its_nodes_ends_its_links(void **state)
{
	run_cuts(writes_anew, NULL);
}

static void client_settle_one_link_of_two_is_found(void **state)
{
	find_cuts(REEF_MUTANT_BROKER_SETTLE_ONE, writes_anew);
}

/* --- others die meanwhile --- */

/* Restart the broker again and again while the question is under way. */
static int kills_broker(struct member *member)
{
	struct pool *pool = member->pool;

	TRY(member_await(member, &scene.step, 2));
	for (uint32_t i = 0; i < 12 && scene.step < 3; i++) {
		/* Links are lost after 3 s; the question comes right after. */
		TRY(reef_sleep(
			i ? 20 * MILLISECOND
			  : 2950 * MILLISECOND +
					reef_random_below(
						reef_sim_random(pool->sim),
						150 * MILLISECOND)));
		reef_sim_host_kill(pool->host);
		TRY(reef_sleep(MILLISECOND));
		TRY(reef_sim_host_restart(pool->host, pool_broker_main, pool));
	}
	return 0;
}

static void client_settle_with_a_broker_that_dies_asks_the_next(void **state)
{
	run_cuts(writes_anew, kills_broker);
}

/* The node dies while it is to end the link: its memory is lost, and with it
 * what was in doubt. */
static int kills_nodes(struct member *member)
{
	struct reef_space *space;
	uint32_t i;

	TRY(allocate_words(member, &space));
	reach_step(1);
	TRY(member_await(member, &scene.step, 2));
	TRY(reef_sleep(2950 * MILLISECOND +
		       reef_random_below(reef_sim_random(member->pool->sim),
					 150 * MILLISECOND)));
	for (i = 0; i < NODES; i++)
		reef_sim_host_kill(member->pool->lenders[i].host);
	TRY(member_await(member, &scene.step, 3));
	for (i = 0; i < WORDS; i++)
		WANT(scene.status[i] == -REEF_ELOST ||
		     scene.status[i] == -REEF_EINDOUBT ||
		     scene.status[i] == -REEF_ENOTDONE);
	reach_step(6);
	return 0;
}

static void client_settle_with_a_node_that_dies_is_over(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.witnesses = WITNESSES_MAX,
		};

		assert_int_equal(run_cut(seed, &pool, kills_nodes, NULL), 0);
	}
}

/* The client stands still with its WRITEs under way: it is fenced, which
 * settles them. */
static int writes_and_stops(struct member *member)
{
	static const uint64_t first = 1, lost = 3;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	write_words(member, &first);
	scene.session = reef_session(member->reef);
	pool_cut_nodes(member->pool, member->host, true);
	reach_step(2);
	write_words(member, &lost); /* stops in it */
	TRY(member_await(member, &scene.step, 6));
	return 0;
}

static int writes_after_fence(struct member *member)
{
	struct reef_sim_host *other = member->pool->members[0].host;
	uint64_t value = 4;
	struct reef_space *space;
	enum reef_session_view view;
	uint32_t i;

	TRY(allocate_words(member, &space));
	reach_step(1);
	TRY(member_await(member, &scene.step, 2));
	TRY(reef_sleep(3050 * MILLISECOND));
	reef_sim_host_pause(other);
	do {
		TRY(reef_sleep(10 * MILLISECOND));
		TRY(reef_session_check(member->reef, scene.session, &view));
	} while (view != REEF_VIEW_ENDED);
	for (i = 0; i < WORDS; i++)
		TRY(reef_write(member->reef, scene.words[i], &value, 8));
	pool_cut_nodes(member->pool, other, false);
	reef_sim_host_resume(other);
	TRY(reef_sleep(LATE));
	for (i = 0; i < WORDS; i++) {
		TRY(reef_read(member->reef, scene.words[i], &value, 8));
		WANT(value == 4);
	}
	reach_step(6);
	return 0;
}

static void client_settle_of_a_stopped_client_is_its_fence(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.node_ttl_ns = 60 * SECOND};

		memset(&scene, 0, sizeof(scene));
		pool_start(&pool, seed);
		pool_add(&pool, writes_and_stops);
		pool_add(&pool, writes_after_fence);
		pool_finish(&pool);
	}
}

/* --- what nobody can settle --- */

/* WRITE to a block over a link that is cut; the broker cannot reach the node
 * either. */
static int writes_unsettled(struct member *member)
{
	uint8_t bytes[BLOCK];
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	TRY(reef_read(member->reef, scene.words[0], bytes, 8));
	pool_cut_nodes(member->pool, member->host, true);
	pool_cut_nodes(member->pool, member->pool->host, true);
	memset(bytes, 0xee, sizeof(bytes));
	scene.status[0] =
		reef_write(member->reef, scene.words[0], bytes, sizeof(bytes));
	scene.timeouts += scene.status[0] == -ETIMEDOUT;
	reach_step(2);
	return member_await(member, &scene.step, 4);
}

/* Try to get that very block again, *is: this is it. Others are given back. */
static int allocate_again(struct reef_space *space, uint64_t wanted, bool *is)
{
	static uint64_t blocks[512];
	uint32_t count = 0;
	int rc;

	*is = false;
	rc = reef_reclaim(space, 50 * MILLISECOND);
	if (rc == -ETIMEDOUT || rc == -ENOSPC)
		rc = 0;
	while (!rc && !*is && count < 512) {
		rc = reef_alloc(space, BLOCK, &blocks[count]);
		*is = !rc && blocks[count] == wanted;
		count += !rc && !*is;
	}
	while (count)
		TRY(reef_free(space, blocks[--count], 0));
	return rc == -ENOSPC ? 0 : rc;
}

static int check_block(struct member *member, uint64_t address,
		       const uint8_t *wanted)
{
	uint8_t bytes[BLOCK];

	TRY(reef_read(member->reef, address, bytes, sizeof(bytes)));
	WANT(!memcmp(bytes, wanted, sizeof(bytes)));
	return 0;
}

/* Free the block that another may still write to, and use its memory anew as
 * soon as that comes back. */
static int reuses_block(struct member *member)
{
	uint8_t bytes[BLOCK] = {0};
	uint64_t from_ns, address;
	struct reef_space *space;
	bool is = false;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, BLOCK, &address));
	TRY(reef_write(member->reef, address, bytes, sizeof(bytes)));
	scene.words[0] = address;
	reach_step(1);
	TRY(member_await(member, &scene.step, 2));
	WANT(scene.status[0] == -ETIMEDOUT);
	TRY(reef_free(space, address, REEF_FREE_LATER));
	memset(bytes, 0x11, sizeof(bytes));
	from_ns = reef_now_ns();
	while (reef_now_ns() - from_ns < LATE) {
		if (!is) {
			TRY(allocate_again(space, address, &is));
			if (is)
				TRY(reef_write(member->reef, address, bytes,
					       sizeof(bytes)));
		}
		if (is)
			TRY(check_block(member, address, bytes));
		TRY(reef_sleep(100 * MILLISECOND));
	}
	scene.early += is;
	/* Once it is settled, the memory comes back. */
	pool_cut_nodes(member->pool, member->pool->host, false);
	pool_cut_nodes(member->pool, member->pool->members[0].host, false);
	for (uint32_t i = 0; !is && i < 600; i++) {
		TRY(reef_sleep(100 * MILLISECOND));
		TRY(allocate_again(space, address, &is));
	}
	WANT(is);
	reach_step(4);
	return 0;
}

static int run_unsettled(uint64_t seed)
{
	struct pool pool = {
		.node_ttl_ns = 300 * SECOND,
		.patience_ns = MILLISECOND,
		.witnesses = WITNESSES_MAX,
	};

	memset(&scene, 0, offsetof(typeof(scene), doubts));
	pool_start(&pool, seed);
	pool_add(&pool, writes_unsettled);
	pool_add(&pool, reuses_block);
	return pool_end(&pool);
}

static void client_settle_unsettled_write_meets_no_reused_memory(void **state)
{
	uint64_t seed;

	scene.early = scene.timeouts = 0;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++)
		assert_int_equal(run_unsettled(seed), 0);
	assert_true(scene.timeouts > 0);
	/* Nobody could settle it, so nothing came back before they could. */
	assert_int_equal(scene.early, 0);
}

static void client_settle_dropped_pin_is_found(void **state)
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(REEF_MUTANT_CLIENT_PIN_DROPPED);
	for (seed = seeds_first(); seeds_has(seed, 20) && !found; seed++)
		found = run_unsettled(seed) == -EXDEV;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

/* --- numbers of links --- */

/* Have each link's hello be the last but that many. */
static void leave_numbers(struct member *member, uint32_t left)
{
	for (struct client_node *node = member->client->nodes; node;
	     node = node->next)
		node->hellos = UINT32_MAX - left;
}

static void lose_links(struct member *member)
{
	for (struct client_node *node = member->client->nodes; node;
	     node = node->next)
		if (node->link)
			reef_sim_lose_link(node->link);
}

/* The last number is used; who needs one more has to begin anew. */
static int runs_out_of_numbers(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 5;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	leave_numbers(member, 2);
	for (uint32_t i = 0; i < 2; i++) {
		lose_links(member);
		TRY(reef_read(member->reef, address, &value, 8));
		WANT(value == 5);
	}
	lose_links(member);
	WANT_RC(reef_read(member->reef, address, &value, 8), -REEF_EFENCED);
	WANT_RC(reef_health(member->reef), -REEF_EFENCED);
	member_leave(member);
	TRY(member_join(member));
	return member_space(member, &space);
}

static void client_settle_without_numbers_the_session_ends(void **state)
{
	struct pool pool = {0};

	pool_start(&pool, 1);
	pool_add(&pool, runs_out_of_numbers);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			client_settle_cut_from_its_nodes_ends_its_links),
		cmocka_unit_test(client_settle_one_link_of_two_is_found),
		cmocka_unit_test(
			client_settle_with_a_broker_that_dies_asks_the_next),
		cmocka_unit_test(client_settle_with_a_node_that_dies_is_over),
		cmocka_unit_test(
			client_settle_of_a_stopped_client_is_its_fence),
		cmocka_unit_test(
			client_settle_unsettled_write_meets_no_reused_memory),
		cmocka_unit_test(client_settle_dropped_pin_is_found),
		cmocka_unit_test(
			client_settle_without_numbers_the_session_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
