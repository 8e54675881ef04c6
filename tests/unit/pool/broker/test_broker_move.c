/* test_broker_move.c - extents move while they are written to, and whoever
 * takes part dies, or goes away, at any moment.
 *
 * A writer raises the numbers that stub nodes lend instead of memory, wherever
 * its key opens them. Nothing it did may be missing in the end, unless it was
 * on a node that died. */
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"

#include <errno.h>
#include <stdlib.h>

#define EXTENTS 12

struct story {
	struct stub_pool pool;
	uint32_t space;
	uint32_t other; /* one that comes and goes; 0: it went */
	struct reef_row_extent rows[64];
	uint32_t found;
	uint64_t written[64]; /* by ordinal */
	bool may_be_lost[64];
	uint32_t steps, kills; /* of stubs, at most */
	bool faults;
	/* What happened. */
	uint32_t moved, lost, writes, refused;
};

static int refresh(struct story *story)
{
	return driver_extents(&story->pool.owner, story->space, story->rows, 64,
			      &story->found);
}

/* One write; 1: the key does not open it (any more). */
static int write_once(struct story *story, uint32_t i)
{
	struct reef_row_extent *row = &story->rows[i];
	struct stub *stub = stub_pool_stub(&story->pool, row->node);
	struct stub_extent *extent;

	if (row->state != REEF_EXTENT_LIVE || !row->keys[0] || !stub)
		return 1;
	extent = stub_find(stub->life, row->number);
	if (!extent || extent->key != row->keys[0])
		return 1;
	extent->value++;
	story->written[i]++;
	story->writes++;
	return 0;
}

static int make_all(struct story *story)
{
	struct driver *owner = &story->pool.owner;

	TRY(driver_open(owner, "a", REEF_POOL_CREATE, 0, 0, &story->space));
	for (int i = 0; i < EXTENTS; i++)
		TRY(driver_add(owner, story->space, MIB, NULL));
	TRY(refresh(story));
	WANT(story->found == EXTENTS);
	return 0;
}

static int drain(struct story *story, uint32_t node, bool stop)
{
	struct reef_body body = {.ask.node_drain = {node, stop}};

	return driver_do(&story->pool.owner, REEF_POOL_NODE_DRAIN, &body, NULL);
}

static int state_of(struct story *story, uint32_t node, uint8_t *state,
		    uint32_t *count)
{
	struct reef_row row = {0};
	int rc = driver_look(&story->pool.owner, REEF_ROW_NODE, node, &row);

	*state = row.node.state;
	*count = row.node.extents;
	return rc;
}

/* Write on until every one is LIVE or LOST, and look at all of it. */
static int settle(struct story *story)
{
	uint32_t busy = 1;

	for (uint32_t tries = 0; busy; tries++) {
		WANT(tries < 5000);
		busy = 0;
		TRY(reef_sleep(MILLISECOND));
		TRY(refresh(story));
		for (uint32_t i = 0; i < story->found; i++)
			busy += story->rows[i].state != REEF_EXTENT_LOST &&
				write_once(story, i);
	}
	return 0;
}

static int check_all(struct story *story)
{
	struct stub_pool *pool = &story->pool;
	uint32_t copies;

	TRY(settle(story));
	WANT(story->found == EXTENTS);
	story->lost = 0;
	for (uint32_t i = 0; i < EXTENTS; i++) {
		struct reef_row_extent *row = &story->rows[i];

		story->moved += row->epoch > 1;
		if (row->state == REEF_EXTENT_LOST) {
			story->lost++;
			WANT(story->may_be_lost[i]);
			continue;
		}
		WANT(stub_pool_behind(pool, row->keys[0])->value ==
		     story->written[i]);
	}
	/* What was left behind goes. */
	do {
		copies = 0;
		TRY(reef_sleep(MILLISECOND));
		for (uint32_t i = 0; i < pool->stubs_count; i++)
			copies += pool->stubs[i].life->count;
	} while (copies != EXTENTS - story->lost);
	return 0;
}

