/* view.c - spaces, extents and nodes, as the broker told of them.
 *
 *   extent   (not told) --row--> known <--row: epoch, node, keys, state-->
 *            known --attach--> usable            (touch.c)
 *            usable --row that differs--> known  (its remote is retired)
 *            known, usable --LOST, or its space went--> LOST, for good
 *            any --told REMOVED, or not among all rows--> LOST and removed,
 *            for good
 *
 * (1) Whatever a handle may have in its cache changes together with `version`,
 *     under the lock.
 * (2) A row of a lower epoch than is known is old news and ignored.
 * (3) The broker tells what changed since the version that the view has, or
 *     everything (WHOLE): only then what it does not tell of is gone. */
#include "pool/client/keeper/view.h"

#include "base/mutant.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/settle.h"
#include "pool/client/keeper/touch.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

void client_view_bump(struct reef_client *client)
{
	atomic_fetch_add(&client->version, 1);
}

/* --- extents by number; locked --- */

static uint32_t hash_number(uint32_t number)
{
	return number * UINT32_C(2654435761);
}

struct client_extent *client_extent_find(struct reef_client *client,
					 uint32_t number)
{
	uint32_t mask = client->extents_room - 1, at;

	if (!client->extents_room)
		return NULL;
	for (at = hash_number(number) & mask; client->extents[at];
	     at = (at + 1) & mask)
		if (client->extents[at]->extent == number)
			return client->extents[at];
	return NULL;
}

static void insert_extent(struct client_extent **table, uint32_t room,
			  struct client_extent *extent)
{
	uint32_t at = hash_number(extent->extent) & (room - 1);

	while (table[at])
		at = (at + 1) & (room - 1);
	table[at] = extent;
}

/* True if an extent was removed before the last few. */
static bool is_bygone(const struct reef_client *client,
		      const struct client_extent *extent)
{
	return extent->removed &&
	       client->removals - extent->removal >= CLIENT_REMOVED_KEPT;
}

/* Make a table with room for one more, and free the extents of `without`, if
 * that is not NULL; bygone: and those that were removed long ago. */
static int rebuild_table(struct reef_client *client,
			 const struct client_space *without, bool bygone)
{
	uint32_t room = 64, i, count = 0, removed_count = 0;
	struct client_extent **table, *extent;

	while (room < 2 * (client->extents_count + 1))
		room *= 2;
	table = calloc(room, sizeof(struct client_extent *));
	if (!table)
		return -ENOMEM;
	for (i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent)
			continue;
		if ((without && extent->space == without) ||
		    (bygone && is_bygone(client, extent))) {
			free(extent);
			continue;
		}
		insert_extent(table, room, extent);
		count++;
		removed_count += extent->removed;
	}
	free(client->extents);
	client->extents = table;
	client->extents_room = room;
	client->extents_count = count;
	client->removed_count = removed_count;
	return 0;
}

/* Forget extents that were removed long ago, unless a fiber has some extent in
 * its hands just now: then the next refresh does. */
static void forget_bygone(struct reef_client *client)
{
	pthread_mutex_lock(&client->lock);
	if (!client->users && client->removed_count >= 2 * CLIENT_REMOVED_KEPT)
		(void)rebuild_table(client, NULL, true);
	pthread_mutex_unlock(&client->lock);
}

int client_view_forget_extents(struct reef_client *client,
			       const struct client_space *space)
{
	return rebuild_table(client, space, false);
}

static int add_extent(struct reef_client *client, struct client_space *space,
		      uint32_t number, struct client_extent **out)
{
	struct client_extent *extent;

	if (2 * (client->extents_count + 1) > client->extents_room &&
	    rebuild_table(client, NULL, false))
		return -ENOMEM;
	extent = calloc(1, sizeof(*extent));
	if (!extent)
		return -ENOMEM;
	extent->extent = number;
	extent->space = space;
	insert_extent(client->extents, client->extents_room, extent);
	client->extents_count++;
	*out = extent;
	return 0;
}

/* An extent is not where it was: its remote goes. Locked. */
static void detach_extent(struct reef_client *client,
			  struct client_extent *extent)
{
	struct reef_remote *remote = extent->remote;
	struct client_node *node = client_node_find(client, extent->node);

	extent->link = NULL;
	extent->remote = NULL;
	client_view_bump(client);
	/* A link that is retired takes its remotes along. */
	if (remote && node && node->link && node->link == remote->link)
		client_retire_remote(client, remote);
}

/* An extent is LOST, for good. Locked. */
static void lose_extent(struct reef_client *client,
			struct client_extent *extent)
{
	struct client_space *space = extent->space;
	uint32_t room = space->lost_room ? 2 * space->lost_room : 16;
	uint32_t *grown;

