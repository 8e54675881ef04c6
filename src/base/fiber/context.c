/* context.c - making contexts, and the fallback for the switch. */
#include "base/fiber/context.h"

#include "base/log.h"

#include <stdint.h>
#include <string.h>

#ifdef REEF_ASAN
_Thread_local struct reef_context *reef_context_left;
_Thread_local struct reef_fake_stacks reef_fake_stacks;

static void *take_fake_stack(void)
{
	if (!reef_fake_stacks.count)
		return NULL; /* the sanitizer makes one */
	return reef_fake_stacks.kept[--reef_fake_stacks.count];
}

static void give_fake_stack(void *fake_stack)
{
	if (fake_stack && reef_fake_stacks.count < REEF_FAKE_STACKS_MAX)
		reef_fake_stacks.kept[reef_fake_stacks.count++] = fake_stack;
}
#endif

#ifdef REEF_CONTEXT_UCONTEXT

/* Enter a context; its pointer comes in halves, as makecontext passes ints
 * only. */
static void enter_context(unsigned int high, unsigned int low)
{
	uintptr_t self = (uintptr_t)high << 16 << 16 | low;
	struct reef_context *context;

	memcpy(&context, &self, sizeof(self));
	context->entry(context->arg);
}

static void prepare_stack(struct reef_context *context, void *stack,
			  size_t size, void (*entry)(void *arg), void *arg)
{
	uintptr_t self = (uintptr_t)context;

	context->entry = entry;
	context->arg = arg;
	reef_assert(getcontext(&context->saved) == 0);
	context->saved.uc_stack.ss_sp = stack;
	context->saved.uc_stack.ss_size = size;
	context->saved.uc_link = NULL;
	makecontext(&context->saved, (void (*)(void))enter_context, 2,
		    (unsigned int)(self >> 16 >> 16), (unsigned int)self);
}

void reef_context_swap(struct reef_context *from, struct reef_context *to)
{
	swapcontext(&from->saved, &to->saved);
}

#else

void reef_context_start(void); /* switch_x86_64.S */

/* What reef_context_jump leaves on a stack, lowest address first. */
struct frame {
	uint32_t mxcsr;
	uint16_t x87_control, unused;
	uint64_t r15, r14, r13, r12, rbx, rbp;
	void (*go_on)(void);
};

static void prepare_stack(struct reef_context *context, void *stack,
			  size_t size, void (*entry)(void *arg), void *arg)
{
	/* After the return into reef_context_start the stack pointer is at
	 * `top`, aligned as the ABI wants it before a call. */
	uint8_t *top = (uint8_t *)stack + size;
	struct frame frame = {
		.rbx = (uintptr_t)entry,
		.r12 = (uintptr_t)arg,
		.go_on = reef_context_start,
	};

	__asm__ volatile("stmxcsr %0" : "=m"(frame.mxcsr));
	__asm__ volatile("fnstcw %0" : "=m"(frame.x87_control));
	top -= (uintptr_t)top % 16;
	context->sp = top - sizeof(frame);
	memcpy(context->sp, &frame, sizeof(frame));
}

_Static_assert(sizeof(struct frame) == 64, "switch_x86_64.S knows it");

#endif

void reef_context_make(struct reef_context *context, void *stack, size_t size,
		       void (*entry)(void *arg), void *arg)
{
#ifdef REEF_ASAN
	/* The frames of the stack's last user never returned, so it is still
	 * marked as in use. */
	ASAN_UNPOISON_MEMORY_REGION(stack, size);
	context->bottom = stack;
	context->size = size;
	context->fake_stack = take_fake_stack();
#endif
#ifdef REEF_TSAN
	context->tsan = __tsan_create_fiber(0);
#endif
	prepare_stack(context, stack, size, entry, arg);
}

void reef_context_forget(struct reef_context *context)
{
#ifdef REEF_TSAN
	__tsan_destroy_fiber(context->tsan);
#endif
#ifdef REEF_ASAN
	give_fake_stack(context->fake_stack);
#endif
	(void)context;
}

void reef_context_adopt(struct reef_context *context)
{
#ifdef REEF_TSAN
	context->tsan = __tsan_get_current_fiber();
#endif
	(void)context;
}
