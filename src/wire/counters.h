/* counters.h - what sessions count of their data path, as it lies behind their
 * renewal words. No server sees a one-sided operation, so who does it says so.
 *
 * (1) All are words that only rise, in whatever life of the session; each is of
 *     one moment, all together are not (F2).
 * (2) Who reads them believes nothing: they are what a session says of itself.
 *
 * Thread: any. */
#ifndef REEF_WIRE_COUNTERS_H
#define REEF_WIRE_COUNTERS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* Fabrics that operations go by. */
enum reef_counted_fabric {
	REEF_COUNTED_SHM,
	REEF_COUNTED_TCP,
	REEF_COUNTED_VERBS,
	REEF_COUNTED_SIM,
	REEF_COUNTED_FABRICS
};

/* Kinds of operations; READ to FAA are those of enum reef_kind, less 1. LOOKUP:
 * a key that was read in place, without operations of its own. */
enum reef_counted_kind {
	REEF_COUNTED_READ,
	REEF_COUNTED_WRITE,
	REEF_COUNTED_CAS,
	REEF_COUNTED_FAA,
	REEF_COUNTED_FLUSH,
	REEF_COUNTED_LOOKUP,
	REEF_COUNTED_KINDS
};

#define REEF_LATENCIES 12u

struct reef_counters {
	/* Of READ, WRITE and LOOKUP; of others it is not defined. */
	uint64_t bytes[REEF_COUNTED_KINDS];
	uint64_t operations[REEF_COUNTED_FABRICS][REEF_COUNTED_KINDS];
	uint64_t retries;  /* batches of which something was done again */
	uint64_t in_doubt; /* batches that may have happened or not */
	/* Gets of keys that were there, but for LOOKUPs; that were not. */
	uint64_t hits, misses;
	uint64_t damaged; /* gets that met bytes that nobody wrote so */
	/* How long calls took, by reef_latency_bounds_ns: those that waited for
	 * a fabric; gets and changes of maps in place by a sample. latency_ns:
	 * all of them together. */
	uint64_t latencies[REEF_LATENCIES];
	uint64_t latency_ns;
};
#define REEF_COUNTERS (sizeof(struct reef_counters) / sizeof(uint64_t))
static_assert(REEF_COUNTERS == 6 + 24 + 2 + 3 + 12 + 1, "layout");

/* What a broker counts of itself, since it started. */
enum reef_broker_counter {
	REEF_BROKER_COMMITS,	 /* of changes, that were waited for */
	REEF_BROKER_COMMIT_NS,	 /* how long that took, together */
	REEF_BROKER_SLOW,	 /* that took longer than REEF_COMMIT_SLOW_NS */
	REEF_BROKER_FENCES,	 /* of sessions, confirmed by all nodes */
	REEF_BROKER_FENCE_FAILS, /* that a node did not confirm when asked */
	REEF_BROKER_ENDED,	 /* sessions that ended without being closed */
	REEF_BROKER_LOST,	 /* extents that were lost */
	REEF_BROKER_MOVED,	 /* extents that moved to another node */
	REEF_BROKER_SHORTS,	 /* times that memory was asked for in vain */
	REEF_BROKER_COUNTERS
};
#define REEF_COMMIT_SLOW_NS UINT64_C(100000000)

static inline uint64_t reef_counted_read(const struct reef_counters *counters)
{
	return counters->bytes[REEF_COUNTED_READ] +
	       counters->bytes[REEF_COUNTED_LOOKUP];
}

/* The longest times of all buckets but the last. */
static const uint64_t reef_latency_bounds_ns[REEF_LATENCIES - 1] = {
	250,	500,	1000,	 5000,	   20000,     50000,
	100000, 500000, 1000000, 10000000, 100000000,
};

static inline uint32_t reef_latency_bucket(uint64_t ns)
{
	uint32_t i = 0;

	while (i < REEF_LATENCIES - 1 && ns > reef_latency_bounds_ns[i])
		i++;
	return i;
}

#endif
