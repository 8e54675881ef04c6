/* test_shared_log.c - a log by itself: what it takes and refuses, in what
 * order, what it costs, and what becomes of it when parts of it are lost or
 * damaged. */
#include "fixture/pool_world.h"
#include "log/internal.h"

#include <stdlib.h>
#include <string.h>

#define SMALL                                                                  \
	.segment = 16, .segments = 8, .cell = 32, .entry_max = 4000,           \
	.hole_ns = MILLISECOND

static const struct reef_log_options small = {SMALL};

/* What a read gave. */
struct seen {
	uint32_t count;
	uint64_t positions[4096];
	uint32_t sizes[4096];
	uint64_t firsts[4096]; /* 8 bytes */
	bool is_damaged;
};

static int see(void *context, uint64_t position, const void *bytes, size_t size)
{
	struct seen *seen = context;
	const uint8_t *at = bytes;

	seen->positions[seen->count] = position;
	seen->sizes[seen->count] = (uint32_t)size;
	seen->firsts[seen->count] = 0;
	memcpy(&seen->firsts[seen->count], bytes, size < 8 ? size : 8);
	for (size_t i = 8; i < size; i++)
		if (at[i] != (uint8_t)(at[0] + i))
			seen->is_damaged = true;
	seen->count++;
	return 0;
}

static void fill_bytes(uint8_t *bytes, size_t size, uint64_t value)
{
	for (size_t i = 8; i < size; i++)
		bytes[i] = (uint8_t)((uint8_t)value + i);
	memcpy(bytes, &value, size < 8 ? size : 8);
}

static int append(struct reef_log *log, uint64_t value, size_t size,
		  uint64_t *position)
{
	static uint8_t bytes[LOG_ENTRY_MAX + 1];

	fill_bytes(bytes, size, value);
	return reef_log_append(log, bytes, size, position);
}

/* READ all there is from a position on. */
static int read_from(struct reef_log *log, uint64_t from, struct seen *seen,
		     uint64_t *next)
{
	uint64_t at;
	int rc;

	*next = from;
	memset(seen, 0, sizeof(*seen));
	do {
		at = *next;
		rc = reef_log_read(log, at, 64, see, seen, next);
	} while (!rc && *next != at);
	return rc;
}

static int open_small(struct member *member, struct reef_space **space,
		      struct reef_log **log)
{
	TRY(member_space(member, space));
	return reef_log_open(*space, "log", &small, log);
}

static void run_pools(int (*script)(struct member *), bool calm)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.ttl_ns = 60 * SECOND, .calm = calm};

		pool_start(&pool, seed);
		pool_add(&pool, script);
		pool_finish(&pool);
	}
}

static void run(int (*script)(struct member *))
{
	run_pools(script, false);
}

/* With leases that end, and so epochs, all the time. */
static void run_brief(int (*script)(struct member *))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		pool_start(&pool, seed);
		pool_add(&pool, script);
		pool_finish(&pool);
	}
}

static struct seen seen;

/* --- order and sizes --- */

static int appends(struct member *member)
{
	static const size_t sizes[] = {0, 1, 7, 8, 31, 32, 33, 200, 3999, 4000};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, i;

	TRY(open_small(member, &space, &log));
	TRY(read_from(log, 0, &seen, &next));
	WANT(!seen.count && next == 0);
	for (i = 0; i < 100; i++) {
		TRY(append(log, i, sizes[i % 10], &position));
		WANT(position == i);
	}
	TRY(reef_log_tail(log, &position));
	WANT(position == 100);
	WANT_RC(append(log, 0, 4001, NULL), -EMSGSIZE);
	TRY(read_from(log, 0, &seen, &next));
	WANT(seen.count == 100 && next == 100 && !seen.is_damaged);
	for (i = 0; i < 100; i++) {
		WANT(seen.positions[i] == i);
		WANT(seen.sizes[i] == sizes[i % 10]);
		WANT(seen.sizes[i] < 8 || seen.firsts[i] == i);
	}
	TRY(reef_log_read(log, 100, 5, see, &seen, &next));
	WANT(next == 100);
	TRY(reef_log_read(log, 5000, 5, see, &seen, &next));
	WANT(next == 5000);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	WANT_RC(reef_log_drop(space, "log"), -ENOENT);
	return 0;
}

static void log_appends_entries_of_all_sizes_in_order(void **state)
{
	run(appends);
}

