/* fabric.h - one-sided operations on other machines' memory.
 *
 * This is the contract between everything above and the four fabrics below:
 * shm, tcp, verbs, sim. tests/conform holds each of them to it.
 *
 * F1  Operations: READ, WRITE, CAS, FAA, FLUSH on remote memory under a key,
 *     and SEND, a message to the peer of a link. A batch is posted at once: one
 *     doorbell, one system call, one frame. A completed SEND to the accepting
 *     side comes to its inbox even if the sender closes its link or ends right
 *     after; only a fence, a new link of the session or reef_end_links may come
 *     first.
 * F2  Only an aligned 8-byte word is atomic. Anything longer can be torn at any
 *     word, in any order.
 * F3  In a batch: (a) whatever follows a WRITE takes effect after it; (b) a
 *     READ takes effect after every operation before it; (c) a WRITE, CAS, FAA
 *     or SEND may take effect before an earlier READ, CAS or FAA unless flagged
 *     REEF_ORDERED, which costs a round trip. A CAS that does not match stops
 *     nothing. The first operation that fails ends the batch; later ones report
 *     -REEF_ENOTDONE. Between links, batches and queues: no order.
 *     FLUSH takes effect after every operation before it, and before any after.
 * F4  A completed WRITE, CAS or FAA is seen by every operation posted after
 *     that completion, by anyone in the same atomic domain.
 * F5  An operation whose connection is lost may have happened, or may still
 *     happen: -REEF_EINDOUBT; nothing here retries it. It is settled once the
 *     session has a new link to that peer: the peer ends the old one, with all
 *     its unread input, before it accepts the next; or once the peer has ended
 *     the link by its number (F10).
 * F6  Memory has an atomic domain, fixed when it is lent. Once shared, a word
 *     that CAS or FAA may touch is changed only by CAS or FAA in its domain: no
 *     WRITE, no CPU store. Exposing or attaching from another domain is refused
 *     with -REEF_EDOMAIN.
 * F7  Once reef_fence has returned 0, nothing of that session takes effect here
 *     again, and it is not let in again.
 * F8  Every access is checked against key and bounds, and against writing what
 *     may only be read, by this library before it posts (-ERANGE, -EACCES, and
 *     nothing of the batch happens) and by the target. A region has two keys:
 *     who attached by its read key may only read it, whatever the memory is.
 * F9  Completion says nothing about power. FLUSH makes completed WRITEs durable
 *     where the backing can be; elsewhere it fails with -REEF_ENOTDURABLE.
 *
 * F10 The links of a session to a peer may be numbered, each higher than those
 *     before it. A fabric accepts a numbered link only if no number of that
 *     session from this one up was accepted or ended there: a late hello
 *     neither ends a newer link nor revives an old one. Once reef_end_links has
 *     returned 0, nothing that was posted on a link of that session with a
 *     number from 1 up to the one given takes effect here again, and no such
 *     link is accepted again, not even one whose hello was under way. Nothing
 *     else changes: newer links, links without a number, keys, the session.
 *
 * Objects, from the outside in: a *fabric* is a process's end of one network; a
 * *queue* is where one thread posts and polls; a *link* joins a session to a
 * peer; a *region* is memory exposed here, a *remote* a peer's region attached
 * through a link; a *buffer* is registered local memory. Both ends of a link
 * may be in one process, and in one fabric.
 *
 * Blocking calls park inside a fiber; outside they spin for a moment, then
 * sleep. Every posted batch completes: a peer silent for silence_ns counts as
 * lost.
 *
 * Out-parameters are written only on success. Whatever can fail may fail with
 * -ENOMEM, and what opens descriptors with -EMFILE or -ENFILE. In a forked
 * child it returns -REEF_EFORKED, and what closes or frees does nothing there;
 * on a killed simulated host it returns -REEF_EHOSTDEAD.
 *
 * Thread: a fabric and its links, remotes, regions and buffers: any, but nobody
 * may use what another thread closes. A queue, its batches and its messages:
 * owner. */
#ifndef REEF_FABRIC_FABRIC_H
#define REEF_FABRIC_FABRIC_H

#include "fabric/memory.h"

#include <reef/fiber.h>
#include <reef/reef.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reef_fabric;
struct reef_queue;
struct reef_link;
struct reef_listener;
struct reef_region;
struct reef_remote;
struct reef_buffer;

/* --- operations --- */

