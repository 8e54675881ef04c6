/* object.c - OBJECT and MEMORY: how a value is kept. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/docs/help.h"
#include "gateway/redis/protocol/number.h"
#include "kv/figures.h"

#include <errno.h>
#include <limits.h>

/* Redis keeps strings of up to so many bytes together with their header
 * ("embstr"). */
#define EMBEDDED_MAX 44u
/* Redis has one shared copy of each number below this. */
#define SHARED_BELOW 10000

/* Read the key of the request. False: it is not there, or something failed, and
 * that was answered. */
static bool peek_or_null(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	int rc = redis_peek(thread, client, &request->argv[2]);

	if (rc == -ENOENT)
		redis_reply_null(&client->reply);
	return rc == 0;
}

static void run_encoding(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	const struct reef_map_value *value = &thread->value;
	int64_t number;

	if (!peek_or_null(thread, client, request))
		return;
	if (redis_integer_parse(value->bytes, value->size, &number))
		redis_reply_text(&client->reply, "int");
	else
		redis_reply_text(&client->reply, value->size <= EMBEDDED_MAX
							 ? "embstr"
							 : "raw");
	redis_value_trim(thread);
}

static void run_refcount(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	int64_t number;
	bool is_shared;

	if (!peek_or_null(thread, client, request))
		return;
	is_shared = redis_integer_parse(thread->value.bytes, thread->value.size,
					&number) &&
		    number >= 0 && number < SHARED_BELOW;
	redis_reply_integer(&client->reply, is_shared ? INT_MAX : 1);
	redis_value_trim(thread);
}

/* Find out whether the database evicts by LFU. False: an error was answered. */
static bool is_lfu(struct redis_thread *thread, struct redis_client *client,
		   bool *out)
{
	struct reef_map_options limits;
	struct reef_map *map;

	if (!redis_map(thread, client, &map))
		return false;
	reef_map_limits(map, &limits);
	*out = limits.eviction == REEF_MAP_LFU;
	return true;
}

static void reply_use(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request, bool want_frequency)
{
	uint64_t idle_ms;
	uint32_t frequency;
	bool has_frequency;

	if (!peek_or_null(thread, client, request))
		return;
	idle_ms = thread->value.idle_ms;
	frequency = thread->value.frequency;
	redis_value_trim(thread);
	if (!is_lfu(thread, client, &has_frequency))
		return;
	if (want_frequency && has_frequency)
		redis_reply_integer(&client->reply, frequency);
	else if (!want_frequency && !has_frequency)
		redis_reply_integer(&client->reply, (int64_t)(idle_ms / 1000));
	else
		redis_reply_errorf(
			&client->reply,
			"ERR An LFU maxmemory policy is %s. Please note that "
			"when switching between policies at runtime LRU and "
			"LFU data will take some time to adjust.",
			has_frequency
				? "selected, idle time not tracked"
				: "not selected, access frequency not tracked");
}

static void run_freq(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	reply_use(thread, client, request, true);
}

static void run_idletime(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	reply_use(thread, client, request, false);
}

static void run_object_help(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	static const char *const lines[] = {
		"ENCODING <key>",
		"    How Redis would keep the value: int, embstr or raw.",
		"FREQ <key>",
		"    How often the key was used lately, logarithmic.",
		"IDLETIME <key>",
		"    Seconds since the key was last used, roughly.",
		"REFCOUNT <key>",
		"    How many Redis would count that refer to the value.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

/* --- MEMORY --- */

static void run_usage(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	int64_t samples;
	uint32_t i;
	int rc;

	for (i = 3; i < request->argc; i += 2) {
		if (!redis_bytes_is(&request->argv[i], "samples") ||
		    i + 1 == request->argc) {
			redis_reply_syntax(client);
			return;
		}
		if (!redis_take_integer(client, &request->argv[i + 1],
					&samples))
			return;
		if (samples < 0) {
			redis_reply_syntax(client);
			return;
		}
	}
	rc = redis_peek_head(thread, client, &request->argv[2]);
	if (rc == -ENOENT)
		redis_reply_null(&client->reply);
	if (rc)
		return;
	redis_reply_integer(&client->reply,
			    (int64_t)map_entry_size(request->argv[2].size,
						    thread->value.size));
}

static void run_memory_help(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	static const char *const lines[] = {
		"USAGE <key> [SAMPLES <count>]",
		"    Bytes of the pool that the key and its value take.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

#define HELP_FLAGS (REDIS_LOADING | REDIS_STALE)

static struct redis_command objects[] = {
	REDIS_COMMAND("encoding", 3, REDIS_READONLY, 2, 2, 1, run_encoding),
	REDIS_COMMAND("freq", 3, REDIS_READONLY, 2, 2, 1, run_freq),
	REDIS_COMMAND("help", 2, HELP_FLAGS, 0, 0, 0, run_object_help),
	REDIS_COMMAND("idletime", 3, REDIS_READONLY, 2, 2, 1, run_idletime),
	REDIS_COMMAND("refcount", 3, REDIS_READONLY, 2, 2, 1, run_refcount),
	{0},
};

static struct redis_command memories[] = {
	REDIS_COMMAND("help", 2, HELP_FLAGS, 0, 0, 0, run_memory_help),
	REDIS_COMMAND("usage", -3, REDIS_READONLY, 2, 2, 1, run_usage),
	{0},
};

struct redis_command redis_object_commands[] = {
	{.name = "object", .arity = -2, .subcommands = objects},
	{.name = "memory", .arity = -2, .subcommands = memories},
	{0},
};
