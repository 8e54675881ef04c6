/* group.c - a reader that several share: (1) to (6) of reader.h.
 *
 *   look --> read what is free --> CAS: claim --> give --> CAS: done
 *    ^         |nothing there        |lost
 *    +---wait--+<--------------------+
 *
 * Entries are read before they are claimed, so that nobody holds what is not
 * there yet; base is moved up on the way. A member that dies before its CAS has
 * taken nothing; after it, its session is FENCED some time, and others look for
 * that a few times in a lease. */
#include "log/reader.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 128u	      /* CASes at once */
#define BYTES_MAX (4ul << 20) /* of entries at once */
#define SESSIONS_MAX 64u      /* looked at in one sweep */
#define STEP_LAPS (CLAIM_LAPS / 4)
#define PAUSE_NS UINT64_C(50000)
#define OVERDUE 4u

/* What a word becomes after `before`, by this member: (4). */
static uint64_t claim_after(const struct reef_reader *reader, uint64_t before,
			    uint64_t lap, enum claim_state state)
{
	const uint64_t counts = UINT64_C(1) << CLAIM_COUNT_BITS;

	return lap % CLAIM_LAPS << 54 | (uint64_t)(reader->number & 63) << 48 |
	       ((before >> 34) + 1) % counts << 34 | (uint64_t)state << 32 |
	       reef_session(reader->object.reef);
}

static uint64_t claim_of(const struct reef_reader *reader, uint64_t before,
			 uint64_t position, enum claim_state state)
{
	return claim_after(reader, before, reader_lap(reader, position), state);
}

/* --- looking --- */

int group_look(struct reef_reader *reader)
{
	struct reef_access accesses[] = {
		log_read_of(reader_base_at(&reader->object), &reader->base_seen,
			    8),
		log_read_of(reader_claim_at(reader, 0), reader->words,
			    8 * reader->fixed.window),
	};
	int rc = reef_execute(reader->object.reef, accesses, 2);

	/* (R10) */
	return !rc && reader->base_seen < reader->fixed.start ? -REEF_ECORRUPT
							      : rc;
}

uint64_t group_base(const struct reef_reader *reader)
{
	uint64_t base = reader->base_seen, end = base + reader->fixed.window;

	while (base < end &&
	       claim_is_done(reader, base,
			     reader->words[reader_slot(reader, base)]))
		base++;
	return base;
}

/* True if a position can be claimed. */
static bool is_free(const struct reef_reader *reader, uint64_t position)
{
	uint32_t slot = reader_slot(reader, position);
	uint64_t word = reader->words[slot];
	int64_t behind = claim_behind(reader, position, word);

	if (behind)
		return behind > 0;
	return claim_state(word) == CLAIM_BACK ||
	       (claim_state(word) == CLAIM_TAKEN && reader->is_over[slot] &&
		word != reader->mine[slot]);
}

/* --- those who died, or take too long --- */

/* Mark what is over of one session, from a slot on. */
static int judge_session(struct reef_reader *reader, uint32_t session)
{
	enum reef_session_view view = REEF_VIEW_ALIVE;
	int rc = reef_session_check(reader->object.reef, session, &view);
	bool is_over = view == REEF_VIEW_ENDED;

	/* The broker is away: nobody knows. */
	if (rc)
		return rc == -REEF_ENOLINK ? 0 : rc;
	if (REEF_MUTATED(READER_TAKE_EXPIRED))
		is_over = view != REEF_VIEW_ALIVE;
	for (uint32_t i = 0; is_over && i < reader->fixed.window; i++)
		if ((uint32_t)reader->words[i] == session)
			reader->is_over[i] = true;
	return 0;
}

/* Look at the sessions that have something, each once; where they are very many
 * the next sweep goes on with the others. */
static int sweep_sessions(struct reef_reader *reader)
{
	const uint32_t window = reader->fixed.window;
	uint32_t known[SESSIONS_MAX], count = 0, i, j, slot = 0;
	int rc = 0;

	known[count++] = reef_session(reader->object.reef);
	for (i = 0; !rc && i < window && count < SESSIONS_MAX; i++) {
		uint32_t session;

		slot = (reader->sweep_slot + i) % window;
		session = (uint32_t)reader->words[slot];
		if (claim_state(reader->words[slot]) != CLAIM_TAKEN)
			continue;
		for (j = 0; j < count && known[j] != session;)
			j++;
		if (j < count)
			continue;
		known[count++] = session;
		rc = judge_session(reader, session);
	}
	reader->sweep_slot = slot;
	return rc;
}