struct reef_op {
	uint8_t kind;
	uint8_t flags;
	uint16_t reserved;	    /* 0 */
	uint32_t length;	    /* READ, WRITE, SEND, FLUSH: bytes */
	struct reef_remote *remote; /* all but SEND; of the batch's link */
	uint64_t offset;	    /* in the remote; CAS, FAA: of 8 */
	void *local;		    /* READ: to; WRITE, SEND: from */
	struct reef_buffer *buffer; /* that holds local; NULL: staged */
	uint64_t operand;	    /* CAS: new value; FAA: what to add */
	uint64_t compare;	    /* CAS */
	uint64_t result;	    /* out: CAS, FAA: the value before */
	int status;		    /* out: 0, or what went wrong */
};

/* Belongs to the fabric, with its ops and their local bytes, from a successful
 * post until done. Zero what is not named. */
struct reef_batch {
	struct reef_link *link;
	struct reef_op *ops;
	uint32_t count; /* 1 to limits.ops_max */
	int status;	/* out: 0, or the status of the op that failed first */
	bool done;	/* out */
	/* Optional: called by a poll of its queue when done; may post, may free
	 * the batch if nobody waits for it, may not block. */
	void (*on_done)(struct reef_batch *batch);
	void *user;
	/* the fabric's: */
	struct reef_queue *queue;
	struct reef_fiber *fiber;
	struct reef_batch *next;
	uint64_t scratch[4];
};

/* Post a batch. Its link may be one that another queue of the fabric opened,
 * which need not be polled meanwhile.
 * 0: under way; it completes in a later reef_poll.
 * 1: done already, status and done are set; on_done is not called.
 * Anything negative: nothing of it happened.
 * -EINVAL: no operation, a malformed one, or one whose remote is not the link's
 * or whose bytes are not in its buffer.  -ERANGE: outside its remote.
 * -EACCES: anything but READ on memory that may only be read.
 * -EMSGSIZE: over a limit of this side or of the peer.  -EAGAIN: too much under
 * way; poll first.  -REEF_EKEY: the remote was withdrawn.  -REEF_ENOLINK: the
 * link is down.  -REEF_EFENCED: it was fenced.  -REEF_ENOTDURABLE,
 * -REEF_ENOCAP: FLUSH that cannot be. */
int reef_post(struct reef_queue *queue, struct reef_batch *batch);

/* Post and wait until done; waits out -EAGAIN. Returns what post refused with,
 * or batch->status.  -REEF_ENOLINK also: the link was closed meanwhile. */
int reef_run(struct reef_queue *queue, struct reef_batch *batch);

/* Wait for a batch that was posted to this queue. Returns batch->status. */
int reef_wait(struct reef_queue *queue, struct reef_batch *batch);

/* Make progress: completions, arrivals, the target's duties. Returns how much
 * happened; 0: nothing. Never blocks. Whatever waits polls, too. */
int reef_poll(struct reef_queue *queue);

/* For foreign event loops: arm, and if that was 0, poll once more, and if that
 * was 0 the descriptor becomes readable on the next event. Arm over 0:
 * something is there already. sim has no descriptor: -1. */
int reef_queue_fd(const struct reef_queue *queue);
int reef_queue_arm(struct reef_queue *queue);

/* Wait until reef_poll did something. -ETIMEDOUT. */
int reef_queue_wait(struct reef_queue *queue, uint64_t timeout_ns);

/* When a timeout that begins now ends; REEF_FOREVER: never. */
uint64_t reef_deadline_ns(uint64_t timeout_ns);

/* Wait until ready(what), which is asked before anything else and again after
 * whatever happens in this queue; it must not block. For what another thread or
 * fiber brings about: that one sets what ready looks at (an atomic, or under a
 * lock), then wakes the queue.  -ETIMEDOUT: never if ready says yes by then. */
int reef_queue_wait_until(struct reef_queue *queue,
			  bool (*ready)(const void *what), const void *what,
			  uint64_t timeout_ns);

/* The same for several queues of one thread, of which something may happen in
 * any. */
#define REEF_QUEUES_MAX 8
int reef_queues_wait_until(struct reef_queue *const *queues, uint32_t count,
			   bool (*ready)(const void *what), const void *what,
			   uint64_t timeout_ns);

/* Let whoever waits in this queue look again; never blocks. The queue must not
 * be closed before this returns. So if its owner may close it as soon as it has
 * seen what it waits for, set that and wake under a lock that the owner takes
 * before it closes. Thread: any (sim: the only one). */
void reef_queue_wake(struct reef_queue *queue);

/* --- messages --- */

struct reef_message {
	/* The link it came through; NULL: gone when it was received. An
	 * accepted link can be gone after the next poll. */
	struct reef_link *link;
	uint32_t session; /* its sender's, proven */
	uint32_t length;
	struct reef_message *next; /* the fabric's */
	uint8_t bytes[];
};

