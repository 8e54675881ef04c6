/* Waiting: inside fibers and outside, through a foreign event loop, and who
 * wakes whom across threads. */
#include "fixture/fake.h"

#include "fixture/runtime.h"
#include "fixture/units.h"

#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A wake-up that is lost is a hang: end it long before the runner does. */
static int limit_time(void **state)
{
	(void)state;
	alarm(100);
	return 0;
}

/* --- between threads --- */

struct worker {
	struct fake *fake;
	struct reef_queue *queue;
	pthread_t thread;
	_Atomic bool stop;
};

static void *worker_main(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&worker->stop))
		if (!reef_poll(worker->queue))
			reef_sleep(1000);
	return NULL;
}

static void worker_start(struct worker *worker, struct fake *fake)
{
	memset(worker, 0, sizeof(*worker));
	worker->fake = fake;
	worker->queue = fake_queue(fake);
	fake->worker = worker->queue;
	fake->late = true;
	assert_int_equal(
		pthread_create(&worker->thread, NULL, worker_main, worker), 0);
}

static void worker_stop(struct worker *worker)
{
	atomic_store(&worker->stop, true);
	assert_int_equal(pthread_join(worker->thread, NULL), 0);
	worker->fake->worker = NULL;
	reef_queue_close(worker->queue);
}

static void wait_end_on_another_thread_wakes_the_sleeper(void **state)
{
	struct worker worker;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	worker_start(&worker, scene.fake);
	for (int i = 0; i < 20000; i++)
		assert_int_equal(reef_run(scene.queue, &scene.batch), 0);
	/* It did sleep now and then, or nothing was shown. */
	assert_true(scene.fake->arms > 0);
	worker_stop(&worker);
	scene_close(&scene);
}

static int wait_often(void *arg)
{
	struct scene *scene = arg;
	struct reef_op op = fake_message();
	struct reef_batch batch = {.link = scene->link, .ops = &op, .count = 1};

	for (int i = 0; i < 3000; i++)
		if (reef_run(scene->queue, &batch))
			return -1;
	return 0;
}

static void wait_end_on_another_thread_wakes_fibers(void **state)
{
	struct reef_sched_options options = {.spin_ns = 1};
	struct reef_fiber *fibers[3];
	struct reef_sched *sched;
	struct worker worker;
	struct scene scene;
	int result = -1;

	(void)state;
	scene_open(&scene);
	reef_link_close(scene.link);
	reef_queue_close(scene.queue);
	assert_int_equal(reef_sched_create(&options, &sched), 0);
	assert_int_equal(
		reef_queue_open(&scene.fake->fabric, sched, &scene.queue), 0);
	assert_int_equal(fake_join(scene.queue, &scene.link), 0);
	worker_start(&worker, scene.fake);
	for (int i = 0; i < 3; i++)
		assert_int_equal(
			reef_fiber_spawn(sched, wait_often, &scene, &fibers[i]),
			0);
	assert_int_equal(reef_sched_run(sched), 0);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(reef_fiber_join(fibers[i], &result), 0);
		assert_int_equal(result, 0);
	}
	worker_stop(&worker);
	scene_close(&scene);
	reef_sched_destroy(sched);
}

/* Wakes the owner for nothing, so that it finds what ended before it is told:
 * when it then closes the queue, nobody may be about to tell it. */
static int nudge_first(struct fake *fake, struct reef_queue *queue)
{
	struct reef_batch *batch;

	if (queue != fake->worker)
		return 0;
	while ((batch = fake_take(fake, queue))) {
		reef_queue_wake(batch->queue);
		reef_batch_ended(queue, batch);
	}
	return 0;
}

static void wait_closes_right_after_its_last_end(void **state)
{
	struct fake *fake = fake_open();
	struct reef_op op = fake_message();
	struct reef_link *link;
	struct reef_queue *queue, *owner = fake_queue(fake);
	struct worker worker;

	(void)state;
	assert_int_equal(fake_join(owner, &link), 0);
	fake->on_poll = nudge_first;
	worker_start(&worker, fake);
	for (int i = 0; i < 3000; i++) {
		struct reef_batch batch = {
			.link = link, .ops = &op, .count = 1};

		queue = fake_queue(fake);
		assert_int_equal(reef_post(queue, &batch), 0);
		while (!batch.done)
			reef_poll(queue);
		reef_queue_close(queue);
	}
	worker_stop(&worker);
	reef_link_close(link);
	reef_queue_close(owner);
	reef_fabric_close(&fake->fabric);
}

/* --- messages between threads, and through a foreign event loop --- */

