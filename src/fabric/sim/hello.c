/* hello.c - who gets in: listening, connecting, and the end of older links.
 *
 *   connector                       acceptor
 *     connect:   CONNECT  -->  a listener? the right key? not fenced? a new
 *                              number? room?
 *                              then end the session's older connections
 *      UP        <--  WELCOME      UP, `opened`
 *      DOWN      <--  REFUSE, with a code
 *
 * (1) A session has one connection to a fabric that is not LOST, and before it
 *     is let in, nothing of its older ones can take effect any more (F5).
 * (2) A CONNECT whose connector has given up may come late if it has a number:
 *     the last message of a real hello can be on its way then. It is let in
 *     where its number allows that (F10), and lost soon. One without a number
 *     is not let in any more: it would end a later link. */
#include "fabric/sim/world.h"

#include "base/mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_FIRST 1024

struct sim_listener *sim_find_listener(struct reef_sim_host *host,
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

void sim_refuse(struct conn *conn, int code)
{
	sim_mail_send(conn, 0,
		      &(struct mail){.kind = MAIL_REFUSE, .code = code});
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
	};
	reef_link_set_owner(&link->base, conn->hello.session,
			    conn->hello.number, conn->hello.identity);
	snprintf(link->base.host, sizeof(link->base.host), "%s",
		 fabric->life->host->name);
	link->fabric = fabric;
	link->conn = sim_conn_ref(conn);
	link->next = fabric->links;
	fabric->links = link;
	side->fabric = fabric;
	side->link = link;
	return link;
}

/* --- accepting --- */

/* Whether the connector may come in: 0, or the code that refuses it. */
static int check_admission(struct sim_fabric *fabric,
			   struct sim_listener *listener, struct conn *conn)
{
	const struct reef_listen_options *options = &listener->base.options;
	uint8_t key[REEF_KEY_SIZE];
	uint32_t links = fabric->accepted_count;
	struct sim_link *link;
	int rc;

	if (options->credential(options->context, conn->hello.identity,
				conn->hello.session, key) ||
	    memcmp(key, conn->hello.key, sizeof(key)) != 0)
		return -REEF_EAUTH;
	rc = options->admit
		     ? options->admit(options->context, conn->hello.identity)
		     : 0;
	if (rc)
		return rc;
	if (sim_is_fenced(fabric, conn->hello.session) &&
	    !REEF_MUTATED(SIM_F7_READMIT))
		return -REEF_EFENCED;
	rc = reef_numbers_check(&fabric->numbers, conn->hello.session,
				conn->hello.number);
	if (rc)
		return rc;
	for (link = fabric->links; link; link = link->next)
		if (link->base.listener &&
		    link->base.session == conn->hello.session)
			links--;
	return links < fabric->base.options.links_max ? 0 : -EBUSY;
}

/* End the session's older connections to this fabric (1). */
static void end_older(struct sim_fabric *fabric, const struct conn *conn)
{
	struct conn *old, *next;

	for (old = fabric->sim->conns; old; old = next) {
		next = old->next;
		if (old == conn || old->hello.session != conn->hello.session ||
		    old->sides[1].fabric != fabric)
			continue;
		sim_conn_ref(old);
		sim_conn_lose(old, sim_soon(fabric->sim), NEVER, -REEF_ENOLINK);
		if (!REEF_MUTATED(SIM_F5_LATE))
			sim_flights_cancel(old, 0);
		sim_side_end(old, 1, -REEF_ENOLINK);
		next = old->next;
		sim_conn_unref(old);
	}
}

bool sim_hello_may_be_late(const struct conn *conn)
{
	return conn->hello.number && !conn->sim->options.calm;
}

void sim_hello_asked(struct conn *conn)
{
	bool late = conn->state == CONN_LOST;
	struct sim_link *link;
	struct sim_listener *listener;
	struct sim_fabric *fabric;
	int rc;

	/* (2) */
	if (late && !sim_hello_may_be_late(conn))
		return;
	listener = sim_find_listener(conn->sides[1].host, conn->hello.port);
	if (!listener) {
		sim_refuse(conn, -ECONNREFUSED);
		return;
	}
	fabric = reef_container(listener->base.fabric, struct sim_fabric, base);
	rc = check_admission(fabric, listener, conn);
	if (rc) {
		sim_refuse(conn, rc);
		return;
	}
	end_older(fabric, conn);
	link = NULL;
	if (!reef_numbers_use(&fabric->numbers, conn->hello.session,
			      conn->hello.number))
		link = make_link(fabric, listener->base.queue, conn,
				 &listener->base);
	if (!link) {
		sim_refuse(conn, -ENOMEM);
		return;
	}
	fabric->accepted_count++;
	if (!late)
		conn->state = CONN_UP;
	sim_trace(conn->sim, TRACE_CONNECT, conn->sides[0].host,
		  conn->sides[1].host->index, conn->hello.session);
	reef_link_opened(link->base.queue, &link->base);
	sim_mail_send(conn, 0, &(struct mail){.kind = MAIL_WELCOME});
	if (late)
		sim_side_notice(conn, 1, sim_soon(conn->sim), -REEF_ENOLINK);
}

void sim_hello_answered(struct conn *conn, const struct mail *mail)
{
	struct sim_link *link = conn->sides[0].link;

	if (mail->kind == MAIL_WELCOME) {
		reef_link_opened(link->base.queue, &link->base);
		return;
	}
	sim_side_end(conn, 0, mail->code);
}

/* --- the ops --- */

/* Parse "sim:HOST/PORT". */
static int parse_address(struct reef_sim *sim, const char *address,
			 struct reef_sim_host **host, uint16_t *port)
{
	const char *name = address + 4, *slash;
	char *end;
	unsigned long number;

	if (strncmp(address, "sim:", 4) != 0)
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
		return sim_find_listener(host, *port) ? -EADDRINUSE : 0;
	for (tries = 0; tries < UINT16_MAX; tries++) {
		if (host->port_next < PORT_FIRST)
			host->port_next = PORT_FIRST;
		*port = host->port_next++;
		if (!sim_find_listener(host, *port))
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
	rc = parse_address(fabric->sim, address, &host, &port);
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

static struct sim_link *find_link_of(struct sim_fabric *fabric,
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
	while ((link = find_link_of(fabric, base))) {
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
	rc = parse_address(fabric->sim, address, &host, &port);
	if (rc)
		return rc;
	rc = sim_conn_create(fabric->sim, &conn);
	if (rc)
		return rc;
	conn->hello = (struct hello){
		.session = options->session,
		.number = options->number,
		.port = port,
	};
	memcpy(conn->hello.key, options->key, REEF_KEY_SIZE);
	memcpy(conn->hello.identity, options->identity,
	       strlen(options->identity));
	conn->sides[0].host = fabric->life->host;
	conn->sides[1].host = host;
	link = make_link(fabric, queue, conn, NULL);
	if (link) {
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

void sim_sever(struct reef_layer *layer, struct reef_link *link)
{
	sim_conn_sever(reef_container(link, struct sim_link, base));
}
