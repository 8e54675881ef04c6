/* shard_trim.c - what is let go of a SHARDED log: (S8) of shard.h.
 *
 *   first goes up --> the cut that has it --> cuts below its segment, and
 *   shards that were done before it, leave their directories; LATER
 *
 * A trimmer may die anywhere: the next one goes on; blocks that are named by
 * nothing are found by recovery. */
#include "log/shard.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

static void give_back(struct reef_log *log, uint64_t address)
{
	uint32_t flags = REEF_MUTATED(LOG_TRIM_NOW) ? 0 : REEF_FREE_LATER;

	(void)reef_free(log->object.space, address, flags);
}

/* --- shards --- */

/* READ the words of all cells of a shard that are counted. */
static int read_words(struct reef_log *log, uint64_t shard, uint32_t count,
		      uint64_t *words)
{
	uint32_t stride = log->stride, at, part, i;
	uint32_t most = log->window;
	int rc = 0;

	for (at = 0; !rc && at < count; at += part) {
		part = count - at < most ? count - at : most;
		rc = reef_read(log->reef, shard_cell_at(log, shard, at),
			       log->cells, (size_t)part * stride);
		for (i = 0; !rc && i < part; i++)
			memcpy(&words[at + i], log->cells + (size_t)i * stride,
			       8);
	}
	return rc;
}

static void free_longs(struct reef_log *log, const uint64_t *words,
		       uint32_t count)
{
	uint64_t at;
	uint32_t i;

	for (i = 0; i < count; i++)
		if (log_word_is_long(words[i]) &&
		    !reef_long_address(log->object.space,
				       words[i] & LOG_BLOCK_MASK, &at))
			give_back(log, at);
}

/* Take a shard out of the directory, and free it with its long entries. */
static int free_shard(struct reef_log *log, uint32_t index, uint64_t word,
		      const struct shard_head *head)
{
	uint32_t count = (uint32_t)head->count;
	uint64_t *words = NULL, at, before;
	int rc = reef_long_address(log->object.space, word & LOG_BLOCK_MASK,
				   &at);

	count = count < log->options.segment ? count : log->options.segment;
	if (!rc && head->has_long) {
		words = malloc(8 * (count + (size_t)1));
		rc = words ? read_words(log, at, count, words) : -ENOMEM;
	}
	if (!rc)
		rc = reef_cas(log->reef, shard_slot_at(log, index), word,
			      shard_word_after(word, SHARD_FREE, 0), &before);
	if (!rc && before == word) {
		if (words)
			free_longs(log, words, count);
		give_back(log, at);
	}
	free(words);
	/* After a doubt another may free it; recovery finds what nobody did. */
	return rc == -REEF_EINDOUBT || rc == -REEF_ELOST ? 0 : rc;
}

static bool has_part(const struct cut *cut, uint64_t block)
{
	uint32_t i;

	for (i = 0; i < cut->head.count; i++)
		if (cut_part_block(&cut->parts[i]) == block)
			return true;
	return false;
}

/* Free a shard if it was done before a cut; NULL: in any case. */
static int tidy_shard(struct reef_log *log, const struct shard_found *found,
		      const struct cut *cut)
{
	const struct shard_head *head = &found->head;
	int rc = found->rc;

	/* Its memory is gone; the word is free for another. */
	if (rc == -REEF_ELOST) {
		rc = reef_cas(log->reef, shard_slot_at(log, found->index),
			      found->word,
			      shard_word_after(found->word, SHARD_FREE, 0),
			      NULL);
		return rc == -REEF_EINDOUBT ? 0 : rc;
	}
	if (rc)
		return rc;
	if (cut && !REEF_MUTATED(LOG_SHARD_FREED) &&
	    (!head->joined || head->joined > cut->index + 1 ||
	     has_part(cut, found->block)))
		return 0;
	if (cut && !shard_is_whole(log, head->count))
		return 0;
	return free_shard(log, (uint32_t)found->index, found->word, head);
}

/* Free all shards that were done before a cut; those that are OPEN are looked
 * at by who wants one (shard.c). NULL: all. */
