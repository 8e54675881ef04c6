/* settings.c - what can be set, for broker, node, doors and clients alike.
 *
 * Some defaults follow from the machine or from other settings; they are put in
 * place after everything was read. */
#include "pool/settings.h"

#include "base/system/paths.h"
#include "base/units.h"
#include "pool/settings_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define KIB UINT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define MS UINT64_C(1000000)
#define SECOND (MS * 1000)
#define DAY (SECOND * 86400)

#define SIZE_MOST (UINT64_C(1) << 47)
#define TEXT_SIZE 512
#define STRING(x) #x
#define STRING_OF(x) STRING(x)

/* The words stand in the order of enum reef_tls_use. */
static const char *const tls_words[] = {"auto", "yes", "no", NULL};
/* In the order of reef_client_certs. */
static const char *const client_certs_words[] = {"auto", "no", "optional",
						 "required", NULL};
static const char *const huge_words[] = {"auto", "on", "off", NULL};
/* The words stand in the order of enum reef_log_level. */
static const char *const log_words[] = {"debug", "info", "warning", "error",
					NULL};

#define SERVERS (REEF_USE_BROKER | REEF_USE_NODE)
#define ANYONE (SERVERS | REEF_USE_CLIENT)
#define DOOR (REEF_USE_UP | REEF_USE_REDIS)

#define USER_LIMIT(upper, lower, kind, first, what)                            \
	[REEF_SET_USER_##upper] = {                                            \
		.name = "user-" #lower,                                        \
		.variable = "REEF_USER_" #upper,                               \
		.type = (kind),                                                \
		.initial = (first),                                            \
		.most = SIZE_MOST,                                             \
		.uses = REEF_USE_BROKER,                                       \
		.help = what " of each user, 0: any",                          \
	}

