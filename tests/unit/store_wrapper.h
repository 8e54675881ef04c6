/* store_wrapper.h - a store around another, for tests: one that lies, waits, or
 * counts. */
#ifndef TEST_STORE_WRAPPER_H
#define TEST_STORE_WRAPPER_H

#include "base/store.h"

#include <stdlib.h>
#include <string.h>

enum lie {
	LIE_NONE,
	LIE_SYNC,	   /* 0, and nothing was synced */
	LIE_SYNC_SEGMENT,  /* the same, for segments only */
	LIE_SYNC_SNAPSHOT, /* the same, for the snapshot only */
	LIE_SYNC_NAMES,
	LIE_COUNT
};

struct wrapper {
	struct reef_store base;
	struct reef_store *inner;
	enum lie lie;
	void (*before_sync)(struct wrapper *wrapper);
	void (*before_write)(struct wrapper *wrapper);
	unsigned writes, syncs, open_files;
};

struct wrapped_file {
	struct reef_file base;
	struct reef_file *inner;
	bool is_segment;
};

static inline struct wrapper *wrapper_of(struct reef_file *file)
{
	return (struct wrapper *)file->store;
}

static inline struct wrapped_file *wrapped(struct reef_file *file)
{
	return (struct wrapped_file *)file;
}

static inline int wrapper_open(struct reef_store *store, const char *name,
			       int flags, struct reef_file **out)
{
	struct wrapper *wrapper = (struct wrapper *)store;
	struct wrapped_file *file = calloc(1, sizeof(*file));
	int rc;

	if (!file)
		return -1;
	rc = reef_file_open(wrapper->inner, name, flags, &file->inner);
	if (rc) {
		free(file);
		return rc;
	}
	file->base.store = store;
	file->is_segment = strncmp(name, "segment", 7) == 0;
	wrapper->open_files++;
	*out = &file->base;
	return 0;
}

static inline void wrapper_close(struct reef_file *file)
{
	wrapper_of(file)->open_files--;
	reef_file_close(wrapped(file)->inner);
	free(file);
}

static inline ssize_t wrapper_read(struct reef_file *file, uint64_t offset,
				   void *bytes, size_t size)
{
	return reef_file_read(wrapped(file)->inner, offset, bytes, size);
}

static inline int wrapper_write(struct reef_file *file, uint64_t offset,
				const void *bytes, size_t size)
{
	struct wrapper *wrapper = wrapper_of(file);

	wrapper->writes++;
	if (wrapper->before_write)
		wrapper->before_write(wrapper);
	return reef_file_write(wrapped(file)->inner, offset, bytes, size);
}

static inline int wrapper_truncate(struct reef_file *file, uint64_t size)
{
	return reef_file_truncate(wrapped(file)->inner, size);
}

static inline int wrapper_sync(struct reef_file *file)
{
	struct wrapper *wrapper = wrapper_of(file);
	bool segment = wrapped(file)->is_segment;

	wrapper->syncs++;
	if (wrapper->before_sync)
		wrapper->before_sync(wrapper);
	if (wrapper->lie == LIE_SYNC ||
	    (wrapper->lie == LIE_SYNC_SEGMENT && segment) ||
	    (wrapper->lie == LIE_SYNC_SNAPSHOT && !segment))
		return 0;
	return reef_file_sync(wrapped(file)->inner);
}

static inline int64_t wrapper_size(struct reef_file *file)
{
	return reef_file_size(wrapped(file)->inner);
}

static inline int wrapper_rename(struct reef_store *store, const char *from,
				 const char *to)
{
	return reef_store_rename(((struct wrapper *)store)->inner, from, to);
}

static inline int wrapper_remove(struct reef_store *store, const char *name)
{
	return reef_store_remove(((struct wrapper *)store)->inner, name);
}

static inline int wrapper_sync_names(struct reef_store *store)
{
	struct wrapper *wrapper = (struct wrapper *)store;

	if (wrapper->lie == LIE_SYNC_NAMES)
		return 0;
	return reef_store_sync_names(wrapper->inner);
}

static const struct reef_store_ops wrapper_ops = {
	.open = wrapper_open,
	.close = wrapper_close,
	.read = wrapper_read,
	.write = wrapper_write,
	.truncate = wrapper_truncate,
	.sync = wrapper_sync,
	.size = wrapper_size,
	.rename = wrapper_rename,
	.remove = wrapper_remove,
	.sync_names = wrapper_sync_names,
};

/* The inner store stays the caller's; there is nothing to undo. */
static inline void wrapper_init(struct wrapper *wrapper,
				struct reef_store *inner)
{
	*wrapper = (struct wrapper){.base = {&wrapper_ops}, .inner = inner};
}

#endif
