/* bytes.c - the kernel's questions on bytes. */
#include "gateway/source/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static void reply(fuse_req_t request, int rc)
{
	fuse_reply_err(request, rc < 0 ? errno : 0);
}

/* --- open --- */

/* Bytes are asked for at each call. The kernel has sought the end of a file
 * that is appended to, which another may have moved. */
static void opened(struct fuse_file_info *info, int fd)
{
	info->fh = (uint64_t)fd;
	info->direct_io = 1;
}

static int cut(int fd, off_t size)
{
	struct through_write write;
	int rc;

	through_begin(&write, fd, NULL, THROUGH_UNTOLD, 0, 0);
	rc = ftruncate(fd, size);
	through_end(&write, NULL, 0);
	return rc;
}

int bytes_truncate(const char *path, off_t size)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int rc = fd < 0 || cut(fd, size) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return rc;
}

void bytes_open(fuse_req_t request, fuse_ino_t number,
		struct fuse_file_info *info)
{
	char path[40];
	int fd;

	place_path(place_of(source_of(request), number), path);
	fd = open(path, (info->flags & ~(O_NOFOLLOW | O_TRUNC | O_DIRECT)) |
				O_CLOEXEC);
	if (fd < 0 || (info->flags & O_TRUNC && cut(fd, 0))) {
		fuse_reply_err(request, errno);
		if (fd >= 0)
			close(fd);
		return;
	}
	opened(info, fd);
	if (fuse_reply_open(request, info))
		close(fd);
}

void bytes_create(fuse_req_t request, fuse_ino_t parent, const char *name,
		  mode_t mode, struct fuse_file_info *info)
{
	const struct fuse_ctx *caller = fuse_req_ctx(request);
	struct source *source = source_of(request);
	struct place *folder = place_of(source, parent);
	struct fuse_entry_param entry;
	int fd, rc = 0;

	fd = openat(folder->fd, name,
		    ((info->flags | O_CREAT) & ~(O_TRUNC | O_DIRECT)) |
			    O_CLOEXEC | O_NOFOLLOW,
		    mode);
	if (fd < 0 || (info->flags & O_TRUNC && cut(fd, 0)))
		rc = -errno;
	if (!rc && !geteuid() && fchown(fd, caller->uid, caller->gid))
		rc = -errno;
	if (!rc)
		rc = place_look(source, folder, name, &entry);
	if (rc) {
		fuse_reply_err(request, -rc);
		if (fd >= 0)
			close(fd);
		return;
	}
	opened(info, fd);
	if (fuse_reply_create(request, &entry, info)) {
		place_forget(source, place_of(source, entry.ino), 1);
		close(fd);
	}
}

void bytes_release(fuse_req_t request, fuse_ino_t number,
		   struct fuse_file_info *info)
{
	(void)number;
	close((int)info->fh);
	fuse_reply_err(request, 0);
}

/* --- read and write --- */

/* As many pages at a time as go through; the rest is the disk's. */
static ssize_t read_some(const struct source *source, int fd, char *to,
			 size_t size, off_t at)
{
	size_t most =
		(size_t)source->options->through.page_size * THROUGH_PAGES_MAX;
	ssize_t got;

	if (size > most)
		size = most;
	return through_read(fd, to, size, (uint64_t)at, &got)
		       ? got
		       : pread(fd, to, size, at);
}

void bytes_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t at,
		struct fuse_file_info *info)
{
	const struct source *source = source_of(request);
	char *to = malloc(size);
	size_t done = 0;
	ssize_t got = 1;

	(void)number;
	if (!to) {
		fuse_reply_err(request, ENOMEM);
		return;
	}
	for (; got > 0 && done<size; done += got> 0 ? (size_t)got : 0)
		got = read_some(source, (int)info->fh, to + done, size - done,
				at + (off_t)done);
	if (got < 0 && !done)
		fuse_reply_err(request, errno);
	else
		fuse_reply_buf(request, to, done);
	free(to);
}

/* A program may have said since it opened the file that it appends, or that it
 * does not. */
static int follow_append(int fd, int flags)
{
	int now = fcntl(fd, F_GETFL);

	if (now < 0 || !((now ^ flags) & O_APPEND))
		return now < 0 ? -1 : 0;
	return fcntl(fd, F_SETFL, now ^ O_APPEND);
}

void bytes_write(fuse_req_t request, fuse_ino_t number, const char *bytes,
		 size_t size, off_t at, struct fuse_file_info *info)
{
	struct through_write write;
	ssize_t done;

	(void)number;
	if (follow_append((int)info->fh, info->flags)) {
		fuse_reply_err(request, errno);
		return;
	}
	through_begin(&write, (int)info->fh, NULL, THROUGH_TOLD, (uint64_t)at,
		      size);
	done = pwrite((int)info->fh, bytes, size, at);
	through_end(&write, bytes, done);
	if (done < 0)
		fuse_reply_err(request, errno);
	else
		fuse_reply_write(request, (size_t)done);
}

void bytes_flush(fuse_req_t request, fuse_ino_t number,
		 struct fuse_file_info *info)
{
	(void)number;
	reply(request, close(dup((int)info->fh)));
}

void bytes_fsync(fuse_req_t request, fuse_ino_t number, int only_data,
		 struct fuse_file_info *info)
{
	(void)number;
	reply(request,
	      only_data ? fdatasync((int)info->fh) : fsync((int)info->fh));
}

void bytes_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t at,
		     off_t size, struct fuse_file_info *info)
{
	struct through_write write;
	int rc;

	(void)number;
	through_begin(&write, (int)info->fh, NULL, THROUGH_UNTOLD, 0, 0);
	rc = fallocate((int)info->fh, mode, at, size);
	through_end(&write, NULL, 0);
	reply(request, rc);
}

void bytes_lseek(fuse_req_t request, fuse_ino_t number, off_t at, int whence,
		 struct fuse_file_info *info)
{
	off_t found = lseek((int)info->fh, at, whence);

	(void)number;
	if (found < 0)
		fuse_reply_err(request, errno);
	else
		fuse_reply_lseek(request, found);
}