/* Which claims are over: (5). */
static int find_over(struct reef_reader *reader)
{
	uint64_t now_ns = reef_now_ns(), wait_ns = reader->fixed.redeliver_ns;
	uint64_t pause_ns = reef_session_ttl(reader->object.reef) / 4;
	uint32_t i;

	for (i = 0; i < reader->fixed.window; i++) {
		if (reader->seen[i] != reader->words[i]) {
			reader->seen[i] = reader->words[i];
			reader->since_ns[i] = now_ns;
			reader->is_over[i] = false;
		}
		if (wait_ns && now_ns - reader->since_ns[i] >= wait_ns)
			reader->is_over[i] = true;
	}
	if (now_ns < reader->sweep_ns)
		return 0;
	reader->sweep_ns = now_ns + pause_ns;
	return sweep_sessions(reader);
}

/* --- reading --- */

static int add_entry(struct reef_reader *reader, uint64_t position,
		     const void *bytes, size_t size, bool is_hole)
{
	if (reader->count == reader->room) {
		uint32_t room = reader->room ? 2 * reader->room : 64;
		void *more = realloc(reader->entries,
				     room * sizeof(*reader->entries));

		if (!more)
			return -ENOMEM;
		reader->entries = more;
		reader->room = room;
	}
	if (!reader->bytes || size > reader->bytes_room - reader->bytes_used) {
		size_t room = 2 * (reader->bytes_used + size) + 4096;
		void *more = realloc(reader->bytes, room);

		if (!more)
			return -ENOMEM;
		reader->bytes = more;
		reader->bytes_room = room;
	}
	if (size)
		memcpy(reader->bytes + reader->bytes_used, bytes, size);
	reader->entries[reader->count++] = (struct reader_entry){
		.position = position,
		.at = reader->bytes_used,
		.size = size,
		.before = reader->words[reader_slot(reader, position)],
		.is_hole = is_hole,
	};
	reader->bytes_used += size;
	return 0;
}

struct gathering {
	struct reef_reader *reader;
	uint64_t at, end; /* what was seen; what may be claimed */
	uint32_t most, taken;
};

enum { ENOUGH = 1 };

static int add_holes(struct gathering *gathering, uint64_t until)
{
	int rc = 0;

	if (until > gathering->end)
		until = gathering->end;
	for (; !rc && gathering->at < until; gathering->at++)
		if (is_free(gathering->reader, gathering->at))
			rc = add_entry(gathering->reader, gathering->at, NULL,
				       0, true);
	return rc;
}

static int gather(void *context, uint64_t position, const void *bytes,
		  size_t size)
{
	struct gathering *gathering = context;
	struct reef_reader *reader = gathering->reader;
	int rc = add_holes(gathering, position);

	if (rc || position >= gathering->end)
		return rc ? rc : ENOUGH;
	if (is_free(reader, position)) {
		rc = add_entry(reader, position, bytes, size, false);
		gathering->taken++;
	}
	gathering->at = position + 1;
	if (!rc && (gathering->taken == gathering->most ||
		    reader->bytes_used >= BYTES_MAX))
		rc = ENOUGH;
	return rc;
}

/* READ what is free, from a position on. *lost: why some of it cannot be. */
static int read_free(struct reef_reader *reader, uint64_t from, uint32_t most,
		     int *lost)
{
	struct gathering gathering = {
		.reader = reader,
		.at = from,
		.end = reader->base_seen + reader->fixed.window,
		.most = most,
	};
	uint64_t next = from, at = from, span;
	int rc;

	/* As many as are not free stand between them. */
	for (span = 0; at < gathering.end && span < most; at++)
		span += is_free(reader, at);
	reader->count = 0;
	reader->bytes_used = 0;
	rc = reef_log_read(reader->log, from, (uint32_t)(at - from), gather,
			   &gathering, &next);
	*lost = rc == -REEF_ELOST || rc == -REEF_ECORRUPT ? rc : 0;
	if (rc == ENOUGH || *lost)
		rc = 0;
	/* What cannot be read counts as holes do. */
	return rc ? rc : add_holes(&gathering, next);
}

