/* operations.c - F1 what operations do, F2 words stay whole. */
#include "conform.h"

#include <stdlib.h>

/* --- F1 --- */

static int kinds_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint8_t out[100], in[100], edge[2] = {0xee, 0xee};
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t before;
	uint32_t i, length, offset;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK(world, reef_remote_size(remote) >= 4096);
	/* Any length at any offset, and not a byte beside it. */
	for (i = 0; i < rounds(world, 8, 200); i++) {
		length = (uint32_t)reef_random_below(&host->random, 99) + 1;
		offset = (uint32_t)reef_random_below(&host->random, 1000) + 1;
		reef_random_fill(&host->random, out, length);
		CHECK_EQ(world, do_write(host, remote, offset - 1, edge, 1), 0);
		CHECK_EQ(world,
			 do_write(host, remote, offset + length, edge, 1), 0);
		CHECK_EQ(world, do_write(host, remote, offset, out, length), 0);
		CHECK_EQ(world, do_read(host, remote, offset, in, length), 0);
		CHECK(world, !memcmp(in, out, length));
		CHECK_EQ(world, do_read(host, remote, offset - 1, in, 1), 0);
		CHECK_EQ(world, in[0], 0xee);
		CHECK_EQ(world, do_read(host, remote, offset + length, in, 1),
			 0);
		CHECK_EQ(world, in[0], 0xee);
	}
	CHECK_EQ(world, do_faa(host, remote, 2048, 5, &before), 0);
	CHECK_EQ(world, before, 0);
	CHECK_EQ(world, do_faa(host, remote, 2048, (uint64_t)-2, &before), 0);
	CHECK_EQ(world, before, 5);
	CHECK_EQ(world, do_cas(host, remote, 2048, 3, 70, &before), 0);
	CHECK_EQ(world, before, 3);
	CHECK_EQ(world, do_cas(host, remote, 2048, 3, 80, &before), 0);
	CHECK_EQ(world, before, 70); /* no match: the value, and no change */
	CHECK_EQ(world, do_read(host, remote, 2048, &before, 8), 0);
	CHECK_EQ(world, before, 70);
	reef_detach(host->queue, remote);
	reef_link_close(link);
	return 0;
}

static int f1_each_kind_does_what_it_says(struct world *world)
{
	return with_clients(world, 1, kinds_client);
}

static int try_limits(struct host *host, uint64_t *out, uint64_t *in,
		      struct reef_op *ops)
{
	struct world *world = host->world;
	const struct reef_fabric_options *limits =
		reef_fabric_limits(host->fabric);
	uint32_t size = limits->length_max;
	struct reef_remote *remote;
	struct reef_link *link;
	struct reef_batch batch;
	uint32_t i;

	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, (uint64_t)size + 4096, &remote, NULL, NULL));
	/* Nothing at all, at the start and at the very end. */
	CHECK_EQ(world, do_read(host, remote, 0, in, 0), 0);
	CHECK_EQ(world,
		 do_write(host, remote, reef_remote_size(remote), out, 0), 0);
	/* The most. */
	for (i = 0; i < size / 8; i++)
		out[i] = reef_random_next(&host->random);
	CHECK_EQ(world, do_write(host, remote, 8, out, size), 0);
	CHECK_EQ(world, do_read(host, remote, 8, in, size), 0);
	CHECK(world, !memcmp(in, out, size));
	CHECK_EQ(world, do_read(host, remote, 0, in, size + 1), -EMSGSIZE);
	/* The most operations, one more, none. */
	for (i = 0; i <= limits->ops_max; i++)
		ops[i] = (struct reef_op){
			.kind = REEF_FAA,
			.remote = remote,
			.operand = 1,
			.offset = size,
		};
	CHECK_EQ(world, do_write(host, remote, size, &(uint64_t){0}, 8), 0);
	batch = (struct reef_batch){.link = link, .ops = ops};
	batch.count = limits->ops_max;
	CHECK_EQ(world, run_batch(host, &batch), 0);
	batch.count = limits->ops_max + 1;
	CHECK_EQ(world, run_batch(host, &batch), -EMSGSIZE);
	batch.count = 0;
	CHECK_EQ(world, run_batch(host, &batch), -EINVAL);
	CHECK_EQ(world, do_read(host, remote, size, in, 8), 0);
	CHECK_EQ(world, in[0], limits->ops_max);
	/* Malformed. */
	CHECK_EQ(world, do_faa(host, remote, 4, 1, NULL), -EINVAL);
	CHECK_EQ(world, one(host, link, (struct reef_op){.kind = 99}), -EINVAL);
	CHECK_EQ(world, one(host, link, (struct reef_op){0}), -EINVAL);
	CHECK_EQ(world, one(host, link, (struct reef_op){.kind = REEF_READ}),
		 -EINVAL);
	CHECK_EQ(world, do_send(host, link, out, limits->message_max + 1),
		 -EMSGSIZE);
	reef_link_close(link);
	return 0;
}

