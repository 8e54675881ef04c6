/* table.c - see table.h.
 *
 * The table is a file of /dev/shm. Whoever uses it has a shared lock on it; who
 * can have it alone is the first, and empties it, or the last. */
#include "integrations/disk/table.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define VERSION UINT64_C(0x7265656670670002)
#define PROBES 64u
#define SPINS 100000u

enum { SLOT_FREE, SLOT_TAKEN, SLOT_MADE };

uint32_t table_user(void)
{
	static _Atomic uint64_t known; /* and one */
	uint64_t none = 0;

	atomic_compare_exchange_strong(&known, &none, UINT64_C(1) + geteuid());
	return (uint32_t)(atomic_load(&known) - 1);
}

void table_path(const char *name, char out[160])
{
	snprintf(out, 160, "/dev/shm/reef-pages-2-%u-%.100s", table_user(),
		 name);
}

static int open_file(const char *name, int flags)
{
	struct stat about;
	char path[160];
	int fd;

	table_path(name, path);
	fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &about) || !S_ISREG(about.st_mode) ||
	    about.st_uid != table_user() || about.st_mode & 077) {
		close(fd);
		return -EACCES;
	}
	return fd;
}

static int take_lock(int fd, int how)
{
	int rc;

	do
		rc = flock(fd, how);
	while (rc && errno == EINTR);
	return rc ? -errno : 0;
}

/* (5). Between the two locks another may be the first, too: neither has used
 * it. Its memory is set aside, so that it cannot be missing later. */
static int begin_table(int fd)
{
	int rc = 0;

	if (!take_lock(fd, LOCK_EX | LOCK_NB) &&
	    (ftruncate(fd, sizeof(struct table)) ||
	     fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		       sizeof(struct table)) ||
	     fallocate(fd, 0, 0, sizeof(struct table))))
		rc = -errno;
	rc = rc ? rc : take_lock(fd, LOCK_SH);
	/* Who was the last a moment ago may have folded it. */
	if (!rc && fallocate(fd, 0, 0, sizeof(struct table)))
		rc = -errno;
	return rc;
}

/* Open it, and lock it. One that was removed meanwhile is another's no more. */
static int open_locked(const char *name)
{
	struct stat about;
	int fd, rc;

	do {
		fd = open_file(name, O_RDWR | O_CREAT);
		rc = fd < 0 ? fd : begin_table(fd);
		if (!rc && fstat(fd, &about))
			rc = -errno;
		if (fd >= 0 && (rc || !about.st_nlink))
			close(fd);
	} while (!rc && !about.st_nlink);
	return rc ? rc : fd;
}

static int map_table(int fd, int protection, void **out)
{
	struct stat about;

	if (fstat(fd, &about))
		return -errno;
	if (about.st_size != sizeof(struct table))
		return -ENOENT;
	*out = mmap(NULL, sizeof(struct table), protection, MAP_SHARED, fd, 0);
	return *out == MAP_FAILED ? -errno : 0;
}

int table_attach(const char *name, struct table **out, int *lock)
{
	struct table *table;
	uint64_t none = 0;
	void *mapped;
	int fd = open_locked(name);
	int rc = fd < 0 ? fd : map_table(fd, PROT_READ | PROT_WRITE, &mapped);

	if (rc) {
		if (fd >= 0)
			close(fd);
		return rc;
	}
	table = mapped;
	if (!atomic_compare_exchange_strong(&table->version, &none, VERSION) &&
	    none != VERSION) {
		table_detach(table, fd);
		return -EPROTO;
	}
	*out = table;
	*lock = fd;
	return 0;
}

int table_look(const char *name, const struct table **out)
{
	void *mapped;
	int fd = open_file(name, O_RDONLY);
	int rc = fd < 0 ? fd : map_table(fd, PROT_READ, &mapped);

	if (fd >= 0)
		close(fd);
	if (!rc)
		*out = mapped;
	return rc;
}

int table_lock_again(const char *name)
{
	int fd = open_file(name, O_RDWR);
	/* It is not waited for: whoever ends is perhaps this process itself. */
	int rc = fd < 0 ? fd : take_lock(fd, LOCK_SH | LOCK_NB);

	if (rc && fd >= 0)
		close(fd);
	return rc ? rc : fd;
}

void table_detach(const struct table *table, int lock)
{
	munmap((void *)(uintptr_t)table, sizeof(*table));
	if (lock >= 0)
		close(lock);
}

bool table_is_last(int lock)
{
	return !take_lock(lock, LOCK_EX | LOCK_NB);
}

