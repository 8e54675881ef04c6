/* send.c - links from a handle to others' inboxes.
 *
 *   (none) --send: READ the block--> OPENING --poll: up--> UP
 *      ^                                | down: the next address, or
 *      |                                v
 *      +---- RETRY_NS have passed --- FAILED        UP --down--> (none)
 *
 * (1) Whoever sends first waits for the link a moment, PATIENCE_NS: then its
 *     message is out. A receiver that does not poll meanwhile lets the link be
 *     made later, whenever both ends poll; messages wait for that, a few.
 * (2) A message that was posted belongs to the fabric; nobody waits for its
 *     end. SENDS_MAX are under way at once; what is over that is not sent.
 * (3) At most inbox_links_max links: the one that was used longest ago makes
 *     room, unless a fiber is sending over it just now (`users`).
 * (4) A link's session is a number of its own, so that it ends no link but its
 *     own predecessor. */
#include "pool/client/inbox/internal.h"

#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 256
#define BUCKETS 64
#define SENDS_MAX 512
#define PENDING_MAX 16
#define PATIENCE_NS (20 * CLIENT_MILLISECOND)
#define OPENING_NS (3 * CLIENT_SECOND) /* at one address */
#define RETRY_NS (200 * CLIENT_MILLISECOND)
#define CLOSING_NS (20 * CLIENT_MILLISECOND)
#define POLL_NS CLIENT_MILLISECOND /* how old the news of a link may be */
#define TRIES 2

enum link_state { NEW, OPENING, UP, FAILED };

struct inbox_link {
	uint64_t address; /* of the inbox */
	enum link_state state;
	uint32_t users, under_way;
	bool is_closed;	  /* freed with the last message under way */
	uint32_t session; /* (4) */
	uint32_t rank;	  /* which of its addresses is tried */
	int why;	  /* the error, if FAILED */
	uint64_t since_ns, polled_ns;
	uint64_t used; /* links->uses, when it was used last */
	struct reef_link *link;
	struct reef_queue *queue;
	struct inbox_block block;
	char identity[REEF_IDENTITY_MAX + 1];
	uint32_t pending_count;
	struct reef_wake pending[PENDING_MAX];
	struct inbox_link *next;
};

struct send {
	struct reef_batch batch;
	struct reef_op op;
	struct inbox_links *links;
	struct inbox_link *link; /* while the message is under way */
	struct send *next;	 /* links->sends_free */
	struct send *next_made;	 /* links->sends_made: all of them */
	uint8_t bytes[INBOX_MESSAGE_SIZE];
};

struct inbox_links {
	struct inbox_link *buckets[BUCKETS];
	uint32_t count, opening;
	uint64_t uses;
	struct send *sends_free, *sends_made;
	uint32_t sends_count, under_way;
};

/* --- the cache --- */

static struct inbox_link **bucket(struct inbox_links *links, uint64_t address)
{
	return &links->buckets[(address >> 6 ^ address >> 12) % BUCKETS];
}

static void link_down(struct inbox_links *links, struct inbox_link *link)
{
	if (link->state == OPENING)
		links->opening--;
	reef_link_close(link->link);
	link->link = NULL;
	link->state = NEW;
}

static void link_free(struct inbox_links *links, struct inbox_link **at)
{
	struct inbox_link *link = *at;

	*at = link->next;
	link_down(links, link);
	links->count--;
	explicit_bzero(&link->block, sizeof(link->block));
	link->is_closed = true;
	if (!link->under_way)
		free(link);
}

/* The link that was used longest ago and may be closed; is_idle: and on which
 * no message is under way. NULL: there is none. */
static struct inbox_link **find_oldest(struct inbox_links *links, bool is_idle)
{
	struct inbox_link **at, **oldest = NULL;

	for (uint32_t i = 0; i < BUCKETS; i++)
		for (at = &links->buckets[i]; *at; at = &(*at)->next)
			if (!(*at)->users &&
			    !(is_idle &&
			      ((*at)->under_way || (*at)->pending_count)) &&
			    (!oldest || (*at)->used < (*oldest)->used))
				oldest = at;
	return oldest;
}

