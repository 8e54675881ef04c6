/* order.c - F3 what comes after what, and what a failure ends. */
#include "conform.h"

/* Layout of the order tests: a block of words, then a flag written by WRITE,
 * one by FAA, one by CAS. */
#define WORDS 16
#define FLAG_WRITE (WORDS * 8)
#define FLAG_FAA (FLAG_WRITE + 8)
#define FLAG_CAS (FLAG_FAA + 8)

static int order_writer(struct host *host, struct reef_link *link,
			struct reef_remote *remote, uint64_t region)
{
	struct world *world = host->world;
	uint64_t block[WORDS], value, i;
	uint64_t before = 0;

	for (value = 1; value <= rounds(world, 10, 2000); value++) {
		struct note note = {
			.kind = NOTE_CHECK,
			.region = region,
			.words = WORDS,
			.value = value,
		};
		struct reef_op ops[] = {
			{.kind = REEF_WRITE,
			 .remote = remote,
			 .local = block,
			 .length = sizeof(block)},
			{.kind = REEF_WRITE,
			 .remote = remote,
			 .offset = FLAG_WRITE,
			 .local = &value,
			 .length = 8},
			{.kind = REEF_FAA,
			 .remote = remote,
			 .offset = FLAG_FAA,
			 .operand = 1},
			{.kind = REEF_CAS,
			 .remote = remote,
			 .offset = FLAG_CAS,
			 .compare = before,
			 .operand = value},
			{.kind = REEF_SEND,
			 .local = &note,
			 .length = sizeof(note)},
		};
		struct reef_batch batch = {
			.link = link, .ops = ops, .count = 5};

		for (i = 0; i < WORDS; i++)
			block[i] = value;
		CHECK_EQ(world, run_batch(host, &batch), 0);
		CHECK_EQ(world, ops[3].result, before);
		before = value;
	}
	return 0;
}

/* Does a reader go on? At least so often, and as long as its writer does. */
static bool goes_on(const struct world *world, uint32_t round, uint32_t sim,
		    uint32_t real)
{
	return round < rounds(world, sim, real) ||
	       (!world->sim && !atomic_load(&world->board->word[5]) &&
		!atomic_load(&world->board->failed));
}

static int order_reader(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	uint64_t flags[3], block[WORDS], least, i;
	uint32_t round;

	for (round = 0; goes_on(world, round, 40, 4000); round++) {
		CHECK_EQ(
			world,
			do_read(host, remote, FLAG_WRITE, flags, sizeof(flags)),
			0);
		CHECK_EQ(world, do_read(host, remote, 0, block, sizeof(block)),
			 0);
		/* Whichever flag is furthest: its block came before it. */
		least = flags[0];
		if (flags[1] > least)
			least = flags[1];
		if (flags[2] > least)
			least = flags[2];
		for (i = 0; i < WORDS; i++)
			CHECK(world, block[i] >= least);
	}
	return 0;
}

static int order_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(meet(host, 2));
	TRY(number_of(host)
		    ? order_reader(host, remote)
		    : order_writer(host, link, remote, world->board->word[1]));
	atomic_store(&world->board->word[5], 1);
	reef_link_close(link);
	return 0;
}

static int f3a_whatever_follows_a_write_comes_after_it(struct world *world)
{
	uint64_t key;
	int a, b;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	atomic_store(&world->board->word[1], world->board->argument[3]);
	a = world_start(world, order_client, NULL);
	b = world_start(world, order_client, NULL);
	CHECK_EQ(world, world_join(world, a), 0);
	CHECK_EQ(world, world_join(world, b), 0);
	TRY(await(world, &world->board->received, rounds(world, 10, 2000)));
	CHECK_EQ(world, atomic_load(&world->board->unmet), 0);
	return world_end(world);
}

