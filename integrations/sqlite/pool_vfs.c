/* pool_vfs.c - the VFS `reef`: databases, journals and temporary files in a
 * pool, for processes on any machine of it.
 *
 * A database is called /SPACE/NAME; NAME alone is in the space that
 * ?space=SPACE, the variable REEF_SQLITE_SPACE, or "sqlite" says.
 *
 * (1) A database has two locks. `readers` is had by readers together, or by one
 *     who writes; `reserved` by one who is going to write, or to roll back.
 *
 *       SHARED     readers, together
 *       RESERVED   that, and reserved
 *       EXCLUSIVE  readers, alone, and reserved
 *
 *     To become EXCLUSIVE `readers` is given and taken anew: whoever could
 *     change the database meanwhile would have `reserved`.
 * (2) A writer that dies loses its locks when its session is fenced: from then
 *     on nothing of it happens, and its journal is hot, as SQLite expects.
 * (3) A write is in the pool when its call returns: so syncing has nothing to
 *     do, and what is before a sync is there before what is behind it.
 * (4) There is no shared memory for an index of a WAL: so WAL only with
 *     locking_mode=EXCLUSIVE.
 * (5) A connection whose session has ended gets SQLITE_IOERR from then on, and
 *     is to be closed, with all others of the process, and opened anew.
 * (6) A call that was in doubt, or in which others were quicker each time, is
 *     made again: SQLite is told SQLITE_IOERR only of what stays so.
 * SQLITE_BUSY means that a lock was not taken. SQLite's log says why.
 *
 * Thread: any; a file is used by one at a time, as SQLite has it. */
#include "integrations/sqlite/extension.h"

#include <errno.h>
#include <pthread.h>
#include <reef/folder.h>
#include <reef/sync.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SQLITE_EXTENSION_INIT3

#define PATH_SIZE 520
#define NAME_SIZE 256
#define ATTEMPTS 16
#define MILLISECOND UINT64_C(1000000)
/* A lock that another has is waited for as long; SQLite's busy handler does the
 * rest. Where the same one had it so many times in a row, long enough to find
 * out that it died: not at once, because whoever waits may hold up a writer. */
#define LOCK_NS (5 * MILLISECOND)
#define LONG_NS (500 * MILLISECOND)
#define BLOCKED_MAX 20u
#define REGAIN_NS (10 * 1000 * MILLISECOND)

/* A handle of the pool with a space open. */
struct desk {
	char space_name[NAME_SIZE];
	struct reef *reef;
	struct reef_space *space;
	/* The names of the space, once one was looked up; NULL: none was.
	 * SQLite asks for a journal whenever it begins to read, and to open
	 * them each time would cost messages. */
	struct reef_files *files;
	bool was_idle; /* since it was opened */
	struct desk *next;
};

struct pool_file {
	sqlite3_file base;
	struct desk *desk;
	struct reef_file *file;
	char name[NAME_SIZE];
	bool is_temporary;
	struct reef_lock *readers, *reserved; /* of a database; NULL: none */
	bool has_readers, has_reserved;
	/* The session that had a lock, and how often in a row. */
	uint32_t blocked_by, blocked;
	bool is_inherited; /* a writer died, and nobody wrote since */
	int level;	   /* SQLITE_LOCK_... */
	uint64_t reads, read_bytes, writes, written_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct desk *idle; /* under the lock */

/* --- handles --- */

static void close_desk(struct desk *desk)
{
	reef_files_close(desk->files);
	reef_space_close(desk->space);
	reef_close(desk->reef);
	free(desk);
}

static int open_desk(const char *space, struct desk **out)
{
	const struct reef_options options = {.name = "sqlite"};
	const struct reef_space_options of_space = {.flags = REEF_SPACE_CREATE};
	struct desk *desk = calloc(1, sizeof(*desk));
	int rc = desk ? reef_open(NULL, &options, &desk->reef) : -ENOMEM;

	if (!rc) {
		snprintf(desk->space_name, sizeof(desk->space_name), "%s",
			 space);
		rc = reef_space_open(desk->reef, space, &of_space,
				     &desk->space);
	}
	if (rc) {
		if (desk)
			close_desk(desk);
		return rc;
	}
	*out = desk;
	return 0;
}

/* One whose session has ended is of no use to anybody, and keeps the process
 * from having another session. */
static bool has_ended(const struct desk *desk)
{
	int health = reef_health(desk->reef);

	return health == -REEF_EFENCED || health == -REEF_EFORKED;
}

/* Find an idle handle of a space; NULL: there is none. Under the lock. */
static struct desk *find_idle(const char *space)
{
	struct desk **link = &idle, *desk;

