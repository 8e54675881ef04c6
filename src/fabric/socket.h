/* socket.h - addresses, and sockets that listen and connect.
 *
 * (1) Every socket is non-blocking and close-on-exec; tcp ones have
 *     TCP_NODELAY.
 * (2) A socket file is replaced only if nobody listens on it; anything else at
 *     that path is left alone. A new one has mode 0600.
 *
 * Thread: any. */
#ifndef REEF_FABRIC_SOCKET_H
#define REEF_FABRIC_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct reef_address {
	struct sockaddr_storage storage;
	socklen_t size;
};

/* Parse "HOST:PORT" or "[HOST]:PORT"; HOST is a number or a name, PORT a
 * number. A name is looked up, which may block for as long as the resolver
 * takes; of several addresses the first of IPv4, so that both sides of a name
 * mean the same. For listening an empty HOST means every address of IPv4,
 * "[::]" of IPv6. -EINVAL: not of that form.  -EHOSTUNREACH: no such name. */
int reef_address_parse_inet(const char *text, struct reef_address *out);

/* Parse "/path" or "@name" (the abstract name space).
 * -EINVAL: not of that form.  -ENAMETOOLONG. */
int reef_address_parse_unix(const char *text, struct reef_address *out);

/* Write an address as it is parsed, a numeric host, without a scheme.
 * -ENAMETOOLONG: does not fit. */
int reef_address_format(const struct reef_address *address, char *text,
			size_t size);

/* True if the address is one of this machine alone: 127.0.0.0/8 or ::1, or a
 * unix socket. */
bool reef_address_is_loopback(const struct reef_address *address);
/* The same of the peer of a connected socket; false if that is not known. */
bool reef_socket_is_loopback(int fd);

/* Which host the peer of a connected socket is, as a number that two of one
 * host have in common; of IPv6 it is the network of 64 bits.  0: not known. */
uint64_t reef_socket_peer_host(int fd);

/* Listen. Returns the socket; *bound, if not NULL, has the real port.
 * -EADDRINUSE and such. */
int reef_socket_listen(const struct reef_address *address,
		       struct reef_address *bound);

/* Close a listening socket, and remove its file if it is still ours. */
void reef_socket_unlisten(int fd);

/* Take a connection. Returns the socket.  -EAGAIN: there is none.
 * -EMFILE, -ENFILE, -ENOMEM, ...: it stays in the queue. */
int reef_socket_accept(int fd);

/* Start to connect. Returns the socket; ask reef_socket_connected when it
 * becomes writable.  -ECONNREFUSED, -ENOENT and such. */
int reef_socket_connect(const struct reef_address *address);

/* 0: connected.  -EAGAIN: not yet.  Otherwise why it failed. */
int reef_socket_connected(int fd);

/* This end's host, as it stands in addresses; "" if it does not fit or is not
 * to be had. */
void reef_socket_host(int fd, char *text, size_t size);

/* Let the kernel find out that a peer's host is gone while nothing is sent:
 * after about silence_ns, with a second's grain. tcp only. */
void reef_socket_keep_alive(int fd, uint64_t silence_ns);

#endif
