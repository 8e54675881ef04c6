/* test_log_holes.c - who is late, who died with a number, and who waits. */
#include "fixture/log_world.h"

#include <string.h>

static struct logs_seen seen;

/* --- holes --- */

static int holes(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, from_ns;

	TRY(logs_open(member, &space, &log));
	TRY(logs_append(log, 0, 8, NULL));
	/* One that drew and died; then a row, then another entry. */
	reef_enter(member->reef);
	TRY(log_draw(log, 1, NULL, 0, &position));
	TRY(log_draw(log, 4, NULL, 0, &position));
	reef_leave(member->reef);
	WANT(position == 2);
	TRY(logs_append(log, 6, 8, &position));
	WANT(position == 6);
	from_ns = reef_now_ns();
	TRY(logs_read(log, 0, &seen, &next));
	WANT(reef_now_ns() - from_ns >= MILLISECOND);
	WANT(reef_now_ns() - from_ns < 2 * MILLISECOND);
	WANT(seen.count == 2 && seen.positions[1] == 6 && next == 7);
	/* What is a hole stays one. */
	TRY(reef_log_fill(log, 1));
	WANT_RC(reef_log_fill(log, 0), -EEXIST);
	WANT_RC(reef_log_fill(log, 7), -ERANGE);
	reef_enter(member->reef);
	TRY(log_draw(log, 1, NULL, 0, &position));
	reef_leave(member->reef);
	TRY(reef_log_fill(log, position));
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_holes_of_the_dead_are_passed_after_the_bound(void **state)
{
	logs_run_as(holes, true);
}

/* An appender whose places others were quicker to fill. */
static int grows(struct member *member)
{
	uint64_t position, next, bound = MILLISECOND, i;
	struct reef_log_stats stats;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	TRY(logs_append(log, 0, 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 0, &found));
	for (i = 1; i < 4; i++) {
		TRY(reef_cas(member->reef, found.at + log_word_offset(i), 0,
			     LOG_HOLE, NULL));
		bound = 2 * bound + 1000;
	}
	reef_leave(member->reef);
	TRY(logs_append(log, 1, 8, &position));
	WANT(position == 4);
	TRY(reef_log_stats(log, &stats));
	WANT(stats.hole_ns == bound);
	/* Each hole that nobody complains of makes it smaller. */
	for (i = 0; i < 40; i++) {
		reef_enter(member->reef);
		TRY(log_draw(log, 1, NULL, 0, &position));
		reef_leave(member->reef);
		TRY(logs_append(log, 2, 8, NULL));
		TRY(logs_read(log, position, &seen, &next));
		WANT(seen.count == 1 && next > position);
	}
	TRY(reef_log_stats(log, &stats));
	WANT(stats.hole_ns >= MILLISECOND &&
	     stats.hole_ns < MILLISECOND + MILLISECOND / 8);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_bound_grows_with_who_is_late(void **state)
{
	logs_run(grows);
}

/* Several have died with numbers, between entries of others: one bound for all.
 */
static int many_holes(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, from_ns, i;

	TRY(logs_open(member, &space, &log));
	TRY(logs_append(log, 0, 8, NULL));
	for (i = 0; i < 5; i++) {
		reef_enter(member->reef);
		TRY(log_draw(log, 1, NULL, 0, &position));
		reef_leave(member->reef);
		TRY(logs_append(log, i, 8, NULL));
	}
	from_ns = reef_now_ns();
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == 6 && next == 11);
	WANT(reef_now_ns() - from_ns < 2 * MILLISECOND);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_holes_that_were_drawn_together_cost_one_bound(void **state)
{
	logs_run_as(many_holes, true);
}

/* Who drew a moment ago does not lose its place to a reader that waits for one
 * before it. */
static int reads_over_a_hole(struct member *member)
{
	uint64_t *note = member->pool->note, next;
	struct reef_space *space;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	while (!note[0])
		TRY(reef_sleep(10 * MICROSECOND));
	TRY(logs_read(log, 0, &seen, &next));
	note[1] = 1;
	reef_log_close(log);
	return 0;
}

static int draws_late(struct member *member)
{
	uint64_t *note = member->pool->note, position, word;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	TRY(logs_append(log, 0, 8, NULL));
	reef_enter(member->reef);
	TRY(log_draw(log, 1, NULL, 0, &position));
	note[0] = 1;
	TRY(reef_sleep(800 * MICROSECOND));
	TRY(log_draw(log, 1, NULL, 0, &position));
	TRY(log_find(log, 0, &found));
	TRY(reef_sleep(500 * MICROSECOND));
	TRY(reef_read(member->reef, found.at + log_word_offset(1), &word, 8));
	WANT(word == LOG_HOLE);
	TRY(reef_read(member->reef, found.at + log_word_offset(2), &word, 8));
	WANT(position == 2 && !word);
	reef_leave(member->reef);
	while (!note[1])
		TRY(reef_sleep(MILLISECOND));
	reef_log_close(log);
	return 0;
}

static void log_hole_takes_no_place_that_was_just_drawn(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 60 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, reads_over_a_hole);
		pool_add(&pool, draws_late);
		pool_finish(&pool);
	}
}

