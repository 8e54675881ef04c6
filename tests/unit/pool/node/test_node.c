/* test_node.c - a node: what it lends, to whom, and how it is taken back.
 *
 * Most node_script_run in simulation, some of them also for real; those that a
 * mutant is to break are node_script_run with it, too. */
#include "fixture/node_world.h"

#include "base/mutant.h"
#include "fabric/provider.h"
#include "pool/node/internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- extents --- */

static int script_create(struct node_world *world)
{
	uint64_t keys[REEF_DOORS_MAX], again[REEF_DOORS_MAX];
	struct reef_body other = {
		.ask.extent_create = {.extent = 1,
				      .space = 2,
				      .epoch = 1,
				      .size = EXTENT_SIZE},
	};

	WANT(ask_create(world, 0, 1, 0, NULL) == -EINVAL);
	WANT(machine_status(world, 0).extents == 0);
	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, again));
	WANT(!memcmp(keys, again, sizeof(keys)) && keys[0]);
	WANT(ask_create(world, 0, 1, 2 * EXTENT_SIZE, NULL) == -EEXIST);
	WANT(ask(world, 0, REEF_POOL_EXTENT_CREATE, &other, NULL) == -EEXIST);
	WANT(machine_status(world, 0).lent == EXTENT_SIZE);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(machine_status(world, 0).lent == 0);
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, NULL) == -ENOENT);
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_REOPEN, 1, NULL) == -ENOENT);
	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, again));
	WANT(keys[0] != again[0]);
	WANT(!world->real || (keys[0] != again[1] && keys[1] && again[1]));
	return 0;
}

static void node_create_repeated_same_keys(void **state)
{
	node_script_run(script_create, 1);
	node_script_run_real(script_create, 1);
}

static int script_capacity(struct node_world *world)
{
	uint64_t capacity = machine_status(world, 0).capacity;
	uint32_t number = 1;

	WANT(ask_create(world, 0, 500, capacity + 1, NULL) == -ENOSPC);
	WANT(ask_create(world, 0, 500, UINT64_MAX, NULL) == -ENOSPC);
	WANT(ask_create(world, 0, 500, UINT64_MAX - 4000, NULL) == -ENOSPC);
	/* Odd sizes take whole pages. */
	while (!ask_create(world, 0, number, 5000, NULL))
		number++;
	WANT(number == capacity / EXTENT_SIZE + 1);
	WANT(machine_status(world, 0).lent == capacity);
	WANT(ask_create(world, 0, 500, 1, NULL) == -ENOSPC);
	WANT(machine_status(world, 0).extents == number - 1);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 7, NULL));
	WANT(!ask_create(world, 0, 500, EXTENT_SIZE, NULL));
	WANT(machine_status(world, 0).lent == capacity);
	return 0;
}

static void node_capacity_never_exceeded(void **state)
{
	node_script_run(script_capacity, 1);
	node_script_run_real(script_capacity, 1);
}

static int script_fresh(struct node_world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value;
	struct borrower client;

	WANT(!borrower_open(world, 0, SESSION(1), &client));
	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_put(&client, 8, 42));
	reef_detach(client.queue, client.remote);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!ask_create(world, 0, 2, EXTENT_SIZE, keys));
	WANT(!borrower_attach(&client, keys));
	value = 1;
	WANT(!borrower_get(&client, 8, &value));
	borrower_close(&client);
	WANT(value == 0);
	return 0;
}

static void node_dropped_memory_fresh_again(void **state)
{
	node_script_run(script_fresh, 1);
	node_script_run_real(script_fresh, 1);
	assert_int_not_equal(
		node_script_run_with(script_fresh, 1, REEF_MUTANT_NODE_DIRTY),
		0);
}

/* --- holders --- */

