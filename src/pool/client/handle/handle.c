/* handle.c - handles: what a thread has of a client.
 *
 * A handle's cache has what it needs of an extent to use it without a lock. It
 * is of one `version` of the view; whenever that has moved, which each call
 * looks at once it is inside, the whole cache is dropped.
 *
 * (1) What is in the cache of the current version is not closed while the
 *     handle is inside (grace.c), or in place (near.h).
 *
 * R8. Fibers of one handle enter and leave as they like, so there may never be
 * a moment when none is inside. They come in two cohorts, each with a pin, the
 * epoch in which its first member came:
 *
 *            the first: pin = newest epoch            the last has left
 *   EMPTY ------------------------------> YOUNG -----------------------> EMPTY
 *     ^                                     |                              ^
 *     |      the newest epoch is another,   |                              |
 *     |      and the other cohort is EMPTY  v        the last has left     |
 *     |                                    OLD ----------------------------+
 *     +-- the other one is YOUNG then
 *
 * (2) Who enters joins the young cohort. Before that, if the newest epoch is
 *     another than the young one's pin, and the other cohort is empty, that is
 *     the young one from now on. So nobody joins the old one: it runs empty,
 *     and the pins move on, at most two calls behind.
 * (3) The keeper announces the older pin, or the newest epoch if both are
 *     empty. A pin is stored, and then the newest epoch looked at once more;
 *     the keeper stores the newest, and looks at pins only in a later renewal.
 *     With a full barrier in between on both sides (base/grace.h: A and B),
 *     either the keeper sees the pin, or the handle the newer epoch, and it
 *     pins that.
 * (4) So while a pin is e, this session has announced at most e since before
 *     that, and what is announced never goes down. Who sees e again, be it in
 *     another fiber or another cohort, knows that it did so all the time: e was
 *     the newest epoch at both, or pinned since it was. That is what reef_epoch
 *     promises. More generally: what is freed after the newest epoch was seen
 *     as n is stamped with n at least (lease.c, rule 8), so that a pin of n or
 *     less keeps it from being reused.
 * (5) Which cohort a fiber is in, and how deep, stands in a word of the fiber.
 *     Whoever has no room for one, being inside several handles at once, joins
 *     a third cohort, whose pin moves only when it is empty. */
#include "pool/client/handle/handle.h"

#include "base/mutant.h"
#include "fabric/near.h"
#include "pool/client/handle/call.h"
#include "pool/client/handle/copies.h"
#include "pool/client/handle/space.h"
#include "pool/client/keeper/view.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A number that is not 0, and was no handle's before. */
static uint32_t next_handle_number(void)
{
	static _Atomic uint32_t numbers;

	return atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
}

int client_handle_open(struct reef_client *client, struct reef_sched *sched,
		       struct reef **out)
{
	struct reef *reef = calloc(1, sizeof(*reef));
	int rc;

	if (!reef)
		return -ENOMEM;
	reef->client = client;
	reef->forks = reef_fork_generation();
	reef->sched = sched ? sched : reef_fiber_sched();
	reef->epoll_fd = -1;
	reef->number = next_handle_number();
	for (uint32_t i = 0; i < CLIENT_COHORTS; i++)
		atomic_init(&reef->member.pins[i], UINT64_MAX);
	rc = reef_port_open(client->options.mesh, reef->sched, &reef->port);
	if (rc) {
		free(reef);
		return rc;
	}
	reef->member.queue = reef_port_queue(reef->port, 0);
	for (uint32_t i = 0; i < reef_mesh_count(client->options.mesh); i++)
		if (reef_queue_is_near(reef_port_queue(reef->port, i)))
			reef->near = reef_port_queue(reef->port, i);
	client_member_add(client, &reef->member);
	*out = reef;
	return 0;
}

void client_handle_close(struct reef *reef)
{
	if (!reef)
		return;
	while (reef->tasks)
		reef_task_wait(reef, *client_call_task(reef->tasks));
	if (reef->inbox.ops)
		reef->inbox.ops->close(reef);
	while (reef->spaces)
		reef_space_close(reef->spaces);
	client_member_remove(reef->client, &reef->member);
	client_call_free(reef->calls_free[0]);
	client_call_free(reef->calls_free[1]);
	client_copies_free(reef->copies_free[0]);
	client_copies_free(reef->copies_free[1]);
	if (reef->epoll_fd >= 0)
		close(reef->epoll_fd);
	reef_port_close(reef->port);
	if (reef->inbox.ops)
		reef->inbox.ops->free(reef);
	if (reef->txns.free)
		reef->txns.free(reef->txns.first);
	free(reef);
}

uint32_t reef_session(const struct reef *reef)
{
	return reef->client->session;
}

