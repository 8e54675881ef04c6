/* test_file_fibers.c - fibers of two clients in one file, each in a region of
 * its own, which is always what it left there; beside one who makes the file
 * shorter and longer, where links fall and a node with second copies dies. */
#include "fixture/pool_world.h"

#include <reef/fiber.h>
#include <reef/file.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u
#define FIBERS 3u /* of a member */
#define MEMBERS 2u
#define REGION (10 * CHUNK)
/* What the file is cut to: in the middle of the last region's last chunk. */
#define BASE (MEMBERS * FIBERS * REGION - CHUNK / 2)
#define CALLS 60u
#define BLOCKS 8u

struct owner {
	struct member *member;
	struct reef_file *file;
	uint64_t at, size;
	uint8_t model[REGION], bytes[REGION];
};

static uint32_t opened, ended;

/* True if a call is to be made again: it does the same once more. */
static bool is_again(ssize_t rc)
{
	return rc == -REEF_EINDOUBT || rc == -ETIMEDOUT ||
	       rc == -REEF_ENOLINK || rc == -EBUSY;
}

static int open_file(struct member *member, struct reef_space **space,
		     struct reef_file **out)
{
	const struct reef_file_options options = {.flags = REEF_FILE_CREATE,
						  .chunk = CHUNK};
	int rc;

	TRY(member_space(member, space));
	do
		rc = reef_file_open(*space, "f", &options, out);
	while (is_again(rc));
	return rc;
}

static int extend(struct reef_file *file, uint64_t size)
{
	int rc;

	do
		rc = reef_file_extend(file, size);
	while (is_again(rc));
	return rc;
}

static int read_all(struct reef_file *file, void *to, size_t size, uint64_t at)
{
	ssize_t rc;

	do
		rc = reef_file_pread(file, to, size, at);
	while (is_again(rc));
	WANT(rc == (ssize_t)size);
	return 0;
}

static int write_all(struct reef_file *file, const void *from, size_t size,
		     uint64_t at)
{
	ssize_t rc;

	do
		rc = reef_file_pwrite(file, from, size, at);
	while (is_again(rc));
	WANT(rc == (ssize_t)size);
	return 0;
}

/* --- regions --- */

static int change_region(struct owner *owner, struct reef_random *random)
{
	uint64_t from = reef_random_below(random, owner->size);
	uint64_t size = 1 + reef_random_below(random, owner->size - from);
	int value = (int)reef_random_below(random, 256), rc;

	memset(owner->model + from, value, size);
	if (value)
		return write_all(owner->file, owner->model + from, size,
				 owner->at + from);
	do
		rc = reef_file_punch(owner->file, owner->at + from, size);
	while (is_again(rc));
	return rc;
}

static int owns(void *arg)
{
	struct owner *owner = arg;
	struct reef_random *random = reef_sim_random(owner->member->pool->sim);

	for (uint32_t i = 0; i < CALLS; i++) {
		if (reef_random_chance(random, 1, 2))
			TRY(change_region(owner, random));
		TRY(read_all(owner->file, owner->bytes, owner->size,
			     owner->at));
		WANT(!memcmp(owner->bytes, owner->model, owner->size));
		TRY(reef_sleep(reef_random_below(random, MILLISECOND)));
	}
	return 0;
}

static int has_fibers(struct member *member)
{
	struct owner *owners = calloc(FIBERS, sizeof(*owners));
	struct reef_fiber *fibers[FIBERS];
	struct reef_space *space;
	struct reef_file *file;
	int rc = open_file(member, &space, &file), one;
	uint32_t i, count = 0;

	if (!rc)
		rc = extend(file, BASE);
	opened++;
	for (i = 0; !rc && i < FIBERS; i++, count += !rc) {
		owners[i].member = member;
		owners[i].file = file;
		owners[i].at = ((member->number - 1) * FIBERS + i) * REGION;
		owners[i].size = owners[i].at + REGION < BASE
					 ? REGION
					 : BASE - owners[i].at;
		rc = reef_fiber_spawn(reef_fiber_sched(), owns, &owners[i],
				      &fibers[i]);
	}
	for (i = 0; i < count; i++) {
		(void)reef_fiber_join(fibers[i], &one);
		rc = rc ? rc : one;
	}
	ended++;
	reef_file_close(file);
	free(owners);
	return rc;
}

