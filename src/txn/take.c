/* take.c - holding keys.
 *
 *   recalled, or found --{WRITE line; CAS slot; READ entry}--> held
 *        |--not there: a ghost is put, outside; again
 *        |--another transaction has it: its slot is looked at, by one READ at a
 *        |  time, until that is gone; after INTENT_LOOKS it is judged: who is
 *        |  younger, or too slow, is aborted; again
 *        |--frozen, or no slot is left: the split is done; again
 *        |--others of the transaction come first: again
 *        \--the CAS did not match: again, by the word that it found
 *
 * Who waits lets go first what the call holds: keys in hand would make all wait
 * who want them, and those in turn others. Nobody has seen what was read. Keys
 * of calls before stay; but who is run again by reef_txn_run gives all up
 * rather than wait for an older one with such keys.
 *
 * Whether an entry has expired is looked at when all are held: such a key is
 * not there, and is deleted by the commit, so that nobody's clock finds it
 * again. */
#include "base/checksum.h"
#include "base/clock.h"
#include "base/mutant.h"
#include "index/entry/word.h"
#include "pool/client/handle/near.h"
#include "txn/internal.h"

#include <stdlib.h>
#include <string.h>

#define ROUNDS_MAX 100000u
#define PAUSE_NS 2000u
#define LOOKS_HOLDING 4u
#define PAUSE_SHIFT_MAX 6u

struct taking {
	struct reef_txn *txn;
	struct item **items;
	uint32_t count;
	bool holds_others; /* keys of calls before this one */
	bool must_wait;	   /* for another transaction, outside */
	bool has_split;	   /* which may have cost our own status */
	bool has_passed;   /* another's key is free now */
	bool has_absent;   /* a key has no slot, and gets a ghost */
	uint32_t waits;	   /* so often */
	/* Of a round: lines as they are written, and all accesses. */
	struct intent_line *lines;
	struct reef_access *accesses;
	uint32_t ready, writes;
	bool apart; /* a slot is in another extent than its line */
	bool has_head;
};

/* --- which are ready --- */

/* Who holds keys of calls before does not look for long. */
static uint32_t looks_done(const struct taking *taking)
{
	return taking->holds_others ? INTENT_LOOKS - LOOKS_HOLDING : 0;
}

/* Note what the slot of an item was seen to be: it can be taken, is looked at
 * again, or has to be found. */
static void meet(struct item *item, uint64_t word)
{
	int rc = word ? item->hold->index->recall(item->hold, word) : 0;

	item->is_blocked = rc == -EALREADY && item->wait.looks < INTENT_LOOKS;
	item->met = rc == 1 || item->is_blocked ? word : 0;
}

/* Come past another transaction, with what that said: it is waited for outside,
 * or the key is found again. */
static int wait_for(struct taking *taking, struct item *item, int passed)
{
	taking->must_wait |= passed == -EINPROGRESS;
	return passed == -EINPROGRESS || passed == -EAGAIN ? 0 : passed;
}

static int split(struct taking *taking, struct item *item)
{
	struct reef_txn *txn = taking->txn;
	struct hold **all;
	int rc;

	all = malloc(txn->items_count * sizeof(struct hold *));
	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < txn->items_count; i++)
		all[i] = txn->items[i]->hold;
	rc = item->hold->index->split(item->hold, all, txn->items_count,
				      &item->wait);
	free(all);
	item->wait.looks += rc == -EINPROGRESS;
	taking->has_split |= !rc;
	return wait_for(taking, item, rc);
}

/* Lose, to be run again: the wait goes on in the next attempt. */
static int yield_to(struct reef_txn *txn, const struct item *item)
{
	txn->has_yielded = true;
	txn->yielded_to = item->wait;
	return -ECANCELED;
}

