/* test_memory.c - memory that can be lent, and its hygiene. */
#include "fabric/memory.h"

#include "fixture/pagemap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static struct reef_memory *make_memfd(uint64_t size)
{
	struct reef_memory_options options = {.size = size};
	struct reef_memory *memory;

	assert_int_equal(reef_memory_create(&options, &memory), 0);
	return memory;
}

static void memory_memfd_is_zeroed_and_rounded_up(void **state)
{
	struct reef_memory *memory = make_memfd(4097);
	uint64_t i;

	(void)state;
	assert_int_equal(memory->size, 8192);
	assert_false(memory->durable);
	assert_int_equal(memory->domain, reef_domain_cpu());
	for (i = 0; i < memory->size; i++)
		assert_int_equal(((uint8_t *)memory->base)[i], 0);
	reef_memory_destroy(memory);
}

static void memory_memfd_needs_no_faults(void **state)
{
	struct reef_memory *memory;

	(void)state;
	if (!pagemap_works())
		skip();
	memory = make_memfd(1 << 20);
	assert_int_equal(pagemap_count(memory->base, 1 << 20), 256);
	reef_memory_destroy(memory);
}

static void memory_memfd_resize_is_refused(void **state)
{
	struct reef_memory *memory = make_memfd(65536);
	struct stat stat;

	(void)state;
	assert_int_equal(ftruncate(memory->fd, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(memory->fd, 1 << 20), -1);
	assert_int_equal(errno, EPERM);
	/* Nor can more seals be added, which would stop the others' writes. */
	assert_int_equal(fcntl(memory->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE),
			 -1);
	assert_int_equal(fstat(memory->fd, &stat), 0);
	assert_int_equal(stat.st_size, 65536);
	/* Every page was taken already. */
	assert_true(stat.st_blocks * 512 >= 65536);
	reef_memory_destroy(memory);
}

static void memory_memfd_is_private_and_closes_on_exec(void **state)
{
	struct reef_memory *memory = make_memfd(4096);
	struct stat stat;

	(void)state;
	assert_int_equal(fstat(memory->fd, &stat), 0);
	assert_int_equal(stat.st_mode & 07777, 0400);
	assert_int_equal(fcntl(memory->fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	reef_memory_destroy(memory);
}

static void memory_memfd_reopened_by_another_user_is_refused(void **state)
{
	struct reef_memory *memory;
	char path[64], open_path[64];
	int status, open_fd;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	memory = make_memfd(4096);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	/* One that anybody may open shows that only the mode refuses. */
	open_fd = memfd_create("open", MFD_CLOEXEC);
	assert_int_equal(fchmod(open_fd, 0666), 0);
	snprintf(open_path, sizeof(open_path), "/proc/self/fd/%d", open_fd);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(77);
		/* or /proc would refuse everything */
		if (prctl(PR_SET_DUMPABLE, 1) || open(open_path, O_RDWR) < 0)
			_exit(77);
		if (open(path, O_RDWR) >= 0)
			_exit(1);
		_exit(errno == EACCES ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	close(open_fd);
	if (WEXITSTATUS(status) != 77)
		assert_int_equal(WEXITSTATUS(status), 0);
	reef_memory_destroy(memory);
}

/* In the child the range must not be there: mincore says ENOMEM. */
static void memory_forked_child_has_no_mapping(void **state)
{
	struct reef_memory *memory = make_memfd(4096);
	unsigned char resident;
	int status;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		if (!mincore(memory->base, 4096, &resident))
			_exit(1);
		if (errno != ENOMEM)
			_exit(2);
		/* Something else of the child's may lie there by then, and
		 * must survive. */
		if (mmap(memory->base, 4096, PROT_READ,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
			 0) != memory->base)
			_exit(3);
		resident = *(unsigned char *)memory->base;
		void *base = memory->base;
		reef_memory_destroy(memory);
		_exit(mincore(base, 4096, &resident) ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	reef_memory_destroy(memory);
}

static void memory_bad_sizes_are_refused(void **state)
{
	struct reef_memory_options options = {.size = 0};
	struct reef_memory *memory = NULL;
	int rc;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), -EINVAL);
	options.size = (1ull << 47) + 1;
	assert_int_equal(reef_memory_create(&options, &memory), -EINVAL);
	/* More than any machine has: an error, not the kernel's killer. */
	options.size = 1ull << 46;
	rc = reef_memory_create(&options, &memory);
	assert_true(rc == -ENOMEM || rc == -ENOSPC);
	options = (struct reef_memory_options){
		.size = 4096,
		.backing = REEF_BACKING_FILE,
	};
	assert_int_equal(reef_memory_create(&options, &memory), -EINVAL);
	assert_null(memory);
}

static void memory_huge_pages_fall_back(void **state)
{
	struct reef_memory_options options = {
		.size = 4096,
		.huge_pages = true,
	};
	struct reef_memory *memory;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_int_equal(memory->size, memory->huge ? 2 << 20 : 4096);
	memset(memory->base, 1, memory->size);
	reef_memory_destroy(memory);
}

/* How much of a mapping is in transparent huge pages, in KiB. */
static unsigned huge_kib(const void *base)
{
	FILE *file = fopen("/proc/self/smaps", "re");
	unsigned long long begin, end;
	unsigned kib = 0, found;
	bool inside = false;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%llx-%llx ", &begin, &end) == 2)
			inside = begin <= (uintptr_t)base &&
				 (uintptr_t)base < end;
		else if (inside &&
			 sscanf(line, "ShmemPmdMapped: %u kB", &found) == 1)
			kib = found;
	}
	if (file)
		fclose(file);
	return kib;
}

#define SEVERAL (8u << 20) /* huge pages; at least three, wherever it lies */

/* What this machine gives now to who only asks. */
static unsigned huge_kib_at_hand(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);
	unsigned kib;
	void *base;

	assert_int_equal(ftruncate(fd, SEVERAL), 0);
	base = mmap(NULL, SEVERAL, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(base, MAP_FAILED);
	madvise(base, SEVERAL, MADV_HUGEPAGE);
	reef_memory_populate(base, SEVERAL);
	kib = huge_kib(base);
	munmap(base, SEVERAL);
	close(fd);
	return kib;
}

/* Also in a second mapping, as of whoever attaches to it. */
static void memory_has_transparent_huge_pages_where_there_are_any(void **state)
{
	struct reef_memory_options options = {.size = SEVERAL};
	unsigned before = huge_kib_at_hand(), first, second;
	struct reef_memory *memory;
	void *map;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	map = mmap(NULL, SEVERAL, PROT_READ | PROT_WRITE, MAP_SHARED,
		   memory->fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	madvise(map, SEVERAL, MADV_HUGEPAGE);
	reef_memory_populate(map, SEVERAL);
	first = huge_kib(memory->base);
	second = huge_kib(map);
	((char *)memory->base)[SEVERAL - 1] = 7;
	assert_int_equal(((char *)map)[SEVERAL - 1], 7);
	munmap(map, SEVERAL);
	reef_memory_destroy(memory);
	/* If none are free, or shared memory may not have them, small ones do.
	 */
	if (!before || !huge_kib_at_hand())
		return;
	assert_true(first > 0);
	assert_true(second > 0);
}

/* Neither the descriptor, nor the same opened anew by its owner, nor a mapping
 * made for reading: only the first mapping writes. */
static void memory_read_only_memfd_is_written_by_its_owner_only(void **state)
{
	struct reef_memory_options options = {.size = 8192, .read_only = true};
	int protection = PROT_READ | PROT_WRITE, fd;
	struct reef_memory *memory;
	char path[64];
	uint8_t *map;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_true(memory->read_only);
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, memory->fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	memset(memory->base, 5, 8192);
	assert_int_equal(map[8191], 5);
	assert_int_equal(mprotect(map, 8192, protection), -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", memory->fd);
	assert_int_equal(fchmod(memory->fd, 0600), 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_ptr_equal(mmap(NULL, 8192, protection, MAP_SHARED, fd, 0),
			 MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, 4096),
			 -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(map[0], 5);
	close(fd);
	munmap(map, 8192);
	reef_memory_destroy(memory);
}

/* What somebody has who may only read: nothing made of it writes, while the
 * owner's mapping goes on to. */
static void memory_reader_cannot_write(void **state)
{
	struct reef_memory_options options = {.size = 8192};
	int protection = PROT_READ | PROT_WRITE, fd;
	struct reef_memory *memory;
	uint8_t *map;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	fd = reef_memory_open_reader(memory);
	assert_true(fd >= 0 && fd != memory->fd);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	map = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map, 8192, protection), -1);
	assert_int_equal(errno, EACCES);
	assert_ptr_equal(mmap(NULL, 8192, protection, MAP_SHARED, fd, 0),
			 MAP_FAILED);
	assert_int_equal(errno, EACCES);
	assert_int_equal(pwrite(fd, "x", 1, 0), -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, 4096),
			 -1);
	assert_int_equal(errno, EBADF);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_true(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
	memset(memory->base, 5, 8192);
	assert_int_equal(map[8191], 5);
	close(fd);
	munmap(map, 8192);
	reef_memory_destroy(memory);
}

/* What somebody kept is not what the copy is, and is empty once the memory that
 * it was passed from is destroyed. */
static void memory_copy_is_out_of_reach(void **state)
{
	struct reef_memory_options options = {.size = 1 << 20};
	struct reef_memory_options smaller = {.size = 4096};
	struct reef_memory *memory, *copy;
	struct stat stat;
	uint8_t *kept;
	int fd;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_false(memory->passed);
	memset(memory->base, 5, memory->size);
	fd = dup(memory->fd);
	kept = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(kept, MAP_FAILED);
	memory->passed = true;
	assert_int_equal(reef_memory_copy(&smaller, memory, &copy), -EINVAL);
	assert_int_equal(reef_memory_copy(&options, memory, &copy), 0);
	assert_false(copy->passed);
	assert_int_equal(kept[0], 5);
	memset(kept, 6, 1 << 20);
	assert_int_equal(((uint8_t *)copy->base)[0], 5);
	assert_memory_equal(copy->base, (uint8_t *)copy->base + 1,
			    copy->size - 1);
	reef_memory_destroy(memory);
	assert_int_equal(fstat(fd, &stat), 0);
	assert_int_equal(stat.st_blocks, 0);
	assert_int_equal(kept[0], 0);
	munmap(kept, 1 << 20);
	close(fd);
	reef_memory_destroy(copy);
}

static void make_directory(char *directory, size_t size)
{
	snprintf(directory, size, "/tmp/reef-test-memory-XXXXXX");
	assert_non_null(mkdtemp(directory));
}

static void memory_file_flushed_survives_reopening(void **state)
{
	char directory[64], path[128];
	struct reef_memory_options options = {
		.size = 10000,
		.backing = REEF_BACKING_FILE,
		.path = path,
	};
	struct reef_memory *memory;
	struct stat stat;

	(void)state;
	make_directory(directory, sizeof(directory));
	snprintf(path, sizeof(path), "%s/extent", directory);
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_true(memory->durable);
	assert_int_equal(memory->size, 12288);
	assert_int_equal(fstat(memory->fd, &stat), 0);
	assert_int_equal(stat.st_mode & 07777, 0600);
	memcpy((char *)memory->base + 5000, "kept", 5);
	assert_int_equal(reef_memory_flush(memory, 5000, 5), 0);
	assert_int_equal(reef_memory_flush(memory, 12288, 0), 0);
	assert_int_equal(reef_memory_flush(memory, 12288, 1), -ERANGE);
	assert_int_equal(reef_memory_flush(memory, UINT64_MAX, 2), -ERANGE);
	reef_memory_destroy(memory);
	/* A larger one keeps what was there and adds zeros. */
	options.size = 20480;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_string_equal((char *)memory->base + 5000, "kept");
	assert_int_equal(((char *)memory->base)[20479], 0);
	reef_memory_destroy(memory);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(directory), 0);
}

static void memory_file_that_is_no_file_is_refused(void **state)
{
	struct reef_memory_options options = {
		.size = 4096,
		.backing = REEF_BACKING_FILE,
		.path = "/dev/zero",
	};
	struct reef_memory *memory;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), -EINVAL);
	options.path = "/nonexistent/extent";
	assert_int_equal(reef_memory_create(&options, &memory), -ENOENT);
}

