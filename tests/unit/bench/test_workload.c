/* The loops that Reef and its peers are measured with: that they stay inside
 * the memory, leave alone what they rely on, and notice wrong data. */
#include "bench/workload.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define LINES 4098
#define CHUNK 4096

struct memory {
	uint64_t words[LINES * 8];
	uint64_t touched[LINES]; /* how often an operation began there */
	uint64_t operations;
	bool broken; /* reads bring nothing */
};

static void *at(struct memory *memory, uint64_t offset, uint32_t length)
{
	assert_true(offset + length <= sizeof(memory->words));
	memory->touched[offset / WORKLOAD_LINE]++;
	memory->operations++;
	return (uint8_t *)memory->words + offset;
}

static int memory_read(void *context, uint64_t offset, void *to,
		       uint32_t length)
{
	struct memory *memory = context;
	void *from = at(memory, offset, length);

	if (!memory->broken)
		memcpy(to, from, length);
	return 0;
}

static int memory_read_batch(void *context, const uint64_t *offsets, void *to)
{
	for (uint32_t i = 0; i < WORKLOAD_BATCH_MAX; i++)
		memory_read(context, offsets[i],
			    (uint8_t *)to + i * WORKLOAD_LINE, WORKLOAD_LINE);
	return 0;
}

static int memory_write(void *context, uint64_t offset, const void *from,
			uint32_t length)
{
	memcpy(at(context, offset, length), from, length);
	return 0;
}

static int memory_cas(void *context, uint64_t offset, uint64_t compare,
		      uint64_t swap, uint64_t *before)
{
	uint64_t *word = at(context, offset, 8);

	*before = *word;
	if (*word == compare)
		*word = swap;
	return 0;
}

static int memory_faa(void *context, uint64_t offset, uint64_t add,
		      uint64_t *before)
{
	uint64_t *word = at(context, offset, 8);

	*before = *word;
	*word += add;
	return 0;
}

static const struct workload_ops memory_ops = {
	.read = memory_read,
	.read_batch = memory_read_batch,
	.write = memory_write,
	.cas = memory_cas,
	.faa = memory_faa,
};

static int set_up(void **state)
{
	struct memory *memory = calloc(1, sizeof(*memory));

	for (uint32_t i = 0; i < LINES * 8; i++)
		memory->words[i] = workload_fill(i);
	*state = memory;
	return 0;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static uint8_t local[WORKLOAD_LENGTH_MAX]
	__attribute__((aligned(WORKLOAD_LINE)));

static struct workload_state begin(void)
{
	return (struct workload_state){
		.lines = LINES - 2, .random = 1, .local = local};
}

/* Enough of each kind to meet nearly every line. */
static int run_kind(struct memory *memory, enum workload_kind kind)
{
	struct workload workload = {
		.kind = kind,
		.length = kind == WORKLOAD_READ ? WORKLOAD_LENGTH_MAX
						: WORKLOAD_LINE,
		.chunk = CHUNK,
	};
	struct workload_state state = begin();
	int rc = 0;

	rc = workload_hot_load(&memory_ops, memory, &state);
	for (int i = 0; !rc && i < 8; i++)
		rc = workload_chunk(&workload, &memory_ops, memory, &state);
	return rc ? rc : workload_check(&memory_ops, memory, &state, &workload);
}

static void workload_any_order_of_kinds_succeeds(void **state)
{
	struct memory *memory = *state;

	for (int first = 0; first <= WORKLOAD_FAA_HOT; first++)
		for (int second = 0; second <= WORKLOAD_FAA_HOT; second++) {
			assert_int_equal(run_kind(memory, first), 0);
			assert_int_equal(run_kind(memory, second), 0);
		}
}

static void workload_chain_meets_all_of_memory(void **state)
{
	struct memory *memory = *state;
	uint32_t met = 0;

	assert_int_equal(run_kind(memory, WORKLOAD_CHAIN), 0);
	for (uint32_t i = 0; i < LINES - 2; i++)
		met += memory->touched[i] > 0;
	/* 8 draws per line: of 4,096 lines about 1 is missed. */
	assert_true(met > (LINES - 2) * 99 / 100);
}

static void workload_chunk_counts_operations(void **state)
{
	struct workload workload = {.kind = WORKLOAD_BATCH, .chunk = 64};
	struct workload_state at_first = begin();
	struct memory *memory = *state;

	for (int kind = 0; kind <= WORKLOAD_FAA_HOT; kind++) {
		workload.kind = kind;
		workload.length = WORKLOAD_LINE;
		assert_int_equal(
			workload_hot_load(&memory_ops, memory, &at_first), 0);
		memory->operations = 0;
		assert_int_equal(workload_chunk(&workload, &memory_ops, memory,
						&at_first),
				 0);
		assert_int_equal(memory->operations, 64);
	}
}

static void workload_wrong_data_is_noticed(void **state)
{
	struct memory *memory = *state;

	memory->broken = true;
	assert_int_equal(run_kind(memory, WORKLOAD_CHAIN), -EILSEQ);
	memory->broken = false;
	for (uint32_t i = 0; i < LINES * 8; i++)
		memory->words[i]++;
	assert_int_equal(run_kind(memory, WORKLOAD_CAS), -EILSEQ);
}

static void workload_sweep_touches_every_page(void **state)
{
	struct workload_state at_first = begin();
	struct memory *memory = *state;

	assert_int_equal(workload_sweep(&memory_ops, memory, &at_first), 0);
	for (uint32_t i = 0; i < LINES - 2; i += 64)
		assert_int_equal(memory->touched[i], 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(workload_any_order_of_kinds_succeeds),
		TEST(workload_chain_meets_all_of_memory),
		TEST(workload_chunk_counts_operations),
		TEST(workload_wrong_data_is_noticed),
		TEST(workload_sweep_touches_every_page),
	};

	return cmocka_run_group_tests_name("workload", tests, NULL, NULL);
}
