/* test_journal_crash.c - power fails at any call, again and again, and what is
 * acknowledged stays.
 *
 * A story is a journal's lives from one seed: in each it is opened, records are
 * appended and some waited for, snapshots asked for, until a call to the disk
 * fails, the power does, or it is closed. What the next life reads must be a
 * prefix of what was appended that holds all that was acknowledged. The
 * caller's state is a running hash, and history keeps its value after every
 * record, so that equal hashes mean equal prefixes. */
#include "base/checksum.h"
#include "base/random.h"
#include "fixture/seeds.h"
#include "fixture/store_wrapper.h"
#include "pool/broker/journal/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

#define HISTORY_MAX 4096
#define LIVES 12

struct story {
	struct reef_random random;
	struct reef_store *disk;
	struct wrapper wrapper;
	struct reef_journal *journal;
	bool answers_early; /* a mutant: acknowledges what it only appended */
	uint64_t history[HISTORY_MAX]; /* the hash after so many records */
	size_t appended, acknowledged;
	/* what the last open found */
	size_t found;
	uint64_t hash;
	const char *verdict; /* what went wrong; NULL: nothing */
};

static uint64_t next_hash(uint64_t hash, uint16_t type, const void *bytes,
			  size_t size)
{
	return reef_hash(bytes, size, hash + type);
}

static int read_snapshot(void *context, const void *bytes, size_t size)
{
	struct story *story = context;
	uint64_t values[2];

	if (size < sizeof(values))
		return -REEF_ECORRUPT;
	memcpy(values, bytes, sizeof(values));
	story->found = values[0];
	story->hash = values[1];
	return 0;
}

static int read_record(void *context, uint64_t sequence, uint16_t type,
		       const void *bytes, size_t size)
{
	struct story *story = context;

	story->found++;
	story->hash = next_hash(story->hash, type, bytes, size);
	return 0;
}

/* Everything up to `count` was promised, or not. */
static void check_found(struct story *story)
{
	if (story->found < story->acknowledged)
		story->verdict = "an acknowledged record is lost";
	else if (story->found > story->appended)
		story->verdict = "records out of nowhere";
	else if (story->hash != story->history[story->found])
		story->verdict = "other records than were appended";
	story->appended = story->acknowledged = story->found;
}

static void open_journal(struct story *story)
{
	struct reef_journal_reader reader = {read_snapshot, read_record, story};
	struct reef_journal_options options = {
		.sync_inline = true,
		.segment_size = 200,
		.salt = reef_random_next(&story->random) | 1,
	};
	int rc;

	story->found = 0;
	story->hash = 0;
	story->journal = NULL;
	rc = reef_journal_open(&story->wrapper.base, NULL, &options, &reader,
			       &story->journal);
	if (rc == 0)
		check_found(story);
	else if (rc != -EIO)
		story->verdict = "refused to open";
}

static int append_one(struct story *story)
{
	uint8_t bytes[100];
	size_t size = reef_random_below(&story->random, sizeof(bytes));
	uint16_t type = (uint16_t)reef_random_between(&story->random, 1, 9);
	uint64_t sequence;
	int rc;

	reef_random_fill(&story->random, bytes, size);
	rc = reef_journal_append(story->journal, type, bytes, size, &sequence);
	if (rc)
		return rc;
	story->history[story->appended + 1] =
		next_hash(story->history[story->appended], type, bytes, size);
	story->appended++;
	if (story->answers_early)
		story->acknowledged = story->appended;
	return 0;
}

static int ask_snapshot(struct story *story)
{
	uint64_t bytes[20] = {story->appended, story->history[story->appended]};

	return reef_journal_snapshot(story->journal, bytes, sizeof(bytes));
}

static void live(struct story *story)
{
	uint32_t steps = (uint32_t)reef_random_below(&story->random, 20);
	struct reef_journal_status status;
	int rc = 0;

	while (steps-- > 0 && rc == 0 && story->appended + 1 < HISTORY_MAX) {
		rc = append_one(story);
		if (rc == 0 && reef_random_chance(&story->random, 1, 6)) {
			rc = ask_snapshot(story);
			if (rc == -EBUSY)
				rc = 0;
		}
		if (rc || !reef_random_chance(&story->random, 1, 2))
			continue;
		reef_journal_status(story->journal, &status);
		rc = reef_journal_wait(story->journal, status.appended);
		if (rc == 0)
			story->acknowledged = story->appended;
	}
}

