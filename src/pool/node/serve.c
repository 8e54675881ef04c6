/* serve.c - start and stop; who may come in; requests to their functions.
 *
 * (1) Two kinds of peers may connect: identity "session" with the key that this
 *     very session has for this node, and "pull:<extent>:<epoch>" with the key
 *     of that copy and a provisional id, while the extent is here under the
 *     epoch before. Their links are for memory: requests that come through them
 *     are refused.
 * (2) Requests are obeyed only from links that the node itself opened to a
 *     broker, and only with the highest broker epoch seen so far. A lower one
 *     is answered with -ESTALE, which this node says of nothing else, and the
 *     link is dropped.
 * (3) Of two starts of brokers with one epoch the first that asked to CONFIRM
 *     is followed. What was confirmed last is told to whoever we register with,
 *     who judges by it (broker/confirm.c).
 *
 *   start -> serving -> (-ESTALE: registration.c) end of life -> serving ->
 * stop node_serve                           node_serve_end node_serve */
#include "pool/node/internal.h"

#include "base/mutant.h"
#include "base/system/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long stop waits for holders; their processes keep what they mapped. */
#define STOP_NS UINT64_C(1000000000)

/* --- gates --- */

int node_gate_wait(struct node_gate *gate, uint64_t timeout_ns)
{
	struct node_waiter self = {reef_fiber_self(), gate->waiters}, **at;
	int rc;

	gate->waiters = &self;
	rc = reef_fiber_park(timeout_ns);
	for (at = &gate->waiters; *at != &self; at = &(*at)->next)
		;
	*at = self.next;
	return rc;
}

void node_gate_open(struct node_gate *gate)
{
	for (struct node_waiter *at = gate->waiters; at; at = at->next)
		reef_fiber_unpark(at->fiber);
}

/* --- who may come in (1) --- */

#define PROVISIONAL_SLOT 0x8000u

uint32_t node_provisional(struct reef_node *node)
{
	uint32_t slot = (uint32_t)reef_random_between(&node->random,
						      PROVISIONAL_SLOT, 0xffff);

	return slot << 16 |
	       (uint32_t)reef_random_between(&node->random, 1, 0xffff);
}

void node_pull_identity(uint32_t extent, uint32_t epoch,
			char out[REEF_IDENTITY_MAX + 1])
{
	snprintf(out, REEF_IDENTITY_MAX + 1, "pull:%u:%u", extent, epoch);
}

/* Derive what proves such a copy, if there is that to be copied. */
static int derive_pull(const struct reef_node *node, const char *identity,
		       struct reef_key *out)
{
	char again[REEF_IDENTITY_MAX + 1];
	const struct node_extent *extent;
	uint32_t number, epoch;

	if (sscanf(identity, "pull:%u:%u", &number, &epoch) != 2 || !number)
		return -REEF_EAUTH;
	node_pull_identity(number, epoch, again);
	extent = node_extent_after(node, number - 1);
	if (strcmp(identity, again) != 0 || !extent ||
	    extent->number != number || extent->epoch + 1 != epoch)
		return -REEF_EAUTH;
	return reef_key_derive_pull(&node->key->key, number, epoch, out);
}

static int find_credential(void *context, const char *identity,
			   uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	struct reef_node *node = context;
	struct reef_key derived;
	int rc = -REEF_EAUTH;

	if ((session & 0xffff) == 0)
		return rc;
	if (!strcmp(identity, "session"))
		rc = reef_key_derive_link(&node->key->key, session, &derived);
	else if (session >> 16 >= PROVISIONAL_SLOT)
		rc = derive_pull(node, identity, &derived);
	if (rc)
		return rc;
	memcpy(key, derived.bytes, REEF_KEY_SIZE);
	reef_key_wipe(&derived);
	return 0;
}

static void count_link(void *context, struct reef_peer *peer)
{
	struct reef_node *node = context;

	/* A node does not know whose a session is. Requests over such links
	 * are refused (1), so none keeps its handler; what one does not read
	 * of that is its own. */
	peer->account = peer->session;
	node->links++;
}

static void note_lost_link(void *context, struct reef_peer *peer, int reason)
{
	struct reef_node *node = context;

	(void)reason;
	if (peer->accepted) {
		reef_assert(node->links > 0);
		node->links--;
	} else if (peer == node->peer) {
		node->peer_lost = true;
		node_gate_open(&node->gate);
	}
}

/* --- requests --- */

/* End a session's links on every fabric: those numbered up to `number` (F10),
 * or with number 0 the session itself, for good (F7). All fabrics are told, and
 * none is waited for. */
