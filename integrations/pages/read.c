/* read.c - calls that read, which come by the pool. */
#include "integrations/pages/preload.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static bool try_read(int fd, void *to, size_t size, off_t at, ssize_t *got)
{
	return preload_is_on() && at >= 0 &&
	       through_read(fd, to, size, (uint64_t)at, got);
}

/* read(2), where its position is this process's alone: (3) of preload.h. */
static bool try_read_here(int fd, void *to, size_t size, ssize_t *got)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int before = errno;
	bool is_done = false;
	off_t at;

	if (!preload_is_on() || !preload_owns(fd) ||
	    pthread_mutex_trylock(&lock))
		return false;
	at = lseek(fd, 0, SEEK_CUR);
	if (at >= 0 && try_read(fd, to, size, at, got)) {
		is_done = true;
		if (*got)
			lseek(fd, at + *got, SEEK_SET);
	}
	pthread_mutex_unlock(&lock);
	errno = before;
	return is_done;
}

EXPORT ssize_t pread64(int fd, void *to, size_t size, off_t at)
{
	ssize_t got;
	NEXT(pread64)

	return try_read(fd, to, size, at, &got)
		       ? got
		       : call_pread64(fd, to, size, at);
}

EXPORT ssize_t pread(int fd, void *to, size_t size, off_t at)
{
	return pread64(fd, to, size, at);
}

EXPORT ssize_t read(int fd, void *to, size_t size)
{
	ssize_t got;
	NEXT(read)

	if (preload_is_stray(fd, size)) {
		errno = EBADF;
		return -1;
	}
	return try_read_here(fd, to, size, &got) ? got
						 : call_read(fd, to, size);
}

/* What FORTIFY makes of them: a size that does not fit ends the program, in
 * libc's. */
ssize_t __pread64_chk(int fd, void *to, size_t size, off_t at, size_t room);
ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room);
ssize_t __read_chk(int fd, void *to, size_t size, size_t room);

EXPORT ssize_t __pread64_chk(int fd, void *to, size_t size, off_t at,
			     size_t room)
{
	ssize_t got;
	NEXT(__pread64_chk)

	return size <= room && try_read(fd, to, size, at, &got)
		       ? got
		       : call___pread64_chk(fd, to, size, at, room);
}

EXPORT ssize_t __pread_chk(int fd, void *to, size_t size, off_t at, size_t room)
{
	return __pread64_chk(fd, to, size, at, room);
}

EXPORT ssize_t __read_chk(int fd, void *to, size_t size, size_t room)
{
	ssize_t got;
	NEXT(__read_chk)

	return size <= room && try_read_here(fd, to, size, &got)
		       ? got
		       : call___read_chk(fd, to, size, room);
}
