/* pressure.c - how much memory the machine has left, and what to ask back.
 *
 * (1) What can be had is the least of what the kernel reckons available and
 *     what each cgroup above us leaves: its limit, less its use, plus what of
 *     that are file pages the kernel drops when asked.
 * (2) Asking begins below pressure_low and ends at pressure_high, so that it
 *     does not flutter. What is on its way back counts as back. */
#include "pool/node/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATH_MAX_SIZE 4096

/* What version 1 and version 2 of cgroups call the same things. */
struct dialect {
	const char *mount, *limit, *use, *droppable;
};
static const struct dialect version2 = {"/sys/fs/cgroup", "memory.max",
					"memory.current", "inactive_file"};
static const struct dialect version1 = {
	"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	"memory.usage_in_bytes", "total_inactive_file"};

/* Read the number after `name` in a file of lines; an empty name: the first
 * number. False: there is none, as in "max". */
static bool read_number(const char *path, const char *name, uint64_t *out)
{
	FILE *file = fopen(path, "re");
	size_t length = strlen(name);
	bool found = false;
	char line[256], *end;
	uint64_t value;

	if (!file)
		return false;
	while (!found && fgets(line, sizeof(line), file)) {
		if (strncmp(line, name, length) != 0 ||
		    (length && line[length] != ' ' && line[length] != ':'))
			continue;
		value = strtoull(line + length + (length > 0), &end, 10);
		found = end != line + length + (length > 0);
		if (!found)
			break;
		*out = value;
	}
	fclose(file);
	return found;
}

/* Bytes that one group leaves us; UINT64_MAX: it has no limit. */
static uint64_t left_in_group(const char *group, const struct dialect *dialect)
{
	char path[PATH_MAX_SIZE + 64];
	uint64_t limit, use, droppable = 0;

	snprintf(path, sizeof(path), "%s/%s", group, dialect->limit);
	if (!read_number(path, "", &limit))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/%s", group, dialect->use);
	if (!read_number(path, "", &use))
		return UINT64_MAX;
	snprintf(path, sizeof(path), "%s/memory.stat", group);
	read_number(path, dialect->droppable, &droppable);
	use -= droppable < use ? droppable : use;
	return limit > use ? limit - use : 0;
}

/* The least that the group and all groups above it leave us. */
static uint64_t left_in_ancestors(const char *root, const char *group,
				  const struct dialect *dialect)
{
	char path[PATH_MAX_SIZE], *slash;
	uint64_t left, least = UINT64_MAX;
	size_t top;
	int size;

	size = snprintf(path, sizeof(path), "%s%s", root, dialect->mount);
	top = (size_t)size;
	size = snprintf(path + top, sizeof(path) - top, "%s", group);
	if ((size_t)size >= sizeof(path) - top)
		return least;
	for (;;) {
		left = left_in_group(path, dialect);
		least = left < least ? left : least;
		slash = strrchr(path + top, '/');
		if (!slash)
			return least;
		*slash = '\0';
	}
}

/* The least that all our groups leave us. /proc/self/cgroup has lines of
 * "number:controllers:path". */
static uint64_t left_in_cgroups(const char *root)
{
	char line[PATH_MAX_SIZE], *controllers, *group;
	uint64_t left, least = UINT64_MAX;
	const struct dialect *dialect;
	FILE *file;

	snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
	file = fopen(line, "re");
	if (!file)
		return least;
	while (fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		group = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!group)
			continue;
		*group++ = '\0';
		controllers++;
		if (!controllers[0])
			dialect = &version2;
		else if (strstr(controllers, "memory"))
			dialect = &version1;
		else
			continue;
		left = left_in_ancestors(root, group, dialect);
		least = left < least ? left : least;
	}
	fclose(file);
	return least;
}

uint64_t node_available(const char *root)
{
	uint64_t kib, left = UINT64_MAX, in_groups;
	char path[PATH_MAX_SIZE];

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	if (read_number(path, "MemAvailable", &kib))
		left = kib << 10;
	in_groups = left_in_cgroups(root);
	return in_groups < left ? in_groups : left;
}

uint64_t node_wanted(struct reef_node *node, uint64_t available)
{
	const struct reef_node_options *options = &node->options;
	uint64_t soon, wanted, most = node->lent - node->going;

	if (!options->pressure_low)
		return 0;
	soon = available < UINT64_MAX - node->going ? available + node->going
						    : UINT64_MAX;
	if (soon < options->pressure_low)
		node->short_of_memory = true;
	else if (soon >= options->pressure_high)
		node->short_of_memory = false;
	if (!node->short_of_memory)
		return 0;
	wanted = options->pressure_high - soon;
	return wanted < most ? wanted : most;
}
