/* test_log_shard.c - logs with order by cuts: what they take and refuse, what
 * it costs, who wakes whom, and what stays of those who die. */
#include "fixture/log_world.h"
#include "log/shard.h"

#include <stdlib.h>
#include <string.h>

#define SHARDED LOGS_SMALL, .flags = REEF_LOG_SHARDED

static struct logs_seen seen;

static int open_as(struct member *member, uint32_t flags,
		   struct reef_space **space, struct reef_log **log)
{
	struct reef_log_options options = {LOGS_SMALL};

	options.flags = flags;
	options.hole_ns = flags & REEF_LOG_EARLY ? SECOND : 100 * MICROSECOND;
	TRY(member_space(member, space));
	return reef_log_open(*space, "log", &options, log);
}

/* --- order and sizes --- */

static int appends(struct member *member)
{
	static const size_t sizes[] = {0, 1, 7, 8, 31, 32, 33, 200, 3999, 4000};
	struct reef_log *logs[3];
	struct reef_space *space;
	uint64_t position, next, i;

	for (i = 0; i < 3; i++)
		TRY(open_as(member, REEF_LOG_SHARDED, &space, &logs[i]));
	TRY(logs_read(logs[0], 0, &seen, &next));
	WANT(!seen.count && next == 0);
	for (i = 0; i < 60; i++) {
		TRY(logs_append(logs[i % 3], i, sizes[i % 10], &position));
		WANT(position == i);
	}
	TRY(reef_log_tail(logs[1], &position));
	WANT(position == 60);
	WANT_RC(logs_append(logs[0], 0, 4001, NULL), -EMSGSIZE);
	TRY(logs_read(logs[2], 0, &seen, &next));
	WANT(seen.count == 60 && next == 60 && !seen.is_damaged);
	for (i = 0; i < 60; i++) {
		WANT(seen.positions[i] == i);
		WANT(seen.sizes[i] == sizes[i % 10]);
		WANT(seen.sizes[i] < 8 || seen.firsts[i] == i);
	}
	TRY(reef_log_read(logs[0], 60, 5, logs_see, &seen, &next));
	WANT(next == 60);
	TRY(reef_log_read(logs[0], 5000, 5, logs_see, &seen, &next));
	WANT(next == 5000);
	WANT_RC(reef_log_fill(logs[0], 3), -EEXIST);
	WANT_RC(reef_log_fill(logs[0], 60), -ERANGE);
	WANT_RC(reef_log_lead(logs[0]), -EINVAL);
	for (i = 0; i < 3; i++)
		reef_log_close(logs[i]);
	return reef_log_drop(space, "log");
}

static void log_shards_take_entries_of_all_sizes_in_one_order(void **state)
{
	logs_run(appends);
}