struct post_office {
	struct fake *fake;
	struct reef_queue *to;
	struct reef_link *link;
	uint32_t count;
	uint32_t refused;
};

static void *deliver(void *arg)
{
	struct post_office *office = arg;

	for (uint32_t i = 0; i < office->count; i++)
		while (reef_message_arrived(NULL, office->link, &i,
					    sizeof(i)) == -ENOSPC) {
			office->refused++;
			reef_sleep(1000);
		}
	return NULL;
}

static void wait_messages_from_another_thread_all_arrive(void **state)
{
	struct post_office office = {.count = 20000};
	struct reef_message *message;
	struct scene scene;
	pthread_t thread;
	uint32_t number;

	(void)state;
	scene_open(&scene);
	office.to = scene.queue;
	office.link = scene.link;
	assert_int_equal(pthread_create(&thread, NULL, deliver, &office), 0);
	for (uint32_t i = 0; i < office.count; i++) {
		assert_int_equal(
			reef_receive(scene.queue, REEF_FOREVER, &message), 0);
		assert_int_equal(message->length, sizeof(number));
		memcpy(&number, message->bytes, sizeof(number));
		assert_int_equal(number, i);
		assert_ptr_equal(message->link, scene.link);
		reef_message_free(message);
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(reef_receive(scene.queue, 0, &message), -ETIMEDOUT);
	scene_close(&scene);
}

/* As fabric.h says: arm, poll once more, sleep on the descriptor. */
static uint32_t take_all(struct reef_queue *queue, uint32_t next)
{
	struct reef_message *message;
	uint32_t number;

	while (!reef_receive(queue, 0, &message)) {
		memcpy(&number, message->bytes, sizeof(number));
		assert_int_equal(number, next++);
		reef_message_free(message);
	}
	return next;
}

static void wait_foreign_event_loop_hears_everything(void **state)
{
	struct post_office office = {.count = 20000};
	struct epoll_event event = {.events = EPOLLIN};
	int epoll = epoll_create1(EPOLL_CLOEXEC), sleeps = 0;
	uint32_t next = 0;
	struct scene scene;
	pthread_t thread;

	(void)state;
	scene_open(&scene);
	office.link = scene.link;
	assert_int_equal(epoll_ctl(epoll, EPOLL_CTL_ADD,
				   reef_queue_fd(scene.queue), &event),
			 0);
	assert_int_equal(pthread_create(&thread, NULL, deliver, &office), 0);
	while (next < office.count) {
		next = take_all(scene.queue, next);
		if (next == office.count)
			break;
		assert_int_equal(reef_queue_arm(scene.queue), 0);
		if (reef_poll(scene.queue))
			continue;
		/* What came before the poll may be there all the same. */
		assert_int_equal(epoll_wait(epoll, &event, 1, -1), 1);
		reef_poll(scene.queue);
		sleeps++;
	}
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(sleeps > 0);
	/* All is heard: the next arm leaves nothing to read. */
	while (reef_queue_arm(scene.queue) || reef_poll(scene.queue))
		;
	assert_int_equal(epoll_wait(epoll, &event, 1, 0), 0);
	/* And the next event is heard again. */
	reef_queue_wake(scene.queue);
	assert_int_equal(epoll_wait(epoll, &event, 1, 0), 1);
	close(epoll);
	scene_close(&scene);
}

static void wait_not_armed_is_not_disturbed(void **state)
{
	struct pollfd pollfd = {.events = POLLIN};
	struct scene scene;

	(void)state;
	scene_open(&scene);
	pollfd.fd = reef_queue_fd(scene.queue);
	for (int i = 0; i < 10; i++)
		reef_queue_wake(scene.queue);
	assert_int_equal(poll(&pollfd, 1, 0), 0); /* no system call for it */
	assert_int_equal(reef_poll(scene.queue), 10);
	assert_int_equal(reef_poll(scene.queue), 0);
	scene_close(&scene);
}

/* --- for what no fabric brings --- */

/* Two threads count up by turns; each waits in its own queue. */
struct turns {
	_Atomic uint32_t count;
	uint32_t last;
	struct reef_queue *queues[2];
	int results[2];
};

struct turn {
	const struct turns *turns;
	uint32_t mine; /* is it when count reaches this */
};

static bool turn_is_mine(const void *what)
{
	const struct turn *turn = what;

	return atomic_load(&turn->turns->count) >= turn->mine;
}

static int take_turns(struct turns *turns, uint32_t self)
{
	struct turn turn = {turns, self};

	for (; turn.mine < turns->last; turn.mine += 2) {
		int rc = reef_queue_wait_until(
			turns->queues[self], turn_is_mine, &turn, REEF_FOREVER);

		if (rc)
			return rc;
		atomic_fetch_add(&turns->count, 1);
		reef_queue_wake(turns->queues[1 - self]);
	}
	return 0;
}

static void *take_second_turns(void *arg)
{
	struct turns *turns = arg;

	turns->results[1] = take_turns(turns, 1);
	return NULL;
}

static int take_first_turns(void *arg)
{
	struct turns *turns = arg;

	turns->results[0] = take_turns(turns, 0);
	return 0;
}

/* sched: for the first of them; NULL: it is no fiber. */
static void play_turns(struct reef_sched *sched)
{
	struct turns turns = {.last = 10000, .results = {1, 1}};
	struct fake *fake = fake_open();
	pthread_t thread;

	assert_int_equal(
		reef_queue_open(&fake->fabric, sched, &turns.queues[0]), 0);
	turns.queues[1] = fake_queue(fake);
	if (sched)
		spawn(sched, take_first_turns, &turns);
	assert_int_equal(
		pthread_create(&thread, NULL, take_second_turns, &turns), 0);
	if (sched)
		run(sched);
	else
		take_first_turns(&turns);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(turns.results[0], 0);
	assert_int_equal(turns.results[1], 0);
	assert_int_equal(atomic_load(&turns.count), turns.last);
	reef_queue_close(turns.queues[0]);
	reef_queue_close(turns.queues[1]);
	reef_fabric_close(&fake->fabric);
}

static void wait_until_another_thread_has_set_it(void **state)
{
	(void)state;
	play_turns(NULL);
}

static void wait_until_another_thread_has_set_it_in_a_fiber(void **state)
{
	struct reef_sched_options options = {.spin_ns = 1};
	struct reef_sched *sched;

	(void)state;
	assert_int_equal(reef_sched_create(&options, &sched), 0);
	play_turns(sched);
	reef_sched_destroy(sched);
}

static void wait_until_ends_with_its_time(void **state)
{
	struct turns turns = {.count = 3};
	struct turn now = {&turns, 3}, never = {&turns, 4};
	struct scene scene;

	(void)state;
	scene_open(&scene);
	/* What is there already needs no time. */
	assert_int_equal(
		reef_queue_wait_until(scene.queue, turn_is_mine, &now, 0), 0);
	assert_int_equal(
		reef_queue_wait_until(scene.queue, turn_is_mine, &never, 0),
		-ETIMEDOUT);
	/* A wake-up for nothing ends no wait. */
	reef_queue_wake(scene.queue);
	assert_int_equal(
		reef_queue_wait_until(scene.queue, turn_is_mine, &never, 1000),
		-ETIMEDOUT);
	scene_close(&scene);
}

static void wait_wake_in_a_forked_child_is_not_heard(void **state)
{
	struct pollfd pollfd = {.events = POLLIN};
	struct scene scene;

	(void)state;
	scene_open(&scene);
	pollfd.fd = reef_queue_fd(scene.queue);
	assert_int_equal(reef_queue_arm(scene.queue), 0);
	reef_forks++; /* as in a child, where the descriptor is the parent's */
	reef_queue_wake(scene.queue);
	reef_forks--;
	assert_int_equal(poll(&pollfd, 1, 0), 0);
	scene_close(&scene);
}

/* --- waiting outside of fibers --- */

static void wait_ends_with_its_time(void **state)
{
	struct reef_message *message;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	assert_int_equal(reef_queue_wait(scene.queue, 0), -ETIMEDOUT);
	assert_int_equal(reef_queue_wait(scene.queue, 1000), -ETIMEDOUT);
	assert_int_equal(reef_receive(scene.queue, 1000, &message), -ETIMEDOUT);
	reef_queue_wake(scene.queue);
	assert_int_equal(reef_queue_wait(scene.queue, REEF_FOREVER), 0);
	reef_queue_wake(scene.queue);
	assert_int_equal(reef_queue_wait(scene.queue, REEF_FOREVER - 1), 0);
	assert_int_equal(reef_deadline_ns(REEF_FOREVER), REEF_FOREVER);
	assert_int_equal(reef_deadline_ns(REEF_FOREVER - 1), REEF_FOREVER);
	assert_true(reef_deadline_ns(0) <= reef_now_ns());
	assert_int_equal(reef_wait_a_little(scene.queue, 0), -ETIMEDOUT);
	assert_int_equal(reef_wait_a_little(scene.queue, REEF_FOREVER), 0);
	scene_close(&scene);
}

/* The provider knows of something that the descriptor does not show. */
static int after_arms(struct fake *fake, struct reef_queue *queue)
{
	(void)queue;
	if (fake->arms_left || !fake->arms)
		return 0;
	fake->arms = 0;
	return 1;
}

static void wait_arm_over_0_keeps_awake(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene);
	scene.fake->arms = 0;
	scene.fake->arm_result = 1;
	scene.fake->arms_left = 3;
	scene.fake->on_poll = after_arms;
	assert_int_equal(reef_queue_wait(scene.queue, REEF_FOREVER), 0);
	scene_close(&scene);
}

