/* test_inbox.c - messages between handles: simulated, and real over shm and
 * tcp. */
#include "local_pool.h"
#include "pool/client/inbox.h"
#include "pool/client/inbox_block.h"
#include "pool_world.h"

#include <pthread.h>
#include <reef/fiber.h>
#include <reef/reef.h>
#include <stdatomic.h>

static const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};

/* --- a receiver --- */

/* Notes what comes for one object. */
struct ear {
	struct reef_watch watch;
	uint64_t count, last, wanted;
};

static void ear_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct ear *ear = watch->user;

	ear->count++;
	ear->last = wake->word;
}

static void ear_open(struct reef *reef, struct ear *ear, uint64_t object)
{
	*ear = (struct ear){
		.watch = {.object = object,
			  .message = ear_message,
			  .user = ear},
	};
	reef_inbox_watch(reef, &ear->watch);
}

static void ear_close(struct reef *reef, struct ear *ear)
{
	reef_inbox_unwatch(reef, &ear->watch);
}

static bool ear_has(const void *what)
{
	const struct ear *ear = what;

	return ear->last >= ear->wanted;
}

static int ear_wait(struct reef *reef, struct ear *ear, uint64_t wanted,
		    uint64_t timeout_ns)
{
	ear->wanted = wanted;
	return reef_inbox_wait(reef, ear_has, ear, timeout_ns);
}

static bool never(const void *what)
{
	return false;
}

/* --- the block --- */

static void inbox_block_comes_back_and_damage_is_found(void **state)
{
	struct inbox_block block = {.session = 7, .domain = 9}, out;
	uint8_t bytes[INBOX_BLOCK_SIZE];
	uint32_t i;

	memset(block.secret, 3, sizeof(block.secret));
	strcpy(block.addresses, "shm:@x tcp:127.0.0.1:5");
	inbox_block_encode(&block, bytes);
	assert_int_equal(inbox_block_decode(bytes, &out), 0);
	assert_int_equal(out.session, 7);
	assert_int_equal(out.domain, 9);
	assert_memory_equal(out.secret, block.secret, sizeof(out.secret));
	assert_string_equal(out.addresses, block.addresses);
	for (i = 0; i < sizeof(bytes); i++) {
		bytes[i] ^= 0x10;
		assert_int_equal(inbox_block_decode(bytes, &out), -ENOENT);
		bytes[i] ^= 0x10;
	}
	memset(bytes, 0, sizeof(bytes));
	assert_int_equal(inbox_block_decode(bytes, &out), -ENOENT);
}

/* --- simulated --- */

#define NOTE(member, index) (*(volatile uint64_t *)&(member)->pool->note[index])

static int wait_note(struct member *member, uint32_t index, uint64_t *out)
{
	while (!NOTE(member, index))
		TRY(reef_sleep(MILLISECOND));
	*out = NOTE(member, index);
	return 0;
}

/* Each sends what it has to until the other has answered: hints may be lost. */
static int rally(struct member *member, bool first)
{
	struct reef_wake wake = {.object = 77};
	struct reef_space *space;
	struct ear ear;
	uint64_t own, other, i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	NOTE(member, first) = own;
	TRY(wait_note(member, !first, &other));
	ear_open(member->reef, &ear, 77);
	for (i = 1; i <= 50 && !rc; i++) {
		if (!first)
			rc = ear_wait(member->reef, &ear, i, 2 * SECOND);
		wake.word = i;
		while (!rc) {
			rc = reef_inbox_send(space, other, &wake);
			/* Only a lost link may lose it. */
			if (rc && !member->pool->lose_link_ppm)
				break;
			if (!first) {
				rc = 0;
				break;
			}
			rc = ear_wait(member->reef, &ear, i, 100 * MILLISECOND);
			if (rc != -ETIMEDOUT)
				break;
			rc = member->pool->lose_link_ppm ? 0 : -ETIMEDOUT;
		}
	}
	ear_close(member->reef, &ear);
	NOTE(member, 2 + first) = 1;
	/* Whoever is done goes on answering. */
	while (!rc && !NOTE(member, 2 + !first)) {
		reef_inbox_send(space, other, &wake);
		TRY(reef_sleep(10 * MILLISECOND));
	}
	return rc;
}

static int rally_first(struct member *member)
{
	return rally(member, true);
}

static int rally_second(struct member *member)
{
	return rally(member, false);
}

