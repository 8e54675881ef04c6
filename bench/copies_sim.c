/* copies_sim.c - see copies_sim.h. */
#include "bench/copies_sim.h"

#include "base/histogram.h"
#include "bench/sim_pool.h"
#include "bench/units.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/map.h>
#include <stdlib.h>

#define HOSTS_MAX 16u
#define KEYS 4096u
#define VALUE 64u
#define OPS 4000u    /* at least */
#define OPS_EACH 60u /* of a client */
#define NODES 2u
#define ROUND_TRIP_NS 2000

const char *const copies_lines[COPIES_LINES + 1] = {
	"get, one copy", "get, two", "put, one copy", "put, two", NULL};
const uint64_t copies_points[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};
const uint64_t copies_quick_points[] = {1, 8, 64, 0};

struct field {
	bool puts;
	uint32_t clients, hosts;
	uint32_t loaded, opened; /* of sim_pool_meet */
	struct sim_pool *pool;
	uint64_t done, warm, ops, begin_ns, end_ns;
	uint64_t begin_batches, end_batches;
	struct reef_histogram waits;
};

struct caller {
	struct field *field;
	struct sim_pool_client *host;
	struct reef_map *map;
	struct reef_random random;
	struct reef_map_value value;
	struct reef_fiber *fiber;
	int rc;
};

/* --- calling --- */

static int put_key(struct reef_map *map, uint64_t number)
{
	const uint64_t key[2] = {number, ~number};
	const uint64_t value[VALUE / 8] = {number};

	return reef_map_put(map, key, sizeof(key), value, sizeof(value), 0,
			    NULL);
}

static int call_one(struct caller *caller)
{
	uint64_t number = reef_random_below(&caller->random, KEYS);
	const uint64_t key[2] = {number, ~number};

	return caller->field->puts ? put_key(caller->map, number)
				   : reef_map_get(caller->map, key, sizeof(key),
						  &caller->value);
}

static void count_call(struct field *field, uint64_t began_ns)
{
	uint64_t now_ns = sim_pool_now_ns(field->pool);

	field->done++;
	if (field->done == field->warm) {
		field->begin_ns = now_ns;
		field->begin_batches = sim_pool_counts(field->pool).batches;
	} else if (field->done > field->warm && !field->end_ns) {
		reef_histogram_record(&field->waits, now_ns - began_ns);
	}
	if (field->done == field->warm + field->ops) {
		field->end_ns = now_ns;
		field->end_batches = sim_pool_counts(field->pool).batches;
	}
}

/* --- clients --- */

static int caller_main(void *arg)
{
	struct caller *caller = arg;
	struct field *field = caller->field;
	uint64_t began_ns;
	int rc = sim_pool_meet(&field->opened, field->clients);

	while (!rc && !field->end_ns) {
		began_ns = sim_pool_now_ns(field->pool);
		rc = call_one(caller);
		if (!rc)
			count_call(field, began_ns);
	}
	reef_map_value_free(&caller->value);
	caller->rc = rc;
	return 0;
}

/* The first host puts all keys; each goes through them once, so that it knows
 * where they are. */
static int open_map(struct sim_pool_client *client, struct reef_map **out)
{
	struct field *field = client->context;
	struct reef_map_value value = {0};
	uint64_t key[2];
	int rc = 0;

	while (!rc && client->number && !field->loaded)
		rc = reef_sleep(SECOND / 1000);
	rc = rc ? rc : reef_map_open(client->space, "map", NULL, out);
	for (uint64_t i = 0; !rc && !client->number && i < KEYS; i++)
		rc = put_key(*out, i);
	field->loaded |= !rc;
	for (uint64_t i = 0; !rc && i < KEYS; i++) {
		key[0] = i;
		key[1] = ~i;
		rc = reef_map_get(*out, key, sizeof(key), &value);
	}
	reef_map_value_free(&value);
	return rc;
}

static int host_main(struct sim_pool_client *client)
{
	struct field *field = client->context;
	struct caller *callers = calloc(field->clients, sizeof(*callers));
	struct reef_map *map = NULL;
	int rc = callers ? 0 : -ENOMEM;

	field->pool = client->pool;
	rc = rc ? rc : open_map(client, &map);
	for (uint32_t i = client->number; !rc && i < field->clients;
	     i += field->hosts) {
		callers[i] = (struct caller){
			.field = field,
			.host = client,
			.map = map,
			.random = reef_random_split(&client->random, i),
		};
		rc = reef_fiber_spawn(reef_fiber_sched(), caller_main,
				      &callers[i], &callers[i].fiber);
	}
	for (uint32_t i = 0; callers && i < field->clients; i++) {
		if (!callers[i].fiber)
			continue;
		reef_fiber_join(callers[i].fiber, NULL);
		rc = rc ? rc : callers[i].rc;
	}
	reef_map_close(map);
	free(callers);
	return rc;
}

int copies_line_run(enum copies_line line, uint32_t clients, uint64_t seed,
		    struct copies_result *out)
{
	struct field *field = calloc(1, sizeof(*field));
	struct sim_pool_options options = {
		.cost = {.page_size = 2 * MIB, .round_trip_ns = ROUND_TRIP_NS},
		.seed = seed,
		.nodes = NODES,
		.copies = line == COPIES_GET_TWO || line == COPIES_PUT_TWO ? 2
									   : 1,
		.run = host_main,
		.context = field,
	};
	int rc;

	if (!field)
		return -ENOMEM;
	field->puts = line >= COPIES_PUT_ONE;
	field->clients = clients;
	field->hosts = clients < HOSTS_MAX ? clients : HOSTS_MAX;
	field->ops = OPS + OPS_EACH * clients;
	field->warm = field->ops / 4;
	options.clients = field->hosts;
	rc = sim_pool_run(&options);
	if (!rc)
		*out = (struct copies_result){
			.calls_per_s =
				(double)field->ops * 1e9 /
				(double)(field->end_ns - field->begin_ns),
			.p99_ns = (double)reef_histogram_quantile(&field->waits,
								  0.99),
			.round_trips = (double)(field->end_batches -
						field->begin_batches) /
				       (double)field->ops,
		};
	free(field);
	return rc;
}