/* --- one drain --- */

static int drains(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	uint32_t count, last = UINT32_MAX, id;
	uint8_t state = 0;

	TRY(stub_pool_ready(pool, 3));
	TRY(make_all(story));
	id = pool->stubs[0].life->id;
	TRY(drain(story, id, false));
	while (state != REEF_NODE_DRAINED) {
		for (uint32_t i = 0; i < story->found; i++)
			if (write_once(story, i))
				TRY(refresh(story));
		TRY(state_of(story, id, &state, &count));
		WANT(count <= last &&
		     (count == 0) >= (state == REEF_NODE_DRAINED));
		last = count;
		TRY(reef_sleep(100000));
	}
	TRY(check_all(story));
	WANT(pool->stubs[0].life->count == 0 && story->lost == 0);
	/* It can go once it has left, and comes back if it has not. */
	WANT(driver_do(&pool->owner, REEF_POOL_NODE_REMOVE,
		       &(struct reef_body){.ask.node_remove.node = id},
		       NULL) == -EBUSY);
	TRY(drain(story, id, true));
	TRY(state_of(story, id, &state, &count));
	WANT(state == REEF_NODE_OK);
	return 0;
}

static void broker_move_drain_loses_no_write(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 50); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, drains);
		for (int i = 0; i < 3; i++)
			stub_pool_add(&story.pool, 64 * MIB);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
		assert_true(story.moved > 0);
	}
}

/* No room: nothing is lost, it says why, and goes on when there is some. */
static int has_no_room(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	struct reef_body body = {0};
	struct reef_answer answer = {0};
	uint32_t count, id;
	uint8_t state;
	bool said = false;
	struct reef_cursor_in in;
	struct reef_row row;

	TRY(stub_pool_ready(pool, 2));
	TRY(make_all(story));
	id = pool->stubs[0].life->id;
	TRY(drain(story, id, false));
	TRY(reef_sleep(2 * SECOND));
	TRY(state_of(story, id, &state, &count));
	WANT(state == REEF_NODE_DRAINING && count > 0);
	TRY(driver_ask(&pool->owner, REEF_POOL_STATUS, &body, &answer));
	in = (struct reef_cursor_in){answer.body.rows, answer.body.rows_size,
				     false};
	while (reef_row_decode(&in, &row) > 0)
		said |= row.event.text.size > 40 &&
			memmem(row.event.text.bytes, row.event.text.size,
			       "no node has room", 16);
	reef_answer_free(&answer);
	WANT(said);
	for (uint32_t i = 0; i < story->found; i++) {
		if (write_once(story, i))
			TRY(refresh(story));
	}
	TRY(check_all(story));
	stub_pool_add(pool, 64 * MIB);
	while (state != REEF_NODE_DRAINED) {
		TRY(reef_sleep(MILLISECOND));
		TRY(state_of(story, id, &state, &count));
	}
	return check_all(story);
}

static void broker_move_without_room_stays_draining(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, has_no_room);
		for (int i = 0; i < 2; i++)
			stub_pool_add(&story.pool, 8 * MIB);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
	}
}

/* What was moved somewhere, and is not there any more, is lost, as what never
 * moved is: it had contents, and is not made anew. */
static int forgets(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	uint32_t count, id;
	uint8_t state = 0;

	TRY(stub_pool_ready(pool, 2));
	TRY(make_all(story));
	id = pool->stubs[0].life->id;
	TRY(drain(story, id, false));
	while (state != REEF_NODE_DRAINED) {
		TRY(reef_sleep(MILLISECOND));
		TRY(state_of(story, id, &state, &count));
	}
	pool->stubs[1].forgets = true;
	pool->stubs[1].rests = 1;
	TRY(reef_sleep(NODE_TTL / 2));
	TRY(stub_pool_ready(pool, 2));
	TRY(refresh(story));
	for (uint32_t i = 0; i < story->found; i++) {
		WANT(story->rows[i].state == REEF_EXTENT_LOST);
		story->lost += story->rows[i].state == REEF_EXTENT_LOST;
	}
	WANT(story->lost == EXTENTS);
	return 0;
}

