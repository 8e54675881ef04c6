/* disk.c - see disk.h. */
#include "integrations/disk/disk.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
/* Longer than a tick of any clock that files have: (2). */
#define TICK_NS UINT64_C(50000000)
#define TICK_SECONDS_NS UINT64_C(3000000000)

/* --- file systems --- */

/* Times of files of these are not this machine's. */
static bool is_remote(const struct statfs *of)
{
	static const unsigned kinds[] = {0x6969,     0xff534d42, 0xfe534d42,
					 0x65735546, 0x01021997, 0x00c36400,
					 0x517b,     0x5346414f};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if ((unsigned)of->f_type == kinds[i])
			return true;
	return false;
}

/* What a file system is known by. The last one that a thread asked for is
 * remembered: a program's files are mostly on one. */
struct filesystem {
	uint64_t device; /* 0: none */
	uint8_t id[16];
	bool is_remote;
};
static _Thread_local struct filesystem last;

static bool find_filesystem(int fd, const char *path, const struct statx *stat,
			    struct filesystem *out)
{
	uint64_t device =
		(uint64_t)stat->stx_dev_major << 32 | stat->stx_dev_minor;
	struct statfs of;
	uint32_t number;
	int rc;

	if (last.device == device && device) {
		*out = last;
		return true;
	}
	rc = *path ? statfs(path, &of) : fstatfs(fd, &of);
	if (rc)
		return false;
	*out = (struct filesystem){.device = device,
				   .is_remote = is_remote(&of)};
	memcpy(out->id, &of.f_fsid, sizeof(of.f_fsid));
	memcpy(out->id + 8, &of.f_type, 4);
	/* A copy of a disk, mounted beside it, has the same of all else. */
	if (!out->is_remote) {
		number = stat->stx_dev_major << 20 ^ stat->stx_dev_minor;
		memcpy(out->id + 12, &number, sizeof(number));
	}
	last = *out;
	return true;
}

/* --- the machine's life --- */

static uint64_t find_life(void)
{
	static _Atomic uint64_t known;
	uint64_t life = atomic_load(&known);
	char text[64] = "";
	FILE *file;

	if (life)
		return life;
	file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file && fgets(text, sizeof(text), file))
		for (const char *at = text; *at; at++)
			life = (life ^ (uint8_t)*at) * UINT64_C(0x100000001b3);
	if (file)
		fclose(file);
	life |= 1;
	atomic_store(&known, life);
	return life;
}

/* --- files --- */

static uint64_t time_of(const struct statx_timestamp *time)
{
	return (uint64_t)time->tv_sec * SECOND_NS + time->tv_nsec;
}

bool disk_look(int fd, const char *path, struct disk_file *out)
{
	struct filesystem of;
	struct statx stat;

	if (statx(*path ? AT_FDCWD : fd, path, *path ? 0 : AT_EMPTY_PATH,
		  STATX_BASIC_STATS | STATX_BTIME, &stat) ||
	    !(stat.stx_mask & STATX_BTIME))
		return false;
	*out = (struct disk_file){
		.file = {.inode = stat.stx_ino,
			 .born_ns = time_of(&stat.stx_btime)},
		.size = stat.stx_size,
		.mtime_ns = time_of(&stat.stx_mtime),
		.ctime_ns = time_of(&stat.stx_ctime),
		.mode = stat.stx_mode,
	};
	if (!S_ISREG(out->mode))
		return true;
	if (!find_filesystem(fd, path, &stat, &of))
		return false;
	memcpy(out->file.filesystem, of.id, sizeof(of.id));
	out->is_remote = of.is_remote;
	out->life = of.is_remote ? 0 : find_life();
	return true;
}

bool disk_is_settled(const struct disk_file *file)
{
	uint64_t tick = file->is_remote || !(file->mtime_ns % SECOND_NS)
				? TICK_SECONDS_NS
				: TICK_NS;
	uint64_t now_ns, last_ns = file->mtime_ns;
	struct timespec now;

	clock_gettime(CLOCK_REALTIME_COARSE, &now);
	now_ns = (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
	if (file->ctime_ns > last_ns)
		last_ns = file->ctime_ns;
	return now_ns > last_ns && now_ns - last_ns > tick;
}

/* --- the machine --- */

void disk_find_machine(uint8_t machine[16])
{
	char text[64] = "";
	unsigned byte;
	FILE *file = fopen("/etc/machine-id", "re");
	bool is_there = file && fgets(text, sizeof(text), file);

	if (file)
		fclose(file);
	for (int i = 0; i < 16 && is_there; i++) {
		is_there = sscanf(text + 2 * i, "%2x", &byte) == 1;
		machine[i] = (uint8_t)byte;
	}
	if (is_there)
		return;
	memset(machine, 0, 16);
	gethostname(text, sizeof(text) - 1);
	memcpy(machine, text, strnlen(text, 15) + 1);
}