static int opens(struct member *member)
{
	struct reef_log_options options = {.flags = REEF_LOG_EARLY};
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log, *other;

	TRY(member_space(member, &space));
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options.flags = REEF_LOG_SHARDED | REEF_LOG_SINGLE;
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options.flags = REEF_LOG_SHARDED;
	TRY(reef_log_open(space, "log", &options, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(logs_append(other, 1, 8, NULL));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.options.flags == REEF_LOG_SHARDED && stats.tail == 1);
	WANT(stats.options.hole_ns == 100 * MICROSECOND);
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_is_fixed_when_it_is_made(void **state)
{
	logs_run(opens);
}

/* --- rows, trim, seal --- */

static int rows(struct member *member)
{
	struct iovec entries[5] = {0};
	static uint8_t bytes[5][100];
	struct reef_space *space;
	struct reef_log *log;
	uint64_t first, next, position = 0;
	uint32_t i, j;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	for (i = 0; i < 30; i++) {
		uint32_t count = 1 + i % 4;

		for (j = 0; j < count; j++) {
			entries[j].iov_len = (i + j) % 3 ? 8 + i : 100;
			entries[j].iov_base = bytes[j];
			logs_fill(bytes[j], entries[j].iov_len, position + j);
		}
		TRY(reef_log_append_many(log, entries, count, &first));
		WANT(first == position);
		position += count;
	}
	WANT_RC(reef_log_append_many(log, entries, 5, NULL), -EINVAL);
	WANT_RC(reef_log_append_many(log, entries, 0, NULL), -EINVAL);
	for (i = 0; i < position; i += 7) {
		TRY(logs_read(log, i, &seen, &next));
		WANT(seen.count == position - i && seen.firsts[0] == i &&
		     !seen.is_damaged);
	}
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_rows_stand_together(void **state)
{
	logs_run(rows);
}

static int trims(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t position, next, i;
	int rc = 0;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &other));
	for (i = 0; !rc && i < 400; i++)
		rc = logs_append(log, i, i % 5 ? 8 : 100, NULL);
	/* Full: as many segments as the log may have. */
	WANT(rc == -ENOSPC && i > 100);
	next = i - 1;
	WANT_RC(logs_append(log, 0, 8, NULL), -ENOSPC);
	TRY(reef_log_tail(log, &position));
	WANT(position == next);
	WANT_RC(reef_log_trim(log, position + 1), -ERANGE);
	for (i = next; i < 2000; i++) {
		TRY(reef_log_trim(other, i - 20));
		TRY(logs_append(log, i, i % 5 ? 8 : 100, &position));
		WANT(position == i);
		if (i % 50)
			continue;
		WANT_RC(logs_read(other, i - 21, &seen, &next), -ERANGE);
		TRY(logs_read(other, i - 20, &seen, &next));
		WANT(seen.count == 21 && next == i + 1 && !seen.is_damaged);
		TRY(reef_log_first(other, &next));
		WANT(next == i - 20);
	}
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_is_trimmed_and_goes_round(void **state)
{
	logs_run(trims);
}

/* A shard that was full after the cut of `first` stays. */
static int spares(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next, i;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	for (i = 0; i < 100; i++) {
		TRY(logs_append(log, i, 8, NULL));
		if (i < 40 || i % 20)
			continue;
		TRY(reef_log_trim(log, 1 + i / 40));
		/* What was freed may be something else's after some epochs. */
		TRY(reef_sleep(20 * member->pool->ttl_ns));
	}
	TRY(logs_read(log, 3, &seen, &next));
	WANT(seen.count == 97 && next == 100 && !seen.is_damaged);
	for (i = 0; i < 97; i++)
		WANT(seen.firsts[i] == i + 3);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_trim_spares_what_is_not_below(void **state)
{
	logs_run_brief(spares);
}

/* A reader and an appender that stand still while all that they know is
 * trimmed, and reused; then while the log is dropped. */
static int idles(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *reader, *idle;
	uint64_t next, i;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &reader));
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &idle));
	TRY(logs_append(idle, 0, 8, NULL));
	TRY(logs_append(log, 1, 8, NULL));
	TRY(reef_log_read(reader, 0, 1, logs_see, &seen, &next));
	WANT(next == 1);
	for (i = 2; i < 300; i++) {
		TRY(logs_append(log, i, 8, NULL));
		if (!(i % 10))
			TRY(reef_log_trim(log, i - 5));
	}
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(reef_log_read(reader, 1, 4, logs_see, &seen, &next), -ERANGE);
	TRY(reef_log_first(reader, &next));
	WANT(next == 285);
	TRY(logs_read(reader, 285, &seen, &next));
	WANT(seen.count == 15 && seen.firsts[0] == 285 && !seen.is_damaged);
	TRY(logs_append(idle, 300, 8, &next));
	WANT(next == 300);
	TRY(reef_log_drop(space, "log"));
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(logs_append(idle, 0, 8, NULL), -ENOENT);
	WANT_RC(reef_log_tail(reader, &next), -ENOENT);
	reef_log_close(idle);
	reef_log_close(reader);
	reef_log_close(log);
	return 0;
}

static void log_sharded_handles_may_stand_still(void **state)
{
	logs_run_brief(idles);
}