static bool has_idle(const void *what)
{
	struct reef *reef = (struct reef *)what;

	inbox_links_progress(reef);
	return find_oldest(reef->inbox.links, true) != NULL;
}

/* Close a link, to make room for another. Waits a moment for an idle one.
 * -EAGAIN: fibers are using all. */
static int close_oldest(struct reef *reef)
{
	struct inbox_links *links = reef->inbox.links;
	struct inbox_link **oldest = find_oldest(links, true);
	int rc;

	if (!oldest) {
		rc = reef_port_wait_until(reef->port, has_idle, reef,
					  PATIENCE_NS);
		if (rc && rc != -ETIMEDOUT)
			return rc;
		oldest = find_oldest(links, true);
	}
	if (!oldest)
		oldest = find_oldest(links, false);
	if (!oldest)
		return -EAGAIN;
	link_free(links, oldest);
	return 0;
}

static uint32_t links_max(const struct reef *reef)
{
	uint32_t max = reef->client->options.inbox_links_max;

	return max ? max : LINKS_MAX;
}

static struct inbox_link *link_find(struct inbox_links *links, uint64_t address)
{
	struct inbox_link *link = *bucket(links, address);

	while (link && link->address != address)
		link = link->next;
	return link;
}

static int link_get(struct reef *reef, uint64_t address,
		    struct inbox_link **out)
{
	struct inbox_links *links = reef->inbox.links;
	struct inbox_link *link;
	int rc;

	while (!(link = link_find(links, address)) &&
	       links->count >= links_max(reef)) {
		rc = close_oldest(reef);
		if (rc)
			return rc;
	}
	if (!link) {
		link = calloc(1, sizeof(*link));
		if (!link)
			return -ENOMEM;
		link->address = address;
		link->session = (uint32_t)reef_random_between(
			&reef->inbox.random, 1, UINT32_MAX);
		link->next = *bucket(links, address);
		*bucket(links, address) = link;
		links->count++;
	}
	link->used = ++links->uses;
	*out = link;
	return 0;
}

/* --- sending --- */

static void send_give(struct send *send)
{
	send->next = send->links->sends_free;
	send->links->sends_free = send;
}

static void send_done(struct reef_batch *batch)
{
	struct send *send = batch->user;
	struct inbox_link *link = send->link;

	send->links->under_way--;
	if (!--link->under_way && link->is_closed)
		free(link);
	send_give(send);
}

static struct send *send_take(struct inbox_links *links)
{
	struct send *send = links->sends_free;

	if (send) {
		links->sends_free = send->next;
		return send;
	}
	if (links->sends_count >= SENDS_MAX)
		return NULL;
	send = calloc(1, sizeof(*send));
	if (!send)
		return NULL;
	send->links = links;
	send->next_made = links->sends_made;
	links->sends_made = send;
	links->sends_count++;
	return send;
}

static int post_message(struct inbox_links *links, struct inbox_link *link,
			const struct reef_wake *wake)
{
	struct send *send = send_take(links);
	int rc;

	if (!send) {
		/* Some may have ended, and are noticed in a poll only. */
		reef_poll(link->queue);
		send = send_take(links);
		if (!send)
			return -EAGAIN;
	}
	inbox_wake_encode(wake, send->bytes);
	send->link = link;
	send->op = (struct reef_op){
		.kind = REEF_SEND,
		.length = INBOX_MESSAGE_SIZE,
		.local = send->bytes,
	};
	send->batch = (struct reef_batch){
		.link = link->link,
		.ops = &send->op,
		.count = 1,
		.on_done = send_done,
		.user = send,
	};
	rc = reef_post(link->queue, &send->batch);
	if (!rc) {
		links->under_way++;
		link->under_way++;
		return 0;
	}
	if (rc == 1)
		rc = send->batch.status;
	send_give(send);
	return rc;
}

/* --- connecting --- */

static void fail_link(struct inbox_link *link, int why)
{
	link->state = FAILED;
	link->why = why;
	link->since_ns = reef_now_ns();
	link->pending_count = 0;
}

/* True for errors that another address would give as well. */
static bool is_final(int rc)
{
	return rc == -REEF_EFENCED || rc == -REEF_EFORKED ||
	       rc == -REEF_EHOSTDEAD || rc == -ENOMEM;
}

