/* test_trace.c - the ring of recent operations, over a loopback. */
#include "fabric/hook/trace.h"

#include "fixture/fake.h"

#include <stdio.h>
#include <string.h>

struct lines {
	char text[64][REEF_TRACE_LINE_MAX];
	uint32_t count;
};

static void keep(void *context, const char *line)
{
	struct lines *lines = context;

	assert_true(lines->count < 64);
	snprintf(lines->text[lines->count++], REEF_TRACE_LINE_MAX, "%s", line);
}

struct world {
	struct fake_loop end;
	struct reef_trace *trace;
	struct lines dumped, live;
};

static void start(struct world *world, uint32_t records_max,
		  uint32_t batches_max, bool live)
{
	struct reef_trace_options options = {.records_max = records_max,
					     .batches_max = batches_max,
					     .sink = live ? keep : NULL,
					     .context = &world->live};

	memset(world, 0, sizeof(*world));
	fake_loop_open(&world->end);
	assert_int_equal(
		reef_trace_push(world->end.fabric, &options, &world->trace), 0);
	fake_loop_start(&world->end);
}

static uint32_t dump(struct world *world, uint32_t count)
{
	world->dumped.count = 0;
	return reef_trace_dump(world->trace, count, keep, &world->dumped);
}

static void assert_line(const char *line, const char *part)
{
	if (!strstr(line, part))
		fail_msg("\"%s\" is not in \"%s\"", part, line);
}

static void trace_operation_is_recorded_with_its_result(void **state)
{
	struct world world;
	uint64_t word = 5;
	struct reef_op ops[4];
	struct reef_batch batch = {.ops = ops, .count = 4};

	(void)state;
	for (int late = 0; late < 2; late++) {
		start(&world, 0, 0, true);
		word = 5;
		world.end.fake->late = late;
		batch.link = world.end.link;
		ops[0] = (struct reef_op){.kind = REEF_WRITE,
					  .length = 8,
					  .remote = world.end.remote,
					  .offset = 64,
					  .local = &word};
		ops[1] = fake_loop_faa(&world.end, 64, 3);
		ops[1].flags = REEF_ORDERED;
		ops[2] = fake_loop_faa(&world.end, 64, 9);
		ops[2].kind = REEF_CAS;
		ops[2].compare = 8;
		ops[3] = ops[0];
		ops[3].kind = REEF_READ;
		assert_int_equal(reef_run(world.end.queue, &batch), 0);
		/* expose, connect, attach */
		assert_int_equal(reef_trace_count(world.trace), 7);
		assert_int_equal(dump(&world, 0), 7);
		assert_line(world.dumped.text[0], "expose key 1  0");
		assert_line(world.dumped.text[1], "s00010001  connect  0");
		assert_line(world.dumped.text[2], "attach key 1  0");
		assert_line(world.dumped.text[3], "#3.0 ");
		assert_line(world.dumped.text[3],
			    "s00010001  WRITE key 1 +0x40 8 bytes  0");
		assert_line(world.dumped.text[4], "#3.1 ");
		assert_line(world.dumped.text[4],
			    "FAA ordered key 1 +0x40 + 3 was 5  0");
		assert_line(world.dumped.text[5],
			    "CAS key 1 +0x40 8 -> 9 was 8  0");
		assert_line(world.dumped.text[6],
			    "READ key 1 +0x40 8 bytes  0");
		/* The sink saw the same. */
		assert_int_equal(world.live.count, 7);
		for (uint32_t i = 0; i < 7; i++)
			assert_string_equal(world.live.text[i],
					    world.dumped.text[i]);
		assert_int_equal(dump(&world, 2), 2);
		assert_line(world.dumped.text[0], "CAS");
		fake_loop_close(&world.end);
	}
}

static void trace_batch_under_way_is_shown_as_such(void **state)
{
	struct world world;
	struct reef_op op;
	struct reef_batch batch = {.ops = &op, .count = 1};

	(void)state;
	start(&world, 16, 16, false);
	world.end.fake->late = true;
	op = fake_loop_faa(&world.end, 8, 1);
	batch.link = world.end.link;
	assert_int_equal(reef_post(world.end.queue, &batch), 0);
	assert_int_equal(dump(&world, 1), 1);
	assert_line(world.dumped.text[0], "under way");
	assert_int_equal(reef_wait(world.end.queue, &batch), 0);
	assert_int_equal(dump(&world, 1), 1);
	assert_line(world.dumped.text[0], "was 0  0");
	fake_loop_close(&world.end);
}

static void trace_failures_are_named(void **state)
{
	struct world world;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};

	(void)state;
	start(&world, 16, 16, false);
	batch.link = world.end.link;
	ops[0] = fake_loop_faa(&world.end, 8, 1);
	ops[1] = fake_loop_faa(&world.end, sizeof(world.end.words), 1);
	assert_int_equal(reef_post(world.end.queue, &batch), -ERANGE);
	assert_int_equal(dump(&world, 2), 2);
	assert_line(world.dumped.text[0], "ERANGE");
	ops[1].offset = 16;
	world.end.fake->fail_at = 1;
	assert_int_equal(reef_run(world.end.queue, &batch), -REEF_EKEY);
	assert_int_equal(dump(&world, 2), 2);
	assert_line(world.dumped.text[0], "  REEF_EKEY");
	assert_line(world.dumped.text[1], "  REEF_ENOTDONE");
	batch.ops = NULL;
	assert_int_equal(reef_post(world.end.queue, &batch), -EINVAL);
	fake_loop_close(&world.end);
}