static const struct reef_config_setting table[REEF_SET_COUNT] = {
	[REEF_SET_LISTEN] =
		{
			.name = "listen",
			.variable = "REEF_LISTEN",
			.type = REEF_CONFIG_LIST,
			.value_name = "ADDRESSES",
			.check = settings_check_address,
			.prefix = settings_prefix_address,
			.uses = REEF_USE_BROKER,
			.help = "where the broker listens; 127.0.0.1:7337",
		},
	[REEF_SET_NODE_LISTEN] =
		{
			.name = "node-listen",
			.variable = "REEF_NODE_LISTEN",
			.type = REEF_CONFIG_LIST,
			.value_name = "ADDRESSES",
			.check = settings_check_address,
			.prefix = settings_prefix_address,
			.uses = REEF_USE_NODE,
			.help = "where the node listens; 127.0.0.1:7338",
		},
	[REEF_SET_BROKER] =
		{
			.name = "broker",
			.variable = "REEF_BROKER",
			.type = REEF_CONFIG_LIST,
			.value_name = "ADDRESSES",
			.check = settings_check_address,
			.prefix = settings_prefix_address,
			.uses = REEF_USE_NODE,
			.help = "where the broker is; that of this user here",
		},
	[REEF_SET_DATA] =
		{
			.name = "data",
			.variable = "REEF_DATA",
			.type = REEF_CONFIG_PATH,
			.uses = SERVERS,
			.help = "directory of the journal and of keys",
		},
	[REEF_SET_RUN] =
		{
			.name = "run",
			.variable = "REEF_RUN",
			.type = REEF_CONFIG_PATH,
			.uses = ANYONE,
			.help = "directory of the sockets",
		},
	[REEF_SET_KEY_FILE] =
		{
			.name = "key-file",
			.variable = "REEF_KEY_FILE",
			.type = REEF_CONFIG_PATH,
			.uses = REEF_USE_BROKER,
			.help = "file with the pool's key",
		},
	[REEF_SET_NODE_KEY] =
		{
			.name = "node-key",
			.variable = "REEF_NODE_KEY",
			.type = REEF_CONFIG_PATH,
			.uses = REEF_USE_NODE,
			.help = "file with the node's key; see reef node add",
		},
	[REEF_SET_POOL] =
		{
			.name = "pool",
			.variable = "REEF_POOL",
			.type = REEF_CONFIG_TEXT,
			.check = settings_check_pool,
			.uses = REEF_USE_CLIENT,
			.help = "which pool: local, or HOST:PORT; local",
		},
	[REEF_SET_CREDENTIAL] =
		{
			.name = "credential",
			.variable = "REEF_CREDENTIAL",
			.type = REEF_CONFIG_PATH,
			.uses = REEF_USE_CLIENT,
			.help = "file with a user's key; the owner's",
		},
	[REEF_SET_FABRICS] =
		{
			.name = "fabrics",
			.variable = "REEF_FABRICS",
			.type = REEF_CONFIG_LIST,
			.value_name = "shm|tcp|verbs",
			.check = settings_check_fabric,
			.uses = ANYONE,
			.help = "which to use; all",
		},
	[REEF_SET_TLS] =
		{
			.name = "tls",
			.variable = "REEF_TLS",
			.type = REEF_CONFIG_CHOICE,
			.initial = "auto",
			.choices = tls_words,
			.uses = ANYONE,
			.help = "encrypt tcp: auto: but on loopback; yes, no",
		},
	[REEF_SET_NAME] =
		{
			.name = "name",
			.variable = "REEF_NAME",
			.type = REEF_CONFIG_TEXT,
			.value_name = "NAME",
			.check = settings_check_name,
			.uses = REEF_USE_UP,
			.help = "what its node is called; the host's name",
		},
	[REEF_SET_LEND] =
		{
			.name = "lend",
			.variable = "REEF_LEND",
			.type = REEF_CONFIG_SIZE,
			.initial = "1G",
			.least = MIB,
			.most = SIZE_MOST,
			.uses = REEF_USE_NODE,
			.help = "memory to lend at most",
		},
	[REEF_SET_EXTENT_SIZE] =
		{
			.name = "extent-size",
			.variable = "REEF_EXTENT_SIZE",
			.type = REEF_CONFIG_SIZE,
			.initial = "64M",
			.least = MIB,
			.most = 4 * GIB,
			.uses = REEF_USE_BROKER,
			.help = "size of the pieces that memory is lent in",
		},
	[REEF_SET_HUGE_PAGES] =
		{
			.name = "huge-pages",
			.variable = "REEF_HUGE_PAGES",
			.type = REEF_CONFIG_CHOICE,
			.initial = "auto",
			.choices = huge_words,
			.uses = REEF_USE_NODE,
			.help = "use them if there are any, always, or never",
		},
	[REEF_SET_KEEP] =
		{
			.name = "keep",
			.variable = "REEF_KEEP",
			.type = REEF_CONFIG_LIST,
			.value_name = "holder|image|none",
			.initial = "holder image",
			.check = settings_check_keep,
			.uses = REEF_USE_NODE,
			.help = "what has its memory when it ends",
		},
	[REEF_SET_KEEP_FOR] =
		{
			.name = "keep-for",
			.variable = "REEF_KEEP_FOR",
			.type = REEF_CONFIG_DURATION,
			.initial = "600s",
			.least = SECOND,
			.most = DAY,
			.uses = REEF_USE_NODE,
			.help = "how long a holder waits for the next node",
		},
	[REEF_SET_SAVE_EVERY] =
		{
			.name = "save-every",
			.variable = "REEF_SAVE_EVERY",
			.type = REEF_CONFIG_DURATION,
			.initial = "0s",
			.most = 30 * DAY,
			.uses = REEF_USE_BROKER,
			.help = "save every space so often, 0: never",
		},
	[REEF_SET_TTL] =
		{
			.name = "ttl",
			.variable = "REEF_TTL",
			.type = REEF_CONFIG_DURATION,
			.initial = "10s",
			.least = MS,
			.most = DAY,
			.uses = REEF_USE_BROKER,
			.help = "a session silent for so long is over",
		},
	[REEF_SET_NODE_TTL] =
		{
			.name = "node-ttl",
			.variable = "REEF_NODE_TTL",
			.type = REEF_CONFIG_DURATION,
			.initial = "10s",
			.least = MS,
			.most = DAY,
			.uses = REEF_USE_BROKER,
			.help = "a node silent for so long is dead",
		},
	[REEF_SET_LEASE_KILLS] =
		{
			.name = "lease-kills",
			.variable = "REEF_LEASE_KILLS",
			.type = REEF_CONFIG_SWITCH,
			.initial = "no",
			.uses = REEF_USE_BROKER,
			.help = "the ttl holds for sessions on shm, too",
		},
	[REEF_SET_REVOKE_NOTICE] =
		{
			.name = "revoke-notice",
			.variable = "REEF_REVOKE_NOTICE",
			.type = REEF_CONFIG_DURATION,
			.initial = "1s",
			.most = DAY,
			.uses = REEF_USE_BROKER,
			.help = "time from a notice until memory is taken back",
		},
	USER_LIMIT(SESSIONS, sessions, REEF_CONFIG_NUMBER, "1024", "sessions"),
	USER_LIMIT(LINKS, links, REEF_CONFIG_NUMBER, "1280",
		   "links to the broker"),
	USER_LIMIT(SPACES, spaces, REEF_CONFIG_NUMBER, "1024", "spaces"),
	USER_LIMIT(EXTENTS, extents, REEF_CONFIG_NUMBER, "65536", "extents"),
	USER_LIMIT(NAMES, names, REEF_CONFIG_NUMBER, "65536", "names"),
	USER_LIMIT(BYTES, bytes, REEF_CONFIG_SIZE, "0", "memory"),
	[REEF_SET_PRESSURE_LOW] =
		{
			.name = "pressure-low",
			.variable = "REEF_PRESSURE_LOW",
			.type = REEF_CONFIG_SIZE,
			.most = SIZE_MOST,
			.uses = REEF_USE_NODE,
			.help = "free memory below which it is taken back; "
				"1/32",
		},
	[REEF_SET_PRESSURE_HIGH] =
		{
			.name = "pressure-high",
			.variable = "REEF_PRESSURE_HIGH",
			.type = REEF_CONFIG_SIZE,
			.most = SIZE_MOST,
			.uses = REEF_USE_NODE,
			.help = "free memory at which that ends; 1/16",
		},
	[REEF_SET_REDIS] =
		{
			.name = "redis",
			.variable = "REEF_REDIS",
			.type = REEF_CONFIG_SWITCH,
			.initial = "yes",
			.uses = REEF_USE_UP,
			.help = "serve clients of Redis, too",
		},
	[REEF_SET_REDIS_LISTEN] =
		{
			.name = "redis-listen",
			.variable = "REEF_REDIS_LISTEN",
			.type = REEF_CONFIG_LIST,
			.value_name = "ADDRESSES",
			.check = settings_check_redis_listen,
			.uses = DOOR,
			.help = "where it listens, or none; 127.0.0.1:7379",
		},
	[REEF_SET_REDIS_TLS] =
		{
			.name = "redis-tls",
			.variable = "REEF_REDIS_TLS",
			.type = REEF_CONFIG_LIST,
			.value_name = "ADDRESSES",
			.check = settings_check_redis_listen,
			.uses = DOOR,
			.help = "where it listens for TLS; none",
		},
	[REEF_SET_REDIS_CERT] =
		{
			.name = "redis-cert",
			.variable = "REEF_REDIS_CERT",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "file with its certificate, for TLS",
		},
	[REEF_SET_REDIS_KEY] =
		{
			.name = "redis-key",
			.variable = "REEF_REDIS_KEY",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "file with the key of that certificate",
		},
	[REEF_SET_REDIS_CA] =
		{
			.name = "redis-ca",
			.variable = "REEF_REDIS_CA",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "certificates to check those of clients by",
		},
	[REEF_SET_REDIS_CLIENT_CERTS] =
		{
			.name = "redis-client-certs",
			.variable = "REEF_REDIS_CLIENT_CERTS",
			.type = REEF_CONFIG_CHOICE,
			.choices = client_certs_words,
			.initial = "auto",
			.uses = DOOR,
			.help = "whether clients by TLS must have one",
		},
	[REEF_SET_REDIS_UNIX] =
		{
			.name = "redis-unix",
			.variable = "REEF_REDIS_UNIX",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "its unix socket; redis.sock in the run "
				"directory",
		},
	[REEF_SET_REDIS_SAVE] =
		{
			.name = "redis-save",
			.variable = "REEF_REDIS_SAVE",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "file of SAVE; redis.image in the data "
				"directory",
		},
	[REEF_SET_REDIS_SPACE] =
		{
			.name = "redis-space",
			.variable = "REEF_REDIS_SPACE",
			.type = REEF_CONFIG_TEXT,
			.value_name = "NAME",
			.initial = "redis",
			.check = settings_check_name,
			.uses = DOOR,
			.help = "the space of its databases",
		},
	[REEF_SET_REDIS_COPIES] =
		{
			.name = "redis-copies",
			.variable = "REEF_REDIS_COPIES",
			.type = REEF_CONFIG_NUMBER,
			.initial = "1",
			.least = 1,
			.most = 2,
			.uses = DOOR,
			.help = "copies of its memory, if the space "
				"is new",
		},
	[REEF_SET_REDIS_DATABASES] =
		{
			.name = "redis-databases",
			.variable = "REEF_REDIS_DATABASES",
			.type = REEF_CONFIG_NUMBER,
			.initial = "16",
			.least = 1,
			.most = 256,
			.uses = DOOR,
			.help = "how many databases it has",
		},
	[REEF_SET_REDIS_THREADS] =
		{
			.name = "redis-threads",
			.variable = "REEF_REDIS_THREADS",
			.type = REEF_CONFIG_NUMBER,
			.least = 1,
			.most = 64,
			.uses = DOOR,
			.help = "threads that serve its clients; by the "
				"machine",
		},
	[REEF_SET_REDIS_PASSWORD_FILE] =
		{
			.name = "redis-password-file",
			.variable = "REEF_REDIS_PASSWORD_FILE",
			.type = REEF_CONFIG_PATH,
			.uses = DOOR,
			.help = "file with the password to ask for; none",
		},
	[REEF_SET_REDIS_CLIENTS_MAX] =
		{
			.name = "redis-clients-max",
			.variable = "REEF_REDIS_CLIENTS_MAX",
			.type = REEF_CONFIG_NUMBER,
			.initial = "10000",
			.least = 1,
			.most = 1000000,
			.uses = DOOR,
			.help = "how many clients may be connected",
		},
	[REEF_SET_REDIS_IDLE] =
		{
			.name = "redis-idle",
			.variable = "REEF_REDIS_IDLE",
			.type = REEF_CONFIG_DURATION,
			.initial = "0",
			.most = DAY,
			.uses = DOOR,
			.help = "close clients silent for so long, 0: never",
		},
	[REEF_SET_REDIS_LOGIN] =
		{
			.name = "redis-login",
			.variable = "REEF_REDIS_LOGIN",
			.type = REEF_CONFIG_DURATION,
			.initial = "60s",
			.least = 100 * MS,
			.most = DAY,
			.uses = DOOR,
			.help = "close clients that say so late who they are",
		},
	[REEF_SET_REDIS_KEEPALIVE] =
		{
			.name = "redis-keepalive",
			.variable = "REEF_REDIS_KEEPALIVE",
			.type = REEF_CONFIG_DURATION,
			.initial = "300s",
			.most = DAY,
			.uses = DOOR,
			.help = "probe silent connections so often, 0: never",
		},
	[REEF_SET_REDIS_QUERY_MAX] =
		{
			.name = "redis-query-max",
			.variable = "REEF_REDIS_QUERY_MAX",
			.type = REEF_CONFIG_SIZE,
			.initial = "1G",
			.least = MIB,
			.most = SIZE_MOST,
			.uses = DOOR,
			.help = "bytes that a client may send unanswered",
		},
	[REEF_SET_REDIS_OUTPUT_SOFT] =
		{
			.name = "redis-output-soft",
			.variable = "REEF_REDIS_OUTPUT_SOFT",
			.type = REEF_CONFIG_SIZE,
			.initial = "64M",
			.least = 64 * KIB,
			.most = SIZE_MOST,
			.uses = DOOR,
			.help = "unread answers at which a client waits",
		},
	[REEF_SET_REDIS_OUTPUT_MAX] =
		{
			.name = "redis-output-max",
			.variable = "REEF_REDIS_OUTPUT_MAX",
			.type = REEF_CONFIG_SIZE,
			.initial = "1G",
			.least = MIB,
			.most = SIZE_MOST,
			.uses = DOOR,
			.help = "unread answers at which a client is closed",
		},
	[REEF_SET_REDIS_MEMORY_MAX] =
		{
			.name = "redis-memory-max",
			.variable = "REEF_REDIS_MEMORY_MAX",
			.type = REEF_CONFIG_SIZE,
			.initial = "1G",
			.most = SIZE_MOST,
			.uses = DOOR,
			.help = "bytes of all its clients, 0: no limit",
		},
	[REEF_SET_HTTP] =
		{
			.name = "http",
			.variable = "REEF_HTTP",
			.type = REEF_CONFIG_TEXT,
			.value_name = "HOST:PORT",
			.check = settings_check_http,
			.uses = SERVERS,
			.help = "serve metrics and status there; nowhere",
		},
	[REEF_SET_SPIN] =
		{
			.name = "spin",
			.variable = "REEF_SPIN",
			.type = REEF_CONFIG_DURATION,
			.initial = "20us",
			.most = SECOND,
			.uses = ANYONE,
			.help = "how long to poll before sleeping",
		},
	[REEF_SET_SILENCE] =
		{
			.name = "silence",
			.variable = "REEF_SILENCE",
			.type = REEF_CONFIG_DURATION,
			.least = 10 * MS,
			.most = DAY,
			.uses = ANYONE,
			.help = "a peer silent for so long is lost; 3s, verbs "
				"1s",
		},
	[REEF_SET_UNREAD] =
		{
			.name = "unread",
			.variable = "REEF_UNREAD",
			.type = REEF_CONFIG_SIZE,
			.initial = "256M",
			.least = MIB,
			.most = SIZE_MOST,
			.uses = SERVERS,
			.help = "answers that may wait for who does not read",
		},
	[REEF_SET_LOG] =
		{
			.name = "log",
			.variable = "REEF_LOG",
			.type = REEF_CONFIG_CHOICE,
			.initial = "warning",
			.choices = log_words,
			.uses = ANYONE,
			.help = "how much is told on standard error",
		},
};

