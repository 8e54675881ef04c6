/* tcp.h - one-sided operations over tcp: the parts, and who owns what.
 *
 *   tcp.c      the fabric: open, close, memory, fence
 *   queue.c    queues: which sockets to look at, and when
 *   listen.c   the accepting side up to WELCOME
 *   connect.c  the connecting side up to WELCOME, and remotes
 *   life.c     a link from WELCOME to its end
 *   send.c     what goes out on a link
 *   receive.c  what comes in
 *   target.c   what a peer's batches do here
 *
 * A link is joined to queues by *watches*: one to the queue that owns it, and
 * one to every other queue that posts on it, so that a thread that waits for
 * its batch need not trust in another one to poll. Whoever polls reads for all.
 *
 *                  post, control              recv
 *   batch ring --> out (frames) --> socket --> in --> target --> reply --+
 *                   ^                                                    |
 *                   +------------- swapped in between two frames <-------+
 *
 * (1) Locks, in the order in which they are taken: fabric.lock, link.rx_lock,
 *     link.tx_lock, link.lock. A poll only tries rx_lock: whoever has it does
 *     the work. No lock is held when the core is called, except rx_lock (and
 *     tx_lock when a link breaks) for batches and messages that ended.
 * (2) A link breaks once, under both its locks, in any thread: from then on
 *     nothing of it takes effect, and its batches have ended. Its owner's next
 *     poll *settles* it: tells the core, and lets go.
 * (3) A link lives as long as its owner, or a watch, holds it. A watch is freed
 *     only by its queue's thread.
 * (4) A batch is complete when its answer is, and an answer counts only for a
 *     batch whose last byte has been sent: the socket never reads memory that
 *     was given back.
 * (5) What comes in is always read, unless answers do not go out, or an inbox
 *     is full. Only the accepting side answers, so two sides never wait for
 *     each other.
 * (6) A SEND to the accepting side has ended when it is in the inbox there; one
 *     to the connecting side, which polls when it likes, when the socket has
 *     taken it.
 * (7) A link with TLS sends and receives through it, and only so: it is freed
 *     when the link breaks, under both locks, and a broken link sends nothing.
 *     What OpenSSL has decrypted, and nobody has read, goes with it.
 * (8) Answers that a peer does not read are bounded: at TCP_ANSWERS_MAX bytes
 *     no more of its input is acted on. Once all that wait in this fabric are
 *     answers_max, TCP_ANSWERS_LEAST is the limit of each link, so that who
 *     reads goes on, only in smaller pieces.
 * (9) A batch that has come halfway does not keep memory from being withdrawn:
 *     a WRITE ends at once with -REEF_EKEY; whoever has not taken an answer a
 *     quarter of silence_ns later loses the link.
 *
 * Silence: with something under way, or a frame that has come halfway, and
 * nothing heard for a quarter of silence_ns a side sends PING; after silence_ns
 * the link is lost. Only time in which this side was polling counts. On an idle
 * link the kernel's keep-alive does the same, so a process may be busy with
 * other things for as long as it likes. */
#ifndef REEF_FABRIC_TCP_TCP_H
#define REEF_FABRIC_TCP_TCP_H

#include "fabric/fences.h"
#include "fabric/fifo.h"
#include "fabric/numbers.h"
#include "fabric/provider.h"
#include "fabric/socket.h"
#include "fabric/stream.h"
#include "fabric/tcp/regions.h"
#include "fabric/tcp/target.h"

#include <sys/epoll.h>

#define TCP_ANSWERS_MAX (256u << 10)
#define TCP_ANSWERS_LEAST (16u << 10)

struct tcp_fabric {
	struct reef_fabric base;
	struct tcp_regions regions;
	pthread_mutex_t lock;
	struct tcp_link *links;		/* all that live; locked */
	struct tcp_listener *listeners; /* locked */
	_Atomic uint32_t accepted;	/* links not broken */
	_Atomic uint64_t answers;	/* bytes of them that wait: (8) */
	struct reef_fences fences;
	struct reef_numbers numbers; /* locked */
};

/* What an epoll event points to. */
struct tcp_source {
	enum tcp_source_kind {
		TCP_WAKE,
		TCP_TIMER,
		TCP_WATCH,    /* a link */
		TCP_LISTENER, /* accept */
		TCP_GUEST,    /* accepted, before WELCOME */
		TCP_OPENING,  /* connecting, before WELCOME */
		TCP_LINGER,   /* ended; reads until the peer has heard why */
	} kind;
};

