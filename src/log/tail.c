/* tail.c - where a log goes on: the tail, a new one, none any more.
 *
 *   0 --log_renew()--> generation 1 --log_renew()--> generation 2 --> ...
 *                          \------------seal---------> SEALED --> DROPPED
 *
 * The rules are in layout.h: (3), (5), (6), (9), (11). */
#include "log/shard.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

/* --- what is true in this epoch --- */

void log_forget(struct reef_log *log)
{
	log->epoch = 0;
}

static int look(struct reef_log *log)
{
	uint64_t words[2], block;
	uint32_t i;
	int rc = reef_read(log->reef, log->object.body, words, sizeof(words));

	if (rc)
		return rc;
	block = words[0] & LOG_BLOCK_MASK;
	log->tail_at = 0;
	if (block)
		rc = reef_long_address(log->object.space, block, &log->tail_at);
	/* (R10) A tail that is none is replaced. */
	if (rc == -EFAULT || rc == -ERANGE || rc == -EINVAL)
		rc = 0;
	if (rc)
		return rc;
	log->tail_word = words[0];
	log->first = words[1];
	for (i = 0; i < LOG_CACHED; i++)
		log->cache[i].at = 0;
	log->epoch = reef_epoch(log->reef) + 1;
	return 0;
}

static int judge_state(const struct reef_log *log, bool is_writing)
{
	switch (log_tail_state(log->tail_word)) {
	case LOG_OPEN:
		return 0;
	case LOG_SEALED:
		return is_writing ? -ESHUTDOWN : 0;
	case LOG_DROPPED:
		return -ENOENT;
	default:
		return -REEF_ECORRUPT;
	}
}

int log_refresh(struct reef_log *log, bool is_writing)
{
	int rc = look(log);

	if (!rc)
		rc = judge_state(log, is_writing);
	/* Who made the log did not come to its first tail. */
	if (!rc && is_writing && !log->tail_word) {
		rc = log_renew(log, 0, false, NULL, NULL);
		if (!rc)
			rc = look(log);
		if (!rc)
			rc = judge_state(log, is_writing);
	}
	return rc;
}

int log_enter(struct reef_log *log, bool is_writing)
{
	bool is_known;
	int rc;

	reef_enter(log->reef);
	is_known = log->epoch == reef_epoch(log->reef) + 1 && log->tail_word;
	if (log->epoch && REEF_MUTATED(LOG_STALE))
		is_known = true;
	rc = is_known ? judge_state(log, is_writing)
		      : log_refresh(log, is_writing);
	if (rc) {
		log_forget(log);
		reef_leave(log->reef);
	}
	return rc;
}

void log_leave(struct reef_log *log)
{
	reef_leave(log->reef);
}

/* --- the tail's block --- */

/* Replace a tail that is of no use, and look again. */
static int replace_tail(struct reef_log *log)
{
	int rc = log_renew(log, log_generation(log), false, NULL, NULL);

	if (!rc)
		rc = log_refresh(log, true);
	return rc ? rc : -EAGAIN;
}

/* True if an access of the tail's block says that it is of no use. */
static bool is_out_of_reach(int rc)
{
	return rc == -REEF_ELOST || rc == -REEF_ENOLINK || rc == -ETIMEDOUT ||
	       rc == -EFAULT;
}

int log_tail_read(struct reef_log *log, struct log_tail *tail)
{
	int rc = log->tail_at ? reef_read(log->reef, log->tail_at, tail,
					  sizeof(*tail))
			      : -EFAULT;

	if (!rc &&
	    (tail->magic != LOG_TAIL_MAGIC || tail->body != log->object.body ||
	     log_draw_generation(tail->draw) != log_generation(log)))
		rc = -EFAULT;
	return is_out_of_reach(rc) ? replace_tail(log) : rc;
}

/* The FAA, and the accesses of others in the same list. */
static int draw_with(struct reef_log *log, uint32_t count,
		     struct reef_access *accesses, uint32_t used,
		     uint64_t *before)
{
	uint64_t at = log->tail_at + offsetof(struct log_tail, draw);

	if (!used)
		return reef_faa(log->reef, at, count, before);
	accesses[used] = (struct reef_access){
		.kind = REEF_FAA,
		.address = at,
		.operand = count,
	};
	(void)reef_execute(log->reef, accesses, used + 1);
	*before = accesses[used].result;
	return accesses[used].status;
}

