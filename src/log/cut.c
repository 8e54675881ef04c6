/* cut.c - making a cut of a SHARDED log: (S3) to (S7) of shard.h.
 *
 *   last cut --> directory of shards, counts --> parts --> block --CAS--> there
 *      ^                                                             |
 *      +------------------- another was quicker ---------------------+
 *
 * A cutter may die anywhere: its block is named by nothing, or its cut is
 * there. */
#include "log/shard.h"

#include "base/checksum.h"
#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define NOWHERE UINT32_MAX

/* --- counts --- */

/* (R10) A word that leads nowhere is as good as lost. */
static bool is_nowhere(int rc)
{
	return rc == -EFAULT || rc == -ERANGE || rc == -EINVAL;
}

/* One that is lost must not hide the others. */
static int read_each(struct reef_log *log, struct shard_found *found,
		     uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (found[i].rc)
			continue;
		found[i].rc = reef_read(log->reef, shard_head_at(found[i].at),
					&found[i].head, sizeof(found[i].head));
		if (found[i].rc == -REEF_EFENCED ||
		    found[i].rc == -REEF_EHOSTDEAD)
			return found[i].rc;
		if (is_nowhere(found[i].rc))
			found[i].rc = -REEF_ELOST;
	}
	return 0;
}

int shards_read(struct reef_log *log, struct shard_found *found, uint32_t count)
{
	struct reef_access accesses[SHARDS_READ];
	uint32_t i, used = 0;

	for (i = 0; i < count; i++) {
		found[i].block = found[i].word & LOG_BLOCK_MASK;
		found[i].rc = reef_long_address(log->object.space,
						found[i].block, &found[i].at);
		if (is_nowhere(found[i].rc))
			found[i].rc = -REEF_ELOST;
		if (!found[i].rc)
			accesses[used++] = log_read_of(
				shard_head_at(found[i].at), &found[i].head,
				sizeof(found[i].head));
	}
	return used && reef_execute(log->reef, accesses, used)
		       ? read_each(log, found, count)
		       : 0;
}

/* READ the heads of what was found from a number on. */
static int read_from(struct reef_log *log, uint32_t at)
{
	struct log_sharded *sharded = log->sharded;
	uint32_t part;
	int rc = 0;

	for (; !rc && at < sharded->found_count; at += part) {
		part = sharded->found_count - at;
		part = part < SHARDS_READ ? part : SHARDS_READ;
		rc = shards_read(log, &sharded->found[at], part);
	}
	return rc;
}

/* READ the directory, and the heads of those that were OPEN when it was read
 * before, in one go. */
static int read_known(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const uint32_t count = sharded->found_count;
	struct reef_access *accesses =
		calloc(count + (size_t)1, sizeof(*accesses));
	uint32_t i;
	int rc;

	if (!accesses)
		return -ENOMEM;
	accesses[0] = log_read_of(shard_slot_at(log, 0), sharded->words,
				  8 * log->options.segments);
	for (i = 0; i < count; i++)
		accesses[i + 1] = log_read_of(
			shard_head_at(sharded->found[i].at),
			&sharded->found[i].head, sizeof(struct shard_head));
	rc = reef_execute(log->reef, accesses, count + 1);
	free(accesses);
	return rc;
}

int shards_look(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const uint32_t count = sharded->found_count;
	uint32_t i, kept = 0;
	int rc = read_known(log);

	/* Some are lost, or so is all. */
	sharded->found_count = 0;
	if (rc && count)
		rc = rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD
			     ? rc
			     : read_known(log);
	else
		kept = count;
	/* A word does not return to what it was: it is the same shard. */
	for (i = 0; !rc && i < kept; i++) {
		struct shard_found *found = &sharded->found[i];

		if (found->rc || sharded->words[found->index] != found->word)
			continue;
		sharded->words[found->index] = 0;
		sharded->found[sharded->found_count++] = *found;
	}
	kept = sharded->found_count;
	for (i = 0; !rc && i < log->options.segments; i++)
		if (shard_word_state(sharded->words[i]) == SHARD_OPEN)
			sharded->found[sharded->found_count++] =
				(struct shard_found){
					.index = i,
					.word = sharded->words[i],
					.column = NOWHERE,
				};
	return rc ? rc : read_from(log, kept);
}

/* --- parts --- */

struct making {
	struct reef_log *log;
	struct log_entry *entry; /* the whole block, from here on */
	struct log_cut *head;
	struct cut_part *parts;
	bool is_new; /* it says something that the last one does not */
};

/* Which part of a cut is that of a shard; NOWHERE: none. Mostly that is known
 * from the cut before. */
