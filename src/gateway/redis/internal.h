/* internal.h - what the files of the door itself share: door.c (the whole),
 * serve.c (a thread's loop), link.c (its way to the pool), listen.c.
 *
 * Thread: as door.h and thread.h say. */
#ifndef REEF_GATEWAY_REDIS_INTERNAL_H
#define REEF_GATEWAY_REDIS_INTERNAL_H

#include "gateway/redis/command.h"
#include "gateway/redis/door.h"

#define REDIS_THREADS_MAX 64
#define REDIS_LISTENERS_MAX 16
#define REDIS_PASSWORD_MAX 512

struct redis_door {
	struct redis_door_options options;
	struct redis_door_config config;
	struct redis_door_info info;
	/* Its digest, so that comparing takes the same time for any. */
	uint8_t password[32];
	struct redis_thread *threads;
	uint32_t thread_count;
	char addresses[1024];
	_Atomic uint64_t next_id;
	_Atomic uint32_t client_count;
};

#endif