	if (extent->state == REEF_EXTENT_LOST)
		return;
	extent->state = REEF_EXTENT_LOST;
	if (extent->remote)
		detach_extent(client, extent);
	client_view_bump(client);
	if (space->lost_count == space->lost_room) {
		grown = realloc(space->lost, room * sizeof(uint32_t));
		if (!grown) /* then heaps meet -REEF_ELOST by themselves */
			return;
		space->lost = grown;
		space->lost_room = room;
	}
	space->lost[space->lost_count++] = extent->extent;
}

/* An extent is not the space's any more: nothing was in it. Locked. */
static void remove_extent(struct reef_client *client,
			  struct client_extent *extent)
{
	if (extent->state != REEF_EXTENT_LOST) {
		extent->removed = true;
		extent->removal = ++client->removals;
		client->removed_count++;
	}
	lose_extent(client, extent);
}

/* --- nodes --- */

struct client_node *client_node_find(struct reef_client *client, uint32_t id)
{
	struct client_node *node;

	for (node = client->nodes; node; node = node->next)
		if (node->id == id)
			return node;
	return NULL;
}

/* True if a row tells of what was before: view.h, (3). */
static bool is_late(const struct client_node *node,
		    const struct reef_row_node *row)
{
	if (row->pool_epoch != node->pool_epoch)
		return row->pool_epoch < node->pool_epoch;
	return row->incarnation != node->incarnation &&
	       reef_node_is_gone(row->state);
}

/* A node is in another life: what it lends has other keys now. */
static void forget_keys(struct reef_client *client, uint32_t node)
{
	struct client_extent *extent;

	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->node == node)
			memset(extent->keys, 0, sizeof(extent->keys));
	}
	pthread_mutex_unlock(&client->lock);
}

static int apply_node(struct reef_client *client,
		      const struct reef_row_node *row)
{
	struct client_node *node = client_node_find(client, row->number);
	char *addresses;

	if (node && is_late(node, row))
		return 0;
	addresses = malloc((size_t)row->addresses.size + 1);
	if (!addresses)
		return -ENOMEM;
	if (row->addresses.size)
		memcpy(addresses, row->addresses.bytes, row->addresses.size);
	addresses[row->addresses.size] = 0;
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (!node) {
			free(addresses);
			return -ENOMEM;
		}
		node->id = row->number;
		node->incarnation = row->incarnation;
		node->next = client->nodes;
		client->nodes = node;
	}
	node->is_gone = reef_node_is_gone(row->state);
	if (node->is_gone && !REEF_MUTATED(CLIENT_AWAY_STALE))
		client_node_sever(client, node);
	if (node->incarnation != row->incarnation) {
		client_node_sever(client, node);
		forget_keys(client, node->id);
		node->incarnation = row->incarnation;
		client_settled(client, node, node->hellos);
	}
	node->pool_epoch = row->pool_epoch;
	node->domain = row->domain;
	memcpy(node->proof.bytes, row->secret, sizeof(row->secret));
	free(node->addresses);
	node->addresses = addresses;
	return 0;
}

/* --- rows --- */

/* False if the broker does not know the keys: right after its start it may not
 * have heard from the node yet. Then those that are known stay good. */
static bool has_keys(const struct reef_row_extent *row)
{
	uint64_t any = 0;
	uint32_t i;

	for (i = 0; i < REEF_DOORS_MAX; i++)
		any |= row->keys[i];
	return any != 0;
}

/* The extent that arbitrates for this one; 0: it does. */
static uint32_t twin_of(const struct reef_row_extent *row)
{
	return row->is_twin ? 0 : row->twin;
}

static bool is_changed(const struct client_extent *extent,
		       const struct reef_row_extent *row)
{
	if (!has_keys(row) && extent->epoch == row->epoch &&
	    extent->node == row->node && extent->twin == twin_of(row))
		return false;
	return extent->epoch != row->epoch || extent->node != row->node ||
	       extent->state != row->state || extent->twin != twin_of(row) ||
	       memcmp(extent->keys, row->keys, sizeof(extent->keys)) != 0;
}

/* An extent is there no more; one that was never told of as well, as a row of
 * it may be on its way. Locked. */
static int apply_removal(struct reef_client *client, struct client_space *space,
			 const struct reef_row_extent *row)
{
	struct client_extent *extent = client_extent_find(client, row->number);
	int rc = 0;

	if (!row->number || (extent && extent->space != space))
		return -REEF_EPROTO;
	if (!extent)
		rc = add_extent(client, space, row->number, &extent);
	if (!rc)
		remove_extent(client, extent);
	return rc;
}

/* True if an extent that was lost, or removed, is there again: its space was
 * restored from an image, in an epoch higher than all before. */
static bool is_restored(const struct client_extent *extent,
			const struct reef_row_extent *row)
{
	return extent->state == REEF_EXTENT_LOST &&
	       row->state != REEF_EXTENT_LOST && row->epoch > extent->epoch + 1;
}

