/* ended.c - F10: links that have numbers, late hellos, and links that are ended
 * by their number. */
#include "conform.h"

#include "fabric/provider.h"

#include <pthread.h>
#include <stdlib.h>

#define NO_REGION UINT64_MAX

static int end_links(struct world *world, uint32_t session, uint32_t number)
{
	return order(world, ORDER_END_LINKS, session, number, NO_REGION, NULL);
}

/* Poll until the link is neither opening nor, if it is to go down, up. */
static int await_state(struct host *host, struct reef_link *link, int state)
{
	uint32_t i;

	for (i = 0; i < 20000 && atomic_load(&link->state) != state; i++)
		reef_queue_wait(host->queue, 1000000);
	CHECK_EQ(host->world, atomic_load(&link->state), state);
	return 0;
}

/* A link with that number opens, works, and closes again. */
static int try_link(struct host *host, uint32_t session, uint32_t number)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i;

	CHECK_EQ(world, join_numbered(host, session, number, &link), 0);
	CHECK_EQ(world, reef_link_number(link), number);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	/* A network card may be quicker than the node's processor. */
	for (i = 0; i < 20000 && atomic_load(&world->board->number) != number;
	     i++)
		reef_queue_wait(host->queue, 1000000);
	CHECK_EQ(world, atomic_load(&world->board->number), number);
	reef_link_close(link);
	return 0;
}

static int expose_word(struct world *world)
{
	uint64_t key;

	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	return 0;
}

/* --- who gets in --- */

static int numbered_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_link *link;

	(void)arg;
	TRY(expose_word(world));
	TRY(try_link(host, SESSION(1), 5));
	CHECK_EQ(world, join_numbered(host, SESSION(1), 5, &link), -ESTALE);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link), -ESTALE);
	TRY(try_link(host, SESSION(1), 6));
	/* Who has no number is let in as ever, and changes nothing. */
	TRY(try_link(host, SESSION(1), 0));
	CHECK_EQ(world, join_numbered(host, SESSION(1), 6, &link), -ESTALE);
	/* Numbers are a session's own, and a generation's. */
	TRY(try_link(host, SESSION(2), 5));
	TRY(try_link(host, SESSION(1) + 1, 1));
	CHECK_EQ(world, join_numbered(host, SESSION(1), UINT32_MAX, &link),
		 -ESTALE);
	TRY(try_link(host, SESSION(1) + 1, UINT32_MAX));
	CHECK_EQ(world, join_numbered(host, SESSION(1) + 1, UINT32_MAX, &link),
		 -ESTALE);
	return 0;
}

static int f10_a_number_is_used_once(struct world *world)
{
	return with_clients(world, 1, numbered_client);
}

static int ended_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_link *link;

	(void)arg;
	TRY(expose_word(world));
	TRY(try_link(host, SESSION(1), 3));
	CHECK_EQ(world, end_links(world, SESSION(1), 10), 0);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 10, &link), -ESTALE);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 4, &link), -ESTALE);
	/* A lower number changes nothing, nor does the same again. */
	CHECK_EQ(world, end_links(world, SESSION(1), 2), 0);
	CHECK_EQ(world, end_links(world, SESSION(1), 10), 0);
	TRY(try_link(host, SESSION(1), 11));
	/* One that was never here. */
	CHECK_EQ(world, end_links(world, SESSION(9), 4), 0);
	CHECK_EQ(world, join_numbered(host, SESSION(9), 4, &link), -ESTALE);
	TRY(try_link(host, SESSION(9), 5));
	/* What makes no sense. */
	CHECK_EQ(world, end_links(world, SESSION(1), 0), -EINVAL);
	CHECK_EQ(world, end_links(world, 0, 1), -EINVAL);
	return 0;
}

static int f10_an_ended_number_is_refused(struct world *world)
{
	return with_clients(world, 1, ended_client);
}

/* --- who is ended --- */

