/* link.c - connections: mail, hello, loss, and who notices when.
 *
 * A connection has two sides; a link is what each side's user sees of it, and
 * one side's link may be gone long before the other's.
 *
 *            CONNECT, credential, WELCOME        sim_conn_lose: by chance, by a
 *   OPENING -----------------------------> UP   cut that lasts, by a death, a
 *      |                                    |   disconnect, a fence, the next
 *      | REFUSE, or lost                    |   link of the session
 *      v                                    v
 *     LOST <------------------------------ LOST ---> freed with its last link,
 *                                                    flight and mail
 *
 * (1) Mail to a side arrives in the order in which it was sent; a cut holds it
 *     up, a loss drops it. It is read in the poll of the queue that it is for.
 * (2) When a connection is lost, every side that is alive and has a link will
 *     notice: its `lost` mail is under way or waiting in its queue.
 * (3) A session has one connection to a fabric that is not LOST, and before it
 *     is let in, nothing of its older ones can take effect any more (F5).
 * (4) What holds a reference: each link, each flight, each mail. */
#include "fabric/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SILENCE_DEFAULT_NS 3000000000ull
#define PORT_FIRST 1024

static void mail_fire(struct reef_timer *timer);
static void lost_fire(struct reef_timer *timer);

/* --- connections --- */

int sim_conn_create(struct reef_sim *sim, uint32_t session, struct conn **out)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int i;

	if (!conn)
		return -ENOMEM;
	conn->sim = sim;
	conn->refs = 1;
	conn->session = session;
	conn->flights_tail = &conn->flights;
	for (i = 0; i < 2; i++) {
		conn->sides[i].pipe_tail = &conn->sides[i].pipe;
		conn->sides[i].lost = (struct mail){
			.timer.fire = lost_fire,
			.conn = conn,
			.kind = MAIL_LOST,
			.to = (uint8_t)i,
			.embedded = true,
		};
	}
	conn->at = sim->conns_tail;
	*sim->conns_tail = conn;
	sim->conns_tail = &conn->next;
	*out = conn;
	return 0;
}

struct conn *sim_conn_ref(struct conn *conn)
{
	conn->refs++;
	return conn;
}

void sim_conn_unref(struct conn *conn)
{
	struct parcel *parcel;
	int i;

	if (--conn->refs)
		return;
	reef_assert(!conn->flights && !conn->mails && !conn->grants);
	reef_timer_cancel(conn->sim->sched, &conn->doom);
	for (i = 0; i < 2; i++) {
		while ((parcel = conn->sides[i].pipe)) {
			conn->sides[i].pipe = parcel->next;
			free(parcel);
		}
	}
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	else
		conn->sim->conns_tail = conn->at;
	free(conn);
}

/* --- mail --- */

static void mail_free(struct mail *mail)
{
	struct conn *conn = mail->conn;
	struct mail **at = &conn->mails;

	reef_timer_cancel(conn->sim->sched, &mail->timer);
	mail->pending = false;
	mail->queued = false;
	if (!mail->embedded) {
		while (*at != mail)
			at = &(*at)->sibling;
		*at = mail->sibling;
		free(mail);
	}
	sim_conn_unref(conn);
}

static void mail_start(struct mail *mail)
{
	struct reef_sim *sim = mail->conn->sim;
	struct side *side = &mail->conn->sides[mail->to];
	uint64_t at_ns = sim_now(sim) + sim_delay(sim);

	if (at_ns <= side->mail_last_ns)
		at_ns = side->mail_last_ns + 1; /* (1) */
	side->mail_last_ns = at_ns;
	sim_timer(sim, &mail->timer, at_ns);
}

void sim_mail_send(struct conn *conn, int to, const struct mail *mail)
{
	struct mail **at = &conn->mails;
	struct mail *copy;

	if (conn->state == CONN_LOST)
		return;
	copy = malloc(sizeof(*copy));
	reef_assert(copy); /* a simulation that lacks memory proves nothing */
	*copy = *mail;
	copy->timer = (struct reef_timer){.fire = mail_fire};
	copy->conn = sim_conn_ref(conn);
	copy->to = (uint8_t)to;
	while (*at)
		at = &(*at)->sibling;
	*at = copy;
	mail_start(copy);
}

