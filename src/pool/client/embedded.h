/* embedded.h - a pool inside this process: a broker and a node in a thread of
 * their own.
 *
 * Thread: any. */
#ifndef REEF_POOL_CLIENT_EMBEDDED_H
#define REEF_POOL_CLIENT_EMBEDDED_H

#include <stddef.h>
#include <stdint.h>

struct embedded;
struct reef_credential;

/* Start one whose node lends `size` bytes. broker: room for its address. Caller
 * owns *out.  -EINVAL: too small. */
int embedded_start(uint64_t size, char *broker, size_t broker_max,
		   struct reef_credential *owner, struct embedded **out);
void embedded_stop(struct embedded *embedded); /* NULL is fine */

#endif
