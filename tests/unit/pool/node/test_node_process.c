/* test_node_process.c - a node and a client in processes of their own, which
 * are stopped and killed; the broker is the test.
 *
 * Children are forked before this process opens a fabric, and are killed by
 * their pids when the test ends. */
#include "fabric/provider.h"
#include "fixture/node_world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CAPACITY (1u << 20)

/* What a child is told, and says. */
struct order {
	uint64_t keys[REEF_DOORS_MAX];
	char addresses[1024];
	char only[8];
};

struct child {
	pid_t pid;
	int fd; /* to talk to it */
};

struct actors {
	struct node_world world; /* first */
	struct child node, client;
};

/* --- children --- */

static void start(struct child *child,
		  void (*act)(struct node_world *world, int fd),
		  struct node_world *world)
{
	int fds[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (child->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fds[0]);
		act(world, fds[1]);
		_exit(0);
	}
	close(fds[1]);
	child->fd = fds[0];
}

static void finish(struct child *child)
{
	if (child->pid) {
		kill(child->pid, SIGKILL);
		waitpid(child->pid, NULL, 0);
	}
	close(child->fd);
}

static void run_node(struct node_world *world, int fd)
{
	struct reef_sched *sched;

	(void)fd;
	if (reef_sched_create(NULL, &sched) ||
	    reef_fiber_spawn(sched, machine_serve, &world->machines[0], NULL))
		_exit(1);
	reef_sched_run(sched);
}

/* Attach to what it is told to, say so, and hold it, serving its link. */
static void run_client(struct node_world *world, int fd)
{
	struct borrower client;
	struct order order;
	int rc;

	if (read(fd, &order, sizeof(order)) != sizeof(order))
		_exit(1);
	memcpy(world->stub.nodes[0].addresses, order.addresses,
	       sizeof(order.addresses));
	rc = borrower_open_over(world, 0, HOLDER, order.only, &client);
	if (!rc)
		rc = borrower_attach(&client, order.keys);
	if (!rc)
		rc = borrower_put(&client, 0, 1);
	if (write(fd, &rc, sizeof(rc)) != sizeof(rc))
		_exit(1);
	for (;;)
		reef_port_poll(client.port);
}

/* Let the client hold an extent over that fabric, and stand still. */
static int hold_and_stop(struct actors *actors, const char *only,
			 const uint64_t *keys)
{
	struct order order = {0};
	struct pollfd ready = {.fd = actors->client.fd, .events = POLLIN};
	int rc = -1;

	memcpy(order.keys, keys, sizeof(order.keys));
	snprintf(order.addresses, sizeof(order.addresses), "%s",
		 actors->world.stub.nodes[0].addresses);
	snprintf(order.only, sizeof(order.only), "%s", only);
	WANT(write(actors->client.fd, &order, sizeof(order)) == sizeof(order));
	AWAIT(poll(&ready, 1, 0) == 1);
	WANT(read(actors->client.fd, &rc, sizeof(rc)) == sizeof(rc));
	WANT(rc == 0);
	WANT(!kill(actors->client.pid, SIGSTOP));
	return 0;
}

static void play(struct actors *actors, int (*script)(struct node_world *world))
{
	struct node_world *world = &actors->world;

	memset(actors, 0, sizeof(*actors));
	node_world_init(world, 1, script);
	world->real = true;
	world->note[0] = (uintptr_t)actors;
	snprintf(world->directory, sizeof(world->directory),
		 "/tmp/reef-node-XXXXXX");
	assert_non_null(mkdtemp(world->directory));
	snprintf(world->stub.address, sizeof(world->stub.address),
		 "shm:%s/broker", world->directory);
	start(&actors->node, run_node, world);
	start(&actors->client, run_client, world);
	world->remote = true;
	assert_int_equal(reef_sched_create(NULL, &world->sched), 0);
	assert_int_equal(
		reef_fiber_spawn(world->sched, node_world_main, world, NULL),
		0);
	assert_int_equal(reef_sched_run(world->sched), 0);
	reef_sched_destroy(world->sched);
	finish(&actors->client);
	finish(&actors->node);
	node_world_clean(world);
	assert_int_equal(world->result, 0);
}

/* --- scripts --- */

static int script_drop_shm(struct node_world *world)
{
	struct actors *actors = (struct actors *)world;
	uint64_t keys[REEF_DOORS_MAX];

	WANT(!ask_create(world, 0, 1, CAPACITY, keys));
	WANT(!hold_and_stop(actors, "shm", keys));
	WANT(ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL) ==
	     -ETIMEDOUT);
	WANT(ask_create(world, 0, 2, 4096, NULL) == -ENOSPC);
	WANT(!ask_fence(world, 0, HOLDER));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!ask_create(world, 0, 2, CAPACITY, keys));
	/* What it had mapped went with it. */
	WANT(waitpid(actors->client.pid, NULL, WNOHANG) == actors->client.pid);
	actors->client.pid = 0;
	return 0;
}

/* The holder of tcp has no memory of ours: its key is all there is, and taking
 * that back needs no answer. */
