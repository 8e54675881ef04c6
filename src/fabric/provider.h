/* provider.h - what a fabric (or a hook around one) implements.
 *
 * The calls of fabric.h are in fabric.c: they check, wait and dispatch. A
 * provider never blocks and never calls the user: it starts things, and tells
 * of their end with the reef_*_ended functions below, from its post or poll.
 *
 * A fabric is a stack of layers; each op gets its own layer first and calls
 * layer->next to go down. The provider is the lowest. A member that a hook
 * leaves out goes straight down; one that a provider leaves out does what its
 * comment says. Objects are made by the provider, which embeds the structs
 * below as the first member of its own; hooks see the same objects.
 *
 * Thread: post, poll, arm, connect, attach, detach, listen: the queue's. The
 * others: any. A batch may name a link that another queue opened, so what a
 * link holds is locked by its provider. */
#ifndef REEF_FABRIC_PROVIDER_H
#define REEF_FABRIC_PROVIDER_H

#include "base/fiber/sched.h"
#include "base/grace.h"
#include "base/log.h"
#include "base/spin.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#define reef_container(pointer, type, member)                                  \
	((type *)((char *)(pointer)-offsetof(type, member)))

struct reef_layer;

struct reef_fabric_ops {
	const char *name;
	/* Close the fabric and free it; queues are closed. Required. */
	void (*close)(struct reef_layer *layer);
	/* Make a queue (fills fd, or leaves -1 where nothing can be waited on)
	 * and free it. Its listeners end with it, and so do its links; those
	 * that were connected stay, down, until disconnect. Required. */
	int (*queue_open)(struct reef_layer *layer, struct reef_queue **out);
	void (*queue_close)(struct reef_layer *layer, struct reef_queue *queue);
	/* As reef_post, without the checks that reef_batch_check makes, which
	 * the lowest layer calls. Sets done when it returns 1. Required. */
	int (*post)(struct reef_layer *layer, struct reef_queue *queue,
		    struct reef_batch *batch);
	/* Make progress, and return how much happened. Required. */
	int (*poll)(struct reef_layer *layer, struct reef_queue *queue);
	/* As reef_queue_arm; absent: 0. A queue without a descriptor is to be
	 * polled soon: hooks ask for that when they ended something by
	 * themselves, and so does reef_queue_wake. */
	int (*arm)(struct reef_layer *layer, struct reef_queue *queue);
	/* Start listening. Required. unlisten ends the listener's links too,
	 * without calling closed. */
	int (*listen)(struct reef_layer *layer, struct reef_queue *queue,
		      const char *address,
		      const struct reef_listen_options *options,
		      struct reef_listener **out);
	void (*unlisten)(struct reef_layer *layer,
			 struct reef_listener *listener);
	/* Start connecting; ends with reef_link_opened or reef_link_ended.
	 * Required. */
	int (*connect)(struct reef_layer *layer, struct reef_queue *queue,
		       const char *address,
		       const struct reef_connect_options *options,
		       struct reef_link **out);
	/* End a link from this side, also one that is down, or still
	 * OPENING; then free it, with its remotes. Required. */
	void (*disconnect)(struct reef_layer *layer, struct reef_link *link);
	/* Take a connected link down, as if its peer were lost; it stays until
	 * disconnect. Optional: what is under way waits for silence_ns. */
	void (*sever)(struct reef_layer *layer, struct reef_link *link);
	/* Expose memory; fills the region. Required. */
	int (*expose)(struct reef_layer *layer, struct reef_memory *memory,
		      struct reef_region **out);
	/* Start to take a key back, or go on; 0: nobody holds it any more and
	 * the region is freed.  -EAGAIN: not yet, ask again after a poll.
	 * Required. */
	int (*withdraw)(struct reef_layer *layer, struct reef_queue *queue,
			struct reef_region *region);
	/* Start to attach; ends with reef_attach_ended. Required. */
	int (*attach)(struct reef_layer *layer, struct reef_queue *queue,
		      struct reef_link *link, uint64_t key,
		      struct reef_remote **out);
	/* Detach a remote, also one that is still attaching: then the end of
	 * the attach is not told. Required. */
	void (*detach)(struct reef_layer *layer, struct reef_queue *queue,
		       struct reef_remote *remote);
	/* Register memory of the caller, and forget it. Absent: buffers make no
	 * difference. */
	int (*buffer_register)(struct reef_layer *layer, void *base,
			       size_t size, struct reef_buffer **out);
	void (*buffer_unregister)(struct reef_layer *layer,
				  struct reef_buffer *buffer);
	/* Start to fence a session, or go on. 0: confirmed.  -EAGAIN: not yet,
	 * ask again after a poll. Required. */
	int (*fence)(struct reef_layer *layer, struct reef_queue *queue,
		     uint32_t session);
	/* Start to end a session's links up to a number (F10), or go on. From
	 * the first call on their hellos are refused. Returns as fence.
	 * Required. */
	int (*end_links)(struct reef_layer *layer, struct reef_queue *queue,
			 uint32_t session, uint32_t number);
};

