/* servers.c - start, hear and end the processes of a pool. */
#include "servers.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char directory[256]; /* where this program and `reef` are */

void servers_prepare(const char *program)
{
	snprintf(directory, sizeof(directory), "%s", program);
	CHECK(strrchr(directory, '/'));
	*strrchr(directory, '/') = '\0';
	setenv("REEF_RUN", RUN, 1);
}

void start(struct process *process, const char *program, char **argv)
{
	char path[300];

	snprintf(path, sizeof(path), "%s/%s", directory, program);
	process->pid = fork();
	CHECK(process->pid >= 0);
	if (process->pid)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(path, argv);
	_exit(127);
}

void hear(const struct process *process, const char *what)
{
	char text[4096];
	size_t used = 0;
	ssize_t size;

	while (used < sizeof(text) - 1) {
		size = read(process->fd, text + used, sizeof(text) - 1 - used);
		text[used + (size > 0 ? (size_t)size : 0)] = '\0';
		if (size <= 0)
			printf("%s\n", text);
		CHECK(size > 0);
		used += (size_t)size;
		if (strstr(text, what))
			return;
	}
	CHECK(!"it says something else");
}

void start_telling(struct process *process, char **argv)
{
	int fds[2], output = dup(1);

	CHECK(pipe2(fds, O_CLOEXEC) == 0 && output >= 0);
	fcntl(output, F_SETFD, FD_CLOEXEC);
	fflush(stdout);
	dup2(fds[1], 1);
	start(process, "reef", argv);
	dup2(output, 1);
	close(output);
	close(fds[1]);
	process->fd = fds[0];
}

static void start_server(struct process *process, char **argv)
{
	start_telling(process, argv);
	hear(process, "Ctrl-C"); /* the last it says */
}

void start_broker(struct process *process, const char *address)
{
	char listen[128];
	char *argv[] = {"reef",	     "broker", "--data",	"/tmp/data",
			"--run",     RUN,      "--listen",	listen,
			"--ttl",     "2s",     "--extent-size", "4M",
			"--silence", "10s",    "--node-ttl",	"20s",
			NULL};

	snprintf(listen, sizeof(listen), "tcp:127.0.0.1:7337 verbs:%s:7337",
		 address);
	start_server(process, argv);
}

/* Add a node to the pool; its key goes to that file. */
static void add_node(char *name, char *key)
{
	char *argv[] = {"reef", "node", "add", name, key, NULL};
	struct process process;
	int status;

	start(&process, "reef", argv);
	CHECK_EQ(waitpid(process.pid, &status, 0), process.pid);
	CHECK_EQ(status, 0);
}

void start_node(struct process *process, const char *address, int number)
{
	char listen[64], broker[64], run[32], name[8], key[32];
	char *argv[] = {
		"reef",	     "node", "--node-key",    key,     "--run",	 run,
		"--broker",  broker, "--node-listen", listen,  "--lend", "96M",
		"--silence", "10s",  "--fabrics",     "verbs", NULL};

	snprintf(broker, sizeof(broker), "verbs:%s:7337", address);
	snprintf(listen, sizeof(listen), "verbs:%s:%d", address, 7400 + number);
	snprintf(run, sizeof(run), "/tmp/node%d", number);
	snprintf(name, sizeof(name), "n%d", number);
	snprintf(key, sizeof(key), "/tmp/%s.key", name);
	add_node(name, key);
	start_server(process, argv);
}

void start_client(struct process *process, char *program, char *role,
		  uint64_t address)
{
	char fd[16], number[32];
	char *argv[] = {program, role, fd, number, NULL};
	int fds[2];

	CHECK_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	fcntl(fds[0], F_SETFD, FD_CLOEXEC);
	snprintf(fd, sizeof(fd), "%d", fds[1]);
	snprintf(number, sizeof(number), "%" PRIu64, address);
	start(process, program, argv);
	close(fds[1]);
	process->fd = fds[0];
}

void end(struct process *process, int signal)
{
	int status;

	CHECK_EQ(kill(process->pid, signal), 0);
	CHECK_EQ(waitpid(process->pid, &status, 0), process->pid);
	if (signal == SIGTERM)
		CHECK_EQ(status, 0);
	close(process->fd);
}
