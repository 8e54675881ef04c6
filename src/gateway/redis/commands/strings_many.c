/* strings_many.c - reading and setting several keys in shared batches.
 *
 * Each key by itself is atomic; nobody holds them together (docs/REDIS.md). */
#include "gateway/redis/commands/strings.h"

#include "base/checksum.h"
#include "gateway/redis/commands/access.h"
#include "gateway/redis/server/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- MGET, and several GETs --- */

/* True if the answer to a call cannot be made now. A client whose calls are
 * left is_paused; here that is not known yet, so the call before tells. */
static bool must_be_left(const struct redis_thread *thread,
			 const struct redis_call *calls, uint32_t i)
{
	const struct redis_client *client = calls[i].client;

	if (i && calls[i - 1].client == client && calls[i - 1].is_left)
		return true;
	return redis_item_is_long(thread, i) &&
	       redis_reply_waiting(&client->reply) > redis_unsent_max(client);
}

/* Answer a long value that was not read with the others. */
static void reply_long(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_bytes *key)
{
	int rc = redis_read(thread, client, key);

	if (!rc)
		redis_reply_value(thread, client);
	else if (rc == -ENOENT)
		redis_reply_null(&client->reply);
}

void redis_run_gets(struct redis_thread *thread, struct redis_call *calls,
		    uint32_t count)
{
	struct redis_bytes keys[REDIS_MANY_MAX];
	struct redis_client *client;
	struct reef_map *map;
	uint32_t i;
	int rc, all;

	/* Clients that cannot have the map are answered an error by
	 * redis_map. */
	while (count && !redis_map(thread, calls->client, &map)) {
		calls++;
		count--;
	}
	if (!count)
		return;
	for (i = 0; i < count; i++)
		keys[i] = calls[i].request.argv[1];
	all = redis_read_many(thread, calls->client, map, keys, count);
	for (i = 0; i < count; i++) {
		client = calls[i].client;
		calls[i].is_left = !all && must_be_left(thread, calls, i);
		if (calls[i].is_left)
			continue;
		if (!all && redis_item_is_long(thread, i)) {
			reply_long(thread, client, &keys[i]);
			continue;
		}
		rc = all ? all : redis_reply_item(thread, client, i);
		if (rc)
			redis_reply_key_failure(thread, client, &keys[i], rc);
	}
}

#define MGET_FIRST 16

/* What MGET has done. */
struct mget {
	const struct redis_request *request;
	struct redis_mark mark;
	uint32_t at;   /* the next argument */
	uint32_t most; /* keys to be read together */
};

/* An error is the whole answer, and not an element of the array, unless some
 * elements were sent already. False: that was the whole answer. */
static bool reply_mget_error(struct redis_thread *thread,
			     struct redis_client *client,
			     const struct mget *mget,
			     const struct redis_bytes *key, int rc)
{
	bool is_whole = redis_reply_has_mark(&client->reply, mget->mark);

	if (is_whole)
		redis_reply_rewind(&client->reply, mget->mark);
	redis_reply_key_failure(thread, client, key, rc);
	return !is_whole;
}

/* Answer a long value of MGET by itself, once the answers before it are sent.
 * False: the command ends. */
static bool reply_mget_long(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct mget *mget)
{
	const struct redis_bytes *key = &mget->request->argv[mget->at];
	struct reef_map *map;
	int rc;

	if (!redis_pause(thread, client))
		return false;
	rc = redis_map_try(thread, client->db, &map);
	if (!rc)
		rc = redis_read_long(thread, client, map, key);
	if (!rc)
		rc = redis_reply_item(thread, client, 0);
	return !rc || reply_mget_error(thread, client, mget, key, rc);
}

/* Answer the next keys, up to a long value. False: the command ends. */
static bool reply_mget_some(struct redis_thread *thread,
			    struct redis_client *client, struct mget *mget)
{
	const struct redis_bytes *keys = &mget->request->argv[mget->at];
	uint32_t i, count = mget->request->argc - mget->at;
	struct reef_map *map;
	int rc = redis_map_try(thread, client->db, &map);

