/* log.h - logs in the memory of a pool: one order for what many append.
 *
 * A log is a named object in a space. Its clients append and read by one-sided
 * operations alone: no server has a part in it. Every entry has a *position*;
 * positions begin at 0 and grow. A position can be a *hole*: an appender died,
 * or was slow, and nothing will ever stand there. Readers pass over holes.
 *
 * (1) Appends are linearizable: what begins after another append has returned
 *     stands behind it. All readers see the same entries at the same positions.
 * (2) An entry that was acknowledged is there until it is trimmed, or its node
 *     dies. An append that did not return happened as a whole, or never will;
 *     so did the entries of one reef_log_append_many, together.
 * (3) A client may die, stop or be cut off between any two operations, and
 *     nobody waits for it for longer than the hole bound: 1 ms at first, or
 *     what the log was made with. It grows while appenders turn out slower.
 * (4) Memory comes in segments. What was trimmed comes back a segment at a
 *     time. When the node of a segment dies its positions are -REEF_ELOST, and
 *     appends go on behind it.
 * (5) An open log is used by one thread or fiber at a time. Fibers that share a
 *     handle open it once each.
 *
 * Errors that every call may return, besides those of access (reef.h):
 *   -EBUSY          others changed the log at each of very many attempts of
 *                   this call; nothing happened; call again
 *   -ENOENT         the log was dropped; close it
 *   -ENOMEM         this process has no memory
 *   -REEF_ECORRUPT  what is there is damaged
 *   -REEF_ELOST     the log's node died; drop it, or open it with
 *                   REEF_LOG_RENEW
 *
 * Thread: owner of the handle. */
#ifndef REEF_LOG_H
#define REEF_LOG_H

#include <reef/reef.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_log;

enum reef_log_flags {
	REEF_LOG_EXISTING = 1, /* do not make it */
	REEF_LOG_RENEW = 2,    /* if its node died: make it anew, empty */
	/* Fixed when it is made: one writer at a time (reef_log_lead), whose
	 * appends are one round trip. */
	REEF_LOG_SINGLE = 4,
	/* Fixed when it is made: order by cuts. Every handle that appends has
	 * a segment of its own, and its appends are one round trip without an
	 * atomic. Now and then one of those who wait takes all that is there
	 * into the log, by a *cut*; an append returns when its cut is there. */
	REEF_LOG_SHARDED = 8,
	/* Fixed when it is made, with SHARDED: an append returns before its
	 * cut. (1) then holds for the appends of each handle among themselves,
	 * for reads and for tails; between handles the order is that of cuts.
	 * The position is not known yet, and what was appended in the moment
	 * in which the log is sealed or dropped may be left out. */
	REEF_LOG_EARLY = 16,
};

/* The position that an append to an EARLY log tells. */
#define REEF_LOG_UNPLACED UINT64_MAX

/* Zero means the default. All but EXISTING and RENEW is fixed when the log is
 * made; whoever opens it later has that, whatever the options say, if they are
 * some that a log could be made with; reef_log_stats tells it. */
struct reef_log_options {
	uint32_t flags;
	uint32_t entry_max; /* bytes; 1 MiB, and at most that */
	uint32_t cell;	    /* bytes of an entry that lie in the segment, a
			     * longer one has memory of its own; 240, at most
			     * 4,096 */
	uint32_t segment;   /* positions; 4,096, 8 to 65,536 */
	uint32_t segments;  /* at most, that are not trimmed; 1,024, 8 to
			     * 65,536. SHARDED: each handle that appends has one,
			     * 44,029 handles at most; and so many, times
			     * `segment`, cuts */
	/* Trim by itself, about a segment at a time, what is more than so many
	 * positions, or bytes of entries; 0: never. */
	uint64_t keep_entries, keep_bytes;
	/* (3) at first; 1 ms, at most 1 s. SHARDED: who waits for longer than
	 * this makes a cut; 100 us. */
	uint64_t hole_ns;
};

/* Open a log, or make it; options may be NULL. *out is the caller's, and must
 * be closed before its space.
 * -ENOENT: there is none, with REEF_LOG_EXISTING.  -EEXIST: the name is
 * something else's.  -EINVAL: no name, a limit out of its range, an unknown
 * flag, or flags that do not go together; or it has to be made, and its name
 * has "~reader~" in it or ends with "~reader", as that of another log's reader
 * may.  -ENAMETOOLONG: more than 255 bytes.  -ENOSPC, -EDQUOT: no room to make
 * it.  -EACCES: it has to be made, and only reading is granted.
 * -REEF_EVERSION: it was made by a version with another layout. */
REEF_API int reef_log_open(struct reef_space *space, const char *name,
			   const struct reef_log_options *options,
			   struct reef_log **out);
/* Close a log. NULL is fine. */
REEF_API void reef_log_close(struct reef_log *log);
/* Drop a log with all that is in it: those who have it open get -ENOENT from
 * then on, but that they may read what is there for a moment still.  -ENOENT:
 * there is none.  -EEXIST: the name is something else's. -EACCES: only reading
 * is granted.  -EINVAL, -ENAMETOOLONG. */
REEF_API int reef_log_drop(struct reef_space *space, const char *name);

