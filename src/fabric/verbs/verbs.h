/* verbs.h - inside the verbs fabric: InfiniBand, RoCE, soft-RoCE.
 *
 * A *link* is one reliable connected queue pair and a control channel over tcp.
 * A *hub* is a completion queue with the links whose queue pairs report to it.
 *
 * (1) A queue pair belongs to one session. Ending a link destroys its queue
 *     pair at once, whoever asks; after that nothing of it takes effect here
 *     (F5, F7, F10).
 * (2) A hub has room for every completion its links can have, so its completion
 *     queue cannot overflow.
 * (3) A send queue cannot overflow: a link has a slot for each work request,
 *     and a slot is free again when its completion was seen. The queue pair
 *     itself holds back READs and atomics beyond what both ends can have under
 *     way.
 * (4) A receive is posted for every credit the peer has; the retries on
 *     "receiver not ready" are never needed between two ends that keep this.
 * (5) A link's batches are posted, and end, in the order they came.
 * (6) Where the device has windows, what a peer attached it reaches through its
 *     own queue pair alone (window.c).
 *
 * Locks. A hub's lock covers its links and all that is theirs, but for a link's
 * opening, which is its queue's own business until its hello is over. Whoever
 * waits for a batch polls the hub it went to: the queue that opened the link,
 * and every queue that posted to it. Order: fabric, hub, then regions or a
 * queue's own, never two of a kind. User code is called with none of them held.
 *
 * Thread: as each object says. */
#ifndef REEF_FABRIC_VERBS_VERBS_H
#define REEF_FABRIC_VERBS_VERBS_H

#include "fabric/fences.h"
#include "fabric/numbers.h"
#include "fabric/provider.h"
#include "fabric/socket.h"
#include "fabric/stream.h"
#include "wire/queue_pair.h"

#include <infiniband/verbs.h>

#define VERBS_RECEIVES 16    /* receives of a link */
#define VERBS_FRAGMENT 4096u /* bytes of each; longer messages take several */
#define VERBS_LANDING 128u   /* bytes that a slot can stage by itself */
#define VERBS_CHAIN_MAX 256  /* work requests behind one doorbell */
#define VERBS_BUCKETS 1024   /* of the table of regions */
#define VERBS_CLASSES 3	     /* sizes of staging chunks */
#define VERBS_BINDS 8	     /* windows that a link binds at a time */

/* --- device.c: which device, port and GID --- */

struct verbs_device {
	struct ibv_context *context;
	struct ibv_pd *domain;
	struct ibv_device_attr limits;
	uint8_t port;
	uint8_t mtu;
	bool ethernet;
	bool gid_given; /* by the user: the same for every link */
	uint32_t gid_index;
	union ibv_gid gid;
	uint16_t lid;
	uint32_t message_max; /* bytes of one work request */
};

/* Open "name", "name:port", "name:port:gid", or the best there is (NULL), and
 * describe it.  -ENODEV: none fits.  -EINVAL: not of that form. */
int verbs_device_open(const char *wanted, struct verbs_device *device,
		      char *description, size_t description_size);
void verbs_device_close(struct verbs_device *device);

/* The GID for a connection whose socket is bound to `local`: the address' own
 * if the port has it, else the one chosen at open. */
void verbs_device_gid(const struct verbs_device *device,
		      const struct reef_address *local, uint32_t *index,
		      union ibv_gid *gid);

/* --- pool.c: registered memory for operations that name no buffer --- */

struct verbs_chunk {
	uint8_t *bytes;
	uint32_t key; /* local */
	uint32_t size;
	uint8_t class;
	struct verbs_chunk *next; /* free */
};

struct verbs_class {
	uint8_t *arena; /* NULL: not needed yet */
	struct ibv_mr *registration;
	struct verbs_chunk *chunks, *free;
};

/* Thread: locked by its hub. */
struct verbs_pool {
	struct ibv_pd *domain;
	struct verbs_class classes[VERBS_CLASSES];
};

/* A chunk for up to `size` bytes; it may be smaller.  NULL: all are in use. */
struct verbs_chunk *verbs_pool_take(struct verbs_pool *pool, uint32_t size);
void verbs_pool_give(struct verbs_pool *pool, struct verbs_chunk *chunk);
void verbs_pool_fini(struct verbs_pool *pool);

