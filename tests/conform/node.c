/* node.c - the node of the suite, and what clients do with it. */
#include "conform.h"

#include "fabric/near.h"
#include "fabric/provider.h"
#include "fixture/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SIM_WAIT_MIN_NS 3000
#define SIM_WAIT_MAX_NS (MILLISECOND / 2)
#define END_WAIT_NS (20000 * MILLISECOND)

struct node {
	struct host *host;
	struct reef_listener *listener;
	struct reef_memory *memory[REGIONS_MAX];
	struct reef_region *region[REGIONS_MAX]; /* NULL: withdrawn */
	uint32_t regions;
	struct reef_link *links[SLOTS_MAX]; /* by slot */
};

int conform_credential(void *context, const char *identity, uint32_t session,
		       uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)session;
	if (strncmp(identity, "conform", 7) != 0)
		return -REEF_EAUTH;
	memcpy(key, conform_key, REEF_KEY_SIZE);
	return 0;
}

static void note_identity(struct node *node, const struct reef_link *link)
{
	strcpy(node->host->world->board->identity, reef_link_identity(link));
}

static void opened(void *context, struct reef_link *link)
{
	struct node *node = context;
	uint32_t slot = reef_link_session(link) >> 16;

	if (slot < SLOTS_MAX)
		node->links[slot] = link;
	note_identity(node, link);
	atomic_store(&node->host->world->board->number, reef_link_number(link));
	atomic_fetch_add(&node->host->world->board->opened, 1);
}

static void closed(void *context, struct reef_link *link, int reason)
{
	struct node *node = context;
	uint32_t slot = reef_link_session(link) >> 16;

	(void)reason;
	if (slot < SLOTS_MAX && node->links[slot] == link)
		node->links[slot] = NULL;
	note_identity(node, link);
	atomic_fetch_add(&node->host->world->board->closed, 1);
}

static int node_expose(struct node *node, uint64_t size, uint64_t how,
		       uint64_t domain, uint64_t *value)
{
	bool durable = how & EXPOSE_DURABLE;
	struct world *world = node->host->world;
	uint32_t index = node->regions;
	char path[96];
	struct reef_memory_options options = {
		.size = size,
		.durable = durable,
		.read_only = how & EXPOSE_READ_ONLY,
		.domain = domain ? domain
				 : reef_fabric_domain(node->host->fabric),
		.backing = world->sim ? REEF_BACKING_SIMULATED
			   : durable  ? REEF_BACKING_FILE
				      : REEF_BACKING_MEMFD,
	};
	int rc;

	if (index == REGIONS_MAX)
		return -ENOSPC;
	snprintf(path, sizeof(path), "%s/durable", world->directory);
	if (durable && !world->sim)
		options.path = path;
	rc = reef_memory_create(&options, &node->memory[index]);
	if (rc)
		return rc;
	rc = reef_expose(node->host->fabric, node->memory[index],
			 &node->region[index]);
	if (rc) {
		reef_memory_destroy(node->memory[index]);
		node->memory[index] = NULL;
		return rc;
	}
	node->regions++;
	if (durable && world->sim)
		world->durable = node->memory[index];
	world->board->argument[2] = reef_region_read_key(node->region[index]);
	world->board->argument[3] = index;
	*value = reef_region_key(node->region[index]);
	return 0;
}

static _Atomic uint64_t *node_word(const struct node *node, uint64_t region,
				   uint64_t offset)
{
	uint8_t *base = node->memory[region]->base;

	return (_Atomic uint64_t *)(base + offset);
}

static uint64_t node_load(const struct node *node, uint64_t region,
			  uint64_t offset)
{
	return atomic_load(node_word(node, region, offset));
}

static uint64_t node_match(const struct node *node, uint64_t region,
			   uint64_t offset, uint64_t value)
{
	uint64_t at = offset;

	while (at < node->memory[region]->size &&
	       node_load(node, region, at) == value)
		at += 8;
	return (at - offset) / 8;
}

static uint64_t node_sum(const struct node *node, uint64_t region)
{
	uint64_t at, sum = 0;

	for (at = 0; at < node->memory[region]->size; at += 8)
		sum += node_load(node, region, at);
	return sum;
}

