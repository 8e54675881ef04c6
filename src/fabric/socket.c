/* socket.c - addresses to text and back; sockets that listen and connect. */
#include "fabric/socket.h"

#include "base/log.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 1024
#define HOST_MAX 255

/* --- addresses --- */

static int parse_port(const char *text, uint16_t *out)
{
	unsigned long port;
	char *end;

	if (*text < '0' || *text > '9' || strlen(text) > 5)
		return -EINVAL;
	port = strtoul(text, &end, 10);
	if (*end || port > UINT16_MAX)
		return -EINVAL;
	*out = (uint16_t)port;
	return 0;
}

/* Cut "HOST:PORT" or "[HOST]:PORT" in two. */
static int split_host_port(const char *text, char host[HOST_MAX + 1],
			   uint16_t *port)
{
	const char *colon = strrchr(text, ':'), *end = colon;

	if (!colon)
		return -EINVAL;
	if (*text == '[') {
		text++;
		end--;
		if (end < text || *end != ']')
			return -EINVAL;
	} else if (memchr(text, ':', (size_t)(colon - text))) {
		return -EINVAL; /* the last group may be a port or not */
	}
	if (end - text > HOST_MAX)
		return -EINVAL;
	memcpy(host, text, (size_t)(end - text));
	host[end - text] = '\0';
	return parse_port(colon + 1, port);
}

int reef_address_parse_inet(const char *text, struct reef_address *out)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE};
	struct addrinfo *all, *found;
	char host[HOST_MAX + 1];
	uint16_t port;
	int rc = split_host_port(text, host, &port);

	if (rc < 0)
		return rc;
	rc = getaddrinfo(host[0] ? host : NULL, "0", &hints, &all);
	if (rc)
		return rc == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
	for (found = all; found && found->ai_family != AF_INET;
	     found = found->ai_next)
		;
	if (!found)
		found = all;
	reef_assert(found); /* no error, so there is one */
	*out = (struct reef_address){.size = found->ai_addrlen};
	memcpy(&out->storage, found->ai_addr, found->ai_addrlen);
	if (found->ai_family == AF_INET)
		((struct sockaddr_in *)&out->storage)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)&out->storage)->sin6_port = htons(port);
	freeaddrinfo(all);
	return 0;
}

int reef_address_parse_unix(const char *text, struct reef_address *out)
{
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	size_t length = strlen(text);

	if ((*text != '/' && *text != '@') || length < 2)
		return -EINVAL;
	if (length >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	memcpy(un.sun_path, text, length);
	*out = (struct reef_address){
		.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				    length),
	};
	if (*text == '@')
		un.sun_path[0] = '\0';
	else
		out->size++; /* its zero byte */
	memcpy(&out->storage, &un, sizeof(un));
	return 0;
}

static int format_unix(const struct reef_address *address, char *text,
		       size_t size)
{
	const struct sockaddr_un *un =
		(const struct sockaddr_un *)&address->storage;
	size_t length = address->size - offsetof(struct sockaddr_un, sun_path);

	if (un->sun_path[0])
		length = strnlen(un->sun_path, length);
	if (length >= size)
		return -ENAMETOOLONG;
	memcpy(text, un->sun_path, length);
	if (!un->sun_path[0])
		text[0] = '@';
	text[length] = '\0';
	return 0;
}

