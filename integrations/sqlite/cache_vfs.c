/* cache_vfs.c - the VFS `reefcache`: databases on disk, whose pages are cached
 * in a pool.
 *
 * It stands before the default VFS. Every call passes through to it; of a
 * database's own file reads, writes, truncates and locks pass by cache.c.
 * Journals and all else are the default VFS's own files: durability, locks and
 * the log of changes (WAL) are SQLite's as ever.
 *
 * When the file is looked at: where SQLite takes a lock to read. That is SHARED
 * of the file; with a WAL, where the file stays locked, one of the read marks.
 * And where it begins to write, as a checkpoint takes none of these.
 * When what was written is noted: before the lock of a writer is given, which
 * with a WAL is that of the checkpoint. */
#include "integrations/sqlite/cache.h"
#include "integrations/sqlite/extension.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

#define NAME "reefcache"
/* Locks of a WAL, by their numbers. */
#define WAL_CHECKPOINT 1
#define WAL_READ 3 /* the first of them */

struct file {
	sqlite3_file base;
	sqlite3_io_methods methods;
	struct cache cache;
	char *token; /* what a file has; NULL: none */
	int lock;
	sqlite3_file under[]; /* of the default VFS, and larger */
};

static struct sqlite3_vfs *under_vfs; /* the default one; set once */

static struct file *of(sqlite3_file *file)
{
	return (struct file *)file;
}

