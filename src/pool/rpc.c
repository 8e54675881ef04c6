/* rpc.c - receivers, and the requests that they hand to handlers.
 *
 *   receiver:  take every message -> links that are down -> retry -> wait ...
 *                |
 *                +-- ANSWER: end the call          (rpc_call.c)
 *                +-- NOTE: the owner's note
 *                +-- REQUEST: a fiber: handle, send the answer, end
 *                             REEF_LATER: end; reef_request_answer: send
 *
 * A receiver never blocks but where it waits for its queue, and nothing that it
 * does needs a peer to do something first (rpc_send.c, 1). */
#include "pool/rpc.h"

#include "base/fiber/sched.h"
#include "base/log.h"
#include "pool/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>

#define HANDLERS_MAX 2048
#define PEER_MAX 64
#define EARLY_MAX 256
#define RETRY_NS 1000000ull

/* A request that is being handled. */
struct handling {
	struct reef_request request; /* first */
	struct reef_rpc *rpc;
	struct reef_message *message; /* where its texts and rows lie */
};

void rpc_wake_destroyer(struct reef_rpc *rpc)
{
	if (rpc->destroyer)
		reef_fiber_unpark(rpc->destroyer);
}

/* --- requests --- */

static struct reef_pool_header answer_header(const struct reef_rpc *rpc,
					     const struct reef_pool_header *to,
					     int status)
{
	return (struct reef_pool_header){
		.version = to->version,
		.type = REEF_POOL_ANSWER,
		.kind = to->kind,
		.id = to->id,
		.status = status,
		.epoch = rpc->options.epoch,
	};
}

static void send_refusal(struct rpc_peer *peer,
			 const struct reef_pool_header *to, int status)
{
	struct reef_rpc *rpc = peer->peer.rpc;
	struct reef_pool_header header = answer_header(rpc, to, status);

	rpc->counts.refused++;
	/* A peer that takes no messages does not get this one either. */
	rpc_send(peer, &header, NULL, NULL, false);
}

/* The caller would take these for "nothing was done" (rule 2). */
static int status_to_tell(int rc)
{
	return rc == -REEF_ENOLINK || rc == -REEF_EHOSTDEAD ? -REEF_EINDOUBT
							    : rc;
}

static int run_handler(const struct handling *handling,
		       struct reef_body *answer, struct reef_cursor_out *room)
{
	const struct reef_rpc_options *options = &handling->rpc->options;
	int rc;

	rc = options->handle(options->context, &handling->request, answer,
			     room);
	reef_assert(rc <= 0 || rc == REEF_LATER);
	if (!rc && room->failed)
		rc = -ENOMEM;
	if (!answer->rows) {
		answer->rows = room->bytes;
		answer->rows_size = room->size;
	}
	return status_to_tell(rc);
}

/* Send the answer of a request, and let go of it. */
static void answer_request(struct handling *handling, int status,
			   const struct reef_body *answer)
{
	struct reef_rpc *rpc = handling->rpc;
	struct rpc_peer *peer = (struct rpc_peer *)handling->request.peer;
	struct reef_pool_header header =
		answer_header(rpc, &handling->request.header, status);

	rpc_send(peer, &header, answer, NULL, true);
	reef_message_free(handling->message);
	free(handling);
	rpc_peer_unref(peer);
	rpc->counts.handled++;
}

static int handler_main(void *arg)
{
	struct handling *handling = arg;
	struct reef_rpc *rpc = handling->rpc;
	struct rpc_account *account =
		((struct rpc_peer *)handling->request.peer)->account;
	struct reef_cursor_out room = {0};
	struct reef_body answer = {0};
	int rc;

	rc = run_handler(handling, &answer, &room);
	account->handlers--;
	account->room->handlers--;
	rpc->handlers--;
	/* Counted first: the account may go with the request's peer. */
	if (rc == REEF_LATER)
		rpc->laters++;
	else
		answer_request(handling, rc, &answer);
	free(room.bytes);
	rpc_wake_destroyer(rpc);
	return 0;
}

void reef_request_answer(const struct reef_request *request, int status,
			 const struct reef_body *answer)
{
	static const struct reef_body nothing;
	struct handling *handling = (struct handling *)request;
	struct reef_rpc *rpc = handling->rpc;

	reef_assert(status <= 0 && rpc->laters > 0);
	answer_request(handling, status_to_tell(status),
		       answer ? answer : &nothing);
	rpc->laters--;
	rpc_wake_destroyer(rpc);
}