static int keeps(struct member *member)
{
	struct reef_log_options options = {SHARDED, .keep_entries = 50};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i, first, pass;

	TRY(member_space(member, &space));
	for (pass = 0; pass < 2; pass++) {
		TRY(reef_log_open(space, "log", &options, &log));
		for (i = 0; i < 1000; i++)
			TRY(logs_append(log, i, 8, NULL));
		TRY(reef_log_first(log, &first));
		WANT(first <= 950 && first >= 800);
		reef_log_close(log);
		TRY(reef_log_drop(space, "log"));
		options.keep_entries = 0;
		options.keep_bytes = 400;
	}
	return 0;
}

static void log_sharded_keeps_as_much_as_it_was_told(void **state)
{
	logs_run(keeps);
}

static int seals(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t next, i, flags;

	for (flags = REEF_LOG_SHARDED; flags < 32; flags += REEF_LOG_EARLY) {
		TRY(open_as(member, (uint32_t)flags, &space, &log));
		TRY(open_as(member, (uint32_t)flags, &space, &other));
		for (i = 0; i < 10; i++)
			TRY(logs_append(i % 2 ? log : other, i, 8, NULL));
		TRY(reef_log_seal(other));
		TRY(reef_log_seal(other));
		WANT_RC(logs_append(other, 0, 8, NULL), -ESHUTDOWN);
		TRY(logs_read(log, 0, &seen, &next));
		WANT(seen.count == 10 && next == 10);
		WANT_RC(reef_log_wait(log, 10, REEF_FOREVER), -ESHUTDOWN);
		TRY(reef_log_trim(log, 5));
		TRY(logs_read(log, 5, &seen, &next));
		WANT(seen.count == 5);
		reef_log_close(log);
		reef_log_close(other);
		TRY(reef_log_drop(space, "log"));
	}
	return 0;
}

static void log_sharded_is_sealed_with_all_that_had_returned(void **state)
{
	logs_run(seals);
}

/* --- handles that come and go --- */

static int comes_and_goes(struct member *member)
{
	struct reef_log_options options = {SHARDED};
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i, next;

	TRY(member_space(member, &space));
	for (i = 0; i < 100; i++) {
		TRY(reef_log_open(space, "log", &options, &log));
		TRY(logs_append(log, i, 8, &next));
		WANT(next == i);
		reef_log_close(log);
	}
	TRY(reef_log_open(space, "log", &options, &log));
	/* One after the other they filled the same shards. */
	TRY(reef_log_stats(log, &stats));
	WANT(stats.segments == 7);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == 100);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_shard_of_a_closed_handle_is_the_next_ones(void **state)
{
	logs_run(comes_and_goes);
}

/* Beside many that stay: not all shards are looked at for one that is nobody's,
 * but enough of them. */
static int comes_beside_many(struct member *member)
{
	struct reef_log_options options = {
		.flags = REEF_LOG_SHARDED | REEF_LOG_EARLY,
		.segment = 16,
		.segments = 256,
		.cell = 32,
		.hole_ns = SECOND,
	};
	struct reef_log *stays[60], *log;
	struct reef_log_stats stats;
	struct reef_space *space;
	uint64_t i, tail;

	TRY(member_space(member, &space));
	for (i = 0; i < 60; i++) {
		TRY(reef_log_open(space, "log", &options, &stays[i]));
		TRY(logs_append(stays[i], i, 8, NULL));
	}
	for (i = 0; i < 320; i++) {
		TRY(reef_log_open(space, "log", &options, &log));
		TRY(logs_append(log, i, 8, NULL));
		reef_log_close(log);
	}
	TRY(reef_log_tail(stays[0], &tail));
	WANT(tail == 380);
	/* Those that stay, 20 that are full, and some that nobody met. */
	TRY(reef_log_stats(stays[0], &stats));
	WANT(stats.segments >= 80 && stats.segments < 80 + 40);
	for (i = 0; i < 60; i++)
		reef_log_close(stays[i]);
	return reef_log_drop(space, "log");
}

