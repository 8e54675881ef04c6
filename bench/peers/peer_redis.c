/* peer_redis.c - the lock that people make of a Redis server, for `reef bench
 * sync`: taken by SET NX PX, given by a script that compares and deletes.
 *
 * The server is started here, on a unix socket and nothing else, keeps nothing,
 * and ends with this process. The client is hiredis', synchronous; commands are
 * formatted once, and the script is known to the server (EVALSHA), so that each
 * is one round trip of few bytes.
 *
 * Thread: owner. */
#include "redis_server.h"
#include "sync_work.h"

#define SCRIPT                                                                 \
	"if redis.call('get', KEYS[1]) == ARGV[1] then "                       \
	"return redis.call('del', KEYS[1]) else return 0 end"
#define KEY "reef-bench"
#define TOKEN "0123456789abcdef0123"

struct theirs {
	char *take, *give; /* commands */
	size_t take_size, give_size;
	struct crowd *crowd;
};

/* This is static because members are forked from what has it. */
static struct theirs theirs;

/* --- operations --- */

/* Send one command and check its answer. */
workload_inline int command(const char *text, size_t size, int type)
{
	redisReply *reply = NULL;
	int rc = 0;

	if (redisAppendFormattedCommand(redis_client, text, size) != REDIS_OK ||
	    redisGetReply(redis_client, (void **)&reply) != REDIS_OK)
		return -EPIPE;
	if (reply->type == REDIS_REPLY_NIL)
		rc = -EBUSY;
	else if (reply->type != type)
		rc = -EPROTO;
	else if (type == REDIS_REPLY_INTEGER && reply->integer != 1)
		rc = -EPERM;
	freeReplyObject(reply);
	return rc;
}

workload_inline int theirs_take(struct crowd_member *member)
{
	return command(theirs.take, theirs.take_size, REDIS_REPLY_STATUS);
}

workload_inline int theirs_give(struct crowd_member *member)
{
	return command(theirs.give, theirs.give_size, REDIS_REPLY_INTEGER);
}

static const struct sync_ops theirs_ops = {
	.take = theirs_take,
	.give = theirs_give,
};

static int theirs_ready(struct crowd_member *member, const char *name)
{
	const struct sync_work *work = sync_work_find(name);

	return work && work->object == SYNC_WORK_SHIFT ? 0 : -ENOSYS;
}

static int theirs_loop(struct crowd_member *member, const char *name)
{
	int rc = sync_loop(&theirs_ops, member, name);

	if (rc)
		snprintf(member->error, sizeof(member->error), "redis: %.100s",
			 redis_client->err ? redis_client->errstr
					   : strerror(-rc));
	return rc;
}

static const struct crowd_ops theirs_crowd = {
	.ready = theirs_ready,
	.loop = theirs_loop,
};

/* --- the server --- */

/* Describe the competitor, with the server's version. */
static void server_describe(struct driver_pair *pair)
{
	redisReply *reply = redisCommand(redis_client, "INFO server");
	const char *version = NULL;
	int size = 0;

	if (reply && reply->type == REDIS_REPLY_STRING)
		version = strstr(reply->str, "redis_version:");
	if (version) {
		version += strlen("redis_version:");
		size = (int)strcspn(version, "\r\n");
	}
	snprintf(pair->description, sizeof(pair->description),
		 "redis-server %.*s on a unix socket, by hiredis %d.%d.%d: SET "
		 "NX PX, and a script that compares and deletes",
		 size, version ? version : "", HIREDIS_MAJOR, HIREDIS_MINOR,
		 HIREDIS_PATCH);
	if (reply)
		freeReplyObject(reply);
}

static int commands_make(void)
{
	redisReply *reply =
		redisCommand(redis_client, "SCRIPT LOAD %s", SCRIPT);
	int take, give = -1;

	take = redisFormatCommand(&theirs.take, "SET %s %s NX PX 30000", KEY,
				  TOKEN);
	if (reply && reply->type == REDIS_REPLY_STRING)
		give = redisFormatCommand(&theirs.give, "EVALSHA %s 1 %s %s",
					  reply->str, KEY, TOKEN);
	if (reply)
		freeReplyObject(reply);
	if (take < 0 || give < 0)
		return -EPROTO;
	theirs.take_size = (size_t)take;
	theirs.give_size = (size_t)give;
	return 0;
}

/* --- the driver --- */

static int redis_open(struct driver_pair *pair)
{
	int rc = redis_start(pair);

	if (rc)
		return rc;
	server_describe(pair);
	rc = commands_make();
	if (rc)
		return driver_fail(pair, rc,
				   "redis-server does not take the "
				   "script");
	return crowd_open(pair, 1, &theirs_crowd, &theirs.crowd);
}

static int redis_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	return sync_run(pair, theirs.crowd, name, seconds, rate);
}

static void redis_close(struct driver_pair *pair)
{
	crowd_close(theirs.crowd);
	redisFree(redis_client);
	free(theirs.take);
	free(theirs.give);
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
