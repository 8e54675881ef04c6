/* acknowledge.c - up to which pool epoch this session has let go of what
 * changed.
 *
 *          the table has a later one
 *   DONE ------------------------------> SEEN
 *    ^                                    | every space is refreshed: nodes
 * that |  in the next renewal, at once      v are gone have no link any more
 *   ACKNOWLEDGED <------------------- TAKEN IN
 *                  the grace of all handles is over for whatever was
 *                  retired by then: closed, unmapped
 *
 * (1) A node is gone if its row says so, or if the view has no extent there
 * that is not LOST: that is all that is told of a node which is DEAD. Its link
 *     is retired, and as long as the view is so, none is made.
 * (2) What is acknowledged stays true. Rows that were asked for before the
 * epoch was seen are older: of refreshes (which come one after the other),
 * nodes (view.h, 3) and extents (view.c, 2) they change nothing, and the answer
 *     that opens a space is not taken in (space_job.c).
 * (3) While the broker is away nothing can be taken in, and nobody waits. */
#include "pool/client/keeper/acknowledge.h"

#include "base/mutant.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/touch.h"
#include "pool/client/keeper/view.h"
#include "wire/states.h"

#define PAUSE_NS (10 * CLIENT_MILLISECOND)

void client_epoch_begin(struct reef_client *client, uint64_t epoch)
{
	client->pool_epoch = client->view_epoch = epoch;
	client->acknowledged = client->acknowledged_told = epoch;
}

uint64_t client_epoch_of(const struct reef_client *client, uint64_t bits)
{
	int32_t later =
		(int32_t)((uint32_t)bits - (uint32_t)client->pool_epoch);

	return client->pool_epoch + (uint64_t)(int64_t)later;
}

void client_epoch_seen(struct reef_client *client, uint64_t epoch)
{
	if (epoch <= client->pool_epoch)
		return;
	client->pool_epoch = epoch;
	client_wake(&client->changed);
}

int client_epoch_take_in(struct reef_client *client, uint64_t epoch)
{
	int rc = 0;

	client_epoch_seen(client, epoch);
	if (client->view_epoch < epoch)
		rc = client_view_refresh_all(client,
					     client_patience_ns(client));
	if (!rc && client->view_epoch < epoch)
		client->view_epoch = epoch;
	return rc;
}

/* True if the view has memory at a node. */
static bool has_memory_at(const struct reef_client *client, uint32_t node)
{
	const struct client_extent *extent;

	for (uint32_t i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->node == node &&
		    extent->state != REEF_EXTENT_LOST)
			return true;
	}
	return false;
}

/* (1) */
static void drop_links_to_gone(struct reef_client *client)
{
	struct client_node *node;

	/* What is under way at a node that is not known to be gone is not cut
	 * off: it would be in doubt, and have to be settled. */
	for (node = client->nodes; node; node = node->next) {
		if (!node->peer || has_memory_at(client, node->id))
			continue;
		if (node->is_gone)
			client_node_sever(client, node);
		else
			client_node_unlink(client, node);
	}
}

/* Let go of whatever changed up to that epoch. */
static int let_go(struct reef_client *client, uint64_t epoch)
{
	int rc = client_epoch_take_in(client, epoch);

	if (rc)
		return rc;
	drop_links_to_gone(client);
	return REEF_MUTATED(CLIENT_ACK_EARLY) ? 0 : client_grace_wait(client);
}

void client_acknowledged(struct reef_client *client, uint64_t epoch)
{
	if (epoch <= client->acknowledged_told)
		return;
	client->acknowledged_told = epoch;
	/* Somebody may wait for it. It may be lost: the broker looks by itself,
	 * too. */
	if (client->peer)
		(void)reef_rpc_note(client->peer, REEF_POOL_HURRY, NULL);
}

int client_acknowledge_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t epoch;
	int rc = 0;

	while (rc != -REEF_EHOSTDEAD && !client->stopping &&
	       !client_over(client)) {
		epoch = client->pool_epoch;
		if (client->acknowledged >= epoch) {
			rc = client_wait(&client->changed, REEF_FOREVER);
			continue;
		}
		rc = let_go(client, epoch);
		if (!rc) {
			client->acknowledged = epoch;
			client->renew_now = true;
			client_wake(&client->changed);
		} else if (rc != -REEF_EHOSTDEAD) {
			rc = client_wait(&client->changed, PAUSE_NS);
		}
	}
	client_fiber_end(client);
	return 0;
}