	if (count > mget->most)
		count = mget->most;
	if (!rc)
		rc = redis_read_many(thread, client, map, keys, count);
	for (i = 0; i < count; i++, mget->at++) {
		int status = rc;

		if (!rc && redis_item_is_long(thread, i))
			break;
		if (!rc)
			status = redis_reply_item(thread, client, i);
		if (status &&
		    !reply_mget_error(thread, client, mget, &keys[i], status))
			return false;
	}
	/* Looking up many is in vain where long values stand in a row. */
	mget->most = i == count ? REDIS_MANY_MAX : i ? MGET_FIRST : 1;
	if (i == count)
		return true;
	if (!reply_mget_long(thread, client, mget))
		return false;
	mget->at++;
	return true;
}

static void run_mget(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct mget mget = {
		.request = request,
		.mark = redis_reply_mark(&client->reply),
		.at = 1,
		.most = MGET_FIRST,
	};

	redis_reply_array(&client->reply, request->argc - 1);
	while (mget.at < request->argc) {
		if (!reply_mget_some(thread, client, &mget) ||
		    !redis_pause(thread, client))
			return;
	}
}

/* --- MSET, MSETNX, and several SETs --- */

static bool is_same(const struct redis_bytes *a, const struct redis_bytes *b)
{
	return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

#define PENDING 1 /* a status: not put yet */

/* Pairs of keys and values that are put in one batch. */
struct putting {
	const struct redis_bytes *pairs;
	uint32_t count;		      /* at most REDIS_MANY_MAX */
	int status[REDIS_MANY_MAX];   /* of each pair */
	uint8_t item[REDIS_MANY_MAX]; /* of a pending pair: in thread->items */
	uint8_t winner[REDIS_MANY_MAX]; /* of an item: whose value it has */
};

static void fill_item(struct reef_map_item *item,
		      const struct redis_bytes *pair)
{
	item->key = pair[0].bytes;
	item->key_size = pair[0].size;
	item->value.bytes = pair[1].bytes;
	item->value.size = pair[1].size;
	item->value.expires_ms = 0;
}

/* Fill thread->items with one item for each key of the pending pairs. Of
 * several pairs with one key the last wins: to others that is as if it had been
 * put right after the rest. Returns how many items there are. */
static uint32_t fill_items(struct redis_thread *thread, struct putting *putting)
{
	uint8_t slots[4 * REDIS_MANY_MAX] = {0}; /* an item, + 1 */
	const struct redis_bytes *pair;
	uint32_t i, at, items = 0;

	for (i = putting->count; i-- > 0;) {
		pair = &putting->pairs[2 * i];
		if (putting->status[i] != PENDING)
			continue;
		at = (uint32_t)reef_hash(pair->bytes, pair->size, 0);
		for (;; at++) {
			at %= sizeof(slots);
			if (!slots[at] ||
			    is_same(pair,
				    &putting->pairs[2 *
						    putting->winner[slots[at] -
								    1]]))
				break;
		}
		if (!slots[at]) {
			putting->winner[items] = (uint8_t)i;
			fill_item(&thread->items[items++], pair);
			slots[at] = (uint8_t)items;
		}
		putting->item[i] = (uint8_t)(slots[at] - 1);
	}
	return items;
}

/* True of errors that concern this value only: another one for the same key may
 * be fine. */
static bool concerns_value_only(int status)
{
	return status == -ENOSPC || status == -EDQUOT || status == -EINVAL;
}

/* Note the statuses of the items for their pairs. True: some pairs are still
 * pending, because a later value of their key was refused. */
static bool note_statuses(const struct redis_thread *thread,
			  struct putting *putting, int all)
{
	bool is_pending = false;
	uint32_t i;
	int status;

	for (i = 0; i < putting->count; i++) {
		if (putting->status[i] != PENDING)
			continue;
		status = all ? all : thread->items[putting->item[i]].status;
		if (concerns_value_only(status) &&
		    putting->winner[putting->item[i]] != i)
			is_pending = true;
		else
			putting->status[i] = status;
	}
	return is_pending;
}

/* Put all pairs; each has its status afterwards. */
static void put_together(struct redis_thread *thread, struct reef_map *map,
			 struct putting *putting)
{
	uint32_t i;
	int all;

	for (i = 0; i < putting->count; i++)
		putting->status[i] = PENDING;
	do {
		uint32_t items = fill_items(thread, putting);

		all = reef_map_put_many(map, thread->items, items);
	} while (note_statuses(thread, putting, all));
}

void redis_run_sets(struct redis_thread *thread, struct redis_call *calls,
		    uint32_t count)
{
	struct redis_bytes pairs[2 * REDIS_MANY_MAX];
	struct putting putting = {.pairs = pairs};
	struct redis_client *client;
	struct reef_map *map;
	uint32_t i;

	/* Clients that cannot have the map are answered an error by
	 * redis_map. */
	while (count && !redis_map(thread, calls->client, &map)) {
		calls++;
		count--;
	}
	if (!count)
		return;
	for (i = 0; i < count; i++) {
		pairs[2 * i] = calls[i].request.argv[1];
		pairs[2 * i + 1] = calls[i].request.argv[2];
	}
	putting.count = count;
	put_together(thread, map, &putting);
	for (i = 0; i < count; i++) {
		client = calls[i].client;
		if (putting.status[i])
			redis_reply_key_failure(thread, client, &pairs[2 * i],
						putting.status[i]);
		else
			redis_reply_status(&client->reply, "OK");
	}
}

/* Put any number of pairs. False: an error was answered. */
static bool put_pairs(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_bytes *pairs, uint32_t count)
{
	struct putting putting;
	struct reef_map *map;
	uint32_t i, done;

	for (; count; count -= done, pairs += 2 * done) {
		if (!redis_pause(thread, client))
			return false;
		/* Within EXEC, or with keys watched, each pair is a change of
		 * its own, which must meet the watched version. */
		if (client->transaction || client->watches || count == 1) {
			if (redis_put(thread, client, &pairs[0], &pairs[1], 0))
				return false;
			done = 1;
			continue;
		}
		if (!redis_map(thread, client, &map))
			return false;
		done = count < REDIS_MANY_MAX ? count : REDIS_MANY_MAX;
		putting.pairs = pairs;
		putting.count = done;
		put_together(thread, map, &putting);
		for (i = 0; i < done; i++) {
			if (!putting.status[i])
				continue;
			redis_reply_key_failure(thread, client, &pairs[2 * i],
						putting.status[i]);
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
	/* By key, the last pair that has it, + 1; mask: of places. There may be
	 * half a million, and they must not be compared with each other. */
	uint32_t *places, mask;
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

/* The place of a key: there the last pair that has it is noted, + 1. */
static uint32_t *place_of(const struct inserts *inserts, uint32_t pair)
{
	const struct redis_bytes *argv = inserts->request->argv;
	const struct redis_bytes *key = &argv[1 + 2 * pair];
	uint32_t *place, at;

	/* The seed is an address, so that nobody outside can choose keys that
	 * collide. */
	at = (uint32_t)reef_hash(key->bytes, key->size,
				 (uintptr_t)inserts->places);
	for (;; at++) {
		place = &inserts->places[at & inserts->mask];
		if (!*place || is_same(&argv[1 + 2 * (*place - 1)], key))
			return place;
	}
}

static bool begin_inserts(struct inserts *inserts)
{
	const uint32_t pairs = inserts->request->argc / 2;

	while (inserts->mask < 2 * pairs)
		inserts->mask = 2 * inserts->mask + 1;
	/* One more than needed: calloc may return NULL for 0 bytes. */
	inserts->versions =
		calloc((size_t)pairs + 1, sizeof(*inserts->versions));
	inserts->places =
		calloc((size_t)inserts->mask + 1, sizeof(*inserts->places));
	return inserts->versions && inserts->places;
}

/* Insert one pair. 1: we inserted it.  0: the key was there.  Negative: an
 * error was answered. */
static int insert_pair(struct redis_thread *thread, struct redis_client *client,
		       const struct inserts *inserts, uint32_t pair)
{
	const struct redis_bytes *argv = &inserts->request->argv[1 + 2 * pair];
	struct insert insert = {.value = &argv[1]};
	struct reef_map_entry ahead = {.value = argv[1].bytes,
				       .value_size = argv[1].size};
	uint32_t *place = place_of(inserts, pair);
	uint64_t *before;
	int rc;

	rc = redis_change_blind(thread, client, client->db, argv, decide_insert,
				&insert, &ahead);
	if (rc == REEF_MAP_LEAVE) {
		if (!*place)
			return 0;
		before = &inserts->versions[*place - 1];
		insert.expected = *before;
		rc = redis_change(thread, client, argv, decide_insert, &insert,
				  &ahead);
		if (rc == REEF_MAP_PUT)
			*before = 0;
	}
	if (rc == REEF_MAP_PUT) {
		inserts->versions[pair] = thread->version;
		*place = pair + 1;
	}
	return rc < 0 ? rc : rc == REEF_MAP_PUT;
}

static void remove_inserted(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct inserts *inserts, uint32_t pairs)
{
	struct redis_mark mark;
	struct insert insert = {0};
	uint32_t i;

	for (i = 0; i < pairs; i++) {
		/* They are removed even if the client is gone. */
		redis_pause(thread, client);
		mark = redis_reply_mark(&client->reply);
		insert.expected = inserts->versions[i];
		if (insert.expected)
			redis_change_blind(thread, client, client->db,
					   &inserts->request->argv[1 + 2 * i],
					   decide_insert, &insert, NULL);
		redis_reply_rewind(&client->reply, mark);
	}
}

/* Insert all pairs, one after the other; if a key is there, those before it are
 * removed again. Others can see some of them meanwhile (docs/REDIS.md). */
static void insert_pairs(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct inserts *inserts)
{
	uint32_t i, pairs = inserts->request->argc / 2;
	int rc = 1;

	for (i = 0; i < pairs && rc == 1; i++) {
		rc = insert_pair(thread, client, inserts, i);
		if (rc == 1 && !redis_pause(thread, client))
			rc = -EIO;
	}
	if (rc != 1)
		remove_inserted(thread, client, inserts, i);
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
	/* Keys are looked at first, so that inserted ones seldom have to be
	 * removed again. */
	for (i = 1; i < request->argc; i += 2) {
		if (!redis_pause(thread, client))
			return;
		rc = redis_peek_head(thread, client, &request->argv[i]);
		if (rc == 0)
			redis_reply_integer(&client->reply, 0);
		if (rc != -ENOENT)
			return;
	}
	if (begin_inserts(&inserts))
		insert_pairs(thread, client, &inserts);
	else
		redis_reply_failure(thread, client, -ENOMEM);
	free(inserts.versions);
	free(inserts.places);
}

#define PUT (REDIS_WRITE | REDIS_DENYOOM)

struct redis_command redis_string_many_commands[] = {
	REDIS_COMMAND("mget", -2, REDIS_READONLY | REDIS_FAST | REDIS_LONG, 1,
		      -1, 1, run_mget),
	REDIS_COMMAND("mset", -3, PUT | REDIS_LONG, 1, -1, 2, run_mset),
	REDIS_COMMAND("msetnx", -3, PUT | REDIS_LONG, 1, -1, 2, run_msetnx),
	{0},
};
