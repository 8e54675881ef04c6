/* memory.c - a disk in memory that forgets what was not synced.
 *
 * A file is an inode with two images: `cache`, what reads see, and `disk`, what
 * a crash leaves. Between them stands the list of changes that no sync has
 * carried over. Names are the same again, one level up: `cached` and `stored`
 * tables of name -> inode, and a list of changes between them.
 *
 *   write, truncate ---> cache, and a change ---sync---> disk
 *   create, rename, remove ---> cached, and a change ---sync_names---> stored
 *   crash: each change is carried over or dropped by the throw of a coin, a
 *   file's last one cut at any byte; then cache = disk, cached = stored.
 *
 * (1) Changes are carried over in their order, so dropping one never undoes
 *     what was synced before it.
 * (2) A failed sync leaves the cache as it was, but dooms some of the changes
 *     it covered: no later sync carries them over, though it may say 0.
 * (3) An inode lives while a name, a change of names or an open file has it. */
#include "base/store/store.h"

#include "base/log.h"
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT_LABEL 0x73746f7265 /* "store" */

struct image {
	uint8_t *bytes;
	uint64_t size, room;
};

struct change {
	struct change *next;
	bool truncate;
	bool doomed;	 /* by a failed sync */
	uint64_t offset; /* truncate: the new size */
	size_t size;
	uint8_t bytes[];
};

struct inode {
	struct inode *next;
	struct image cache, disk;
	struct change *first, **last; /* changes not synced */
	uint32_t refs;
	bool locked;
};

struct name {
	struct name *next;
	struct inode *inode;
	char text[];
};

struct name_change {
	struct name_change *next;
	struct inode *inode; /* that `to` gets; NULL: `from` is removed */
	char *from, *to;     /* create: no from; remove: no to */
};

struct memory {
	struct reef_store store;
	struct reef_random random;
	struct name *cached, *stored;
	struct name_change *first, **last; /* changes of names not synced */
	struct inode *inodes;		   /* all that live, for the crash */
	uint32_t incarnation;		   /* raised by a crash */
	uint32_t fail_in;		   /* calls until one fails; 0: none */
	uint32_t files;			   /* open */
};

struct memory_file {
	struct reef_disk_file file;
	struct inode *inode;
	uint32_t incarnation;
	bool holds_lock;
};

static const struct reef_store_ops memory_ops;

static struct memory *to_memory(struct reef_store *store)
{
	reef_assert(store->ops == &memory_ops);
	return (struct memory *)store;
}

static struct memory_file *to_file(struct reef_disk_file *file)
{
	return (struct memory_file *)file;
}

/* Count a call. Returns whether it is this one that has to fail. */
static bool is_to_fail(struct memory *memory)
{
	return memory->fail_in > 0 && --memory->fail_in == 0;
}

/* Whether a call on this file can be done: 0, or its error. */
static int check_file(struct memory_file *file)
{
	struct memory *memory = to_memory(file->file.store);

	if (file->incarnation != memory->incarnation || is_to_fail(memory))
		return -EIO;
	return 0;
}

/* --- images and their changes --- */

static int image_reserve(struct image *image, uint64_t size)
{
	uint64_t room = image->room ? image->room : 4096;
	uint8_t *bytes;

	if (size <= image->room)
		return 0;
	if (size > SIZE_MAX / 4)
		return -ENOSPC;
	while (room < size)
		room *= 2;
	bytes = realloc(image->bytes, room);
	if (!bytes)
		return -ENOSPC; /* a full disk, as far as callers can tell */
	image->bytes = bytes;
	image->room = room;
	return 0;
}

/* Change the size of an image; new bytes are zero. Room must be there. */
static void image_resize(struct image *image, uint64_t size)
{
	if (size > image->size)
		memset(image->bytes + image->size, 0, size - image->size);
	image->size = size;
}

static void image_write(struct image *image, uint64_t offset, const void *bytes,
			size_t size)
{
	if (size == 0)
		return;
	if (offset + size > image->size)
		image_resize(image, offset + size);
	memcpy(image->bytes + offset, bytes, size);
}

