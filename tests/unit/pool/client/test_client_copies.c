/* test_client_copies.c - words and what they publish in memory with two copies:
 * several clients change one word, die at any operation, and lose links. */
#include "fixture/pool_world.h"
#include "pool/client/handle/copies.h"
#include "pool/client/handle/handle.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/view.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK (2 * MIB) /* an extent of its own, nearly */
#define BLOCKS 12u	/* more than one node has */
#define WRITERS 3u
#define ROUNDS 60u
#define TRIES 200u /* of a writer */
#define ENTRIES_AT 64u

/* A word is n | writer | which of its entries it names. */
#define WORD(n, writer, entry)                                                 \
	((uint64_t)(n) << 24 | (uint64_t)(writer) << 16 | (entry))
#define WORD_NUMBER(word) ((word) >> 24)

/* Simulated hosts share this memory. */
static struct {
	uint64_t primary, arbiter; /* addresses */
	uint32_t step;
	uint64_t told; /* the highest number that anybody was told */
	uint8_t winners[WRITERS * TRIES + 1]; /* by number */
	uint64_t strike_at, posts;	      /* of the first writer */
	bool lossy;
	struct reef_fiber *fiber;
	uint64_t blocks[2];
	uint32_t doubts, lost;
} scene;

static uint64_t arbiter_of(uint64_t address)
{
	return address - scene.primary + scene.arbiter;
}

/* Let a member take one extent for the other's arbiter; 0: none. */
static void pair(struct member *member, uint64_t arbiter)
{
	struct reef_client *client = member->client;
	struct client_extent *extent;

	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, (uint32_t)(scene.primary >> 32));
	if (extent)
		extent->twin = (uint32_t)(arbiter >> 32);
	client_view_bump(client);
	pthread_mutex_unlock(&client->lock);
}

static uint64_t entry_at(uint64_t word)
{
	return scene.primary + ENTRIES_AT +
	       16 * ((word >> 16 & 255) * TRIES + (word & 0xffff));
}

/* --- making --- */

static uint32_t node_of(struct member *member, uint64_t address)
{
	return client_extent_find(member->client, (uint32_t)(address >> 32))
		->node;
}

/* Clear what is used of a block, whatever links are lost. */
static int clear(struct member *member, uint64_t block)
{
	static const uint8_t zeros[ENTRIES_AT + 16 * (WRITERS + 1) * TRIES];
	int rc;

	do
		rc = reef_write(member->reef, block, zeros, sizeof(zeros));
	while (rc == -REEF_EINDOUBT);
	return rc;
}

/* Find two blocks that are on different nodes, and clear them. */
static int make_copies(struct member *member)
{
	struct reef_space *space;
	uint64_t block;
	int rc;

	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < BLOCKS && !scene.arbiter; i++) {
		TRY(reef_alloc(space, BLOCK, &block));
		do
			rc = reef_keep(space, block);
		while (rc == -REEF_EINDOUBT);
		WANT(!rc || rc == -EALREADY);
		if (!scene.primary)
			scene.primary = block;
		else if (node_of(member, block) !=
				 node_of(member, scene.primary) &&
			 (uint32_t)block == (uint32_t)scene.primary)
			scene.arbiter = block;
	}
	WANT(scene.arbiter);
	TRY(clear(member, scene.primary));
	return clear(member, scene.arbiter);
}

/* --- looking --- */

static void note_told(uint64_t word)
{
	if (WORD_NUMBER(word) > scene.told)
		scene.told = WORD_NUMBER(word);
}

/* READ the word as a user does: it does not go back. */
static int look(struct member *member, uint64_t *word)
{
	struct reef_access access = {
		.kind = REEF_READ,
		.length = 8,
		.address = scene.primary,
		.local = word,
	};
	uint64_t told = scene.told;

	TRY(reef_execute(member->reef, &access, 1));
	WANT(WORD_NUMBER(*word) >= told);
	note_told(*word);
	return 0;
}

/* What a word names is whole, and on both copies; and so is the word. */
static int check_word(struct member *member, uint64_t word)
{
	uint64_t entry[2], other;

	TRY(reef_read(member->reef, scene.arbiter, &other, 8));
	WANT(WORD_NUMBER(other) >= WORD_NUMBER(word));
	if (!word)
		return 0;
	TRY(reef_read(member->reef, entry_at(word), entry, 16));
	WANT(entry[0] == word && entry[1] == ~word);
	TRY(reef_read(member->reef, arbiter_of(entry_at(word)), entry, 16));
	WANT(entry[0] == word && entry[1] == ~word);
	return 0;
}

