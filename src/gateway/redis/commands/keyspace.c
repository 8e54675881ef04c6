/* keyspace.c - databases as a whole (going through all keys, clearing), and
 * what takes two keys.
 *
 * RENAME and COPY read one key and put the other. A rename deletes the first
 * only if it has the version that was read, and begins anew if not; if it is
 * gone, what the second one was comes back. So nothing that others put
 * meanwhile is lost, but for a moment both keys are there. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/transactions.h"
#include "gateway/redis/protocol/glob.h"
#include "gateway/redis/server/door.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <stdlib.h>
#include <string.h>

#define ATTEMPTS 1000u
#define STEPS 64u	  /* groups at a time, of those who want all */
#define KEYS_OF_A_STEP 10 /* about */
#define COUNT_DEFAULT 10
#define RANDOM_TRIES 8u
#define RANDOM_ENOUGH 16u /* keys to choose from in a map nearly empty */
#define CURSOR_BITS 34

/* --- SCAN --- */

struct scan {
	struct redis_client *client;
	const struct redis_bytes *pattern; /* NULL: all */
	bool is_other_type;		   /* of which there are none */
	uint64_t cursor;
	int64_t wanted, met; /* keys, whether they match or not */
	/* What was found: sizes and bytes. */
	char *keys;
	size_t used, room;
	uint64_t count;
};

static bool matches_pattern(const struct redis_bytes *pattern,
			    const struct reef_map_entry *entry)
{
	return !pattern || redis_glob(pattern->bytes, pattern->size, entry->key,
				      entry->key_size, false);
}

static const struct redis_bytes *pattern_of(const struct redis_bytes *bytes)
{
	return redis_glob_is_all(bytes->bytes, bytes->size) ? NULL : bytes;
}

static int scan_key(void *context, const struct reef_map_entry *entry)
{
	struct scan *scan = context;
	size_t needed = scan->used + sizeof(size_t) + entry->key_size, room;
	char *keys;

	scan->met++;
	if (scan->is_other_type || !matches_pattern(scan->pattern, entry))
		return 0;
	if (needed > scan->room) {
		room = 2 * needed + 1024;
		keys = realloc(scan->keys, room);
		if (!keys)
			return -ENOMEM;
		scan->keys = keys;
		scan->room = room;
	}
	memcpy(scan->keys + scan->used, &entry->key_size, sizeof(size_t));
	memcpy(scan->keys + scan->used + sizeof(size_t), entry->key,
	       entry->key_size);
	scan->used = needed;
	scan->count++;
	return 0;
}

static void reply_keys(struct redis_reply *reply, const struct scan *scan)
{
	size_t at = 0, size;

	redis_reply_array(reply, scan->count);
	while (at < scan->used) {
		memcpy(&size, scan->keys + at, sizeof(size));
		redis_reply_bulk(reply, scan->keys + at + sizeof(size), size);
		at += sizeof(size) + size;
	}
}

/* Parse a cursor as Redis does, by strtoul: a sign is fine, and nothing at all
 * is 0. */
static bool parse_cursor(struct redis_client *client,
			 const struct redis_bytes *bytes, uint64_t *cursor)
{
	char text[32], *end = text;
	bool is_cursor =
		bytes->size < sizeof(text) &&
		!(bytes->size && isspace((unsigned char)bytes->bytes[0]));

	if (is_cursor) {
		memcpy(text, bytes->bytes, bytes->size);
		text[bytes->size] = 0;
		errno = 0;
		*cursor = strtoull(text, &end, 10);
		is_cursor = errno != ERANGE && end == text + bytes->size;
	}
	if (!is_cursor)
		redis_reply_error(&client->reply, "ERR invalid cursor");
	return is_cursor;
}

static bool parse_scan(struct redis_client *client,
		       const struct redis_request *request, struct scan *scan)
{
	const struct redis_bytes *word, *value;
	uint32_t i;

	scan->wanted = COUNT_DEFAULT;
	if (!parse_cursor(client, &request->argv[1], &scan->cursor))
		return false;
	for (i = 2; i < request->argc; i += 2) {
		word = &request->argv[i];
		value = word + 1;
		if (i + 1 == request->argc) {
			goto syntax;
		} else if (redis_bytes_is(word, "count")) {
			if (!redis_take_integer(client, value, &scan->wanted))
				return false;
			if (scan->wanted < 1)
				goto syntax;
		} else if (redis_bytes_is(word, "match")) {
			scan->pattern = pattern_of(value);
		} else if (redis_bytes_is(word, "type")) {
			scan->is_other_type = !redis_bytes_is(value, "string");
		} else {
			goto syntax;
		}
	}
	return true;
syntax:
	redis_reply_syntax(client);
	return false;
}

/* Scan as many groups as it takes to meet the keys that were asked for, and no
 * more than ten for each, should the map be nearly empty. */
static int scan_some(struct reef_map *map, struct scan *scan)
{
	int64_t left =
		scan->wanted > INT64_MAX / 10 ? INT64_MAX : 10 * scan->wanted;
	int64_t steps;
	int rc;

	do {
		steps = (scan->wanted - scan->met - 1) / KEYS_OF_A_STEP + 1;
		if (steps > STEPS)
			steps = STEPS;
		left -= steps;
		rc = reef_map_scan_keys(map, &scan->cursor, (uint32_t)steps,
					scan_key, scan);
	} while (!rc && scan->cursor && left > 0 && scan->met < scan->wanted);
	return rc;
}