/* --- claiming --- */

/* True if an acknowledgement in doubt happened, as its word went on to the next
 * lap since: nobody but us could have acknowledged it, while we live. */
static bool has_gone_on(const struct reef_reader *reader, uint64_t done,
			uint64_t word)
{
	return claim_state(done) == CLAIM_DONE && !reader->fixed.redeliver_ns &&
	       lap_behind(claim_lap(done), word) < 0;
}

/* Some CASes are in doubt: do them again that did not happen. */
static int settle(struct reef_reader *reader, struct reef_access *accesses,
		  uint32_t count)
{
	uint64_t now = 0;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = log_cas(reader->object.reef, accesses[i].address,
			     accesses[i].compare, accesses[i].operand, &now);
		accesses[i].result =
			now == accesses[i].operand ||
					has_gone_on(reader, accesses[i].operand,
						    now)
				? accesses[i].compare
				: accesses[i].operand;
	}
	return rc;
}

/* Do CASes. After it, result is compare in those that succeeded. */
static int change_words(struct reef_reader *reader,
			struct reef_access *accesses, uint32_t count)
{
	int rc = count ? reef_execute(reader->object.reef, accesses, count) : 0;

	return rc == -REEF_EINDOUBT ? settle(reader, accesses, count) : rc;
}

/* Claim some of what was read; those that were lost are no entries any more. */
static int claim_batch(struct reef_reader *reader, struct reader_entry *entries,
		       uint32_t count)
{
	struct reef_access accesses[BATCH];
	uint32_t i, slot;
	int rc;

	for (i = 0; i < count; i++)
		accesses[i] = log_cas_of(
			reader_claim_at(
				reader,
				reader_slot(reader, entries[i].position)),
			entries[i].before,
			claim_of(reader, entries[i].before, entries[i].position,
				 entries[i].is_hole &&
						 !REEF_MUTATED(READER_HOLE_LEFT)
					 ? CLAIM_DONE
					 : CLAIM_TAKEN));
	/* After an error it is not known which are ours: settle_doubts. */
	for (i = 0; i < count; i++)
		if (!entries[i].is_hole)
			reader->doubts[reader_slot(reader,
						   entries[i].position)] =
				accesses[i].operand;
	rc = change_words(reader, accesses, count);
	reader->has_doubts |= rc != 0;
	for (i = 0; !rc && i < count; i++) {
		bool is_won = accesses[i].result == accesses[i].compare ||
			      REEF_MUTATED(READER_CLAIM_LATE);

		slot = reader_slot(reader, entries[i].position);
		reader->doubts[slot] = 0;
		if (is_won && !entries[i].is_hole) {
			reader->has_lost |= reader->mine[slot] != 0;
			reader->mine[slot] = accesses[i].operand;
		}
		/* It is not given. */
		if (!is_won)
			entries[i].is_hole = true;
	}
	return rc;
}

/* Give back what was claimed by a call that failed. */
static int settle_doubts(struct reef_reader *reader)
{
	uint64_t word;
	uint32_t slot;
	int rc = 0;

	for (slot = 0; !rc && slot < reader->fixed.window; slot++) {
		word = reader->doubts[slot];
		if (!word)
			continue;
		rc = log_cas(
			reader->object.reef, reader_claim_at(reader, slot),
			word,
			claim_after(reader, word, claim_lap(word), CLAIM_BACK),
			NULL);
		if (!rc)
			reader->doubts[slot] = 0;
	}
	reader->has_doubts = rc != 0;
	return rc;
}

static int claim_entries(struct reef_reader *reader)
{
	uint32_t at = 0, part;
	int rc = 0;

	reader->claimed_ns = reef_now_ns();
	for (; !rc && at < reader->count; at += part) {
		part = reader->count - at;
		part = part < BATCH ? part : BATCH;
		rc = claim_batch(reader, &reader->entries[at], part);
	}
	return rc;
}

