/* transactions.c - MULTI, EXEC, DISCARD, WATCH, UNWATCH.
 *
 *	        MULTI              a request
 *	(none) -------> (queueing) ---------> (queueing)
 *	   ^               |  |
 *	   |  DISCARD      |  | EXEC: watched keys are as they were
 *	   +---------------+  v
 *	   |              (running) --> (running), a command after the other
 *	   |  EXEC: done,     |
 *	   |  spoilt, stale   |
 *	   +------------------+
 *
 * (1) WATCH remembers the version of a key; 0: it is not there. A key that was
 *     not there at WATCH may have been there meanwhile, and EXEC runs; but not
 *     if this client has seen it (redis_transaction_saw).
 * (2) EXEC is one unit (atomic.h): it reads all watched keys, and ends with
 *     null if one has another version; else it runs the queue. All of it
 *     happens at one moment. If it has to run again, the answers so far and
 *     what was set in the connection are forgotten before.
 * (3) Commands on whole databases (REDIS_WHOLE) cut it: what stands between two
 *     of them is a unit. Until a part has changed something, each of them looks
 *     at the watched keys.
 * (4) A command that fails for what it was asked does so alone. What goes wrong
 *     with the unit is EXEC's answer, and nothing has happened. */
#include "gateway/redis/commands/transactions.h"

#include "base/checksum.h"
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/atomic.h"
#include "gateway/redis/server/door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A request, with its bytes behind its arguments. */
struct queued {
	const struct redis_command *command;
	struct redis_request request;
	struct redis_bytes argv[];
};

struct redis_transaction {
	struct queued **queue;
	uint32_t count, room;
	uint64_t bytes;
	bool is_spoilt; /* a request was refused: nothing will run */
};

struct watch {
	uint32_t db;
	struct redis_bytes key; /* malloc's */
	uint64_t version;
};

/* A client may watch no more keys: each takes memory for as long as the client
 * likes. */
#define WATCHES_MAX (1u << 20)

struct redis_watches {
	struct watch *all;
	uint32_t count, room;
	/* A hash table of indices in `all`, + 1. It has twice the room of
	 * `all`, so that one of many thousands is found quickly. */
	uint32_t *places;
	uint64_t bytes; /* of all keys */
	bool is_stale;	/* one is known to have changed */
};

static bool grow_array(void **array, uint32_t *room, uint32_t count,
		       size_t size)
{
	uint32_t more = *room ? 2 * *room : 8;
	void *grown;

	if (count < *room)
		return true;
	grown = realloc(*array, more * size);
	if (!grown)
		return false;
	*array = grown;
	*room = more;
	return true;
}

/* --- ending it --- */

static void forget_watches(struct redis_client *client)
{
	struct redis_watches *watches = client->watches;
	uint32_t i;

	if (!watches)
		return;
	for (i = 0; i < watches->count; i++)
		free((char *)watches->all[i].key.bytes);
	free(watches->all);
	free(watches->places);
	free(watches);
	client->watches = NULL;
}

void redis_transaction_reset(struct redis_client *client)
{
	struct redis_transaction *transaction = client->transaction;
	uint32_t i;

	forget_watches(client);
	if (!transaction)
		return;
	for (i = 0; i < transaction->count; i++)
		free(transaction->queue[i]);
	free(transaction->queue);
	free(transaction);
	client->transaction = NULL;
}

void redis_transaction_spoil(struct redis_client *client)
{
	client->transaction->is_spoilt = true;
}

int64_t redis_transaction_size(const struct redis_client *client,
			       uint64_t *bytes)
{
	const struct redis_transaction *transaction = client->transaction;

	*bytes = transaction ? transaction->bytes : 0;
	return transaction ? (int64_t)transaction->count : -1;
}

uint64_t redis_transaction_memory(const struct redis_client *client)
{
	const struct redis_watches *watches = client->watches;
	uint64_t size = client->transaction ? client->transaction->bytes : 0;

	if (watches)
		size += watches->bytes +
			watches->room * (sizeof(*watches->all) +
					 2 * sizeof(*watches->places));
	return size;
}

/* --- queueing --- */