/* Begin to connect to the address at `rank`, or to one after it. rc: why the
 * one before failed; the link fails with that if there is none left. */
static void start_connecting(struct reef *reef, struct inbox_link *link, int rc)
{
	struct reef_connect_options options = {
		.session = link->session,
		.identity = link->identity,
		.short_messages = true,
	};
	char address[REEF_MESH_ADDRESS_MAX];
	uint32_t index;

	memcpy(options.key, link->block.secret, sizeof(options.key));
	while (!is_final(rc) &&
	       !reef_port_choose(reef->port, link->block.addresses,
				 link->block.domain, link->rank, &index,
				 &link->queue, address)) {
		rc = reef_connect_start(link->queue, address, &options,
					&link->link);
		if (!rc) {
			link->state = OPENING;
			link->since_ns = reef_now_ns();
			reef->inbox.links->opening++;
			break;
		}
		link->rank++;
	}
	explicit_bzero(options.key, sizeof(options.key));
	if (rc)
		fail_link(link, rc);
}

static void link_opened(struct inbox_links *links, struct inbox_link *link)
{
	uint32_t i;

	link->state = UP;
	link->polled_ns = reef_now_ns();
	links->opening--;
	for (i = 0; i < link->pending_count; i++)
		if (post_message(links, link, &link->pending[i]))
			break; /* messages may be lost */
	link->pending_count = 0;
}

/* Take in what has become of a link that is being made. */
static void step_opening(struct reef *reef, struct inbox_link *link)
{
	struct inbox_links *links = reef->inbox.links;
	int state =
		atomic_load_explicit(&link->link->state, memory_order_acquire);
	int why = -ETIMEDOUT;

	if (state == REEF_LINK_UP) {
		link_opened(links, link);
		return;
	}
	if (state == REEF_LINK_DOWN)
		why = atomic_load(&link->link->reason);
	else if (reef_now_ns() - link->since_ns < OPENING_NS)
		return;
	link_down(links, link);
	link->rank++;
	start_connecting(reef, link, why);
}

void inbox_links_progress(struct reef *reef)
{
	struct inbox_links *links = reef->inbox.links;
	struct inbox_link *link;

	if (!links || !links->opening)
		return;
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (link = links->buckets[i]; link; link = link->next)
			if (link->state == OPENING)
				step_opening(reef, link);
}

/* Read the inbox's block and begin to connect. This parks: other fibers may
 * send to the same inbox meanwhile, and the first to come back goes on. */
static int open_link(struct reef_space *space, struct inbox_link *link)
{
	struct reef *reef = space->reef;
	uint8_t bytes[INBOX_BLOCK_SIZE];
	int rc;

	rc = reef_read(reef, link->address, bytes, sizeof(bytes));
	if (rc || link->state != NEW)
		return rc;
	rc = inbox_block_decode(bytes, &link->block);
	explicit_bzero(bytes, sizeof(bytes));
	if (rc)
		return rc;
	inbox_identity(reef_space_id(space), link->identity);
	link->rank = 0;
	start_connecting(reef, link, -EHOSTUNREACH);
	return link->state == FAILED ? link->why : 0;
}

/* --- one message --- */

struct settling {
	struct reef *reef;
	const struct inbox_link *link;
};

static bool has_settled(const void *what)
{
	const struct settling *settling = what;

	inbox_links_progress(settling->reef);
	return settling->link->state != OPENING;
}

/* Let a message wait until the link is up; the first one waits with it for a
 * moment. */