struct reef_layer {
	struct reef_fabric_ops ops; /* absent members filled in */
	struct reef_layer *next;    /* towards the provider; NULL there */
	struct reef_fabric *fabric;
};

struct reef_fabric {
	struct reef_layer *top;
	struct reef_layer provider;
	struct reef_fabric_options options; /* defaults filled in */
	const char *kind;
	char description[128];
	uint64_t domain;
	uint32_t capabilities;
	uint32_t fork_generation; /* reef_fork_generation() when opened */
};

struct reef_queue {
	struct reef_fabric *fabric;
	/* For near.h. A provider with REEF_CAP_NEAR adds it (grace.h), and sets
	 * its mask so that an operation is posted now and then. */
	struct reef_turn turn;
	struct reef_sched *sched;
	struct reef_group *group; /* that opened it; NULL: no fiber did */
	struct reef_poller poller;
	int fd; /* readable when armed and something happened; -1 */
	/* Batches that ended, until reef_poll reports them. */
	struct reef_batch *ended, **ended_tail;
	/* What other threads' polls brought for this queue. */
	pthread_mutex_t lock;
	struct reef_batch *foreign_ended;	  /* locked */
	struct reef_message *inbox, **inbox_tail; /* locked */
	_Atomic uint32_t inbox_count;		  /* written locked */
	_Atomic uint32_t foreign;		  /* something is there */
	int wake_fd;		  /* eventfd that fd must cover; -1: none */
	_Atomic uint64_t rung;	  /* how often wake_fd was, or is about to be */
	uint64_t drained;	  /* of these, by the owner */
	_Atomic uint32_t armed;	  /* its owner is about to sleep on fd */
	struct reef_spin spin;	  /* of threads that wait in it */
	uint32_t events;	  /* told since the last reef_poll */
	uint64_t progress;	  /* polls that did something */
	struct reef_link *opened; /* accepted, until `opened` was called */
	struct reef_link **opened_tail;
	struct reef_link *links; /* connected, not closed */
	struct reef_waiter *waiters;
	struct reef_user *users;
};

enum reef_link_state { REEF_LINK_OPENING, REEF_LINK_UP, REEF_LINK_DOWN };

struct reef_link {
	struct reef_fabric *fabric;
	struct reef_queue *queue;	/* its messages and events go there */
	struct reef_listener *listener; /* NULL: connected from here */
	_Atomic int state;		/* enum reef_link_state */
	_Atomic int reason;		/* once down: negative */
	/* near.h: while the two differ, the owner wants to be heard. */
	const _Atomic uint64_t *control;
	_Atomic uint64_t control_seen;
	uint32_t session, number;
	void *user;
	struct reef_link *next_opened;			/* in queue->opened */
	struct reef_link *next_of_queue, **at_of_queue; /* in queue->links */
	bool is_orphan;	  /* its queue was closed */
	uint32_t process; /* of the peer, as numbered here; 0: not known */
	char identity[REEF_IDENTITY_MAX + 1];
	char host[REEF_HOST_MAX + 1]; /* connected: this end's; may be "" */
};

struct reef_listener {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_listen_options options;
	char address[192]; /* with the real port */
};

