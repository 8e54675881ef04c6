/* test_log_lost.c - what becomes of a log when there is no room, when parts of
 * it are damaged or lost, and when what a handle remembers is old. */
#include "fixture/log_world.h"

#include <string.h>

static struct logs_seen seen;

/* --- no room --- */

static int fills_the_pool(struct member *member)
{
	struct reef_log_options options = {.segment = 256, .cell = 1024};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t count = 0, next, block, tail;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	do
		rc = logs_append(log, count, 1000, NULL);
	while (!rc && ++count < 4096);
	WANT(rc == -ENOSPC && count > 256);
	/* Nothing is drawn where there is no room. */
	TRY(reef_log_tail(log, &tail));
	WANT(tail == count);
	WANT_RC(logs_append(log, count, 1000, NULL), -ENOSPC);
	WANT_RC(logs_append(log, count, 9000, NULL), -ENOSPC);
	TRY(reef_log_tail(log, &next));
	WANT(next == tail);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == count && !seen.is_damaged);
	/* Trimmed memory comes back, and the log goes on. */
	TRY(reef_log_trim(log, count / 2));
	TRY(logs_append(log, count, 1000, &next));
	WANT(next == count);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	/* All of it. */
	TRY(reef_alloc(space, 512 << 10, &block));
	return reef_free(space, block, 0);
}

/* The tail is gone, and there is no room for another. */
static int fills_without_tail(struct member *member)
{
	struct reef_log_options options = logs_small;
	struct reef_log_stats stats;
	const uint64_t nonsense = 0;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t count = 0, next;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	do
		rc = logs_append(log, count, 20, NULL);
	while (!rc && ++count < 4096);
	WANT(rc == -ENOSPC && count > 64);
	TRY(reef_write(member->reef, log->tail_at, &nonsense, 8));
	WANT_RC(logs_append(log, count, 20, NULL), -ENOSPC);
	WANT_RC(reef_log_tail(log, &next), -ENOSPC);
	/* All else goes on. */
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == count && next == count && !seen.is_damaged);
	WANT_RC(reef_log_wait(log, count, MILLISECOND), -ETIMEDOUT);
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first == 0 && stats.tail >= count);
	WANT_RC(reef_log_trim(log, stats.tail + 1), -ERANGE);
	TRY(reef_log_trim(log, 2 * (uint64_t)options.segment));
	TRY(reef_log_tail(log, &next));
	WANT(next >= count);
	TRY(logs_append(log, count, 20, &next));
	WANT(next >= count);
	TRY(logs_read(log, 2 * (uint64_t)options.segment, &seen, &next));
	WANT(seen.count == count + 1 - 2 * options.segment && !seen.is_damaged);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_full_without_a_tail_is_read_and_trimmed(void **state)
{
	logs_run_brief(fills_without_tail);
}

static void log_full_is_as_before(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 2 * SECOND,
			.extent_size = UINT64_C(2) << 20,
			.capacity = UINT64_C(2) << 20,
		};

		pool_start(&pool, seed);
		pool_add(&pool, fills_the_pool);
		pool_finish(&pool);
	}
}

/* --- damage --- */

