/* server.c - TIME, MODULE. */
#include "gateway/redis/commands/access.h"
#include "gateway/redis/commands/docs/help.h"

/* TIME tells the pool's clock, by which keys expire; it is known in
 * milliseconds. */
static void run_time(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	uint64_t now_ms;

	(void)request;
	if (!redis_now(thread, client, &now_ms))
		return;
	redis_reply_array(&client->reply, 2);
	redis_reply_bulk_integer(&client->reply, (int64_t)(now_ms / 1000));
	redis_reply_bulk_integer(&client->reply,
				 (int64_t)(now_ms % 1000 * 1000));
}

static void run_module_list(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	(void)thread;
	(void)request;
	redis_reply_array(&client->reply, 0);
}

static void run_module_help(struct redis_thread *thread,
			    struct redis_client *client,
			    const struct redis_request *request)
{
	static const char *const lines[] = {
		"LIST",
		"    The modules, of which there are none.",
		NULL,
	};

	(void)thread;
	(void)request;
	redis_reply_help(client, lines);
}

static struct redis_command modules[] = {
	REDIS_COMMAND("help", 2, REDIS_LOADING | REDIS_STALE, 0, 0, 0,
		      run_module_help),
	REDIS_COMMAND("list", 2, REDIS_ADMIN | REDIS_NOSCRIPT, 0, 0, 0,
		      run_module_list),
	{0},
};

struct redis_command redis_server_commands[] = {
	REDIS_COMMAND("time", 1, REDIS_LOADING | REDIS_STALE | REDIS_FAST, 0, 0,
		      0, run_time),
	{.name = "module", .arity = -2, .subcommands = modules},
	{0},
};
