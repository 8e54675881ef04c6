/* pool_link.c - a thread's way to the pool, and what is said when there is
 *none.
 *
 *	closed --(keep: open)--> open --(-REEF_EFENCED anywhere,--> fenced
 *	   ^  \                           or -EACCES of a map)        |
 *	   |   `-- failed: again after a pause that grows to 1 s      |
 *	   +---------------------- (keep: close) ---------------------+
 *
 * The space is the door's own, so -EACCES can only mean that it was dropped:
 * keep makes it anew, or opens the one that another has made meanwhile.
 *
 * While broker and node are both out of reach an operation takes PATIENCE to
 * say so. Then the thread is *away* for a while: it says so at once, and only
 * now and then tries again, so that many clients wait no longer than one.
 */
#include "base/log.h"
#include "gateway/redis/server/internal.h"
#include "gateway/redis/server/stage.h"
#include "pool/client/client.h"

#include <errno.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define PAUSE_LEAST (10 * MS)
#define PAUSE_MOST SECOND
/* How long joining may take: the thread's clients wait meanwhile. */
#define JOIN_TIMEOUT SECOND
#define PATIENCE (3 * SECOND)
#define AWAY "LOADING the pool is out of reach; it is tried again"
/* After an operation found no link, no other is tried for so long. */
#define AWAY_PAUSE SECOND

int redis_link_open(const struct redis_door_options *options,
		    uint64_t timeout_ns, struct reef **reef,
		    struct reef_space **space)
{
	const struct reef_options open_options = {
		.credential = options->credential,
		.fabrics = options->fabrics,
		.tls = options->pool_tls,
		.name = "redis",
		.timeout_ns = timeout_ns,
		.patience_ns = PATIENCE,
	};
	const struct reef_space_options space_options = {
		.flags = REEF_SPACE_CREATE,
		.copies = options->copies,
	};
	int rc = reef_open(options->pool, &open_options, reef);

	if (rc)
		return rc;
	rc = reef_space_open(*reef, options->space, &space_options, space);
	if (rc == 0 && !reef_space_is_own(*space)) {
		reef_space_close(*space);
		*space = NULL;
		rc = -EACCES;
	}
	if (rc == -EPERM || rc == -EACCES)
		rc = -EXDEV;
	if (rc) {
		reef_close(*reef);
		*reef = NULL;
	}
	return rc;
}

int redis_link_has_nodes(struct reef *reef, uint8_t nodes)
{
	/* A space without a name is refused if its copies have no room, and has
	 * no memory before somebody wants some. */
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE | REEF_SPACE_STRICT,
		.copies = nodes,
	};
	struct reef_space *probe;
	int rc = reef_space_open(reef, NULL, &options, &probe);

	if (!rc)
		reef_space_close(probe);
	return rc;
}

static void close_maps(struct redis_thread *thread)
{
	uint32_t i;

	for (i = 0; i < REDIS_DATABASES_MAX; i++) {
		reef_map_close(thread->maps[i]);
		thread->maps[i] = NULL;
	}
	thread->has_dropped_map = false;
}

void redis_link_close(struct redis_thread *thread)
{
	redis_stage_clear(thread, true);
	close_maps(thread);
	reef_space_close(thread->space);
	reef_close(thread->reef);
	thread->space = NULL;
	thread->reef = NULL;
	thread->is_fenced = false;
}

void redis_link_keep(struct redis_thread *thread)
{
	int rc;

	if (thread->reef && (!thread->is_fenced || thread->units))
		return;
	if (thread->is_fenced) {
		redis_link_close(thread);
		thread->retry_ns = 0;
		thread->retry_pause_ns = PAUSE_LEAST;
	}
	if (thread->now_ns < thread->retry_ns)
		return;
	rc = redis_link_open(&thread->door->options, JOIN_TIMEOUT,
			     &thread->reef, &thread->space);
	if (!rc) {
		thread->retry_pause_ns = PAUSE_LEAST;
		thread->lost_ns = 0; /* of maps that are closed now */
		return;
	}
	reef_log(REEF_LOG_WARNING, "redis",
		 "thread %u: the pool cannot be opened: %s", thread->index,
		 reef_error_text(rc));
	thread->retry_ns = reef_now_ns() + thread->retry_pause_ns;
	thread->retry_pause_ns *= 2;
	if (thread->retry_pause_ns > PAUSE_MOST)
		thread->retry_pause_ns = PAUSE_MOST;
}

/* --- for commands --- */

/* Let redis_link_keep close all and open it anew, as after a session's end. */
static void note_dropped_space(struct redis_thread *thread)
{
	if (thread->is_fenced)
		return;
	reef_log(
		REEF_LOG_WARNING, "redis",
		"thread %u: the space \"%s\" was dropped; it is opened or made "
		"anew",
		thread->index, thread->door->options.space);
	thread->is_fenced = true;
}

