/* stream.c - frames over a connected socket.
 *
 * (1) Input is one buffer: bytes [start, end) are unread, a frame handed out
 *     lies in it until the next receive. It grows with what really comes, never
 *     with what a header claims, and never past one frame.
 * (2) Output is kept only when the socket is full, and never more than out_max.
 *     Kept bytes begin inside or before a frame and end after one.
 * (3) A descriptor travels with the first byte of its frame: it is sent only
 *     when nothing is kept. The kernel delivers it no later than that byte, so
 *     whoever sees a header that announces one already has it.
 * (4) An error of the input is final; one of the output is not told by receive,
 *     which may still find a BYE to read.
 */
#include "fabric/stream.h"

#include "base/log.h"
#include "fabric/fifo.h"
#include "wire/control.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER REEF_FRAME_HEADER_SIZE
#define OUT_LEAST (64u << 10)
#define PARTS_MAX 15
#define FDS_MAX 4

struct reef_stream {
	int fd;
	struct reef_tls *tls; /* NULL: plain */
	bool is_unix;
	bool welcomed;
	bool output_broken;
	int input_error;
	uint32_t payload_max;
	uint64_t heard_ns;
	bool took_all; /* the last read: there was no more */
	struct reef_fifo in, out;
	size_t out_max;
	size_t handed_out; /* size of the frame that the caller looks at */
	int fds[FDS_MAX];
	int fd_count;
};

int reef_stream_create(int fd, uint32_t payload_max, struct reef_stream **out)
{
	struct reef_stream *stream = calloc(1, sizeof(*stream));
	socklen_t size = sizeof(int);
	int domain = 0;

	if (!stream)
		return -ENOMEM;
	if (reef_fifo_reserve(&stream->in, HEADER, SIZE_MAX / 2) < 0) {
		free(stream);
		return -ENOMEM;
	}
	stream->fd = fd;
	getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
	stream->is_unix = domain == AF_UNIX;
	stream->payload_max = payload_max;
	stream->out_max = (size_t)payload_max + HEADER;
	if (stream->out_max < OUT_LEAST)
		stream->out_max = OUT_LEAST;
	stream->heard_ns = reef_now_ns();
	*out = stream;
	return 0;
}

void reef_stream_destroy(struct reef_stream *stream)
{
	if (!stream)
		return;
	for (int i = 0; i < stream->fd_count; i++)
		close(stream->fds[i]);
	reef_tls_destroy(stream->tls);
	if (stream->fd >= 0)
		close(stream->fd);
	free(stream->in.bytes);
	free(stream->out.bytes);
	free(stream);
}

int reef_stream_fd(const struct reef_stream *stream)
{
	return stream->fd;
}

void reef_stream_welcome(struct reef_stream *stream)
{
	stream->welcomed = true;
}

void reef_stream_set_tls(struct reef_stream *stream, struct reef_tls *tls)
{
	reef_assert(!reef_fifo_used(&stream->in) &&
		    !reef_fifo_used(&stream->out));
	stream->tls = tls;
}

struct reef_tls *reef_stream_release_tls(struct reef_stream *stream)
{
	struct reef_tls *tls = stream->tls;

	stream->tls = NULL;
	return tls;
}

size_t reef_stream_peek(const struct reef_stream *stream, const uint8_t **bytes)
{
	*bytes = stream->in.bytes + stream->in.start;
	return reef_fifo_used(&stream->in);
}

int reef_stream_release(struct reef_stream *stream, const uint8_t **rest,
			size_t *rest_size)
{
	struct reef_fifo *in = &stream->in;
	int fd = stream->fd;

	reef_assert(!reef_stream_wants_write(stream));
	in->start += stream->handed_out;
	stream->handed_out = 0;
	*rest = in->bytes + in->start;
	*rest_size = in->end - in->start;
	stream->fd = -1;
	return fd;
}

uint64_t reef_stream_heard_ns(const struct reef_stream *stream)
{
	return stream->heard_ns;
}

static uint32_t frame_max(const struct reef_stream *stream)
{
	if (stream->welcomed || stream->payload_max < REEF_HELLO_FRAME_MAX)
		return stream->payload_max;
	return REEF_HELLO_FRAME_MAX;
}

/* --- output --- */

bool reef_stream_wants_write(const struct reef_stream *stream)
{
	return stream->out.end > stream->out.start;
}

static ssize_t break_output(struct reef_stream *stream)
{
	stream->output_broken = true;
	stream->out.start = stream->out.end = 0;
	return -REEF_ENOLINK;
}

/* Send what the socket takes. Returns how many bytes (0: the socket is full),
 * or -REEF_ENOLINK. */
