/* strings.c - reading and setting keys.
 *
 * Each change of a key is one reef_map_apply, so that the commands of all doors
 * and native clients are linearizable together. Where the new value does not
 * depend on the old one, it is written ahead. */
#include "base/checksum.h"
#include "gateway/redis/access.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- GET, MGET --- */

static void run_get(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	int rc = redis_read(thread, client, &request->argv[1]);

	if (rc == 0)
		redis_reply_value(thread, client);
	else if (rc == -ENOENT)
		redis_reply_null(&client->reply);
}

/* The GETs of a pipeline share their batches; each is owed its own answer. */
static void run_gets(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *requests, uint32_t count)
{
	struct redis_bytes keys[REDIS_MANY_MAX];
	struct reef_map *map;
	uint32_t i;
	int rc, all;

	for (i = 0; i < count; i++)
		keys[i] = requests[i].argv[1];
	if (!redis_map(thread, client, &map)) {
		for (i = 1; i < count; i++)
			run_get(thread, client, &requests[i]);
		return;
	}
	all = redis_read_many(thread, client, map, keys, count);
	for (i = 0; i < count; i++) {
		rc = all ? all : redis_reply_item(thread, client, i);
		if (rc)
			redis_reply_key_failure(thread, client, &keys[i], rc);
	}
}

#define MGET_FIRST 16
#define MGET_LARGE (UINT64_C(16) << 20)

static void run_mget(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	const struct redis_bytes *key = &request->argv[1];
	struct redis_mark mark = redis_reply_mark(&client->reply);
	uint32_t left = request->argc - 1, count, i, most = MGET_FIRST;
	struct reef_map *map;
	int rc = 0;

	if (!redis_map(thread, client, &map))
		return;
	redis_reply_array(&client->reply, left);
	for (; left && !rc && !client->reply.is_broken; left -= count) {
		/* How large values are is not known before they are there. */
		if (redis_reply_waiting(&client->reply) > MGET_LARGE)
			most = 1;
		count = left < most ? left : most;
		most = REDIS_MANY_MAX;
		rc = redis_read_many(thread, client, map, key, count);
		for (i = 0; i < count && !rc; i++)
			rc = redis_reply_item(thread, client, i);
		key += rc ? i : count;
	}
	if (!rc)
		return;
	/* An error is not an element of the array, but the whole answer. */
	redis_reply_rewind(&client->reply, mark);
	redis_reply_key_failure(thread, client, key - 1, rc);
}

/* --- options of SET and GETEX --- */

enum option {
	NX = 1 << 0,
	XX = 1 << 1,
	GET = 1 << 2,
	KEEPTTL = 1 << 3,
	PERSIST = 1 << 4,
	EX = 1 << 5,
	PX = 1 << 6,
	EXAT = 1 << 7,
	PXAT = 1 << 8,
};
#define DEADLINES (EX | PX | EXAT | PXAT)

struct options {
	uint32_t flags;
	const struct redis_bytes *time; /* of a deadline, as it was given */
	uint64_t expires_ms;
};

/* Which of them may not stand beside one: two deadlines of one kind may, the
 * second counts. */
static const struct option_rule {
	const char *word;
	uint32_t flag, excludes;
	bool is_set, is_getex;
} option_rules[] = {
	{"nx", NX, XX, true, false},
	{"xx", XX, NX, true, false},
	{"get", GET, 0, true, false},
	{"keepttl", KEEPTTL, PERSIST | DEADLINES, true, false},
	{"persist", PERSIST, KEEPTTL | DEADLINES, false, true},
	{"ex", EX, KEEPTTL | PERSIST | (DEADLINES & ~EX), true, true},
	{"px", PX, KEEPTTL | PERSIST | (DEADLINES & ~PX), true, true},
	{"exat", EXAT, KEEPTTL | PERSIST | (DEADLINES & ~EXAT), true, true},
	{"pxat", PXAT, KEEPTTL | PERSIST | (DEADLINES & ~PXAT), true, true},
};
#define OPTION_RULES (sizeof(option_rules) / sizeof(option_rules[0]))

