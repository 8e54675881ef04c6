/* place.c - what the kernel knows: a descriptor for each file or folder, as
 * long as it has looks at it that it did not forget. */
#include "gateway/source/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct place *place_of(struct source *source, fuse_ino_t number)
{
	return number == FUSE_ROOT_ID ? &source->root
				      : (struct place *)(uintptr_t)number;
}

void place_path(const struct place *node, char out[40])
{
	snprintf(out, 40, "/proc/self/fd/%d", node->fd);
}

static struct place **bucket_of(struct source *source, ino_t inode)
{
	return &source->buckets[inode * UINT64_C(0x9e3779b97f4a7c15) >> 40 &
				(NODE_BUCKETS - 1)];
}

/* Find or make the node of what fd is, which becomes its, or is closed. */
static struct place *keep(struct source *source, int fd, const struct stat *of)
{
	struct place **bucket = bucket_of(source, of->st_ino), *node;

	pthread_mutex_lock(&source->lock);
	for (node = *bucket; node; node = node->next)
		if (node->inode == of->st_ino && node->device == of->st_dev)
			break;
	if (!node) {
		node = calloc(1, sizeof(*node));
		if (node) {
			node->fd = fd;
			node->inode = of->st_ino;
			node->device = of->st_dev;
			node->next = *bucket;
			*bucket = node;
			fd = -1;
		}
	}
	if (node)
		node->lookups++;
	pthread_mutex_unlock(&source->lock);
	if (fd >= 0)
		close(fd);
	return node;
}

int place_look(struct source *source, struct place *folder, const char *name,
	       struct fuse_entry_param *out)
{
	int fd = openat(folder->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct place *node;
	int rc;

	if (fd < 0)
		return -errno;
	*out = (struct fuse_entry_param){0};
	if (fstatat(fd, "", &out->attr, AT_EMPTY_PATH)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	node = keep(source, fd, &out->attr);
	out->ino = (uintptr_t)node;
	return node ? 0 : -ENOMEM;
}

void place_forget(struct source *source, struct place *node, uint64_t lookups)
{
	struct place **link;

	if (node == &source->root)
		return;
	pthread_mutex_lock(&source->lock);
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	if (!node->lookups) {
		link = bucket_of(source, node->inode);
		while (*link != node)
			link = &(*link)->next;
		*link = node->next;
		close(node->fd);
		free(node);
	}
	pthread_mutex_unlock(&source->lock);
}

void place_end(struct source *source)
{
	struct place *node, *next;

	for (uint32_t i = 0; i < NODE_BUCKETS; i++) {
		for (node = source->buckets[i]; node; node = next) {
			next = node->next;
			close(node->fd);
			free(node);
		}
		source->buckets[i] = NULL;
	}
	close(source->root.fd);
}
