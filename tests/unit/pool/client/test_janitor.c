/* test_janitor.c - a client that recovers what dead sessions left, in spaces
 * that nobody has open. What must hold:
 *   - a session is FENCED for no longer than about a lease while a janitor
 * lives
 *   - what was kept, or is part of something, is there; all else comes back,
 * and the janitor owns none of it
 *   - so it is wherever the janitor dies, when there is another */
#include "base/mutant.h"
#include "fixture/pool_world.h"
#include "pool/rpc.h"

#include <errno.h>
#include <string.h>

#define KIND 9
#define BLOCKS 24u
#define QUOTA (16 * MIB)
#define DEATHS 6u
#define STRIKES 120u

/* Blocks of KIND that are part of something; one pool at a time. */
static struct {
	uint64_t live[64];
	uint32_t count;
} book;

static int kind_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	for (uint32_t i = 0; i < book.count; i++)
		if (book.live[i] == address)
			return 1;
	return 0;
}

static const struct reef_kind_ops kind_ops = {
	.name = "test",
	.is_live = kind_is_live,
};

/* --- who takes part --- */

/* Notes of the pool. */
enum {
	DIED,	    /* how many have */
	STRUCK,	    /* janitors that were killed */
	STRIKE,	    /* the first is, after so many operations; 0: it is not */
	STRUCK_ID,  /* its session */
	DEAD_ID,    /* the session that died last */
	JANITORS,   /* how many there are; they are the first members */
	DEATHS_ALL, /* how many die */
};

/* The next one begins when the one before was killed. */
static int janitor(struct member *member)
{
	struct pool *pool = member->pool;

	if (member->number == 1)
		pool->note[STRUCK_ID] = reef_session(member->reef);
	while (pool->note[STRUCK] + 1 < member->number)
		if (member_others_ended(member))
			return 0;
	return reef_janitor_run(member->reef, member_others_ended, member);
}

static uint64_t operations_of(const struct member *member)
{
	return member->count.reads + member->count.writes + member->count.cas +
	       member->count.faa;
}

/* Kill the first janitor when it has done so many operations since somebody
 * died. */
static int strikes(struct member *member)
{
	struct pool *pool = member->pool;
	const struct member *victim = &pool->members[0];
	uint64_t begun;

	while (!pool->note[DIED])
		TRY(reef_sleep(MILLISECOND));
	begun = operations_of(victim);
	while (operations_of(victim) < begun + pool->note[STRIKE]) {
		TRY(reef_sleep(2000));
		if (pool->members[pool->count - 2].result != 1)
			return 0; /* all was over before */
	}
	reef_sim_host_kill(victim->host);
	pool->note[STRUCK] = 1;
	return 0;
}

static int open_space(struct member *member, struct reef_space **space)
{
	struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.quota = QUOTA,
	};

	return reef_space_open(member->reef, "space", &options, space);
}

/* Leaves blocks of all sorts, and dies; one after the other. */
static int dies(struct member *member)
{
	struct pool *pool = member->pool;
	uint64_t address, mark = 4711;
	struct reef_space *space;

	while (pool->note[DIED] + 1 < member->number - pool->note[JANITORS])
		TRY(reef_sleep(MILLISECOND));
	TRY(open_space(member, &space));
	for (uint32_t i = 0; i < BLOCKS; i++) {
		TRY(reef_alloc_kind(space, i % 2 ? KIND : REEF_BLOCK_RAW,
				    i % 3 ? 100 + i * 40 : 90 * KIB, &address));
		TRY(reef_write(member->reef, address, &mark, 8));
		if (i % 8 == 1)
			book.live[book.count++] = address;
		if (i % 8 == 2) {
			TRY(reef_keep(space, address));
			book.live[book.count++] = address;
		}
	}
	pool->note[DIED]++;
	pool->note[DEAD_ID] = reef_session(member->reef);
	reef_sim_host_kill(member->host);
	return -REEF_EHOSTDEAD;
}

static int await_session_end(struct member *member, uint32_t session)
{
	/* Until it is expired, fenced, and recovered; where the janitor is
	 * killed, that, too. */
	uint32_t leases = member->pool->note[STRIKE] ? 8 : 3;
	uint64_t until_ns = reef_now_ns() + leases * member->pool->ttl_ns;
	bool has = true;

	while (has) {
		TRY(reef_sleep(5 * MILLISECOND));
		TRY(member_has_session(member, session, &has));
		WANT(!has || reef_now_ns() < until_ns);
	}
	return 0;
}

/* All that stayed is there, and all else is free. */
static int check_space(struct member *member)
{
	struct reef_space *space;
	uint64_t mark, address;
	uint32_t got = 0;

	TRY(open_space(member, &space));
	for (uint32_t i = 0; i < book.count; i++) {
		TRY(reef_read(member->reef, book.live[i], &mark, 8));
		WANT(mark == 4711);
		TRY(reef_free(space, book.live[i], 0));
	}
	/* One in each chunk, also beside the tables. */
	while (!reef_alloc(space, 900 * KIB, &address))
		got++;
	WANT(got == QUOTA / MIB);
	return 0;
}