static void memory_dax_without_device_is_refused(void **state)
{
	char directory[64], path[128];
	struct reef_memory_options options = {
		.size = 4096,
		.backing = REEF_BACKING_DAX,
		.path = path,
	};
	struct reef_memory *memory;
	int rc;

	(void)state;
	make_directory(directory, sizeof(directory));
	snprintf(path, sizeof(path), "%s/extent", directory);
	rc = reef_memory_create(&options, &memory);
	if (!rc) { /* a machine that has persistent memory under /tmp */
		assert_true(memory->durable);
		reef_memory_destroy(memory);
		assert_int_equal(unlink(path), 0);
	} else {
		assert_int_equal(rc, -EOPNOTSUPP);
		assert_int_equal(access(path, F_OK), -1); /* nothing left */
	}
	assert_int_equal(rmdir(directory), 0);
}

static void memory_flush_without_backing_is_refused(void **state)
{
	struct reef_memory *memory = make_memfd(4096);

	(void)state;
	assert_int_equal(reef_memory_flush(memory, 0, 8), -REEF_ENOTDURABLE);
	reef_memory_destroy(memory);
	reef_memory_destroy(NULL);
}

static void memory_simulated_has_no_descriptor(void **state)
{
	struct reef_memory_options options = {
		.size = 100,
		.backing = REEF_BACKING_SIMULATED,
		.domain = 7,
		.durable = true,
	};
	struct reef_memory *memory;

	(void)state;
	assert_int_equal(reef_memory_create(&options, &memory), 0);
	assert_int_equal(memory->fd, -1);
	assert_int_equal(memory->domain, 7);
	assert_true(memory->durable);
	assert_int_equal(((uint8_t *)memory->base)[4095], 0);
	reef_memory_destroy(memory);
}

