/* space_job.c - what handles ask of the keeper about spaces. See space_job.h.
 */
#include "pool/client/keeper/space_job.h"

#include "pool/client/keeper/view.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define GROW_TRIES 4u /* nodes that may die with a fresh extent */
/* Pauses while no node has come to the pool. */
#define NODE_PAUSE_MIN_NS CLIENT_MILLISECOND
#define NODE_PAUSE_MAX_NS (100 * CLIENT_MILLISECOND)

static struct client_space_job *space_job_of(struct client_job *base)
{
	return (struct client_space_job *)base;
}

/* --- open --- */

static struct client_space *create_space(const char *name, const char *token)
{
	struct client_space *space = calloc(1, sizeof(*space));

	if (!space)
		return NULL;
	space->name = strdup(name ? name : "");
	space->token = strdup(token ? token : "");
	if (!space->name || !space->token) {
		client_space_free(space);
		return NULL;
	}
	return space;
}

/* Locked. */
static struct client_space *find_space(struct reef_client *client, uint32_t id)
{
	struct client_space *space;

	for (space = client->spaces; space; space = space->next)
		if (space->id == id && !space->gone)
			return space;
	return NULL;
}

/* True if a token of these rights is to be kept instead of one of those: it
 * allows all of that, or to write, without which memory is of little use. */
static bool allows_more(uint8_t rights, uint8_t than)
{
	return (rights & than) == than ||
	       (rights & REEF_RIGHT_WRITE && !(than & REEF_RIGHT_WRITE));
}

/* Forget a space that is gone and that no handle has open. If fibers are using
 * spaces just now, it stays until the next one is closed. */
static void forget_space(struct reef_client *client, struct client_space *space)
{
	struct client_space **at;
	bool forget;

	pthread_mutex_lock(&client->lock);
	forget = !space->refs && !client->users &&
		 !client_view_forget_extents(client, space);
	for (at = &client->spaces; forget && *at != space; at = &(*at)->next)
		;
	if (forget)
		*at = space->next;
	pthread_mutex_unlock(&client->lock);
	if (forget)
		client_space_free(space);
}

/* Give a reference back. With the last one a scratch space ends, as nobody can
 * find it again. Other spaces stay open, with their heaps, until the session
 * ends. */
static int release_space(struct reef_client *client, struct client_space *space)
{
	struct reef_body body = {.ask.space_drop.space = space->id};
	struct client_space *next;
	bool unused;
	int rc = 0;

	pthread_mutex_lock(&client->lock);
	unused = !--space->refs;
	pthread_mutex_unlock(&client->lock);
	if (!unused || !(space->scratch || space->gone))
		return 0;
	if (!space->gone) {
		client->users++;
		rc = client_call(client, REEF_POOL_SPACE_DROP, true, &body,
				 NULL, client_patience_ns(client));
		client_view_lose_space(client, space);
		client->users--;
	}
	for (space = client->spaces; space; space = next) {
		next = space->next;
		if (space->gone)
			forget_space(client, space);
	}
	return rc;
}

/* Take in the answer that opens a space. */
static int note_opened(struct reef_client *client, struct client_open_job *job,
		       const struct reef_answer *answer)
{
	const struct reef_reply_space_open *reply =
		&answer->body.reply.space_open;
	struct client_space *space,
		*fresh = create_space(job->name, job->token);
	bool gained = false;
	int rc;

	if (!fresh)
		return -ENOMEM;
	pthread_mutex_lock(&client->lock);
	space = find_space(client, reply->space);
	if (!space) {
		space = fresh;
		fresh = NULL;
		space->id = reply->space;
		space->scratch = reply->kind == REEF_SPACE_SCRATCH;
		space->user = reply->user;
		space->copies = (uint8_t)reply->copies;
		space->next = client->spaces;
		client->spaces = space;
	}
	space->refs++;
	/* Rights are the session's: what one handle may do, all may. */
	if (space->rights != (space->rights | reply->rights)) {
		/* Whichever token allows more is shown to the next broker. */
		if (fresh && allows_more(reply->rights, space->rights)) {
			char *token = space->token;

			space->token = fresh->token;
			fresh->token = token;
		}
		gained = space->rights != 0;
		space->rights |= reply->rights;
		client_view_bump(client);
	}
	pthread_mutex_unlock(&client->lock);
	if (fresh)
		client_space_free(fresh);
	rc = client_view_apply_rows(client, space, &answer->body, NULL);
	/* With more rights come other keys, also for extents that were told. */
	if (!rc && (gained || reply->flags & REEF_POOL_MORE)) {
		rc = client_view_refresh(client, space,
					 client_patience_ns(client));
	} else if (!rc) {
		space->version = reply->version;
		space->version_rights = space->rights;
	}
	job->space = space;
	return rc;
}

