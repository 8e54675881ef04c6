/* test_log_promises.c - what log.h and log_reader.h promise, where it is odd:
 * positions far behind the end, logs that keep only so much and are not filled
 * in the usual way, those who wait beside others of their own process. */
#include "fixture/log_world.h"
#include "log/reader.h"
#include "log/shard.h"

#include <string.h>

static struct logs_seen seen;

static int open_with(struct member *member, uint32_t flags, uint64_t keep,
		     uint64_t bytes, struct reef_space **space,
		     struct reef_log **log)
{
	const struct reef_log_options options = {
		LOGS_SMALL,
		.flags = flags,
		.keep_entries = keep,
		.keep_bytes = bytes,
	};

	TRY(member_space(member, space));
	return reef_log_open(*space, "log", &options, log);
}

/* --- far away --- */

/* Nothing is at a position behind the end, however far. */
static int looks_far_ahead(struct member *member)
{
	static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
					 REEF_LOG_SHARDED | REEF_LOG_EARLY};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t from, next;

	for (uint32_t kind = 0; kind < 4; kind++) {
		TRY(open_with(member, kinds[kind], 0, 0, &space, &log));
		if (kinds[kind] == REEF_LOG_SINGLE)
			TRY(reef_log_lead(log));
		for (uint64_t i = 0; i < 20; i++)
			TRY(logs_append(log, i, 8, NULL));
		/* A lap of the directory has 128 positions. */
		for (uint32_t bit = 6; bit < 64; bit++) {
			from = UINT64_C(1) << bit | 3;
			memset(&seen, 0, sizeof(seen));
			next = 0;
			TRY(reef_log_read(log, from, 64, logs_see, &seen,
					  &next));
			WANT(!seen.count && next == from);
			WANT_RC(reef_log_wait(log, from, MICROSECOND),
				-ETIMEDOUT);
			WANT_RC(reef_log_trim(log, from), -ERANGE);
			WANT_RC(reef_log_fill(log, from), -ERANGE);
		}
		TRY(reef_log_read(log, UINT64_MAX, 64, logs_see, &seen, &next));
		WANT(!seen.count && next == UINT64_MAX);
		reef_log_close(log);
		TRY(reef_log_drop(space, "log"));
	}
	return 0;
}

static void log_far_behind_its_end_has_nothing(void **state)
{
	logs_run_as(looks_far_ahead, true);
}

/* --- filling --- */

/* All is decided in a log with one writer, or a sealed one. */
static int fills_what_is_decided(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t entry, tail;

	for (uint32_t kind = 0; kind < 3; kind++) {
		TRY(open_with(member,
			      kind == 1 ? REEF_LOG_SINGLE
					: kind * REEF_LOG_SHARDED / 2,
			      0, 0, &space, &log));
		if (kind == 1)
			TRY(reef_log_lead(log));
		for (uint64_t i = 0; i < 20; i++)
			TRY(logs_append(log, i, 8, &entry));
		WANT_RC(reef_log_fill(log, entry), -EEXIST);
		WANT_RC(reef_log_fill(log, entry + 1), -ERANGE);
		TRY(reef_log_seal(log));
		WANT_RC(reef_log_fill(log, entry), -EEXIST);
		TRY(reef_log_tail(log, &tail));
		if (kind < 2)
			TRY(reef_log_fill(log, tail - 1));
		WANT_RC(reef_log_fill(log, tail), -ERANGE);
		TRY(reef_log_trim(log, entry));
		WANT_RC(reef_log_fill(log, entry - 1), -ERANGE);
		reef_log_close(log);
		TRY(reef_log_drop(space, "log"));
	}
	return 0;
}

static void log_fill_tells_what_is_there(void **state)
{
	logs_run(fills_what_is_decided);
}

/* --- what goes while it is read --- */

struct cutting {
	struct reef_log *log; /* another handle */
	uint32_t given;
};

static int trims_at_15(void *context, uint64_t position, const void *bytes,
		       size_t size)
{
	struct cutting *cutting = context;

	(void)bytes;
	(void)size;
	cutting->given++;
	return position == 15 ? reef_log_trim(cutting->log, 48) : 0;
}

