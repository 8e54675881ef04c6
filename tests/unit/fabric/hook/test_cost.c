/* test_cost.c - the cost model: arithmetic of one NIC, and the hook over a
 * loopback. */
#include "fabric/hook/cost.h"

#include "fabric/hook/nic.h"
#include "fixture/fake.h"

/* --- the NIC alone --- */

static struct reef_cost_options round_options(void)
{
	/* Numbers that can be added up in one's head. */
	return (struct reef_cost_options){
		.round_trip_ns = 2000,
		.out_ps = 10000,
		.in_ps = 4000,
		.byte_ps = 100,
		.header_size = 20,
		.atomic_ps = 500000,
		.atomic_in_ps = 6000,
		.atomic_units = 4096,
		.cache_size = 1000,
		.context_size = 100,
		.translation_size = 10,
		.page_size = 4096,
		.fetch_ns = 700,
		.fetch_ps = 50000,
		.doorbell_ps = 30000,
		.lock_ps = 20000,
		.waiter_ps = 1000,
	};
}

static struct reef_op nic_op(int kind, struct reef_remote *remote,
			     uint64_t offset, uint32_t length)
{
	return (struct reef_op){.kind = (uint8_t)kind,
				.remote = remote,
				.offset = offset,
				.length = length};
}

static void cost_nic_sends_one_after_the_other(void **state)
{
	struct reef_cost_options options = round_options();
	struct reef_remote remote = {.key = 1};
	struct reef_op read = nic_op(REEF_READ, &remote, 0, 8);
	struct reef_op write = nic_op(REEF_WRITE, &remote, 0, 980);
	struct reef_nic nic;

	(void)state;
	assert_int_equal(reef_nic_init(&nic, &options), 0);
	/* The context is fetched first: 50 ns of engine, 700 of waiting. */
	assert_int_equal(reef_nic_send(&nic, 1, &read, 1, 0),
			 60000 + 2000 + 700000);
	/* 60 ns later the engine is free; 10 for the message, 2 for 20 bytes.
	 */
	assert_int_equal(reef_nic_send(&nic, 1, &read, 1, 0), 72000);
	/* Long after: 10 for the message, 100 for 1,000 bytes. */
	assert_int_equal(reef_nic_send(&nic, 1, &write, 1, 1000000), 1110000);
	/* The port is busy until then. */
	assert_int_equal(reef_nic_send(&nic, 1, &write, 1, 1000000), 1210000);
	assert_int_equal(nic.stats.sent, 4);
	assert_int_equal(nic.stats.misses, 1);
	assert_int_equal(nic.stats.hits, 3);
	assert_int_equal(nic.stats.bytes_out, 20 + 20 + 1000 + 1000);
	reef_nic_fini(&nic);
}

static void cost_nic_atomics_on_one_word_queue_up(void **state)
{
	struct reef_cost_options options = round_options();
	struct reef_remote remote = {.key = 1};
	struct reef_op faa = nic_op(REEF_FAA, &remote, 64, 0);
	struct reef_op other = nic_op(REEF_FAA, &remote, 72, 0);
	struct reef_op read = nic_op(REEF_READ, &remote, 64, 8);
	struct reef_nic nic;
	uint64_t at_ps = 10000000; /* long after the caches are filled */

	(void)state;
	assert_int_equal(reef_nic_init(&nic, &options), 0);
	reef_nic_receive(&nic, 1, &read, 1, 0);
	assert_int_equal(reef_nic_receive(&nic, 1, &faa, 1, at_ps), at_ps);
	assert_int_equal(reef_nic_receive(&nic, 1, &faa, 1, at_ps),
			 at_ps + 500000);
	assert_int_equal(reef_nic_receive(&nic, 1, &faa, 1, at_ps),
			 at_ps + 1000000);
	/* Three atomics were 10 ns each on the engine. */
	assert_int_equal(reef_nic_receive(&nic, 1, &other, 1, at_ps),
			 at_ps + 30000);
	assert_int_equal(reef_nic_receive(&nic, 1, &read, 1, at_ps),
			 at_ps + 40000);
	reef_nic_fini(&nic);
}

