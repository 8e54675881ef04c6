/* postgres.c - the scenarios with Postgres: a server of its own on a unix
 * socket in the stage's directory, started for each turn and stopped after it.
 *
 * It runs as the user postgres, as it refuses to run as root. */
#include "bench/database/play.h"
#include "bench/units.h"

#include <dirent.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define USER "postgres"
#define PROGRAMS "/usr/lib/postgresql" /* VERSION/bin, as Debian has it */
#define POOL "pgpool"
#define START_TRIES 600 /* 100 ms each */
#define WORDS_MAX 32

struct server {
	const struct passwd *user;
	char programs[512]; /* directory of them, "/" behind it; or empty */
	char data[PATH_MAX];
	char pool[PATH_MAX]; /* directory of the pool of its user */
	pid_t pid;
};

/* Find the user and the programs.  -ENOENT: the stage's error says what lacks.
 */
static int find_postgres(struct stage *stage, struct server *server)
{
	struct dirent **found = NULL;
	char path[PATH_MAX];
	int count;

	server->user = getpwnam(USER);
	if (!server->user)
		return driver_fail(&stage->errors, -ENOENT,
				   "Postgres is not installed: there is no "
				   "user " USER);
	stage_path(stage, "pg", server->data);
	stage_path(stage, POOL, server->pool);
	server->programs[0] = '\0';
	count = scandir(PROGRAMS, &found, NULL, versionsort);
	for (int i = 0; i < count; i++) {
		snprintf(path, sizeof(path), PROGRAMS "/%s/bin/postgres",
			 found[i]->d_name);
		if (access(path, X_OK) == 0)
			snprintf(server->programs, sizeof(server->programs),
				 PROGRAMS "/%s/bin/", found[i]->d_name);
		free(found[i]);
	}
	free(found);
	return 0;
}

/* A program of Postgres with these words, to NULL, as its user. */
struct command {
	char name[600];
	const char *arguments[WORDS_MAX + 2];
	const char *environment[9];
	struct stage_program program;
};

static void prepare_command(const struct server *server, const char *name,
			    const char *const *words, struct command *out)
{
	*out = (struct command){
		.environment = {"LC_ALL", "C", "XDG_RUNTIME_DIR", server->pool,
				"XDG_STATE_HOME", server->pool,
				"XDG_CONFIG_HOME", server->pool, NULL},
	};
	snprintf(out->name, sizeof(out->name), "%s%s",
		 name[0] == '/' ? "" : server->programs, name);
	out->arguments[0] = out->name;
	for (uint32_t i = 0; words[i] && i < WORDS_MAX; i++)
		out->arguments[i + 1] = words[i];
	out->program = (struct stage_program){
		.arguments = out->arguments,
		.environment = out->environment,
		.is_other_user = true,
		.user = server->user->pw_uid,
		.group = server->user->pw_gid,
	};
}

static int run_command(struct stage *stage, const struct server *server,
		       const char *name, const char *const *words,
		       struct stage_result *result)
{
	struct command command;

	prepare_command(server, name, words, &command);
	return stage_run(stage, &command.program, result);
}

static int run_sql(struct stage *stage, const struct server *server,
		   const char *text, struct stage_result *result)
{
	const char *words[] = {
		"-XqAt", "-v", "ON_ERROR_STOP=1", "-h", server->data, "-U",
		USER,	 "-d", "postgres",	  "-c", text,	      NULL};

	return run_command(stage, server, "psql", words, result);
}

/* Wait until the server answers. */
static int server_wait(struct stage *stage, struct server *server)
{
	struct stage_result result;

	for (int i = 0; i < START_TRIES; i++) {
		if (!run_sql(stage, server, "select 1", &result))
			return 0;
		poll(NULL, 0, 100);
	}
	stage_end(stage, &server->pid, SIGQUIT, NULL);
	return -ETIMEDOUT;
}

/* Start the server; with_pages: under `reef pages`. */
static int server_start(struct stage *stage, struct server *server,
			bool with_pages)
{
	char buffers[48], size[24], program[600];
	const char *words[] = {
		"pages", "--dir", server->data, "--size", size, "--", program,
		/* the server's own: */
		"-D", server->data, "-k", server->data, "-c",
		"listen_addresses=", "-c", buffers, "-c", "max_connections=20",
		"-c", "fsync=off", "-c", "log_min_messages=fatal", "-c",
		"max_parallel_workers_per_gather=0", "-c", "jit=off", NULL};
	struct command command;
	int rc = find_postgres(stage, server);

	if (rc)
		return rc;
	/* 128 MB where the machine has 512. */
	snprintf(buffers, sizeof(buffers), "shared_buffers=%lluMB",
		 (unsigned long long)(play_sizes()->limit / MIB / 4));
	snprintf(size, sizeof(size), "%llu",
		 (unsigned long long)(play_sizes()->scale * 32 * MIB));
	snprintf(program, sizeof(program), "%spostgres", server->programs);
	prepare_command(server, with_pages ? stage->self : program,
			with_pages ? words : words + 7, &command);
	rc = stage_start(stage, &command.program, &server->pid);
	return rc ? rc : server_wait(stage, server);
}

