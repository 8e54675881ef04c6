/* reshape.c - a block whose slots are used up, or frozen, becomes another one,
 * or several.
 *
 *   the node is read; all memory is taken -> every slot is frozen -> what
 *   changed meanwhile is folded again -> id and alive of the old block zero,
 *   new blocks and heads written -> h0 of the node changed: done
 *
 * Whoever finds a frozen block does the same, and one of them wins. Until h0 is
 * changed the old block is the node, and what is frozen does not change; so
 * anybody may die or be late. The winner frees what is not needed any more, a
 * loser what it has made, which nobody has seen. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

#define FREEZE_ROUNDS 1000u
#define RECORDS_MAX 64u	  /* of a leaf */
#define CHILDREN_MAX 192u /* of an inner node */
#define PIECES_MAX 64u
#define SLOTS_WANTED 16u /* of one transaction: then a node is cut */
#define SLOTS_GIVEN 10u
#define LATE_NS 2000000u /* of a mutant */

struct piece {
	uint32_t first, count; /* of the records */
	uint8_t *bytes;
	uint32_t size;
	uint64_t at, head, word; /* addresses, h0; at 0: none */
	uint64_t head_name;	 /* short */
	bool is_reserve;	 /* its block was */
};

/* A block that is folded. */
struct source {
	struct tree_image image;
	struct tree_entries entries;
	uint64_t slots[TREE_SLOTS]; /* that were folded */
	struct tree_merged merged;
};

struct reshape {
	struct tree *tree;
	/* The node's, and, if there are two, that of the node on its right,
	 * which joins it. */
	struct source sources[2];
	uint32_t sources_count;
	const struct tree_image *image; /* the first's */
	const struct tree_image *last;	/* the last's */
	struct tree_record *records;	/* of all; malloc's */
	struct tree_child *children;	/* values of an inner node's */
	uint32_t count;
	struct piece pieces[PIECES_MAX];
	uint32_t pieces_count;
	bool uses_reserve; /* if it must; it is not cut */
	/* Keys, in order, that pieces begin with; count 0: as it comes. */
	struct tree_key cuts[PIECES_MAX - 1];
	uint32_t cuts_count;
};

/* --- folding --- */

/* Inner nodes get better hints, where they are known. */
static void refresh_children(struct reshape *reshape)
{
	for (uint32_t i = 0; reshape->image->level && i < reshape->count; i++) {
		struct tree_record *record = &reshape->records[i];
		struct tree_child *child = &reshape->children[i];

		if (record->value_size != sizeof(*child) || !record->value)
			continue;
		memcpy(child, record->value, sizeof(*child));
		child->hint =
			tree_node_hint(reshape->tree, child->head, child->hint);
		record->value = (const uint8_t *)child;
	}
}

/* Values up to so many bytes are in records; children always are. */
static uint32_t inline_max_of(const struct reshape *reshape)
{
	return reshape->image->level ? UINT32_MAX : reshape->tree->inline_max;
}

static int fold(struct reshape *reshape)
{
	uint32_t i, count = 0;
	int rc = 0;

	for (i = 0; i < reshape->sources_count && !rc; i++) {
		struct source *source = &reshape->sources[i];

		rc = tree_merge(&source->image, source->slots, &source->entries,
				inline_max_of(reshape), &source->merged);
		count += source->merged.count;
	}
	if (rc)
		return rc;
	reshape->records = calloc(count + 1u, sizeof(*reshape->records));
	reshape->children = calloc(count + 1u, sizeof(*reshape->children));
	if (!reshape->records || !reshape->children)
		return -ENOMEM;
	reshape->count = 0;
	for (i = 0; i < reshape->sources_count; i++) {
		const struct tree_merged *merged = &reshape->sources[i].merged;

		if (merged->count)
			memcpy(reshape->records + reshape->count,
			       merged->records,
			       merged->count * sizeof(*merged->records));
		reshape->count += merged->count;
	}
	refresh_children(reshape);
	return 0;
}

/* --- cutting --- */

