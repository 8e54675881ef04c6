/* registration.c - the link to the broker; lives, which follow one another.
 *
 * (1) One link at a time. The addresses are tried all at once, which takes the
 *     best of them, then one after the other: of several brokers one may be
 *     stale.
 * (2) What a broker of a lower epoch than the highest seen answers is not
 *     believed; above all not that this node was taken for dead.
 * (3) The fences that REGISTER's answer tells of are confirmed here before
 *     READY: so before anybody can be given a key of ours.
 * (4) A node that was taken for dead ends its life first and registers then:
 *     nothing of the old life can be reached when the new incarnation is known.
 *     What it keeps it tells of as closed, and the broker has it opened.
 * (5) A broker that is silent is left within half a ttl, so that its successor,
 *     which waits for a whole one, sees us in time. While it works on READY,
 *     for which it may ask a lot of us, pulses tell whether it is still there.
 * (6) A broker that says that too few nodes follow it is left for the next one,
 *     where there is one: they all have to meet.
 * (7) A broker of another pool than the one that the memory here is of, or
 *     whose journal is older than that, is refused, by itself or by us. Nothing
 *     is deleted for it.
 *     So what is kept is spent (keep.h, 8) when a broker has taken it in.
 * (8) A life that was taken for dead before it was READY is not followed by the
 *     next one at once: a broker that takes every life for dead is not asked
 *     without end.
 *
 *   AWAY --connect--> REGISTER --0--> fences, EXTENTS --READY--> HERE
 *     ^                  |                               |         |
 *     |<-- any error ----+<-- link lost, a pulse fails, stale -----+
 *     |                  |
 *     +<-- new life <----+-- -ESTALE, of an epoch that counts
 *
 * join_broker: AWAY to READY; send_ready: to HERE; send_pulses; begin_new_life.
 */
#include "pool/node/internal.h"

#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MIN_NS UINT64_C(10000000)
#define RETRY_MAX_NS UINT64_C(1000000000)
#define CALL_NS UINT64_C(3000000000) /* before the broker has said its ttl */
#define CALL_MIN_NS UINT64_C(20000000)
/* An answer -ESTALE gets this long to go out before its link is closed. */
#define STALE_NS UINT64_C(20000000)
/* Memory of the old life gets this long to go before a new one registers. */
#define LEAVE_NS UINT64_C(200000000)
/* The least pause between pulses, whatever ttl a broker claims: a quarter of
 * the least that can be set. */
#define PAUSE_MIN_NS UINT64_C(250000)
#define ROWS_MAX 128 /* in one message */

static bool is_lost(const struct reef_node *node)
{
	return node->stopping || node->peer_lost || node->peer_stale;
}

/* How long a broker may take to answer. A silent one must be left soon: its
 * successor may be up already, and counts the time. (5) After failures the time
 * doubles, twice at most. */
static uint64_t call_ns(const struct reef_node *node)
{
	uint64_t ns = node->ttl_ns / 4
		      << (node->attempts < 2 ? node->attempts : 2);

	if (!node->ttl_ns)
		return CALL_NS;
	return ns > CALL_MIN_NS ? ns : CALL_MIN_NS;
}

/* --- connecting --- */

#define SEPARATORS " ,"
#define BROKERS_MAX 64

/* Point *out to the address or addresses (1) that this attempt tries, and
 * return their length. */
static size_t choose_addresses(const struct reef_node *node, const char **out)
{
	const char *text = node->broker, *words[BROKERS_MAX];
	uint32_t count = 0, turn;
	bool whole;

	while (count < BROKERS_MAX && *(text += strspn(text, SEPARATORS))) {
		words[count++] = text;
		text += strcspn(text, SEPARATORS);
	}
	turn = node->attempts % (count + 1);
	whole = count <= REEF_MESH_MAX && !strchr(node->broker, ',');
	if (count == 0 || (turn == 0 && whole)) {
		*out = node->broker;
		return strlen(node->broker);
	}
	*out = words[turn ? turn - 1 : 0];
	return strcspn(*out, SEPARATORS);
}

static bool has_other_brokers(const struct reef_node *node)
{
	return strchr(node->broker, ',') != NULL;
}

