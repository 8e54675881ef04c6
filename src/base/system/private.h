/* private.h - files and directories that only their owner may look into.
 *
 * (1) What is read was checked first: a regular file (or a directory, not a
 *     symbolic link), ours, and closed to group and others. Whoever could have
 *     put something else there is told off with -EPERM, and the log says why.
 * (2) A file appears whole or not at all, with mode 0600, and is durable when
 *     the call returns. It never replaces another.
 *
 * Thread: any. */
#ifndef REEF_BASE_PRIVATE_H
#define REEF_BASE_PRIVATE_H

#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Read a file of at most `size` bytes; returns how many it has.
 * -EPERM: not private (1).  -EFBIG: longer.  -ENOENT and such. */
ssize_t reef_private_read(const char *path, void *bytes, size_t size);

/* Make a file with these bytes.
 * -EEXIST: something is there already.  -ENOENT: no such directory. */
int reef_private_create(const char *path, const void *bytes, size_t size);

/* Make a directory (0700) unless it is there, and those above it that are
 * missing; only the last must be private.
 * -EPERM: it is not (1).  -ENOTDIR: one above is no directory.  -EINVAL: not
 * from the root. */
int reef_private_directory(const char *path);

/* What keeps the thing from being private: a text for people, or NULL. type is
 * S_IFREG or S_IFDIR. */
const char *reef_private_fault(const struct stat *status, mode_t type);

#endif
