/* database_duckdb.c LIBRARY MEMORY DIRECTORY ROWS - a program with a DuckDB
 * that sorts more than it may keep, for `reef bench database`.
 *
 * DuckDB is the library that npm's @duckdb/node-api brings, loaded as it is.
 * Node is not: its code alone would fill the little memory of the machine, and
 * be read from the disk again and again.
 *
 * It prints what the sort took, without what came before: "figure SECONDS disk
 * BYTES faults COUNT worked SECONDS"; or, with status 1, what is wrong. A sort
 * that loses, changes or misplaces a row is wrong.
 *
 * Thread: main. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define TEXT_MAX 6000

/* Rows of 128 bytes that cannot be made smaller. */
#define ROW                                                                    \
	"hash(i) a, hash(i, 1) b, hash(i, 2) c, hash(i, 3) d, hash(i, 4) e,"   \
	"hash(i, 5) f, hash(i, 6) g, hash(i, 7) h, hash(i, 8) j,"              \
	"hash(i, 9) k, hash(i, 10) l, hash(i, 11) m, hash(i, 12) n,"           \
	"hash(i, 13) o, hash(i, 14) p, hash(i, 15) q"
#define SUM "bit_xor(hash(a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q))"

/* What is used of DuckDB's C interface; a result is as its header has it. */
struct result {
	uint64_t columns, rows, changed;
	void *old_columns, *old_error, *internal;
};
static int (*duckdb_open)(const char *path, void **base);
static int (*duckdb_connect)(void *base, void **connection);
static int (*duckdb_query)(void *connection, const char *query,
			   struct result *result);
static const char *(*duckdb_result_error)(struct result *result);
static uint64_t (*duckdb_value_uint64)(struct result *result, uint64_t column,
				       uint64_t row);
static void (*duckdb_destroy_result)(struct result *result);

static const struct {
	const char *name;
	void *function; /* a pointer to one */
} functions[] = {
	{"duckdb_open", &duckdb_open},
	{"duckdb_connect", &duckdb_connect},
	{"duckdb_query", &duckdb_query},
	{"duckdb_result_error", &duckdb_result_error},
	{"duckdb_value_uint64", &duckdb_value_uint64},
	{"duckdb_destroy_result", &duckdb_destroy_result},
};

static void *connection;

__attribute__((format(printf, 1, 2))) static _Noreturn void
fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stdout, format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
	/* DuckDB's own threads are not waited for. */
	_Exit(1);
}

static void load(const char *path)
{
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL), *base;

	if (!library)
		fail("%s", dlerror());
	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		*(void **)functions[i].function =
			dlsym(library, functions[i].name);
		if (!*(void **)functions[i].function)
			fail("%s has no %s", path, functions[i].name);
	}
	if (duckdb_open(NULL, &base) || duckdb_connect(base, &connection))
		fail("DuckDB cannot be opened");
}

/* What a query has in its only row: some numbers. */
struct answer {
	uint64_t count, sum, misplaced;
};

__attribute__((format(printf, 1, 2))) static struct answer
ask(const char *format, ...)
{
	struct answer answer = {0};
	char text[TEXT_MAX];
	struct result result;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (duckdb_query(connection, text, &result))
		fail("%s", duckdb_result_error(&result));
	answer.count = duckdb_value_uint64(&result, 0, 0);
	answer.sum = duckdb_value_uint64(&result, 1, 0);
	answer.misplaced = duckdb_value_uint64(&result, 2, 0);
	duckdb_destroy_result(&result);
	return answer;
}

static struct answer sort(uint64_t rows)
{
	return ask("select count(*), " SUM ", count(*) filter (a < was) "
		   "from (select *, lag(a) over () was from "
		   "(select " ROW " from range(%" PRIu64 ") r(i) order by a))",
		   rows);
}

static double seconds_of(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* What this process has cost so far. */
struct cost {
	double time, worked, disk, faults;
};

static struct cost cost_now(void)
{
	struct timespec time;
	struct rusage usage;

	clock_gettime(CLOCK_MONOTONIC, &time);
	getrusage(RUSAGE_SELF, &usage);
	return (struct cost){
		.time = (double)time.tv_sec + (double)time.tv_nsec / 1e9,
		.worked =
			seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
		.disk = 512.0 * (double)usage.ru_inblock,
		.faults = (double)usage.ru_majflt,
	};
}

int main(int argc, char **argv)
{
	struct answer wanted, found;
	struct cost before, after;
	uint64_t rows;

	if (argc != 5)
		fail("usage: database_duckdb LIBRARY MEMORY DIRECTORY ROWS");
	rows = strtoull(argv[4], NULL, 10);
	load(argv[1]);
	ask("set threads = 1; set memory_limit = '%s'; "
	    "set temp_directory = '%s'",
	    argv[2], argv[3]);
	/* The same rows as they come, which takes no memory; and a sort of a
	 * few: DuckDB's code is there then. */
	wanted = ask("select count(*), " SUM ", 0 from "
		     "(select " ROW " from range(%" PRIu64 ") r(i))",
		     rows);
	sort(1000);
	before = cost_now();
	found = sort(rows);
	after = cost_now();
	if (found.count != wanted.count || found.sum != wanted.sum ||
	    found.misplaced)
		fail("the sort is wrong: %" PRIu64 " rows of %" PRIu64
		     ", sum %" PRIx64 " for %" PRIx64 ", %" PRIu64 " misplaced",
		     found.count, wanted.count, found.sum, wanted.sum,
		     found.misplaced);
	printf("figure %.6f disk %.0f faults %.0f worked %.6f sum %" PRIx64
	       "\n",
	       after.time - before.time, after.disk - before.disk,
	       after.faults - before.faults, after.worked - before.worked,
	       found.sum);
	fflush(stdout);
	_Exit(0);
}
