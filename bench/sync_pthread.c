/* sync_pthread.c - what the C library has for processes that share memory: a
 * robust mutex, a read-write lock (which is not robust) and a barrier.
 *
 * Robust: when its holder dies, the next one is told (EOWNERDEAD), as Reef's
 * lock does.
 *
 * Thread: owner. */
#include "sync_bench.h"
#include "sync_work.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

struct theirs { /* in shared memory */
	alignas(64) pthread_mutex_t mutex;
	alignas(64) pthread_rwlock_t rwlock;
	alignas(64) pthread_barrier_t barriers[2];
};
static_assert(sizeof(struct theirs) <= sizeof(((struct crowd_shared *)0)->own),
	      "room");

static const uint32_t barrier_members[2] = {2, 4};

/* --- operations --- */

workload_inline int theirs_take(struct crowd_member *member)
{
	return -pthread_mutex_lock(
		&((struct theirs *)member->shared->own)->mutex);
}

workload_inline int theirs_give(struct crowd_member *member)
{
	return -pthread_mutex_unlock(
		&((struct theirs *)member->shared->own)->mutex);
}

workload_inline int theirs_read(struct crowd_member *member)
{
	return -pthread_rwlock_rdlock(
		&((struct theirs *)member->shared->own)->rwlock);
}

workload_inline int theirs_unread(struct crowd_member *member)
{
	return -pthread_rwlock_unlock(
		&((struct theirs *)member->shared->own)->rwlock);
}

workload_inline int theirs_meet(struct crowd_member *member)
{
	int rc = pthread_barrier_wait(member->context);

	return rc == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : -rc;
}

static const struct sync_ops theirs_ops = {
	.take = theirs_take,
	.give = theirs_give,
	.meet = theirs_meet,
};

static const struct sync_ops theirs_read_ops = {
	.take = theirs_read,
	.give = theirs_unread,
};

/* --- members --- */

static int theirs_ready(struct crowd_member *member, const char *name)
{
	const struct sync_work *work = sync_work_find(name);
	struct theirs *theirs = (struct theirs *)member->shared->own;

	if (!work)
		return -ENOSYS;
	switch (work->object) {
	case SYNC_WORK_SHIFT:
	case SYNC_WORK_SPIN:
	case SYNC_WORK_MCS:
	case SYNC_WORK_READ:
		return 0;
	case SYNC_WORK_BARRIER:
		for (uint32_t i = 0; i < 2; i++)
			if (barrier_members[i] == work->members) {
				member->context = &theirs->barriers[i];
				return 0;
			}
		return -ENOSYS;
	default:
		return -ENOSYS;
	}
}

static int theirs_loop(struct crowd_member *member, const char *name)
{
	if (sync_work_find(name)->object == SYNC_WORK_READ)
		return sync_loop(&theirs_read_ops, member, name);
	return sync_loop(&theirs_ops, member, name);
}

static const struct crowd_ops theirs_crowd = {
	.ready = theirs_ready,
	.loop = theirs_loop,
};

/* --- the driver --- */

static int theirs_init(struct theirs *theirs)
{
	pthread_mutexattr_t mutex;
	pthread_rwlockattr_t rwlock;
	pthread_barrierattr_t barrier;
	int rc;

	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
	rc = pthread_mutex_init(&theirs->mutex, &mutex);
	pthread_rwlockattr_init(&rwlock);
	pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
	rc = rc ? rc : pthread_rwlock_init(&theirs->rwlock, &rwlock);
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = pthread_barrier_init(&theirs->barriers[i], &barrier,
					  barrier_members[i]);
	return -rc;
}

static int sync_pthread_open(struct driver_pair *pair)
{
	struct crowd *crowd;
	int rc = crowd_open(pair, CROWD_MAX, &theirs_crowd, &crowd);

	if (rc)
		return rc;
	rc = theirs_init((struct theirs *)crowd_shared(crowd)->own);
	if (rc) {
		crowd_close(crowd);
		return rc;
	}
	pair->context = crowd;
	strcpy(pair->description,
	       "a process-shared robust mutex, rwlock and barrier");
	return 0;
}

static int sync_pthread_run(struct driver_pair *pair, const char *name,
			    double seconds, double *rate)
{
	return sync_run(pair, pair->context, name, seconds, rate);
}

static void sync_pthread_close(struct driver_pair *pair)
{
	crowd_close(pair->context);
}

const struct driver sync_pthread_driver = {
	.name = "pthread",
	.open = sync_pthread_open,
	.run = sync_pthread_run,
	.close = sync_pthread_close,
};
