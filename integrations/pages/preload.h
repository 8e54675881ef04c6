/* preload.h - the parts of reef_pages.so, which `reef pages` has its command
 * load before all other libraries: it stands before libc's calls on files.
 *
 *   preload.c  begins, ends; what the environment says
 *   read.c     calls that read, which come by the pool
 *   write.c    calls that write at a place, or anywhere
 *   other.c    calls that open, map, or write without being seen
 *   next.c     libc's own functions
 *
 * (1) A call that changes a file is told before and after (through.h), or turns
 *     the cache off for that file: where libc writes by itself (stdio), another
 *     thread does (aio), or memory does (mmap).
 * (2) Rings of io_uring and contexts of io_submit cannot be looked into: there
 *     are none here, as on a kernel without them (ENOSYS).
 * (3) The position of a file, which read(2) has, is read and set in two steps
 *     here. So read(2) comes by the pool only where this process opened the
 *     file, and has not passed it on to another.
 * (4) vfork(2) is fork(2) here: a child that runs in our memory would change
 *     what we know.
 * (5) A program may close descriptors that are not its own, all of them at
 * once: then the pool is left first, so that its library does not go on with
 *     numbers that are something else by now; and what it has opened since
 *     joining is watched, as far as the eight bytes of an eventfd go.
 *
 * Thread: any; any signal's handler. */
#ifndef REEF_PRELOAD_H
#define REEF_PRELOAD_H

#include "integrations/disk/through.h"

#include <stdio.h>
#include <sys/types.h>
#include <sys/uio.h>

#define OWNED_MAX 65536u /* descriptors that are looked after */
#define EXPORT __attribute__((visibility("default")))

/* libc's own function of that name. */
void *next_function(const char *name);
#define NEXT(name)                                                             \
	static _Atomic(void *) next_##name;                                    \
	__typeof__(name) *call_##name =                                        \
		(__typeof__(name) *)atomic_load(&next_##name);                 \
	if (!call_##name) {                                                    \
		call_##name = (__typeof__(name) *)next_function(#name);        \
		atomic_store(&next_##name, (void *)call_##name);               \
	}

/* True once the environment was read, and says that there is something to do.
 */
bool preload_is_on(void);

/* (5): true if that is the library's own, and the file is none of its. */
bool preload_is_stray(int fd, size_t size);

/* True if a request of ioctl(2) may change a file. */
bool preload_ioctl_changes(unsigned long request);

/* Look at the standard descriptors, which others have opened: (1). */
void preload_begin(void);

/* (3): this process opened the file; it may be another's too, with all it has;
 * the number is another file's. */
void preload_own(int fd, bool is_own);
bool preload_owns(int fd);
void preload_share_all(void);

#endif
