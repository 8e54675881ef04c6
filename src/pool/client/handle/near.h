/* near.h - the memory of extents in place, as a handle sees it: fabric/near.h,
 * by address. For access.c, locks, and what is made of many small READs
 * (index/hash).
 *
 * (1) enter also finds out whether the cache is of the current view, after it
 *     has entered: whoever closes what the cache names moves the version first,
 *     and then waits for the turn of the near queue (keeper/grace.c). So the
 *     turn is all that a handle needs to be inside by.
 * (2) Whatever cannot be had this way, for any reason, can be had by
 *     reef_execute, and tried here again after that.
 * (3) Between enter and leave nothing else is done with the handle, and nothing
 *     that fabric/near.h (4) does not allow.
 * (4) Memory with two copies is changed here by copies_near.c alone, and read
 *     at its primary, where client_near_see finds it: what was read counts only
 *     if client_near_counts says so after it, for the lease must have run
 *     (call.c (6)). Who stands still between the two is told that it has not;
 *     who does so after both was in time.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_NEAR_H
#define REEF_POOL_CLIENT_HANDLE_NEAR_H

#include "base/mutant.h"
#include "fabric/near.h"
#include "pool/client/handle/call.h"
#include "pool/client/handle/copies.h"
#include "pool/client/handle/space.h"
#include "pool/client/keeper/renew.h"

#include <errno.h>
#include <reef/error.h>

/* True if some memory may be had this way. */
static inline bool client_is_near(const struct reef *reef)
{
	return reef->near;
}

/* False: (2). In a forked child, always; once the session is over, too. */
static inline bool client_near_enter(struct reef *reef)
{
	if (unlikely(!reef->near || !reef_near_enter(reef->near)))
		return false;
	if (likely(client_is_current(reef)))
		return true;
	reef_near_leave(reef->near);
	return false;
}

static inline void client_near_leave(struct reef *reef)
{
	reef_near_leave(reef->near);
}

/* Where an address is, between enter and leave. NULL: (2). */
static inline uint8_t *client_near_at(struct reef *reef, uint64_t address,
				      uint64_t length, bool writes)
{
	uint32_t number = (uint32_t)(address >> 32);
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];

	if (unlikely((writes ? entry->near_write : entry->near_read) != number))
		return NULL;
	return reef_near_at(entry->remote, (uint32_t)address, length, writes);
}

/* The same for who only reads, also where there are two copies: (4). */
static inline uint8_t *client_near_see(struct reef *reef, uint64_t address,
				       uint64_t length)
{
	uint32_t number = (uint32_t)(address >> 32);
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];

	if (unlikely(entry->near_seen != number))
		return NULL;
	return reef_near_at(entry->remote, (uint32_t)address, length, false);
}

/* True if memory with two copies that client_near_see found may be changed. */
static inline bool client_may_change(const struct reef *reef, uint64_t address)
{
	return reef->cache[(address >> 32) % CLIENT_CACHE].copied_rights &
	       REEF_RIGHT_WRITE;
}

/* True if what client_near_see led to was read in time: (4). The clock is read
 * without waiting for the loads before it, as that would cost as much as they
 * do: the eighth of a lease that is to spare is longer (base/ticks.h (3)). */
static inline bool client_near_counts(const struct reef *reef)
{
	const struct reef_client *client = reef->client;

	atomic_thread_fence(memory_order_acquire); /* free on x86 */
	return likely(reef_is_before_tick(atomic_load_explicit(
		       &client->lease_tick, memory_order_relaxed))) ||
	       client_lease_runs(client) || REEF_MUTATED(COPIES_READ_EXPIRED);
}

/* As client_near_at, for several addresses, most of them in one extent: the
 * last one is kept here, {0} at first, until leave. */
struct client_near_extent {
	uint32_t number; /* 0: none */
	struct reef_near_map map;
};

static inline void client_near_extent(const struct reef *reef, uint32_t number,
				      struct client_near_extent *out)
{
	const struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];

	*out = (struct client_near_extent){.number = number};
	if (entry->near_read != number && entry->near_write != number)
		return;
	reef_near_map(entry->remote, &out->map);
	if (entry->near_read != number)
		out->map.limit = 0;
	if (entry->near_write != number)
		out->map.write_limit = 0;
}

static inline uint8_t *client_near_next(const struct reef *reef,
					uint64_t address, uint64_t length,
					bool writes,
					struct client_near_extent *last)
{
	uint32_t number = (uint32_t)(address >> 32);

	if (unlikely(number != last->number))
		client_near_extent(reef, number, last);
	return reef_near_map_at(&last->map, (uint32_t)address, length, writes);
}

/* --- accesses --- */

#define CLIENT_NEAR_COUNT 256u	  /* at once */
#define CLIENT_NEAR_LENGTH 65536u /* bytes of one */

/* How many bytes an access is of. UINT64_MAX, which no memory has: it is not to
 * be done in place, or malformed. */
static inline uint64_t client_near_length(const struct reef_access *access)
{
	bool is_bad;

	if (unlikely(access->flags & ~CLIENT_FLAGS || access->reserved))
		return UINT64_MAX;
	if (likely(access->kind == REEF_READ || access->kind == REEF_WRITE)) {
		is_bad = access->length > CLIENT_NEAR_LENGTH || !access->local;
		return unlikely(is_bad) ? UINT64_MAX : access->length;
	}
	is_bad = (access->kind != REEF_CAS && access->kind != REEF_FAA) ||
		 access->address & 7;
	return unlikely(is_bad) ? UINT64_MAX : 8;
}

