/* copies.c - see copies.h; where the copies are: copies_routes.c. A CAS goes
 *
 *                    arbiter matched           done at the primary
 *   UNDECIDED --C1--> WON ---------------C2--> DONE: 0, result == compare
 *    ^  ^  |          another value there
 *    |  |  +--------> LOST --------------C2--> DONE: 0, what the primary has
 *    |  |  |          in doubt, or it had won elsewhere: not compare (5, 7)
 *    |  |  +--------> COVERED -----------C2--> DONE: -REEF_EINDOUBT
 *    |  |  |          it had won here before the row changed: (7)
 *    |  |  +---------------------------------> DONE: 0
 *    |  +--- in doubt; the row has changed
 *    +------ LOST, of an FAA: with what the primary has
 *
 * The engine looks at all accesses of a list anew before each phase: whatever
 * is to be done at one comes before whatever is to be done at a later one.
 *
 *   PREPARE --parts posted--> POSTED --ended--> PREPARE
 *      |  ^                                       |
 *      |  +-- answered -- ASKING <-- place unknown, or a copy is gone
 *      +-- nothing is left --> ENDED */
#include "pool/client/handle/copies.h"

#include "base/mutant.h"
#include "pool/client/handle/call.h"
#include "pool/client/handle/copies_list.h"
#include "pool/client/handle/space.h"

#include <stdlib.h>
#include <string.h>

#define LIST_MAX 64u /* accesses in a list; a longer one is several */
#define LIST_FEW 1u  /* of the small ones, of which there may be thousands */
#define ATTEMPTS 64u /* of a list; each needs another lost link or row */
#define ADDS 65535u  /* of an FAA; each lost to another client */

/* --- storage --- */

static struct client_copies *copies_create(uint32_t room)
{
	uint32_t parts = 2 * room + 2;
	size_t size = sizeof(struct client_copies);
	struct client_copies *copies;

	size += room * sizeof(struct item);
	size += parts * (sizeof(struct reef_access) + sizeof(struct owner));
	copies = malloc(size);
	if (!copies)
		return NULL;
	copies->room = room;
	copies->items = (struct item *)(copies + 1);
	copies->parts = (struct reef_access *)(copies->items + room);
	copies->owners = (struct owner *)(copies->parts + parts);
	return copies;
}

struct client_copies *client_copies_begin(struct reef *reef,
					  struct reef_access *accesses,
					  uint32_t count, int pending,
					  const uint64_t *header)
{
	bool many = count > LIST_FEW;
	struct client_copies *copies = reef->copies_free[many];
	/* A list of one has no more than a window of the smallest calls. */
	struct client_call *call = client_call_take(reef, many ? 256 : 1);

	if (!call)
		return NULL;
	if (copies)
		reef->copies_free[many] = copies->next;
	else
		copies = copies_create(many ? LIST_MAX : LIST_FEW);
	if (!copies) {
		client_call_give(reef, call);
		return NULL;
	}
	memset(copies, 0, offsetof(struct client_copies, room));
	copies->reef = reef;
	copies->call = call;
	copies->accesses = accesses;
	copies->count = count;
	copies->pending = pending;
	copies->header = header;
	copies->cohort = client_pin(reef);
	return copies;
}

void client_copies_end(struct client_copies *copies)
{
	struct reef *reef = copies->reef;
	bool many = copies->room > LIST_FEW;

	if (!copies->is_unpinned)
		client_unpin(reef, copies->cohort);
	client_call_give(reef, copies->call);
	copies->next = reef->copies_free[many];
	reef->copies_free[many] = copies;
}

void client_copies_free(struct client_copies *copies)
{
	struct client_copies *next;

	for (; copies; copies = next) {
		next = copies->next;
		free(copies);
	}
}

/* --- accesses --- */

/* True if it changes a word by CAS. */
static bool is_change(const struct reef_access *access)
{
	return access->kind == REEF_CAS ||
	       (access->kind == REEF_FAA && !(access->flags & REEF_BLIND));
}

void copies_finish(struct client_copies *copies, uint32_t i, int status)
{
	copies->accesses[i].status = status;
	copies->has_failed |= status != 0;
}