/* --- base --- */

/* Where the log was trimmed: (6). Bring all words to DONE below `first`. */
static int pass_trimmed(struct reef_reader *reader, uint64_t first)
{
	struct reef_access accesses[BATCH];
	const uint32_t window = reader->fixed.window;
	uint32_t slot, used = 0, back;
	int rc = 0;

	for (slot = 0; !rc && slot < window; slot++) {
		/* The last position below `first` that has this word. */
		back = (reader_slot(reader, first - 1) + window - slot) %
		       window;
		if (back > first - 1 - reader->fixed.start ||
		    claim_is_done(reader, first - 1 - back,
				  reader->words[slot]))
			continue;
		accesses[used++] = log_cas_of(
			reader_claim_at(reader, slot), reader->words[slot],
			claim_of(reader, reader->words[slot], first - 1 - back,
				 CLAIM_DONE));
		if (used == BATCH) {
			rc = change_words(reader, accesses, used);
			used = 0;
		}
	}
	if (!rc)
		rc = change_words(reader, accesses, used);
	/* Words that others changed meanwhile are looked at again. */
	return rc ? rc : group_look(reader);
}

static int move_base(struct reef_reader *reader, uint64_t base)
{
	uint64_t now = base;
	int rc = 0;

	if (base > reader->base_seen)
		rc = log_cas(reader->object.reef,
			     reader_base_at(&reader->object), reader->base_seen,
			     base, &now);
	if (!rc && base > reader->base_seen)
		reader->base_seen = now;
	return rc;
}

/* True if all words are DONE up to there, or beyond. */
static bool is_passed(const struct reef_reader *reader, uint64_t first)
{
	uint64_t at = first > reader->base_seen + reader->fixed.window
			      ? first - reader->fixed.window
			      : reader->base_seen;

	for (; at < first; at++)
		if (!claim_is_done(reader, at,
				   reader->words[reader_slot(reader, at)]))
			return false;
	return true;
}

/* Look, and see to it that base is where it can be. */
static int look_and_tidy(struct reef_reader *reader)
{
	uint64_t base, first = reader->log->first, most;
	int rc = group_look(reader), attempt;

	/* (6): what is further away is passed in several steps. */
	most = reader->base_seen + STEP_LAPS * reader->fixed.window;
	first = first < most ? first : most;
	for (attempt = 0; !rc && first > reader->base_seen &&
			  !is_passed(reader, first) && attempt < LOG_ATTEMPTS;
	     attempt++)
		rc = pass_trimmed(reader, first);
	if (rc)
		return rc;
	base = group_base(reader);
	if (first > base && is_passed(reader, first))
		base = first;
	if (REEF_MUTATED(READER_BASE_AHEAD)) {
		uint64_t end = reader->base_seen + reader->fixed.window;

		for (first = base; first < end; first++)
			if (claim_is_done(
				    reader, first,
				    reader->words[reader_slot(reader, first)]))
				base = first + 1;
	}
	return move_base(reader, base);
}

/* --- next --- */

/* Put back what was claimed and is not given any more. */
static void give_back_from(struct reef_reader *reader, uint32_t index)
{
	for (; index < reader->count; index++) {
		const struct reader_entry *entry = &reader->entries[index];
		uint32_t slot = reader_slot(reader, entry->position);

		if (entry->is_hole)
			continue;
		(void)log_cas(reader->object.reef,
			      reader_claim_at(reader, slot), reader->mine[slot],
			      claim_of(reader, reader->mine[slot],
				       entry->position, CLAIM_BACK),
			      NULL);
		reader->mine[slot] = 0;
	}
}

/* The lowest position that can be claimed; the end of the window: none. */
static uint64_t find_free(const struct reef_reader *reader)
{
	uint64_t at = reader->base_seen, end = at + reader->fixed.window;

	while (at < end && !is_free(reader, at))
		at++;
	return at;
}