/* Carry a change over to the disk, or the first `size` bytes of it. */
static void change_apply(struct image *disk, const struct change *change,
			 size_t size)
{
	if (change->truncate)
		image_resize(disk, change->offset);
	else
		image_write(disk, change->offset, change->bytes, size);
}

/* Note a change. The disk's room is taken now, so that sync and crash cannot
 * run out of memory. */
static int change_add(struct inode *inode, bool truncate, uint64_t offset,
		      const void *bytes, size_t size)
{
	struct change *change;
	int err;

	err = image_reserve(&inode->disk, offset + size);
	if (err == 0)
		err = image_reserve(&inode->cache, offset + size);
	if (err)
		return err;
	change = malloc(sizeof(*change) + size);
	if (!change)
		return -ENOSPC;
	*change = (struct change){
		.truncate = truncate, .offset = offset, .size = size};
	if (size > 0)
		memcpy(change->bytes, bytes, size);
	change_apply(&inode->cache, change, size);
	*inode->last = change;
	inode->last = &change->next;
	return 0;
}

static void changes_drop(struct inode *inode)
{
	struct change *change;

	while ((change = inode->first)) {
		inode->first = change->next;
		free(change);
	}
	inode->last = &inode->first;
}

static void inode_crash(struct inode *inode, struct reef_random *random)
{
	struct change *change;
	size_t size;

	for (change = inode->first; change; change = change->next) {
		if (change->doomed || reef_random_chance(random, 1, 2))
			continue;
		size = change->size;
		if (!change->next)
			size = reef_random_below(random, size + 1);
		change_apply(&inode->disk, change, size);
	}
	changes_drop(inode);
	inode->locked = false;
	/* There is room: the cache was at least as large as any change. */
	inode->cache.size = 0;
	if (inode->disk.size > 0)
		image_write(&inode->cache, 0, inode->disk.bytes,
			    inode->disk.size);
}

/* --- inodes and names --- */

static struct inode *inode_create(struct memory *memory)
{
	struct inode *inode;

	inode = calloc(1, sizeof(*inode));
	if (!inode)
		return NULL;
	inode->last = &inode->first;
	inode->refs = 1;
	inode->next = memory->inodes;
	memory->inodes = inode;
	return inode;
}

static void inode_unref(struct memory *memory, struct inode *inode)
{
	struct inode **at;

	if (--inode->refs > 0)
		return;
	for (at = &memory->inodes; *at != inode; at = &(*at)->next)
		reef_assert(*at);
	*at = inode->next;
	changes_drop(inode);
	free(inode->cache.bytes);
	free(inode->disk.bytes);
	free(inode);
}

/* The place of a name in a table, or the table's end. */
static struct name **name_find(struct name **table, const char *text)
{
	while (*table && strcmp((*table)->text, text) != 0)
		table = &(*table)->next;
	return table;
}

static void name_unset(struct memory *memory, struct name **table,
		       const char *text)
{
	struct name **at = name_find(table, text), *name = *at;

	if (!name)
		return;
	*at = name->next;
	inode_unref(memory, name->inode);
	free(name);
}

static int name_set(struct memory *memory, struct name **table,
		    const char *text, struct inode *inode)
{
	struct name **at = name_find(table, text), *name = *at;
	size_t size;

	reef_assert(inode);
	if (!name) {
		size = strlen(text) + 1;
		name = malloc(sizeof(*name) + size);
		if (!name)
			return -ENOSPC;
		name->next = NULL;
		name->inode = NULL;
		memcpy(name->text, text, size);
		*at = name;
	}
	inode->refs++; /* before the unref: it may be the same */
	if (name->inode)
		inode_unref(memory, name->inode);
	name->inode = inode;
	return 0;
}

static void name_change_free(struct memory *memory, struct name_change *change)
{
	if (change->inode)
		inode_unref(memory, change->inode);
	free(change->from);
	free(change->to);
	free(change);
}

/* Carry a change of names into a table. A rename takes the old name away only
 * while it still means that file. */
