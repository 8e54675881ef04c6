/* test_state.c - what records do, and what they may not. test_state_replay.c
 * has the states that come back. */
#include "fixture/one_state.h"
#include "fixture/units.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>

static void state_epochs_rise_by_one(void **state)
{
	struct reef_state_summary summary;

	refuse(-EEXIST, RECORD(.type = REEF_RECORD_POOL, .value = 78));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_BROKER, .value = 2));
	must(RECORD(.type = REEF_RECORD_BROKER, .value = 1));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_BROKER, .value = 1));
	reef_state_summary(the, &summary);
	assert_int_equal(summary.pool, 77);
	assert_int_equal(summary.pool_epoch, 1);
	assert_int_equal(summary.broker_epoch, 1);
}

static void state_without_a_pool_takes_nothing(void **state)
{
	tear_down(state);
	assert_int_equal(reef_state_create(&the), 0);
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_BROKER, .value = 1));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_POOL));
	refuse(-EINVAL, RECORD(.type = 0));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_TYPES));
}

static void state_dead_node_loses_its_extents(void **state)
{
	const struct reef_state_extent *extent;
	struct reef_state_summary summary;

	add_node(1, "a", 100 * MIB);
	add_node(2, "b", 100 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, 64 * MIB);
	add_extent(2, 1, 1, 2, 16 * MIB);
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 1));
	assert_int_equal(reef_state_node(the, 1)->used, 80 * MIB);
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_NODE_STATE, .id = 1,
			       .state = REEF_NODE_DEAD, .value = 1));
	node_becomes(1, REEF_NODE_DEAD, 2);
	extent = reef_state_extent(the, 1);
	assert_int_equal(extent->state, REEF_EXTENT_LOST);
	assert_int_equal(extent->node, 0);
	assert_int_equal(extent->epoch, 2);
	extent = reef_state_extent(the, 2); /* its move is off */
	assert_int_equal(extent->state, REEF_EXTENT_LIVE);
	assert_int_equal(extent->target, 0);
	assert_int_equal(extent->epoch, 1);
	assert_int_equal(reef_state_node(the, 1)->used, 0);
	reef_state_summary(the, &summary);
	assert_int_equal(summary.pool_epoch, 2);
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 3, .space = 1,
		      .ordinal = 2, .node = 1, .size = MIB));
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_NODE_RETURN, .id = 1,
		      .incarnation = 1, .size = MIB, .addresses = text("x")));
	must(RECORD(.type = REEF_RECORD_NODE_RETURN, .id = 1, .incarnation = 2,
		    .size = 10 * MIB, .addresses = text("tcp://127.0.0.1:2")));
	assert_int_equal(reef_state_node(the, 1)->state, REEF_NODE_OK);
	assert_string_equal(reef_state_node(the, 1)->addresses,
			    "tcp://127.0.0.1:2");
}

/* One that keeps nothing has to be DEAD first. */
static void state_node_that_keeps_is_away_and_back_in_one(void **state)
{
	struct reef_record come = {.type = REEF_RECORD_NODE_RETURN,
				   .id = 1,
				   .incarnation = 7,
				   .size = MIB,
				   .addresses = text("x")};
	struct reef_state_summary summary;

	add_node(1, "a", 100 * MIB);
	add_node(2, "b", 100 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, 16 * MIB);
	add_extent(2, 1, 1, 2, 16 * MIB);
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 2, .node = 1));
	refuse(-EBUSY, &come);
	must(RECORD(.type = REEF_RECORD_NODE_KEEP, .id = 1, .value = 1));
	must(&come);
	assert_int_equal(reef_state_node(the, 1)->state, REEF_NODE_OK);
	assert_int_equal(reef_state_node(the, 1)->incarnation, 7);
	/* What it keeps is its room, without what moved to it. */
	assert_int_equal(reef_state_node(the, 1)->used, 16 * MIB);
	assert_int_equal(reef_state_node(the, 1)->capacity, 16 * MIB);
	assert_int_equal(reef_state_extent(the, 1)->node, 1);
	assert_int_equal(reef_state_extent(the, 2)->target, 0);
	reef_state_summary(the, &summary);
	assert_int_equal(summary.pool_epoch, 2);
	refuse(-ESTALE, &come);
	node_becomes(1, REEF_NODE_DRAINING, 2);
	come.incarnation = 8;
	must(&come);
	assert_int_equal(reef_state_node(the, 1)->state, REEF_NODE_DRAINING);
}

