/* test_client_chaos.c - clients while brokers restart, nodes die and drain,
 * memory moves, links fall and sessions are fenced. */
#include "base/mutant.h"
#include "fixture/pool_world.h"
#include "pool/broker/internal.h"
#include "pool/client/keeper/keeper.h"
#include "pool/rpc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- a load: words that only this member changes --- */

struct load {
	struct member *member;
	struct reef_space *space;
	uint64_t words[16], expected[16];
	struct reef_random random;
	uint32_t rounds;
};

static int load_begin(struct load *load, struct member *member)
{
	uint64_t zero = 0;
	uint32_t i;
	int rc;

	load->member = member;
	reef_random_init(&load->random, member->number);
	TRY(member_space(member, &load->space));
	for (i = 0; i < 16; i++) {
		/* Several extents, so both nodes. */
		TRY(reef_alloc(load->space, i < 12 ? 64 : 2 * MIB,
			       &load->words[i]));
		while ((rc = reef_write(member->reef, load->words[i], &zero,
					8)) == -REEF_EINDOUBT)
			;
		TRY(rc);
	}
	return 0;
}

/* One round; every outcome but 0 is an error, except that what is in doubt is
 * looked at: it has happened, or not. */
static int load_round(struct load *load)
{
	struct reef *reef = load->member->reef;
	uint32_t i = (uint32_t)reef_random_below(&load->random, 16);
	uint64_t value, before, block;
	int rc;

	load->rounds++;
	TRY(reef_read(reef, load->words[i], &value, 8));
	WANT(value == load->expected[i]);
	rc = reef_faa(reef, load->words[i], 1, &before);
	if (rc == -REEF_EINDOUBT) {
		TRY(reef_read(reef, load->words[i], &value, 8));
		WANT(value == load->expected[i] ||
		     value == load->expected[i] + 1);
		load->expected[i] = value;
		rc = 0;
	} else if (!rc) {
		WANT(before == load->expected[i]);
		load->expected[i]++;
	}
	TRY(rc);
	TRY(reef_alloc(load->space, 100, &block));
	rc = reef_write(reef, block, &value, 8);
	if (rc != -REEF_EINDOUBT)
		TRY(rc);
	TRY(reef_free(load->space, block, 0));
	return 0;
}

/* --- the broker --- */

static int broker_restarts(struct member *member)
{
	struct load load = {0};
	uint64_t value;
	char name[32];
	int i, j;

	TRY(load_begin(&load, member));
	for (i = 0; i < 10; i++) {
		reef_sim_host_kill(member->pool->host);
		member->pool->broker = NULL;
		for (j = 0; j < 20; j++)
			TRY(load_round(&load));
		TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
					  member->pool));
		/* Waits for it, and happens once. */
		snprintf(name, sizeof(name), "name%d", i);
		TRY(reef_name_bind(load.space, name, 77, NULL));
		TRY(reef_name_lookup(load.space, name, &value, NULL));
		WANT(value == 77);
		TRY(reef_sleep(reef_random_below(&load.random,
						 3 * member->pool->ttl_ns)));
		TRY(load_round(&load));
	}
	return 0;
}

static void client_broker_restarts_and_nothing_is_lost(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, broker_restarts);
		pool_finish(&pool);
	}
}

/* Several ask for the same at once, of a broker that is away: then nobody knows
 * whether that memory is there. */
#define ASKERS 3

static int read_unknown(void *reef)
{
	uint64_t value;

	return reef_read(reef, UINT64_C(99) << 32, &value, sizeof(value));
}

static int all_read_unknown(struct member *member, int wanted)
{
	struct reef_fiber *fibers[ASKERS];
	int i, rc;

	for (i = 0; i < ASKERS; i++)
		TRY(reef_fiber_spawn(reef_fiber_sched(), read_unknown,
				     member->reef, &fibers[i]));
	for (i = 0; i < ASKERS; i++) {
		TRY(reef_fiber_join(fibers[i], &rc));
		WANT_RC(rc, wanted);
	}
	return 0;
}

static int asks_nobody(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	reef_sim_host_kill(member->pool->host);
	member->pool->broker = NULL;
	TRY(all_read_unknown(member, -REEF_ENOLINK));
	TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
				  member->pool));
	return all_read_unknown(member, -EFAULT);
}

