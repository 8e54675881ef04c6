/* store.c - files in a directory, and the calls through the ops.
 *
 * After a failed fdatasync the kernel marks the pages clean and a second one
 * would say 0 (rule 3), so the file remembers: it goes on failing until it is
 * opened anew, which is when a caller must look at what is really there. */
#include "base/store/store.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LOCK_TRIES 100
#define LOCK_PAUSE_US 10000
/* What whoever writes much leaves of a disk. */
#define KEPT_SHARE 16u
#define KEPT_MAX (UINT64_C(64) << 20)

struct directory {
	struct reef_store store;
	int fd;
};

struct directory_file {
	struct reef_disk_file file;
	int fd;
	int sync_error; /* what the first failed sync said; 0: none */
};

static struct directory *to_directory(struct reef_store *store)
{
	return (struct directory *)store;
}

static struct directory_file *to_file(struct reef_disk_file *file)
{
	return (struct directory_file *)file;
}

/* Take the lock of a file. A process that was killed may leave a child that it
 * had just forked, and that has the descriptor until its program begins: so one
 * who comes right after it asks for a second. */
static int lock_descriptor(int fd)
{
	for (int tries = 0; tries < LOCK_TRIES; tries++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		usleep(LOCK_PAUSE_US);
	}
	return -EBUSY;
}

