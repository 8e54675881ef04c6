/* peer_glib.c - a hash table in the same process, for `reef bench map`: GLib's
 * GHashTable, the quickest of the well-kept ones in C that a distribution has
 * (uthash took 1.4 times as long on these keys).
 *
 * A key and its value are one block of malloc's, entered as a set's element,
 * for which GLib keeps one array less. Keys are hashed by two multiplications
 * and compared as two words. A put changes the value where it is. malloc is
 * told to ask for huge pages, as Reef does for what it lends.
 *
 * Thread: owner; lookups of several at once. */
#include "map_work.h"
#include "peers/huge_malloc.h"

#include <glib.h>

struct node {
	char key[MAP_KEY];
	uint64_t value[MAP_VALUE / 8];
};

struct theirs {
	GHashTable *table;
	struct map_state state;
	double bytes;
};

static struct theirs theirs;

static guint node_hash(gconstpointer key)
{
	uint64_t half[2];

	memcpy(half, key, MAP_KEY);
	half[0] *= UINT64_C(0x9e3779b97f4a7c15);
	half[1] *= UINT64_C(0xd6e8feb86659fd93);
	return (guint)((half[0] ^ half[1]) >> 32);
}

static gboolean node_equal(gconstpointer a, gconstpointer b)
{
	return !memcmp(a, b, MAP_KEY);
}

/* --- operations --- */

workload_inline int theirs_get(void *context, const char *key, uint64_t *value)
{
	const struct node *node = g_hash_table_lookup(context, key);

	if (!node)
		return -ENOENT;
	memcpy(value, node->value, MAP_VALUE);
	return 0;
}

static int theirs_add(void *context, const char *key, const uint64_t *value)
{
	struct node *node = malloc(sizeof(*node));

	if (!node)
		return -ENOMEM;
	memcpy(node->key, key, MAP_KEY);
	memcpy(node->value, value, MAP_VALUE);
	g_hash_table_add(context, node);
	return 0;
}

workload_inline int theirs_put(void *context, const char *key,
			       const uint64_t *value)
{
	struct node *node = g_hash_table_lookup(context, key);

	if (!node)
		return theirs_add(context, key, value);
	memcpy(node->value, value, MAP_VALUE);
	return 0;
}

workload_inline int theirs_change(void *context, const char *key,
				  uint64_t *value)
{
	struct node *node = g_hash_table_lookup(context, key);

	if (!node)
		return -ENOENT;
	node->value[MAP_VALUE / 8 - 1]++;
	memcpy(value, node->value, MAP_VALUE);
	return 0;
}

static const struct map_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.change = theirs_change,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- the driver --- */

static int glib_open(struct driver_pair *pair)
{
	uint64_t keys = pair->options.size / MAP_ENTRY;
	double before = huge_malloc_bytes();
	int rc;

	theirs.table = g_hash_table_new_full(node_hash, node_equal, free, NULL);
	rc = map_load(keys, theirs.table, theirs_add);
	theirs.bytes = (huge_malloc_bytes() - before) / (double)keys;
	rc = rc ? rc : map_state_init(&theirs.state, keys);
	if (rc)
		return rc;
	snprintf(pair->description, sizeof(pair->description),
		 "GHashTable of GLib %u.%u.%u in the same process; %.0f bytes "
		 "of memory a key, %u%% in huge pages",
		 glib_major_version, glib_minor_version, glib_micro_version,
		 theirs.bytes, driver_huge_percent());
	return 0;
}

static int thread_run(struct map_thread *thread)
{
	return map_loop(&theirs_ops, theirs.table,
			map_work_find("get-uniform-2"), &thread->state,
			thread->seconds, &thread->rate);
}

static int run_threads(double seconds, double *times)
{
	struct map_thread threads[MAP_THREADS] = {{0}};

	for (uint32_t i = 0; i < MAP_THREADS; i++) {
		threads[i].run = thread_run;
		threads[i].state = theirs.state;
	}
	return map_threads(threads, MAP_THREADS, seconds, times);
}

static int glib_run(struct driver_pair *pair, const char *name, double seconds,
		    double *rate)
{
	const struct map_work *work = map_work_find(name);

	(void)pair;
	if (work && work->threads)
		return run_threads(seconds, rate);
	return map_run(&theirs_ops, theirs.table, &theirs.state, theirs.bytes,
		       name, seconds, rate);
}

/* There is nothing to do: the table ends with the process. */
static const struct driver glib_driver = {
	.name = "inprocess",
	.open = glib_open,
	.run = glib_run,
};

int main(int argc, char **argv)
{
	huge_malloc_ask(argv);
	return driver_main(&glib_driver, argc, argv);
}