static int limits_client(struct host *host, void *arg)
{
	const struct reef_fabric_options *limits =
		reef_fabric_limits(host->fabric);
	uint64_t *out = malloc(limits->length_max);
	uint64_t *in = malloc(limits->length_max);
	struct reef_op *ops = calloc(limits->ops_max + 1, sizeof(*ops));
	int rc;

	(void)arg;
	rc = try_limits(host, out, in, ops);
	free(out);
	free(in);
	free(ops);
	return rc;
}

static int f1_limits_are_reached_and_kept(struct world *world)
{
	/* 16 MiB take a while in an emulator, and in sim a thousand times. */
	if (world->sim)
		world->node_options.length_max =
			world->client_options.length_max = 4096;
	else if (is_kind(world, "verbs"))
		world->node_options.length_max =
			world->client_options.length_max = 1 << 20;
	return with_clients(world, 1, limits_client);
}

#define WAY 24

struct way {
	struct reef_batch batches[WAY];
	struct reef_op ops[WAY][3];
	uint64_t words[WAY];
	uint32_t posted; /* of the batches, and not yet waited for */
};

static int many_post(struct host *host, struct reef_link *link,
		     struct reef_remote *remote, struct way *way, uint32_t i)
{
	way->ops[i][0] = (struct reef_op){
		.kind = REEF_FAA,
		.remote = remote,
		.operand = 1,
		.offset = (uint64_t)i * 8,
	};
	way->ops[i][1] = way->ops[i][0];
	way->ops[i][1].offset = WAY * 8;
	way->ops[i][2] = (struct reef_op){
		.kind = REEF_READ,
		.remote = remote,
		.local = &way->words[i],
		.length = 8,
		.offset = (uint64_t)i * 8,
	};
	way->batches[i] = (struct reef_batch){
		.link = link, .ops = way->ops[i], .count = 3};
	return post_under_way(host, &way->batches[i]);
}

static int many_round(struct host *host, struct reef_link *link,
		      struct reef_remote *remote, struct way *way,
		      uint32_t round)
{
	struct world *world = host->world;
	uint32_t i;

	for (i = 0; i < WAY; i++) {
		CHECK_EQ(world, many_post(host, link, remote, way, i), 0);
		way->posted = i + 1;
	}
	for (i = 0; i < WAY; i++) {
		if (!way->batches[i].done)
			CHECK_EQ(world,
				 reef_wait(host->queue, &way->batches[i]), 0);
		CHECK_EQ(world, way->batches[i].status, 0);
		CHECK_EQ(world, way->ops[i][0].result, round);
		CHECK_EQ(world, way->words[i], round + 1);
	}
	way->posted = 0;
	return 0;
}

/* Many batches under way at once; each FAA happens exactly once. */
static int many_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct way way = {0};
	struct reef_link *link;
	uint32_t round, i, count = rounds(world, 3, 300);
	uint64_t word = 0;
	int rc = 0;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (round = 0; rc == 0 && round < count; round++)
		rc = many_round(host, link, remote, &way, round);
	/* A check that failed left some under way, and they are on our stack.
	 */
	for (i = 0; i < way.posted; i++)
		if (!way.batches[i].done)
			reef_wait(host->queue, &way.batches[i]);
	TRY(rc);
	CHECK_EQ(world, do_read(host, remote, WAY * 8, &word, 8), 0);
	CHECK_EQ(world, word, (uint64_t)count * WAY);
	reef_link_close(link);
	return 0;
}

