/* redis_hiredis.c - a script with hiredis, for redis_clients.py.
 *
 * usage: redis_hiredis SOCKET
 *
 * Prints what came back, a line for each step: synchronous, pipelined, binary,
 * and by its asynchronous side. */
#include <hiredis/async.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIPELINED 10000
#define BIG (5u << 20)
#define ASYNC 500

static void print(const redisReply *reply)
{
	switch (reply->type) {
	case REDIS_REPLY_INTEGER:
		printf("(%lld)", reply->integer);
		break;
	case REDIS_REPLY_NIL:
		printf("nil");
		break;
	case REDIS_REPLY_ARRAY:
		printf("[");
		for (size_t i = 0; i < reply->elements; i++) {
			printf(i ? " " : "");
			print(reply->element[i]);
		}
		printf("]");
		break;
	default:
		printf("%d:", reply->type);
		for (size_t i = 0; i < (size_t)reply->len && i < 200; i++)
			printf(reply->str[i] < ' ' ? "\\%02x" : "%c",
			       (unsigned char)reply->str[i]);
	}
}

static void show(const char *name, redisReply *reply)
{
	printf("%s: ", name);
	if (reply)
		print(reply);
	else
		printf("no reply");
	printf("\n");
	freeReplyObject(reply);
}

static void simple(redisContext *redis)
{
	static const char *const lines[] = {
		"FLUSHALL",
		"PING",
		"SET a 1",
		"GET a",
		"GET none",
		"SET b x EX 100",
		"TTL b",
		"SET a 2 NX",
		"SET a 3 XX GET",
		"MSET m1 x m2 y",
		"MGET m1 none m2",
		"INCR n",
		"INCRBY n 41",
		"INCRBYFLOAT f 1.5",
		"INCR m1",
		"APPEND s hello",
		"GETRANGE s 1 3",
		"SETRANGE s 7 x",
		"GET s",
		"STRLEN s",
		"EXPIRE a 100",
		"TTL a",
		"PERSIST a",
		"EXISTS a b none",
		"RENAME m1 m3",
		"COPY m3 m4",
		"DEL m2 m3 none",
		"TYPE a",
		"OBJECT ENCODING a",
		"DBSIZE",
		"MULTI",
		"INCR n",
		"GET n",
		"EXEC",
		"WATCH n m4",
		"MULTI",
		"INCR n",
		"MSET m4 x m5 y",
		"EXEC",
		"WATCH n m4",
		"SET m4 z",
		"MULTI",
		"INCR n",
		"EXEC",
		"MGET n m4 m5",
		"NOSUCH a b",
		"SET a",
		"SELECT 99",
		"SELECT 1",
		"GET a",
		"SELECT 0",
		"COMMAND INFO get",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		show(lines[i], redisCommand(redis, lines[i]));
}

static void binary(redisContext *redis)
{
	const char key[] = {0, 1, '\r', '\n'}, value[] = {'$', 0, (char)255};
	char *big = malloc(BIG);
	redisReply *reply;

	show("set binary", redisCommand(redis, "SET %b %b", key, sizeof(key),
					value, sizeof(value)));
	show("get binary", redisCommand(redis, "GET %b", key, sizeof(key)));
	for (size_t i = 0; i < BIG; i++)
		big[i] = (char)(i * 2654435761u >> 13);
	show("set big", redisCommand(redis, "SET big %b", big, (size_t)BIG));
	reply = redisCommand(redis, "GET big");
	printf("big: %d\n", reply && reply->type == REDIS_REPLY_STRING &&
				    (size_t)reply->len == BIG &&
				    memcmp(reply->str, big, BIG) == 0);
	freeReplyObject(reply);
	free(big);
}

static void pipelined(redisContext *redis)
{
	long long sum = 0;
	redisReply *reply;

	for (int i = 0; i < PIPELINED; i++)
		redisAppendCommand(redis, "INCRBY p%d %d", i % 7, i % 5);
	for (int i = 0; i < PIPELINED; i++) {
		if (redisGetReply(redis, (void **)&reply) != REDIS_OK) {
			printf("pipelined: %s\n", redis->errstr);
			return;
		}
		sum += reply->integer * (i % 3);
		freeReplyObject(reply);
	}
	printf("pipelined: %lld\n", sum);
}

/* --- asynchronous --- */

struct loop {
	bool reads, writes;
	long long sum;
	int heard;
	bool ended;
};

static void reads_on(void *loop)
{
	((struct loop *)loop)->reads = true;
}

static void reads_off(void *loop)
{
	((struct loop *)loop)->reads = false;
}

static void writes_on(void *loop)
{
	((struct loop *)loop)->writes = true;
}

static void writes_off(void *loop)
{
	((struct loop *)loop)->writes = false;
}

static void heard(redisAsyncContext *redis, void *reply, void *context)
{
	struct loop *loop = context;

	loop->sum += reply ? ((redisReply *)reply)->integer : -1;
	if (++loop->heard == ASYNC)
		redisAsyncDisconnect(redis);
}

static void ended(const redisAsyncContext *redis, int status)
{
	((struct loop *)redis->data)->ended = true;
}

static void asynchronous(const char *path)
{
	redisAsyncContext *redis = redisAsyncConnectUnix(path);
	struct loop loop = {0};
	struct pollfd one;

	redis->data = redis->ev.data = &loop;
	redis->ev.addRead = reads_on;
	redis->ev.delRead = reads_off;
	redis->ev.addWrite = writes_on;
	redis->ev.delWrite = writes_off;
	redisAsyncSetDisconnectCallback(redis, ended);
	for (int i = 0; i < ASYNC; i++)
		redisAsyncCommand(redis, heard, &loop, "INCRBY async %d", i);
	one.fd = redis->c.fd;
	while (!loop.ended) {
		one.events = (short)((loop.reads ? POLLIN : 0) |
				     (loop.writes ? POLLOUT : 0));
		if (poll(&one, 1, 30000) <= 0)
			break;
		if (one.revents & (POLLIN | POLLHUP))
			redisAsyncHandleRead(redis);
		if (!loop.ended && loop.writes && (one.revents & POLLOUT))
			redisAsyncHandleWrite(redis);
	}
	printf("asynchronous: %d %lld %d\n", loop.heard, loop.sum, loop.ended);
}

int main(int argc, char **argv)
{
	redisContext *redis;

	if (argc != 2)
		return 2;
	redis = redisConnectUnix(argv[1]);
	if (!redis || redis->err) {
		printf("connect: %s\n", redis ? redis->errstr : "no memory");
		return 1;
	}
	simple(redis);
	binary(redis);
	pipelined(redis);
	asynchronous(argv[1]);
	redisReconnect(redis);
	show("again", redisCommand(redis, "GET n"));
	redisFree(redis);
	return 0;
}
