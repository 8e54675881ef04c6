/* client.c - a client's life: create, the keeper's main fiber, its handles.
 *
 *   create --(thread or fiber)--> joining --> joined --last unref--> stopping
 *                                    |                                  |
 *                                    +---- failed ------------------> ended
 */
#include "pool/client/client.h"

#include "base/system/secret.h"
#include "pool/client/handle/handle.h"
#include "pool/client/handle/recover.h"
#include "pool/client/keeper/acknowledge.h"
#include "pool/client/keeper/grace.h"
#include "pool/client/keeper/job.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/renew.h"
#include "pool/client/keeper/settle.h"
#include "pool/client/keeper/view.h"
#include "pool/client/open.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* --- questions to the broker --- */

struct ask_job {
	struct client_job job;
	uint16_t kind;
	bool mutating;
	struct reef_body body;
	struct reef_answer answer;
	char *texts[2]; /* of the body */
};

static int run_ask(struct reef_client *client, struct client_job *base)
{
	struct ask_job *job = (struct ask_job *)base;

	return client_call(client, job->kind, job->mutating, &job->body,
			   &job->answer, client_patience_ns(client));
}

static void fini_ask(struct client_job *base)
{
	struct ask_job *job = (struct ask_job *)base;

	reef_answer_free(&job->answer);
	free(job->texts[0]);
	free(job->texts[1]);
}

static const struct client_job_ops ask_ops = {
	.size = sizeof(struct ask_job),
	.run = run_ask,
	.fini = fini_ask,
};

/* A text of the question becomes the job's own. NULL is fine. */
static int copy_text(struct ask_job *job, uint32_t index,
		     struct reef_text *text)
{
	if (!text || !text->size)
		return 0;
	job->texts[index] = malloc(text->size);
	if (!job->texts[index])
		return -ENOMEM;
	memcpy(job->texts[index], text->bytes, text->size);
	text->bytes = job->texts[index];
	return 0;
}

int reef_client_ask(struct reef *reef, uint16_t kind, bool mutating,
		    const struct reef_body *body, struct reef_answer *answer)
{
	struct ask_job *job;
	uint32_t index;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	job = client_job_create(&ask_ops);
	if (!job)
		return -ENOMEM;
	job->kind = kind;
	job->mutating = mutating;
	job->body = *body;
	for (index = 0; !rc && index < 2; index++)
		rc = copy_text(job, index,
			       reef_ask_text(kind, &job->body.ask, index));
	if (rc) {
		client_job_destroy(&job->job);
		return rc;
	}
	rc = client_job_run(reef->client, &reef->member, &job->job);
	if (!rc && answer) {
		*answer = job->answer;
		job->answer = (struct reef_answer){0};
	}
	client_job_unref(&job->job);
	return rc;
}

/* --- the keeper --- */

static bool keeper_is_needed(const void *what)
{
	struct reef_client *client = (struct reef_client *)what;
	bool is_needed;

	pthread_mutex_lock(&client->lock);
	is_needed = client->jobs || client->stopping ||
		    (atomic_load(&client->hurry_told) && !client->hurry_seen) ||
		    (client_over(client) && !client->over_told);
	pthread_mutex_unlock(&client->lock);
	return is_needed;
}

static void set_joined(struct reef_client *client, int rc)
{
	pthread_mutex_lock(&client->lock);
	atomic_store(&client->joined, rc);
	client_members_wake(client);
	pthread_mutex_unlock(&client->lock);
}

static int handle_request(void *context, const struct reef_request *request,
			  struct reef_body *answer,
			  struct reef_cursor_out *room)
{
	struct reef_client *client = context;

	(void)room;
	/* Only the broker may ask; nodes have no reason to. */
	if (request->peer != client->peer ||
	    request->header.kind != REEF_POOL_RECOVER)
		return -EACCES;
	return client_session_recover(client, request, answer);
}