static int node_withdraw(struct node *node, uint64_t region,
			 uint64_t timeout_ns)
{
	int rc;

	if (!node->region[region])
		return -REEF_EKEY;
	rc = reef_withdraw(node->host->queue, node->region[region], timeout_ns);
	if (!rc)
		node->region[region] = NULL;
	return rc;
}

static int node_send(struct node *node, uint32_t session, uint64_t count)
{
	struct note note = {.kind = NOTE_NUMBERED};
	int rc = 0;

	for (; !rc && note.number < count; note.number++) {
		struct reef_link *link = node->links[session >> 16];

		if (!link)
			return -REEF_ENOLINK;
		rc = do_send(node->host, link, &note, sizeof(note));
	}
	return rc;
}

static void hear(struct node *node, const struct reef_message *message)
{
	struct board *board = node->host->world->board;
	uint32_t slot = message->session >> 16;
	struct note note;
	uint64_t i;

	atomic_fetch_add(&board->received, 1);
	if (message->length < sizeof(note))
		return;
	memcpy(&note, message->bytes, sizeof(note));
	switch (note.kind) {
	case NOTE_NUMBERED:
		if (slot < SLOTS_MAX &&
		    board->next_number[slot]++ != note.number)
			atomic_fetch_add(&board->out_of_order, 1);
		break;
	case NOTE_CHECK:
		for (i = 0; i < note.words; i++)
			if (node_load(node, note.region, note.offset + i * 8) <
			    note.value)
				atomic_fetch_add(&board->unmet, 1);
		break;
	case NOTE_ECHO:
		if (message->link)
			do_send(node->host, message->link, message->bytes,
				message->length);
		break;
	}
}

static void take_messages(struct node *node)
{
	struct reef_message *message;

	while (!reef_receive(node->host->queue, 0, &message)) {
		hear(node, message);
		reef_message_free(message);
	}
}

/* False: there was no order. */
static bool obey(struct node *node)
{
	struct board *board = node->host->world->board;
	const uint64_t *argument = board->argument;
	int what = atomic_exchange(&board->order, ORDER_NONE);
	uint64_t value = 0;
	int rc = 0;

	switch (what) {
	case ORDER_NONE:
		return false;
	case ORDER_EXPOSE:
		rc = node_expose(node, argument[0], argument[1], argument[2],
				 &value);
		break;
	case ORDER_WITHDRAW:
		rc = node_withdraw(node, argument[0], argument[1]);
		if (!rc)
			value = node_sum(node, argument[0]);
		break;
	case ORDER_FENCE:
		rc = reef_fence(node->host->queue, (uint32_t)argument[0],
				argument[1]);
		if (!rc && argument[2] < node->regions)
			value = node_sum(node, argument[2]);
		/* What came before it counts: take it before saying so. */
		if (!rc)
			take_messages(node);
		break;
	case ORDER_END_LINKS:
		rc = reef_end_links(node->host->queue, (uint32_t)argument[0],
				    (uint32_t)argument[1],
				    board->end_wait_ns ? board->end_wait_ns
						       : END_WAIT_NS);
		if (!rc && argument[2] < node->regions)
			value = node_sum(node, argument[2]);
		if (!rc)
			take_messages(node);
		break;
	case ORDER_LOAD:
		value = node_load(node, argument[0], argument[1]);
		break;
	case ORDER_STORE:
		atomic_store(node_word(node, argument[0], argument[1]),
			     argument[2]);
		break;
	case ORDER_SUM:
		value = node_sum(node, argument[0]);
		break;
	case ORDER_MATCH:
		value = node_match(node, argument[0], argument[1], argument[2]);
		break;
	case ORDER_CLEAR:
		memset(node->memory[argument[0]]->base, 0,
		       node->memory[argument[0]]->size);
		break;
	case ORDER_SEND:
		rc = node_send(node, (uint32_t)argument[0], argument[1]);
		break;
	}
	board->result = rc;
	board->value = value;
	atomic_store(&board->answered, 1);
	return true;
}

