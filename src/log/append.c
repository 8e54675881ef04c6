/* append.c - appending: one entry, or a row.
 *
 *   draw --FAA--> number --{WRITE cell; CAS word; READ head}--> there
 *    ^              |                  |
 *    |              | no segment of    | HOLE: a reader was quicker; the bound
 *    +--------------+ the generation   | is doubled
 *    +---------------------------------+
 *
 * A row is {WRITE cells; CAS members}, then {CAS head; READ head}: (2) of
 * layout.h. A long entry's block is written before its CAS, because nothing
 * orders two nodes: together with the draw. Where nothing is drawn, and the
 * block is in the segment's extent, it goes in front of the CAS.
 *
 * (1) All of it happens in one reef_enter, so blocks are published or freed in
 *     the one in which they were allocated; but where memory is waited for,
 *     which begins anew.
 * (2) What is in doubt is done again with the same number: the bytes are the
 *     same, and a word that is ours already counts as set. What cannot be found
 *     out any more is returned as such and never appended anew: it would be
 *     there twice. */
#include "log/shard.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct log_row {
	struct reef_log *log;
	const struct iovec *entries;
	uint32_t count;
	uint64_t position;
	struct log_found segment;
	uint64_t words[LOG_ROW_MAX];
	uint64_t blocks[LOG_ROW_MAX]; /* of long entries; 0: none */
	bool has_long;
	bool is_written;  /* the blocks are */
	bool is_in_doubt; /* its head may be set */
	/* Of a block that is being written. */
	struct log_entry block;
	uint64_t block_header;
	bool has_header;
	struct log_segment head;
	struct reef_access accesses[LOG_ROW_MAX + 2];
	uint8_t *cells; /* of a row of more than one, together */
};

static bool is_long(const struct reef_log *log, const struct iovec *entry)
{
	return entry->iov_len > log->options.cell;
}

/* --- long entries --- */

static void free_blocks(struct log_row *row)
{
	uint32_t i;

	for (i = 0; row->has_long && i < row->count; i++)
		if (row->blocks[i])
			reef_free(row->log->object.space, row->blocks[i], 0);
	memset(row->blocks, 0, row->count * sizeof(row->blocks[0]));
	row->is_written = false;
}

static int allocate_blocks(struct log_row *row)
{
	struct reef_log *log = row->log;
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < row->count; i++) {
		uint32_t size = (uint32_t)row->entries[i].iov_len;

		if (!is_long(log, &row->entries[i]))
			continue;
		row->has_long = true;
		rc = reef_alloc_kind(log->object.space, REEF_BLOCK_LOG_ENTRY,
				     log_step_size(log_entry_step(size)),
				     &row->blocks[i]);
		if (rc)
			row->blocks[i] = 0;
	}
	return rc;
}

/* -EAGAIN: done. */
static int allocate_anew(struct log_row *row)
{
	int rc;

	free_blocks(row);
	rc = allocate_blocks(row);
	return rc ? rc : -EAGAIN;
}

/* A position that the next draw is not below. Recovery looks from there on for
 * the word that names a block, so it is written before that is drawn. Where
 * nothing was drawn in this epoch it may be far behind, and all words in
 * between would be looked at for each block: so the tail is looked at first. */
static void catch_up(struct reef_log *log)
{
	uint64_t tail;

	if (log_is_single(log) || log->next_epoch == log->epoch ||
	    log_tail_position(log, &tail))
		return;
	if (tail > log->next)
		log->next = tail;
	log->next_epoch = log->epoch;
}

static uint64_t position_bound(const struct reef_log *log)
{
	return log->next > log->first ? log->next : log->first;
}

/* The WRITEs of a long entry, whole: nobody knows of it, so a doubt is no harm.
 */
static uint32_t add_block(struct log_row *row, uint32_t i,
			  struct reef_access *accesses)
{
	const struct iovec *entry = &row->entries[i];
	uint64_t at = row->blocks[i];
	uint32_t used = 0;

