/* directory.c - which subtable a key is in.
 *
 * A handle remembers the leaves it met in an array by suffix, as deep as the
 * deepest of them: each leaf stands at every suffix that ends in its own. */
#include "index/hash/internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- words --- */

/* What an error of reading the root or its levels means: where their memory is
 * none any more, it was freed and given back since the table was dropped. */
static int explain_root(int rc)
{
	return rc == -EFAULT ? -REEF_EDROPPED : rc;
}

/* READ the header of a level and its last word: so it is as long as it should
 * be, and what is remembered of a table does not grow by a false word. */
static int check_level(struct hash_table *table, uint32_t depth, uint64_t level)
{
	struct hash_level head;
	uint64_t last;
	struct reef_access accesses[2] = {
		{
			.kind = REEF_READ,
			.address = level,
			.length = sizeof(head),
			.local = &head,
		},
		{
			.kind = REEF_READ,
			.address =
				level + HASH_LEVEL_HEADER + (8u << depth) - 8,
			.length = 8,
			.local = &last,
		},
	};
	int rc;

	if (!hash_is_block(level))
		return -REEF_ECORRUPT;
	rc = reef_execute(table->reef, accesses, 2);
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	return head.magic == HASH_LEVEL_MAGIC && head.root == table->root &&
			       head.depth == depth
		       ? 0
		       : -REEF_ECORRUPT;
}

int hash_subtable_check(struct hash_table *table, uint64_t subtable,
			uint32_t depth, uint32_t suffix)
{
	struct hash_subtable head;
	int rc;

	if (!hash_is_block(subtable))
		return -REEF_ECORRUPT;
	rc = reef_read(table->reef, subtable, &head, sizeof(head));
	if (rc)
		return index_is_nonsense(rc) ? -REEF_ECORRUPT : rc;
	return head.magic == HASH_SUBTABLE_MAGIC && head.root == table->root &&
			       head.depth == depth && head.suffix == suffix
		       ? 0
		       : -REEF_ECORRUPT;
}

int hash_word_at(struct hash_table *table, uint32_t depth, uint32_t suffix,
		 uint64_t *at)
{
	uint64_t level;
	int rc;

	if (depth < HASH_INNER_LEVELS) {
		*at = table->root + offsetof(struct hash_root, inner) +
		      8 * ((UINT64_C(1) << depth) + suffix);
		return 0;
	}
	if (depth > HASH_DEPTH_MAX)
		return -EAGAIN;
	if (!table->levels[depth]) {
		rc = reef_read(table->reef, hash_level_at(table, depth), &level,
			       8);
		if (rc)
			return explain_root(rc);
		if (!level)
			return -EAGAIN;
		if (level == HASH_DROPPED)
			return -REEF_EDROPPED;
		rc = check_level(table, depth, level);
		if (rc)
			return rc;
		table->levels[depth] = level;
	}
	*at = table->levels[depth] + HASH_LEVEL_HEADER + 8 * (uint64_t)suffix;
	return 0;
}

/* Allocate a level and fill it with zeroes. */
static int level_alloc(struct hash_table *table, uint32_t depth, uint64_t *at)
{
	const struct hash_level head = {
		.magic = HASH_LEVEL_MAGIC,
		.root = table->root,
		.depth = depth,
	};
	uint64_t size = HASH_LEVEL_HEADER + (UINT64_C(8) << depth), done, part;
	static const uint64_t zeroes[8192];
	int rc;

	rc = reef_alloc_kind(table->space, REEF_BLOCK_HASH_LEVEL, size, at);
	if (rc)
		return rc;
	rc = reef_write(table->reef, *at, &head, sizeof(head));
	for (done = sizeof(head); !rc && done < size; done += part) {
		part = size - done < sizeof(zeroes) ? size - done
						    : sizeof(zeroes);
		rc = reef_write(table->reef, *at + done, zeroes, part);
	}
	if (rc)
		reef_free(table->space, *at, 0);
	return rc;
}

int hash_level_make(struct hash_table *table, uint32_t depth)
{
	uint64_t level, word, before;
	int rc;

	if (depth > HASH_DEPTH_MAX)
		return -ENOSPC;
	rc = hash_word_at(table, depth, 0, &word);
	if (rc != -EAGAIN)
		return rc;
	rc = level_alloc(table, depth, &level);
	if (rc)
		return rc;
	rc = index_cas(table->reef, hash_level_at(table, depth), 0, level,
		       &before);
	/* After a doubt the level may be linked, so it stays: recovery asks
	 * is_live when our session has ended. */
	if (!rc)
		reef_free(table->space, level, 0);
	if (rc < 0)
		return rc == -REEF_EINDOUBT ? -EAGAIN : rc;
	if (!rc && before == HASH_DROPPED)
		return -REEF_EDROPPED;
	if (rc)
		table->levels[depth] = level;
	return 0;
}

/* --- what is known --- */