/* Look, read and claim. *from: the lowest that is free. */
static int take_some(struct reef_reader *reader, uint32_t most, uint64_t *from,
		     int *lost)
{
	uint64_t first;
	int rc = reader->has_doubts ? settle_doubts(reader) : 0;

	if (!rc)
		rc = look_and_tidy(reader);

	*lost = 0;
	reader->count = 0;
	if (!rc)
		rc = find_over(reader);
	if (rc)
		return rc;
	*from = find_free(reader);
	if (*from == reader->base_seen + reader->fixed.window)
		return 0;
	rc = read_free(reader, *from, most, lost);
	/* It was trimmed: look again, with what is true now. */
	if (rc == -ERANGE) {
		rc = reef_log_first(reader->log, &first);
		return rc ? rc : -EAGAIN;
	}
	return rc ? rc : claim_entries(reader);
}

/* Who stood still since its claims, for as long as redeliver_ns, looks whether
 * others have them by now, and may have acknowledged them. Where that is next
 * to nothing it looks a few times, and no more. */
static int drop_overdue(struct reef_reader *reader)
{
	const uint64_t wait_ns = reader->fixed.redeliver_ns;
	uint32_t i, slot, attempt;
	int rc = 0;

	for (attempt = 0; !rc && wait_ns && reader->count && attempt < OVERDUE;
	     attempt++) {
		uint64_t now_ns = reef_now_ns();

		if (now_ns - reader->claimed_ns < wait_ns)
			break;
		reader->claimed_ns = now_ns;
		rc = group_look(reader);
		for (i = 0; !rc && i < reader->count; i++) {
			struct reader_entry *entry = &reader->entries[i];

			slot = reader_slot(reader, entry->position);
			if (entry->is_hole ||
			    reader->words[slot] == reader->mine[slot])
				continue;
			entry->is_hole = true;
			reader->mine[slot] = 0;
		}
	}
	if (rc)
		give_back_from(reader, 0);
	return rc;
}

static int give(struct reef_reader *reader,
		int (*each)(void *context, uint64_t position, const void *bytes,
			    size_t size),
		void *context, bool *gave)
{
	uint32_t i;
	int rc = 0;

	*gave = false;
	for (i = 0; !rc && i < reader->count; i++) {
		const struct reader_entry *entry = &reader->entries[i];

		if (entry->is_hole)
			continue;
		*gave = true;
		rc = each(context, entry->position, reader->bytes + entry->at,
			  entry->size);
	}
	if (rc)
		give_back_from(reader, i);
	return rc;
}

/* True if somebody else has not acknowledged something below a position. */
static bool others_have(const struct reef_reader *reader, uint64_t end)
{
	for (uint64_t at = reader->base_seen; at < end; at++) {
		uint32_t slot = reader_slot(reader, at);

		if (!claim_is_done(reader, at, reader->words[slot]) &&
		    reader->words[slot] != reader->mine[slot])
			return true;
	}
	return false;
}

/* Nothing was there to be taken: wait for something. */
static int wait_for_more(struct reef_reader *reader, uint64_t from,
			 uint64_t until_ns, uint64_t *pause_ns)
{
	uint64_t now_ns = reef_now_ns(), wait_ns;
	uint64_t ttl_ns = reef_session_ttl(reader->object.reef);
	bool is_full = from == reader->base_seen + reader->fixed.window;
	bool is_last = now_ns >= until_ns;
	int rc = -ESHUTDOWN;

	wait_ns = ttl_ns / 4 + 1;
	if (reader->fixed.redeliver_ns &&
	    reader->fixed.redeliver_ns / 4 < wait_ns)
		wait_ns = reader->fixed.redeliver_ns / 4 + PAUSE_NS;
	if (is_last)
		wait_ns = 0;
	else if (wait_ns > until_ns - now_ns)
		wait_ns = until_ns - now_ns;
	if (!is_full)
		rc = reef_log_wait(reader->log, from, wait_ns);
	if (rc == -ETIMEDOUT && !is_last)
		return 0;
	if (rc != -ESHUTDOWN)
		return rc;
	/* All that is left is others': they finish it, or die. What is done up
	 * to the end of the window waits for base, whose CAS was in doubt. */
	if (group_base(reader) >= from)
		return is_full ? 0 : -ESHUTDOWN;
	if (!others_have(reader, from))
		return -EDEADLK;
	if (is_last)
		return -ETIMEDOUT;
	rc = reef_sleep(*pause_ns < wait_ns ? *pause_ns : wait_ns);
	if (*pause_ns < ttl_ns / 64)
		*pause_ns *= 2;
	return rc;
}