static int script_holder(struct node_world *world)
{
	uint64_t capacity = machine_status(world, 0).capacity, start_ns;
	uint64_t keys[REEF_DOORS_MAX];

	WANT(!ask_create(world, 0, 1, capacity, keys));
	WANT(!holder_attach(world, keys[0]));
	/* It is told, and does not answer; neither does the DROP. */
	start_ns = reef_now_ns();
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	     -ETIMEDOUT);
	WANT(reef_now_ns() - start_ns < 5 * SECOND);
	WANT(machine_status(world, 0).lent == capacity);
	WANT(ask_create(world, 0, 2, 4096, NULL) == -ENOSPC);
	/* Nobody else gets in meanwhile. */
	{
		struct borrower late;

		WANT(!borrower_open(world, 0, SESSION(3), &late));
		WANT(borrower_attach(&late, keys) == -REEF_EKEY);
		borrower_close(&late);
	}
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	     -ETIMEDOUT);
	WANT(machine_status(world, 0).lent == capacity);
	/* The fence ends it, and with it the drop. */
	WANT(!ask_fence(world, 0, HOLDER));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(machine_status(world, 0).lent == 0);
	WANT(!ask_create(world, 0, 2, capacity, NULL));
	return 0;
}

static void node_drop_waits_for_holder(void **state)
{
	node_script_run(script_holder, 1);
}

/* Several ask for the same; then for something else. All wait for one holder,
 * and get one outcome. */
static int script_joined(struct node_world *world)
{
	struct reef_fiber *fibers[4];
	struct ask_later requests[4];
	uint64_t keys[REEF_DOORS_MAX];
	int i;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!holder_attach(world, keys[0]));
	for (i = 0; i < 4; i++) {
		requests[i] = (struct ask_later){.world = world,
						 .kind = REEF_POOL_EXTENT_CLOSE,
						 .extent = 1,
						 .result = 1};
		WANT(!reef_fiber_spawn(reef_fiber_sched(), ask_fiber,
				       &requests[i], &fibers[i]));
	}
	WANT(!reef_sleep(SECOND));
	for (i = 0; i < 4; i++)
		WANT(requests[i].result == 1);
	WANT(!ask_fence(world, 0, HOLDER));
	for (i = 0; i < 4; i++) {
		reef_fiber_join(fibers[i], NULL);
		WANT(requests[i].result == 0);
		WANT(!memcmp(requests[i].keys, requests[0].keys, sizeof(keys)));
		WANT(requests[i].keys[0] != keys[0]);
	}
	return 0;
}

static void node_close_repeated_joins(void **state)
{
	node_script_run(script_joined, 1);
}

#define CROWD 1000

/* Asks as a broker does: again and again, after a pause. */
static int ask_patiently(void *arg)
{
	struct ask_later *request = arg;
	int rc;

	do
		rc = ask_extent(request->world, 0, request->kind,
				request->extent, NULL);
	while ((rc == -ETIMEDOUT || rc == -EBUSY) &&
	       !reef_sleep(100 * MILLISECOND));
	return 0;
}

/* A thousand requests wait for a holder, and none of them has a fiber; whoever
 * asks for something else is answered at once. */
static int script_crowd(struct node_world *world)
{
	static const uint16_t kinds[] = {REEF_POOL_EXTENT_CLOSE,
					 REEF_POOL_EXTENT_DROP,
					 REEF_POOL_EXTENT_REOPEN};
	uint64_t keys[REEF_DOORS_MAX], start_ns;
	struct ask_later requests[3];
	struct reef_fiber *fibers[CROWD];
	struct borrower other;
	uint32_t before, most = 0, i;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!holder_attach(world, keys[0]));
	WANT(!borrower_open(world, 0, SESSION(5), &other));
	before = reef_sched_fibers(reef_fiber_sched());
	for (i = 0; i < 3; i++)
		requests[i] = (struct ask_later){
			.world = world, .extent = 1, .kind = kinds[i]};
	for (i = 0; i < CROWD; i++)
		WANT(!reef_fiber_spawn(reef_fiber_sched(), ask_patiently,
				       &requests[i % 3], &fibers[i]));
	for (i = 0; i < 50; i++) {
		WANT(!reef_sleep(10 * MILLISECOND));
		start_ns = reef_now_ns();
		WANT(!ask_create(world, 0, 100 + i, EXTENT_SIZE, NULL));
		WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 100 + i,
				 NULL));
		WANT(!ask_fence(world, 0, SESSION(5 + i)));
		WANT(!ask_end(world, 0, SESSION(200), 1));
		WANT(reef_now_ns() - start_ns < SECOND / 2);
		if (reef_sched_fibers(reef_fiber_sched()) - before > most)
			most = reef_sched_fibers(reef_fiber_sched()) - before;
	}
	borrower_close(&other);
	/* Requests on their way have one for a moment. */
	WANT(most < CROWD + CROWD / 4);
	WANT(!ask_fence(world, 0, HOLDER));
	for (i = 0; i < CROWD; i++)
		reef_fiber_join(fibers[i], NULL);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(machine_status(world, 0).extents == 0);
	return 0;
}

