/* notify.h - telling the service manager that started us (systemd's Type=notify
 * and WatchdogSec) that we are ready, alive, and about to end.
 *
 * (1) Without NOTIFY_SOCKET in the environment nothing is told; what cannot be
 *     sent is dropped. A server never waits or fails because of it.
 * (2) The variables are taken out of the environment, so no process that we
 *     start speaks in our name.
 * (3) That we are alive is told by the loops that do the work, or for each sign
 *     of life that all of them have given; never for the time alone. So a loop
 *     that stands still is silent.
 *
 * Thread: begin: main, before others start; the rest: any. */
#ifndef REEF_CMD_SERVE_NOTIFY_H
#define REEF_CMD_SERVE_NOTIFY_H

#include <stdint.h>

/* Read what the service manager left for us. */
void notify_begin(void);

/* Send lines of VARIABLE=VALUE, as sd_notify(3) has them. */
__attribute__((format(printf, 1, 2))) void notify_send(const char *format, ...);

/* How often the manager is to be told that we are alive: half of what it waits
 * for; 0: it does not watch. */
uint64_t notify_alive_ns(void);
/* Tell it. */
void notify_alive(void);

#endif
