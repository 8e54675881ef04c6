/* range.c - the keys of a range: scanned, counted, deleted. */
#include "kv/hold.h"
#include "kv/tree.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define DELETED_TOGETHER 256u /* keys that are noted, then deleted */

/* Of what the tree calls for each key: it was the last. */
enum { ENDED = 1 };

/* Make the tree's range of the caller's. */
static int check_range(const struct reef_tree *tree,
		       const struct reef_range *given, struct tree_range *out)
{
	static const struct reef_range all;
	const struct reef_range *range = given ? given : &all;

	static_assert(REEF_RANGE_BACKWARD == TREE_RANGE_BACKWARD &&
			      REEF_RANGE_KEYS == TREE_RANGE_KEYS &&
			      REEF_RANGE_AFTER == TREE_RANGE_AFTER,
		      "the same flags");
	if (range->flags & ~(REEF_RANGE_BACKWARD | REEF_RANGE_KEYS |
			     REEF_RANGE_AFTER) ||
	    (range->from && range->from_size > tree->map.key_max) ||
	    (range->to && range->to_size > tree->map.key_max))
		return -EINVAL;
	*out = (struct tree_range){
		.from = range->from,
		.to = range->to,
		.from_size = range->from ? (uint32_t)range->from_size : 0,
		.to_size = range->to ? (uint32_t)range->to_size : 0,
		.flags = range->flags,
		.limit = range->limit,
	};
	return 0;
}

/* --- scan --- */

struct scan {
	struct reef_map *map;
	int (*each)(void *context, const struct reef_map_entry *entry);
	void *context;
	uint64_t now_ms;	   /* 0: not asked for yet */
	int said;		   /* by `each`: any number */
	struct map_doomed *doomed; /* keys that have expired; NULL: no matter */
};

static int scan_entry(void *context, const struct entry *entry)
{
	struct scan *scan = context;
	const struct reef_map_entry told = map_entry_of(entry);
	int rc = 0;

	if (entry->stamp && !scan->now_ms)
		rc = map_time(scan->map, &scan->now_ms);
	if (rc)
		return rc;
	if (map_has_expired(entry->stamp, scan->now_ms)) {
		if (scan->doomed)
			rc = map_doomed_note(scan->doomed, entry);
		return rc ? rc : TREE_PASS;
	}
	scan->said = scan->each(scan->context, &told);
	return scan->said ? ENDED : 0;
}

int reef_tree_scan(struct reef_tree *tree, const struct reef_range *given,
		   int (*each)(void *context,
			       const struct reef_map_entry *entry),
		   void *context)
{
	struct scan scan = {
		.map = &tree->map,
		.each = each,
		.context = context,
	};
	struct tree_range range;
	int rc = check_range(tree, given, &range);

	if (rc)
		return rc;
	/* A tick that fails is met again by whoever needs the time. */
	map_refresh_tick(&tree->map);
	rc = tree_scan(tree->map.table, &range, scan_entry, &scan);
	return scan.said ? scan.said : rc;
}

int map_hold_scan(struct reef_tree *tree, const struct reef_range *given,
		  int (*each)(void *context,
			      const struct reef_map_entry *entry),
		  void *context, struct tree_moment **moment, bool *expired)
{
	struct map_doomed doomed = {0};
	struct scan scan = {
		.map = &tree->map,
		.each = each,
		.context = context,
		.doomed = &doomed,
	};
	struct tree_range range;
	int rc = check_range(tree, given, &range), removed = 0;

	if (rc)
		return rc;
	range.moment = moment;
	map_refresh_tick(&tree->map);
	rc = tree_scan(tree->map.table, &range, scan_entry, &scan);
	*expired = doomed.used;
	if (*expired)
		removed = map_doomed_remove(&tree->map, &doomed, false, NULL);
	/* Who may not write leaves them to others. */
	if (removed == -EACCES)
		*expired = false;
	map_doomed_free(&doomed);
	return scan.said ? scan.said : rc;
}

/* --- the first --- */

struct first {
	struct reef_map_value *key, *value;
	bool is_found;
};

/* Copy bytes into a value's room. */
static int fill_bytes(struct reef_map_value *value, const void *bytes,
		      size_t size)
{
	void *room = value->room;

	if (size > value->room_size || !room) {
		room = realloc(value->room, size + 1);
		if (!room)
			return -ENOMEM;
		value->room = room;
		value->room_size = size + 1;
	}
	if (size && bytes)
		memcpy(room, bytes, size);
	value->bytes = bytes ? room : NULL;
	value->size = size;
	return 0;
}

