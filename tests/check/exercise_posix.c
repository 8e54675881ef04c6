/* exercise_posix.c - files of a directory, for an exercise. */
#include "check/exercise_posix.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE 4096

static void path_of(const struct exercise_posix *posix, uint32_t name,
		    char out[PATH_SIZE])
{
	char path[32];

	exercise_path(name, path);
	snprintf(out, PATH_SIZE, "%s/%s", posix->directory, path);
}

static void folder_of(const struct exercise_posix *posix, uint32_t folder,
		      char out[PATH_SIZE])
{
	char path[32];

	exercise_folder_path(folder, path);
	snprintf(out, PATH_SIZE, "%s/%s", posix->directory, path);
}

static void forget(struct exercise_posix *posix, uint32_t name)
{
	if (posix->open[name].fd)
		close(posix->open[name].fd);
	posix->open[name].fd = 0;
	posix->open[name].id = 0;
}

void exercise_posix_close(struct exercise_posix *posix)
{
	for (uint32_t i = 0; i < EXERCISE_NAMES; i++)
		forget(posix, i);
}

/* Returns a descriptor, or -errno. */
static int find(struct exercise_posix *posix, uint32_t name, uint64_t id)
{
	char path[PATH_SIZE];
	int fd;

	if (posix->open[name].id != id || !id)
		forget(posix, name);
	if (!posix->open[name].fd) {
		path_of(posix, name, path);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return -errno;
		posix->open[name].fd = fd;
		posix->open[name].id = id;
	}
	return posix->open[name].fd;
}

static ssize_t posix_read(void *context, uint32_t name, uint64_t id, void *to,
			  size_t size, uint64_t at)
{
	int fd = find(context, name, id);
	ssize_t got;

	if (fd < 0)
		return fd;
	got = pread(fd, to, size, (off_t)at);
	return got < 0 ? -errno : got;
}

static ssize_t posix_write(void *context, uint32_t name, uint64_t id,
			   const void *from, size_t size, uint64_t at)
{
	int fd = find(context, name, id);
	ssize_t put;

	if (fd < 0)
		return fd;
	put = pwrite(fd, from, size, (off_t)at);
	return put < 0 ? -errno : put;
}

static ssize_t posix_append(void *context, uint32_t name, uint64_t id,
			    const void *from, size_t size, uint64_t *at)
{
	char path[PATH_SIZE];
	struct stat stat;
	ssize_t put;
	int fd;

	(void)id;
	path_of(context, name, path);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	put = write(fd, from, size);
	if (put >= 0 && fstat(fd, &stat))
		put = -1;
	if (put < 0)
		put = -errno;
	else
		*at = (uint64_t)stat.st_size - (uint64_t)put;
	close(fd);
	return put;
}

static int posix_truncate(void *context, uint32_t name, uint64_t id,
			  uint64_t size)
{
	int fd = find(context, name, id);

	if (fd < 0)
		return fd;
	return ftruncate(fd, (off_t)size) ? -errno : 0;
}

static int posix_punch(void *context, uint32_t name, uint64_t id, uint64_t at,
		       uint64_t size)
{
	int fd = find(context, name, id);

	if (fd < 0)
		return fd;
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)at, (off_t)size)
		       ? -errno
		       : 0;
}

static int posix_size(void *context, uint32_t name, uint64_t id, uint64_t *size)
{
	char path[PATH_SIZE];
	struct stat found;

	(void)id;
	path_of(context, name, path);
	if (stat(path, &found))
		return -errno;
	*size = (uint64_t)found.st_size;
	return 0;
}

static int posix_create(void *context, uint32_t name, uint64_t id)
{
	struct exercise_posix *posix = context;
	char path[PATH_SIZE];
	int fd;

	path_of(posix, name, path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	forget(posix, name);
	posix->open[name].fd = fd;
	posix->open[name].id = id;
	return 0;
}

/* What another takes the place of is still there for who has it open. */
static int read_replaced(int fd, const char bytes[64], ssize_t size)
{
	char found[64];

	if (pread(fd, found, sizeof(found), 0) != size ||
	    memcmp(found, bytes, (size_t)size))
		return -EXDEV;
	return 0;
}

static int posix_rename(void *context, uint32_t from, uint32_t to)
{
	struct exercise_posix *posix = context;
	char old[PATH_SIZE], new[PATH_SIZE], bytes[64];
	ssize_t size = 0;
	int rc = 0;

	path_of(posix, from, old);
	path_of(posix, to, new);
	if (posix->open[to].fd)
		size = pread(posix->open[to].fd, bytes, sizeof(bytes), 0);
	if (rename(old, new))
		return -errno;
	if (from == to)
		return 0;
	if (posix->open[to].fd && size >= 0)
		rc = read_replaced(posix->open[to].fd, bytes, size);
	forget(posix, to);
	posix->open[to] = posix->open[from];
	posix->open[from].fd = 0;
	return rc;
}

static int posix_remove(void *context, uint32_t name)
{
	struct exercise_posix *posix = context;
	char path[PATH_SIZE], bytes[64];
	ssize_t size = 0;
	int rc = 0;

	path_of(posix, name, path);
	if (posix->open[name].fd)
		size = pread(posix->open[name].fd, bytes, sizeof(bytes), 0);
	if (unlink(path))
		return -errno;
	if (posix->open[name].fd && size >= 0)
		rc = read_replaced(posix->open[name].fd, bytes, size);
	forget(posix, name);
	return rc;
}

static int posix_make_folder(void *context, uint32_t folder)
{
	char path[PATH_SIZE];

	folder_of(context, folder, path);
	return mkdir(path, 0700) ? -errno : 0;
}

static int posix_remove_folder(void *context, uint32_t folder)
{
	char path[PATH_SIZE];

	folder_of(context, folder, path);
	return rmdir(path) ? -errno : 0;
}

static enum exercise_verdict posix_judge(void *context, int rc)
{
	(void)context;
	switch (rc) {
	case -EIO:
	case -ENOTCONN:
	case -ECONNABORTED:
		return EXERCISE_GONE;
	default:
		return EXERCISE_WRONG;
	}
}

const struct exercise_face exercise_posix_face = {
	.read = posix_read,
	.write = posix_write,
	.append = posix_append,
	.truncate = posix_truncate,
	.punch = posix_punch,
	.size = posix_size,
	.create = posix_create,
	.rename = posix_rename,
	.remove = posix_remove,
	.make_folder = posix_make_folder,
	.remove_folder = posix_remove_folder,
	.judge = posix_judge,
};