static int keeper_open(struct reef_client *client)
{
	struct reef_rpc_options options = {
		.handle = handle_request,
		.note = client_note_received,
		.closed = client_peer_closed,
		.context = client,
	};
	int rc;

	rc = reef_port_open(client->options.mesh, client->sched, &client->port);
	if (rc)
		return rc;
	rc = reef_rpc_create(client->port, &options, &client->rpc);
	if (rc)
		return rc;
	pthread_mutex_lock(&client->lock);
	client->wake = reef_port_queue(client->port, 0);
	pthread_mutex_unlock(&client->lock);
	return 0;
}

static void keeper_close(struct reef_client *client)
{
	pthread_mutex_lock(&client->lock);
	client->stopping = true;
	pthread_mutex_unlock(&client->lock);
	client_wake(&client->changed);
	client_jobs_run(client, client_over(client) ? client_over(client)
						    : -REEF_ENOLINK);
	while (client->fibers)
		client_wait(&client->changed, REEF_FOREVER);
	client_heaps_abandon(client);
	client_handle_close(client->inner);
	client->inner = NULL;
	client_leave_pool(client);
	reef_rpc_destroy(client->rpc);
	client->rpc = NULL;
	pthread_mutex_lock(&client->lock);
	client->wake = NULL;
	pthread_mutex_unlock(&client->lock);
	reef_port_close(client->port);
	client->port = NULL;
}

static int keeper_main(void *arg)
{
	struct reef_client *client = arg;
	int rc;

	rc = keeper_open(client);
	if (!rc)
		rc = client_join(client);
	if (!rc)
		rc = client_spawn(client, client_renew_main, client);
	if (!rc)
		rc = client_spawn(client, client_link_main, client);
	if (!rc)
		rc = client_spawn(client, client_grace_main, client);
	if (!rc)
		rc = client_spawn(client, client_acknowledge_main, client);
	if (!rc)
		rc = client_spawn(client, client_collect_main, client);
	if (!rc)
		rc = client_spawn(client, client_settle_main, client);
	if (!rc)
		rc = client_spawn(client, client_tend_main, client);
	set_joined(client, rc);
	while (!rc) {
		rc = reef_queue_wait_until(client->wake, keeper_is_needed,
					   client, REEF_FOREVER);
		if (rc) /* a killed host */
			client_session_end(client, rc);
		if (client_over(client) && !client->over_told) {
			client->over_told = true;
			client_wake(&client->changed);
		}
		if (atomic_load(&client->hurry_told) && !client->hurry_seen) {
			client->hurry_seen = client->renew_now = true;
			client_wake(&client->changed);
		}
		if (client->stopping)
			break;
		client_jobs_run(client, rc);
	}
	/* On a killed host, handles may use links until the last one is
	 * closed. */
	while (rc == -REEF_EHOSTDEAD && !client->stopping) {
		client_wait(&client->changed, CLIENT_MILLISECOND);
		client_jobs_run(client, rc);
	}
	keeper_close(client);
	return 0;
}

static void *thread_main(void *arg)
{
	struct reef_client *client = arg;
	int rc;

	rc = reef_sched_create(NULL, &client->sched);
	if (!rc)
		rc = reef_fiber_spawn(client->sched, keeper_main, client, NULL);
	if (rc)
		set_joined(client, rc);
	else
		reef_sched_run(client->sched);
	reef_sched_destroy(client->sched);
	return NULL;
}

/* The keeper's thread blocks all signals: they are the program's. */
static int start_thread(struct reef_client *client)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	client->threaded = true; /* before the thread, which looks at it */
	rc = -pthread_create(&client->thread, NULL, thread_main, client);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		client->threaded = false;
	return rc;
}

/* --- create, unref --- */

static void free_client(struct reef_client *client)
{
	client_view_free(client);
	reef_secret_destroy(client->credential);
	reef_secret_destroy(client->session_key);
	pthread_mutex_destroy(&client->lock);
	free(client->broker);
	free(client->name);
	free(client->inbox_host);
	free(client);
}

