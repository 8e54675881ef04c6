/* Stacks are mapped in slabs. The kernel allows a process 65,530 mappings by
 * default, and mprotect of a guard page makes two of one: 20,000 stacks would
 * take most of them. MADV_GUARD_INSTALL (Linux 6.13) marks the page without
 * splitting the mapping; where it is missing mprotect must do. Either outlives
 * MADV_DONTNEED. */
#include "base/fiber/stack.h"

#include "base/fiber/context.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

#define SLAB_SIZE (4u << 20) /* mapped at once, unless one stack is larger */

/* Stacks that begin at the same offset of their page all want the same set of
 * the cache for their hottest bytes; so each begins a little lower than its
 * neighbour, within a page added for that. */
#define COLOUR_SIZE 192
#define COLOURS 20

struct stack_slab {
	struct stack_slab *next;
	void *base;
	size_t size;
	struct stack stacks[];
};

static size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Bytes from one stack to the next: guard, stack, and the page that its colour
 * is taken from. */
static size_t distance_of(const struct stacks *stacks)
{
	return STACK_GUARD_SIZE + stacks->stack_size + page_size();
}

static int guard_page(void *low)
{
	if (madvise(low, STACK_GUARD_SIZE, MADV_GUARD_INSTALL) == 0)
		return 0;
	return mprotect(low, STACK_GUARD_SIZE, PROT_NONE);
}

static bool guard_slab(struct stack_slab *slab, size_t count, size_t distance)
{
	uint8_t *low = slab->base;

	for (size_t i = 0; i < count; i++, low += distance) {
		if (guard_page(low) != 0)
			return false;
		slab->stacks[i] = (struct stack){
			.base = low + STACK_GUARD_SIZE,
			.size = distance - STACK_GUARD_SIZE -
				i % COLOURS * COLOUR_SIZE,
		};
	}
	return true;
}

static bool add_slab(struct stacks *stacks)
{
	size_t distance = distance_of(stacks);
	size_t count = distance < SLAB_SIZE ? SLAB_SIZE / distance : 1;
	struct stack_slab *slab;

	slab = malloc(sizeof(*slab) + count * sizeof(slab->stacks[0]));
	if (!slab)
		return false;
	slab->size = count * distance;
	slab->base = mmap(
		NULL, slab->size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	if (slab->base == MAP_FAILED)
		goto err_slab;
	/* With huge pages one deep stack would take memory for all of the slab.
	 * An error means a kernel without huge pages. */
	madvise(slab->base, slab->size, MADV_NOHUGEPAGE);
	if (!guard_slab(slab, count, distance))
		goto err_map;
	slab->next = stacks->slabs;
	stacks->slabs = slab;
	do {
		slab->stacks[count - 1].next = stacks->cold;
		stacks->cold = &slab->stacks[count - 1];
	} while (--count > 0);
	return true;

err_map:
	munmap(slab->base, slab->size);
err_slab:
	free(slab);
	return false;
}

void reef_stacks_init(struct stacks *stacks, size_t stack_size)
{
	size_t page = page_size();

#if defined(REEF_ASAN) || defined(REEF_TSAN)
	/* Under sanitizers frames are several times as large. */
	stack_size *= 4;
#endif
	stack_size = (stack_size + page - 1) / page * page;
	*stacks = (struct stacks){
		.stack_size = stack_size,
		.warm_max = (uint32_t)(STACKS_WARM_SIZE / stack_size),
	};
}

void reef_stacks_fini(struct stacks *stacks)
{
	struct stack_slab *slab;

	while ((slab = stacks->slabs)) {
		stacks->slabs = slab->next;
#ifdef REEF_ASAN
		ASAN_UNPOISON_MEMORY_REGION(slab->base, slab->size);
#endif
		munmap(slab->base, slab->size);
		free(slab);
	}
	stacks->warm = stacks->cold = NULL;
	stacks->warm_count = 0;
}

struct stack *reef_stack_take(struct stacks *stacks)
{
	struct stack *stack = stacks->warm;

	if (stack) {
		stacks->warm = stack->next;
		stacks->warm_count--;
		return stack;
	}
	if (!stacks->cold && !add_slab(stacks))
		return NULL;
	stack = stacks->cold;
	stacks->cold = stack->next;
	return stack;
}

void reef_stack_give(struct stacks *stacks, struct stack *stack)
{
	if (stacks->warm_count < stacks->warm_max) {
		stack->next = stacks->warm;
		stacks->warm = stack;
		stacks->warm_count++;
		return;
	}
#ifdef REEF_ASAN
	ASAN_UNPOISON_MEMORY_REGION(stack->base, stack->size);
#endif
	/* base + size may end inside a page, whose rest is the colour. */
	madvise(stack->base, stacks->stack_size + page_size(), MADV_DONTNEED);
	stack->next = stacks->cold;
	stacks->cold = stack;
}
