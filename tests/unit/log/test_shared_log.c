/* test_shared_log.c - a log by itself: what it takes and refuses, in what
 * order, and what it costs. */
#include "fixture/log_world.h"

#include <string.h>

static struct logs_seen seen;

/* --- order and sizes --- */

static int appends(struct member *member)
{
	static const size_t sizes[] = {0, 1, 7, 8, 31, 32, 33, 200, 3999, 4000};
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, i;

	TRY(logs_open(member, &space, &log));
	TRY(logs_read(log, 0, &seen, &next));
	WANT(!seen.count && next == 0);
	for (i = 0; i < 100; i++) {
		TRY(logs_append(log, i, sizes[i % 10], &position));
		WANT(position == i);
	}
	TRY(reef_log_tail(log, &position));
	WANT(position == 100);
	WANT_RC(logs_append(log, 0, 4001, NULL), -EMSGSIZE);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == 100 && next == 100 && !seen.is_damaged);
	for (i = 0; i < 100; i++) {
		WANT(seen.positions[i] == i);
		WANT(seen.sizes[i] == sizes[i % 10]);
		WANT(seen.sizes[i] < 8 || seen.firsts[i] == i);
	}
	TRY(reef_log_read(log, 100, 5, logs_see, &seen, &next));
	WANT(next == 100);
	TRY(reef_log_read(log, 5000, 5, logs_see, &seen, &next));
	WANT(next == 5000);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	WANT_RC(reef_log_drop(space, "log"), -ENOENT);
	return 0;
}