static int judge_found(struct taking *taking, struct item *item)
{
	struct hold *hold = item->hold;
	struct reef_txn *txn = taking->txn;
	int rc = hold->status;

	taking->has_absent |= rc == -ENOENT;
	if (rc == -ENOENT || rc == -EAGAIN)
		return 0; /* a ghost comes first, or another */
	item->wait.main = txn_status_at(txn);
	if (rc == -EALREADY) {
		rc = hold->index->pass(hold, &item->wait);
		taking->has_passed |= rc == -EAGAIN;
		/* Who is not due yet is looked at, from here on; but not with
		 * keys of other calls in hand, if it can begin anew. */
		if (rc == -EINPROGRESS) {
			if (taking->holds_others && txn->may_yield &&
			    item->wait.looks >= INTENT_LOOKS)
				return yield_to(txn, item);
			item->wait.looks = looks_done(taking);
			meet(item, hold->slot);
		}
		return wait_for(taking, item, rc);
	}
	if (rc)
		return rc;
	if (hold->index->is_frozen(hold))
		return split(taking, item);
	item->is_ready = true;
	return 0;
}

/* Look up keys of one structure, from items[from] on; returns how many. */
static int find_some(struct taking *taking, uint32_t from, uint32_t *some)
{
	struct hold *holds[64];
	struct item *items[64];
	uint32_t i, count = 0;
	int rc;

	for (i = from; i < taking->count && count < 64; i++) {
		struct item *item = taking->items[i];

		if (item->is_known || item->is_ready || item->is_blocked)
			continue;
		if (count && item->hold->structure != holds[0]->structure)
			break;
		items[count] = item;
		holds[count++] = item->hold;
	}
	*some = i - from;
	rc = count ? holds[0]->index->find(holds[0]->structure, holds, count,
					   true)
		   : 0;
	for (i = 0; i < count && !rc; i++)
		rc = judge_found(taking, items[i]);
	return rc;
}

static int find_all(struct taking *taking)
{
	bool is_near = client_is_near(taking->txn->reef);
	uint32_t i, some;
	int rc = 0;

	taking->must_wait = taking->has_split = taking->has_passed = false;
	taking->has_absent = false;
	for (i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		/* In place, finding costs less than what it saves. */
		item->is_ready =
			!item->is_known && !item->is_blocked &&
			(item->met || !is_near) &&
			item->hold->index->recall(item->hold, item->met) == 1;
		item->met = item->is_blocked ? item->met : 0;
	}
	for (i = 0; i < taking->count && !rc; i += some)
		rc = find_some(taking, i, &some);
	return rc;
}

/* --- one batch for all that are ready --- */

static int fill_line(struct taking *taking, struct item *item,
		     struct intent_line *line, uint64_t block)
{
	struct reef_txn *txn = taking->txn;
	int rc;

	*line = (struct intent_line){
		.main = txn_status_at(txn),
		.priority = txn->priority,
		.session = reef_session(txn->reef),
		.attempts =
			(uint16_t)(txn->attempts < UINT16_MAX ? txn->attempts
							      : UINT16_MAX),
	};
	rc = item->hold->index->prepare(item->hold, block, line);
	intent_line_seal(line);
	return rc;
}

/* Add what has to be there before the slot is taken, too. */
static void add_ahead(struct taking *taking, struct item *item)
{
	uint32_t count = item->hold->index->ahead(
		item->hold, &taking->accesses[taking->writes]);

	for (; count; count--, taking->writes++) {
		struct reef_access *access = &taking->accesses[taking->writes];

		access->status = -REEF_ENOTDONE;
		taking->apart |=
			access->address >> 32 != item->hold->slot_at >> 32;
	}
}

/* Add a line to the WRITEs; those that lie behind each other are one. */
static void add_line(struct taking *taking, uint64_t at, uint32_t slot)
{
	struct reef_access *last =
		taking->writes ? &taking->accesses[taking->writes - 1] : NULL;

	if (last && last->local != &taking->txn->header &&
	    last->address + last->length == at) {
		last->length += INTENT_LINE;
		return;
	}
	taking->accesses[taking->writes++] = (struct reef_access){
		.kind = REEF_WRITE,
		.address = at,
		.local = &taking->lines[slot],
		.length = INTENT_LINE,
		.status = -REEF_ENOTDONE,
	};
}