	while ((desk = *link)) {
		if (!has_ended(desk) && strcmp(desk->space_name, space)) {
			link = &desk->next;
			continue;
		}
		*link = desk->next;
		if (!has_ended(desk))
			return desk;
		close_desk(desk);
	}
	return NULL;
}

static int take_desk(const char *space, struct desk **out)
{
	struct desk *desk;

	pthread_mutex_lock(&lock);
	desk = find_idle(space);
	pthread_mutex_unlock(&lock);
	if (!desk)
		return open_desk(space, out);
	*out = desk;
	return 0;
}

static void give_desk(struct desk *desk)
{
	if (has_ended(desk)) {
		close_desk(desk);
		return;
	}
	desk->was_idle = true;
	pthread_mutex_lock(&lock);
	desk->next = idle;
	idle = desk;
	pthread_mutex_unlock(&lock);
}

/* Another handle for one that was idle, after an error: its space may have been
 * dropped meanwhile, and made anew, and what it finds is the old one's. So are
 * all others that are idle. False: it stays what it is. */
static bool exchange_desk(struct desk **desk, int rc)
{
	struct desk *old, *fresh;

	if (!(*desk)->was_idle ||
	    (rc != -EACCES && rc != -REEF_EDROPPED && rc != -REEF_ELOST))
		return false;
	pthread_mutex_lock(&lock);
	while ((old = find_idle((*desk)->space_name)))
		close_desk(old);
	pthread_mutex_unlock(&lock);
	if (open_desk((*desk)->space_name, &fresh))
		return false;
	close_desk(*desk);
	*desk = fresh;
	return true;
}

/* --- names --- */

/* Split /SPACE/NAME. */
static int split_path(const char *path, char space[NAME_SIZE],
		      char name[NAME_SIZE])
{
	const char *slash = path[0] == '/' ? strchr(path + 1, '/') : NULL;
	size_t size = slash ? (size_t)(slash - path - 1) : 0;

	if (!size || size >= NAME_SIZE || !slash[1] || strchr(slash + 1, '/') ||
	    strlen(slash + 1) >= NAME_SIZE)
		return -EINVAL;
	memcpy(space, path + 1, size);
	space[size] = '\0';
	snprintf(name, NAME_SIZE, "%s", slash + 1);
	return 0;
}

static int pool_full_pathname(sqlite3_vfs *vfs, const char *path, int room,
			      char *out)
{
	const char *space = sqlite3_uri_parameter(path, "space");
	char parts[2][NAME_SIZE];
	int size;

	(void)vfs;
	if (!space)
		space = getenv("REEF_SQLITE_SPACE");
	if (!split_path(path, parts[0], parts[1]))
		size = snprintf(out, (size_t)room, "%s", path);
	else
		size = snprintf(out, (size_t)room, "/%s/%s",
				space ? space : "sqlite", path);
	if (size < 0 || size >= room || split_path(out, parts[0], parts[1]))
		return SQLITE_CANTOPEN;
	return SQLITE_OK;
}

/* --- errors --- */

/* What SQLite is told of an error, and its log: why. */
static int told(const char *name, int rc, int otherwise)
{
	switch (rc) {
	case 0:
		return SQLITE_OK;
	case -ENOMEM:
		return SQLITE_NOMEM;
	case -ENOSPC:
	case -EDQUOT:
	case -EFBIG:
		return SQLITE_FULL;
	default:
		if (rc == -EACCES)
			otherwise = SQLITE_PERM;
		sqlite3_log(otherwise, "reef: %s: %s", name,
			    reef_error_text(rc));
		return otherwise;
	}
}

/* True if a call is to be made again: what was in doubt is settled. */
static bool is_again(ssize_t rc, int *attempts)
{
	return (rc == -REEF_EINDOUBT || rc == -EBUSY) && ++*attempts < ATTEMPTS;
}

/* --- bytes --- */

static int pool_read(sqlite3_file *base, void *to, int size, sqlite3_int64 at)
{
	struct pool_file *file = (struct pool_file *)base;
	int attempts = 0;
	ssize_t got;

	do
		got = reef_file_pread(file->file, to, (size_t)size,
				      (uint64_t)at);
	while (is_again(got, &attempts));
	if (got < 0)
		return told(file->name, (int)got, SQLITE_IOERR_READ);
	file->reads++;
	file->read_bytes += (uint64_t)got;
	if (got == size)
		return SQLITE_OK;
	memset((char *)to + got, 0, (size_t)(size - got));
	return SQLITE_IOERR_SHORT_READ;
}

static int pool_write(sqlite3_file *base, const void *from, int size,
		      sqlite3_int64 at)
{
	struct pool_file *file = (struct pool_file *)base;
	int done = 0, attempts = 0;
	ssize_t put;

	while (done < size) {
		put = reef_file_pwrite(file->file, (const char *)from + done,
				       (size_t)(size - done),
				       (uint64_t)at + (uint64_t)done);
		if (put > 0)
			done += (int)put;
		else if (!is_again(put, &attempts))
			return told(file->name, (int)put, SQLITE_IOERR_WRITE);
	}
	file->writes++;
	file->written_bytes += (uint64_t)size;
	return SQLITE_OK;
}

static int pool_truncate(sqlite3_file *base, sqlite3_int64 size)
{
	struct pool_file *file = (struct pool_file *)base;
	int attempts = 0, rc;

	do
		rc = reef_file_truncate(file->file, (uint64_t)size);
	while (is_again(rc, &attempts));
	return told(file->name, rc, SQLITE_IOERR_TRUNCATE);
}

static int pool_sync(sqlite3_file *base, int flags)
{
	struct pool_file *file = (struct pool_file *)base;

	(void)flags;
	return told(file->name, reef_file_sync(file->file), SQLITE_IOERR_FSYNC);
}

static int pool_file_size(sqlite3_file *base, sqlite3_int64 *size)
{
	struct pool_file *file = (struct pool_file *)base;
	uint64_t found;
	int rc = reef_file_size(file->file, &found);

	if (!rc)
		*size = (sqlite3_int64)found;
	return told(file->name, rc, SQLITE_IOERR_FSTAT);
}

/* --- locks --- */

/* Take a lock. SQLITE_BUSY: another has it. */
static int take(struct pool_file *file, struct reef_lock *of,
		enum reef_lock_mode mode, uint64_t wait_ns)
{
	struct reef_lock_info info;
	int rc = reef_lock_take(of, mode, wait_ns);