/* True if the peer may have another request handled now (4). */
static bool has_room(const struct rpc_peer *peer)
{
	const struct reef_rpc_options *options = &peer->peer.rpc->options;
	const struct rpc_account *account = peer->account;

	return peer->handling < options->peer_max &&
	       rpc_has_share(account->handlers, account->room->handlers,
			     options->handlers_max) &&
	       rpc_has_share(account->unread, account->room->unread,
			     options->unread_max);
}

/* Hand a request to a fiber of its own. 0: the message is the handler's now. */
static int start_handler(struct rpc_peer *peer,
			 const struct reef_pool_header *header,
			 const struct reef_body *body,
			 struct reef_message *message)
{
	struct reef_rpc *rpc = peer->peer.rpc;
	struct handling *handling;
	int rc;

	if (!peer->account)
		return -ENOMEM;
	if (!has_room(peer))
		return -EBUSY;
	handling = malloc(sizeof(*handling));
	if (!handling)
		return -ENOMEM;
	*handling = (struct handling){
		.rpc = rpc,
		.request = {&peer->peer, *header, *body},
		.message = message,
	};
	rc = reef_fiber_spawn(reef_port_sched(rpc->port), handler_main,
			      handling, NULL);
	if (rc) {
		free(handling);
		return rc;
	}
	rpc_peer_ref(peer);
	peer->handling++;
	peer->account->handlers++;
	peer->account->room->handlers++;
	rpc->handlers++;
	return 0;
}

static void deliver_note(struct rpc_peer *peer,
			 const struct reef_pool_header *header,
			 const struct reef_body *body)
{
	const struct reef_rpc_options *options = &peer->peer.rpc->options;
	struct reef_request note = {&peer->peer, *header, *body};

	if (options->note)
		options->note(options->context, &note);
}

/* --- messages --- */

/* Deliver a message of a peer. It is handed on, or freed. */
static void deliver_message(struct rpc_peer *peer, struct reef_message *message)
{
	struct reef_rpc *rpc = peer->peer.rpc;
	struct reef_pool_header header;
	struct reef_body body;
	bool taken = false, stale;

	if (reef_pool_decode(message->bytes, message->length, &header, &body)) {
		rpc->counts.malformed++;
		if (reef_pool_is_foreign(message->bytes, message->length,
					 &header))
			send_refusal(peer, &header, -REEF_EVERSION);
		reef_message_free(message);
		return;
	}
	peer->peer.messages++;
	/* Epochs are brokers' (wire/pool.h, 1), and no broker hears another.
	 */
	if (rpc->options.epoch)
		header.epoch = 0;
	stale = header.epoch < peer->peer.epoch;
	if (!stale)
		peer->peer.epoch = header.epoch;
	if (header.type == REEF_POOL_ANSWER)
		taken = rpc_end_answered(peer, &header, &body, message);
	else if (header.type == REEF_POOL_NOTE && !stale)
		deliver_note(peer, &header, &body);
	else if (header.type == REEF_POOL_REQUEST && stale)
		send_refusal(peer, &header, -ESTALE);
	else if (header.type == REEF_POOL_REQUEST)
		taken = !start_handler(peer, &header, &body, message);
	if (header.type == REEF_POOL_REQUEST && !stale && !taken)
		send_refusal(peer, &header, -EBUSY);
	if (!taken)
		reef_message_free(message);
}

static void dispatch_message(struct reef_message *message)
{
	struct rpc_peer *peer;

	peer = message->link ? reef_link_user(message->link) : NULL;
	if (peer && peer->peer.link && !peer->early) {
		deliver_message(peer, message);
	} else if (peer && (peer->connecting || peer->early) &&
		   peer->early_count < EARLY_MAX) {
		message->next = NULL;
		*peer->early_tail = message;
		peer->early_tail = &message->next;
		peer->early_count++;
	} else {
		reef_message_free(message); /* there is no peer to answer */
	}
}

static struct rpc_peer *find_early_peer(struct reef_rpc *rpc)
{
	struct rpc_peer *peer = rpc->connected;

	while (peer && !peer->early)
		peer = peer->next;
	return peer;
}

/* Deliver what came while connecting was not over. */
static void deliver_early_messages(struct reef_rpc *rpc)
{
	struct reef_message *message;
	struct rpc_peer *peer;

	rpc->has_early = false;
	while ((peer = find_early_peer(rpc))) {
		message = peer->early;
		peer->early = message->next;
		peer->early_count--;
		if (!peer->early)
			peer->early_tail = &peer->early;
		deliver_message(peer, message);
	}
}