/* Memory that does not follow a fork, registered.  NULL: there is none. */
uint8_t *verbs_arena_create(struct ibv_pd *domain, size_t size,
			    struct ibv_mr **registration);
void verbs_arena_destroy(uint8_t *arena, size_t size,
			 struct ibv_mr *registration);

/* --- the objects --- */

enum verbs_source_kind {
	VERBS_SOURCE_LINK,
	VERBS_SOURCE_LISTENER,
	VERBS_SOURCE_HUB,
	VERBS_SOURCE_TIMER,
	VERBS_SOURCE_WAKE,
};

/* What a queue's epoll watches. */
struct verbs_source {
	enum verbs_source_kind kind;
};

struct verbs_fabric {
	struct reef_fabric fabric;
	struct verbs_device device;
	_Atomic bool has_windows;
	_Atomic bool was_told; /* that there are none, or too few */
	uint32_t send_max;     /* slots of a connected link */
	uint8_t ack_timeout;   /* as in verbs: 4.096 us * 2^n */
	pthread_mutex_t lock;
	struct verbs_link *sessions; /* locked: accepted links */
	uint32_t accepted;	     /* locked */
	struct reef_fences fences;   /* locked */
	struct reef_numbers numbers; /* locked */
	struct verbs_link *orphans;  /* locked: connected, queue closed */
	pthread_mutex_t regions_lock;
	struct verbs_region *regions[VERBS_BUCKETS]; /* locked by that */
};

struct verbs_queue {
	struct reef_queue queue;
	struct verbs_fabric *fabric;
	struct verbs_source wake_source, timer_source;
	int timer_fd;
	bool sleepy;		    /* armed, not polled since */
	bool busy;		    /* the last poll found something */
	uint64_t control_ns;	    /* when descriptors were looked at */
	uint32_t opening;	    /* links whose hello is under way */
	_Atomic uint32_t attaching; /* attaches that wait for an answer */
	_Atomic uint32_t lost;	    /* links to reap; bumped by anyone */
	bool timer_set;
	uint32_t resting;	     /* listeners that wait for the timer */
	struct verbs_hub *hubs;	     /* of the links opened here */
	struct verbs_watch *watches; /* hubs of others that we posted to */
	struct verbs_link *links;    /* opened here */
	struct verbs_listener *listeners;
};

/* A queue's interest in another queue's hub. */
struct verbs_watch {
	struct verbs_hub *hub; /* counted */
	_Atomic uint32_t under_way;
	_Atomic uint32_t attaching;
	struct verbs_watch *next;
};

struct verbs_hub {
	struct verbs_source source;
	_Atomic uint32_t references; /* its queue's, its links', its watches' */
	_Atomic uint32_t watches;
	_Atomic bool is_closed; /* its queue is gone */
	struct verbs_fabric *fabric;
	struct ibv_comp_channel *channel;
	struct ibv_cq *completions;
	uint32_t capacity, reserved; /* completions; thread: its queue's */
	struct verbs_hub *next;
	pthread_mutex_t lock; /* the rest, and its links */
	struct verbs_link *links;
	bool armed; /* the next completion makes the channel readable */
	struct verbs_link *broken;  /* to be settled */
	struct verbs_link *hungry;  /* may have something to post */
	struct verbs_link *stalled; /* a message waits for the inbox */
	struct verbs_pool pool;
	struct ibv_send_wr chain[VERBS_CHAIN_MAX];
	struct ibv_sge pieces[VERBS_CHAIN_MAX];
};

struct verbs_listener {
	struct reef_listener listener;
	struct verbs_source source;
	struct verbs_queue *owner;
	int fd;
	bool is_resting; /* out of descriptors: looked at again by the timer */
	struct verbs_listener *next;
};

/* What a completion names. */
struct verbs_work {
	struct verbs_link *link;
	enum { VERBS_WORK_SEND, VERBS_WORK_RECEIVE, VERBS_WORK_BIND } kind;
};

