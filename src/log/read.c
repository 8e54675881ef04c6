/* read.c - reading: windows of words and cells, and what becomes of zeros.
 *
 *   {READ words; READ cells} --> entries, holes, then 0
 *                                 |
 *   0: is it below the tail? no: the end.  yes: it was drawn; for the bound
 *   nothing happens, then CAS 0 -> HOLE: (7) of layout.h
 *
 * (1) What is given out is decided: a word that is not 0, and of a MEMBER its
 *     head's. So no two readers differ.
 * (2) The READ of cells takes effect after that of words (F3b), so a word that
 *     is PRESENT has its cell. */
#include "log/shard.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LONG_BYTES (UINT64_C(4) << 20) /* of a window */

int log_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	    uint64_t *now)
{
	uint64_t there = compare;
	int rc = -REEF_EINDOUBT, attempt;

	for (attempt = 0; rc == -REEF_EINDOUBT && attempt < LOG_ATTEMPTS;
	     attempt++) {
		rc = reef_cas(reef, at, compare, value, &there);
		if (!rc && there == compare)
			there = value;
		if (rc == -REEF_EINDOUBT)
			rc = reef_read(reef, at, &there, 8);
		if (!rc && there == compare)
			rc = -REEF_EINDOUBT;
	}
	if (!rc && now)
		*now = there;
	return rc;
}

/* --- a window --- */

struct window {
	struct reef_log *log;
	uint64_t from;
	uint32_t most;	/* positions that it may have */
	uint32_t count; /* that are decided, from the first on */
	struct log_found segment;
	uint8_t **longs; /* their bytes, by position; NULL: none */
	bool is_blocked; /* behind them one is not */
	bool is_one;	 /* what cannot be read is the first entry alone */
};

static uint32_t slot_of(const struct reef_log *log, uint64_t position)
{
	return (uint32_t)(position % log->options.segment);
}

static void free_longs(struct window *window)
{
	uint32_t i;

	for (i = 0; window->longs && i < window->most; i++)
		free(window->longs[i]);
	free(window->longs);
	window->longs = NULL;
}

/* The word by which position `from + i` is judged: its own, or its head's. 0:
 * it is not decided. */
static int deciding_word(struct window *window, uint32_t i, uint64_t *word)
{
	struct reef_log *log = window->log;
	uint32_t back = log_word_back(log->words[i]), slot;

	*word = log->words[i];
	if (log_word_state(*word) != LOG_WORD_MEMBER)
		return 0;
	slot = slot_of(log, window->from) + i;
	if (!back || back > slot)
		return -REEF_ECORRUPT;
	if (back <= i) {
		*word = log->words[i - back];
		return 0;
	}
	return reef_read(log->reef,
			 window->segment.at + log_word_offset(slot - back),
			 word, 8);
}

/* Turn MEMBERs into what their heads make of them, from the last on, as heads
 * stand before them; and count what is decided. */
static int decide(struct window *window)
{
	struct reef_log *log = window->log;
	uint64_t word;
	uint32_t i;
	int rc;

	window->count = window->most;
	for (i = window->most; i-- > 0;) {
		rc = deciding_word(window, i, &word);
		/* Only what comes before it can be given. */
		if (rc)
			log->words[i] = word = 0;
		window->is_one = rc == -REEF_ECORRUPT && !i;
		if (rc && !i)
			return rc;
		if (!word)
			window->count = i;
		else if (log_word_state(word) == LOG_WORD_HOLE)
			log->words[i] = LOG_HOLE;
	}
	window->is_blocked = window->count < window->most;
	return 0;
}

static bool is_entry(uint64_t word)
{
	return log_word_state(word) == LOG_WORD_PRESENT ||
	       log_word_state(word) == LOG_WORD_MEMBER;
}

