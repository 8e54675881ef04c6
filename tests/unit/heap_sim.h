/* heap_sim.h - heaps on simulated hosts, over the raw fabric: one node that
 * lends extents, and clients, each a session with a heap and some fibers.
 *
 * Sessions are fenced by the node; epochs and fences are told in plain memory,
 * as a broker's tables would tell them. Nothing is asserted in a fiber: what is
 * wrong is noted, and the test looks at it when the run is over.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_HEAP_SIM_H
#define REEF_TESTS_HEAP_SIM_H

#include "fabric/hook/count.h"
#include "pool/client/heap/heap.h"
#include "sim_world.h"

#include <errno.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define LAND_EXTENT (2 * MIB)
#define LAND_EXTENTS 6u
#define LAND_BOARD (LAND_EXTENTS * LAND_EXTENT) /* words to publish in */
#define LAND_SIZE (LAND_BOARD + 4096)
#define HEAPS_MAX 6u
#define ACTORS_MAX 2u /* fibers of a client */

struct land;

/* A fiber that may be inside reef_enter/reef_leave. */
struct actor {
	struct heap_client *client;
	bool inside;
	uint64_t epoch; /* since when */
	uint64_t times; /* it was */
};

struct heap_client {
	struct land *land;
	uint32_t number; /* from 1 */
	struct reef_sim_host *host;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_link *link;
	struct reef_remote *remote;
	bool connecting;
	struct reef_heap *heap;
	struct reef_count *count; /* of its operations; or NULL */
	struct actor actors[ACTORS_MAX];
	bool killed, fenced, ended;
};

struct land {
	struct reef_sim *sim;
	struct reef_sim_host *node;
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listener *listener;
	struct reef_memory *memory;
	struct reef_region *region;
	uint64_t key;
	bool ready, over;
	uint32_t extents; /* handed out */
	uint64_t reclaim;
	struct heap_client clients[HEAPS_MAX];
	uint32_t clients_count;
	enum reef_heap_mutant mutant;
	/* The first thing that went wrong; and how it was found. */
	char wrong[200];
};

__attribute__((format(printf, 2, 3))) static inline void
land_wrong(struct land *land, const char *format, ...)
{
	va_list arguments;

	if (land->wrong[0])
		return;
	va_start(arguments, format);
	vsnprintf(land->wrong, sizeof(land->wrong), format, arguments);
	va_end(arguments);
}

/* --- the node --- */

static inline int land_open(struct land *land, struct reef_sim_host *host)
{
	struct reef_fabric_options options = {.sim_host = host,
					      .silence_ns = SECOND};
	struct reef_listen_options listen = {.credential = world_credential};
	struct reef_memory_options memory = {.size = LAND_SIZE,
					     .backing = REEF_BACKING_SIMULATED};
	int rc = reef_fabric_open("sim", &options, &land->fabric);

	if (rc)
		return rc;
	memory.domain = reef_fabric_domain(land->fabric);
	rc = reef_memory_create(&memory, &land->memory);
	if (!rc)
		rc = reef_queue_open(land->fabric, NULL, &land->queue);
	if (!rc)
		rc = reef_expose(land->fabric, land->memory, &land->region);
	if (!rc)
		rc = reef_listen(land->queue, "sim:node/1", &listen,
				 &land->listener);
	if (!rc)
		land->key = reef_region_key(land->region);
	return rc;
}

/* Fence who was killed, some time later. */
static inline int land_fence(struct land *land)
{
	for (uint32_t i = 0; i < land->clients_count; i++) {
		struct heap_client *client = &land->clients[i];
		int rc;

		if (!client->killed || client->fenced)
			continue;
		rc = reef_fence(land->queue, SESSION(client->number),
				10 * MILLISECOND);
		if (rc == 0)
			client->fenced = true;
		else if (rc != -ETIMEDOUT)
			return rc;
	}
	return 0;
}

static inline int land_main(struct reef_sim_host *host, void *arg)
{
	struct land *land = arg;
	int rc = land_open(land, host);

	land->ready = !rc;
	while (!rc && !land->over) {
		land->reclaim++;
		rc = land_fence(land);
		if (!rc)
			rc = reef_sleep(300000);
	}
	reef_listener_close(land->listener);
	reef_queue_close(land->queue);
	reef_fabric_close(land->fabric);
	return rc;
}

