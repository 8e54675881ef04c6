/* cut.c - long transfers, and what happens when something cuts them: the end
 * of a node, of a client, of a connection, of a session. */
#include "conform.h"
#include "fixture/sockets.h"

#include <stdlib.h>
#include <unistd.h>

/* Of one WRITE; far more than sockets and buffers hold at once. */
#define LONG (1u << 20)
#define BATCHES 4
/* A region: the blocks, then a word for each. */
#define FLAG(i) ((uint64_t)BATCHES * LONG + 8ull * (uint64_t)(i))
#define REGION (FLAG(BATCHES) + 64)
#define PATTERN(i) (0x0101010101010101ull * (uint64_t)(17 + (i)))

struct load {
	struct reef_batch batches[BATCHES];
	struct reef_op ops[BATCHES][2];
	uint64_t *blocks;
};

static int load_open(struct world *world, struct load *load)
{
	uint64_t i;

	load->blocks = malloc((size_t)BATCHES * LONG);
	CHECK(world, load->blocks);
	for (i = 0; i < BATCHES * (LONG / 8); i++)
		load->blocks[i] = PATTERN(i / (LONG / 8));
	return 0;
}

/* Each a long WRITE, then an FAA that says so. */
static int load_post(struct host *host, struct load *load,
		     struct reef_remote *remote)
{
	int i, rc;

	for (i = 0; i < BATCHES; i++) {
		load->ops[i][0] = (struct reef_op){
			.kind = REEF_WRITE,
			.remote = remote,
			.offset = (uint64_t)i * LONG,
			.local = load->blocks + (uint64_t)i * (LONG / 8),
			.length = LONG,
		};
		load->ops[i][1] = (struct reef_op){
			.kind = REEF_FAA,
			.remote = remote,
			.offset = FLAG(i),
			.operand = 1,
		};
		load->batches[i] = (struct reef_batch){
			.link = link_of(remote),
			.ops = load->ops[i],
			.count = 2,
		};
		rc = post_under_way(host, &load->batches[i]);
		CHECK(host->world,
		      rc == 0 || rc == -REEF_ENOLINK || rc == -REEF_EFENCED);
		if (rc)
			load->batches[i].queue = NULL;
	}
	return 0;
}

/* Wait for all; each happened, or may have, or was refused. */
static int load_wait(struct host *host, struct load *load)
{
	struct world *world = host->world;
	struct reef_batch *batch;
	int i, j;

	for (i = 0; i < BATCHES; i++) {
		batch = &load->batches[i];
		if (!batch->queue)
			continue;
		if (!batch->done)
			reef_wait(host->queue, batch);
		/* Under a hook it may be refused when it was under way. */
		if (batch->status != -REEF_EINDOUBT &&
		    batch->status != -REEF_EFENCED)
			CHECK_EQ(world, batch->status, 0);
		for (j = 0; j < 2; j++)
			CHECK(world, batch->status || !load->ops[i][j].status);
		if (!batch->status)
			atomic_store(&world->board->flag[i], 1);
	}
	return 0;
}

/* What the node has of it: all of what was reported done, and nothing that
 * follows a WRITE without all of the WRITE (F3a). */
static int load_check(struct world *world, uint64_t region)
{
	uint64_t flag, words;
	int i;

	for (i = 0; i < BATCHES; i++) {
		CHECK_EQ(world,
			 order(world, ORDER_LOAD, region, FLAG(i), 0, &flag),
			 0);
		CHECK_EQ(world,
			 order(world, ORDER_MATCH, region, (uint64_t)i * LONG,
			       PATTERN(i), &words),
			 0);
		CHECK(world, flag <= 1);
		if (atomic_load(&world->board->flag[i]))
			CHECK_EQ(world, flag, 1);
		if (flag)
			CHECK(world, words >= LONG / 8);
	}
	return 0;
}

