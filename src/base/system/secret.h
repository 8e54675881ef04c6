/* secret.h - memory for keys.
 *
 * (1) It is in no core dump, and not swapped out as far as the limit for locked
 *     memory allows.
 * (2) It is zero when it is given out, and again once it is given back.
 *
 * What lives on: a copy on a stack is wiped by the function that made it.
 *
 * Thread: any. */
#ifndef REEF_BASE_SECRET_H
#define REEF_BASE_SECRET_H

#include <stddef.h>

#define REEF_SECRET_MAX 256 /* bytes of one */

/* Room for a secret of at most REEF_SECRET_MAX bytes; NULL: no memory. */
void *reef_secret_create(size_t size);
/* Wipe it and give it back; NULL is fine. */
void reef_secret_destroy(void *secret);

#endif