/* A window that is being bound. */
struct verbs_bind {
	struct verbs_work work;
	bool is_busy;
	struct verbs_holding *holding; /* NULL: it is gone */
};

/* One work request of the send queue. */
struct verbs_slot {
	struct verbs_work work;
	bool ends_batch;
	uint32_t op;		 /* of the batch */
	uint32_t offset, length; /* which piece of the op */
	struct reef_batch *batch;
	struct verbs_chunk *chunk; /* NULL: the landing, or not staged */
	bool staged;
	uint64_t sequence;
};

struct verbs_receive {
	struct verbs_work work;
	uint32_t length;
	uint32_t immediate;
	uint8_t *bytes;
};

/* Kept in a batch's scratch while it is under way. */
struct verbs_flight {
	struct verbs_watch *watch; /* NULL: its queue is the link's */
	uint32_t op, offset;	   /* the next piece to post */
};

enum verbs_phase {
	VERBS_CONNECTING,
	VERBS_HELLO,
	VERBS_PAIRING,
	VERBS_READYING,
	VERBS_UP,
	VERBS_DRAINING,
	VERBS_LOST
};

struct verbs_link {
	struct reef_link link;
	struct verbs_source source;
	struct verbs_queue *owner; /* NULL: closed */
	struct verbs_hub *hub;	   /* counted */
	struct verbs_link *next;   /* of its queue, or an orphan */
	/* locked by the fabric: */
	struct verbs_link *next_session;
	bool is_registered;
	/* its queue's: */
	bool is_opening; /* counted in owner->opening */
	bool is_private; /* its hello is not over */
	int fd;
	struct reef_hello *hello;
	struct reef_connect_options connect;
	uint64_t deadline_ns;
	/* locked by its hub: */
	enum verbs_phase phase;
	struct reef_stream *stream;
	bool wants_write;
	bool is_silent;	      /* the peer need not be told of its end */
	bool is_expelled;     /* what it has sent counts no more */
	uint32_t attaching;   /* attaches that wait for their answer */
	uint32_t message_max; /* the peer's */
	struct verbs_link *next_hub, **at_hub;
	int broken; /* why it ends; 0: it does not */
	struct verbs_link *next_broken, *next_hungry, *next_stalled;
	bool is_hungry, is_stalled;

	/* the queue pair: pair.c */
	struct ibv_qp *pair;
	uint32_t packet;
	uint32_t gid_index;
	uint32_t inline_max;
	uint32_t send_max;
	uint8_t *arena; /* receives, then landings */
	struct ibv_mr *registration;

	/* what goes out: send.c. Slots [tail, head) are at the device. */
	struct verbs_slot *slots;
	uint64_t head, tail, signalled; /* head after the last signal */
	struct reef_batch *oldest, *unposted, **newest;
	uint32_t under_way;
	uint64_t taken, ended; /* batches, ever */
	uint32_t credits;      /* messages that the peer has room for */
	uint32_t promised;     /* of them, to batches not posted yet */
	uint32_t credits_max;
	bool has_asked;		   /* for credits, since the last came */
	uint32_t fragment;	   /* the peer's */
	struct reef_batch *failed; /* whose op the device blamed */
	uint32_t failed_op;
	int failed_status;

	/* what comes in: receive.c */
	struct verbs_receive receives[VERBS_RECEIVES];
	struct verbs_receive *arrived[VERBS_RECEIVES]; /* a ring */
	uint32_t arrived_first, arrived_count;
	uint32_t untold;  /* receives posted that the peer does not know of */
	bool is_asked;	  /* by the peer, to be told of them */
	uint8_t *message; /* one that came in several pieces */
	uint32_t message_length;
	bool message_complete;

	/* remotes and what is held of us: target.c */
	struct verbs_remote *remotes;
	struct verbs_withdrawal *withdrawals;
	struct verbs_holding *holdings;
	struct verbs_bind binds[VERBS_BINDS];
	uint64_t tag;
};

struct verbs_remote {
	struct reef_remote remote;
	uint64_t tag; /* of its ATTACH */
	uint64_t asked_ns;
	struct verbs_watch *watch; /* of who asked; NULL: the link's queue */
	uint64_t address;
	uint32_t rkey;
	struct verbs_remote *next;
};

