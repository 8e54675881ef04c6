/* access.c - reading and changing keys, for all commands. */
#include "gateway/redis/commands/access.h"

#include "gateway/redis/commands/atomic.h"
#include "gateway/redis/commands/transactions.h"
#include "gateway/redis/server/door.h"
#include "kv/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How much room of a value a thread keeps after a command; a larger one is
 * given back. */
#define ROOM_KEPT_MAX (1u << 20)
#define ITEM_ROOM_KEPT_MAX (64u << 10)
/* Longer values are read one by one: there is memory for the others. */
#define SHORT_MAX (64u << 10)

/* --- what goes wrong --- */

void redis_reply_key_failure(struct redis_thread *thread,
			     struct redis_client *client,
			     const struct redis_bytes *key, int rc)
{
	if (rc != -EINVAL)
		redis_reply_failure(thread, client, rc);
	else if (key->size > REDIS_KEY_MAX)
		redis_reply_errorf(&client->reply,
				   "ERR key exceeds maximum allowed size (%u "
				   "bytes)",
				   REDIS_KEY_MAX);
	else
		redis_reply_error(&client->reply,
				  "ERR string exceeds maximum allowed size "
				  "(proto-max-bulk-len)");
}

uint32_t redis_databases(const struct redis_thread *thread)
{
	return redis_door_options(thread->door)->databases;
}

bool redis_now(struct redis_thread *thread, struct redis_client *client,
	       uint64_t *ms)
{
	struct reef_map *map;
	int rc;

	if (!redis_map(thread, client, &map))
		return false;
	rc = reef_map_now(map, ms);
	if (rc)
		redis_reply_failure(thread, client, rc);
	return rc == 0;
}

/* --- values --- */

char *redis_value_room(struct redis_thread *thread, size_t size)
{
	struct reef_map_value *value = &thread->value;

	if (value->room_size < size || !value->room) {
		redis_spare_give(&thread->spare, value->room, value->room_size);
		value->room = redis_spare_take(&thread->spare, size,
					       &value->room_size);
		if (!value->room)
			value->room_size = 0;
	}
	value->bytes = value->room;
	value->size = value->room ? size : 0;
	return value->room;
}

int redis_value_keep(struct redis_thread *thread,
		     const struct reef_map_entry *now)
{
	char *room = redis_value_room(thread, now->value_size);

	if (!room)
		return -ENOMEM;
	if (now->value_size)
		memcpy(room, now->value, now->value_size);
	return 0;
}

void redis_reply_found(struct redis_client *client,
		       struct reef_map_value *value)
{
	if (value->size < REDIS_PIECE_MIN) {
		redis_reply_bulk(&client->reply, value->bytes, value->size);
		return;
	}
	redis_reply_bulk_owned(&client->reply, value->bytes, value->size,
			       value->room, value->room_size);
	*value = (struct reef_map_value){0};
}

static void trim_room(struct redis_thread *thread, struct reef_map_value *value,
		      size_t kept_max)
{
	if (value->room_size <= kept_max)
		return;
	redis_spare_give(&thread->spare, value->room, value->room_size);
	*value = (struct reef_map_value){0};
}

void redis_value_trim(struct redis_thread *thread)
{
	trim_room(thread, &thread->value, ROOM_KEPT_MAX);
}

void redis_item_trim(struct redis_thread *thread, uint32_t index)
{
	trim_room(thread, &thread->items[index].value, ITEM_ROOM_KEPT_MAX);
}

void redis_reply_value(struct redis_thread *thread, struct redis_client *client)
{
	redis_reply_found(client, &thread->value);
	redis_value_trim(thread);
}

/* --- one key --- */

/* Prepare room for a value as large as the last one. The room of a large value
 * goes away with its answer, and fresh memory costs as much as the copy into
 * it: so the next one gets what another has left. */
static void reuse_room(struct redis_thread *thread)
{
	struct reef_map_value *value = &thread->value;

	if (value->room_size < thread->large) {
		redis_spare_give(&thread->spare, value->room, value->room_size);
		value->room_size = 0;
		value->room = redis_spare_reuse(&thread->spare, thread->large,
						&value->room_size);
	}
}

/* The map of a database. 0, or an error, which was answered, or ends the unit.
 */
static int find_map(struct redis_thread *thread, struct redis_client *client,
		    uint32_t db, struct reef_map **map)
{
	int rc = redis_map_try(thread, db, map);

	if (rc && client->unit)
		redis_unit_note(client, rc);
	else if (rc)
		redis_reply_failure(thread, client, rc);
	return rc ? -EIO : 0;
}

