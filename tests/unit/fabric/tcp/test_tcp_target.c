/* test_tcp_target.c - batches as bytes, against one small region. */
#include "fabric/tcp/target.h"
#include "wire/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SIZE 4096u
#define BIG (1u << 20)

static struct tcp_regions regions;
static struct tcp_region *region;
static struct reef_memory memory;
static struct tcp_target target;
static int messages, inbox_full;
static uint8_t message[64];

static int on_message(void *context, const uint8_t *bytes, uint32_t length)
{
	(void)context;
	if (inbox_full)
		return -ENOSPC;
	messages++;
	memcpy(message, bytes, length < sizeof(message) ? length : 64);
	return 0;
}

static int set_up_size(uint64_t size)
{
	memory = (struct reef_memory){.size = size, .domain = 1};
	memory.base = aligned_alloc(4096, size);
	memset(memory.base, 0, size);
	tcp_regions_init(&regions);
	region = calloc(1, sizeof(*region));
	region->base.memory = &memory;
	tcp_regions_add(&regions, region);
	target = (struct tcp_target){
		.regions = &regions,
		.answers_max = 256u << 10,
		.limits = {.ops_max = 300,
			   .length_max = BIG,
			   .message_max = 64},
		.message = on_message,
	};
	messages = inbox_full = 0;
	return 0;
}

static int set_up(void **state)
{
	(void)state;
	return set_up_size(SIZE);
}

static int set_up_big(void **state)
{
	(void)state;
	return set_up_size(BIG);
}

static int tear_down(void **state)
{
	(void)state;
	tcp_target_fini(&target);
	tcp_regions_fini(&regions);
	free(memory.base);
	return 0;
}

/* --- building requests, taking answers apart --- */

static uint8_t request[BIG + 65536];
static uint32_t request_size, data_size, op_count;
static uint8_t request_data[BIG + 65536];

static void begin(void)
{
	request_size = REEF_WIRE_BATCH_SIZE;
	data_size = op_count = 0;
}

static void add(struct reef_wire_op op, const void *data, uint32_t size)
{
	if (op.kind != REEF_SEND && !op.key)
		op.key = region->base.key;
	reef_wire_op_encode(&op, request + request_size);
	request_size += REEF_WIRE_OP_SIZE;
	op_count++;
	if (size)
		memcpy(request_data + data_size, data, size);
	data_size += size;
}

static void add_read(uint64_t offset, uint32_t length)
{
	add((struct reef_wire_op){.kind = REEF_READ,
				  .offset = offset,
				  .length = length},
	    NULL, 0);
}

static void add_write(uint64_t offset, const void *data, uint32_t length)
{
	add((struct reef_wire_op){.kind = REEF_WRITE,
				  .offset = offset,
				  .length = length},
	    data, length);
}

static void add_faa(uint64_t offset, uint64_t value)
{
	uint8_t data[8];

	reef_put64(data, value);
	add((struct reef_wire_op){.kind = REEF_FAA,
				  .offset = offset,
				  .length = 8},
	    data, 8);
}

static void add_cas(uint64_t offset, uint64_t compare, uint64_t value)
{
	uint8_t data[16];

	reef_put64(data, value);
	reef_put64(data + 8, compare);
	add((struct reef_wire_op){.kind = REEF_CAS,
				  .offset = offset,
				  .length = 8},
	    data, 16);
}

static void end(void)
{
	reef_wire_batch_encode(op_count, request);
	memcpy(request + request_size, request_data, data_size);
	request_size += data_size;
}

/* Everything at once. */
static int run(void)
{
	size_t used;
	int rc;

	end();
	assert_int_equal(tcp_target_begin(&target, 7, request_size), 0);
	rc = tcp_target_feed(&target, request, request_size, &used);
	if (rc == 0)
		assert_int_equal(used, request_size);
	return rc;
}

static uint8_t results[2 * BIG];
static size_t results_size;
static struct reef_wire_done done;
static int parts;

