/* serve.c - a thread of the door: it waits for its clients, and serves each in
 * turn with all that it has sent meanwhile.
 *
 *	wait --> for each that has something: read once, run everything that is
 *	  ^      whole, write once --> do what was put off --> some that are
 *	  |                                                    ready (ready.h)
 *	  +-- look after the idle (once a second) <------------------+
 *
 *	a turn: read --+--> run --> write --> settle --> (next)
 *	               |                        ^
 *	               |                        | write
 *	               `--> put off, settle --> run, together with others
 *
 * (1) The buffers to read into and to answer from are lent to the client at
 *     work, and given back before the next one's turn (settle).
 * (2) A client of whose answers more than REDIS_UNSENT_MAX cannot be sent is
 *     not run until half of them are gone. It is read from until its requests
 *     take the soft limit, which is large, for many clients send a whole
 *     pipeline before they read the first answer. If it takes no byte for a
 *     minute, it is closed.
 * (3) Only `close_client` closes a client, at the end of its turn or of the
 *     round, and never one that is put off.
 * (4) At the end what has come already is answered, and what is to be sent gets
 *     some seconds for it.
 * (5) A turn in which a client has sent nothing but plain requests is put off
 *     (gather.h), if it is not the only one of its round: so the requests of
 *     different clients share round trips. It goes on before the round ends,
 *     and a client has one turn in a round: so nothing else of that client is
 *     run meanwhile, and between rounds nobody is put off. Others may look at
 *     it and kill it then, as they may between rounds.
 * (6) Nobody keeps the thread: a command that may take long is a task (task.h),
 *     and a pipeline that has had its time goes on when its client is ready
 *     again.
 */
#include "base/clock.h"
#include "base/log.h"
#include "fabric/socket.h"
#include "gateway/redis/server/budget.h"
#include "gateway/redis/server/gather.h"
#include "gateway/redis/server/internal.h"
#include "gateway/redis/server/ready.h"
#include "gateway/redis/server/stage.h"
#include "gateway/redis/server/task.h"
#include "gateway/redis/server/tls.h"
#include "pool/client/client.h"

#include <errno.h>
#include <malloc.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define OVER_PATIENCE (60 * SECOND)
#define END_PATIENCE (5 * SECOND)
/* Nobody knows how large answers will be before they are there. So few are made
 * together at first, then more, if they are smaller than this. */
#define LARGE_MIN (UINT64_C(512) << 10)
#define MANY_FIRST 4
/* When so many bytes were freed, malloc is made to give memory back to the
 * system, with a pause before the next time. */
#define TRIM_MIN (UINT64_C(64) << 20)
#define TRIM_PAUSE (5 * SECOND)
#define EVENTS_MAX 128
/* How long a thread polls before it sleeps, if polling has paid lately. */
#define POLL_NS UINT64_C(50000)
#define VECTORS_MAX 64
/* A pipeline has had its time after TURN_NS, looked at after every request, or
 * TURN_CHECKS runs of requests, or when TURN_SENDS times all could be sent. */
#define TURN_NS MS
#define TURN_CHECKS 8u
#define TURN_SENDS 8u
/* Clients that are ready get a turn in one round, at the most. */
#define READY_MAX 4u

/* --- a client's coming and going --- */

static void set_addresses(struct redis_client *client)
{
	struct reef_address address = {.size = sizeof(address.storage)};
	struct sockaddr *name = (struct sockaddr *)&address.storage;

	if (client->is_unix) {
		const char *path = client->thread->door->options.unix_path;

		snprintf(client->address, sizeof(client->address), "%s:0",
			 path ? path : "");
		memcpy(client->local_address, client->address,
		       sizeof(client->address));
		return;
	}
	if (!getpeername(client->fd, name, &address.size))
		reef_address_format(&address, client->address,
				    sizeof(client->address));
	address.size = sizeof(address.storage);
	if (!getsockname(client->fd, name, &address.size))
		reef_address_format(&address, client->local_address,
				    sizeof(client->local_address));
}

void redis_serve_wake(struct redis_thread *thread)
{
	const uint64_t one = 1;
	ssize_t written = write(thread->wake_fd, &one, sizeof(one));

	(void)written; /* -EAGAIN: it is awake already */
}

