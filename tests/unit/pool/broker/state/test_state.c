/* test_state.c - what records do, what they may not, and that the same records
 * always give the same state. */
#include "base/checksum.h"
#include "fixture/random_record.h"
#include "fixture/seeds.h"
#include "fixture/store_wrapper.h"
#include "fixture/units.h"
#include "pool/broker/journal/journal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct reef_state *the;

static struct reef_text text(const char *bytes)
{
	return (struct reef_text){bytes, (uint16_t)strlen(bytes)};
}

#define RECORD(...) (&(struct reef_record){__VA_ARGS__})

static int apply(const struct reef_record *record)
{
	return reef_state_apply(the, record);
}

static void must(const struct reef_record *record)
{
	assert_int_equal(reef_state_check(the, record), 0);
	assert_int_equal(apply(record), 0);
}

static uint64_t hash_of(const struct reef_state *state)
{
	uint8_t *bytes;
	uint64_t hash;
	size_t size;

	assert_int_equal(reef_state_encode(state, &bytes, &size), 0);
	hash = reef_hash(bytes, size, 0);
	free(bytes);
	return hash;
}

/* It is refused so, and nothing changes. */
static void refuse(int code, const struct reef_record *record)
{
	uint64_t before = hash_of(the);

	assert_int_equal(reef_state_check(the, record), code);
	assert_int_equal(apply(record), code);
	assert_true(hash_of(the) == before);
}

static int set_up(void **state)
{
	if (reef_state_create(&the))
		return -1;
	return apply(RECORD(.type = REEF_RECORD_POOL, .value = 77));
}

static int tear_down(void **state)
{
	reef_state_destroy(the);
	the = NULL;
	return 0;
}

static void add_node(uint32_t id, const char *name, uint64_t capacity)
{
	must(RECORD(.type = REEF_RECORD_NODE_ADD, .id = id, .incarnation = 1,
		    .size = capacity, .name = text(name),
		    .addresses = text("tcp://127.0.0.1:1")));
}

static void add_space(uint32_t id, const char *name, uint64_t quota)
{
	must(RECORD(.type = REEF_RECORD_SPACE_ADD, .id = id,
		    .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		    .size = quota, .name = text(name)));
}

static void add_extent(uint32_t number, uint32_t space, uint32_t ordinal,
		       uint32_t node, uint64_t size)
{
	must(RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = number,
		    .space = space, .ordinal = ordinal, .node = node,
		    .size = size));
}

static void node_becomes(uint32_t id, uint8_t next, uint64_t epoch)
{
	must(RECORD(.type = REEF_RECORD_NODE_STATE, .id = id, .state = next,
		    .value = epoch));
}

static void session_becomes(uint32_t id, uint8_t next)
{
	must(RECORD(.type = REEF_RECORD_SESSION_STATE, .session = id,
		    .state = next));
}

/* --- what records do --- */

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

	assert_int_equal(reef_state_pick_session(the, &id), 0);
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