static int create_client(const struct reef_client_options *options,
			 struct reef_client **out)
{
	struct reef_client *client = calloc(1, sizeof(*client));
	uint64_t seed = options->seed;
	int rc = 0;

	if (!client)
		return -ENOMEM;
	reef_grace_init();
	client->options = *options;
	client->credential = reef_secret_create(sizeof(*client->credential));
	client->session_key = reef_secret_create(sizeof(*client->session_key));
	client->broker = strdup(options->broker);
	client->name = strdup(options->name ? options->name : "");
	client->inbox_host =
		strdup(options->inbox_host ? options->inbox_host : "");
	client->forks = reef_fork_generation();
	client->jobs_tail = &client->jobs;
	client->retired_tail = &client->retired;
	atomic_init(&client->refs, 1);
	atomic_init(&client->joined, 1);
	atomic_init(&client->version, 1);
	pthread_mutex_init(&client->lock, NULL);
	if (!seed)
		rc = reef_random_secret(&seed, sizeof(seed));
	reef_random_init(&client->random, seed);
	if (!client->broker || !client->name || !client->inbox_host ||
	    !client->credential || !client->session_key)
		rc = -ENOMEM;
	if (rc) {
		free_client(client);
		return rc;
	}
	*client->credential = *options->credential;
	*out = client;
	return 0;
}

int reef_client_start(const struct reef_client_options *options,
		      struct reef_client **out)
{
	struct reef_client *client;
	int rc;

	if (!options->mesh || !options->broker || !options->credential)
		return -EINVAL;
	rc = create_client(options, &client);
	if (rc)
		return rc;
	client->sched = options->sched;
	if (client->sched)
		rc = reef_fiber_spawn(client->sched, keeper_main, client,
				      &client->fiber);
	else
		rc = start_thread(client);
	if (rc) {
		free_client(client);
		return rc;
	}
	*out = client;
	return 0;
}

int reef_client_create(const struct reef_client_options *options,
		       struct reef_client **out)
{
	struct reef_client *client;
	struct reef *reef;
	int rc;

	rc = reef_client_start(options, &client);
	if (rc)
		return rc;
	/* A handle waits for the join, and costs no message. */
	rc = reef_client_handle(client, &reef);
	if (rc) {
		reef_client_unref(client);
		return rc;
	}
	reef_close(reef);
	*out = client;
	return 0;
}

void reef_client_ref(struct reef_client *client)
{
	atomic_fetch_add(&client->refs, 1);
}

void reef_client_unref(struct reef_client *client)
{
	if (!client || client->forks != reef_fork_generation() ||
	    atomic_fetch_sub(&client->refs, 1) != 1)
		return;
	pthread_mutex_lock(&client->lock);
	client->stopping = true;
	if (client->wake)
		reef_queue_wake(client->wake);
	pthread_mutex_unlock(&client->lock);
	if (client->fiber)
		reef_fiber_join(client->fiber, NULL);
	if (client->threaded)
		pthread_join(client->thread, NULL);
	free_client(client);
}

/* --- handles --- */

static bool is_joined(const void *what)
{
	const struct reef_client *client = what;

	return atomic_load(&client->joined) != 1;
}

int reef_client_handle(struct reef_client *client, struct reef **out)
{
	struct reef *reef;
	int rc;

	if (client->forks != reef_fork_generation())
		return -REEF_EFORKED;
	rc = client_handle_open(client, NULL, &reef);
	if (rc)
		return rc;
	reef_client_ref(client);
	rc = reef_queue_wait_until(reef->member.queue, is_joined, client,
				   REEF_FOREVER);
	if (!rc)
		rc = atomic_load(&client->joined);
	if (rc) {
		reef_close(reef);
		return rc;
	}
	*out = reef;
	return 0;
}

void reef_close(struct reef *reef)
{
	struct reef_client *client;
	struct open_pool *pool;

	if (!reef || client_is_forked(reef))
		return;
	client = reef->client;
	pool = reef->pool;
	client_handle_close(reef);
	reef_client_unref(client);
	if (pool)
		client_pool_release(pool);
}
