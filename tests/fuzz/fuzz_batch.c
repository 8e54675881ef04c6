/* fuzz_batch.c - a peer's BATCH frames, executed against a small region.
 *
 * Input: how many bytes to feed at a time; then, for each frame, its length in
 * two bytes and its payload. Key 1 stands for the region's, which nobody can
 * guess. */
#include "fuzz.h"

#include "fabric/tcp/target.h"
#include "wire/bytes.h"

#define SIZE 256u
#define MESSAGE_MAX 64u

static int on_message(void *context, const uint8_t *bytes, uint32_t length)
{
	uint32_t *count = context;
	volatile uint8_t sum = 0;

	FUZZ_CHECK(length <= MESSAGE_MAX);
	for (uint32_t i = 0; i < length; i++)
		sum = (uint8_t)(sum + bytes[i]);
	/* Every third time the inbox is full. */
	return ++*count % 3 ? 0 : -ENOSPC;
}

/* All that is in reply is whole frames; take them out. Returns how many of
 * them end a batch. */
static int take_replies(struct tcp_target *target)
{
	struct reef_fifo *reply = &target->reply;
	struct reef_frame_header header;
	int ended = 0;

	while (reef_fifo_used(reply)) {
		FUZZ_CHECK(reef_fifo_used(reply) >= REEF_FRAME_HEADER_SIZE);
		FUZZ_CHECK(reef_frame_header_decode(reply->bytes + reply->start,
						    &header) == 0);
		FUZZ_CHECK(header.type == REEF_FRAME_BATCH_DONE ||
			   header.type == REEF_FRAME_BATCH_PART);
		FUZZ_CHECK(header.length &&
			   header.length <= REEF_WIRE_PART_MAX);
		FUZZ_CHECK(reef_fifo_used(reply) >=
			   REEF_FRAME_HEADER_SIZE + header.length);
		reef_fifo_take(reply, REEF_FRAME_HEADER_SIZE + header.length);
		ended += header.type == REEF_FRAME_BATCH_DONE;
	}
	return ended;
}

/* Replace key 1 in a frame by the region's. */
static void patch_keys(uint8_t *frame, size_t size, uint64_t key)
{
	for (size_t at = REEF_WIRE_BATCH_SIZE; at + REEF_WIRE_OP_SIZE <= size;
	     at += REEF_WIRE_OP_SIZE)
		if (reef_get64(frame + at + 8) == 1)
			reef_put64(frame + at + 8, key);
}

/* Feed one frame to the target. False: the link would have ended. */
static bool run_frame(struct tcp_target *target, const uint8_t *frame,
		      uint32_t size, size_t piece)
{
	size_t have = 0, start = 0, used;
	int rc;

	if (tcp_target_begin(target, 1, size) < 0)
		return false;
	for (int turns = 0; turns < 100000; turns++) {
		rc = tcp_target_feed(target, frame + start, have - start,
				     &used);
		FUZZ_CHECK(used <= have - start);
		start += used;
		if (rc == 0)
			break;
		FUZZ_CHECK(take_replies(target) == 0);
		if (rc == -EAGAIN && have < size)
			have = size - have > piece ? have + piece : size;
		else if (rc != -ENOBUFS && rc != -ENOSPC)
			return false;
	}
	FUZZ_CHECK(rc == 0 && start == size && take_replies(target) == 1);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	size_t piece = (size_t)fuzz_take(&input) + 1;
	uint32_t messages = 0, length;
	struct reef_memory memory = {.size = SIZE, .domain = 1};
	struct tcp_region *region = calloc(1, sizeof(*region));
	struct tcp_regions regions;
	struct tcp_target target = {
		.regions = &regions,
		.answers_max = 256u << 10,
		.limits = {.ops_max = 16,
			   .length_max = SIZE + 16,
			   .message_max = MESSAGE_MAX},
		.message = on_message,
		.context = &messages,
	};
	uint8_t *frame;
	bool ok = true;

	/* The copy is just that large, so that the sanitizer sees a byte too
	 * far. */
	memory.base = calloc(1, SIZE);
	region->base.memory = &memory;
	tcp_regions_init(&regions);
	FUZZ_CHECK(tcp_regions_add(&regions, region) == 0);
	while (ok && input.size) {
		length = fuzz_take(&input);
		length |= (uint32_t)fuzz_take(&input) << 8;
		if (length > input.size)
			length = (uint32_t)input.size;
		frame = malloc(length + 1u);
		memcpy(frame, input.bytes, length);
		input.bytes += length;
		input.size -= length;
		patch_keys(frame, length, region->base.key);
		ok = run_frame(&target, frame, length, piece);
		free(frame);
	}
	tcp_target_fini(&target);
	FUZZ_CHECK(tcp_regions_withdraw(&regions, region) == 0);
	tcp_regions_fini(&regions);
	free(memory.base);
	return 0;
}
