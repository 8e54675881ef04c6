/* test_client.c - clients of a pool: broker, nodes and clients are the real
 * ones, the network and the machines are simulated. */
#include "fixture/pool_world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void run(int (*script)(struct member *member),
		int (*second)(struct member *member))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, script);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

/* --- memory --- */

#define SHARERS 4

/* All at once, before anybody has heard of others' extents. */
static int share(struct member *member)
{
	uint64_t address, *ready = &member->pool->note[0];
	struct reef_space *space;

	TRY(member_space(member, &space));
	++*ready;
	while (*ready < SHARERS)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_alloc(space, 1000, &address));
	TRY(reef_write(member->reef, address, "mine", 4));
	return 0;
}

static void client_last_extents_are_shared(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, POOL_SEEDS);
	     seed++) {
		struct pool pool = {
			.extent_size = 16 * MIB,
			.capacity = 16 * MIB,
		};

		pool_start(&pool, seed);
		for (int i = 0; i < SHARERS; i++)
			pool_add(&pool, share);
		pool_finish(&pool);
	}
}

/* --- access --- */

static int read_and_write(struct member *member)
{
	struct reef *reef = member->reef;
	uint64_t address, before, value = 5;
	struct reef_space *space;
	char text[100] = "", got[100];

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, sizeof(text), &address));
	snprintf(text, sizeof(text), "far away");
	TRY(reef_write(reef, address, text, sizeof(text)));
	TRY(reef_read(reef, address, got, sizeof(got)));
	WANT(memcmp(text, got, sizeof(got)) == 0);
	TRY(reef_alloc(space, 8, &address));
	TRY(reef_write(reef, address, &value, 8));
	TRY(reef_cas(reef, address, 5, 7, &before));
	WANT(before == 5);
	TRY(reef_cas(reef, address, 5, 8, &before));
	WANT(before == 7);
	TRY(reef_faa(reef, address, 3, &before));
	WANT(before == 7);
	TRY(reef_read(reef, address, &value, 8));
	WANT(value == 10);
	WANT_RC(reef_cas(reef, address + 4, 1, 2, NULL), -EINVAL);
	WANT_RC(reef_read(reef, 0, got, 1), -EFAULT);
	WANT_RC(reef_read(reef, UINT64_C(99) << 32, got, 1), -EFAULT);
	WANT_RC(reef_read(reef, address | 0xffffff00u, got, 8), -EFAULT);
	TRY(reef_free(space, address, 0));
	WANT_RC(reef_health(reef), 0);
	WANT(reef_session(reef) != 0);
	return 0;
}

static void client_reads_and_writes(void **state)
{
	run(read_and_write, NULL);
}

/* The first WRITE of a block brings its header: others can free it. */
static int give(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 1;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 64, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_name_bind(space, "block", address, NULL));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_read(member->reef, address, &value, 8));
	WANT(value == 2);
	return 0;
}

static int take(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 2, size;
	int rc;

	TRY(member_space(member, &space));
	while ((rc = reef_name_lookup(space, "block", &address, NULL)) ==
	       -ENOENT)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	/* An extent that it has not heard of. */
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_block_size(space, address, &size));
	WANT(size >= 64);
	TRY(reef_free(space, address, 0));
	WANT_RC(reef_free(space, address, 0), -EALREADY);
	member->pool->note[0] = 1;
	return 0;
}

static void client_block_is_freed_by_another(void **state)
{
	run(give, take);
}

static int many(struct member *member)
{
	enum { COUNT = 600 };
	struct reef_access accesses[COUNT];
	struct reef_space *space;
	uint64_t address, big, values[COUNT], i;
	uint8_t *bytes, *got;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, sizeof(values), &address));
	TRY(reef_alloc(space, 3 * MIB, &big));
	for (i = 0; i < COUNT; i++) {
		values[i] = i;
		accesses[i] = (struct reef_access){
			.kind = REEF_WRITE,
			.address = address + 8 * i,
			.local = &values[i],
			.length = 8,
		};
	}
	TRY(reef_execute(member->reef, accesses, COUNT));
	for (i = 0; i < COUNT; i++)
		accesses[i] = (struct reef_access){
			.kind = i % 2 ? REEF_FAA : REEF_CAS,
			.address = address + 8 * i,
			.operand = 1000,
			.compare = i,
		};
	TRY(reef_execute(member->reef, accesses, COUNT));
	for (i = 0; i < COUNT; i++)
		WANT(accesses[i].result == i && accesses[i].status == 0);
	TRY(reef_read(member->reef, address, values, sizeof(values)));
	for (i = 0; i < COUNT; i++)
		WANT(values[i] == (i % 2 ? 1000 + i : 1000));
	/* One that is no good: nothing of it happens. */
	accesses[3].kind = 77;
	WANT_RC(reef_execute(member->reef, accesses, COUNT), -EINVAL);
	WANT(accesses[0].status == -REEF_ENOTDONE);
	WANT(accesses[3].status == -EINVAL);
	/* A long one. */
	bytes = malloc(3 * MIB);
	got = malloc(3 * MIB);
	for (i = 0; i < 3 * MIB; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 999);
	TRY(reef_write(member->reef, big, bytes, 3 * MIB));
	TRY(reef_read(member->reef, big, got, 3 * MIB));
	WANT(memcmp(bytes, got, 3 * MIB) == 0);
	free(bytes);
	free(got);
	return 0;
}