static void state_extent_epoch_does_not_wrap(void **state)
{
	/* ordinal, node, target, epoch */
	static const uint32_t low[] = {0, 1, 0, 1};
	static const uint32_t high[] = {0, 1, 0, UINT32_MAX - 1};
	static const uint32_t over[] = {0, 1, 0, UINT32_MAX};
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

	assert_int_equal(reef_state_pick_session(the, &first), 0);
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
	assert_int_equal(reef_state_pick_session(the, &second), 0);
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
	assert_int_equal(reef_state_pick_session(the, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	assert_int_equal(reef_state_pick_session(the, &id), 0);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = id));
	assert_int_equal(reef_state_pick_session(the, &id), -ENOSPC);
	refuse(-ENOSPC, RECORD(.type = REEF_RECORD_SESSION_OPEN,
			       .session = reef_session_id(2, 1)));
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

/* --- the same records, the same state --- */

/* Through the journal's bytes. */
static int replay(struct reef_state *state, const struct reef_record *record)
{
	uint8_t bytes[512];
	size_t size;

	assert_true(reef_record_size_max(record) <= sizeof(bytes));
	size = reef_record_encode(record, bytes);
	assert_true(size <= reef_record_size_max(record));
	return reef_state_replay(state, record->type, bytes, size);
}

/* What is counted must be what is there. */
static void check_counts(const struct reef_state *state)
{
	const struct reef_state_extent *extents;
	const struct reef_state_node *nodes;
	const struct reef_state_space *space;
	size_t extent_count, node_count, i, j;
	uint64_t used;

	extents = reef_state_extents(state, &extent_count);
	nodes = reef_state_nodes(state, &node_count);
	for (i = 0; i < node_count; i++) {
		used = 0;
		for (j = 0; j < extent_count; j++)
			if (extents[j].node == nodes[i].id ||
			    extents[j].target == nodes[i].id)
				used += extents[j].size;
		assert_int_equal(used, nodes[i].used);
		assert_true(used <= nodes[i].capacity);
		assert_true(used == 0 || nodes[i].state < REEF_NODE_DRAINED);
	}
	for (j = 0; j < extent_count; j++) {
		space = reef_state_space(state, extents[j].space);
		assert_non_null(space);
		assert_true(space->used <= space->quota);
		assert_int_equal(space->by_ordinal[extents[j].ordinal],
				 extents[j].number);
		assert_int_equal(extents[j].node == 0,
				 extents[j].state == REEF_EXTENT_LOST);
	}
}

static struct reef_state *copy_of(const struct reef_state *state)
{
	struct reef_state *copy;
	uint8_t *bytes;
	size_t size;

	assert_int_equal(reef_state_encode(state, &bytes, &size), 0);
	assert_int_equal(reef_state_decode(bytes, size, &copy), 0);
	free(bytes);
	return copy;
}

static void one_history(uint64_t seed, uint32_t *applied)
{
	struct random_record random;
	struct reef_random chance;
	struct reef_state *twin, *copy;
	uint32_t i;
	int rc;

	reef_random_init(&chance, seed);
	assert_int_equal(reef_state_create(&twin), 0);
	for (i = 0; i < 150; i++) {
		random_record(&chance, the, &random);
		rc = apply(&random.record);
		if (rc)
			continue;
		applied[random.record.type]++;
		/* A restart with a snapshot, in the twin's life. */
		if (reef_random_chance(&chance, 1, 20)) {
			copy = copy_of(twin);
			assert_true(hash_of(copy) == hash_of(twin));
			reef_state_destroy(twin);
			twin = copy;
		}
		assert_int_equal(replay(twin, &random.record), 0);
		assert_true(hash_of(twin) == hash_of(the));
	}
	check_counts(the);
	reef_state_destroy(twin);
}

static void state_replay_gives_the_same_state(void **state)
{
	uint32_t applied[REEF_RECORD_TYPES] = {0};
	uint64_t seed;
	int type;

	for (seed = seeds_first(); seeds_has(seed, 400); seed++) {
		reef_state_destroy(the);
		assert_int_equal(reef_state_create(&the), 0);
		one_history(seed, applied);
	}
	/* The histories tell of everything. */
	for (type = 1; type < REEF_RECORD_TYPES; type++)
		if (applied[type] < 10)
			fail_msg("type %d was applied %u times", type,
				 applied[type]);
}

static void state_misfit_in_a_journal_is_corruption(void **state)
{
	uint8_t bytes[64] = {0};
	uint64_t before = hash_of(the);

	assert_int_equal(
		replay(the, RECORD(.type = REEF_RECORD_BROKER, .value = 9)),
		-REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_BROKER, bytes, 7),
			 -REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_BROKER, bytes, 9),
			 -REEF_ECORRUPT);
	assert_int_equal(reef_state_replay(the, REEF_RECORD_TYPES, bytes, 8),
			 -REEF_EVERSION);
	assert_int_equal(reef_state_replay(the, 0, bytes, 8), -REEF_EVERSION);
	assert_true(hash_of(the) == before);
}