static ssize_t send_some(struct reef_stream *stream, struct msghdr *message)
{
	ssize_t n;

	if (stream->tls) {
		n = reef_tls_send(stream->tls, message->msg_iov,
				  (int)message->msg_iovlen);
		if (n == -EAGAIN)
			return 0;
		return n < 0 ? break_output(stream) : n;
	}
	do {
		n = sendmsg(stream->fd, message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n >= 0)
		return n;
	if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)
		return 0;
	return break_output(stream);
}

int reef_stream_flush(struct reef_stream *stream)
{
	struct reef_fifo *out = &stream->out;
	struct iovec part;
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;

	if (stream->output_broken)
		return -REEF_ENOLINK;
	while (out->end > out->start ||
	       (stream->tls && reef_tls_unsent(stream->tls))) {
		part.iov_base = reef_fifo_head(out);
		part.iov_len = out->end - out->start;
		n = send_some(stream, &message);
		if (n < 0 || (n == 0 && part.iov_len))
			return n ? (int)n : -EAGAIN;
		if (n == 0 && reef_tls_unsent(stream->tls))
			return -EAGAIN;
		out->start += (size_t)n;
	}
	out->start = out->end = 0;
	return 0;
}

/* Keep what lies after the first `sent` bytes of the parts for later. */
static int keep_rest(struct reef_stream *stream, const struct iovec *parts,
		     int count, size_t sent, size_t total)
{
	struct reef_fifo *out = &stream->out;

	if (reef_fifo_reserve(out, total - sent, stream->out_max) < 0)
		return sent ? (int)break_output(stream) : -EAGAIN;
	for (int i = 0; i < count; i++) {
		size_t skip = sent < parts[i].iov_len ? sent : parts[i].iov_len;
		size_t rest = parts[i].iov_len - skip;

		sent -= skip;
		if (rest)
			memcpy(out->bytes + out->end,
			       (uint8_t *)parts[i].iov_base + skip, rest);
		out->end += rest;
	}
	return 0;
}

static void attach_fd(struct msghdr *message, void *control, size_t size,
		      int fd)
{
	struct cmsghdr *cmsg;

	memset(control, 0, size);
	message->msg_control = control;
	message->msg_controllen = size;
	cmsg = CMSG_FIRSTHDR(message);
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(cmsg), &fd, sizeof(fd));
}

static int send_now(struct reef_stream *stream, struct iovec *parts, int count,
		    size_t total, int pass_fd)
{
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
	alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(int))];
	ssize_t n;

	if (pass_fd >= 0)
		attach_fd(&message, control, sizeof(control), pass_fd);
	n = send_some(stream, &message);
	if (n < 0)
		return (int)n;
	if ((size_t)n == total)
		return 0;
	if (n == 0 && pass_fd >= 0)
		return -EAGAIN;
	return keep_rest(stream, parts, count, (size_t)n, total);
}

int reef_stream_send(struct reef_stream *stream, uint8_t type, uint64_t tag,
		     const struct iovec *parts, int count, int pass_fd)
{
	uint8_t header[HEADER];
	struct iovec all[PARTS_MAX + 1] = {{header, sizeof(header)}};
	size_t total = HEADER, kept;
	int rc;

	reef_assert(count >= 0 && count <= PARTS_MAX);
	reef_assert(pass_fd < 0 || stream->is_unix);
	for (int i = 0; i < count; i++) {
		all[i + 1] = parts[i];
		total += parts[i].iov_len;
	}
	if (total - HEADER > frame_max(stream))
		return -EMSGSIZE;
	reef_frame_header_encode(
		&(struct reef_frame_header){
			.length = (uint32_t)(total - HEADER),
			.type = type,
			.flags = pass_fd >= 0 ? REEF_FRAME_CARRIES_FD : 0,
			.tag = tag,
		},
		header);
	rc = reef_stream_flush(stream);
	if (rc == 0)
		return send_now(stream, all, count + 1, total, pass_fd);
	if (rc != -EAGAIN)
		return rc;
	kept = stream->out.end - stream->out.start;
	if (pass_fd >= 0 || total > stream->out_max - kept)
		return -EAGAIN;
	return keep_rest(stream, all, count + 1, 0, total);
}

/* --- input --- */

static int keep_fds(struct reef_stream *stream, struct msghdr *message)
{
	struct cmsghdr *cmsg;
	int rc = message->msg_flags & MSG_CTRUNC ? -REEF_EPROTO : 0;

	for (cmsg = CMSG_FIRSTHDR(message); cmsg;
	     cmsg = CMSG_NXTHDR(message, cmsg)) {
		size_t count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(fd),
			       sizeof(fd));
			if (stream->fd_count < FDS_MAX) {
				stream->fds[stream->fd_count++] = fd;
			} else {
				close(fd);
				rc = -REEF_EPROTO;
			}
		}
	}
	return rc;
}