/* Append an entry; size 0 is one, too. *position (may be NULL): where it
 * stands; EARLY: REEF_LOG_UNPLACED.
 * -EMSGSIZE: it is longer than entry_max.  -ESHUTDOWN: the log is sealed.
 * -ENOSPC, -EDQUOT: no room in the pool, the quota, or as many segments, or
 * handles with one, as the log may have; nothing was appended, and what is
 * there can be read and trimmed.  -EACCES: only reading is granted.  -EPERM:
 * SINGLE, and this one does not lead.  -ESTALE: SINGLE, and another leads
 * since; nothing was appended.  -REEF_EINDOUBT: the connection was lost, and
 * whether it was appended cannot be told any more; SHARDED also: others have
 * filled the log meanwhile, and it may come in when something is trimmed.
 * -REEF_EFENCED, -ETIMEDOUT: the same, and it may still be. */
REEF_API int reef_log_append(struct reef_log *log, const void *bytes,
			     size_t size, uint64_t *position);
/* Append entries in a row, all or none: the i-th stands at *first + i (may be
 * NULL).  -EINVAL: none, or more than a quarter of a segment, or 256. Else as
 * reef_log_append. */
REEF_API int reef_log_append_many(struct reef_log *log,
				  const struct iovec *entries, uint32_t count,
				  uint64_t *first);

/* Give entries to `each`, in order, from that position on: `most` at most, and
 * not beyond the last. Its bytes are valid until it returns; it must not use
 * this log; nonzero ends the read and is returned. An appender that has drawn
 * the position `from` and not written is waited for, for the hole bound, then
 * the position becomes a hole. *next (may be NULL) is where to read on: behind
 * the last entry that was given and the holes that follow; `from`, if nothing
 * is there yet.
 * -ERANGE: `from` was trimmed.  -REEF_ELOST, -REEF_ECORRUPT: so is the memory
 * of `from`; then *next is set, too, behind what cannot be read.  -ENOSPC,
 * -EDQUOT: whether `from` is a hole cannot be told before something is trimmed,
 * as of reef_log_tail. Who may only read the space does not make holes, and
 * finds nothing at such a position. */
REEF_API int reef_log_read(struct reef_log *log, uint64_t from, uint32_t most,
			   int (*each)(void *context, uint64_t position,
				       const void *bytes, size_t size),
			   void *context, uint64_t *next);

/* Tell a position behind every entry whose append had returned. Who may only
 * read an EARLY log, or finds no room for a cut, tells and reads what is cut.
 * -ENOSPC, -EDQUOT: the tail was lost with its node, and there is no room for
 * another until something is trimmed. */
REEF_API int reef_log_tail(struct reef_log *log, uint64_t *position);
/* Tell the lowest position that was not trimmed. */
REEF_API int reef_log_first(struct reef_log *log, uint64_t *position);

/* Wait until reef_log_read from that position has something to do. The waiter
 * is woken by whoever appends; the memory node is not asked over and over. Of
 * more than 9 who wait at once in a segment the others look for themselves, a
 * few times in a session's TTL. 0 also: the position was trimmed.  -ETIMEDOUT.
 * -ESHUTDOWN: the log is sealed, and nothing will come there. */
REEF_API int reef_log_wait(struct reef_log *log, uint64_t position,
			   uint64_t timeout_ns);

/* Make a hole at a position that was drawn and not written; its appender will
 * append elsewhere. 0 also: it is one already.  -EEXIST: an entry is there.
 * -ERANGE: it was trimmed, or is not below the tail.  -EACCES. */
REEF_API int reef_log_fill(struct reef_log *log, uint64_t position);
/* Let go of all that is below a position. It can be read for a moment still,
 * by those who have it open. 0 also: it was trimmed further.  -ERANGE: the
 * position is beyond the tail; nothing happened.  -EACCES. */
REEF_API int reef_log_trim(struct reef_log *log, uint64_t position);
/* Let nothing be appended any more. What was acknowledged stays, to be read and
 * trimmed. The tail goes up to the next segment, with holes. 0 also: it is
 * sealed already.  -ENOSPC: the log has as many segments as it may have; trim
 * it first.  -EACCES. */
REEF_API int reef_log_seal(struct reef_log *log);

/* SINGLE: become the writer, at once, whoever else is: nothing that the one
 * before appends counts from here on, and it is told -ESTALE. Its place is
 * taken even if it lives; who wants to wait for its end stands for an election
 * (sync.h) first. It costs what is left of a segment.  -EINVAL: the log is not
 * SINGLE.  -ESHUTDOWN, -ENOSPC, -EDQUOT, -EACCES: as of append. */
REEF_API int reef_log_lead(struct reef_log *log);

struct reef_log_stats {
	struct reef_log_options options; /* it was made with */
	/* A tail that cannot be told (reef_log_tail) is at most here. */
	uint64_t first, tail;
	uint32_t segments;   /* that are there now */
	uint32_t generation; /* how often a tail, or a writer, was made */
	bool sealed;
	uint64_t hole_ns; /* (3) now; of a SINGLE or SHARDED one 0 */
};
/* Tell what a log is and how it stands. */
REEF_API int reef_log_stats(struct reef_log *log, struct reef_log_stats *out);

#ifdef __cplusplus
}
#endif
#endif
