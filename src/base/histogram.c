/* histogram.c - log-linear buckets.
 *
 * Values below 128 have a bucket each. Above, every power of two is cut into 64
 * equal buckets, so a bucket's width is at most 1/64 of its smallest value. */
#include "base/histogram.h"

#include "base/log.h"

#include <assert.h>
#include <string.h>

#define SUB_BITS 6
#define SUB (1u << SUB_BITS)

/* There are 128 buckets of width 1, then 64 for each power from 2^7 to 2^62. */
static_assert(REEF_HISTOGRAM_BUCKETS == 2 * SUB + (63 - 7) * SUB, "buckets");

static uint32_t bucket_of(uint64_t value)
{
	uint32_t shift;

	if (value < SUB)
		return (uint32_t)value;
	shift = 63 - SUB_BITS - (uint32_t)__builtin_clzll(value);
	return shift * SUB + (uint32_t)(value >> shift);
}

/* The largest value of a bucket. */
static uint64_t bucket_top(uint32_t bucket)
{
	uint32_t shift;

	if (bucket < 2 * SUB)
		return bucket;
	shift = bucket / SUB - 1;
	return ((uint64_t)(bucket % SUB + SUB + 1) << shift) - 1;
}

/* Add without overflow: a mean of absurd values is too low, never nonsense. */
static uint64_t add_saturated(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

void reef_histogram_init(struct reef_histogram *histogram)
{
	memset(histogram, 0, sizeof(*histogram));
	histogram->min = UINT64_MAX;
}

void reef_histogram_record(struct reef_histogram *histogram, uint64_t value)
{
	reef_assert(value <= INT64_MAX);
	histogram->buckets[bucket_of(value)]++;
	histogram->count++;
	histogram->sum = add_saturated(histogram->sum, value);
	if (value < histogram->min)
		histogram->min = value;
	if (value > histogram->max)
		histogram->max = value;
}

uint64_t reef_histogram_quantile(const struct reef_histogram *histogram,
				 double quantile)
{
	uint64_t rank, seen = 0, top;
	double exact;
	uint32_t i;

	reef_assert(quantile >= 0 && quantile <= 1);
	if (histogram->count == 0)
		return 0;
	/* The answer is the rank-th smallest value, counted from 1: the first
	 * that covers the share. */
	exact = quantile * (double)histogram->count;
	rank = (uint64_t)exact;
	if ((double)rank < exact || rank == 0)
		rank++;
	if (rank >= histogram->count)
		return histogram->max;
	for (i = 0; i < REEF_HISTOGRAM_BUCKETS; i++) {
		seen += histogram->buckets[i];
		if (seen >= rank)
			break;
	}
	reef_assert(i < REEF_HISTOGRAM_BUCKETS);
	/* A bucket's top is no further off than the bucket is wide; the largest
	 * value is never passed. */
	top = bucket_top(i);
	return top < histogram->max ? top : histogram->max;
}

double reef_histogram_mean(const struct reef_histogram *histogram)
{
	if (histogram->count == 0)
		return 0;
	return (double)histogram->sum / (double)histogram->count;
}
