/* cycle.h - are transactions over lists strictly serializable?
 *
 * A history has transactions, each with the moments at which it was called and
 * returned, and what it did in its order: appends of a value to the list of a
 * key, and reads of whole lists. A plain call is a transaction of one
 * operation, or of a read and an append. No two appends have the same value. So
 * the lists that were read tell in which order the appends of a key happened,
 * and from that follows which transaction came before which:
 *
 *   ww  it appended what another appended behind
 *   wr  it appended the last value that the other read
 *   rw  it read a list without a value that the other appended
 *   rt  it returned before the other was called
 *
 * (1) Every value that was read was appended once, by a transaction that was
 *     not refused (G1a), and is in a list once.
 * (2) Of two lists of a key that were read, one begins with the other.
 * (3) A transaction sees its own appends, and reads of one key agree.
 * (4) A list that another read does not end between two appends that one
 *     transaction made to it (G1b).
 * (5) There is no circle of ww (G0), of ww and wr (G1c), of those with rw (G2),
 *     nor of all four (real time).
 *
 * Of a transaction whose outcome its caller does not know (UNKNOWN), nothing it
 * read counts; it happened if somebody saw one of its values, else it need not
 * have happened. What a refused one read is not judged. The history should end
 * with a transaction that reads everything: what nobody reads is not missed.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_CHECK_CYCLE_H
#define REEF_TESTS_CHECK_CYCLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CYCLE_NEVER UINT64_MAX

enum cycle_result {
	CYCLE_UNKNOWN, /* it may have happened, or happen yet */
	CYCLE_DONE,
	CYCLE_REFUSED, /* it did not happen, and never will */
};

struct cycle_op {
	uint64_t key;
	bool is_append;
	uint64_t value;	      /* of an append */
	const uint64_t *list; /* of a read */
	uint32_t list_count;
};

struct cycle_txn {
	const struct cycle_op *ops;
	uint32_t ops_count;
	enum cycle_result result;
	uint32_t client; /* for people */
	uint64_t called_at, returned_at;
};

/* Check a history, in any order. NULL: it is right. Else what is wrong, and
 * *txn is a transaction that has to do with it. */
const char *cycle_check(const struct cycle_txn *txns, size_t count,
			size_t *txn);

#endif
