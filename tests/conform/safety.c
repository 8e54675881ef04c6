/* safety.c - F7 the fence, F8 keys and bounds, F9 power. */
#include "conform.h"

#include "fabric/provider.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- F7 --- */

/* Streams writes and additions until something refuses it, with as many under
 * way as it can; then says so, if it still can. */
static int streaming_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	enum { WAY = 16 };
	struct reef_batch batches[WAY] = {0};
	struct reef_op ops[WAY][2];
	uint64_t values[WAY], count = 0, start_ns = reef_now_ns();
	struct reef_remote *remote;
	struct reef_link *link;
	int i, rc = 0;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	while (!rc && reef_now_ns() - start_ns < 60000000000ull) {
		for (i = 0; i < WAY && !rc; i++) {
			if (batches[i].queue && !batches[i].done)
				rc = reef_wait(host->queue, &batches[i]);
			if (rc)
				break;
			values[i] = ++count;
			ops[i][0] = (struct reef_op){
				.kind = REEF_WRITE,
				.remote = remote,
				.offset = 8u * (uint64_t)i,
				.local = &values[i],
				.length = 8,
			};
			ops[i][1] = (struct reef_op){
				.kind = REEF_FAA,
				.remote = remote,
				.offset = 1024 + 8u * (uint64_t)i,
				.operand = 1,
			};
			batches[i] = (struct reef_batch){
				.link = link, .ops = ops[i], .count = 2};
			rc = post_under_way(host, &batches[i]);
			if (rc)
				batches[i].queue = NULL;
		}
		atomic_fetch_add(&world->board->word[1], 1);
	}
	CHECK(world, rc == -REEF_EFENCED || rc == -REEF_EINDOUBT ||
			     rc == -REEF_ENOLINK);
	for (i = 0; i < WAY; i++)
		if (batches[i].queue && !batches[i].done)
			reef_wait(host->queue, &batches[i]);
	for (i = 0; i < 5000 && reef_link_status(link) == 0; i++)
		reef_queue_wait(host->queue, 1000000);
	CHECK(world, reef_link_status(link) < 0);
	reef_link_close(link);
	/* Not again as this session, nor as an older one; as a newer one, yes.
	 */
	CHECK_EQ(world, join_as(host, SESSION(1), &link), -REEF_EFENCED);
	CHECK_EQ(world, join_as(host, SESSION(1) - 1, &link), -REEF_EFENCED);
	CHECK_EQ(world, join_as(host, SESSION(1) + 1, &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	CHECK_EQ(world, do_faa(host, remote, 2048, 1, NULL), 0);
	reef_link_close(link);
	atomic_store(&world->board->word[2], 1);
	return 0;
}

static int f7_nothing_lands_after_the_fence(struct world *world)
{
	uint64_t key, before, after;
	int client, i, rc;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, streaming_client, NULL);
	TRY(await(world, &world->board->word[1],
		  1 + reef_random_below(&world->random, world->sim ? 5 : 50)));
	CHECK_EQ(world,
		 order(world, ORDER_FENCE, SESSION(1), 20000000000ull, 0,
		       &before),
		 0);
	rc = world_join(world, client);
	if (is_kind(world, "shm"))
		CHECK_EQ(world, rc, -9); /* a fence is SIGKILL there */
	else
		CHECK_EQ(world, rc, 0);
	for (i = 0; i < 50; i++)
		nap(world);
	CHECK_EQ(world, order(world, ORDER_SUM, 0, 0, 0, &after), 0);
	/* But for what its successor added. */
	CHECK_EQ(world, after - (is_kind(world, "shm") ? 0 : 1), before);
	return world_end(world);
}

/* A session nobody knows yet can be fenced, and others are left alone. */
static int bystander_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link, *other;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(5), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK_EQ(world,
		 order(world, ORDER_FENCE, SESSION(6), 20000000000ull, 0, NULL),
		 0);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	CHECK_EQ(world, join_as(host, SESSION(6), &other), -REEF_EFENCED);
	CHECK_EQ(world, join_as(host, SESSION(7), &other), 0);
	reef_link_close(other);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int f7_only_the_fenced_session_is_ended(struct world *world)
{
	return with_clients(world, 1, bystander_client);
}

/* --- F8 --- */