void redis_reply_failure(struct redis_thread *thread,
			 struct redis_client *client, int rc)
{
	struct redis_reply *reply = &client->reply;

	switch (rc) {
	case -EAGAIN:
		redis_reply_error(reply, AWAY);
		return;
	case -ENOSPC:
	case -EDQUOT:
		redis_reply_error(reply, "OOM command not allowed when used "
					 "memory > 'maxmemory'.");
		return;
	case -REEF_EFENCED:
		thread->is_fenced = true;
		redis_reply_error(reply, "LOADING the session with the pool "
					 "has ended; it is opened anew");
		return;
	case -EACCES:
		note_dropped_space(thread);
		redis_reply_error(reply, "LOADING the space was dropped just "
					 "now; it is made anew");
		return;
	case -REEF_EDROPPED:
		/* The map is closed later: the command that runs may still use
		 * it. */
		thread->has_dropped_map = true;
		redis_reply_error(reply, "ERR reef: this database was dropped "
					 "just now");
		return;
	case -REEF_ELOST:
		/* If the map itself is lost, opening it makes it anew. */
		if (thread->now_ns - thread->lost_ns > SECOND) {
			thread->lost_ns = thread->now_ns;
			thread->has_dropped_map = true;
		}
		break;
	case -REEF_ENOLINK:
		thread->away_until_ns = reef_now_ns() + AWAY_PAUSE;
		redis_reply_error(reply, AWAY);
		return;
	case -ETIMEDOUT:
		thread->away_until_ns = reef_now_ns() + AWAY_PAUSE;
		redis_reply_error(reply, "ERR reef: connection lost; it "
					 "happened, or it did not, or it still "
					 "will");
		return;
	case -REEF_EINDOUBT:
		/* If the session's end is why, it is opened anew at once. */
		if (reef_health(thread->reef) == -REEF_EFENCED)
			thread->is_fenced = true;
		redis_reply_error(reply, "ERR reef: connection lost; it "
					 "happened, or it did not: read the "
					 "key to find out");
		return;
	default:
		break;
	}
	redis_reply_errorf(reply, "ERR reef: %s (%s)", reef_error_text(rc),
			   reef_error_name(rc));
}

#define NAME_SIZE 16

static void name_map(uint32_t db, char name[NAME_SIZE])
{
	snprintf(name, NAME_SIZE, "db%u", db);
}

/* Open a database. If the map's memory is gone with the node that lent it, the
 * map begins anew, as a Redis that saves nothing does when it is restarted. */
static int open_map(struct redis_thread *thread, uint32_t db, uint32_t flags)
{
	const struct reef_map_options options = {
		.flags = flags | REEF_MAP_RENEW,
	};
	char name[NAME_SIZE];
	int rc;

	if (!thread->reef || thread->is_fenced)
		return -REEF_EFENCED;
	name_map(db, name);
	rc = reef_map_open(thread->space, name, &options, &thread->maps[db]);
	if (rc == -EACCES)
		note_dropped_space(thread);
	return rc;
}

int redis_map_existing(struct redis_thread *thread, uint32_t db,
		       struct reef_map **out)
{
	int rc = 0;

	if (thread->has_dropped_map && !thread->units)
		close_maps(thread);
	if (!thread->maps[db])
		rc = open_map(thread, db, REEF_MAP_EXISTING);
	if (!rc)
		*out = thread->maps[db];
	return rc;
}

int redis_map_drop(struct redis_thread *thread, uint32_t db)
{
	char name[NAME_SIZE];

	name_map(db, name);
	thread->has_dropped_map = true;
	return reef_map_drop(thread->space, name);
}

int redis_map_try(struct redis_thread *thread, uint32_t db,
		  struct reef_map **out)
{
	int rc = 0;

	reef_assert(db < REDIS_DATABASES_MAX);
	if (thread->has_dropped_map && !thread->units)
		close_maps(thread);
	if (thread->now_ns < thread->away_until_ns ||
	    (!thread->maps[db] && (!thread->reef || thread->is_fenced)))
		return -EAGAIN;
	if (!thread->maps[db])
		rc = open_map(thread, db, 0);
	if (!rc)
		*out = thread->maps[db];
	return rc;
}

bool redis_map_of(struct redis_thread *thread, struct redis_client *client,
		  uint32_t db, struct reef_map **out)
{
	int rc = redis_map_try(thread, db, out);

	if (rc)
		redis_reply_failure(thread, client, rc);
	return !rc;
}

bool redis_map(struct redis_thread *thread, struct redis_client *client,
	       struct reef_map **out)
{
	return redis_map_of(thread, client, client->db, out);
}
