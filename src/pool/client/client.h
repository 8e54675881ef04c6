/* client.h - a process's membership in a pool: its session and its keeper.
 *
 * The keeper owns the links, renews the lease, receives messages and makes
 * every call; handles (struct reef, one per thread) post one-sided operations
 * on its links from queues of their own, and hand it *jobs* for the rest.
 *
 *   handle's thread                       keeper
 *     enters, looks at `version`            moves `version` when an extent
 *     finds extent -> link, remote          moved, was lost, or a link fell,
 *     posts, waits on its own queue         as the broker's notice told it
 *     another version? takes the            never closes what a handle uses:
 *     new view                              waits until none is inside that
 *                                           could have seen it (grace.c)
 *     job --> (lock, wake)                  does it in a fiber; done --> wake
 *
 * (1) The keeper is a thread with a scheduler of its own, or, where a scheduler
 *     is given (simulation), fibers of it.
 * (2) The lease is renewed every ttl/4, with the table's header and this
 *     session's slot read in the same batch.
 * (3) A broker that is away costs nothing on the data path; the keeper tries
 *     again with a growing pause, for ever. A link to a node that fell is made
 *     anew when somebody needs it, or when something was under way on it; where
 *     that fails the broker has the node end it. Until either is done, the
 *     session holds its epoch, so that what comes late meets no memory that was
 *     reused (keeper/settle.c).
 * (4) An operation that the memory refused because the extent is on the move
 *     (-REEF_EKEY: nothing happened) waits for its new place, and is done
 *     there. One on a node that the broker holds for dead is -REEF_ELOST.
 * (5) Once anything says that the session is fenced, every call does
 *     (-REEF_EFENCED), for good.
 *
 * Thread: create, ref, unref: any. The rest is inside. */
#ifndef REEF_POOL_CLIENT_CLIENT_H
#define REEF_POOL_CLIENT_CLIENT_H

#include "fabric/fabric.h"
#include "wire/kind.h"

#include <reef/reef.h>

struct reef_client;
struct reef_credential;
struct reef_mesh;

struct reef_client_options {
	struct reef_mesh *mesh;	  /* the caller's; outlives the client */
	struct reef_sched *sched; /* simulation: where the keeper runs; NULL: a
				   * thread */
	const char *broker;	  /* addresses of one broker; several places of
				   * it separated by ','  */
	uint64_t broker_domain;	  /* 0: unknown */
	const struct reef_credential *credential; /* copied */
	const char *name;			  /* of the program */
	uint64_t timeout_ns;			  /* to join; 0: 10 s */
	/* How long a call waits for a node and a broker that are both out of
	 * reach; 0: 30 s */
	uint64_t patience_ns;
	const char *inbox_host;	  /* where others reach this process by tcp and
				   * verbs; NULL: as its links tell */
	uint32_t inbox_links_max; /* of a handle to others' inboxes; 0: 256 */
	bool servant;		  /* one of the pool's own: slots are kept for
				   * these, if it is the owner's */
	uint64_t seed;		  /* of its choices; 0: from the kernel */
};

/* Join: opens the session. Caller has one reference.  Errors as reef_open. */
int reef_client_create(const struct reef_client_options *options,
		       struct reef_client **out);
/* As create, without waiting for the join: the first handle does, and has its
 * errors. */
int reef_client_start(const struct reef_client_options *options,
		      struct reef_client **out);
void reef_client_ref(struct reef_client *client);
/* The last reference ends the session, as cleanly as the broker's presence
 * allows. NULL is fine. */
void reef_client_unref(struct reef_client *client);

/* A handle for the calling thread (or host, in simulation); has a reference of
 * its own. Costs no message. reef_close closes it. */
int reef_client_handle(struct reef_client *client, struct reef **out);

/* --- for operators' commands --- */

/* What reef_open opens in this process from now on is a servant of the pool, as
 * in the options. */
void reef_client_set_servant(void);

struct reef_body;
struct reef_answer;
/* Ask the broker something (wire/pool.h, rpc.h) as this session; mutating: as
 * its kind says [m], and then it happens once. The answer (may be NULL) is the
 * caller's to free.  -REEF_ENOLINK: the broker was away for too long; mutating:
 * -REEF_EINDOUBT, if it may have heard of it.  Else: what it said. */
int reef_client_ask(struct reef *reef, uint16_t kind, bool mutating,
		    const struct reef_body *body, struct reef_answer *answer);

/* Serve the pool as its janitor (janitor.c), which only its owner may, until
 * `wait` says so: it waits for a while, and returns what is not 0 to end this.
 * 0, or why the session has ended.  -EPERM: another user. Nothing else is to be
 * done with this client. */
