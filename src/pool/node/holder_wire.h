/* holder_wire.h - what a node and its holder say to each other: one of these in
 * each packet, with the descriptors that it names.
 *
 *   node                         holder
 *   TAKE                  -->
 *                         <--    HEAD, EXTENT (memfd)*, CLIENT (pidfd)*, END
 *   ADD (memfd), FORGET, NOTE, CLIENT (pidfd), CLIENT_GONE, GO   -->
 *
 * Both are one program of one version, but a newer one may find an older one's
 * holder: another magic is refused, and the holder keeps what it has.
 *
 * Thread: any. */
#ifndef REEF_POOL_NODE_HOLDER_WIRE_H
#define REEF_POOL_NODE_HOLDER_WIRE_H

#include "pool/node/keep.h"

#define HOLDER_MAGIC 0x32646c68 /* "hld2" */

enum holder_kind {
	HOLDER_TAKE = 1,
	HOLDER_HEAD,
	HOLDER_EXTENT,
	HOLDER_END,
	HOLDER_ADD,
	HOLDER_FORGET,
	HOLDER_NOTE,
	HOLDER_CLIENT,
	HOLDER_CLIENT_GONE,
	HOLDER_GO
};

struct holder_message {
	uint32_t magic, kind;
	struct reef_keep_head head; /* HEAD, NOTE */
	struct reef_keep_line line; /* EXTENT, ADD; FORGET: its extent */
	uint32_t session, number;   /* CLIENT, CLIENT_GONE */
};

/* Send one; fd -1: none. Waits for room.  -errno. */
int holder_send(int socket, const struct holder_message *message, int fd);
/* Receive one; *fd is its descriptor, the caller's, or -1.  1: there is one.
 * 0: the other side is gone.  -EAGAIN: none yet (wait false).  -REEF_EPROTO. */
int holder_receive(int socket, struct holder_message *message, int *fd,
		   bool wait);

#endif