static void state_drain_ends_with_the_last_extent(void **state)
{
	const struct reef_state_extent *extent;

	add_node(1, "a", 100 * MIB);
	add_node(2, "b", 20 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, 16 * MIB);
	node_becomes(1, REEF_NODE_DRAINING, 1);
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_NODE_STATE, .id = 1,
			      .state = REEF_NODE_DRAINED, .value = 1));
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 2, .space = 1,
		      .ordinal = 1, .node = 1, .size = MIB));
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 2));
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 2));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_NODE_REMOVE, .id = 1));
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVED, .id = 1, .era = 1));
	must(RECORD(.type = REEF_RECORD_EXTENT_MOVED, .id = 1, .era = 2));
	extent = reef_state_extent(the, 1);
	assert_int_equal(extent->node, 2);
	assert_int_equal(extent->state, REEF_EXTENT_LIVE);
	node_becomes(1, REEF_NODE_DRAINED, 1);
	must(RECORD(.type = REEF_RECORD_NODE_REMOVE, .id = 1));
	assert_null(reef_state_node(the, 1));
	assert_int_equal(reef_state_find_node(the, text("a")), 0);
	/* Its name is free, its number is not. */
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_NODE_ADD, .id = 1, .incarnation = 1,
		      .size = 1, .name = text("a"), .addresses = text("x")));
	add_node(3, "a", MIB);
}

static void state_node_that_has_not_come_is_dead(void **state)
{
	struct reef_record come = {.type = REEF_RECORD_NODE_RETURN,
				   .id = 1,
				   .incarnation = 7,
				   .size = MIB,
				   .addresses = text("x")};
	struct reef_state *again;
	uint8_t *image;
	size_t size;

	refuse(-EINVAL, RECORD(.type = REEF_RECORD_NODE_ADD, .id = 1,
			       .size = MIB, .name = text("a")));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_NODE_ADD, .id = 1,
			       .name = text("a"), .addresses = text("x")));
	must(RECORD(.type = REEF_RECORD_NODE_ADD, .id = 1, .name = text("a")));
	assert_int_equal(reef_state_node(the, 1)->state, REEF_NODE_DEAD);
	assert_string_equal(reef_state_node(the, 1)->addresses, "");
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_NODE_STATE, .id = 1,
			      .state = REEF_NODE_DEAD, .value = 2));
	refuse(-EEXIST, RECORD(.type = REEF_RECORD_NODE_ADD, .id = 2,
			       .name = text("a")));
	assert_int_equal(reef_state_encode(the, &image, &size), 0);
	assert_int_equal(reef_state_decode(image, size, &again), 0);
	assert_true(hash_of(again) == hash_of(the));
	reef_state_destroy(again);
	free(image);
	must(&come);
	assert_int_equal(reef_state_node(the, 1)->state, REEF_NODE_OK);
	/* One that never came goes as well; its number does not come back. */
	must(RECORD(.type = REEF_RECORD_NODE_ADD, .id = 2, .name = text("b")));
	must(RECORD(.type = REEF_RECORD_NODE_REMOVE, .id = 2));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_NODE_ADD, .id = 2,
			       .name = text("b")));
}

