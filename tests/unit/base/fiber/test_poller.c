/* test_poller.c - no event is lost between polling and sleeping. */
#include "fixture/runtime.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int yield_forever(void *arg)
{
	_Atomic int *end = arg;

	while (!atomic_load(end))
		reef_fiber_yield();
	return 0;
}

struct mailbox {
	struct reef_poller poller;
	struct reef_fiber *fiber;
	sem_t asleep;
	_Atomic int mail;
	int arms, delivered;
	bool tell;
};

static int mailbox_poll(struct reef_poller *poller)
{
	struct mailbox *mailbox = (void *)poller;
	uint64_t count;

	assert_null(reef_fiber_self());
	if (!atomic_exchange(&mailbox->mail, 0))
		return 0;
	while (poller->fd >= 0 &&
	       read(poller->fd, &count, sizeof(count)) == sizeof(count))
		;
	mailbox->delivered++;
	reef_fiber_unpark(mailbox->fiber);
	return 1;
}

static int mailbox_arm(struct reef_poller *poller)
{
	struct mailbox *mailbox = (void *)poller;

	mailbox->arms++;
	if (mailbox->tell)
		sem_post(&mailbox->asleep);
	else
		atomic_store(&mailbox->mail, 1); /* comes while it arms */
	return 0;
}

static void *send_mail(void *arg)
{
	struct mailbox *mailbox = arg;
	uint64_t one = 1;

	for (int i = 0; i < 3; i++) {
		while (sem_wait(&mailbox->asleep) != 0)
			;
		atomic_store(&mailbox->mail, 1);
		if (write(mailbox->poller.fd, &one, sizeof(one)) < 0)
			return arg;
	}
	return NULL;
}

static int receive_three(void *arg)
{
	for (int i = 0; i < 3; i++)
		assert_int_equal(reef_fiber_park(REEF_FOREVER), 0);
	return 0;
}

static void mailbox_run(bool tell)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct mailbox mailbox = {.poller = {.poll = mailbox_poll,
					     .arm = mailbox_arm,
					     .fd = eventfd(0, EFD_NONBLOCK)},
				  .tell = tell};
	pthread_t thread;
	void *failed = NULL;

	sem_init(&mailbox.asleep, 0, 0);
	reef_sched_poller_add(sched, &mailbox.poller);
	assert_int_equal(
		reef_fiber_spawn(sched, receive_three, NULL, &mailbox.fiber),
		0);
	if (tell)
		assert_int_equal(
			pthread_create(&thread, NULL, send_mail, &mailbox), 0);
	run(sched);
	if (tell)
		pthread_join(thread, &failed);
	assert_null(failed);
	assert_int_equal(mailbox.delivered, 3);
	assert_true(mailbox.arms >= 3);
	reef_fiber_join(mailbox.fiber, NULL);
	reef_sched_poller_remove(sched, &mailbox.poller);
	close(mailbox.poller.fd);
	sem_destroy(&mailbox.asleep);
	reef_sched_destroy(sched);
}

static void poller_event_while_asleep_wakes(void **state)
{
	mailbox_run(true);
}

static void poller_event_between_poll_and_arm_is_seen(void **state)
{
	mailbox_run(false);
}

struct countdown {
	struct reef_poller poller;
	struct reef_fiber *fiber;
	int left;
};

static int countdown_poll(struct reef_poller *poller)
{
	struct countdown *countdown = (void *)poller;

	if (countdown->left == 0 || --countdown->left > 0)
		return 0;
	reef_fiber_unpark(countdown->fiber);
	return 1;
}

static void poller_without_descriptor_is_polled_on(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct countdown countdown = {
		.poller = {.poll = countdown_poll, .fd = -1}, .left = 2000};
	int wake = 1;

	assert_int_equal(
		reef_fiber_spawn(sched, park_forever, &wake, &countdown.fiber),
		0);
	reef_sched_poller_add(sched, &countdown.poller);
	run(sched);
	assert_int_equal(wake, 0);
	reef_fiber_join(countdown.fiber, NULL);
	reef_sched_poller_remove(sched, &countdown.poller);
	reef_sched_destroy(sched);
}

static void poller_in_virtual_time_is_polled_each_round(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct countdown countdown = {
		.poller = {.poll = countdown_poll, .fd = -1}, .left = 5};
	int wake = 1;

	assert_int_equal(
		reef_fiber_spawn(sched, park_forever, &wake, &countdown.fiber),
		0);
	spawn(sched, tick, NULL);
	reef_sched_poller_add(sched, &countdown.poller);
	run(sched);
	assert_int_equal(wake, 0);
	reef_fiber_join(countdown.fiber, NULL);
	/* It reports nothing any more, and time stands still. */
	assert_int_equal(
		reef_fiber_spawn(sched, park_forever, &wake, &countdown.fiber),
		0);
	assert_int_equal(reef_sched_run(sched), -EDEADLK);
	reef_fiber_unpark(countdown.fiber);
	reef_sched_poller_remove(sched, &countdown.poller);
	run(sched);
	reef_fiber_join(countdown.fiber, NULL);
	reef_sched_destroy(sched);
}

