/* internal.h - the parts of a mount, to each other.
 *
 *   mount.c  begin, serve, end; is the pool still there
 *   desk.c   handles of the pool, and the files that each has open
 *   node.c   what the kernel knows
 *   ops.c    its questions: names, folders, attributes
 *   data.c   its questions: bytes
 *
 * Thread: any. */
#ifndef REEF_GATEWAY_MOUNT_INTERNAL_H
#define REEF_GATEWAY_MOUNT_INTERNAL_H

#define FUSE_USE_VERSION 312
#include "gateway/mount/mount.h"

#include <errno.h>
#include <fuse_lowlevel.h>
#include <pthread.h>

#define REQUEST_MAX (1u << 20)
#define NODE_SHARDS 64u
#define NODE_BUCKETS 4096u
#define DESK_FILES 64u
/* Where the id of a lost file's node says that it is: no block is there. */
#define LOST_AT 1u

/* A handle of the pool, for one question at a time. */
struct desk {
	struct reef *reef;
	struct reef_space *space;
	struct reef_files *files;
	struct {
		struct reef_file_id id;
		struct reef_file *file; /* NULL: not open */
	} open[DESK_FILES];
	uint32_t next; /* to be closed, when there is no room */
	struct desk *idle;
};

/* A file or folder that the kernel knows by its address. */
struct node {
	struct reef_file_id id;
	uint64_t lookups, opens; /* under the lock of its shard */
	uint64_t ticket;	 /* of one without a name; 0: it has one */
	_Atomic bool is_changed; /* the time of its last change is not told */
	_Atomic int failed;	 /* (4) of mount.h: -errno; 0: it did not */
	struct node *next;	 /* in its bucket */
};

struct mount {
	const struct mount_options *options;
	struct fuse_session *session;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t ends;
	struct desk *idle;
	struct node *buckets[NODE_BUCKETS];
	struct node root;
	/* What the directory itself is, as long as it is mounted: in the pool
	 * the root has no attributes. */
	struct reef_file_about top;
	bool is_ending;
	/* Whoever opens a node, or takes its name away, has its shard. */
	pthread_mutex_t shards[NODE_SHARDS];
};

/* --- desk.c --- */

/* Do something with a handle, again where that is safe. changes: names or
 * attributes, so that it is not done again once it may have happened. Thread:
 * any. */
int desk_run(struct mount *mount, bool changes,
	     int (*run)(struct desk *desk, void *context), void *context);
/* Find a file that is open, or open it. */
int desk_file(struct desk *desk, struct reef_file_id id,
	      struct reef_file **out);
void desk_close_file(struct desk *desk, struct reef_file_id id);
/* What the pool tells of the space that is mounted. */
int desk_space(struct mount *mount, struct desk *desk,
	       struct reef_space_info *out);
/* Let handles that nobody uses take back what others have freed of theirs:
 * those who need memory do not get it before. */
void desk_tend_idle(struct mount *mount);
/* Close all handles that nobody uses. */
void desk_close_idle(struct mount *mount);
/* What a program is told of an error. */
int desk_errno(int rc);

/* --- node.c --- */

struct node *node_of(struct mount *mount, fuse_ino_t number);
/* Find the node of a file, or make it, for one look more of the kernel's. NULL:
 * no memory. */
struct node *node_look(struct mount *mount, struct reef_file_id id);
void node_forget(struct mount *mount, struct node *node, uint64_t lookups);
/* Find a node without a look. NULL: the kernel does not know it. */
struct node *node_find(struct mount *mount, struct reef_file_id id);
fuse_ino_t node_number(const struct mount *mount, const struct node *node);
pthread_mutex_t *node_shard(struct mount *mount, struct reef_file_id id);
/* All nodes go; files without a name are let go. */
void node_end(struct mount *mount);

/* --- ops.c, data.c --- */

extern const struct fuse_lowlevel_ops mount_ops;
/* Now, as a file's attributes have it. */
uint64_t mount_now(void);
void mount_fill(const struct mount *mount, const struct reef_file_about *about,
		struct stat *out);
/* Note that a file was changed; tell it, if it was. */
void mount_note_change(struct node *node);
int mount_tell_change(struct desk *desk, struct node *node);

void data_open(fuse_req_t request, fuse_ino_t number,
	       struct fuse_file_info *info);
void data_opened(struct mount *mount, struct node *node,
		 struct fuse_file_info *info);
void data_release(fuse_req_t request, fuse_ino_t number,
		  struct fuse_file_info *info);
void data_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t at,
	       struct fuse_file_info *info);
void data_write(fuse_req_t request, fuse_ino_t number, const char *bytes,
		size_t size, off_t at, struct fuse_file_info *info);
void data_flush(fuse_req_t request, fuse_ino_t number,
		struct fuse_file_info *info);
void data_fsync(fuse_req_t request, fuse_ino_t number, int only_data,
		struct fuse_file_info *info);
void data_fallocate(fuse_req_t request, fuse_ino_t number, int mode, off_t at,
		    off_t size, struct fuse_file_info *info);
void data_lseek(fuse_req_t request, fuse_ino_t number, off_t at, int whence,
		struct fuse_file_info *info);

#endif