struct tcp_queue {
	struct reef_queue base;
	struct tcp_fabric *fabric;
	struct tcp_source wake, timer;
	int timer_fd;
	bool timer_set;
	struct tcp_watch *watches; /* every link it looks at */
	struct tcp_watch *active;  /* those worth a recv without asking */
	uint32_t unsent; /* watches whose batches wait for the next poll */
	uint32_t active_count;
	uint32_t apart_count; /* of the active: out of epoll for now */
	uint32_t round;
	_Atomic uint32_t broken;  /* own links that wait to be settled */
	_Atomic uint32_t paused;  /* own links that wait for the inbox */
	struct tcp_guest *guests; /* oldest last */
	uint32_t guest_count;
	struct tcp_link *openings;
	struct tcp_linger *lingers;
	struct tcp_listener *listeners;
	uint64_t tick_ns;   /* when time was looked at last */
	uint32_t attentive; /* polls that look at everything */
	bool is_armed;	    /* the next poll leaves epoll to the sleeper */
	/* Events that epoll reported and that are still to be handled. */
	struct epoll_event events[64];
	int event_count;
};

/* A queue looks at a link. Thread: the queue's, but for what is said. */
struct tcp_watch {
	struct tcp_source source;
	struct tcp_queue *queue;
	struct tcp_link *link;
	struct tcp_watch *next, **at;		    /* in queue->watches */
	struct tcp_watch *next_of_link;		    /* link.tx_lock */
	struct tcp_watch *next_active, **active_at; /* NULL: not active */
	_Atomic uint32_t
		under_way;  /* batches and attaches of this queue; any */
	uint32_t idle;	    /* polls in a row that brought nothing */
	uint32_t busy;	    /* polls that did, since its thread last slept */
	bool apart;	    /* out of epoll: so busy, or left to others */
	uint32_t others;    /* is_owner: link.others when it last slept */
	uint64_t others_ns; /* and when that last was another number */
	bool is_aside;	    /* it left the link to others */
	bool unsent;	    /* batches wait for those of other fibers */
	bool in_epoll;	    /* link.tx_lock */
	bool is_owner;	    /* the link is this queue's */
};

/* What comes next on a link. */
enum tcp_input {
	TCP_HEADER,
	TCP_CONTROL,
	TCP_BATCH,
	TCP_MESSAGE,
	TCP_RESULTS,
	TCP_TAIL
};

struct tcp_link {
	struct reef_link base;
	struct tcp_fabric *fabric;
	_Atomic uint32_t refs;
	struct tcp_link *next, **at; /* fabric.lock */
	struct tcp_watch *watch;     /* the owner's; NULL before WELCOME */
	int fd;			     /* both locks to change */
	struct reef_tls *tls;	     /* both locks to change; NULL: plain */
	uint32_t ops_max, length_max, message_max; /* the peer's */

	/* Used before WELCOME, on the connecting side. Thread: owner. */
	struct tcp_source opening;
	struct tcp_link *next_opening;
	struct reef_stream *stream;
	struct reef_hello *hello;
	struct reef_connect_options options;
	bool connected; /* the socket is */

	_Atomic int broken;   /* 0, or why; both locks to change */
	_Atomic bool is_over; /* to be broken by whoever reads: end_links */
	_Atomic int doomed; /* sending failed: read what is left, then break */
	bool linger;	    /* a BYE is out: let the peer read it */

	/* Batches under way: those from ended on; of them, those before sent
	 * have gone out. Slot: number % ring_size. */
	struct reef_batch **ring;
	uint32_t ring_size;	 /* power of two, at least depth_max */
	_Atomic uint64_t posted; /* tx_lock */
	_Atomic uint64_t sent;	 /* tx_lock */
	_Atomic uint64_t ended;	 /* rx_lock; accepted: tx_lock */
	/* Something was heard, or is waited for now, since the last tick; which
	 * turns it into a time, so that no operation has to read a clock. */
	_Atomic bool stirred;
	_Atomic uint64_t quiet_ns; /* since when not */
	_Atomic uint32_t attaching;

	pthread_mutex_t tx_lock;
	struct tcp_watch *watches; /* all */
	struct reef_fifo out;	  /* being sent; whole frames, or batch_begun */
	struct reef_fifo control; /* goes out at the next end of a frame */
	struct iovec borrowed;	  /* of a batch's memory, after out */
	bool batch_begun;	  /* batch number `sent` is partly in out */
	uint32_t batch_op;
	struct reef_batch *posting; /* NULL: has ended in its post */
	_Atomic bool blocked;	    /* the socket is full */
	_Atomic bool stalled;	    /* also rx_lock: answers wait */
	_Atomic bool paused;	    /* also rx_lock: an inbox is full */
	uint32_t events;	    /* what epoll was told */
	uint64_t pinged_ns;
	uint64_t unsent_ns; /* since when the kernel has output */