static void node_close(struct node *node)
{
	uint32_t i;

	/* Clients may have died holding: what they held is gone with them, and
	 * the regions end with the fabric. */
	reef_listener_close(node->listener);
	for (i = 0; i < node->regions; i++)
		if (node->region[i])
			reef_withdraw(node->host->queue, node->region[i],
				      2000 * MILLISECOND);
	for (i = 0; i < node->regions; i++)
		if (node->memory[i] != node->host->world->durable)
			reef_memory_destroy(node->memory[i]);
}

void own_address(const struct host *host, char address[ADDRESS_SIZE])
{
	const struct world *world = host->world;

	if (world->sim)
		snprintf(address, ADDRESS_SIZE, "sim:%s/1",
			 reef_sim_host_name(host->sim_host));
	else if (is_kind(world, "shm"))
		snprintf(address, ADDRESS_SIZE, "shm:%s/node%d",
			 world->directory, host->part->index);
	else
		snprintf(address, ADDRESS_SIZE, "%s:%s:0", world->kind,
			 !world->netns[0]		    ? "127.0.0.1"
			 : host->part->index == world->node ? "10.99.0.1"
							    : "10.99.0.2");
}

int node_main(struct host *host, void *arg)
{
	struct world *world = host->world;
	struct board *board = world->board;
	struct node *node = calloc(1, sizeof(*node));
	struct reef_listen_options options = {
		.credential = conform_credential,
		.opened = opened,
		.closed = closed,
		.context = node,
	};
	char address[ADDRESS_SIZE];
	uint64_t wait_ns = SIM_WAIT_MIN_NS;
	int rc;

	(void)arg;
	node->host = host;
	own_address(host, address);
	rc = reef_listen(host->queue, address, &options, &node->listener);
	if (rc) {
		free(node);
		return fail_at(world, __FILE__, __LINE__, "listen", rc, 0);
	}
	strcpy(board->address, reef_listener_address(node->listener));
	atomic_store(&board->listening, 1);
	while (!atomic_load(&board->quit)) {
		if (!atomic_load(&board->hold))
			take_messages(node);
		/* Orders do not come through the queue: look for them, in sim
		 * less and less often. */
		wait_ns += wait_ns / 8;
		if (wait_ns > SIM_WAIT_MAX_NS)
			wait_ns = SIM_WAIT_MAX_NS;
		if (obey(node))
			wait_ns = SIM_WAIT_MIN_NS;
		rc = reef_queue_wait(host->queue,
				     world->sim ? wait_ns : 200000);
		if (rc && rc != -ETIMEDOUT)
			break;
		rc = 0;
	}
	node_close(node);
	free(node);
	return rc;
}

/* --- in a client --- */

static int join(struct host *host, uint32_t session, uint32_t number,
		const char *identity, struct reef_link **out)
{
	struct reef_connect_options options = {
		.session = session,
		.number = number,
		.identity = identity,
		.timeout_ns = 20000 * MILLISECOND,
		.short_messages = true, /* shm has another way for them */
	};

	memcpy(options.key, conform_key, REEF_KEY_SIZE);
	return reef_connect(host->queue, host->world->board->address, &options,
			    out);
}

int join_as(struct host *host, uint32_t session, struct reef_link **out)
{
	return join_with(host, session, "conform", out);
}

int join_with(struct host *host, uint32_t session, const char *identity,
	      struct reef_link **out)
{
	return join(host, session, 0, identity, out);
}

int join_numbered(struct host *host, uint32_t session, uint32_t number,
		  struct reef_link **out)
{
	return join(host, session, number, "conform", out);
}

int borrow(struct host *host, struct reef_link *link, uint64_t size,
	   struct reef_remote **out, uint64_t *key, uint64_t *region)
{
	uint64_t got;

	CHECK_EQ(host->world,
		 order(host->world, ORDER_EXPOSE, size, 0, 0, &got), 0);
	if (key)
		*key = got;
	if (region)
		*region = host->world->board->argument[3];
	CHECK_EQ(host->world, reef_attach(host->queue, link, got, out), 0);
	return 0;
}