static void state_bounds_are_kept(void **state)
{
	struct reef_record extent = {.type = REEF_RECORD_EXTENT_ADD,
				     .id = 1,
				     .space = 1,
				     .node = 1,
				     .size = 4096};

	add_node(1, "a", 100 * MIB);
	add_space(1, "s", 200 * MIB);
	extent.size = 101 * MIB;
	refuse(-ENOSPC, &extent);
	extent.size = 201 * MIB;
	refuse(-EDQUOT, &extent);
	extent.size = 0;
	refuse(-EINVAL, &extent);
	extent.size = 4097;
	refuse(-EINVAL, &extent);
	extent.size = REEF_EXTENT_SIZE_MAX + 4096;
	refuse(-EINVAL, &extent);
	extent.size = 4096;
	extent.ordinal = 1;
	refuse(-EINVAL, &extent);
	extent.ordinal = 0;
	extent.id = 2;
	refuse(-ESTALE, &extent);
	extent.id = 1;
	extent.node = 2;
	refuse(-ENOENT, &extent);
	extent.node = 1;
	must(&extent);
	extent.id = 2;
	refuse(-EEXIST, &extent); /* the ordinal is taken */
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 1));
	must(&extent); /* and free again */
	refuse(-EDQUOT,
	       RECORD(.type = REEF_RECORD_SPACE_QUOTA, .id = 1, .size = 4095));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_SPACE_QUOTA, .id = 1));
	must(RECORD(.type = REEF_RECORD_SPACE_QUOTA, .id = 1, .size = 4096));
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 2,
		      .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		      .name = text("z")));
}

static void state_limits_are_settings(void **state)
{
	enum reef_setting setting;

	assert_int_equal(reef_setting_find("spaces_max", &setting), 0);
	assert_string_equal(reef_setting_name(setting), "spaces_max");
	assert_int_equal(reef_setting_find("no_such", &setting), -ENOENT);
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_SETTING,
			       .id = REEF_SETTING_COUNT, .value = 1));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_SETTING, .id = setting));
	/* No extent could have that size. */
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_SETTING,
			       .id = REEF_SETTING_EXTENT_SIZE,
			       .value = REEF_EXTENT_ALIGN + 8));
	must(RECORD(.type = REEF_RECORD_SETTING, .id = setting, .value = 1));
	assert_int_equal(reef_state_setting(the, setting), 1);
	add_space(1, "one", MIB);
	refuse(-ENOSPC,
	       RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 2,
		      .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		      .size = 1, .name = text("two")));
	must(RECORD(.type = REEF_RECORD_SETTING, .id = setting, .value = 2));
	add_space(2, "two", MIB);
}

static uint32_t open_session(void)
{
	uint32_t id;

	assert_int_equal(reef_state_pick_session(the, 0, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	return id;
}

static void state_request_counts_once_and_is_remembered(void **state)
{
	static const uint32_t numbers[] = {0x70000000, 0xe0000000, UINT32_MAX,
					   1};
	uint32_t id = open_session();
	struct reef_record bind = {.type = REEF_RECORD_NAME_BIND,
				   .origin = id,
				   .request = 3,
				   .space = 1,
				   .name = text("n")};
	const struct reef_state_session *session;
	int i;

	must(RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 1,
		    .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		    .size = MIB, .name = text("s"), .origin = id,
		    .request = 2));
	session = reef_state_session(the, id);
	assert_int_equal(session->request, 2);
	assert_int_equal(session->request_type, REEF_RECORD_SPACE_ADD);
	assert_int_equal(session->result, 1);
	must(&bind);
	session = reef_state_session(the, id);
	assert_int_equal(session->request, 3);
	assert_int_equal(session->result,
			 reef_state_name(the, 1, text("n"))->generation);
	/* The same again, an older one, nobody's, and one that is no request.
	 */
	refuse(-EALREADY, &bind);
	bind.name = text("other");
	refuse(-EALREADY, &bind);
	bind.request = 1;
	refuse(-ESTALE, &bind);
	bind.request = 0;
	refuse(-EINVAL, &bind);
	bind.request = 0x80000010; /* ages ago, for they begin again */
	refuse(-ESTALE, &bind);
	bind.request = 4;
	bind.origin = id + 1;
	refuse(-ENOENT, &bind);
	bind.origin = 0;
	refuse(-EINVAL, &bind);
	bind.origin = id;
	for (i = 0; i < 4; i++) {
		bind.request = numbers[i];
		must(&bind);
		refuse(-EALREADY, &bind);
		must(RECORD(.type = REEF_RECORD_NAME_UNBIND, .space = 1,
			    .name = bind.name));
	}
	bind.request++;
	session_becomes(id, REEF_SESSION_EXPIRED);
	refuse(-EBUSY, &bind);
}

static void state_session_with_uses_is_not_recovered(void **state)
{
	uint32_t first = open_session(), second = open_session();
	struct reef_record use = {
		.type = REEF_RECORD_USE, .session = first, .space = 2};
	struct reef_record recovered = {.type = REEF_RECORD_SESSION_STATE,
					.session = first,
					.state = REEF_SESSION_RECOVERED};
	size_t count;

	add_space(1, "a", MIB);
	add_space(2, "b", MIB);
	must(RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 3,
		    .kind = REEF_SPACE_SCRATCH, .keeping = REEF_KEEPING_KEPT,
		    .size = MIB, .session = first));
	must(&use);
	refuse(-EEXIST, &use);
	use.space = 1;
	must(&use);
	use.space = 3; /* it goes with the session anyway */
	refuse(-EINVAL, &use);
	use.session = second;
	must(&use);
	use.space = 4;
	refuse(-ENOENT, &use);
	session_becomes(first, REEF_SESSION_EXPIRED);
	session_becomes(first, REEF_SESSION_FENCED);
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_USE, .session = first, .space = 3));
	refuse(-EBUSY, &recovered);
	must(RECORD(.type = REEF_RECORD_USE_END, .session = first, .space = 2));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_USE_END, .session = first,
			       .space = 2));
	refuse(-EBUSY, &recovered);
	/* With a space go its uses; with the session, its scratch space, and so
	 * what another used there. */
	must(RECORD(.type = REEF_RECORD_SPACE_REMOVE, .id = 1));
	reef_state_uses(the, &count);
	assert_int_equal(count, 1);
	must(&recovered);
	reef_state_uses(the, &count);
	assert_int_equal(count, 0);
}

