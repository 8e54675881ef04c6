/* The calls of fabric.h: what they check, what they write and when, and what
 * they leave behind when they are interrupted. */
#include "fixture/fake.h"

#include "fabric/sim/sim.h"
#include "fixture/runtime.h"
#include "fixture/seeds.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOTHING ((void *)0x5eed)

/* --- opening --- */

static void fabric_open_checks_its_arguments(void **state)
{
	struct reef_fabric_options options = {.need = REEF_CAP_ON_CHIP};
	struct reef_fabric *fabric = NOTHING;

	(void)state;
	assert_int_equal(reef_fabric_open(NULL, NULL, &fabric), -EINVAL);
	assert_int_equal(reef_fabric_open("", NULL, &fabric), -EINVAL);
	assert_int_equal(reef_fabric_open("shm2", NULL, &fabric), -EINVAL);
	assert_int_equal(reef_fabric_open("sim", NULL, &fabric), -EINVAL);
	assert_int_equal(reef_fabric_open("shm", &options, &fabric),
			 -REEF_ENOCAP);
	assert_ptr_equal(fabric, NOTHING);
}

static void fabric_open_fills_in_defaults(void **state)
{
	struct reef_fabric_options options = {
		.inbox_max = 7,
		.need = REEF_CAP_FLUSH,
	};
	const struct reef_fabric_options *limits;
	struct reef_fabric *fabric;

	(void)state;
	assert_int_equal(reef_fabric_open("shm", &options, &fabric), 0);
	limits = reef_fabric_limits(fabric);
	assert_int_equal(limits->ops_max, 256);
	assert_int_equal(limits->length_max, 16 << 20);
	assert_int_equal(limits->message_max, 64 << 10);
	assert_int_equal(limits->depth_max, 128);
	assert_int_equal(limits->inbox_max, 7);
	assert_int_equal(limits->links_max, 4096);
	assert_int_equal(limits->answers_max, 256 << 20);
	assert_int_equal(limits->spin_ns, 20000);
	assert_int_equal(limits->silence_ns, 3000000000ull);
	assert_string_equal(reef_fabric_kind(fabric), "shm");
	assert_non_null(strstr(reef_fabric_description(fabric), "shm"));
	assert_int_equal(reef_fabric_domain(fabric), reef_domain_cpu());
	assert_true(reef_fabric_capabilities(fabric) & REEF_CAP_FLUSH);
	reef_fabric_close(fabric);
	reef_fabric_close(NULL);
	reef_queue_close(NULL);
	reef_listener_close(NULL);
	reef_link_close(NULL);
	reef_buffer_unregister(NULL);
}

/* --- arguments --- */

static void fabric_listen_and_connect_check_their_arguments(void **state)
{
	struct fake *fake = fake_open();
	struct reef_queue *queue = fake_queue(fake);
	struct reef_listen_options listen = {0};
	struct reef_connect_options connect = {.identity = "x"};
	char name[REEF_IDENTITY_MAX + 2] = "";
	struct reef_listener *listener = NOTHING;
	struct reef_link *link = NOTHING;

	(void)state;
	assert_int_equal(reef_listen(queue, "fake:", &listen, &listener),
			 -EINVAL);
	assert_int_equal(reef_listen(queue, "fake:", NULL, &listener), -EINVAL);
	listen.credential = fake_credential;
	assert_int_equal(reef_listen(queue, NULL, &listen, &listener), -EINVAL);
	assert_ptr_equal(listener, NOTHING);
	assert_int_equal(reef_connect(queue, "fake:", &connect, &link),
			 -EINVAL); /* no session */
	connect.session = 1;
	assert_int_equal(reef_connect(queue, NULL, &connect, &link), -EINVAL);
	assert_int_equal(reef_connect(queue, "fake:", NULL, &link), -EINVAL);
	connect.identity = NULL;
	assert_int_equal(reef_connect(queue, "fake:", &connect, &link),
			 -EINVAL);
	memset(name, 'n', REEF_IDENTITY_MAX + 1);
	connect.identity = name;
	assert_int_equal(reef_connect(queue, "fake:", &connect, &link),
			 -EINVAL);
	assert_ptr_equal(link, NOTHING);
	name[REEF_IDENTITY_MAX] = 0;
	assert_int_equal(reef_connect(queue, "fake:", &connect, &link), 0);
	reef_link_close(link);
	reef_queue_close(queue);
	reef_fabric_close(&fake->fabric);
}