static void finish_change(struct client_copies *copies, uint32_t i,
			  uint64_t result, int status)
{
	copies->accesses[i].result = result;
	copies_finish(copies, i, status);
}

void copies_fail(struct client_copies *copies, uint32_t i, int rc)
{
	const struct item *item = item_of(copies, i);
	bool is_over = rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD ||
		       rc == -REEF_ELOST;

	if (!is_over && (item->written || item->is_doubted || item->has_won ||
			 item->fate == WON || item->fate == COVERED))
		rc = -REEF_EINDOUBT;
	copies_finish(copies, i, rc);
}

/* Every access that is at this extent fails. */
static void fail_extent(struct client_copies *copies, uint32_t extent, int rc)
{
	for (uint32_t i = copies->from; i < copies->to; i++)
		if (is_pending(copies, i) &&
		    (extent_of(&copies->accesses[i]) == extent ||
		     item_of(copies, i)->route.twin == extent))
			copies_fail(copies, i, rc);
}

/* Nothing more is begun after a failure: what was not begun is not done. */
static void drop_undecided(struct client_copies *copies)
{
	const struct item *item;

	for (uint32_t i = copies->from; i < copies->to; i++) {
		item = item_of(copies, i);
		if (!is_pending(copies, i) || item->fate)
			continue;
		if (item->written || item->is_doubted || item->has_won)
			copies_finish(copies, i, -REEF_EINDOUBT);
		else
			copies->accesses[i].status = -REEF_ENOTDONE;
	}
}

/* How many accesses from there on are one list: up to one that is ordered. */
static uint32_t list_end(const struct client_copies *copies, uint32_t from)
{
	uint32_t to = from + 1;

	while (to < copies->count && to - from < copies->room &&
	       !(copies->accesses[to].flags & REEF_ORDERED))
		to++;
	return to;
}

static void begin_list(struct client_copies *copies)
{
	copies->from = copies->to;
	if (copies->from == copies->count)
		return;
	copies->to = list_end(copies, copies->from);
	copies->version = 0;
	copies->attempts = 0;
	memset(copies->items, 0,
	       (copies->to - copies->from) * sizeof(struct item));
	for (uint32_t i = copies->from; i < copies->to; i++)
		if (copies->accesses[i].kind == REEF_CAS) {
			item_of(copies, i)->compare =
				copies->accesses[i].compare;
			item_of(copies, i)->operand =
				copies->accesses[i].operand;
			item_of(copies, i)->is_compared = true;
		}
}

/* --- parts --- */

static uint64_t address_at(struct client_copies *copies, uint32_t i, uint8_t at)
{
	const struct route *route = &item_of(copies, i)->route;
	uint64_t address = copies->accesses[i].address;

	if (at == AT_PRIMARY || !route->twin)
		return address;
	return (uint64_t)route->twin << 32 | (uint32_t)address;
}

static void add_part(struct client_copies *copies, uint32_t i, uint8_t at,
		     struct reef_access part)
{
	part.flags = 0;
	part.address = address_at(copies, i, at);
	copies->owners[copies->parts_count] = (struct owner){i, at, false};
	copies->parts[copies->parts_count++] = part;
}

/* READ the word at the primary, for ourselves. */
static void add_look(struct client_copies *copies, uint32_t i)
{
	add_part(copies, i, AT_PRIMARY,
		 (struct reef_access){
			 .kind = REEF_READ,
			 .length = 8,
			 .local = &item_of(copies, i)->told,
		 });
	copies->owners[copies->parts_count - 1].is_look = true;
}

/* A WRITE at one copy, with the header that goes in front of it. */
static void add_write(struct client_copies *copies, uint32_t i, uint8_t at)
{
	struct reef_access part = copies->accesses[i];

	if (copies->header && !i && (uint32_t)part.address >= 8) {
		add_part(copies, i, at,
			 (struct reef_access){
				 .kind = REEF_WRITE,
				 .length = 8,
				 .local = (void *)copies->header,
			 });
		copies->parts[copies->parts_count - 1].address -= 8;
		copies->owners[copies->parts_count - 1].is_look = true;
	}
	add_part(copies, i, at, part);
}

