/* write.c - calls that change what is in a file: at a place that is known, of
 * which the pool is told page by page, or anywhere. */
#include "integrations/pages/preload.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <unistd.h>

/* Change the file that is open as FD, or of PATH, by an expression. */
#define UNTOLD(fd, path, type, expression)                                     \
	struct through_write write;                                            \
	type result;                                                           \
	if (!preload_is_on())                                                  \
		return expression;                                             \
	through_begin(&write, fd, path, THROUGH_UNTOLD, 0, 0);                 \
	result = expression;                                                   \
	through_end(&write, NULL, 0);                                          \
	return result

EXPORT ssize_t pwrite64(int fd, const void *from, size_t size, off_t at)
{
	struct through_write write;
	ssize_t done;
	NEXT(pwrite64)

	if (!preload_is_on() || at < 0)
		return call_pwrite64(fd, from, size, at);
	through_begin(&write, fd, NULL, THROUGH_TOLD, (uint64_t)at, size);
	done = call_pwrite64(fd, from, size, at);
	through_end(&write, from, done);
	return done;
}

EXPORT ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
	return pwrite64(fd, from, size, at);
}

/* How much they are together; 0: more than can be, or nothing. */
static size_t size_of(const struct iovec *parts, int count)
{
	size_t size = 0;

	for (int i = 0; i < count; i++) {
		if (parts[i].iov_len > (size_t)SSIZE_MAX - size)
			return 0;
		size += parts[i].iov_len;
	}
	return size;
}

static enum through_how begin_parts(struct through_write *write, int fd,
				    const struct iovec *parts, int count,
				    off_t at, bool is_plain)
{
	size_t size = count > 0 && at >= 0 ? size_of(parts, count) : 0;
	enum through_how how = size && is_plain ? THROUGH_TOLD : THROUGH_UNTOLD;

	through_begin(write, fd, NULL, how, at < 0 ? 0 : (uint64_t)at, size);
	return how;
}

EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t at)
{
	struct through_write write;
	ssize_t done;
	NEXT(pwritev64)

	if (!preload_is_on())
		return call_pwritev64(fd, parts, count, at);
	begin_parts(&write, fd, parts, count, at, true);
	done = call_pwritev64(fd, parts, count, at);
	through_end(&write, count == 1 ? parts[0].iov_base : NULL, done);
	return done;
}

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
	return pwritev64(fd, parts, count, at);
}

EXPORT ssize_t pwritev64v2(int fd, const struct iovec *parts, int count,
			   off_t at, int flags)
{
	struct through_write write;
	ssize_t done;
	NEXT(pwritev64v2)

	if (!preload_is_on())
		return call_pwritev64v2(fd, parts, count, at, flags);
	begin_parts(&write, fd, parts, count, at, !(flags & RWF_APPEND));
	done = call_pwritev64v2(fd, parts, count, at, flags);
	through_end(&write, NULL, done);
	return done;
}

EXPORT ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at,
			int flags)
{
	return pwritev64v2(fd, parts, count, at, flags);
}

EXPORT ssize_t write(int fd, const void *from, size_t size)
{
	NEXT(write)
	if (preload_is_stray(fd, size)) {
		errno = EBADF;
		return -1;
	}
	UNTOLD(fd, NULL, ssize_t, call_write(fd, from, size));
}

EXPORT ssize_t writev(int fd, const struct iovec *parts, int count)
{
	NEXT(writev)
	UNTOLD(fd, NULL, ssize_t, call_writev(fd, parts, count));
}

EXPORT int ftruncate64(int fd, off_t size)
{
	NEXT(ftruncate64)
	UNTOLD(fd, NULL, int, call_ftruncate64(fd, size));
}

EXPORT int ftruncate(int fd, off_t size)
{
	return ftruncate64(fd, size);
}

EXPORT int truncate64(const char *path, off_t size)
{
	NEXT(truncate64)
	UNTOLD(-1, path, int, call_truncate64(path, size));
}

EXPORT int truncate(const char *path, off_t size)
{
	return truncate64(path, size);
}

EXPORT int fallocate64(int fd, int mode, off_t at, off_t size)
{
	NEXT(fallocate64)
	UNTOLD(fd, NULL, int, call_fallocate64(fd, mode, at, size));
}

EXPORT int fallocate(int fd, int mode, off_t at, off_t size)
{
	return fallocate64(fd, mode, at, size);
}

EXPORT int posix_fallocate64(int fd, off_t at, off_t size)
{
	NEXT(posix_fallocate64)
	UNTOLD(fd, NULL, int, call_posix_fallocate64(fd, at, size));
}

EXPORT int posix_fallocate(int fd, off_t at, off_t size)
{
	return posix_fallocate64(fd, at, size);
}

EXPORT ssize_t copy_file_range(int from, off_t *from_at, int to, off_t *to_at,
			       size_t size, unsigned flags)
{
	NEXT(copy_file_range)
	UNTOLD(to, NULL, ssize_t,
	       call_copy_file_range(from, from_at, to, to_at, size, flags));
}

EXPORT ssize_t sendfile64(int to, int from, off_t *at, size_t size)
{
	NEXT(sendfile64)
	UNTOLD(to, NULL, ssize_t, call_sendfile64(to, from, at, size));
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t size)
{
	return sendfile64(to, from, at, size);
}

EXPORT ssize_t splice(int from, off_t *from_at, int to, off_t *to_at,
		      size_t size, unsigned flags)
{
	NEXT(splice)
	UNTOLD(to, NULL, ssize_t,
	       call_splice(from, from_at, to, to_at, size, flags));
}

/* What is passed to the kernel may say to change the file: blocks that are
 * another's from now on, a hole, zeros. */
bool preload_ioctl_changes(unsigned long request)
{
	return _IOC_DIR(request) & _IOC_WRITE;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;
	void *argument;
	NEXT(ioctl)

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (!preload_ioctl_changes(request))
		return call_ioctl(fd, request, argument);
	UNTOLD(fd, NULL, int, call_ioctl(fd, request, argument));
}

EXPORT int vdprintf(int fd, const char *format, va_list arguments)
{
	NEXT(vdprintf)
	UNTOLD(fd, NULL, int, call_vdprintf(fd, format, arguments));
}

EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list arguments;
	int done;

	va_start(arguments, format);
	done = vdprintf(fd, format, arguments);
	va_end(arguments);
	return done;
}

int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
int __dprintf_chk(int fd, int flag, const char *format, ...);

EXPORT int __vdprintf_chk(int fd, int flag, const char *format,
			  va_list arguments)
{
	NEXT(__vdprintf_chk)
	UNTOLD(fd, NULL, int, call___vdprintf_chk(fd, flag, format, arguments));
}

EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list arguments;
	int done;

	va_start(arguments, format);
	done = __vdprintf_chk(fd, flag, format, arguments);
	va_end(arguments);
	return done;
}