/* What is stuck holds its session up no more, and outlives it; its id is not
 * given again. */
static void state_stuck_use_outlives_its_session(void **state)
{
	uint32_t first = open_session(), id;
	struct reef_record stuck = {
		.type = REEF_RECORD_USE_STUCK, .session = first, .space = 1};
	const struct reef_state_use *use;
	struct reef_state *copy;
	uint8_t *bytes;
	size_t count, size;

	add_space(1, "a", MIB);
	refuse(-ENOENT, &stuck);
	must(RECORD(.type = REEF_RECORD_USE, .session = first, .space = 1));
	refuse(-EBUSY, &stuck);
	session_becomes(first, REEF_SESSION_EXPIRED);
	session_becomes(first, REEF_SESSION_FENCED);
	must(&stuck);
	refuse(-EEXIST, &stuck);
	session_becomes(first, REEF_SESSION_RECOVERED);
	assert_int_equal(reef_state_encode(the, &bytes, &size), 0);
	assert_int_equal(reef_state_decode(bytes, size, &copy), 0);
	use = reef_state_uses(copy, &count);
	assert_true(count == 1 && use->session == first && use->stuck);
	reef_state_destroy(copy);
	free(bytes);
	/* Others of its slot come and go. */
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(reef_state_pick_session(the, 0, &id), 0);
		assert_int_not_equal(id, first);
		must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	}
	must(RECORD(.type = REEF_RECORD_USE_END, .session = first, .space = 1));
	reef_state_uses(the, &count);
	assert_int_equal(count, 0);
}

static void state_reclaim_epochs_are_never_given_twice(void **state)
{
	struct reef_state_summary summary;

	must(RECORD(.type = REEF_RECORD_RECLAIM, .value = 100));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_RECLAIM, .value = 100));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_RECLAIM, .value = 7));
	reef_state_summary(the, &summary);
	assert_int_equal(summary.reclaim, 100);
}

/* Write that much at a place of the image; the offset is found by what was
 * there. */
static void patch(uint8_t *image, size_t size, const void *find,
		  const void *replace, size_t length)
{
	size_t i;

	for (i = 0; i + length <= size; i++) {
		if (memcmp(image + i, find, length) == 0) {
			memcpy(image + i, replace, length);
			return;
		}
	}
	fail_msg("not there");
}

static void state_large_extents_take_several_ordinals(void **state)
{
	uint32_t ordinal;

	add_node(1, "a", 1000 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, 64 * MIB);
	add_extent(2, 1, 1, 1, 130 * MIB);
	assert_int_equal(reef_state_pick_ordinal(the, 1, MIB, &ordinal), 0);
	assert_int_equal(ordinal, 4);
	add_extent(3, 1, 4, 1, MIB);
	assert_int_equal(reef_state_space(the, 1)->ordinals, 5);
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 2));
	assert_int_equal(reef_state_pick_ordinal(the, 1, MIB, &ordinal), 0);
	assert_int_equal(ordinal, 5);
	refuse(-EINVAL,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 4, .space = 1,
		      .ordinal = 6, .node = 1, .size = MIB));
}

