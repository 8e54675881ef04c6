/* turn.c - who makes the next cut of a SHARDED log: (S10) of shard.h.
 *
 *   something is counted --> nobody else has a shard, or the last cut is ours
 *        |                                                      --> cut
 *        v
 *      pause, look --> it is cut by another --> done
 *        |   ^
 *        |   +-- another has claimed since
 *        +--> none came for the bound --> claim --CAS--> cut
 *
 * What it costs to wait: a READ each pause, and another for each cut. Pauses
 * grow with the number of shards, so that those who wait take a part of the
 * memory node's time that does not. */
#include "log/shard.h"

#define CLAIM_BITS 14
#define PAUSE_NS UINT64_C(1000)
#define PAUSE_SHARD_NS UINT64_C(20)  /* and so much for each shard */
#define BOUND_SHARD_NS UINT64_C(100) /* a cut takes longer, too */
#define CUTS_MISSED                                                            \
	4u /* cuts without ours: whoever makes them cannot see it              \
	    */
#define CLAIMS_MISSED 4u

bool turn_is_ours(const struct log_sharded *sharded)
{
	return sharded->shards < 2 || (sharded->made != LOG_NOWHERE &&
				       sharded->made == sharded->last.index);
}

uint64_t turn_bound_ns(const struct reef_log *log)
{
	return log->options.hole_ns + log->sharded->shards * BOUND_SHARD_NS;
}

int turn_claim(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	const uint64_t at = log_floor_at(log) + 16;
	uint64_t word, value, before;
	int rc = reef_read(log->reef, at, &word, 8);

	if (rc)
		return rc;
	value = sharded->next << CLAIM_BITS;
	if (word >= value) {
		/* Another has it; who had it before us, too, did nothing. (R10)
		 */
		if (word != sharded->claim) {
			sharded->claim = word;
			return 0;
		}
		if (word == UINT64_MAX)
			return 1;
		value = word + 1;
	}
	rc = reef_cas(log->reef, at, word, value, &before);
	/* Two at a time are no harm. */
	if (rc == -REEF_EINDOUBT)
		return 1;
	if (!rc && before != word)
		sharded->claim = before;
	return rc ? rc : before == word;
}

/* Look for cuts until what is waited for is decided, or none came for the
 * bound, or too many came without it: *missed. */
static int look_on(struct reef_log *log, uint32_t *missed)
{
	struct log_sharded *sharded = log->sharded;
	const uint64_t bound_ns = turn_bound_ns(log);
	const uint64_t first_ns = PAUSE_NS + sharded->shards * PAUSE_SHARD_NS;
	uint64_t next = sharded->next, pause_ns = first_ns;
	uint64_t since_ns = reef_now_ns(), waited_ns = 0;
	int rc = 0;

	while (!rc && !cut_is_decided(&sharded->own) && waited_ns < bound_ns &&
	       *missed < CUTS_MISSED && !sharded->is_at_end) {
		if (pause_ns > bound_ns - waited_ns)
			pause_ns = bound_ns - waited_ns;
		rc = reef_sleep(pause_ns);
		pause_ns += pause_ns / 4;
		if (!rc)
			rc = cuts_peek(log);
		if (sharded->next != next) {
			next = sharded->next;
			since_ns = reef_now_ns();
			pause_ns = first_ns;
			++*missed;
		}
		waited_ns = reef_now_ns() - since_ns;
	}
	return rc;
}

int turn_await(struct reef_log *log)
{
	struct log_sharded *sharded = log->sharded;
	uint32_t missed = 0, claims = 0;
	int rc = 0;

	/* EARLY: who cuts does so now and then, and nobody has asked yet. */
	if (log_is_early(log) && !turn_is_ours(sharded))
		rc = turn_claim(log);
	while (!rc && !cut_is_decided(&sharded->own)) {
		if (turn_is_ours(sharded) || missed >= CUTS_MISSED ||
		    ++claims > CLAIMS_MISSED || sharded->is_at_end)
			return 1;
		rc = look_on(log, &missed);
		if (!rc && !cut_is_decided(&sharded->own) &&
		    missed < CUTS_MISSED)
			rc = turn_claim(log);
	}
	return rc;
}
