/* test_client_short.c - who needs memory waits for what is about to come back,
 * however it was freed, and says -ENOSPC where nothing is. */
#include "fixture/pool_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXTENT (2 * MIB)
#define CAPACITY (16 * MIB) /* of each of the two nodes */
#define SIZE 60000u
#define BLOCKS_MAX 1000u
#define CRUMBS 1000u

/* note[0]: the pool is full, and what its story is has begun.  note[1]: how
 * many blocks it was full with.  note[2]: the other has what it wanted. */
enum { BEGUN, COUNT, DONE };

#define SCRIPTS_MAX 4u

/* Run scripts, up to the first that is NULL. node_ttl_ns: 0: the usual. */
static void run_all(uint64_t ttl_ns, uint64_t node_ttl_ns,
		    int (*const scripts[SCRIPTS_MAX])(struct member *member))
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(3, 200));
	     seed++) {
		struct pool pool = {.extent_size = EXTENT,
				    .capacity = CAPACITY,
				    .ttl_ns = ttl_ns,
				    .node_ttl_ns = node_ttl_ns};

		pool_start(&pool, seed);
		for (uint32_t i = 0; i < SCRIPTS_MAX && scripts[i]; i++)
			pool_add(&pool, scripts[i]);
		pool_finish(&pool);
	}
}

static void run(int (*first)(struct member *member),
		int (*second)(struct member *member))
{
	run_all(TTL, 0,
		(int (*const[SCRIPTS_MAX])(struct member *)){first, second});
}

struct holder {
	struct reef_space *space;
	uint64_t blocks[BLOCKS_MAX], crumbs[CRUMBS];
	uint32_t count;
};

/* Take all there is. */
static int fill(struct member *member, struct holder *holder)
{
	int rc;

	memset(holder, 0, sizeof(*holder));
	TRY(member_space(member, &holder->space));
	for (uint32_t i = 0; i < CRUMBS; i++)
		TRY(reef_alloc(holder->space, 64, &holder->crumbs[i]));
	while (!(rc = reef_alloc(holder->space, SIZE,
				 &holder->blocks[holder->count])))
		WANT(++holder->count < BLOCKS_MAX);
	WANT(rc == -ENOSPC);
	WANT(holder->count > 2 * CAPACITY / MIB * 12);
	member->pool->note[COUNT] = holder->count;
	return 0;
}

static int free_blocks(struct holder *holder, uint32_t flags)
{
	while (holder->count)
		TRY(reef_free(holder->space, holder->blocks[--holder->count],
			      flags));
	return 0;
}

/* Go on with a free now and then, until the other is done. */
static int go_on(struct member *member, struct holder *holder)
{
	member->pool->note[BEGUN] = 1;
	for (uint32_t i = 0; !member->pool->note[DONE]; i++) {
		TRY(reef_sleep(20 * MILLISECOND));
		if (i < CRUMBS)
			TRY(reef_free(holder->space, holder->crumbs[i],
				      REEF_FREE_LATER));
	}
	return 0;
}

/* Take three quarters of what the pool was full with, at once. */
static int take_most(struct member *member, struct reef_space *space)
{
	uint64_t block;

	for (uint64_t i = 0; i < member->pool->note[COUNT] * 3 / 4; i++)
		TRY(reef_alloc(space, SIZE, &block));
	member->pool->note[DONE] = 1;
	return 0;
}

static int await_begun(struct member *member)
{
	while (!member->pool->note[BEGUN])
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int takes_most(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(await_begun(member));
	return take_most(member, space);
}

/* --- what another freed, and does not use --- */

static int frees_later(struct member *member)
{
	struct holder *holder = malloc(sizeof(*holder));

	TRY(fill(member, holder));
	TRY(free_blocks(holder, REEF_FREE_LATER));
	TRY(go_on(member, holder));
	free(holder);
	return 0;
}

static void client_short_waits_for_anothers_limbo(void **state)
{
	run(frees_later, takes_most);
}

static int frees_at_once(struct member *member)
{
	struct holder *holder = malloc(sizeof(*holder));

	TRY(fill(member, holder));
	TRY(free_blocks(holder, 0));
	TRY(go_on(member, holder));
	free(holder);
	return 0;
}

static void client_short_gets_anothers_spare_chunks(void **state)
{
	run(frees_at_once, takes_most);
}

/* --- in another space --- */

static int takes_most_elsewhere(struct member *member)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;

	TRY(await_begun(member));
	TRY(reef_space_open(member->reef, "elsewhere", &options, &space));
	return take_most(member, space);
}

static void client_short_gets_another_spaces_slack(void **state)
{
	run(frees_at_once, takes_most_elsewhere);
}

/* --- of who died --- */