/* Those of extents that are gone, beginning behind the youngest extent. */
static void state_ordinals_are_used_again_at_last(void **state)
{
	const uint64_t size = REEF_EXTENT_SIZE_MAX, each = 64;
	uint32_t last = REEF_ORDINALS_MAX / each, i, ordinal;

	add_node(1, "a", UINT64_MAX);
	add_space(1, "s", UINT64_MAX);
	must(RECORD(.type = REEF_RECORD_SETTING, .id = REEF_SETTING_EXTENTS_MAX,
		    .value = last + 1));
	for (i = 0; i < last; i++)
		add_extent(i + 1, 1, i * each, 1, size);
	assert_int_equal(reef_state_pick_ordinal(the, 1, MIB, &ordinal),
			 -ENOSPC);
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 3));
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 11));
	assert_int_equal(reef_state_pick_ordinal(the, 1, size, &ordinal), 0);
	assert_int_equal(ordinal, 2 * each);
	add_extent(last + 1, 1, ordinal, 1, size);
	assert_int_equal(reef_state_pick_ordinal(the, 1, MIB, &ordinal), 0);
	assert_int_equal(ordinal, 10 * each);
}

/* Numbers are not used again: the last one is refused. */
static void state_numbers_end_with_a_refusal(void **state)
{
	static const uint32_t few[] = {2, 2, 2, 2};
	static const uint32_t all[] = {UINT32_MAX, UINT32_MAX, UINT32_MAX,
				       UINT32_MAX};
	struct reef_state *other;
	uint8_t *image;
	size_t size;

	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	add_node(1, "a", 100 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, MIB);
	assert_int_equal(reef_state_encode(the, &image, &size), 0);
	patch(image, size, few, all, sizeof(few));
	assert_int_equal(reef_state_decode(image, size, &other), 0);
	free(image);
	reef_state_destroy(the);
	the = other;
	refuse(-ENOSPC, RECORD(.type = REEF_RECORD_USER_ADD, .id = UINT32_MAX,
			       .name = text("bob")));
	refuse(-ENOSPC, RECORD(.type = REEF_RECORD_NODE_ADD, .id = UINT32_MAX,
			       .incarnation = 1, .size = MIB, .name = text("b"),
			       .addresses = text("tcp:b")));
	refuse(-ENOSPC,
	       RECORD(.type = REEF_RECORD_SPACE_ADD, .id = UINT32_MAX,
		      .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		      .size = MIB, .name = text("t")));
	refuse(-ENOSPC,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = UINT32_MAX,
		      .space = 1, .ordinal = 1, .node = 1, .size = MIB));
}

static void state_extent_epoch_does_not_wrap(void **state)
{
	/* number, space, ordinal, node, target, epoch */
	static const uint32_t low[] = {1, 1, 0, 1, 0, 1};
	static const uint32_t high[] = {1, 1, 0, 1, 0, UINT32_MAX - 1};
	static const uint32_t over[] = {1, 1, 0, 1, 0, UINT32_MAX};
	struct reef_state *other;
	uint8_t *image;
	size_t size;

	add_node(1, "a", 100 * MIB);
	add_node(2, "b", 100 * MIB);
	add_space(1, "s", 1000 * MIB);
	add_extent(1, 1, 0, 1, MIB);
	assert_int_equal(reef_state_encode(the, &image, &size), 0);
	patch(image, size, low, over, sizeof(low));
	assert_int_equal(reef_state_decode(image, size, &other),
			 -REEF_ECORRUPT);
	patch(image, size, over, high, sizeof(low));
	assert_int_equal(reef_state_decode(image, size, &other), 0);
	free(image);
	reef_state_destroy(the);
	the = other;
	refuse(-ENOSPC,
	       RECORD(.type = REEF_RECORD_EXTENT_MOVE, .id = 1, .node = 2));
	/* Its loss has the last one. */
	node_becomes(1, REEF_NODE_DEAD, 2);
	assert_int_equal(reef_state_extent(the, 1)->epoch, UINT32_MAX);
	assert_int_equal(reef_state_extent(the, 1)->state, REEF_EXTENT_LOST);
}

