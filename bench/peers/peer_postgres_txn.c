/* peer_postgres_txn.c - transactions in PostgreSQL 15, for `reef bench txn`:
 * the list of steps goes to the server in one prepared call of a function,
 * which does them; that is one transaction, serializable.
 *
 * The server is on a unix socket and nothing else, waits for no disk (fsync,
 * synchronous_commit and full_page_writes off), has its files in a directory of
 * its own, in memory where there is /dev/shm, and ends with this process. It
 * will not run as root: then it is the user `postgres`.
 *
 * Thread: owner. */
#include "peers/server.h"
#include "txn_work.h"

#include <ftw.h>
#include <grp.h>
#include <libpq-fe.h>
#include <pwd.h>

#define BIN "/usr/lib/postgresql/15/bin/"

static const char tables[] =
	"create table numbers (k bigint primary key, n bigint);"
	"create table bytes (k bigint primary key, v bytea);"
	"create function txn(kinds int[], keys bigint[], amounts bigint[],"
	" leasts bigint[]) returns int language plpgsql as $$ "
	"declare s bigint := 0; m bigint; begin "
	"for i in 1 .. array_length(kinds, 1) loop "
	"case kinds[i] "
	"when 0 then perform n from numbers where k = keys[i]; "
	"when 1 then update numbers set n = n + amounts[i] where k = keys[i]"
	"  returning n into s;"
	"  if s < leasts[i] then raise exception 'refused'; end if; "
	"when 2 then select n into m from numbers where k = keys[i];"
	"  update numbers set n = 0 where k = keys[i];"
	"  update numbers set n = n + m where k = amounts[i]; "
	"when 3 then update numbers set n = n - amounts[i] +"
	"  case when n - amounts[i] < 10 then 91 else 0 end where k = keys[i]; "
	"when 4 then perform v from bytes where k = keys[i];"
	"  if not found and amounts[i] <> 0 then"
	"    raise exception 'refused'; end if; "
	"when 5 then insert into bytes values (keys[i],"
	"  convert_to(repeat('x', amounts[i]::int), 'SQL_ASCII'))"
	"  on conflict (k) do update set v = excluded.v; "
	"when 6 then insert into bytes values (keys[i],"
	"  convert_to(repeat('x', amounts[i]::int), 'SQL_ASCII'))"
	"  on conflict do nothing;"
	"  if not found then raise exception 'refused'; end if; "
	"when 7 then delete from bytes where k = keys[i]; "
	"when 8 then insert into bytes values (keys[i] + 16 * s,"
	"  convert_to(repeat('x', amounts[i]::int), 'SQL_ASCII')); "
	"end case; end loop; return 0; end $$;";

static PGconn *base;
static char data[96];
static uid_t user;
static gid_t group;

/* --- transactions --- */

struct arrays {
	char kinds[TXN_STEPS_MAX * 8], keys[TXN_STEPS_MAX * 24],
		amounts[TXN_STEPS_MAX * 24], leasts[TXN_STEPS_MAX * 24];
};

static int add_number(char *text, int used, size_t room, int64_t number)
{
	return used + snprintf(text + used, room - (size_t)used, "%c%lld",
			       used ? ',' : '{', (long long)number);
}

static int postgres_run_list(void *context, const struct txn_list *list)
{
	static struct arrays arrays;
	const char *values[] = {arrays.kinds, arrays.keys, arrays.amounts,
				arrays.leasts};
	int used[4] = {0}, rc = 0;
	PGresult *result;

	(void)context;
	for (uint32_t i = 0; i < list->count; i++) {
		const struct txn_step *step = &list->steps[i];

		used[0] = add_number(arrays.kinds, used[0],
				     sizeof(arrays.kinds) - 2, step->kind);
		used[1] =
			add_number(arrays.keys, used[1],
				   sizeof(arrays.keys) - 2, (int64_t)step->key);
		used[2] = add_number(arrays.amounts, used[2],
				     sizeof(arrays.amounts) - 2, step->amount);
		used[3] = add_number(arrays.leasts, used[3],
				     sizeof(arrays.leasts) - 2, step->least);
	}
	strcpy(arrays.kinds + used[0], "}");
	strcpy(arrays.keys + used[1], "}");
	strcpy(arrays.amounts + used[2], "}");
	strcpy(arrays.leasts + used[3], "}");
	result = PQexecPrepared(base, "txn", 4, values, NULL, NULL, 0);
	if (PQresultStatus(result) != PGRES_TUPLES_OK &&
	    !strstr(PQresultErrorMessage(result), "refused"))
		rc = -EPROTO;
	PQclear(result);
	return rc;
}

/* --- loading --- */

static int load_add(void *context, uint64_t key, int64_t number, uint32_t size)
{
	const bool *is_bytes = context;
	char line[160];
	int n;

	if (*is_bytes != (size != 0))
		return 0;
	if (size)
		n = snprintf(
			line, sizeof(line), "%lld\t%.*s\n", (long long)key,
			(int)size,
			"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
			"xxxxxxxxxxxxxx");
	else
		n = snprintf(line, sizeof(line), "%lld\t%lld\n", (long long)key,
			     (long long)number);
	return PQputCopyData(base, line, n) == 1 ? 0 : -EPIPE;
}

static int do_text(const char *text)
{
	PGresult *result = PQexec(base, text);
	ExecStatusType status = PQresultStatus(result);

	PQclear(result);
	return status == PGRES_COMMAND_OK || status == PGRES_COPY_IN ? 0
								     : -EPROTO;
}