/* Take every whole frame out of reply. Returns whether the DONE was there. */
static bool collect(void)
{
	struct reef_fifo *reply = &target.reply;
	struct reef_frame_header header;

	while (reef_fifo_used(reply)) {
		const uint8_t *bytes = reply->bytes + reply->start;

		assert_true(reef_fifo_used(reply) >= REEF_FRAME_HEADER_SIZE);
		assert_int_equal(reef_frame_header_decode(bytes, &header), 0);
		assert_int_equal(header.tag, 7);
		assert_in_range(header.length, 1, REEF_WIRE_PART_MAX);
		assert_true(reef_fifo_used(reply) >=
			    REEF_FRAME_HEADER_SIZE + header.length);
		bytes += REEF_FRAME_HEADER_SIZE;
		reef_fifo_take(reply, REEF_FRAME_HEADER_SIZE);
		if (header.type == REEF_FRAME_BATCH_DONE) {
			header.length -= REEF_WIRE_DONE_SIZE;
			assert_int_equal(
				reef_wire_done_decode(bytes + header.length,
						      op_count, &done),
				0);
		} else {
			assert_int_equal(header.type, REEF_FRAME_BATCH_PART);
			parts++;
		}
		memcpy(results + results_size, bytes, header.length);
		results_size += header.length;
		reef_fifo_take(reply, header.length);
		if (header.type == REEF_FRAME_BATCH_DONE) {
			reef_fifo_take(reply, REEF_WIRE_DONE_SIZE);
			return true;
		}
	}
	return false;
}

static void fresh(void)
{
	results_size = 0;
	parts = 0;
	begin();
}

static uint64_t word(uint64_t offset)
{
	return *(uint64_t *)((uint8_t *)memory.base + offset);
}

/* --- what operations do --- */

static void tcp_target_every_kind_executed(void **state)
{
	fresh();
	add_write(8, "ABCDEFGH", 8);
	add_faa(16, 5);
	add_cas(16, 5, 9);
	add_cas(16, 5, 11); /* does not match, and stops nothing */
	add_read(8, 16);
	add((struct reef_wire_op){.kind = REEF_SEND, .length = 5}, "hello", 5);
	assert_int_equal(run(), 0);
	assert_true(collect());
	assert_int_equal(done.done, 6);
	assert_int_equal(done.status, 0);
	assert_int_equal(results_size, 8 * 3 + 16);
	assert_int_equal(reef_get64(results), 0);
	assert_int_equal(reef_get64(results + 8), 5);
	assert_int_equal(reef_get64(results + 16), 9);
	assert_memory_equal(results + 24, "ABCDEFGH", 8);
	assert_int_equal(reef_get64(results + 32), 9);
	assert_int_equal(messages, 1);
	assert_memory_equal(message, "hello", 5);
}

static void tcp_target_empty_operations_are_fine(void **state)
{
	fresh();
	add_read(SIZE, 0);
	add_write(SIZE, NULL, 0);
	add((struct reef_wire_op){.kind = REEF_SEND}, NULL, 0);
	assert_int_equal(run(), 0);
	assert_true(collect());
	assert_int_equal(done.done, 3);
	assert_int_equal(results_size, 0);
	assert_int_equal(messages, 1);
}

static void check_failure(uint32_t at, int status)
{
	assert_true(collect());
	assert_int_equal(done.done, at);
	assert_int_equal(done.status, status);
}

static void tcp_target_failure_ends_the_batch(void **state)
{
	fresh();
	add_faa(0, 1);
	add_write(SIZE - 7, "ABCDEFGH", 8);
	add_faa(0, 1);
	add_write(8, "ABCDEFGH", 8);
	assert_int_equal(run(), 0);
	check_failure(1, -ERANGE);
	assert_int_equal(results_size, 8);
	assert_int_equal(word(0), 1);
	assert_int_equal(word(8), 0);
	assert_int_equal(word(SIZE - 8), 0);
}

static void tcp_target_bounds_checked(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} bad[] = {{SIZE, 1}, {SIZE + 1, 0},   {SIZE - 1, 2},
		   {1, SIZE}, {UINT64_MAX, 1}, {UINT64_MAX - 7, 8}};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		add_read(bad[i].offset, bad[i].length);
		assert_int_equal(run(), 0);
		check_failure(0, -ERANGE);
	}
	fresh();
	add_faa(SIZE, 1);
	assert_int_equal(run(), 0);
	check_failure(0, -ERANGE);
	fresh();
	add_read(0, SIZE);
	assert_int_equal(run(), 0);
	check_failure(1, 0);
}