static void add_writes(struct client_copies *copies)
{
	const struct item *item;

	for (uint32_t i = copies->from; i < copies->to; i++) {
		item = item_of(copies, i);
		if (!is_pending(copies, i) ||
		    copies->accesses[i].kind == REEF_READ)
			continue;
		if (is_change(&copies->accesses[i])) {
			if (!item->is_compared && item->route.twin)
				add_look(copies, i);
			continue;
		}
		if (!(item->written & AT_PRIMARY))
			add_write(copies, i, AT_PRIMARY);
		if (!(item->written & AT_ARBITER) && item->route.twin &&
		    !REEF_MUTATED(COPIES_WRITE_ONE))
			add_write(copies, i, AT_ARBITER);
	}
}

/* Where the arbiter of a CAS is: the twin, or what a mutant takes for it. */
static uint8_t arbiter_of(const struct item *item)
{
	if (REEF_MUTATED(COPIES_PRIMARY_FIRST) ||
	    (REEF_MUTATED(COPIES_SETTLE_PRIMARY) && item->is_doubted))
		return AT_PRIMARY;
	return AT_ARBITER;
}

static void add_undecided(struct client_copies *copies)
{
	struct reef_access part;
	const struct item *item;

	for (uint32_t i = copies->from; i < copies->to; i++) {
		item = item_of(copies, i);
		part = copies->accesses[i];
		if (!is_pending(copies, i) || !is_change(&part) || item->fate)
			continue;
		if (item->is_compared) {
			part.kind = REEF_CAS;
			part.compare = item->compare;
			part.operand = item->operand;
		}
		add_part(copies, i, arbiter_of(item), part);
	}
}

/* What is to be done of a CAS at the primary, once it is decided. */
static void add_decided(struct client_copies *copies, uint32_t i)
{
	const struct item *item = item_of(copies, i);
	struct reef_access part = copies->accesses[i];

	part.kind = REEF_CAS;
	part.compare = item->compare;
	part.operand = item->fate == WON ? item->operand : item->found;
	if (item->fate == WON || !REEF_MUTATED(COPIES_NO_HELP))
		add_part(copies, i,
			 REEF_MUTATED(COPIES_PRIMARY_FIRST) ? AT_ARBITER
							    : AT_PRIMARY,
			 part);
	if (item->fate != WON)
		add_look(copies, i);
}

static void add_last(struct client_copies *copies)
{
	for (uint32_t i = copies->from; i < copies->to; i++) {
		if (!is_pending(copies, i))
			continue;
		if (copies->accesses[i].kind == REEF_READ)
			add_part(copies, i, AT_PRIMARY, copies->accesses[i]);
		else if (is_change(&copies->accesses[i]) &&
			 item_of(copies, i)->fate)
			add_decided(copies, i);
	}
}

static bool has_changes(const struct client_copies *copies)
{
	for (uint32_t i = copies->from; i < copies->to; i++)
		if (is_pending(copies, i) && is_change(&copies->accesses[i]))
			return true;
	return false;
}

/* Choose the next phase's parts. */
static void add_parts(struct client_copies *copies)
{
	copies->parts_count = 0;
	if (!copies->has_failed) {
		add_writes(copies);
		if (REEF_MUTATED(COPIES_ONE_PHASE) && copies->parts_count &&
		    !copies->owners[0].is_look)
			add_undecided(copies);
		if (!has_changes(copies))
			add_last(copies);
		if (!copies->parts_count)
			add_undecided(copies);
	}
	if (!copies->parts_count)
		add_last(copies);
}

/* --- what came of a part --- */

/* True if a copy is not there any more. */
static bool is_gone(int status)
{
	return status == -REEF_ELOST || status == -EFAULT;
}

static void note_gone(struct client_copies *copies, uint32_t i)
{
	if (!copies->gone_for)
		copies->gone_for = i + 1;
}

