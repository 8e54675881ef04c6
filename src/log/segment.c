/* segment.c - the directory of a log: find segments, make them, fill them up.
 * The rules are in layout.h. */
#include "log/internal.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 128u /* CASes at once */

/* --- slots of the directory --- */

uint64_t log_slot_index(const struct reef_log *log, uint64_t first,
			uint32_t slot, uint64_t word)
{
	uint64_t laps = first / log->options.segment / log->options.segments;
	uint64_t lap;

	if (log_slot_state(word) == LOG_SLOT_NONE)
		return LOG_NOWHERE;
	/* The lap before that of `first`, that one, or the next. */
	for (lap = laps ? laps - 1 : 0; lap <= laps + 1; lap++)
		if (lap % LOG_LAPS == log_slot_lap(word))
			return lap * log->options.segments + slot;
	return LOG_NOWHERE;
}

bool log_slot_is_free(const struct reef_log *log, uint64_t index, uint64_t word)
{
	uint64_t lap = index / log->options.segments;

	if (!lap)
		return !word;
	return log_slot_state(word) == LOG_SLOT_TRIMMED &&
	       log_slot_lap(word) == (lap - 1) % LOG_LAPS;
}

int log_map_read(struct reef_log *log, struct log_map *map)
{
	uint32_t count = log->options.segments, i;
	uint64_t index, *slots = calloc(count, 8);
	uint64_t floor = 0;
	struct reef_access accesses[] = {
		log_read_of(log->object.body, &map->body, sizeof(map->body)),
		log_read_of(log->object.body + sizeof(map->body), slots,
			    8 * count),
		log_read_of(log_floor_at(log), &floor, 8),
	};
	int rc = slots ? reef_execute(log->reef, accesses,
				      log_is_sharded(log) ? 3 : 2)
		       : -ENOMEM;

	if (rc) {
		free(slots);
		return rc;
	}
	map->base = log_is_sharded(log) ? floor : map->body.first;
	map->slots = slots;
	map->is_empty = true;
	map->last = map->count = 0;
	for (i = 0; i < count; i++) {
		if (log_slot_state(slots[i]) == LOG_SLOT_TRIMMED)
			continue;
		index = log_slot_index(log, map->base, i, slots[i]);
		if (index == LOG_NOWHERE)
			continue;
		if (map->is_empty || index > map->last)
			map->last = index;
		map->is_empty = false;
		map->count += log_slot_state(slots[i]) == LOG_SLOT_MADE;
	}
	return 0;
}

/* --- finding --- */

/* What a slot's word says of a segment: 0: it is MADE. */
static int judge_slot(const struct reef_log *log, uint64_t index, uint64_t word)
{
	uint64_t lap = index / log->options.segments % LOG_LAPS;
	uint64_t ahead = (log_slot_lap(word) - lap) % LOG_LAPS;

	if (!word)
		return -ENOENT;
	/* It is of a lap before, or of one after. */
	if (ahead)
		return ahead > LOG_LAPS / 2 ? -ENOENT : -ERANGE;
	switch (log_slot_state(word)) {
	case LOG_SLOT_MADE:
		return 0;
	case LOG_SLOT_TRIMMED:
		return -ERANGE;
	case LOG_SLOT_SEALED:
		return -ESHUTDOWN;
	default:
		return -REEF_ECORRUPT;
	}
}

/* (R10) Whether that block is the segment. */
static int check_segment(struct reef_log *log, uint64_t index, uint64_t at)
{
	struct log_segment head;
	int rc = reef_read(log->reef, at, &head,
			   offsetof(struct log_segment, next));

	if (rc)
		return rc == -EFAULT ? -REEF_ECORRUPT : rc;
	return head.magic == LOG_SEGMENT_MAGIC &&
			       head.body == log->object.body &&
			       head.index == index &&
			       head.count == log->options.segment
		       ? 0
		       : -REEF_ECORRUPT;
}

static int long_address(struct reef_log *log, uint64_t word, uint64_t *at)
{
	int rc =
		reef_long_address(log->object.space, word & LOG_BLOCK_MASK, at);

	return rc == -EFAULT || rc == -ERANGE || rc == -EINVAL ? -REEF_ECORRUPT
							       : rc;
}

