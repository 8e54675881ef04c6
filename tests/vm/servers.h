/* servers.h - the processes of a pool over verbs, for tests in the machine: a
 * broker, nodes that lend memory of the NIC's atomic domain, and clients; and
 * checks that end the test.
 *
 * Thread: one. */
#ifndef REEF_TESTS_VM_SERVERS_H
#define REEF_TESTS_VM_SERVERS_H

#include "base/clock.h"
#include "check.h"
#include "fixture/units.h"

#include <stdint.h>
#include <sys/types.h>

#define PATIENCE_NS (UINT64_C(60000) * MILLISECOND)
#define RUN "/tmp/run"

/* Check again and again until a condition is true. */
#define AWAIT(condition)                                                       \
	do {                                                                   \
		uint64_t until_ = reef_now_ns() + PATIENCE_NS;                 \
		while (!(condition)) {                                         \
			CHECK(reef_now_ns() < until_ && #condition);           \
			reef_sleep(20 * MILLISECOND);                          \
		}                                                              \
	} while (0)

struct process {
	pid_t pid;
	int fd; /* what it says */
};

/* Where the programs are: beside this one, whose argv[0] it is. Its clients
 * find the pool in RUN. */
void servers_prepare(const char *program);

void start(struct process *process, const char *program, char **argv);
/* Read the lines of a process until one has that text in it. */
void hear(const struct process *process, const char *what);
/* Start `reef`, whose output we read. */
void start_telling(struct process *process, char **argv);
void start_broker(struct process *process, const char *address);
/* Add node n<number>, whose key is then in /tmp/n<number>.key, and start it. */
void start_node(struct process *process, const char *address, int number);
/* Start a client: PROGRAM ROLE FD ADDRESS, with a socket of packets to it. */
void start_client(struct process *process, char *program, char *role,
		  uint64_t address);
/* End a process by SIGTERM; its status must be 0. */
void end(struct process *process, int signal);

#endif
