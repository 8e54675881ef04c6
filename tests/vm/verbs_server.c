/* verbs_server.c - see verbs_server.h. */
#include "verbs_server.h"

#include "check.h"
#include "device_shim.h"
#include "fabric/provider.h"
#include "fixture/units.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const uint8_t server_key[REEF_KEY_SIZE] = "the key of test_verbs";
const struct reef_fabric_options server_options = {.silence_ns = 15 * SECOND};

const char *server_variable(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value ? value : otherwise;
}

struct server {
	struct reef_fabric *fabric;
	struct reef_queue *queue;
	struct reef_memory *memory[16];
	struct reef_region *region[16];
	uint32_t count;
	uint32_t counted; /* a session; 0: none */
	uint64_t messages, closed;
	uint64_t nap_ns;
	bool quit;
};

static int credential(void *context, const char *identity, uint32_t session,
		      uint8_t key[REEF_KEY_SIZE])
{
	(void)context;
	(void)session;
	if (strcmp(identity, "test") != 0)
		return -REEF_EAUTH;
	memcpy(key, server_key, REEF_KEY_SIZE);
	return 0;
}

void send_bytes(struct reef_queue *queue, struct reef_link *link, void *bytes,
		uint32_t length)
{
	struct reef_op op = {
		.kind = REEF_SEND, .local = bytes, .length = length};
	struct reef_batch batch = {.link = link, .ops = &op, .count = 1};

	reef_run(queue, &batch);
}

static void expose(struct server *server, uint64_t size, struct answer *answer)
{
	struct reef_memory_options wanted = {
		.size = size, .domain = reef_fabric_domain(server->fabric)};
	uint32_t i = server->count++ % 16;

	answer->result = reef_memory_create(&wanted, &server->memory[i]);
	if (!answer->result)
		answer->result = reef_expose(server->fabric, server->memory[i],
					     &server->region[i]);
	if (!answer->result)
		answer->value = reef_region_key(server->region[i]);
}

/* The index of the region with this key. */
static int find_region(const struct server *server, uint64_t key)
{
	int i;

	for (i = 0; i < 16; i++)
		if (server->region[i] &&
		    reef_region_key(server->region[i]) == key)
			return i;
	die(__FILE__, __LINE__, "no such region", 0, 0);
	return -1;
}

static void withdraw(struct server *server, uint64_t key, struct answer *answer)
{
	int i = find_region(server, key);

	answer->result = reef_withdraw(server->queue, server->region[i],
				       20 * MILLISECOND);
	if (!answer->result) {
		server->region[i] = NULL;
		reef_memory_destroy(server->memory[i]);
	}
}

static void obey_order(struct server *server, const struct order *order,
		       struct answer *answer)
{
	switch (order->what) {
	case EXPOSE:
		expose(server, order->a, answer);
		break;
	case WITHDRAW:
		withdraw(server, order->a, answer);
		break;
	case FENCE:
		answer->result =
			reef_fence(server->queue, (uint32_t)order->a, SECOND);
		break;
	case LOAD:
		memcpy(&answer->value,
		       (char *)server->memory[find_region(server, order->a)]
				       ->base +
			       order->b,
		       8);
		break;
	case CUT:
		server->quit = true;
		if (system("/bin/ip link set eth0 down"))
			answer->result = -1;
		break;
	case DIE:
		raise(SIGKILL);
		break;
	case QUIT:
		server->quit = true;
		break;
	case NAP:
		server->counted = (uint32_t)order->b;
		server->nap_ns = order->a;
		server->messages = 0;
		break;
	case CLOSED:
		answer->value = server->closed;
		break;
	case COUNT:
		answer->value = server->messages;
		break;
	}
}

/* What comes meanwhile is not announced: a queue that was not told to announce
 * looks at its channels first, and at completions then. */
static void take_nap(struct server *server)
{
	for (int i = 0; i < 10; i++) { /* what was announced before */
		reef_sleep(5 * MILLISECOND);
		reef_poll(server->queue);
	}
	reef_sleep(server->nap_ns);
	server->nap_ns = 0;
}

static void note_closed(void *context, struct reef_link *link, int reason)
{
	struct server *server = context;

	(void)link;
	(void)reason;
	server->closed++;
}

static void handle_message(struct server *server, struct reef_message *message)
{
	struct answer answer = {0};
	struct order order;

	if (message->session == server->counted) {
		server->messages++;
		return;
	}
	if (message->session != BOSS) { /* back to where it came from */
		send_bytes(server->queue, message->link, message->bytes,
			   message->length);
		return;
	}
	memcpy(&order, message->bytes, sizeof(order));
	obey_order(server, &order, &answer);
	if (message->link)
		send_bytes(server->queue, message->link, &answer,
			   sizeof(answer));
	if (server->nap_ns)
		take_nap(server);
}

int server_main(void)
{
	struct server server = {0};
	struct reef_listen_options listen = {
		.credential = credential,
		.closed = note_closed,
		.context = &server,
	};
	struct reef_listener *listener;
	struct reef_message *message;
	char address[64];

	snprintf(address, sizeof(address), "verbs:%s:%d",
		 server_variable("REEF_VM_ADDRESS", "127.0.0.1"), PORT);
	CHECK_EQ(reef_fabric_open("verbs", &server_options, &server.fabric), 0);
	device_shim_open(server.fabric);
	CHECK_EQ(reef_queue_open(server.fabric, NULL, &server.queue), 0);
	CHECK_EQ(reef_listen(server.queue, address, &listen, &listener), 0);
	while (!server.quit) {
		if (reef_receive(server.queue, SECOND, &message))
			continue;
		handle_message(&server, message);
		reef_message_free(message);
	}
	/* The last answer is still on its way. */
	reef_queue_wait(server.queue, SECOND);
	reef_listener_close(listener);
	reef_queue_close(server.queue);
	reef_fabric_close(server.fabric);
	return 0;
}
