/* shard_append.c - appending to a SHARDED log: (S1), (S2), (S9) of shard.h.
 *
 *   {WRITE cells; WRITE count} --> counted --> (a pause) --> in a cut
 *        |                                        |
 *        | in doubt: READ the count, the same     | nobody's: make one
 *        +---- bytes again if they are not in it  +
 *
 * (1) All of it happens in one reef_enter.
 * (2) What is counted comes into the log, sooner or later, unless that is
 *     sealed first: so whatever can be lacking (a shard, memory and a word for
 * a cut) is seen to before. Where it is lacking all the same, because others
 *     were quicker, the append is in doubt. */
#include "log/shard.h"

#include "base/checksum.h"
#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define IDLE 16u /* bounds (S10) in which there may be very many cuts */

struct putting {
	struct reef_log *log;
	const struct iovec *entries;
	uint32_t count;
	uint64_t blocks[LOG_ROW_MAX]; /* of long entries; 0: none */
	bool has_long;
	bool is_counted; /* it may be */
	uint64_t position;
};

/* --- long entries --- */

static void free_blocks(struct putting *putting)
{
	uint32_t i;

	for (i = 0; putting->has_long && i < putting->count; i++)
		if (putting->blocks[i])
			reef_free(putting->log->object.space,
				  putting->blocks[i], 0);
	memset(putting->blocks, 0, putting->count * sizeof(uint64_t));
}

/* WRITE a long entry whole: nobody knows of it, so a doubt is no harm. */
static int write_long(struct putting *putting, uint32_t i)
{
	struct reef_log *log = putting->log;
	const struct shard_own *own = &log->sharded->own;
	const struct iovec *entry = &putting->entries[i];
	const struct log_entry head = {
		.body = log->object.body,
		.position = shard_place(own->index, (uint32_t)own->count + i),
		.size = (uint32_t)entry->iov_len,
		.crc = reef_crc32c(0, entry->iov_base, entry->iov_len),
	};
	struct reef_access accesses[3];
	uint64_t header, at = putting->blocks[i];
	uint32_t used = 0;
	bool has_header = reef_header_take(log->object.space, at, &header);
	int rc, attempt = 0;

	if (has_header)
		accesses[used++] = log_write_of(at - 8, &header, 8);
	accesses[used++] = log_write_of(at, &head, sizeof(head));
	accesses[used++] =
		log_write_of(at + sizeof(head), entry->iov_base, head.size);
	do
		rc = reef_execute(log->reef, accesses, used);
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	if (rc && has_header)
		reef_header_give(log->object.space, at);
	return rc;
}

static int put_longs(struct putting *putting)
{
	struct reef_log *log = putting->log;
	struct shard_own *own = &log->sharded->own;
	static const uint64_t one = 1;
	uint32_t i, size;
	int rc = 0;

	for (i = 0; !rc && i < putting->count; i++) {
		size = (uint32_t)putting->entries[i].iov_len;
		if (size <= log->options.cell)
			continue;
		putting->has_long = true;
		rc = reef_alloc_kind(log->object.space, REEF_BLOCK_LOG_ENTRY,
				     log_step_size(log_entry_step(size)),
				     &putting->blocks[i]);
		if (rc)
			putting->blocks[i] = 0;
		else
			rc = write_long(putting, i);
	}
	/* Whoever frees the shard looks for them. */
	if (!rc && putting->has_long && !own->has_long) {
		rc = reef_write(log->reef,
				shard_head_at(own->at) +
					offsetof(struct shard_head, has_long),
				&one, 8);
		own->has_long = !rc;
	}
	if (rc)
		free_blocks(putting);
	/* Some node died, or a link was lost: once more. */
	return rc == -REEF_ELOST || rc == -REEF_EINDOUBT ? -EAGAIN : rc;
}

/* --- cells --- */