static int is_killed(struct member *member)
{
	struct holder *holder = malloc(sizeof(*holder));

	TRY(fill(member, holder));
	/* What nobody can know is free at once. */
	for (uint32_t i = 0; i < holder->count; i++)
		TRY(reef_write(member->reef, holder->blocks[i], &i, sizeof(i)));
	member->pool->note[BEGUN] = 1;
	free(holder);
	return reef_sleep(REEF_FOREVER);
}

static int kills_and_takes_most(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(await_begun(member));
	reef_sim_host_kill(member->pool->members[0].host);
	return take_most(member, space);
}

static void client_short_waits_for_who_died(void **state)
{
	run(is_killed, kills_and_takes_most);
}

/* --- what a janitor puts in order --- */

static int janitor(struct member *member)
{
	return reef_janitor_run(member->reef, member_others_ended, member);
}

/* Kills the first member. The third, the janitor, reaches no memory until that
 * one was FENCED for a while; then it puts all in order, but reaches none again
 * when the epoch is over after which it should give all away. */
static int kills_and_holds_up(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_sim_host *host = pool->members[2].host;
	uint32_t session;
	bool has = true;

	TRY(await_begun(member));
	session = reef_session(pool->members[0].reef);
	pool_cut_nodes(pool, host, true);
	reef_sim_host_kill(pool->members[0].host);
	TRY(reef_sleep(3 * TTL));
	reef_enter(member->reef);
	pool_cut_nodes(pool, host, false);
	while (has)
		TRY(member_has_session(member, session, &has));
	pool_cut_nodes(pool, host, true);
	reef_leave(member->reef);
	TRY(reef_sleep(3 * TTL));
	pool_cut_nodes(pool, host, false);
	return 0;
}

/* What a janitor has not given away yet is coming, though nobody is to be
 * recovered any more. */
static void client_short_waits_for_who_was_recovered(void **state)
{
	run_all(TTL, 0,
		(int (*const[SCRIPTS_MAX])(struct member *)){
			is_killed, takes_most, janitor, kills_and_holds_up});
}

/* --- standing still --- */

#define LEASE (8 * SECOND)
/* Not long enough to be fenced, with a quarter of a lease since the renewal. */
#define STILL (4 * SECOND)
#define STOPS 9u /* in all longer than anybody waits for memory */

/* Frees all there is, while another is inside, and needs it again. */
static int is_stopped(struct member *member)
{
	struct holder *holder = malloc(sizeof(*holder));
	uint64_t block;

	TRY(fill(member, holder));
	member->pool->note[BEGUN] = 1;
	while (member->pool->note[BEGUN] == 1)
		TRY(reef_sleep(MILLISECOND));
	TRY(free_blocks(holder, REEF_FREE_LATER));
	TRY(reef_alloc(holder->space, SIZE, &block));
	member->pool->note[DONE] = 1;
	free(holder);
	return 0;
}

static int is_inside(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(await_begun(member));
	reef_enter(member->reef);
	member->pool->note[BEGUN] = 2;
	while (member->pool->note[BEGUN] != 3)
		TRY(reef_sleep(MILLISECOND));
	reef_leave(member->reef);
	return 0;
}

static int stops_the_first(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_sim_host *node = pool->lenders[1].host;

	while (pool->note[BEGUN] != 2)
		TRY(reef_sleep(MILLISECOND));
	/* Who may be waiting for a node that is silent is not ended. */
	reef_sim_partition(pool->host, node, true);
	for (uint32_t i = 0; i < STOPS; i++) {
		TRY(reef_sleep(500 * MILLISECOND));
		WANT(!pool->note[DONE]);
		reef_sim_host_pause(pool->members[0].host);
		TRY(reef_sleep(STILL));
		reef_sim_host_resume(pool->members[0].host);
	}
	reef_sim_partition(pool->host, node, false);
	pool->note[BEGUN] = 3;
	return 0;
}

static void client_short_counts_only_time_that_it_had(void **state)
{
	run_all(LEASE, 100 * LEASE,
		(int (*const[SCRIPTS_MAX])(struct member *)){
			is_stopped, is_inside, stops_the_first});
}

/* --- nothing comes --- */

static int keeps_all(struct member *member)
{
	struct holder *holder = malloc(sizeof(*holder));

	TRY(fill(member, holder));
	member->pool->note[BEGUN] = 1;
	while (!member->pool->note[DONE])
		TRY(reef_sleep(MILLISECOND));
	free(holder);
	return 0;
}

static int finds_it_full(struct member *member)
{
	struct reef_space *space;
	uint64_t block, begun_ns;
	int rc;

	TRY(member_space(member, &space));
	TRY(await_begun(member));
	for (uint32_t i = 0; i < 5; i++) {
		begun_ns = reef_now_ns();
		rc = reef_alloc(space, SIZE, &block);
		WANT(rc == -ENOSPC);
		/* Others get a moment to give something up, the first time. */
		WANT(reef_now_ns() - begun_ns < (i ? TTL : 3 * TTL));
	}
	member->pool->note[DONE] = 1;
	return 0;
}

