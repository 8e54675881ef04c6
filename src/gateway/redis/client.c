/* client.c - the command CLIENT. */
#include "gateway/redis/connection.h"
#include "gateway/redis/door.h"

static void client_id(struct redis_thread *thread, struct redis_client *client,
		      const struct redis_request *request)
{
	(void)thread;
	(void)request;
	redis_reply_integer(&client->reply, (int64_t)client->id);
}

static void client_getname(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	(void)thread;
	(void)request;
	if (client->name)
		redis_reply_text(&client->reply, client->name);
	else
		redis_reply_null(&client->reply);
}

static void client_setname(struct redis_thread *thread,
			   struct redis_client *client,
			   const struct redis_request *request)
{
	const char *fault = redis_name_fault(&request->argv[2]);

	(void)thread;
	if (!fault && !redis_text_set(&client->name, &request->argv[2]))
		fault = "OOM no memory for a name";
	if (fault)
		redis_reply_error(&client->reply, fault);
	else
		redis_reply_status(&client->reply, "OK");
}

static struct redis_command subcommands[] = {
	{.name = "getname", .arity = 2, .run = client_getname},
	{.name = "id", .arity = 2, .run = client_id},
	{.name = "setname", .arity = 3, .run = client_setname},
	{0},
};

struct redis_command redis_client_commands[] = {
	{.name = "client", .arity = -2, .subcommands = subcommands},
	{0},
};
