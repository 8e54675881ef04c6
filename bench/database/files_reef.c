/* files_reef.c - reading files of a pool: by file.h in this process, over shm
 * or tcp, and by FUSE.
 *
 * Thread: owner. */
#include "bench/database/files.h"
#include "bench/database/play.h"
#include "bench/units.h"

#include <fcntl.h>
#include <reef/fiber.h>
#include <reef/file.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define READ_MAX (512u << 10)
#define SLAB MIB
#define FILE_NAME "read"

struct ours {
	struct reef *reef;
	struct reef_space *space;
	struct reef_file *file;
	struct reef_sched *sched; /* what is over tcp lives in it; else NULL */
	bool staged;		  /* a copy of what was read is made */
	struct driver_pair *pair;
	/* The round under way. */
	const struct files_work *work;
	double until;
	uint64_t state, done;
	int rc;
	/* The mount. */
	pid_t mount;
	int fd;
};

static struct ours ours;

/* --- opening --- */

static int fill_file(void)
{
	void *bytes = malloc(SLAB);
	uint64_t size = 0;
	int rc = bytes ? reef_file_size(ours.file, &size) : -ENOMEM;

	/* Another competitor may have filled it. */
	for (uint64_t at = size; !rc && at < files_size(); at += SLAB) {
		files_fill(bytes, SLAB, at);
		if (reef_file_pwrite(ours.file, bytes, SLAB, at) !=
		    (ssize_t)SLAB)
			rc = -EIO;
	}
	free(bytes);
	return rc;
}

static int open_file(void *arg)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_file_options options = {.flags = REEF_FILE_CREATE};
	struct reef_options how = {.fabrics = arg};
	int rc = reef_open("local", &how, &ours.reef);

	rc = rc ? rc : reef_space_open(ours.reef, "bench", &make, &ours.space);
	rc = rc ? rc
		: reef_file_open(ours.space, FILE_NAME, &options, &ours.file);
	rc = rc ? rc : fill_file();
	ours.rc = rc;
	if (ours.sched)
		reef_sched_stop(ours.sched);
	return 0;
}

static int open_pool(struct driver_pair *pair, const char *how)
{
	bool tcp = strcmp(pair->options.fabric, "tcp") == 0;
	char *fabric = tcp ? "tcp" : "shm";
	int rc = 0;

	ours.pair = pair;
	stage_visit(play_stage());
	pair->target_rests = true;
	rc = reef_sched_create(NULL, &ours.sched);
	rc = rc ? rc : reef_fiber_spawn(ours.sched, open_file, fabric, NULL);
	rc = rc ? rc : reef_sched_run(ours.sched);
	rc = rc ? rc : ours.rc;
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	snprintf(pair->description, sizeof(pair->description),
		 "a file of %llu MiB in a pool in another process, by file.h "
		 "over %s, %s",
		 (unsigned long long)(files_size() / MIB), fabric, how);
	return stage_join(play_stage());
}

static int files_reef_open(struct driver_pair *pair)
{
	return open_pool(pair, "read into the caller's memory");
}

static int files_staged_open(struct driver_pair *pair)
{
	ours.staged = true;
	return open_pool(pair, "copied from a buffer to where it is wanted");
}

static int files_spin_open(struct driver_pair *pair)
{
	setenv("REEF_SPIN", "1ms", 1);
	return open_pool(pair, "waiting by polling");
}

static int files_sleep_open(struct driver_pair *pair)
{
	setenv("REEF_SPIN", "1ns", 1);
	return open_pool(pair, "waiting asleep");
}

static void files_reef_close(struct driver_pair *pair)
{
	reef_file_close(ours.file);
	reef_space_close(ours.space);
	reef_close(ours.reef);
	reef_sched_destroy(ours.sched);
}

/* --- rounds --- */

