/* test_client_save.c - an image of a space is of one moment, while it is used.
 */
#include "base/mutant.h"
#include "base/store/store.h"
#include "fixture/pool_world.h"
#include "fixture/scratch.h"
#include "pool/image.h"

#include <errno.h>
#include <string.h>

static struct {
	uint32_t step;
	uint64_t first, second; /* words of two extents */
} scene;

/* Writes one word, then the other: they differ by one at most. */
static int writes_in_order(struct member *member)
{
	struct reef_space *space;
	uint64_t number = 0;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &scene.first));
	do
		TRY(reef_alloc(space, 1 << 19, &scene.second));
	while (scene.second >> 32 == scene.first >> 32);
	TRY(reef_write(member->reef, scene.first, &number, 8));
	TRY(reef_write(member->reef, scene.second, &number, 8));
	scene.step = 1;
	while (scene.step < 2) {
		number++;
		TRY(reef_write(member->reef, scene.first, &number, 8));
		TRY(reef_write(member->reef, scene.second, &number, 8));
	}
	return 0;
}

/* Read a word of an image. */
static int read_word(struct reef_image *image, uint64_t address, uint64_t *out)
{
	const struct reef_image_about *about = reef_image_about(image);
	static uint8_t bytes[REEF_IMAGE_PIECE];
	uint32_t at = (uint32_t)address, i = 0;

	while (i < about->extents_count &&
	       about->extents[i].number != address >> 32)
		i++;
	WANT(i < about->extents_count);
	TRY(reef_image_read(image, i, (uint32_t)(at / REEF_IMAGE_PIECE), bytes,
			    NULL));
	memcpy(out, bytes + at % REEF_IMAGE_PIECE, 8);
	return 0;
}

static int saves(struct member *member)
{
	uint64_t first, second;
	struct reef_image *image;
	struct reef_store *store;
	int rc;

	TRY(member_await(member, &scene.step, 1));
	TRY(reef_space_save(member->reef, "space", scratch_path("image"), NULL,
			    NULL));
	scene.step = 2;
	TRY(reef_store_open_directory(scratch_path("."), &store));
	TRY(reef_image_open(store, "image", &image));
	WANT(reef_image_about(image)->copies == member->pool->copies);
	rc = read_word(image, scene.first, &first);
	if (!rc)
		rc = read_word(image, scene.second, &second);
	reef_image_close(image);
	reef_store_destroy(store);
	TRY(rc);
	WANT(first == second || first == second + 1);
	return 0;
}

static int run(uint64_t seed, uint8_t copies)
{
	struct pool pool = {.copies = copies, .witnesses = 1};

	memset(&scene, 0, sizeof(scene));
	pool_start(&pool, seed);
	pool_add(&pool, writes_in_order);
	pool_add(&pool, saves);
	return pool_end(&pool);
}

static void client_image_is_of_one_moment(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++)
		for (uint8_t copies = 1; copies <= 2; copies++)
			assert_int_equal(run(seed, copies), 0);
}

#if !SANITIZED
static void client_mutant_of_mixed_moments_is_found(void **state)
{
	bool found = false;

	(void)state;
	try_quiet = true;
	reef_mutate(REEF_MUTANT_BROKER_MIXED_IMAGE);
	for (uint64_t seed = 1; seed <= 20 && !found; seed++)
		found = run(seed, 1) == -EXDEV;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(client_image_is_of_one_moment,
						scratch_make, scratch_remove),
#if !SANITIZED
		cmocka_unit_test_setup_teardown(
			client_mutant_of_mixed_moments_is_found, scratch_make,
			scratch_remove),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
