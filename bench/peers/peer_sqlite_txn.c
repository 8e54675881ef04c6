/* peer_sqlite_txn.c - transactions in SQLite, for `reef bench txn`: two tables
 * with numbers as keys, in a file in memory (/dev/shm where there is one), with
 * a write-ahead log, not synchronous, by prepared statements.
 *
 * Thread: owner. */
#include "txn_work.h"

#include <sqlite3.h>
#include <unistd.h>

enum statement {
	BEGIN_READ,
	BEGIN_WRITE,
	COMMIT,
	ROLLBACK,
	GET_NUMBER,
	PUT_NUMBER,
	GET_BYTES,
	PUT_BYTES,
	REMOVE_BYTES,
	STATEMENTS
};

static const char *const texts[STATEMENTS] = {
	[BEGIN_READ] = "begin",
	[BEGIN_WRITE] = "begin immediate",
	[COMMIT] = "commit",
	[ROLLBACK] = "rollback",
	[GET_NUMBER] = "select n from numbers where k = ?1",
	[PUT_NUMBER] = "replace into numbers values (?1, ?2)",
	[GET_BYTES] = "select v from bytes where k = ?1",
	[PUT_BYTES] = "replace into bytes values (?1, ?2)",
	[REMOVE_BYTES] = "delete from bytes where k = ?1",
};

struct theirs {
	sqlite3 *base;
	sqlite3_stmt *statements[STATEMENTS];
	char directory[64];
};

static struct theirs theirs;

static int errno_of(int rc)
{
	return rc == SQLITE_OK || rc == SQLITE_DONE ? 0
	       : rc == SQLITE_NOMEM		    ? -ENOMEM
	       : rc == SQLITE_FULL		    ? -ENOSPC
						    : -EIO;
}

/* Step a statement that has no rows to tell. */
static int do_statement(enum statement which)
{
	int rc = sqlite3_step(theirs.statements[which]);

	sqlite3_reset(theirs.statements[which]);
	return errno_of(rc);
}

/* --- rows --- */

static sqlite3_stmt *bind(enum statement which, uint64_t key)
{
	sqlite3_bind_int64(theirs.statements[which], 1, (sqlite3_int64)key);
	return theirs.statements[which];
}

static int sqlite_get_number(void *context, uint64_t key, int64_t *number)
{
	sqlite3_stmt *statement = bind(GET_NUMBER, key);
	int rc = sqlite3_step(statement);

	(void)context;
	if (rc == SQLITE_ROW)
		*number = sqlite3_column_int64(statement, 0);
	sqlite3_reset(statement);
	return rc == SQLITE_ROW	   ? 0
	       : rc == SQLITE_DONE ? -ENOENT
				   : errno_of(rc);
}

static int sqlite_put_number(void *context, uint64_t key, int64_t number)
{
	(void)context;
	sqlite3_bind_int64(bind(PUT_NUMBER, key), 2, number);
	return do_statement(PUT_NUMBER);
}

static int sqlite_get_bytes(void *context, uint64_t key, uint8_t *bytes)
{
	sqlite3_stmt *statement = bind(GET_BYTES, key);
	int rc = sqlite3_step(statement), size;

	(void)context;
	if (rc == SQLITE_ROW) {
		size = sqlite3_column_bytes(statement, 0);
		if (size <= (int)TXN_BYTES_MAX)
			memcpy(bytes, sqlite3_column_blob(statement, 0),
			       (size_t)size);
	}
	sqlite3_reset(statement);
	return rc == SQLITE_ROW	   ? 0
	       : rc == SQLITE_DONE ? -ENOENT
				   : errno_of(rc);
}

static int sqlite_put_bytes(void *context, uint64_t key, const uint8_t *bytes,
			    uint32_t size)
{
	(void)context;
	sqlite3_bind_blob(bind(PUT_BYTES, key), 2, bytes, (int)size,
			  SQLITE_STATIC);
	return do_statement(PUT_BYTES);
}

static int sqlite_remove_bytes(void *context, uint64_t key)
{
	int rc;

	(void)context;
	bind(REMOVE_BYTES, key);
	rc = do_statement(REMOVE_BYTES);
	return rc ? rc : sqlite3_changes(theirs.base) ? 0 : -ENOENT;
}

