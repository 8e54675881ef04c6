/* test_file.c - files of one client: every call, against a model, and what it
 * costs. */
#include "fixture/pool_world.h"

#include <reef/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 4096u
#define SIZE (640 * 1024u) /* more than an inode names itself */

static int open_file(struct reef_space *space, const char *name, uint32_t flags,
		     struct reef_file **out)
{
	const struct reef_file_options options = {.flags = flags,
						  .chunk = CHUNK};

	return reef_file_open(space, name, &options, out);
}

/* --- each call --- */

static int reads_and_writes(struct reef_file *file)
{
	char bytes[64], zeroes[64] = {0};
	struct reef_file_info info;

	WANT(reef_file_pread(file, bytes, sizeof(bytes), 0) == 0);
	WANT(reef_file_pwrite(file, "hello", 5, CHUNK - 2) == 5);
	WANT(reef_file_pread(file, bytes, sizeof(bytes), CHUNK - 3) == 6);
	WANT(!memcmp(bytes, "\0hello", 6));
	WANT(reef_file_pread(file, bytes, sizeof(bytes), 100) == 64);
	WANT(!memcmp(bytes, zeroes, sizeof(bytes)));
	TRY(reef_file_stat(file, &info));
	WANT(info.size == CHUNK + 3 && info.chunk == CHUNK && !info.scratch);
	WANT(info.taken > 2 * CHUNK && info.taken < 8 * CHUNK);
	/* A hole of a whole index block between them. */
	WANT(reef_file_pwrite(file, "far", 3, 5000 * (uint64_t)CHUNK) == 3);
	WANT(reef_file_pread(file, bytes, 64, 5000 * (uint64_t)CHUNK - 61) ==
	     64);
	WANT(!memcmp(bytes, zeroes, 61) && !memcmp(bytes + 61, "far", 3));
	return reef_file_sync(file);
}

static int finds_data(struct reef_file *file)
{
	uint64_t from = 1, to = 2;

	WANT_RC(reef_file_find_data(file, 0, &from, &to), -ENXIO);
	WANT(from == 1 && to == 2);
	/* Chunks 3 and 4; the one of the index block; the last, up to the end.
	 */
	WANT(reef_file_pwrite(file, "xy", 2, 4 * CHUNK - 1) == 2);
	WANT(reef_file_pwrite(file, "x", 1, 200 * CHUNK) == 1);
	WANT(reef_file_pwrite(file, "x", 1, 9000 * CHUNK + 9) == 1);
	TRY(reef_file_find_data(file, 0, &from, &to));
	WANT(from == 3 * CHUNK && to == 5 * CHUNK);
	TRY(reef_file_find_data(file, 4 * CHUNK + 7, &from, &to));
	WANT(from == 4 * CHUNK + 7 && to == 5 * CHUNK);
	TRY(reef_file_find_data(file, to, &from, &to));
	WANT(from == 200 * CHUNK && to == 201 * CHUNK);
	TRY(reef_file_find_data(file, to, &from, &to));
	WANT(from == 9000 * CHUNK && to == 9000 * CHUNK + 10);
	WANT_RC(reef_file_find_data(file, to, &from, &to), -ENXIO);
	WANT_RC(reef_file_find_data(file, UINT64_MAX, &from, &to), -ENXIO);
	TRY(reef_file_punch(file, 0, 300 * CHUNK));
	TRY(reef_file_find_data(file, 0, &from, &to));
	WANT(from == 9000 * CHUNK);
	return reef_file_truncate(file, 0);
}

static int changes_shape(struct reef_file *file)
{
	char bytes[64], zeroes[64] = {0};
	struct reef_file_info info;
	uint64_t at;

	TRY(reef_file_truncate(file, CHUNK));
	TRY(reef_file_truncate(file, CHUNK + 10));
	WANT(reef_file_pread(file, bytes, 64, CHUNK - 2) == 12);
	WANT(!memcmp(bytes, "he\0\0\0\0\0\0\0\0\0\0", 12));
	/* What was cut off does not come back. */
	TRY(reef_file_truncate(file, CHUNK - 1));
	TRY(reef_file_truncate(file, CHUNK + 10));
	WANT(reef_file_pread(file, bytes, 64, CHUNK - 2) == 12);
	WANT(!memcmp(bytes, "h", 1) && !memcmp(bytes + 1, zeroes, 11));
	WANT(reef_file_append(file, "more", 4, &at) == 4);
	WANT(at == CHUNK + 10);
	TRY(reef_file_punch(file, CHUNK - 2, 1));
	WANT(reef_file_pread(file, bytes, 1, CHUNK - 2) == 1 && !bytes[0]);
	TRY(reef_file_punch(file, 0, 2 * CHUNK));
	TRY(reef_file_stat(file, &info));
	WANT(info.size == CHUNK + 14 && info.taken < 3 * CHUNK);
	WANT(reef_file_pread(file, bytes, 64, CHUNK) == 14);
	WANT(!memcmp(bytes, zeroes, 14));
	WANT_RC(reef_file_truncate(file, info.size_max + 1), -EFBIG);
	WANT(reef_file_pwrite(file, "x", 1, info.size_max) == -EFBIG);
	WANT(reef_file_pwrite(file, "xy", 2, UINT64_MAX) == -EFBIG);
	WANT(reef_file_pread(file, bytes, 1, UINT64_MAX) == 0);
	return 0;
}

