/* edit.c - strings in part: lengths, ranges, numbers.
 *
 * Each reads the value, makes a new one and puts it if the key did not change
 * meanwhile, in one reef_map_apply. When the key expires stays as it is. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char not_integer[] = "ERR value is not an integer or out of range";
static const char not_fraction[] = "ERR value is not a valid float";
static const char too_long[] =
	"ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/* --- STRLEN, GETRANGE --- */

static void run_strlen(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	int rc = redis_peek_head(thread, client, &request->argv[1]);

	if (rc == 0)
		redis_reply_integer(&client->reply,
				    (int64_t)thread->value.size);
	else if (rc == -ENOENT)
		redis_reply_integer(&client->reply, 0);
}

/* Cut thread->value to what lies between two places, from the end if they are
 * negative. */
static void cut_value(struct reef_map_value *value, int64_t from, int64_t to)
{
	int64_t size = (int64_t)value->size;
	bool is_backwards = from < 0 && to < 0 && from > to;

	if (from < 0)
		from = from + size < 0 ? 0 : from + size;
	if (to < 0)
		to = to + size < 0 ? 0 : to + size;
	if (to >= size)
		to = size - 1;
	if (is_backwards || from > to) {
		value->size = 0;
		return;
	}
	value->bytes = (const char *)value->bytes + from;
	value->size = (size_t)(to - from + 1);
}

static void run_getrange(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	int64_t from, to;
	int rc;

	if (!redis_take_integer(client, &request->argv[2], &from) ||
	    !redis_take_integer(client, &request->argv[3], &to))
		return;
	rc = redis_read(thread, client, &request->argv[1]);
	if (rc == -ENOENT)
		redis_reply_bulk(&client->reply, "", 0);
	if (rc)
		return;
	cut_value(&thread->value, from, to);
	redis_reply_value(thread, client);
}

/* --- APPEND, SETRANGE --- */

struct edit {
	struct redis_thread *thread;
	const struct redis_bytes *bytes;
	bool is_append;
	uint64_t offset, size_max;
	size_t size; /* of the value afterwards */
};

static int decide_edit(void *context, const struct reef_map_entry *now,
		       struct reef_map_entry *put)
{
	struct edit *edit = context;
	size_t before = now ? now->value_size : 0, size;
	uint64_t offset = edit->is_append ? before : edit->offset;
	char *room;

	edit->size = before;
	if (!edit->is_append && !edit->bytes->size)
		return REEF_MAP_LEAVE;
	if (offset + edit->bytes->size > edit->size_max)
		return redis_refuse(edit->thread, too_long);
	size = offset + edit->bytes->size;
	size = size < before ? before : size;
	room = redis_value_room(edit->thread, size);
	if (!room)
		return -ENOMEM;
	if (before)
		memcpy(room, now->value, before);
	if (offset > before)
		memset(room + before, 0, offset - before);
	memcpy(room + offset, edit->bytes->bytes, edit->bytes->size);
	edit->size = size;
	put->value = room;
	put->value_size = size;
	put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

static void edit_key(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_bytes *key, struct edit *edit)
{
	edit->thread = thread;
	edit->size_max =
		atomic_load_explicit(&redis_door_config(thread->door)->bulk_max,
				     memory_order_relaxed);
	if (edit->size_max > REDIS_VALUE_MAX)
		edit->size_max = REDIS_VALUE_MAX;
	if (redis_change(thread, client, key, decide_edit, edit, NULL) >= 0)
		redis_reply_integer(&client->reply, (int64_t)edit->size);
	redis_value_trim(thread);
}

static void run_append(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct edit edit = {.bytes = &request->argv[2], .is_append = true};

	edit_key(thread, client, &request->argv[1], &edit);
}

static void run_setrange(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	struct edit edit = {.bytes = &request->argv[3]};
	int64_t offset;

	if (!redis_take_integer(client, &request->argv[2], &offset))
		return;
	if (offset < 0) {
		redis_reply_error(&client->reply, "ERR offset is out of range");
		return;
	}
	edit.offset = (uint64_t)offset;
	edit_key(thread, client, &request->argv[1], &edit);
}

/* --- INCR and its kin --- */

struct sum {
	struct redis_thread *thread;
	int64_t add, after;
	char text[REDIS_INTEGER_SIZE];
};

static int decide_sum(void *context, const struct reef_map_entry *now,
		      struct reef_map_entry *put)
{
	struct sum *sum = context;
	int64_t before = 0;

