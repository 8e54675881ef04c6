/* peer_gtree.c - a tree in the same process, for `reef bench tree`: GLib's
 * GTree, a balanced binary one.
 *
 * A key and its value are one block of malloc's; keys are compared by memcmp. A
 * put changes the value where it is. malloc is told to ask for huge pages, as
 * Reef does for what it lends.
 *
 * Thread: owner. */
#include "peers/huge_malloc.h"
#include "tree_work.h"

#include <glib.h>

struct theirs {
	GTree *tree;
	struct tree_state state;
	double bytes;
};

static struct theirs theirs;

static gint compare_keys(gconstpointer a, gconstpointer b, gpointer user)
{
	const struct tree_kind *kind = user;

	return memcmp(a, b, kind->key);
}

/* --- operations --- */

static int theirs_get(void *context, const char *key, uint64_t *value)
{
	const void *found = g_tree_lookup(theirs.tree, key);

	(void)context;
	if (!found)
		return -ENOENT;
	memcpy(value, found, theirs.state.kind->value);
	return 0;
}

static int theirs_add(void *context, const char *key, const uint64_t *value)
{
	const struct tree_kind *kind = theirs.state.kind;
	char *pair = malloc(kind->key + kind->value);

	(void)context;
	if (!pair)
		return -ENOMEM;
	memcpy(pair, key, kind->key);
	memcpy(pair + kind->key, value, kind->value);
	g_tree_insert(theirs.tree, pair, pair + kind->key);
	return 0;
}

static int theirs_put(void *context, const char *key, const uint64_t *value)
{
	void *found = g_tree_lookup(theirs.tree, key);

	if (!found)
		return theirs_add(context, key, value);
	memcpy(found, value, theirs.state.kind->value);
	return 0;
}

static int theirs_scan(void *context, const char *key, uint32_t limit,
		       struct tree_seen *seen)
{
	GTreeNode *node = g_tree_lower_bound(theirs.tree, key);

	(void)context;
	for (; node && seen->count < limit; node = g_tree_node_next(node))
		tree_see(seen, g_tree_node_key(node), g_tree_node_value(node));
	return 0;
}

static const struct tree_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.scan = theirs_scan,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- the driver --- */

static int gtree_open(struct driver_pair *pair)
{
	uint64_t keys = tree_keys(pair->options.size);
	int rc = tree_state_init(&theirs.state, &pair->options, keys);
	double before = huge_malloc_bytes();

	if (rc)
		return rc;
	theirs.tree = g_tree_new_full(compare_keys,
				      (gpointer)(uintptr_t)theirs.state.kind,
				      NULL, NULL);
	rc = tree_load(theirs.state.kind, keys, NULL, theirs_add);
	if (rc)
		return rc;
	theirs.bytes = (huge_malloc_bytes() - before) / (double)keys;
	snprintf(pair->description, sizeof(pair->description),
		 "GTree of GLib %u.%u.%u in the same process; %.0f bytes of "
		 "memory a key, %u%% in huge pages",
		 glib_major_version, glib_minor_version, glib_micro_version,
		 theirs.bytes, driver_huge_percent());
	return 0;
}

static int gtree_run(struct driver_pair *pair, const char *name, double seconds,
		     double *rate)
{
	(void)pair;
	return tree_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
			seconds, rate);
}

/* There is nothing to do at the end: the tree ends with the process. */
static const struct driver gtree_driver = {
	.name = "gtree",
	.open = gtree_open,
	.run = gtree_run,
};

int main(int argc, char **argv)
{
	huge_malloc_ask(argv);
	return driver_main(&gtree_driver, argc, argv);
}
