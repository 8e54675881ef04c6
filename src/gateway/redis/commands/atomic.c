/* atomic.c - see atomic.h. */
#include "gateway/redis/commands/atomic.h"

/* Of a unit; from each to the next its patience with others grows. */
#define ATTEMPTS 256u

/* --- running --- */

struct running {
	struct redis_thread *thread;
	struct redis_client *client;
	redis_body *body;
	void *context;
	struct redis_unit unit;
};

static bool is_gone(const struct redis_client *client)
{
	return client->is_dead || client->reply.is_broken;
}

static int run_body(struct reef_txn *txn, void *context)
{
	struct running *running = context;
	struct redis_client *client = running->client;
	struct redis_unit *unit = &running->unit;
	int rc;

	unit->txn = txn;
	unit->rc = 0;
	unit->attempt++;
	client->unit = unit;
	client->is_hasty = unit->attempt > 1;
	rc = running->body(running->thread, client, running->context);
	client->unit = NULL;
	client->is_hasty = false;
	if (is_gone(client))
		return -EPIPE;
	return unit->rc ? unit->rc : rc;
}

int redis_atomically_try(struct redis_thread *thread,
			 struct redis_client *client, redis_body *body,
			 void *context, bool only_reads)
{
	struct running running = {
		.thread = thread,
		.client = client,
		.body = body,
		.context = context,
	};
	const struct reef_txn_options options = {
		.flags = only_reads ? REEF_TXN_READ_ONLY : 0,
		.attempts = ATTEMPTS,
	};
	struct reef_map *map;
	int rc;

	if (client->unit) {
		rc = body(thread, client, context);
		return client->unit->rc ? client->unit->rc : rc;
	}
	/* Where the pool is out of reach it says so. */
	rc = redis_map_try(thread, client->db, &map);
	if (rc)
		return rc;
	thread->units++;
	rc = reef_txn_run(thread->space, run_body, &running, &options);
	thread->units--;
	reef_map_value_free(&running.unit.now);
	return rc;
}

void redis_reply_unit_failure(struct redis_thread *thread,
			      struct redis_client *client, int rc)
{
	if (rc == -E2BIG)
		redis_reply_error(&client->reply,
				  "ERR reef: more than 65536 keys, 256 MiB to "
				  "put or 1 GiB to read at once; nothing was "
				  "changed");
	else if (rc == -ECANCELED)
		redis_reply_error(&client->reply,
				  "ERR reef: others changed the same keys at "
				  "each attempt; nothing was changed");
	else
		redis_reply_failure(thread, client, rc);
}

int redis_atomically(struct redis_thread *thread, struct redis_client *client,
		     redis_body *body, void *context, bool only_reads)
{
	const bool is_part = client->unit != NULL;
	int rc =
		redis_atomically_try(thread, client, body, context, only_reads);

	/* EXEC answers what went wrong with its unit. */
	if (!rc || rc == REDIS_ANSWERED || rc == -EPIPE || is_part)
		return rc;
	redis_reply_unit_failure(thread, client, rc);
	return REDIS_ANSWERED;
}

/* --- keys --- */

int redis_unit_note(struct redis_client *client, int rc)
{
	if (rc && rc != -ENOENT && rc != -EEXIST && rc != -EINVAL &&
	    !client->unit->rc)
		client->unit->rc = rc;
	return rc;
}

/* A value that the unit itself has put has no version yet. It may have expired
 * by then: the map would say so at the commit. */
static int check_expiry(struct reef_map *map,
			const struct reef_map_value *value)
{
	uint64_t now_ms;
	int rc;

	if (value->version || !value->expires_ms)
		return 0;
	rc = reef_map_now(map, &now_ms);
	if (rc)
		return rc;
	return value->expires_ms <= now_ms ? -ENOENT : 0;
}

int redis_unit_read(struct redis_client *client, struct reef_map *map,
		    const struct redis_bytes *key, struct reef_map_value *out)
{
	int rc = reef_txn_get(client->unit->txn, map, key->bytes, key->size,
			      out);

	if (!rc)
		rc = check_expiry(map, out);
	return redis_unit_note(client, rc);
}

static int do_verdict(struct redis_client *client, struct reef_map *map,
		      const struct reef_map_change *change, bool is_there,
		      const struct reef_map_entry *put)
{
	struct reef_txn *txn = client->unit->txn;
	int rc = 0;

	if (change->verdict == REEF_MAP_PUT)
		rc = reef_txn_put(txn, map, change->key, change->key_size,
				  put->value, put->value_size, put->expires_ms);
	else if (change->verdict == REEF_MAP_DELETE && is_there)
		rc = reef_txn_delete(txn, map, change->key, change->key_size);
	return redis_unit_note(client, rc);
}

int redis_unit_change(struct redis_client *client, struct reef_map *map,
		      struct reef_map_change *change)
{
	struct reef_map_value *value = &client->unit->now;
	const struct redis_bytes key = {change->key, change->key_size};
	struct reef_map_entry now, put = {0};
	int rc = redis_unit_read(client, map, &key, value), verdict;

	if (rc && rc != -ENOENT)
		return rc;
	now = (struct reef_map_entry){
		.key = change->key,
		.key_size = change->key_size,
		.value = value->bytes,
		.value_size = value->size,
		.version = value->version,
		.expires_ms = value->expires_ms,
	};
	verdict = change->decide(change->context, rc ? NULL : &now, &put);
	if (verdict < 0)
		return verdict;
	change->verdict = (enum reef_map_verdict)verdict;
	return do_verdict(client, map, change, !rc, &put);
}