static void log_appends_entries_of_all_sizes_in_order(void **state)
{
	logs_run(appends);
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
	WANT_RC(reef_log_open(space, NULL, NULL, &log), -EINVAL);
	options = (struct reef_log_options){.flags = 64};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options = (struct reef_log_options){.segment = 7};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	options = (struct reef_log_options){.entry_max = LOG_ENTRY_MAX + 1};
	WANT_RC(reef_log_open(space, "log", &options, &log), -EINVAL);
	TRY(reef_log_open(space, "log", &logs_small, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(reef_log_stats(other, &stats));
	WANT(stats.options.segment == 16 && stats.options.cell == 32);
	WANT(!stats.tail && !stats.first && !stats.segments && !stats.sealed);
	TRY(logs_append(log, 1, 8, NULL));
	TRY(reef_log_stats(other, &stats));
	WANT(stats.tail == 1 && stats.segments == 1 && stats.generation == 1);
	WANT(stats.hole_ns == MILLISECOND);
	reef_log_close(other);
	/* Whatever else the options say, if a log could be made with them. */
	options = (struct reef_log_options){
		.flags = REEF_LOG_SHARDED | REEF_LOG_EARLY | REEF_LOG_RENEW,
		.entry_max = 8,
		.cell = 8,
		.segment = 64,
		.segments = 64,
		.keep_entries = 1,
		.keep_bytes = 1,
		.hole_ns = SECOND,
	};
	TRY(reef_log_open(space, "log", &options, &other));
	TRY(reef_log_stats(other, &stats));
	WANT(!memcmp(&stats.options, &logs_small, sizeof(logs_small)));
	TRY(logs_append(other, 2, 100, NULL));
	reef_log_close(other);
	options.segments = 7;
	WANT_RC(reef_log_open(space, "log", &options, &other), -EINVAL);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void
log_open_checks_limits_and_keeps_those_it_was_made_with(void **state)
{
	logs_run(opens);
}

static int rows(struct member *member)
{
	struct iovec entries[5] = {0};
	static uint8_t bytes[5][100];
	struct reef_space *space;
	struct reef_log *log;
	uint64_t first, next, value = 0;
	uint32_t i, j;

	TRY(logs_open(member, &space, &log));
	for (i = 0; i < 30; i++) {
		uint32_t count = 1 + i % 4;

		for (j = 0; j < count; j++) {
			entries[j].iov_len = (i + j) % 3 ? 8 + i : 100;
			entries[j].iov_base = bytes[j];
			logs_fill(bytes[j], entries[j].iov_len, value++);
		}
		TRY(reef_log_append_many(log, entries, count, &first));
		WANT(first % 16 + count <= 16);
	}
	WANT_RC(reef_log_append_many(log, entries, 5, NULL), -EINVAL);
	WANT_RC(reef_log_append_many(log, entries, 0, NULL), -EINVAL);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == value && !seen.is_damaged);
	for (i = 0; i < seen.count; i++)
		WANT(seen.firsts[i] == i);
	/* From any position on, also in the middle of a row. */
	for (i = 0; i < seen.count; i += 7) {
		static struct logs_seen part;

		TRY(logs_read(log, seen.positions[i], &part, &next));
		WANT(part.count == seen.count - i && part.firsts[0] == i);
	}
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_rows_stand_together(void **state)
{
	logs_run(rows);
}

/* --- trim and keep --- */

static int trims(struct member *member)
{
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t position, next, i;

	TRY(logs_open(member, &space, &log));
	for (i = 0; i < 50; i++)
		TRY(logs_append(log, i, i % 5 ? 8 : 300, NULL));
	WANT_RC(reef_log_trim(log, 51), -ERANGE);
	TRY(reef_log_trim(log, 20));
	TRY(reef_log_trim(log, 10));
	TRY(reef_log_first(log, &position));
	WANT(position == 20);
	WANT_RC(reef_log_read(log, 19, 1, logs_see, &seen, &next), -ERANGE);
	TRY(logs_read(log, 20, &seen, &next));
	WANT(seen.count == 30 && seen.firsts[0] == 20);
	TRY(reef_log_stats(log, &stats));
	WANT(stats.segments == 3 && stats.first == 20);
	/* The directory has 8 words; it goes round and round. */
	for (; i < 1000; i++) {
		TRY(logs_append(log, i, 8, &position));
		WANT(position == i);
		if (i % 40 == 0)
			TRY(reef_log_trim(log, i - 20));
	}
	TRY(logs_read(log, 960, &seen, &next));
	WANT(seen.count == 40 && seen.firsts[39] == 999);
	TRY(reef_log_trim(log, 1000));
	TRY(logs_append(log, i, 8, &position));
	WANT(position == 1000);
	/* All words of the directory are taken. */
	for (i = 1001; !logs_append(log, i, 8, &position); i++)
		WANT(i < 2000);
	WANT_RC(logs_append(log, i, 8, NULL), -ENOSPC);
	WANT(position / 16 - 1000 / 16 == 7);
	TRY(logs_read(log, 1000, &seen, &next));
	WANT(seen.count == i - 1000 && next == i);
	TRY(reef_log_trim(log, 1100));
	TRY(logs_append(log, i, 8, &next));
	WANT(next >= i && next <= i + 2);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_trim_gives_room_and_goes_round(void **state)
{
	logs_run(trims);
}

static int keeps(struct member *member)
{
	struct reef_log_options options = {LOGS_SMALL, .keep_entries = 40};
	struct reef_log_stats stats;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "some", &options, &log));
	for (i = 0; i < 1000; i++)
		TRY(logs_append(log, i, 8, NULL));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first <= 960 && stats.first >= 900);
	reef_log_close(log);
	options.keep_entries = 0;
	options.keep_bytes = 1000;
	TRY(reef_log_open(space, "bytes", &options, &log));
	for (i = 0; i < 1000; i++)
		TRY(logs_append(log, i, 20, NULL));
	TRY(reef_log_stats(log, &stats));
	WANT(stats.first <= 950 && stats.first >= 850);
	reef_log_close(log);
	TRY(reef_log_drop(space, "some"));
	return reef_log_drop(space, "bytes");
}

static void log_keeps_as_much_as_it_was_told(void **state)
{
	logs_run(keeps);
}

/* --- seal, lead, drop --- */

static int seals(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log, *other;
	uint64_t position, next;

	TRY(logs_open(member, &space, &log));
	TRY(reef_log_open(space, "log", NULL, &other));
	TRY(logs_append(other, 0, 8, NULL));
	TRY(logs_append(log, 1, 8, NULL));
	TRY(reef_log_seal(log));
	TRY(reef_log_seal(log));
	WANT_RC(logs_append(log, 2, 8, NULL), -ESHUTDOWN);
	WANT_RC(logs_append(other, 2, 8, NULL), -ESHUTDOWN);
	TRY(reef_log_tail(other, &position));
	WANT(position == 16);
	TRY(logs_read(other, 0, &seen, &next));
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
	logs_run(seals);
}

static int leads(struct member *member)
{
	struct reef_log_options options = {LOGS_SMALL,
					   .flags = REEF_LOG_SINGLE};
	struct iovec row[2] = {{(void *)"a", 1}, {(void *)"b", 1}};
	struct reef_log *log, *other;
	struct reef_space *space;
	uint64_t position, next, i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_open(space, "single", NULL, &other));
	WANT_RC(logs_append(log, 0, 8, NULL), -EPERM);
	TRY(reef_log_lead(log));
	WANT_RC(logs_append(other, 0, 8, NULL), -EPERM);
	for (i = 0; i < 39; i++)
		TRY(logs_append(log, i, i % 4 ? 8 : 100, NULL));
	TRY(reef_log_append_many(log, row, 2, &next));
	TRY(reef_log_tail(other, &position));
	WANT(position == next + 2);
	TRY(reef_log_lead(other));
	TRY(logs_append(other, 50, 8, &position));
	WANT(position >= next + 2 && position % 16 == 0);
	WANT_RC(logs_append(log, 99, 8, NULL), -ESTALE);
	WANT_RC(logs_append(log, 99, 8, NULL), -EPERM);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == 42 && seen.firsts[41] == 50);
	WANT(next == position + 1);
	TRY(reef_log_seal(log));
	WANT_RC(logs_append(other, 51, 8, NULL), -ESHUTDOWN);
	WANT_RC(reef_log_lead(log), -ESHUTDOWN);
	reef_log_close(log);
	reef_log_close(other);
	TRY(reef_log_open(space, "log", &logs_small, &log));
	WANT_RC(reef_log_lead(log), -EINVAL);
	reef_log_close(log);
	TRY(reef_log_drop(space, "log"));
	return reef_log_drop(space, "single");
}

