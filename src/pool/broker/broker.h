/* broker.h - the one that knows: nodes, spaces, extents, sessions, names.
 *
 * (1) It is never on the data path: while it is away, memory works, and no
 *     lease is lost. Only what asks it (opening, growing, names) waits.
 * (2) Whatever it answers is durable, and confirmed by nodes that follow no
 *     other broker (confirm.c): check, append, apply, wait, answer; and what it
 *     tells nodes or publishes in the table is so before that.
 * (3) Each start has a higher broker epoch, journaled before it serves. A node
 *     or client that has seen a higher one refuses it. A broker that learns
 *     that another was chosen stops; one that too few nodes follow changes
 *     nothing, and answers its clients that they are in doubt
 *     (-REEF_EINDOUBT): they ask at the next place that they know.
 * (4) A session is EXPIRED after four unchanged samples of its renewal word,
 *     none more than two periods after the one before, each taken after
 *     pending input was handled; after a start everybody counts as just
 *     renewed, but for those whose process has certainly ended meanwhile
 *     (base/system/process.h): they end at once. It is FENCED, journaled and
 * then published, once every node that it was told of (nodes.c) has confirmed
 *     its fence or is DEAD.
 * (5) A session reaches only spaces that it owns or showed a token for; of
 *     others it learns neither extents nor keys nor names.
 * (6) It alone holds the pool's key (keys.h, 6). Only nodes that were added
 *     come in, each with its own key and as that node; a node that was removed
 *     does not.
 * (7) A request changes all that it says or nothing, and a repeated one (wire
 *     pool.h, rule 2) nothing more.
 *
 * A library that runs in fibers of the scheduler it is given.
 *
 * Thread: owner, which is the scheduler's thread. */
#ifndef REEF_POOL_BROKER_BROKER_H
#define REEF_POOL_BROKER_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/states.h"

struct reef_broker;
struct reef_key;
struct reef_mesh;
struct reef_node_key;
struct reef_sched;
struct reef_store;

/* Zero means the default, or what the journal says where it has a setting. */
struct reef_broker_options {
	struct reef_mesh *mesh;	    /* the caller's; outlives the broker */
	struct reef_sched *sched;   /* NULL: the calling fiber's */
	struct reef_store *store;   /* the caller's; outlives it, too */
	const struct reef_key *key; /* the pool's; copied */
	const char *listen;	    /* addresses, blank-separated */
	uint64_t ttl_ns;	    /* of sessions; 10 s */
	uint64_t node_ttl_ns;	    /* 10 s */
	uint64_t extent_size;	    /* 64 MiB */
	uint64_t revoke_notice_ns;  /* 1 s */
	/* Also sessions on shm are judged by their lease, and killed. */
	bool lease_kills;
	/* Of each user, by enum reef_limit; REEF_NO_LIMIT: none. */
	uint64_t user_limits[REEF_LIMIT_COUNT];
	/* Names of spaces that only the owner makes, blank-separated, beside
	 * those that the broker knows itself. */
	const char *reserved;
	/* The era of the owner's credential has risen, durably: whoever keeps
	 * that credential writes it anew. Optional; must not block. */
	void (*owner_changed)(void *context, uint32_t era);
	void *context;
	bool sync_inline;	 /* simulation: no journal thread */
	uint64_t snapshot_bytes; /* of journal, then a snapshot; 4 MiB */
	uint64_t seed;		 /* of its choices; 0: from the kernel */
	/* A pool that is made begins its numbers of extents and sessions by
	 * chance, so that images of others can be restored in it. */
	bool scatter;
};

/* Open the journal, raise the epoch, serve. In a fiber. Caller owns *out.
 * -EBUSY: another broker has the journal.  -REEF_ECORRUPT, -REEF_EVERSION.
 * Else: journal's or listen's. */
int reef_broker_start(const struct reef_broker_options *options,
		      struct reef_broker **out);

/* Stop serving, bring the journal to its end, free it. In a fiber. NULL is
 * fine. */
void reef_broker_stop(struct reef_broker *broker);

/* The addresses at which it really listens. */
const char *reef_broker_addresses(const struct reef_broker *broker);
uint64_t reef_broker_epoch(const struct reef_broker *broker);
uint64_t reef_broker_pool(const struct reef_broker *broker);
/* The era of the credential of user 0, the pool's owner. */
uint32_t reef_broker_owner_era(const struct reef_broker *broker);

/* Tell the key of the node of that name, which is added if there is none.
 * Durable. In a fiber.  -EINVAL, -ENOSPC: the name is none, or there are too
 * many nodes.  Else: journal's. */
int reef_broker_node_key(struct reef_broker *broker, const char *name,
			 struct reef_node_key *out);

/* Call `each` for every space with a name that has lost memory. */
void reef_broker_lost(struct reef_broker *broker,
		      void (*each)(void *context, const char *space,
				   uint64_t bytes),
		      void *context);
/* 0: it serves.  Why not: -ESTALE: nodes chose a newer broker; or the journal's
 * error. */
int reef_broker_health(const struct reef_broker *broker);
/* Wait until health is not 0, or timeout.  In a fiber.  -ETIMEDOUT. */
int reef_broker_wait(struct reef_broker *broker, uint64_t timeout_ns);

#endif
