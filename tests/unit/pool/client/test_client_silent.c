/* test_client_silent.c - nodes that go silent: their machine has lost its
 * power, or its cable, and nothing resets a connection.
 *
 * What must hold, with two copies of the memory:
 *
 * (1) No session that renews its lease is ended because some node is silent,
 *     however long its fabric takes to notice that by itself.
 * (2) What is under way at a node that the broker has given up ends when the
 *     view says so, and goes on with the copy that is left: nobody waits for
 *     the fabric's silence.
 * (3) Links to nodes that live are not cut off: what is under way there is not
 *     in doubt.
 *
 * The fabric's silence is 3 seconds here, a lease far less. */
#include "fixture/pool_world.h"

#include "pool/broker/internal.h"
#include "wire/states.h"

#include <string.h>

#define WORKERS 3
#define WORDS 4
#define STEPS_NS (2 * SECOND)
#define CALM_NS (3 * SECOND) /* nodes have learnt by then to pulse often */

static struct {
	uint32_t step; /* 1: there are words; 2: a node is silent */
	uint64_t words[WORDS];
	bool over;
	uint64_t longest_ns; /* call */
	uint64_t limit_ns;   /* for a call; 0: none */
	uint64_t calm_ns;    /* before anything happens */
	bool may_doubt;
	uint64_t done;
} scene;

static struct reef_random *chance(const struct member *member)
{
	return reef_sim_host_random(member->host);
}

/* --- who uses memory --- */

static int make_words(struct member *member, struct reef_space *space)
{
	(void)member;
	for (uint32_t i = 0; i < WORDS; i++) {
		TRY(reef_alloc(space, 64, &scene.words[i]));
		TRY(reef_keep(space, scene.words[i]));
	}
	scene.step = 1;
	return 0;
}

static int access_word(struct member *member)
{
	uint64_t number = reef_random_next(chance(member)), now_ns;
	struct reef_access access = {
		.address = scene.words[number % WORDS],
		.local = &number,
		.length = 8,
		.operand = 1,
	};
	static const uint8_t kinds[] = {REEF_READ, REEF_WRITE, REEF_FAA};
	uint64_t from_ns = reef_now_ns();
	int rc;

	access.kind = kinds[number / WORDS % 3];
	if (access.kind != REEF_FAA)
		access.address += 8;
	rc = reef_execute(member->reef, &access, 1);
	now_ns = reef_now_ns();
	if (now_ns - from_ns > scene.longest_ns)
		scene.longest_ns = now_ns - from_ns;
	if (rc == -REEF_EINDOUBT && scene.may_doubt)
		rc = 0;
	TRY(rc);
	WANT(!scene.limit_ns || now_ns - from_ns <= scene.limit_ns);
	scene.done++;
	return 0;
}

static int works(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	if (member->number == 1)
		TRY(make_words(member, space));
	TRY(member_await(member, &scene.step, 1));
	while (!scene.over) {
		TRY(access_word(member));
		TRY(reef_sleep(
			reef_random_below(chance(member), 2 * MILLISECOND)));
	}
	/* It is nobody who was ended meanwhile. */
	TRY(access_word(member));
	reef_space_close(space);
	return 0;
}

/* Nothing but READs, which ask the primary alone, nearly all the time. */
static int reads(struct member *member)
{
	struct reef_space *space;
	uint64_t word;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	while (!scene.over) {
		TRY(reef_read(member->reef, scene.words[0], &word, 8));
		TRY(reef_sleep(
			reef_random_below(chance(member), MILLISECOND / 20)));
	}
	reef_space_close(space);
	return 0;
}

/* Leaves in the moment that a node goes silent, which was told of it. */
static int leaves(struct member *member)
{
	struct reef_space *space;
	uint64_t word;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	TRY(reef_read(member->reef, scene.words[0], &word, 8));
	TRY(member_await(member, &scene.step, 2));
	reef_space_close(space);
	return 0;
}

/* Comes when a node is silent, and has no link to it yet. */
static int comes(struct member *member)
{
	struct reef_space *space;

	TRY(member_await(member, &scene.step, 2));
	TRY(member_space(member, &space));
	while (!scene.over) {
		TRY(access_word(member));
		TRY(reef_sleep(10 * MILLISECOND));
	}
	reef_space_close(space);
	return 0;
}

/* --- what befalls nodes --- */

/* Cut a node off from everybody who works there, or let it through again. */
static void cut_clients(struct pool *pool, uint32_t index, bool cut)
{
	for (uint32_t i = 0; i < pool->count; i++)
		reef_sim_partition(pool->members[i].host,
				   pool->lenders[index].host, cut);
}

/* The same, and from the broker. */
static void cut_node(struct pool *pool, uint32_t index, bool cut)
{
	cut_clients(pool, index, cut);
	reef_sim_partition(pool->host, pool->lenders[index].host, cut);
}

