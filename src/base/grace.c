/* grace.c - see grace.h. */
#include "base/grace.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

bool reef_grace_is_strong;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* locked: */
static struct reef_turn *turns;
static uint64_t asked, begun, over; /* graces; over <= begun <= asked */

static int membarrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* --- fork: (5) --- */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
	struct reef_turn *turn;

	for (turn = turns; turn; turn = turn->next)
		turn->mask = 0;
	turns = NULL;
	pthread_mutex_unlock(&lock);
}

static void init(void)
{
	reef_grace_is_strong =
		membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
#ifdef THREAD_SANITIZER
	/* It does not know membarrier. */
	reef_grace_is_strong = true;
#endif
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

void reef_grace_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init);
}

void reef_grace_barrier(void)
{
	if (reef_grace_is_strong ||
	    !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return;
	/* A forked child may have to register anew; that worked once. */
	membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
	membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

/* --- turns --- */

void reef_turn_add(struct reef_turn *turn, uint64_t mask)
{
	atomic_init(&turn->turn, 2);
	turn->mask = mask;
	turn->awaited = 0;
	pthread_mutex_lock(&lock);
	turn->next = turns;
	turns = turn;
	pthread_mutex_unlock(&lock);
}

void reef_turn_remove(struct reef_turn *turn)
{
	struct reef_turn **at = &turns;

	pthread_mutex_lock(&lock);
	while (*at != turn)
		at = &(*at)->next;
	*at = turn->next;
	pthread_mutex_unlock(&lock);
}

/* Locked. Note whose turns are inside: all who may not see what was closed. */
static void begin_asked(void)
{
	struct reef_turn *turn;
	uint64_t now;

	begun = asked;
	reef_grace_barrier();
	for (turn = turns; turn; turn = turn->next) {
		now = atomic_load(&turn->turn);
		turn->awaited = now & 1 ? now : 0;
	}
}

/* Locked. True if every turn that was noted is another by now. Acquire: the
 * partner is reef_turn_leave. */
static bool have_noted_left(void)
{
	struct reef_turn *turn;

	for (turn = turns; turn; turn = turn->next) {
		if (turn->awaited &&
		    turn->awaited == atomic_load_explicit(&turn->turn,
							  memory_order_acquire))
			return false;
		turn->awaited = 0;
	}
	return true;
}

/* Locked. */
static void advance_graces(void)
{
	if (over < begun && have_noted_left())
		over = begun;
	if (over == begun && begun < asked)
		begin_asked();
	if (over < begun && have_noted_left())
		over = begun;
}

uint64_t reef_grace_begin(void)
{
	uint64_t grace;

	pthread_mutex_lock(&lock);
	grace = ++asked;
	advance_graces();
	pthread_mutex_unlock(&lock);
	return grace;
}

bool reef_grace_is_over(uint64_t grace)
{
	bool is_over;

	pthread_mutex_lock(&lock);
	if (over < grace)
		advance_graces();
	is_over = over >= grace;
	pthread_mutex_unlock(&lock);
	return is_over;
}