int log_draw(struct reef_log *log, uint32_t count, struct reef_access *accesses,
	     uint32_t used, uint64_t *position)
{
	uint64_t before;
	int rc = log->tail_at ? draw_with(log, count, accesses, used, &before)
			      : -EFAULT;

	/* A draw in doubt is a hole. */
	if (rc == -REEF_EINDOUBT)
		return -EAGAIN;
	/* Nothing was drawn, because something before it failed. */
	if (rc == -REEF_ENOTDONE) {
		while (used && (!accesses[used - 1].status ||
				accesses[used - 1].status == -REEF_ENOTDONE))
			used--;
		rc = used ? accesses[used - 1].status : -EAGAIN;
		return rc == -REEF_EINDOUBT || rc == -REEF_ELOST ? -EAGAIN : rc;
	}
	/* (R10) No log comes as far as the last of these. */
	if (!rc && (log_draw_generation(before) != log_generation(log) ||
		    log_draw_position(before) + count > LOG_POSITIONS / 2))
		rc = -EFAULT;
	if (is_out_of_reach(rc))
		return replace_tail(log);
	if (!rc)
		*position = log_draw_position(before);
	return rc;
}

/* --- another tail --- */

struct renewal {
	struct reef_log *log;
	struct log_map map;
	uint32_t generation; /* of the old tail */
	bool is_seal;
	bool is_mine;
	uint32_t retained; /* so often what is not to be kept has gone */
	uint64_t position;
};

static uint64_t slot_of(const struct renewal *renewal, uint64_t index)
{
	return renewal->map.slots[index % renewal->log->options.segments];
}

/* (a). Always followed by another look. */
static int add_segment(struct renewal *renewal)
{
	struct reef_log *log = renewal->log;
	uint64_t index = renewal->map.is_empty ? 0 : renewal->map.last + 1;
	uint32_t next = log_next_generation(renewal->generation);
	uint64_t before = slot_of(renewal, index), word;
	int rc;

	if (!log_slot_is_free(log, index, before))
		return log_retain(log, index) && !renewal->retained++ ? -EAGAIN
								      : -E2BIG;
	word = log_slot_make(LOG_SLOT_SEALED, index / log->options.segments,
			     next, 0);
	if (renewal->is_seal)
		rc = log_cas(log->reef, log_slot_at(log, index), before, word,
			     NULL);
	else
		rc = log_install(log, index, next, before);
	if (rc == 1)
		(void)log_retain(log, index);
	return rc < 0 ? rc : -EAGAIN;
}

/* (b), of one segment; `back` before the one of (a). */
static int close_old(struct renewal *renewal, uint64_t back)
{
	struct reef_log *log = renewal->log;
	struct log_found found;
	uint64_t word;
	int rc;

	if (renewal->map.last < back || REEF_MUTATED(LOG_TAIL_UNSEALED))
		return 0;
	word = slot_of(renewal, renewal->map.last - back);
	if (log_slot_state(word) != LOG_SLOT_MADE ||
	    log_slot_generation(word) != renewal->generation)
		return 0;
	rc = log_find(log, renewal->map.last - back, &found);
	if (!rc)
		rc = log_close_segment(log, found.at);
	/* Nobody reads what is lost, damaged or trimmed. */
	return rc == -REEF_ELOST || rc == -REEF_ECORRUPT || rc == -ERANGE ? 0
									  : rc;
}

static int write_tail(struct renewal *renewal, uint64_t at)
{
	struct reef_log *log = renewal->log;
	const struct log_tail tail = {
		.magic = LOG_TAIL_MAGIC,
		.body = log->object.body,
		.draw = log_draw_make(log_next_generation(renewal->generation),
				      renewal->position),
		.bound = log->options.hole_ns,
	};
	int rc, attempt = 0;

	do
		rc = reef_write(log->reef, at, &tail, sizeof(tail));
	while (rc == -REEF_EINDOUBT && ++attempt < LOG_ATTEMPTS);
	return rc;
}

/* (c): put the new word in place of the old, and free what the old one named.
 */
static int swap_tail(struct renewal *renewal, uint64_t word)
{
	struct reef_log *log = renewal->log;
	uint64_t before = renewal->map.body.tail, now, at;
	int rc = log_cas(log->reef, log_tail_word_at(&log->object), before,
			 word, &now);

	if (rc)
		return rc;
	renewal->is_mine = now == word;
	if (renewal->is_mine && before & LOG_BLOCK_MASK &&
	    !reef_long_address(log->object.space, before & LOG_BLOCK_MASK, &at))
		reef_free(log->object.space, at, REEF_FREE_LATER);
	return 0;
}

