/* test_image.c - images: what is written is read back, and whatever was done to
 * the file in between is found. */
#include "base/random.h"
#include "base/store/store.h"
#include "fixture/store_wrapper.h"
#include "pool/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "image"
#define MARK "clean"

static struct reef_random chance;

static const struct reef_image_extent small[] = {
	{.number = 7,
	 .space = 3,
	 .ordinal = 0,
	 .epoch = 2,
	 .copy = 99,
	 .size = 8192},
	{.number = 9, .space = 3, .ordinal = 4, .epoch = 1, .size = 4096},
};
static const struct reef_image_name names[] = {
	{.name = {"lock", 4}, .value = 5, .generation = 17},
	{.name = {"map", 3}, .value = 6, .generation = 18},
};
static const uint32_t sessions[] = {0x10002, 0x30001};

static struct reef_image_about about_of(const struct reef_image_extent *extents,
					uint32_t count)
{
	return (struct reef_image_about){
		.kind = REEF_IMAGE_SPACE,
		.pool = 11,
		.broker_epoch = 12,
		.unix_ns = 13,
		.number = 14,
		.space = 3,
		.space_kind = 1,
		.keeping = 1,
		.quota = 1 << 20,
		.name = {"redis", 5},
		.names = names,
		.names_count = 2,
		.sessions = sessions,
		.sessions_count = 2,
		.extents = extents,
		.extents_count = count,
	};
}

/* What stands in a piece: of the second of every three pages nothing. */
static void fill(uint8_t *bytes, size_t size, uint32_t extent, uint32_t piece)
{
	for (size_t i = 0; i < size; i++)
		bytes[i] = i / 4096 % 3 == 1
				   ? 0
				   : (uint8_t)(i * 7 + extent * 31 + piece + 1);
}

static int write_image(struct reef_store *store,
		       const struct reef_image_about *about)
{
	uint8_t *bytes = malloc(REEF_IMAGE_PIECE);
	struct reef_image_writer *writer;
	uint32_t i, piece, size;
	int rc;

	rc = reef_image_begin(store, NAME, about, &writer);
	if (rc) {
		free(bytes);
		return rc;
	}
	for (i = 0; rc == 0 && i < about->extents_count; i++)
		for (piece = 0;
		     rc == 0 &&
		     piece < reef_image_pieces(about->extents[i].size);
		     piece++) {
			size = reef_image_piece_size(about->extents[i].size,
						     piece);
			fill(bytes, size, i, piece);
			rc = reef_image_write(writer, i, piece, bytes);
		}
	free(bytes);
	if (rc) {
		reef_image_discard(writer);
		return rc;
	}
	return reef_image_finish(writer);
}

static int check_image(struct reef_store *store)
{
	struct reef_image *image;
	int rc = reef_image_open(store, NAME, &image);

	if (rc)
		return rc;
	rc = reef_image_verify(image, NULL, NULL);
	reef_image_close(image);
	return rc;
}

static int open_memory(void **state)
{
	reef_random_init(&chance, 1);
	return reef_store_open_memory(&chance, (struct reef_store **)state);
}

static int close_store(void **state)
{
	reef_store_destroy(*state);
	return 0;
}

static void image_written_is_read_back(void **state)
{
	static const struct reef_image_extent extents[] = {
		{.number = 1, .space = 2, .epoch = 1, .size = 3 << 20},
		{.number = 2,
		 .space = 2,
		 .ordinal = 1,
		 .epoch = 5,
		 .size = (1 << 20) + 8192},
	};
	struct reef_image_about about = about_of(extents, 2);
	const struct reef_image_about *found;
	uint8_t *bytes = malloc(REEF_IMAGE_PIECE);
	uint8_t *wanted = malloc(REEF_IMAGE_PIECE);
	struct reef_image *image;
	uint32_t size;
	bool empty;

	assert_int_equal(write_image(*state, &about), 0);
	assert_int_equal(reef_image_open(*state, NAME, &image), 0);
	found = reef_image_about(image);
	assert_int_equal(found->pool, 11);
	assert_int_equal(found->broker_epoch, 12);
	assert_int_equal(found->number, 14);
	assert_int_equal(found->quota, 1 << 20);
	assert_int_equal(found->extents_count, 2);
	assert_memory_equal(found->extents, extents, sizeof(extents));
	assert_memory_equal(found->sessions, sessions, sizeof(sessions));
	assert_true(reef_text_is(found->name, "redis"));
	assert_true(reef_text_is(found->names[1].name, "map"));
	assert_int_equal(found->names[1].value, 6);
	assert_int_equal(found->names[1].generation, 18);
	assert_int_equal(reef_image_size(image), (4 << 20) + 8192);
	for (uint32_t i = 0; i < 2; i++)
		for (uint32_t piece = 0;
		     piece < reef_image_pieces(extents[i].size); piece++) {
			size = reef_image_piece_size(extents[i].size, piece);
			fill(wanted, size, i, piece);
			assert_int_equal(
				reef_image_read(image, i, piece, bytes, &empty),
				0);
			assert_memory_equal(bytes, wanted, size);
			assert_false(empty);
		}
	reef_image_close(image);
	free(wanted);
	free(bytes);
}

