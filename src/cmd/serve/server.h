/* server.h - a server while it runs, for serve.c and its parts: say.c tells
 * people of it, children.c starts what runs beside it.
 *
 * Thread: owner. */
#ifndef REEF_CMD_SERVE_SERVER_H
#define REEF_CMD_SERVE_SERVER_H

#include "base/fiber/sched.h"
#include "cmd/http/http.h"
#include "cmd/image.h"
#include "cmd/operate.h"
#include "cmd/serve/child.h"
#include "pool/host.h"

#include <signal.h>

struct server {
	const char *name; /* of the command */
	struct reef_settings settings;
	struct reef_host_options options;
	struct reef_host *host;
	struct reef_sched *sched;
	struct reef_fiber *fiber; /* the one that waits for signals */
	struct reef_poller signals;
	bool asked_to_stop;
	bool with_redis;
	struct child redis, janitor, saver, http;
	struct http_page *page; /* NULL: there is no HTTP */
	int page_fd;
	const char *redis_found; /* what the door says it found */
	int status;		 /* of the program */
	struct cmd_bar bar; /* of what is read at start, or saved at stop */
	uint64_t told_ns;   /* when that was told to the service manager */
	struct reef_host_saved saved;
};

/* --- say.c --- */

/* Print where everything is that has started, and how it is used. */
void say_start(const struct server *server);
/* Print what was kept, or is: "3 extents, 192 MiB (0.14 s, ...)". */
void say_kept(const char *what, uint32_t extents, uint64_t bytes,
	      uint64_t took_ns);
/* Print what was saved at the stop, or why not and what to do. Returns the
 * program's status. */
int say_saved(const struct server *server);
/* For reef_broker_lost: print what a space has lost. context: the server. */
void say_lost(void *context, const char *space, uint64_t bytes);
/* Print why it could not start; returns the program's status. */
int say_start_failed(const struct server *server, enum reef_host_step step,
		     int rc);
/* A node on its own waits for its broker; but if one of them has refused the
 * other for good, that is printed. Returns 1 then. */
int say_refused(const struct server *server);

/* --- children.c --- */

/* Start those that are asked for, and wait until they are ready. 0, or the
 * program's status: it was printed why, and none runs. */
int children_start(struct server *server);
void children_stop(struct server *server);
/* They begin with these signals blocked. */
void children_set_signals(struct server *server, const sigset_t *signals);
/* SIGCHLD came. */
void children_signal(struct server *server);
/* Write down, for whoever asks over HTTP, how we are. */
void children_fill_page(const struct server *server);

#endif