static int write_lines(struct taking *taking)
{
	struct reef_txn *txn = taking->txn;
	struct intent_head head;
	uint32_t slot = 0, i;
	uint64_t at, block;
	int rc;

	taking->has_head = !txn->is_written;
	if (txn->has_header)
		taking->accesses[taking->writes++] = (struct reef_access){
			.kind = REEF_WRITE,
			.address = txn_status_at(txn) - 8,
			.local = &txn->header,
			.length = 8,
			.status = -REEF_ENOTDONE,
		};
	if (taking->has_head) {
		head = txn_head(txn);
		memcpy(&taking->lines[slot], &head, sizeof(head));
		add_line(taking, txn_status_at(txn), slot++);
	}
	for (i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		if (!item->is_ready)
			continue;
		at = txn_line_at(txn, item);
		rc = reef_short_address(txn->space, at, &block);
		if (rc)
			return rc;
		rc = fill_line(taking, item, &taking->lines[slot], block);
		if (rc)
			return rc;
		add_line(taking, at, slot++);
		taking->apart |= at >> 32 != item->hold->slot_at >> 32 ||
				 at >> 32 != txn_status_at(txn) >> 32;
	}
	for (i = 0; i < taking->count; i++)
		if (taking->items[i]->is_ready)
			add_ahead(taking, taking->items[i]);
	return 0;
}

static int add_slots(struct taking *taking)
{
	uint32_t next = taking->writes;
	int rc = 0;

	for (uint32_t i = 0; i < taking->count && !rc; i++) {
		struct item *item = taking->items[i];

		if (!item->is_ready)
			continue;
		item->cas = &taking->accesses[next++];
		*item->cas = (struct reef_access){
			.kind = REEF_CAS,
			.address = item->hold->slot_at,
			.compare = item->hold->slot,
			.operand = item->hold->word,
			.status = -REEF_ENOTDONE,
		};
		item->read = NULL;
		if (!item->hold->is_recalled)
			continue;
		item->read = &taking->accesses[next++];
		rc = item->hold->index->read(item->hold, item->read);
		item->read->status = -REEF_ENOTDONE;
	}
	taking->ready = next - taking->writes;
	return rc;
}

/* The lines are there before a slot names them: in one batch where that keeps
 * the order (F3a), else in two. */
static int run_batch(struct taking *taking)
{
	struct reef *reef = taking->txn->reef;
	int rc;

	if (!taking->apart)
		return reef_execute(reef, taking->accesses,
				    taking->writes + taking->ready);
	rc = reef_execute(reef, taking->accesses, taking->writes);
	return rc ? rc
		  : reef_execute(reef, taking->accesses + taking->writes,
				 taking->ready);
}

/* --- what became of it --- */

/* 1: the slot is held.  0: it is not. */
static int settle_cas(struct taking *taking, struct item *item)
{
	uint64_t now;
	int rc = item->cas->status;

	if (!rc)
		return item->cas->result == item->cas->compare;
	if (rc == -REEF_ENOTDONE)
		return 0;
	if (rc == -REEF_EINDOUBT) {
		/* Only we write that word. If it was there and is gone,
		 * somebody has decided the transaction. */
		rc = index_read_in_doubt(taking->txn->reef, item->cas->address,
					 &now);
		if (!rc)
			return now == item->hold->word;
	}
	taking->txn->in_doubt |= rc == -REEF_EINDOUBT || rc == -ETIMEDOUT;
	return rc;
}

/* An entry that was recalled is the key's, as its slot has not changed; but two
 * keys may have one hash: then this transaction is given up. */