int log_find(struct reef_log *log, uint64_t index, struct log_found *out)
{
	struct log_found *cached = &log->cache[index % LOG_CACHED];
	uint64_t word, at;
	int rc;

	if (cached->at && cached->index == index) {
		*out = *cached;
		return 0;
	}
	rc = reef_read(log->reef, log_slot_at(log, index), &word, 8);
	if (!rc)
		rc = judge_slot(log, index, word);
	if (!rc)
		rc = long_address(log, word, &at);
	if (!rc)
		rc = check_segment(log, index, at);
	if (rc)
		return rc;
	*cached = (struct log_found){
		.index = index,
		.at = at,
		.generation = log_slot_generation(word),
	};
	*out = *cached;
	return 0;
}

/* --- making --- */

/* Write a segment of which nobody knows yet. */
static int write_segment(struct reef_log *log, uint64_t at, uint64_t index)
{
	uint32_t size = (uint32_t)log_word_offset(log->options.segment);
	struct log_segment *head = calloc(1, size);
	int rc, attempt = 0;

	if (!head)
		return -ENOMEM;
	head->magic = LOG_SEGMENT_MAGIC;
	head->body = log->object.body;
	head->index = index;
	head->slot = log_slot_at(log, index);
	head->count = log->options.segment;
	do
		rc = reef_write(log->reef, at, head, size);
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	free(head);
	return rc;
}

int log_install(struct reef_log *log, uint64_t index, uint32_t generation,
		uint64_t before)
{
	struct reef_space *space = log->object.space;
	uint64_t at, block, word, now;
	int rc = reef_alloc_kind(space, REEF_BLOCK_LOG_SEGMENT,
				 log_segment_size(log), &at);

	if (rc)
		return rc;
	rc = write_segment(log, at, index);
	if (!rc)
		rc = reef_short_address(space, at, &block);
	if (rc) {
		reef_free(space, at, 0);
		return rc;
	}
	word = log_slot_make(LOG_SLOT_MADE, index / log->options.segments,
			     generation, block);
	rc = log_cas(log->reef, log_slot_at(log, index), before, word, &now);
	/* A block that may be in the directory is left to recovery. */
	if (rc)
		return rc;
	if (now == word)
		return 1;
	reef_free(space, at, 0);
	return 0;
}

/* The segment before `index` of the generation is there: tell it, and those who
 * wait in it, that it has a next one. */
static void announce_next(struct reef_log *log, uint64_t segment)
{
	static const uint64_t one = 1;
	struct log_segment head;
	struct reef_access accesses[] = {
		log_write_of(segment + offsetof(struct log_segment, next), &one,
			     8),
		log_read_of(segment + offsetof(struct log_segment, places),
			    head.places, sizeof(head.places)),
	};

	if (!reef_execute(log->reef, accesses, 2))
		log_wake(log, segment, head.places);
}

/* (4): every 0 of the segment before the last becomes a HOLE. */
static int close_before_last(struct reef_log *log, uint64_t last)
{
	struct log_found found;
	int rc;

	if (!last || REEF_MUTATED(LOG_THREE_OPEN))
		return 0;
	rc = log_find(log, last - 1, &found);
	if (!rc)
		rc = log_close_segment(log, found.at);
	/* What was trimmed, or cannot be read any more, has no zeros. */
	return rc == -ERANGE || rc == -REEF_ELOST || rc == -REEF_ECORRUPT ||
			       rc == -ENOENT
		       ? 0
		       : rc;
}

/* Make the segment behind `last`, which is the generation's. */
static int try_behind(struct reef_log *log, const struct log_found *last)
{
	uint64_t index = last->index + 1, word;
	int rc = close_before_last(log, last->index);

	if (!rc)
		rc = reef_read(log->reef, log_slot_at(log, index), &word, 8);
	if (rc)
		return rc;
	if (!log_slot_is_free(log, index, word)) {
		rc = judge_slot(log, index, word);
		/* Another has made it; or the lap before is still there, and
		 * the log has as many segments as it may have. */
		return rc == -ENOENT ? -E2BIG : rc;
	}
	rc = log_install(log, index, last->generation, word);
	if (rc < 0)
		return rc;
	announce_next(log, last->at);
	if (rc)
		(void)log_retain(log, index);
	return 0;
}