/* --- one word --- */

/* The word at an address, entered. NULL: (2), and not entered. */
static inline uint8_t *client_near_word(struct reef *reef, uint64_t address)
{
	uint8_t *at;

	if (unlikely(reef->pending || address & 7 || !client_near_enter(reef)))
		return NULL;
	at = client_near_at(reef, address, 8, true);
	if (unlikely(!at))
		client_near_leave(reef);
	return at;
}

static inline void client_count_word(struct reef *reef,
				     enum reef_counted_kind kind)
{
	client_count(&reef->member.counters.operations[REEF_COUNTED_SHM][kind],
		     1);
}

/* False: (2), and nothing happened. A caller that has to keep little for that
 * case is quicker than reef_cas and reef_faa are. *before: may be NULL. */
static inline bool client_near_cas(struct reef *reef, uint64_t address,
				   uint64_t compare, uint64_t value,
				   uint64_t *before)
{
	uint8_t *at = client_near_word(reef, address);

	if (unlikely(!at))
		return false;
	value = reef_near_cas(at, compare, value);
	client_count_word(reef, REEF_COUNTED_CAS);
	if (before)
		*before = value;
	client_near_leave(reef);
	return true;
}

static inline bool client_near_faa(struct reef *reef, uint64_t address,
				   uint64_t add, uint64_t *before)
{
	uint8_t *at = client_near_word(reef, address);

	if (unlikely(!at))
		return false;
	add = reef_near_faa(at, add);
	client_count_word(reef, REEF_COUNTED_FAA);
	if (before)
		*before = add;
	client_near_leave(reef);
	return true;
}

/* --- within an epoch --- */

/* A beat of the keeper's: while it is the same, the time is, within some
 * seconds. */
static inline uint32_t client_beat(const struct reef *reef)
{
	return atomic_load_explicit(&reef->client->beats, memory_order_relaxed);
}

/* reef_enter and client_near_enter in one, in a few instructions, for one
 * lookup. Nobody of this handle comes in between, so if the young cohort is
 * empty its pin is free, whoever else is inside: handle.c (2). */
struct client_near {
	uint64_t epoch; /* as reef_epoch */
	uint32_t cohort;
};

static inline void client_near_end(struct reef *reef,
				   const struct client_near *near)
{
	client_near_leave(reef);
	/* Release: as in reef_leave. */
	atomic_store_explicit(&reef->member.pins[near->cohort], UINT64_MAX,
			      memory_order_release);
}

static inline bool client_near_begin(struct reef *reef,
				     struct client_near *near)
{
	const _Atomic uint64_t *newest = &reef->client->reclaim_epoch;
	uint32_t cohort = reef->young;

	if (unlikely(reef->entered[cohort] || !client_near_enter(reef)))
		return false;
	near->cohort = cohort;
	near->epoch = atomic_load_explicit(newest, memory_order_acquire);
	/* handle.c (3) */
	reef_announce_quick(&reef->member.pins[cohort], near->epoch);
	if (likely(atomic_load_explicit(newest, memory_order_acquire) ==
		   near->epoch))
		return true;
	client_near_end(reef, near);
	return false;
}

/* --- counting --- */

/* A key that was read in place. */
static inline void client_count_lookup(struct reef *reef, uint32_t length)
{
	client_count_word(reef, REEF_COUNTED_LOOKUP);
	client_count(&reef->member.counters.bytes[REEF_COUNTED_LOOKUP], length);
}

/* How long something in place took that stands for `weight` of its kind. */
static inline void client_count_time(struct reef *reef, uint64_t ns,
				     uint64_t weight)
{
	client_count_latency(&reef->member.counters, ns, weight);
}

/* All times that were counted, together. While it is the same, nothing of the
 * handle's waited for a fabric. */
static inline uint64_t client_counted_ns(const struct reef *reef)
{
	return reef->member.counters.latency_ns;
}

/* A get that was not done in place. */
static inline void client_count_get(struct reef *reef, int rc)
{
	struct reef_counters *counters = &reef->member.counters;

	if (!rc)
		client_count(&counters->hits, 1);
	else if (rc == -ENOENT)
		client_count(&counters->misses, 1);
	else if (rc == -REEF_ECORRUPT)
		client_count(&counters->damaged, 1);
}

/* --- hints --- */

/* Fetch what is about to be written; not entered. */
static inline void client_near_hint(struct reef *reef, uint64_t address,
				    uint64_t length)
{
	uint8_t *at;

	if (!client_near_enter(reef))
		return;
	at = client_near_at(reef, address, length, true);
	if (likely(at))
		reef_near_prefetch(at, length, true);
	else if (reef->has_copies)
		client_copies_hint(reef, address, length);
	client_near_leave(reef);
}

/* A block is about to be freed: what its heap has to look at is fetched. */
static inline void client_free_hint(const struct reef_space *space,
				    uint64_t address)
{
	if (space->heap)
		reef_heap_free_hint(space->heap->heap, address);
}

/* As reef_long_address, if it is known without asking. */
static inline bool client_near_long(const struct reef_space *space,
				    uint64_t short_address, uint64_t *out)
{
	uint32_t ordinal = (uint32_t)(short_address >> CLIENT_SHORT_BITS);

	if (unlikely(ordinal >= space->bases_count || !space->bases[ordinal]))
		return false;
	*out = client_short_join(space->bases[ordinal], short_address);
	return true;
}

#endif