static int end_recalled(struct item *item)
{
	int rc = 0;

	if (item->read->status)
		rc = reef_execute(txn_home(item)->reef, item->read, 1);
	if (!rc)
		rc = item->hold->index->complete(item->hold);
	if (!rc)
		item->hold->index->forget(item->hold);
	return rc == 1 ? 0 : rc ? rc : -ECANCELED;
}

static int end_item(struct taking *taking, struct item *item)
{
	bool in_doubt = item->cas->status == -REEF_EINDOUBT ||
			item->cas->status == -ETIMEDOUT;
	int rc = settle_cas(taking, item);

	if (rc != 1 && in_doubt)
		item->hold->index->doubted(item->hold);
	if (rc < 0)
		return rc;
	if (!rc) {
		item->hold->index->forget(item->hold);
		meet(item, item->cas->status ? 0 : item->cas->result);
		taking->must_wait |= item->is_blocked;
		return 0;
	}
	item->is_known = item->hold->is_held = true;
	item->hold->index->held(item->hold);
	return item->read ? end_recalled(item) : 0;
}

static int end_batch(struct taking *taking)
{
	int rc = 0, one;

	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		if (!item->is_ready)
			continue;
		one = end_item(taking, item);
		taking->txn->is_written |= item->is_known;
		rc = rc ? rc : one;
	}
	return rc;
}

/* The block's header and head were on their way. If any slot is held they are
 * there. If nobody can tell, others may have met the status, and decided it: it
 * is not written again. */
static int end_head(struct taking *taking)
{
	struct reef_txn *txn = taking->txn;
	const struct reef_access *head =
		&taking->accesses[txn->has_header ? 1 : 0];

	if (taking->has_head && !head->status)
		txn->is_written = true;
	txn->has_header &= !txn->is_written;
	if (!taking->has_head || txn->is_written ||
	    head->status == -REEF_ENOTDONE || REEF_MUTATED(TXN_HEAD_TWICE))
		return 0;
	txn->in_doubt |= head->status == -ETIMEDOUT;
	return -ECANCELED;
}

static bool is_passing(int rc)
{
	return !rc || rc == -REEF_EINDOUBT || rc == -REEF_ENOTDONE;
}

/* Write and do all that is ready. */
static int run_ready(struct taking *taking)
{
	int rc = write_lines(taking), ended;

	if (!rc)
		rc = add_slots(taking);
	if (rc)
		return rc;
	rc = run_batch(taking);
	ended = end_batch(taking);
	rc = is_passing(rc) ? ended : rc;
	ended = end_head(taking);
	return rc ? rc : ended;
}

static int take_ready(struct taking *taking)
{
	int rc;

	taking->writes = taking->ready = 0;
	taking->apart = false;
	for (uint32_t i = 0; i < taking->count; i++)
		taking->ready += taking->items[i]->is_ready;
	if (!taking->ready)
		return 0;
	rc = run_ready(taking);
	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		if (item->is_ready && !item->is_known)
			item->hold->index->discard(item->hold);
	}
	return rc;
}

/* --- ghosts --- */

static int put_ghosts(struct taking *taking)
{
	uint64_t version;
	int rc = 0;

	for (uint32_t i = 0; i < taking->count && !rc; i++) {
		struct item *item = taking->items[i];

		if (item->is_known || item->is_ready ||
		    item->hold->status != -ENOENT)
			continue;
		rc = map_hold_ghost(item->map, item->hold->key,
				    item->hold->key_size, &version);
		if (version)
			item->ghost = version;
		/* After a doubt finding it again tells. */
		if (rc == -REEF_EINDOUBT)
			rc = 0;
	}
	return rc;
}

/* --- waiting --- */

/* The CASes that let go what this call holds; items[].cas are them. -ECANCELED:
 * it cannot be let go so simply. */