/* Count a hit or a miss, tell the transaction what was seen, and answer other
 * errors. */
static void note_read(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_bytes *key, int rc)
{
	if (client->watches && (rc == 0 || rc == -ENOENT))
		redis_transaction_saw(client, client->db, key,
				      rc ? 0 : thread->value.version);
	if (rc == 0)
		thread->stats.keyspace_hits++;
	else if (rc == -ENOENT)
		thread->stats.keyspace_misses++;
	else if (!redis_unit_failed(client))
		redis_reply_key_failure(thread, client, key, rc);
}

void redis_count_use(struct redis_thread *thread, struct reef_map *map,
		     const struct redis_bytes *key)
{
	struct reef_map_options limits;

	reef_map_limits(map, &limits);
	if (limits.eviction != REEF_MAP_KEEP)
		reef_map_get(map, key->bytes, key->size, &thread->value);
}

static int read_key(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_bytes *key, bool is_use)
{
	struct reef_map *map;
	int rc = find_map(thread, client, client->db, &map);

	if (rc)
		return rc;
	if (thread->large)
		reuse_room(thread);
	if (client->unit) {
		if (is_use)
			redis_count_use(thread, map, key);
		rc = redis_unit_read(client, map, key, &thread->value);
	} else if (is_use) {
		rc = reef_map_get(map, key->bytes, key->size, &thread->value);
	} else {
		rc = reef_map_peek(map, key->bytes, key->size, &thread->value);
	}
	thread->large = rc == 0 && thread->value.size >= REDIS_PIECE_MIN
				? thread->value.room_size
				: 0;
	note_read(thread, client, key, rc);
	return rc;
}

int redis_read(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_bytes *key)
{
	return read_key(thread, client, key, !client->no_touch);
}

int redis_touch(struct redis_thread *thread, struct redis_client *client,
		const struct redis_bytes *key)
{
	return read_key(thread, client, key, true);
}

int redis_peek(struct redis_thread *thread, struct redis_client *client,
	       const struct redis_bytes *key)
{
	return read_key(thread, client, key, false);
}

int redis_peek_head(struct redis_thread *thread, struct redis_client *client,
		    const struct redis_bytes *key)
{
	struct reef_map *map;
	int rc;

	if (client->unit)
		return read_key(thread, client, key, false);
	if (!redis_map(thread, client, &map))
		return -EIO;
	rc = reef_map_look(map, key->bytes, key->size, &thread->value);
	note_read(thread, client, key, rc);
	return rc;
}

int redis_refuse(struct redis_thread *thread, const char *error)
{
	thread->refusal = error;
	return -ECANCELED;
}

static void reply_change_failure(struct redis_thread *thread,
				 struct redis_client *client,
				 const struct redis_bytes *key, int rc)
{
	if (rc == -ECANCELED && thread->refusal)
		redis_reply_error(&client->reply, thread->refusal);
	else
		redis_reply_key_failure(thread, client, key, rc);
}

static int change_key(struct redis_thread *thread, struct redis_client *client,
		      uint32_t db, const struct redis_bytes *key,
		      struct reef_map_change *change)
{
	struct reef_map *map;
	int rc = find_map(thread, client, db, &map);

	if (rc)
		return rc;
	thread->refusal = NULL;
	change->key = key->bytes;
	change->key_size = key->size;
	rc = client->unit ? redis_unit_change(client, map, change)
			  : reef_map_apply(map, change);
	if (rc) {
		if (!redis_unit_failed(client))
			reply_change_failure(thread, client, key, rc);
		return rc;
	}
	if (client->watches && change->verdict != REEF_MAP_LEAVE)
		redis_transaction_saw(client, db, key, REDIS_VERSION_CHANGED);
	return (int)change->verdict;
}

int redis_change(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_bytes *key, redis_decide *decide,
		 void *context, const struct reef_map_entry *ahead)
{
	struct reef_map_change change = {
		.decide = decide,
		.context = context,
		.ahead = ahead,
	};

	return change_key(thread, client, client->db, key, &change);
}

int redis_change_blind(struct redis_thread *thread, struct redis_client *client,
		       uint32_t db, const struct redis_bytes *key,
		       redis_decide *decide, void *context,
		       const struct reef_map_entry *ahead)
{
	struct reef_map_change change = {
		.decide = decide,
		.context = context,
		.ahead = ahead,
		.blind = true,
	};

	return change_key(thread, client, db, key, &change);
}

