/* cuts.c - the cuts of a SHARDED log: READ them, follow them, find one. The
 * rules are in shard.h.
 *
 *   cuts_follow   word by word from the last one that is known; from the end of
 *                 the directory, where that one is far behind, or trimmed
 *   cuts_find     bisection: positions grow with the index */
#include "log/shard.h"

#include "base/checksum.h"

#include <stdlib.h>
#include <string.h>

#define FAR 8u	     /* pages of cuts that are not followed one by one */
#define PEEK_PAGE 8u /* cuts */
#define PEEKED 4u    /* parts */

void cut_free(struct cut *cut)
{
	free(cut->parts);
	cut->parts = NULL;
}

uint32_t cut_shards(const struct cut *cut)
{
	uint32_t i, count = 0;

	for (i = 0; i < cut->head.count; i++)
		count += cut_part_block(&cut->parts[i]) != 0;
	return count;
}

static void move_cut(struct cut *to, struct cut *from)
{
	cut_free(to);
	*to = *from;
	from->parts = NULL;
}

int cuts_create(struct reef_log *log)
{
	struct log_sharded *sharded = calloc(1, sizeof(*sharded));
	const uint32_t shards = log->options.segments;

	log->sharded = sharded;
	if (!sharded)
		return -ENOMEM;
	sharded->last.index = sharded->made = LOG_NOWHERE;
	sharded->words = calloc(shards, 8);
	sharded->found = calloc(shards, sizeof(*sharded->found));
	sharded->slots = calloc(log->window, sizeof(*sharded->slots));
	return sharded->words && sharded->found && sharded->slots ? 0 : -ENOMEM;
}

void cuts_destroy(struct log_sharded *sharded)
{
	uint32_t i;

	if (!sharded)
		return;
	for (i = 0; i < sharded->page_count; i++)
		cut_free(&sharded->page[i]);
	cut_free(&sharded->last);
	free(sharded->words);
	free(sharded->found);
	free(sharded->slots);
	free(sharded->row);
	free(sharded);
}

/* --- one cut --- */

/* (R10) Whether a block is the cut of that index; then *out is it. */
static bool decode(const struct reef_log *log, const uint8_t *bytes,
		   uint32_t room, uint64_t index, struct cut *out)
{
	const struct log_entry *entry = (const struct log_entry *)(void *)bytes;
	const struct log_cut *head = (const struct log_cut *)(entry + 1);
	const struct cut_part *parts = (const struct cut_part *)(head + 1);
	uint64_t sum = 0, size;
	uint32_t i;

	size = sizeof(*head) + sizeof(*parts) * (uint64_t)head->count;
	if (entry->body != log->object.body || entry->position != index ||
	    entry->size != size || sizeof(*entry) + size > room ||
	    reef_crc32c(0, head, size) != entry->crc)
		return false;
	for (i = 0; i < head->count; i++) {
		uint32_t from = cut_part_from(&parts[i]);
		uint32_t to = cut_part_to(&parts[i]);

		if (from > to || to > log->options.segment ||
		    parts[i].place !=
			    cut_part_place(&parts[i], index, head->first + sum))
			return false;
		sum += to - from;
	}
	if (head->end - head->first != sum)
		return false;
	*out = (struct cut){.index = index, .head = *head};
	out->parts = malloc(sizeof(*parts) * (head->count + UINT64_C(1)));
	if (out->parts)
		memcpy(out->parts, parts, sizeof(*parts) * head->count);
	return out->parts;
}

/* True if what was to be read is gone for good, or nonsense. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || rc == -REEF_ECORRUPT || rc == -EFAULT ||
	       rc == -ERANGE || rc == -EINVAL;
}

struct blocks { /* of cuts that are READ at once */
	uint64_t index[CUTS_PAGE], at[CUTS_PAGE];
	uint32_t size[CUTS_PAGE];
	uint8_t *bytes[CUTS_PAGE];
	int rc[CUTS_PAGE];
	uint32_t count;
};

