/* save.c - SAVE, BGSAVE, LASTSAVE: the door's space in a file (server/save.h).
 */
#include "gateway/redis/server/save.h"
#include "base/fiber/sched.h"
#include "gateway/redis/commands/access.h"
#include "gateway/redis/server/door.h"

#include <errno.h>
#include <stdio.h>
#include <strings.h>

#define LOOK_NS UINT64_C(2000000)

static bool begin(struct redis_thread *thread, struct redis_client *client,
		  uint64_t *number)
{
	int rc = redis_save_begin(redis_door_save(thread->door), number);

	if (rc == -EBUSY)
		redis_reply_error(&client->reply,
				  "ERR Background save already in progress");
	else if (rc == -EOPNOTSUPP)
		redis_reply_error(&client->reply,
				  "ERR There is no file to save to: see the "
				  "setting redis-save");
	else if (rc)
		redis_reply_failure(thread, client, rc);
	return !rc;
}

/* SAVE answers when the image is on the disk. Others are served meanwhile, but
 * for the moment in which the space is closed. */
static void run_save(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct redis_save_info info = {0};
	uint64_t number;

	(void)request;
	if (!begin(thread, client, &number))
		return;
	do {
		if (!redis_sleep(thread, client, reef_now_ns() + LOOK_NS))
			return;
		redis_save_info(redis_door_save(thread->door), &info);
	} while (info.ended < number);
	/* Another may have ended since; who asks wants an image, which is
	 * there if the last one is. */
	if (info.has_failed)
		redis_reply_error(&client->reply,
				  "ERR The space was not saved; the door's log "
				  "says why");
	else
		redis_reply_status(&client->reply, "OK");
}

static void run_bgsave(struct redis_thread *thread, struct redis_client *client,
		       const struct redis_request *request)
{
	uint64_t number;

	if (request->argc > 2 ||
	    (request->argc == 2 &&
	     (request->argv[1].size != 8 ||
	      strncasecmp(request->argv[1].bytes, "schedule", 8)))) {
		redis_reply_syntax(client);
		return;
	}
	if (begin(thread, client, &number))
		redis_reply_status(&client->reply, "Background saving started");
}

static void run_lastsave(struct redis_thread *thread,
			 struct redis_client *client,
			 const struct redis_request *request)
{
	struct redis_save_info info;
	struct redis_door_info door;

	(void)request;
	redis_door_info(thread->door, &door);
	redis_save_info(redis_door_save(thread->door), &info);
	redis_reply_integer(
		&client->reply,
		(int64_t)(info.last_s ? info.last_s : door.started_ms / 1000));
}

struct redis_command redis_save_commands[] = {
	REDIS_COMMAND("bgsave", -1,
		      REDIS_ADMIN | REDIS_NOSCRIPT | REDIS_NO_ASYNC_LOADING, 0,
		      0, 0, run_bgsave),
	REDIS_COMMAND("lastsave", 1, REDIS_LOADING | REDIS_STALE | REDIS_FAST,
		      0, 0, 0, run_lastsave),
	REDIS_COMMAND("save", 1,
		      REDIS_ADMIN | REDIS_NOSCRIPT | REDIS_NO_ASYNC_LOADING |
			      REDIS_NO_MULTI | REDIS_LONG,
		      0, 0, 0, run_save),
	{0},
};
