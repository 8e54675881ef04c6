/* test_state_replay.c - the same records always give the same state: in memory,
 * by a snapshot, and by a journal whose disk crashes. */
#include "fixture/one_state.h"
#include "fixture/random_record.h"
#include "fixture/seeds.h"
#include "fixture/store_wrapper.h"
#include "pool/broker/journal/journal.h"

#include <errno.h>
#include <reef/error.h>

/* --- the same records, the same state --- */

/* Through the journal's bytes. */
static int replay(struct reef_state *state, const struct reef_record *record)
{
	uint8_t bytes[512];
	size_t size;

	assert_true(reef_record_size_max(record) <= sizeof(bytes));
	size = reef_record_encode(record, bytes);
	assert_true(size <= reef_record_size_max(record));
	return reef_state_replay(state, record->type, bytes, size);
}

/* (12) of state.h. */
static void check_pair(const struct reef_state *state,
		       const struct reef_state_extent *extent)
{
	const struct reef_state_extent *other =
		reef_state_extent(state, extent->twin);
	const struct reef_state_node *node =
		reef_state_node(state, extent->node);

	assert_true(reef_state_labelled(state, extent->label) == extent);
	if (!extent->twin)
		return;
	assert_non_null(other);
	assert_int_equal(other->twin, extent->number);
	assert_int_not_equal(other->is_twin, extent->is_twin);
	assert_int_equal(other->size, extent->size);
	assert_int_not_equal(other->node, extent->node);
	assert_true(!extent->target || extent->target != other->target);
	assert_int_not_equal(other->copy, extent->copy);
	assert_false(reef_node_is_gone(node->state));
	assert_true(extent->state == REEF_EXTENT_LIVE ||
		    extent->state == REEF_EXTENT_MOVING);
}

/* What is counted must be what is there. */
static void check_counts(const struct reef_state *state)
{
	const struct reef_state_extent *extents;
	const struct reef_state_node *nodes;
	const struct reef_state_space *space, *spaces;
	size_t extent_count, node_count, space_count, i, j;
	uint64_t used;

	extents = reef_state_extents(state, &extent_count);
	nodes = reef_state_nodes(state, &node_count);
	for (i = 0; i < node_count; i++) {
		used = 0;
		for (j = 0; j < extent_count; j++)
			if (extents[j].node == nodes[i].id ||
			    extents[j].target == nodes[i].id)
				used += extents[j].size;
		assert_int_equal(used, nodes[i].used);
		assert_true(used <= nodes[i].capacity);
		assert_true(used == 0 || nodes[i].state < REEF_NODE_DRAINED ||
			    nodes[i].state == REEF_NODE_AWAY);
	}
	for (j = 0; j < extent_count; j++) {
		space = reef_state_space(state, extents[j].space);
		assert_non_null(space);
		assert_true(space->used <= space->quota);
		if (extents[j].is_twin)
			assert_int_equal(extents[j].ordinal, REEF_ORDINALS_MAX);
		else
			assert_int_equal(space->by_ordinal[extents[j].ordinal],
					 extents[j].number);
		check_pair(state, &extents[j]);
		assert_int_equal(extents[j].node == 0,
				 reef_extent_is_lost(extents[j].state));
	}
	spaces = reef_state_spaces(state, &space_count);
	for (i = 0; i < space_count; i++) {
		used = 0;
		for (j = 0; j < extent_count; j++)
			if (extents[j].space == spaces[i].id &&
			    extents[j].state != REEF_EXTENT_FORGOTTEN)
				used += extents[j].size;
		assert_int_equal(used, spaces[i].used);
	}
}

static struct reef_state *copy_of(const struct reef_state *state)
{
	struct reef_state *copy;
	uint8_t *bytes;
	size_t size;

	assert_int_equal(reef_state_encode(state, &bytes, &size), 0);
	assert_int_equal(reef_state_decode(bytes, size, &copy), 0);
	free(bytes);
	return copy;
}

static void one_history(uint64_t seed, uint32_t *applied)
{
	struct random_record random;
	struct reef_random chance;
	struct reef_state *twin, *copy;
	uint32_t i;
	int rc;

	reef_random_init(&chance, seed);
	assert_int_equal(reef_state_create(&twin), 0);
	for (i = 0; i < 150; i++) {
		random_record(&chance, the, &random);
		rc = apply(&random.record);
		if (rc)
			continue;
		applied[random.record.type]++;
		/* A restart with a snapshot, in the twin's life. */
		if (reef_random_chance(&chance, 1, 20)) {
			copy = copy_of(twin);
			assert_true(hash_of(copy) == hash_of(twin));
			reef_state_destroy(twin);
			twin = copy;
		}
		assert_int_equal(replay(twin, &random.record), 0);
		assert_true(hash_of(twin) == hash_of(the));
	}
	check_counts(the);
	reef_state_destroy(twin);
}

