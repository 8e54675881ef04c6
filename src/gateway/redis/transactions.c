/* transactions.c - MULTI, EXEC, DISCARD, WATCH, UNWATCH. */
#include "gateway/redis/command.h"

void redis_transaction_queue(struct redis_client *client,
			     const struct redis_command *command,
			     const struct redis_request *request)
{
	(void)command;
	(void)request;
	redis_reply_status(&client->reply, "QUEUED");
}

void redis_transaction_spoil(struct redis_client *client)
{
	(void)client;
}

void redis_transaction_reset(struct redis_client *client)
{
	client->transaction = NULL;
	client->watches = NULL;
}
