/* control.c - control words, and mapping what a peer has passed.
 *
 * All control words of a fabric lie in one memfd, a line each; a connector maps
 * the page of its own, for reading only: the memfd is sealed against further
 * writable mappings. What a connector could see there is how often other links
 * were told something, which is nothing to hide. */
#include "fabric/shm/shm.h"
#include "wire/bytes.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SLOT ((uint64_t)sizeof(struct shm_control))

static uint64_t page_size(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* --- the acceptor's side --- */

static int open_control(struct shm_fabric *shm)
{
	uint64_t size = shm->fabric.options.links_max * SLOT;
	void *map = MAP_FAILED;
	int rc = -ENOMEM;

	size = (size + page_size() - 1) / page_size() * page_size();
	shm->slots_used = calloc(shm->fabric.options.links_max, 1);
	if (!shm->slots_used)
		return -ENOMEM;
	shm->control_fd =
		memfd_create("reef-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (shm->control_fd < 0)
		goto err_errno;
	if (fchmod(shm->control_fd, 0600) ||
	    fallocate(shm->control_fd, 0, 0, (off_t)size))
		goto err_errno;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
		   shm->control_fd, 0);
	if (map == MAP_FAILED || madvise(map, size, MADV_DONTFORK))
		goto err_errno;
	if (fcntl(shm->control_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		goto err_errno;
	/* Older kernels do not have this seal; there a connector that breaks
	 * the rules can send others of its user onto their slow path, and no
	 * more. */
	fcntl(shm->control_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
	shm->control = map;
	shm->control_size = size;
	return 0;
err_errno:
	rc = -errno;
	if (map != MAP_FAILED)
		munmap(map, size);
	if (shm->control_fd >= 0)
		close(shm->control_fd);
	shm->control_fd = -1;
	free(shm->slots_used);
	shm->slots_used = NULL;
	return rc;
}

void shm_control_close(struct shm_fabric *shm)
{
	if (!shm->control)
		return;
	munmap(shm->control, shm->control_size);
	close(shm->control_fd);
	free(shm->slots_used);
	shm->control = NULL;
}

int shm_control_take(struct shm_fabric *shm, struct shm_link *link)
{
	uint32_t slot;
	int rc = 0;

	if (!shm->control)
		rc = open_control(shm);
	if (rc || !shm->slots_used)
		return rc ? rc : -ENOMEM;
	for (slot = 0; slot < shm->fabric.options.links_max; slot++)
		if (!shm->slots_used[slot])
			break;
	if (slot == shm->fabric.options.links_max)
		return -EBUSY;
	shm->slots_used[slot] = 1;
	link->slot = slot;
	/* The count goes on, so that whoever had the slot before still sees a
	 * change, and finds its socket closed. */
	atomic_store_explicit(
		&shm->control[slot].word,
		(atomic_load_explicit(&shm->control[slot].word,
				      memory_order_relaxed) &
		 ~(uint64_t)(SHM_CONTROL_FENCED | SHM_CONTROL_ENDED)) +
			SHM_CONTROL_CHANGE,
		memory_order_release);
	return 0;
}

void shm_control_give(struct shm_fabric *shm, struct shm_link *link)
{
	shm->slots_used[link->slot] = 0;
}

void shm_control_change(struct shm_fabric *shm, struct shm_link *link,
			uint64_t bits)
{
	_Atomic uint64_t *word = &shm->control[link->slot].word;
	uint64_t value = atomic_load_explicit(word, memory_order_relaxed);

	/* Release: what was done before is seen by whoever sees the change; the
	 * partners are must_serve (post.c) and reef_near_at. */
	atomic_store_explicit(word, (value + SHM_CONTROL_CHANGE) | bits,
			      memory_order_release);
}

int shm_control_send(struct shm_fabric *shm, struct shm_link *link)
{
	uint8_t bytes[8];
	struct iovec part = {bytes, sizeof(bytes)};

	reef_put64(bytes, link->slot * SLOT);
	return reef_stream_send(link->stream, REEF_FRAME_CONTROL, 0, &part, 1,
				shm->control_fd);
}

/* --- the connector's side --- */

/* A file cannot be sealed, so its owner has to be trusted: shm.h (1). */
static int check_file_owner(const struct stat *stat)
{
	if (!S_ISREG(stat->st_mode))
		return -REEF_EPROTO;
	return stat->st_uid == geteuid() || stat->st_uid == 0 ? 0
							      : -REEF_EPROTO;
}

int shm_map_passed(int fd, uint64_t offset, uint64_t size, int protection,
		   void **out)
{
	struct stat stat;
	int seals, rc;
	void *map;

	if (!size || offset + size < offset || fstat(fd, &stat))
		return -REEF_EPROTO;
	seals = fcntl(fd, F_GET_SEALS);
	/* Seals exist only for memory. A file in memory (tmpfs) has them too,
	 * but unlike a memfd it has a name. */
	if (seals < 0 || (!(seals & F_SEAL_SHRINK) && stat.st_nlink > 0)) {
		rc = check_file_owner(&stat);
		if (rc)
			return rc;
	} else if (!(seals & F_SEAL_SHRINK)) {
		return -REEF_EPROTO;
	}
	/* The size is checked last: once the seal is on, it cannot shrink. */
	if (fstat(fd, &stat) || stat.st_size < 0 ||
	    (uint64_t)stat.st_size < offset + size)
		return -REEF_EPROTO;
	map = mmap(NULL, size, protection, MAP_SHARED, fd, (off_t)offset);
	if (map == MAP_FAILED)
		return -errno;
	rc = reef_memory_confine(map, size);
	if (rc) {
		munmap(map, size);
		return rc;
	}
	*out = map;
	return 0;
}

int shm_control_receive(struct shm_link *link, const struct reef_frame *frame)
{
	uint64_t offset, page = page_size();
	int rc;

	if (frame->type != REEF_FRAME_CONTROL || frame->fd < 0 ||
	    frame->length != 8)
		return -REEF_EPROTO;
	offset = reef_get64(frame->payload);
	if (offset % SLOT)
		return -REEF_EPROTO;
	rc = shm_map_passed(frame->fd, offset / page * page, page, PROT_READ,
			    &link->control_map);
	if (rc)
		return rc;
	link->link.control =
		(const _Atomic uint64_t *)((uint8_t *)link->control_map +
					   offset % page);
	return 0;
}