static int newer_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote, *others, *plain;
	struct reef_link *link, *other, *unnumbered;
	uint32_t i;

	(void)arg;
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link), 0);
	reef_link_close(link);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 2, &link), 0);
	CHECK_EQ(world, join_numbered(host, SESSION(2), 1, &other), 0);
	CHECK_EQ(world, join_as(host, SESSION(3), &unnumbered), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	TRY(borrow(host, other, 4096, &others, NULL, NULL));
	TRY(borrow(host, unnumbered, 4096, &plain, NULL, NULL));
	CHECK_EQ(world, end_links(world, SESSION(1), 1), 0);
	CHECK_EQ(world, end_links(world, SESSION(3), 1000), 0);
	for (i = 0; i < 20; i++) {
		nap(world);
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
		CHECK_EQ(world, do_faa(host, others, 0, 1, NULL), 0);
		CHECK_EQ(world, do_faa(host, plain, 0, 1, NULL), 0);
	}
	reef_link_close(link);
	reef_link_close(other);
	reef_link_close(unnumbered);
	return 0;
}

static int f10_only_older_links_are_ended(struct world *world)
{
	return with_clients(world, 1, newer_client);
}

static int start_join(struct host *host, uint32_t session, uint32_t number,
		      struct reef_link **out)
{
	struct reef_connect_options options = {
		.session = session,
		.number = number,
		.identity = "conform",
	};

	memcpy(options.key, conform_key, REEF_KEY_SIZE);
	return reef_connect_start(host->queue, host->world->board->address,
				  &options, out);
}

/* Let some time pass, in which a hello may get on, or not. */
static void dawdle(struct host *host)
{
	uint64_t i, polls = reef_random_below(&host->random, 6);

	if (host->world->sim)
		reef_sleep(reef_random_below(&host->random, 60000));
	for (i = 0; i < polls && !host->world->sim; i++) {
		nap(host->world);
		reef_poll(host->queue);
	}
}

static int hasty_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t i, number = 0;
	struct reef_link *link;

	(void)arg;
	TRY(expose_word(world));
	for (i = 0; i < rounds(world, 6, 60); i++) {
		number++;
		CHECK_EQ(world, start_join(host, SESSION(1), number, &link), 0);
		dawdle(host);
		CHECK_EQ(world, end_links(world, SESSION(1), number), 0);
		TRY(await_state(host, link, REEF_LINK_DOWN));
		reef_link_close(link);
		TRY(try_link(host, SESSION(1), ++number));
	}
	return 0;
}

static int f10_a_hello_under_way_is_ended(struct world *world)
{
	return with_clients(world, 1, hasty_client);
}

/* Two hellos race: whichever comes first, the newer link is the one that
 * stays. */
static int racing_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *older, *newer;
	uint32_t i, number = 0;

	(void)arg;
	TRY(expose_word(world));
	for (i = 0; i < rounds(world, 6, 60); i++) {
		CHECK_EQ(world, start_join(host, SESSION(1), ++number, &older),
			 0);
		dawdle(host);
		CHECK_EQ(world, start_join(host, SESSION(1), ++number, &newer),
			 0);
		TRY(await_state(host, newer, REEF_LINK_UP));
		TRY(await_state(host, older, REEF_LINK_DOWN));
		CHECK_EQ(world,
			 reef_attach(host->queue, newer, world->board->word[0],
				     &remote),
			 0);
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
		reef_link_close(older);
		reef_link_close(newer);
	}
	return 0;
}

static int f10_a_late_hello_leaves_the_newer_link(struct world *world)
{
	return with_clients(world, 1, racing_client);
}

/* Whoever gives a hello up and goes on with the next number is not disturbed
 * when the node hears of the first. */
