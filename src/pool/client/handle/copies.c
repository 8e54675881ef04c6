/* copies.c - see copies.h. A CAS goes
 *
 *                    arbiter matched           done at the primary
 *   UNDECIDED --C1--> WON ---------------C2--> 0, result == compare
 *       |             another value there
 *       +-----------> LOST --------------C2--> 0, result: what the primary has
 *       |             in doubt, and there is neither compare nor operand
 *       +-----------> COVERED -----------C2--> -REEF_EINDOUBT
 *       |             the arbiter cannot be reached
 *       +-----------> its error */
#include "pool/client/handle/copies.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdbool.h>

#define ATTEMPTS 64 /* each further one needs another lost link */

enum fate { UNDECIDED, WON, LOST, COVERED, FAILED };

struct work {
	const struct client_copies *copies;
	struct reef_access *accesses;
	uint32_t count;
	uint8_t fates[CLIENT_COPIES_MAX];  /* of CASes */
	uint64_t found[CLIENT_COPIES_MAX]; /* what the arbiter has */
	uint64_t told[CLIENT_COPIES_MAX];  /* what the primary has */
	struct reef_access parts[3 * CLIENT_COPIES_MAX];
	uint32_t owners[3 * CLIENT_COPIES_MAX]; /* whose part it is */
	uint32_t parts_count;
};

static uint64_t primary_at(const struct work *work, uint64_t address)
{
	const struct client_copies *copies = work->copies;

	return REEF_MUTATED(COPIES_PRIMARY_FIRST)
		       ? copies->arbiter_of(copies->context, address)
		       : address;
}

static uint64_t arbiter_at(const struct work *work, uint64_t address)
{
	const struct client_copies *copies = work->copies;

	return REEF_MUTATED(COPIES_PRIMARY_FIRST)
		       ? address
		       : copies->arbiter_of(copies->context, address);
}

static void add_part(struct work *work, uint32_t owner, struct reef_access part)
{
	part.flags = 0;
	work->owners[work->parts_count] = owner;
	work->parts[work->parts_count++] = part;
}

static int run_parts(struct work *work)
{
	return work->parts_count ? reef_execute(work->copies->reef, work->parts,
						work->parts_count)
				 : 0;
}

/* --- W --- */

static void add_write(struct work *work, uint32_t i)
{
	struct reef_access part = work->accesses[i];

	add_part(work, i, part);
	part.address =
		work->copies->arbiter_of(work->copies->context, part.address);
	if (!REEF_MUTATED(COPIES_WRITE_ONE))
		add_part(work, i, part);
}

/* Of the two parts of a WRITE the worse counts: what may have happened anywhere
 * is in doubt, what happened at one copy alone, too. */
static void note_write(struct reef_access *access, int status, bool is_first)
{
	int other = access->status;

	access->status = status;
	if (is_first || status == other)
		return;
	if (status == 0 || other == 0)
		access->status = -REEF_EINDOUBT;
	else if (other != -REEF_ENOTDONE && status == -REEF_ENOTDONE)
		access->status = other;
}

/* Do every WRITE at both copies; plain: and every READ, in one batch. */
static int write_all(struct work *work, bool plain)
{
	struct reef_access *access;
	uint32_t i;
	int rc;

	work->parts_count = 0;
	for (i = 0; i < work->count; i++) {
		if (work->accesses[i].kind == REEF_WRITE)
			add_write(work, i);
		else if (plain)
			add_part(work, i, work->accesses[i]);
	}
	rc = run_parts(work);
	for (i = 0; i < work->parts_count; i++) {
		access = &work->accesses[work->owners[i]];
		note_write(access, work->parts[i].status,
			   !i || work->owners[i - 1] != work->owners[i]);
	}
	return rc;
}

/* --- C1 --- */

/* Find out about a CAS in doubt: (5). */
static int settle_at_arbiter(struct work *work, uint32_t i)
{
	const struct reef_access *access = &work->accesses[i];
	uint64_t at = arbiter_at(work, access->address);
	int rc;

	if (REEF_MUTATED(COPIES_SETTLE_PRIMARY))
		at = access->address;
	rc = reef_read(work->copies->reef, at, &work->found[i], 8);
	if (rc)
		return rc;
	if (work->found[i] == access->operand)
		work->fates[i] = WON;
	else if (work->found[i] != access->compare)
		work->fates[i] = COVERED;
	return 0;
}

