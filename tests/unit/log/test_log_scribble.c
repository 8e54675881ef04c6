/* test_log_scribble.c - R10: logs and their readers whose memory anybody may
 * have written to.
 *
 * One word, or a few, get a bad value, while a handle has the log open: of the
 * body, of its directories, of the tail, a segment, a shard, a cut, a long
 * entry, or of a reader and its claims. A liar mends the checksums behind it.
 * Then all calls are made, by that handle and by a new one. Errors are fine, if
 * they are some that the headers have. Nothing may crash, and every call
 * returns: one that posts very much is a hang. */
#include "fixture/log_world.h"
#include "log/reader.h"
#include "log/shard.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCKS_MAX 256u
#define POSTS_MAX 20000u /* of one call */
#define STUCK 100	 /* seconds, for one word */
#define BRIEFLY_NS MILLISECOND

enum block_kind { WORDS, BODY, TAIL, SEGMENT, SHARD, CUT, ENTRY, READER };

struct block {
	uint64_t at;
	uint64_t size;
	enum block_kind kind;
	uint64_t index; /* of a cut */
};

static struct {
	struct reef_random random;
	struct block blocks[BLOCKS_MAX];
	uint32_t count;
	/* What is called now, and how much it has posted. */
	const char *call;
	uint32_t posts;
	const char *hung;
	char what[160]; /* was done */
} scene;

static void watch(struct member *member, bool is_posted)
{
	if (!is_posted || !scene.call || ++scene.posts < POSTS_MAX)
		return;
	if (!scene.hung)
		scene.hung = scene.call;
	reef_sim_host_kill(member->host);
}

static uint64_t below(uint64_t bound)
{
	return reef_random_below(&scene.random, bound);
}

/* --- what there is --- */

static void add(enum block_kind kind, uint64_t at, uint64_t size,
		uint64_t index)
{
	if (scene.count < BLOCKS_MAX)
		scene.blocks[scene.count++] =
			(struct block){at, size, kind, index};
}

/* Add the blocks that words name: cuts, or long entries. */
static void add_longs(struct reef_log *log, const uint64_t *words,
		      uint32_t count, uint64_t first)
{
	uint64_t at;

	for (uint32_t i = 0; i < count; i++)
		if (words[i] && log_word_is_long(words[i]) &&
		    words[i] != LOG_HOLE &&
		    !reef_long_address(log->object.space,
				       words[i] & LOG_BLOCK_MASK, &at))
			add(log->sharded ? CUT : ENTRY, at,
			    log_step_size(log_word_step(words[i])), first + i);
}

static int add_segments(struct reef_log *log)
{
	uint64_t words[16];
	struct log_found found;
	struct log_map map;

	TRY(log_map_read(log, &map));
	free(map.slots);
	for (uint64_t i = 0; !map.is_empty && i <= map.last; i++) {
		if (log_find(log, i, &found))
			continue;
		add(SEGMENT, found.at, log_word_offset(16), 0);
		add(SEGMENT, found.at, log_segment_size(log), 0);
		TRY(reef_read(log->reef, found.at + log_word_offset(0), words,
			      sizeof(words)));
		add_longs(log, words, 16, i * 16);
	}
	return 0;
}

static int add_shards(struct reef_log *log)
{
	uint64_t words[8], at;

	TRY(reef_read(log->reef, shard_slot_at(log, 0), words, sizeof(words)));
	for (uint32_t i = 0; i < 8; i++) {
		if (shard_word_state(words[i]) == SHARD_FREE ||
		    reef_long_address(log->object.space,
				      words[i] & LOG_BLOCK_MASK, &at))
			continue;
		add(SHARD, at, sizeof(struct log_shard), 0);
		add(SHARD, at, shard_cell_at(log, 0, 16), 0);
	}
	return 0;
}

static int add_all(struct reef_log *log, struct reef_reader **readers)
{
	scene.count = 0;
	for (uint32_t i = 0; i < 4; i++) {
		add(BODY, log->object.body, sizeof(struct log_body), 0);
		add(BODY, log->object.body, log->object.body_size, 0);
		add(TAIL, log->tail_at, sizeof(struct log_tail), 0);
		add(READER, readers[i % 2]->object.body,
		    sizeof(struct reader_body), 0);
		add(READER, readers[i % 2]->object.body,
		    readers[i % 2]->object.body_size, 0);
	}
	TRY(add_segments(log));
	return log->sharded ? add_shards(log) : 0;
}

/* --- bad values --- */

