/* hold.c - keys of a tree that a transaction has.
 *
 *   the key has a slot            --CAS--> intent
 *   it has a record    mark; next slot 0 --CAS--> intent, before it: as in the
 *                                         record, or what that names outside
 *   it has neither     an entry with its key; next slot 0 --CAS--> intent,
 *                                         before it: that entry, DEAD
 *
 * Who takes a slot must have seen the keys of all slots below it: (1) of
 * layout.h. So of several keys of a leaf that have none one comes after the
 * other. Slots that are let go stay their keys', and a fold makes them free;
 * where a transaction needs more than a leaf has, the leaf is cut for it. */
#include "index/tree/hold.h"

#include "base/mutant.h"
#include "base/zeroed.h"
#include "index/tree/internal.h"
#include "pool/client/handle/near.h"

#include <stdlib.h>

#define CAREFUL 1000u /* looks that are not lazy, after a wrong guess */

struct tree_hold {
	struct hold hold;
	struct tree_spot spot;
	int at; /* the slot that is to be taken; TREE_SLOTS: there is none */
	bool lacks_room;
	struct entry_fresh ghost; /* of a key that is nowhere, while it is
				   * taken */
	char key[];
};

static struct tree_hold *of(const struct hold *hold)
{
	return (struct tree_hold *)(uintptr_t)hold;
}

static struct hold *make(void *structure, const void *key, uint32_t key_size)
{
	struct tree_hold *hold = reef_zeroed(sizeof(*hold) + key_size);

	if (!hold)
		return NULL;
	if (key_size)
		memcpy(hold->key, key, key_size);
	hold->hold.index = &tree_holds;
	hold->hold.structure = structure;
	hold->hold.key = hold->key;
	hold->hold.key_size = key_size;
	return &hold->hold;
}

static struct entry_home *home_of(void *structure)
{
	struct tree *tree = structure;

	return &tree->home;
}

static void free_hold(struct hold *hold)
{
	struct tree_hold *own = of(hold);

	reef_assert(!own->ghost.at);
	tree_spot_fini(&own->spot);
	free(own);
}

static const struct tree *of_tree(const struct hold *hold)
{
	return hold->structure;
}

/* --- finding --- */

/* A tree recalls nothing of slots: they are read each time. But the entry of a
 * slot that is the key's by its print is read when it is held, in one batch. */
static int recall(struct hold *hold, uint64_t word)
{
	return of(hold)->spot.slot >= 0 && word & TREE_INTENT &&
			       hold->epoch == reef_epoch(of_tree(hold)->reef)
		       ? -EALREADY
		       : 0;
}

static uint32_t read_size(const struct hold *hold)
{
	const struct tree *tree = hold->structure;

	return entry_read_size(tree->reef,
			       tree_slot_is_dead(hold->slot)
				       ? TREE_DEAD_HINT
				       : tree_slot_hint(hold->slot),
			       of(hold)->spot.entry_at);
}

static int read_guessed(struct hold *hold, struct reef_access *access)
{
	struct tree_spot *spot = &of(hold)->spot;
	int rc = entry_room_need(&spot->room, read_size(hold));

	*access = (struct reef_access){
		.kind = REEF_READ,
		.address = spot->entry_at,
		.local = spot->room.bytes,
		.length = read_size(hold),
	};
	return rc;
}

static void tell_entry(struct hold *hold)
{
	const struct tree_spot *spot = &of(hold)->spot;

	hold->entry = spot->is_there ? spot->entry
				     : (struct entry){
					       .key = hold->key,
					       .key_size = hold->key_size,
					       .stamp = ENTRY_GHOST,
				       };
}

static int complete(struct hold *hold)
{
	struct tree *tree = hold->structure;
	struct tree_spot *spot = &of(hold)->spot;
	int rc = tree_entry_end(tree, hold->slot, hold->blind ? 0 : UINT32_MAX,
				&spot->room, &spot->entry_at);

	if (rc <= 0)
		return rc && !index_is_nonsense(rc) ? rc : -REEF_ECORRUPT;
	if (!entry_is_of(spot->room.bytes, hold->key, hold->key_size) &&
	    !REEF_MUTATED(TXN_GUESS_BLIND)) {
		tree->careful = CAREFUL;
		return 0;
	}
	spot->is_there = !tree_slot_is_dead(hold->slot);
	spot->entry = entry_view(spot->room.bytes);
	if (hold->blind)
		spot->entry.value = NULL;
	spot->is_guessed = false;
	tell_entry(hold);
	return 1;
}

static void forget(struct hold *hold)
{
	(void)hold;
}