/* --- changing --- */

/* Take in what a CAS was told. */
static int judge(struct member *member, const struct reef_access *cas, int rc)
{
	uint64_t next = WORD_NUMBER(cas->operand);

	if (rc == -REEF_EINDOUBT || rc == -REEF_ENOTDONE) {
		scene.doubts++;
		WANT(scene.lossy);
		return 0;
	}
	TRY(rc);
	if (cas->result == cas->compare) {
		WANT(!scene.winners[next]);
		scene.winners[next] = (uint8_t)member->number;
		note_told(cas->operand);
		return 1;
	}
	/* It is told what others have done, and the primary has that. */
	scene.lost++;
	WANT(cas->result != cas->operand);
	WANT(WORD_NUMBER(cas->result) > WORD_NUMBER(cas->compare));
	note_told(cas->result);
	return 0;
}

/* Publish an entry with the next number. 1: it is ours. */
static int publish(struct member *member, uint32_t try, uint64_t word)
{
	uint64_t next = WORD(WORD_NUMBER(word) + 1, member->number, try);
	uint64_t entry[2] = {next, ~next};
	struct reef_access accesses[] = {
		{
			.kind = REEF_WRITE,
			.length = 16,
			.address = entry_at(next),
			.local = entry,
		},
		{
			.kind = REEF_CAS,
			.address = scene.primary,
			.compare = word,
			.operand = next,
		},
	};

	return judge(member, &accesses[1],
		     reef_execute(member->reef, accesses, 2));
}

static int writes(struct member *member)
{
	uint32_t rounds = 0, try;
	struct reef_space *space;
	uint64_t word;
	int rc;

	TRY(member_space(member, &space));
	if (member->number == 2) {
		TRY(make_copies(member));
		scene.step = 1;
	}
	TRY(member_await(member, &scene.step, 1));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	pair(member, scene.arbiter);
	for (try = 0; try < TRIES && rounds < ROUNDS; try++) {
		TRY(look(member, &word));
		TRY(check_word(member, word));
		rc = publish(member, try, word);
		if (rc < 0)
			return rc;
		rounds += (uint32_t)rc;
	}
	pair(member, 0);
	/* Nobody waits for the dead. */
	WANT(rounds > ROUNDS / 8);
	return 0;
}

/* --- runs --- */

static void strike_first(struct member *member, bool is_posted)
{
	if (member->number != 1 || !scene.step || is_posted)
		return;
	if (++scene.posts == scene.strike_at)
		reef_sim_host_kill(member->host);
}

static int run(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.node_ttl_ns = 60 * SECOND,
		.posts = strike_first,
		.lose_link_ppm = seed % 2 ? 20000 : 0,
	};

	memset(&scene, 0, offsetof(typeof(scene), doubts));
	scene.lossy = seed % 2;
	scene.strike_at = seed % 3 ? 10 + seed * 7 % 200 : 0;
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < WRITERS; i++)
		pool_add(&pool, writes);
	return pool_end(&pool);
}

static void client_copies_of_a_word_are_linearizable(void **state)
{
	uint64_t seed;

	(void)state;
	scene.doubts = scene.lost = 0;
	for (seed = seeds_first(); seeds_has(seed, seeds_of(40, 4000)); seed++)
		assert_int_equal(run(seed), 0);
	assert_true(scene.doubts && scene.lost);
}

/* --- sums --- */

/* Add one, by FAA or by CAS. *before: what it was added to; UINT64_MAX: another
 * was quicker. */
static int add_one(struct member *member, bool by_cas, uint64_t *before)
{
	uint64_t word;
	int rc;

	if (!by_cas)
		return reef_faa(member->reef, scene.primary, 1, before);
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	rc = reef_cas(member->reef, scene.primary, word, word + 1, before);
	if (!rc && *before != word)
		*before = UINT64_MAX;
	return rc;
}

/* No two are told the same number, whatever links are lost; and no two that
 * wanted the same value in its place both have won. */