static int bad_value(struct reef *reef, uint64_t *word)
{
	const struct block *other = &scene.blocks[below(scene.count)];

	switch (below(8)) {
	case 0:
		*word = 0;
		break;
	case 1:
		*word = UINT64_MAX - below(2);
		break;
	case 2:
		*word = reef_random_next(&scene.random);
		break;
	case 3:
		*word += 1;
		break;
	case 4:
		*word -= 1;
		break;
	case 5: /* one of another place */
		return reef_read(reef, other->at + 8 * below(other->size / 8),
				 word, 8);
	case 6:
		*word = UINT64_C(1) << below(64) | below(64);
		break;
	default:
		*word ^= UINT64_C(1) << below(64);
	}
	return 0;
}

/* What a liar does, who knows the checksums. */
static int mend(struct reef *reef, const struct block *block)
{
	static uint8_t bytes[LOG_ENTRY_MAX];
	struct log_entry *entry = (struct log_entry *)bytes;
	struct log_cut *head = (struct log_cut *)(entry + 1);
	struct cut_part *parts = (struct cut_part *)(head + 1);
	uint64_t room = block->size - sizeof(*entry), end;

	TRY(reef_read(reef, block->at, bytes, block->size));
	if (block->kind == CUT && below(4)) {
		end = head->first;
		if (head->count > (room - sizeof(*head)) / sizeof(*parts))
			head->count = (uint32_t)((room - sizeof(*head)) /
						 sizeof(*parts));
		for (uint32_t i = 0; i < head->count; i++) {
			parts[i].place =
				cut_part_place(&parts[i], block->index, end);
			end += cut_part_to(&parts[i]) -
			       cut_part_from(&parts[i]);
		}
		head->end = end;
		entry->size = (uint32_t)(sizeof(*head) +
					 head->count * sizeof(*parts));
	}
	if (entry->size <= room)
		entry->crc = reef_crc32c(0, entry + 1, entry->size);
	return reef_write(reef, block->at, bytes, block->size);
}

static int scribble(struct reef *reef)
{
	const struct block *block = &scene.blocks[below(scene.count)];
	uint64_t at = 8 * below(block->size / 8), word, was;

	TRY(reef_read(reef, block->at + at, &word, 8));
	was = word;
	TRY(bad_value(reef, &word));
	TRY(reef_write(reef, block->at + at, &word, 8));
	snprintf(scene.what, sizeof(scene.what), "kind %d +%llu: %llx for %llx",
		 block->kind, (unsigned long long)at, (unsigned long long)word,
		 (unsigned long long)was);
	return (block->kind == CUT || block->kind == ENTRY) && below(4)
		       ? mend(reef, block)
		       : 0;
}

/* --- all calls --- */