static void add_block(struct reef_log *log, struct blocks *blocks,
		      uint64_t index, uint64_t word)
{
	uint32_t i = blocks->count++;

	blocks->index[i] = index;
	blocks->bytes[i] = NULL;
	blocks->rc[i] = -REEF_ECORRUPT;
	if (log_word_state(word) != LOG_WORD_PRESENT || !log_word_is_long(word))
		return;
	blocks->size[i] = log_step_size(log_word_step(word));
	blocks->rc[i] = reef_long_address(
		log->object.space, word & LOG_BLOCK_MASK, &blocks->at[i]);
}

static void keep_last(struct blocks *blocks)
{
	const uint32_t last = blocks->count - 1;

	blocks->index[0] = blocks->index[last];
	blocks->at[0] = blocks->at[last];
	blocks->size[0] = blocks->size[last];
	blocks->rc[0] = blocks->rc[last];
	blocks->count = 1;
}

static int read_blocks(struct reef_log *log, struct blocks *blocks)
{
	struct reef_access accesses[CUTS_PAGE];
	uint32_t i, used = 0;
	int rc;

	for (i = 0; i < blocks->count; i++) {
		if (blocks->rc[i])
			continue;
		blocks->bytes[i] = malloc(blocks->size[i]);
		if (!blocks->bytes[i])
			return -ENOMEM;
		accesses[used++] = log_read_of(blocks->at[i], blocks->bytes[i],
					       blocks->size[i]);
	}
	rc = used ? reef_execute(log->reef, accesses, used) : 0;
	/* One that is lost must not hide the others. */
	for (i = 0; rc && i < blocks->count; i++)
		if (!blocks->rc[i])
			blocks->rc[i] =
				reef_read(log->reef, blocks->at[i],
					  blocks->bytes[i], blocks->size[i]);
	for (i = 0; i < blocks->count; i++)
		if (blocks->rc[i] && !is_gone(blocks->rc[i]))
			return blocks->rc[i];
	return 0;
}

static int decode_blocks(struct reef_log *log, struct blocks *blocks,
			 struct cut *out)
{
	uint32_t i;
	int rc = read_blocks(log, blocks);

	for (i = 0; !rc && i < blocks->count; i++)
		if (blocks->rc[i] ||
		    !decode(log, blocks->bytes[i], blocks->size[i],
			    blocks->index[i], &out[i]))
			out[i] = (struct cut){
				.index = blocks->index[i],
				.is_lost = true,
			};
	for (i = 0; i < blocks->count; i++)
		free(blocks->bytes[i]);
	return rc;
}

/* --- a run of them --- */

/* READ words from *index on, in one segment; those up to the first 0 are added.
 * True in *is_end: there is a 0. */
static int load_words(struct reef_log *log, uint64_t *index, uint32_t most,
		      struct blocks *blocks, bool *is_end)
{
	const uint32_t size = log->options.segment;
	uint32_t slot = (uint32_t)(*index % size), count, i;
	uint64_t words[CUTS_PAGE];
	struct log_found found;
	int rc = log_find(log, *index / size, &found);

	if (rc)
		return rc;
	count = size - slot < most ? size - slot : most;
	rc = reef_read(log->reef, found.at + log_word_offset(slot), words,
		       8 * (size_t)count);
	if (rc)
		return rc;
	for (i = 0; i < count && words[i]; i++, ++*index)
		if (words[i] != LOG_HOLE)
			add_block(log, blocks, *index, words[i]);
	*is_end = i < count;
	return 0;
}

/* As cuts_load; is_last: of those only the last one. */
static int load_cuts(struct reef_log *log, uint64_t *index, struct cut *out,
		     uint32_t most, bool is_last, uint32_t *count)
{
	const uint32_t size = log->options.segment;
	struct blocks blocks = {.count = 0};
	uint64_t word;
	bool is_end = false;
	int rc = 0;

	*count = 0;
	most = most < CUTS_PAGE ? most : CUTS_PAGE;
	while (!rc && !is_end && !blocks.count)
		rc = load_words(log, index, most, &blocks, &is_end);
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT) {
		/* A segment is; but not the directory? */
		rc = reef_read(log->reef, log->object.body, &word, 8);
		if (rc)
			return rc;
		*index = (*index / size + 1) * size;
		out[0] = (struct cut){.index = *index - 1, .is_lost = true};
		*count = 1;
		return 0;
	}
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	if (is_last && blocks.count > 1)
		keep_last(&blocks);
	rc = decode_blocks(log, &blocks, out);
	if (!rc)
		*count = blocks.count;
	return rc;
}

