/* keys.c - single keys, whatever their values: whether they are there, when
 * they expire, and deleting them. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/atomic.h"

#include <errno.h>

/* --- DEL, EXISTS, TOUCH, TYPE --- */

/* What is done to each of several keys, and counted. */
struct several {
	const struct redis_request *request;
	/* 1: it counts.  0: it does not.  Negative: answered. */
	int (*each)(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_bytes *key);
	int64_t count;
};

static int do_each(struct redis_thread *thread, struct redis_client *client,
		   void *context)
{
	struct several *several = context;
	uint32_t i;
	int rc;

	several->count = 0;
	for (i = 1; i < several->request->argc; i++) {
		if (!redis_pause(thread, client))
			return -EPIPE;
		rc = several->each(thread, client, &several->request->argv[i]);
		if (rc < 0)
			return REDIS_ANSWERED;
		several->count += rc;
	}
	return 0;
}

static void count_keys(struct redis_thread *thread, struct redis_client *client,
		       struct several *several, bool only_reads)
{
	const bool is_part = client->unit != NULL;
	int rc = -ENOSPC;

	if (!redis_check_sizes(thread, client, several->request, 1))
		return;
	if (several->request->argc > 2)
		rc = redis_atomically_try(thread, client, do_each, several,
					  only_reads);
	/* One key needs nobody to hold it. And where there is no room for a
	 * transaction, keys are deleted one by one: that makes room. */
	if ((rc == -ENOSPC || rc == -EDQUOT) && !redis_unit_failed(client))
		rc = do_each(thread, client, several);
	redis_value_trim(thread);
	if (!rc)
		redis_reply_integer(&client->reply, several->count);
	else if (rc != REDIS_ANSWERED && rc != -EPIPE && !is_part)
		redis_reply_unit_failure(thread, client, rc);
}

static void run_del(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	struct several several = {.request = request, .each = redis_delete};

	count_keys(thread, client, &several, false);
}

static int is_there(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_bytes *key)
{
	int rc = redis_peek_head(thread, client, key);

	return rc == -ENOENT ? 0 : rc ? rc : 1;
}

static int touch_key(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_bytes *key)
{
	int rc = redis_touch(thread, client, key);

	return rc == -ENOENT ? 0 : rc ? rc : 1;
}

static void run_exists(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct several several = {.request = request, .each = is_there};

	count_keys(thread, client, &several, true);
}

static void run_touch(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	struct several several = {.request = request, .each = touch_key};

	count_keys(thread, client, &several, true);
}

static void run_type(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	int rc = redis_peek_head(thread, client, &request->argv[1]);

	if (rc == 0)
		redis_reply_status(&client->reply, "string");
	else if (rc == -ENOENT)
		redis_reply_status(&client->reply, "none");
}

/* --- EXPIRE and its kin --- */

enum condition { NX = 1 << 0, XX = 1 << 1, GT = 1 << 2, LT = 1 << 3 };

struct expire {
	uint32_t conditions;
	int64_t at_ms;
	uint64_t now_ms;
	bool is_done;
};

/* True if the conditions allow a key that expires at now_at (0: never, which
 * counts as the latest) to get the new time. */
static bool allows_expiry(const struct expire *expire, uint64_t now_at)
{
	int64_t at = now_at > INT64_MAX ? INT64_MAX : (int64_t)now_at;

	if (expire->conditions & NX && now_at)
		return false;
	if (expire->conditions & XX && !now_at)
		return false;
	if (expire->conditions & GT && (!now_at || expire->at_ms <= at))
		return false;
	return !(expire->conditions & LT && now_at && expire->at_ms >= at);
}

static int decide_expire(void *context, const struct reef_map_entry *now,
			 struct reef_map_entry *put)
{
	struct expire *expire = context;

	expire->is_done = now && allows_expiry(expire, now->expires_ms);
	if (!expire->is_done)
		return REEF_MAP_LEAVE;
	if (expire->at_ms <= (int64_t)expire->now_ms)
		return REEF_MAP_DELETE;
	put->value = now->value;
	put->value_size = now->value_size;
	put->expires_ms = (uint64_t)expire->at_ms;
	return REEF_MAP_PUT;
}

static bool parse_conditions(struct redis_client *client,
			     const struct redis_request *request,
			     uint32_t *conditions)
{
	const struct redis_bytes *word;
	uint32_t i;

	for (i = 3; i < request->argc; i++) {
		word = &request->argv[i];
		if (redis_bytes_is(word, "nx")) {
			*conditions |= NX;
		} else if (redis_bytes_is(word, "xx")) {
			*conditions |= XX;
		} else if (redis_bytes_is(word, "gt")) {
			*conditions |= GT;
		} else if (redis_bytes_is(word, "lt")) {
			*conditions |= LT;
		} else {
			redis_reply_errorf(&client->reply,
					   "ERR Unsupported option %.*s",
					   (int)word->size, word->bytes);
			return false;
		}
	}
	if (*conditions & NX && *conditions & (XX | GT | LT)) {
		redis_reply_error(&client->reply,
				  "ERR NX and XX, GT or LT options at the same "
				  "time are not compatible");
		return false;
	}
	if (*conditions & GT && *conditions & LT) {
		redis_reply_error(&client->reply,
				  "ERR GT and LT options at the same time are "
				  "not compatible");
		return false;
	}
	return true;
}

