/* fuzz_link.c - all that a tcp link hears once it is welcomed, on either side.
 *
 * Input: which side, how many bytes to send at a time, and what the peer says.
 * On the connecting side batches are under way, so that answers mean
 * something; on the accepting side key 1 in a batch or an ATTACH is nobody's.
 */
#include "fuzz.h"

#include "fabric/tcp/tcp.h"

#include <sys/socket.h>
#include <unistd.h>

#define BATCHES 3
#define OPS 4

static struct reef_fabric *fabric;
static struct reef_queue *queue;
static struct tcp_listener listener;

struct questions {
	struct tcp_remote remote;
	struct reef_batch batches[BATCHES];
	struct reef_op ops[BATCHES][OPS];
	uint8_t *local[BATCHES][OPS]; /* just as long as it has to be */
};

static void open_fabric(void)
{
	struct reef_fabric_options options = {
		.ops_max = 8, .length_max = 9000, .message_max = 200};

	FUZZ_CHECK(reef_fabric_open("tcp", &options, &fabric) == 0);
	FUZZ_CHECK(reef_queue_open(fabric, NULL, &queue) == 0);
	listener.base.fabric = fabric;
	listener.base.queue = queue;
}

static struct tcp_link *open_link(bool accepted, int *other)
{
	struct tcp_fabric *tcp = (struct tcp_fabric *)fabric;
	struct reef_hello_peer peer = {
		.ops_max = 8, .length_max = 9000, .message_max = 200};
	struct reef_stream *stream;
	struct tcp_link *link;
	int fds[2];

	FUZZ_CHECK(socketpair(AF_UNIX,
			      SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
			      fds) == 0);
	FUZZ_CHECK(reef_stream_create(fds[0], 1024, &stream) == 0);
	FUZZ_CHECK(tcp_link_create(tcp, queue, 5, 0, "fuzz", &link) == 0);
	if (accepted) {
		link->base.listener = &listener.base;
		atomic_fetch_add(&tcp->accepted, 1);
	}
	pthread_mutex_lock(&tcp->lock);
	tcp_link_list(link);
	pthread_mutex_unlock(&tcp->lock);
	FUZZ_CHECK(tcp_link_begin(link, stream, &peer) == 0);
	reef_stream_destroy(stream);
	reef_link_opened(queue, &link->base);
	reef_poll(queue);
	*other = fds[1];
	return link;
}

static void post_batches(struct tcp_link *link, struct questions *questions)
{
	static const struct reef_op all[OPS] = {
		{.kind = REEF_READ, .length = 24},
		{.kind = REEF_FAA},
		{.kind = REEF_READ, .length = 9000},
		{.kind = REEF_CAS},
	};

	questions->remote.base = (struct reef_remote){
		.link = &link->base, .key = 1, .size = 1u << 20};
	for (int i = 0; i < BATCHES; i++) {
		for (int j = 0; j < OPS; j++) {
			questions->ops[i][j] = all[(i + j) % OPS];
			questions->ops[i][j].remote = &questions->remote.base;
			if (!questions->local[i][j])
				questions->local[i][j] =
					malloc(all[(i + j) % OPS].length + 1u);
			questions->ops[i][j].local = questions->local[i][j] + 1;
		}
		questions->batches[i] = (struct reef_batch){
			.link = &link->base,
			.ops = questions->ops[i],
			.count = OPS,
		};
		FUZZ_CHECK(reef_post(queue, &questions->batches[i]) == 0);
	}
}

static void drop_messages(void)
{
	struct reef_message *message;

	while (reef_receive(queue, 0, &message) == 0) {
		FUZZ_CHECK(message->length <= 200);
		reef_message_free(message);
	}
}

static bool has_watches(void)
{
	return ((struct tcp_queue *)queue)->watches;
}

static bool has_lingers(void)
{
	return ((struct tcp_queue *)queue)->lingers;
}

/* Send the input piece by piece, and read what comes back. */
static void send_pieces(int other, struct fuzz_input *input, size_t piece)
{
	static uint8_t heard[65536];
	ssize_t n;

	while (input->size) {
		n = send(other, input->bytes,
			 input->size < piece ? input->size : piece,
			 MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n <= 0)
			break;
		input->bytes += n;
		input->size -= (size_t)n;
		reef_poll(queue);
		while (recv(other, heard, sizeof(heard), MSG_DONTWAIT) > 0)
			;
	}
	close(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	static struct questions questions;
	struct fuzz_input input = {bytes, size};
	bool accepted = fuzz_take(&input) & 1;
	size_t piece = (size_t)fuzz_take(&input) * 16 + 1;
	struct tcp_link *link;
	int other;

	/* Pieces are not too many: each is a system call. */
	if (piece < input.size / 100)
		piece = input.size / 100;
	if (!fabric)
		open_fabric();
	link = open_link(accepted, &other);
	if (!accepted)
		post_batches(link, &questions);
	send_pieces(other, &input, piece);
	/* The connection is closed, so the link ends, and nothing stays behind:
	 * else the leak checker would search after every input. */
	for (int i = 0; i < 100 && (has_watches() || has_lingers()); i++) {
		reef_poll(queue);
		drop_messages();
	}
	if (!accepted) {
		FUZZ_CHECK(reef_link_status(&link->base) != 0);
		reef_link_close(&link->base);
		reef_poll(queue);
		for (int i = 0; i < BATCHES; i++)
			FUZZ_CHECK(questions.batches[i].done);
	}
	FUZZ_CHECK(!has_watches() && !has_lingers());
	FUZZ_CHECK(atomic_load(&((struct tcp_fabric *)fabric)->accepted) == 0);
	return 0;
}