/* True if we have won at the memory that arbitrates now. */
static bool has_won_here(const struct item *item)
{
	return item->has_won && item->won_at == arbiter_copy(&item->route);
}

/* True if our operand, found where it was in doubt or had won elsewhere, is
 * taken for our own doing. It may be another's, who added the same, or deleted
 * the same: (5). */
static bool is_mistaken(struct client_copies *copies, uint32_t i)
{
	const struct item *item = item_of(copies, i);

	return (item->is_doubted || item->has_won) &&
	       (copies->accesses[i].kind == REEF_FAA
			? REEF_MUTATED(COPIES_ADD_TWICE)
			: REEF_MUTATED(COPIES_WIN_TWICE));
}

/* The arbiter has decided a CAS, as this was what it had before. */
static void decide(struct client_copies *copies, uint32_t i, uint64_t before)
{
	struct item *item = item_of(copies, i);

	item->found = before;
	if (before == item->compare ||
	    (before == item->operand &&
	     (has_won_here(item) || is_mistaken(copies, i))))
		item->fate = WON;
	else if (has_won_here(item)) /* others have followed: (7) */
		finish_change(copies, i, item->compare, 0);
	else
		item->fate = item->is_doubted || item->has_won ? COVERED : LOST;
}

/* An FAA has lost: the next attempt, from what the primary has. */
static void compare_anew(struct client_copies *copies, uint32_t i)
{
	struct item *item = item_of(copies, i);

	if (item->adds++ == ADDS) {
		copies_finish(copies, i, -EBUSY);
		return;
	}
	item->fate = UNDECIDED;
	item->is_doubted = false;
	item->is_compared = true;
	item->compare = item->told;
	item->operand = item->told + copies->accesses[i].operand;
}

/* A CAS is done at the primary; of who lost, the word was READ. */
static void settle(struct client_copies *copies, uint32_t i)
{
	struct item *item = item_of(copies, i);

	if (item->fate == WON)
		finish_change(copies, i, item->compare, 0);
	else if (item->fate == COVERED)
		copies_finish(copies, i, -REEF_EINDOUBT);
	else if (copies->accesses[i].kind == REEF_FAA)
		compare_anew(copies, i);
	else if (item->told == item->compare && !REEF_MUTATED(COPIES_NO_HELP))
		item->fate = UNDECIDED; /* it has only become that */
	else
		finish_change(copies, i, item->told, 0);
}

/* The copy that is alone has decided: that is all. */
static void settle_alone(struct client_copies *copies, uint32_t i)
{
	struct item *item = item_of(copies, i);

	item->told = item->found;
	if (item->fate)
		settle(copies, i);
}

static void note_decided(struct client_copies *copies, uint32_t i, int status,
			 uint64_t result)
{
	struct item *item = item_of(copies, i);

	if (!status) {
		decide(copies, i, result);
		if (!item->route.twin && is_pending(copies, i))
			settle_alone(copies, i);
		return;
	}
	if (status == -REEF_EINDOUBT || is_gone(status))
		item->is_doubted = true; /* (5) */
	if (is_gone(status))
		note_gone(copies, i);
	else if (status != -REEF_EINDOUBT)
		copies_fail(copies, i, status);
}

/* Take in a part that was done, or why it was not. */
static void note_part(struct client_copies *copies, uint32_t at)
{
	const struct owner *owner = &copies->owners[at];
	const struct reef_access *part = &copies->parts[at];
	uint32_t i = owner->item;
	struct item *item = item_of(copies, i);
	int status = part->status;

	if (!is_pending(copies, i) || status == -REEF_ENOTDONE ||
	    status == -ESTALE)
		return;
	if (part->kind == REEF_FAA && !status &&
	    is_change(&copies->accesses[i])) {
		finish_change(copies, i, part->result, 0); /* alone */
		return;
	}
	if (is_change(&copies->accesses[i]) && part->kind != REEF_FAA) {
		if (part->kind == REEF_CAS && !item->fate) {
			note_decided(copies, i, status, part->result);
			return;
		}
		/* To repeat it at the primary does no harm: it compares with a
		 * value that does not come back. */
		if (status == -REEF_EINDOUBT)
			return;
		if (!status && owner->is_look && !item->fate)
			compare_anew(copies, i);
		else if (!status && (owner->is_look || item->fate == WON))
			settle(copies, i);
	} else if (!status && copies->accesses[i].kind == REEF_READ) {
		copies_finish(copies, i, 0);
	} else if (!status && !owner->is_look) {
		if (owner->at == AT_PRIMARY)
			copies->accesses[i].result = part->result;
		copies_note_written(copies, i, owner->at);
	}
	if (is_gone(status))
		note_gone(copies, i);
	else if (status)
		copies_fail(copies, i, status);
}