static int connect_broker(struct reef_node *node)
{
	char identity[REEF_IDENTITY_MAX + 1];
	struct reef_connect_options options = {.identity = identity};
	struct reef_key proof;
	struct reef_peer *peer;
	const char *text;
	char *addresses;
	size_t size;
	int rc;

	rc = reef_key_derive_broker(&node->key->key, &proof);
	if (rc)
		return rc;
	memcpy(options.key, proof.bytes, sizeof(options.key));
	reef_key_wipe(&proof);
	snprintf(identity, sizeof(identity), "node:%u", node->key->node);
	/* The same provisional id again, so that the broker ends the older link
	 * first. Every fourth attempt takes another, in case somebody else has
	 * hit upon the same. */
	if (!node->provisional || node->attempts % 4 == 3)
		node->provisional = node_provisional(node);
	options.session = node->provisional;
	options.timeout_ns = node->ttl_ns ? call_ns(node) / 2 : 0;
	size = choose_addresses(node, &text);
	addresses = strndup(text, size);
	rc = addresses ? reef_rpc_connect(node->rpc, addresses,
					  node->options.broker_domain, &options,
					  &peer, NULL)
		       : -ENOMEM;
	explicit_bzero(options.key, sizeof(options.key));
	free(addresses);
	if (rc)
		return rc;
	reef_peer_ref(peer); /* stop may close it meanwhile */
	node->peer = peer;
	node->peer_stale = false;
	node->peer_closed = false;
	node->peer_lost = !peer->link;
	return 0;
}

void node_peer_close(struct reef_node *node)
{
	if (node->peer && !node->peer_closed) {
		node->peer_closed = true;
		reef_peer_close(node->peer);
	}
}

/* --- registration --- */

static void note_name(struct reef_node *node, struct reef_text name)
{
	size_t size = name.size < NODE_NAME_MAX ? name.size : NODE_NAME_MAX;

	if (size)
		memcpy(node->name, name.bytes, size);
	node->name[size] = 0;
}

/* Take in what REGISTER's answer tells: its name, and the fences (3). */
static int apply_told_rows(struct reef_node *node, const struct reef_body *body)
{
	struct reef_cursor_in in = {body->rows, body->rows_size, false};
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) > 0) {
		if (row.row == REEF_ROW_NODE)
			note_name(node, row.node.name);
		if (row.row != REEF_ROW_SESSION)
			continue;
		while ((rc = node_fence(node, row.session.id)) == -ETIMEDOUT &&
		       !is_lost(node) && !reef_sleep(PAUSE_MIN_NS))
			;
		if (rc)
			return rc;
	}
	return rc;
}

/* The domain by which others tell whether they share our machine's shm. */
static uint64_t machine_domain(const struct reef_node *node)
{
	return node->options.simulated ? node->domain : reef_domain_cpu();
}

/* A broker of another pool is told nothing of what is here (7). */
static int check_pool(const struct reef_node *node, uint64_t pool)
{
	if (node->pool && pool != node->pool &&
	    !REEF_MUTATED(BROKER_FOREIGN_DROP))
		return -REEF_EFOREIGN;
	return 0;
}

static int send_register(struct reef_node *node, bool *dead)
{
	struct reef_body body = {
		.ask.node_register =
			{
				.incarnation = node->incarnation,
				.domain = machine_domain(node),
				.capacity = node->options.capacity,
				.addresses = reef_text_of(node->addresses),
				.followed_epoch = node->broker_epoch,
				.followed_start = node->followed_start,
				.confirmed_epoch = node->confirmed_epoch,
				.confirmed_start = node->confirmed_start,
				.confirmed = node->confirmed,
				.pool = node->pool,
				.keeps = node_keeps(node),
				.nic = machine_domain(node) != node->domain,
				.remembers = node->remembers,
			},
	};
	struct reef_answer answer = {0};
	int rc;

	rc = reef_rpc_call(node->peer, REEF_POOL_NODE_REGISTER, 0, &body,
			   &answer, call_ns(node));
	if (rc == -ESTALE) /* (2) */
		*dead = node->peer->epoch &&
			!node_accept_epoch(node, node->peer->epoch);
	if (rc)
		return rc;
	rc = check_pool(node, answer.body.reply.node_register.pool);
	if (!rc)
		rc = node_accept_epoch(node, answer.epoch);
	if (!rc)
		rc = apply_told_rows(node, &answer.body);
	if (!rc) {
		node->pool = answer.body.reply.node_register.pool;
		node_kept_note(node);
		node->ttl_ns = answer.body.reply.node_register.ttl_ns;
		node->period_ns = answer.body.reply.node_register.period_ns;
		node->registered = answer.body.reply.node_register.node;
	}
	reef_answer_free(&answer);
	return rc;
}

static void encode_extent(const struct node_extent *extent, uint32_t node,
			  struct reef_cursor_out *rows)
{
	struct reef_row row = {
		.row = REEF_ROW_EXTENT,
		.extent =
			{
				.number = extent->number,
				.space = extent->space,
				.node = node,
				.epoch = extent->epoch,
				.state = extent->state == NODE_OPEN
						 ? REEF_EXTENT_LIVE
						 : REEF_EXTENT_MOVING,
				.size = extent->size,
				.copy = extent->copy,
			},
	};

