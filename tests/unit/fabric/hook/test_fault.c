/* test_fault.c - faults, over a loopback. */
#include "fabric/hook/fault.h"

#include "fixture/fake.h"

struct world {
	struct fake_loop end;
	struct reef_fault *fault;
	struct reef_op ops[4];
	struct reef_batch batch;
};

/* Four FAAs on words 0 to 3, each adding 1. */
static void fill(struct world *world)
{
	for (uint32_t i = 0; i < 4; i++)
		world->ops[i] = fake_loop_faa(&world->end, 8 * i, 1);
	world->batch = (struct reef_batch){
		.link = world->end.link, .ops = world->ops, .count = 4};
}

static void start(struct world *world, const struct reef_fault_options *options)
{
	fake_loop_open(&world->end);
	assert_int_equal(
		reef_fault_push(world->end.fabric, options, &world->fault), 0);
	fake_loop_start(&world->end);
	fill(world);
}

/* Close the link, with its remotes, and connect anew. */
static void reconnect(struct world *world)
{
	struct fake_loop *end = &world->end;

	reef_detach(end->queue, end->remote);
	reef_link_close(end->link);
	assert_int_equal(fake_loop_connect(end), 0);
	assert_int_equal(reef_attach(end->queue, end->link, 1, &end->remote),
			 0);
	fill(world);
}

static void add(struct world *world, enum reef_fault_kind kind, uint64_t nth)
{
	struct reef_fault_rule rule = {.call = REEF_CALL_POST,
				       .kind = kind,
				       .nth = nth,
				       .prefix = 2,
				       .delay_ns = 1000};

	assert_int_equal(reef_fault_add(world->fault, &rule), 0);
}

static void assert_words(const struct world *world, uint64_t a, uint64_t b,
			 uint64_t c, uint64_t d)
{
	const uint64_t *words = world->end.words;

	assert_int_equal(words[0], a);
	assert_int_equal(words[1], b);
	assert_int_equal(words[2], c);
	assert_int_equal(words[3], d);
}

static void fault_without_faults_passes_all(void **state)
{
	struct world world;

	(void)state;
	for (int late = 0; late < 2; late++) {
		start(&world, NULL);
		world.end.fake->late = late;
		for (uint64_t i = 1; i <= 10; i++) {
			assert_int_equal(
				reef_run(world.end.queue, &world.batch), 0);
			assert_words(&world, i, i, i, i);
		}
		assert_int_equal(reef_fault_count(world.fault), 0);
		/* queue_open, expose, connect, attach and ten posts */
		assert_int_equal(reef_fault_calls(world.fault), 14);
		fake_loop_close(&world.end);
	}
}

static void fault_refuse_makes_post_return_again(void **state)
{
	struct world world;

	(void)state;
	start(&world, NULL);
	add(&world, REEF_FAULT_REFUSE, 2);
	assert_int_equal(reef_post(world.end.queue, &world.batch), 1);
	assert_int_equal(reef_post(world.end.queue, &world.batch), -EAGAIN);
	assert_words(&world, 1, 1, 1, 1);
	assert_int_equal(reef_post(world.end.queue, &world.batch), 1);
	assert_words(&world, 2, 2, 2, 2);
	/* reef_run waits it out. */
	add(&world, REEF_FAULT_REFUSE, 1);
	assert_int_equal(reef_run(world.end.queue, &world.batch), 0);
	assert_words(&world, 3, 3, 3, 3);
	assert_int_equal(reef_fault_count(world.fault), 2);
	fake_loop_close(&world.end);
}