static void cost_nic_translates_every_page_it_touches(void **state)
{
	struct reef_cost_options options = round_options();
	struct reef_remote remote = {.key = 1};
	struct reef_op read = nic_op(REEF_READ, &remote, 4095, 2);
	struct reef_op many = nic_op(REEF_READ, &remote, 0, 4096 * 4);
	struct reef_op none = nic_op(REEF_READ, &remote, 4096, 0);
	struct reef_nic nic;

	(void)state;
	assert_int_equal(reef_nic_init(&nic, &options), 0);
	reef_nic_receive(&nic, 1, &read, 1, 0); /* context, two pages */
	assert_int_equal(nic.stats.misses, 3);
	reef_nic_receive(&nic, 1, &many, 1, 0);
	assert_int_equal(nic.stats.misses, 5);
	reef_nic_receive(&nic, 1, &none, 1, 0);
	assert_int_equal(nic.stats.misses, 5);
	options.transport = REEF_COST_DATAGRAM;
	reef_nic_receive(&nic, 2, &none, 1, 0); /* no context */
	assert_int_equal(nic.stats.misses, 5);
	reef_nic_fini(&nic);
}

static void cost_nic_answers_only_what_brings_something_back(void **state)
{
	struct reef_cost_options options = round_options();
	struct reef_remote remote = {.key = 1};
	struct reef_op read = nic_op(REEF_READ, &remote, 0, 80);
	struct reef_op write = nic_op(REEF_WRITE, &remote, 0, 80);
	struct reef_nic nic;

	(void)state;
	assert_int_equal(reef_nic_init(&nic, &options), 0);
	assert_int_equal(reef_nic_answer(&nic, &write, 1, 0), 0);
	assert_int_equal(reef_nic_answer(&nic, &read, 1, 0), 10000);
	assert_int_equal(reef_nic_answer(&nic, &read, 1, 0), 20000);
	assert_int_equal(nic.stats.sent, 0);
	/* A datagram is answered by another, whatever it was. */
	options.transport = REEF_COST_DATAGRAM;
	assert_int_equal(reef_nic_answer(&nic, &write, 1, 100000),
			 100000 + 10000 + 2000);
	assert_int_equal(nic.stats.sent, 1);
	assert_int_equal(reef_nic_answered(&nic, &write, 1, 200000), 200000);
	assert_int_equal(nic.stats.received, 1);
	reef_nic_fini(&nic);
}

/* --- the hook, over a loopback with virtual time --- */

struct world {
	struct reef_sched *sched;
	struct reef_cost_model *model;
	struct fake_loop end; /* the initiator, and all the memory */
	struct fake *target;  /* only its NIC counts */
	struct reef_queue *target_queue;
	struct reef_listener *listener;
	void (*body)(struct world *world);
	const struct reef_cost_options *options;
	bool late;
};

static int refuse_all(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	(void)key;
	return -REEF_EAUTH;
}

static int world_main(void *arg)
{
	struct world *world = arg;
	struct reef_listen_options listen = {.credential = refuse_all};

	assert_int_equal(reef_cost_model_create(world->options, &world->model),
			 0);
	world->target = fake_open_loop();
	assert_int_equal(
		reef_cost_push(&world->target->fabric, world->model, "target"),
		0);
	assert_int_equal(reef_queue_open(&world->target->fabric, NULL,
					 &world->target_queue),
			 0);
	assert_int_equal(reef_listen(world->target_queue, "fake:target",
				     &listen, &world->listener),
			 0);
	fake_loop_open(&world->end);
	world->end.address = "fake:target";
	world->end.fake->late = world->late;
	assert_int_equal(
		reef_cost_push(world->end.fabric, world->model, "client"), 0);
	fake_loop_start(&world->end);
	world->body(world);
	fake_loop_close(&world->end);
	reef_listener_close(world->listener);
	reef_queue_close(world->target_queue);
	reef_fabric_close(&world->target->fabric);
	reef_cost_model_destroy(world->model);
	return 0;
}

/* Both ways for the layer below to complete: at once, and in a later poll. */
static void in_world(void (*body)(struct world *world),
		     const struct reef_cost_options *options)
{
	struct reef_sched_setup setup = {.virtual_time = true};
	struct world world = {.body = body, .options = options};

	for (int late = 0; late < 2; late++) {
		world.late = late;
		assert_int_equal(reef_sched_create_setup(&setup, &world.sched),
				 0);
		assert_int_equal(
			reef_fiber_spawn(world.sched, world_main, &world, NULL),
			0);
		assert_int_equal(reef_sched_run(world.sched), 0);
		reef_sched_destroy(world.sched);
	}
}

