/* All hooks over the simulator: faults on top of its own, hosts that are killed
 * and paused while a hook holds their batches. */
#include "fabric/hook/cost.h"
#include "fabric/hook/count.h"
#include "fabric/hook/fault.h"
#include "fabric/hook/trace.h"
#include "fabric/sim/sim.h"
#include "fixture/seeds.h"
#include "fixture/units.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct world {
	struct reef_sim *sim;
	struct reef_sim_host *server, *client;
	struct reef_cost_model *model; /* NULL: none */
	struct reef_fault_options faults;
	struct reef_fault *fault; /* the client's */
	struct reef_count count;
	struct reef_trace *trace;
	struct reef_memory memory;
	uint64_t words[64], key;
	struct reef_fiber *serving;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
	uint64_t sure, doubtful; /* FAAs */
	uint64_t at_death;
	uint32_t told; /* completions */
	int (*body)(struct world *world);
	bool echo; /* the server answers, once */
};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	memset(key, 0, REEF_KEY_SIZE);
	return 0;
}

static int send_byte(struct reef_queue *queue, struct reef_link *link,
		     char byte)
{
	struct reef_op op = {.kind = REEF_SEND, .length = 1, .local = &byte};
	struct reef_batch batch = {.link = link, .ops = &op, .count = 1};

	return reef_run(queue, &batch);
}

static void echo(struct reef_queue *queue)
{
	struct reef_message *message;
	int rc;

	assert_int_equal(reef_receive(queue, REEF_FOREVER, &message), 0);
	/* The client may have closed before the answer is confirmed. */
	rc = send_byte(queue, message->link, (char)(message->bytes[0] + 1));
	assert_true(rc == 0 || rc == -REEF_EINDOUBT);
	reef_message_free(message);
}

static int server_main(struct reef_sim_host *host, void *arg)
{
	struct world *world = arg;
	struct reef_fabric_options options = {.sim_host = host};
	struct reef_listen_options listen = {.credential = credential};
	struct reef_listener *listener;
	struct reef_region *region;
	struct reef_fabric *fabric;
	struct reef_queue *queue;

	assert_int_equal(reef_fabric_open("sim", &options, &fabric), 0);
	if (world->model)
		assert_int_equal(reef_cost_push(fabric, world->model, "server"),
				 0);
	assert_int_equal(reef_queue_open(fabric, NULL, &queue), 0);
	world->memory.domain = reef_fabric_domain(fabric);
	assert_int_equal(reef_expose(fabric, &world->memory, &region), 0);
	world->key = reef_region_key(region);
	assert_int_equal(reef_listen(queue, "sim:server/1", &listen, &listener),
			 0);
	world->serving = reef_fiber_self();
	if (world->echo)
		echo(queue);
	else
		reef_fiber_park(REEF_FOREVER);
	reef_listener_close(listener);
	reef_queue_close(queue);
	reef_fabric_close(fabric);
	return 0;
}

/* Until there is a link; each refusal is a fault that was put in. */
static int join(struct world *world)
{
	struct reef_connect_options options = {.session = 0x10001,
					       .identity = "test"};
	int rc;

	for (int tries = 0; tries < 100; tries++) {
		rc = reef_connect(world->queue, "sim:server/1", &options,
				  &world->link);
		if (!rc)
			rc = reef_attach(world->queue, world->link, world->key,
					 &world->remote);
		if (!rc || rc == -REEF_EHOSTDEAD)
			return rc;
		reef_link_close(world->link);
		world->link = NULL;
	}
	return rc;
}

static int client_main(struct reef_sim_host *host, void *arg)
{
	struct world *world = arg;
	struct reef_fabric_options options = {.sim_host = host};
	int rc;

	reef_sleep(1000000);
	assert_int_equal(reef_fabric_open("sim", &options, &world->fabric), 0);
	if (world->model)
		assert_int_equal(
			reef_cost_push(world->fabric, world->model, "client"),
			0);
	assert_int_equal(
		reef_fault_push(world->fabric, &world->faults, &world->fault),
		0);
	assert_int_equal(reef_count_push(world->fabric, &world->count), 0);
	assert_int_equal(reef_trace_push(world->fabric, NULL, &world->trace),
			 0);
	assert_int_equal(reef_queue_open(world->fabric, NULL, &world->queue),
			 0);
	rc = join(world);
	if (!rc)
		rc = world->body(world);
	reef_link_close(world->link);
	reef_queue_close(world->queue);
	reef_fabric_close(world->fabric);
	if (world->serving && !world->echo)
		reef_fiber_unpark(world->serving);
	return rc;
}

