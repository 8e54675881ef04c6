/* test_node_life.c - a node and its broker: registering, epochs, lives, and
 * what it asks back. */
#include "fixture/node_world.h"

#include "base/mutant.h"
#include "fixture/scratch.h"
#include "fixture/seeds.h"
#include "pool/node/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- starting, registering --- */

static int script_bad_options(struct node_world *world)
{
	struct reef_node_options good = world->machines[0].options, bad;
	struct reef_node *node;

	bad = good;
	bad.key = NULL;
	bad.listen = "sim:broker/2";
	WANT(reef_node_start(&bad, &node) == -EINVAL);
	bad.key = good.key;
	bad.capacity = 4095;
	WANT(reef_node_start(&bad, &node) == -EINVAL);
	bad.capacity = 4096;
	bad.pressure_low = 2;
	bad.pressure_high = 1;
	WANT(reef_node_start(&bad, &node) == -EINVAL);
	bad.pressure_low = 0;
	bad.mesh = world->stub.mesh;
	bad.listen = "sim:nobody/1";
	WANT(reef_node_start(&bad, &node) < 0);
	return 0;
}

static void node_life_bad_options_refused(void **state)
{
	node_script_run(script_bad_options, 1);
}

static int script_registers(struct node_world *world)
{
	const struct told *told = &world->stub.nodes[0];
	struct reef_node_status status;
	uint32_t pulses;
	uint64_t start_ns;

	AWAIT(machine_status(world, 0).link == 0);
	status = machine_status(world, 0);
	WANT(status.id == 'a');
	WANT(status.broker_epoch == 5);
	WANT(status.incarnation == told->incarnation && told->incarnation);
	WANT(told->capacity == status.capacity);
	WANT(told->rows_count == 0);
	WANT(!strcmp(told->addresses, "sim:a/1"));
	/* Four pulses in a ttl, and no second registration. */
	AWAIT(told->pulses > 0);
	pulses = told->pulses;
	start_ns = reef_now_ns();
	AWAIT(told->pulses == pulses + 8);
	WANT(reef_now_ns() - start_ns > 19 * SECOND / 10);
	WANT(reef_now_ns() - start_ns < 22 * SECOND / 10);
	WANT(told->registers == 1);
	WANT(told->pulse.node_pulse.incarnation == told->incarnation);
	return 0;
}

static void node_life_register_then_pulses(void **state)
{
	node_script_run(script_registers, 1);
}

/* The broker is away when the node starts, and goes away again. */
static int script_link_lost(struct node_world *world)
{
	const struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], incarnation = told->incarnation;

	WANT(!ask_create(world, 0, 3, EXTENT_SIZE, keys));
	WANT(!ask_create(world, 0, 9, EXTENT_SIZE, NULL));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 9, NULL));
	stub_broker_stop(&world->stub);
	AWAIT(machine_status(world, 0).link != 0);
	WANT(!reef_sleep(3 * SECOND));
	WANT(!stub_broker_start(world, 6));
	AWAIT(told->readies == 2);
	WANT(told->incarnation == incarnation);
	WANT(told->rows_count == 2);
	WANT(told->rows[0].number == 3 && told->rows[0].state == 1);
	WANT(told->rows[0].space == 1 && told->rows[0].epoch == 1);
	WANT(told->rows[0].size == EXTENT_SIZE);
	WANT(!memcmp(told->rows[0].keys, keys, sizeof(keys)));
	WANT(told->rows[1].number == 9 && told->rows[1].state == 2);
	WANT(machine_status(world, 0).broker_epoch == 6);
	/* And when only the connection is lost. */
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 3);
	WANT(told->incarnation == incarnation && told->rows_count == 2);
	return 0;
}

static void node_life_link_lost_registers_again(void **state)
{
	node_script_run(script_link_lost, 1);
}