static int make_cell(struct putting *putting, uint32_t i, uint8_t *cell)
{
	struct reef_log *log = putting->log;
	uint32_t slot = (uint32_t)log->sharded->own.count + i;
	uint32_t size = (uint32_t)putting->entries[i].iov_len;
	uint64_t word, block;
	int rc = 0;

	if (putting->blocks[i]) {
		rc = reef_short_address(log->object.space, putting->blocks[i],
					&block);
		word = log_word_long(0, log_entry_step(size), block);
	} else {
		const void *from = putting->entries[i].iov_base;

		word = log_word_short(0, size, reef_crc32c(slot, from, size));
		if (size)
			memcpy(cell + 8, from, size);
	}
	if (!rc)
		memcpy(cell, &word, 8);
	return rc;
}

/* Make all cells, as one piece. *size: how much of it has to be written. */
static int make_cells(struct putting *putting, uint32_t *size, uint64_t *bytes)
{
	struct reef_log *log = putting->log;
	uint32_t i, length;
	int rc = 0;

	if (!log->sharded->row)
		log->sharded->row = calloc(LOG_ROW_MAX, log->stride);
	if (!log->sharded->row)
		return -ENOMEM;
	*bytes = log->sharded->own.bytes;
	*size = 0;
	for (i = 0; !rc && i < putting->count; i++) {
		length = (uint32_t)putting->entries[i].iov_len;
		rc = make_cell(putting, i,
			       log->sharded->row + (size_t)i * log->stride);
		*bytes += length;
		*size = i * log->stride + 8 + (putting->blocks[i] ? 0 : length);
	}
	return rc;
}

/* The mutant of (S2): what comes after a doubt is another entry. */
static void change_bytes(struct putting *putting)
{
	struct reef_log *log = putting->log;
	uint32_t size = (uint32_t)putting->entries[0].iov_len;
	uint32_t slot = (uint32_t)log->sharded->own.count;
	uint8_t *cell = log->sharded->row;
	uint64_t word;

	if (putting->blocks[0] || !size)
		return;
	cell[8] ^= 1;
	word = log_word_short(0, size, reef_crc32c(slot, cell + 8, size));
	memcpy(cell, &word, 8);
}

/* In doubt: is it counted? */
static int is_counted(struct reef_log *log, uint64_t count)
{
	uint64_t now;
	int rc = reef_read(log->reef,
			   shard_head_at(log->sharded->own.at) +
				   offsetof(struct shard_head, count),
			   &now, 8);

	return rc ? rc : (uint32_t)now >= (uint32_t)count;
}

/* {WRITE cells; WRITE count}. *is_awaited: somebody sleeps (S9). */
static int put_cells(struct putting *putting, bool *is_awaited)
{
	struct reef_log *log = putting->log;
	struct shard_own *own = &log->sharded->own;
	uint64_t words[2], asleep = 0;
	struct reef_access accesses[4];
	uint32_t size, used = 1;
	int rc = make_cells(putting, &size, &words[0]), attempt = 0;

	if (rc)
		return rc;
	if (reef_is_lost(log->reef, own->at))
		return -EAGAIN;
	words[1] = own->count + putting->count;
	accesses[0] =
		log_write_of(shard_cell_at(log, own->at, (uint32_t)own->count),
			     log->sharded->row, size);
	used += shard_count_of(log, &accesses[used], words);
	if (REEF_MUTATED(LOG_COUNT_FIRST)) {
		struct reef_access cells = accesses[0];

		accesses[0] = accesses[1];
		accesses[1] = cells;
		accesses[1].flags = REEF_ORDERED;
	}
	if (log_is_early(log))
		accesses[used++] =
			log_read_of(shard_head_at(own->at) +
					    offsetof(struct shard_head, asleep),
				    &asleep, 8);
	do {
		putting->is_counted = true;
		rc = reef_execute(log->reef, accesses, used);
		if (rc != -REEF_EINDOUBT)
			break;
		if (REEF_MUTATED(LOG_SHARD_OTHER_BYTES)) {
			change_bytes(putting);
			continue;
		}
		rc = is_counted(log, words[1]);
		rc = rc == 1 ? 0 : rc ? rc : -REEF_EINDOUBT;
	} while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	if (!rc) {
		own->count = words[1];
		own->bytes = words[0];
		*is_awaited = asleep & 1;
	} else if (rc != -REEF_ELOST) {
		own->is_doubtful = true;
	}
	return rc;
}