static uint64_t run_ns(struct world *world, struct reef_batch *batch,
		       int status)
{
	uint64_t before_ns = reef_now_ns();

	assert_int_equal(reef_run(world->end.queue, batch), status);
	return reef_now_ns() - before_ns;
}

static void read_takes_a_round_trip(struct world *world)
{
	uint64_t word = 0, took_ns;
	struct reef_op op = {.kind = REEF_READ,
			     .length = 8,
			     .remote = world->end.remote,
			     .offset = 8,
			     .local = &word};
	struct reef_batch batch = {
		.link = world->end.link, .ops = &op, .count = 1};
	struct reef_cost_stats stats;

	world->end.words[1] = 77;
	took_ns = run_ns(world, &batch, 0);
	assert_int_equal(word, 77);
	/* The first time, both contexts and the page have to be fetched. */
	assert_true(took_ns > 3200 && took_ns < 3500);
	took_ns = run_ns(world, &batch, 0);
	assert_true(took_ns >= 2000 && took_ns < 2100);
	assert_int_equal(reef_cost_stats(world->model, "client", &stats), 0);
	assert_int_equal(stats.sent, 2);
	assert_int_equal(reef_cost_stats(world->model, "target", &stats), 0);
	assert_int_equal(stats.received, 2);
	assert_int_equal(stats.misses, 2);
	assert_int_equal(reef_cost_stats(world->model, "nobody", &stats),
			 -ENOENT);
}

static void cost_read_takes_a_round_trip(void **state)
{
	(void)state;
	in_world(read_takes_a_round_trip, NULL);
}

static void ordered_takes_another(struct world *world)
{
	uint64_t word = 9;
	struct reef_op ops[3];
	struct reef_batch batch = {
		.link = world->end.link, .ops = ops, .count = 3};
	uint64_t took_ns;

	ops[0] = fake_loop_faa(&world->end, 8, 1);
	ops[1] = fake_loop_faa(&world->end, 16, 1);
	ops[2] = (struct reef_op){.kind = REEF_WRITE,
				  .length = 8,
				  .remote = world->end.remote,
				  .offset = 24,
				  .local = &word};
	run_ns(world, &batch, 0);
	took_ns = run_ns(world, &batch, 0);
	assert_true(took_ns >= 2000 && took_ns < 2200);
	ops[2].flags = REEF_ORDERED;
	took_ns = run_ns(world, &batch, 0);
	assert_true(took_ns >= 4000 && took_ns < 4300);
	ops[1].flags = REEF_ORDERED;
	took_ns = run_ns(world, &batch, 0);
	assert_true(took_ns >= 6000 && took_ns < 6400);
	assert_int_equal(world->end.words[1], 4);
	assert_int_equal(ops[0].result, 3);
	assert_int_equal(world->end.words[3], 9);
	/* Each segment was a post of its own. */
	assert_int_equal(world->end.fake->posts, 1 + 1 + 2 + 3);
}

static void cost_ordered_takes_another_round_trip(void **state)
{
	(void)state;
	in_world(ordered_takes_another, NULL);
}

static void failure_ends_the_batch(struct world *world)
{
	struct reef_op ops[4];
	struct reef_batch batch = {
		.link = world->end.link, .ops = ops, .count = 4};

	for (uint32_t i = 0; i < 4; i++)
		ops[i] = fake_loop_faa(&world->end, 8 * i, 1);
	ops[2].flags = REEF_ORDERED;
	world->end.fake->fail_at = 2;
	run_ns(world, &batch, -REEF_EKEY);
	assert_int_equal(ops[0].status, 0);
	assert_int_equal(ops[1].status, -REEF_EKEY);
	assert_int_equal(ops[2].status, -REEF_ENOTDONE);
	assert_int_equal(ops[3].status, -REEF_ENOTDONE);
	assert_int_equal(world->end.words[0], 1);
	assert_int_equal(world->end.words[2], 0);
	/* Refused at once, before anything takes time. */
	ops[0].offset = 1;
	assert_int_equal(reef_post(world->end.queue, &batch), -EINVAL);
	ops[0].offset = sizeof(world->end.words);
	assert_int_equal(reef_post(world->end.queue, &batch), -ERANGE);
}