/* --- defaults that follow from others --- */

static int set_default(struct reef_config *config, uint32_t setting,
		       const char *text)
{
	return reef_config_set(config, setting, text, REEF_CONFIG_DEFAULT,
			       NULL);
}

/* Set a directory below the user's home. A client can do without one, if there
 * is no home. */
static int default_directory(struct reef_config *config, uint32_t setting,
			     const struct reef_config_input *input,
			     int (*find)(char *const *environment, char **out))
{
	char *path;
	int rc;

	if (reef_config_text(config, setting))
		return 0;
	rc = find(input->environment, &path);
	if (rc == -ENOENT && !(input->uses & SERVERS))
		return 0;
	if (rc == -ENOENT)
		return reef_config_refuse(config, setting,
					  "is not set, and this user has no "
					  "home directory");
	if (rc)
		return rc;
	rc = set_default(config, setting, path);
	free(path);
	return rc;
}

/* Sockets in the runtime directory need no address here (host.h). */
static int default_addresses(struct reef_config *config)
{
	int rc = set_default(config, REEF_SET_LISTEN,
			     "tcp:127.0.0.1:" STRING_OF(REEF_PORT));

	return rc ? rc
		  : set_default(config, REEF_SET_NODE_LISTEN,
				"tcp:127.0.0.1:" STRING_OF(REEF_NODE_PORT));
}