/* Cut the records where it was asked for; a piece may have none. */
static void cut_at_keys(struct reshape *reshape)
{
	uint32_t part = 0;

	reshape->pieces[0] = (struct piece){0};
	for (uint32_t i = 0; i <= reshape->count; i++) {
		const struct tree_record *record = &reshape->records[i];

		while (part < reshape->cuts_count &&
		       (i == reshape->count ||
			tree_compare(reshape->cuts[part].key,
				     reshape->cuts[part].key_size, record->key,
				     record->key_size) <= 0))
			reshape->pieces[++part] = (struct piece){.first = i};
		if (i < reshape->count)
			reshape->pieces[part].count++;
	}
	reshape->pieces_count = part + 1;
}

/* Cut the records into as many pieces as they need. */
static void cut(struct reshape *reshape)
{
	const uint32_t most = reshape->tree->leaf_bytes;
	const uint32_t records_max =
		reshape->image->level ? CHILDREN_MAX : RECORDS_MAX;
	uint32_t total = 0, used = 0, part = 0, parts, i;
	uint64_t goal;

	if (reshape->cuts_count && !reshape->uses_reserve) {
		cut_at_keys(reshape);
		return;
	}
	for (i = 0; i < reshape->count; i++)
		total += tree_record_cost(&reshape->records[i],
					  i ? &reshape->records[i - 1] : NULL);
	parts = (total + most - 1) / most;
	if (parts < (reshape->count + records_max - 1) / records_max)
		parts = (reshape->count + records_max - 1) / records_max;
	if (parts > reshape->count)
		parts = reshape->count;
	if (parts > PIECES_MAX)
		parts = PIECES_MAX;
	if (!parts || reshape->uses_reserve)
		parts = 1;
	reshape->pieces[0] = (struct piece){0};
	for (i = 0; i < reshape->count; i++) {
		goal = (uint64_t)total * (part + 1) / parts;
		if (parts == 2 && reshape->sources_count == 1 &&
		    reshape->sources[0].merged.is_ascending)
			goal = (uint64_t)total * 9 / 10;
		/* Each piece has a record, and so have those that follow. */
		if (part + 1 < parts && reshape->pieces[part].count &&
		    (used >= goal || reshape->count - i < parts - part))
			reshape->pieces[++part] = (struct piece){.first = i};
		reshape->pieces[part].count++;
		used += tree_record_cost(&reshape->records[i],
					 i ? &reshape->records[i - 1] : NULL);
	}
	reshape->pieces_count = part + 1;
}

/* Where a piece begins: with the shortest key behind all before it; an inner
 * node's with its first child's. */
static void begin_of(const struct reshape *reshape, uint32_t which,
		     const uint8_t **key, uint32_t *size)
{
	const struct piece *piece = &reshape->pieces[which];
	const struct tree_record *first = &reshape->records[piece->first];

	if (which && reshape->cuts_count) {
		*key = reshape->cuts[which - 1].key;
		*size = reshape->cuts[which - 1].key_size;
		return;
	}
	*key = which ? first->key : reshape->image->low;
	*size = which ? first->key_size : reshape->image->low_size;
	if (which && !reshape->image->level)
		*size = tree_common(first[-1].key, first[-1].key_size,
				    first->key, first->key_size) +
			1;
}

/* --- memory --- */

static void release(struct reshape *reshape, bool blocks)
{
	for (uint32_t i = 0; i < reshape->pieces_count; i++) {
		struct piece *piece = &reshape->pieces[i];

		if (blocks && piece->at && piece->is_reserve)
			tree_reserve_give(reshape->tree, piece->at);
		else if (blocks && piece->at)
			reef_free(reshape->tree->space, piece->at, 0);
		if (blocks && i && piece->head)
			reef_free(reshape->tree->space, piece->head, 0);
		free(piece->bytes);
		*piece = (struct piece){0};
	}
	reshape->pieces_count = 0;
}

static int take_heads(struct reshape *reshape)
{
	struct tree *tree = reshape->tree;
	int rc = 0;

	reshape->pieces[0].head = reshape->image->head;
	for (uint32_t i = 1; i < reshape->pieces_count && !rc; i++) {
		struct piece *piece = &reshape->pieces[i];

		rc = reef_alloc_kind(tree->space, REEF_BLOCK_TREE_HEAD,
				     sizeof(struct tree_head), &piece->head);
		if (rc)
			piece->head = 0;
		else
			rc = reef_short_address(tree->space, piece->head,
						&piece->head_name);
	}
	return rc;
}

