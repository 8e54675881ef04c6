/* internal.h - what the files of the door itself share: door.c (the whole),
 * admit.c (who may come in), serve.c (a thread's loop), pool_link.c (its way to
 * the pool).
 *
 * Thread: as door.h and thread.h say. */
#ifndef REEF_GATEWAY_REDIS_SERVER_INTERNAL_H
#define REEF_GATEWAY_REDIS_SERVER_INTERNAL_H

#include "gateway/redis/commands/command.h"
#include "gateway/redis/server/door.h"
#include "gateway/redis/server/thread.h"

#define REDIS_THREADS_MAX 64
#define REDIS_LISTENERS_MAX 16
#define REDIS_DIGEST_SIZE 32
#define REDIS_PASSWORD_MAX 512

struct redis_door {
	struct redis_door_options options; /* texts are the caller's */
	struct redis_door_config config;
	struct redis_door_info info;
	/* The password's digest, so that comparing takes the same time for
	 * any; under password_lock, as it may be changed. */
	pthread_mutex_t password_lock;
	uint8_t password[REDIS_DIGEST_SIZE];
	_Atomic bool has_password;
	/* Others than this machine reach it, without and with TLS. */
	bool is_reached, is_reached_by_tls;
	struct redis_guesses *guesses;
	struct redis_save *save;
	/* TLS: what is used, and what it was made of; under tls_lock. NULL:
	 * there is none. */
	pthread_mutex_t tls_lock;
	struct ssl_ctx_st *tls;
	char tls_paths[3][REDIS_PATH_SIZE];
	enum redis_tls_clients tls_clients;
	int listeners[REDIS_LISTENERS_MAX];
	bool is_tls[REDIS_LISTENERS_MAX];
	uint32_t listener_count;
	struct redis_thread *threads;
	uint32_t thread_count;
	char addresses[1024];
	char found[192];
	int wake_fd; /* wakes the thread that accepts connections */
	_Atomic bool is_stopping;
	_Atomic uint64_t next_id;
	_Atomic uint32_t client_count;
	_Atomic uint64_t rejected;
	bool is_short; /* the last connection could not be accepted */
	/* The handle that create opened, kept until every thread has opened its
	 * own (`ready` counts them), so that the session stays the same. */
	struct reef *reef;
	struct reef_space *space;
	_Atomic uint32_t ready;
	char what[512];
};

/* Tell the door that one more thread has opened the pool. */
void redis_door_ready(struct redis_door *door);

/* --- admit.c --- */

/* Digest a password.  -ENOMEM. */
int redis_password_digest(const void *bytes, size_t size,
			  uint8_t out[REDIS_DIGEST_SIZE]);
/* True if clients who come by TLS have certificates, all of them. */
bool redis_tls_has_certificates(enum redis_tls_clients clients,
				const char *authorities);
/* Note what the door's TLS was made of. False: a path is too long. */
bool redis_tls_note(struct redis_door *door,
		    const struct redis_tls_options *options);

/* --- pool_link.c --- */

/* Open pool and space with the door's options.  -EXDEV: the space is, or would
 * be, another user's.  Else as reef_open and reef_space_open. */
int redis_link_open(const struct redis_door_options *options,
		    uint64_t timeout_ns, struct reef **reef,
		    struct reef_space **space);
/* Tell whether the pool has at least so many nodes at the moment: 0, or
 * -ENOSPC. Costs two questions to the broker. Else as reef_space_open. */
int redis_link_has_nodes(struct reef *reef, uint8_t nodes);
/* Open pool and space for a thread that has none or was fenced, unless the last
 * attempt failed just now. */
void redis_link_keep(struct redis_thread *thread);
void redis_link_close(struct redis_thread *thread);

/* --- serve.c --- */

/* The loop of a thread of the door; arg: its redis_thread. */
void *redis_serve(void *arg);
/* Make a client of an accepted connection and deal it to the thread, which owns
 * fd then.  -ENOMEM: fd is closed. */
int redis_serve_accept(struct redis_thread *thread, int fd, bool is_unix,
		       bool is_tls);
void redis_serve_wake(struct redis_thread *thread);

#endif
