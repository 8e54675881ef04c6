/* test_count.c - what is counted, over a loopback. */
#include "fabric/hook/count.h"

#include "fixture/fake.h"

#include <string.h>

static struct reef_op op(int kind, int flags)
{
	return (struct reef_op){.kind = (uint8_t)kind, .flags = (uint8_t)flags};
}

static void count_ordered_waits_only_for_answers(void **state)
{
	struct reef_op ops[8];

	(void)state;
	ops[0] = op(REEF_WRITE, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 1), 1);
	/* A WRITE is nothing to wait for (F3a). */
	ops[1] = op(REEF_CAS, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 2), 1);
	/* A CAS is; once waited for, it is no more. */
	ops[2] = op(REEF_WRITE, REEF_ORDERED);
	assert_int_equal(reef_segment_count(ops, 3), 2);
	assert_int_equal(reef_round_trips(ops, 3), 2);
	ops[3] = op(REEF_SEND, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 4), 2);
	/* READ and FLUSH are last anyway (F3b). */
	ops[4] = op(REEF_FAA, 0);
	ops[5] = op(REEF_READ, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 6), 2);
	ops[6] = op(REEF_FLUSH, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 7), 2);
	ops[7] = op(REEF_SEND, REEF_ORDERED);
	assert_int_equal(reef_round_trips(ops, 8), 3);
	ops[7] = op(REEF_SEND, 0);
	assert_int_equal(reef_round_trips(ops, 8), 2);
}

static void count_batch_is_counted_by_kind(void **state)
{
	struct fake_loop end;
	struct reef_count count = {0};
	struct reef_counts before, after, counts;
	uint8_t bytes[100] = {0};
	struct reef_op ops[6];
	struct reef_batch batch = {.ops = ops, .count = 6};
	struct reef_message *message;

	(void)state;
	fake_loop_open(&end);
	assert_int_equal(reef_count_push(end.fabric, &count), 0);
	fake_loop_start(&end);
	before = reef_count_read(&count);
	assert_int_equal(before.control_round_trips, 2);
	assert_int_equal(before.batches, 0);
	for (int i = 0; i < 6; i++)
		ops[i] = (struct reef_op){.remote = end.remote, .local = bytes};
	ops[0].kind = REEF_READ;
	ops[0].length = 100;
	ops[1].kind = REEF_WRITE;
	ops[1].length = 50;
	ops[2].kind = REEF_CAS;
	ops[3].kind = REEF_FAA;
	ops[4].kind = REEF_SEND;
	ops[4].length = 7;
	ops[4].flags = REEF_ORDERED;
	ops[5].kind = REEF_READ;
	batch.link = end.link;
	assert_int_equal(reef_run(end.queue, &batch), 0);
	after = reef_count_read(&count);
	counts = reef_counts_between(&before, &after);
	assert_int_equal(counts.reads, 2);
	assert_int_equal(counts.writes, 1);
	assert_int_equal(counts.cas, 1);
	assert_int_equal(counts.faa, 1);
	assert_int_equal(counts.sends, 1);
	assert_int_equal(counts.bytes_in, 100 + 8 + 8);
	assert_int_equal(counts.bytes_out, 50 + 16 + 8 + 7);
	assert_int_equal(counts.batches, 1);
	assert_int_equal(counts.round_trips, 2);
	assert_int_equal(counts.memory_operations, 5);
	assert_int_equal(counts.control_round_trips, 0);
	assert_int_equal(counts.refused, 0);
	assert_int_equal(reef_receive(end.queue, 0, &message), 0);
	reef_message_free(message);
	fake_loop_close(&end);
}

static void count_refused_post_is_not_an_operation(void **state)
{
	struct fake_loop end;
	struct reef_count count = {0};
	struct reef_counts counts;
	struct reef_op faa;
	struct reef_batch batch = {.ops = &faa, .count = 1};

	(void)state;
	fake_loop_open(&end);
	assert_int_equal(reef_count_push(end.fabric, &count), 0);
	fake_loop_start(&end);
	faa = fake_loop_faa(&end, 4, 1); /* not aligned */
	batch.link = end.link;
	assert_int_equal(reef_post(end.queue, &batch), -EINVAL);
	batch.ops = NULL;
	assert_int_equal(reef_post(end.queue, &batch), -EINVAL);
	counts = reef_count_read(&count);
	assert_int_equal(counts.refused, 2);
	assert_int_equal(counts.faa, 0);
	assert_int_equal(counts.batches, 0);
	assert_int_equal(counts.round_trips, 0);
	fake_loop_close(&end);
}

static void count_two_layers_see_the_same(void **state)
{
	struct fake_loop end;
	struct reef_count lower = {0}, upper = {0};
	struct reef_counts a, b;
	struct reef_op faa;
	struct reef_batch batch = {.ops = &faa, .count = 1};

	(void)state;
	fake_loop_open(&end);
	assert_int_equal(reef_count_push(end.fabric, &lower), 0);
	assert_int_equal(reef_count_push(end.fabric, &upper), 0);
	end.fake->late = true;
	fake_loop_start(&end);
	faa = fake_loop_faa(&end, 8, 3);
	batch.link = end.link;
	assert_int_equal(reef_run(end.queue, &batch), 0);
	assert_int_equal(end.words[1], 3);
	a = reef_count_read(&lower);
	b = reef_count_read(&upper);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.faa, 1);
	fake_loop_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(count_ordered_waits_only_for_answers),
		cmocka_unit_test(count_batch_is_counted_by_kind),
		cmocka_unit_test(count_refused_post_is_not_an_operation),
		cmocka_unit_test(count_two_layers_see_the_same),
	};

	return cmocka_run_group_tests_name("count", tests, NULL, NULL);
}