int cuts_load(struct reef_log *log, uint64_t *index, struct cut *out,
	      uint32_t most, uint32_t *count)
{
	return load_cuts(log, index, out, most, false, count);
}

/* --- following --- */

void cuts_want(struct reef_log *log, uint64_t entry)
{
	struct shard_own *own = &log->sharded->own;

	own->want = entry;
	own->is_found = own->is_unknown = false;
}

/* Note what the own part of a cut says. */
static void note_part(struct shard_own *own, const struct cut_part *part,
		      uint32_t number)
{
	uint64_t from = cut_part_from(part), to = cut_part_to(part);

	own->is_member = true;
	own->cut = to;
	own->part = number;
	own->is_done |= (part->where & CUT_DONE) != 0;
	if (own->want == UINT64_MAX || own->is_found)
		return;
	own->is_unknown = from > own->want;
	own->is_found = from <= own->want && own->want < to;
	own->position = (part->place & CUT_PLACE_MASK) + own->want - from;
}

void cuts_note(struct shard_own *own, const struct cut *cut)
{
	uint32_t i;

	if (!own->at)
		return;
	if (cut->is_lost) {
		own->is_unknown |= own->want != UINT64_MAX && !own->is_found;
		return;
	}
	for (i = 0; i < cut->head.count; i++)
		if (cut_part_block(&cut->parts[i]) == own->block)
			break;
	if (i < cut->head.count)
		note_part(own, &cut->parts[i], i);
	else
		own->is_gone |= own->is_member;
}

/* The last cut is one that cannot be read: all positions before body.high may
 * have been given out. */
static int place_lost(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	uint64_t high;
	int rc = reef_read(log->reef,
			   log->object.body + offsetof(struct log_body, high),
			   &high, 8);

	if (rc)
		return rc;
	sharded->high = high;
	sharded->last.head.first = sharded->last.head.end = high;
	return 0;
}

static void take_last(struct reef_log *log, struct cut *cut)
{
	cuts_note(&log->sharded->own, cut);
	move_cut(&log->sharded->last, cut);
}

/* The highest index of a segment that has a cut. 1: none has.  2: it is lost.
 */
static int find_highest(struct reef_log *log, uint64_t index, uint64_t *highest)
{
	const uint32_t size = log->options.segment;
	uint64_t *words = malloc(8 * (size_t)size);
	struct log_found found;
	uint32_t i = size;
	int rc = words ? log_find(log, index, &found) : -ENOMEM;

	if (!rc)
		rc = reef_read(log->reef, found.at + log_word_offset(0), words,
			       8 * (size_t)size);
	while (!rc && i && (!words[i - 1] || words[i - 1] == LOG_HOLE))
		i--;
	free(words);
	*highest = index * size + (i ? i - 1 : 0);
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT) {
		*highest = (index + 1) * size - 1;
		return 2;
	}
	/* SEALED, or taken out just now. */
	if (rc == -ESHUTDOWN || rc == -ERANGE || rc == -ENOENT)
		return 1;
	return rc ? rc : !i;
}

/* Scan the directory from its end for the last cut. 1: there is none.  2: it is
 * lost. *lowest: the first index that was looked at. */
static int scan_back(struct reef_log *log, uint64_t *highest, uint64_t *lowest)
{
	struct log_map map;
	uint64_t index;
	uint32_t looked = 0;
	int rc = log_map_read(log, &map);

	*lowest = 0;
	if (rc)
		return rc;
	free(map.slots);
	if (log_tail_state(map.body.tail) == LOG_DROPPED)
		return -ESTALE;
	if (map.is_empty)
		return 1;
	rc = 1;
	index = map.last + 1;
	while (rc == 1 && index && looked++ <= map.count) {
		rc = find_highest(log, --index, highest);
		*lowest = index * log->options.segment;
	}
	return rc;
}