static void client_broker_away_memory_is_not_nowhere(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, asks_nobody);
		pool_finish(&pool);
	}
}

/* The answer of a mutating request is lost with its link, again and again. */
static int once(struct member *member)
{
	uint64_t first = 0, second, value;
	struct reef_space *space;
	char name[32];
	int i;

	TRY(member_space(member, &space));
	for (i = 0; i < 30; i++) {
		snprintf(name, sizeof(name), "name%d", i);
		TRY(reef_name_bind(space, name, (uint64_t)i, &second));
		WANT(second > first);
		first = second;
		TRY(reef_name_lookup(space, name, &value, &second));
		WANT(value == (uint64_t)i && second == first);
	}
	member->pool->over = true;
	return 0;
}

static int cut_links(struct member *member)
{
	uint32_t i = 0;

	while (!member->pool->over) {
		reef_sim_partition(member->pool->members[0].host,
				   member->pool->host, i++ % 2 == 0);
		TRY(reef_sleep(reef_random_below(
			reef_sim_random(member->pool->sim), 4 * SECOND)));
	}
	return 0;
}

static void client_lost_answers_are_asked_for_again(void **state)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, 3);
	pool_add(&pool, once);
	pool_add(&pool, cut_links);
	pool_finish(&pool);
}

/* --- links --- */

static int with_lost_links(struct member *member)
{
	struct load load = {0};
	uint32_t i;

	TRY(load_begin(&load, member));
	for (i = 0; i < 300; i++)
		TRY(load_round(&load));
	member->pool->over = true;
	return 0;
}

static void client_links_fall_and_doubt_is_settled(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.lose_link_ppm = 20000};

		pool_start(&pool, seed);
		pool_add(&pool, with_lost_links);
		pool_finish(&pool);
	}
}

/* --- all at once --- */

static int storm_load(struct member *member)
{
	struct load load = {0};

	TRY(load_begin(&load, member));
	while (!member->pool->note[7])
		TRY(load_round(&load));
	return 0;
}

/* Kills two of the others, and the broker now and then, at any moment. */
static int storm(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	uint32_t i;

	for (i = 0; i < 8; i++) {
		TRY(reef_sleep(reef_random_below(random, 40 * MILLISECOND)));
		if (i == 3 || i == 5)
			reef_sim_host_kill(member->pool->members[i == 5].host);
		if (i % 4 == 2) {
			reef_sim_host_kill(member->pool->host);
			TRY(reef_sleep(
				reef_random_below(random, 100 * MILLISECOND)));
			TRY(reef_sim_host_restart(member->pool->host,
						  pool_broker_main,
						  member->pool));
		}
	}
	TRY(reef_sleep(member->pool->ttl_ns * 4));
	member->pool->note[7] = 1;
	return 0;
}

static void client_storm_leaves_the_others_alone(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.lose_link_ppm = 2000,
			/* Links fall, and are noticed late: a node must not be
			 * held for dead because of that. */
			.node_ttl_ns = 20 * SECOND,
			.ttl_ns = SECOND,
			.capacity = 64 * MIB,
		};

		pool_start(&pool, seed);
		pool_add(&pool, storm_load);
		pool_add(&pool, storm_load);
		pool_add(&pool, storm_load);
		pool_add(&pool, storm);
		pool_finish(&pool);
	}
}

/* --- fencing --- */

static int stands_still(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 1, session = reef_session(member->reef);
	struct reef_access list[2] = {{.kind = REEF_READ, .length = 8},
				      {.kind = REEF_READ, .length = 8}};
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	list[0].address = list[1].address = address;
	list[0].local = list[1].local = &value;
	member->pool->note[1] = address;
	member->pool->note[0] = 1; /* and the other one pauses us */
	while (!rc) {
		value++;
		rc = reef_write(member->reef, address, &value, 8);
		if (!rc && reef_sleep(MILLISECOND))
			return -REEF_EHOSTDEAD;
	}
	/* In doubt: one that was under way when the session ended. */
	WANT(rc == -REEF_EFENCED || rc == -REEF_EINDOUBT);
	WANT_RC(reef_write(member->reef, address, &value, 8), -REEF_EFENCED);
	WANT_RC(reef_health(member->reef), -REEF_EFENCED);
	WANT_RC(reef_read(member->reef, address, &value, 8), -REEF_EFENCED);
	/* A list that was refused does not look as if it were done. */
	WANT_RC(reef_execute(member->reef, list, 2), -REEF_EFENCED);
	WANT_RC(list[0].status, -REEF_EFENCED);
	WANT_RC(list[1].status, -REEF_EFENCED);
	WANT_RC(reef_alloc(space, 64, &address), -REEF_EFENCED);
	WANT_RC(reef_name_bind(space, "x", 1, NULL), -REEF_EFENCED);
	/* A new session. */
	member_leave(member);
	TRY(member_join(member));
	WANT(reef_session(member->reef) != session);
	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	return 0;
}

