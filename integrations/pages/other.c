/* other.c - calls that open files, pass them on, or write to them without being
 * seen. */
#include "integrations/pages/preload.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void turn_off_by(int fd, enum through_how how)
{
	struct through_write write;

	if (!preload_is_on() || fd < 0)
		return;
	through_begin(&write, fd, NULL, how, 0, 0);
	through_end(&write, NULL, 0);
}

/* From now on nobody sees what is written: (1). */
static void turn_off(int fd)
{
	turn_off_by(fd, THROUGH_OFF);
}

/* True if a file can be written by that descriptor. */
static bool is_writable(int fd)
{
	int flags = preload_is_on() ? fcntl(fd, F_GETFL) : -1;

	return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

static void turn_off_written(int fd)
{
	if (is_writable(fd))
		turn_off(fd);
}

void preload_begin(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		turn_off_written(fd);
}

/* --- the library's own threads, and descriptors: (5) --- */

bool preload_is_stray(int fd, size_t size)
{
	struct stat about;
	int before = errno;
	bool is_stray = preload_is_on() && size == sizeof(uint64_t) &&
			through_is_inside() && !fstat(fd, &about) &&
			S_ISREG(about.st_mode);

	errno = before;
	return is_stray;
}

struct start {
	void *(*run)(void *argument);
	void *argument;
};

static void *start_inside(void *argument)
{
	struct start start = *(struct start *)argument;

	free(argument);
	through_stay_inside();
	return start.run(start.argument);
}

EXPORT int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*run)(void *), void *argument)
{
	struct start *start;
	int rc;
	NEXT(pthread_create)

	if (!preload_is_on() || !through_is_inside())
		return call_pthread_create(thread, attributes, run, argument);
	start = malloc(sizeof(*start));
	if (!start)
		return EAGAIN;
	*start = (struct start){.run = run, .argument = argument};
	rc = call_pthread_create(thread, attributes, start_inside, start);
	if (rc)
		free(start);
	return rc;
}

/* --- opening --- */

/* True if a file is cut when it is opened with these flags. Then it is opened
 * as it is, and cut after that: who is to be told is the file that was opened,
 * not what the path was before. */
static bool is_cut(int flags)
{
	return preload_is_on() && flags & O_TRUNC &&
	       (flags & O_ACCMODE) != O_RDONLY && !(flags & O_PATH);
}

/* A file was opened, and is to be cut, or not. */
static int opened(int fd, bool cuts)
{
	struct stat about;
	int rc;

	preload_own(fd, preload_is_on());
	/* libc writes there by itself. */
	if (fd <= STDERR_FILENO)
		turn_off_written(fd);
	if (!cuts || fstat(fd, &about) || !S_ISREG(about.st_mode))
		return fd;
	if (!ftruncate(fd, 0))
		return fd;
	rc = errno;
	close(fd);
	errno = rc;
	return -1;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
	bool cuts = is_cut(flags);
	int fd;
	NEXT(openat64)

	fd = call_openat64(folder, path, cuts ? flags & ~O_TRUNC : flags, mode);
	return fd < 0 ? fd : opened(fd, cuts);
}

static mode_t mode_of(int flags, va_list arguments)
{
	return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE
		       ? va_arg(arguments, mode_t)
		       : 0;
}

#define OPEN(folder, path, flags)                                              \
	va_list arguments;                                                     \
	mode_t mode;                                                           \
	va_start(arguments, flags);                                            \
	mode = mode_of(flags, arguments);                                      \
	va_end(arguments);                                                     \
	return open_at(folder, path, flags, mode)

EXPORT int open(const char *path, int flags, ...)
{
	OPEN(AT_FDCWD, path, flags);
}

EXPORT int open64(const char *path, int flags, ...)
{
	OPEN(AT_FDCWD, path, flags);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
	OPEN(folder, path, flags);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
	OPEN(folder, path, flags);
}

EXPORT int creat(const char *path, mode_t mode)
{
	return open_at(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}

EXPORT int creat64(const char *path, mode_t mode)
{
	return creat(path, mode);
}

int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int folder, const char *path, int flags);
int __openat64_2(int folder, const char *path, int flags);

EXPORT int __open_2(const char *path, int flags)
{
	return open_at(AT_FDCWD, path, flags, 0);
}

EXPORT int __open64_2(const char *path, int flags)
{
	return open_at(AT_FDCWD, path, flags, 0);
}

EXPORT int __openat_2(int folder, const char *path, int flags)
{
	return open_at(folder, path, flags, 0);
}