/* True if the parts of one access that come before this one were done. */
static bool is_after_done(const struct client_copies *copies, uint32_t at)
{
	uint32_t item = copies->owners[at].item;

	while (at && copies->owners[at - 1].item == item &&
	       copies->owners[at - 1].at == copies->owners[at].at)
		if (copies->parts[--at].status)
			return false;
	return true;
}

/* Mutant COPIES_TELL_PENDING: a loser is told what the arbiter has. */
static void tell_pending(struct client_copies *copies)
{
	for (uint32_t i = copies->from; i < copies->to; i++)
		if (is_pending(copies, i) && item_of(copies, i)->fate == LOST)
			finish_change(copies, i, item_of(copies, i)->found, 0);
}

static void note_parts(struct client_copies *copies)
{
	bool is_whole = true;

	for (uint32_t at = 0; at < copies->parts_count; at++) {
		is_whole &= !copies->parts[at].status;
		if (copies->parts[at].status || is_after_done(copies, at))
			note_part(copies, at);
	}
	copies->attempts += !is_whole;
	if (!is_whole)
		copies->version = 0;
	if (REEF_MUTATED(COPIES_TELL_PENDING))
		tell_pending(copies);
	copies->state = PREPARE;
}

/* The keeper has answered: the extent is usable, or why it is not. */
static void note_answer(struct client_copies *copies)
{
	uint32_t i = copies->asked_for;
	int rc = client_call_touched(copies->call);

	copies->state = PREPARE;
	copies->version = 0;
	copies_pin_again(copies);
	if (!rc)
		return;
	if (copies->asked != extent_of(&copies->accesses[i]) && is_gone(rc))
		note_gone(copies, i);
	else
		fail_extent(copies, copies->asked, rc);
	if (!is_gone(rc) && is_pending(copies, i))
		copies_fail(copies, i, rc);
}

/* --- the engine --- */

static void prepare(struct client_copies *copies)
{
	uint32_t gone_for = copies->gone_for;

	copies->gone_for = 0;
	if (gone_for && is_pending(copies, gone_for - 1)) {
		copies_await_row(copies, gone_for - 1,
				 &item_of(copies, gone_for - 1)->route);
		return;
	}
	if (copies->attempts > ATTEMPTS)
		copies->has_failed = true;
	if (copies->has_failed)
		drop_undecided(copies);
	if (copies_find_routes(copies) || copies->state != PREPARE)
		return;
	add_parts(copies);
	if (copies->parts_count) {
		client_call_begin_parts(copies->call, copies->reef,
					copies->parts, copies->parts_count,
					copies->version);
		copies->state = POSTED;
		return;
	}
	if (copies->has_failed) {
		copies->state = ENDED;
		return;
	}
	begin_list(copies);
	if (copies->from == copies->count)
		copies->state = ENDED;
}

bool client_copies_step(struct client_copies *copies)
{
	for (;;) {
		switch (copies->state) {
		case PREPARE:
			prepare(copies);
			break;
		case ASKING:
			if (!client_call_step(copies->call))
				return false;
			note_answer(copies);
			break;
		case POSTED:
			if (!client_call_step(copies->call))
				return false;
			note_parts(copies);
			break;
		case ENDED:
			return true;
		}
	}
}

int client_copies_wait(struct client_copies *copies)
{
	return client_call_wait(copies->call);
}

bool client_copies_is_ready(const struct client_copies *copies)
{
	return client_call_is_ready(copies->call);
}
