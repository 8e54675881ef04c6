/* test_log_parts.c - the memory of each part of a log is lost apart: segments,
 * long entries, shards, cuts, tails. Who reads it afterwards, or is a reader
 * with a name, is given what is left, all of it and nothing else; and the log
 * goes on. */
#include "fixture/log_world.h"
#include "log/reader.h"
#include "log/shard.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS 6u
#define POSITIONS 512u
#define APPENDS 120u
#define LOOKS_MAX 2000u

/* What has to be there so that a position can be read. */
struct fact {
	uint64_t value;
	uint64_t needs[4]; /* addresses; 0: nothing */
	bool is_there;
};

static struct fact facts[POSITIONS];
static uint32_t flags;
static struct {
	uint32_t bodies, wholes, segments, longs, shards, cuts;
} lost;

/* --- what there is --- */

static int note_word(struct reef_log *log, struct fact *fact, uint64_t word)
{
	return fact->is_there && log_word_is_long(word)
		       ? reef_long_address(log->object.space,
					   word & LOG_BLOCK_MASK,
					   &fact->needs[1])
		       : 0;
}

static int note_segments(struct reef_log *log)
{
	uint64_t words[16];
	struct log_found found;

	for (uint64_t i = 0; i < POSITIONS / 16; i++) {
		if (log_find(log, i, &found))
			break;
		TRY(reef_read(log->reef, found.at + log_word_offset(0), words,
			      sizeof(words)));
		for (uint32_t j = 0; j < 16; j++) {
			facts[16 * i + j].needs[0] = found.at;
			TRY(note_word(log, &facts[16 * i + j], words[j]));
		}
	}
	return 0;
}

static int note_cut(struct reef_log *log, const struct cut *cut)
{
	uint64_t at = cut->head.first, shard, word, block;
	struct log_found found;

	TRY(log_find(log, cut->index / 16, &found));
	TRY(reef_read(log->reef, found.at + log_word_offset(cut->index % 16),
		      &word, 8));
	TRY(reef_long_address(log->object.space, word & LOG_BLOCK_MASK,
			      &block));
	for (uint32_t i = 0; i < cut->head.count; i++) {
		const struct cut_part *part = &cut->parts[i];

		for (uint32_t j = cut_part_from(part); j < cut_part_to(part);
		     j++, at++) {
			WANT(at < POSITIONS);
			TRY(reef_long_address(log->object.space,
					      cut_part_block(part), &shard));
			TRY(reef_read(log->reef, shard_cell_at(log, shard, j),
				      &word, 8));
			facts[at].needs[0] = found.at;
			facts[at].needs[2] = shard;
			facts[at].needs[3] = block;
			TRY(note_word(log, &facts[at], word));
		}
	}
	return 0;
}

static int note_cuts(struct reef_log *log)
{
	struct cut cuts[CUTS_PAGE];
	uint64_t index = 0;
	uint32_t count;

	do {
		TRY(cuts_load(log, &index, cuts, CUTS_PAGE, &count));
		for (uint32_t i = 0; i < count; i++) {
			TRY(note_cut(log, &cuts[i]));
			cut_free(&cuts[i]);
		}
	} while (count);
	return 0;
}

static int note_value(void *context, uint64_t position, const void *bytes,
		      size_t size)
{
	uint32_t *count = context;

	if (position >= POSITIONS || size < 8)
		return -EXDEV;
	memcpy(&facts[position].value, bytes, 8);
	facts[position].is_there = true;
	++*count;
	return 0;
}

static int note_facts(struct reef_log *log)
{
	uint64_t next = 0, from;
	uint32_t count = 0;
	int rc;

	do {
		from = next;
		TRY(reef_log_read(log, from, 64, note_value, &count, &next));
	} while (next != from);
	WANT(count == APPENDS + 2 * ((APPENDS + 6) / 7));
	TRY(log_enter(log, false));
	rc = log->sharded ? note_cuts(log) : note_segments(log);
	log_leave(log);
	return rc;
}

