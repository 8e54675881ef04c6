/* log_work.h - what is done with a log, word for word the same for all.
 *
 *   append-100          one appender, 100 bytes, one after the other
 *   append-100-batch64  the same, 64 in a call where there is such a call
 *   append-4k           4 KiB
 *   read-all            all of a log, from its beginning, over and over
 *   tail                from the append to the reader that slept, microseconds
 *   append-2            two processes, one log
 *   append-sharded-2    the same, with order by cuts
 *
 * (1) What is read is looked at: every entry begins with its number (-EILSEQ).
 * (2) Nobody waits for a disk.
 * (3) Time is the thread's on the processor where an operation is its own work
 *     alone, and the clock on the wall where a server answers.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_LOG_WORK_H
#define REEF_BENCH_LOG_WORK_H

#include "driver.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOG_SHORT 100u
#define LOG_LONG 4096u
#define LOG_BATCH 64u
#define LOG_CHUNK 64u	     /* entries between two looks at the clock */
#define LOG_ENTRIES 100000u  /* to be read */
#define LOG_PAUSE_NS 1000000 /* in which the reader goes to sleep */
#define LOG_TAIL "tail"

/* What a competitor can do. 0, or -errno. */
struct log_ops {
	/* A round of appends begins: what was appended before may go. */
	int (*begin)(void *context);
	int (*append)(void *context, const char *bytes, size_t size);
	/* LOG_BATCH of the same size, one behind the other; NULL: one by one.
	 */
	int (*append_batch)(void *context, const char *bytes, size_t size);
	/* Read all there is. *count: entries. */
	int (*read_all)(void *context, uint64_t *count);
	/* Append to the log that a sleeper waits on; NULL: none does. */
	int (*append_awaited)(void *context, const char *bytes, size_t size);
	/* The sleeper, in a process of its own: wait, and read the last. */
	int (*sleeper_open)(void);
	int (*sleeper_next)(uint64_t *stamp);
	clockid_t clock;
};

/* --- appending --- */

workload_inline int log_append_loop(const struct log_ops *ops, void *context,
				    size_t size, bool is_batch, double seconds,
				    double *rate)
{
	static char bytes[LOG_BATCH * LOG_LONG];
	double begin, now;
	uint64_t done = 0;
	int rc = ops->begin(context);

	if (is_batch && !ops->append_batch)
		return -ENOSYS;
	begin = now = workload_seconds(ops->clock);
	while (!rc && now - begin < seconds) {
		if (is_batch)
			rc = ops->append_batch(context, bytes, size);
		for (uint32_t i = 0; !rc && !is_batch && i < LOG_CHUNK; i++) {
			memcpy(bytes, &i, sizeof(i));
			rc = ops->append(context, bytes, size);
		}
		done += LOG_CHUNK;
		now = workload_seconds(ops->clock);
	}
	*rate = (double)done / (now - begin);
	return rc;
}

/* --- reading --- */

workload_inline int log_read_loop(const struct log_ops *ops, void *context,
				  double seconds, double *rate)
{
	double begin = workload_seconds(ops->clock), now = begin;
	uint64_t done = 0, count;
	int rc = 0;

	while (!rc && now - begin < seconds) {
		rc = ops->read_all(context, &count);
		if (!rc && count != LOG_ENTRIES)
			rc = -EILSEQ;
		done += count;
		now = workload_seconds(ops->clock);
	}
	*rate = (double)done / (now - begin);
	return rc;
}

/* An entry of the log that is read. */
static inline void log_entry(char bytes[LOG_SHORT], uint64_t number)
{
	memset(bytes, 'x', LOG_SHORT);
	memcpy(bytes, &number, sizeof(number));
}

static inline int log_check(const void *bytes, size_t size, uint64_t number)
{
	return size == LOG_SHORT && !memcmp(bytes, &number, sizeof(number))
		       ? 0
		       : -EILSEQ;
}

/* --- waking --- */

struct log_sleeper { /* shared with it */
	_Atomic uint64_t woken;
	_Atomic uint64_t nanoseconds; /* of the last */
	_Atomic int rc;
};

static struct log_sleeper *log_sleeper;
static pid_t log_sleeper_pid;

static inline uint64_t log_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void log_sleeper_main(const struct log_ops *ops)
{
	uint64_t stamp = 0;
	int rc = ops->sleeper_open();

	while (!rc) {
		rc = ops->sleeper_next(&stamp);
		log_sleeper->nanoseconds = log_now_ns() - stamp;
		log_sleeper->woken++;
	}
	log_sleeper->rc = rc;
	_exit(0);
}

/* Start the sleeper. It is forked before anything is opened here, and ends with
 * this process. */
static inline int log_sleeper_start(const struct log_ops *ops)
{
	pid_t self = getpid(), child;

	log_sleeper = mmap(NULL, sizeof(*log_sleeper), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (log_sleeper == MAP_FAILED)
		return -errno;
	child = fork();
	log_sleeper_pid = child;
	if (child)
		return child < 0 ? -errno : 0;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != self)
		_exit(1);
	driver_pin(1);
	log_sleeper_main(ops);
	_exit(0);
}

/* The sleeper has what this process had open, so it ends before the target is
 * waited for. */
static inline void log_sleeper_stop(void)
{
	if (log_sleeper_pid <= 0)
		return;
	kill(log_sleeper_pid, SIGKILL);
	waitpid(log_sleeper_pid, NULL, 0);
}

/* *figure: microseconds, on average. */
static inline int log_tail_loop(const struct log_ops *ops, void *context,
				double seconds, double *figure)
{
	const struct timespec pause = {.tv_nsec = LOG_PAUSE_NS};
	double begin = workload_seconds(CLOCK_MONOTONIC);
	uint64_t sum = 0, count = 0, stamp[2] = {0}, before;
	int rc = 0;

	while (!rc && workload_seconds(CLOCK_MONOTONIC) - begin < seconds) {
		before = log_sleeper->woken;
		nanosleep(&pause, NULL);
		stamp[0] = log_now_ns();
		rc = ops->append_awaited(context, (const char *)stamp,
					 sizeof(stamp));
		while (!rc && log_sleeper->woken == before &&
		       !log_sleeper->rc &&
		       log_now_ns() - stamp[0] < 1000000000u)
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
		if (!rc && log_sleeper->woken == before)
			rc = log_sleeper->rc ? log_sleeper->rc : -ETIMEDOUT;
		sum += log_sleeper->nanoseconds;
		count++;
	}
	*figure = (double)sum / (double)count / 1000;
	return rc;
}

/* --- a driver's run --- */

workload_inline int log_run(const struct log_ops *ops, void *context,
			    const char *name, double seconds, double *rate)
{
	if (!strcmp(name, "append-100"))
		return log_append_loop(ops, context, LOG_SHORT, false, seconds,
				       rate);
	if (!strcmp(name, "append-100-batch64"))
		return log_append_loop(ops, context, LOG_SHORT,
				       ops->append_batch != NULL, seconds,
				       rate);
	if (!strcmp(name, "append-4k"))
		return log_append_loop(ops, context, LOG_LONG, false, seconds,
				       rate);
	if (!strcmp(name, "read-all"))
		return log_read_loop(ops, context, seconds, rate);
	if (!strcmp(name, LOG_TAIL) && ops->append_awaited)
		return log_tail_loop(ops, context, seconds, rate);
	return -ENOSYS;
}

#endif
