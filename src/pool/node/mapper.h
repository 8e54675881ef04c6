/* mapper.h - processes that may have a node's memory mapped, known by their
 * pidfds.
 *
 * (1) A process is ended only if it has some of the memory mapped, or that
 *     cannot be told: a program that let go of it goes on.
 *
 * Thread: any. */
#ifndef REEF_POOL_NODE_MAPPER_H
#define REEF_POOL_NODE_MAPPER_H

#include <stdbool.h>
#include <stdint.h>

/* The number of the process behind a pidfd; -1: it has ended. */
long mapper_process(int pidfd);
bool mapper_has_ended(int pidfd);
/* True if the process has one of those files mapped, or that cannot be told. */
bool mapper_has(int pidfd, const int *fds, uint32_t count);
/* Send it SIGKILL; it ends some time later. */
void mapper_kill(int pidfd);

#endif