/* True if a position can still be read. */
static bool is_left(const struct member *member, const struct fact *fact)
{
	bool is_left = fact->is_there;

	for (uint32_t i = 0; i < 4; i++)
		is_left &= !fact->needs[i] ||
			   !reef_is_lost(member->reef, fact->needs[i]);
	return is_left;
}

/* --- what is given --- */

struct given {
	bool is[POSITIONS];
	uint32_t wrong, count, lost;
};

static int give(void *context, uint64_t position, const void *bytes,
		size_t size)
{
	struct given *given = context;
	uint64_t value = 0;

	memcpy(&value, bytes, size < 8 ? size : 8);
	/* What was appended since the loss is not asked for. */
	if (value >= 1000)
		return 0;
	if (position >= POSITIONS || given->is[position] ||
	    facts[position].value != value) {
		given->wrong++;
		return 0;
	}
	given->is[position] = true;
	given->count++;
	return 0;
}

static int read_all(struct reef_log *log, struct given *given)
{
	uint64_t from, next = 0;
	int rc;

	for (uint32_t i = 0; i < LOOKS_MAX; i++) {
		from = next;
		rc = reef_log_read(log, from, 64, give, given, &next);
		given->lost += rc == -REEF_ELOST;
		if (rc && rc != -REEF_ELOST)
			return rc;
		if (next == from)
			return rc;
	}
	return -EXDEV;
}

static int take_all(struct reef_log *log, bool is_group, struct given *given)
{
	const struct reef_reader_options options = {
		.flags = is_group ? REEF_READER_GROUP : 0, .window = 8};
	struct reef_reader *reader;
	int rc = 0;

	TRY(reef_reader_open(log, is_group ? "some" : "one", &options,
			     &reader));
	for (uint32_t i = 0; i < LOOKS_MAX && rc != -ETIMEDOUT; i++) {
		rc = reef_reader_next(reader, 5, 0, give, given);
		if (rc && rc != -REEF_ELOST && rc != -ETIMEDOUT)
			return rc;
		TRY(reef_reader_done_all(reader));
	}
	reef_reader_close(reader);
	return rc == -ETIMEDOUT ? 0 : -EXDEV;
}

static int check(const struct member *member, const struct given *given)
{
	WANT(!given->wrong);
	for (uint32_t i = 0; i < POSITIONS; i++)
		if (given->is[i] != is_left(member, &facts[i])) {
			print_message("position %u: given %u, left %u\n", i,
				      given->is[i], is_left(member, &facts[i]));
			return -EXDEV;
		}
	return 0;
}

/* --- the run --- */

/* Members append at once, or, to a SINGLE log, in turn, each to memory of its
 * own. note[0]: how much was appended. note[1]: how many have the log open.
 * note[2]: the end. */

static int open_log(struct member *member, struct reef_space **space,
		    struct reef_log **log)
{
	struct reef_log_options options = logs_small;

	options.segments = 64;
	options.flags = flags;
	TRY(member_space(member, space));
	return reef_log_open(*space, "log", &options, log);
}

static int append_one(struct reef_log *log, uint64_t i)
{
	uint8_t bytes[3][1500];
	struct iovec entries[3];
	uint32_t count = i % 7 ? 1 : 3, j;

	for (j = 0; j < count; j++) {
		entries[j].iov_base = bytes[j];
		entries[j].iov_len = (i + j) % 3 ? 8 : sizeof(bytes[j]);
		logs_fill(bytes[j], entries[j].iov_len, 3 * i + j);
	}
	if (flags & REEF_LOG_SINGLE && i % 20 == 0)
		TRY(reef_log_lead(log));
	return reef_log_append_many(log, entries, count, NULL);
}