static void log_shards_of_closed_handles_do_not_add_up(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 2); seed++) {
		struct pool pool = {.ttl_ns = 6000 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, comes_beside_many);
		pool_finish(&pool);
	}
}

/* One that has a shard when its host dies. */
static int dies_with_a_shard(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_space *space;
	struct reef_log *log;
	int rc = 0;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	TRY(logs_append(log, 1000 + note[0], 8, NULL));
	note[0]++;
	while (!rc)
		rc = reef_sleep(SECOND);
	/* This frees what the process had; the pool hears nothing of it. */
	reef_log_close(log);
	return rc;
}

static int inherits(struct member *member)
{
	uint64_t *note = member->pool->note, i, next;
	struct log_sharded *sharded;
	struct reef_space *space;
	struct reef_log *logs[6];

	while (note[0] < 3)
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < 3; i++)
		reef_sim_host_kill(member->pool->members[i].host);
	/* Five and three shards are all that the directory has. */
	for (i = 0; i < 5; i++) {
		TRY(open_as(member, REEF_LOG_SHARDED, &space, &logs[i]));
		TRY(logs_append(logs[i], i, 8, NULL));
	}
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &logs[5]));
	while (logs_append(logs[5], 5, 8, NULL) == -ENOSPC)
		TRY(reef_sleep(100 * MILLISECOND));
	sharded = logs[5]->sharded;
	WANT(sharded->own.count == 2);
	TRY(logs_read(logs[5], 0, &seen, &next));
	WANT(seen.count == 9 && next == 9);
	for (i = 0; i < 6; i++)
		reef_log_close(logs[i]);
	return reef_log_drop(space, "log");
}

static void log_shard_of_the_dead_is_taken_over(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = SECOND};

		pool_start(&pool, seed);
		for (int i = 0; i < 3; i++)
			pool_add(&pool, dies_with_a_shard);
		pool_add(&pool, inherits);
		pool_finish(&pool);
	}
}

/* --- as many as there can be --- */

#define STEP 64u /* from shard to shard: their heads are apart */

/* Put shards of this session into the directory that have nothing but a head,
 * in the words from `first` on. */
static int forge_shards(struct reef_log *log, uint32_t first, uint32_t count)
{
	const uint64_t size = (uint64_t)count * STEP + sizeof(struct log_shard);
	const uint64_t owner = shard_owner_after(0, 0, reef_session(log->reef));
	uint8_t *bytes = calloc(1, size);
	uint64_t *words = calloc(count, 8);
	uint64_t at, block;

	WANT(bytes && words);
	TRY(reef_alloc(log->object.space, size, &at));
	for (uint32_t i = 0; i < count; i++) {
		memcpy(bytes + shard_head_at((uint64_t)i * STEP), &owner, 8);
		TRY(reef_short_address(log->object.space, at + i * STEP,
				       &block));
		words[i] = shard_word_after(0, SHARD_OPEN, block);
	}
	TRY(reef_write(log->reef, at, bytes, size));
	TRY(reef_write(log->reef, shard_slot_at(log, first), words,
		       8 * (uint64_t)count));
	free(bytes);
	free(words);
	return 0;
}

