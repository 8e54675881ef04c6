/* test_redis_door.c - the Redis door over an embedded pool, with real sockets:
 * passwords, limits, clients that do not behave, and its end. What commands
 * answer is compared with Redis elsewhere (tests/e2e). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/redis/server/internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define POOL "embedded:64M"
#define PATIENCE_MS 30000

/* --- a door --- */

static char folder[] = "/tmp/reef-door-XXXXXX";
static char socket_path[64], password_path[64];

struct open_door {
	struct redis_door *door;
	pthread_t thread;
	uint16_t port;
};

static void *run(void *arg)
{
	return (void *)(intptr_t)redis_door_run(arg);
}

static void open_door(struct open_door *open,
		      const struct redis_door_options *given)
{
	struct redis_door_options options = *given;
	struct redis_door_info info;
	const char *what = "";
	int rc;

	options.pool = POOL;
	options.listen = "127.0.0.1:0";
	options.unix_path = socket_path;
	if (!options.threads)
		options.threads = 2;
	rc = redis_door_create(&options, &open->door, &what);
	if (rc)
		fail_msg("%d: %s", rc, what);
	redis_door_info(open->door, &info);
	open->port = info.port;
	assert_int_equal(pthread_create(&open->thread, NULL, run, open->door),
			 0);
}

static void close_door(struct open_door *open)
{
	void *rc;

	redis_door_stop(open->door);
	pthread_join(open->thread, &rc);
	assert_null(rc);
	redis_door_destroy(open->door);
	assert_int_equal(access(socket_path, F_OK), -1);
}

/* --- a client --- */

static int reach_tcp(const struct open_door *open)
{
	struct sockaddr_in name = {.sin_family = AF_INET,
				   .sin_port = htons(open->port),
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)),
			 0);
	return fd;
}

static int reach_unix(void)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "%s", socket_path);
	assert_int_equal(connect(fd, (struct sockaddr *)&name, sizeof(name)),
			 0);
	return fd;
}

static void say(int fd, const char *text)
{
	size_t size = strlen(text);

	assert_int_equal(send(fd, text, size, MSG_NOSIGNAL), size);
}

/* Assert that exactly these bytes come next. */
static void expect_answer(int fd, const char *wanted)
{
	char got[2048];
	size_t size = strlen(wanted), used = 0;
	struct pollfd waits = {fd, POLLIN, 0};
	ssize_t count;

	while (used < size) {
		assert_int_equal(poll(&waits, 1, PATIENCE_MS), 1);
		count = recv(fd, got + used, size - used, 0);
		assert_true(count > 0);
		used += (size_t)count;
	}
	got[used] = '\0';
	assert_string_equal(got, wanted);
}

static void ask(int fd, const char *text, const char *wanted)
{
	say(fd, text);
	expect_answer(fd, wanted);
}

/* Read and forget everything until the door closes; returns how many bytes
 * came. */
static size_t read_to_end(int fd)
{
	struct pollfd waits = {fd, POLLIN, 0};
	static char got[1 << 16];
	size_t used = 0;
	ssize_t count;

	do {
		assert_int_equal(poll(&waits, 1, PATIENCE_MS), 1);
		count = recv(fd, got, sizeof(got), 0);
		used += count > 0 ? (size_t)count : 0;
	} while (count > 0);
	close(fd);
	return used;
}

/* The same, keeping what fits, as a text. */
static void read_text(int fd, char *text, size_t room)
{
	struct pollfd waits = {fd, POLLIN, 0};
	size_t used = 0;
	ssize_t count;

	do {
		assert_int_equal(poll(&waits, 1, PATIENCE_MS), 1);
		count = recv(fd, text + used, room - 1 - used, 0);
		used += count > 0 ? (size_t)count : 0;
	} while (count > 0);
	text[used] = '\0';
	close(fd);
}

/* --- tests --- */

