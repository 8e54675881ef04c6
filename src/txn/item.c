/* item.c - the keys of a transaction, and its blocks. */
#include "base/mutant.h"
#include "base/quick.h"
#include "base/zeroed.h"
#include "index/entry/word.h"
#include "pool/client/handle/near.h"
#include "txn/internal.h"

#include <stdlib.h>
#include <string.h>

/* --- keys --- */

static uint32_t place_of(const struct reef_txn *txn, uint32_t number,
			 const void *key, size_t key_size)
{
	return (uint32_t)reef_hash_quick(key, key_size, number) &
	       txn->places_mask;
}

static bool is_item(const struct item *item, uint32_t number, const void *key,
		    size_t key_size)
{
	return item->number == number && item->hold->key_size == key_size &&
	       !memcmp(item->hold->key, key, key_size);
}

/* The place of a key among the items: its own, or the free one. */
static uint32_t *find_place(const struct reef_txn *txn, uint32_t number,
			    const void *key, size_t key_size)
{
	uint32_t at = place_of(txn, number, key, key_size);

	while (txn->places[at] &&
	       !is_item(txn->items[txn->places[at] - 1], number, key, key_size))
		at = (at + 1) & txn->places_mask;
	return &txn->places[at];
}

/* The item of a key; NULL: there is none. A few are compared each. */
static struct item *find_item(const struct reef_txn *txn, uint32_t number,
			      const void *key, size_t key_size)
{
	uint32_t at;

	if (txn->places) {
		at = *find_place(txn, number, key, key_size);
		return at ? txn->items[at - 1] : NULL;
	}
	for (at = 0; at < txn->items_count; at++)
		if (is_item(txn->items[at], number, key, key_size))
			return txn->items[at];
	return NULL;
}

static void note_place(struct reef_txn *txn, uint32_t i)
{
	const struct item *item = txn->items[i];

	*find_place(txn, item->number, item->hold->key, item->hold->key_size) =
		i + 1;
}

static void free_room(struct reef_txn *txn)
{
	if (txn->items == txn->few_items)
		return;
	free(txn->items);
	free(txn->places);
}

/* Make room for one more item. */
static int grow(struct reef_txn *txn)
{
	uint32_t room = 2 * txn->items_room, i;
	struct item **items;
	uint32_t *places;

	if (txn->items_count < txn->items_room)
		return 0;
	items = malloc(room * sizeof(struct item *));
	places = calloc((size_t)2 * room, sizeof(*places));
	if (!items || !places) {
		free(items);
		free(places);
		return -ENOMEM;
	}
	memcpy(items, txn->items, txn->items_count * sizeof(struct item *));
	free_room(txn);
	txn->items = items;
	txn->places = places;
	txn->places_mask = 2 * room - 1;
	txn->items_room = room;
	for (i = 0; i < txn->items_count; i++)
		note_place(txn, i);
	return 0;
}

static void free_value(struct item *item)
{
	if (item->value != item->short_value)
		free(item->value);
}

static void free_item(const struct reef_txn *txn, struct item *item)
{
	if (item < txn->few || item >= txn->few + TXN_FEW)
		free(item);
}

static int make_item(struct reef_txn *txn, struct reef_map *map,
		     const void *key, size_t key_size, struct item **out)
{
	struct item *item;
	int rc;

	if (txn->items_count == TXN_KEYS_MAX ||
	    txn->bytes + key_size > TXN_BYTES_MAX)
		return -E2BIG;
	rc = grow(txn);
	if (rc)
		return rc;
	item = txn->items_count < TXN_FEW ? &txn->few[txn->items_count]
					  : malloc(sizeof(*item));
	if (!item)
		return -ENOMEM;
	reef_zero(item, offsetof(struct item, short_value));
	item->map = map;
	item->hold = map_hold_index(map)->make(map_hold_structure(map), key,
					       (uint32_t)key_size);
	if (!item->hold) {
		free_item(txn, item);
		return -ENOMEM;
	}
	item->wait.word = txn->yielded_to.word;
	item->wait.since_ns = txn->yielded_to.since_ns;
	item->wait.priority = txn->priority;
	item->wait.patience_ns = txn->patience_ns;
	item->number = txn_home(item)->number;
	txn->bytes += key_size;
	txn->items[txn->items_count++] = item;
	if (txn->places)
		note_place(txn, txn->items_count - 1);
	*out = item;
	return 0;
}

