/* recover.c - what a dead session left: is a block still part of a log?
 *
 *   segment  if its word of the directory names it; so of a shard
 *   tail     if the log's tail word does
 *   entry    if a word from its position on does, and counts. A cut is one;
 *            an entry of a shard if its cell names it, and is counted.
 *
 * What only lost memory could name is not live. (R10) What a block says of
 * itself may be nonsense: a block that names no log is part of none. */
#include "log/shard.h"

#include <errno.h>

#define SCAN 64u /* words at a time */

/* True if what would name a block is gone for good, or never was there. */
static bool is_gone(int rc)
{
	return rc == -REEF_ELOST || rc == -EFAULT || rc == -EINVAL ||
	       rc == -ERANGE;
}

/* 1: the word's short address is that block. */
static int names(struct reef_space *space, uint64_t word, uint64_t address)
{
	uint64_t at;
	int rc = reef_long_address(space, word & LOG_BLOCK_MASK, &at);

	if (rc)
		return is_gone(rc) ? 0 : rc;
	return at == address;
}

static int segment_is_live(struct reef *reef, struct reef_space *space,
			   uint64_t address)
{
	struct log_segment head;
	uint64_t word, tail;
	int rc = reef_read(reef, address, &head, sizeof(head));

	static_assert(offsetof(struct log_segment, slot) ==
			      offsetof(struct log_shard, slot),
		      "both have it");
	if (!rc && head.magic != LOG_SEGMENT_MAGIC && head.magic != SHARD_MAGIC)
		return 0;
	if (!rc)
		rc = reef_read(reef, head.slot, &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (head.magic == SHARD_MAGIC ? shard_word_state(word) == SHARD_FREE
				      : log_slot_state(word) != LOG_SLOT_MADE)
		return 0;
	/* Who made it came too late for whoever dropped the log. */
	if (head.magic == SHARD_MAGIC) {
		rc = reef_read(reef,
			       head.body + offsetof(struct log_body, tail),
			       &tail, 8);
		if (rc)
			return is_gone(rc) ? 0 : rc;
		if (log_tail_state(tail) == LOG_DROPPED)
			return 0;
	}
	return names(space, word, address);
}

static int tail_is_live(struct reef *reef, struct reef_space *space,
			uint64_t address)
{
	struct log_tail tail;
	uint64_t word;
	int rc = reef_read(reef, address, &tail, sizeof(tail));

	if (!rc && tail.magic != LOG_TAIL_MAGIC)
		return 0;
	if (!rc)
		rc = reef_read(reef,
			       tail.body + offsetof(struct log_body, tail),
			       &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (!(word & LOG_BLOCK_MASK))
		return 0;
	return names(space, word, address);
}

/* What is looked for, and where. */
struct search {
	struct reef *reef;
	struct reef_space *space;
	uint64_t body; /* address */
	uint32_t segment, segments;
	uint64_t position; /* it stands there, or behind */
	uint64_t block;	   /* short address */
};

/* READ the head of the segment that a word of the directory names. 1: it is
 * one of that word, and so of no other (R10).  0: there is none. */
static int find_segment(const struct search *search, uint64_t slot,
			uint64_t word, uint64_t *at, uint64_t *index)
{
	struct log_segment head;
	int rc;

	if (log_slot_state(word) != LOG_SLOT_MADE)
		return 0;
	rc = reef_long_address(search->space, word & LOG_BLOCK_MASK, at);
	if (!rc)
		rc = reef_read(search->reef, *at, &head, sizeof(head));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	*index = head.index;
	return head.magic == LOG_SEGMENT_MAGIC && head.body == search->body &&
	       head.index % search->segments == slot;
}

/* Whether a word of a segment counts and names the block; words[0] is that of
 * `first`. Whoever appended it is FENCED, or has left the reef_enter in which
 * it did: what is 0 stays so, or is another's. */
static int is_in_words(struct reef *reef, struct reef_space *space,
		       uint64_t segment, uint64_t first, const uint64_t *words,
		       uint32_t count, uint64_t block)
{
	uint64_t head, back;
	uint32_t i;
	int rc;

	(void)space;
	for (i = 0; i < count; i++)
		if (words[i] && log_word_is_long(words[i]) &&
		    log_word_state(words[i]) != LOG_WORD_HOLE &&
		    (words[i] & LOG_BLOCK_MASK) == block)
			break;
	if (i == count)
		return 0;
	if (log_word_state(words[i]) == LOG_WORD_PRESENT)
		return 1;
	back = log_word_back(words[i]);
	if (back > first + i)
		return 0;
	rc = reef_read(reef, segment + log_word_offset(first + i - back), &head,
		       8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return log_word_state(head) == LOG_WORD_PRESENT;
}

/* Scan a segment from a slot on, a few words first, as most stand there. */
static int is_in_segment(struct reef *reef, struct reef_space *space,
			 uint64_t segment, uint64_t slot, uint32_t size,
			 uint64_t block)
{
	uint64_t words[SCAN];
	uint32_t count;
	int rc = 0;

	for (; !rc && slot < size; slot += count) {
		count = size - slot < SCAN ? (uint32_t)(size - slot) : SCAN;
		rc = reef_read(reef, segment + log_word_offset(slot), words,
			       8 * (size_t)count);
		if (rc)
			return is_gone(rc) ? 0 : rc;
		rc = is_in_words(reef, space, segment, slot, words, count,
				 block);
	}
	return rc;
}

/* Whether the segment of a word of the directory has it. */
static int is_in_slot(const struct search *search, uint64_t slot, uint64_t word)
{
	const uint64_t lowest = search->position / search->segment;
	uint64_t index = 0, at = 0;
	int rc = find_segment(search, slot, word, &at, &index);

	if (rc != 1 || index < lowest)
		return rc == 1 ? 0 : rc;
	return is_in_segment(
		search->reef, search->space, at,
		index == lowest ? search->position % search->segment : 0,
		search->segment, search->block);
}

/* Look for the word that names a block: in all segments that the directory has,
 * from that of its position on, as most stand there. */
static int is_in_log(const struct search *search)
{
	uint64_t words[SCAN], slot = search->position / search->segment;
	uint32_t looked, count, i;
	int rc = 0;

	slot %= search->segments;
	for (looked = 0; !rc && looked < search->segments; looked += count) {
		count = search->segments - looked;
		if (count > search->segments - slot)
			count = search->segments - (uint32_t)slot;
		count = count < SCAN ? count : SCAN;
		rc = reef_read(search->reef,
			       search->body + sizeof(struct log_body) +
				       8 * slot,
			       words, 8 * (size_t)count);
		for (i = 0; !rc && i < count; i++)
			rc = is_in_slot(search, slot + i, words[i]);
		slot = (slot + count) % search->segments;
	}
	return is_gone(rc) ? 0 : rc;
}

/* (R10) True if the body of a log is what its maker wrote. */
static bool is_body(const struct log_body *body)
{
	return body->magic == LOG_BODY_MAGIC &&
	       body->segment >= LOG_SEGMENT_MIN &&
	       body->segment <= LOG_SEGMENT_MAX &&
	       body->segments >= LOG_SEGMENTS_MIN &&
	       body->segments <= LOG_SEGMENTS_MAX;
}

static int entry_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct log_entry entry;
	struct search search;
	struct log_body body;
	int rc = reef_read(reef, address, &entry, sizeof(entry));

	if (!rc)
		rc = reef_read(reef, entry.body, &body, sizeof(body));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (!is_body(&body))
		return 0;
	reef_enter(reef);
	if (entry.position >> 63 && entry.position != UINT64_MAX) {
		rc = sharded_entry_is_live(reef, space, &entry, &body, address);
		reef_leave(reef);
		return is_gone(rc) ? 0 : rc;
	}
	search = (struct search){
		.reef = reef,
		.space = space,
		.body = entry.body,
		.segment = body.segment,
		.segments = body.segments,
		.position = entry.position,
	};
	/* Positions of SHARDED logs are not those of words. */
	if (entry.position < body.first && !body.high)
		search.position = body.first;
	rc = reef_short_address(space, address, &search.block);
	if (!rc)
		rc = is_in_log(&search);
	reef_leave(reef);
	return is_gone(rc) ? 0 : rc;
}

static const struct reef_kind_ops segments = {
	.name = "log segment",
	.is_quick = true,
	.is_live = segment_is_live,
};
static const struct reef_kind_ops tails = {
	.name = "log tail",
	.is_quick = true,
	.is_live = tail_is_live,
};
static const struct reef_kind_ops entries = {
	.name = "log entry",
	.is_quick = true,
	.is_live = entry_is_live,
};

void log_kinds_register(void)
{
	reef_kind_register(REEF_BLOCK_LOG_SEGMENT, &segments);
	reef_kind_register(REEF_BLOCK_LOG_TAIL, &tails);
	reef_kind_register(REEF_BLOCK_LOG_ENTRY, &entries);
}
