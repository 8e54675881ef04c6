/* fabric_reef.c - the cases over Reef itself, as a user of fabric.h writes
 * them.
 *
 * The target exposes memory and serves; the client has one end (fabric, queue,
 * link, remote) per way of waiting, because how long to spin is a fabric's
 * option. shm never asks the target for anything once attached, so it rests.
 *
 * Thread: owner. */
#include "fabric_bench.h"

#include "fabric/fabric.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIBERS 16
#define IDENTITY "bench"
#define FIRST_SESSION 0x10001
/* Nobody polls between rounds, so silence means nothing here. */
#define SILENCE_NS (UINT64_C(3600) * 1000000000)
#define SPIN_NS (UINT64_C(3600) * 1000000000)

struct invitation {
	char address[192];
	uint64_t key;
	int fd;		       /* of the memory, in the target */
	uint32_t huge_percent; /* of the target's memory */
};

/* A batch, made once and posted again and again. */
struct shot {
	struct reef_op ops[WORKLOAD_BATCH_MAX];
	struct reef_batch batch;
};

/* A client's end for one way of waiting. */
struct end {
	struct reef_fabric *fabric;
	struct reef_sched *sched; /* FIBERS only */
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
	struct reef_buffer *buffer;
	struct shot one, many;
	struct workload_state state;
};

struct client {
	struct invitation invitation;
	struct end ends[3]; /* by enum workload_mode; opened at first use */
};

/* --- operations --- */

workload_inline int ours_read(void *context, uint64_t offset, void *to,
			      uint32_t length)
{
	struct end *end = context;
	struct reef_op *op = end->one.ops;

	op->kind = REEF_READ;
	op->offset = offset;
	op->local = to;
	op->length = length;
	return reef_run(end->queue, &end->one.batch);
}

workload_inline int ours_read_batch(void *context, const uint64_t *offsets,
				    void *to)
{
	struct end *end = context;

	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++) {
		struct reef_op *op = &end->many.ops[i];

		op->offset = offsets[i];
		op->local = (uint8_t *)to + i * WORKLOAD_LINE;
	}
	return reef_run(end->queue, &end->many.batch);
}

workload_inline int ours_write(void *context, uint64_t offset, const void *from,
			       uint32_t length)
{
	struct end *end = context;
	struct reef_op *op = end->one.ops;

	op->kind = REEF_WRITE;
	op->offset = offset;
	op->local = (void *)from;
	op->length = length;
	return reef_run(end->queue, &end->one.batch);
}

workload_inline int ours_cas(void *context, uint64_t offset, uint64_t compare,
			     uint64_t swap, uint64_t *before)
{
	struct end *end = context;
	struct reef_op *op = end->one.ops;
	int rc;

	op->kind = REEF_CAS;
	op->offset = offset;
	op->compare = compare;
	op->operand = swap;
	rc = reef_run(end->queue, &end->one.batch);
	*before = op->result;
	return rc;
}

workload_inline int ours_faa(void *context, uint64_t offset, uint64_t add,
			     uint64_t *before)
{
	struct end *end = context;
	struct reef_op *op = end->one.ops;
	int rc;

	op->kind = REEF_FAA;
	op->offset = offset;
	op->operand = add;
	rc = reef_run(end->queue, &end->one.batch);
	*before = op->result;
	return rc;
}

static const struct workload_ops ours_ops = {
	.read = ours_read,
	.read_batch = ours_read_batch,
	.write = ours_write,
	.cas = ours_cas,
	.faa = ours_faa,
};

static void shot_init(struct shot *shot, struct end *end, uint32_t count)
{
	*shot = (struct shot){
		.batch = {.link = end->link, .count = count},
	};
	shot->batch.ops = shot->ops;
	for (uint32_t i = 0; i < count; i++)
		shot->ops[i] = (struct reef_op){
			.kind = REEF_READ,
			.length = WORKLOAD_LINE,
			.remote = end->remote,
			.buffer = end->buffer,
		};
}

/* --- the target --- */

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	if (strcmp(identity, IDENTITY) != 0)
		return -ENOENT;
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static void ours_progress(struct driver_pair *pair, enum workload_mode mode)
{
	if (mode == WORKLOAD_SLEEP)
		reef_queue_wait(pair->context, 10000000);
	else
		reef_poll(pair->context);
}

