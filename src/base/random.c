/* The generator is xoshiro256** (Blackman and Vigna), seeded by splitmix64 so
 * that close seeds give unrelated streams and the all-zero state cannot come
 * up. */
#include "base/random.h"

#include "base/log.h"

#include <errno.h>
#include <sys/random.h>

__extension__ typedef unsigned __int128 wide;

static uint64_t splitmix(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static uint64_t rotate_left(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

void reef_random_init(struct reef_random *random, uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		random->state[i] = splitmix(&seed);
}

struct reef_random reef_random_split(struct reef_random *random, uint64_t label)
{
	struct reef_random child;

	/* The label is mixed before it meets the parent's number: labels are
	 * small integers, and xor alone would leave siblings' seeds close. */
	reef_random_init(&child, reef_random_next(random) ^ splitmix(&label));
	return child;
}

uint64_t reef_random_next(struct reef_random *random)
{
	uint64_t *s = random->state;
	uint64_t result = rotate_left(s[1] * 5, 7) * 9;
	uint64_t shifted = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= shifted;
	s[3] = rotate_left(s[3], 45);
	return result;
}

uint64_t reef_random_below(struct reef_random *random, uint64_t bound)
{
	uint64_t reject;
	wide product;

	reef_assert(bound > 0);
	/* Scale into [0, bound) by the high half of a product; the low half
	 * tells the few values that would make some results more frequent. */
	product = (wide)reef_random_next(random) * bound;
	if ((uint64_t)product < bound) {
		reject = -bound % bound;
		while ((uint64_t)product < reject)
			product = (wide)reef_random_next(random) * bound;
	}
	return (uint64_t)(product >> 64);
}

uint64_t reef_random_between(struct reef_random *random, uint64_t low,
			     uint64_t high)
{
	reef_assert(low <= high);
	if (high - low == UINT64_MAX)
		return reef_random_next(random);
	return low + reef_random_below(random, high - low + 1);
}

bool reef_random_chance(struct reef_random *random, uint32_t numerator,
			uint32_t denominator)
{
	return reef_random_below(random, denominator) < numerator;
}

double reef_random_unit(struct reef_random *random)
{
	return (double)(reef_random_next(random) >> 11) * 0x1p-53;
}

void reef_random_fill(struct reef_random *random, void *bytes, size_t size)
{
	uint8_t *out = bytes;
	uint64_t number = 0;

	/* Byte by byte they are the same in every byte order. */
	for (size_t i = 0; i < size; i++) {
		if (i % 8 == 0)
			number = reef_random_next(random);
		out[i] = (uint8_t)number;
		number >>= 8;
	}
}

int reef_random_secret(void *bytes, size_t size)
{
	uint8_t *out = bytes;
	ssize_t got;

	while (size > 0) {
		got = getrandom(out, size, 0);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		out += got;
		size -= (size_t)got;
	}
	return 0;
}