static int go_on(struct host *host, uint32_t number)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i;

	CHECK_EQ(world, join_numbered(host, SESSION(1), number, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	for (i = 0; i < 20; i++) {
		reef_sleep(world->sim ? 50000 : 1000);
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	}
	reef_link_close(link);
	return 0;
}

static int fickle_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t i, number = 0;
	struct reef_link *link;
	uint64_t opened;

	(void)arg;
	TRY(expose_word(world));
	for (i = 0; i < rounds(world, 6, 60); i++) {
		CHECK_EQ(world, start_join(host, SESSION(1), ++number, &link),
			 0);
		dawdle(host);
		reef_link_close(link);
		if (i % 2) {
			TRY(go_on(host, ++number));
			continue;
		}
		/* And once it is ended, nobody comes in with it. */
		CHECK_EQ(world, end_links(world, SESSION(1), number), 0);
		opened = atomic_load(&world->board->opened);
		reef_sleep(world->sim ? 1000000 : 1000);
		CHECK_EQ(world, atomic_load(&world->board->opened), opened);
	}
	return 0;
}

static int f10_a_hello_given_up_changes_nothing(struct world *world)
{
	return with_clients(world, 1, fickle_client);
}

/* --- what is settled --- */

#define DOUBTS 16

struct doubts {
	struct reef_batch batches[DOUBTS];
	struct reef_op ops[DOUBTS][3];
	uint64_t one;
	struct note note;
};

/* Each a WRITE, an addition, and a message. */
static int post_doubts(struct host *host, struct doubts *doubts,
		       struct reef_remote *remote, uint64_t base)
{
	int i;

	for (i = 0; i < DOUBTS; i++) {
		struct reef_op *ops = doubts->ops[i];
		uint64_t at = base + 16u * (uint64_t)i;

		ops[0] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = remote,
					  .offset = at,
					  .local = &doubts->one,
					  .length = 8};
		ops[1] = (struct reef_op){.kind = REEF_FAA,
					  .remote = remote,
					  .offset = at + 8,
					  .operand = 1};
		ops[2] = (struct reef_op){.kind = REEF_SEND,
					  .local = &doubts->note,
					  .length = sizeof(doubts->note)};
		doubts->batches[i] = (struct reef_batch){
			.link = link_of(remote), .ops = ops, .count = 3};
		CHECK_EQ(host->world, post_under_way(host, &doubts->batches[i]),
			 0);
	}
	return 0;
}

static int wait_doubts(struct host *host, struct doubts *doubts, uint64_t *done)
{
	int i;

	*done = 0;
	for (i = 0; i < DOUBTS; i++) {
		struct reef_batch *batch = &doubts->batches[i];

		if (!batch->done)
			reef_wait(host->queue, batch);
		CHECK(host->world,
		      batch->status == 0 || batch->status == -REEF_EINDOUBT);
		*done += batch->status == 0;
	}
	return 0;
}

static struct reef_sim_host *node_of(const struct world *world)
{
	return world->parts[world->node].host;
}

/* In the simulator the link is lost, or the network cut, or neither. Returns
 * whether it is cut. */
static bool disturb(struct host *host, struct reef_link *link)
{
	bool cut = host->world->sim && reef_random_chance(&host->random, 1, 4);

	dawdle(host);
	if (cut)
		reef_sim_partition(host->sim_host, node_of(host->world), true);
	else if (host->world->sim && reef_random_chance(&host->random, 3, 4))
		reef_sim_lose_link(link);
	dawdle(host);
	return cut;
}

/* Work under way, its link lost or not, and the node is told to end it: from
 * then on nothing of it arrives, and what was reported done is there. */