static int fail(struct driver_pair *pair, const char *what, int rc)
{
	return driver_fail(pair, rc, "%s: %s", what, reef_error_text(rc));
}

static int target_open(struct driver_pair *pair, struct invitation *invitation)
{
	/* It polls by reef_poll or not at all, so it need not spin by itself.*/
	struct reef_fabric_options options = {.spin_ns = 1,
					      .silence_ns = SILENCE_NS};
	struct reef_memory_options memory_options = {
		.size = pair->options.size,
		.huge_pages = pair->options.huge,
	};
	struct reef_listen_options listen_options = {.credential = credential};
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_memory *memory;
	struct reef_region *region;
	struct reef_listener *listener;
	char address[64] = "tcp:127.0.0.1:0";
	int rc;

	rc = reef_fabric_open(pair->options.fabric, &options, &fabric);
	rc = rc ? rc : reef_queue_open(fabric, NULL, &queue);
	rc = rc ? rc : reef_memory_create(&memory_options, &memory);
	rc = rc ? rc : reef_expose(fabric, memory, &region);
	if (rc)
		return fail(pair, "lending memory", rc);
	driver_fill(memory->base, pair->options.size);
	if (strcmp(pair->options.fabric, "shm") == 0)
		snprintf(address, sizeof(address), "shm:@reef-bench-%d",
			 (int)getpid());
	rc = reef_listen(queue, address, &listen_options, &listener);
	if (rc)
		return fail(pair, address, rc);
	snprintf(invitation->address, sizeof(invitation->address), "%s",
		 reef_listener_address(listener));
	invitation->key = reef_region_key(region);
	invitation->fd = memory->fd;
	invitation->huge_percent = driver_huge_percent();
	pair->context = queue;
	return 0;
}

/* Everything it opened ends with its process, without a word. */
static int ours_target(struct driver_pair *pair)
{
	struct invitation invitation = {0};
	int rc = target_open(pair, &invitation);

	rc = rc ? rc : driver_send(pair, &invitation, sizeof(invitation));
	if (!rc)
		driver_target_loop(pair, ours_progress);
	return rc;
}

/* --- the client --- */

static int end_connect(struct driver_pair *pair, struct end *end,
		       enum workload_mode mode)
{
	struct client *client = pair->context;
	struct reef_connect_options options = {
		.session = FIRST_SESSION + ((uint32_t)mode << 16),
		.identity = IDENTITY,
	};
	int rc;

	memset(options.key, 7, REEF_KEY_SIZE);
	rc = reef_connect(end->queue, client->invitation.address, &options,
			  &end->link);
	if (rc)
		return fail(pair, client->invitation.address, rc);
	rc = reef_attach(end->queue, end->link, client->invitation.key,
			 &end->remote);
	return rc ? fail(pair, "attaching the memory", rc) : 0;
}

static int end_open(struct driver_pair *pair, struct end *end,
		    enum workload_mode mode)
{
	bool sleeps = mode == WORKLOAD_SLEEP;
	struct reef_fabric_options options = {
		.spin_ns = sleeps ? 1 : SPIN_NS,
		.silence_ns = SILENCE_NS,
	};
	struct reef_sched_options sched_options = {.spin_ns = SPIN_NS};
	int rc;

	rc = driver_state(&end->state, pair->options.size);
	if (!rc && mode == WORKLOAD_FIBERS)
		rc = reef_sched_create(&sched_options, &end->sched);
	rc = rc ? rc
		: reef_fabric_open(pair->options.fabric, &options,
				   &end->fabric);
	rc = rc ? rc : reef_queue_open(end->fabric, end->sched, &end->queue);
	if (rc)
		return fail(pair, pair->options.fabric, rc);
	rc = end_connect(pair, end, mode);
	if (rc)
		return rc;
	rc = reef_buffer_register(end->fabric, end->state.local,
				  WORKLOAD_LENGTH_MAX, &end->buffer);
	if (rc)
		return fail(pair, "registering a buffer", rc);
	shot_init(&end->one, end, 1);
	shot_init(&end->many, end, WORKLOAD_BATCH_MAX);
	if (strcmp(pair->options.fabric, "shm") == 0)
		rc = workload_sweep(&ours_ops, end, &end->state);
	return rc ? fail(pair, "reading", rc) : 0;
}

