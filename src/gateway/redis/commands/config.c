/* config.c - CONFIG: settings by the names that Redis has for them.
 *
 * (1) GET tells what is true of the door. What it has no use for, but clients
 *     ask, is there as a text that cannot be changed.
 * (2) SET looks at all that it was given before it changes anything. What
 *     cannot be changed may be set to what it is.
 * (3) What is secret is not told (requirepass). */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/docs/help.h"
#include "gateway/redis/protocol/glob.h"
#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SECOND_NS UINT64_C(1000000000)
#define MIB (INT64_C(1) << 20)
#define TEXT_SIZE 512
/* How long a client may be over the soft limit (door.h). */
#define SOFT_SECONDS 60

enum kind { INTEGER, MEMORY, OUTPUT_LIMIT, FIXED, SECRET, TLS };

struct parameter {
	const char *name;
	enum kind kind;
	int64_t least, most;
	/* FIXED: its text; NULL: print does it. */
	const char *text;
	void (*print)(const struct redis_thread *thread, char text[TEXT_SIZE]);
	void (*set)(struct redis_thread *thread, int64_t value);
};

/* --- what is what --- */

static struct redis_door_config *config_of(const struct redis_thread *thread)
{
	return redis_door_config(thread->door);
}

static uint64_t load_relaxed(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static void store_relaxed(_Atomic uint64_t *value, uint64_t what)
{
	atomic_store_explicit(value, what, memory_order_relaxed);
}

static void print_number(char text[TEXT_SIZE], uint64_t value)
{
	snprintf(text, TEXT_SIZE, "%llu", (unsigned long long)value);
}

static void print_maxclients(const struct redis_thread *thread,
			     char text[TEXT_SIZE])
{
	print_number(text, atomic_load_explicit(&config_of(thread)->clients_max,
						memory_order_relaxed));
}

static void set_maxclients(struct redis_thread *thread, int64_t value)
{
	atomic_store_explicit(&config_of(thread)->clients_max, (uint32_t)value,
			      memory_order_relaxed);
}

static void print_timeout(const struct redis_thread *thread,
			  char text[TEXT_SIZE])
{
	print_number(text,
		     load_relaxed(&config_of(thread)->idle_ns) / SECOND_NS);
}

static void set_timeout(struct redis_thread *thread, int64_t value)
{
	store_relaxed(&config_of(thread)->idle_ns, (uint64_t)value * SECOND_NS);
}

/* 0 is "none" to Redis, and the default to the door. */
static void print_keepalive(const struct redis_thread *thread,
			    char text[TEXT_SIZE])
{
	uint64_t ns = load_relaxed(&config_of(thread)->keepalive_ns);

	print_number(text, ns == UINT64_MAX ? 0 : ns / SECOND_NS);
}

static void set_keepalive(struct redis_thread *thread, int64_t value)
{
	store_relaxed(&config_of(thread)->keepalive_ns,
		      value ? (uint64_t)value * SECOND_NS : UINT64_MAX);
}

static void print_bulk_max(const struct redis_thread *thread,
			   char text[TEXT_SIZE])
{
	print_number(text, load_relaxed(&config_of(thread)->bulk_max));
}

static void set_bulk_max(struct redis_thread *thread, int64_t value)
{
	store_relaxed(&config_of(thread)->bulk_max, (uint64_t)value);
}

static void print_query_max(const struct redis_thread *thread,
			    char text[TEXT_SIZE])
{
	print_number(text, load_relaxed(&config_of(thread)->query_max));
}

static void set_query_max(struct redis_thread *thread, int64_t value)
{
	store_relaxed(&config_of(thread)->query_max, (uint64_t)value);
}

static void print_memory_max(const struct redis_thread *thread,
			     char text[TEXT_SIZE])
{
	print_number(text, load_relaxed(&config_of(thread)->memory_max));
}

static void set_memory_max(struct redis_thread *thread, int64_t value)
{
	store_relaxed(&config_of(thread)->memory_max, (uint64_t)value);
}

static void print_databases(const struct redis_thread *thread,
			    char text[TEXT_SIZE])
{
	print_number(text, redis_databases(thread));
}

static void print_port(const struct redis_thread *thread, char text[TEXT_SIZE])
{
	struct redis_door_info info;

	redis_door_info(thread->door, &info);
	print_number(text, info.port);
}

static void print_threads(const struct redis_thread *thread,
			  char text[TEXT_SIZE])
{
	struct redis_door_info info;

	redis_door_info(thread->door, &info);
	print_number(text, info.threads);
}

static void print_unix(const struct redis_thread *thread, char text[TEXT_SIZE])
{
	const char *path = redis_door_options(thread->door)->unix_path;

	snprintf(text, TEXT_SIZE, "%s", path ? path : "");
}

static void print_tls_port(const struct redis_thread *thread,
			   char text[TEXT_SIZE])
{
	struct redis_door_info info;

	redis_door_info(thread->door, &info);
	print_number(text, info.tls_port);
}

static void print_tls_path(const struct redis_thread *thread, uint32_t which,
			   char text[TEXT_SIZE])
{
	char paths[3][REDIS_PATH_SIZE];

	redis_door_tls(thread->door, paths);
	snprintf(text, TEXT_SIZE, "%s", paths[which]);
}

static void print_tls_certificate(const struct redis_thread *thread,
				  char text[TEXT_SIZE])
{
	print_tls_path(thread, 0, text);
}

static void print_tls_key(const struct redis_thread *thread,
			  char text[TEXT_SIZE])
{
	print_tls_path(thread, 1, text);
}

static void print_tls_authorities(const struct redis_thread *thread,
				  char text[TEXT_SIZE])
{
	print_tls_path(thread, 2, text);
}

/* As Redis calls them. */
static void print_tls_clients(const struct redis_thread *thread,
			      char text[TEXT_SIZE])
{
	static const char *const words[] = {"no", "no", "optional", "yes"};
	char paths[3][REDIS_PATH_SIZE];

	snprintf(text, TEXT_SIZE, "%s",
		 words[redis_door_tls(thread->door, paths)]);
}

/* As Redis has it for three kinds of clients, of which there is one here. */
static void print_output(const struct redis_thread *thread,
			 char text[TEXT_SIZE])
{
	uint64_t hard = load_relaxed(&config_of(thread)->output_max);
	uint64_t soft = load_relaxed(&config_of(thread)->output_soft);

	snprintf(text, TEXT_SIZE,
		 "normal %llu %llu %d slave 0 0 0 pubsub 0 0 0",
		 hard == UINT64_MAX ? 0ULL : (unsigned long long)hard,
		 soft == UINT64_MAX ? 0ULL : (unsigned long long)soft,
		 SOFT_SECONDS);
}

static const struct parameter parameters[] = {
	{"appendonly", FIXED, 0, 0, "no", NULL, NULL},
	{"client-output-buffer-limit", OUTPUT_LIMIT, 0, 0, NULL, print_output,
	 NULL},
	{"client-query-buffer-limit", MEMORY, MIB, INT64_MAX, NULL,
	 print_query_max, set_query_max},
	{"cluster-enabled", FIXED, 0, 0, "no", NULL, NULL},
	{"databases", FIXED, 0, 0, NULL, print_databases, NULL},
	{"io-threads", FIXED, 0, 0, NULL, print_threads, NULL},
	{"maxclients", INTEGER, 1, UINT32_MAX, NULL, print_maxclients,
	 set_maxclients},
	{"maxmemory", FIXED, 0, 0, "0", NULL, NULL},
	{"maxmemory-clients", MEMORY, 0, INT64_MAX, NULL, print_memory_max,
	 set_memory_max},
	{"maxmemory-policy", FIXED, 0, 0, "noeviction", NULL, NULL},
	{"notify-keyspace-events", FIXED, 0, 0, "", NULL, NULL},
	{"port", FIXED, 0, 0, NULL, print_port, NULL},
	{"proto-max-bulk-len", MEMORY, MIB, INT64_MAX, NULL, print_bulk_max,
	 set_bulk_max},
	{"protected-mode", FIXED, 0, 0, "yes", NULL, NULL},
	{"requirepass", SECRET, 0, 0, "", NULL, NULL},
	{"save", FIXED, 0, 0, "", NULL, NULL},
	{"tcp-keepalive", INTEGER, 0, INT_MAX, NULL, print_keepalive,
	 set_keepalive},
	{"timeout", INTEGER, 0, INT_MAX, NULL, print_timeout, set_timeout},
	{"tls-auth-clients", TLS, 0, 0, NULL, print_tls_clients, NULL},
	{"tls-ca-cert-file", TLS, 0, 0, NULL, print_tls_authorities, NULL},
	{"tls-cert-file", TLS, 0, 0, NULL, print_tls_certificate, NULL},
	{"tls-key-file", TLS, 0, 0, NULL, print_tls_key, NULL},
	{"tls-port", FIXED, 0, 0, NULL, print_tls_port, NULL},
	{"unixsocket", FIXED, 0, 0, NULL, print_unix, NULL},
};
#define PARAMETERS (sizeof(parameters) / sizeof(parameters[0]))

static void print_parameter(const struct redis_thread *thread,
			    const struct parameter *parameter,
			    char text[TEXT_SIZE])
{
	if (parameter->print)
		parameter->print(thread, text);
	else
		snprintf(text, TEXT_SIZE, "%s", parameter->text);
}

/* --- GET --- */

static bool is_pattern(const struct redis_bytes *bytes)
{
	size_t i;

	for (i = 0; i < bytes->size; i++)
		if (bytes->bytes[i] == '*' || bytes->bytes[i] == '?' ||
		    bytes->bytes[i] == '[')
			return true;
	return false;
}

/* The argument that asks for a parameter first; NULL: none does. */
static const struct redis_bytes *
argument_asking_for(const struct redis_request *request, const char *name)
{
	const struct redis_bytes *argument = &request->argv[2];

	for (; argument < request->argv + request->argc; argument++)
		if (is_pattern(argument)
			    ? redis_glob(argument->bytes, argument->size, name,
					 strlen(name), true)
			    : redis_bytes_is(argument, name))
			return argument;
	return NULL;
}

/* A name that was given is told as it was given, one that a pattern found as
 * the table has it. */
static void run_get(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	const struct redis_bytes *argument;
	char text[TEXT_SIZE];
	uint64_t count = 0;
	size_t i;

	for (i = 0; i < PARAMETERS; i++) {
		argument = argument_asking_for(request, parameters[i].name);
		if (!argument)
			continue;
		if (is_pattern(argument))
			redis_reply_text(&client->reply, parameters[i].name);
		else
			redis_reply_bulk(&client->reply, argument->bytes,
					 argument->size);
		print_parameter(thread, &parameters[i], text);
		redis_reply_text(&client->reply, text);
		count++;
	}
	redis_reply_wrap(&client->reply, mark, '%', count);
}

/* --- SET --- */

struct change {
	const struct parameter *parameter;
	int64_t value;
	struct redis_bytes text; /* a SECRET, or of TLS */
	uint64_t output_hard, output_soft;
};

/* Parse digits and a unit as Redis has them: k is 1,000, kb is 1,024. */
static bool parse_memory(const struct redis_bytes *bytes, int64_t *out)
{
	static const struct {
		const char *name;
		int64_t size;
	} units[] = {
		{"", 1},	   {"b", 1},	    {"k", 1000},
		{"kb", 1 << 10},   {"m", 1000000},  {"mb", 1 << 20},
		{"g", 1000000000}, {"gb", 1 << 30},
	};
	struct redis_bytes unit = *bytes;
	int64_t number = 0;
	size_t i;

	while (unit.size && *unit.bytes >= '0' && *unit.bytes <= '9') {
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, *unit.bytes - '0', &number))
			return false;
		unit.bytes++;
		unit.size--;
	}
	if (unit.size == bytes->size)
		return false;
	for (i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (redis_bytes_is(&unit, units[i].name))
			return !__builtin_mul_overflow(number, units[i].size,
						       out);
	return false;
}

