/* gather.c - see gather.h. */
#include "gateway/redis/server/gather.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int redis_gather_create(struct redis_gather **out)
{
	struct redis_gather *gather = calloc(1, sizeof(*gather));

	if (!gather)
		return -ENOMEM;
	*out = gather;
	return 0;
}

void redis_gather_destroy(struct redis_gather *gather)
{
	free(gather);
}

/* --- a run --- */

void redis_gather_read(struct redis_gather *gather, struct redis_client *client,
		       const struct redis_request *request, uint32_t index)
{
	const uint32_t at = gather->count + index;
	struct redis_bytes *argv = gather->argv[at];

	reef_assert(index < REDIS_MANY_MAX && !request->is_big);
	memcpy(argv, request->argv, request->argc * sizeof(*argv));
	gather->calls[at].client = client;
	gather->calls[at].request.argc = request->argc;
	gather->calls[at].request.argv = argv;
}

/* --- what is put off --- */

struct redis_later {
	const struct redis_command *command;
	uint32_t count;
	size_t size; /* of the whole */
	struct redis_bytes argv[REDIS_MANY_MAX][REDIS_MANY_ARGC_MAX];
	uint32_t argc[REDIS_MANY_MAX];
	char bytes[];
};

void redis_later_free(struct redis_client *client)
{
	free(client->later);
	client->later = NULL;
}

size_t redis_later_memory(const struct redis_client *client)
{
	return client->later ? client->later->size : 0;
}

static size_t size_of_call(const struct redis_call *call)
{
	size_t size = 0;
	uint32_t i;

	for (i = 0; i < call->request.argc; i++)
		size += call->request.argv[i].size;
	return size;
}

static char *copy_call(struct redis_later *later, const struct redis_call *call,
		       char *to)
{
	struct redis_bytes *argv = later->argv[later->count];
	const struct redis_request *request = &call->request;
	uint32_t i;

	for (i = 0; i < request->argc; i++) {
		argv[i] = (struct redis_bytes){to, request->argv[i].size};
		memcpy(to, request->argv[i].bytes, request->argv[i].size);
		to += request->argv[i].size;
	}
	later->argc[later->count++] = request->argc;
	return to;
}

/* Copy the calls that were left of one client, from the first on. */
static void put_off(const struct redis_command *command,
		    const struct redis_call *calls, uint32_t count)
{
	struct redis_client *client = calls->client;
	struct redis_later *later;
	size_t size = sizeof(*later);
	uint32_t i;
	char *to;

	for (i = 0; i < count; i++)
		if (calls[i].client == client && calls[i].is_left)
			size += size_of_call(&calls[i]);
	reef_assert(!client->later);
	later = malloc(size);
	if (!later) {
		client->is_dead = client->thread->has_killed = true;
		return;
	}
	later->command = command;
	later->count = 0;
	later->size = size;
	to = later->bytes;
	for (i = 0; i < count; i++)
		if (calls[i].client == client && calls[i].is_left)
			to = copy_call(later, &calls[i], to);
	client->later = later;
}

static void run_some(struct redis_thread *thread,
		     const struct redis_command *command,
		     struct redis_call *calls, uint32_t count)
{
	uint32_t i;

	redis_run_many(thread, command, calls, count);
	for (i = 0; i < count; i++)
		if (calls[i].is_left && !calls[i].client->later &&
		    !calls[i].client->is_dead)
			put_off(command, calls + i, count - i);
}

void redis_later_run(struct redis_client *client)
{
	struct redis_call calls[REDIS_MANY_MAX];
	struct redis_later *later = client->later;
	uint32_t i;

	client->later = NULL;
	for (i = 0; i < later->count; i++)
		calls[i] = (struct redis_call){
			.client = client,
			.request = {.argc = later->argc[i],
				    .argv = later->argv[i]},
		};
	run_some(client->thread, later->command, calls, later->count);
	free(later);
}

void redis_gather_run(struct redis_thread *thread,
		      const struct redis_command *command, uint32_t count)
{
	struct redis_gather *gather = thread->gather;

	run_some(thread, command, gather->calls + gather->count, count);
}