static struct queued *copy_request(const struct redis_command *command,
				   const struct redis_request *request)
{
	size_t arguments = request->argc * sizeof(struct redis_bytes);
	size_t size = sizeof(struct queued) + arguments;
	struct queued *copy;
	char *bytes;
	uint32_t i;

	for (i = 0; i < request->argc; i++)
		size += request->argv[i].size;
	copy = malloc(size);
	if (!copy)
		return NULL;
	bytes = (char *)copy->argv + arguments;
	for (i = 0; i < request->argc; i++) {
		copy->argv[i].bytes = bytes;
		copy->argv[i].size = request->argv[i].size;
		memcpy(bytes, request->argv[i].bytes, request->argv[i].size);
		bytes += request->argv[i].size;
	}
	copy->command = command;
	copy->request = (struct redis_request){.argc = request->argc,
					       .argv = copy->argv};
	return copy;
}

static uint64_t size_of_request(const struct redis_request *request)
{
	uint64_t size = sizeof(struct queued);
	uint32_t i;

	for (i = 0; i < request->argc; i++)
		size += sizeof(struct redis_bytes) + request->argv[i].size;
	return size;
}

void redis_transaction_queue(struct redis_client *client,
			     const struct redis_command *command,
			     const struct redis_request *request)
{
	struct redis_transaction *transaction = client->transaction;
	struct redis_door *door = client->thread->door;
	struct queued *copy = NULL;

	/* Requests that wait for EXEC have the same limit as those that wait to
	 * be parsed. */
	transaction->bytes += size_of_request(request);
	if (transaction->bytes >
	    atomic_load_explicit(&redis_door_config(door)->query_max,
				 memory_order_relaxed)) {
		client->is_dead = true;
		return;
	}
	if (grow_array((void **)&transaction->queue, &transaction->room,
		       transaction->count, sizeof(transaction->queue[0])))
		copy = copy_request(command, request);
	if (!copy) {
		transaction->is_spoilt = true;
		redis_reply_failure(client->thread, client, -ENOMEM);
		return;
	}
	transaction->queue[transaction->count++] = copy;
	redis_reply_status(&client->reply, "QUEUED");
}

static void run_multi(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	(void)request;
	if (client->transaction) {
		redis_reply_error(&client->reply,
				  "ERR MULTI calls can not be nested");
		return;
	}
	client->transaction = calloc(1, sizeof(struct redis_transaction));
	if (client->transaction)
		redis_reply_status(&client->reply, "OK");
	else
		redis_reply_failure(thread, client, -ENOMEM);
}

static void run_discard(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	(void)thread;
	(void)request;
	if (!client->transaction) {
		redis_reply_error(&client->reply, "ERR DISCARD without MULTI");
		return;
	}
	redis_transaction_reset(client);
	redis_reply_status(&client->reply, "OK");
}

/* --- watching --- */

static uint32_t first_place(const struct redis_watches *watches, uint32_t db,
			    const struct redis_bytes *key)
{
	/* The seed is an address, so that nobody outside can choose keys that
	 * collide. */
	return (uint32_t)reef_hash(key->bytes, key->size,
				   (uintptr_t)watches + db) &
	       (2 * watches->room - 1);
}

static struct watch *find_watch(const struct redis_watches *watches,
				uint32_t db, const struct redis_bytes *key)
{
	uint32_t at = first_place(watches, db, key);
	struct watch *watch;

	while (watches->places[at]) {
		watch = &watches->all[watches->places[at] - 1];
		if (watch->db == db && watch->key.size == key->size &&
		    !memcmp(watch->key.bytes, key->bytes, key->size))
			return watch;
		at = (at + 1) & (2 * watches->room - 1);
	}
	return NULL;
}

static void place_watch(struct redis_watches *watches, uint32_t index)
{
	const struct watch *watch = &watches->all[index];
	uint32_t at = first_place(watches, watch->db, &watch->key);

	while (watches->places[at])
		at = (at + 1) & (2 * watches->room - 1);
	watches->places[at] = index + 1;
}

