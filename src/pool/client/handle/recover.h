/* recover.h - dead sessions, kinds of blocks, and heaps that no handle has.
 *
 * Thread: the keeper's, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_HANDLE_RECOVER_H
#define REEF_POOL_CLIENT_HANDLE_RECOVER_H

#include <stdint.h>

struct reef_client;
struct reef_request;
struct reef_space;

/* The broker asks for a dead session's blocks in a space to be put in order. */
int client_session_recover(struct reef_client *client,
			   const struct reef_request *request);
/* A fiber of the keeper: takes back what others freed in heaps that no handle
 * has. */
int client_collect_main(void *arg);
/* The session ends, and nobody uses its heaps any more. */
void client_heaps_abandon(struct reef_client *client);
/* Is a block of this kind still part of something? 1, 0, -errno. Thread: owner
 * of the space's handle. */
int client_kind_is_live(struct reef_space *space, uint8_t kind,
			uint64_t address);

#endif
