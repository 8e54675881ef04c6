/* internal.h - what the files of the door itself share: door.c (the whole),
 * serve.c (a thread's loop), pool_link.c (its way to the pool).
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

struct redis_door {
	struct redis_door_options options; /* the caller's texts */
	struct redis_door_config config;
	struct redis_door_info info;
	/* The password's digest, so that comparing takes the same time for
	 * any. */
	uint8_t password[REDIS_DIGEST_SIZE];
	int listeners[REDIS_LISTENERS_MAX];
	uint32_t listener_count;
	struct redis_thread *threads;
	uint32_t thread_count;
	char addresses[1024];
	int wake_fd; /* of the thread that takes connections */
	_Atomic bool is_stopping;
	_Atomic uint64_t next_id;
	_Atomic uint32_t client_count;
	_Atomic uint64_t rejected;
	bool is_short; /* of descriptors or such, when it last took somebody */
	/* Create's own, until every thread has opened its own, so that the
	 * session stays the same; how many have. */
	struct reef *reef;
	struct reef_space *space;
	_Atomic uint32_t ready;
	char what[512];
};

/* A thread has opened the pool. */
void redis_door_ready(struct redis_door *door);

/* --- pool_link.c --- */

/* Open pool and space with the door's options. */
int redis_link_open(const struct redis_door_options *options,
		    uint64_t timeout_ns, struct reef **reef,
		    struct reef_space **space);
/* Open them for the thread if they are not, and it is time. */
void redis_link_keep(struct redis_thread *thread);
void redis_link_close(struct redis_thread *thread);

/* --- serve.c --- */

/* A thread of the door; arg: its redis_thread. */
void *redis_serve(void *arg);
/* A connection that was taken: make a client of it and deal it to the thread;
 * fd is theirs.  -ENOMEM. */
int redis_serve_accept(struct redis_thread *thread, int fd, bool is_unix);
void redis_serve_wake(struct redis_thread *thread);

#endif
