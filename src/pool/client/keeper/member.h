/* member.h - what the keeper sees of a handle.
 *
 * (1) Members are in the client's list under its lock. The keeper wakes a
 *     member's queue under that lock, which the handle takes before it leaves
 *     the list and closes the queue.
 *
 * Thread: owner of the handle, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_MEMBER_H
#define REEF_POOL_CLIENT_KEEPER_MEMBER_H

#include "base/grace.h"
#include "pool/client/keeper/count.h"

#include <stdatomic.h>
#include <stdint.h>

#define CLIENT_COHORTS 3

struct reef_client;
struct reef_queue;

struct client_member {
	struct reef_queue *queue; /* where the handle waits for the keeper */
	struct reef_crowd calls;  /* that use links and remotes: grace.c */
	/* R8: the epochs in which fibers of the handle are inside reef_enter,
	 * by cohort (handle.c). UINT64_MAX: nobody. */
	_Atomic uint64_t pins[CLIENT_COHORTS];
	struct reef_counters counters; /* the owner adds: count.h */
	struct client_member *next;    /* client->members */
};

/* Thread: any. */
void client_member_add(struct reef_client *client,
		       struct client_member *member);
void client_member_remove(struct reef_client *client,
			  struct client_member *member);
/* Let every handle check again what it waits for. Locked. */
void client_members_wake(struct reef_client *client);

#endif
