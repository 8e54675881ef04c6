/* The scheduler's loop.
 *
 *   run: --> fire due timers --> run the round --> poll --.
 *         ^                                               | nothing ready,
 *         |            ready, or something happened       | nothing happened
 *         +<----------------------------------------------+
 *         |                                               v
 *         +<-- virtual: jump to the next timer ---------- idle
 *         +<-- real: spin_ns of polling                    |
 *         '<-- real, then: arm, poll again, ppoll ---------'
 *
 * The order of arm, poll, sleep is what loses no event: one that comes before
 * the arm is seen by that poll, one that comes after makes the descriptor
 * readable. */
#include "base/fiber/runtime.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define FIBERS_MAX 32768
#define STACK_SIZE (64u << 10)
#define STACK_SIZE_MIN (16u << 10)
#define STACK_SIZE_MAX (1u << 30)
#define SPIN_NS 20000

/* The longest sleep while a poller has nothing that could end it. */
#define NAP_NS 100000

int reef_sched_create_setup(const struct reef_sched_setup *setup,
			    struct reef_sched **out)
{
	const struct reef_sched_options *options = &setup->options;
	uint32_t stack_size = options->stack_size ?: STACK_SIZE;
	struct reef_sched *sched;
	int error;

	if (stack_size < STACK_SIZE_MIN || stack_size > STACK_SIZE_MAX)
		return -EINVAL;
	sched = calloc(1, sizeof(*sched));
	if (!sched)
		return -ENOMEM;
	sched->next_tail = &sched->next_head;
	sched->fibers_max = options->fibers_max ?: FIBERS_MAX;
	/* This does not adapt: if who asks and who answers each went by how
	 * long the other took while it slept, both would sleep always. */
	sched->spin_ns = options->spin_ns ?: SPIN_NS;
	sched->shuffle = setup->shuffle;
	sched->virtual_time = setup->virtual_time;
	sched->wake_fd = -1;
	if (setup->virtual_time) {
		sched->clock.virtual_ns = &sched->virtual_ns;
	} else {
		sched->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		if (sched->wake_fd < 0)
			goto err_sched;
	}
	reef_stacks_init(&sched->stacks, stack_size);
	reef_group_init(sched, &sched->group, NULL, NULL);
	*out = sched;
	return 0;

err_sched:
	error = -errno;
	free(sched);
	return error;
}

int reef_sched_create(const struct reef_sched_options *options,
		      struct reef_sched **out)
{
	struct reef_sched_setup setup = {0};

	if (options)
		setup.options = *options;
	return reef_sched_create_setup(&setup, out);
}

void reef_sched_destroy(struct reef_sched *sched)
{
	if (!sched)
		return;
	reef_assert(sched->alive == 0 && !sched->running);
	reef_stacks_fini(&sched->stacks);
	free(sched->timers.heap);
	free(sched->round);
	free(sched->pollfds);
	if (sched->wake_fd >= 0)
		close(sched->wake_fd);
	free(sched);
}

uint64_t reef_sched_now_ns(struct reef_sched *sched)
{
	return reef_local_clock_now_ns(&sched->clock);
}

const uint64_t *reef_sched_virtual_ns(struct reef_sched *sched)
{
	return sched->clock.virtual_ns;
}

uint32_t reef_sched_fibers(const struct reef_sched *sched)
{
	return sched->alive;
}

void reef_sched_stop(struct reef_sched *sched)
{
	uint64_t one = 1;

	/* Release: pairs with the acquire in pick_next and reef_sched_run, so
	 * that whoever sees the stop sees what went before it. */
	atomic_store_explicit(&sched->stop, true, memory_order_release);
	/* A write fails only if the counter is full, and it is readable then
	 * too. */
	if (sched->wake_fd >= 0 &&
	    write(sched->wake_fd, &one, sizeof(one)) != sizeof(one))
		return;
}

/* --- pollers --- */

void reef_sched_poller_add(struct reef_sched *sched, struct reef_poller *poller)
{
	struct reef_poller **link = &sched->pollers;

	reef_assert(poller->poll);
	while (*link)
		link = &(*link)->next;
	poller->next = NULL;
	*link = poller;
}

void reef_sched_poller_remove(struct reef_sched *sched,
			      struct reef_poller *poller)
{
	struct reef_poller **link = &sched->pollers;

	while (*link && *link != poller)
		link = &(*link)->next;
	if (!*link)
		return;
	*link = poller->next;
	/* A poller may remove itself, or the one that is due next. */
	if (sched->poll_next == poller)
		sched->poll_next = poller->next;
}

static bool poll_all(struct reef_sched *sched)
{
	struct reef_poller *poller;
	bool progress = false;

	sched->poll_next = sched->pollers;
	while ((poller = sched->poll_next)) {
		sched->poll_next = poller->next;
		if (poller->poll(poller) > 0)
			progress = true;
	}
	return progress;
}

/* The longest sleep that all pollers can be woken from; 0: do not sleep. */
static uint64_t arm_all(struct reef_sched *sched)
{
	uint64_t limit_ns = REEF_FOREVER;
	struct reef_poller *poller;
	int armed;

	sched->poll_next = sched->pollers;
	while ((poller = sched->poll_next)) {
		sched->poll_next = poller->next;
		armed = poller->arm ? poller->arm(poller) : 0;
		if (armed > 0)
			return 0;
		if ((armed < 0 || poller->fd < 0) && limit_ns > NAP_NS)
			limit_ns = NAP_NS;
		if (poller->sleep_max_ns && limit_ns > poller->sleep_max_ns)
			limit_ns = poller->sleep_max_ns;
	}
	return limit_ns;
}