/* --- what is beside them --- */

/* What was cut off is zeroes when the file is longer again. */
static int shape(struct reef_file *file, uint64_t size)
{
	static uint8_t bytes[4 * CHUNK], zeroes[4 * CHUNK];
	int rc;

	memset(bytes, 0xcc, sizeof(bytes));
	TRY(write_all(file, bytes, size, BASE));
	do
		rc = reef_file_truncate(file, BASE);
	while (is_again(rc));
	TRY(rc);
	TRY(extend(file, BASE + size));
	TRY(read_all(file, bytes, size, BASE));
	WANT(!memcmp(bytes, zeroes, size));
	return 0;
}

static int shapes(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_file *file;
	int rc = 0;

	TRY(member_await(member, &opened, MEMBERS));
	TRY(open_file(member, &space, &file));
	for (uint32_t i = 0; !rc && ended < MEMBERS && i < 3000; i++) {
		if (i == 5 && pool->copies == 2)
			reef_sim_host_kill(pool->lenders[pool->seed % 2].host);
		rc = shape(file,
			   1 + reef_random_below(reef_sim_random(pool->sim),
						 4 * CHUNK));
	}
	reef_file_close(file);
	return rc;
}

/* Blocks of its own, of a chunk's size, that come and go: they show a write to
 * memory that was a chunk once. */
static int uses_freed(struct member *member)
{
	static uint8_t bytes[CHUNK], found[CHUNK];
	uint64_t blocks[BLOCKS] = {0};
	struct reef_space *space;
	uint32_t i;
	int rc = 0;

	TRY(member_space(member, &space));
	memset(bytes, 0xaa, sizeof(bytes));
	for (uint32_t turn = 0; ended < MEMBERS && turn < 10000; turn++) {
		i = turn % BLOCKS;
		do
			rc = blocks[i] ? reef_read(member->reef, blocks[i] + 56,
						   found, CHUNK)
				       : 0;
		while (is_again(rc));
		TRY(rc);
		WANT(!blocks[i] || !memcmp(found, bytes, CHUNK));
		if (blocks[i])
			(void)reef_free(space, blocks[i], REEF_FREE_LATER);
		do
			rc = reef_alloc(space, CHUNK + 56, &blocks[i]);
		while (is_again(rc));
		TRY(rc);
		do
			rc = reef_write(member->reef, blocks[i] + 56, bytes,
					CHUNK);
		while (is_again(rc));
		TRY(rc);
		TRY(reef_sleep(MILLISECOND / 2));
	}
	return 0;
}

static int run(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.extent_size = 16 * MIB,
		.lose_link_ppm = seed % 2 ? 1500 : 0,
		.copies = seed % 3 ? 1 : 2,
		.witnesses = 2,
	};

	opened = ended = 0;
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < MEMBERS; i++)
		pool_add(&pool, has_fibers);
	pool_add(&pool, shapes);
	pool_add(&pool, uses_freed);
	return pool_end(&pool);
}

static void file_fibers_find_what_they_left(void **state)
{
	uint64_t seed, count = seeds_of(12, 1000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run(seed), 0);
}

/* --- a session that knows no epoch yet --- */

static int cuts_at_once(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	int rc = open_file(member, &space, &file);

	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = shape(file, CHUNK);
	reef_file_close(file);
	return rc;
}

/* Links fall so often that it takes a while until it has heard of one. */
static void file_truncate_of_a_new_session_cuts(void **state)
{
	uint64_t seed, count = seeds_of(100, 1000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.extent_size = 16 * MIB,
			.lose_link_ppm = 50000,
		};

		pool_start(&pool, seed);
		pool_add(&pool, cuts_at_once);
		assert_int_equal(pool_end(&pool), 0);
	}
}

#if !SANITIZED
static void file_thaw_early_is_found_by_fibers(void **state)
{
	assert_true(try_finds(REEF_MUTANT_FILE_THAW_EARLY, run, 20));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_fibers_find_what_they_left),
		cmocka_unit_test(file_truncate_of_a_new_session_cuts),
#if !SANITIZED
		cmocka_unit_test(file_thaw_early_is_found_by_fibers),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