	pthread_mutex_t rx_lock;
	_Atomic uint32_t others; /* reads for queues that do not own it */
	struct reef_fifo in;
	enum tcp_input input;
	struct reef_frame_header header;
	uint32_t header_left; /* of its payload */
	struct tcp_target target;
	_Atomic bool is_halfway;	  /* more of a frame is to come */
	size_t answers;			  /* counted in fabric.answers */
	uint32_t result_op, result_moved; /* of batch number `ended` */
	struct reef_queue *polling;	  /* who reads now */
	int happened;
	bool passed_on; /* some of it to another queue */

	pthread_mutex_t lock;
	struct tcp_remote *remotes;
	uint64_t attach_tag;
	struct tcp_holding *holdings; /* keys that the peer has attached */
	uint32_t holding_count, holding_size;
};

struct tcp_holding {
	uint64_t key;
	uint64_t count;
};

struct tcp_remote {
	struct reef_remote base;
	struct tcp_remote *next;
	struct tcp_watch *watch; /* of the queue that attaches, while it does */
	uint64_t tag;
};

/* A connection that has not been welcomed yet. */
struct tcp_guest {
	struct tcp_source source;
	struct tcp_listener *listener;
	struct tcp_queue *queue;
	struct tcp_guest *next;
	struct reef_stream *stream;
	struct reef_hello *hello;
	struct tcp_link *link; /* made when admitted */
	uint64_t until_ns;
	uint64_t host; /* whose it is */
};

struct tcp_listener {
	struct reef_listener base;
	struct tcp_source source;
	struct tcp_listener *next, **at; /* fabric.lock */
	struct tcp_listener *next_of_queue;
	int fd;
	uint64_t resume_ns; /* not 0: does not accept until then */
};

struct tcp_linger {
	struct tcp_source source;
	struct tcp_linger *next;
	int fd;
	uint64_t until_ns;
};

static inline struct tcp_fabric *tcp_fabric_of(struct reef_layer *layer)
{
	return (struct tcp_fabric *)layer->fabric;
}

static inline uint64_t tcp_silence_ns(const struct tcp_fabric *fabric)
{
	return fabric->base.options.silence_ns;
}

/* Whether a connection with that peer is to be encrypted. */
static inline bool tcp_wants_tls(const struct tcp_fabric *fabric,
				 bool is_loopback)
{
	return fabric->base.options.tls == REEF_TLS_YES ||
	       (fabric->base.options.tls == REEF_TLS_AUTO && !is_loopback);
}

static inline bool tcp_link_waits(const struct tcp_link *link)
{
	return atomic_load(&link->posted) != atomic_load(&link->ended) ||
	       atomic_load(&link->attaching) != 0;
}

static inline void tcp_link_stir(struct tcp_link *link)
{
	if (!atomic_load_explicit(&link->stirred, memory_order_relaxed))
		atomic_store_explicit(&link->stirred, true,
				      memory_order_relaxed);
}

/* --- queue.c. Thread: the queue's, but for tcp_watch_events. --- */

int tcp_queue_open(struct reef_layer *layer, struct reef_queue **out);
void tcp_queue_close(struct reef_layer *layer, struct reef_queue *base);
int tcp_poll(struct reef_layer *layer, struct reef_queue *base);
int tcp_arm(struct reef_layer *layer, struct reef_queue *base);

int tcp_queue_add(struct tcp_queue *queue, int fd, uint32_t events,
		  struct tcp_source *source);
void tcp_queue_remove(struct tcp_queue *queue, int fd);
/* A source is about to be freed: the poll under way must not look at it. */
void tcp_queue_forget(struct tcp_queue *queue, struct tcp_source *source);

/* The watch that joins a queue to a link; makes it if there is none. With
 * tx_lock.  NULL: no memory. */
struct tcp_watch *tcp_watch_get(struct tcp_queue *queue, struct tcp_link *link);
/* Free a watch. Without locks. */
void tcp_watch_drop(struct tcp_watch *watch);
/* Let polls read the link directly for a while. */
void tcp_watch_activate(struct tcp_watch *watch);
/* Tell every queue that looks at the link what to wait for. With tx_lock.
 * Thread: any. */
void tcp_watch_events(struct tcp_link *link);

/* --- life.c --- */

/* Make a link without a socket; its owner holds it.  -ENOMEM. */
int tcp_link_create(struct tcp_fabric *fabric, struct reef_queue *queue,
		    uint32_t session, uint32_t number, const char *identity,
		    struct tcp_link **out);