static void fabric_calls_check_their_arguments(void **state)
{
	struct fake *fake = fake_open(), *other = fake_open();
	struct reef_queue *queue = fake_queue(fake);
	struct reef_queue *far = fake_queue(other);
	struct reef_connect_options connect = {.identity = "x", .session = 1};
	struct reef_region *region = NOTHING;
	struct reef_remote *remote = NOTHING;
	struct reef_buffer *buffer = NOTHING;
	struct reef_listener *listener;
	struct reef_link *link, *guest;
	char bytes[8];

	(void)state;
	assert_int_equal(reef_connect(queue, "fake:", &connect, &link), 0);
	assert_int_equal(reef_expose(&fake->fabric, NULL, &region), -EINVAL);
	assert_ptr_equal(region, NOTHING);
	assert_int_equal(reef_withdraw(queue, NULL, 0), -EINVAL);
	assert_int_equal(reef_expose(&fake->fabric,
				     &(struct reef_memory){.size = 8}, &region),
			 0);
	assert_int_equal(reef_withdraw(far, region, 0), -EINVAL);
	assert_int_equal(reef_withdraw(queue, region, 0), 0);
	assert_int_equal(reef_attach(queue, NULL, 1, &remote), -EINVAL);
	assert_int_equal(reef_attach(far, link, 1, &remote), -EINVAL);
	listener = fake_listener(queue, NULL, NULL, NULL);
	guest = fake_accept(fake, listener, 9);
	reef_poll(queue);
	assert_int_equal(reef_attach(queue, guest, 1, &remote), -EINVAL);
	fake_lose(fake, guest, -REEF_ENOLINK);
	assert_int_equal(reef_attach(queue, link, 0, &remote), -REEF_EKEY);
	assert_int_equal(fake->remotes, 0);
	assert_ptr_equal(remote, NOTHING);
	assert_int_equal(reef_buffer_register(&fake->fabric, NULL, 8, &buffer),
			 -EINVAL);
	assert_int_equal(reef_buffer_register(&fake->fabric, bytes, 0, &buffer),
			 -EINVAL);
	assert_int_equal(reef_buffer_register(&fake->fabric, bytes,
					      SIZE_MAX - 16, &buffer),
			 -EINVAL);
	assert_ptr_equal(buffer, NOTHING);
	assert_int_equal(reef_fence(queue, 0, 0), -EINVAL);
	reef_detach(queue, NULL);
	reef_listener_close(listener);
	reef_link_close(link);
	reef_queue_close(queue);
	reef_queue_close(far);
	reef_fabric_close(&fake->fabric);
	reef_fabric_close(&other->fabric);
}

/* What is asked again until it is so, or time is up. */
static void fabric_withdraw_and_fence_ask_again(void **state)
{
	struct fake *fake = fake_open();
	struct reef_queue *queue = fake_queue(fake);
	struct reef_memory memory = {.size = 8};
	struct reef_region *region;

	(void)state;
	fake->not_yet = 3;
	assert_int_equal(reef_fence(queue, 5, REEF_FOREVER), 0);
	fake->not_yet = 3;
	assert_int_equal(reef_fence(queue, 5, 0), -ETIMEDOUT);
	assert_int_equal(fake->not_yet, 2); /* asked once */
	assert_int_equal(reef_end_links(queue, 5, 1, 0), -ETIMEDOUT);
	assert_int_equal(fake->not_yet, 1);
	assert_int_equal(reef_end_links(queue, 5, 1, REEF_FOREVER), 0);
	assert_int_equal(reef_end_links(queue, 0, 1, 0), -EINVAL);
	assert_int_equal(reef_end_links(queue, 5, 0, 0), -EINVAL);
	fake->not_yet = 2;
	assert_int_equal(reef_expose(&fake->fabric, &memory, &region), 0);
	assert_int_equal(reef_withdraw(queue, region, 0), -ETIMEDOUT);
	assert_int_equal(reef_withdraw(queue, region, REEF_FOREVER), 0);
	reef_queue_close(queue);
	reef_fabric_close(&fake->fabric);
}

