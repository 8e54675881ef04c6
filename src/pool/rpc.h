/* rpc.h - calls over links: a request goes out as a message, an answer comes
 * back, either end of a link may ask.
 *
 * (1) Everything is on one scheduler: the port's. A receiver fiber per queue
 *     takes messages and hands them out; each request is handled in a fiber of
 *     its own, so that a handler may block.
 * (2) A request is handled at most once per arrival, and answered at most once.
 *     Its sender learns that it was not done (-REEF_ENOLINK: never sent), its
 *     answer, or that it does not know (-REEF_EINDOUBT: link lost meanwhile;
 *     -ETIMEDOUT). A late answer is ignored.
 * (3) What does not decode, and answers nobody waits for, are dropped and
 *     counted; a peer that sends them costs only itself.
 * (4) At most handlers_max requests are handled at once, and peer_max of one
 *     peer; further ones are answered with -EBUSY.
 * (5) A peer outlives its link while somebody holds it: peer->link is NULL once
 *     the link is gone, and a call or answer through it fails.
 *
 * Thread: owner, which is the port's. */
#ifndef REEF_POOL_RPC_H
#define REEF_POOL_RPC_H

#include "pool/mesh.h"
#include "wire/pool.h"

struct reef_rpc;

/* The other end of a link. Zeroed but for what is filled in here. */
struct reef_peer {
	struct reef_rpc *rpc;
	struct reef_link *link; /* NULL: gone */
	uint32_t session;	/* the link's own, perhaps provisional */
	bool accepted;
	void *user; /* the owner's */
	/* the rpc's: */
	uint32_t refs, handling;
	uint64_t epoch; /* highest seen in its messages */
	struct reef_peer *next;
};

struct reef_request {
	struct reef_peer *peer;
	struct reef_pool_header header;
	struct reef_body body; /* good until the handler returns */
};

/* What an rpc's owner provides. */
struct reef_rpc_options {
	/* Handle a request, in a fiber of its own: fill *answer and return 0,
	 * or return the negative status to answer with. rows, texts: put into
	 * `room`, which is sent before it is freed. Required. */
	int (*handle)(void *context, const struct reef_request *request,
		      struct reef_body *answer, struct reef_cursor_out *room);
	/* A NOTE came; must not block. Optional. */
	void (*note)(void *context, const struct reef_request *note);
	/* A link was accepted; a link (either kind) is gone. Optional. After
	 * closed returns the peer goes with its last reference. */
	void (*opened)(void *context, struct reef_peer *peer);
	void (*closed)(void *context, struct reef_peer *peer, int reason);
	/* As in reef_listen_options. Required to listen. */
	int (*credential)(void *context, const char *identity, uint32_t session,
			  uint8_t key[REEF_KEY_SIZE]);
	void *context;
	uint64_t epoch; /* in every header sent; a broker's. Set later with
			 * reef_rpc_set_epoch. */
	uint32_t handlers_max; /* 0: 1,024 */
	uint32_t peer_max;     /* 0: 64 */
};

/* Start receiving on every queue of the port. Called in a fiber of its
 * scheduler, or before that runs. Caller owns *out. */
int reef_rpc_create(struct reef_port *port,
		    const struct reef_rpc_options *options,
		    struct reef_rpc **out);
/* End the receivers, wait until every handler has returned (they get
 * -REEF_ENOLINK from their calls), close connected links. In a fiber. NULL is
 * fine. The port is closed after it. */
void reef_rpc_destroy(struct reef_rpc *rpc);
void reef_rpc_set_epoch(struct reef_rpc *rpc, uint64_t epoch);

/* As reef_port_listen; links become peers. */
int reef_rpc_listen(struct reef_rpc *rpc, const char *addresses, char *real,
		    size_t real_max);

/* As reef_port_connect. *out is good until reef_peer_close. */
int reef_rpc_connect(struct reef_rpc *rpc, const char *addresses,
		     uint64_t domain,
		     const struct reef_connect_options *options,
		     struct reef_peer **out, uint32_t *door);
/* Connected peers only: close the link (calls under way get -REEF_EINDOUBT) and
 * give up the peer. NULL is fine. */
void reef_peer_close(struct reef_peer *peer);
void reef_peer_ref(struct reef_peer *peer);
void reef_peer_unref(struct reef_peer *peer);

/* An answer, and the bytes its texts and rows lie in. */
struct reef_answer {
	struct reef_body body;
	uint64_t epoch; /* of its header */
	struct reef_message *message;
};
void reef_answer_free(struct reef_answer *answer); /* zeroed is fine */

/* Ask and wait. Returns the answer's status, or rule 2; *answer (may be NULL)
 * is filled in only on 0, and is the caller's to free.
 * sequence: 0, or as wire/pool.h (2).  -EMSGSIZE: the body is too long.
 * -ESTALE: the answer's epoch is lower than one this peer was seen with. */
int reef_rpc_call(struct reef_peer *peer, uint16_t kind, uint32_t sequence,
		  const struct reef_body *body, struct reef_answer *answer,
		  uint64_t timeout_ns);

/* Send without waiting for anybody; lost if the link is. */
int reef_rpc_note(struct reef_peer *peer, uint16_t kind,
		  const struct reef_body *body);

struct reef_rpc_counts {
	uint64_t handled, refused, malformed, unasked, calls;
};
void reef_rpc_counts(const struct reef_rpc *rpc, struct reef_rpc_counts *out);

#endif