static int run_open(struct reef_client *client, struct client_job *base)
{
	struct client_open_job *job = (struct client_open_job *)base;
	struct reef_body body = {.ask.space_open = job->ask};
	uint64_t pool_epoch = client->pool_epoch;
	struct reef_answer answer = {0};
	int rc;

	rc = client_call(client, REEF_POOL_SPACE_OPEN, true, &body, &answer,
			 client_patience_ns(client));
	explicit_bzero(&body, sizeof(body));
	if (rc)
		return rc;
	/* A later pool epoch was seen meanwhile, and taken in without this
	 * space: rows from before it are left out, and asked for anew. */
	if (client->pool_epoch != pool_epoch) {
		answer.body.rows_size = 0;
		answer.body.reply.space_open.flags |= REEF_POOL_MORE;
	}
	rc = note_opened(client, job, &answer);
	reef_answer_free(&answer);
	/* Whoever asked has no space, and so nothing to give back. */
	if (rc && job->space) {
		(void)release_space(client, job->space);
		job->space = NULL;
	}
	return rc;
}

static void fini_open(struct client_job *base)
{
	struct client_open_job *job = (struct client_open_job *)base;

	explicit_bzero(&job->ask, sizeof(job->ask));
	free(job->name);
	free(job->token);
}

const struct client_job_ops client_open_ops = {
	.size = sizeof(struct client_open_job),
	.run = run_open,
	.fini = fini_open,
};

/* --- close --- */

/* A handle has closed a scratch space, or one that is gone, and its reference
 * is the job's now. */
static int run_close(struct reef_client *client, struct client_job *base)
{
	return release_space(client, space_job_of(base)->space);
}

const struct client_job_ops client_close_ops = {
	.size = sizeof(struct client_space_job),
	.run = run_close,
};

/* --- drop --- */

/* The number of the space of that name, which has to be opened for that. */
static int find_number(struct reef_client *client, const char *name,
		       uint32_t *space)
{
	struct reef_body body = {
		.ask.space_open = {.kind = REEF_SPACE_SHARED,
				   .keeping = REEF_KEEPING_KEPT,
				   .name = {name, (uint16_t)strlen(name)}},
	};
	struct reef_answer answer = {0};
	int rc;

	rc = client_call(client, REEF_POOL_SPACE_OPEN, true, &body, &answer,
			 client_patience_ns(client));
	if (rc)
		return rc;
	*space = answer.body.reply.space_open.space;
	reef_answer_free(&answer);
	return 0;
}

static int run_drop(struct reef_client *client, struct client_job *base)
{
	struct client_drop_job *job = (struct client_drop_job *)base;
	struct reef_body body = {0};
	struct client_space *space;
	int rc;

	if (!job->space) {
		rc = find_number(client, job->name, &job->space);
		if (rc)
			return rc;
	}
	body.ask.space_drop.space = job->space;
	rc = client_call(client, REEF_POOL_SPACE_DROP, true, &body, NULL,
			 client_patience_ns(client));
	if (rc && rc != -ENOENT)
		return rc;
	for (space = client->spaces; space; space = space->next)
		if (space->id == job->space && !space->gone)
			client_view_lose_space(client, space);
	return rc;
}

static void fini_drop(struct client_job *base)
{
	free(((struct client_drop_job *)base)->name);
}

const struct client_job_ops client_drop_ops = {
	.size = sizeof(struct client_drop_job),
	.run = run_drop,
	.fini = fini_drop,
};

/* --- grow --- */

/* The latest extent of a space that the view has; 0: it has none. */
static uint32_t find_latest(struct reef_client *client,
			    const struct client_space *space)
{
	const struct client_extent *extent;
	uint32_t latest = 0;

	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->space == space && !extent->is_twin &&
		    extent->extent > latest)
			latest = extent->extent;
	}
	pthread_mutex_unlock(&client->lock);
	return latest;
}

/* -EAGAIN: no node has come to the pool yet.  -ESTALE: an extent was added, and
 * lost with its node at once. */