/* What was given counts, although the next segment has gone meanwhile. */
static int reads_what_goes(struct member *member)
{
	struct cutting cutting = {0};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next = 77;

	TRY(open_with(member, 0, 0, 0, &space, &log));
	TRY(open_with(member, 0, 0, 0, &space, &cutting.log));
	for (uint64_t i = 0; i < 60; i++)
		TRY(logs_append(cutting.log, i, 8, NULL));
	TRY(reef_log_read(log, 0, 64, trims_at_15, &cutting, &next));
	WANT(cutting.given == 16 && next == 16);
	WANT_RC(reef_log_read(log, next, 64, logs_see, &seen, &next), -ERANGE);
	/* Of one that was dropped nobody is told that nothing is there. */
	TRY(reef_log_read(log, 50, 4, logs_see, &seen, &next));
	TRY(reef_log_drop(space, "log"));
	WANT_RC(reef_log_read(log, 60, 4, logs_see, &seen, &next), -ENOENT);
	reef_log_close(cutting.log);
	reef_log_close(log);
	return 0;
}

static void log_read_ends_where_others_have_trimmed(void **state)
{
	logs_run(reads_what_goes);
}

/* --- what is kept --- */

/* Writers that come and go, and append little. */
static int leads_again(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	struct reef_log_stats stats;

	for (uint64_t i = 0; i < 40; i++) {
		TRY(open_with(member, REEF_LOG_SINGLE, 20, 0, &space, &log));
		TRY(reef_log_lead(log));
		TRY(logs_append(log, i, 8, NULL));
		reef_log_close(log);
	}
	TRY(open_with(member, REEF_LOG_SINGLE, 20, 0, &space, &log));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first + 20 <= stats.tail);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_single_keeps_so_much_whoever_leads(void **state)
{
	logs_run(leads_again);
}

/* Whoever was to trim has died, again and again: the log is full, and who comes
 * next sees to it. */
