/* redis_log.h - streams of a Redis server, for `reef bench log`.
 *
 * XADD and XREAD, by hiredis on a unix socket; synchronous, or with
 * LOG_PIPELINE commands under way at once: a program each. The server keeps
 * nothing on disk and ends with this process.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_PEERS_REDIS_LOG_H
#define REEF_BENCH_PEERS_REDIS_LOG_H

#include "log_work.h"
#include "redis_server.h"

#define READ_AT_ONCE "1000"
#define FILL_AT_ONCE 1000

/* --- operations --- */

static int expect(redisReply *reply, int type)
{
	int rc = !reply ? -EPIPE : reply->type == type ? 0 : -EPROTO;

	if (reply)
		freeReplyObject(reply);
	return rc;
}

static int theirs_begin(void *context)
{
	(void)context;
	return expect(redisCommand(redis_client, "DEL log"),
		      REDIS_REPLY_INTEGER);
}

static int theirs_append(void *context, const char *bytes, size_t size)
{
	(void)context;
	return expect(
		redisCommand(redis_client, "XADD log * f %b", bytes, size),
		REDIS_REPLY_STRING);
}

/* Take the answers to `count` XADDs that were sent at once. */
static int take_ids(uint32_t count)
{
	redisReply *reply;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < count; i++)
		rc = redisGetReply(redis_client, (void **)&reply) == REDIS_OK
			     ? expect(reply, REDIS_REPLY_STRING)
			     : -EPIPE;
	return rc;
}

static int theirs_append_batch(void *context, const char *bytes, size_t size)
{
	int rc = 0;

	(void)context;
	for (uint32_t at = 0; !rc && at < LOG_BATCH; at += LOG_PIPELINE) {
		for (uint32_t i = 0; i < LOG_PIPELINE; i++)
			redisAppendCommand(redis_client, "XADD log * f %b",
					   bytes + (at + i) * size, size);
		rc = take_ids(LOG_PIPELINE);
	}
	return rc;
}

/* Look at the entries of an XREAD. *last: the id of the last, the reply's. */
static int look_at(const redisReply *reply, uint64_t *number, char last[64])
{
	const redisReply *entries, *entry, *value;
	int rc = 0;

	if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1)
		return -EPROTO;
	entries = reply->element[0]->element[1];
	for (size_t i = 0; !rc && i < entries->elements; i++) {
		entry = entries->element[i];
		value = entry->element[1]->element[1];
		rc = log_check(value->str, value->len, (*number)++);
		if (i + 1 == entries->elements)
			snprintf(last, 64, "%s", entry->element[0]->str);
	}
	return rc;
}

static int theirs_read_all(void *context, uint64_t *count)
{
	char last[64] = "0";
	redisReply *reply;
	bool is_over = false;
	int rc = 0;

	(void)context;
	*count = 0;
	while (!rc && !is_over) {
		reply = redisCommand(
			redis_client,
			"XREAD COUNT " READ_AT_ONCE " STREAMS filled %s", last);
		if (!reply)
			return -EPIPE;
		is_over = reply->type == REDIS_REPLY_NIL;
		if (!is_over)
			rc = look_at(reply, count, last);
		freeReplyObject(reply);
	}
	return rc;
}

static int theirs_append_awaited(void *context, const char *bytes, size_t size)
{
	(void)context;
	return expect(
		redisCommand(redis_client, "XADD awaited * f %b", bytes, size),
		REDIS_REPLY_STRING);
}

/* --- the sleeper, with a connection of its own --- */

static int theirs_sleeper_open(void)
{
	return redis_client ? 0 : -EPIPE;
}

static int theirs_sleeper_next(uint64_t *stamp)
{
	static char last[64] = "0";
	redisReply *reply = redisCommand(
		redis_client, "XREAD BLOCK 0 STREAMS awaited %s", last);
	const redisReply *entries, *entry;

	if (!reply)
		return -EPIPE;
	if (reply->type != REDIS_REPLY_ARRAY)
		return -EPROTO;
	entries = reply->element[0]->element[1];
	entry = entries->element[entries->elements - 1];
	snprintf(last, sizeof(last), "%s", entry->element[0]->str);
	memcpy(stamp, entry->element[1]->element[1]->str, sizeof(*stamp));
	freeReplyObject(reply);
	return 0;
}

static const struct log_ops theirs_ops = {
	.begin = theirs_begin,
	.append = theirs_append,
	.append_batch = LOG_PIPELINE > 1 ? theirs_append_batch : NULL,
	.read_all = theirs_read_all,
	.append_awaited = theirs_append_awaited,
	.sleeper_open = theirs_sleeper_open,
	.sleeper_next = theirs_sleeper_next,
	.clock = CLOCK_MONOTONIC,
};

/* --- the driver --- */

/* Connect twice: the first connection is the sleeper's. */
static bool connect_both(void)
{
	redisContext *first;

	if (!redis_connect())
		return false;
	first = redis_client;
	if (log_sleeper_start(&theirs_ops))
		return false;
	/* Only the child uses it. */
	redisFree(first);
	return redis_connect();
}

/* Make the stream that is read; many entries at once, as nobody measures it. */
static int fill_stream(void)
{
	char bytes[LOG_SHORT];
	uint32_t waiting = 0;
	int rc = 0;

	for (uint64_t i = 0; !rc && i < LOG_ENTRIES; i++) {
		log_entry(bytes, i);
		redisAppendCommand(redis_client, "XADD filled * f %b", bytes,
				   (size_t)LOG_SHORT);
		if (++waiting == FILL_AT_ONCE || i + 1 == LOG_ENTRIES) {
			rc = take_ids(waiting);
			waiting = 0;
		}
	}
	return rc;
}

static int redis_open(struct driver_pair *pair)
{
	int rc = redis_start_with(pair, connect_both);

	if (!rc)
		rc = fill_stream();
	if (rc)
		return driver_fail(pair, rc, "redis-server: %s", strerror(-rc));
	snprintf(pair->description, sizeof(pair->description),
		 "a stream of redis-server on a unix socket, hiredis, %d "
		 "command%s at once",
		 LOG_PIPELINE, LOG_PIPELINE > 1 ? "s" : "");
	return 0;
}

static int redis_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	(void)pair;
	return log_run(&theirs_ops, NULL, name, seconds, rate);
}

static void redis_close(struct driver_pair *pair)
{
	log_sleeper_stop();
	redisFree(redis_client);
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

#endif
