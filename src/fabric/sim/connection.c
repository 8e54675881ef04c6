/* connection.c - connections: mail, loss, and who notices when.
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
 *     up, a loss drops it, but for a CONNECT that may come late (hello.c). It
 *     is read in the poll of the queue that it is for.
 * (2) When a connection is lost, every side that is alive and has a link will
 *     notice: its `lost` mail is under way or waiting in its queue.
 * (3) What holds a reference: each link, each flight, each mail. */
#include "fabric/sim/world.h"

#include <stdlib.h>

#define SILENCE_DEFAULT_NS 3000000000ull

static void mail_fire(struct reef_timer *timer);
static void lost_fire(struct reef_timer *timer);
static void doom_fire(struct reef_timer *timer);

/* --- connections --- */

int sim_conn_create(struct reef_sim *sim, struct conn **out)
{
	struct conn *conn = calloc(1, sizeof(*conn));
	int i;

	if (!conn)
		return -ENOMEM;
	conn->sim = sim;
	conn->refs = 1;
	conn->doom.fire = doom_fire;
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

static void free_parcels(struct side *side)
{
	struct parcel *parcel;

	while ((parcel = side->pipe)) {
		side->pipe = parcel->next;
		free(parcel);
	}
	side->pipe_tail = &side->pipe;
	side->pipe_count = 0;
}

void sim_conn_unref(struct conn *conn)
{
	if (--conn->refs)
		return;
	reef_assert(!conn->flights && !conn->mails && !conn->grants);
	reef_timer_cancel(conn->sim->sched, &conn->doom);
	free_parcels(&conn->sides[0]);
	free_parcels(&conn->sides[1]);
	*conn->at = conn->next;
	if (conn->next)
		conn->next->at = conn->at;
	else
		conn->sim->conns_tail = conn->at;
	free(conn);
}

/* --- mail --- */

static void free_mail(struct mail *mail)
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

static void start_mail(struct mail *mail)
{
	struct reef_sim *sim = mail->conn->sim;
	struct side *side = &mail->conn->sides[mail->to];
	uint64_t at_ns = sim_now(sim) + sim_delay(sim);

	if (at_ns <= side->mail_last_ns)
		at_ns = side->mail_last_ns + 1; /* (1) */
	side->mail_last_ns = at_ns;
	mail->stalled = false;
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
	start_mail(copy);
}

/* The queue that mail is for, or NULL. */
static struct reef_queue *queue_of_mail(const struct mail *mail)
{
	struct conn *conn = mail->conn;
	struct side *side = &conn->sides[mail->to];
	struct sim_listener *listener;

	if (mail->kind != MAIL_CONNECT)
		return side->link ? side->link->base.queue : NULL;
	if (side->host->life->group.dead ||
	    (conn->state == CONN_LOST && conn->late_for != side->host->life))
		return NULL;
	listener = sim_find_listener(side->host, conn->hello.port);
	if (listener)
		return listener->base.queue;
	sim_refuse(conn, -ECONNREFUSED);
	return NULL;
}

static void deliver_mail(struct mail *mail)
{
	struct reef_queue *base = queue_of_mail(mail);
	struct sim_queue *queue;

	if (!base) {
		free_mail(mail);
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
		deliver_mail(mail);
	else if (conn->state == CONN_LOST)
		free_mail(mail); /* nobody sends it anew */
}

uint64_t sim_lateness(struct conn *conn, int side)
{
	struct reef_sim *sim = conn->sim;
	uint64_t max_ns = 10 * sim->options.delay_max_ns;

	if (reef_random_chance(&sim->net, 1, 2))
		max_ns = 4 * sim_silence(conn, side);
	return reef_random_below(&sim->net, max_ns + 1);
}

/* Drop the mail of a lost connection that is not in a queue yet, or let it come
 * late. */
static void drop_mail_under_way(struct conn *conn)
{
	struct reef_sim *sim = conn->sim;
	struct mail *mail, *next;

	conn->late_for = conn->sides[1].host->life;
	for (mail = conn->mails; mail; mail = next) {
		next = mail->sibling;
		if (mail->queued)
			continue;
		if (mail->kind == MAIL_CONNECT && !mail->stalled &&
		    sim_hello_may_be_late(conn) &&
		    reef_random_chance(&sim->net, 1, 2))
			sim_timer(sim, &mail->timer,
				  sim_now(sim) + sim_lateness(conn, 1));
		else
			free_mail(mail);
	}
}

void sim_mail_drop_queue(struct sim_queue *queue)
{
	struct mail *mail;

	while ((mail = queue->mail)) {
		queue->mail = mail->next;
		free_mail(mail);
	}
	queue->mail_tail = &queue->mail;
}

void sim_mail_drop_late(struct reef_sim *sim)
{
	struct conn *conn, *next;

	for (conn = sim->conns; conn; conn = next) {
		next = conn->next;
		if (conn->mails) /* one CONNECT, which holds the connection */
			free_mail(conn->mails);
	}
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
		silence_ns = reef_local_clock_wait_ns(
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
		  conn->sides[1].host->index, conn->hello.session);
	reef_timer_cancel(sim->sched, &conn->doom);
	drop_mail_under_way(conn);
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

	/* Before the loss only a silence gets here; the other side has a timer
	 * of its own, which is sooner, or has just been let in. */
	sim_conn_lose(conn, mail->to == 0 ? NEVER : sim_silence(conn, 0),
		      mail->to == 1 ? NEVER : sim_silence(conn, 1), mail->code);
	deliver_mail(mail);
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
	/* All mail is sent anew, or what the cut stopped would be overtaken
	 * (1). */
	conn->sides[0].mail_last_ns = conn->sides[1].mail_last_ns = 0;
	for (mail = conn->mails; mail; mail = mail->sibling)
		if (!mail->queued)
			start_mail(mail);
	for (flight = conn->flights; flight; flight = next) {
		next = sim_flight_next(flight);
		sim_flight_resume(flight);
	}
}

void sim_conn_sever(struct sim_link *link)
{
	struct conn *conn = link->conn;
	uint64_t soon_ns;
	int side;

	if (!conn)
		return;
	side = conn->sides[0].link == link ? 0 : 1;
	soon_ns = sim_soon(conn->sim);
	if (conn->state != CONN_LOST)
		sim_conn_lose(conn, side ? sim_silence(conn, 0) : soon_ns,
			      side ? soon_ns : sim_silence(conn, 1),
			      -REEF_ENOLINK);
	else if (conn->sides[side].lost.timer.heap_index)
		sim_side_notice(conn, side, soon_ns, -REEF_ENOLINK);
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

static void unlist_readable(struct sim_link *link)
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
		unlist_readable(link);
	return count;
}

void sim_pipe_drop(struct conn *conn, int side)
{
	free_parcels(&conn->sides[side]);
	if (conn->sides[side].link)
		unlist_readable(conn->sides[side].link);
}

void sim_link_detach(struct sim_link *link)
{
	struct conn *conn = link->conn;
	int side = link->base.listener ? 1 : 0;

	if (!conn)
		return;
	sim_conn_lose(conn, side == 0 ? NEVER : sim_soon(conn->sim),
		      side == 1 ? NEVER : sim_soon(conn->sim), -REEF_ENOLINK);
	sim_flights_end(conn, side, -REEF_EINDOUBT);
	if (side == 1)
		sim_grants_drop(conn);
	cancel_notice(conn, side);
	unlist_readable(link);
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
}

static void act_on_mail(struct mail *mail)
{
	struct conn *conn = mail->conn;

	if (mail->kind == MAIL_LOST) {
		sim_side_end(conn, mail->to, mail->code);
		return;
	}
	if (mail->kind != MAIL_CONNECT &&
	    (conn->state == CONN_LOST || !conn->sides[mail->to].link))
		return;
	switch (mail->kind) {
	case MAIL_CONNECT:
		sim_hello_asked(conn);
		break;
	case MAIL_WELCOME:
	case MAIL_REFUSE:
		sim_hello_answered(conn, mail);
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
		act_on_mail(mail);
		free_mail(mail);
		count++;
	}
	return count;
}