static int try_bounds(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	uint64_t size = reef_remote_size(remote), word = 5, in[2];

	CHECK_EQ(world, do_write(host, remote, size - 8, &word, 8), 0);
	CHECK_EQ(world, do_write(host, remote, size - 7, &word, 8), -ERANGE);
	CHECK_EQ(world, do_write(host, remote, size, &word, 8), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size - 8, in, 16), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size - 15, in, 16), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size, in, 1), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size, in, 8), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size + 1, in, 0), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, size + 8, in, 8), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, ~0ull - 7, in, 16), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, ~0ull - 15, in, 16), -ERANGE);
	CHECK_EQ(world, do_cas(host, remote, size, 0, 1, NULL), -ERANGE);
	CHECK_EQ(world, do_faa(host, remote, size, 1, NULL), -ERANGE);
	CHECK_EQ(world, do_faa(host, remote, ~0ull - 7, 1, NULL), -ERANGE);
	return 0;
}

static int bounds_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	uint64_t key, size, in[2], i;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, &key, NULL));
	size = reef_remote_size(remote);
	/* Often: chance decides which way each goes. */
	for (i = 0; i < 8; i++)
		TRY(try_bounds(host, remote));
	/* One bad operation, and nothing of the batch happens. */
	batch.link = link;
	ops[0] = (struct reef_op){
		.kind = REEF_FAA, .remote = remote, .operand = 1};
	ops[1] = (struct reef_op){
		.kind = REEF_FAA, .remote = remote, .offset = size};
	CHECK_EQ(world, run_batch(host, &batch), -ERANGE);
	CHECK_EQ(world, do_read(host, remote, 0, in, 8), 0);
	CHECK_EQ(world, in[0], 0);
	CHECK_EQ(world, do_read(host, remote, size - 8, in, 8), 0);
	CHECK_EQ(world, in[0], 5);
	/* Keys that were never given. */
	CHECK_EQ(world, reef_attach(host->queue, link, key + 1, &remote),
		 -REEF_EKEY);
	CHECK_EQ(world, reef_attach(host->queue, link, 0, &remote), -REEF_EKEY);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, reef_random_next(&host->random),
			     &remote),
		 -REEF_EKEY);
	CHECK_EQ(world, reef_attach(host->queue, link, key, &remote), 0);
	CHECK_EQ(world, do_read(host, remote, size - 8, in, 8), 0);
	reef_link_close(link);
	return 0;
}

static int f8_bounds_and_keys_are_checked(struct world *world)
{
	return with_clients(world, 1, bounds_client);
}

/* A remote belongs to its link. */
static int foreign_remote_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link, *other;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world, join_as(host, SESSION(2), &other), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	CHECK_EQ(world,
		 one(host, other,
		     (struct reef_op){.kind = REEF_FAA, .remote = remote}),
		 -EINVAL);
	reef_link_close(other);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int f8_a_remote_belongs_to_its_link(struct world *world)
{
	return with_clients(world, 1, foreign_remote_client);
}

/* The holder works on until it hears; when withdraw has returned 0, nothing
 * more reaches the memory. */
static int holder_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote, *again;
	struct reef_link *link;
	uint64_t start_ns = reef_now_ns(), nothing;
	int rc = 0;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	while (!rc && reef_now_ns() - start_ns < 30000000000ull) {
		rc = do_faa(host, remote, 0, 1, NULL);
		atomic_fetch_add(&world->board->word[1], 1);
		reef_poll(host->queue);
	}
	CHECK_EQ(world, rc, -REEF_EKEY);
	TRY(await(world, &world->board->word[3], 1));
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), -REEF_EKEY);
	CHECK_EQ(world, do_read(host, remote, 0, &nothing, 0), -REEF_EKEY);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &again),
		 -REEF_EKEY);
	/* The link itself is none the worse for it. */
	TRY(borrow(host, link, 4096, &again, NULL, NULL));
	CHECK_EQ(world, do_faa(host, again, 0, 1, NULL), 0);
	reef_detach(host->queue, remote);
	reef_link_close(link);
	return 0;
}

static int f8_a_withdrawn_key_is_dead(struct world *world)
{
	uint64_t key, before, after;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, holder_client, NULL);
	TRY(await(world, &world->board->word[1], 10));
	CHECK_EQ(world,
		 order(world, ORDER_WITHDRAW, 0, 20000000000ull, 0, &before),
		 0);
	atomic_store(&world->board->word[3], 1);
	CHECK_EQ(world, world_join(world, client), 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	return world_end(world);
}