EXPORT int __openat64_2(int folder, const char *path, int flags)
{
	return open_at(folder, path, flags, 0);
}

/* --- stdio: libc writes by itself --- */

static bool is_written(const char *mode)
{
	return strpbrk(mode, "wa+") != NULL;
}

/* Open a stream by an expression; path NULL: of a file that is open. */
#define STREAM(path, mode, expression)                                         \
	struct through_write write;                                            \
	FILE *stream;                                                          \
	if (!preload_is_on() || !is_written(mode))                             \
		return expression;                                             \
	through_begin(&write, -1, path, THROUGH_UNTOLD, 0, 0);                 \
	stream = expression;                                                   \
	if (stream)                                                            \
		turn_off(fileno(stream));                                      \
	through_end(&write, NULL, 0);                                          \
	return stream

EXPORT FILE *fopen64(const char *path, const char *mode)
{
	NEXT(fopen64)
	STREAM(path, mode, call_fopen64(path, mode));
}

EXPORT FILE *fopen(const char *path, const char *mode)
{
	return fopen64(path, mode);
}

EXPORT FILE *freopen64(const char *path, const char *mode, FILE *before)
{
	NEXT(freopen64)
	STREAM(path ? path : "/", mode, call_freopen64(path, mode, before));
}

EXPORT FILE *freopen(const char *path, const char *mode, FILE *before)
{
	return freopen64(path, mode, before);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	NEXT(fdopen)
	if (is_written(mode))
		turn_off(fd);
	return call_fdopen(fd, mode);
}

/* --- memory, and other threads --- */

EXPORT void *mmap64(void *at, size_t size, int protection, int flags, int fd,
		    off_t offset)
{
	const int type = flags & MAP_TYPE;
	NEXT(mmap64)

	/* What can be written later, by mprotect, counts. */
	if (!(flags & MAP_ANONYMOUS) &&
	    (type == MAP_SHARED || type == MAP_SHARED_VALIDATE) &&
	    is_writable(fd))
		turn_off_by(fd, THROUGH_MAPPED);
	return call_mmap64(at, size, protection, flags, fd, offset);
}

EXPORT void *mmap(void *at, size_t size, int protection, int flags, int fd,
		  off_t offset)
{
	return mmap64(at, size, protection, flags, fd, offset);
}

EXPORT int aio_write64(struct aiocb64 *request)
{
	NEXT(aio_write64)
	turn_off(request->aio_fildes);
	return call_aio_write64(request);
}

EXPORT int aio_write(struct aiocb *request)
{
	NEXT(aio_write)
	turn_off(request->aio_fildes);
	return call_aio_write(request);
}

EXPORT int lio_listio(int mode, struct aiocb *const requests[], int count,
		      struct sigevent *event)
{
	NEXT(lio_listio)
	for (int i = 0; i < count; i++)
		if (requests[i] && requests[i]->aio_lio_opcode == LIO_WRITE)
			turn_off(requests[i]->aio_fildes);
	return call_lio_listio(mode, requests, count, event);
}

EXPORT int lio_listio64(int mode, struct aiocb64 *const requests[], int count,
			struct sigevent *event)
{
	NEXT(lio_listio64)
	for (int i = 0; i < count; i++)
		if (requests[i] && requests[i]->aio_lio_opcode == LIO_WRITE)
			turn_off(requests[i]->aio_fildes);
	return call_lio_listio64(mode, requests, count, event);
}

/* --- rings and contexts: (2). liburing and libaio return -errno. --- */

int io_uring_queue_init(unsigned count, void *ring, unsigned flags);
int io_uring_queue_init_params(unsigned count, void *ring, void *params);
int io_uring_queue_init_mem(unsigned count, void *ring, void *params,
			    void *memory, size_t size);
int io_uring_setup(unsigned count, void *params);
int io_setup(int count, void *context);
int io_queue_init(int count, void *context);

