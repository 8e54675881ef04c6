/* copy.c - a leaf that is remembered, copied for a scan.
 *
 * In place: between enter and leave the intervals that are wanted and the
 * entries of the slots are copied, and then the block's id looked at: so they
 * are the leaf at one moment, as near.c has it. What is done with them comes
 * after that, as whoever is told of keys may take any time.
 *
 * By READs: of several leaves the intervals that are wanted and the fronts, in
 * one batch, and the entries of their slots in the next. Each interval is alive
 * and whole, so its records are the leaf's, and the id is there when the slots
 * are read, which say what became of them. So what is remembered saves the
 * READs of heads, and of what is not wanted of the first leaf and the last.
 *
 * An interval is taken apart when its turn comes; records and slots are told in
 * one order. */
#include "index/tree/internal.h"

#include "base/mutant.h"
#include "pool/client/handle/near.h"

#include <stdlib.h>
#include <string.h>

#define SLACK 16u /* bytes behind what is copied, for copy_short */

/* As memcpy, without a call for what is short: up to SLACK bytes behind both
 * may be read, and written. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t size)
{
	uint64_t some[SLACK / 8];

	if (unlikely(size > SLACK)) {
		memcpy(to, from, size);
		return;
	}
	/* Both may overlap behind what is copied. */
	memcpy(some, from, SLACK);
	memcpy(to, some, SLACK);
}

void tree_copy_fini(struct tree_copy *copy)
{
	tree_node_unref(copy->node);
	entry_room_free(&copy->bytes);
	entry_room_free(&copy->entries);
	entry_room_free(&copy->keys);
	*copy = (struct tree_copy){0};
}

/* --- taking it --- */

/* Which intervals are wanted: from the key on, as many as have `left` records,
 * or backward, up to it. (The caller adds some that may be deleted.) */
static void choose_parts(struct tree_copy *copy, const void *key,
			 uint32_t key_size, bool backward, uint64_t left)
{
	const struct tree_node *node = copy->node;
	const struct tree_span *parts = tree_node_spans(node);
	int part =
		node->count ? tree_node_part(node, key, key_size, false) : -1;

	copy->first = backward || part < 0 ? 0 : (uint32_t)part;
	copy->end = backward ? (uint32_t)(part + 1) : node->count;
	if (left > TREE_KEYS_MAX)
		return;
	if (backward) {
		while (copy->first + 1 < copy->end &&
		       parts[copy->end].first >=
			       parts[copy->first + 1].first + left)
			copy->first++;
		return;
	}
	while (copy->end > copy->first + 1 &&
	       parts[copy->end - 1].first >= parts[copy->first].first + left)
		copy->end--;
}

/* Where the wanted intervals are in the block, and how many bytes. */
static uint32_t wanted_at(const struct tree_copy *copy)
{
	return tree_span_at(&tree_node_spans(copy->node)[copy->first]);
}

static uint32_t wanted_size(const struct tree_copy *copy)
{
	return tree_span_at(&tree_node_spans(copy->node)[copy->end]) -
	       wanted_at(copy);
}

/* Find the entries of all slots, where they are. */
static bool find_changes(struct tree *tree, struct tree_copy *copy,
			 const uint64_t *slots, size_t *size)
{
	uint64_t at;

	copy->count = copy->dead_count = 0;
	*size = 0;
	for (uint32_t i = 0; i < TREE_SLOTS && slots[i]; i++)
		if (tree_slot_has_entry(slots[i]) &&
		    client_near_long(tree->space, tree_slot_block(slots[i]),
				     &at)) {
			const uint8_t *head =
				client_near_see(tree->reef, at, 128);

			if (head)
				reef_near_prefetch(head, 128, false);
		}
	for (uint32_t i = 0; i < TREE_SLOTS; i++) {
		struct tree_change *change = &copy->changes[copy->count];

		if (!slots[i])
			break; /* they are used in order */
		if (unlikely(!tree_slot_is_plain(slots[i]))) {
			if (tree_slot_is_used(slots[i]))
				return false; /* a transaction has it */
			continue;
		}
		if (!tree_slot_has_entry(slots[i])) {
			/* If not, it is as in its record. */
			if (tree_slot_is_dead(slots[i]))
				copy->dead[copy->dead_count++] =
					(uint32_t)tree_slot_block(slots[i]);
			continue;
		}
		if (!tree_near_entry(tree, slots[i], &at, &change->entry))
			return false;
		change->is_dead = tree_slot_is_dead(slots[i]) &&
				  !REEF_MUTATED(TREE_NEAR_DEAD);
		*size += change->entry.key_size + change->entry.value_size;
		copy->count++;
	}
	return true;
}