int reef_address_format(const struct reef_address *address, char *text,
			size_t size)
{
	bool is_v6 = address->storage.ss_family == AF_INET6;
	char host[NI_MAXHOST], port[NI_MAXSERV];
	int rc;

	if (address->storage.ss_family == AF_UNIX)
		return format_unix(address, text, size);
	if (getnameinfo((const struct sockaddr *)&address->storage,
			address->size, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return -EINVAL;
	rc = snprintf(text, size, is_v6 ? "[%s]:%s" : "%s:%s", host, port);
	return rc < 0 || (size_t)rc >= size ? -ENAMETOOLONG : 0;
}

bool reef_address_is_loopback(const struct reef_address *address)
{
	const struct sockaddr_in *v4 =
		(const struct sockaddr_in *)&address->storage;
	const struct sockaddr_in6 *v6 =
		(const struct sockaddr_in6 *)&address->storage;

	switch (address->storage.ss_family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	case AF_INET6:
		if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
			return v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
		return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
	default:
		return false;
	}
}

/* --- sockets --- */

static int open_socket(const struct reef_address *address)
{
	int fd = socket(address->storage.ss_family,
			SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

/* Send at once: a request must not wait for the acknowledgement of the one
 * before it. Fails harmlessly on unix sockets. */
static void set_no_delay(int fd)
{
	int one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static bool is_socket_file(const struct reef_address *address)
{
	const struct sockaddr_un *un =
		(const struct sockaddr_un *)&address->storage;

	return address->storage.ss_family == AF_UNIX && un->sun_path[0];
}

/* Remove the file of a listener that is no more. Asking it is the only test
 * that cannot be fooled by a process id that is in use again. Left open: of two
 * listeners that start on one path at the same instant the later can remove the
 * file of the earlier, which has bound but does not listen yet. */
static int remove_stale(const struct reef_address *address)
{
	const struct sockaddr_un *un =
		(const struct sockaddr_un *)&address->storage;
	struct stat status;
	int fd, rc;

	if (lstat(un->sun_path, &status) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(status.st_mode))
		return -EADDRINUSE;
	fd = open_socket(address);
	if (fd < 0)
		return fd;
	rc = connect(fd, (const struct sockaddr *)un, address->size);
	rc = rc < 0 ? -errno : 0;
	close(fd);
	if (rc != -ECONNREFUSED)
		return rc == -ENOENT ? 0 : -EADDRINUSE;
	return unlink(un->sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

static int bind_to(int fd, const struct reef_address *address)
{
	const struct sockaddr *name =
		(const struct sockaddr *)&address->storage;
	int one = 1;

	if (address->storage.ss_family != AF_UNIX)
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* Linux gives a socket file the mode of its socket, so it never exists
	 * with another. */
	if (is_socket_file(address) && fchmod(fd, 0600) < 0)
		return -errno;
	return bind(fd, name, address->size) < 0 ? -errno : 0;
}

int reef_socket_listen(const struct reef_address *address,
		       struct reef_address *bound)
{
	struct reef_address name = {.size = sizeof(name.storage)};
	int fd, rc;

	if (is_socket_file(address)) {
		rc = remove_stale(address);
		if (rc < 0)
			return rc;
	}
	fd = open_socket(address);
	if (fd < 0)
		return fd;
	rc = bind_to(fd, address);
	if (rc < 0)
		goto err_close;
	if (listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&name.storage, &name.size) < 0) {
		rc = -errno;
		goto err_close;
	}
	if (bound)
		*bound = name;
	return fd;
err_close:
	close(fd);
	return rc;
}

void reef_socket_unlisten(int fd)
{
	struct reef_address name = {.size = sizeof(name.storage)};

	if (getsockname(fd, (struct sockaddr *)&name.storage, &name.size) < 0)
		name.storage.ss_family = AF_UNSPEC;
	/* Closing is not enough: a forked child may have it open, and who
	 * connects would wait for an answer. */
	shutdown(fd, SHUT_RDWR);
	close(fd);
	/* Our socket is closed, so whoever still answers there is another. */
	if (is_socket_file(&name))
		remove_stale(&name);
}

void reef_socket_host(int fd, char *text, size_t size)
{
	struct reef_address name = {.size = sizeof(name.storage)};
	char whole[HOST_MAX + 8], *end = NULL;

	text[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&name.storage, &name.size) < 0 ||
	    name.storage.ss_family == AF_UNIX ||
	    reef_address_format(&name, whole, sizeof(whole)) < 0)
		return;
	end = strrchr(whole, ':');
	*end = '\0';
	if ((size_t)(end - whole) < size)
		memcpy(text, whole, (size_t)(end - whole) + 1);
}

bool reef_socket_is_loopback(int fd)
{
	struct reef_address peer = {.size = sizeof(peer.storage)};

	return getpeername(fd, (struct sockaddr *)&peer.storage, &peer.size) ==
		       0 &&
	       reef_address_is_loopback(&peer);
}

uint64_t reef_socket_peer_host(int fd)
{
	struct reef_address peer = {.size = sizeof(peer.storage)};
	const struct sockaddr_in6 *six = (struct sockaddr_in6 *)&peer.storage;
	const struct sockaddr_in *four = (struct sockaddr_in *)&peer.storage;
	uint64_t network;
	uint32_t host;

	if (getpeername(fd, (struct sockaddr *)&peer.storage, &peer.size) < 0)
		return 0;
	if (peer.storage.ss_family == AF_INET)
		return UINT64_C(1) << 32 | four->sin_addr.s_addr;
	if (peer.storage.ss_family != AF_INET6)
		return 0;
	if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
		memcpy(&host, six->sin6_addr.s6_addr + 12, sizeof(host));
		return UINT64_C(1) << 32 | host;
	}
	memcpy(&network, six->sin6_addr.s6_addr, sizeof(network));
	return network ? network : 1;
}

int reef_socket_accept(int fd)
{
	int accepted;

	do {
		accepted =
			accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	} while (accepted < 0 && (errno == EINTR || errno == ECONNABORTED));
	if (accepted < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	set_no_delay(accepted);
	return accepted;
}

int reef_socket_connect(const struct reef_address *address)
{
	int fd = open_socket(address), rc;

	if (fd < 0)
		return fd;
	set_no_delay(fd);
	rc = connect(fd, (const struct sockaddr *)&address->storage,
		     address->size);
	if (rc == 0 || errno == EINPROGRESS || errno == EINTR)
		return fd;
	/* If a unix listener's backlog is full nobody will tell when there is
	 * room, so the connection counts as refused. */
	rc = errno == EAGAIN ? -ECONNREFUSED : -errno;
	close(fd);
	return rc;
}

int reef_socket_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t size = sizeof(peer);
	int error = 0;

	if (getpeername(fd, (struct sockaddr *)&peer, &size) == 0)
		return 0;
	if (errno != ENOTCONN)
		return -errno;
	size = sizeof(error);
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		return -errno;
	return error ? -error : -EAGAIN;
}

void reef_socket_keep_alive(int fd, uint64_t silence_ns)
{
	int seconds = (int)(silence_ns / 1000000000ull);
	int one = 1, idle = seconds > 2 ? seconds / 2 : 1;
	int count = seconds - idle > 1 ? seconds - idle : 1;

	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}