/* Make room for one more watch. False: too many, or no memory. */
static bool grow_watches(struct redis_watches *watches)
{
	uint32_t before = watches->room, i;
	uint32_t *places;

	if (watches->count >= WATCHES_MAX ||
	    !grow_array((void **)&watches->all, &watches->room, watches->count,
			sizeof(watches->all[0])))
		return false;
	if (watches->room == before)
		return true;
	places = calloc(2 * (size_t)watches->room, sizeof(*places));
	if (!places) {
		watches->room = before;
		return false;
	}
	free(watches->places);
	watches->places = places;
	for (i = 0; i < watches->count; i++)
		place_watch(watches, i);
	return true;
}

static int add_watch(struct redis_client *client, const struct redis_bytes *key,
		     uint64_t version)
{
	struct redis_watches *watches = client->watches;
	char *bytes = malloc(key->size + 1);

	if (!bytes)
		return -ENOMEM;
	if (!watches)
		watches = calloc(1, sizeof(*watches));
	if (!watches || !grow_watches(watches)) {
		if (!client->watches)
			free(watches);
		free(bytes);
		return -ENOMEM;
	}
	client->watches = watches;
	memcpy(bytes, key->bytes, key->size);
	watches->all[watches->count] = (struct watch){
		.db = client->db,
		.key = {bytes, key->size},
		.version = version,
	};
	watches->bytes += key->size;
	place_watch(watches, watches->count++);
	/* cppcheck-suppress memleak ; the watch has them */
	return 0;
}

static void run_watch(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	const struct redis_bytes *key;
	uint32_t i;
	int rc;

	if (client->transaction) {
		redis_reply_error(&client->reply,
				  "ERR WATCH inside MULTI is not allowed");
		return;
	}
	for (i = 1; i < request->argc; i++) {
		if (!redis_pause(thread, client))
			return;
		key = &request->argv[i];
		if (client->watches &&
		    find_watch(client->watches, client->db, key))
			continue;
		rc = redis_peek_head(thread, client, key);
		if (rc && rc != -ENOENT)
			return;
		rc = add_watch(client, key, rc ? 0 : thread->value.version);
		if (rc) {
			redis_reply_failure(thread, client, rc);
			return;
		}
	}
	redis_value_trim(thread);
	redis_reply_status(&client->reply, "OK");
}

static void run_unwatch(struct redis_thread *thread,
			struct redis_client *client,
			const struct redis_request *request)
{
	(void)thread;
	(void)request;
	forget_watches(client);
	redis_reply_status(&client->reply, "OK");
}

/* Check all watched keys, within a unit.  1: they are as they were.  0: one has
 * changed.  Negative: the unit, or the client, has come to an end. */
static int check_watches(struct redis_thread *thread,
			 struct redis_client *client)
{
	const struct redis_watches *watches = client->watches;
	const struct watch *watch;
	struct reef_map *map;
	uint32_t i;
	int rc;

	for (i = 0; i < watches->count; i++) {
		if (!redis_pause(thread, client))
			return -EPIPE;
		watch = &watches->all[i];
		rc = redis_map_try(thread, watch->db, &map);
		redis_unit_note(client, rc);
		if (!rc)
			rc = redis_unit_read(client, map, &watch->key,
					     &thread->value);
		if (rc && rc != -ENOENT)
			return rc;
		if ((rc ? 0 : thread->value.version) != watch->version)
			return 0;
	}
	redis_value_trim(thread);
	return 1;
}

void redis_transaction_saw(struct redis_client *client, uint32_t db,
			   const struct redis_bytes *key, uint64_t version)
{
	const struct watch *watch;

	if (client->unit)
		return;
	watch = find_watch(client->watches, db, key);
	if (watch && watch->version != version)
		client->watches->is_stale = true;
}

/* --- running --- */

/* What queued commands may set in the connection. */
struct connection {
	char *name, *library, *library_version; /* malloc's, or NULL */
	uint32_t db;
	uint8_t protocol;
	bool is_authenticated, is_stranger;
	bool no_evict, no_touch;
};

static void free_connection(struct connection *saved)
{
	free(saved->name);
	free(saved->library);
	free(saved->library_version);
}

/* True, or false without memory. */
static bool copy_text(const char *text, char **out)
{
	*out = text ? strdup(text) : NULL;
	return *out || !text;
}

