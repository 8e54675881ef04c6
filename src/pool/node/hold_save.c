/* hold_save.c - see hold_save.h. */
#include "pool/node/hold_save.h"

#include "base/mutant.h"
#include "base/store/store.h"
#include "base/system/private.h"
#include "pool/node/keep_image.h"
#include "pool/node/mapper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define END_MS 10000 /* what the kernel may take to end a process */

/* --- mappers --- */

int hold_end_mappers(const int *pidfds, uint32_t pidfds_count,
		     const struct held_extent *extents, uint32_t count,
		     uint32_t *ended)
{
	int *fds = calloc(count + 1, sizeof(*fds)), rc = 0;
	struct pollfd one = {.events = POLLIN};
	uint32_t i;

	*ended = 0;
	if (!fds)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		fds[i] = extents[i].fd;
	for (i = 0; rc == 0 && i < pidfds_count; i++) {
		if (mapper_has_ended(pidfds[i]) ||
		    !mapper_has(pidfds[i], fds, count) ||
		    REEF_MUTATED(KEEP_MAPPERS_LEFT))
			continue;
		mapper_kill(pidfds[i]);
		(*ended)++;
		one.fd = pidfds[i];
		if (poll(&one, 1, END_MS) <= 0)
			rc = -ETIMEDOUT;
	}
	free(fds);
	return rc;
}

/* --- the image --- */

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = ((const struct reef_kept_extent *)a)->line.extent;
	uint32_t y = ((const struct reef_kept_extent *)b)->line.extent;

	return (x > y) - (x < y);
}

/* Map all of it. */
static int map_extents(const struct held_extent *extents, uint32_t count,
		       struct reef_kept *out)
{
	struct reef_memory_options like = {.backing = REEF_BACKING_MEMFD};
	struct reef_memory *memory;
	int fd, rc = 0;

	out->extents = calloc(count + 1, sizeof(*out->extents));
	if (!out->extents)
		return -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < count; i++) {
		fd = fcntl(extents[i].fd, F_DUPFD_CLOEXEC, 0);
		if (fd < 0)
			return -errno;
		like.size = extents[i].line.size;
		rc = reef_memory_adopt(&like, fd, &memory);
		if (rc) {
			close(fd);
			break;
		}
		memory->kept = true;
		out->extents[out->extents_count++] =
			(struct reef_kept_extent){extents[i].line, memory};
	}
	qsort(out->extents, out->extents_count, sizeof(*out->extents),
	      compare_numbers);
	return rc;
}

static int save_kept(struct reef_store *store, const struct reef_kept *kept)
{
	struct reef_keep *image;
	int rc = reef_keep_image_create(store, NULL, &image);

	if (rc)
		return rc;
	rc = image->ops->has(image, &kept->head);
	if (rc == 0)
		rc = image->ops->save(image, kept);
	reef_keep_image_destroy(image);
	return rc < 0 ? rc : 0; /* (3) */
}

int hold_save(const char *folder, const struct reef_keep_head *head,
	      const struct held_extent *extents, uint32_t count)
{
	struct reef_kept kept = {.head = *head};
	struct reef_store *store;
	int rc = reef_private_directory(folder);

	if (rc)
		return rc;
	rc = reef_store_open_directory(folder, &store);
	if (rc)
		return rc;
	rc = map_extents(extents, count, &kept);
	if (rc == 0)
		rc = save_kept(store, &kept);
	reef_kept_fini(&kept);
	reef_store_destroy(store);
	return rc;
}
