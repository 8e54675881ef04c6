/* queue.c - queues: what providers tell, how it is reported, how callers wait.
 *
 * How a wait ends. A provider's poll tells of ends through reef_batch_ended,
 * reef_link_opened and so on, which only note them in the queue; reef_poll then
 * reports: it sets `done`, calls on_done, unparks the fiber that waits for the
 * batch, and wakes every other waiter of the queue to look again.
 *
 *   thread:  poll ... poll (spin_ns) -> arm -> poll -> sleep on fd -> poll ...
 *   fiber:   park; the scheduler's poller (or sim's event) calls reef_poll
 *
 * Between threads. A poll of one queue may bring something for another: it adds
 * to `foreign` and, if the owner has set `armed`, writes to wake_fd.
 *
 *   owner:  drain wake_fd, armed = 1, look at foreign, sleep on fd
 *   other:  foreign += 1, take armed; was it set: write wake_fd
 *   in sim: foreign += 1, and an event calls reef_poll
 *
 * (1) No wake-up is lost: armed and foreign are sequentially consistent, so
 *     either the owner sees foreign or the other sees armed.
 * (2) Nobody touches a queue after the last thing that it waits for can be seen
 *     in it: who brings a batch or a message wakes under the queue's lock,
 *     which its owner takes to get at them. For links and remotes the
 *     provider's own locks see to the same (provider.h).
 * (3) A caller that polls while it uses a link (reef_run, reef_attach) says so
 *     in queue->users, where reef_forget_link finds it: the poll may end the
 *     link, and free it. */
#include "fabric/internal.h"
#include "fabric/provider.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MILLISECOND 1000000ull
/* How long a thread sleeps at once that could not arm a queue, as nothing may
 * wake it. */
#define NAP_NS 100000ull

struct reef_waiter {
	struct reef_fiber *fiber;
	struct reef_waiter *next;
};

/* --- queues --- */

int reef_queue_init(struct reef_queue *queue, struct reef_fabric *fabric,
		    bool wake)
{
	queue->fabric = fabric;
	queue->fd = -1;
	queue->wake_fd = -1;
	queue->ended_tail = &queue->ended;
	queue->opened_tail = &queue->opened;
	queue->inbox_tail = &queue->inbox;
	reef_spin_init(&queue->spin, fabric->options.spin_ns);
	if (wake) {
		queue->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
		if (queue->wake_fd < 0)
			return -errno;
	}
	pthread_mutex_init(&queue->lock, NULL);
	return 0;
}

void reef_queue_fini(struct reef_queue *queue)
{
	struct reef_message *message;

	while ((message = queue->inbox)) {
		queue->inbox = message->next;
		reef_message_free(message);
	}
	if (queue->wake_fd >= 0)
		close(queue->wake_fd);
	pthread_mutex_destroy(&queue->lock);
}

static int poller_poll(struct reef_poller *poller)
{
	return reef_poll(reef_container(poller, struct reef_queue, poller));
}

static int poller_arm(struct reef_poller *poller)
{
	return reef_queue_arm(
		reef_container(poller, struct reef_queue, poller));
}

int reef_queue_open(struct reef_fabric *fabric, struct reef_sched *sched,
		    struct reef_queue **out)
{
	struct reef_queue *queue;
	int rc;

	if (reef_is_forked(fabric))
		return -REEF_EFORKED;
	rc = fabric->top->ops.queue_open(fabric->top, &queue);
	if (rc)
		return rc;
	queue->sched = sched ? sched : reef_fiber_sched();
	queue->group = reef_fiber_group();
	/* Where there is nothing to sleep on (sim), events call reef_poll. */
	if (queue->sched && queue->fd >= 0) {
		queue->poller = (struct reef_poller){
			.poll = poller_poll,
			.arm = poller_arm,
			.fd = queue->fd,
			/* A silent peer is found by polling. */
			.sleep_max_ns = fabric->options.silence_ns / 4,
		};
		reef_sched_poller_add(queue->sched, &queue->poller);
	}
	*out = queue;
	return 0;
}