/* The broker's number of a node. */
static uint32_t node_of(const struct pool *pool, uint32_t index)
{
	struct reef_node_status status;

	reef_node_status(pool->lenders[index].node, &status);
	return status.id;
}

static int one_goes_silent(struct member *member)
{
	struct pool *pool = member->pool;

	TRY(member_await(member, &scene.step, 1));
	TRY(reef_sleep(scene.calm_ns +
		       reef_random_below(chance(member), SECOND / 4)));
	cut_node(pool, pool->seed % NODES, true);
	scene.step = 2;
	TRY(reef_sleep(STEPS_NS));
	scene.over = true;
	return 0;
}

/* One goes silent, and around the time that it is given up the other does. That
 * one has all its ttl then, as nobody else has its memory, and comes back. */
static int both_go_silent(struct member *member)
{
	struct pool *pool = member->pool;
	uint32_t first = pool->seed % NODES, gone;

	TRY(member_await(member, &scene.step, 1));
	TRY(reef_sleep(scene.calm_ns));
	gone = node_of(pool, first);
	cut_node(pool, first, true);
	scene.step = 2;
	TRY(reef_sleep(700 * MILLISECOND));
	if (pool->seed % 4 < 2)
		TRY(reef_sleep(
			reef_random_below(chance(member), 250 * MILLISECOND)));
	else
		while (!reef_node_is_gone(
			reef_state_node(pool->broker->state, gone)->state))
			TRY(reef_sleep(MILLISECOND / 50));
	/* The last that it does is to close what it has. */
	cut_clients(pool, 1 - first, true);
	TRY(reef_sleep(reef_random_below(chance(member), 2 * MILLISECOND)));
	cut_node(pool, 1 - first, true);
	TRY(reef_sleep(STEPS_NS));
	cut_node(pool, 1 - first, false);
	TRY(reef_sleep(STEPS_NS / 2));
	scene.over = true;
	return 0;
}

/* --- runs --- */

static int run(uint64_t seed, struct pool pool,
	       int (*fate)(struct member *member))
{
	pool.copies = 2;
	pool.witnesses = 3;
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < WORKERS; i++)
		pool_add(&pool, works);
	pool_add(&pool, reads);
	pool_add(&pool, leaves);
	pool_add(&pool, comes);
	pool_add(&pool, fate);
	return pool_end(&pool);
}

static int run_one(uint64_t seed)
{
	memset(&scene, 0, sizeof(scene));
	scene.limit_ns = SECOND;
	scene.calm_ns = SECOND / 4;
	scene.may_doubt = true;
	return run(seed,
		   (struct pool){
			   .ttl_ns = 60 * MILLISECOND,
			   .node_ttl_ns = 200 * MILLISECOND,
		   },
		   one_goes_silent);
}

/* A node that is missed before its ttl is over, which is how long nodes may
 * take to answer the broker. */
static int run_early(uint64_t seed)
{
	memset(&scene, 0, sizeof(scene));
	/* A pulse that comes late may let it seem to be there for longer. */
	scene.limit_ns = 2700 * MILLISECOND;
	scene.calm_ns = CALM_NS;
	scene.may_doubt = true;
	return run(seed,
		   (struct pool){
			   .ttl_ns = 60 * MILLISECOND,
			   .node_ttl_ns = 3 * SECOND,
		   },
		   one_goes_silent);
}

static int run_both(uint64_t seed)
{
	memset(&scene, 0, sizeof(scene));
	scene.calm_ns = CALM_NS;
	scene.may_doubt = true;
	return run(seed,
		   (struct pool){
			   .ttl_ns = 60 * MILLISECOND,
			   .node_ttl_ns = 3 * SECOND,
			   .patience_ns = 60 * SECOND,
		   },
		   both_go_silent);
}

static void run_seeds(int (*one)(uint64_t seed))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(6, 500)); seed++) {
		assert_int_equal(one(seed), 0);
		assert_true(scene.done > 500);
	}
}

static void client_silent_node_is_left_when_it_is_given_up(void **state)
{
	(void)state;
	run_seeds(run_one);
	run_seeds(run_early);
}

static void client_silent_nodes_end_no_session(void **state)
{
	(void)state;
	run_seeds(run_both);
}

/* Runs that fail leave what they had open. */
#if !SANITIZED
static void find(enum reef_mutant mutant, int (*one)(uint64_t seed))
{
	bool found = false;

	try_quiet = true;
	reef_mutate(mutant);
	for (uint64_t seed = 1; seed <= 12 && !found; seed++)
		found = one(seed) != 0;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void client_silent_mutants_are_found(void **state)
{
	(void)state;
	find(REEF_MUTANT_BROKER_GONE_UNTOLD, run_one);
	find(REEF_MUTANT_CLIENT_CONNECT_ON, run_one);
	find(REEF_MUTANT_BROKER_BLAME_SILENCE, run_both);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			client_silent_node_is_left_when_it_is_given_up),
		cmocka_unit_test(client_silent_nodes_end_no_session),
#if !SANITIZED
		cmocka_unit_test(client_silent_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