static void node_crowd_that_waits_disturbs_nobody(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	node_world_init(world, 1, script_crowd);
	assert_int_equal(node_world_run_sim(world, 1), 0);
	free(world);
}

/* A holder that is quick lets go of it by itself. */
static int script_polite(struct node_world *world)
{
	uint64_t keys[REEF_DOORS_MAX], value;
	struct borrower client;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(1), &client));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_put(&client, 0, 1));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(borrower_put(&client, 0, 2) == -REEF_EKEY);
	WANT(borrower_get(&client, 0, &value) == -REEF_EKEY);
	WANT(machine_status(world, 0).lent == 0);
	borrower_close(&client);
	return 0;
}

static void node_drop_while_held_refuses_holder(void **state)
{
	node_script_run(script_polite, 1);
	node_script_run_real(script_polite, 1);
}

/* --- fences --- */

static int script_fence(struct node_world *world)
{
	static const char *const fabrics[] = {"shm", "tcp"};
	uint64_t keys[REEF_DOORS_MAX], value = 0;
	struct borrower client, witness;
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(9), &witness));
	WANT(!borrower_attach(&witness, keys));
	for (uint32_t i = 0; i < (world->real ? 2 : 1); i++) {
		WANT(!borrower_open_over(world, 0, SESSION(1 + i),
					 world->real ? fabrics[i] : NULL,
					 &client));
		WANT(!borrower_attach(&client, keys));
		WANT(!borrower_put(&client, 0, 1));
		WANT(!ask_fence(world, 0, SESSION(1 + i)));
		rc = borrower_put(&client, 0, 2);
		borrower_close(&client);
		WANT(!borrower_get(&witness, 0, &value));
		WANT(rc < 0 && value == 1);
		WANT(!ask_fence(world, 0, SESSION(1 + i)));
		WANT(borrower_try(world, SESSION(1 + i)) == -REEF_EFENCED);
	}
	WANT(ask_fence(world, 0, 0) == -EINVAL);
	WANT(!borrower_put(&witness, 0, 3));
	borrower_close(&witness);
	return 0;
}

static void node_fence_nothing_more_happens(void **state)
{
	node_script_run(script_fence, 1);
	node_script_run_real(script_fence, 1);
	assert_int_not_equal(node_script_run_with(script_fence, 1,
						  REEF_MUTANT_NODE_NO_FENCE),
			     0);
}

/* --- lost links --- */

/* Links of a session up to a number end on every fabric; the session goes on
 * with a higher number, over any of them. */
static int script_end(struct node_world *world)
{
	static const char *const fabrics[] = {"shm", "tcp"};
	uint64_t keys[REEF_DOORS_MAX], value = 0;
	struct borrower client, witness;
	int rc;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, keys));
	WANT(!borrower_open(world, 0, SESSION(9), &witness));
	WANT(!borrower_attach(&witness, keys));
	for (uint32_t i = 0; i < (world->real ? 2 : 1); i++) {
		world->number = 10 * i + 5;
		WANT(!borrower_open_over(world, 0, SESSION(1),
					 world->real ? fabrics[i] : NULL,
					 &client));
		WANT(!borrower_attach(&client, keys));
		WANT(!ask_end(world, 0, SESSION(1), world->number - 1));
		WANT(!ask_end(world, 0, SESSION(2), world->number));
		WANT(!borrower_put(&client, 0, 1));
		/* On shm the holder has to let go, so it is closed first. */
		if (world->real && i == 0)
			borrower_close(&client);
		WANT(!ask_end(world, 0, SESSION(1), world->number));
		rc = client.link ? borrower_put(&client, 0, 2) : -1;
		borrower_close(&client);
		WANT(!borrower_get(&witness, 0, &value));
		WANT(rc < 0 && value == 1);
		WANT(!ask_end(world, 0, SESSION(1), world->number));
		WANT(borrower_try(world, SESSION(1)) == -ESTALE);
	}
	WANT(ask_end(world, 0, SESSION(1), 0) == -EINVAL);
	WANT(ask_end(world, 0, 0, 1) == -EINVAL);
	WANT(!borrower_put(&witness, 0, 3));
	borrower_close(&witness);
	return 0;
}

