/* context.h - a place where execution can go on: a stack and what lies on it.
 *
 * (1) A context is either running or holds everything needed to go on: the
 *     registers a call preserves, the rounding and exception masks of the
 *     floating-point units, and the stack pointer. Signal masks are the
 *     thread's and stay with it: that is what makes a switch free of system
 *     calls (ucontext, the fallback, pays for them).
 * (2) The sanitizers are told about each switch here and nowhere else.
 *
 * Thread: owner. */
#ifndef REEF_BASE_CONTEXT_H
#define REEF_BASE_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define REEF_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define REEF_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define REEF_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define REEF_TSAN 1
#endif

#if defined(REEF_CONTEXT_UCONTEXT) || !defined(__x86_64__)
#undef REEF_CONTEXT_UCONTEXT
#define REEF_CONTEXT_UCONTEXT 1
#include <ucontext.h>
#endif

#ifdef REEF_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef REEF_TSAN
#include <sanitizer/tsan_interface.h>
#endif

struct reef_context {
#ifdef REEF_CONTEXT_UCONTEXT
	ucontext_t saved;
	void (*entry)(void *arg);
	void *arg;
#else
	void *sp;
#endif
#ifdef REEF_ASAN
	const void *bottom;
	size_t size;
	void *fake_stack;
#endif
#ifdef REEF_TSAN
	void *tsan;
#endif
};

/* Make a context that calls entry(arg) on [stack, stack + size) at the first
 * switch to it. entry must call reef_context_entered first, and never return.
 * It starts with the caller's floating-point control words. */
void reef_context_make(struct reef_context *context, void *stack, size_t size,
		       void (*entry)(void *arg), void *arg);

/* Give up what the sanitizers hold of a context that will not run again. */
void reef_context_forget(struct reef_context *context);

/* Adopt the running thread's stack, to switch away from and back to. */
void reef_context_adopt(struct reef_context *context);

/* Raw switches, which the sanitizers are not told of. */
#ifdef REEF_CONTEXT_UCONTEXT
void reef_context_swap(struct reef_context *from, struct reef_context *to);
#else
void reef_context_jump(void **save_sp, void *load_sp);
#endif

#ifdef REEF_ASAN
/* Whom this thread's last switch came from: the size of the thread's own stack
 * is learnt when it is left. */
extern _Thread_local struct reef_context *reef_context_left;

/* Fake stacks of contexts that ended, for the next ones: to map, touch and
 * unmap one for each fiber took more than half of the time of simulations. */
#define REEF_FAKE_STACKS_MAX 1024
extern _Thread_local struct reef_fake_stacks {
	unsigned int count;
	void *kept[REEF_FAKE_STACKS_MAX];
} reef_fake_stacks;
#endif

static inline void reef_context_entered(struct reef_context *context)
{
#ifdef REEF_ASAN
	__sanitizer_finish_switch_fiber(context->fake_stack,
					&reef_context_left->bottom,
					&reef_context_left->size);
#endif
	(void)context;
}

/* Leave `from` and go on with `to`; returns when something switches back.
 * last: nothing will. */
static inline __attribute__((always_inline)) void reef_context_switch(
	struct reef_context *from, struct reef_context *to, bool last)
{
	(void)last;
#ifdef REEF_ASAN
	bool is_over = last && reef_fake_stacks.count == REEF_FAKE_STACKS_MAX;

	reef_context_left = from;
	from->fake_stack = NULL;
	__sanitizer_start_switch_fiber(is_over ? NULL : &from->fake_stack,
				       to->bottom, to->size);
#endif
#ifdef REEF_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef REEF_CONTEXT_UCONTEXT
	reef_context_swap(from, to);
#else
	reef_context_jump(&from->sp, to->sp);
#endif
	reef_context_entered(from);
}

#endif
