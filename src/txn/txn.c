/* txn.c - the calls of txn.h. */
#include "base/mutant.h"
#include "base/zeroed.h"
#include "index/entry/word.h"
#include "pool/client/handle/near.h"
#include "txn/internal.h"

#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 64u
#define LOSSES_MAX 8u /* of a READ_ONLY one; then it holds its keys */
#define YIELDS_MAX 100000u
#define SPARES_MAX 16u

/* --- begin and end --- */

/* A handle keeps some transactions that were closed, for the next ones. */
static void free_spares(void *spares)
{
	struct reef_txn *txn = spares, *next;

	for (; txn; txn = next) {
		next = txn->next;
		free(txn);
	}
}

static struct reef_txn *take_spare(struct reef *reef)
{
	struct client_spares *spares = &reef->txns;
	struct reef_txn *txn = spares->first;

	if (!txn)
		return malloc(sizeof(*txn));
	spares->first = txn->next;
	spares->count--;
	return txn;
}

static void give_spare(struct reef *reef, struct reef_txn *txn)
{
	struct client_spares *spares = &reef->txns;

	if (spares->count == SPARES_MAX) {
		free(txn);
		return;
	}
	txn->next = spares->first;
	spares->first = txn;
	spares->count++;
	spares->free = free_spares;
}

int reef_txn_begin(struct reef_space *space,
		   const struct reef_txn_options *options,
		   struct reef_txn **out)
{
	struct reef_txn *txn;

	if (options && options->flags & ~REEF_TXN_READ_ONLY)
		return -EINVAL;
	txn = take_spare(reef_space_handle(space));
	if (!txn)
		return -ENOMEM;
	reef_zero(txn, offsetof(struct reef_txn, next));
	txn->items = txn->few_items;
	txn->items_room = TXN_FEW;
	txn->space = space;
	txn->reef = reef_space_handle(space);
	if (options) {
		txn->flags = options->flags;
		txn->patience_ns = options->patience_ns;
	}
	*out = txn;
	return 0;
}

void reef_txn_close(struct reef_txn *txn)
{
	if (!txn)
		return;
	txn_give_up(txn);
	txn_items_free(txn);
	tree_moment_free(txn->moment);
	give_spare(txn->reef, txn);
}

/* Begin a call: one fiber at a time. */
static int enter_call(struct reef_txn *txn)
{
	if (txn->is_busy)
		return -EBUSY;
	if (txn->state != TXN_OPEN)
		return txn->state == TXN_LOST ? -ECANCELED : -EINVAL;
	txn->is_busy = true;
	return 0;
}

/* True if an error leaves the transaction as it was. */
static bool is_harmless(int rc)
{
	return !rc || rc == -ENOENT || rc == -EEXIST || rc == -EINVAL ||
	       rc == -EXDEV;
}

static int leave_call(struct reef_txn *txn, int rc)
{
	if (!is_harmless(rc))
		txn_fail(txn, rc);
	txn->is_busy = false;
	return rc;
}

/* --- keys --- */

static int learn(struct reef_txn *txn, struct item **items, uint32_t count)
{
	if (txn_is_read_only(txn))
		return txn_look(txn, items, count);
	return txn_take(txn, items, count);
}

/* Tell what an item is, for the transaction itself. */
static int tell_item(struct item *item, struct reef_map_value *out)
{
	struct entry put;

	if (item->verdict == TXN_DELETE ||
	    (item->verdict == TXN_LEAVE && !item->is_there))
		return -ENOENT;
	if (item->verdict == TXN_LEAVE)
		return map_hold_tell(item->map, &item->hold->entry, out);
	put = (struct entry){
		.value = item->value,
		.value_size = (uint32_t)item->value_size,
		.stamp = item->expires_ms,
	};
	return map_hold_tell(item->map, &put, out);
}

/* A key whose value is known, or put, needs no operation. */
static bool needs_reading(const struct item *item)
{
	return !item->is_known && item->verdict != TXN_PUT;
}

/* Count the values of keys that were read just now: they stay until the end.
 */
static int count_read(struct reef_txn *txn, struct item **items, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (items[i]->is_there)
			txn->read_bytes += items[i]->hold->entry.value_size;
	return txn->read_bytes > TXN_READ_MAX ? -E2BIG : 0;
}