/* Take the next message that arrived on the links this queue opened or
 * accepted; links stay in order. The caller frees it.
 * timeout_ns 0: neither wait nor poll.  -ETIMEDOUT. */
int reef_receive(struct reef_queue *queue, uint64_t timeout_ns,
		 struct reef_message **out);
void reef_message_free(struct reef_message *message);

/* --- fabrics and queues --- */

enum reef_capability {
	REEF_CAP_FLUSH = 1 << 0,
	REEF_CAP_DATAGRAM = 1 << 1,
	REEF_CAP_UNRELIABLE_WRITE = 1 << 2,
	REEF_CAP_WRITE_IMMEDIATE = 1 << 3,
	REEF_CAP_WINDOWS = 1 << 4, /* verbs: a device's keys are a link's */
	REEF_CAP_ON_CHIP = 1 << 5,
	REEF_CAP_NEAR = 1 << 6, /* attached memory is mapped: near.h */
};

/* Whether what crosses tcp is encrypted (tls.h). AUTO: unless the peer's
 * address is a loopback one. Each side decides for itself, and refuses a peer
 * that decided otherwise: -REEF_ETLS. */
enum reef_tls_use { REEF_TLS_AUTO, REEF_TLS_YES, REEF_TLS_NO };
/* From "auto", "yes" or "no"; NULL means auto.  -EINVAL: another word. */
int reef_tls_use_parse(const char *text, enum reef_tls_use *out);

/* Zero means the default. */
struct reef_fabric_options {
	uint32_t ops_max;      /* operations in a batch; 256 */
	uint32_t length_max;   /* bytes of one operation; 16 MiB */
	uint32_t message_max;  /* bytes of one SEND; 64 KiB */
	uint32_t depth_max;    /* batches under way on a link; 128 */
	uint32_t inbox_max;    /* messages waiting in a queue; 4,096 */
	uint32_t links_max;    /* accepted links; 4,096 */
	uint64_t spin_ns;      /* before sleeping, at most; 20,000 */
	uint64_t silence_ns;   /* after which a peer is lost; 3 s (verbs 1 s) */
	uint64_t answers_max;  /* tcp: bytes of answers that wait for those who
				* do not read them, of all links together;
				* then a link has 16 KiB instead of 256 KiB,
				* and is pressed back; 256 MiB */
	uint32_t need;	       /* capabilities, or -REEF_ENOCAP */
	enum reef_tls_use tls; /* tcp */
	const char
		*device; /* verbs: "rxe0", "rxe0:1", "rxe0:1:3"; NULL: best */
	void *sim_host;	 /* sim: which host this is */
	/* shm: another process is let in, and has been passed nothing yet; and
	 * it has let go of all it was passed, or is dead. Named by its session
	 * and the link's number. An error of let_in refuses it. They are called
	 * inside poll, under a lock, and must not call the fabric. */
	int (*let_in)(void *watcher, uint32_t session, uint32_t number,
		      int pidfd);
	void (*let_go)(void *watcher, uint32_t session, uint32_t number);
	void *watcher;
};

/* Open this process's end. kind: "shm", "tcp", "verbs", "sim"; options may be
 * NULL. Caller owns *out.  -EINVAL: no such kind or a bad option.  -ENOSYS: not
 * in this build.  -ENODEV: no RDMA device.  -REEF_ENOCAP. */
int reef_fabric_open(const char *kind,
		     const struct reef_fabric_options *options,
		     struct reef_fabric **out);

/* Closes what is still open in it, without a word to peers: as if the process
 * had died. Queues must be closed first. In a forked child closing does
 * nothing: the parent's end stays as it is. NULL is fine. */
void reef_fabric_close(struct reef_fabric *fabric);

const char *reef_fabric_kind(const struct reef_fabric *fabric);
/* What is really in use, for people: "verbs rxe0 port 1 gid 1 (10.0.0.1)". */
const char *reef_fabric_description(const struct reef_fabric *fabric);
uint64_t reef_fabric_domain(const struct reef_fabric *fabric);
uint32_t reef_fabric_capabilities(const struct reef_fabric *fabric);
/* The options in force. */
const struct reef_fabric_options *
reef_fabric_limits(const struct reef_fabric *fabric);

/* Make a queue for the calling thread. sched: whose fibers will use it; NULL:
 * the calling fiber's, if any. Caller owns *out. */
int reef_queue_open(struct reef_fabric *fabric, struct reef_sched *sched,
		    struct reef_queue **out);

/* Nothing may be under way in it, and nobody wait. Listeners and accepted links
 * end with it, without `closed`; links that it connected stay, down, until they
 * are closed. NULL is fine. */