static void client_long_lists_and_lengths_are_done(void **state)
{
	run(many, NULL);
}

/* --- tasks --- */

static void task_done(struct reef_task *task)
{
	++*(uint32_t *)task->user;
}

static int tasks(struct member *member)
{
	enum { COUNT = 40 };
	struct reef_access accesses[COUNT];
	struct reef_task all[COUNT];
	struct reef_space *space;
	uint64_t address, value;
	uint32_t done = 0, i;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &address));
	value = 0;
	TRY(reef_write(member->reef, address, &value, 8));
	WANT(reef_fd(member->reef) < 0); /* simulation has none */
	for (i = 0; i < COUNT; i++) {
		accesses[i] = (struct reef_access){
			.kind = REEF_FAA,
			.address = address,
			.operand = 1,
		};
		all[i] = (struct reef_task){
			.accesses = &accesses[i],
			.count = 1,
			.on_done = task_done,
			.user = &done,
		};
		WANT_RC(reef_task_submit(member->reef, &all[i]), 0);
	}
	TRY(reef_task_wait(member->reef, &all[COUNT - 1]));
	while (done < COUNT) {
		TRY(reef_sleep(1000));
		WANT(reef_progress(member->reef) >= 0);
	}
	TRY(reef_read(member->reef, address, &value, 8));
	WANT(value == COUNT);
	/* One that is not waited for is, by the close. */
	WANT_RC(reef_task_submit(member->reef, &all[0]), 0);
	reef_close(member->reef);
	member->reef = NULL;
	WANT(all[0].done && !all[0].status);
	return 0;
}

static void client_tasks_end_in_progress(void **state)
{
	run(tasks, NULL);
}

/* --- names and spaces --- */

static int list_one(void *context, const char *name, uint64_t value,
		    uint64_t generation)
{
	uint64_t *sum = context;

	*sum += value;
	return strcmp(name, "a/2") ? 0 : 1;
}

static int count_spaces(void *context, const struct reef_space_info *info)
{
	++*(uint32_t *)context;
	return 0;
}

static int names(struct member *member)
{
	uint64_t first, second, value, sum = 0;
	struct reef_space *space;
	uint32_t count = 0;
	char name[16], *long_name;
	int i;

	TRY(member_space(member, &space));
	TRY(reef_name_bind(space, "x", 7, &first));
	WANT_RC(reef_name_bind(space, "x", 8, NULL), -EEXIST);
	TRY(reef_name_replace(space, "x", first, 9, &second));
	WANT(second != first);
	WANT_RC(reef_name_replace(space, "x", first, 1, NULL), -ESTALE);
	TRY(reef_name_lookup(space, "x", &value, &first));
	WANT(value == 9 && first == second);
	WANT_RC(reef_name_unbind(space, "x", second + 1), -ESTALE);
	TRY(reef_name_unbind(space, "x", second));
	WANT_RC(reef_name_lookup(space, "x", &value, NULL), -ENOENT);
	WANT_RC(reef_name_bind(space, "", 1, NULL), -EINVAL);
	long_name = calloc(1, MIB + 1);
	memset(long_name, 'a', MIB);
	WANT_RC(reef_name_bind(space, long_name, 1, NULL), -ENAMETOOLONG);
	WANT_RC(reef_space_open(member->reef, long_name, NULL, &space),
		-ENAMETOOLONG);
	long_name[1000] = 0;
	WANT_RC(reef_name_bind(space, long_name, 1, NULL), -ENAMETOOLONG);
	free(long_name);
	for (i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "a/%d", i);
		TRY(reef_name_bind(space, name, (uint64_t)i + 1, NULL));
	}
	TRY(reef_name_bind(space, "b", 100, NULL));
	WANT_RC(reef_name_list(space, "a/", list_one, &sum), 1);
	WANT(sum == 6);
	TRY(reef_space_list(member->reef, count_spaces, &count));
	WANT(count == 1);
	return 0;
}

