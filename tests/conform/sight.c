/* sight.c - F4 what is completed is seen, F5 what is lost is in doubt until the
 * next link, F6 atomics are atomic in their domain. */
#include "conform.h"

#include <stdlib.h>

/* --- F4 --- */

/* Who is released last goes on first, so try all sorts of delays on both sides.
 */
static void stagger(uint64_t round, int me)
{
	uint64_t delay = me ? round % 128 : round / 128 % 128;

	while (delay--)
		atomic_signal_fence(memory_order_seq_cst);
}

static int write_and_read(struct host *host, struct reef_remote *remote, int me,
			  uint64_t value, enum crossing how, uint64_t *seen)
{
	struct reef_op write = {
		.kind = REEF_WRITE,
		.remote = remote,
		.offset = CROSSING(me),
		.local = &value,
		.length = 8,
	};
	struct reef_op read = {
		.kind = REEF_READ,
		.remote = remote,
		.offset = CROSSING(1 - me),
		.local = seen,
		.length = 8,
	};
	struct reef_op ops[5] = {write, read};
	struct reef_batch batch = {
		.link = link_of(remote), .ops = ops, .count = 2};
	int i, rc;

	/* First words that the other one writes, too: stores stay in order, so
	 * ours waits in its processor until that has got hold of them. */
	for (i = 0; how == AFTER_A_BATCH && i < 4; i++) {
		ops[i] = write;
		ops[i].offset = CROSSING(2 + (i + me) % 4);
		ops[i + 1] = write;
		batch.count = 5;
	}

	if (how == IN_TWO)
		rc = one(host, batch.link, write);
	else
		rc = run_batch(host, &batch);
	return rc || how == IN_ONE_BATCH ? rc : one(host, batch.link, read);
}

int cross(struct host *host, struct reef_remote *remote, uint64_t count,
	  enum crossing how)
{
	struct world *world = host->world;
	struct board *board = world->board;
	int me = number_of(host), other = 1 - me;
	uint64_t round, seen;

	spread(host);
	for (round = 1; round <= count; round++) {
		/* flag: ready for the round; word[8..9]: what was seen. */
		atomic_store(&board->flag[me], round);
		TRY(await(world, &board->flag[other], round));
		stagger(round, me);
		CHECK_EQ(world,
			 write_and_read(host, remote, me, round, how, &seen),
			 0);
		atomic_store(&board->word[8 + me], seen);
		atomic_store(&board->flag[2 + me], round);
		TRY(await(world, &board->flag[2 + other], round));
		CHECK(world,
		      seen == round ||
			      atomic_load(&board->word[8 + other]) == round);
		/* Nobody goes on before both have looked. */
		atomic_store(&board->flag[4 + me], round);
		TRY(await(world, &board->flag[4 + other], round));
	}
	return 0;
}

static int crossing_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	/* Over tcp one thread of the node does it all: hardly a race. */
	uint32_t real = is_kind(world, "shm") ? 30000 : 2000;
	struct reef_remote *remote;
	struct reef_link *link;

	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(cross(host, remote, rounds(world, 15, real),
		  *(enum crossing *)arg));
	reef_link_close(link);
	return 0;
}

static int shared_clients(struct world *world, int count, part_main *main,
			  void *arg)
{
	uint64_t key;
	int i, first;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 65536, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	first = world->part_count;
	for (i = 0; i < count; i++)
		world_start(world, main, arg);
	for (i = 0; i < count; i++)
		CHECK_EQ(world, world_join(world, first + i), 0);
	return world_end(world);
}

static int f4_crossing_writes_do_not_both_miss(struct world *world)
{
	static enum crossing how = IN_TWO;

	return shared_clients(world, 2, crossing_client, &how);
}

static int f4_crossing_in_a_batch_does_not_miss(struct world *world)
{
	static enum crossing how = IN_ONE_BATCH;

	return shared_clients(world, 2, crossing_client, &how);
}

static int f4_crossing_after_a_batch_does_not_miss(struct world *world)
{
	static enum crossing how = AFTER_A_BATCH;

	return shared_clients(world, 2, crossing_client, &how);
}

/* One completes a WRITE, CAS or FAA and says so; the other must see it. */
static int telling_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	bool teller = number_of(host) == 0;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t round, words[8];

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[0], &remote),
		 0);
	for (round = 1; round <= rounds(world, 15, 2000); round++) {
		if (!teller) {
			TRY(await(world, &board->word[1], round));
			CHECK_EQ(world, do_read(host, remote, 0, words, 64), 0);
			CHECK_EQ(world, words[0], round);
			CHECK_EQ(world, words[5], round);
			CHECK_EQ(world, words[6], round);
			CHECK_EQ(world, words[7], round);
			atomic_store(&board->word[2], round);
			continue;
		}
		for (int i = 0; i < 6; i++)
			words[i] = round;
		CHECK_EQ(world, do_write(host, remote, 0, words, 48), 0);
		CHECK_EQ(world, do_faa(host, remote, 48, 1, NULL), 0);
		CHECK_EQ(world,
			 do_cas(host, remote, 56, round - 1, round, NULL), 0);
		atomic_store(&board->word[1], round);
		TRY(await(world, &board->word[2], round));
	}
	reef_link_close(link);
	return 0;
}

