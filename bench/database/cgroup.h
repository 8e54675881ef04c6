/* cgroup.h - groups of processes with a limit of memory, of either version.
 *
 * Thread: any. */
#ifndef REEF_BENCH_DATABASE_CGROUP_H
#define REEF_BENCH_DATABASE_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/* Make a group of that name, with the groups `machine` (with that limit) and
 * `pool` in it. group: its path.  -ENOTSUP: there is no controller of memory.
 * -EPERM, -EROFS, -EACCES: it may not be used.  -errno. */
int cgroup_make(const char *name, uint64_t limit, char *group, size_t size);
/* Kill all processes in it, until there are none, and remove it. */
void cgroup_end(const char *group);

#endif