static void redis_door_serves_tcp_and_unix(void **state)
{
	struct open_door open;
	int first, second;

	open_door(&open, &(struct redis_door_options){0});
	first = reach_tcp(&open);
	second = reach_unix();
	ask(first, "SET a 1\r\nGET a\r\n", "+OK\r\n$1\r\n1\r\n");
	/* The second client is another thread's. */
	ask(second, "INCR a\r\n", ":2\r\n");
	ask(first, "GET a\r\nSELECT 15\r\nGET a\r\n",
	    "$1\r\n2\r\n+OK\r\n$-1\r\n");
	ask(first, "*1\r\n$-9\r\n",
	    "-ERR Protocol error: invalid bulk length\r\n");
	assert_int_equal(read_to_end(first), 0);
	say(second, "QUIT\r\nPING\r\n");
	assert_int_equal(read_to_end(second), 5);
	close_door(&open);
}

static void redis_door_request_in_pieces_is_answered(void **state)
{
	static const char request[] = "*3\r\n$3\r\nSET\r\n$1\r\nb\r\n"
				      "$10\r\n0123456789\r\n";
	struct open_door open;
	size_t i;
	int fd;

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_tcp(&open);
	for (i = 0; i < sizeof(request) - 1; i++) {
		assert_int_equal(send(fd, request + i, 1, 0), 1);
		/* Other clients are served meanwhile. */
		if (i % 10 == 0) {
			int other = reach_unix();

			ask(other, "PING\r\n", "+PONG\r\n");
			close(other);
		}
	}
	expect_answer(fd, "+OK\r\n");
	ask(fd, "STRLEN b\r\n", ":10\r\n");
	close(fd);
	close_door(&open);
}

static void say_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);

		assert_true(sent > 0);
		bytes += sent;
		size -= (size_t)sent;
	}
}

/* Large values, with options or without, and one whose end never comes. */
static void redis_door_large_values_are_set(void **state)
{
	static const char *const heads[] = {
		"*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$1000000\r\n",
		"*5\r\n$3\r\nset\r\n$1\r\nl\r\n$1000000\r\n",
		"*4\r\n$3\r\nSET\r\n$1\r\nl\r\n$1000000\r\n",
		"*4\r\n$3\r\nSET\r\n$1\r\nl\r\n$1000000\r\n"};
	static const char *const tails[] = {
		"\r\n", "\r\n$2\r\nEX\r\n$3\r\n100\r\n", "\r\n$2\r\nXX\r\n",
		"\r\n$2\r\nNX\r\n"};
	static const char *const answers[] = {"+OK\r\n", "+OK\r\n", "+OK\r\n",
					      "$-1\r\n"};
	const size_t size = 1000000;
	char *value = malloc(size + 1);
	struct open_door open;
	int fd, other;
	uint32_t i;

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_tcp(&open);
	ask(fd, "GET l\r\n", "$-1\r\n");
	value[size] = '\0';
	for (i = 0; i < 4; i++) {
		memset(value, 'a' + (int)i, size);
		say(fd, heads[i]);
		say_all(fd, value, size);
		ask(fd, tails[i], answers[i]);
		ask(fd, "GETRANGE l 0 2\r\nGETRANGE l -3 -1\r\nSTRLEN l\r\n",
		    i == 0   ? "$3\r\naaa\r\n$3\r\naaa\r\n:1000000\r\n"
		    : i == 1 ? "$3\r\nbbb\r\n$3\r\nbbb\r\n:1000000\r\n"
			     : "$3\r\nccc\r\n$3\r\nccc\r\n:1000000\r\n");
	}
	/* The memory of a value that never came whole comes back: there is not
	 * enough for all of them. */
	for (i = 0; i < 100; i++) {
		other = reach_unix();
		say(other, heads[0]);
		say_all(other, value, size - 1);
		close(other);
	}
	ask(fd, "SET l 1\r\nGET l\r\n", "+OK\r\n$1\r\n1\r\n");
	free(value);
	close(fd);
	close_door(&open);
}

static void write_password(const char *text, mode_t mode)
{
	FILE *file = fopen(password_path, "w");

	fputs(text, file);
	fclose(file);
	chmod(password_path, mode);
}

