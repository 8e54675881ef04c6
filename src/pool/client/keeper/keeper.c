/* keeper.c - the session, and the link to the broker.
 *
 *   (none) --join: connect, SESSION_OPEN--> PRESENT <--------------+
 *                                             | link lost          | RESUME
 *                                             v                    |
 *                                           AWAY --connect, with a growing
 *                                             |     pause, for ever
 *   PRESENT, AWAY --fenced, or told so--> OVER (for good)
 *
 * (1) While AWAY nothing is lost: the lease is judged by a broker only, and a
 *     new one counts everybody as just renewed.
 * (2) Mutating requests are numbered and go out one at a time. One without an
 *     answer is repeated under its number until there is one, so it happens
 *     once.
 * (3) Whoever speaks with a lower epoch than was seen is not the broker.
 * (4) That a session is FENCED is believed once the view of the pool epoch that
 *     stands beside it was taken in. A node that is DEAD confirms no fence, so
 *     the session may go on there: whoever acts on its end must know that this
 *     memory is LOST, though the notice of it may have been missed. */
#include "pool/client/keeper/keeper.h"

#include "base/mutant.h"
#include "pool/client/keeper/acknowledge.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/job.h"
#include "pool/client/keeper/member.h"
#include "pool/client/keeper/renew.h"
#include "pool/client/keeper/touch.h"
#include "pool/client/keeper/view.h"
#include "wire/states.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALL_TIMEOUT_NS (10 * CLIENT_SECOND)
#define CLOSE_TIMEOUT_NS CLIENT_SECOND
#define PAUSE_MIN_NS (2 * CLIENT_MILLISECOND)
#define PAUSE_MAX_NS (500 * CLIENT_MILLISECOND)
#define TRY_MIN_NS (20 * CLIENT_MILLISECOND)
#define BUSY_MAX 8 /* times that a broker which is busy is asked again */

static struct reef_text text_of(const char *string)
{
	return (struct reef_text){string, (uint16_t)strlen(string)};
}

/* --- waiting in the keeper --- */

int client_wait(struct client_waiters *waiters, uint64_t timeout_ns)
{
	struct client_waiter waiter = {.fiber = reef_fiber_self()};
	struct client_waiter **at;
	int rc;

	waiter.next = waiters->first;
	waiters->first = &waiter;
	rc = reef_fiber_park(timeout_ns);
	for (at = &waiters->first; *at != &waiter; at = &(*at)->next)
		;
	*at = waiter.next;
	return rc == -REEF_EHOSTDEAD ? rc : 0;
}

void client_wake(struct client_waiters *waiters)
{
	struct client_waiter *waiter;

	for (waiter = waiters->first; waiter; waiter = waiter->next)
		reef_fiber_unpark(waiter->fiber);
}

int client_spawn(struct reef_client *client, int (*fn)(void *arg), void *arg)
{
	int rc = reef_fiber_spawn(client->sched, fn, arg, NULL);

	if (!rc)
		client->fibers++;
	return rc;
}

void client_fiber_end(struct reef_client *client)
{
	client->fibers--;
	client_wake(&client->changed);
}

/* --- the session --- */

/* The keeper's own fibers are woken by keeper_main. */
void client_session_end(struct reef_client *client, int why)
{
	bool first;

	pthread_mutex_lock(&client->lock);
	first = !client_over(client);
	if (first) {
		atomic_store_explicit(&client->over, why, memory_order_release);
		client_view_bump(client);
		client_members_wake(client);
		if (client->wake)
			reef_queue_wake(client->wake);
	}
	pthread_mutex_unlock(&client->lock);
	if (first && (why == -REEF_EFENCED || why == -REEF_EVERSION))
		reef_log(REEF_LOG_WARNING, "client", "session %08x has ended%s",
			 client->session,
			 why == -REEF_EFENCED
				 ? ""
				 : ": the broker speaks another version");
}

/* --- the link --- */

void client_peer_closed(void *context, struct reef_peer *peer, int reason)
{
	struct reef_client *client = context;

	if (peer == client->peer) {
		atomic_store(&client->present, false);
		if (reason == -REEF_EFENCED)
			client_session_end(client, reason);
	}
	client_wake(&client->changed);
}

/* Only a link that is down is given up: on shm the end of a link is the end of
 * its process, as the broker sees it. */
void client_link_check(struct reef_client *client)
{
	struct reef_link *link = client->peer ? client->peer->link : NULL;

	if (link && !reef_link_status(link))
		return;
	atomic_store(&client->present, false);
	client_wake(&client->changed);
}

