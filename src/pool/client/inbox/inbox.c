/* inbox.c - a handle's inbox: where it listens, who is told of messages.
 *
 *   open     the port listens, the block is written; once for each space
 *   arrival  fabric: queue's messages --take_messages--> watches
 *            itself: the ring `local` --take_messages--> watches
 *
 * (1) Messages are taken where reef_inbox_wait asks whether it is ready, and
 *     nowhere else: so a watch is called while somebody waits, in the handle's
 *     thread. In fibers, every one that waits is woken by whatever happens in
 *     any queue of the port, and the first to run takes all messages; the
 *     others find what their watches have noted.
 * (2) A message is 64 bytes of eight words; anything else is dropped. Words are
 *     not looked at here but for the object.
 * (3) A sender proves the secret that stands in the block. There is one for
 *     each space, under a name of its own, so that who may read one space
 *     cannot knock at another's.
 * (4) A watch may end itself or another from inside its call: `cursor` is where
 *     the walk goes on, and unwatch moves it. */
#include "pool/client/inbox/internal.h"

#include "wire/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITE_TRIES 8 /* of the block's WRITE, while links are lost */

/* --- messages --- */

void inbox_wake_encode(const struct reef_wake *wake,
		       uint8_t bytes[INBOX_MESSAGE_SIZE])
{
	reef_put64(bytes, wake->object);
	reef_put64(bytes + 8, wake->word);
	for (uint32_t i = 0; i < REEF_WAKE_WORDS; i++)
		reef_put64(bytes + 16 + (size_t)8 * i, wake->words[i]);
}

static void decode_wake(const uint8_t bytes[INBOX_MESSAGE_SIZE],
			struct reef_wake *out)
{
	out->object = reef_get64(bytes);
	out->word = reef_get64(bytes + 8);
	for (uint32_t i = 0; i < REEF_WAKE_WORDS; i++)
		out->words[i] = reef_get64(bytes + 16 + (size_t)8 * i);
}

/* Call every watch of the message's object. */
static void notify_watches(struct client_inbox *inbox,
			   const struct reef_wake *wake)
{
	struct reef_watch *watch = inbox->watches;

	while (watch) {
		inbox->cursor = watch->next; /* (4) */
		if (watch->object == wake->object)
			watch->message(watch, wake);
		watch = inbox->cursor;
	}
}

static void take_local(struct client_inbox *inbox)
{
	/* Messages that watches send meanwhile have their turn next time. */
	uint32_t left = inbox->local_count;
	struct reef_wake wake;

	while (left--) {
		wake = inbox->local[inbox->local_first];
		inbox->local_first = (inbox->local_first + 1) % INBOX_LOCAL_MAX;
		inbox->local_count--;
		notify_watches(inbox, &wake);
	}
}

static void take_messages(struct reef *reef)
{
	uint32_t count = reef_mesh_count(reef_port_mesh(reef->port));
	struct reef_message *message;
	struct reef_queue *queue;
	struct reef_wake wake;

	for (uint32_t i = 0; i < count; i++) {
		queue = reef_port_queue(reef->port, i);
		while (atomic_load_explicit(&queue->inbox_count,
					    memory_order_relaxed) &&
		       !reef_receive(queue, 0, &message)) {
			if (message->length == INBOX_MESSAGE_SIZE) {
				decode_wake(message->bytes, &wake);
				notify_watches(&reef->inbox, &wake);
			}
			reef_message_free(message);
		}
	}
	if (reef->inbox.local_count)
		take_local(&reef->inbox);
}

void reef_inbox_watch(struct reef *reef, struct reef_watch *watch)
{
	watch->next = reef->inbox.watches;
	reef->inbox.watches = watch;
}

void reef_inbox_unwatch(struct reef *reef, struct reef_watch *watch)
{
	struct reef_watch **at;

	for (at = &reef->inbox.watches; *at != watch; at = &(*at)->next)
		reef_assert(*at);
	*at = watch->next;
	if (reef->inbox.cursor == watch)
		reef->inbox.cursor = watch->next;
}

/* --- waiting --- */

struct waiting {
	struct reef *reef;
	bool (*ready)(const void *what);
	const void *what;
	bool *is_ready;
};

static bool is_wait_over(const void *what)
{
	const struct waiting *waiting = what;
	struct reef *reef = waiting->reef;

	inbox_links_progress(reef);
	take_messages(reef);
	*waiting->is_ready = waiting->ready(waiting->what);
	return *waiting->is_ready || client_over(reef->client);
}