void tcp_link_ref(struct tcp_link *link);
void tcp_link_unref(struct tcp_link *link);

/* Let a welcomed link go on with its stream's socket, and what was read from
 * it. Thread: the owner's. -ENOMEM and such: it did not begin. */
int tcp_link_begin(struct tcp_link *link, struct reef_stream *stream,
		   const struct reef_hello_peer *peer);

/* End a link (2). With both locks, or with none. bye: tell the peer. */
void tcp_link_break_locked(struct tcp_link *link, struct reef_queue *polling,
			   int reason, bool bye);
void tcp_link_break(struct tcp_link *link, struct reef_queue *polling,
		    int reason, bool bye);

/* Tell the core of a broken link, and let go of it if it was accepted. Thread:
 * the owner's. */
void tcp_link_settle(struct tcp_link *link);

/* Put a link into the fabric's list, with fabric.lock; take it out, without. */
void tcp_link_list(struct tcp_link *link);
void tcp_link_unlist(struct tcp_link *link);

/* Ping a silent peer, or give it up. Thread: any that watches. */
void tcp_link_tick(struct tcp_link *link, struct reef_queue *polling,
		   uint64_t now_ns, bool was_away);

void tcp_disconnect(struct reef_layer *layer, struct reef_link *base);
void tcp_sever(struct reef_layer *layer, struct reef_link *base);

/* --- send.c --- */

int tcp_post(struct reef_layer *layer, struct reef_queue *queue,
	     struct reef_batch *batch);

/* Send what the link has to send. With tx_lock. 0: all is out.  -EAGAIN: the
 * socket is full.  -REEF_ENOLINK: the link is doomed. */
int tcp_flush(struct tcp_link *link);

/* Send a frame with at most 48 bytes of payload, as soon as the frame before it
 * is out. Without tx_lock. -ENOBUFS: far too many of them. */
int tcp_control(struct tcp_link *link, uint8_t type, uint64_t tag,
		const void *payload, uint32_t length);
int tcp_control_locked(struct tcp_link *link, uint8_t type, uint64_t tag,
		       const void *payload, uint32_t length);

/* --- receive.c --- */

/* Read from the link and act on it, unless another thread does so right now.
 * Returns how much happened. */
int tcp_receive(struct tcp_link *link, struct reef_queue *polling);

/* Act on what came with the last frame of the hello, which epoll does not tell
 * of any more. Thread: the owner's. */
void tcp_receive_rest(struct tcp_link *link);

/* --- connect.c. Thread: the owner's. --- */

int tcp_connect(struct reef_layer *layer, struct reef_queue *queue,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out);
int tcp_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *base, uint64_t key, struct reef_remote **out);
void tcp_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *base);
/* Go on with opening a link: its socket is ready, or time has passed. */
int tcp_opening_step(struct tcp_link *link);
/* Free what a link has only before WELCOME; `fail` also tells the core that the
 * link will not open. */
void tcp_opening_end(struct tcp_link *link);
void tcp_opening_fail(struct tcp_link *link, int reason);
/* Frames from the peer. 0, or why the link has to end. */
int tcp_on_attached(struct tcp_link *link, const uint8_t *payload);
int tcp_on_withdraw(struct tcp_link *link, const uint8_t *payload);
/* End all attaches under way: the link is lost. */
void tcp_attaches_fail(struct tcp_link *link, struct reef_queue *polling);

/* --- listen.c. Thread: the owner's, but for fence, end_links and withdraw. ---
 */

int tcp_listen(struct reef_layer *layer, struct reef_queue *base,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out);
void tcp_unlisten(struct reef_layer *layer, struct reef_listener *base);
int tcp_fence(struct reef_layer *layer, struct reef_queue *queue,
	      uint32_t session);
int tcp_end_links(struct reef_layer *layer, struct reef_queue *queue,
		  uint32_t session, uint32_t number);
/* Close a listener's socket and end its links; the listener itself stays. */
void tcp_listener_stop(struct tcp_listener *listener);
int tcp_listener_accept(struct tcp_listener *listener, uint64_t now_ns);
void tcp_listener_tick(struct tcp_listener *listener, uint64_t now_ns);
int tcp_guest_step(struct tcp_guest *guest);
void tcp_guest_end(struct tcp_guest *guest);
/* Frames from the peer. 0, or why the link has to end. */
int tcp_on_attach(struct tcp_link *link, const uint8_t *payload);
int tcp_on_detach(struct tcp_link *link, const uint8_t *payload);

#endif
