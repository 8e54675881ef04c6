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
 * (2) A ratio is Reef to the other, and above 1 always means Reef is better. It
 *     is the median of the rounds' own ratios, not the ratio of two medians:
 *     where the machine is busy for half of the rounds, those may be of
 *     different moments. Half of the rounds' ratios lie within "spread".
 * (3) A competitor that is not built or fails is never left out silently: its
 *     place says why, in the table and in the JSON ("absent").
 *
 * JSON, a line per case:
 *   {"bench":"fabric","case":"shm-read-64","unit":"ops/s","value":N,
 *    "peers":{"raw":N,"ucx":N},"ratio":{"raw":R,"ucx":R},
 *    "spread":{"raw":[R,R],"ucx":[R,R]}}
 * and, of benches that know it, what a round took of the disk (medians), Reef's
 * first: "disk_bytes":{"reef":N,"disk":N},"faults":{"reef":N,"disk":N},
 *    "waited":{"reef":N,"disk":N}
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
	/* It has no ratio where it did not read from the disk. */
	bool reads_disk;
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
	/* How much longer than its seconds a round may take; 0: half a
	 * minute. */
	double patience_s;
	/* What is required instead of a peer that waited for the disk for most
	 * of its time; 0: the same. */
	double required_waiting;
	/* So many times the rounds that were asked for, which are as short as
	 * they would be then; 0: once. */
	uint32_t often;
};

struct bench_options;

struct bench {
	const char *name;
	const char *about;
	const char *unit;
	const char *note; /* to print below the table */
	bool less_is_better;
	const struct bench_group *groups; /* to cases NULL */
	bool has_costs; /* its drivers know what they read from disks */
	/* If not those of bench_options: */
	double seconds, seconds_quick;
	uint32_t rounds, rounds_quick;
	/* Optional: before the first competitor is started, in the harness, and
	 * when all have ended.  -errno: what is wrong was said. */
	int (*open)(const struct bench_options *options);
	void (*close)(void);
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
	const char *charts; /* directory for a chart of each case; NULL: none */
};

extern const struct bench alloc_bench;
extern const struct bench copies_bench;
extern const struct bench database_bench;
extern const struct bench redis_bench;
extern const struct bench log_bench;
extern const struct bench map_bench;
extern const struct bench sync_bench;
extern const struct bench tree_bench;
extern const struct bench txn_bench;

/* Every bench there is; the last is NULL. */
extern const struct bench *const bench_all[];

/* Print the names of a bench's cases and what they are. */
void bench_list(const struct bench *bench, FILE *out);

/* Run, print a table and write the JSON.
 * -ESRCH: no case of that name.  -errno: the JSON file.  -EIO: Reef itself
 * failed in a case, and the table says how; or the bench could not begin, and
 * it said why. */
int bench_run(const struct bench *bench, const struct bench_options *options);

#endif