/* The age of a transaction, by the pool's clock: the lower, the older. One that
 * cannot ask for the time is the youngest. */
static void set_priority(struct reef_txn *txn, struct reef_map *map)
{
	uint64_t unique[2], ms = 0;

	/* One that holds nothing needs none, until it has lost. */
	if (txn->priority || (txn_is_read_only(txn) && !txn->attempts))
		return;
	unique[0] = reef_session(txn->reef);
	unique[1] = ++txn->reef->txns.used;
	if (map_hold_now(map, &ms))
		ms = UINT64_MAX >> 24;
	txn->priority = ms << 24 |
			(reef_hash_quick(unique, sizeof(unique), 0) & 0xffffff);
	txn->priority |= !txn->priority;
}

int txn_check_space(const struct reef_txn *txn, const struct reef_map *map)
{
	struct reef_space *space = map_hold_space(map);

	if (space == txn->space)
		return 0;
	return reef_space_handle(space) != txn->reef ||
			       reef_space_id(space) != reef_space_id(txn->space)
		       ? -EXDEV
		       : 0;
}

int txn_item(struct reef_txn *txn, struct reef_map *map, const void *key,
	     size_t key_size, struct item **out)
{
	struct item *item = NULL;
	int rc = txn_check_space(txn, map);

	if (!rc)
		rc = map_hold_check(map, key_size, 0);
	if (rc)
		return rc;
	set_priority(txn, map);
	if (txn->items_count)
		item = find_item(txn,
				 map_hold_index(map)
					 ->home(map_hold_structure(map))
					 ->number,
				 key, key_size);
	if (!item)
		return make_item(txn, map, key, key_size, out);
	*out = item;
	return 0;
}

int txn_item_put(struct reef_txn *txn, struct item *item, const void *value,
		 size_t value_size, uint64_t expires_ms)
{
	void *copy;

	if (txn->bytes - item->value_size + value_size > TXN_BYTES_MAX)
		return -E2BIG;
	copy = txn_room(item->short_value, TXN_SHORT, value_size);
	if (!copy)
		return -ENOMEM;
	if (value_size)
		memcpy(copy, value, value_size);
	if (copy != item->value)
		free_value(item);
	txn->bytes += value_size - item->value_size;
	item->value = copy;
	item->value_size = value_size;
	item->expires_ms = expires_ms;
	item->verdict = TXN_PUT;
	return 0;
}

void txn_items_free(struct reef_txn *txn)
{
	for (uint32_t i = 0; i < txn->items_count; i++) {
		struct item *item = txn->items[i];

		item->hold->index->free(item->hold);
		free_value(item);
		free_item(txn, item);
	}
	free_room(txn);
	txn->items = NULL;
	txn->places = NULL;
	txn->items_count = txn->items_room = 0;
}

/* --- blocks --- */

static const uint32_t block_lines[] = {
	INTENT_FIRST_LINES, 64, 512, 4096, TXN_KEYS_MAX,
};
#define BLOCK_SIZES (sizeof(block_lines) / sizeof(block_lines[0]))
#define NEAR_LINES 3u

/* How many lines the next block is to have, of which `count` are wanted now. A
 * further block costs two round trips, so the first one has some to spare. In
 * place it costs none; and as blocks wait for an epoch before they are used
 * again, small ones keep less of the processor's cache from others (a tenth of
 * the throughput). */
static uint32_t next_lines(const struct reef_txn *txn, uint32_t count)
{
	uint32_t i, larger = 0;

	if (!txn->blocks_count && count <= NEAR_LINES &&
	    client_is_near(txn->reef))
		return NEAR_LINES;
	for (i = 0; i < txn->blocks_count; i++)
		larger += txn->blocks[i].lines != NEAR_LINES;
	/* More than these are only needed where spare ones had to do. */
	return larger < BLOCK_SIZES ? block_lines[larger] : TXN_KEYS_MAX;
}

struct intent_head txn_head(const struct reef_txn *txn)
{
	struct intent_head head = {
		.magic = INTENT_MAIN_MAGIC,
		.session = reef_session(txn->reef),
		.lines = txn->blocks[0].lines,
	};

	for (uint32_t i = 1; i < txn->blocks_count; i++)
		head.blocks[i - 1] = txn->blocks[i].at;
	return head;
}