uint64_t reef_session_ttl(const struct reef *reef)
{
	return reef->client->ttl_ns;
}

int reef_health(const struct reef *reef)
{
	int rc;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	rc = client_over(reef->client);
	if (rc)
		return rc;
	return atomic_load(&reef->client->present) ? 0 : -REEF_ENOLINK;
}

int client_handle_check(struct reef *reef)
{
	if (client_is_forked(reef))
		return -REEF_EFORKED;
	/* A handle's queues can wake fibers of one scheduler only. */
	if (reef_fiber_self() && reef_fiber_sched() != reef->sched)
		return -EINVAL;
	return client_over(reef->client);
}

/* --- the view --- */

static void forget_lost(struct reef_client *client, struct reef_space *space)
{
	struct client_heap *heap = space->heap;
	uint32_t number;

	while (heap) {
		pthread_mutex_lock(&client->lock);
		number = heap->lost_seen < space->space->lost_count
				 ? space->space->lost[heap->lost_seen++]
				 : 0;
		pthread_mutex_unlock(&client->lock);
		if (!number)
			break;
		reef_heap_forget(heap->heap, number);
	}
}

/* Say what may be done in place with the extent of an entry: with one copy, and
 * with two. */
static void set_near(struct client_entry *entry, uint32_t number,
		     uint8_t rights, uint8_t copied_rights)
{
	const uint32_t none = number ^ 1;

	entry->near_seen =
		(rights | copied_rights) & REEF_RIGHT_READ ? number : none;
	entry->near_read = rights & REEF_RIGHT_READ ? number : none;
	entry->near_write = rights & REEF_RIGHT_WRITE ? number : none;
}

void client_handle_refresh(struct reef *reef)
{
	struct reef_client *client = reef->client;
	struct reef_space *space;

	/* Once the session is over no version is current, so nothing is done in
	 * place, and that path need not check `over`, which is set before the
	 * version moves. */
	reef->seen = atomic_load(&client->version);
	if (client_over(client))
		reef->seen = 0;
	memset(reef->cache, 0, sizeof(reef->cache));
	memset(reef->twins, 0, sizeof(reef->twins));
	for (uint32_t i = 0; i < CLIENT_CACHE; i++)
		set_near(&reef->cache[i], i, 0, 0);
	for (space = reef->spaces; space; space = space->next) {
		forget_lost(client, space);
		client_short_forget(space);
	}
}

int client_entry_find(struct reef *reef, uint32_t number,
		      struct client_entry **out)
{
	struct client_entry *entry = &reef->cache[number % CLIENT_CACHE];
	struct reef_client *client = reef->client;
	struct client_extent *extent;
	int rc = 0;

