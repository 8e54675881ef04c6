/* ended.c - F10: links that have numbers, late hellos, and links that are ended
 * by their number. */
#include "conform.h"

#include "fabric/provider.h"

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

	CHECK_EQ(world, join_numbered(host, session, number, &link), 0);
	CHECK_EQ(world, reef_link_number(link), number);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
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

/* Work under way, its link lost or not, and the node is told to end it: from
 * then on nothing of it arrives, and what was reported done is there. */
static int doubt_round(struct host *host, uint32_t number, uint64_t region)
{
	struct world *world = host->world;
	struct doubts doubts = {.one = 1, .note = {.kind = NOTE_CHECK}};
	uint64_t settled, later, received, done, i;
	struct reef_remote *remote;
	struct reef_link *link;

	CHECK_EQ(world, order(world, ORDER_CLEAR, region, 0, 0, NULL), 0);
	CHECK_EQ(world, join_numbered(host, SESSION(1), number, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	TRY(post_doubts(host, &doubts, remote, 0));
	dawdle(host);
	if (world->sim && reef_random_chance(&host->random, 3, 4))
		reef_sim_lose_link(link);
	dawdle(host);
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
	{"f10_nothing_lands_after_the_end", f10_nothing_lands_after_the_end,
	 ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
