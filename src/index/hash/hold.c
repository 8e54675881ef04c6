/* hold.c - keys of a table that a transaction has: see hold.h. */
#include "index/hash/hold.h"

#include "base/mutant.h"
#include "base/zeroed.h"
#include "index/hash/near.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPARES_MAX 16u
#define SPARE_KEY 64u	  /* bytes of a key that a spare one has room for */
#define SPARE_VALUE 4096u /* the most room for a value that one keeps */

struct hash_hold {
	struct hold hold;
	struct hash_hold *next; /* of the table's, that are free */
	struct hash_reading reading;
	char key[];
};

static struct hash_hold *of(const struct hold *hold)
{
	return (struct hash_hold *)(uintptr_t)hold;
}

/* Take a hold for a key of that size; with the room for values that it had. */
static struct hash_hold *take_spare(struct hash_table *table, uint32_t key_size)
{
	struct hash_hold *hold = table->holds;

	if (key_size <= SPARE_KEY && hold) {
		table->holds = hold->next;
		table->holds_count--;
		return hold;
	}
	hold = malloc(sizeof(*hold) +
		      (key_size < SPARE_KEY ? SPARE_KEY : key_size));
	if (hold)
		hold->reading.room = (struct entry_room){0};
	return hold;
}

static struct hold *make(void *table, const void *key, uint32_t key_size)
{
	const struct hash_table *own = table;
	struct hash_hold *hold = take_spare(table, key_size);

	if (!hold)
		return NULL;
	if (key_size)
		memcpy(hold->key, key, key_size);
	reef_zero(&hold->hold, sizeof(hold->hold));
	hold->hold.index = &hash_holds;
	hold->hold.structure = table;
	hold->hold.key = hold->key;
	hold->hold.key_size = key_size;
	hash_reading_begin(&hold->reading, hold->key, key_size,
			   hold->reading.room.bytes, hold->reading.room.size);
	hash_place(table, &hold->reading);
	/* They come into the cache while others of its keys are made ready. */
	if (client_is_near(own->reef))
		hash_near_prefetch_places(own, &hold->reading);
	return &hold->hold;
}

static void free_hold(struct hold *hold)
{
	struct hash_table *table = hold->structure;
	struct hash_hold *own = of(hold);

	if (hold->key_size <= SPARE_KEY && table->holds_count < SPARES_MAX &&
	    own->reading.room.size <= SPARE_VALUE) {
		own->next = table->holds;
		table->holds = own;
		table->holds_count++;
		return;
	}
	hash_reading_free(&own->reading);
	free(own);
}

void hash_holds_free(struct hash_hold *holds)
{
	struct hash_hold *next;

	for (; holds; holds = next) {
		next = holds->next;
		hash_reading_free(&holds->reading);
		free(holds);
	}
}

static struct entry_home *home_of(void *structure)
{
	struct hash_table *table = structure;

	return &table->home;
}

/* Tell of what was read. */
static void tell(struct hash_hold *hold)
{
	hold->hold.status = hold->reading.status;
	hold->hold.entry = hold->reading.entry;
	hold->hold.slot_at = hold->reading.slot_at;
	hold->hold.slot = hold->reading.slot;
}

/* --- what is remembered --- */

/* Go by what the slot is now. It may be another key's by then: an entry is
 * looked at when its slot is held. */
static int recall_word(struct hold *hold, uint64_t word)
{
	struct hash_table *table = hold->structure;
	struct hash_reading *reading = &of(hold)->reading;

	if (hold->epoch != reef_epoch(table->reef) ||
	    hash_slot_is_empty(word) ||
	    word & (HASH_FROZEN | HASH_PROVISIONAL) ||
	    hash_slot_print(word) != reading->print)
		return 0;
	if (word & HASH_INTENT)
		return -EALREADY;
	if (reef_long_address(table->space, hash_slot_block(word),
			      &reading->entry_at))
		return 0;
	reading->content = reading->slot = word;
	reading->is_held = false;
	hold->is_recalled = true;
	tell(of(hold));
	return 1;
}

static int recall(struct hold *hold, uint64_t word)
{
	struct hash_table *table = hold->structure;
	struct hash_reading *reading = &of(hold)->reading;
	const struct hash_memo *memo;

	if (word)
		return recall_word(hold, word);
	memo = hash_memo_of(table, reading->hash);
	hold->is_recalled =
		memo->version && memo->hash == reading->hash &&
		memo->epoch == reef_epoch(table->reef) &&
		!(memo->slot & (HASH_FROZEN | HASH_INTENT | HASH_PROVISIONAL));
	if (!hold->is_recalled)
		return 0;
	reading->entry_at = memo->entry_at;
	reading->version = memo->version;
	reading->slot_at = memo->slot_at;
	reading->content = reading->slot = memo->slot;
	reading->depth = memo->depth;
	reading->is_held = false;
	tell(of(hold));
	hold->epoch = memo->epoch;
	return 1;
}

