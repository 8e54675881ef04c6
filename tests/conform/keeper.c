/* keeper.c - one thread of a process keeps its links and looks at nothing but
 * its own queue; others post on them from queues of their own. Both ends of a
 * link in one process. And sessions that have left by themselves. */
#include "conform.h"

#include <pthread.h>

#define HANDLES 2
#define WAIT_NS 20000000000ull

/* How the threads beside the keeper use the link. */
enum habit {
	IDLE,	/* one operation under way, and nobody looks for its end */
	BUSY,	/* one after the other */
	BURSTS, /* many, and then none until the keeper has heard something */
};

#define BURST(world) ((world)->sim ? 16u : 200u)
#define BURSTS_MAX(world) rounds(world, 4, 40)

struct handle {
	struct host host; /* with a queue of its own */
	struct reef_remote *remote;
	enum habit habit;
	uint64_t index;
	uint64_t count; /* additions that took effect */
	int result;
	_Atomic bool ended;
	pthread_t thread;
};

static int use_busily(struct handle *handle)
{
	struct world *world = handle->host.world;
	uint64_t start_ns = reef_now_ns();
	int rc = 0;

	while (!rc && reef_now_ns() - start_ns < 2 * WAIT_NS) {
		rc = do_faa(&handle->host, handle->remote, handle->index * 8, 1,
			    NULL);
		handle->count += !rc;
		if (handle->count == 10)
			atomic_fetch_add(&world->board->word[1], 1);
	}
	/* Not in doubt: what it counted is all there is. */
	CHECK_EQ(world, rc, -REEF_EKEY);
	return 0;
}

static int use_idly(struct handle *handle)
{
	struct world *world = handle->host.world;
	struct reef_op op = {
		.kind = REEF_FAA,
		.remote = handle->remote,
		.offset = handle->index * 8,
		.operand = 1,
	};
	struct reef_batch batch = {
		.link = link_of(handle->remote),
		.ops = &op,
		.count = 1,
	};
	int rc;

	CHECK_EQ(world, post_under_way(&handle->host, &batch), 0);
	atomic_fetch_add(&world->board->word[1], 1);
	/* Looks at the board only, until the memory is withdrawn. */
	TRY(await(world, &world->board->word[2], 1));
	rc = batch.done ? batch.status : reef_wait(handle->host.queue, &batch);
	CHECK(world, rc == 0 || rc == -REEF_EKEY);
	handle->count += !rc;
	CHECK_EQ(world, do_faa(&handle->host, handle->remote, 0, 1, NULL),
		 -REEF_EKEY);
	return 0;
}

static int use_in_bursts(struct handle *handle)
{
	struct world *world = handle->host.world;
	uint32_t i, burst;

	for (burst = 0; burst < BURSTS_MAX(world); burst++) {
		for (i = 0; i < BURST(world); i++)
			CHECK_EQ(world,
				 do_faa(&handle->host, handle->remote,
					handle->index * 8, 1, NULL),
				 0);
		CHECK_EQ(world,
			 order(world, ORDER_SEND, SESSION(1), 1, 0, NULL), 0);
		/* Each handle has its own, as each waits for the keeper. */
		TRY(await(world, &world->board->word[4],
			  HANDLES * (uint64_t)burst + handle->index + 1));
	}
	return 0;
}

static int use(void *arg)
{
	struct handle *handle = arg;
	struct host *host = &handle->host;
	struct world *world = host->world;

	handle->result = reef_queue_open(host->fabric, NULL, &host->queue);
	if (!handle->result) {
		handle->result = handle->habit == IDLE ? use_idly(handle)
				 : handle->habit == BUSY
					 ? use_busily(handle)
					 : use_in_bursts(handle);
		reef_queue_close(host->queue);
	}
	atomic_fetch_add(&world->board->word[3], handle->count);
	atomic_store(&handle->ended, true);
	return handle->result;
}

static void *use_in_thread(void *arg)
{
	use(arg);
	return NULL;
}

static int start(struct handle *handle)
{
	if (handle->host.world->sim)
		return reef_fiber_spawn(reef_fiber_sched(), use, handle, NULL);
	return pthread_create(&handle->thread, NULL, use_in_thread, handle);
}