static void fault_delay_completes_later_with_results(void **state)
{
	struct world world;

	(void)state;
	for (int late = 0; late < 2; late++) {
		start(&world, NULL);
		world.end.fake->late = late;
		add(&world, REEF_FAULT_DELAY, 1);
		assert_int_equal(reef_post(world.end.queue, &world.batch), 0);
		assert_words(&world, 0, 0, 0, 0);
		assert_false(world.batch.done);
		/* The layer below may be busy when the time has come. */
		world.end.fake->again = 2;
		assert_int_equal(reef_wait(world.end.queue, &world.batch), 0);
		assert_words(&world, 1, 1, 1, 1);
		/* An operation that fails below fails above. */
		add(&world, REEF_FAULT_DELAY, 1);
		world.end.fake->fail_at = 3;
		assert_int_equal(reef_run(world.end.queue, &world.batch),
				 -REEF_EKEY);
		assert_words(&world, 2, 2, 1, 1);
		assert_int_equal(world.ops[1].status, 0);
		assert_int_equal(world.ops[2].status, -REEF_EKEY);
		assert_int_equal(world.ops[3].status, -REEF_ENOTDONE);
		fake_loop_close(&world.end);
	}
}

static void in_doubt(struct world *world, enum reef_fault_kind kind)
{
	add(world, kind, 1);
	assert_int_equal(reef_run(world->end.queue, &world->batch),
			 -REEF_EINDOUBT);
	for (int i = 0; i < 4; i++)
		assert_int_equal(world->ops[i].status, -REEF_EINDOUBT);
	/* The link is lost now. */
	assert_int_equal(reef_post(world->end.queue, &world->batch),
			 -REEF_ENOLINK);
	reconnect(world);
}

static void fault_in_doubt_has_happened_or_not_or_in_part(void **state)
{
	struct world world;

	(void)state;
	for (int late = 0; late < 2; late++) {
		start(&world, NULL);
		world.end.fake->late = late;
		in_doubt(&world, REEF_FAULT_DONE);
		assert_words(&world, 1, 1, 1, 1);
		in_doubt(&world, REEF_FAULT_UNDONE);
		assert_words(&world, 1, 1, 1, 1);
		in_doubt(&world, REEF_FAULT_CUT);
		assert_words(&world, 2, 2, 1, 1);
		assert_int_equal(reef_run(world.end.queue, &world.batch), 0);
		assert_words(&world, 3, 3, 2, 2);
		fake_loop_close(&world.end);
	}
}

static void fault_close_while_delayed_ends_in_doubt(void **state)
{
	struct world world;

	(void)state;
	start(&world, NULL);
	add(&world, REEF_FAULT_DELAY, 1);
	assert_int_equal(reef_post(world.end.queue, &world.batch), 0);
	reef_detach(world.end.queue, world.end.remote);
	reef_link_close(world.end.link);
	assert_int_equal(reef_wait(world.end.queue, &world.batch),
			 -REEF_EINDOUBT);
	assert_words(&world, 0, 0, 0, 0);
	assert_int_equal(fake_loop_connect(&world.end), 0);
	assert_int_equal(reef_attach(world.end.queue, world.end.link, 1,
				     &world.end.remote),
			 0);
	fake_loop_close(&world.end);
}

static void fault_malformed_batch_is_still_refused(void **state)
{
	struct world world;

	(void)state;
	start(&world, NULL);
	add(&world, REEF_FAULT_DONE, 1);
	world.ops[3].offset = sizeof(world.end.words);
	assert_int_equal(reef_post(world.end.queue, &world.batch), -ERANGE);
	assert_words(&world, 0, 0, 0, 0);
	fake_loop_close(&world.end);
}