static int take_block(struct reshape *reshape, struct piece *piece)
{
	struct tree *tree = reshape->tree;
	const uint32_t most = tree_reserve_size(tree);
	uint32_t size = piece->size, tried;
	int rc;

	/* Where there is no room for it there may be some for a larger one:
	 * what other nodes were in before. */
	do {
		rc = reef_alloc_kind(tree->space, REEF_BLOCK_TREE_BLOCK, size,
				     &piece->at);
		tried = size;
		size = size + size / 4 < most ? size + size / 4 : most;
	} while ((rc == -ENOSPC || rc == -EDQUOT) && reshape->uses_reserve &&
		 tried < most);
	if (!rc)
		return 0;
	piece->at = 0;
	if (!reshape->uses_reserve || !tree->reserve_count ||
	    piece->size > most)
		return rc;
	piece->at = tree->reserve[--tree->reserve_count];
	piece->is_reserve = true;
	return 0;
}

static int make_piece(struct reshape *reshape, uint32_t which)
{
	struct tree *tree = reshape->tree;
	struct piece *piece = &reshape->pieces[which];
	const struct tree_image *image = reshape->image;
	const struct tree_image *end = reshape->last;
	bool is_last = which + 1 == reshape->pieces_count;
	uint64_t right =
		REEF_MUTATED(TREE_JOIN_RIGHT) ? image->right : end->right;
	struct tree_shape shape = {
		.id = tree_next_id(tree, image->at + which),
		.head = piece->head,
		.right = is_last ? right : piece[1].head_name,
		.number = tree->home.number,
		.level = image->level,
	};
	uint64_t name;
	int rc;

	begin_of(reshape, which, &shape.low, &shape.low_size);
	if (is_last) {
		shape.high = end->high;
		shape.high_size = end->high_size;
	} else {
		begin_of(reshape, which + 1, &shape.high, &shape.high_size);
	}
	rc = tree_block_build(&shape, &reshape->records[piece->first],
			      piece->count, &piece->bytes, &piece->size);
	if (!rc)
		rc = take_block(reshape, piece);
	if (!rc)
		rc = reef_short_address(tree->space, piece->at, &name);
	if (!rc)
		piece->word = tree_word_make(which ? 0 : image->word, name,
					     piece->size);
	return rc;
}

static void forget_folded(struct reshape *reshape)
{
	for (uint32_t i = 0; i < reshape->sources_count; i++)
		tree_merged_free(&reshape->sources[i].merged);
	free(reshape->records);
	free(reshape->children);
	reshape->records = NULL;
	reshape->children = NULL;
}

/* Fold the slots as the images have them, and make what the node becomes. */
static int prepare_once(struct reshape *reshape)
{
	int rc = 0;

	release(reshape, true);
	forget_folded(reshape);
	for (uint32_t i = 0; i < reshape->sources_count && !rc; i++) {
		struct source *source = &reshape->sources[i];

		memcpy(source->slots, source->image.slots,
		       sizeof(source->slots));
		rc = tree_settle(reshape->tree, source->slots, NULL);
		if (rc)
			return rc;
		rc = tree_entries_read(reshape->tree, source->slots,
				       inline_max_of(reshape),
				       &source->entries);
	}
	if (!rc)
		rc = fold(reshape);
	if (rc)
		return rc;
	cut(reshape);
	rc = take_heads(reshape);
	for (uint32_t i = 0; i < reshape->pieces_count && !rc; i++)
		rc = make_piece(reshape, i);
	return rc;
}

/* The same, with the reserve where there is no room. */
static int prepare(struct reshape *reshape, bool deletes)
{
	int rc = prepare_once(reshape);

	if ((rc != -ENOSPC && rc != -EDQUOT) || !deletes ||
	    reshape->uses_reserve)
		return rc;
	release(reshape, true);
	reshape->uses_reserve = true;
	return prepare_once(reshape);
}

/* --- the old block --- */

/* Decide the transactions that have slots, and freeze these. */
static int freeze_intents(struct tree *tree, const struct tree_image *image,
			  bool *any)
{
	int rc = 0;

	*any = false;
	if (REEF_MUTATED(TXN_CARRY_UNMARKED))
		return 0;
	for (uint32_t i = 0; i < TREE_SLOTS && !rc; i++) {
		if (!(image->slots[i] & TREE_INTENT))
			continue;
		*any = true;
		rc = tree_intent_freeze(
			tree, image->at + TREE_SLOTS_AT + 8 * (uint64_t)i,
			image->slots[i]);
	}
	return rc;
}

