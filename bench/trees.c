/* trees.c - see trees.h.
 *
 *   host 0 loads the keys --> every host reads all leaves once --> for each
 *   number of clients: all hosts meet, their clients work, all meet again */
#include "bench/trees.h"

#include "bench/sim_pool.h"
#include "bench/trees_run.h"
#include "bench/units.h"
#include "kv/seed.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/key.h>
#include <reef/tree.h>
#include <stdlib.h>
#include <string.h>

#define KEY 8u
#define VALUE_MAX 256u
#define CLIENTS_MAX 4096u
#define LOAD 64u     /* keys at once */
#define WARM_EVERY 8 /* keys: more than one of each leaf */

/* --- hosts and clients --- */

struct worker {
	struct trees_host *host;
	struct trees_meter *meter;
	struct reef_random random;
	struct reef_fiber *fiber;
	int rc;
};

static void fill_result(struct trees_host *host, uint32_t point)
{
	struct trees_field *field = host->field;
	struct trees_meter *meter = &field->meters[point];
	struct reef_counts after = field->counts(field);
	struct reef_counts counts = reef_counts_between(&meter->before, &after);
	uint64_t end_ns = field->now_ns(field);
	double ops = (double)meter->ops;

	field->results[point] = (struct trees_result){
		.ops_per_s = ops * 1e9 / (double)(end_ns - meter->begin_ns),
		.p50_ns = (double)reef_histogram_quantile(&meter->waits, 0.5),
		.p99_ns = (double)reef_histogram_quantile(&meter->waits, 0.99),
		.round_trips = (double)counts.round_trips / ops,
		.operations = (double)counts.memory_operations / ops,
		.bytes_in = (double)counts.bytes_in / ops,
		.bytes_out = (double)counts.bytes_out / ops,
		.cache = host->cache(host) / field->load.keys,
	};
}

static void count_step(struct worker *worker, uint64_t began_ns)
{
	struct trees_field *field = worker->host->field;
	struct trees_meter *meter = worker->meter;
	uint64_t now_ns = field->now_ns(field);

	meter->done++;
	if (meter->done == meter->warm) {
		meter->begin_ns = now_ns;
		meter->before = field->counts(field);
	} else if (meter->done > meter->warm) {
		reef_histogram_record(&meter->waits, now_ns - began_ns);
	}
	if (meter->done == meter->warm + meter->ops)
		fill_result(worker->host, (uint32_t)(meter - field->meters));
}

static int worker_main(void *arg)
{
	struct worker *worker = arg;
	struct trees_field *field = worker->host->field;
	struct trees_meter *meter = worker->meter;
	uint64_t began_ns;

	/* Clients do not begin in the same nanosecond. */
	worker->rc = reef_sleep(reef_random_below(&worker->random, 4000));
	while (!worker->rc && meter->done < meter->warm + meter->ops) {
		began_ns = field->now_ns(field);
		worker->rc = worker->host->step(worker->host, &worker->random);
		if (!worker->rc)
			count_step(worker, began_ns);
	}
	return 0;
}

static int run_point(struct trees_host *host, uint32_t point)
{
	struct trees_field *field = host->field;
	uint32_t clients = (uint32_t)field->load.clients[point];
	struct worker *workers = calloc(clients, sizeof(*workers));
	struct reef_random random;
	int rc = workers ? 0 : -ENOMEM;

	reef_random_init(&random, field->load.seed + point);
	for (uint32_t i = host->number; !rc && i < clients;
	     i += field->load.hosts) {
		workers[i].host = host;
		workers[i].meter = &field->meters[point];
		workers[i].random = reef_random_split(&random, i);
		rc = reef_fiber_spawn(reef_fiber_sched(), worker_main,
				      &workers[i], &workers[i].fiber);
	}
	for (uint32_t i = 0; workers && i < clients; i++) {
		if (!workers[i].fiber)
			continue;
		reef_fiber_join(workers[i].fiber, NULL);
		rc = rc ? rc : workers[i].rc;
	}
	free(workers);
	return rc;
}

/* Hosts notice that all have come up to a millisecond after each other; they
 * begin at the same moment, for else some are measured without the others. */
static int begin_together(const struct trees_field *field,
			  struct trees_meter *meter)
{
	int rc = sim_pool_meet(&meter->began, field->load.hosts);

	if (!meter->start_ns)
		meter->start_ns = field->now_ns(field) + SECOND / 500;
	return rc ? rc : reef_sleep(meter->start_ns - field->now_ns(field));
}

int trees_host_run(struct trees_host *host)
{
	struct trees_field *field = host->field;
	int rc = 0;

	for (uint32_t p = 0; !rc && p < field->points; p++) {
		struct trees_meter *meter = &field->meters[p];

		rc = begin_together(field, meter);
		if (!rc)
			rc = run_point(host, p);
		if (!rc)
			rc = sim_pool_meet(&meter->ended, field->load.hosts);
	}
	return rc;
}

