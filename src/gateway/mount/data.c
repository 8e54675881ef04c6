/* data.c - the kernel's questions on bytes. */
#include "gateway/mount/internal.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <unistd.h>

/* A range of a file. */
struct range {
	struct node *node;
	union {
		void *to;
		const void *from;
	};
	size_t size, done;
	uint64_t at;
	bool is_append;
	int mode;
};

static struct mount *mount_of(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

/* --- open --- */

void data_opened(struct mount *mount, struct node *node,
		 struct fuse_file_info *info)
{
	pthread_mutex_t *shard = node_shard(mount, node->id);

	pthread_mutex_lock(shard);
	node->opens++;
	pthread_mutex_unlock(shard);
	info->direct_io = !mount->options->alone;
	info->keep_cache = mount->options->alone;
}

static int run_open(struct desk *desk, void *context)
{
	struct range *range = context;
	struct reef_file *file;
	int rc = desk_file(desk, range->node->id, &file);

	if (!rc)
		rc = reef_file_sync(file); /* it is there */
	if (!rc && range->mode & O_TRUNC)
		rc = reef_file_truncate(file, 0);
	return rc;
}

static int let_go(struct desk *desk, void *context)
{
	const uint64_t *ticket = context;
	int rc = reef_files_let_go(desk->files, *ticket);

	return rc == -ENOENT ? 0 : rc;
}

/* One who has it open less: a file without a name goes with the last. */
static int close_one(struct mount *mount, struct node *node)
{
	pthread_mutex_t *shard = node_shard(mount, node->id);
	uint64_t ticket = 0;

	pthread_mutex_lock(shard);
	if (!--node->opens) {
		ticket = node->ticket;
		node->ticket = 0;
		node->failed = 0;
	}
	pthread_mutex_unlock(shard);
	return ticket ? desk_run(mount, false, let_go, &ticket) : 0;
}

void data_open(fuse_req_t request, fuse_ino_t number,
	       struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct range range = {.node = node_of(mount, number),
			      .mode = info->flags};
	int rc;

	/* From here on whoever deletes it lets it live. */
	data_opened(mount, range.node, info);
	rc = desk_run(mount, false, run_open, &range);
	if (!rc && info->flags & O_TRUNC) {
		mount_note_change(range.node);
		range.node->failed = 0;
	}
	if (rc) {
		(void)close_one(mount, range.node);
		fuse_reply_err(request, desk_errno(rc));
	} else if (fuse_reply_open(request, info)) {
		(void)close_one(mount, range.node);
	}
}

static int run_tell(struct desk *desk, void *context)
{
	return mount_tell_change(desk, context);
}

void data_release(fuse_req_t request, fuse_ino_t number,
		  struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct node *node = node_of(mount, number);

	(void)info;
	if (node->is_changed && !node->ticket)
		(void)desk_run(mount, false, run_tell, node);
	fuse_reply_err(request, desk_errno(close_one(mount, node)));
}

/* --- read and write --- */

static int run_read(struct desk *desk, void *context)
{
	struct range *range = context;
	struct reef_file *file;
	int rc = desk_file(desk, range->node->id, &file);
	ssize_t got = 1;

	for (range->done = 0;
	     !rc && got && range->done<range->size; range->done += got> 0
		     ? (size_t)got
		     : 0) {
		got = reef_file_pread(file, (char *)range->to + range->done,
				      range->size - range->done,
				      range->at + range->done);
		if (got < 0)
			rc = (int)got;
	}
	return rc;
}

void data_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t at,
	       struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct range range = {.node = node_of(mount, number),
			      .to = malloc(size),
			      .size = size,
			      .at = (uint64_t)at};
	int rc = range.to ? range.node->failed : -ENOMEM;

	(void)info;
	rc = rc ? rc : desk_run(mount, false, run_read, &range);
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		fuse_reply_buf(request, range.to, range.done);
	free(range.to);
}

/* A write in doubt is settled when its call returns, and is done again: the
 * same bytes to the same place. An append is not. */
static int run_write(struct desk *desk, void *context)
{
	struct range *range = context;
	struct reef_file *file;
	int rc = desk_file(desk, range->node->id, &file);
	ssize_t put;

	if (!rc && range->is_append) {
		put = reef_file_append(file, range->from, range->size, NULL);
		range->done = put > 0 ? (size_t)put : 0;
		return put < 0 ? (int)put : 0;
	}
	for (range->done = 0; !rc && range->done < range->size;) {
		put = reef_file_pwrite(
			file, (const char *)range->from + range->done,
			range->size - range->done, range->at + range->done);
		if (put < 0)
			rc = (int)put;
		else
			range->done += (size_t)put;
	}
	return rc;
}