static int name_change_apply(struct memory *memory, struct name **table,
			     const struct name_change *change)
{
	struct name *old = NULL;
	int err;

	if (change->to) {
		err = name_set(memory, table, change->to, change->inode);
		if (err)
			return err;
	}
	if (change->from)
		old = *name_find(table, change->from);
	if (old && (!change->inode || old->inode == change->inode))
		name_unset(memory, table, change->from);
	return 0;
}

/* Change names now, and note it for sync_names. */
static int names_change(struct memory *memory, const char *from, const char *to,
			struct inode *inode)
{
	struct name_change *change;
	int err;

	change = calloc(1, sizeof(*change));
	if (!change)
		return -ENOSPC;
	change->from = from ? strdup(from) : NULL;
	change->to = to ? strdup(to) : NULL;
	if ((from && !change->from) || (to && !change->to)) {
		name_change_free(memory, change);
		return -ENOSPC;
	}
	if (inode) {
		inode->refs++;
		change->inode = inode;
	}
	err = name_change_apply(memory, &memory->cached, change);
	if (err) {
		name_change_free(memory, change);
		return err;
	}
	*memory->last = change;
	memory->last = &change->next;
	return 0;
}

static void name_change_shift(struct memory *memory)
{
	struct name_change *change = memory->first;

	memory->first = change->next;
	if (!memory->first)
		memory->last = &memory->first;
	name_change_free(memory, change);
}

/* --- the ops --- */

static int find_or_make(struct memory *memory, const char *name, int flags,
			struct inode **out)
{
	struct name *found = *name_find(&memory->cached, name);
	struct inode *inode;
	int err;

	if (found && (flags & REEF_DISK_EXCLUSIVE))
		return -EEXIST;
	if (!found && !(flags & REEF_DISK_CREATE))
		return -ENOENT;
	if (found) {
		if ((flags & REEF_DISK_LOCK) && found->inode->locked)
			return -EBUSY;
		found->inode->refs++;
		*out = found->inode;
		return 0;
	}
	inode = inode_create(memory);
	if (!inode)
		return -ENOSPC;
	err = names_change(memory, NULL, name, inode);
	if (err) {
		inode_unref(memory, inode);
		return err;
	}
	*out = inode;
	return 0;
}

static int memory_open(struct reef_store *store, const char *name, int flags,
		       struct reef_disk_file **out)
{
	struct memory *memory = to_memory(store);
	struct memory_file *file;
	int err;

	if (is_to_fail(memory))
		return -EIO;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	err = find_or_make(memory, name, flags, &file->inode);
	if (err) {
		free(file);
		return err;
	}
	if (flags & REEF_DISK_LOCK) {
		file->inode->locked = true;
		file->holds_lock = true;
	}
	file->incarnation = memory->incarnation;
	file->file.store = store;
	memory->files++;
	*out = &file->file;
	return 0;
}

static void memory_close(struct reef_disk_file *file)
{
	struct memory_file *own = to_file(file);
	struct memory *memory = to_memory(file->store);

	if (own->holds_lock && own->incarnation == memory->incarnation)
		own->inode->locked = false;
	inode_unref(memory, own->inode);
	memory->files--;
	free(own);
}

static ssize_t memory_read(struct reef_disk_file *file, uint64_t offset,
			   void *bytes, size_t size)
{
	struct image *cache = &to_file(file)->inode->cache;
	int err = check_file(to_file(file));

	if (err)
		return err;
	if (offset >= cache->size || size == 0)
		return 0;
	if (size > cache->size - offset)
		size = cache->size - offset;
	memcpy(bytes, cache->bytes + offset, size);
	return (ssize_t)size;
}

static int memory_write(struct reef_disk_file *file, uint64_t offset,
			const void *bytes, size_t size)
{
	struct memory_file *own = to_file(file);
	struct memory *memory = to_memory(file->store);
	int err;

	if (own->incarnation != memory->incarnation)
		return -EIO;
	if (is_to_fail(memory)) {
		/* A write that failed may have begun. */
		size = reef_random_below(&memory->random, size + 1);
		err = change_add(own->inode, false, offset, bytes, size);
		return err ? err : -EIO;
	}
	if (size == 0)
		return 0;
	return change_add(own->inode, false, offset, bytes, size);
}