static int end_on_fabrics(struct reef_node *node, uint32_t session,
			  uint32_t number)
{
	uint32_t i, count = reef_mesh_count(node->options.mesh);
	struct reef_queue *queue;
	bool confirmed = true;
	int rc;

	for (i = 0; i < count; i++) {
		queue = reef_port_queue(node->port, i);
		rc = number ? reef_end_links(queue, session, number, 0)
			    : reef_fence(queue, session, 0);
		if (rc && rc != -ETIMEDOUT)
			return rc;
		confirmed &= !rc;
	}
	return confirmed ? 0 : -ETIMEDOUT;
}

int node_fence(struct reef_node *node, uint32_t session)
{
	int rc, fenced;

	if (REEF_MUTATED(NODE_NO_FENCE))
		return 0;
	rc = node_ghosts_end(node, session);
	fenced = end_on_fabrics(node, session, 0);
	return fenced ? fenced : rc;
}

int node_end_links(struct reef_node *node, uint32_t session, uint32_t number)
{
	if (!session || !number)
		return -EINVAL;
	return end_on_fabrics(node, session, number);
}

int node_accept_epoch(struct reef_node *node, uint64_t epoch)
{
	if (epoch < node->broker_epoch && !REEF_MUTATED(NODE_STALE_EPOCH))
		return -ESTALE;
	if (epoch > node->broker_epoch) {
		node->broker_epoch = epoch;
		node->followed_start = 0;
		node_kept_note(node);
	}
	return 0;
}

/* Follow this start of a broker, whose epoch was accepted, and remember how far
 * its journal is. (3) */
static int confirm(struct reef_node *node, uint64_t epoch,
		   const struct reef_ask_confirm *ask)
{
	if (!node->followed_start)
		node->followed_start = ask->start;
	if (node->followed_start != ask->start)
		return -ESTALE;
	/* Requests may overtake each other. */
	if (node->confirmed_epoch == epoch && node->confirmed >= ask->sequence)
		return 0;
	if (ask->sequence) {
		node->confirmed_epoch = epoch;
		node->confirmed_start = ask->start;
		node->confirmed = ask->sequence;
		node->remembers = true;
	}
	node_kept_note(node);
	return 0;
}

static int handle_request(void *context, const struct reef_request *request,
			  struct reef_body *answer,
			  struct reef_cursor_out *room)
{
	struct reef_node *node = context;
	int rc;

	(void)room;
	if (request->peer->accepted)
		return -EPERM;
	if (node->ending)
		return -ECANCELED;
	rc = node_accept_epoch(node, request->header.epoch);
	if (rc) {
		if (request->peer == node->peer) {
			node->peer_stale = true;
			node_gate_open(&node->gate);
		}
		return rc;
	}
	if (request->header.kind == REEF_POOL_CONFIRM)
		return confirm(node, request->header.epoch,
			       &request->body.ask.confirm);
	return node_request_begin(node, request, answer);
}

/* --- a life's port --- */

/* Fill in which fabric each address belongs to. Memory has one domain (F6), so
 * all doors are of one: the machine's CPUs, or one NIC. */
static int find_doors(struct reef_node *node)
{
	struct reef_mesh *mesh = node->options.mesh;
	const char *text = node->addresses;
	const struct reef_fabric *fabric;
	int index;

	node->doors = 0;
	while (*(text += strspn(text, " "))) {
		index = reef_mesh_find(mesh, text);
		if (index < 0 || node->doors == REEF_DOORS_MAX)
			return -EINVAL;
		fabric = reef_mesh_fabric(mesh, (uint32_t)index);
		if (node->doors == 0)
			node->domain = reef_fabric_domain(fabric);
		if (reef_fabric_domain(fabric) != node->domain) {
			reef_log(REEF_LOG_ERROR, "node",
				 "memory is lent through shm and tcp, or "
				 "through verbs, whose atomics are the NIC's");
			return -REEF_EDOMAIN;
		}
		node->fabric_lends[index] = true;
		node->door_fabric[node->doors++] = (uint32_t)index;
		text += strcspn(text, " ");
	}
	return 0;
}

int node_serve(struct reef_node *node)
{
	struct reef_rpc_options options = {
		.handle = handle_request,
		.opened = count_link,
		.closed = note_lost_link,
		.credential = find_credential,
		.context = node,
		.peer_max = NODE_REQUESTS_MAX,
	};
	const char *where =
		node->addresses[0] ? node->addresses : node->options.listen;
	int rc;

	rc = reef_port_open(node->options.mesh, node->sched, &node->port);
	if (rc)
		return rc;
	node->ending = false;
	node->links = 0;
	/* Before listening lets anybody in. */
	node_withdraw_leaving(node);
	node_extents_withdraw(node);
	rc = reef_rpc_create(node->port, &options, &node->rpc);
	if (!rc)
		rc = reef_rpc_listen(node->rpc, where, node->addresses,
				     sizeof(node->addresses));
	if (!rc)
		rc = find_doors(node);
	if (rc)
		node_serve_end(node);
	return rc;
}

