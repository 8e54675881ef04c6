/* page_churn.c - page_churn FILE LOCKS SEED [told]: one of several processes
 * that read and write the pages of a file at random, under `reef pages`, and
 * compare what they read with the file itself, which they see mapped; until
 * SIGTERM. told: only by writes of which the pool is told.
 *
 * Locks of fcntl(2) on another file keep a page still while it is compared;
 * they end with whoever dies. */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 8192
#define PAGES 256
#define SIZE (PAGE * PAGES)
#define SPAN 4 /* pages of one call at most */

static uint64_t seed;
static uint32_t ways = 512;
static volatile sig_atomic_t is_over;

static void end(int number)
{
	(void)number;
	is_over = 1;
}

static uint32_t dice(uint32_t sides)
{
	seed = seed * UINT64_C(6364136223846793005) +
	       UINT64_C(1442695040888963407);
	return (uint32_t)(seed >> 33) % sides;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(2);
}

static bool lock(int fd, short type, uint32_t first, uint32_t count)
{
	struct flock range = {.l_type = type,
			      .l_whence = SEEK_SET,
			      .l_start = first,
			      .l_len = count};

	return !fcntl(fd, F_SETLK, &range);
}

static void change(int fd, uint32_t first, uint32_t count)
{
	static char bytes[SPAN * PAGE];
	size_t at = (size_t)first * PAGE, size = (size_t)count * PAGE;
	uint32_t way = dice(ways), skip = 0;
	ssize_t done;

	memset(bytes, (int)dice(256), size);
	memcpy(bytes, &seed, sizeof(seed));
	if (way < 96) { /* a part */
		skip = dice((uint32_t)size - 1);
		size = 1 + dice((uint32_t)size - skip);
	}
	if (way == 511) {
		done = lseek(fd, (off_t)at, SEEK_SET) < 0
			       ? -1
			       : write(fd, bytes, size);
	} else if (way == 510) {
		done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)at, (off_t)size)
			       ? -1
			       : (ssize_t)size;
	} else {
		done = pwrite(fd, bytes, size, (off_t)(at + skip));
	}
	if (done != (ssize_t)size)
		fail("write");
}

/* How many of its pages are not what is on disk. */
static int compare(int fd, const char *map, uint32_t first, uint32_t count)
{
	static char bytes[SPAN * PAGE];
	size_t size = (size_t)count * PAGE, at = (size_t)first * PAGE;

	if (pread(fd, bytes, size, (off_t)at) != (ssize_t)size)
		fail("read");
	if (!memcmp(bytes, map + at, size))
		return 0;
	fprintf(stderr, "%u pages from %u on are not what is on disk\n", count,
		first);
	return 1;
}

int main(int argc, char **argv)
{
	int fd, other, locks;
	uint32_t reads = 0, writes = 0, first, count;
	char *map;

	if (argc < 4)
		return 2;
	if (argc > 4) /* who is killed in any other leaves it uncached */
		ways = 510;
	seed = strtoull(argv[3], NULL, 10);
	signal(SIGTERM, end);
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	other = open(argv[1], O_RDONLY | O_CLOEXEC);
	locks = open(argv[2], O_RDWR | O_CLOEXEC);
	if (fd < 0 || other < 0 || locks < 0)
		fail("open");
	/* From a descriptor that cannot write, so that it is cached. */
	map = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, other, 0);
	if (map == MAP_FAILED)
		fail("mmap");
	while (!is_over) {
		bool writes_it = dice(4) == 0;

		count = 1 + dice(SPAN);
		first = dice(PAGES - SPAN);
		if (!lock(locks, writes_it ? F_WRLCK : F_RDLCK, first, count))
			continue;
		if (writes_it)
			change(fd, first, count);
		else if (compare(fd, map, first, count))
			return 1;
		writes += writes_it;
		reads += !writes_it;
		lock(locks, F_UNLCK, first, count);
	}
	printf("%u reads, %u writes\n", reads, writes);
	return 0;
}
