/* merge.c - what is in a node, records and slots together: (2) of layout.h. */
#include "index/tree/internal.h"

#include <stdlib.h>

struct change {
	struct tree_record record;
	bool is_dead;
};

static int compare_changes(const void *a, const void *b)
{
	const struct change *first = a, *second = b;

	return tree_compare(first->record.key, first->record.key_size,
			    second->record.key, second->record.key_size);
}

/* What slot i, which is used, says. */
static int read_change(const struct tree_image *image, uint64_t slot,
		       const struct tree_entries *entries, uint32_t i,
		       uint32_t inline_max, struct change *change,
		       struct tree_merged *merged)
{
	struct entry entry;

	*change = (struct change){.is_dead = tree_slot_is_dead(slot)};
	if (!tree_slot_has_entry(slot)) {
		if (tree_slot_block(slot) >= image->records_count)
			return -REEF_ECORRUPT;
		change->record = image->records[tree_slot_block(slot)];
		return 0;
	}
	entry = entry_view(entries->rooms[i].bytes);
	change->record = (struct tree_record){
		.key = entry.key,
		.key_size = entry.key_size,
		.value = entry.value,
		.value_size = entry.value_size,
		.version = entry.version,
		.stamp = entry.stamp,
	};
	if (change->is_dead || entry.value_size <= inline_max) {
		merged->frees[merged->frees_count++] = entries->at[i];
		return 0;
	}
	change->record.value = NULL;
	change->record.value_size = 0;
	change->record.stamp = 0;
	change->record.outside =
		tree_slot_make(tree_slot_block(slot), tree_slot_hint(slot), 0);
	return 0;
}

static int gather_changes(const struct tree_image *image, const uint64_t *slots,
			  const struct tree_entries *entries,
			  uint32_t inline_max, struct change *changes,
			  uint32_t *count, struct tree_merged *merged)
{
	int rc = 0;

	*count = 0;
	for (uint32_t i = 0; i < TREE_SLOTS && !rc; i++)
		if (tree_slot_is_used(slots[i]))
			rc = read_change(image, slots[i], entries, i,
					 inline_max, &changes[(*count)++],
					 merged);
	if (rc)
		return rc;
	qsort(changes, *count, sizeof(*changes), compare_changes);
	/* A key has one slot: (1). */
	for (uint32_t i = 1; i < *count; i++)
		if (!compare_changes(&changes[i - 1], &changes[i]))
			return -REEF_ECORRUPT;
	return 0;
}

void tree_merged_free(struct tree_merged *merged)
{
	free(merged->records);
	*merged = (struct tree_merged){0};
}

/* Which comes first: record i, or change j? */
static int compare_next(const struct tree_image *image, uint32_t i,
			const struct change *changes, uint32_t count,
			uint32_t j)
{
	if (i == image->records_count)
		return 1;
	if (j == count)
		return -1;
	return tree_compare(image->records[i].key, image->records[i].key_size,
			    changes[j].record.key, changes[j].record.key_size);
}

int tree_merge(const struct tree_image *image, const uint64_t *slots,
	       const struct tree_entries *entries, uint32_t inline_max,
	       struct tree_merged *merged)
{
	struct change changes[TREE_SLOTS];
	uint32_t count, i = 0, j = 0;
	int rc, order;

	*merged = (struct tree_merged){0};
	rc = gather_changes(image, slots, entries, inline_max, changes, &count,
			    merged);
	if (rc)
		return rc;
	merged->records = calloc(image->records_count + count + 1u,
				 sizeof(*merged->records));
	if (!merged->records)
		return -ENOMEM;
	merged->is_ascending = count && image->records_count &&
			       compare_next(image, image->records_count - 1,
					    changes, count, 0) < 0;
	while (i < image->records_count || j < count) {
		order = compare_next(image, i, changes, count, j);
		if (order < 0) {
			merged->records[merged->count++] = image->records[i++];
			continue;
		}
		i += !order;
		if (!changes[j].is_dead)
			merged->records[merged->count++] = changes[j].record;
		j++;
	}
	/* (R10) A slot may name the entry of another node's key. */
	if (!tree_image_has_room(image, merged->records, merged->count)) {
		tree_merged_free(merged);
		return -REEF_ECORRUPT;
	}
	return 0;
}