/* A key that the peer took back: it is told once our batches that may use it
 * have ended. */
struct verbs_withdrawal {
	uint64_t key;
	uint64_t after; /* link->ended at that point */
	struct verbs_withdrawal *next;
};

/* What a registration is for: window.c. */
enum verbs_use {
	VERBS_FOR_WINDOWS, /* nobody gets in by its own key */
	VERBS_FOR_WRITING,
	VERBS_FOR_READING,
	VERBS_USES
};

struct verbs_region {
	struct reef_region region;
	/* Made when they are needed. Locked by regions_lock. */
	struct ibv_mr *registrations[VERBS_USES];
	uint32_t holders; /* locked by regions_lock */
	bool withdrawn;	  /* locked by regions_lock */
	struct verbs_region *next;
};

/* A region that the peer of an accepted link holds. */
struct verbs_holding {
	struct verbs_region *region;
	uint64_t key;	  /* the one that it attached by */
	uint64_t told_ns; /* when, that it is withdrawn; 0: not yet */
	/* window.c */
	struct ibv_mw *window; /* NULL: none */
	bool binding;	       /* it is not usable yet */
	struct verbs_bind *bind;
	uint32_t rkey; /* the device's */
	struct verbs_waiter {
		uint64_t tag; /* of an ATTACH */
		struct verbs_waiter *next;
	} * waiters; /* while it is binding */
	struct verbs_holding *next;
};

struct verbs_buffer {
	struct reef_buffer buffer;
	struct ibv_mr *registration;
};

static inline struct verbs_fabric *verbs_fabric(struct reef_layer *layer)
{
	return reef_container(layer->fabric, struct verbs_fabric, fabric);
}

static inline struct verbs_fabric *
verbs_link_fabric(const struct verbs_link *link)
{
	return reef_container(link->link.fabric, struct verbs_fabric, fabric);
}

static inline struct verbs_queue *verbs_queue(struct reef_queue *queue)
{
	return reef_container(queue, struct verbs_queue, queue);
}

static inline struct verbs_link *verbs_link(struct reef_link *link)
{
	return reef_container(link, struct verbs_link, link);
}

/* --- window.c --- */

/* The region's registration for that use, made if there is none. Locked by
 * regions_lock. */
int verbs_registration_find(struct verbs_fabric *fabric,
			    struct verbs_region *region, enum verbs_use use,
			    struct ibv_mr **out);
void verbs_registrations_free(struct verbs_region *region);
/* Log, once, that something is lent without a window. Thread: any. */
void verbs_windows_missing(struct verbs_fabric *fabric, const char *why);
/* Make a window for a holding, which is `binding` then.  Any error: there is
 * none for it. Locked by the hub, as all below. */
int verbs_window_open(struct verbs_link *link, struct verbs_holding *holding);
/* Let the link's device bind what waits for that; verbs_target_bound is told
 * when it is. */
void verbs_window_start(struct verbs_link *link);
void verbs_window_close(struct verbs_holding *holding); /* none is fine */
/* All of a link whose queue pair was stopped. */
void verbs_windows_close(struct verbs_link *link);
void verbs_window_completed(struct verbs_bind *bind, enum ibv_wc_status status);
/* target.c: answer those who wait for this holding. */
void verbs_target_bound(struct verbs_link *link, struct verbs_holding *holding);

/* --- queue.c --- */

int verbs_queue_open(struct reef_layer *layer, struct reef_queue **out);
void verbs_queue_close(struct reef_layer *layer, struct reef_queue *base);
int verbs_poll(struct reef_layer *layer, struct reef_queue *base);
int verbs_arm(struct reef_layer *layer, struct reef_queue *base);
int verbs_queue_watch(struct verbs_queue *queue, int fd,
		      struct verbs_source *source, uint32_t events, bool add);
/* Before a descriptor is closed: a forked child may keep it open. */
void verbs_queue_unwatch(struct verbs_queue *queue, int fd);
/* The queue's watch on the link's hub, made at the first need; NULL if the hub
 * is its own. */
int verbs_queue_watch_hub(struct verbs_queue *queue, struct verbs_link *link,
			  struct verbs_watch **out);
