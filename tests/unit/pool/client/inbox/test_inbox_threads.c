/* test_inbox_threads.c - messages between handles of real threads, over shm and
 * tcp. */
#include "fixture/inbox_ear.h"
#include "fixture/local_pool.h"
#include "fixture/try.h"
#include "fixture/units.h"

#include <errno.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <reef/reef.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};

/* --- real threads --- */

struct pair {
	const char *target;
	struct reef_options options;
	uint32_t rounds;
	_Atomic uint64_t inboxes[2];
	_Atomic int failed;
	bool in_fibers;
};

struct player {
	struct pair *pair;
	uint32_t index;
};

static int play(struct player *player)
{
	struct pair *pair = player->pair;
	struct reef_wake wake = {.object = 42};
	struct reef_space *space;
	struct reef *reef;
	struct ear ear;
	uint64_t own, other, i;
	int rc = 0;

	TRY(reef_open(pair->target, &pair->options, &reef));
	TRY(reef_space_open(reef, "s", &create, &space));
	TRY(reef_inbox_open(space, &own));
	ear_open(reef, &ear, 42);
	pair->inboxes[player->index] = own;
	while (!(other = pair->inboxes[!player->index]))
		reef_sleep(100000);
	for (i = 1; i <= pair->rounds && !rc; i++) {
		wake.word = i;
		if (player->index)
			rc = ear_wait(reef, &ear, i, 20 * SECOND);
		if (!rc)
			rc = reef_inbox_send(space, other, &wake);
		if (!rc && !player->index)
			rc = ear_wait(reef, &ear, i, 20 * SECOND);
	}
	if (rc)
		print_message("%u, round %u: %s\n", player->index, (unsigned)i,
			      reef_error_name(rc));
	ear_close(reef, &ear);
	reef_close(reef);
	return rc;
}

static int play_fiber(void *arg)
{
	struct player *player = arg;
	int rc = play(player);

	if (rc)
		player->pair->failed = rc;
	return rc;
}

static void *play_thread(void *arg)
{
	struct player *player = arg;
	struct reef_sched *sched;

	if (!player->pair->in_fibers) {
		play_fiber(player);
		return NULL;
	}
	if (reef_sched_create(NULL, &sched) ||
	    reef_fiber_spawn(sched, play_fiber, player, NULL) ||
	    reef_sched_run(sched))
		player->pair->failed = -EXDEV;
	else
		reef_sched_destroy(sched);
	return NULL;
}

static void run_pair(struct pair *pair)
{
	struct player players[2] = {{pair, 0}, {pair, 1}};
	pthread_t threads[2];
	struct reef *reef;
	uint32_t i;

	assert_int_equal(reef_open(pair->target, &pair->options, &reef), 0);
	for (i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, play_thread,
						&players[i]),
				 0);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	reef_close(reef);
	assert_int_equal(pair->failed, 0);
}

static void inbox_threads_rally_over_shm(void **state)
{
	struct pair pair = {.target = "embedded:32M", .rounds = 2000};

	run_pair(&pair);
}

static void inbox_fibers_rally_over_shm(void **state)
{
	struct pair pair = {
		.target = "embedded:32M",
		.rounds = 2000,
		.in_fibers = true,
	};

	run_pair(&pair);
}

static void inbox_threads_rally_over_tcp(void **state)
{
	struct pair pair = {
		.target = "local",
		.options = {.fabrics = "tcp"},
		.rounds = 500,
	};
	struct server server;

	server_start(&server);
	run_pair(&pair);
	server_stop(&server);
}

static void inbox_threads_rally_with_all_fabrics(void **state)
{
	struct pair pair = {.target = "local", .rounds = 500};
	struct server server;

	server_start(&server);
	run_pair(&pair);
	server_stop(&server);
}

/* Two handles of one thread: nobody ever answers the first. */
static void send_to_nobody(const char *target, struct reef_options *options)
{
	struct reef_wake wake = {.object = 42};
	struct reef_space *space, *other;
	struct reef *reef, *deaf_one;
	uint64_t inbox, sent = 0, i;
	int rc;

	assert_int_equal(reef_open(target, options, &reef), 0);
	assert_int_equal(reef_open(target, options, &deaf_one), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_space_open(deaf_one, "s", NULL, &other), 0);
	assert_int_equal(reef_inbox_open(other, &inbox), 0);
	for (i = 0; i < 3000; i++) {
		rc = reef_inbox_send(space, inbox, &wake);
		assert_true(rc == 0 || rc == -EAGAIN);
		sent += !rc;
	}
	assert_true(sent > 0);
	reef_close(reef);
	reef_close(deaf_one);
}

static void inbox_that_is_never_polled_holds_up_nobody(void **state)
{
	struct reef_options tcp = {.fabrics = "tcp"};
	struct server server;

	send_to_nobody("embedded:32M", NULL);
	server_start(&server);
	send_to_nobody("local", &tcp);
	server_stop(&server);
}

/* The link is up, and then its receiver stands still. */
struct still {
	struct reef *reef;
	_Atomic uint64_t inbox;
	_Atomic int state; /* 1: heard; 2: may go */
};