static int crowds(struct member *member)
{
	const struct reef_log_options options = {
		.flags = REEF_LOG_SHARDED,
		.segment = 64,
		.segments = LOG_SEGMENTS_MAX,
		.cell = 8,
	};
	static const uint64_t nonsense = 0x123456789abcdef;
	struct reef_log *log, *other;
	struct reef_space *space;
	struct log_sharded *sharded;
	struct log_found found;
	uint64_t position, next, word, at;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	TRY(forge_shards(log, 0, CUT_PARTS_MAX - 1));
	/* The last for whom there is a place. */
	for (uint64_t i = 0; i < 3; i++) {
		TRY(logs_append(log, i, 8, &position));
		WANT(position == i);
	}
	sharded = log->sharded;
	WANT(sharded->last.head.count == CUT_PARTS_MAX);
	TRY(reef_log_open(space, "log", NULL, &other));
	WANT_RC(logs_append(other, 3, 8, NULL), -ENOSPC);
	/* Some who came at the same time: they are not in. */
	TRY(forge_shards(log, LOG_SEGMENTS_MAX - 9, 9));
	TRY(logs_append(log, 3, 8, &position));
	WANT(position == 3 && sharded->last.head.count == CUT_PARTS_MAX);
	TRY(logs_read(other, 0, &seen, &next));
	WANT(seen.count == 4 && next == 4 && !seen.is_damaged);
	/* Nor are they where the log restarts. */
	reef_enter(member->reef);
	TRY(log_find(log, 0, &found));
	TRY(reef_read(member->reef,
		      found.at + log_word_offset(sharded->last.index), &word,
		      8));
	TRY(reef_long_address(space, word & LOG_BLOCK_MASK, &at));
	TRY(reef_write(member->reef, at + 24, &nonsense, 8));
	reef_leave(member->reef);
	reef_log_close(other);
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(reef_log_tail(other, &next));
	WANT(other->sharded->last.head.count == CUT_PARTS_MAX);
	TRY(logs_append(log, 4, 8, &position));
	WANT(position >= next && position > 3);
	TRY(logs_read(other, position, &seen, &next));
	WANT(seen.count == 1 && seen.firsts[0] == 4 && next == position + 1);
	reef_log_close(other);
	reef_log_close(log);
	return 0;
}

/* A cut is a block of a size that a word can tell. */
static void log_shards_are_at_most_what_a_cut_can_have(void **state)
{
	struct pool pool = {
		.ttl_ns = 6000 * SECOND,
		.calm = true,
		.extent_size = UINT64_C(32) << 20,
		.capacity = UINT64_C(128) << 20,
	};

	pool_start(&pool, 1);
	pool_add(&pool, crowds);
	pool_finish(&pool);
}

/* --- budgets --- */

static int spends(struct member *member)
{
	struct reef_log_options options = {
		.flags = REEF_LOG_SHARDED | REEF_LOG_EARLY,
		.hole_ns = SECOND,
	};
	struct reef_counts before, cost;
	struct reef_space *space;
	struct reef_log *log, *reader;
	uint64_t i, next;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	/* The first has its shard made, and joined. */
	TRY(logs_append(log, 0, 100, NULL));
	for (i = 1; i < 100; i++) {
		before = reef_count_read(&member->count);
		TRY(logs_append(log, i, 100, &next));
		cost = logs_cost(member, &before);
		WANT(next == REEF_LOG_UNPLACED);
		WANT(cost.round_trips == 1 && !cost.faa && !cost.cas);
		WANT(cost.writes == 2 && cost.reads == 1);
	}
	TRY(reef_log_tail(log, &next));
	WANT(next == 100);
	TRY(reef_log_open(space, "log", &options, &reader));
	memset(&seen, 0, sizeof(seen));
	TRY(reef_log_read(reader, 0, 10, logs_see, &seen, &next));
	WANT(next == 10);
	/* Its cut is known: one piece, one READ. */
	before = reef_count_read(&member->count);
	TRY(reef_log_read(reader, 10, 64, logs_see, &seen, &next));
	cost = logs_cost(member, &before);
	WANT(seen.count == 74 && next == 74);
	WANT(cost.round_trips == 1 && cost.memory_operations <= 2);
	reef_log_close(reader);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	/* Without EARLY: the same, then a cut. */
	options.flags = REEF_LOG_SHARDED;
	TRY(reef_log_open(space, "log", &options, &log));
	TRY(logs_append(log, 0, 100, NULL));
	before = reef_count_read(&member->count);
	TRY(logs_append(log, 1, 100, NULL));
	cost = logs_cost(member, &before);
	WANT(!cost.faa && cost.cas == 1);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_budget_of_a_shard_is_one_round_trip_and_no_atomic(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		/* Nothing but the calls is to be counted. */
		struct pool pool = {.ttl_ns = 6000 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, spends);
		pool_finish(&pool);
	}
}