int reef_inbox_wait(struct reef *reef, bool (*ready)(const void *what),
		    const void *what, uint64_t timeout_ns)
{
	bool is_ready = false;
	const struct waiting waiting = {reef, ready, what, &is_ready};
	int rc;

	if (client_is_forked(reef))
		return -REEF_EFORKED;
	rc = reef_port_wait_until(reef->port, is_wait_over, &waiting,
				  timeout_ns);
	if (is_ready)
		return 0;
	return rc ? rc : client_over(reef->client);
}

void reef_inbox_poke(struct reef *reef)
{
	reef_queue_wake(reef->member.queue);
}

/* --- where to listen --- */

/* Print the address at which to listen in a fabric. Returns its length; 0: this
 * machine has no address there that is known. */
static int print_address(struct reef *reef, uint32_t fabric, char *text,
			 size_t size)
{
	struct reef_client *client = reef->client;
	const char *host = client->hosts[fabric];
	const char *kind = reef_fabric_kind(
		reef_mesh_fabric(client->options.mesh, fabric));
	int length;

	if (!strcmp(kind, "shm")) {
		/* The abstract name space leaves nothing behind. */
		return snprintf(text, size,
				"shm:" INBOX_SHM_PREFIX "%016llx%016llx",
				(unsigned long long)reef_random_next(
					&reef->inbox.random),
				(unsigned long long)reef_random_next(
					&reef->inbox.random));
	}
	pthread_mutex_lock(&client->lock);
	if (!strcmp(kind, "sim")) {
		length = *host ? snprintf(text, size, "sim:%s/0", host) : 0;
	} else {
		if (*client->inbox_host)
			host = client->inbox_host;
		length =
			*host ? snprintf(text, size, "%s:%s:0", kind, host) : 0;
	}
	pthread_mutex_unlock(&client->lock);
	return length;
}

/* The secret of the inbox that a sender names. */
static int find_secret(void *context, const char *identity, uint32_t session,
		       uint8_t key[REEF_KEY_SIZE])
{
	const struct client_inbox *inbox = context;
	const struct inbox_place *place;
	char own[REEF_IDENTITY_MAX + 1];

	(void)session;
	for (place = inbox->places; place; place = place->next) {
		inbox_identity(place->space, own);
		if (!strcmp(identity, own)) {
			memcpy(key, place->secret, REEF_KEY_SIZE);
			return 0;
		}
	}
	return -EACCES;
}

/* Listen at one more fabric's address, too, and append it to text. real: what
 * is listened at, with ports. */
static int try_listen(struct reef *reef, uint32_t fabric,
		      char text[INBOX_ADDRESSES_MAX + 1],
		      char real[INBOX_ADDRESSES_MAX + 1])
{
	const struct reef_listen_options options = {
		.credential = find_secret,
		.context = &reef->inbox,
	};
	size_t used = strlen(text), room = INBOX_ADDRESSES_MAX + 1 - used;
	int length, rc;

	length = print_address(reef, fabric, text + used + 1, room - 1);
	if (length <= 0 || (size_t)length >= room - 1) {
		text[used] = '\0';
		return length > 0 ? -ENAMETOOLONG : -EADDRNOTAVAIL;
	}
	text[used] = ' ';
	/* A port listens at all its addresses or at none: so it begins anew
	 * with one more. */
	reef_port_unlisten(reef->port);
	rc = reef_port_listen(reef->port, text, &options, real,
			      INBOX_ADDRESSES_MAX + 1);
	if (rc) {
		text[used] = '\0';
		if (used && reef_port_listen(reef->port, text, &options, real,
					     INBOX_ADDRESSES_MAX + 1))
			text[0] = '\0';
	}
	return rc;
}

static int listen_everywhere(struct reef *reef)
{
	char text[INBOX_ADDRESSES_MAX + 1] = "";
	char real[INBOX_ADDRESSES_MAX + 1] = "";
	uint32_t count = reef_mesh_count(reef_port_mesh(reef->port));
	int rc = -EADDRNOTAVAIL;

	for (uint32_t i = 0; i < count; i++) {
		rc = try_listen(reef, i, text, real);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
	}
	if (!*text)
		return rc;
	reef->inbox.addresses = strdup(real);
	if (!reef->inbox.addresses) {
		reef_port_unlisten(reef->port);
		return -ENOMEM;
	}
	reef->inbox.is_listening = true;
	return 0;
}

/* --- the end --- */

static void free_block(struct reef *reef, const struct inbox_place *place)
{
	static const uint8_t nothing[INBOX_BLOCK_SIZE];
	struct reef_space *space;

	for (space = reef->spaces; space; space = space->next)
		if (reef_space_id(space) == place->space) {
			/* A block that is only freed could still be read. */
			if (!reef_write(reef, place->address, nothing,
					sizeof(nothing)))
				reef_free(space, place->address, 0);
			return;
		}
	/* The space was closed before: the block ends with the session. */
}