static const struct option_rule *find_rule(const struct redis_bytes *word,
					   bool is_set)
{
	const struct option_rule *rule = option_rules;

	for (; rule < option_rules + OPTION_RULES; rule++)
		if ((is_set ? rule->is_set : rule->is_getex) &&
		    redis_bytes_is(word, rule->word))
			return rule;
	return NULL;
}

/* From an argument on. False: answered. */
static bool take_options(struct redis_client *client,
			 const struct redis_request *request, uint32_t from,
			 bool is_set, struct options *options)
{
	const struct option_rule *rule;
	uint32_t i;

	for (i = from; i < request->argc; i++) {
		rule = find_rule(&request->argv[i], is_set);
		if (!rule || options->flags & rule->excludes)
			goto syntax;
		options->flags |= rule->flag;
		if (!(rule->flag & DEADLINES))
			continue;
		if (++i == request->argc)
			goto syntax;
		options->time = &request->argv[i];
	}
	return true;
syntax:
	redis_reply_syntax(client);
	return false;
}

/* From the time as it was given to the pool's. False: answered. */
static bool take_deadline(struct redis_thread *thread,
			  struct redis_client *client, struct options *options)
{
	int64_t value;
	uint64_t now_ms = 0;

	if (!options->time)
		return true;
	if (!redis_take_integer(client, options->time, &value))
		return false;
	if (value <= 0)
		goto invalid;
	if (options->flags & (EX | EXAT)) {
		if (value > INT64_MAX / 1000)
			goto invalid;
		value *= 1000;
	}
	if (options->flags & (EX | PX) && !redis_now(thread, client, &now_ms))
		return false;
	if (value > INT64_MAX - (int64_t)now_ms)
		goto invalid;
	options->expires_ms = (uint64_t)value + now_ms;
	return true;
invalid:
	redis_reply_errorf(&client->reply,
			   "ERR invalid expire time in '%s' command",
			   client->command->name);
	return false;
}

/* --- SET and its kin --- */

struct set {
	struct redis_thread *thread;
	uint32_t flags;
	struct reef_map_entry what; /* value, expires_ms */
	bool was_there;
};

static int decide_set(void *context, const struct reef_map_entry *now,
		      struct reef_map_entry *put)
{
	struct set *set = context;
	int rc;

	set->was_there = now != NULL;
	if (set->flags & GET && now) {
		rc = redis_value_keep(set->thread, now);
		if (rc)
			return rc;
	}
	if (now ? set->flags & NX : set->flags & XX)
		return REEF_MAP_LEAVE;
	put->value = set->what.value;
	put->value_size = set->what.value_size;
	put->expires_ms = set->what.expires_ms;
	if (set->flags & KEEPTTL)
		put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

/* Returns what was done, or negative: answered. With GET answers what was. */
static int set_key(struct redis_thread *thread, struct redis_client *client,
		   const struct redis_bytes *key,
		   const struct redis_bytes *value,
		   const struct options *options)
{
	struct set set = {
		.thread = thread,
		.flags = options->flags,
		.what = {.value = value->bytes,
			 .value_size = value->size,
			 .expires_ms = options->expires_ms},
	};
	int rc;

	if (!(options->flags & (NX | XX | GET | KEEPTTL))) {
		rc = redis_put(thread, client, key, value, options->expires_ms);
		return rc ? rc : REEF_MAP_PUT;
	}
	rc = redis_change(thread, client, key, decide_set, &set,
			  options->flags & KEEPTTL ? NULL : &set.what);
	if (rc < 0 || !(options->flags & GET))
		return rc;
	if (set.was_there)
		redis_reply_value(thread, client);
	else
		redis_reply_null(&client->reply);
	return rc;
}

static void run_set(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	struct options options = {0};
	int rc;

	if (request->argc > 3 &&
	    (!take_options(client, request, 3, true, &options) ||
	     !take_deadline(thread, client, &options)))
		return;
	rc = set_key(thread, client, &request->argv[1], &request->argv[2],
		     &options);
	if (rc < 0 || options.flags & GET)
		return;
	if (rc == REEF_MAP_PUT)
		redis_reply_status(&client->reply, "OK");
	else
		redis_reply_null(&client->reply);
}

static void run_setnx(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	struct options options = {.flags = NX};
	int rc = set_key(thread, client, &request->argv[1], &request->argv[2],
			 &options);

	if (rc >= 0)
		redis_reply_integer(&client->reply, rc == REEF_MAP_PUT);
}

static void set_with_time(struct redis_thread *thread,
			  struct redis_client *client,
			  const struct redis_request *request, uint32_t unit)
{
	struct options options = {.flags = unit, .time = &request->argv[2]};

	if (take_deadline(thread, client, &options) &&
	    set_key(thread, client, &request->argv[1], &request->argv[3],
		    &options) >= 0)
		redis_reply_status(&client->reply, "OK");
}

static void run_setex(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	set_with_time(thread, client, request, EX);
}

static void run_psetex(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	set_with_time(thread, client, request, PX);
}

static void run_getset(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct options options = {.flags = GET};

	set_key(thread, client, &request->argv[1], &request->argv[2], &options);
}

/* --- GETDEL, GETEX --- */

struct take {
	struct redis_thread *thread;
	const struct options *options; /* NULL: GETDEL */
	bool was_there;
};

static int decide_take(void *context, const struct reef_map_entry *now,
		       struct reef_map_entry *put)
{
	struct take *take = context;
	int rc;

