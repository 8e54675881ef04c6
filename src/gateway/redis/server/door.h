/* door.h - the Redis door: a server for clients of Redis, in front of the maps
 * of a pool.
 *
 *	clients --(RESP)--> threads --(one-sided)--> maps "db0".. of a space
 *
 * (1) It is a client of the pool as any other: it keeps nothing that would be
 *     lost with it. Several doors, and native clients of the maps, may serve
 *     the same keys.
 * (2) A client that sends nonsense, too much, too slowly or does not read its
 *     answers costs its own buffers, which are bounded, and no more.
 * (3) A session that was fenced is opened anew, with a growing pause. Clients
 *     stay connected; what needs the pool is answered -LOADING meanwhile.
 *
 * Thread: create, run, destroy: main; stop: any, also a signal's handler. */
#ifndef REEF_GATEWAY_REDIS_SERVER_DOOR_H
#define REEF_GATEWAY_REDIS_SERVER_DOOR_H

#include "gateway/redis/protocol/parse.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Whom TLS asks for a certificate; auto: everybody, if there are authorities to
 * check it by. */
enum redis_tls_clients {
	REDIS_TLS_CLIENTS_AUTO,
	REDIS_TLS_CLIENTS_NO,
	REDIS_TLS_CLIENTS_OPTIONAL,
	REDIS_TLS_CLIENTS_REQUIRED,
};

struct redis_tls_options {
	/* Files in PEM: the certificate, with those in between; its key; the
	 * certificates that those of clients are checked by, or NULL. */
	const char *certificate, *key, *authorities;
	enum redis_tls_clients clients;
};

/* Zero means the default. */
struct redis_door_options {
	const char *pool, *credential, *fabrics; /* as reef_open has them */
	const char *pool_tls;			 /* to the pool; the same */
	const char *space;			 /* "redis"; made if missing */
	uint8_t copies;	    /* of the memory of a space that is made; 1 */
	const char *listen; /* "HOST:PORT ...", blank-separated; NULL: none */
	const char *listen_tls; /* the same, for TLS; NULL: none */
	struct redis_tls_options tls;
	const char *unix_path; /* NULL: none */
	/* File with the password; NULL: everybody is let in. */
	const char *password_file;
	uint32_t threads;     /* processors - 1, from 1 to 4 */
	uint32_t databases;   /* 16 */
	uint32_t clients_max; /* 10,000 */
	uint64_t
		idle_ns; /* close clients that are idle for so long; 0: never */
	/* Close clients that have not finished TLS's handshake, or not said the
	 * password, after so long; 60 s. */
	uint64_t login_ns;
	uint64_t keepalive_ns; /* of tcp; 300 s; UINT64_MAX: none */
	struct redis_limits limits;
	uint64_t output_soft; /* do not run a client that has so many bytes of
				 answers waiting, and close it after 60 s; 64
				 MiB */
	uint64_t output_max;  /* close a client at so many; 1 GiB */
	uint64_t memory_max;  /* of all clients together (budget.h); 1 GiB;
				 UINT64_MAX: none */
	/* The program that SAVE and BGSAVE run (save.h); NULL: they are
	 * refused. */
	const char *const *save_words;
};

struct redis_door;
struct redis_guesses;
struct redis_thread;
struct redis_client;

/* Open the pool, listen; nobody is served before run. *what (may be NULL): what
 * it is that failed, for people; good until the next call. Caller owns *out.
 * -EADDRINUSE.  -EACCES, -EPERM: the password's file is not private.  -EINVAL:
 * an address or limit that is none.
 * -EACCES: others than this machine would reach it, without a password. Errors
 * of reef_open. */
int redis_door_create(const struct redis_door_options *options,
		      struct redis_door **out, const char **what);
/* Serve until stop; what was asked before is answered. 0, or why it could not
 * start. */
int redis_door_run(struct redis_door *door);
void redis_door_stop(struct redis_door *door);
/* True if every thread of the door has gone through its loop since this was
 * last asked. Those that wait are woken, so that they do. Thread: one, beside
 * run. */
bool redis_door_is_alive(struct redis_door *door);
void redis_door_destroy(struct redis_door *door); /* NULL is fine */

/* What was there when it opened: "64 MiB in 2 databases", or "nothing yet";
 * then, where copies were asked for or are there, how many, and whether some
 * are missing. */
const char *redis_door_found(const struct redis_door *door);
/* Where it listens, blank-separated: "127.0.0.1:7379 /run/...". */
const char *redis_door_addresses(const struct redis_door *door);

/* --- for commands --- */

/* What CONFIG SET may change while it runs. */
struct redis_door_config {
	_Atomic uint32_t clients_max;
	_Atomic uint64_t idle_ns, keepalive_ns;
	_Atomic uint64_t output_soft, output_max, bulk_max, query_max;
	_Atomic uint64_t memory_max; /* 0: none */
};
struct redis_door_config *redis_door_config(struct redis_door *door);
struct redis_save;
struct redis_save *redis_door_save(const struct redis_door *door);
const struct redis_door_options *
redis_door_options(const struct redis_door *door);

/* What INFO tells of the door as a whole. */
struct redis_door_info {
	uint64_t started_ns; /* monotonic */
	uint64_t started_ms; /* since 1970 */
	char run_id[41];     /* 40 hexadecimal digits */
	uint16_t port;	     /* of the first address; 0: no tcp */
	uint16_t tls_port;   /* of the first address for TLS; 0: none */
	uint32_t threads, clients;
	uint64_t rejected; /* connections that were refused, because there were
			      too many */
	bool has_password;
	uint64_t charged; /* bytes of all clients */
};
void redis_door_info(const struct redis_door *door,
		     struct redis_door_info *out);

/* Call `each` for every thread, with its lock held and the caller's own
 * (`self`) released: `self` must not have references into its clients but its
 * own client, which stays. Nonzero ends it, and is returned. */
int redis_door_each(struct redis_door *door, struct redis_thread *self,
		    int (*each)(void *context, struct redis_thread *thread),
		    void *context);
/* Close a client of any thread; with its lock held, as in each. */
void redis_door_kill(struct redis_client *client);

/* True if that is the password; takes the same time whatever it is. */
bool redis_door_password(struct redis_door *door, const char *bytes,
			 size_t size);
/* Change the password, until the door ends; of no bytes: there is none any
 * more. Who is in stays.  -EFBIG: it is too long.  -EACCES: others than this
 * machine reach the door, so there must be one.  -ENOMEM. */
int redis_door_set_password(struct redis_door *door, const char *bytes,
			    size_t size);
struct redis_guesses *redis_door_guesses(struct redis_door *door);

/* Load certificate, key and authorities anew, from where these options say;
 * members that are NULL (clients: AUTO) stay as they are. Who is connected is
 * not touched.  -EOPNOTSUPP: the door does not listen for TLS.  -EACCES: there
 * would be neither a password nor certificates.  Errors of redis_tls_load:
 * nothing has changed, and the log says why. */
int redis_door_set_tls(struct redis_door *door,
		       const struct redis_tls_options *options);
/* Which these are now; the texts go to `paths`: certificate, key,
 * authorities. */
#define REDIS_PATH_SIZE 512
enum redis_tls_clients redis_door_tls(struct redis_door *door,
				      char paths[3][REDIS_PATH_SIZE]);

#endif