/* --- the cut --- */

/* How an append ends that is counted and was not found in a cut. */
static int end_in_doubt(int rc)
{
	return rc == -REEF_EFENCED || rc == -ETIMEDOUT || rc == -ESHUTDOWN ||
			       rc == -REEF_EHOSTDEAD
		       ? rc
		       : -REEF_EINDOUBT;
}

/* The row was counted, or may be. 0: it is in a cut.  -EAGAIN: it is in none,
 * and never will be. */
static int await_cut(struct putting *putting)
{
	struct reef_log *log = putting->log;
	struct shard_own *own = &log->sharded->own;
	int rc = 0, attempt = 0;

	while (!rc && !own->is_found && !own->is_unknown && !own->is_gone) {
		if (++attempt > LOG_ATTEMPTS)
			return -REEF_EINDOUBT;
		rc = cut_now(log, NULL);
		if (rc == -ESHUTDOWN && (own->is_found || own->is_unknown))
			rc = 0;
	}
	if (rc)
		return end_in_doubt(rc);
	if (own->is_found) {
		putting->position = own->position;
		return 0;
	}
	return own->is_unknown ? -REEF_EINDOUBT : -EAGAIN;
}

/* EARLY: whether it is time for this handle to cut. 1: it is.  0: others do. */
static int is_time_to_cut(struct reef_log *log, uint64_t now_ns)
{
	struct log_sharded *sharded = log->sharded;
	uint64_t since_ns = now_ns - sharded->cut_ns, before = sharded->next;
	int rc;

	if (since_ns < log->options.hole_ns)
		return 0;
	if (turn_is_ours(sharded))
		return 1;
	/* One of the others should have, by then. */
	if (since_ns < log->options.hole_ns + turn_bound_ns(log))
		return 0;
	rc = cuts_peek(log);
	if (!rc && sharded->next == before)
		rc = turn_claim(log);
	sharded->cut_ns = now_ns;
	return rc;
}

/* EARLY: cut what is there, if it is time to, or somebody sleeps. */
static int cut_early(struct putting *putting, bool is_awaited)
{
	struct reef_log *log = putting->log;
	struct log_sharded *sharded = log->sharded;
	struct shard_own *own = &sharded->own;
	uint64_t now_ns = reef_now_ns(), asleep = 0;
	bool is_out;
	uint64_t at =
		shard_head_at(own->at) + offsetof(struct shard_head, asleep);
	struct log_found segment;
	int rc = is_awaited ? 1 : is_time_to_cut(log, now_ns);

	if (rc != 1)
		return rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD ? rc : 0;
	cuts_want(log, (uint32_t)own->count - 1);
	if (is_awaited && !reef_read(log->reef, at, &asleep, 8) && asleep & 1)
		(void)reef_cas(log->reef, at, asleep, asleep + 1, NULL);
	sharded->cut_ns = now_ns;
	rc = is_awaited ? turn_await(log) : 1;
	if (rc == 1)
		rc = cut_now(log, NULL);
	is_out = rc == -ESHUTDOWN && !own->is_found && !own->is_unknown;
	cuts_want(log, UINT64_MAX);
	if (is_out)
		return rc;
	/* Others may have cut it before the sleeper looked. */
	if (is_awaited &&
	    !log_find(log, sharded->next / log->options.segment, &segment))
		log_wake_all(log, segment.at);
	return rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD ? rc : 0;
}

/* --- appending --- */

