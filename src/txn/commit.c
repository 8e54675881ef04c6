/* commit.c - the end of a transaction.
 *
 *   PENDING --all written; CAS status--> COMMITTED --slots let go--> freed
 *      \-----CAS by ourselves, or by others--> ABORTED --slots--> freed
 *
 * The order is: entries and lines are there, entries that go are not live, then
 * the status. Where all of it is in one extent that is one batch (F3a). */
#include "base/mutant.h"
#include "index/entry/word.h"
#include "pool/client/handle/near.h"
#include "txn/internal.h"

#include <stdlib.h>

#define ATTEMPTS 16 /* with a link that is lost each time */

struct commit {
	struct reef_txn *txn;
	struct reef_access *accesses;
	uint32_t count;
	bool apart;
};

static bool is_held(const struct item *item)
{
	return item->is_known && item->line;
}

/* --- letting go --- */

/* Let slots go one by one; true if no slot names a line any more. */
static bool resolve_slowly(struct reef_txn *txn, uint64_t status,
			   bool by_address)
{
	bool all = true;

	for (uint32_t i = 0; i < txn->items_count; i++) {
		struct hold *hold = txn->items[i]->hold;

		if (is_held(txn->items[i]))
			all &= !hold->index->resolve(hold, status, by_address);
	}
	return all;
}

/* Do the CAS of a slot in place, or leave it to the batch. */
static bool release_near(struct reef *reef, struct reef_access *cas)
{
	if (!client_near_cas(reef, cas->address, cas->compare, cas->operand,
			     &cas->result))
		return false;
	cas->status = 0;
	return true;
}

/* After the commit: all slots, in place or in one batch. */
static bool release_all(struct commit *commit)
{
	struct reef_txn *txn = commit->txn;
	uint32_t count = 0, done = 0, i;
	bool all = true;

	for (i = 0; i < txn->items_count; i++) {
		struct item *item = txn->items[i];

		item->cas = NULL;
		if (!is_held(item) ||
		    !item->hold->index->release(item->hold,
						&commit->accesses[count]))
			continue;
		item->cas = &commit->accesses[count];
		item->cas->status = -REEF_ENOTDONE;
		/* After one that was not, none is done in place. */
		if (done == count)
			done += release_near(txn->reef, item->cas);
		count++;
	}
	if (done < count)
		reef_execute(txn->reef, commit->accesses + done, count - done);
	for (i = 0; i < txn->items_count; i++) {
		struct item *item = txn->items[i];
		const struct hold_index *index = item->hold->index;

		if (!is_held(item))
			continue;
		if (item->cas && !item->cas->status) {
			/* If it is another word, somebody has resolved it. */
			if (item->cas->result == item->cas->compare)
				index->released(item->hold);
			else
				index->forget(item->hold);
			continue;
		}
		all &= !index->resolve(item->hold, INTENT_COMMITTED, true);
	}
	return all;
}

/* Entries that were to be put: `done`: they are. In doubt nobody knows, and
 * their blocks stay. */
static void drop_fresh(struct reef_txn *txn, bool done)
{
	for (uint32_t i = 0; i < txn->items_count; i++)
		entry_fresh_drop(txn_home(txn->items[i]),
				 &txn->items[i]->hold->fresh,
				 !done && !txn->in_doubt);
}

/* Not inside reef_enter (kv/hold.h). */
static void remove_ghosts(struct reef_txn *txn)
{
	for (uint32_t i = 0; i < txn->items_count && !txn->keeps_ghosts; i++) {
		struct item *item = txn->items[i];

		if (item->ghost)
			map_hold_remove(item->map, item->hold->key,
					item->hold->key_size, item->ghost,
					true);
	}
}

/* Decide the status: ABORTED, unless it was decided before, which others may
 * have done, or a commit that was in doubt. *is_here: it was PENDING just now,
 * in this enter, so the slots are where they were (internal.h, 2). */
static int decide_abort(struct reef_txn *txn, uint64_t *status, bool *is_here)
{
	uint64_t before;
	int rc = index_cas(txn->reef, txn_status_at(txn), INTENT_PENDING,
			   INTENT_ABORTED, &before);

	if (rc == -REEF_EINDOUBT)
		rc = index_read_in_doubt(txn->reef, txn_status_at(txn),
					 &before);
	/* Its memory is lost, and with it what everybody else could go by: only
	 * we know what the slots were. */
	if (rc == -REEF_ELOST) {
		*status = INTENT_ABORTED;
		return 0;
	}
	if (rc < 0)
		return rc;
	*is_here = rc == 1;
	*status = rc == 1 ? (uint64_t)INTENT_ABORTED : before;
	return 0;
}