static int f1_batches_under_way_each_happen_once(struct world *world)
{
	return with_clients(world, 1, many_client);
}

static int messages_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t count = rounds(world, 20, 2000), i;
	uint32_t session = SESSION(1 + number_of(host));
	struct note note = {.kind = NOTE_NUMBERED};
	struct reef_message *message;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, session, &link), 0);
	for (i = 0; i < count; i++) {
		note.number = i;
		CHECK_EQ(world, do_send(host, link, &note, sizeof(note)), 0);
	}
	CHECK_EQ(world, do_send(host, link, NULL, 0), 0);
	CHECK_EQ(world, order_sends(host, session, count), 0);
	for (i = 0; i < count; i++) {
		CHECK_EQ(world,
			 reef_receive(host->queue, 20000000000ull, &message),
			 0);
		CHECK_EQ(world, message->length, sizeof(note));
		memcpy(&note, message->bytes, sizeof(note));
		CHECK_EQ(world, note.number, i);
		CHECK(world, message->link == link);
		reef_message_free(message);
	}
	CHECK_EQ(world, reef_receive(host->queue, 0, &message), -ETIMEDOUT);
	TRY(await(world, &world->board->received, count + 1));
	reef_link_close(link);
	return 0;
}

int f1_messages_arrive_once_and_in_order(struct world *world)
{
	TRY(with_clients(world, 1, messages_client));
	CHECK_EQ(world, atomic_load(&world->board->out_of_order), 0);
	CHECK_EQ(world, atomic_load(&world->board->received),
		 rounds(world, 20, 2000) + 1);
	return 0;
}

/* Messages of any length, there and back. */
static int echo_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t max = reef_fabric_limits(host->fabric)->message_max;
	const uint32_t lengths[] = {sizeof(struct note),
				    sizeof(struct note) + 1, max - 1, max};
	uint8_t *bytes = malloc(max);
	struct note note = {.kind = NOTE_ECHO};
	struct reef_message *message;
	struct reef_link *link;
	uint32_t i, length;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	for (i = 0; i < rounds(world, 6, 100); i++) {
		length = i < 4 ? lengths[i]
			       : (uint32_t)reef_random_between(
					 &host->random, sizeof(note), max);
		reef_random_fill(&host->random, bytes, length);
		memcpy(bytes, &note, sizeof(note));
		CHECK_EQ(world, do_send(host, link, bytes, length), 0);
		CHECK_EQ(world,
			 reef_receive(host->queue, 20000000000ull, &message),
			 0);
		CHECK_EQ(world, message->length, length);
		CHECK(world, !memcmp(message->bytes, bytes, length));
		reef_message_free(message);
	}
	CHECK_EQ(world, do_send(host, link, bytes, max + 1), -EMSGSIZE);
	free(bytes);
	reef_link_close(link);
	return 0;
}

static int f1_messages_of_any_length_arrive_whole(struct world *world)
{
	if (world->sim)
		world->node_options.message_max =
			world->client_options.message_max = 1000;
	return with_clients(world, 1, echo_client);
}

/* A long message after a few short ones that nobody answers: whatever room the
 * peer keeps for messages, it has to be told of by somebody. */
static int one_way_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t max = reef_fabric_limits(host->fabric)->message_max;
	uint8_t *bytes = calloc(1, max);
	struct note note = {.kind = NOTE_NUMBERED};
	struct reef_link *link;
	uint32_t few, sent = 0;

	(void)arg;
	for (few = 1; few < 8; few++) {
		CHECK_EQ(world, join_as(host, SESSION(few), &link), 0);
		for (note.number = 0; note.number < few; note.number++)
			CHECK_EQ(world,
				 do_send(host, link, &note, sizeof(note)), 0);
		sent += few;
		TRY(await(world, &world->board->received, sent));
		memcpy(bytes, &note, sizeof(note));
		CHECK_EQ(world, do_send(host, link, bytes, max), 0);
		TRY(await(world, &world->board->received, ++sent));
		reef_link_close(link);
	}
	free(bytes);
	CHECK_EQ(world, atomic_load(&world->board->out_of_order), 0);
	return 0;
}