	if ((rc == -EBUSY || rc == -ETIMEDOUT) && wait_ns < LONG_NS &&
	    !reef_lock_look(of, &info)) {
		if (info.session != file->blocked_by)
			file->blocked = 0;
		file->blocked_by = info.session;
		if (info.session && ++file->blocked == BLOCKED_MAX) {
			file->blocked = 0;
			rc = reef_lock_take(of, mode, LONG_NS);
		}
	}
	/* Whoever had it before may have died: a hot journal tells. */
	if (rc >= 0) {
		if (of == file->readers)
			file->is_inherited = rc == REEF_LOCK_INHERITED;
		return SQLITE_OK;
	}
	/* After any error it is not held, so what was in doubt is, too. */
	if (rc == -EBUSY || rc == -ETIMEDOUT || rc == -REEF_EINDOUBT)
		return SQLITE_BUSY;
	return told(file->name, rc, SQLITE_IOERR_LOCK);
}

static int take_readers(struct pool_file *file, enum reef_lock_mode mode,
			uint64_t wait_ns)
{
	int rc = take(file, file->readers, mode, wait_ns);

	file->has_readers = rc == SQLITE_OK;
	return rc;
}

/* After any error it is not held either, but others may find it held until it
 * is taken next, or closed, or the session has ended: a commit that was made
 * does not fail because of that. */
static void give(struct pool_file *file, struct reef_lock *of, bool *has)
{
	int rc = *has ? reef_lock_give(of) : 0;

	*has = false;
	(void)told(file->name, rc, SQLITE_IOERR_UNLOCK);
}

static void give_readers(struct pool_file *file)
{
	give(file, file->readers, &file->has_readers);
}

static int take_reserved(struct pool_file *file)
{
	int rc;

	if (file->has_reserved)
		return SQLITE_OK;
	rc = take(file, file->reserved, REEF_LOCK_EXCLUSIVE, LOCK_NS);
	file->has_reserved = rc == SQLITE_OK;
	return rc;
}

static void give_reserved(struct pool_file *file)
{
	give(file, file->reserved, &file->has_reserved);
}

/* Take `readers` again that was given to be EXCLUSIVE, or was so: as nobody
 * writes meanwhile, who has it is another reader, or dead. */
static int regain_readers(struct pool_file *file, int otherwise)
{
	int rc = take_readers(file, REEF_LOCK_SHARED, REGAIN_NS);

	return rc == SQLITE_BUSY ? told(file->name, -ETIMEDOUT, otherwise) : rc;
}

/* (1) */
static int become_exclusive(struct pool_file *file)
{
	bool had_reserved = file->has_reserved;
	int rc = take_reserved(file), again;

	if (rc != SQLITE_OK)
		return rc;
	give_readers(file);
	rc = take_readers(file, REEF_LOCK_EXCLUSIVE, LONG_NS);
	if (rc == SQLITE_OK)
		return rc;
	/* It reads on, as before. */
	again = regain_readers(file, SQLITE_IOERR_LOCK);
	if (!had_reserved)
		give_reserved(file);
	return again == SQLITE_OK ? rc : again;
}

static int pool_lock(sqlite3_file *base, int level)
{
	struct pool_file *file = (struct pool_file *)base;
	int rc;

	if (!file->readers || level <= file->level)
		return SQLITE_OK;
	if (level == SQLITE_LOCK_SHARED)
		rc = take_readers(file, REEF_LOCK_SHARED, LOCK_NS);
	else if (level == SQLITE_LOCK_RESERVED)
		rc = take_reserved(file);
	else
		rc = become_exclusive(file);
	if (rc == SQLITE_OK)
		file->level = level;
	return rc;
}

static int pool_unlock(sqlite3_file *base, int level)
{
	struct pool_file *file = (struct pool_file *)base;
	int rc = SQLITE_OK;

	if (!file->readers || level >= file->level)
		return SQLITE_OK;
	if (level == SQLITE_LOCK_NONE || file->level == SQLITE_LOCK_EXCLUSIVE)
		give_readers(file);
	if (level != SQLITE_LOCK_NONE && !file->has_readers)
		rc = regain_readers(file, SQLITE_IOERR_UNLOCK);
	give_reserved(file);
	file->level = level;
	return rc;
}

/* Whether somebody has `reserved`. One who died while it wrote had `readers`
 * alone, so whoever reads next inherits it: then `reserved` is waited for until
 * it can be taken from the dead. */
static int pool_check_reserved(sqlite3_file *base, int *out)
{
	struct pool_file *file = (struct pool_file *)base;
	struct reef_lock_info info;
	int rc;

	*out = file->has_reserved;
	if (!file->readers || file->has_reserved)
		return SQLITE_OK;
	if (!file->is_inherited) {
		rc = reef_lock_look(file->reserved, &info);
		*out = !rc && info.session != 0;
		return told(file->name, rc, SQLITE_IOERR_CHECKRESERVEDLOCK);
	}
	*out = 0;
	rc = take(file, file->reserved, REEF_LOCK_EXCLUSIVE, LONG_NS);
	file->has_reserved = rc == SQLITE_OK;
	give_reserved(file);
	/* BUSY: another is about to roll back, and what is there is not whole:
	 * it must not be taken for a database that is only reserved. */
	return rc;
}

/* --- about a file --- */

static int pool_file_control(sqlite3_file *base, int what, void *answer)
{
	struct pool_file *file = (struct pool_file *)base;

	switch (what) {
	case REEF_FCNTL_STATS:
		*(char **)answer = sqlite3_mprintf(
			"{\"vfs\":\"reef\",\"space\":\"%s\",\"file\":\"%s\","
			"\"reads\":%llu,\"read_bytes\":%llu,"
			"\"writes\":%llu,\"written_bytes\":%llu}",
			file->desk->space_name, file->name, file->reads,
			file->read_bytes, file->writes, file->written_bytes);
		return *(char **)answer ? SQLITE_OK : SQLITE_NOMEM;
	case REEF_FCNTL_PRIME: /* all of it is in the pool */
		*(sqlite3_int64 *)answer = 0;
		return SQLITE_OK;
	case SQLITE_FCNTL_VFSNAME:
		*(char **)answer = sqlite3_mprintf("reef");
		return SQLITE_OK;
	default:
		return SQLITE_NOTFOUND;
	}
}

static int pool_sector_size(sqlite3_file *base)
{
	(void)base;
	return 4096;
}

static int pool_characteristics(sqlite3_file *base)
{
	(void)base;
	return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static void close_parts(struct pool_file *file)
{
	reef_lock_close(file->readers);
	reef_lock_close(file->reserved);
	reef_file_close(file->file);
	file->readers = NULL;
	file->reserved = NULL;
	file->file = NULL;
}

static int pool_close(sqlite3_file *base)
{
	struct pool_file *file = (struct pool_file *)base;

	close_parts(file);
	if (file->is_temporary)
		(void)reef_file_delete(file->desk->space, file->name);
	give_desk(file->desk);
	return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
	.iVersion = 1,
	.xClose = pool_close,
	.xRead = pool_read,
	.xWrite = pool_write,
	.xTruncate = pool_truncate,
	.xSync = pool_sync,
	.xFileSize = pool_file_size,
	.xLock = pool_lock,
	.xUnlock = pool_unlock,
	.xCheckReservedLock = pool_check_reserved,
	.xFileControl = pool_file_control,
	.xSectorSize = pool_sector_size,
	.xDeviceCharacteristics = pool_characteristics,
};

/* --- the VFS --- */

static int open_locks(struct pool_file *file)
{
	static const struct reef_lock_options readers = {
		.kind = REEF_LOCK_RW, .readers_max = 1024, .waiters_max = 1024};
	static const struct reef_lock_options reserved = {
		.kind = REEF_LOCK_SPIN};
	char name[NAME_SIZE + 16];
	int rc;

	snprintf(name, sizeof(name), "%s~readers", file->name);
	rc = reef_lock_open(file->desk->space, name, &readers, &file->readers);
	if (rc)
		return rc;
	snprintf(name, sizeof(name), "%s~reserved", file->name);
	return reef_lock_open(file->desk->space, name, &reserved,
			      &file->reserved);
}

/* Find a name, or one for a temporary file. */
static int name_file(struct pool_file *file, const char *path,
		     char space[NAME_SIZE])
{
	static _Atomic uint32_t count;
	const char *default_space = getenv("REEF_SQLITE_SPACE");

	if (path)
		return split_path(path, space, file->name);
	file->is_temporary = true;
	snprintf(space, NAME_SIZE, "%s",
		 default_space ? default_space : "sqlite");
	snprintf(file->name, sizeof(file->name), "~temporary.%u",
		 atomic_fetch_add(&count, 1));
	return 0;
}

/* Look a name up. After any error but that there is none, the names are opened
 * anew by the next one. */
static int look_up(struct desk *desk, const char *name,
		   struct reef_file_about *about)
{
	static const struct reef_file_id root;
	int rc = desk->files ? 0 : reef_files_open(desk->space, &desk->files);

	if (rc)
		return rc;
	rc = reef_files_look(desk->files, root, name, about);
	if (rc && rc != -ENOENT) {
		reef_files_close(desk->files);
		desk->files = NULL;
	}
	return rc;
}

/* Open a file that is there, at no message's cost: SQLite looks into the
 * journal that the last writer left whenever it begins to read. */
static int open_known(struct pool_file *file)
{
	struct reef_file_about about;
	int rc = look_up(file->desk, file->name, &about);

	if (!rc && about.type != REEF_FILE_REGULAR)
		rc = -EISDIR;
	return rc ? rc
		  : reef_files_open_file(file->desk->files, about.id,
					 &file->file);
}

static int open_file(struct pool_file *file, int flags)
{
	struct reef_file_options options = {0};
	int attempts = 0, rc;
	size_t size;

	if (flags & SQLITE_OPEN_CREATE)
		options.flags |= REEF_FILE_CREATE;
	if (flags & SQLITE_OPEN_EXCLUSIVE)
		options.flags |= REEF_FILE_EXCLUSIVE;
	if (file->is_temporary) {
		/* No other session has that name. */
		size = strlen(file->name);
		snprintf(file->name + size, sizeof(file->name) - size, ".%08x",
			 reef_session(file->desk->reef));
		options.flags = REEF_FILE_CREATE | REEF_FILE_SCRATCH;
	}
	rc = options.flags & (REEF_FILE_EXCLUSIVE | REEF_FILE_SCRATCH)
		     ? -ENOENT
		     : open_known(file);
	while (rc && rc != -EISDIR) {
		rc = reef_file_open(file->desk->space, file->name, &options,
				    &file->file);
		if (!is_again(rc, &attempts))
			break;
	}
	if (!rc && flags & SQLITE_OPEN_MAIN_DB)
		rc = open_locks(file);
	return rc;
}

static int pool_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *base,
		     int flags, int *out_flags)
{
	struct pool_file *file = (struct pool_file *)base;
	char space[NAME_SIZE];
	int rc;

	(void)vfs;
	memset(file, 0, sizeof(*file));
	rc = name_file(file, path, space);
	if (!rc)
		rc = take_desk(space, &file->desk);
	if (rc)
		return told(path ? path : file->name, rc, SQLITE_CANTOPEN);
	do {
		rc = open_file(file, flags);
		if (rc)
			close_parts(file);
	} while (exchange_desk(&file->desk, rc));
	if (rc) {
		file->is_temporary = false;
		(void)pool_close(base);
		return told(path ? path : file->name, rc, SQLITE_CANTOPEN);
	}
	if (flags & SQLITE_OPEN_DELETEONCLOSE)
		file->is_temporary = true;
	file->base.pMethods = &methods;
	if (out_flags)
		*out_flags = flags;
	return SQLITE_OK;
}

static int pool_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
	char space[NAME_SIZE], name[NAME_SIZE];
	int attempts = 0, rc = split_path(path, space, name);
	struct desk *desk;

