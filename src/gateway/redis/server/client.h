/* client.h - a connection of a client of Redis.
 *
 *	accept --> open --(read, run, write)--> open
 *	             |  close_after: its answers are sent first
 *	             |  is_dead: nothing more is read, run or sent
 *	             v
 *	           closed by its thread's loop (serve.c), never by a command
 *
 * Thread: owner is its redis_thread; others may look at it and set is_dead
 * with that thread's lock held. */
#ifndef REEF_GATEWAY_REDIS_SERVER_CLIENT_H
#define REEF_GATEWAY_REDIS_SERVER_CLIENT_H

#include "gateway/redis/protocol/parse.h"
#include "gateway/redis/protocol/reply.h"

#define REDIS_ADDRESS_SIZE 128 /* an unix socket's path with ":0" */

struct redis_command;
struct redis_later;
struct redis_task;
struct redis_transaction;
struct redis_unit;
struct redis_watches;

struct redis_client {
	struct redis_client *next, *previous; /* in its thread's list */
	struct redis_thread *thread;
	uint64_t id;
	int fd;
	/* TLS (tls.h); NULL: without. wants_write: it goes on when something
	 * can be sent. is_tls_broken: nothing may be said any more. */
	struct ssl_st *tls;
	bool tls_wants_write, is_tls_broken;
	char address[REDIS_ADDRESS_SIZE];	/* of the client */
	char local_address[REDIS_ADDRESS_SIZE]; /* of our end */
	bool is_unix;
	/* Texts that the client gave, from malloc; NULL: none. */
	char *name, *library, *library_version;
	uint32_t db;
	bool is_authenticated;
	bool close_after, is_dead;
	bool no_evict, no_touch;
	/* For serve.c. is_ended: nothing more comes. is_paused: so much waits
	 * to be sent that nothing is run. events: what epoll is asked for. */
	bool is_ended, is_paused;
	bool is_held;  /* nothing is sent: it may have to be taken back */
	bool is_ready; /* in the thread's list (ready.h) */
	struct redis_client *ready_next, *ready_previous;
	struct redis_task *task;   /* a command that is not done; or NULL */
	struct redis_later *later; /* requests put off (gather.h); or NULL */
	bool is_gathered;	   /* its requests wait for those of others */
	uint32_t many_max;	   /* how many requests are run together */
	uint32_t events;

	struct redis_parser parser;
	struct redis_reply reply;
	const struct redis_command *command; /* the last, or the one running */

	/* For transactions.c; NULL: no transaction is under way, nothing is
	 * watched. */
	struct redis_transaction *transaction;
	struct redis_watches *watches;
	/* What it does at once (commands/atomic.h); NULL: each key by itself.
	 * is_hasty: it holds what others want, and does not pause. */
	struct redis_unit *unit;
	bool is_hasty;

	uint64_t created_ns, used_ns; /* used: when it last sent something */
	uint64_t stranger_ns; /* since when it could have authenticated */
	uint64_t over_ns; /* since when its answers are over the soft limit */
	uint64_t requests, bytes_in, bytes_out;
	uint64_t scratch; /* bytes that the command that runs has allocated */
	uint64_t charged; /* bytes that the budget knows of (budget.h) */
};

#endif