static void note_decision(struct work *work, const struct reef_access *part,
			  uint32_t i)
{
	struct reef_access *access = &work->accesses[i];
	int rc = part->status;

	if (rc == 0) {
		work->found[i] = part->result;
		work->fates[i] = part->result == access->compare ? WON : LOST;
		return;
	}
	if (rc == -REEF_EINDOUBT)
		rc = settle_at_arbiter(work, i);
	if (rc && rc != -REEF_ENOTDONE) {
		access->status = rc;
		work->fates[i] = FAILED;
	}
}

/* Put every CAS that is not decided into a batch for the arbiter. */
static void add_undecided(struct work *work, bool is_first)
{
	struct reef_access part;
	uint32_t i;

	work->parts_count = 0;
	for (i = 0; i < work->count; i++) {
		part = work->accesses[i];
		if (part.kind == REEF_WRITE && is_first &&
		    REEF_MUTATED(COPIES_ONE_PHASE))
			add_write(work, i);
		if (part.kind != REEF_CAS || work->fates[i])
			continue;
		part.address = arbiter_at(work, part.address);
		add_part(work, i, part);
	}
}

/* Let the arbiter decide every CAS. Returns the first error; -EBUSY: a link was
 * lost at each attempt, and nothing of the rest happened. */
static int arbitrate(struct work *work)
{
	uint32_t i, attempt, owner;
	int rc = 0;

	for (attempt = 0; attempt < ATTEMPTS && !rc; attempt++) {
		add_undecided(work, attempt == 0);
		if (!work->parts_count)
			return 0;
		run_parts(work);
		for (i = 0; i < work->parts_count; i++) {
			owner = work->owners[i];
			if (work->parts[i].kind != REEF_CAS)
				continue;
			note_decision(work, &work->parts[i], owner);
			if (!rc && work->fates[owner] == FAILED)
				rc = work->accesses[owner].status;
		}
	}
	return rc ? rc : -EBUSY;
}

/* --- C2 --- */

static void add_cas_at_primary(struct work *work, uint32_t i)
{
	struct reef_access part = work->accesses[i];

	part.address = primary_at(work, part.address);
	if (work->fates[i] != WON)
		part.operand = work->found[i];
	if (work->fates[i] == WON || !REEF_MUTATED(COPIES_NO_HELP))
		add_part(work, i, part);
	if (work->fates[i] == WON)
		return;
	add_part(work, i,
		 (struct reef_access){
			 .kind = REEF_READ,
			 .length = 8,
			 .address = work->accesses[i].address,
			 .local = &work->told[i],
		 });
}

/* True if something of that access is still to be done at the primary. */
static bool is_pending(const struct work *work, uint32_t i)
{
	const struct reef_access *access = &work->accesses[i];

	if (access->kind == REEF_CAS)
		return access->status == -REEF_ENOTDONE &&
		       (work->fates[i] == WON || work->fates[i] == LOST ||
			work->fates[i] == COVERED);
	return access->kind == REEF_READ && access->status == -REEF_ENOTDONE;
}

/* Take in how an access went at the primary. To repeat its CAS does no harm: it
 * compares with a value that does not come back. */
static void note_done(struct work *work, uint32_t i, int status)
{
	struct reef_access *access = &work->accesses[i];

	if (status == -REEF_ENOTDONE ||
	    (status == -REEF_EINDOUBT && access->kind == REEF_CAS))
		return;
	if (access->kind == REEF_READ) {
		access->status = status;
		return;
	}
	access->result =
		work->fates[i] == WON ? access->compare : work->told[i];
	access->status =
		status || work->fates[i] == COVERED ? -REEF_EINDOUBT : 0;
	/* A loser that could not look has changed nothing of its own; and of a
	 * session that has ended nothing is in doubt to itself. */
	if (status && (work->fates[i] == LOST || status == -REEF_EFENCED ||
		       status == -REEF_EHOSTDEAD))
		access->status = status;
}

