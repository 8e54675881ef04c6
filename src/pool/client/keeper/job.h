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

#include "pool/rpc.h"

#include <reef/reef.h>
#include <stdatomic.h>

struct client_space;
struct reef_client;

struct client_job {
	int (*run)(struct reef_client *client, struct client_job *job); /* [k]
									 */
	struct reef *reef; /* who waits; NULL: nobody */
	_Atomic bool done;
	int status;
	_Atomic uint32_t refs; /* who waits, and the keeper */
	/* what for, and what came of it */
	uint16_t kind;
	bool mutating;
	/* touch: what the memory said, and what was used there */
	int why;
	uint32_t node;
	uint64_t number, link_number;
	bool settled; /* out: what was in doubt there happened, or never will */
	uint32_t extent, flags;
	uint64_t size;
	struct client_space *space;
	struct reef_body body;
	struct reef_answer answer;
	char *texts[2];
	struct client_job *next;
};

struct client_job *client_job_create(int (*run)(struct reef_client *client,
						struct client_job *job));
/* Give a job to the keeper. */
void client_job_start(struct reef_client *client, struct reef *reef,
		      struct client_job *job);
void client_job_unref(struct client_job *job); /* NULL is fine */
/* Destroy a job that was never started. */
void client_job_destroy(struct client_job *job);
/* Start a job, wait for its end, return its status; the caller unrefs it. */
int client_job_run(struct reef *reef, struct client_job *job);
/* Begin every job that waits; or, if status is not 0, end it with that. Thread:
 * the keeper's. */
void client_jobs_run(struct reef_client *client, int status);

#endif