static int read_key(struct reef_txn *txn, struct reef_map *map, const void *key,
		    size_t key_size, struct reef_map_value *out, bool untaken)
{
	struct item *item;
	int rc = txn_item(txn, map, key, key_size, &item);

	if (!rc && needs_reading(item)) {
		rc = untaken ? txn_look(txn, &item, 1) : learn(txn, &item, 1);
		if (!rc)
			rc = count_read(txn, &item, 1);
	}
	return rc ? rc : tell_item(item, out);
}

int reef_txn_get(struct reef_txn *txn, struct reef_map *map, const void *key,
		 size_t key_size, struct reef_map_value *out)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	return leave_call(txn, read_key(txn, map, key, key_size, out,
					REEF_MUTATED(TXN_READ_UNTAKEN)));
}

int reef_txn_take(struct reef_txn *txn, struct reef_map *map, const void *key,
		  size_t key_size, struct reef_map_value *out)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	rc = txn_is_read_only(txn)
		     ? -EINVAL
		     : read_key(txn, map, key, key_size, out, false);
	return leave_call(txn, rc);
}

static int take_items(struct reef_txn *txn, struct reef_txn_item *given,
		      struct item **items, uint32_t count)
{
	struct item **unknown = items + count;
	uint32_t i, unknown_count = 0;
	int rc = 0;

	for (i = 0; i < count && !rc; i++) {
		if (!given[i].map && !given[i].tree)
			rc = -EINVAL;
		else
			rc = txn_item(
				txn,
				given[i].map ? given[i].map
					     : map_hold_of_tree(given[i].tree),
				given[i].key, given[i].key_size, &items[i]);
		/* A key that is there twice is taken once. */
		if (!rc && needs_reading(items[i]) && !items[i]->is_ready) {
			items[i]->is_ready = true;
			unknown[unknown_count++] = items[i];
		}
	}
	for (i = 0; i < unknown_count; i++)
		unknown[i]->is_ready = false;
	if (!rc && unknown_count)
		rc = learn(txn, unknown, unknown_count);
	if (!rc)
		rc = count_read(txn, unknown, unknown_count);
	for (i = 0; i < count && !rc; i++) {
		given[i].status = tell_item(items[i], &given[i].value);
		if (given[i].status != -ENOENT)
			rc = given[i].status;
	}
	return rc;
}

int reef_txn_take_many(struct reef_txn *txn, struct reef_txn_item *given,
		       uint32_t count)
{
	struct item *few[2 * TXN_FEW], **items;
	int rc = enter_call(txn);

	if (rc)
		return rc;
	items = txn_room(few, sizeof(few),
			 (size_t)2 * count * sizeof(struct item *));
	rc = items ? take_items(txn, given, items, count) : -ENOMEM;
	txn_room_free(items, few);
	return leave_call(txn, rc);
}

/* --- changes --- */

static int change_key(struct reef_txn *txn, struct reef_map *map,
		      const void *key, size_t key_size, size_t value_size,
		      struct item **item)
{
	int rc;

	if (txn_is_read_only(txn) || txn->only_reads)
		return -EINVAL;
	rc = map_hold_check(map, key_size, value_size);
	return rc ? rc : txn_item(txn, map, key, key_size, item);
}

static int put_key(struct reef_txn *txn, struct reef_map *map, const void *key,
		   size_t key_size, const void *value, size_t value_size,
		   uint64_t expires_ms, bool if_absent)
{
	struct item *item;
	int rc = change_key(txn, map, key, key_size, value_size, &item);

	if (!rc && if_absent && needs_reading(item))
		rc = txn_take(txn, &item, 1);
	if (!rc && if_absent &&
	    (item->verdict == TXN_PUT ||
	     (item->verdict == TXN_LEAVE && item->is_there)))
		rc = -EEXIST;
	if (!rc)
		rc = map_hold_make_room(map, key_size, value_size);
	return rc ? rc : txn_item_put(txn, item, value, value_size, expires_ms);
}

int reef_txn_put(struct reef_txn *txn, struct reef_map *map, const void *key,
		 size_t key_size, const void *value, size_t value_size,
		 uint64_t expires_ms)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	return leave_call(txn, put_key(txn, map, key, key_size, value,
				       value_size, expires_ms, false));
}

