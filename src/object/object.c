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

static uint64_t checksum(const struct sync_header *header)
{
	return reef_crc32c(0, header, offsetof(struct sync_header, checksum));
}

static int read_header(struct reef *reef, uint64_t block,
		       struct sync_header *header)
{
	int rc = reef_read(reef, block, header, sizeof(*header));

	/* -EFAULT: the number bound there is no address of this space. */
	if (rc == -EFAULT)
		return -EEXIST;
	if (rc)
		return rc;
	if (header->magic != MAGIC || header->checksum != checksum(header))
		return -EEXIST;
	return 0;
}

static void fill(struct reef_space *space, uint64_t block, uint64_t generation,
		 const struct sync_header *header, struct sync_object *out)
{
	*out = (struct sync_object){
		.space = space,
		.reef = reef_space_handle(space),
		.block = block,
		.body = block + SYNC_BODY,
		.body_size = header->body_size,
		.generation = generation,
	};
	memcpy(out->limits, header->limits, sizeof(out->limits));
}

static int open_bound(struct reef_space *space, uint64_t block,
		      uint64_t generation, enum sync_kind kind, uint8_t format,
		      struct sync_object *out)
{
	struct sync_header header;
	int rc = read_header(reef_space_handle(space), block, &header);

	if (rc)
		return rc;
	if (header.kind != (uint8_t)kind)
		return -EEXIST;
	if (header.format != format)
		return -REEF_EVERSION;
	fill(space, block, generation, &header, out);
	return 0;
}

/* Nobody else knows of the block yet: what is in doubt is written again. */
static int write_all(struct reef *reef, uint64_t block, const void *bytes,
		     uint64_t size)
{
	int rc, attempt = 0;

	do
		rc = reef_write(reef, block, bytes, size);
	while (rc == -REEF_EINDOUBT && ++attempt < ATTEMPTS);
	return rc;
}

static int write_block(struct reef_space *space, const char *name,
		       const struct sync_shape *shape, uint64_t *block)
{
	struct reef *reef = reef_space_handle(space);
	uint64_t size = SYNC_BODY + shape->body_size;
	struct sync_header *header = calloc(1, size);
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
	header->checksum = checksum(header);
	if (shape->start_size)
		memcpy((char *)header + SYNC_BODY, shape->start,
		       shape->start_size);
	rc = reef_alloc_kind(space, SYNC_BLOCK_KIND, size, block);
	if (!rc) {
		rc = write_all(reef, *block, header, size);
		if (rc)
			reef_free(space, *block, 0);
	}
	free(header);
	return rc;
}

/* The outcome of a bind or replace of which only an error is known: it is ours
 * if the name is bound to our block. */
static bool is_bound_to(struct reef_space *space, const char *name,
			uint64_t block, uint64_t *generation)
{
	uint64_t value;

	return !reef_name_lookup(space, name, &value, generation) &&
	       value == block;
}

/* instead_of: the generation to replace; 0: bind. */
static int make(struct reef_space *space, const char *name,
		const struct sync_shape *shape, uint64_t instead_of,
		struct sync_object *out)
{
	uint64_t block, generation;
	int rc = write_block(space, name, shape, &block);

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
	/* In doubt and still unknown: not freed, is_live will tell. */
	if (rc && !is_bound_to(space, name, block, &generation))
		return rc;
	/* Should it fail, is_live will tell. */
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
	return size > SYNC_NAME_MAX ? -ENAMETOOLONG : 0;
}

int sync_object_open(struct reef_space *space, const char *name,
		     const struct sync_shape *shape, uint32_t flags,
		     struct sync_object *out)
{
	uint64_t block, generation;
	int rc, attempt;

	reef_assert(shape->start_size <= shape->body_size);
	rc = check_name(name);
	if (rc)
		return rc;
	if (flags & ~REEF_SYNC_EXISTING)
		return -EINVAL;
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = reef_name_lookup(space, name, &block, &generation);
		if (!rc)
			return open_bound(space, block, generation, shape->kind,
					  shape->format, out);
		if (rc != -ENOENT || flags & REEF_SYNC_EXISTING)
			return rc;
		rc = make(space, name, shape, 0, out);
		if (rc != -EEXIST)
			return rc;
	}
	return -EBUSY;
}

int sync_object_replace(struct sync_object *object, const char *name,
			const struct sync_shape *shape)
{
	struct reef_space *space = object->space;
	uint64_t block, generation = object->generation;
	int rc, attempt;

	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		rc = make(space, name, shape, generation, object);
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

/* What is bound now, if it may be dropped as one of that kind. */
static int find(struct reef_space *space, const char *name, enum sync_kind kind,
		struct sync_object *out)
{
	struct sync_header header;
	uint64_t block, generation;
	int rc = reef_name_lookup(space, name, &block, &generation);

	if (rc)
		return rc;
	rc = read_header(reef_space_handle(space), block, &header);
	if (!rc && header.kind != (uint8_t)kind)
		return -EEXIST;
	if (!rc)
		fill(space, block, generation, &header, out);
	/* A lost one can only be forgotten. */
	if (rc == -REEF_ELOST) {
		*out = (struct sync_object){.generation = generation};
		rc = 0;
	}
	return rc;
}

int sync_object_drop(struct reef_space *space, const char *name,
		     enum sync_kind kind, struct sync_object *object)
{
	struct sync_object found;
	int rc = check_name(name), attempt;

	for (attempt = 0; !rc && attempt < ATTEMPTS; attempt++) {
		rc = find(space, name, kind, &found);
		if (rc)
			break;
		rc = reef_name_unbind(space, name, found.generation);
		if (!rc && object)
			*object = found;
		if (!rc)
			return 0;
		/* Another one by now: that is dropped, then. */
		if (rc == -ESTALE)
			rc = 0;
	}
	return rc ? rc : -EBUSY;
}

/* --- recovery --- */

static int is_live(struct reef *reef, struct reef_space *space,
		   uint64_t address)
{
	struct sync_header header;
	uint64_t block, generation;
	int rc = read_header(reef, address, &header);

	if (rc == -EEXIST) /* died before it was written */
		return 0;
	if (rc)
		return rc;
	header.name[SYNC_NAME_MAX] = 0;
	rc = reef_name_lookup(space, header.name, &block, &generation);
	if (rc == -ENOENT)
		return 0;
	return rc ? rc : block == address;
}

static const struct reef_kind_ops ops = {
	.name = "sync",
	.is_live = is_live,
};

/* Before main: whoever recovers a dead session may have come for something
 * else, and never call anything here. */
__attribute__((constructor)) static void register_kind(void)
{
	reef_kind_register(SYNC_BLOCK_KIND, &ops);
}