static bool next_word(struct redis_bytes *rest, struct redis_bytes *word)
{
	while (rest->size && *rest->bytes == ' ') {
		rest->bytes++;
		rest->size--;
	}
	word->bytes = rest->bytes;
	word->size = 0;
	while (rest->size && *rest->bytes != ' ') {
		rest->bytes++;
		rest->size--;
		word->size++;
	}
	return word->size != 0;
}

/* Parse groups of: class hard soft seconds. NULL, or what is wrong. */
static const char *parse_output(const struct redis_bytes *value,
				struct change *change)
{
	struct redis_bytes rest = *value, class, hard, soft, seconds;
	int64_t hard_value, soft_value, seconds_value;
	bool is_normal;

	while (next_word(&rest, &class)) {
		is_normal = redis_bytes_is(&class, "normal");
		if (!next_word(&rest, &hard) || !next_word(&rest, &soft) ||
		    !next_word(&rest, &seconds))
			return "Wrong number of arguments in buffer limit "
			       "configuration.";
		if (!is_normal && !redis_bytes_is(&class, "slave") &&
		    !redis_bytes_is(&class, "replica") &&
		    !redis_bytes_is(&class, "pubsub"))
			return "Invalid client class specified in buffer limit "
			       "configuration.";
		if (!parse_memory(&hard, &hard_value) ||
		    !parse_memory(&soft, &soft_value) ||
		    !redis_integer_parse(seconds.bytes, seconds.size,
					 &seconds_value) ||
		    seconds_value < 0)
			return "Error in hard, soft or soft_seconds setting in "
			       "buffer limit configuration.";
		if (!is_normal)
			continue;
		if (soft_value && seconds_value != SOFT_SECONDS)
			return "here the soft limit holds for 60 seconds";
		change->output_hard =
			hard_value ? (uint64_t)hard_value : UINT64_MAX;
		change->output_soft =
			soft_value ? (uint64_t)soft_value : UINT64_MAX;
	}
	return NULL;
}

