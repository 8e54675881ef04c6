/* inbox.h - short messages from handle to handle: how a waiter is woken.
 *
 * A handle that is to be woken opens an *inbox* in a space: its port listens,
 * and a small block of the space says where, with a secret. Whoever may read
 * the space may knock. Links are made at the first message from one handle to
 * another and kept.
 *
 * (1) A message is a hint. It can be lost (a link fell, the receiver does not
 *     poll, its inbox is full, nobody watches for it), be late, overtake an
 *     earlier one, or be sent by whoever can read the space under any session's
 *     name: so nothing may come to harm by one. It cannot come twice.
 * (2) Sending never waits for the receiver to take it. The first message to an
 *     inbox reads its block and connects, and waits for that, at most 20 ms; a
 *     receiver that does not poll until then gets it when both ends do. An
 *     inbox that could not be reached is not tried again for 200 ms.
 * (3) All of it is the handle's own: no keeper, no other thread in between.
 *     Messages are taken in reef_inbox_wait, and given to the watches of
 *     their object; what no watch is for is dropped.
 *
 * Thread: owner of the handle, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_INBOX_INBOX_H
#define REEF_POOL_CLIENT_INBOX_INBOX_H

#include "pool/client/client.h"

#define REEF_WAKE_WORDS 6

struct reef_wake {
	uint64_t object; /* address of what it is about */
	uint64_t word;	 /* whom it is for, in the object's own terms */
	uint64_t words[REEF_WAKE_WORDS];
};

struct reef_watch { /* the caller's storage */
	uint64_t object;
	/* Called while the handle waits; must not block. */
	void (*message)(struct reef_watch *watch, const struct reef_wake *wake);
	void *user;
	struct reef_watch *next; /* the inbox's */
};

/* This handle's inbox in that space: opened when first asked for, ends with the
 * handle. *address, of its block, is what others send to.  Errors as alloc, and
 * of listening. Where there is no way to listen (no address that others could
 * reach): -EADDRNOTAVAIL; a waiter then has to check by itself, now and then.
 */
int reef_inbox_open(struct reef_space *space, uint64_t *address);

void reef_inbox_watch(struct reef *reef, struct reef_watch *watch);
void reef_inbox_unwatch(struct reef *reef, struct reef_watch *watch);

/* Send to the inbox at that address. 0: on its way, as far as anybody knows.
 * Else nothing was sent: -ENOENT: no inbox is there (any more).
 * -ECONNREFUSED and such: nobody there.  -EAGAIN: too much is under way, or the
 * receiver takes nothing.  Errors of READ. */
int reef_inbox_send(struct reef_space *space, uint64_t inbox,
		    const struct reef_wake *wake);

/* Wait until ready(what), which is asked first, and after every message and
 * poke. Other fibers of the handle may wait at the same time.  -ETIMEDOUT,
 * never if ready says yes by then.  -REEF_EFENCED. */
int reef_inbox_wait(struct reef *reef, bool (*ready)(const void *what),
		    const void *what, uint64_t timeout_ns);
/* Let those in reef_inbox_wait call ready() again. Thread: any. */
void reef_inbox_poke(struct reef *reef);

#endif