	row->block = (struct log_entry){
		.body = row->log->object.body,
		.position = position_bound(row->log),
		.size = (uint32_t)entry->iov_len,
		.crc = reef_crc32c(0, entry->iov_base, entry->iov_len),
	};
	row->has_header = reef_header_take(row->log->object.space, at,
					   &row->block_header);
	if (row->has_header)
		accesses[used++] = log_write_of(at - 8, &row->block_header, 8);
	accesses[used++] = log_write_of(at, &row->block, sizeof(row->block));
	accesses[used++] = log_write_of(at + sizeof(row->block),
					entry->iov_base, row->block.size);
	return used;
}

/* What add_block took is given back, if it was not written. */
static void end_block(struct log_row *row, uint32_t i, int rc)
{
	if (rc && row->has_header)
		reef_header_give(row->log->object.space, row->blocks[i]);
	row->has_header = false;
}

static int write_block(struct log_row *row, uint32_t i)
{
	struct reef_access accesses[3];
	uint32_t used = add_block(row, i, accesses);
	int rc, attempt = 0;

	do
		rc = reef_execute(row->log->reef, accesses, used);
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	end_block(row, i, rc);
	return rc;
}

/* WRITE the blocks, once. */
static int write_blocks(struct log_row *row)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; row->has_long && !row->is_written && !rc && i < row->count;
	     i++)
		if (row->blocks[i])
			rc = write_block(row, i);
	row->is_written |= !rc;
	return rc;
}

/* True if a long entry's block is in the extent of its word, and not written
 * yet: then its WRITEs go in front of the CAS (F3a), in the same list. An
 * extent is on one node, wherever it moves. */
static bool is_near(const struct log_row *row)
{
	return row->count == 1 && row->blocks[0] && !row->is_written &&
	       row->blocks[0] >> 32 == row->segment.at >> 32;
}

/* Nobody can tell yet whether a word names them: recovery is to ask when this
 * session has ended, and not before. */
static void stage_blocks(struct log_row *row)
{
	uint32_t i;

	for (i = 0; row->has_long && i < row->count; i++)
		if (row->blocks[i])
			(void)reef_block_stage(row->log->object.space,
					       row->blocks[i], true);
}

/* --- words --- */

static int make_words(struct log_row *row)
{
	struct reef_log *log = row->log;
	uint64_t block;
	uint32_t i, crc, size;
	int rc;

	for (i = 0; i < row->count; i++) {
		size = (uint32_t)row->entries[i].iov_len;
		if (!row->blocks[i]) {
			crc = (uint32_t)(row->position + i);
			crc = reef_crc32c(crc, row->entries[i].iov_base, size);
			row->words[i] = log_word_short(i, size, crc);
			continue;
		}
		rc = reef_short_address(log->object.space, row->blocks[i],
					&block);
		if (rc)
			return rc;
		row->words[i] = log_word_long(i, log_entry_step(size), block);
	}
	return 0;
}

static uint32_t slot_of(const struct log_row *row)
{
	return (uint32_t)(row->position % row->log->options.segment);
}

static uint64_t word_at(const struct log_row *row, uint32_t i)
{
	return row->segment.at + log_word_offset((uint64_t)slot_of(row) + i);
}

/* The WRITE of the cells, all in one. 0: there is nothing to write. */
static uint32_t add_cells(struct log_row *row, struct reef_access *access)
{
	const struct iovec *entry = row->entries;
	uint32_t cell = row->log->options.cell, i, size = 0;
	const void *from = entry->iov_base;

	if (row->count == 1 && !row->blocks[0])
		size = (uint32_t)entry->iov_len;
	for (i = 0; row->count > 1 && i < row->count; i++) {
		if (row->blocks[i] || !row->entries[i].iov_len)
			continue;
		memcpy(row->cells + (size_t)i * cell, row->entries[i].iov_base,
		       row->entries[i].iov_len);
		size = i * cell + (uint32_t)row->entries[i].iov_len;
		from = row->cells;
	}
	if (!size)
		return 0;
	*access = log_write_of(row->segment.at +
				       log_cell_offset(row->log, slot_of(row)),
			       from, size);
	return 1;
}

