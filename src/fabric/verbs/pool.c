/* pool.c - registered memory for operations whose caller named no buffer.
 *
 * Three sizes of chunks. A size gets its memory when it is first asked for, so
 * that a process which only moves words pins little; after that nothing is
 * allocated. When a size has run out a larger one serves, then a smaller one:
 * the operation then goes in more pieces. */
#include "fabric/verbs/verbs.h"

#include <stdlib.h>
#include <sys/mman.h>

static const struct {
	uint32_t size, count;
} classes[VERBS_CLASSES] = {
	{1024, 256},
	{8192, 64},
	{65536, 32},
};

uint8_t *verbs_arena_create(struct ibv_pd *domain, size_t size,
			    struct ibv_mr **registration)
{
	uint8_t *arena;

	arena = mmap(NULL, size, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (arena == MAP_FAILED)
		return NULL;
	if (reef_memory_confine(arena, size)) {
		munmap(arena, size);
		return NULL;
	}
	*registration = ibv_reg_mr(domain, arena, size, IBV_ACCESS_LOCAL_WRITE);
	if (!*registration) {
		munmap(arena, size);
		return NULL;
	}
	return arena;
}

void verbs_arena_destroy(uint8_t *arena, size_t size,
			 struct ibv_mr *registration)
{
	ibv_dereg_mr(registration);
	munmap(arena, size);
}

/* Make the chunks of a size, at its first use; none, if memory is short. */
static void make_chunks(struct verbs_pool *pool, uint32_t index)
{
	struct verbs_class *class = &pool->classes[index];
	uint32_t size = classes[index].size, count = classes[index].count, i;
	struct verbs_chunk *chunks;

	chunks = calloc(count, sizeof(*chunks));
	if (!chunks)
		return;
	class->arena = verbs_arena_create(pool->domain, (size_t)size * count,
					  &class->registration);
	if (!class->arena) {
		free(chunks);
		return;
	}
	for (i = 0; i < count; i++) {
		chunks[i] = (struct verbs_chunk){
			.bytes = class->arena + (size_t)i * size,
			.key = class->registration->lkey,
			.size = size,
			.class = (uint8_t)index,
			.next = i + 1 < count ? &chunks[i + 1] : NULL,
		};
	}
	class->chunks = class->free = chunks;
}

static struct verbs_chunk *take_from_class(struct verbs_pool *pool,
					   uint32_t index)
{
	struct verbs_class *class = &pool->classes[index];
	struct verbs_chunk *chunk;

	if (!class->arena)
		make_chunks(pool, index);
	chunk = class->free;
	if (chunk)
		class->free = chunk->next;
	return chunk;
}

struct verbs_chunk *verbs_pool_take(struct verbs_pool *pool, uint32_t size)
{
	struct verbs_chunk *chunk = NULL;
	uint32_t fit = 0, i;

	while (fit + 1 < VERBS_CLASSES && classes[fit].size < size)
		fit++;
	for (i = fit; !chunk && i < VERBS_CLASSES; i++)
		chunk = take_from_class(pool, i);
	for (i = fit; !chunk && i > 0; i--)
		chunk = take_from_class(pool, i - 1);
	return chunk;
}

void verbs_pool_give(struct verbs_pool *pool, struct verbs_chunk *chunk)
{
	struct verbs_class *class = &pool->classes[chunk->class];

	chunk->next = class->free;
	class->free = chunk;
}

void verbs_pool_fini(struct verbs_pool *pool)
{
	uint32_t i;

	for (i = 0; i < VERBS_CLASSES; i++) {
		struct verbs_class *class = &pool->classes[i];

		if (!class->arena)
			continue;
		verbs_arena_destroy(class->arena,
				    (size_t)classes[i].size * classes[i].count,
				    class->registration);
		free(class->chunks);
	}
}