static int pauses_it(struct member *member)
{
	struct member *other = &member->pool->members[0];
	enum reef_session_view view = REEF_VIEW_ALIVE;
	struct reef_space *space;
	uint64_t before, after, address;
	uint32_t session;

	TRY(member_space(member, &space));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	session = reef_session(other->reef);
	TRY(reef_session_check(member->reef, session, &view));
	WANT(view == REEF_VIEW_ALIVE);
	reef_sim_host_pause(other->host);
	while (view != REEF_VIEW_ENDED) {
		TRY(reef_sleep(MILLISECOND));
		TRY(reef_session_check(member->reef, session, &view));
	}
	/* Its block comes back, and is never seen to change. */
	address = member->pool->note[1];
	TRY(reef_read(member->reef, address, &before, 8));
	reef_sim_host_resume(other->host);
	TRY(reef_sleep(SECOND));
	TRY(reef_read(member->reef, address, &after, 8));
	WANT(before == after);
	return 0;
}

static void client_paused_too_long_is_fenced(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, stands_still);
		pool_add(&pool, pauses_it);
		pool_finish(&pool);
	}
}

/* --- nodes --- */

static int node_dies(struct member *member)
{
	uint64_t blocks[8], value = 5, began_ns;
	struct reef_space *space;
	uint32_t i, lost = 0;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < 8; i++) {
		TRY(reef_alloc(space, 2 * MIB, &blocks[i]));
		TRY(reef_write(member->reef, blocks[i], &value, 8));
	}
	reef_sim_host_kill(member->pool->lenders[0].host);
	began_ns = reef_now_ns();
	for (i = 0; i < 8; i++) {
		rc = reef_write(member->reef, blocks[i], &value, 8);
		WANT(rc == 0 || rc == -REEF_ELOST);
		lost += rc != 0;
		WANT_RC(reef_read(member->reef, blocks[i], &value, 8), rc);
	}
	WANT(lost > 0 && lost < 8);
	WANT(reef_now_ns() - began_ns < 20 * SECOND);
	/* There is room elsewhere. */
	TRY(reef_alloc(space, 64, &blocks[0]));
	TRY(reef_write(member->reef, blocks[0], &value, 8));
	return 0;
}

static void client_dead_node_loses_its_memory_only(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, node_dies);
		pool_finish(&pool);
	}
}

/* The broker does not hear from a node and holds it for dead; we do, and leave
 * it alone all the same. */
static int node_is_cut_off(struct member *member)
{
	uint64_t blocks[8], value = 5;
	struct reef_space *space;
	uint32_t i, lost = 0;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < 8; i++) {
		TRY(reef_alloc(space, 2 * MIB, &blocks[i]));
		TRY(reef_write(member->reef, blocks[i], &value, 8));
	}
	reef_sim_partition(member->pool->host, member->pool->lenders[0].host,
			   true);
	TRY(reef_sleep(5 * SECOND));
	for (i = 0; i < 8; i++) {
		rc = reef_write(member->reef, blocks[i], &value, 8);
		WANT(rc == 0 || rc == -REEF_ELOST);
		lost += rc != 0;
	}
	WANT(lost > 0 && lost < 8);
	return 0;
}

static void client_node_held_for_dead_is_left_alone(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, node_is_cut_off);
		pool_finish(&pool);
	}
}

/* --- FENCED, and a node that did not confirm it --- */

#define FENCE_BLOCKS 8u
#define FENCE_SPACES 40u
static uint64_t fence_blocks[FENCE_BLOCKS]; /* one pool at a time */

/* The broker hears neither this session nor a node that it writes to: the node
 * is declared dead, so the session becomes FENCED, and writes there all the
 * same. */