static void cost_failure_ends_the_batch(void **state)
{
	(void)state;
	in_world(failure_ends_the_batch, NULL);
}

static void depth_is_limited(struct world *world)
{
	static struct reef_op ops[129];
	static struct reef_batch batches[129];
	uint64_t before_ns = reef_now_ns(), took_ns;

	for (int i = 0; i < 129; i++) {
		ops[i] = fake_loop_faa(&world->end, 8, 1);
		batches[i] = (struct reef_batch){
			.link = world->end.link, .ops = &ops[i], .count = 1};
		assert_int_equal(reef_post(world->end.queue, &batches[i]),
				 i < 128 ? 0 : -EAGAIN);
	}
	/* reef_run waits until there is room. */
	assert_int_equal(reef_run(world->end.queue, &batches[128]), 0);
	for (int i = 0; i < 128; i++)
		assert_int_equal(reef_wait(world->end.queue, &batches[i]), 0);
	assert_int_equal(world->end.words[1], 129);
	/* One after the other at the word: 300 ns each. */
	took_ns = reef_now_ns() - before_ns;
	assert_true(took_ns > 129 * 300 && took_ns < 129 * 300 + 10000);
}

static void cost_depth_is_limited(void **state)
{
	(void)state;
	in_world(depth_is_limited, NULL);
}

static void close_leaves_all_in_doubt(struct world *world)
{
	struct reef_op ops[16];
	struct reef_batch batches[16];
	struct fake_loop *end = &world->end;
	int doubts = 0;

	for (int i = 0; i < 16; i++) {
		ops[i] = fake_loop_faa(end, 8, 1);
		batches[i] = (struct reef_batch){
			.link = end->link, .ops = &ops[i], .count = 1};
		assert_int_equal(reef_post(end->queue, &batches[i]), 0);
	}
	/* By now some have come through, some are at the word, some back. */
	assert_int_equal(reef_sleep(3500), 0);
	reef_detach(end->queue, end->remote);
	reef_link_close(end->link);
	for (int i = 0; i < 16; i++) {
		int rc = reef_wait(end->queue, &batches[i]);

		assert_true(rc == 0 || rc == -REEF_EINDOUBT);
		doubts += rc != 0;
	}
	assert_true(doubts > 4 && end->words[1] < 16);
	assert_true(end->words[1] >= 16u - (uint32_t)doubts);
	assert_int_equal(fake_loop_connect(end), 0);
	assert_int_equal(reef_attach(end->queue, end->link, 1, &end->remote),
			 0);
	ops[0] = fake_loop_faa(end, 8, 1);
	batches[0].link = end->link;
	run_ns(world, &batches[0], 0);
}

static void cost_close_leaves_what_is_under_way_in_doubt(void **state)
{
	(void)state;
	in_world(close_leaves_all_in_doubt, NULL);
}

static void cost_bad_options_are_refused(void **state)
{
	struct reef_cost_options options = {.page_size = 5000};
	struct reef_cost_model *model;

	(void)state;
	assert_int_equal(reef_cost_model_create(&options, &model), -EINVAL);
	options = (struct reef_cost_options){.atomic_units = 3};
	assert_int_equal(reef_cost_model_create(&options, &model), -EINVAL);
	options = (struct reef_cost_options){.cache_size = 100};
	assert_int_equal(reef_cost_model_create(&options, &model), -EINVAL);
	assert_int_equal(reef_cost_model_create(NULL, &model), 0);
	assert_int_equal(reef_cost_model_options(model)->round_trip_ns, 2000);
	reef_cost_model_destroy(model);
	reef_cost_model_destroy(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cost_nic_sends_one_after_the_other),
		cmocka_unit_test(cost_nic_atomics_on_one_word_queue_up),
		cmocka_unit_test(cost_nic_translates_every_page_it_touches),
		cmocka_unit_test(
			cost_nic_answers_only_what_brings_something_back),
		cmocka_unit_test(cost_read_takes_a_round_trip),
		cmocka_unit_test(cost_ordered_takes_another_round_trip),
		cmocka_unit_test(cost_failure_ends_the_batch),
		cmocka_unit_test(cost_depth_is_limited),
		cmocka_unit_test(cost_close_leaves_what_is_under_way_in_doubt),
		cmocka_unit_test(cost_bad_options_are_refused),
	};

	return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