static int opens(struct member *member)
{
	struct reef_log_options options = {.flags = REEF_LOG_EXISTING};
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log, *other;

	TRY(member_space(member, &space));
	WANT_RC(reef_log_open(space, "log", &options, &log), -ENOENT);
	WANT_RC(reef_log_open(space, "", NULL, &log), -EINVAL);
	options = (struct reef_log_options){.flags = 64};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options = (struct reef_log_options){.segment = 7};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options = (struct reef_log_options){.entry_max = LOG_ENTRY_MAX + 1};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	TRY(reef_log_open(space, "log", &small, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(reef_log_stats(other, &stats));
	WANT(stats.options.segment == 16 && stats.options.cell == 32);
	WANT(!stats.tail && !stats.first && !stats.segments && !stats.sealed);
	TRY(append(log, 1, 8, NULL));
	TRY(reef_log_stats(other, &stats));
	WANT(stats.tail == 1 && stats.segments == 1 && stats.generation == 1);
	WANT(stats.hole_ns == MILLISECOND);
	reef_log_close(other);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void
log_open_checks_limits_and_keeps_those_it_was_made_with(void **state)
{
	run(opens);
}

static int rows(struct member *member)
{
	struct iovec entries[5] = {0};
	static uint8_t bytes[5][100];
	struct reef_space *space;
	struct reef_log *log;
	uint64_t first, next, value = 0;
	uint32_t i, j;

	TRY(open_small(member, &space, &log));
	for (i = 0; i < 30; i++) {
		uint32_t count = 1 + i % 4;

		for (j = 0; j < count; j++) {
			entries[j].iov_len = (i + j) % 3 ? 8 + i : 100;
			entries[j].iov_base = bytes[j];
			fill_bytes(bytes[j], entries[j].iov_len, value++);
		}
		TRY(reef_log_append_many(log, entries, count, &first));
		WANT(first % 16 + count <= 16);
	}
	WANT_RC(reef_log_append_many(log, entries, 5, NULL), -EINVAL);
	WANT_RC(reef_log_append_many(log, entries, 0, NULL), -EINVAL);
	TRY(read_from(log, 0, &seen, &next));
	WANT(seen.count == value && !seen.is_damaged);
	for (i = 0; i < seen.count; i++)
		WANT(seen.firsts[i] == i);
	/* From any position on, also in the middle of a row. */
	for (i = 0; i < seen.count; i += 7) {
		static struct seen part;

		TRY(read_from(log, seen.positions[i], &part, &next));
		WANT(part.count == seen.count - i && part.firsts[0] == i);
	}
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_rows_stand_together(void **state)
{
	run(rows);
}

/* --- holes --- */

static int holes(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, from_ns;

	TRY(open_small(member, &space, &log));
	TRY(append(log, 0, 8, NULL));
	/* One that drew and died; then a row, then another entry. */
	reef_enter(member->reef);
	TRY(log_draw(log, 1, &position));
	TRY(log_draw(log, 4, &position));
	reef_leave(member->reef);
	WANT(position == 2);
	TRY(append(log, 6, 8, &position));
	WANT(position == 6);
	from_ns = reef_now_ns();
	TRY(read_from(log, 0, &seen, &next));
	WANT(reef_now_ns() - from_ns >= MILLISECOND);
	WANT(reef_now_ns() - from_ns < 2 * MILLISECOND);
	WANT(seen.count == 2 && seen.positions[1] == 6 && next == 7);
	/* What is a hole stays one. */
	TRY(reef_log_fill(log, 1));
	WANT_RC(reef_log_fill(log, 0), -EEXIST);
	WANT_RC(reef_log_fill(log, 7), -ERANGE);
	reef_enter(member->reef);
	TRY(log_draw(log, 1, &position));
	reef_leave(member->reef);
	TRY(reef_log_fill(log, position));
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_holes_of_the_dead_are_passed_after_the_bound(void **state)
{
	run_pools(holes, true);
}

/* An appender whose places others were quicker to fill. */
static int grows(struct member *member)
{
	uint64_t position, next, bound = MILLISECOND, i;
	struct reef_log_stats stats;
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;

	TRY(open_small(member, &space, &log));
	TRY(append(log, 0, 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 0, &found));
	for (i = 1; i < 4; i++) {
		TRY(reef_cas(member->reef, found.at + log_word_offset(i), 0,
			     LOG_HOLE, NULL));
		bound = 2 * bound + 1000;
	}
	reef_leave(member->reef);
	TRY(append(log, 1, 8, &position));
	WANT(position == 4);
	TRY(reef_log_stats(log, &stats));
	WANT(stats.hole_ns == bound);
	/* Each hole that nobody complains of makes it smaller. */
	for (i = 0; i < 40; i++) {
		reef_enter(member->reef);
		TRY(log_draw(log, 1, &position));
		reef_leave(member->reef);
		TRY(append(log, 2, 8, NULL));
		TRY(read_from(log, position, &seen, &next));
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
	run(grows);
}

/* --- trim and keep --- */

static int trims(struct member *member)
{
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, i;

	TRY(open_small(member, &space, &log));
	for (i = 0; i < 50; i++)
		TRY(append(log, i, i % 5 ? 8 : 300, NULL));
	WANT_RC(reef_log_trim(log, 51), -ERANGE);
	TRY(reef_log_trim(log, 20));
	TRY(reef_log_trim(log, 10));
	TRY(reef_log_first(log, &position));
	WANT(position == 20);
	WANT_RC(reef_log_read(log, 19, 1, see, &seen, &next), -ERANGE);
	TRY(read_from(log, 20, &seen, &next));
	WANT(seen.count == 30 && seen.firsts[0] == 20);
	TRY(reef_log_stats(log, &stats));
	WANT(stats.segments == 3 && stats.first == 20);
	/* The directory has 8 words; it goes round and round. */
	for (; i < 1000; i++) {
		TRY(append(log, i, 8, &position));
		WANT(position == i);
		if (i % 40 == 0)
			TRY(reef_log_trim(log, i - 20));
	}
	TRY(read_from(log, 960, &seen, &next));
	WANT(seen.count == 40 && seen.firsts[39] == 999);
	TRY(reef_log_trim(log, 1000));
	TRY(append(log, i, 8, &position));
	WANT(position == 1000);
	/* All words of the directory are taken. */
	for (i = 1001; !append(log, i, 8, &position); i++)
		WANT(i < 2000);
	WANT_RC(append(log, i, 8, NULL), -ENOSPC);
	WANT(position / 16 - 1000 / 16 == 7);
	TRY(read_from(log, 1000, &seen, &next));
	WANT(seen.count == i - 1000 && next == i);
	TRY(reef_log_trim(log, 1100));
	TRY(append(log, i, 8, &next));
	WANT(next >= i && next <= i + 2);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_trim_gives_room_and_goes_round(void **state)
{
	run(trims);
}

static int keeps(struct member *member)
{
	struct reef_log_options options = {SMALL, .keep_entries = 40};
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "some", &options, &log));
	for (i = 0; i < 1000; i++)
		TRY(append(log, i, 8, NULL));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first <= 960 && stats.first >= 900);
	reef_log_close(log);
	options.keep_entries = 0;
	options.keep_bytes = 1000;
	TRY(reef_log_open(space, "bytes", &options, &log));
	for (i = 0; i < 1000; i++)
		TRY(append(log, i, 20, NULL));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first <= 950 && stats.first >= 850);
	reef_log_close(log);
	TRY(reef_log_drop(space, "some"));
	return reef_log_drop(space, "bytes");
}

static void log_keeps_as_much_as_it_was_told(void **state)
{
	run(keeps);
}

/* --- seal, lead, drop --- */

static int seals(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t position, next;

	TRY(open_small(member, &space, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(append(other, 0, 8, NULL));
	TRY(append(log, 1, 8, NULL));
	TRY(reef_log_seal(log));
	TRY(reef_log_seal(log));
	WANT_RC(append(log, 2, 8, NULL), -ESHUTDOWN);
	WANT_RC(append(other, 2, 8, NULL), -ESHUTDOWN);
	TRY(reef_log_tail(other, &position));
	WANT(position == 16);
	TRY(read_from(other, 0, &seen, &next));
	WANT(seen.count == 2 && next == 16);
	TRY(reef_log_wait(other, 1, 0));
	WANT_RC(reef_log_wait(other, 16, REEF_FOREVER), -ESHUTDOWN);
	WANT_RC(reef_log_wait(other, 99, REEF_FOREVER), -ESHUTDOWN);
	TRY(reef_log_trim(other, 16));
	TRY(reef_log_drop(space, "log"));
	log_forget(log);
	WANT_RC(reef_log_tail(log, &position), -ENOENT);
	reef_log_close(log);
	reef_log_close(other);
	return 0;
}

static void log_sealed_takes_nothing_and_keeps_all(void **state)
{
	run(seals);
}

static int leads(struct member *member)
{
	struct reef_log_options options = {SMALL, .flags = REEF_LOG_SINGLE};
	struct iovec row[2] = {{(void *)"a", 1}, {(void *)"b", 1}};
	struct reef_log *log, *other;
	struct reef_space *space;
	uint64_t position, next, i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_open(space, "single", NULL, &other));
	WANT_RC(append(log, 0, 8, NULL), -EPERM);
	TRY(reef_log_lead(log));
	WANT_RC(append(other, 0, 8, NULL), -EPERM);
	for (i = 0; i < 39; i++)
		TRY(append(log, i, i % 4 ? 8 : 100, NULL));
	TRY(reef_log_append_many(log, row, 2, &next));
	TRY(reef_log_tail(other, &position));
	WANT(position == next + 2);
	TRY(reef_log_lead(other));
	TRY(append(other, 50, 8, &position));
	WANT(position >= next + 2 && position % 16 == 0);
	WANT_RC(append(log, 99, 8, NULL), -ESTALE);
	WANT_RC(append(log, 99, 8, NULL), -EPERM);
	TRY(read_from(log, 0, &seen, &next));
	WANT(seen.count == 42 && seen.firsts[41] == 50);
	WANT(next == position + 1);
	TRY(reef_log_seal(log));
	WANT_RC(append(other, 51, 8, NULL), -ESHUTDOWN);
	WANT_RC(reef_log_lead(log), -ESHUTDOWN);
	reef_log_close(log);
	reef_log_close(other);
	TRY(reef_log_open(space, "log", &small, &log));
	WANT_RC(reef_log_lead(log), -EINVAL);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	return reef_log_drop(space, "single");
}

static void log_single_has_one_writer_whom_the_next_replaces(void **state)
{
	run(leads);
}

/* --- waiting --- */

static int waits(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	struct reef_counts before, after;
	uint64_t i, next, at = 0;

	TRY(open_small(member, &space, &log));
	WANT_RC(reef_log_wait(log, 0, MILLISECOND), -ETIMEDOUT);
	member->pool->note[0] = 1;
	for (i = 0; i < 40; i++) {
		before = reef_count_read(&member->count);
		TRY(reef_log_wait(log, at, REEF_FOREVER));
		after = reef_count_read(&member->count);
		/* It slept for a second, and asked nobody meanwhile. */
		WANT(after.memory_operations - before.memory_operations < 40);
		memset(&seen, 0, sizeof(seen));
		TRY(reef_log_read(log, at, 64, see, &seen, &next));
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
	TRY(open_small(member, &space, &log));
	for (i = 0; i < 40; i++) {
		TRY(reef_sleep(SECOND));
		WANT(member->pool->note[1] == i);
		TRY(append(log, i, 8, NULL));
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

/* --- budgets --- */

static struct reef_counts cost_of(const struct member *member,
				  const struct reef_counts *before)
{
	struct reef_counts now = reef_count_read(&member->count);

	return reef_counts_between(before, &now);
}

static int spends(struct member *member)
{
	struct reef_log_options options = {.flags = REEF_LOG_SINGLE};
	struct iovec row[3] = {{(void *)"a", 1}, {(void *)"b", 1}, {0}};
	struct reef_counts before, cost;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i, next;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", NULL, &log));
	TRY(append(log, 0, 100, NULL));
	for (i = 0; i < 100; i++) {
		before = reef_count_read(&member->count);
		TRY(append(log, i, 100, NULL));
		cost = cost_of(member, &before);
		WANT(cost.round_trips == 2 && cost.faa == 1 && cost.cas == 1);
		WANT(cost.memory_operations == 4);
	}
	/* The first takes memory for such blocks. */
	TRY(append(log, i, 1000, NULL));
	before = reef_count_read(&member->count);
	TRY(append(log, i, 1000, NULL));
	cost = cost_of(member, &before);
	WANT(cost.round_trips == 4 && cost.faa == 1 && cost.cas == 1);
	before = reef_count_read(&member->count);
	TRY(reef_log_append_many(log, row, 3, NULL));
	cost = cost_of(member, &before);
	WANT(cost.round_trips == 3 && cost.faa == 1 && cost.cas == 3);
	memset(&seen, 0, sizeof(seen));
	before = reef_count_read(&member->count);
	TRY(reef_log_read(log, 0, 64, see, &seen, &next));
	cost = cost_of(member, &before);
	WANT(seen.count == 64 && next == 64);
	WANT(cost.round_trips == 1 && cost.reads == 2);
	WANT(cost.memory_operations == 2);
	reef_log_close(log);
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_lead(log));
	TRY(append(log, 0, 100, NULL));
	for (i = 0; i < 100; i++) {
		before = reef_count_read(&member->count);
		TRY(append(log, i, 100, NULL));
		cost = cost_of(member, &before);
		WANT(cost.round_trips == 1 && cost.faa == 0 && cost.cas == 1);
	}
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	return reef_log_drop(space, "single");
}

static void
log_budget_is_two_round_trips_and_one_of_a_single_writer(void **state)
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
		rc = append(log, count, 1000, NULL);
	while (!rc && ++count < 4096);
	WANT(rc == -ENOSPC && count > 256);
	/* Nothing is drawn where there is no room. */
	TRY(reef_log_tail(log, &tail));
	WANT(tail == count);
	WANT_RC(append(log, count, 1000, NULL), -ENOSPC);
	WANT_RC(append(log, count, 9000, NULL), -ENOSPC);
	TRY(reef_log_tail(log, &next));
	WANT(next == tail);
	TRY(read_from(log, 0, &seen, &next));
	WANT(seen.count == count && !seen.is_damaged);
	/* Trimmed memory comes back, and the log goes on. */
	TRY(reef_log_trim(log, count / 2));
	TRY(append(log, count, 1000, &next));
	WANT(next == count);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	/* All of it. */
	TRY(reef_alloc(space, 512 << 10, &block));
	return reef_free(space, block, 0);
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

	TRY(open_small(member, &space, &log));
	for (i = 0; i < 60; i++)
		TRY(append(log, i, i == 40 ? 500 : 8, NULL));
	reef_enter(member->reef);
	TRY(log_find(log, 1, &found));
	reef_leave(member->reef);
	/* A cell, then a whole segment, then the tail. */
	TRY(reef_write(member->reef, found.at + log_cell_offset(log, 4) + 3,
		       &byte, 1));
	memset(&seen, 0, sizeof(seen));
	TRY(reef_log_read(log, 16, 64, see, &seen, &next));
	WANT(seen.count == 4 && next == 20);
	WANT_RC(reef_log_read(log, 20, 64, see, &seen, &next), -REEF_ECORRUPT);
	WANT(next == 21);
	TRY(read_from(log, 21, &seen, &next));
	WANT(seen.count == 39);
	TRY(reef_write(member->reef, found.at, &nonsense, 8));
	log_forget(log);
	WANT_RC(reef_log_read(log, 18, 64, see, &seen, &next), -REEF_ECORRUPT);
	WANT(next == 32);
	TRY(read_from(log, 32, &seen, &next));
	WANT(seen.count == 28 && next == 60);
	TRY(append(log, i++, 8, &next));
	WANT(next == 60);
	TRY(reef_write(member->reef, log->tail_at + 16, &nonsense, 8));
	TRY(append(log, i++, 8, &next));
	/* Segment 4 was made ahead, and is of the generation before. */
	WANT(next == 80);
	/* The last segment: it goes on in the next. */
	reef_enter(member->reef);
	TRY(log_find(log, 5, &found));
	reef_leave(member->reef);
	TRY(reef_write(member->reef, found.at, &nonsense, 8));
	log_forget(log);
	TRY(append(log, i++, 8, &next));
	WANT(next == 96);
	TRY(read_from(log, 96, &seen, &next));
	WANT(seen.count == 1);
	/* And a word of the directory. */
	TRY(reef_write(member->reef, log_slot_at(log, 3), &nonsense, 8));
	log_forget(log);
	TRY(read_from(log, 96, &seen, &next));
	WANT(seen.count == 1);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_damage_costs_its_range_and_no_more(void **state)
{
	run(scribbles);
}

/* --- a lost node --- */

/* The first member makes the object, the second its tail and its segments, of
 * chunks of its own. */
static int makes(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t *note = member->pool->note;

	TRY(open_small(member, &space, &log));
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
	TRY(open_small(member, &space, &log));
	for (i = 0; i < 20; i++)
		TRY(append(log, i, 8, NULL));
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
		struct reef_log_options options = {SMALL,
						   .flags = REEF_LOG_RENEW};

		note[2]++;
		WANT_RC(reef_log_tail(log, &position), -REEF_ELOST);
		reef_log_close(log);
		WANT_RC(reef_log_open(space, "log", &small, &log), -REEF_ELOST);
		TRY(reef_log_open(space, "log", &options, &log));
		TRY(append(log, 0, 8, &position));
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
		TRY(append(log, i, 8, &next));
		WANT(next >= position);
		position = next + 1;
	}
	/* What the node had is lost, and only that. */
	for (next = 0, seen.count = 0;;) {
		uint64_t at = next;

		rc = reef_log_read(log, at, 64, see, &seen, &next);
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

	TRY(open_small(member, &space, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	for (uint64_t i = 0; i < 40; i++)
		TRY(append(log, i, 8, NULL));
	TRY(reef_log_read(other, 0, 4, see, &seen, &next));
	TRY(reef_log_trim(log, 32));
	/* In the next epochs what was trimmed may be something else. */
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(reef_log_read(other, 4, 4, see, &seen, &next), -ERANGE);
	TRY(reef_log_drop(space, "log"));
	TRY(reef_sleep(20 * member->pool->ttl_ns));
	WANT_RC(append(log, 0, 8, NULL), -ENOENT);
	reef_log_close(other);
	reef_log_close(log);
	return 0;
}

static void log_remembers_nothing_beyond_an_epoch(void **state)
{
	run_brief(remembers);
}

/* --- mutants that no history shows --- */

#if !SANITIZED
/* One that is told of entries as they come, at any moment. Of a log with one
 * writer, as nothing but the word shows that something comes. */
static int open_single(struct member *member, struct reef_log **log)
{
	struct reef_log_options options = {SMALL, .flags = REEF_LOG_SINGLE};
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
		TRY(reef_log_read(log, at, 64, see, &seen, &at));
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
		TRY(append(log, i, 8, NULL));
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

static int run_remembers(uint64_t seed)
{
	struct pool pool = {0};

	pool_start(&pool, seed);
	pool_add(&pool, remembers);
	return pool_end(&pool);
}

static int run_trims(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, trims);
	return pool_end(&pool);
}

static void log_mutants_are_found(void **state)
{
	static const struct {
		enum reef_mutant mutant;
		int (*run)(uint64_t seed);
	} mutants[] = {
		{REEF_MUTANT_LOG_WAKE_EARLY, follow_and_lead},
		{REEF_MUTANT_LOG_HOLE_FIXED, run_grows},
		{REEF_MUTANT_LOG_STALE, run_remembers},
		{REEF_MUTANT_LOG_TRIM_AHEAD, run_trims},
	};
	uint64_t seed;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		assert_int_equal(mutants[i].run(1), 0);
		assert_int_equal(mutants[i].run(2), 0);
		reef_mutate(mutants[i].mutant);
		rc = 0;
		for (seed = 1; !rc && seed <= 20; seed++)
			rc = mutants[i].run(seed);
		reef_mutate(REEF_MUTANT_NONE);
		if (!rc)
			fail_msg("%s was not found",
				 reef_mutant_name(mutants[i].mutant));
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(log_appends_entries_of_all_sizes_in_order),
	  cmocka_unit_test(
		  log_open_checks_limits_and_keeps_those_it_was_made_with),
	  cmocka_unit_test(log_rows_stand_together),
	  cmocka_unit_test(log_holes_of_the_dead_are_passed_after_the_bound),
	  cmocka_unit_test(log_bound_grows_with_who_is_late),
	  cmocka_unit_test(log_trim_gives_room_and_goes_round),
	  cmocka_unit_test(log_keeps_as_much_as_it_was_told),
	  cmocka_unit_test(log_sealed_takes_nothing_and_keeps_all),
	  cmocka_unit_test(log_single_has_one_writer_whom_the_next_replaces),
	  cmocka_unit_test(log_wait_sleeps_until_it_is_told),
	  cmocka_unit_test(
		  log_budget_is_two_round_trips_and_one_of_a_single_writer),
	  cmocka_unit_test(log_full_is_as_before),
	  cmocka_unit_test(log_damage_costs_its_range_and_no_more),
	  cmocka_unit_test(log_goes_on_with_a_new_tail_when_its_node_is_lost),
	  cmocka_unit_test(log_remembers_nothing_beyond_an_epoch),
#if !SANITIZED
	  cmocka_unit_test(log_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
