/* object.h - what all sync objects have in common: a name, and a block of the
 * space that begins with a header and is never freed (sync.h, 4).
 *
 *   open: look the name up; not bound: alloc, write header and body, bind, keep
 *         bound by another meanwhile: free ours, use that one
 *   drop: unbind; the block stays (sync.h, 4)
 *
 * (1) A block is an object when a name is bound to it. Its maker may die
 *     between bind and keep: recovery asks is_live, which looks whether the
 *     name in the header is bound to the block.
 * (2) The header does not change. The body's layout is each object's own.
 *
 * Thread: owner of the handle. */
#ifndef REEF_OBJECT_OBJECT_H
#define REEF_OBJECT_OBJECT_H

#include "pool/client/client.h"

#include <assert.h>
#include <reef/sync.h>

#define SYNC_BLOCK_KIND 3 /* reef_kind_register */

enum sync_kind {
	SYNC_LOCK = 1,
	SYNC_BARRIER,
	SYNC_SEQUENCER,
	SYNC_CLOCK,
	SYNC_LEASE,
	SYNC_ELECTION,
	SYNC_MAP, /* kv */
};

#define SYNC_LIMITS 6
#define SYNC_NAME_MAX 255 /* bytes */

struct sync_header { /* in the block, first */
	uint32_t magic;
	uint8_t kind, format;
	uint16_t name_size;
	uint64_t body_size;
	uint32_t limits[SYNC_LIMITS];
	char name[SYNC_NAME_MAX + 1];
	uint64_t checksum; /* of all before it */
};
#define SYNC_BODY 384 /* where the body begins, in the block */
static_assert(sizeof(struct sync_header) <= SYNC_BODY, "layout");

struct sync_shape { /* of an object to be made */
	enum sync_kind kind;
	uint8_t format;
	uint32_t limits[SYNC_LIMITS];
	uint64_t body_size; /* zeroes, except for: */
	const void *start;  /* the first bytes of the body; may be NULL */
	uint32_t start_size;
};

struct sync_object {
	struct reef_space *space;
	struct reef *reef;
	uint64_t block; /* its address, and what messages call it */
	uint64_t body;
	uint64_t body_size;
	uint64_t generation; /* of the name's binding */
	uint32_t limits[SYNC_LIMITS];
};

/* Open the object of that name, or make it, unless flags has
 * REEF_SYNC_EXISTING.  Errors as sync.h says of every open. */
int sync_object_open(struct reef_space *space, const char *name,
		     const struct sync_shape *shape, uint32_t flags,
		     struct sync_object *out);

/* Make a new object of the same name in place of one that was lost, if the name
 * is still bound to that one; then use whichever is bound.  -REEF_ELOST: that
 * one is lost, too. */
int sync_object_replace(struct sync_object *object, const char *name,
			const struct sync_shape *shape);

/* Unbind the name, if it is of an object of that kind (or of one that is lost).
 * *object (may be NULL): what it was, so that the caller can mark it; zeroed,
 * but for its generation, if it is lost.  -ENOENT.  -EEXIST: another kind's. */
int sync_object_drop(struct reef_space *space, const char *name,
		     enum sync_kind kind, struct sync_object *object);

#endif