	if (extent->exposed && extent->state == NODE_OPEN)
		memcpy(row.extent.keys, extent->keys.keys,
		       sizeof(row.extent.keys));
	if (extent->exposed)
		memcpy(row.extent.read_keys, extent->keys.read_keys,
		       sizeof(row.extent.read_keys));
	reef_row_encode(&row, rows);
}

/* False for an extent that is being made or dropped: the broker asks for it
 * again if it wants it. */
static bool is_listed(const struct node_extent *extent)
{
	return extent->state != NODE_MAKING && extent->job != NODE_DROP;
}

static int send_extents(struct reef_node *node)
{
	struct node_extent *extent = node_extent_after(node, 0);
	struct reef_cursor_out rows = {0};
	struct reef_body body;
	uint32_t last = 0, count = 0;
	int rc = 0;

	while (!rc && (extent || count > 0)) {
		if (extent) {
			last = extent->number;
			if (is_listed(extent)) {
				encode_extent(extent, node->registered, &rows);
				count++;
			}
		}
		if (count == ROWS_MAX || (!extent && count > 0)) {
			body = (struct reef_body){
				.rows = rows.bytes,
				.rows_size = rows.size,
			};
			rc = rows.failed ? -ENOMEM
					 : reef_rpc_call(node->peer,
							 REEF_POOL_NODE_EXTENTS,
							 0, &body, NULL,
							 call_ns(node));
			rows.size = 0;
			count = 0;
		}
		extent = node_extent_after(node, last);
	}
	free(rows.bytes);
	return rc;
}

/* Runs in a fiber of its own, which ends when its link does. */
static int send_ready(void *arg)
{
	struct reef_node *node = arg;
	int rc = reef_rpc_call(node->peer, REEF_POOL_NODE_READY, 0, NULL, NULL,
			       REEF_FOREVER);

	if (rc) {
		node->peer_lost = true;
	} else {
		node->id = node->registered;
		node->link = node->logged = 0;
		node->refused = false;
		node->attempts = node->lives = 0;
	}
	node_gate_open(&node->gate);
	return rc;
}

static int join_broker(struct reef_node *node, bool *dead)
{
	int rc;

	rc = connect_broker(node);
	if (!rc)
		rc = send_register(node, dead);
	if (!rc)
		rc = send_extents(node);
	if (!rc)
		rc = node_kept_lend(node);
	return rc ? rc
		  : reef_fiber_spawn(node->sched, send_ready, node,
				     &node->ready);
}

/* --- pulses --- */

static uint64_t available_memory(const struct reef_node *node)
{
	if (node->options.available)
		return node->options.available(node->options.context);
	if (node->options.simulated)
		return node->options.capacity - node->lent;
	return node_available("");
}

static int send_pulse(struct reef_node *node)
{
	uint64_t available = available_memory(node);
	struct reef_body body = {
		.ask.node_pulse =
			{
				.incarnation = node->incarnation,
				.lent = node->lent,
				.machine_free = available,
				.links = node->links,
				.wanted = node_wanted(node, available),
			},
	};

	struct reef_answer answer = {0};
	bool unsure;
	int rc = reef_rpc_call(node->peer, REEF_POOL_NODE_PULSE, 0, &body,
			       &answer, call_ns(node));

	if (rc)
		return rc;
	unsure = answer.body.reply.node_pulse.unsure;
	node->period_ns = answer.body.reply.node_pulse.period_ns;
	reef_answer_free(&answer);
	/* (6) */
	return unsure && has_other_brokers(node) ? -REEF_ENOLINK : 0;
}

/* How often the broker is to hear of us. Of a ttl it is a quarter; where the
 * broker has to know sooner that we are gone, less. */
static uint64_t pulse_period_ns(const struct reef_node *node)
{
	uint64_t period_ns = node->ttl_ns / 4;

	if (node->period_ns && node->period_ns < period_ns)
		period_ns = node->period_ns;
	return period_ns > PAUSE_MIN_NS ? period_ns : PAUSE_MIN_NS;
}

/* Send pulses until the link is lost, or the broker knows us no more. */
static int send_pulses(struct reef_node *node)
{
	uint64_t period_ns, passed_ns, last_ns = reef_now_ns();
	int rc = 0;

	while (!rc && !is_lost(node)) {
		period_ns = pulse_period_ns(node);
		passed_ns = reef_now_ns() - last_ns;
		if (passed_ns < period_ns) {
			rc = node_gate_wait(&node->gate, period_ns - passed_ns);
			rc = rc == -ETIMEDOUT ? 0 : rc;
			continue;
		}
		last_ns = reef_now_ns();
		node_withdraw_leaving(node);
		node_kept_tend(node);
		rc = send_pulse(node);
		/* A broker that has too much to do has heard us all the same.
		 */
		if (rc == -EBUSY)
			rc = 0;
	}
	return rc ? rc : node->peer_stale ? -ESTALE : -REEF_ENOLINK;
}

/* --- lives --- */

