/* peer_redis_map.c - keys in a Redis server, for `reef bench map`.
 *
 * The server is on a unix socket and nothing else, keeps nothing on disk, and
 * ends with this process. The client is hiredis', synchronous; commands are
 * formatted once, and only their key and value change.
 *
 * Thread: owner. */
#include "map_work.h"
#include "redis_server.h"

#define LOAD 512u /* commands at once */

#define GET_HEAD "*2\r\n$3\r\nGET\r\n$16\r\n"
#define GET GET_HEAD "................\r\n"
#define GET_KEY (sizeof(GET_HEAD) - 1)
#define SET_HEAD "*3\r\n$3\r\nSET\r\n$16\r\n"
#define SET                                                                    \
	SET_HEAD                                                               \
	"................\r\n$64\r\n"                                          \
	"................................................................\r\n"
#define SET_KEY (sizeof(SET_HEAD) - 1)
#define SET_VALUE (SET_KEY + MAP_KEY + sizeof("\r\n$64\r\n") - 1)

struct theirs {
	struct map_state state;
	char get[sizeof(GET)], set[sizeof(SET)];
	char load[LOAD * (sizeof(SET) - 1)];
	uint32_t loading;
	double bytes;
};

static struct theirs theirs;

/* --- operations --- */

static int send_command(const char *text, size_t size, redisReply **reply)
{
	if (redisAppendFormattedCommand(redis_client, text, size) != REDIS_OK ||
	    redisGetReply(redis_client, (void **)reply) != REDIS_OK)
		return -EPIPE;
	return 0;
}

workload_inline int theirs_get(void *context, const char *key, uint64_t *value)
{
	redisReply *reply;
	int rc;

	(void)context;
	memcpy(theirs.get + GET_KEY, key, MAP_KEY);
	rc = send_command(theirs.get, sizeof(GET) - 1, &reply);
	if (rc)
		return rc;
	if (reply->type == REDIS_REPLY_STRING && reply->len == MAP_VALUE)
		memcpy(value, reply->str, MAP_VALUE);
	else
		rc = -EILSEQ;
	freeReplyObject(reply);
	return rc;
}

workload_inline int theirs_put(void *context, const char *key,
			       const uint64_t *value)
{
	redisReply *reply;
	int rc;

	(void)context;
	memcpy(theirs.set + SET_KEY, key, MAP_KEY);
	memcpy(theirs.set + SET_VALUE, value, MAP_VALUE);
	rc = send_command(theirs.set, sizeof(SET) - 1, &reply);
	if (rc)
		return rc;
	if (reply->type != REDIS_REPLY_STATUS)
		rc = -EPROTO;
	freeReplyObject(reply);
	return rc;
}

static const struct map_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.clock = CLOCK_MONOTONIC,
};

/* --- loading --- */

static int load_flush(void)
{
	redisReply *reply;
	bool bad = false;

	if (redisAppendFormattedCommand(redis_client, theirs.load,
					theirs.loading * (sizeof(SET) - 1)) !=
	    REDIS_OK)
		return -ENOMEM;
	for (; theirs.loading; theirs.loading--) {
		if (redisGetReply(redis_client, (void **)&reply) != REDIS_OK)
			return -EPIPE;
		bad |= reply->type != REDIS_REPLY_STATUS;
		freeReplyObject(reply);
	}
	return bad ? -EPROTO : 0;
}

static int load_add(void *context, const char *key, const uint64_t *value)
{
	char *at = theirs.load + theirs.loading * (sizeof(SET) - 1);

	(void)context;
	memcpy(at, SET, sizeof(SET) - 1);
	memcpy(at + SET_KEY, key, MAP_KEY);
	memcpy(at + SET_VALUE, value, MAP_VALUE);
	return ++theirs.loading == LOAD ? load_flush() : 0;
}

/* A number from the server's INFO. */
static double info_number(const char *section, const char *name)
{
	redisReply *reply = redisCommand(redis_client, "INFO %s", section);
	const char *at = NULL;
	double number = 0;

	if (reply && reply->type == REDIS_REPLY_STRING)
		at = strstr(reply->str, name);
	if (at)
		number = strtod(at + strlen(name), NULL);
	if (reply)
		freeReplyObject(reply);
	return number;
}

/* --- the driver --- */

static int redis_open(struct driver_pair *pair)
{
	uint64_t keys = pair->options.size / MAP_ENTRY;
	int rc = redis_start(pair);
	double empty;

	if (rc)
		return rc;
	memcpy(theirs.get, GET, sizeof(GET));
	memcpy(theirs.set, SET, sizeof(SET));
	empty = info_number("memory", "used_memory:");
	rc = map_state_init(&theirs.state, keys);
	rc = rc ? rc : map_load(keys, NULL, load_add);
	rc = rc ? rc : load_flush();
	if (rc)
		return driver_fail(pair, rc, "redis-server: %s", strerror(-rc));
	theirs.bytes =
		(info_number("memory", "used_memory:") - empty) / (double)keys;
	snprintf(pair->description, sizeof(pair->description),
		 "redis-server %.1f on a unix socket, one synchronous client "
		 "of hiredis; %.0f bytes of memory a key",
		 info_number("server", "redis_version:"), theirs.bytes);
	return 0;
}

static int redis_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	(void)pair;
	return map_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
		       seconds, rate);
}

static void redis_close(struct driver_pair *pair)
{
	redisFree(redis_client);
	free(theirs.state.ranks);
	kill(pair->target, SIGTERM);
}

static const struct driver redis_driver = {
	.name = "redis",
	.open = redis_open,
	.run = redis_run,
	.close = redis_close,
};

int main(int argc, char **argv)
{
	return driver_main(&redis_driver, argc, argv);
}
