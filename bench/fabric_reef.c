/* fabric_reef.c - the cases over Reef, as a program would: the public calls, on
 * memory of a pool in another process (what `reef up` runs).
 *
 * The memory is one block. Where a huge page begins in it is address 0 of the
 * workload; on shm the others are told where that lies in the file that the
 * node lends, so that all use the same memory. What is in front of it and
 * behind it is the pool's.
 *
 * Ways of waiting: SPIN is what the calls do by themselves; SLEEP is tasks and
 * poll(2), as a program with an event loop has it; FIBERS is a handle that
 * belongs to a scheduler.
 *
 * Thread: owner. */
#include "fabric_bench.h"

#include "pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <reef/fiber.h>
#include <reef/reef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define SLACK (4 * MIB) /* of the block, to align in it */
#define HUGE (2 * MIB)
#define EXTENT (16 * MIB) /* of the space, for anything else */
#define FILL 65536
#define FIBERS 16
#define SPIN_NS (UINT64_C(3600) * 1000000000)
#define SPACE "bench"

/* A handle, and where the memory is. */
struct hand {
	struct reef *reef;
	uint64_t base;
	struct reef_access many[WORKLOAD_BATCH_MAX];
	struct workload_state state;
};

struct client {
	struct driver_pair *pair;
	struct hand hand;
	struct hand fibers;	  /* belongs to sched; opened at first use */
	struct reef_sched *sched; /* NULL: not yet */
};

/* --- operations --- */

workload_inline int ours_read(void *context, uint64_t offset, void *to,
			      uint32_t length)
{
	struct hand *hand = context;

	return reef_read(hand->reef, hand->base + offset, to, length);
}

workload_inline int ours_read_batch(void *context, const uint64_t *offsets,
				    void *to)
{
	struct hand *hand = context;

	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++) {
		hand->many[i].address = hand->base + offsets[i];
		hand->many[i].local = (uint8_t *)to + i * WORKLOAD_LINE;
	}
	return reef_execute(hand->reef, hand->many, WORKLOAD_BATCH_MAX);
}

workload_inline int ours_write(void *context, uint64_t offset, const void *from,
			       uint32_t length)
{
	struct hand *hand = context;

	return reef_write(hand->reef, hand->base + offset, from, length);
}

workload_inline int ours_cas(void *context, uint64_t offset, uint64_t compare,
			     uint64_t swap, uint64_t *before)
{
	struct hand *hand = context;

	return reef_cas(hand->reef, hand->base + offset, compare, swap, before);
}

workload_inline int ours_faa(void *context, uint64_t offset, uint64_t add,
			     uint64_t *before)
{
	struct hand *hand = context;

	return reef_faa(hand->reef, hand->base + offset, add, before);
}

static const struct workload_ops ours_ops = {
	.read = ours_read,
	.read_batch = ours_read_batch,
	.write = ours_write,
	.cas = ours_cas,
	.faa = ours_faa,
};

/* SLEEP: never a turn of the processor without something to do. */
static int slept_read(void *context, uint64_t offset, void *to, uint32_t length)
{
	struct hand *hand = context;
	struct reef_access access = {
		.kind = REEF_READ,
		.address = hand->base + offset,
		.local = to,
		.length = length,
	};
	struct reef_task task = {.accesses = &access, .count = 1};
	struct pollfd pollfd = {reef_fd(hand->reef), POLLIN, 0};
	int rc = reef_task_submit(hand->reef, &task);

	while (rc >= 0 && !task.done) {
		rc = reef_arm(hand->reef);
		if (rc == 0 && reef_progress(hand->reef) == 0 && !task.done)
			poll(&pollfd, 1, 1000);
		rc = rc < 0 ? rc : reef_progress(hand->reef);
	}
	return rc < 0 ? rc : task.status;
}

static const struct workload_ops slept_ops = {
	.read = slept_read,
	.read_batch = ours_read_batch,
	.write = ours_write,
	.cas = ours_cas,
	.faa = ours_faa,
};

/* --- opening --- */

