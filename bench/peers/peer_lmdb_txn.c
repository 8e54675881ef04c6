/* peer_lmdb_txn.c - transactions in LMDB, for `reef bench txn`: two tables with
 * numbers as keys, in a file that is mapped, in memory (lmdb_file.h), NOSYNC
 * and WRITEMAP. One who writes at a time; who only reads renews a transaction.
 *
 * Thread: owner. */
#include "peers/lmdb_file.h"
#include "txn_work.h"

#define LOAD 65536u /* rows in a transaction */
#define FILE_SIZE (UINT64_C(8) << 30)

struct theirs {
	MDB_env *env;
	MDB_dbi numbers, bytes;
	MDB_txn *reader, *txn; /* txn: the one under way */
	uint32_t loading;
};

static struct theirs theirs;

/* --- rows --- */

static int get_row(MDB_dbi table, uint64_t key, void *to, size_t most)
{
	MDB_val name = {sizeof(key), &key}, found;
	int rc = lmdb_errno(mdb_get(theirs.txn, table, &name, &found));

	if (rc)
		return rc;
	if (found.mv_size > most)
		return -EILSEQ;
	memcpy(to, found.mv_data, found.mv_size);
	return 0;
}

static int put_row(MDB_dbi table, uint64_t key, const void *from, size_t size)
{
	MDB_val name = {sizeof(key), &key};
	MDB_val value = {size, (void *)from};

	return lmdb_errno(mdb_put(theirs.txn, table, &name, &value, 0));
}

static int lmdb_get_number(void *context, uint64_t key, int64_t *number)
{
	(void)context;
	return get_row(theirs.numbers, key, number, sizeof(*number));
}

static int lmdb_put_number(void *context, uint64_t key, int64_t number)
{
	(void)context;
	return put_row(theirs.numbers, key, &number, sizeof(number));
}

static int lmdb_get_bytes(void *context, uint64_t key, uint8_t *bytes)
{
	(void)context;
	return get_row(theirs.bytes, key, bytes, TXN_BYTES_MAX);
}

static int lmdb_put_bytes(void *context, uint64_t key, const uint8_t *bytes,
			  uint32_t size)
{
	(void)context;
	return put_row(theirs.bytes, key, bytes, size);
}

static int lmdb_remove_bytes(void *context, uint64_t key)
{
	MDB_val name = {sizeof(key), &key};

	(void)context;
	return lmdb_errno(mdb_del(theirs.txn, theirs.bytes, &name, NULL));
}

static const struct txn_ops lmdb_ops = {
	.get_number = lmdb_get_number,
	.put_number = lmdb_put_number,
	.get_bytes = lmdb_get_bytes,
	.put_bytes = lmdb_put_bytes,
	.remove_bytes = lmdb_remove_bytes,
};

/* --- transactions --- */

static int lmdb_read(const struct txn_list *list)
{
	int rc = lmdb_errno(mdb_txn_renew(theirs.reader));

	if (rc)
		return rc;
	theirs.txn = theirs.reader;
	rc = txn_do(&lmdb_ops, NULL, list);
	mdb_txn_reset(theirs.reader);
	return rc == TXN_REFUSED ? 0 : rc;
}

static int lmdb_run_list(void *context, const struct txn_list *list)
{
	int rc;

	(void)context;
	if (list->only_reads)
		return lmdb_read(list);
	rc = lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0, &theirs.txn));
	if (rc)
		return rc;
	rc = txn_do(&lmdb_ops, NULL, list);
	if (!rc)
		return lmdb_errno(mdb_txn_commit(theirs.txn));
	mdb_txn_abort(theirs.txn);
	return rc == TXN_REFUSED ? 0 : rc;
}

/* --- the driver --- */

static int load_add(void *context, uint64_t key, int64_t number, uint32_t size)
{
	uint8_t bytes[TXN_BYTES_MAX];
	int rc = 0;

	if (theirs.loading == LOAD) {
		rc = lmdb_errno(mdb_txn_commit(theirs.txn));
		rc = rc ? rc
			: lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0,
						   &theirs.txn));
		theirs.loading = 0;
	}
	theirs.loading++;
	txn_fill(key, bytes);
	if (rc)
		return rc;
	return size ? lmdb_put_bytes(context, key, bytes, size)
		    : lmdb_put_number(context, key, number);
}

static int lmdb_load(enum txn_table table, uint64_t units)
{
	int rc = lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0, &theirs.txn));

	theirs.loading = 0;
	rc = rc ? rc : txn_load(table, units, NULL, load_add);
	return rc ? rc : lmdb_errno(mdb_txn_commit(theirs.txn));
}

static struct txn_peer peer = {
	.clock = CLOCK_THREAD_CPUTIME_ID,
	.run = lmdb_run_list,
	.load = lmdb_load,
};

static int lmdb_open(struct driver_pair *pair)
{
	int major, minor, patch;
	int rc = lmdb_open_files(FILE_SIZE, 2, &theirs.env);

	rc = rc ? rc
		: lmdb_errno(mdb_txn_begin(theirs.env, NULL, 0, &theirs.txn));
	rc = rc ? rc
		: lmdb_errno(mdb_dbi_open(theirs.txn, "numbers",
					  MDB_CREATE | MDB_INTEGERKEY,
					  &theirs.numbers));
	rc = rc ? rc
		: lmdb_errno(mdb_dbi_open(theirs.txn, "bytes",
					  MDB_CREATE | MDB_INTEGERKEY,
					  &theirs.bytes));
	rc = rc ? rc : lmdb_errno(mdb_txn_commit(theirs.txn));
	rc = rc ? rc
		: lmdb_errno(mdb_txn_begin(theirs.env, NULL, MDB_RDONLY,
					   &theirs.reader));
	if (rc)
		return driver_fail(pair, rc, "LMDB: %s", strerror(-rc));
	mdb_txn_reset(theirs.reader);
	peer.state = (struct txn_state){
		.units = pair->options.size / TXN_UNIT,
		.random = 1,
	};
	mdb_version(&major, &minor, &patch);
	snprintf(pair->description, sizeof(pair->description),
		 "LMDB %d.%d.%d, NOSYNC and WRITEMAP", major, minor, patch);
	return 0;
}

static int lmdb_run(struct driver_pair *pair, const char *name, double seconds,
		    double *figure)
{
	int rc = txn_peer_run(&peer, name, seconds, figure);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "LMDB: %s", strerror(-rc))
		       : rc;
}

static void lmdb_close(struct driver_pair *pair)
{
	(void)pair;
	mdb_txn_abort(theirs.reader);
	mdb_env_close(theirs.env);
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