/* -ENOMEM. */
static int save_connection(const struct redis_client *client,
			   struct connection *saved)
{
	*saved = (struct connection){
		.db = client->db,
		.protocol = client->reply.protocol,
		.is_authenticated = client->is_authenticated,
		.is_stranger = client->parser.is_stranger,
		.no_evict = client->no_evict,
		.no_touch = client->no_touch,
	};
	if (copy_text(client->name, &saved->name) &&
	    copy_text(client->library, &saved->library) &&
	    copy_text(client->library_version, &saved->library_version))
		return 0;
	free_connection(saved);
	return -ENOMEM;
}

static void swap_text(char **a, char **b)
{
	char *text = *a;

	*a = *b;
	*b = text;
}

static void restore_connection(struct redis_client *client,
			       struct connection *saved)
{
	client->db = saved->db;
	client->reply.protocol = saved->protocol;
	client->is_authenticated = saved->is_authenticated;
	client->parser.is_stranger = saved->is_stranger;
	client->no_evict = saved->no_evict;
	client->no_touch = saved->no_touch;
	swap_text(&client->name, &saved->name);
	swap_text(&client->library, &saved->library);
	swap_text(&client->library_version, &saved->library_version);
}

/* EXEC under way. */
struct exec {
	struct redis_transaction *transaction;
	struct redis_mark begin; /* of the whole answer */
	struct connection saved; /* as it was then */
	uint32_t at, end;	 /* the part that is a unit */
	struct redis_mark mark;	 /* of that part */
	struct connection part;	 /* as it was then */
	bool has_changed;	 /* a part before it has */
	bool is_stale;
};

/* Take back what the last attempt at this part did. */
static int begin_again(struct redis_client *client, struct exec *exec)
{
	restore_connection(client, &exec->part);
	free_connection(&exec->part);
	redis_reply_rewind(&client->reply, exec->mark);
	return save_connection(client, &exec->part);
}

static int run_part(struct redis_thread *thread, struct redis_client *client,
		    void *context)
{
	struct exec *exec = context;
	int rc = 0;

	if (client->unit && client->unit->attempt > 1)
		rc = begin_again(client, exec);
	if (rc)
		return redis_unit_note(client, rc);
	if (client->unit && client->watches && !exec->has_changed) {
		rc = check_watches(thread, client);
		exec->is_stale = rc == 0;
		if (rc != 1)
			return rc ? rc : REDIS_ANSWERED;
	}
	for (uint32_t i = exec->at; i < exec->end; i++) {
		const struct queued *queued = exec->transaction->queue[i];

		redis_run(thread, client, queued->command, &queued->request);
		if (redis_unit_failed(client))
			return client->unit->rc;
		if (!redis_pause(thread, client))
			return -EPIPE;
	}
	return 0;
}

/* Answer what has befallen a part: if nothing was done or sent before it, all
 * of EXEC has failed (false), else each command of the part. */
static bool reply_part_failure(struct redis_thread *thread,
			       struct redis_client *client, struct exec *exec,
			       int rc)
{
	if (exec->has_changed ||
	    !redis_reply_has_mark(&client->reply, exec->begin)) {
		redis_reply_rewind(&client->reply, exec->mark);
		for (uint32_t i = exec->at; i < exec->end; i++)
			redis_reply_unit_failure(thread, client, rc);
		return true;
	}
	redis_reply_rewind(&client->reply, exec->begin);
	if (rc == -ENOSPC || rc == -EDQUOT)
		redis_reply_error(&client->reply,
				  "EXECABORT Transaction discarded because of: "
				  "OOM command not allowed when used memory > "
				  "'maxmemory'.");
	else
		redis_reply_unit_failure(thread, client, rc);
	return false;
}

/* Which commands are the next part; true if it is a unit. */
static bool find_part(const struct redis_client *client, struct exec *exec)
{
	struct queued *const *queue = exec->transaction->queue;
	bool has_keys = client->watches && !exec->has_changed;

	for (exec->end = exec->at; exec->end < exec->transaction->count;
	     exec->end++) {
		const struct redis_command *command = queue[exec->end]->command;

		if (command->flags & REDIS_WHOLE)
			break;
		has_keys |= command->first_key != 0;
	}
	return has_keys;
}

static bool has_writes(const struct exec *exec)
{
	for (uint32_t i = exec->at; i < exec->end; i++)
		if (exec->transaction->queue[i]->command->flags & REDIS_WRITE)
			return true;
	return false;
}

