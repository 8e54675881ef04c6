/* keyspace.c - what takes two keys, and clearing databases.
 *
 * RENAME and COPY read one key and put the other. A rename deletes the first
 * only if it has the version that was read, and begins anew if not; if it is
 * gone, what the second one was comes back. So nothing that others put
 * meanwhile is lost, but for a moment both keys are there. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/transactions.h"
#include "gateway/redis/server/door.h"
#include "kv/pieces.h"

#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 1000u

/* --- RENAME, RENAMENX, COPY --- */

struct move {
	const struct reef_map_value *value; /* what is to be put */
	bool is_new;			    /* only where nothing is */
	uint64_t placed; /* the version that we put ourselves; 0: none yet */
	uint64_t expected;
	/* Of a rename: what was there before, should it have to go back. */
	bool keeps, had;
	char *before;
	size_t before_size;
	uint64_t before_ms;
};

static int keep_before(struct move *move, const struct reef_map_entry *now)
{
	char *bytes;

	move->had = now != NULL;
	if (!now)
		return 0;
	bytes = realloc(move->before, now->value_size + 1);
	if (!bytes)
		return -ENOMEM;
	move->before = bytes;
	move->before_size = now->value_size;
	move->before_ms = now->expires_ms;
	if (now->value_size)
		memcpy(bytes, now->value, now->value_size);
	return 0;
}

static int decide_place(void *context, const struct reef_map_entry *now,
			struct reef_map_entry *put)
{
	struct move *move = context;
	bool is_ours = now && move->placed && now->version == move->placed;
	int rc;

	if (move->is_new && now && !is_ours)
		return REEF_MAP_LEAVE;
	rc = move->keeps && !is_ours ? keep_before(move, now) : 0;
	if (rc)
		return rc;
	put->value = move->value->bytes;
	put->value_size = move->value->size;
	put->expires_ms = move->value->expires_ms;
	return REEF_MAP_PUT;
}

static int decide_remove(void *context, const struct reef_map_entry *now,
			 struct reef_map_entry *put)
{
	const struct move *move = context;

	(void)put;
	return now && now->version == move->expected ? REEF_MAP_DELETE
						     : REEF_MAP_LEAVE;
}

/* Put back what was there before the rename, unless somebody has put another
 * value since. */
static int decide_back(void *context, const struct reef_map_entry *now,
		       struct reef_map_entry *put)
{
	const struct move *move = context;

	if (!now || now->version != move->expected)
		return REEF_MAP_LEAVE;
	if (!move->had)
		return REEF_MAP_DELETE;
	put->value = move->before;
	put->value_size = move->before_size;
	put->expires_ms = move->before_ms;
	return REEF_MAP_PUT;
}

/* Undo what a rename put, because its first key has gone meanwhile. */
static void restore_before(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_bytes *to, struct move *move)
{
	struct redis_mark mark = redis_reply_mark(&client->reply);

	move->expected = move->placed;
	if (move->expected)
		redis_change_blind(thread, client, client->db, to, decide_back,
				   move, NULL);
	redis_reply_rewind(&client->reply, mark);
}

/* Try to rename once. 1: renamed.  0: is_new, and the second key was there.
 * -EAGAIN: another client changed the first key meanwhile.  Others: an error
 * was answered. */
static int try_rename(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_bytes *from,
		      const struct redis_bytes *to, struct move *move)
{
	bool is_same = from->size == to->size &&
		       !memcmp(from->bytes, to->bytes, to->size);
	int rc = redis_peek(thread, client, from);

	if (rc == -ENOENT) {
		restore_before(thread, client, to, move);
		redis_reply_error(&client->reply, "ERR no such key");
	}
	if (rc)
		return -EIO;
	if (is_same)
		return !move->is_new;
	move->value = &thread->value;
	move->expected = thread->value.version;
	if (move->keeps)
		rc = redis_change(thread, client, to, decide_place, move, NULL);
	else
		rc = redis_change_blind(thread, client, client->db, to,
					decide_place, move, NULL);
	if (rc != REEF_MAP_PUT)
		return rc < 0 ? -EIO : 0;
	move->placed = thread->version;
	rc = redis_change_blind(thread, client, client->db, from, decide_remove,
				move, NULL);
	if (rc < 0)
		return -EIO;
	return rc == REEF_MAP_DELETE ? 1 : -EAGAIN;
}

static int rename_key(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request, bool is_new)
{
	struct move move = {.is_new = is_new, .keeps = !is_new};
	uint32_t attempt;
	int rc = -EAGAIN;

	for (attempt = 0; attempt < ATTEMPTS && rc == -EAGAIN; attempt++)
		rc = try_rename(thread, client, &request->argv[1],
				&request->argv[2], &move);
	if (rc == -EAGAIN)
		redis_reply_failure(thread, client, -EBUSY);
	redis_value_trim(thread);
	free(move.before);
	return rc;
}

static void run_rename(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	if (rename_key(thread, client, request, false) >= 0)
		redis_reply_status(&client->reply, "OK");
}

static void run_renamenx(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	int rc = rename_key(thread, client, request, true);

	if (rc >= 0)
		redis_reply_integer(&client->reply, rc);
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
	struct move move = {.value = &thread->value};
	uint32_t db = client->db;
	bool replace = false;
	int rc;

	if (!parse_copy(thread, client, request, &db, &replace))
		return;
	rc = redis_read(thread, client, &request->argv[1]);
	if (rc == -ENOENT)
		redis_reply_integer(&client->reply, 0);
	if (rc)
		return;
	move.is_new = !replace;
	rc = redis_change_blind(thread, client, db, &request->argv[2],
				decide_place, &move, NULL);
	if (rc >= 0)
		redis_reply_integer(&client->reply, rc == REEF_MAP_PUT);
	redis_value_trim(thread);
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
	if (!rc && client->transaction)
		redis_transaction_changed(client, db, NULL);
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
	REDIS_COMMAND("flushdb", -1, WRITE | REDIS_LONG, 0, 0, 0, run_flushdb),
	REDIS_COMMAND("flushall", -1, WRITE | REDIS_LONG, 0, 0, 0,
		      run_flushall),
	{0},
};