static struct sim_listener *find_listener(struct reef_sim_host *host,
					  uint16_t port)
{
	struct sim_fabric *fabric;
	struct sim_listener *listener;

	if (host->life->group.dead)
		return NULL;
	for (fabric = host->life->fabrics; fabric; fabric = fabric->next)
		for (listener = fabric->listeners; listener;
		     listener = listener->next)
			if (listener->port == port && listener->base.queue)
				return listener;
	return NULL;
}

static void refuse(struct conn *conn, int code)
{
	sim_mail_send(conn, 0,
		      &(struct mail){.kind = MAIL_REFUSE, .code = code});
}

/* The queue that mail is for, or NULL. */
static struct reef_queue *addressee(const struct mail *mail)
{
	struct conn *conn = mail->conn;
	struct side *side = &conn->sides[mail->to];
	struct sim_listener *listener;

	if (mail->kind != MAIL_CONNECT)
		return side->link ? side->link->base.queue : NULL;
	if (!conn->sides[0].link || side->host->life->group.dead)
		return NULL;
	listener = find_listener(side->host, conn->sides[0].link->hello.port);
	if (listener)
		return listener->base.queue;
	refuse(conn, -ECONNREFUSED);
	return NULL;
}

static void mail_arrive(struct mail *mail)
{
	struct reef_queue *base = addressee(mail);
	struct sim_queue *queue;

	if (!base) {
		mail_free(mail);
		return;
	}
	queue = reef_container(base, struct sim_queue, base);
	mail->queued = true;
	mail->next = NULL;
	*queue->mail_tail = mail;
	queue->mail_tail = &mail->next;
	sim_kick(queue);
}

static void mail_fire(struct reef_timer *timer)
{
	struct mail *mail = reef_container(timer, struct mail, timer);
	struct conn *conn = mail->conn;

	mail->stalled =
		sim_is_cut(conn->sim, conn->sides[0].host, conn->sides[1].host);
	if (!mail->stalled)
		mail_arrive(mail);
}

/* What is not in a queue yet never comes. */
static void drop_mail(struct conn *conn)
{
	struct mail *mail, *next;

	for (mail = conn->mails; mail; mail = next) {
		next = mail->sibling;
		if (!mail->queued)
			mail_free(mail);
	}
}

void sim_mail_drop_queue(struct sim_queue *queue)
{
	struct mail *mail;

	while ((mail = queue->mail)) {
		queue->mail = mail->next;
		mail_free(mail);
	}
	queue->mail_tail = &queue->mail;
}

/* --- loss --- */

uint64_t sim_soon(struct reef_sim *sim)
{
	if (sim->options.calm)
		return 0;
	return sim_delay(sim) +
	       reef_random_below(&sim->net, 4 * sim->options.delay_max_ns + 1);
}

uint64_t sim_silence(struct conn *conn, int side)
{
	const struct sim_fabric *fabric = conn->sides[side].fabric;
	uint64_t silence_ns = SILENCE_DEFAULT_NS;

	if (fabric)
		silence_ns = reef_clock_wait_ns(
			&fabric->life->clock, fabric->base.options.silence_ns);
	return silence_ns +
	       reef_random_below(&conn->sim->net, silence_ns / 16 + 1);
}

void sim_side_notice(struct conn *conn, int side, uint64_t after_ns, int reason)
{
	struct mail *lost = &conn->sides[side].lost;
	uint64_t at_ns = sim_now(conn->sim) + after_ns;

	if (!side_is_alive(&conn->sides[side]) || !conn->sides[side].link)
		return;
	if (!lost->pending) {
		sim_conn_ref(conn);
		lost->pending = true;
		lost->code = reason;
	} else if (!lost->timer.heap_index || lost->timer.at_ns <= at_ns) {
		return; /* in its queue already, or sooner */
	}
	if (reason == -REEF_EFENCED)
		lost->code = reason;
	sim_timer(conn->sim, &lost->timer, at_ns);
}

