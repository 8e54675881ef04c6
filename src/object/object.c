/* object.c - see object.h. */
#include "object/object.h"

#include "base/checksum.h"
#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT32_C(0x79536652) /* "RfSy" */
/* Each further attempt needs another client that bound or unbound the name
 * between two of our calls. */
#define ATTEMPTS 64
#define WAIT_SLICES 16

static uint64_t header_checksum(const struct object_header *header)
{
	return reef_crc32c(0, header, offsetof(struct object_header, checksum));
}

static int read_header(struct reef *reef, uint64_t block,
		       struct object_header *header)
{
	int rc = reef_read(reef, block, header, sizeof(*header));

	/* -EFAULT: the number bound there is no address of this space. */
	if (rc == -EFAULT)
		return -EEXIST;
	if (rc)
		return rc;
	if (header->magic != MAGIC ||
	    header->checksum != header_checksum(header))
		return -EEXIST;
	return 0;
}

static void fill_object(struct reef_space *space, uint64_t block,
			uint64_t generation, const struct object_header *header,
			struct object *out)
{
	*out = (struct object){
		.space = space,
		.reef = reef_space_handle(space),
		.block = block,
		.body = block + OBJECT_BODY,
		.body_size = header->body_size,
		.generation = generation,
	};
	memcpy(out->limits, header->limits, sizeof(out->limits));
}

static int open_bound(struct reef_space *space, uint64_t block,
		      uint64_t generation, enum object_kind kind,
		      uint8_t format, struct object *out)
{
	struct object_header header;
	int rc = read_header(reef_space_handle(space), block, &header);

	if (rc)
		return rc;
	if (header.kind != (uint8_t)kind)
		return -EEXIST;
	if (header.format != format)
		return -REEF_EVERSION;
	fill_object(space, block, generation, &header, out);
	return 0;
}

/* Write a block of which no other client knows yet: a WRITE in doubt can be
 * repeated. */
static int write_unshared(struct reef *reef, uint64_t block, const void *bytes,
			  uint64_t size)
{
	int rc, attempt = 0;

	do
		rc = reef_write(reef, block, bytes, size);
	while (rc == -REEF_EINDOUBT && ++attempt < ATTEMPTS);
	return rc;
}

static int create_block(struct reef_space *space, const char *name,
			const struct object_shape *shape, uint64_t *block)
{
	struct reef *reef = reef_space_handle(space);
	uint64_t size = OBJECT_BODY + shape->body_size;
	struct object_header *header = calloc(1, size);
	int rc;

	if (!header)
		return -ENOMEM;
	header->magic = MAGIC;
	header->kind = (uint8_t)shape->kind;
	header->format = shape->format;
	header->name_size = (uint16_t)strlen(name);
	header->body_size = shape->body_size;
	memcpy(header->limits, shape->limits, sizeof(header->limits));
	memcpy(header->name, name, header->name_size);
	header->checksum = header_checksum(header);
	if (shape->start_size)
		memcpy((char *)header + OBJECT_BODY, shape->start,
		       shape->start_size);
	rc = reef_alloc_kind(space, REEF_BLOCK_OBJECT, size, block);
	if (!rc) {
		rc = write_unshared(reef, *block, header, size);
		if (rc)
			reef_free(space, *block, 0);
	}
	free(header);
	return rc;
}

/* Whether a bind or replace that returned an error happened all the same: then
 * the name is bound to our block. */
static bool is_bound_to(struct reef_space *space, const char *name,
			uint64_t block, uint64_t *generation)
{
	uint64_t value;

	return !reef_name_lookup(space, name, &value, generation) &&
	       value == block;
}

/* Make an object and bind the name to it, or, if instead_of is not 0, replace
 * the binding of that generation. */
static int create_object(struct reef_space *space, const char *name,
			 const struct object_shape *shape, uint64_t instead_of,
			 struct object *out)
{
	uint64_t block, generation;
	int rc = create_block(space, name, shape, &block);

