/* rpc_internal.h - the insides that rpc.c, rpc_call.c, rpc_peer.c and
 * rpc_send.c share.
 *
 * Thread: owner. */
#ifndef REEF_POOL_RPC_INTERNAL_H
#define REEF_POOL_RPC_INTERNAL_H

#include "pool/rpc.h"

struct rpc_sending;

/* A call that waits; on its caller's stack. */
struct rpc_call {
	uint32_t id;
	uint16_t kind;
	bool done;
	int status; /* once done */
	struct reef_fiber *fiber;
	struct reef_answer *answer;  /* NULL: not wanted */
	struct rpc_sending *sending; /* its request; NULL: sent, or failed */
	struct rpc_call *next;	     /* in peer->calls */
};

/* What the peers of one account have under way together. */
struct rpc_account {
	uint32_t number;
	struct rpc_room *room;
	uint32_t refs; /* peers */
	uint32_t handlers;
	uint64_t unread;		/* bytes */
	struct rpc_account *next, **at; /* in room->accounts; at NULL: the rpc
					 * is gone */
};

struct rpc_room {
	uint32_t handlers;
	uint64_t unread;
	struct rpc_account *accounts;
};

struct rpc_peer {
	struct reef_peer peer;	     /* first */
	struct rpc_account *account; /* NULL: there was no memory */
	uint32_t refs;		     /* its list's, calls, handlers, sendings */
	uint32_t handling;	     /* requests that are not answered yet */
	uint32_t queued;	     /* sendings but for answers of handlers */
	bool connecting;	     /* reef_connect has not returned */
	bool is_stuck;		     /* in rpc->stuck */
	int reason;		     /* once its link is gone */
	struct reef_link *held;	     /* connected: to be closed */
	struct reef_queue *queue;
	struct rpc_call *calls;
	/* Messages that are not posted yet, in order. */
	struct rpc_sending *waiting, **waiting_tail;
	/* Came before connecting was over, in order. */
	struct reef_message *early, **early_tail;
	uint32_t early_count;
	struct rpc_peer *next, **at; /* in rpc->accepted or connected */
	struct rpc_peer *stuck_next;
};

struct rpc_receiver {
	struct reef_rpc *rpc;
	struct reef_queue *queue;
};

struct reef_rpc {
	struct reef_port *port;
	struct reef_rpc_options options;
	struct rpc_receiver receivers[REEF_MESH_MAX];
	struct rpc_room rooms[REEF_ROOMS];
	struct rpc_peer *accepted, *connected;
	struct rpc_peer *stuck; /* they have waiting, and no room to post it */
	uint32_t last_id;
	/* What destroy waits for. */
	uint32_t receiving, handlers, laters, calls, sendings, connects;
	bool closing, has_early, is_retrying;
	bool is_orphan; /* not made: the last receiver frees it */
	struct reef_fiber *destroyer;
	struct reef_rpc_counts counts;
};

/* --- rpc.c --- */

/* Let destroy check: something that it waits for has ended. */
void rpc_wake_destroyer(struct reef_rpc *rpc);

/* --- rpc_peer.c --- */

struct rpc_peer *rpc_peer_create(struct reef_rpc *rpc);
/* True if the account may have more, given what all of its room have: of what
 * others left, it has at most as much as is left. (rpc.h, 4) */
static inline bool rpc_has_share(uint64_t own, uint64_t all, uint64_t max)
{
	return all < max && own < max - all;
}
/* Forget the accounts that peers keep: the rpc goes. */
void rpc_accounts_release(struct reef_rpc *rpc);
/* Give a peer its link, which is up. */
void rpc_peer_up(struct rpc_peer *peer, struct reef_link *link, bool accepted);
/* End what waits for a peer whose link is gone, and tell the owner. */
void rpc_peer_lost(struct rpc_peer *peer, int reason);
/* Find connected links that went down, and report each as lost. */
void rpc_peers_report_lost(struct reef_rpc *rpc);
/* Give up all connected and accepted peers. */
void rpc_peers_end(struct reef_rpc *rpc);
/* Callbacks of reef_listen_options. */
void rpc_link_opened(void *context, struct reef_link *link);
void rpc_link_closed(void *context, struct reef_link *link, int reason);
/* 0: the peer can be used; else why not. */
int rpc_peer_status(const struct rpc_peer *peer);

static inline void rpc_peer_ref(struct rpc_peer *peer)
{
	peer->refs++;
}
void rpc_peer_unref(struct rpc_peer *peer);

/* --- rpc_call.c --- */

void rpc_call_end(struct rpc_call *call, int status);
/* End every call of that peer. */
void rpc_calls_end(struct rpc_peer *peer, int status);
/* End the call that this answers. True: the message is the call's now. */
bool rpc_end_answered(struct rpc_peer *peer,
		      const struct reef_pool_header *header,
		      const struct reef_body *body,
		      struct reef_message *message);

/* --- rpc_send.c --- */

/* How many messages, answers of handlers not counted, may wait for one peer. */
uint32_t rpc_queued_max(const struct reef_rpc *rpc);
/* Send a message, now or when there is room. call, if not NULL: is told if it
 * fails later. for_handler: an answer that counts in peer->handling, which it
 * ends also where this fails.  Else: nothing was sent. */
int rpc_send(struct rpc_peer *peer, const struct reef_pool_header *header,
	     const struct reef_body *body, struct rpc_call *call,
	     bool for_handler);
/* Do not send a call's request, or not tell the call, which has ended. */
void rpc_send_forget(struct rpc_call *call);
/* Post again for the peers whose links had no room. */
void rpc_send_stuck(struct reef_rpc *rpc);
/* Drop what waits for a peer, unsent. */
void rpc_send_drop(struct rpc_peer *peer);

#endif