static void run_two(int (*first)(struct member *member),
		    int (*second)(struct member *member), uint32_t lose_ppm)
{
	uint64_t seed;

	for (seed = pool_first_seed(); seed <= pool_last_seed(); seed++) {
		struct pool pool = {.lose_link_ppm = lose_ppm};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

static void inbox_two_hosts_rally(void **state)
{
	run_two(rally_first, rally_second, 0);
}

static int budget(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_counts before, after;
	struct reef_space *space;
	uint64_t other;
	uint32_t i;

	TRY(member_space(member, &space));
	TRY(wait_note(member, 0, &other));
	TRY(reef_inbox_send(space, other, &wake));
	before = reef_count_read(&member->count);
	for (i = 0; i < 100; i++)
		TRY(reef_inbox_send(space, other, &wake));
	after = reef_count_read(&member->count);
	/* Its keeper renews now and then. */
	WANT(after.sends - before.sends == 100);
	WANT(after.control_round_trips == before.control_round_trips);
	wake.word = 1;
	TRY(reef_inbox_send(space, other, &wake));
	return 0;
}

static int listen_to(struct member *member)
{
	struct reef_space *space;
	struct ear ear;
	uint64_t own;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	ear_open(member->reef, &ear, 5);
	NOTE(member, 0) = own;
	/* They may overtake each other. */
	rc = ear_wait(member->reef, &ear, 1, 20 * SECOND);
	while (!rc && ear.count < 102) {
		ear.last = 0;
		ear.wanted = 0;
		rc = reef_sleep(MILLISECOND);
		if (!rc)
			rc = ear_wait(member->reef, &ear, 0, 20 * SECOND);
	}
	ear_close(member->reef, &ear);
	TRY(rc);
	WANT(ear.count == 102);
	return 0;
}

static void inbox_message_is_one_send(void **state)
{
	run_two(listen_to, budget, 0);
}

/* Fibers of one handle, each with its object; they also tell each other. */
struct fiber_ear {
	struct member *member;
	struct reef_space *space;
	uint64_t object, inbox;
	int result;
	struct ear ear;
};

static int fiber_main(void *arg)
{
	struct fiber_ear *self = arg;
	struct reef *reef = self->member->reef;
	struct reef_wake wake = {.object = self->object + 1};
	uint64_t i;
	int rc = 0;

	for (i = 1; i <= 20 && !rc; i++) {
		rc = ear_wait(reef, &self->ear, i, 20 * SECOND);
		wake.word = i;
		if (!rc)
			rc = reef_inbox_send(self->space, self->inbox, &wake);
	}
	ear_close(reef, &self->ear);
	self->result = rc;
	return 0;
}

#define RING 5

static int ring(struct member *member)
{
	struct fiber_ear ears[RING];
	struct reef_fiber *fibers[RING];
	struct reef_space *space;
	struct reef_wake wake = {.object = 100};
	struct ear ear;
	uint64_t own, again, i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	TRY(reef_inbox_open(space, &again));
	WANT(own == again);
	ear_open(member->reef, &ear, 100 + RING);
	for (i = 0; i < RING; i++) {
		ears[i] = (struct fiber_ear){
			.member = member,
			.space = space,
			.object = 100 + i,
			.inbox = own,
		};
		/* Before anybody sends: what nobody watches for is dropped. */
		ear_open(member->reef, &ears[i].ear, 100 + i);
		TRY(reef_fiber_spawn(reef_fiber_sched(), fiber_main, &ears[i],
				     &fibers[i]));
	}
	for (i = 1; i <= 20 && !rc; i++) {
		wake.word = i;
		rc = reef_inbox_send(space, own, &wake);
		if (!rc)
			rc = ear_wait(member->reef, &ear, i, 20 * SECOND);
	}
	ear_close(member->reef, &ear);
	for (i = 0; i < RING; i++) {
		reef_fiber_join(fibers[i], NULL);
		if (!rc)
			rc = ears[i].result;
	}
	return rc;
}

static void inbox_fibers_of_one_handle_tell_each_other(void **state)
{
	run_two(ring, NULL, 0);
}

static int wait_for_nothing(struct member *member)
{
	uint64_t before_ns = reef_now_ns();

	WANT_RC(reef_inbox_wait(member->reef, never, NULL, SECOND), -ETIMEDOUT);
	WANT(reef_now_ns() - before_ns >= SECOND);
	return 0;
}

static void inbox_wait_ends_in_time(void **state)
{
	run_two(wait_for_nothing, NULL, 0);
}

static int send_to_garbage(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	uint8_t bytes[INBOX_BLOCK_SIZE];
	struct inbox_block block = {.addresses = "sim:node1/9"};
	struct reef_space *space;
	uint64_t address, i;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, sizeof(bytes), &address));
	for (i = 0; i < 10; i++) {
		memset(bytes, (int)(i * 29), sizeof(bytes));
		TRY(reef_write(member->reef, address, bytes, sizeof(bytes)));
		WANT_RC(reef_inbox_send(space, address, &wake), -ENOENT);
	}
	inbox_block_encode(&block, bytes);
	TRY(reef_write(member->reef, address, bytes, sizeof(bytes)));
	WANT_RC(reef_inbox_send(space, address, &wake), -ECONNREFUSED);
	/* Not tried again for a while, which costs nothing. */
	i = reef_now_ns();
	WANT_RC(reef_inbox_send(space, address, &wake), -ECONNREFUSED);
	WANT(reef_now_ns() == i);
	return 0;
}

static void inbox_that_is_none_is_refused(void **state)
{
	run_two(send_to_garbage, NULL, 0);
}

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inbox_block_comes_back_and_damage_is_found),
		cmocka_unit_test(inbox_two_hosts_rally),
		cmocka_unit_test(inbox_message_is_one_send),
		cmocka_unit_test(inbox_fibers_of_one_handle_tell_each_other),
		cmocka_unit_test(inbox_wait_ends_in_time),
		cmocka_unit_test(inbox_that_is_none_is_refused),
		cmocka_unit_test(inbox_threads_rally_over_shm),
		cmocka_unit_test(inbox_fibers_rally_over_shm),
		cmocka_unit_test_setup_teardown(inbox_threads_rally_over_tcp,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			inbox_threads_rally_with_all_fabrics, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