void data_write(fuse_req_t request, fuse_ino_t number, const char *bytes,
		size_t size, off_t at, struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct range range = {.node = node_of(mount, number),
			      .from = bytes,
			      .size = size,
			      .at = (uint64_t)at};
	int rc = range.node->failed;

	/* A program may change that while the file is open. Alone, the kernel
	 * knows where a file ends, and says where to. */
	range.is_append = info->flags & O_APPEND && !mount->options->alone;
	rc = rc ? rc : desk_run(mount, range.is_append, run_write, &range);
	/* The kernel tells programs later of ENOSPC and EIO, of no other. */
	if (rc && mount->options->alone)
		range.node->failed = rc = rc == -EDQUOT ? -ENOSPC : rc;
	mount_note_change(range.node);
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		fuse_reply_write(request, range.done);
}

void data_flush(fuse_req_t request, fuse_ino_t number,
		struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct node *node = node_of(mount, number);
	int rc = node->failed;

	(void)info;
	if (!rc && node->is_changed)
		rc = desk_run(mount, false, run_tell, node);
	fuse_reply_err(request, desk_errno(rc));
}

static int run_sync(struct desk *desk, void *context)
{
	struct node *node = context;
	struct reef_file *file;
	int rc = desk_file(desk, node->id, &file);

	if (!rc)
		rc = reef_file_sync(file);
	return rc ? rc : mount_tell_change(desk, node);
}

void data_fsync(fuse_req_t request, fuse_ino_t number, int only_data,
		struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct node *node = node_of(mount, number);
	int rc = node->failed;

	(void)only_data;
	(void)info;
	rc = rc ? rc : desk_run(mount, false, run_sync, node);
	fuse_reply_err(request, desk_errno(rc));
}

/* --- holes --- */

static int run_allocate(struct desk *desk, void *context)
{
	struct range *range = context;
	struct reef_file *file;
	int rc = desk_file(desk, range->node->id, &file);

	if (!rc && range->mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE))
		rc = reef_file_punch(file, range->at, range->size);
	if (rc || range->mode & FALLOC_FL_KEEP_SIZE)
		return rc;
	return reef_file_extend(file, range->at + range->size);
}

/* Memory is taken when bytes are written: nothing is set aside for later. */
void data_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t at,
		    off_t size, struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct range range = {.node = node_of(mount, number),
			      .at = (uint64_t)at,
			      .size = (size_t)size,
			      .mode = mode};
	int rc = -EOPNOTSUPP;

	(void)info;
	if (!(mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE |
		       FALLOC_FL_ZERO_RANGE)))
		rc = desk_run(mount, false, run_allocate, &range);
	mount_note_change(range.node);
	fuse_reply_err(request, desk_errno(rc));
}

static int run_seek(struct desk *desk, void *context)
{
	struct range *range = context;
	uint64_t from, to = range->at, size;
	struct reef_file *file;
	int rc = desk_file(desk, range->node->id, &file);

	if (!rc)
		rc = reef_file_size(file, &size);
	if (!rc && range->at >= size)
		rc = -ENXIO;
	if (rc)
		return rc;
	rc = reef_file_find_data(file, range->at, &from, &to);
	if (range->mode == SEEK_DATA) {
		range->at = rc ? range->at : from;
		return rc;
	}
	/* The first hole: where data ends, or right here. */
	if (!rc && from == range->at)
		range->at = to;
	return rc == -ENXIO ? 0 : rc;
}

void data_lseek(fuse_req_t request, fuse_ino_t number, off_t at, int whence,
		struct fuse_file_info *info)
{
	struct mount *mount = mount_of(request);
	struct range range = {.node = node_of(mount, number),
			      .at = (uint64_t)at,
			      .mode = whence};
	/* What the kernel has not written yet is no hole. */
	int rc = mount->options->alone
			 ? -ENOSYS
			 : desk_run(mount, false, run_seek, &range);

	(void)info;
	if (rc)
		fuse_reply_err(request, desk_errno(rc));
	else
		fuse_reply_lseek(request, (off_t)range.at);
}