	take->was_there = now != NULL;
	if (!now)
		return REEF_MAP_LEAVE;
	rc = redis_value_keep(take->thread, now);
	if (rc)
		return rc;
	if (!take->options)
		return REEF_MAP_DELETE;
	if (take->options->expires_ms == now->expires_ms)
		return REEF_MAP_LEAVE;
	put->value = take->thread->value.bytes;
	put->value_size = take->thread->value.size;
	put->expires_ms = take->options->expires_ms;
	return REEF_MAP_PUT;
}

static void take_key(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_bytes *key,
		     const struct options *options)
{
	struct take take = {.thread = thread, .options = options};

	if (redis_change(thread, client, key, decide_take, &take, NULL) < 0)
		return;
	if (take.was_there)
		redis_reply_value(thread, client);
	else
		redis_reply_null(&client->reply);
}

static void run_getdel(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	take_key(thread, client, &request->argv[1], NULL);
}

static void run_getex(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	struct options options = {0};
	int rc;

	if (!take_options(client, request, 2, false, &options))
		return;
	/* Of a key that is not there nobody looks at the time. */
	if (!options.flags || options.time) {
		rc = redis_read(thread, client, &request->argv[1]);
		if (rc == -ENOENT)
			redis_reply_null(&client->reply);
		if (rc == 0 && !options.flags)
			redis_reply_value(thread, client);
		if (rc || !options.flags ||
		    !take_deadline(thread, client, &options))
			return;
	}
	take_key(thread, client, &request->argv[1], &options);
}

/* --- MSET, MSETNX --- */

static bool is_same(const struct redis_bytes *a, const struct redis_bytes *b)
{
	return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

/* How many of the next pairs can be put together: until a key comes for the
 * second time, since the last must win. */
static uint32_t distinct(const struct redis_bytes *pairs, uint32_t count)
{
	uint8_t slots[4 * REDIS_MANY_MAX] = {0}; /* index + 1 */
	uint32_t i, at;

	if (count > REDIS_MANY_MAX)
		count = REDIS_MANY_MAX;
	for (i = 0; i < count; i++) {
		at = (uint32_t)reef_hash(pairs[2 * i].bytes, pairs[2 * i].size,
					 0);
		for (;; at++) {
			at %= sizeof(slots);
			if (!slots[at])
				break;
			if (is_same(&pairs[2 * i], &pairs[2 * (slots[at] - 1)]))
				return i;
		}
		slots[at] = (uint8_t)(i + 1);
	}
	return count;
}

/* Put the first of the pairs together, and say how many: thread->items has a
 * status for each. Negative: what hit all of them. */
static int put_some(struct redis_thread *thread, struct reef_map *map,
		    const struct redis_bytes *pairs, uint32_t count)
{
	struct reef_map_item *item;
	uint32_t i;
	int rc;

	count = distinct(pairs, count);
	for (i = 0; i < count; i++) {
		item = &thread->items[i];
		item->key = pairs[2 * i].bytes;
		item->key_size = pairs[2 * i].size;
		item->value.bytes = pairs[2 * i + 1].bytes;
		item->value.size = pairs[2 * i + 1].size;
		item->value.expires_ms = 0;
	}
	rc = reef_map_put_many(map, thread->items, count);
	return rc ? rc : (int)count;
}

/* The SETs of a pipeline share their batches; each is owed its own answer. */
static void run_sets(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *requests, uint32_t count)
{
	struct redis_bytes pairs[2 * REDIS_MANY_MAX];
	struct reef_map *map;
	uint32_t i, done;
	int rc, all;

	for (i = 0; i < count; i++) {
		pairs[2 * i] = requests[i].argv[1];
		pairs[2 * i + 1] = requests[i].argv[2];
	}
	for (done = 0; done < count; done += (uint32_t)all) {
		if (!redis_map(thread, client, &map)) {
			all = 1;
			continue;
		}
		rc = put_some(thread, map, pairs + 2 * done, count - done);
		all = rc < 0 ? (int)(count - done) : rc;
		for (i = 0; i < (uint32_t)all; i++) {
			if (rc >= 0)
				rc = thread->items[i].status;
			if (rc)
				redis_reply_key_failure(thread, client,
							&pairs[2 * (done + i)],
							rc);
			else
				redis_reply_status(&client->reply, "OK");
		}
	}
}

/* False: answered. */
static bool put_pairs(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_bytes *pairs, uint32_t count)
{
	struct reef_map *map;
	int rc = 0, i, done;

	for (; count; count -= (uint32_t)done, pairs += 2 * done) {
		/* Within EXEC each is made only if it may be. */
		if (client->transaction || count == 1) {
			if (redis_put(thread, client, &pairs[0], &pairs[1], 0))
				return false;
			done = 1;
			continue;
		}
		if (!redis_map(thread, client, &map))
			return false;
		done = put_some(thread, map, pairs, count);
		rc = done < 0 ? done : 0;
		for (i = 0; i < done && !rc; i++)
			rc = thread->items[i].status;
		if (rc) {
			redis_reply_key_failure(thread, client,
						&pairs[i ? 2 * (i - 1) : 0],
						rc);
			return false;
		}
	}
	return true;
}

static bool has_pairs(struct redis_client *client,
		      const struct redis_request *request)
{
	if (request->argc % 2 == 0)
		redis_reply_arity(client, client->command);
	return request->argc % 2 == 1;
}

static void run_mset(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	if (has_pairs(client, request) &&
	    put_pairs(thread, client, &request->argv[1], request->argc / 2))
		redis_reply_status(&client->reply, "OK");
}

/* What MSETNX inserted so far: a version for each pair, 0: none, or a later
 * pair has the same key. */
struct inserts {
	const struct redis_request *request;
	uint64_t *versions;
};

struct insert {
	const struct redis_bytes *value;
	uint64_t expected; /* 0: it must not be there */
};

static int decide_insert(void *context, const struct reef_map_entry *now,
			 struct reef_map_entry *put)
{
	const struct insert *insert = context;

	if ((now ? now->version : 0) != insert->expected)
		return REEF_MAP_LEAVE;
	if (!insert->value)
		return REEF_MAP_DELETE;
	put->value = insert->value->bytes;
	put->value_size = insert->value->size;
	return REEF_MAP_PUT;
}

/* The pair before this one that has the same key, if we inserted it. */
static uint64_t *came_before(const struct inserts *inserts, uint32_t pair)
{
	const struct redis_bytes *argv = inserts->request->argv;
	uint32_t i;

	for (i = 0; i < pair; i++)
		if (inserts->versions[i] &&
		    is_same(&argv[1 + 2 * i], &argv[1 + 2 * pair]))
			return &inserts->versions[i];
	return NULL;
}

/* 1: it is there now, by us.  0: it was there.  Negative: answered. */
static int insert_pair(struct redis_thread *thread, struct redis_client *client,
		       const struct inserts *inserts, uint32_t pair)
{
	const struct redis_bytes *argv = &inserts->request->argv[1 + 2 * pair];
	struct insert insert = {.value = &argv[1]};
	struct reef_map_entry ahead = {.value = argv[1].bytes,
				       .value_size = argv[1].size};
	uint64_t *before;
	int rc;

	rc = redis_change(thread, client, argv, decide_insert, &insert, &ahead);
	if (rc == REEF_MAP_LEAVE) {
		before = came_before(inserts, pair);
		if (!before)
			return 0;
		insert.expected = *before;
		rc = redis_change(thread, client, argv, decide_insert, &insert,
				  &ahead);
		if (rc == REEF_MAP_PUT)
			*before = 0;
	}
	if (rc == REEF_MAP_PUT)
		inserts->versions[pair] = thread->version;
	return rc < 0 ? rc : rc == REEF_MAP_PUT;
}

static void take_back(struct redis_thread *thread, struct redis_client *client,
		      const struct inserts *inserts, uint32_t pairs)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);
	struct insert insert = {0};
	uint32_t i;