static void fault_refuses_connect_and_attach(void **state)
{
	struct world world;
	struct reef_remote *remote;
	struct reef_fault_rule rule = {.kind = REEF_FAULT_REFUSE, .nth = 1};

	(void)state;
	start(&world, NULL);
	rule.call = REEF_CALL_ATTACH;
	assert_int_equal(reef_fault_add(world.fault, &rule), 0);
	assert_int_equal(
		reef_attach(world.end.queue, world.end.link, 1, &remote),
		-REEF_EKEY);
	rule.call = REEF_CALL_CONNECT;
	rule.error = -ETIMEDOUT;
	assert_int_equal(reef_fault_add(world.fault, &rule), 0);
	reef_detach(world.end.queue, world.end.remote);
	reef_link_close(world.end.link);
	assert_int_equal(fake_loop_connect(&world.end), -ETIMEDOUT);
	assert_int_equal(fake_loop_connect(&world.end), 0);
	assert_int_equal(reef_attach(world.end.queue, world.end.link, 1,
				     &world.end.remote),
			 0);
	rule.nth = 0;
	assert_int_equal(reef_fault_add(world.fault, &rule), -EINVAL);
	rule.nth = 1000;
	for (int i = 0; i < 64; i++)
		assert_int_equal(reef_fault_add(world.fault, &rule), 0);
	assert_int_equal(reef_fault_add(world.fault, &rule), -ENOSPC);
	fake_loop_close(&world.end);
}

/* Everything a client does; 0 only if all of it went well. What was made is
 * closed again either way. */
static int work(struct world *world)
{
	struct fake_loop *end = &world->end;
	int rc;

	end->remote = NULL;
	end->link = NULL;
	rc = reef_queue_open(end->fabric, NULL, &end->queue);
	if (rc)
		return rc;
	rc = reef_expose(end->fabric, &end->memory, &end->region);
	if (rc)
		goto err_queue;
	rc = fake_loop_connect(end);
	if (rc)
		goto err_region;
	rc = reef_attach(end->queue, end->link, 1, &end->remote);
	if (rc)
		goto err_link;
	fill(world);
	for (int i = 0; !rc && i < 3; i++)
		rc = reef_run(end->queue, &world->batch);
	reef_detach(end->queue, end->remote);
err_link:
	reef_link_close(end->link);
err_region:
	while (reef_withdraw(end->queue, end->region, 0))
		;
err_queue:
	reef_queue_close(end->queue);
	return rc;
}

static void fault_every_call_fails_in_turn(void **state)
{
	static const enum reef_fault_kind kinds[] = {
		REEF_FAULT_REFUSE, REEF_FAULT_DELAY, REEF_FAULT_DONE,
		REEF_FAULT_UNDONE, REEF_FAULT_CUT};
	struct world world;
	uint64_t n, failed;
	bool fired = true;

	(void)state;
	for (size_t k = 0; k < 5; k++) {
		failed = 0;
		fired = true;
		for (n = 1; fired; n++) {
			fake_loop_open(&world.end);
			assert_int_equal(reef_fault_push(world.end.fabric, NULL,
							 &world.fault),
					 0);
			reef_fault_fail_nth(world.fault, n, kinds[k], false);
			failed += work(&world) != 0;
			fired = reef_fault_count(world.fault) != 0;
			/* Never more than three times, however it failed. */
			assert_true(world.end.words[0] <= 3);
			reef_fabric_close(world.end.fabric);
		}
		/* queue_open, expose, connect, attach, 3 posts, withdraw, and
		 * one round in which nothing failed */
		assert_int_equal(n, 10);
		/* A refused or delayed post is waited out; a withdraw is tried
		 * again by work itself. */
		assert_int_equal(failed, k < 2 ? 4 : 7);
	}
}

static void fault_forever_fails_all_from_there_on(void **state)
{
	struct world world;

	(void)state;
	start(&world, NULL);
	reef_fault_fail_nth(world.fault, 2, REEF_FAULT_REFUSE, true);
	assert_int_equal(reef_post(world.end.queue, &world.batch), 1);
	for (int i = 0; i < 5; i++)
		assert_int_equal(reef_post(world.end.queue, &world.batch),
				 -EAGAIN);
	reef_fault_fail_nth(world.fault, 0, REEF_FAULT_NONE, false);
	assert_int_equal(reef_post(world.end.queue, &world.batch), 1);
	fake_loop_close(&world.end);
}