/* Run the timer while something has a deadline. */
void verbs_queue_timer(struct verbs_queue *queue);

/* --- hub.c --- */

/* A hub of this queue with room for a link; undone by leave. Thread: queue's.
 * -ENOMEM and such: there is no room and no new hub. */
int verbs_hub_join(struct verbs_queue *queue, struct verbs_link *link);
void verbs_hub_leave(struct verbs_link *link);
void verbs_hub_unref(struct verbs_hub *hub);
/* Handle what has completed. must: wait for the lock; otherwise the thread that
 * has it may do it for us. Returns how much happened. */
int verbs_hub_poll(struct verbs_hub *hub, struct verbs_queue *polling,
		   bool must);
/* Take the notice that the channel is readable. */
int verbs_hub_notice(struct verbs_hub *hub, struct verbs_queue *polling);
int verbs_hub_arm(struct verbs_hub *hub);
/* Take a link off the hub's lists of what is to be done. Locked. */
void verbs_hub_unlist(struct verbs_link *link);
/* Destroy broken links' queue pairs and end their batches. Locked. */
void verbs_hub_settle(struct verbs_hub *hub, struct verbs_queue *polling);

/* --- pair.c --- */

int verbs_pair_create(struct verbs_link *link, const struct reef_address *local,
		      struct reef_wire_queue_pair *own);
/* Connect the queue pair to the peer's: ready to receive and to send. */
int verbs_pair_connect(struct verbs_link *link,
		       const struct reef_wire_queue_pair *peer);
/* After either of these nothing more happens through it. What had completed
 * before can be polled between the two. No pair is fine. */
void verbs_pair_stop(struct verbs_link *link);
void verbs_pair_destroy(struct verbs_link *link);
void verbs_pair_free(struct verbs_link *link);

/* --- send.c; all locked but post --- */

int verbs_post(struct reef_layer *layer, struct reef_queue *base,
	       struct reef_batch *batch);
void verbs_send_pump(struct verbs_link *link);
void verbs_send_hungry(struct verbs_link *link);
void verbs_send_completed(struct verbs_queue *polling, struct verbs_slot *slot,
			  enum ibv_wc_status status);
/* End every batch that is left. The queue pair is destroyed. */
void verbs_send_fail(struct verbs_link *link, struct verbs_queue *polling);

/* --- receive.c; all locked --- */

int verbs_receive_start(struct verbs_link *link);
void verbs_receive_completed(struct verbs_queue *polling,
			     struct verbs_receive *receive,
			     const struct ibv_wc *completion);
/* Hand on what has arrived, as far as the inbox takes it; the last of a link
 * that drains ends it. Returns how much. */
int verbs_receive_deliver(struct verbs_link *link, struct verbs_queue *polling);
/* Tell the peer of its new credits. */
void verbs_receive_credit(struct verbs_link *link);
/* The peer has asked for them. */
void verbs_receive_asked(struct verbs_link *link);
int verbs_credits_add(struct verbs_link *link, uint32_t count);

/* --- channel.c --- */

/* A link that opens; timeout_ns is for all of that. listener: NULL where it
 * connects. Takes over fd, unless there is no memory (NULL). Thread: queue's.
 */
struct verbs_link *verbs_link_create(struct verbs_queue *queue,
				     struct verbs_listener *listener, int fd,
				     uint64_t timeout_ns);
/* The link is open, or will never be: count it as opening no longer. Thread:
 * its queue's. */
void verbs_link_opened(struct verbs_link *link);
/* Mark a link as ending; settle, or its queue, does the rest. Locked. */
void verbs_link_break(struct verbs_link *link, int reason);
/* Close a broken link's channel, and end what is under way with it. Locked. */
void verbs_link_finish(struct verbs_link *link, struct verbs_queue *polling);
/* A draining link's last message is in the inbox, or counts no more: let its
 * queue reap it. Locked. */
void verbs_link_drained(struct verbs_link *link, struct verbs_queue *polling);
/* End an accepted link whose session is not to act any more, nor what it has
 * sent to be heard. Locked. */
void verbs_link_expel(struct verbs_link *link, struct verbs_queue *polling,
		      int reason);