/* Run a part as a unit. False: EXEC ends with it. */
static bool run_unit(struct redis_thread *thread, struct redis_client *client,
		     struct exec *exec)
{
	int rc = save_connection(client, &exec->part);

	/* What it answers may have to be taken back. */
	redis_reply_hold(&client->reply);
	client->is_held = true;
	exec->mark = redis_reply_mark(&client->reply);
	if (!rc) {
		rc = redis_atomically_try(thread, client, run_part, exec,
					  false);
		if (rc && rc != -EPIPE)
			restore_connection(client, &exec->part);
		free_connection(&exec->part);
	}
	if (rc == -EPIPE || exec->is_stale)
		return false;
	if (rc && !reply_part_failure(thread, client, exec, rc))
		return false;
	exec->has_changed |= has_writes(exec);
	client->is_held = client->watches && !exec->has_changed;
	return true;
}

/* Run the next part, or the one command that cuts the queue. False: EXEC ends
 * with it. */
static bool run_next(struct redis_thread *thread, struct redis_client *client,
		     struct exec *exec)
{
	const bool is_unit = find_part(client, exec);

	if (is_unit && !run_unit(thread, client, exec))
		return false;
	if (!is_unit && run_part(thread, client, exec))
		return false;
	exec->at = exec->end;
	if (exec->at == exec->transaction->count)
		return true;
	exec->end = exec->at + 1;
	exec->has_changed |= has_writes(exec);
	if (run_part(thread, client, exec))
		return false;
	exec->at++;
	return true;
}

static void run_queue(struct redis_thread *thread, struct redis_client *client,
		      struct exec *exec)
{
	bool goes_on = true;

	redis_reply_hold(&client->reply);
	exec->begin = redis_reply_mark(&client->reply);
	redis_reply_array(&client->reply, exec->transaction->count);
	while (goes_on && exec->at < exec->transaction->count)
		goes_on = run_next(thread, client, exec);
	/* An empty queue still looks at what is watched. */
	if (!exec->transaction->count && client->watches)
		run_unit(thread, client, exec);
	client->is_held = false;
	if (exec->is_stale && !client->is_dead) {
		restore_connection(client, &exec->saved);
		redis_reply_rewind(&client->reply, exec->begin);
		redis_reply_null_array(&client->reply);
	}
}

static void exec_queue(struct redis_thread *thread, struct redis_client *client)
{
	struct exec exec = {.transaction = client->transaction};
	int rc = save_connection(client, &exec.saved);

	if (rc) {
		redis_reply_failure(thread, client, rc);
		return;
	}
	run_queue(thread, client, &exec);
	free_connection(&exec.saved);
}

static void run_exec(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	const struct redis_command *self = client->command;

	(void)request;
	if (!client->transaction) {
		redis_reply_error(&client->reply, "ERR EXEC without MULTI");
		return;
	}
	if (client->transaction->is_spoilt)
		redis_reply_error(&client->reply,
				  "EXECABORT Transaction discarded because of "
				  "previous errors.");
	else if (client->watches && client->watches->is_stale)
		redis_reply_null_array(&client->reply);
	else
		exec_queue(thread, client);
	client->command = self;
	redis_transaction_reset(client);
}

#define ANYTIME (REDIS_NOSCRIPT | REDIS_LOADING | REDIS_STALE)
#define QUICK (ANYTIME | REDIS_FAST | REDIS_ALLOW_BUSY)

struct redis_command redis_transaction_commands[] = {
	REDIS_COMMAND("multi", 1, QUICK | REDIS_UNQUEUED, 0, 0, 0, run_multi),
	REDIS_COMMAND("exec", 1,
		      ANYTIME | REDIS_SKIP_SLOWLOG | REDIS_UNQUEUED |
			      REDIS_LONG,
		      0, 0, 0, run_exec),
	REDIS_COMMAND("discard", 1, QUICK | REDIS_UNQUEUED, 0, 0, 0,
		      run_discard),
	REDIS_COMMAND("watch", -2, QUICK | REDIS_UNQUEUED | REDIS_LONG, 1, -1,
		      1, run_watch),
	REDIS_COMMAND("unwatch", 1, QUICK, 0, 0, 0, run_unwatch),
	{0},
};