static int fill_part(struct reef_map_value *value, const void *bytes,
		     size_t size, const struct reef_map_entry *entry)
{
	int rc = value ? fill_bytes(value, bytes, size) : 0;

	if (rc || !value)
		return rc;
	value->version = entry->version;
	value->expires_ms = entry->expires_ms;
	value->idle_ms = 0;
	value->frequency = 0;
	return 0;
}

static int take_first(void *context, const struct reef_map_entry *entry)
{
	struct first *first = context;
	int rc = fill_part(first->key, entry->key, entry->key_size, entry);

	if (!rc)
		rc = fill_part(first->value, entry->value, entry->value_size,
			       entry);
	first->is_found = !rc;
	return rc;
}

int reef_tree_first(struct reef_tree *tree, const struct reef_range *given,
		    struct reef_map_value *key, struct reef_map_value *out)
{
	struct reef_range range = {0};
	struct first first = {.key = key, .value = out};
	int rc;

	if (given)
		range = *given;
	range.limit = 1;
	if (!out)
		range.flags |= REEF_RANGE_KEYS;
	rc = reef_tree_scan(tree, &range, take_first, &first);
	if (rc)
		return rc;
	return first.is_found ? 0 : -ENOENT;
}

/* --- count --- */

int reef_tree_count(struct reef_tree *tree, const struct reef_range *given,
		    uint64_t *count)
{
	struct tree_range range;
	int rc = check_range(tree, given, &range);

	return rc ? rc : tree_count_range(tree->map.table, &range, count);
}

/* --- delete --- */

struct deletion {
	struct reef_map *map;
	struct map_doomed doomed;
	struct map_doomed expired; /* keys that are not there; not counted */
	void *last; /* the key that was noted last; the caller's copy */
	size_t last_size;
	uint64_t now_ms; /* 0: not asked for yet */
	uint64_t left;	 /* keys that may still be noted */
	uint32_t count;	 /* of keys that were noted, expired ones, too */
};

static int note_key(void *context, const struct entry *entry)
{
	struct deletion *deletion = context;
	void *last = realloc(deletion->last, entry->key_size + (size_t)1);
	int rc = 0;

	if (!last)
		return -ENOMEM;
	if (entry->key_size)
		memcpy(last, entry->key, entry->key_size);
	deletion->last = last;
	deletion->last_size = entry->key_size;
	deletion->count++;
	if (entry->stamp && !deletion->now_ms)
		rc = map_time(deletion->map, &deletion->now_ms);
	if (rc)
		return rc;
	if (map_has_expired(entry->stamp, deletion->now_ms))
		return map_doomed_note(&deletion->expired, entry);
	rc = map_doomed_note(&deletion->doomed, entry);
	return rc ? rc : --deletion->left ? 0 : ENDED;
}

/* Delete the next keys of a range, of which `range` begins behind them
 * afterwards; its key is deletion->last. ENDED: there are no more. */
static int delete_some(struct reef_tree *tree, struct tree_range *range,
		       struct deletion *deletion, uint64_t *deleted)
{
	struct tree_range some = *range;
	int ended, rc;

	deletion->count = 0;
	some.flags |= TREE_RANGE_KEYS;
	some.limit = DELETED_TOGETHER;
	ended = tree_scan(tree->map.table, &some, note_key, deletion);
	if (ended < 0)
		return ended;
	rc = map_doomed_remove(&tree->map, &deletion->doomed, true, deleted);
	if (!rc)
		rc = map_doomed_remove(&tree->map, &deletion->expired, false,
				       NULL);
	range->from = deletion->last;
	range->from_size = (uint32_t)deletion->last_size;
	range->flags |= TREE_RANGE_AFTER;
	if (!rc && (ended || deletion->count < DELETED_TOGETHER))
		rc = ENDED;
	return rc;
}

int reef_tree_delete_range(struct reef_tree *tree,
			   const struct reef_range *given, uint64_t *deleted)
{
	struct deletion deletion = {.map = &tree->map};
	struct tree_range range;
	uint64_t all = 0;
	int rc = check_range(tree, given, &range);

	if (rc)
		return rc;
	deletion.left = range.limit ? range.limit : UINT64_MAX;
	while (!rc)
		rc = delete_some(tree, &range, &deletion, &all);
	map_doomed_free(&deletion.doomed);
	map_doomed_free(&deletion.expired);
	free(deletion.last);
	if (deleted)
		*deleted = all;
	return rc == ENDED ? 0 : rc;
}
