/* test_state_images.c - what images bring along: numbers that are given again,
 * sessions of another life, a space that gets its name. */
#include "fixture/one_state.h"
#include "fixture/units.h"

#include <errno.h>
#include <reef/error.h>

/* After each step the state has to come back from a snapshot, the same. */
static void comes_back(void)
{
	uint8_t *first, *second;
	size_t first_size, second_size;
	struct reef_state *copy;

	assert_int_equal(reef_state_encode(the, &first, &first_size), 0);
	assert_int_equal(reef_state_decode(first, first_size, &copy), 0);
	assert_int_equal(reef_state_encode(copy, &second, &second_size), 0);
	assert_int_equal(first_size, second_size);
	assert_memory_equal(first, second, first_size);
	reef_state_destroy(copy);
	free(first);
	free(second);
}

static uint32_t open_session(void)
{
	uint32_t id;

	assert_int_equal(reef_state_pick_session(the, 0, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	return id;
}

static void make_places(void)
{
	add_node(1, "a", 100 * MIB);
	add_space(1, "s", 100 * MIB);
	add_extent(1, 1, 0, 1, MIB);
	add_extent(2, 1, 1, 1, MIB);
}

#define RESTORE(...)                                                           \
	RECORD(.type = REEF_RECORD_EXTENT_RESTORE, .space = 1, .node = 1,      \
	       .size = MIB, .era = 7, __VA_ARGS__)

static void state_restored_extents_keep_their_numbers(void **state)
{
	struct reef_state_summary summary;

	make_places();
	refuse(-EEXIST, RESTORE(.id = 2, .ordinal = 5));
	refuse(-EEXIST, RESTORE(.id = 9, .ordinal = 1));
	refuse(-EINVAL, RESTORE(.id = 0, .ordinal = 5));
	refuse(-EINVAL, RESTORE(.id = 9, .ordinal = REEF_ORDINALS_MAX));
	refuse(-ENOSPC, RESTORE(.id = UINT32_MAX, .ordinal = 5));
	must(RESTORE(.id = 90, .ordinal = 5));
	must(RESTORE(.id = 40, .ordinal = 3));
	comes_back();
	assert_int_equal(reef_state_extent(the, 40)->epoch, 7);
	assert_int_equal(reef_state_extent(the, 90)->ordinal, 5);
	assert_int_equal(reef_state_space(the, 1)->by_ordinal[3], 40);
	assert_int_equal(reef_state_space(the, 1)->by_ordinal[4], 0);
	assert_int_equal(reef_state_space(the, 1)->used, 4 * MIB);
	reef_state_summary(the, &summary);
	assert_int_equal(summary.next_extent, 91);
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 40));
	must(RESTORE(.id = 40, .ordinal = 4));
	add_extent(91, 1, 6, 1, MIB);
	comes_back();
}

/* A large extent has several ordinals: none of them is another's. */
static void state_restored_ordinals_do_not_overlap(void **state)
{
	add_node(1, "a", 1000 * MIB);
	add_space(1, "s", 1000 * MIB);
	must(RECORD(.type = REEF_RECORD_EXTENT_RESTORE, .id = 5, .space = 1,
		    .ordinal = 4, .node = 1, .size = 3 * REEF_ORDINAL_SIZE,
		    .era = 2));
	refuse(-EEXIST, RESTORE(.id = 6, .ordinal = 4));
	refuse(-EEXIST, RESTORE(.id = 6, .ordinal = 6));
	refuse(-EEXIST, RECORD(.type = REEF_RECORD_EXTENT_RESTORE, .id = 6,
			       .space = 1, .ordinal = 3, .node = 1,
			       .size = 2 * REEF_ORDINAL_SIZE, .era = 2));
	must(RESTORE(.id = 6, .ordinal = 7));
	must(RESTORE(.id = 7, .ordinal = 3));
	comes_back();
}