static int f1_long_message_after_short_ones_arrives(struct world *world)
{
	return with_clients(world, 1, one_way_client);
}

/* Registered memory is like any other, alone and mixed with it. */
static int buffer_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint8_t area[2048], plain[2][512];
	struct reef_remote *remote;
	struct reef_buffer *buffer;
	struct reef_link *link;
	uint32_t i, length, from;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (i = 0; i < rounds(world, 4, 200); i++) {
		struct note note = {.kind = NOTE_NUMBERED, .number = i};
		struct reef_op ops[5];
		struct reef_batch batch = {
			.link = link, .ops = ops, .count = 5};

		CHECK_EQ(world,
			 reef_buffer_register(host->fabric, area, sizeof(area),
					      &buffer),
			 0);
		reef_random_fill(&host->random, area, 1024);
		reef_random_fill(&host->random, plain[0], 512);
		length = (uint32_t)reef_random_below(&host->random, 512);
		from = (uint32_t)reef_random_below(&host->random, 256);
		memcpy(area + 768, &note, sizeof(note));
		ops[0] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = remote,
					  .offset = 8,
					  .local = area + from,
					  .buffer = buffer,
					  .length = length};
		ops[1] = (struct reef_op){.kind = REEF_WRITE,
					  .remote = remote,
					  .offset = 1024,
					  .local = plain[0],
					  .length = 512};
		ops[2] = (struct reef_op){.kind = REEF_SEND,
					  .local = area + 768,
					  .buffer = buffer,
					  .length = sizeof(note)};
		ops[3] = (struct reef_op){.kind = REEF_READ,
					  .remote = remote,
					  .offset = 8,
					  .local = area + sizeof(area) - length,
					  .buffer = buffer,
					  .length = length};
		ops[4] = (struct reef_op){.kind = REEF_READ,
					  .remote = remote,
					  .offset = 1024,
					  .local = plain[1],
					  .length = 512};
		CHECK_EQ(world, run_batch(host, &batch), 0);
		CHECK(world, !memcmp(area + sizeof(area) - length, area + from,
				     length));
		CHECK(world, !memcmp(plain[0], plain[1], 512));
		/* Not a byte of it may lie outside. */
		ops[0].local = area + sizeof(area) - length + 1;
		if (length)
			CHECK_EQ(world, one(host, link, ops[0]), -EINVAL);
		reef_buffer_unregister(buffer);
	}
	TRY(await(world, &world->board->received, rounds(world, 4, 200)));
	reef_link_close(link);
	return 0;
}

static int f1_registered_buffers_are_like_any_memory(struct world *world)
{
	TRY(with_clients(world, 1, buffer_client));
	CHECK_EQ(world, atomic_load(&world->board->out_of_order), 0);
	CHECK_EQ(world, atomic_load(&world->board->received),
		 rounds(world, 4, 200));
	return 0;
}

/* What was reported done comes, whatever becomes of its sender: the end of its
 * process (0: without closing its link) or a kill, with room in the node's
 * inbox or without. */
static int parting_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	struct note note = {.kind = NOTE_NUMBERED};
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	for (; note.number < board->word[2]; note.number++) {
		CHECK_EQ(world, do_send(host, link, &note, sizeof(note)), 0);
		atomic_fetch_add(&board->word[1], 1);
	}
	return 0;
}

static int partings(struct world *world, bool kill, bool hold)
{
	struct board *board = world->board;
	uint32_t count = rounds(world, 20, 1000);
	uint64_t most = hold ? 2 : count / 2;
	int client;

	atomic_store(&board->hold, hold);
	atomic_store(&board->received, 0);
	atomic_store(&board->word[1], 0);
	atomic_store(&board->word[2], count);
	client = world_start(world, parting_client, NULL);
	if (kill) {
		TRY(await(world, &board->word[1],
			  1 + reef_random_below(&world->random, most)));
		world_kill(world, client);
	} else {
		CHECK_EQ(world, world_join(world, client), 0);
	}
	if (world->sim) /* a while after its end */
		reef_sleep(reef_random_below(&world->random, 10000000));
	atomic_store(&board->hold, 0);
	TRY(await(world, &board->received, atomic_load(&board->word[1])));
	CHECK_EQ(world, atomic_load(&board->out_of_order), 0);
	return 0;
}

