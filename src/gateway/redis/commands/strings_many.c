/* strings_many.c - reading and setting several keys: those of one command at
 * once (atomic.h), those of several commands in shared batches. */
#include "gateway/redis/commands/strings.h"

#include "base/checksum.h"
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/atomic.h"
#include "gateway/redis/commands/transactions.h"
#include "gateway/redis/server/task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- several GETs --- */

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

static bool is_same(const struct redis_bytes *a, const struct redis_bytes *b)
{
	return a->size == b->size && !memcmp(a->bytes, b->bytes, a->size);
}

/* --- MGET --- */

#define MGET_FIRST 16u
/* Where a longer value was found the next keys are read one by one: there is
 * memory for that. */
#define MGET_LONG (64u << 10)

/* The different keys of an MGET, with their values once all were read. They are
 * answered after that, as the client takes them. */
struct mget {
	const struct redis_request *request;
	struct reef_txn_item *found; /* the keys; map and value of each */
	uint32_t count;
	uint32_t *which;	/* of each argument: in found */
	uint32_t *uses;		/* of each that is found: in the answer */
	uint32_t *places, mask; /* by key: in found, + 1 */
};

static bool begin_mget(struct mget *mget)
{
	const size_t keys = mget->request->argc - 1;

	while (mget->mask < 2 * keys)
		mget->mask = 2 * mget->mask + 1;
	mget->found = calloc(keys, sizeof(*mget->found));
	mget->which = calloc(2 * keys + mget->mask + 1, sizeof(*mget->which));
	if (!mget->found || !mget->which)
		return false;
	mget->uses = mget->which + keys;
	mget->places = mget->uses + keys;
	return true;
}

static void end_mget(struct redis_thread *thread, struct redis_client *client,
		     struct mget *mget)
{
	for (uint32_t i = 0; mget->found && i < mget->count; i++)
		redis_spare_give(&thread->spare, mget->found[i].value.room,
				 mget->found[i].value.room_size);
	free(mget->found);
	free(mget->which);
	client->scratch = 0;
}

/* Find out which keys are different ones. */
static void note_keys(struct mget *mget)
{
	const struct redis_bytes *argv = mget->request->argv;
	uint32_t i, at;

	for (i = 1; i < mget->request->argc; i++) {
		const struct redis_bytes *key = &argv[i];

		/* The seed is an address, so that nobody outside can choose
		 * keys that collide. */
		at = (uint32_t)reef_hash(key->bytes, key->size,
					 (uintptr_t)mget->places);
		for (;; at++) {
			const uint32_t place = mget->places[at & mget->mask];

			if (!place ||
			    is_same(&argv[mget->uses[place - 1]], key))
				break;
		}
		/* Until all are noted, uses has the first argument of each. */
		if (!mget->places[at & mget->mask]) {
			mget->uses[mget->count] = i;
			mget->places[at & mget->mask] = ++mget->count;
		}
		mget->which[i - 1] = mget->places[at & mget->mask] - 1;
	}
}

/* Read the next keys, `most` at most. The bytes of the arguments may lie
 * elsewhere after a pause. */
static int read_some(struct redis_thread *thread, struct redis_client *client,
		     struct mget *mget, uint32_t from, uint32_t most)
{
	uint32_t i, count = mget->count - from;
	struct reef_map *map;
	int rc = redis_map_try(thread, client->db, &map);

	count = count < most ? count : most;
	for (i = from; i < from + count && !rc; i++) {
		const struct redis_bytes *key =
			&mget->request->argv[mget->uses[i]];

		mget->found[i].map = map;
		mget->found[i].key = key->bytes;
		mget->found[i].key_size = key->size;
		if (!client->no_touch)
			redis_count_use(thread, map, key);
	}
	if (!rc)
		rc = reef_txn_take_many(client->unit->txn, &mget->found[from],
					count);
	redis_unit_note(client, rc);
	return rc ? rc : (int)count;
}

static int read_all(struct redis_thread *thread, struct redis_client *client,
		    void *context)
{
	struct mget *mget = context;
	uint32_t from = 0, most = MGET_FIRST;
	int rc;

	client->scratch = 0;
	while (from < mget->count) {
		if (!redis_pause(thread, client))
			return -EPIPE;
		rc = read_some(thread, client, mget, from, most);
		if (rc < 0)
			return rc;
		for (most = REDIS_MANY_MAX; rc; rc--, from++) {
			client->scratch += mget->found[from].value.room_size;
			if (mget->found[from].value.size > MGET_LONG)
				most = 1;
		}
	}
	return 0;
}

/* Answer a value that is still needed: its room goes with its last use. */
static void reply_one(struct redis_thread *thread, struct redis_client *client,
		      struct mget *mget, uint32_t index)
{
	struct reef_map_value *value = &mget->found[index].value, copy = {0};

