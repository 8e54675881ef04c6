/* kept.c - what nodes and spaces have left on the disk: images (image.h) in the
 * data directory, which node/keep_image.h and `reef saver` write; and sockets
 * of holders. */
#include "pool/doctor/internal.h"

#include "base/clock.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define SECOND UINT64_C(1000000000)

/* The room that a file takes, and how long ago it was written. */
static bool look_at(const char *folder, const char *name, uint64_t *bytes,
		    uint64_t *age)
{
	uint64_t now = reef_wall_ns() / SECOND;
	char path[PATH_MAX];
	struct stat status;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) >=
		    sizeof(path) ||
	    lstat(path, &status))
		return false;
	*bytes = (uint64_t)status.st_blocks * 512;
	*age = now > (uint64_t)status.st_mtime ? now - (uint64_t)status.st_mtime
					       : 0;
	return true;
}

/* The image of a node, in `node-NUMBER`. */
static void examine_node(struct doctor *doctor, const char *folder,
			 const char *name)
{
	char size[DOCTOR_SIZE_TEXT];
	struct reef_finding *finding;
	uint64_t bytes, age, ignored;
	bool is_clean = look_at(folder, "clean", &ignored, &ignored);

	if (!look_at(folder, "image", &bytes, &age)) {
		if (!is_clean)
			return;
		finding = doctor_find(doctor, "image of %s", name);
		doctor_found(finding, "%s: gone, but marked as clean", folder);
		doctor_judge(finding, REEF_VERDICT_PROBLEM,
			     "the node does not start; bring the file `image` "
			     "back, or give its memory up");
		doctor_command(finding, "rm %s/clean", folder);
		return;
	}
	finding = doctor_find(doctor, "image of %s", name);
	doctor_found(finding, "%s/image: %s, of %" PRIu64 " s ago; %s", folder,
		     doctor_size(bytes, size), age,
		     is_clean ? "the next start reads it"
			      : "of before the last start, so nobody reads it; "
				"the next one takes its place");
}

/* What `reef saver` has of one pool. */
static void examine_saved(struct doctor *doctor, const char *folder,
			  const char *pool)
{
	uint64_t bytes, age, all = 0, oldest = 0;
	char size[DOCTOR_SIZE_TEXT];
	struct reef_finding *finding;
	uint32_t images = 0, backs = 0;
	struct dirent *entry;
	const char *ending;
	DIR *stream = opendir(folder);

	while (stream && (entry = readdir(stream))) {
		ending = strrchr(entry->d_name, '.');
		if (entry->d_name[0] == '.' || !ending ||
		    !look_at(folder, entry->d_name, &bytes, &age))
			continue;
		all += bytes;
		backs += !strcmp(ending, ".back");
		if (strcmp(ending, ".image") != 0)
			continue;
		images++;
		oldest = age > oldest ? age : oldest;
	}
	if (stream)
		closedir(stream);
	if (!images && !backs)
		return;
	finding = doctor_find(doctor, "saved spaces of pool %s", pool);
	doctor_found(finding,
		     "%s: %u image%s, %s, the oldest of %" PRIu64 " s ago",
		     folder, images, images == 1 ? "" : "s",
		     doctor_size(all, size), oldest);
	if (!backs)
		return;
	doctor_judge(finding, REEF_VERDICT_WARN,
		     "a space was dropped to go back to its image, or has not "
		     "been saved since; the next start with --save-every sees "
		     "to it");
	doctor_command(finding, "reef space restore %s/NAME.image", folder);
}

/* Look at each folder in one whose name begins like that. */
static void each_folder(struct doctor *doctor, const char *folder,
			const char *begin,
			void (*examine)(struct doctor *doctor,
					const char *folder, const char *name))
{
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *stream = opendir(folder);

	while (stream && (entry = readdir(stream)))
		if (entry->d_name[0] != '.' &&
		    !strncmp(entry->d_name, begin, strlen(begin)) &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", folder,
				     entry->d_name) < sizeof(path))
			examine(doctor, path, entry->d_name);
	if (stream)
		closedir(stream);
}

void doctor_kept(struct doctor *doctor)
{
	const char *data = doctor->settings->data;
	char saved[PATH_MAX];

	if (!data || (size_t)snprintf(saved, sizeof(saved), "%s/saved", data) >=
			     sizeof(saved))
		return;
	each_folder(doctor, data, "node-", examine_node);
	each_folder(doctor, saved, "", examine_saved);
}