static int f1_messages_outlive_their_sender(struct world *world)
{
	/* A node that takes nothing keeps a tcp client from its end. */
	world->node_options.inbox_max = 4;
	TRY(world_start_node(world));
	TRY(partings(world, false, false));
	TRY(partings(world, true, false));
	TRY(partings(world, true, true));
	return world_end(world);
}

/* --- F2 --- */

#define BLOCK 256

/* In one operation, or in a batch of two. */
static int move(struct host *host, struct reef_remote *remote, uint8_t kind,
		uint64_t offset, uint64_t *block, uint32_t length)
{
	uint32_t first =
		8 * (uint32_t)reef_random_below(&host->random, length / 8);
	struct reef_op ops[2] = {
		{.kind = kind,
		 .remote = remote,
		 .offset = offset,
		 .local = block,
		 .length = first},
		{.kind = kind,
		 .remote = remote,
		 .offset = offset + first,
		 .local = block + first / 8,
		 .length = length - first},
	};
	struct reef_batch batch = {
		.link = link_of(remote), .ops = ops, .count = 2};

	if (!first)
		return one(host, link_of(remote), ops[1]);
	return run_batch(host, &batch);
}

static int whole_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	bool writer = number_of(host) > 0;
	uint64_t block[BLOCK / 8], word;
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i, j, length, offset;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	spread(host);
	TRY(meet(host, 3));
	for (i = 0; i < fast_rounds(world, 12, 3000); i++) {
		offset = 8 * (uint32_t)reef_random_below(&host->random, 4);
		length = 8 + 8 * (uint32_t)reef_random_below(&host->random, 28);
		if (writer) {
			/* All bytes of a word alike: a mixed one was torn. */
			memset(block, (int)reef_random_next(&host->random),
			       sizeof(block));
			CHECK_EQ(world,
				 move(host, remote, REEF_WRITE, offset, block,
				      length),
				 0);
			continue;
		}
		CHECK_EQ(world,
			 move(host, remote, REEF_READ, offset, block, length),
			 0);
		for (j = 0; j < length / 8; j++) {
			word = block[j] & 0xff;
			CHECK_EQ(world, block[j], word * 0x0101010101010101ull);
		}
	}
	reef_link_close(link);
	return 0;
}

static int f2_words_stay_whole(struct world *world)
{
	uint64_t key;
	int i, first;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	first = world->part_count;
	for (i = 0; i < 3; i++)
		world_start(world, whole_client, NULL);
	for (i = 0; i < 3; i++)
		CHECK_EQ(world, world_join(world, first + i), 0);
	return world_end(world);
}

const struct conform_test conform_operations[] = {
	{"f1_each_kind_does_what_it_says", f1_each_kind_does_what_it_says,
	 ANYWHERE},
	{"f1_limits_are_reached_and_kept", f1_limits_are_reached_and_kept,
	 ANYWHERE},
	{"f1_batches_under_way_each_happen_once",
	 f1_batches_under_way_each_happen_once, ANYWHERE},
	{"f1_messages_arrive_once_and_in_order",
	 f1_messages_arrive_once_and_in_order, ANYWHERE},
	{"f1_messages_of_any_length_arrive_whole",
	 f1_messages_of_any_length_arrive_whole, ANYWHERE},
	{"f1_long_message_after_short_ones_arrives",
	 f1_long_message_after_short_ones_arrives, ANYWHERE},
	{"f1_registered_buffers_are_like_any_memory",
	 f1_registered_buffers_are_like_any_memory, ANYWHERE},
	{"f1_messages_outlive_their_sender", f1_messages_outlive_their_sender,
	 ANYWHERE},
	{"f2_words_stay_whole", f2_words_stay_whole, ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