/* Batches end in this queue's poll, but only once arming has failed. */
static int end_after_arms(struct fake *fake, struct reef_queue *queue)
{
	if (!fake->arms_left)
		fake->worker = queue;
	return 0;
}

static void wait_arm_that_fails_leaves_no_batch_under_way(void **state)
{
	struct reef_queue *nobody;
	struct scene scene;

	(void)state;
	scene_open(&scene);
	nobody = fake_queue(scene.fake);
	scene.fake->worker = nobody;
	scene.fake->late = true;
	scene.fake->arm_result = -EIO;
	scene.fake->arms_left = 3;
	scene.fake->on_poll = end_after_arms;
	assert_int_equal(reef_post(scene.queue, &scene.batch), 0);
	assert_int_equal(reef_wait(scene.queue, &scene.batch), 0);
	assert_true(scene.batch.done);
	reef_queue_close(nobody);
	scene_close(&scene);
}

/* Who cannot be woken looks now and then. */
static void wait_arm_that_fails_is_no_end(void **state)
{
	struct scene scene;

	(void)state;
	scene_open(&scene);
	scene.fake->arms = 0;
	scene.fake->arm_result = -EIO;
	scene.fake->arms_left = 3;
	scene.fake->on_poll = after_arms;
	assert_int_equal(reef_queue_wait(scene.queue, REEF_FOREVER), 0);
	scene.fake->on_poll = NULL;
	scene.fake->arms_left = UINT32_MAX;
	assert_int_equal(reef_queue_wait(scene.queue, 5 * MILLISECOND),
			 -ETIMEDOUT);
	scene_close(&scene);
}

