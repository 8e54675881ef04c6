/* test_redis_reply.c - what a client of Redis is answered. */
#include "gateway/redis/protocol/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct redis_spare spare;

static int begin(void **state)
{
	(void)state;
	return redis_spare_init(&spare, 64 << 20);
}

static int end(void **state)
{
	(void)state;
	redis_spare_fini(&spare);
	return 0;
}

/* Send the whole answer, `part` bytes at a time, as to a slow reader. */
static size_t drain(struct redis_reply *reply, size_t part, char *out)
{
	struct iovec vectors[3];
	size_t size = 0, now, i;
	uint32_t count;

	while (redis_reply_waiting(reply)) {
		count = redis_reply_vectors(reply, vectors, 3);
		assert_true(count > 0);
		for (i = 0, now = 0; i < count && now < part; i++) {
			size_t some = vectors[i].iov_len;

			some = some < part - now ? some : part - now;
			memcpy(out + size, vectors[i].iov_base, some);
			size += some;
			now += some;
		}
		redis_reply_sent(reply, now);
		redis_reply_settle(reply);
	}
	redis_reply_settle(reply);
	assert_int_equal(redis_reply_memory(reply) & ~1023ull, 0);
	assert_false(spare.is_out_lent);
	return size;
}

static void fill(struct redis_reply *reply)
{
	redis_reply_status(reply, "OK");
	redis_reply_error(reply, "ERR a\r\nb");
	redis_reply_errorf(reply, "WRONGTYPE %d", 5);
	redis_reply_integer(reply, INT64_MIN);
	redis_reply_bulk(reply, "a\0b", 3);
	redis_reply_text(reply, "");
	redis_reply_bulk_integer(reply, -12);
	redis_reply_null(reply);
	redis_reply_null_array(reply);
	redis_reply_array(reply, 0);
	redis_reply_map(reply, 1);
	redis_reply_set(reply, 2);
	redis_reply_verbatim(reply, "hi", 2, "txt");
}

static void redis_reply_speaks_both_protocols(void **state)
{
	static const char two[] =
		"+OK\r\n-ERR a  b\r\n-WRONGTYPE 5\r\n"
		":-9223372036854775808\r\n$3\r\na\0b\r\n$0\r\n\r\n"
		"$3\r\n-12\r\n$-1\r\n*-1\r\n*0\r\n*2\r\n*2\r\n$2\r\nhi\r\n";
	static const char three[] =
		"+OK\r\n-ERR a  b\r\n-WRONGTYPE 5\r\n"
		":-9223372036854775808\r\n$3\r\na\0b\r\n$0\r\n\r\n"
		"$3\r\n-12\r\n_\r\n_\r\n*0\r\n%1\r\n~2\r\n=6\r\ntxt:hi\r\n";
	struct redis_reply reply;
	char out[1024];

	(void)state;
	redis_reply_init(&reply, &spare);
	fill(&reply);
	assert_int_equal(drain(&reply, 1000, out), sizeof(two) - 1);
	assert_memory_equal(out, two, sizeof(two) - 1);
	assert_int_equal(reply.errors, 2);
	assert_string_equal(reply.error_name, "WRONGTYPE");
	reply.protocol = 3;
	fill(&reply);
	assert_int_equal(drain(&reply, 3, out), sizeof(three) - 1);
	assert_memory_equal(out, three, sizeof(three) - 1);
	redis_reply_fini(&reply);
}

static void add_big(struct redis_reply *reply, size_t size, char fill_with)
{
	char *room = malloc(size + 10);

	memset(room, fill_with, size + 10);
	redis_reply_bulk_owned(reply, room + 5, size, room, size + 10);
}

static size_t expect_big(char *at, size_t size, char fill_with)
{
	size_t head = (size_t)sprintf(at, "$%zu\r\n", size);

	memset(at + head, fill_with, size);
	at[head + size] = '\r';
	at[head + size + 1] = '\n';
	return head + size + 2;
}