static int fills_without_trimming(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t i;
	int rc = 0;

	TRY(open_with(member, 0, 20, 0, &space, &log));
	log->options.keep_entries = 0;
	for (i = 0; !rc; i++)
		rc = logs_append(log, i, 8, NULL);
	WANT(rc == -ENOSPC && i > 100);
	TRY(open_with(member, 0, 20, 0, &space, &other));
	for (i = 0; i < 200; i++)
		TRY(logs_append(other, i, 8, NULL));
	TRY(reef_log_seal(other));
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_full_is_trimmed_by_the_next_one(void **state)
{
	logs_run(fills_without_trimming);
}

/* A segment is lost with its node: what it had counts for nothing. */
static int makes_a_log(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_space *space;
	struct reef_log *log;

	TRY(open_with(member, 0, 0, 200, &space, &log));
	note[0] = 1;
	while (note[0] < 2)
		TRY(reef_sleep(MILLISECOND));
	reef_log_close(log);
	return 0;
}

static int keeps_bytes(struct member *member)
{
	uint64_t *note = member->pool->note, at;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;

	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(open_with(member, 0, 0, 200, &space, &log));
	for (uint64_t i = 0; i < 20; i++)
		TRY(logs_append(log, i, 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 0, &found));
	reef_leave(member->reef);
	at = found.at;
	reef_sim_host_kill(
		member->pool->lenders[member->pool->seed % NODES].host);
	for (uint64_t i = 0; i < 3000; i++) {
		TRY(reef_sleep(MILLISECOND));
		if (reef_is_lost(member->reef, at) ||
		    reef_is_lost(member->reef, log->object.body))
			break;
	}
	note[2] += reef_is_lost(member->reef, at);
	if (!reef_is_lost(member->reef, log->object.body))
		for (uint64_t i = 0; i < 300; i++)
			TRY(logs_append(log, i, 8, NULL));
	else
		note[2] = 0;
	note[0] = 2;
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_keeps_so_many_bytes_behind_a_lost_segment(void **state)
{
	uint64_t seed, lost = 0;

	for (seed = seeds_first(); seeds_has(seed, 2 * POOL_SEEDS); seed++) {
		struct pool pool = {
			.node_ttl_ns = 300 * MILLISECOND,
			.extent_size = UINT64_C(1) << 20,
			.witnesses = 2,
			.patience_ns = 2 * SECOND,
		};

		pool_start(&pool, seed);
		pool_add(&pool, makes_a_log);
		pool_add(&pool, keeps_bytes);
		pool_finish(&pool);
		lost += pool.note[2];
	}
	/* Else it has shown nothing. */
	assert_true(lost > 0);
}

/* --- one entry --- */

/* The word of a long entry leads nowhere any more. */
static int misplaces(struct reef_log *log, uint64_t position)
{
	struct log_found found;
	uint64_t word, at;

	reef_enter(log->reef);
	if (log->sharded) {
		at = shard_cell_at(log, log->sharded->own.at, position);
	} else {
		TRY(log_find(log, position / 16, &found));
		at = found.at + log_word_offset(position % 16);
	}
	TRY(reef_read(log->reef, at, &word, 8));
	WANT(log_word_is_long(word));
	word |= LOG_BLOCK_MASK;
	TRY(reef_write(log->reef, at, &word, 8));
	reef_leave(log->reef);
	return 0;
}

/* Takes all that a reader is given, up to a position. */
static int takes_up_to(struct reef_reader *reader, uint64_t end, uint32_t *bad)
{
	int rc = 0;

	memset(&seen, 0, sizeof(seen));
	while (!rc && (!seen.count || seen.positions[seen.count - 1] + 1 < end))
		for (;;) {
			rc = reef_reader_next(reader, 64, 0, logs_see, &seen);
			if (rc != -REEF_ECORRUPT && rc != -REEF_ELOST)
				break;
			++*bad;
		}
	return rc;
}

/* A long entry that is damaged, or lost, costs nobody another one. */
static int loses_one(struct member *member)
{
	const struct reef_reader_options options = {.flags = REEF_READER_GROUP,
						    .window = 16};
	static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
					 REEF_LOG_SHARDED | REEF_LOG_EARLY};
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next, from;
	uint32_t bad;

	for (uint32_t kind = 0; kind < 4; kind++) {
		TRY(open_with(member, kinds[kind], 0, 0, &space, &log));
		if (kinds[kind] == REEF_LOG_SINGLE)
			TRY(reef_log_lead(log));
		for (uint64_t i = 0; i < 14; i++)
			TRY(logs_append(log, i, i % 5 == 3 ? 100 : 8, NULL));
		TRY(reef_log_tail(log, &from));
		from -= 14;
		TRY(misplaces(log, from + 3));
		memset(&seen, 0, sizeof(seen));
		TRY(reef_log_read(log, from, 64, logs_see, &seen, &next));
		WANT(seen.count == 3 && next == from + 3);
		WANT_RC(reef_log_read(log, next, 64, logs_see, &seen, &next),
			-REEF_ECORRUPT);
		WANT(next == from + 4);
		TRY(logs_read(log, next, &seen, &next));
		WANT(seen.count == 10 && next == from + 14);
		for (uint32_t group = 0; group < 2; group++) {
			bad = 0;
			TRY(reef_reader_open(log, group ? "some" : "one",
					     group ? &options : NULL, &reader));
			TRY(takes_up_to(reader, from + 14, &bad));
			WANT(seen.count == 13 && bad == 1);
			reef_reader_close(reader);
		}
		reef_log_close(log);
		TRY(reef_log_drop(space, "log"));
	}
	return 0;
}

static void log_lost_entry_costs_no_other(void **state)
{
	logs_run(loses_one);
}

/* --- the dead --- */

/* What one that comes, appends and dies leaves is found near its place, however
 * long the log is. */
static int appends_once(struct member *member)
{
	const struct reef_log_options options = {.segment = 4096};
	struct log_entry entry;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log, *other;
	uint64_t position, word, at;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	TRY(reef_log_open(space, "log", &options, &other));
	TRY(logs_append(other, 0, 1000, NULL));
	for (uint32_t round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < 1000; i++)
			TRY(logs_append(log, i, 8, NULL));
		/* It may have slept for long. */
		log_forget(other);
		if (round)
			TRY(reef_sleep(20 * member->pool->ttl_ns));
		TRY(logs_append(other, 1, 1000, &position));
		reef_enter(member->reef);
		TRY(log_find(other, 0, &found));
		TRY(reef_read(member->reef,
			      found.at + log_word_offset(position), &word, 8));
		TRY(reef_long_address(space, word & LOG_BLOCK_MASK, &at));
		TRY(reef_read(member->reef, at, &entry, sizeof(entry)));
		reef_leave(member->reef);
		WANT(entry.position <= position);
		WANT(entry.position + 8 > position || !round);
		reef_log_close(other);
		TRY(reef_log_open(space, "log", &options, &other));
	}
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_long_entry_of_the_dead_is_soon_found(void **state)
{
	logs_run_brief(appends_once);
}

/* --- waiting --- */

static int waits_beside(void *arg)
{
	struct member *member = arg;
	uint64_t *note = member->pool->note;
	struct reef_space *space;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_log_wait(log, 0, MILLISECOND), -ETIMEDOUT);
	note[0] = 1;
	for (uint64_t i = 0; i < 20; i++) {
		TRY(reef_log_wait(log, i, REEF_FOREVER));
		note[1] = i + 1;
	}
	reef_log_close(log);
	return 0;
}