static void state_session_process_is_kept_until_it_ends(void **state)
{
	uint32_t id = reef_session_id(0, 1);
	struct reef_record record = {
		.type = REEF_RECORD_SESSION_PROCESS,
		.session = id,
		.id = 7,
		.generation = 8,
		.value = 9,
	};
	struct reef_state *copy;
	uint8_t *image;
	size_t size;

	refuse(-ENOENT, &record);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	must(&record);
	assert_int_equal(reef_state_encode(the, &image, &size), 0);
	assert_int_equal(reef_state_decode(image, size, &copy), 0);
	free(image);
	assert_memory_equal(&reef_state_session(copy, id)->process,
			    &reef_state_session(the, id)->process,
			    sizeof(struct reef_process));
	reef_state_destroy(copy);
	assert_int_equal(reef_state_session(the, id)->process.pid, 7);
	assert_int_equal(reef_state_session(the, id)->process.started, 8);
	assert_int_equal(reef_state_session(the, id)->process.place, 9);
	record.id = 0;
	refuse(-EINVAL, &record);
	record.generation = record.value = 0;
	must(&record);
	assert_int_equal(reef_state_session(the, id)->process.pid, 0);
	must(RECORD(.type = REEF_RECORD_SESSION_STATE, .session = id,
		    .state = REEF_SESSION_EXPIRED));
	refuse(-EBUSY, &record);
}

static void state_lost_extents_forgotten_count_no_more(void **state)
{
	const struct reef_state_space *space;
	struct reef_state *copy;
	uint8_t *image;
	size_t size;

	add_node(1, "a", 100 * MIB);
	add_node(2, "b", 100 * MIB);
	add_space(1, "s", 3 * MIB);
	add_extent(1, 1, 0, 1, 2 * MIB);
	add_extent(2, 1, 1, 2, MIB);
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_SPACE_FORGET, .id = 2));
	must(RECORD(.type = REEF_RECORD_SPACE_FORGET, .id = 1));
	assert_int_equal(reef_state_space(the, 1)->used, 3 * MIB);
	node_becomes(1, REEF_NODE_DEAD, 2);
	refuse(-EDQUOT,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 3, .space = 1,
		      .ordinal = 2, .node = 2, .size = MIB));
	must(RECORD(.type = REEF_RECORD_SPACE_FORGET, .id = 1));
	space = reef_state_space(the, 1);
	assert_int_equal(space->used, MIB);
	assert_int_equal(space->extents, 1);
	/* It is known as lost for ever, and its ordinal is nobody else's. */
	assert_true(reef_extent_is_lost(reef_state_extent(the, 1)->state));
	assert_int_equal(space->by_ordinal[0], 1);
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_EXTENT_LOST, .id = 1, .era = 3));
	add_extent(3, 1, 2, 2, 2 * MIB);
	assert_int_equal(reef_state_encode(the, &image, &size), 0);
	assert_int_equal(reef_state_decode(image, size, &copy), 0);
	free(image);
	assert_int_equal(reef_state_space(copy, 1)->used, 3 * MIB);
	reef_state_destroy(copy);
	must(RECORD(.type = REEF_RECORD_EXTENT_REMOVE, .id = 1));
	assert_int_equal(reef_state_space(the, 1)->used, 3 * MIB);
}

static void state_texts_are_checked(void **state)
{
	char *large = malloc(UINT16_MAX);
	struct reef_record bind = {.type = REEF_RECORD_NAME_BIND, .space = 1};

	assert_non_null(large);
	memset(large, 'x', UINT16_MAX);
	add_space(1, "s", MIB);
	bind.name = (struct reef_text){large, UINT16_MAX};
	refuse(-ENOSPC, &bind);
	bind.name = text("");
	refuse(-EINVAL, &bind);
	bind.name = text("a\nb");
	refuse(-EINVAL, &bind);
	bind.name = (struct reef_text){"a\0b", 3};
	refuse(-EINVAL, &bind);
	bind.name = text("gr\xc3\xbc\xc3\x9f");
	must(&bind);
	free(large);
}