static int tidy_shards(struct reef_log *log, const struct cut *cut)
{
	const uint32_t size = log->options.segments;
	uint64_t *words = malloc(8 * (size_t)size);
	struct shard_found found[SHARDS_READ];
	uint32_t i = 0, j, count;
	int rc = words ? reef_read(log->reef, shard_slot_at(log, 0), words,
				   8 * (size_t)size)
		       : -ENOMEM;

	while (!rc && i < size) {
		for (count = 0; i < size && count < SHARDS_READ; i++)
			if (shard_word_state(words[i]) == SHARD_FULL ||
			    (!cut && shard_word_state(words[i]) != SHARD_FREE))
				found[count++] = (struct shard_found){
					.index = i,
					.word = words[i],
				};
		rc = shards_read(log, found, count);
		for (j = 0; !rc && j < count; j++)
			rc = tidy_shard(log, &found[j], cut);
	}
	free(words);
	return rc;
}

int sharded_drop(struct reef_log *log)
{
	return tidy_shards(log, NULL);
}

/* --- trim --- */

/* Give back what is below `first`. */
static int tidy(struct reef_log *log)
{
	struct log_map map;
	struct cut cut;
	int rc = cuts_find(log, log->first, false, &cut);

	if (rc)
		return rc == -ENOENT ? 0 : rc;
	rc = log_raise(log, log_floor_at(log), cut.index, &log->sharded->floor);
	if (!rc)
		rc = tidy_shards(log, &cut);
	cut_free(&cut);
	if (!rc)
		rc = log_map_read(log, &map);
	if (rc)
		return rc;
	rc = log_unlink(log, &map, log->sharded->floor / log->options.segment);
	free(map.slots);
	return rc;
}

int sharded_trim(struct reef_log *log, uint64_t position)
{
	uint64_t tail = 0;
	int rc = cuts_follow(log);

	if (!rc && log->sharded->last.index != LOG_NOWHERE)
		tail = log->sharded->last.head.end;
	if (!rc && position > tail)
		rc = sharded_tail(log, &tail);
	if (!rc && position > tail && !REEF_MUTATED(LOG_TRIM_AHEAD))
		rc = -ERANGE;
	if (!rc)
		rc = log_raise_first(log, position);
	if (!rc)
		rc = tidy(log);
	return sharded_told(rc);
}

void sharded_retain(struct reef_log *log)
{
	const struct log_cut *last = &log->sharded->last.head;
	uint64_t keep = log->options.keep_entries, first = 0;
	uint64_t step = log->options.segment;
	uint64_t keep_bytes = log->options.keep_bytes;
	struct cut cut;

	if ((!keep && !keep_bytes) || log->sharded->last.index == LOG_NOWHERE ||
	    log->sharded->last.is_lost || log->sharded->last.is_partial)
		return;
	if (keep && last->end > keep)
		first = last->end - keep;
	if (keep_bytes && last->bytes > keep_bytes &&
	    !cuts_find(log, last->bytes - keep_bytes, true, &cut)) {
		first = cut.head.end > first ? cut.head.end : first;
		cut_free(&cut);
	}
	/* About a segment at a time, and not all who find so together. */
	step += step * (log->sharded->shards / 16);
	if (first < log->first + step ||
	    reef_read(log->reef,
		      log->object.body + offsetof(struct log_body, first),
		      &log->first, 8) ||
	    first < log->first + step)
		return;
	if (!log_raise_first(log, first) && log->first == first)
		(void)tidy(log);
}

/* --- recovery --- */

int sharded_entry_is_live(struct reef *reef, struct reef_space *space,
			  const struct log_entry *entry,
			  const struct log_body *body, uint64_t address)
{
	uint64_t index = entry->position >> 20 & ((UINT64_C(1) << 43) - 1);
	uint64_t slot = entry->position & 0xfffff, word, at, named;
	struct log_shard shard;
	int rc;

	if (index >= body->segments || slot >= body->segment ||
	    log_tail_state(body->tail) == LOG_DROPPED)
		return 0;
	rc = reef_read(reef,
		       entry->body + sizeof(*body) +
			       8 * (body->segments + index),
		       &word, 8);
	if (!rc && shard_word_state(word) == SHARD_FREE)
		return 0;
	if (!rc)
		rc = reef_long_address(space, word & LOG_BLOCK_MASK, &at);
	if (!rc)
		rc = reef_read(reef, at, &shard, sizeof(shard));
	if (rc)
		return rc;
	if (shard.magic != SHARD_MAGIC || shard.body != entry->body ||
	    slot >= (uint32_t)shard.head.count || shard.stride > 8192)
		return 0;
	rc = reef_read(reef, at + sizeof(shard) + shard.stride * slot, &word,
		       8);
	if (rc)
		return rc;
	if (!log_word_is_long(word))
		return 0;
	rc = reef_long_address(space, word & LOG_BLOCK_MASK, &named);
	return rc ? rc : named == address;
}
