/* rights.c - F8: what may only be read, and who may only read. */
#include "conform.h"

#include "fabric/provider.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory that may only be read: what would change it is refused before anything
 * happens, and by the target if somebody posts it all the same. */

#define GUARDED 0x1234u
#define CHANGES 4

/* An operation that would change it, or make it durable. */
static struct reef_op change(struct reef_remote *remote, uint32_t which,
			     void *bytes)
{
	static const uint8_t kinds[CHANGES] = {REEF_WRITE, REEF_CAS, REEF_FAA,
					       REEF_FLUSH};

	return (struct reef_op){
		.kind = kinds[which],
		.remote = remote,
		.offset = 8,
		.length = 8,
		.local = bytes,
		.compare = GUARDED,
		.operand = 1,
	};
}

static int try_changes(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	struct reef_link *link = link_of(remote);
	uint64_t in = 7, bytes[512] = {1};
	struct reef_op ops[2];
	struct reef_batch batch = {.link = link, .ops = ops, .count = 2};
	uint32_t i;

	for (i = 0; i < CHANGES; i++) {
		CHECK_EQ(world, one(host, link, change(remote, i, bytes)),
			 -EACCES);
		/* And nothing of a batch that has one. */
		ops[0] = (struct reef_op){.kind = REEF_READ,
					  .remote = remote,
					  .local = &in,
					  .length = 8};
		ops[1] = change(remote, i, bytes);
		CHECK_EQ(world, run_batch(host, &batch), -EACCES);
		CHECK_EQ(world, in, 7);
	}
	CHECK_EQ(world, do_write(host, remote, 0, bytes, 4096), -EACCES);
	CHECK_EQ(world, do_write(host, remote, 1, bytes, 3), -EACCES);
	CHECK_EQ(world, do_write(host, remote, 0, bytes, 0), -EACCES);
	CHECK_EQ(world, do_write(host, remote, 4096, bytes, 8), -ERANGE);
	return 0;
}

/* As one whose library does not check. verbs: the device refuses, and the
 * connection is lost with it. */
static int forge_changes(struct host *host, uint64_t key)
{
	struct world *world = host->world;
	uint64_t in = 0, bytes[1] = {1};
	struct reef_remote *remote;
	struct reef_link *link;
	struct reef_op ops[3];
	struct reef_batch batch = {.ops = ops, .count = 3};
	uint32_t i;
	int rc;

	for (i = 0; i < CHANGES; i++) {
		if (is_kind(world, "verbs") && i == CHANGES - 1)
			break; /* no REEF_CAP_FLUSH */
		CHECK_EQ(world, join_as(host, SESSION(2), &link), 0);
		CHECK_EQ(world, reef_attach(host->queue, link, key, &remote),
			 0);
		CHECK(world, remote->read_only);
		remote->read_only = false;
		remote->durable = true;
		batch.link = link;
		ops[0] = ops[2] = (struct reef_op){.kind = REEF_READ,
						   .remote = remote,
						   .offset = 8,
						   .local = &in,
						   .length = 8};
		ops[1] = change(remote, i, bytes);
		rc = run_batch(host, &batch);
		if (is_kind(world, "verbs")) {
			CHECK(world, rc < 0);
		} else {
			CHECK_EQ(world, rc, -EACCES);
			CHECK_EQ(world, ops[0].status, 0);
			CHECK_EQ(world, ops[1].status, -EACCES);
			CHECK_EQ(world, ops[2].status, -REEF_ENOTDONE);
			CHECK_EQ(world, do_read(host, remote, 8, &in, 8), 0);
			CHECK_EQ(world, in, GUARDED);
		}
		reef_link_close(link);
	}
	return 0;
}

/* On shm the memory itself must hold: neither the mapping nor the descriptor,
 * even opened anew through the owner's /proc, lets anybody write. */
static int pry_open(struct host *host, struct reef_remote *remote)
{
	struct world *world = host->world;
	int pid = world->parts[world->node].pid, number, fd, found = 0;
	char path[64], name[64];
	ssize_t length;

	CHECK_EQ(world, mprotect(remote->base, 4096, PROT_READ | PROT_WRITE),
		 -1);
	for (number = 3; number < 256; number++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, number);
		length = readlink(path, name, sizeof(name) - 1);
		if (length < 12 || memcmp(name, "/memfd:reef ", 12))
			continue;
		/* Its own user may do that (memory.h, 1). */
		CHECK_EQ(world, chmod(path, 0600), 0);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		found++;
		CHECK(world, mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_SHARED, fd, 0) == MAP_FAILED);
		CHECK_EQ(world, pwrite(fd, "x", 1, 8), -1);
		CHECK_EQ(world,
			 fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, 4096),
			 -1);
		close(fd);
	}
	CHECK(world, found > 0);
	return 0;
}

static int reading_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	uint64_t in, sum, region, key, i;
	struct reef_remote *remote;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world,
		 order(world, ORDER_EXPOSE, 4096, EXPOSE_READ_ONLY, 0, &key),
		 0);
	region = world->board->argument[3];
	CHECK_EQ(world, reef_attach(host->queue, link, key, &remote), 0);
	CHECK_EQ(world, do_read(host, remote, 8, &in, 8), 0);
	CHECK_EQ(world, in, 0);
	/* Its owner writes, and that is seen. */
	CHECK_EQ(world, order(world, ORDER_STORE, region, 8, GUARDED, NULL), 0);
	CHECK_EQ(world, do_read(host, remote, 8, &in, 8), 0);
	CHECK_EQ(world, in, GUARDED);
	/* Often: chance decides which way each goes. */
	for (i = 0; i < 8; i++)
		TRY(try_changes(host, remote));
	if (is_kind(world, "shm"))
		TRY(pry_open(host, remote));
	else
		TRY(forge_changes(host, key));
	CHECK_EQ(world, order(world, ORDER_SUM, region, 0, 0, &sum), 0);
	CHECK_EQ(world, sum, GUARDED);
	CHECK_EQ(world, do_read(host, remote, 8, &in, 8), 0);
	CHECK_EQ(world, in, GUARDED);
	reef_link_close(link);
	return 0;
}