static void state_numbers_only_rise(void **state)
{
	struct reef_state_summary summary;

	must(RECORD(.type = REEF_RECORD_NUMBERS, .id = 1000, .generation = 50,
		    .ordinal = 7));
	must(RECORD(.type = REEF_RECORD_NUMBERS, .id = 10, .generation = 5));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_NUMBERS, .id = UINT32_MAX));
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_NUMBERS, .ordinal = 1 << 16));
	reef_state_summary(the, &summary);
	assert_int_equal(summary.next_extent, 1000);
	assert_int_equal(summary.generation, 50);
	assert_int_equal(reef_session_slot(open_session()), 7);
	comes_back();
}

static void state_scratch_space_gets_a_name(void **state)
{
	uint32_t session;

	make_places();
	session = open_session();
	must(RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 2,
		    .kind = REEF_SPACE_SCRATCH, .keeping = REEF_KEEPING_KEPT,
		    .size = UINT64_MAX, .session = session));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_SPACE_NAME, .id = 2));
	refuse(-EEXIST, RECORD(.type = REEF_RECORD_SPACE_NAME, .id = 2,
			       .name = text("s")));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_SPACE_NAME, .id = 1,
			      .name = text("t")));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_SPACE_NAME, .id = 3,
			       .name = text("t")));
	must(RECORD(.type = REEF_RECORD_SPACE_NAME, .id = 2,
		    .name = text("t")));
	assert_int_equal(reef_state_find_space(the, text("t")), 2);
	assert_int_equal(reef_state_space(the, 2)->kind, REEF_SPACE_SHARED);
	assert_int_equal(reef_state_space(the, 2)->session, 0);
	/* It does not end with its session any more. */
	for (int next = REEF_SESSION_EXPIRED; next <= REEF_SESSION_RECOVERED;
	     next++)
		must(RECORD(.type = REEF_RECORD_SESSION_STATE,
			    .session = session, .state = (uint8_t)next));
	assert_non_null(reef_state_space(the, 2));
	comes_back();
	must(RECORD(.type = REEF_RECORD_SPACE_REMOVE, .id = 2));
}

#define PAST(id)                                                               \
	RECORD(.type = REEF_RECORD_SESSION_PAST, .session = (id), .space = 1)

static void state_past_session_looks_ended(void **state)
{
	const struct reef_state_use *uses;
	uint32_t alive, id, past;
	size_t count;

	make_places();
	alive = open_session();
	refuse(-EBUSY, PAST(alive));
	/* In its slot a later one may yet come: it would be taken for it. */
	refuse(-EBUSY, PAST(alive + 3));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_SESSION_PAST,
			       .session = alive + 3, .space = 9));
	refuse(-EINVAL, PAST(reef_session_id(3, 0)));
	refuse(-EINVAL, PAST(reef_session_id(0xffff, 1)));
	past = reef_session_id(reef_session_slot(alive) + 1, 9);
	must(PAST(past));
	refuse(-EEXIST, PAST(past));
	comes_back();
	assert_int_equal(reef_state_session(the, past)->state,
			 REEF_SESSION_RECOVERED);
	uses = reef_state_uses(the, &count);
	assert_int_equal(count, 1);
	assert_true(uses[0].stuck);
	/* The next one in that slot is a later one. */
	id = open_session();
	assert_int_equal(id, past + 1);
	/* An earlier one of a slot in use ended long ago, as it is. */
	must(PAST(past - 1));
	assert_int_equal(reef_state_session(the, id)->state,
			 REEF_SESSION_ALIVE);
	must(RECORD(.type = REEF_RECORD_USE_END, .session = past, .space = 1));
	comes_back();
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(state_restored_extents_keep_their_numbers),
		TEST(state_restored_ordinals_do_not_overlap),
		TEST(state_numbers_only_rise),
		TEST(state_scratch_space_gets_a_name),
		TEST(state_past_session_looks_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