/* READ the blocks of long entries, while they are what the words name. */
static int read_longs(struct window *window)
{
	struct reef_log *log = window->log;
	uint64_t bytes = 0, at;
	uint32_t i, size;
	int rc = 0;

	for (i = 0; i < window->count; i++) {
		uint64_t word = log->words[i];

		if (!is_entry(word) || !log_word_is_long(word))
			continue;
		size = log_step_size(log_word_step(word));
		bytes += size;
		if (bytes > LONG_BYTES && i)
			break;
		if (!window->longs)
			window->longs =
				calloc(window->most, sizeof(*window->longs));
		if (window->longs)
			window->longs[i] = malloc(size);
		if (!window->longs || !window->longs[i])
			return -ENOMEM;
		rc = reef_long_address(log->object.space, word & LOG_BLOCK_MASK,
				       &at);
		if (!rc)
			rc = reef_read(log->reef, at, window->longs[i], size);
		if (rc)
			break;
	}
	if (i < window->count)
		window->is_blocked = false;
	window->count = i;
	if (rc == -EFAULT || rc == -ERANGE || rc == -EINVAL)
		rc = -REEF_ECORRUPT;
	/* Its block is not the segment's. */
	window->is_one = rc && !i;
	return i ? 0 : rc;
}

/* TOLD: `each` has ended it, and `said` is why. */
enum { GO_ON, AT_END, LATER, TOLD };

/* AT_END: it is not there yet, nor may it ever be.  -ENOENT: the log was
 * dropped. */
static int find_segment(struct window *window)
{
	struct reef_log *log = window->log;
	uint64_t index = window->from / log->options.segment;
	int rc = log_is_far(log, index) ? log_refresh(log, false) : 0;

	if (rc)
		return rc;
	if (log_is_far(log, index))
		return AT_END;
	rc = log_find(log, index, &window->segment);
	if (rc == -ENOENT || rc == -ESHUTDOWN)
		return AT_END;
	if (rc != -ERANGE)
		return rc;
	/* (R10) What was taken out of the directory is below `first`. */
	rc = log_refresh(log, false);
	return rc ? rc : window->from < log->first ? -ERANGE : -REEF_ECORRUPT;
}

static int read_window(struct window *window)
{
	struct reef_log *log = window->log;
	uint32_t slot = slot_of(log, window->from);
	int rc = find_segment(window);

	if (rc)
		return rc;
	if (window->most > log->options.segment - slot)
		window->most = log->options.segment - slot;
	if (window->most > log->window)
		window->most = log->window;

	struct reef_access accesses[] = {
		log_read_of(window->segment.at + log_word_offset(slot),
			    log->words, 8 * window->most),
		log_read_of(window->segment.at + log_cell_offset(log, slot),
			    log->cells, log->options.cell * window->most),
	};
	rc = reef_execute(log->reef, accesses, 2);
	if (!rc)
		rc = decide(window);
	if (!rc)
		rc = read_longs(window);
	return rc;
}

/* --- zeros --- */

/* Shrink the bound towards what it began with: a hole was made, and nobody has
 * complained so far. */
static void shrink_bound(struct reef_log *log, uint64_t bound)
{
	uint64_t at = log->tail_at + offsetof(struct log_tail, bound);

	if (bound <= log->options.hole_ns)
		return;
	bound -= (bound - log->options.hole_ns + 7) / 8;
	(void)reef_write(log->reef, at, &bound, 8);
}

/* Make holes of all zeros from `from` on that were drawn when the bound began;
 * those behind entries, too, so that several dead cost one bound. What was
 * drawn since has a bound of its own. */
static int fill_drawn(struct window *window, const struct log_tail *tail)
{
	struct reef_log *log = window->log;
	uint64_t end = log->hole_end;
	uint32_t slot = slot_of(log, window->from), count, head;
	int rc;

	count = log->options.segment - slot;
	count = count < log->window ? count : log->window;
	if (count > end - window->from)
		count = (uint32_t)(end - window->from);
	rc = reef_read(log->reef, window->segment.at + log_word_offset(slot),
		       log->words, 8 * (size_t)count);
	if (rc)
		return rc;
	/* A MEMBER is decided by its head. */
	head = log_word_back(log->words[0]);
	if (log_word_state(log->words[0]) == LOG_WORD_MEMBER && head <= slot) {
		rc = log_cas(log->reef,
			     window->segment.at + log_word_offset(slot - head),
			     0, LOG_HOLE, NULL);
		if (rc)
			return rc;
	}
	rc = log_fill_zeros(log, window->segment.at, slot, log->words, count);
	if (!rc) {
		shrink_bound(log, tail->bound);
		log_wake_all(log, window->segment.at);
	}
	return rc;
}

