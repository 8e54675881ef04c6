/* tables.c - tables of `reef pages` that nobody uses any more: who is killed
 * leaves its own behind (integrations/disk/table.h). Whoever uses one has a
 * lock on it. None is taken here to find out: who comes first would not know
 * that it is, and would believe what is in there. */
#include "pool/doctor/internal.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SMALL (64u << 10) /* as the last leaves it that is not killed */

/* True if somebody has a lock on a file. */
static bool is_locked(const struct doctor *doctor, const struct stat *file)
{
	char path[PATH_MAX], line[256], wanted[64];
	bool is_found = false;
	FILE *locks;

	snprintf(path, sizeof(path), "%s/proc/locks", doctor->root);
	snprintf(wanted, sizeof(wanted), " %02x:%02x:%llu ",
		 major(file->st_dev), minor(file->st_dev),
		 (unsigned long long)file->st_ino);
	locks = fopen(path, "re");
	/* Nobody knows. */
	if (!locks)
		return true;
	while (!is_found && fgets(line, sizeof(line), locks))
		is_found = strstr(line, wanted) != NULL;
	fclose(locks);
	return is_found;
}

void doctor_tables(struct doctor *doctor)
{
	char path[PATH_MAX], prefix[40], size[DOCTOR_SIZE_TEXT];
	char names[REEF_FINDING_TEXT_SIZE] = "";
	struct reef_finding *finding;
	struct dirent *entry;
	struct stat file;
	uint64_t bytes = 0;
	uint32_t count = 0;
	size_t used = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/dev/shm", doctor->root);
	snprintf(prefix, sizeof(prefix), "reef-pages-2-%u-",
		 (unsigned)geteuid());
	folder = opendir(path);
	while (folder && (entry = readdir(folder))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
		    fstatat(dirfd(folder), entry->d_name, &file, 0) ||
		    file.st_blocks * 512 <= SMALL || is_locked(doctor, &file))
			continue;
		count++;
		bytes += (uint64_t)file.st_blocks * 512;
		if (used + strlen(entry->d_name) + 16 < sizeof(names))
			used += (size_t)snprintf(names + used,
						 sizeof(names) - used,
						 " /dev/shm/%s", entry->d_name);
	}
	if (folder)
		closedir(folder);
	if (!count)
		return;
	finding = doctor_find(doctor, "tables");
	doctor_found(finding, "%u of `reef pages` that nobody uses have %s",
		     count, doctor_size(bytes, size));
	doctor_judge(finding, REEF_VERDICT_WARN,
		     "programs that were killed, or ended by _exit(2) as dash "
		     "does, left them in memory; the next ones use them "
		     "again");
	doctor_command(finding, "rm%s", names);
}
