/* trees.h - ordered indexes in remote memory, asked of the cost model in
 * simulation: ours beside models of others.
 *
 * Ours is the real code in a whole pool (sim_pool.h): what it costs is counted,
 * not computed. The others are models: clients that do the READs, WRITEs and
 * CASes that their papers and public code describe (tree_models.c), on the same
 * cost model, with locks that really conflict. Clients are fibers on compute
 * hosts, and those of one host share its NIC and what it remembers of the
 * index.
 *
 * (1) The same load gives the same figures, everywhere.
 * (2) Only what happens between warm and warm + ops operations is measured, of
 *     all clients together.
 * (3) Every index may remember the same number of bytes a key on each host.
 * (4) Not modelled: the clients' own processors, which take no time.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TREES_H
#define REEF_BENCH_TREES_H

#include "fabric/hook/cost.h"

#define TREES_POINTS_MAX 16

enum trees_index { TREES_REEF, TREES_SHERMAN, TREES_CHIME, TREES_DMTREE };
enum trees_work { TREES_LOOKUP, TREES_INSERT, TREES_UPDATE };

/* Zero means the default. */
struct trees_load {
	struct reef_cost_options cost; /* but pages of 2 MiB */
	uint64_t seed;
	enum trees_index index;
	enum trees_work work;
	uint32_t hosts;	     /* with clients; 8 */
	uint32_t keys;	     /* 100,000; models: as if there were more */
	uint32_t value_size; /* keys are 8 bytes; 8, at most 256 */
	double cache;	     /* bytes a key on each host; 16 */
	/* Clients in all, to 0; at most TREES_POINTS_MAX points. */
	const uint64_t *clients;
};

struct trees_result {
	double ops_per_s;
	double p50_ns, p99_ns;
	/* Per operation, of all clients: */
	double round_trips, operations, bytes_in, bytes_out;
	double cache; /* bytes a key that a host remembers */
};

/* Run it; a result for each number of clients. -EINVAL: too much of something.
 * Else what the pool or the fabric failed with. */
int trees_run(const struct trees_load *load, struct trees_result *out);

/* --- what `reef sim tree` shows --- */

#define TREES_LINES 4

struct trees_study {
	const char *name;     /* one word, for a file */
	const char *title;    /* the answer */
	const char *subtitle; /* how it was asked */
	enum trees_work work;
	uint32_t value_size;
	double cache;
};

extern const struct trees_study *const trees_studies[];	    /* to NULL */
extern const char *const trees_lines[TREES_LINES + 1];	    /* to NULL */
extern const uint64_t trees_points[], trees_quick_points[]; /* to 0 */

/* Run one line, at all points. As trees_run. */
int trees_study_run(const struct trees_study *study, uint32_t line,
		    const uint64_t *points, uint64_t seed,
		    struct trees_result *out);

/* What the papers say of themselves, on their own hardware. */
extern const char trees_papers[];

#endif