int group_next(struct reef_reader *reader, uint32_t most, uint64_t timeout_ns,
	       int (*each)(void *context, uint64_t position, const void *bytes,
			   size_t size),
	       void *context)
{
	uint64_t until_ns = reef_now_ns(), from = 0, pause_ns = PAUSE_NS;
	bool gave = false;
	int rc, lost, attempt = 0;

	until_ns = timeout_ns < UINT64_MAX - until_ns ? until_ns + timeout_ns
						      : UINT64_MAX;
	for (;;) {
		rc = take_some(reader, most, &from, &lost);
		if (rc == -EAGAIN && ++attempt < LOG_ATTEMPTS)
			continue;
		if (!rc)
			rc = drop_overdue(reader);
		if (rc)
			return log_told(rc);
		/* What `each` said is told as it is. */
		rc = give(reader, each, context, &gave);
		if (rc || gave || lost)
			return rc ? rc : gave ? 0 : lost;
		/* What others were quicker to take is no end. */
		if (!reader->count)
			rc = wait_for_more(reader, from, until_ns, &pause_ns);
		if (rc)
			return log_told(rc);
	}
}

/* --- done --- */

/* What became of an acknowledgement whose CAS did not find our claim. */
static int judge_done(const struct reef_reader *reader, uint64_t word,
		      uint64_t done)
{
	return word == done || has_gone_on(reader, done, word) ? 0 : -ESTALE;
}

int group_done(struct reef_reader *reader, uint64_t position)
{
	uint32_t slot = position < reader->fixed.start
				? 0
				: reader_slot(reader, position);
	uint64_t mine = reader->mine[slot], done, now;
	int rc;

	/* What was trimmed under us is not known any more, once we were given
	 * another one of that word, and have acknowledged it. */
	if (position < reader->fixed.start || !mine)
		return reader->has_lost && position < reader->base_seen
			       ? -ESTALE
			       : -EINVAL;
	if (claim_behind(reader, position, mine))
		return -ESTALE;
	done = claim_of(reader, mine, position, CLAIM_DONE);
	if (REEF_MUTATED(READER_DONE_WRITE)) {
		reader->mine[slot] = 0;
		return reef_write(reader->object.reef,
				  reader_claim_at(reader, slot), &done, 8);
	}
	rc = log_cas(reader->object.reef, reader_claim_at(reader, slot), mine,
		     done, &now);
	if (rc)
		return rc;
	reader->mine[slot] = 0;
	return judge_done(reader, now, done);
}

/* Change all that is ours to a state. */
static int change_mine(struct reef_reader *reader, enum claim_state state)
{
	struct reef_access accesses[BATCH];
	uint32_t slots[BATCH], slot = 0, used, i;
	int rc = 0, told = 0;

	while (!rc && slot < reader->fixed.window) {
		for (used = 0; used < BATCH && slot < reader->fixed.window;
		     slot++) {
			uint64_t mine = reader->mine[slot];

			if (!mine)
				continue;
			accesses[used++] =
				log_cas_of(reader_claim_at(reader, slot), mine,
					   claim_after(reader, mine,
						       claim_lap(mine), state));
			slots[used - 1] = slot;
		}
		rc = change_words(reader, accesses, used);
		for (i = 0; !rc && i < used; i++) {
			reader->mine[slots[i]] = 0;
			if (accesses[i].result != accesses[i].compare)
				told = -ESTALE;
		}
	}
	return rc ? rc : told;
}

int group_done_all(struct reef_reader *reader)
{
	int rc = change_mine(reader, CLAIM_DONE);

	if (!rc && reader->has_lost)
		rc = -ESTALE;
	reader->has_lost = false;
	return rc;
}

void group_give_back(struct reef_reader *reader)
{
	if (REEF_MUTATED(READER_KEPT))
		return;
	(void)change_mine(reader, CLAIM_BACK);
	if (reader->has_doubts)
		(void)settle_doubts(reader);
}