void reef_queue_close(struct reef_queue *queue)
{
	struct reef_link *link;

	if (!queue || reef_is_forked(queue->fabric))
		return;
	reef_assert(!queue->waiters && !queue->users);
	if (queue->sched && queue->fd >= 0)
		reef_sched_poller_remove(queue->sched, &queue->poller);
	/* The queue's links stay, down, until they are closed. */
	for (link = queue->links; link; link = link->next_of_queue)
		link->is_orphan = true;
	queue->fabric->top->ops.queue_close(queue->fabric->top, queue);
}

int reef_queue_fd(const struct reef_queue *queue)
{
	return reef_is_forked(queue->fabric) ? -REEF_EFORKED : queue->fd;
}

int reef_queue_arm(struct reef_queue *queue)
{
	uint64_t count;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	/* (1): drain, then set armed, then (the caller) poll, which looks at
	 * foreign. The partner is reef_queue_wake. */
	while (atomic_load(&queue->rung) != queue->drained &&
	       read(queue->wake_fd, &count, sizeof(count)) > 0)
		queue->drained += count;
	atomic_store(&queue->armed, 1);
	return queue->fabric->top->ops.arm(queue->fabric->top, queue);
}

void reef_queue_wake(struct reef_queue *queue)
{
	struct reef_layer *provider = &queue->fabric->provider;
	uint64_t one = 1;

	if (reef_is_forked(queue->fabric)) /* wake_fd is the parent's, too */
		return;
	atomic_fetch_add(&queue->foreign, 1);
	if (queue->fd < 0) {
		/* Nobody sleeps on such a queue, and no poller polls it. Only
		 * the provider is asked, as hooks have nothing to add. */
		provider->ops.arm(provider, queue);
		return;
	}
	if (queue->wake_fd < 0 || !atomic_exchange(&queue->armed, 0))
		return;
	/* rung goes up before the write, so that the owner never misses one: it
	 * may read in between, find nothing, and be woken for nothing once. */
	atomic_fetch_add(&queue->rung, 1);
	/* The write cannot fail: the counter is drained long before it could
	 * overflow. */
	if (write(queue->wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* --- what providers tell --- */

void reef_batch_fail(struct reef_batch *batch, uint32_t index, int status)
{
	uint32_t i;

	reef_assert(status < 0 && index < batch->count);
	batch->status = status;
	batch->ops[index].status = status;
	for (i = index + 1; i < batch->count; i++)
		batch->ops[i].status = -REEF_ENOTDONE;
}

void reef_batch_fail_all(struct reef_batch *batch, int status)
{
	uint32_t i;

	reef_assert(status < 0);
	batch->status = status;
	for (i = 0; i < batch->count; i++)
		batch->ops[i].status = status;
}

void reef_batch_ended(struct reef_queue *polling, struct reef_batch *batch)
{
	struct reef_queue *queue = batch->queue;

	batch->next = NULL;
	if (queue == polling) {
		*queue->ended_tail = batch;
		queue->ended_tail = &batch->next;
		return;
	}
	pthread_mutex_lock(&queue->lock);
	batch->next = queue->foreign_ended;
	queue->foreign_ended = batch;
	reef_queue_wake(queue); /* (2) */
	pthread_mutex_unlock(&queue->lock);
}

static void note_event(struct reef_queue *polling, struct reef_queue *queue)
{
	if (queue == polling)
		queue->events++;
	else
		reef_queue_wake(queue);
}

int reef_message_arrived(struct reef_queue *polling, struct reef_link *link,
			 const void *bytes, uint32_t length)
{
	struct reef_queue *queue = link->queue;
	struct reef_message *message;
	int rc = -ENOSPC;

	pthread_mutex_lock(&queue->lock);
	if (queue->inbox_count >= queue->fabric->options.inbox_max)
		goto out;
	message = malloc(sizeof(*message) + length);
	if (!message)
		goto out;
	*message = (struct reef_message){
		.link = link,
		.session = link->session,
		.length = length,
	};
	if (length)
		memcpy(message->bytes, bytes, length);
	*queue->inbox_tail = message;
	queue->inbox_tail = &message->next;
	queue->inbox_count++;
	note_event(polling, queue); /* (2) */
	rc = 0;
out:
	pthread_mutex_unlock(&queue->lock);
	return rc;
}

void reef_link_opened(struct reef_queue *polling, struct reef_link *link)
{
	struct reef_queue *queue = link->queue;

	/* Release: what the provider filled in, for posts on other threads that
	 * load state with acquire in reef_batch_check_link. */
	atomic_store_explicit(&link->state, REEF_LINK_UP, memory_order_release);
	if (link->listener) {
		reef_assert(polling == queue);
		link->next_opened = NULL;
		*queue->opened_tail = link;
		queue->opened_tail = &link->next_opened;
	}
	note_event(polling, queue);
}

/* Take a link out of those that `opened` is yet to be called for. True: it was
 * among them, so neither `opened` nor `closed` is called for it. */
static bool forget_opened(struct reef_queue *queue, struct reef_link *link)
{
	struct reef_link **at = &queue->opened;

	while (*at && *at != link)
		at = &(*at)->next_opened;
	if (!*at)
		return false;
	*at = link->next_opened;
	if (!*at)
		queue->opened_tail = at;
	return true;
}

void reef_forget_link(struct reef_queue *queue, const struct reef_link *link)
{
	struct reef_message *message;
	struct reef_user *user;

	pthread_mutex_lock(&queue->lock);
	for (message = queue->inbox; message; message = message->next)
		if (message->link == link)
			message->link = NULL;
	pthread_mutex_unlock(&queue->lock);
	for (user = queue->users; user; user = user->next)
		if (user->link == link)
			user->link = NULL;
}

void reef_link_ended(struct reef_queue *polling, struct reef_link *link,
		     int reason)
{
	struct reef_listener *listener = link->listener;
	struct reef_queue *queue = link->queue;
	bool was_up = atomic_load(&link->state) == REEF_LINK_UP;

	reef_assert(reason < 0);
	atomic_store(&link->reason, reason);
	atomic_store_explicit(&link->state, REEF_LINK_DOWN,
			      memory_order_release);
	note_event(polling, queue);
	if (!listener)
		return;
	reef_assert(polling == queue);
	reef_forget_link(queue, link);
	if (!forget_opened(queue, link) && was_up && listener->options.closed)
		listener->options.closed(listener->options.context, link,
					 reason);
}

void reef_attach_ended(struct reef_queue *polling, struct reef_remote *remote,
		       int state)
{
	struct reef_queue *queue = remote->link->queue;

	atomic_store_explicit(&remote->state, state, memory_order_release);
	note_event(polling, queue);
}

void reef_user_begin(struct reef_queue *queue, struct reef_user *user,
		     struct reef_link *link)
{
	user->link = link;
	user->next = queue->users;
	queue->users = user;
}

void reef_user_end(struct reef_queue *queue, struct reef_user *user)
{
	struct reef_user **at = &queue->users;

	while (*at != user)
		at = &(*at)->next;
	*at = user->next;
}

/* --- progress --- */

static void collect_foreign(struct reef_queue *queue)
{
	struct reef_batch *batch, *next;

	pthread_mutex_lock(&queue->lock);
	batch = queue->foreign_ended;
	queue->foreign_ended = NULL;
	pthread_mutex_unlock(&queue->lock);
	for (; batch; batch = next) {
		next = batch->next;
		reef_batch_ended(queue, batch);
	}
}

static int report_ended(struct reef_queue *queue)
{
	struct reef_batch *batch;
	struct reef_fiber *fiber;
	int count = 0;

	/* Batches are taken one at a time: on_done may post, and may free its
	 * batch. */
	while ((batch = queue->ended)) {
		queue->ended = batch->next;
		if (!queue->ended)
			queue->ended_tail = &queue->ended;
		fiber = batch->fiber;
		batch->done = true;
		if (batch->on_done)
			batch->on_done(batch);
		if (fiber)
			reef_fiber_unpark(fiber);
		count++;
	}
	return count;
}

static void report_opened(struct reef_queue *queue)
{
	struct reef_link *link;

	while ((link = queue->opened)) {
		queue->opened = link->next_opened;
		if (!queue->opened)
			queue->opened_tail = &queue->opened;
		if (link->listener->options.opened)
			link->listener->options.opened(
				link->listener->options.context, link);
	}
}

static void wake_waiters(struct reef_queue *queue)
{
	struct reef_waiter *waiter;

	for (waiter = queue->waiters; waiter; waiter = waiter->next)
		reef_fiber_unpark(waiter->fiber);
}

static int report_events(struct reef_queue *queue)
{
	int count = 0;

	/* This load is sequentially consistent (1); x86 has that for free. */
	if (atomic_load(&queue->foreign)) {
		count += (int)atomic_exchange(&queue->foreign, 0);
		collect_foreign(queue);
	}
	if (queue->opened)
		report_opened(queue);
	if (queue->ended)
		count += report_ended(queue);
	count += (int)queue->events;
	queue->events = 0;
	return count;
}

int reef_poll(struct reef_queue *queue)
{
	int count;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	count = queue->fabric->top->ops.poll(queue->fabric->top, queue);
	if (count < 0) {
		/* The batches of a dead host have ended, too. */
		report_events(queue);
		return count;
	}
	count += report_events(queue);
	if (count > 0) {
		queue->progress++;
		if (queue->waiters)
			wake_waiters(queue);
	}
	return count;
}

/* --- waiting --- */

static void waiter_add(struct reef_queue *queue, struct reef_waiter *waiter)
{
	reef_assert(queue->sched == reef_fiber_sched());
	waiter->fiber = reef_fiber_self();
	waiter->next = queue->waiters;
	queue->waiters = waiter;
}

static void waiter_remove(struct reef_queue *queue, struct reef_waiter *waiter)
{
	struct reef_waiter **at;

	for (at = &queue->waiters; *at != waiter; at = &(*at)->next)
		;
	*at = waiter->next;
}

static int wait_in_fiber(struct reef_queue *const *queues, uint32_t count,
			 bool (*ready)(const void *what), const void *what,
			 uint64_t timeout_ns)
{
	struct reef_waiter waiters[REEF_QUEUES_MAX];
	uint64_t start_ns = reef_now_ns(), passed_ns = 0;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < count; i++)
		waiter_add(queues[i], &waiters[i]);
	while (!ready(what)) {
		if (timeout_ns != REEF_FOREVER) {
			passed_ns = reef_now_ns() - start_ns;
			if (passed_ns >= timeout_ns) {
				rc = -ETIMEDOUT;
				break;
			}
		}
		rc = reef_fiber_park(timeout_ns == REEF_FOREVER
					     ? REEF_FOREVER
					     : timeout_ns - passed_ns);
		if (rc == -REEF_EHOSTDEAD)
			break;
		rc = 0; /* the loop checks the deadline itself */
	}
	for (i = 0; i < count; i++)
		waiter_remove(queues[i], &waiters[i]);
	return rc;
}

#define EACH UINT32_MAX

/* Poll the queues that `due` has a bit for. */
static int poll_queues(struct reef_queue *const *queues, uint32_t count,
		       uint32_t due)
{
	int happened = 0, rc;

	for (uint32_t i = 0; i < count; i++) {
		if (!(due & 1u << i))
			continue;
		rc = reef_poll(queues[i]);
		if (rc < 0)
			return rc;
		happened += rc;
	}
	return happened;
}

/* Arm all queues. Over 0: something is there already.  Negative: a queue could
 * not be armed, so the caller may not be woken. */
static int arm_queues(struct reef_queue *const *queues, uint32_t count)
{
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		rc = reef_queue_arm(queues[i]);
		if (rc)
			return rc;
	}
	return 0;
}

/* Sleep until something is there in one of the queues, at most left_ns, never
 * longer than it takes to notice a silent peer, which is found by polling.
 * Returns which are to be polled. */
static uint32_t sleep_on_queues(struct reef_queue *const *queues,
				uint32_t count, uint64_t left_ns)
{
	struct pollfd pollfds[REEF_QUEUES_MAX];
	struct timespec most;
	uint32_t due = 0;
	uint64_t max_ns;

	for (uint32_t i = 0; i < count; i++) {
		pollfds[i] = (struct pollfd){queues[i]->fd, POLLIN, 0};
		max_ns = queues[i]->fabric->options.silence_ns / 4;
		if (left_ns > max_ns)
			left_ns = max_ns;
	}
	most = (struct timespec){
		.tv_sec = (time_t)(left_ns / (1000 * MILLISECOND)),
		.tv_nsec = (long)(left_ns % (1000 * MILLISECOND)),
	};
	if (ppoll(pollfds, count, &most, NULL) <= 0)
		return EACH;
	for (uint32_t i = 0; i < count; i++)
		if (pollfds[i].revents)
			due |= 1u << i;
	return due;
}

static uint64_t time_left(uint64_t timeout_ns, uint64_t passed_ns)
{
	return timeout_ns > passed_ns ? timeout_ns - passed_ns : 0;
}

/* Wait outside fibers. spin: how long to poll before sleeping; NULL: always for
 * the fabric's spin_ns. */
static int wait_in_thread(struct reef_queue *const *queues, uint32_t count,
			  struct reef_spin *spin,
			  bool (*ready)(const void *what), const void *what,
			  uint64_t timeout_ns)
{
	uint64_t start_ns = reef_now_ns(), idle_ns = start_ns, now_ns, spin_ns;
	uint64_t most_ns;
	bool is_spinning = false;
	uint32_t due;
	int rc;

	/* Queues of sim have no fd: they are waited for in fibers only. */
	for (uint32_t i = 0; i < count; i++)
		reef_assert(queues[i]->fd >= 0);
	if (ready(what))
		return 0;
	spin_ns = spin ? reef_spin_begin(spin)
		       : queues[0]->fabric->options.spin_ns;
	/* Without time to spin the thread arms at once, and then polls. */
	due = spin_ns ? EACH : 0;
	for (;;) {
		rc = poll_queues(queues, count, due);
		if (rc < 0)
			return rc;
		if (due && ready(what))
			break;
		now_ns = reef_now_ns();
		if (rc)
			idle_ns = now_ns;
		if (due && timeout_ns != REEF_FOREVER &&
		    now_ns - start_ns >= timeout_ns)
			return -ETIMEDOUT;
		due = EACH;
		is_spinning = now_ns - idle_ns < spin_ns;
		if (is_spinning)
			continue;
		if (spin) {
			reef_spin_failed(spin);
			spin_ns = spin->part_ns;
		}
		/* A queue that cannot be armed is polled now and then: the wait
		 * must not end while the caller's batch is under way. */
		rc = arm_queues(queues, count);
		if (rc > 0 || poll_queues(queues, count, EACH))
			continue;
		most_ns = timeout_ns == REEF_FOREVER
				  ? REEF_FOREVER
				  : time_left(timeout_ns, now_ns - start_ns);
		due = sleep_on_queues(queues, count,
				      rc < 0 && most_ns > NAP_NS ? NAP_NS
								 : most_ns);
		idle_ns = reef_now_ns();
	}
	if (is_spinning && spin)
		reef_spin_paid(spin);
	return 0;
}

int reef_queues_wait_until(struct reef_queue *const *queues, uint32_t count,
			   bool (*ready)(const void *what), const void *what,
			   uint64_t timeout_ns)
{
	reef_assert(count > 0 && count <= REEF_QUEUES_MAX);
	if (reef_is_forked(queues[0]->fabric))
		return -REEF_EFORKED;
	if (reef_fiber_self())
		return wait_in_fiber(queues, count, ready, what, timeout_ns);
	return wait_in_thread(queues, count, &queues[0]->spin, ready, what,
			      timeout_ns);
}

int reef_queue_wait_until(struct reef_queue *queue,
			  bool (*ready)(const void *what), const void *what,
			  uint64_t timeout_ns)
{
	return reef_queues_wait_until(&queue, 1, ready, what, timeout_ns);
}

struct progress {
	const struct reef_queue *queue;
	uint64_t before;
};

static bool has_progressed(const void *what)
{
	const struct progress *progress = what;

	return progress->queue->progress != progress->before;
}

int reef_queue_wait(struct reef_queue *queue, uint64_t timeout_ns)
{
	struct progress progress = {queue, queue->progress};

	return reef_queue_wait_until(queue, has_progressed, &progress,
				     timeout_ns);
}

int reef_wait_a_little(struct reef_queue *queue, uint64_t until_ns)
{
	uint64_t now_ns = reef_now_ns(), left_ns;
	int rc;

	if (now_ns >= until_ns)
		return -ETIMEDOUT;
	left_ns = until_ns - now_ns;
	rc = reef_queue_wait(queue,
			     left_ns < MILLISECOND ? left_ns : MILLISECOND);
	return rc == -ETIMEDOUT ? 0 : rc;
}

uint64_t reef_deadline_ns(uint64_t timeout_ns)
{
	uint64_t now_ns = reef_now_ns();

	return timeout_ns < REEF_FOREVER - now_ns ? now_ns + timeout_ns
						  : REEF_FOREVER;
}

/* --- messages --- */

static bool inbox_has_message(const void *what)
{
	const struct reef_queue *queue = what;

	return atomic_load_explicit(&queue->inbox_count, memory_order_relaxed) >
	       0;
}

/* 0, or the error of a forked child or a dead host: for calls that neither wait
 * nor ask the provider. */
static int check_alive(const struct reef_queue *queue)
{
	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	return queue->group && queue->group->dead ? -REEF_EHOSTDEAD : 0;
}

int reef_receive(struct reef_queue *queue, uint64_t timeout_ns,
		 struct reef_message **out)
{
	struct reef_message *message;
	int rc;

	rc = timeout_ns ? reef_queue_wait_until(queue, inbox_has_message, queue,
						timeout_ns)
			: check_alive(queue);
	if (rc)
		return rc;
	pthread_mutex_lock(&queue->lock);
	message = queue->inbox;
	if (message) {
		queue->inbox = message->next;
		if (!queue->inbox)
			queue->inbox_tail = &queue->inbox;
		queue->inbox_count--;
	}
	pthread_mutex_unlock(&queue->lock);
	if (!message)
		return -ETIMEDOUT;
	*out = message;
	return 0;
}

void reef_message_free(struct reef_message *message)
{
	free(message);
}

/* --- waiting for a batch --- */

static bool batch_is_done(const void *what)
{
	return ((const struct reef_batch *)what)->done;
}

int reef_wait(struct reef_queue *queue, struct reef_batch *batch)
{
	int rc;

	if (reef_is_forked(queue->fabric))
		return -REEF_EFORKED;
	reef_assert(batch->queue == queue);
	if (!reef_fiber_self()) {
		/* No adaptive spin: how long earlier waits took says nothing
		 * about this answer (and see sched.c). */
		rc = wait_in_thread(&queue, 1, NULL, batch_is_done, batch,
				    REEF_FOREVER);
		return rc ? rc : batch->status;
	}
	reef_assert(queue->sched == reef_fiber_sched());
	while (!batch->done) {
		batch->fiber = reef_fiber_self();
		if (reef_fiber_park(REEF_FOREVER) == -REEF_EHOSTDEAD) {
			/* sim has ended the batches of a killed host, and a
			 * poll makes hooks end theirs: then they only wait to
			 * be reported. */
			batch->fiber = NULL;
			reef_poll(queue);
			reef_assert(batch->done);
		}
	}
	batch->fiber = NULL;
	return batch->status;
}