/* Decide it, and let everything go but ghosts, which are removed outside. */
static void give_up_inside(struct reef_txn *txn)
{
	uint64_t status = INTENT_ABORTED;
	bool is_here = false, all = true;

	txn->state = TXN_LOST;
	if (txn->blocks_count && txn->is_written)
		all = !decide_abort(txn, &status, &is_here);
	if (all && status == INTENT_COMMITTED)
		txn->state = TXN_DONE;
	txn->is_settled = all;
	/* While nobody knows, entries may be named: recovery asks. */
	txn->in_doubt |= !all;
	if (all)
		all = resolve_slowly(txn, status, is_here);
	drop_fresh(txn, status == INTENT_COMMITTED);
	txn_blocks_free(txn, all);
}

void txn_give_up(struct reef_txn *txn)
{
	if (txn->state != TXN_OPEN)
		return;
	reef_enter(txn->reef);
	give_up_inside(txn);
	reef_leave(txn->reef);
	remove_ghosts(txn);
}

/* --- before the commit --- */

static int prepare_item(struct item *item, uint64_t now_ms)
{
	struct entry put = {
		.value = item->value,
		.value_size = (uint32_t)item->value_size,
		.stamp = item->expires_ms,
	};

	/* What has expired, or never was, is deleted for everybody's clock. */
	if (item->verdict == TXN_LEAVE && item->is_there) {
		hold_leave(item->hold);
		return 0;
	}
	if (item->verdict != TXN_PUT || (put.stamp && put.stamp <= now_ms)) {
		item->hold->index->remove(item->hold);
		return 0;
	}
	put.touched = map_hold_touched(
		item->map, item->is_there ? &item->hold->entry : NULL);
	return item->hold->index->put(item->hold, &put);
}

static void add_access(struct commit *commit, struct reef_access access)
{
	commit->accesses[commit->count++] = access;
	commit->apart |=
		access.address >> 32 != txn_status_at(commit->txn) >> 32;
}

static void add_word(struct commit *commit, uint64_t at, const uint64_t *word)
{
	add_access(commit, (struct reef_access){
				   .kind = REEF_WRITE,
				   .address = at,
				   .local = (void *)(uintptr_t)word,
				   .length = 8,
			   });
}

static int add_item(struct commit *commit, struct item *item)
{
	static const uint64_t zero;
	struct entry_fresh *fresh = &item->hold->fresh;
	uint64_t dies = item->hold->index->dies(item->hold);
	int rc = 0, attempt = 0;

	if (fresh->at && fresh->size > ENTRY_ALONG) {
		do
			rc = entry_fresh_write(txn_home(item), fresh);
		while (rc == -EAGAIN && attempt++ < ATTEMPTS);
	} else if (fresh->at) {
		add_access(commit, entry_fresh_begin(txn_home(item), fresh));
	}
	add_word(commit,
		 txn_line_at(commit->txn, item) +
			 offsetof(struct intent_line, next),
		 &item->hold->next);
	if (dies && !REEF_MUTATED(TXN_NO_LIVE))
		add_word(commit, dies, &zero);
	return rc;
}

static struct reef_access status_access(const struct reef_txn *txn)
{
	return (struct reef_access){
		.kind = REEF_CAS,
		.address = txn_status_at(txn),
		.compare = INTENT_PENDING,
		.operand = INTENT_COMMITTED,
		.status = -REEF_ENOTDONE,
	};
}

/* Do the accesses, and the CAS of the status after them. *status: what it is
 * then. */
static int run_commit(struct commit *commit, uint64_t *status)
{
	struct reef_txn *txn = commit->txn;
	struct reef_access *cas = &commit->accesses[commit->count];
	int rc = 0;

	*cas = status_access(txn);
	if (REEF_MUTATED(TXN_COMMIT_FIRST))
		rc = reef_execute(txn->reef, cas, 1);
	if (rc)
		return rc;
	if (commit->apart || REEF_MUTATED(TXN_COMMIT_FIRST))
		rc = reef_execute(txn->reef, commit->accesses, commit->count);
	if (!rc && !REEF_MUTATED(TXN_COMMIT_FIRST))
		rc = commit->apart ? reef_execute(txn->reef, cas, 1)
				   : reef_execute(txn->reef, commit->accesses,
						  commit->count + 1);
	if (rc)
		return rc;
	*status =
		cas->result == INTENT_PENDING ? INTENT_COMMITTED : cas->result;
	return 0;
}