/* The remotes of the table and the renewal word go with their link. */
void client_link_drop(struct reef_client *client)
{
	struct reef_peer *peer = client->peer;

	atomic_store(&client->present, false);
	client->peer = NULL;
	client->table = client->renewal = NULL;
	reef_peer_close(peer);
	client_wake(&client->changed);
}

static uint32_t count_places(const struct reef_client *client)
{
	const char *at;
	uint32_t count = 1;

	for (at = client->broker; *at; at++)
		count += *at == ',';
	return count;
}

void client_broker_leave(struct reef_client *client)
{
	if (count_places(client) < 2)
		return;
	client->place++;
	atomic_store(&client->present, false);
	client_wake(&client->changed);
}

/* Copy the broker's place that is to be tried now. */
static void pick_place(const struct reef_client *client, char *place,
		       size_t size)
{
	const char *at = client->broker, *end;
	uint32_t count = 1, i;

	for (end = at; *end; end++)
		count += *end == ',';
	for (i = client->place % count; i; i--)
		at = strchr(at, ',') + 1;
	end = strchr(at, ',');
	snprintf(place, size, "%.*s", end ? (int)(end - at) : (int)strlen(at),
		 at);
}

static int connect_broker(struct reef_client *client, uint64_t timeout_ns)
{
	struct reef_connect_options options = {.timeout_ns = timeout_ns};
	char identity[REEF_IDENTITY_MAX + 1], place[512];
	int rc;

	/* A session of one link: slot from 0x8000 on, generation not 0. */
	if (!client->provisional)
		client->provisional =
			UINT32_C(0x80000000) |
			(uint32_t)(reef_random_below(&client->random, 0x8000)
				   << 16) |
			(uint32_t)reef_random_between(&client->random, 1,
						      0xffff);
	snprintf(identity, sizeof(identity), "user:%u:%u",
		 client->credential->user, client->credential->era);
	options.session = client->provisional;
	options.identity = identity;
	memcpy(options.key, client->credential->key.bytes, sizeof(options.key));
	pick_place(client, place, sizeof(place));
	rc = reef_rpc_connect(client->rpc, place, client->options.broker_domain,
			      &options, &client->peer, NULL);
	explicit_bzero(options.key, sizeof(options.key));
	if (rc) {
		client->place++;
		/* Another link may have the same number. */
		client->provisional = 0;
	} else {
		client_hosts_learn(client, client->peer->link, place);
	}
	return rc;
}

static int attach_remote(struct reef_client *client, uint64_t key,
			 struct reef_remote **out)
{
	struct reef_link *link = client->peer ? client->peer->link : NULL;

	if (!link)
		return -REEF_ENOLINK;
	return reef_attach(reef_port_queue_of(client->port, link), link, key,
			   out);
}

/* Take in the answer to SESSION_OPEN or SESSION_RESUME; attach the table. */
static int note_admitted(struct reef_client *client,
			 const struct reef_answer *answer)
{
	const struct reef_reply_session *reply = &answer->body.reply.session;
	int rc;

	if (answer->epoch < client->broker_epoch)
		return -ESTALE;
	if (!reply->session || reply->ttl_ns < CLIENT_MILLISECOND ||
	    (client->session && client->session != reply->session))
		return -REEF_EPROTO;
	client->broker_epoch = answer->epoch;
	client->beat_ns = reef_now_ns();
	if (!client->session) { /* handles read it without a lock */
		client->session = reply->session;
		client_epoch_begin(client, reply->pool_epoch);
	} else {
		client->acknowledged_told = 0; /* it may be a new broker */
	}
	client->ttl_ns = reply->ttl_ns;
	memcpy(client->session_key->bytes, reply->secret,
	       sizeof(client->session_key->bytes));
	rc = attach_remote(client, reply->table_key, &client->table);
	if (!rc && reef_remote_size(client->table) < REEF_TABLE_SIZE)
		rc = -REEF_EPROTO;
	if (!rc)
		rc = attach_remote(client, reply->renewal_key,
				   &client->renewal);
	if (!rc &&
	    reef_remote_size(client->renewal) < sizeof(struct reef_renewal))
		rc = -REEF_EPROTO;
	return rc;
}

int client_fill_token(const char *text, struct reef_ask_space_open *ask)
{
	struct reef_token token;

	/* A text that is no token gets the error of a forged one. */
	if (reef_token_parse(text, &token))
		return -EACCES;
	ask->space = token.space;
	ask->rights = token.rights;
	ask->era = token.era;
	memcpy(ask->secret, token.key.bytes, sizeof(ask->secret));
	reef_key_wipe(&token.key);
	return 0;
}