static int script_many_extents(struct node_world *world)
{
	const struct told *told = &world->stub.nodes[0];

	for (uint32_t i = 300; i > 0; i--)
		WANT(!ask_create(world, 0, i, 4096, NULL));
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 2);
	WANT(told->rows_count == 300);
	for (uint32_t i = 0; i < 300; i++)
		WANT(told->rows[i].number == i + 1);
	return 0;
}

static void node_life_many_extents_all_told(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	node_world_init(world, 1, script_many_extents);
	world->machines[0].options.capacity = 300 * 4096;
	assert_int_equal(node_world_run_sim(world, 1), 0);
	free(world);
}

/* What REGISTER's answer tells is fenced when READY comes. */
static int script_fenced_before(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	struct borrower client;
	uint64_t keys[REEF_DOORS_MAX];
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(4), &client));
	WANT(!borrower_attach(&client, keys));
	world->stub.fenced = SESSION(4);
	world->stub.look_ready = true;
	reef_sim_lose_link(told->peer->link);
	AWAIT(told->readies == 2);
	rc = borrower_put(&client, 0, 1);
	borrower_close(&client);
	WANT(world->stub.when_ready == -REEF_EFENCED);
	WANT(rc < 0);
	return 0;
}

static void node_life_fences_told_done_before_ready(void **state)
{
	node_script_run(script_fenced_before, 1);
	assert_int_not_equal(node_script_run_with(script_fenced_before, 1,
						  REEF_MUTANT_NODE_NO_FENCE),
			     0);
}

/* --- epochs --- */

static int script_stale(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t incarnation = told->incarnation;
	uint32_t readies;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, NULL));
	/* An order under a lower epoch is refused, and its link dropped. */
	reef_rpc_set_epoch(world->stub.rpc, 4);
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) == -ESTALE);
	WANT(machine_status(world, 0).extents == 1);
	/* So is its registration, and that it was taken for dead. */
	readies = told->readies;
	world->stub.all_dead = true;
	AWAIT(told->registers >= 4);
	world->stub.all_dead = false;
	AWAIT(told->registers >= 8);
	WANT(told->readies == readies);
	WANT(told->incarnation == incarnation);
	WANT(machine_status(world, 0).link != 0);
	WANT(machine_status(world, 0).extents == 1);
	reef_rpc_set_epoch(world->stub.rpc, 7);
	AWAIT(machine_status(world, 0).link == 0);
	WANT(told->incarnation == incarnation);
	WANT(machine_status(world, 0).broker_epoch == 7);
	reef_rpc_set_epoch(world->stub.rpc, 6);
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, NULL) == -ESTALE);
	reef_rpc_set_epoch(world->stub.rpc, 7);
	AWAIT(machine_status(world, 0).link == 0);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	return 0;
}

static void node_life_stale_broker_refused(void **state)
{
	node_script_run(script_stale, 1);
	assert_int_not_equal(node_script_run_with(script_stale, 1,
						  REEF_MUTANT_NODE_STALE_EPOCH),
			     0);
}

/* --- lives --- */

static int script_new_life(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], fresh[REEF_DOORS_MAX], value = 1;
	uint64_t old = told->incarnation;
	struct borrower client, other;
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(1), &client));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_put(&client, 0, 42));
	world->stub.dead = old;
	AWAIT(told->readies == 2);
	WANT(told->incarnation != old);
	WANT(told->rows_count == 0);
	WANT(machine_status(world, 0).extents == 0);
	AWAIT(machine_status(world, 0).lent == 0);
	WANT(borrower_put(&client, 0, 43) < 0);
	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, fresh));
	WANT(!borrower_open(world, 0, SESSION(2), &other));
	WANT(borrower_attach(&other, keys) == -REEF_EKEY);
	WANT(!borrower_attach(&other, fresh));
	WANT(borrower_put(&client, 0, 44) < 0);
	rc = borrower_get(&other, 0, &value);
	borrower_close(&client);
	borrower_close(&other);
	WANT(!rc && value == 0);
	WANT(fresh[0] != keys[0]);
	return 0;
}

