/* both.c - one memory behind two fabrics: shm and tcp are of one atomic domain
 * (F6), the node's own processor too, so what one does the others see (F4) and
 * their atomics add up. */
#include "conform.h"

#include <stdio.h>
#include <stdlib.h>

#define CLIENTS 4 /* even: near, over shm; odd: far, over tcp */
#define FAR 2
#define WORD_FAA 0
#define WORD_CAS 64
#define STEP 1000
#define WORDS 32
#define BLOCK(pair) (1024u + 512u * (uint64_t)(pair))
/* On the board. */
#define PHASE 6
#define ADDED 7

struct door {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_region *region;
};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	memcpy(key, conform_key, REEF_KEY_SIZE);
	return 0;
}

static int door_open(struct world *world, struct door *door,
		     struct reef_memory *memory, const char *address)
{
	struct reef_listen_options options = {.credential = credential};

	CHECK_EQ(world, reef_expose(door->fabric, memory, &door->region), 0);
	CHECK_EQ(world,
		 reef_listen(door->queue, address, &options, &door->listener),
		 0);
	return 0;
}

static int door_close(struct world *world, struct door *door)
{
	reef_listener_close(door->listener);
	CHECK_EQ(world,
		 reef_withdraw(door->queue, door->region, 20000000000ull), 0);
	return 0;
}

/* Serve both, and take part. */
static uint64_t serve(struct board *board, struct door *doors,
		      _Atomic uint64_t *words)
{
	uint64_t added = 0;

	while (!atomic_load(&board->quit)) {
		reef_poll(doors[0].queue);
		reef_poll(doors[1].queue);
		atomic_fetch_add(&words[WORD_FAA / 8], 1);
		added++;
	}
	return added;
}

static int node_of_both(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	struct door doors[2] = {{0}, {host->fabric, host->queue, NULL, NULL}};
	struct reef_memory_options options = {.size = 4096};
	struct reef_memory *memory;
	char address[96];
	uint64_t added;

	(void)arg;
	CHECK_EQ(
		world,
		reef_fabric_open("shm", &world->node_options, &doors[0].fabric),
		0);
	CHECK_EQ(world, reef_queue_open(doors[0].fabric, NULL, &doors[0].queue),
		 0);
	CHECK_EQ(world, reef_memory_create(&options, &memory), 0);
	snprintf(address, sizeof(address), "shm:%s/both", world->directory);
	TRY(door_open(world, &doors[0], memory, address));
	snprintf(address, sizeof(address), "tcp:%s:0",
		 world->netns[0] ? "10.99.0.1" : "127.0.0.1");
	TRY(door_open(world, &doors[1], memory, address));
	atomic_store(&board->word[0], reef_region_key(doors[0].region));
	atomic_store(&board->word[1], reef_region_key(doors[1].region));
	strcpy(board->address, reef_listener_address(doors[1].listener));
	atomic_store(&board->listening, 1);
	added = serve(board, doors, memory->base);
	atomic_store(&board->word[2],
		     ((uint64_t *)memory->base)[WORD_FAA / 8] - added);
	atomic_store(&board->word[3], ((uint64_t *)memory->base)[WORD_CAS / 8]);
	TRY(door_close(world, &doors[0]));
	TRY(door_close(world, &doors[1]));
	reef_queue_close(doors[0].queue);
	reef_fabric_close(doors[0].fabric);
	reef_memory_destroy(memory);
	return 0;
}

/* Over tcp so often; over shm for as long as that takes, so that they meet in
 * every instruction. */
static uint32_t turns(const struct world *world)
{
	return rounds(world, 0, 2000);
}

static bool is_near(const struct host *host)
{
	return number_of(host) % 2 == 0;
}

static bool goes_on(const struct host *host, uint32_t turn, uint64_t phase)
{
	struct board *board = host->world->board;

	if (is_near(host))
		return atomic_load(&board->word[PHASE]) < phase * FAR &&
		       !atomic_load(&board->failed);
	return turn < turns(host->world);
}

static int end_phase(struct host *host, uint64_t phase)
{
	struct board *board = host->world->board;

	if (!is_near(host))
		atomic_fetch_add(&board->word[PHASE], 1);
	/* The next one begins when all are there. */
	return meet(host, (phase + 1) * CLIENTS);
}

static int add(struct host *host, struct reef_remote *remote)
{
	struct board *board = host->world->board;
	uint32_t i;

	for (i = 0; goes_on(host, i, 1); i++) {
		CHECK_EQ(host->world, do_faa(host, remote, WORD_FAA, 1, NULL),
			 0);
		atomic_fetch_add(&board->word[ADDED], 1);
	}
	return end_phase(host, 1);
}