void reef_queue_close(struct reef_queue *queue);

/* --- links --- */

#define REEF_KEY_SIZE 32
#define REEF_IDENTITY_MAX                                                      \
	63 /* bytes of an identity's name, on the wire too                     \
	    */

#define REEF_HOST_MAX 64 /* bytes of a host in an address */

struct reef_connect_options {
	uint32_t session;     /* who connects; not 0 */
	uint32_t number;      /* of this link (F10); 0: not numbered */
	const char *identity; /* whose key it proves */
	uint8_t key[REEF_KEY_SIZE];
	uint64_t timeout_ns; /* 0: silence_ns */
	bool short_messages; /* there will be many SENDs of up to 120 bytes */
	void *user;	     /* reef_link_user, from the first message on */
	/* Optional: the link is not wanted any more. Whoever sets it, in a
	 * fiber of the same thread, wakes the queue: -ECANCELED. */
	const bool *is_vain;
};

struct reef_listen_options {
	/* None of these may block, or close the listener or its queue; they
	 * are called by a poll of the queue.
	 * Required: the key that `identity` must prove to act as `session`;
	 * any error refuses it. Asked for again inside TLS, so up to twice for
	 * one that connects, who has proven nothing yet. */
	int (*credential)(void *context, const char *identity, uint32_t session,
			  uint8_t key[REEF_KEY_SIZE]);
	/* Optional: called when `identity` was proven, before its link is let
	 * in; any error refuses it, and is what the peer is told. */
	int (*admit)(void *context, const char *identity);
	/* Optional. After closed returns the link is gone. Each opened has its
	 * closed, unless the listener was closed. reason: why, negative. */
	void (*opened)(void *context, struct reef_link *link);
	void (*closed)(void *context, struct reef_link *link, int reason);
	void *context;
};

/* Accept links. Addresses: "shm:/path" or "shm:@name", "tcp:HOST:PORT",
 * "verbs:HOST:PORT", "sim:HOST/PORT"; port 0 picks one. The listener, its links
 * and their messages belong to this queue. Caller owns *out.
 * -EINVAL: no such address, or no credential.  -EADDRINUSE and such: cannot
 * listen there. */
int reef_listen(struct reef_queue *queue, const char *address,
		const struct reef_listen_options *options,
		struct reef_listener **out);
/* And its links, without `closed`. Thread: the queue's. NULL is fine. */
void reef_listener_close(struct reef_listener *listener);
const char *reef_listener_address(const struct reef_listener *listener);

/* Connect as a session; a session has one link to a peer, and a new one ends
 * the old (F5). Its messages come to this queue. Caller owns *out.
 * -EINVAL: no such address, no session, no identity or too long a one.
 * -ECONNREFUSED and such: nobody there.  -ETIMEDOUT.  -REEF_EAUTH.
 * -REEF_EVERSION.  -REEF_EPROTO: it speaks something else.  -REEF_ETLS: it
 * wants TLS and we do not, or the other way round.  -REEF_EDOMAIN.
 * -REEF_EFENCED.  -ESTALE: its number is too low (F10); never without one.
 * -EBUSY: links_max reached, or (shm) another process has the
 * session's memory mapped, or its old link has an operation under way, or
 * two old links have not been left yet.
 * Whatever `admit` said.  -EPERM: shm, and the peer could not fence us.
 * -REEF_ENOLINK: lost before it was up. */
int reef_connect(struct reef_queue *queue, const char *address,
		 const struct reef_connect_options *options,
		 struct reef_link **out);

/* The same without waiting: the link is OPENING (provider.h) until a poll of
 * its queue brings it up or down. It may be closed meanwhile; no timeout but
 * the provider's own. */
int reef_connect_start(struct reef_queue *queue, const char *address,
		       const struct reef_connect_options *options,
		       struct reef_link **out);

/* End a link and free it with its remotes. Batches under way complete with
 * -REEF_EINDOUBT in a later poll, and whoever attaches gets -REEF_ENOLINK. A
 * link that went down by itself stays, down, until this is called. Connected
 * links only: an accepted one is ended by reef_fence or with its listener.
 * Thread: the queue that opened it. NULL is fine. */
void reef_link_close(struct reef_link *link);

/* Take a link down that leads to a peer which is known to be gone: batches
 * under way complete with -REEF_EINDOUBT in a later poll, and nobody has to
 * wait until the peer was silent for silence_ns. It stays, down, until it is
 * closed. Connected links only; on shm and verbs it does nothing. Thread: the
 * queue that opened it. */
void reef_link_sever(struct reef_link *link);

