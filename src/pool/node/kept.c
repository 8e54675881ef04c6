/* kept.c - what the node's keep (keep.h) is told, and gave.
 *
 * What was kept comes back CLOSED, exposed to nobody: the node tells the broker
 * of it as such, and is asked to open what it still is to have, under new keys.
 *
 * A *ghost* is a process that an earlier process of this node let in over shm:
 * it may have our memory mapped, and no link here. It lets go by itself when it
 * hears of the new life, and the broker waits for that before it has anything
 * opened (broker/move.c, 7). If its session is fenced instead, it is ended
 * here, before the fence is confirmed (F7), unless it has nothing of ours
 * mapped any more: a program that closed its session goes on. */
#include "pool/node/internal.h"

#include "base/mutant.h"
#include "fabric/provider.h"
#include "pool/node/mapper.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct reef_keep_ops *ops_of(const struct reef_node *node)
{
	return node->options.keep->ops;
}

static struct reef_keep_line line_of(const struct node_extent *extent)
{
	return (struct reef_keep_line){
		.extent = extent->number,
		.space = extent->space,
		.epoch = extent->epoch,
		.size = extent->size,
		.copy = extent->copy,
	};
}

static struct reef_keep_head head_of(const struct reef_node *node)
{
	return (struct reef_keep_head){
		.pool = node->pool,
		.node = node->key->node,
		.broker_epoch = node->broker_epoch,
		.followed_start = node->followed_start,
		.confirmed_epoch = node->confirmed_epoch,
		.confirmed_start = node->confirmed_start,
		.confirmed = node->confirmed,
		.remembers = node->remembers,
	};
}

static void take_head(struct reef_node *node, const struct reef_keep_head *head)
{
	node->pool = head->pool;
	node->broker_epoch = head->broker_epoch;
	node->followed_start = head->followed_start;
	node->confirmed_epoch = head->confirmed_epoch;
	node->confirmed_start = head->confirmed_start;
	node->confirmed = head->confirmed;
	node->remembers = head->remembers == 1;
}

int node_kept_take(struct reef_node *node)
{
	struct reef_memory_options like = node_memory_options(node, 0);
	struct reef_kept kept = {0};
	uint32_t i;
	int rc;

	if (!node_keeps(node))
		return 0;
	like.huge_pages = node->options.huge_pages;
	rc = ops_of(node)->take(node->options.keep, &like, &kept);
	if (rc)
		return rc;
	if (kept.head.pool && kept.head.node != node->key->node)
		rc = -REEF_EFOREIGN;
	if (!rc)
		take_head(node, &kept.head);
	for (i = 0; !rc && i < kept.extents_count; i++) {
		rc = node_extent_adopt(node, &kept.extents[i].line,
				       kept.extents[i].memory);
		if (!rc)
			kept.extents[i].memory = NULL;
	}
	if (!rc) {
		node->ghosts = kept.clients;
		node->ghosts_count = kept.clients_count;
		kept.clients = NULL;
		kept.clients_count = 0;
	}
	if (!rc && kept.extents_count)
		reef_log(REEF_LOG_INFO, "node",
			 "has %u extents from before, which %u processes may "
			 "have mapped",
			 kept.extents_count, node->ghosts_count);
	reef_kept_fini(&kept);
	return rc;
}

int node_kept_lend(struct reef_node *node)
{
	struct reef_kept kept = {.head = head_of(node)};
	struct node_extent *extent;
	int rc;

	if (!node_keeps(node) || !ops_of(node)->lend)
		return 0;
	kept.extents = calloc(node->extents_count + 1, sizeof(*kept.extents));
	if (!kept.extents)
		return -ENOMEM;
	for (uint32_t i = 0; i < node->extents_count; i++) {
		extent = node->extents[i];
		if (extent->memory && extent->state != NODE_MAKING)
			kept.extents[kept.extents_count++] =
				(struct reef_kept_extent){line_of(extent),
							  extent->memory};
	}
	rc = ops_of(node)->lend(node->options.keep, &kept);
	free(kept.extents);
	return rc;
}

