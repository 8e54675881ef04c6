/* test_client_slots.c - sessions that come, leave something in a space and go,
 * many more than there are slots: nobody is told that there is none. */
#include "fixture/pool_world.h"
#include "pool/rpc.h"

#include <errno.h>

#define COMERS 8
#define SLOTS 12
#define SESSIONS seeds_of(1500, 50000)

static int set_limit(struct member *member, const char *name, uint64_t value)
{
	struct reef_body body = {
		.ask.setting = {.name = reef_text_of(name), .value = value},
	};

	return reef_client_ask(member->reef, REEF_POOL_SETTING, true, &body,
			       NULL);
}

/* Limits the slots, makes the user whose the others are (for the owner there
 * are slots beside these), and has their space open until all have ended. */
static int stays(struct member *member)
{
	struct reef_body body = {.ask.user_add.name = reef_text_of("ada")};
	struct pool *pool = member->pool;
	struct reef_space *space;
	uint32_t i, ended;

	TRY(set_limit(member, pool->note[3] ? "user_sessions" : "sessions_max",
		      SLOTS));
	TRY(reef_client_ask(member->reef, REEF_POOL_USER_ADD, true, &body,
			    NULL));
	pool->note[0] = 1;
	while (!pool->note[2])
		TRY(reef_sleep(MILLISECOND));
	TRY(member_space(member, &space));
	do {
		TRY(reef_sleep(10 * MILLISECOND));
		for (i = 1, ended = 0; i < pool->count; i++)
			ended += pool->members[i].result != 1;
	} while (ended < pool->count - 1);
	return 0;
}

/* Be a session that leaves a block behind. */
static int come_and_go(struct member *member)
{
	struct reef_space *space;
	uint64_t block, value = 1;

	TRY(member_join(member));
	TRY(member_space(member, &space));
	member->pool->note[2] = 1;
	TRY(reef_alloc(space, 100, &block));
	TRY(reef_write(member->reef, block, &value, sizeof(value)));
	member_leave(member);
	return 0;
}

static int comes_often(struct member *member)
{
	struct pool *pool = member->pool;

	while (!pool->note[0])
		TRY(reef_sleep(MILLISECOND));
	member_leave(member);
	member->credential = (struct reef_credential){.user = 1};
	TRY(reef_key_derive_user(&pool->key, 1, 0, &member->credential.key));
	while (pool->note[1]++ < SESSIONS)
		TRY(come_and_go(member));
	return 0;
}

/* of_user: it is their own limit that they meet. */
static void come_and_go_often(bool of_user)
{
	struct pool pool = {.note[3] = of_user};

	pool_start(&pool, seeds_first());
	pool_add(&pool, stays);
	for (int i = 0; i < COMERS; i++)
		pool_add(&pool, comes_often);
	pool_finish(&pool);
	assert_true(pool.note[1] >= SESSIONS);
}

static void client_slots_come_back_to_those_who_wait(void **state)
{
	come_and_go_often(false);
}

static void client_limit_lets_those_in_who_wait(void **state)
{
	come_and_go_often(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_slots_come_back_to_those_who_wait),
		cmocka_unit_test(client_limit_lets_those_in_who_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