static void *stand_still(void *arg)
{
	struct still *still = arg;
	struct reef_space *space;
	struct ear ear;
	uint64_t own;

	if (reef_open("embedded:32M", NULL, &still->reef) ||
	    reef_space_open(still->reef, "s", &create, &space) ||
	    reef_inbox_open(space, &own))
		abort();
	ear_open(still->reef, &ear, 42);
	still->inbox = own;
	while (ear_wait(still->reef, &ear, 1, SECOND))
		;
	still->state = 1;
	while (still->state == 1)
		reef_sleep(MILLISECOND);
	/* What fitted is still there. */
	if (ear_wait(still->reef, &ear, 2, 10 * SECOND))
		abort();
	ear_close(still->reef, &ear);
	reef_close(still->reef);
	return NULL;
}

static void inbox_that_stands_still_holds_up_nobody(void **state)
{
	struct reef_wake wake = {.object = 42, .word = 1};
	struct still still = {0};
	struct reef_space *space;
	uint64_t sent = 0, refused = 0, i;
	struct reef *reef;
	pthread_t thread;
	int rc;

	assert_int_equal(reef_open("embedded:32M", NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(pthread_create(&thread, NULL, stand_still, &still), 0);
	while (!still.inbox)
		reef_sleep(MILLISECOND);
	assert_int_equal(reef_inbox_send(space, still.inbox, &wake), 0);
	while (!still.state)
		reef_sleep(MILLISECOND);
	wake.word = 2;
	for (i = 0; i < 20000; i++) {
		rc = reef_inbox_send(space, still.inbox, &wake);
		assert_true(rc == 0 || rc == -EAGAIN);
		sent += !rc;
		refused += rc != 0;
	}
	assert_true(sent > 100);
	assert_true(refused > 0);
	still.state = 2;
	pthread_join(thread, NULL);
	reef_close(reef);
}

static bool is_set(const void *what)
{
	return atomic_load((const _Atomic int *)what);
}

struct poker {
	struct reef *reef;
	_Atomic int flag;
};

static void *poke(void *arg)
{
	struct poker *poker = arg;

	atomic_store(&poker->flag, 1);
	reef_inbox_poke(poker->reef);
	return NULL;
}

static void inbox_poke_ends_a_wait(void **state)
{
	struct poker poker = {0};
	pthread_t thread;
	uint32_t i;

	assert_int_equal(reef_open("embedded:32M", NULL, &poker.reef), 0);
	for (i = 0; i < 50; i++) {
		poker.flag = 0;
		assert_int_equal(pthread_create(&thread, NULL, poke, &poker),
				 0);
		assert_int_equal(reef_inbox_wait(poker.reef, is_set,
						 &poker.flag, REEF_FOREVER),
				 0);
		pthread_join(thread, NULL);
	}
	reef_close(poker.reef);
}

static int in_child(struct reef *reef, struct reef_space *space, uint64_t inbox)
{
	struct reef_wake wake = {.object = 42};
	struct ear ear;
	uint64_t own;

	ear_open(reef, &ear, 42);
	if (reef_inbox_wait(reef, never, NULL, SECOND) != -REEF_EFORKED ||
	    reef_inbox_send(space, inbox, &wake) != -REEF_EFORKED ||
	    reef_inbox_open(space, &own) != -REEF_EFORKED)
		return 1;
	reef_inbox_poke(reef);
	ear_close(reef, &ear);
	reef_close(reef);
	return 0;
}

static void inbox_forked_child_keeps_its_hands_off(void **state)
{
	struct reef_wake wake = {.object = 42, .word = 1};
	struct reef_space *space;
	struct reef *reef;
	uint64_t own, again;
	struct ear ear;
	int status;
	pid_t child;

	assert_int_equal(reef_open("embedded:32M", NULL, &reef), 0);
	assert_int_equal(reef_space_open(reef, "s", &create, &space), 0);
	assert_int_equal(reef_inbox_open(space, &own), 0);
	child = fork();
	if (child == 0)
		_exit(in_child(reef, space, own));
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && !WEXITSTATUS(status));
	assert_int_equal(reef_inbox_open(space, &again), 0);
	assert_true(own == again);
	ear_open(reef, &ear, 42);
	assert_int_equal(reef_inbox_send(space, own, &wake), 0);
	assert_int_equal(ear_wait(reef, &ear, 1, SECOND), 0);
	ear_close(reef, &ear);
	reef_close(reef);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inbox_threads_rally_over_shm),
		cmocka_unit_test(inbox_fibers_rally_over_shm),
		cmocka_unit_test(inbox_that_stands_still_holds_up_nobody),
		cmocka_unit_test(inbox_poke_ends_a_wait),
		cmocka_unit_test(inbox_forked_child_keeps_its_hands_off),
		cmocka_unit_test_setup_teardown(
			inbox_that_is_never_polled_holds_up_nobody,
			scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(inbox_threads_rally_over_tcp,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			inbox_threads_rally_with_all_fabrics, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