#define REFUSE(name)                                                           \
	NEXT(name)                                                             \
	if (preload_is_on() || !call_##name)                                   \
	return -ENOSYS

EXPORT int io_uring_queue_init(unsigned count, void *ring, unsigned flags)
{
	REFUSE(io_uring_queue_init);
	return call_io_uring_queue_init(count, ring, flags);
}

EXPORT int io_uring_queue_init_params(unsigned count, void *ring, void *params)
{
	REFUSE(io_uring_queue_init_params);
	return call_io_uring_queue_init_params(count, ring, params);
}

EXPORT int io_uring_queue_init_mem(unsigned count, void *ring, void *params,
				   void *memory, size_t size)
{
	REFUSE(io_uring_queue_init_mem);
	return call_io_uring_queue_init_mem(count, ring, params, memory, size);
}

EXPORT int io_uring_setup(unsigned count, void *params)
{
	REFUSE(io_uring_setup);
	return call_io_uring_setup(count, params);
}

EXPORT int io_setup(int count, void *context)
{
	REFUSE(io_setup);
	return call_io_setup(count, context);
}

EXPORT int io_queue_init(int count, void *context)
{
	REFUSE(io_queue_init);
	return call_io_queue_init(count, context);
}

/* --- calls by number --- */

/* What a call by number changes; -1: nothing. */
static int changed_by(long number, const long *words)
{
	switch (number) {
	case SYS_write:
	case SYS_pwrite64:
	case SYS_writev:
	case SYS_pwritev:
	case SYS_pwritev2:
	case SYS_ftruncate:
	case SYS_fallocate:
	case SYS_sendfile:
		return (int)words[0];
	case SYS_copy_file_range:
	case SYS_splice:
		return (int)words[2];
	case SYS_ioctl:
		return preload_ioctl_changes((unsigned long)words[1])
			       ? (int)words[0]
			       : -1;
	default:
		return -1;
	}
}

/* openat2(2) */
static long open_by_how(const long *words)
{
	const size_t size = (size_t)words[3];
	struct open_how how;
	bool cuts = false;
	long fd;
	NEXT(syscall)

	/* Another size is that of another kernel, which says so. */
	if (size == sizeof(how)) {
		memcpy(&how, (const void *)words[2], size);
		cuts = is_cut((int)how.flags);
		how.flags &= cuts ? ~(uint64_t)O_TRUNC : ~UINT64_C(0);
	}
	fd = call_syscall(SYS_openat2, words[0], words[1],
			  cuts ? (long)&how : words[2], size);
	return fd < 0 ? fd : opened((int)fd, cuts);
}

/* Calls that are made as by their names. False: it is none of them. */
static bool call_by_name(long number, const long *words, long *result)
{
	switch (number) {
#ifdef SYS_open
	case SYS_open:
		*result = open_at(AT_FDCWD, (const char *)words[0],
				  (int)words[1], (mode_t)words[2]);
		return true;
	case SYS_creat:
		*result = creat((const char *)words[0], (mode_t)words[1]);
		return true;
	case SYS_dup2:
		*result = dup2((int)words[0], (int)words[1]);
		return true;
#endif
	case SYS_openat:
		*result = open_at((int)words[0], (const char *)words[1],
				  (int)words[2], (mode_t)words[3]);
		return true;
	case SYS_openat2:
		*result = open_by_how(words);
		return true;
	case SYS_truncate:
		*result = truncate((const char *)words[0], words[1]);
		return true;
	case SYS_dup:
		*result = dup((int)words[0]);
		return true;
	case SYS_dup3:
		*result = dup3((int)words[0], (int)words[1], (int)words[2]);
		return true;
	case SYS_fcntl:
		*result = fcntl((int)words[0], (int)words[1], words[2]);
		return true;
	case SYS_io_uring_setup:
	case SYS_io_setup:
		errno = ENOSYS;
		*result = -1;
		return true;
	default:
		return false;
	}
}

static long call_by_number(long number, const long *words)
{
	struct through_write write;
	int fd = changed_by(number, words);
	long result;
	NEXT(syscall)

	if (preload_is_on() && call_by_name(number, words, &result))
		return result;
	if (preload_is_on() && number == SYS_mmap && words[3] & MAP_SHARED)
		turn_off_by((int)words[4], THROUGH_MAPPED);
	if (!preload_is_on() || fd < 0)
		return call_syscall(number, words[0], words[1], words[2],
				    words[3], words[4], words[5]);
	through_begin(&write, fd, NULL, THROUGH_UNTOLD, 0, 0);
	result = call_syscall(number, words[0], words[1], words[2], words[3],
			      words[4], words[5]);
	through_end(&write, NULL, 0);
	return result;
}

EXPORT long syscall(long number, ...)
{
	va_list arguments;
	long words[6];

	va_start(arguments, number);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(arguments, long);
	va_end(arguments);
	return call_by_number(number, words);
}

/* --- descriptors that others get, or that are others: (3) --- */

/* Call before and after descriptors are closed: (5). */
static void close_fds(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < OWNED_MAX; fd++)
		preload_own((int)fd, false);
	if (preload_is_on())
		through_closing(first, last);
}

