/* trim.c - what is let go: `first` goes up, then whole segments leave the
 * directory, and their memory comes back.
 *
 *   MADE --(no word is 0)--> CAS --> TRIMMED; who did it frees, LATER
 *
 * A trimmer may die anywhere: the next trim, or whoever makes a segment of a
 * log that keeps only so much, goes on; blocks that are named by nothing are
 * found by recovery. (9), (10) of layout.h. */
#include "log/shard.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64u /* READs at once */

int log_raise(struct reef_log *log, uint64_t at, uint64_t value, uint64_t *now)
{
	uint64_t is, before;
	int rc = reef_read(log->reef, at, &is, 8);

	while (!rc && is < value) {
		before = is;
		rc = log_cas(log->reef, at, before, value, &is);
	}
	if (!rc && now)
		*now = is;
	return rc;
}

int log_raise_first(struct reef_log *log, uint64_t position)
{
	return log_raise(log,
			 log->object.body + offsetof(struct log_body, first),
			 position, &log->first);
}

/* --- taking segments out --- */

static void give_back(struct reef_log *log, uint64_t address)
{
	uint32_t flags = REEF_MUTATED(LOG_TRIM_NOW) ? 0 : REEF_FREE_LATER;

	(void)reef_free(log->object.space, address, flags);
}

/* Free the blocks of long entries; only what counts has one. */
static void free_longs(struct reef_log *log, const uint64_t *words)
{
	uint64_t word, at;
	uint32_t i;

	for (i = 0; i < log->options.segment; i++) {
		word = words[i];
		if (!log_word_is_long(word) ||
		    log_word_state(word) == LOG_WORD_HOLE)
			continue;
		if (log_word_state(word) == LOG_WORD_MEMBER &&
		    (log_word_back(word) > i ||
		     log_word_state(words[i - log_word_back(word)]) !=
			     LOG_WORD_PRESENT))
			continue;
		if (!reef_long_address(log->object.space, word & LOG_BLOCK_MASK,
				       &at))
			give_back(log, at);
	}
}

/* Close a segment and READ its words. 1: it is gone, and has none. */
static int read_words(struct reef_log *log, uint64_t index, uint64_t *words,
		      uint64_t *at)
{
	struct log_found found;
	int rc = log_find(log, index, &found);

	if (!rc)
		rc = log_close_segment(log, found.at);
	if (!rc)
		rc = reef_read(log->reef, found.at + log_word_offset(0), words,
			       8 * (size_t)log->options.segment);
	if (!rc)
		*at = found.at;
	return rc == -REEF_ELOST || rc == -REEF_ECORRUPT ? 1 : rc;
}

static int unlink_one(struct reef_log *log, uint64_t index, uint64_t word,
		      uint64_t *words)
{
	struct log_found *cached = &log->cache[index % LOG_CACHED];
	uint64_t to =
		log_slot_make(LOG_SLOT_TRIMMED, index / log->options.segments,
			      log_slot_generation(word), 0);
	uint64_t at = 0, before;
	int rc = read_words(log, index, words, &at);

	/* Another has taken it out. */
	if (rc == -ERANGE)
		return 0;
	if (rc < 0)
		return rc;
	rc = reef_cas(log->reef, log_slot_at(log, index), word, to, &before);
	if (cached->index == index)
		cached->at = 0;
	/* After a doubt another may free it; recovery finds what nobody did. */
	if (rc)
		return rc == -REEF_EINDOUBT ? 0 : rc;
	if (before != word || !at)
		return 0;
	free_longs(log, words);
	give_back(log, at);
	return 0;
}

int log_unlink(struct reef_log *log, const struct log_map *map,
	       uint64_t index_end)
{
	uint64_t *words = malloc(8 * (size_t)log->options.segment), index;
	uint32_t i;
	int rc = words ? 0 : -ENOMEM;

	for (i = 0; !rc && i < log->options.segments; i++) {
		if (log_slot_state(map->slots[i]) != LOG_SLOT_MADE)
			continue;
		index = log_slot_index(log, map->base, i, map->slots[i]);
		if (index < index_end)
			rc = unlink_one(log, index, map->slots[i], words);
	}
	free(words);
	return rc;
}

/* --- trim --- */

/* The position that a trim may go up to: the tail. Where the tail is lost, and
 * there is no room for another before something is trimmed: a segment is made
 * when half of the one before is used, or of the next generation, so two before
 * the last all is below the tail. */
static int find_limit(struct reef_log *log, const struct log_map *map,
		      uint64_t *limit)
{
	int rc;

	if (log_is_single(log) || !log->tail_word ||
	    log_tail_state(log->tail_word) == LOG_SEALED)
		return log_end(log, limit);
	rc = log_tail_position(log, limit);
	if (!log_lacks_room(rc))
		return rc;
	*limit = map->last < 2 ? 0 : (map->last - 2) * log->options.segment;
	return 0;
}

