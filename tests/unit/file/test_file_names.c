/* test_file_names.c - names that several clients make, rename and delete at
 * once, in two folders, while links fall. */
#include "fixture/pool_world.h"

#include <reef/folder.h>
#include <stdio.h>
#include <string.h>

#define CHUNK 4096u
#define NAMES 4u
#define MEMBERS 3u
#define CALLS 60u

static struct {
	uint32_t ready, ended, next;
	uint32_t made, gone; /* files, by calls that returned 0 */
	uint32_t doubts;
	struct reef_file_id folder;
	bool replaces;
} truth;

static bool is_passing(ssize_t rc)
{
	return rc == -REEF_EINDOUBT || rc == -ETIMEDOUT ||
	       rc == -REEF_ENOLINK || rc == -EBUSY;
}

static struct reef_file_id random_folder(struct reef_random *random)
{
	return reef_random_chance(random, 1, 2) ? truth.folder
						: (struct reef_file_id){0};
}

static void random_name(struct reef_random *random, char name[8])
{
	snprintf(name, 8, "n%u", (uint32_t)reef_random_below(random, NAMES));
}

static int make(struct reef_files *files, struct reef_file_id folder,
		const char *name)
{
	const struct reef_file_about about = {.chunk = CHUNK};
	struct reef_file_about made;
	struct reef_file *file;
	uint64_t id = ++truth.next;
	ssize_t rc = reef_files_make(files, folder, name, &about, &made);

	if (is_passing(rc)) {
		truth.doubts++;
		return 0;
	}
	if (rc)
		return rc == -EEXIST ? 0 : (int)rc;
	truth.made++;
	rc = reef_files_open_file(files, made.id, &file);
	if (rc == -ENOENT || is_passing(rc))
		return 0; /* another was quicker */
	TRY((int)rc);
	rc = reef_file_pwrite(file, &id, 8, 0);
	reef_file_close(file);
	WANT(rc == 8 || rc == -REEF_EDROPPED || is_passing(rc));
	return 0;
}

static int look(struct reef_files *files, struct reef_file_id folder,
		const char *name)
{
	struct reef_file_about about;
	struct reef_file *file;
	uint64_t id = 0;
	ssize_t rc = reef_files_look(files, folder, name, &about);

	if (rc == -ENOENT || is_passing(rc))
		return 0;
	TRY((int)rc);
	rc = reef_files_open_file(files, about.id, &file);
	if (rc == -ENOENT || is_passing(rc))
		return 0;
	TRY((int)rc);
	rc = reef_file_pread(file, &id, 8, 0);
	reef_file_close(file);
	WANT(rc == 8 || rc == 0 || rc == -REEF_EDROPPED || is_passing(rc));
	WANT(id <= truth.next);
	return 0;
}

static int change(struct reef_files *files, struct reef_random *random)
{
	struct reef_file_id from = random_folder(random),
			    to = random_folder(random);
	uint64_t what = reef_random_below(random, 10);
	char one[8], other[8];
	int rc;

	random_name(random, one);
	random_name(random, other);
	if (what < 3)
		return make(files, from, one);
	if (what < 5)
		return look(files, from, one);
	if (what < 7) {
		rc = reef_files_delete(files, from, one);
		truth.gone += !rc;
	} else {
		rc = reef_files_rename(files, from, one, to, other,
				       truth.replaces ? 0
						      : REEF_FILE_NOREPLACE);
	}
	truth.doubts += is_passing(rc);
	return rc == -ENOENT || rc == -EEXIST || is_passing(rc) ? 0 : rc;
}

static int prepare(struct reef_files *files)
{
	const struct reef_file_about about = {.type = REEF_FILE_FOLDER};
	static const struct reef_file_id root;
	struct reef_file_about made;
	int rc;

	do
		rc = reef_files_make(files, root, "folder", &about, &made);
	while (is_passing(rc));
	if (rc == -EEXIST)
		do
			rc = reef_files_look(files, root, "folder", &made);
		while (is_passing(rc));
	truth.folder = made.id;
	return rc;
}

static int changes(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	struct reef_space *space;
	struct reef_files *files;
	int rc;

	TRY(member_space(member, &space));
	do
		rc = reef_files_open(space, &files);
	while (is_passing(rc));
	TRY(rc);
	if (member->number == 1)
		rc = prepare(files);
	truth.ready += member->number == 1;
	if (!rc)
		rc = member_await(member, &truth.ready, 1);
	for (uint32_t i = 0; !rc && i < CALLS; i++)
		rc = change(files, random);
	truth.ended++;
	reef_files_close(files);
	return rc;
}

struct found {
	uint32_t count;
	uint64_t ids[2 * NAMES + 2];
};

static int note(void *context, const char *name,
		const struct reef_file_about *about)
{
	struct found *found = context;

	if (about->type == REEF_FILE_FOLDER)
		return 0;
	WANT(about->id.number && found->count < 2 * NAMES);
	for (uint32_t i = 0; i < found->count; i++)
		WANT(found->ids[i] != about->id.number);
	found->ids[found->count++] = about->id.number;
	return 0;
}

static int counts(struct member *member)
{
	static const struct reef_file_id root;
	struct reef_space *space;
	struct reef_files *files;
	struct found found;
	int rc;

	TRY(member_await(member, &truth.ended, MEMBERS));
	TRY(member_space(member, &space));
	do
		rc = reef_files_open(space, &files);
	while (is_passing(rc));
	TRY(rc);
	do {
		found.count = 0;
		rc = reef_files_list(files, root, NULL, note, &found);
		if (!rc)
			rc = reef_files_list(files, truth.folder, NULL, note,
					     &found);
	} while (is_passing(rc));
	reef_files_close(files);
	TRY(rc);
	WANT(found.count <= truth.made - truth.gone + truth.doubts);
	if (!truth.replaces && !truth.doubts)
		WANT(found.count == truth.made - truth.gone);
	return 0;
}

static int run(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.extent_size = 16 * MIB,
		.lose_link_ppm = seed % 3 ? 0 : 1000,
		.copies = seed % 5 ? 1 : 2,
	};

	memset(&truth, 0, sizeof(truth));
	truth.replaces = seed % 2;
	pool_start(&pool, seed);
	for (uint32_t i = 0; i < MEMBERS; i++)
		pool_add(&pool, changes);
	pool_add(&pool, counts);
	return pool_end(&pool);
}

static void file_names_are_one_files_each(void **state)
{
	uint64_t seed, count = seeds_of(20, 2000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run(seed), 0);
}

#if !SANITIZED
static void file_rename_twice_is_found_by_names(void **state)
{
	assert_true(try_finds(REEF_MUTANT_FILE_RENAME_TWICE, run, 40));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_names_are_one_files_each),
#if !SANITIZED
		cmocka_unit_test(file_rename_twice_is_found_by_names),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