struct reef_link *link_of(const struct reef_remote *remote)
{
	return remote->link;
}

int post_under_way(struct host *host, struct reef_batch *batch)
{
	int rc;

	while ((rc = reef_post(host->queue, batch)) == -EAGAIN) {
		rc = reef_queue_wait(host->queue, 1000000);
		if (rc && rc != -ETIMEDOUT)
			return rc;
	}
	if (rc == 1)
		batch->done = true;
	return rc < 0 ? rc : 0;
}

int run_batch(struct host *host, struct reef_batch *batch)
{
	int rc;

	if (reef_random_chance(&host->random, 1, 2))
		return reef_run(host->queue, batch);
	rc = post_under_way(host, batch);
	if (rc)
		return rc;
	return batch->done ? batch->status : reef_wait(host->queue, batch);
}

/* In place, where memory is mapped. False: not this way. */
static bool run_near(struct host *host, struct reef_op *op)
{
	bool copies = op->kind == REEF_READ || op->kind == REEF_WRITE;
	bool dirty = false;
	uint8_t *at;

	if (!reef_queue_is_near(host->queue) || !op->remote || op->flags ||
	    op->reserved || op->buffer)
		return false;
	if (copies ? !op->local || op->length > reef_fabric_limits(
							host->queue->fabric)
							->length_max
		   : (op->kind != REEF_CAS && op->kind != REEF_FAA) ||
			     op->offset & 7)
		return false;
	if (!reef_near_enter(host->queue))
		return false;
	at = reef_near_at(op->remote, op->offset, copies ? op->length : 8,
			  op->kind != REEF_READ);
	if (at) {
		reef_near_do(op->kind, at, op->local, op->length, op->compare,
			     op->operand, &op->result, &dirty);
		reef_near_end(dirty);
	}
	reef_near_leave(host->queue);
	return at;
}

/* By a batch, or in place: chance decides. */
static int run_op(struct host *host, struct reef_link *link, struct reef_op *op)
{
	struct reef_batch batch = {.link = link, .ops = op, .count = 1};

	if (!reef_random_below(&host->random, 2) && run_near(host, op))
		return 0;
	return run_batch(host, &batch);
}

int one(struct host *host, struct reef_link *link, struct reef_op op)
{
	return run_op(host, link, &op);
}

int do_read(struct host *host, struct reef_remote *remote, uint64_t offset,
	    void *to, uint32_t length)
{
	return one(host, remote->link,
		   (struct reef_op){
			   .kind = REEF_READ,
			   .remote = remote,
			   .offset = offset,
			   .local = to,
			   .length = length,
		   });
}

int do_write(struct host *host, struct reef_remote *remote, uint64_t offset,
	     const void *from, uint32_t length)
{
	return one(host, remote->link,
		   (struct reef_op){
			   .kind = REEF_WRITE,
			   .remote = remote,
			   .offset = offset,
			   .local = (void *)from,
			   .length = length,
		   });
}

static int atomic_op(struct host *host, struct reef_op op, uint64_t *before)
{
	int rc = run_op(host, op.remote->link, &op);

	if (!rc && before)
		*before = op.result;
	return rc;
}

int do_cas(struct host *host, struct reef_remote *remote, uint64_t offset,
	   uint64_t compare, uint64_t value, uint64_t *before)
{
	return atomic_op(host,
			 (struct reef_op){
				 .kind = REEF_CAS,
				 .remote = remote,
				 .offset = offset,
				 .compare = compare,
				 .operand = value,
			 },
			 before);
}

int do_faa(struct host *host, struct reef_remote *remote, uint64_t offset,
	   uint64_t add, uint64_t *before)
{
	return atomic_op(host,
			 (struct reef_op){
				 .kind = REEF_FAA,
				 .remote = remote,
				 .offset = offset,
				 .operand = add,
			 },
			 before);
}

int do_send(struct host *host, struct reef_link *link, const void *bytes,
	    uint32_t length)
{
	return one(host, link,
		   (struct reef_op){
			   .kind = REEF_SEND,
			   .local = (void *)bytes,
			   .length = length,
		   });
}
