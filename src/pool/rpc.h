/* rpc.h - calls over links: a request goes out as a message, an answer comes
 * back, either end of a link may ask.
 *
 * (1) Everything is on one scheduler: the port's. A receiver fiber per queue
 *     takes messages and hands them out; each request is handled in a fiber of
 *     its own, so that a handler may block.
 * (2) A request is handled at most once per arrival, and answered at most once.
 *     Its sender learns that it was not done (-REEF_ENOLINK, -REEF_EFENCED,
 *     -EBUSY: never sent, or never handled), its answer, or that it does not
 *     know (-REEF_EINDOUBT: link lost meanwhile; -ETIMEDOUT). A late answer is
 *     ignored. A handler that returns -REEF_ENOLINK means a link of its own:
 *     that is answered as -REEF_EINDOUBT.
 * (3) What does not decode, and answers nobody waits for, are dropped and
 *     counted; a peer that sends them costs only itself.
 * (4) At most peer_max requests of one peer are handled at once (until their
 *     answers are sent). Peers are in *rooms*, which lend each other nothing:
 *     in each at most handlers_max requests are handled at once. Peers of one
 *     *account*, who is one user, are counted together: an account is given no
 *     more handlers than its room has left for others; so one alone has half
 *     of them, and whoever comes next finds some. The same holds for bytes of
 *     answers that wait to be read, of which a room has unread_max. Further
 *     requests are answered with -EBUSY, and ignored if the peer does not take
 *     even that.
 * (5) A peer outlives its link while somebody holds it: peer->link is NULL once
 *     the link is gone, and a call or answer through it fails. A connected link
 *     that went down is closed only by reef_peer_close, so that threads that
 *     post on it are safe until then.
 * (6) A handler that would wait for what others do, and that nothing bounds,
 *     returns REEF_LATER: it counts no more, but for its peer, and its request
 *     is answered by reef_request_answer.
 *
 * Thread: owner, which is the port's. */
#ifndef REEF_POOL_RPC_H
#define REEF_POOL_RPC_H

#include "pool/mesh.h"
#include "wire/pool.h"

struct reef_rpc;

enum reef_rpc_room {
	REEF_ROOM_USERS, /* whoever `opened` does not put elsewhere */
	REEF_ROOM_OWNER,
	REEF_ROOM_SERVERS, /* also all that were connected to */
	REEF_ROOMS
};

/* The other end of a link; made by the rpc. */
struct reef_peer {
	struct reef_rpc *rpc;
	struct reef_link *link; /* NULL: gone */
	uint32_t session;	/* the link's own, perhaps provisional */
	bool accepted;
	/* Set in `opened`, for good; accounts are numbered in each room. */
	enum reef_rpc_room room;
	uint32_t account;
	void *user;	   /* the owner's */
	uint32_t messages; /* that came from it */
	uint64_t epoch; /* highest seen in its messages; 0 where we have one */
};

struct reef_request {
	struct reef_peer *peer;
	struct reef_pool_header header;
	struct reef_body body; /* good until the handler returns, or later the
				* answer */
};

#define REEF_LATER 1

/* What an rpc's owner provides. */
struct reef_rpc_options {
	/* Handle a request, in a fiber of its own: fill *answer and return 0,
	 * or return the negative status to answer with, or REEF_LATER: (6),
	 * nothing is taken from answer and room. Rows: put into `room`,
	 * which is freed after it was sent; it is the rows unless answer->rows
	 * says otherwise. Required. */
	int (*handle)(void *context, const struct reef_request *request,
		      struct reef_body *answer, struct reef_cursor_out *room);
	/* A NOTE came; must not block. Optional. */
	void (*note)(void *context, const struct reef_request *note);
	/* A link was accepted; a link (either kind) is gone, not by
	 * reef_peer_close. Once each, must not block. Optional. After closed
	 * returns an accepted peer goes with its last reference; a connected
	 * one stays until reef_peer_close, which closed may call. reason:
	 * negative; -ECANCELED: reef_rpc_destroy. */
	void (*opened)(void *context, struct reef_peer *peer);
	void (*closed)(void *context, struct reef_peer *peer, int reason);
	/* As in reef_listen_options. Required to listen. */
	int (*credential)(void *context, const char *identity, uint32_t session,
			  uint8_t key[REEF_KEY_SIZE]);
	/* As in reef_listen_options. Optional. */
	int (*admit)(void *context, const char *identity);
	void *context;
	uint64_t epoch; /* in every header sent; a broker's. Set later with
			 * reef_rpc_set_epoch. */
	uint32_t handlers_max; /* of a room; 0: 2,048 */
	uint32_t peer_max;     /* 0: 64 */
	uint64_t unread_max;   /* of a room; 0: answers_max of its fabrics */
};