static int await_down(struct host *host, struct reef_link *link)
{
	uint32_t i;

	for (i = 0; i < 10000 && !reef_link_status(link); i++)
		reef_queue_wait(host->queue, 1000000);
	CHECK_EQ(host->world, reef_link_status(link), -REEF_ENOLINK);
	return 0;
}

/* --- the node ends --- */

static int orphaned_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	struct reef_remote *remote;
	struct reef_link *link;
	struct load load;

	(void)arg;
	TRY(load_open(world, &load));
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[0], &remote),
		 0);
	atomic_store(&board->word[1], 1);
	TRY(await(world, &board->word[2], 1));
	TRY(load_post(host, &load, remote));
	reef_poll(host->queue);
	atomic_store(&board->word[1], 2);
	TRY(load_wait(host, &load));
	TRY(await_down(host, link));
	reef_link_close(link);
	free(load.blocks);
	return 0;
}

/* What was done is in the file, which outlives the node. stop: so that it takes
 * nothing of it, and all sockets are full when it ends. */
static int end_node(struct world *world, bool stop)
{
	struct board *board = world->board;
	uint64_t key;
	int client, i;

	for (i = 0; i < BATCHES; i++)
		atomic_store(&board->flag[i], 0);
	atomic_store(&board->word[1], 0);
	atomic_store(&board->word[2], 0);
	TRY(world_start_node(world));
	CHECK_EQ(world,
		 order(world, ORDER_EXPOSE, REGION, EXPOSE_DURABLE, 0, &key),
		 0);
	CHECK_EQ(world, order(world, ORDER_CLEAR, 0, 0, 0, NULL), 0);
	atomic_store(&board->word[0], key);
	client = world_start(world, orphaned_client, NULL);
	TRY(await(world, &board->word[1], 1));
	if (stop)
		world_stop(world, world->node);
	atomic_store(&board->word[2], 1);
	TRY(await(world, &board->word[1], 2));
	world_kill(world, world->node);
	CHECK_EQ(world, world_join(world, client), 0);
	TRY(world_start_node(world));
	CHECK_EQ(world,
		 order(world, ORDER_EXPOSE, REGION, EXPOSE_DURABLE, 0, &key),
		 0);
	TRY(load_check(world, 0));
	return world_end(world);
}

static int f5_a_dead_node_cuts_long_batches(struct world *world)
{
	uint32_t i;

	TRY(end_node(world, true));
	for (i = 0; i < rounds(world, 0, 3) && i < 10; i++)
		TRY(end_node(world, false));
	return 0;
}

/* --- the client ends --- */

static int doomed_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	struct load load;

	(void)arg;
	TRY(load_open(world, &load));
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	atomic_store(&world->board->word[1], 1);
	TRY(load_post(host, &load, remote));
	TRY(load_wait(host, &load));
	for (;;) /* until it is killed */
		reef_queue_wait(host->queue, 1000000);
}

static int end_client(struct world *world, uint64_t naps)
{
	struct board *board = world->board;
	uint64_t key, sum, later;
	int client, i;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, REGION, 0, 0, &key), 0);
	atomic_store(&board->word[0], key);
	for (i = 0; i < BATCHES; i++)
		atomic_store(&board->flag[i], 0);
	atomic_store(&board->word[1], 0);
	atomic_store(&board->closed, 0);
	client = world_start(world, doomed_client, NULL);
	TRY(await(world, &board->word[1], 1));
	for (; naps; naps--)
		nap(world);
	world_kill(world, client);
	TRY(await(world, &board->closed, 1));
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &sum), 0);
	TRY(load_check(world, 0));
	for (i = 0; i < 20; i++)
		nap(world);
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &later), 0);
	CHECK_EQ(world, sum, later); /* closed means closed */
	return world_end(world);
}

static int f5_a_dead_client_leaves_whole_operations(struct world *world)
{
	uint32_t i;

	for (i = 0; i < rounds(world, 0, 6) && i < 20; i++)
		TRY(end_client(world, i * 6));
	return 0;
}