/* Headers that were not written wait again. In doubt they may have been, with
 * the commit, and others may have freed the blocks since: whoever would WRITE
 * them then would make free blocks live. Without its header a block that nobody
 * names is recovery's. */
static void give_headers(struct reef_txn *txn, int rc)
{
	for (uint32_t i = 0; i < txn->items_count; i++) {
		struct item *item = txn->items[i];
		struct entry_fresh *fresh = &item->hold->fresh;

		if (rc && fresh->has_header && !txn->in_doubt)
			reef_header_give(txn_home(item)->space, fresh->at);
		fresh->has_header = false;
	}
}

/* Commit, and settle what is in doubt: the status is set once, so it tells. All
 * WRITEs are of our own blocks, or zeros for entries that nobody reuses while
 * we are inside, and may be repeated. */
static int decide(struct commit *commit, uint64_t *status)
{
	struct reef_txn *txn = commit->txn;
	int rc = -REEF_EINDOUBT, attempt = 0;

	while (rc == -REEF_EINDOUBT && attempt++ < ATTEMPTS) {
		rc = run_commit(commit, status);
		if (rc != -REEF_EINDOUBT)
			break;
		rc = index_read_in_doubt(txn->reef, txn_status_at(txn), status);
		if (rc || *status != INTENT_PENDING)
			break;
		rc = -REEF_EINDOUBT;
	}
	/* The CAS may have happened, or may yet; or it had, others have gone by
	 * it, and then its memory was lost. */
	txn->in_doubt |=
		rc == -REEF_EINDOUBT || rc == -ETIMEDOUT || rc == -REEF_ELOST;
	return rc;
}

/* (2): what is remembered from another epoch is good only while it is PENDING.
 */
static int check_epoch(struct reef_txn *txn)
{
	const uint64_t epoch = reef_epoch(txn->reef);
	bool is_other = false;

	for (uint32_t i = 0; i < txn->items_count; i++)
		is_other |= is_held(txn->items[i]) &&
			    txn->items[i]->hold->epoch != epoch;
	if (!is_other || REEF_MUTATED(TXN_LATE_LIVE))
		return 0;
	return txn_check_status(txn);
}

static int prepare_all(struct commit *commit, uint64_t now_ms)
{
	struct reef_txn *txn = commit->txn;
	int rc = check_epoch(txn);

	for (uint32_t i = 0; i < txn->items_count && !rc; i++)
		if (is_held(txn->items[i]))
			rc = prepare_item(txn->items[i], now_ms);
	for (uint32_t i = 0; i < txn->items_count && !rc; i++)
		if (is_held(txn->items[i]))
			rc = add_item(commit, txn->items[i]);
	return rc;
}

/* --- all of it --- */

static int64_t growth_of(const struct item *item, uint64_t now_ms)
{
	const struct entry *before = &item->hold->entry;
	int64_t bytes = 0;

	if (before->stamp != ENTRY_GHOST &&
	    (item->verdict != TXN_LEAVE || !item->is_there))
		bytes -= map_hold_bytes(before->key_size, before->value_size);
	if (item->verdict == TXN_PUT &&
	    !(item->expires_ms && item->expires_ms <= now_ms))
		bytes += map_hold_bytes(before->key_size, item->value_size);
	return bytes;
}

static void note_changes(struct reef_txn *txn, uint64_t now_ms)
{
	for (uint32_t i = 0; i < txn->items_count; i++) {
		struct item *item = txn->items[i];

		if (!is_held(item) ||
		    (item->verdict == TXN_LEAVE && item->is_there))
			continue;
		map_hold_changed(item->map, growth_of(item, now_ms),
				 item->verdict == TXN_PUT && item->expires_ms);
	}
	for (uint32_t i = 0; i < txn->items_count; i++)
		if (txn->items[i]->verdict != TXN_LEAVE &&
		    (!i || txn->items[i]->map != txn->items[i - 1]->map))
			map_hold_care(txn->items[i]->map);
}

static int commit_inside(struct commit *commit, uint64_t now_ms)
{
	struct reef_txn *txn = commit->txn;
	uint64_t status = INTENT_PENDING;
	int rc = prepare_all(commit, now_ms);

	if (!rc)
		rc = decide(commit, &status);
	give_headers(txn, rc);
	if (rc)
		return rc;
	if (status != INTENT_COMMITTED)
		return -ECANCELED;
	txn->state = TXN_DONE;
	txn_blocks_free(txn, release_all(commit));
	drop_fresh(txn, true);
	return 0;
}