static void cancel_notice(struct conn *conn, int side)
{
	struct mail *lost = &conn->sides[side].lost;

	if (!lost->timer.heap_index)
		return;
	reef_timer_cancel(conn->sim->sched, &lost->timer);
	lost->pending = false;
	sim_conn_unref(conn);
}

void sim_conn_lose(struct conn *conn, uint64_t notice0_ns, uint64_t notice1_ns,
		   int reason)
{
	struct reef_sim *sim = conn->sim;
	struct flight *flight, *next;

	if (conn->state == CONN_LOST)
		return;
	sim_conn_ref(conn);
	conn->state = CONN_LOST;
	sim_trace(sim, TRACE_LOST, conn->sides[0].host,
		  conn->sides[1].host->index, conn->session);
	reef_timer_cancel(sim->sched, &conn->doom);
	drop_mail(conn);
	for (flight = conn->flights; flight; flight = next) {
		next = sim_flight_next(flight);
		sim_flight_stray(flight);
	}
	if (notice0_ns != NEVER)
		sim_side_notice(conn, 0, notice0_ns, reason);
	if (notice1_ns != NEVER)
		sim_side_notice(conn, 1, notice1_ns, reason);
	sim_conn_unref(conn);
}

static void lost_fire(struct reef_timer *timer)
{
	struct mail *mail = reef_container(timer, struct mail, timer);
	struct conn *conn = mail->conn;

	/* Only a silence gets here before the loss; the other side has its own
	 * timer, which is sooner, or has just been let in. */
	sim_conn_lose(conn, mail->to == 0 ? NEVER : sim_silence(conn, 0),
		      mail->to == 1 ? NEVER : sim_silence(conn, 1), mail->code);
	mail_arrive(mail);
}

static void doom_fire(struct reef_timer *timer)
{
	struct conn *conn = reef_container(timer, struct conn, doom);

	sim_conn_lose(conn, sim_soon(conn->sim), sim_soon(conn->sim),
		      -REEF_ENOLINK);
}

void sim_conn_cut(struct conn *conn, bool cut)
{
	struct flight *flight, *next;
	struct mail *mail;
	int i;

	for (i = 0; i < 2; i++) {
		if (cut && conn->state != CONN_LOST)
			sim_side_notice(conn, i, sim_silence(conn, i),
					-REEF_ENOLINK);
		else if (!cut && conn->state != CONN_LOST)
			cancel_notice(conn, i);
		else if (!cut && conn->sides[i].lost.timer.heap_index)
			sim_side_notice(conn, i, sim_soon(conn->sim),
					-REEF_ENOLINK);
	}
	if (cut || conn->state == CONN_LOST)
		return;
	for (mail = conn->mails; mail; mail = mail->sibling)
		if (mail->stalled)
			mail_start(mail);
	for (flight = conn->flights; flight; flight = next) {
		next = sim_flight_next(flight);
		sim_flight_resume(flight);
	}
}

/* --- links --- */

void sim_pipe_filled(struct sim_link *link)
{
	struct sim_queue *queue =
		reef_container(link->base.queue, struct sim_queue, base);
	struct sim_link **at = &queue->readable;

	if (!link->readable) {
		link->readable = true;
		link->readable_next = NULL;
		while (*at)
			at = &(*at)->readable_next;
		*at = link;
	}
	sim_kick(queue);
}

static void not_readable(struct sim_link *link)
{
	struct sim_queue *queue =
		reef_container(link->base.queue, struct sim_queue, base);
	struct sim_link **at = &queue->readable;

	if (!link->readable)
		return;
	while (*at != link)
		at = &(*at)->readable_next;
	*at = link->readable_next;
	link->readable = false;
}

int sim_pipe_drain(struct sim_link *link)
{
	struct side *side = &link->conn->sides[link->base.listener ? 1 : 0];
	struct parcel *parcel;
	int count = 0;

	while ((parcel = side->pipe)) {
		if (reef_message_arrived(link->base.queue, &link->base,
					 parcel->bytes, parcel->length))
			break;
		side->pipe = parcel->next;
		if (!side->pipe)
			side->pipe_tail = &side->pipe;
		side->pipe_count--;
		free(parcel);
		count++;
	}
	if (!side->pipe)
		not_readable(link);
	return count;
}

