/* word.h - words of an index that several clients change by CAS: to try again,
 * and to find out what became of a CAS whose link was lost.
 *
 * Thread: owner of the handle. */
#ifndef REEF_INDEX_ENTRY_WORD_H
#define REEF_INDEX_ENTRY_WORD_H

#include "pool/client/client.h"

#include <errno.h>

/* True if an error says that what a word names is nothing of ours. */
static inline bool index_is_nonsense(int rc)
{
	return rc == -REEF_ECORRUPT || rc == -EFAULT || rc == -EINVAL;
}

/* Pause for a time that grows with the attempts, up to a millisecond. */
int index_pause(uint32_t attempt);

/* CAS a word, and settle what is in doubt.  1: it was set.  0: it was not,
 * *before is what is there.  -REEF_EINDOUBT: the word is neither of the two, so
 * nobody can tell. */
int index_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	      uint64_t *before);
/* Go on with a CAS that was in doubt; as index_cas. */
int index_cas_again(struct reef *reef, uint64_t at, uint64_t compare,
		    uint64_t value, uint64_t *before);
/* READ a word after a CAS of it was in doubt. Errors as reef_read, but where
 * nobody can tell what became of it: -REEF_EINDOUBT. */
int index_read_in_doubt(struct reef *reef, uint64_t at, uint64_t *now);

/* Operations that go together, in any order. A CAS in doubt makes it -EAGAIN:
 * whoever reads the words again sees what it did. */
#define INDEX_BATCH 128u
struct index_batch {
	struct reef *reef;
	uint32_t count;
	struct reef_access accesses[INDEX_BATCH];
};
int index_batch_add(struct index_batch *batch, struct reef_access access);
int index_batch_flush(struct index_batch *batch);

#endif
