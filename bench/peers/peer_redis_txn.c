/* peer_redis_txn.c - transactions in a Redis server, for `reef bench txn`: the
 * list of steps goes to the server in one EVALSHA, and a script does them.
 *
 * A script that has changed something cannot be undone: so it looks at what may
 * refuse it first. The server is on a unix socket and nothing else, keeps
 * nothing on disk, and ends with this process.
 *
 * Thread: owner. */
#include "redis_server.h"
#include "txn_work.h"

#define LOAD 512u /* commands at once */
#define WORDS_MAX (2 + 4 * TXN_STEPS_MAX + 1)

static const char script[] =
	"local call, sum = redis.call, 0\n"
	"for i = 1, #ARGV, 3 do\n"
	"  local kind, key, a, l = ARGV[i], KEYS[(i + 2) / 3],\n"
	"    ARGV[i + 1], ARGV[i + 2]\n"
	"  if kind == '1' and l ~= '' then\n"
	"    if call('GET', key) + a < tonumber(l) then return 1 end\n"
	"  elseif kind == '4' then\n"
	"    if not call('GET', key) and a ~= '0' then return 1 end\n"
	"  elseif kind == '6' then\n"
	"    if call('EXISTS', key) == 1 then return 1 end\n"
	"  end\n"
	"end\n"
	"for i = 1, #ARGV, 3 do\n"
	"  local kind, key, a = ARGV[i], KEYS[(i + 2) / 3], ARGV[i + 1]\n"
	"  if kind == '0' then call('GET', key)\n"
	"  elseif kind == '1' then sum = call('INCRBY', key, a)\n"
	"  elseif kind == '2' then\n"
	"    call('INCRBY', a, call('GETSET', key, '0'))\n"
	"  elseif kind == '3' then\n"
	"    if call('DECRBY', key, a) < 10 then call('INCRBY', key, 91) end\n"
	"  elseif kind == '5' or kind == '6' then call('SET', key, a)\n"
	"  elseif kind == '7' then call('DEL', key)\n"
	"  elseif kind == '8' then call('SET', key .. ':' .. sum, a)\n"
	"  end\n"
	"end\n"
	"return 0\n";

static char sha[64];

/* --- a list, as words --- */

struct words {
	const char *words[WORDS_MAX];
	size_t sizes[WORDS_MAX];
	int count;
	char texts[2 * WORDS_MAX][24];
	uint32_t texts_used;
	uint8_t bytes[TXN_STEPS_MAX][TXN_BYTES_MAX];
};

static void add_word(struct words *words, const void *bytes, size_t size)
{
	words->words[words->count] = bytes;
	words->sizes[words->count++] = size;
}

static void add_number(struct words *words, int64_t number)
{
	char *text = words->texts[words->texts_used++];

	add_word(words, text,
		 (size_t)snprintf(text, 24, "%lld", (long long)number));
}

static void add_step(struct words *words, const struct txn_step *step,
		     uint32_t index)
{
	add_number(words, step->kind);
	if (step->kind == TXN_MOVE) {
		add_word(words, &step->amount, 8);
	} else if (step->kind == TXN_PUT_B || step->kind == TXN_INSERT ||
		   step->kind == TXN_ORDER) {
		txn_fill(step->key, words->bytes[index]);
		add_word(words, words->bytes[index], (size_t)step->amount);
	} else {
		add_number(words, step->amount);
	}
	if (step->kind == TXN_ADD && step->least != TXN_ANY)
		add_number(words, step->least);
	else
		add_word(words, "", 0);
}

static int redis_run_list(void *context, const struct txn_list *list)
{
	static struct words words;
	redisReply *reply;
	int rc = 0;

	(void)context;
	words.count = 0;
	words.texts_used = 0;
	add_word(&words, "EVALSHA", 7);
	add_word(&words, sha, strlen(sha));
	add_number(&words, list->count);
	for (uint32_t i = 0; i < list->count; i++)
		add_word(&words, &list->steps[i].key, 8);
	for (uint32_t i = 0; i < list->count; i++)
		add_step(&words, &list->steps[i], i);
	reply = redisCommandArgv(redis_client, words.count, words.words,
				 words.sizes);
	if (!reply)
		return -EPIPE;
	if (reply->type != REDIS_REPLY_INTEGER)
		rc = -EPROTO;
	freeReplyObject(reply);
	return rc;
}

/* --- loading --- */

static int load_flush(uint32_t *loading)
{
	redisReply *reply;
	bool bad = false;

	for (; *loading; --*loading) {
		if (redisGetReply(redis_client, (void **)&reply) != REDIS_OK)
			return -EPIPE;
		bad |= reply->type != REDIS_REPLY_STATUS;
		freeReplyObject(reply);
	}
	return bad ? -EPROTO : 0;
}

static int load_add(void *context, uint64_t key, int64_t number, uint32_t size)
{
	uint32_t *loading = context;
	uint8_t bytes[TXN_BYTES_MAX];
	char text[24];

	txn_fill(key, bytes);
	if (!size)
		snprintf(text, sizeof(text), "%lld", (long long)number);
	if (redisAppendCommand(redis_client, "SET %b %b", &key, sizeof(key),
			       size ? (char *)bytes : text,
			       size ? (size_t)size : strlen(text)) != REDIS_OK)
		return -ENOMEM;
	return ++*loading == LOAD ? load_flush(loading) : 0;
}

static int redis_load(enum txn_table table, uint64_t units)
{
	uint32_t loading = 0;
	int rc = txn_load(table, units, &loading, load_add);

	return rc ? rc : load_flush(&loading);
}

/* --- the driver --- */

static struct txn_peer peer = {
	.clock = CLOCK_MONOTONIC,
	.run = redis_run_list,
	.load = redis_load,
};

static int redis_open(struct driver_pair *pair)
{
	redisReply *reply;
	int rc = redis_start(pair);

	if (rc)
		return rc;
	reply = redisCommand(redis_client, "SCRIPT LOAD %s", script);
	if (!reply || reply->type != REDIS_REPLY_STRING)
		return driver_fail(pair, -EPROTO, "redis-server: %s",
				   reply ? reply->str : "no answer");
	snprintf(sha, sizeof(sha), "%s", reply->str);
	freeReplyObject(reply);
	peer.state = (struct txn_state){
		.units = pair->options.size / TXN_UNIT,
		.random = 1,
	};
	snprintf(pair->description, sizeof(pair->description),
		 "redis-server on a unix socket, EVALSHA, one synchronous "
		 "client of hiredis");
	return 0;
}

static int redis_run(struct driver_pair *pair, const char *name, double seconds,
		     double *figure)
{
	(void)pair;
	return txn_peer_run(&peer, name, seconds, figure);
}

static void redis_close(struct driver_pair *pair)
{
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