static void state_replay_gives_the_same_state(void **state)
{
	uint32_t applied[REEF_RECORD_TYPES] = {0};
	uint64_t seed;
	int type;

	for (seed = seeds_first(); seeds_has(seed, 2000); seed++) {
		reef_state_destroy(the);
		assert_int_equal(reef_state_create(&the), 0);
		one_history(seed, applied);
	}
	/* The histories tell of everything. */
	for (type = 1; type < REEF_RECORD_TYPES; type++)
		if (applied[type] < 10)
			fail_msg("type %d was applied %u times", type,
				 applied[type]);
}

static void state_misfit_in_a_journal_is_corruption(void **state)
{
	uint8_t bytes[64] = {0};
	uint64_t before = hash_of(the);

	assert_int_equal(
		replay(the, RECORD(.type = REEF_RECORD_BROKER, .value = 9)),
		-REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_BROKER, bytes, 7),
			 -REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_BROKER, bytes, 9),
			 -REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_TYPES, bytes, 8),
			 -REEF_EVERSION);
	assert_int_equal(reef_state_replay(the, 0, bytes, 8), -REEF_EVERSION);
	assert_true(hash_of(the) == before);
}

/* A text that says it is longer than what is there, and so on: each prefix of
 * every record, and each with one byte more, is refused. */
static void state_record_of_another_size_is_refused(void **state)
{
	struct reef_record record = {.name = text("name"),
				     .addresses = text("addresses")};
	struct reef_record decoded;
	uint8_t bytes[256];
	size_t size, cut;

	for (record.type = 1; record.type < REEF_RECORD_TYPES; record.type++) {
		size = reef_record_encode(&record, bytes);
		bytes[size] = 0;
		for (cut = 0; cut <= size + 1; cut++)
			assert_int_equal(reef_record_decode(record.type, bytes,
							    cut, &decoded),
					 cut == size ? 0 : -REEF_ECORRUPT);
	}
}

/* Each byte changed in turn: refused, or a state that holds together and says
 * of itself just these bytes. */
static void state_damaged_snapshot_is_refused_or_whole(void **state)
{
	struct random_record random;
	struct reef_random chance;
	struct reef_state *copy;
	uint8_t *bytes, *again;
	size_t size, again_size, at;
	uint32_t refused = 0;
	int i, rc;

	reef_random_init(&chance, 3);
	for (i = 0; i < 300; i++) {
		random_record(&chance, the, &random);
		apply(&random.record);
	}
	assert_int_equal(reef_state_encode(the, &bytes, &size), 0);
	for (at = 0; at < size; at++) {
		bytes[at] ^= (uint8_t)(1u << at % 8);
		rc = reef_state_decode(bytes, size, &copy);
		if (rc == 0) {
			check_counts(copy);
			assert_int_equal(
				reef_state_encode(copy, &again, &again_size),
				0);
			assert_int_equal(again_size, size);
			assert_memory_equal(again, bytes, size);
			free(again);
			reef_state_destroy(copy);
		} else {
			assert_true(rc == -REEF_ECORRUPT ||
				    rc == -REEF_EVERSION);
			refused++;
		}
		bytes[at] ^= (uint8_t)(1u << at % 8);
		assert_int_not_equal(reef_state_decode(bytes, at, &copy), 0);
	}
	assert_true(refused > size / 4);
	free(bytes);
}

/* --- snapshots of older versions --- */

/* Take so many bytes out, whose end is at `from_end`. */
static void cut(uint8_t *bytes, size_t *size, size_t from_end, size_t count)
{
	memmove(bytes + *size - from_end - count, bytes + *size - from_end,
		from_end);
	*size -= count;
}

/* What version 6 has and 5 had not: the next copy's id in the head, and at the
 * end of each extent whether it is made, and its copy. Version 7 has two bytes
 * more at the end of each node; version 8 two more at the end of each space,
 * and nine at the end of each extent. */
static void state_snapshot_without_copies_gets_them(void **state)
{
	const size_t next_copy = 88, extents_end = 12, extents_size = 4 + 42;
	const char address[] = "tcp://127.0.0.1:1";
	struct reef_state_summary summary;
	struct reef_state *copy;
	uint8_t *bytes, *node_end;
	size_t size;

	add_node(1, "n", 1 << 20);
	add_space(1, "s", 1 << 20);
	add_extent(1, 1, 0, 1, 4096);
	assert_int_equal(reef_state_encode(the, &bytes, &size), 0);
	assert_int_equal(bytes[4], 8);
	cut(bytes, &size, extents_end, 9);
	cut(bytes, &size, extents_end + extents_size, 2);
	bytes[4] = 7;
	assert_int_equal(reef_state_decode(bytes, size, &copy), 0);
	assert_int_equal(reef_state_extent(copy, 1)->label, 1);
	assert_int_equal(reef_state_space(copy, 1)->copies, 1);
	reef_state_destroy(copy);
	node_end = memmem(bytes, size, address, strlen(address));
	assert_non_null(node_end);
	node_end += strlen(address);
	size -= 2;
	memmove(node_end, node_end + 2, size - (size_t)(node_end - bytes));
	assert_int_equal(bytes[next_copy], 2);
	cut(bytes, &size, extents_end, 9);
	memmove(bytes + next_copy, bytes + next_copy + 8, size - next_copy - 8);
	size -= 8;
	bytes[4] = 5;
	assert_int_equal(reef_state_decode(bytes, size, &copy), 0);
	reef_state_summary(copy, &summary);
	assert_int_equal(summary.next_copy, 2);
	assert_int_equal(reef_state_extent(copy, 1)->copy, 1);
	assert_true(reef_state_extent(copy, 1)->made);
	reef_state_destroy(copy);
	bytes[4] = 9;
	assert_int_equal(reef_state_decode(bytes, size, &copy), -REEF_EVERSION);
	free(bytes);
}