/* Give a client TLS, with what the door has for it now. */
static int begin_tls(struct redis_client *client)
{
	struct redis_door *door = client->thread->door;
	int rc;

	pthread_mutex_lock(&door->tls_lock);
	rc = redis_tls_begin(door->tls, client);
	pthread_mutex_unlock(&door->tls_lock);
	return rc;
}

int redis_serve_accept(struct redis_thread *thread, int fd, bool is_unix,
		       bool is_tls)
{
	struct redis_door *door = thread->door;
	struct redis_client *client = calloc(1, sizeof(*client));
	uint64_t keepalive_ns = door->config.keepalive_ns;

	if (client) {
		client->thread = thread;
		client->fd = fd;
	}
	if (!client || (is_tls && begin_tls(client))) {
		free(client);
		close(fd);
		return -ENOMEM;
	}
	client->is_unix = is_unix;
	client->id = atomic_fetch_add(&door->next_id, 1) + 1;
	client->created_ns = client->used_ns = reef_now_ns();
	client->stranger_ns = client->created_ns;
	client->is_authenticated = !door->has_password;
	set_addresses(client);
	if (!is_unix && keepalive_ns)
		reef_socket_keep_alive(fd, keepalive_ns);
	atomic_fetch_add(&door->client_count, 1);
	atomic_fetch_add(&thread->dealt, 1);
	pthread_mutex_lock(&thread->inbox_lock);
	client->next = thread->inbox;
	thread->inbox = client;
	pthread_mutex_unlock(&thread->inbox_lock);
	redis_serve_wake(thread);
	return 0;
}

static void free_client(struct redis_client *client)
{
	atomic_fetch_sub(&client->thread->door->client_count, 1);
	atomic_fetch_sub(&client->thread->dealt, 1);
	redis_tls_end(client);
	close(client->fd);
	client->is_dead = true;
	redis_ready_remove(client);
	redis_task_abandon(client);
	redis_later_free(client);
	redis_transaction_reset(client);
	redis_budget_charge(client, true);
	redis_parser_fini(&client->parser);
	redis_reply_fini(&client->reply);
	free(client->name);
	free(client->library);
	free(client->library_version);
	free(client);
}

static void close_client(struct redis_client *client)
{
	struct redis_thread *thread = client->thread;

	if (client->previous)
		client->previous->next = client->next;
	else
		thread->clients = client->next;
	if (client->next)
		client->next->previous = client->previous;
	thread->client_count--;
	free_client(client);
}

static void add_client(struct redis_thread *thread, struct redis_client *client)
{
	const struct redis_door_config *config = &thread->door->config;
	const struct redis_limits limits = {
		.bulk_max = config->bulk_max,
		.query_max = config->query_max,
	};
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};

	redis_parser_init(&client->parser, &thread->spare, &limits);
	client->parser.is_stranger = !client->is_authenticated;
	client->parser.staging = &redis_staging;
	client->parser.context = client;
	redis_reply_init(&client->reply, &thread->spare);
	client->many_max = MANY_FIRST;
	client->events = event.events;
	if (epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, client->fd, &event)) {
		free_client(client);
		return;
	}
	client->previous = NULL;
	client->next = thread->clients;
	if (client->next)
		client->next->previous = client;
	thread->clients = client;
	thread->client_count++;
	thread->stats.connections++;
}

static void add_dealt_clients(struct redis_thread *thread)
{
	struct redis_client *client, *next;

	pthread_mutex_lock(&thread->inbox_lock);
	client = thread->inbox;
	thread->inbox = NULL;
	pthread_mutex_unlock(&thread->inbox_lock);
	for (; client; client = next) {
		next = client->next;
		add_client(thread, client);
	}
}

/* --- sending --- */

static void send_answers(struct redis_thread *thread,
			 struct redis_client *client)
{
	struct redis_reply *reply = &client->reply;
	struct iovec vectors[VECTORS_MAX];
	uint32_t count;
	ssize_t sent;

	while (!client->is_dead && !client->is_held &&
	       redis_reply_waiting(reply)) {
		count = redis_reply_vectors(reply, vectors, VECTORS_MAX);
		sent = redis_wire_send(client, vectors, count);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0) {
			if (errno != EAGAIN)
				client->is_dead = true;
			return;
		}
		redis_reply_sent(reply, (size_t)sent);
		client->over_ns = 0;
		client->bytes_out += (uint64_t)sent;
		thread->stats.bytes_out += (uint64_t)sent;
	}
}

