/* acknowledge.h - pool epochs, as this session has seen them, taken them in and
 * acknowledged them. How: acknowledge.c.
 *
 * Thread: the keeper's. */
#ifndef REEF_POOL_CLIENT_KEEPER_ACKNOWLEDGE_H
#define REEF_POOL_CLIENT_KEEPER_ACKNOWLEDGE_H

#include <stdint.h>

struct reef_client;

/* The session is new: its view is of that pool epoch. */
void client_epoch_begin(struct reef_client *client, uint64_t epoch);
/* The pool epoch with these lower bits, which the table has. */
uint64_t client_epoch_of(const struct reef_client *client, uint64_t bits);
/* The table has that pool epoch: it is taken in, and acknowledged, in the
 * background. */
void client_epoch_seen(struct reef_client *client, uint64_t epoch);
/* Wait until the view is of that pool epoch.  Errors of
 * client_view_refresh_all. */
int client_epoch_take_in(struct reef_client *client, uint64_t epoch);
/* A renewal has told the broker that this epoch is acknowledged. */
void client_acknowledged(struct reef_client *client, uint64_t epoch);
/* A fiber of the keeper: acknowledges what is seen. */
int client_acknowledge_main(void *arg);

#endif