/* The keeper: waits for messages, which come only with bursts. */
static int keep(struct host *host, struct handle *handles)
{
	struct world *world = host->world;
	struct reef_message *message;
	uint32_t i, bursts = 0;

	if (handles[0].habit == BURSTS)
		bursts = HANDLES * BURSTS_MAX(world);
	for (i = 0; i < bursts; i++) {
		CHECK_EQ(world,
			 reef_receive(host->queue, 3 * WAIT_NS, &message), 0);
		reef_message_free(message);
		atomic_fetch_add(&world->board->word[4], 1);
	}
	for (i = 0; i < HANDLES; i++) {
		while (!atomic_load(&handles[i].ended))
			CHECK_EQ(world,
				 reef_receive(host->queue, 10000000, &message),
				 -ETIMEDOUT);
		if (!world->sim)
			CHECK_EQ(world, pthread_join(handles[i].thread, NULL),
				 0);
		CHECK_EQ(world, handles[i].result, 0);
	}
	return 0;
}

static int keeping_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct handle handles[HANDLES];
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i;

	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	for (i = 0; i < HANDLES; i++) {
		handles[i] = (struct handle){
			.host = *host,
			.remote = remote,
			.habit = *(const enum habit *)arg,
			.index = i,
			.result = -1,
		};
		reef_random_init(&handles[i].host.random, world->seed + i);
	}
	for (i = 0; i < HANDLES; i++)
		CHECK_EQ(world, start(&handles[i]), 0);
	TRY(keep(host, handles));
	reef_link_close(link);
	return 0;
}

static int withdraw_under(struct world *world, enum habit habit)
{
	uint64_t key, before, after;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, keeping_client, &habit);
	TRY(await(world, &world->board->word[1], HANDLES));
	CHECK_EQ(world, order(world, ORDER_WITHDRAW, 0, WAIT_NS, 0, &before),
		 0);
	atomic_store(&world->board->word[2], 1);
	CHECK_EQ(world, world_join(world, client), 0);
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	CHECK_EQ(world, atomic_load(&world->board->word[3]), after);
	return world_end(world);
}

static int f8_a_keeper_answers_for_idle_queues(struct world *world)
{
	return withdraw_under(world, IDLE);
}

static int f8_a_withdrawal_leaves_nothing_in_doubt(struct world *world)
{
	return withdraw_under(world, BUSY);
}

/* The keeper sleeps beside the traffic of others, and hears when it stops. */
static int links_a_keeper_hears_beside_others_traffic(struct world *world)
{
	enum habit habit = BURSTS;
	uint64_t key, sum;
	int client;

	/* A wake-up that is lost is not made up for by the next look. */
	world->client_options.silence_ns = 400000000000ull;
	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, keeping_client, &habit);
	CHECK_EQ(world, world_join(world, client), 0);
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &sum), 0);
	CHECK_EQ(world, sum, HANDLES * BURST(world) * BURSTS_MAX(world));
	return world_end(world);
}

/* --- both ends in one process, and one fabric --- */

struct server {
	struct host host; /* with a queue of its own */
	uint64_t key;
	char address[200];
	int result;
	uint64_t sum; /* when it had withdrawn its memory */
	/* 1: listens; 2: is to withdraw, and fence session 1; 3: has; 4: is to
	 * end; 5: has */
	_Atomic uint64_t stage;
};

