/* memory.c - memory that can be lent: memfds, files, persistent memory.
 *
 * Steps: create with mode 0400, set the length, map, forbid the mapping to
 * follow a fork, take the pages, seal. Nobody else can have the descriptor
 * before the seals are on it; and one of them, on what is read-only, lets no
 * mapping come after.
 *
 * A memfd's pages are taken twice over. First by the mapping, all at once and
 * without a touch (MADV_POPULATE): only so are they huge where the machine lets
 * shared memory have transparent huge pages by advice, which is an advice on a
 * mapping and comes too late for pages that are there. Clearing them belongs to
 * who lends, too, not to whoever comes first, or to the thread that serves tcp.
 * Then by fallocate, which finds them taken, or takes what is missing (a kernel
 * before 5.14 does not populate), and alone says that there is not enough:
 * nothing is touched before it has said yes, so nothing gets SIGBUS. */
#include "fabric/memory.h"

#include "base/checksum.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <reef/error.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SIZE_MAX_LENT (1ull << 47)
#define HUGE_PAGE_SIZE (2ull << 20)
/* The pages are taken in steps, so that a signal costs one step, not all. */
#define TAKE_STEP (64ull << 20)
#define TAKE_RETRIES_MAX 1000
#define POPULATE_TRIES_MAX 100

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ 22
#endif

struct owned_memory {
	struct reef_memory memory;
	pid_t owner; /* a forked child has no mapping to undo */
	_Atomic uint32_t refs;
};

static uint64_t round_up(uint64_t size, uint64_t unit)
{
	return (size + unit - 1) / unit * unit;
}

/* The kernel takes pages for a memfd until it has to kill somebody; so what is
 * clearly too much is refused before. */
static int check_available(uint64_t size)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib, have = 0;
	bool known = false;
	char line[128];

	if (!file)
		return 0;
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
			have += kib << 10;
			known = true;
		} else if (sscanf(line, "SwapFree: %llu kB", &kib) == 1) {
			have += kib << 10;
		}
	}
	fclose(file);
	return known && size > have ? -ENOMEM : 0;
}

/* Take every page of [0, size), which also sets the length of a file that was
 * shorter. */
static int take_pages(int fd, uint64_t size)
{
	uint64_t at = 0, step;
	int retries = 0;

	while (at < size) {
		step = size - at < TAKE_STEP ? size - at : TAKE_STEP;
		if (!fallocate(fd, 0, (off_t)at, (off_t)step)) {
			at += step;
			continue;
		}
		if (errno == EOPNOTSUPP) /* libc writes zeros instead */
			return -posix_fallocate(fd, 0, (off_t)size);
		if (errno != EINTR || ++retries > TAKE_RETRIES_MAX)
			return -errno;
	}
	return 0;
}

/* Take every page of a memfd whose length is set, and which is mapped. */
static int take_mapped_pages(struct reef_memory *memory)
{
	/* This is a hint; a memfd whose pages are all huge refuses it. */
	madvise(memory->base, memory->size, MADV_HUGEPAGE);
	reef_memory_populate(memory->base, memory->size);
	return take_pages(memory->fd, memory->size);
}

int reef_memory_confine(void *base, uint64_t size)
{
	if (madvise(base, size, MADV_DONTFORK) ||
	    madvise(base, size, MADV_DONTDUMP))
		return -errno;
	return 0;
}

static int map_memory(struct reef_memory *memory, int flags)
{
	void *base = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, flags,
			  memory->fd, 0);
	int rc;

	if (base == MAP_FAILED)
		return -errno;
	rc = reef_memory_confine(base, memory->size);
	if (rc) {
		munmap(base, memory->size);
		return rc;
	}
	memory->base = base;
	return 0;
}

/* Try whether a read-only memfd can still be mapped writable: until Linux 5.13
 * the kernel took the seal of huge pages and mapped them all the same. */
