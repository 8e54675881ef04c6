/* play.h - the stage that a bench or a demonstration has, and the scenarios
 * that are played on it.
 *
 * A scenario makes its data once, in the stage's directory; then it is played
 * in turns, with memory of the pool or from the disk alone. Before each turn
 * the kernel's caches are dropped. Or, to see what the machine can show at all,
 * without a limit, and with all of its data in the kernel's caches.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_DATABASE_PLAY_H
#define REEF_BENCH_DATABASE_PLAY_H

#include "bench/database/stage.h"

/* How large things are; play_full as the bench has them. */
struct play_sizes {
	uint64_t table;	 /* bytes of a table of SQLite */
	uint64_t cache;	 /* that SQLite keeps itself */
	uint64_t limit;	 /* of the machine's memory */
	uint64_t sorted; /* bytes that are sorted, and spilled */
	uint64_t file;	 /* bytes of files.h */
	uint64_t lend;	 /* bytes of the pool */
	uint64_t scale;	 /* of pgbench, 16 MB each */
	uint64_t rows;	 /* of tables of Postgres and DuckDB, 0.5 KB each */
};

/* The sizes for a table of that many bytes; quick: small ones. */
void play_choose(uint64_t table, bool quick, struct play_sizes *out);

/* The stage of this process.  play_open: -errno, and its error says why. */
struct stage *play_stage(void);
const struct play_sizes *play_sizes(void);
int play_open(const struct play_sizes *sizes);
void play_close(void);

/* What a turn showed. */
struct play_turn {
	double figure;
	struct driver_cost cost;
};

enum play_way { PLAY_DISK, PLAY_POOL, PLAY_MEMORY };

struct scenario {
	const char *name; /* of its case */
	const char *data; /* what is read, in the stage's directory; or NULL */
	const char *unit;
	bool less_is_better;
	/* Make what both ways need, if it is not there yet; and what the one
	 * with the pool needs.  -errno: the stage's error says why. */
	int (*prepare)(struct stage *stage, bool with_pool);
	int (*turn)(struct stage *stage, bool with_pool, double seconds,
		    struct play_turn *out);
};

extern const struct scenario extend_sqlite, semantic_sqlite, prime_sqlite;
extern const struct scenario spill_sort, spill_postgres, spill_duckdb;
extern const struct scenario extend_postgres, extend_postgres_4;

/* NULL: there is none of that name. */
const struct scenario *play_find(const char *name);

/* Play a scenario's turn: caches are dropped, then it runs. */
int play_turn(const struct scenario *scenario, enum play_way way,
	      double seconds, struct play_turn *out);

#endif