static int writes_when_fenced(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	uint64_t value = 5;
	uint32_t i;

	TRY(member_space(member, &space));
	for (i = 0; i < FENCE_BLOCKS; i++) {
		TRY(reef_alloc(space, 2 * MIB, &fence_blocks[i]));
		TRY(reef_write(member->reef, fence_blocks[i], &value, 8));
		/* Or its memory goes back once it is recovered. */
		TRY(reef_keep(space, fence_blocks[i]));
	}
	pool->note[1] = reef_session(member->reef);
	pool->note[0] = 1;
	while (pool->note[0] == 1)
		TRY(reef_sleep(MILLISECOND));
	reef_sim_partition(pool->host, member->host, true);
	reef_sim_partition(pool->host, pool->lenders[0].host, true);
	return reef_sleep(REEF_FOREVER);
}

static int count_lost(struct member *member, uint32_t *lost)
{
	uint64_t value;
	int rc;

	*lost = 0;
	for (uint32_t i = 0; i < FENCE_BLOCKS; i++) {
		rc = reef_read(member->reef, fence_blocks[i], &value, 8);
		WANT(rc == 0 || rc == -REEF_ELOST);
		*lost += rc != 0;
	}
	return 0;
}

/* Who is told that a session is FENCED knows by then what is LOST. It has many
 * spaces open, so that to learn it from a notice alone takes long. */
static int believes_fenced(struct member *member)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space, *others[FENCE_SPACES];
	enum reef_session_view view = REEF_VIEW_ALIVE;
	struct pool *pool = member->pool;
	struct reef_state_summary summary;
	uint32_t i, lost, then;
	char name[16];

	while (!pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	for (i = 0; i < FENCE_SPACES; i++) {
		snprintf(name, sizeof(name), "other%u", i);
		TRY(reef_space_open(member->reef, name, &options, &others[i]));
	}
	TRY(count_lost(member, &lost));
	WANT(lost == 0);
	pool->note[0] = 2;
	while (view != REEF_VIEW_ENDED) {
		TRY(reef_session_check(member->reef, (uint32_t)pool->note[1],
				       &view));
		TRY(reef_sleep(5000));
	}
	reef_state_summary(pool->broker->state, &summary);
	WANT(member->client->view_epoch >= summary.pool_epoch);
	TRY(count_lost(member, &lost));
	TRY(reef_sleep(2 * SECOND));
	TRY(count_lost(member, &then));
	WANT(lost == then && lost > 0 && lost < FENCE_BLOCKS);
	reef_sim_host_kill(pool->members[0].host);
	return 0;
}

static void client_fenced_is_told_with_what_was_lost(void **state)
{
	pool_run_lossy(0, writes_when_fenced, believes_fenced);
	pool_find(REEF_MUTANT_CLIENT_FENCED_EARLY, 0, writes_when_fenced,
		  believes_fenced);
}

/* --- a pool to which no node has come --- */

static int first_node_comes(struct member *member)
{
	uint64_t block, value = 5, began_ns = reef_now_ns();
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &block));
	WANT(reef_now_ns() - began_ns < 8 * SECOND);
	TRY(reef_write(member->reef, block, &value, 8));
	/* Nodes that are there and full say so at once. */
	TRY(member_wait(member));
	began_ns = reef_now_ns();
	while (!(rc = reef_alloc(space, 2 * MIB, &block)))
		;
	WANT(rc == -ENOSPC);
	WANT(reef_now_ns() - began_ns < 5 * SECOND);
	return 0;
}

static int no_node_comes(struct member *member)
{
	uint64_t block, began_ns = reef_now_ns();
	struct reef_space *space;

	TRY(member_space(member, &space));
	WANT_RC(reef_alloc(space, 64, &block), -ENOSPC);
	WANT(reef_now_ns() - began_ns >= 20 * SECOND);
	WANT(reef_now_ns() - began_ns < 60 * SECOND);
	return 0;
}

static void client_pool_without_a_node_is_not_full(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.nodes_late_ns = 7 * SECOND};
		struct pool other = {.nodes_late_ns = 500 * SECOND};

		pool_start(&pool, seed);
		pool_add(&pool, first_node_comes);
		pool_finish(&pool);
		pool_start(&other, seed);
		pool_add(&other, no_node_comes);
		pool_finish(&other);
	}
}

static void client_mutants_are_found(void **state)
{
	pool_find(REEF_MUTANT_CLIENT_REPEAT, 20000, with_lost_links, NULL);
}