/* --- waiting --- */

static int waits(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	struct reef_counts before, after;
	uint64_t i, next, at = 0;

	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_log_wait(log, 0, MILLISECOND), -ETIMEDOUT);
	member->pool->note[0] = 1;
	for (i = 0; i < 40; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_log_wait(log, at, REEF_FOREVER));
		after = reef_count_read(&member->count);
		/* It slept for a second, and asked nobody meanwhile. */
		WANT(after.memory_operations - before.memory_operations < 40);
		memset(&seen, 0, sizeof(seen));
		TRY(reef_log_read(log, at, 64, logs_see, &seen, &next));
		WANT(seen.count == 1 && seen.firsts[0] == i);
		at = next;
		member->pool->note[1] = i + 1;
	}
	reef_log_close(log);
	return 0;
}

static int appends_slowly(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t from_ns, i;

	while (!member->pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(logs_open(member, &space, &log));
	for (i = 0; i < 40; i++) {
		TRY(reef_sleep(SECOND));
		WANT(member->pool->note[1] == i);
		TRY(logs_append(log, i, 8, NULL));
		/* It is woken, and does not find out by itself. */
		from_ns = reef_now_ns();
		while (member->pool->note[1] == i) {
			TRY(reef_sleep(MILLISECOND));
			WANT(reef_now_ns() - from_ns < 100 * MILLISECOND);
		}
	}
	reef_log_close(log);
	return 0;
}

static void log_wait_sleeps_until_it_is_told(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 600 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, waits);
		pool_add(&pool, appends_slowly);
		pool_finish(&pool);
	}
}

/* --- mutants that no history shows --- */

#if !SANITIZED
/* One that is told of entries as they come, at any moment. Of a log with one
 * writer, as nothing but the word shows that something comes. */
static int open_single(struct member *member, struct reef_log **log)
{
	struct reef_log_options options = {LOGS_SMALL,
					   .flags = REEF_LOG_SINGLE};
	struct reef_space *space;

	TRY(member_space(member, &space));
	return reef_log_open(space, "single", &options, log);
}

static int follows(struct member *member)
{
	uint64_t *note = member->pool->note, at = 0;
	struct reef_log *log;

	TRY(open_single(member, &log));
	for (note[0] = 1; note[1] < 60;) {
		TRY(reef_log_wait(log, at, REEF_FOREVER));
		TRY(reef_log_read(log, at, 64, logs_see, &seen, &at));
		note[1] += seen.count;
		seen.count = 0;
	}
	reef_log_close(log);
	return 0;
}

static int leads_on(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	uint64_t *note = member->pool->note, from_ns;
	struct reef_log *log;

	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(open_single(member, &log));
	TRY(reef_log_lead(log));
	for (uint64_t i = 0; i < 60; i++) {
		TRY(reef_sleep(reef_random_below(random, 100 * MICROSECOND)));
		TRY(logs_append(log, i, 8, NULL));
		from_ns = reef_now_ns();
		while (note[1] <= i) {
			TRY(reef_sleep(10 * MICROSECOND));
			WANT(reef_now_ns() - from_ns < SECOND);
		}
	}
	reef_log_close(log);
	return 0;
}

static int follow_and_lead(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 600 * SECOND};

	memset(&seen, 0, sizeof(seen));
	pool_start(&pool, seed);
	pool_add(&pool, follows);
	pool_add(&pool, leads_on);
	return pool_end(&pool);
}

static int run_grows(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, grows);
	return pool_end(&pool);
}

static void log_hole_mutants_are_found(void **state)
{
	static const struct logs_mutant mutants[] = {
		{REEF_MUTANT_LOG_WAKE_EARLY, follow_and_lead},
		{REEF_MUTANT_LOG_HOLE_FIXED, run_grows},
	};

	logs_find_mutants(mutants, sizeof(mutants) / sizeof(mutants[0]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(log_holes_of_the_dead_are_passed_after_the_bound),
	  cmocka_unit_test(log_holes_that_were_drawn_together_cost_one_bound),
	  cmocka_unit_test(log_hole_takes_no_place_that_was_just_drawn),
	  cmocka_unit_test(log_bound_grows_with_who_is_late),
	  cmocka_unit_test(log_wait_sleeps_until_it_is_told),
#if !SANITIZED
	  cmocka_unit_test(log_hole_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