static int place_tail(struct renewal *renewal)
{
	struct reef_space *space = renewal->log->object.space;
	uint64_t at, block;
	int rc = reef_alloc_kind(space, REEF_BLOCK_LOG_TAIL,
				 sizeof(struct log_tail), &at);

	if (rc)
		return rc;
	rc = write_tail(renewal, at);
	if (!rc)
		rc = reef_short_address(space, at, &block);
	if (rc) {
		reef_free(space, at, 0);
		return rc;
	}
	rc = swap_tail(renewal,
		       log_tail_make(block,
				     log_next_generation(renewal->generation),
				     LOG_OPEN));
	/* After an error the word may name it: recovery asks. */
	if (!rc && !renewal->is_mine)
		reef_free(space, at, 0);
	return rc;
}

static int renew_with_map(struct renewal *renewal)
{
	const struct log_map *map = &renewal->map;
	uint32_t next = log_next_generation(renewal->generation);
	bool is_sealed = false;
	uint64_t last;
	int rc;

	switch (log_tail_state(map->body.tail)) {
	case LOG_OPEN:
		break;
	case LOG_SEALED:
		return renewal->is_seal ? 0 : -ESHUTDOWN;
	default:
		return -ENOENT;
	}
	if (log_tail_generation(map->body.tail) != renewal->generation)
		return 0;
	last = map->is_empty ? 0 : slot_of(renewal, map->last);
	if (!map->is_empty)
		is_sealed = log_slot_state(last) == LOG_SLOT_SEALED;
	if (map->is_empty || log_slot_generation(last) == renewal->generation)
		return add_segment(renewal);
	/* Others were quicker between the READs of the tail word and of the
	 * directory. */
	if (log_slot_generation(last) != next)
		return -EAGAIN;
	rc = close_old(renewal, 1);
	if (!rc)
		rc = close_old(renewal, 2);
	if (rc)
		return rc;
	renewal->position = map->last * renewal->log->options.segment;
	if (!is_sealed)
		return place_tail(renewal);
	rc = swap_tail(renewal, log_tail_make(0, next, LOG_SEALED));
	return rc || renewal->is_seal ? rc : -ESHUTDOWN;
}

int log_renew(struct reef_log *log, uint32_t generation, bool is_seal,
	      bool *mine, uint64_t *position)
{
	struct renewal renewal = {
		.log = log,
		.generation = generation,
		.is_seal = is_seal,
	};
	int rc = -EAGAIN, attempt;

	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++) {
		rc = log_map_read(log, &renewal.map);
		if (rc)
			break;
		rc = renew_with_map(&renewal);
		free(renewal.map.slots);
		if (rc == -REEF_EINDOUBT)
			rc = -EAGAIN;
	}
	if (rc)
		return rc == -EAGAIN ? -EBUSY : rc;
	if (mine)
		*mine = renewal.is_mine;
	if (position)
		*position = renewal.position;
	return 0;
}

/* --- the end, and the tail as it is told --- */

/* READ the words of a segment. 1: it is lost. */
static int read_words(struct reef_log *log, uint64_t index, uint64_t *words)
{
	struct log_found found;
	int rc = log_find(log, index, &found);

	if (!rc)
		rc = reef_read(log->reef, found.at + log_word_offset(0), words,
			       8 * (size_t)log->options.segment);
	return rc == -REEF_ELOST || rc == -REEF_ECORRUPT ? 1 : rc;
}

/* How many words there are up to the last entry. */
static uint32_t count_used(const uint64_t *words, uint32_t count)
{
	while (count && (!words[count - 1] ||
			 log_word_state(words[count - 1]) == LOG_WORD_HOLE))
		count--;
	return count;
}

/* Go on from a slot, over holes, up to a 0, or behind the segment `last`. */
static int pass_holes(struct reef_log *log, uint64_t index, uint32_t slot,
		      uint64_t last, uint64_t *words, uint64_t *position)
{
	const uint32_t size = log->options.segment;
	int rc = 0;

	for (; index <= last; index++, slot = 0) {
		rc = read_words(log, index, words);
		if (rc < 0)
			return rc;
		while (!rc && slot < size && words[slot])
			slot++;
		if (!rc && slot < size)
			break;
	}
	*position = index > last ? (last + 1) * size : index * size + slot;
	return 0;
}