static uint32_t find_column(const struct cut *cut,
			    const struct shard_found *found)
{
	uint32_t i;

	if (found->column < cut->head.count &&
	    cut_part_block(&cut->parts[found->column]) == found->block)
		return found->column;
	for (i = 0; i < cut->head.count; i++)
		if (cut_part_block(&cut->parts[i]) == found->block)
			return i;
	return NOWHERE;
}

static void add_part(struct making *making, uint64_t block, uint32_t from,
		     uint32_t to, uint64_t bytes, bool is_done)
{
	struct cut_part *part = &making->parts[making->head->count++];

	*part = cut_part_make(block, from, to, bytes, is_done);
	part->place = cut_part_place(part, making->log->sharded->next,
				     making->head->end);
	making->head->end += to - from;
	making->is_new |= to > from || is_done;
}

/* A shard that is in the last cut goes on from there. */
static void continue_part(struct making *making, const struct cut_part *last,
			  const struct shard_found *found)
{
	const uint32_t size = making->log->options.segment;
	uint32_t from = cut_part_to(last), to = (uint32_t)found->head.count;
	uint64_t bytes = found->head.bytes, before = cut_part_bytes(last);

	/* It cannot be read now, but later. */
	if (found->rc) {
		add_part(making, found->block, from, from, before, false);
		return;
	}
	to = to < size ? to : size;
	if (to < from && !REEF_MUTATED(LOG_CUT_BACK))
		to = from;
	if (to < from)
		from = to > 0 ? to - 1 : 0;
	bytes = bytes > before ? bytes : before;
	making->head->bytes += bytes - before;
	add_part(making, found->block, from, to, bytes,
		 shard_is_whole(making->log, found->head.count));
}

/* (S7): what is counted by now is in no cut any more. */
static int restart_part(struct making *making, const struct shard_found *found)
{
	uint32_t count = (uint32_t)found->head.count;

	if (found->rc)
		return found->rc;
	if (!shard_is_whole(making->log, found->head.count))
		add_part(making, found->block,
			 REEF_MUTATED(LOG_CUT_TWICE) ? 0 : count, count,
			 found->head.bytes, false);
	return 0;
}

/* (S7); those who have not joined yet come last: (S12). */
static int restart_parts(struct making *making)
{
	const struct log_sharded *sharded = making->log->sharded;
	uint32_t i, pass;
	int rc = 0;

	for (pass = 0; pass < 2; pass++)
		for (i = 0; !rc && i < sharded->found_count &&
			    making->head->count < CUT_PARTS_MAX;
		     i++)
			if (sharded->found[i].rc != -REEF_ELOST &&
			    (sharded->found[i].head.joined ? 0 : 1) == pass)
				rc = restart_part(making, &sharded->found[i]);
	making->is_new = true;
	return rc;
}

/* Give each shard a column: that of the last cut, or one that nobody has.
 * Returns how many columns there are. */
static uint32_t fill_columns(struct making *making,
			     struct shard_found **columns)
{
	struct log_sharded *sharded = making->log->sharded;
	const struct cut *last = &sharded->last;
	uint32_t i, count = last->head.count, empty = 0;

	for (i = 0; i < sharded->found_count; i++) {
		struct shard_found *found = &sharded->found[i];

		found->column = find_column(last, found);
		if (found->column != NOWHERE && found->rc != -REEF_ELOST &&
		    !(last->parts[found->column].where & CUT_DONE))
			columns[found->column] = found;
	}
	/* What is not there any more is said by its absence. */
	for (i = 0; i < count; i++)
		making->is_new |= !columns[i] &&
				  cut_part_block(&last->parts[i]) &&
				  !(last->parts[i].where & CUT_DONE);
	for (i = 0; i < sharded->found_count; i++) {
		struct shard_found *found = &sharded->found[i];

		/* (S5) */
		if (found->column != NOWHERE || found->rc || found->head.joined)
			continue;
		while (empty < count && columns[empty])
			empty++;
		/* (S12) */
		if (empty == CUT_PARTS_MAX)
			break;
		columns[empty] = found;
		count += empty == count;
		making->is_new = true;
	}
	while (count && !columns[count - 1])
		count--;
	return count;
}

static int add_parts(struct making *making)
{
	const struct log_sharded *sharded = making->log->sharded;
	const struct cut *last = &sharded->last;
	struct shard_found **columns;
	uint32_t i, count, taken = 0;

	if (last->is_lost)
		return restart_parts(making);
	columns = calloc(last->head.count + sharded->found_count + (size_t)1,
			 sizeof(struct shard_found *));
	if (!columns)
		return -ENOMEM;
	count = fill_columns(making, columns);
	for (i = 0; i < count; i++)
		taken += columns[i] != NULL;
	for (i = 0; i < count; i++) {
		uint32_t column = making->head->count;

		/* Where most are empty all move up. */
		if (!columns[i] && taken >= count / 4)
			add_part(making, 0, 0, 0, 0, false);
		else if (columns[i] && columns[i]->column != NOWHERE)
			continue_part(making, &last->parts[columns[i]->column],
				      columns[i]);
		else if (columns[i])
			add_part(making, columns[i]->block, 0, 0, 0, false);
		if (columns[i])
			columns[i]->column = column;
	}
	free(columns);
	return 0;
}