static int count_names(void *context, const char *name)
{
	++*(int *)context;
	return strchr("abc", name[0]) ? 0 : -EXDEV;
}

static int refuses(struct reef_space *space)
{
	struct reef_file *file;
	char name[300] = {0};

	WANT_RC(open_file(space, "a", 0, &file), -ENOENT);
	WANT_RC(open_file(space, NULL, 0, &file), -EINVAL);
	WANT_RC(open_file(space, "", 0, &file), -EINVAL);
	WANT_RC(open_file(space, "a/b", 0, &file), -EINVAL);
	WANT_RC(open_file(space, ".", REEF_FILE_CREATE, &file), -EINVAL);
	WANT_RC(open_file(space, "..", REEF_FILE_CREATE, &file), -EINVAL);
	WANT_RC(open_file(space, "a", 64, &file), -EINVAL);
	memset(name, 'x', 256);
	WANT_RC(open_file(space, name, 0, &file), -ENAMETOOLONG);
	WANT_RC(reef_file_open(
			space, "a",
			&(struct reef_file_options){.flags = REEF_FILE_CREATE,
						    .chunk = 4097},
			&file),
		-EINVAL);
	WANT_RC(reef_file_delete(space, "a"), -ENOENT);
	WANT_RC(reef_file_rename(space, "a", "b", 0), -ENOENT);
	return reef_file_list(space, NULL, count_names, NULL);
}

static int renames(struct reef_space *space)
{
	struct reef_file *file, *other;
	char bytes[8];
	int count = 0;

	TRY(open_file(space, "a", REEF_FILE_CREATE, &file));
	WANT_RC(open_file(space, "a", REEF_FILE_CREATE | REEF_FILE_EXCLUSIVE,
			  &other),
		-EEXIST);
	WANT(reef_file_pwrite(file, "one", 3, 0) == 3);
	TRY(open_file(space, "b", REEF_FILE_CREATE, &other));
	WANT(reef_file_pwrite(other, "two", 3, 0) == 3);
	TRY(reef_file_rename(space, "a", "a", 0));
	WANT_RC(reef_file_rename(space, "a", "b", REEF_FILE_NOREPLACE),
		-EEXIST);
	TRY(reef_file_rename(space, "a", "b", 0));
	WANT_RC(reef_file_rename(space, "a", "b", 0), -ENOENT);
	/* Whoever has it open goes on. */
	WANT(reef_file_pwrite(file, "1", 1, 0) == 1);
	reef_file_close(other);
	TRY(open_file(space, "b", 0, &other));
	WANT(reef_file_pread(other, bytes, 8, 0) == 3);
	WANT(!memcmp(bytes, "1ne", 3));
	TRY(reef_file_rename(space, "b", "c", 0));
	TRY(reef_file_list(space, "", count_names, &count));
	WANT(count == 1);
	TRY(reef_file_delete(space, "c"));
	WANT_RC(reef_file_delete(space, "c"), -ENOENT);
	count = 0;
	TRY(reef_file_list(space, NULL, count_names, &count));
	WANT(count == 0);
	/* Some moments later its handles know. */
	TRY(reef_sleep(2 * SECOND));
	WANT(reef_file_pread(other, bytes, 8, 0) == -REEF_EDROPPED);
	WANT(reef_file_pwrite(file, "x", 1, 0) == -REEF_EDROPPED);
	WANT_RC(reef_file_truncate(file, 0), -REEF_EDROPPED);
	reef_file_close(file);
	reef_file_close(other);
	return 0;
}

static int story(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;

	TRY(member_space(member, &space));
	TRY(refuses(space));
	TRY(open_file(space, "a", REEF_FILE_CREATE, &file));
	TRY(finds_data(file));
	TRY(reads_and_writes(file));
	TRY(changes_shape(file));
	reef_file_close(file);
	TRY(reef_file_delete(space, "a"));
	return renames(space);
}

static void file_calls_do_what_they_say(void **state)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, 1);
	pool_add(&pool, story);
	pool_finish(&pool);
}

/* --- a model --- */

struct model {
	uint8_t bytes[SIZE];
	uint64_t size;
};

static int compare(struct reef_file *file, const struct model *model,
		   uint64_t at, size_t size)
{
	static uint8_t found[SIZE];
	uint64_t left = at < model->size ? model->size - at : 0;

	memset(found, 0xee, size);
	if (size > left)
		WANT(reef_file_pread(file, found, size, at) == (ssize_t)left);
	else
		WANT(reef_file_pread(file, found, size, at) == (ssize_t)size);
	WANT(!memcmp(found, model->bytes + at, size < left ? size : left));
	return 0;
}