static void client_full_says_so_soon(void **state)
{
	run(keeps_all, finds_it_full);
}

/* What it knew before it stood still says that the pool is full. */
static int finds_itself_fenced(struct member *member)
{
	struct reef_space *space;
	uint64_t block;

	TRY(member_space(member, &space));
	TRY(await_begun(member));
	member->pool->note[BEGUN] = 2;
	WANT_RC(reef_alloc(space, SIZE, &block), -REEF_EFENCED);
	member->pool->note[DONE] = 1;
	return 0;
}

static int stops_the_second(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_random *random = reef_sim_random(pool->sim);

	while (pool->note[BEGUN] != 2)
		TRY(reef_sleep(MILLISECOND));
	/* Others have 100 ms to give something up. */
	TRY(reef_sleep(reef_random_below(random, 90 * MILLISECOND)));
	reef_sim_host_pause(pool->members[1].host);
	TRY(reef_sleep(4 * TTL));
	reef_sim_host_resume(pool->members[1].host);
	return 0;
}

static void client_full_that_is_fenced_says_so(void **state)
{
	run_all(TTL, 0,
		(int (*const[SCRIPTS_MAX])(struct member *)){
			keeps_all, finds_itself_fenced, stops_the_second});
}

/* --- unlinked, and not freed --- */

#define KIND 9
#define STAGED 5u /* the first ones that are not live */

/* Blocks of the kind; one pool at a time. Those of odd index are not live. */
static struct {
	uint64_t blocks[BLOCKS_MAX];
	uint32_t count;
	bool is_unlinked;
} known;

static uint32_t index_of(uint64_t address)
{
	uint32_t i = 0;

	while (i < known.count && known.blocks[i] != address)
		i++;
	return i;
}

static int kind_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	return !known.is_unlinked || index_of(address) % 2 == 0;
}

static const struct reef_kind_ops kind_ops = {
	.name = "test",
	.is_quick = true,
	.is_live = kind_is_live,
};

static bool is_staged(uint32_t i)
{
	return i % 2 && i / 2 < STAGED;
}

static int finds_unlinked(struct member *member)
{
	struct reef_space *space;
	uint64_t block, count = 0;
	uint32_t i;
	int rc;

	memset(&known, 0, sizeof(known));
	TRY(member_space(member, &space));
	while (!(rc = reef_alloc_kind(space, KIND, SIZE,
				      &known.blocks[known.count]))) {
		TRY(reef_write(member->reef, known.blocks[known.count], &count,
			       sizeof(count)));
		WANT(++known.count < BLOCKS_MAX);
	}
	WANT(rc == -ENOSPC);
	for (i = 0; i < known.count; i++)
		if (is_staged(i))
			TRY(reef_block_stage(space, known.blocks[i], true));
	known.is_unlinked = true;
	/* A full pool is asked about a part at a time. */
	for (i = 0; i < 40; i++) {
		while (!(rc = reef_alloc(space, SIZE, &block))) {
			uint32_t was = index_of(block);

			WANT(was == known.count ||
			     (was % 2 && !is_staged(was)));
			count++;
		}
		WANT(rc == -ENOSPC);
		TRY(reef_sleep(SECOND));
	}
	WANT(count + STAGED >= known.count / 2);
	return 0;
}

static int run_unlinked(uint64_t seed)
{
	struct pool pool = {.extent_size = EXTENT, .capacity = CAPACITY};

	pool_start(&pool, seed);
	pool_add(&pool, finds_unlinked);
	return pool_end(&pool);
}

static void client_short_finds_what_nothing_names(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(2, 100));
	     seed++)
		assert_int_equal(run_unlinked(seed), 0);
}

#if !SANITIZED
static void client_asking_about_staged_blocks_is_found(void **state)
{
	reef_mutate(REEF_MUTANT_HEAP_SCAN_STAGED);
	assert_int_not_equal(run_unlinked(1), 0);
	reef_mutate(REEF_MUTANT_NONE);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_short_waits_for_anothers_limbo),
		cmocka_unit_test(client_short_gets_anothers_spare_chunks),
		cmocka_unit_test(client_short_gets_another_spaces_slack),
		cmocka_unit_test(client_short_waits_for_who_died),
		cmocka_unit_test(client_short_waits_for_who_was_recovered),
		cmocka_unit_test(client_short_counts_only_time_that_it_had),
		cmocka_unit_test(client_full_says_so_soon),
		cmocka_unit_test(client_full_that_is_fenced_says_so),
		cmocka_unit_test(client_short_finds_what_nothing_names),
#if !SANITIZED
		cmocka_unit_test(client_asking_about_staged_blocks_is_found),
#endif
	};

	reef_kind_register(KIND, &kind_ops);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
