/* test_client_compare.c - copies that differ are found, and what is only being
 * changed is not taken for it. */
#include "fixture/pool_world.h"
#include "pool/broker/lending.h"

#include <errno.h>
#include <string.h>

#define SIZE 4096u

static struct {
	uint32_t step;
	uint64_t address;
	uint32_t parts;
	struct reef_copies_part last;
} scene;

static void note_part(void *context, const struct reef_copies_part *part)
{
	(void)context;
	scene.parts++;
	scene.last = *part;
}

/* The extent that has the second copy of one; 0: there is none now. */
static uint32_t twin_of(const struct pool *pool, uint32_t extent)
{
	const struct reef_state_extent *state =
		pool->broker ? reef_state_extent(pool->broker->state, extent)
			     : NULL;

	return state ? state->twin : 0;
}

static int make_block(struct member *member, struct reef_space **space)
{
	uint8_t bytes[SIZE];

	memset(bytes, 0x5a, sizeof(bytes));
	TRY(member_space(member, space));
	TRY(reef_alloc(*space, SIZE, &scene.address));
	TRY(reef_write(member->reef, scene.address, bytes, SIZE));
	/* The first extent may have been made when there was one node. */
	while (!twin_of(member->pool, (uint32_t)(scene.address >> 32)))
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int scribbles(struct member *member)
{
	uint64_t junk = 4711, at;
	struct reef_copies_report report;
	struct reef_space *space;
	uint32_t extent;

	TRY(make_block(member, &space));
	TRY(reef_space_compare(space, note_part, NULL, &report));
	WANT(!scene.parts && !report.words && !report.unread);
	WANT(report.extents == 1 && !report.alone && report.bytes > SIZE);
	extent = (uint32_t)(scene.address >> 32);
	at = (scene.address & UINT32_MAX & ~UINT64_C(7)) + 64;
	for (uint32_t i = 0; i < 2; i++)
		TRY(reef_write(member->reef,
			       (uint64_t)twin_of(member->pool, extent) << 32 |
				       (at + 16 * i),
			       &junk, 8));
	TRY(reef_space_compare(space, note_part, NULL, &report));
	WANT(scene.parts == 1 && report.words == 2 && !report.in_use);
	WANT(scene.last.extent == extent && scene.last.words == 2);
	WANT(scene.last.first == at && scene.last.last == at + 16);
	WANT(scene.last.node != scene.last.twin_node);
	/* Without a second copy there is nothing to compare. */
	reef_sim_host_kill(
		member->pool->lenders[scene.last.twin_node - 1].host);
	while (twin_of(member->pool, extent))
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(SECOND));
	scene.parts = 0;
	TRY(reef_space_compare(space, note_part, NULL, &report));
	WANT(!scene.parts && report.alone == 1 && !report.unread);
	return 0;
}

static void client_copies_that_differ_are_named(void **state)
{
	struct pool pool = {.copies = 2, .witnesses = 2};

	(void)state;
	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seeds_first());
	pool_add(&pool, scribbles);
	pool_finish(&pool);
}

/* Changes words all the while, by every operation. */
static int changes(struct member *member)
{
	struct reef_space *space;
	uint64_t word;

	TRY(member_space(member, &space));
	TRY(member_await(member, &scene.step, 1));
	while (scene.step == 1) {
		TRY(reef_faa(member->reef, scene.address, 1, &word));
		TRY(reef_write(member->reef, scene.address + 64, &word, 8));
		TRY(reef_cas(member->reef, scene.address + 128 + 8 * word % 64,
			     0x5a5a5a5a5a5a5a5a, word, &word));
	}
	return 0;
}

static int compares(struct member *member)
{
	struct reef_copies_report report;
	struct reef_space *space;

	TRY(make_block(member, &space));
	scene.step = 1;
	for (uint32_t i = 0; i < 8; i++) {
		TRY(reef_space_compare(space, note_part, NULL, &report));
		WANT(!scene.parts && !report.words);
	}
	scene.step = 2;
	return 0;
}

static void client_copies_in_use_do_not_differ(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.copies = 2};

		memset(&scene, 0, sizeof(scene));
		pool_start(&pool, seed);
		pool_add(&pool, compares);
		pool_add(&pool, changes);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_copies_that_differ_are_named),
		cmocka_unit_test(client_copies_in_use_do_not_differ),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