/* --- ghosts --- */

/* True if a process has memory of ours mapped, or that cannot be told. */
static bool has_ours_mapped(const struct reef_node *node, int pidfd)
{
	int *fds = calloc(node->extents_count + 1, sizeof(*fds));
	uint32_t i;
	bool has;

	if (!fds)
		return true;
	for (i = 0; i < node->extents_count; i++)
		fds[i] = node->extents[i]->memory ? node->extents[i]->memory->fd
						  : -1;
	has = mapper_has(pidfd, fds, node->extents_count);
	free(fds);
	return has;
}

int node_ghosts_end(struct reef_node *node, uint32_t session)
{
	struct reef_kept_client *ghost;
	uint32_t i = 0;
	int rc = 0;

	if (REEF_MUTATED(NODE_GHOSTS_LEFT))
		return 0;
	while (i < node->ghosts_count) {
		ghost = &node->ghosts[i];
		if (!reef_session_covers(session, ghost->session)) {
			i++;
		} else if (mapper_has_ended(ghost->pidfd) ||
			   !has_ours_mapped(node, ghost->pidfd)) {
			close(ghost->pidfd);
			*ghost = node->ghosts[--node->ghosts_count];
		} else {
			reef_log(REEF_LOG_WARNING, "node",
				 "ends process %ld of session %08x, which has "
				 "memory of an earlier life mapped",
				 mapper_process(ghost->pidfd), ghost->session);
			mapper_kill(ghost->pidfd);
			rc = -ETIMEDOUT;
			i++;
		}
	}
	return rc;
}

void node_ghosts_free(struct reef_node *node)
{
	while (node->ghosts_count)
		close(node->ghosts[--node->ghosts_count].pidfd);
	free(node->ghosts);
}

int node_kept_add(struct reef_node *node, const struct node_extent *extent)
{
	struct reef_keep_line line = line_of(extent);
	int rc;

	if (!node_keeps(node))
		return 0;
	rc = ops_of(node)->add(node->options.keep, &line, extent->memory);
	if (!rc)
		extent->memory->kept = true;
	return rc;
}

void node_kept_forget(struct reef_node *node, struct node_extent *extent)
{
	if (!node_keeps(node))
		return;
	ops_of(node)->forget(node->options.keep, extent->number);
	if (extent->memory)
		extent->memory->kept = false;
}

void node_kept_tend(struct reef_node *node)
{
	if (node_keeps(node) && ops_of(node)->tend)
		ops_of(node)->tend(node->options.keep);
}

void node_kept_note(struct reef_node *node)
{
	struct reef_keep_head head = head_of(node);

	if (node_keeps(node))
		ops_of(node)->note(node->options.keep, &head);
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = ((const struct reef_kept_extent *)a)->line.extent;
	uint32_t y = ((const struct reef_kept_extent *)b)->line.extent;

	return (x > y) - (x < y);
}

void node_kept_save(struct reef_node *node)
{
	struct reef_kept kept = {.head = head_of(node)};
	struct node_extent *extent;
	uint32_t count = 0;
	int rc;

	if (!node_keeps(node) || node->refused)
		return;
	for (extent = node->leaving; extent; extent = extent->next)
		count++;
	kept.extents = calloc(count + 1, sizeof(*kept.extents));
	if (!kept.extents)
		return;
	for (extent = node->leaving; extent; extent = extent->next)
		if (extent->memory && extent->state != NODE_MAKING)
			kept.extents[kept.extents_count++] =
				(struct reef_kept_extent){line_of(extent),
							  extent->memory};
	qsort(kept.extents, kept.extents_count, sizeof(*kept.extents),
	      compare_numbers);
	rc = ops_of(node)->save ? ops_of(node)->save(node->options.keep, &kept)
				: 0;
	for (count = 0; rc <= 0 && count < kept.extents_count; count++)
		kept.extents[count].memory->kept = false;
	if (rc < 0)
		reef_log(REEF_LOG_ERROR, "node", "nothing was saved: %s",
			 reef_error_text(rc));
	free(kept.extents);
}
