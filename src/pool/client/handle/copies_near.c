/* copies_near.c - accesses to memory with two copies, both of which are in
 * place: copies.h, without posting.
 *
 * (1) They are done in turn, each to its end, so that whatever is before a CAS
 *     in the list is on both copies when the arbiter decides: copies.h (4).
 * (2) All is done in one stay (near.h), in which neither copy is taken away and
 *     the view stays what it is: so the row does not change between the
 *     arbiter and the primary, and nothing is ever in doubt. If the process
 *     ends between them, the next one through helps.
 * (3) Who stands still between them holds up whoever closes a copy, and pins
 *     its epoch, so that no value comes back (R9), until its node ends it. */
#include "pool/client/handle/copies.h"

#include "base/mutant.h"
#include "pool/client/handle/near.h"

#define ADDS 65535u /* of an FAA; each lost to another client */

/* Where an access is; twin: NULL where only the primary takes part. */
struct place {
	uint8_t *at, *twin;
};

struct work {
	struct reef *reef;
	bool dirty;		/* of reef_near_do */
	bool has_read, changes; /* some of it is a READ; is none */
};

/* Find the copies of an access; entered. False: they are not in place. */
static bool locate(struct work *work, const struct reef_access *access,
		   struct place *out)
{
	uint32_t number = (uint32_t)(access->address >> 32);
	uint32_t index = number % CLIENT_CACHE;
	uint32_t offset = (uint32_t)access->address;
	const struct client_entry *entry = &work->reef->cache[index];
	uint64_t length = client_near_length(access);
	bool writes = access->kind != REEF_READ;

	if (entry->extent != number || entry->queue != work->reef->near ||
	    !((entry->rights | entry->copied_rights) &
	      (writes ? REEF_RIGHT_WRITE : REEF_RIGHT_READ)))
		return false;
	out->at = reef_near_at(entry->remote, offset, length, writes);
	out->twin = NULL;
	if (!out->at)
		return false;
	reef_near_prefetch(out->at, length, writes);
	work->has_read |= !writes;
	work->changes |= writes;
	if (!entry->twin || !writes || access->flags & REEF_SINGLE)
		return true;
	if (!work->reef->twins[index])
		return false;
	out->twin =
		reef_near_at(work->reef->twins[index], offset, length, true);
	if (out->twin)
		reef_near_prefetch(out->twin, length, true);
	return out->twin;
}

static void do_one(struct work *work, const struct reef_access *access,
		   uint8_t kind, uint8_t *at, uint64_t *result)
{
	reef_near_do(kind, at, access->local, access->length, access->compare,
		     access->operand, result, &work->dirty);
	client_count_near(&work->reef->member.counters, kind, access->length);
}

static uint64_t cas_at(struct work *work, uint8_t *at, uint64_t compare,
		       uint64_t operand)
{
	const struct reef_access access = {
		.compare = compare,
		.operand = operand,
	};
	uint64_t before;

	do_one(work, &access, REEF_CAS, at, &before);
	return before;
}

/* CAS a word at the arbiter, then at the primary. Who loses helps, and is told
 * what the primary has: `compare` came from there, so that what it finds is
 * this, and then what the arbiter has follows, or a later value. */
static uint64_t cas_both(struct work *work, const struct place *place,
			 uint64_t compare, uint64_t operand)
{
	bool swaps = REEF_MUTATED(COPIES_PRIMARY_FIRST);
	uint8_t *arbiter = swaps ? place->at : place->twin;
	uint8_t *primary = swaps ? place->twin : place->at;
	uint64_t found = cas_at(work, arbiter, compare, operand), before;

	if (REEF_MUTATED(COPIES_TELL_PENDING) && found != compare)
		return found;
	if (REEF_MUTATED(COPIES_NO_HELP) && found != compare)
		return cas_at(work, primary, compare, compare);
	before = cas_at(work, primary, compare,
			found == compare ? operand : found);
	if (found == compare)
		return compare;
	return before == compare ? found : before;
}

/* Add to a word, from what the primary has. */
static int add_both(struct work *work, const struct place *place,
		    struct reef_access *access)
{
	const struct reef_access look = {.length = 8, .local = &access->result};

	for (uint32_t adds = 0; adds < ADDS; adds++) {
		do_one(work, &look, REEF_READ, place->at, NULL);
		if (cas_both(work, place, access->result,
			     access->result + access->operand) ==
		    access->result)
			return 0;
	}
	return -EBUSY;
}

static int do_access(struct work *work, const struct place *place,
		     struct reef_access *access)
{
	uint64_t unused;

	if (place->twin && access->kind == REEF_CAS) {
		access->result =
			cas_both(work, place, access->compare, access->operand);
		return 0;
	}
	if (place->twin && access->kind == REEF_FAA &&
	    !(access->flags & REEF_BLIND))
		return add_both(work, place, access);
	do_one(work, access, access->kind, place->at, &access->result);
	if (place->twin && !REEF_MUTATED(COPIES_WRITE_ONE))
		do_one(work, access, access->kind, place->twin, &unused);
	return 0;
}

/* Do what was located; what follows a failure is not done. */
static int do_accesses(struct work *work, const struct place *places,
		       struct reef_access *accesses, uint32_t count)
{
	uint32_t cohort = work->changes ? client_pin(work->reef) : 0;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++) {
		accesses[i].status =
			rc ? -REEF_ENOTDONE
			   : do_access(work, &places[i], &accesses[i]);
		rc = rc ? rc : accesses[i].status;
	}
	reef_near_end(work->dirty);
	if (work->changes)
		client_unpin(work->reef, cohort);
	return rc;
}

/* Write the header of a fresh block in front of its first data, which is
 * located: it is in the same extent. */
static bool write_header(struct work *work, const struct reef_access *access,
			 const uint64_t *header)
{
	struct reef_access part = {
		.kind = REEF_WRITE,
		.length = 8,
		.address = access->address - 8,
		.local = (void *)(uintptr_t)header,
	};
	struct place place;

	if (part.address & 7 || (uint32_t)access->address < 8 ||
	    !locate(work, &part, &place))
		return false;
	do_access(work, &place, &part);
	return true;
}

void client_copies_hint(struct reef *reef, uint64_t address, uint64_t length)
{
	const struct reef_access access = {
		.kind = REEF_WRITE,
		.address = address,
		.length = (uint32_t)length,
		.local = reef, /* anything */
	};
	struct work work = {.reef = reef};
	struct place place;

	(void)locate(&work, &access, &place);
}

bool client_copies_near(struct reef *reef, struct reef_access *accesses,
			uint32_t count, const uint64_t *header, int *rc)
{
	struct place places[CLIENT_NEAR_COUNT];
	struct work work = {.reef = reef};
	bool is_near = true;

	if (count - 1 >= CLIENT_NEAR_COUNT || !client_near_enter(reef))
		return false;
	for (uint32_t i = 0; i < count && is_near; i++)
		is_near = locate(&work, &accesses[i], &places[i]);
	if (is_near && header)
		is_near = write_header(&work, &accesses[0], header);
	if (is_near)
		*rc = do_accesses(&work, places, accesses, count);
	client_near_leave(reef);
	/* READs that do not count are repeated by call.c. */
	for (uint32_t i = 0; is_near && work.has_read && i < count; i++) {
		if (accesses[i].kind != REEF_READ || accesses[i].status ||
		    client_near_counts(reef))
			continue;
		accesses[i].status = client_execute_far(reef, &accesses[i], 1);
		*rc = *rc ? *rc : accesses[i].status;
	}
	return is_near;
}