static void redis_door_asks_for_the_password(void **state)
{
	const struct redis_door_options options = {.password_file =
							   password_path};
	struct open_door open;
	int fd;

	write_password("a secret\n", 0600);
	open_door(&open, &options);
	fd = reach_tcp(&open);
	ask(fd, "GET a\r\n", "-NOAUTH Authentication required.\r\n");
	ask(fd, "AUTH wrong\r\n",
	    "-WRONGPASS invalid username-password pair or user is "
	    "disabled.\r\n");
	ask(fd, "AUTH nobody \"a secret\"\r\n",
	    "-WRONGPASS invalid username-password pair or user is "
	    "disabled.\r\n");
	ask(fd, "AUTH \"a secret\"\r\nECHO hi\r\n", "+OK\r\n$2\r\nhi\r\n");
	ask(fd, "RESET\r\nECHO hi\r\n",
	    "+RESET\r\n-NOAUTH Authentication required.\r\n");
	ask(fd, "HELLO 2 AUTH default \"a secret\" SETNAME me\r\n", "*14\r\n");
	close(fd);
	/* A client that has not authenticated may not send much. */
	fd = reach_tcp(&open);
	ask(fd, "*11\r\n",
	    "-ERR Protocol error: unauthenticated multibulk length\r\n");
	assert_int_equal(read_to_end(fd), 0);
	close_door(&open);
}

static void refused(const struct redis_door_options *given, int wanted,
		    const char *text)
{
	struct redis_door_options options = *given;
	struct redis_door *door;
	const char *what = "";

	options.pool = POOL;
	assert_int_equal(redis_door_create(&options, &door, &what), wanted);
	if (!strstr(what, text))
		fail_msg("\"%s\" is not in \"%s\"", text, what);
}

static void redis_door_refuses_what_is_unsafe(void **state)
{
	struct redis_door_options options = {.listen = "0.0.0.0:0"};

	refused(&options, -EACCES, "no password");
	options.listen = "127.0.0.1";
	refused(&options, -EINVAL, "HOST:PORT");
	options.listen = NULL;
	refused(&options, -EINVAL, "nowhere to listen");
	options.password_file = password_path;
	write_password("secret\n", 0644);
	refused(&options, -EPERM, "chmod 600");
	chmod(password_path, 0600);
	write_password("\n", 0600);
	refused(&options, -EINVAL, "no password in it");
	unlink(password_path);
	refused(&options, -ENOENT, password_path);
}

static void redis_door_has_a_limit_of_clients(void **state)
{
	struct open_door open;
	int first, second;

	open_door(&open, &(struct redis_door_options){.clients_max = 1});
	first = reach_tcp(&open);
	ask(first, "PING\r\n", "+PONG\r\n");
	second = reach_tcp(&open);
	expect_answer(second, "-ERR max number of clients reached\r\n");
	assert_int_equal(read_to_end(second), 0);
	ask(first, "PING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n");
	assert_int_equal(read_to_end(first), 0);
	close_door(&open);
}

/* A client that asks without end and never reads is not read from any more, and
 * nobody else notices. */