static bool is_older(uint32_t generation, uint32_t than)
{
	uint32_t behind = (than + LOG_GENERATIONS - 1 - generation) %
			  (LOG_GENERATIONS - 1);

	return behind && behind < LOG_GENERATIONS / 2;
}

/* (7) goes by the tail of the segment's own generation. AT_END: the segment is
 * not in use yet.  LATER: it is as it should be. */
static int match_generation(struct window *window)
{
	struct reef_log *log = window->log;
	uint32_t generation = window->segment.generation;
	int rc;

	if (generation == log_generation(log))
		return LATER;
	/* Of a generation that was over before the word was read: (5). */
	if (is_older(generation, log_generation(log)))
		return -REEF_ECORRUPT;
	rc = log_refresh(log, false);
	if (rc)
		return rc;
	if (generation == log_generation(log))
		return LATER;
	if (generation == log_next_generation(log_generation(log)))
		return AT_END;
	/* (R10) No segment is further ahead than that. */
	return is_older(generation, log_generation(log)) ? GO_ON
							 : -REEF_ECORRUPT;
}

/* Where there is no tail, and no room for one: 1, if nothing is at or behind
 * the first position of the window, so that it is the end of what is there. */
static int is_last(struct window *window)
{
	struct reef_log *log = window->log;
	const uint32_t size = log->options.segment;
	uint64_t *words = malloc(8 * (size_t)size);
	struct log_found found = window->segment;
	uint32_t i = slot_of(log, window->from);
	int rc = words ? 0 : -ENOMEM;

	while (!rc) {
		rc = reef_read(log->reef, found.at + log_word_offset(0), words,
			       8 * (size_t)size);
		while (!rc && i < size && !words[i])
			i++;
		if (rc || i < size)
			break;
		i = 0;
		rc = log_find(log, found.index + 1, &found);
	}
	free(words);
	return rc == -ENOENT || rc == -ESHUTDOWN ? 1 : rc;
}

/* The first position of the window is 0. AT_END: it is the end of the log.
 * LATER: it is to be looked at after *wait_ns.  0: it is a hole now, or
 * decided: read again. */
