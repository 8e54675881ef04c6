/* test_state_copies.c - extents with two copies: made, paired, failed over. */
#include "base/mutant.h"
#include "fixture/one_state.h"

#include <errno.h>

#define SIZE 4096u

static void make_space(uint32_t id, uint64_t copies)
{
	must(RECORD(.type = REEF_RECORD_SPACE_MAKE, .id = id,
		    .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		    .size = 1 << 20, .value = copies, .name = text("s")));
}

static void made(uint32_t number)
{
	must(RECORD(.type = REEF_RECORD_EXTENT_MADE, .id = number));
}

/* Two nodes, and extent 1 on the first with its twin 2 on the second. */
static void make_pair(void)
{
	add_node(1, "a", 1 << 20);
	add_node(2, "b", 1 << 20);
	add_node(3, "c", 1 << 20);
	make_space(1, 2);
	must(RECORD(.type = REEF_RECORD_EXTENT_PLACE, .id = 1, .space = 1,
		    .node = 1, .size = SIZE, .value = 1));
	must(RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 2, .space = 1,
		    .node = 2, .size = SIZE, .value = 2));
	made(2);
	must(RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1, .value = 2,
		    .era = 1));
	made(1);
}

static void goes(uint32_t node, uint8_t how)
{
	struct reef_state_summary summary;

	reef_state_summary(the, &summary);
	node_becomes(node, how, summary.pool_epoch + 1);
}

static const struct reef_state_extent *extent(uint32_t number)
{
	return reef_state_extent(the, number);
}

static void state_copies_space_with_three_is_refused(void **state)
{
	struct reef_record record = {
		.type = REEF_RECORD_SPACE_MAKE,
		.id = 1,
		.kind = REEF_SPACE_SHARED,
		.keeping = REEF_KEEPING_KEPT,
		.size = 1 << 20,
		.value = 3,
		.name = text("s"),
	};

	refuse(-EINVAL, &record);
	record.value = 0;
	refuse(-EINVAL, &record);
	record.value = 2;
	record.keeping = REEF_KEEPING_REVOCABLE;
	refuse(-EINVAL, &record);
	record.value = 1;
	must(&record);
}

static void state_copies_pair_is_named_by_both(void **state)
{
	make_pair();
	assert_int_equal(extent(1)->twin, 2);
	assert_int_equal(extent(2)->twin, 1);
	assert_true(extent(2)->is_twin && !extent(1)->is_twin);
	assert_int_equal(extent(1)->epoch, 1);
	assert_int_equal(reef_state_space(the, 1)->used, 2 * SIZE);
	assert_int_equal(reef_state_space(the, 1)->extents, 2);
	/* A twin is not removed by itself, and none moves to the other. */
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 2));
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 2));
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 1));
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 3));
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 1));
	assert_null(extent(1));
	assert_null(extent(2));
	assert_int_equal(reef_state_space(the, 1)->used, 0);
	for (uint32_t node = 1; node <= 3; node++)
		assert_int_equal(reef_state_node(the, node)->used, 0);
}

static void state_copies_twin_that_does_not_fit_is_refused(void **state)
{
	add_node(1, "a", 1 << 20);
	add_node(2, "b", 1 << 20);
	make_space(1, 2);
	add_space(2, "plain", 1 << 20);
	add_extent(1, 1, 0, 1, SIZE);
	add_extent(2, 2, 0, 1, SIZE);
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 3, .space = 2,
		      .node = 2, .size = SIZE, .value = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 3, .space = 1,
		    .node = 1, .size = SIZE, .value = 3));
	/* It is not made, then on the same node. */
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1,
			      .value = 3, .era = 2));
	made(3);
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1,
			      .value = 3, .era = 2));
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 4, .space = 1,
		    .node = 2, .size = SIZE, .value = 4));
	made(4);
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 2,
			       .value = 4, .era = 2));
	/* One that is made is in another epoch from then on. */
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1,
			       .value = 4, .era = 1));
	must(RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1, .value = 4,
		    .era = 2));
	assert_int_equal(extent(1)->epoch, 2);
}

static void keep(uint32_t node)
{
	must(RECORD(.type = REEF_RECORD_NODE_KEEP, .id = node, .value = 1));
}

/* Whether it is DEAD or AWAY, the other copy goes on. */
static void lose_primary(uint8_t how)
{
	make_pair();
	keep(1);
	goes(1, how);
	assert_null(extent(2));
	assert_int_equal(extent(1)->state, REEF_EXTENT_FAILING);
	assert_int_equal(extent(1)->node, 2);
	assert_int_equal(extent(1)->copy, 2);
	assert_int_equal(extent(1)->label, 2);
	assert_int_equal(extent(1)->twin, 0);
	assert_int_equal(extent(1)->epoch, 2);
	assert_ptr_equal(reef_state_labelled(the, 2), extent(1));
	assert_null(reef_state_labelled(the, 1));
	assert_int_equal(reef_state_node(the, 1)->used, 0);
	assert_int_equal(reef_state_node(the, 2)->used, SIZE);
	assert_int_equal(reef_state_space(the, 1)->used, SIZE);
}