static void state_sessions_end_step_by_step(void **state)
{
	uint32_t first, second;

	assert_int_equal(reef_state_pick_session(the, 0, &first), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = first));
	must(RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 1,
		    .kind = REEF_SPACE_SCRATCH,
		    .keeping = REEF_KEEPING_REVOCABLE, .size = MIB,
		    .session = first));
	add_node(1, "a", MIB);
	add_extent(1, 1, 0, 1, 4096);
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1,
		    .name = text("n")));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_SESSION_STATE,
			      .session = first, .state = REEF_SESSION_FENCED));
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = first + 1));
	session_becomes(first, REEF_SESSION_EXPIRED);
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_SESSION_STATE,
			      .session = first, .state = REEF_SESSION_ALIVE));
	refuse(-EBUSY,
	       RECORD(.type = REEF_RECORD_SPACE_ADD, .id = 2,
		      .kind = REEF_SPACE_SCRATCH, .keeping = REEF_KEEPING_KEPT,
		      .size = MIB, .session = first));
	session_becomes(first, REEF_SESSION_FENCED);
	assert_non_null(reef_state_space(the, 1));
	session_becomes(first, REEF_SESSION_RECOVERED);
	/* What was its own went with it. */
	assert_null(reef_state_space(the, 1));
	assert_null(reef_state_extent(the, 1));
	assert_int_equal(reef_state_node(the, 1)->used, 0);
	assert_null(reef_state_name(the, 1, text("n")));
	assert_int_equal(reef_state_pick_session(the, 0, &second), 0);
	assert_int_not_equal(reef_session_slot(second),
			     reef_session_slot(first));
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = first));
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = first + 1));
	assert_null(reef_state_session(the, first));
}

static void state_full_of_sessions_says_so(void **state)
{
	uint32_t id;

	must(RECORD(.type = REEF_RECORD_SETTING,
		    .id = REEF_SETTING_SESSIONS_MAX, .value = 2));
	assert_int_equal(reef_state_pick_session(the, 0, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	assert_int_equal(reef_state_pick_session(the, 0, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	assert_int_equal(reef_state_pick_session(the, 0, &id), -ENOSPC);
	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	refuse(-ENOSPC, RECORD(.type = REEF_RECORD_SESSION_OPEN, .user = 1,
			       .session = reef_session_id(2, 1)));
	/* The owner has some slots more. */
	assert_int_equal(reef_state_pick_session(the, 1, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	assert_int_equal(reef_state_pick_session(the, 1, &id), -ENOSPC);
	assert_int_equal(reef_state_pick_session(the, REEF_OWNER_SLOTS, &id),
			 0);
	refuse(-ENOSPC,
	       RECORD(.type = REEF_RECORD_SESSION_OPEN,
		      .session = reef_session_id(2 + REEF_OWNER_SLOTS, 1)));
}

static void state_generations_of_a_slot_wrap(void **state)
{
	uint32_t id, i;

	must(RECORD(.type = REEF_RECORD_SETTING,
		    .id = REEF_SETTING_SESSIONS_MAX, .value = 1));
	for (i = 1; i <= UINT16_MAX; i++) {
		id = open_session();
		assert_int_equal(id, i);
		session_becomes(id, REEF_SESSION_EXPIRED);
		session_becomes(id, REEF_SESSION_FENCED);
		session_becomes(id, REEF_SESSION_RECOVERED);
	}
	assert_int_equal(open_session(), 1); /* 0 is none */
}

static void state_users_with_sessions_stay(void **state)
{
	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	refuse(-EEXIST, RECORD(.type = REEF_RECORD_USER_ADD, .id = 2,
			       .name = text("ada")));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1,
			       .user = 2));
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1, .user = 1));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_USER_REMOVE, .id = 1));
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_USER_ERA, .id = 1, .era = 2));
	must(RECORD(.type = REEF_RECORD_USER_ERA, .id = 1, .era = 1));
	session_becomes(1, REEF_SESSION_EXPIRED);
	session_becomes(1, REEF_SESSION_FENCED);
	session_becomes(1, REEF_SESSION_RECOVERED);
	must(RECORD(.type = REEF_RECORD_USER_REMOVE, .id = 1));
	assert_int_equal(reef_state_find_user(the, text("ada")), 0);
}