static void memory_domain_is_the_same_in_every_process(void **state)
{
	uint64_t here = reef_domain_cpu(), there = 0;
	int ends[2], status;
	pid_t pid;

	(void)state;
	assert_true(here != 0);
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		there = reef_domain_cpu();
		_exit(write(ends[1], &there, 8) == 8 ? 0 : 1);
	}
	assert_int_equal(read(ends[0], &there, 8), 8);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(here, there);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_memfd_is_zeroed_and_rounded_up),
		cmocka_unit_test(memory_memfd_needs_no_faults),
		cmocka_unit_test(memory_memfd_resize_is_refused),
		cmocka_unit_test(memory_memfd_is_private_and_closes_on_exec),
		cmocka_unit_test(
			memory_memfd_reopened_by_another_user_is_refused),
		cmocka_unit_test(memory_forked_child_has_no_mapping),
		cmocka_unit_test(memory_bad_sizes_are_refused),
		cmocka_unit_test(memory_huge_pages_fall_back),
		cmocka_unit_test(
			memory_has_transparent_huge_pages_where_there_are_any),
		cmocka_unit_test(
			memory_read_only_memfd_is_written_by_its_owner_only),
		cmocka_unit_test(memory_reader_cannot_write),
		cmocka_unit_test(memory_copy_is_out_of_reach),
		cmocka_unit_test(memory_file_flushed_survives_reopening),
		cmocka_unit_test(memory_file_that_is_no_file_is_refused),
		cmocka_unit_test(memory_dax_without_device_is_refused),
		cmocka_unit_test(memory_flush_without_backing_is_refused),
		cmocka_unit_test(memory_simulated_has_no_descriptor),
		cmocka_unit_test(memory_domain_is_the_same_in_every_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