static void begin_spot(struct hold *hold, bool is_lazy)
{
	struct tree_spot *spot = &of(hold)->spot;
	const struct entry_room room = spot->room, bytes = spot->bytes;

	tree_node_unref(spot->node);
	*spot = (struct tree_spot){
		.key = hold->key,
		.key_size = hold->key_size,
		.to_change = true,
		.blind = hold->blind,
		.is_lazy = is_lazy,
		.room = room,
		.bytes = bytes,
	};
}

static int next_slot(const struct tree_spot *spot)
{
	int i = 0;

	while (i < (int)TREE_SLOTS && tree_slot_is_used(spot->slots[i]))
		i++;
	return i;
}

/* Tell of what was found. */
static void tell(struct hold *hold, int rc, bool to_hold)
{
	struct tree_hold *own = of(hold);
	const struct tree_spot *spot = &own->spot;

	hold->status = rc ? rc : spot->is_held ? -EALREADY : 0;
	if (rc)
		return;
	tell_entry(hold);
	hold->is_recalled = spot->is_guessed;
	own->at = spot->slot >= 0 ? spot->slot : next_slot(spot);
	own->lacks_room = to_hold && own->at == (int)TREE_SLOTS;
	hold->slot_at = spot->node->at + TREE_SLOTS_AT + 8 * (uint64_t)own->at;
	hold->slot = spot->slot >= 0 ? spot->slots[spot->slot] : 0;
}

static bool wants_slot(const struct hold *hold)
{
	return !hold->status && of(hold)->spot.slot < 0;
}

/* Of keys of one leaf that have no slot the first is taken; if all of them have
 * room in it. */
static void queue_up(struct hold **holds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct tree_node *node = of(holds[i])->spot.node;
		uint32_t wanted = 1;

		if (!wants_slot(holds[i]))
			continue;
		for (uint32_t j = i + 1; j < count; j++) {
			if (!wants_slot(holds[j]) ||
			    of(holds[j])->spot.node->at != node->at)
				continue;
			holds[j]->status = -EAGAIN;
			wanted++;
		}
		if ((uint32_t)of(holds[i])->at + wanted > TREE_SLOTS)
			of(holds[i])->lacks_room = true;
	}
}

/* Look at most TREE_LOOKED keys up in shared batches. */
static int find_together(struct tree *tree, struct hold **holds, uint32_t count,
			 int *told)
{
	struct tree_spot *spots = malloc(count * sizeof(*spots));
	uint32_t i;

	if (!spots)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		spots[i] = of(holds[i])->spot;
	tree_look_together(tree, spots, count, told);
	for (i = 0; i < count; i++)
		of(holds[i])->spot = spots[i];
	free(spots);
	return 0;
}

/* READ the entries of slots that were guessed, in one batch. A guess that was
 * wrong is looked up anew. */
static int read_entries(struct tree *tree, struct hold **holds, uint32_t count)
{
	struct reef_access accesses[TREE_LOOKED];
	uint32_t i, reads = 0;
	int rc = 0;

	for (i = 0; i < count && !rc; i++)
		if (!holds[i]->status && holds[i]->is_recalled)
			rc = read_guessed(holds[i], &accesses[reads++]);
	if (!rc && reads)
		rc = reef_execute(tree->reef, accesses, reads);
	for (i = 0; i < count && !rc; i++) {
		if (holds[i]->status || !holds[i]->is_recalled)
			continue;
		rc = complete(holds[i]);
		if (!rc) {
			begin_spot(holds[i], false);
			rc = tree_look(tree, &of(holds[i])->spot, NULL);
			tell(holds[i], rc, false);
		}
		holds[i]->is_recalled = false;
		rc = rc < 0 ? rc : 0;
	}
	return rc;
}

static int find_some(struct tree *tree, struct hold **holds, uint32_t count,
		     bool to_hold)
{
	bool is_near = client_is_near(tree->reef);
	int told[TREE_LOOKED] = {0}, rc = 0;
	struct tree_spot *spot;

	for (uint32_t i = 0; i < count; i++)
		begin_spot(holds[i], !is_near && !tree->careful);
	tree->careful -= tree->careful ? 1 : 0;
	if (!is_near)
		rc = find_together(tree, holds, count, told);
	for (uint32_t i = 0; i < count && !rc; i++) {
		spot = &of(holds[i])->spot;
		if (!told[i])
			told[i] = tree_look(tree, spot, NULL);
		tell(holds[i], told[i] == 1 ? 0 : told[i], to_hold);
		tree_mend(tree, &spot->missing);
	}
	if (!rc && to_hold)
		queue_up(holds, count);
	else if (!rc)
		rc = read_entries(tree, holds, count);
	return rc;
}