void node_serve_end(struct reef_node *node)
{
	node->ending = true;
	node_gate_open(&node->gate);
	/* On a killed host parks return at once, but jobs get their turn. */
	while (node->jobs > 0 || node->attended)
		node_gate_wait(&node->gate, REEF_FOREVER);
	reef_rpc_destroy(node->rpc);
	node->rpc = NULL;
	node_extents_end_life(node);
	if (node->port)
		reef_port_unlisten(node->port);
	node->links = 0;
}

/* --- the interface --- */

static int check_options(const struct reef_node_options *options)
{
	if (!options->mesh || !options->key || !options->listen ||
	    !options->broker)
		return -EINVAL;
	if (options->capacity < (uint64_t)sysconf(_SC_PAGESIZE))
		return -EINVAL;
	if (options->pressure_high < options->pressure_low)
		return -EINVAL;
	return 0;
}

static void destroy_node(struct reef_node *node)
{
	reef_port_close(node->port);
	node->port = NULL;
	node_extents_free(node);
	node_ghosts_free(node);
	reef_secret_destroy(node->key);
	free(node->broker);
	free(node);
}

static int init_node(struct reef_node *node,
		     const struct reef_node_options *options)
{
	uint64_t seed = options->seed;
	int rc = 0;

	node->options = *options;
	node->key = reef_secret_create(sizeof(*node->key));
	node->sched = options->sched ? options->sched : reef_fiber_sched();
	node->link = -REEF_ENOLINK;
	node->broker = strdup(options->broker);
	if (!node->broker || !node->key)
		return -ENOMEM;
	*node->key = *options->key;
	node->options.key = node->key;
	node->options.broker = node->broker;
	if (!seed)
		rc = reef_random_secret(&seed, sizeof(seed));
	reef_random_init(&node->random, seed);
	return rc;
}

/* A start failed after the node was let serve; what was kept stays so. */
static void end_start(struct reef_node *node)
{
	node->stopping = true;
	node_serve_end(node);
}

int reef_node_start(const struct reef_node_options *options,
		    struct reef_node **out)
{
	struct reef_node *node;
	int rc = check_options(options);

	if (rc)
		return rc;
	node = calloc(1, sizeof(*node));
	if (!node)
		return -ENOMEM;
	rc = init_node(node, options);
	if (!rc)
		rc = node_serve(node);
	if (!rc) {
		rc = node_kept_take(node);
		if (rc)
			end_start(node);
	}
	if (!rc) {
		rc = reef_fiber_spawn(node->sched, node_registration_run, node,
				      &node->fiber);
		if (rc)
			end_start(node);
	}
	if (rc) {
		destroy_node(node);
		return rc;
	}
	node->options.listen = NULL; /* was the caller's; addresses has it */
	*out = node;
	return 0;
}

/* Withdraw what is `leaving`, for that long at most. Links have ended, so only
 * shm has holders left. */
static void withdraw_leaving(struct reef_node *node, uint64_t timeout_ns)
{
	uint64_t start_ns = reef_now_ns();
	struct node_extent *extent;
	bool left;

	do {
		left = false;
		for (extent = node->leaving; extent; extent = extent->next)
			left |= node_withdraw(node, extent) == -ETIMEDOUT;
	} while (left && reef_now_ns() - start_ns < timeout_ns &&
		 !reef_sleep(1000000));
}

void reef_node_stop(struct reef_node *node)
{
	if (!node)
		return;
	node->stopping = true;
	node_gate_open(&node->gate);
	node_peer_close(node);
	reef_fiber_join(node->fiber, NULL);
	node_serve_end(node);
	if (node->port)
		withdraw_leaving(node, STOP_NS);
	node_kept_save(node);
	destroy_node(node);
}

const char *reef_node_addresses(const struct reef_node *node)
{
	return node->addresses;
}

const char *reef_node_name(const struct reef_node *node)
{
	return node->name;
}

void reef_node_status(const struct reef_node *node,
		      struct reef_node_status *out)
{
	*out = (struct reef_node_status){
		.id = node->id,
		.link = node->link,
		.incarnation = node->incarnation,
		.broker_epoch = node->broker_epoch,
		.capacity = node->options.capacity,
		.lent = node->lent,
		.huge = node->huge,
		.extents = node->extents_count,
		.links = node->links,
	};
}

int reef_node_wait(struct reef_node *node, uint64_t timeout_ns)
{
	uint64_t start_ns = reef_now_ns(), passed_ns;
	int rc = 0;

	while (!rc && node->link) {
		passed_ns = reef_now_ns() - start_ns;
		if (passed_ns >= timeout_ns)
			return -ETIMEDOUT;
		if (node->refused)
			return node->link;
		rc = node_gate_wait(&node->gate, timeout_ns - passed_ns);
		if (rc == -ETIMEDOUT)
			rc = 0; /* the loop checks link and time itself */
	}
	return rc;
}
