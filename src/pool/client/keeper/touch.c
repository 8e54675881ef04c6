/* touch.c - links to nodes, and extents attached through them: made when
 * somebody needs them, and made anew when the memory refused.
 *
 *   what the memory said      what is done
 *   (nothing yet)             connect if there is no link, attach
 *   -REEF_EKEY                it moved, or is gone: ask the broker until it has
 *                             another place or keys, or is LOST
 *   -REEF_ENOLINK, -REEF_EINDOUBT   a new link; what was in doubt is settled
 *                             by it, or otherwise: settle.c
 *
 * (1) Ends with: usable; LOST, as the broker says; fenced; or patience is over
 *     while neither node nor broker could help (-REEF_ENOLINK).
 * (2) A link that was replaced is retired: see grace.c. Its remotes go with it.
 */
#include "pool/client/keeper/touch.h"

#include "base/log.h"
#include "base/mutant.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/settle.h"
#include "pool/client/keeper/view.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define PAUSE_MIN_NS (CLIENT_MILLISECOND / 4)
#define PAUSE_MAX_NS (50 * CLIENT_MILLISECOND)

void client_node_unlink(struct reef_client *client, struct client_node *node)
{
	struct reef_peer *peer = node->peer;
	struct client_extent *extent;
	uint32_t i;

	if (!peer)
		return;
	pthread_mutex_lock(&client->lock);
	for (i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->link == node->link) {
			extent->link = NULL;
			extent->remote = NULL;
		}
	}
	client_view_bump(client);
	node->peer = NULL;
	node->link = NULL;
	pthread_mutex_unlock(&client->lock);
	client_retire_peer(client, peer);
}

void client_node_sever(struct reef_client *client, struct client_node *node)
{
	uint32_t count = reef_mesh_count(reef_port_mesh(client->port));

	if (node->link)
		reef_link_sever(node->link);
	client_node_unlink(client, node);
	/* A fiber that connects to it looks whether it is gone. */
	for (uint32_t i = 0; node->connecting && i < count; i++)
		reef_queue_wake(reef_port_queue(client->port, i));
}

/* The address of that door. */
static char *copy_address(const char *addresses, uint32_t door)
{
	size_t size;

	addresses += strspn(addresses, " ");
	while (door-- && *addresses) {
		addresses += strcspn(addresses, " ");
		addresses += strspn(addresses, " ");
	}
	size = strcspn(addresses, " ");
	return strndup(addresses, size);
}

static bool has_other_door(const struct client_node *node)
{
	const char *addresses = node->addresses;

	addresses += strspn(addresses, " ");
	addresses += strcspn(addresses, " ");
	return addresses[strspn(addresses, " ")] != 0;
}

static int connect_node(struct reef_client *client, struct client_node *node)
{
	struct reef_connect_options options = {
		.session = client->session,
		.number = node->hellos + 1,
		.identity = "session",
		.is_vain =
			REEF_MUTATED(CLIENT_CONNECT_ON) ? NULL : &node->is_gone,
	};
	uint64_t incarnation = node->incarnation;
	struct reef_peer *peer;
	char *addresses;
	bool is_same_door;
	uint32_t door;
	int rc;

	if (!options.number) {
		reef_log(REEF_LOG_WARNING, "client",
			 "session %08x has no numbers left for links to node "
			 "%u, and ends",
			 client->session, node->id);
		client_session_end(client, -REEF_EFENCED);
		return -REEF_EFENCED;
	}
	/* A new link settles what was under way on the one before only where it
	 * is of the same fabric: unless that is settled, it goes to the same
	 * door (mesh.h, rule 2). */
	addresses = node->number > node->settled
			    ? copy_address(node->addresses, node->door)
			    : strdup(node->addresses);
	if (!addresses)
		return -ENOMEM;
	is_same_door = node->number > node->settled;
	node->hellos = options.number;
	memcpy(options.key, node->proof.bytes, sizeof(options.key));
	node->connecting = true;
	rc = reef_rpc_connect(client->rpc, addresses, node->domain, &options,
			      &peer, &door);
	node->connecting = false;
	explicit_bzero(options.key, sizeof(options.key));
	free(addresses);
	client_wake(&client->changed);
	/* The other doors may be used once the last link is settled. */
	if (rc && is_same_door && has_other_door(node))
		client_link_settle(client, node);
	if (rc)
		return rc;
	if (node->incarnation != incarnation || node->is_gone ||
	    door >= REEF_DOORS_MAX) {
		reef_peer_close(peer); /* nobody has seen it */
		return -REEF_ENOLINK;
	}
	if (!is_same_door)
		node->door = door;
	node->peer = peer;
	node->link = peer->link;
	node->number = options.number;
	client_hosts_learn(client, peer->link, node->addresses);
	client_settled(client, node, node->number - 1);
	return 0;
}