static void redis_reply_large_bulks_keep_their_place(void **state)
{
	static const size_t parts[] = {1000, 16384, 100000000};
	const size_t big = 50000;
	char *out = malloc(1 << 20), *wanted = malloc(1 << 20);
	struct redis_reply reply;
	size_t i, size;

	(void)state;
	redis_reply_init(&reply, &spare);
	for (i = 0; i < 3; i++) {
		size = (size_t)sprintf(wanted, "*4\r\n");
		redis_reply_array(&reply, 4);
		add_big(&reply, big, 'x');
		size += expect_big(wanted + size, big, 'x');
		add_big(&reply, big + 1, 'y');
		size += expect_big(wanted + size, big + 1, 'y');
		redis_reply_integer(&reply, 7);
		size += (size_t)sprintf(wanted + size, ":7\r\n");
		add_big(&reply, 10, 'z'); /* small: copied */
		size += expect_big(wanted + size, 10, 'z');
		assert_int_equal(redis_reply_waiting(&reply), size);
		assert_int_equal(drain(&reply, parts[i], out), size);
		assert_memory_equal(out, wanted, size);
	}
	redis_reply_fini(&reply);
	free(out);
	free(wanted);
}

static void redis_reply_array_counted_afterwards_comes_first(void **state)
{
	char *out = malloc(1 << 20), *wanted = malloc(1 << 20);
	struct redis_reply reply;
	struct redis_mark mark;
	size_t size;

	(void)state;
	redis_reply_init(&reply, &spare);
	redis_reply_status(&reply, "A");
	mark = redis_reply_mark(&reply);
	redis_reply_wrap(&reply, mark, '*', 0);
	mark = redis_reply_mark(&reply);
	redis_reply_integer(&reply, 1);
	add_big(&reply, 40000, 'x');
	redis_reply_integer(&reply, 2);
	add_big(&reply, 40000, 'y');
	redis_reply_wrap(&reply, mark, '%', 2);
	redis_reply_status(&reply, "B");

	size = (size_t)sprintf(wanted, "+A\r\n*0\r\n*4\r\n:1\r\n");
	size += expect_big(wanted + size, 40000, 'x');
	size += (size_t)sprintf(wanted + size, ":2\r\n");
	size += expect_big(wanted + size, 40000, 'y');
	size += (size_t)sprintf(wanted + size, "+B\r\n");
	assert_int_equal(drain(&reply, 777, out), size);
	assert_memory_equal(out, wanted, size);
	redis_reply_fini(&reply);
	free(out);
	free(wanted);
}

static void redis_reply_rewind_forgets(void **state)
{
	struct redis_reply reply;
	struct redis_mark mark;
	char out[64];

	(void)state;
	redis_reply_init(&reply, &spare);
	redis_reply_status(&reply, "A");
	mark = redis_reply_mark(&reply);
	redis_reply_error(&reply, "ERR x");
	add_big(&reply, 40000, 'x');
	redis_reply_integer(&reply, 1);
	redis_reply_rewind(&reply, mark);
	assert_int_equal(reply.errors, 0);
	redis_reply_null_array(&reply);
	assert_int_equal(drain(&reply, 3, out), 9);
	assert_memory_equal(out, "+A\r\n*-1\r\n", 9);
	redis_reply_fini(&reply);
}

static void redis_reply_over_its_limit_is_broken(void **state)
{
	struct redis_reply reply;
	struct redis_mark mark;
	int i;

	(void)state;
	redis_reply_init(&reply, &spare);
	reply.limit = 100000;
	mark = redis_reply_mark(&reply);
	add_big(&reply, 90000, 'x');
	assert_false(reply.is_broken);
	for (i = 0; i < 10000; i++)
		redis_reply_integer(&reply, i);
	assert_true(reply.is_broken);
	add_big(&reply, 90000, 'x');
	redis_reply_wrap(&reply, mark, '*', 10000);
	redis_reply_rewind(&reply, mark);
	assert_int_equal(redis_reply_waiting(&reply), 0);
	redis_reply_settle(&reply);
	redis_reply_fini(&reply);
	assert_false(spare.is_out_lent);
}

