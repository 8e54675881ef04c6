/* listen.c - see listen.h. */
#include "cmd/http/listen.h"

#include "cmd/serve/child.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEND_MAX 131072 /* what the kernel keeps for a slow reader */

int listen_at(const char *text, int backlog, char *host, size_t size)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE};
	const char *colon = strrchr(text, ':');
	struct addrinfo *found;
	int fd, rc, one = 1, send_max = SEND_MAX;

	if (!colon || (size_t)(colon - text) >= size)
		return -EINVAL;
	snprintf(host, size, "%.*s", (int)(colon - text), text);
	if (host[0] == '[' && host[strlen(host) - 1] == ']') {
		memmove(host, host + 1, strlen(host));
		host[strlen(host) - 1] = '\0';
	}
	if (getaddrinfo(host, colon + 1, &hints, &found))
		return -EADDRNOTAVAIL;
	fd = socket(found->ai_family,
		    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	rc = fd < 0 ? -errno : 0;
	if (!rc) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		/* Who is accepted has it, too. */
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_max,
			   sizeof(send_max));
	}
	if (!rc && (bind(fd, found->ai_addr, found->ai_addrlen) ||
		    listen(fd, backlog)))
		rc = -errno;
	freeaddrinfo(found);
	if (!rc)
		return fd;
	if (fd >= 0)
		close(fd);
	return rc;
}

void listen_tell_ready(int fd, const char *ready_fd)
{
	struct sockaddr_storage address;
	socklen_t size = sizeof(address);
	char host[64], port[16], line[96];

	if (getsockname(fd, (struct sockaddr *)&address, &size) ||
	    getnameinfo((struct sockaddr *)&address, size, host, sizeof(host),
			port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		return;
	snprintf(line, sizeof(line),
		 strchr(host, ':') ? "http://[%s]:%s/" : "http://%s:%s/", host,
		 port);
	if (ready_fd)
		child_tell_ready(ready_fd, line);
}