/* --- our tree --- */

struct ours {
	struct reef_tree *tree;
};

/* The key of a number; neighbours in number are far from each other. */
static void key_of(uint64_t number, uint8_t key[KEY])
{
	uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

	mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	reef_key_u64(key, mixed ^ mixed >> 31);
}

static int ours_step(struct trees_host *host, struct reef_random *random)
{
	static const uint8_t value[VALUE_MAX];
	struct trees_field *field = host->field;
	uint32_t size = field->load.value_size;
	struct ours *ours = host->index;
	struct reef_map_value found = {0};
	uint8_t key[KEY];
	int rc;

	if (field->load.work == TREES_INSERT) {
		key_of(field->load.keys + field->inserted++, key);
		return reef_tree_insert(ours->tree, key, KEY, value, size, 0,
					NULL);
	}
	key_of(reef_random_below(random, field->load.keys), key);
	if (field->load.work == TREES_UPDATE)
		return reef_tree_update(ours->tree, key, KEY, value, size, 0,
					NULL);
	rc = reef_tree_get(ours->tree, key, KEY, &found);
	if (!rc && found.size != size)
		rc = -EBADMSG;
	reef_map_value_free(&found);
	return rc;
}

static double ours_cache(struct trees_host *host)
{
	struct ours *ours = host->index;
	struct reef_tree_stats stats = {0};

	return reef_tree_stats(ours->tree, &stats) ? 0
						   : (double)stats.cache_bytes;
}

static int load_keys(struct trees_field *field, struct reef_tree *tree)
{
	static uint8_t value[VALUE_MAX];
	struct reef_map_item items[LOAD];
	uint8_t keys[LOAD][KEY];
	uint32_t count;
	int rc = 0;

	for (uint32_t at = 0; !rc && at < field->load.keys; at += count) {
		for (count = 0; count < LOAD && at + count < field->load.keys;
		     count++) {
			key_of(at + count, keys[count]);
			items[count] = (struct reef_map_item){
				.key = keys[count],
				.key_size = KEY,
				.value.bytes = value,
				.value.size = field->load.value_size,
			};
		}
		rc = reef_tree_put_many(tree, items, count);
		for (uint32_t i = 0; !rc && i < count; i++)
			rc = items[i].status;
	}
	return rc;
}

static int by_bytes(const void *a, const void *b)
{
	return memcmp(a, b, KEY);
}

/* Read keys of all leaves, from the least to the greatest. */
static int read_leaves(struct trees_field *field, struct reef_tree *tree)
{
	uint32_t count = field->load.keys;
	struct reef_map_value found = {0};
	uint8_t(*keys)[KEY] = calloc(count, KEY);
	int rc = keys ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < count; i++)
		key_of(i, keys[i]);
	if (!rc)
		qsort(keys, count, KEY, by_bytes);
	for (uint32_t i = 0; !rc && i < count; i += WARM_EVERY)
		rc = reef_tree_get(tree, keys[i], KEY, &found);
	reef_map_value_free(&found);
	free(keys);
	return rc;
}

static int ours_main(struct sim_pool_client *client)
{
	struct trees_field *field = client->context;
	const struct reef_tree_options options = {
		.cache_bytes = (uint64_t)(field->load.cache * field->load.keys),
	};
	struct ours ours = {0};
	struct trees_host host = {
		.field = field,
		.number = client->number,
		.step = ours_step,
		.cache = ours_cache,
		.index = &ours,
	};
	uint32_t *loaded = &field->meters[field->points].began;
	int rc = 0;

	field->place = client->pool;
	/* Hosts come one after the other: together each would find the memory
	 * used up and add to it. */
	while (!rc && *loaded < client->number)
		rc = reef_sleep(SECOND / 10000);
	if (!rc)
		rc = reef_tree_open(client->space, "tree", &options,
				    &ours.tree);
	if (!rc && !client->number)
		rc = load_keys(field, ours.tree);
	if (!rc)
		rc = read_leaves(field, ours.tree);
	++*loaded;
	if (!rc)
		rc = trees_host_run(&host);
	reef_tree_close(ours.tree);
	return rc;
}

static uint64_t pool_now_ns(const struct trees_field *field)
{
	return sim_pool_now_ns(field->place);
}

static struct reef_counts pool_counts(const struct trees_field *field)
{
	return sim_pool_counts(field->place);
}

static int ours_run(struct trees_field *field)
{
	const struct sim_pool_options options = {
		.cost = field->load.cost,
		.seed = field->load.seed,
		.clients = field->load.hosts,
		.run = ours_main,
		.context = field,
	};
	int rc;

	field->now_ns = pool_now_ns;
	field->counts = pool_counts;
	tree_seed = field->load.seed + 1;
	rc = sim_pool_run(&options);
	tree_seed = 0;
	return rc;
}

