/* node.c - what the kernel knows: a node for each file, as long as it has looks
 * at it that it did not forget. */
#include "gateway/mount/internal.h"

#include <stdlib.h>

struct node *node_of(struct mount *mount, fuse_ino_t number)
{
	return number == FUSE_ROOT_ID ? &mount->root
				      : (struct node *)(uintptr_t)number;
}

fuse_ino_t node_number(const struct mount *mount, const struct node *node)
{
	return node == &mount->root ? FUSE_ROOT_ID : (uintptr_t)node;
}

static uint64_t hash(struct reef_file_id id)
{
	return (id.number * UINT64_C(0x9e3779b97f4a7c15)) >> 40;
}

pthread_mutex_t *node_shard(struct mount *mount, struct reef_file_id id)
{
	return &mount->shards[hash(id) % NODE_SHARDS];
}

/* Under the lock. */
static struct node *find(struct mount *mount, struct reef_file_id id)
{
	struct node *node = mount->buckets[hash(id) % NODE_BUCKETS];

	while (node && node->id.number != id.number)
		node = node->next;
	return node;
}

struct node *node_find(struct mount *mount, struct reef_file_id id)
{
	struct node *node;

	pthread_mutex_lock(&mount->lock);
	node = find(mount, id);
	pthread_mutex_unlock(&mount->lock);
	return node;
}

struct node *node_look(struct mount *mount, struct reef_file_id id)
{
	struct node **bucket = &mount->buckets[hash(id) % NODE_BUCKETS];
	struct node *node;

	pthread_mutex_lock(&mount->lock);
	node = find(mount, id);
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (node) {
			node->id = id;
			node->next = *bucket;
			*bucket = node;
		}
	}
	if (node)
		node->lookups++;
	pthread_mutex_unlock(&mount->lock);
	return node;
}

void node_forget(struct mount *mount, struct node *node, uint64_t lookups)
{
	struct node **link;

	if (node == &mount->root)
		return;
	pthread_mutex_lock(&mount->lock);
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	if (!node->lookups) {
		link = &mount->buckets[hash(node->id) % NODE_BUCKETS];
		while (*link != node)
			link = &(*link)->next;
		*link = node->next;
		free(node);
	}
	pthread_mutex_unlock(&mount->lock);
}

static int let_go(struct desk *desk, void *context)
{
	const struct node *node = context;

	return reef_files_let_go(desk->files, node->ticket);
}

void node_end(struct mount *mount)
{
	struct node *node, *next;

	for (uint32_t i = 0; i < NODE_BUCKETS; i++) {
		for (node = mount->buckets[i]; node; node = next) {
			next = node->next;
			if (node->ticket)
				(void)desk_run(mount, true, let_go, node);
			free(node);
		}
		mount->buckets[i] = NULL;
	}
}