static void redis_door_client_that_does_not_read_waits(void **state)
{
	const struct redis_door_options options = {
		.threads = 1, .output_soft = 1 << 20, .output_max = 8 << 20};
	static char request[16 * 1024];
	struct open_door open;
	size_t sent = 0;
	int slow, other;
	ssize_t count;

	open_door(&open, &options);
	slow = reach_unix();
	other = reach_tcp(&open);
	memset(request, 'x', sizeof(request));
	/* A request has no end but its last line's.
	 * NOLINTNEXTLINE(bugprone-not-null-terminated-result) */
	memcpy(request, "*2\r\n$4\r\nECHO\r\n$16355\r\n", 22);
	request[22 + 16355] = '\r';
	request[22 + 16356] = '\n';
	do {
		count = send(slow, request, 22 + 16357,
			     MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += count > 0 ? (size_t)count : 0;
		ask(other, "PING\r\n", "+PONG\r\n");
	} while (count == 22 + 16357);
	assert_true(sent > 1 << 20 && sent < 64 << 20);
	/* When the client reads at last, it gets all that it asked for. */
	shutdown(slow, SHUT_WR);
	assert_int_equal(read_to_end(slow), sent / (22 + 16357) * (16357 + 8));
	close(other);
	close_door(&open);
}

/* A value that is too large closes the client; of smaller ones any number is
 * sent, as they are read. */
static void redis_door_answer_over_the_limit_closes(void **state)
{
	const struct redis_door_options options = {.output_soft = 1 << 20,
						   .output_max = 1 << 20};
	struct open_door open;
	int fd, other;

	open_door(&open, &options);
	fd = reach_tcp(&open);
	other = reach_tcp(&open);
	ask(fd, "SETRANGE w 700000 x\r\n", ":700001\r\n");
	ask(fd, "SETRANGE v 1200000 x\r\n", ":1200001\r\n");
	ask(other, "PING\r\n", "+PONG\r\n");
	say(fd, "GET v\r\n");
	assert_int_equal(read_to_end(fd), 0);
	ask(other, "PING\r\n", "+PONG\r\n");
	say(other, "MGET w w w w w w\r\nGET w\r\nGET w\r\nQUIT\r\n");
	assert_int_equal(read_to_end(other), 4 + 8 * (9 + 700001 + 2) + 5);
	close_door(&open);
}

static void redis_door_query_over_the_limit_closes(void **state)
{
	const struct redis_door_options options = {.limits.query_max = 1 << 20};
	static char part[1 << 16];
	struct open_door open;
	int fd, i;

	open_door(&open, &options);
	fd = reach_tcp(&open);
	for (i = 0; i + 10 < (int)sizeof(part); i += 10)
		memcpy(part + i, "$4\r\nabcd\r\n", 10);
	say(fd, "*1000000\r\n");
	while (i >= 0 && send(fd, part, (size_t)i, MSG_NOSIGNAL) > 0)
		;
	close(fd);
	fd = reach_tcp(&open);
	ask(fd, "PING\r\n", "+PONG\r\n");
	close(fd);
	close_door(&open);
}

static void redis_door_idle_clients_are_closed(void **state)
{
	struct open_door open;
	int fd;

	open_door(&open, &(struct redis_door_options){.idle_ns = 1});
	fd = reach_tcp(&open);
	assert_int_equal(read_to_end(fd), 0);
	close_door(&open);
}

/* LIST and KILL reach the clients of all threads. */
static void redis_door_clients_are_killed_across_threads(void **state)
{
	struct open_door open;
	int fds[8], i;
	char text[64];

	open_door(&open, &(struct redis_door_options){.threads = 4});
	for (i = 0; i < 8; i++) {
		fds[i] = reach_unix();
		snprintf(text, sizeof(text), "CLIENT SETNAME n%d\r\n", i);
		ask(fds[i], text, "+OK\r\n");
	}
	for (i = 1; i < 8; i++)
		say(fds[i], "CLIENT LIST\r\nPING\r\n");
	ask(fds[0], "CLIENT KILL TYPE normal\r\n", ":7\r\n");
	for (i = 1; i < 8; i++)
		read_to_end(fds[i]);
	ask(fds[0], "PING\r\n", "+PONG\r\n");
	say(fds[0], "CLIENT KILL TYPE normal SKIPME no\r\n");
	assert_int_equal(read_to_end(fds[0]), 4);
	close_door(&open);
}

/* Requests that came before the end are answered. */
static void redis_door_stop_answers_first(void **state)
{
	struct open_door open;
	int fd, i;

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_unix();
	ask(fd, "SETRANGE w 999999 x\r\n", ":1000000\r\n");
	for (i = 0; i < 20; i++)
		say(fd, "GET w\r\n");
	expect_answer(fd, "$1000000\r\n");
	redis_door_stop(open.door);
	assert_int_equal(read_to_end(fd), 19 * 1000012 + 1000002);
	close_door(&open);
}

/* --- clients that are served together --- */

#define CROWD 50

/* Hold the door's only thread between two rounds: the next round, or the one
 * after it, begins with whatever is sent meanwhile. */
static struct redis_thread *hold(struct open_door *open)
{
	struct redis_thread *thread = &open->door->threads[0];

	pthread_mutex_lock(&thread->lock);
	redis_serve_wake(thread);
	return thread;
}

static void let_go(struct redis_thread *thread)
{
	pthread_mutex_unlock(&thread->lock);
}

struct batches {
	uint64_t count, requests;
};

static struct batches count_batches(struct open_door *open)
{
	struct redis_thread *thread = hold(open);
	struct batches now = {thread->stats.batches, thread->stats.batched};

	let_go(thread);
	return now;
}

static void open_crowd(struct open_door *open, int fds[CROWD])
{
	open_door(open, &(struct redis_door_options){.threads = 1});
	for (int i = 0; i < CROWD; i++) {
		fds[i] = i % 2 ? reach_unix() : reach_tcp(open);
		ask(fds[i], "PING\r\n", "+PONG\r\n");
	}
}

static void close_crowd(struct open_door *open, const int fds[CROWD])
{
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
	close_door(open);
}

/* Two batches do for all clients, or one if they are in the same round: a batch
 * takes as many round trips as a single call of the map. */
static void redis_door_clients_that_wait_share_batches(void **state)
{
	struct redis_thread *thread;
	struct batches before, now;
	struct open_door open;
	int fds[CROWD], i;
	char text[64];

	open_crowd(&open, fds);
	before = count_batches(&open);
	thread = hold(&open);
	for (i = 0; i < CROWD; i++) {
		snprintf(text, sizeof(text), "SET key%02d %02d\r\n", i, i);
		say(fds[i], text);
	}
	let_go(thread);
	for (i = 0; i < CROWD; i++)
		expect_answer(fds[i], "+OK\r\n");
	now = count_batches(&open);
	assert_in_range(now.count - before.count, 1, 2);
	assert_in_range(now.requests - before.requests, CROWD - 2, CROWD);
	before = now;
	thread = hold(&open);
	for (i = 0; i < CROWD; i++) {
		snprintf(text, sizeof(text), "GET key%02d\r\nGET none\r\n", i);
		say(fds[i], text);
	}
	let_go(thread);
	for (i = 0; i < CROWD; i++) {
		snprintf(text, sizeof(text), "$2\r\n%02d\r\n$-1\r\n", i);
		expect_answer(fds[i], text);
	}
	now = count_batches(&open);
	assert_in_range(now.count - before.count, 1, 3);
	assert_int_equal(now.requests - before.requests, 2 * CROWD);
	close_crowd(&open, fds);
}

/* Databases, kinds, and what is not plain or not whole, all in one round. */
static void redis_door_crowd_of_all_kinds_is_answered(void **state)
{
	struct redis_thread *thread;
	struct open_door open;
	int fds[CROWD], i;

	open_crowd(&open, fds);
	ask(fds[0], "SET a 0\r\nSELECT 1\r\nSET a 1\r\nSELECT 0\r\n",
	    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
	for (i = 0; i < CROWD; i++)
		if (i % 5 == 1)
			ask(fds[i], "SELECT 1\r\n", "+OK\r\n");
		else if (i % 10 == 0)
			ask(fds[i], "CLIENT NO-TOUCH on\r\n", "+OK\r\n");
	thread = hold(&open);
	for (i = 0; i < CROWD; i++) {
		static const char *const words[] = {
			"GET a\r\n",
			"GET a\r\nGET a\r\n",
			"SET b 2\r\nGET b\r\nECHO x\r\n",
			"GET a\r\n*2\r\n$3\r\nGET\r\n$1\r\n",
			"MULTI\r\nGET a\r\nEXEC\r\nGET a\r\n",
		};

		say(fds[i], words[i % 5]);
	}
	let_go(thread);
	for (i = 0; i < CROWD; i++) {
		static const char *const answers[] = {
			"$1\r\n0\r\n",
			"$1\r\n1\r\n$1\r\n1\r\n",
			"+OK\r\n$1\r\n2\r\n$1\r\nx\r\n",
			"$1\r\n0\r\n",
			"+OK\r\n+QUEUED\r\n*1\r\n$1\r\n0\r\n$1\r\n0\r\n",
		};

		expect_answer(fds[i], answers[i % 5]);
		if (i % 5 == 3)
			ask(fds[i], "a\r\n", "$1\r\n0\r\n");
	}
	close_crowd(&open, fds);
}

/* Send a command for each of many keys, and expect the same answer to each. */
static void ask_many(int fd, const char *format, int from, int to,
		     const char *wanted)
{
	char text[64];
	int i, j;

	for (i = from; i < to; i += 100) {
		for (j = i; j < to && j < i + 100; j++) {
			snprintf(text, sizeof(text), format, j);
			say(fd, text);
		}
		for (j = i; j < to && j < i + 100; j++)
			expect_answer(fd, wanted);
	}
}

/* Also of few keys that are left of many each is named. */
static void redis_door_random_key_is_any_of_those_left(void **state)
{
	enum { KEYS = 30000 };
	int fd, i, seen[2] = {0};
	struct open_door open;
	char got[11];

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_unix();
	ask_many(fd, "SET %05d 0\r\n", 0, KEYS, "+OK\r\n");
	ask_many(fd, "DEL %05d\r\n", 2, KEYS, ":1\r\n");
	for (i = 0; i < 100; i++) {
		say(fd, "RANDOMKEY\r\n");
		assert_int_equal(recv(fd, got, 11, MSG_WAITALL), 11);
		assert_memory_equal(got, "$5\r\n0000", 8);
		seen[got[8] - '0']++;
	}
	assert_in_range(seen[0], 20, 80);
	close(fd);
	close_door(&open);
}

#define SLOW "KEYS none*\r\n"

/* How many of those commands take a second or so, on this machine now. */
static int count_slow(int fd)
{
	uint64_t began_ns = reef_now_ns(), took_ns;

	for (int i = 0; i < 20; i++)
		ask(fd, SLOW, "*0\r\n");
	took_ns = reef_now_ns() - began_ns;
	return (int)(UINT64_C(20000000000) / (took_ns + 1)) + 20;
}

/* A watched key expires while EXEC runs, so the first change of it is refused:
 * the connection is as if EXEC had not begun. */
static void redis_door_conflict_leaves_the_connection_as_it_was(void **state)
{
	enum { KEYS = 10000 };
	char info[2048], *queue;
	struct open_door open;
	int fd, i, count;

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_unix();
	ask_many(fd, "SET key%d 0\r\n", 0, KEYS, "+OK\r\n");
	ask(fd, "CLIENT SETNAME before\r\n", "+OK\r\n");
	count = count_slow(fd);
	queue = calloc((size_t)count, sizeof(SLOW));
	assert_non_null(queue);
	for (i = 0; i < count; i++)
		memcpy(queue + (size_t)i * (sizeof(SLOW) - 1), SLOW,
		       sizeof(SLOW));
	ask(fd,
	    "SELECT 1\r\nSET k 1 PX 200\r\nWATCH k\r\nSELECT 0\r\nMULTI\r\n",
	    "+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
	say(fd, queue);
	free(queue);
	for (i = 0; i < count; i++)
		expect_answer(fd, "+QUEUED\r\n");
	ask(fd,
	    "CLIENT SETNAME late\r\nCLIENT SETINFO LIB-NAME late\r\n"
	    "CLIENT NO-TOUCH ON\r\nHELLO 3\r\nSELECT 1\r\nSET k 2\r\n",
	    "+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n"
	    "+QUEUED\r\n");
	ask(fd, "EXEC\r\n", "*-1\r\n");
	ask(fd, "GET key1\r\nCLIENT GETNAME\r\nGET none\r\n",
	    "$1\r\n0\r\n$6\r\nbefore\r\n$-1\r\n");
	say(fd, "CLIENT INFO\r\nQUIT\r\n");
	read_text(fd, info, sizeof(info));
	assert_null(strstr(info, "late"));
	assert_null(strstr(info, "flags=T"));
	close_door(&open);
}

/* Every SET is answered OK, and the last value of some client stays; a client's
 * own last one, if nobody else sets the key. */
static void redis_door_sets_of_one_key_leave_the_last(void **state)
{
	struct redis_thread *thread;
	struct open_door open;
	int fds[CROWD], i;
	char text[128];

	open_crowd(&open, fds);
	thread = hold(&open);
	for (i = 0; i < CROWD; i++) {
		snprintf(text, sizeof(text),
			 "SET all first\r\nSET own%d 1\r\nSET own%d 2\r\n"
			 "SET all last\r\n",
			 i, i);
		say(fds[i], text);
	}
	let_go(thread);
	for (i = 0; i < CROWD; i++) {
		expect_answer(fds[i], "+OK\r\n+OK\r\n+OK\r\n+OK\r\n");
		snprintf(text, sizeof(text), "GET own%d\r\n", i);
		ask(fds[i], text, "$1\r\n2\r\n");
	}
	ask(fds[0], "GET all\r\n", "$4\r\nlast\r\n");
	close_crowd(&open, fds);
}

/* When one value of MSET is refused, nothing is set. */
static void redis_door_mset_with_a_refused_value_sets_nothing(void **state)
{
	const size_t size = (64 << 20) + 1;
	struct open_door open;
	char *large = malloc(size + 1);
	int fd;

	open_door(&open, &(struct redis_door_options){.threads = 1});
	fd = reach_unix();
	memset(large, 'x', size);
	large[size] = '\0';
	say(fd, "*5\r\n$4\r\nMSET\r\n$1\r\nk\r\n$1\r\n1\r\n$1\r\nk\r\n"
		"$67108865\r\n");
	say(fd, large);
	ask(fd, "\r\n",
	    "-ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	    "\r\n");
	ask(fd, "GET k\r\n", "$-1\r\n");
	free(large);
	close(fd);
	close_door(&open);
}

/* Nothing is done for a client after it was killed. */
static void redis_door_client_killed_while_it_waits_does_nothing(void **state)
{
	struct redis_thread *thread;
	struct open_door open;
	int killer, victim, i;
	char text[64];

	open_door(&open, &(struct redis_door_options){.threads = 1});
	killer = reach_unix();
	for (i = 0; i < 20; i++) {
		victim = reach_unix();
		ask(victim, "CLIENT SETNAME victim\r\n", "+OK\r\n");
		thread = hold(&open);
		snprintf(text, sizeof(text), "SET killed%d x\r\n", i);
		say(victim, text);
		say(killer, "CLIENT KILL TYPE normal\r\n");
		let_go(thread);
		expect_answer(killer, ":1\r\n");
		snprintf(text, sizeof(text), "EXISTS killed%d\r\n", i);
		ask(killer, text, read_to_end(victim) ? ":1\r\n" : ":0\r\n");
	}
	close(killer);
	close_door(&open);
}

/* --- */

static int begin(void **state)
{
	signal(SIGPIPE, SIG_IGN);
	if (!mkdtemp(folder))
		return -1;
	snprintf(socket_path, sizeof(socket_path), "%s/s", folder);
	snprintf(password_path, sizeof(password_path), "%s/p", folder);
	return 0;
}

static int end(void **state)
{
	unlink(password_path);
	unlink(socket_path);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_door_serves_tcp_and_unix),
		cmocka_unit_test(redis_door_request_in_pieces_is_answered),
		cmocka_unit_test(redis_door_large_values_are_set),
		cmocka_unit_test(redis_door_asks_for_the_password),
		cmocka_unit_test(redis_door_refuses_what_is_unsafe),
		cmocka_unit_test(redis_door_has_a_limit_of_clients),
		cmocka_unit_test(redis_door_client_that_does_not_read_waits),
		cmocka_unit_test(redis_door_answer_over_the_limit_closes),
		cmocka_unit_test(redis_door_query_over_the_limit_closes),
		cmocka_unit_test(redis_door_idle_clients_are_closed),
		cmocka_unit_test(redis_door_clients_are_killed_across_threads),
		cmocka_unit_test(redis_door_stop_answers_first),
		cmocka_unit_test(redis_door_clients_that_wait_share_batches),
		cmocka_unit_test(redis_door_crowd_of_all_kinds_is_answered),
		cmocka_unit_test(redis_door_random_key_is_any_of_those_left),
		cmocka_unit_test(
			redis_door_conflict_leaves_the_connection_as_it_was),
		cmocka_unit_test(redis_door_sets_of_one_key_leave_the_last),
		cmocka_unit_test(
			redis_door_mset_with_a_refused_value_sets_nothing),
		cmocka_unit_test(
			redis_door_client_killed_while_it_waits_does_nothing),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