int reef_janitor_run(struct reef *reef, int (*wait)(void *context),
		     void *context);

/* --- for the layers above (sync, index, ...) --- */

/* True if the space belongs to this client's user. The owner of the pool opens
 * those of others, too, where whatever is put can be read by them. */
bool reef_space_is_own(const struct reef_space *space);

/* How many copies the space's memory is to have: 1 or 2. */
uint32_t reef_space_copies(const struct reef_space *space);

/* The broker's time of day, in nanoseconds since 1970: one question to it.
 * Errors as reef_client_ask. */
int reef_pool_time(struct reef *reef, uint64_t *now_ns);

/* How many bytes of the pool a block for `size` bytes takes, with its header
 * and what its class rounds it up to. No operation. */
uint64_t reef_block_footprint(uint64_t size);

/* What a kind of block needs to be recovered. */
struct reef_kind_ops {
	const char *name;
	/* True if a block of this kind is published, or freed, inside the
	 * reef_enter in which it is allocated, but for those that are staged
	 * (reef_block_stage): then is_live is also asked while its session
	 * lives, where memory is short (heap.h, rule 11). */
	bool is_quick;
	/* 1: a block of this kind, whose session is FENCED and did not keep it,
	 * is still part of something.  0: it is not, or only memory that is
	 * lost could name it.  -errno: it cannot be told, now (heap.h, rule 8)
	 * or ever. NULL: it never is. */
	int (*is_live)(struct reef *reef, struct reef_space *space,
		       uint64_t address);
	/* A FENCED session's page, before its blocks are freed: break its
	 * locks, finish or undo its intents. Idempotent. An error that does not
	 * pass ends the page all the same (heap.h, rule 8). NULL: nothing. */
	int (*recover)(struct reef *reef, struct reef_space *space,
		       uint32_t session, uint64_t page, uint64_t size);
};
/* kind: after REEF_BLOCK_PAGE. Before the first open of the process; at most
 * once each. */
void reef_kind_register(uint8_t kind, const struct reef_kind_ops *ops);

/* Names of a restored space, whose values are more than an address: `restore`
 * is asked for each, after all were bound as they were. 0: it is not one of
 * its.  1: it has replaced the value.  Else an error, which ends the restore.
 * Before the first open of the process; one for all. */
void reef_restorer_register(int (*restore)(struct reef_space *space,
					   const char *name, uint64_t value));

/* As reef_alloc, with a kind. */
int reef_alloc_kind(struct reef_space *space, uint8_t kind, uint64_t size,
		    uint64_t *address);

/* Take over the header of a fresh block, which waits to be written: the caller
 * WRITEs it, to the word before the block, in front of the block's first data
 * and where nobody can be told of the block before that WRITE took effect. So
 * several fresh blocks cost no round trip of their own. False: none waits. And
 * give it back, if that WRITE failed. */
bool reef_header_take(struct reef_space *space, uint64_t address,
		      uint64_t *header);
void reef_header_give(struct reef_space *space, uint64_t address);

/* A block of a quick kind is prepared for longer; until it is published, or
 * about to be freed (false).  -ENOMEM. */
int reef_block_stage(struct reef_space *space, uint64_t address, bool staged);

/* This session's page of a space: 4 KiB, zeroed when first asked for, where
 * recovery finds it. Shared by the handles of the process.  Errors as alloc. */
int reef_session_page(struct reef_space *space, uint64_t *address);

enum reef_session_view {
	REEF_VIEW_ALIVE = 1,
	REEF_VIEW_EXPIRED,
	REEF_VIEW_ENDED, /* FENCED or later: its locks may be broken */
};
/* What the broker's table says of a session: one READ. ENDED is said when this
 * client also knows which memory was LOST until then (a refresh of its view,
 * where a node has died since the last one): there the session may still write.
 * -REEF_ENOLINK: the broker is away, so nobody knows. */
int reef_session_check(struct reef *reef, uint32_t session,
		       enum reef_session_view *out);

/* How long this session lasts without a renewal. Whoever waits for another
 * session's end checks it a few times in that time. Thread: any. */
uint64_t reef_session_ttl(const struct reef *reef);

/* True if the view says that the memory at that address is lost, for good: its
 * node is held for dead, or it was taken back. A session that hears from the
 * broker learns so within a quarter of its TTL. No operation. */
bool reef_is_lost(const struct reef *reef, uint64_t address);

/* How many of `length` bytes, from an address on, its extent has; `length`
 * where the view has no such extent. No operation. */
