/* peer_rocksdb.c - ordered keys in RocksDB, for `reef bench tree`: an LSM tree
 * whose files are in the process's memory, without a log of writes,
 * uncompressed, with Bloom filters and a cache for all of it. It is compacted
 * after loading, which is when it reads best.
 *
 * A get is a pinned slice, of which the value is copied; a scan an iterator,
 * kept while nothing was written. What its own threads do (flushing,
 * compaction) is not counted.
 *
 * Thread: owner. */
#include "tree_work.h"

#include <rocksdb/c.h>

struct theirs {
	rocksdb_t *base;
	rocksdb_options_t *options;
	rocksdb_readoptions_t *reading;
	rocksdb_writeoptions_t *writing;
	rocksdb_iterator_t *iterator; /* NULL: what it saw is old */
	struct tree_state state;
	double bytes;
};

static struct theirs theirs;

/* Messages are malloc's. */
static int fail(char *message)
{
	if (!message)
		return 0;
	fprintf(stderr, "RocksDB: %s\n", message);
	free(message);
	return -EIO;
}

/* --- operations --- */

static int theirs_get(void *context, const char *key, uint64_t *value)
{
	rocksdb_pinnableslice_t *slice;
	char *message = NULL;
	const char *bytes;
	size_t size;
	int rc = 0;

	(void)context;
	slice = rocksdb_get_pinned(theirs.base, theirs.reading, key,
				   theirs.state.kind->key, &message);
	if (message)
		return fail(message);
	if (!slice)
		return -ENOENT;
	bytes = rocksdb_pinnableslice_value(slice, &size);
	if (size == theirs.state.kind->value)
		memcpy(value, bytes, size);
	else
		rc = -EILSEQ;
	rocksdb_pinnableslice_destroy(slice);
	return rc;
}

static int theirs_put(void *context, const char *key, const uint64_t *value)
{
	char *message = NULL;

	(void)context;
	if (theirs.iterator)
		rocksdb_iter_destroy(theirs.iterator);
	theirs.iterator = NULL;
	rocksdb_put(theirs.base, theirs.writing, key, theirs.state.kind->key,
		    (const char *)value, theirs.state.kind->value, &message);
	return fail(message);
}

static int theirs_scan(void *context, const char *key, uint32_t limit,
		       struct tree_seen *seen)
{
	size_t size;

	(void)context;
	if (!theirs.iterator)
		theirs.iterator =
			rocksdb_create_iterator(theirs.base, theirs.reading);
	rocksdb_iter_seek(theirs.iterator, key, theirs.state.kind->key);
	while (seen->count < limit && rocksdb_iter_valid(theirs.iterator)) {
		tree_see(seen, rocksdb_iter_key(theirs.iterator, &size),
			 rocksdb_iter_value(theirs.iterator, &size));
		rocksdb_iter_next(theirs.iterator);
	}
	return 0;
}

static const struct tree_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.scan = theirs_scan,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- the driver --- */

static void set_options(uint64_t size)
{
	rocksdb_block_based_table_options_t *table =
		rocksdb_block_based_options_create();

	theirs.options = rocksdb_options_create();
	theirs.reading = rocksdb_readoptions_create();
	theirs.writing = rocksdb_writeoptions_create();
	rocksdb_writeoptions_disable_WAL(theirs.writing, 1);
	rocksdb_options_set_create_if_missing(theirs.options, 1);
	rocksdb_options_set_env(theirs.options, rocksdb_create_mem_env());
	rocksdb_options_set_compression(theirs.options, rocksdb_no_compression);
	rocksdb_block_based_options_set_filter_policy(
		table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_block_based_options_set_block_cache(
		table, rocksdb_cache_create_lru(4 * size + (64u << 20)));
	rocksdb_options_set_block_based_table_factory(theirs.options, table);
}

static int open_table(uint64_t keys, uint64_t size)
{
	char *message = NULL;
	uint64_t bytes = 0;
	int rc;

	set_options(size);
	theirs.base = rocksdb_open(theirs.options, "/reef", &message);
	rc = fail(message);
	rc = rc ? rc : tree_load(theirs.state.kind, keys, NULL, theirs_put);
	if (rc)
		return rc;
	rocksdb_compact_range(theirs.base, NULL, 0, NULL, 0);
	rocksdb_property_int(theirs.base, "rocksdb.live-sst-files-size",
			     &bytes);
	theirs.bytes = (double)bytes / (double)keys;
	return 0;
}

static void rocksdb_end(struct driver_pair *pair)
{
	(void)pair;
	if (theirs.iterator)
		rocksdb_iter_destroy(theirs.iterator);
	if (theirs.base)
		rocksdb_close(theirs.base);
	free(theirs.state.map.ranks);
}

static int rocksdb_begin(struct driver_pair *pair)
{
	uint64_t keys = tree_keys(pair->options.size);
	int rc = tree_state_init(&theirs.state, &pair->options, keys);

	rc = rc ? rc : open_table(keys, pair->options.size);
	if (rc) {
		rocksdb_end(pair);
		return driver_fail(pair, rc, "RocksDB: %s", strerror(-rc));
	}
	snprintf(pair->description, sizeof(pair->description),
		 "RocksDB in memory, no log, uncompressed, Bloom filters, "
		 "all in its cache; %.0f bytes of files a key, once compacted",
		 theirs.bytes);
	return 0;
}

static int rocksdb_round(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	int rc = tree_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
			  seconds, rate);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "RocksDB: %s", strerror(-rc))
		       : rc;
}

static const struct driver rocksdb_driver = {
	.name = "rocksdb",
	.open = rocksdb_begin,
	.run = rocksdb_round,
	.close = rocksdb_end,
};

int main(int argc, char **argv)
{
	return driver_main(&rocksdb_driver, argc, argv);
}