static void fault_fence_and_end_links_are_refused_by_rule(void **state)
{
	struct world world;

	(void)state;
	start(&world, NULL);
	assert_int_equal(reef_fault_add(world.fault,
					&(struct reef_fault_rule){
						.call = REEF_CALL_END_LINKS,
						.kind = REEF_FAULT_REFUSE,
						.nth = 2}),
			 0);
	assert_int_equal(reef_fault_add(world.fault,
					&(struct reef_fault_rule){
						.call = REEF_CALL_FENCE,
						.kind = REEF_FAULT_REFUSE,
						.nth = 1}),
			 0);
	assert_int_equal(reef_end_links(world.end.queue, 5, 1, 0), 0);
	assert_int_equal(reef_end_links(world.end.queue, 5, 1, 0), -ETIMEDOUT);
	assert_int_equal(reef_end_links(world.end.queue, 5, 1, 0), 0);
	assert_int_equal(reef_fence(world.end.queue, 5, 0), -ETIMEDOUT);
	assert_int_equal(reef_fence(world.end.queue, 5, 0), 0);
	fake_loop_close(&world.end);
}

/* A run with a seed, as a string of statuses. */
static void seeded_run(uint64_t seed, int statuses[200])
{
	struct reef_fault_options options = {
		.seed = seed,
		.again_ppm = 100000,
		.delay_ppm = 100000,
		.doubt_ppm = 100000,
		.connect_ppm = 200000,
		.attach_ppm = 200000,
		.delay_max_ns = 2000,
	};
	struct world world;
	struct fake_loop *end = &world.end;

	fake_loop_open(end);
	assert_int_equal(reef_fault_push(end->fabric, &options, &world.fault),
			 0);
	assert_int_equal(reef_queue_open(end->fabric, NULL, &end->queue), 0);
	assert_int_equal(reef_expose(end->fabric, &end->memory, &end->region),
			 0);
	end->link = NULL;
	end->remote = NULL;
	for (int i = 0; i < 200; i++) {
		if (!end->remote) {
			if (!end->link)
				statuses[i] = fake_loop_connect(end);
			else
				statuses[i] = reef_attach(end->queue, end->link,
							  1, &end->remote);
			continue;
		}
		fill(&world);
		statuses[i] = reef_post(end->queue, &world.batch);
		if (statuses[i] == 0)
			statuses[i] = reef_wait(end->queue, &world.batch);
		if (statuses[i] == -REEF_EINDOUBT) {
			reef_detach(end->queue, end->remote);
			reef_link_close(end->link);
			end->remote = NULL;
			end->link = NULL;
		}
	}
	fake_loop_close(end);
}

static void fault_same_seed_gives_the_same_faults(void **state)
{
	int a[200], b[200], c[200], doubts = 0, agains = 0, refused = 0;

	(void)state;
	seeded_run(7, a);
	seeded_run(7, b);
	seeded_run(8, c);
	assert_memory_equal(a, b, sizeof(a));
	assert_memory_not_equal(a, c, sizeof(a));
	for (int i = 0; i < 200; i++) {
		doubts += a[i] == -REEF_EINDOUBT;
		agains += a[i] == -EAGAIN;
		refused += a[i] == -ECONNREFUSED || a[i] == -REEF_EKEY;
	}
	assert_true(doubts > 3 && agains > 3 && refused > 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fault_without_faults_passes_all),
		cmocka_unit_test(fault_refuse_makes_post_return_again),
		cmocka_unit_test(fault_delay_completes_later_with_results),
		cmocka_unit_test(fault_in_doubt_has_happened_or_not_or_in_part),
		cmocka_unit_test(fault_close_while_delayed_ends_in_doubt),
		cmocka_unit_test(fault_malformed_batch_is_still_refused),
		cmocka_unit_test(fault_refuses_connect_and_attach),
		cmocka_unit_test(fault_every_call_fails_in_turn),
		cmocka_unit_test(fault_forever_fails_all_from_there_on),
		cmocka_unit_test(fault_fence_and_end_links_are_refused_by_rule),
		cmocka_unit_test(fault_same_seed_gives_the_same_faults),
	};

	return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