static int arm_never(struct reef_poller *poller)
{
	return -EOPNOTSUPP;
}

static int arm_pending(struct reef_poller *poller)
{
	return 1;
}

/* Nothing ever makes the descriptor readable; all the same it is polled. */
static void poller_that_cannot_promise_is_polled_on(void **state)
{
	struct countdown countdowns[] = {
		{.poller = {.arm = arm_never}},
		{.poller = {.arm = arm_pending}},
		{.poller = {.sleep_max_ns = 1000}},
	};

	for (int i = 0; i < 3; i++) {
		struct reef_sched *sched = sched_make(false, NULL);
		struct countdown *countdown = &countdowns[i];
		int wake = 1;

		countdown->left = 1000;
		countdown->poller.poll = countdown_poll;
		countdown->poller.fd = eventfd(0, EFD_NONBLOCK);
		assert_int_equal(reef_fiber_spawn(sched, park_forever, &wake,
						  &countdown->fiber),
				 0);
		reef_sched_poller_add(sched, &countdown->poller);
		run(sched);
		assert_int_equal(wake, 0);
		reef_fiber_join(countdown->fiber, NULL);
		close(countdown->poller.fd);
		reef_sched_destroy(sched);
	}
}

static int park_then_end(void *arg)
{
	assert_int_equal(reef_fiber_park(REEF_FOREVER), 0);
	atomic_store((_Atomic int *)arg, 1);
	return 0;
}

static void poller_is_polled_though_fibers_never_park(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct countdown countdown = {
		.poller = {.poll = countdown_poll, .fd = -1}, .left = 10};
	_Atomic int end = 0;

	assert_int_equal(
		reef_fiber_spawn(sched, park_then_end, &end, &countdown.fiber),
		0);
	spawn(sched, yield_forever, &end);
	reef_sched_poller_add(sched, &countdown.poller);
	run(sched);
	reef_fiber_join(countdown.fiber, NULL);
	reef_sched_poller_remove(sched, &countdown.poller);
	reef_sched_destroy(sched);
}

static int add_poller_then_yield(void *arg)
{
	struct countdown *countdown = arg;
	_Atomic int end = 0;

	assert_int_equal(reef_fiber_spawn(reef_fiber_sched(), park_then_end,
					  &end, &countdown->fiber),
			 0);
	/* So far nothing but fibers: the round has no end. */
	for (int i = 0; i < 10; i++)
		reef_fiber_yield();
	reef_sched_poller_add(reef_fiber_sched(), &countdown->poller);
	while (!atomic_load(&end))
		reef_fiber_yield();
	reef_sched_poller_remove(reef_fiber_sched(), &countdown->poller);
	return reef_fiber_join(countdown->fiber, NULL);
}

static void poller_added_by_a_busy_fiber_has_its_turn(void **state)
{
	struct reef_sched *sched = sched_make(false, NULL);
	struct countdown countdown = {
		.poller = {.poll = countdown_poll, .fd = -1}, .left = 10};

	spawn(sched, add_poller_then_yield, &countdown);
	run(sched);
	reef_sched_destroy(sched);
}

struct leaver {
	struct reef_poller poller;
	struct reef_sched *sched;
	struct leaver *other;
	int polls;
};

static int leave_and_remove_other(struct reef_poller *poller)
{
	struct leaver *leaver = (void *)poller;

	leaver->polls++;
	reef_sched_poller_remove(leaver->sched, &leaver->other->poller);
	reef_sched_poller_remove(leaver->sched, &leaver->poller);
	return 1;
}

static void poller_may_remove_itself_and_the_next(void **state)
{
	struct reef_sched *sched = sched_make(true, NULL);
	struct leaver leavers[3];

	for (int i = 0; i < 3; i++) {
		leavers[i] = (struct leaver){
			.poller = {.poll = leave_and_remove_other, .fd = -1},
			.sched = sched,
			.other = &leavers[(i + 1) % 3]};
		reef_sched_poller_add(sched, &leavers[i].poller);
	}
	spawn(sched, tick, NULL);
	run(sched);
	assert_int_equal(leavers[0].polls, 1);
	assert_int_equal(leavers[1].polls, 0);
	assert_int_equal(leavers[2].polls, 1);
	reef_sched_destroy(sched);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(poller_event_while_asleep_wakes),
		cmocka_unit_test(poller_event_between_poll_and_arm_is_seen),
		cmocka_unit_test(poller_without_descriptor_is_polled_on),
		cmocka_unit_test(poller_in_virtual_time_is_polled_each_round),
		cmocka_unit_test(poller_that_cannot_promise_is_polled_on),
		cmocka_unit_test(poller_is_polled_though_fibers_never_park),
		cmocka_unit_test(poller_added_by_a_busy_fiber_has_its_turn),
		cmocka_unit_test(poller_may_remove_itself_and_the_next),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
