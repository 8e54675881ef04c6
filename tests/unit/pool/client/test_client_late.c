/* test_client_late.c - blocks that are freed and kept by a client that loses
 * its links to their nodes: what it is told holds, and memory that its WRITEs
 * may still come to is not used anew. */
#include "fixture/pool_world.h"

#include <string.h>

#define BLOCKS 12
#define SIZE 1000
#define LARGE (2 * MIB)
/* As in test_client_settle.c: nothing takes effect later than that. */
#define LATE (17 * SECOND)

/* Simulated hosts share this memory. */
static struct {
	uint64_t blocks[BLOCKS];
	int status[BLOCKS]; /* what the cut member was told */
	uint32_t step;
	bool keeps; /* blocks are kept, not freed */
	uint32_t doubts, happened, timeouts;
} scene;

/* --- told that nothing happened --- */

/* Allocate blocks, and see what became of them when another has freed or kept
 * them: -REEF_ENOLINK says that it did not. */
static int owns_blocks(struct member *member)
{
	struct reef_space *space;
	uint64_t value = 0;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < BLOCKS; i++) {
		TRY(reef_alloc(space, SIZE, &scene.blocks[i]));
		TRY(reef_write(member->reef, scene.blocks[i], &value, 8));
		if (!scene.keeps)
			TRY(reef_keep(space, scene.blocks[i]));
	}
	scene.step = 1;
	TRY(member_await(member, &scene.step, 2));
	TRY(reef_sleep(LATE));
	for (i = 0; i < BLOCKS; i++) {
		rc = scene.keeps ? reef_keep(space, scene.blocks[i])
				 : reef_free(space, scene.blocks[i], 0);
		WANT(!rc || rc == -EALREADY);
		scene.happened += rc == -EALREADY;
		scene.doubts += scene.status[i] == -REEF_EINDOUBT;
		WANT(scene.status[i] != -REEF_ENOLINK || !rc);
		WANT(scene.status[i] || rc == -EALREADY);
	}
	scene.step = 3;
	return 0;
}

static int changes_blocks_cut_off(struct member *member)
{
	struct reef_space *space;
	uint64_t value;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	/* The first shows what headers look like, so that the others begin with
	 * a CAS. */
	for (uint32_t i = 0; i < BLOCKS; i++) {
		TRY(reef_read(member->reef, scene.blocks[i], &value, 8));
		pool_cut_nodes(member->pool, member->host, i > 0);
		scene.status[i] = scene.keeps
					  ? reef_keep(space, scene.blocks[i])
					  : reef_free(space, scene.blocks[i],
						      REEF_FREE_LATER);
		pool_cut_nodes(member->pool, member->host, false);
	}
	scene.step = 2;
	return member_await(member, &scene.step, 3);
}

static void run_told(bool keeps)
{
	uint64_t seed;

	memset(&scene, 0, sizeof(scene));
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.node_ttl_ns = 60 * SECOND,
			.patience_ns = 100 * MILLISECOND,
		};

		memset(&scene, 0, offsetof(typeof(scene), doubts));
		scene.keeps = keeps;
		pool_start(&pool, seed);
		pool_add(&pool, owns_blocks);
		pool_add(&pool, changes_blocks_cut_off);
		pool_finish(&pool);
	}
	assert_true(scene.doubts > 0 && scene.happened > 0);
}

static void client_late_free_that_happened_is_in_doubt(void **state)
{
	run_told(false);
}

static void client_late_keep_that_happened_is_in_doubt(void **state)
{
	run_told(true);
}

/* --- first WRITEs of fresh blocks --- */

/* Lose the first WRITE to a fresh block, which nobody can settle, free the
 * block, and give another member the next ones that come. */
