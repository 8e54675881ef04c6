/* reader.h - the words of a reader, as they lie in the pool, and its rules.
 *
 *   body    of an object "LOG~reader~NAME": magic, the log it is of, base,
 *           owner, what is fixed, and of a group a ring of claims. Never freed.
 *   owner  |count 18 | number 14 | session 32|                            CAS
 *   claim  |lap 10 | number 6 | count 14 | state 2 | session 32|       CAS
 *           position p: word (p - start) mod window, lap that / window + 1
 *           a lower lap --> TAKEN --> DONE
 *                           |  ^ \--> TAKEN, by another
 *                           v  |
 *                           BACK
 *
 * (1) Everything below `base` is acknowledged, or was trimmed. It only grows.
 * (2) Only positions in [base, base + window) are claimed. So a word of a lower
 *     lap than a position's is of one below base: the position is free.
 * (3) A lap never goes down, and DONE is the last of its lap: who finds DONE,
 *     or a later lap, knows that the position is acknowledged.
 * (4) A member is given an entry after its CAS to TAKEN has succeeded, and
 *     acknowledges by a CAS from that very word. The word has the member's
 *     number, so that handles of one session do not take each other's claims
 *     for their own; and it counts its changes, whoever makes them, so that it
 *     does not return to what it was (R9).
 * (5) A claim is taken over, by CAS, when its session is FENCED; or when the
 *     same word was there for redeliver_ns, as one observer saw.
 * (6) Holes are DONE at once, by whoever meets them. Where the log was trimmed
 *     above base, all words are brought to DONE in the lap of what was trimmed
 *     before base goes there: so laps that are compared are never far apart.
 * (7) Without a group the owner's session is the only one that moves base.
 *     Another becomes the owner when that session is FENCED, or has let go.
 *
 * Thread: owner of the handle. */
#ifndef REEF_LOG_READER_INTERNAL_H
#define REEF_LOG_READER_INTERNAL_H

#include "log/internal.h"

#include <reef/log_reader.h>

#define READER_WINDOW_MIN 8u
#define READER_WINDOW_MAX 65536u
#define READER_MOST 256u			  /* entries at once */
#define READER_MAGIC UINT64_C(0x3172656461655252) /* "RReader1" */

struct reader_body { /* the claims follow */
	uint64_t base, owner;
	uint64_t magic;
	uint64_t log; /* address of its body */
	uint64_t start;
	uint64_t redeliver_ns;
	uint32_t window, flags;
	uint64_t members; /* FAA: their numbers */
};
static_assert(sizeof(struct reader_body) == 64, "layout");

enum claim_state { CLAIM_DONE, CLAIM_TAKEN, CLAIM_BACK };

#define CLAIM_LAPS (UINT64_C(1) << 10)
#define CLAIM_COUNT_BITS 14

static inline enum claim_state claim_state(uint64_t word)
{
	return (enum claim_state)(word >> 32 & 3);
}

static inline uint64_t claim_lap(uint64_t word)
{
	return word >> 54;
}

struct reader_entry { /* one that was read, and is to be claimed */
	uint64_t position;
	size_t at, size; /* in the bytes */
	uint64_t before; /* the word */
	bool is_hole;
};

struct reef_reader {
	struct reef_log *log;
	struct object object;
	struct reader_body fixed; /* what does not change of it */
	bool is_group;
	uint32_t number; /* (4) */
	/* Without a group. */
	uint64_t owner;	     /* as we set it */
	uint64_t base, next; /* acknowledged; read */
	uint64_t given;	     /* behind the last entry that was given */
	/* Of a group: by word. */
	uint64_t base_seen;
	uint64_t *words;  /* as they were read */
	uint64_t *mine;	  /* what we claimed; 0: nothing */
	uint64_t *doubts; /* what we may have claimed, and did not give */
	bool has_doubts;
	bool has_lost;	     /* others were given what we had */
	uint64_t *seen;	     /* what is watched for redeliver_ns, since */
	uint64_t *since_ns;  /* then */
	uint64_t claimed_ns; /* what was claimed last was free until then */
	bool *is_over;	     /* its session has ended, or its time is over */
	uint64_t sweep_ns;   /* when sessions are looked at again */
	uint32_t sweep_slot; /* from here on */
	/* What was read. */
	struct reader_entry *entries;
	uint32_t count, room;
	uint8_t *bytes;
	size_t bytes_used, bytes_room;
};

static inline uint64_t reader_base_at(const struct object *object)
{
	return object->body + offsetof(struct reader_body, base);
}

static inline uint64_t reader_owner_at(const struct object *object)
{
	return object->body + offsetof(struct reader_body, owner);
}

static inline uint64_t reader_claim_at(const struct reef_reader *reader,
				       uint32_t slot)
{
	return reader->object.body + sizeof(struct reader_body) + 8ull * slot;
}

static inline uint32_t reader_slot(const struct reef_reader *reader,
				   uint64_t position)
{
	return (uint32_t)((position - reader->fixed.start) %
			  reader->fixed.window);
}

static inline uint64_t reader_lap(const struct reef_reader *reader,
				  uint64_t position)
{
	return (position - reader->fixed.start) / reader->fixed.window + 1;
}

/* How far a word's lap is behind another, below 0: ahead. */
static inline int64_t lap_behind(uint64_t lap, uint64_t word)
{
	uint64_t behind = (lap - claim_lap(word)) % CLAIM_LAPS;

	return behind < CLAIM_LAPS / 2 ? (int64_t)behind
				       : (int64_t)behind - (int64_t)CLAIM_LAPS;
}

/* The same, behind that of a position. */
static inline int64_t claim_behind(const struct reef_reader *reader,
				   uint64_t position, uint64_t word)
{
	return lap_behind(reader_lap(reader, position), word);
}

/* True if a position is acknowledged, as that word says. */
static inline bool claim_is_done(const struct reef_reader *reader,
				 uint64_t position, uint64_t word)
{
	int64_t behind = claim_behind(reader, position, word);

	return behind < 0 || (!behind && claim_state(word) == CLAIM_DONE);
}

/* --- group.c --- */

/* READ base and claims. */
int group_look(struct reef_reader *reader);
/* The lowest position that is not acknowledged, as they were read. */
uint64_t group_base(const struct reef_reader *reader);
int group_next(struct reef_reader *reader, uint32_t most, uint64_t timeout_ns,
	       int (*each)(void *context, uint64_t position, const void *bytes,
			   size_t size),
	       void *context);
int group_done(struct reef_reader *reader, uint64_t position);
int group_done_all(struct reef_reader *reader);
/* Give back all that is claimed. */
void group_give_back(struct reef_reader *reader);

#endif
