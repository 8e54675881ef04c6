/* grace.c - when a mapping may go.
 *
 * A post reads a remote's state, then uses its mapping, without a lock. Whoever
 * takes the mapping away closes the state, begins a grace, and unmaps when the
 * grace is over. Eras number the graces:
 *
 *   post                                 unmapper
 *     inside = era                         state = closed
 *     (1) --------------------------       era + 1 -> grace, (2)
 *     state open? use the mapping          for all queues: inside is 0, or
 *     inside = 0 (release)                 not before grace (acquire): over
 *
 * Either the post's store of inside is seen by the unmapper's scan, or the
 * post's load of state comes after the store that closed it: that needs a full
 * barrier at (1) and (2). Posts are many and unmappers few, so (1) is only a
 * compiler barrier and (2) is membarrier(2), which makes every running thread
 * of the process execute one. Where the kernel has no membarrier, (1) is an
 * atomic exchange. Queues are per process here, not per fabric, because a fence
 * inside one process has to wait for the posts of another fabric. */
#include "fabric/shm/shm.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

_Atomic uint64_t shm_era = 1;
bool shm_strong;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shm_queue *queues; /* locked */

static int barrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

static void init(void)
{
	shm_strong = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
#ifdef THREAD_SANITIZER
	/* It does not know membarrier. */
	shm_strong = true;
#endif
}

void shm_grace_init(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, init);
}

void shm_grace_add(struct shm_queue *queue)
{
	pthread_mutex_lock(&lock);
	queue->next_in_process = queues;
	queues = queue;
	pthread_mutex_unlock(&lock);
}

void shm_grace_remove(struct shm_queue *queue)
{
	struct shm_queue **at = &queues;

	pthread_mutex_lock(&lock);
	while (*at != queue)
		at = &(*at)->next_in_process;
	*at = queue->next_in_process;
	pthread_mutex_unlock(&lock);
}

uint64_t shm_grace_begin(void)
{
	uint64_t grace = atomic_fetch_add(&shm_era, 1) + 1;

	/* Registered in init, so it cannot fail later. */
	if (!shm_strong)
		barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	return grace;
}

bool shm_grace_is_over(uint64_t grace)
{
	struct shm_queue *queue;
	uint64_t era;
	bool over = true;

	pthread_mutex_lock(&lock);
	for (queue = queues; queue && over; queue = queue->next_in_process) {
		/* Acquire: the partner is shm_leave. */
		era = atomic_load_explicit(&queue->inside,
					   memory_order_acquire);
		over = !era || era >= grace;
	}
	pthread_mutex_unlock(&lock);
	return over;
}
