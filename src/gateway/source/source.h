/* source.h - a directory on disk, seen by FUSE through a cover of a pool
 * (pages.h): its files are read from the pool, and written to the disk.
 *
 * (1) Bytes come by integrations/disk/through.h, all else is the disk's own.
 * (2) Whoever writes the directory itself, past the mount, is seen while nobody
 *     writes the same file by the mount: by the file's size and times.
 * (3) A pool that is not there, or goes away, costs time and nothing else. When
 *     the process dies, every call fails with ENOTCONN until `fusermount3 -u`.
 * (4) There are no extended attributes and no special files; a file cannot be
 *     mapped shared for writing.
 *
 * Thread: main. */
#ifndef REEF_GATEWAY_SOURCE_H
#define REEF_GATEWAY_SOURCE_H

#include "integrations/disk/through.h"

struct source_options {
	const char *directory; /* where it is seen */
	const char *source;
	struct through_options through; /* directories are filled in */
	bool allow_other;		/* users, by the files' permissions */
	bool read_only;
	/* It is mounted. */
	void (*mounted)(void *context);
	void *context;
};

/* Mount, serve until a signal (SIGINT, SIGTERM, SIGHUP) or until it is
 * unmounted; then unmount.
 * 0.  -ENOENT, -ENOTDIR, -EACCES: of one of the two directories.  -EINVAL: one
 * is inside the other.  -ECANCELED: it cannot be mounted there; libfuse has
 * said why, on standard error. */
int source_serve(const struct source_options *options);

#endif