/* An extent begins anew, in another space. What heaps of the former one know of
 * it stays lost to them. Locked. */
static void adopt_restored(struct reef_client *client,
			   struct client_space *space,
			   struct client_extent *extent)
{
	if (extent->space == space)
		return; /* a space is not restored in its own place */
	client->removed_count -= extent->removed;
	extent->removed = false;
	extent->space = space;
	extent->state = 0;
	client_view_bump(client);
}

/* Locked. */
static int apply_extent(struct reef_client *client, struct client_space *space,
			const struct reef_row_extent *row,
			struct client_extent **last)
{
	struct client_extent *extent = client_extent_find(client, row->number);
	int rc;

	if (extent && is_restored(extent, row))
		adopt_restored(client, space, extent);
	if (!row->number || row->size > REEF_EXTENT_SIZE_MAX ||
	    (extent && extent->space != space))
		return -REEF_EPROTO;
	if (!extent) {
		rc = add_extent(client, space, row->number, &extent);
		if (rc)
			return rc;
	}
	extent->listed = true;
	extent->ordinal = row->ordinal;
	extent->is_twin = row->is_twin != 0;
	*last = extent;
	if (row->epoch < extent->epoch) /* (2) */
		return 0;
	if (row->state == REEF_EXTENT_LOST) {
		extent->epoch = row->epoch;
		lose_extent(client, extent);
		return 0;
	}
	if (extent->state == REEF_EXTENT_LOST || !is_changed(extent, row))
		return 0;
	if (extent->remote)
		detach_extent(client, extent);
	extent->epoch = row->epoch;
	extent->node = row->node;
	extent->twin = twin_of(row);
	extent->copy = (uint32_t)row->copy;
	extent->state = row->state;
	extent->size = row->size;
	memcpy(extent->keys, row->keys, sizeof(extent->keys));
	return 0;
}

int client_view_apply_rows(struct reef_client *client,
			   struct client_space *space,
			   const struct reef_body *body,
			   struct client_extent **last)
{
	struct reef_cursor_in in = {
		.bytes = body->rows,
		.left = body->rows_size,
	};
	struct client_extent *extent = NULL;
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) == 1) {
		rc = 0;
		if (row.row == REEF_ROW_NODE) {
			rc = apply_node(client, &row.node);
		} else if (row.row == REEF_ROW_EXTENT) {
			pthread_mutex_lock(&client->lock);
			if (row.extent.state == REEF_EXTENT_REMOVED)
				rc = apply_removal(client, space, &row.extent);
			else
				rc = apply_extent(client, space, &row.extent,
						  &extent);
			pthread_mutex_unlock(&client->lock);
		}
		if (rc)
			break;
	}
	if (last)
		*last = extent;
	client_wake(&client->changed);
	return rc;
}

/* --- refresh --- */

/* Call `act` for each extent of a space. Locked. */
static void each_extent(struct reef_client *client, struct client_space *space,
			void (*act)(struct reef_client *client,
				    struct client_extent *extent))
{
	uint32_t i;

	for (i = 0; i < client->extents_room; i++)
		if (client->extents[i] && client->extents[i]->space == space)
			act(client, client->extents[i]);
}

static void unlist(struct reef_client *client, struct client_extent *extent)
{
	(void)client;
	extent->listed = false;
}

static void remove_unlisted(struct reef_client *client,
			    struct client_extent *extent)
{
	if (!extent->listed)
		remove_extent(client, extent);
}

void client_view_remove_extent(struct reef_client *client, uint32_t number)
{
	struct client_extent *extent;

	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	if (extent)
		remove_extent(client, extent);
	pthread_mutex_unlock(&client->lock);
	client_wake(&client->changed);
}

void client_view_lose_space(struct reef_client *client,
			    struct client_space *space)
{
	pthread_mutex_lock(&client->lock);
	space->gone = true;
	each_extent(client, space, lose_extent);
	client_view_bump(client);
	pthread_mutex_unlock(&client->lock);
	client_wake(&client->changed);
}