static ssize_t receive_some(struct reef_stream *stream, void *bytes,
			    size_t size)
{
	alignas(struct cmsghdr)
		uint8_t control[CMSG_SPACE(FDS_MAX * sizeof(int))];
	struct iovec part = {bytes, size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	bool drained;
	ssize_t n;

	if (stream->tls) {
		n = reef_tls_receive(stream->tls, &part, 1, true, &drained);
		if (n < 0)
			errno = n == -EAGAIN	    ? EAGAIN
				: n == -REEF_EPROTO ? EPROTO
						    : ECONNRESET;
		return n < 0 ? -1 : n;
	}
	if (!stream->is_unix)
		return recv(stream->fd, bytes, size, MSG_DONTWAIT);
	message.msg_control = control;
	message.msg_controllen = sizeof(control);
	n = recvmsg(stream->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	if (n >= 0 && keep_fds(stream, &message) < 0) {
		errno = EPROTO;
		return -1;
	}
	return n;
}

/* Read more input. 0: something came. */
static int read_more(struct reef_stream *stream)
{
	struct reef_fifo *in = &stream->in;
	size_t most = HEADER + (size_t)frame_max(stream);
	ssize_t n;
	int rc, fds;

	/* There is room for more, or a frame longer than the buffer: `most` is
	 * larger than that. */
	rc = reef_fifo_reserve(in, 1, most);
	if (rc < 0)
		return rc;
	fds = stream->fd_count;
	do {
		n = receive_some(stream, in->bytes + in->end,
				 in->size - in->end);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		/* A read that brought descriptors may have been cut short. */
		stream->took_all = (size_t)n < in->size - in->end &&
				   fds == stream->fd_count;
		in->end += (size_t)n;
		stream->heard_ns = reef_now_ns();
		return 0;
	}
	if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return -EAGAIN;
	return n < 0 && errno == EPROTO ? -REEF_EPROTO : -REEF_ENOLINK;
}

/* Cut the next frame from the buffered input.  -EAGAIN: it is not whole yet. */
static int cut_frame(struct reef_stream *stream, struct reef_frame *out)
{
	struct reef_fifo *in = &stream->in;
	const uint8_t *bytes = in->bytes + in->start;
	struct reef_frame_header header;
	int fd = -1;

	if (in->end - in->start < HEADER)
		return -EAGAIN;
	if (reef_frame_header_decode(bytes, &header) < 0 ||
	    header.length > frame_max(stream))
		return -REEF_EPROTO;
	if (in->end - in->start < HEADER + (size_t)header.length)
		return -EAGAIN;
	if (header.flags & REEF_FRAME_CARRIES_FD) {
		if (stream->fd_count == 0)
			return -REEF_EPROTO;
		fd = stream->fds[0];
		stream->fd_count--;
		memmove(stream->fds, stream->fds + 1,
			(size_t)stream->fd_count * sizeof(fd));
	}
	stream->handed_out = HEADER + (size_t)header.length;
	*out = (struct reef_frame){
		.type = header.type,
		.tag = header.tag,
		.length = header.length,
		.payload = bytes + HEADER,
		.fd = fd,
	};
	return 0;
}

int reef_stream_receive(struct reef_stream *stream, struct reef_frame *out)
{
	struct reef_fifo *in = &stream->in;
	int rc = stream->input_error;

	if (rc)
		return rc;
	in->start += stream->handed_out;
	stream->handed_out = 0;
	if (in->start == in->end)
		in->start = in->end = 0;
	while ((rc = cut_frame(stream, out)) == -EAGAIN) {
		rc = read_more(stream);
		if (rc < 0)
			break;
	}
	if (rc < 0 && rc != -EAGAIN)
		stream->input_error = rc;
	return rc;
}

bool reef_stream_is_drained(const struct reef_stream *stream)
{
	return stream->took_all &&
	       stream->in.start + stream->handed_out == stream->in.end;
}

/* --- bye --- */

void reef_stream_bye(struct reef_stream *stream, int reason)
{
	uint8_t bytes[REEF_WIRE_BYE_SIZE];
	struct iovec part = {bytes, sizeof(bytes)};

	reef_wire_bye_encode(reason, bytes);
	reef_stream_send(stream, REEF_FRAME_BYE, 0, &part, 1, -1);
}

int reef_frame_bye_reason(const struct reef_frame *frame)
{
	int reason;

	if (frame->type != REEF_FRAME_BYE ||
	    reef_wire_bye_decode(frame->payload, frame->length, &reason) < 0)
		return -REEF_EPROTO;
	return reason;
}
