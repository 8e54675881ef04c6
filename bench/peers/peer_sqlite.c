/* peer_sqlite.c - ordered keys in SQLite, for `reef bench tree`: a table
 * without row numbers in a database in memory, by prepared statements, each
 * operation a transaction of its own, without a journal.
 *
 * Thread: owner. */
#include "tree_work.h"

#include <sqlite3.h>

struct theirs {
	sqlite3 *base;
	sqlite3_stmt *get, *put, *scan;
	struct tree_state state;
	double bytes;
};

static struct theirs theirs;

static int errno_of(int rc)
{
	switch (rc) {
	case SQLITE_OK:
	case SQLITE_DONE:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_FULL:
		return -ENOSPC;
	default:
		return -EIO;
	}
}

/* --- operations --- */

static void bind_key(sqlite3_stmt *statement, const char *key)
{
	sqlite3_bind_blob(statement, 1, key, (int)theirs.state.kind->key,
			  SQLITE_STATIC);
}

static int theirs_get(void *context, const char *key, uint64_t *value)
{
	int size = (int)theirs.state.kind->value, rc;

	(void)context;
	bind_key(theirs.get, key);
	rc = sqlite3_step(theirs.get);
	if (rc == SQLITE_ROW) {
		rc = sqlite3_column_bytes(theirs.get, 0) == size ? 0 : -EILSEQ;
		if (!rc)
			memcpy(value, sqlite3_column_blob(theirs.get, 0),
			       (size_t)size);
	} else {
		rc = rc == SQLITE_DONE ? -ENOENT : errno_of(rc);
	}
	sqlite3_reset(theirs.get);
	return rc;
}

static int theirs_put(void *context, const char *key, const uint64_t *value)
{
	int rc;

	(void)context;
	bind_key(theirs.put, key);
	sqlite3_bind_blob(theirs.put, 2, value, (int)theirs.state.kind->value,
			  SQLITE_STATIC);
	rc = sqlite3_step(theirs.put);
	sqlite3_reset(theirs.put);
	return errno_of(rc);
}

static int theirs_scan(void *context, const char *key, uint32_t limit,
		       struct tree_seen *seen)
{
	int rc;

	(void)context;
	bind_key(theirs.scan, key);
	sqlite3_bind_int(theirs.scan, 2, (int)limit);
	while ((rc = sqlite3_step(theirs.scan)) == SQLITE_ROW)
		tree_see(seen, sqlite3_column_blob(theirs.scan, 0),
			 sqlite3_column_blob(theirs.scan, 1));
	sqlite3_reset(theirs.scan);
	return errno_of(rc);
}

static const struct tree_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.scan = theirs_scan,
	.clock = CLOCK_THREAD_CPUTIME_ID,
};

/* --- the driver --- */

static int prepare(const char *text, sqlite3_stmt **out)
{
	return errno_of(sqlite3_prepare_v3(
		theirs.base, text, -1, SQLITE_PREPARE_PERSISTENT, out, NULL));
}

static int do_text(const char *text)
{
	return errno_of(sqlite3_exec(theirs.base, text, NULL, NULL, NULL));
}

static double number_of(const char *pragma)
{
	sqlite3_stmt *statement;
	double value = 0;

	if (prepare(pragma, &statement))
		return 0;
	if (sqlite3_step(statement) == SQLITE_ROW)
		value = sqlite3_column_double(statement, 0);
	sqlite3_finalize(statement);
	return value;
}

static int open_table(uint64_t keys)
{
	int rc = errno_of(sqlite3_open(":memory:", &theirs.base));

	rc = rc ? rc
		: do_text("pragma journal_mode = off;"
			  "pragma synchronous = off;"
			  "pragma locking_mode = exclusive;"
			  "create table t (k blob primary key, v blob) "
			  "without rowid");
	rc = rc ? rc : prepare("select v from t where k = ?1", &theirs.get);
	rc = rc ? rc
		: prepare("insert or replace into t values (?1, ?2)",
			  &theirs.put);
	rc = rc ? rc
		: prepare("select k, v from t where k >= ?1 order by k "
			  "limit ?2",
			  &theirs.scan);
	rc = rc ? rc : do_text("begin");
	rc = rc ? rc : tree_load(theirs.state.kind, keys, NULL, theirs_put);
	return rc ? rc : do_text("commit");
}

static int sqlite_open(struct driver_pair *pair)
{
	uint64_t keys = tree_keys(pair->options.size);
	int rc = tree_state_init(&theirs.state, &pair->options, keys);

	rc = rc ? rc : open_table(keys);
	if (rc)
		return driver_fail(pair, rc, "SQLite: %s",
				   theirs.base ? sqlite3_errmsg(theirs.base)
					       : strerror(-rc));
	theirs.bytes = number_of("pragma page_count") *
		       number_of("pragma page_size") / (double)keys;
	snprintf(pair->description, sizeof(pair->description),
		 "SQLite %s in memory, no journal, prepared statements; %.0f "
		 "bytes of memory a key",
		 sqlite3_libversion(), theirs.bytes);
	return 0;
}

static int sqlite_run(struct driver_pair *pair, const char *name,
		      double seconds, double *rate)
{
	int rc = tree_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
			  seconds, rate);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "SQLite: %s",
				     sqlite3_errmsg(theirs.base))
		       : rc;
}

static const struct driver sqlite_driver = {
	.name = "sqlite",
	.open = sqlite_open,
	.run = sqlite_run,
};

int main(int argc, char **argv)
{
	return driver_main(&sqlite_driver, argc, argv);
}
