/* fabric_raw.c - the raw limits: what the machine gives without any library.
 *
 * shm: a plain loop over the same memory, mapped. Copies are the compiler's and
 * libc's; a write ends with the barrier that F4 costs Reef; atomics are the
 * processor's.
 * tcp: a ping-pong, the least that brings the bytes: the client sends a count,
 * a length and offsets, the target answers with the bytes. Both poll recv
 * without blocking; in SLEEP mode both block in it.
 *
 * Thread: owner. */
#include "fabric_bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

struct raw {
	uint8_t *base; /* shm: in the client; tcp: in the target */
	int fd;	       /* tcp */
	int flags;     /* of recv: MSG_DONTWAIT to poll, 0 to sleep */
	struct workload_state state;
};

struct question {
	uint32_t count, length;
	uint64_t offsets[WORKLOAD_BATCH_MAX];
};
#define QUESTION_SIZE(count) (8 + 8 * (size_t)(count))

/* --- shm --- */

/* What was read is there, and what was written is out of the compiler. */
#define COMPLETE() __asm__ volatile("" : : : "memory")

workload_inline int raw_shm_read(void *context, uint64_t offset, void *to,
				 uint32_t length)
{
	struct raw *raw = context;

	memcpy(to, raw->base + offset, length);
	COMPLETE();
	return 0;
}

workload_inline int raw_shm_read_batch(void *context, const uint64_t *offsets,
				       void *to)
{
	struct raw *raw = context;

	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++)
		memcpy((uint8_t *)to + i * WORKLOAD_LINE,
		       raw->base + offsets[i], WORKLOAD_LINE);
	COMPLETE();
	return 0;
}

workload_inline int raw_shm_write(void *context, uint64_t offset,
				  const void *from, uint32_t length)
{
	struct raw *raw = context;

	memcpy(raw->base + offset, from, length);
	/* F4's, without a partner: it orders this write before later reads. */
	atomic_thread_fence(memory_order_seq_cst);
	return 0;
}

workload_inline int raw_shm_cas(void *context, uint64_t offset,
				uint64_t compare, uint64_t swap,
				uint64_t *before)
{
	struct raw *raw = context;

	atomic_compare_exchange_strong((_Atomic uint64_t *)(raw->base + offset),
				       &compare, swap);
	*before = compare;
	return 0;
}

workload_inline int raw_shm_faa(void *context, uint64_t offset, uint64_t add,
				uint64_t *before)
{
	struct raw *raw = context;

	*before =
		atomic_fetch_add((_Atomic uint64_t *)(raw->base + offset), add);
	return 0;
}

static const struct workload_ops raw_shm_ops = {
	.read = raw_shm_read,
	.read_batch = raw_shm_read_batch,
	.write = raw_shm_write,
	.cas = raw_shm_cas,
	.faa = raw_shm_faa,
};

static int raw_shm_open(struct driver_pair *pair, struct raw *raw)
{
	int rc = driver_state(&raw->state, pair->options.size);

	if (rc)
		return rc;
	raw->base = driver_memory(pair);
	if (!raw->base)
		return -ENOMEM;
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "a plain loop over %s mapped memory",
		 pair->options.shared ? "the same" : "its own");
	return workload_sweep(&raw_shm_ops, raw, &raw->state);
}

/* --- tcp --- */

/* Receive exactly that much. */
static int receive_all(struct raw *raw, void *bytes, size_t size)
{
	char *to = bytes;

	while (size > 0) {
		ssize_t n = recv(raw->fd, to, size, raw->flags);

		if (n > 0) {
			to += n;
			size -= (size_t)n;
		} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			return -EPIPE;
		}
	}
	return 0;
}

static int ask(struct raw *raw, const struct question *question, void *to)
{
	size_t size = QUESTION_SIZE(question->count);

	if (send(raw->fd, question, size, MSG_NOSIGNAL) != (ssize_t)size)
		return -EPIPE;
	return receive_all(raw, to, question->count * question->length);
}

static int raw_tcp_read(void *context, uint64_t offset, void *to,
			uint32_t length)
{
	struct question question = {1, length, {offset}};

	return ask(context, &question, to);
}

static int raw_tcp_read_batch(void *context, const uint64_t *offsets, void *to)
{
	struct question question = {WORKLOAD_BATCH_MAX, WORKLOAD_LINE, {0}};

	memcpy(question.offsets, offsets, sizeof(question.offsets));
	return ask(context, &question, to);
}