	(void)vfs;
	(void)sync;
	if (!rc)
		rc = take_desk(space, &desk);
	if (rc)
		return told(path, rc, SQLITE_IOERR_DELETE);
	do
		rc = reef_file_delete(desk->space, name);
	while (is_again(rc, &attempts) || exchange_desk(&desk, rc));
	give_desk(desk);
	/* What was in doubt had deleted it. */
	if (rc == -ENOENT)
		return attempts ? SQLITE_OK : SQLITE_IOERR_DELETE_NOENT;
	return told(path, rc, SQLITE_IOERR_DELETE);
}

/* A journal that is empty is as good as none. */
static int pool_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
	char space[NAME_SIZE], name[NAME_SIZE];
	int attempts = 0, rc = split_path(path, space, name);
	struct reef_file_about about;
	struct desk *desk;

	(void)vfs;
	*out = 0;
	if (rc)
		return SQLITE_OK;
	rc = take_desk(space, &desk);
	if (rc)
		return told(path, rc, SQLITE_IOERR_ACCESS);
	do
		rc = look_up(desk, name, &about);
	while (is_again(rc, &attempts) || exchange_desk(&desk, rc));
	*out = !rc && (flags != SQLITE_ACCESS_EXISTS || about.size > 0);
	give_desk(desk);
	/* EACCES: nothing may be made, and nothing is there. */
	return rc == -ENOENT || rc == -REEF_EDROPPED || rc == -EACCES
		       ? SQLITE_OK
		       : told(path, rc, SQLITE_IOERR_ACCESS);
}