/* --- turns --- */

#define CROWD 40

/* Many shards: what a cut costs who makes it, and who looks for it. */
static int takes_turns(struct member *member)
{
	struct reef_log_options options = {
		.flags = REEF_LOG_SHARDED,
		.segment = 1024,
		.hole_ns = 100 * MICROSECOND,
	};
	struct reef_log *logs[CROWD];
	struct reef_counts before, cost;
	struct reef_space *space;
	uint64_t i, position, next = 2 * CROWD;

	TRY(member_space(member, &space));
	for (i = 0; i < CROWD; i++) {
		TRY(reef_log_open(space, "log", &options, &logs[i]));
		TRY(logs_append(logs[i], i, 100, NULL));
	}
	for (i = 0; i < CROWD; i++)
		TRY(logs_append(logs[i], i, 100, NULL));
	/* It is the last one's turn: {cell, count}, {directory, heads},
	 * {block}, {word, places}; the heads are on two nodes. */
	before = reef_count_read(&member->count);
	TRY(logs_append(logs[CROWD - 1], 0, 100, &position));
	cost = logs_cost(member, &before);
	WANT(position == next++);
	WANT(cost.round_trips <= 5 && cost.cas == 1 && !cost.faa);
	WANT(cost.reads <= CROWD + 2 && cost.writes <= 4);
	/* Another one learns of that cut: {words}, {its own part}. */
	TRY(log_enter(logs[0], false));
	TRY(cuts_peek(logs[0]));
	WANT(logs[0]->sharded->last.is_partial);
	TRY(logs_append(logs[CROWD - 1], 0, 100, &position));
	WANT(position == next++);
	before = reef_count_read(&member->count);
	TRY(cuts_peek(logs[0]));
	cost = logs_cost(member, &before);
	log_leave(logs[0]);
	WANT(cost.round_trips == 2 && cost.memory_operations == 2);
	WANT(cost.bytes_in <= 8 * 8 + 4 * sizeof(struct cut_part));
	/* It waits for whoever has the turn, for the bound, then claims. */
	before = reef_count_read(&member->count);
	TRY(logs_append(logs[0], 0, 100, &position));
	cost = logs_cost(member, &before);
	WANT(position == next++);
	WANT(cost.cas == 2 && !cost.faa && cost.round_trips <= 32);
	WANT(cost.reads <= CROWD + 32);
	before = reef_count_read(&member->count);
	TRY(logs_append(logs[0], 0, 100, &position));
	cost = logs_cost(member, &before);
	WANT(position == next++ && cost.round_trips <= 5);
	for (i = 0; i < CROWD; i++)
		reef_log_close(logs[i]);
	return reef_log_drop(space, "log");
}

static void log_budget_of_a_cut_is_one_look_and_one_part(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 6000 * SECOND, .calm = true};

		pool_start(&pool, seed);
		pool_add(&pool, takes_turns);
		pool_finish(&pool);
	}
}

/* Who claims the turn and does nothing is passed by, and so is nonsense. */
static int passes_claims_by(struct member *member)
{
	const uint64_t bounds_ns = 20 * 100 * MICROSECOND;
	struct reef_space *space;
	struct reef_log *logs[3];
	uint64_t i, position, began_ns, claim;

	for (i = 0; i < 3; i++) {
		TRY(open_as(member, REEF_LOG_SHARDED, &space, &logs[i]));
		TRY(logs_append(logs[i], i, 8, NULL));
	}
	TRY(log_enter(logs[0], true));
	TRY(cuts_follow(logs[0]));
	WANT(turn_claim(logs[0]) == 1);
	log_leave(logs[0]);
	began_ns = reef_now_ns();
	TRY(logs_append(logs[1], 3, 8, &position));
	WANT(position == 3 && reef_now_ns() - began_ns < bounds_ns);
	for (i = 4; i < 10; i++) {
		claim = UINT64_MAX - 8 * (9 - i);
		TRY(reef_write(member->reef, log_floor_at(logs[0]) + 16, &claim,
			       8));
		began_ns = reef_now_ns();
		TRY(logs_append(logs[i % 3], i, 8, &position));
		WANT(position == i && reef_now_ns() - began_ns < bounds_ns);
	}
	for (i = 0; i < 3; i++)
		reef_log_close(logs[i]);
	return reef_log_drop(space, "log");
}