/* Parse the value that a parameter is to have. NULL, or what is wrong with
 * it. */
static const char *parse_value(const struct redis_thread *thread,
			       const struct redis_bytes *value,
			       struct change *change, char error[TEXT_SIZE])
{
	const struct parameter *parameter = change->parameter;

	switch (parameter->kind) {
	case OUTPUT_LIMIT:
		change->output_hard =
			load_relaxed(&config_of(thread)->output_max);
		change->output_soft =
			load_relaxed(&config_of(thread)->output_soft);
		return parse_output(value, change);
	case SECRET:
	case TLS:
		change->text = *value;
		return NULL;
	case FIXED:
		print_parameter(thread, parameter, error);
		return strlen(error) == value->size &&
				       !strncasecmp(error, value->bytes,
						    value->size)
			       ? NULL
			       : "can't set immutable config";
	case MEMORY:
		if (!parse_memory(value, &change->value))
			return "argument must be a memory value";
		break;
	case INTEGER:
		if (!redis_integer_parse(value->bytes, value->size,
					 &change->value))
			return "argument couldn't be parsed into an integer";
	}
	if (change->value >= parameter->least &&
	    change->value <= parameter->most)
		return NULL;
	snprintf(error, TEXT_SIZE,
		 "argument must be between %lld and %lld inclusive",
		 (long long)parameter->least, (long long)parameter->most);
	return error;
}