/* The number of the request after that one. Numbers wrap; 0 is none. */
static uint32_t number_after(uint32_t number)
{
	return number == UINT32_MAX ? 1 : number + 1;
}

static int reopen_space(struct reef_client *client, struct client_space *space,
			uint64_t timeout_ns)
{
	struct reef_body body = {0};
	struct reef_ask_space_open *ask = &body.ask.space_open;
	int rc = 0;

	if (*space->token)
		rc = client_fill_token(space->token, ask);
	ask->space = space->id;
	/* The number is not used up, as this changes nothing in the state. */
	if (!rc)
		rc = reef_rpc_call(client->peer, REEF_POOL_SPACE_OPEN,
				   number_after(client->sequence), &body, NULL,
				   timeout_ns);
	explicit_bzero(ask->secret, sizeof(ask->secret));
	/* That the space is gone is found out by the refresh that follows. */
	return rc == -ENOENT || rc == -EACCES ? 0 : rc;
}

/* A broker that was started anew does not know which spaces this session has
 * open. It is told before anybody asks it for anything. */
static int reopen_spaces(struct reef_client *client, uint64_t timeout_ns)
{
	struct client_space *space;
	int rc = 0;

	if (client->granted_epoch == client->broker_epoch)
		return 0;
	client->users++;
	for (space = client->spaces; space && !rc; space = space->next)
		if (!space->gone)
			rc = reopen_space(client, space, timeout_ns);
	client->users--;
	if (!rc)
		client->granted_epoch = client->broker_epoch;
	return rc;
}

static int open_session(struct reef_client *client, struct reef_answer *answer,
			uint64_t timeout_ns)
{
	struct reef_body body = {
		.ask.session_open = {.program = text_of(client->name),
				     .pid = (uint32_t)getpid()},
	};

	if (client->options.servant)
		body.ask.session_open.flags = REEF_POOL_SERVANT;
	return reef_rpc_call(client->peer, REEF_POOL_SESSION_OPEN, 0, &body,
			     answer, timeout_ns);
}

static int resume_session(struct reef_client *client,
			  struct reef_answer *answer, uint64_t timeout_ns)
{
	struct reef_body body = {
		.ask.session_resume = {.session = client->session,
				       .program = text_of(client->name),
				       .pid = (uint32_t)getpid()},
	};
	struct reef_ask_session_resume *ask = &body.ask.session_resume;
	int rc;

	memcpy(ask->secret, client->session_key->bytes, sizeof(ask->secret));
	rc = reef_rpc_call(client->peer, REEF_POOL_SESSION_RESUME, 0, &body,
			   answer, timeout_ns);
	explicit_bzero(ask->secret, sizeof(ask->secret));
	return rc;
}

static int enter_pool(struct reef_client *client, uint64_t timeout_ns)
{
	bool resume = client->session != 0;
	struct reef_answer answer = {0};
	int rc;

	rc = connect_broker(client, timeout_ns);
	if (rc)
		return rc;
	rc = resume ? resume_session(client, &answer, timeout_ns)
		    : open_session(client, &answer, timeout_ns);
	/* The broker knows no such session, or it has ended. */
	if (resume && (rc == -REEF_EAUTH || rc == -ENOENT || rc == -EACCES))
		rc = -REEF_EFENCED;
	if (!rc) {
		rc = note_admitted(client, &answer);
		reef_answer_free(&answer);
	}
	if (!rc)
		rc = reopen_spaces(client, timeout_ns);
	if (!rc && client->janitor)
		rc = reef_rpc_call(client->peer, REEF_POOL_JANITOR, 0, NULL,
				   NULL, timeout_ns);
	if (!rc && !client->peer->link)
		rc = -REEF_ENOLINK;
	if (rc) {
		client_link_drop(client);
		client->place++; /* another broker may know better */
		return rc;
	}
	atomic_store(&client->present, true);
	client_wake(&client->changed);
	return 0;
}

int client_join(struct reef_client *client)
{
	uint64_t timeout_ns = client->options.timeout_ns
				      ? client->options.timeout_ns
				      : 10 * CLIENT_SECOND;
	uint64_t until_ns = reef_now_ns() + timeout_ns, now_ns, left_ns;
	uint32_t left = count_places(client);
	int rc;

	for (;;) {
		now_ns = reef_now_ns();
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		/* Who does not answer may not be there: a part of the time. */
		left_ns = until_ns - now_ns;
		rc = enter_pool(client, left_ns < timeout_ns / 4
						? left_ns
						: timeout_ns / 4);
		/* This process stood still for longer than its new session's
		 * lease. */
		if (rc == -REEF_EKEY || rc == -REEF_EFENCED) {
			client->session = 0;
			rc = -REEF_EINDOUBT;
		}
		/* An answer is final, and so is that nobody is there, at any
		 * place; a link that was lost on the way is not. */
		if (!rc || rc == -REEF_EHOSTDEAD || client->stopping)
			return rc;
		if (rc != -REEF_EINDOUBT && rc != -REEF_ENOLINK &&
		    rc != -ETIMEDOUT && rc != -EBUSY && --left == 0)
			return rc;
		rc = client_wait(&client->changed, PAUSE_MIN_NS);
		if (rc)
			return rc;
	}
}