static void inbox_close(struct reef *reef)
{
	struct client_inbox *inbox = &reef->inbox;
	struct inbox_place *place;

	inbox_links_close(reef);
	if (inbox->is_listening)
		reef_port_unlisten(reef->port);
	inbox->is_listening = false;
	while ((place = inbox->places)) {
		inbox->places = place->next;
		free_block(reef, place);
		explicit_bzero(place, sizeof(*place));
		free(place);
	}
}

static void inbox_free(struct reef *reef)
{
	inbox_links_free(reef);
	free(reef->inbox.addresses);
	free(reef->inbox.local);
}

static const struct client_inbox_ops inbox_ops = {
	.close = inbox_close,
	.free = inbox_free,
};

/* --- opening --- */

void inbox_identity(uint32_t space, char text[REEF_IDENTITY_MAX + 1])
{
	snprintf(text, REEF_IDENTITY_MAX + 1, "inbox:%u", space);
}

int inbox_prepare(struct reef *reef)
{
	struct reef_client *client = reef->client;
	uint64_t seed = client->options.seed, number;
	int rc = 0;

	if (reef->inbox.ops)
		return 0;
	if (!seed)
		rc = reef_random_secret(&seed, sizeof(seed));
	if (rc)
		return rc;
	/* Seeds of tests lie close together, and handles are to differ. */
	number = atomic_fetch_add(&client->inboxes_made, 1);
	seed += (((uint64_t)client->session << 32) | number) *
		UINT64_C(0x9e3779b97f4a7c15);
	reef_random_init(&reef->inbox.random, seed);
	reef->inbox.ops = &inbox_ops;
	return 0;
}

static struct inbox_place *find_place(const struct client_inbox *inbox,
				      uint32_t space)
{
	struct inbox_place *place = inbox->places;

	while (place && place->space != space)
		place = place->next;
	return place;
}

static int make_secret(struct reef *reef, uint8_t bytes[INBOX_SECRET_SIZE])
{
	if (!reef->client->options.seed)
		return reef_random_secret(bytes, INBOX_SECRET_SIZE);
	reef_random_fill(&reef->inbox.random, bytes, INBOX_SECRET_SIZE);
	return 0;
}

static int write_block(struct reef_space *space,
		       const struct inbox_place *place)
{
	struct reef *reef = space->reef;
	struct inbox_block block = {
		.session = reef->client->session,
		.domain = reef_domain_cpu(),
	};
	uint8_t bytes[INBOX_BLOCK_SIZE];
	uint32_t tries;
	int rc = 0;

	memcpy(block.secret, place->secret, sizeof(block.secret));
	memcpy(block.addresses, reef->inbox.addresses,
	       strlen(reef->inbox.addresses) + 1);
	inbox_block_encode(&block, bytes);
	for (tries = 0; tries < WRITE_TRIES; tries++) {
		rc = reef_write(reef, place->address, bytes, sizeof(bytes));
		if (rc != -REEF_EINDOUBT)
			break;
	}
	explicit_bzero(&block, sizeof(block));
	explicit_bzero(bytes, sizeof(bytes));
	return rc;
}

static int make_place(struct reef_space *space, struct inbox_place **out)
{
	struct inbox_place *place = calloc(1, sizeof(*place));
	int rc;

	if (!place)
		return -ENOMEM;
	place->space = reef_space_id(space);
	rc = make_secret(space->reef, place->secret);
	if (!rc)
		rc = reef_alloc(space, INBOX_BLOCK_SIZE, &place->address);
	if (!rc) {
		rc = write_block(space, place);
		if (rc)
			reef_free(space, place->address, 0);
	}
	if (rc) {
		free(place);
		return rc;
	}
	*out = place;
	return 0;
}

int reef_inbox_open(struct reef_space *space, uint64_t *address)
{
	struct reef *reef = space->reef;
	struct client_inbox *inbox = &reef->inbox;
	struct inbox_place *place, *made;
	int rc;

	rc = client_handle_check(reef);
	if (!rc)
		rc = inbox_prepare(reef);
	if (!rc && !inbox->is_listening)
		rc = listen_everywhere(reef);
	if (rc)
		return rc;
	place = find_place(inbox, reef_space_id(space));
	if (!place) {
		rc = make_place(space, &made);
		if (rc)
			return rc;
		/* Another fiber may have been quicker. */
		place = find_place(inbox, reef_space_id(space));
		if (place) {
			reef_free(space, made->address, 0);
			free(made);
		} else {
			place = made;
			place->next = inbox->places;
			inbox->places = place;
		}
	}
	*address = place->address;
	return 0;
}
