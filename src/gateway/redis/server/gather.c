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

void redis_gather_run(struct redis_thread *thread,
		      const struct redis_command *command, uint32_t count)
{
	const struct redis_gather *gather = thread->gather;

	redis_run_many(thread, command, gather->calls + gather->count, count);
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

/* Run requests of one command in batches of about the same size. */
static void run_calls(struct redis_thread *thread,
		      const struct redis_command *command,
		      const struct redis_call *calls, uint32_t count)
{
	uint32_t batches = (count + REDIS_MANY_MAX - 1) / REDIS_MANY_MAX, some;

	for (; count; count -= some, calls += some, batches--) {
		some = (count + batches - 1) / batches;
		redis_run_many(thread, command, calls, some);
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