static void log_shard_claims_of_the_dead_are_passed_by(void **state)
{
	logs_run_brief(passes_claims_by);
}

/* --- waiting --- */

static uint32_t wait_flags;

static int waits(struct member *member)
{
	struct reef_counts before, after;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i, next, at = 0;

	TRY(open_as(member, wait_flags, &space, &log));
	WANT_RC(reef_log_wait(log, 0, MILLISECOND), -ETIMEDOUT);
	member->pool->note[0] = 1;
	for (i = 0; i < 40; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_log_wait(log, at, REEF_FOREVER));
		after = reef_count_read(&member->count);
		/* It slept for a second, and asked nobody meanwhile. A shard
		 * joins by a cut, which wakes it, too. */
		WANT(after.memory_operations - before.memory_operations <
		     (i % 16 ? 90 : 120));
		memset(&seen, 0, sizeof(seen));
		TRY(reef_log_read(log, at, 64, logs_see, &seen, &next));
		WANT(seen.count == 1 && seen.firsts[0] == i);
		at = next;
		TRY(reef_log_trim(log, at));
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
	TRY(open_as(member, wait_flags, &space, &log));
	for (i = 0; i < 40; i++) {
		TRY(reef_sleep(i % 4 ? 20 * MICROSECOND : SECOND));
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

static int run_waits(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 600 * SECOND, .calm = true};

	pool_start(&pool, seed);
	pool_add(&pool, waits);
	pool_add(&pool, appends_slowly);
	return pool_end(&pool);
}

static void log_sharded_wait_sleeps_until_it_is_told(void **state)
{
	uint64_t seed;

	for (wait_flags = REEF_LOG_SHARDED; wait_flags < 32;
	     wait_flags += REEF_LOG_EARLY)
		for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++)
			assert_int_equal(run_waits(seed), 0);
}

/* --- damage, loss --- */

static int scribbles(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t i, next;
	uint8_t byte = 77;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	for (i = 0; i < 30; i++)
		TRY(logs_append(log, i, 8, NULL));
	/* Entry 17 is the second of the second shard. */
	TRY(reef_write(member->reef,
		       shard_cell_at(log, log->sharded->own.at, 1) + 9, &byte,
		       1));
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &other));
	memset(&seen, 0, sizeof(seen));
	TRY(reef_log_read(other, 0, 64, logs_see, &seen, &next));
	WANT(seen.count == 17 && next == 17);
	WANT_RC(reef_log_read(other, 17, 64, logs_see, &seen, &next),
		-REEF_ECORRUPT);
	WANT(next == 18);
	TRY(reef_log_read(other, 18, 64, logs_see, &seen, &next));
	WANT(seen.count == 29 && next == 30);
	TRY(logs_append(other, 30, 8, &next));
	WANT(next == 30);
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_damage_costs_its_entry_and_no_more(void **state)
{
	logs_run(scribbles);
}

/* The last cut cannot be read any more: its positions are lost, nothing is
 * there twice, and the log goes on behind them. */