/* --- operations --- */

struct checker {
	struct fake *fake;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
};

static int post_one(struct checker *checker, struct reef_op op)
{
	struct reef_batch batch = {
		.link = checker->link, .ops = &op, .count = 1};

	return reef_post(checker->queue, &batch);
}

static int read_at(struct checker *checker, uint64_t offset, uint32_t length)
{
	static uint8_t bytes[8192];

	return post_one(checker, (struct reef_op){
					 .kind = REEF_READ,
					 .remote = checker->remote,
					 .offset = offset,
					 .local = bytes,
					 .length = length,
				 });
}

static void checker_open(struct checker *checker)
{
	checker->fake = fake_open();
	checker->queue = fake_queue(checker->fake);
	assert_int_equal(fake_join(checker->queue, &checker->link), 0);
	assert_int_equal(
		reef_attach(checker->queue, checker->link, 1, &checker->remote),
		0);
}

static void checker_close(struct checker *checker)
{
	reef_detach(checker->queue, checker->remote);
	reef_link_close(checker->link);
	reef_queue_close(checker->queue);
	reef_fabric_close(&checker->fake->fabric);
}

static void fabric_post_checks_bounds(void **state)
{
	struct checker checker;

	(void)state;
	checker_open(&checker);
	assert_int_equal(read_at(&checker, 0, 4096), 1);
	assert_int_equal(read_at(&checker, 4096, 0), 1);
	assert_int_equal(read_at(&checker, 1, 4096), -ERANGE);
	assert_int_equal(read_at(&checker, 4097, 0), -ERANGE);
	assert_int_equal(read_at(&checker, UINT64_MAX, 1), -ERANGE);
	assert_int_equal(read_at(&checker, UINT64_MAX - 4095, 4096), -ERANGE);
	checker.remote->size = 1 << 20;
	assert_int_equal(read_at(&checker, 0, 4097), -EMSGSIZE);
	checker.remote->size = 4096;
	assert_int_equal(
		post_one(&checker, (struct reef_op){.kind = REEF_FAA,
						    .remote = checker.remote,
						    .offset = 4088}),
		1);
	assert_int_equal(
		post_one(&checker, (struct reef_op){.kind = REEF_FAA,
						    .remote = checker.remote,
						    .offset = 4096}),
		-ERANGE);
	assert_int_equal(
		post_one(&checker, (struct reef_op){.kind = REEF_CAS,
						    .remote = checker.remote,
						    .offset = 4089}),
		-EINVAL);
	atomic_store(&checker.remote->state, -REEF_EKEY);
	assert_int_equal(read_at(&checker, 0, 8), -REEF_EKEY);
	atomic_store(&checker.remote->state, 1); /* not attached yet */
	assert_int_equal(read_at(&checker, 0, 8), -EINVAL);
	checker_close(&checker);
}