static int receiver_main(void *arg)
{
	struct rpc_receiver *receiver = arg;
	struct reef_rpc *rpc = receiver->rpc;
	struct reef_queue *queue = receiver->queue;
	struct reef_message *message;
	int rc = 0;

	while (!rc && !rpc->closing) {
		if (rpc->has_early)
			deliver_early_messages(rpc);
		while (!(rc = reef_receive(queue, 0, &message)))
			dispatch_message(message);
		if (rc != -ETIMEDOUT)
			break;
		rpc_peers_report_lost(rpc);
		rpc_send_stuck(rpc);
		if (rpc->closing)
			break;
		rc = reef_queue_wait(queue,
				     rpc->stuck ? RETRY_NS : REEF_FOREVER);
		if (rc == -ETIMEDOUT)
			rc = 0;
	}
	rpc->receiving--;
	if (rpc->is_orphan && !rpc->receiving)
		free(rpc);
	else
		rpc_wake_destroyer(rpc);
	return 0;
}

/* --- the rpc --- */

int reef_rpc_create(struct reef_port *port,
		    const struct reef_rpc_options *options,
		    struct reef_rpc **out)
{
	struct reef_rpc *rpc = calloc(1, sizeof(*rpc));
	struct rpc_receiver *receiver;
	uint32_t i;
	int rc;

	reef_assert(options->handle);
	if (!rpc)
		return -ENOMEM;
	rpc->port = port;
	rpc->options = *options;
	if (!rpc->options.handlers_max)
		rpc->options.handlers_max = HANDLERS_MAX;
	if (!rpc->options.peer_max)
		rpc->options.peer_max = PEER_MAX;
	if (!rpc->options.unread_max)
		rpc->options.unread_max =
			reef_fabric_limits(
				reef_mesh_fabric(reef_port_mesh(port), 0))
				->answers_max;
	for (i = 0; i < reef_mesh_count(reef_port_mesh(port)); i++) {
		receiver = &rpc->receivers[i];
		receiver->rpc = rpc;
		receiver->queue = reef_port_queue(port, i);
		rc = reef_fiber_spawn(reef_port_sched(port), receiver_main,
				      receiver, NULL);
		if (rc)
			goto err_receivers;
		rpc->receiving++;
	}
	*out = rpc;
	return 0;
err_receivers:
	/* Receivers that have begun see `closing` before anything else. */
	rpc->closing = true;
	rpc->is_orphan = true;
	if (!rpc->receiving)
		free(rpc);
	return rc;
}

static bool is_idle(const struct reef_rpc *rpc)
{
	return !rpc->receiving && !rpc->handlers && !rpc->laters &&
	       !rpc->calls && !rpc->sendings && !rpc->connects;
}

void reef_rpc_destroy(struct reef_rpc *rpc)
{
	if (!rpc)
		return;
	reef_assert(reef_fiber_self());
	rpc->closing = true;
	rpc->destroyer = reef_fiber_self();
	reef_port_unlisten(rpc->port);
	rpc_peers_end(rpc);
	rpc_send_stuck(rpc);
	for (uint32_t i = 0; i < reef_mesh_count(reef_port_mesh(rpc->port));
	     i++)
		reef_queue_wake(rpc->receivers[i].queue);
	/* On a killed host batches have ended, but only a poll reports it. */
	while (!is_idle(rpc))
		if (reef_fiber_park(REEF_FOREVER) == -REEF_EHOSTDEAD)
			reef_port_poll(rpc->port);
	rpc_accounts_release(rpc);
	free(rpc);
}

void reef_rpc_set_epoch(struct reef_rpc *rpc, uint64_t epoch)
{
	rpc->options.epoch = epoch;
}

static int forward_credential(void *context, const char *identity,
			      uint32_t session, uint8_t key[REEF_KEY_SIZE])
{
	const struct reef_rpc *rpc = context;

	return rpc->options.credential(rpc->options.context, identity, session,
				       key);
}

static int forward_admission(void *context, const char *identity)
{
	const struct reef_rpc *rpc = context;

	return rpc->options.admit
		       ? rpc->options.admit(rpc->options.context, identity)
		       : 0;
}

int reef_rpc_listen(struct reef_rpc *rpc, const char *addresses, char *real,
		    size_t real_max)
{
	struct reef_listen_options options = {
		.credential = forward_credential,
		.admit = forward_admission,
		.opened = rpc_link_opened,
		.closed = rpc_link_closed,
		.context = rpc,
	};

	if (!rpc->options.credential)
		return -EINVAL;
	return reef_port_listen(rpc->port, addresses, &options, real, real_max);
}

void reef_rpc_counts(const struct reef_rpc *rpc, struct reef_rpc_counts *out)
{
	*out = rpc->counts;
}