void sim_link_detach(struct sim_link *link)
{
	struct conn *conn = link->conn;
	int side = link->base.listener ? 1 : 0;

	if (!conn)
		return;
	sim_conn_lose(conn, side == 0 ? NEVER : sim_soon(conn->sim),
		      side == 1 ? NEVER : sim_soon(conn->sim), -REEF_ENOLINK);
	sim_flights_tell(conn, side, -REEF_EINDOUBT);
	if (side == 1)
		sim_grants_drop(conn);
	cancel_notice(conn, side);
	not_readable(link);
	link->conn = NULL;
	conn->sides[side].link = NULL;
	sim_conn_unref(conn);
}

void sim_link_free(struct sim_link *link)
{
	struct sim_link **at = &link->fabric->links;
	struct sim_remote *remote;

	sim_link_detach(link);
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	if (link->base.listener)
		link->fabric->accepted_count--;
	while ((remote = link->remotes)) {
		link->remotes = remote->next;
		free(remote);
	}
	free(link);
}

void sim_side_end(struct conn *conn, int side, int reason)
{
	struct sim_link *link = conn->sides[side].link;
	struct sim_remote *remote;
	int state;

	if (!link)
		return;
	sim_conn_ref(conn);
	sim_trace(conn->sim, TRACE_NOTICED, conn->sides[side].host,
		  (uint64_t)side, (uint64_t)reason);
	state = atomic_load(&link->base.state);
	if (state == REEF_LINK_UP)
		sim_pipe_drain(link);
	else if (state == REEF_LINK_OPENING && reason == -REEF_ENOLINK)
		reason = -ETIMEDOUT;
	sim_link_detach(link);
	for (remote = link->remotes; remote; remote = remote->next)
		if (atomic_load(&remote->base.state) == 1)
			reef_attach_ended(link->base.queue, &remote->base,
					  -REEF_ENOLINK);
	reef_link_ended(link->base.queue, &link->base, reason);
	if (link->base.listener)
		sim_link_free(link);
	sim_conn_unref(conn);
}

static struct sim_link *make_link(struct sim_fabric *fabric,
				  struct reef_queue *queue, struct conn *conn,
				  struct reef_listener *listener)
{
	struct sim_link *link = calloc(1, sizeof(*link));
	struct side *side = &conn->sides[listener ? 1 : 0];

	if (!link)
		return NULL;
	link->base = (struct reef_link){
		.fabric = &fabric->base,
		.queue = queue,
		.listener = listener,
		.session = conn->session,
	};
	link->fabric = fabric;
	link->conn = sim_conn_ref(conn);
	link->next = fabric->links;
	fabric->links = link;
	side->fabric = fabric;
	side->link = link;
	return link;
}

/* --- accepting --- */

/* May it come in?  0, or the code that refuses it. */
static int admit(struct sim_fabric *fabric, struct sim_listener *listener,
		 struct conn *conn)
{
	const struct reef_listen_options *options = &listener->base.options;
	const struct hello *hello = &conn->sides[0].link->hello;
	uint8_t key[REEF_KEY_SIZE];
	uint32_t links = fabric->accepted_count;
	struct sim_link *link;

	if (options->credential(options->context, hello->identity,
				conn->session, key) ||
	    memcmp(key, hello->key, sizeof(key)))
		return -REEF_EAUTH;
	if (sim_is_fenced(fabric, conn->session) &&
	    !sim_mutated(fabric->sim, REEF_MUTANT_F7_READMIT))
		return -REEF_EFENCED;
	for (link = fabric->links; link; link = link->next)
		if (link->base.listener && link->base.session == conn->session)
			links--;
	return links < fabric->base.options.links_max ? 0 : -EBUSY;
}

