/* pagemap.h - which pages of this process are mapped, by the kernel's word. */
#ifndef REEF_TESTS_PAGEMAP_H
#define REEF_TESTS_PAGEMAP_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Has the kernel MADV_POPULATE_READ (22; since 5.14), and shows pagemap? */
static inline bool pagemap_works(void)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	close(fd);
	return madvise(NULL, 0, 22) == 0;
}

/* How many pages of [base, base + size) a touch would not fault on. */
static inline uint64_t pagemap_count(const void *base, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), entry, count = 0, at;
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	for (at = (uintptr_t)base; at < (uintptr_t)base + size; at += page)
		if (pread(fd, &entry, 8, (off_t)(at / page * 8)) == 8)
			count += entry >> 63;
	close(fd);
	return count;
}

#endif