/* --- idle --- */

static bool pollfds_reserve(struct reef_sched *sched, uint32_t count)
{
	struct pollfd *pollfds;

	if (count <= sched->pollfds_capacity)
		return true;
	pollfds = realloc(sched->pollfds, 2 * count * sizeof(*pollfds));
	if (!pollfds)
		return false;
	sched->pollfds = pollfds;
	sched->pollfds_capacity = 2 * count;
	return true;
}

static uint32_t pollfds_fill(struct reef_sched *sched)
{
	struct reef_poller *poller;
	uint32_t count = 1;

	for (poller = sched->pollers; poller; poller = poller->next)
		count++;
	if (!pollfds_reserve(sched, count))
		return 0;
	count = 0;
	sched->pollfds[count++] =
		(struct pollfd){.fd = sched->wake_fd, .events = POLLIN};
	for (poller = sched->pollers; poller; poller = poller->next)
		sched->pollfds[count++] =
			(struct pollfd){.fd = poller->fd, .events = POLLIN};
	return count;
}

static uint64_t until_next_timer(struct reef_sched *sched)
{
	uint64_t now_ns;

	if (sched->timers.count == 0)
		return REEF_FOREVER;
	now_ns = reef_sched_now_ns(sched);
	if (sched->timers.heap[1].at_ns <= now_ns)
		return 0;
	return sched->timers.heap[1].at_ns - now_ns;
}

static void sleep_on_pollers(struct reef_sched *sched, uint64_t limit_ns)
{
	uint64_t sleep_ns = until_next_timer(sched);
	struct timespec timeout;
	uint64_t stops;
	uint32_t count = pollfds_fill(sched);

	if (count == 0 && limit_ns > NAP_NS)
		limit_ns = NAP_NS;
	if (sleep_ns > limit_ns)
		sleep_ns = limit_ns;
	timeout.tv_sec = (time_t)(sleep_ns / 1000000000);
	timeout.tv_nsec = (long)(sleep_ns % 1000000000);
	/* Whether it was interrupted or failed does not matter: the round polls
	 * everything anyway. */
	if (ppoll(sched->pollfds, count,
		  sleep_ns == REEF_FOREVER ? NULL : &timeout, NULL) <= 0)
		return;
	if (sched->pollfds[0].revents &&
	    read(sched->wake_fd, &stops, sizeof(stops)) != sizeof(stops))
		return;
}

static void cpu_relax(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* Acquire: as in pick_next. */
static bool stop_asked(struct reef_sched *sched)
{
	return atomic_load_explicit(&sched->stop, memory_order_acquire);
}

static void idle_real(struct reef_sched *sched)
{
	uint64_t now_ns = reef_sched_now_ns(sched);
	uint64_t limit_ns;

	if (!sched->idle) {
		sched->idle = true;
		sched->idle_since_ns = now_ns;
	}
	if (now_ns - sched->idle_since_ns < sched->spin_ns &&
	    (sched->pollers || until_next_timer(sched) < sched->spin_ns)) {
		cpu_relax();
		return;
	}
	limit_ns = arm_all(sched);
	if (limit_ns == 0 || poll_all(sched) || reef_fibers_ready(sched)) {
		sched->idle = false;
		return;
	}
	sleep_on_pollers(sched, limit_ns);
}

/* Nothing is ready and nothing happened: wait for what can change that. */
static int wait_for_change(struct reef_sched *sched)
{
	struct timers *timers = &sched->timers;

	if (sched->virtual_time && timers->count > 0) {
		if (timers->heap[1].at_ns > sched->virtual_ns)
			sched->virtual_ns = timers->heap[1].at_ns;
		return 0;
	}
	/* While time stands still, a poller has nothing new to see. */
	if (timers->count == 0 && (sched->virtual_time || !sched->pollers))
		return -EDEADLK;
	idle_real(sched);
	return 0;
}

static int run_rounds(struct reef_sched *sched)
{
	int error = 0;

	while (!error && sched->alive > 0 && !stop_asked(sched)) {
		if (sched->timers.count > 0)
			reef_timers_fire(sched, reef_sched_now_ns(sched));
		if (reef_fibers_ready(sched)) {
			sched->idle = false;
			reef_fibers_run(sched);
		}
		if (poll_all(sched) || reef_fibers_ready(sched))
			sched->idle = false;
		else if (sched->alive > 0 && !stop_asked(sched))
			error = wait_for_change(sched);
	}
	return error;
}

int reef_sched_run(struct reef_sched *sched)
{
	int error;

	if (sched->running || reef_running)
		return -EBUSY;
	sched->running = true;
	reef_running = sched;
	reef_context_adopt(&sched->main);
	error = run_rounds(sched);
	/* A stop ends one run, so it is used up. */
	atomic_store_explicit(&sched->stop, false, memory_order_relaxed);
	reef_running = NULL;
	sched->running = false;
	return error;
}

bool reef_sched_has_ready(const struct reef_sched *sched)
{
	return reef_fibers_ready(sched);
}
