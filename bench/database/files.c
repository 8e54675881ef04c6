/* files.c - what the readers of files share, and those of the disk and of
 * memory. */
#include "bench/database/files.h"

#include "bench/database/play.h"
#include "bench/units.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLAB MIB
#define ALIGNED 4096u
#define READ_MAX (512u << 10)

static const struct files_work works[] = {
	{"file-read-8k", 8192, false, 0, 1},
	{"file-read-8k-fibers16", 8192, false, FILES_FIBERS, FILES_DEPTH},
	{"file-seq-512k", 524288, true, 0, FILES_DEPTH},
	{"file-read-8k-tcp", 8192, false, 0, 1},
	{"file-read-8k-tcp-fibers16", 8192, false, FILES_FIBERS, FILES_DEPTH},
	{"mount-read-4k", 4096, false, 0, 1},
};

static uint64_t file_size;

const struct files_work *files_work_find(const char *name)
{
	for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++)
		if (strcmp(works[i].name, name) == 0)
			return &works[i];
	return NULL;
}

void files_set_size(uint64_t bytes)
{
	file_size = bytes / SLAB * SLAB;
}

uint64_t files_size(void)
{
	return file_size;
}

uint64_t files_next(const struct files_work *work, uint64_t *state)
{
	uint64_t places = file_size / work->size;

	if (work->sequential)
		return (*state)++ % places * work->size;
	*state = *state * UINT64_C(6364136223846793005) +
		 UINT64_C(1442695040888963407);
	return (*state >> 33) % places * work->size;
}

void files_fill(void *bytes, size_t size, uint64_t at)
{
	uint64_t *words = bytes;

	for (size_t i = 0; i < size / 8; i++)
		words[i] = at + 8 * i;
}

bool files_check(const void *bytes, size_t size, uint64_t at)
{
	const uint64_t *words = bytes;
	size_t last = size / 8 - 1;

	return words[0] == at && words[last] == at + 8 * last;
}

struct driver_cost files_cost(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (struct driver_cost){
		.disk_bytes = 512.0 * (double)usage.ru_inblock,
		.faults = (double)usage.ru_majflt,
		.waited = (double)usage.ru_utime.tv_sec +
			  (double)usage.ru_utime.tv_usec / 1e6 +
			  (double)usage.ru_stime.tv_sec +
			  (double)usage.ru_stime.tv_usec / 1e6,
	};
}

void files_spent(struct driver_pair *pair, const struct driver_cost *before,
		 double seconds)
{
	struct driver_cost after = files_cost();
	double worked = after.waited - before->waited;

	pair->cost.disk_bytes = after.disk_bytes - before->disk_bytes;
	pair->cost.faults = after.faults - before->faults;
	pair->cost.waited = worked < seconds ? 1 - worked / seconds : 0;
}

int files_write(struct driver_pair *pair, int fd)
{
	void *bytes = aligned_alloc(ALIGNED, SLAB);
	int rc = bytes ? 0 : -ENOMEM;

	for (uint64_t at = 0; !rc && at < file_size; at += SLAB) {
		files_fill(bytes, SLAB, at);
		if (pwrite(fd, bytes, SLAB, (off_t)at) != (ssize_t)SLAB)
			rc = driver_fail(pair, -errno, "writing a file: %s",
					 strerror(errno));
		if (at % (64 * MIB) == 0)
			stage_tell(play_stage(), "writing a file: %.0f %%",
				   100.0 * (double)at / (double)file_size);
	}
	stage_tell(play_stage(), "%s", "");
	free(bytes);
	return rc;
}

int files_loop(struct driver_pair *pair, const struct files_work *work, int fd,
	       double seconds, double *rate)
{
	void *bytes = aligned_alloc(ALIGNED, READ_MAX);
	double begin = workload_seconds(CLOCK_MONOTONIC), now = begin;
	struct driver_cost before = files_cost();
	uint64_t state = (uint64_t)(begin * 1e9), done = 0;
	int rc = bytes ? 0 : -ENOMEM;

	while (!rc && (done % 8 || (now = workload_seconds(CLOCK_MONOTONIC)) <
					   begin + seconds)) {
		uint64_t at = files_next(work, &state);

		if (pread(fd, bytes, work->size, (off_t)at) !=
		    (ssize_t)work->size)
			rc = driver_fail(pair, -errno, "read: %s",
					 strerror(errno));
		else if (!files_check(bytes, work->size, at))
			rc = -EILSEQ;
		done++;
	}
	free(bytes);
	*rate = (double)done / (now - begin);
	files_spent(pair, &before, now - begin);
	return rc;
}

/* --- the disk --- */

/* A process has one file. */
static int disk_fd = -1;

