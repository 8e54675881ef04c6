/* test_inbox.c - messages between handles, simulated. Real ones, over shm and
 * tcp, are in test_inbox_threads.c. */
#include "fixture/inbox_ear.h"
#include "fixture/pool_world.h"
#include "pool/client/inbox/block.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <reef/fiber.h>
#include <reef/reef.h>

/* --- the block --- */

static void inbox_block_comes_back_and_damage_is_found(void **state)
{
	struct inbox_block block = {.session = 7, .domain = 9}, out;
	uint8_t bytes[INBOX_BLOCK_SIZE];
	uint32_t i;

	memset(block.secret, 3, sizeof(block.secret));
	strcpy(block.addresses,
	       "shm:@reef-inbox-x tcp:127.0.0.1:5 tcp:[::1]:7");
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

/* Nobody is sent to a resolver, or to a socket that is no inbox. */
static void inbox_block_has_plain_addresses_only(void **state)
{
	static const char *const addresses[] = {
		"tcp:",
		"tcp::1",
		"tcp:localhost:80",
		"tcp:dead.beef:80",
		"tcp:[abc]:80",
		"tcp:1.2.3:4",
		"tcp:1.2.3.4",
		"verbs:a.b:1",
		"shm:/x",
		"shm:@x",
		("shm:" INBOX_SHM_PREFIX),
		"tcp:127.0.0.1:5 shm:/x",
	};
	struct inbox_block block = {.session = 7}, out;
	uint8_t bytes[INBOX_BLOCK_SIZE];
	size_t i;

	for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		snprintf(block.addresses, sizeof(block.addresses), "%s",
			 addresses[i]);
		inbox_block_encode(&block, bytes);
		assert_int_equal(inbox_block_decode(bytes, &out), -ENOENT);
	}
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

/* Say it again until it is answered: hints may be lost. */
static int say(struct member *member, struct reef_space *space, uint64_t other,
	       struct ear *ear, uint64_t word, uint64_t wanted)
{
	struct reef_wake wake = {.object = 77, .word = word};
	bool is_calm = !member->pool->lose_link_ppm;
	uint32_t tries;
	int rc;

	for (tries = 0; tries < 100; tries++) {
		rc = word ? reef_inbox_send(space, other, &wake) : 0;
		if (rc && is_calm)
			return rc;
		rc = ear_wait(member->reef, ear, wanted, 100 * MILLISECOND);
		if (rc != -ETIMEDOUT)
			return rc;
		WANT(!is_calm || !word);
	}
	return -ETIMEDOUT;
}

static int rally(struct member *member, bool first)
{
	struct reef_space *space;
	uint64_t own, other, i;
	struct ear ear;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	NOTE(member, first) = own;
	TRY(wait_note(member, !first, &other));
	ear_open(member->reef, &ear, 77);
	for (i = 1; i <= 50 && !rc; i++)
		rc = first ? say(member, space, other, &ear, i, i)
			   : say(member, space, other, &ear, i - 1, i);
	/* The last answer, until the first has it. */
	NOTE(member, 2) |= first;
	while (!rc && !NOTE(member, 2)) {
		rc = say(member, space, other, &ear, 50, 50);
		if (!rc)
			rc = reef_sleep(10 * MILLISECOND);
	}
	ear_close(member->reef, &ear);
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

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
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

static void inbox_two_hosts_rally_while_links_are_lost(void **state)
{
	run_two(rally_first, rally_second, 5000);
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

/* Whatever stands there, with a checksum that is right. */
static int send_to_forgeries(struct member *member)
{
	static const char *const addresses[] = {
		"tcp:",
		"tcp::",
		"tcp:localhost:80",
		"tcp:[abc]:80",
		"shm:/x",
		"shm:@x",
		("shm:" INBOX_SHM_PREFIX),
		"verbs:a.b:1",
		"tcp:1.2.3:4",
		"sim:",
		"sim:/",
		"sim:nobody/1",
		"sim:member1/0",
		"x",
		":",
		"sim:node1/1 sim:node1/1 sim:node1/1 sim:node1/1 sim:node1/1",
		"sim:broker/1",
		"sim:node1/1",
		"sim:node2/99999",
	};
	struct reef_wake wake = {.object = 5};
	uint8_t bytes[INBOX_BLOCK_SIZE];
	struct inbox_block block = {.session = 1};
	struct reef_space *space;
	uint64_t address;
	size_t i;

	TRY(member_space(member, &space));
	for (i = 0; i < sizeof(addresses) / sizeof(addresses[0]); i++) {
		snprintf(block.addresses, sizeof(block.addresses), "%s",
			 addresses[i]);
		inbox_block_encode(&block, bytes);
		TRY(reef_alloc(space, sizeof(bytes), &address));
		TRY(reef_write(member->reef, address, bytes, sizeof(bytes)));
		WANT(reef_inbox_send(space, address, &wake) < 0);
		TRY(reef_free(space, address, 0));
	}
	/* Across its end, and where nothing is at all. */
	WANT(reef_inbox_send(space, 0, &wake) < 0);
	WANT(reef_inbox_send(space, UINT64_MAX - 7, &wake) < 0);
	WANT(reef_inbox_send(space, address + MIB, &wake) < 0);
	return 0;
}

static void inbox_forged_block_is_refused(void **state)
{
	run_two(send_to_forgeries, NULL, 0);
}

/* --- those who do not listen --- */

/* Opens an inbox and then does something else, until told. */
static int deaf(struct member *member)
{
	struct reef_space *space;
	uint64_t own;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	NOTE(member, 0) = own;
	while (!NOTE(member, 1))
		TRY(reef_sleep(10 * MILLISECOND));
	return 0;
}

static int send_to_deaf(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	uint64_t other, began_ns, sent = 0, refused = 0, i;
	struct reef_space *space;
	int rc;

	TRY(member_space(member, &space));
	TRY(wait_note(member, 0, &other));
	TRY(reef_inbox_send(space, other, &wake));
	for (i = 0; i < 6000; i++) {
		began_ns = reef_now_ns();
		rc = reef_inbox_send(space, other, &wake);
		WANT(reef_now_ns() == began_ns);
		WANT(rc == 0 || rc == -EAGAIN);
		sent += !rc;
		refused += rc != 0;
		if (!(i % 100))
			TRY(reef_sleep(MILLISECOND));
	}
	WANT(sent > 4000);
	/* Its inbox is full, and so are the links. */
	WANT(refused > 0);
	/* Closed with messages under way, while the other is still there. */
	reef_close(member->reef);
	member->reef = NULL;
	NOTE(member, 1) = 1;
	return 0;
}

static void inbox_that_nobody_reads_holds_up_nobody(void **state)
{
	run_two(deaf, send_to_deaf, 0);
}

static int knock(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	uint64_t other, began_ns, errors = 0;
	struct reef_space *space;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	TRY(wait_note(member, 0, &other));
	for (i = 0; i < 200; i++) {
		if (i == 20)
			reef_sim_host_kill(member->pool->members[0].host);
		began_ns = reef_now_ns();
		rc = reef_inbox_send(space, other, &wake);
		/* Not blocked: the block may be read anew, and the link be
		 * tried. */
		WANT(reef_now_ns() - began_ns < 500 * MILLISECOND);
		errors += rc != 0;
		TRY(reef_sleep(50 * MILLISECOND));
	}
	WANT(errors > 0);
	return 0;
}

static void inbox_of_a_killed_host_holds_up_nobody(void **state)
{
	run_two(deaf, knock, 0);
}

static int is_killed(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_space *space;
	struct ear ear;
	uint64_t own, i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	ear_open(member->reef, &ear, 5);
	NOTE(member, 0) = own;
	for (i = 0; !rc; i++) {
		/* In every state that there is. */
		rc = ear_wait(member->reef, &ear, i, REEF_FOREVER);
		if (!rc && NOTE(member, 1))
			rc = reef_inbox_send(space, NOTE(member, 1), &wake);
	}
	ear_close(member->reef, &ear);
	WANT_RC(rc, -REEF_EHOSTDEAD);
	WANT(reef_inbox_wait(member->reef, never, NULL, SECOND) < 0);
	WANT(reef_inbox_send(space, NOTE(member, 1), &wake) < 0);
	return -REEF_EHOSTDEAD;
}

static int kills(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_space *space;
	uint64_t own, other, i, rounds;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	NOTE(member, 1) = own;
	TRY(wait_note(member, 0, &other));
	rounds = reef_random_below(reef_sim_random(member->pool->sim), 30);
	for (i = 1; i <= rounds; i++) {
		wake.word = i;
		reef_inbox_send(space, other, &wake);
		TRY(reef_sleep(reef_random_below(
			reef_sim_random(member->pool->sim), MILLISECOND)));
	}
	reef_sim_host_kill(member->pool->members[0].host);
	TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void inbox_killed_host_unwinds(void **state)
{
	run_two(is_killed, kills, 0);
}

static int waits_until_fenced(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_space *space;
	uint64_t own;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	NOTE(member, 0) = own;
	WANT_RC(reef_inbox_wait(member->reef, never, NULL, REEF_FOREVER),
		-REEF_EFENCED);
	WANT_RC(reef_inbox_wait(member->reef, never, NULL, REEF_FOREVER),
		-REEF_EFENCED);
	WANT_RC(reef_inbox_send(space, own, &wake), -REEF_EFENCED);
	WANT_RC(reef_inbox_open(space, &own), -REEF_EFENCED);
	NOTE(member, 1) = 1;
	return 0;
}

static int fences(struct member *member)
{
	struct member *other = &member->pool->members[0];
	enum reef_session_view view = REEF_VIEW_ALIVE;
	uint64_t inbox;
	uint32_t session;

	TRY(wait_note(member, 0, &inbox));
	session = reef_session(other->reef);
	reef_sim_host_pause(other->host);
	while (view != REEF_VIEW_ENDED) {
		TRY(reef_sleep(MILLISECOND));
		TRY(reef_session_check(member->reef, session, &view));
	}
	reef_sim_host_resume(other->host);
	while (!NOTE(member, 1))
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void inbox_fenced_while_waiting_says_so(void **state)
{
	run_two(waits_until_fenced, fences, 0);
}

static int leaves(struct member *member)
{
	struct reef_space *space, *again;
	struct reef *second;
	uint64_t own, other;

	/* A handle of its own, that goes before the session does. */
	TRY(reef_client_handle(member->client, &second));
	TRY(member_space(member, &again));
	TRY(reef_space_open(second, "space", NULL, &space));
	TRY(reef_inbox_open(space, &own));
	TRY(reef_inbox_open(again, &other));
	WANT(own != other);
	NOTE(member, 0) = own;
	while (!NOTE(member, 1))
		TRY(reef_inbox_wait(second, never, NULL, MILLISECOND) ==
				    -ETIMEDOUT
			    ? 0
			    : -EXDEV);
	reef_close(second);
	NOTE(member, 2) = 1;
	while (!NOTE(member, 3))
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static int misses_it(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_space *space;
	uint64_t other, i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(wait_note(member, 0, &other));
	TRY(reef_inbox_send(space, other, &wake));
	NOTE(member, 1) = 1;
	while (!NOTE(member, 2))
		TRY(reef_sleep(MILLISECOND));
	/* The link falls, and the block is gone. */
	for (i = 0; i < 100 && rc != -ENOENT; i++) {
		rc = reef_inbox_send(space, other, &wake);
		TRY(reef_sleep(100 * MILLISECOND));
	}
	WANT_RC(rc, -ENOENT);
	NOTE(member, 3) = 1;
	return 0;
}

static void inbox_of_a_closed_handle_is_gone(void **state)
{
	run_two(leaves, misses_it, 0);
}

static int guesses(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	uint8_t bytes[INBOX_BLOCK_SIZE];
	struct inbox_block block;
	struct reef_space *space;
	uint64_t other, forged;

	TRY(member_space(member, &space));
	TRY(wait_note(member, 0, &other));
	TRY(reef_read(member->reef, other, bytes, sizeof(bytes)));
	TRY(inbox_block_decode(bytes, &block));
	block.secret[0] ^= 1;
	inbox_block_encode(&block, bytes);
	TRY(reef_alloc(space, sizeof(bytes), &forged));
	TRY(reef_write(member->reef, forged, bytes, sizeof(bytes)));
	WANT_RC(reef_inbox_send(space, forged, &wake), -REEF_EAUTH);
	TRY(reef_inbox_send(space, other, &wake));
	NOTE(member, 1) = 1;
	return 0;
}

static void inbox_without_its_secret_is_shut(void **state)
{
	run_two(deaf, guesses, 0);
}

/* --- few links for many --- */

static int one_of_many(struct member *member)
{
	uint32_t index = member->number - 2;
	struct reef_space *space;
	struct ear ear;
	uint64_t own;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_inbox_open(space, &own));
	ear_open(member->reef, &ear, 5);
	NOTE(member, index) = own;
	rc = ear_wait(member->reef, &ear, 20, 20 * SECOND);
	ear_close(member->reef, &ear);
	return rc;
}

static int few_links(struct member *member)
{
	struct reef_wake wake = {.object = 5};
	struct reef_counts counts;
	struct reef_space *space;
	uint64_t others[3], round;
	uint32_t i;

	TRY(member_space(member, &space));
	for (i = 0; i < 3; i++)
		TRY(wait_note(member, i, &others[i]));
	for (round = 1; round <= 20; round++)
		for (i = 0; i < 3; i++) {
			wake.word = round;
			TRY(reef_inbox_send(space, others[i], &wake));
		}
	counts = reef_count_read(&member->count);
	/* Two are kept: everybody is thrown out by the third. */
	WANT(counts.control_round_trips > 20);
	return 0;
}

static void inbox_links_make_room_for_each_other(void **state)
{
	uint64_t seed;
	uint32_t i;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.inbox_links_max = 2};

		pool_start(&pool, seed);
		pool_add(&pool, few_links);
		for (i = 0; i < 3; i++)
			pool_add(&pool, one_of_many);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(inbox_block_comes_back_and_damage_is_found),
		cmocka_unit_test(inbox_block_has_plain_addresses_only),
		cmocka_unit_test(inbox_two_hosts_rally),
		cmocka_unit_test(inbox_two_hosts_rally_while_links_are_lost),
		cmocka_unit_test(inbox_message_is_one_send),
		cmocka_unit_test(inbox_fibers_of_one_handle_tell_each_other),
		cmocka_unit_test(inbox_wait_ends_in_time),
		cmocka_unit_test(inbox_that_is_none_is_refused),
		cmocka_unit_test(inbox_forged_block_is_refused),
		cmocka_unit_test(inbox_that_nobody_reads_holds_up_nobody),
		cmocka_unit_test(inbox_of_a_killed_host_holds_up_nobody),
		cmocka_unit_test(inbox_killed_host_unwinds),
		cmocka_unit_test(inbox_fenced_while_waiting_says_so),
		cmocka_unit_test(inbox_of_a_closed_handle_is_gone),
		cmocka_unit_test(inbox_without_its_secret_is_shut),
		cmocka_unit_test(inbox_links_make_room_for_each_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
