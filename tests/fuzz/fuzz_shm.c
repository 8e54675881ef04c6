/* fuzz_shm.c - what a peer of shm may say, and pass, once it is welcomed, on
 * either side.
 *
 * Input: which side, then frames: type, tag, what to pass with it (nothing,
 * sealed memory, memory that is not sealed, no memory at all), a length, and
 * that many bytes of payload. The frames themselves are well formed: fuzz_frame
 * is about the others. A payload that begins with 'K' has the key of a region
 * in the place of its first 8 bytes, and an ATTACHED the right domain, which no
 * fuzzer would guess; unless the bit of WRONG is set in what to pass.
 *
 * With the bit of SCRIBBLE the payload is not sent, but written into the sealed
 * memory, as what a ring has: tail, asleep, and the entries' lengths.
 *
 * On the connecting side two attaches are under way, with tags 1 and 2; what
 * they end with is read and written from end to end. Then short messages are
 * sent. */
#include "fuzz.h"

#include "fabric/shm/shm.h"
#include "fabric/socket.h"
#include "wire/bytes.h"
#include "wire/control.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE 8192u
#define KEY 5u
#define STEPS 1000
#define WRONG 0x80
#define SCRIBBLE 0x40

static struct reef_fabric *fabric;
static struct reef_queue *queue;
static struct reef_listener *listener;
static struct reef_region *region;
static char address[64];
static int evil_listener;
static int passed[4]; /* by what an input names */

static const struct reef_hello_local local = {
	.fabric = "shm",
	.domain = 1,
	.ops_max = 1,
	.length_max = 1,
	.message_max = 1024,
};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)identity;
	(void)session;
	memset(key, 7, REEF_KEY_SIZE);
	return 0;
}

static struct reef_connect_options connect_options(void)
{
	struct reef_connect_options options = {
		.session = 0x10001,
		.identity = "fuzz",
		.short_messages = true,
	};

	memset(options.key, 7, REEF_KEY_SIZE);
	return options;
}

