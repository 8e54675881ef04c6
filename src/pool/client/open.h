/* open.h - the pools that reef_open has found, one client each, which handles
 * share.
 *
 * Thread: any. */
#ifndef REEF_POOL_CLIENT_OPEN_H
#define REEF_POOL_CLIENT_OPEN_H

struct open_pool;

/* A handle of reef_open is closed: its pool goes with the last one. */
void client_pool_release(struct open_pool *pool);

#endif