static int adds(struct member *member)
{
	struct reef_space *space;
	uint64_t before, word;
	int rc;

	TRY(member_space(member, &space));
	if (member->number == 2) {
		TRY(make_copies(member));
		scene.step = 1;
	}
	TRY(member_await(member, &scene.step, 1));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	pair(member, scene.arbiter);
	for (uint32_t try = 0; try < TRIES; try++) {
		rc = add_one(member, try % 2, &before);
		if (rc == -REEF_EINDOUBT || (!rc && before == UINT64_MAX))
			continue;
		TRY(rc);
		WANT(before < WRITERS * TRIES && !scene.winners[before]);
		scene.winners[before] = 1;
	}
	pair(member, 0);
	return 0;
}

static int run_adds(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.node_ttl_ns = 60 * SECOND,
		.lose_link_ppm = 20000,
	};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < WRITERS; i++)
		pool_add(&pool, adds);
	return pool_end(&pool);
}

static void client_copies_are_added_to_once(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, seeds_of(10, 1000)); seed++)
		assert_int_equal(run_adds(seed), 0);
}

/* --- an epoch --- */

/* The first member is held up before it helps; the other goes on, and would
 * take a value again that it had before, once an epoch has ended. */
static int lags(struct member *member)
{
	struct reef_access cas = {.kind = REEF_CAS, .compare = 1, .operand = 9};
	struct reef_space *space;
	uint64_t word;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	cas.address = scene.primary;
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	pair(member, scene.arbiter);
	scene.posts = 0;
	scene.step = 2;
	TRY(reef_execute(member->reef, &cas, 1));
	scene.step = 4;
	pair(member, 0);
	return 0;
}

static int leads(struct member *member)
{
	uint64_t word, other;

	TRY(make_copies(member));
	TRY(reef_write(member->reef, scene.primary, &(uint64_t){1}, 8));
	/* The arbiter is ahead, of one who died. */
	TRY(reef_write(member->reef, scene.arbiter, &(uint64_t){2}, 8));
	pair(member, scene.arbiter);
	scene.step = 1;
	TRY(member_await(member, &scene.step, 3));
	TRY(reef_cas(member->reef, scene.primary, 1, 7, &word));
	WANT(word == 2);
	TRY(reef_cas(member->reef, scene.primary, 2, 3, &word));
	WANT(word == 2);
	TRY(reef_epoch_end(member->reef));
	TRY(reef_cas(member->reef, scene.primary, 3, 1, &word));
	WANT(word == 3);
	TRY(member_await(member, &scene.step, 4));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	TRY(reef_read(member->reef, scene.arbiter, &other, 8));
	WANT(word == other);
	pair(member, 0);
	return 0;
}

/* The second batch of the first member's CAS is what helps. */
static void hold_up(struct member *member, bool is_posted)
{
	if (member->number != 1 || is_posted || scene.step != 2 ||
	    reef_fiber_self() != scene.fiber || ++scene.posts != 2)
		return;
	scene.step = 3;
	reef_sleep(2 * SECOND);
}

static int lags_here(struct member *member)
{
	scene.fiber = reef_fiber_self();
	return lags(member);
}

static int run_epoch(void)
{
	struct pool pool = {.posts = hold_up, .ttl_ns = 8 * SECOND};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, lags_here);
	pool_add(&pool, leads);
	return pool_end(&pool);
}

static void client_copies_pin_their_epoch(void **state)
{
	(void)state;
	assert_int_equal(run_epoch(), 0);
}

/* --- a lease --- */

/* Without the broker, a READ counts while the lease runs, and no longer. */
static int reads_for_a_lease(struct member *member)
{
	uint64_t word;

	TRY(make_copies(member));
	pair(member, scene.arbiter);
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	reef_sim_host_kill(member->pool->host);
	TRY(reef_sleep(member->pool->ttl_ns / 2));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	TRY(reef_sleep(member->pool->ttl_ns / 2));
	WANT(reef_read(member->reef, scene.primary, &word, 8) == -REEF_ENOLINK);
	/* Memory with one copy is read as ever. */
	pair(member, 0);
	return reef_read(member->reef, scene.primary, &word, 8);
}

static int run_lease(void)
{
	struct pool pool = {.patience_ns = SECOND, .ttl_ns = 4 * SECOND};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, reads_for_a_lease);
	return pool_end(&pool);
}