static int read_recalled(struct hold *hold, struct reef_access *access)
{
	struct hash_table *table = hold->structure;
	struct hash_reading *reading = &of(hold)->reading;
	uint32_t size =
		hash_entry_read_size(table, reading->slot, reading->entry_at);
	int rc = entry_room_need(&reading->room, size);

	*access = (struct reef_access){
		.kind = REEF_READ,
		.address = reading->entry_at,
		.local = reading->room.bytes,
		.length = size,
	};
	return rc;
}

static int complete(struct hold *hold)
{
	struct hash_table *table = hold->structure;
	struct hash_reading *reading = &of(hold)->reading;
	int rc = hash_entry_complete(
		table, reading, reading->entry_at,
		hash_entry_read_size(table, reading->slot, reading->entry_at));

	if (rc < 0)
		return rc;
	if (!rc ||
	    !entry_is_of(reading->room.bytes, reading->key, reading->key_size))
		return 0;
	reading->entry = entry_view(reading->room.bytes);
	reading->status = 0;
	tell(of(hold));
	return 1;
}

static void forget(struct hold *hold)
{
	hash_remember(hold->structure, &of(hold)->reading, 0, 0, 0, 0);
	hold->is_recalled = false;
}

/* --- finding --- */

static void begin_reading(struct hold *hold)
{
	struct hash_reading *reading = &of(hold)->reading;

	hold->is_recalled = false;
	reading->to_change = true;
	reading->losses = 0;
	reading->value_most = 0;
	reading->blind = hold->blind;
}

static int find_some(struct hash_table *table, struct hold **holds,
		     uint32_t count)
{
	struct hash_reading *readings = malloc(count * sizeof(*readings));
	uint32_t i;
	int rc;

	if (!readings)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		begin_reading(holds[i]);
		readings[i] = of(holds[i])->reading;
	}
	rc = hash_find(table, readings, count);
	for (i = 0; i < count; i++)
		of(holds[i])->reading = readings[i];
	free(readings);
	return rc;
}

static int find(void *structure, struct hold **holds, uint32_t count,
		bool to_hold)
{
	struct hash_table *table = structure;
	const uint64_t epoch = reef_epoch(table->reef);
	bool is_near = client_is_near(table->reef);
	uint32_t some, i, done = 0;
	int rc = 0;

	(void)to_hold;
	for (i = 0; i < count; i++)
		holds[i]->epoch = epoch;
	/* In place there are no round trips that could be shared. */
	for (; (count == 1 || is_near) && done < count && !rc; done++) {
		begin_reading(holds[done]);
		rc = hash_find_placed(table, &of(holds[done])->reading);
	}
	for (; done < count && !rc; done += some) {
		some = count - done < HASH_TOGETHER ? count - done
						    : HASH_TOGETHER;
		rc = find_some(table, holds + done, some);
	}
	for (i = 0; i < count; i++)
		tell(of(holds[i]));
	return rc;
}

static bool is_there(const struct hold *hold)
{
	const struct hash_reading *reading = &of(hold)->reading;

	if (reading->status == -EALREADY)
		return !hash_slot_is_empty(
			hash_intent_content(&reading->intent));
	return !reading->status;
}

static bool is_frozen(const struct hold *hold)
{
	const struct hash_reading *reading = &of(hold)->reading;
	uint64_t all = 0;

	if (reading->status != -ENOENT)
		return reading->slot & HASH_FROZEN;
	for (uint32_t i = 0; i < HASH_PLACE_SLOTS; i++)
		all |= reading->slots[0][i] | reading->slots[1][i];
	return all & HASH_FROZEN;
}

static int split(struct hold *hold, struct hold **all, uint32_t count,
		 struct intent_wait *wait)
{
	const struct hash_reading *reading = &of(hold)->reading;

	(void)all;
	(void)count;
	(void)wait;
	return hash_split(hold->structure, reading->hash, reading->depth);
}

static int pass(struct hold *hold, struct intent_wait *wait)
{
	return hash_intent_pass(hold->structure, hold->slot_at, hold->slot,
				&of(hold)->reading.intent, wait);
}

static int prepare(struct hold *hold, uint64_t line_block,
		   struct intent_line *line)
{
	const struct hash_table *table = hold->structure;

	hold->line = line_block;
	hold->word = hash_tagged(
		hold->slot,
		hash_slot_make(line_block, 0, hash_slot_print(hold->slot)) |
			HASH_INTENT);
	hold->before = hold->slot & HASH_CONTENT;
	line->old = hold->slot;
	line->hash = of(hold)->reading.hash;
	line->number = table->home.number;
	line->index = INTENT_HASH;
	return 0;
}

static uint32_t ahead(const struct hold *hold, struct reef_access *accesses)
{
	(void)hold;
	(void)accesses;
	return 0;
}

static void held(struct hold *hold)
{
	(void)hold;
}

static void doubted(struct hold *hold)
{
	(void)hold;
}

