/* journal.h - what the broker must not forget.
 *
 * Records with consecutive sequence numbers, kept in segments; now and then a
 * snapshot of what they add up to, after which the segments before it go.
 *
 * (1) A record is durable once wait has returned 0 for it: it, and every one
 *     before it, is found by each later open. Nobody may be answered sooner.
 * (2) What open finds is a prefix of what was appended, and holds everything
 *     that was durable. A torn tail is cut, and the log says so.
 * (3) Damage before the tail, and a file that is missing, is -REEF_ECORRUPT;
 *     the log names file and position. Nothing is opened and nothing changed.
 *     What a clean close left has no tail: damage to it is always refused.
 * (4) The first write or sync that fails is final: the journal is broken, and
 *     every call from then on says so with that error.
 * (5) One journal lives in a store, and one opener at a time has it.
 * (6) Append never waits for the disk. Commits run on a thread of the journal's
 *     own, or with sync_inline in a fiber of the scheduler; whatever has been
 *     appended while one ran is the next (group commit: one sync for all).
 *
 * The formats carry a version; an unknown one is refused (-REEF_EVERSION).
 *
 * Thread: owner, which is the scheduler's thread. In thread mode the journal's
 * thread uses the store between open and close, so nobody else may. */
#ifndef REEF_POOL_BROKER_JOURNAL_JOURNAL_H
#define REEF_POOL_BROKER_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reef_journal;
struct reef_sched;
struct reef_store;

/* Zero means the default. */
struct reef_journal_options {
	/* Commit in a fiber of the scheduler (simulation), or, where there is
	 * no scheduler, in whoever waits; not in a thread. */
	bool sync_inline;
	uint64_t segment_size; /* the next one begins past that; 16 MiB */
	uint64_t pending_max;  /* bytes appended but not durable; 64 MiB */
	uint32_t record_max;   /* bytes of one record; 1 MiB */
	/* What checksums of a new journal begin with, so that bytes inside a
	 * record never pass for a record; 0: from the kernel. */
	uint64_t salt;
};

/* The reader is given what open finds, in its order: at most one snapshot, then
 * the records after it. The bytes are borrowed until the call returns. An error
 * ends the open, which returns it; nothing is changed then. */
struct reef_journal_reader {
	int (*snapshot)(void *context, const void *bytes, size_t size);
	int (*record)(void *context, uint64_t sequence, uint16_t type,
		      const void *bytes, size_t size);
	void *context;
};

/* Open the journal in store, and make one if there is none. The store stays the
 * caller's and must outlive the journal; sched may be NULL with sync_inline.
 * Caller owns *out.
 * -EBUSY: another has it open.  -REEF_ECORRUPT, -REEF_EVERSION: rule 3.
 * -EINVAL: no scheduler, or one in virtual time, without sync_inline.
 * -ENOMEM.  Else: what the store or the reader returned. */
int reef_journal_open(struct reef_store *store, struct reef_sched *sched,
		      const struct reef_journal_options *options,
		      const struct reef_journal_reader *reader,
		      struct reef_journal **out);

/* Commit what was appended, seal it, and free the journal. Nobody may be
 * waiting. Where a commit fiber is under way this joins it, so that it is
 * called in a fiber or after the scheduler has run dry. NULL is fine. */
void reef_journal_close(struct reef_journal *journal);

/* Add a record and return its sequence number; type is the caller's, not 0.
 * Nothing is added on error.  -EMSGSIZE: over record_max.  -EAGAIN: pending_max
 * bytes wait to be written.  -ENOMEM, -ENOSPC: no memory, or no fiber to commit
 * in.  Else: the journal is broken by that error. */
int reef_journal_append(struct reef_journal *journal, uint16_t type,
			const void *bytes, size_t size, uint64_t *sequence);

/* Wait until that record is durable: parks inside a fiber, blocks outside one
 * (with sync_inline only without a scheduler). -REEF_EHOSTDEAD: in simulation,
 * and it may or may not be durable.  Else: the journal is broken, and likewise.
 */
int reef_journal_wait(struct reef_journal *journal, uint64_t sequence);

/* Hand over a snapshot of everything appended so far; the bytes are copied. It
 * is written behind the scenes, between commits; once it is durable the
 * segments before it are removed. A crash in between leaves the old ones.
 * -EINVAL: nothing was ever appended.  -EBUSY: one is being written.  -ENOMEM,
 * -ENOSPC as in append.  Else: the journal is broken by that error. */
int reef_journal_snapshot(struct reef_journal *journal, const void *bytes,
			  size_t size);

struct reef_journal_status {
	uint64_t appended, durable; /* sequence numbers; 0: none */
	uint64_t snapshot;	    /* the last one that the snapshot covers */
	bool snapshot_busy;	    /* one is being written */
	uint64_t segments;	    /* that hold what follows the snapshot */
	uint64_t bytes;		    /* appended since the snapshot or the open,
				     * plus found by the open */
	uint64_t syncs;		    /* of records, since the open */
	uint64_t cut;		    /* bytes of torn tail that the open cut */
	int error;		    /* why it is broken; 0: it is not */
};

void reef_journal_status(struct reef_journal *journal,
			 struct reef_journal_status *out);

#endif