static int read_last_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t value, block[WORDS], seen[WORDS], others[2], i;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	for (value = 1; value <= rounds(world, 12, 1000); value++) {
		struct reef_op ops[] = {
			{.kind = REEF_WRITE,
			 .remote = remote,
			 .local = block,
			 .length = sizeof(block)},
			{.kind = REEF_READ,
			 .remote = remote,
			 .local = seen,
			 .length = sizeof(seen)},
			{.kind = REEF_FAA,
			 .remote = remote,
			 .offset = FLAG_FAA,
			 .operand = 1},
			{.kind = REEF_CAS,
			 .remote = remote,
			 .offset = FLAG_CAS,
			 .compare = value - 1,
			 .operand = value},
			{.kind = REEF_READ,
			 .remote = remote,
			 .offset = FLAG_FAA,
			 .local = others,
			 .length = 16},
		};
		struct reef_batch batch = {
			.link = link, .ops = ops, .count = 5};

		for (i = 0; i < WORDS; i++)
			block[i] = value;
		CHECK_EQ(world, run_batch(host, &batch), 0);
		for (i = 0; i < WORDS; i++)
			CHECK_EQ(world, seen[i], value);
		CHECK_EQ(world, others[0], value);
		CHECK_EQ(world, others[1], value);
	}
	reef_link_close(link);
	return 0;
}

static int f3b_a_read_comes_after_all_before_it(struct world *world)
{
	return with_clients(world, 1, read_last_client);
}

/* READ then WRITE of the same bytes: ORDERED, the READ sees the old ones. And
 * whoever sees the ORDERED WRITE sees the FAA before it. */
static int ordered_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t value, block[WORDS], seen[WORDS] = {0}, pair[2], i;
	uint32_t round;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1 + number_of(host)), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(meet(host, 2));
	for (round = 0; number_of(host) && goes_on(world, round, 40, 2000);
	     round++) {
		CHECK_EQ(world, do_read(host, remote, FLAG_CAS, &pair[1], 8),
			 0);
		CHECK_EQ(world, do_read(host, remote, FLAG_FAA, &pair[0], 8),
			 0);
		CHECK(world, pair[0] >= pair[1]);
	}
	for (value = 1;
	     !number_of(host) && value <= fast_rounds(world, 12, 1000);
	     value++) {
		struct reef_op ops[] = {
			{.kind = REEF_FAA,
			 .remote = remote,
			 .offset = FLAG_FAA,
			 .operand = 1},
			{.kind = REEF_WRITE,
			 .flags = REEF_ORDERED,
			 .remote = remote,
			 .offset = FLAG_CAS,
			 .local = &value,
			 .length = 8},
			{.kind = REEF_READ,
			 .remote = remote,
			 .local = seen,
			 .length = sizeof(seen)},
			{.kind = REEF_WRITE,
			 .flags = REEF_ORDERED,
			 .remote = remote,
			 .local = block,
			 .length = sizeof(block)},
		};
		struct reef_batch batch = {
			.link = link, .ops = ops, .count = 4};

		for (i = 0; i < WORDS; i++)
			block[i] = value;
		CHECK_EQ(world, run_batch(host, &batch), 0);
		for (i = 0; i < WORDS; i++)
			CHECK_EQ(world, seen[i], value - 1);
	}
	atomic_store(&world->board->word[5], 1);
	reef_link_close(link);
	return 0;
}

static int f3c_ordered_waits_for_what_is_before(struct world *world)
{
	uint64_t key;
	int a, b;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	a = world_start(world, ordered_client, NULL);
	b = world_start(world, ordered_client, NULL);
	CHECK_EQ(world, world_join(world, a), 0);
	CHECK_EQ(world, world_join(world, b), 0);
	return world_end(world);
}

/* Every kind that may overtake, flagged: each waits for the READ or FAA before
 * it. */
static int ordered_kinds_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t value, seen[2], region;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, &region));
	for (value = 1; value <= rounds(world, 12, 1000); value++) {
		struct note note = {
			.kind = NOTE_CHECK,
			.region = region,
			.offset = 16,
			.words = 1,
			.value = value,
		};
		struct reef_op ops[] = {
			{.kind = REEF_READ,
			 .remote = remote,
			 .local = &seen[0],
			 .length = 8},
			{.kind = REEF_FAA,
			 .flags = REEF_ORDERED,
			 .remote = remote,
			 .operand = 1},
			{.kind = REEF_READ,
			 .remote = remote,
			 .offset = 8,
			 .local = &seen[1],
			 .length = 8},
			{.kind = REEF_CAS,
			 .flags = REEF_ORDERED,
			 .remote = remote,
			 .offset = 8,
			 .compare = value - 1,
			 .operand = value},
			{.kind = REEF_FAA,
			 .remote = remote,
			 .offset = 16,
			 .operand = 1},
			{.kind = REEF_SEND,
			 .flags = REEF_ORDERED,
			 .local = &note,
			 .length = sizeof(note)},
		};
		struct reef_batch batch = {
			.link = link, .ops = ops, .count = 6};

		CHECK_EQ(world, run_batch(host, &batch), 0);
		CHECK_EQ(world, seen[0], value - 1);
		CHECK_EQ(world, seen[1], value - 1);
		CHECK_EQ(world, ops[1].result, value - 1);
		CHECK_EQ(world, ops[3].result, value - 1);
	}
	TRY(await(world, &world->board->received, rounds(world, 12, 1000)));
	reef_link_close(link);
	return 0;
}

