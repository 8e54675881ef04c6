/* database_sqlite.c - a program with a database of SQLite, for the scenarios of
 * `reef bench database`: it plays the database server, in little memory.
 *
 *   make PATH BYTES                    a table of about that many bytes
 *   points URI CACHE SECONDS           reads of rows anywhere, one at a time
 *   prime URI                          bring its pages into the pool
 *   compute URI CACHE SECONDS          queries over parts of the table
 *   keep URI RESULTS                   compute all of them, keep the results
 *   lookup URI RESULTS CACHE SECONDS   the same queries, by kept results
 *   start URI CACHE HOT SECONDS        a new server: when is it as a warm one?
 *   speed URI SCALE                    a mixture of statements
 *
 * It prints what it found as words: "figure NUMBER". With the extension of
 * $REEF_SQLITE loaded, if there is one.
 *
 * Thread: main. */
#include <errno.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROW_SIZE 400 /* bytes of a row's value */
#define ROWS_AT_ONCE 20000
#define READS_AT_ONCE 100 /* point reads of a transaction */
#define QUERIES 64	  /* different ones of `compute` */
#define WINDOW 1000	  /* reads whose 99th of 100 is looked at */
#define WINDOWS_MAX 4096
#define NEAR 1.5 /* as a warm one: within this of its time */

static sqlite3 *base;

__attribute__((format(printf, 1, 2))) static _Noreturn void
fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stdout, format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t chance(void)
{
	static uint64_t state = 1;

	state = state * UINT64_C(6364136223846793005) +
		UINT64_C(1442695040888963407);
	return state >> 33;
}

/* --- SQLite --- */

static void must(int rc, const char *what)
{
	if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
		fail("%s: %s", what, sqlite3_errmsg(base));
}

static void run_text(const char *text)
{
	must(sqlite3_exec(base, text, NULL, NULL, NULL), text);
}

__attribute__((format(printf, 1, 2))) static void run(const char *format, ...)
{
	char text[4096];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	run_text(text);
}

static sqlite3_stmt *prepare(const char *text)
{
	sqlite3_stmt *statement;

	must(sqlite3_prepare_v2(base, text, -1, &statement, NULL), text);
	return statement;
}

static int64_t number(const char *text)
{
	sqlite3_stmt *statement = prepare(text);
	int64_t value;

	must(sqlite3_step(statement), text);
	value = sqlite3_column_int64(statement, 0);
	sqlite3_finalize(statement);
	return value;
}

/* Load the extension by a connection of its own; its VFSs stay. */
static void load_extension(void)
{
	const char *path = getenv("REEF_SQLITE");
	char *error = NULL;
	sqlite3 *loader;

	if (!path || !path[0])
		return;
	must(sqlite3_open(":memory:", &loader), "memory");
	sqlite3_enable_load_extension(loader, 1);
	if (sqlite3_load_extension(loader, path, NULL, &error))
		fail("%s: %s", path, error);
	sqlite3_close(loader);
}

static void open_base(const char *uri, const char *cache)
{
	must(sqlite3_open_v2(uri, &base,
			     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE |
				     SQLITE_OPEN_URI,
			     NULL),
	     uri);
	sqlite3_busy_timeout(base, 30000);
	if (cache)
		run("pragma cache_size = -%lld", atoll(cache) / 1024);
}

/* --- the table --- */

static void make_table(const char *path, const char *bytes)
{
	int64_t rows = atoll(bytes) / (ROW_SIZE + 30), key = 0;
	char value[ROW_SIZE];
	sqlite3_stmt *put;

	open_base(path, NULL);
	run_text("pragma journal_mode = off; pragma synchronous = off;"
		 "create table t (k integer primary key, n integer, v text)");
	put = prepare("insert into t values (?, ?, ?)");
	memset(value, 'x', sizeof(value));
	run_text("begin");
	for (key = 0; key < rows; key++) {
		sqlite3_bind_int64(put, 1, key);
		sqlite3_bind_int64(put, 2, (int64_t)(chance() % 1000));
		snprintf(value, sizeof(value), "%020lld", (long long)key);
		value[20] = 'y';
		sqlite3_bind_text(put, 3, value, ROW_SIZE, SQLITE_STATIC);
		must(sqlite3_step(put), "insert");
		sqlite3_reset(put);
		if (key % ROWS_AT_ONCE == 0)
			run_text("commit; begin");
	}
	sqlite3_finalize(put);
	run_text("commit");
	printf("figure %lld\n", (long long)rows);
}