static void fabric_post_checks_operations(void **state)
{
	struct checker checker;
	struct reef_op ops[17] = {0};
	struct reef_batch batch = {.ops = ops};
	uint8_t byte;

	(void)state;
	checker_open(&checker);
	assert_int_equal(reef_post(checker.queue, &batch), -EINVAL);
	batch.link = checker.link;
	assert_int_equal(reef_post(checker.queue, &batch), -EINVAL);
	batch.count = 17;
	assert_int_equal(reef_post(checker.queue, &batch), -EMSGSIZE);
	batch.count = 1;
	batch.ops = NULL;
	assert_int_equal(reef_post(checker.queue, &batch), -EINVAL);
	for (int kind = 0; kind < 256; kind++) {
		if (kind >= REEF_READ && kind < REEF_OP_KINDS)
			continue;
		assert_int_equal(
			post_one(&checker,
				 (struct reef_op){.kind = (uint8_t)kind,
						  .remote = checker.remote}),
			-EINVAL);
	}
	ops[0] = (struct reef_op){
		.kind = REEF_SEND, .local = &byte, .length = 1};
	assert_int_equal(post_one(&checker, ops[0]), 1);
	ops[0].length = 65;
	assert_int_equal(post_one(&checker, ops[0]), -EMSGSIZE);
	ops[0].length = 1;
	ops[0].flags = REEF_ORDERED;
	assert_int_equal(post_one(&checker, ops[0]), 1);
	ops[0].flags = 2;
	assert_int_equal(post_one(&checker, ops[0]), -EINVAL);
	ops[0].flags = 0;
	ops[0].reserved = 1;
	assert_int_equal(post_one(&checker, ops[0]), -EINVAL);
	ops[0].reserved = 0;
	ops[0].local = NULL;
	assert_int_equal(post_one(&checker, ops[0]), -EINVAL);
	ops[0].length = 0;
	assert_int_equal(post_one(&checker, ops[0]), 1);
	ops[0] = (struct reef_op){.kind = REEF_FAA};
	assert_int_equal(post_one(&checker, ops[0]), -EINVAL);
	ops[0] = (struct reef_op){
		.kind = REEF_FLUSH, .remote = checker.remote, .length = 8};
	assert_int_equal(post_one(&checker, ops[0]), -REEF_ENOCAP);
	checker.fake->fabric.capabilities = REEF_CAP_FLUSH;
	assert_int_equal(post_one(&checker, ops[0]), -REEF_ENOTDURABLE);
	checker.remote->durable = true;
	assert_int_equal(post_one(&checker, ops[0]), 1);
	checker_close(&checker);
}

static void fabric_post_lets_read_only_memory_only_be_read(void **state)
{
	static const struct {
		uint8_t kind;
		int expected;
	} cases[] = {
		{REEF_READ, 1},	       {REEF_WRITE, -EACCES},
		{REEF_CAS, -EACCES},   {REEF_FAA, -EACCES},
		{REEF_FLUSH, -EACCES}, {REEF_SEND, 1},
		{0, -EINVAL},	       {REEF_OP_KINDS, -EINVAL},
	};
	struct checker checker;
	uint64_t bytes;

	(void)state;
	checker_open(&checker);
	checker.remote->read_only = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct reef_op op = {.kind = cases[i].kind,
				     .remote = checker.remote,
				     .local = &bytes,
				     .length = 8};

		assert_int_equal(post_one(&checker, op), cases[i].expected);
		/* What makes no sense at all is told first. */
		op.offset = UINT64_MAX - 7;
		assert_int_equal(post_one(&checker, op),
				 op.kind == REEF_SEND ? 1 : -ERANGE);
	}
	checker_close(&checker);
}

static void fabric_post_checks_owners(void **state)
{
	struct checker checker, other;
	uint8_t room[66], *bytes = room + 1;
	struct reef_buffer *buffer, *foreign;
	struct reef_op op = {.kind = REEF_WRITE, .local = bytes, .length = 64};

	(void)state;
	checker_open(&checker);
	checker_open(&other);
	op.remote = other.remote;
	assert_int_equal(post_one(&checker, op), -EINVAL);
	op.remote = checker.remote;
	assert_int_equal(
		reef_buffer_register(&checker.fake->fabric, bytes, 64, &buffer),
		0);
	assert_int_equal(
		reef_buffer_register(&other.fake->fabric, bytes, 64, &foreign),
		0);
	op.buffer = buffer;
	assert_int_equal(post_one(&checker, op), 1);
	op.buffer = foreign;
	assert_int_equal(post_one(&checker, op), -EINVAL);
	op.buffer = buffer;
	op.local = bytes + 1;
	assert_int_equal(post_one(&checker, op), -EINVAL);
	op.local = bytes - 1;
	assert_int_equal(post_one(&checker, op), -EINVAL);
	op.local = bytes + 63;
	op.length = 1;
	assert_int_equal(post_one(&checker, op), 1);
	op.local = bytes + 64;
	assert_int_equal(post_one(&checker, op), -EINVAL);
	reef_buffer_unregister(buffer);
	reef_buffer_unregister(foreign);
	checker_close(&checker);
	checker_close(&other);
}