static const struct txn_ops sqlite_ops = {
	.get_number = sqlite_get_number,
	.put_number = sqlite_put_number,
	.get_bytes = sqlite_get_bytes,
	.put_bytes = sqlite_put_bytes,
	.remove_bytes = sqlite_remove_bytes,
};

/* --- transactions --- */

static int sqlite_run_list(void *context, const struct txn_list *list)
{
	int rc = do_statement(list->only_reads ? BEGIN_READ : BEGIN_WRITE);

	(void)context;
	if (rc)
		return rc;
	rc = txn_do(&sqlite_ops, NULL, list);
	if (!rc)
		return do_statement(COMMIT);
	do_statement(ROLLBACK);
	return rc == TXN_REFUSED ? 0 : rc;
}

/* --- the driver --- */

static int load_add(void *context, uint64_t key, int64_t number, uint32_t size)
{
	uint8_t bytes[TXN_BYTES_MAX];

	txn_fill(key, bytes);
	return size ? sqlite_put_bytes(context, key, bytes, size)
		    : sqlite_put_number(context, key, number);
}

static int sqlite_load(enum txn_table table, uint64_t units)
{
	int rc = do_statement(BEGIN_WRITE);

	rc = rc ? rc : txn_load(table, units, NULL, load_add);
	return rc ? rc : do_statement(COMMIT);
}

static struct txn_peer peer = {
	.clock = CLOCK_THREAD_CPUTIME_ID,
	.run = sqlite_run_list,
	.load = sqlite_load,
};

/* Its files are in a directory that is removed with them in the end. */
static void remove_files(void)
{
	static const char *const ends[] = {"", "-wal", "-shm"};
	char path[128];

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		snprintf(path, sizeof(path), "%s/base%s", theirs.directory,
			 ends[i]);
		unlink(path);
	}
	rmdir(theirs.directory);
}

static int open_base(void)
{
	char path[96];
	int rc;

	snprintf(theirs.directory, sizeof(theirs.directory),
		 "%s/reef-sqlite-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(theirs.directory))
		return -errno;
	snprintf(path, sizeof(path), "%s/base", theirs.directory);
	rc = errno_of(sqlite3_open(path, &theirs.base));
	rc = rc ? rc
		: errno_of(sqlite3_exec(
			  theirs.base,
			  "pragma journal_mode = wal;"
			  "pragma synchronous = off;"
			  "pragma cache_size = -2000000;"
			  "create table numbers (k integer primary key, n "
			  "integer);"
			  "create table bytes (k integer primary key, v blob)",
			  NULL, NULL, NULL));
	for (uint32_t i = 0; i < STATEMENTS && !rc; i++)
		rc = errno_of(sqlite3_prepare_v3(theirs.base, texts[i], -1,
						 SQLITE_PREPARE_PERSISTENT,
						 &theirs.statements[i], NULL));
	return rc;
}

static int sqlite_open(struct driver_pair *pair)
{
	int rc = open_base();

	if (rc) {
		driver_fail(pair, rc, "SQLite: %s",
			    theirs.base ? sqlite3_errmsg(theirs.base)
					: strerror(-rc));
		remove_files();
		return rc;
	}
	peer.state = (struct txn_state){
		.units = pair->options.size / TXN_UNIT,
		.random = 1,
	};
	snprintf(pair->description, sizeof(pair->description),
		 "SQLite %s, WAL, synchronous off, in memory",
		 sqlite3_libversion());
	return 0;
}

static int sqlite_run(struct driver_pair *pair, const char *name,
		      double seconds, double *figure)
{
	int rc = txn_peer_run(&peer, name, seconds, figure);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "SQLite: %s",
				     sqlite3_errmsg(theirs.base))
		       : rc;
}

static void sqlite_close(struct driver_pair *pair)
{
	(void)pair;
	for (uint32_t i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(theirs.statements[i]);
	sqlite3_close(theirs.base);
	remove_files();
}

static const struct driver sqlite_driver = {
	.name = "sqlite",
	.open = sqlite_open,
	.run = sqlite_run,
	.close = sqlite_close,
};

int main(int argc, char **argv)
{
	return driver_main(&sqlite_driver, argc, argv);
}