static void image_unwritten_piece_is_empty(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	struct reef_image_writer *writer;
	struct reef_image *image;
	uint8_t bytes[8192];
	bool empty = false;

	assert_int_equal(reef_image_begin(*state, NAME, &about, &writer), 0);
	assert_int_equal(reef_image_finish(writer), 0);
	assert_int_equal(reef_image_open(*state, NAME, &image), 0);
	assert_int_equal(reef_image_read(image, 0, 0, bytes, &empty), 0);
	assert_true(empty);
	assert_int_equal(bytes[0] | bytes[8191], 0);
	reef_image_close(image);
}

static void image_each_byte_flipped_is_refused(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	struct reef_disk_file *file;
	uint8_t byte;
	int64_t size;
	int rc;

	assert_int_equal(write_image(*state, &about), 0);
	assert_int_equal(reef_disk_open(*state, NAME, 0, &file), 0);
	size = reef_disk_size(file);
	assert_true(size > 4096);
	for (int64_t i = 0; i < size; i++) {
		assert_int_equal(reef_disk_read(file, (uint64_t)i, &byte, 1),
				 1);
		byte ^= (uint8_t)(1u << i % 8);
		reef_disk_write(file, (uint64_t)i, &byte, 1);
		rc = check_image(*state);
		if (rc != -REEF_ECORRUPT && rc != -REEF_EVERSION)
			fail_msg("byte %lld: %d", (long long)i, rc);
		byte ^= (uint8_t)(1u << i % 8);
		reef_disk_write(file, (uint64_t)i, &byte, 1);
		reef_disk_sync(file);
	}
	assert_int_equal(check_image(*state), 0);
	reef_disk_close(file);
}

static void image_each_truncation_is_refused(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	struct reef_disk_file *file;
	int64_t size;

	assert_int_equal(write_image(*state, &about), 0);
	assert_int_equal(reef_disk_open(*state, NAME, 0, &file), 0);
	size = reef_disk_size(file);
	reef_disk_truncate(file, (uint64_t)size + 1);
	assert_int_equal(check_image(*state), -REEF_ECORRUPT);
	for (int64_t i = size - 1; i >= 0; i--) {
		reef_disk_truncate(file, (uint64_t)i);
		reef_disk_sync(file);
		if (check_image(*state) != -REEF_ECORRUPT)
			fail_msg("%lld bytes are taken", (long long)i);
	}
	reef_disk_close(file);
}

static void image_other_version_is_refused(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	uint8_t version = REEF_IMAGE_VERSION + 1;
	struct reef_disk_file *file;

	assert_int_equal(write_image(*state, &about), 0);
	assert_int_equal(reef_disk_open(*state, NAME, 0, &file), 0);
	reef_disk_write(file, 8, &version, 1);
	reef_disk_close(file);
	assert_int_equal(check_image(*state), -REEF_EVERSION);
}

/* Pieces that were exchanged have right bytes in the wrong place (3). */
static void image_exchanged_pieces_are_refused(void **state)
{
	static const struct reef_image_extent extent = {
		.number = 1, .space = 2, .epoch = 1, .size = 2 << 20};
	struct reef_image_about about = about_of(&extent, 1);
	uint8_t *bytes = malloc(2 * REEF_IMAGE_PIECE);
	struct reef_disk_file *file;

	assert_int_equal(write_image(*state, &about), 0);
	assert_int_equal(reef_disk_open(*state, NAME, 0, &file), 0);
	assert_int_equal(reef_disk_read(file, 8192, bytes, 2 << 20), 2 << 20);
	reef_disk_write(file, 8192, bytes + (1 << 20), 1 << 20);
	reef_disk_write(file, 8192 + (1 << 20), bytes, 1 << 20);
	reef_disk_close(file);
	assert_int_equal(check_image(*state), -REEF_ECORRUPT);
	free(bytes);
}

/* Whichever call fails, and then the power: there is the image of before, or
 * the new one (1). */