static int default_redis(struct reef_config *config)
{
	const char *run = reef_config_text(config, REEF_SET_RUN);
	char *text;
	int rc = set_default(config, REEF_SET_REDIS_LISTEN,
			     "127.0.0.1:" STRING_OF(REEF_REDIS_PORT));

	if (rc || !run)
		return rc;
	if (asprintf(&text, "%s/redis.sock", run) < 0)
		return -ENOMEM;
	rc = set_default(config, REEF_SET_REDIS_UNIX, text);
	free(text);
	return rc;
}

static int default_data_file(struct reef_config *config, uint32_t setting,
			     const char *name)
{
	const char *data = reef_config_text(config, REEF_SET_DATA);
	char *text;
	int rc;

	if (!data)
		return 0;
	if (asprintf(&text, "%s/%s", data, name) < 0)
		return -ENOMEM;
	rc = set_default(config, setting, text);
	free(text);
	return rc;
}

/* The host's name up to its first dot, without characters that are not allowed.
 */
static int default_name(struct reef_config *config)
{
	char text[NAME_MOST + 1] = "";
	size_t used = 0;

	if (gethostname(text, sizeof(text) - 1))
		text[0] = '\0';
	for (const char *at = text; *at && *at != '.'; at++) {
		char one[2] = {*at, '\0'};

		if (!settings_check_name(one))
			text[used++] = *at;
	}
	text[used] = '\0';
	return set_default(config, REEF_SET_NAME, used ? text : "node");
}