static int doubt_round(struct host *host, uint32_t number, uint64_t region)
{
	struct world *world = host->world;
	struct doubts doubts = {.one = 1, .note = {.kind = NOTE_CHECK}};
	uint64_t settled, later, received, done, i;
	struct reef_remote *remote;
	struct reef_link *link;
	bool cut;

	CHECK_EQ(world, order(world, ORDER_CLEAR, region, 0, 0, NULL), 0);
	CHECK_EQ(world, join_numbered(host, SESSION(1), number, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(post_doubts(host, &doubts, remote, 0));
	cut = disturb(host, link);
	/* On shm only its own process can let go of the memory, so it does. */
	if (is_kind(world, "shm") || reef_random_chance(&host->random, 1, 4)) {
		reef_link_close(link);
		link = NULL;
	}
	CHECK_EQ(world,
		 order(world, ORDER_END_LINKS, SESSION(1), number, region,
		       &settled),
		 0);
	received = atomic_load(&world->board->received);
	if (cut)
		reef_sim_partition(host->sim_host, node_of(world), false);
	TRY(wait_doubts(host, &doubts, &done));
	CHECK(world, settled >= 2 * done && settled <= 2ull * DOUBTS);
	if (link)
		TRY(await_state(host, link, REEF_LINK_DOWN));
	for (i = 0; i < 20; i++)
		reef_sleep(world->sim ? 500000 : 1000);
	CHECK_EQ(world, order(world, ORDER_SUM, region, 0, 0, &later), 0);
	CHECK_EQ(world, later, settled);
	CHECK_EQ(world, atomic_load(&world->board->received), received);
	if (link)
		reef_link_close(link);
	return 0;
}

static int doubt_client(struct host *host, void *arg)
{
	uint32_t i;

	(void)arg;
	TRY(expose_word(host->world));
	for (i = 0; i < rounds(host->world, 4, 60); i++)
		TRY(doubt_round(host, i + 1, 0));
	return 0;
}

static int f10_nothing_lands_after_the_end(struct world *world)
{
	return with_clients(world, 1, doubt_client);
}

/* A holder that stands still: nobody says that nothing of it lands any more
 * unless that is so, and meanwhile it is not let in again. */
static int still_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t start_ns = reef_now_ns();
	struct reef_remote *remote;
	struct reef_link *link;
	int rc = 0;

	(void)arg;
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	/* It never polls: its posts alone must find out. */
	while (!rc && reef_now_ns() - start_ns < 30000000000ull) {
		rc = do_faa(host, remote, 0, 1, NULL);
		atomic_fetch_add(&world->board->word[1], 1);
	}
	CHECK(world, rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT);
	reef_link_close(link);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link), -ESTALE);
	return 0;
}