/* --- running --- */

/* Run the requests of one command that stand in a row together; the first of
 * another command is left in *request. If there is none, the run may be
 * gathered instead. Returns as redis_parser_next does. */
static int run_many(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_command *command,
		    struct redis_request *request, bool may_wait)
{
	uint32_t count = 0;
	int rc;

	do {
		redis_gather_read(thread->gather, client, request, count++);
		rc = redis_parser_next(&client->parser, request);
	} while (rc > 0 && count < client->many_max &&
		 redis_dispatch_many(client, request) == command);
	if (rc || !may_wait || client->no_touch ||
	    redis_reply_waiting(&client->reply) ||
	    !redis_gather_keep(thread->gather, command, count))
		redis_gather_run(thread, command, count);
	return rc;
}

static void reply_malformed(struct redis_thread *thread,
			    struct redis_client *client, int rc)
{
	reef_log(REEF_LOG_INFO, "redis", "client %s sent something malformed",
		 client->address);
	if (rc == -EPROTO) {
		redis_reply_errorf(&client->reply, "ERR %s",
				   client->parser.error);
		thread->stats.errors++;
		client->close_after = true;
	} else {
		client->is_dead = true;
	}
}

static bool may_run(const struct redis_client *client)
{
	return !client->is_dead && !client->close_after && !client->is_paused &&
	       !client->reply.is_broken && !client->task && !client->is_ready;
}

/* True if the client may be read from: rule (2). */
static bool may_read(const struct redis_client *client)
{
	const struct redis_door_config *config = &client->thread->door->config;

	if (client->is_dead || client->close_after || client->is_ended ||
	    client->parser.is_failed || client->task || client->is_ready)
		return false;
	return !client->is_paused ||
	       (!client->parser.is_filling &&
		redis_parser_waiting(&client->parser) < config->output_soft);
}

/* After requests were answered: set how many may be run together, and pause a
 * client whose answers cannot be sent. */
static void limit_answers(struct redis_thread *thread,
			  struct redis_client *client, uint64_t before)
{
	uint64_t waiting = redis_reply_waiting(&client->reply);

	if (waiting > before + LARGE_MIN)
		client->many_max = 1;
	else if (client->many_max < REDIS_MANY_MAX)
		client->many_max *= MANY_FIRST;
	if (waiting > redis_unsent_max(client)) {
		send_answers(thread, client);
		waiting = redis_reply_waiting(&client->reply);
	}
	client->is_paused = waiting > redis_unsent_max(client) || client->later;
}

/* How long a client has been run. */
struct turn {
	uint32_t checks;
	uint64_t began_ns;
};

static bool is_turn_over(struct turn *turn, bool was_run)
{
	uint64_t now_ns;

	if (was_run && ++turn->checks % TURN_CHECKS)
		return false;
	now_ns = reef_now_ns();
	if (!turn->began_ns)
		turn->began_ns = now_ns;
	return now_ns - turn->began_ns > TURN_NS;
}

/* Run all requests that are whole, until the answers become too many or the
 * turn is over; or gather them, if may_wait. */
static void run_requests(struct redis_thread *thread,
			 struct redis_client *client, bool may_wait)
{
	const struct redis_door_config *config = &thread->door->config;
	const struct redis_command *many;
	struct redis_request request;
	struct turn turn = {0};
	bool is_next; /* the next request was read behind a run */
	int rc;

	/* CONFIG SET may have changed the limits since the last turn. */
	client->reply.limit = config->output_max;
	client->parser.limits.bulk_max = config->bulk_max;
	client->parser.limits.query_max = config->query_max;
	rc = redis_parser_next(&client->parser, &request);
	while (rc > 0) {
		const uint64_t before = redis_reply_waiting(&client->reply);

		many = client->many_max == 1
			       ? NULL
			       : redis_dispatch_many(client, &request);
		is_next = many != NULL;
		if (many)
			rc = run_many(thread, client, many, &request, may_wait);
		else if (redis_dispatch_is_long(client, &request))
			redis_task_begin(thread, client, &request);
		else
			redis_dispatch(thread, client, &request);
		if (client->is_gathered || client->task)
			return;
		limit_answers(thread, client, before);
		if (is_turn_over(&turn, many))
			redis_ready_add(client);
		if (!may_run(client)) {
			if (is_next && rc > 0)
				redis_parser_again(&client->parser);
			return;
		}
		if (!is_next)
			rc = redis_parser_next(&client->parser, &request);
	}
	if (rc < 0)
		reply_malformed(thread, client, rc);
}

