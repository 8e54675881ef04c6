/* extension.h - the parts of the extension of SQLite, to each other.
 *
 *   extension.c  the entry point: registers the VFSs, and has the functions
 *   cache_vfs.c  the VFS `reefcache`: databases on disk, whose pages are cached
 *                in a pool; cache.c: what it knows of one of them
 *   pool_vfs.c   the VFS `reef`: databases in a pool
 *
 * extension.c has SQLITE_EXTENSION_INIT1, the others SQLITE_EXTENSION_INIT3.
 *
 * Thread: any. */
#ifndef REEF_SQLITE_EXTENSION_H
#define REEF_SQLITE_EXTENSION_H

#include <sqlite3ext.h>
#include <stddef.h>

/* Register a VFS, once in a process: SQLITE_OK, also if that was done. It is
 * never the default one. */
int reef_cache_vfs_register(void);
int reef_pool_vfs_register(void);

/* What the functions ask the file of a database, by xFileControl; a VFS that
 * does not know one says SQLITE_NOTFOUND. */
enum {
	/* reef_stats(): char **, what is known of the file, in JSON, from
	 * sqlite3_malloc. */
	REEF_FCNTL_STATS = 0x52660001,
	/* reef_prime(): sqlite3_int64 *, how many pages were brought into the
	 * pool. */
	REEF_FCNTL_PRIME,
};

#endif
