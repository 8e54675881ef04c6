/* heap_world.h - a space in plain memory, for tests of the heap: extents, and
 * sessions whose operations happen at once, one after the other.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_HEAP_WORLD_H
#define REEF_TESTS_HEAP_WORLD_H

#include "pool/client/heap/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB (UINT64_C(1) << 20)
#define KIB (UINT64_C(1) << 10)
#define EXTENTS_MAX 128u
#define SESSIONS_MAX 512u

struct world {
	uint64_t extent_size, size_max; /* of one; of all */
	uint64_t used;
	uint32_t count;
	struct {
		uint8_t *base;
		uint64_t size;
		bool lost;
	} extents[EXTENTS_MAX];
	uint64_t reclaim, safe;
	bool fenced[SESSIONS_MAX + 1]; /* by session number */
	/* What was done, by all. */
	uint64_t batches, reads, writes, cas, faa, grows;
	/* Every n-th batch fails whole with this. */
	uint32_t fail_every;
	int fail_with;
	/* After so many accesses nothing happens any more: the client died. */
	uint64_t die_after;
	bool dead;
};

#define EXTENT_BASE 7u /* numbers do not begin at 0 */

static inline uint8_t *world_at(struct world *world, uint64_t address,
				uint64_t length)
{
	uint32_t number = (uint32_t)(address >> 32) - EXTENT_BASE;
	uint64_t offset = (uint32_t)address;

	if (number >= world->count || world->extents[number].lost ||
	    offset + length > world->extents[number].size)
		return NULL;
	return world->extents[number].base + offset;
}

static inline int world_access(struct world *world, struct reef_access *access)
{
	uint32_t length =
		access->kind == REEF_READ || access->kind == REEF_WRITE
			? access->length
			: 8;
	uint8_t *at = world_at(world, access->address, length);

	if (!at)
		return access->address >> 32 &&
				       access->address >> 32 < world->count
			       ? -REEF_ELOST
			       : -EFAULT;
	switch (access->kind) {
	case REEF_READ:
		world->reads++;
		memcpy(access->local, at, length);
		return 0;
	case REEF_WRITE:
		world->writes++;
		memcpy(at, access->local, length);
		return 0;
	case REEF_CAS:
		world->cas++;
		memcpy(&access->result, at, 8);
		if (access->result == access->compare)
			memcpy(at, &access->operand, 8);
		return access->address % 8 ? -EINVAL : 0;
	case REEF_FAA:
		world->faa++;
		memcpy(&access->result, at, 8);
		access->operand += access->result;
		memcpy(at, &access->operand, 8);
		access->operand -= access->result;
		return access->address % 8 ? -EINVAL : 0;
	default:
		return -EINVAL;
	}
}

static inline int world_execute(void *context, struct reef_access *accesses,
				uint32_t count)
{
	struct world *world = context;
	int rc = 0;

	assert_true(count > 0 && count <= 128);
	world->batches++;
	if (world->fail_every && world->batches % world->fail_every == 0)
		return world->fail_with;
	for (uint32_t i = 0; i < count; i++) {
		if (world->die_after && --world->die_after == 0)
			world->dead = true;
		if (world->dead) {
			accesses[i].status = -REEF_EHOSTDEAD;
			rc = rc ? rc : -REEF_EHOSTDEAD;
			continue;
		}
		/* All on one node: what follows a failure is not done. */
		accesses[i].status =
			rc ? -REEF_ENOTDONE : world_access(world, &accesses[i]);
		if (accesses[i].status && !rc)
			rc = accesses[i].status;
	}
	return rc;
}

static inline uint32_t world_extents(void *context, uint32_t *numbers,
				     uint64_t *sizes, uint32_t max)
{
	struct world *world = context;
	uint32_t count = 0;

	for (uint32_t i = 0; i < world->count; i++) {
		if (world->extents[i].lost)
			continue;
		if (count < max) {
			numbers[count] = i + EXTENT_BASE;
			sizes[count] = world->extents[i].size;
		}
		count++;
	}
	return count;
}

static inline int world_grow(void *context, uint64_t size, uint32_t *number,
			     uint64_t *real_size)
{
	struct world *world = context;
	void *base;

	world->grows++;
	size = size > world->extent_size ? size : world->extent_size;
	if (world->used + size > world->size_max || world->count == EXTENTS_MAX)
		return -ENOSPC;
	base = mmap(NULL, size, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	world->extents[world->count].base = base;
	world->extents[world->count].size = size;
	world->used += size;
	*number = world->count++ + EXTENT_BASE;
	*real_size = size;
	return 0;
}

static inline int world_is_fenced(void *context, uint32_t session)
{
	struct world *world = context;

	return session <= SESSIONS_MAX && world->fenced[session];
}

static inline uint64_t world_reclaim(void *context)
{
	return ((struct world *)context)->reclaim;
}

static inline uint64_t world_safe(void *context)
{
	return ((struct world *)context)->safe;
}

static const struct reef_heap_ops world_ops = {
	.execute = world_execute,
	.extents = world_extents,
	.grow = world_grow,
	.is_fenced = world_is_fenced,
	.reclaim_epoch = world_reclaim,
	.safe_epoch = world_safe,
};

static inline void world_init(struct world *world, uint64_t extent_size,
			      uint64_t size_max)
{
	memset(world, 0, sizeof(*world));
	world->extent_size = extent_size;
	world->size_max = size_max;
	world->reclaim = 1;
}

static inline void world_fini(struct world *world)
{
	for (uint32_t i = 0; i < world->count; i++)
		munmap(world->extents[i].base, world->extents[i].size);
}

static inline struct reef_heap *world_heap(struct world *world,
					   uint32_t session, uint64_t seed)
{
	struct reef_heap_options options = {.ops = &world_ops,
					    .context = world,
					    .session = session,
					    .seed = seed};
	struct reef_heap *heap;

	assert_int_equal(reef_heap_create(&options, &heap), 0);
	return heap;
}

/* What a handle does with data: the header goes with the first of it. */
static inline int world_write(struct world *world, struct reef_heap *heap,
			      uint64_t address, const void *from,
			      uint32_t length)
{
	struct reef_access access;
	uint8_t *bytes = malloc(length + 8);
	uint64_t header;
	int rc = 0;

	memcpy(bytes + 8, from, length);
	access = (struct reef_access){.kind = REEF_WRITE,
				      .address = address,
				      .local = bytes + 8,
				      .length = length};
	if (reef_heap_fold(heap, address, &header)) {
		memcpy(bytes, &header, 8);
		access.address -= 8;
		access.local = bytes;
		access.length += 8;
	}
	if (reef_heap_has_pending(heap))
		rc = reef_heap_flush(heap);
	if (!rc)
		rc = world_execute(world, &access, 1);
	free(bytes);
	return rc;
}

#endif
