/* log_reader.h - readers of a log that have a name, and a place that is kept.
 *
 * A *reader* remembers in the pool how far the log was read, so that whoever
 * comes next goes on there. One client at a time has it; or, made with
 * REEF_READER_GROUP, any number of *members* share it and divide the work.
 *
 *   open --> next --> (work) --> done --> next ... --> close
 *
 * (1) An entry is given until it is acknowledged (reef_reader_done), and never
 *     after that: at least once each, and acknowledged exactly once.
 * (2) While a member has an entry nobody else is given it. When the member's
 *     session has ended, or the member closed the reader, or, where that is
 *     set, redeliver_ns have passed, another is given it.
 * (3) Members are given entries in order, but finish them in any.
 * (4) Holes, and what was trimmed before it was given, count as acknowledged.
 * (5) A reader is used by one thread or fiber at a time, the one that uses its
 *     log; it is closed before the log is.
 *
 * Errors that every call may return, besides those of log.h:
 *   -ENOENT         the log was dropped
 *   -REEF_ELOST     the reader's node died; drop it
 *
 * Thread: owner of the handle. */
#ifndef REEF_LOG_READER_H
#define REEF_LOG_READER_H

#include <reef/log.h>

#ifdef __cplusplus
extern "C" {
#endif

struct reef_reader;

enum reef_reader_flags {
	REEF_READER_EXISTING = 1, /* do not make it */
	/* Fixed when it is made: several share it. */
	REEF_READER_GROUP = 2,
	/* When it is made: begin with what comes, not with what is there. */
	REEF_READER_NEW = 4,
};

/* Zero means the default. All but EXISTING is fixed when the reader is made;
 * whoever opens it later has that, but for GROUP whatever the options say. */
struct reef_reader_options {
	uint32_t flags;
	/* GROUP: so many positions, from the lowest that is not acknowledged
	 * on, may be given; 256, 8 to 65,536. */
	uint32_t window;
	/* GROUP: after so long what a member has not acknowledged is given to
	 * another, although it lives; 0: never. */
	uint64_t redeliver_ns;
};

/* Open a reader of a log, or make it; options may be NULL. *out is the
 * caller's.
 * -ENOENT: there is none, with REEF_READER_EXISTING.  -EBUSY: another has it,
 * and lives; never of a group.  -EEXIST: it is a group and the options say that
 * it is none, or the other way round; or LOG~reader~NAME, its object, is
 * something else's.  -EINVAL: no name, a limit out of its
 * range, an unknown flag.  -ENAMETOOLONG: with the log's name it is longer than
 * 247 bytes.  -REEF_ENOLINK: another has it, and the broker, who could tell
 * whether that one lives, is away.  -ENOSPC, -EDQUOT, -EACCES. */
REEF_API int reef_reader_open(struct reef_log *log, const char *name,
			      const struct reef_reader_options *options,
			      struct reef_reader **out);
/* Close a reader: what it was given and did not acknowledge is given again, to
 * others or to whoever has it next. NULL is fine. */
REEF_API void reef_reader_close(struct reef_reader *reader);
/* Forget a reader. Whoever has it open may go on to read; nothing is kept of
 * that.  -ENOENT: there is none. */
REEF_API int reef_reader_drop(struct reef_log *log, const char *name);

/* Give the next entries to `each`: one at least, `most` at most (256 at once),
 * when they are there. Its bytes are valid until it returns; it must not use
 * this log or reader. Nonzero ends it and is returned; then what was not given
 * yet is given later.
 * -ETIMEDOUT.  -ESHUTDOWN: the log is sealed, and all of it is acknowledged.
 * -EDEADLK: all that is not acknowledged was given to this reader, and nothing
 * more is given before that is.  -EINVAL: most is 0.  -REEF_ELOST,
 * -REEF_ECORRUPT: entries could not be read any more; they count as
 * acknowledged, and the next call goes on behind them.
 */
REEF_API int reef_reader_next(struct reef_reader *reader, uint32_t most,
			      uint64_t timeout_ns,
			      int (*each)(void *context, uint64_t position,
					  const void *bytes, size_t size),
			      void *context);
/* Acknowledge an entry that was given; without a group, all before it, too.
 * -ESTALE: another was given it meanwhile, or it was trimmed.  -EINVAL: this
 * reader was not given it, or has acknowledged it.  -REEF_EINDOUBT: it may be.
 */
REEF_API int reef_reader_done(struct reef_reader *reader, uint64_t position);
/* Acknowledge all that this reader was given and did not acknowledge yet.
 * -ESTALE: some were given to others, or trimmed; the rest is acknowledged. */
REEF_API int reef_reader_done_all(struct reef_reader *reader);

struct reef_reader_stats {
	struct reef_reader_options options; /* it was made with */
	uint64_t next;	  /* the lowest position that is not acknowledged */
	uint64_t behind;  /* positions from there to the log's tail */
	uint32_t taken;	  /* GROUP: given, and not acknowledged */
	uint32_t holders; /* sessions that have something of it */
	uint32_t session; /* one of them; 0: none */
};
/* Tell how a reader stands, whoever has it. */
REEF_API int reef_reader_stats(struct reef_log *log, const char *name,
			       struct reef_reader_stats *out);
/* Call `each` with the name of every reader of a log; nonzero ends it and is
 * returned. */
REEF_API int reef_reader_list(struct reef_log *log,
			      int (*each)(void *context, const char *name),
			      void *context);

#ifdef __cplusplus
}
#endif
#endif