static int64_t count_rows(void)
{
	return number("select max(k) + 1 from t");
}

static void read_row(sqlite3_stmt *get, int64_t key)
{
	sqlite3_bind_int64(get, 1, key);
	if (sqlite3_step(get) != SQLITE_ROW ||
	    sqlite3_column_bytes(get, 0) != ROW_SIZE ||
	    atoll((const char *)sqlite3_column_text(get, 0)) != key)
		fail("row %lld is not there, or wrong: %s", (long long)key,
		     sqlite3_errmsg(base));
	sqlite3_reset(get);
}

static void print_stats(void)
{
	sqlite3_stmt *statement;

	if (!getenv("REEF_SQLITE") ||
	    sqlite3_prepare_v2(base, "select reef_stats()", -1, &statement,
			       NULL))
		return;
	if (sqlite3_step(statement) == SQLITE_ROW)
		printf("stats %s\n", sqlite3_column_text(statement, 0));
	sqlite3_finalize(statement);
}

static void read_points(const char *uri, const char *cache, double seconds)
{
	sqlite3_stmt *get;
	uint64_t done = 0;
	double begin;
	int64_t rows;

	open_base(uri, cache);
	rows = count_rows();
	get = prepare("select v from t where k = ?");
	begin = now();
	do {
		run_text("begin");
		for (int i = 0; i < READS_AT_ONCE; i++)
			read_row(get, (int64_t)chance() % rows);
		run_text("commit");
		done += READS_AT_ONCE;
	} while (now() < begin + seconds);
	printf("figure %.1f\n", (double)done / (now() - begin));
	sqlite3_finalize(get);
	print_stats();
}

static void prime_pages(const char *uri)
{
	open_base(uri, NULL);
	printf("figure %lld\n", (long long)number("select reef_prime()"));
}

/* --- results --- */

/* The question number q: what a report would ask of a part of the table. */
static const char question[] =
	"select count(*), sum(n), max(v) from t "
	"where k >= ?1 * ?2 and k < (?1 + 1) * ?2 and n > 10";

static sqlite3_stmt *ask(sqlite3_stmt *query, int64_t q, int64_t width)
{
	sqlite3_bind_int64(query, 1, q);
	sqlite3_bind_int64(query, 2, width);
	if (sqlite3_step(query) != SQLITE_ROW)
		fail("question %lld: %s", (long long)q, sqlite3_errmsg(base));
	return query;
}

static void compute(const char *uri, const char *cache, double seconds)
{
	sqlite3_stmt *query;
	uint64_t done = 0;
	double begin;
	int64_t width;

	open_base(uri, cache);
	width = count_rows() / QUERIES;
	query = prepare(question);
	begin = now();
	do {
		ask(query, (int64_t)chance() % QUERIES, width);
		sqlite3_reset(query);
		done++;
	} while (now() < begin + seconds);
	printf("figure %.3f\n", (double)done / (now() - begin));
	sqlite3_finalize(query);
}

