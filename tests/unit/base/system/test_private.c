/* test_private.c - what is private is made so, and the rest is refused. */
#include "fixture/scratch.h"

#include "base/system/private.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

static mode_t mode_of(const char *path)
{
	struct stat status;

	assert_int_equal(lstat(path, &status), 0);
	return status.st_mode & 07777;
}

static int entries_in(const char *path)
{
	DIR *directory = opendir(path);
	int count = -2; /* "." and ".." */

	assert_non_null(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void private_created_file_reads_back(void **state)
{
	const char *path = scratch_path("secret");
	char bytes[16];

	assert_int_equal(reef_private_create(path, "hello", 5), 0);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(reef_private_read(path, bytes, sizeof(bytes)), 5);
	assert_memory_equal(bytes, "hello", 5);
	/* Nothing else was left there. */
	assert_int_equal(entries_in(scratch), 1);
}

static void private_create_over_anything_is_refused(void **state)
{
	const char *path = scratch_path("secret"), *link = scratch_path("link");
	char bytes[16];

	scratch_write("secret", "old", 3, 0600);
	assert_int_equal(reef_private_create(path, "new", 3), -EEXIST);
	assert_int_equal(reef_private_read(path, bytes, sizeof(bytes)), 3);
	assert_memory_equal(bytes, "old", 3);
	assert_int_equal(symlink("nowhere", link), 0);
	assert_int_equal(reef_private_create(link, "new", 3), -EEXIST);
	assert_int_equal(reef_private_create(scratch, "new", 3), -EEXIST);
	assert_int_equal(entries_in(scratch), 2);
	assert_int_equal(access(scratch_path("nowhere"), F_OK), -1);
}

static void private_create_without_directory_says_so(void **state)
{
	assert_int_equal(reef_private_create(scratch_path("no/x"), "a", 1),
			 -ENOENT);
}

static void private_umask_adds_nothing(void **state)
{
	const char *file = scratch_path("file"), *directory = scratch_path("d");
	mode_t before = umask(0);

	assert_int_equal(reef_private_create(file, "a", 1), 0);
	assert_int_equal(reef_private_directory(directory), 0);
	umask(before);
	assert_int_equal(mode_of(file), 0600);
	assert_int_equal(mode_of(directory), 0700);
}

static void private_open_modes_are_refused(void **state)
{
	static const mode_t open_modes[] = {0640, 0604, 0620, 0602, 0610, 0666};
	const char *path = scratch_path("secret");
	char bytes[16];

	scratch_write("secret", "a", 1, 0600);
	for (size_t i = 0; i < sizeof(open_modes) / sizeof(mode_t); i++) {
		assert_int_equal(chmod(path, open_modes[i]), 0);
		assert_int_equal(reef_private_read(path, bytes, sizeof(bytes)),
				 -EPERM);
	}
	assert_int_equal(chmod(path, 0400), 0);
	assert_int_equal(reef_private_read(path, bytes, sizeof(bytes)), 1);
}

static void private_other_owner_is_refused(void **state)
{
	const char *path = "/etc/passwd";
	char bytes[16];

	if (geteuid() == 0) {
		path = scratch_path("secret");
		scratch_write("secret", "a", 1, 0600);
		assert_int_equal(chown(path, 1, 0), 0);
	}
	assert_int_equal(reef_private_read(path, bytes, sizeof(bytes)), -EPERM);
}

static void private_symbolic_link_is_refused(void **state)
{
	const char *link = scratch_path("link");
	char bytes[16];

	scratch_write("secret", "a", 1, 0600);
	assert_int_equal(symlink("secret", link), 0);
	assert_int_equal(reef_private_read(link, bytes, sizeof(bytes)), -EPERM);
}

static void private_odd_files_are_refused(void **state)
{
	const char *pipe = scratch_path("pipe"), *dir = scratch_path("dir");
	char bytes[16];

	/* Nobody writes into the pipe, and nobody waits for it. */
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(reef_private_read(pipe, bytes, sizeof(bytes)), -EPERM);
	assert_int_equal(reef_private_read(dir, bytes, sizeof(bytes)), -EPERM);
	assert_int_equal(reef_private_read(scratch_path("no"), bytes, 1),
			 -ENOENT);
}

static void private_size_is_a_limit(void **state)
{
	const char *path = scratch_path("secret");
	char bytes[16];

	scratch_write("secret", "12345", 5, 0600);
	assert_int_equal(reef_private_read(path, bytes, 5), 5);
	assert_int_equal(reef_private_read(path, bytes, 4), -EFBIG);
	scratch_write("secret", "", 0, 0600);
	assert_int_equal(reef_private_read(path, bytes, 4), 0);
}

static void private_directory_is_made_with_parents(void **state)
{
	const char *path = scratch_path("a/b/c/");

	assert_int_equal(reef_private_directory(path), 0);
	assert_int_equal(mode_of(scratch_path("a/b")), 0700);
	assert_int_equal(mode_of(scratch_path("a/b/c")), 0700);
	assert_int_equal(reef_private_directory(path), 0);
}

static void private_directory_not_private_is_refused(void **state)
{
	const char *dir = scratch_path("dir"), *link = scratch_path("link");

	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(symlink("dir", link), 0);
	assert_int_equal(reef_private_directory(link), -EPERM);
	assert_int_equal(reef_private_directory(scratch_path("link/")), -EPERM);
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(reef_private_directory(dir), -EPERM);
	if (geteuid() == 0) {
		assert_int_equal(chmod(dir, 0700), 0);
		assert_int_equal(chown(dir, 1, 0), 0);
		assert_int_equal(reef_private_directory(dir), -EPERM);
	}
	scratch_write("file", "", 0, 0600);
	assert_int_equal(reef_private_directory(scratch_path("file")), -EPERM);
	assert_int_equal(reef_private_directory(scratch_path("file/x")),
			 -ENOTDIR);
}

static void private_directory_not_from_the_root_is_refused(void **state)
{
	assert_int_equal(reef_private_directory("here"), -EINVAL);
	assert_int_equal(reef_private_directory(""), -EINVAL);
}

#define TEST(name)                                                             \
	cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(private_created_file_reads_back),
		TEST(private_create_over_anything_is_refused),
		TEST(private_create_without_directory_says_so),
		TEST(private_umask_adds_nothing),
		TEST(private_open_modes_are_refused),
		TEST(private_other_owner_is_refused),
		TEST(private_symbolic_link_is_refused),
		TEST(private_odd_files_are_refused),
		TEST(private_size_is_a_limit),
		TEST(private_directory_is_made_with_parents),
		TEST(private_directory_not_private_is_refused),
		TEST(private_directory_not_from_the_root_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