static int find(void *structure, struct hold **holds, uint32_t count,
		bool to_hold)
{
	struct tree *tree = structure;
	uint32_t some;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++)
		holds[i]->epoch = reef_epoch(tree->reef);
	for (; count && !rc; count -= some, holds += some) {
		some = count < TREE_LOOKED ? count : TREE_LOOKED;
		rc = find_some(tree, holds, some, to_hold);
	}
	return rc;
}

static bool is_there(const struct hold *hold)
{
	return (!hold->status || hold->status == -EALREADY) &&
	       of(hold)->spot.is_there;
}

static bool is_frozen(const struct hold *hold)
{
	const struct tree_hold *own = of(hold);

	if (hold->status && hold->status != -EALREADY)
		return false;
	return own->lacks_room || (own->at < (int)TREE_SLOTS &&
				   own->spot.slots[own->at] & TREE_FROZEN);
}

/* --- room --- */

static int compare_keys(const void *a, const void *b)
{
	const struct tree_key *first = a, *second = b;

	return tree_compare(first->key, first->key_size, second->key,
			    second->key_size);
}

static int split(struct hold *hold, struct hold **all, uint32_t count,
		 struct intent_wait *wait)
{
	struct tree *tree = hold->structure;
	struct tree_spot *spot = &of(hold)->spot;
	struct tree_key *keys;
	uint64_t *own;
	uint32_t keys_count = 0, own_count = 0;
	int rc = 0;

	keys = calloc(count + 1u, sizeof(*keys));
	own = calloc(count + 1u, sizeof(*own));
	if (!keys || !own)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < count && !rc; i++) {
		if (all[i]->structure != hold->structure)
			continue;
		keys[keys_count++] =
			(struct tree_key){all[i]->key, all[i]->key_size};
		if (all[i]->is_held)
			own[own_count++] = all[i]->word;
	}
	if (!rc) {
		qsort(keys, keys_count, sizeof(*keys), compare_keys);
		rc = tree_intents_wait(tree, spot->node->at, spot->slots, own,
				       own_count, wait);
	}
	if (!rc)
		rc = tree_reshape_for(tree, spot->node, keys, keys_count,
				      &spot->missing);
	tree_mend(tree, &spot->missing);
	free(keys);
	free(own);
	return rc;
}

static int pass(struct hold *hold, struct intent_wait *wait)
{
	return tree_intent_pass(hold->structure, hold->slot_at, hold->slot,
				&of(hold)->spot.intent, wait);
}

/* --- taking --- */

/* What counts of a key that has no slot: as a slot would say it. */
static int make_before(struct tree *tree, struct tree_hold *own,
		       uint64_t *before)
{
	const struct tree_spot *spot = &own->spot;
	const uint32_t print = tree_print(spot->hash);
	const struct entry none = {0};
	int rc = 0;

	if (spot->record >= 0 && spot->outside) {
		*before = tree_slot_make(tree_slot_block(spot->outside),
					 tree_slot_hint(spot->outside), print) |
			  TREE_IN_BASE;
		return 0;
	}
	if (spot->record >= 0) {
		*before = tree_slot_make((uint64_t)spot->record, 0, print) |
			  TREE_IN_BASE;
		return 0;
	}
	if (!own->ghost.at)
		rc = entry_fresh_make(&tree->home, own->hold.key,
				      own->hold.key_size, &none, &own->ghost);
	*before = tree_slot_make(own->ghost.block, TREE_DEAD, print);
	return rc;
}

static int prepare(struct hold *hold, uint64_t line_block,
		   struct intent_line *line)
{
	struct tree *tree = hold->structure;
	struct tree_hold *own = of(hold);
	uint64_t old = hold->slot;
	int rc = old ? 0 : make_before(tree, own, &old);

	if (rc)
		return rc;
	hold->line = line_block;
	hold->before = old & TREE_CONTENT;
	hold->word = tree_slot_after(
		hold->slot,
		tree_slot_make(line_block, 0, tree_slot_print(old)) |
			TREE_INTENT | (old & TREE_IN_BASE));
	line->old = old;
	line->hash = own->spot.node->head;
	line->slot = (uint8_t)own->at;
	line->number = tree->home.number;
	line->index = INTENT_TREE;
	return 0;
}

static uint32_t ahead(const struct hold *hold, struct reef_access *accesses)
{
	static const uint8_t one = 1;
	const struct tree_hold *own = of(hold);
	uint32_t count = 0;

	if (hold->slot)
		return 0;
	if (own->spot.record >= 0 && !REEF_MUTATED(TREE_NO_MARK))
		accesses[count++] = (struct reef_access){
			.kind = REEF_WRITE,
			.address = own->spot.node->at + own->spot.mark_at,
			.local = (void *)(uintptr_t)&one,
			.length = 1,
		};
	if (own->ghost.at)
		accesses[count++] = entry_fresh_access(&own->ghost);
	return count;
}