static void discard(struct hold *hold)
{
	(void)hold;
}

/* --- what becomes of it --- */

static int put(struct hold *hold, const struct entry *put)
{
	struct hash_table *table = hold->structure;
	const struct hash_reading *reading = &of(hold)->reading;
	int rc = entry_fresh_make(&table->home, hold->key, hold->key_size, put,
				  &hold->fresh);

	if (!rc)
		hold->next = hash_fresh_content(reading, &hold->fresh);
	return rc;
}

static void remove_key(struct hold *hold)
{
	hold->next = hash_slot_dead(hold->slot);
}

static bool replaces(const struct hold *hold)
{
	return hold->next != hold->before;
}

static uint64_t dies(const struct hold *hold)
{
	return replaces(hold) ? of(hold)->reading.entry_at : 0;
}

static bool release(const struct hold *hold, struct reef_access *access)
{
	uint64_t next = hash_tagged(hold->word, hold->next);

	if (REEF_MUTATED(TXN_RESOLVE_OLD))
		next = hash_tagged(hold->word, hold->before);
	*access = (struct reef_access){
		.kind = REEF_CAS,
		.address = hold->slot_at,
		.compare = hold->word,
		.operand = next,
	};
	/* A tag that comes round needs another block: intent.c. */
	return replaces(hold) || hold->word < UINT64_MAX - HASH_TAG_ONE + 1;
}

static void released(struct hold *hold)
{
	struct hash_table *table = hold->structure;
	const struct hash_reading *reading = &of(hold)->reading;
	uint64_t slot = hash_tagged(hold->word, hold->next);

	if (!replaces(hold)) {
		if (!reading->blind)
			hash_remember(table, reading, hold->slot_at, slot,
				      reading->entry_at,
				      reading->entry.version);
		return;
	}
	entry_free(&table->home, reading->entry_at);
	if (hold->fresh.at)
		hash_remember(table, reading, hold->slot_at, slot,
			      hold->fresh.at, hold->fresh.bytes->version);
	else
		hash_remember(table, reading, 0, 0, 0, 0);
}

static int resolve(struct hold *hold, uint64_t status, bool by_address)
{
	const struct intent intent = {
		.line =
			{
				.old = hold->slot,
				.hash = of(hold)->reading.hash,
				.index = INTENT_HASH,
				.next = hold->next,
			},
		.status = status,
	};
	int rc;

	hash_remember(hold->structure, &of(hold)->reading, 0, 0, 0, 0);
	if (!by_address && !REEF_MUTATED(TXN_RESOLVE_STALE)) {
		do
			rc = hash_intent_resolve_line(hold->structure, &intent,
						      hold->line);
		while (rc == -EAGAIN);
		return rc == -REEF_EDROPPED ? 0 : rc;
	}
	rc = hash_intent_resolve(hold->structure, hold->slot_at, hold->word,
				 &intent, 0);
	return rc < 0 ? rc : 0;
}

/* --- looking again --- */

static uint32_t look(const struct hold *hold, struct hold_look *look,
		     struct reef_access *accesses)
{
	const struct hash_reading *reading = &of(hold)->reading;
	uint32_t count = 0;

	if (reading->status == -ENOENT) {
		for (; count < 2; count++)
			accesses[count] = (struct reef_access){
				.kind = REEF_READ,
				.address =
					reading->leaf + reading->place[count],
				.local = look->words + HASH_PLACE_SLOTS * count,
				.length = HASH_PLACE_SIZE,
			};
		return count;
	}
	accesses[count++] = (struct reef_access){
		.kind = REEF_READ,
		.address = reading->slot_at,
		.local = look->words,
		.length = 8,
	};
	look->status = reading->intent.status;
	if (reading->status == -EALREADY && look->status == INTENT_PENDING &&
	    !REEF_MUTATED(TXN_PENDING_OLD))
		accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = reading->intent.line.main,
			.local = &look->status,
			.length = 8,
		};
	return count;
}

static bool is_same(const struct hold *hold, const struct hold_look *look)
{
	const struct hash_reading *reading = &of(hold)->reading;

	if (reading->status == -ENOENT)
		return !memcmp(look->words, reading->slots,
			       sizeof(look->words));
	return look->words[0] == reading->slot &&
	       (reading->status != -EALREADY ||
		look->status == reading->intent.status);
}

const struct hold_index hash_holds = {
	.make = make,
	.free = free_hold,
	.home = home_of,
	.recall = recall,
	.read = read_recalled,
	.complete = complete,
	.forget = forget,
	.find = find,
	.is_there = is_there,
	.is_frozen = is_frozen,
	.split = split,
	.pass = pass,
	.prepare = prepare,
	.ahead = ahead,
	.held = held,
	.doubted = doubted,
	.discard = discard,
	.put = put,
	.remove = remove_key,
	.dies = dies,
	.release = release,
	.released = released,
	.resolve = resolve,
	.look = look,
	.is_same = is_same,
};