/* (R10) The directory has no more than this, whatever its words say. */
static bool is_within(const struct reef_log *log, const struct log_map *map,
		      uint64_t index)
{
	return map->last - index < log->options.segments;
}

/* The end of the generation that the tail word has: behind its last entry,
 * which is looked for from its last segment back, as segments are made ahead;
 * and behind the holes that follow it. Not behind any hole: who replaces a
 * writer makes them in no order, and that one may still append before some.
 * What is of the next generation already does not count before (c). */
static int find_end(struct reef_log *log, const struct log_map *map,
		    uint64_t *words, uint64_t *position)
{
	const uint32_t generation = log_tail_generation(map->body.tail);
	const uint32_t size = log->options.segment;
	uint64_t index, word, lowest = LOG_NOWHERE, last = LOG_NOWHERE;
	uint32_t used = 0;
	int rc = 0;

	for (index = map->last + 1;
	     !used && index-- > 0 && is_within(log, map, index);) {
		word = map->slots[index % log->options.segments];
		if (log_slot_generation(word) ==
		    log_next_generation(generation)) {
			/* All before it may have been trimmed. */
			*position = index * size;
			lowest = index;
			continue;
		}
		if (log_slot_state(word) != LOG_SLOT_MADE ||
		    log_slot_generation(word) != generation)
			break;
		rc = read_words(log, index, words);
		if (rc < 0)
			break;
		used = rc ? size : count_used(words, size);
		if (last == LOG_NOWHERE)
			last = index;
		lowest = index;
	}
	/* Others have trimmed it, or made more generations, meanwhile. */
	if (rc == -ERANGE || lowest == LOG_NOWHERE)
		return -EAGAIN;
	if (rc < 0 || last == LOG_NOWHERE)
		return rc < 0 ? rc : 0;
	return pass_holes(log, lowest, used, last, words, position);
}

int log_decided_end(struct reef_log *log, const struct log_map *map,
		    uint64_t *position)
{
	uint64_t index = *position / log->options.segment;
	uint64_t *words = malloc(8 * (size_t)log->options.segment);
	int rc = 0;

	if (!words)
		return -ENOMEM;
	if (!map->is_empty && index <= map->last)
		rc = pass_holes(log, index,
				(uint32_t)(*position % log->options.segment),
				map->last, words, position);
	free(words);
	return rc == -ESHUTDOWN || rc == -ENOENT || rc == -ERANGE ? 0 : rc;
}

int log_end(struct reef_log *log, uint64_t *position)
{
	struct log_map map;
	uint64_t *words;
	int rc = log_map_read(log, &map);

	if (rc)
		return rc;
	words = malloc(8 * (size_t)log->options.segment);
	*position = 0;
	if (!words)
		rc = -ENOMEM;
	else if (log_tail_state(map.body.tail) == LOG_DROPPED)
		rc = -ENOENT;
	else if (log_tail_state(map.body.tail) == LOG_SEALED)
		*position = map.last * log->options.segment;
	else if (!map.is_empty)
		rc = find_end(log, &map, words, position);
	free(words);
	free(map.slots);
	return rc;
}

/* A number that was drawn beyond the generation's last segment may become one
 * of the next generation's, that begins there: so it is not below the tail. */
static int clip(struct reef_log *log, uint64_t draw, uint64_t *position)
{
	const uint32_t generation = log_generation(log);
	struct log_found found;
	struct log_map map;
	uint64_t index, word;
	int rc;

	*position = draw;
	if (!draw)
		return 0;
	rc = log_find(log, (draw - 1) / log->options.segment, &found);
	if (rc == -ERANGE || (!rc && found.generation == generation))
		return 0;
	rc = log_map_read(log, &map);
	if (rc)
		return rc;
	if (map.body.tail != log->tail_word) {
		rc = log_refresh(log, false);
		rc = rc ? rc : -EAGAIN;
	}
	for (index = map.last + 1;
	     !rc && index-- > 0 && is_within(log, &map, index);) {
		word = map.slots[index % log->options.segments];
		if (log_slot_generation(word) == generation &&
		    log_slot_state(word) == LOG_SLOT_MADE)
			break;
		if (*position > index * log->options.segment)
			*position = index * log->options.segment;
		if (log_slot_generation(word) !=
		    log_next_generation(generation))
			break;
	}
	if (!rc && index == map.last &&
	    *position > (index + 1) * log->options.segment)
		*position = (index + 1) * log->options.segment;
	free(map.slots);
	return rc;
}

