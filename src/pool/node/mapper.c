/* mapper.c - see mapper.h. */
#include "pool/node/mapper.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* What tells a file from others. */
struct identity {
	dev_t device;
	uint64_t inode;
};

long mapper_process(int pidfd)
{
	char path[64], line[128];
	long pid = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %ld", &pid) == 1)
			break;
	if (file)
		fclose(file);
	return pid;
}

bool mapper_has_ended(int pidfd)
{
	struct pollfd one = {.fd = pidfd, .events = POLLIN};

	return poll(&one, 1, 0) > 0;
}

static bool is_among(const struct identity *files, uint32_t count, dev_t device,
		     uint64_t inode)
{
	for (uint32_t i = 0; i < count; i++)
		if (files[i].device == device && files[i].inode == inode)
			return true;
	return false;
}

/* True if a line of the process's list of mappings names one of the files. */
static bool has_mapped(long process, const struct identity *files,
		       uint32_t count)
{
	char path[64], line[512];
	unsigned int high, low;
	bool found = false;
	uint64_t inode;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%ld/maps", process);
	file = fopen(path, "re");
	if (!file)
		return true;
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &high, &low,
			       &inode) == 3 &&
			is_among(files, count, makedev(high, low), inode);
	fclose(file);
	return found;
}

bool mapper_has(int pidfd, const int *fds, uint32_t count)
{
	struct identity *files = calloc(count + 1, sizeof(*files));
	struct stat status;
	bool has;

	if (!files)
		return true;
	for (uint32_t i = 0; i < count; i++)
		if (fds[i] >= 0 && !fstat(fds[i], &status))
			files[i] =
				(struct identity){status.st_dev, status.st_ino};
	has = has_mapped(mapper_process(pidfd), files, count);
	free(files);
	return has;
}

void mapper_kill(int pidfd)
{
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
}