static void log_single_has_one_writer_whom_the_next_replaces(void **state)
{
	logs_run(leads);
}

/* What is in doubt is settled before the writer goes on, a whole row of it. */
static int doubts(struct member *member)
{
	struct reef_log_options options = {
		.flags = REEF_LOG_SINGLE,
		.segment = 512,
		.cell = 8,
	};
	struct reef_space *space;
	struct log_found found;
	struct reef_log *log;
	uint64_t first, position, next;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_lead(log));
	TRY(logs_append(log, 0, 8, &first));
	WANT(first % 512 == 0);
	/* A row whose head may be set, and whose members are. */
	reef_enter(member->reef);
	TRY(log_find(log, first / 512, &found));
	for (i = 1; i < 128; i++)
		TRY(reef_cas(member->reef, found.at + log_word_offset(1 + i), 0,
			     log_word_short(i, 0, 0), NULL));
	reef_leave(member->reef);
	log->gap = 128;
	TRY(logs_append(log, 1, 8, &position));
	WANT(position == first + 129);
	TRY(logs_read(log, 0, &seen, &next));
	WANT(seen.count == 2 && next == first + 130);
	reef_log_close(log);
	return reef_log_drop(space, "single");
}

static void log_single_goes_on_behind_a_row_in_doubt(void **state)
{
	logs_run(doubts);
}

