/* process.c - see process.h. */
#include "base/system/process.h"

#include "base/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The start is the field of this number in a process's stat; what follows the
 * name, in brackets, begins with the third. */
#define STARTED_FIELD 22

/* Read the beginning of a file as text. */
static int read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;
	int rc;

	if (fd < 0)
		return -errno;
	got = read(fd, text, size - 1);
	rc = got < 0 ? -errno : 0;
	close(fd);
	if (!rc)
		text[got] = 0;
	return rc;
}

/* Read where a link points to. */
static int read_target(const char *path, char *text, size_t size)
{
	ssize_t got = readlink(path, text, size - 1);

	if (got < 0)
		return -errno;
	text[got] = 0;
	return 0;
}

/* True if /proc has the numbers of our own pid namespace. */
static bool is_proc_ours(void)
{
	char self[32], number[32];

	snprintf(number, sizeof(number), "%d", (int)getpid());
	return !read_target("/proc/self", self, sizeof(self)) &&
	       !strcmp(self, number);
}

static int find_place(uint64_t *place)
{
	char boot[64], pids[64], times[64] = "", all[200];
	int size;

	if (!is_proc_ours() ||
	    read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) ||
	    read_target("/proc/self/ns/pid", pids, sizeof(pids)))
		return -ENOTSUP;
	/* Kernels before 5.6 have one time for all. */
	(void)read_target("/proc/self/ns/time", times, sizeof(times));
	size = snprintf(all, sizeof(all), "%s %s %s", boot, pids, times);
	*place = reef_hash(all, (size_t)size, 0);
	return 0;
}

static int find_start(uint32_t pid, uint64_t *started)
{
	char path[32], text[1024], *at;
	int rc, field;

	snprintf(path, sizeof(path), "/proc/%u/stat", pid);
	rc = read_text(path, text, sizeof(text));
	if (rc)
		return rc == -ENOENT ? -ESRCH : rc;
	at = strrchr(text, ')'); /* a name may have brackets, too */
	for (field = 2; at && field < STARTED_FIELD; field++)
		at = strchr(at + 1, ' ');
	if (!at)
		return -ENOTSUP;
	*started = strtoull(at + 1, NULL, 10);
	return *started ? 0 : -ENOTSUP;
}

int reef_process_find(uint32_t pid, struct reef_process *out)
{
	struct reef_process process = {.pid = pid};
	int rc = find_place(&process.place);

	if (!rc)
		rc = find_start(pid, &process.started);
	if (!rc)
		*out = process;
	return rc;
}

/* True if the kernel says of a number that nobody has it, or that who has it
 * has ended and is not yet waited for. */
static bool is_number_free(uint32_t pid)
{
	struct pollfd pollfd = {.events = POLLIN};
	bool ended;

	pollfd.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (pollfd.fd < 0)
		return errno == ESRCH;
	ended = poll(&pollfd, 1, 0) == 1 && pollfd.revents & POLLIN;
	close(pollfd.fd);
	return ended;
}

bool reef_process_has_ended(const struct reef_process *process)
{
	uint64_t place, started;

	if (!process->pid || find_place(&place) || place != process->place)
		return false;
	if (is_number_free(process->pid))
		return true;
	return !find_start(process->pid, &started) &&
	       started != process->started;
}

void reef_process_use(uint64_t *cpu_ns, uint64_t *resident)
{
	struct timespec used = {0};
	unsigned long long pages = 0;
	char text[128];

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	*cpu_ns = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
	if (read_text("/proc/self/statm", text, sizeof(text)) ||
	    sscanf(text, "%*u %llu", &pages) != 1)
		pages = 0;
	*resident = pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