static void node_life_taken_for_dead_drops_all(void **state)
{
	node_script_run(script_new_life, 1);
	node_script_run_real(script_new_life, 1);
	assert_int_not_equal(node_script_run_with(script_new_life, 1,
						  REEF_MUTANT_NODE_SAME_LIFE),
			     0);
}

/* A broker takes every life for dead, for a while. */
static int script_no_life(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint32_t registers = told->registers;

	world->stub.all_dead = true;
	WANT(!reef_sleep(10 * SECOND));
	print_message("%u lives in ten seconds\n", told->registers - registers);
	WANT(told->registers - registers > 10);
	WANT(told->registers - registers < 2000);
	world->stub.all_dead = false;
	AWAIT(told->readies == 2);
	return 0;
}

static void node_life_refused_without_end_takes_its_time(void **state)
{
	node_script_run(script_no_life, 1);
}

/* A life ends while a DROP waits for a holder that stands still. */
static int script_new_life_held(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t capacity = machine_status(world, 0).capacity;
	uint64_t keys[REEF_DOORS_MAX];

	WANT(!ask_create(world, 0, 1, capacity, keys));
	WANT(!holder_attach(world, keys[0]));
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	     -ETIMEDOUT);
	world->stub.dead = told->incarnation;
	AWAIT(told->readies == 2);
	WANT(told->rows_count == 0);
	/* Its link has ended, so the memory could go. */
	AWAIT(machine_status(world, 0).lent == 0);
	WANT(!ask_create(world, 0, 1, capacity, keys));
	return 0;
}

static void node_life_taken_for_dead_while_held_comes_back(void **state)
{
	node_script_run(script_new_life_held, 1);
}

/* --- killed hosts --- */

static int script_killed(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], incarnation = told->incarnation;
	struct ask_later request = {
		.world = world, .extent = 1, .kind = REEF_POOL_EXTENT_DROP};
	struct reef_fiber *fiber;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!ask_create(world, 0, 2, EXTENT_SIZE, NULL));
	WANT(!holder_attach(world, keys[0]));
	WANT(!reef_fiber_spawn(reef_fiber_sched(), ask_fiber, &request,
			       &fiber));
	WANT(!reef_sleep(world->note[0] * MILLISECOND));
	reef_sim_host_kill(world->machines[0].host);
	AWAIT(world->machines[0].stopped);
	reef_fiber_join(fiber, NULL);
	WANT(request.result < 0);
	WANT(!reef_sim_host_restart(world->machines[0].host, machine_main,
				    &world->machines[0]));
	AWAIT(told->readies == 2);
	WANT(told->incarnation != incarnation || told->rows_count == 0);
	return 0;
}

static void node_life_host_killed_unwinds(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		node_world_init(world, 1, script_killed);
		world->note[0] = seed * 13 % 40;
		assert_int_equal(node_world_run_sim(world, seed), 0);
	}
	free(world);
}

/* Whatever it is at when its host is killed, or when it is stopped: it ends,
 * and leaves nothing behind. */
struct errand {
	struct node_world *world;
	uint32_t number;
	struct reef_fiber *fiber;
};

static int errand_fiber(void *arg)
{
	struct errand *errand = arg;
	struct node_world *world = errand->world;
	uint64_t keys[REEF_DOORS_MAX];
	uint32_t from = errand->number % 2;
	struct reef_body drop = {.ask.extent_drop.extent = errand->number};
	int rc;

	do {
		rc = ask_create(world, from, errand->number, 40000, NULL);
		if (!rc)
			rc = ask_extent(world, from, REEF_POOL_EXTENT_CLOSE,
					errand->number, keys);
		if (!rc)
			rc = ask_pull(world, 1 - from, from, errand->number,
				      40000, keys, NULL);
		if (!rc)
			rc = ask(world, from, REEF_POOL_EXTENT_DROP, &drop,
				 NULL);
		if (!rc)
			rc = ask(world, 1 - from, REEF_POOL_EXTENT_DROP, &drop,
				 NULL);
	} while (!rc);
	return 0;
}