static void client_copies_are_read_under_a_lease(void **state)
{
	(void)state;
	assert_int_equal(run_lease(), 0);
}

/* --- headers --- */

static int owns(struct member *member)
{
	struct reef_space *space;

	TRY(member_space(member, &space));
	for (uint32_t i = 0; i < 2; i++) {
		TRY(reef_alloc(space, 64, &scene.blocks[i]));
		TRY(reef_write(member->reef, scene.blocks[i], &(uint64_t){1},
			       8));
	}
	scene.step = 1;
	TRY(member_await(member, &scene.step, 2));
	return 0;
}

/* What another's block has for a header is read each time, and not guessed by
 * its neighbour's. */
static int frees(struct member *member)
{
	struct reef_counts before, after;
	struct reef_space *space;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	for (uint32_t i = 0; i < 2; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_free(space, scene.blocks[i], 0));
		after = reef_count_read(&member->count);
		after = reef_counts_between(&before, &after);
		WANT(after.reads >= 1 && after.cas == 2);
	}
	scene.step = 2;
	return 0;
}

static int run_headers(void)
{
	struct pool pool = {.ttl_ns = 3600 * SECOND, .copies = 2};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, owns);
	pool_add(&pool, frees);
	return pool_end(&pool);
}

static void client_copies_headers_are_not_guessed(void **state)
{
	(void)state;
	assert_int_equal(run_headers(), 0);
}

/* --- mutants --- */

#if !SANITIZED
static int run_mutant(enum reef_mutant mutant, uint64_t seed)
{
	if (mutant == REEF_MUTANT_COPIES_UNPINNED)
		return run_epoch();
	if (mutant == REEF_MUTANT_COPIES_READ_EXPIRED)
		return run_lease();
	if (mutant == REEF_MUTANT_COPIES_GUESS_COMPARE)
		return run_headers();
	if (mutant == REEF_MUTANT_COPIES_ADD_TWICE ||
	    mutant == REEF_MUTANT_COPIES_WIN_TWICE)
		return run_adds(seed);
	return run(seed);
}

static void client_copies_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_COPIES(REEF_MUTANT_NUMBER)};
	uint64_t seed;
	bool found;

	(void)state;
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		found = false;
		try_quiet = true;
		reef_mutate(mutants[i]);
		for (seed = 1; seed <= 300 && !found; seed++)
			found = run_mutant(mutants[i], seed) == -EXDEV;
		reef_mutate(REEF_MUTANT_NONE);
		try_quiet = false;
		if (!found)
			print_message("mutant %s was not found\n",
				      reef_mutant_name(mutants[i]));
		assert_true(found);
	}
}
#endif

/* --- without waiting --- */

/* Tasks go the same way, several at a time. */
static int submits(struct member *member)
{
	struct reef_task tasks[4] = {0};
	struct reef_access adds[4];
	uint64_t word;

	TRY(make_copies(member));
	pair(member, scene.arbiter);
	for (uint32_t i = 0; i < 4; i++) {
		adds[i] = (struct reef_access){
			.kind = REEF_FAA,
			.address = scene.primary,
			.operand = 1u << 8 * i,
		};
		tasks[i].accesses = &adds[i];
		tasks[i].count = 1;
		WANT(reef_task_submit(member->reef, &tasks[i]) == 0);
	}
	for (uint32_t i = 0; i < 4; i++)
		TRY(reef_task_wait(member->reef, &tasks[i]));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	WANT(word == 0x01010101);
	TRY(reef_read(member->reef, scene.arbiter, &word, 8));
	WANT(word == 0x01010101);
	pair(member, 0);
	return 0;
}

static void client_copies_by_tasks_are_the_same(void **state)
{
	struct pool pool = {.ttl_ns = 3600 * SECOND};

	(void)state;
	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, submits);
	pool_finish(&pool);
}

/* --- waiting --- */

static bool is_pinned(const struct member *member)
{
	bool is_pinned = false;

	for (uint32_t i = 0; i < CLIENT_COHORTS; i++)
		is_pinned |= atomic_load(&member->reef->member.pins[i]) !=
			     UINT64_MAX;
	return is_pinned;
}