/* Copy their keys and values. */
static bool copy_changes(struct tree_copy *copy, size_t size)
{
	const uint32_t prefix = copy->node->prefix_size;
	uint8_t *to;

	if (entry_room_need(&copy->entries, size + 1))
		return false;
	to = copy->entries.bytes;
	for (uint32_t i = 0; i < copy->count; i++) {
		struct entry *entry = &copy->changes[i].entry;
		uint32_t whole = entry->key_size + entry->value_size;

		/* The value is behind the key. */
		memcpy(to, entry->key, whole);
		entry->key = to;
		entry->value = to + entry->key_size;
		copy->changes[i].digest =
			tree_digest(entry->key, entry->key_size, prefix);
		to += whole;
	}
	return true;
}

static inline int compare_change(const struct tree_change *change,
				 uint64_t digest, const void *key,
				 uint32_t key_size)
{
	if (likely(change->digest != digest))
		return change->digest < digest ? -1 : 1;
	return tree_compare(change->entry.key, change->entry.key_size, key,
			    key_size);
}

static void sort_changes(struct tree_copy *copy)
{
	for (uint32_t i = 0; i < copy->count; i++) {
		const struct tree_change *change = &copy->changes[i];
		uint32_t at = i;

		while (at && !REEF_MUTATED(TREE_NEAR_UNSORTED) &&
		       compare_change(&copy->changes[copy->order[at - 1]],
				      change->digest, change->entry.key,
				      change->entry.key_size) > 0) {
			copy->order[at] = copy->order[at - 1];
			at--;
		}
		copy->order[at] = (uint8_t)i;
	}
}

/* (R10) True if what the slots say, in its order, is between the fences, each
 * key once: a slot may name the entry of another. */
static bool is_sound(const struct tree_copy *copy)
{
	const struct tree_node *node = copy->node;
	const struct tree_change *change, *before = NULL;

	for (uint32_t i = 0; i < copy->count; i++, before = change) {
		const struct entry *entry;

		change = &copy->changes[copy->order[i]];
		entry = &change->entry;
		/* Without the prefix digests would say nothing. */
		if (!tree_key_begins(
			    entry->key, entry->key_size,
			    tree_digest(entry->key, entry->key_size, 0),
			    node->low, node->low_word, node->prefix_size) ||
		    (before && !compare_change(before, change->digest,
					       entry->key, entry->key_size)))
			return false;
	}
	if (!before)
		return true;
	change = &copy->changes[copy->order[0]];
	return tree_compare(change->entry.key, change->entry.key_size,
			    node->low, node->low_size) >= 0 &&
	       (!node->high ||
		tree_compare(before->entry.key, before->entry.key_size,
			     node->high, node->high_size) < 0);
}

/* Between enter and leave. */
static bool copy_leaf(struct tree *tree, struct tree_copy *copy,
		      const void *key, uint32_t key_size, bool before,
		      bool backward, uint64_t left)
{
	struct tree_after after;
	struct tree_node *node = tree_near_node(tree, key, key_size, before,
						reef_epoch(tree->reef), &after);
	uint64_t slots[TREE_SLOTS];
	const uint8_t *block;
	uint32_t from, size;
	size_t entries;

	if (!node)
		return false;
	block = tree_near_block(tree, node);
	if (!block)
		return false;
	tree_node_unref(copy->node);
	copy->node = node;
	node->refs++;
	choose_parts(copy, key, key_size, backward,
		     left < TREE_KEYS_MAX ? left + TREE_SLOTS : left);
	from = wanted_at(copy);
	size = wanted_size(copy);
	tree_near_slots(block, slots);
	if (entry_room_need(&copy->bytes, size + SLACK) ||
	    !find_changes(tree, copy, slots, &entries))
		return false;
	memcpy(copy->bytes.bytes, block + from, size);
	if (!backward && copy->end == node->count)
		tree_near_fetch(tree, &after);
	return copy_changes(copy, entries) && tree_near_is(block, node->id);
}

