/* redis_server.c - starts servers, and redis-benchmark against them. */
#include "redis_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES 3000
#define START_PAUSE_NS 10000000
#define FILL_AT_ONCE 100 /* requests on their way */
#define OUTPUT_MAX 4096

/* --- where it lives --- */

int redis_server_prepare(struct driver_pair *pair, struct redis_server *server)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	const char *base = getenv("TMPDIR");
	int fd, rc = 0;

	*server = (struct redis_server){0};
	snprintf(server->directory, sizeof(server->directory), "%.40s/%s",
		 base && base[0] ? base : "/tmp", "reef-redis-XXXXXX");
	if (!mkdtemp(server->directory))
		return driver_fail(pair, -errno, "a directory: %s",
				   strerror(errno));
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

static int remove_one(const char *path, const struct stat *status, int type,
		      struct FTW *where)
{
	return remove(path);
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

/* In a child, before exec: let it run on all processors, print nothing, and end
 * with its parent. */
static void child_prepare(pid_t parent, int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	driver_unpin();
	signal(SIGINT, SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	dup2(null, STDIN_FILENO);
	dup2(out >= 0 ? out : null, STDOUT_FILENO);
	dup2(out >= 0 ? out : null, STDERR_FILENO);
}

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
	static const char *const homes[] = {"HOME", "XDG_RUNTIME_DIR",
					    "XDG_STATE_HOME", "XDG_CONFIG_HOME",
					    NULL};
	pid_t parent = getpid();

	server->pid = fork();
	if (server->pid < 0) {
		server->pid = 0;
		return driver_fail(pair, -errno, "fork: %s", strerror(errno));
	}
	if (server->pid == 0) {
		child_prepare(parent, -1);
		for (uint32_t i = 0; homes[i]; i++)
			setenv(homes[i], server->directory, 1);
		execvp(arguments[0], (char *const *)arguments);
		_exit(127);
	}
	return server_wait(pair, server, arguments[0]);
}

void redis_server_end(struct redis_server *server)
{
	if (server->pid) {
		kill(server->pid, SIGTERM);
		waitpid(server->pid, NULL, 0);
	}
	if (server->directory[0])
		nftw(server->directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
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

static void benchmark_exec(const struct redis_server *server,
			   const struct redis_load *load, uint64_t requests)
{
	char text[6][24];

	snprintf(text[0], sizeof(text[0]), "%u", server->port);
	snprintf(text[1], sizeof(text[1]), "%u", load->clients);
	snprintf(text[2], sizeof(text[2]), "%u", load->pipeline);
	snprintf(text[3], sizeof(text[3]), "%u", load->keys);
	snprintf(text[4], sizeof(text[4]), "%u", load->value_size);
	snprintf(text[5], sizeof(text[5]), "%llu",
		 (unsigned long long)requests);
	execlp("redis-benchmark", "redis-benchmark", "-p", text[0], "-c",
	       text[1], "-P", text[2], "-r", text[3], "-d", text[4], "-n",
	       text[5], "-t", load->test, "--csv", (char *)NULL);
	_exit(127);
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
	int pipes[2], status;
	pid_t parent = getpid(), pid;

	if (pipe2(pipes, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (pid == 0) {
		child_prepare(parent, pipes[1]);
		benchmark_exec(server, load, requests);
	}
	close(pipes[1]);
	output[0] = '\0';
	if (pid > 0)
		read_output(pipes[0], output);
	close(pipes[0]);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return driver_fail(pair, -errno, "fork: %s", strerror(errno));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return driver_fail(pair, -ENOENT,
				   "redis-benchmark: No such program");
	*rate = figure_of(output);
	if (status || !(*rate > 0))
		return driver_fail(pair, -EPROTO, "redis-benchmark: %.100s",
				   output[0] ? output : "no figure");
	return 0;
}
