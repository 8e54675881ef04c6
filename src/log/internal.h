/* internal.h - an open log, and what its files have of each other.
 *
 *   log.c      open, close, drop, stats
 *   segment.c  the directory: find a segment, make one; zeros become HOLEs
 *   tail.c     what is true in this epoch; draws; a new tail; seal, lead
 *   append.c   append, append_many
 *   read.c     read, fill
 *   wait.c     places of waiters
 *   trim.c     trim, by hand and by what is to be kept
 *   reader.c   readers with a name: reader.h
 *   group.c    those that several share
 *   recover.c  is a block still part of a log?
 *   shard.h    order by cuts: cuts.c, cut.c, turn.c, shard.c,
 *              shard_append.c, shard_read.c, shard_trim.c
 *
 * Thread: owner of the handle. */
#ifndef REEF_LOG_INTERNAL_H
#define REEF_LOG_INTERNAL_H

#include "log/layout.h"
#include "object/object.h"
#include "pool/client/inbox/inbox.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/log.h>
#include <stddef.h>

/* Each further attempt needs another client that changed something meanwhile,
 * or a lost link. */
#define LOG_ATTEMPTS 64
#define LOG_FORMAT 2  /* of a log's body */
#define LOG_CACHED 4u /* segments */
#define LOG_WINDOW_BYTES 65536u
#define LOG_NOWHERE UINT64_MAX

struct log_found { /* a segment */
	uint64_t index;
	uint64_t at; /* address; 0: none */
	uint32_t generation;
};

struct log_row;
struct log_sharded;

struct reef_log {
	struct object object;
	struct reef *reef;
	char *name;
	struct reef_log_options options;
	/* What is true in `epoch`: (9) of layout.h. */
	uint64_t epoch; /* 0: nothing is */
	uint64_t tail_word, tail_at, first;
	struct log_found cache[LOG_CACHED];
	/* The last segment that we appended to has none behind it, as far as we
	 * know: to be made before anything is drawn. */
	uint64_t lacking; /* index; LOG_NOWHERE: none */
	/* SINGLE: */
	bool leads;
	uint32_t gap; /* so many words from `next` on are in doubt */
	uint32_t lead_generation;
	uint64_t next;	     /* not below it is drawn */
	uint64_t next_epoch; /* it was found in */
	uint32_t guesses;    /* the mutant's */
	/* What a reader saw: 0 at hole_at, while all below hole_end had been
	 * drawn, since then. */
	uint64_t hole_at, hole_end, hole_since_ns;
	uint32_t hole_generation;
	/* Waiting. */
	struct reef_watch watch;
	bool is_watching, is_hinted;
	uint64_t inbox;	     /* its short address; 0: none */
	struct log_row *row; /* append.c's; NULL: none yet */
	/* For reads. */
	uint32_t window; /* positions */
	uint64_t *words;
	uint8_t *cells;
	uint32_t stride;	     /* from cell to cell */
	struct log_sharded *sharded; /* NULL: order by sequencer */
};

static inline uint32_t log_generation(const struct reef_log *log)
{
	return log_tail_generation(log->tail_word);
}

static inline uint64_t log_cell_offset(const struct reef_log *log,
				       uint64_t slot)
{
	return log_word_offset(log->options.segment) +
	       (uint64_t)log->options.cell * slot;
}

static inline bool log_is_single(const struct reef_log *log)
{
	return log->options.flags & REEF_LOG_SINGLE;
}

static inline bool log_is_sharded(const struct reef_log *log)
{
	return log->options.flags & REEF_LOG_SHARDED;
}

/* How large a segment is; those of cuts have no cells. */
static inline uint64_t log_segment_size(const struct reef_log *log)
{
	return log_is_sharded(log) ? log_word_offset(log->options.segment)
				   : log_cell_offset(log, log->options.segment);
}

/* SHARDED: the address of the floor of its cuts (shard.h). */
static inline uint64_t log_floor_at(const struct reef_log *log)
{
	return log->object.body + sizeof(struct log_body) +
	       UINT64_C(16) * log->options.segments;
}

static inline uint64_t log_tail_word_at(const struct object *object)
{
	return object->body + offsetof(struct log_body, tail);
}

static inline uint64_t log_slot_at(const struct reef_log *log, uint64_t index)
{
	return log->object.body + sizeof(struct log_body) +
	       8 * (index % log->options.segments);
}

/* An access of a list. */
static inline struct reef_access log_read_of(uint64_t address, void *to,
					     uint32_t length)
{
	return (struct reef_access){
		.kind = REEF_READ,
		.address = address,
		.local = to,
		.length = length,
	};
}

static inline struct reef_access log_cas_of(uint64_t address, uint64_t compare,
					    uint64_t value)
{
	return (struct reef_access){
		.kind = REEF_CAS,
		.address = address,
		.compare = compare,
		.operand = value,
	};
}

static inline struct reef_access log_write_of(uint64_t address,
					      const void *from, uint32_t length)
{
	return (struct reef_access){
		.kind = REEF_WRITE,
		.address = address,
		.local = (void *)(uintptr_t)from,
		.length = length,
	};
}

/* What a public call says where an inner one ran out of attempts, or of words
 * of the directory. */
static inline int log_told(int rc)
{
	return rc == -EAGAIN ? -EBUSY : rc == -E2BIG ? -ENOSPC : rc;
}

/* True if a tail that is lost could not be replaced, for want of room: then
 * only who appends, or asks for the tail, is told so. */
static inline bool log_lacks_room(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG;
}