bool tree_copy_take(struct tree *tree, struct tree_copy *copy, const void *key,
		    uint32_t key_size, bool before, bool backward,
		    uint64_t left)
{
	bool is_taken;

	if (!client_near_enter(tree->reef))
		return false;
	is_taken = copy_leaf(tree, copy, key, key_size, before, backward, left);
	client_near_leave(tree->reef);
	if (is_taken)
		sort_changes(copy);
	return is_taken && is_sound(copy) && tree_near_counts(tree);
}

/* --- reading it --- */

void tree_fetch_begin(struct tree_fetch *fetch, struct tree_node *node,
		      const void *key, uint32_t key_size, bool backward,
		      uint64_t left)
{
	tree_node_unref(fetch->copy.node);
	fetch->copy.node = node;
	node->refs++;
	choose_parts(&fetch->copy, key, key_size, backward, left);
}

uint32_t tree_fetch_records(const struct tree_fetch *fetch)
{
	const struct tree_span *spans = tree_node_spans(fetch->copy.node);

	return (uint32_t)(spans[fetch->copy.end].first -
			  spans[fetch->copy.first].first);
}

/* READ the wanted intervals and the fronts of leaves. */
static int read_leaves(struct tree *tree, struct tree_fetch *fetches,
		       uint32_t count)
{
	struct reef_access accesses[2 * TREE_FETCHED];
	uint32_t reads = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct tree_fetch *fetch = &fetches[i];
		uint32_t size = wanted_size(&fetch->copy);
		int rc = entry_room_need(&fetch->copy.bytes, size + SLACK);

		if (rc)
			return rc;
		if (size)
			accesses[reads++] = (struct reef_access){
				.kind = REEF_READ,
				.address = fetch->copy.node->at +
					   wanted_at(&fetch->copy),
				.local = fetch->copy.bytes.bytes,
				.length = size,
			};
		accesses[reads++] = (struct reef_access){
			.kind = REEF_READ,
			.address = fetch->copy.node->at,
			.local = fetch->front,
			.length = TREE_FRONT,
		};
	}
	return reef_execute(tree->reef, accesses, reads);
}

/* True if a leaf that was read is what is remembered. */
static bool is_as_it_was(const struct tree_fetch *fetch)
{
	const struct tree_copy *copy = &fetch->copy;
	const struct tree_span *spans = tree_node_spans(copy->node);
	struct tree_walk walk;

	if (REEF_MUTATED(TREE_FETCH_UNPROVED))
		return true;
	for (uint32_t i = copy->first; i < copy->end; i++)
		if (!tree_interval_begin(
			    &walk,
			    (const uint8_t *)copy->bytes.bytes +
				    tree_span_at(&spans[i]) - wanted_at(copy),
			    tree_span_size(&spans[i]), copy->node->id))
			return false;
	return fetch->front[0] == copy->node->id;
}

/* READ the entries of the leaves' slots. Those that transactions have say what
 * their statuses say. */
static int read_changes(struct tree *tree, struct tree_fetch *fetches,
			uint32_t count, uint32_t value_most)
{
	struct reef_access accesses[TREE_FETCHED * TREE_SLOTS];
	uint32_t reads = 0, i;
	int rc = 0;

	for (i = 0; i < count && !rc; i++)
		rc = tree_settle(tree, &fetches[i].front[2], NULL);
	for (i = 0; i < count && !rc; i++)
		rc = tree_entries_begin(tree, &fetches[i].front[2],
					&fetches[i].entries, accesses, &reads);
	if (!rc && reads)
		rc = reef_execute(tree->reef, accesses, reads);
	for (i = 0; i < count && !rc; i++)
		rc = tree_entries_end(tree, &fetches[i].front[2], value_most,
				      &fetches[i].entries);
	return rc;
}

/* Take over what the slots say. False: it is nonsense. */
static bool take_changes(struct tree_fetch *fetch)
{
	struct tree_copy *copy = &fetch->copy;
	const uint64_t *slots = &fetch->front[2];

	copy->count = copy->dead_count = 0;
	for (uint32_t i = 0; i < TREE_SLOTS; i++) {
		struct tree_change *change = &copy->changes[copy->count];

		if (!tree_slot_is_used(slots[i]))
			continue;
		if (!tree_slot_has_entry(slots[i])) {
			/* If not, it is as in its record. */
			if (tree_slot_is_dead(slots[i]))
				copy->dead[copy->dead_count++] =
					(uint32_t)tree_slot_block(slots[i]);
			continue;
		}
		change->entry = entry_view(fetch->entries.rooms[i].bytes);
		change->is_dead = tree_slot_is_dead(slots[i]);
		change->digest =
			tree_digest(change->entry.key, change->entry.key_size,
				    copy->node->prefix_size);
		copy->count++;
	}
	sort_changes(copy);
	return is_sound(copy);
}