static void tcp_target_wrong_key_refused(void **state)
{
	uint64_t key = region->base.key;
	const uint64_t bad[] = {key + 1, key ^ 1ull << 63, 1, UINT64_MAX};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		fresh();
		add_faa(0, 1);
		add((struct reef_wire_op){.kind = REEF_READ,
					  .length = 8,
					  .key = bad[i]},
		    NULL, 0);
		assert_int_equal(run(), 0);
		check_failure(1, -REEF_EKEY);
	}
}

static void tcp_target_change_of_read_only_memory_refused(void **state)
{
	static const uint8_t kinds[] = {REEF_WRITE, REEF_CAS, REEF_FAA,
					REEF_FLUSH};
	static const uint8_t bytes[16] = {1};

	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct reef_wire_op op = {.kind = kinds[i], .length = 8};

		fresh();
		region->base.memory->read_only = true;
		add_read(0, 8);
		add(op, bytes, reef_wire_op_sends(&op));
		add_read(0, 8);
		assert_int_equal(run(), 0);
		check_failure(1, -EACCES);
		for (size_t at = 0; at < SIZE; at++)
			assert_int_equal(
				((uint8_t *)region->base.memory->base)[at], 0);
		region->base.memory->read_only = false;
	}
}

/* In one batch with the key that writes, as one region is taken for both. */
static void tcp_target_change_by_the_read_key_refused(void **state)
{
	static const uint8_t kinds[] = {REEF_WRITE, REEF_CAS, REEF_FAA,
					REEF_FLUSH};
	static const uint8_t bytes[16] = {1};

	for (size_t i = 0; i < sizeof(kinds); i++) {
		struct reef_wire_op op = {.kind = kinds[i], .length = 8};

		fresh();
		op.key = region->base.read_key;
		add_faa(0, 1);
		add((struct reef_wire_op){.kind = REEF_READ,
					  .length = 8,
					  .key = region->base.read_key},
		    NULL, 0);
		add(op, bytes, reef_wire_op_sends(&op));
		assert_int_equal(run(), 0);
		check_failure(2, -EACCES);
		assert_int_equal(*(const uint64_t *)region->base.memory->base,
				 i + 1);
	}
}

static void tcp_target_flush_of_plain_memory_refused(void **state)
{
	fresh();
	add((struct reef_wire_op){.kind = REEF_FLUSH, .length = 8}, NULL, 0);
	assert_int_equal(run(), 0);
	check_failure(0, -REEF_ENOTDURABLE);
}

static void tcp_target_malformed_batch_does_nothing(void **state)
{
	size_t used;

	fresh();
	add_faa(0, 1);
	add((struct reef_wire_op){.kind = 9}, NULL, 0);
	assert_int_equal(run(), -REEF_EPROTO);
	assert_int_equal(word(0), 0);
	target.active = false;
	assert_int_equal(tcp_target_begin(&target, 7, 31), -REEF_EPROTO);
	assert_int_equal(tcp_target_begin(&target, 7, REEF_WIRE_BATCH_MAX + 1),
			 -REEF_EPROTO);
	/* One byte more than the operations say. */
	fresh();
	add_faa(0, 1);
	end();
	assert_int_equal(tcp_target_begin(&target, 7, request_size + 1), 0);
	assert_int_equal(
		tcp_target_feed(&target, request, request_size + 1, &used),
		-REEF_EPROTO);
	assert_int_equal(word(0), 0);
	target.active = false;
}

/* --- pieces --- */

/* Feed in pieces of `piece` bytes; after each, every aligned word is old or
 * new as a whole. */
