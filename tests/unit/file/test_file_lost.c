/* test_file_lost.c - names of files whose memory is lost, and made anew. */
#include "fixture/pool_world.h"

#include <reef/folder.h>
#include <stdio.h>

#define CHUNK 4096u
#define NAMES 600u

static int count_name(void *context, const char *name,
		      const struct reef_file_about *about)
{
	++*(uint32_t *)context;
	return 0;
}

static int make_named(struct reef_files *files, const char *name)
{
	static const struct reef_file_id root;
	const struct reef_file_about about = {.chunk = CHUNK};
	struct reef_file_about made;

	return reef_files_make(files, root, name, &about, &made);
}

/* Until all names can be listed; how often they were opened anew. */
static int renew_names(struct reef_space *space, struct reef_files **files,
		       uint64_t *times)
{
	static const struct reef_file_id root;
	uint32_t count;
	int rc;

	for (*times = 0; *times < 4; ++*times) {
		count = 0;
		rc = reef_files_list(*files, root, NULL, count_name, &count);
		if (!rc)
			return 0;
		WANT(rc == -REEF_ELOST || rc == -REEF_EDROPPED);
		WANT(reef_files_renew(space, files) == 1);
	}
	return -EXDEV;
}

/* Of two that have the names open, one makes them anew, and the other finds
 * those. */
static int renew_beside(struct member *member, struct reef_space *space,
			struct reef_files **files, struct reef_files **others)
{
	struct pool *pool = member->pool;
	uint64_t times;
	char name[16];

	for (uint32_t i = 0; i < NAMES; i++) {
		snprintf(name, sizeof(name), "%u", i);
		TRY(make_named(*files, name));
	}
	WANT(reef_files_renew(space, files) == 0); /* they are there */
	reef_sim_host_kill(pool->lenders[pool->seed % 2].host);
	TRY(reef_sleep(10 * SECOND));
	TRY(renew_names(space, files, &pool->note[0]));
	WANT(pool->note[0] > 0);
	TRY(make_named(*files, "again"));
	TRY(renew_names(space, others, &times));
	WANT(make_named(*others, "again") == -EEXIST);
	return 0;
}

static int renews_names(struct member *member)
{
	struct reef_files *files, *others;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_files_open(space, &files));
	TRY(reef_files_open(space, &others));
	rc = renew_beside(member, space, &files, &others);
	reef_files_close(files);
	reef_files_close(others);
	return rc;
}

static int run_renewed(uint64_t seed, uint64_t *times)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND,
		.extent_size = 2 * MIB,
		.witnesses = 1,
	};
	int rc;

	pool_start(&pool, seed);
	pool_add(&pool, renews_names);
	rc = pool_end(&pool);
	*times = pool.note[0];
	return rc;
}

/* The root of the names may be lost, or another part of them. */
static void file_names_that_are_lost_come_anew(void **state)
{
	uint64_t seed, times, most = 0;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(6, 100)); seed++) {
		assert_int_equal(run_renewed(seed, &times), 0);
		most = times > most ? times : most;
	}
	assert_true(most == 2 || seeds_first() > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(file_names_that_are_lost_come_anew),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
