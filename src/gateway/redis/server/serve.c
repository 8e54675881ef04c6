/* serve.c - a thread of the door: it waits for its clients, and serves each in
 * turn with all that it has sent meanwhile.
 *
 *	wait --> for each that has something: read once, run everything that is
 *	  ^      whole, write once --> do what was put off --+
 *	  |                                                  |
 *	  +-- look after the idle (once a second) <----------+
 *
 *	a turn: read --+--> run --> write --> settle --> (next)
 *	               |                        ^
 *	               |                        | write
 *	               `--> put off, settle --> run, together with others
 *
 * (1) The buffers to read into and to answer from are lent to the client at
 *     work, and given back before the next one's turn (settle).
 * (2) A client of whose answers more than UNSENT_MAX cannot be sent is not run
 *     until half of them are gone. It is read from until its requests take the
 *     soft limit, which is large, for many clients send a whole pipeline before
 *     they read the first answer. If it takes no byte for a minute, it is
 *     closed.
 * (3) Only `reap` closes a client, at the end of its turn or of the round, and
 *     never one that is put off.
 * (4) At the end what has come already is answered, and what is to be sent gets
 *     some seconds for it.
 * (5) A turn in which a client has sent nothing but plain requests is put off
 *     (gather.h), if it is not the only one of its round: so the requests of
 *     different clients share round trips. It goes on before the round ends,
 *     and a client has one turn in a round: so nothing else of that client is
 *     run meanwhile, and between rounds nobody is put off. Others may look at
 *     it and kill it then, as they may between rounds. */
#include "base/clock.h"
#include "base/log.h"
#include "fabric/socket.h"
#include "gateway/redis/server/gather.h"
#include "gateway/redis/server/internal.h"
#include "gateway/redis/server/stage.h"

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
#define UNSENT_MAX (UINT64_C(1) << 20)
/* Nobody knows how large answers will be before they are there. So few are made
 * together at first, then more, if they are smaller than this. */
#define LARGE_MIN (UINT64_C(512) << 10)
#define MANY_FIRST 4
/* After so much was freed it is given back to the system, by and by. */
#define TRIM_MIN (UINT64_C(64) << 20)
#define TRIM_PAUSE (5 * SECOND)
#define EVENTS_MAX 128
/* Before it sleeps, if that has paid lately. */
#define LOOK_NS UINT64_C(50000)
#define VECTORS_MAX 64

/* --- a client's coming and going --- */

static void name_ends(struct redis_client *client)
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

	(void)written; /* full: it is awake already */
}

int redis_serve_accept(struct redis_thread *thread, int fd, bool is_unix)
{
	struct redis_door *door = thread->door;
	struct redis_client *client = calloc(1, sizeof(*client));
	uint64_t keepalive_ns = door->config.keepalive_ns;

	if (!client) {
		close(fd);
		return -ENOMEM;
	}
	client->thread = thread;
	client->fd = fd;
	client->is_unix = is_unix;
	client->id = atomic_fetch_add(&door->next_id, 1) + 1;
	client->created_ns = client->used_ns = reef_now_ns();
	client->is_authenticated = !door->info.has_password;
	name_ends(client);
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
	close(client->fd);
	redis_transaction_reset(client);
	redis_parser_fini(&client->parser);
	redis_reply_fini(&client->reply);
	free(client->name);
	free(client->library);
	free(client->library_version);
	free(client);
}

static void reap(struct redis_client *client)
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

static void welcome(struct redis_thread *thread, struct redis_client *client)
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

static void take_inbox(struct redis_thread *thread)
{
	struct redis_client *client, *next;

	pthread_mutex_lock(&thread->inbox_lock);
	client = thread->inbox;
	thread->inbox = NULL;
	pthread_mutex_unlock(&thread->inbox_lock);
	for (; client; client = next) {
		next = client->next;
		welcome(thread, client);
	}
}

/* --- sending --- */