static void held(struct hold *hold)
{
	/* The slot's now, unless the key had one by then. */
	if (!hold->slot)
		entry_fresh_drop(home_of(hold->structure), &of(hold)->ghost,
				 REEF_MUTATED(TXN_GHOST_FREED));
}

static void doubted(struct hold *hold)
{
	/* A slot may name it: recovery asks, when we end. */
	entry_fresh_drop(home_of(hold->structure), &of(hold)->ghost, false);
}

static void discard(struct hold *hold)
{
	entry_fresh_discard(home_of(hold->structure), &of(hold)->ghost);
}

/* --- what becomes of it --- */

static int put(struct hold *hold, const struct entry *put)
{
	struct tree *tree = hold->structure;
	int rc = entry_fresh_make(&tree->home, hold->key, hold->key_size, put,
				  &hold->fresh);

	if (!rc)
		hold->next = tree_slot_make(hold->fresh.block, hold->fresh.hint,
					    tree_slot_print(hold->before)) |
			     (hold->before & TREE_IN_BASE);
	return rc;
}

static void remove_key(struct hold *hold)
{
	hold->next = tree_slot_make(tree_slot_block(hold->before), TREE_DEAD,
				    tree_slot_print(hold->before)) |
		     (hold->before & TREE_IN_BASE);
}

static uint64_t dies(const struct hold *hold)
{
	(void)hold;
	return 0;
}

static bool release(const struct hold *hold, struct reef_access *access)
{
	uint64_t next =
		REEF_MUTATED(TXN_RESOLVE_OLD) ? hold->before : hold->next;

	*access = (struct reef_access){
		.kind = REEF_CAS,
		.address = hold->slot_at,
		.compare = hold->word,
		.operand = tree_slot_after(hold->word, next),
	};
	/* A tag that comes round: intent.c. */
	return hold->word < UINT64_MAX - TREE_TAG_ONE + 1;
}

static void released(struct hold *hold)
{
	struct tree *tree = hold->structure;
	uint64_t at;

	if (tree_slot_has_entry(hold->before) &&
	    tree_slot_block(hold->before) != tree_slot_block(hold->next) &&
	    !reef_long_address(tree->space, tree_slot_block(hold->before), &at))
		entry_free(&tree->home, at);
}

static int resolve(struct hold *hold, uint64_t status, bool by_address)
{
	struct tree *tree = hold->structure;
	const struct intent intent = {
		.line =
			{
				.old = hold->before,
				.hash = of(hold)->spot.node->head,
				.slot = (uint8_t)of(hold)->at,
				.index = INTENT_TREE,
				.next = hold->next,
			},
		.status = status,
	};
	int rc;

	if (by_address || REEF_MUTATED(TXN_RESOLVE_STALE)) {
		rc = tree_intent_resolve(tree, hold->slot_at, hold->word,
					 &intent, 0);
		return rc < 0 ? rc : 0;
	}
	rc = tree_prove(tree);
	if (!rc)
		rc = tree_intent_resolve_line(tree, &intent, hold->line);
	return rc == -REEF_EDROPPED ? 0 : rc;
}

/* --- looking again --- */

static uint32_t look(const struct hold *hold, struct hold_look *look,
		     struct reef_access *accesses)
{
	const struct tree_spot *spot = &of(hold)->spot;
	uint32_t count = 0;

	accesses[count++] = (struct reef_access){
		.kind = REEF_READ,
		.address = spot->node->at,
		.local = look->words,
		.length = TREE_FRONT,
	};
	look->status = spot->intent.status;
	if (spot->is_held && look->status == INTENT_PENDING &&
	    !REEF_MUTATED(TXN_PENDING_OLD))
		accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = spot->intent.line.main,
			.local = &look->status,
			.length = 8,
		};
	return count;
}

/* The block is the leaf's still, and the key's slot is what it was; or none is
 * its, as none with its print has come. */
static bool is_same(const struct hold *hold, const struct hold_look *look)
{
	const struct tree_spot *spot = &of(hold)->spot;
	const uint64_t *slots = &look->words[2];

	static_assert(TREE_FRONT <= sizeof(look->words), "room");
	if (look->words[0] != spot->node->id)
		return false;
	if (spot->slot >= 0)
		return slots[spot->slot] == spot->slots[spot->slot] &&
		       (!spot->is_held || look->status == spot->intent.status);
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		if (slots[i] != spot->slots[i] &&
		    tree_slot_print(slots[i]) == tree_print(spot->hash))
			return false;
	return true;
}

const struct hold_index tree_holds = {
	.make = make,
	.free = free_hold,
	.home = home_of,
	.recall = recall,
	.read = read_guessed,
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