int tree_freeze(struct tree *tree, struct tree_image *image)
{
	const uint64_t skipped =
		TREE_FROZEN |
		(REEF_MUTATED(TXN_CARRY_UNMARKED) ? 0 : TREE_INTENT);
	struct reef_access accesses[TREE_SLOTS + 1];
	uint32_t round, count, i;
	bool any;
	int rc;

	for (round = 0; round < FREEZE_ROUNDS; round++) {
		count = 0;
		rc = freeze_intents(tree, image, &any);
		if (rc)
			return rc;
		for (i = 0; i < TREE_SLOTS; i++)
			if (!(image->slots[i] & skipped))
				accesses[count++] = (struct reef_access){
					.kind = REEF_CAS,
					.address = image->at + TREE_SLOTS_AT +
						   8 * (uint64_t)i,
					.compare = image->slots[i],
					.operand =
						image->slots[i] | TREE_FROZEN,
				};
		if (!count && !any)
			return 0;
		accesses[count++] = (struct reef_access){
			.kind = REEF_READ,
			.address = image->at + TREE_SLOTS_AT,
			.local = image->slots,
			.length = sizeof(image->slots),
		};
		rc = reef_execute(tree->reef, accesses, count);
		if (rc == -REEF_EINDOUBT)
			rc = reef_read(tree->reef, image->at + TREE_SLOTS_AT,
				       image->slots, sizeof(image->slots));
		if (rc)
			return rc;
		if (REEF_MUTATED(TREE_STALE_SOURCE))
			return 0;
	}
	return -EAGAIN;
}

int tree_zero(const struct tree_image *image, struct index_batch *batch)
{
	static const uint64_t zero;
	int rc = 0;

	for (uint32_t i = REEF_MUTATED(TREE_ID_APART) ? 1 : 0;
	     i <= image->intervals_count && !rc; i++)
		rc = index_batch_add(
			batch,
			(struct reef_access){
				.kind = REEF_WRITE,
				.address = image->at +
					   (i ? image->intervals[i - 1] : 0),
				.local = (void *)(uintptr_t)&zero,
				.length = 8,
			});
	return rc;
}

/* --- all of it --- */

/* WRITE the new blocks, and the heads of all but the first. */
static int write_pieces(struct reshape *reshape, struct index_batch *batch,
			struct tree_head *heads)
{
	int rc = 0;

	for (uint32_t i = 0; i < reshape->pieces_count && !rc; i++) {
		const struct piece *piece = &reshape->pieces[i];

		rc = index_batch_add(batch, (struct reef_access){
						    .kind = REEF_WRITE,
						    .address = piece->at,
						    .local = piece->bytes,
						    .length = piece->size,
					    });
		if (!i || rc)
			continue;
		heads[i] = (struct tree_head){
			.word = piece->word,
			.about = tree_about_make(reshape->image->level,
						 reshape->tree->home.number),
			.tree = reshape->tree->id,
		};
		rc = index_batch_add(batch, (struct reef_access){
						    .kind = REEF_WRITE,
						    .address = piece->head,
						    .local = &heads[i],
						    .length = sizeof(*heads),
					    });
	}
	return rc;
}

static int write_all(struct reshape *reshape, bool late)
{
	struct tree_head heads[PIECES_MAX];
	struct index_batch *batch = malloc(sizeof(*batch));
	int rc = 0;

	if (!batch)
		return -ENOMEM;
	batch->reef = reshape->tree->reef;
	batch->count = 0;
	for (uint32_t i = 0; i < reshape->sources_count && !rc; i++)
		if ((late || !REEF_MUTATED(TREE_LATE_ALIVE)) &&
		    !(i && REEF_MUTATED(TREE_JOIN_ALONE)))
			rc = tree_zero(&reshape->sources[i].image, batch);
	if (!rc && !late)
		rc = write_pieces(reshape, batch, heads);
	if (!rc)
		rc = index_batch_flush(batch);
	free(batch);
	return rc;
}

