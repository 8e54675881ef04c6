/* store.h - durable files: the kernel's, or a simulated disk's.
 *
 * (1) What was written is durable only after sync returned 0 for that file, and
 *     a created, renamed or removed name only after sync_names did.
 * (2) A crash may keep any subset of the unsynced writes, and may tear the last
 *     of them at any byte. The simulated disk does both, from its seed.
 * (3) After a sync has failed, what it covered is lost: the file must not be
 *     trusted until rewritten (the kernel drops dirty pages on error).
 *
 * Thread: owner. */
#ifndef REEF_BASE_STORE_H
#define REEF_BASE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct reef_store;
struct reef_disk_file;

enum reef_disk_flags {
	REEF_DISK_CREATE = 1,	 /* make it if absent */
	REEF_DISK_EXCLUSIVE = 2, /* with CREATE: -EEXIST if present */
	REEF_DISK_LOCK = 4,	 /* -EBUSY if another open holds the lock */
};

struct reef_store_ops {
	int (*open)(struct reef_store *store, const char *name, int flags,
		    struct reef_disk_file **out);
	void (*close)(struct reef_disk_file *file);
	/* Reads up to size bytes at offset; fewer only at the end. */
	ssize_t (*read)(struct reef_disk_file *file, uint64_t offset,
			void *bytes, size_t size);
	/* Writes all or returns an error. */
	int (*write)(struct reef_disk_file *file, uint64_t offset,
		     const void *bytes, size_t size);
	int (*truncate)(struct reef_disk_file *file, uint64_t size);
	int (*sync)(struct reef_disk_file *file);
	int64_t (*size)(struct reef_disk_file *file);
	int (*rename)(struct reef_store *store, const char *from,
		      const char *to);
	int (*remove)(struct reef_store *store, const char *name);
	int (*sync_names)(struct reef_store *store);
	/* Optional: as reef_store_room. */
	uint64_t (*room)(struct reef_store *store);
	void (*destroy)(struct reef_store *store);
};

struct reef_store {
	const struct reef_store_ops *ops;
};
struct reef_disk_file {
	struct reef_store *store;
};

/* Files in a directory, which is made (mode 0700) if absent. Caller owns *out.
 * Names are plain: no '/', not "." or ".."; at most 255 bytes (-EINVAL). A file
 * whose sync has failed goes on failing to sync until it is opened anew. */
int reef_store_open_directory(const char *path, struct reef_store **out);

/* A disk in memory, with a stream of chance split off `random`. Caller owns
 * *out.  -ENOMEM. */
struct reef_random;
int reef_store_open_memory(struct reef_random *random, struct reef_store **out);

/* Memory only: the power fails. Unsynced writes are kept or dropped at random,
 * the last one torn; open files become invalid (-EIO) and must be closed. */
void reef_store_crash(struct reef_store *store);

/* Memory only: let the n-th call from now (1: the next) fail with -EIO; 0:
 * none. Every call that returns an error counts, so each can be made to fail in
 * turn. A write that fails may have begun; a sync that fails loses what rule 3
 * says, though reads still see it until a crash. */
void reef_store_fail_after(struct reef_store *store, uint32_t n);

/* Free a store, whose files must be closed. NULL is fine. */
void reef_store_destroy(struct reef_store *store);

/* Calls through the ops, so that no caller spells store->ops->... */
int reef_disk_open(struct reef_store *store, const char *name, int flags,
		   struct reef_disk_file **out);
void reef_disk_close(struct reef_disk_file *file); /* NULL is fine */
ssize_t reef_disk_read(struct reef_disk_file *file, uint64_t offset,
		       void *bytes, size_t size);
int reef_disk_write(struct reef_disk_file *file, uint64_t offset,
		    const void *bytes, size_t size);
int reef_disk_truncate(struct reef_disk_file *file, uint64_t size);
int reef_disk_sync(struct reef_disk_file *file);
int64_t reef_disk_size(struct reef_disk_file *file);
int reef_store_rename(struct reef_store *store, const char *from,
		      const char *to);
int reef_store_remove(struct reef_store *store, const char *name);
int reef_store_sync_names(struct reef_store *store);
/* How many bytes whoever writes much may still write: what is free, but for a
 * part that is left to those who write little and must, as a journal does.
 * UINT64_MAX: nobody knows. */
uint64_t reef_store_room(struct reef_store *store);

#endif