	if (--mget->uses[index] == 0 || value->size < REDIS_PIECE_MIN) {
		redis_reply_found(client, value);
		return;
	}
	copy.room =
		redis_spare_take(&thread->spare, value->size, &copy.room_size);
	if (!copy.room) {
		redis_reply_break(&client->reply);
		return;
	}
	memcpy(copy.room, value->bytes, value->size);
	redis_reply_bulk_owned(&client->reply, copy.room, value->size,
			       copy.room, copy.room_size);
}

static void reply_all(struct redis_thread *thread, struct redis_client *client,
		      struct mget *mget)
{
	const uint32_t keys = mget->request->argc - 1;
	uint32_t i;

	memset(mget->uses, 0, keys * sizeof(*mget->uses));
	for (i = 0; i < keys; i++)
		mget->uses[mget->which[i]]++;
	redis_reply_array(&client->reply, keys);
	for (i = 0; i < keys; i++) {
		const struct reef_txn_item *item = &mget->found[mget->which[i]];

		if (client->watches)
			redis_transaction_saw(
				client, client->db, &mget->request->argv[i + 1],
				item->status ? 0 : item->value.version);
		if (item->status) {
			thread->stats.keyspace_misses++;
			redis_reply_null(&client->reply);
		} else {
			thread->stats.keyspace_hits++;
			reply_one(thread, client, mget, mget->which[i]);
		}
		if (!redis_pause(thread, client))
			return;
	}
}

static void run_mget(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct mget mget = {.request = request, .mask = 1};

	/* One key is read by itself; it is an array of one all the same. */
	if (request->argc == 2) {
		int rc = redis_read(thread, client, &request->argv[1]);

		if (rc && rc != -ENOENT)
			return;
		redis_reply_array(&client->reply, 1);
		if (rc)
			redis_reply_null(&client->reply);
		else
			redis_reply_value(thread, client);
		return;
	}
	if (!redis_check_sizes(thread, client, request, 1))
		return;
	if (!begin_mget(&mget)) {
		redis_reply_failure(thread, client, -ENOMEM);
	} else {
		note_keys(&mget);
		if (!redis_atomically(thread, client, read_all, &mget, true))
			reply_all(thread, client, &mget);
	}
	end_mget(thread, client, &mget);
}

/* --- MSET, MSETNX, and several SETs --- */

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

static bool has_pairs(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	if (request->argc % 2 == 1)
		return redis_check_sizes(thread, client, request, 2);
	redis_reply_arity(client, client->command);
	return false;
}

struct pairs {
	const struct redis_request *request;
	bool if_absent; /* nothing is put if a key is there */
	bool is_done;
};

/* Find out whether a key is there.  1: one is.  Negative: an error. */
static int is_one_there(struct redis_thread *thread,
			struct redis_client *client, const struct pairs *pairs)
{
	uint32_t i;
	int rc;

	for (i = 1; i < pairs->request->argc; i += 2) {
		if (!redis_pause(thread, client))
			return -EPIPE;
		rc = redis_peek_head(thread, client, &pairs->request->argv[i]);
		if (rc != -ENOENT)
			return rc ? REDIS_ANSWERED : 1;
	}
	return 0;
}

static int put_pairs(struct redis_thread *thread, struct redis_client *client,
		     void *context)
{
	struct pairs *pairs = context;
	const struct redis_bytes *argv = pairs->request->argv;
	int rc = pairs->if_absent ? is_one_there(thread, client, pairs) : 0;
	uint32_t i;

	pairs->is_done = !rc;
	if (rc)
		return rc < 0 ? rc : 0;
	for (i = 1; i < pairs->request->argc; i += 2) {
		if (!redis_pause(thread, client))
			return -EPIPE;
		if (redis_put(thread, client, &argv[i], &argv[i + 1], 0))
			return REDIS_ANSWERED;
	}
	return 0;
}

static void run_mset(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct pairs pairs = {.request = request};
	int rc;

	if (!has_pairs(thread, client, request))
		return;
	if (request->argc == 3)
		rc = put_pairs(thread, client, &pairs);
	else
		rc = redis_atomically(thread, client, put_pairs, &pairs, false);
	if (!rc)
		redis_reply_status(&client->reply, "OK");
}

static void run_msetnx(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	struct pairs pairs = {.request = request, .if_absent = true};

	if (has_pairs(thread, client, request) &&
	    !redis_atomically(thread, client, put_pairs, &pairs, false))
		redis_reply_integer(&client->reply, pairs.is_done);
}

#define PUT (REDIS_WRITE | REDIS_DENYOOM)

struct redis_command redis_string_many_commands[] = {
	REDIS_COMMAND("mget", -2, REDIS_READONLY | REDIS_FAST | REDIS_LONG, 1,
		      -1, 1, run_mget),
	REDIS_COMMAND("mset", -3, PUT | REDIS_LONG, 1, -1, 2, run_mset),
	REDIS_COMMAND("msetnx", -3, PUT | REDIS_LONG, 1, -1, 2, run_msetnx),
	{0},
};