/* How long one try to come back may take: several fit into a lease. */
static uint64_t try_ns(const struct reef_client *client)
{
	uint64_t quarter_ns = client->ttl_ns / 4;

	return quarter_ns > TRY_MIN_NS ? quarter_ns : TRY_MIN_NS;
}

/* A broker that does not take our credential any more has ended the session, or
 * will when its lease is over. For as long another one may still be meant by
 * that address. refused_ns: since when; 0: not yet. */
static int judge_refusal(const struct reef_client *client, int rc,
			 uint64_t *refused_ns)
{
	if (rc == 0)
		*refused_ns = 0;
	if (rc != -REEF_EAUTH)
		return rc;
	if (!*refused_ns)
		*refused_ns = reef_now_ns();
	return reef_now_ns() - *refused_ns > client->ttl_ns ? -REEF_EFENCED
							    : rc;
}

int client_link_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t pause_ns = PAUSE_MIN_NS, refused_ns = 0;
	int rc = 0;

	while (!client->stopping && !client_over(client)) {
		if (client->present) {
			pause_ns = PAUSE_MIN_NS;
			rc = client_wait(&client->changed, REEF_FOREVER);
		} else {
			if (client->peer)
				client_link_drop(client);
			rc = enter_pool(client, try_ns(client));
			rc = judge_refusal(client, rc, &refused_ns);
			/* A broker that was replaced by one of another version
			 * does not come back; there may be others, though. */
			if (rc == -REEF_EFENCED ||
			    (rc == -REEF_EVERSION && count_places(client) < 2))
				client_session_end(client, rc);
			if (!rc) {
				client_view_refresh_soon(client);
				continue;
			}
			if (rc == -REEF_EHOSTDEAD)
				break;
			rc = client_wait(&client->changed, pause_ns);
			if (pause_ns < PAUSE_MAX_NS &&
			    pause_ns < client->ttl_ns / 16)
				pause_ns *= 2;
		}
		if (rc)
			break;
	}
	/* Nobody is to wait for what a session that has ended still asks. */
	if (client_over(client) && client->peer)
		client_link_drop(client);
	client_fiber_end(client);
	return 0;
}

/* --- calls --- */

static bool is_unanswered(int rc)
{
	return rc == -REEF_ENOLINK || rc == -REEF_EINDOUBT || rc == -ETIMEDOUT;
}

/* Call the broker once, over the link as it is. */
static int call_once(struct reef_client *client, uint16_t kind,
		     uint32_t sequence, const struct reef_body *body,
		     struct reef_answer *answer)
{
	struct reef_peer *peer = client->peer;
	struct reef_answer got = {0};
	int rc;

	reef_peer_ref(peer);
	rc = reef_rpc_call(peer, kind, sequence, body, &got, CALL_TIMEOUT_NS);
	if (!rc && got.epoch < client->broker_epoch) {
		reef_answer_free(&got);
		rc = -REEF_EINDOUBT;
	}
	if (is_unanswered(rc) && peer == client->peer)
		client_link_check(client);
	reef_peer_unref(peer);
	if (rc)
		return rc;
	client->broker_epoch = got.epoch;
	if (answer)
		*answer = got;
	else
		reef_answer_free(&got);
	return 0;
}

/* Call until there is an answer, or the time is over. */
static int call_until(struct reef_client *client, uint16_t kind,
		      uint32_t sequence, const struct reef_body *body,
		      struct reef_answer *answer, uint64_t until_ns)
{
	uint64_t now_ns, pause_ns = CLIENT_MILLISECOND;
	uint32_t busy = 0;
	bool sent = false;
	int rc;