/* It has the space open neither before nor meanwhile. */
static int watches(struct member *member)
{
	struct pool *pool = member->pool;
	uint64_t seen = 0;
	bool is_last;

	do {
		while (pool->note[DIED] == seen)
			TRY(reef_sleep(MILLISECOND));
		seen = pool->note[DIED];
		is_last = seen == pool->note[DEATHS_ALL];
		TRY(await_session_end(member, (uint32_t)pool->note[DEAD_ID]));
	} while (!is_last);
	if (pool->note[STRUCK])
		TRY(await_session_end(member, (uint32_t)pool->note[STRUCK_ID]));
	/* What the janitor freed waits for an epoch or two. */
	TRY(reef_sleep(2 * pool->ttl_ns));
	return check_space(member);
}

static void run_seed(struct pool *pool, uint64_t seed, uint32_t deaths)
{
	memset(&book, 0, sizeof(book));
	pool_start(pool, seed);
	pool->note[JANITORS] = pool->note[STRIKE] ? 2 : 1;
	for (uint64_t i = 0; i < pool->note[JANITORS]; i++)
		pool_add(pool, janitor);
	for (uint32_t i = 0; i < deaths; i++)
		pool_add(pool, dies);
	pool->note[DEATHS_ALL] = deaths;
	pool_add(pool, watches);
	if (pool->note[STRIKE])
		pool_add(pool, strikes);
}

/* --- tests --- */

static void janitor_recovers_where_nobody_has_the_space_open(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		run_seed(&pool, seed, 1);
		pool_finish(&pool);
	}
}

static void janitor_recovers_clients_that_die_in_a_row(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		run_seed(&pool, seed, DEATHS);
		pool_finish(&pool);
	}
}

/* At every operation in turn, until it lives to the end. */
static void janitor_is_struck_anywhere(void **state)
{
	uint64_t strike = 1, last = seeds_of(STRIKES, 20 * STRIKES), struck = 0;

	for (; strike < last; strike++) {
		struct pool pool = {.note[STRIKE] = strike};

		run_seed(&pool, strike, 2);
		pool_finish(&pool);
		struck += pool.note[STRUCK];
	}
	print_message("struck in %llu of %llu runs\n",
		      (unsigned long long)struck, (unsigned long long)last - 1);
	assert_true(struck > last / 2);
}

/* --- what it costs --- */

#define SMALL 400u
#define SMALL_COUNT 20000u /* some chunks, full of them */

/* Leaves small blocks that stay, and dies. */
static int leaves_small_blocks(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	uint64_t address;

	TRY(open_space(member, &space));
	for (uint32_t i = 0; i < SMALL_COUNT; i++) {
		TRY(reef_alloc(space, SMALL, &address));
		TRY(reef_write(member->reef, address, &i, sizeof(i)));
		TRY(reef_keep(space, address));
	}
	pool->note[DIED] = 1;
	pool->note[DEAD_ID] = reef_session(member->reef);
	reef_sim_host_kill(member->host);
	return -REEF_EHOSTDEAD;
}

/* The janitor reads a block when it adopts it and when it gives it away, not
 * once more in between. */
static int counts_bytes(struct member *member)
{
	struct pool *pool = member->pool;
	const struct reef_count *count = &pool->members[0].count;
	uint64_t before;

	while (!pool->note[DIED])
		TRY(reef_sleep(MILLISECOND));
	before = count->bytes_in;
	TRY(await_session_end(member, (uint32_t)pool->note[DEAD_ID]));
	TRY(reef_sleep(2 * pool->ttl_ns));
	WANT(count->bytes_in - before < SMALL * SMALL_COUNT * 5 / 2);
	return 0;
}

static void janitor_reads_blocks_twice_at_most(void **state)
{
	struct pool pool = {.note[JANITORS] = 1};

	pool_start(&pool, 1);
	pool_add(&pool, janitor);
	pool_add(&pool, leaves_small_blocks);
	pool_add(&pool, counts_bytes);
	pool_finish(&pool);
}

static void find_mutant(enum reef_mutant mutant)
{
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(mutant);
	for (seed = seeds_first(); seeds_has(seed, 20) && !found; seed++) {
		struct pool pool = {0};

		run_seed(&pool, seed, 2);
		found = pool_end(&pool) != 0;
	}
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

static void janitor_mutants_are_found(void **state)
{
	find_mutant(REEF_MUTANT_HEAP_ABANDON_UNJUDGED);
	find_mutant(REEF_MUTANT_HEAP_FREE_KEPT);
	find_mutant(REEF_MUTANT_BROKER_NO_JANITOR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			janitor_recovers_where_nobody_has_the_space_open),
		cmocka_unit_test(janitor_recovers_clients_that_die_in_a_row),
		cmocka_unit_test(janitor_is_struck_anywhere),
		cmocka_unit_test(janitor_reads_blocks_twice_at_most),
		cmocka_unit_test(janitor_mutants_are_found),
	};

	reef_kind_register(KIND, &kind_ops);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