static const struct parameter *find_parameter(const struct redis_bytes *name)
{
	size_t i;

	for (i = 0; i < PARAMETERS; i++)
		if (redis_bytes_is(name, parameters[i].name))
			return &parameters[i];
	return NULL;
}

static void apply_change(struct redis_thread *thread,
			 const struct change *change)
{
	if (change->parameter->set)
		change->parameter->set(thread, change->value);
	if (change->parameter->kind != OUTPUT_LIMIT)
		return;
	store_relaxed(&config_of(thread)->output_max, change->output_hard);
	store_relaxed(&config_of(thread)->output_soft, change->output_soft);
}

/* Change a text, which may fail. NULL, or why it did. */
static const char *apply_text(struct redis_thread *thread,
			      const struct change *change)
{
	int rc;

	if (change->parameter->kind != SECRET)
		return NULL;
	rc = redis_door_set_password(thread->door, change->text.bytes,
				     change->text.size);
	if (rc == -EFBIG)
		return "a password has 511 bytes at the most";
	if (rc == -EACCES)
		return "others than this machine reach the door: it needs a "
		       "password";
	return rc ? "out of memory" : NULL;
}

/* Put what is to be changed of TLS into options; the texts are in `paths`.
 * False: it is none. */
static bool fill_tls(const struct change *change,
		     struct redis_tls_options *options,
		     char paths[3][REDIS_PATH_SIZE])
{
	const char *name = change->parameter->name;
	const struct redis_bytes *text = &change->text;
	uint32_t which = !strcmp(name, "tls-cert-file")	 ? 0
			 : !strcmp(name, "tls-key-file") ? 1
							 : 2;

	if (!strcmp(name, "tls-auth-clients")) {
		if (redis_bytes_is(text, "no"))
			options->clients = REDIS_TLS_CLIENTS_NO;
		else if (redis_bytes_is(text, "optional"))
			options->clients = REDIS_TLS_CLIENTS_OPTIONAL;
		else if (redis_bytes_is(text, "yes"))
			options->clients = REDIS_TLS_CLIENTS_REQUIRED;
		return options->clients != REDIS_TLS_CLIENTS_AUTO;
	}
	if (!text->bytes || text->size >= REDIS_PATH_SIZE ||
	    memchr(text->bytes, 0, text->size))
		return false;
	memcpy(paths[which], text->bytes, text->size);
	paths[which][text->size] = 0;
	if (which == 0)
		options->certificate = paths[0];
	else if (which == 1)
		options->key = paths[1];
	else
		options->authorities = paths[2];
	return true;
}