	if (rc)
		return rc;
	if (instead_of)
		rc = reef_name_replace(space, name, instead_of, block,
				       &generation);
	else
		rc = reef_name_bind(space, name, block, &generation);
	if (rc == -EEXIST || rc == -ESTALE || rc == -ENOENT) {
		reef_free(space, block, 0);
		return rc;
	}
	/* A block that may be bound is not freed here: recovery asks is_live
	 * when this session has ended. */
	if (rc && !is_bound_to(space, name, block, &generation))
		return rc;
	/* A keep that fails loses nothing: recovery asks is_live. */
	rc = reef_keep(space, block);
	if (rc == -REEF_EINDOUBT)
		reef_keep(space, block);
	return open_bound(space, block, generation, shape->kind, shape->format,
			  out);
}

static int check_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	if (!size)
		return -EINVAL;
	return size > OBJECT_NAME_MAX ? -ENAMETOOLONG : 0;
}

int object_open(struct reef_space *space, const char *name,
		const struct object_shape *shape, uint32_t flags,
		struct object *out)
{
	uint64_t block, generation;
	int rc, attempt;

	reef_assert(shape->start_size <= shape->body_size);
	rc = check_name(name);
	if (rc)
		return rc;
	if (flags & ~OBJECT_EXISTING)
		return -EINVAL;
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = reef_name_lookup(space, name, &block, &generation);
		if (!rc)
			return open_bound(space, block, generation, shape->kind,
					  shape->format, out);
		if (rc != -ENOENT || flags & OBJECT_EXISTING)
			return rc;
		rc = create_object(space, name, shape, 0, out);
		if (rc != -EEXIST)
			return rc;
	}
	return -EBUSY;
}

int object_replace(struct object *object, const char *name,
		   const struct object_shape *shape)
{
	struct reef_space *space = object->space;
	uint64_t block, generation = object->generation;
	int rc, attempt;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = create_object(space, name, shape, generation, object);
		if (rc != -ESTALE && rc != -ENOENT)
			return rc;
		rc = reef_name_lookup(space, name, &block, &generation);
		if (rc)
			return rc;
		rc = open_bound(space, block, generation, shape->kind,
				shape->format, object);
		if (rc != -REEF_ELOST)
			return rc;
	}
	return -REEF_ELOST;
}

/* Look up what the name is bound to.  -EEXIST: it may not be dropped as an
 * object of that kind. */
static int find_droppable(struct reef_space *space, const char *name,
			  enum object_kind kind, struct object *out)
{
	struct object_header header;
	uint64_t block, generation;
	int rc = reef_name_lookup(space, name, &block, &generation);

	if (rc)
		return rc;
	rc = read_header(reef_space_handle(space), block, &header);
	if (!rc && header.kind != (uint8_t)kind)
		return -EEXIST;
	if (!rc)
		fill_object(space, block, generation, &header, out);
	/* (5) */
	if (rc == -REEF_ELOST) {
		*out = (struct object){.space = space,
				       .generation = generation};
		rc = 0;
	}
	return rc;
}

/* Look up an object that is lost: *out has its space and generation.  -EAGAIN:
 * it is not lost. */
static int find_lost(struct reef_space *space, const char *name,
		     struct object *out)
{
	uint64_t block, word;
	int rc;

	*out = (struct object){
		.space = space,
		.reef = reef_space_handle(space),
	};
	rc = reef_name_lookup(space, name, &block, &out->generation);
	if (!rc)
		rc = reef_read(out->reef, block, &word, sizeof(word));
	if (rc == -REEF_ELOST)
		return 0;
	return rc ? rc : -EAGAIN;
}

int object_renew(struct reef_space *space, const char *name,
		 const struct object_shape *shape, struct object *out)
{
	int rc = find_lost(space, name, out);

	return rc ? rc : object_replace(out, name, shape);
}