static int check_write_seal(const struct reef_memory *memory)
{
	void *base = mmap(NULL, memory->size, PROT_READ | PROT_WRITE,
			  MAP_SHARED, memory->fd, 0);

	if (base == MAP_FAILED)
		return errno == EPERM ? 0 : -errno;
	munmap(base, memory->size);
	return -EOPNOTSUPP;
}

static int seal_memfd(const struct reef_memory *memory)
{
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	if (memory->read_only)
		seals |= F_SEAL_FUTURE_WRITE;
	if (fcntl(memory->fd, F_ADD_SEALS, seals))
		return memory->read_only && errno == EINVAL ? -EOPNOTSUPP
							    : -errno;
	return memory->read_only ? check_write_seal(memory) : 0;
}

static int open_memfd(struct reef_memory *memory, uint64_t size, bool huge)
{
	int rc;

	memory->size = round_up(size, huge ? HUGE_PAGE_SIZE
					   : (uint64_t)sysconf(_SC_PAGESIZE));
	memory->fd = memfd_create("reef", MFD_CLOEXEC | MFD_ALLOW_SEALING |
						  (huge ? MFD_HUGETLB : 0));
	if (memory->fd < 0)
		return -errno;
	if (fchmod(memory->fd, 0400)) {
		rc = -errno;
		goto err_close;
	}
	if (ftruncate(memory->fd, (off_t)memory->size)) {
		rc = -errno;
		goto err_close;
	}
	rc = map_memory(memory, MAP_SHARED);
	if (rc)
		goto err_close;
	rc = take_mapped_pages(memory);
	if (!rc)
		rc = seal_memfd(memory);
	if (rc)
		goto err_unmap;
	memory->huge = huge;
	return 0;
err_unmap:
	munmap(memory->base, memory->size);
err_close:
	close(memory->fd);
	memory->fd = -1;
	return rc;
}

static int create_memfd(struct reef_memory *memory,
			const struct reef_memory_options *options)
{
	int rc;

	if (options->huge_pages) {
		rc = open_memfd(memory, options->size, true);
		if (!rc)
			return 0;
		reef_log(REEF_LOG_INFO, "memory",
			 "no huge pages for %llu bytes (%s): the usual ones",
			 (unsigned long long)options->size,
			 reef_error_name(rc));
	}
	rc = check_available(options->size);
	return rc ? rc : open_memfd(memory, options->size, false);
}

/* MADV_POPULATE_READ is enough: a page of shared memory that the mapping may
 * write is mapped writable by a read, too, as nobody asks whether it is dirty.
 * POPULATE_WRITE takes almost three times as long. */
void reef_memory_populate(void *base, uint64_t size)
{
	int tries = 0;

	/* What was mapped before a signal costs little the second time. */
	while (madvise(base, size, MADV_POPULATE_READ) && errno == EINTR &&
	       ++tries < POPULATE_TRIES_MAX)
		;
}

/* Sync the directory of a new file, which must still be there after a crash:
 * FLUSH promises that. */
static int sync_directory(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *directory;
	int fd, rc = 0;

	if (!slash)
		directory = strdup(".");
	else
		directory = strndup(path, slash == path ? 1 : slash - path);
	if (!directory)
		return -ENOMEM;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	free(directory);
	if (fd < 0)
		return -errno;
	if (fsync(fd) && errno != EINVAL)
		rc = -errno;
	close(fd);
	return rc;
}

static int open_file(const char *path, bool *made)
{
	int fd, tries;

	/* Another process may make or remove it between the two opens. */
	for (tries = 0; tries < 16; tries++) {
		*made = false;
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
		if (fd >= 0 || errno != ENOENT)
			break;
		*made = true;
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0 || errno != EEXIST)
			break;
	}
	return fd < 0 ? -errno : fd;
}

