/* disk.h - a file on disk as a cache of its pages knows it: which one it is, in
 * which state, and on which machine.
 *
 * (1) A *state* is what a file looks like from outside: its size and its times.
 *     Whoever writes it leaves another one.
 * (2) Times pass in ticks of the kernel: a file that was written a moment ago
 *     may be written again without another time. A state that is *settled* is
 *     older than any tick: whoever writes the file from now on leaves another
 *     one.
 * (3) A machine that loses its power may have brought a file's times to the
 *     disk, and what was written at that time not; the pool, elsewhere, has
 *     both. So a state is one of the machine's present life: what was noted in
 *     an earlier one is another.
 * (4) A file system is known by its device, too: a copy of one that is mounted
 *     beside it (a snapshot) has the same files, inodes and times of birth.
 *
 * Thread: any. */
#ifndef REEF_DISK_H
#define REEF_DISK_H

#include <reef/pages.h>

struct disk_file {
	struct reef_page_file file;
	uint64_t size, mtime_ns, ctime_ns; /* its state */
	uint64_t life;	/* and (3); 0 where its times are another machine's */
	uint32_t mode;	/* as of stat(2) */
	bool is_remote; /* its times are another machine's */
};

/* Look at the file of that path or, where it is "", at the one that is open as
 * fd. False: it has no time of birth, or cannot be looked at. */
bool disk_look(int fd, const char *path, struct disk_file *out);
/* True if the state is settled. (2) */
bool disk_is_settled(const struct disk_file *file);
/* Which machine this is: its own number, else its name. */
void disk_find_machine(uint8_t machine[16]);

#endif