static void node_end_links_nothing_of_them_happens(void **state)
{
	node_script_run(script_end, 1);
	node_script_run_real(script_end, 1);
}

/* --- moving --- */

#define MOVED_SIZE (5u << 20)

static void fill(uint8_t *bytes, uint32_t size)
{
	struct reef_random random;

	reef_random_init(&random, 17);
	reef_random_fill(&random, bytes, size);
}

static int compare_with(struct node_world *world, uint32_t node,
			const uint64_t *keys, const uint8_t *bytes,
			uint32_t size)
{
	struct borrower client;
	uint8_t *read = malloc(size);
	int rc;

	WANT(read);
	rc = borrower_open(world, node, SESSION(2), &client);
	if (!rc)
		rc = borrower_attach(&client, keys);
	if (!rc)
		rc = borrower_op(&client, REEF_READ, 0, read, size);
	if (!rc)
		rc = memcmp(read, bytes, size);
	borrower_close(&client);
	free(read);
	return rc;
}

static int move(struct node_world *world, uint8_t *bytes, uint32_t size)
{
	uint64_t keys[REEF_DOORS_MAX], offer[REEF_DOORS_MAX];
	uint64_t again[REEF_DOORS_MAX], moved[REEF_DOORS_MAX];
	struct borrower client;

	WANT(!ask_create(world, 0, 1, size, keys));
	WANT(!borrower_open(world, 0, SESSION(1), &client));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_op(&client, REEF_WRITE, 0, bytes, size));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, offer));
	WANT(offer[0] != keys[0]);
	WANT(borrower_put(&client, 0, 7) == -REEF_EKEY);
	WANT(borrower_attach(&client, keys) == -REEF_EKEY);
	borrower_close(&client);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, again));
	WANT(!memcmp(offer, again, sizeof(offer)));
	WANT(ask_create(world, 0, 1, size, NULL) == -EBUSY);
	WANT(!ask_pull(world, 1, 0, 1, size, offer, moved));
	WANT(!ask_pull(world, 1, 0, 1, size, offer, again));
	WANT(!memcmp(moved, again, sizeof(moved)));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(machine_status(world, 0).lent == 0);
	WANT(machine_status(world, 1).extents == 1);
	WANT(!compare_with(world, 1, moved, bytes, size));
	/* And back: under the next epoch, so the first pull's is another. */
	WANT(!ask_extent(world, 1, REEF_POOL_EXTENT_CLOSE, 1, offer));
	world->moves = 1;
	WANT(!ask_pull(world, 0, 1, 1, size, offer, moved));
	world->moves = 0;
	WANT(!compare_with(world, 0, moved, bytes, size));
	/* The source changes its mind: the offer is void. */
	WANT(!ask_extent(world, 1, REEF_POOL_EXTENT_REOPEN, 1, keys));
	WANT(!ask_extent(world, 1, REEF_POOL_EXTENT_REOPEN, 1, again));
	WANT(!memcmp(keys, again, sizeof(keys)));
	WANT(keys[0] != offer[0]);
	WANT(!compare_with(world, 1, keys, bytes, size));
	WANT(compare_with(world, 1, offer, bytes, size) == -REEF_EKEY);
	return 0;
}

static int script_move(struct node_world *world)
{
	uint32_t size = world->real ? MOVED_SIZE : 40000;
	uint8_t *bytes = malloc(size);
	int rc;

	WANT(bytes);
	fill(bytes, size);
	rc = move(world, bytes, size);
	free(bytes);
	return rc;
}

static void node_move_brings_every_byte(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	node_script_run(script_move, 2);
	assert_non_null(world);
	node_world_init(world, 2, script_move);
	world->machines[0].options.capacity = MOVED_SIZE;
	world->machines[1].options.capacity = MOVED_SIZE;
	assert_int_equal(node_world_run_real(world), 0);
	free(world);
}

