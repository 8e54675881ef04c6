/* extension.c - the entry point of reef_sqlite.so, which SQLite calls when it
 * is loaded (`.load reef_sqlite`). It registers the VFSs, which stay until the
 * process ends, and gives the functions reef_stats() and reef_prime() to the
 * connection that loads it and to each that is opened afterwards. */
#include "integrations/sqlite/extension.h"

SQLITE_EXTENSION_INIT1

#define ENTRY __attribute__((visibility("default")))

/* Ask the file of the database that the first argument names; default: main. */
static int ask_file(sqlite3_context *context, int count, sqlite3_value **values,
		    int opcode, void *answer)
{
	const char *schema = "main";

	if (count > 0)
		schema = (const char *)sqlite3_value_text(values[0]);
	return sqlite3_file_control(sqlite3_context_db_handle(context), schema,
				    opcode, answer);
}

static void fail(sqlite3_context *context, int rc)
{
	if (rc == SQLITE_NOTFOUND)
		sqlite3_result_error(
			context,
			"the database is not opened by vfs=reef or "
			"vfs=reefcache",
			-1);
	else
		sqlite3_result_error_code(context, rc);
}

static void reef_stats(sqlite3_context *context, int count,
		       sqlite3_value **values)
{
	char *text = NULL;
	int rc = ask_file(context, count, values, REEF_FCNTL_STATS, &text);

	if (rc != SQLITE_OK)
		fail(context, rc);
	else
		sqlite3_result_text(context, text, -1, sqlite3_free);
}

static void reef_prime(sqlite3_context *context, int count,
		       sqlite3_value **values)
{
	sqlite3_int64 pages = 0;
	int rc = ask_file(context, count, values, REEF_FCNTL_PRIME, &pages);

	if (rc != SQLITE_OK)
		fail(context, rc);
	else
		sqlite3_result_int64(context, pages);
}

static int give_functions(sqlite3 *db, char **error,
			  const struct sqlite3_api_routines *api)
{
	static const struct {
		const char *name;
		void (*run)(sqlite3_context *, int, sqlite3_value **);
	} functions[] = {
		{"reef_stats", reef_stats},
		{"reef_prime", reef_prime},
	};
	int rc = SQLITE_OK;

	for (unsigned i = 0; rc == SQLITE_OK && i < 2; i++)
		for (int count = 0; rc == SQLITE_OK && count < 2; count++)
			rc = sqlite3_create_function(
				db, functions[i].name, count,
				SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL,
				functions[i].run, NULL, NULL);
	return rc;
}

/* SQLite finds it by the name of the file: its letters. */
ENTRY int sqlite3_reefsqlite_init(sqlite3 *db, char **error,
				  const sqlite3_api_routines *api);

ENTRY int sqlite3_reefsqlite_init(sqlite3 *db, char **error,
				  const sqlite3_api_routines *api)
{
	int rc;

	SQLITE_EXTENSION_INIT2(api);
	rc = reef_cache_vfs_register();
	if (rc == SQLITE_OK)
		rc = reef_pool_vfs_register();
	if (rc == SQLITE_OK)
		rc = give_functions(db, error, api);
	if (rc == SQLITE_OK)
		rc = sqlite3_auto_extension((void (*)(void))give_functions);
	if (rc != SQLITE_OK) {
		*error = sqlite3_mprintf("reef_sqlite: %s", sqlite3_errstr(rc));
		return rc;
	}
	/* A VFS in use must not be unloaded with the connection. */
	return SQLITE_OK_LOAD_PERMANENTLY;
}