static void pick_incarnation(struct reef_node *node)
{
	do
		node->incarnation = reef_random_next(&node->random);
	while (!node->incarnation);
}

/* Wait for that long, or until the node is stopped. */
static int pause_unless_stopped(struct reef_node *node, uint64_t timeout_ns)
{
	uint64_t start_ns = reef_now_ns(), passed_ns = 0;
	int rc = 0;

	while (!rc && !node->stopping && passed_ns < timeout_ns) {
		rc = node_gate_wait(&node->gate, timeout_ns - passed_ns);
		rc = rc == -ETIMEDOUT ? 0 : rc;
		passed_ns = reef_now_ns() - start_ns;
	}
	return rc;
}

static int begin_new_life(struct reef_node *node)
{
	uint64_t start_ns;
	int rc;

	reef_log(REEF_LOG_WARNING, "node",
		 "was taken for dead: %s %u extents and comes back",
		 node_keeps(node) ? "keeps" : "drops", node->extents_count);
	if (REEF_MUTATED(NODE_SAME_LIFE)) {
		pick_incarnation(node);
		return 0;
	}
	node_serve_end(node);
	reef_port_close(node->port);
	node->port = NULL;
	while ((rc = node_serve(node)) && !node->stopping) {
		reef_log(REEF_LOG_ERROR, "node", "cannot listen again: %s",
			 reef_error_name(rc));
		reef_port_close(node->port);
		node->port = NULL;
		rc = pause_unless_stopped(node, RETRY_MAX_NS);
		if (rc)
			return rc;
	}
	pick_incarnation(node);
	start_ns = reef_now_ns();
	while (!rc && node->leaving && !node->stopping &&
	       reef_now_ns() - start_ns < LEAVE_NS) {
		rc = node_gate_wait(&node->gate, RETRY_MIN_NS);
		rc = rc == -ETIMEDOUT ? 0 : rc;
	}
	return rc;
}

static uint64_t retry_delay_ns(const struct reef_node *node)
{
	uint32_t doublings = node->attempts < 8 ? node->attempts : 8;
	uint64_t most_ns = node->ttl_ns ? node->ttl_ns / 8 : RETRY_MAX_NS;
	uint64_t ns = RETRY_MIN_NS << doublings;

	most_ns = most_ns < RETRY_MAX_NS ? most_ns : RETRY_MAX_NS;
	most_ns = most_ns > PAUSE_MIN_NS ? most_ns : PAUSE_MIN_NS;
	return ns < most_ns ? ns : most_ns;
}

/* Say why there is no broker; what an operator has to mend, aloud (7). */
static void log_link(const struct reef_node *node)
{
	switch (node->link) {
	case -REEF_EFOREIGN:
		reef_log(REEF_LOG_ERROR, "node",
			 "refuses this broker, whose pool is another than that "
			 "of the memory here (%016llx); nothing is deleted",
			 (unsigned long long)node->pool);
		break;
	case -REEF_EOLDER:
		reef_log(REEF_LOG_ERROR, "node",
			 "refuses this broker, whose journal is older than "
			 "what this node knows: an old copy; nothing is "
			 "deleted");
		break;
	default:
		reef_log(REEF_LOG_INFO, "node", "not with a broker: %s",
			 reef_error_name(node->link));
	}
}

static void leave_broker(struct reef_node *node, int reason)
{
	struct reef_peer *peer = node->peer;
	int why = 0;

	node->link = reason;
	if (peer && node->peer_stale)
		reef_sleep(STALE_NS);
	node_peer_close(node);
	if (node->ready)
		reef_fiber_join(node->ready, &why);
	node->ready = NULL;
	node->peer = NULL;
	node->link = why && why != -REEF_EINDOUBT ? why : reason;
	if (node->link == -REEF_EFOREIGN || node->link == -REEF_EOLDER)
		node->refused = true;
	if (node->link != node->logged)
		log_link(node);
	node->logged = node->link;
	if (peer)
		reef_peer_unref(peer);
	node_gate_open(&node->gate);
}

int node_registration_run(void *arg)
{
	struct reef_node *node = arg;
	bool dead;
	int rc;

	pick_incarnation(node);
	do {
		dead = false;
		rc = join_broker(node, &dead);
		if (!rc)
			rc = send_pulses(node);
		leave_broker(node, rc);
		if (rc == -REEF_EHOSTDEAD || node->stopping)
			break;
		if (dead)
			rc = begin_new_life(node);
		/* A life that was taken for dead before it was READY is not
		 * followed by the next at once: (8). */
		if (dead && !node->lives++) {
			node->attempts = 0;
			continue;
		}
		if (!dead || !rc)
			rc = pause_unless_stopped(node, retry_delay_ns(node));
		node->attempts++;
	} while (rc != -REEF_EHOSTDEAD && !node->stopping);
	return 0;
}