static void receive_from(struct redis_thread *thread,
			 struct redis_client *client, bool may_wait)
{
	struct redis_parser *parser = &client->parser;
	ssize_t got;
	size_t room;
	void *to;
	int rc = redis_parser_room(parser, &to, &room);

	if (rc) {
		reef_log(REEF_LOG_WARNING, "redis",
			 "client %s is closed: its query buffer is full",
			 client->address);
		thread->stats.query_limit_closed++;
		client->is_dead = true;
		return;
	}
	if (to)
		got = redis_wire_receive(client, to, room);
	else
		got = redis_stage_receive(client);
	if (got < 0) {
		client->is_dead = errno != EAGAIN && errno != EINTR;
		return;
	}
	if (got == 0) {
		client->is_ended = true;
		return;
	}
	redis_parser_fed(parser, (size_t)got);
	client->used_ns = thread->now_ns;
	client->bytes_in += (uint64_t)got;
	thread->stats.bytes_in += (uint64_t)got;
	if (!client->is_paused)
		run_requests(thread, client, may_wait);
}

/* --- a client's turn --- */

static void update_events(struct redis_client *client)
{
	struct epoll_event event = {.data.ptr = client};

	if (may_read(client))
		event.events |= EPOLLIN;
	if ((redis_reply_waiting(&client->reply) && !client->is_held) ||
	    client->tls_wants_write)
		event.events |= EPOLLOUT;
	if (event.events == client->events)
		return;
	client->events = event.events;
	if (epoll_ctl(client->thread->epoll_fd, EPOLL_CTL_MOD, client->fd,
		      &event))
		client->is_dead = true;
}

/* True if a client waits for its answers to be sent. */
static bool waits_to_send(const struct redis_client *client)
{
	return client->task ? redis_task_state(client) == REDIS_TASK_SENDING
			    : client->is_paused;
}

/* Go on with what waits for half of the answers to be gone. */
static void resume_paused(struct redis_thread *thread,
			  struct redis_client *client)
{
	if (client->task) {
		redis_ready_add(client);
		return;
	}
	client->is_paused = false;
	if (client->later) {
		redis_later_run(client);
		limit_answers(thread, client, 0);
	}
	if (may_run(client))
		run_requests(thread, client, false);
}

static void send_and_resume(struct redis_thread *thread,
			    struct redis_client *client)
{
	uint32_t sends = 0;

	send_answers(thread, client);
	while (waits_to_send(client) && !client->is_dead && !client->is_ready &&
	       !client->close_after &&
	       redis_reply_waiting(&client->reply) <=
		       redis_unsent_max(client) / 2) {
		if (++sends > TURN_SENDS) {
			redis_ready_add(client);
			break;
		}
		resume_paused(thread, client);
		send_answers(thread, client);
	}
	if (!waits_to_send(client))
		client->over_ns = 0;
	else if (!client->over_ns)
		client->over_ns = thread->now_ns;
}

/* End a client's turn: send, settle, and close the client if it is to be
 * closed. */
static void end_turn(struct redis_thread *thread, struct redis_client *client)
{
	if (redis_reply_waiting(&client->reply) || client->is_paused)
		send_and_resume(thread, client);
	if (client->reply.is_broken && !client->is_dead) {
		reef_log(REEF_LOG_WARNING, "redis",
			 "client %s is closed: too much waits to be sent to it",
			 client->address);
		thread->stats.output_limit_closed++;
		client->is_dead = true;
	}
	redis_reply_settle(&client->reply);
	if (redis_parser_settle(&client->parser))
		client->is_dead = true;
	/* What others took is looked at once a round. */
	if (redis_budget_charge(client, false))
		redis_budget_keep(thread);
	if ((client->close_after || client->is_ended) &&
	    !redis_reply_waiting(&client->reply) && !client->task &&
	    !client->is_ready)
		client->is_dead = true;
	if (redis_wire_has_more(client) && may_read(client))
		redis_ready_add(client);
	if (!client->is_dead)
		update_events(client);
	if (client->is_dead)
		close_client(client);
}

