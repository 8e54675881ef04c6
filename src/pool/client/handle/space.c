/* space.c - spaces of a handle: opened, closed, dropped and listed. */
#include "pool/client/handle/space.h"

#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define NAME_MAX_SIZE 255

/* --- opening --- */

int client_space_attach(struct reef *reef, struct client_space *known,
			struct reef_space **out)
{
	struct reef_space *space = calloc(1, sizeof(*space));

	if (!space) {
		pthread_mutex_lock(&reef->client->lock);
		known->refs--;
		pthread_mutex_unlock(&reef->client->lock);
		return -ENOMEM;
	}
	space->reef = reef;
	space->space = known;
	space->returns = atomic_load(&reef->client->returns);
	space->next = reef->spaces;
	reef->spaces = space;
	*out = space;
	return 0;
}

/* Find a space that this process has open already; takes a reference. */
static struct client_space *find_open(struct reef_client *client,
				      const char *name, const char *token)
{
	struct client_space *space;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		if (!space->gone && !space->scratch &&
		    !strcmp(space->name, name) && !strcmp(space->token, token))
			break;
	if (space)
		space->refs++;
	pthread_mutex_unlock(&client->lock);
	return space;
}

static int check_name(const char *name)
{
	size_t size = strlen(name);

	if (!size)
		return -EINVAL;
	return size > NAME_MAX_SIZE ? -ENAMETOOLONG : 0;
}

static int fill_open(struct client_open_job *job, const char *name,
		     const struct reef_space_options *options)
{
	uint32_t flags = options ? options->flags : 0;
	struct reef_ask_space_open *ask = &job->ask;

	ask->kind = name ? REEF_SPACE_SHARED : REEF_SPACE_SCRATCH;
	ask->keeping = flags & REEF_SPACE_REVOCABLE ? REEF_KEEPING_REVOCABLE
						    : REEF_KEEPING_KEPT;
	ask->quota = options ? options->quota : 0;
	ask->copies = options ? options->copies : 0;
	if (!name || flags & REEF_SPACE_CREATE)
		ask->flags |= REEF_POOL_CREATE;
	if (flags & REEF_SPACE_EXCLUSIVE)
		ask->flags |= REEF_POOL_EXCLUSIVE;
	if (flags & REEF_SPACE_STRICT)
		ask->flags |= REEF_POOL_STRICT;
	if (name) {
		job->name = strdup(name);
		if (!job->name)
			return -ENOMEM;
		ask->name =
			(struct reef_text){job->name, (uint16_t)strlen(name)};
	}
	if (!options || !options->token)
		return 0;
	job->token = strdup(options->token);
	return job->token ? client_fill_token(job->token, ask) : -ENOMEM;
}

/* Ask the keeper to open a space, or make it; *out has a reference. */
static int open_by_keeper(struct reef *reef, const char *name,
			  const struct reef_space_options *options,
			  struct client_space **out)
{
	struct client_open_job *job = client_job_create(&client_open_ops);
	int rc;

	if (!job)
		return -ENOMEM;
	rc = fill_open(job, name, options);
	if (rc) {
		client_job_destroy(&job->job);
		return rc;
	}
	rc = client_job_run(reef->client, &reef->member, &job->job);
	if (!rc)
		*out = job->space;
	client_job_unref(&job->job);
	return rc;
}

int reef_space_open(struct reef *reef, const char *name,
		    const struct reef_space_options *options,
		    struct reef_space **out)
{
	const char *token = options && options->token ? options->token : "";
	uint32_t flags = options ? options->flags : 0;
	struct client_space *known = NULL;
	int rc;

	rc = client_handle_check(reef);
	if (!rc && name)
		rc = check_name(name);
	if (!rc &&
	    flags & ~(uint32_t)(REEF_SPACE_CREATE | REEF_SPACE_EXCLUSIVE |
				REEF_SPACE_REVOCABLE | REEF_SPACE_STRICT))
		rc = -EINVAL;
	if (!rc && options &&
	    (options->copies > REEF_COPIES_MAX ||
	     (options->copies > 1 && flags & REEF_SPACE_REVOCABLE)))
		rc = -EINVAL;
	if (rc)
		return rc;
	if (name && !(flags & REEF_SPACE_EXCLUSIVE))
		known = find_open(reef->client, name, token);
	if (!known)
		rc = open_by_keeper(reef, name, options, &known);
	return rc ? rc : client_space_attach(reef, known, out);
}