static void state_copies_primary_that_dies_goes_on_as_its_twin(void **state)
{
	lose_primary(REEF_NODE_DEAD);
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_OPEN, .id = 1));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_EXTENT_OPEN, .id = 1));
	assert_int_equal(extent(1)->state, REEF_EXTENT_LIVE);
}

static void state_copies_primary_that_is_away_goes_on_as_its_twin(void **state)
{
	lose_primary(REEF_NODE_AWAY);
	/* And the other is gone, too: it waits, and is lost when that is. */
	keep(2);
	goes(2, REEF_NODE_AWAY);
	assert_int_equal(extent(1)->state, REEF_EXTENT_FAILING);
	goes(2, REEF_NODE_DEAD);
	assert_int_equal(extent(1)->state, REEF_EXTENT_LOST);
	assert_int_equal(reef_state_node(the, 2)->used, 0);
}

static void state_copies_twin_that_dies_leaves_the_primary(void **state)
{
	make_pair();
	goes(2, REEF_NODE_DEAD);
	assert_null(extent(2));
	assert_int_equal(extent(1)->state, REEF_EXTENT_FAILING);
	assert_int_equal(extent(1)->node, 1);
	assert_int_equal(extent(1)->copy, 1);
	assert_int_equal(extent(1)->label, 1);
	assert_int_equal(extent(1)->epoch, 2);
}

/* Moves of the one that is left are off, and the epoch is higher than both. */
static void state_copies_failover_calls_moves_off(void **state)
{
	make_pair();
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVED, .id = 2, .era = 2));
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 2));
	goes(1, REEF_NODE_DEAD);
	assert_int_equal(extent(1)->node, 3);
	assert_int_equal(extent(1)->target, 0);
	assert_int_equal(extent(1)->epoch, 3);
	assert_int_equal(reef_state_node(the, 2)->used, 0);
	assert_int_equal(reef_state_node(the, 3)->used, SIZE);
}

static void state_copies_copy_that_is_missing_fails_over(void **state)
{
	make_pair();
	must(RECORD(.type = REEF_RECORD_EXTENT_LOST, .id = 2, .era = 2));
	assert_int_equal(extent(1)->state, REEF_EXTENT_FAILING);
	must(RECORD(.type = REEF_RECORD_EXTENT_LOST, .id = 1, .era = 3));
	assert_int_equal(extent(1)->state, REEF_EXTENT_LOST);
}

/* A twin that nobody names is nobody's: it goes with its node. */
static void state_copies_twin_without_primary_goes_with_its_node(void **state)
{
	make_pair();
	must(RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 3, .space = 1,
		    .node = 3, .size = SIZE, .value = 3));
	keep(3);
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_LOST, .id = 3, .era = 2));
	goes(3, REEF_NODE_AWAY);
	assert_null(extent(3));
	assert_int_equal(reef_state_node(the, 3)->used, 0);
	assert_int_equal(extent(1)->twin, 2);
}

/* Nobody was told of it, so nobody has to know that it has one copy. */
static void state_copies_extent_that_is_not_made_is_not_failing(void **state)
{
	add_node(1, "a", 1 << 20);
	add_node(2, "b", 1 << 20);
	make_space(1, 2);
	must(RECORD(.type = REEF_RECORD_EXTENT_PLACE, .id = 1, .space = 1,
		    .node = 1, .size = SIZE, .value = 1));
	must(RECORD(.type = REEF_RECORD_EXTENT_TWIN, .id = 2, .space = 1,
		    .node = 2, .size = SIZE, .value = 2));
	made(2);
	must(RECORD(.type = REEF_RECORD_EXTENT_PAIR, .id = 1, .value = 2,
		    .era = 1));
	goes(2, REEF_NODE_DEAD);
	assert_int_equal(extent(1)->state, REEF_EXTENT_LIVE);
	assert_int_equal(extent(1)->epoch, 1);
	assert_int_equal(extent(1)->twin, 0);
	made(1);
}

/* What a journal does not say, the next start does not know. */
static void state_copies_failover_that_is_forgotten_is_none(void **state)
{
	make_pair();
	reef_mutate(REEF_MUTANT_BROKER_FORGET_FAILING);
	goes(1, REEF_NODE_DEAD);
	reef_mutate(REEF_MUTANT_NONE);
	assert_int_not_equal(extent(1)->state, REEF_EXTENT_FAILING);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(state_copies_space_with_three_is_refused),
		TEST(state_copies_pair_is_named_by_both),
		TEST(state_copies_twin_that_does_not_fit_is_refused),
		TEST(state_copies_primary_that_dies_goes_on_as_its_twin),
		TEST(state_copies_primary_that_is_away_goes_on_as_its_twin),
		TEST(state_copies_twin_that_dies_leaves_the_primary),
		TEST(state_copies_failover_calls_moves_off),
		TEST(state_copies_copy_that_is_missing_fails_over),
		TEST(state_copies_twin_without_primary_goes_with_its_node),
		TEST(state_copies_extent_that_is_not_made_is_not_failing),
		TEST(state_copies_failover_that_is_forgotten_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
