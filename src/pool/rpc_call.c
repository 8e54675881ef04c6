/* rpc_call.c - calls that wait for their answers.
 *
 *            sent              answer, link gone, not sent
 *   (call) ------> in peer->calls --------------------------> done
 *                        |  timeout, or its host was killed
 *                        +----------------------------------> done
 *
 * A call is its caller's: it leaves peer->calls only there. Who ends it says so
 * in `done`, once, and unparks the caller. */
#include "base/fiber/sched.h"
#include "base/log.h"
#include "pool/rpc_internal.h"

#include <errno.h>

static struct rpc_call *find_call(struct rpc_peer *peer, uint32_t id)
{
	struct rpc_call *call = peer->calls;

	while (call && call->id != id)
		call = call->next;
	return call;
}

void rpc_call_end(struct rpc_call *call, int status)
{
	if (call->done)
		return;
	call->done = true;
	call->status = status;
	reef_fiber_unpark(call->fiber);
}

void rpc_calls_end(struct rpc_peer *peer, int status)
{
	struct rpc_call *call;

	for (call = peer->calls; call; call = call->next)
		rpc_call_end(call, status);
}

void reef_peer_abandon(struct reef_peer *peer)
{
	rpc_calls_end((struct rpc_peer *)peer, -REEF_EINDOUBT);
}

bool rpc_end_answered(struct rpc_peer *peer,
		      const struct reef_pool_header *header,
		      const struct reef_body *body,
		      struct reef_message *message)
{
	struct rpc_call *call = find_call(peer, header->id);

	if (!call || call->done || call->kind != header->kind) {
		peer->peer.rpc->counts.unasked++;
		return false;
	}
	if (header->epoch < peer->peer.epoch) {
		rpc_call_end(call, -ESTALE);
		return false;
	}
	rpc_call_end(call, header->status);
	if (header->status || !call->answer)
		return false;
	*call->answer = (struct reef_answer){
		.body = *body,
		.epoch = header->epoch,
		.message = message,
	};
	return true;
}

void reef_answer_free(struct reef_answer *answer)
{
	reef_message_free(answer->message);
	*answer = (struct reef_answer){0};
}

static void begin_call(struct rpc_peer *peer, struct rpc_call *call)
{
	struct reef_rpc *rpc = peer->peer.rpc;

	do {
		rpc->last_id++;
	} while (!rpc->last_id || find_call(peer, rpc->last_id));
	call->id = rpc->last_id;
	call->next = peer->calls;
	peer->calls = call;
	rpc_peer_ref(peer);
	rpc->calls++;
	rpc->counts.calls++;
}

static void end_call(struct reef_rpc *rpc, struct rpc_peer *peer,
		     struct rpc_call *call)
{
	struct rpc_call **at = &peer->calls;

	rpc_send_forget(call);
	while (*at != call)
		at = &(*at)->next;
	*at = call->next;
	rpc_peer_unref(peer);
	rpc->calls--;
	rpc_wake_destroyer(rpc);
}

static int wait_for_answer(struct rpc_call *call, uint64_t timeout_ns)
{
	uint64_t start_ns = reef_now_ns(), passed_ns, left_ns = timeout_ns;
	int rc;

	while (!call->done) {
		rc = reef_fiber_park(left_ns);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		if (call->done || timeout_ns == REEF_FOREVER)
			continue;
		passed_ns = reef_now_ns() - start_ns;
		if (passed_ns >= timeout_ns)
			return -ETIMEDOUT;
		left_ns = timeout_ns - passed_ns;
	}
	return call->status;
}

int reef_rpc_call(struct reef_peer *base, uint16_t kind, uint32_t sequence,
		  const struct reef_body *body, struct reef_answer *answer,
		  uint64_t timeout_ns)
{
	struct rpc_peer *peer = (struct rpc_peer *)base;
	struct reef_rpc *rpc = base->rpc;
	struct reef_pool_header header = {
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_REQUEST,
		.kind = kind,
		.sequence = sequence,
	};
	struct rpc_call call = {
		.kind = kind,
		.fiber = reef_fiber_self(),
		.answer = answer,
	};
	int rc;

	reef_assert(call.fiber);
	rc = rpc_peer_status(peer);
	if (rc)
		return rc;
	begin_call(peer, &call);
	header.id = call.id;
	header.epoch = rpc->options.epoch;
	rc = rpc_send(peer, &header, body, &call, false);
	if (!rc)
		rc = wait_for_answer(&call, timeout_ns);
	end_call(rpc, peer, &call);
	return rc;
}

int reef_rpc_note(struct reef_peer *base, uint16_t kind,
		  const struct reef_body *body)
{
	struct rpc_peer *peer = (struct rpc_peer *)base;
	struct reef_pool_header header = {
		.version = REEF_POOL_VERSION,
		.type = REEF_POOL_NOTE,
		.kind = kind,
	};
	int rc = rpc_peer_status(peer);

	if (rc)
		return rc;
	header.epoch = base->rpc->options.epoch;
	return rpc_send(peer, &header, body, NULL, false);
}
