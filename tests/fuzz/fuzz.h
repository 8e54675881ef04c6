/* fuzz.h - what a fuzz target offers, and how it reads its input.
 *
 * A target is one file, fuzz_<name>.c. With -Dfuzz=true libFuzzer calls it;
 * otherwise replay.c does, with the files of its corpus. The first bytes of an
 * input say how to go about it, the rest is what a peer might send.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_FUZZ_H
#define REEF_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* End the run unless the condition holds, whatever came. */
#define FUZZ_CHECK(condition)                                                  \
	do {                                                                   \
		if (!(condition))                                              \
			abort();                                               \
	} while (0)

struct fuzz_input {
	const uint8_t *bytes;
	size_t size;
};

static inline uint8_t fuzz_take(struct fuzz_input *input)
{
	if (!input->size)
		return 0;
	input->size--;
	return *input->bytes++;
}

#endif