static int script_drop_tcp(struct node_world *world)
{
	struct actors *actors = (struct actors *)world;
	uint64_t keys[REEF_DOORS_MAX];

	WANT(!ask_create(world, 0, 1, CAPACITY, keys));
	WANT(!hold_and_stop(actors, "tcp", keys));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_DROP, 1, NULL));
	WANT(!ask_create(world, 0, 2, CAPACITY, keys));
	WANT(!ask_fence(world, 0, HOLDER));
	return 0;
}

static void node_process_stopped_holder_ends_by_fence(void **state)
{
	static struct actors actors;

	play(&actors, script_drop_shm);
	play(&actors, script_drop_tcp);
}

/* A new life begins while somebody has the old one's memory mapped: it counts
 * until he lets go of it. */
static int script_new_life(struct node_world *world)
{
	struct actors *actors = (struct actors *)world;
	struct told *told = &world->stub.nodes[0];
	uint64_t keys[REEF_DOORS_MAX], old = told->incarnation;
	int rc, tries = 0;

	WANT(!ask_create(world, 0, 1, CAPACITY / 2, keys));
	WANT(!ask_create(world, 0, 2, CAPACITY / 2, NULL));
	WANT(!hold_and_stop(actors, "shm", keys));
	world->stub.dead = old;
	AWAIT(told->readies == 2);
	WANT(told->incarnation != old);
	WANT(told->rows_count == 0);
	AWAIT(told->pulses > 0 && told->pulse.node_pulse.incarnation != old &&
	      told->pulse.node_pulse.lent == CAPACITY / 2);
	WANT(!ask_create(world, 0, 3, CAPACITY / 2, NULL));
	WANT(ask_create(world, 0, 4, 4096, NULL) == -ENOSPC);
	WANT(!kill(actors->client.pid, SIGKILL));
	do {
		WANT(tries++ < 10000);
		rc = ask_create(world, 0, 4, CAPACITY / 2, NULL);
		WANT(!reef_sleep(MILLISECOND));
	} while (rc == -ENOSPC);
	WANT(rc == 0);
	return 0;
}

static void node_process_new_life_counts_what_is_mapped(void **state)
{
	static struct actors actors;

	play(&actors, script_new_life);
}

/* A second mapping of what a borrower has mapped, which nobody knows of. */
static uint64_t *keep_mapping(const struct borrower *client)
{
	void *kept = mremap(client->remote->base, 0, 4096, MREMAP_MAYMOVE);

	return kept == MAP_FAILED ? NULL : kept;
}

static int close_fresh(struct node_world *world, uint64_t *keys)
{
	struct reef_body body = {
		.ask.extent_close = {.extent = 1, .flags = REEF_POOL_FRESH},
	};

	return ask(world, 0, REEF_POOL_EXTENT_CLOSE, &body, keys);
}

/* What was told to leave, and what was fenced, reaches nothing any more, even
 * if it kept what it had mapped; and all that was there is there. */
static int script_fresh(struct node_world *world)
{
	struct actors *actors = (struct actors *)world;
	uint64_t keys[REEF_DOORS_MAX], offer[REEF_DOORS_MAX], value;
	uint64_t again[REEF_DOORS_MAX], *kept;
	struct borrower client;

	WANT(!ask_create(world, 0, 1, CAPACITY, keys));
	WANT(!borrower_open_over(world, 0, SESSION(1), "shm", &client));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_put(&client, CAPACITY - 8, 7));
	kept = keep_mapping(&client);
	WANT(kept);
	WANT(!hold_and_stop(actors, "shm", keys));
	WANT(close_fresh(world, offer) == -ETIMEDOUT);
	WANT(*kept == 1);
	WANT(!ask_fence(world, 0, HOLDER));
	WANT(!close_fresh(world, offer));
	*kept = 99;
	/* Nobody was passed the new memory, so it stays. */
	WANT(!close_fresh(world, again));
	WANT(!memcmp(offer, again, sizeof(offer)));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_REOPEN, 1, keys));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_get(&client, 0, &value) && value == 1);
	WANT(!borrower_get(&client, CAPACITY - 8, &value) && value == 7);
	WANT(!borrower_put(&client, 0, 5));
	WANT(*kept == 99);
	WANT(ask_create(world, 0, 2, 4096, NULL) == -ENOSPC);
	munmap(kept, 4096);
	/* Who does not ask for it does not pay for it. */
	kept = keep_mapping(&client);
	WANT(kept);
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_CLOSE, 1, NULL));
	WANT(!ask_extent(world, 0, REEF_POOL_EXTENT_REOPEN, 1, keys));
	WANT(!borrower_attach(&client, keys));
	WANT(!borrower_put(&client, 0, 6));
	WANT(*kept == 6);
	munmap(kept, 4096);
	borrower_close(&client);
	return 0;
}

static void node_process_fresh_memory_is_out_of_reach(void **state)
{
	static struct actors actors;

	play(&actors, script_fresh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(node_process_stopped_holder_ends_by_fence),
		cmocka_unit_test(node_process_new_life_counts_what_is_mapped),
		cmocka_unit_test(node_process_fresh_memory_is_out_of_reach),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