/* Answer why a key could not be put or deleted, unless the unit does. */
static void reply_write_failure(struct redis_thread *thread,
				struct redis_client *client,
				const struct redis_bytes *key, int rc)
{
	if (!redis_unit_failed(client))
		redis_reply_key_failure(thread, client, key, rc);
}

int redis_put(struct redis_thread *thread, struct redis_client *client,
	      const struct redis_bytes *key, const struct redis_bytes *value,
	      uint64_t expires_ms)
{
	struct reef_map *map;
	int rc = find_map(thread, client, client->db, &map);

	if (rc)
		return rc;
	if (client->unit)
		rc = redis_unit_note(
			client, reef_txn_put(client->unit->txn, map, key->bytes,
					     key->size, value->bytes,
					     value->size, expires_ms));
	else
		rc = reef_map_put(map, key->bytes, key->size, value->bytes,
				  value->size, expires_ms, NULL);
	if (rc)
		reply_write_failure(thread, client, key, rc);
	else if (client->watches)
		redis_transaction_saw(client, client->db, key,
				      REDIS_VERSION_CHANGED);
	return rc;
}

int redis_delete(struct redis_thread *thread, struct redis_client *client,
		 const struct redis_bytes *key)
{
	struct reef_map *map;
	int rc = find_map(thread, client, client->db, &map);

	if (rc)
		return rc;
	if (client->unit)
		rc = redis_unit_note(client,
				     reef_txn_delete(client->unit->txn, map,
						     key->bytes, key->size));
	else
		rc = reef_map_delete(map, key->bytes, key->size, 0);
	if (rc == -ENOENT)
		return 0;
	if (rc)
		reply_write_failure(thread, client, key, rc);
	else if (client->watches)
		redis_transaction_saw(client, client->db, key,
				      REDIS_VERSION_CHANGED);
	return rc ? rc : 1;
}

/* --- several keys --- */

bool redis_check_sizes(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request, uint32_t step)
{
	for (uint32_t i = 1; i < request->argc; i++) {
		const bool is_value = step == 2 && i % 2 == 0;
		const struct redis_bytes *bytes = &request->argv[i];

		if (bytes->size <= (is_value ? REDIS_VALUE_MAX : REDIS_KEY_MAX))
			continue;
		redis_reply_key_failure(thread, client,
					&request->argv[i - is_value], -EINVAL);
		return false;
	}
	return true;
}

/* Read an item without counting it as a use, unless it is long. */
static int peek_short(struct reef_map *map, struct reef_map_item *item)
{
	int rc = reef_map_look(map, item->key, item->key_size, &item->value);

	if (rc || item->value.size > SHORT_MAX)
		return rc;
	return reef_map_peek(map, item->key, item->key_size, &item->value);
}

/* Tell the transaction which versions were seen. */
static void note_items(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_bytes *keys, uint32_t count)
{
	const struct reef_map_item *item;
	uint32_t i;

	for (i = 0; i < count && client->watches; i++) {
		item = &thread->items[i];
		if (item->status == 0 || item->status == -ENOENT)
			redis_transaction_saw(
				client, client->db, &keys[i],
				item->status ? 0 : item->value.version);
	}
}

static void set_item(struct reef_map_item *item, const struct redis_bytes *key)
{
	item->key = key->bytes;
	item->key_size = key->size;
}

int redis_read_many(struct redis_thread *thread, struct redis_client *client,
		    struct reef_map *map, const struct redis_bytes *keys,
		    uint32_t count)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < count; i++) {
		set_item(&thread->items[i], &keys[i]);
		if (client->no_touch)
			thread->items[i].status =
				peek_short(map, &thread->items[i]);
	}
	if (!client->no_touch)
		rc = map_get_many_short(map, thread->items, count, SHORT_MAX);
	if (!rc)
		note_items(thread, client, keys, count);
	return rc;
}

int redis_reply_item(struct redis_thread *thread, struct redis_client *client,
		     uint32_t index)
{
	struct reef_map_item *item = &thread->items[index];
	int status = item->status;

	if (status == 0) {
		thread->stats.keyspace_hits++;
		redis_reply_found(client, &item->value);
	} else if (status == -ENOENT) {
		thread->stats.keyspace_misses++;
		redis_reply_null(&client->reply);
		status = 0;
	}
	redis_item_trim(thread, index);
	return status;
}