int log_tail_position(struct reef_log *log, uint64_t *position)
{
	struct log_tail tail;
	int rc = log_tail_read(log, &tail);

	return rc ? rc : clip(log, log_draw_position(tail.draw), position);
}

/* Look at the tail word and at the tail in one go: (7), any order will do.
 * -EAGAIN: it is another tail. */
static int read_both(struct reef_log *log, uint64_t *position)
{
	struct log_tail tail;
	uint64_t word;
	struct reef_access accesses[] = {
		log_read_of(log_tail_word_at(&log->object), &word, 8),
		log_read_of(log->tail_at, &tail, sizeof(tail)),
	};
	int rc;

	if (!log->tail_at)
		return log_tail_read(log, &tail);
	rc = reef_execute(log->reef, accesses, 2);
	if (!rc && word == log->tail_word && tail.magic == LOG_TAIL_MAGIC &&
	    log_draw_generation(tail.draw) == log_generation(log)) {
		return clip(log, log_draw_position(tail.draw), position);
	}
	if (accesses[0].status && accesses[0].status != -REEF_ENOTDONE)
		return accesses[0].status;
	if (!rc && word != log->tail_word) {
		rc = log_refresh(log, false);
		return rc ? rc : -EAGAIN;
	}
	/* This says what is wrong, and sees to it. */
	rc = log_tail_read(log, &tail);
	return rc ? rc : -EAGAIN;
}

/* One attempt, inside. */
static int tell_tail(struct reef_log *log, uint64_t *position)
{
	int rc;

	if (!log->tail_word) {
		*position = 0;
		return 0;
	}
	if (log->sharded)
		return sharded_tail(log, position);
	if (log_is_single(log) || log_tail_state(log->tail_word) == LOG_SEALED)
		return log_end(log, position);
	rc = read_both(log, position);
	return rc == -ESHUTDOWN ? -EAGAIN : rc;
}

int reef_log_tail(struct reef_log *log, uint64_t *position)
{
	int rc = log_enter(log, false), attempt;

	if (rc)
		return rc;
	/* A remembered state may be older than this call; an open one's tail is
	 * looked at. */
	if (log_is_single(log))
		rc = log_refresh(log, false);
	if (!rc)
		rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++)
		rc = tell_tail(log, position);
	log_leave(log);
	return log_told(rc);
}

int reef_log_first(struct reef_log *log, uint64_t *position)
{
	int rc;

	log_forget(log);
	rc = log_enter(log, false);
	if (rc)
		return rc;
	*position = log->first;
	log_leave(log);
	return 0;
}

/* --- seal, lead --- */

int reef_log_seal(struct reef_log *log)
{
	int rc = log_enter(log, true), attempt;

	/* What was appended early comes in first. */
	if (!rc && log->sharded && log_is_early(log))
		(void)cut_now(log, NULL);

	for (attempt = 0; !rc && attempt < LOG_ATTEMPTS; attempt++) {
		rc = log_renew(log, log_generation(log), true, NULL, NULL);
		/* Another may have made a new tail meanwhile. */
		if (!rc)
			rc = log_refresh(log, true);
		if (rc)
			log_leave(log);
	}
	if (!rc) {
		log_leave(log);
		return -EBUSY;
	}
	return rc == -ESHUTDOWN ? 0 : log_told(rc);
}

static int try_lead(struct reef_log *log)
{
	uint32_t generation = log_generation(log);
	uint64_t position;
	bool mine = false;
	int rc = log_renew(log, generation, false, &mine, &position);

	if (!rc)
		rc = log_refresh(log, true);
	if (rc)
		return rc;
	if (!mine)
		return -EAGAIN;
	log->leads = true;
	log->gap = 0;
	log->lead_generation = log_next_generation(generation);
	log->next = position;
	log->lacking = LOG_NOWHERE;
	return 0;
}

int reef_log_lead(struct reef_log *log)
{
	struct reef_patience patience = {0};
	int rc, waited, attempt = 0;

	if (!log_is_single(log))
		return -EINVAL;
	do {
		/* What is remembered may be another's generation. */
		log_forget(log);
		rc = log_enter(log, true);
		if (rc && rc != -ENOSPC)
			return log_told(rc);
		if (!rc) {
			rc = try_lead(log);
			log_leave(log);
		}
		if (rc == -ENOSPC) {
			waited =
				reef_await_memory(log->object.space, &patience);
			rc = waited ? waited : -EAGAIN;
		}
	} while (rc == -EAGAIN && ++attempt < LOG_ATTEMPTS);
	return log_told(rc);
}