static int create_file(struct reef_memory *memory,
		       const struct reef_memory_options *options)
{
	bool dax = options->backing == REEF_BACKING_DAX, made;
	struct stat stat;
	int rc;

	if (!options->path)
		return -EINVAL;
	memory->size = round_up(options->size, (uint64_t)sysconf(_SC_PAGESIZE));
	memory->fd = open_file(options->path, &made);
	if (memory->fd < 0)
		return memory->fd;
	if (fstat(memory->fd, &stat)) {
		rc = -errno;
		goto err_close;
	}
	rc = -EINVAL;
	if (!S_ISREG(stat.st_mode))
		goto err_close;
	rc = take_pages(memory->fd, memory->size);
	if (rc)
		goto err_remove;
	rc = map_memory(memory,
			dax ? MAP_SHARED_VALIDATE | MAP_SYNC : MAP_SHARED);
	if (dax && rc == -EINVAL) /* a kernel older than the flag */
		rc = -EOPNOTSUPP;
	if (rc)
		goto err_remove;
	if (fsync(memory->fd)) {
		rc = -errno;
		goto err_unmap;
	}
	rc = made ? sync_directory(options->path) : 0;
	if (rc)
		goto err_unmap;
	memory->durable = true;
	return 0;
err_unmap:
	munmap(memory->base, memory->size);
err_remove:
	if (made)
		unlink(options->path);
err_close:
	close(memory->fd);
	memory->fd = -1;
	return rc;
}

static int create_simulated(struct reef_memory *memory,
			    const struct reef_memory_options *options)
{
	int rc;

	memory->size = round_up(options->size, (uint64_t)sysconf(_SC_PAGESIZE));
	memory->durable = options->durable;
	if (options->durable) {
		memory->flushed = calloc(1, memory->size);
		if (!memory->flushed)
			return -ENOMEM;
	}
	rc = map_memory(memory, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	if (rc)
		free(memory->flushed);
	return rc;
}

int reef_memory_create(const struct reef_memory_options *options,
		       struct reef_memory **out)
{
	struct owned_memory *owned;
	struct reef_memory *memory;
	int rc;

	if (!options->size || options->size > SIZE_MAX_LENT)
		return -EINVAL;
	owned = calloc(1, sizeof(*owned));
	if (!owned)
		return -ENOMEM;
	owned->owner = getpid();
	atomic_init(&owned->refs, 1);
	memory = &owned->memory;
	memory->fd = -1;
	memory->backing = options->backing;
	memory->read_only = options->read_only;
	memory->domain = options->domain ? options->domain : reef_domain_cpu();
	switch (options->backing) {
	case REEF_BACKING_MEMFD:
		rc = create_memfd(memory, options);
		break;
	case REEF_BACKING_FILE:
	case REEF_BACKING_DAX:
		rc = create_file(memory, options);
		break;
	case REEF_BACKING_SIMULATED:
		rc = create_simulated(memory, options);
		break;
	default:
		rc = -EINVAL;
	}
	if (rc) {
		free(owned);
		return rc;
	}
	*out = memory;
	return 0;
}

/* Check that a descriptor is that of a memfd of ours. */
static int check_adopted(struct reef_memory *memory, uint64_t size)
{
	const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
	int seals = fcntl(memory->fd, F_GET_SEALS);
	struct statfs system;
	struct stat status;

	if (seals < 0 || (seals & wanted) != wanted ||
	    fstat(memory->fd, &status) || fstatfs(memory->fd, &system))
		return -REEF_EPROTO;
	memory->huge = system.f_type == HUGETLBFS_MAGIC;
	memory->size =
		round_up(size, memory->huge ? HUGE_PAGE_SIZE
					    : (uint64_t)sysconf(_SC_PAGESIZE));
	return (uint64_t)status.st_size == memory->size ? 0 : -REEF_EPROTO;
}

int reef_memory_adopt(const struct reef_memory_options *options, int fd,
		      struct reef_memory **out)
{
	struct owned_memory *owned = calloc(1, sizeof(*owned));
	struct reef_memory *memory = &owned->memory;
	int rc;

	if (!owned)
		return -ENOMEM;
	owned->owner = getpid();
	atomic_init(&owned->refs, 1);
	memory->fd = fd;
	memory->backing = REEF_BACKING_MEMFD;
	memory->domain = options->domain ? options->domain : reef_domain_cpu();
	atomic_store(&memory->passed, true);
	rc = check_adopted(memory, options->size);
	if (!rc)
		rc = map_memory(memory, MAP_SHARED);
	if (rc) {
		free(owned);
		return rc;
	}
	reef_memory_populate(memory->base, memory->size);
	*out = memory;
	return 0;
}

int reef_memory_copy(const struct reef_memory_options *options,
		     const struct reef_memory *from, struct reef_memory **out)
{
	struct reef_memory *memory;
	int rc = reef_memory_create(options, &memory);

	if (rc)
		return rc;
	if (memory->size != from->size || !memory->base) {
		reef_memory_destroy(memory);
		return -EINVAL;
	}
	memcpy(memory->base, from->base, from->size);
	*out = memory;
	return 0;
}

struct reef_memory *reef_memory_ref(struct reef_memory *memory)
{
	struct owned_memory *owned = (struct owned_memory *)memory;

	/* The share that the caller has keeps it alive. */
	atomic_fetch_add_explicit(&owned->refs, 1, memory_order_relaxed);
	return memory;
}

void reef_memory_destroy(struct reef_memory *memory)
{
	struct owned_memory *owned = (struct owned_memory *)memory;

	/* Whoever gives the last share back sees what the others wrote. */
	if (!memory || atomic_fetch_sub_explicit(&owned->refs, 1,
						 memory_order_acq_rel) > 1)
		return;
	/* In a forked child something else may lie at that address by now. */
	if (owned->owner == getpid())
		munmap(memory->base, memory->size);
	/* (7): where there is a seal against writing nobody can, nor has to. */
	if (atomic_load(&memory->passed) && !memory->kept &&
	    memory->backing == REEF_BACKING_MEMFD && owned->owner == getpid() &&
	    fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)memory->size) &&
	    !memory->read_only)
		reef_log(REEF_LOG_WARNING, "memory",
			 "pages stay with whoever has a descriptor: %s",
			 reef_error_name(-errno));
	if (memory->fd >= 0)
		close(memory->fd);
	free(memory->flushed);
	free(owned);
}

