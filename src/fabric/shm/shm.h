/* shm.h - inside the shm fabric: one machine, memory mapped by both sides.
 *
 * Operations on memory are copies and atomic instructions, done in post on the
 * caller's processor (post.c, near.h). Everything else is rare and goes over a
 * unix socket per link: the hello, attach, withdraw, messages (link_life.c,
 * frames.c). Where short messages are not rare they have a ring (ring.c).
 *
 * (1) Memory is mapped from descriptors the owner passes. A memfd must be
 *     sealed against shrinking and as long as said; nothing is mapped before
 *     that was checked. A file cannot be sealed, so it must be a regular file
 *     that belongs to this user or to root: whoever may cut it short could as
 *     well stop us in other ways.
 *     Who attached by a read key gets a descriptor that can neither be
 *     written nor mapped writable (memory.h, 6).
 * (2) A mapping cannot be revoked, so a node lets in only processes that it may
 *     kill: a fence is SIGKILL through a pidfd, confirmed when the pidfd is
 *     readable (peer.c). Everybody else must use tcp.
 *     A process that passed a descriptor on before it died has left it to
 *     others. That takes one that means harm: a mapping does not follow a
 *     fork, and what was passed to it is closed as soon as it is mapped. What
 *     such a one was allowed is taken from it and from its heirs when the
 *     memory's owner moves what is there into fresh memory (memory.h, 7), as
 *     nodes do after a revocation. A fence does not do that: it takes no right
 *     away, and would hold up everybody else, for each process that dies.
 * (3) Death is the pidfd's word: a forked child can keep a socket open.
 * (4) A client unmaps before it closes its socket; so a node that reads the end
 *     of a socket, or sees the process dead, knows the memory unused. A link
 *     that the node ends by itself is *departing* until then, and counts as a
 *     holder of what it attached.
 * (5) The owner of a region can move a holder's next post off its fast path
 *     through one word that only the owner writes (struct shm_control).
 * (6) Unmapping waits until every post that may have looked at the mapping's
 *     state before it was closed has ended (base/grace.h). Exceptions: detach
 *     and link close, where the caller promises that nothing is under way.
 * (7) A fence inside one process (a node and its client in one program) cannot
 *     kill. There the control word is set to FENCED and a grace awaited: after
 *     it no post is inside that has not read FENCED.
 * (8) Links that are ended by number (F10) kill nobody at once. Such a link is
 *     told to end, as by the next link of its session; what it sent and was not
 *     read is dropped. It is over when its process has unmapped what it had
 *     attached (4), and within this process when the grace (7) is.
 * (9) Nobody is waited for without end. Who was told to let go of memory, by
 *     WITHDRAW or by the end of its link, and has not after silence_ns, is
 *     killed as by a fence, whether it stands still or means harm. So no holder
 *     keeps memory, a control word or a descriptor of its owner for longer, and
 *     a session has one departing link beside the one that it opens. A heir of
 *     a dead process's socket or ring does not keep its link up by sending on.
 *
 * Locks: fabric->lock covers everything that is not marked otherwise, streams
 * included; the data path takes none. It may be held when a queue's own lock is
 * taken, never the other way round, and never when the user is called.
 *
 * Thread: see each function. */
#ifndef REEF_FABRIC_SHM_SHM_H
#define REEF_FABRIC_SHM_SHM_H

#include "fabric/fences.h"
#include "fabric/numbers.h"
#include "fabric/provider.h"
#include "fabric/stream.h"

#include <sys/types.h>

/* Connections that have not finished their hello. */
#define SHM_HALF_OPEN_MAX 1024
/* Those of one process, so that it cannot have more than half of them. */
#define SHM_HALF_OPEN_PEER_MAX 512
/* A queue that only posts looks at a link's socket now and then: when its turn
 * has none of these bits. A look takes three turns of two, so that 4,093 posts
 * lie between two looks, or 13 if something waits for other threads: primes, so
 * that no pattern of links hides one of them. */
#define SHM_LOOK_SELDOM (8192u - 2)
#define SHM_LOOK_OFTEN (32u - 2)

/* The control word of one link: the acceptor writes it, and the connector reads
 * it. */
struct shm_control {
	/* count << 2 | bits; the count goes up with every change. */
	_Alignas(64) _Atomic uint64_t word;
};
#define SHM_CONTROL_FENCED 1u /* stop: -REEF_EFENCED */
#define SHM_CONTROL_ENDED 2u  /* stop: -REEF_ENOLINK */
#define SHM_CONTROL_CHANGE 4u /* 1 in the count: read the socket */
/* The control_seen of a link that is down: no control word is ever this. */
#define SHM_CONTROL_NEVER UINT64_MAX