/* --- the block --- */

/* Raise body.high, so that the cut may end there: (S7). */
static int raise_high(struct reef_log *log, uint64_t end)
{
	if (log->sharded->high >= end)
		return 0;
	return log_raise(log,
			 log->object.body + offsetof(struct log_body, high),
			 end + log->options.segment, &log->sharded->high);
}

static int write_block(struct reef_log *log, uint64_t at, const void *bytes,
		       uint32_t size)
{
	uint64_t header;
	struct reef_access accesses[2];
	uint32_t used = 0;
	bool has_header = reef_header_take(log->object.space, at, &header);
	int rc, attempt = 0;

	if (has_header)
		accesses[used++] = log_write_of(at - 8, &header, 8);
	accesses[used++] = log_write_of(at, bytes, size);
	do
		rc = reef_execute(log->reef, accesses, used);
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	if (rc && has_header)
		reef_header_give(log->object.space, at);
	return rc;
}

/* Find the place of the next word, or make it. */
static int find_place(struct reef_log *log, struct log_found *segment)
{
	uint64_t index = log->sharded->next / log->options.segment;
	uint32_t generation = log_generation(log);
	int rc = log_make(log, index, generation, segment);

	if (!rc && segment->generation != generation)
		rc = -ESTALE;
	if (rc == -ESTALE || rc == -REEF_ELOST || rc == -REEF_ECORRUPT ||
	    rc == -ERANGE) {
		rc = log_refresh(log, true);
		if (!rc && log_generation(log) == generation)
			rc = log_renew(log, generation, false, NULL, NULL);
		if (!rc)
			rc = log_refresh(log, true);
		return rc ? rc : -EAGAIN;
	}
	return rc;
}

/* CAS the next word. 1: the cut is there.  0: another is. */
static int publish(struct reef_log *log, const struct log_found *segment,
		   uint64_t word)
{
	const size_t from = offsetof(struct log_segment, next);
	uint32_t slot = (uint32_t)(log->sharded->next % log->options.segment);
	uint64_t at = segment->at + log_word_offset(slot);
	struct log_segment head = {0};
	struct reef_access accesses[] = {
		log_cas_of(at, 0, word),
		log_read_of(segment->at + from, &head.next,
			    (uint32_t)(sizeof(head) - from)),
	};
	uint64_t now = 0;
	int rc = reef_execute(log->reef, accesses, 2);

	if (!rc || !accesses[0].status)
		now = accesses[0].result ? accesses[0].result : word;
	else if (rc == -REEF_EINDOUBT)
		rc = reef_read(log->reef, at, &now, 8);
	if (rc && accesses[0].status)
		return rc;
	if (now != word)
		return 0;
	if (slot + 1 > log->options.segment / 2 && !head.next)
		log->lacking = segment->index + 1;
	log_wake(log, segment->at, head.places);
	return 1;
}

/* The mutant of (S4): cutters of one index share its memory. */
static void overwrite(struct reef_log *log, const struct log_found *segment,
		      const void *bytes, uint32_t size)
{
	uint32_t slot = (uint32_t)(log->sharded->next % log->options.segment);
	uint64_t word, at;

	if (!reef_read(log->reef, segment->at + log_word_offset(slot), &word,
		       8) &&
	    log_word_is_long(word) &&
	    !reef_long_address(log->object.space, word & LOG_BLOCK_MASK, &at))
		(void)reef_write(log->reef, at, bytes, size);
}

/* The cut that we made is the last one that we know. */
static void take_own(struct making *making)
{
	struct log_sharded *sharded = making->log->sharded;
	size_t size =
		sizeof(*making->parts) * (making->head->count + (size_t)1);
	struct cut cut = {
		.index = sharded->next,
		.head = *making->head,
		.parts = malloc(size),
	};

	/* Without memory it is read, as others' are. */
	if (!cut.parts)
		return;
	memcpy(cut.parts, making->parts, size - sizeof(*making->parts));
	sharded->made = sharded->next++;
	sharded->shards = cut_shards(&cut);
	cuts_note(&sharded->own, &cut);
	cut_free(&sharded->last);
	sharded->last = cut;
}