/* Change TLS as a whole, if any of it is to be changed. NULL, or why it
 * failed. */
static const char *apply_tls(struct redis_thread *thread,
			     const struct change *changes, uint32_t count)
{
	struct redis_tls_options options = {0};
	char paths[3][REDIS_PATH_SIZE];
	bool is_any = false;
	uint32_t i;
	int rc;

	for (i = 0; i < count; i++) {
		if (changes[i].parameter->kind != TLS)
			continue;
		is_any = true;
		if (!fill_tls(&changes[i], &options, paths))
			return "Invalid TLS setting";
	}
	rc = is_any ? redis_door_set_tls(thread->door, &options) : 0;
	if (rc == -EOPNOTSUPP)
		return "the door does not listen for TLS";
	if (rc == -EACCES)
		return "others than this machine reach the door: it needs a "
		       "password, or certificates of clients";
	return rc ? "Unable to update TLS configuration. Check server logs."
		  : NULL;
}

static void reply_fault(struct redis_client *client,
			const struct redis_bytes *name, const char *fault)
{
	redis_reply_errorf(&client->reply,
			   "ERR CONFIG SET failed (possibly related to "
			   "argument '%.*s') - %s",
			   redis_shown(name, TEXT_SIZE), name->bytes, fault);
}

/* Parse one pair of CONFIG SET into changes[count]. False: an error was
 * answered. */