/* --- the connection ends, both sides live --- */

/* Behind the library's back. */
static int cut_sockets(struct world *world)
{
	CHECK(world, sockets_cut(world->board->address) > 0);
	return 0;
}

static int read_all(struct host *host, struct reef_remote *remote, void *to)
{
	uint64_t offset;

	for (offset = 0; offset < REGION; offset += LONG)
		CHECK_EQ(host->world,
			 do_read(host, remote, offset, (uint8_t *)to + offset,
				 REGION - offset < LONG
					 ? (uint32_t)(REGION - offset)
					 : LONG),
			 0);
	return 0;
}

/* cut: else only a new link takes the place of the old. */
static int lose_link(struct host *host, struct load *load, uint64_t region,
		     bool cut)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link, *next;
	uint8_t *settled = malloc(REGION), *later = malloc(REGION);
	uint64_t key = world->board->word[0];
	uint64_t polls = reef_random_below(&host->random, 40);
	uint32_t i;

	CHECK(world, settled && later);
	for (i = 0; i < BATCHES; i++)
		atomic_store(&world->board->flag[i], 0);
	CHECK_EQ(world, order(world, ORDER_CLEAR, region, 0, 0, NULL), 0);
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, key, &remote), 0);
	TRY(load_post(host, load, remote));
	for (; polls; polls--)
		reef_poll(host->queue);
	if (cut) {
		TRY(cut_sockets(world));
		TRY(load_wait(host, load));
		TRY(await_down(host, link));
	}
	CHECK_EQ(world, join_as(host, SESSION(1), &next), 0);
	CHECK_EQ(world, reef_attach(host->queue, next, key, &remote), 0);
	TRY(read_all(host, remote, settled));
	TRY(load_wait(host, load));
	TRY(await_down(host, link));
	for (i = 0; i < 20; i++)
		nap(world);
	TRY(read_all(host, remote, later));
	CHECK(world, !memcmp(settled, later, REGION));
	TRY(load_check(world, region));
	reef_link_close(link);
	reef_link_close(next);
	free(settled);
	free(later);
	return 0;
}

static int careless_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct load load;
	uint32_t i;

	(void)arg;
	TRY(load_open(world, &load));
	for (i = 0; i < rounds(world, 0, 10); i++)
		TRY(lose_link(host, &load, 0, i % 2));
	free(load.blocks);
	return 0;
}

static int f5_a_cut_connection_is_settled_by_the_next(struct world *world)
{
	uint64_t key;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, REGION, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, careless_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

/* --- the session ends --- */

static int long_streamer(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	uint64_t start_ns = reef_now_ns();
	struct note note = {.kind = NOTE_NUMBERED};
	struct reef_remote *remote;
	struct reef_link *link;
	struct load load;
	int i, rc = 0;

	(void)arg;
	TRY(load_open(world, &load));
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[0], &remote),
		 0);
	while (!rc && reef_now_ns() - start_ns < 60000000000ull) {
		TRY(load_post(host, &load, remote));
		rc = do_send(host, link, &note, sizeof(note));
		note.number++;
		TRY(load_wait(host, &load));
		for (i = 0; i < BATCHES * (int)(LONG / 8); i += 512)
			load.blocks[i]++; /* so that a late one changes sums */
		atomic_fetch_add(&board->word[1], 1);
	}
	CHECK(world, rc == -REEF_EFENCED || rc == -REEF_EINDOUBT ||
			     rc == -REEF_ENOLINK);
	reef_link_close(link);
	CHECK_EQ(world, join_numbered(host, SESSION(1), 1, &link),
		 board->word[2] == ORDER_FENCE ? -REEF_EFENCED : -ESTALE);
	free(load.blocks);
	return 0;
}