static int f4_what_is_completed_is_seen(struct world *world)
{
	return shared_clients(world, 2, telling_client, NULL);
}

/* --- F5 --- */

#define DOUBTS 20

static int post_doubts(struct host *host, struct reef_link *link,
		       struct reef_remote *remote, struct reef_batch *batches,
		       struct reef_op (*ops)[2], uint64_t base, uint64_t *ones)
{
	int i;

	for (i = 0; i < DOUBTS; i++) {
		ops[i][0] = (struct reef_op){
			.kind = REEF_WRITE,
			.remote = remote,
			.offset = base + 16u * (uint64_t)i,
			.local = ones,
			.length = 8,
		};
		ops[i][1] = (struct reef_op){
			.kind = REEF_FAA,
			.remote = remote,
			.offset = base + 16u * (uint64_t)i + 8,
			.operand = 1,
		};
		batches[i] = (struct reef_batch){
			.link = link, .ops = ops[i], .count = 2};
		CHECK_EQ(host->world, post_under_way(host, &batches[i]), 0);
	}
	return 0;
}

/* Work under way, the connection lost, a new one: from then on nothing of the
 * old arrives, what was reported done is there, and the rest is in doubt. */
static int doubt_round(struct host *host, uint32_t session,
		       struct reef_link **link, uint64_t key, uint64_t base)
{
	struct world *world = host->world;
	struct reef_batch batches[DOUBTS];
	struct reef_op ops[DOUBTS][2];
	uint64_t ones = ~0ull, settled[DOUBTS][2], later[DOUBTS][2];
	struct reef_link *next;
	struct reef_remote *remote;
	int i;

	CHECK_EQ(world, reef_attach(host->queue, *link, key, &remote), 0);
	TRY(post_doubts(host, *link, remote, batches, ops, base, &ones));
	if (world->sim) {
		reef_sleep(reef_random_below(&host->random, 30000));
		if (reef_random_chance(&host->random, 3, 4))
			reef_sim_lose_link(*link);
		reef_sleep(reef_random_below(&host->random, 30000));
	}
	CHECK_EQ(world, join_as(host, session, &next), 0);
	CHECK_EQ(world, reef_attach(host->queue, next, key, &remote), 0);
	for (i = 0; i < DOUBTS; i++) {
		if (!batches[i].done)
			reef_wait(host->queue, &batches[i]);
		CHECK(world, batches[i].status == 0 ||
				     batches[i].status == -REEF_EINDOUBT);
	}
	for (i = 0; i < 1000 && !reef_link_status(*link); i++)
		reef_queue_wait(host->queue, 1000000);
	CHECK_EQ(world, reef_link_status(*link), -REEF_ENOLINK);
	CHECK_EQ(world, do_read(host, remote, base, settled, sizeof(settled)),
		 0);
	for (i = 0; i < 20; i++)
		reef_sleep(world->sim ? 500000 : 1000);
	CHECK_EQ(world, do_read(host, remote, base, later, sizeof(later)), 0);
	CHECK(world, !memcmp(settled, later, sizeof(later)));
	for (i = 0; i < DOUBTS; i++) {
		if (batches[i].status == 0)
			CHECK(world,
			      settled[i][0] == ones && settled[i][1] == 1);
		CHECK(world, settled[i][0] == ones || settled[i][0] == 0);
		CHECK(world, settled[i][1] <= 1);
		/* F3a: no FAA without the WRITE before it. */
		CHECK(world, settled[i][0] == ones || settled[i][1] == 0);
	}
	reef_link_close(*link);
	*link = next;
	return 0;
}

static int doubt_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint32_t i;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	for (i = 0; i < rounds(world, 4, 100) && i < 128; i++)
		TRY(doubt_round(host, SESSION(1), &link, world->board->word[0],
				i * 512ull));
	reef_link_close(link);
	return 0;
}

static int f5_a_new_link_settles_what_was_lost(struct world *world)
{
	return shared_clients(world, 1, doubt_client, NULL);
}