static int add_releases(struct taking *taking, uint32_t *count)
{
	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		item->cas = NULL;
		if (!item->is_known)
			continue;
		hold_leave(item->hold);
		item->cas = &taking->accesses[*count];
		if (!item->hold->index->release(item->hold, item->cas))
			return -ECANCELED;
		item->cas->status = -REEF_ENOTDONE;
		++*count;
	}
	return 0;
}

static int end_releases(struct taking *taking)
{
	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];
		const struct hold_index *index = item->hold->index;

		if (!item->cas)
			continue;
		if (item->cas->status)
			return -ECANCELED;
		/* If it is another word, somebody has decided us. */
		if (item->cas->result == item->cas->compare)
			index->released(item->hold);
		else
			index->forget(item->hold);
		item->is_known = item->hold->is_held = false;
		item->line = 0;
	}
	return 0;
}

/* Nothing is held any more. Whoever met a line of ours may still ask for its
 * status: so that one is never COMMITTED, and another takes its place. */
static void renew(struct taking *taking)
{
	struct reef_txn *txn = taking->txn;

	txn_blocks_free(txn, true);
	txn->is_written = false;
	for (uint32_t i = 0; i < taking->count; i++)
		taking->items[i]->line = 0;
}

/* The READs of slots that are waited for. */
static uint32_t add_looks(struct taking *taking, uint32_t count)
{
	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		item->read = NULL;
		if (item->hold->epoch != reef_epoch(taking->txn->reef))
			meet(item, 0);
		if (item->is_known || !item->met)
			continue;
		item->read = &taking->accesses[count++];
		*item->read = (struct reef_access){
			.kind = REEF_READ,
			.address = item->hold->slot_at,
			.local = &item->met,
			.length = 8,
			.status = -REEF_ENOTDONE,
		};
	}
	return count;
}

/* Look at all slots that are waited for; and let go what is held, unless it was
 * held before: who waits with keys in hand holds everybody up. */
static int look_at_slots(struct taking *taking)
{
	struct reef_txn *txn = taking->txn;
	uint64_t status = INTENT_PENDING;
	uint32_t count = 0, released;
	int rc = taking->holds_others ? 0 : add_releases(taking, &count), ended;

	if (rc)
		return rc;
	released = count;
	count = add_looks(taking, count);
	if (txn->is_written && !released)
		taking->accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = txn_status_at(txn),
			.local = &status,
			.length = 8,
		};
	rc = count ? reef_execute(txn->reef, taking->accesses, count) : 0;
	ended = taking->holds_others ? 0 : end_releases(taking);
	/* A slot that may have been let go is so in any case when all is given
	 * up. */
	if (is_passing(rc))
		rc = rc && !ended ? -ECANCELED : ended;
	if (rc)
		return rc;
	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		if (!item->read)
			continue;
		item->wait.looks += item->is_blocked;
		meet(item, item->met);
	}
	if (released && !REEF_MUTATED(TXN_STATUS_KEPT))
		renew(taking);
	return status == INTENT_PENDING ? 0 : -ECANCELED;
}

static bool is_any_blocked(const struct taking *taking)
{
	for (uint32_t i = 0; i < taking->count; i++)
		if (taking->items[i]->is_blocked)
			return true;
	return false;
}

/* Pause for a time by chance, so that those who wait for one word do not come
 * back together. */
static int pause_outside(struct taking *taking)
{
	const uint64_t unique[2] = {taking->txn->priority, reef_now_ns()};
	uint32_t shift = taking->waits / 4;

	taking->waits++;
	if (shift > PAUSE_SHIFT_MAX)
		shift = PAUSE_SHIFT_MAX;
	return reef_sleep(reef_hash(unique, sizeof(unique), 0) %
			  ((uint64_t)PAUSE_NS << shift));
}

/* Wait until what is in the way is gone, or has been looked at for so often
 * that it is judged. */