/* how: ORDER_FENCE, or ORDER_END_LINKS. */
static int cut_long_writes(struct world *world, enum order how)
{
	struct board *board = world->board;
	uint64_t key, sum, later, received;
	int client, i, rc;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, REGION, 0, 0, &key), 0);
	atomic_store(&board->word[0], key);
	atomic_store(&board->word[2], how);
	client = world_start(world, long_streamer, NULL);
	TRY(await(world, &board->word[1], 2));
	for (i = (int)reef_random_below(&world->random, 50); i; i--)
		nap(world);
	CHECK_EQ(world,
		 order(world, how, SESSION(1),
		       how == ORDER_FENCE ? 20000000000ull : 1, 0, &sum),
		 0);
	received = atomic_load(&board->received);
	rc = world_join(world, client);
	/* On shm a fence is SIGKILL. */
	CHECK_EQ(world, rc,
		 how == ORDER_FENCE && is_kind(world, "shm") ? -9 : 0);
	for (i = 0; i < 50; i++)
		nap(world);
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &later), 0);
	CHECK_EQ(world, later, sum);
	CHECK_EQ(world, atomic_load(&board->received), received);
	return world_end(world);
}

static int f7_a_fence_cuts_long_writes(struct world *world)
{
	return cut_long_writes(world, ORDER_FENCE);
}

static int f10_an_end_cuts_long_writes(struct world *world)
{
	return cut_long_writes(world, ORDER_END_LINKS);
}

/* --- words --- */

static int long_words_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	bool writer = number_of(host) > 0;
	uint8_t *block = malloc(LONG);
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i, offset, length, at;
	uint64_t word;

	(void)arg;
	CHECK(world, block);
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(meet(host, 3));
	for (i = 0; i < rounds(world, 0, 40); i++) {
		/* Any alignment; all cover the words from 16 to LONG - 128. */
		offset = (uint32_t)reef_random_below(&host->random, 16);
		length = LONG - 64 -
			 (uint32_t)reef_random_below(&host->random, 16);
		if (writer) {
			memset(block, (int)reef_random_next(&host->random),
			       length);
			CHECK_EQ(world,
				 do_write(host, remote, offset, block, length),
				 0);
			continue;
		}
		CHECK_EQ(world, do_read(host, remote, offset, block, length),
			 0);
		for (at = 16; at < LONG - 128; at += 8) {
			memcpy(&word, block + at - offset, 8);
			CHECK_EQ(world, word,
				 (word & 0xff) * 0x0101010101010101ull);
		}
	}
	free(block);
	reef_link_close(link);
	return 0;
}

static int f2_words_stay_whole_in_long_transfers(struct world *world)
{
	uint64_t key;
	int i, first;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, LONG, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	first = world->part_count;
	for (i = 0; i < 3; i++)
		world_start(world, long_words_client, NULL);
	for (i = 0; i < 3; i++)
		CHECK_EQ(world, world_join(world, first + i), 0);
	return world_end(world);
}

/* sim cuts its own transfers, at every word (sight.c, safety.c). */
const struct conform_test conform_cut[] = {
	{"f2_words_stay_whole_in_long_transfers",
	 f2_words_stay_whole_in_long_transfers, PROCESSES},
	/* verbs has no durable memory to look at afterwards. */
	{"f5_a_dead_node_cuts_long_batches", f5_a_dead_node_cuts_long_batches,
	 ON_SHM | ON_TCP},
	{"f5_a_dead_client_leaves_whole_operations",
	 f5_a_dead_client_leaves_whole_operations, PROCESSES},
	{"f5_a_cut_connection_is_settled_by_the_next",
	 f5_a_cut_connection_is_settled_by_the_next, PROCESSES},
	{"f7_a_fence_cuts_long_writes", f7_a_fence_cuts_long_writes, PROCESSES},
	{"f10_an_end_cuts_long_writes", f10_an_end_cuts_long_writes, PROCESSES},
	{NULL, NULL, ANYWHERE},
};