/* A text that says it is longer than what is there, and so on: each prefix of
 * every record, and each with one byte more, is refused. */
static void state_record_of_another_size_is_refused(void **state)
{
	struct reef_record record = {.name = text("name"),
				     .addresses = text("addresses")};
	struct reef_record decoded;
	uint8_t bytes[256];
	size_t size, cut;

	for (record.type = 1; record.type < REEF_RECORD_TYPES; record.type++) {
		size = reef_record_encode(&record, bytes);
		bytes[size] = 0;
		for (cut = 0; cut <= size + 1; cut++)
			assert_int_equal(reef_record_decode(record.type, bytes,
							    cut, &decoded),
					 cut == size ? 0 : -REEF_ECORRUPT);
	}
}

/* Each byte changed in turn: refused, or a state that holds together and says
 * of itself just these bytes. */
static void state_damaged_snapshot_is_refused_or_whole(void **state)
{
	struct random_record random;
	struct reef_random chance;
	struct reef_state *copy;
	uint8_t *bytes, *again;
	size_t size, again_size, at;
	uint32_t refused = 0;
	int i, rc;

	reef_random_init(&chance, 3);
	for (i = 0; i < 300; i++) {
		random_record(&chance, the, &random);
		apply(&random.record);
	}
	assert_int_equal(reef_state_encode(the, &bytes, &size), 0);
	for (at = 0; at < size; at++) {
		bytes[at] ^= (uint8_t)(1u << at % 8);
		rc = reef_state_decode(bytes, size, &copy);
		if (rc == 0) {
			check_counts(copy);
			assert_int_equal(
				reef_state_encode(copy, &again, &again_size),
				0);
			assert_int_equal(again_size, size);
			assert_memory_equal(again, bytes, size);
			free(again);
			reef_state_destroy(copy);
		} else {
			assert_true(rc == -REEF_ECORRUPT ||
				    rc == -REEF_EVERSION);
			refused++;
		}
		bytes[at] ^= (uint8_t)(1u << at % 8);
		assert_int_not_equal(reef_state_decode(bytes, at, &copy), 0);
	}
	assert_true(refused > size / 4);
	free(bytes);
}

/* --- journal and state together --- */

struct story {
	struct reef_random random;
	struct reef_store *disk;
	struct wrapper wrapper;
	struct reef_journal *journal;
	uint64_t history[1024]; /* hashes after so many records */
	size_t appended, acknowledged;
};

static int story_snapshot(void *context, const void *bytes, size_t size)
{
	reef_state_destroy(the);
	the = NULL;
	return reef_state_decode(bytes, size, &the);
}

static int story_record(void *context, uint64_t sequence, uint16_t type,
			const void *bytes, size_t size)
{
	return reef_state_replay(the, type, bytes, size);
}

/* -1: what came back is no prefix that holds what was acknowledged. */
static int story_open(struct story *story)
{
	struct reef_journal_reader reader = {story_snapshot, story_record,
					     story};
	struct reef_journal_options options = {
		.sync_inline = true, .segment_size = 500, .salt = 1};
	size_t at;
	int rc;

	reef_state_destroy(the);
	assert_int_equal(reef_state_create(&the), 0);
	rc = reef_journal_open(&story->wrapper.base, NULL, &options, &reader,
			       &story->journal);
	if (rc)
		return rc == -EIO ? 0 : -1;
	for (at = story->acknowledged; at <= story->appended; at++)
		if (story->history[at] == hash_of(the))
			break;
	if (at > story->appended)
		return -1;
	story->appended = story->acknowledged = at;
	return 0;
}