static int load_rows(enum txn_table table, uint64_t units, bool is_bytes)
{
	PGresult *result;
	int rc = do_text(is_bytes ? "copy bytes from stdin"
				  : "copy numbers from stdin");

	rc = rc ? rc : txn_load(table, units, &is_bytes, load_add);
	if (rc)
		return rc;
	if (PQputCopyEnd(base, NULL) != 1)
		return -EPIPE;
	while ((result = PQgetResult(base))) {
		if (PQresultStatus(result) != PGRES_COMMAND_OK)
			rc = -EPROTO;
		PQclear(result);
	}
	return rc;
}

static int postgres_load(enum txn_table table, uint64_t units)
{
	int rc = load_rows(table, units, false);

	rc = rc ? rc : load_rows(table, units, true);
	return rc ? rc : do_text("vacuum analyze");
}

static struct txn_peer peer = {
	.clock = CLOCK_MONOTONIC,
	.run = postgres_run_list,
	.load = postgres_load,
};

/* --- the server --- */

static int remove_one(const char *path, const struct stat *status, int flag,
		      struct FTW *where)
{
	(void)status;
	(void)flag;
	(void)where;
	return remove(path);
}

static void remove_files(void)
{
	if (data[0])
		nftw(data, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void become_user(void)
{
	if (user && (setgroups(0, NULL) || setgid(group) || setuid(user)))
		_exit(126);
}

static int run_initdb(void)
{
	int status, null;
	pid_t pid = fork();

	if (!pid) {
		become_user();
		null = open("/dev/null", O_RDWR);
		for (int fd = 0; fd < 3; fd++)
			dup2(null, fd);
		execl(BIN "initdb", "initdb", "-D", data, "-U", "bench", "-A",
		      "trust", "-N", "--locale=C", "-E", "SQL_ASCII",
		      (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return status ? -EPROTO : 0;
}

static int prepare_files(struct driver_pair *pair)
{
	const struct passwd *row = getuid() ? NULL : getpwnam("postgres");

	if (!getuid() && !row)
		return driver_fail(pair, -ENOENT,
				   "PostgreSQL: there is no user postgres");
	if (row) {
		user = row->pw_uid;
		group = row->pw_gid;
	}
	snprintf(data, sizeof(data), "%s/reef-postgres-XXXXXX",
		 access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(data)) {
		data[0] = '\0';
		return -errno;
	}
	return user && chown(data, user, group) ? -errno : 0;
}

static bool postgres_connect(void)
{
	char text[160];

	snprintf(text, sizeof(text),
		 "host=%s port=5432 user=bench "
		 "dbname=postgres",
		 data);
	base = PQconnectdb(text);
	if (PQstatus(base) == CONNECTION_OK)
		return true;
	PQfinish(base);
	base = NULL;
	return false;
}

/* As server_target, but as another user. */
static int postgres_target(struct driver_pair *pair)
{
	become_user();
	return server_target(pair);
}

static int start_server(struct driver_pair *pair)
{
	int rc;

	server.name = BIN "postgres";
	server.client = getpid();
	server_arguments((const char *const[]){"postgres",
					       "-D",
					       data,
					       "-k",
					       data,
					       "-c",
					       "listen_addresses=",
					       "-c",
					       "fsync=off",
					       "-c",
					       "synchronous_commit=off",
					       "-c",
					       "full_page_writes=off",
					       "-c",
					       "shared_buffers=1GB",
					       "-c",
					       "max_wal_size=4GB",
					       "-c",
					       "autovacuum=off",
					       NULL});
	rc = driver_fork(pair, postgres_target);
	rc = rc ? rc : server_connect(pair, postgres_connect);
	pair->target_rests = true;
	return rc;
}

static int prepare_base(void)
{
	PGresult *result;
	int rc = do_text("set default_transaction_isolation = serializable");

	rc = rc ? rc : do_text(tables);
	if (rc)
		return rc;
	result = PQprepare(base, "txn", "select txn($1, $2, $3, $4)", 4, NULL);
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		rc = -EPROTO;
	PQclear(result);
	return rc;
}

static int postgres_open(struct driver_pair *pair)
{
	int rc = prepare_files(pair);

	rc = rc ? rc : run_initdb();
	if (rc == -ENOENT)
		driver_fail(pair, rc,
			    "PostgreSQL 15 is not installed (make bench "
			    "installs it)");
	rc = rc ? rc : start_server(pair);
	rc = rc ? rc : prepare_base();
	if (rc) {
		driver_fail(pair, rc, "PostgreSQL: %s",
			    base ? PQerrorMessage(base) : strerror(-rc));
		remove_files();
		return rc;
	}
	peer.state = (struct txn_state){
		.units = pair->options.size / TXN_UNIT,
		.random = 1,
	};
	snprintf(pair->description, sizeof(pair->description),
		 "PostgreSQL %d.%d on a unix socket, a function, fsync off, "
		 "one synchronous client",
		 PQserverVersion(base) / 10000, PQserverVersion(base) % 10000);
	return 0;
}

static int postgres_run(struct driver_pair *pair, const char *name,
			double seconds, double *figure)
{
	int rc = txn_peer_run(&peer, name, seconds, figure);

	return rc && rc != -EILSEQ && rc != -ENOSYS
		       ? driver_fail(pair, rc, "PostgreSQL: %s",
				     PQerrorMessage(base))
		       : rc;
}

static void postgres_close(struct driver_pair *pair)
{
	PQfinish(base);
	/* At once, and with all its processes. */
	kill(pair->target, SIGINT);
	waitpid(pair->target, NULL, 0);
	remove_files();
}

static const struct driver postgres_driver = {
	.name = "postgres",
	.open = postgres_open,
	.run = postgres_run,
	.close = postgres_close,
};

int main(int argc, char **argv)
{
	return driver_main(&postgres_driver, argc, argv);
}
