/* holders.c - processes of this user that hold the memory of nodes. What they
 * have stands in their command lines, as REEF_HOLDER_STATE_FORMAT of
 * node/holder.h says. */
#include "pool/doctor/internal.h"

#include "base/clock.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_SIZE 1024

/* The third word of a process's command line, if it is a holder's; else NULL.
 * line has LINE_SIZE of zeroes. */
static const char *find_state(const struct doctor *doctor, const char *process,
			      char *line)
{
	const char *word = line;

	if (doctor_read(doctor, line, LINE_SIZE, "/proc/%s/cmdline", process))
		return NULL;
	word += strlen(word) + 1;
	if (word >= line + LINE_SIZE || strcmp(word, "hold") != 0)
		return NULL;
	word += sizeof("hold");
	return strncmp(word, "pool ", 5) == 0 ? word : NULL;
}

static void examine_holder(struct doctor *doctor, const char *process)
{
	char line[LINE_SIZE] = "", size[DOCTOR_SIZE_TEXT];
	const char *text = find_state(doctor, process, line);
	uint64_t pool, bytes, since, now = reef_wall_ns() / 1000000000;
	struct reef_finding *finding;
	uint32_t node, extents;
	size_t used;

	if (!text || sscanf(text,
			    "pool %" SCNx64 " node %" SCNu32 " extents %" SCNu32
			    " bytes %" SCNu64 " alone-since %" SCNu64,
			    &pool, &node, &extents, &bytes, &since) != 5)
		return;
	finding = doctor_find(doctor, "holder %s", process);
	doctor_found(finding,
		     "has %s in %u extent%s of node %u of pool %016" PRIx64,
		     doctor_size(bytes, size), extents, extents == 1 ? "" : "s",
		     node, pool);
	used = strlen(finding->found);
	if (since)
		snprintf(finding->found + used, sizeof(finding->found) - used,
			 ", and waits for its next start for %" PRIu64 " s now",
			 now > since ? now - since : 0);
}

void doctor_holders(struct doctor *doctor)
{
	char path[PATH_MAX];
	struct dirent *entry;
	struct stat status;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/proc", doctor->root);
	folder = opendir(path);
	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
		    !fstatat(dirfd(folder), entry->d_name, &status, 0) &&
		    status.st_uid == geteuid())
			examine_holder(doctor, entry->d_name);
	if (folder)
		closedir(folder);
}
