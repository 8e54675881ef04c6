/* word.c - words of an index that several clients change by CAS. */
#include "index/entry/word.h"

#define CAS_ATTEMPTS 16
#define PAUSE_MIN_NS 1000u
#define PAUSE_SHIFT_MAX 10u
#define PATIENT 4u /* attempts without a pause */

int index_pause(uint32_t attempt)
{
	uint32_t shift;

	if (attempt < PATIENT)
		return 0;
	shift = attempt - PATIENT;
	if (shift > PAUSE_SHIFT_MAX)
		shift = PAUSE_SHIFT_MAX;
	return reef_sleep((uint64_t)PAUSE_MIN_NS << shift);
}

/* A session whose own READ fails, because the node is out of reach or the
 * session has ended, cannot tell whether its CAS happened. Where the memory is
 * lost, the change is. */
int index_read_in_doubt(struct reef *reef, uint64_t at, uint64_t *now)
{
	int rc = reef_read(reef, at, now, 8);

	return rc == -REEF_ENOLINK || rc == -REEF_EFENCED ? -REEF_EINDOUBT : rc;
}

/* Find out what became of a CAS that is in doubt; as index_cas.  -EAGAIN: it
 * never happened. */
static int settle_cas(struct reef *reef, uint64_t at, uint64_t compare,
		      uint64_t value, uint64_t *before)
{
	int rc = index_read_in_doubt(reef, at, before);

	if (rc)
		return rc;
	if (*before == value)
		return 1;
	return *before == compare ? -EAGAIN : -REEF_EINDOUBT;
}

int index_cas(struct reef *reef, uint64_t at, uint64_t compare, uint64_t value,
	      uint64_t *before)
{
	int rc, i;

	for (i = 0; i < CAS_ATTEMPTS; i++) {
		rc = reef_cas(reef, at, compare, value, before);
		if (!rc)
			return *before == compare;
		if (rc != -REEF_EINDOUBT)
			return rc;
		rc = settle_cas(reef, at, compare, value, before);
		if (rc != -EAGAIN)
			return rc;
	}
	return -REEF_EINDOUBT;
}

int index_cas_again(struct reef *reef, uint64_t at, uint64_t compare,
		    uint64_t value, uint64_t *before)
{
	int rc = settle_cas(reef, at, compare, value, before);

	return rc == -EAGAIN ? index_cas(reef, at, compare, value, before) : rc;
}

int index_batch_flush(struct index_batch *batch)
{
	int rc = batch->count ? reef_execute(batch->reef, batch->accesses,
					     batch->count)
			      : 0;

	batch->count = 0;
	return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
}

int index_batch_add(struct index_batch *batch, struct reef_access access)
{
	batch->accesses[batch->count++] = access;
	return batch->count == INDEX_BATCH ? index_batch_flush(batch) : 0;
}