/* A reader that never catches up does not make the reply grow for ever. */
static void redis_reply_slow_reader_takes_bounded_memory(void **state)
{
	char *out = malloc(1 << 20), *wanted = malloc(1 << 20);
	size_t used = 0, heard = 0, now, i, count;
	struct iovec vectors[4];
	struct redis_reply reply;

	(void)state;
	redis_reply_init(&reply, &spare);
	reply.limit = 300000;
	for (i = 0; i < 2000; i++) {
		redis_reply_integer(&reply, (int64_t)i);
		used += (size_t)sprintf(wanted + used, ":%zu\r\n", i);
		if (i % 200 == 0) {
			add_big(&reply, 20000, (char)('a' + i / 200));
			used += expect_big(wanted + used, 20000,
					   (char)('a' + i / 200));
		}
		count = redis_reply_vectors(&reply, vectors, 4);
		for (now = 0; count && now < 107;) {
			size_t some = vectors[0].iov_len < 107 - now
					      ? vectors[0].iov_len
					      : 107 - now;

			memcpy(out + heard, vectors[0].iov_base, some);
			heard += some;
			now += some;
			memmove(vectors, vectors + 1,
				--count * sizeof(*vectors));
		}
		redis_reply_sent(&reply, now);
		redis_reply_settle(&reply);
		assert_int_equal(redis_reply_waiting(&reply), used - heard);
		assert_true(redis_reply_memory(&reply) <
			    2 * (used - heard) + 45000);
	}
	assert_false(reply.is_broken);
	heard += drain(&reply, 1000, out + heard);
	assert_int_equal(heard, used);
	assert_memory_equal(out, wanted, used);
	redis_reply_fini(&reply);
	free(out);
	free(wanted);
}

/* Answers grow beyond the lent buffer, and without one. */
static void redis_reply_grows(void **state)
{
	char *out = malloc(1 << 20), text[1000];
	struct redis_reply reply;
	size_t i;

	(void)state;
	memset(text, 'a', sizeof(text));
	redis_reply_init(&reply, &spare);
	for (i = 0; i < 200; i++)
		redis_reply_bulk(&reply, text, sizeof(text));
	assert_int_equal(drain(&reply, 5000, out), 200 * 1009);
	redis_reply_fini(&reply);
	redis_reply_init(&reply, NULL);
	for (i = 0; i < 200; i++)
		redis_reply_bulk(&reply, text, sizeof(text));
	assert_int_equal(drain(&reply, 100000, out), 200 * 1009);
	assert_memory_equal(out, "$1000\r\naaa", 10);
	redis_reply_fini(&reply);
	free(out);
}

/* Answer something large in a buffer of its own, as a bulk or as it is. */
static void add_large(struct redis_reply *reply, char letter, bool is_bulk)
{
	const size_t size = 40000;
	char *room = malloc(size);

	memset(room, letter, size);
	if (is_bulk)
		redis_reply_bulk_owned(reply, room, size, room, size);
	else
		redis_reply_raw_owned(reply, room, size, size);
}

/* A mark that was made when the answer is held outlives settle, whatever was
 * sent before; and what is sent later voids it. */
static void redis_reply_held_answer_can_be_taken_back(void **state)
{
	static const size_t sent[] = {0, 3, 5, 7, 20000, 40013, 40016, 40020};
	char *out = malloc(1 << 20);
	struct redis_reply reply;
	struct redis_mark mark;
	size_t i, round;

	(void)state;
	for (i = 0; i < sizeof(sent) / sizeof(*sent); i++) {
		redis_reply_init(&reply, &spare);
		redis_reply_status(&reply, "OK");
		add_large(&reply, 'a', true);
		redis_reply_status(&reply, "BEFORE");
		redis_reply_settle(&reply);
		if (sent[i])
			redis_reply_sent(&reply, sent[i]);
		redis_reply_hold(&reply);
		mark = redis_reply_mark(&reply);
		for (round = 0; round < 3; round++) {
			redis_reply_status(&reply, "AFTER");
			add_large(&reply, 'b', round & 1);
			redis_reply_settle(&reply);
		}
		assert_true(redis_reply_has_mark(&reply, mark));
		redis_reply_rewind(&reply, mark);
		redis_reply_null(&reply);
		round = drain(&reply, 1000, out);
		assert_int_equal(round, 5 + 40010 + 9 + 5 - sent[i]);
		assert_memory_equal(out + round - 7, "\r\n$-1\r\n", 7);
		assert_null(memchr(out, 'b', round));
		assert_false(redis_reply_has_mark(&reply, mark));
		redis_reply_fini(&reply);
	}
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(redis_reply_speaks_both_protocols),
		cmocka_unit_test(redis_reply_large_bulks_keep_their_place),
		cmocka_unit_test(
			redis_reply_array_counted_afterwards_comes_first),
		cmocka_unit_test(redis_reply_rewind_forgets),
		cmocka_unit_test(redis_reply_over_its_limit_is_broken),
		cmocka_unit_test(redis_reply_slow_reader_takes_bounded_memory),
		cmocka_unit_test(redis_reply_grows),
		cmocka_unit_test(redis_reply_held_answer_can_be_taken_back),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
