/* recover.h - dead sessions, kinds of blocks, and heaps that no handle has.
 *
 * Thread: the keeper's, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_HANDLE_RECOVER_H
#define REEF_POOL_CLIENT_HANDLE_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

struct client_space;
struct reef_body;
struct reef_client;
struct reef_request;
struct reef_space;

/* The broker's request RECOVER: put dead sessions' blocks in a space in
 * order. */
int client_session_recover(struct reef_client *client,
			   const struct reef_request *request,
			   struct reef_body *answer);
/* A fiber of the keeper: takes back what others freed in heaps that no handle
 * has. */
int client_collect_main(void *arg);
/* A fiber of the keeper: spaces give back extents that nothing is in. */
int client_tend_main(void *arg);
/* Open a space in the keeper's own handle; takes the reference over. */
int client_inner_attach(struct reef_client *client, struct client_space *known,
			struct reef_space **out);
/* The session ends: free the raw blocks in its heaps, which nobody uses now. */
void client_heaps_abandon(struct reef_client *client);
/* True if blocks of that kind may be asked about while their session lives. */
bool client_kind_is_quick(uint8_t kind);
/* 1: the owner of that kind says that the block is still part of something.  0:
 * it is not.  -errno. Thread: owner of the space's handle. */
int client_kind_is_live(struct reef_space *space, uint8_t kind,
			uint64_t address);

#endif