/* True if the CAS of word i was lost to a hole. */
static bool is_lost(const struct log_row *row, const struct reef_access *access,
		    uint32_t i)
{
	return access->result && access->result != row->words[i];
}

/* {WRITE cells; CAS members}. 1: a member was lost. */
static int put_members(struct log_row *row)
{
	struct reef_access *accesses = row->accesses;
	uint32_t used = add_cells(row, accesses), first = used, i;
	int rc;

	for (i = 1; i < row->count; i++)
		accesses[used++] =
			log_cas_of(word_at(row, i), 0, row->words[i]);
	rc = reef_execute(row->log->reef, accesses, used);
	for (i = 1; !rc && i < row->count; i++)
		if (is_lost(row, &accesses[first + i - 1], i))
			return 1;
	return rc;
}

/* True if an access may have happened, or may still. */
static bool is_doubt(int status)
{
	return status == -REEF_EINDOUBT || status == -ETIMEDOUT ||
	       status == -REEF_EFENCED || status == -REEF_ELOST;
}

/* What became of a block that was written in front of the CAS. Whoever finds
 * its word may free it: so its header is not written again, unless the word is
 * known not to name it. */
static void settle_block(struct log_row *row, int status)
{
	uint64_t word;

	if (is_doubt(status) &&
	    (reef_read(row->log->reef, word_at(row, 0), &word, 8) ||
	     word == row->words[0]))
		status = 0;
	row->is_written = !status;
	end_block(row, 0, status);
}

/* CAS of the head, after the cell or the block, if it is alone. 1: it was lost.
 */
static int put_head(struct log_row *row)
{
	const size_t from = offsetof(struct log_segment, next);
	const bool has_block = is_near(row);
	struct reef_access accesses[5], *cas;
	uint32_t used = 0;
	int rc;

	if (has_block)
		used = add_block(row, 0, accesses);
	else if (row->count == 1)
		used = add_cells(row, accesses);
	cas = &accesses[used];
	accesses[used++] = log_cas_of(word_at(row, 0), 0, row->words[0]);
	if (REEF_MUTATED(LOG_TAIL_TRUSTED))
		*cas = log_write_of(word_at(row, 0), &row->words[0], 8);
	if (REEF_MUTATED(LOG_WORD_FIRST) && used == 2) {
		struct reef_access cell = accesses[0];

		accesses[0] = *cas;
		accesses[1] = cell;
		accesses[1].flags = REEF_ORDERED;
		cas = &accesses[0];
	}
	accesses[used++] = log_read_of(row->segment.at + from, &row->head.next,
				       (uint32_t)(sizeof(row->head) - from));
	if (REEF_MUTATED(LOG_WAKE_EARLY)) {
		(void)reef_execute(row->log->reef, &accesses[--used], 1);
		(void)reef_sleep(2000000);
	}
	rc = reef_execute(row->log->reef, accesses, used);
	/* A node may have died after it did this, and others may have seen it.
	 */
	if (is_doubt(cas->status))
		row->is_in_doubt = true;
	if (has_block)
		settle_block(row, cas->status);
	/* The READ alone may have failed: then nobody is woken. */
	if (rc && !cas->status) {
		memset(&row->head, 0, sizeof(row->head));
		rc = rc == -REEF_EFENCED ? rc : 0;
	}
	return rc ? rc : is_lost(row, cas, 0);
}

/* Set all words. 0: the row is there.  1: another filled one of its places. */
static int put_row(struct log_row *row)
{
	int rc = -REEF_EINDOUBT, attempt;

	/* Nothing happens in memory that is known to be lost. */
	if (reef_is_lost(row->log->reef, row->segment.at))
		return -REEF_ELOST;
	if (REEF_MUTATED(LOG_ROW_EARLY) && row->count > 1)
		(void)put_head(row);
	for (attempt = 0; rc == -REEF_EINDOUBT && attempt < LOG_ATTEMPTS;
	     attempt++) {
		rc = row->count > 1 ? put_members(row) : 0;
		if (!rc)
			rc = put_head(row);
	}
	return rc;
}

