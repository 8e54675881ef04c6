/* holder.h - a process that keeps a node's memory, started by the node's.
 *
 * Thread: any. */
#ifndef REEF_CMD_SERVE_HOLDER_H
#define REEF_CMD_SERVE_HOLDER_H

/* Start `reef hold`, which waits for *linger_ns, a uint64_t, when it is alone,
 * then saves what it has in the folder (NULL: nowhere). For
 * reef_host_options. */
int holder_start(void *linger_ns, int listen_fd, const char *path,
		 const char *folder);

#endif