int reef_txn_insert(struct reef_txn *txn, struct reef_map *map, const void *key,
		    size_t key_size, const void *value, size_t value_size,
		    uint64_t expires_ms)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	return leave_call(txn, put_key(txn, map, key, key_size, value,
				       value_size, expires_ms, true));
}

static int delete_key(struct reef_txn *txn, struct reef_map *map,
		      const void *key, size_t key_size)
{
	struct item *item;
	int rc = change_key(txn, map, key, key_size, 0, &item);

	if (!rc && needs_reading(item)) {
		/* Nobody will ask what the value was. */
		item->hold->blind = true;
		rc = txn_take(txn, &item, 1);
	}
	if (rc)
		return rc;
	if (item->verdict == TXN_DELETE ||
	    (item->verdict == TXN_LEAVE && !item->is_there))
		return -ENOENT;
	item->verdict = TXN_DELETE;
	return 0;
}

int reef_txn_delete(struct reef_txn *txn, struct reef_map *map, const void *key,
		    size_t key_size)
{
	int rc = enter_call(txn);

	return rc ? rc : leave_call(txn, delete_key(txn, map, key, key_size));
}

/* --- trees: maps with another index --- */

/* What the caller's `each` says is not an error of the scan. */
struct telling {
	int (*each)(void *context, const struct reef_map_entry *entry);
	void *context;
	int said;
};

static int tell_each(void *context, const struct reef_map_entry *entry)
{
	struct telling *telling = context;

	return telling->said = telling->each(telling->context, entry);
}

int reef_txn_tree_get(struct reef_txn *txn, struct reef_tree *tree,
		      const void *key, size_t key_size,
		      struct reef_map_value *out)
{
	return reef_txn_get(txn, map_hold_of_tree(tree), key, key_size, out);
}

int reef_txn_tree_take(struct reef_txn *txn, struct reef_tree *tree,
		       const void *key, size_t key_size,
		       struct reef_map_value *out)
{
	return reef_txn_take(txn, map_hold_of_tree(tree), key, key_size, out);
}

int reef_txn_tree_put(struct reef_txn *txn, struct reef_tree *tree,
		      const void *key, size_t key_size, const void *value,
		      size_t value_size, uint64_t expires_ms)
{
	return reef_txn_put(txn, map_hold_of_tree(tree), key, key_size, value,
			    value_size, expires_ms);
}

int reef_txn_tree_insert(struct reef_txn *txn, struct reef_tree *tree,
			 const void *key, size_t key_size, const void *value,
			 size_t value_size, uint64_t expires_ms)
{
	return reef_txn_insert(txn, map_hold_of_tree(tree), key, key_size,
			       value, value_size, expires_ms);
}

int reef_txn_tree_delete(struct reef_txn *txn, struct reef_tree *tree,
			 const void *key, size_t key_size)
{
	return reef_txn_delete(txn, map_hold_of_tree(tree), key, key_size);
}

static int scan(struct reef_txn *txn, struct reef_tree *tree,
		const struct reef_range *range,
		int (*each)(void *context, const struct reef_map_entry *entry),
		void *context, int *said)
{
	struct telling telling = {.each = each, .context = context};
	bool expired;
	int rc;

	*said = 0;
	txn->has_scanned = true;
	/* The next attempt of the run holds nothing again. */
	if (!txn_is_read_only(txn))
		return txn->only_reads ? -ECANCELED : -EINVAL;
	rc = txn_check_space(txn, map_hold_of_tree(tree));
	if (rc)
		return rc;
	rc = map_hold_scan(tree, range, tell_each, &telling, &txn->moment,
			   &expired);
	*said = telling.said;
	if (telling.said)
		rc = 0;
	return !rc && expired ? -ECANCELED : rc;
}

int reef_txn_scan(struct reef_txn *txn, struct reef_tree *tree,
		  const struct reef_range *range,
		  int (*each)(void *context,
			      const struct reef_map_entry *entry),
		  void *context)
{
	int rc = enter_call(txn), said;

	if (rc)
		return rc;
	rc = leave_call(txn, scan(txn, tree, range, each, context, &said));
	return rc ? rc : said;
}

/* --- the end --- */

int reef_txn_check(struct reef_txn *txn)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	if (txn_is_read_only(txn))
		rc = txn_look_again(txn);
	else if (txn->is_written)
		rc = txn_check_status(txn);
	return leave_call(txn, rc);
}

