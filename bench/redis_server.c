/* redis_server.c - starts servers, and redis-benchmark against them. */
#include "redis_server.h"

#include "process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES 3000
#define START_PAUSE_NS 10000000
#define FILL_AT_ONCE 100 /* requests on their way */
#define OUTPUT_MAX 4096
#define REPLICA_TRIES 100
#define PATIENCE_S 30 /* for the first answer */

/* --- where it lives --- */

int redis_server_prepare(struct driver_pair *pair, struct redis_server *server)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	int fd, rc;

	*server = (struct redis_server){0};
	rc = process_directory(pair, server->directory);
	if (rc)
		return rc;
	/* The port is free at this moment; if somebody is quicker, the start
	 * fails. */
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 ||
	    bind(fd, (const struct sockaddr *)&address, sizeof(address)) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		rc = driver_fail(pair, -errno, "a port: %s", strerror(errno));
	if (fd >= 0)
		close(fd);
	server->port = ntohs(address.sin_port);
	return rc;
}

/* --- connections --- */

static int server_connect(const struct redis_server *server)
{
	const struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_port = htons(server->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

	if (fd < 0)
		return -errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address))) {
		close(fd);
		return -ECONNREFUSED;
	}
	return fd;
}

static bool send_all(int fd, const char *bytes, size_t size)
{
	while (size) {
		ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		bytes += n;
		size -= (size_t)n;
	}
	return true;
}

/* Read so many answers of one line each ("+OK") that begin with `first`. */
static bool read_lines(int fd, uint32_t count, char first)
{
	char bytes[4096], before = '\n';

	while (count) {
		ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

		if (n <= 0)
			return false;
		for (ssize_t i = 0; i < n; i++) {
			if (before == '\n' && bytes[i] != first)
				return false;
			before = bytes[i];
			count -= before == '\n';
		}
	}
	return true;
}

static bool is_answering(const struct redis_server *server)
{
	int fd = server_connect(server);
	bool good;

	if (fd < 0)
		return false;
	good = send_all(fd, "PING\r\n", 6) && read_lines(fd, 1, '+');
	close(fd);
	return good;
}

/* --- processes --- */

static int server_wait(struct driver_pair *pair, struct redis_server *server,
		       const char *name)
{
	const struct timespec pause = {.tv_nsec = START_PAUSE_NS};
	int status;

	for (uint32_t i = 0; i < START_TRIES; i++) {
		if (is_answering(server))
			return 0;
		if (waitpid(server->pid, &status, WNOHANG) == server->pid) {
			server->pid = 0;
			if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
				return driver_fail(pair, -ENOENT,
						   "%s: No such program", name);
			return driver_fail(pair, -EPIPE, "%s ended", name);
		}
		nanosleep(&pause, NULL);
	}
	return driver_fail(pair, -ETIMEDOUT, "%s does not answer", name);
}

int redis_server_start(struct driver_pair *pair, struct redis_server *server,
		       const char *const *arguments)
{
	const struct process_options options = {.directory = server->directory};
	int rc = process_start(pair, &options, arguments, &server->pid);

	return rc ? rc : server_wait(pair, server, arguments[0]);
}

void redis_server_end(struct redis_server *server)
{
	process_end(&server->pid, SIGTERM);
	process_directory_remove(server->directory);
	*server = (struct redis_server){0};
}

/* --- keys --- */

int redis_server_fill(struct driver_pair *pair,
		      const struct redis_server *server,
		      const struct redis_load *load)
{
	char head[128], *value = malloc(load->value_size + 2);
	int fd = server_connect(server);
	bool good = fd >= 0 && value;
	uint32_t sent = 0, heard = 0;

	if (value) {
		memset(value, 'x', load->value_size);
		value[load->value_size] = '\r';
		value[load->value_size + 1] = '\n';
	}
	while (good && heard < load->keys) {
		/* Keys are spelt as redis-benchmark does. */
		int n = snprintf(head, sizeof(head),
				 "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012u\r\n"
				 "$%u\r\n",
				 sent, load->value_size);

		good = send_all(fd, head, (size_t)n) &&
		       send_all(fd, value, load->value_size + 2);
		sent++;
		if (good &&
		    (sent - heard == FILL_AT_ONCE || sent == load->keys)) {
			good = read_lines(fd, sent - heard, '+');
			heard = sent;
		}
	}
	if (fd >= 0)
		close(fd);
	free(value);
	return good ? 0 : driver_fail(pair, -EPROTO, "the keys cannot be set");
}