/* --- around it --- */

static int fill_defaults(struct trees_field *field)
{
	struct trees_load *load = &field->load;

	if (!load->hosts)
		load->hosts = 8;
	/* Translations of small pages would outgrow the NIC's cache where the
	 * memory is large, and that is the models'. */
	if (!load->cost.page_size)
		load->cost.page_size = 2 * MIB;
	if (!load->keys)
		load->keys = 100000;
	if (!load->value_size)
		load->value_size = 8;
	if (load->cache <= 0)
		load->cache = 16;
	while (load->clients[field->points]) {
		if (load->clients[field->points] > CLIENTS_MAX ||
		    field->points == TREES_POINTS_MAX)
			return -EINVAL;
		field->points++;
	}
	return load->value_size > VALUE_MAX ? -EINVAL : 0;
}

int trees_run(const struct trees_load *load, struct trees_result *out)
{
	struct trees_field field = {.load = *load, .results = out};
	int rc = fill_defaults(&field);

	if (rc)
		return rc;
	field.meters = calloc(field.points + 1, sizeof(field.meters[0]));
	if (!field.meters)
		return -ENOMEM;
	for (uint32_t p = 0; p < field.points; p++) {
		field.meters[p].warm = 500 + 20 * load->clients[p];
		field.meters[p].ops = 2000 + 40 * load->clients[p];
		reef_histogram_init(&field.meters[p].waits);
	}
	rc = load->index == TREES_REEF ? ours_run(&field)
				       : tree_models_run(&field);
	free(field.meters);
	return rc;
}

/* --- studies --- */

const char *const trees_lines[TREES_LINES + 1] = {
	"reef", "Sherman (model)", "CHIME (model)", "DMTree (model)", NULL};

const uint64_t trees_points[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};
const uint64_t trees_quick_points[] = {1, 16, 128, 0};

static const struct trees_study lookup = {
	.name = "lookup",
	.title = "Lookups: who reads least from a leaf goes furthest",
	.subtitle = "Cost model: 8-byte keys, 8-byte values, drawn evenly; "
		    "16 bytes of cache a key",
	.work = TREES_LOOKUP,
	.value_size = 8,
	.cache = 16,
};

static const struct trees_study lookup_64 = {
	.name = "lookup-64",
	.title = "Lookups of 64-byte values: amplification grows with them",
	.subtitle = "Cost model: 8-byte keys, 64-byte values, drawn evenly; "
		    "16 bytes of cache a key",
	.work = TREES_LOOKUP,
	.value_size = 64,
	.cache = 16,
};

static const struct trees_study lookup_tight = {
	.name = "lookup-tight",
	.title = "Lookups with 1 byte of cache a key: prints do not fit",
	.subtitle = "Cost model: 8-byte keys, 8-byte values, drawn evenly; "
		    "1 byte of cache a key",
	.work = TREES_LOOKUP,
	.value_size = 8,
	.cache = 1,
};

static const struct trees_study insert = {
	.name = "insert",
	.title = "Inserts of new keys, with the splits they cause",
	.subtitle = "Cost model: 8-byte keys, 8-byte values, at random; 16 "
		    "bytes of cache a key",
	.work = TREES_INSERT,
	.value_size = 8,
	.cache = 16,
};

static const struct trees_study update = {
	.name = "update",
	.title = "Updates of keys that are there",
	.subtitle = "Cost model: 8-byte keys, 8-byte values, drawn evenly; "
		    "16 bytes of cache a key",
	.work = TREES_UPDATE,
	.value_size = 8,
	.cache = 16,
};

const struct trees_study *const trees_studies[] = {
	&lookup, &lookup_64, &lookup_tight, &insert, &update, NULL};

int trees_study_run(const struct trees_study *study, uint32_t line,
		    const uint64_t *points, uint64_t seed,
		    struct trees_result *out)
{
	const struct trees_load load = {
		.seed = seed,
		.index = (enum trees_index)line,
		.work = study->work,
		.value_size = study->value_size,
		.cache = study->cache,
		.clients = points,
	};

	return trees_run(&load, out);
}

const char trees_papers[] =
	"The papers' own words, of their hardware, which is not compared here: "
	"Sherman (SIGMOD\n2022) is an order of magnitude faster than the "
	"designs "
	"before it on workloads that\nmostly write. CHIME (SOSP 2024) is up to "
	"5.1 times as fast as the others with the\nsame cache, and as fast "
	"with "
	"up to 8.7 times less of it. Their public code has\nSherman's pages at "
	"1,024 bytes, CHIME's leaves at 64 entries with neighbourhoods of\n8, "
	"and 60 million keys with 100 MB of cache: 1.7 bytes a key. Of DMTree "
	"(FAST 2026)\nonly the public code was at hand.\n";