#define UNDER(file, method, ...)                                               \
	(of(file)->under->pMethods->method(of(file)->under, ##__VA_ARGS__))

/* --- a database --- */

static int close_file(sqlite3_file *file)
{
	struct file *self = of(file);
	int rc;

	cache_finish(&self->cache);
	cache_fini(&self->cache);
	free(self->token);
	rc = UNDER(file, xClose);
	self->base.pMethods = NULL;
	return rc;
}

static int read_file(sqlite3_file *file, void *to, int size, sqlite3_int64 at)
{
	return cache_read(&of(file)->cache, to, size, at);
}

static int write_file(sqlite3_file *file, const void *from, int size,
		      sqlite3_int64 at)
{
	return cache_write(&of(file)->cache, from, size, at);
}

static int truncate_file(sqlite3_file *file, sqlite3_int64 size)
{
	return cache_truncate(&of(file)->cache, size);
}

static int sync_file(sqlite3_file *file, int flags)
{
	return UNDER(file, xSync, flags);
}

static int size_file(sqlite3_file *file, sqlite3_int64 *size)
{
	return UNDER(file, xFileSize, size);
}

static int lock_file(sqlite3_file *file, int lock)
{
	struct file *self = of(file);
	int rc = UNDER(file, xLock, lock);

	if (rc == SQLITE_OK) {
		if (self->lock == SQLITE_LOCK_NONE)
			cache_check(&self->cache);
		self->lock = lock;
	}
	return rc;
}

static int unlock_file(sqlite3_file *file, int lock)
{
	struct file *self = of(file);

	if (self->lock > SQLITE_LOCK_SHARED)
		cache_finish(&self->cache);
	self->lock = lock;
	return UNDER(file, xUnlock, lock);
}

static int check_lock(sqlite3_file *file, int *out)
{
	return UNDER(file, xCheckReservedLock, out);
}

/* Bring all pages into the pool, with a lock if there is none. */
static int prime(sqlite3_file *file, sqlite3_int64 *count)
{
	struct file *self = of(file);
	bool is_locked = self->lock != SQLITE_LOCK_NONE;
	int rc = is_locked ? SQLITE_OK : lock_file(file, SQLITE_LOCK_SHARED);

	if (rc != SQLITE_OK)
		return rc;
	/* A file that was written a moment ago has to be left alone for one. */
	if (is_locked || !self->cache.is_valid)
		cache_check(&self->cache);
	if (!self->cache.is_valid) {
		sqlite3_sleep(CACHE_SETTLE_MS);
		cache_check(&self->cache);
	}
	*count = cache_prime(&self->cache);
	return is_locked ? SQLITE_OK : unlock_file(file, SQLITE_LOCK_NONE);
}

static int control_file(sqlite3_file *file, int opcode, void *argument)
{
	char **text = argument, *name;
	int rc;

	switch (opcode) {
	case REEF_FCNTL_STATS:
		*text = cache_tell(&of(file)->cache);
		return *text ? SQLITE_OK : SQLITE_NOMEM;
	case REEF_FCNTL_PRIME:
		return prime(file, argument);
	case SQLITE_FCNTL_MMAP_SIZE:
		/* Pages that are mapped would not come by here. */
		*(sqlite3_int64 *)argument = 0;
		return SQLITE_OK;
	}
	rc = UNDER(file, xFileControl, opcode, argument);
	if (opcode == SQLITE_FCNTL_VFSNAME && rc == SQLITE_OK) {
		name = sqlite3_mprintf(NAME "/%z", *text);
		*text = name;
	}
	return rc;
}

static int sector_size(sqlite3_file *file)
{
	return UNDER(file, xSectorSize);
}

static int characteristics(sqlite3_file *file)
{
	/* Writes that are taken back by the file system do not come by here. */
	return UNDER(file, xDeviceCharacteristics) & ~SQLITE_IOCAP_BATCH_ATOMIC;
}

static int map_shm(sqlite3_file *file, int region, int size, int extend,
		   void volatile **out)
{
	return UNDER(file, xShmMap, region, size, extend, out);
}

static int lock_shm(sqlite3_file *file, int first, int count, int flags)
{
	struct file *self = of(file);
	int rc;

	if (flags & SQLITE_SHM_UNLOCK && flags & SQLITE_SHM_EXCLUSIVE &&
	    first <= WAL_CHECKPOINT && first + count > WAL_CHECKPOINT)
		cache_finish(&self->cache);
	rc = UNDER(file, xShmLock, first, count, flags);
	if (rc == SQLITE_OK && flags & SQLITE_SHM_LOCK &&
	    flags & SQLITE_SHM_SHARED && first >= WAL_READ)
		cache_check(&self->cache);
	return rc;
}

static void order_shm(sqlite3_file *file)
{
	UNDER(file, xShmBarrier);
}

static int unmap_shm(sqlite3_file *file, int remove)
{
	return UNDER(file, xShmUnmap, remove);
}

static int fetch(sqlite3_file *file, sqlite3_int64 at, int size, void **out)
{
	*out = NULL; /* SQLite reads it, then */
	return SQLITE_OK;
}

static int unfetch(sqlite3_file *file, sqlite3_int64 at, void *mapped)
{
	return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
	.iVersion = 3,
	.xClose = close_file,
	.xRead = read_file,
	.xWrite = write_file,
	.xTruncate = truncate_file,
	.xSync = sync_file,
	.xFileSize = size_file,
	.xLock = lock_file,
	.xUnlock = unlock_file,
	.xCheckReservedLock = check_lock,
	.xFileControl = control_file,
	.xSectorSize = sector_size,
	.xDeviceCharacteristics = characteristics,
	.xShmMap = map_shm,
	.xShmLock = lock_shm,
	.xShmBarrier = order_shm,
	.xShmUnmap = unmap_shm,
	.xFetch = fetch,
	.xUnfetch = unfetch,
};

/* --- opening --- */

/* A number of bytes with K, M, G or T. 0: it is none. */
static uint64_t parse_size(const char *text)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	uint64_t size = strtoull(text, &end, 10);

	unit = *end ? strchr(units, *end & ~0x20) : NULL;
	if (*end && (!unit || end[1]))
		return 0;
	return unit ? size << (10 * (unit - units + 1)) : size;
}

/* What stands in a file of one line. */
static char *read_line(const char *path)
{
	char line[1024] = "";
	FILE *file = fopen(path, "re");

	if (!file)
		return NULL;
	if (!fgets(line, sizeof(line), file))
		line[0] = 0;
	fclose(file);
	line[strcspn(line, "\n")] = 0;
	return strdup(line);
}

/* What the name says about the pool. False: something that is not so. */
static bool take_parameters(struct file *self, const char *name)
{
	struct cache *cache = &self->cache;
	const char *size = sqlite3_uri_parameter(name, "reef_size");
	const char *token = sqlite3_uri_parameter(name, "reef_token");

	cache->pool = sqlite3_uri_parameter(name, "reef_pool");
	cache->space = sqlite3_uri_parameter(name, "reef_space");
	cache->cover = sqlite3_uri_parameter(name, "reef_cover");
	cache->credential = sqlite3_uri_parameter(name, "reef_credential");
	if (token)
		cache->token = self->token = read_line(token);
	if (size)
		cache->size_max = parse_size(size);
	if ((size && !cache->size_max) || (token && !self->token)) {
		sqlite3_log(SQLITE_CANTOPEN, NAME ": %s is none",
			    token && !self->token ? "reef_token" : "reef_size");
		return false;
	}
	return true;
}

static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file,
		     int flags, int *out)
{
	struct file *self = of(file);
	int rc;

	/* What is no database is the default VFS's own. */
	if (!name || !(flags & SQLITE_OPEN_MAIN_DB))
		return under_vfs->xOpen(under_vfs, name, file, flags, out);
	memset(self, 0, sizeof(*self));
	rc = under_vfs->xOpen(under_vfs, name, self->under, flags, out);
	if (rc != SQLITE_OK)
		return rc;
	cache_init(&self->cache, name, self->under);
	if (!take_parameters(self, name)) {
		UNDER(file, xClose);
		return SQLITE_CANTOPEN;
	}
	self->methods = methods;
	if (self->under->pMethods->iVersion < 3)
		self->methods.iVersion = self->under->pMethods->iVersion;
	self->base.pMethods = &self->methods;
	return SQLITE_OK;
}