/* What is not about files is the default VFS's. */
static sqlite3_vfs *base_of(sqlite3_vfs *vfs)
{
	return vfs->pAppData;
}

static int pool_randomness(sqlite3_vfs *vfs, int size, char *out)
{
	return base_of(vfs)->xRandomness(base_of(vfs), size, out);
}

static int pool_sleep(sqlite3_vfs *vfs, int microseconds)
{
	return base_of(vfs)->xSleep(base_of(vfs), microseconds);
}

static int pool_time(sqlite3_vfs *vfs, double *out)
{
	return base_of(vfs)->xCurrentTime(base_of(vfs), out);
}

static int pool_time_int64(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
	return base_of(vfs)->xCurrentTimeInt64(base_of(vfs), out);
}

static int pool_last_error(sqlite3_vfs *vfs, int size, char *out)
{
	(void)vfs;
	if (size > 0)
		out[0] = '\0';
	return 0;
}

int reef_pool_vfs_register(void)
{
	static sqlite3_vfs vfs = {
		.iVersion = 2,
		.szOsFile = sizeof(struct pool_file),
		.mxPathname = PATH_SIZE,
		.zName = "reef",
		.xOpen = pool_open,
		.xDelete = pool_delete,
		.xAccess = pool_access,
		.xFullPathname = pool_full_pathname,
		.xRandomness = pool_randomness,
		.xSleep = pool_sleep,
		.xCurrentTime = pool_time,
		.xGetLastError = pool_last_error,
		.xCurrentTimeInt64 = pool_time_int64,
	};

	if (sqlite3_vfs_find(vfs.zName))
		return SQLITE_OK;
	vfs.pAppData = sqlite3_vfs_find(NULL);
	if (!vfs.pAppData)
		return SQLITE_ERROR;
	return sqlite3_vfs_register(&vfs, 0);
}
