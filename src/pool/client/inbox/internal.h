/* internal.h - the parts of a handle's inbox, to each other.
 *
 *   inbox.c        opening, watching, waiting: the receiver
 *   send.c   links to others' inboxes: the sender
 *   block.c  what stands in the space
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_INBOX_INTERNAL_H
#define REEF_POOL_CLIENT_INBOX_INTERNAL_H

#include "pool/client/handle/space.h"
#include "pool/client/inbox/block.h"
#include "pool/client/inbox/inbox.h"

#define INBOX_MESSAGE_SIZE (8 * (2 + REEF_WAKE_WORDS))
#define INBOX_LOCAL_MAX 64 /* messages of a handle to itself */

void inbox_wake_encode(const struct reef_wake *wake,
		       uint8_t bytes[INBOX_MESSAGE_SIZE]);
void inbox_wake_decode(const uint8_t bytes[INBOX_MESSAGE_SIZE],
		       struct reef_wake *out);

/* One of a handle's own, in a space. */
struct inbox_place {
	uint32_t space;
	uint64_t address;
	uint8_t secret[INBOX_SECRET_SIZE];
	struct inbox_place *next;
};

/* Whose key it is that a sender proves. */
void inbox_identity(uint32_t space, char text[REEF_IDENTITY_MAX + 1]);

/* Seeds its randomness, when first needed. */
int inbox_prepare(struct reef *reef);

/* --- send.c --- */

/* Go on with links that are being made: never blocks. */
void inbox_links_progress(struct reef *reef);
/* Let what was sent go out, for a moment; then close the links. */
void inbox_links_close(struct reef *reef);
/* After the port is closed. */
void inbox_links_free(struct reef *reef);

#endif