EXPORT int close(int fd)
{
	int rc;
	NEXT(close)

	if (fd < 0 || !preload_is_on())
		return call_close(fd);
	close_fds((unsigned)fd, (unsigned)fd);
	rc = call_close(fd);
	through_closed((unsigned)fd, (unsigned)fd);
	return rc;
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	int rc;
	NEXT(close_range)

	if (!preload_is_on() || flags & CLOSE_RANGE_CLOEXEC)
		return call_close_range(first, last, flags);
	close_fds(first, last);
	rc = call_close_range(first, last, flags);
	through_closed(first, last);
	return rc;
}

EXPORT void closefrom(int first)
{
	NEXT(closefrom)

	if (preload_is_on())
		close_fds(first < 0 ? 0 : (unsigned)first, ~0u);
	call_closefrom(first);
	if (preload_is_on())
		through_closed(first < 0 ? 0 : (unsigned)first, ~0u);
}

/* A stream of stdio may have that number, and writes there by itself. */
EXPORT int dup2(int from, int to)
{
	int rc;
	NEXT(dup2)

	if (!preload_is_on() || from == to || to < 0)
		return call_dup2(from, to);
	close_fds((unsigned)to, (unsigned)to);
	preload_own(to, preload_owns(from));
	turn_off_written(from);
	rc = call_dup2(from, to);
	through_closed((unsigned)to, (unsigned)to);
	return rc;
}

EXPORT int dup3(int from, int to, int flags)
{
	int rc;
	NEXT(dup3)

	if (!preload_is_on() || to < 0)
		return call_dup3(from, to, flags);
	close_fds((unsigned)to, (unsigned)to);
	preload_own(to, preload_owns(from));
	turn_off_written(from);
	rc = call_dup3(from, to, flags);
	through_closed((unsigned)to, (unsigned)to);
	return rc;
}

/* The lowest number that is free, which may be a standard one. */
static int duplicated(int from, int to)
{
	if (to < 0 || !preload_is_on())
		return to;
	preload_own(to, preload_owns(from));
	if (to <= STDERR_FILENO)
		turn_off_written(to);
	return to;
}

EXPORT int dup(int from)
{
	NEXT(dup)
	return duplicated(from, call_dup(from));
}

EXPORT int fcntl64(int fd, int command, ...)
{
	va_list arguments;
	void *argument;
	int rc;
	NEXT(fcntl64)

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	rc = call_fcntl64(fd, command, argument);
	return command == F_DUPFD || command == F_DUPFD_CLOEXEC
		       ? duplicated(fd, rc)
		       : rc;
}

EXPORT int fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return fcntl64(fd, command, argument);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	NEXT(sendmsg)
	if (message->msg_controllen)
		preload_share_all();
	return call_sendmsg(fd, message, flags);
}

EXPORT pid_t fork(void)
{
	NEXT(fork)
	preload_share_all();
	return call_fork();
}

/* (4) */
EXPORT pid_t vfork(void)
{
	return fork();
}

/* The child opens it by itself, before it is a program that tells. */
EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions,
					    int fd, const char *path, int flags,
					    mode_t mode)
{
	struct through_write write;
	NEXT(posix_spawn_file_actions_addopen)

	if (is_cut(flags)) {
		through_begin(&write, -1, path, THROUGH_OFF, 0, 0);
		through_end(&write, NULL, 0);
	}
	return call_posix_spawn_file_actions_addopen(actions, fd, path, flags,
						     mode);
}

EXPORT int posix_spawn(pid_t *child, const char *path,
		       const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attributes, char *const words[],
		       char *const environment[])
{
	NEXT(posix_spawn)
	preload_share_all();
	return call_posix_spawn(child, path, actions, attributes, words,
				environment);
}

EXPORT int posix_spawnp(pid_t *child, const char *path,
			const posix_spawn_file_actions_t *actions,
			const posix_spawnattr_t *attributes,
			char *const words[], char *const environment[])
{
	NEXT(posix_spawnp)
	preload_share_all();
	return call_posix_spawnp(child, path, actions, attributes, words,
				 environment);
}

EXPORT int system(const char *command)
{
	NEXT(system)
	preload_share_all();
	return call_system(command);
}

EXPORT FILE *popen(const char *command, const char *mode)
{
	NEXT(popen)
	preload_share_all();
	return call_popen(command, mode);
}
