/* test_sim_wait.c - hosts of the simulator that wait for what no fabric brings:
 * they look again when somebody wakes them, and end with their host. */
#include "fixture/seeds.h"
#include "fixture/sim_world.h"

#define SEEDS 40

/* Two fibers of a host count up by turns; each waits in its own queue. */
struct turns {
	uint32_t count, last;
	struct reef_queue *queues[2];
	int results[2];
	uint64_t passed_ns;
};

struct turn {
	struct turns *turns;
	uint32_t mine;
};

static bool turn_is_mine(const void *what)
{
	const struct turn *turn = what;

	return turn->turns->count >= turn->mine;
}

static int take_turns(struct turns *turns, uint32_t self)
{
	struct turn turn = {turns, self};
	int rc = 0;

	for (; !rc && turn.mine < turns->last; turn.mine += 2) {
		rc = reef_queue_wait_until(turns->queues[self], turn_is_mine,
					   &turn, REEF_FOREVER);
		if (rc)
			break;
		turns->count++;
		reef_queue_wake(turns->queues[1 - self]);
	}
	return turns->results[self] = rc;
}

static int second_fiber(void *arg)
{
	return take_turns(arg, 1);
}

static int turns_main(struct reef_sim_host *host, void *arg)
{
	struct turns *turns = arg;
	uint64_t start_ns = reef_now_ns();
	struct reef_fabric *fabric;
	struct reef_fiber *other;
	int i, rc;

	rc = reef_fabric_open("sim", NULL, &fabric);
	if (rc)
		return rc;
	for (i = 0; i < 2 && !rc; i++)
		rc = reef_queue_open(fabric, NULL, &turns->queues[i]);
	if (!rc)
		rc = reef_fiber_spawn(reef_fiber_sched(), second_fiber, turns,
				      &other);
	if (!rc) {
		take_turns(turns, 0);
		rc = reef_fiber_join(other, NULL);
	}
	turns->passed_ns = reef_now_ns() - start_ns;
	for (i = 0; i < 2; i++)
		reef_queue_close(turns->queues[i]);
	reef_fabric_close(fabric);
	return rc;
}

/* Returns the trace's hash. */
static uint64_t play_turns(struct turns *turns, uint64_t seed)
{
	struct reef_sim_options options = {.seed = seed};
	struct reef_sim *sim;
	uint64_t hash;

	assert_int_equal(reef_sim_create(&options, &sim), 0);
	assert_int_equal(
		reef_sim_host_add(sim, "host", turns_main, turns, NULL), 0);
	assert_int_equal(reef_sim_run(sim, SECOND), 0);
	hash = reef_sim_trace_hash(sim);
	reef_sim_destroy(sim);
	return hash;
}

static void sim_wake_lets_waiters_look_again(void **state)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, SEEDS); seed++) {
		struct turns turns = {.last = 100, .results = {1, 1}};
		struct turns again = {.last = 100, .results = {1, 1}};
		uint64_t hash = play_turns(&turns, seed);

		assert_int_equal(turns.results[0], 0);
		assert_int_equal(turns.results[1], 0);
		assert_int_equal(turns.count, 100);
		/* It needs no time, and is the same each time. */
		assert_int_equal(turns.passed_ns, 0);
		assert_int_equal(play_turns(&again, seed), hash);
	}
}

/* One waits, and another host's fiber plays with it. */
struct gate {
	bool open, kill;
	struct reef_sim_host *host;
	struct reef_queue *queue;
	int result, while_paused;
};

static bool gate_is_open(const void *what)
{
	return ((const struct gate *)what)->open;
}

static int gate_main(struct reef_sim_host *host, void *arg)
{
	struct gate *gate = arg;
	struct reef_fabric *fabric;
	int rc;

	rc = reef_fabric_open("sim", NULL, &fabric);
	if (rc)
		return rc;
	rc = reef_queue_open(fabric, NULL, &gate->queue);
	if (!rc)
		gate->result = reef_queue_wait_until(gate->queue, gate_is_open,
						     gate, REEF_FOREVER);
	reef_queue_close(gate->queue);
	reef_fabric_close(fabric);
	return rc;
}

static int keeper_main(struct reef_sim_host *host, void *arg)
{
	struct gate *gate = arg;
	int rc = reef_sleep(MILLISECOND);

	if (gate->kill)
		reef_sim_host_kill(gate->host);
	else
		reef_sim_host_pause(gate->host);
	gate->open = !gate->kill;
	reef_queue_wake(gate->queue);
	if (!rc && !gate->kill)
		rc = reef_sleep(MILLISECOND);
	gate->while_paused = gate->result;
	reef_sim_host_resume(gate->host);
	return rc;
}

static void play_gate(struct gate *gate)
{
	struct reef_sim_options options = {.seed = 1};
	struct reef_sim *sim;

	gate->result = 1;
	assert_int_equal(reef_sim_create(&options, &sim), 0);
	assert_int_equal(
		reef_sim_host_add(sim, "gate", gate_main, gate, &gate->host),
		0);
	assert_int_equal(
		reef_sim_host_add(sim, "keeper", keeper_main, gate, NULL), 0);
	assert_int_equal(reef_sim_run(sim, SECOND), 0);
	reef_sim_destroy(sim);
	assert_int_equal(gate->while_paused, 1);
}

static void sim_wake_of_a_paused_host_waits_for_it(void **state)
{
	struct gate gate = {.open = false};

	play_gate(&gate);
	assert_int_equal(gate.result, 0);
}

static void sim_wait_until_ends_with_its_host(void **state)
{
	struct gate gate = {.kill = true};

	play_gate(&gate);
	assert_int_equal(gate.result, -REEF_EHOSTDEAD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sim_wake_lets_waiters_look_again),
		cmocka_unit_test(sim_wake_of_a_paused_host_waits_for_it),
		cmocka_unit_test(sim_wait_until_ends_with_its_host),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