/* A change waits for a copy that is gone, and lets its epoch go meanwhile. */
static int waits_unpinned(struct member *member)
{
	struct reef_access add = {.kind = REEF_FAA, .operand = 5};
	struct reef_task task = {.accesses = &add, .count = 1};
	uint64_t word;

	TRY(make_copies(member));
	add.address = scene.primary;
	pair(member, UINT64_C(0xffffff) << 32); /* nobody has that */
	WANT(reef_task_submit(member->reef, &task) == 0);
	for (uint32_t i = 0; i < 20; i++) {
		TRY(reef_sleep(SECOND / 100));
		reef_progress(member->reef);
		WANT(!task.done && !is_pinned(member));
	}
	/* The row is another: there is one copy. */
	pair(member, 0);
	TRY(reef_task_wait(member->reef, &task));
	TRY(reef_read(member->reef, scene.primary, &word, 8));
	WANT(word == 5 && !is_pinned(member));
	return 0;
}

static void client_copies_wait_without_a_pin(void **state)
{
	struct pool pool = {.ttl_ns = 3600 * SECOND};

	(void)state;
	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, waits_unpinned);
	pool_finish(&pool);
}

/* --- budgets --- */

static int count_operations(struct member *member, struct reef_access *accesses,
			    uint32_t count, struct reef_counts *out)
{
	struct reef_counts before = reef_count_read(&member->count), after;

	TRY(reef_execute(member->reef, accesses, count));
	after = reef_count_read(&member->count);
	*out = reef_counts_between(&before, &after);
	return 0;
}

static int keeps_budget(struct member *member)
{
	uint64_t word = 0, entry[2] = {1, 2};
	struct reef_access read = {.kind = REEF_READ, .length = 8},
			   write = {.kind = REEF_WRITE, .length = 16},
			   cas = {.kind = REEF_CAS}, faa = {.kind = REEF_FAA};
	struct reef_access list[2];
	struct reef_counts counts;

	TRY(make_copies(member));
	pair(member, scene.arbiter);
	read.address = cas.address = faa.address = scene.primary;
	read.local = &word;
	write.address = scene.primary + ENTRIES_AT;
	write.local = entry;
	TRY(count_operations(member, &read, 1, &counts));
	WANT(counts.reads == 1 && counts.memory_operations == 1 &&
	     counts.round_trips == 1);
	/* Side by side, on two links. */
	TRY(count_operations(member, &write, 1, &counts));
	WANT(counts.writes == 2 && counts.memory_operations == 2 &&
	     counts.batches == 2 && counts.round_trips == 2);
	cas.operand = 1;
	TRY(count_operations(member, &cas, 1, &counts));
	WANT(cas.result == 0 && counts.cas == 2 &&
	     counts.memory_operations == 2 && counts.batches == 2 &&
	     counts.round_trips == 2);
	cas.compare = 1;
	cas.operand = 2;
	list[0] = write;
	list[1] = cas;
	TRY(count_operations(member, list, 2, &counts));
	WANT(list[1].result == 1 && counts.writes == 2 && counts.cas == 2 &&
	     counts.memory_operations == 4 && counts.batches == 4);
	faa.operand = 40;
	TRY(count_operations(member, &faa, 1, &counts));
	WANT(faa.result == 2 && counts.reads == 1 && counts.cas == 2 &&
	     counts.memory_operations == 3);
	TRY(count_operations(member, &read, 1, &counts));
	WANT(word == 42);
	TRY(reef_read(member->reef, scene.arbiter, &word, 8));
	WANT(word == 42);
	pair(member, 0);
	return 0;
}

static void client_copies_keep_their_budget(void **state)
{
	struct pool pool = {.ttl_ns = 3600 * SECOND};

	(void)state;
	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, 1);
	pool_add(&pool, keeps_budget);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_copies_of_a_word_are_linearizable),
		cmocka_unit_test(client_copies_are_added_to_once),
		cmocka_unit_test(client_copies_pin_their_epoch),
		cmocka_unit_test(client_copies_are_read_under_a_lease),
		cmocka_unit_test(client_copies_headers_are_not_guessed),
#if !SANITIZED
		cmocka_unit_test(client_copies_mutants_are_found),
#endif
		cmocka_unit_test(client_copies_by_tasks_are_the_same),
		cmocka_unit_test(client_copies_wait_without_a_pin),
		cmocka_unit_test(client_copies_keep_their_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