/* The process at the other end of links; it may be this one. */
struct shm_peer {
	struct shm_peer *next;
	uint32_t refs; /* links to it */
	uint32_t half_open;
	pid_t pid;
	int pidfd; /* -1: the kernel gave none; connected links only */
	bool self;
	bool dead;   /* its end was seen; never false again */
	bool killed; /* by us; its end is still to be seen */
};

struct shm_queue {
	struct reef_queue queue;
	_Alignas(64) struct shm_queue *next; /* in the fabric */
	int timer_fd;
	bool timer_set;
	bool is_armed; /* the next poll leaves descriptors to the sleeper */
	uint32_t ring_polls; /* polls that found messages in a ring */
	_Atomic uint32_t ringed_links;
	pthread_mutex_t ring_lock;
	/* Accepted links that have a ring; both locks are held to change it. */
	struct shm_link *ringed;
	/* Something besides descriptors waits for the next poll. */
	_Atomic bool attention;
	struct shm_link *ended; /* accepted links, until `closed` was called */
};

/* How long the process of a link has had to let go of memory: (9). */
struct shm_patience {
	uint64_t looked_ns; /* when that was counted last; 0: never */
	uint64_t waited_ns;
};

/* What the owner knows of one link that has a region attached. */
struct shm_hold {
	struct shm_hold *next; /* of the link */
	struct shm_region *region;
	uint64_t key;	/* the one of its region that it attached by */
	uint32_t count; /* attaches that were not detached */
	bool told;	/* WITHDRAW was sent */
	struct shm_patience patience;
};

struct shm_region {
	struct reef_region region;
	struct shm_region *next;
	uint32_t holds;
	bool withdrawn;
};

struct shm_remote {
	struct reef_remote remote;
	struct shm_remote *next; /* of the link */
	uint64_t tag;		 /* of its ATTACH */
	uint64_t map_size;
	/* Steps that this side still owes; shm_remotes_settle takes them. */
	bool owes_attach;  /* ATTACH is not sent yet */
	bool owes_unmap;   /* the mapping goes when `grace` is over */
	bool owes_detach;  /* DETACH is not sent yet */
	bool owes_freeing; /* the user has detached it */
	uint64_t grace;
};

struct shm_link {
	struct reef_link link;
	/* Posts look at link.control without the lock. It never changes while
	 * the link is up; accepted links have their own, quiet word. */
	_Alignas(64) struct shm_link *next;
	struct reef_stream *stream; /* NULL: closed */
	struct reef_hello *hello;   /* until welcomed */
	struct shm_peer *peer;
	uint64_t since_ns;	   /* when it was made */
	uint32_t peer_message_max; /* longest message that the peer takes */
	uint32_t interest;	   /* epoll events asked for */
	struct reef_frame held;	   /* a frame that is to be tried again */
	bool has_held;
	bool has_more; /* frames may be buffered that epoll does not know of */
	bool at_end;   /* the peer closed its socket */
	bool is_deaf;  /* the peer sent nonsense: only its end is awaited */
	/* Batches that wait at a SEND, in order: scratch[0] is its index,
	 * scratch[1] 1 if the stream has taken it, but not the kernel. */
	struct reef_batch *pending, **pending_tail;
	uint32_t pending_count;
	uint64_t moved_ns; /* when the last of them was sent */
	/* ring.c. The counts are of messages sent (by the connector) or taken
	 * (by the acceptor) so far. */
	struct shm_ring *ring; /* NULL: none */
	bool ring_is_usable;   /* connected: BELL has come */
	bool wants_ring;
	uint64_t ringed_count, streamed_count;
	struct shm_link *next_ringed;
	/* connected: */
	struct shm_remote *remotes;
	bool unsettled;	    /* some of them owe something */
	uint32_t attaching; /* how many of them have no answer yet */
	uint64_t asked_ns;  /* last answer, or the first ATTACH that waits */
	uint64_t next_tag;
	uint64_t leaving; /* not 0: down; unmap and close after this grace */
	void *control_map;
	/* accepted: */
	struct shm_hold *holds;
	uint32_t slot;	  /* of the control page */
	bool is_accepted; /* also when its listener is gone */
	bool admitted;	  /* counts as a link; session is proven */
	bool fenced;
	bool ending;	/* in queue->ended, or past it */
	bool reporting; /* `closed` is being called */
	bool departing; /* `closed` was called; the peer may have memory */
	int reason;
	uint32_t read_after_death;    /* frames and messages */
	struct shm_patience patience; /* since it was told to end */
	/* A link within this process: posts that were inside when it was fenced
	 * or told to end have left when this grace is over. */
	uint64_t end_grace;
	struct shm_link *next_ended;
	_Atomic uint64_t quiet; /* the control word of accepted links */
};

struct shm_listener {
	struct reef_listener listener;
	struct shm_listener *next;
	int fd;
	uint64_t paused_ns; /* not 0: no descriptors left, tried again later */
};