/* The node dies under a stream of batches. */
static int orphan_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t block[512] = {0}, start_ns;
	struct reef_op ops[8];
	struct reef_batch batch;
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t batches = 0;
	int rc = 0, i;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	start_ns = reef_now_ns();
	for (i = 0; i < 8; i++)
		ops[i] = (struct reef_op){
			.kind = i & 1 ? REEF_READ : REEF_WRITE,
			.remote = remote,
			.local = block,
			.length = sizeof(block),
		};
	/* The clock of a virtual machine may jump, and who kills the node have
	 * to wait for a processor. */
	while (!rc && (batches < 10000 ||
		       reef_now_ns() - start_ns < 300000000000ull)) {
		batch = (struct reef_batch){
			.link = link, .ops = ops, .count = 8};
		rc = run_batch(host, &batch);
		batches++;
		atomic_fetch_add(&world->board->word[1], 1);
		if (world->sim)
			reef_sleep(reef_random_below(&host->random, 10000));
	}
	CHECK(world, rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK);
	CHECK_EQ(world, run_batch(host, &batch), -REEF_ENOLINK);
	CHECK_EQ(world, reef_link_status(link), -REEF_ENOLINK);
	CHECK(world,
	      join_as(host, SESSION(1), &(struct reef_link *){NULL}) < 0);
	reef_link_close(link);
	return 0;
}

static int f5_a_dead_node_is_noticed(struct world *world)
{
	uint64_t key;
	int client;

	if (world->sim || is_kind(world, "tcp"))
		world->client_options.silence_ns = SHORT_SILENCE_NS;
	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 65536, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, orphan_client, NULL);
	TRY(await(world, &world->board->word[1], 20));
	world_kill(world, world->node);
	world->node = -1;
	CHECK_EQ(world, world_join(world, client), 0);
	return world_end(world);
}

/* --- F6 --- */

#define COUNTERS 3

static uint32_t counts(const struct world *world)
{
	return fast_rounds(world, 10, 4000);
}

/* CAS and FAA are atomic together, too. */
static int count_by_cas(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	uint64_t before, value = 0;
	uint32_t i, tries;

	for (i = 0; i < counts(world); i++) {
		for (tries = 0;; tries++) {
			CHECK(world, tries < 100000000);
			CHECK_EQ(world,
				 do_cas(host, remote, 64, value, value + 1,
					&before),
				 0);
			if (before == value)
				break;
			value = before;
		}
		CHECK_EQ(world, do_faa(host, remote, 64, 1, &value), 0);
		value++;
	}
	return 0;
}

static int counting_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint32_t i;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	spread(host);
	TRY(meet(host, COUNTERS));
	for (i = 0; i < counts(world); i++)
		CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	TRY(meet(host, 2 * COUNTERS));
	TRY(count_by_cas(host, remote));
	reef_link_close(link);
	return 0;
}

static int f6_counters_under_contention_are_exact(struct world *world)
{
	uint64_t value, key, want = (uint64_t)COUNTERS * counts(world);
	int i, first;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	first = world->part_count;
	for (i = 0; i < COUNTERS; i++)
		world_start(world, counting_client, NULL);
	for (i = 0; i < COUNTERS; i++)
		CHECK_EQ(world, world_join(world, first + i), 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &value), 0);
	CHECK_EQ(world, value, want);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 64, 0, &value), 0);
	CHECK_EQ(world, value, 2 * want);
	return world_end(world);
}

static int domain_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t key = 0;
	int rc;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	rc = order(world, ORDER_EXPOSE, 4096, 0,
		   reef_fabric_domain(host->fabric) + 12345, &key);
	if (!rc)
		rc = reef_attach(host->queue, link, key, &remote);
	CHECK_EQ(world, rc, -REEF_EDOMAIN);
	reef_link_close(link);
	return 0;
}

static int f6_another_domain_is_refused(struct world *world)
{
	return with_clients(world, 1, domain_client);
}

const struct conform_test conform_sight[] = {
	{"f4_crossing_writes_do_not_both_miss",
	 f4_crossing_writes_do_not_both_miss, ANYWHERE},
	{"f4_crossing_in_a_batch_does_not_miss",
	 f4_crossing_in_a_batch_does_not_miss, ANYWHERE},
	{"f4_crossing_after_a_batch_does_not_miss",
	 f4_crossing_after_a_batch_does_not_miss, ANYWHERE},
	{"f4_what_is_completed_is_seen", f4_what_is_completed_is_seen,
	 ANYWHERE},
	{"f5_a_new_link_settles_what_was_lost",
	 f5_a_new_link_settles_what_was_lost, ANYWHERE},
	{"f5_a_dead_node_is_noticed", f5_a_dead_node_is_noticed, ANYWHERE},
	{"f6_counters_under_contention_are_exact",
	 f6_counters_under_contention_are_exact, ANYWHERE},
	{"f6_another_domain_is_refused", f6_another_domain_is_refused,
	 ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