/* --- redis-benchmark --- */

static int benchmark_start(struct driver_pair *pair,
			   const struct redis_server *server,
			   const struct redis_load *load, uint64_t requests,
			   int output, pid_t *pid)
{
	const struct process_options options = {.has_output = true,
						.output = output};
	char text[6][24];
	const char *arguments[] = {
		"redis-benchmark", "-p", text[0],    "-c",    text[1], "-P",
		text[2],	   "-r", text[3],    "-d",    text[4], "-n",
		text[5],	   "-t", load->test, "--csv", NULL};

	snprintf(text[0], sizeof(text[0]), "%u", server->port);
	snprintf(text[1], sizeof(text[1]), "%u", load->clients);
	snprintf(text[2], sizeof(text[2]), "%u", load->pipeline);
	snprintf(text[3], sizeof(text[3]), "%u", load->keys);
	snprintf(text[4], sizeof(text[4]), "%u", load->value_size);
	snprintf(text[5], sizeof(text[5]), "%llu",
		 (unsigned long long)requests);
	return process_start(pair, &options, arguments, pid);
}

/* Read all that it prints, cut off where there is no more room. */
static void read_output(int fd, char output[OUTPUT_MAX])
{
	size_t used = 0;
	char more[512];
	ssize_t n;

	while ((n = read(fd, more, sizeof(more))) > 0)
		for (ssize_t i = 0; i < n && used < OUTPUT_MAX - 1; i++)
			output[used++] = more[i];
	output[used] = '\0';
}

/* The rate in its line of figures: "GET","100000.00",... */
static double figure_of(const char *output)
{
	double rate;

	for (const char *line = output; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (sscanf(line, "\"%*[GETS]\",\"%lf\"", &rate) == 1)
			return rate;
	}
	return 0;
}

