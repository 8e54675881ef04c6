/* holder_wire.c - see holder_wire.h. */
#include "pool/node/holder_wire.h"

#include <errno.h>
#include <reef/error.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for one descriptor. */
union control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

int holder_send(int socket, const struct holder_message *message, int fd)
{
	struct iovec iov = {(void *)message, sizeof(*message)};
	union control control = {0};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *item;
	ssize_t sent;

	if (fd >= 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = sizeof(control.bytes);
		item = CMSG_FIRSTHDR(&header);
		item->cmsg_level = SOL_SOCKET;
		item->cmsg_type = SCM_RIGHTS;
		item->cmsg_len = CMSG_LEN(sizeof(fd));
		memcpy(CMSG_DATA(item), &fd, sizeof(fd));
	}
	do
		sent = sendmsg(socket, &header, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

int holder_receive(int socket, struct holder_message *message, int *fd,
		   bool wait)
{
	struct iovec iov = {message, sizeof(*message)};
	union control control;
	struct msghdr header = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		/* Room for one: with CMSG_SPACE a second one might come in. */
		.msg_controllen = CMSG_LEN(sizeof(*fd)),
	};
	struct cmsghdr *item;
	ssize_t got;

	*fd = -1;
	do
		got = recvmsg(socket, &header,
			      MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == ECONNRESET ? 0 : -errno;
	item = CMSG_FIRSTHDR(&header);
	if (item && item->cmsg_level == SOL_SOCKET &&
	    item->cmsg_type == SCM_RIGHTS &&
	    item->cmsg_len == CMSG_LEN(sizeof(*fd)))
		memcpy(fd, CMSG_DATA(item), sizeof(*fd));
	if (got == 0)
		return 0;
	if (got == sizeof(*message) && message->magic == HOLDER_MAGIC &&
	    !(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 1;
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	return -REEF_EPROTO;
}
