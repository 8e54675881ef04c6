/* fuzz_record.c - records and snapshots of the broker's state.
 *
 * Input: a mode, and then
 *   RECORD    a type and the bytes of one record
 *   HISTORY   records (type, length, bytes), applied one after the other; those
 *             that do not fit change nothing
 *   IMAGE     a snapshot of the whole state */
#include "fuzz.h"

#include "pool/broker/state/state.h"

#include <errno.h>
#include <reef/error.h>
#include <string.h>

enum mode { RECORD, HISTORY, IMAGE, MODES };

/* What is decoded is encoded to the same bytes. */
static void one_record(uint16_t type, const uint8_t *bytes, size_t size)
{
	struct reef_record record;
	uint8_t *again;
	int rc;

	rc = reef_record_decode(type, bytes, size, &record);
	FUZZ_CHECK(rc == 0 || rc == -REEF_ECORRUPT || rc == -REEF_EVERSION);
	if (rc)
		return;
	again = malloc(reef_record_size_max(&record));
	FUZZ_CHECK(again);
	FUZZ_CHECK(reef_record_encode(&record, again) == size);
	FUZZ_CHECK(memcmp(again, bytes, size) == 0);
	free(again);
}

/* A state is what its own snapshot says. */
static void check_state(const struct reef_state *state)
{
	struct reef_state *copy;
	uint8_t *bytes, *again;
	size_t size, again_size;

	FUZZ_CHECK(reef_state_encode(state, &bytes, &size) == 0);
	FUZZ_CHECK(reef_state_decode(bytes, size, &copy) == 0);
	FUZZ_CHECK(reef_state_encode(copy, &again, &again_size) == 0);
	FUZZ_CHECK(again_size == size && memcmp(again, bytes, size) == 0);
	reef_state_destroy(copy);
	free(again);
	free(bytes);
}

static void history(struct fuzz_input *input)
{
	struct reef_record record = {.type = REEF_RECORD_POOL, .value = 1};
	struct reef_state *state;
	uint16_t type;
	size_t size;
	int rc;

	FUZZ_CHECK(reef_state_create(&state) == 0);
	FUZZ_CHECK(reef_state_apply(state, &record) == 0);
	while (input->size > 0) {
		type = fuzz_take(input);
		size = fuzz_take(input);
		size = size < input->size ? size : input->size;
		if (reef_record_decode(type, input->bytes, size, &record) ==
		    0) {
			rc = reef_state_check(state, &record);
			FUZZ_CHECK(reef_state_apply(state, &record) == rc);
		}
		input->bytes += size;
		input->size -= size;
	}
	check_state(state);
	reef_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	struct reef_state *state;
	uint16_t type;

	switch (fuzz_take(&input) % MODES) {
	case RECORD:
		type = fuzz_take(&input);
		one_record(type, input.bytes, input.size);
		break;
	case HISTORY:
		history(&input);
		break;
	default:
		if (reef_state_decode(input.bytes, input.size, &state) == 0) {
			check_state(state);
			reef_state_destroy(state);
		}
	}
	return 0;
}