/* Give back the buffers of a client whose turn is put off: rule (5). */
static void settle_gathered(struct redis_client *client)
{
	redis_reply_settle(&client->reply);
	if (redis_parser_settle(&client->parser))
		client->is_dead = true;
}

static void run_gathered(struct redis_thread *thread)
{
	struct redis_client *clients[REDIS_MANY_MAX];
	uint32_t i, count = redis_gather_run_all(thread, clients);

	for (i = 0; i < count; i++) {
		limit_answers(thread, clients[i], 0);
		end_turn(thread, clients[i]);
	}
}

static void take_turn(struct redis_thread *thread, struct redis_client *client,
		      uint32_t events, bool may_wait)
{
	if (redis_gather_is_full(thread->gather))
		run_gathered(thread);
	if (client->tls_wants_write)
		events |= events & EPOLLOUT ? EPOLLIN : 0;
	if (events & EPOLLIN && may_read(client))
		receive_from(thread, client, may_wait);
	else if (events & (EPOLLHUP | EPOLLERR))
		client->is_dead = true;
	if (client->is_gathered)
		settle_gathered(client);
	else
		end_turn(thread, client);
}

/* A turn of a client that is ready. */
static void take_ready_turn(struct redis_thread *thread,
			    struct redis_client *client)
{
	redis_ready_remove(client);
	if (client->task) {
		redis_task_resume(client);
		if (!client->task)
			limit_answers(thread, client, 0);
	} else if (client->is_paused) {
		end_turn(thread, client);
		return;
	}
	if (may_run(client))
		run_requests(thread, client, false);
	if (redis_wire_has_more(client) && may_read(client))
		receive_from(thread, client, false);
	end_turn(thread, client);
}

static void run_ready(struct redis_thread *thread)
{
	uint32_t i;

	redis_tasks_wake(thread);
	for (i = 0; i < READY_MAX && thread->ready_first; i++)
		take_ready_turn(thread, thread->ready_first);
}

/* --- the loop --- */

/* Make malloc give memory back, now and then: what the answers of a crowd took
 * stays with malloc in pieces otherwise. */
static void trim_malloc(struct redis_thread *thread)
{
	if (thread->spare.freed < TRIM_MIN ||
	    thread->now_ns - thread->trimmed_ns < TRIM_PAUSE)
		return;
	thread->spare.freed = 0;
	thread->trimmed_ns = thread->now_ns;
	malloc_trim(0);
}

static void check_clients(struct redis_thread *thread)
{
	const uint64_t now_ns = thread->now_ns;
	const uint64_t idle_ns = thread->door->config.idle_ns;
	const uint64_t login_ns = thread->door->options.login_ns;
	struct redis_client *client, *next;

	for (client = thread->clients; client; client = next) {
		next = client->next;
		if ((!client->is_authenticated || !redis_tls_is_open(client)) &&
		    now_ns - client->stranger_ns > login_ns && !client->task) {
			client->is_dead = true;
		} else if (idle_ns && now_ns - client->used_ns > idle_ns &&
			   !client->task) {
			client->is_dead = true;
		} else if (client->over_ns &&
			   now_ns - client->over_ns > OVER_PATIENCE) {
			reef_log(REEF_LOG_WARNING, "redis",
				 "client %s is closed: it does not read its "
				 "answers",
				 client->address);
			thread->stats.output_limit_closed++;
			client->is_dead = true;
		}
		if (client->is_dead)
			close_client(client);
	}
	if (thread->reef && reef_health(thread->reef) == -REEF_EFENCED)
		thread->is_fenced = true;
	redis_stage_clear(thread, false);
	trim_malloc(thread);
}

/* Poll for a short time before sleeping. Waking a thread that sleeps is the
 * work of the client that sends: with 50 clients of redis-benchmark it costs
 * some 6 in 100 of the rate. */
static int poll_for_events(struct redis_thread *thread,
			   struct epoll_event *events)
{
	uint64_t part_ns = reef_spin_begin(&thread->spin), until_ns;
	int count;