static int fail(struct driver_pair *pair, const char *what, int rc)
{
	return driver_fail(pair, rc, "%s: %s", what, reef_error_text(rc));
}

static int hand_open(struct driver_pair *pair, struct hand *hand)
{
	struct reef_options options = {.fabrics = pair->options.fabric};
	int rc = reef_open("local", &options, &hand->reef);

	if (rc)
		return rc;
	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++)
		hand->many[i] = (struct reef_access){
			.kind = REEF_READ,
			.length = WORKLOAD_LINE,
		};
	return driver_state(&hand->state, pair->options.size);
}

static int fill(const struct hand *hand, uint64_t size)
{
	uint64_t *words = malloc(FILL);
	int rc = words ? 0 : -ENOMEM;

	for (uint64_t at = 0; !rc && at < size; at += FILL) {
		uint64_t length = size - at < FILL ? size - at : FILL;

		for (uint64_t i = 0; i < length / 8; i++)
			words[i] = workload_fill(at / 8 + i);
		rc = reef_write(hand->reef, hand->base + at, words, length);
	}
	free(words);
	return rc;
}

static int make_block(struct driver_pair *pair, struct hand *hand)
{
	struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct reef_space *space;
	uint64_t block;
	int rc = reef_space_open(hand->reef, SPACE, &options, &space);

	rc = rc ? rc : reef_alloc(space, pair->options.size + SLACK, &block);
	if (rc)
		return rc;
	hand->base = (block + HUGE - 1) & ~(HUGE - 1);
	return fill(hand, pair->options.size);
}

/* True if the file at that path holds the workload's memory from offset on. */
static bool has_memory(const char *path, off_t offset)
{
	uint64_t words[2] = {0};
	bool has;
	int fd;

	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	has = pread(fd, words, sizeof(words), offset) == sizeof(words) &&
	      words[0] == workload_fill(0) && words[1] == workload_fill(1);
	close(fd);
	return has;
}

/* Find the file that the block is in, among the target's. The offset in it is
 * that in the extent. */
static void tell_shared(struct driver_pair *pair, const struct hand *hand)
{
	char path[64];
	struct dirent *entry;
	struct stat about;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pair->target);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%.16s",
			 (int)pair->target, entry->d_name);
		if (stat(path, &about) || !S_ISREG(about.st_mode) ||
		    !has_memory(path, (uint32_t)hand->base))
			continue;
		snprintf(pair->shared, sizeof(pair->shared), "%.40s:%u", path,
			 (uint32_t)hand->base);
		break;
	}
	if (directory)
		closedir(directory);
}

static int ours_open_with(struct driver_pair *pair, const char *tls)
{
	struct client *client = calloc(1, sizeof(*client));
	bool is_shm = strcmp(pair->options.fabric, "shm") == 0;
	int rc;

	if (!client)
		return -ENOMEM;
	pair->context = client;
	client->pair = pair;
	setenv("REEF_TLS", tls, 1);
	rc = bench_pool_start(pair, pair->options.fabric,
			      pair->options.size + SLACK + 4 * EXTENT, EXTENT,
			      pair->options.huge);
	if (rc)
		return rc;
	rc = hand_open(pair, &client->hand);
	rc = rc ? rc : make_block(pair, &client->hand);
	if (!rc && is_shm)
		rc = workload_sweep(&ours_ops, &client->hand,
				    &client->hand.state);
	if (rc)
		return fail(pair, "the pool", rc);
	pair->target_rests = true;
	if (is_shm)
		tell_shared(pair, &client->hand);
	snprintf(pair->description, sizeof(pair->description),
		 "the public calls over %s%s, on a pool in another process, "
		 "%u%% in huge pages",
		 pair->options.fabric,
		 strcmp(tls, "yes") == 0 ? " inside TLS" : "",
		 driver_huge_percent());
	return 0;
}

static int ours_open(struct driver_pair *pair)
{
	return ours_open_with(pair, "no");
}

static int ours_open_tls(struct driver_pair *pair)
{
	return ours_open_with(pair, "yes");
}

