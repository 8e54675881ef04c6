/* ops.c - the kernel's questions on names, folders and attributes. */
#include "gateway/source/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void reply(fuse_req_t request, int rc)
{
	fuse_reply_err(request, rc < 0 ? errno : 0);
}

static struct place *node(fuse_req_t request, fuse_ino_t number)
{
	return place_of(source_of(request), number);
}

static void init(void *context, struct fuse_conn_info *connection)
{
	(void)context;
	connection->max_write = REQUEST_MAX;
	connection->max_read = REQUEST_MAX;
	connection->time_gran = 1;
	/* Others may write the same file. */
	connection->want &= ~FUSE_CAP_WRITEBACK_CACHE;
}

/* --- looking --- */

static void lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param entry;
	int rc = place_look(source_of(request), node(request, parent), name,
			    &entry);

	if (rc)
		fuse_reply_err(request, -rc);
	else
		fuse_reply_entry(request, &entry);
}

static void forget(fuse_req_t request, fuse_ino_t number, uint64_t lookups)
{
	place_forget(source_of(request), node(request, number), lookups);
	fuse_reply_none(request);
}

static void getattr(fuse_req_t request, fuse_ino_t number,
		    struct fuse_file_info *info)
{
	struct stat stat;

	(void)info;
	if (fstatat(node(request, number)->fd, "", &stat, AT_EMPTY_PATH))
		fuse_reply_err(request, errno);
	else
		fuse_reply_attr(request, &stat, 0);
}

static int set_owner(const struct place *of, const struct stat *attr, int what)
{
	uid_t user = what & FUSE_SET_ATTR_UID ? attr->st_uid : (uid_t)-1;
	gid_t group = what & FUSE_SET_ATTR_GID ? attr->st_gid : (gid_t)-1;

	return fchownat(of->fd, "", user, group,
			AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

static int set_times(const char *path, const struct stat *attr, int what)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
				    {.tv_nsec = UTIME_OMIT}};

	if (what & FUSE_SET_ATTR_ATIME_NOW)
		times[0].tv_nsec = UTIME_NOW;
	else if (what & FUSE_SET_ATTR_ATIME)
		times[0] = attr->st_atim;
	if (what & FUSE_SET_ATTR_MTIME_NOW)
		times[1].tv_nsec = UTIME_NOW;
	else if (what & FUSE_SET_ATTR_MTIME)
		times[1] = attr->st_mtim;
	return utimensat(AT_FDCWD, path, times, 0);
}

static void setattr(fuse_req_t request, fuse_ino_t number, struct stat *attr,
		    int what, struct fuse_file_info *info)
{
	const struct place *of = node(request, number);
	char path[40];
	int rc = 0;

	place_path(of, path);
	if (what & FUSE_SET_ATTR_MODE && chmod(path, attr->st_mode))
		rc = -errno;
	if (!rc && what & (FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID) &&
	    set_owner(of, attr, what))
		rc = -errno;
	if (!rc && what & FUSE_SET_ATTR_SIZE)
		rc = bytes_truncate(path, attr->st_size);
	if (!rc && what & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME) &&
	    set_times(path, attr, what))
		rc = -errno;
	if (rc)
		fuse_reply_err(request, -rc);
	else
		getattr(request, number, info);
}

static void readlink_of(fuse_req_t request, fuse_ino_t number)
{
	char text[4097];
	ssize_t size = readlinkat(node(request, number)->fd, "", text,
				  sizeof(text) - 1);

	if (size < 0) {
		fuse_reply_err(request, errno);
		return;
	}
	text[size] = '\0';
	fuse_reply_readlink(request, text);
}

/* --- names --- */

/* What was made belongs to whoever asked for it. */
static void made(fuse_req_t request, fuse_ino_t parent, const char *name,
		 int rc)
{
	const struct fuse_ctx *caller = fuse_req_ctx(request);

	if (!rc && !geteuid())
		rc = fchownat(node(request, parent)->fd, name, caller->uid,
			      caller->gid, AT_SYMLINK_NOFOLLOW);
	if (rc)
		fuse_reply_err(request, errno);
	else
		lookup(request, parent, name);
}