static int script_bad_pulls(struct node_world *world)
{
	uint64_t keys[REEF_DOORS_MAX], wrong[REEF_DOORS_MAX] = {1, 2, 3, 4};

	WANT(!ask_create(world, 0, 1, 40000, NULL));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, keys));
	WANT(ask_pull(world, 1, 0, 1, 40000, wrong, NULL) == -REEF_EKEY);
	WANT(machine_status(world, 1).lent == 0);
	WANT(machine_status(world, 1).extents == 0);
	/* More than the source has. */
	WANT(ask_pull(world, 1, 0, 1, 50000, keys, NULL) == -ERANGE);
	WANT(ask_pull(world, 1, 0, 1, 2 << 20, keys, NULL) == -ENOSPC);
	WANT(machine_status(world, 1).lent == 0);
	WANT(machine_status(world, 1).extents == 0);
	/* Its own number is taken by something else. */
	WANT(!ask_create(world, 1, 1, 40000, NULL));
	WANT(ask_pull(world, 1, 0, 1, 40000, keys, NULL) == -EEXIST);
	WANT(!ask_extent(world, 1, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!ask_pull(world, 1, 0, 1, 40000, keys, NULL));
	return 0;
}

static void node_failed_pull_leaves_nothing(void **state)
{
	node_script_run(script_bad_pulls, 2);
}

struct pull {
	struct node_world *world;
	uint64_t size;
	uint64_t keys[REEF_DOORS_MAX];
	int result;
};

static int pull_fiber(void *arg)
{
	struct pull *pull = arg;

	pull->result =
		ask_pull(pull->world, 1, 0, 1, pull->size, pull->keys, NULL);
	return 0;
}

/* The source dies, or the target is told to drop it, while it pulls. */
static int script_pull_cut(struct node_world *world)
{
	uint64_t size = 16u << 20;
	struct pull pulls[2];
	struct reef_fiber *fibers[2];
	int i;

	WANT(!ask_create(world, 0, 1, size, NULL));
	memset(pulls, 0, sizeof(pulls));
	pulls[0].world = world;
	pulls[0].size = size;
	pulls[0].result = 1;
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, pulls[0].keys));
	pulls[1] = pulls[0];
	for (i = 0; i < 2; i++)
		WANT(!reef_fiber_spawn(reef_fiber_sched(), pull_fiber,
				       &pulls[i], &fibers[i]));
	for (i = 0; i < 1000 && machine_status(world, 1).lent == 0; i++)
		WANT(!reef_sleep(MILLISECOND / 100));
	WANT(machine_status(world, 1).lent == size);
	WANT(pulls[0].result == 1);
	if (world->note[0] == 0)
		reef_sim_host_kill(world->machines[0].host);
	else
		WANT(!ask_extent(world, 1, REEF_POOL_EXTENT_DROP, 1, NULL));
	for (i = 0; i < 2; i++) {
		reef_fiber_join(fibers[i], NULL);
		/* The drop may have come when it was done. */
		WANT(pulls[i].result < 0 || world->note[0]);
	}
	/* A dead source is noticed when it has been silent for a while. */
	AWAIT(machine_status(world, 1).lent == 0);
	WANT(machine_status(world, 1).extents == 0);
	return 0;
}

static void node_pull_cut_short_leaves_nothing(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	for (uint64_t i = 0; i < 8; i++) {
		node_world_init(world, 2, script_pull_cut);
		world->note[0] = i % 2;
		world->machines[0].options.capacity = 64 << 20;
		world->machines[1].options.capacity = 64 << 20;
		assert_int_equal(node_world_run_sim(world, i), 0);
	}
	free(world);
}

/* --- for real: shm costs the node nothing --- */

struct rider {
	struct node_world *world;
	uint64_t keys[REEF_DOORS_MAX];
	int result;
	_Atomic bool mounted, go, arrived, leave;
};

static int ride_along(struct rider *rider, struct borrower *client)
{
	uint64_t value;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < 20000; i++) {
		rc = borrower_put(client, 8 * (i % 100), i);
		if (!rc)
			rc = borrower_get(client, 8 * (i % 100), &value);
		if (!rc && value != i)
			rc = -EIO;
	}
	return rc;
}

/* Outside any fiber, on a thread of its own, while the node's stands still. */
static void *ride(void *arg)
{
	struct rider *rider = arg;
	struct borrower client;
	int rc;

	rc = borrower_open_over(rider->world, 0, SESSION(5), "shm", &client);
	if (!rc)
		rc = borrower_attach(&client, rider->keys);
	rider->mounted = true;
	while (!rider->go)
		reef_sleep(MILLISECOND / 10);
	rider->result = rc ? rc : ride_along(rider, &client);
	rider->arrived = true;
	while (!rider->leave)
		reef_sleep(MILLISECOND / 10);
	borrower_close(&client);
	return NULL;
}

