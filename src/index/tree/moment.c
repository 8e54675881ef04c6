/* moment.c - leaves of ranges that were scanned, to be looked at again.
 *
 * A leaf whose block has its id, and whose slots say what they said, has the
 * keys that were told, and no others: its records do not change, and within an
 * epoch a slot that says something else does not come back to what it said.
 * What transactions have counts as their statuses say, each time. So if all
 * leaves are looked at again when all of them were read, everything was there
 * at one moment in between; and nothing else was between the fences of the
 * leaves, each of which begins where the one before it ends. */
#include "index/tree/internal.h"

#include "base/mutant.h"

#include <stdlib.h>

#define TOGETHER 32u /* leaves that are looked at at once */

struct seen {
	struct tree *tree;
	uint64_t at, id, epoch;
	uint64_t contents[TREE_SLOTS];
};

struct tree_moment {
	struct seen *seen;
	uint32_t count, room;
};

int tree_moment_note(struct tree_moment **moment, struct tree *tree,
		     const struct tree_image *image)
{
	struct tree_moment *at = *moment;
	struct seen *seen;
	uint32_t room;

	if (!at)
		at = *moment = calloc(1, sizeof(*at));
	if (!at)
		return -ENOMEM;
	if (at->count == TREE_MOMENT_LEAVES)
		return -E2BIG;
	if (at->count == at->room) {
		room = at->room ? 2 * at->room : 8;
		seen = realloc(at->seen, room * sizeof(*seen));
		if (!seen)
			return -ENOMEM;
		at->seen = seen;
		at->room = room;
	}
	seen = &at->seen[at->count++];
	*seen = (struct seen){
		.tree = tree,
		.at = image->at,
		.id = image->id,
		.epoch = reef_epoch(tree->reef),
	};
	for (uint32_t i = 0; i < TREE_SLOTS; i++)
		seen->contents[i] = image->slots[i] & TREE_CONTENT;
	return 0;
}

void tree_moment_free(struct tree_moment *moment)
{
	if (!moment)
		return;
	free(moment->seen);
	free(moment);
}

/* Compare a leaf with its front, as it is now. */
static int compare(const struct seen *seen, uint64_t *front)
{
	uint64_t *slots = front + 2;
	int rc;

	if (front[0] != seen->id)
		return -ECANCELED;
	rc = tree_settle(seen->tree, slots, NULL);
	for (uint32_t i = 0; i < TREE_SLOTS && !rc; i++)
		if ((slots[i] & TREE_CONTENT) != seen->contents[i] &&
		    !(REEF_MUTATED(TXN_NO_PHANTOM) && !seen->contents[i]))
			rc = -ECANCELED;
	return rc;
}

static int compare_some(const struct seen *seen, uint32_t count)
{
	uint64_t fronts[TOGETHER][TREE_FRONT / 8];
	struct reef_access accesses[TOGETHER];
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		if (seen[i].epoch != reef_epoch(seen->tree->reef))
			return -ECANCELED;
		accesses[i] = (struct reef_access){
			.kind = REEF_READ,
			.address = seen[i].at,
			.local = fronts[i],
			.length = TREE_FRONT,
		};
	}
	rc = reef_execute(seen->tree->reef, accesses, count);
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = compare(&seen[i], fronts[i]);
	return rc;
}

int tree_moment_look(const struct tree_moment *moment)
{
	uint32_t some;
	int rc = 0;

	for (uint32_t i = 0; moment && i < moment->count && !rc; i += some) {
		some = moment->count - i < TOGETHER ? moment->count - i
						    : TOGETHER;
		rc = compare_some(&moment->seen[i], some);
	}
	return rc;
}