/* Take what is to be put without having been read, all at once. */
static int take_blind(struct reef_txn *txn)
{
	struct item *few[TXN_FEW], **blind;
	uint32_t count = 0;
	int rc = 0;

	while (count < txn->items_count && txn->items[count]->is_known)
		count++;
	if (count == txn->items_count)
		return 0;
	count = 0;
	blind = txn_room(few, sizeof(few),
			 txn->items_count * sizeof(struct item *));
	if (!blind)
		return -ENOMEM;
	for (uint32_t i = 0; i < txn->items_count; i++)
		if (!txn->items[i]->is_known) {
			txn->items[i]->hold->blind = true;
			blind[count++] = txn->items[i];
		}
	if (count)
		rc = txn_take(txn, blind, count);
	txn_room_free(blind, few);
	return rc;
}

/* What the pool's clock and the maps' limits say, before anything is written.
 */
static int check_limits(struct reef_txn *txn, uint64_t *now_ms)
{
	struct reef_map *map;
	int64_t growth = 0;
	uint32_t i, j;
	int rc = 0;

	for (i = 0; i < txn->items_count && !rc; i++)
		if (txn->items[i]->expires_ms && !*now_ms)
			rc = map_hold_now(txn->items[i]->map, now_ms);
	for (i = 0; i < txn->items_count && !rc; i++) {
		map = txn->items[i]->map;
		if (!map_hold_is_limited(map) || txn->items[i]->is_counted)
			continue;
		for (growth = 0, j = i; j < txn->items_count; j++)
			if (txn->items[j]->map == map) {
				growth += growth_of(txn->items[j], *now_ms);
				txn->items[j]->is_counted = true;
			}
		rc = map_hold_fits(map, growth);
	}
	return rc;
}

/* Commit once.  -EAGAIN: there was no room, and there may be some now: what was
 * freed lately comes back. Who is run again waits for that with nothing in
 * hand, and others do not wait for us for longer than their patience. */
static int try_commit(struct commit *commit, uint64_t now_ms,
		      struct reef_patience *memory)
{
	struct reef_txn *txn = commit->txn;
	bool is_short;
	int rc, waited;

	commit->count = 0;
	commit->apart = false;
	reef_enter(txn->reef);
	rc = commit_inside(commit, now_ms);
	is_short = (rc == -ENOSPC || rc == -EDQUOT) && !txn->may_yield;
	/* Inside the same enter, so that the slots are where they were, and
	 * what was made for it is freed in time. */
	if (is_short)
		drop_fresh(txn, false);
	else if (rc)
		give_up_inside(txn);
	reef_leave(txn->reef);
	if (!is_short)
		return rc;
	waited = reef_await_memory(txn->space, memory);
	return waited == -ENOSPC ? rc : waited ? waited : -EAGAIN;
}

int txn_commit(struct reef_txn *txn)
{
	struct commit commit = {.txn = txn};
	struct reef_patience memory = {0};
	uint64_t now_ms = 0;
	int rc = take_blind(txn);

	if (!rc)
		rc = check_limits(txn, &now_ms);
	if (!rc && !txn->lines_used) {
		txn->state = TXN_DONE; /* it did nothing */
		return 0;
	}
	commit.accesses =
		rc ? NULL
		   : txn_room(txn->few_accesses, sizeof(txn->few_accesses),
			      ((size_t)4 * txn->items_count + 1) *
				      sizeof(*commit.accesses));
	if (!rc && !commit.accesses)
		rc = -ENOMEM;
	if (!rc)
		do
			rc = try_commit(&commit, now_ms, &memory);
		while (rc == -EAGAIN && txn->state == TXN_OPEN);
	if (rc && txn->state != TXN_OPEN) {
		txn->keeps_ghosts &= rc == -ECANCELED;
		remove_ghosts(txn);
	}
	/* What was in doubt is settled, if the status can be read at all. */
	if ((rc == -REEF_EINDOUBT || rc == -ETIMEDOUT) && txn->is_settled)
		rc = txn->state == TXN_DONE ? 0 : -ECANCELED;
	txn_room_free(commit.accesses, txn->few_accesses);
	if (!rc)
		note_changes(txn, now_ms);
	return rc;
}
