/* order.h - is what was appended to a log, and read from it, in one order?
 *
 * A history has appends, sights (what a read found at a position), reads that
 * found nothing, and tails, each with the moments at which it was called and
 * returned. Every entry has a value of its own.
 *
 * (1) All who saw a position saw the same: one value, or a hole.
 * (2) A value stands at one position only.
 * (3) What was acknowledged at a position is what was seen there; what was
 *     refused was never seen; what was seen had been called before.
 * (4) The entries of an append stand in a row; of one that was seen in part
 *     none is missing where others were seen.
 * (5) What was called after another append had returned stands behind it.
 * (6) A read that found nothing at all from a position on was called before any
 *     append at that position, or behind it, had returned.
 * (7) A tail is behind what had returned before it was called, and not behind
 *     what was called after it had returned.
 * (8) What was acknowledged, and is not below `trimmed`, was seen by the last
 *     read of all, if the history says that there was one.
 *
 * Of an EARLY log an append does not know its position. There (5) holds for the
 * appends of one handle, and for what was called after a tail had been told;
 * and (8), where nobody saw an entry, for those behind another of their handle
 * that was not trimmed.
 *
 * Positions that were lost are not judged.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_CHECK_ORDER_H
#define REEF_TESTS_CHECK_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_NEVER UINT64_MAX
#define ORDER_HOLE UINT64_MAX /* in place of a value */

enum order_kind {
	ORDER_APPEND = 1,
	ORDER_SIGHT,
	ORDER_NOTHING,
	ORDER_TAIL,
	ORDER_LOST, /* a position that nobody can read */
};

enum order_result {
	ORDER_UNKNOWN, /* it may have happened, or happen yet */
	ORDER_DONE,
	ORDER_REFUSED, /* it did not happen, and never will */
};

struct order_event {
	enum order_kind kind;
	enum order_result result; /* of an append */
	uint64_t value;		  /* APPEND: of the first; SIGHT */
	uint32_t count;		  /* APPEND: values, each one more */
	uint32_t client;	  /* for people */
	uint32_t handle;	  /* EARLY: by which it was appended */
	uint64_t position;	  /* APPEND: of the first, if DONE; or NEVER */
	uint64_t called_at, returned_at;
	bool is_last; /* SIGHT: of the last read of all */
};

struct order_history {
	const struct order_event *events;
	size_t count;
	uint64_t trimmed; /* below it anything may be gone */
	bool is_complete; /* all that is there was read in the end */
	bool is_early;
	bool may_lose; /* EARLY: it was sealed, or memory was lost */
};

/* Check a history, in any order of events. NULL: it is in order. Else which
 * rule is broken, and *event is one that breaks it. */
const char *order_check(const struct order_history *history, size_t *event);

#endif