/* End a link now, whatever its phase. Thread: its queue's, no lock. */
void verbs_link_end(struct verbs_link *link, int reason);
/* End and free a link as if the process had died: without a BYE, without
 * `closed`.
 * Thread: its queue's, no lock. */
void verbs_link_drop(struct verbs_link *link);
/* End a link whose queue is about to close, and keep it for disconnect. */
void verbs_link_orphan(struct verbs_link *link);
/* Reap accepted links that have ended. Thread: its queue's, no lock. */
int verbs_queue_reap(struct verbs_queue *queue);
/* Send a frame of the control channel. Locked. A full output or a lost
 * connection breaks the link. */
void verbs_link_send(struct verbs_link *link, uint8_t type, uint64_t tag,
		     const void *payload, size_t size);
/* Be told when the channel can be written to, if there is something. Locked. */
void verbs_link_interest(struct verbs_link *link);
/* Make the queue pair and tell the peer. Locked. */
int verbs_link_pair(struct verbs_link *link);
/* Read and handle what has come. Returns how many frames. Locked. */
int verbs_link_read(struct verbs_link *link, struct verbs_queue *polling);
/* For a queue that waits for an answer on another's link: read the channels of
 * the hub's links that owe one. */
int verbs_link_read_others(struct verbs_hub *hub, struct verbs_queue *polling);

/* --- open.c --- */

int verbs_listen(struct reef_layer *layer, struct reef_queue *base,
		 const char *text, const struct reef_listen_options *options,
		 struct reef_listener **out);
void verbs_unlisten(struct reef_layer *layer, struct reef_listener *base);
int verbs_connect(struct reef_layer *layer, struct reef_queue *base,
		  const char *text, const struct reef_connect_options *options,
		  struct reef_link **out);
void verbs_disconnect(struct reef_layer *layer, struct reef_link *link);
/* Handle a descriptor that is ready. Returns how much happened. */
int verbs_listener_event(struct verbs_listener *listener);
int verbs_link_event(struct verbs_link *link);
/* End a link whose hello, or an attach of it, has taken too long. */
void verbs_link_tick(struct verbs_link *link, uint64_t now_ns);
/* End what a queue has open, as if its process had died; links that it has
 * connected stay, down. */
void verbs_links_close(struct verbs_queue *queue);

/* --- target.c --- */

int verbs_expose(struct reef_layer *layer, struct reef_memory *memory,
		 struct reef_region **out);
int verbs_withdraw(struct reef_layer *layer, struct reef_queue *queue,
		   struct reef_region *base);
int verbs_fence(struct reef_layer *layer, struct reef_queue *queue,
		uint32_t session);
int verbs_end_links(struct reef_layer *layer, struct reef_queue *queue,
		    uint32_t session, uint32_t number);
void verbs_regions_close(struct verbs_fabric *fabric);
/* A session has proven who it is: end its old link, let it in, or refuse. */
int verbs_admit(void *context, struct reef_hello_peer *peer);
void verbs_session_forget(struct verbs_link *link);
/* Frames. Locked by the link's hub. 0, or -REEF_EPROTO. */
int verbs_target_attach(struct verbs_link *link,
			const struct reef_frame *frame);
int verbs_target_detach(struct verbs_link *link,
			const struct reef_frame *frame);
void verbs_target_release(struct verbs_link *link);

/* --- remote.c: the other end of target.c --- */

int verbs_attach(struct reef_layer *layer, struct reef_queue *queue,
		 struct reef_link *base, uint64_t key,
		 struct reef_remote **out);
void verbs_detach(struct reef_layer *layer, struct reef_queue *queue,
		  struct reef_remote *base);
int verbs_remote_attached(struct verbs_link *link, struct verbs_queue *polling,
			  const struct reef_frame *frame);
int verbs_remote_withdrawn(struct verbs_link *link,
			   const struct reef_frame *frame);
/* A batch has ended: give back the keys that waited for it. */
void verbs_remote_ended(struct verbs_link *link);
/* The link is lost: end its attaches under way. */
void verbs_remote_lost(struct verbs_link *link, struct verbs_queue *polling);
void verbs_remote_free(struct verbs_link *link);

#endif
