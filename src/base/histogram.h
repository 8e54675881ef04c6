/* histogram.h - how long things took, with bounded error and size.
 *
 * (1) Values from 0 to 2^63-1; a quantile is off by at most 1/64 of its value.
 * (2) Recording never allocates.
 *
 * Thread: owner. */
#ifndef REEF_BASE_HISTOGRAM_H
#define REEF_BASE_HISTOGRAM_H

#include <stdint.h>

#define REEF_HISTOGRAM_BUCKETS (64 * 58)

struct reef_histogram {
	uint64_t count, sum, min, max;
	uint64_t buckets[REEF_HISTOGRAM_BUCKETS];
};

void reef_histogram_init(struct reef_histogram *histogram);
void reef_histogram_record(struct reef_histogram *histogram, uint64_t value);

/* The value that a share `quantile` (0 to 1) of the values does not exceed; 0
 * when empty. */
uint64_t reef_histogram_quantile(const struct reef_histogram *histogram,
				 double quantile);
double reef_histogram_mean(const struct reef_histogram *histogram);

#endif
