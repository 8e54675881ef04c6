/* word.h - CAS and FAA of one word, inline, where an operation ends as it is
 * posted: for whoever does little besides (access.c, locks).
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_WORD_H
#define REEF_POOL_CLIENT_HANDLE_WORD_H

#include "pool/client/handle/handle.h"

/* What is looked at here is what nobody below looks at: alignment and limits
 * are the fabric's. As client_enter, where it is not strong. */
static inline int client_word(struct reef *reef, enum reef_op_kind kind,
			      uint64_t address, uint64_t compare,
			      uint64_t operand, uint64_t *before)
{
	uint32_t number = (uint32_t)(address >> 32);
	struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];
	struct reef_client *client = reef->client;
	_Atomic uint32_t *inside =
		&reef->inside[atomic_load_explicit(&client->phase,
						   memory_order_relaxed) &
			      1];
	int rc = -EAGAIN;

	atomic_store_explicit(
		inside, atomic_load_explicit(inside, memory_order_relaxed) + 1,
		memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(!client_is_current(reef) || entry->extent != number ||
		     !entry->has_words || reef->pending))
		goto out;
	if (kind == REEF_CAS)
		rc = reef_run_cas(entry->queue, entry->remote,
				  (uint32_t)address, compare, operand, before);
	else
		rc = reef_run_faa(entry->queue, entry->remote,
				  (uint32_t)address, operand, before);
out:
	/* Release: the partner is have_left in grace.c. */
	atomic_store_explicit(
		inside, atomic_load_explicit(inside, memory_order_relaxed) - 1,
		memory_order_release);
	return rc;
}

/* 0: done. Else nothing happened, and reef_cas, reef_faa are to be called. A
 * caller that has to keep little for that case is quicker than they are. */
static inline int client_cas(struct reef *reef, uint64_t address,
			     uint64_t compare, uint64_t value, uint64_t *before)
{
	return client_word(reef, REEF_CAS, address, compare, value, before);
}

static inline int client_faa(struct reef *reef, uint64_t address, uint64_t add,
			     uint64_t *before)
{
	return client_word(reef, REEF_FAA, address, 0, add, before);
}

#endif