/* --- the rest of a VFS --- */

static int delete_file(sqlite3_vfs *vfs, const char *name, int sync)
{
	return under_vfs->xDelete(under_vfs, name, sync);
}

static int access_file(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
	return under_vfs->xAccess(under_vfs, name, flags, out);
}

static int full_path(sqlite3_vfs *vfs, const char *name, int size, char *out)
{
	return under_vfs->xFullPathname(under_vfs, name, size, out);
}

static void *open_library(sqlite3_vfs *vfs, const char *name)
{
	return under_vfs->xDlOpen(under_vfs, name);
}

static void tell_library(sqlite3_vfs *vfs, int size, char *out)
{
	under_vfs->xDlError(under_vfs, size, out);
}

static void (*find_symbol(sqlite3_vfs *vfs, void *library,
			  const char *name))(void)
{
	return under_vfs->xDlSym(under_vfs, library, name);
}

static void close_library(sqlite3_vfs *vfs, void *library)
{
	under_vfs->xDlClose(under_vfs, library);
}

static int randomness(sqlite3_vfs *vfs, int size, char *out)
{
	return under_vfs->xRandomness(under_vfs, size, out);
}

static int sleep_some(sqlite3_vfs *vfs, int microseconds)
{
	return under_vfs->xSleep(under_vfs, microseconds);
}

static int current_time(sqlite3_vfs *vfs, double *out)
{
	return under_vfs->xCurrentTime(under_vfs, out);
}

static int last_error(sqlite3_vfs *vfs, int size, char *out)
{
	return under_vfs->xGetLastError(under_vfs, size, out);
}

static int current_time_64(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
	return under_vfs->xCurrentTimeInt64(under_vfs, out);
}

static sqlite3_vfs cache_vfs = {
	.iVersion = 2,
	.zName = NAME,
	.xOpen = open_file,
	.xDelete = delete_file,
	.xAccess = access_file,
	.xFullPathname = full_path,
	.xDlOpen = open_library,
	.xDlError = tell_library,
	.xDlSym = find_symbol,
	.xDlClose = close_library,
	.xRandomness = randomness,
	.xSleep = sleep_some,
	.xCurrentTime = current_time,
	.xGetLastError = last_error,
	.xCurrentTimeInt64 = current_time_64,
};

int reef_cache_vfs_register(void)
{
	if (sqlite3_vfs_find(NAME))
		return SQLITE_OK;
	under_vfs = sqlite3_vfs_find(NULL);
	if (!under_vfs)
		return SQLITE_ERROR;
	cache_vfs.iVersion = under_vfs->iVersion < 2 ? 1 : 2;
	cache_vfs.szOsFile = (int)sizeof(struct file) + under_vfs->szOsFile;
	cache_vfs.mxPathname = under_vfs->mxPathname;
	return sqlite3_vfs_register(&cache_vfs, 0);
}