void reef_space_close(struct reef_space *space)
{
	struct client_space_job *job = NULL;
	struct reef_client *client;
	struct reef_space **at;

	if (!space || client_is_forked(space->reef))
		return;
	client = space->reef->client;
	if (space->heap)
		space->heap->idle = 0;
	client_heap_give_back(space);
	for (at = &space->reef->spaces; *at != space; at = &(*at)->next)
		;
	*at = space->next;
	/* Without memory for the job the space stays until the session ends. */
	if (space->space->scratch || space->space->gone)
		job = client_job_create(&client_close_ops);
	if (job) {
		job->space = space->space;
		client_job_start(client, NULL, &job->job);
		client_job_unref(&job->job);
	} else {
		pthread_mutex_lock(&client->lock);
		space->space->refs--;
		pthread_mutex_unlock(&client->lock);
	}
	free(space->bases);
	free(space);
}

int reef_space_drop(struct reef *reef, const char *name)
{
	struct client_space *known;
	struct client_drop_job *job;
	int rc;

	rc = client_handle_check(reef);
	if (!rc)
		rc = name ? check_name(name) : -EINVAL;
	if (rc)
		return rc;
	job = client_job_create(&client_drop_ops);
	if (!job)
		return -ENOMEM;
	job->name = strdup(name);
	if (!job->name) {
		client_job_destroy(&job->job);
		return -ENOMEM;
	}
	pthread_mutex_lock(&reef->client->lock);
	for (known = reef->client->spaces; known; known = known->next)
		if (!known->gone && !strcmp(known->name, name))
			job->space = known->id;
	pthread_mutex_unlock(&reef->client->lock);
	rc = client_job_run(reef->client, &reef->member, &job->job);
	client_job_unref(&job->job);
	return rc;
}

/* --- listing --- */

static void fill_info(struct reef_space_info *info,
		      const struct reef_row_space *row)
{
	size_t size = row->name.size;

	*info = (struct reef_space_info){
		.id = row->number,
		.scratch = row->kind == REEF_SPACE_SCRATCH,
		.revocable = row->keeping == REEF_KEEPING_REVOCABLE,
		.quota = row->quota,
		.used = row->used,
		.extents = row->extents,
		.copies = (uint8_t)row->copies,
		.degraded = row->degraded,
	};
	if (size >= sizeof(info->name))
		size = sizeof(info->name) - 1;
	if (size)
		memcpy(info->name, row->name.bytes, size);
}

int reef_space_list(struct reef *reef,
		    int (*each)(void *context,
				const struct reef_space_info *info),
		    void *context)
{
	struct reef_body body = {.ask.list.row = REEF_ROW_SPACE};
	struct reef_answer answer = {0};
	struct reef_space_info info;
	struct reef_cursor_in in;
	struct reef_row row;
	uint32_t before;
	bool more;
	int rc;

	rc = client_handle_check(reef);
	if (rc)
		return rc;
	do {
		before = body.ask.list.after;
		rc = reef_client_ask(reef, REEF_POOL_LIST, false, &body,
				     &answer);
		if (rc)
			return rc;
		in = (struct reef_cursor_in){
			.bytes = answer.body.rows,
			.left = answer.body.rows_size,
		};
		while (!rc && (rc = reef_row_decode(&in, &row)) == 1) {
			rc = 0;
			if (row.row != REEF_ROW_SPACE)
				continue;
			body.ask.list.after = row.space.number;
			fill_info(&info, &row.space);
			rc = each(context, &info);
			if (rc)
				break;
		}
		/* A broker whose pages go round in circles is not believed. */
		more = answer.body.reply.list.flags & REEF_POOL_MORE &&
		       body.ask.list.after > before;
		reef_answer_free(&answer);
	} while (!rc && more);
	return rc;
}

struct reef *reef_space_handle(struct reef_space *space)
{
	return space->reef;
}

bool reef_space_is_own(const struct reef_space *space)
{
	return space->space->user == space->reef->client->credential->user;
}

uint32_t reef_space_copies(const struct reef_space *space)
{
	return space->space->copies > 1 ? space->space->copies : 1;
}

uint32_t reef_space_id(const struct reef_space *space)
{
	return space->space->id;
}