static int loaded(struct member *member)
{
	struct load load = {0};

	TRY(load_begin(&load, member));
	member->pool->note[0] = 1;
	while (member->pool->note[1] < 2) {
		TRY(load_round(&load));
		TRY(reef_sleep(reef_random_below(&load.random, MILLISECOND)));
	}
	return 0;
}

static int node_state(struct member *member, uint32_t number, uint8_t *state,
		      uint32_t *extents)
{
	struct reef_body body = {.ask.list.row = REEF_ROW_NODE};
	struct reef_answer answer = {0};
	struct reef_cursor_in in;
	struct reef_row row;

	TRY(reef_client_ask(member->reef, REEF_POOL_LIST, false, &body,
			    &answer));
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &row) == 1)
		if (row.row == REEF_ROW_NODE && row.node.number == number) {
			*state = row.node.state;
			*extents = row.node.extents;
		}
	reef_answer_free(&answer);
	return 0;
}

static int drain(struct member *member)
{
	struct reef_node_status status;
	uint32_t extents = 1, i;
	uint8_t state = 0;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < NODES; i++) {
		struct reef_body body = {0};

		reef_node_status(member->pool->lenders[i].node, &status);
		body.ask.node_drain.node = status.id;
		TRY(reef_client_ask(member->reef, REEF_POOL_NODE_DRAIN, true,
				    &body, NULL));
		do {
			TRY(reef_sleep(10 * MILLISECOND));
			TRY(node_state(member, status.id, &state, &extents));
		} while (extents || state != 3); /* DRAINED */
		body.ask.node_drain.flags = REEF_POOL_DRAIN_STOP;
		TRY(reef_client_ask(member->reef, REEF_POOL_NODE_DRAIN, true,
				    &body, NULL));
		member->pool->note[1]++;
	}
	return 0;
}

static void client_drain_goes_unnoticed(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.capacity = 64 * MIB};

		pool_start(&pool, seed);
		pool_add(&pool, loaded);
		pool_add(&pool, drain);
		pool_finish(&pool);
	}
}

/* --- recovery --- */

static int is_killed(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 3;
	uint32_t i;

	TRY(member_space(member, &space));
	for (i = 0; i < 100; i++) {
		TRY(reef_alloc(space, 32768, &address));
		TRY(reef_write(member->reef, address, &value, 8));
	}
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_keep(space, address));
	member->pool->note[1] = address;
	member->pool->note[0] = 1;
	return reef_sleep(REEF_FOREVER);
}

static int survives(struct member *member)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = 8 * MIB,
	};
	uint64_t address, value = 4;
	struct reef_space *space;
	uint32_t i;
	int rc = -EDQUOT;

	TRY(reef_space_open(member->reef, "space", &options, &space));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(member->pool->members[0].host);
	/* What it had comes back to us. */
	for (i = 0; i < 100; i++) {
		while ((rc = reef_alloc(space, 32768, &address)) == -EDQUOT)
			TRY(reef_sleep(MILLISECOND));
		TRY(rc);
		TRY(reef_write(member->reef, address, &value, 8));
	}
	TRY(reef_read(member->reef, member->pool->note[1], &value, 8));
	WANT(value == 3);
	TRY(reef_free(space, member->pool->note[1], 0));
	return 0;
}

static void client_killed_gives_its_blocks_to_another(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, is_killed);
		pool_add(&pool, survives);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_broker_restarts_and_nothing_is_lost),
		cmocka_unit_test(client_broker_away_memory_is_not_nowhere),
		cmocka_unit_test(client_lost_answers_are_asked_for_again),
		cmocka_unit_test(client_links_fall_and_doubt_is_settled),
		cmocka_unit_test(client_storm_leaves_the_others_alone),
		cmocka_unit_test(client_paused_too_long_is_fenced),
		cmocka_unit_test(client_dead_node_loses_its_memory_only),
		cmocka_unit_test(client_node_held_for_dead_is_left_alone),
		cmocka_unit_test(client_fenced_is_told_with_what_was_lost),
		cmocka_unit_test(client_pool_without_a_node_is_not_full),
		cmocka_unit_test(client_mutants_are_found),
		cmocka_unit_test(client_drain_goes_unnoticed),
		cmocka_unit_test(client_killed_gives_its_blocks_to_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