/* Fill places that were drawn and are not used, so that readers need not. */
static void renounce(struct reef_log *log, uint64_t position, uint64_t count)
{
	const uint32_t size = log->options.segment;
	static const uint64_t zeros[LOG_ROW_MAX];
	struct log_found found;
	uint32_t slot, part;

	while (count) {
		slot = (uint32_t)(position % size);
		part = count < size - slot ? (uint32_t)count : size - slot;
		part = part < LOG_ROW_MAX ? part : LOG_ROW_MAX;
		if (!log_find(log, position / size, &found))
			(void)log_fill_zeros(log, found.at, slot, zeros, part);
		position += part;
		count -= part;
	}
}

/* A place was lost: no word of the row may count, and readers are to wait
 * longer from now on: (7) of layout.h. */
static int lose_row(struct log_row *row)
{
	struct reef_log *log = row->log;
	struct log_tail tail;
	uint64_t now, bound;
	int rc = 0;

	if (row->count > 1) {
		rc = log_cas(log->reef, word_at(row, 0), 0, LOG_HOLE, &now);
		if (rc)
			return rc;
		renounce(log, row->position, row->count);
	}
	if (log_is_single(log) || REEF_MUTATED(LOG_HOLE_FIXED))
		return 0;
	rc = log_tail_read(log, &tail);
	if (rc)
		return rc == -EAGAIN ? 0 : rc;
	bound = 2 * tail.bound + 1000;
	bound = bound < LOG_BOUND_MAX ? bound : LOG_BOUND_MAX;
	(void)reef_write(log->reef,
			 log->tail_at + offsetof(struct log_tail, bound),
			 &bound, 8);
	return 0;
}

/* --- where --- */

/* Make the segment that the last append found missing, before anything is
 * drawn: so where there is no room nothing happens. */
static int make_lacking(struct reef_log *log, uint32_t generation)
{
	struct log_found found;
	int rc;

	if (log->lacking == LOG_NOWHERE)
		return 0;
	rc = log_make(log, log->lacking, generation, &found);
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG)
		return rc;
	/* Anything else is found out with the number. */
	log->lacking = LOG_NOWHERE;
	return 0;
}

/* True if a row of so many fits into the segment of its first position. */
static bool fits(const struct reef_log *log, uint64_t position, uint32_t count)
{
	return position % log->options.segment + count <= log->options.segment;
}

/* SINGLE: the writer counts for itself. */
static int count_on(struct log_row *row)
{
	struct reef_log *log = row->log;
	uint32_t size = log->options.segment;
	struct log_found found;
	uint64_t end;
	int rc;

	if (!log->leads)
		return -EPERM;
	if (log_generation(log) != log->lead_generation) {
		log->leads = false;
		return -ESTALE;
	}
	if (log->gap) {
		rc = log_find(log, log->next / size, &found);
		if (!rc)
			rc = log_fill_zeros(log, found.at,
					    (uint32_t)(log->next % size),
					    (const uint64_t[1]){0}, 1);
		if (rc)
			return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
		/* The head decides for a whole row. */
		log->next += log->gap;
		log->gap = 0;
	}
	if (!fits(log, log->next, row->count)) {
		end = (log->next / size + 1) * size;
		renounce(log, log->next, end - log->next);
		log->next = end;
	}
	row->position = log->next;
	return 0;
}