static int withdraw_and_fence(struct server *server, struct reef_region *region,
			      const uint64_t *word)
{
	struct world *world = server->host.world;
	struct reef_queue *queue = server->host.queue;

	while (atomic_load(&server->stage) < 2)
		if (reef_queue_wait(queue, 1000000) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	CHECK_EQ(world, reef_withdraw(queue, region, WAIT_NS), 0);
	server->sum = *word;
	CHECK_EQ(world, reef_fence(queue, SESSION(1), WAIT_NS), 0);
	atomic_store(&server->stage, 3);
	while (atomic_load(&server->stage) < 4)
		if (reef_queue_wait(queue, 1000000) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	return 0;
}

static int serve_with(struct server *server, struct reef_memory *memory)
{
	struct reef_listen_options options = {.credential = conform_credential};
	struct world *world = server->host.world;
	struct reef_listener *listener;
	struct reef_region *region;
	char address[ADDRESS_SIZE];

	own_address(&server->host, address);
	CHECK_EQ(world, reef_expose(server->host.fabric, memory, &region), 0);
	server->key = reef_region_key(region);
	CHECK_EQ(world,
		 reef_listen(server->host.queue, address, &options, &listener),
		 0);
	strcpy(server->address, reef_listener_address(listener));
	atomic_store(&server->stage, 1);
	TRY(withdraw_and_fence(server, region, memory->base));
	reef_listener_close(listener);
	return 0;
}

static int serve(void *arg)
{
	struct server *server = arg;
	struct host *host = &server->host;
	struct reef_memory_options options = {
		.size = 4096,
		.domain = reef_fabric_domain(host->fabric),
		.backing = host->world->sim ? REEF_BACKING_SIMULATED
					    : REEF_BACKING_MEMFD,
	};
	struct reef_memory *memory;

	server->result = reef_memory_create(&options, &memory);
	if (server->result)
		return server->result;
	server->result = reef_queue_open(host->fabric, NULL, &host->queue);
	if (!server->result) {
		server->result = serve_with(server, memory);
		reef_queue_close(host->queue);
	}
	reef_memory_destroy(memory);
	atomic_store(&server->stage, 5);
	return server->result;
}

static void *serve_in_thread(void *arg)
{
	serve(arg);
	return NULL;
}

/* Waits in its queue, as whoever holds memory does. */
static int await_stage(struct host *host, struct server *server, uint64_t stage)
{
	uint64_t start_ns = reef_now_ns();

	while (atomic_load(&server->stage) < stage) {
		CHECK(host->world, reef_now_ns() - start_ns < 2 * WAIT_NS);
		if (reef_queue_wait(host->queue, 1000000) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	}
	return 0;
}

static int use_server(struct host *host, struct server *server)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t i;

	TRY(await_stage(host, server, 1));
	strcpy(world->board->address, server->address);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, server->key, &remote),
		 0);
	for (i = 0; i < 10; i++)
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	CHECK_EQ(world, join_as(host, SESSION(2), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, server->key, &remote),
		 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	CHECK_EQ(world, do_send(host, link, &i, sizeof(i)), 0);
	atomic_store(&server->stage, 2);
	TRY(await_stage(host, server, 3));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), -REEF_EKEY);
	CHECK_EQ(world, server->sum, 11);
	reef_link_close(link);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), -REEF_EFENCED);
	return 0;
}

static int embedding_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct server server = {.host = *host, .result = -1};
	pthread_t thread = pthread_self();
	int rc;

	(void)arg;
	reef_random_init(&server.host.random, world->seed + 1);
	if (world->sim)
		rc = reef_fiber_spawn(reef_fiber_sched(), serve, &server, NULL);
	else
		rc = pthread_create(&thread, NULL, serve_in_thread, &server);
	CHECK_EQ(world, rc, 0);
	rc = use_server(host, &server);
	atomic_store(&server.stage, 4);
	if (world->sim)
		TRY(await_stage(host, &server, 5));
	else
		CHECK_EQ(world, pthread_join(thread, NULL), 0);
	CHECK_EQ(world, rc, 0);
	CHECK_EQ(world, server.result, 0);
	return 0;
}

static int links_both_ends_may_be_in_one_fabric(struct world *world)
{
	int client = world_start(world, embedding_client, NULL);

	CHECK_EQ(world, world_join(world, client), 0);
	return 0;
}

/* --- sessions that have left --- */

#define NO_REGION UINT64_MAX

static int leaving_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t key;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, &key, NULL));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	/* Whoever closed its links lives on, whatever becomes of its session:
	 * on shm, too, where a fence kills. */
	CHECK_EQ(
		world,
		order(world, ORDER_FENCE, SESSION(1), WAIT_NS, NO_REGION, NULL),
		0);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), -REEF_EFENCED);
	/* One that was never here. */
	CHECK_EQ(
		world,
		order(world, ORDER_FENCE, SESSION(9), WAIT_NS, NO_REGION, NULL),
		0);
	CHECK_EQ(world, join_as(host, SESSION(9), &link), -REEF_EFENCED);
	CHECK_EQ(world, join_as(host, SESSION(2), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, key, &remote), 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int
f7_a_session_that_has_left_is_fenced_without_harm(struct world *world)
{
	return with_clients(world, 1, leaving_client);
}

const struct conform_test conform_keeper[] = {
	{"f7_a_session_that_has_left_is_fenced_without_harm",
	 f7_a_session_that_has_left_is_fenced_without_harm, ANYWHERE},
	{"f8_a_keeper_answers_for_idle_queues",
	 f8_a_keeper_answers_for_idle_queues, ANYWHERE},
	{"f8_a_withdrawal_leaves_nothing_in_doubt",
	 f8_a_withdrawal_leaves_nothing_in_doubt, ANYWHERE},
	{"links_a_keeper_hears_beside_others_traffic",
	 links_a_keeper_hears_beside_others_traffic, ANYWHERE},
	{"links_both_ends_may_be_in_one_fabric",
	 links_both_ends_may_be_in_one_fabric, ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
