/* test_keep_image.c - a node's memory between a clean stop and the next start.
 */
#include "base/mutant.h"
#include "base/random.h"
#include "base/store/store.h"
#include "pool/node/keep_image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>

#define SIZE (3u << 20)

static const struct reef_memory_options like = {
	.backing = REEF_BACKING_SIMULATED, .size = SIZE};
static const struct reef_keep_head head = {
	.pool = 5,
	.node = 6,
	.broker_epoch = 7,
	.followed_start = 8,
	.confirmed_epoch = 9,
	.confirmed_start = 10,
	.confirmed = 11,
};
static struct reef_random chance;

static int open_store(void **state)
{
	reef_random_init(&chance, 3);
	return reef_store_open_memory(&chance, (struct reef_store **)state);
}

static int close_store(void **state)
{
	reef_store_destroy(*state);
	return 0;
}

static void fill(uint8_t *bytes, uint32_t seed)
{
	for (uint32_t i = 0; i < SIZE; i += 997)
		bytes[i] = (uint8_t)(i / 997 + seed);
}

/* Save two extents. */
static int save(struct reef_store *store)
{
	struct reef_kept_extent extents[2] = {
		{.line = {.extent = 3,
			  .space = 1,
			  .epoch = 4,
			  .size = SIZE,
			  .copy = 70}},
		{.line = {.extent = 8,
			  .space = 2,
			  .epoch = 1,
			  .size = SIZE,
			  .copy = 71}},
	};
	struct reef_kept kept = {
		.head = head, .extents = extents, .extents_count = 2};
	struct reef_keep *keep;
	int rc;

	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(reef_memory_create(&like, &extents[i].memory),
				 0);
		fill(extents[i].memory->base, i);
	}
	assert_int_equal(reef_keep_image_create(store, NULL, &keep), 0);
	rc = keep->ops->save(keep, &kept);
	assert_int_equal(reef_keep_image_report(keep)->done, rc == 0);
	reef_keep_image_destroy(keep);
	for (uint32_t i = 0; i < 2; i++)
		reef_memory_destroy(extents[i].memory);
	return rc;
}

/* Take what is kept; returns how many extents, or an error. */
static int take(struct reef_store *store)
{
	struct reef_kept kept = {0};
	struct reef_keep *keep;
	uint8_t *wanted;
	int rc;

	assert_int_equal(reef_keep_image_create(store, NULL, &keep), 0);
	rc = keep->ops->take(keep, &like, &kept);
	assert_int_equal(reef_keep_image_report(keep)->done,
			 rc == 0 && kept.extents_count);
	if (rc == 0)
		assert_int_equal(keep->ops->lend(keep, &kept), 0);
	if (rc == 0 && kept.extents_count) {
		assert_memory_equal(&kept.head, &head, sizeof(head));
		assert_int_equal(kept.extents[0].line.copy, 70);
		assert_int_equal(kept.extents[0].line.epoch, 4);
		assert_int_equal(kept.extents[1].line.extent, 8);
		wanted = calloc(1, SIZE);
		for (uint32_t i = 0; i < 2; i++) {
			fill(wanted, i);
			assert_memory_equal(kept.extents[i].memory->base,
					    wanted, SIZE);
		}
		free(wanted);
		rc = (int)kept.extents_count;
	}
	reef_kept_fini(&kept);
	reef_keep_image_destroy(keep);
	return rc;
}

static void keep_image_comes_back_once(void **state)
{
	assert_int_equal(take(*state), 0);
	assert_int_equal(save(*state), 0);
	reef_store_crash(*state);
	assert_int_equal(take(*state), 2);
	/* From here on the memory is newer than the image. */
	reef_store_crash(*state);
	assert_int_equal(take(*state), 0);
}

/* A mark that stays would bring old memory back after an unclean end. */
static void keep_image_mutant_is_found(void **state)
{
	reef_mutate(REEF_MUTANT_KEEP_CLEAN_TWICE);
	assert_int_equal(save(*state), 0);
	assert_int_equal(take(*state), 2);
	/* A node that was right would have nothing. */
	assert_int_equal(take(*state), 2);
	reef_mutate(REEF_MUTANT_NONE);
}

/* Nor without any mark: that image is older than what other nodes have. */
static void keep_image_mixed_mutant_is_found(void **state)
{
	assert_int_equal(save(*state), 0);
	assert_int_equal(take(*state), 2);
	reef_mutate(REEF_MUTANT_KEEP_MIXED_IMAGE);
	/* keep_image_comes_back_once would fail. */
	assert_int_equal(take(*state), 2);
	reef_mutate(REEF_MUTANT_NONE);
}