static int script_ended(struct node_world *world)
{
	struct machine *machine = &world->machines[0];
	struct told *told = &world->stub.nodes[0];
	struct errand errands[4];
	uint64_t keys[REEF_DOORS_MAX];
	uint32_t i;

	WANT(!ask_create(world, 0, 100, EXTENT_SIZE, keys));
	WANT(!holder_attach(world, keys[0]));
	for (i = 0; i < 4; i++) {
		errands[i] = (struct errand){world, i + 1, NULL};
		WANT(!reef_fiber_spawn(reef_fiber_sched(), errand_fiber,
				       &errands[i], &errands[i].fiber));
	}
	WANT(!reef_sleep(1000 * world->note[0]));
	if (world->note[0] % 3 == 0) /* in its new life, or on the way there */
		world->stub.all_dead = true;
	WANT(!reef_sleep(100000 * world->note[0]));
	if (world->note[0] % 2)
		reef_sim_host_kill(machine->host);
	else
		machine->stop = true;
	AWAIT(machine->stopped);
	for (i = 0; i < 4; i++)
		reef_fiber_join(errands[i].fiber, NULL);
	world->stub.all_dead = false;
	if (world->note[0] % 2) {
		told->readies = 0;
		WANT(!reef_sim_host_restart(machine->host, machine_main,
					    machine));
		AWAIT(told->readies > 0);
	}
	return 0;
}

static void node_life_ended_at_any_time_unwinds(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t seed = seeds_first(); seeds_has(seed, 2 * SEEDS);
	     seed++) {
		node_world_init(world, 2, script_ended);
		world->note[0] = seed * 7 % 40;
		assert_int_equal(node_world_run_sim(world, seed), 0);
	}
	free(world);
}

/* --- chaos --- */

#define THINGS 6

/* An extent as the script believes it to be. */
struct thing {
	bool exists;
	uint32_t node, epoch;
	uint64_t value; /* its first word */
	uint64_t keys[REEF_DOORS_MAX];
};

/* Ask until there is an answer that says more than "try again". */
static int insist(struct node_world *world, uint32_t node, uint16_t kind,
		  const struct reef_body *body, uint64_t *keys)
{
	int rc;

	for (int tries = 0; tries < 10000; tries++) {
		rc = ask_for(world, node, kind, body, keys, SECOND);
		if (rc != -REEF_ENOLINK && rc != -REEF_EINDOUBT &&
		    rc != -ETIMEDOUT)
			return rc;
		if (reef_sleep(MILLISECOND))
			break;
	}
	return rc;
}

/* Write or compare the first word, whatever happens to the link. */
static int touch(struct node_world *world, const struct thing *thing,
		 bool write)
{
	struct borrower client;
	uint64_t value = thing->value;
	int rc;

	for (int tries = 0; tries < 10000; tries++) {
		rc = borrower_open(world, thing->node, SESSION(1), &client);
		if (!rc)
			rc = borrower_attach(&client, thing->keys);
		if (!rc && write)
			rc = borrower_put(&client, 0, value);
		else if (!rc)
			rc = borrower_get(&client, 0, &value);
		borrower_close(&client);
		if (!rc)
			return value == thing->value ? 0 : -EIO;
		if (rc == -REEF_EKEY || reef_sleep(MILLISECOND))
			break;
	}
	return rc;
}

static struct reef_ask_extent_create ask_of(const struct thing *thing,
					    uint32_t number)
{
	return (struct reef_ask_extent_create){
		.extent = number,
		.space = 1,
		.epoch = thing->epoch,
		.size = EXTENT_SIZE,
	};
}

static int step_create(struct node_world *world, struct thing *thing,
		       uint32_t number, uint64_t value)
{
	struct reef_body body = {0};

	*thing = (struct thing){
		.exists = true, .node = (uint32_t)(value % 2), .epoch = 1};
	body.ask.extent_create = ask_of(thing, number);
	WANT(!insist(world, thing->node, REEF_POOL_EXTENT_CREATE, &body,
		     thing->keys));
	WANT(!touch(world, thing, false)); /* zero */
	thing->value = value;
	WANT(!touch(world, thing, true));
	return 0;
}