static void bind(const char *name, uint64_t value)
{
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1, .value = value,
		    .name = text(name)));
}

static void state_names_change_only_if_unchanged(void **state)
{
	const struct reef_name *name;
	uint64_t generation;

	add_space(1, "s", MIB);
	bind("x", 5);
	name = reef_state_name(the, 1, text("x"));
	assert_int_equal(name->value, 5);
	generation = name->generation;
	refuse(-EEXIST, RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1,
			       .name = text("x")));
	refuse(-ESTALE,
	       RECORD(.type = REEF_RECORD_NAME_REPLACE, .space = 1,
		      .generation = generation + 1, .name = text("x")));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_NAME_REPLACE, .space = 1,
			       .generation = generation, .name = text("y")));
	must(RECORD(.type = REEF_RECORD_NAME_REPLACE, .space = 1, .value = 6,
		    .generation = generation, .name = text("x")));
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_NAME_UNBIND, .space = 1,
			       .generation = generation, .name = text("x")));
	must(RECORD(.type = REEF_RECORD_NAME_UNBIND, .space = 1,
		    .name = text("x")));
	assert_null(reef_state_name(the, 1, text("x")));
	bind("x", 7);
	name = reef_state_name(the, 1, text("x"));
	assert_true(name->generation > generation + 1);
}

static void state_names_are_listed_by_prefix(void **state)
{
	const struct reef_name *name = NULL;
	struct reef_text after;
	char label[16];
	int i, count = 0;

	add_space(1, "s", MIB);
	add_space(2, "t", MIB);
	/* Enough for many chunks, in no order. */
	for (i = 0; i < 1000; i++) {
		snprintf(label, sizeof(label), "k%03d", i * 7 % 1000);
		bind(label, (uint64_t)i);
	}
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 2,
		    .name = text("k12")));
	do {
		if (name)
			after = (struct reef_text){name->text, name->size};
		name = reef_state_name_next(the, 1, text("k12"),
					    name ? &after : NULL);
		if (name) {
			snprintf(label, sizeof(label), "k12%d", count++);
			assert_string_equal(name->text, label);
		}
	} while (name);
	assert_int_equal(count, 10);
	assert_null(reef_state_name_next(the, 1, text("x"), NULL));
	after = text("a");
	name = reef_state_name_next(the, 1, text("k9"), &after);
	assert_string_equal(name->text, "k900");
	must(RECORD(.type = REEF_RECORD_SPACE_REMOVE, .id = 1));
	assert_null(reef_state_name_next(the, 1, text(""), NULL));
	assert_non_null(reef_state_name(the, 2, text("k12")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(state_epochs_rise_by_one),
		TEST(state_without_a_pool_takes_nothing),
		TEST(state_dead_node_loses_its_extents),
		TEST(state_node_that_keeps_is_away_and_back_in_one),
		TEST(state_drain_ends_with_the_last_extent),
		TEST(state_node_that_has_not_come_is_dead),
		TEST(state_bounds_are_kept),
		TEST(state_limits_are_settings),
		TEST(state_request_counts_once_and_is_remembered),
		TEST(state_session_with_uses_is_not_recovered),
		TEST(state_stuck_use_outlives_its_session),
		TEST(state_reclaim_epochs_are_never_given_twice),
		TEST(state_large_extents_take_several_ordinals),
		TEST(state_ordinals_are_used_again_at_last),
		TEST(state_numbers_end_with_a_refusal),
		TEST(state_generations_of_a_slot_wrap),
		TEST(state_extent_epoch_does_not_wrap),
		TEST(state_session_process_is_kept_until_it_ends),
		TEST(state_lost_extents_forgotten_count_no_more),
		TEST(state_texts_are_checked),
		TEST(state_sessions_end_step_by_step),
		TEST(state_full_of_sessions_says_so),
		TEST(state_users_with_sessions_stay),
		TEST(state_names_change_only_if_unchanged),
		TEST(state_names_are_listed_by_prefix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