static void keep_image_damaged_stays_and_is_refused(void **state)
{
	struct reef_disk_file *file;
	uint8_t byte;

	assert_int_equal(save(*state), 0);
	assert_int_equal(reef_disk_open(*state, "image", 0, &file), 0);
	assert_int_equal(reef_disk_read(file, 9000, &byte, 1), 1);
	byte ^= 1;
	reef_disk_write(file, 9000, &byte, 1);
	assert_int_equal(take(*state), -REEF_ECORRUPT);
	assert_int_equal(take(*state), -REEF_ECORRUPT);
	byte ^= 1;
	reef_disk_write(file, 9000, &byte, 1);
	reef_disk_close(file);
	assert_int_equal(take(*state), 2);
}

static void keep_image_of_another_mark_is_refused(void **state)
{
	uint8_t bytes[16] = {0};
	struct reef_disk_file *file;

	assert_int_equal(save(*state), 0);
	assert_int_equal(reef_disk_open(*state, "clean", 0, &file), 0);
	assert_int_equal(reef_disk_read(file, 0, bytes, 16), 16);
	reef_disk_close(file);
	assert_int_equal(save(*state), 0); /* another number */
	assert_int_equal(reef_disk_open(*state, "clean", 0, &file), 0);
	reef_disk_write(file, 0, bytes, 16);
	reef_disk_close(file);
	assert_int_equal(take(*state), -REEF_ECORRUPT);
}

/* Whichever call fails, and then the power: all comes back, or nothing; after a
 * save that said 0, all. */
static void keep_image_crash_leaves_all_or_nothing(void **state)
{
	uint32_t n;
	int rc = -EIO, got;

	for (n = 1; rc && n < 200; n++) {
		reef_store_fail_after(*state, n);
		rc = save(*state);
		reef_store_fail_after(*state, 0);
		reef_store_crash(*state);
		got = take(*state);
		assert_true(got == 2 || (rc && got == 0));
	}
	assert_int_equal(rc, 0);
	assert_true(n > 5);
}

static void keep_image_folder_is_one_process_s(void **state)
{
	struct reef_kept kept = {0};
	struct reef_keep *first, *second;

	assert_int_equal(reef_keep_image_create(*state, NULL, &first), 0);
	assert_int_equal(first->ops->take(first, &like, &kept), 0);
	assert_int_equal(reef_keep_image_create(*state, NULL, &second), 0);
	assert_int_equal(second->ops->take(second, &like, &kept), -EBUSY);
	assert_int_equal(second->ops->save(second, &kept), -EBUSY);
	reef_keep_image_destroy(second);
	reef_keep_image_destroy(first);
}

/* An image knows the memory that it is of by its number. */
static void keep_image_knows_what_it_is_of(void **state)
{
	struct reef_keep_head of = head;
	struct reef_kept kept = {.head = head};
	struct reef_keep *keep;

	assert_int_equal(reef_keep_image_create(*state, NULL, &keep), 0);
	assert_int_equal(keep->ops->has(keep, &of), 0);
	of.image = keep->ops->number(keep);
	assert_int_equal(keep->ops->has(keep, &of), 0);
	assert_int_equal(keep->ops->save(keep, &kept), 0);
	assert_int_equal(keep->ops->has(keep, &of), 1);
	of.image = keep->ops->number(keep); /* of the next one */
	assert_int_equal(keep->ops->has(keep, &of), -EEXIST);
	of.image = 0;
	assert_int_equal(keep->ops->has(keep, &of), -EEXIST);
	assert_int_equal(keep->ops->take(keep, &like, &kept), 0);
	of.image = keep->ops->number(keep);
	assert_int_equal(keep->ops->has(keep, &of), 1);
	assert_int_equal(keep->ops->lend(keep, &kept), 0);
	assert_int_equal(keep->ops->has(keep, &of), 0);
	assert_int_not_equal(keep->ops->number(keep), of.image);
	reef_keep_image_destroy(keep);
	reef_kept_fini(&kept);
}

int main(void)
{
#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, open_store, close_store)
	const struct CMUnitTest tests[] = {
		TEST(keep_image_comes_back_once),
		TEST(keep_image_mutant_is_found),
		TEST(keep_image_mixed_mutant_is_found),
		TEST(keep_image_damaged_stays_and_is_refused),
		TEST(keep_image_of_another_mark_is_refused),
		TEST(keep_image_crash_leaves_all_or_nothing),
		TEST(keep_image_folder_is_one_process_s),
		TEST(keep_image_knows_what_it_is_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