/* --- 16 fibers --- */

struct crowd {
	struct client *client;
	const struct workload *workload;
	bool yields; /* on shm nothing ever parks, so they take turns */
	double seconds, begin, finish;
	uint64_t done;
	uint32_t seed;
	int error;
};

static int crowd_member(void *argument)
{
	struct crowd *crowd = argument;
	struct hand hand = crowd->client->fibers;
	int rc = driver_state(&hand.state,
			      (hand.state.lines + 2) * WORKLOAD_LINE);

	if (rc) {
		crowd->error = rc;
		return rc;
	}
	hand.state.random += ++crowd->seed;
	while (!crowd->error && crowd->finish < crowd->begin + crowd->seconds) {
		for (uint32_t i = 0; !rc && i < crowd->workload->chunk; i++) {
			rc = workload_read(&ours_ops, &hand, &hand.state,
					   crowd->workload->length, 1);
			crowd->done++;
			if (crowd->yields)
				reef_fiber_yield();
		}
		if (rc)
			crowd->error = rc;
		crowd->finish = workload_seconds(crowd->workload->clock);
	}
	driver_state_free(&hand.state);
	return rc;
}

static int open_in_fiber(void *argument)
{
	struct crowd *crowd = argument;
	struct client *client = crowd->client;
	uint64_t word;

	crowd->error = hand_open(client->pair, &client->fibers);
	client->fibers.base = client->hand.base;
	if (!crowd->error)
		crowd->error = reef_read(client->fibers.reef,
					 client->fibers.base, &word, 8);
	return crowd->error;
}

/* Once; the handle stays the scheduler's. */
static int fibers_open(struct crowd *crowd)
{
	struct reef_sched_options options = {.spin_ns = SPIN_NS};
	struct client *client = crowd->client;
	int rc = reef_sched_create(&options, &client->sched);

	rc = rc ? rc
		: reef_fiber_spawn(client->sched, open_in_fiber, crowd, NULL);
	rc = rc ? rc : reef_sched_run(client->sched);
	return rc ? rc : crowd->error;
}

static int crowd_run(struct client *client, const struct workload *workload,
		     double seconds, double *rate)
{
	struct crowd crowd = {
		.client = client,
		.workload = workload,
		.yields = strcmp(client->pair->options.fabric, "shm") == 0,
		.seconds = seconds,
	};
	int rc = client->sched ? 0 : fibers_open(&crowd);

	crowd.begin = crowd.finish = workload_seconds(workload->clock);
	for (uint32_t i = 0; !rc && i < FIBERS; i++)
		rc = reef_fiber_spawn(client->sched, crowd_member, &crowd,
				      NULL);
	rc = rc ? rc : reef_sched_run(client->sched);
	rc = rc ? rc : crowd.error;
	if (!rc)
		*rate = (double)crowd.done / (crowd.finish - crowd.begin);
	return rc;
}

/* --- the driver --- */

static int ours_run_case(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	const struct workload *workload = workload_find(name);
	struct client *client = pair->context;
	struct hand *hand = &client->hand;
	int rc;

	if (!workload)
		return -ENOSYS;
	if (workload->mode == WORKLOAD_FIBERS)
		rc = crowd_run(client, workload, seconds, rate);
	else if (workload->mode == WORKLOAD_SLEEP)
		rc = workload_run(workload, &slept_ops, hand, &hand->state,
				  seconds, rate);
	else
		rc = workload_run(workload, &ours_ops, hand, &hand->state,
				  seconds, rate);
	return rc && rc != -EILSEQ ? fail(pair, name, rc) : rc;
}

static void ours_close(struct driver_pair *pair)
{
	struct client *client = pair->context;

	reef_close(client->hand.reef);
}

const struct driver fabric_reef_driver = {
	.name = "reef",
	.open = ours_open,
	.run = ours_run_case,
	.close = ours_close,
};

const struct driver fabric_tls_driver = {
	.name = "reef",
	.open = ours_open_tls,
	.run = ours_run_case,
	.close = ours_close,
};