int client_node_link(struct reef_client *client, struct client_node *node)
{
	int rc;

	if (node->connecting) {
		rc = client_wait(&client->changed, REEF_FOREVER);
		return rc ? rc : -EAGAIN;
	}
	if (node->is_gone)
		return -REEF_ENOLINK;
	if (node->peer && node->peer->link) {
		rc = reef_link_status(node->link);
		if (!rc || rc == -REEF_EFENCED || rc == -REEF_EHOSTDEAD)
			return rc;
	}
	client_node_unlink(client, node);
	return connect_node(client, node);
}

/* The extent as it was when its node refused an access. */
struct refusal {
	uint32_t epoch;
	uint64_t keys[REEF_DOORS_MAX];
	bool is_set;
};

static void note_refusal(struct refusal *refusal,
			 const struct client_extent *extent)
{
	refusal->is_set = true;
	refusal->epoch = extent->epoch;
	memcpy(refusal->keys, extent->keys, sizeof(refusal->keys));
}

static bool is_refused(const struct refusal *refusal,
		       const struct client_extent *extent)
{
	return refusal->is_set && refusal->epoch == extent->epoch &&
	       !memcmp(refusal->keys, extent->keys, sizeof(refusal->keys));
}

static int attach_extent(struct reef_client *client,
			 struct client_extent *extent, struct client_node *node)
{
	struct reef_link *link = node->link;
	uint64_t key = extent->keys[node->door];
	struct reef_remote *remote;
	bool stale;
	int rc;

	extent->attaching = true;
	rc = reef_attach(reef_port_queue_of(client->port, link), link, key,
			 &remote);
	extent->attaching = false;
	client_wake(&client->changed);
	if (rc) /* -EAGAIN: too much is under way there: after a pause */
		return rc == -EAGAIN ? -EBUSY : rc;
	if (reef_remote_size(remote) < extent->size)
		rc = -REEF_EPROTO;
	pthread_mutex_lock(&client->lock);
	/* The extent may have moved meanwhile, or the link was replaced. */
	stale = node->link != link || extent->node != node->id ||
		extent->keys[node->door] != key || extent->remote ||
		extent->state == REEF_EXTENT_LOST;
	if (!rc && !stale) {
		extent->link = link;
		extent->remote = remote;
		extent->number = ++client->numbers;
		extent->link_number = node->number;
	}
	pthread_mutex_unlock(&client->lock);
	if (rc || stale) {
		if (node->link == link)
			client_retire_remote(client, remote);
		return rc ? rc : -EAGAIN;
	}
	return 0;
}

/* A handle says that an access failed: if what it used is still in use, the
 * extent is detached, or the node's link goes. */
static void note_failure(struct reef_client *client,
			 struct client_extent *extent,
			 const struct client_touch_job *job,
			 struct refusal *refusal)
{
	struct client_node *node = client_node_find(client, job->node);
	struct reef_remote *remote = extent->remote;

	if (job->why == -REEF_EKEY && remote && extent->number == job->number) {
		note_refusal(refusal, extent);
		pthread_mutex_lock(&client->lock);
		extent->link = NULL;
		extent->remote = NULL;
		client_view_bump(client);
		pthread_mutex_unlock(&client->lock);
		if (node && node->link && node->number == job->link_number)
			client_retire_remote(client, remote);
	} else if (job->why && job->why != -REEF_EKEY && node && node->link &&
		   node->number == job->link_number) {
		client_node_unlink(client, node);
	}
}

/* One step towards a usable extent. 0: it is usable.  -EAGAIN: something has
 * changed: once more at once.  -EBUSY: once more after a pause, and a question
 * to the broker.  Else: the error of the access. */
static int attach_step(struct reef_client *client, struct client_extent *extent,
		       struct refusal *refusal)
{
	struct client_node *node;
	int rc;