int tree_fetch_read(struct tree *tree, struct tree_fetch *fetches,
		    uint32_t count, uint32_t value_most)
{
	uint32_t good = 0, i;
	int rc = read_leaves(tree, fetches, count);

	while (!rc && good < count && is_as_it_was(&fetches[good]))
		good++;
	if (!rc)
		rc = read_changes(tree, fetches, good, value_most);
	for (i = 0; i < good && !rc && take_changes(&fetches[i]); i++)
		;
	/* The leaf by itself tells whose memory it is, or what is damaged. */
	if (rc == -REEF_ELOST || rc == -REEF_ECORRUPT || index_is_nonsense(rc))
		return 0;
	return rc ? rc : (int)i;
}

void tree_fetch_fini(struct tree_fetch *fetch)
{
	tree_copy_fini(&fetch->copy);
	tree_entries_free(&fetch->entries);
	*fetch = (struct tree_fetch){0};
}

/* --- going through it --- */

/* Begin with an interval of the copy. */
static bool begin_interval(const struct tree_copy *copy, uint32_t part,
			   struct tree_walk *walk)
{
	const struct tree_span *spans = tree_node_spans(copy->node);
	const uint8_t *bytes = copy->bytes.bytes;

	bytes += tree_span_at(&spans[part]) - tree_span_at(&spans[copy->first]);
	return tree_interval_walk(walk, bytes, tree_span_size(&spans[part]));
}

/* The record that a walk is at; its key is there already. */
static inline void fill_record(const struct tree_walk *walk,
			       const struct tree_span *span, const uint8_t *key,
			       uint32_t key_size, struct tree_record *record)
{
	record->key = key;
	record->key_size = key_size;
	record->value = walk->value;
	record->value_size = walk->value_size;
	record->version = walk->version;
	record->stamp = walk->stamp;
	record->outside = walk->outside;
	record->mark = walk->marks[walk->index];
	record->mark_at = span->first + walk->index; /* its index */
}

/* Take an interval of the copy apart, to go through it backward. */
static int open_interval(struct tree_copy *copy, uint32_t part)
{
	const struct tree_node *node = copy->node;
	const struct tree_span *at = &tree_node_spans(node)[part];
	const uint32_t size = tree_span_size(at), prefix = node->prefix_size;
	const struct tree_record *last = NULL;
	struct tree_walk walk;
	uint8_t *key;
	int rc;

	copy->records_count = 0;
	if (!begin_interval(copy, part, &walk))
		return -REEF_ECORRUPT;
	rc = entry_room_need(&copy->keys,
			     (prefix + (size_t)size) * walk.left + SLACK);
	if (rc)
		return rc;
	key = copy->keys.bytes;
	while ((rc = tree_interval_next(&walk)) == 1) {
		struct tree_record *record =
			&copy->records[copy->records_count++];
		uint32_t kept = prefix + walk.shared;

		/* (R10) No key is longer than what is taken together for it. */
		if (unlikely(walk.shared && (!last || kept > last->key_size)))
			return -REEF_ECORRUPT;
		if (last)
			copy_short(key, last->key, kept);
		else
			memcpy(key, node->low, kept);
		copy_short(key + kept, walk.rest, walk.rest_size);
		fill_record(&walk, at, key, kept + walk.rest_size, record);
		key += record->key_size;
		last = record;
	}
	return rc ? -REEF_ECORRUPT : 0;
}

static bool is_dead_record(const struct tree_copy *copy, uint32_t index)
{
	for (uint32_t i = 0; i < copy->dead_count; i++)
		if (copy->dead[i] == index)
			return true;
	return false;
}

static int tell_change(const struct tree_change *change,
		       int (*tell)(void *context,
				   const struct tree_record *record),
		       void *context)
{
	const struct entry *entry = &change->entry;
	const struct tree_record record = {
		.key = entry->key,
		.key_size = entry->key_size,
		.value = entry->value,
		.value_size = entry->value_size,
		.version = entry->version,
		.stamp = entry->stamp,
	};

	return change->is_dead ? 0 : tell(context, &record);
}

/* Tell of the changes, from *next on, that come before a record, and of the
 * record, unless one of them is of its key. Backward the order is the other
 * one. */