static int step_drop(struct node_world *world, struct thing *thing,
		     uint32_t number)
{
	struct reef_body body = {.ask.extent_drop.extent = number};

	WANT(!touch(world, thing, false));
	WANT(!insist(world, thing->node, REEF_POOL_EXTENT_DROP, &body, NULL));
	WANT(touch(world, thing, false) == -REEF_EKEY);
	thing->exists = false;
	return 0;
}

/* Or to the brink of it, and back. */
static int step_move(struct node_world *world, struct thing *thing,
		     uint32_t number, bool back)
{
	const struct told *source = &world->stub.nodes[thing->node];
	struct reef_body drop = {.ask.extent_drop.extent = number};
	struct reef_body close = {.ask.extent_close.extent = number};
	struct reef_body reopen = {
		.ask.extent_reopen = {number, thing->epoch},
	};
	struct reef_body body;
	struct reef_ask_extent_pull *pull = &body.ask.extent_pull;
	uint32_t target = 1 - thing->node;
	int rc, tries = 0;

	do {
		WANT(tries++ < 1000);
		WANT(!insist(world, target, REEF_POOL_EXTENT_DROP, &drop,
			     NULL));
		WANT(!insist(world, thing->node, REEF_POOL_EXTENT_CLOSE, &close,
			     thing->keys));
		if (back)
			break;
		body = (struct reef_body){0};
		pull->copy = ask_of(thing, number);
		pull->copy.epoch++;
		pull->domain = source->domain;
		pull->addresses.bytes = source->addresses;
		pull->addresses.size = (uint16_t)strlen(source->addresses);
		memcpy(pull->keys, thing->keys, sizeof(pull->keys));
		WANT(!prove_pull(world, thing->node, pull));
		rc = ask_for(world, target, REEF_POOL_EXTENT_PULL, &body,
			     thing->keys, SECOND);
	} while (rc);
	if (back) {
		WANT(!insist(world, thing->node, REEF_POOL_EXTENT_REOPEN,
			     &reopen, thing->keys));
	} else {
		WANT(!insist(world, thing->node, REEF_POOL_EXTENT_DROP, &drop,
			     NULL));
		thing->node = target;
		thing->epoch++;
	}
	WANT(!touch(world, thing, false));
	return 0;
}

static int script_chaos(struct node_world *world)
{
	struct reef_random *random = reef_sim_random(world->sim);
	struct thing things[THINGS] = {0};
	uint32_t i, at, count[2] = {0, 0}, registers[2];
	uint32_t numbers[THINGS] = {0}; /* are given once */
	int rc;

	for (i = 0; i < 60; i++) {
		at = (uint32_t)reef_random_below(random, THINGS);
		if (!things[at].exists)
			numbers[at] = i + 1;
		if (!things[at].exists)
			rc = step_create(world, &things[at], numbers[at],
					 i + 1);
		else if (reef_random_chance(random, 1, 3))
			rc = step_drop(world, &things[at], numbers[at]);
		else
			rc = step_move(world, &things[at], numbers[at],
				       reef_random_chance(random, 1, 2));
		if (rc)
			return rc;
	}
	for (at = 0; at < THINGS; at++)
		count[things[at].node] += things[at].exists;
	for (i = 0; i < 2; i++) {
		AWAIT(machine_status(world, i).lent == count[i] * EXTENT_SIZE);
		/* What it tells then is just that. */
		registers[i] = world->stub.nodes[i].readies;
		AWAIT(machine_status(world, i).link == 0);
		if (world->stub.nodes[i].peer->link)
			reef_sim_lose_link(world->stub.nodes[i].peer->link);
		AWAIT(world->stub.nodes[i].readies > registers[i]);
		WANT(world->stub.nodes[i].rows_count == count[i]);
	}
	return 0;
}

static void node_life_lost_links_change_nothing(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		node_world_init(world, 2, script_chaos);
		world->lose_link_ppm = 5000 * (seed % 5);
		assert_int_equal(node_world_run_sim(world, seed), 0);
	}
	free(world);
}