static void feed_pieces(size_t piece, const uint8_t *old, const uint8_t *fresh_,
			uint64_t from, uint64_t to)
{
	size_t have = 0, start = 0, used;
	int rc = -EAGAIN;

	end();
	assert_int_equal(tcp_target_begin(&target, 7, request_size), 0);
	while (rc == -EAGAIN) {
		assert_true(have < request_size);
		have += piece;
		if (have > request_size)
			have = request_size;
		rc = tcp_target_feed(&target, request + start, have - start,
				     &used);
		start += used;
		for (uint64_t at = (from + 7) & ~7ull; at + 8 <= to; at += 8) {
			const uint8_t *now = (uint8_t *)memory.base + at;

			assert_true(memcmp(now, old + at, 8) == 0 ||
				    memcmp(now, fresh_ + at, 8) == 0);
		}
		collect();
	}
	assert_int_equal(rc, 0);
	assert_int_equal(start, request_size);
}

static void tcp_target_words_whole_however_cut(void **state)
{
	static uint8_t old[SIZE], new[SIZE];

	for (unsigned int i = 0; i < SIZE; i++) {
		old[i] = (uint8_t)(i * 3 + 1);
		new[i] = (uint8_t)(i * 5 + 0x80);
	}
	for (size_t piece = 1; piece < 40; piece++)
		for (uint64_t from = 64; from < 73; from++) {
			uint64_t to = from + 200 + piece;

			memcpy(memory.base, old, SIZE);
			fresh();
			add_write(from, new + from, (uint32_t)(to - from));
			add_read(from, (uint32_t)(to - from));
			feed_pieces(piece, old, new, from, to);
			assert_memory_equal(memory.base, old, from);
			assert_memory_equal((uint8_t *)memory.base + from,
					    new + from, to - from);
			assert_memory_equal((uint8_t *)memory.base + to,
					    old + to, SIZE - to);
			assert_int_equal(results_size, to - from);
			assert_memory_equal(results, new + from, to - from);
		}
}

static void tcp_target_atomics_in_pieces_happen_once(void **state)
{
	fresh();
	for (int i = 0; i < 20; i++)
		add_faa(0, 1);
	add_cas(0, 20, 100);
	feed_pieces(1, memory.base, memory.base, 0, 0);
	assert_int_equal(word(0), 100);
	assert_int_equal(results_size, 21 * 8);
	for (uint64_t i = 0; i < 21; i++)
		assert_int_equal(reef_get64(results + i * 8), i);
}

static void tcp_target_what_failed_is_skipped_in_pieces(void **state)
{
	static uint8_t bytes[1000];

	fresh();
	add_faa(0, 1);
	add((struct reef_wire_op){.kind = REEF_WRITE,
				  .length = sizeof(bytes),
				  .key = 1},
	    bytes, sizeof(bytes));
	add_faa(0, 1);
	feed_pieces(7, memory.base, memory.base, 0, 0);
	assert_int_equal(word(0), 1);
	assert_int_equal(done.status, -REEF_EKEY);
}

/* A long READ is answered in parts, and waits for them to go out. */
static void tcp_target_long_read_waits_for_output(void **state)
{
	size_t used = 0, start = 0;
	int rc, waits = 0;

	for (uint32_t i = 2; i < BIG / 4; i++)
		((uint32_t *)memory.base)[i] = i * 2654435761u;
	fresh();
	add_read(3, BIG - 3);
	add_faa(0, 1);
	end();
	assert_int_equal(tcp_target_begin(&target, 7, request_size), 0);
	do {
		rc = tcp_target_feed(&target, request + start,
				     request_size - start, &used);
		start += used;
		assert_true(reef_fifo_used(&target.reply) < 512u << 10);
		waits += rc == -ENOBUFS;
		/* In order: the addition comes after the last byte of it. */
		if (rc == -ENOBUFS)
			assert_int_equal(word(0), 0);
		collect();
	} while (rc == -ENOBUFS);
	assert_int_equal(rc, 0);
	assert_true(waits > 0 && parts > 4);
	assert_int_equal(results_size, BIG - 3 + 8);
	assert_memory_equal(results + 5, (uint8_t *)memory.base + 8, BIG - 8);
	assert_int_equal(word(0), 1);
}

static void tcp_target_many_results_stay_in_their_frames(void **state)
{
	fresh();
	add_read(0, REEF_WIRE_PART_MAX - 100);
	for (int i = 0; i < 250; i++)
		add_faa(8, 1);
	add_read(0, 1000);
	assert_int_equal(run(), 0);
	assert_true(collect());
	assert_int_equal(done.done, 252);
	assert_int_equal(results_size,
			 REEF_WIRE_PART_MAX - 100 + 250 * 8 + 1000);
}