/* --- waiting in fibers --- */

struct waiting {
	struct scene scene;
	struct reef_sched *sched;
	struct reef_fiber *fibers[4];
	uint32_t taken, started;
	uint64_t passed_ns;
	int result;
	bool over;
};

static void waiting_open(struct waiting *waiting, bool virtual_time)
{
	struct scene *scene = &waiting->scene;

	memset(waiting, 0, sizeof(*waiting));
	waiting->sched = sched_make(virtual_time, NULL);
	scene->fake = fake_open();
	assert_int_equal(reef_queue_open(&scene->fake->fabric, waiting->sched,
					 &scene->queue),
			 0);
	assert_int_equal(fake_join(scene->queue, &scene->link), 0);
	while (reef_poll(scene->queue))
		;
	scene->op = fake_message();
	scene->batch = (struct reef_batch){
		.link = scene->link, .ops = &scene->op, .count = 1};
}

static void waiting_close(struct waiting *waiting)
{
	scene_close(&waiting->scene);
	reef_sched_destroy(waiting->sched);
}

static int time_out(void *arg)
{
	struct waiting *waiting = arg;
	uint64_t start_ns = reef_now_ns();
	struct reef_message *message;

	waiting->result =
		reef_receive(waiting->scene.queue, 5 * SECOND, &message);
	waiting->passed_ns = reef_now_ns() - start_ns;
	return 0;
}

static void wait_in_a_fiber_ends_with_its_time(void **state)
{
	struct waiting waiting;

	(void)state;
	waiting_open(&waiting, true);
	spawn(waiting.sched, time_out, &waiting);
	run(waiting.sched);
	assert_int_equal(waiting.result, -ETIMEDOUT);
	assert_int_equal(waiting.passed_ns, 5 * SECOND);
	waiting_close(&waiting);
}

/* Unparked a hundred times for nothing: it still waits for what it asked. */
static int disturb(void *arg)
{
	struct waiting *waiting = arg;

	for (int i = 0; i < 100; i++) {
		reef_fiber_unpark(waiting->fibers[0]);
		reef_queue_wake(waiting->scene.queue);
		reef_sleep(1000);
		assert_false(waiting->over);
	}
	reef_message_arrived(waiting->scene.queue, waiting->scene.link, "m", 1);
	waiting->scene.fake->worker = NULL;
	return 0;
}

static int receive_one(void *arg)
{
	struct waiting *waiting = arg;
	struct reef_message *message;
	int rc = reef_receive(waiting->scene.queue, REEF_FOREVER, &message);

	waiting->over = true;
	if (!rc)
		reef_message_free(message);
	return rc;
}

