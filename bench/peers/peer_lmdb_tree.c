/* peer_lmdb_tree.c - ordered keys in LMDB, for `reef bench tree`: a B+ tree in
 * a file that is mapped, here in memory (/dev/shm where there is one).
 *
 * A get or a scan is a read transaction, renewed, with a cursor, renewed; a put
 * a write transaction of its own, with MDB_NOSYNC and MDB_WRITEMAP: nothing
 * waits for a disk, and nothing is copied that need not be.
 *
 * Thread: owner. */
#include "peers/lmdb_file.h"
#include "tree_work.h"

#define LOAD 65536u /* keys in a transaction */

struct theirs {
	MDB_env *env;
	MDB_dbi table;
	MDB_txn *reader, *loader;
	MDB_cursor *cursor;
	uint32_t loading;
	struct tree_state state;
	double bytes;
};

static struct theirs theirs;

/* --- operations --- */

static int theirs_get(void *context, const char *key, uint64_t *value)
{
	MDB_val name = {theirs.state.kind->key, (void *)key}, found;
	int rc = mdb_txn_renew(theirs.reader);

	(void)context;
	if (rc)
		return lmdb_errno(rc);
	rc = mdb_get(theirs.reader, theirs.table, &name, &found);
	if (!rc && found.mv_size == theirs.state.kind->value)
		memcpy(value, found.mv_data, found.mv_size);
	else if (!rc)
		rc = EILSEQ;
	mdb_txn_reset(theirs.reader);
	return lmdb_errno(rc);
}

static int write_one(MDB_txn *txn, const char *key, const uint64_t *value)
{
	MDB_val name = {theirs.state.kind->key, (void *)key};
	MDB_val bytes = {theirs.state.kind->value, (void *)value};

	return lmdb_errno(mdb_put(txn, theirs.table, &name, &bytes, 0));
}

static int theirs_put(void *context, const char *key, const uint64_t *value)
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

static int theirs_scan(void *context, const char *key, uint32_t limit,
		       struct tree_seen *seen)
{
	MDB_val name = {theirs.state.kind->key, (void *)key}, found;
	int rc = mdb_txn_renew(theirs.reader);

	(void)context;
	if (!rc)
		rc = mdb_cursor_renew(theirs.reader, theirs.cursor);
	if (!rc)
		rc = mdb_cursor_get(theirs.cursor, &name, &found,
				    MDB_SET_RANGE);
	while (!rc) {
		tree_see(seen, name.mv_data, found.mv_data);
		if (seen->count == limit)
			break;
		rc = mdb_cursor_get(theirs.cursor, &name, &found, MDB_NEXT);
	}
	mdb_txn_reset(theirs.reader);
	return rc == MDB_NOTFOUND ? 0 : lmdb_errno(rc);
}

static const struct tree_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.scan = theirs_scan,
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

static int open_table(uint64_t keys)
{
	int rc = lmdb_open_files(LMDB_FILE_SIZE(keys), 0, &theirs.env);

	rc = rc ? rc
		: lmdb_errno(
			  mdb_txn_begin(theirs.env, NULL, 0, &theirs.loader));
	rc = rc ? rc
		: lmdb_errno(
			  mdb_dbi_open(theirs.loader, NULL, 0, &theirs.table));
	rc = rc ? rc : tree_load(theirs.state.kind, keys, NULL, load_add);
	rc = rc ? rc : load_flush();
	rc = rc ? rc
		: lmdb_errno(mdb_txn_begin(theirs.env, NULL, MDB_RDONLY,
					   &theirs.reader));
	rc = rc ? rc
		: lmdb_errno(mdb_cursor_open(theirs.reader, theirs.table,
					     &theirs.cursor));
	if (!rc)
		mdb_txn_reset(theirs.reader);
	return rc;
}

/* --- the driver --- */

static int lmdb_open(struct driver_pair *pair)
{
	uint64_t keys = tree_keys(pair->options.size);
	int major, minor, patch;
	int rc = tree_state_init(&theirs.state, &pair->options, keys);

	rc = rc ? rc : open_table(keys);
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
	int rc = tree_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
			  seconds, rate);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "LMDB: %s", strerror(-rc))
		       : rc;
}

static void lmdb_close(struct driver_pair *pair)
{
	(void)pair;
	mdb_cursor_close(theirs.cursor);
	mdb_txn_abort(theirs.reader);
	mdb_env_close(theirs.env);
	free(theirs.state.map.ranks);
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