/* Who did not look for cuts for a while does so before there is an entry to be
 * found in one of them: then it can skip most. */
static int catch_up(struct reef_log *log)
{
	uint64_t now_ns = reef_now_ns();

	return now_ns - log->sharded->looked_ns > IDLE * turn_bound_ns(log)
		       ? cuts_follow(log)
		       : 0;
}

/* (2): a word for a cut, and memory for it. */
static int reserve(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const uint32_t size = log->options.segment;
	uint64_t most = UINT64_C(1) * size * (log->options.segments - 1), at;
	struct log_found found;
	int rc = 0;

	if (log->lacking != LOG_NOWHERE) {
		rc = log_make(log, log->lacking, log_generation(log), &found);
		if (rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG)
			return rc;
		log->lacking = LOG_NOWHERE;
	}
	if (sharded->next - sharded->floor / size * size >= most)
		rc = reef_read(log->reef, log_floor_at(log), &sharded->floor,
			       8);
	if (rc && rc != -REEF_EINDOUBT && rc != -ESTALE && rc != -REEF_ELOST &&
	    rc != -ESHUTDOWN && rc != -ERANGE && rc != -REEF_ECORRUPT)
		return rc;
	if (sharded->next - sharded->floor / size * size >= most)
		return -E2BIG;
	rc = reef_alloc_kind(
		log->object.space, REEF_BLOCK_LOG_ENTRY,
		log_step_size(log_entry_step(
			(uint32_t)(sizeof(struct log_cut) +
				   sizeof(struct cut_part) *
					   (sharded->shards + UINT64_C(1))))),
		&at);
	return rc ? rc : reef_free(log->object.space, at, 0);
}

/* One attempt. -EAGAIN: nothing was appended; once more. */
static int try_append(struct putting *putting)
{
	struct reef_log *log = putting->log;
	struct shard_own *own = &log->sharded->own;
	bool is_awaited = false;
	int rc = shard_take(log, putting->count);

	if (!rc && !log_is_early(log))
		rc = catch_up(log);
	if (!rc && !log_is_early(log))
		rc = reserve(log);
	if (!rc)
		rc = put_longs(putting);
	if (rc)
		return rc;
	cuts_want(log, (uint32_t)own->count);
	rc = put_cells(putting, &is_awaited);
	if (rc == -EAGAIN)
		free_blocks(putting);
	/* Its node died: was it counted, and cut, before that? */
	if (rc && rc != -REEF_ELOST)
		return rc;
	if (!rc && log_is_early(log)) {
		cuts_want(log, UINT64_MAX);
		putting->position = REEF_LOG_UNPLACED;
		return cut_early(putting, is_awaited);
	}
	rc = rc ? 0 : turn_await(log);
	if (rc >= 0)
		rc = await_cut(putting);
	else
		rc = end_in_doubt(rc);
	cuts_want(log, UINT64_MAX);
	if (rc == -EAGAIN) {
		putting->is_counted = false;
		free_blocks(putting);
	}
	return rc;
}

static int append_inside(struct putting *putting)
{
	struct reef_log *log = putting->log;
	int rc = log_enter(log, true), attempt;

	if (rc)
		return rc;
	rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = try_append(putting);
	if (rc && !putting->is_counted)
		free_blocks(putting);
	log_leave(log);
	return rc;
}

int sharded_append(struct reef_log *log, const struct iovec *entries,
		   uint32_t count, uint64_t *first)
{
	struct reef_patience patience = {0};
	struct putting putting = {
		.log = log,
		.entries = entries,
		.count = count,
	};
	int rc, waited;

	for (;;) {
		rc = append_inside(&putting);
		if (rc != -ENOSPC)
			break;
		waited = reef_await_memory(log->object.space, &patience);
		if (waited) {
			rc = waited;
			break;
		}
	}
	if (!rc && first)
		*first = putting.position;
	return log_told(sharded_told(rc));
}
