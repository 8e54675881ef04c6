/* job.h - what a handle asks of the keeper.
 *
 *   handle: append, wake the keeper, wait on its own queue
 *   keeper: a fiber runs it; done and wake, under the lock
 *
 * (1) A job has two owners, who waits and the keeper; the last one frees it. So
 *     a waiter that must not go on waiting (a killed host) can leave.
 * (2) The keeper wakes a handle's queue under the lock, which the handle takes
 *     before it closes that queue.
 * (3) Once the keeper has ended, jobs fail at once.
 *
 * Thread: any, unless it says otherwise. */
#ifndef REEF_POOL_CLIENT_KEEPER_JOB_H
#define REEF_POOL_CLIENT_KEEPER_JOB_H

#include <reef/reef.h>
#include <stdatomic.h>
#include <stddef.h>

struct client_job;
struct client_member;
struct reef_client;

/* A kind of job. Its struct begins with a struct client_job, and goes on with
 * what is asked and what came of it. */
struct client_job_ops {
	size_t size; /* of its struct */
	/* Do it, in a fiber of the keeper. Returns the job's status. */
	int (*run)(struct reef_client *client, struct client_job *job);
	/* Free what its struct owns. NULL: nothing. */
	void (*fini)(struct client_job *job);
};

struct client_job {
	const struct client_job_ops *ops;
	struct client_member *member; /* the handle that waits; NULL: none */
	_Atomic bool done;
	int status;
	_Atomic uint32_t refs; /* who waits, and the keeper */
	struct client_job *next;
};

/* A struct of that kind, zeroed but for its job. NULL: no memory. */
void *client_job_create(const struct client_job_ops *ops);
/* Give a job to the keeper. */
void client_job_start(struct reef_client *client, struct client_member *member,
		      struct client_job *job);
void client_job_unref(struct client_job *job); /* NULL is fine */
/* Destroy a job that was never started. */
void client_job_destroy(struct client_job *job);
/* Start a job, wait for its end, return its status; the caller unrefs it. */
int client_job_run(struct reef_client *client, struct client_member *member,
		   struct client_job *job);
/* Begin every job that waits; or, if status is not 0, end it with that. Thread:
 * the keeper's. */
void client_jobs_run(struct reef_client *client, int status);

#endif