/* Errors that the headers have. */
static bool is_known(int rc)
{
	static const int known[] = {
		0,
		-EBUSY,
		-ENOENT,
		-REEF_ECORRUPT,
		-REEF_ELOST,
		-ENOSPC,
		-EDQUOT,
		-ESHUTDOWN,
		-EPERM,
		-ESTALE,
		-ERANGE,
		-ETIMEDOUT,
		-EEXIST,
		-EDEADLK,
		-EINVAL,
		-REEF_EINDOUBT,
		-REEF_EVERSION,
		-REEF_EHOSTDEAD,
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (rc == known[i])
			return true;
	return false;
}

#define CALL(call_)                                                            \
	do {                                                                   \
		int call_rc;                                                   \
                                                                               \
		scene.call = #call_;                                           \
		scene.posts = 0;                                               \
		call_rc = (call_);                                             \
		scene.call = NULL;                                             \
		if (!is_known(call_rc)) {                                      \
			try_tell(__FILE__, __LINE__, #call_, call_rc);         \
			return -EXDEV;                                         \
		}                                                              \
		if (scene.hung)                                                \
			return -REEF_EHOSTDEAD;                                \
	} while (0)

static int count_bytes(void *context, uint64_t position, const void *bytes,
		       size_t size)
{
	const uint8_t *at = bytes;
	uint32_t *sum = context;

	(void)position;
	for (size_t i = 0; i < size; i++)
		*sum += at[i];
	return 0;
}

static int read_all(struct reef_log *log)
{
	uint64_t at = 0, next;
	uint32_t sum = 0;

	for (uint32_t i = 0; i < 100; i++) {
		next = at;
		CALL(reef_log_read(log, at, 1 + (uint32_t)below(40),
				   count_bytes, &sum, &next));
		if (next == at)
			break;
		at = next;
	}
	return 0;
}

static int append_all(struct reef_log *log, uint32_t count)
{
	static uint8_t bytes[600];
	struct iovec row[3] = {{bytes, 20}, {bytes, 600}, {bytes, 0}};
	uint64_t position;

	for (uint32_t i = 0; i < count; i++) {
		CALL(reef_log_append(log, bytes, 8, &position));
		CALL(reef_log_append(log, bytes, 300, &position));
		CALL(reef_log_append_many(log, row, 3, &position));
		if (log_is_single(log) && !i)
			CALL(reef_log_lead(log));
	}
	return 0;
}

static int use_reader(struct reef_log *log, struct reef_reader *reader,
		      const char *name)
{
	struct reef_reader_stats stats;
	uint32_t sum = 0;

	CALL(reef_reader_stats(log, name, &stats));
	for (uint32_t i = 0; i < 12; i++) {
		CALL(reef_reader_next(reader, 1 + (uint32_t)below(8),
				      BRIEFLY_NS, count_bytes, &sum));
		CALL(reef_reader_done(reader, below(100)));
		if (i % 2)
			CALL(reef_reader_done_all(reader));
	}
	return 0;
}

static int use(struct reef_log *log)
{
	struct reef_log_stats stats;
	uint64_t first = 0, tail = 0;

	CALL(reef_log_stats(log, &stats));
	CALL(reef_log_first(log, &first));
	TRY(read_all(log));
	TRY(append_all(log, 3));
	CALL(reef_log_tail(log, &tail));
	CALL(reef_log_wait(log, below(tail + 2), BRIEFLY_NS));
	CALL(reef_log_wait(log, tail + below(40), BRIEFLY_NS));
	CALL(reef_log_fill(log, below(tail + 2)));
	CALL(reef_log_trim(log, below(tail + 2)));
	TRY(append_all(log, 8));
	return read_all(log);
}

static const struct reef_reader_options group = {.flags = REEF_READER_GROUP,
						 .window = 8};

static int use_anew(struct reef_space *space,
		    const struct reef_log_options *options)
{
	struct reef_reader *reader = NULL;
	struct reef_log *log = NULL;

	CALL(reef_log_open(space, "log", options, &log));
	if (!log)
		return 0;
	TRY(use(log));
	CALL(reef_reader_open(log, "some", &group, &reader));
	if (reader)
		TRY(use_reader(log, reader, "some"));
	reef_reader_close(reader);
	if (!below(3))
		CALL(reef_log_seal(log));
	reef_log_close(log);
	return 0;
}

static const uint32_t kinds[] = {0, REEF_LOG_SINGLE, REEF_LOG_SHARDED,
				 REEF_LOG_SHARDED | REEF_LOG_EARLY};

static int prepare(struct reef_log *log, struct reef_reader **readers)
{
	uint32_t sum = 0;
	uint64_t tail;

	if (log_is_single(log))
		TRY(reef_log_lead(log));
	for (uint64_t i = 0; i < 30; i++)
		TRY(logs_append(log, i, i % 7 ? 8 : 300, NULL));
	TRY(reef_log_tail(log, &tail));
	TRY(reef_log_trim(log, tail - 25));
	TRY(reef_reader_open(log, "one", NULL, &readers[0]));
	TRY(reef_reader_open(log, "some", &group, &readers[1]));
	for (uint32_t i = 0; i < 2; i++)
		TRY(reef_reader_next(readers[i], 4, 0, count_bytes, &sum));
	reef_enter(log->reef);
	log_forget(log);
	TRY(log_refresh(log, false));
	TRY(add_all(log, readers));
	reef_leave(log->reef);
	return 0;
}

static int scribbles(struct member *member)
{
	const struct reef_log_options options = {
		LOGS_SMALL,
		.flags = kinds[member->pool->seed % 4],
		.keep_entries = member->pool->seed / 4 % 3 ? 0 : 40,
		.keep_bytes = member->pool->seed / 4 % 3 == 1 ? 300 : 0,
	};
	struct reef_reader *readers[2];
	struct reef_space *space;
	struct reef_log *log;

	TRY(member_space(member, &space));
	TRY(reef_log_open(space, "log", &options, &log));
	TRY(prepare(log, readers));
	for (uint64_t i = below(4) ? 1 : 4; i; i--)
		TRY(scribble(member->reef));
	/* Now and then another epoch: all is looked at anew. */
	if (below(2))
		log_forget(log);
	TRY(use(log));
	TRY(use_reader(log, readers[0], "one"));
	TRY(use_reader(log, readers[1], "some"));
	TRY(use_anew(space, &options));
	reef_reader_close(readers[0]);
	reef_reader_close(readers[1]);
	reef_log_close(log);
	CALL(reef_log_drop(space, "log"));
	return 0;
}

/* Whoever dies, its blocks are judged by another: that must end, too. */
static int run_one(uint64_t seed)
{
	struct pool pool = {
		.ttl_ns = 60 * SECOND, .calm = true, .posts = watch};
	int rc;

	memset(&scene, 0, sizeof(scene));
	reef_random_init(&scene.random, seed);
	pool_start(&pool, seed);
	pool_add(&pool, scribbles);
	alarm(STUCK);
	rc = pool_end(&pool);
	alarm(0);
	/* What was written back is nobody's promise. */
	if (scene.hung)
		fprintf(stderr, "seed %llu hangs in %s: %s\n",
			(unsigned long long)seed, scene.hung, scene.what);
	else if (rc && !pool.has_recurred)
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed,
			scene.what);
	return scene.hung ? -ETIME : pool.has_recurred ? 0 : rc;
}

static void log_scribbled_words_are_errors(void **state)
{
	uint64_t seed, failed = 0;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(200, 20000));
	     seed++)
		failed += run_one(seed) != 0;
	assert_int_equal(failed, 0);
}

