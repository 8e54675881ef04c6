/* job.c - what handles ask of the keeper. See job.h. */
#include "pool/client/keeper/job.h"

#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/member.h"

#include <stdlib.h>

/* --- jobs --- */

void *client_job_create(const struct client_job_ops *ops)
{
	struct client_job *job = calloc(1, ops->size);

	if (job) {
		job->ops = ops;
		atomic_init(&job->refs, 2);
	}
	return job;
}

void client_job_destroy(struct client_job *job)
{
	if (job->ops->fini)
		job->ops->fini(job);
	free(job);
}

void client_job_unref(struct client_job *job)
{
	if (job && atomic_fetch_sub(&job->refs, 1) == 1)
		client_job_destroy(job);
}

static void job_end(struct reef_client *client, struct client_job *job,
		    int status)
{
	struct client_member *member;

	job->status = status;
	pthread_mutex_lock(&client->lock);
	/* Release: the partner is job_is_done. */
	atomic_store_explicit(&job->done, true, memory_order_release);
	/* A handle that left (1) is in the list no more. */
	for (member = client->members; member; member = member->next)
		if (member == job->member)
			reef_queue_wake(member->queue);
	pthread_mutex_unlock(&client->lock);
	client_job_unref(job);
}

void client_job_start(struct reef_client *client, struct client_member *member,
		      struct client_job *job)
{
	bool accepted;

	job->member = member;
	job->next = NULL;
	pthread_mutex_lock(&client->lock);
	accepted = client->wake && !client->stopping;
	if (accepted) {
		*client->jobs_tail = job;
		client->jobs_tail = &job->next;
		reef_queue_wake(client->wake);
	}
	pthread_mutex_unlock(&client->lock);
	if (!accepted) {
		int why = client_over(client);

		job_end(client, job, why ? why : -REEF_ENOLINK);
	}
}

static bool job_is_done(const void *what)
{
	const struct client_job *job = what;

	return atomic_load_explicit(&job->done, memory_order_acquire);
}

int client_job_run(struct reef_client *client, struct client_member *member,
		   struct client_job *job)
{
	int rc;

	client_job_start(client, member, job);
	rc = reef_queue_wait_until(member->queue, job_is_done, job,
				   REEF_FOREVER);
	return rc ? rc : job->status;
}

/* --- in the keeper --- */

struct job_fiber {
	struct reef_client *client;
	struct client_job *job;
};

static int job_main(void *arg)
{
	struct job_fiber *fiber = arg;
	struct reef_client *client = fiber->client;
	struct client_job *job = fiber->job;
	int rc = client_over(client);

	free(fiber);
	job_end(client, job, rc ? rc : job->ops->run(client, job));
	client_fiber_end(client);
	return 0;
}

static struct client_job *take_jobs(struct reef_client *client)
{
	struct client_job *jobs;

	pthread_mutex_lock(&client->lock);
	jobs = client->jobs;
	client->jobs = NULL;
	client->jobs_tail = &client->jobs;
	pthread_mutex_unlock(&client->lock);
	return jobs;
}

void client_jobs_run(struct reef_client *client, int status)
{
	struct client_job *job, *next;
	struct job_fiber *fiber;

	for (job = take_jobs(client); job; job = next) {
		next = job->next;
		if (status) {
			job_end(client, job, status);
			continue;
		}
		fiber = malloc(sizeof(*fiber));
		if (fiber)
			*fiber = (struct job_fiber){client, job};
		if (!fiber || client_spawn(client, job_main, fiber)) {
			free(fiber);
			job_end(client, job, -ENOMEM);
		}
	}
}