	if (unlikely(!client_is_current(reef)) &&
	    !REEF_MUTATED(CLIENT_STALE_EXTENT))
		client_handle_refresh(reef);
	if (likely(entry->extent == number && number)) {
		*out = entry;
		return 0;
	}
	if (!number)
		return -EFAULT;
	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	if (extent && extent->state == REEF_EXTENT_LOST) {
		rc = extent->removed ? -EFAULT : -REEF_ELOST;
	} else if (!extent || !extent->remote) {
		rc = -EAGAIN;
	} else {
		*entry = (struct client_entry){
			.extent = number,
			.node = extent->node,
			.rights = extent->space->rights,
			.size = extent->size,
			.copy = extent->copy,
			.number = extent->number,
			.link_number = extent->link_number,
			.queue = reef_port_queue_of(reef->port, extent->link),
			.link = extent->link,
			.remote = extent->remote,
		};
		if (unlikely(extent->twin) && !extent->is_twin) {
			entry->twin = extent->twin;
			entry->copied_rights = entry->rights;
			entry->rights = 0;
			reef->has_copies = true;
		}
		if (entry->queue == reef->near)
			set_near(entry, number, entry->rights,
				 entry->copied_rights);
		else
			set_near(entry, number, 0, 0);
		reef->twins[number % CLIENT_CACHE] = NULL;
		*out = entry;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

uint32_t reef_clip_length(const struct reef *reef, uint64_t address,
			  uint32_t length)
{
	uint32_t number = (uint32_t)(address >> 32), at = (uint32_t)address;
	struct reef_client *client = reef->client;
	const struct client_extent *extent;
	uint64_t size = 0;

	/* An extent has whole pages. */
	if (likely(at % REEF_EXTENT_ALIGN + length <= REEF_EXTENT_ALIGN))
		return length;
	if (client_is_current(reef) &&
	    reef->cache[number % CLIENT_CACHE].extent == number) {
		size = reef->cache[number % CLIENT_CACHE].size;
	} else if (!client_is_forked(reef)) {
		pthread_mutex_lock(&client->lock);
		extent = client_extent_find(client, number);
		size = extent ? extent->size : 0;
		pthread_mutex_unlock(&client->lock);
	}
	return at < size && length > size - at ? (uint32_t)(size - at) : length;
}

bool reef_is_lost(const struct reef *reef, uint64_t address)
{
	uint32_t number = (uint32_t)(address >> 32);
	struct reef_client *client = reef->client;
	const struct client_extent *extent;
	bool is_lost;

	if (client_is_forked(reef))
		return false;
	if (client_is_current(reef) &&
	    reef->cache[number % CLIENT_CACHE].extent == number)
		return false;
	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	is_lost =
		extent && extent->state == REEF_EXTENT_LOST && !extent->removed;
	pthread_mutex_unlock(&client->lock);
	return is_lost;
}

/* --- R8 --- */

#define STRANGERS 2u /* the third cohort: (5) */
#define COHORT 3u    /* bits of a word: its cohort; the rest: how deep */
#define DEEPER 4u

/* The word of the calling fiber, or of the thread outside fibers. NULL: the
 * fiber has none, and no room for one. */
static inline __attribute__((nonnull)) uint32_t *
word_of(const struct reef *reef, bool make)
{
	if (!reef_fiber_self_quick())
		return (uint32_t *)&reef->own;
	return reef_fiber_word(reef->number, make);
}

/* Store the newest epoch as the cohort's pin: (3). */
static void pin_epoch(struct reef *reef, uint32_t cohort)
{
	_Atomic uint64_t *newest = &reef->client->reclaim_epoch;
	uint64_t epoch;

	do {
		epoch = atomic_load(newest);
		reef_announce(&reef->member.pins[cohort], epoch);
	} while (unlikely(atomic_load(newest) != epoch));
}

static inline uint64_t pin_of(const struct reef *reef, uint32_t cohort)
{
	return atomic_load_explicit(&reef->member.pins[cohort],
				    memory_order_relaxed);
}

/* The cohort for whoever enters now: (2). */
static inline uint32_t join_cohort(struct reef *reef)
{
	uint32_t young = reef->young;

	if (unlikely(reef->entered[young]) && !reef->entered[!young] &&
	    pin_of(reef, young) !=
		    atomic_load_explicit(&reef->client->reclaim_epoch,
					 memory_order_relaxed))
		reef->young = young = !young;
	return young;
}

static inline void enter_cohort(struct reef *reef, uint32_t cohort)
{
	if (!reef->entered[cohort]++)
		pin_epoch(reef, cohort);
}

static inline void leave_cohort(struct reef *reef, uint32_t cohort)
{
	/* cppcheck-suppress arrayIndexOutOfBoundsCond ; never COHORT */
	reef_assert(reef->entered[cohort]);
	if (!--reef->entered[cohort])
		/* Release: what was read before is not looked at any more; the
		 * partner is the keeper's load of the pin. */
		atomic_store_explicit(&reef->member.pins[cohort], UINT64_MAX,
				      memory_order_release);
}

void reef_enter(struct reef *reef)
{
	uint32_t *word = word_of(reef, true), cohort = STRANGERS;

	if (likely(word != NULL)) {
		if (*word) {
			*word += DEEPER;
			return;
		}
		cohort = join_cohort(reef);
		*word = DEEPER | cohort;
	}
	enter_cohort(reef, cohort);
}

void reef_leave(struct reef *reef)
{
	uint32_t *word = word_of(reef, false), cohort = STRANGERS;

	if (likely(word && *word)) {
		*word -= DEEPER;
		if (*word >= DEEPER)
			return;
		cohort = *word & COHORT;
		*word = 0;
	}
	leave_cohort(reef, cohort);
}

uint32_t client_pin(struct reef *reef)
{
	uint32_t cohort = join_cohort(reef);

	if (!REEF_MUTATED(COPIES_UNPINNED))
		enter_cohort(reef, cohort);
	return cohort;
}

void client_unpin(struct reef *reef, uint32_t cohort)
{
	if (!REEF_MUTATED(COPIES_UNPINNED))
		leave_cohort(reef, cohort);
}

uint64_t reef_epoch(const struct reef *reef)
{
	const uint32_t *word = word_of(reef, false);
	uint32_t cohort = word && *word ? *word & COHORT : STRANGERS;

	reef_assert(reef->entered[cohort]);
	return pin_of(reef, cohort);
}

bool client_is_inside(const struct reef *reef)
{
	const uint32_t *word = word_of(reef, false);

	return word && *word;
}

bool client_may_be_inside(const struct reef *reef)
{
	/* Nobody knows who is in the third cohort: it may be the caller. */
	return client_is_inside(reef) || reef->entered[STRANGERS];
}