/* What the directory has, in a copy. */
struct log_map {
	struct log_body body;
	uint64_t base; /* body.first; SHARDED: the floor of cuts */
	uint64_t *slots;
	uint64_t last;	/* index of the last that is MADE or SEALED */
	uint64_t count; /* of those that are MADE; 0: last is nothing */
	bool is_empty;	/* nothing is MADE or SEALED */
};

/* --- tail.c --- */

/* reef_enter; what the log remembers is true until log_leave. is_writing: a log
 * that is sealed is -ESHUTDOWN, and one without a tail is given one.  -ENOENT:
 * dropped. After an error it is not entered. */
int log_enter(struct reef_log *log, bool is_writing);
void log_leave(struct reef_log *log);
/* Look again, inside. Errors as log_enter, and it is still entered. */
int log_refresh(struct reef_log *log, bool is_writing);
/* Forget what was true: the next log_enter looks again. */
void log_forget(struct reef_log *log);

/* READ the tail's block. A tail that cannot be reached is replaced: -EAGAIN, it
 * was refreshed. Only while the log is open, and not SINGLE. */
int log_tail_read(struct reef_log *log, struct log_tail *tail);
/* The position behind all that is drawn and can count.  -EAGAIN: as above. */
int log_tail_position(struct reef_log *log, uint64_t *position);
/* Draw `count` numbers in a row, in one list with `used` accesses (0: none),
 * which has room for one more.  -EAGAIN: as log_tail_read, or a draw in doubt;
 * what became of the accesses is in their status. */
int log_draw(struct reef_log *log, uint32_t count, struct reef_access *accesses,
	     uint32_t used, uint64_t *position);
/* Replace the tail of that generation, or seal the log instead: (5) of
 * layout.h. *mine (may be NULL): this call did (c). *position (may be NULL): of
 * the new tail. 0 also: another has replaced it. Inside; refresh after it. */
int log_renew(struct reef_log *log, uint32_t generation, bool is_seal,
	      bool *mine, uint64_t *position);
/* Move a position, from which on nothing is decided by draws, behind the holes
 * that follow it: whoever replaces a tail makes them ahead of it. */
int log_decided_end(struct reef_log *log, const struct log_map *map,
		    uint64_t *position);
/* The end of what a SINGLE or sealed log has. */
int log_end(struct reef_log *log, uint64_t *position);

/* --- segment.c --- */

/* READ body and directory. The caller frees slots. */
int log_map_read(struct reef_log *log, struct log_map *map);
/* The index of what a slot holds; LOG_NOWHERE: nothing. */
uint64_t log_slot_index(const struct reef_log *log, uint64_t first,
			uint32_t slot, uint64_t word);
/* True if the word can become that of the segment `index`. */
bool log_slot_is_free(const struct reef_log *log, uint64_t index,
		      uint64_t word);

/* True if the directory cannot have a segment yet, as it was when `first` was
 * read: what is not trimmed is less than a lap. Laps that are further apart
 * cannot be told from each other by its words. */
static inline bool log_is_far(const struct reef_log *log, uint64_t index)
{
	const uint64_t first = log->first / log->options.segment;

	return index / log->options.segments >
	       first / log->options.segments + 1;
}

/* Find a segment.  -ENOENT: it is not made yet.  -ERANGE: it was trimmed.
 * -ESHUTDOWN: the log ends before it.  -REEF_ECORRUPT. */
int log_find(struct reef_log *log, uint64_t index, struct log_found *out);
/* Make that segment of a generation, with those before it that are missing,
 * unless it is there.  -ESTALE: the generation is over.  -E2BIG: the directory
 * is full.  -ENOSPC. Errors as find. */
int log_make(struct reef_log *log, uint64_t index, uint32_t generation,
	     struct log_found *out);
/* Put a segment into the directory, where `before` is. 1: done.  0: another was
 * quicker. */
int log_install(struct reef_log *log, uint64_t index, uint32_t generation,
		uint64_t before);
/* Fill every 0 of a segment with HOLE, and note that there is none. */
int log_close_segment(struct reef_log *log, uint64_t segment);
/* CAS 0 -> HOLE for `count` words from `first` on, those that words[] has as 0.
 * Settled when it returns 0. */
int log_fill_zeros(struct reef_log *log, uint64_t segment, uint32_t first,
		   const uint64_t *words, uint32_t count);

/* --- append.c --- */
void log_row_free(struct log_row *row);

/* --- wait.c --- */

/* Tell those who wait in a segment. */
void log_wake(struct reef_log *log, uint64_t segment, const uint64_t *places);
/* The same, and the places are READ first. */
void log_wake_all(struct reef_log *log, uint64_t segment);

/* --- read.c --- */

/* CAS, and in doubt READ: *now (may be NULL) is what the word is then. One that
 * did not happen is done again, so it is not `compare`.  -REEF_EINDOUBT: it was
 * in doubt at each of very many attempts, and did not happen. */
int log_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	    uint64_t *now);

/* --- trim.c --- */

/* Trim what is not to be kept, after the segment `last` was made. True if
 * something was. */
bool log_retain(struct reef_log *log, uint64_t last);
/* Raise a word to a value, by CAS; *now (may be NULL): what it is then. */
int log_raise(struct reef_log *log, uint64_t at, uint64_t value, uint64_t *now);
/* Move `first` up to a position. */
int log_raise_first(struct reef_log *log, uint64_t position);
/* Take all segments below an index out of the directory, and free them. */
int log_unlink(struct reef_log *log, const struct log_map *map,
	       uint64_t index_end);

/* --- reader.c --- */

/* False if a name could be that of another log's reader. */
bool log_is_name(const char *name);
/* Forget all readers of a log that was dropped. */
void log_drop_readers(const struct object *log, const char *name);

/* --- recover.c --- */
void log_kinds_register(void);

#endif