/* Parse a time in units of `unit` ms, from now on if is_relative, into a time
 * of the pool's clock. Unlike with SET it may have passed. False: an error was
 * answered. */
static bool parse_time(struct redis_client *client,
		       const struct redis_bytes *bytes, int64_t unit,
		       bool is_relative, struct expire *expire)
{
	int64_t at, base = is_relative ? (int64_t)expire->now_ms : 0;

	if (!redis_take_integer(client, bytes, &at))
		return false;
	if (!__builtin_mul_overflow(at, unit, &at) &&
	    !__builtin_add_overflow(at, base, &at)) {
		expire->at_ms = at;
		return true;
	}
	redis_reply_errorf(&client->reply,
			   "ERR invalid expire time in '%s' command",
			   client->command->name);
	return false;
}

static void expire_key(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, int64_t unit,
		       bool is_relative)
{
	struct expire expire = {0};

	if (!parse_conditions(client, request, &expire.conditions) ||
	    !redis_now(thread, client, &expire.now_ms) ||
	    !parse_time(client, &request->argv[2], unit, is_relative, &expire))
		return;
	if (redis_change(thread, client, &request->argv[1], decide_expire,
			 &expire, NULL) >= 0)
		redis_reply_integer(&client->reply, expire.is_done);
}

static void run_expire(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	expire_key(thread, client, request, 1000, true);
}

static void run_pexpire(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	expire_key(thread, client, request, 1, true);
}

static void run_expireat(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	expire_key(thread, client, request, 1000, false);
}

static void run_pexpireat(struct redis_thread *thread,
			  struct redis_client *client,
			  const struct redis_request *request)
{
	expire_key(thread, client, request, 1, false);
}

static int decide_persist(void *context, const struct reef_map_entry *now,
			  struct reef_map_entry *put)
{
	(void)context;
	if (!now || !now->expires_ms)
		return REEF_MAP_LEAVE;
	put->value = now->value;
	put->value_size = now->value_size;
	return REEF_MAP_PUT;
}

static void run_persist(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	int rc = redis_change(thread, client, &request->argv[1], decide_persist,
			      NULL, NULL);

	if (rc >= 0)
		redis_reply_integer(&client->reply, rc == REEF_MAP_PUT);
}

/* --- TTL and its kin --- */

static void reply_time(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, int64_t unit,
		       bool is_relative)
{
	uint64_t now_ms = 0, at_ms;
	int rc = redis_peek_head(thread, client, &request->argv[1]);

	if (rc && rc != -ENOENT)
		return;
	at_ms = rc ? 0 : thread->value.expires_ms;
	if (!at_ms) {
		redis_reply_integer(&client->reply, rc ? -2 : -1);
		return;
	}
	if (is_relative && !redis_now(thread, client, &now_ms))
		return;
	/* Seconds are rounded to the nearest; a key that expires just now has 0
	 * left. */
	at_ms = at_ms < now_ms ? 0 : at_ms - now_ms;
	redis_reply_integer(
		&client->reply,
		(int64_t)((at_ms + (unit > 1 ? 500 : 0)) / (uint64_t)unit));
}

static void run_ttl(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_request *request)
{
	reply_time(thread, client, request, 1000, true);
}

static void run_pttl(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	reply_time(thread, client, request, 1, true);
}

static void run_expiretime(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	reply_time(thread, client, request, 1000, false);
}

static void run_pexpiretime(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	reply_time(thread, client, request, 1, false);
}

#define READ (REDIS_READONLY | REDIS_FAST)
#define WRITE (REDIS_WRITE | REDIS_FAST)

struct redis_command redis_key_commands[] = {
	REDIS_COMMAND("del", -2, REDIS_WRITE | REDIS_LONG, 1, -1, 1, run_del),
	REDIS_COMMAND("unlink", -2, WRITE | REDIS_LONG, 1, -1, 1, run_del),
	REDIS_COMMAND("exists", -2, READ | REDIS_LONG, 1, -1, 1, run_exists),
	REDIS_COMMAND("touch", -2, READ | REDIS_LONG, 1, -1, 1, run_touch),
	REDIS_COMMAND("type", 2, READ, 1, 1, 1, run_type),
	REDIS_COMMAND("expire", -3, WRITE, 1, 1, 1, run_expire),
	REDIS_COMMAND("pexpire", -3, WRITE, 1, 1, 1, run_pexpire),
	REDIS_COMMAND("expireat", -3, WRITE, 1, 1, 1, run_expireat),
	REDIS_COMMAND("pexpireat", -3, WRITE, 1, 1, 1, run_pexpireat),
	REDIS_COMMAND("persist", 2, WRITE, 1, 1, 1, run_persist),
	REDIS_COMMAND("ttl", 2, READ, 1, 1, 1, run_ttl),
	REDIS_COMMAND("pttl", 2, READ, 1, 1, 1, run_pttl),
	REDIS_COMMAND("expiretime", 2, READ, 1, 1, 1, run_expiretime),
	REDIS_COMMAND("pexpiretime", 2, READ, 1, 1, 1, run_pexpiretime),
	{0},
};