/* 0: up.  -REEF_ENOLINK, -REEF_EFENCED: why not. */
int reef_link_status(const struct reef_link *link);
/* Of an accepted link, what its peer has proven; of a connected one, what it
 * connected as. The identity is the link's, and ends with it. */
uint32_t reef_link_session(const struct reef_link *link);
uint32_t reef_link_number(const struct reef_link *link); /* 0: none */
const char *reef_link_identity(const struct reef_link *link);
struct reef_fabric *reef_link_fabric(const struct reef_link *link);
/* Of a connected link that is up: this end's host, as it stands in addresses of
 * that fabric, so where its peer could reach it; "": shm has none. */
const char *reef_link_host(const struct reef_link *link);
/* The number of the peer's process, as the kernel tells it to this one; 0: not
 * known. Only shm knows it, and not of a process that is in a pid namespace
 * which this one does not see into. */
uint32_t reef_link_process(const struct reef_link *link);
void reef_link_set_user(struct reef_link *link, void *user);
void *reef_link_user(const struct reef_link *link);

/* --- memory --- */

/* Expose memory (memory.h) under two fresh keys, of which whoever is to attach
 * must be told one: the key, by which it may be read and changed (unless it is
 * read_only), or the read key. Keys are never reused, and but for sim neither
 * tells the other. The memory stays the caller's and must outlive the region.
 * Several fabrics of one domain may expose it at once. -REEF_EDOMAIN.  -EINVAL:
 * no memory; shm needs a descriptor, and for memory that is read_only a memfd:
 * files cannot be sealed. */
int reef_expose(struct reef_fabric *fabric, struct reef_memory *memory,
		struct reef_region **out);
uint64_t reef_region_key(const struct reef_region *region);
uint64_t reef_region_read_key(const struct reef_region *region);

/* Take both keys back: no new attach; holders are told, and stop. What they
 * have under way is done or ends with -REEF_EKEY, what they post is refused
 * with it; nothing is in doubt. It is enough that a holder polls the queue that
 * opened the link, or posts on it: its other queues may be idle, or have
 * operations under way that nobody looks after. 0: nobody can reach it any more
 * and the region is freed.  -ETIMEDOUT: somebody has not acknowledged; call
 * again, or fence them.  -EINVAL: another fabric's. Who has not acknowledged
 * after silence_ns is lost: on shm its process is killed, elsewhere its link
 * ends; so it ends, whatever holders do. On tcp nobody is waited for who has
 * sent a batch halfway; who does not take an answer loses the link after a
 * quarter of silence_ns. */
int reef_withdraw(struct reef_queue *queue, struct reef_region *region,
		  uint64_t timeout_ns);

/* Reach a peer's region. Freed by detach, or with its link.
 * -EINVAL: an accepted link, or another fabric's.  -REEF_EKEY: no such key, or
 * withdrawn.  -REEF_EDOMAIN.  -REEF_ENOLINK.  -REEF_EFENCED.  -REEF_EPROTO:
 * shm, and it could be cut short. */
int reef_attach(struct reef_queue *queue, struct reef_link *link, uint64_t key,
		struct reef_remote **out);
/* Nothing under way may name it. NULL is fine. */
void reef_detach(struct reef_queue *queue, struct reef_remote *remote);
uint64_t reef_remote_size(const struct reef_remote *remote);

/* Register local memory, so that operations within it are not staged.
 * -EINVAL: nothing, or past the end of the address space. */
int reef_buffer_register(struct reef_fabric *fabric, void *base, size_t size,
			 struct reef_buffer **out);
void reef_buffer_unregister(struct reef_buffer *buffer); /* NULL is fine */

/* --- fencing, and ending links --- */

/* End a session here for good (F7): every link of it, and every older
 * generation of its slot (session: slot 16, generation 16). On shm its process
 * is killed, unless it is this one, has closed its links, or never had one.
 * 0: confirmed.  -ETIMEDOUT: not yet; call again.  -EINVAL: session 0. */
int reef_fence(struct reef_queue *queue, uint32_t session, uint64_t timeout_ns);

/* End the links of a session up to a number here, without fencing it (F10).
 * They need not exist, and it may be repeated. On shm a process that has memory
 * mapped through such a link is told to let go of it, and waited for; it is
 * killed only if it has not after silence_ns. One that has closed the link has
 * let go. A message that is in an inbox has arrived, and stays there.
 * 0: confirmed.  -ETIMEDOUT: not yet, call again; hellos are refused already.
 * -EINVAL: session or number 0. */
int reef_end_links(struct reef_queue *queue, uint32_t session, uint32_t number,
		   uint64_t timeout_ns);

#endif