static int script_no_cpu(struct node_world *world)
{
	struct reef_rpc_counts before, after;
	struct reef_node *node = world->machines[0].node;
	struct rider rider = {.world = world, .result = 1};
	pthread_t thread;
	int polled;

	WANT(!ask_create(world, 0, 1, EXTENT_SIZE, rider.keys));
	WANT(!pthread_create(&thread, NULL, ride, &rider));
	AWAIT(rider.mounted);
	while (reef_port_poll(node->port) > 0)
		;
	reef_rpc_counts(node->rpc, &before);
	rider.go = true;
	/* No fiber of this thread runs until the rider is done. */
	while (!rider.arrived)
		;
	polled = reef_port_poll(node->port);
	reef_rpc_counts(node->rpc, &after);
	rider.leave = true;
	AWAIT(machine_status(world, 0).links == 0);
	pthread_join(thread, NULL);
	WANT(rider.result == 0);
	WANT(polled == 0);
	WANT(before.handled == after.handled);
	return 0;
}

static void node_shm_traffic_costs_node_nothing(void **state)
{
	node_script_run_real(script_no_cpu, 1);
}

/* As if it were a network card's. */
static int set_apart(void *context, struct reef_fabric *fabric)
{
	if (!strcmp(reef_fabric_kind(fabric), "tcp"))
		fabric->domain++;
	return 0;
}

/* All doors of a node are of one domain, or it does not start. */
static int script_domains(struct node_world *world)
{
	struct reef_mesh_options apart = {.kinds = "shm tcp",
					  .opened = set_apart};
	struct reef_node_options options = world->machines[0].options;
	struct reef_node *node;
	char listen[128];
	int rc;

	WANT(!reef_mesh_open(&apart, &options.mesh));
	snprintf(listen, sizeof(listen), "shm:%s/b tcp:127.0.0.1:0",
		 world->directory);
	options.listen = listen;
	options.broker = world->stub.address;
	rc = reef_node_start(&options, &node);
	if (!rc)
		reef_node_stop(node);
	reef_mesh_close(options.mesh);
	WANT(rc == -REEF_EDOMAIN);
	return 0;
}

static void node_doors_of_two_domains_refused(void **state)
{
	node_script_run_real(script_domains, 1);
}

static int script_huge(struct node_world *world)
{
	struct reef_node_status status;
	int rc = ask_create(world, 0, 1, 4 << 20, NULL);

	WANT(!rc);
	WANT(!ask_create(world, 0, 2, 4096, NULL));
	status = machine_status(world, 0);
	WANT(status.lent == (4 << 20) + 4096);
	/* Only where there are any, and never for the odd one. */
	WANT(status.huge == 0 || status.huge == 4 << 20);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(machine_status(world, 0).huge == 0);
	WANT(machine_status(world, 0).lent == 4096);
	return 0;
}

static void node_huge_pages_counted_truly(void **state)
{
	struct node_world *world = malloc(sizeof(*world));

	assert_non_null(world);
	node_world_init(world, 1, script_huge);
	world->machines[0].options.capacity = (4 << 20) + 4096;
	world->machines[0].options.huge_pages = true;
	assert_int_equal(node_world_run_real(world), 0);
	free(world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_create_repeated_same_keys),
		cmocka_unit_test(node_capacity_never_exceeded),
		cmocka_unit_test(node_dropped_memory_fresh_again),
		cmocka_unit_test(node_drop_waits_for_holder),
		cmocka_unit_test(node_close_repeated_joins),
		cmocka_unit_test(node_crowd_that_waits_disturbs_nobody),
		cmocka_unit_test(node_drop_while_held_refuses_holder),
		cmocka_unit_test(node_fence_nothing_more_happens),
		cmocka_unit_test(node_end_links_nothing_of_them_happens),
		cmocka_unit_test(node_move_brings_every_byte),
		cmocka_unit_test(node_failed_pull_leaves_nothing),
		cmocka_unit_test(node_pull_cut_short_leaves_nothing),
		cmocka_unit_test(node_shm_traffic_costs_node_nothing),
		cmocka_unit_test(node_doors_of_two_domains_refused),
		cmocka_unit_test(node_huge_pages_counted_truly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