static int trim_inside(struct reef_log *log, uint64_t position)
{
	struct log_map map;
	uint64_t limit, end;
	int rc = log_map_read(log, &map);

	if (rc)
		return rc;
	rc = find_limit(log, &map, &limit);
	if (!rc && position > limit)
		rc = log_decided_end(log, &map, &limit);
	if (!rc && position > limit && !REEF_MUTATED(LOG_TRIM_AHEAD))
		rc = -ERANGE;
	if (!rc)
		rc = log_raise_first(log, position);
	if (!rc && !map.is_empty) {
		end = log->first / log->options.segment;
		/* (10) */
		end = end < map.last ? end : map.last;
		rc = log_unlink(log, &map, end);
	}
	free(map.slots);
	return rc;
}

int reef_log_trim(struct reef_log *log, uint64_t position)
{
	int rc, attempt;

	log_forget(log);
	rc = log_enter(log, false);
	if (rc)
		return rc;
	rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++) {
		rc = log_is_sharded(log) ? sharded_trim(log, position)
					 : trim_inside(log, position);
		/* It is sealed since, or has another tail. */
		if (rc == -ESHUTDOWN || rc == -EAGAIN) {
			rc = log_refresh(log, false);
			rc = rc ? rc : -EAGAIN;
		}
	}
	log_leave(log);
	return log_told(rc);
}

/* --- what is to be kept --- */

/* READ how many bytes `count` segments have, from the one before `index` down.
 * Those that are not closed, are lost or were trimmed have none. False if that
 * cannot be told now. */
static bool read_closed(struct reef_log *log, const struct log_map *map,
			uint64_t index, uint32_t count, uint64_t *closed)
{
	struct reef_access accesses[BATCH];
	uint32_t i, used = 0;
	uint64_t word, at;
	int rc;

	memset(closed, 0, count * sizeof(closed[0]));
	for (i = 0; i < count; i++) {
		word = map->slots[--index % log->options.segments];
		if (log_slot_state(word) == LOG_SLOT_MADE &&
		    !reef_long_address(log->object.space, word & LOG_BLOCK_MASK,
				       &at) &&
		    !reef_is_lost(log->reef, at))
			accesses[used++] = log_read_of(
				at + offsetof(struct log_segment, closed),
				&closed[i], 8);
	}
	if (!used || !reef_execute(log->reef, accesses, used))
		return true;
	/* One that is lost must not hide the others. */
	for (i = 0; i < used; i++) {
		rc = reef_read(log->reef, accesses[i].address,
			       accesses[i].local, 8);
		if (rc == -REEF_ELOST || rc == -EFAULT)
			memset(accesses[i].local, 0, 8);
		else if (rc)
			return false;
	}
	return true;
}

/* The lowest index that has to stay, so that keep_bytes are there. */
static uint64_t find_kept_bytes(struct reef_log *log, const struct log_map *map)
{
	uint64_t closed[BATCH], sum = 0, index = map->last;
	uint64_t lowest = map->body.first / log->options.segment;
	uint32_t i, count;

	while (index > lowest) {
		count = index - lowest < BATCH ? (uint32_t)(index - lowest)
					       : BATCH;
		if (!read_closed(log, map, index, count, closed))
			return lowest;
		index -= count;
		for (i = 0; i < count; i++) {
			sum += closed[i] ? closed[i] - 1 : 0;
			if (sum >= log->options.keep_bytes)
				return index + (count - 1 - i);
		}
	}
	return lowest;
}

bool log_retain(struct reef_log *log, uint64_t last)
{
	uint64_t keep = log->options.keep_entries, index = 0, bytes_index;
	/* The last one was made ahead: the tail is in the one before. */
	uint64_t position = (last - 1) * log->options.segment;
	struct log_map map;

	if (log_is_sharded(log) || (!keep && !log->options.keep_bytes))
		return false;
	if (log_map_read(log, &map))
		return false;
	if (keep && position > keep)
		index = (position - keep) / log->options.segment;
	if (log->options.keep_bytes) {
		bytes_index = find_kept_bytes(log, &map);
		index = bytes_index > index ? bytes_index : index;
	}
	/* Those that may have zeros stay, and so the one that is read now. */
	if (map.last < 2)
		index = 0;
	else if (index > map.last - 2)
		index = map.last - 2;
	if (index && !log_raise_first(log, index * log->options.segment))
		(void)log_unlink(log, &map, index);
	free(map.slots);
	return index != 0;
}