/* Begin with the last one that the directory leads to. */
static int jump(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	struct shard_own *own = &sharded->own;
	struct cut cut = {.index = LOG_NOWHERE};
	uint64_t highest = 0, lowest;
	uint32_t count = 1;
	int rc = scan_back(log, &highest, &lowest);

	if (rc < 0)
		return rc;
	cut_free(&sharded->last);
	sharded->last = cut;
	sharded->next = lowest;
	if (rc == 1)
		return 0;
	sharded->next = highest;
	if (rc == 2) {
		cut = (struct cut){.index = sharded->next++, .is_lost = true};
		rc = 0;
	} else {
		rc = cuts_load(log, &sharded->next, &cut, 1, &count);
	}
	if (rc || !count)
		return rc ? rc : -EAGAIN;
	take_last(log, &cut);
	/* A shard that is done with, by now, may have been cut in between. */
	own->is_unknown |=
		own->is_gone && own->want != UINT64_MAX && !own->is_found;
	return sharded->last.is_lost ? place_lost(log) : 0;
}

static int follow_page(struct reef_log *log, uint32_t *count)
{
	struct log_sharded *sharded = log->sharded;
	struct cut cuts[CUTS_PAGE];
	uint64_t next = sharded->next;
	uint32_t i;
	/* Who has no entries in them needs none but the last. */
	int rc = load_cuts(log, &next, cuts, CUTS_PAGE,
			   !sharded->own.at || !sharded->own.is_member, count);

	if (!rc)
		sharded->next = next;
	if (rc == -ESHUTDOWN) {
		sharded->is_at_end = true;
		*count = 0;
		return 0;
	}
	for (i = 0; !rc && i < *count; i++)
		take_last(log, &cuts[i]);
	if (!rc && *count && sharded->last.is_lost)
		rc = place_lost(log);
	else if (!rc && *count)
		sharded->shards = cut_shards(&sharded->last);
	return rc;
}

int cuts_follow(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	uint32_t count = 1, pages = 0, attempt = 0;
	int rc = sharded->last.index == LOG_NOWHERE ? jump(log) : 0;

	/* All of the last one is wanted now. */
	if (!rc && sharded->last.is_partial)
		sharded->next = sharded->last.index;
	sharded->looked_ns = reef_now_ns();
	while (!rc && count) {
		rc = follow_page(log, &count);
		if (rc == -ERANGE ||
		    (!rc && ++pages == FAR && sharded->own.want == UINT64_MAX))
			rc = ++attempt < LOG_ATTEMPTS ? jump(log) : -EBUSY;
	}
	return rc;
}

/* --- the own part --- */

/* READ the parts of cuts from a number on, about where the own one was. What is
 * behind the last part is 0. */
static int read_parts(struct reef_log *log, const struct blocks *blocks,
		      uint32_t first, struct cut_part parts[][PEEKED])
{
	const uint32_t at = sizeof(struct log_entry) + sizeof(struct log_cut);
	const uint32_t part = (uint32_t)sizeof(struct cut_part);
	struct reef_access accesses[CUTS_PAGE];
	uint32_t i, size;

	memset(parts, 0, blocks->count * sizeof(parts[0]));
	for (i = 0; i < blocks->count; i++) {
		if (blocks->rc[i] || at + part * (first + 1) > blocks->size[i])
			return -ENODATA;
		size = (blocks->size[i] - at) / part - first;
		size = part * (size < PEEKED ? size : PEEKED);
		accesses[i] = log_read_of(blocks->at[i] + at + part * first,
					  parts[i], size);
	}
	return i ? reef_execute(log->reef, accesses, i) : 0;
}

/* Find the own part among those. False: it is not there. */
static bool note_parts(struct shard_own *own, const struct cut_part *parts,
		       uint32_t first, uint64_t index)
{
	uint32_t i;

	for (i = 0; i < PEEKED; i++) {
		if (cut_part_block(&parts[i]) != own->block ||
		    parts[i].place !=
			    cut_part_place(&parts[i], index,
					   parts[i].place & CUT_PLACE_MASK))
			continue;
		note_part(own, &parts[i], first + i);
		return true;
	}
	return false;
}