static int write_both(struct reef_file *file, struct model *model, uint64_t at,
		      size_t size, uint8_t fill, bool append)
{
	static uint8_t bytes[SIZE];
	uint64_t found = at;

	memset(bytes, fill, size);
	WANT((append ? reef_file_append(file, bytes, size, &found)
		     : reef_file_pwrite(file, bytes, size, at)) ==
	     (ssize_t)size);
	WANT(found == at);
	memcpy(model->bytes + at, bytes, size);
	if (at + size > model->size)
		model->size = at + size;
	return 0;
}

static int step(struct reef_random *random, struct reef_file *file,
		struct model *model)
{
	uint64_t at = reef_random_below(random, SIZE);
	uint64_t most = reef_random_chance(random, 1, 3) ? 64 : 20 * CHUNK;
	uint64_t size = 1 + reef_random_below(random, most);
	uint8_t fill = (uint8_t)(1 + reef_random_below(random, 255));

	if (reef_random_chance(random, 1, 4))
		at -= at % CHUNK;
	if (at + size > SIZE)
		size = SIZE - at;
	switch (reef_random_below(random, 8)) {
	case 0:
		TRY(reef_file_truncate(file, at));
		if (at < model->size)
			memset(model->bytes + at, 0, model->size - at);
		model->size = at;
		return 0;
	case 1:
		TRY(reef_file_punch(file, at, size));
		memset(model->bytes + at, 0, size);
		return 0;
	case 2:
		if (model->size + size > SIZE)
			return 0;
		return write_both(file, model, model->size, size, fill, true);
	case 3:
	case 4:
		return write_both(file, model, at, size, fill, false);
	default:
		return compare(file, model, at, size);
	}
}

static int exercise(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	struct model *model = calloc(1, sizeof(*model));
	struct reef_space *space;
	struct reef_file *file;

	WANT(model);
	TRY(member_space(member, &space));
	TRY(open_file(space, "f", REEF_FILE_CREATE, &file));
	for (uint32_t i = 0; i < 150; i++)
		TRY(step(random, file, model));
	TRY(compare(file, model, 0, SIZE));
	reef_file_close(file);
	free(model);
	return reef_file_delete(space, "f");
}

static void file_random_calls_match_a_model(void **state)
{
	uint64_t seed, count = seeds_of(6, 500);

	for (seed = seeds_first(); seeds_has(seed, count); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.lose_link_ppm = seed % 2 ? 0 : 3000,
			.extent_size = 16 * MIB,
		};

		pool_start(&pool, seed);
		pool_add(&pool, exercise);
		pool_finish(&pool);
	}
}

/* --- budgets --- */

static int cost(struct member *member, struct reef_file *file, bool write,
		uint32_t size, uint64_t at, struct reef_counts *out)
{
	static uint8_t bytes[64 * 1024];
	struct reef_counts before, after;

	/* An epoch may end in between. */
	for (uint32_t i = 0; i < 5; i++) {
		before = reef_count_read(&member->count);
		WANT((write ? reef_file_pwrite(file, bytes, size, at)
			    : reef_file_pread(file, bytes, size, at)) ==
		     (ssize_t)size);
		after = reef_count_read(&member->count);
		after = reef_counts_between(&before, &after);
		if (!i || after.memory_operations < out->memory_operations)
			*out = after;
	}
	return 0;
}

static int budgets(struct member *member)
{
	struct reef_space *space;
	struct reef_file *file;
	struct reef_counts counts;

	TRY(member_space(member, &space));
	TRY(reef_file_open(
		space, "f",
		&(struct reef_file_options){.flags = REEF_FILE_CREATE}, &file));
	TRY(reef_file_truncate(file, 1024 * 1024));
	TRY(cost(member, file, true, 64 * 1024, 64 * 1024, &counts));
	WANT(counts.round_trips == 1 && counts.memory_operations == 1);
	TRY(cost(member, file, false, 64 * 1024, 64 * 1024, &counts));
	WANT(counts.round_trips == 1 && counts.memory_operations == 1);
	TRY(cost(member, file, false, 64 * 1024, 32 * 1024, &counts));
	WANT(counts.round_trips == 1 && counts.memory_operations == 1);
	/* Two chunks: two operations, together. */
	TRY(cost(member, file, true, 8192, 256 * 1024 - 4096, &counts));
	WANT(counts.memory_operations == 2);
	/* A hole is one look at its word. */
	TRY(cost(member, file, false, 4096, 768 * 1024, &counts));
	WANT(counts.round_trips == 1 && counts.memory_operations == 1);
	reef_file_close(file);
	return 0;
}

static void file_calls_keep_their_budgets(void **state)
{
	struct pool pool = {.ttl_ns = 60 * SECOND, .extent_size = 16 * MIB};

	pool_start(&pool, 1);
	pool_add(&pool, budgets);
	pool_finish(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_calls_do_what_they_say),
		cmocka_unit_test(file_random_calls_match_a_model),
		cmocka_unit_test(file_calls_keep_their_budgets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
