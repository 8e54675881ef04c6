/* examine.c - see examine.h.
 *
 *   scan to the end --done--> sound
 *     |  ^
 *     |  +------- from there on --------+
 *     v damaged, or lost                |
 *   begin with the next leaf, as the parents know it, and the next, until that
 *   can be read */
#include "kv/examine.h"

#include "kv/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEAVES_MAX 100000u /* in a row, that are damaged */

struct bytes {
	uint8_t *at;
	size_t size, room;
	bool is_set;
};

struct examination {
	struct reef_tree *tree;
	struct bytes last; /* the key that was met last, or where it goes on */
	bool is_met;	   /* it was met */
	uint64_t keys;
	bool is_disordered;
	int error; /* of a probe */
};

static int set_bytes(struct bytes *bytes, const void *from, size_t size)
{
	uint8_t *larger;

	if (!bytes->at || size + 1 > bytes->room) {
		larger = realloc(bytes->at, size + 1);
		if (!larger)
			return -ENOMEM;
		bytes->at = larger;
		bytes->room = size + 1;
	}
	if (size)
		memcpy(bytes->at, from, size);
	bytes->size = size;
	bytes->is_set = true;
	return 0;
}

static bool is_fault(int rc)
{
	return rc == -REEF_ECORRUPT || rc == -REEF_ELOST;
}

static bool is_above(const void *key, size_t size, const struct bytes *than)
{
	int order =
		memcmp(key, than->at, size < than->size ? size : than->size);

	return order > 0 || (order == 0 && size > than->size);
}

static int meet_key(void *context, const struct reef_map_entry *entry)
{
	struct examination *self = context;

	if (self->is_met &&
	    !is_above(entry->key, entry->key_size, &self->last)) {
		self->is_disordered = true;
		return -EBADMSG;
	}
	self->keys++;
	self->is_met = true;
	return set_bytes(&self->last, entry->key, entry->key_size);
}

/* --- where it can be read again --- */

/* True if a scan can begin at a key: neither there, nor between it and the next
 * one, is anything damaged. */
static bool is_readable(struct examination *self, const void *key, size_t size)
{
	const struct reef_range range = {
		.from = key,
		.from_size = size,
		.flags = REEF_RANGE_KEYS,
	};
	int rc = reef_tree_first(self->tree, &range, NULL, NULL);

	if (rc && rc != -ENOENT && !is_fault(rc) && !self->error)
		self->error = rc;
	return !rc || rc == -ENOENT;
}

/* Find the next leaf that a scan can begin with, behind the last key; *head: of
 * the leaf before it, which is damaged. *good is not set: there is none. */
static int find_readable(struct examination *self, struct bytes *good,
			 uint64_t *head)
{
	struct tree_place place = {0};
	struct bytes key = {0};
	int rc = set_bytes(&key, self->last.at,
			   self->last.is_set ? self->last.size : 0);

	good->is_set = false;
	for (uint32_t i = 0; !rc && !self->error && i < LEAVES_MAX; i++) {
		rc = tree_place_find(self->tree->map.table, key.at,
				     (uint32_t)key.size, &place);
		if (!rc)
			*head = place.head;
		if (rc || !place.end)
			break;
		if (is_readable(self, place.end, place.end_size)) {
			rc = set_bytes(good, place.end, place.end_size);
			break;
		}
		rc = set_bytes(&key, place.end, place.end_size);
	}
	entry_room_free(&place.room);
	free(key.at);
	/* A damaged node above the leaves hides what is behind it. */
	return is_fault(rc) ? 0 : rc ? rc : self->error;
}

/* --- all of it --- */

/* Tell a fault behind the last key. *good: where to go on; not set: nowhere. */
static int tell_fault(struct examination *self, int error,
		      void (*fault)(void *context,
				    const struct tree_fault *fault),
		      void *context, struct bytes *good)
{
	struct tree_fault found = {.error = error};
	int rc = find_readable(self, good, &found.head);

	if (rc)
		return rc;
	if (self->last.is_set) {
		found.after = self->last.at;
		found.after_size = self->last.size;
	}
	if (good->is_set) {
		found.before = good->at;
		found.before_size = good->size;
	}
	fault(context, &found);
	return 0;
}

int tree_examine(struct reef_tree *tree,
		 void (*fault)(void *context, const struct tree_fault *fault),
		 void *context, uint64_t *keys)
{
	struct examination self = {.tree = tree};
	struct bytes from = {0};
	int rc = 0;

	for (uint32_t faults = 0; faults < TREE_FAULTS_MAX; faults++) {
		const struct reef_range range = {
			.from = from.is_set ? from.at : NULL,
			.from_size = from.size,
			.flags = REEF_RANGE_KEYS,
		};

		rc = reef_tree_scan(tree, &range, meet_key, &self);
		if (self.is_disordered) {
			const struct tree_fault found = {
				.after = self.last.at,
				.after_size = self.last.size,
				.error = -EBADMSG,
			};

			fault(context, &found);
			rc = 0;
			break;
		}
		if (!is_fault(rc))
			break;
		rc = tell_fault(&self, rc, fault, context, &from);
		if (rc || !from.is_set)
			break;
		/* What is told next lies behind this. */
		rc = set_bytes(&self.last, from.at, from.size);
		self.is_met = false;
		if (rc)
			break;
	}
	free(from.at);
	free(self.last.at);
	*keys = self.keys;
	return rc;
}
