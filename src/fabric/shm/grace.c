/* grace.c - when a mapping may go.
 *
 * A post reads a remote's limit, then uses its mapping, without a lock. Whoever
 * takes the mapping away closes the limit, begins a grace, and unmaps when the
 * grace is over:
 *
 *   post                                  unmapper
 *     turn + 1: odd, inside                 limit = 0
 *     (1) ------------------------          (2), then note all odd turns
 *     limit open? use the mapping
 *     turn + 1: even (release)              all noted turns changed (acquire):
 *                                           over
 *
 * Either the post's turn is noted, or its load of limit comes after the store
 * that closed it: that needs a full barrier at (1) and at (2). Posts are many
 * and unmappers few, so (1) is only a compiler barrier and (2) is
 * membarrier(2), which makes every running thread of the process execute one.
 * Where the kernel has no membarrier, (1) is an atomic exchange.
 *
 * Graces are numbered. One is under way at a time; those asked for meanwhile
 * are one together, which begins after it.
 *
 * Queues are known per process, not per fabric, because a fence inside one
 * process waits for the posts of another fabric; and because a forked child has
 * to keep its hands off the mappings it did not get. */
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

bool shm_strong;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* locked: */
static struct shm_queue *queues;
static uint64_t asked, begun, over; /* graces; over <= begun <= asked */

static int barrier(int command)
{
	return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* The fast path of run does not ask whether this is a forked child: in a child
 * there is none. */
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
	struct shm_queue *queue;

	for (queue = queues; queue; queue = queue->next_in_process)
		reef_queue_run_generally(&queue->queue);
	/* They are the parent's; nothing of theirs happens here. */
	queues = NULL;
	pthread_mutex_unlock(&lock);
}

static void init(void)
{
	shm_strong = barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
#ifdef THREAD_SANITIZER
	/* It does not know membarrier. */
	shm_strong = true;
#endif
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
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

/* Locked. Note who is inside. */
static void begin(void)
{
	struct shm_queue *queue;
	uint64_t turn;

	begun = asked;
	/* A forked child may have to register anew; that worked once. */
	if (!shm_strong && barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
		barrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
		barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
	}
	for (queue = queues; queue; queue = queue->next_in_process) {
		turn = atomic_load(&queue->queue.turn);
		queue->awaited = turn & 1 ? turn : 0;
	}
}

/* Locked. Has everybody who was noted left? Acquire: the partner is shm_leave.
 */
static bool have_left(void)
{
	struct shm_queue *queue;

	for (queue = queues; queue; queue = queue->next_in_process) {
		if (queue->awaited &&
		    queue->awaited ==
			    atomic_load_explicit(&queue->queue.turn,
						 memory_order_acquire))
			return false;
		queue->awaited = 0;
	}
	return true;
}

/* Locked. */
static void advance(void)
{
	if (over < begun && have_left())
		over = begun;
	if (over == begun && begun < asked)
		begin();
	if (over < begun && have_left())
		over = begun;
}

uint64_t shm_grace_begin(void)
{
	uint64_t grace;

	pthread_mutex_lock(&lock);
	grace = ++asked;
	advance();
	pthread_mutex_unlock(&lock);
	return grace;
}

bool shm_grace_is_over(uint64_t grace)
{
	bool is_over;

	pthread_mutex_lock(&lock);
	if (over < grace)
		advance();
	is_over = over >= grace;
	pthread_mutex_unlock(&lock);
	return is_over;
}