static void count_done(struct reef_batch *batch)
{
	++*(uint32_t *)batch->user;
}

static void trace_callers_on_done_is_kept(void **state)
{
	struct world world;
	struct reef_op ops[8];
	struct reef_batch batches[8];
	uint32_t done = 0;

	(void)state;
	/* Fewer flights than batches: the others pass unseen. */
	start(&world, 64, 4, false);
	world.end.fake->late = true;
	for (int i = 0; i < 8; i++) {
		ops[i] = fake_loop_faa(&world.end, 8, 1);
		batches[i] = (struct reef_batch){.link = world.end.link,
						 .ops = &ops[i],
						 .count = 1,
						 .on_done = count_done,
						 .user = &done};
		assert_int_equal(reef_post(world.end.queue, &batches[i]), 0);
	}
	while (done < 8)
		assert_true(reef_poll(world.end.queue) > 0);
	for (int i = 0; i < 8; i++) {
		assert_ptr_equal(batches[i].on_done, count_done);
		assert_ptr_equal(batches[i].user, &done);
		assert_true(batches[i].done);
	}
	assert_int_equal(dump(&world, 8), 8);
	for (int i = 0; i < 8; i++)
		assert_line(world.dumped.text[i], i < 4 ? "  0" : "under way");
	fake_loop_close(&world.end);
}

static void trace_link_closed_under_a_batch_is_in_doubt(void **state)
{
	struct world world;
	struct reef_op op;
	struct reef_batch batch = {.ops = &op, .count = 1};

	(void)state;
	start(&world, 0, 0, true);
	world.end.fake->late = true;
	op = fake_loop_faa(&world.end, 8, 1);
	batch.link = world.end.link;
	assert_int_equal(reef_post(world.end.queue, &batch), 0);
	reef_detach(world.end.queue, world.end.remote);
	reef_link_close(world.end.link);
	world.end.remote = NULL;
	world.end.link = NULL;
	assert_int_equal(reef_wait(world.end.queue, &batch), -REEF_EINDOUBT);
	assert_line(world.live.text[world.live.count - 1], "REEF_EINDOUBT");
	assert_line(world.live.text[world.live.count - 1], "s00010001");
	fake_loop_close(&world.end);
}

static void trace_oldest_records_give_way(void **state)
{
	struct world world;
	struct reef_op ops[20];
	struct reef_batch batch = {.ops = ops, .count = 20};

	(void)state;
	start(&world, 5, 0, false); /* 8 */
	world.end.fake->late = true;
	batch.link = world.end.link;
	for (int i = 0; i < 20; i++)
		ops[i] = fake_loop_faa(&world.end, 8, 1);
	assert_int_equal(reef_run(world.end.queue, &batch), 0);
	assert_int_equal(reef_trace_count(world.trace), 23);
	assert_int_equal(dump(&world, 0), 8);
	assert_line(world.dumped.text[0], "#3.12 ");
	assert_line(world.dumped.text[7], "#3.19 ");
	assert_line(world.dumped.text[7], "was 13  0");
	fake_loop_close(&world.end);
}

struct racer {
	struct fake_loop *end;
	pthread_t thread;
	uint32_t refused;
};

/* Through a layer of its own thread, straight at the ops: the fake itself is
 * not made for threads. */
static int refuse_post(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_batch *batch)
{
	(void)layer;
	(void)queue;
	(void)batch;
	return -EAGAIN;
}

static void *race(void *arg)
{
	struct racer *racer = arg;
	struct reef_layer *top = racer->end->fabric->top;
	struct reef_op op = {.kind = REEF_SEND, .length = 7};
	struct reef_batch batch = {.ops = &op, .count = 1};

	for (int i = 0; i < 20000; i++)
		racer->refused += top->ops.post(top, racer->end->queue,
						&batch) == -EAGAIN;
	return NULL;
}

static void check_line(void *context, const char *line)
{
	(void)context;
	assert_line(line, "SEND 7 bytes  ");
	assert_true(strstr(line, "EAGAIN") || strstr(line, "under way"));
}

static void trace_threads_never_tear_a_record(void **state)
{
	struct fake_loop end;
	struct racer racers[3];
	struct reef_trace *trace;
	struct reef_trace_options options = {.records_max = 8,
					     .batches_max = 2};

	(void)state;
	fake_loop_open(&end);
	end.fake->fabric.provider.ops.post = refuse_post;
	assert_int_equal(reef_trace_push(end.fabric, &options, &trace), 0);
	for (int i = 0; i < 3; i++) {
		racers[i] = (struct racer){.end = &end};
		assert_int_equal(pthread_create(&racers[i].thread, NULL, race,
						&racers[i]),
				 0);
	}
	for (int i = 0; i < 2000; i++)
		reef_trace_dump(trace, 0, check_line, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(racers[i].thread, NULL);
	for (int i = 0; i < 3; i++)
		assert_int_equal(racers[i].refused, 20000);
	assert_int_equal(reef_trace_count(trace), 60000);
	reef_fabric_close(end.fabric);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trace_operation_is_recorded_with_its_result),
		cmocka_unit_test(trace_batch_under_way_is_shown_as_such),
		cmocka_unit_test(trace_failures_are_named),
		cmocka_unit_test(trace_callers_on_done_is_kept),
		cmocka_unit_test(trace_link_closed_under_a_batch_is_in_doubt),
		cmocka_unit_test(trace_oldest_records_give_way),
		cmocka_unit_test(trace_threads_never_tear_a_record),
	};

	return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
