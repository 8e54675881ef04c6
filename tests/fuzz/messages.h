/* messages.h - an input that is what several peers say, one after the other:
 * each message has a byte in front that says who, and two of length.
 *
 * The highest bit of that byte: the message is to have the number that comes
 * next for who says it (wire/pool.h, rule 2), which no chance would find.
 * mutate.c makes and changes such inputs: valid ones, with wild values.
 *
 * Thread: owner. */
#ifndef REEF_TESTS_FUZZ_MESSAGES_H
#define REEF_TESTS_FUZZ_MESSAGES_H

#include "fuzz.h"

#include "wire/pool.h"

#define FUZZ_NUMBERED 0x80u
#define FUZZ_MESSAGES_MAX 64
#define FUZZ_KEY_BYTE 4 /* the pool's key is made of these */

struct fuzz_message {
	uint8_t who; /* without the bit */
	bool is_numbered;
	uint32_t length;
	const uint8_t *bytes; /* the input's */
};

/* False: there are no more. */
static inline bool fuzz_next_message(struct fuzz_input *input,
				     struct fuzz_message *out)
{
	uint8_t who;
	uint32_t length;

	if (!input->size)
		return false;
	who = fuzz_take(input);
	length = fuzz_take(input);
	length |= (uint32_t)fuzz_take(input) << 8;
	if (length > input->size)
		length = (uint32_t)input->size;
	*out = (struct fuzz_message){
		.who = who & (uint8_t)~FUZZ_NUMBERED,
		.is_numbered = who & FUZZ_NUMBERED,
		.length = length,
		.bytes = input->bytes,
	};
	input->bytes += length;
	input->size -= length;
	return true;
}

/* A copy of its bytes, numbered if it is to be; the caller frees it. */
static inline uint8_t *fuzz_message_copy(const struct fuzz_message *message,
					 uint32_t *numbers)
{
	const size_t at = offsetof(struct reef_pool_header, sequence);
	uint8_t *bytes = malloc(message->length + 1);

	FUZZ_CHECK(bytes);
	if (message->length)
		memcpy(bytes, message->bytes, message->length);
	if (message->is_numbered && message->length >= at + 4) {
		++*numbers;
		for (uint32_t i = 0; i < 4; i++)
			bytes[at + i] = (uint8_t)(*numbers >> 8 * i);
	}
	return bytes;
}

#endif
