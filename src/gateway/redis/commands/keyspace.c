/* keyspace.c - what takes two keys, and clearing databases. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/atomic.h"
#include "gateway/redis/server/door.h"
#include "kv/pieces.h"

#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <string.h>

/* --- RENAME, RENAMENX, COPY --- */

struct move {
	const struct redis_bytes *from, *to;
	uint32_t from_db, to_db;
	bool is_new;	/* only where nothing is */
	bool is_rename; /* the first goes */
	/* What came of it. */
	bool was_there, is_done;
};

static bool is_same_key(const struct move *move)
{
	return move->from_db == move->to_db &&
	       move->from->size == move->to->size &&
	       !memcmp(move->from->bytes, move->to->bytes, move->to->size);
}

static int decide_place(void *context, const struct reef_map_entry *now,
			struct reef_map_entry *put)
{
	const struct redis_thread *thread = context;

	(void)now;
	put->value = thread->value.bytes;
	put->value_size = thread->value.size;
	put->expires_ms = thread->value.expires_ms;
	return REEF_MAP_PUT;
}

static int decide_new(void *context, const struct reef_map_entry *now,
		      struct reef_map_entry *put)
{
	return now ? REEF_MAP_LEAVE : decide_place(context, now, put);
}

static int move_key(struct redis_thread *thread, struct redis_client *client,
		    void *context)
{
	struct move *move = context;
	int rc = move->is_rename ? redis_peek(thread, client, move->from)
				 : redis_read(thread, client, move->from);

	move->is_done = false;
	move->was_there = !rc;
	if (rc)
		return rc == -ENOENT ? 0 : REDIS_ANSWERED;
	if (is_same_key(move)) {
		move->is_done = !move->is_new;
		return 0;
	}
	rc = redis_change_blind(thread, client, move->to_db, move->to,
				move->is_new ? decide_new : decide_place,
				thread, NULL);
	if (rc < 0)
		return REDIS_ANSWERED;
	move->is_done = rc == REEF_MAP_PUT;
	if (!move->is_done || !move->is_rename)
		return 0;
	rc = redis_delete(thread, client, move->from);
	return rc < 0 ? REDIS_ANSWERED : 0;
}

/* True: it was tried, and there was something to move, or is_done is false. */
static bool move_at_once(struct redis_thread *thread,
			 struct redis_client *client, struct move *move)
{
	int rc = redis_atomically(thread, client, move_key, move, false);

	redis_value_trim(thread);
	return !rc;
}

static void rename_key(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, bool is_new)
{
	struct move move = {
		.from = &request->argv[1],
		.to = &request->argv[2],
		.from_db = client->db,
		.to_db = client->db,
		.is_new = is_new,
		.is_rename = true,
	};

	if (!move_at_once(thread, client, &move))
		return;
	if (!move.was_there)
		redis_reply_error(&client->reply, "ERR no such key");
	else if (is_new)
		redis_reply_integer(&client->reply, move.is_done);
	else
		redis_reply_status(&client->reply, "OK");
}

static void run_rename(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	rename_key(thread, client, request, false);
}

static void run_renamenx(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	rename_key(thread, client, request, true);
}

static bool parse_copy(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, uint32_t *db,
		       bool *replace)
{
	const struct redis_bytes *from = &request->argv[1], *to = from + 1;
	int64_t number;
	uint32_t i;

	for (i = 3; i < request->argc; i++) {
		if (redis_bytes_is(&request->argv[i], "replace")) {
			*replace = true;
		} else if (redis_bytes_is(&request->argv[i], "db") &&
			   i + 1 < request->argc) {
			if (!redis_take_integer(client, &request->argv[++i],
						&number))
				return false;
			if (number < INT_MIN || number > INT_MAX) {
				redis_reply_error(
					&client->reply,
					"ERR value is out of range, value must "
					"between -2147483648 and 2147483647");
				return false;
			}
			if (number < 0 || number >= redis_databases(thread)) {
				redis_reply_error(&client->reply,
						  "ERR DB index is out of "
						  "range");
				return false;
			}
			*db = (uint32_t)number;
		} else {
			redis_reply_syntax(client);
			return false;
		}
	}
	if (*db != client->db || from->size != to->size ||
	    memcmp(from->bytes, to->bytes, to->size))
		return true;
	redis_reply_error(&client->reply,
			  "ERR source and destination objects are the same");
	return false;
}

static void run_copy(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct move move = {
		.from = &request->argv[1],
		.to = &request->argv[2],
		.from_db = client->db,
		.to_db = client->db,
	};
	bool replace = false;

	if (!parse_copy(thread, client, request, &move.to_db, &replace))
		return;
	move.is_new = !replace;
	if (move_at_once(thread, client, &move))
		redis_reply_integer(&client->reply, move.is_done);
}

/* --- FLUSHDB, FLUSHALL --- */

/* Parse SYNC or ASYNC, which are the same here. False: an error was
 * answered. */
static bool parse_flush(struct redis_client *client,
			const struct redis_request *request)
{
	if (request->argc == 1 ||
	    (request->argc == 2 &&
	     (redis_bytes_is(&request->argv[1], "sync") ||
	      redis_bytes_is(&request->argv[1], "async"))))
		return true;
	redis_reply_syntax(client);
	return false;
}

/* Delete all keys of a database. False: an error was answered, or the client
 * is gone. */
static bool clear_database(struct redis_thread *thread,
			   struct redis_client *client, uint32_t db)
{
	struct reef_map *map;
	uint64_t cursor = 0;
	int rc;

	do {
		if (!redis_pause(thread, client))
			return false;
		rc = redis_map_existing(thread, db, &map);
		if (!rc)
			rc = map_clear_some(map, &cursor);
	} while (!rc && cursor);
	thread->key_counts[db].until_ns = 0;
	/* A map that has lost a part with a node is dropped as a whole. */
	if (rc == -REEF_ELOST)
		rc = redis_map_drop(thread, db);
	if (rc < 0 && rc != -ENOENT)
		redis_reply_failure(thread, client, rc);
	return rc >= 0 || rc == -ENOENT;
}

static void run_flushdb(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	if (parse_flush(client, request) &&
	    clear_database(thread, client, client->db))
		redis_reply_status(&client->reply, "OK");
}

static void run_flushall(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	uint32_t db;

	if (!parse_flush(client, request))
		return;
	for (db = 0; db < redis_databases(thread); db++)
		if (!clear_database(thread, client, db))
			return;
	redis_reply_status(&client->reply, "OK");
}

#define WRITE REDIS_WRITE

struct redis_command redis_keyspace_commands[] = {
	REDIS_COMMAND("rename", 3, WRITE, 1, 2, 1, run_rename),
	REDIS_COMMAND("renamenx", 3, WRITE | REDIS_FAST, 1, 2, 1, run_renamenx),
	REDIS_COMMAND("copy", -3, WRITE | REDIS_DENYOOM, 1, 2, 1, run_copy),
	REDIS_COMMAND("flushdb", -1, WRITE | REDIS_LONG | REDIS_WHOLE, 0, 0, 0,
		      run_flushdb),
	REDIS_COMMAND("flushall", -1, WRITE | REDIS_LONG | REDIS_WHOLE, 0, 0, 0,
		      run_flushall),
	{0},
};