/* A holder that cannot answer: the node does not say that nobody reaches the
 * memory unless that is so. */
static int deaf_holder(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t start_ns = reef_now_ns();
	struct reef_remote *remote;
	struct reef_link *link;
	int rc = 0;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	/* It never polls: its posts alone must find out. */
	while (!rc && reef_now_ns() - start_ns < 30000000000ull) {
		rc = do_faa(host, remote, 0, 1, NULL);
		atomic_fetch_add(&world->board->word[1], 1);
	}
	/* Who was waited for long enough has lost the link. */
	if (atomic_load(&world->board->word[2]) &&
	    (rc == -REEF_EINDOUBT || rc == -REEF_ENOLINK))
		rc = -REEF_EKEY;
	CHECK_EQ(world, rc, -REEF_EKEY);
	reef_link_close(link);
	return 0;
}

static int f8_a_stopped_holder_is_waited_for(struct world *world)
{
	uint64_t key, before = 0, after;
	int client, rc;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, deaf_holder, NULL);
	TRY(await(world, &world->board->word[1], 10));
	world_stop(world, client);
	rc = order(world, ORDER_WITHDRAW, 0, 50000000, 0, &before);
	/* It has the memory mapped. */
	if (is_kind(world, "shm"))
		CHECK_EQ(world, rc, -ETIMEDOUT);
	CHECK(world, rc == 0 || rc == -ETIMEDOUT);
	world_continue(world, client);
	if (rc)
		CHECK_EQ(world,
			 order(world, ORDER_WITHDRAW, 0, 20000000000ull, 0,
			       &before),
			 0);
	CHECK_EQ(world, world_join(world, client), 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	return world_end(world);
}

/* A holder that never answers: it is lost, on shm with its life, within
 * silence_ns or so. Afterwards it reaches nothing. */
static int f8_a_stopped_holder_is_ended_in_time(struct world *world)
{
	uint64_t key, before = 0, after;
	int client, rc;

	world->node_options.silence_ns = SHORT_SILENCE_NS;
	atomic_store(&world->board->word[2], 1);
	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, deaf_holder, NULL);
	TRY(await(world, &world->board->word[1], 10));
	world_stop(world, client);
	CHECK_EQ(world,
		 order(world, ORDER_WITHDRAW, 0, 20000000000ull, 0, &before),
		 0);
	world_continue(world, client);
	rc = world_join(world, client);
	CHECK_EQ(world, rc, is_kind(world, "shm") ? -SIGKILL : 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	return world_end(world);
}

/* Whoever may open a node's memory through /proc still cannot cut it short
 * under the node, or make more of it. */
static int cutting_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	int pid = world->parts[world->node].pid, number, fd, found = 0;
	struct reef_remote *remote;
	struct reef_link *link;
	char path[64], name[64];
	ssize_t length;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 65536, &remote, NULL, NULL));
	for (number = 3; number < 256; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
		length = readlink(path, name, sizeof(name) - 1);
		if (length < 7 || memcmp(name, "/memfd:", 7))
			continue;
		/* Its own user may do that (memory.h, 1). */
		CHECK_EQ(world, chmod(path, 0600), 0);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		found++;
		CHECK_EQ(world, ftruncate(fd, 0), -1);
		CHECK_EQ(world, ftruncate(fd, 1 << 20), -1);
		close(fd);
	}
	CHECK(world, found > 0);
	CHECK_EQ(world, do_faa(host, remote, 65528, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int f8_nobody_can_cut_memory_short(struct world *world)
{
	return with_clients(world, 1, cutting_client);
}

/* --- F9 --- */

static int plain_flush_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *remote;
	struct reef_link *link;
	struct reef_op flush = {.kind = REEF_FLUSH, .length = 8};
	int rc;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	TRY(borrow(host, link, 4096, &remote, NULL, NULL));
	flush.remote = remote;
	rc = one(host, link, flush);
	CHECK(world, rc == -REEF_ENOTDURABLE || rc == -REEF_ENOCAP);
	flush.length = 0;
	CHECK_EQ(world, one(host, link, flush), rc);
	CHECK_EQ(world, do_faa(host, remote, 0, 1, NULL), 0);
	reef_link_close(link);
	return 0;
}

static int f9_flush_of_plain_memory_says_so(struct world *world)
{
	return with_clients(world, 1, plain_flush_client);
}

#define DURABLE_WORDS 64

/* Writes and flushes one half, writes the other without. */
static int flushing_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t block[DURABLE_WORDS], i;
	struct reef_remote *remote;
	struct reef_link *link;
	struct reef_op ops[2];
	struct reef_batch batch = {.ops = ops, .count = 2};

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 reef_attach(host->queue, link, world->board->word[0], &remote),
		 0);
	for (i = 0; i < DURABLE_WORDS; i++)
		block[i] = i + 1;
	batch.link = link;
	ops[0] = (struct reef_op){.kind = REEF_WRITE,
				  .remote = remote,
				  .local = block,
				  .length = sizeof(block)};
	ops[1] = (struct reef_op){
		.kind = REEF_FLUSH, .remote = remote, .length = sizeof(block)};
	CHECK_EQ(world, run_batch(host, &batch), 0);
	CHECK_EQ(world,
		 do_write(host, remote, sizeof(block), block, sizeof(block)),
		 0);
	reef_link_close(link);
	return 0;
}

