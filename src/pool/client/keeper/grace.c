/* grace.c - when a link or a remote may go.
 *
 * A handle finds a link and a remote in its cache, or in the view, and uses
 * them without a lock. The keeper takes them out of the view, moves `version`,
 * which handles look at once they are inside, and closes them when nobody that
 * may have seen the version before is inside any more (base/grace.h):
 *
 * (1) A call of call.c is inside from when it looks at the cache until its last
 *     batch has ended: calls of a handle are a crowd. A fiber or task that
 *     waits for the keeper is outside.
 * (2) What is done in place is inside by the turn of the handle's near queue,
 *     and by nothing else: so a grace of turns is awaited, too. */
#include "pool/client/keeper/grace.h"

#include "base/mutant.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/member.h"

#include <stdlib.h>

static void add_retired(struct reef_client *client, struct reef_peer *peer,
			struct reef_remote *remote)
{
	struct client_retired *retired = malloc(sizeof(*retired));

	/* What cannot be noted, for want of memory, stays open until the rpc
	 * and its port are closed; nothing is acknowledged any more then. */
	client->retired_count++;
	if (!retired)
		return;
	*retired = (struct client_retired){.peer = peer, .remote = remote};
	*client->retired_tail = retired;
	client->retired_tail = &retired->next;
	client_wake(&client->changed);
}

void client_retire_peer(struct reef_client *client, struct reef_peer *peer)
{
	add_retired(client, peer, NULL);
}

void client_retire_remote(struct reef_client *client,
			  struct reef_remote *remote)
{
	add_retired(client, NULL, remote);
}

static void close_retired(struct reef_client *client,
			  struct client_retired *retired)
{
	struct client_retired *next;

	for (; retired; retired = next) {
		next = retired->next;
		if (retired->peer)
			reef_peer_close(retired->peer);
		else
			reef_detach(reef_port_queue_of(client->port,
						       retired->remote->link),
				    retired->remote);
		client->closed_count++;
		free(retired);
	}
	client_wake(&client->changed);
}

static struct client_retired *claim_retired(struct reef_client *client)
{
	struct client_retired *retired = client->retired;

	client->retired = NULL;
	client->retired_tail = &client->retired;
	return retired;
}

/* Put claimed ones back, in front, as a remote goes before its link: they are
 * closed at the end of the keeper. */
static void return_retired(struct reef_client *client,
			   struct client_retired *retired)
{
	struct client_retired **end = &retired->next;

	while (*end)
		end = &(*end)->next;
	*end = client->retired;
	if (!client->retired)
		client->retired_tail = end;
	client->retired = retired;
}

void client_retired_close_all(struct reef_client *client)
{
	close_retired(client, claim_retired(client));
}

/* True if no call of any handle is in that phase. */
static bool have_calls_left(struct reef_client *client, uint32_t phase)
{
	struct client_member *member;
	bool left = true;

	pthread_mutex_lock(&client->lock);
	for (member = client->members; member && left; member = member->next)
		left = reef_crowd_has_left(&member->calls, phase);
	pthread_mutex_unlock(&client->lock);
	return left;
}

/* Wait until no call is in that phase, and the turns of `grace` are over. */
static int wait_until_left(struct reef_client *client, uint32_t phase,
			   uint64_t grace)
{
	uint64_t pause_ns = CLIENT_MILLISECOND / 20;
	int rc = 0;

	reef_grace_barrier();
	while (!rc && !client->stopping &&
	       !(have_calls_left(client, phase) && reef_grace_is_over(grace))) {
		rc = reef_sleep(pause_ns);
		if (pause_ns < 10 * CLIENT_MILLISECOND)
			pause_ns *= 2;
	}
	return rc;
}

int client_grace_wait(struct reef_client *client)
{
	uint64_t wanted = client->retired_count;
	int rc = 0;

	while (!rc && client->closed_count < wanted) {
		if (client->stopping || client_over(client))
			return -ECANCELED;
		rc = client_wait(&client->changed, REEF_FOREVER);
	}
	return rc;
}

int client_grace_main(void *arg)
{
	struct reef_client *client = arg;
	struct client_retired *retired;
	uint64_t grace;
	uint32_t phase;
	int rc = 0;

	while (!rc && !client->stopping) {
		/* With this mutant handles never refresh their caches, so
		 * nothing may be closed. */
		if (!client->retired || REEF_MUTATED(CLIENT_STALE_EXTENT)) {
			rc = client_wait(&client->changed, REEF_FOREVER);
			continue;
		}
		retired = claim_retired(client);
		grace = reef_grace_begin();
		phase = atomic_load(&client->phase) & 1;
		rc = wait_until_left(client, !phase, grace);
		atomic_store(&client->phase, !phase);
		if (!rc)
			rc = wait_until_left(client, phase, grace);
		/* Who stops has not waited, and other fibers of the keeper may
		 * have calls under way. */
		if (client->stopping)
			return_retired(client, retired);
		else
			close_retired(client, retired);
	}
	client_fiber_end(client);
	return 0;
}