static int open_descriptor(int directory, const char *name, int flags)
{
	int mode = O_RDWR | O_CLOEXEC | O_NOFOLLOW, fd, err;
	struct stat status;

	if (flags & REEF_DISK_CREATE)
		mode |= O_CREAT;
	if (flags & REEF_DISK_EXCLUSIVE)
		mode |= O_EXCL;
	do {
		fd = openat(directory, name, mode, 0600);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return -errno;
	err = flags & REEF_DISK_LOCK ? lock_descriptor(fd) : 0;
	if (err)
		goto err_close;
	err = fstat(fd, &status) ? -errno : 0;
	if (err == 0 && !S_ISREG(status.st_mode))
		err = -EINVAL;
	if (err)
		goto err_close;
	return fd;

err_close:
	close(fd);
	return err;
}

static int directory_open(struct reef_store *store, const char *name, int flags,
			  struct reef_disk_file **out)
{
	struct directory_file *file;

	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	file->fd = open_descriptor(to_directory(store)->fd, name, flags);
	if (file->fd < 0) {
		int err = file->fd;

		free(file);
		return err;
	}
	file->file.store = store;
	*out = &file->file;
	return 0;
}

static void directory_close(struct reef_disk_file *file)
{
	close(to_file(file)->fd);
	free(to_file(file));
}

static ssize_t directory_read(struct reef_disk_file *file, uint64_t offset,
			      void *bytes, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = pread(to_file(file)->fd, (char *)bytes + done, size - done,
			  (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static int directory_write(struct reef_disk_file *file, uint64_t offset,
			   const void *bytes, size_t size)
{
	size_t done = 0;
	ssize_t n;

	while (done < size) {
		n = pwrite(to_file(file)->fd, (const char *)bytes + done,
			   size - done, (off_t)(offset + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int directory_truncate(struct reef_disk_file *file, uint64_t size)
{
	while (ftruncate(to_file(file)->fd, (off_t)size))
		if (errno != EINTR)
			return -errno;
	return 0;
}

static int directory_sync(struct reef_disk_file *file)
{
	struct directory_file *own = to_file(file);

	if (own->sync_error == 0 && fdatasync(own->fd)) {
		own->sync_error = -errno;
		reef_log(REEF_LOG_ERROR, "store", "sync failed: %s",
			 strerror(errno));
	}
	return own->sync_error;
}

static int64_t directory_size(struct reef_disk_file *file)
{
	struct stat status;

	if (fstat(to_file(file)->fd, &status))
		return -errno;
	return status.st_size;
}

static int directory_rename(struct reef_store *store, const char *from,
			    const char *to)
{
	int fd = to_directory(store)->fd;

	return renameat(fd, from, fd, to) ? -errno : 0;
}

static int directory_remove(struct reef_store *store, const char *name)
{
	return unlinkat(to_directory(store)->fd, name, 0) ? -errno : 0;
}

static int directory_sync_names(struct reef_store *store)
{
	return fsync(to_directory(store)->fd) ? -errno : 0;
}

static uint64_t directory_room(struct reef_store *store)
{
	struct statvfs disk;
	uint64_t free_bytes, kept;

	/* Some file systems tell no size. */
	if (fstatvfs(to_directory(store)->fd, &disk) || !disk.f_blocks)
		return UINT64_MAX;
	free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
	kept = (uint64_t)disk.f_blocks * disk.f_frsize / KEPT_SHARE;
	if (kept > KEPT_MAX)
		kept = KEPT_MAX;
	return free_bytes > kept ? free_bytes - kept : 0;
}

static void directory_destroy(struct reef_store *store)
{
	close(to_directory(store)->fd);
	free(to_directory(store));
}

static const struct reef_store_ops directory_ops = {
	.open = directory_open,
	.close = directory_close,
	.read = directory_read,
	.write = directory_write,
	.truncate = directory_truncate,
	.sync = directory_sync,
	.size = directory_size,
	.rename = directory_rename,
	.remove = directory_remove,
	.sync_names = directory_sync_names,
	.room = directory_room,
	.destroy = directory_destroy,
};

/* Make the name of the store's directory durable. */
static int sync_parent(int fd)
{
	int parent, err;

	parent = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* A parent that we may not read is not ours to sync. */
	if (parent < 0)
		return errno == EACCES ? 0 : -errno;
	err = fsync(parent) ? -errno : 0;
	close(parent);
	return err;
}

int reef_store_open_directory(const char *path, struct reef_store **out)
{
	struct directory *directory;
	int err;

	if (mkdir(path, 0700) && errno != EEXIST)
		return -errno;
	directory = calloc(1, sizeof(*directory));
	if (!directory)
		return -ENOMEM;
	directory->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory->fd < 0) {
		err = -errno;
		goto err_free;
	}
	/* A directory that was there already is synced, too: whoever made it
	 * may have died before its name was durable. */
	err = sync_parent(directory->fd);
	if (err)
		goto err_close;
	directory->store.ops = &directory_ops;
	*out = &directory->store;
	return 0;

err_close:
	close(directory->fd);
err_free:
	free(directory);
	return err;
}

/* --- calls through the ops; what every store checks alike --- */

static bool is_name_valid(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && length <= NAME_MAX && !strchr(name, '/') &&
	       strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static bool is_range_valid(uint64_t offset, size_t size)
{
	return offset <= INT64_MAX && size <= INT64_MAX - offset;
}

void reef_store_destroy(struct reef_store *store)
{
	if (store)
		store->ops->destroy(store);
}

int reef_disk_open(struct reef_store *store, const char *name, int flags,
		   struct reef_disk_file **out)
{
	const int known =
		REEF_DISK_CREATE | REEF_DISK_EXCLUSIVE | REEF_DISK_LOCK;

	if (!is_name_valid(name) || (flags & ~known) ||
	    ((flags & REEF_DISK_EXCLUSIVE) && !(flags & REEF_DISK_CREATE)))
		return -EINVAL;
	return store->ops->open(store, name, flags, out);
}

void reef_disk_close(struct reef_disk_file *file)
{
	if (file)
		file->store->ops->close(file);
}

ssize_t reef_disk_read(struct reef_disk_file *file, uint64_t offset,
		       void *bytes, size_t size)
{
	if (!is_range_valid(offset, size))
		return -EINVAL;
	return file->store->ops->read(file, offset, bytes, size);
}

int reef_disk_write(struct reef_disk_file *file, uint64_t offset,
		    const void *bytes, size_t size)
{
	if (!is_range_valid(offset, size))
		return -EFBIG;
	return file->store->ops->write(file, offset, bytes, size);
}

int reef_disk_truncate(struct reef_disk_file *file, uint64_t size)
{
	if (size > INT64_MAX)
		return -EFBIG;
	return file->store->ops->truncate(file, size);
}

int reef_disk_sync(struct reef_disk_file *file)
{
	return file->store->ops->sync(file);
}

int64_t reef_disk_size(struct reef_disk_file *file)
{
	return file->store->ops->size(file);
}

int reef_store_rename(struct reef_store *store, const char *from,
		      const char *to)
{
	if (!is_name_valid(from) || !is_name_valid(to))
		return -EINVAL;
	return store->ops->rename(store, from, to);
}

int reef_store_remove(struct reef_store *store, const char *name)
{
	if (!is_name_valid(name))
		return -EINVAL;
	return store->ops->remove(store, name);
}

int reef_store_sync_names(struct reef_store *store)
{
	return store->ops->sync_names(store);
}

uint64_t reef_store_room(struct reef_store *store)
{
	return store->ops->room ? store->ops->room(store) : UINT64_MAX;
}
