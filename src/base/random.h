/* random.h - seeded, splittable randomness.
 *
 * (1) The same seed gives the same numbers on every machine.
 * (2) A split stream is independent of its parent's later numbers, so adding a
 *     consumer does not change what the others see.
 * (3) Not for secrets: those come from reef_random_secret.
 *
 * Thread: owner. */
#ifndef REEF_BASE_RANDOM_H
#define REEF_BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reef_random {
	uint64_t state[4];
};

void reef_random_init(struct reef_random *random, uint64_t seed);

/* A new stream named by `label`; the parent moves on by one number. */
struct reef_random reef_random_split(struct reef_random *random,
				     uint64_t label);

uint64_t reef_random_next(struct reef_random *random);

/* Uniform in [0, bound); bound > 0; no modulo bias. */
uint64_t reef_random_below(struct reef_random *random, uint64_t bound);

/* Uniform in [low, high]; low <= high. */
uint64_t reef_random_between(struct reef_random *random, uint64_t low,
			     uint64_t high);

/* True with probability numerator/denominator. */
bool reef_random_chance(struct reef_random *random, uint32_t numerator,
			uint32_t denominator);

/* Uniform in [0, 1). */
double reef_random_unit(struct reef_random *random);

void reef_random_fill(struct reef_random *random, void *bytes, size_t size);

/* Unpredictable bytes from the kernel, for nonces and keys.
 * -errno: the kernel refused. */
int reef_random_secret(void *bytes, size_t size);

#endif
