/* peer_lmdb.c - keys in LMDB, for `reef bench map`: a B+ tree in a file that is
 * mapped, here in memory (/dev/shm where there is one).
 *
 * A get is a read transaction, renewed; a put a write transaction of its own,
 * with MDB_NOSYNC and MDB_WRITEMAP: nothing waits for a disk, and nothing is
 * copied that need not be.
 *
 * Thread: owner. */
#include "map_work.h"
#include "peers/lmdb_file.h"

#define LOAD 65536u /* keys in a transaction */

struct theirs {
	MDB_env *env;
	MDB_dbi table;
	MDB_txn *reader, *loader;
	uint32_t loading;
	struct map_state state;
	double bytes;
};

static struct theirs theirs;

/* --- operations --- */

workload_inline int find_value(MDB_txn *txn, const char *key, uint64_t *value)
{
	MDB_val name = {MAP_KEY, (void *)key}, found;
	int rc = mdb_get(txn, theirs.table, &name, &found);

	if (rc)
		return lmdb_errno(rc);
	if (found.mv_size != MAP_VALUE)
		return -EILSEQ;
	memcpy(value, found.mv_data, MAP_VALUE);
	return 0;
}

workload_inline int theirs_get(void *context, const char *key, uint64_t *value)
{
	int rc = mdb_txn_renew(theirs.reader);

	(void)context;
	if (rc)
		return lmdb_errno(rc);
	rc = find_value(theirs.reader, key, value);
	mdb_txn_reset(theirs.reader);
	return rc;
}

static int write_one(MDB_txn *txn, const char *key, const uint64_t *value)
{
	MDB_val name = {MAP_KEY, (void *)key};
	MDB_val bytes = {MAP_VALUE, (void *)value};

	return lmdb_errno(mdb_put(txn, theirs.table, &name, &bytes, 0));
}

workload_inline int theirs_put(void *context, const char *key,
			       const uint64_t *value)
{
	MDB_txn *txn;
	int rc = lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0, &txn));

	(void)context;
	if (rc)
		return rc;
	rc = write_one(txn, key, value);
	if (!rc)
		return lmdb_errno(mdb_txn_commit(txn));
	mdb_txn_abort(txn);
	return rc;
}

workload_inline int theirs_change(void *context, const char *key,
				  uint64_t *value)
{
	MDB_txn *txn;
	int rc = lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0, &txn));

	(void)context;
	if (rc)
		return rc;
	rc = find_value(txn, key, value);
	if (!rc) {
		value[MAP_VALUE / 8 - 1]++;
		rc = write_one(txn, key, value);
	}
	if (!rc)
		return lmdb_errno(mdb_txn_commit(txn));
	mdb_txn_abort(txn);
	return rc;
}

static const struct map_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.change = theirs_change,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- loading --- */

static int load_flush(void)
{
	MDB_txn *txn = theirs.loader;

	theirs.loader = NULL;
	theirs.loading = 0;
	return txn ? lmdb_errno(mdb_txn_commit(txn)) : 0;
}

static int load_add(void *context, const char *key, const uint64_t *value)
{
	int rc = 0;

	(void)context;
	if (!theirs.loader)
		rc = lmdb_errno(
			mdb_txn_begin(theirs.env, NULL, 0, &theirs.loader));
	rc = rc ? rc : write_one(theirs.loader, key, value);
	return !rc && ++theirs.loading == LOAD ? load_flush() : rc;
}

/* --- the driver --- */

static int open_table(uint64_t keys)
{
	int rc = lmdb_open_files(LMDB_FILE_SIZE(keys), 0, &theirs.env);

	rc = rc ? rc
		: lmdb_errno(
			  mdb_txn_begin(theirs.env, NULL, 0, &theirs.loader));
	rc = rc ? rc
		: lmdb_errno(
			  mdb_dbi_open(theirs.loader, NULL, 0, &theirs.table));
	rc = rc ? rc : map_load(keys, NULL, load_add);
	rc = rc ? rc : load_flush();
	rc = rc ? rc
		: lmdb_errno(mdb_txn_begin(theirs.env, NULL, MDB_RDONLY,
					   &theirs.reader));
	if (!rc)
		mdb_txn_reset(theirs.reader);
	return rc;
}

static int lmdb_open(struct driver_pair *pair)
{
	uint64_t keys = pair->options.size / MAP_ENTRY;
	int major, minor, patch, rc = open_table(keys);

	rc = rc ? rc : map_state_init(&theirs.state, keys);
	if (rc)
		return driver_fail(pair, rc, "LMDB: %s", strerror(-rc));
	theirs.bytes = lmdb_bytes(theirs.env) / (double)keys;
	mdb_version(&major, &minor, &patch);
	snprintf(pair->description, sizeof(pair->description),
		 "LMDB %d.%d.%d, NOSYNC and WRITEMAP, a transaction an "
		 "operation; %.0f bytes of memory a key",
		 major, minor, patch, theirs.bytes);
	return 0;
}

static int lmdb_run(struct driver_pair *pair, const char *name, double seconds,
		    double *rate)
{
	int rc = map_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
			 seconds, rate);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "LMDB: %s", strerror(-rc))
		       : rc;
}

static void lmdb_close(struct driver_pair *pair)
{
	(void)pair;
	mdb_txn_abort(theirs.reader);
	mdb_env_close(theirs.env);
	free(theirs.state.ranks);
}

static const struct driver lmdb_driver = {
	.name = "lmdb",
	.open = lmdb_open,
	.run = lmdb_run,
	.close = lmdb_close,
};

int main(int argc, char **argv)
{
	return driver_main(&lmdb_driver, argc, argv);
}