static int make_memfd(int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	FUZZ_CHECK(fd >= 0 && !ftruncate(fd, SIZE));
	FUZZ_CHECK(!seals || !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static void open_all(void)
{
	struct reef_fabric_options options = {.message_max = 200};
	struct reef_memory_options memory_options = {.size = SIZE};
	struct reef_listen_options listen_options = {.credential = credential};
	struct reef_address parsed;
	struct reef_memory *memory;
	char evil[80];

	passed[0] = -1;
	passed[1] = make_memfd(F_SEAL_SHRINK | F_SEAL_GROW);
	passed[2] = make_memfd(0);
	passed[3] = open("/dev/null", O_RDWR | O_CLOEXEC | O_NONBLOCK);
	snprintf(address, sizeof(address), "shm:@reef-fuzz-%d", (int)getpid());
	snprintf(evil, sizeof(evil), "%s-evil", address + 4);
	FUZZ_CHECK(!reef_fabric_open("shm", &options, &fabric));
	FUZZ_CHECK(!reef_queue_open(fabric, NULL, &queue));
	FUZZ_CHECK(!reef_memory_create(&memory_options, &memory));
	FUZZ_CHECK(!reef_expose(fabric, memory, &region));
	FUZZ_CHECK(!reef_listen(queue, address, &listen_options, &listener));
	FUZZ_CHECK(!reef_address_parse_unix(evil, &parsed));
	evil_listener = reef_socket_listen(&parsed, NULL);
	FUZZ_CHECK(evil_listener >= 0);
}

static void step_hello(struct reef_hello *hello)
{
	struct reef_hello_peer peer;
	int i, rc = -EAGAIN;

	for (i = 0; rc == -EAGAIN && i < STEPS; i++) {
		reef_poll(queue);
		rc = reef_hello_step(hello, &peer);
	}
	FUZZ_CHECK(!rc);
	reef_hello_destroy(hello);
	reef_poll(queue);
}

/* A raw peer of our own node. */
static struct reef_stream *join_node(void)
{
	struct reef_connect_options options = connect_options();
	struct reef_address parsed;
	struct reef_stream *stream;
	struct reef_hello *hello;

	FUZZ_CHECK(!reef_address_parse_unix(address + 4, &parsed));
	FUZZ_CHECK(!reef_stream_create(reef_socket_connect(&parsed), 4096,
				       &stream));
	FUZZ_CHECK(!reef_hello_connect(stream, &local, &options, &hello));
	step_hello(hello);
	return stream;
}

/* A raw node, which a link of ours has joined. */
static struct reef_stream *be_joined(struct reef_link **link)
{
	struct reef_connect_options options = connect_options();
	struct reef_listen_options listen_options = {.credential = credential};
	uint8_t bytes[8] = {0};
	struct iovec part = {bytes, sizeof(bytes)};
	struct reef_stream *stream;
	struct reef_hello *hello;
	char evil[80];

	snprintf(evil, sizeof(evil), "%s-evil", address);
	FUZZ_CHECK(!fabric->top->ops.connect(fabric->top, queue, evil, &options,
					     link));
	FUZZ_CHECK(!reef_stream_create(reef_socket_accept(evil_listener), 4096,
				       &stream));
	FUZZ_CHECK(!reef_hello_accept(stream, &local, &listen_options, NULL,
				      NULL, &hello));
	step_hello(hello);
	FUZZ_CHECK(!reef_stream_send(stream, REEF_FRAME_CONTROL, 0, &part, 1,
				     passed[1]));
	reef_poll(queue);
	FUZZ_CHECK(!reef_link_status(*link));
	return stream;
}

/* Write the input's words into the ring, which is as ring.c lays it out. */
static void scribble(const uint8_t *bytes, size_t size)
{
	uint8_t words[24] = {0};
	off_t at;

	if (size)
		memcpy(words, bytes,
		       size < sizeof(words) ? size : sizeof(words));
	FUZZ_CHECK(pwrite(passed[1], words, 8, 0) == 8);
	FUZZ_CHECK(pwrite(passed[1], words + 8, 4, 128) == 4);
	for (at = SIZE / 2; at < (off_t)SIZE; at += 128)
		FUZZ_CHECK(pwrite(passed[1], words + 12, 8, at) == 8);
}

static void send_frames(struct reef_stream *stream, struct fuzz_input *input)
{
	struct reef_frame frame;
	uint8_t payload[256];
	struct iovec part = {payload, 0};
	uint8_t type, tag, what;

	while (input->size) {
		type = fuzz_take(input);
		tag = fuzz_take(input);
		what = fuzz_take(input);
		part.iov_len = fuzz_take(input);
		if (part.iov_len > input->size)
			part.iov_len = input->size;
		memcpy(payload, input->bytes, part.iov_len);
		input->bytes += part.iov_len;
		input->size -= part.iov_len;
		if (part.iov_len >= 8 && payload[0] == 'K')
			reef_put64(payload, reef_region_key(region));
		if (type == REEF_FRAME_ATTACHED && part.iov_len >= 32 &&
		    !(what & WRONG))
			reef_put64(payload + 24, fabric->domain);
		if (what & SCRIBBLE) {
			scribble(payload, part.iov_len);
			part.iov_len = 0;
		}
		if (!type || type >= REEF_FRAME_TYPES ||
		    reef_stream_send(stream, type, tag, &part, 1,
				     passed[what % 4]))
			break; /* a RING, say, with what was just written */
		reef_poll(queue);
		while (!reef_stream_receive(stream, &frame))
			if (frame.fd >= 0)
				close(frame.fd);
	}
}

static void drop_messages(void)
{
	struct reef_message *message;

	reef_poll(queue);
	while (!reef_receive(queue, 0, &message)) {
		FUZZ_CHECK(message->length <= 200);
		reef_message_free(message);
	}
}

static void try_node(struct fuzz_input *input)
{
	struct shm_fabric *shm = shm_of(fabric);
	struct reef_stream *stream = join_node();
	int i;

	send_frames(stream, input);
	reef_stream_destroy(stream);
	for (i = 0; i < STEPS && shm->links; i++)
		drop_messages();
	/* The link is gone, and nothing of it stays. */
	FUZZ_CHECK(!shm->links && !shm->peers && !shm->accepted &&
		   !shm->half_open);
	FUZZ_CHECK(!((struct shm_region *)region)->holds);
}

/* Read and write all of a remote that is said to be usable. */
static void use_remote(struct reef_remote *remote)
{
	static uint8_t bytes[SIZE];
	struct reef_op ops[] = {
		{.kind = REEF_READ, .remote = remote, .local = bytes},
		{.kind = REEF_WRITE, .remote = remote, .local = bytes},
	};
	struct reef_batch batch = {
		.link = remote->link,
		.ops = ops,
		.count = 2,
	};

	if (remote->state)
		return;
	FUZZ_CHECK(remote->size <= SIZE);
	ops[0].length = ops[1].length = (uint32_t)remote->size;
	/* A withdrawal may have come since. */
	reef_run(queue, &batch);
}

static void send_short(struct reef_link *link)
{
	static uint8_t bytes[100];
	struct reef_op op = {
		.kind = REEF_SEND, .local = bytes, .length = sizeof(bytes)};
	struct reef_batch batch = {.link = link, .ops = &op, .count = 1};
	int i;

	for (i = 0; i < 40; i++)
		if (reef_post(queue, &batch) != 1)
			break;
}

static void try_link(struct fuzz_input *input)
{
	struct reef_remote *remotes[2];
	struct reef_stream *stream;
	struct reef_link *link;
	int i;

	stream = be_joined(&link);
	for (i = 0; i < 2; i++)
		FUZZ_CHECK(!fabric->top->ops.attach(fabric->top, queue, link,
						    KEY, &remotes[i]));
	send_frames(stream, input);
	for (i = 0; i < 2; i++)
		use_remote(remotes[i]);
	send_short(link);
	reef_stream_destroy(stream);
	for (i = 0; i < STEPS && !reef_link_status(link); i++)
		drop_messages();
	FUZZ_CHECK(reef_link_status(link));
	for (i = 0; i < 2; i++)
		FUZZ_CHECK(remotes[i]->state < 0);
	reef_link_close(link);
	drop_messages();
	FUZZ_CHECK(!shm_of(fabric)->links && !shm_of(fabric)->peers);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};

	if (!fabric)
		open_all();
	scribble(NULL, 0);
	if (fuzz_take(&input) & 1)
		try_node(&input);
	else
		try_link(&input);
	return 0;
}
