/* peer_lmdb_log.c - a log in LMDB, for `reef bench log`: numbers as keys, with
 * MDB_APPEND, a transaction each; in memory (/dev/shm where there is one), with
 * MDB_NOSYNC and MDB_WRITEMAP.
 *
 * Thread: owner. */
#include "log_work.h"
#include "peers/lmdb_file.h"

#define FILE_SIZE (UINT64_C(8) << 30)

static MDB_env *env;
static MDB_dbi appended, filled;
static uint64_t next;

static int put(MDB_txn *txn, MDB_dbi table, uint64_t number, const char *bytes,
	       size_t size)
{
	MDB_val key = {sizeof(number), &number};
	MDB_val value = {size, (void *)(uintptr_t)bytes};

	return lmdb_errno(mdb_put(txn, table, &key, &value, MDB_APPEND));
}

static int theirs_begin(void *context)
{
	MDB_txn *txn;
	int rc = lmdb_errno(mdb_txn_begin(env, NULL, 0, &txn));

	(void)context;
	rc = rc ? rc : lmdb_errno(mdb_drop(txn, appended, 0));
	return rc ? rc : lmdb_errno(mdb_txn_commit(txn));
}

static int append_count(const char *bytes, size_t size, uint32_t count)
{
	MDB_txn *txn;
	int rc = lmdb_errno(mdb_txn_begin(env, NULL, 0, &txn));

	if (rc)
		return rc;
	for (uint32_t i = 0; !rc && i < count; i++)
		rc = put(txn, appended, next++, bytes + i * size, size);
	if (!rc)
		return lmdb_errno(mdb_txn_commit(txn));
	mdb_txn_abort(txn);
	return rc;
}

static int theirs_append(void *context, const char *bytes, size_t size)
{
	(void)context;
	return append_count(bytes, size, 1);
}

static int theirs_append_batch(void *context, const char *bytes, size_t size)
{
	(void)context;
	return append_count(bytes, size, LOG_BATCH);
}

static int theirs_read_all(void *context, uint64_t *count)
{
	MDB_val key, value;
	MDB_cursor *cursor;
	MDB_txn *txn;
	int rc = lmdb_errno(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn));

	(void)context;
	*count = 0;
	if (rc)
		return rc;
	rc = lmdb_errno(mdb_cursor_open(txn, filled, &cursor));
	while (!rc && !mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
		/* As the others' are: the caller's own. */
		char bytes[LOG_SHORT];

		memcpy(bytes, value.mv_data, LOG_SHORT);
		rc = log_check(bytes, value.mv_size, (*count)++);
	}
	mdb_cursor_close(cursor);
	mdb_txn_abort(txn);
	return rc;
}

static const struct log_ops theirs_ops = {
	.begin = theirs_begin,
	.append = theirs_append,
	.append_batch = theirs_append_batch,
	.read_all = theirs_read_all,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- the driver --- */

static int fill_log(MDB_txn *txn)
{
	char bytes[LOG_SHORT];
	int rc = 0;

	for (uint64_t i = 0; !rc && i < LOG_ENTRIES; i++) {
		log_entry(bytes, i);
		rc = put(txn, filled, i, bytes, LOG_SHORT);
	}
	return rc;
}

static int lmdb_open(struct driver_pair *pair)
{
	const unsigned flags = MDB_CREATE | MDB_INTEGERKEY;
	int major, minor, patch, rc;
	MDB_txn *txn;

	rc = lmdb_open_files(FILE_SIZE, 2, &env);
	rc = rc ? rc : lmdb_errno(mdb_txn_begin(env, NULL, 0, &txn));
	rc = rc ? rc : lmdb_errno(mdb_dbi_open(txn, "log", flags, &appended));
	rc = rc ? rc : lmdb_errno(mdb_dbi_open(txn, "filled", flags, &filled));
	rc = rc ? rc : fill_log(txn);
	rc = rc ? rc : lmdb_errno(mdb_txn_commit(txn));
	if (rc)
		return driver_fail(pair, rc, "LMDB: %s", strerror(-rc));
	mdb_version(&major, &minor, &patch);
	snprintf(pair->description, sizeof(pair->description),
		 "LMDB %d.%d.%d, MDB_APPEND, NOSYNC and WRITEMAP, a "
		 "transaction a call",
		 major, minor, patch);
	return 0;
}

static int lmdb_run(struct driver_pair *pair, const char *name, double seconds,
		    double *rate)
{
	int rc = log_run(&theirs_ops, NULL, name, seconds, rate);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "LMDB: %s", strerror(-rc))
		       : rc;
}

static void lmdb_close(struct driver_pair *pair)
{
	(void)pair;
	mdb_env_close(env);
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