struct reef_region {
	struct reef_fabric *fabric;
	struct reef_memory *memory;
	uint64_t key, read_key; /* not 0, and not the same */
};

struct reef_remote {
	struct reef_link *link;
	uint8_t *base; /* shm: the mapping */
	uint64_t size;
	uint64_t key;
	bool durable;
	bool read_only; /* only READ; the target checks it, too */
	/* near.h: its size, in whole words, while it may be read, and written,
	 * in place; or 0. */
	_Atomic uint64_t limit, write_limit;
	_Atomic int state; /* 1: attaching; 0: usable; negative: why not */
};

struct reef_buffer {
	struct reef_fabric *fabric;
	uint8_t *base;
	size_t size;
};

/* --- for providers, from fabric.c --- */

/* Fill in a layer's absent members and put it on top. Before the first queue
 * is opened. The layer stays the caller's until the fabric is closed, when its
 * close is called. */
void reef_fabric_push(struct reef_fabric *fabric, struct reef_layer *layer);

/* Prepare a queue that a provider's queue_open has allocated, zeroed; with
 * wake, also make wake_fd, which the provider's fd has to cover
 * (level-triggered, for reading; the core drains it). fini frees what is in
 * it.  -errno. */
int reef_queue_init(struct reef_queue *queue, struct reef_fabric *fabric,
		    bool wake);
void reef_queue_fini(struct reef_queue *queue);

/* What F8 asks of this library before anything happens; also link state and
 * limits. 0, or the code that reef_post is to return. */
int reef_batch_check(const struct reef_queue *queue,
		     const struct reef_batch *batch);

/* Set batch->status and the statuses of its ops when op `index` failed:
 * earlier ops keep theirs, later ones get -REEF_ENOTDONE. */
void reef_batch_fail(struct reef_batch *batch, uint32_t index, int status);

/* Set the status of a batch and all its ops (a lost link: -REEF_EINDOUBT). */
void reef_batch_fail_all(struct reef_batch *batch, int status);

/* True if that is one of the region's keys. */
static inline bool reef_region_has_key(const struct reef_region *region,
				       uint64_t key)
{
	return region->key == key || region->read_key == key;
}

/* True if who has this key of the region may only READ. */
static inline bool reef_region_only_reads(const struct reef_region *region,
					  uint64_t key)
{
	return region->memory->read_only || region->read_key == key;
}

/* The flags of a region as ATTACHED carries them (wire/control.h) to who has
 * this key of it, and a remote that takes them over. */
uint32_t reef_region_wire_flags(const struct reef_region *region, uint64_t key);
void reef_remote_take_flags(struct reef_remote *remote, uint32_t flags);

/* Say whose link this is: the session that it connects as, or that the peer has
 * proven to be, and its number. Before the link is UP. */
void reef_link_set_owner(struct reef_link *link, uint32_t session,
			 uint32_t number, const char *identity);

/* --- what providers tell ---
 *
 * polling: the queue whose thread this is. Who tells of a link or a remote of
 * another queue holds a lock that disconnect, detach and queue_close take, too,
 * so that it does not go away meanwhile; batches and messages need no such
 * care. */

/* A batch that was under way has ended; statuses are set. */
void reef_batch_ended(struct reef_queue *polling, struct reef_batch *batch);

/* A message has arrived. -ENOSPC: the inbox is full; stop reading that link. */
int reef_message_arrived(struct reef_queue *polling, struct reef_link *link,
			 const void *bytes, uint32_t length);

/* A link goes from OPENING to UP. For accepted links the end of reef_poll calls
 * `opened`, so that the provider holds no lock then. */
void reef_link_opened(struct reef_queue *polling, struct reef_link *link);
/* A link goes DOWN; the provider has ended its batches. For accepted links
 * `closed` is called right here, so hold no lock of another link; then the
 * provider frees the link. */
void reef_link_ended(struct reef_queue *polling, struct reef_link *link,
		     int reason);
/* A link goes without `closed`: take it out of messages, which outlive it, and
 * from callers that would go on with it after a poll. reef_link_ended does this
 * itself. */
void reef_forget_link(struct reef_queue *queue, const struct reef_link *link);