/* --- those that wait --- */

static size_t size_of_run(const struct redis_gather *gather, uint32_t count)
{
	size_t size = 0;
	uint32_t i, j;

	for (i = 0; i < count; i++) {
		const uint32_t at = gather->count + i;

		for (j = 1; j < gather->calls[at].request.argc; j++)
			size += gather->argv[at][j].size;
	}
	return size;
}

static void copy_arguments(struct redis_gather *gather, uint32_t at)
{
	uint32_t i;

	/* The name is not copied: it is that of the command. */
	for (i = 1; i < gather->calls[at].request.argc; i++) {
		struct redis_bytes *bytes = &gather->argv[at][i];
		char *to = gather->bytes + gather->used;

		memcpy(to, bytes->bytes, bytes->size);
		bytes->bytes = to;
		gather->used += bytes->size;
	}
}

bool redis_gather_keep(struct redis_gather *gather,
		       const struct redis_command *command, uint32_t count)
{
	struct redis_client *client = gather->calls[gather->count].client;
	const char *name = redis_command_name(command);
	uint32_t i;

	if (count > REDIS_GATHER_RUN_MAX ||
	    size_of_run(gather, count) > REDIS_GATHER_RUN_SIZE)
		return false;
	reef_assert(!redis_gather_is_full(gather) && !client->is_gathered);
	gather->runs[gather->run_count].client = client;
	gather->runs[gather->run_count].command = command;
	gather->runs[gather->run_count].first = gather->count;
	gather->runs[gather->run_count].count = count;
	gather->runs[gather->run_count].is_done = false;
	gather->run_count++;
	for (i = 0; i < count; i++) {
		copy_arguments(gather, gather->count);
		gather->argv[gather->count][0] =
			(struct redis_bytes){name, strlen(name)};
		gather->count++;
	}
	client->is_gathered = true;
	return true;
}

/* Run requests of one command in batches of about the same size. The requests
 * of one client stay together: what is behind one that is left must wait. */
static void run_calls(struct redis_thread *thread,
		      const struct redis_command *command,
		      struct redis_call *calls, uint32_t count)
{
	uint32_t batches, some;

	for (; count; count -= some, calls += some) {
		batches = (count + REDIS_MANY_MAX - 1) / REDIS_MANY_MAX;
		some = (count + batches - 1) / batches;
		while (some < count &&
		       calls[some].client == calls[some - 1].client)
			some--;
		run_some(thread, command, calls, some);
	}
}

/* Do a run, and those behind it that have the same command and database. */
static void run_alike(struct redis_thread *thread, uint32_t first)
{
	struct redis_gather *gather = thread->gather;
	const struct redis_command *command = gather->runs[first].command;
	const uint32_t db = gather->runs[first].client->db;
	struct redis_call calls[2 * REDIS_MANY_MAX];
	uint32_t i, count = 0;

	for (i = first; i < gather->run_count; i++) {
		if (gather->runs[i].is_done ||
		    gather->runs[i].command != command ||
		    gather->runs[i].client->db != db)
			continue;
		gather->runs[i].is_done = true;
		memcpy(calls + count, gather->calls + gather->runs[i].first,
		       gather->runs[i].count * sizeof(calls[0]));
		count += gather->runs[i].count;
	}
	run_calls(thread, command, calls, count);
}

uint32_t redis_gather_run_all(struct redis_thread *thread,
			      struct redis_client *clients[REDIS_MANY_MAX])
{
	struct redis_gather *gather = thread->gather;
	uint32_t i, count = gather->run_count;

	for (i = 0; i < count; i++) {
		clients[i] = gather->runs[i].client;
		clients[i]->is_gathered = false;
		/* Nothing is done for a client after it was killed: whoever
		 * killed it relies on that. */
		if (clients[i]->is_dead)
			gather->runs[i].is_done = true;
	}
	for (i = 0; i < count; i++)
		if (!gather->runs[i].is_done)
			run_alike(thread, i);
	gather->count = gather->run_count = 0;
	gather->used = 0;
	return count;
}