static void keep_results(const char *uri, const char *results)
{
	sqlite3_stmt *query, *put;
	int64_t width;

	open_base(uri, NULL);
	run("attach '%s' as kept", results);
	run_text("pragma kept.journal_mode = persist;"
		 "create table if not exists kept.results "
		 "(q integer primary key, c integer, s integer, m text)");
	width = count_rows() / QUERIES;
	query = prepare(question);
	put = prepare("insert or replace into kept.results "
		      "values (?, ?, ?, ?)");
	run_text("begin");
	for (int64_t q = 0; q < QUERIES; q++) {
		ask(query, q, width);
		sqlite3_bind_int64(put, 1, q);
		for (int i = 0; i < 3; i++)
			sqlite3_bind_value(put, i + 2,
					   sqlite3_column_value(query, i));
		must(sqlite3_step(put), "keep");
		sqlite3_reset(put);
		sqlite3_reset(query);
	}
	sqlite3_finalize(query);
	sqlite3_finalize(put);
	run_text("commit");
	printf("figure %d\n", QUERIES);
}

/* One answer that was kept is computed again, and must be the same. */
static void check_result(sqlite3_stmt *get)
{
	int64_t q = (int64_t)chance() % QUERIES;
	sqlite3_stmt *query = prepare(question);

	ask(query, q, count_rows() / QUERIES);
	ask(get, q, 0);
	for (int i = 0; i < 3; i++)
		if (strcmp((const char *)sqlite3_column_text(query, i),
			   (const char *)sqlite3_column_text(get, i)) != 0)
			fail("result %lld is another one", (long long)q);
	sqlite3_reset(get);
	sqlite3_finalize(query);
}

static void look_up(const char *uri, const char *results, const char *cache,
		    double seconds)
{
	uint64_t done = 0;
	sqlite3_stmt *get;
	double begin, took;

	open_base(uri, cache);
	run("attach '%s' as kept", results);
	get = prepare("select c, s, m from kept.results where q = ?1 + 0 * ?2");
	begin = now();
	do {
		ask(get, (int64_t)chance() % QUERIES, 0);
		sqlite3_reset(get);
	} while (++done % 16 || now() < begin + seconds);
	took = now() - begin;
	check_result(get);
	printf("figure %.1f\n", (double)done / took);
	sqlite3_finalize(get);
}

/* --- a new server --- */

