/* fuzz_control.c - every decoder of src/wire that takes a payload: what it
 * accepts is what encoding the result gives, byte for byte; so no byte of it
 * was ignored. */
#include "fuzz.h"

#include "wire/batch.h"
#include "wire/control.h"
#include "wire/hello.h"

#include <string.h>

#define SAME(encoded, bytes, size)                                             \
	FUZZ_CHECK((size) == sizeof(encoded) &&                                \
		   memcmp(encoded, bytes, sizeof(encoded)) == 0)

static void try_hello(const uint8_t *bytes, size_t size)
{
	struct reef_wire_challenge challenge;
	struct reef_wire_welcome welcome;
	struct reef_wire_hello hello;
	struct reef_wire_proof proof;
	uint8_t a[REEF_WIRE_HELLO_SIZE], b[REEF_WIRE_CHALLENGE_SIZE];
	uint8_t c[REEF_WIRE_WELCOME_SIZE];

	if (reef_wire_hello_decode(bytes, size, &hello) == 0) {
		reef_wire_hello_encode(&hello, a);
		SAME(a, bytes, size);
		FUZZ_CHECK(reef_wire_identity_fits(hello.identity));
	}
	if (reef_wire_challenge_decode(bytes, size, &challenge) == 0) {
		reef_wire_challenge_encode(&challenge, b);
		SAME(b, bytes, size);
	}
	if (reef_wire_welcome_decode(bytes, size, &welcome) == 0) {
		reef_wire_welcome_encode(&welcome, c);
		SAME(c, bytes, size);
	}
	if (reef_wire_proof_decode(bytes, size, &proof) == 0)
		SAME(proof.proof, bytes, size);
}

static void try_control(const uint8_t *bytes, size_t size)
{
	struct reef_wire_attached attached;
	uint8_t a[REEF_WIRE_ATTACHED_SIZE], b[REEF_WIRE_BYE_SIZE];
	uint8_t c[REEF_WIRE_KEY_SIZE];
	uint64_t key;
	int reason;

	if (reef_wire_attached_decode(bytes, size, &attached) == 0) {
		reef_wire_attached_encode(&attached, a);
		SAME(a, bytes, size);
		FUZZ_CHECK(attached.status <= 0);
	}
	if (reef_wire_bye_decode(bytes, size, &reason) == 0) {
		reef_wire_bye_encode(reason, b);
		SAME(b, bytes, size);
		FUZZ_CHECK(reason < 0);
	}
	if (reef_wire_key_decode(bytes, size, &key) == 0) {
		reef_wire_key_encode(key, c);
		SAME(c, bytes, size);
	}
}

static void try_header(const uint8_t *bytes, size_t size)
{
	uint8_t again[REEF_FRAME_HEADER_SIZE];
	struct reef_frame_header header;

	if (size < sizeof(again) ||
	    reef_frame_header_decode(bytes, &header) < 0)
		return;
	reef_frame_header_encode(&header, again);
	SAME(again, bytes, sizeof(again));
}

static void try_batch(const uint8_t *bytes, size_t size)
{
	static const struct reef_wire_batch_limits limits = {
		.ops_max = 16, .length_max = 4096, .message_max = 256};
	uint8_t again[REEF_WIRE_OP_SIZE], done_bytes[REEF_WIRE_DONE_SIZE];
	struct reef_wire_op ops[16];
	struct reef_wire_done done;
	uint64_t sends = 0;
	uint32_t count, head;

	if (size >= sizeof(done_bytes) &&
	    reef_wire_done_decode(bytes, 8, &done) == 0) {
		reef_wire_done_encode(&done, done_bytes);
		SAME(done_bytes, bytes, sizeof(done_bytes));
	}
	if (reef_wire_batch_head(bytes, size, (uint32_t)size, &limits, &count,
				 &head) < 0)
		return;
	FUZZ_CHECK(count && count <= limits.ops_max && head <= size);
	if (reef_wire_ops_decode(bytes, count, (uint32_t)size, &limits, ops) <
	    0)
		return;
	for (uint32_t i = 0; i < count; i++) {
		reef_wire_op_encode(&ops[i], again);
		SAME(again, bytes + REEF_WIRE_BATCH_SIZE + i * sizeof(again),
		     sizeof(again));
		sends += reef_wire_op_sends(&ops[i]);
	}
	FUZZ_CHECK(head + sends == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	try_hello(bytes, size);
	try_control(bytes, size);
	try_header(bytes, size);
	try_batch(bytes, size);
	return 0;
}
