/* member.c - what the keeper sees of handles. See member.h. */
#include "pool/client/keeper/member.h"

#include "pool/client/keeper/keeper.h"

void client_member_add(struct reef_client *client, struct client_member *member)
{
	pthread_mutex_lock(&client->lock);
	member->next = client->members;
	client->members = member;
	pthread_mutex_unlock(&client->lock);
}

void client_member_remove(struct reef_client *client,
			  struct client_member *member)
{
	struct client_member **at;

	pthread_mutex_lock(&client->lock);
	for (at = &client->members; *at != member; at = &(*at)->next)
		;
	*at = member->next;
	client_counters_sum(&client->counters, &member->counters);
	pthread_mutex_unlock(&client->lock);
}

void client_members_wake(struct reef_client *client)
{
	struct client_member *member;

	for (member = client->members; member; member = member->next)
		reef_queue_wake(member->queue);
}