	if (now && !redis_integer_parse(now->value, now->value_size, &before))
		return redis_refuse(sum->thread, not_integer);
	if (__builtin_add_overflow(before, sum->add, &sum->after))
		return redis_refuse(sum->thread, "ERR increment or decrement "
						 "would overflow");
	put->value_size = redis_integer_format(sum->after, sum->text);
	put->value = sum->text;
	put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

static void add_to_number(struct redis_thread *thread,
			  struct redis_client *client,
			  const struct redis_bytes *key, int64_t value)
{
	struct sum sum = {.thread = thread, .add = value};

	if (redis_change(thread, client, key, decide_sum, &sum, NULL) >= 0)
		redis_reply_integer(&client->reply, sum.after);
}

static void run_incr(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	add_to_number(thread, client, &request->argv[1], 1);
}

static void run_decr(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	add_to_number(thread, client, &request->argv[1], -1);
}

static void run_incrby(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	int64_t value;

	if (redis_take_integer(client, &request->argv[2], &value))
		add_to_number(thread, client, &request->argv[1], value);
}

static void run_decrby(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	int64_t value;

	if (!redis_take_integer(client, &request->argv[2], &value))
		return;
	if (value == INT64_MIN)
		redis_reply_error(&client->reply,
				  "ERR decrement would overflow");
	else
		add_to_number(thread, client, &request->argv[1], -value);
}

struct fraction {
	struct redis_thread *thread;
	const struct redis_bytes *add;
	size_t size;
	char text[REDIS_FRACTION_SIZE];
};

static int decide_fraction(void *context, const struct reef_map_entry *now,
			   struct reef_map_entry *put)
{
	struct fraction *fraction = context;
	long double value = 0, more;

	if (now && !redis_fraction_parse(now->value, now->value_size, &value))
		return redis_refuse(fraction->thread, not_fraction);
	if (!redis_fraction_parse(fraction->add->bytes, fraction->add->size,
				  &more))
		return redis_refuse(fraction->thread, not_fraction);
	value += more;
	if (isnan(value) || isinf(value))
		return redis_refuse(fraction->thread,
				    "ERR increment would produce NaN or "
				    "Infinity");
	fraction->size = redis_fraction_format(value, fraction->text);
	put->value = fraction->text;
	put->value_size = fraction->size;
	put->expires_ms = now ? now->expires_ms : 0;
	return REEF_MAP_PUT;
}

static void run_incrbyfloat(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	struct fraction fraction = {.thread = thread, .add = &request->argv[2]};

	if (redis_change(thread, client, &request->argv[1], decide_fraction,
			 &fraction, NULL) >= 0)
		redis_reply_bulk(&client->reply, fraction.text, fraction.size);
}

#define PUT (REDIS_WRITE | REDIS_DENYOOM)

struct redis_command redis_edit_commands[] = {
	REDIS_COMMAND("strlen", 2, REDIS_READONLY | REDIS_FAST, 1, 1, 1,
		      run_strlen),
	REDIS_COMMAND("getrange", 4, REDIS_READONLY, 1, 1, 1, run_getrange),
	REDIS_COMMAND("append", 3, PUT | REDIS_FAST, 1, 1, 1, run_append),
	REDIS_COMMAND("setrange", 4, PUT, 1, 1, 1, run_setrange),
	REDIS_COMMAND("incr", 2, PUT | REDIS_FAST, 1, 1, 1, run_incr),
	REDIS_COMMAND("decr", 2, PUT | REDIS_FAST, 1, 1, 1, run_decr),
	REDIS_COMMAND("incrby", 3, PUT | REDIS_FAST, 1, 1, 1, run_incrby),
	REDIS_COMMAND("decrby", 3, PUT | REDIS_FAST, 1, 1, 1, run_decrby),
	REDIS_COMMAND("incrbyfloat", 3, PUT | REDIS_FAST, 1, 1, 1,
		      run_incrbyfloat),
	{0},
};