static int finish_one(void *arg)
{
	struct waiting *waiting = arg;
	int rc = reef_run(waiting->scene.queue, &waiting->scene.batch);

	waiting->over = true;
	return rc;
}

static void wait_unparks_for_nothing_end_no_wait(void **state)
{
	int (*const bodies[])(void *arg) = {receive_one, finish_one};
	struct reef_queue nobody;
	struct waiting waiting;
	int result;

	(void)state;
	for (int i = 0; i < 2; i++) {
		waiting_open(&waiting, true);
		/* Batches end once `disturb` is through. */
		waiting.scene.fake->late = true;
		waiting.scene.fake->worker = &nobody;
		assert_int_equal(reef_fiber_spawn(waiting.sched, bodies[i],
						  &waiting, &waiting.fibers[0]),
				 0);
		spawn(waiting.sched, disturb, &waiting);
		run(waiting.sched);
		assert_true(waiting.over);
		assert_int_equal(reef_fiber_join(waiting.fibers[0], &result),
				 0);
		assert_int_equal(result, 0);
		waiting_close(&waiting);
	}
}

static int take_one(void *arg)
{
	struct waiting *waiting = arg;
	struct reef_message *message;

	waiting->started++;
	if (reef_receive(waiting->scene.queue, REEF_FOREVER, &message))
		return -1;
	waiting->taken++;
	reef_message_free(message);
	return 0;
}

static int give_one_by_one(void *arg)
{
	struct waiting *waiting = arg;

	for (uint32_t i = 1; i <= 4; i++) {
		reef_message_arrived(waiting->scene.queue, waiting->scene.link,
				     "m", 1);
		reef_sleep(1000);
		assert_int_equal(waiting->taken, i);
	}
	return 0;
}

static void wait_each_message_wakes_one_of_many_fibers(void **state)
{
	struct waiting waiting;

	(void)state;
	waiting_open(&waiting, true);
	for (int i = 0; i < 4; i++)
		spawn(waiting.sched, take_one, &waiting);
	spawn(waiting.sched, give_one_by_one, &waiting);
	run(waiting.sched);
	assert_int_equal(waiting.taken, 4);
	waiting_close(&waiting);
}

static int run_many(void *arg)
{
	struct waiting *waiting = arg;
	struct reef_op op = fake_message();
	struct reef_batch batch = {
		.link = waiting->scene.link, .ops = &op, .count = 1};

	for (int i = 0; i < 100; i++)
		if (reef_run(waiting->scene.queue, &batch))
			return -1;
	waiting->taken++;
	return 0;
}

static void wait_fibers_wait_for_their_own_batches(void **state)
{
	struct waiting waiting;

	(void)state;
	waiting_open(&waiting, false);
	waiting.scene.fake->late = true;
	for (int i = 0; i < 4; i++)
		spawn(waiting.sched, run_many, &waiting);
	run(waiting.sched);
	assert_int_equal(waiting.taken, 4);
	assert_int_equal(waiting.scene.fake->posts, 400);
	waiting_close(&waiting);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wait_end_on_another_thread_wakes_the_sleeper),
		cmocka_unit_test(wait_end_on_another_thread_wakes_fibers),
		cmocka_unit_test(wait_closes_right_after_its_last_end),
		cmocka_unit_test(wait_messages_from_another_thread_all_arrive),
		cmocka_unit_test(wait_foreign_event_loop_hears_everything),
		cmocka_unit_test(wait_not_armed_is_not_disturbed),
		cmocka_unit_test(wait_until_another_thread_has_set_it),
		cmocka_unit_test(
			wait_until_another_thread_has_set_it_in_a_fiber),
		cmocka_unit_test(wait_until_ends_with_its_time),
		cmocka_unit_test(wait_wake_in_a_forked_child_is_not_heard),
		cmocka_unit_test(wait_ends_with_its_time),
		cmocka_unit_test(wait_arm_over_0_keeps_awake),
		cmocka_unit_test(wait_arm_that_fails_leaves_no_batch_under_way),
		cmocka_unit_test(wait_arm_that_fails_is_no_end),
		cmocka_unit_test(wait_in_a_fiber_ends_with_its_time),
		cmocka_unit_test(wait_unparks_for_nothing_end_no_wait),
		cmocka_unit_test(wait_each_message_wakes_one_of_many_fibers),
		cmocka_unit_test(wait_fibers_wait_for_their_own_batches),
	};

	return cmocka_run_group_tests(tests, limit_time, NULL);
}
