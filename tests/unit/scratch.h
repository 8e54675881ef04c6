/* scratch.h - a directory of its own for each test, gone when it ends. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRATCH_PATH_MAX 256

static char scratch[64];

/* "scratch/name"; each call has its own storage, of eight. */
static inline const char *scratch_path(const char *name)
{
	static char paths[8][SCRATCH_PATH_MAX];
	static unsigned int next;
	char *path = paths[next++ % 8];

	assert_true(snprintf(path, SCRATCH_PATH_MAX, "%s/%s", scratch, name) <
		    SCRATCH_PATH_MAX);
	return path;
}

/* A setup and a teardown for cmocka. */
static inline int scratch_make(void **state)
{
	const char *parent = getenv("TMPDIR");

	snprintf(scratch, sizeof(scratch), "%s/reef-test-XXXXXX",
		 parent && strlen(parent) < 40 ? parent : "/tmp");
	return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove_one(const char *path,
				     const struct stat *status, int type,
				     struct FTW *at)
{
	return remove(path);
}

static inline int scratch_remove(void **state)
{
	return nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Write a file, with the directories above it. */
static inline void scratch_write(const char *name, const char *text,
				 size_t size, mode_t mode)
{
	char path[SCRATCH_PATH_MAX];
	FILE *file;

	snprintf(path, sizeof(path), "%s", scratch_path(name));
	for (char *slash = path + strlen(scratch) + 1;
	     (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		mkdir(path, 0700);
		*slash = '/';
	}
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, size, file), size);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, mode), 0);
}

#endif