int object_unbind(const struct object *object, const char *name)
{
	int rc = reef_name_unbind(object->space, name, object->generation);

	return rc == -ESTALE ? -ENOENT : rc;
}

/* --- what is lost --- */

uint64_t object_loss_wait_ns(const struct reef *reef)
{
	uint64_t fenced_ns = 2 * reef_session_ttl(reef);

	return fenced_ns > OBJECT_WAIT_NS ? fenced_ns : OBJECT_WAIT_NS;
}

int object_outwait(uint64_t wait_ns, int (*is_over)(void *context),
		   void *context)
{
	int rc = 0, i;

	for (i = 0; !rc && i < WAIT_SLICES; i++) {
		rc = reef_sleep(wait_ns / WAIT_SLICES);
		if (!rc)
			rc = is_over(context);
	}
	return rc < 0 ? rc : 0;
}

struct forgotten {
	const struct object *object;
	const char *name;
};

/* 1: the name is not bound to that object any more. */
static int is_forgotten(void *context)
{
	const struct forgotten *forgotten = context;
	uint64_t block, generation;
	int rc = reef_name_lookup(forgotten->object->space, forgotten->name,
				  &block, &generation);

	if (rc == -ENOENT)
		return 1;
	return rc ? rc : generation != forgotten->object->generation;
}

static int forget_object(const struct object *lost, const char *name,
			 uint64_t wait_ns)
{
	struct forgotten forgotten = {lost, name};
	int rc = 0;

	if (wait_ns)
		rc = object_outwait(wait_ns, is_forgotten, &forgotten);
	if (!rc)
		rc = object_unbind(lost, name);
	return rc == -ENOENT ? 0 : rc;
}

int object_forget(struct reef_space *space, const char *name, uint64_t wait_ns,
		  uint64_t *generation)
{
	struct object lost;
	int rc = find_lost(space, name, &lost);

	if (!rc)
		rc = forget_object(&lost, name, wait_ns);
	if (!rc && generation)
		*generation = lost.generation;
	return rc;
}

/* (7): of what is dropped here only a lock is held. */
static uint64_t lost_wait_ns(struct reef_space *space, enum object_kind kind)
{
	return kind == OBJECT_LOCK
		       ? object_loss_wait_ns(reef_space_handle(space))
		       : 0;
}

int object_drop(struct reef_space *space, const char *name,
		enum object_kind kind, struct object *object)
{
	struct object found;
	int rc = check_name(name), attempt;

	for (attempt = 0; !rc && attempt < ATTEMPTS; attempt++) {
		rc = find_droppable(space, name, kind, &found);
		if (rc)
			break;
		if (found.block)
			rc = reef_name_unbind(space, name, found.generation);
		else
			rc = forget_object(&found, name,
					   lost_wait_ns(space, kind));
		if (!rc && object)
			*object = found;
		if (!rc)
			return 0;
		/* The name was bound anew since: that object is dropped. */
		if (rc == -ESTALE)
			rc = 0;
	}
	return rc ? rc : -EBUSY;
}

/* --- recovery --- */

static int is_live(struct reef *reef, struct reef_space *space,
		   uint64_t address)
{
	struct object_header header;
	uint64_t block, generation;
	int rc = read_header(reef, address, &header);

	/* Its maker died before the header was written; or it is lost. */
	if (rc == -EEXIST || rc == -REEF_ELOST)
		return 0;
	if (rc)
		return rc;
	header.name[OBJECT_NAME_MAX] = 0;
	rc = reef_name_lookup(space, header.name, &block, &generation);
	if (rc == -ENOENT)
		return 0;
	return rc ? rc : block == address;
}

static const struct reef_kind_ops ops = {
	.name = "object",
	.is_live = is_live,
};

/* The kind is registered before main, because a process that never opens an
 * object may be asked to recover a dead session that made one. */
__attribute__((constructor)) static void register_kind(void)
{
	reef_kind_register(REEF_BLOCK_OBJECT, &ops);
}