/* 1: there may be more.  0: that is all.  -ENODATA: the own part is not where
 * it was. */
static int peek_page(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	struct cut_part parts[PEEK_PAGE][PEEKED];
	struct blocks blocks = {.count = 0};
	uint64_t next = sharded->next;
	const uint32_t first = sharded->own.part & ~1u;
	bool is_end = false;
	uint32_t i;
	int rc = load_words(log, &next, PEEK_PAGE, &blocks, &is_end);

	if (rc == -ENOENT)
		return 0;
	if (rc)
		return -ENODATA;
	rc = read_parts(log, &blocks, first, parts);
	for (i = 0; !rc && i < blocks.count; i++)
		if (!note_parts(&sharded->own, parts[i], first,
				blocks.index[i]))
			return -ENODATA;
	if (rc)
		return rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD ? rc
								    : -ENODATA;
	sharded->next = next;
	if (blocks.count) {
		cut_free(&sharded->last);
		sharded->last = (struct cut){
			.index = blocks.index[blocks.count - 1],
			.is_partial = true,
		};
		sharded->shards += sharded->shards < 2;
	}
	return !is_end;
}

int cuts_peek(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const struct shard_own *own = &sharded->own;
	uint32_t pages = 0;
	int rc = 1;

	if (!own->at || !own->is_member || sharded->last.is_lost ||
	    sharded->last.index == LOG_NOWHERE)
		return cuts_follow(log);
	while (rc == 1 && ++pages < FAR)
		rc = peek_page(log);
	sharded->looked_ns = reef_now_ns();
	return rc == -ENODATA || rc == 1 ? cuts_follow(log) : rc;
}

/* --- finding --- */

/* The lowest index that has a cut's word. */
static int find_lowest(struct reef_log *log, uint64_t *index)
{
	struct log_map map;
	uint64_t at;
	uint32_t i;
	int rc = log_map_read(log, &map);

	*index = LOG_NOWHERE;
	for (i = 0; !rc && i < log->options.segments; i++) {
		if (log_slot_state(map.slots[i]) != LOG_SLOT_MADE)
			continue;
		at = log_slot_index(log, map.base, i, map.slots[i]);
		if (at < *index)
			*index = at;
	}
	if (!rc)
		free(map.slots);
	if (!rc && log_tail_state(map.body.tail) == LOG_DROPPED)
		rc = -ESTALE;
	if (*index != LOG_NOWHERE)
		*index *= log->options.segment;
	return rc;
}

/* READ the first cut from an index on, below another, that can be read. */
static int load_from(struct reef_log *log, uint64_t index, uint64_t end,
		     struct cut *out)
{
	uint32_t count;
	int rc;

	while (index < end) {
		rc = cuts_load(log, &index, out, 1, &count);
		if (rc == -ERANGE) {
			index = (index / log->options.segment + 1) *
				log->options.segment;
			continue;
		}
		if (rc || !count)
			return rc ? rc : -ENOENT;
		if (!out->is_lost && out->index < end)
			return 0;
		cut_free(out);
	}
	return -ENOENT;
}

int cuts_find(struct reef_log *log, uint64_t position, bool is_bytes,
	      struct cut *out)
{
	struct cut cut = {.parts = NULL};
	uint64_t from, to, middle;
	bool is_there = false;
	int rc = find_lowest(log, &from);

	if (rc)
		return rc;
	to = log->sharded->last.index == LOG_NOWHERE
		     ? 0
		     : log->sharded->last.index + 1;
	while (from < to) {
		middle = from + (to - from) / 2;
		rc = load_from(log, middle, to, &cut);
		if (rc == -ENOENT || rc == -ESHUTDOWN) {
			to = middle;
		} else if (rc) {
			break;
		} else if ((is_bytes ? cut.head.bytes : cut.head.first) <=
			   position) {
			if (is_there)
				cut_free(out);
			*out = cut;
			is_there = true;
			from = cut.index + 1;
		} else {
			cut_free(&cut);
			to = middle;
		}
	}
	if (from >= to)
		return is_there ? 0 : -ENOENT;
	if (is_there)
		cut_free(out);
	return rc;
}
