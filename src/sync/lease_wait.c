/* lease_wait.c - those who wait for a lease, or watch it: see lease.h.
 *
 *   (free) --enlist: CAS--> known --WRITE of the inbox--> can be told
 *     ^                        |
 *     +------delist: CAS-------+   (or by whoever sees that its session ended)
 *
 * (1) Places are for messages, and messages are hints: whoever has no place, or
 *     is not told, looks for itself, after a pause that grows from a 64th to a
 *     quarter of a session's TTL, and when a lease that lasts some time could
 *     have lapsed.
 * (2) Nobody misses that it is free for longer than it takes to tell: a waiter
 *     looks at the holder word after its inbox is in its place (enlist, then
 *     attempt), and whoever gives it reads the places after the word has
 *     changed. One waiter is told; if it gives up instead of taking, it tells
 *     another (delist).
 * (3) A place's word counts its changes, so that it does not return to what it
 *     was (R9): owner 42 | count 20 | kind 2; nobody's if the owner is 0.
 * (4) The inbox is written after the CAS is done and not in its batch: a WRITE
 *     may overtake a CAS (F3c), and would then be in a place that is
 *     another's. */
#include "sync/lease.h"

#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define CLAIMS 4 /* places that are tried, and sessions asked about */

static size_t place_offset(uint32_t place)
{
	return offsetof(struct lease_body, places) +
	       place * sizeof(struct lease_place);
}

#define PLACE_COUNT_ONE UINT64_C(4)
static_assert((uint64_t)LEASE_WATCHES < PLACE_COUNT_ONE, "kinds");

static uint64_t place_owner(uint64_t word)
{
	return word & ~(LEASE_TERMS - 1);
}

static uint64_t place_kind(uint64_t word)
{
	return word & (PLACE_COUNT_ONE - 1);
}

/* The word of a place that was `before`, for an owner; 0: nobody (3). */
static uint64_t place_after(uint64_t before, uint64_t owner, uint64_t kind)
{
	uint64_t count = ((before & ~(PLACE_COUNT_ONE - 1)) + PLACE_COUNT_ONE) &
			 (LEASE_TERMS - 1);

	return owner | count | kind;
}

/* --- places --- */

/* CAS a place's word; one in doubt is read. True: it is `to` now. */
static bool swap_place(struct reef_lease *lease, uint32_t place, uint64_t from,
		       uint64_t to)
{
	uint64_t address = lease_at(lease, place_offset(place)), word;
	int rc = reef_cas(lease->object.reef, address, from, to, &word);

	if (rc == -REEF_EINDOUBT)
		return !reef_read(lease->object.reef, address, &word, 8) &&
		       word == to;
	return !rc && word == from;
}

/* True if a place is nobody's, or of a session that has ended. At most CLAIMS
 * sessions are asked about. */
static bool is_vacant(struct reef_lease *lease, uint64_t word, uint32_t *asked)
{
	enum reef_session_view view;

	if (!place_owner(word))
		return true;
	if (lease_session(word) == reef_session(lease->object.reef) ||
	    *asked == CLAIMS)
		return false;
	++*asked;
	return !reef_session_check(lease->object.reef, lease_session(word),
				   &view) &&
	       view == REEF_VIEW_ENDED;
}

static bool claim_place(struct reef_lease *lease)
{
	uint32_t start = (uint32_t)((lease->self >> 22) * 0x9e3779b1u >> 16);
	struct lease_place places[LEASE_PLACES];
	uint32_t i, pass, at, asked = 0, tried = 0;
	uint64_t word;

	if (reef_read(lease->object.reef,
		      lease_at(lease, offsetof(struct lease_body, places)),
		      places, sizeof(places)))
		return false;
	/* Free places are tried first, then those of ended sessions. */
	for (pass = 0; pass < 2; pass++)
		for (i = 0; i < LEASE_PLACES && tried < CLAIMS; i++) {
			at = (start + i) % LEASE_PLACES;
			if (pass ? !is_vacant(lease, places[at].word, &asked)
				 : place_owner(places[at].word) != 0)
				continue;
			tried++;
			word = place_after(places[at].word, lease->self,
					   lease->place_kind);
			if (!swap_place(lease, at, places[at].word, word))
				continue;
			lease->place = at;
			lease->place_word = word;
			return true;
		}
	return false;
}

static void note_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct reef_lease *lease = watch->user;

	if (!wake->word || wake->word == lease->self)
		lease->is_hinted = true;
}

void lease_enlist(struct reef_lease *lease, enum lease_place_kind kind)
{
	lease->watch = (struct reef_watch){
		.object = lease->object.block,
		.message = note_message,
		.user = lease,
	};
	lease->is_hinted = false;
	lease->place_kind = kind;
	lease->place = LEASE_PLACES;
	reef_inbox_watch(lease->object.reef, &lease->watch);
	if (!lease->inbox &&
	    reef_inbox_open(lease->object.space, &lease->inbox))
		return;
	if (claim_place(lease))
		(void)reef_write(
			lease->object.reef,
			lease_at(lease,
				 place_offset(lease->place) +
					 offsetof(struct lease_place, inbox)),
			&lease->inbox, 8);
}