static int f8_read_only_memory_is_only_read(struct world *world)
{
	return with_clients(world, 1, reading_client);
}

/* --- two keys --- */

#define STEP 40 /* what the holder's every FAA adds */

/* Memory that others may change, to who was told its read key alone. */
static int read_key_client(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct reef_remote *writer, *reader;
	uint64_t in, region, key, read_key, i;
	struct reef_link *link;

	(void)arg;
	CHECK_EQ(world, join_as(host, SESSION(1), &link), 0);
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	read_key = world->board->argument[2];
	region = world->board->argument[3];
	CHECK(world, read_key && read_key != key);
	CHECK_EQ(world, reef_attach(host->queue, link, read_key, &reader), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, key, &writer), 0);
	CHECK_EQ(world, reef_remote_size(reader), 4096);
	in = GUARDED;
	CHECK_EQ(world, do_write(host, writer, 8, &in, 8), 0);
	for (i = 0; i < 8; i++)
		TRY(try_changes(host, reader));
	if (is_kind(world, "shm"))
		CHECK_EQ(world,
			 mprotect(reader->base, 4096, PROT_READ | PROT_WRITE),
			 -1);
	else
		TRY(forge_changes(host, read_key));
	CHECK_EQ(world, do_read(host, reader, 8, &in, 8), 0);
	CHECK_EQ(world, in, GUARDED);
	CHECK_EQ(world, order(world, ORDER_LOAD, region, 8, 0, &in), 0);
	CHECK_EQ(world, in, GUARDED);
	/* One goes without the other, and is as good as before. */
	reef_detach(host->queue, reader);
	CHECK_EQ(world, do_faa(host, writer, 8, STEP, &in), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, read_key, &reader), 0);
	reef_detach(host->queue, writer);
	CHECK_EQ(world, do_read(host, reader, 8, &in, 8), 0);
	CHECK_EQ(world, in, GUARDED + STEP);
	reef_link_close(link);
	return 0;
}

static int f8_a_read_key_only_reads(struct world *world)
{
	return with_clients(world, 1, read_key_client);
}

/* Holds a region by both keys, or by the read key alone, until both are void.
 */
static int two_keys_holder(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	uint64_t start_ns = reef_now_ns(), in;
	struct reef_remote *writer = NULL, *reader, *again;
	struct reef_message *message;
	bool writes = arg != NULL;
	struct reef_link *link;
	int rc = 0;

	CHECK_EQ(world, join_as(host, SESSION(writes ? 1 : 2), &link), 0);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[2], &reader),
		 0);
	if (writes)
		CHECK_EQ(
			world,
			reef_attach(host->queue, link, board->word[0], &writer),
			0);
	while (!rc && reef_now_ns() - start_ns < 30000000000ull) {
		rc = do_read(host, reader, 0, &in, 8);
		if (!rc && writes)
			rc = do_faa(host, writer, 0, STEP, NULL);
		atomic_fetch_add(&board->word[writes ? 1 : 4], 1);
		reef_poll(host->queue);
	}
	CHECK_EQ(world, rc, -REEF_EKEY);
	/* The other key's withdrawal waits for our answer, too. */
	while (!atomic_load(&board->word[3]) &&
	       reef_now_ns() - start_ns < 30000000000ull)
		CHECK(world, reef_receive(host->queue, 1000000, &message));
	CHECK_EQ(world, do_read(host, reader, 0, &in, 8), -REEF_EKEY);
	if (writes)
		CHECK_EQ(world, do_faa(host, writer, 0, 1, NULL), -REEF_EKEY);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[2], &again),
		 -REEF_EKEY);
	CHECK_EQ(world, reef_attach(host->queue, link, board->word[0], &again),
		 -REEF_EKEY);
	reef_link_close(link);
	return 0;
}

static int f8_withdrawing_ends_both_keys(struct world *world)
{
	uint64_t key, before, after;
	int both, one;

	TRY(world_start_node(world));
	CHECK_EQ(world, order(world, ORDER_EXPOSE, 4096, 0, 0, &key), 0);
	atomic_store(&world->board->word[2], world->board->argument[2]);
	atomic_store(&world->board->word[0], key);
	both = world_start(world, two_keys_holder, world);
	one = world_start(world, two_keys_holder, NULL);
	TRY(await(world, &world->board->word[1], 10));
	TRY(await(world, &world->board->word[4], 10));
	CHECK_EQ(world,
		 order(world, ORDER_WITHDRAW, 0, 20000000000ull, 0, &before),
		 0);
	atomic_store(&world->board->word[3], 1);
	CHECK_EQ(world, world_join(world, both), 0);
	CHECK_EQ(world, world_join(world, one), 0);
	CHECK_EQ(world, order(world, ORDER_LOAD, 0, 0, 0, &after), 0);
	CHECK_EQ(world, before, after);
	return world_end(world);
}

const struct conform_test conform_rights[] = {
	{"f8_read_only_memory_is_only_read", f8_read_only_memory_is_only_read,
	 ANYWHERE},
	{"f8_a_read_key_only_reads", f8_a_read_key_only_reads, ANYWHERE},
	{"f8_withdrawing_ends_both_keys", f8_withdrawing_ends_both_keys,
	 ANYWHERE},
	{NULL, NULL, ANYWHERE},
};
