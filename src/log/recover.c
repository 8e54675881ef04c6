/* recover.c - what a dead session left: is a block still part of a log?
 *
 *   segment  if its word of the directory names it
 *   tail     if the log's tail word does
 *   entry    if the word of its position does, and counts. A word that is not
 *            set yet becomes a HOLE first: then it never will.
 *
 * What only lost memory could name is not live. (R10) What a block says of
 * itself may be nonsense: a block that names no log is part of none. */
#include "log/internal.h"

#include <errno.h>

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
	uint64_t word;
	int rc = reef_read(reef, address, &head, sizeof(head));

	if (!rc && head.magic != LOG_SEGMENT_MAGIC)
		return 0;
	if (!rc)
		rc = reef_read(reef, head.slot, &word, 8);
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (log_slot_state(word) != LOG_SLOT_MADE)
		return 0;
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

/* Find the segment of an entry. 1: *at is its address.  0: there is none. */
static int find_segment(struct reef *reef, struct reef_space *space,
			const struct log_entry *entry,
			const struct log_body *body, uint64_t *at)
{
	uint64_t index = entry->position / body->segment, word;
	struct log_segment head;
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

/* What the word of a position is; 0 becomes HOLE first. */
static int settle_word(struct reef *reef, uint64_t segment, uint64_t slot,
		       uint64_t *word)
{
	uint64_t at = segment + log_word_offset(slot);
	int rc = reef_read(reef, at, word, 8);

	if (!rc && !*word)
		rc = log_cas(reef, at, 0, LOG_HOLE, word);
	return rc;
}

static int is_in_word(struct reef *reef, struct reef_space *space,
		      uint64_t segment, uint64_t slot, uint64_t address)
{
	uint64_t word, head;
	int rc = settle_word(reef, segment, slot, &word);

	if (!rc && log_word_state(word) == LOG_WORD_MEMBER &&
	    log_word_back(word) <= slot) {
		rc = settle_word(reef, segment, slot - log_word_back(word),
				 &head);
		if (!rc && log_word_state(head) != LOG_WORD_PRESENT)
			return 0;
	}
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (log_word_state(word) == LOG_WORD_HOLE || !log_word_is_long(word))
		return 0;
	return names(space, word, address);
}

static int entry_is_live(struct reef *reef, struct reef_space *space,
			 uint64_t address)
{
	struct log_entry entry;
	struct log_body body;
	uint64_t segment = 0;
	int rc = reef_read(reef, address, &entry, sizeof(entry));

	if (!rc)
		rc = reef_read(reef, entry.body, &body, sizeof(body));
	if (rc)
		return is_gone(rc) ? 0 : rc;
	if (body.magic != LOG_BODY_MAGIC || !body.segment || !body.segments)
		return 0;
	reef_enter(reef);
	rc = find_segment(reef, space, &entry, &body, &segment);
	if (rc == 1)
		rc = is_in_word(reef, space, segment,
				entry.position % body.segment, address);
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