static void make_node(fuse_req_t request, fuse_ino_t parent, const char *name,
		      mode_t mode, dev_t device)
{
	if (S_ISREG(mode))
		made(request, parent, name,
		     mknodat(node(request, parent)->fd, name, mode, device));
	else
		fuse_reply_err(request, EPERM);
}

static void make_folder(fuse_req_t request, fuse_ino_t parent, const char *name,
			mode_t mode)
{
	made(request, parent, name,
	     mkdirat(node(request, parent)->fd, name, mode));
}

static void make_symlink(fuse_req_t request, const char *target,
			 fuse_ino_t parent, const char *name)
{
	made(request, parent, name,
	     symlinkat(target, node(request, parent)->fd, name));
}

static void make_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent,
		      const char *name)
{
	char path[40];

	place_path(node(request, number), path);
	if (linkat(AT_FDCWD, path, node(request, parent)->fd, name,
		   AT_SYMLINK_FOLLOW))
		fuse_reply_err(request, errno);
	else
		lookup(request, parent, name);
}

static void unlink_name(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	reply(request, unlinkat(node(request, parent)->fd, name, 0));
}

static void remove_folder(fuse_req_t request, fuse_ino_t parent,
			  const char *name)
{
	reply(request, unlinkat(node(request, parent)->fd, name, AT_REMOVEDIR));
}

static void rename_name(fuse_req_t request, fuse_ino_t parent, const char *name,
			fuse_ino_t to, const char *to_name, unsigned int flags)
{
	reply(request, renameat2(node(request, parent)->fd, name,
				 node(request, to)->fd, to_name, flags));
}

/* --- folders --- */

static void open_folder(fuse_req_t request, fuse_ino_t number,
			struct fuse_file_info *info)
{
	int fd = openat(node(request, number)->fd, ".",
			O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);

	if (!folder) {
		fuse_reply_err(request, errno);
		if (fd >= 0)
			close(fd);
		return;
	}
	info->fh = (uintptr_t)folder;
	if (fuse_reply_open(request, info))
		closedir(folder);
}

static void close_folder(fuse_req_t request, fuse_ino_t number,
			 struct fuse_file_info *info)
{
	(void)number;
	closedir((DIR *)(uintptr_t)info->fh);
	fuse_reply_err(request, 0);
}

static void read_folder(fuse_req_t request, fuse_ino_t number, size_t size,
			off_t at, struct fuse_file_info *info)
{
	DIR *folder = (DIR *)(uintptr_t)info->fh;
	char *bytes = malloc(size);
	struct dirent *entry;
	size_t done = 0, some;

	(void)number;
	if (!bytes) {
		fuse_reply_err(request, ENOMEM);
		return;
	}
	seekdir(folder, at);
	for (errno = 0; (entry = readdir(folder)); errno = 0) {
		const struct stat stat = {.st_ino = entry->d_ino,
					  .st_mode = (mode_t)entry->d_type
						     << 12};

		some = fuse_add_direntry(request, bytes + done, size - done,
					 entry->d_name, &stat, entry->d_off);
		if (some > size - done)
			break;
		done += some;
	}
	if (!entry && errno && !done)
		fuse_reply_err(request, errno);
	else
		fuse_reply_buf(request, bytes, done);
	free(bytes);
}

static void tell_room(fuse_req_t request, fuse_ino_t number)
{
	struct statvfs room;

	if (fstatvfs(node(request, number)->fd, &room))
		fuse_reply_err(request, errno);
	else
		fuse_reply_statfs(request, &room);
}

const struct fuse_lowlevel_ops source_ops = {
	.init = init,
	.lookup = lookup,
	.forget = forget,
	.getattr = getattr,
	.setattr = setattr,
	.readlink = readlink_of,
	.mknod = make_node,
	.mkdir = make_folder,
	.symlink = make_symlink,
	.link = make_link,
	.unlink = unlink_name,
	.rmdir = remove_folder,
	.rename = rename_name,
	.open = bytes_open,
	.create = bytes_create,
	.read = bytes_read,
	.write = bytes_write,
	.flush = bytes_flush,
	.release = bytes_release,
	.fsync = bytes_fsync,
	.fallocate = bytes_fallocate,
	.lseek = bytes_lseek,
	.opendir = open_folder,
	.readdir = read_folder,
	.releasedir = close_folder,
	.statfs = tell_room,
};