static void client_names_are_bound_and_listed(void **state)
{
	run(names, NULL);
}

static int spaces(struct member *member)
{
	struct reef_space_options exclusive = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_EXCLUSIVE,
		.quota = 4 * MIB,
	};
	struct reef_space *space, *again, *scratch;
	uint64_t address, value = 1;
	uint32_t count = 0;

	WANT_RC(reef_space_open(member->reef, "none", NULL, &space), -ENOENT);
	TRY(reef_space_open(member->reef, "one", &exclusive, &space));
	WANT_RC(reef_space_open(member->reef, "one", &exclusive, &again),
		-EEXIST);
	TRY(reef_space_open(member->reef, "one", NULL, &again));
	WANT(reef_space_id(space) == reef_space_id(again));
	TRY(reef_alloc(space, 100, &address));
	WANT_RC(reef_alloc(space, 4 * MIB, &address), -EDQUOT);
	TRY(reef_space_open(member->reef, NULL, NULL, &scratch));
	WANT(reef_space_id(space) != reef_space_id(scratch));
	TRY(reef_alloc(scratch, 100, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_space_list(member->reef, count_spaces, &count));
	WANT(count == 2);
	/* It ends with its close. */
	reef_space_close(scratch);
	while (count != 1) {
		count = 0;
		TRY(reef_sleep(MILLISECOND));
		TRY(reef_space_list(member->reef, count_spaces, &count));
	}
	while (!reef_read(member->reef, address, &value, 8))
		TRY(reef_sleep(MILLISECOND));
	/* Dropped: whoever has it open has lost it. */
	TRY(reef_alloc(space, 100, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_space_drop(member->reef, "one"));
	WANT_RC(reef_read(member->reef, address, &value, 8), -REEF_ELOST);
	WANT_RC(reef_alloc(space, 100, &address), -REEF_ELOST);
	WANT_RC(reef_space_drop(member->reef, "one"), -ENOENT);
	return 0;
}

static void client_spaces_open_and_drop(void **state)
{
	run(spaces, NULL);
}

/* --- budgets --- */

static int lend(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 1;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	TRY(reef_name_bind(space, "block", address, NULL));
	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int budget(struct member *member)
{
	struct reef_counts joined, opened, touched, end;
	struct reef_space *space, *again;
	struct reef *second;
	uint64_t address, value = 1;
	int rc;

	/* Connect, and attach what the lease needs; one message. */
	joined = reef_count_read(&member->count);
	WANT(joined.control_round_trips == 3 && joined.sends == 1);
	TRY(member_space(member, &space));
	opened = reef_count_read(&member->count);
	WANT(opened.control_round_trips == 3 && opened.sends == 2);
	while ((rc = reef_name_lookup(space, "block", &address, NULL)) ==
	       -ENOENT)
		TRY(reef_sleep(MILLISECOND));
	TRY(rc);
	/* Let it hear of the extent, if it has not yet. */
	TRY(reef_sleep(member->pool->ttl_ns));
	opened = reef_count_read(&member->count);
	TRY(reef_read(member->reef, address, &value, 8));
	touched = reef_count_read(&member->count);
	WANT(touched.control_round_trips - opened.control_round_trips == 2);
	WANT(touched.sends == opened.sends);
	/* A second handle costs nothing. */
	TRY(reef_client_handle(member->client, &second));
	TRY(reef_space_open(second, "space", NULL, &again));
	TRY(reef_read(second, address, &value, 8));
	end = reef_count_read(&member->count);
	WANT(end.sends == touched.sends);
	WANT(end.control_round_trips == touched.control_round_trips);
	reef_close(second);
	member->pool->note[0] = 1;
	return 0;
}

static void client_joining_keeps_its_budget(void **state)
{
	run(lend, budget);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_last_extents_are_shared),
		cmocka_unit_test(client_reads_and_writes),
		cmocka_unit_test(client_block_is_freed_by_another),
		cmocka_unit_test(client_long_lists_and_lengths_are_done),
		cmocka_unit_test(client_tasks_end_in_progress),
		cmocka_unit_test(client_names_are_bound_and_listed),
		cmocka_unit_test(client_spaces_open_and_drop),
		cmocka_unit_test(client_joining_keeps_its_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
