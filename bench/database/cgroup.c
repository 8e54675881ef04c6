/* cgroup.c - finds the controller of memory, and makes groups there. */
#include "bench/database/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PART_MAX (PATH_MAX / 4)
/* Rounds of killing, 10 ms apart: half a minute. */
#define KILL_ROUNDS 3000

static const char *const children[] = {"machine", "pool"};

static int write_file(const char *group, const char *name, const char *text)
{
	char path[PATH_MAX];
	ssize_t size = (ssize_t)strlen(text);
	int fd, rc;

	snprintf(path, sizeof(path), "%.2000s/%s", group, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = write(fd, text, (size_t)size) == size ? 0 : -errno;
	close(fd);
	return rc;
}

/* True if a hierarchy of the second version has the controller of memory. */
static bool has_memory(const char *directory)
{
	char path[PATH_MAX], line[256] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%.2000s/cgroup.controllers", directory);
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	fclose(file);
	return strstr(line, "memory") != NULL;
}

/* Find where groups with a limit of memory are made. */
static int find_controller(char directory[PART_MAX], bool *is_second)
{
	FILE *mounts = setmntent("/proc/self/mounts", "re");
	struct mntent *one;
	int rc = -ENOTSUP;

	while (mounts && rc && (one = getmntent(mounts))) {
		bool first = strcmp(one->mnt_type, "cgroup") == 0 &&
			     hasmntopt(one, "memory");
		bool second = strcmp(one->mnt_type, "cgroup2") == 0 &&
			      has_memory(one->mnt_dir);

		if (!first && !second)
			continue;
		snprintf(directory, PART_MAX, "%s", one->mnt_dir);
		*is_second = second;
		rc = 0;
	}
	if (mounts)
		endmntent(mounts);
	return rc;
}

static int set_limit(const char *group, bool is_second, uint64_t limit)
{
	char text[24];
	int rc;

	snprintf(text, sizeof(text), "%llu", (unsigned long long)limit);
	rc = write_file(group,
			is_second ? "memory.max" : "memory.limit_in_bytes",
			text);
	/* What is over the limit goes, it is not swapped; kernels without swap
	 * have no such file. */
	if (!rc && is_second)
		(void)write_file(group, "memory.swap.max", "0");
	else if (!rc)
		(void)write_file(group, "memory.memsw.limit_in_bytes", text);
	return rc;
}

int cgroup_make(const char *name, uint64_t limit, char *group, size_t size)
{
	char root[PART_MAX], path[PATH_MAX];
	bool is_second = false;
	int rc = find_controller(root, &is_second);

	if (rc)
		return rc;
	if (is_second)
		rc = write_file(root, "cgroup.subtree_control", "+memory");
	if (rc)
		return rc;
	snprintf(group, size, "%s/%s", root, name);
	if (mkdir(group, 0755))
		return -errno;
	if (is_second)
		rc = write_file(group, "cgroup.subtree_control", "+memory");
	for (size_t i = 0; !rc && i < 2; i++) {
		snprintf(path, sizeof(path), "%.2000s/%s", group, children[i]);
		rc = mkdir(path, 0755) ? -errno : 0;
	}
	if (!rc) {
		snprintf(path, sizeof(path), "%.2000s/%s", group, children[0]);
		rc = set_limit(path, is_second, limit);
	}
	if (rc)
		cgroup_end(group);
	return rc;
}

/* Kill what is in a group. False: there was nothing. */
static bool kill_members(const char *group)
{
	char path[PATH_MAX];
	FILE *file;
	bool some = false;
	int pid;

	snprintf(path, sizeof(path), "%.2000s/cgroup.procs", group);
	file = fopen(path, "re");
	while (file && fscanf(file, "%d", &pid) == 1) {
		some = true;
		kill(pid, SIGKILL);
	}
	if (file)
		fclose(file);
	return some;
}

void cgroup_end(const char *group)
{
	const struct timespec moment = {.tv_nsec = 10000000};
	char path[PATH_MAX];

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%.2000s/%s", group, children[i]);
		/* A process that ended is a member until it is gone; so is the
		 * group busy. */
		for (int round = 0; round < KILL_ROUNDS; round++) {
			if (!kill_members(path) &&
			    (!rmdir(path) || errno == ENOENT))
				break;
			nanosleep(&moment, NULL);
		}
	}
	rmdir(group);
}