static int frees_fresh_block(struct member *member)
{
	uint8_t bytes[SIZE];
	struct reef_space *space;
	uint64_t first, lost, next;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, SIZE, &first));
	memset(bytes, 0xee, sizeof(bytes));
	TRY(reef_write(member->reef, first, bytes, sizeof(bytes)));
	TRY(reef_alloc(space, SIZE, &lost));
	pool_cut_nodes(member->pool, member->host, true);
	pool_cut_nodes(member->pool, member->pool->host, true);
	scene.status[0] = reef_write(member->reef, lost, bytes, sizeof(bytes));
	scene.timeouts += scene.status[0] == -ETIMEDOUT;
	TRY(reef_free(space, lost, 0));
	scene.blocks[0] = 0;
	for (uint32_t i = 0; i < 8 && !reef_alloc(space, SIZE, &next); i++)
		if (next == lost)
			scene.blocks[0] = next;
	scene.step = 1;
	TRY(member_await(member, &scene.step, 2));
	pool_cut_nodes(member->pool, member->host, false);
	pool_cut_nodes(member->pool, member->pool->host, false);
	return 0;
}

/* Use the block that was handed over. */
static int uses_block(struct member *member)
{
	uint8_t bytes[SIZE], now[SIZE];
	struct reef_space *space;

	TRY(member_space(member, &space));
	memset(bytes, 0x11, sizeof(bytes));
	TRY(member_await(member, &scene.step, 1));
	if (scene.blocks[0] && scene.status[0] == -ETIMEDOUT) {
		TRY(reef_write(member->reef, scene.blocks[0], bytes, SIZE));
		TRY(reef_sleep(LATE));
		TRY(reef_read(member->reef, scene.blocks[0], now, SIZE));
		WANT(!memcmp(bytes, now, SIZE));
	}
	scene.step = 2;
	return 0;
}

/* Run scripts in pools whose clients give up at once; some must have. */
static void run_impatient(int (*first)(struct member *member),
			  int (*second)(struct member *member))
{
	uint64_t seed;

	memset(&scene, 0, sizeof(scene));
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.node_ttl_ns = 300 * SECOND,
			.patience_ns = MILLISECOND,
		};

		memset(&scene, 0, offsetof(typeof(scene), doubts));
		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
	assert_true(scene.timeouts > 0);
}

static void client_late_first_write_meets_no_reused_memory(void **state)
{
	run_impatient(frees_fresh_block, uses_block);
}

/* --- units whose descriptors could not be written --- */

/* Allocate as many large blocks as there are, and free them. */
static int count_large(struct reef_space *space, uint32_t *count)
{
	static uint64_t blocks[64];
	uint32_t i;
	int rc = 0;

	for (*count = 0; !rc && *count < 64; *count += !rc)
		rc = reef_alloc(space, LARGE, &blocks[*count]);
	WANT(rc == -ENOSPC);
	for (i = 0; i < *count; i++)
		TRY(reef_free(space, blocks[i], 0));
	return 0;
}

/* Lose the WRITEs of descriptors, again and again, with nobody who could settle
 * them in time; when all is well again, as much is there as before. */
static int allocates_cut_off(struct member *member)
{
	uint32_t before, after, losses = 0, sizes;
	struct reef_space *space;
	uint64_t word, block, value = 0;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, SIZE, &word));
	TRY(count_large(space, &before));
	for (sizes = 1; sizes <= 6; sizes++) {
		TRY(reef_write(member->reef, word, &value, 8)); /* a link */
		pool_cut_nodes(member->pool, member->host, true);
		pool_cut_nodes(member->pool, member->pool->host, true);
		rc = reef_alloc(space, LARGE - sizes * 64 * KIB, &block);
		losses += rc == -ETIMEDOUT;
		if (!rc)
			TRY(reef_free(space, block, 0));
		pool_cut_nodes(member->pool, member->host, false);
		pool_cut_nodes(member->pool, member->pool->host, false);
		TRY(reef_sleep(LATE));
	}
	scene.timeouts += losses;
	TRY(count_large(space, &after));
	WANT(after >= before);
	return 0;
}

static void client_late_units_come_back(void **state)
{
	run_impatient(allocates_cut_off, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_late_free_that_happened_is_in_doubt),
		cmocka_unit_test(client_late_keep_that_happened_is_in_doubt),
		cmocka_unit_test(
			client_late_first_write_meets_no_reused_memory),
		cmocka_unit_test(client_late_units_come_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