/* A tail that says that all numbers are drawn is of no use, and replaced. */
static int draws_the_last(struct member *member)
{
	struct reef_space *space;
	struct reef_log *log;
	uint64_t next, word;

	TRY(logs_open(member, &space, &log));
	TRY(logs_append(log, 0, 8, NULL));
	word = log_draw_make(log_generation(log), LOG_POSITIONS / 2);
	TRY(reef_write(member->reef,
		       log->tail_at + offsetof(struct log_tail, draw), &word,
		       8));
	TRY(logs_append(log, 1, 8, &next));
	WANT(next == 16);
	reef_log_close(log);
	return reef_log_drop(space, "log");
}

static void log_scribbled_tail_is_replaced(void **state)
{
	logs_run_as(draws_the_last, true);
}

/* --- recovery --- */

/* One that dies with blocks that no word names, of a log whose body says that
 * it is very large. */
static int leaves_blocks(struct member *member)
{
	uint64_t *note = member->pool->note, at, words[2];
	struct log_entry entry = {.size = 300};
	struct reef_space *space;
	struct reef_log *log;
	int rc = 0;

	TRY(logs_open(member, &space, &log));
	for (uint64_t i = 0; i < 20; i++)
		TRY(logs_append(log, i, 300, NULL));
	entry.body = log->object.body;
	for (entry.position = 0; entry.position < 40; entry.position += 13) {
		TRY(reef_alloc_kind(space, REEF_BLOCK_LOG_ENTRY, 376, &at));
		TRY(reef_write(member->reef, at, &entry, sizeof(entry)));
	}
	at = log->object.body + offsetof(struct log_body, magic);
	TRY(reef_read(member->reef, at, words, sizeof(words)));
	words[1] = reef_random_next(&scene.random);
	if (below(2))
		words[1] |= UINT64_C(0xffffffff) << (32 * below(2));
	TRY(reef_write(member->reef, at, words, sizeof(words)));
	note[0] = reef_session(member->reef);
	while (!rc)
		rc = reef_sleep(SECOND);
	reef_log_close(log);
	return rc;
}

static int judges_blocks(struct member *member)
{
	uint64_t *note = member->pool->note;
	struct reef_space *space;
	bool has = true;

	TRY(member_space(member, &space));
	while (!note[0])
		TRY(reef_sleep(MILLISECOND));
	reef_sim_host_kill(member->pool->members[0].host);
	scene.call = "recovery";
	scene.posts = 0;
	while (has) {
		TRY(reef_sleep(10 * MILLISECOND));
		TRY(member_has_session(member, (uint32_t)note[0], &has));
	}
	scene.call = NULL;
	return 0;
}

static void log_scribbled_limits_do_not_hold_recovery_up(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(20, 1000));
	     seed++) {
		struct pool pool = {.posts = watch};

		memset(&scene, 0, sizeof(scene));
		reef_random_init(&scene.random, seed);
		pool_start(&pool, seed);
		pool_add(&pool, leaves_blocks);
		pool_add(&pool, judges_blocks);
		alarm(STUCK);
		pool_finish(&pool);
		alarm(0);
		assert_null(scene.hung);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(log_scribbled_words_are_errors),
		cmocka_unit_test(log_scribbled_tail_is_replaced),
		cmocka_unit_test(log_scribbled_limits_do_not_hold_recovery_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
