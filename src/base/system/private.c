/* private.c - files and directories that only their owner may look into. */
#include "base/system/private.h"

#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <reef/error.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *reef_private_fault(const struct stat *status, mode_t type)
{
	if (S_ISLNK(status->st_mode))
		return "it is a symbolic link";
	if ((status->st_mode & S_IFMT) != type)
		return type == S_IFDIR ? "it is not a directory"
				       : "it is not a regular file";
	if (status->st_uid != geteuid())
		return "it belongs to another user";
	if (status->st_mode & 077)
		return "group or others have access to it";
	return NULL;
}

static int refuse_with_log(const char *path, const char *fault)
{
	reef_log(REEF_LOG_ERROR, "private", "%s: refused, because %s", path,
		 fault);
	return -EPERM;
}

/* --- files --- */

static ssize_t read_whole(int fd, char *bytes, size_t size)
{
	size_t done = 0;
	char more;
	ssize_t n;

	for (;;) {
		n = done < size ? read(fd, bytes + done, size - done)
				: read(fd, &more, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return (ssize_t)done;
		if (done == size)
			return -EFBIG;
		done += (size_t)n;
	}
}

ssize_t reef_private_read(const char *path, void *bytes, size_t size)
{
	struct stat status;
	const char *fault;
	ssize_t n;
	int fd;

	/* It is opened without blocking: a pipe would wait for its writer. */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == ELOOP)
		return refuse_with_log(path, "it is a symbolic link");
	if (fd < 0)
		return -errno;
	/* The open file is checked, not its name: nobody can swap it now. */
	if (fstat(fd, &status)) {
		n = -errno;
	} else {
		fault = reef_private_fault(&status, S_IFREG);
		n = fault ? refuse_with_log(path, fault)
			  : read_whole(fd, bytes, size);
	}
	close(fd);
	return n;
}

static int write_whole(int fd, const char *bytes, size_t size)
{
	ssize_t n;

	while (size > 0) {
		n = write(fd, bytes, size);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		bytes += n;
		size -= (size_t)n;
	}
	return fsync(fd) ? -errno : 0;
}

static int sync_directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *directory;
	int fd, err;

	if (!slash)
		directory = strdup(".");
	else
		directory = strndup(path,
				    slash == path ? 1 : (size_t)(slash - path));
	if (!directory)
		return -ENOMEM;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	err = fd < 0 || fsync(fd) ? -errno : 0;
	if (fd >= 0)
		close(fd);
	free(directory);
	/* A directory that we may write but not read cannot be synced. */
	return err == -EACCES ? 0 : err;
}

/* A new file is written under another name and then linked: link never
 * replaces, and a crash leaves no half of a file under the real name. */
int reef_private_create(const char *path, const void *bytes, size_t size)
{
	char *aside = NULL;
	uint64_t chance;
	int fd, err;

	err = reef_random_secret(&chance, sizeof(chance));
	if (err)
		return err;
	if (asprintf(&aside, "%s.%016" PRIx64, path, chance) < 0)
		return -ENOMEM;
	fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		  0600);
	if (fd < 0) {
		err = -errno;
		goto out_free;
	}
	err = write_whole(fd, bytes, size);
	if (close(fd) && !err)
		err = -errno;
	if (!err && link(aside, path))
		err = -errno;
	if (unlink(aside) && !err)
		err = -errno;
	if (!err)
		err = sync_directory_of(path);
out_free:
	free(aside);
	return err;
}

/* --- directories --- */

static int check_directory(const char *path)
{
	struct stat status;
	const char *fault;

	if (lstat(path, &status))
		return -errno;
	fault = reef_private_fault(&status, S_IFDIR);
	return fault ? refuse_with_log(path, fault) : 0;
}

/* Make the directories above that are missing. Those that exist may be
 * anybody's, as the home directory's parents are; those that are made are ours,
 * and private. */
static int make_parents(char *path)
{
	char *slash = path;
	int err = 0;

	while (!err && (slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		if (mkdir(path, 0700) && errno != EEXIST)
			err = -errno;
		*slash = '/';
	}
	return err;
}

int reef_private_directory(const char *path)
{
	size_t length = strlen(path);
	char *own;
	int err;

	if (path[0] != '/')
		return -EINVAL;
	if (length >= PATH_MAX)
		return -ENAMETOOLONG;
	own = strdup(path);
	if (!own)
		return -ENOMEM;
	/* With a slash at the end lstat would follow a link. */
	while (length > 1 && own[length - 1] == '/')
		own[--length] = '\0';
	err = make_parents(own);
	if (!err && mkdir(own, 0700) == 0)
		err = sync_directory_of(own);
	else if (!err)
		err = errno == EEXIST ? check_directory(own) : -errno;
	free(own);
	return err;
}