enum shm_source_kind {
	SHM_NOTHING,
	SHM_LISTENER,
	SHM_LINK,
	SHM_PEER,
	SHM_TIMER
};
struct shm_source {
	enum shm_source_kind kind;
	void *object;
};

struct shm_fabric {
	struct reef_fabric fabric;
	pthread_mutex_t lock;
	struct shm_queue *queues;
	struct shm_listener *listeners;
	struct shm_link *links; /* connected and accepted */
	struct shm_region *regions;
	struct shm_peer *peers;
	uint32_t accepted, half_open;
	/* Some link may need more than its descriptor's events: a hello with a
	 * deadline, a pending SEND, a grace. Read bare by poll. */
	_Atomic bool restless;
	struct reef_fences fences;
	struct reef_numbers numbers;
	/* What each descriptor belongs to. epoll reports the number, not an
	 * address: what one thread has freed cannot be touched by an older
	 * event of another. */
	struct shm_source *sources;
	uint32_t sources_count;
	/* Control words of accepted links. */
	int control_fd;
	struct shm_control *control;
	uint64_t control_size;
	uint8_t *slots_used;
};

static inline struct shm_fabric *shm_of(const struct reef_fabric *fabric)
{
	return (struct shm_fabric *)fabric;
}

/* --- post.c --- */

int shm_post(struct reef_layer *layer, struct reef_queue *queue,
	     struct reef_batch *batch);

/* Do the operations of a batch from `index` on. locked: the caller holds the
 * fabric's lock. 0: all are done, or one failed; statuses are set.  1: the
 * batch waits at a SEND, and is pending.  -EAGAIN: it begins with a SEND and
 * there is no room; nothing happened. */
int shm_run_ops(struct shm_queue *queue, struct reef_batch *batch,
		uint32_t index, bool locked);

/* --- peer.c; all locked --- */

/* Take a reference to the process at the other end of a socket; there is one
 * object per process.  -EPERM: this process may not signal it (accepting only).
 */
int shm_peer_take(struct shm_fabric *shm, int fd, bool accepting,
		  struct shm_peer **out);
void shm_peer_give(struct shm_fabric *shm, struct shm_peer *peer);
/* Let a queue's epoll report the death of a peer. */
int shm_peer_watch(struct shm_queue *queue, struct shm_peer *peer);
bool shm_peer_is_dead(struct shm_peer *peer);
void shm_peer_kill(struct shm_peer *peer);
/* Count on how long a link's peer has had to let go of memory, and kill it if
 * that was silence_ns: (9). Not this process. */
void shm_peer_hurry(struct shm_link *link, struct shm_patience *patience,
		    uint64_t now_ns);

int shm_fence(struct reef_layer *layer, struct reef_queue *queue,
	      uint32_t session);
int shm_end_links(struct reef_layer *layer, struct reef_queue *queue,
		  uint32_t session, uint32_t number);

/* --- control.c; all locked --- */

/* Give an accepted link a control word.  -EBUSY: none is left. */
int shm_control_take(struct shm_fabric *shm, struct shm_link *link);
void shm_control_give(struct shm_fabric *shm, struct shm_link *link);
/* Count a change up in a link's control word, and set `bits` in it. */
void shm_control_change(struct shm_fabric *shm, struct shm_link *link,
			uint64_t bits);
/* Tell the connector where its word is. */
int shm_control_send(struct shm_fabric *shm, struct shm_link *link);
/* The connector maps the page that CONTROL has brought. */
int shm_control_receive(struct shm_link *link, const struct reef_frame *frame);
void shm_control_close(struct shm_fabric *shm);

/* Check a descriptor that a peer passed, map `size` bytes of it at offset.
 * -REEF_EPROTO: the memory could be cut short, or is too short already. */
int shm_map_passed(int fd, uint64_t offset, uint64_t size, int protection,
		   void **out);

/* --- region.c --- */

int shm_expose(struct reef_layer *layer, struct reef_memory *memory,
	       struct reef_region **out);
int shm_withdraw(struct reef_layer *layer, struct reef_queue *queue,
		 struct reef_region *region);
int shm_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *link, uint64_t key, struct reef_remote **out);
void shm_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *remote);

/* Locked. The owner handles ATTACH and DETACH, the holder ATTACHED and
 * WITHDRAW; polling as in provider.h.  -EAGAIN: try this frame again later. */
int shm_on_attach(struct shm_link *link, const struct reef_frame *frame);
int shm_on_detach(struct shm_link *link, const struct reef_frame *frame);
int shm_on_attached(struct shm_queue *polling, struct shm_link *link,
		    const struct reef_frame *frame);