	for (;;) {
		rc = client_over(client);
		if (rc)
			return rc;
		if (client->present) {
			rc = call_once(client, kind, sequence, body, answer);
			if (rc == -REEF_EFENCED)
				client_session_end(client, rc);
			sent |= rc == -REEF_EINDOUBT || rc == -ETIMEDOUT;
			if (rc == -EBUSY && busy < BUSY_MAX)
				rc = client_wait(&client->changed,
						 CLIENT_MILLISECOND << busy++);
			else if (!is_unanswered(rc))
				return rc;
			if (rc == -REEF_EHOSTDEAD)
				return rc;
		}
		now_ns = reef_now_ns();
		if (now_ns >= until_ns || client->stopping)
			return sent && sequence ? -REEF_EINDOUBT
						: -REEF_ENOLINK;
		if (client_over(client)) /* the session ended meanwhile */
			continue;
		/* With a link, the broker itself is in doubt, or slow: a pause.
		 * Without one: until there is. */
		rc = client_wait(&client->changed,
				 client->present && pause_ns < until_ns - now_ns
					 ? pause_ns
					 : until_ns - now_ns);
		if (rc)
			return rc;
		if (pause_ns < PAUSE_MAX_NS)
			pause_ns *= 2;
	}
}

int client_call(struct reef_client *client, uint16_t kind, bool mutating,
		const struct reef_body *body, struct reef_answer *answer,
		uint64_t patience_ns)
{
	uint64_t until_ns = reef_now_ns() + patience_ns;
	int rc;

	if (!mutating)
		return call_until(client, kind, 0, body, answer, until_ns);
	while (client->calling) {
		if (reef_now_ns() >= until_ns || client->stopping)
			return -REEF_ENOLINK;
		rc = client_wait(&client->changed, until_ns - reef_now_ns());
		if (rc)
			return rc;
	}
	client->calling = true;
	client->sequence = number_after(client->sequence);
	rc = call_until(client, kind, client->sequence, body, answer, until_ns);
	client->calling = false;
	client_wake(&client->changed);
	return rc;
}

/* --- the table --- */

/* READ a session's slot of the table. */
static int read_slot(struct reef_client *client, uint32_t session,
		     struct reef_table_slot *slot)
{
	struct reef_op op = {
		.kind = REEF_READ,
		.remote = client->table,
		.offset = reef_table_offset(session),
		.local = slot,
		.length = sizeof(*slot),
	};
	struct reef_batch batch = {.ops = &op, .count = 1};
	int rc;

	if (!client->present || !client->peer->link)
		return -REEF_ENOLINK;
	batch.link = client->peer->link;
	rc = reef_run(reef_port_queue_of(client->port, batch.link), &batch);
	return rc && rc != -REEF_EHOSTDEAD ? -REEF_ENOLINK : rc;
}

static enum reef_session_view view_of(uint64_t state, uint32_t session)
{
	/* In a slot of a later generation the session ended long ago. */
	int16_t age = (int16_t)((uint16_t)state - (uint16_t)session);

	if (!state || age < 0)
		return REEF_VIEW_ALIVE; /* not published yet */
	if (age > 0 || (uint8_t)(state >> 16) >= REEF_SESSION_FENCED)
		return REEF_VIEW_ENDED;
	return (uint8_t)(state >> 16) == REEF_SESSION_ALIVE ? REEF_VIEW_ALIVE
							    : REEF_VIEW_EXPIRED;
}

static int run_check(struct reef_client *client, struct client_job *base)
{
	struct client_check_job *job = (struct client_check_job *)base;
	struct reef_table_slot slot;
	int rc = read_slot(client, job->session, &slot);

	if (rc)
		return rc;
	job->view = view_of(slot.state, job->session);
	if (job->view == REEF_VIEW_ENDED && !REEF_MUTATED(CLIENT_FENCED_EARLY))
		rc = client_epoch_take_in(
			client,
			client_epoch_of(client, slot.state >> 32)); /* (4) */
	return rc;
}

const struct client_job_ops client_check_ops = {
	.size = sizeof(struct client_check_job),
	.run = run_check,
};

void client_note_received(void *context, const struct reef_request *note)
{
	struct reef_client *client = context;

	if (note->peer != client->peer)
		return;
	if (note->header.kind == REEF_POOL_NOTICE) {
		client_view_refresh_soon(client);
	} else {
		client->renew_now = true;
		client_wake(&client->changed);
	}
}

/* --- the end --- */

void client_leave_pool(struct reef_client *client)
{
	struct client_node *node;

	/* Nodes first: when the session is closed, no link to one is left that
	 * would have to be cut. */
	for (node = client->nodes; node; node = node->next)
		client_node_unlink(client, node);
	client_retired_close_all(client);
	if (client->present && client->peer && !client_over(client)) {
		client_tell_counters(client);
		if (client->peer)
			reef_rpc_call(client->peer, REEF_POOL_SESSION_CLOSE, 0,
				      &(struct reef_body){0}, NULL,
				      CLOSE_TIMEOUT_NS);
	}
	if (client->peer)
		client_link_drop(client);
}
