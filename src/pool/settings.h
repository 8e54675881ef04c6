/* settings.h - what can be set, for broker, node, doors and clients alike.
 *
 * One table, by the rules of base/config/config.h: flag, then environment (the
 * name in capitals after REEF_), then file, then default. reef.conf(5) explains
 * each.
 *
 * Thread: owner. */
#ifndef REEF_POOL_SETTINGS_H
#define REEF_POOL_SETTINGS_H

#include "base/config/config.h"
#include "base/log.h"
#include "wire/states.h"

#define REEF_PORT 7337
#define REEF_NODE_PORT 7338
#define REEF_REDIS_PORT 7379

/* Bits: which commands have a setting as a flag. */
#define REEF_USE_BROKER 1u
#define REEF_USE_NODE 2u
#define REEF_USE_CLIENT 4u
#define REEF_USE_UP 8u	   /* all in one */
#define REEF_USE_REDIS 16u /* the door for clients of Redis */

/* What keeps a node's memory while it does not run: bits; 0: nothing. */
#define REEF_KEEP_HOLDER 1u
#define REEF_KEEP_IMAGE 2u
enum reef_huge_pages { REEF_HUGE_AUTO, REEF_HUGE_ON, REEF_HUGE_OFF };

/* The places in the table, for reef_config_source and such. */
enum reef_settings_index {
	REEF_SET_LISTEN,
	REEF_SET_NODE_LISTEN,
	REEF_SET_BROKER,
	REEF_SET_DATA,
	REEF_SET_RUN,
	REEF_SET_KEY_FILE,
	REEF_SET_NODE_KEY,
	REEF_SET_POOL,
	REEF_SET_CREDENTIAL,
	REEF_SET_FABRICS,
	REEF_SET_TLS,
	REEF_SET_NAME,
	REEF_SET_LEND,
	REEF_SET_EXTENT_SIZE,
	REEF_SET_HUGE_PAGES,
	REEF_SET_KEEP,
	REEF_SET_KEEP_FOR,
	REEF_SET_SAVE_EVERY,
	REEF_SET_TTL,
	REEF_SET_NODE_TTL,
	REEF_SET_LEASE_KILLS,
	REEF_SET_REVOKE_NOTICE,
	/* By enum reef_limit. */
	REEF_SET_USER_SESSIONS,
	REEF_SET_USER_LINKS,
	REEF_SET_USER_SPACES,
	REEF_SET_USER_EXTENTS,
	REEF_SET_USER_NAMES,
	REEF_SET_USER_BYTES,
	REEF_SET_PRESSURE_LOW,
	REEF_SET_PRESSURE_HIGH,
	REEF_SET_REDIS,
	REEF_SET_REDIS_LISTEN,
	REEF_SET_REDIS_TLS,
	REEF_SET_REDIS_CERT,
	REEF_SET_REDIS_KEY,
	REEF_SET_REDIS_CA,
	REEF_SET_REDIS_CLIENT_CERTS,
	REEF_SET_REDIS_UNIX,
	REEF_SET_REDIS_SAVE,
	REEF_SET_REDIS_SPACE,
	REEF_SET_REDIS_COPIES,
	REEF_SET_REDIS_DATABASES,
	REEF_SET_REDIS_THREADS,
	REEF_SET_REDIS_PASSWORD_FILE,
	REEF_SET_REDIS_CLIENTS_MAX,
	REEF_SET_REDIS_IDLE,
	REEF_SET_REDIS_LOGIN,
	REEF_SET_REDIS_KEEPALIVE,
	REEF_SET_REDIS_QUERY_MAX,
	REEF_SET_REDIS_OUTPUT_SOFT,
	REEF_SET_REDIS_OUTPUT_MAX,
	REEF_SET_REDIS_MEMORY_MAX,
	REEF_SET_HTTP,
	REEF_SET_SPIN,
	REEF_SET_SILENCE,
	REEF_SET_UNREAD,
	REEF_SET_LOG,
	REEF_SET_COUNT
};

/* Whether clients by TLS must have certificates; auto: if there are authorities
 * to check them by. */
enum reef_client_certs {
	REEF_CLIENT_CERTS_AUTO,
	REEF_CLIENT_CERTS_NO,
	REEF_CLIENT_CERTS_OPTIONAL,
	REEF_CLIENT_CERTS_REQUIRED,
};

/* The settings of the door for clients of Redis (gateway/redis/door.h). */
struct reef_redis_settings {
	const char *listen;	/* blank-separated; NULL: no tcp */
	const char *listen_tls; /* the same, for TLS; NULL: none */
	const char *certificate, *key, *authorities; /* files; or NULL */
	enum reef_client_certs client_certs;
	const char *unix_path; /* NULL: there is no runtime directory */
	const char *save;      /* file; NULL: there is no data directory */
	const char *space;
	uint8_t copies;				  /* of a new space */
	const char *password_file;		  /* NULL: none */
	uint32_t databases, threads, clients_max; /* threads 0: by machine */
	uint64_t idle_ns, keepalive_ns;		  /* 0: never */
	uint64_t login_ns;
	uint64_t query_max, output_soft, output_max;
	uint64_t memory_max; /* 0: none */
};

/* All settings. Their texts belong to the configuration. */
struct reef_settings {
	/* Addresses, blank-separated. broker NULL: the one that left its own in
	 * `run`. */
	const char *listen, *node_listen, *broker;
	/* Directories, not made yet (private.h). A client of a user without a
	 * home may have neither data nor key files: NULL. */
	const char *data, *run;
	const char *key_file;	/* with the pool's key (keys.h) */
	const char *node_key;	/* file with a node's */
	const char *pool;	/* as reef_open has it; NULL: the default */
	const char *credential; /* file with a user's; NULL: the default */
	const char *fabrics;	/* blank-separated; NULL: all */
	const char *tls;	/* auto, yes or no */
	const char *name;	/* of the node of `reef up` */
	uint64_t lend, extent_size;
	enum reef_huge_pages huge_pages;
	uint32_t keep; /* REEF_KEEP_... */
	uint64_t keep_for_ns;
	uint64_t save_every_ns; /* 0: never */
	uint64_t ttl_ns, node_ttl_ns, revoke_notice_ns;
	bool lease_kills;
	/* Of each user; 0: none. */
	uint64_t user_limits[REEF_LIMIT_COUNT];
	/* Free memory of the machine: below low revocable extents are taken
	 * back until there is high; 0: never. */
	uint64_t pressure_low, pressure_high;
	const char *http; /* where to serve metrics; NULL: nowhere */
	bool with_redis;  /* `reef up` has that door, too */
	struct reef_redis_settings redis;
	uint64_t spin_ns, silence_ns; /* silence 0: the fabric's own */
	uint64_t unread; /* bytes of answers that may wait for their readers */
	enum reef_log_level log;
	struct reef_config *config;
};

/* Load the settings that input asks for. Whatever comes back, out->config is
 * there to be asked for the error and the wishes (unless -ENOMEM), and out is
 * the caller's to fini. With --help only the configuration is filled.
 * As reef_config_load. */
int reef_settings_load(const struct reef_config_input *input,
		       struct reef_settings *out);
void reef_settings_fini(struct reef_settings *settings);

#endif