/* (3): end the session's older connections to this fabric. */
static void settle(struct sim_fabric *fabric, const struct conn *conn)
{
	struct conn *old, *next;

	for (old = fabric->sim->conns; old; old = next) {
		next = old->next;
		if (old == conn || old->session != conn->session ||
		    old->sides[1].fabric != fabric)
			continue;
		sim_conn_ref(old);
		sim_conn_lose(old, sim_soon(fabric->sim), NEVER, -REEF_ENOLINK);
		if (!sim_mutated(fabric->sim, REEF_MUTANT_F5_LATE))
			sim_flights_cancel(old, 0);
		sim_side_end(old, 1, -REEF_ENOLINK);
		next = old->next;
		sim_conn_unref(old);
	}
}

static void accept_asked(struct conn *conn)
{
	struct sim_link *asker = conn->sides[0].link, *link;
	struct sim_listener *listener;
	struct sim_fabric *fabric;
	int rc;

	/* A hello takes several messages: one that was given up is not let in
	 * by what is left of it, so it cannot end a later one. */
	if (!asker || conn->state != CONN_OPENING)
		return;
	listener = find_listener(conn->sides[1].host, asker->hello.port);
	if (!listener) {
		refuse(conn, -ECONNREFUSED);
		return;
	}
	fabric = reef_container(listener->base.fabric, struct sim_fabric, base);
	rc = admit(fabric, listener, conn);
	if (rc) {
		refuse(conn, rc);
		return;
	}
	settle(fabric, conn);
	link = make_link(fabric, listener->base.queue, conn, &listener->base);
	if (!link) {
		refuse(conn, -ENOMEM);
		return;
	}
	fabric->accepted_count++;
	conn->state = CONN_UP;
	sim_trace(conn->sim, TRACE_CONNECT, conn->sides[0].host,
		  conn->sides[1].host->index, conn->session);
	reef_link_opened(link->base.queue, &link->base);
	sim_mail_send(conn, 0, &(struct mail){.kind = MAIL_WELCOME});
}

static void answered(struct conn *conn, const struct mail *mail)
{
	struct sim_link *link = conn->sides[0].link;

	if (mail->kind == MAIL_WELCOME) {
		reef_link_opened(link->base.queue, &link->base);
		return;
	}
	sim_conn_ref(conn);
	sim_side_end(conn, 0, mail->code);
	sim_conn_unref(conn);
}

static void read_one(struct mail *mail)
{
	struct conn *conn = mail->conn;

	if (mail->kind == MAIL_LOST) {
		sim_side_end(conn, mail->to, mail->code);
		return;
	}
	if (conn->state == CONN_LOST ||
	    (mail->kind != MAIL_CONNECT && !conn->sides[mail->to].link))
		return;
	switch (mail->kind) {
	case MAIL_CONNECT:
		accept_asked(conn);
		break;
	case MAIL_WELCOME:
	case MAIL_REFUSE:
		answered(conn, mail);
		break;
	case MAIL_ATTACH:
		sim_attach_asked(conn, mail);
		break;
	case MAIL_ATTACHED:
		sim_attach_answered(conn, mail);
		break;
	case MAIL_WITHDRAW:
		sim_withdraw_asked(conn, mail);
		break;
	case MAIL_RELEASE:
		sim_grant_drop(conn, mail->id);
		break;
	}
}

int sim_mail_read(struct sim_queue *queue)
{
	struct mail *mail;
	int count = 0;

	while ((mail = queue->mail)) {
		queue->mail = mail->next;
		if (!queue->mail)
			queue->mail_tail = &queue->mail;
		read_one(mail);
		mail_free(mail);
		count++;
	}
	return count;
}

/* --- the ops --- */

/* "sim:HOST/PORT" */
static int parse(struct reef_sim *sim, const char *address,
		 struct reef_sim_host **host, uint16_t *port)
{
	const char *name = address + 4, *slash;
	char *end;
	unsigned long number;