static int files_disk_open(struct driver_pair *pair)
{
	struct stage *stage = play_stage();
	char path[PATH_MAX];
	int rc;

	stage_visit(stage);
	stage_path(stage, "read", path);
	disk_fd = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
	if (disk_fd < 0)
		return driver_fail(pair, -errno, "%s, past the page cache: %s",
				   path, strerror(errno));
	rc = files_write(pair, disk_fd);
	if (!rc && fsync(disk_fd))
		rc = driver_fail(pair, -errno, "%s: %s", path, strerror(errno));
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "a file of %llu MiB with O_DIRECT, %u reads at once where it "
		 "says so",
		 (unsigned long long)(file_size / MIB), FILES_DEPTH);
	return rc ? rc : stage_join(stage);
}

struct queue {
	aio_context_t context;
	struct iocb requests[FILES_DEPTH];
	struct iocb *places[FILES_DEPTH];
	char *bytes;
	uint64_t state, done;
};

static int queue_submit(struct queue *queue, const struct files_work *work,
			uint32_t i)
{
	struct iocb *one = &queue->requests[i];

	*one = (struct iocb){
		.aio_data = i,
		.aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_fildes = (uint32_t)disk_fd,
		.aio_buf = (uintptr_t)(queue->bytes + (size_t)i * work->size),
		.aio_nbytes = work->size,
		.aio_offset = (int64_t)files_next(work, &queue->state),
	};
	queue->places[0] = one;
	return syscall(SYS_io_submit, queue->context, 1, queue->places) == 1
		       ? 0
		       : -errno;
}

static int queue_reap(struct queue *queue, const struct files_work *work,
		      bool goes_on)
{
	struct io_event events[FILES_DEPTH];
	long count = syscall(SYS_io_getevents, queue->context, 1, FILES_DEPTH,
			     events, NULL);
	int rc = count < 0 && errno != EINTR ? -errno : 0;

	for (long e = 0; !rc && e < count; e++) {
		uint32_t i = (uint32_t)events[e].data;

		if (events[e].res != (int64_t)work->size)
			return -EIO;
		if (!files_check(queue->bytes + (size_t)i * work->size,
				 work->size,
				 (uint64_t)queue->requests[i].aio_offset))
			return -EILSEQ;
		queue->done++;
		if (goes_on)
			rc = queue_submit(queue, work, i);
	}
	return rc;
}

static int run_queue(struct driver_pair *pair, const struct files_work *work,
		     double seconds, double *rate)
{
	struct queue queue = {
		.bytes = aligned_alloc(ALIGNED,
				       (size_t)FILES_DEPTH * work->size),
	};
	struct driver_cost before = files_cost();
	double begin = workload_seconds(CLOCK_MONOTONIC), now = begin;
	int rc = 0;

	queue.state = (uint64_t)(begin * 1e9);
	if (!queue.bytes)
		return -ENOMEM;
	if (syscall(SYS_io_setup, FILES_DEPTH, &queue.context))
		rc = driver_fail(pair, -errno, "io_setup: %s", strerror(errno));
	for (uint32_t i = 0; !rc && i < work->depth; i++)
		rc = queue_submit(&queue, work, i);
	while (!rc && now < begin + seconds) {
		rc = queue_reap(&queue, work, true);
		now = workload_seconds(CLOCK_MONOTONIC);
	}
	*rate = (double)queue.done / (now - begin);
	files_spent(pair, &before, now - begin);
	/* This waits for what is under way. */
	syscall(SYS_io_destroy, queue.context);
	free(queue.bytes);
	return rc;
}

static int files_disk_run(struct driver_pair *pair, const char *name,
			  double seconds, double *rate)
{
	const struct files_work *work = files_work_find(name);
	int rc;

	if (!work)
		return -ENOSYS;
	rc = stage_forget(play_stage());
	if (rc)
		return rc;
	return work->depth > 1 ? run_queue(pair, work, seconds, rate)
			       : files_loop(pair, work, disk_fd, seconds, rate);
}

const struct driver files_disk_driver = {
	.name = "disk",
	.open = files_disk_open,
	.run = files_disk_run,
};

/* --- memory --- */

static int files_tmpfs_open(struct driver_pair *pair)
{
	int rc;

	stage_visit(play_stage());
	/* A file of tmpfs without a name: it ends with this process. It is
	 * filled before the process joins the machine, whose memory it is
	 * not. */
	disk_fd = memfd_create("reef-bench", MFD_CLOEXEC);
	if (disk_fd < 0)
		return driver_fail(pair, -errno, "a file in memory: %s",
				   strerror(errno));
	rc = files_write(pair, disk_fd);
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "a file of tmpfs, by pread");
	return rc ? rc : stage_join(play_stage());
}

static int files_tmpfs_run(struct driver_pair *pair, const char *name,
			   double seconds, double *rate)
{
	const struct files_work *work = files_work_find(name);

	return work ? files_loop(pair, work, disk_fd, seconds, rate) : -ENOSYS;
}

const struct driver files_tmpfs_driver = {
	.name = "tmpfs",
	.open = files_tmpfs_open,
	.run = files_tmpfs_run,
};