/* --- pressure --- */

static int script_pressure(struct node_world *world)
{
	struct told *told = &world->stub.nodes[0];
	uint32_t pulses;

	for (uint32_t i = 1; i <= 10; i++)
		WANT(!ask_create(world, 0, i, EXTENT_SIZE, NULL));
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == 0);
	WANT(told->pulse.node_pulse.lent == 10 * EXTENT_SIZE);
	world->available = 19000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == 40000 - 19000);
	WANT(told->pulse.node_pulse.machine_free == 19000);
	/* Between the two marks it goes on asking... */
	world->available = 30000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == 10000);
	world->available = 40000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == 0);
	/* ... but does not begin. */
	world->available = 30000;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == 0);
	/* Never more than it has lent. */
	for (uint32_t i = 2; i <= 10; i++)
		WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, i, NULL));
	world->available = 0;
	pulses = told->pulses;
	AWAIT(told->pulses >= pulses + 2);
	WANT(told->pulse.node_pulse.wanted == EXTENT_SIZE);
	return 0;
}

static void node_life_pressure_asks_between_marks(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	node_world_init(world, 1, script_pressure);
	world->machines[0].options.pressure_low = 20000;
	world->machines[0].options.pressure_high = 40000;
	assert_int_equal(node_world_run_sim(world, 1), 0);
	free(world);
}

static void put_file(const char *path, const char *text)
{
	scratch_write(path, text, strlen(text), 0600);
}

static void node_life_available_least_of_machine_and_cgroups(void **state)
{
	const char *root = scratch;

	assert_true(node_available(root) == UINT64_MAX);
	put_file("proc/meminfo", "MemTotal:  100 kB\nMemAvailable:   90 kB\n");
	assert_int_equal(node_available(root), 90 << 10);
	put_file("proc/self/cgroup", "0::/one/two\n");
	put_file("sys/fs/cgroup/one/two/memory.max", "max\n");
	put_file("sys/fs/cgroup/one/two/memory.current", "5000\n");
	assert_int_equal(node_available(root), 90 << 10);
	/* The one above has a limit. */
	put_file("sys/fs/cgroup/one/memory.max", "50000\n");
	put_file("sys/fs/cgroup/one/memory.current", "20000\n");
	assert_int_equal(node_available(root), 30000);
	put_file("sys/fs/cgroup/one/memory.stat",
		 "anon 1\ninactive_file 4000\nactive_file 2\n");
	assert_int_equal(node_available(root), 34000);
	put_file("sys/fs/cgroup/one/memory.current", "60000\n");
	assert_int_equal(node_available(root), 0);
	/* The older version. */
	put_file("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/y\n");
	put_file("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "8000\n");
	put_file("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "3000\n");
	put_file("sys/fs/cgroup/memory/y/memory.stat",
		 "total_inactive_file 500\n");
	assert_int_equal(node_available(root), 5500);
	/* And what this machine says. */
	assert_true(node_available("") > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_life_bad_options_refused),
		cmocka_unit_test(node_life_register_then_pulses),
		cmocka_unit_test(node_life_link_lost_registers_again),
		cmocka_unit_test(node_life_many_extents_all_told),
		cmocka_unit_test(node_life_fences_told_done_before_ready),
		cmocka_unit_test(node_life_stale_broker_refused),
		cmocka_unit_test(node_life_taken_for_dead_drops_all),
		cmocka_unit_test(node_life_refused_without_end_takes_its_time),
		cmocka_unit_test(
			node_life_taken_for_dead_while_held_comes_back),
		cmocka_unit_test(node_life_host_killed_unwinds),
		cmocka_unit_test(node_life_ended_at_any_time_unwinds),
		cmocka_unit_test(node_life_lost_links_change_nothing),
		cmocka_unit_test(node_life_pressure_asks_between_marks),
		cmocka_unit_test_setup_teardown(
			node_life_available_least_of_machine_and_cgroups,
			scratch_make, scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
