/* mount.h - a door for everything that knows files: the files of a space as a
 * directory tree, by FUSE.
 *
 * (1) Nothing is kept here that another mount of the space would not see:
 * bytes, sizes and names are asked for at each call. Only the time of a change
 * is told when the file is flushed or closed. (2) A file that is deleted, or
 * that another takes the place of, lives on for those who have it open by this
 * mount (reef_files_hold, reef_files_replace). Who has it open by another gets
 * ESTALE. (3) When its process dies the kernel fails every call with ENOTCONN
 * until `fusermount3 -u`; in the pool nothing stands still, and files without a
 * name go when the space is mounted next. (4) A mount that is *alone* has been
 * promised that nobody else uses these files: (1) does not hold, the kernel
 * keeps what was read and written, and writes it later. A write that fails
 * then, after the program's call has returned, makes its file fail: each
 * further question for its bytes gets that error, and nobody reads what was
 * there instead, until the file is cut to nothing or nobody has it open. (5)
 * The permissions, owner and time of the directory itself are this mount's, and
 * end with it. (6) Where the memory of names is lost, and the space is
 * revocable, they are made anew, empty. (7) A file or folder whose own memory
 * is lost looks like an empty file that nobody can open: the kernel deletes, or
 * renames over, only what it could look at.
 *
 * Thread: main, but for what says otherwise. */
#ifndef REEF_GATEWAY_MOUNT_H
#define REEF_GATEWAY_MOUNT_H

#include <reef/folder.h>

struct mount_options {
	const char *directory, *space;
	uint32_t chunk;	  /* of new files; 0: the library's */
	bool allow_other; /* users, by the files' permissions */
	bool read_only;
	bool alone; /* (4) */
	/* Open a handle of the pool. Thread: any. */
	int (*open)(void *context, struct reef **out);
	void *context;
	/* It is mounted. */
	void (*mounted)(void *context);
	/* The pool is gone, so it is unmounted. Thread: any. */
	void (*lost)(void *context, int rc);
};

/* Mount, serve until a signal (SIGINT, SIGTERM, SIGHUP), until it is unmounted,
 * or until the pool is gone; then unmount.
 * 0.  -ENOENT, -EACCES and such: of the space.  -ENOTDIR: the directory is
 * none. -EIO: the pool is gone.  -ECANCELED: it cannot be mounted there;
 * libfuse has said why, on standard error. */
int mount_serve(const struct mount_options *options);

#endif