	for (i = 0; i < pairs; i++) {
		insert.expected = inserts->versions[i];
		if (insert.expected)
			redis_change(thread, client,
				     &inserts->request->argv[1 + 2 * i],
				     decide_insert, &insert, NULL);
	}
	redis_reply_rewind(&client->reply, mark);
}

/* One after the other; if a key is there, those before are taken back. Whoever
 * looks meanwhile can see some of them (docs/REDIS.md). */
static void insert_pairs(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct inserts *inserts)
{
	uint32_t i, pairs = inserts->request->argc / 2;
	int rc = 1;

	for (i = 0; i < pairs && rc == 1; i++)
		rc = insert_pair(thread, client, inserts, i);
	if (rc != 1)
		take_back(thread, client, inserts, i);
	if (rc >= 0)
		redis_reply_integer(&client->reply, rc);
}

static void run_msetnx(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct inserts inserts = {.request = request};
	uint32_t i;
	int rc;

	if (!has_pairs(client, request))
		return;
	/* Looking first makes taking back rare. */
	for (i = 1; i < request->argc; i += 2) {
		rc = redis_peek(thread, client, &request->argv[i]);
		if (rc == 0)
			redis_reply_integer(&client->reply, 0);
		if (rc != -ENOENT)
			return;
	}
	inserts.versions = calloc(request->argc / 2, sizeof(uint64_t));
	if (!inserts.versions) {
		redis_reply_failure(thread, client, -ENOMEM);
		return;
	}
	insert_pairs(thread, client, &inserts);
	free(inserts.versions);
}