int redis_server_ask(struct driver_pair *pair,
		     const struct redis_server *server,
		     const struct redis_load *load, uint64_t requests,
		     double *rate)
{
	char output[OUTPUT_MAX];
	int pipes[2], status, rc;
	pid_t pid;

	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	rc = benchmark_start(pair, server, load, requests, pipes[1], &pid);
	close(pipes[1]);
	output[0] = '\0';
	if (!rc)
		read_output(pipes[0], output);
	close(pipes[0]);
	if (rc)
		return rc;
	if (waitpid(pid, &status, 0) != pid)
		return driver_fail(pair, -errno, "wait: %s", strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return driver_fail(pair, -ENOENT,
				   "redis-benchmark: No such program");
	*rate = figure_of(output);
	if (status || !(*rate > 0))
		return driver_fail(pair, -EPROTO, "redis-benchmark: %.100s",
				   output[0] ? output : "no figure");
	return 0;
}

/* --- clients of our own --- */

struct setter {
	int fd;
	uint32_t due;  /* of its answers, the one that comes next */
	uint32_t used; /* bytes of its line so far */
	char first, second;
};

static uint32_t next_key(const struct redis_sets *sets, uint64_t *random)
{
	*random = *random * UINT64_C(6364136223846793005) + 1;
	return (uint32_t)((*random >> 32) % sets->keys);
}

static int print_multi(char *text, size_t size, const struct redis_sets *sets,
		       uint64_t *random)
{
	uint32_t one = next_key(sets, random), other = next_key(sets, random);

	return snprintf(text, size,
			"*1\r\n$5\r\nMULTI\r\n"
			"*2\r\n$4\r\nINCR\r\n$16\r\nsum:%012u\r\n"
			"*2\r\n$4\r\nINCR\r\n$16\r\nsum:%012u\r\n"
			"*1\r\n$4\r\nEXEC\r\n",
			one, other);
}

static bool send_set(struct setter *setter, const struct redis_sets *sets,
		     uint64_t *random)
{
	char text[256];
	int n;

	if (sets->multi)
		n = print_multi(text, sizeof(text), sets, random);
	else
		n = snprintf(text, sizeof(text),
			     "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012u\r\n"
			     "$%zu\r\n%s\r\n%s",
			     next_key(sets, random), strlen(sets->value),
			     sets->value, sets->after);
	setter->due = 0;
	return n > 0 && (size_t)n < sizeof(text) &&
	       send_all(setter->fd, text, (size_t)n);
}

/* Take a byte of a setter's answers. False: it is not as it should be. */
static bool take_byte(struct setter *setter, const struct redis_sets *sets,
		      char byte)
{
	if (!sets->answers[setter->due])
		return false;
	if (setter->used == 0)
		setter->first = byte;
	else if (setter->used == 1)
		setter->second = byte;
	setter->used++;
	if (byte != '\n')
		return true;
	setter->used = 0;
	return setter->first == sets->answers[setter->due++] &&
	       !(sets->needs_replica && setter->first == ':' &&
		 setter->second == '0');
}

/* Take what has come; the next SET goes out when all was answered. */
static bool serve_setter(struct setter *setter, const struct redis_sets *sets,
			 uint64_t *random, uint64_t *done)
{
	char bytes[256];
	ssize_t n = recv(setter->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n <= 0)
		return n < 0 && (errno == EAGAIN || errno == EINTR);
	for (ssize_t i = 0; i < n; i++)
		if (!take_byte(setter, sets, bytes[i]))
			return false;
	if (setter->used || sets->answers[setter->due])
		return true;
	++*done;
	return send_set(setter, sets, random);
}

static bool drive_setters(struct setter *setters, const struct redis_sets *sets,
			  double seconds, double *rate)
{
	struct pollfd polls[REDIS_SETS_CLIENTS_MAX];
	double begin = workload_seconds(CLOCK_MONOTONIC), now = begin;
	static uint64_t random = 1;
	uint64_t done = 0;
	bool good = true;

	for (uint32_t i = 0; good && i < sets->clients; i++) {
		polls[i] =
			(struct pollfd){.fd = setters[i].fd, .events = POLLIN};
		good = send_set(&setters[i], sets, &random);
	}
	/* In a short time there may be no answer at all. */
	while (good && now - begin < (done ? seconds : seconds + PATIENCE_S)) {
		poll(polls, sets->clients, 1000);
		for (uint32_t i = 0; good && i < sets->clients; i++)
			if (polls[i].revents)
				good = serve_setter(&setters[i], sets, &random,
						    &done);
		now = workload_seconds(CLOCK_MONOTONIC);
	}
	*rate = (double)done / (now - begin);
	return good && done;
}

int redis_server_sets(struct driver_pair *pair,
		      const struct redis_server *server,
		      const struct redis_sets *sets, double seconds,
		      double *rate)
{
	struct setter setters[REDIS_SETS_CLIENTS_MAX] = {0};
	uint32_t count = 0;
	bool good = sets->clients <= REDIS_SETS_CLIENTS_MAX;

	while (good && count < sets->clients) {
		setters[count].fd = server_connect(server);
		good = setters[count].fd >= 0;
		count += good;
	}
	good = good && drive_setters(setters, sets, seconds, rate);
	while (count)
		close(setters[--count].fd);
	return good ? 0 : driver_fail(pair, -EPROTO, "a SET was not answered");
}

int redis_server_wait_replica(struct driver_pair *pair,
			      const struct redis_server *server)
{
	const struct redis_sets probe = {
		.clients = 1,
		.keys = 1,
		.value = "1",
		.after = "WAIT 1 100\r\n",
		.answers = "+:",
		.needs_replica = true,
	};
	struct setter setter = {.fd = server_connect(server)};
	uint64_t random = 1, done = 0;
	bool good = false;

	/* A WAIT without a replica answers :0 after its time. */
	for (uint32_t i = 0; setter.fd >= 0 && !good && i < REPLICA_TRIES;
	     i++) {
		struct pollfd wait = {.fd = setter.fd, .events = POLLIN};

		setter.used = 0;
		good = send_set(&setter, &probe, &random);
		while (good && !done && poll(&wait, 1, 1000) == 1)
			good = serve_setter(&setter, &probe, &random, &done);
		good = good && done;
	}
	if (setter.fd >= 0)
		close(setter.fd);
	return good ? 0
		    : driver_fail(pair, -ETIMEDOUT,
				  "the replica does not come");
}