void lease_delist(struct reef_lease *lease, bool pass_on)
{
	struct lease_place places[LEASE_PLACES];
	uint64_t holder;
	struct reef_access accesses[] = {
		{
			.kind = REEF_CAS,
			.address = lease_at(lease, place_offset(lease->place)),
			.compare = lease->place_word,
			.operand = place_after(lease->place_word, 0, 0),
		},
		{
			.kind = REEF_READ,
			.address = lease_at(
				lease, offsetof(struct lease_body, holder)),
			.local = &holder,
			.length = 8,
		},
		{
			.kind = REEF_READ,
			.address = lease_at(
				lease, offsetof(struct lease_body, places)),
			.local = places,
			.length = sizeof(places),
		},
	};
	int rc;

	reef_inbox_unwatch(lease->object.reef, &lease->watch);
	if (lease->place == LEASE_PLACES)
		return;
	rc = reef_execute(lease->object.reef, accesses, pass_on ? 3 : 1);
	/* In doubt twice, the place is left for others to clear. */
	if (rc == -REEF_EINDOUBT)
		rc = reef_execute(lease->object.reef, accesses,
				  pass_on ? 3 : 1);
	lease->place = LEASE_PLACES;
	if (!rc && pass_on && !lease_session(holder))
		lease_wake_others(lease, true, places);
}

/* Send the owner of a place the message that it is to look. False: its inbox is
 * gone for good. */
static bool send_hint(struct reef_lease *lease, const struct lease_place *place)
{
	struct reef_wake wake = {
		.object = lease->object.block,
		.word = place_owner(place->word),
	};

	/* An owner without an inbox looks by itself. */
	if (!place->inbox)
		return true;
	return reef_inbox_send(lease->object.space, place->inbox, &wake) !=
	       -ENOENT;
}

void lease_wake_others(struct reef_lease *lease, bool is_free,
		       const struct lease_place *places)
{
	/* Begin with another waiter each term; and stop after a while, because
	 * the first message to somebody has to connect. */
	uint32_t start = (uint32_t)lease->record.token;
	uint64_t ttl_ns = reef_session_ttl(lease->object.reef);
	uint64_t until_ns = reef_now_ns() + ttl_ns / 16;
	uint32_t i, at;

	for (i = 0; i < LEASE_PLACES && reef_now_ns() <= until_ns; i++) {
		const struct lease_place *place;

		at = (start + i) % LEASE_PLACES;
		place = &places[at];
		if (!place_owner(place->word) ||
		    place_owner(place->word) == lease->self)
			continue;
		if (place_kind(place->word) == LEASE_WAITS && !is_free)
			continue;
		if (!send_hint(lease, place))
			swap_place(lease, at, place->word,
				   place_after(place->word, 0, 0));
		else if (place_kind(place->word) == LEASE_WAITS)
			is_free = false;
	}
}

/* --- waiting --- */

uint64_t lease_deadline(uint64_t timeout_ns)
{
	uint64_t now_ns = reef_now_ns();

	return timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns
						: UINT64_MAX;
}

void lease_plan(struct reef_lease *lease, bool soon)
{
	uint64_t ttl_ns = reef_session_ttl(lease->object.reef);

	if (soon)
		lease->pause_ns = ttl_ns / 32;
	else if (lease->pause_ns < ttl_ns / 64)
		lease->pause_ns = ttl_ns / 64;
	else
		lease->pause_ns = lease->pause_ns < ttl_ns / 8
					  ? 2 * lease->pause_ns
					  : ttl_ns / 4;
	lease->look_ns = reef_now_ns() + lease->pause_ns;
}

static bool is_ready(const void *what)
{
	const struct reef_lease *lease = what;

	return lease->is_hinted || atomic_load(&lease->is_canceled);
}

int lease_wait(struct reef_lease *lease, uint64_t deadline_ns)
{
	uint64_t lapse_ns = lease->seen_ns + lease->duration_ns +
			    lease->duration_ns / 8 + 1;
	uint64_t now_ns = reef_now_ns(), until_ns;
	int rc = 0;

	if (atomic_exchange(&lease->is_canceled, false))
		return -ECANCELED;
	if (now_ns >= deadline_ns)
		return -ETIMEDOUT;
	if (now_ns >= lease->look_ns)
		lease_plan(lease, false);
	until_ns = lease->look_ns;
	if (lease->duration_ns && lapse_ns < until_ns)
		until_ns = lapse_ns;
	if (deadline_ns < until_ns)
		until_ns = deadline_ns;
	if (until_ns > now_ns)
		rc = reef_inbox_wait(lease->object.reef, is_ready, lease,
				     until_ns - now_ns);
	lease->is_hinted = false;
	return rc == -ETIMEDOUT ? 0 : rc;
}