int reef_memory_open_reader(const struct reef_memory *memory)
{
	char path[32];
	int fd;

	if (memory->fd < 0)
		return -EINVAL;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int reef_memory_flush(struct reef_memory *memory, uint64_t offset,
		      uint64_t length)
{
	uint64_t page, start;

	if (!memory->durable)
		return -REEF_ENOTDURABLE;
	if (offset > memory->size || length > memory->size - offset)
		return -ERANGE;
	if (memory->flushed)
		memcpy(memory->flushed + offset,
		       (uint8_t *)memory->base + offset, length);
	if (!length || memory->backing == REEF_BACKING_SIMULATED)
		return 0;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	start = offset / page * page;
	if (msync((uint8_t *)memory->base + start, offset + length - start,
		  MS_SYNC))
		return -errno;
	return 0;
}

uint64_t reef_domain_cpu(void)
{
	/* Read once; every thread that races to be first stores the same. */
	static _Atomic uint64_t known;
	uint64_t domain = known;
	char id[64];
	ssize_t size = -1;
	int fd;

	if (domain)
		return domain;
	fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		size = read(fd, id, sizeof(id));
		close(fd);
	}
	/* Without /proc all processes of the machine still agree, but so would
	 * another machine without it; shm cannot reach that one, and tcp's
	 * memory stays with its node. */
	domain = reef_hash(id, size > 0 ? (size_t)size : 0, 0x636f7265);
	known = domain ? domain : 1;
	return known;
}
