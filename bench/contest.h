/* contest.h - the processes that compete in one group of cases.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_CONTEST_H
#define REEF_BENCH_CONTEST_H

#include "bench.h"
#include "driver.h"

#include <limits.h>
#include <sys/types.h>

/* A competitor, and how it did in the case under way. */
struct contestant {
	const struct bench_competitor *who;
	pid_t pid;	       /* 0: not running */
	int fd;		       /* to it */
	bool hopeless;	       /* could not be started: do not try again */
	char error[200];       /* why it has no figure; empty: it has */
	char description[160]; /* what it said it uses */
	double rates[BENCH_ROUNDS_MAX];
	struct driver_cost costs[BENCH_ROUNDS_MAX]; /* of the same rounds */
	uint32_t rates_count;
};

struct contest {
	const struct bench_group *group;
	const struct bench_options *options;
	struct contestant *contestants;
	uint32_t count;
	char shared[64]; /* memory to share, once one has told; or empty */
	/* Who takes memory first gets the pages that are left over here and
	 * there, and was measured up to a tenth slower for it; so the harness
	 * takes those, until all have theirs. */
	void *ballast;
	uint64_t ballast_size;
};

/* Make a contest; nobody is started yet.  -ENOMEM. */
int contest_open(struct contest *contest, const struct bench_group *group,
		 const struct bench_options *options);
/* End every process of a contest. */
void contest_close(struct contest *contest);

/* All competitors that are needed have started: give the ballast back. */
void contest_settle(struct contest *contest);

struct contestant *contest_find(struct contest *contest, const char *name);

/* Make sure that a competitor runs, and forget the last case; its error says
 * why it does not. */
void contestant_prepare(struct contest *contest, struct contestant *contestant);

/* Let a competitor run one round, which may take patience_s longer than that
 * (0: half a minute); nothing, once it has an error. */
void contestant_round(struct contestant *contestant, const char *name,
		      double seconds, double patience_s);

/* The median of a competitor's rounds. */
double contestant_median(const struct contestant *contestant);
/* The medians of what its rounds took beside that. */
struct driver_cost contestant_cost(const struct contestant *contestant);

/* Find a peer's program. Peers lie in REEF_PEERS, beside the program that was
 * built, or where it was installed. */
bool contest_find_program(const char *name, char path[PATH_MAX]);

/* Reef's rounds to those of another that ran beside them: that quartile of
 * their ratios, 2 is the median. less: the lower figure is the better. 0: there
 * are none. */
double contest_ratio(const struct contestant *reef,
		     const struct contestant *peer, bool less,
		     uint32_t quartile);

#endif