static int finish_at_primary(struct work *work)
{
	uint32_t i, attempt, last;
	int rc = 0;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		work->parts_count = 0;
		for (i = 0; i < work->count; i++) {
			if (!is_pending(work, i))
				continue;
			if (work->accesses[i].kind == REEF_CAS)
				add_cas_at_primary(work, i);
			else
				add_part(work, i, work->accesses[i]);
		}
		if (!work->parts_count)
			break;
		run_parts(work);
		/* The last part of an access that went wrong counts, or the
		 * last of all. */
		for (i = 0; i < work->parts_count; i = last + 1) {
			last = i;
			while (!work->parts[last].status &&
			       last + 1 < work->parts_count &&
			       work->owners[last + 1] == work->owners[i])
				last++;
			note_done(work, work->owners[i],
				  work->parts[last].status);
			while (last + 1 < work->parts_count &&
			       work->owners[last + 1] == work->owners[i])
				last++;
		}
	}
	for (i = 0; i < work->count; i++) {
		if (is_pending(work, i))
			work->accesses[i].status = -REEF_EINDOUBT;
		if (!rc && work->accesses[i].status != -REEF_ENOTDONE)
			rc = work->accesses[i].status;
	}
	return rc;
}

/* Mutant COPIES_TELL_PENDING: a loser is told what the arbiter has. */
static void tell_pending(struct work *work)
{
	for (uint32_t i = 0; i < work->count; i++) {
		if (work->accesses[i].kind != REEF_CAS ||
		    work->fates[i] != LOST)
			continue;
		work->accesses[i].result = work->found[i];
		work->accesses[i].status = 0;
	}
}

/* --- a list --- */

static int execute_list(struct work *work)
{
	bool has_cas = false;
	uint32_t i;
	int rc, late;

	for (i = 0; i < work->count; i++) {
		work->accesses[i].status = -REEF_ENOTDONE;
		work->fates[i] = UNDECIDED;
		has_cas |= work->accesses[i].kind == REEF_CAS;
	}
	if (!has_cas)
		return write_all(work, true);
	rc = REEF_MUTATED(COPIES_ONE_PHASE) ? 0 : write_all(work, false);
	if (rc)
		return rc;
	rc = arbitrate(work);
	if (REEF_MUTATED(COPIES_TELL_PENDING))
		tell_pending(work);
	late = finish_at_primary(work);
	return rc ? rc : late;
}

/* FAA: a loop of READ and CAS. */
static int add_to_word(struct work *work)
{
	struct reef_access *add = work->accesses;
	struct reef_access cas = {.kind = REEF_CAS, .address = add->address};
	uint32_t attempt;
	int rc = reef_read(work->copies->reef, add->address, &cas.compare, 8);

	work->accesses = &cas;
	for (attempt = 0; !rc && attempt < UINT16_MAX; attempt++) {
		cas.operand = cas.compare + add->operand;
		rc = execute_list(work);
		if (rc || cas.result == cas.compare)
			break;
		cas.compare = cas.result;
	}
	if (!rc && attempt == UINT16_MAX)
		rc = -EBUSY;
	work->accesses = add;
	add->result = cas.compare;
	add->status = rc;
	return rc;
}

/* How many accesses from there on are one list: up to one that is ordered; an
 * FAA is a list of its own. */
static uint32_t list_length(const struct reef_access *accesses, uint32_t count)
{
	uint32_t length = 1;

	if (accesses[0].kind == REEF_FAA)
		return 1;
	while (length < count && !(accesses[length].flags & REEF_ORDERED) &&
	       accesses[length].kind != REEF_FAA)
		length++;
	return length;
}

int client_copies_execute(const struct client_copies *copies,
			  struct reef_access *accesses, uint32_t count)
{
	struct work work = {.copies = copies};
	uint32_t from = 0;
	int rc = 0;

	if (count > CLIENT_COPIES_MAX)
		return -E2BIG;
	reef_enter(copies->reef);
	while (from < count && !rc) {
		work.accesses = accesses + from;
		work.count = list_length(work.accesses, count - from);
		from += work.count;
		rc = work.accesses[0].kind == REEF_FAA ? add_to_word(&work)
						       : execute_list(&work);
	}
	reef_leave(copies->reef);
	for (; from < count; from++)
		accesses[from].status = -REEF_ENOTDONE;
	return rc;
}