static void end_life(struct story *story)
{
	bool clean = reef_random_chance(&story->random, 1, 3);
	struct reef_journal_status status = {.error = -EIO};

	if (story->journal)
		reef_journal_status(story->journal, &status);
	if (!clean) {
		/* The power goes first: closing writes nothing any more. */
		reef_store_crash(story->disk);
	}
	reef_journal_close(story->journal);
	story->journal = NULL;
	if (reef_random_chance(&story->random, 1, 2))
		reef_store_crash(story->disk);
	reef_store_fail_after(story->disk, 0);
	if (story->wrapper.open_files)
		story->verdict = "a file is still open";
}

/* NULL: nothing went wrong. */
static const char *tell(uint64_t seed, enum lie lie, bool answers_early)
{
	static struct story story;
	uint32_t life;

	memset(&story, 0, sizeof(story));
	reef_random_init(&story.random, seed);
	assert_int_equal(reef_store_open_memory(&story.random, &story.disk), 0);
	wrapper_init(&story.wrapper, story.disk);
	story.wrapper.lie = lie;
	story.answers_early = answers_early;
	for (life = 0; life < LIVES && !story.verdict; life++) {
		if (reef_random_chance(&story.random, 2, 3))
			reef_store_fail_after(story.disk,
					      (uint32_t)reef_random_between(
						      &story.random, 1, 60));
		open_journal(&story);
		if (story.journal && !story.verdict)
			live(&story);
		end_life(&story);
	}
	reef_store_destroy(story.disk);
	return story.verdict;
}

static void journal_crash_keeps_what_was_acknowledged(void **state)
{
	uint64_t seed, count = seeds_of(5000, 250000);
	const char *verdict;

	for (seed = seeds_first(); seeds_has(seed, count); seed++) {
		verdict = tell(seed, LIE_NONE, false);
		if (verdict)
			fail_msg("seed %llu: %s", (unsigned long long)seed,
				 verdict);
	}
}

/* The story of a seed is the same each time, its disk included. */
static void expect_found(enum lie lie, bool answers_early)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 300); seed++)
		if (tell(seed, lie, answers_early))
			return;
	fail_msg("mutant %d lives", answers_early ? -1 : (int)lie);
}

static void journal_mutants_are_found(void **state)
{
	int lie;

	for (lie = LIE_NONE + 1; lie < LIE_COUNT; lie++)
		expect_found((enum lie)lie, false);
	expect_found(LIE_NONE, true);
}

/* --- every call of one story fails in turn --- */

static bool fail_at(uint32_t call, uint64_t seed)
{
	static struct story story;
	bool failed;
	int i, rc = 0;

	memset(&story, 0, sizeof(story));
	reef_random_init(&story.random, seed);
	assert_int_equal(reef_store_open_memory(&story.random, &story.disk), 0);
	wrapper_init(&story.wrapper, story.disk);
	reef_store_fail_after(story.disk, call);
	open_journal(&story);
	for (i = 0; i < 12 && story.journal && rc == 0; i++) {
		rc = append_one(&story);
		if (rc == 0 && i % 5 == 4)
			rc = ask_snapshot(&story);
		if (rc == 0)
			rc = reef_journal_wait(story.journal, 1);
		if (rc == 0 && i % 3 == 2) {
			struct reef_journal_status status;

			reef_journal_status(story.journal, &status);
			rc = reef_journal_wait(story.journal, status.appended);
			if (rc == 0)
				story.acknowledged = story.appended;
		}
	}
	failed = !story.journal || rc;
	if (failed && story.journal) {
		/* Broken is broken. */
		assert_int_equal(rc, -EIO);
		assert_int_equal(append_one(&story), -EIO);
		assert_int_equal(ask_snapshot(&story), -EIO);
	}
	reef_journal_close(story.journal);
	reef_store_fail_after(story.disk, 0);
	reef_store_crash(story.disk);
	open_journal(&story);
	if (!story.journal || story.verdict)
		fail_msg("call %u, seed %llu: %s", call,
			 (unsigned long long)seed, story.verdict);
	reef_journal_close(story.journal);
	reef_store_destroy(story.disk);
	return failed;
}

static void journal_each_call_fails_and_nothing_is_lost(void **state)
{
	uint32_t call, quiet;
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 20); seed++) {
		/* Close ignores a failed seal, so a run of quiet ones ends. */
		for (call = 1, quiet = 0; quiet < 8; call++) {
			assert_in_range(call, 1, 1000);
			quiet = fail_at(call, seed) ? 0 : quiet + 1;
		}
		assert_in_range(call, 40, 1000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(journal_crash_keeps_what_was_acknowledged),
		cmocka_unit_test(journal_mutants_are_found),
		cmocka_unit_test(journal_each_call_fails_and_nothing_is_lost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
