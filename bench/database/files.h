/* files.h - reading a file: of a pool, of the disk, of memory.
 *
 * Every file is of the same size and has the same words, so that each read can
 * be checked: in each word its own place in the file.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_DATABASE_FILES_H
#define REEF_BENCH_DATABASE_FILES_H

#include "bench/driver.h"

#define FILES_FIBERS 16u
#define FILES_DEPTH 32u

struct files_work {
	const char *name;
	uint32_t size;	 /* of a read */
	bool sequential; /* otherwise anywhere */
	uint32_t fibers; /* 0: one after the other, without */
	uint32_t depth;	 /* of the disk's queue */
};

const struct files_work *files_work_find(const char *name);

/* How large they are, as the bench said before anybody was started. */
void files_set_size(uint64_t bytes);

extern const struct driver files_reef_driver, files_staged_driver;
extern const struct driver files_spin_driver, files_sleep_driver;
extern const struct driver files_mount_driver;
extern const struct driver files_disk_driver, files_tmpfs_driver;

/* --- for the drivers --- */

struct stage;

uint64_t files_size(void);
/* Where the next read of a work is; *state is any number at first. */
uint64_t files_next(const struct files_work *work, uint64_t *state);
/* Fill, and check, what belongs at a place. 8 bytes each are looked at. */
void files_fill(void *bytes, size_t size, uint64_t at);
bool files_check(const void *bytes, size_t size, uint64_t at);
/* The bytes that this process has read from disks, and its major faults. */
struct driver_cost files_cost(void);
/* Set what a round took, beside what there was before. */
void files_spent(struct driver_pair *pair, const struct driver_cost *before,
		 double seconds);
/* Write a whole file by descriptor. */
int files_write(struct driver_pair *pair, int fd);
/* Read by pread until the time is over. */
int files_loop(struct driver_pair *pair, const struct files_work *work, int fd,
	       double seconds, double *rate);

#endif
