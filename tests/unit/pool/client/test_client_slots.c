/* test_client_slots.c - sessions that come, leave something in a space and go,
 * many more than there are slots: nobody is told that there is none. */
#include "fixture/pool_world.h"
#include "pool/rpc.h"

#include <errno.h>

#define COMERS 8
#define SLOTS 12
#define SESSIONS seeds_of(3000, 100000)

static int set_limit(struct member *member, const char *name, uint64_t value)
{
	struct reef_body body = {
		.ask.setting = {.name = reef_text_of(name), .value = value},
	};

	return reef_client_ask(member->reef, REEF_POOL_SETTING, true, &body,
			       NULL);
}

/* Limits the slots, and has the space open until all others have ended. */
static int stays(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	uint32_t i, ended;

	TRY(set_limit(member, "sessions_max", SLOTS));
	TRY(member_space(member, &space));
	pool->note[0] = 1;
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
	while (pool->note[1]++ < SESSIONS)
		TRY(come_and_go(member));
	return 0;
}

static void client_slots_come_back_to_those_who_wait(void **state)
{
	struct pool pool = {0};

	pool_start(&pool, seeds_first());
	pool_add(&pool, stays);
	for (int i = 0; i < COMERS; i++)
		pool_add(&pool, comes_often);
	pool_finish(&pool);
	assert_true(pool.note[1] >= SESSIONS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_slots_come_back_to_those_who_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
