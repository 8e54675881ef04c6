/* bench.h - measure Reef beside the raw limit and beside its peers, in one run.
 *
 * A bench asks one question of many cases. Its cases stand in groups; a group's
 * competitors (driver.h) are started together, the first of them Reef, and then
 * take turns:
 *
 *   case 1:  reef raw ucx  ucx raw reef  raw ucx reef  reef ucx raw ...
 *   case 2:  ...
 *
 * (1) All competitors of a case run in turn within each round, so that a busy
 *     moment of the machine meets all of them alike. A figure is the median of
 *     the rounds.
 * (2) A ratio is Reef to the other, and above 1 always means Reef is better.
 * (3) A competitor that is not built or fails is never left out silently: its
 *     place says why, in the table and in the JSON ("absent").
 *
 * JSON, a line per case:
 *   {"bench":"fabric","case":"shm-read-64","unit":"ops/s","value":N,
 *    "peers":{"raw":N,"ucx":N},"ratio":{"raw":R,"ucx":R}}
 *
 * Thread: owner. */
#ifndef REEF_BENCH_BENCH_H
#define REEF_BENCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct driver;

#define BENCH_PEERS_MAX 6
#define BENCH_ROUNDS_MAX 99

/* A competitor that Reef is compared with in a case. */
struct bench_peer {
	const char *name; /* one of the group's competitors */
	double required;  /* ratio that Reef must reach; 0: for information */
};

struct bench_case {
	const char *name;
	const char *about; /* one line */
	struct bench_peer peers[BENCH_PEERS_MAX];
};

/* A case whose figures are not like the others' of its group. */
struct bench_unit {
	const char *name; /* of the case */
	const char *unit;
	bool less_is_better;
};

struct bench_competitor {
	const char *name;
	const struct driver *driver; /* in this program; or: */
	const char *program;	     /* a peer's, found at run time */
	const char *absent;	     /* why it is not built; NULL: it is */
};

struct bench_group {
	const char *fabric; /* driver_options.fabric */
	uint64_t size;	    /* bytes of memory */
	uint64_t size_quick;
	const struct bench_competitor *competitors; /* first Reef; to name NULL
						     */
	const struct bench_case *cases;		    /* to name NULL */
	/* If not the bench's: the unit of its figures, and which way is
	 * better. */
	const char *unit;
	bool less_is_better;
	const struct bench_unit *units; /* to name NULL; may be NULL */
};

struct bench {
	const char *name;
	const char *about;
	const char *unit;
	const char *note; /* to print below the table */
	bool less_is_better;
	const struct bench_group *groups; /* to cases NULL */
};

/* Zero means the default. */
struct bench_options {
	const char *json;	  /* file for JSON lines, "-": stdout */
	const char *const *cases; /* shell patterns, to NULL; NULL: all */
	double seconds;		  /* per competitor and case; 1.8 */
	uint32_t rounds;	  /* 9 */
	bool quick;		  /* a few seconds for all; small memory */
	bool huge;		  /* ask for huge pages */
	uint64_t size;		  /* bytes of memory; each group its own */
};

extern const struct bench alloc_bench;
extern const struct bench redis_bench;
extern const struct bench log_bench;
extern const struct bench map_bench;
extern const struct bench sync_bench;
extern const struct bench tree_bench;

/* Every bench there is; the last is NULL. */
extern const struct bench *const bench_all[];

/* Print the names of a bench's cases and what they are. */
void bench_list(const struct bench *bench, FILE *out);

/* Run, print a table and write the JSON.
 * -ESRCH: no case of that name.  -errno: the JSON file.  -EIO: Reef itself
 * failed in a case; the table says how. */
int bench_run(const struct bench *bench, const struct bench_options *options);

#endif