/* --- interrupted half-way --- */

static void fabric_connect_that_fails_leaves_nothing(void **state)
{
	struct fake *fake = fake_open();
	struct reef_queue *queue = fake_queue(fake);
	struct reef_link *link = NOTHING;

	(void)state;
	fake->stay_opening = true;
	assert_int_equal(fake_join(queue, &link), -ETIMEDOUT);
	assert_int_equal(fake->disconnects, 1);
	fake->refusal = -REEF_EAUTH;
	assert_int_equal(fake_join(queue, &link), -REEF_EAUTH);
	fake->refusal = -ECONNREFUSED;
	assert_int_equal(fake_join(queue, &link), -ECONNREFUSED);
	assert_int_equal(fake->disconnects, 3);
	assert_int_equal(fake->links, 0);
	assert_null(queue->links);
	assert_ptr_equal(link, NOTHING);
	reef_queue_close(queue);
	reef_fabric_close(&fake->fabric);
}

static void fabric_link_outlives_its_queue(void **state)
{
	struct fake *fake = fake_open();
	struct reef_queue *queue = fake_queue(fake), *other;
	struct reef_link *links[3];

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(fake_join(queue, &links[i]), 0);
	reef_link_close(links[1]);
	reef_queue_close(queue);
	/* Another queue, perhaps at the same address. */
	other = fake_queue(fake);
	reef_link_close(links[0]);
	reef_link_close(links[2]);
	assert_int_equal(fake->links, 0);
	assert_null(other->links);
	reef_queue_close(other);
	reef_fabric_close(&fake->fabric);
}

/* A host that dies while it connects, attaches, waits. */

struct victim {
	struct reef_sim *sim;
	struct reef_sim_host *host, *node;
	uint64_t key, kill_after_ns;
	uint64_t word[8];
	struct reef_memory memory;
	int connected, attached, ran, received, polled;
	uint32_t unexpected;
	bool ended;
};

static int node_main(struct reef_sim_host *host, void *arg)
{
	struct victim *victim = arg;
	struct reef_fabric_options options = {.sim_host = host};
	struct reef_listen_options listen = {.credential = fake_credential};
	struct reef_listener *listener;
	struct reef_region *region;
	struct reef_fabric *fabric;
	struct reef_queue *queue;

	assert_int_equal(reef_fabric_open("sim", &options, &fabric), 0);
	assert_int_equal(reef_queue_open(fabric, NULL, &queue), 0);
	victim->memory = (struct reef_memory){
		.base = victim->word,
		.size = sizeof(victim->word),
		.domain = reef_fabric_domain(fabric),
		.fd = -1,
		.backing = REEF_BACKING_SIMULATED,
	};
	assert_int_equal(reef_expose(fabric, &victim->memory, &region), 0);
	victim->key = reef_region_key(region);
	assert_int_equal(reef_listen(queue, "sim:node/1", &listen, &listener),
			 0);
	while (!victim->ended)
		reef_sleep(1000000);
	reef_listener_close(listener);
	reef_queue_close(queue);
	reef_fabric_close(fabric);
	return 0;
}

static void count_unexpected(struct victim *victim, int rc)
{
	if (rc && rc != -REEF_EHOSTDEAD)
		victim->unexpected++;
}

static void work(struct victim *victim, struct reef_queue *queue,
		 struct reef_link *link)
{
	struct reef_message *message = NOTHING;
	struct reef_op op = {.kind = REEF_FAA, .operand = 1};
	struct reef_batch batch = {.link = link, .ops = &op, .count = 1};
	struct reef_remote *remote = NOTHING;

