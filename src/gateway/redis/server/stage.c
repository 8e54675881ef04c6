/* stage.c - see stage.h. */
#include "gateway/redis/server/stage.h"

#include "kv/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MIN (128u << 10)
#define STAGED_MAX (UINT64_C(64) << 20)
#define TURN_MAX (4 << 20) /* bytes received in one turn */
#define LONGEST_NS UINT64_C(1000000000)

struct redis_stage {
	struct redis_thread *thread;
	struct map_stage *below;
	size_t size;
	uint64_t began_ns;
};

/* --- for the parser --- */

static bool is_plain(const struct redis_client *client,
		     const struct redis_parser *parser, size_t value_size)
{
	const struct redis_thread *thread = client->thread;

	return parser->argc == 2 && redis_bytes_is(&parser->argv[0], "set") &&
	       value_size >= VALUE_MIN && client->is_authenticated &&
	       !client->tls && !client->transaction && !client->watches &&
	       thread->staged_bytes + value_size <= STAGED_MAX &&
	       thread->maps[client->db] && !thread->has_dropped_map &&
	       !thread->is_fenced && thread->now_ns >= thread->away_until_ns;
}

static struct redis_stage *stage_begin(void *context,
				       const struct redis_parser *parser,
				       size_t size, const char *bytes,
				       size_t here)
{
	struct redis_client *client = context;
	struct redis_thread *thread = client->thread;
	struct redis_stage *stage;

	if (!is_plain(client, parser, size - 2))
		return NULL;
	stage = calloc(1, sizeof(*stage));
	if (!stage)
		return NULL;
	*stage = (struct redis_stage){
		.thread = thread, .size = size, .began_ns = thread->now_ns};
	if (map_stage_begin(thread->maps[client->db], parser->argv[1].size,
			    size - 2, 2, &stage->below)) {
		free(stage);
		return NULL;
	}
	thread->staged_bytes += size;
	map_stage_add(stage->below, bytes, here);
	return stage;
}

static int stage_read(struct redis_stage *stage, void *to)
{
	return map_stage_read(stage->below, to);
}

static void stage_end(struct redis_stage *stage)
{
	stage->thread->staged_bytes -= stage->size;
	map_stage_end(stage->below);
	free(stage);
}

/* --- for the thread --- */

/* As long as there are bytes, and others need not wait long. */
ssize_t redis_stage_receive(struct redis_client *client)
{
	return map_stage_receive(client->parser.stage->below, client->fd,
				 TURN_MAX);
}

int redis_stage_put(const struct redis_request *request, struct reef_map *map,
		    uint64_t expires_ms)
{
	return map_stage_put(request->staged->below, map,
			     request->argv[1].bytes, expires_ms);
}

void redis_stage_clear(struct redis_thread *thread, bool all)
{
	struct redis_client *client;
	const struct redis_stage *stage;

	for (client = thread->clients; client; client = client->next) {
		stage = client->parser.stage;
		if (!stage ||
		    (!all && thread->now_ns - stage->began_ns < LONGEST_NS))
			continue;
		if (!redis_parser_unstage(&client->parser))
			continue;
		redis_parser_fini(&client->parser);
		client->is_dead = thread->has_killed = true;
	}
}

const struct redis_staging redis_staging = {
	.begin = stage_begin,
	.read = stage_read,
	.end = stage_end,
};
