/* stack.h - stacks for fibers, pooled.
 *
 * (1) Below every stack lie STACK_GUARD_SIZE bytes that nobody can touch. A
 *     frame that begins on the stack and is smaller than that cannot end on
 *     the neighbour's. The library's own code touches every page of a frame on
 *     its way down (-fstack-clash-protection); the size is for code of others,
 *     which may not. Our largest frames have 16 KiB.
 * (2) A stack given back keeps its address for the next taker. Its memory goes
 *     back to the kernel unless it is among the few that are kept warm, so idle
 *     stacks hold at most STACKS_WARM_SIZE of memory; address space is kept
 *     until the pool ends.
 *
 * Thread: owner. */
#ifndef REEF_BASE_STACK_H
#define REEF_BASE_STACK_H

#include <stddef.h>
#include <stdint.h>

/* A multiple of every page size that Linux has. */
#define STACK_GUARD_SIZE ((size_t)64 << 10)
#define STACKS_WARM_SIZE (8u << 20)

struct stack {
	struct stack *next; /* of the free ones */
	uint8_t *base;	    /* lowest usable byte, just above the guard */
	size_t size;	    /* at least what was asked for */
};

struct stacks {
	size_t stack_size; /* as asked for, in whole pages */
	uint32_t warm_count, warm_max;
	struct stack *warm, *cold; /* free */
	struct stack_slab *slabs;
};

void reef_stacks_init(struct stacks *stacks, size_t stack_size);
void reef_stacks_fini(struct stacks *stacks);

/* Take a stack.  NULL: no memory, or no more mappings. */
struct stack *reef_stack_take(struct stacks *stacks);
void reef_stack_give(struct stacks *stacks, struct stack *stack);

#endif
