/* fuzz_frame.c - frames before and after WELCOME, and both sides of the hello.
 *
 * Input: a mode, how many bytes to send at a time, and then
 *   RECEIVE   what a stream hears (WELCOMED: after the hello)
 *   ACCEPT    what an accepting side hears
 *   CONNECT   what a connecting side hears
 *   *_TLS     the same, where TLS is asked for
 *   MIDDLE    changes to what two good sides say to each other: frame, place,
 *             change; so that proofs are reached that no fuzzer could guess
 */
#include "fuzz.h"

#include "fabric/stream.h"
#include "wire/hello.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum mode {
	RECEIVE,
	WELCOMED,
	ACCEPT,
	CONNECT,
	MIDDLE,
	ACCEPT_TLS,
	CONNECT_TLS,
	MODES
};

#define PAYLOAD_MAX 4096

static const struct reef_hello_local local = {.fabric = "tcp",
					      .domain = 1,
					      .ops_max = 1,
					      .length_max = 1,
					      .message_max = 1};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	FUZZ_CHECK(session && strlen(identity) <= REEF_IDENTITY_MAX);
	memset(key, 3, REEF_KEY_SIZE);
	return identity[0] == 'x' ? -ENOENT : 0;
}

static struct reef_stream *open_stream(int *other)
{
	struct reef_stream *stream;
	int fds[2];

	FUZZ_CHECK(socketpair(AF_UNIX,
			      SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
			      fds) == 0);
	FUZZ_CHECK(reef_stream_create(fds[0], PAYLOAD_MAX, &stream) == 0);
	*other = fds[1];
	return stream;
}

static struct reef_hello *open_hello(struct reef_stream *stream, bool accept,
				     bool tls)
{
	struct reef_hello_local us = local;
	struct reef_listen_options listen = {.credential = credential};
	struct reef_connect_options connect = {.session = 5,
					       .identity = "fuzz"};
	struct reef_hello *hello;

	memset(connect.key, 3, sizeof(connect.key));
	us.tls = tls;
	FUZZ_CHECK((accept ? reef_hello_accept(stream, &us, &listen, NULL, NULL,
					       &hello)
			   : reef_hello_connect(stream, &us, &connect,
						&hello)) == 0);
	return hello;
}

/* Feed a stream piece by piece, with `step` after each. Returns when step says
 * that it is over, or when all was fed. */
static void feed_pieces(struct reef_stream *stream, int other,
			struct fuzz_input *input, size_t piece,
			int (*step)(struct reef_stream *stream, void *arg),
			void *arg)
{
	ssize_t n;

	while (input->size) {
		n = send(other, input->bytes,
			 input->size < piece ? input->size : piece,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n <= 0)
			return;
		input->bytes += n;
		input->size -= (size_t)n;
		if (step(stream, arg) != -EAGAIN)
			return;
	}
	shutdown(other, SHUT_WR);
	FUZZ_CHECK(step(stream, arg) != -EAGAIN);
}

static int step_receive(struct reef_stream *stream, void *arg)
{
	const uint32_t *max = arg;
	struct reef_frame frame;
	volatile uint8_t sum = 0;
	int rc;

	while ((rc = reef_stream_receive(stream, &frame)) == 0) {
		FUZZ_CHECK(frame.length <= *max && frame.fd < 0);
		FUZZ_CHECK(frame.type && frame.type < REEF_FRAME_TYPES);
		for (uint32_t i = 0; i < frame.length; i++)
			sum = (uint8_t)(sum + frame.payload[i]);
		FUZZ_CHECK(frame.type != REEF_FRAME_BYE ||
			   reef_frame_bye_reason(&frame) < 0);
	}
	return rc;
}

static int step_hello(struct reef_stream *stream, void *arg)
{
	struct reef_hello_peer peer;
	int rc = reef_hello_step(arg, &peer);

	(void)stream;
	/* Nobody who knows no key is welcomed. */
	FUZZ_CHECK(rc < 0);
	return rc;
}

static void one_side(enum mode mode, struct fuzz_input *input, size_t piece)
{
	uint32_t max = mode == WELCOMED ? PAYLOAD_MAX : REEF_HELLO_FRAME_MAX;
	struct reef_hello *hello = NULL;
	struct reef_stream *stream;
	int other;

	stream = open_stream(&other);
	if (mode == WELCOMED)
		reef_stream_welcome(stream);
	if (mode == ACCEPT || mode == CONNECT)
		hello = open_hello(stream, mode == ACCEPT, false);
	if (mode == ACCEPT_TLS || mode == CONNECT_TLS)
		hello = open_hello(stream, mode == ACCEPT_TLS, true);
	if (hello)
		feed_pieces(stream, other, input, piece, step_hello, hello);
	else
		feed_pieces(stream, other, input, piece, step_receive, &max);
	reef_hello_destroy(hello);
	reef_stream_destroy(stream);
	close(other);
}

/* --- in the middle --- */

struct change {
	uint8_t frame, place, value;
};

/* Carry one frame over, changed. False: there was none. */
static bool carry_frame(int from, int to, int number,
			const struct change *changes, int count, bool *changed)
{
	uint8_t bytes[2048];
	ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n <= 0)
		return false;
	for (int i = 0; i < count; i++)
		if (changes[i].frame % 4 == number && changes[i].place < n &&
		    changes[i].value) {
			bytes[changes[i].place] ^= changes[i].value;
			*changed = !*changed || changes[i].value != 0;
		}
	return send(to, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n;
}

static void middle(struct fuzz_input *input)
{
	struct change changes[4] = {{0}};
	struct reef_stream *streams[2];
	struct reef_hello *hellos[2];
	struct reef_hello_peer peer;
	int others[2], result[2] = {-EAGAIN, -EAGAIN}, count = 0;
	bool changed = false;

	/* At most one change to a byte, so that none undoes another. */
	while (input->size && count < 1) {
		changes[count].frame = fuzz_take(input);
		changes[count].place = fuzz_take(input);
		changes[count++].value = fuzz_take(input);
	}
	for (int i = 0; i < 2; i++) {
		streams[i] = open_stream(&others[i]);
		hellos[i] = open_hello(streams[i], i == 1, false);
	}
	for (int number = 0; number < 4; number++) {
		int from = number % 2, to = !from;

		if (!carry_frame(others[from], others[to], number, changes,
				 count, &changed))
			break;
		result[to] = reef_hello_step(hellos[to], &peer);
		if (result[to] != -EAGAIN && result[to] != 0)
			break;
	}
	/* The connecting side is the last to judge. */
	FUZZ_CHECK(changed ? result[0] != 0 : result[0] == 0 && result[1] == 0);
	for (int i = 0; i < 2; i++) {
		reef_hello_destroy(hellos[i]);
		reef_stream_destroy(streams[i]);
		close(others[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	enum mode mode = fuzz_take(&input) % MODES;
	size_t piece = (size_t)fuzz_take(&input) + 1;

	if (mode == MIDDLE)
		middle(&input);
	else
		one_side(mode, &input, piece);
	return 0;
}
