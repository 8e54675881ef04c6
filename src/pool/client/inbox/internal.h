/* internal.h - the parts of a handle's inbox, to each other.
 *
 *   inbox.c   opening, watching, waiting: the receiver
 *   send.c    links to others' inboxes: the sender
 *   block.c   what stands in the space
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

/* A handle's inbox in one space. */
struct inbox_place {
	uint32_t space;
	uint64_t address;
	uint8_t secret[INBOX_SECRET_SIZE];
	struct inbox_place *next;
};

/* The name under which a sender proves that it knows the secret of the inbox in
 * that space. */
void inbox_identity(uint32_t space, char text[REEF_IDENTITY_MAX + 1]);

/* Before anything is opened or sent: seeds the inbox's randomness, once. */
int inbox_prepare(struct reef *reef);

/* --- send.c --- */

/* Take in what has become of links that are being made. Never blocks. */
void inbox_links_progress(struct reef *reef);
/* Wait a moment for messages that are under way; then close all links. */
void inbox_links_close(struct reef *reef);
/* Free the memory of all links, after the port is closed. */
void inbox_links_free(struct reef *reef);

#endif