	if (strncmp(address, "sim:", 4))
		return -EINVAL;
	slash = strchr(name, '/');
	if (!slash || slash[1] < '0' || slash[1] > '9')
		return -EINVAL;
	number = strtoul(slash + 1, &end, 10);
	if (*end || number > UINT16_MAX)
		return -EINVAL;
	*host = sim_find_host(sim, name, (size_t)(slash - name));
	if (!*host)
		return -EHOSTUNREACH;
	*port = (uint16_t)number;
	return 0;
}

static int pick_port(struct reef_sim_host *host, uint16_t *port)
{
	uint32_t tries;

	if (*port)
		return find_listener(host, *port) ? -EADDRINUSE : 0;
	for (tries = 0; tries < UINT16_MAX; tries++) {
		if (host->port_next < PORT_FIRST)
			host->port_next = PORT_FIRST;
		*port = host->port_next++;
		if (!find_listener(host, *port))
			return 0;
	}
	return -EADDRINUSE;
}

int sim_listen(struct reef_layer *layer, struct reef_queue *queue,
	       const char *address, const struct reef_listen_options *options,
	       struct reef_listener **out)
{
	struct sim_fabric *fabric =
		reef_container(layer->fabric, struct sim_fabric, base);
	struct sim_listener *listener;
	struct reef_sim_host *host;
	uint16_t port;
	int rc;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	rc = parse(fabric->sim, address, &host, &port);
	if (rc)
		return rc;
	if (host != fabric->life->host)
		return -EADDRNOTAVAIL;
	rc = pick_port(host, &port);
	if (rc)
		return rc;
	listener = calloc(1, sizeof(*listener));
	if (!listener)
		return -ENOMEM;
	listener->base.fabric = &fabric->base;
	listener->base.queue = queue;
	listener->base.options = *options;
	snprintf(listener->base.address, sizeof(listener->base.address),
		 "sim:%s/%u", host->name, port);
	listener->port = port;
	listener->next = fabric->listeners;
	fabric->listeners = listener;
	*out = &listener->base;
	return 0;
}

static struct sim_link *link_of(struct sim_fabric *fabric,
				const struct reef_listener *listener)
{
	struct sim_link *link = fabric->links;

	while (link && link->base.listener != listener)
		link = link->next;
	return link;
}

void sim_unlisten(struct reef_layer *layer, struct reef_listener *base)
{
	struct sim_fabric *fabric =
		reef_container(layer->fabric, struct sim_fabric, base);
	struct sim_listener *listener =
		reef_container(base, struct sim_listener, base);
	struct sim_listener **at = &fabric->listeners;
	struct sim_link *link;

	base->options.closed = NULL;
	while ((link = link_of(fabric, base))) {
		sim_link_detach(link);
		if (base->queue)
			reef_link_ended(base->queue, &link->base,
					-REEF_ENOLINK);
		sim_link_free(link);
	}
	while (*at != listener)
		at = &(*at)->next;
	*at = listener->next;
	free(listener);
}

int sim_connect(struct reef_layer *layer, struct reef_queue *queue,
		const char *address, const struct reef_connect_options *options,
		struct reef_link **out)
{
	struct sim_fabric *fabric =
		reef_container(layer->fabric, struct sim_fabric, base);
	struct reef_sim_host *host;
	struct sim_link *link;
	struct conn *conn;
	uint16_t port;
	int rc;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	rc = parse(fabric->sim, address, &host, &port);
	if (rc)
		return rc;
	rc = sim_conn_create(fabric->sim, options->session, &conn);
	if (rc)
		return rc;
	conn->doom.fire = doom_fire;
	conn->sides[0].host = fabric->life->host;
	conn->sides[1].host = host;
	link = make_link(fabric, queue, conn, NULL);
	if (link) {
		link->hello.port = port;
		strcpy(link->hello.identity, options->identity);
		memcpy(link->hello.key, options->key, REEF_KEY_SIZE);
		sim_mail_send(conn, 1, &(struct mail){.kind = MAIL_CONNECT});
		*out = &link->base;
	}
	sim_conn_unref(conn);
	return link ? 0 : -ENOMEM;
}

void sim_disconnect(struct reef_layer *layer, struct reef_link *link)
{
	sim_link_free(reef_container(link, struct sim_link, base));
}
