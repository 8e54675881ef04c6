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

/* Find a segment. 1: *at is its address.  0: there is none. */
static int find_segment(struct reef *reef, struct reef_space *space,
			const struct log_entry *entry,
			const struct log_body *body, uint64_t index,
			uint64_t *at)
{
	struct log_segment head;
	uint64_t word;
	int rc = reef_read(reef,
			   entry->body + sizeof(*body) +
				   8 * (index % body->segments),
			   &word, 8);

	if (!rc && log_slot_state(word) != LOG_SLOT_MADE)
		return 0;
	if (!rc)
		rc = reef_long_address(space, word & LOG_BLOCK_MASK, at);
	if (!rc)
		rc = reef_read(reef, *at, &head, sizeof(head));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	return head.magic == LOG_SEGMENT_MAGIC && head.body == entry->body &&
	       head.index == index;
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

/* Look for the word that names a block, from its position on. Segments are made
 * one after the other: the first that is not there is the end, but for those
 * that are lost or were trimmed. */
static int is_in_log(struct reef *reef, struct reef_space *space,
		     const struct log_entry *entry, const struct log_body *body,
		     uint64_t address)
{
	uint64_t position = entry->position, index, segment, block;
	uint32_t missing = 0;
	int rc = reef_short_address(space, address, &block);

	if (position < body->first && !(body->high))
		position = body->first;
	index = position / body->segment;
	while (!rc && missing < body->segments) {
		rc = find_segment(reef, space, entry, body, index, &segment);
		missing = rc == 1 ? 0 : missing + 1;
		if (rc == 1)
			rc = is_in_segment(reef, space, segment,
					   index == position / body->segment
						   ? position % body->segment
						   : 0,
					   body->segment, block);
		index++;
	}
	return is_gone(rc) ? 0 : rc;
}

static int entry_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct log_entry entry;
	struct log_body body;
	int rc = reef_read(reef, address, &entry, sizeof(entry));

	if (!rc)
		rc = reef_read(reef, entry.body, &body, sizeof(body));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (body.magic != LOG_BODY_MAGIC || !body.segment || !body.segments)
		return 0;
	reef_enter(reef);
	if (entry.position >> 63 && entry.position != UINT64_MAX) {
		rc = sharded_entry_is_live(reef, space, &entry, &body, address);
		reef_leave(reef);
		return is_gone(rc) ? 0 : rc;
	}
	rc = is_in_log(reef, space, &entry, &body, address);
	reef_leave(reef);
	return rc;
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