/* Stop it; what it has read is told then. */
static void server_stop(struct stage *stage, struct server *server,
			struct stage_result *result)
{
	stage_end(stage, &server->pid, SIGINT, result);
}

static int make_server(struct stage *stage, bool with_pool)
{
	struct server server = {0};
	const char *words[] = {"-D", server.data, "-A",	       "trust",
			       "-U", USER,	  "--no-sync", NULL};
	struct stage_result result;
	int rc = find_postgres(stage, &server);

	if (!rc && with_pool)
		rc = stage_warm(stage, 2 * play_sizes()->sorted);
	if (rc || access(server.data, F_OK) == 0)
		return rc;
	if (mkdir(server.data, 0700) ||
	    chown(server.data, server.user->pw_uid, server.user->pw_gid))
		return driver_fail(&stage->errors, -errno, "%s: %s",
				   server.data, strerror(errno));
	stage_tell(stage, "making a database of Postgres");
	rc = run_command(stage, &server, "initdb", words, &result);
	stage_tell(stage, "%s", "");
	if (rc)
		rmdir(server.data);
	return rc;
}

/* What a server took that has ended, for a query of so many seconds. */
static void set_cost(const struct stage_result *served, double seconds,
		     struct play_turn *out)
{
	out->cost = served->cost;
	out->cost.waited =
		served->worked < seconds ? 1 - served->worked / seconds : 0;
}

/* --- spilling --- */

/* Rows of half a kilobyte, sorted by what has no order. */
#define SORTED                                                                 \
	"set work_mem = '4MB'; set temp_tablespaces = 'spill';"                \
	"select count(*), max(v) from (select k, v from (select "              \
	"(i::bigint * 7919) %% %llu k, repeat(md5(i::text), 16) v from "       \
	"generate_series(1, %llu) i) r order by k offset 1) s"

static int make_tablespace(struct stage *stage, const struct server *server,
			   const char *directory)
{
	char text[PATH_MAX + 128];
	struct stage_result result;
	int rc;

	(void)run_sql(stage, server, "drop tablespace if exists spill",
		      &result);
	snprintf(text, sizeof(text), "create tablespace spill location '%s'",
		 directory);
	rc = run_sql(stage, server, text, &result);
	return rc;
}

static int begin_spilling(struct stage *stage, bool with_pool,
			  const struct server *server, pid_t *mount,
			  char directory[PATH_MAX])
{
	int rc = with_pool ? stage_mount(stage, mount) : 0;

	if (rc)
		return rc;
	stage_path(stage, with_pool ? "spill/pg" : "pgspill", directory);
	if ((mkdir(directory, 0700) && errno != EEXIST) ||
	    chown(directory, server->user->pw_uid, server->user->pw_gid))
		return driver_fail(&stage->errors, -errno, "%s: %s", directory,
				   strerror(errno));
	return make_tablespace(stage, server, directory);
}

static int spill_turn(struct stage *stage, bool with_pool, double seconds,
		      struct play_turn *out)
{
	struct stage_result result, served = {0};
	unsigned long long rows = play_sizes()->rows;
	struct server server = {0};
	char directory[PATH_MAX], text[512], error[160];
	pid_t mount = 0;
	int rc = server_start(stage, &server, false);

	if (rc)
		return rc;
	snprintf(text, sizeof(text), SORTED, rows, rows);
	rc = begin_spilling(stage, with_pool, &server, &mount, directory);
	rc = rc ? rc : run_sql(stage, &server, text, &result);
	if (!rc)
		*out = (struct play_turn){.figure = result.seconds};
	snprintf(error, sizeof(error), "%s", stage->errors.error);
	/* The space for temporary files goes before its directory does. */
	(void)run_sql(stage, &server, "drop tablespace if exists spill",
		      &served);
	server_stop(stage, &server, &served);
	stage_unmount(stage, &mount);
	/* What failed first is why. */
	snprintf(stage->errors.error, sizeof(stage->errors.error), "%s", error);
	if (!rc)
		set_cost(&served, result.seconds, out);
	return rc;
}