static int deepen_leaves(struct hash_table *table, uint32_t depth)
{
	size_t count = (size_t)1 << table->depth, wanted = (size_t)1 << depth;
	struct hash_leaf *leaves =
		realloc(table->leaves, wanted * sizeof(*leaves));

	if (!leaves)
		return -ENOMEM;
	table->leaves = leaves;
	for (; count < wanted; count *= 2)
		memcpy(leaves + count, leaves, count * sizeof(*leaves));
	table->depth = depth;
	return 0;
}

static int remember_leaf(struct hash_table *table, uint64_t hash,
			 uint32_t depth, uint64_t subtable)
{
	const struct hash_leaf leaf = {
		.subtable = subtable,
		.epoch = reef_epoch(table->reef),
		.depth = depth,
	};
	size_t at;
	int rc;

	if (depth > table->depth) {
		rc = deepen_leaves(table, depth);
		if (rc)
			return rc;
	}
	reef_assert(table->depth <= HASH_DEPTH_MAX);
	for (at = hash_suffix(hash, depth); at < (size_t)1 << table->depth;
	     at += (size_t)1 << depth)
		table->leaves[at] = leaf;
	return 0;
}

/* READ the words of that hash at depths [from, to), and whether the table is
 * still there. *count: how many of these levels there are. */
static int read_path(struct hash_table *table, uint64_t hash, uint32_t from,
		     uint32_t to, uint64_t *words, uint32_t *count)
{
	struct reef_access accesses[HASH_DEPTH_MAX + 2];
	uint64_t alive;
	uint32_t depth;
	uint64_t at;
	int rc = 0;

	*count = 0;
	for (depth = from; depth < to; depth++) {
		rc = hash_word_at(table, depth, hash_suffix(hash, depth), &at);
		if (rc)
			break;
		accesses[(*count)++] = (struct reef_access){
			.kind = REEF_READ,
			.address = at,
			.length = 8,
			.local = &words[depth],
		};
	}
	if (rc && rc != -EAGAIN && rc != -REEF_EDROPPED)
		return rc;
	if (!*count)
		return rc == -REEF_EDROPPED ? rc : 0;
	accesses[*count] = (struct reef_access){
		.kind = REEF_READ,
		.address = hash_alive_at(table),
		.length = 8,
		.local = &alive,
	};
	rc = reef_execute(table->reef, accesses, *count + 1);
	if (rc)
		return explain_root(rc);
	return alive == table->id ? 0 : -REEF_EDROPPED;
}

/* READ the path of a hash down to the first word that is not SPLIT. */
static int find_path_end(struct hash_table *table, uint64_t hash, uint32_t *out,
			 uint64_t *word)
{
	uint64_t words[HASH_DEPTH_MAX + 1];
	uint32_t depth = 0, from = 0, to = table->depth + 2, count;
	int rc;

	/* A word that is SPLIT stays so; each READ is of its own moment, so a
	 * leaf that was split after it was read is found out later. */
	for (;;) {
		if (to > HASH_DEPTH_MAX + 1)
			to = HASH_DEPTH_MAX + 1;
		rc = read_path(table, hash, from, to, words, &count);
		if (rc)
			return rc;
		for (depth = from; depth < from + count; depth++)
			if (hash_word_state(words[depth]) != HASH_SPLIT)
				break;
		if (depth < from + count)
			break;
		if (!count)
			return -REEF_ECORRUPT; /* SPLIT, without children */
		from += count;
		to = from + 2;
	}
	*out = depth;
	*word = words[depth];
	return 0;
}

int hash_leaf_discover(struct hash_table *table, uint64_t hash)
{
	enum hash_state state = HASH_NONE;
	uint32_t depth, attempt;
	uint64_t word;
	int rc;

	/* Where a word is no leaf, it and that of its parent were read at
	 * different moments of a split: read the path again. That finds it, or
	 * its children in that state. */
	for (attempt = 0; state != HASH_LEAF && attempt <= HASH_DEPTH_MAX;
	     attempt++) {
		rc = find_path_end(table, hash, &depth, &word);
		if (rc)
			return rc;
		state = hash_word_state(word);
		if (state == HASH_DROPPED)
			return -REEF_EDROPPED;
	}
	if (state != HASH_LEAF || !hash_is_block(hash_word_address(word)))
		return -REEF_ECORRUPT;
	/* What is remembered doubles, which is much at this depth: not for a
	 * false word. */
	if (depth > table->depth && depth >= HASH_INNER_LEVELS) {
		rc = hash_subtable_check(table, hash_word_address(word), depth,
					 hash_suffix(hash, depth));
		if (rc)
			return rc;
	}
	return remember_leaf(table, hash, depth, hash_word_address(word));
}

int hash_leaf_is_current(struct hash_table *table, uint64_t hash,
			 uint32_t depth, uint64_t subtable)
{
	uint64_t at, word;
	int rc;

	rc = hash_word_at(table, depth, hash_suffix(hash, depth), &at);
	if (!rc)
		rc = reef_read(table->reef, at, &word, 8);
	return rc ? rc : word == (subtable | HASH_LEAF);
}