/* The tcp cases read only. */
static int raw_tcp_write(void *context, uint64_t offset, const void *from,
			 uint32_t length)
{
	return -ENOSYS;
}

static int raw_tcp_cas(void *context, uint64_t offset, uint64_t compare,
		       uint64_t swap, uint64_t *before)
{
	return -ENOSYS;
}

static int raw_tcp_faa(void *context, uint64_t offset, uint64_t add,
		       uint64_t *before)
{
	return -ENOSYS;
}

static const struct workload_ops raw_tcp_ops = {
	.read = raw_tcp_read,
	.read_batch = raw_tcp_read_batch,
	.write = raw_tcp_write,
	.cas = raw_tcp_cas,
	.faa = raw_tcp_faa,
};

static void answer(struct raw *raw, const struct question *question)
{
	struct iovec parts[WORKLOAD_BATCH_MAX];
	struct msghdr message = {.msg_iov = parts,
				 .msg_iovlen = question->count};

	for (uint32_t i = 0; i < question->count; i++)
		parts[i] = (struct iovec){raw->base + question->offsets[i],
					  question->length};
	/* The socket's buffer is larger than any answer. */
	sendmsg(raw->fd, &message, MSG_NOSIGNAL);
}

static void raw_progress(struct driver_pair *pair, enum workload_mode mode)
{
	struct raw *raw = pair->context;
	struct question question;
	ssize_t n;

	raw->flags = mode == WORKLOAD_SLEEP ? 0 : MSG_DONTWAIT;
	n = recv(raw->fd, &question, sizeof(question), raw->flags);
	if (n < (ssize_t)QUESTION_SIZE(0))
		return;
	if (question.count > WORKLOAD_BATCH_MAX ||
	    receive_all(raw, (char *)&question + n,
			QUESTION_SIZE(question.count) - (size_t)n))
		return;
	answer(raw, &question);
}

static int raw_tcp_target(struct driver_pair *pair)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	/* Asleep, but not for ever: the end of a round is no message. */
	struct timeval patience = {.tv_usec = 10000};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
	struct raw raw = {.base = driver_memory(pair)};
	int rc;

	if (!raw.base)
		return -ENOMEM;
	if (listener < 0 || bind(listener, (void *)&address, size) ||
	    listen(listener, 1) ||
	    getsockname(listener, (void *)&address, &size))
		return -errno;
	rc = driver_send(pair, &address, sizeof(address));
	if (rc)
		return rc;
	raw.fd = accept(listener, NULL, NULL);
	if (raw.fd < 0)
		return -errno;
	close(listener);
	setsockopt(raw.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(raw.fd, SOL_SOCKET, SO_RCVTIMEO, &patience,
		   sizeof(patience));
	pair->context = &raw;
	driver_target_loop(pair, raw_progress);
	return 0;
}

static int raw_tcp_open(struct driver_pair *pair, struct raw *raw)
{
	struct sockaddr_in address;
	int rc, one = 1;

	rc = driver_fork(pair, raw_tcp_target);
	rc = rc ? rc : driver_state(&raw->state, pair->options.size);
	rc = rc ? rc : driver_receive(pair, &address, sizeof(address));
	if (rc)
		return rc;
	raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (raw->fd < 0 || connect(raw->fd, (void *)&address, sizeof(address)))
		return -errno;
	setsockopt(raw->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	strcpy(pair->description, "TCP ping-pong on 127.0.0.1");
	return 0;
}

/* --- the driver --- */

static int raw_open(struct driver_pair *pair)
{
	struct raw *raw = calloc(1, sizeof(*raw));

	if (!raw)
		return -ENOMEM;
	pair->context = raw;
	if (strcmp(pair->options.fabric, "tcp") == 0)
		return raw_tcp_open(pair, raw);
	return raw_shm_open(pair, raw);
}

static int raw_run(struct driver_pair *pair, const char *name, double seconds,
		   double *rate)
{
	const struct workload *workload = workload_find(name);
	struct raw *raw = pair->context;

	if (!workload || workload->mode == WORKLOAD_FIBERS)
		return -ENOSYS;
	raw->flags = workload->mode == WORKLOAD_SLEEP ? 0 : MSG_DONTWAIT;
	if (strcmp(pair->options.fabric, "tcp") == 0)
		return workload_run(workload, &raw_tcp_ops, raw, &raw->state,
				    seconds, rate);
	return workload_run(workload, &raw_shm_ops, raw, &raw->state, seconds,
			    rate);
}

const struct driver fabric_raw_driver = {
	.name = "raw",
	.open = raw_open,
	.run = raw_run,
};