const struct scenario spill_postgres = {
	.name = "spill-postgres",
	.unit = "seconds",
	.less_is_better = true,
	.prepare = make_server,
	.turn = spill_turn,
};

/* --- pgbench --- */

static int run_pgbench(struct stage *stage, const struct server *server,
		       const char *const *words, struct stage_result *result)
{
	const char *all[WORDS_MAX] = {"-h", server->data, "-U", USER};
	uint32_t count = 4;

	for (uint32_t i = 0; words[i]; i++)
		all[count++] = words[i];
	all[count++] = "postgres";
	return run_command(stage, server, "pgbench", all, result);
}

/* Fill the tables, by a server as it is. */
static int fill_tables(struct stage *stage)
{
	char scale[24];
	const char *words[] = {"-i", "-q", "-s", scale, NULL};
	struct server server = {0};
	struct stage_result result;
	int rc = server_start(stage, &server, false);

	if (rc)
		return rc;
	stage_tell(stage, "filling pgbench's tables");
	snprintf(scale, sizeof(scale), "%llu",
		 (unsigned long long)play_sizes()->scale);
	rc = run_pgbench(stage, &server, words, &result);
	server_stop(stage, &server, &result);
	stage_tell(stage, "%s", "");
	return rc;
}

/* Read it all once, so that its pages are in the pool. */
static int fill_pool(struct stage *stage)
{
	struct server server = {0};
	struct stage_result result;
	int rc = find_postgres(stage, &server);

	rc = rc ? rc
		: stage_lend(stage, POOL, server.user->pw_uid,
			     server.user->pw_gid,
			     (play_sizes()->scale * 32 + 256) * MIB);
	rc = rc ? rc : server_start(stage, &server, true);
	if (rc)
		return rc;
	stage_tell(stage, "bringing the pages into the pool");
	rc = run_sql(stage, &server,
		     /* The rows, not the index alone; then that. */
		     "select sum(abalance) from pgbench_accounts;"
		     "set enable_seqscan = off; set enable_bitmapscan = off;"
		     "select count(aid) from pgbench_accounts",
		     &result);
	server_stop(stage, &server, &result);
	stage_tell(stage, "%s", "");
	return rc;
}

/* Do something once: a file says that it was done. */
static int once(struct stage *stage, const char *name,
		int (*fill)(struct stage *stage))
{
	char path[PATH_MAX];
	FILE *mark;
	int rc;

	stage_path(stage, name, path);
	if (access(path, F_OK) == 0)
		return 0;
	rc = fill(stage);
	mark = rc ? NULL : fopen(path, "we");
	if (mark)
		fclose(mark);
	return rc;
}

static int pgbench_prepare(struct stage *stage, bool with_pool)
{
	int rc = make_server(stage, false);

	rc = rc ? rc : once(stage, "pgbench.filled", fill_tables);
	return rc || !with_pool ? rc : once(stage, "pgbench.lent", fill_pool);
}

static int run_clients(struct stage *stage, bool with_pool, const char *clients,
		       const char *protocol, double seconds,
		       struct play_turn *out)
{
	char time[24];
	const char *words[] = {"-S",	 "-n", "-c", clients, "-M",
			       protocol, "-T", time, NULL};
	struct stage_result result, served = {0};
	struct server server = {0};
	const char *found;
	int rc = server_start(stage, &server, with_pool);

	if (rc)
		return rc;
	snprintf(time, sizeof(time), "%.0f", seconds < 1 ? 1 : seconds);
	rc = run_pgbench(stage, &server, words, &result);
	server_stop(stage, &server, &served);
	if (rc)
		return rc;
	found = strstr(result.text, "tps = ");
	*out = (struct play_turn){
		.figure = found ? strtod(found + 6, NULL) : 0,
	};
	set_cost(&served, result.seconds, out);
	return 0;
}

static int pgbench_turn(struct stage *stage, bool with_pool, double seconds,
			struct play_turn *out)
{
	return run_clients(stage, with_pool, "1", "prepared", seconds, out);
}

static int pgbench_turn_4(struct stage *stage, bool with_pool, double seconds,
			  struct play_turn *out)
{
	return run_clients(stage, with_pool, "4", "simple", seconds, out);
}

const struct scenario extend_postgres_4 = {
	.name = "extend-postgres-4",
	.data = "pg/base",
	.unit = "transactions/s",
	.prepare = pgbench_prepare,
	.turn = pgbench_turn_4,
};

const struct scenario extend_postgres = {
	.name = "extend-postgres",
	.data = "pg/base",
	.unit = "transactions/s",
	.prepare = pgbench_prepare,
	.turn = pgbench_turn,
};
