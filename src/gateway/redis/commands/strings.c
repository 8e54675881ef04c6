/* strings.c - reading and setting a key; several are in strings_many.c.
 *
 * Each change of a key is one reef_map_apply, so that the commands of all doors
 * and native clients are linearizable together. Where the new value does not
 * depend on the old one, it is written ahead. */
#include "gateway/redis/commands/strings.h"

#include "gateway/redis/commands/access.h"
#include "gateway/redis/server/stage.h"

#include <errno.h>

/* --- GET --- */

static void run_get(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	int rc = redis_read(thread, client, &request->argv[1]);

	if (rc == 0)
		redis_reply_value(thread, client);
	else if (rc == -ENOENT)
		redis_reply_null(&client->reply);
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
/* Options by which it depends on the present value what is put, or whether. */
#define CONDITIONS (NX | XX | GET | KEEPTTL)

struct options {
	uint32_t flags;
	const struct redis_bytes *time; /* the deadline as it was given */
	uint64_t expires_ms;
};

/* Options, and which others each excludes. Two deadlines of one kind do not
 * exclude each other; the second counts. */
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

/* Parse the options from argument `from` on. False: an error was answered. */
static bool parse_options(struct redis_client *client,
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

/* Turn the deadline that was given into a time of the pool's clock. False: an
 * error was answered. */
static bool parse_deadline(struct redis_thread *thread,
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

/* Set a key as the options say; with GET answer what it was. Returns the
 * verdict that was done; negative: an error was answered. */
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
	const struct reef_map_entry *ahead =
		options->flags & KEEPTTL ? NULL : &set.what;
	int rc;

	if (!(options->flags & CONDITIONS)) {
		rc = redis_put(thread, client, key, value, options->expires_ms);
		return rc ? rc : REEF_MAP_PUT;
	}
	if (options->flags & GET)
		rc = redis_change(thread, client, key, decide_set, &set, ahead);
	else
		rc = redis_change_blind(thread, client, client->db, key,
					decide_set, &set, ahead);
	if (rc < 0 || !(options->flags & GET))
		return rc;
	if (set.was_there)
		redis_reply_value(thread, client);
	else
		redis_reply_null(&client->reply);
	return rc;
}

/* A SET without conditions whose value was received into the pool already. */
static void set_staged(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, uint64_t expires_ms)
{
	struct reef_map *map;
	int rc;

	if (!redis_map(thread, client, &map))
		return;
	rc = redis_stage_put(request, map, expires_ms);
	if (rc)
		redis_reply_key_failure(thread, client, &request->argv[1], rc);
	else
		redis_reply_status(&client->reply, "OK");
}

static void run_set(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	struct options options = {0};
	int rc;

	if (request->argc > 3 &&
	    (!parse_options(client, request, 3, true, &options) ||
	     !parse_deadline(thread, client, &options)))
		return;
	if (request->staged && !(options.flags & CONDITIONS)) {
		set_staged(thread, client, request, options.expires_ms);
		return;
	}
	rc = request->staged ? redis_parser_unstage(&client->parser) : 0;
	if (rc) {
		redis_reply_failure(thread, client, rc);
		return;
	}
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

	if (parse_deadline(thread, client, &options) &&
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

static int decide_read(void *context, const struct reef_map_entry *now,
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

static void read_and_change(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_bytes *key,
			    const struct options *options)
{
	struct take take = {.thread = thread, .options = options};

	if (redis_change(thread, client, key, decide_read, &take, NULL) < 0)
		return;
	if (take.was_there)
		redis_reply_value(thread, client);
	else
		redis_reply_null(&client->reply);
}

static void run_getdel(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	read_and_change(thread, client, &request->argv[1], NULL);
}

static void run_getex(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	struct options options = {0};
	int rc;

	if (!parse_options(client, request, 2, false, &options))
		return;
	/* As in Redis, a wrong deadline is an error only if the key is
	 * there. */
	if (!options.flags || options.time) {
		rc = redis_read(thread, client, &request->argv[1]);
		if (rc == -ENOENT)
			redis_reply_null(&client->reply);
		if (rc == 0 && !options.flags)
			redis_reply_value(thread, client);
		if (rc || !options.flags ||
		    !parse_deadline(thread, client, &options))
			return;
	}
	read_and_change(thread, client, &request->argv[1], &options);
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
	 .run_many = redis_run_gets,
	 .many_argc = 2},
	{.name = "set",
	 .arity = -3,
	 .flags = PUT,
	 .first_key = 1,
	 .last_key = 1,
	 .key_step = 1,
	 .run = run_set,
	 .run_many = redis_run_sets,
	 .many_argc = 3},
	REDIS_COMMAND("setnx", 3, PUT | REDIS_FAST, 1, 1, 1, run_setnx),
	REDIS_COMMAND("setex", 4, PUT, 1, 1, 1, run_setex),
	REDIS_COMMAND("psetex", 4, PUT, 1, 1, 1, run_psetex),
	REDIS_COMMAND("getset", 3, PUT | REDIS_FAST, 1, 1, 1, run_getset),
	REDIS_COMMAND("getdel", 2, REDIS_WRITE | REDIS_FAST, 1, 1, 1,
		      run_getdel),
	REDIS_COMMAND("getex", -2, REDIS_WRITE | REDIS_FAST, 1, 1, 1,
		      run_getex),
	{0},
};