/* --- a client's operations --- */

static inline int heap_client_connect(struct heap_client *client)
{
	struct reef_connect_options options = {
		.session = SESSION(client->number),
		.identity = "test",
	};
	struct reef_remote *remote;
	struct reef_link *link = NULL;
	int rc;

	memset(options.key, 7, sizeof(options.key));
	rc = reef_connect(client->queue, "sim:node/1", &options, &link);
	if (!rc)
		rc = reef_attach(client->queue, link, client->land->key,
				 &remote);
	if (rc) {
		reef_link_close(link);
		return rc;
	}
	/* Both at once: another fiber may be looking. */
	client->link = link;
	client->remote = remote;
	return 0;
}

/* A new link in place of a lost one; several fibers may notice. */
static inline int heap_client_mend(struct heap_client *client,
				   const struct reef_link *lost)
{
	int rc = 0;

	while (client->connecting && !rc)
		rc = reef_sleep(10000);
	if (rc || client->link != lost)
		return rc;
	client->connecting = true;
	reef_link_close(client->link);
	client->link = NULL;
	for (uint32_t i = 0; i < 100; i++) {
		rc = heap_client_connect(client);
		if (rc == 0 || rc == -REEF_EHOSTDEAD || rc == -REEF_EFENCED)
			break;
		if (reef_sleep(50000))
			rc = -REEF_EHOSTDEAD;
	}
	client->connecting = false;
	return rc;
}

static inline struct reef_op heap_client_op(struct heap_client *client,
					    const struct reef_access *access)
{
	uint32_t extent = (uint32_t)(access->address >> 32);

	return (struct reef_op){
		.kind = access->kind,
		.flags = access->flags,
		.length = access->length,
		.remote = client->remote,
		.offset =
			(extent - 1) * LAND_EXTENT + (uint32_t)access->address,
		.local = access->local,
		.operand = access->operand,
		.compare = access->compare,
	};
}

/* Where to go on after a batch failed; count: nowhere, it is in doubt. */
static inline uint32_t resume_at(const struct reef_op *ops, uint32_t count)
{
	uint32_t first = count;

	for (uint32_t i = count; i-- > 0;) {
		if (ops[i].status == 0)
			continue;
		if (ops[i].status == -REEF_EINDOUBT && ops[i].kind != REEF_READ)
			return count;
		first = i;
	}
	return first;
}

static inline int heap_client_execute(void *context,
				      struct reef_access *accesses,
				      uint32_t count)
{
	struct heap_client *client = context;
	struct reef_op *ops = malloc(count * sizeof(*ops));
	uint32_t from = 0;
	int rc = -REEF_ENOLINK;

	for (uint32_t tries = 0; tries < 50 && from < count; tries++) {
		const struct reef_link *link = client->link;
		struct reef_batch batch = {.link = client->link,
					   .ops = ops + from,
					   .count = count - from};

		for (uint32_t i = from; i < count; i++) {
			ops[i] = heap_client_op(client, &accesses[i]);
			ops[i].status = -REEF_ENOTDONE;
		}
		rc = link ? reef_run(client->queue, &batch) : -REEF_ENOLINK;
		for (uint32_t i = from; i < count; i++) {
			accesses[i].result = ops[i].result;
			accesses[i].status = ops[i].status;
		}
		if (rc != -REEF_EINDOUBT && rc != -REEF_ENOLINK)
			break;
		from = rc == -REEF_ENOLINK
			       ? from
			       : from + resume_at(ops + from, count - from);
		/* In doubt until there is a new link (F5). */
		if (heap_client_mend(client, link)) {
			rc = -REEF_EHOSTDEAD;
			break;
		}
	}
	free(ops);
	return rc;
}

static inline uint32_t land_extents(void *context, uint32_t *numbers,
				    uint64_t *sizes, uint32_t max)
{
	const struct land *land = ((struct heap_client *)context)->land;

	for (uint32_t i = 0; i < land->extents && i < max; i++) {
		numbers[i] = i + 1;
		sizes[i] = LAND_EXTENT;
	}
	return land->extents;
}