static void flush(struct redis_thread *thread, struct redis_client *client)
{
	struct redis_reply *reply = &client->reply;
	struct iovec vectors[VECTORS_MAX];
	struct msghdr message = {.msg_iov = vectors};
	ssize_t sent;

	while (!client->is_dead && redis_reply_waiting(reply)) {
		message.msg_iovlen =
			redis_reply_vectors(reply, vectors, VECTORS_MAX);
		if (message.msg_iovlen == 1)
			sent = send(client->fd, vectors[0].iov_base,
				    vectors[0].iov_len, MSG_NOSIGNAL);
		else
			sent = sendmsg(client->fd, &message, MSG_NOSIGNAL);
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

/* Several of the same in a row go together, and the first that is another is
 * left in *request. If there is none, they may be put off. Returns as next
 * does. */
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

static void say_malformed(struct redis_thread *thread,
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
	       !client->reply.is_broken;
}

/* (2) */
static bool may_read(const struct redis_client *client)
{
	const struct redis_door_config *config = &client->thread->door->config;

	if (client->is_dead || client->close_after || client->is_ended ||
	    client->parser.is_failed)
		return false;
	return !client->is_paused ||
	       (!client->parser.is_filling &&
		redis_parser_waiting(&client->parser) < config->output_soft);
}

/* After something was answered: may there be more? */
static void look_at_answers(struct redis_thread *thread,
			    struct redis_client *client, uint64_t before)
{
	uint64_t waiting = redis_reply_waiting(&client->reply);

	if (waiting > before + LARGE_MIN)
		client->many_max = 1;
	else if (client->many_max < REDIS_MANY_MAX)
		client->many_max *= MANY_FIRST;
	if (waiting > UNSENT_MAX) {
		flush(thread, client);
		waiting = redis_reply_waiting(&client->reply);
	}
	client->is_paused = waiting > UNSENT_MAX;
}

/* Everything that is whole, unless its answers become too many; or it is put
 * off, if it may be. */
static void run(struct redis_thread *thread, struct redis_client *client,
		bool may_wait)
{
	const struct redis_door_config *config = &thread->door->config;
	const struct redis_command *many;
	struct redis_request request;
	bool is_next; /* a run has taken the request behind it already */
	int rc;

	/* They may have been set anew meanwhile. */
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
		else
			redis_dispatch(thread, client, &request);
		if (client->is_gathered)
			return;
		look_at_answers(thread, client, before);
		if (!may_run(client)) {
			if (is_next && rc > 0)
				redis_parser_again(&client->parser);
			return;
		}
		if (!is_next)
			rc = redis_parser_next(&client->parser, &request);
	}
	if (rc < 0)
		say_malformed(thread, client, rc);
}

static void receive(struct redis_thread *thread, struct redis_client *client,
		    bool may_wait)
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
		got = recv(client->fd, to, room, 0);
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
		run(thread, client, may_wait);
}

/* --- a client's turn --- */

static void want(struct redis_client *client)
{
	struct epoll_event event = {.data.ptr = client};

	if (may_read(client))
		event.events |= EPOLLIN;
	if (redis_reply_waiting(&client->reply))
		event.events |= EPOLLOUT;
	if (event.events == client->events)
		return;
	client->events = event.events;
	if (epoll_ctl(client->thread->epoll_fd, EPOLL_CTL_MOD, client->fd,
		      &event))
		client->is_dead = true;
}

static void send_all(struct redis_thread *thread, struct redis_client *client)
{
	flush(thread, client);
	/* What waited for the answers to go out. */
	while (client->is_paused && !client->is_dead && !client->close_after &&
	       redis_reply_waiting(&client->reply) <= UNSENT_MAX / 2) {
		client->is_paused = false;
		run(thread, client, false);
		flush(thread, client);
	}
	if (!client->is_paused)
		client->over_ns = 0;
	else if (!client->over_ns)
		client->over_ns = thread->now_ns;
}

/* At the end of its turn; afterwards it may be gone. */
static void end_turn(struct redis_thread *thread, struct redis_client *client)
{
	if (redis_reply_waiting(&client->reply) || client->is_paused)
		send_all(thread, client);
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
	if ((client->close_after || client->is_ended) &&
	    !redis_reply_waiting(&client->reply))
		client->is_dead = true;
	if (!client->is_dead)
		want(client);
	if (client->is_dead)
		reap(client);
}

/* (5) */
static void put_off(struct redis_client *client)
{
	redis_reply_settle(&client->reply);
	if (redis_parser_settle(&client->parser))
		client->is_dead = true;
}