/* The ends are opened here, all of them, so that none is in a measurement and
 * the target may rest afterwards. */
static int ours_open(struct driver_pair *pair)
{
	struct client *client = calloc(1, sizeof(*client));
	int rc;

	if (!client)
		return -ENOMEM;
	pair->context = client;
	rc = driver_fork(pair, ours_target);
	rc = rc ? rc
		: driver_receive(pair, &client->invitation,
				 sizeof(client->invitation));
	if (rc)
		return rc;
	rc = driver_target_go(pair, WORKLOAD_SPIN);
	for (int mode = 0; !rc && mode < 3; mode++)
		rc = end_open(pair, &client->ends[mode],
			      (enum workload_mode)mode);
	if (rc)
		return rc;
	pair->target_rests = strcmp(pair->options.fabric, "shm") == 0;
	snprintf(pair->shared, sizeof(pair->shared), "/proc/%d/fd/%d",
		 (int)pair->target, client->invitation.fd);
	snprintf(pair->description, sizeof(pair->description),
		 "%s, %u%% in huge pages",
		 reef_fabric_description(client->ends[0].fabric),
		 client->invitation.huge_percent);
	return driver_target_rest(pair);
}

/* --- 16 fibers --- */

struct crowd {
	struct end *end;
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
	struct end end = *crowd->end;
	struct reef_buffer *buffer;
	int rc;

	rc = driver_state(&end.state, (end.state.lines + 2) * WORKLOAD_LINE);
	rc = rc ? rc
		: reef_buffer_register(end.fabric, end.state.local,
				       WORKLOAD_LENGTH_MAX, &buffer);
	if (rc) {
		crowd->error = rc;
		return rc;
	}
	end.buffer = buffer;
	end.state.random += ++crowd->seed;
	shot_init(&end.one, &end, 1);
	while (!crowd->error && crowd->finish < crowd->begin + crowd->seconds) {
		for (uint32_t i = 0; !rc && i < crowd->workload->chunk; i++) {
			rc = workload_read(&ours_ops, &end, &end.state,
					   crowd->workload->length, 1);
			crowd->done++;
			if (crowd->yields)
				reef_fiber_yield();
		}
		if (rc)
			crowd->error = rc;
		crowd->finish = workload_seconds(crowd->workload->clock);
	}
	reef_buffer_unregister(buffer);
	driver_state_free(&end.state);
	return rc;
}

static int crowd_run(struct driver_pair *pair, struct end *end,
		     const struct workload *workload, double seconds,
		     double *rate)
{
	struct crowd crowd = {
		.end = end,
		.workload = workload,
		.yields = pair->target_rests,
		.seconds = seconds,
		.begin = workload_seconds(workload->clock),
	};
	int rc = 0;

	crowd.finish = crowd.begin;
	for (uint32_t i = 0; !rc && i < FIBERS; i++)
		rc = reef_fiber_spawn(end->sched, crowd_member, &crowd, NULL);
	rc = rc ? rc : reef_sched_run(end->sched);
	rc = rc ? rc : crowd.error;
	if (!rc)
		*rate = (double)crowd.done / (crowd.finish - crowd.begin);
	return rc;
}

static int ours_run_case(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	const struct workload *workload = workload_find(name);
	struct client *client = pair->context;
	struct end *end;
	int rc;

	if (!workload)
		return -ENOSYS;
	end = &client->ends[workload->mode];
	if (workload->mode == WORKLOAD_FIBERS)
		rc = crowd_run(pair, end, workload, seconds, rate);
	else
		rc = workload_run(workload, &ours_ops, end, &end->state,
				  seconds, rate);
	return rc && rc != -EILSEQ ? fail(pair, name, rc) : rc;
}

const struct driver fabric_reef_driver = {
	.name = "reef",
	.open = ours_open,
	.run = ours_run_case,
};