static inline int tell_record(const struct tree_copy *copy, bool backward,
			      uint32_t *next, const struct tree_record *record,
			      int (*tell)(void *context,
					  const struct tree_record *record),
			      void *context)
{
	uint64_t digest = 0;
	int rc, order;

	if (*next < copy->count)
		digest = tree_digest(record->key, record->key_size,
				     copy->node->prefix_size);
	while (*next < copy->count) {
		uint32_t at = backward ? copy->count - 1 - *next : *next;
		const struct tree_change *change =
			&copy->changes[copy->order[at]];

		order = compare_change(change, digest, record->key,
				       record->key_size);
		if (backward ? order < 0 : order > 0)
			break;
		++*next;
		rc = tell_change(change, tell, context);
		if (rc || !order)
			return rc;
	}
	if (unlikely(record->mark) && is_dead_record(copy, record->mark_at))
		return 0;
	return tell(context, record);
}

/* True if a change is beyond the intervals that were copied. */
static bool is_beyond(const struct tree_copy *copy, bool backward,
		      const struct entry *entry)
{
	const struct tree_node *node = copy->node;
	const struct tree_part *border =
		&node->parts[backward ? copy->first : copy->end];

	if (backward ? !copy->first : copy->end == node->count)
		return false;
	return (tree_compare(entry->key, entry->key_size, border->key,
			     border->key_size) < 0) == backward;
}

static int tell_backward(struct tree_copy *copy, uint32_t *next,
			 int (*tell)(void *context,
				     const struct tree_record *record),
			 void *context)
{
	int rc = 0;

	for (uint32_t i = copy->end; i > copy->first && !rc; i--) {
		rc = open_interval(copy, i - 1);
		for (uint32_t j = copy->records_count; j && !rc; j--)
			rc = tell_record(copy, true, next,
					 &copy->records[j - 1], tell, context);
	}
	return rc;
}

/* Forward one key is made of the one before it, where that is. */
static int tell_forward(struct tree_copy *copy, uint32_t *next,
			int (*tell)(void *context,
				    const struct tree_record *record),
			void *context)
{
	const struct tree_span *spans = tree_node_spans(copy->node);
	const uint32_t prefix = copy->node->prefix_size;
	struct tree_record record;
	struct tree_walk walk;
	uint8_t *key;
	int rc = entry_room_need(&copy->keys, TREE_KEY_MAX + SLACK);

	if (rc)
		return rc;
	key = copy->keys.bytes;
	memcpy(key, copy->node->low, prefix);
	for (uint32_t i = copy->first; i < copy->end; i++) {
		uint32_t size = prefix;

		if (!begin_interval(copy, i, &walk))
			return -REEF_ECORRUPT;
		while ((rc = tree_interval_next(&walk)) == 1) {
			uint32_t kept = prefix + walk.shared;

			if (unlikely(kept > size ||
				     kept + walk.rest_size > TREE_KEY_MAX))
				return -REEF_ECORRUPT;
			copy_short(key + kept, walk.rest, walk.rest_size);
			size = kept + walk.rest_size;
			fill_record(&walk, &spans[i], key, size, &record);
			rc = tell_record(copy, false, next, &record, tell,
					 context);
			if (rc)
				return rc;
		}
		if (rc)
			return -REEF_ECORRUPT;
	}
	return 0;
}

int tree_copy_tell(struct tree_copy *copy, bool backward,
		   int (*tell)(void *context, const struct tree_record *record),
		   void *context)
{
	uint32_t next = 0;
	int rc = backward ? tell_backward(copy, &next, tell, context)
			  : tell_forward(copy, &next, tell, context);

	for (; next < copy->count && !rc; next++) {
		const struct tree_change *change =
			&copy->changes[copy->order[backward ? copy->count - 1 -
								      next
							    : next]];

		if (is_beyond(copy, backward, &change->entry))
			break;
		rc = tell_change(change, tell, context);
	}
	return rc;
}

void tree_copy_border(const struct tree_copy *copy, bool backward,
		      const uint8_t **key, uint32_t *size)
{
	const struct tree_node *node = copy->node;
	const struct tree_part *border =
		&node->parts[backward ? copy->first : copy->end];

	if (backward ? !copy->first : copy->end == node->count) {
		*key = backward ? node->low : node->high;
		*size = backward ? node->low_size : node->high_size;
		if (backward && !node->low_size)
			*key = NULL;
		return;
	}
	*key = border->key;
	*size = border->key_size;
}