static void go_on(struct redis_thread *thread)
{
	struct redis_client *clients[REDIS_MANY_MAX];
	uint32_t i, count = redis_gather_run_all(thread, clients);

	for (i = 0; i < count; i++) {
		look_at_answers(thread, clients[i], 0);
		end_turn(thread, clients[i]);
	}
}

static void take_turn(struct redis_thread *thread, struct redis_client *client,
		      uint32_t events, bool may_wait)
{
	if (redis_gather_is_full(thread->gather))
		go_on(thread);
	if (events & EPOLLIN && may_read(client))
		receive(thread, client, may_wait);
	else if (events & (EPOLLHUP | EPOLLERR))
		client->is_dead = true;
	if (client->is_gathered)
		put_off(client);
	else
		end_turn(thread, client);
}

/* --- the loop --- */

/* What the answers of a crowd took stays with malloc, in pieces. */
static void trim(struct redis_thread *thread)
{
	if (thread->spare.freed < TRIM_MIN ||
	    thread->now_ns - thread->trimmed_ns < TRIM_PAUSE)
		return;
	thread->spare.freed = 0;
	thread->trimmed_ns = thread->now_ns;
	malloc_trim(0);
}

static void look_after(struct redis_thread *thread)
{
	const uint64_t now_ns = thread->now_ns;
	const uint64_t idle_ns = thread->door->config.idle_ns;
	struct redis_client *client, *next;

	for (client = thread->clients; client; client = next) {
		next = client->next;
		if (idle_ns && now_ns - client->used_ns > idle_ns) {
			thread->stats.idle_closed++;
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
			reap(client);
	}
	if (thread->reef && reef_health(thread->reef) == -REEF_EFENCED)
		thread->is_fenced = true;
	redis_stage_clear(thread, false);
	trim(thread);
}

/* A client that is quick pays for waking whoever sleeps when it sends: with 50
 * of redis-benchmark, which is the limit then, that is some 6 in 100. */
static int look_for_events(struct redis_thread *thread,
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

/* Others that want to look at the thread's clients do it here. */
static int wait_for_events(struct redis_thread *thread,
			   struct epoll_event *events, int timeout_ms)
{
	int count = 0;

	while (atomic_load(&thread->wanted))
		pthread_cond_wait(&thread->turn, &thread->lock);
	pthread_mutex_unlock(&thread->lock);
	if (timeout_ms)
		count = look_for_events(thread, events);
	if (!count)
		count = epoll_wait(thread->epoll_fd, events, EVENTS_MAX,
				   timeout_ms);
	pthread_mutex_lock(&thread->lock);
	thread->now_ns = reef_now_ns();
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
			take_inbox(thread);
	}
	go_on(thread);
}

/* Those that were killed, by whomever. */
static void bury(struct redis_thread *thread)
{
	struct redis_client *client, *next;

	thread->has_killed = false;
	for (client = thread->clients; client; client = next) {
		next = client->next;
		if (client->is_dead)
			reap(client);
	}
}

/* What is to be sent still gets some time for it. */
static void say_goodbye(struct redis_thread *thread)
{
	const uint64_t until_ns = thread->now_ns + END_PATIENCE;
	struct epoll_event events[EVENTS_MAX];
	struct redis_client *client, *next;
	int count;

	take_inbox(thread);
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
	while (thread->clients)
		reap(thread->clients);
}

void *redis_serve(void *arg)
{
	struct redis_thread *thread = arg;
	struct epoll_event events[EVENTS_MAX];
	uint64_t tick_ns = 0;
	int count;

	reef_spin_init(&thread->spin, LOOK_NS);
	pthread_mutex_lock(&thread->lock);
	thread->now_ns = reef_now_ns();
	redis_link_keep(thread);
	redis_door_ready(thread->door);
	while (!atomic_load(&thread->door->is_stopping)) {
		redis_link_keep(thread);
		count = wait_for_events(thread, events,
					thread->reef ? 1000 : 10);
		serve_events(thread, events, count);
		if (thread->has_killed)
			bury(thread);
		if (thread->now_ns - tick_ns >= SECOND) {
			tick_ns = thread->now_ns;
			look_after(thread);
		}
	}
	say_goodbye(thread);
	redis_link_close(thread);
	pthread_mutex_unlock(&thread->lock);
	return NULL;
}