/* Remember the new nodes, and note the separators of those that are new. */
static void note_pieces(struct reshape *reshape,
			struct tree_separator **missing)
{
	for (uint32_t i = 0; i < reshape->pieces_count; i++) {
		struct piece *piece = &reshape->pieces[i];
		struct tree_image image = {
			.bytes = piece->bytes,
			.size = piece->size,
			.at = piece->at,
			.word = piece->word,
			.head = piece->head,
		};
		struct tree_child child;
		const uint8_t *low;
		uint32_t size;

		if (i) {
			begin_of(reshape, i, &low, &size);
			child = (struct tree_child){piece->head, piece->word};
			tree_separator_add(missing, reshape->image->level + 1,
					   low, size, &child, 0);
		}
		if (!tree_image_parse(&image, reshape->tree->home.number))
			tree_node_remember(reshape->tree, &image, NULL);
		piece->bytes = NULL;
		tree_image_free(&image);
	}
}

/* Free what is not needed any more: (7). */
static void free_sources(struct reshape *reshape)
{
	struct tree *tree = reshape->tree;

	for (uint32_t i = 0; i < reshape->sources_count; i++) {
		const struct source *source = &reshape->sources[i];

		entry_free_later(&tree->home, source->image.at);
		if (i)
			entry_free_later(&tree->home, source->image.head);
		for (uint32_t j = 0; j < source->merged.frees_count &&
				     !REEF_MUTATED(TREE_FOLD_LIVE);
		     j++)
			entry_free(&tree->home, source->merged.frees[j]);
	}
}

/* Whoever comes to the root's node finds its block at once. What is written is
 * a hint: it does no harm if it is lost, or comes late. */
static void note_top(struct tree *tree, uint64_t word)
{
	if (!reef_write(tree->reef, tree_hint_at(tree), &word, sizeof(word)))
		tree->top_hint = word;
}