static int memory_truncate(struct reef_disk_file *file, uint64_t size)
{
	int err = check_file(to_file(file));

	if (err)
		return err;
	return change_add(to_file(file)->inode, true, size, NULL, 0);
}

static int memory_sync(struct reef_disk_file *file)
{
	struct memory_file *own = to_file(file);
	struct memory *memory = to_memory(file->store);
	struct change *change;

	if (own->incarnation != memory->incarnation)
		return -EIO;
	if (is_to_fail(memory)) {
		for (change = own->inode->first; change; change = change->next)
			if (reef_random_chance(&memory->random, 1, 2))
				change->doomed = true;
		return -EIO;
	}
	for (change = own->inode->first; change; change = change->next)
		if (!change->doomed)
			change_apply(&own->inode->disk, change, change->size);
	changes_drop(own->inode);
	return 0;
}

static int64_t memory_size(struct reef_disk_file *file)
{
	int err = check_file(to_file(file));

	return err ? err : (int64_t)to_file(file)->inode->cache.size;
}

static int memory_rename(struct reef_store *store, const char *from,
			 const char *to)
{
	struct memory *memory = to_memory(store);
	struct name *name;

	if (is_to_fail(memory))
		return -EIO;
	name = *name_find(&memory->cached, from);
	if (!name)
		return -ENOENT;
	if (strcmp(from, to) == 0)
		return 0;
	return names_change(memory, from, to, name->inode);
}

static int memory_remove(struct reef_store *store, const char *name)
{
	struct memory *memory = to_memory(store);

	if (is_to_fail(memory))
		return -EIO;
	if (!*name_find(&memory->cached, name))
		return -ENOENT;
	return names_change(memory, name, NULL, NULL);
}

static int memory_sync_names(struct reef_store *store)
{
	struct memory *memory = to_memory(store);
	int err;

	if (is_to_fail(memory))
		return -EIO;
	while (memory->first) {
		err = name_change_apply(memory, &memory->stored, memory->first);
		if (err)
			return err;
		name_change_shift(memory);
	}
	return 0;
}

static void memory_destroy(struct reef_store *store)
{
	struct memory *memory = to_memory(store);

	reef_assert(memory->files == 0);
	while (memory->first)
		name_change_shift(memory);
	while (memory->cached)
		name_unset(memory, &memory->cached, memory->cached->text);
	while (memory->stored)
		name_unset(memory, &memory->stored, memory->stored->text);
	reef_assert(!memory->inodes);
	free(memory);
}

void reef_store_crash(struct reef_store *store)
{
	struct memory *memory = to_memory(store);
	struct inode *inode;
	struct name *name;
	int err = 0;

	for (inode = memory->inodes; inode; inode = inode->next)
		inode_crash(inode, &memory->random);
	for (; memory->first; name_change_shift(memory))
		if (reef_random_chance(&memory->random, 1, 2))
			err |= name_change_apply(memory, &memory->stored,
						 memory->first);
	while (memory->cached)
		name_unset(memory, &memory->cached, memory->cached->text);
	for (name = memory->stored; name; name = name->next)
		err |= name_set(memory, &memory->cached, name->text,
				name->inode);
	reef_assert(err == 0); /* the test machine is out of memory */
	memory->incarnation++;
	memory->fail_in = 0;
}

void reef_store_fail_after(struct reef_store *store, uint32_t n)
{
	to_memory(store)->fail_in = n;
}

static const struct reef_store_ops memory_ops = {
	.open = memory_open,
	.close = memory_close,
	.read = memory_read,
	.write = memory_write,
	.truncate = memory_truncate,
	.sync = memory_sync,
	.size = memory_size,
	.rename = memory_rename,
	.remove = memory_remove,
	.sync_names = memory_sync_names,
	.destroy = memory_destroy,
};

int reef_store_open_memory(struct reef_random *random, struct reef_store **out)
{
	struct memory *memory;

	memory = calloc(1, sizeof(*memory));
	if (!memory)
		return -ENOMEM;
	memory->store.ops = &memory_ops;
	memory->random = reef_random_split(random, SPLIT_LABEL);
	memory->last = &memory->first;
	*out = &memory->store;
	return 0;
}
