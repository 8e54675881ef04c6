/* scan.c - going through all keys of a database.
 *
 * The number of keys stands before them in an answer, so those that were found
 * are kept until the end, as the bytes that will be sent. Keys are matched
 * outside of the map's call, at a pace, since a pattern may take long. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/protocol/glob.h"
#include "gateway/redis/protocol/number.h"
#include "gateway/redis/server/door.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 16u	  /* groups at a time, of those who want all */
#define KEYS_OF_A_STEP 10 /* about */
#define COUNT_DEFAULT 10
#define RANDOM_TRIES 8u
#define RANDOM_ENOUGH 16u /* keys to choose from in a map nearly empty */
#define CURSOR_BITS 34

/* Bytes that grow. */
struct heap {
	char *bytes;
	size_t used, room;
};

static char *add_bytes(struct heap *heap, size_t size)
{
	size_t room = 2 * (heap->used + size) + 1024;
	char *bytes = heap->bytes;

	if (heap->room - heap->used < size) {
		bytes = realloc(bytes, room);
		if (!bytes)
			return NULL;
		heap->bytes = bytes;
		heap->room = room;
	}
	heap->used += size;
	return bytes + heap->used - size;
}

/* --- SCAN, KEYS --- */

struct scan {
	struct redis_thread *thread;
	struct redis_client *client;
	struct redis_bytes pattern; /* a copy of ours; bytes NULL: all */
	bool is_other_type;	    /* of which there are none */
	uint64_t cursor;
	int64_t wanted, met; /* keys, whether they match or not */
	struct heap keys;    /* of some groups: sizes and bytes */
	struct heap found;   /* as they will be answered */
	uint64_t count;
};

static void fini_scan(struct scan *scan)
{
	free((char *)scan->pattern.bytes);
	free(scan->keys.bytes);
	free(scan->found.bytes);
	scan->client->scratch = 0;
}

/* Copy the pattern: arguments may move while others are served. False: no
 * memory, and that was answered. */
static bool set_pattern(struct scan *scan, const struct redis_bytes *bytes)
{
	char *copy;

	free((char *)scan->pattern.bytes);
	scan->pattern = (struct redis_bytes){0};
	if (redis_glob_is_all(bytes->bytes, bytes->size))
		return true;
	copy = malloc(bytes->size + 1);
	if (!copy) {
		redis_reply_failure(scan->thread, scan->client, -ENOMEM);
		return false;
	}
	scan->pattern.bytes = copy;
	scan->pattern.size = bytes->size;
	memcpy(copy, bytes->bytes, bytes->size);
	return true;
}

static int note_key(void *context, const struct reef_map_entry *entry)
{
	struct scan *scan = context;
	const size_t size = entry->key_size;
	char *to = add_bytes(&scan->keys, sizeof(size) + size);

	if (!to)
		return -ENOMEM;
	memcpy(to, &size, sizeof(size));
	if (size)
		memcpy(to + sizeof(size), entry->key, size);
	return 0;
}

static bool keep_pace(void *context)
{
	const struct scan *scan = context;

	return redis_pause(scan->thread, scan->client);
}

static bool matches(struct scan *scan, const char *key, size_t size)
{
	if (scan->is_other_type)
		return false;
	return !scan->pattern.bytes ||
	       redis_glob_at_pace(scan->pattern.bytes, scan->pattern.size, key,
				  size, keep_pace, scan);
}

static int add_found(struct scan *scan, const char *key, size_t size)
{
	char head[REDIS_INTEGER_SIZE + 4] = "$", *to;
	size_t head_size = 1 + redis_integer_format((int64_t)size, head + 1);

	head[head_size++] = '\r';
	head[head_size++] = '\n';
	to = add_bytes(&scan->found, head_size + size + 2);
	if (!to)
		return -ENOMEM;
	memcpy(to, head, head_size);
	memcpy(to + head_size, key, size);
	to[head_size + size] = '\r';
	to[head_size + size + 1] = '\n';
	scan->count++;
	return 0;
}

/* Choose the keys that match of those that were met. 0, or an error. */
static int match_keys(struct scan *scan)
{
	size_t at = 0, size;
	int rc = 0;

	while (at < scan->keys.used && !rc) {
		const char *key = scan->keys.bytes + at + sizeof(size);

		memcpy(&size, scan->keys.bytes + at, sizeof(size));
		if (matches(scan, key, size))
			rc = add_found(scan, key, size);
		at += sizeof(size) + size;
		scan->met++;
	}
	return rc;
}

/* Scan some groups. 0.  -ECONNABORTED: the client is gone.  -EMSGSIZE: the
 * answer would be larger than may wait to be sent.  Errors of the map. */
static int scan_step(struct scan *scan, uint32_t steps)
{
	const struct redis_door_config *config =
		redis_door_config(scan->thread->door);
	struct reef_map *map;
	int rc;

	if (!redis_pause(scan->thread, scan->client))
		return -ECONNABORTED;
	rc = redis_map_try(scan->thread, scan->client->db, &map);
	scan->keys.used = 0;
	if (!rc)
		rc = reef_map_scan_keys(map, &scan->cursor, steps, note_key,
					scan);
	if (!rc)
		rc = match_keys(scan);
	scan->client->scratch = scan->keys.room + scan->found.room;
	if (!rc &&
	    scan->found.used > atomic_load_explicit(&config->output_max,
						    memory_order_relaxed))
		rc = -EMSGSIZE;
	return rc;
}

