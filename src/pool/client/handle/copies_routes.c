/* copies_routes.c - where the copies of accesses are, as of one view, and what
 * becomes of an access whose row has changed: copies.h (6) to (8). */
#include "pool/client/handle/copies_list.h"

#include "base/mutant.h"
#include "pool/client/handle/call.h"
#include "pool/client/handle/space.h"

/* A WRITE was done at some copies, and the row is another: which of those that
 * are there now have it? A new copy was made from the one that was left. */
static uint8_t carry_written(const struct route *was, const struct route *is,
			     uint8_t written)
{
	if (was->twin == is->twin)
		return written;
	if ((is->copy == was->copy && written & AT_PRIMARY) ||
	    (was->twin && is->copy == was->twin_copy && written & AT_ARBITER))
		return AT_PRIMARY | AT_ARBITER;
	return 0;
}

void copies_note_written(struct client_copies *copies, uint32_t i, uint8_t at)
{
	struct item *item = item_of(copies, i);

	item->written |= at;
	if (item->written & AT_PRIMARY &&
	    (!item->route.twin || item->written & AT_ARBITER ||
	     REEF_MUTATED(COPIES_WRITE_ONE)))
		copies_finish(copies, i, 0);
}

static void change_route(struct item *item, const struct route *route)
{
	const struct route *was = &item->route;
	bool is_same = was->twin == route->twin &&
		       was->number == route->number &&
		       was->twin_number == route->twin_number;

	item->written = carry_written(was, route, item->written);
	if (!is_same && item->fate == WON) { /* (7) */
		item->has_won = true;
		item->won_at = arbiter_copy(was);
	}
	/* What the arbiter of another row had is nothing to go by in this. */
	if (!is_same)
		item->fate = UNDECIDED;
	item->route = *route;
}

/* True if some access of the list has begun, and is not done: what it compares
 * with must not come back. */
static bool has_begun(struct client_copies *copies)
{
	const struct item *item;

	for (uint32_t i = copies->from; i < copies->to; i++) {
		item = item_of(copies, i);
		if (is_pending(copies, i) &&
		    (item->fate || item->written || item->is_doubted ||
		     item->has_won))
			return true;
	}
	return false;
}

/* Let the epoch go while the keeper is asked, which may take for long: (8). */
static void unpin(struct client_copies *copies)
{
	if (copies->is_unpinned || has_begun(copies))
		return;
	client_unpin(copies->reef, copies->cohort);
	copies->is_unpinned = true;
}

void copies_pin_again(struct client_copies *copies)
{
	if (!copies->is_unpinned)
		return;
	copies->cohort = client_pin(copies->reef);
	copies->is_unpinned = false;
	for (uint32_t i = copies->from; i < copies->to; i++)
		if (copies->accesses[i].kind == REEF_FAA)
			item_of(copies, i)->is_compared = false;
}

/* Have the keeper make an extent usable; gone: as of that route it is not. */
static void ask(struct client_copies *copies, uint32_t i, uint32_t extent,
		const struct route *gone)
{
	copies->asked = extent;
	copies->asked_for = i;
	copies->state = ASKING;
	unpin(copies);
	client_call_begin_touch(
		copies->call, copies->reef, extent, gone ? gone->node : 0,
		gone ? gone->link_number : 0, gone ? gone->number : 0);
}

void copies_await_row(struct client_copies *copies, uint32_t i,
		      const struct route *gone)
{
	uint64_t now_ns = reef_now_ns();

	if (!copies->until_ns)
		copies->until_ns =
			now_ns + client_patience_ns(copies->reef->client);
	if (now_ns >= copies->until_ns)
		copies_fail(copies, i, -REEF_ENOLINK);
	else
		ask(copies, i, extent_of(&copies->accesses[i]), gone);
}

static int check_entry(const struct reef_access *access,
		       const struct client_entry *entry)
{
	uint64_t offset = (uint32_t)access->address;
	uint64_t length = access->kind == REEF_CAS || access->kind == REEF_FAA
				  ? 8
				  : access->length;
	uint8_t rights = entry->twin ? entry->copied_rights : entry->rights;

	if (offset > entry->size || length > entry->size - offset)
		return -EFAULT;
	return rights & (access->kind == REEF_READ || access->kind == REEF_FLUSH
				 ? REEF_RIGHT_READ
				 : REEF_RIGHT_WRITE)
		       ? 0
		       : -EACCES;
}

/* Remember where the twin of an entry is in place, for copies_near.c. */
static void pair_in_place(struct reef *reef, uint32_t extent,
			  const struct client_entry *twin)
{
	uint32_t index = extent % CLIENT_CACHE;

	/* The twin's entry may have taken its place, or be of a newer view. */
	if (reef->cache[index].extent == extent && twin->queue == reef->near &&
	    reef->cache[index].twin == twin->extent)
		reef->twins[index] = twin->remote;
}

/* Look up where an access goes; inside. 0: it is known, or the access has
 * failed.  -EAGAIN: the keeper was asked. */
static int find_route(struct client_copies *copies, uint32_t i)
{
	const struct reef_access *access = &copies->accesses[i];
	struct route route = {0};
	struct client_entry *entry;
	int rc = client_entry_find(copies->reef, extent_of(access), &entry);

	if (rc == -EAGAIN) {
		ask(copies, i, extent_of(access), NULL);
		return rc;
	}
	if (!rc)
		rc = check_entry(access, entry);
	if (rc) {
		copies_fail(copies, i, rc);
		return 0;
	}
	route.node = entry->node;
	route.link_number = entry->link_number;
	route.number = entry->number;
	route.copy = entry->copy;
	route.twin = entry->twin;
	if (route.twin) {
		rc = client_entry_find(copies->reef, route.twin, &entry);
		route.twin_copy = rc ? 0 : entry->copy;
		route.twin_number = rc ? 0 : entry->number;
		if (!rc)
			pair_in_place(copies->reef, extent_of(access), entry);
	}
	if (rc == -EAGAIN) {
		ask(copies, i, route.twin, NULL);
	} else if (rc) {
		copies_await_row(copies, i, &route);
		rc = copies->state == ASKING ? -EAGAIN : 0;
	} else {
		change_route(item_of(copies, i), &route);
		copies_note_written(copies, i, 0);
	}
	return rc;
}

int copies_find_routes(struct client_copies *copies)
{
	uint64_t version = copies->version;
	uint32_t phase, i;
	int rc = 0;

	if (version && version == copies->reef->seen)
		return 0; /* as the parts find out, if it is not current */
	version = 0;
	phase = client_enter(copies->reef);
	for (i = copies->from; i < copies->to && !rc; i++) {
		if (!is_pending(copies, i))
			continue;
		rc = find_route(copies, i);
		if (!rc && version && version != copies->reef->seen)
			i = copies->from - 1; /* another view: once more */
		version = copies->reef->seen;
	}
	client_leave(copies->reef, phase);
	copies->version = rc ? 0 : version;
	return rc;
}