static inline int land_grow(void *context, uint64_t size, uint32_t *number,
			    uint64_t *real_size)
{
	struct land *land = ((struct heap_client *)context)->land;

	if (size > LAND_EXTENT || land->extents == LAND_EXTENTS)
		return -ENOSPC;
	*number = ++land->extents;
	*real_size = LAND_EXTENT;
	return 0;
}

static inline int land_is_fenced(void *context, uint32_t session)
{
	const struct land *land = ((struct heap_client *)context)->land;
	uint32_t number = session >> 16;

	return number && number <= land->clients_count &&
	       land->clients[number - 1].fenced;
}

static inline uint64_t land_reclaim(void *context)
{
	return ((struct heap_client *)context)->land->reclaim;
}

/* The oldest epoch that somebody is inside since. */
static inline uint64_t land_safe(void *context)
{
	const struct land *land = ((struct heap_client *)context)->land;
	uint64_t safe = land->reclaim;

	for (uint32_t i = 0; i < land->clients_count; i++)
		for (uint32_t j = 0; j < ACTORS_MAX; j++) {
			const struct heap_client *client = &land->clients[i];
			const struct actor *actor = &client->actors[j];

			if (!client->fenced && actor->inside &&
			    actor->epoch < safe)
				safe = actor->epoch;
		}
	return safe;
}

static const struct reef_heap_ops land_ops = {
	.execute = heap_client_execute,
	.extents = land_extents,
	.grow = land_grow,
	.is_fenced = land_is_fenced,
	.reclaim_epoch = land_reclaim,
	.safe_epoch = land_safe,
};

/* As a handle does it: headers go first (rule 4). */
static inline int heap_client_do(struct heap_client *client,
				 struct reef_access *access)
{
	int rc = 0;

	if (reef_heap_has_pending(client->heap))
		rc = reef_heap_flush(client->heap);
	if (rc)
		return rc;
	access->status = 0;
	rc = heap_client_execute(client, access, 1);
	return rc ? rc : access->status;
}

static inline int heap_client_write(struct heap_client *client,
				    uint64_t address, void *bytes,
				    uint32_t length)
{
	struct reef_access access = {.kind = REEF_WRITE,
				     .address = address,
				     .local = (uint8_t *)bytes + 8,
				     .length = length};
	bool folded = reef_heap_fold(client->heap, address, bytes);
	int rc;

	if (folded) {
		access.address -= 8;
		access.local = bytes;
		access.length += 8;
	}
	do
		rc = heap_client_do(client, &access);
	while (rc == -REEF_EINDOUBT);
	if (rc && folded)
		reef_heap_unfold(client->heap, address);
	return rc;
}

static inline int heap_client_open(struct heap_client *client,
				   struct reef_sim_host *host)
{
	struct reef_fabric_options options = {.sim_host = host,
					      .silence_ns = SECOND};
	struct reef_heap_options heap = {
		.ops = &land_ops,
		.context = client,
		.session = SESSION(client->number),
		.seed = reef_random_next(reef_sim_host_random(host)),
		.spare_max = 1,
		.mutant = client->land->mutant,
	};
	int rc;

	while (!client->land->ready)
		if (reef_sleep(1000))
			return -REEF_EHOSTDEAD;
	rc = reef_fabric_open("sim", &options, &client->fabric);
	if (!rc && client->count)
		rc = reef_count_push(client->fabric, client->count);
	if (!rc)
		rc = reef_queue_open(client->fabric, NULL, &client->queue);
	if (!rc)
		rc = heap_client_connect(client);
	if (rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT)
		rc = heap_client_mend(client, client->link);
	if (!rc)
		rc = reef_heap_create(&heap, &client->heap);
	return rc;
}

static inline void heap_client_close(struct heap_client *client)
{
	reef_heap_destroy(client->heap);
	client->heap = NULL;
	reef_link_close(client->link);
	reef_queue_close(client->queue);
	reef_fabric_close(client->fabric);
	for (uint32_t i = 0; i < ACTORS_MAX; i++)
		client->actors[i].inside &= client->killed;
	client->ended = true;
}

#endif
