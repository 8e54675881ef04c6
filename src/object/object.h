/* object.h - named objects: what locks, barriers, sequencers, clocks, leases,
 * elections and maps have in common. An object is a name of a space, bound to
 * a block that begins with a header; what follows, the body, is laid out by
 * whoever the kind belongs to.
 *
 *   object_open   look the name up; if it is not bound: allocate a block, write
 *                 header and body, bind the name, keep the block; if another
 *                 client bound it meanwhile: free our block and use that one
 *   object_drop   unbind the name
 *
 * (1) A block is an object while a name is bound to it. Its maker may die
 *     between bind and keep: recovery then asks is_live, which looks whether
 *     the name in the header is bound to that block.
 * (2) The header is written before the name is bound and never changes. A
 *     block whose header has another magic or checksum is no object: -EEXIST.
 * (3) A name is bound to at most one object, and its generation is new with
 *     every bind: (name, generation) tells one object from the next.
 * (4) The block of a dropped object is not freed, so that a client which still
 *     has it open cannot harm what comes after it. Whoever must tell such a
 *     client marks the body before the name is unbound.
 * (5) An object whose node died can only be forgotten (object_drop,
 *     object_forget) or replaced (object_replace): nobody can read of which
 *     kind it was.
 * (6) (R10) Whatever is read from shared memory is checked by whoever uses it:
 *     the header here, limits and body by whoever the kind belongs to. A
 *     scribbled word costs an error, never a crash or a hang.
 * (7) What a client holds in a lost object (it leads, it has a lease or a lock)
 *     it may believe in until it has learned of the loss. So whoever forgets
 *     such an object waits first, for OBJECT_WAIT_NS and two TTLs of a session
 *     at least, counted from when it knew of the loss itself: by then every
 *     session has asked the broker again and taken in what changed (it does so
 *     every quarter of a TTL), or it has not, and is fenced.
 *
 * Thread: owner of the handle. */
#ifndef REEF_OBJECT_OBJECT_H
#define REEF_OBJECT_OBJECT_H

#include "pool/client/client.h"

#include <assert.h>

/* The kinds of objects; the numbers are in headers. */
enum object_kind {
	OBJECT_LOCK = 1,
	OBJECT_BARRIER,
	OBJECT_SEQUENCER,
	OBJECT_CLOCK,
	OBJECT_LEASE,
	OBJECT_ELECTION,
	OBJECT_MAP,
	OBJECT_TREE,
	OBJECT_LOG = 16,
	OBJECT_READER, /* of a log */
};

#define OBJECT_LIMITS 6
#define OBJECT_NAME_MAX 255 /* bytes */

/* How long a client may go on with what it last heard of an object from the
 * broker, where its kind says so (clock.c); and how long others wait for that,
 * as clocks drift. */
#define OBJECT_VALID_NS (UINT64_C(5) << 30)
#define OBJECT_WAIT_NS (OBJECT_VALID_NS + OBJECT_VALID_NS / 8)

/* Flags of an open; the same bit in sync.h and map.h. */
#define OBJECT_EXISTING 1u /* do not make it */

struct object_header { /* in the block, first */
	uint32_t magic;
	uint8_t kind, format;
	uint16_t name_size;
	uint64_t body_size;
	uint32_t limits[OBJECT_LIMITS];
	char name[OBJECT_NAME_MAX + 1];
	uint64_t checksum; /* of all before it */
};
#define OBJECT_BODY 384 /* where the body begins, in the block */
static_assert(sizeof(struct object_header) <= OBJECT_BODY, "layout");

struct object_shape { /* of an object to be made */
	enum object_kind kind;
	uint8_t format; /* of the body */
	uint32_t limits[OBJECT_LIMITS];
	uint64_t body_size; /* zeroes, except for: */
	const void *start;  /* the first bytes of the body; may be NULL */
	uint32_t start_size;
};

struct object {
	struct reef_space *space;
	struct reef *reef;
	uint64_t block; /* its address, and what messages call it */
	uint64_t body;
	uint64_t body_size;
	uint64_t generation; /* of the name's binding */
	uint32_t limits[OBJECT_LIMITS];
};

/* Open the object of that name, or make it, unless flags has OBJECT_EXISTING.
 * -ENOENT: there is none, with OBJECT_EXISTING.  -EEXIST: the name is bound to
 * something else.  -REEF_EVERSION: its body has another format.  -EINVAL: no
 * name, or an unknown flag.  -ENAMETOOLONG.  -EBUSY: others bound and unbound
 * the name at each of 64 attempts.  Else errors of names, blocks and access. */
int object_open(struct reef_space *space, const char *name,
		const struct object_shape *shape, uint32_t flags,
		struct object *out);

/* Make a new object of the same name in place of one that was lost, if the name
 * is still bound to that one; then use whichever is bound. Of *object only the
 * space and the generation need to be set.  -ENOENT: dropped.  -REEF_ELOST: the
 * new one is lost, too. */
int object_replace(struct object *object, const char *name,
		   const struct object_shape *shape);

/* The same for a client that has nothing of the lost object but its name.
 * -EAGAIN: it is not lost (any more); open it. */
int object_renew(struct reef_space *space, const char *name,
		 const struct object_shape *shape, struct object *out);

/* Unbind the name, if it is of an object of that kind (or of one that is lost).
 * *object (may be NULL): what it was, so that the caller can mark it; zeroed,
 * but for its space and generation, if it is lost. A lost lock is waited for:
 * (7).  -ENOENT.  -EEXIST: it is bound to
 * something else.  -EINVAL, -ENAMETOOLONG.  -EBUSY: as open. */
int object_drop(struct reef_space *space, const char *name,
		enum object_kind kind, struct object *object);

/* Unbind the name of an object that is lost, if it is still bound to it after
 * wait_ns. *generation (may be NULL) is that of the name. 0 also: another has
 * unbound it meanwhile.  -EAGAIN: it is not lost.  -ENOENT. */
int object_forget(struct reef_space *space, const char *name, uint64_t wait_ns,
		  uint64_t *generation);
/* How long rule 7 asks to wait. */
uint64_t object_loss_wait_ns(const struct reef *reef);

/* Wait for wait_ns, or until is_over, which is asked now and then, returns 1.
 * Its errors are returned. */
int object_outwait(uint64_t wait_ns, int (*is_over)(void *context),
		   void *context);

/* Unbind the name, if it is still bound to this object.  -ENOENT: it is not. */
int object_unbind(const struct object *object, const char *name);

#endif