/* The header of the first block waits again, until anything is written. */
static void give_header(struct reef_txn *txn)
{
	if (txn->has_header)
		reef_header_give(txn->space, txn_status_at(txn));
	txn->has_header = false;
}

/* Tell recovery of a further block, before any slot names it. */
static int announce_block(struct reef_txn *txn, const struct txn_block *block)
{
	struct intent_head head = txn_head(txn);
	const struct intent_head more = {
		.magic = INTENT_MORE_MAGIC,
		.session = head.session,
		.lines = block->lines,
		.blocks = {txn_status_at(txn)},
	};
	size_t skip = txn->is_written ? sizeof(head.status) : 0;
	int rc, attempt = 0;

	give_header(txn);
	/* Once it may be named the status is changed by CAS alone (F6). */
	do {
		rc = reef_write(txn->reef, block->at, &more, sizeof(more));
		if (!rc)
			rc = reef_write(txn->reef, txn_status_at(txn) + skip,
					(char *)&head + skip,
					sizeof(head) - skip);
	} while (rc == -REEF_EINDOUBT && attempt++ < 16);
	txn->is_written |= !rc;
	return rc;
}

static int allocate_block(struct reef_txn *txn, struct txn_block *block)
{
	return reef_alloc_kind(txn->space, REEF_BLOCK_TXN,
			       INTENT_LINE * (1 + (uint64_t)block->lines),
			       &block->at);
}

/* Take a block. Where there is no room for it, one of the maps has a spare one;
 * or there is room for a few lines: who deletes some keys is not to need more
 * than that. */
static int take_block(struct reef_txn *txn, struct txn_block *block)
{
	int rc = allocate_block(txn, block);

	if (rc != -ENOSPC && rc != -EDQUOT)
		return rc;
	for (uint32_t i = 0; i < txn->items_count; i++) {
		block->at = map_hold_take_spare(txn->items[i]->map);
		if (block->at) {
			block->lines = INTENT_FIRST_LINES;
			return 0;
		}
	}
	if (block->lines == NEAR_LINES)
		return rc;
	block->lines = NEAR_LINES;
	return allocate_block(txn, block);
}

static int add_block(struct reef_txn *txn, uint32_t count)
{
	uint32_t i = txn->blocks_count;
	struct txn_block *block;
	int rc;

	/* So many are enough for all keys, if none is small for want of room.
	 */
	if (i == TXN_BLOCKS)
		return -ENOSPC;
	block = &txn->blocks[i];
	*block = (struct txn_block){
		.first = txn->lines_used,
		.lines = next_lines(txn, count),
	};
	rc = take_block(txn, block);
	if (rc)
		return rc;
	txn->blocks_count++;
	if (i)
		return announce_block(txn, block);
	/* It goes with the first lines. */
	txn->has_header = reef_header_take(txn->space, block->at, &txn->header);
	return 0;
}

int txn_lines(struct reef_txn *txn, struct item **items, uint32_t count)
{
	const struct txn_block *last = NULL;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (items[i]->line)
			continue;
		if (txn->blocks_count)
			last = &txn->blocks[txn->blocks_count - 1];
		if (!last || txn->lines_used == last->first + last->lines) {
			rc = add_block(txn, count - i);
			if (rc)
				return rc;
		}
		items[i]->line = ++txn->lines_used;
	}
	return 0;
}

uint64_t txn_line_at(const struct reef_txn *txn, const struct item *item)
{
	uint32_t line = item->line - 1, i = txn->blocks_count - 1;

	while (txn->blocks[i].first > line)
		i--;
	return intent_line_at(txn->blocks[i].at, line - txn->blocks[i].first);
}

void txn_blocks_free(struct reef_txn *txn, bool all_resolved)
{
	bool stays = !all_resolved ||
		     (txn->in_doubt && !REEF_MUTATED(TXN_REUSE_DOUBT));

	give_header(txn);
	for (uint32_t i = 0; i < txn->blocks_count && !stays; i++)
		reef_free(txn->space, txn->blocks[i].at,
			  REEF_MUTATED(TXN_REUSE_EARLY) ? 0 : REEF_FREE_LATER);
	txn->blocks_count = txn->lines_used = 0;
}

int txn_check_status(struct reef_txn *txn)
{
	uint64_t status;
	int rc = reef_read(txn->reef, txn_status_at(txn), &status, 8);

	if (rc)
		return rc;
	return status == INTENT_PENDING ? 0 : -ECANCELED;
}