static void make(struct world *world, const struct reef_sim_options *options)
{
	world->memory.base = world->words;
	world->memory.size = sizeof(world->words);
	world->memory.fd = -1;
	world->memory.backing = REEF_BACKING_SIMULATED;
	assert_int_equal(reef_sim_create(options, &world->sim), 0);
	assert_int_equal(reef_sim_host_add(world->sim, "server", server_main,
					   world, &world->server),
			 0);
	assert_int_equal(reef_sim_host_add(world->sim, "client", client_main,
					   world, &world->client),
			 0);
}

/* Run it; returns the trace hash. */
static uint64_t run(struct world *world, struct reef_sim_options options)
{
	uint64_t hash;
	int rc = 0;

	make(world, &options);
	assert_int_equal(reef_sim_run(world->sim, 60 * SECOND), 0);
	assert_int_equal(reef_sim_host_result(world->client, &rc), 0);
	assert_int_equal(rc, 0);
	hash = reef_sim_trace_hash(world->sim);
	reef_sim_destroy(world->sim);
	return hash;
}

/* Count up one word; after a loss, connect anew and go on. */
static int count_up(struct world *world)
{
	struct reef_op op;
	struct reef_batch batch;
	int rc;

	for (int i = 0; i < 40; i++) {
		op = (struct reef_op){.kind = REEF_FAA,
				      .remote = world->remote,
				      .operand = 1};
		batch = (struct reef_batch){
			.link = world->link, .ops = &op, .count = 1};
		rc = reef_run(world->queue, &batch);
		world->sure += rc == 0;
		world->doubtful += rc == -REEF_EINDOUBT;
		if (rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK) {
			reef_link_close(world->link);
			world->link = NULL;
			rc = join(world);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static void hooks_faults_lose_nothing_and_double_nothing(void **state)
{
	uint64_t faults = 0, doubtful = 0, hash = 0;

	(void)state;
	for (uint64_t seed = seeds_first(); seeds_has(seed, 60); seed++) {
		struct world world = {
			.body = count_up,
			.faults = {.seed = seed,
				   .again_ppm = 50000,
				   .delay_ppm = 100000,
				   .doubt_ppm = 100000,
				   .connect_ppm = 100000,
				   .attach_ppm = 100000,
				   /* Both ways to lose a link. */
				   .lose_link = seed % 2 ? reef_sim_lose_link
							 : NULL},
		};
		struct reef_sim_options options = {.seed = seed,
						   .lose_link_ppm = 20000};
		struct world again = world;

		hash = run(&world, options);
		/* F5: all is settled, the session had a new link after each
		 * loss. */
		if (world.words[0] < world.sure ||
		    world.words[0] > world.sure + world.doubtful)
			fail_msg("seed %llu: %llu is not in %llu + %llu",
				 (unsigned long long)seed,
				 (unsigned long long)world.words[0],
				 (unsigned long long)world.sure,
				 (unsigned long long)world.doubtful);
		doubtful += world.doubtful;
		faults += reef_count_read(&world.count).refused;
		if (seed <= 5)
			assert_int_equal(run(&again, options), hash);
	}
	assert_true(doubtful > 60);
	assert_true(faults > 60);
}

/* --- hosts that stop --- */

static void count_done(struct reef_batch *batch)
{
	++*(uint32_t *)batch->user;
}

/* Many under way in the hooks, and one waited for, when the host is killed. */
static int post_and_die(struct world *world)
{
	struct reef_op ops[20];
	struct reef_batch batches[20];
	uint32_t done = 0;
	int rc;

	for (int i = 0; i < 20; i++) {
		ops[i] = (struct reef_op){.kind = REEF_FAA,
					  .remote = world->remote,
					  .operand = 1};
		batches[i] = (struct reef_batch){.link = world->link,
						 .ops = &ops[i],
						 .count = 1,
						 .on_done = count_done,
						 .user = &done};
		assert_int_equal(reef_post(world->queue, &batches[i]), 0);
	}
	for (int i = 0; i < 20; i++) {
		rc = reef_wait(world->queue, &batches[i]);
		assert_true(rc == 0 || rc == -REEF_EHOSTDEAD ||
			    rc == -REEF_EINDOUBT);
		world->sure += rc == 0;
		world->doubtful += rc != 0;
	}
	assert_int_equal(done, 20);
	return -REEF_EHOSTDEAD;
}

/* After all host fibers: a fiber of the simulation itself. */
static int kill_client(void *arg)
{
	struct world *world = arg;

	while (!world->link || !world->remote)
		reef_sleep(1000);
	reef_sleep(2500);
	reef_sim_host_kill(world->client);
	reef_sleep(1000);
	world->at_death = world->words[0];
	return 0;
}

static void kill_in(struct world *world, bool calm)
{
	struct reef_sim_options options = {.seed = 5, .calm = calm};

	world->body = post_and_die;
	make(world, &options);
	assert_int_equal(reef_fiber_spawn(reef_sim_sched(world->sim),
					  kill_client, world, NULL),
			 0);
	assert_int_equal(reef_sim_run(world->sim, 60 * SECOND), 0);
	assert_int_equal(world->sure + world->doubtful, 20);
	assert_true(world->doubtful > 0);
	assert_true(world->words[0] >= world->sure && world->words[0] <= 20);
	reef_sim_destroy(world->sim);
}

static void hooks_host_killed_while_cost_holds_its_batches(void **state)
{
	struct world world = {0};

	(void)state;
	/* The word makes them queue up: 20 take 6 us and more. */
	assert_int_equal(reef_cost_model_create(NULL, &world.model), 0);
	kill_in(&world, true);
	assert_true(world.sure > 0 && world.words[0] < 20);
	assert_int_equal(world.words[0], world.at_death);
	reef_cost_model_destroy(world.model);
}

static void hooks_host_killed_while_fault_holds_its_batches(void **state)
{
	struct world world = {
		.faults = {.delay_ppm = 1000000, .delay_max_ns = 20000}};

	(void)state;
	kill_in(&world, false);
	assert_true(world.words[0] < 20);
}

static int resume_client(void *arg)
{
	struct world *world = arg;

	while (!world->link || !world->remote)
		reef_sleep(1000);
	reef_sleep(500);
	reef_sim_host_pause(world->client);
	reef_sleep(SECOND);
	/* The NIC went on, the processor did not. */
	assert_int_equal(world->words[0], 1);
	assert_int_equal(world->told, 0);
	reef_sim_host_resume(world->client);
	return 0;
}

static int add_one(struct world *world)
{
	struct reef_op op = {
		.kind = REEF_FAA, .remote = world->remote, .operand = 1};
	struct reef_batch batch = {.link = world->link,
				   .ops = &op,
				   .count = 1,
				   .on_done = count_done,
				   .user = &world->told};

	return reef_run(world->queue, &batch);
}

static void hooks_paused_host_hears_of_it_later(void **state)
{
	struct world world = {.body = add_one};
	struct reef_sim_options options = {.seed = 1, .calm = true};

	(void)state;
	assert_int_equal(reef_cost_model_create(NULL, &world.model), 0);
	make(&world, &options);
	assert_int_equal(reef_fiber_spawn(reef_sim_sched(world.sim),
					  resume_client, &world, NULL),
			 0);
	assert_int_equal(reef_sim_run(world.sim, 60 * SECOND), 0);
	assert_int_equal(world.told, 1);
	reef_sim_destroy(world.sim);
	reef_cost_model_destroy(world.model);
}

static int ask(struct world *world)
{
	struct reef_message *message;
	uint64_t before_ns = reef_now_ns(), took_ns;

	assert_int_equal(send_byte(world->queue, world->link, 'a'), 0);
	assert_int_equal(reef_receive(world->queue, REEF_FOREVER, &message), 0);
	took_ns = reef_now_ns() - before_ns;
	assert_int_equal(message->bytes[0], 'b');
	reef_message_free(message);
	/* Half a round trip each way, and both contexts fetched. */
	assert_true(took_ns > 2000 && took_ns < 5000);
	return 0;
}

static void hooks_messages_go_through_both_nics(void **state)
{
	struct world world = {.body = ask, .echo = true};
	struct reef_sim_options options = {.seed = 1, .calm = true};
	struct reef_cost_stats client, server;

	(void)state;
	assert_int_equal(reef_cost_model_create(NULL, &world.model), 0);
	run(&world, options);
	assert_int_equal(reef_cost_stats(world.model, "client", &client), 0);
	assert_int_equal(reef_cost_stats(world.model, "server", &server), 0);
	assert_int_equal(client.sent, 1);
	assert_int_equal(client.received, 1);
	assert_int_equal(server.sent, 1);
	assert_int_equal(server.received, 1);
	/* The answer found the connection's context where the question had left
	 * it. */
	assert_int_equal(client.misses + server.misses, 2);
	reef_cost_model_destroy(world.model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hooks_faults_lose_nothing_and_double_nothing),
		cmocka_unit_test(
			hooks_host_killed_while_cost_holds_its_batches),
		cmocka_unit_test(
			hooks_host_killed_while_fault_holds_its_batches),
		cmocka_unit_test(hooks_paused_host_hears_of_it_later),
		cmocka_unit_test(hooks_messages_go_through_both_nics),
	};

	return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}