/* The same; where the directory is full something may go: who saw to that
 * before may have died. */
static int make_behind(struct reef_log *log, const struct log_found *last)
{
	int rc = try_behind(log, last);

	if (rc == -E2BIG && log_retain(log, last->index + 1))
		rc = try_behind(log, last);
	return rc;
}

int log_make(struct reef_log *log, uint64_t index, uint32_t generation,
	     struct log_found *out)
{
	struct log_found last;
	uint64_t at = index;
	int rc = log_find(log, index, out);

	if (rc != -ENOENT)
		return rc;
	/* Numbers were drawn, and never used, where there was no room: then
	 * more than one segment may be missing. */
	do {
		if (!at || index - at > log->options.segments)
			return -REEF_ECORRUPT;
		rc = log_find(log, --at, &last);
	} while (rc == -ENOENT);
	while (!rc && at < index) {
		if (last.generation != generation)
			return -ESTALE;
		rc = make_behind(log, &last);
		if (!rc)
			rc = log_find(log, ++at, &last);
	}
	if (!rc)
		*out = last;
	return rc;
}

/* --- filling up --- */

static int fill_batch(struct reef_log *log, struct reef_access *accesses,
		      uint32_t count)
{
	static const uint64_t hole = LOG_HOLE;
	uint32_t i;

	for (i = 0; REEF_MUTATED(LOG_FILL_WRITE) && i < count; i++)
		accesses[i] = log_write_of(accesses[i].address, &hole, 8);
	return count ? reef_execute(log->reef, accesses, count) : 0;
}

int log_fill_zeros(struct reef_log *log, uint64_t segment, uint32_t first,
		   const uint64_t *words, uint32_t count)
{
	struct reef_access accesses[BATCH];
	uint32_t i, used = 0;
	int rc = 0;

	for (i = 0; !rc && i < count; i++) {
		if (words[i])
			continue;
		accesses[used++] = log_cas_of(
			segment + log_word_offset((uint64_t)first + i), 0,
			LOG_HOLE);
		if (used < BATCH)
			continue;
		rc = fill_batch(log, accesses, used);
		used = 0;
	}
	return rc ? rc : fill_batch(log, accesses, used);
}

/* READ all words, and fill. *words: as they were before.  -EAGAIN: a CAS was in
 * doubt, once more. */
static int fill_once(struct reef_log *log, uint64_t segment, uint64_t *words)
{
	uint32_t count = log->options.segment;
	int rc = reef_read(log->reef, segment + log_word_offset(0), words,
			   8 * (size_t)count);

	if (!rc)
		rc = log_fill_zeros(log, segment, 0, words, count);
	return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
}

/* How many bytes the entries of a segment have, about: what a dead appender
 * left to its MEMBERs counts, too. */
static uint64_t count_bytes(const uint64_t *words, uint32_t count)
{
	uint64_t bytes = 0;
	uint32_t i;

	for (i = 0; i < count; i++) {
		if (!words[i] || log_word_state(words[i]) == LOG_WORD_HOLE)
			continue;
		bytes += log_word_is_long(words[i])
				 ? log_step_size(log_word_step(words[i]))
				 : log_word_size(words[i]);
	}
	return bytes;
}

int log_close_segment(struct reef_log *log, uint64_t segment)
{
	uint64_t at = segment + offsetof(struct log_segment, closed);
	uint64_t *words, closed;
	int rc = reef_read(log->reef, at, &closed, 8), attempt;

	if (rc || closed)
		return rc;
	words = malloc(8 * (size_t)log->options.segment);
	if (!words)
		return -ENOMEM;
	rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = fill_once(log, segment, words);
	/* A 0 that we read may have become an entry before our CAS. */
	if (!rc)
		rc = reef_read(log->reef, segment + log_word_offset(0), words,
			       8 * (size_t)log->options.segment);
	if (!rc) {
		closed = 1 + count_bytes(words, log->options.segment);
		/* Whoever writes it writes the same. */
		(void)reef_write(log->reef, at, &closed, 8);
		log_wake_all(log, segment);
	}
	free(words);
	return rc == -EAGAIN ? -EBUSY : rc;
}
