/* tls.h - TLS between the door and its clients, with certificates, by OpenSSL.
 *
 * (1) TLS 1.2 or newer, without compression and renegotiation.
 * (2) The context is what certificate, key and authorities make of it; whoever
 *     is connected keeps the one that it began with.
 * (3) The key's file is private (private.h), and has no passphrase: nobody is
 *     there to be asked.
 * (4) Nothing here waits: what cannot be done now is EAGAIN, as of a socket.
 *
 * Thread: contexts: any; a client's own: as its thread. */
#ifndef REEF_GATEWAY_REDIS_SERVER_TLS_H
#define REEF_GATEWAY_REDIS_SERVER_TLS_H

#include "gateway/redis/server/client.h"
#include "gateway/redis/server/door.h"

#include <sys/socket.h>
#include <sys/uio.h>

struct ssl_ctx_st;
struct ssl_st;

/* Make a context. what: where to say what is wrong, for people; may be cut.
 * -EPERM: the key's file is not private.  -EINVAL: a file that is none of
 * these, or a key that is not the certificate's.  -ENOENT and such.  -ENOMEM.
 */
int redis_tls_load(const struct redis_tls_options *options,
		   struct ssl_ctx_st **out, char *what, size_t what_size);
void redis_tls_unload(struct ssl_ctx_st *context); /* NULL is fine */

/* Begin with a connection that was accepted; the handshake comes with the first
 * receive.  -ENOMEM. */
int redis_tls_begin(struct ssl_ctx_st *context, struct redis_client *client);
/* End it, and tell the client; harmless if there is none. */
void redis_tls_end(struct redis_client *client);
/* True if the handshake is done, or there is none. */
bool redis_tls_is_open(const struct redis_client *client);

/* As redis_wire_receive and redis_wire_send, of a client that has TLS. */
ssize_t redis_tls_receive(struct redis_client *client, void *buffer,
			  size_t size);
ssize_t redis_tls_send(struct redis_client *client, const struct iovec *vectors,
		       uint32_t count);

/* Receive as recv(2) does, over TLS or not. */
static inline ssize_t redis_wire_receive(struct redis_client *client, void *to,
					 size_t size)
{
	return client->tls ? redis_tls_receive(client, to, size)
			   : recv(client->fd, to, size, 0);
}

/* Send as sendmsg(2) does, over TLS or not. */
static inline ssize_t redis_wire_send(struct redis_client *client,
				      struct iovec *vectors, uint32_t count)
{
	struct msghdr message;

	if (client->tls)
		return redis_tls_send(client, vectors, count);
	if (count == 1)
		return send(client->fd, vectors[0].iov_base, vectors[0].iov_len,
			    MSG_NOSIGNAL);
	message = (struct msghdr){.msg_iov = vectors, .msg_iovlen = count};
	return sendmsg(client->fd, &message, MSG_NOSIGNAL);
}

/* True if bytes were received that epoll does not know of. */
bool redis_wire_has_more(const struct redis_client *client);

#endif