/* An attach has ended. state: 0, or why it failed. */
void reef_attach_ended(struct reef_queue *polling, struct reef_remote *remote,
		       int state);

/* A count that goes up by one in every forked child. */
extern uint32_t reef_forks;
static inline uint32_t reef_fork_generation(void)
{
	return reef_forks;
}

/* True if `session` is the generation of its slot that `fenced` is, or an older
 * one (serial numbers). */
static inline bool reef_session_covers(uint32_t fenced, uint32_t session)
{
	return (fenced >> 16) == (session >> 16) &&
	       (int16_t)((uint16_t)fenced - (uint16_t)session) >= 0;
}

/* Check one operation of a batch on `link` (F8): 0, or what reef_post returns.
 * Inline, so that shm can check and prefetch in one pass. */
static inline int reef_op_check(const struct reef_fabric *fabric,
				const struct reef_link *link,
				const struct reef_op *op)
{
	const struct reef_remote *remote = op->remote;
	const struct reef_buffer *buffer = op->buffer;
	uint64_t length = op->length;
	int state;

	if (op->flags > REEF_ORDERED || op->reserved)
		return -EINVAL;
	if (op->kind == REEF_SEND) {
		if (length > fabric->options.message_max)
			return -EMSGSIZE;
	} else {
		if (!remote || remote->link != link)
			return -EINVAL;
		state = atomic_load_explicit(&remote->state,
					     memory_order_relaxed);
		if (state)
			return state < 0 ? state : -EINVAL;
		if (op->kind == REEF_CAS || op->kind == REEF_FAA) {
			if (op->offset & 7)
				return -EINVAL;
			length = 8;
		} else if (length > fabric->options.length_max) {
			return -EMSGSIZE;
		}
		if (op->offset > remote->size ||
		    length > remote->size - op->offset)
			return -ERANGE;
		if (remote->read_only && op->kind > REEF_READ &&
		    op->kind <= REEF_FLUSH)
			return -EACCES;
	}
	switch (op->kind) {
	case REEF_READ:
	case REEF_WRITE:
	case REEF_SEND:
		if (length && !op->local)
			return -EINVAL;
		if (buffer && (buffer->fabric != fabric ||
			       (uint8_t *)op->local < buffer->base ||
			       length > buffer->size ||
			       (uint8_t *)op->local >
				       buffer->base + buffer->size - length))
			return -EINVAL;
		return 0;
	case REEF_CAS:
	case REEF_FAA:
		return 0;
	case REEF_FLUSH:
		if (!(fabric->capabilities & REEF_CAP_FLUSH))
			return -REEF_ENOCAP;
		return remote->durable ? 0 : -REEF_ENOTDURABLE;
	default:
		return -EINVAL;
	}
}

/* Check what reef_batch_check does besides the ops: fork, link, count. */
static inline int reef_batch_check_link(const struct reef_queue *queue,
					const struct reef_batch *batch)
{
	const struct reef_fabric *fabric = queue->fabric;
	const struct reef_link *link = batch->link;

	if (__builtin_expect(fabric->fork_generation != reef_fork_generation(),
			     0))
		return -REEF_EFORKED;
	if (!link || link->fabric != fabric || !batch->count || !batch->ops)
		return -EINVAL;
	if (batch->count > fabric->options.ops_max)
		return -EMSGSIZE;
	if (__builtin_expect(
		    atomic_load_explicit(&link->state, memory_order_acquire) !=
			    REEF_LINK_UP,
		    0))
		return reef_link_status(link);
	return 0;
}

/* The providers. Each fills fabric->provider and the fields after it; options
 * come with the defaults filled in. */
int reef_shm_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out);
int reef_tcp_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out);
int reef_verbs_open(const struct reef_fabric_options *options,
		    struct reef_fabric **out);
int reef_sim_open(const struct reef_fabric_options *options,
		  struct reef_fabric **out);

/* The simulator is no part of the library: reef_sim_create tells the fabric
 * where it is. Until then "sim" is not a kind. Thread: any. */
void reef_fabric_set_sim(int (*open)(const struct reef_fabric_options *options,
				     struct reef_fabric **out));

#endif