static void broker_move_arrived_and_missing_is_lost(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 5); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, forgets);
		for (int i = 0; i < 2; i++)
			stub_pool_add(&story.pool, 64 * MIB);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
	}
}

/* Copied, but that was not journaled, and then the source dies: the copy goes,
 * for it is not known whether it is the last word. */
static int source_dies(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	struct stub_life *target;
	uint32_t here = UINT32_MAX;

	TRY(stub_pool_ready(pool, 3));
	TRY(make_all(story));
	target = pool->stubs[1].life;
	pool->stubs[1].ends_broker = true;
	TRY(drain(story, pool->stubs[0].life->id, false));
	while (pool->broker)
		TRY(reef_sleep(100000));
	stub_kill(&pool->stubs[0]);
	pool->stubs[1].ends_broker = false;
	TRY(reef_sim_host_restart(pool->broker_host, stub_pool_broker_main,
				  pool));
	do {
		TRY(reef_sleep(MILLISECOND));
		TRY(refresh(story));
		here = story->lost = 0;
		for (uint32_t i = 0; i < story->found; i++) {
			story->lost += story->rows[i].state == REEF_EXTENT_LOST;
			here += story->rows[i].node == target->id;
		}
	} while (!story->lost);
	WANT(story->lost + here == EXTENTS);
	while (target->count != here)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void broker_move_copy_of_what_died_goes(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, source_dies);
		for (int i = 0; i < 2; i++)
			stub_pool_add(&story.pool, 64 * MIB);
		/* More than half choose the broker that is started anew. */
		stub_pool_add(&story.pool, 4096);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
	}
}

/* A target that refuses: the move is taken back, and tried elsewhere. */
static int target_refuses(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	uint32_t count, id;
	uint8_t state = 0;

	TRY(stub_pool_ready(pool, 3));
	TRY(make_all(story));
	pool->stubs[1].refuses_pull = -ENOMEM;
	id = pool->stubs[0].life->id;
	TRY(drain(story, id, false));
	while (state != REEF_NODE_DRAINED) {
		for (uint32_t i = 0; i < story->found; i++)
			if (write_once(story, i))
				TRY(refresh(story));
		TRY(reef_sleep(MILLISECOND));
		TRY(state_of(story, id, &state, &count));
	}
	return check_all(story);
}

static void broker_move_target_that_refuses_another_is_asked(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, target_refuses);
		for (int i = 0; i < 3; i++)
			stub_pool_add(&story.pool, 64 * MIB);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
	}
}

/* --- revoked meanwhile --- */

/* Note that the memory behind every key that the rows tell was told of. */
static int note_told(struct story *story)
{
	struct stub_extent *extent;

	TRY(refresh(story));
	for (uint32_t i = 0; i < story->found; i++) {
		extent = stub_pool_behind(&story->pool, story->rows[i].keys[0]);
		if (story->rows[i].keys[0] && extent)
			extent->fresh = false;
	}
	return 0;
}

/* Whatever moves meanwhile, or is called back: what was told of is in other
 * memory afterwards. */
static int revoke(struct story *story)
{
	struct reef_body body = {.ask.space_revoke.space = story->space};
	struct reef_row_extent *row;
	struct stub_extent *extent;
	struct stub *stub;

	TRY(driver_do(&story->pool.owner, REEF_POOL_SPACE_REVOKE, &body, NULL));
	TRY(refresh(story));
	for (uint32_t i = 0; i < story->found; i++) {
		row = &story->rows[i];
		stub = stub_pool_stub(&story->pool, row->node);
		extent = stub && stub->life ? stub_find(stub->life, row->number)
					    : NULL;
		WANT(!extent || extent->epoch != row->epoch || extent->fresh);
	}
	return 0;
}