static void tcp_target_full_inbox_waits(void **state)
{
	size_t used;

	fresh();
	add_faa(0, 1);
	add((struct reef_wire_op){.kind = REEF_SEND, .length = 2}, "hi", 2);
	add_faa(0, 1);
	inbox_full = 1;
	assert_int_equal(run(), -ENOSPC);
	assert_int_equal(word(0), 1);
	inbox_full = 0;
	assert_int_equal(tcp_target_feed(&target, request + request_size - 10,
					 10, &used),
			 0);
	assert_int_equal(used, 10);
	assert_int_equal(word(0), 2);
	assert_int_equal(messages, 1);
	assert_true(collect());
	assert_int_equal(results_size, 16);
}

/* --- withdrawing --- */

static void tcp_target_withdrawn_in_between_refused(void **state)
{
	size_t used, start = 0;
	int rc;

	fresh();
	add_read(0, BIG);
	add_faa(0, 1);
	end();
	assert_int_equal(tcp_target_begin(&target, 7, request_size), 0);
	rc = tcp_target_feed(&target, request, request_size, &used);
	assert_int_equal(rc, -ENOBUFS);
	start = used;
	/* In use: the READ goes on, what follows is refused. */
	assert_int_equal(tcp_regions_withdraw(&regions, region), -EAGAIN);
	assert_null(tcp_regions_take(&regions, region->base.key));
	do {
		collect();
		rc = tcp_target_feed(&target, request + start,
				     request_size - start, &used);
		start += used;
	} while (rc == -ENOBUFS);
	assert_int_equal(rc, 0);
	check_failure(1, -REEF_EKEY);
	assert_int_equal(word(0), 0);
	assert_int_equal(tcp_regions_withdraw(&regions, region), 0);
}

static void tcp_regions_keys_never_given_again(void **state)
{
	uint64_t last = region->base.key;

	for (int i = 0; i < 1000; i++) {
		struct tcp_region *other = calloc(1, sizeof(*other));

		assert_int_equal(tcp_regions_add(&regions, other), 0);
		assert_true(other->base.key != last);
		last = other->base.key;
		assert_ptr_equal(tcp_regions_take(&regions, last), other);
		tcp_regions_give(other);
		assert_int_equal(tcp_regions_withdraw(&regions, other), 0);
		assert_null(tcp_regions_take(&regions, last));
	}
}

static void tcp_regions_many_at_once_found(void **state)
{
	enum { MANY = 200 };
	struct tcp_region *all[MANY];

	for (int i = 0; i < MANY; i++) {
		all[i] = calloc(1, sizeof(**all));
		assert_int_equal(tcp_regions_add(&regions, all[i]), 0);
	}
	for (int i = 0; i < MANY; i++) {
		assert_ptr_equal(tcp_regions_take(&regions, all[i]->base.key),
				 all[i]);
		tcp_regions_give(all[i]);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define BIG_TEST(name)                                                         \
	cmocka_unit_test_setup_teardown(name, set_up_big, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(tcp_target_every_kind_executed),
		TEST(tcp_target_empty_operations_are_fine),
		TEST(tcp_target_failure_ends_the_batch),
		TEST(tcp_target_bounds_checked),
		TEST(tcp_target_wrong_key_refused),
		TEST(tcp_target_change_of_read_only_memory_refused),
		TEST(tcp_target_change_by_the_read_key_refused),
		TEST(tcp_target_flush_of_plain_memory_refused),
		TEST(tcp_target_malformed_batch_does_nothing),
		TEST(tcp_target_words_whole_however_cut),
		TEST(tcp_target_atomics_in_pieces_happen_once),
		TEST(tcp_target_what_failed_is_skipped_in_pieces),
		BIG_TEST(tcp_target_long_read_waits_for_output),
		BIG_TEST(tcp_target_many_results_stay_in_their_frames),
		TEST(tcp_target_full_inbox_waits),
		BIG_TEST(tcp_target_withdrawn_in_between_refused),
		TEST(tcp_regions_keys_never_given_again),
		TEST(tcp_regions_many_at_once_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
