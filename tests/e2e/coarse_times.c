/* coarse_times.c - for LD_PRELOAD: the times of files pass in ticks of 20 ms,
 * as on kernels that know no finer ones (before 6.13: 1 to 10 ms); but a time
 * that was set is what it was set to. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define TICK 20000000
#define EXPORTED __attribute__((visibility("default")))

static struct timespec set; /* the last time that was set */

EXPORTED int utimensat(int folder, const char *path,
		       const struct timespec times[2], int flags)
{
	int (*real)(int, const char *, const struct timespec[2], int);

	*(void **)&real = dlsym(RTLD_NEXT, "utimensat");
	set = times[1];
	return real(folder, path, times, flags);
}

static void make_coarse(struct statx_timestamp *time)
{
	if (time->tv_sec != set.tv_sec ||
	    time->tv_nsec != (uint32_t)set.tv_nsec)
		time->tv_nsec -= time->tv_nsec % TICK;
}

EXPORTED int statx(int folder, const char *path, int flags, unsigned mask,
		   struct statx *out)
{
	int (*real)(int, const char *, int, unsigned, struct statx *);
	int rc;

	*(void **)&real = dlsym(RTLD_NEXT, "statx");
	rc = real(folder, path, flags, mask, out);
	if (!rc) {
		make_coarse(&out->stx_mtime);
		make_coarse(&out->stx_ctime);
	}
	return rc;
}
