/* kept.c - what the node's keep (keep.h) is told, and gave.
 *
 * What was kept comes back CLOSED, exposed to nobody: the node tells the broker
 * of it as such, and is asked to open what it still is to have, under new keys.
 */
#include "pool/node/internal.h"

#include <stdlib.h>

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
	if (!rc && kept.extents_count)
		reef_log(REEF_LOG_INFO, "node", "has %u extents from before",
			 kept.extents_count);
	reef_kept_fini(&kept);
	return rc;
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
	for (count = 0; count < kept.extents_count; count++)
		kept.extents[count].memory->kept = false;
	if (rc)
		reef_log(REEF_LOG_ERROR, "node", "nothing was saved: %s",
			 reef_error_text(rc));
	free(kept.extents);
}