/* Let the head name the new block. */
static int commit(struct reshape *reshape, struct tree_separator **missing)
{
	struct tree *tree = reshape->tree;
	const struct tree_image *image = reshape->image;
	uint64_t before;
	int rc = write_all(reshape, false);

	if (!rc)
		rc = index_cas(tree->reef, image->head, image->word,
			       reshape->pieces[0].word, &before);
	if (rc == 1) {
		if (REEF_MUTATED(TREE_LATE_ALIVE) && !reef_sleep(LATE_NS))
			write_all(reshape, true);
		free_sources(reshape);
		if (image->head == tree->top_head)
			note_top(tree, reshape->pieces[0].word);
		note_pieces(reshape, missing);
		release(reshape, false);
		return 0;
	}
	/* In doubt our blocks may be the node's, or may have been: is_live
	 * tells, when we end. */
	release(reshape, rc != -REEF_EINDOUBT && rc != -ETIMEDOUT);
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* Freeze the node that joins, and let its head say so: (8).  -EAGAIN: it has
 * another block. */
static int begin_join(struct tree *tree, struct tree_image *image)
{
	uint64_t before;
	int rc = REEF_MUTATED(TREE_JOIN_THAWED) ? 0 : tree_freeze(tree, image);

	if (rc || image->word & TREE_JOINING)
		return rc;
	rc = index_cas(tree->reef, image->head, image->word,
		       image->word | TREE_JOINING, &before);
	if (rc != 1)
		return rc && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
	image->word |= TREE_JOINING;
	return 0;
}

/* True if what was folded is not what is frozen now. */
static bool has_changed(const struct reshape *reshape)
{
	for (uint32_t i = 0; i < reshape->sources_count; i++) {
		const struct source *source = &reshape->sources[i];

		for (uint32_t j = 0; j < TREE_SLOTS; j++)
			if ((source->slots[j] ^ source->image.slots[j]) &
			    ~TREE_FROZEN)
				return !REEF_MUTATED(TREE_STALE_SOURCE);
	}
	return false;
}

/* A mutant: separators come first. */
static void mend_early(struct reshape *reshape)
{
	struct tree_separator *early = NULL;
	struct tree_child child;
	const uint8_t *low;
	uint32_t size;

	for (uint32_t i = 1; i < reshape->pieces_count; i++) {
		begin_of(reshape, i, &low, &size);
		child = (struct tree_child){reshape->pieces[i].head,
					    reshape->pieces[i].word};
		tree_separator_add(&early, reshape->image->level + 1, low, size,
				   &child, 0);
	}
	tree_mend(reshape->tree, &early);
}

static int run(struct reshape *reshape, bool deletes,
	       struct tree_separator **missing)
{
	int rc = prepare(reshape, deletes);

	if (!rc && reshape->sources_count == 2)
		rc = begin_join(reshape->tree, &reshape->sources[1].image);
	if (!rc)
		rc = tree_freeze(reshape->tree, &reshape->sources[0].image);
	if (!rc && has_changed(reshape))
		rc = prepare(reshape, true);
	if (!rc && REEF_MUTATED(TREE_LOW_FIRST))
		mend_early(reshape);
	return rc ? rc : commit(reshape, missing);
}

static struct reshape *make_reshape(struct tree *tree)
{
	struct reshape *reshape = calloc(1, sizeof(*reshape));

	if (!reshape)
		return NULL;
	reshape->tree = tree;
	reshape->sources_count = 1;
	reshape->image = reshape->last = &reshape->sources[0].image;
	return reshape;
}

static void free_reshape(struct reshape *reshape)
{
	release(reshape, true);
	forget_folded(reshape);
	for (uint32_t i = 0; i < reshape->sources_count; i++)
		tree_entries_free(&reshape->sources[i].entries);
	free(reshape);
}

static bool has_frozen(const struct tree_image *image)
{
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		if (image->slots[i] & TREE_FROZEN)
			return true;
	return false;
}

/* True if a node needs another block: its slots are used up, or some frozen. */
static bool is_due(const struct tree_image *image)
{
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		if (!tree_slot_is_used(image->slots[i]))
			return has_frozen(image);
	return true;
}

/* True if a key is between the fences of a node, and not its first. */
static bool is_inside(const struct tree_image *image,
		      const struct tree_key *key)
{
	return tree_compare(key->key, key->key_size, image->low,
			    image->low_size) > 0 &&
	       (!image->high ||
		tree_compare(key->key, key->key_size, image->high,
			     image->high_size) < 0);
}

/* Choose where to cut a node for keys that are too many for its slots. False:
 * there is room for them. */
static bool choose_cuts(struct reshape *reshape, const struct tree_key *keys,
			uint32_t count)
{
	const struct tree_image *image = reshape->image;
	uint32_t inside = 0, left = TREE_SLOTS, i;

	for (i = 0; i < TREE_SLOTS; i++)
		left -= tree_slot_is_used(image->slots[i]) ? 1 : 0;
	for (i = 0; i < count; i++)
		inside += is_inside(image, &keys[i]);
	if (inside < left)
		return false;
	if (inside < SLOTS_WANTED || image->level)
		return true;
	for (i = inside = 0; i < count && reshape->cuts_count < PIECES_MAX - 1;
	     i++)
		if (is_inside(image, &keys[i]) && ++inside % SLOTS_GIVEN == 0)
			reshape->cuts[reshape->cuts_count++] = keys[i];
	return true;
}

static int reshape_node(struct tree *tree, struct tree_node *node,
			const struct tree_key *keys, uint32_t count,
			bool deletes, struct tree_separator **missing)
{
	struct reshape *reshape = make_reshape(tree);
	struct tree_image *image;
	int rc;

	if (!reshape)
		return -ENOMEM;
	image = &reshape->sources[0].image;
	rc = tree_node_read(tree, node, image);
	if (rc == -ESTALE)
		tree_node_forget(tree, node);
	if (!rc && image->word & TREE_JOINING)
		rc = tree_join_finish(tree, image, missing);
	else if (!rc && !choose_cuts(reshape, keys, count) && !is_due(image))
		/* another has done it meanwhile */
		rc = tree_node_remember(tree, image, NULL);
	else if (!rc) /* what another froze is finished in any case */
		rc = run(reshape, deletes || has_frozen(image), missing);
	tree_image_free(image);
	free_reshape(reshape);
	/* Whoever asked looks again. */
	return rc == -EAGAIN || rc == -ESTALE ? 0 : rc;
}

int tree_reshape(struct tree *tree, struct tree_node *node, bool deletes,
		 struct tree_separator **missing)
{
	return reshape_node(tree, node, NULL, 0, deletes, missing);
}

int tree_reshape_for(struct tree *tree, struct tree_node *node,
		     const struct tree_key *keys, uint32_t count,
		     struct tree_separator **missing)
{
	return reshape_node(tree, node, keys, count, false, missing);
}

int tree_reshape_both(struct tree *tree, const struct tree_image *left,
		      const struct tree_image *right,
		      struct tree_separator **missing)
{
	struct reshape *reshape = make_reshape(tree);
	int rc;

	if (!reshape)
		return -ENOMEM;
	reshape->sources_count = 2;
	reshape->sources[0].image = *left;
	reshape->sources[1].image = *right;
	reshape->last = &reshape->sources[1].image;
	rc = run(reshape, right->word & TREE_JOINING, missing);
	free_reshape(reshape);
	return rc;
}

/* --- a new root --- */

/* Build the block of a new root, of the old one and of the separator's. */
static int build_top(struct tree *tree, const struct tree_separator *separator,
		     const struct tree_child *old, uint64_t head,
		     uint8_t **bytes, uint32_t *size)
{
	const struct tree_record records[2] = {
		{
			.key = (const uint8_t *)"",
			.value = (const uint8_t *)old,
			.value_size = sizeof(*old),
			.version = 1,
		},
		{
			.key = separator->key,
			.key_size = separator->key_size,
			.value = (const uint8_t *)&separator->child,
			.value_size = sizeof(separator->child),
			.version = 1,
		},
	};
	const struct tree_shape shape = {
		.id = tree_next_id(tree, head),
		.head = head,
		.number = tree->home.number,
		.level = separator->level,
		.low = (const uint8_t *)"",
	};

	return tree_block_build(&shape, records, 2, bytes, size);
}

/* Make its head and its block, whose addresses are 0 at first. */
static int make_top(struct tree *tree, const struct tree_separator *separator,
		    const struct tree_child *old, uint64_t *head,
		    uint64_t *block, uint64_t *word)
{
	struct tree_head words = {
		.about = tree_about_make(separator->level, tree->home.number),
		.below = old->head,
		.tree = tree->id,
	};
	uint8_t *bytes = NULL;
	uint32_t size;
	uint64_t at, name;
	int rc = reef_alloc_kind(tree->space, REEF_BLOCK_TREE_HEAD,
				 sizeof(words), &at);

	if (rc)
		return rc;
	*head = at;
	rc = build_top(tree, separator, old, at, &bytes, &size);
	if (!rc)
		rc = reef_alloc_kind(tree->space, REEF_BLOCK_TREE_BLOCK, size,
				     &at);
	if (!rc) {
		*block = at;
		rc = reef_short_address(tree->space, at, &name);
	}
	if (!rc)
		rc = reef_write(tree->reef, at, bytes, size);
	if (!rc) {
		*word = words.word = tree_word_make(0, name, size);
		rc = reef_write(tree->reef, *head, &words, sizeof(words));
	}
	free(bytes);
	return rc;
}

int tree_grow(struct tree *tree, const struct tree_separator *separator)
{
	uint64_t top, head = 0, block = 0, word = 0, name, before;
	struct tree_child old = {0};
	int rc = tree_top_read(tree);

	if (rc)
		return rc;
	top = tree->top;
	if (tree_top_height(top) >= separator->level)
		return -EAGAIN;
	/* The level below is not there either: others are at it. */
	if (tree_top_height(top) + 1 != separator->level ||
	    top & TREE_DROPPING || separator->level > TREE_HEIGHT_MAX ||
	    !separator->key_size)
		return -EBUSY;
	rc = reef_long_address(tree->space, top & TREE_SHORT_MASK, &old.head);
	if (rc)
		return rc;
	old.hint = tree_node_hint(tree, old.head, 0);
	rc = make_top(tree, separator, &old, &head, &block, &word);
	if (!rc)
		rc = reef_short_address(tree->space, head, &name);
	if (!rc)
		rc = index_cas(tree->reef, tree_top_at(tree), top,
			       tree_top_make(top, name, separator->level),
			       &before);
	if (rc == 1) {
		note_top(tree, word);
		return tree_top_read(tree);
	}
	/* In doubt it may be the root: is_live tells, when we end. */
	if (rc == -REEF_EINDOUBT || rc == -ETIMEDOUT)
		return rc;
	if (block)
		reef_free(tree->space, block, 0);
	if (head)
		reef_free(tree->space, head, 0);
	return rc ? rc : -EAGAIN;
}