/* Draw for one long entry, and WRITE its block meanwhile. */
static int draw_and_write(struct log_row *row)
{
	struct reef_access accesses[4];
	uint32_t used = add_block(row, 0, accesses), i;
	int rc = log_draw(row->log, 1 + (REEF_MUTATED(LOG_GUESS) ? 3 : 0),
			  accesses, used, &row->position),
	    written = 0;

	for (i = 0; i < used; i++)
		if (!written)
			written = accesses[i].status;
	end_block(row, 0, written);
	row->is_written = !written;
	/* Nothing was drawn, because the block's node has died. What was drawn
	 * is used with a block that is written by itself. */
	return rc == -EAGAIN && written == -REEF_ELOST ? allocate_anew(row)
						       : rc;
}

/* Get a number, for the whole row.  -EAGAIN: draw again. */
static int take_position(struct log_row *row)
{
	struct reef_log *log = row->log;
	int rc = make_lacking(log, log_is_single(log) ? log->lead_generation
						      : log_generation(log));

	if (rc)
		return rc;
	if (log_is_single(log))
		return count_on(row);
	if (REEF_MUTATED(LOG_GUESS) && row->count == 1 && log->guesses) {
		log->guesses--;
		row->position = log->next;
		return 0;
	}
	if (row->count == 1 && row->has_long && !row->is_written)
		rc = draw_and_write(row);
	else
		rc = log_draw(log,
			      row->count + (REEF_MUTATED(LOG_GUESS) ? 3 : 0),
			      NULL, 0, &row->position);
	log->guesses = 3;
	if (!rc && !fits(log, row->position, row->count)) {
		renounce(log, row->position, row->count);
		rc = -EAGAIN;
	}
	return rc;
}

/* Replace the tail, or finish what another began: (5) of layout.h. Of a SINGLE
 * log only the writer does, who then leads again. */
static int renew(struct reef_log *log)
{
	uint32_t generation = log_generation(log);
	bool mine = false;
	int rc = log_renew(log, generation, false, &mine, &log->next);

	if (!rc && mine && log->leads)
		log->lead_generation = log_next_generation(generation);
	return rc;
}

/* A generation is over, or a part of it is gone: go on with the next one.
 * -EAGAIN: draw again. */
static int go_on_elsewhere(struct log_row *row, bool is_gone)
{
	struct reef_log *log = row->log;
	uint32_t generation = log_generation(log);
	int rc = 0;

	if (!is_gone) {
		rc = log_refresh(log, true);
		/* Who made a segment of the next one did not come to its tail.
		 */
		is_gone = !rc && log_generation(log) == generation;
	}
	if (!rc && is_gone)
		rc = renew(log);
	if (!rc)
		rc = log_refresh(log, true);
	return rc ? rc : -EAGAIN;
}

/* Find the number's segment, or make it: (3) and (4) of layout.h. */
static int find_place(struct log_row *row)
{
	struct reef_log *log = row->log;
	uint64_t index = row->position / log->options.segment;
	uint32_t generation = log_generation(log);
	int rc = log_make(log, index, generation, &row->segment);

	if (!rc && row->segment.generation != generation &&
	    !REEF_MUTATED(LOG_GENERATION_IGNORED))
		rc = -ESTALE;
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG)
		log->lacking = index;
	if (rc == -ESTALE || rc == -ERANGE || rc == -ESHUTDOWN)
		return go_on_elsewhere(row, false);
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT)
		return go_on_elsewhere(row, true);
	return rc;
}

/* --- appending --- */

/* One number, from draw to end. 0: it is there.  -EAGAIN: once more. */
static int try_append(struct log_row *row)
{
	struct reef_log *log = row->log;
	int rc = take_position(row);

	if (!rc)
		rc = find_place(row);
	if (rc)
		return rc;
	rc = is_near(row) ? 0 : write_blocks(row);
	/* The node of a long entry's block died, not the log's. */
	if (rc == -REEF_ELOST)
		rc = allocate_anew(row);
	if (!rc)
		rc = make_words(row);
	if (rc)
		return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	rc = put_row(row);
	if (rc == 1) {
		/* Whatever was in doubt was settled: it is not there. */
		row->is_in_doubt = false;
		rc = lose_row(row);
		if (!rc)
			rc = log_refresh(log, true);
		if (!rc && log_is_single(log) &&
		    log_generation(log) == log->lead_generation)
			log->next = row->position + row->count;
		return rc ? rc : -EAGAIN;
	}
	if (row->is_in_doubt && rc == -ETIMEDOUT)
		stage_blocks(row);
	if (row->is_in_doubt && rc)
		return rc == -REEF_EFENCED || rc == -ETIMEDOUT ? rc
							       : -REEF_EINDOUBT;
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT)
		return go_on_elsewhere(row, true);
	return rc;
}

