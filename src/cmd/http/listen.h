/* listen.h - where HTTP listens.
 *
 * Thread: any. */
#ifndef REEF_CMD_HTTP_LISTEN_H
#define REEF_CMD_HTTP_LISTEN_H

#include <stddef.h>

/* Listen where the text says, HOST:PORT. The descriptor, or -errno. backlog:
 * those who may wait to be accepted. host: room for the part before the port.
 */
int listen_at(const char *text, int backlog, char *host, size_t size);

/* Write the address that it became, for whoever started us. ready_fd: a
 * descriptor as text; NULL: nobody asked. */
void listen_tell_ready(int fd, const char *ready_fd);

#endif
