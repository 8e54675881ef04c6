/* target.h - where a pool is, and whose key opens it: what reef_open and the
 * operators' commands are given as text.
 *
 * A broker leaves two files in its runtime directory (host.h), which "local"
 * means: `broker`, its addresses in one line, and `owner.credential`.
 *
 * Thread: any. */
#ifndef REEF_POOL_TARGET_H
#define REEF_POOL_TARGET_H

#include <stddef.h>

struct reef_credential;

#define REEF_TARGET_BROKER "broker"
#define REEF_TARGET_OWNER "owner.credential"
#define REEF_TARGET_MAX 1024 /* bytes of a broker's addresses */

/* The addresses of a broker. target: "local", or "reef://HOST[:PORT],..." for
 * several places of one, which come back with ',' in between; with a port it
 * needs no "reef://". run: the runtime directory; NULL: $REEF_RUN, else the
 * user's. -EINVAL: no such target.  -ENOENT: no broker left its addresses
 * there. -EPERM: somebody else could have. */
int reef_target_broker(const char *target, const char *run,
		       char broker[REEF_TARGET_MAX]);

/* A credential from a file; path NULL: the owner's in run.  -EPERM, -ENOENT,
 * -REEF_ECORRUPT and such as reef_credential_load. */
int reef_target_credential(const char *path, const char *run,
			   struct reef_credential *out);

#endif