void table_fold(int lock)
{
	const off_t from = (offsetof(struct table, slots) + 4095) / 4096 * 4096;

	(void)!fallocate(lock, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from,
			 (off_t)sizeof(struct table) - from);
}

/* --- slots --- */

static uint64_t hash(const struct reef_page_file *file)
{
	uint64_t words[4], mix = 0;

	memcpy(words, file, sizeof(words));
	for (int i = 0; i < 4; i++) {
		mix = (mix ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
		mix ^= mix >> 29;
	}
	return mix;
}

/* Wait until a slot that somebody has taken tells whose it is. Who died there
 * leaves it so: then nobody finds what may lie behind it, for which it would
 * have had to be free. */
static uint32_t wait_made(struct table_slot *slot)
{
	uint32_t now = atomic_load(&slot->is_made);

	for (uint32_t i = 0; now == SLOT_TAKEN && i < SPINS; i++)
		now = atomic_load(&slot->is_made);
	return now;
}

bool table_is_of(struct table_slot *slot, const struct reef_page_file *file)
{
	return atomic_load(&slot->is_made) == SLOT_MADE &&
	       !memcmp(&slot->file, file, sizeof(*file));
}

bool table_hold(struct table_slot *slot, const struct reef_page_file *file)
{
	atomic_fetch_add(&slot->telling, 1);
	if (table_is_of(slot, file))
		return true;
	table_let_go(slot);
	return false;
}

void table_let_go(struct table_slot *slot)
{
	atomic_fetch_sub(&slot->telling, 1);
}

static void set_file(struct table_slot *slot, const struct reef_page_file *file,
		     const char *path)
{
	slot->file = *file;
	slot->path[0] = '\0';
	if (strlen(path) < sizeof(slot->path))
		strcpy(slot->path, path);
	atomic_store(&slot->is_made, SLOT_MADE);
}

/* True if the path leads to another file by now, or to none. */
static bool is_gone(const struct table_slot *slot)
{
	struct stat about;

	if (!slot->path[0])
		return false;
	return stat(slot->path, &about)
		       ? errno == ENOENT
		       : (uint64_t)about.st_ino != slot->file.inode;
}

/* (7). False: it stays what it is. */
static bool take_over(struct table_slot *slot,
		      const struct reef_page_file *file, const char *path)
{
	uint32_t made = SLOT_MADE;

	if (atomic_load(&slot->telling) ||
	    atomic_load(&slot->begun) != atomic_load(&slot->ended) ||
	    !is_gone(slot) ||
	    !atomic_compare_exchange_strong(&slot->is_made, &made, SLOT_TAKEN))
		return false;
	if (atomic_load(&slot->telling) ||
	    atomic_load(&slot->begun) != atomic_load(&slot->ended)) {
		atomic_store(&slot->is_made, SLOT_MADE);
		return false;
	}
	atomic_fetch_add(&slot->begun, 1);
	atomic_fetch_add(&slot->ended, 1);
	atomic_store(&slot->cleared, 0);
	atomic_store(&slot->print, 0);
	atomic_store(&slot->credit, 0);
	atomic_store(&slot->renewed_ms, 0);
	set_file(slot, file, path);
	return true;
}

/* Where all places are others'. */
static struct table_slot *find_old(struct table *table, uint64_t at,
				   const struct reef_page_file *file,
				   const char *path)
{
	struct table_slot *slot;
	int before = errno;

	for (uint32_t i = 0; i < PROBES; i++) {
		slot = &table->slots[(at + i) % TABLE_SLOTS];
		if (take_over(slot, file, path)) {
			errno = before;
			return slot;
		}
	}
	errno = before;
	return NULL;
}

struct table_slot *table_find(struct table *table,
			      const struct reef_page_file *file,
			      const char *path)
{
	uint64_t at = hash(file);
	struct table_slot *slot;
	uint32_t now;

	for (uint32_t i = 0; i < PROBES; i++) {
		slot = &table->slots[(at + i) % TABLE_SLOTS];
		now = atomic_load(&slot->is_made);
		if (now == SLOT_FREE && !path)
			return NULL;
		if (now == SLOT_FREE &&
		    atomic_compare_exchange_strong(&slot->is_made, &now,
						   SLOT_TAKEN)) {
			set_file(slot, file, path);
			atomic_fetch_add(&table->used, 1);
			return slot;
		}
		if (now == SLOT_TAKEN && wait_made(slot) != SLOT_MADE)
			return NULL;
		if (!memcmp(&slot->file, file, sizeof(*file)))
			return slot;
	}
	return path ? find_old(table, at, file, path) : NULL;
}