static void run_scan(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct scan scan = {.client = client};
	struct reef_map *map;
	int rc;

	if (!parse_scan(client, request, &scan) ||
	    !redis_map(thread, client, &map))
		return;
	rc = scan_some(map, &scan);
	if (rc) {
		redis_reply_failure(thread, client, rc);
	} else {
		redis_reply_array(&client->reply, 2);
		redis_reply_textf(&client->reply, "%llu",
				  (unsigned long long)scan.cursor);
		reply_keys(&client->reply, &scan);
	}
	free(scan.keys);
}

/* --- KEYS, RANDOMKEY, DBSIZE --- */

static int reply_key(void *context, const struct reef_map_entry *entry)
{
	struct scan *scan = context;

	if (!matches_pattern(scan->pattern, entry))
		return 0;
	scan->count++;
	redis_reply_bulk(&scan->client->reply, entry->key, entry->key_size);
	return 0;
}

static void run_keys(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct scan scan = {.client = client,
			    .pattern = pattern_of(&request->argv[1])};
	struct redis_mark mark = redis_reply_mark(&client->reply);
	struct reef_map *map;
	int rc;

	if (!redis_map(thread, client, &map))
		return;
	do
		rc = reef_map_scan_keys(map, &scan.cursor, STEPS, reply_key,
					&scan);
	while (!rc && scan.cursor);
	if (!rc) {
		redis_reply_wrap(&client->reply, mark, '*', scan.count);
		return;
	}
	redis_reply_rewind(&client->reply, mark);
	redis_reply_failure(thread, client, rc);
}

struct chosen {
	struct redis_thread *thread;
	uint64_t met;
};

/* Choose one of the keys that are met, each with the same chance. */
static int choose_key(void *context, const struct reef_map_entry *entry)
{
	struct chosen *chosen = context;
	char *room;

	if (reef_random_below(&chosen->thread->random, ++chosen->met))
		return 0;
	room = redis_value_room(chosen->thread, entry->key_size);
	if (!room)
		return -ENOMEM;
	memcpy(room, entry->key, entry->key_size);
	return 0;
}

static uint64_t random_cursor(struct redis_thread *thread)
{
	return reef_random_below(&thread->random, UINT64_C(1) << CURSOR_BITS);
}

/* Meet keys from a place on, until there are enough to choose from, or the map
 * ends. */
static int meet_keys(struct reef_map *map, uint64_t cursor,
		     struct chosen *chosen)
{
	int rc;

	chosen->met = 0;
	do
		rc = reef_map_scan_keys(map, &cursor, STEPS, choose_key,
					chosen);
	while (!rc && cursor && chosen->met < RANDOM_ENOUGH);
	return rc;
}

/* Any number is a cursor, to some place in the map or its end. So we scan from
 * random places. If none of them has a key the map is nearly empty, and the
 * first key behind a place would be nearly always the same one: then we choose
 * from several, or from all if there are no more. */
static void run_randomkey(struct redis_thread *thread,
			  struct redis_client *client,
			  const struct redis_request *request)
{
	struct chosen chosen = {.thread = thread};
	struct reef_map *map;
	uint64_t cursor;
	uint32_t try;
	int rc = 0;

	if (!redis_map(thread, client, &map))
		return;
	for (try = 0; try < RANDOM_TRIES && !rc && !chosen.met; try++) {
		cursor = random_cursor(thread);
		rc = reef_map_scan_keys(map, &cursor, 1, choose_key, &chosen);
	}
	if (!rc && !chosen.met) {
		rc = meet_keys(map, random_cursor(thread), &chosen);
		if (!rc && chosen.met < RANDOM_ENOUGH)
			rc = meet_keys(map, 0, &chosen);
	}
	if (rc)
		redis_reply_failure(thread, client, rc);
	else if (chosen.met)
		redis_reply_value(thread, client);
	else
		redis_reply_null(&client->reply);
	(void)request;
}

static void run_dbsize(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct reef_map *map;
	uint64_t count;
	int rc;

	if (!redis_map(thread, client, &map))
		return;
	rc = reef_map_count(map, &count);
	if (rc)
		redis_reply_failure(thread, client, rc);
	else
		redis_reply_integer(&client->reply, (int64_t)count);
	(void)request;
}

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

/* Delete all keys of a database. False: an error was answered. */
static bool clear_database(struct redis_thread *thread,
			   struct redis_client *client, uint32_t db)
{
	struct reef_map *map;
	int rc = redis_map_existing(thread, db, &map);

	if (!rc)
		rc = reef_map_clear(map);
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
	REDIS_COMMAND("scan", -2, REDIS_READONLY, 0, 0, 0, run_scan),
	REDIS_COMMAND("keys", 2, REDIS_READONLY, 0, 0, 0, run_keys),
	REDIS_COMMAND("randomkey", 1, REDIS_READONLY, 0, 0, 0, run_randomkey),
	REDIS_COMMAND("dbsize", 1, REDIS_READONLY | REDIS_FAST, 0, 0, 0,
		      run_dbsize),
	REDIS_COMMAND("rename", 3, WRITE, 1, 2, 1, run_rename),
	REDIS_COMMAND("renamenx", 3, WRITE | REDIS_FAST, 1, 2, 1, run_renamenx),
	REDIS_COMMAND("copy", -3, WRITE | REDIS_DENYOOM, 1, 2, 1, run_copy),
	REDIS_COMMAND("flushdb", -1, WRITE, 0, 0, 0, run_flushdb),
	REDIS_COMMAND("flushall", -1, WRITE, 0, 0, 0, run_flushall),
	{0},
};