	if (extent->state == REEF_EXTENT_LOST)
		return extent->removed ? -EFAULT : -REEF_ELOST;
	if (extent->remote && !reef_link_status(extent->link))
		return 0;
	if (!(extent->space->rights & (REEF_RIGHT_READ | REEF_RIGHT_WRITE)))
		return -EACCES; /* there are no keys for it */
	if (extent->attaching) {
		rc = client_wait(&client->changed, REEF_FOREVER);
		return rc ? rc : -EAGAIN;
	}
	if (extent->state == REEF_EXTENT_MOVING || is_refused(refusal, extent))
		return -EBUSY;
	node = client_node_find(client, extent->node);
	if (!node || !node->addresses)
		return -EBUSY;
	rc = client_node_link(client, node);
	if (!rc && !extent->attaching && extent->node == node->id &&
	    !extent->remote && node->link) {
		rc = attach_extent(client, extent, node);
		if (rc == -REEF_EKEY)
			note_refusal(refusal, extent);
	} else if (!rc) {
		rc = -EAGAIN;
	}
	switch (rc) {
	case 0:
	case -EAGAIN:
	case -REEF_EHOSTDEAD:
	case -REEF_EFENCED:
	case -REEF_EDOMAIN:
	case -ENOMEM:
		return rc;
	default:
		return -EBUSY;
	}
}

/* Find an extent. If the view has none, another session may have grown the
 * space: the broker is asked, once.  -EAGAIN: it was. */
static int find_extent(struct reef_client *client, uint32_t number, bool *asked,
		       struct client_extent **out)
{
	int rc;

	pthread_mutex_lock(&client->lock);
	*out = client_extent_find(client, number);
	pthread_mutex_unlock(&client->lock);
	if (*out)
		return 0;
	if (*asked)
		return -EFAULT;
	*asked = true;
	rc = client_view_refresh_all(client, client_patience_ns(client));
	return rc ? rc : -EAGAIN;
}

/* Wait for a while, or until the view is another. Not until just anything
 * happens: fibers that check again would wake each other for ever. */
static int pause_for(struct reef_client *client, uint64_t pause_ns)
{
	uint64_t version = atomic_load(&client->version);
	uint64_t until_ns = reef_now_ns() + pause_ns, now_ns;
	int rc = 0;

	while (!rc && (now_ns = reef_now_ns()) < until_ns &&
	       version == atomic_load(&client->version) && !client->stopping &&
	       !client_over(client))
		rc = client_wait(&client->changed, until_ns - now_ns);
	return rc;
}

static int touch_extent(struct reef_client *client,
			struct client_touch_job *job)
{
	uint64_t until_ns = reef_now_ns() + client_patience_ns(client);
	uint64_t pause_ns = PAUSE_MIN_NS;
	struct refusal refusal = {0};
	struct client_extent *extent;
	bool asked = false, is_noted = false;
	int rc;

	for (;;) {
		rc = client_over(client);
		if (rc)
			return rc;
		if (client->stopping)
			return -REEF_ENOLINK;
		rc = find_extent(client, job->extent, &asked, &extent);
		if (rc == -EAGAIN)
			continue;
		if (rc)
			return rc;
		if (!is_noted)
			note_failure(client, extent, job, &refusal);
		is_noted = true;
		rc = attach_step(client, extent, &refusal);
		if (rc == -REEF_EFENCED)
			client_session_end(client, rc);
		if (rc == -EAGAIN)
			continue;
		if (rc != -EBUSY)
			return rc;
		if (reef_now_ns() >= until_ns)
			return -REEF_ENOLINK;
		rc = pause_for(client, pause_ns);
		if (rc)
			return rc;
		if (pause_ns < PAUSE_MAX_NS)
			pause_ns *= 2;
		/* What is still refused after a while may have been told out of
		 * turn: version 0 asks for all. While the broker is away, what
		 * is known has to do. */
		if (pause_ns >= PAUSE_MAX_NS)
			extent->space->version = 0;
		rc = client_view_refresh(client, extent->space, 0);
		if (rc == -REEF_EHOSTDEAD)
			return rc;
		/* If the extent is still the same, the node was only late to
		 * hear of one that another session had just asked for. */
		if (!rc)
			refusal.is_set = false;
	}
}

static int run_touch(struct reef_client *client, struct client_job *job)
{
	int rc;

	client->users++;
	rc = touch_extent(client, (struct client_touch_job *)job);
	client->users--;
	return rc;
}

const struct client_job_ops client_touch_ops = {
	.size = sizeof(struct client_touch_job),
	.run = run_touch,
};