int shm_on_withdraw(struct shm_link *link, const struct reef_frame *frame);
/* Locked: take the steps that a link's remotes owe, as far as possible now. */
void shm_remotes_settle(struct shm_link *link);
/* Locked: true if a remote waits for a grace. Nothing wakes a sleeper at the
 * end of one. */
bool shm_remotes_await_grace(const struct shm_link *link);
/* Locked: forget all that the link's peer has attached. */
void shm_holds_drop(struct shm_link *link);
/* Locked: let posts on the remote fail with `state`. */
void shm_remote_close(struct shm_remote *remote, int state);
/* Locked: unmap all remotes of a link, without a grace; free does that, and
 * frees them. */
void shm_remotes_unmap(struct shm_link *link);
void shm_remotes_free(struct shm_link *link);

/* --- link_life.c --- */

int shm_listen(struct reef_layer *layer, struct reef_queue *queue,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out);
void shm_unlisten(struct reef_layer *layer, struct reef_listener *listener);
int shm_connect(struct reef_layer *layer, struct reef_queue *queue,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out);
void shm_disconnect(struct reef_layer *layer, struct reef_link *link);

/* Locked: accept the connections that wait at a listener. */
void shm_accept(struct shm_queue *queue, struct shm_listener *listener);
/* Locked: end a link. gone: its process is dead, or has closed its socket.
 * Accepted links then wait in queue->ended. */
void shm_link_end(struct shm_queue *polling, struct shm_link *link, int reason,
		  bool gone);
/* Locked: the peer's process is dead. What it had sent is read first (F1), so
 * the link may end later; its holds are dropped at once. */
void shm_link_died(struct shm_queue *polling, struct shm_link *link);
/* Not locked: call `closed` for the ended links of this queue. */
int shm_links_report(struct shm_queue *queue);
/* Locked: take a link out of the fabric and its queue, and free it. */
void shm_link_free(struct shm_link *link);
/* Locked: unmap what a connected link that is down has mapped, then close its
 * socket. */
void shm_link_leave(struct shm_link *link);
/* Locked: do for all links what no descriptor announces: deadlines, graces that
 * are over, frames that were held. Returns how much happened. */
int shm_links_tend(struct shm_queue *polling);
/* Locked: true if a link or a remote waits for a grace. */
bool shm_links_await_grace(const struct shm_fabric *shm);

/* --- frames.c --- */

/* Locked: handle the frames that a link's socket has, and write what waits for
 * it. Returns how much happened. */
int shm_link_serve(struct shm_queue *polling, struct shm_link *link);
/* Locked: let epoll report what the link waits for now. */
void shm_link_interest(struct shm_link *link);
/* True if the peer has closed its socket, even if there is more to read. */
bool shm_link_has_hung_up(const struct shm_link *link);
/* Send a frame whose payload is a key. */
int shm_send_key(struct shm_link *link, uint8_t type, uint64_t tag,
		 uint64_t key);

/* --- ring.c; locked --- */

#define SHM_RING_MESSAGE_MAX 120 /* bytes */

/* The connector asks for a ring (RING), and uses it once BELL has come. */
void shm_ring_ask(struct shm_link *link);
/* Either side handles BELL. */
int shm_ring_on_bell(struct shm_link *link, const struct reef_frame *frame);
/* Send a message through the ring; only while nothing waits for the socket.
 * False: the socket has to take it. */
bool shm_ring_send(struct shm_link *link, const void *bytes, uint32_t length);
/* The acceptor handles RING.  -EAGAIN: try this frame again later. */
int shm_ring_on_ask(struct shm_queue *polling, struct shm_link *link,
		    const struct reef_frame *frame);
/* Take the messages that a ring has, and return how many. Negative: the link
 * must end. */
int shm_ring_take(struct shm_queue *polling, struct shm_link *link);
/* Take the messages of the ring that were sent before one that came through the
 * socket.  -EAGAIN: there is no room for them. */
int shm_ring_take_before(struct shm_queue *polling, struct shm_link *link,
			 uint64_t ringed);
bool shm_ring_is_empty(const struct shm_link *link);
/* Take what the ring of a link has that is about to end. True: the end has to
 * wait, as there is more to take. */
bool shm_ring_delays_end(struct shm_queue *polling, struct shm_link *link,
			 int *count);
/* Take what the rings of all links of a queue have; returns how much. */
int shm_rings_poll(struct shm_queue *queue);
/* Not locked. True if some ring of the queue has a message. */
bool shm_rings_have_any(struct shm_queue *queue);
void shm_rings_arm(struct shm_queue *queue); /* not locked */
void shm_ring_leave(struct shm_link *link);

/* --- shm.c; locked --- */

/* Remember what a descriptor is, and watch it in a queue's epoll. */
int shm_source_add(struct shm_queue *queue, int fd, uint32_t events,
		   enum shm_source_kind kind, void *object);
void shm_source_remove(struct shm_fabric *shm, int fd);

#endif