uint32_t reef_clip_length(const struct reef *reef, uint64_t address,
			  uint32_t length);

/* True if the caller may read that address over and over, for a moment: where
 * an operation ends as it is posted, and so costs nobody else anything; but not
 * in a fiber, which would keep the others from running. A hint: where nothing
 * was done since the view changed, it is false. */
bool reef_is_near(const struct reef *reef, uint64_t address);

/* Short addresses: 38 bits that name a block of 64 bytes or more within its
 * space, for words that have to hold more than an address. 0 names nothing.
 * -ERANGE: the block is not aligned so, or the space has had too many extents;
 * -EFAULT: not of this space. Seldom asks the broker. */
int reef_short_address(struct reef_space *space, uint64_t address,
		       uint64_t *out);
int reef_long_address(struct reef_space *space, uint64_t short_address,
		      uint64_t *out);

/* R8: the epoch in which the calling fiber (or thread) is inside reef_enter.
 * Of two calls that give the same, by whichever fibers: nothing that could be
 * reached at the first, and was freed with REEF_FREE_LATER since, is reused
 * before the second's fiber leaves. Fibers that are inside at the same time may
 * see different ones. */
uint64_t reef_epoch(const struct reef *reef);

/* R8: wait until everybody is gone who is inside reef_enter now, and so
 * nobody's epoch is one that anybody could have now. Epochs pass quickly
 * meanwhile.  -EDEADLK: the caller is itself inside.  -ETIMEDOUT: somebody has
 * not left for three leases and two seconds. Else: errors of access. */
int reef_epoch_end(struct reef *reef);

/* R8: memory is short. Let epochs pass quickly, and wait until something comes
 * back that this handle freed with REEF_FREE_LATER, or that others freed, have
 * to spare, or left when they died. 0: something did, perhaps not enough:
 * allocate again, and ask again.  -ENOSPC: nothing will.  -ETIMEDOUT: somebody
 * is inside reef_enter for long, or has stopped.  -EDEADLK: the caller is
 * itself inside. Else: errors of access.
 *
 * (1) Nothing will come only if that is so after everything that was freed, or
 *     left by the dead, until now could be used again, and the broker was asked
 *     once more after that: who has stood still believes nothing older. */
int reef_reclaim(struct reef_space *space, uint64_t timeout_ns);

/* How long a caller has waited for memory; begins with zeros. */
struct reef_patience {
	uint64_t spent_ns, seen_ns;
};
/* An allocation found no room: wait as above, for a while at a time, and in all
 * as long as it may take until memory comes back: a session that died holds it
 * until its lease is over and it was recovered; one that lives and holds on is
 * ended a little later, and behind it there may be another. Time in which the
 * process stood still does not count. 0: allocate again.  -ENOSPC: there is
 * none. Else: errors of access; it has not been found out. reef_alloc does so
 * by itself, outside reef_enter. */
int reef_await_memory(struct reef_space *space, struct reef_patience *patience);
/* Give back what this handle's heap does not need, if it is time for that. For
 * threads that may be idle for long; others do so as they free. Not inside
 * reef_enter. */
void reef_tend(struct reef_space *space);

struct reef *reef_space_handle(struct reef_space *space);
uint32_t reef_space_id(const struct reef_space *space);

/* --- do copies say the same? (compare.c) --- */

/* Words of an extent, in one stretch of 64 KiB, of which the copies differ. */
struct reef_copies_part {
	uint32_t extent, node, twin_node; /* what is read is node's */
	uint64_t words;
	uint64_t first, last; /* offsets of the first and the last of them */
};

struct reef_copies_report {
	uint32_t extents;
	uint32_t alone;	 /* of them, those with one copy now */
	uint32_t unread; /* those that could not be read to the end */
	uint64_t bytes;	 /* that were compared */
	uint64_t words;	 /* that differ */
	uint64_t in_use; /* that changed at each look */
};

/* READ both copies of all memory of a space, and call `differs` for each part
 * that is not the same. Words that are being changed differ for a moment: only
 * those count that are the same, and differ, in two looks with a pause in
 * between. A word that differs need not be damage: a client that died inside a
 * call leaves some, which nobody can read or the next one to change them mends,
 * and so do two that write the same bytes at once. 0, however many differ.
 * -EACCES.  -REEF_EFENCED.  -ENOMEM. */
int reef_space_compare(struct reef_space *space,
		       void (*differs)(void *context,
				       const struct reef_copies_part *part),
		       void *context, struct reef_copies_report *report);

#endif