	do {
		victim->attached =
			reef_attach(queue, link, victim->key, &remote);
		if (victim->attached)
			assert_ptr_equal(remote, NOTHING);
		op.remote = remote;
		victim->ran = victim->attached ? victim->attached
					       : reef_run(queue, &batch);
		if (!victim->attached)
			reef_detach(queue, remote);
		remote = NOTHING;
	} while (!victim->ran);
	victim->received = reef_receive(queue, 0, &message);
	assert_ptr_equal(message, NOTHING);
	victim->polled = reef_poll(queue);
}

static int victim_main(struct reef_sim_host *host, void *arg)
{
	struct victim *victim = arg;
	struct reef_fabric_options options = {.sim_host = host};
	struct reef_connect_options connect = {.session = 1, .identity = "x"};
	struct reef_link *link = NOTHING;
	struct reef_fabric *fabric;
	struct reef_queue *queue;

	if (reef_sleep(1000))
		return 0;
	if (reef_fabric_open("sim", &options, &fabric))
		return 0;
	if (!reef_queue_open(fabric, NULL, &queue)) {
		victim->connected =
			reef_connect(queue, "sim:node/1", &connect, &link);
		if (victim->connected) {
			assert_ptr_equal(link, NOTHING);
		} else {
			work(victim, queue, link);
			reef_link_close(link);
		}
		reef_queue_close(queue);
	}
	reef_fabric_close(fabric);
	return 0;
}

static int killer_main(struct reef_sim_host *host, void *arg)
{
	struct victim *victim = arg;

	(void)host;
	reef_sleep(victim->kill_after_ns);
	reef_sim_host_kill(victim->host);
	reef_sleep(10000000);
	victim->ended = true;
	return 0;
}

static void fabric_killed_host_gets_out_of_everything(void **state)
{
	uint32_t connecting = 0, attaching = 0, running = 0;

	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, 200); seed++) {
		struct reef_sim_options options = {.seed = seed};
		struct victim victim = {
			.kill_after_ns = 1000 + seed * 997 % 300000,
			.connected = 1,
		};

		assert_int_equal(reef_sim_create(&options, &victim.sim), 0);
		assert_int_equal(reef_sim_host_add(victim.sim, "node",
						   node_main, &victim,
						   &victim.node),
				 0);
		assert_int_equal(reef_sim_host_add(victim.sim, "victim",
						   victim_main, &victim,
						   &victim.host),
				 0);
		assert_int_equal(reef_sim_host_add(victim.sim, "killer",
						   killer_main, &victim, NULL),
				 0);
		assert_int_equal(reef_sim_run(victim.sim, 100000000000ull), 0);
		if (victim.connected != 1)
			count_unexpected(&victim, victim.connected);
		connecting += victim.connected == -REEF_EHOSTDEAD;
		if (!victim.connected) {
			assert_int_equal(victim.ran, -REEF_EHOSTDEAD);
			assert_int_equal(victim.received, -REEF_EHOSTDEAD);
			assert_int_equal(victim.polled, -REEF_EHOSTDEAD);
			attaching += victim.attached != 0;
			running += victim.attached == 0;
		}
		assert_int_equal(victim.unexpected, 0);
		reef_sim_destroy(victim.sim);
	}
	/* Each of them was interrupted often enough. */
	assert_true(connecting > 5);
	assert_true(attaching > 5);
	assert_true(running > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fabric_open_checks_its_arguments),
		cmocka_unit_test(fabric_open_fills_in_defaults),
		cmocka_unit_test(
			fabric_listen_and_connect_check_their_arguments),
		cmocka_unit_test(fabric_calls_check_their_arguments),
		cmocka_unit_test(fabric_withdraw_and_fence_ask_again),
		cmocka_unit_test(fabric_post_checks_bounds),
		cmocka_unit_test(fabric_post_checks_operations),
		cmocka_unit_test(
			fabric_post_lets_read_only_memory_only_be_read),
		cmocka_unit_test(fabric_post_checks_owners),
		cmocka_unit_test(fabric_connect_that_fails_leaves_nothing),
		cmocka_unit_test(fabric_link_outlives_its_queue),
		cmocka_unit_test(fabric_killed_host_gets_out_of_everything),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