static void reply_scan_failure(struct scan *scan, int rc)
{
	if (rc == -EMSGSIZE)
		redis_reply_error(&scan->client->reply,
				  "ERR the answer is larger than "
				  "client-output-buffer-limit: use SCAN, or a "
				  "smaller COUNT");
	else if (rc != -ECONNABORTED)
		redis_reply_failure(scan->thread, scan->client, rc);
}

static void reply_found(struct scan *scan)
{
	struct redis_reply *reply = &scan->client->reply;

	redis_reply_array(reply, scan->count);
	redis_reply_raw_owned(reply, scan->found.bytes, scan->found.used,
			      scan->found.room);
	scan->found = (struct heap){0};
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
			if (!set_pattern(scan, value))
				return false;
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
static int scan_some(struct scan *scan)
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
		rc = scan_step(scan, (uint32_t)steps);
	} while (!rc && scan->cursor && left > 0 && scan->met < scan->wanted);
	return rc;
}

static void run_scan(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct scan scan = {.thread = thread, .client = client};
	int rc;

	if (parse_scan(client, request, &scan)) {
		rc = scan_some(&scan);
		if (rc) {
			reply_scan_failure(&scan, rc);
		} else {
			redis_reply_array(&client->reply, 2);
			redis_reply_textf(&client->reply, "%llu",
					  (unsigned long long)scan.cursor);
			reply_found(&scan);
		}
	}
	fini_scan(&scan);
}

static void run_keys(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct scan scan = {.thread = thread, .client = client};
	int rc = 0;

	if (set_pattern(&scan, &request->argv[1])) {
		do
			rc = scan_step(&scan, STEPS);
		while (!rc && scan.cursor);
		if (rc)
			reply_scan_failure(&scan, rc);
		else
			reply_found(&scan);
	}
	fini_scan(&scan);
}

/* --- RANDOMKEY, DBSIZE --- */

struct chosen {
	struct redis_thread *thread;
	struct redis_client *client;
	uint64_t met;
	struct heap key;
};

/* Choose one of the keys that are met, each with the same chance. */
static int choose_key(void *context, const struct reef_map_entry *entry)
{
	struct chosen *chosen = context;
	char *to;

	if (reef_random_below(&chosen->thread->random, ++chosen->met))
		return 0;
	chosen->key.used = 0;
	to = add_bytes(&chosen->key, entry->key_size);
	if (!to)
		return -ENOMEM;
	if (entry->key_size)
		memcpy(to, entry->key, entry->key_size);
	return 0;
}

static uint64_t random_cursor(struct redis_thread *thread)
{
	return reef_random_below(&thread->random, UINT64_C(1) << CURSOR_BITS);
}

/* Meet the keys of some groups, and move the cursor behind them. Errors as
 * scan_step has them. */
static int meet_some(struct chosen *chosen, uint64_t *cursor, uint32_t steps)
{
	struct reef_map *map;
	int rc;

	if (!redis_pause(chosen->thread, chosen->client))
		return -ECONNABORTED;
	rc = redis_map_try(chosen->thread, chosen->client->db, &map);
	return rc ? rc
		  : reef_map_scan_keys(map, cursor, steps, choose_key, chosen);
}

/* Meet keys from a place on, until there are enough to choose from, or the map
 * ends. */
static int meet_keys(struct chosen *chosen, uint64_t cursor)
{
	int rc;

	chosen->met = 0;
	do
		rc = meet_some(chosen, &cursor, STEPS);
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
	struct chosen chosen = {.thread = thread, .client = client};
	uint64_t cursor;
	uint32_t try;
	int rc = 0;

	(void)request;
	for (try = 0; try < RANDOM_TRIES && !rc && !chosen.met; try++) {
		cursor = random_cursor(thread);
		rc = meet_some(&chosen, &cursor, 1);
	}
	if (!rc && !chosen.met) {
		rc = meet_keys(&chosen, random_cursor(thread));
		if (!rc && chosen.met < RANDOM_ENOUGH)
			rc = meet_keys(&chosen, 0);
	}
	if (rc && rc != -ECONNABORTED)
		redis_reply_failure(thread, client, rc);
	else if (!rc && chosen.met)
		redis_reply_bulk(&client->reply, chosen.key.bytes,
				 chosen.key.used);
	else if (!rc)
		redis_reply_null(&client->reply);
	free(chosen.key.bytes);
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

#define READ (REDIS_READONLY | REDIS_WHOLE)

struct redis_command redis_scan_commands[] = {
	REDIS_COMMAND("scan", -2, READ | REDIS_LONG, 0, 0, 0, run_scan),
	REDIS_COMMAND("keys", 2, READ | REDIS_LONG, 0, 0, 0, run_keys),
	REDIS_COMMAND("randomkey", 1, READ | REDIS_LONG, 0, 0, 0,
		      run_randomkey),
	REDIS_COMMAND("dbsize", 1, READ | REDIS_FAST, 0, 0, 0, run_dbsize),
	{0},
};