/* Near ones add and take away one, so that the word is often what the far ones
 * expect: who adds a thousand and loses one of those is found out. */
static int exchange(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	uint64_t before = 0, base = 0;
	uint32_t i, tries;

	for (i = 0; goes_on(host, i, 2); i++) {
		if (is_near(host)) {
			CHECK_EQ(world, do_faa(host, remote, WORD_CAS, 1, NULL),
				 0);
			CHECK_EQ(world,
				 do_faa(host, remote, WORD_CAS, (uint64_t)-1,
					NULL),
				 0);
			continue;
		}
		for (tries = 0;; tries++) {
			CHECK(world, tries < 1000000);
			CHECK_EQ(world,
				 do_cas(host, remote, WORD_CAS, base,
					base + STEP, &before),
				 0);
			if (before == base)
				break;
			base = before - before % STEP;
		}
	}
	return end_phase(host, 2);
}

/* Words stay whole between two fabrics, too (F2). Clients 0 and 3 write. */
static int tear(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	int me = number_of(host);
	uint64_t block[WORDS];
	uint32_t i, j;

	for (i = 0; goes_on(host, i, 3); i++) {
		memset(block, (int)(i * 7 + 1), sizeof(block));
		if (me == 0 || me == 3) {
			CHECK_EQ(world,
				 do_write(host, remote, BLOCK(me / 2), block,
					  sizeof(block)),
				 0);
			continue;
		}
		CHECK_EQ(world,
			 do_read(host, remote, BLOCK(me / 2), block,
				 sizeof(block)),
			 0);
		for (j = 0; j < WORDS; j++)
			CHECK_EQ(world, block[j],
				 (block[j] & 0xff) * 0x0101010101010101ull);
	}
	return end_phase(host, 3);
}

static int with_door(struct host *host, const char *address, uint64_t key)
{
	struct world *world = host->world;
	struct reef_connect_options options = {
		.session = SESSION(1 + number_of(host)),
		.identity = "conform",
		.timeout_ns = 20000000000ull,
	};
	struct reef_remote *remote;
	struct reef_link *link;

	memcpy(options.key, conform_key, REEF_KEY_SIZE);
	CHECK_EQ(world, reef_connect(host->queue, address, &options, &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, key, &remote), 0);
	TRY(meet(host, CLIENTS));
	TRY(add(host, remote));
	TRY(exchange(host, remote));
	TRY(tear(host, remote));
	if (number_of(host) < 2)
		TRY(cross(host, remote, rounds(world, 0, 2000), IN_ONE_BATCH));
	reef_link_close(link);
	return 0;
}

static int client_of_both(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct host near = *host;
	char address[96];
	int rc;

	(void)arg;
	if (number_of(host) % 2)
		return with_door(host, world->board->address,
				 world->board->word[1]);
	CHECK_EQ(world,
		 reef_fabric_open("shm", &world->client_options, &near.fabric),
		 0);
	CHECK_EQ(world, reef_queue_open(near.fabric, NULL, &near.queue), 0);
	snprintf(address, sizeof(address), "shm:%s/both", world->directory);
	rc = with_door(&near, address, world->board->word[0]);
	reef_queue_close(near.queue);
	reef_fabric_close(near.fabric);
	return rc;
}

static int f6_two_fabrics_share_one_memory(struct world *world)
{
	struct board *board = world->board;
	int i;

	world->node = world->part_count;
	world_start(world, node_of_both, NULL);
	while (!atomic_load(&board->listening)) {
		CHECK(world, !atomic_load(&board->failed));
		nap(world);
	}
	for (i = 0; i < CLIENTS; i++)
		world_start(world, client_of_both, NULL);
	for (i = 1; i <= CLIENTS; i++)
		CHECK_EQ(world, world_join(world, world->node + i), 0);
	TRY(world_end(world));
	CHECK_EQ(world, atomic_load(&board->word[2]),
		 atomic_load(&board->word[ADDED]));
	CHECK_EQ(world, atomic_load(&board->word[3]),
		 (uint64_t)STEP * FAR * turns(world));
	return 0;
}

/* Run with tcp, which brings the network name spaces. */
const struct conform_test conform_both[] = {
	{"f6_two_fabrics_share_one_memory", f6_two_fabrics_share_one_memory,
	 ON_TCP},
	{NULL, NULL, ANYWHERE},
};