static bool is_set(const struct reef_config *config, uint32_t setting)
{
	return reef_config_source(config, setting) != REEF_CONFIG_DEFAULT;
}

/* Where only one of the two is set, the default of the other moves so that low
 * is not above high. */
static int default_pressure(struct reef_config *config)
{
	uint64_t total = (uint64_t)sysconf(_SC_PHYS_PAGES) *
			 (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t low = total / 32 / MIB * MIB, high = total / 16 / MIB * MIB;
	uint64_t given;
	char text[REEF_UNITS_TEXT_SIZE];
	int rc;

	if (is_set(config, REEF_SET_PRESSURE_LOW)) {
		given = reef_config_number(config, REEF_SET_PRESSURE_LOW);
		high = given > high ? given : high;
	}
	if (is_set(config, REEF_SET_PRESSURE_HIGH)) {
		given = reef_config_number(config, REEF_SET_PRESSURE_HIGH);
		low = given < low ? given : low;
	}
	rc = set_default(config, REEF_SET_PRESSURE_LOW,
			 reef_size_format(low, text));
	if (rc)
		return rc;
	return set_default(config, REEF_SET_PRESSURE_HIGH,
			   reef_size_format(high, text));
}

static int fill_defaults(struct reef_config *config,
			 const struct reef_config_input *input)
{
	int rc =
		default_directory(config, REEF_SET_DATA, input, reef_path_data);

	if (!rc)
		rc = default_directory(config, REEF_SET_RUN, input,
				       reef_path_runtime);
	if (!rc)
		rc = default_addresses(config);
	if (!rc)
		rc = default_redis(config);
	if (!rc)
		rc = default_data_file(config, REEF_SET_KEY_FILE, "pool.key");
	if (!rc)
		rc = default_data_file(config, REEF_SET_NODE_KEY, "node.key");
	if (!rc)
		rc = default_data_file(config, REEF_SET_REDIS_SAVE,
				       "redis.image");
	if (!rc)
		rc = default_name(config);
	return rc ? rc : default_pressure(config);
}

/* --- together --- */

static void read_redis(const struct reef_config *config,
		       struct reef_redis_settings *out)
{
	out->listen = reef_config_text(config, REEF_SET_REDIS_LISTEN);
	if (out->listen && strcmp(out->listen, "none") == 0)
		out->listen = NULL;
	out->listen_tls = reef_config_text(config, REEF_SET_REDIS_TLS);
	if (out->listen_tls && strcmp(out->listen_tls, "none") == 0)
		out->listen_tls = NULL;
	out->certificate = reef_config_text(config, REEF_SET_REDIS_CERT);
	out->key = reef_config_text(config, REEF_SET_REDIS_KEY);
	out->authorities = reef_config_text(config, REEF_SET_REDIS_CA);
	out->client_certs = (enum reef_client_certs)reef_config_number(
		config, REEF_SET_REDIS_CLIENT_CERTS);
	out->unix_path = reef_config_text(config, REEF_SET_REDIS_UNIX);
	out->save = reef_config_text(config, REEF_SET_REDIS_SAVE);
	out->space = reef_config_text(config, REEF_SET_REDIS_SPACE);
	out->copies =
		(uint8_t)reef_config_number(config, REEF_SET_REDIS_COPIES);
	out->password_file =
		reef_config_text(config, REEF_SET_REDIS_PASSWORD_FILE);
	out->databases =
		(uint32_t)reef_config_number(config, REEF_SET_REDIS_DATABASES);
	out->threads =
		(uint32_t)reef_config_number(config, REEF_SET_REDIS_THREADS);
	out->clients_max = (uint32_t)reef_config_number(
		config, REEF_SET_REDIS_CLIENTS_MAX);
	out->idle_ns = reef_config_number(config, REEF_SET_REDIS_IDLE);
	out->login_ns = reef_config_number(config, REEF_SET_REDIS_LOGIN);
	out->keepalive_ns =
		reef_config_number(config, REEF_SET_REDIS_KEEPALIVE);
	out->query_max = reef_config_number(config, REEF_SET_REDIS_QUERY_MAX);
	out->output_soft =
		reef_config_number(config, REEF_SET_REDIS_OUTPUT_SOFT);
	out->output_max = reef_config_number(config, REEF_SET_REDIS_OUTPUT_MAX);
	out->memory_max = reef_config_number(config, REEF_SET_REDIS_MEMORY_MAX);
}

static uint32_t read_keep(const struct reef_config *config)
{
	uint32_t count = reef_config_count(config, REEF_SET_KEEP), keep = 0;
	const char *word;

	for (uint32_t i = 0; i < count; i++) {
		word = reef_config_item(config, REEF_SET_KEEP, i);
		if (!strcmp(word, "holder"))
			keep |= REEF_KEEP_HOLDER;
		if (!strcmp(word, "image"))
			keep |= REEF_KEEP_IMAGE;
	}
	return keep;
}

static void read_settings(struct reef_settings *out)
{
	const struct reef_config *config = out->config;

	out->listen = reef_config_text(config, REEF_SET_LISTEN);
	out->node_listen = reef_config_text(config, REEF_SET_NODE_LISTEN);
	out->broker = reef_config_text(config, REEF_SET_BROKER);
	out->data = reef_config_text(config, REEF_SET_DATA);
	out->run = reef_config_text(config, REEF_SET_RUN);
	out->key_file = reef_config_text(config, REEF_SET_KEY_FILE);
	out->node_key = reef_config_text(config, REEF_SET_NODE_KEY);
	out->pool = reef_config_text(config, REEF_SET_POOL);
	out->credential = reef_config_text(config, REEF_SET_CREDENTIAL);
	out->fabrics = reef_config_text(config, REEF_SET_FABRICS);
	out->tls = reef_config_text(config, REEF_SET_TLS);
	out->name = reef_config_text(config, REEF_SET_NAME);
	out->lend = reef_config_number(config, REEF_SET_LEND);
	out->extent_size = reef_config_number(config, REEF_SET_EXTENT_SIZE);
	out->huge_pages = (enum reef_huge_pages)reef_config_number(
		config, REEF_SET_HUGE_PAGES);
	out->keep = read_keep(config);
	out->keep_for_ns = reef_config_number(config, REEF_SET_KEEP_FOR);
	out->save_every_ns = reef_config_number(config, REEF_SET_SAVE_EVERY);
	out->ttl_ns = reef_config_number(config, REEF_SET_TTL);
	out->node_ttl_ns = reef_config_number(config, REEF_SET_NODE_TTL);
	out->lease_kills = reef_config_number(config, REEF_SET_LEASE_KILLS);
	out->revoke_notice_ns =
		reef_config_number(config, REEF_SET_REVOKE_NOTICE);
	for (uint32_t i = 0; i < REEF_LIMIT_COUNT; i++)
		out->user_limits[i] =
			reef_config_number(config, REEF_SET_USER_SESSIONS + i);
	out->pressure_low = reef_config_number(config, REEF_SET_PRESSURE_LOW);
	out->pressure_high = reef_config_number(config, REEF_SET_PRESSURE_HIGH);
	out->http = reef_config_text(config, REEF_SET_HTTP);
	out->with_redis = reef_config_number(config, REEF_SET_REDIS);
	read_redis(config, &out->redis);
	out->spin_ns = reef_config_number(config, REEF_SET_SPIN);
	out->silence_ns = reef_config_number(config, REEF_SET_SILENCE);
	out->unread = reef_config_number(config, REEF_SET_UNREAD);
	out->log =
		(enum reef_log_level)reef_config_number(config, REEF_SET_LOG);
}

/* Check settings that are each valid, but may not be so together. */
static int check_together(const struct reef_settings *settings, uint32_t uses)
{
	struct reef_config *config = settings->config;

	if (settings->extent_size % MIB)
		return reef_config_refuse(config, REEF_SET_EXTENT_SIZE,
					  "is not whole MiB");
	/* A node by itself does not know the broker's extents. */
	if ((uses & SERVERS) == SERVERS &&
	    settings->lend < settings->extent_size)
		return reef_config_refuse(
			config, REEF_SET_LEND,
			"is less than one extent (extent-size = %s)",
			reef_config_text(config, REEF_SET_EXTENT_SIZE));
	if (settings->keep &&
	    strstr(reef_config_text(config, REEF_SET_KEEP), "none"))
		return reef_config_refuse(config, REEF_SET_KEEP,
					  "has none beside something");
	if (settings->run &&
	    strlen(settings->run) + sizeof("/broker.sock") >
		    sizeof(((struct sockaddr_un *)0)->sun_path))
		return reef_config_refuse(config, REEF_SET_RUN,
					  "is too long for a socket");
	if (settings->redis.unix_path &&
	    strlen(settings->redis.unix_path) + 1 >
		    sizeof(((struct sockaddr_un *)0)->sun_path))
		return reef_config_refuse(config, REEF_SET_REDIS_UNIX,
					  "is too long for a socket");
	if (settings->redis.output_soft > settings->redis.output_max)
		return reef_config_refuse(
			config, REEF_SET_REDIS_OUTPUT_SOFT,
			"is more than redis-output-max = %s",
			reef_config_text(config, REEF_SET_REDIS_OUTPUT_MAX));
	if (settings->pressure_low > settings->pressure_high)
		return reef_config_refuse(
			config, REEF_SET_PRESSURE_LOW,
			"is more than pressure-high = %s",
			reef_config_text(config, REEF_SET_PRESSURE_HIGH));
	return 0;
}

int reef_settings_load(const struct reef_config_input *input,
		       struct reef_settings *out)
{
	int rc;

	*out = (struct reef_settings){0};
	rc = reef_config_create(table, REEF_SET_COUNT, &out->config);
	if (rc)
		return rc;
	rc = reef_config_load(out->config, input);
	if (rc || reef_config_wants_help(out->config))
		return rc;
	rc = fill_defaults(out->config, input);
	if (rc)
		return rc;
	read_settings(out);
	return check_together(out, input->uses);
}

void reef_settings_fini(struct reef_settings *settings)
{
	reef_config_destroy(settings->config);
	*settings = (struct reef_settings){0};
}