/* Moves that are called off again and again, while the space is revoked. */
static int revoked_on_the_way(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	bool moving = false;

	TRY(stub_pool_ready(pool, 2));
	TRY(make_all(story));
	TRY(note_told(story));
	pool->stubs[1].refuses_pull = -ENOMEM;
	TRY(drain(story, pool->stubs[0].life->id, false));
	while (!moving) {
		TRY(reef_sleep(MILLISECOND / 4));
		TRY(refresh(story));
		for (uint32_t i = 0; i < story->found; i++)
			moving |= story->rows[i].state == REEF_EXTENT_MOVING;
	}
	return revoke(story);
}

static void broker_move_called_off_is_revoked_all_the_same(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++) {
		struct story story = {0};

		stub_pool_start(&story.pool, seed, revoked_on_the_way);
		for (int i = 0; i < 2; i++)
			stub_pool_add(&story.pool, 64 * MIB);
		assert_int_equal(stub_pool_finish(&story.pool), 0);
	}
}

/* --- anything at any moment --- */

static int kill_stub(struct story *story, struct stub *stub)
{
	for (uint32_t i = 0; i < stub->life->count; i++)
		for (uint32_t j = 0; j < EXTENTS; j++)
			if (story->rows[j].number ==
			    stub->life->extents[i].number)
				story->may_be_lost[j] = true;
	story->kills--;
	return stub_kill(stub);
}

/* Beside the moves: extents are made and removed, keys changed, the broker
 * stands still. */
static int disturb(struct story *story, struct reef_random *random)
{
	struct stub_pool *pool = &story->pool;
	struct driver *owner = &pool->owner;
	struct reef_body body = {0};
	struct reef_row_extent row = {0};
	int rc;

	switch (reef_random_below(random, 6)) {
	case 0:
		reef_sim_host_pause(pool->broker_host);
		rc = reef_sleep(reef_random_below(random, 2 * NODE_TTL));
		reef_sim_host_resume(pool->broker_host);
		return rc;
	case 1:
		rc = note_told(story);
		return rc ? rc : revoke(story);
	case 2:
		body.ask.space_drop.space = story->other;
		if (!story->other)
			return 0;
		story->other = 0;
		return driver_do(owner, REEF_POOL_SPACE_DROP, &body, NULL);
	default:
		rc = driver_open(owner, "other", REEF_POOL_CREATE, 0, 0,
				 &story->other);
		if (rc == 0)
			rc = driver_add(owner, story->other, MIB, &row);
		if (rc)
			return rc == -ENOSPC ? 0 : rc;
		body.ask.extent_remove.space = story->other;
		body.ask.extent_remove.extent = row.number;
		if (reef_random_chance(random, 1, 2))
			rc = driver_do(owner, REEF_POOL_EXTENT_REMOVE, &body,
				       NULL);
		return rc;
	}
}

/* One of four at a time: more than half choose a broker that is started. */
static bool is_any_down(const struct stub_pool *pool)
{
	for (uint32_t i = 0; i < pool->stubs_count; i++)
		if (pool->stubs[i].killed)
			return true;
	return false;
}

static int fault(struct story *story, struct reef_random *random)
{
	struct stub_pool *pool = &story->pool;
	struct stub *stub =
		&pool->stubs[reef_random_below(random, pool->stubs_count)];
	uint32_t id = stub->life->id;
	int rc = 0;

	switch (reef_random_below(random, 10)) {
	case 0:
	case 1:
		return stub_pool_broker_restart(pool);
	case 2:
	case 3:
		if (!stub->rests)
			stub->rests = 4;
		return 0;
	case 4:
		if (story->kills && !stub->killed && !is_any_down(pool))
			return kill_stub(story, stub);
		if (stub->killed)
			rc = stub_restart(stub);
		stub->killed = false;
		return rc == -EBUSY ? 0 : rc;
	case 5:
	case 6:
		return disturb(story, random);
	default:
		if (!id)
			return 0;
		rc = drain(story, id, reef_random_chance(random, 1, 3));
		return rc == -EBUSY || rc == -ENOENT ? 0 : rc;
	}
}

