/* server.h - a server that a peer starts as its target, on a unix socket and
 * nothing else, in a directory that is gone once a client is connected. It ends
 * with its client.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PEERS_SERVER_H
#define REEF_BENCH_PEERS_SERVER_H

#include "driver.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVER_TRIES 1000
#define SERVER_PAUSE_NS 10000000

struct server {
	const char *name;		/* of its program */
	char directory[64], socket[80]; /* while it starts */
	pid_t client;
	const char *arguments[24]; /* to NULL */
};

/* This is static because the target is forked from what has it. */
static struct server server;

static int server_target(struct driver_pair *pair)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != server.client)
		return -EPIPE;
	/* What the server prints is not for the harness. */
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	execvp(server.name, (char *const *)server.arguments);
	return driver_fail(pair, -errno, "%s: %s", server.name,
			   strerror(errno));
}

/* connect: true once it is connected to server.socket. */
static inline int server_connect(struct driver_pair *pair,
				 bool (*connect)(void))
{
	const struct timespec pause = {.tv_nsec = SERVER_PAUSE_NS};
	uint8_t byte;

	for (uint32_t i = 0; i < SERVER_TRIES; i++) {
		if (connect())
			return 0;
		/* A server that has ended has told why. */
		if (waitpid(pair->target, NULL, WNOHANG) == pair->target)
			return driver_receive(pair, &byte, 1);
		nanosleep(&pause, NULL);
	}
	return driver_fail(pair, -ETIMEDOUT, "%s does not answer", server.name);
}

/* Make a directory, and the name of a socket in it. */
static inline int server_prepare(struct driver_pair *pair, const char *name)
{
	const char *base = getenv("TMPDIR");

	server.name = name;
	server.client = getpid();
	snprintf(server.directory, sizeof(server.directory), "%.40s/%s",
		 base && base[0] ? base : "/tmp", "reef-peer-XXXXXX");
	if (!mkdtemp(server.directory))
		return driver_fail(pair, -errno, "a directory for %s: %s", name,
				   strerror(errno));
	snprintf(server.socket, sizeof(server.socket), "%s/socket",
		 server.directory);
	return 0;
}

/* Set the server's arguments: the program's name first, NULL last. */
static inline void server_arguments(const char *const *arguments)
{
	size_t count = 0;

	do
		server.arguments[count] = arguments[count];
	while (arguments[count++]);
}

/* Start the server, after server_prepare and with arguments that name the
 * socket. */
static inline int server_start(struct driver_pair *pair, bool (*connect)(void))
{
	int rc = driver_fork(pair, server_target);

	rc = rc ? rc : server_connect(pair, connect);
	/* Connections outlive the socket's name, so it goes now, and nothing
	 * can be left behind. */
	unlink(server.socket);
	rmdir(server.directory);
	/* A server sleeps unless it is asked something. */
	pair->target_rests = true;
	return rc;
}

#endif