static int by_time(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Time the reads of a window; the 99th of 100. */
static double read_window(sqlite3_stmt *get, int64_t rows, int64_t hot)
{
	static float times[WINDOW];
	double begin;

	run_text("begin");
	for (int i = 0; i < WINDOW; i++) {
		int64_t key = (int64_t)chance() % hot * (rows / hot);

		begin = now();
		read_row(get, key);
		times[i] = (float)(now() - begin);
	}
	run_text("commit");
	qsort(times, WINDOW, sizeof(times[0]), by_time);
	return times[WINDOW * 99 / 100];
}

/* A server reads `hot` rows, each of a page of its own, over and over. It is
 * warm when it has all of them; from when on was it as quick? */
static void start_server(const char *uri, const char *cache, int64_t hot,
			 double seconds)
{
	static double p99[WINDOWS_MAX], until[WINDOWS_MAX];
	double begin, warm;
	sqlite3_stmt *get;
	int count = 0, first = 0;
	int64_t rows, least;

	begin = now(); /* its start is part of it */
	open_base(uri, cache);
	rows = count_rows();
	/* After so many reads nearly each page was read. */
	least = 12 * hot / WINDOW + 8;
	get = prepare("select v from t where k = ?");
	while (count < WINDOWS_MAX &&
	       (count < least || now() < begin + seconds)) {
		p99[count] = read_window(get, rows, hot);
		until[count++] = now() - begin;
	}
	/* The last quarter is warm: the median of its windows. */
	{
		static float tail[WINDOWS_MAX];
		int size = count / 4 ? count / 4 : 1;

		for (int i = 0; i < size; i++)
			tail[i] = (float)p99[count - size + i];
		qsort(tail, (size_t)size, sizeof(tail[0]), by_time);
		warm = tail[size / 2];
	}
	while (first < count - 1 && p99[first] > NEAR * warm)
		first++;
	printf("figure %.6f\nwarm %.9f\n", until[first], warm);
	sqlite3_finalize(get);
	print_stats();
}

/* --- a mixture --- */

/* Statements of many kinds, as the speed test of SQLite's authors has them; the
 * last line is what came out, which does not depend on where it is stored. */
static void run_speed(const char *uri, int64_t scale)
{
	double begin = now();
	sqlite3_stmt *statement;
	int64_t rows = 500 * scale;

	open_base(uri, "262144");
	run_text("pragma journal_mode = persist; pragma synchronous = normal");
	run_text("drop table if exists z1; drop table if exists z2;"
		 "create table z1 (a integer, b integer, c text);"
		 "create table z2 (a integer primary key, b integer, c text)");
	for (int table = 1; table <= 2; table++) {
		run_text("begin");
		for (int64_t i = 0; i < rows; i++)
			run("insert into z%d values (%lld, %llu, '%08llu %s')",
			    table, (long long)i,
			    (unsigned long long)(chance() % 10000),
			    (unsigned long long)chance(),
			    "five hundred rows or more of the same words");
		run_text("commit");
	}
	run_text("create index z1b on z1 (b); create index z2c on z2 (c)");
	for (int64_t i = 0; i < scale * 5; i++) {
		(void)number("select count(*) from z1 where c like '%7%'");
		run("update z2 set b = b + 1 where a between %lld and %lld",
		    (long long)(i * 10), (long long)(i * 10 + 50));
		run("delete from z1 where b between %lld and %lld",
		    (long long)(i * 20), (long long)(i * 20 + 3));
		run("insert or replace into z2 select a + %lld, b, c from z2 "
		    "where a < 20",
		    (long long)(rows + 20 * i));
		run_text("begin; update z1 set c = c || '!' where a % 7 = 0; "
			 "rollback");
	}
	run_text("create temp table z3 as select * from z1 order by c;"
		 "update z2 set c = (select max(c) from z3 where z3.b = z2.b) "
		 "where a % 11 = 0");
	run_text("vacuum; analyze");
	statement = prepare("pragma integrity_check");
	if (sqlite3_step(statement) != SQLITE_ROW ||
	    strcmp((const char *)sqlite3_column_text(statement, 0), "ok") != 0)
		fail("not whole: %s", sqlite3_errmsg(base));
	sqlite3_finalize(statement);
	printf("figure %.3f\nsum %lld %lld %lld\n", now() - begin,
	       (long long)number("select count(*) * 1000003 + sum(a * 31 + b) "
				 "from z1"),
	       (long long)number("select sum(length(c) + b) from z2"),
	       (long long)number("select count(distinct c) from z2"));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int words;
	} verbs[] = {{"make", 2}, {"points", 3}, {"prime", 1}, {"compute", 3},
		     {"keep", 2}, {"lookup", 4}, {"start", 4}, {"speed", 2}};
	const char *verb = argc > 1 ? argv[1] : "";
	size_t i = 0;

	while (i < sizeof(verbs) / sizeof(verbs[0]) &&
	       (strcmp(verbs[i].name, verb) != 0 || argc != verbs[i].words + 2))
		i++;
	if (i < 8)
		load_extension();
	switch (i) {
	case 0:
		make_table(argv[2], argv[3]);
		break;
	case 1:
		read_points(argv[2], argv[3], atof(argv[4]));
		break;
	case 2:
		prime_pages(argv[2]);
		break;
	case 3:
		compute(argv[2], argv[3], atof(argv[4]));
		break;
	case 4:
		keep_results(argv[2], argv[3]);
		break;
	case 5:
		look_up(argv[2], argv[3], argv[4], atof(argv[5]));
		break;
	case 6:
		start_server(argv[2], argv[3], atoll(argv[4]), atof(argv[5]));
		break;
	case 7:
		run_speed(argv[2], atoll(argv[3]));
		break;
	default:
		fprintf(stderr, "usage: %s VERB ARGUMENTS; see its source\n",
			argv[0]);
		return 2;
	}
	sqlite3_close(base);
	return 0;
}