static int add_one(struct reef_client *client, struct client_grow_job *job)
{
	struct reef_body body = {
		.ask.extent_add = {job->space->id, job->size,
				   find_latest(client, job->space) + 1},
	};
	struct client_extent *extent;
	struct reef_answer answer = {0};
	int rc;

	if (job->space->gone)
		return -REEF_ELOST;
	rc = client_call(client, REEF_POOL_EXTENT_ADD, true, &body, &answer,
			 client_patience_ns(client));
	if (rc == -ENOENT)
		rc = -REEF_ELOST;
	if (rc)
		return rc;
	rc = client_view_apply_rows(client, job->space, &answer.body, &extent);
	reef_answer_free(&answer);
	if (!rc && !extent)
		rc = -REEF_EPROTO;
	if (!rc && extent->state == REEF_EXTENT_LOST)
		rc = -ESTALE;
	if (!rc) {
		job->extent = extent->extent;
		job->size = extent->size;
	}
	return rc;
}

/* A pool without nodes is not full: the first may be about to come. Between
 * the questions this client's other requests have their turn. */
static int add_patiently(struct reef_client *client,
			 struct client_grow_job *job)
{
	uint64_t until_ns = reef_now_ns() + client_patience_ns(client);
	uint64_t pause_ns = NODE_PAUSE_MIN_NS;
	int rc;

	while ((rc = add_one(client, job)) == -EAGAIN) {
		if (reef_now_ns() >= until_ns || client->stopping)
			return -ENOSPC;
		rc = reef_sleep(pause_ns);
		if (rc)
			return rc;
		if (pause_ns < NODE_PAUSE_MAX_NS)
			pause_ns *= 2;
	}
	return rc;
}

static int run_grow(struct reef_client *client, struct client_job *base)
{
	struct client_grow_job *job = (struct client_grow_job *)base;
	uint32_t tries;
	int rc = -ESTALE;

	for (tries = 0; tries < GROW_TRIES && rc == -ESTALE; tries++)
		rc = add_patiently(client, job);
	/* Others may have grown the space, which is news to us. */
	if (rc == -ENOSPC || rc == -EDQUOT)
		client_view_refresh(client, job->space,
				    client_patience_ns(client));
	return rc == -ESTALE ? -REEF_ELOST : rc;
}

const struct client_job_ops client_grow_ops = {
	.size = sizeof(struct client_grow_job),
	.run = run_grow,
};

/* --- shrink --- */

static int run_shrink(struct reef_client *client, struct client_job *base)
{
	struct client_shrink_job *job = (struct client_shrink_job *)base;
	struct reef_body body = {
		.ask.extent_remove = {job->space->id, job->extent},
	};
	int rc;

	rc = client_call(client, REEF_POOL_EXTENT_REMOVE, true, &body, NULL,
			 client_patience_ns(client));
	if (rc && rc != -ENOENT)
		return rc;
	client_view_remove_extent(client, job->extent);
	return 0;
}

const struct client_job_ops client_shrink_ops = {
	.size = sizeof(struct client_shrink_job),
	.run = run_shrink,
};

/* --- restore --- */

/* The space is not scratch any more, and has a name. */
static void note_named(struct reef_client *client,
		       struct client_restore_job *job)
{
	char *before = job->space->name;

	pthread_mutex_lock(&client->lock);
	job->space->name = job->name;
	job->space->scratch = false;
	job->name = before;
	pthread_mutex_unlock(&client->lock);
}

static int run_restore(struct reef_client *client, struct client_job *base)
{
	struct client_restore_job *job = (struct client_restore_job *)base;
	struct reef_body body = {.ask.space_restore = job->ask};
	struct client_extent *extent = NULL;
	struct reef_answer answer = {0};
	int rc;

	body.ask.space_restore.space = job->space->id;
	if (job->name)
		body.ask.space_restore.name = reef_text_of(job->name);
	rc = client_call(client, REEF_POOL_SPACE_RESTORE, true, &body, &answer,
			 client_patience_ns(client));
	if (rc)
		return rc;
	if (answer.body.rows_size)
		rc = client_view_apply_rows(client, job->space, &answer.body,
					    &extent);
	reef_answer_free(&answer);
	if (!rc && job->ask.step == REEF_RESTORE_EXTENT && !extent)
		rc = -REEF_EPROTO;
	if (!rc && job->ask.step == REEF_RESTORE_NAME)
		note_named(client, job);
	return rc;
}

static void fini_restore(struct client_job *base)
{
	free(((struct client_restore_job *)base)->name);
}

const struct client_job_ops client_restore_ops = {
	.size = sizeof(struct client_restore_job),
	.run = run_restore,
	.fini = fini_restore,
};

/* --- refresh --- */

static int run_refresh(struct reef_client *client, struct client_job *base)
{
	return client_view_refresh(client, space_job_of(base)->space,
				   client_patience_ns(client));
}

const struct client_job_ops client_refresh_ops = {
	.size = sizeof(struct client_space_job),
	.run = run_refresh,
};