static int story_append(struct story *story, bool early)
{
	struct random_record random;
	uint8_t bytes[512];
	uint64_t sequence;
	size_t size;
	int rc;

	/* As a broker does: check, append, apply, wait, answer. */
	do {
		random_record(&story->random, the, &random);
	} while (reef_state_check(the, &random.record));
	size = reef_record_encode(&random.record, bytes);
	rc = reef_journal_append(story->journal, random.record.type, bytes,
				 size, &sequence);
	if (rc)
		return rc;
	assert_int_equal(apply(&random.record), 0);
	story->history[++story->appended] = hash_of(the);
	if (reef_random_chance(&story->random, 1, 10)) {
		uint8_t *image;

		assert_int_equal(reef_state_encode(the, &image, &size), 0);
		rc = reef_journal_snapshot(story->journal, image, size);
		free(image);
		if (rc && rc != -EBUSY)
			return rc;
	}
	if (!early && reef_random_chance(&story->random, 1, 2))
		return 0;
	rc = early ? 0 : reef_journal_wait(story->journal, sequence);
	if (rc == 0)
		story->acknowledged = story->appended;
	return rc;
}

static int tell(uint64_t seed, enum lie lie, bool early)
{
	static struct story story;
	int life, i, rc = 0;

	memset(&story, 0, sizeof(story));
	reef_random_init(&story.random, seed);
	assert_int_equal(reef_store_open_memory(&story.random, &story.disk), 0);
	wrapper_init(&story.wrapper, story.disk);
	story.wrapper.lie = lie;
	reef_state_destroy(the);
	assert_int_equal(reef_state_create(&the), 0);
	story.history[0] = hash_of(the);
	for (life = 0; life < 6 && rc == 0; life++) {
		reef_store_fail_after(story.disk,
				      random_below(&story.random, 80));
		rc = story_open(&story);
		for (i = 0; rc == 0 && story.journal && i < 15; i++)
			if (story_append(&story, early))
				break;
		reef_store_crash(story.disk);
		reef_journal_close(story.journal);
		story.journal = NULL;
	}
	reef_store_destroy(story.disk);
	return rc;
}

static void state_crash_comes_back_to_what_was_answered(void **state)
{
	uint64_t seed, count = seeds_of(1500, 50000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		if (tell(seed, LIE_NONE, false))
			fail_msg("seed %llu", (unsigned long long)seed);
}

static void state_mutants_are_found(void **state)
{
	bool found;
	int lie;

	for (lie = LIE_NONE; lie < LIE_COUNT; lie++) {
		uint64_t seed;

		/* Without a lie of the disk: answered before it is synced. */
		found = false;
		for (seed = seeds_first(); seeds_has(seed, 200) && !found;
		     seed++)
			found = tell(seed, (enum lie)lie, lie == LIE_NONE);
		if (!found)
			fail_msg("mutant %d lives", lie);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(state_epochs_rise_by_one),
		TEST(state_without_a_pool_takes_nothing),
		TEST(state_dead_node_loses_its_extents),
		TEST(state_drain_ends_with_the_last_extent),
		TEST(state_bounds_are_kept),
		TEST(state_limits_are_settings),
		TEST(state_request_counts_once_and_is_remembered),
		TEST(state_session_with_uses_is_not_recovered),
		TEST(state_reclaim_epochs_are_never_given_twice),
		TEST(state_large_extents_take_several_ordinals),
		TEST(state_extent_epoch_does_not_wrap),
		TEST(state_texts_are_checked),
		TEST(state_sessions_end_step_by_step),
		TEST(state_full_of_sessions_says_so),
		TEST(state_users_with_sessions_stay),
		TEST(state_names_change_only_if_unchanged),
		TEST(state_names_are_listed_by_prefix),
		TEST(state_replay_gives_the_same_state),
		TEST(state_misfit_in_a_journal_is_corruption),
		TEST(state_record_of_another_size_is_refused),
		TEST(state_damaged_snapshot_is_refused_or_whole),
		TEST(state_crash_comes_back_to_what_was_answered),
		TEST(state_mutants_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