int reef_txn_commit(struct reef_txn *txn)
{
	int rc = enter_call(txn);

	if (rc)
		return rc;
	rc = txn_is_read_only(txn) ? txn_look_again(txn) : txn_commit(txn);
	if (rc)
		txn_fail(txn, rc);
	else
		txn->state = TXN_DONE;
	txn->is_busy = false;
	return rc;
}

void reef_txn_abort(struct reef_txn *txn)
{
	if (txn->is_busy)
		return;
	txn_give_up(txn);
	txn->state = TXN_DONE;
}

/* --- run --- */

struct running {
	struct reef_txn_options options;
	uint64_t priority; /* of the first attempt: (3) of txn.h */
	uint32_t attempt;
	/* So often it gave way to an older one, which is no loss: those are
	 * done before it, one by one, or are in its way for too long. */
	uint32_t yields;
	struct intent_wait yielded_to;
	bool holds_nothing; /* it has scanned, or may not write */
	/* There was no room, so often; is_last: and nothing more will come. */
	struct reef_patience memory;
	uint32_t shortages;
	bool is_last;
	bool again; /* it has lost, or found no room: once more */
};

/* There was no room: `again`, or that is the end of it.
 * What the attempt itself had taken always comes back: so the second time all
 * that may come is waited for, and then one attempt tells. */
static int await_room(struct running *running, struct reef_space *space, int rc)
{
	int waited = 0;

	if (running->is_last)
		return rc;
	running->shortages++;
	do
		waited = reef_await_memory(space, &running->memory);
	while (!waited && running->shortages > 1);
	if (waited && waited != -ENOSPC)
		return waited;
	running->is_last = waited && running->shortages > 1;
	running->again = !waited || running->is_last;
	return rc;
}

/* Run the body once. */
static int run_once(struct running *running, struct reef_space *space,
		    int (*body)(struct reef_txn *txn, void *context),
		    void *context)
{
	const bool only_reads = running->options.flags & REEF_TXN_READ_ONLY;
	struct reef_txn_options options = running->options;
	struct reef_txn *txn;
	int rc;

	if (running->attempt >= LOSSES_MAX && !running->holds_nothing)
		options.flags &= ~REEF_TXN_READ_ONLY;
	rc = reef_txn_begin(space, &options, &txn);
	if (rc)
		return rc;
	txn->only_reads = only_reads;
	txn->priority = running->priority;
	txn->attempts = running->attempt;
	/* Keys that it has not found are wanted again by the next attempt. */
	txn->keeps_ghosts = running->attempt + 1 < running->options.attempts;
	txn->may_yield =
		running->options.attempts > 1 && running->yields < YIELDS_MAX;
	txn->yielded_to = running->yielded_to;
	rc = body(txn, context);
	if (!rc)
		rc = reef_txn_commit(txn);
	running->priority = txn->priority;
	/* Who may only read cannot hold what it reads: it goes on as before. */
	if (only_reads && rc == -EACCES && !txn_is_read_only(txn)) {
		running->holds_nothing = true;
		rc = -ECANCELED;
	}
	running->holds_nothing |= txn->has_scanned;
	running->yielded_to = txn->yielded_to;
	if (txn->has_yielded && rc == -ECANCELED)
		running->yields++;
	else
		running->attempt++;
	if (rc && rc != -ECANCELED)
		txn->keeps_ghosts = false;
	reef_txn_close(txn);
	running->again = rc == -ECANCELED;
	if (rc != -ENOSPC && rc != -EDQUOT)
		return rc;
	return await_room(running, space, rc);
}

int reef_txn_run(struct reef_space *space,
		 int (*body)(struct reef_txn *txn, void *context),
		 void *context, const struct reef_txn_options *options)
{
	struct running running = {.again = true};
	int rc = -ECANCELED, paused = 0;

	if (options)
		running.options = *options;
	if (!running.options.attempts)
		running.options.attempts = ATTEMPTS;
	while (!paused && running.again &&
	       running.attempt < running.options.attempts) {
		running.again = false;
		rc = run_once(&running, space, body, context);
		if (running.again)
			paused = index_pause(running.attempt + running.yields -
					     1);
	}
	return paused ? paused : rc;
}
