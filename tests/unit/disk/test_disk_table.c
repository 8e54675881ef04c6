/* test_disk_table.c - places of files in the table of a cover. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "integrations/disk/table.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT 16u

static char name[64];
static struct table *table;
static int lock;

static int attach(void **state)
{
	snprintf(name, sizeof(name), "test-%d", (int)getpid());
	return table_attach(name, &table, &lock);
}

static int detach(void **state)
{
	char path[160];

	table_detach(table, lock);
	table_path(name, path);
	return unlink(path);
}

static struct reef_page_file make_file(uint64_t inode)
{
	return (struct reef_page_file){
		.filesystem = "test", .inode = inode, .born_ns = 7};
}

/* The place of a file whose path leads nowhere. */
static struct table_slot *make(uint64_t inode)
{
	struct reef_page_file file = make_file(inode);
	char path[64];

	snprintf(path, sizeof(path), "/nowhere/%llu",
		 (unsigned long long)inode);
	return table_find(table, &file, path);
}

static void trust(struct table_slot *slot)
{
	atomic_store(&slot->cleared, atomic_load(&slot->begun) + 1);
}

static void table_has_room_after_any_number_of_files(void **state)
{
	struct reef_page_file file;

	for (uint64_t i = 1; i <= 3 * TABLE_SLOTS; i++) {
		file = make_file(i);
		assert_non_null(make(i));
		assert_true(table_is_of(table_find(table, &file, NULL), &file));
	}
	assert_true(table->used <= TABLE_SLOTS);
}

/* Those that have a write under way, or a file, keep their places. */
static void table_keeps_places_that_are_needed(void **state)
{
	struct table_slot *slots[3 * KEPT];
	struct reef_page_file files[3 * KEPT];
	struct stat about;

	assert_int_equal(stat("/", &about), 0);
	for (uint32_t i = 0; i < KEPT; i++) {
		files[i] = make_file(i + 1);
		slots[i] = make(i + 1);
		table_begin(table, slots[i]);
		files[KEPT + i] = make_file(KEPT + i + 1);
		slots[KEPT + i] = make(KEPT + i + 1);
		assert_true(table_hold(slots[KEPT + i], &files[KEPT + i]));
		files[2 * KEPT + i] = make_file(about.st_ino);
		files[2 * KEPT + i].born_ns = i;
		slots[2 * KEPT + i] =
			table_find(table, &files[2 * KEPT + i], "/");
	}
	for (uint64_t i = 0; i < 3 * TABLE_SLOTS; i++)
		assert_non_null(make(1000 + i));
	for (uint32_t i = 0; i < 3 * KEPT; i++) {
		assert_non_null(slots[i]);
		assert_ptr_equal(table_find(table, &files[i], NULL), slots[i]);
	}
}

/* Who had a place sees that it is none of its any more, though its next file is
 * trusted. */
static void table_tells_who_had_a_place(void **state)
{
	struct table_slot *slot = make(1);
	struct reef_page_file file = make_file(1);
	uint32_t begun, before;

	trust(slot);
	assert_true(table_trusts(slot, &before));
	for (uint64_t i = 2; table_is_of(slot, &file); i++) {
		assert_true(i < 100 * TABLE_SLOTS);
		assert_non_null(make(i));
	}
	assert_false(table_trusts(slot, &begun));
	trust(slot);
	assert_true(table_trusts(slot, &begun));
	assert_int_not_equal(begun, before);
	assert_false(table_hold(slot, &file));
	assert_int_equal(slot->telling, 0);
}

static void table_is_folded_by_the_last(void **state)
{
	char path[160];
	struct stat about;
	int other;

	assert_non_null(make(1));
	atomic_store(&table->counts.hits, 7);
	other = table_lock_again(name);
	assert_true(other >= 0);
	assert_false(table_is_last(lock));
	close(other);
	assert_true(table_is_last(lock));
	/* A child that is forked by now does not wait for its parent. */
	assert_int_equal(table_lock_again(name), -EWOULDBLOCK);
	table_fold(lock);
	table_path(name, path);
	assert_int_equal(stat(path, &about), 0);
	assert_true(about.st_blocks * 512 <= 65536);
	assert_int_equal(about.st_size, sizeof(*table));
	assert_int_equal(table->counts.hits, 7);
}

#define TABLE_TEST(name) cmocka_unit_test_setup_teardown(name, attach, detach)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TABLE_TEST(table_has_room_after_any_number_of_files),
		TABLE_TEST(table_keeps_places_that_are_needed),
		TABLE_TEST(table_tells_who_had_a_place),
		TABLE_TEST(table_is_folded_by_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