static int scribbles(struct member *member)
{
	static const uint64_t nonsense = 0x123456789abcdef;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;
	uint64_t i, next;
	uint8_t byte = 77;

	TRY(logs_open(member, &space, &log));
	for (i = 0; i < 60; i++)
		TRY(logs_append(log, i, i == 40 ? 500 : 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 1, &found));
	reef_leave(member->reef);
	/* A cell, then a whole segment, then the tail. */
	TRY(reef_write(member->reef, found.at + log_cell_offset(log, 4) + 3,
		       &byte, 1));
	memset(&seen, 0, sizeof(seen));
	TRY(reef_log_read(log, 16, 64, logs_see, &seen, &next));
	WANT(seen.count == 4 && next == 20);
	WANT_RC(reef_log_read(log, 20, 64, logs_see, &seen, &next),
		-REEF_ECORRUPT);
	WANT(next == 21);
	TRY(logs_read(log, 21, &seen, &next));
	WANT(seen.count == 39);
	TRY(reef_write(member->reef, found.at, &nonsense, 8));
	log_forget(log);
	WANT_RC(reef_log_read(log, 18, 64, logs_see, &seen, &next),
		-REEF_ECORRUPT);
	WANT(next == 32);
	TRY(logs_read(log, 32, &seen, &next));
	WANT(seen.count == 28 && next == 60);
	TRY(logs_append(log, i++, 8, &next));
	WANT(next == 60);
	TRY(reef_write(member->reef, log->tail_at + 16, &nonsense, 8));
	TRY(logs_append(log, i++, 8, &next));
	/* Segment 4 was made ahead, and is of the generation before. */
	WANT(next == 80);
	/* The last segment: it goes on in the next. */
	reef_enter(member->reef);
	TRY(log_find(log, 5, &found));
	reef_leave(member->reef);
	TRY(reef_write(member->reef, found.at, &nonsense, 8));
	log_forget(log);
	TRY(logs_append(log, i++, 8, &next));
	WANT(next == 96);
	TRY(logs_read(log, 96, &seen, &next));
	WANT(seen.count == 1);
	/* And a word of the directory. */
	TRY(reef_write(member->reef, log_slot_at(log, 3), &nonsense, 8));
	log_forget(log);
	TRY(logs_read(log, 96, &seen, &next));
	WANT(seen.count == 1);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_damage_costs_its_range_and_no_more(void **state)
{
	logs_run(scribbles);
}

/* --- a lost node --- */

/* The first member makes the object, the second its tail and its segments, of
 * chunks of its own. */
static int makes(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t *note = member->pool->note;

	TRY(logs_open(member, &space, &log));
	note[0] = 1;
	while (note[0] < 2)
		TRY(reef_sleep(MILLISECOND));
	reef_log_close(log);
	return 0;
}

static int loses(struct member *member)
{
	uint64_t *note = member->pool->note, i, next, position, before;
	struct reef_space *space;
	struct reef_log *log;
	bool is_lost;
	int rc;

	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(logs_open(member, &space, &log));
	for (i = 0; i < 20; i++)
		TRY(logs_append(log, i, 8, NULL));
	before = log->tail_at;
	reef_sim_host_kill(
		member->pool->lenders[member->pool->seed % NODES].host);
	for (i = 0; i < 3000; i++) {
		TRY(reef_sleep(MILLISECOND));
		if (reef_is_lost(member->reef, before) ||
		    reef_is_lost(member->reef, log->object.body))
			break;
	}
	if (reef_is_lost(member->reef, log->object.body)) {
		struct reef_log_options options = {LOGS_SMALL,
						   .flags = REEF_LOG_RENEW};

		note[2]++;
		WANT_RC(reef_log_tail(log, &position), -REEF_ELOST);
		reef_log_close(log);
		WANT_RC(reef_log_open(space, "log", &logs_small, &log),
			-REEF_ELOST);
		TRY(reef_log_open(space, "log", &options, &log));
		TRY(logs_append(log, 0, 8, &position));
		WANT(position == 0);
		note[0] = 2;
		reef_log_close(log);
		return reef_log_drop(space, "log");
	}
	is_lost = reef_is_lost(member->reef, before);
	note[is_lost ? 3 : 4]++;
	TRY(reef_log_tail(log, &position));
	WANT(position >= 20);
	for (i = 100; i < 120; i++) {
		TRY(logs_append(log, i, 8, &next));
		WANT(next >= position);
		position = next + 1;
	}
	/* What the node had is lost, and only that. */
	for (next = 0, seen.count = 0;;) {
		uint64_t at = next;

		rc = reef_log_read(log, at, 64, logs_see, &seen, &next);
		WANT(!rc || rc == -REEF_ELOST);
		WANT(rc == 0 || is_lost);
		if (next == at)
			break;
	}
	WANT(seen.count >= 20 && next == position);
	note[0] = 2;
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_goes_on_with_a_new_tail_when_its_node_is_lost(void **state)
{
	uint64_t seed, tails = 0, bodies = 0;

	for (seed = seeds_first(); seeds_has(seed, 2 * POOL_SEEDS); seed++) {
		struct pool pool = {
			.node_ttl_ns = 300 * MILLISECOND,
			.extent_size = UINT64_C(1) << 20,
			.witnesses = 2,
			.patience_ns = 2 * SECOND,
		};

		pool_start(&pool, seed);
		pool_add(&pool, makes);
		pool_add(&pool, loses);
		pool_finish(&pool);
		bodies += pool.note[2];
		tails += pool.note[3];
	}
	/* Else it has shown nothing. */
	assert_true(bodies > 0 && tails > 0);
}

/* --- what was remembered --- */

static int remembers(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t next;

	TRY(logs_open(member, &space, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	for (uint64_t i = 0; i < 40; i++)
		TRY(logs_append(log, i, 8, NULL));
	TRY(reef_log_read(other, 0, 4, logs_see, &seen, &next));
	TRY(reef_log_trim(log, 32));
	/* In the next epochs what was trimmed may be something else. */
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(reef_log_read(other, 4, 4, logs_see, &seen, &next), -ERANGE);
	TRY(reef_log_drop(space, "log"));
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(logs_append(log, 0, 8, NULL), -ENOENT);
	reef_log_close(other);
	reef_log_close(log);
	return 0;
}

static void log_remembers_nothing_beyond_an_epoch(void **state)
{
	logs_run_brief(remembers);
}

/* --- mutants that no history shows --- */

#if !SANITIZED
static int run_remembers(uint64_t seed)
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, remembers);
	return pool_end(&pool);
}

static void log_lost_mutants_are_found(void **state)
{
	static const struct logs_mutant mutants[] = {
		{REEF_MUTANT_LOG_STALE, run_remembers},
	};

	logs_find_mutants(mutants, sizeof(mutants) / sizeof(mutants[0]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_full_is_as_before),
		cmocka_unit_test(log_full_without_a_tail_is_read_and_trimmed),
		cmocka_unit_test(log_damage_costs_its_range_and_no_more),
		cmocka_unit_test(
			log_goes_on_with_a_new_tail_when_its_node_is_lost),
		cmocka_unit_test(log_remembers_nothing_beyond_an_epoch),
#if !SANITIZED
		cmocka_unit_test(log_lost_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