static int wait_outside(struct taking *taking)
{
	struct reef *reef = taking->txn->reef;
	int rc;

	do {
		reef_enter(reef);
		rc = look_at_slots(taking);
		reef_leave(reef);
		/* Also when all are free: others have seen that, too, and who
		 * takes them at once gets in their way with one of its keys (a
		 * third of the throughput, on hot keys). */
		if (!rc)
			rc = pause_outside(taking);
	} while (!rc && is_any_blocked(taking));
	return rc;
}

/* --- rounds --- */

static uint32_t count_unknown(const struct taking *taking)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < taking->count; i++)
		count += !taking->items[i]->is_known;
	return count;
}

static int take_round(struct taking *taking)
{
	struct reef *reef = taking->txn->reef;
	int rc;

	reef_enter(reef);
	rc = find_all(taking);
	if (!rc && (taking->holds_others || !is_any_blocked(taking)))
		rc = take_ready(taking);
	reef_leave(reef);
	if (!rc && taking->has_absent)
		rc = put_ghosts(taking);
	/* Whoever has lost need not go on. */
	if (!rc && taking->must_wait)
		rc = wait_outside(taking);
	else if (!rc && taking->has_split && taking->txn->is_written)
		rc = txn_check_status(taking->txn);
	return rc;
}

/* Find out which of the keys are there, now that they are held. */
static int look_at_expiry(struct taking *taking)
{
	int rc;

	for (uint32_t i = 0; i < taking->count; i++) {
		struct item *item = taking->items[i];

		rc = map_hold_is_there(item->map, &item->hold->entry);
		if (rc < 0)
			return rc;
		item->is_there = rc;
	}
	return 0;
}

/* A round found no room: wait for what was freed lately, as commit.c does.  0:
 * once more. */
static int await_room(struct taking *taking, struct reef_patience *memory,
		      int rc)
{
	int waited;

	if ((rc != -ENOSPC && rc != -EDQUOT) || taking->txn->may_yield)
		return rc;
	waited = reef_await_memory(taking->txn->space, memory);
	return waited == -ENOSPC ? rc : waited;
}

static int take_all(struct taking *taking)
{
	uint32_t round = 0, unknown = taking->count, before;
	struct reef_patience memory = {0};
	int rc = 0;

	while (!rc && count_unknown(taking)) {
		if (++round > ROUNDS_MAX)
			return -EBUSY;
		before = unknown;
		rc = txn_lines(taking->txn, taking->items, taking->count);
		if (!rc)
			rc = await_room(taking, &memory, take_round(taking));
		/* Who has waited, or made the way free, tries again at once:
		 * else a younger one has the key by then. Others of ours may
		 * have been waiting, too. */
		unknown = count_unknown(taking);
		if (unknown < before)
			round = 0;
		else if (!rc && !taking->must_wait && !taking->has_passed)
			rc = index_pause(round);
	}
	return rc ? rc : look_at_expiry(taking);
}

int txn_take(struct reef_txn *txn, struct item **items, uint32_t count)
{
	struct taking taking = {.txn = txn, .items = items, .count = count};
	int rc;

	/* The first one most often tells: who takes keys one by one would go
	 * through all of them each time. */
	for (uint32_t i = 0; i < txn->items_count && !taking.holds_others; i++)
		taking.holds_others = txn->items[i]->is_known;
	for (uint32_t i = 0; i < count; i++)
		items[i]->wait.looks = looks_done(&taking);

	taking.lines = txn_room(txn->few_lines, sizeof(txn->few_lines),
				((size_t)count + 1) * sizeof(*taking.lines));
	taking.accesses = txn_room(txn->few_accesses, sizeof(txn->few_accesses),
				   ((size_t)(3 + HOLD_AHEAD) * count + 2) *
					   sizeof(*taking.accesses));
	rc = taking.lines && taking.accesses ? take_all(&taking) : -ENOMEM;
	txn_room_free(taking.lines, txn->few_lines);
	txn_room_free(taking.accesses, txn->few_accesses);
	return rc;
}