static int f10_a_stopped_holder_is_waited_for(struct world *world)
{
	struct board *board = world->board;
	uint64_t before = 0, after;
	int client, rc;

	TRY(world_start_node(world));
	TRY(expose_word(world));
	client = world_start(world, still_client, NULL);
	TRY(await(world, &board->word[1], 10));
	world_stop(world, client);
	board->end_wait_ns = 50000000;
	rc = order(world, ORDER_END_LINKS, SESSION(1), 1, 0, &before);
	/* It has the memory mapped. */
	if (is_kind(world, "shm"))
		CHECK_EQ(world, rc, -ETIMEDOUT);
	CHECK(world, rc == 0 || rc == -ETIMEDOUT);
	board->end_wait_ns = 0;
	world_continue(world, client);
	if (rc)
		CHECK_EQ(world,
			 order(world, ORDER_END_LINKS, SESSION(1), 1, 0,
			       &before),
			 0);
	CHECK_EQ(world, world_join(world, client), 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	return world_end(world);
}

/* --- both ends in one process, and one fabric --- */

/* One thread lends memory, one works through a link, and this one, which keeps
 * the link, has it ended. In the simulator they are fibers. */
#define INSIDE_WORDS 4096u

struct inside {
	struct host server, worker; /* each with a queue of its own */
	struct reef_memory *memory;
	struct reef_remote *remote;
	char address[200];
	uint64_t key;
	uint64_t blocks[2][INSIDE_WORDS - 1], settled[INSIDE_WORDS];
	_Atomic bool listening, quit, server_ended, worker_ended;
	_Atomic uint64_t worked; /* batches */
	int server_result, worker_result;
	pthread_t thread, worker_thread;
};

static int serve(struct inside *inside, struct reef_queue *queue)
{
	struct reef_listen_options options = {.credential = conform_credential};
	struct world *world = inside->server.world;
	struct reef_listener *listener;
	struct reef_message *message;
	struct reef_region *region;
	char address[ADDRESS_SIZE];

	own_address(&inside->server, address);
	CHECK_EQ(world,
		 reef_expose(inside->server.fabric, inside->memory, &region),
		 0);
	inside->key = reef_region_key(region);
	CHECK_EQ(world, reef_listen(queue, address, &options, &listener), 0);
	strcpy(inside->address, reef_listener_address(listener));
	atomic_store(&inside->listening, true);
	while (!atomic_load(&inside->quit)) {
		while (!reef_receive(queue, 0, &message))
			reef_message_free(message);
		if (reef_queue_wait(queue, 1000000) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	}
	CHECK_EQ(world, reef_withdraw(queue, region, 20000000000ull), 0);
	reef_listener_close(listener);
	return 0;
}

static int server_main(void *arg)
{
	struct inside *inside = arg;
	struct reef_queue *queue;
	int rc = reef_queue_open(inside->server.fabric, NULL, &queue);

	if (!rc) {
		rc = serve(inside, queue);
		reef_queue_close(queue);
	}
	inside->server_result = rc;
	atomic_store(&inside->server_ended, true);
	return rc;
}

/* Write, send and add until the link is gone. */
static int work(struct inside *inside, struct host *host)
{
	struct world *world = host->world;
	struct note note = {.kind = NOTE_CHECK};
	struct reef_op ops[4] = {
		{.kind = REEF_WRITE, .local = inside->blocks[0]},
		{.kind = REEF_SEND, .local = &note, .length = sizeof(note)},
		{.kind = REEF_WRITE, .local = inside->blocks[1]},
		{.kind = REEF_FAA, .operand = 1},
	};
	struct reef_batch batch;
	uint32_t i;
	int rc = 0;

	ops[0].remote = ops[2].remote = ops[3].remote = inside->remote;
	ops[0].offset = ops[2].offset = 8;
	ops[0].length = ops[2].length = sizeof(inside->blocks[0]);
	for (i = 0; !rc && i < 1000000; i++) {
		memset(inside->blocks[0], (int)(2 * i), ops[0].length);
		memset(inside->blocks[1], (int)(2 * i + 1), ops[0].length);
		batch = (struct reef_batch){.link = link_of(inside->remote),
					    .ops = ops,
					    .count = 4};
		rc = run_batch(host, &batch);
		atomic_fetch_add(&inside->worked, 1);
	}
	CHECK(world, rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK);
	return 0;
}

static int worker_main(void *arg)
{
	struct inside *inside = arg;
	struct host *host = &inside->worker;
	int rc = reef_queue_open(host->fabric, NULL, &host->queue);

	if (!rc) {
		rc = work(inside, host);
		reef_queue_close(host->queue);
	}
	inside->worker_result = rc;
	atomic_store(&inside->worker_ended, true);
	return rc;
}

static void *server_thread(void *arg)
{
	server_main(arg);
	return NULL;
}

static void *worker_thread(void *arg)
{
	worker_main(arg);
	return NULL;
}

static int await_flag(struct host *host, _Atomic bool *flag)
{
	uint64_t start_ns = reef_now_ns();

	while (!atomic_load(flag)) {
		CHECK(host->world, reef_now_ns() - start_ns < 40000000000ull);
		if (reef_queue_wait(host->queue, 1000000) == -REEF_EHOSTDEAD)
			return -REEF_EHOSTDEAD;
	}
	return 0;
}

static int inside_round(struct host *host, struct inside *inside,
			uint32_t number)
{
	struct world *world = host->world;
	uint64_t enough = 1 + reef_random_below(&host->random, 8);
	struct reef_link *link;
	int rc;

	CHECK_EQ(world, join_numbered(host, SESSION(1), number, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, inside->key, &inside->remote),
		 0);
	atomic_store(&inside->worked, 0);
	atomic_store(&inside->worker_ended, false);
	rc = world->sim ? reef_fiber_spawn(reef_fiber_sched(), worker_main,
					   inside, NULL)
			: pthread_create(&inside->worker_thread, NULL,
					 worker_thread, inside);
	CHECK_EQ(world, rc, 0);
	while (atomic_load(&inside->worked) < enough &&
	       !atomic_load(&inside->worker_ended))
		reef_queue_wait(host->queue, 100000);
	dawdle(host);
	CHECK_EQ(
		world,
		reef_end_links(host->queue, SESSION(1), number, 20000000000ull),
		0);
	memcpy(inside->settled, inside->memory->base, sizeof(inside->settled));
	TRY(await_flag(host, &inside->worker_ended));
	if (!world->sim)
		CHECK_EQ(world, pthread_join(inside->worker_thread, NULL), 0);
	CHECK_EQ(world, inside->worker_result, 0);
	reef_sleep(world->sim ? 1000000 : 1000);
	CHECK(world, !memcmp(inside->settled, inside->memory->base,
			     sizeof(inside->settled)));
	reef_link_close(link);
	return 0;
}

static int inside_rounds(struct host *host, struct inside *inside)
{
	struct world *world = host->world;
	uint32_t i;

	TRY(await_flag(host, &inside->listening));
	strcpy(world->board->address, inside->address);
	for (i = 0; i < rounds(world, 3, 60); i++)
		TRY(inside_round(host, inside, i + 1));
	return 0;
}

static int inside_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_memory_options options = {
		.size = sizeof(((struct inside *)0)->settled),
		.domain = reef_fabric_domain(host->fabric),
		.backing = world->sim ? REEF_BACKING_SIMULATED
				      : REEF_BACKING_MEMFD,
	};
	struct inside *inside = calloc(1, sizeof(*inside));
	int rc;

	(void)arg;
	CHECK(world, inside);
	inside->server = inside->worker = *host;
	CHECK_EQ(world, reef_memory_create(&options, &inside->memory), 0);
	rc = world->sim ? reef_fiber_spawn(reef_fiber_sched(), server_main,
					   inside, NULL)
			: pthread_create(&inside->thread, NULL, server_thread,
					 inside);
	CHECK_EQ(world, rc, 0);
	rc = inside_rounds(host, inside);
	atomic_store(&inside->quit, true);
	TRY(await_flag(host, &inside->server_ended));
	if (!world->sim)
		CHECK_EQ(world, pthread_join(inside->thread, NULL), 0);
	CHECK_EQ(world, rc, 0);
	CHECK_EQ(world, inside->server_result, 0);
	reef_memory_destroy(inside->memory);
	free(inside);
	return 0;
}

static int f10_an_end_in_one_process_is_exact(struct world *world)
{
	int client = world_start(world, inside_client, NULL);

	CHECK_EQ(world, world_join(world, client), 0);
	return 0;
}

const struct conform_test conform_ended[] = {
	{"f10_a_number_is_used_once", f10_a_number_is_used_once, ANYWHERE},
	{"f10_an_ended_number_is_refused", f10_an_ended_number_is_refused,
	 ANYWHERE},
	{"f10_only_older_links_are_ended", f10_only_older_links_are_ended,
	 ANYWHERE},
	{"f10_a_hello_under_way_is_ended", f10_a_hello_under_way_is_ended,
	 ANYWHERE},
	{"f10_a_late_hello_leaves_the_newer_link",
	 f10_a_late_hello_leaves_the_newer_link, ANYWHERE},
	{"f10_a_hello_given_up_changes_nothing",
	 f10_a_hello_given_up_changes_nothing, ANYWHERE},
	{"f10_nothing_lands_after_the_end", f10_nothing_lands_after_the_end,
	 ANYWHERE},
	{"f10_a_stopped_holder_is_waited_for",
	 f10_a_stopped_holder_is_waited_for, ANYWHERE},
	{"f10_an_end_in_one_process_is_exact",
	 f10_an_end_in_one_process_is_exact, ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
