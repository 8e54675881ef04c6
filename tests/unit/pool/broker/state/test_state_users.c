/* test_state_users.c - what users may have, and how they and their credentials
 * go. */
#include "fixture/one_state.h"
#include "fixture/units.h"

#include <errno.h>

static void limit(enum reef_limit limit, uint64_t value)
{
	must(RECORD(.type = REEF_RECORD_USER_LIMIT, .id = 1,
		    .kind = (uint8_t)limit, .value = value));
}

static uint64_t use(enum reef_limit limit)
{
	return reef_state_user(the, 1)->uses[limit];
}

static void user_space(uint32_t id, const char *name, int rc)
{
	const struct reef_record *record =
		RECORD(.type = REEF_RECORD_SPACE_ADD, .id = id,
		       .kind = REEF_SPACE_SHARED, .keeping = REEF_KEEPING_KEPT,
		       .size = 1000 * MIB, .user = 1, .name = text(name));

	if (rc)
		refuse(rc, record);
	else
		must(record);
}

static void state_limits_of_users_are_kept(void **state)
{
	add_node(1, "a", 100 * MIB);
	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	refuse(-EINVAL, RECORD(.type = REEF_RECORD_USER_LIMIT, .id = 1,
			       .kind = REEF_LIMIT_COUNT, .value = 1));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_USER_LIMIT, .id = 2));
	limit(REEF_LIMIT_SESSIONS, 1);
	limit(REEF_LIMIT_SPACES, 2);
	limit(REEF_LIMIT_NAMES, 1);
	limit(REEF_LIMIT_EXTENTS, 2);
	limit(REEF_LIMIT_BYTES, 3 * MIB);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1, .user = 1));
	refuse(-EDQUOT, RECORD(.type = REEF_RECORD_SESSION_OPEN,
			       .session = reef_session_id(1, 1), .user = 1));
	user_space(1, "s", 0);
	user_space(2, "t", 0);
	user_space(3, "u", -EDQUOT);
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1, .value = 1,
		    .name = text("n")));
	refuse(-EDQUOT, RECORD(.type = REEF_RECORD_NAME_BIND, .space = 2,
			       .value = 1, .name = text("n")));
	/* Over all their spaces. */
	add_extent(1, 1, 0, 1, 2 * MIB);
	refuse(-EDQUOT, RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 2,
			       .space = 2, .node = 1, .size = 2 * MIB));
	add_extent(2, 2, 0, 1, MIB);
	assert_int_equal(use(REEF_LIMIT_BYTES), 3 * MIB);
	limit(REEF_LIMIT_BYTES, REEF_NO_LIMIT);
	refuse(-EDQUOT,
	       RECORD(.type = REEF_RECORD_EXTENT_ADD, .id = 3, .space = 2,
		      .ordinal = 1, .node = 1, .size = MIB));
	/* What goes makes room; what is lost counts until it is forgotten. */
	must(RECORD(.type = REEF_RECORD_EXTENT_LOST, .id = 2, .era = 2));
	assert_int_equal(use(REEF_LIMIT_EXTENTS), 2);
	must(RECORD(.type = REEF_RECORD_SPACE_FORGET, .id = 2));
	assert_int_equal(use(REEF_LIMIT_EXTENTS), 1);
	must(RECORD(.type = REEF_RECORD_SPACE_REMOVE, .id = 1));
	assert_int_equal(use(REEF_LIMIT_BYTES), 0);
	assert_int_equal(use(REEF_LIMIT_NAMES), 0);
	assert_int_equal(use(REEF_LIMIT_SPACES), 1);
	limit(REEF_LIMIT_SPACES, 0); /* as the setting says */
	assert_int_equal(reef_state_limit(the, 1, REEF_LIMIT_SPACES), 1024);
	assert_true(reef_state_limit(the, 0, REEF_LIMIT_SPACES) ==
		    REEF_NO_LIMIT);
}

/* A user who is let into a space of the owner. */
static void state_names_of_users_leave_the_owner_some(void **state)
{
	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	add_space(1, "s", MIB);
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1, .user = 1));
	limit(REEF_LIMIT_NAMES, 1);
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1, .value = 1,
		    .name = text("a"), .origin = 1, .request = 1));
	refuse(-EDQUOT,
	       RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1, .value = 1,
		      .name = text("b"), .origin = 1, .request = 2));
	must(RECORD(.type = REEF_RECORD_NAME_BIND, .space = 1, .value = 1,
		    .name = text("b")));
}

static void state_user_expelled_leaves_all_to_the_owner(void **state)
{
	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1, .user = 1));
	user_space(1, "s", 0);
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_USER_EXPEL, .id = 2));
	refuse(-ENOENT, RECORD(.type = REEF_RECORD_USER_EXPEL));
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_USER_EXPEL, .id = 1));
	session_becomes(1, REEF_SESSION_EXPIRED);
	refuse(-EBUSY, RECORD(.type = REEF_RECORD_USER_REMOVE, .id = 1));
	must(RECORD(.type = REEF_RECORD_USER_EXPEL, .id = 1));
	assert_null(reef_state_user(the, 1));
	assert_int_equal(reef_state_space(the, 1)->user, 0);
	assert_int_equal(reef_state_session(the, 1)->user, 0);
	session_becomes(1, REEF_SESSION_FENCED);
	session_becomes(1, REEF_SESSION_RECOVERED);
}

static void state_new_era_outdates_sessions(void **state)
{
	struct reef_state_summary summary;

	must(RECORD(.type = REEF_RECORD_USER_ADD, .id = 1,
		    .name = text("ada")));
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN, .session = 1, .user = 1));
	must(RECORD(.type = REEF_RECORD_SESSION_OPEN,
		    .session = reef_session_id(1, 1)));
	must(RECORD(.type = REEF_RECORD_USER_ERA, .id = 1, .era = 1));
	assert_true(reef_state_session(the, 1)->outdated);
	assert_false(reef_state_session(the, reef_session_id(1, 1))->outdated);
	/* The owner has one, too. */
	refuse(-ESTALE, RECORD(.type = REEF_RECORD_USER_ERA, .era = 2));
	must(RECORD(.type = REEF_RECORD_USER_ERA, .era = 1));
	assert_true(reef_state_session(the, reef_session_id(1, 1))->outdated);
	reef_state_summary(the, &summary);
	assert_int_equal(summary.owner_era, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(state_limits_of_users_are_kept),
		TEST(state_names_of_users_leave_the_owner_some),
		TEST(state_user_expelled_leaves_all_to_the_owner),
		TEST(state_new_era_outdates_sessions),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