static int read_once(void *bytes, void *copy)
{
	uint64_t at = files_next(ours.work, &ours.state);
	ssize_t size = reef_file_pread(ours.file, bytes, ours.work->size, at);

	if (size != (ssize_t)ours.work->size)
		return size < 0 ? (int)size : -EIO;
	if (ours.staged)
		memcpy(copy, bytes, ours.work->size);
	ours.done++;
	return files_check(ours.staged ? copy : bytes, ours.work->size, at)
		       ? 0
		       : -EILSEQ;
}

static int reader_main(void *arg)
{
	void *bytes = malloc(READ_MAX), *copy = malloc(READ_MAX);
	uint64_t turns = 0;
	int rc = bytes && copy ? 0 : -ENOMEM;

	while (!rc && !ours.rc &&
	       (turns++ % 8 || workload_seconds(CLOCK_MONOTONIC) < ours.until))
		rc = read_once(bytes, copy);
	free(bytes);
	free(copy);
	ours.rc = ours.rc ? ours.rc : rc;
	return 0;
}

static int files_reef_run(struct driver_pair *pair, const char *name,
			  double seconds, double *rate)
{
	struct driver_cost before = files_cost();
	double begin = workload_seconds(CLOCK_MONOTONIC), took;
	int rc = 0;

	ours.work = files_work_find(name);
	if (!ours.work)
		return -ENOSYS;
	ours.state += (uint64_t)(begin * 1e9);
	ours.done = 0;
	ours.rc = 0;
	ours.until = begin + seconds;
	for (uint32_t i = 0; !rc && i < ours.work->fibers; i++)
		rc = reef_fiber_spawn(ours.sched, reader_main, NULL, NULL);
	if (ours.work->fibers)
		rc = rc ? rc : reef_sched_run(ours.sched);
	else
		reader_main(NULL);
	rc = rc ? rc : ours.rc;
	took = workload_seconds(CLOCK_MONOTONIC) - begin;
	*rate = (double)ours.done / took;
	files_spent(pair, &before, took);
	return rc && rc != -EILSEQ
		       ? driver_fail(pair, rc, "%s", reef_error_text(rc))
		       : rc;
}

#define FILES_DRIVER(variable, how, called)                                    \
	const struct driver variable = {                                       \
		.name = called,                                                \
		.open = how,                                                   \
		.run = files_reef_run,                                         \
		.close = files_reef_close,                                     \
	}

FILES_DRIVER(files_reef_driver, files_reef_open, "reef");
FILES_DRIVER(files_staged_driver, files_staged_open, "staged");
FILES_DRIVER(files_spin_driver, files_spin_open, "spin");
FILES_DRIVER(files_sleep_driver, files_sleep_open, "sleep");

/* --- by FUSE --- */

static int files_mount_open(struct driver_pair *pair)
{
	struct stage *stage = play_stage();
	char path[PATH_MAX];
	int rc;

	stage_visit(stage);
	pair->target_rests = true;
	rc = stage_mount(stage, &ours.mount);
	if (rc)
		return driver_fail(pair, rc, "%s", stage->errors.error);
	stage_path(stage, "spill/read", path);
	ours.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (ours.fd < 0)
		return driver_fail(pair, -errno, "%s: %s", path,
				   strerror(errno));
	rc = files_write(pair, ours.fd);
	snprintf(pair->description, sizeof(pair->description),
		 "a file of %llu MiB in a pool, by `reef mount` and pread",
		 (unsigned long long)(files_size() / MIB));
	return rc ? rc : stage_join(stage);
}

static int files_mount_run(struct driver_pair *pair, const char *name,
			   double seconds, double *rate)
{
	const struct files_work *work = files_work_find(name);

	return work ? files_loop(pair, work, ours.fd, seconds, rate) : -ENOSYS;
}

static void files_mount_close(struct driver_pair *pair)
{
	char path[PATH_MAX];

	close(ours.fd);
	unlink(stage_path(play_stage(), "spill/read", path));
	stage_unmount(play_stage(), &ours.mount);
}

const struct driver files_mount_driver = {
	.name = "reef",
	.open = files_mount_open,
	.run = files_mount_run,
	.close = files_mount_close,
};