/* Start receiving on every queue of the port. Called in a fiber of its
 * scheduler, or before that runs. Caller owns *out. */
int reef_rpc_create(struct reef_port *port,
		    const struct reef_rpc_options *options,
		    struct reef_rpc **out);
/* Stop listening, end every link, wait until every handler and call has
 * returned (new calls get -REEF_ENOLINK). Connected peers are given up, too. In
 * a fiber. NULL is fine. The port is closed after it. */
void reef_rpc_destroy(struct reef_rpc *rpc);
void reef_rpc_set_epoch(struct reef_rpc *rpc, uint64_t epoch);

/* As reef_port_listen; links become peers. */
int reef_rpc_listen(struct reef_rpc *rpc, const char *addresses, char *real,
		    size_t real_max);

/* As reef_port_connect. *out is good until reef_peer_close or
 * reef_rpc_destroy. */
int reef_rpc_connect(struct reef_rpc *rpc, const char *addresses,
		     uint64_t domain,
		     const struct reef_connect_options *options,
		     struct reef_peer **out, uint32_t *door);
/* Connected peers only: close the link (calls under way get -REEF_EINDOUBT) and
 * give up the peer. NULL is fine. */
void reef_peer_close(struct reef_peer *peer);
/* Wait for nothing that this peer was asked: calls under way get
 * -REEF_EINDOUBT. The link stays. */
void reef_peer_abandon(struct reef_peer *peer);
/* Keep the peer, not its link. Also fine after reef_rpc_destroy. */
void reef_peer_ref(struct reef_peer *peer);
void reef_peer_unref(struct reef_peer *peer);

/* Answer a request whose handler has returned REEF_LATER; once. answer: NULL,
 * or as a handler fills it; its rows stay the caller's. */
void reef_request_answer(const struct reef_request *request, int status,
			 const struct reef_body *answer);

/* An answer, and the bytes its texts and rows lie in. */
struct reef_answer {
	struct reef_body body;
	uint64_t epoch; /* of its header */
	struct reef_message *message;
};
void reef_answer_free(struct reef_answer *answer); /* zeroed is fine */

/* Ask and wait. Returns the answer's status, or rule 2; *answer (may be NULL)
 * is filled in only on 0, and is the caller's to free.
 * sequence: 0, or as wire/pool.h (2). body NULL: empty.  -EMSGSIZE: the body is
 * too long, or the answer's was.  -EBUSY: too much waits to be sent to this
 * peer, or it has too much to do.  -ESTALE: the answer's epoch is lower than
 * one this peer was seen with. In a fiber. */
int reef_rpc_call(struct reef_peer *peer, uint16_t kind, uint32_t sequence,
		  const struct reef_body *body, struct reef_answer *answer,
		  uint64_t timeout_ns);

/* Send without waiting for anybody; lost if the link is. Errors: as a call's
 * that was not sent. */
int reef_rpc_note(struct reef_peer *peer, uint16_t kind,
		  const struct reef_body *body);

struct reef_rpc_counts {
	uint64_t handled, refused, malformed, unasked, calls;
};
void reef_rpc_counts(const struct reef_rpc *rpc, struct reef_rpc_counts *out);

#endif