static int f3c_every_kind_can_be_ordered(struct world *world)
{
	TRY(with_clients(world, 1, ordered_kinds_client));
	CHECK_EQ(world, atomic_load(&world->board->unmet), 0);
	return 0;
}

/* Poll until the library has heard that a remote was withdrawn. */
static int await_refusal(struct host *host, struct reef_remote *remote)
{
	uint64_t word;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < 10000 && rc != -REEF_EKEY; i++) {
		rc = do_read(host, remote, 0, &word, 8);
		reef_queue_wait(host->queue, 1000000);
	}
	CHECK_EQ(host->world, rc, -REEF_EKEY);
	return 0;
}

/* A CAS that does not match stops nothing; an operation that fails at the
 * target stops all that follows. */
static int failing_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *kept, *gone;
	struct reef_link *link;
	uint64_t region, value = 7, before[2] = {0};
	struct reef_op ops[3];
	struct reef_batch batch;
	int rc;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &kept, NULL, NULL));
	TRY(borrow(host, link, 4096, &gone, NULL, &region));
	ops[0] = (struct reef_op){
		.kind = REEF_CAS, .remote = kept, .compare = 55, .operand = 66};
	ops[1] = (struct reef_op){.kind = REEF_WRITE,
				  .remote = kept,
				  .offset = 8,
				  .local = &value,
				  .length = 8};
	batch = (struct reef_batch){.link = link, .ops = ops, .count = 2};
	CHECK_EQ(world, run_batch(host, &batch), 0);
	CHECK_EQ(world, do_read(host, kept, 0, before, 16), 0);
	CHECK_EQ(world, before[0], 0);
	CHECK_EQ(world, before[1], 7);

	/* Withdrawn behind our back. Either the library knows already and
	 * refuses the whole, or the target stops at the bad one. Where the
	 * target cannot (verbs), the node waits for us to acknowledge. */
	rc = order(world, ORDER_WITHDRAW, region, 0, 0, NULL);
	CHECK(world, rc == 0 || rc == -ETIMEDOUT);
	if (rc && is_kind(world, "verbs"))
		TRY(await_refusal(host, gone));
	value = 8;
	ops[0] = ops[1];
	ops[1].remote = gone;
	ops[2] = ops[0];
	ops[2].offset = 16;
	batch.count = 3;
	rc = run_batch(host, &batch);
	CHECK_EQ(world, rc, -REEF_EKEY);
	CHECK_EQ(world, do_read(host, kept, 16, before, 8), 0);
	CHECK_EQ(world, before[0], 0); /* the third did not happen */
	CHECK_EQ(world, do_read(host, kept, 8, before, 8), 0);
	if (before[0] == 8) { /* the first did: the target stopped it */
		CHECK_EQ(world, ops[0].status, 0);
		CHECK_EQ(world, ops[1].status, -REEF_EKEY);
		CHECK_EQ(world, ops[2].status, -REEF_ENOTDONE);
	} else {
		CHECK_EQ(world, before[0], 7);
	}
	CHECK_EQ(world, do_read(host, gone, 0, before, 8), -REEF_EKEY);
	reef_link_close(link);
	return 0;
}

static int f3_a_failure_ends_the_batch(struct world *world)
{
	return with_clients(world, 1, failing_client);
}

const struct conform_test conform_order[] = {
	{"f3a_whatever_follows_a_write_comes_after_it",
	 f3a_whatever_follows_a_write_comes_after_it, ANYWHERE},
	{"f3b_a_read_comes_after_all_before_it",
	 f3b_a_read_comes_after_all_before_it, ANYWHERE},
	{"f3c_ordered_waits_for_what_is_before",
	 f3c_ordered_waits_for_what_is_before, ANYWHERE},
	{"f3c_every_kind_can_be_ordered", f3c_every_kind_can_be_ordered,
	 ANYWHERE},
	{"f3_a_failure_ends_the_batch", f3_a_failure_ends_the_batch, ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