/* --- journal and state together --- */

struct story {
	struct reef_random random;
	struct reef_store *disk;
	struct wrapper wrapper;
	struct reef_journal *journal;
	uint64_t history[1024]; /* hashes after so many records */
	size_t appended, acknowledged;
};

static int story_snapshot(void *context, const void *bytes, size_t size)
{
	reef_state_destroy(the);
	the = NULL;
	return reef_state_decode(bytes, size, &the);
}

static int story_record(void *context, uint64_t sequence, uint16_t type,
			const void *bytes, size_t size)
{
	return reef_state_replay(the, type, bytes, size);
}

/* -1: what came back is no prefix that holds what was acknowledged. */
static int story_open(struct story *story)
{
	struct reef_journal_reader reader = {story_snapshot, story_record,
					     story};
	struct reef_journal_options options = {
		.sync_inline = true, .segment_size = 500, .salt = 1};
	size_t at;
	int rc;

	reef_state_destroy(the);
	assert_int_equal(reef_state_create(&the), 0);
	rc = reef_journal_open(&story->wrapper.base, NULL, &options, &reader,
			       &story->journal);
	if (rc)
		return rc == -EIO ? 0 : -1;
	for (at = story->acknowledged; at <= story->appended; at++)
		if (story->history[at] == hash_of(the))
			break;
	if (at > story->appended)
		return -1;
	story->appended = story->acknowledged = at;
	return 0;
}

static int story_append(struct story *story, bool early)
{
	struct random_record random;
	uint8_t bytes[512];
	uint64_t sequence;
	size_t size;
	int rc;

	/* As a broker does: check, append, apply, wait, answer. */
	do {
		random_record(&story->random, the, &random);
	} while (reef_state_check(the, &random.record));
	size = reef_record_encode(&random.record, bytes);
	rc = reef_journal_append(story->journal, random.record.type, bytes,
				 size, &sequence);
	if (rc)
		return rc;
	assert_int_equal(apply(&random.record), 0);
	story->history[++story->appended] = hash_of(the);
	if (reef_random_chance(&story->random, 1, 10)) {
		uint8_t *image;

		assert_int_equal(reef_state_encode(the, &image, &size), 0);
		rc = reef_journal_snapshot(story->journal, image, size);
		free(image);
		if (rc && rc != -EBUSY)
			return rc;
	}
	if (!early && reef_random_chance(&story->random, 1, 2))
		return 0;
	rc = early ? 0 : reef_journal_wait(story->journal, sequence);
	if (rc == 0)
		story->acknowledged = story->appended;
	return rc;
}

static int tell(uint64_t seed, enum lie lie, bool early)
{
	static struct story story;
	int life, i, rc = 0;

	memset(&story, 0, sizeof(story));
	reef_random_init(&story.random, seed);
	assert_int_equal(reef_store_open_memory(&story.random, &story.disk), 0);
	wrapper_init(&story.wrapper, story.disk);
	story.wrapper.lie = lie;
	reef_state_destroy(the);
	assert_int_equal(reef_state_create(&the), 0);
	story.history[0] = hash_of(the);
	for (life = 0; life < 6 && rc == 0; life++) {
		reef_store_fail_after(story.disk,
				      random_below(&story.random, 80));
		rc = story_open(&story);
		for (i = 0; rc == 0 && story.journal && i < 15; i++)
			if (story_append(&story, early))
				break;
		reef_store_crash(story.disk);
		reef_journal_close(story.journal);
		story.journal = NULL;
	}
	reef_store_destroy(story.disk);
	return rc;
}

static void state_crash_comes_back_to_what_was_answered(void **state)
{
	uint64_t seed, count = seeds_of(1500, 50000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		if (tell(seed, LIE_NONE, false))
			fail_msg("seed %llu", (unsigned long long)seed);
}

static void state_mutants_are_found(void **state)
{
	bool found;
	int lie;

	for (lie = LIE_NONE; lie < LIE_COUNT; lie++) {
		uint64_t seed;

		/* Without a lie of the disk: answered before it is synced. */
		found = false;
		for (seed = seeds_first(); seeds_has(seed, 200) && !found;
		     seed++)
			found = tell(seed, (enum lie)lie, lie == LIE_NONE);
		if (!found)
			fail_msg("mutant %d lives", lie);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(state_replay_gives_the_same_state),
		TEST(state_misfit_in_a_journal_is_corruption),
		TEST(state_record_of_another_size_is_refused),
		TEST(state_damaged_snapshot_is_refused_or_whole),
		TEST(state_snapshot_without_copies_gets_them),
		TEST(state_crash_comes_back_to_what_was_answered),
		TEST(state_mutants_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