	if (!part_ns)
		return 0;
	until_ns = reef_now_ns() + part_ns;
	do
		count = epoll_wait(thread->epoll_fd, events, EVENTS_MAX, 0);
	while (!count && reef_now_ns() < until_ns);
	if (count)
		reef_spin_paid(&thread->spin);
	else
		reef_spin_failed(&thread->spin);
	return count;
}

/* Wait for events without the lock: others may look at the thread's clients
 * meanwhile. */
static int wait_for_events(struct redis_thread *thread,
			   struct epoll_event *events, int timeout_ms)
{
	const uint64_t wake_ns = redis_tasks_wake(thread);
	int count = 0;

	if (thread->ready_first)
		timeout_ms = 0;
	else if (wake_ns < thread->now_ns + (uint64_t)timeout_ms * MS)
		timeout_ms = (int)((wake_ns - thread->now_ns) / MS) + 1;
	while (atomic_load(&thread->wanted))
		pthread_cond_wait(&thread->turn, &thread->lock);
	pthread_mutex_unlock(&thread->lock);
	if (timeout_ms)
		count = poll_for_events(thread, events);
	if (!count)
		count = epoll_wait(thread->epoll_fd, events, EVENTS_MAX,
				   timeout_ms);
	pthread_mutex_lock(&thread->lock);
	thread->now_ns = reef_now_ns();
	/* It orders nothing: whoever reads it only looks whether it moves. */
	atomic_fetch_add_explicit(&thread->rounds, 1, memory_order_relaxed);
	return count;
}

static void serve_events(struct redis_thread *thread,
			 const struct epoll_event *events, int count)
{
	uint64_t wakes;
	int i;

	for (i = 0; i < count; i++) {
		if (events[i].data.ptr)
			take_turn(thread, events[i].data.ptr, events[i].events,
				  count > 1);
		else if (read(thread->wake_fd, &wakes, sizeof(wakes)) > 0)
			add_dealt_clients(thread);
	}
	run_gathered(thread);
	run_ready(thread);
}

/* Close the clients that were killed out of their turn. */
static void close_killed(struct redis_thread *thread)
{
	struct redis_client *client, *next;

	thread->has_killed = false;
	for (client = thread->clients; client; client = next) {
		next = client->next;
		if (client->is_dead)
			close_client(client);
	}
}

/* At the end of the door: answer what has come, and let clients read it for
 * END_PATIENCE. */
static void finish_clients(struct redis_thread *thread)
{
	const uint64_t until_ns = thread->now_ns + END_PATIENCE;
	struct epoll_event events[EVENTS_MAX];
	struct redis_client *client, *next;
	int count;

	add_dealt_clients(thread);
	count = wait_for_events(thread, events, 0);
	serve_events(thread, events, count);
	for (client = thread->clients; client; client = next) {
		next = client->next;
		client->is_ended = true; /* nothing more is read */
		end_turn(thread, client);
	}
	while (thread->clients && thread->now_ns < until_ns) {
		count = wait_for_events(thread, events, 100);
		serve_events(thread, events, count);
	}
	/* close_client takes it off the list, which the checker of this does
	 * not see. */
	while (thread->clients)
		close_client(thread->clients); /* NOLINT */
}

void *redis_serve(void *arg)
{
	struct redis_thread *thread = arg;
	struct epoll_event events[EVENTS_MAX];
	uint64_t tick_ns = 0;
	int count;

	char name[16];

	snprintf(name, sizeof(name), "redis-%u", thread->index);
	pthread_setname_np(pthread_self(), name);
	reef_spin_init(&thread->spin, POLL_NS);
	pthread_mutex_lock(&thread->lock);
	thread->now_ns = reef_now_ns();
	redis_link_keep(thread);
	redis_door_ready(thread->door);
	while (!atomic_load(&thread->door->is_stopping)) {
		redis_link_keep(thread);
		count = wait_for_events(thread, events,
					thread->reef ? 1000 : 10);
		serve_events(thread, events, count);
		redis_budget_keep(thread);
		if (thread->has_killed)
			close_killed(thread);
		if (thread->now_ns - tick_ns >= SECOND) {
			tick_ns = thread->now_ns;
			check_clients(thread);
			if (thread->reef)
				reef_tend(thread->space);
		}
	}
	finish_clients(thread);
	redis_link_close(thread);
	pthread_mutex_unlock(&thread->lock);
	return NULL;
}