static bool parse_change(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_bytes *pair, struct change *changes,
			 uint32_t count)
{
	struct change *change = &changes[count];
	const struct redis_bytes name = {change->parameter->name,
					 strlen(change->parameter->name)};
	char error[TEXT_SIZE];
	const char *fault;
	uint32_t i;

	for (i = 0; i < count; i++)
		if (changes[i].parameter == change->parameter) {
			reply_fault(client, pair, "duplicate parameter");
			return false;
		}
	fault = parse_value(thread, pair + 1, change, error);
	if (fault)
		/* As Redis does: it tells its own name of a parameter whose
		 * value it has parsed, and otherwise the name as it was
		 * given. */
		reply_fault(client,
			    change->parameter->kind == FIXED ? pair : &name,
			    fault);
	return !fault;
}

static void run_set(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	const struct redis_bytes *argv = request->argv;
	struct change changes[PARAMETERS + 1] = {0};
	const char *fault;
	uint32_t count = 0, i;

	if (request->argc % 2) {
		redis_reply_syntax(client);
		return;
	}
	for (i = 2; i < request->argc; i += 2)
		if (!find_parameter(&argv[i])) {
			redis_reply_errorf(&client->reply,
					   "ERR Unknown option or number of "
					   "arguments for CONFIG SET - '%.*s'",
					   (int)argv[i].size, argv[i].bytes);
			return;
		}
	for (i = 2; i < request->argc; i += 2, count++) {
		changes[count].parameter = find_parameter(&argv[i]);
		if (!parse_change(thread, client, &argv[i], changes, count))
			return;
	}
	/* Those that may fail come first: then nothing was changed. */
	fault = apply_tls(thread, changes, count);
	if (fault) {
		reply_fault(client, &argv[2], fault);
		return;
	}
	for (i = 0; i < count; i++) {
		fault = apply_text(thread, &changes[i]);
		if (fault) {
			reply_fault(client, &argv[2 + 2 * i], fault);
			return;
		}
	}
	for (i = 0; i < count; i++)
		apply_change(thread, &changes[i]);
	redis_reply_status(&client->reply, "OK");
}

/* --- RESETSTAT, HELP --- */

static int reset_thread_stats(void *context, struct redis_thread *thread)
{
	(void)context;
	thread->stats = (struct redis_thread_stats){0};
	thread->error_names = 0;
	memset(thread->error_counts, 0, sizeof(thread->error_counts));
	return 0;
}

static void run_resetstat(struct redis_thread *thread,
			  struct redis_client *client,
			  const struct redis_request *request)
{
	(void)request;
	redis_door_each(thread->door, thread, reset_thread_stats, NULL);
	redis_reply_status(&client->reply, "OK");
}

static void run_help(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	static const char *const lines[] = {
		"GET <pattern>",
		"    The settings whose names match, and their values.",
		"SET <directive> <value>",
		"    Change settings, until the door ends.",
		"RESETSTAT",
		"    Begin to count anew what INFO tells.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

#define FLAGS (REDIS_ADMIN | REDIS_NOSCRIPT | REDIS_LOADING | REDIS_STALE)

static struct redis_command subcommands[] = {
	REDIS_COMMAND("get", -3, FLAGS, 0, 0, 0, run_get),
	REDIS_COMMAND("help", 2, REDIS_LOADING | REDIS_STALE, 0, 0, 0,
		      run_help),
	REDIS_COMMAND("resetstat", 2, FLAGS, 0, 0, 0, run_resetstat),
	REDIS_COMMAND("set", -4, FLAGS, 0, 0, 0, run_set),
	{0},
};

struct redis_command redis_config_commands[] = {
	{.name = "config", .arity = -2, .subcommands = subcommands},
	{0},
};