/* Two fibers of one handle, both of which have waited before. */
static int appends_beside(struct member *member)
{
	uint64_t *note = member->pool->note, from_ns, late_ns = 0;
	struct reef_fiber *fiber;
	struct reef_space *space;
	struct reef_log *log;
	int result;

	note[0] = note[1] = 0;
	TRY(logs_open(member, &space, &log));
	WANT_RC(reef_log_wait(log, 0, MILLISECOND), -ETIMEDOUT);
	TRY(reef_fiber_spawn(reef_fiber_sched(), waits_beside, member, &fiber));
	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	for (uint64_t i = 0; i < 20; i++) {
		TRY(reef_sleep(SECOND));
		TRY(logs_append(log, i, 8, NULL));
		from_ns = reef_now_ns();
		while (note[1] == i)
			TRY(reef_sleep(MILLISECOND));
		if (late_ns < reef_now_ns() - from_ns)
			late_ns = reef_now_ns() - from_ns;
	}
	TRY(reef_fiber_join(fiber, &result));
	WANT(late_ns < 100 * MILLISECOND);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	return result;
}

static void log_wait_is_told_by_fibers_of_its_handle(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 600 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, appends_beside);
		pool_finish(&pool);
	}
}

static const uint32_t wait_kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
				      REEF_LOG_SHARDED | REEF_LOG_EARLY};

/* One that waits for what will never come. */
static int waits_in_vain(struct member *member)
{
	uint64_t *note = member->pool->note, tail;
	struct reef_space *space;
	struct reef_log *log;
	int rc;

	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	TRY(open_with(member, (uint32_t)note[2], 0, 0, &space, &log));
	TRY(reef_log_tail(log, &tail));
	rc = reef_log_wait(log, tail + note[3], REEF_FOREVER);
	/* The rest of the segment has become holes. */
	while (!rc && !note[3] && note[4] < 2) {
		TRY(reef_log_read(log, tail, 64, logs_see, &seen, &tail));
		rc = reef_log_wait(log, tail, REEF_FOREVER);
	}
	note[1] = reef_now_ns();
	reef_log_close(log);
	WANT(rc == -ESHUTDOWN || rc == -ENOENT || (note[4] == 2 && !rc));
	return 0;
}

static int ends_a_log(struct member *member)
{
	uint64_t *note = member->pool->note, from_ns, tail;
	struct reef_space *space;
	struct reef_log *log;

	TRY(open_with(member, (uint32_t)note[2], 0, 0, &space, &log));
	if (note[2] == REEF_LOG_SINGLE)
		TRY(reef_log_lead(log));
	/* Now and then it is all that was ever there. */
	for (uint64_t i = 0; i < member->pool->seed % 3 * 9; i++)
		TRY(logs_append(log, i, 8, NULL));
	note[0] = 1;
	TRY(reef_sleep(10 * SECOND));
	WANT(!note[1]);
	from_ns = reef_now_ns();
	if (note[4] == 2) {
		while (reef_log_tail(log, &tail) || tail < 90)
			TRY(logs_append(log, 1, 8, NULL));
		TRY(reef_log_trim(log, 90));
	} else {
		TRY(note[4] ? reef_log_drop(space, "log") : reef_log_seal(log));
	}
	while (!note[1]) {
		TRY(reef_sleep(MILLISECOND));
		WANT(reef_now_ns() - from_ns < SECOND);
	}
	reef_log_close(log);
	return 0;
}

static void log_wait_is_told_of_the_end(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 8 * POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 600 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool.note[2] = wait_kinds[seed % 4];
		pool.note[3] = seed / 4 % 2 * 30; /* so far behind the tail */
		pool.note[4] = seed / 8 % 3;	  /* sealed, dropped, trimmed */
		pool_add(&pool, ends_a_log);
		pool_add(&pool, waits_in_vain);
		pool_finish(&pool);
	}
}

/* --- readers --- */

static const struct reef_reader_options group = {.flags = REEF_READER_GROUP,
						 .window = 8};

static int refuses(void *context, uint64_t position, const void *bytes,
		   size_t size)
{
	(void)position;
	(void)bytes;
	(void)size;
	return *(int *)context;
}