/* The row is there: see to what comes next, and to who waits. */
static void end_row(struct log_row *row)
{
	struct reef_log *log = row->log;
	uint32_t half = log->options.segment / 2;

	log->next = row->position + row->count;
	log->next_epoch = log->epoch;
	log->lacking = LOG_NOWHERE;
	if (slot_of(row) + row->count > half && !row->head.next)
		log->lacking = row->position / log->options.segment + 1;
	log_wake(log, row->segment.at, row->head.places);
}

/* All attempts within one reef_enter. */
static int append_inside(struct log_row *row)
{
	struct reef_log *log = row->log;
	int rc = log_enter(log, true), attempt;

	if (rc)
		return rc;
	rc = allocate_blocks(row);
	if (!rc && row->has_long)
		catch_up(log);
	if (!rc)
		rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = try_append(row);
	if (!rc)
		end_row(row);
	else if (!row->is_in_doubt)
		free_blocks(row);
	if (row->is_in_doubt && rc)
		log->gap = log->leads ? row->count : 0;
	log_leave(log);
	return rc;
}

static int append_row(struct log_row *row)
{
	struct reef_patience patience = {0};
	int rc, waited;

	for (;;) {
		rc = append_inside(row);
		if (rc != -ENOSPC)
			break;
		waited = reef_await_memory(row->log->object.space, &patience);
		if (waited) {
			rc = waited;
			break;
		}
	}
	return log_told(rc);
}

static int take_row(struct reef_log *log, struct log_row **out)
{
	struct log_row *row = log->row;

	if (!row) {
		row = calloc(1, sizeof(*row));
		if (!row)
			return -ENOMEM;
		row->log = log;
		log->row = row;
	}
	*out = row;
	return 0;
}

void log_row_free(struct log_row *row)
{
	if (row)
		free(row->cells);
	free(row);
}

static int prepare_row(struct log_row *row, const struct iovec *entries,
		       uint32_t count)
{
	if (count > 1 && !row->cells)
		row->cells = calloc(LOG_ROW_MAX, row->log->options.cell);
	if (count > 1 && !row->cells)
		return -ENOMEM;
	row->entries = entries;
	row->count = count;
	row->has_long = row->is_in_doubt = row->is_written = false;
	memset(row->blocks, 0, count * sizeof(row->blocks[0]));
	return 0;
}

int reef_log_append_many(struct reef_log *log, const struct iovec *entries,
			 uint32_t count, uint64_t *first)
{
	struct log_row *row;
	uint32_t i;
	int rc;

	if (!count || count > LOG_ROW_MAX ||
	    (count > 1 && count > log->options.segment / 4))
		return -EINVAL;
	for (i = 0; i < count; i++)
		if (entries[i].iov_len > log->options.entry_max)
			return -EMSGSIZE;
	if (log->sharded)
		return sharded_append(log, entries, count, first);
	rc = take_row(log, &row);
	if (!rc)
		rc = prepare_row(row, entries, count);
	if (!rc)
		rc = append_row(row);
	if (!rc && first)
		*first = row->position;
	return rc;
}

int reef_log_append(struct reef_log *log, const void *bytes, size_t size,
		    uint64_t *position)
{
	const struct iovec entry = {
		.iov_base = (void *)(uintptr_t)bytes,
		.iov_len = size,
	};

	return reef_log_append_many(log, &entry, 1, position);
}