#define READ (REDIS_READONLY | REDIS_FAST)
#define PUT (REDIS_WRITE | REDIS_DENYOOM)

struct redis_command redis_string_commands[] = {
	{.name = "get",
	 .arity = 2,
	 .flags = READ,
	 .first_key = 1,
	 .last_key = 1,
	 .key_step = 1,
	 .run = run_get,
	 .run_many = run_gets,
	 .many_argc = 2},
	{.name = "set",
	 .arity = -3,
	 .flags = PUT,
	 .first_key = 1,
	 .last_key = 1,
	 .key_step = 1,
	 .run = run_set,
	 .run_many = run_sets,
	 .many_argc = 3},
	REDIS_COMMAND("setnx", 3, PUT | REDIS_FAST, 1, 1, 1, run_setnx),
	REDIS_COMMAND("setex", 4, PUT, 1, 1, 1, run_setex),
	REDIS_COMMAND("psetex", 4, PUT, 1, 1, 1, run_psetex),
	REDIS_COMMAND("getset", 3, PUT | REDIS_FAST, 1, 1, 1, run_getset),
	REDIS_COMMAND("getdel", 2, REDIS_WRITE | REDIS_FAST, 1, 1, 1,
		      run_getdel),
	REDIS_COMMAND("getex", -2, REDIS_WRITE | REDIS_FAST, 1, 1, 1,
		      run_getex),
	REDIS_COMMAND("mget", -2, READ, 1, -1, 1, run_mget),
	REDIS_COMMAND("mset", -3, PUT, 1, -1, 2, run_mset),
	REDIS_COMMAND("msetnx", -3, PUT, 1, -1, 2, run_msetnx),
	{0},
};
