/* disk.c - a host's files, as one life of it sees them.
 *
 * (1) The disk outlives the life; when the life ends, its files are closed on
 *     the disk (locks and all) and every call on them or on its store returns
 *     -REEF_EHOSTDEAD, so that fibers which unwind change nothing.
 * (2) Writing and syncing take time, before and after they have their effect:
 *     there a host can be killed. */
#include "base/store/store.h"

#include "fabric/sim/world.h"

#include <stdlib.h>

#define WRITE_MAX_NS 20000
#define SYNC_MAX_NS 1000000

struct disk_store {
	struct reef_store base;
	struct life *life;
	struct reef_store *disk;
	struct disk_file *files;
};

struct disk_file {
	struct reef_disk_file base;
	struct disk_file *next;
	struct reef_disk_file *inner; /* NULL: its life has ended */
};

static struct disk_store *to_store(struct reef_store *store)
{
	return reef_container(store, struct disk_store, base);
}

static struct disk_file *to_file(struct reef_disk_file *file)
{
	return reef_container(file, struct disk_file, base);
}

/* Let a call on the disk take up to max_ns.  -REEF_EHOSTDEAD: this life of the
 * host is over. */
static int spend_time(struct disk_store *store, uint64_t max_ns)
{
	struct reef_sim *sim = store->life->host->sim;

	if (store->life->group.dead)
		return -REEF_EHOSTDEAD;
	if (max_ns && !sim->options.calm && reef_fiber_self() &&
	    reef_sleep(reef_random_below(&sim->net, max_ns)))
		return -REEF_EHOSTDEAD;
	return store->life->group.dead ? -REEF_EHOSTDEAD : 0;
}

static int disk_open(struct reef_store *base, const char *name, int flags,
		     struct reef_disk_file **out)
{
	struct disk_store *store = to_store(base);
	struct disk_file *file;
	int rc = spend_time(store, 0);

	if (rc)
		return rc;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	rc = reef_disk_open(store->disk, name, flags, &file->inner);
	if (rc) {
		free(file);
		return rc;
	}
	file->base.store = base;
	file->next = store->files;
	store->files = file;
	*out = &file->base;
	return 0;
}

static void disk_close(struct reef_disk_file *base)
{
	struct disk_file *file = to_file(base);
	struct disk_file **at = &to_store(base->store)->files;

	while (*at != file)
		at = &(*at)->next;
	*at = file->next;
	reef_disk_close(file->inner);
	free(file);
}

static ssize_t disk_read(struct reef_disk_file *base, uint64_t offset,
			 void *bytes, size_t size)
{
	int rc = spend_time(to_store(base->store), 0);

	return rc ? rc
		  : reef_disk_read(to_file(base)->inner, offset, bytes, size);
}

static int disk_write(struct reef_disk_file *base, uint64_t offset,
		      const void *bytes, size_t size)
{
	int rc = spend_time(to_store(base->store), WRITE_MAX_NS);

	return rc ? rc
		  : reef_disk_write(to_file(base)->inner, offset, bytes, size);
}

static int disk_truncate(struct reef_disk_file *base, uint64_t size)
{
	int rc = spend_time(to_store(base->store), WRITE_MAX_NS);

	return rc ? rc : reef_disk_truncate(to_file(base)->inner, size);
}

static int disk_sync(struct reef_disk_file *base)
{
	struct disk_store *store = to_store(base->store);
	int rc = spend_time(store, SYNC_MAX_NS);
	int late;

	if (rc)
		return rc;
	rc = reef_disk_sync(to_file(base)->inner);
	late = spend_time(store, SYNC_MAX_NS);
	return late ? late : rc;
}

static int64_t disk_size(struct reef_disk_file *base)
{
	int rc = spend_time(to_store(base->store), 0);

	return rc ? rc : reef_disk_size(to_file(base)->inner);
}

static int disk_rename(struct reef_store *base, const char *from,
		       const char *to)
{
	struct disk_store *store = to_store(base);
	int rc = spend_time(store, WRITE_MAX_NS);

	return rc ? rc : reef_store_rename(store->disk, from, to);
}

static int disk_remove(struct reef_store *base, const char *name)
{
	struct disk_store *store = to_store(base);
	int rc = spend_time(store, WRITE_MAX_NS);

	return rc ? rc : reef_store_remove(store->disk, name);
}

static int disk_sync_names(struct reef_store *base)
{
	struct disk_store *store = to_store(base);
	int rc = spend_time(store, SYNC_MAX_NS);
	int late;

	if (rc)
		return rc;
	rc = reef_store_sync_names(store->disk);
	late = spend_time(store, SYNC_MAX_NS);
	return late ? late : rc;
}

static void disk_destroy(struct reef_store *base)
{
	struct disk_store *store = to_store(base);

	reef_assert(!store->files); /* the host's program must close them */
	free(store);
}

void sim_disk_cut_off(struct reef_store *base)
{
	struct disk_file *file;

	for (file = to_store(base)->files; file; file = file->next) {
		reef_disk_close(file->inner);
		file->inner = NULL;
	}
}

static const struct reef_store_ops disk_ops = {
	.open = disk_open,
	.close = disk_close,
	.read = disk_read,
	.write = disk_write,
	.truncate = disk_truncate,
	.sync = disk_sync,
	.size = disk_size,
	.rename = disk_rename,
	.remove = disk_remove,
	.sync_names = disk_sync_names,
	.destroy = disk_destroy,
};

int sim_disk_open(struct life *life, struct reef_store **out)
{
	struct disk_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->base.ops = &disk_ops;
	store->life = life;
	store->disk = life->host->disk;
	*out = &store->base;
	return 0;
}