/* The first half was flushed; of the second each word is there or not. */
static int check_survivors(struct world *world, const uint64_t *words)
{
	uint64_t i;

	for (i = 0; i < DURABLE_WORDS; i++) {
		CHECK_EQ(world, words[i], i + 1);
		CHECK(world, words[DURABLE_WORDS + i] == 0 ||
				     words[DURABLE_WORDS + i] == i + 1);
	}
	return world_end(world);
}

static int f9_what_was_flushed_survives(struct world *world)
{
	uint64_t key, value, i;
	int client;

	TRY(world_start_node(world));
	CHECK_EQ(world,
		 order(world, ORDER_EXPOSE, 4096, EXPOSE_DURABLE, 0, &key), 0);
	atomic_store(&world->board->word[0], key);
	client = world_start(world, flushing_client, NULL);
	CHECK_EQ(world, world_join(world, client), 0);
	if (world->sim) {
		reef_sim_host_power_off(world->parts[world->node].host);
		world_join(world, world->node);
		world->node = -1;
		return check_survivors(world, world->durable->base);
	}
	world_kill(world, world->node);
	TRY(world_start_node(world));
	CHECK_EQ(world,
		 order(world, ORDER_EXPOSE, 4096, EXPOSE_DURABLE, 0, &key), 0);
	for (i = 0; i < DURABLE_WORDS; i++) {
		CHECK_EQ(world, order(world, ORDER_LOAD, 0, i * 8, 0, &value),
			 0);
		CHECK_EQ(world, value, i + 1);
	}
	return world_end(world);
}

const struct conform_test conform_safety[] = {
	{"f7_nothing_lands_after_the_fence", f7_nothing_lands_after_the_fence,
	 ANYWHERE},
	{"f7_only_the_fenced_session_is_ended",
	 f7_only_the_fenced_session_is_ended, ANYWHERE},
	{"f8_bounds_and_keys_are_checked", f8_bounds_and_keys_are_checked,
	 ANYWHERE},
	{"f8_a_remote_belongs_to_its_link", f8_a_remote_belongs_to_its_link,
	 ANYWHERE},
	{"f8_a_withdrawn_key_is_dead", f8_a_withdrawn_key_is_dead, ANYWHERE},
	{"f8_a_stopped_holder_is_waited_for", f8_a_stopped_holder_is_waited_for,
	 ANYWHERE},
	{"f8_a_stopped_holder_is_ended_in_time",
	 f8_a_stopped_holder_is_ended_in_time, ANYWHERE},
	{"f8_nobody_can_cut_memory_short", f8_nobody_can_cut_memory_short,
	 ON_SHM | ON_TCP},
	{"f9_flush_of_plain_memory_says_so", f9_flush_of_plain_memory_says_so,
	 ANYWHERE},
	/* verbs has no REEF_CAP_FLUSH. */
	{"f9_what_was_flushed_survives", f9_what_was_flushed_survives,
	 ON_SHM | ON_TCP | ON_SIM},
	{NULL, NULL, ANYWHERE},
};