static int resolve(struct window *window, uint64_t *wait_ns)
{
	struct reef_log *log = window->log;
	struct log_tail tail;
	uint64_t now_ns = reef_now_ns();
	int rc;

	if (log_is_single(log) || !log->tail_word)
		return AT_END;
	rc = match_generation(window);
	if (rc != LATER)
		return rc;
	/* A sealed log has no zeros. */
	if (log_tail_state(log->tail_word) == LOG_SEALED)
		return -REEF_ECORRUPT;
	rc = log_tail_read(log, &tail);
	if (log_lacks_room(rc)) {
		int last = is_last(window);

		return last == 1 ? AT_END : last ? last : rc;
	}
	if (rc == -EACCES)
		return AT_END;
	if (rc)
		return rc == -EAGAIN || rc == -ESHUTDOWN ? 0 : rc;
	if (log_draw_position(tail.draw) <= window->from)
		return AT_END;
	if (log->hole_generation != log_generation(log) ||
	    window->from < log->hole_at || window->from >= log->hole_end) {
		log->hole_generation = log_generation(log);
		log->hole_at = window->from;
		log->hole_end = log_draw_position(tail.draw);
		log->hole_since_ns = now_ns;
	}
	if (tail.bound > LOG_BOUND_MAX)
		tail.bound = LOG_BOUND_MAX;
	if (now_ns - log->hole_since_ns < tail.bound) {
		*wait_ns = tail.bound - (now_ns - log->hole_since_ns);
		return LATER;
	}
	rc = fill_drawn(window, &tail);
	if (rc == -EACCES)
		return AT_END;
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* --- giving --- */

struct reading {
	struct reef_log *log;
	int (*each)(void *context, uint64_t position, const void *bytes,
		    size_t size);
	void *context;
	uint32_t most, given;
	uint64_t next;
	int said;
};

static int give(struct reading *reading, const void *bytes, size_t size)
{
	reading->said =
		reading->each(reading->context, reading->next, bytes, size);
	return reading->said ? TOLD : 0;
}

/* True if a long entry's block says that it is of the position to be given. */
static bool is_placed(const struct reading *reading, uint32_t i,
		      uint64_t position)
{
	const struct log_sharded *sharded = reading->log->sharded;

	return sharded ? position >> 63 &&
				 (position & 0xfffff) == sharded->slots[i]
		       : position <= reading->next;
}

static int give_long(struct reading *reading, const uint8_t *bytes, uint32_t i,
		     uint64_t word)
{
	const struct log_entry *head = (const struct log_entry *)(void *)bytes;
	uint32_t room =
		log_step_size(log_word_step(word)) - (uint32_t)sizeof(*head);

	if (head->body != reading->log->object.body ||
	    !is_placed(reading, i, head->position) || head->size > room ||
	    reef_crc32c(0, head + 1, head->size) != head->crc)
		return -REEF_ECORRUPT;
	return give(reading, head + 1, head->size);
}

static int give_short(struct reading *reading, uint32_t i, uint64_t word)
{
	struct reef_log *log = reading->log;
	const uint8_t *cell = log->cells + (size_t)i * log->stride;
	uint32_t size = log_word_size(word), seed = (uint32_t)reading->next;

	if (log->sharded) {
		cell += 8;
		seed = log->sharded->slots[i];
	}
	if (size > log->options.cell ||
	    reef_crc32c(seed, cell, size) != (uint32_t)word)
		return -REEF_ECORRUPT;
	return give(reading, cell, size);
}

/* Give what a window has. Nonzero: what `each` said, damage, or AT_END: it
 * begins with the next one. */
static int give_window(struct reading *reading, const struct window *window)
{
	struct reef_log *log = reading->log;
	uint32_t i;
	int rc;

	for (i = 0; i < window->count && reading->given < reading->most; i++) {
		uint64_t word = log->words[i];

		reading->next = window->from + i;
		rc = 0;
		if (is_entry(word)) {
			rc = log_word_is_long(word)
				     ? give_long(reading, window->longs[i], i,
						 word)
				     : give_short(reading, i, word);
			/* What is damaged is told when a read begins with it.
			 */
			if (rc == -REEF_ECORRUPT && reading->given)
				return AT_END;
			reading->given += rc != -REEF_ECORRUPT;
		}
		reading->next++;
		if (rc)
			return rc;
	}
	return 0;
}

/* What an error of a window means: *next may go on behind it. */
static int judge(struct reading *reading, const struct window *window, int rc)
{
	uint32_t size = reading->log->options.segment;

	switch (rc) {
	case -REEF_ELOST:
	case -REEF_ECORRUPT:
		if (reading->given)
			return AT_END;
		reading->next = window->is_one
					? reading->next + 1
					: (reading->next / size + 1) * size;
		return rc;
	default:
		return rc;
	}
}

/* The same of a SHARDED log, whose words are all decided. */
static int read_sharded(struct reading *reading, struct window *window)
{
	uint64_t next;
	int rc = sharded_read(window->log, window->from, window->most,
			      &window->count, &next);

	window->most = window->log->window;
	if (!rc && window->count)
		rc = read_longs(window);
	if ((rc == -REEF_ELOST || rc == -REEF_ECORRUPT) && !reading->given)
		reading->next = window->is_one ? window->from + 1 : next;
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT)
		return reading->given ? AT_END : rc;
	return rc || window->count ? rc : AT_END;
}

/* READ a window and give it. AT_END: no more now.  LATER, 0: go on. */
static int read_some(struct reading *reading, uint64_t *wait_ns)
{
	struct reef_log *log = reading->log;
	struct window window = {
		.log = log,
		.from = reading->next,
		.most = reading->most - reading->given,
	};
	bool is_judged = false;
	int rc = log_enter(log, false);

	if (rc)
		return rc;
	if (window.from < log->first)
		rc = -ERANGE;
	if (!rc && log->sharded) {
		rc = read_sharded(reading, &window);
		is_judged = true;
	} else if (!rc) {
		rc = read_window(&window);
	}
	if (!rc && !window.count && window.is_blocked) {
		rc = reading->given ? AT_END : resolve(&window, wait_ns);
		if (REEF_MUTATED(LOG_HOLE_SKIPPED) && rc == LATER) {
			reading->next++;
			rc = 0;
		}
	}
	log_leave(log);
	if (rc < 0 && !is_judged)
		rc = judge(reading, &window, rc);
	else if (!rc && window.count)
		rc = give_window(reading, &window);
	free_longs(&window);
	/* What was trimmed since is told when a read begins with it. */
	return rc == -ERANGE && reading->given ? AT_END : rc;
}