static int send_when_up(struct reef *reef, struct inbox_link *link,
			const struct reef_wake *wake, bool is_first)
{
	const struct settling settling = {reef, link};
	int rc = 0;

	if (link->pending_count == PENDING_MAX)
		return -EAGAIN;
	link->pending[link->pending_count++] = *wake;
	if (is_first) {
		rc = reef_port_wait_until(reef->port, has_settled, &settling,
					  PATIENCE_NS); /* (1) */
	} else {
		reef_port_poll(reef->port);
		inbox_links_progress(reef);
	}
	if (link->state == FAILED)
		return link->why;
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* A link that fell, or failed long enough ago, is NEW again. */
static void renew_state(struct reef *reef, struct inbox_link *link)
{
	uint64_t now_ns = reef_now_ns();

	if (link->state == UP && now_ns - link->polled_ns >= POLL_NS) {
		reef_poll(link->queue);
		link->polled_ns = now_ns;
	}
	if (link->state == UP && reef_link_status(link->link))
		link_down(reef->inbox.links, link);
	if (link->state == FAILED && now_ns - link->since_ns >= RETRY_NS)
		link->state = NEW;
}

static int send_over(struct reef_space *space, struct inbox_link *link,
		     const struct reef_wake *wake)
{
	struct reef *reef = space->reef;
	bool is_first;
	int rc = 0;

	renew_state(reef, link);
	for (uint32_t tries = 0; tries < TRIES; tries++) {
		is_first = link->state == NEW;
		if (is_first)
			rc = open_link(space, link);
		if (rc)
			return rc;
		if (link->state == FAILED)
			return link->why;
		if (link->state == OPENING)
			return send_when_up(reef, link, wake, is_first);
		rc = post_message(reef->inbox.links, link, wake);
		if (rc != -REEF_ENOLINK)
			return rc;
		/* The link fell, which nobody had noticed yet. */
		link_down(reef->inbox.links, link);
		rc = 0;
	}
	return -REEF_ENOLINK;
}

static int send_to_itself(struct reef *reef, const struct reef_wake *wake)
{
	struct client_inbox *inbox = &reef->inbox;

	if (!inbox->local)
		inbox->local = calloc(INBOX_LOCAL_MAX, sizeof(*inbox->local));
	if (!inbox->local)
		return -ENOMEM;
	if (inbox->local_count == INBOX_LOCAL_MAX)
		return -EAGAIN;
	inbox->local[(inbox->local_first + inbox->local_count) %
		     INBOX_LOCAL_MAX] = *wake;
	inbox->local_count++;
	reef_inbox_poke(reef); /* another fiber may wait for the message */
	return 0;
}

int reef_inbox_send(struct reef_space *space, uint64_t address,
		    const struct reef_wake *wake)
{
	struct reef *reef = space->reef;
	struct inbox_place *place;
	struct inbox_link *link;
	int rc;

	rc = client_handle_check(reef);
	if (!rc)
		rc = inbox_prepare(reef);
	if (rc)
		return rc;
	for (place = reef->inbox.places; place; place = place->next)
		if (place->address == address)
			return send_to_itself(reef, wake);
	if (!reef->inbox.links) {
		reef->inbox.links = calloc(1, sizeof(*reef->inbox.links));
		if (!reef->inbox.links)
			return -ENOMEM;
	}
	rc = link_get(reef, address, &link);
	if (rc)
		return rc;
	link->users++;
	rc = send_over(space, link, wake);
	link->users--;
	return rc;
}

/* --- the end --- */

static bool has_gone_out(const void *what)
{
	struct reef *reef = (struct reef *)what;
	const struct inbox_links *links = reef->inbox.links;
	const struct inbox_link *link;

	inbox_links_progress(reef);
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (link = links->buckets[i]; link; link = link->next)
			if (link->pending_count)
				return false;
	return !links->under_way;
}

static bool has_ended(const void *what)
{
	const struct inbox_links *links = what;

	return !links->under_way;
}

void inbox_links_close(struct reef *reef)
{
	struct inbox_links *links = reef->inbox.links;

	if (!links)
		return;
	if (!client_over(reef->client))
		reef_port_wait_until(reef->port, has_gone_out, reef,
				     CLOSING_NS);
	for (uint32_t i = 0; i < BUCKETS; i++)
		while (links->buckets[i])
			link_free(links, &links->buckets[i]);
	/* Messages under way end with their links, in a poll. */
	reef_port_poll(reef->port);
	if (links->under_way)
		reef_port_wait_until(reef->port, has_ended, links,
				     CLIENT_SECOND);
	reef_assert(!links->under_way);
}

void inbox_links_free(struct reef *reef)
{
	struct inbox_links *links = reef->inbox.links;
	struct send *send;

	if (!links)
		return;
	while ((send = links->sends_made)) {
		links->sends_made = send->next_made;
		free(send);
	}
	free(links);
}