static void image_crash_at_each_call_leaves_one_image(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	const struct reef_image_about *found;
	struct reef_image *image;
	uint32_t n = 0;
	int rc = -EIO;

	assert_int_equal(write_image(*state, &about), 0);
	about.number = 15;
	for (n = 1; rc && n < 100; n++) {
		reef_store_fail_after(*state, n);
		rc = write_image(*state, &about);
		reef_store_fail_after(*state, 0);
		reef_store_crash(*state);
		assert_int_equal(check_image(*state), 0);
		assert_int_equal(reef_image_open(*state, NAME, &image), 0);
		found = reef_image_about(image);
		assert_true(found->number == 15 || (rc && found->number == 14));
		reef_image_close(image);
	}
	assert_int_equal(rc, 0);
	assert_true(n > 5);
}

static void image_bad_about_is_refused(void **state)
{
	struct reef_image_extent bad[2] = {small[0], small[1]};
	struct reef_image_about about = about_of(bad, 2);
	struct reef_image_writer *writer;
	char name[300];

	bad[1].size = 4095;
	assert_int_equal(reef_image_begin(*state, NAME, &about, &writer),
			 -EINVAL);
	bad[1] = bad[0];
	assert_int_equal(reef_image_begin(*state, NAME, &about, &writer),
			 -EINVAL);
	bad[1] = small[1];
	about.names_count = REEF_IMAGE_NAMES_MAX + 1;
	assert_int_equal(reef_image_begin(*state, NAME, &about, &writer),
			 -EINVAL);
	about.names_count = 0;
	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(reef_image_begin(*state, name, &about, &writer),
			 -ENAMETOOLONG);
	assert_int_equal(check_image(*state), -ENOENT);
}

static void image_mark_counts_once(void **state)
{
	struct reef_disk_file *file;
	uint64_t number = 1;
	uint8_t byte = 0x55;

	assert_int_equal(reef_image_unmark(*state, MARK, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(reef_image_mark(*state, MARK, 77), 0);
	reef_store_crash(*state);
	assert_int_equal(reef_image_unmark(*state, MARK, &number), 0);
	assert_int_equal(number, 77);
	reef_store_crash(*state);
	assert_int_equal(reef_image_unmark(*state, MARK, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(reef_image_mark(*state, MARK, 77), 0);
	assert_int_equal(reef_disk_open(*state, MARK, 0, &file), 0);
	reef_disk_write(file, 3, &byte, 1);
	reef_disk_close(file);
	assert_int_equal(reef_image_unmark(*state, MARK, &number), 0);
	assert_int_equal(number, 0);
}

/* A file in a folder has holes where there is nothing. */
static void image_of_zeroes_takes_no_room(void **state)
{
	static const struct reef_image_extent extent = {
		.number = 1, .space = 2, .epoch = 1, .size = 64 << 20};
	struct reef_image_about about = about_of(&extent, 1);
	char path[] = "/tmp/reef-image-XXXXXX", file[64];
	struct reef_image_writer *writer;
	struct reef_store *store;
	struct stat status;
	uint8_t *piece = calloc(1, REEF_IMAGE_PIECE);

	assert_non_null(mkdtemp(path));
	assert_int_equal(reef_store_open_directory(path, &store), 0);
	assert_int_equal(reef_image_begin(store, NAME, &about, &writer), 0);
	piece[5000] = 1;
	assert_int_equal(reef_image_write(writer, 0, 3, piece), 0);
	assert_int_equal(reef_image_finish(writer), 0);
	snprintf(file, sizeof(file), "%s/%s", path, NAME);
	assert_int_equal(stat(file, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	assert_true(status.st_size > 64 << 20);
	assert_true(status.st_blocks * 512 < 1 << 20);
	assert_int_equal(check_image(store), 0);
	reef_store_destroy(store);
	unlink(file);
	rmdir(path);
	free(piece);
}

/* An image stops before the disk is full to its last byte. */
static void image_leaves_room_to_others(void **state)
{
	struct reef_image_about about = about_of(small, 2);
	struct wrapper wrapper;

	wrapper_init(&wrapper, *state);
	/* It has one page at a time: the second of each extent is empty. */
	wrapper.room = 4096;
	assert_int_equal(write_image(&wrapper.base, &about), 0);
	wrapper.room = 4095;
	assert_int_equal(write_image(&wrapper.base, &about), -ENOSPC);
	assert_int_equal(check_image(*state), 0);
}

int main(void)
{
#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, open_memory, close_store)
	const struct CMUnitTest tests[] = {
		TEST(image_written_is_read_back),
		TEST(image_unwritten_piece_is_empty),
		TEST(image_each_byte_flipped_is_refused),
		TEST(image_each_truncation_is_refused),
		TEST(image_other_version_is_refused),
		TEST(image_exchanged_pieces_are_refused),
		TEST(image_crash_at_each_call_leaves_one_image),
		TEST(image_bad_about_is_refused),
		TEST(image_mark_counts_once),
		TEST(image_leaves_room_to_others),
		cmocka_unit_test(image_of_zeroes_takes_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