static int goes_on(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	struct reef_random random =
		reef_random_split(reef_sim_random(pool->sim), 7);
	uint32_t i;

	TRY(stub_pool_ready(pool, 4));
	TRY(make_all(story));
	for (uint32_t step = 0; step < story->steps; step++) {
		i = (uint32_t)reef_random_below(&random, EXTENTS);
		if (write_once(story, i)) {
			story->refused++;
			TRY(refresh(story));
		}
		if (reef_random_chance(&random, 1, 12))
			TRY(fault(story, &random));
		TRY(reef_sleep(reef_random_below(&random, 4 * MILLISECOND)));
	}
	for (i = 0; i < pool->stubs_count; i++) {
		if (pool->stubs[i].killed)
			TRY(stub_restart(&pool->stubs[i]));
		pool->stubs[i].killed = false;
	}
	TRY(stub_pool_ready(pool, 4));
	for (i = 0; i < pool->stubs_count; i++)
		TRY(drain(story, pool->stubs[i].life->id, true));
	if (story->other)
		TRY(driver_do(&pool->owner, REEF_POOL_SPACE_DROP,
			      &(struct reef_body){.ask.space_drop.space =
							  story->other},
			      NULL));
	return check_all(story);
}

struct tally {
	uint64_t moved, lost, writes, refused;
};

static int tell(uint64_t seed, enum reef_mutant mutant, uint32_t kills,
		struct tally *tally)
{
	struct story *story = calloc(1, sizeof(*story));
	int rc;

	reef_assert(story);
	story->steps = 300;
	story->kills = kills;
	reef_mutate(mutant);
	stub_pool_start(&story->pool, seed, goes_on);
	for (int i = 0; i < 4; i++)
		stub_pool_add(&story->pool, 64 * MIB);
	rc = stub_pool_finish(&story->pool);
	reef_mutate(REEF_MUTANT_NONE);
	tally->moved += story->moved;
	tally->lost += story->lost;
	tally->writes += story->writes;
	tally->refused += story->refused;
	free(story);
	return rc;
}

static void broker_move_any_crash_loses_no_write(void **state)
{
	uint64_t seed, count = seeds_of(250, 20000);
	struct tally tally = {0};

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(tell(seed, REEF_MUTANT_NONE, 0, &tally), 0);
	assert_true(tally.moved > 0 && tally.lost == 0 && tally.refused > 0);
	print_message("%lu writes, %lu refused, %lu extents moved\n",
		      (unsigned long)tally.writes, (unsigned long)tally.refused,
		      (unsigned long)tally.moved);
}

static void broker_move_dead_nodes_lose_only_theirs(void **state)
{
	uint64_t seed, count = seeds_of(250, 20000);
	struct tally tally = {0};

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(tell(seed, REEF_MUTANT_NONE, 2, &tally), 0);
	assert_true(tally.lost > 0);
}

static void broker_move_mutant_early_move_is_found(void **state)
{
	struct tally tally = {0};
	uint64_t seed = 1;

	while (tell(seed, REEF_MUTANT_BROKER_EARLY_MOVE, 0, &tally) == 0) {
		seed++;
		assert_true(seed <= 50);
	}
	print_message("found by seed %lu\n", (unsigned long)seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_move_drain_loses_no_write),
		cmocka_unit_test(broker_move_without_room_stays_draining),
		cmocka_unit_test(broker_move_arrived_and_missing_is_lost),
		cmocka_unit_test(broker_move_copy_of_what_died_goes),
		cmocka_unit_test(
			broker_move_target_that_refuses_another_is_asked),
		cmocka_unit_test(
			broker_move_called_off_is_revoked_all_the_same),
		cmocka_unit_test(broker_move_any_crash_loses_no_write),
		cmocka_unit_test(broker_move_dead_nodes_lose_only_theirs),
		cmocka_unit_test(broker_move_mutant_early_move_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
