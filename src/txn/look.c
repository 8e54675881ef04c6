/* look.c - READ_ONLY transactions: everything is read, and then looked at
 * again.
 *
 * A key whose slot is the word it was, and whose transaction, if one has it, is
 * as undecided as it was, has the value that was read at that second moment.
 * The second looks begin when all first ones are done: so all values were there
 * at one moment in between. A key that was not there is looked at again by all
 * words of its places. In another epoch, or if it is frozen, the slot may be
 * elsewhere: then the key is looked up again, and its version compared, which
 * no other value has. */
#include "base/mutant.h"
#include "index/entry/word.h"
#include "txn/internal.h"

#include <stdlib.h>

#define ROUNDS_MAX 10000u
#define TOGETHER 64u /* keys that are looked up at once */

/* --- the first time --- */

/* Judge a key that was found.  1: it is known.  0: look again. Not inside
 * reef_enter. */
static int judge(struct item *item)
{
	const struct hold *hold = item->hold;
	int rc = hold->status;

	if (rc && rc != -ENOENT && rc != -EALREADY)
		return rc;
	item->is_there =
		hold->index->is_there(hold) && hold->entry.stamp != ENTRY_GHOST;
	rc = item->is_there ? map_hold_is_there(item->map, &hold->entry) : 1;
	if (rc)
		return rc;
	/* It has expired: nobody says so before it is gone. */
	rc = map_hold_remove(item->map, hold->key, hold->key_size,
			     hold->entry.version, false);
	if (rc == -EACCES) {
		item->is_there = false;
		return 1;
	}
	return rc < 0 && rc != -REEF_EINDOUBT ? rc : 0;
}

/* Look keys of one table up.  1: all are known.  0: look again for those that
 * are not. */
static int look_once(struct reef_txn *txn, struct item **items, uint32_t count)
{
	struct hold *holds[TOGETHER];
	const struct hold_index *index = items[0]->hold->index;
	bool must_wait = false;
	int rc, known = 1, one;
	uint32_t i;

	for (i = 0; i < count; i++)
		holds[i] = items[i]->hold;
	reef_enter(txn->reef);
	rc = index->find(holds[0]->structure, holds, count, false);
	for (i = 0; i < count && !rc; i++) {
		/* What is frozen cannot be compared later. */
		items[i]->is_ready = !index->is_frozen(holds[i]);
		if (!items[i]->is_ready)
			rc = index->split(holds[i], NULL, 0, &items[i]->wait);
		/* Who may only read leaves that to others. */
		items[i]->is_left = rc == -EACCES;
		if (items[i]->is_left) {
			items[i]->is_ready = true;
			rc = 0;
		}
		must_wait |= rc == -EINPROGRESS;
		rc = rc == -EINPROGRESS ? 0 : rc;
	}
	reef_leave(txn->reef);
	if (!rc && must_wait)
		rc = index_pause(1);
	for (i = 0; i < count && !rc; i++) {
		one = items[i]->is_ready ? judge(items[i]) : 0;
		items[i]->is_known = one == 1;
		items[i]->is_ready = false;
		known &= one == 1;
		rc = one < 0 ? one : 0;
	}
	return rc ? rc : known;
}

/* Collect keys of one table that are not known. */
static uint32_t collect(struct item **items, uint32_t count,
			struct item *some[TOGETHER])
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < count && found < TOGETHER; i++)
		if (!items[i]->is_known &&
		    (!found ||
		     items[i]->hold->structure == some[0]->hold->structure))
			some[found++] = items[i];
	return found;
}

int txn_look(struct reef_txn *txn, struct item **items, uint32_t count)
{
	struct item *some[TOGETHER];
	uint32_t found, round = 0;
	int rc = 0;

	while (!rc && (found = collect(items, count, some))) {
		rc = look_once(txn, some, found);
		if (!rc)
			rc = ++round < ROUNDS_MAX ? index_pause(round) : -EBUSY;
		else if (rc == 1)
			rc = 0;
	}
	for (uint32_t i = 0; i < count && !rc; i++)
		items[i]->was_seen = REEF_MUTATED(TXN_VALIDATE_EARLY);
	return rc;
}

/* --- the second time --- */

/* Look a key up again, and compare its version. */
static int compare_version(const struct item *item)
{
	const struct hold *before = item->hold;
	const struct hold_index *index = before->index;
	struct hold *hold;
	int rc;

	if (!index->is_there(before))
		return -ECANCELED; /* it may have come and gone */
	hold = index->make(before->structure, before->key, before->key_size);
	if (!hold)
		return -ENOMEM;
	hold->blind = true;
	rc = index->find(hold->structure, &hold, 1, false);
	if (!rc && hold->status != -ENOENT && hold->status != -EALREADY)
		rc = hold->status;
	if (!rc && (!index->is_there(hold) ||
		    hold->entry.version != before->entry.version))
		rc = -ECANCELED;
	index->free(hold);
	return rc;
}

static bool is_to_compare(const struct reef_txn *txn, const struct item *item)
{
	return item->is_known && !item->was_seen && !item->is_left &&
	       item->hold->epoch == reef_epoch(txn->reef);
}

static int compare_words(struct reef_txn *txn, struct hold_look *looks,
			 struct reef_access *accesses)
{
	uint32_t i, count = 0;
	int rc;

	for (i = 0; i < txn->items_count; i++) {
		const struct hold *hold = txn->items[i]->hold;

		if (is_to_compare(txn, txn->items[i]))
			count += hold->index->look(hold, &looks[i],
						   accesses + count);
	}
	rc = count ? reef_execute(txn->reef, accesses, count) : 0;
	/* A word that is another may still say the same: a transaction has the
	 * key, or had it and put nothing. */
	for (i = 0; i < txn->items_count && !rc; i++) {
		const struct item *item = txn->items[i];

		if (!item->is_known || item->was_seen ||
		    (is_to_compare(txn, item) &&
		     item->hold->index->is_same(item->hold, &looks[i])))
			continue;
		rc = compare_version(item);
	}
	return rc;
}

int txn_look_again(struct reef_txn *txn)
{
	struct hold_look *looks;
	struct reef_access *accesses;
	int rc = -ENOMEM;

	if (REEF_MUTATED(TXN_NO_SECOND_READ))
		return 0;
	looks = txn_room(txn->few_looks, sizeof(txn->few_looks),
			 txn->items_count * sizeof(*looks));
	accesses = txn_room(txn->few_accesses, sizeof(txn->few_accesses),
			    (size_t)txn->items_count * HOLD_LOOKS *
				    sizeof(*accesses));
	if (looks && accesses) {
		reef_enter(txn->reef);
		rc = compare_words(txn, looks, accesses);
		if (!rc)
			rc = tree_moment_look(txn->moment);
		reef_leave(txn->reef);
	}
	txn_room_free(looks, txn->few_looks);
	txn_room_free(accesses, txn->few_accesses);
	return rc;
}