/* Whatever `each` says is what the call says. */
static int says(struct member *member)
{
	static const int what[] = {-EAGAIN,
				   -E2BIG,
				   -ENOENT,
				   -ERANGE,
				   -REEF_ELOST,
				   -REEF_ECORRUPT,
				   -ETIMEDOUT,
				   1,
				   2,
				   3,
				   4};
	struct reef_reader *readers[2];
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next;

	TRY(logs_open(member, &space, &log));
	for (uint64_t i = 0; i < 20; i++)
		TRY(logs_append(log, i, 8, NULL));
	for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
		int said = what[i];

		TRY(reef_reader_open(log, "one", NULL, &readers[0]));
		TRY(reef_reader_open(log, "some", &group, &readers[1]));
		next = 77;
		WANT_RC(reef_log_read(log, 3, 64, refuses, &said, &next), said);
		WANT(next == 4);
		WANT_RC(reef_reader_next(readers[0], 4, 0, refuses, &said),
			said);
		WANT_RC(reef_reader_next(readers[1], 4, 0, refuses, &said),
			said);
		reef_reader_close(readers[0]);
		reef_reader_close(readers[1]);
	}
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_tells_what_it_was_told(void **state)
{
	logs_run(says);
}

/* What is given back and taken again, many times in an epoch. */
static int takes_again(struct member *member)
{
	struct reef_reader *reader;
	struct reef_space *space;
	struct reef_log *log;
	int said = 5;

	TRY(logs_open(member, &space, &log));
	for (uint64_t i = 0; i < 20; i++)
		TRY(logs_append(log, i, 8, NULL));
	for (uint32_t i = 0; i < 140; i++) {
		TRY(reef_reader_open(log, "some", &group, &reader));
		memset(&seen, 0, sizeof(seen));
		TRY(reef_reader_next(reader, 1, 0, logs_see, &seen));
		WANT(seen.count == 1 && seen.positions[0] == 0);
		reef_reader_close(reader);
	}
	TRY(reef_reader_open(log, "some", &group, &reader));
	for (uint32_t i = 0; i < 300; i++)
		WANT_RC(reef_reader_next(reader, 8, 0, refuses, &said),
			i < 8 ? said : -EDEADLK);
	reef_reader_close(reader);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_claims_do_not_return(void **state)
{
	logs_run(takes_again);
}

/* A sealed log: given, and not acknowledged. */
static int ends(struct member *member)
{
	struct reef_reader *readers[2];
	struct reef_space *space;
	struct reef_log *log;

	TRY(logs_open(member, &space, &log));
	for (uint64_t i = 0; i < 4; i++)
		TRY(logs_append(log, i, 8, NULL));
	TRY(reef_log_seal(log));
	TRY(reef_reader_open(log, "one", NULL, &readers[0]));
	TRY(reef_reader_open(log, "some", &group, &readers[1]));
	for (uint32_t i = 0; i < 2; i++) {
		memset(&seen, 0, sizeof(seen));
		TRY(reef_reader_next(readers[i], 8, 0, logs_see, &seen));
		WANT(seen.count == 4);
		WANT_RC(reef_reader_next(readers[i], 8, MILLISECOND, logs_see,
					 &seen),
			-EDEADLK);
		TRY(reef_reader_done_all(readers[i]));
		WANT_RC(reef_reader_next(readers[i], 8, MILLISECOND, logs_see,
					 &seen),
			-ESHUTDOWN);
		reef_reader_close(readers[i]);
	}
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void reader_of_a_sealed_log_ends_when_all_is_acknowledged(void **state)
{
	logs_run(ends);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_far_behind_its_end_has_nothing),
		cmocka_unit_test(log_fill_tells_what_is_there),
		cmocka_unit_test(log_read_ends_where_others_have_trimmed),
		cmocka_unit_test(log_single_keeps_so_much_whoever_leads),
		cmocka_unit_test(log_full_is_trimmed_by_the_next_one),
		cmocka_unit_test(log_keeps_so_many_bytes_behind_a_lost_segment),
		cmocka_unit_test(log_lost_entry_costs_no_other),
		cmocka_unit_test(log_long_entry_of_the_dead_is_soon_found),
		cmocka_unit_test(log_wait_is_told_by_fibers_of_its_handle),
		cmocka_unit_test(log_wait_is_told_of_the_end),
		cmocka_unit_test(reader_tells_what_it_was_told),
		cmocka_unit_test(reader_claims_do_not_return),
		cmocka_unit_test(
			reader_of_a_sealed_log_ends_when_all_is_acknowledged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