static int refresh_pages(struct reef_client *client, struct client_space *space,
			 uint64_t patience_ns)
{
	uint8_t rights = space->rights;
	struct reef_body body = {
		.ask.space_extents = {.space = space->id,
				      .version = rights == space->version_rights
							 ? space->version
							 : 0},
	};
	const struct reef_reply_space_extents *reply;
	struct client_extent *last = NULL;
	struct reef_answer answer = {0};
	uint64_t version = 0;
	bool first = true, whole = true, more;
	uint32_t from = 0;
	int rc;

	/* This comes before the broker is asked: what other answers tell of
	 * meanwhile may be newer than this one's. */
	pthread_mutex_lock(&client->lock);
	each_extent(client, space, unlist);
	pthread_mutex_unlock(&client->lock);
	do {
		rc = client_call(client, REEF_POOL_SPACE_EXTENTS, false, &body,
				 &answer, patience_ns);
		if (rc)
			return rc;
		reply = &answer.body.reply.space_extents;
		if (reply->flags & REEF_POOL_UNCHANGED) {
			rc = client_view_apply_rows(client, space, &answer.body,
						    NULL);
			reef_answer_free(&answer);
			return rc;
		}
		if (first) {
			/* The version is that of the first page: if it changes
			 * meanwhile, the next refresh finds out. */
			version = reply->version;
			whole = reply->flags & REEF_POOL_WHOLE;
			first = false;
		}
		rc = client_view_apply_rows(client, space, &answer.body, &last);
		more = reply->flags & REEF_POOL_MORE;
		reef_answer_free(&answer);
		/* A broker whose pages go round in circles is not believed. */
		if (!rc && more && (!whole || !last || last->ordinal < from))
			rc = -REEF_EPROTO;
		if (rc)
			return rc;
		from = last ? last->ordinal + 1 : 0;
		body.ask.space_extents.version = 0;
		body.ask.space_extents.ordinal = from;
	} while (more);
	if (whole) { /* (3) */
		pthread_mutex_lock(&client->lock);
		each_extent(client, space, remove_unlisted);
		pthread_mutex_unlock(&client->lock);
	}
	space->version = version;
	space->version_rights = rights;
	return 0;
}

static int refresh_space(struct reef_client *client, struct client_space *space,
			 uint64_t patience_ns)
{
	uint64_t wanted = space->refreshes + 1, number;
	uint64_t until_ns = reef_now_ns() + patience_ns, now_ns;
	int rc;

	/* One refresh of a space at a time. A fiber that comes while one is
	 * under way needs the next, and shares it with others. */
	while (space->refreshing && space->refreshed < wanted) {
		rc = client_wait(&client->changed, REEF_FOREVER);
		if (rc)
			return rc;
	}
	if (space->refreshed >= wanted || space->gone)
		return 0;
	/* The refresh that failed may have had less patience than this fiber,
	 * which then tries again. */
	now_ns = reef_now_ns();
	if (space->refreshes >= wanted && now_ns >= until_ns)
		return space->refresh_status;
	number = ++space->refreshes;
	space->refreshing = true;
	rc = refresh_pages(client, space,
			   now_ns < until_ns ? until_ns - now_ns : 0);
	if (rc == -ENOENT || rc == -EACCES) {
		client_view_lose_space(client, space);
		rc = 0;
	}
	space->refreshing = false;
	space->refresh_status = rc;
	if (!rc)
		space->refreshed = number;
	client_wake(&client->changed);
	return rc;
}

int client_view_refresh(struct reef_client *client, struct client_space *space,
			uint64_t patience_ns)
{
	int rc;

	client->users++;
	rc = refresh_space(client, space, patience_ns);
	client->users--;
	forget_bygone(client);
	return rc;
}

int client_view_refresh_all(struct reef_client *client, uint64_t patience_ns)
{
	struct client_space *space;
	int rc = 0;

	client->users++;
	for (space = client->spaces; space && !rc; space = space->next)
		if (!space->gone)
			rc = refresh_space(client, space, patience_ns);
	client->users--;
	forget_bygone(client);
	return rc;
}

static int notice_main(void *arg)
{
	struct reef_client *client = arg;

	client->refreshing = false; /* a notice from here on needs another */
	client_view_refresh_all(client, client_patience_ns(client));
	client_fiber_end(client);
	return 0;
}

void client_view_refresh_soon(struct reef_client *client)
{
	if (client->refreshing || client->stopping)
		return;
	client->refreshing = true;
	if (client_spawn(client, notice_main, client))
		client->refreshing = false; /* the next notice tries again */
}

/* --- the end --- */

void client_space_free(struct client_space *space)
{
	struct client_heap *heap = space->tender;

	if (heap) {
		heap->next = space->heaps;
		space->heaps = heap;
	}
	while ((heap = space->heaps)) {
		space->heaps = heap->next;
		reef_heap_destroy(heap->heap);
		free(heap);
	}
	free(space->staged);
	free(space->lost);
	free(space->name);
	free(space->token);
	free(space);
}

void client_view_free(struct reef_client *client)
{
	struct client_space *space;
	struct client_node *node;
	uint32_t i;

	for (i = 0; i < client->extents_room; i++)
		free(client->extents[i]);
	free(client->extents);
	while ((space = client->spaces)) {
		client->spaces = space->next;
		client_space_free(space);
	}
	while ((node = client->nodes)) {
		client->nodes = node->next;
		free(node->addresses);
		reef_key_wipe(&node->proof);
		free(node);
	}
}