/* --- budgets --- */

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
	TRY(logs_append(log, 0, 100, NULL));
	for (i = 0; i < 100; i++) {
		before = reef_count_read(&member->count);
		TRY(logs_append(log, i, 100, NULL));
		cost = logs_cost(member, &before);
		WANT(cost.round_trips == 2 && cost.faa == 1 && cost.cas == 1);
		WANT(cost.memory_operations == 4);
	}
	/* The first takes memory for such blocks. */
	TRY(logs_append(log, i, 1000, NULL));
	before = reef_count_read(&member->count);
	TRY(logs_append(log, i, 1000, NULL));
	cost = logs_cost(member, &before);
	WANT(cost.round_trips == 2 && cost.faa == 1 && cost.cas == 1);
	before = reef_count_read(&member->count);
	TRY(reef_log_append_many(log, row, 3, NULL));
	cost = logs_cost(member, &before);
	WANT(cost.round_trips == 3 && cost.faa == 1 && cost.cas == 3);
	memset(&seen, 0, sizeof(seen));
	before = reef_count_read(&member->count);
	TRY(reef_log_read(log, 0, 64, logs_see, &seen, &next));
	cost = logs_cost(member, &before);
	WANT(seen.count == 64 && next == 64);
	WANT(cost.round_trips == 1 && cost.reads == 2);
	WANT(cost.memory_operations == 2);
	reef_log_close(log);
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_lead(log));
	TRY(logs_append(log, 0, 100, NULL));
	for (i = 0; i < 100; i++) {
		before = reef_count_read(&member->count);
		TRY(logs_append(log, i, 100, NULL));
		cost = logs_cost(member, &before);
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

/* Whether a long entry lies in the extent of its word. */
static int is_near(struct reef_log *log, uint64_t position, bool *near)
{
	struct log_found found;
	uint64_t word, at;

	reef_enter(log->reef);
	TRY(log_find(log, position / log->options.segment, &found));
	reef_leave(log->reef);
	TRY(reef_read(log->reef,
		      found.at +
			      log_word_offset(position % log->options.segment),
		      &word, 8));
	TRY(reef_long_address(log->object.space, word & LOG_BLOCK_MASK, &at));
	*near = at >> 32 == found.at >> 32;
	return 0;
}

static int spends_on_long_ones(struct member *member)
{
	struct reef_log_options options = {.flags = REEF_LOG_SINGLE,
					   .segment = 64};
	struct reef_counts before, cost;
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next;
	bool near;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "single", &options, &log));
	TRY(reef_log_lead(log));
	TRY(logs_append(log, 0, 1000, NULL));
	for (uint64_t i = 0; i < 20; i++) {
		before = reef_count_read(&member->count);
		TRY(logs_append(log, i, 1000, &next));
		cost = logs_cost(member, &before);
		TRY(is_near(log, next, &near));
		WANT(cost.round_trips == (near ? 1 : 2) && cost.cas == 1);
		member->pool->note[0] += near;
	}
	reef_log_close(log);
	return reef_log_drop(space, "single");
}

static void log_budget_of_a_long_entry_near_its_word_is_no_more(void **state)
{
	uint64_t seed, near = 0;

	for (seed = seeds_first(); seeds_has(seed, 2 * POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 6000 * SECOND,
			.calm = true,
			.extent_size = UINT64_C(8) << 20,
			.capacity = UINT64_C(8) << 20,
		};

		pool_start(&pool, seed);
		pool_add(&pool, spends_on_long_ones);
		pool_finish(&pool);
		near += pool.note[0];
	}
	/* Else it has shown nothing. */
	assert_true(near > 0);
}

/* --- mutants that no history shows --- */

#if !SANITIZED
static int run_trims(uint64_t seed)
{
	struct pool pool = {.ttl_ns = 60 * SECOND};

	pool_start(&pool, seed);
	pool_add(&pool, trims);
	return pool_end(&pool);
}

static void log_mutants_are_found(void **state)
{
	static const struct logs_mutant mutants[] = {
		{REEF_MUTANT_LOG_TRIM_AHEAD, run_trims},
	};

	logs_find_mutants(mutants, sizeof(mutants) / sizeof(mutants[0]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(log_appends_entries_of_all_sizes_in_order),
	  cmocka_unit_test(
		  log_open_checks_limits_and_keeps_those_it_was_made_with),
	  cmocka_unit_test(log_rows_stand_together),
	  cmocka_unit_test(log_trim_gives_room_and_goes_round),
	  cmocka_unit_test(log_keeps_as_much_as_it_was_told),
	  cmocka_unit_test(log_sealed_takes_nothing_and_keeps_all),
	  cmocka_unit_test(log_single_has_one_writer_whom_the_next_replaces),
	  cmocka_unit_test(log_single_goes_on_behind_a_row_in_doubt),
	  cmocka_unit_test(
		  log_budget_is_two_round_trips_and_one_of_a_single_writer),
	  cmocka_unit_test(log_budget_of_a_long_entry_near_its_word_is_no_more),
#if !SANITIZED
	  cmocka_unit_test(log_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