static int append_all(struct member *member, struct reef_log *log)
{
	uint64_t *note = member->pool->note, i;

	note[1]++;
	while (note[1] < MEMBERS)
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < APPENDS; i++) {
		while (flags & REEF_LOG_SINGLE && note[0] < i)
			TRY(reef_sleep(10 * MICROSECOND));
		if ((flags & REEF_LOG_SINGLE ? i / 20 : i) % MEMBERS + 1 !=
		    member->number)
			continue;
		TRY(append_one(log, i));
		note[0]++;
	}
	while (note[0] < APPENDS)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int appends(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;

	TRY(open_log(member, &space, &log));
	TRY(append_all(member, log));
	while (!member->pool->note[2])
		TRY(reef_sleep(10 * MILLISECOND));
	reef_log_close(log);
	return 0;
}

static void count_lost(const struct member *member)
{
	for (uint32_t i = 0; i < POSITIONS; i++) {
		const struct fact *fact = &facts[i];
		bool is[4];

		for (uint32_t j = 0; j < 4; j++)
			is[j] = fact->needs[j] &&
				reef_is_lost(member->reef, fact->needs[j]);
		lost.segments += is[0] && !is[1];
		lost.longs += is[1] && !is[0] && !is[2] && !is[3];
		lost.shards += is[2] && !is[0] && !is[3];
		lost.cuts += is[3] && !is[0] && !is[2];
	}
}

static int look_again(struct member *member, struct reef_space *space)
{
	static struct given given;
	struct reef_log *log;
	uint64_t position;

	TRY(reef_log_open(space, "log", NULL, &log));
	memset(&given, 0, sizeof(given));
	TRY(read_all(log, &given));
	TRY(check(member, &given));
	for (uint32_t i = 0; i < 2; i++) {
		memset(&given, 0, sizeof(given));
		TRY(take_all(log, i, &given));
		TRY(check(member, &given));
	}
	if (flags & REEF_LOG_SINGLE)
		TRY(reef_log_lead(log));
	for (uint32_t i = 0; i < 40; i++)
		TRY(logs_append(log, 1000 + i, i % 3 ? 8 : 500, &position));
	memset(&given, 0, sizeof(given));
	TRY(read_all(log, &given));
	TRY(check(member, &given));
	reef_log_close(log);
	return 0;
}

static int loses(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_log *log;
	bool is_lost;

	memset(facts, 0, sizeof(facts));
	TRY(open_log(member, &space, &log));
	TRY(append_all(member, log));
	TRY(note_facts(log));
	reef_sim_host_kill(pool->lenders[pool->seed / 4 % NODES].host);
	TRY(reef_sleep(2 * SECOND));
	is_lost = reef_is_lost(member->reef, log->object.body);
	count_lost(member);
	lost.bodies += is_lost;
	lost.wholes++;
	if (!is_lost)
		TRY(look_again(member, space));
	pool->note[2] = 1;
	reef_log_close(log);
	return is_lost ? 0 : reef_log_drop(space, "log");
}

static void log_gives_all_that_is_left(void **state)
{
	static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
					 REEF_LOG_SHARDED | REEF_LOG_EARLY};
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 8 * POOL_SEEDS); seed++) {
		struct pool pool = {
			.node_ttl_ns = 300 * MILLISECOND,
			.extent_size = UINT64_C(2) << 20,
			.ttl_ns = 60 * SECOND,
			.witnesses = 2,
		};

		flags = kinds[seed % 4];
		pool_start(&pool, seed);
		pool_add(&pool, loses);
		for (uint32_t i = 1; i < MEMBERS; i++)
			pool_add(&pool, appends);
		pool_finish(&pool);
	}
	print_message("of %u: bodies %u; segments %u, longs %u, shards %u, "
		      "cuts %u\n",
		      lost.wholes, lost.bodies, lost.segments, lost.longs,
		      lost.shards, lost.cuts);
	/* Else it has shown nothing. */
	assert_true(lost.bodies < lost.wholes && lost.segments && lost.longs);
	assert_true(lost.shards && lost.cuts);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_gives_all_that_is_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