static int loses_a_cut(struct member *member)
{
	static const uint64_t nonsense = 0x123456789abcdef;
	struct reef_space *space;
	struct reef_log *log, *other;
	struct log_found found;
	uint64_t i, next, word, at, position;

	TRY(open_as(member, REEF_LOG_SHARDED, &space, &log));
	for (i = 0; i < 5; i++)
		TRY(logs_append(log, i, 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 0, &found));
	TRY(reef_read(member->reef,
		      found.at + log_word_offset(log->sharded->last.index),
		      &word, 8));
	TRY(reef_long_address(space, word & LOG_BLOCK_MASK, &at));
	TRY(reef_write(member->reef, at + 24, &nonsense, 8));
	reef_leave(member->reef);
	TRY(open_as(member, REEF_LOG_SHARDED, &space, &other));
	TRY(reef_log_tail(other, &position));
	WANT(position >= 5);
	TRY(logs_append(other, 100, 8, &next));
	WANT(next >= position);
	TRY(logs_append(log, 101, 8, &position));
	WANT(position == next + 1);
	memset(&seen, 0, sizeof(seen));
	TRY(reef_log_read(other, 0, 64, logs_see, &seen, &next));
	WANT(seen.count == 4 && next == 4);
	WANT_RC(reef_log_read(other, 4, 64, logs_see, &seen, &next),
		-REEF_ELOST);
	TRY(reef_log_read(other, next, 64, logs_see, &seen, &next));
	WANT(seen.count == 6 && seen.firsts[4] == 100 && seen.firsts[5] == 101);
	TRY(reef_log_trim(other, position + 1));
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_sharded_restarts_behind_a_lost_cut(void **state)
{
	logs_run(loses_a_cut);
}

/* --- mutants that no history shows --- */

#if !SANITIZED
static int run_early(uint64_t seed)
{
	wait_flags = REEF_LOG_SHARDED | REEF_LOG_EARLY;
	return run_waits(seed);
}

static int run_lost_cut(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, loses_a_cut);
	return pool_end(&pool);
}

static int run_trims(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, trims);
	return pool_end(&pool);
}

static int run_spares(uint64_t seed)
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, spares);
	return pool_end(&pool);
}

static void log_shard_mutants_are_found(void **state)
{
	static const struct logs_mutant mutants[] = {
		{REEF_MUTANT_LOG_SLEEP_UNMARKED, run_early},
		{REEF_MUTANT_LOG_CUT_TWICE, run_lost_cut},
		{REEF_MUTANT_LOG_SHARD_UNJOINED, run_trims},
		{REEF_MUTANT_LOG_SHARD_FREED, run_spares},
	};

	logs_find_mutants(mutants, sizeof(mutants) / sizeof(mutants[0]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(log_shards_take_entries_of_all_sizes_in_one_order),
	  cmocka_unit_test(log_sharded_is_fixed_when_it_is_made),
	  cmocka_unit_test(log_sharded_rows_stand_together),
	  cmocka_unit_test(log_sharded_is_trimmed_and_goes_round),
	  cmocka_unit_test(log_sharded_trim_spares_what_is_not_below),
	  cmocka_unit_test(log_sharded_handles_may_stand_still),
	  cmocka_unit_test(log_sharded_keeps_as_much_as_it_was_told),
	  cmocka_unit_test(log_sharded_is_sealed_with_all_that_had_returned),
	  cmocka_unit_test(log_shard_of_a_closed_handle_is_the_next_ones),
	  cmocka_unit_test(log_shards_of_closed_handles_do_not_add_up),
	  cmocka_unit_test(log_shard_of_the_dead_is_taken_over),
	  cmocka_unit_test(log_shards_are_at_most_what_a_cut_can_have),
	  cmocka_unit_test(
		  log_budget_of_a_shard_is_one_round_trip_and_no_atomic),
	  cmocka_unit_test(log_budget_of_a_cut_is_one_look_and_one_part),
	  cmocka_unit_test(log_shard_claims_of_the_dead_are_passed_by),
	  cmocka_unit_test(log_sharded_wait_sleeps_until_it_is_told),
	  cmocka_unit_test(log_sharded_damage_costs_its_entry_and_no_more),
	  cmocka_unit_test(log_sharded_restarts_behind_a_lost_cut),
#if !SANITIZED
	  cmocka_unit_test(log_shard_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
