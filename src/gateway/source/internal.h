/* internal.h - the parts of a source, to each other.
 *
 *   source.c  begin, serve, end
 *   place.c    what the kernel knows: a descriptor for each file or folder
 *   ops.c     its questions: names, folders, attributes
 *   bytes.c    its questions: bytes
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_SOURCE_INTERNAL_H
#define REEF_GATEWAY_SOURCE_INTERNAL_H

#define FUSE_USE_VERSION 312
#include "gateway/source/source.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <sys/stat.h>

#define REQUEST_MAX (1u << 20)
#define NODE_BUCKETS 4096u

/* A file or folder that the kernel knows by its address. */
struct place {
	int fd; /* O_PATH */
	dev_t device;
	ino_t inode;
	uint64_t lookups; /* under the lock */
	struct place *next;
};

struct source {
	const struct source_options *options;
	struct fuse_session *session;
	struct place root;
	pthread_mutex_t lock; /* of what follows */
	struct place *buckets[NODE_BUCKETS];
};

static inline struct source *source_of(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

/* --- place.c --- */

struct place *place_of(struct source *source, fuse_ino_t number);
/* Look a name up, for one look more of the kernel's. -errno. */
int place_look(struct source *source, struct place *folder, const char *name,
	       struct fuse_entry_param *out);
void place_forget(struct source *source, struct place *node, uint64_t lookups);
void place_end(struct source *source);
/* The path by which a node can be opened. */
void place_path(const struct place *node, char out[40]);

/* --- ops.c, bytes.c --- */

extern const struct fuse_lowlevel_ops source_ops;

/* Change the size of a file, by its path. 0, -errno. */
int bytes_truncate(const char *path, off_t size);
void bytes_open(fuse_req_t request, fuse_ino_t number,
		struct fuse_file_info *info);
void bytes_create(fuse_req_t request, fuse_ino_t parent, const char *name,
		  mode_t mode, struct fuse_file_info *info);
void bytes_release(fuse_req_t request, fuse_ino_t number,
		   struct fuse_file_info *info);
void bytes_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t at,
		struct fuse_file_info *info);
void bytes_write(fuse_req_t request, fuse_ino_t number, const char *bytes,
		 size_t size, off_t at, struct fuse_file_info *info);
void bytes_flush(fuse_req_t request, fuse_ino_t number,
		 struct fuse_file_info *info);
void bytes_fsync(fuse_req_t request, fuse_ino_t number, int only_data,
		 struct fuse_file_info *info);
void bytes_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t at,
		     off_t size, struct fuse_file_info *info);
void bytes_lseek(fuse_req_t request, fuse_ino_t number, off_t at, int whence,
		 struct fuse_file_info *info);

#endif