static int put_cut(struct making *making)
{
	struct reef_log *log = making->log;
	struct log_entry *entry = making->entry;
	uint32_t step = log_entry_step(entry->size);
	uint32_t size = log_step_size(step);
	struct log_found segment;
	uint64_t at, block;
	int rc = find_place(log, &segment);

	if (rc)
		return rc;
	rc = reef_alloc_kind(log->object.space, REEF_BLOCK_LOG_ENTRY,
			     log_step_size(step), &at);
	if (rc)
		return rc;
	rc = write_block(log, at, entry, size);
	if (!rc)
		rc = reef_short_address(log->object.space, at, &block);
	if (!rc)
		rc = publish(log, &segment, log_word_long(0, step, block));
	else
		rc = rc == -REEF_ELOST || rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	if (!rc && REEF_MUTATED(LOG_CUT_CELL))
		overwrite(log, &segment, entry, size);
	if (rc == 1)
		take_own(making);
	/* A block that its word may name is left to recovery. */
	if (!rc || rc == -EAGAIN)
		reef_free(log->object.space, at, 0);
	if (rc == -REEF_ELOST) {
		rc = log_refresh(log, true);
		rc = rc ? rc : -EAGAIN;
	}
	return rc;
}

/* --- cutting --- */

/* One attempt, from the last cut. 1: it is there.  0: another is, or there is
 * nothing to take in: then *is_idle. */
static int try_cut(struct reef_log *log, bool *is_idle)
{
	struct log_sharded *sharded = log->sharded;
	const struct cut *last = &sharded->last;
	bool is_first = last->index == LOG_NOWHERE;
	struct making making = {.log = log};
	size_t size = sizeof(*making.head) +
		      sizeof(*making.parts) *
			      ((size_t)last->head.count + sharded->found_count);
	int rc;

	/* All of the block is written, so that nothing but 0 is behind the last
	 * part: (S11). */
	making.entry = calloc(1, log_step_size(log_entry_step((uint32_t)size)));
	if (!making.entry)
		return -ENOMEM;
	making.head = (struct log_cut *)(making.entry + 1);
	making.parts = (struct cut_part *)(making.head + 1);
	making.head->first = making.head->end = is_first ? 0 : last->head.end;
	making.head->bytes = is_first ? 0 : last->head.bytes;
	/* Bytes grow from cut to cut, whatever the lost one had. */
	if (last->is_lost)
		making.head->bytes = last->head.end * log->options.entry_max;
	making.head->is_restart = last->is_lost;
	rc = add_parts(&making);
	*is_idle = !rc && !making.is_new;
	if (!rc && !*is_idle)
		rc = raise_high(log, making.head->end);
	if (!rc && !*is_idle) {
		making.entry->body = log->object.body;
		making.entry->position = sharded->next;
		making.entry->size =
			(uint32_t)(sizeof(*making.head) +
				   sizeof(*making.parts) * making.head->count);
		making.entry->crc =
			reef_crc32c(0, making.head, making.entry->size);
		rc = put_cut(&making);
	}
	free(making.entry);
	return rc;
}

/* One look at all, and a cut of it, as the one behind the last that is known.
 * 1: it is there.  0: another was quicker; or there is nothing: *is_idle. */
static int cut_once(struct reef_log *log, bool *is_idle)
{
	struct log_sharded *sharded = log->sharded;
	int rc = 0;

	*is_idle = false;
	if (sharded->last.index == LOG_NOWHERE || sharded->last.is_partial)
		rc = cuts_follow(log);
	if (!rc && sharded->is_at_end)
		return -ESHUTDOWN;
	if (!rc && !(REEF_MUTATED(LOG_CUT_BACK) && sharded->found_count))
		rc = shards_look(log);
	if (!rc)
		rc = try_cut(log, is_idle);
	if (rc == -EAGAIN || rc == -REEF_EINDOUBT || (!rc && !*is_idle)) {
		int followed = cuts_follow(log);

		return followed ? followed : rc ? -EAGAIN : 0;
	}
	return rc;
}

bool cut_is_decided(const struct shard_own *own)
{
	if (own->is_joining || own->is_ending)
		return own->is_gone ||
		       (own->is_joining ? own->is_member : own->is_done);
	return own->want != UINT64_MAX &&
	       (own->is_found || own->is_unknown || own->is_gone);
}

int cut_now(struct reef_log *log, bool *made)
{
	struct log_sharded *sharded = log->sharded;
	uint64_t before = sharded->last.index;
	bool is_idle = false;
	int rc, attempt = 0;

	/* Who was quicker may have read the counts before this call. */
	do
		rc = cut_once(log, &is_idle);
	while ((rc == -EAGAIN ||
		(!rc && !is_idle && !cut_is_decided(&sharded->own))) &&
	       ++attempt < LOG_ATTEMPTS);
	/* Nothing is new beside the last that is known: is that the last? */
	if (!rc && is_idle)
		rc = cuts_follow(log);
	else if (!rc && !cut_is_decided(&sharded->own))
		rc = -EBUSY;
	if (made)
		*made = sharded->last.index != before;
	return rc < 0 ? rc : 0;
}