int reef_log_read(struct reef_log *log, uint64_t from, uint32_t most,
		  int (*each)(void *context, uint64_t position,
			      const void *bytes, size_t size),
		  void *context, uint64_t *next)
{
	struct reading reading = {
		.log = log,
		.each = each,
		.context = context,
		.most = most,
		.next = from,
	};
	uint64_t wait_ns = 0;
	int rc = 0;

	while (reading.given < most) {
		rc = read_some(&reading, &wait_ns);
		if (rc == LATER)
			rc = reef_sleep(wait_ns);
		if (rc)
			break;
	}
	if (rc == AT_END)
		rc = 0;
	if (next && (rc >= 0 || rc == -REEF_ELOST || rc == -REEF_ECORRUPT))
		*next = reading.next;
	return rc == TOLD ? reading.said : log_told(rc);
}

/* --- fill --- */

/* The word that decides a position: its own, or its head's; 0 becomes a HOLE if
 * `is_made`. */
static int decide_word(struct reef_log *log, uint64_t position, bool is_made,
		       uint64_t *word)
{
	uint32_t slot = slot_of(log, position), back;
	struct log_found found;
	uint64_t at;
	int rc = log_find(log, position / log->options.segment, &found);

	if (rc)
		return rc == -ENOENT ? -ERANGE : rc;
	at = found.at + log_word_offset(slot);
	rc = is_made ? log_cas(log->reef, at, 0, LOG_HOLE, word)
		     : reef_read(log->reef, at, word, 8);
	if (!rc && log_word_state(*word) == LOG_WORD_MEMBER) {
		back = log_word_back(*word);
		/* (R10) */
		if (!back || back > slot)
			return -REEF_ECORRUPT;
		at -= 8 * (uint64_t)back;
		rc = is_made ? log_cas(log->reef, at, 0, LOG_HOLE, word)
			     : reef_read(log->reef, at, word, 8);
	}
	if (!rc && is_made)
		log_wake_all(log, found.at);
	return rc;
}

static int fill_inside(struct reef_log *log, uint64_t position)
{
	/* Nobody but its writer knows what a SINGLE log has drawn, and of a
	 * sealed one all is decided. */
	const bool is_made = !log_is_single(log) &&
			     log_tail_state(log->tail_word) != LOG_SEALED;
	uint64_t word, tail = 0;
	int rc = 0;

	if (position < log->first)
		return -ERANGE;
	if (log->sharded)
		rc = sharded_tail(log, &tail);
	else if (log->tail_word)
		rc = is_made ? log_tail_position(log, &tail)
			     : log_end(log, &tail);
	if (rc || position >= tail)
		return rc ? rc : -ERANGE;
	/* Nothing is drawn; (S7) of shard.h makes the holes. */
	if (log->sharded)
		return -EEXIST;
	rc = decide_word(log, position, is_made, &word);
	if (!rc && !word)
		return -ERANGE;
	return rc || log_word_state(word) == LOG_WORD_HOLE ? rc : -EEXIST;
}

int reef_log_fill(struct reef_log *log, uint64_t position)
{
	int rc = log_enter(log, false), attempt;

	if (rc)
		return rc;
	rc = -EAGAIN;
	for (attempt = 0; rc == -EAGAIN && attempt < LOG_ATTEMPTS; attempt++) {
		rc = fill_inside(log, position);
		/* It is sealed since. */
		if (rc == -ESHUTDOWN) {
			rc = log_refresh(log, false);
			rc = rc ? rc : -EAGAIN;
		}
	}
	log_leave(log);
	return log_told(rc);
}
