/* test_broker_changes.c - who asks with a version is told what changed since:
 * few rows, and the same view that everything gives. */
#include "fixture/seeds.h"
#include "fixture/stub_world.h"

#include <errno.h>

#define STUBS 4
#define MANY 300
#define SIZE REEF_EXTENT_ALIGN
#define STEPS 30

/* A view of a space that is kept up to date by what the broker tells. */
struct view {
	uint32_t space;
	uint64_t version;
	struct reef_row_extent rows[MANY + STEPS];
	uint32_t count;
	uint32_t told; /* rows of extents, in the last answer */
	bool whole;    /* that was everything */
};

/* Two of them, too large for a fiber's stack. */
static struct view view, fresh;

static void apply_row(struct view *to, const struct reef_row_extent *row)
{
	uint32_t i;

	to->told++;
	for (i = 0; i < to->count && to->rows[i].number != row->number;)
		i++;
	if (row->state == REEF_EXTENT_REMOVED) {
		if (i < to->count)
			to->rows[i] = to->rows[--to->count];
		return;
	}
	if (i == to->count && to->count < MANY + STEPS)
		to->count++;
	to->rows[i] = *row;
}

static void apply_answer(struct view *to, const struct reef_answer *answer,
			 uint32_t *ordinal)
{
	struct reef_cursor_in in = {answer->body.rows, answer->body.rows_size,
				    false};
	struct reef_row row;

	while (reef_row_decode(&in, &row) > 0) {
		if (row.row != REEF_ROW_EXTENT)
			continue;
		apply_row(to, &row.extent);
		*ordinal = row.extent.ordinal + 1;
	}
}

/* Ask what changed since the view's version, and take it in. */
static int refresh(struct stub_pool *pool, struct view *to)
{
	struct reef_body body = {
		.ask.space_extents = {.space = to->space,
				      .version = to->version},
	};
	struct reef_answer answer;
	uint64_t version = 0;
	uint32_t flags;

	to->told = 0;
	to->whole = false;
	do {
		answer = (struct reef_answer){0};
		TRY(driver_ask(&pool->owner, REEF_POOL_SPACE_EXTENTS, &body,
			       &answer));
		flags = answer.body.reply.space_extents.flags;
		if (!version) {
			version = answer.body.reply.space_extents.version;
			to->whole = flags & REEF_POOL_WHOLE;
			if (to->whole)
				to->count = 0;
		}
		apply_answer(to, &answer, &body.ask.space_extents.ordinal);
		reef_answer_free(&answer);
	} while (flags & REEF_POOL_MORE);
	to->version = version;
	return 0;
}

static const struct reef_row_extent *find_row(const struct view *in,
					      uint32_t number)
{
	for (uint32_t i = 0; i < in->count; i++)
		if (in->rows[i].number == number)
			return &in->rows[i];
	return NULL;
}

static bool is_same(const struct reef_row_extent *a,
		    const struct reef_row_extent *b)
{
	return b && a->epoch == b->epoch && a->node == b->node &&
	       a->state == b->state && a->ordinal == b->ordinal &&
	       a->size == b->size && !memcmp(a->keys, b->keys, sizeof(a->keys));
}

/* Compare the view with everything, of the same version. */
static int compare_views(struct stub_pool *pool)
{
	uint32_t tries = 0;

	do {
		WANT(tries++ < 100);
		TRY(refresh(pool, &view));
		fresh.space = view.space;
		fresh.version = 0;
		TRY(refresh(pool, &fresh));
		WANT(fresh.whole);
	} while (fresh.version != view.version);
	WANT(fresh.count == view.count);
	for (uint32_t i = 0; i < fresh.count; i++)
		WANT(is_same(&fresh.rows[i],
			     find_row(&view, fresh.rows[i].number)));
	return 0;
}

static int remove_one(struct stub_pool *pool, uint32_t number)
{
	struct reef_body body = {.ask.extent_remove = {view.space, number}};

	return driver_do(&pool->owner, REEF_POOL_EXTENT_REMOVE, &body, NULL);
}

static int begin_view(struct stub_pool *pool, uint32_t extents)
{
	memset(&view, 0, sizeof(view));
	TRY(stub_pool_ready(pool, STUBS));
	TRY(driver_open(&pool->owner, "a", REEF_POOL_CREATE, 0, 0,
			&view.space));
	for (uint32_t i = 0; i < extents; i++)
		TRY(driver_add(&pool->owner, view.space, SIZE, NULL));
	TRY(refresh(pool, &view));
	WANT(view.whole && view.count == extents);
	return 0;
}

/* --- how many rows --- */

static int tells_little(struct stub_pool *pool)
{
	struct reef_row_extent row;

	TRY(begin_view(pool, MANY));
	TRY(refresh(pool, &view));
	WANT(!view.whole && view.told == 0);
	TRY(driver_add(&pool->owner, view.space, SIZE, &row));
	TRY(refresh(pool, &view));
	WANT(!view.whole && view.told == 1 && view.count == MANY + 1);
	TRY(remove_one(pool, row.number));
	TRY(refresh(pool, &view));
	WANT(!view.whole && view.told == 1 && view.count == MANY);
	/* One that came and went is told of as well. */
	TRY(driver_add(&pool->owner, view.space, SIZE, &row));
	TRY(remove_one(pool, row.number));
	TRY(refresh(pool, &view));
	WANT(!view.whole && view.told == 1 && view.count == MANY);
	/* A version of another start, or of nobody, gets everything. */
	TRY(stub_pool_broker_restart(pool));
	TRY(refresh(pool, &view));
	WANT(view.whole && view.told == MANY);
	view.version += UINT64_C(1) << 32;
	TRY(refresh(pool, &view));
	WANT(view.whole && view.told == MANY);
	return compare_views(pool);
}

/* More changes than an answer has room for, and than are kept. */
static int tells_all(struct stub_pool *pool)
{
	TRY(begin_view(pool, 1));
	for (uint32_t i = 0; i < MANY; i++)
		TRY(driver_add(&pool->owner, view.space, SIZE, NULL));
	TRY(refresh(pool, &view));
	WANT(view.whole && view.told == MANY + 1);
	for (uint32_t i = 0; i < 2100; i++) {
		TRY(driver_add(&pool->owner, view.space, SIZE, &view.rows[0]));
		TRY(remove_one(pool, view.rows[0].number));
	}
	TRY(refresh(pool, &view));
	WANT(view.whole && view.count == MANY + 1);
	return compare_views(pool);
}

static int run_script(int (*script)(struct stub_pool *pool), uint64_t seed)
{
	struct stub_pool pool = {0};

	stub_pool_start(&pool, seed, script);
	for (uint32_t i = 0; i < STUBS; i++)
		stub_pool_add(&pool, 64 * MIB);
	return stub_pool_finish(&pool);
}

static void broker_changes_one_extent_is_one_row(void **state)
{
	assert_int_equal(run_script(tells_little, 1), 0);
}

static void broker_changes_too_many_are_everything(void **state)
{
	assert_int_equal(run_script(tells_all, 1), 0);
}

/* --- views stay equal, whatever happens --- */

static int drain(struct stub_pool *pool, uint32_t node, uint32_t flags)
{
	struct reef_body body = {.ask.node_drain = {node, flags}};
	int rc = driver_do(&pool->owner, REEF_POOL_NODE_DRAIN, &body, NULL);

	return rc == -EINVAL || rc == -ENOENT || rc == -EBUSY ? 0 : rc;
}

static int revoke(struct stub_pool *pool)
{
	struct reef_body body = {.ask.space_revoke.space = view.space};

	return driver_do(&pool->owner, REEF_POOL_SPACE_REVOKE, &body, NULL);
}

static int do_something(struct stub_pool *pool, struct reef_random *random)
{
	struct stub *stub = &pool->stubs[reef_random_below(random, STUBS)];
	uint32_t at = (uint32_t)reef_random_below(random, MANY);
	int rc;

	switch (reef_random_below(random, 9)) {
	case 0:
	case 1:
		rc = driver_add(&pool->owner, view.space, SIZE, NULL);
		return rc == -ENOSPC ? 0 : rc;
	case 2:
	case 3:
		if (!view.count)
			return 0;
		rc = remove_one(pool, view.rows[at % view.count].number);
		return rc == -ENOENT || rc == -EBUSY ? 0 : rc;
	case 4:
		return drain(pool, stub->life->id, 0);
	case 5:
		return drain(pool, stub->life->id, REEF_POOL_DRAIN_STOP);
	case 6:
		stub->rests = 2 + at % 30; /* away for a while, or DEAD */
		return 0;
	case 7:
		return stub_pool_broker_restart(pool);
	default:
		rc = revoke(pool);
		return rc == -EACCES ? 0 : rc;
	}
}

static int stays_equal(struct stub_pool *pool)
{
	struct reef_random *random = reef_sim_random(pool->sim);

	TRY(begin_view(pool, 20));
	for (uint32_t i = 0; i < STEPS; i++) {
		TRY(do_something(pool, random));
		TRY(reef_sleep(reef_random_below(random, 20 * MILLISECOND)));
		TRY(compare_views(pool));
	}
	return 0;
}

static void broker_changes_views_stay_equal(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 10); seed++)
		assert_int_equal(run_script(stays_equal, seed), 0);
}

static void broker_changes_untold_removal_is_found(void **state)
{
	bool found = false;

	try_quiet = true;
	reef_mutate(REEF_MUTANT_BROKER_REMOVAL_UNTOLD);
	for (uint64_t seed = 1; seed <= 10 && !found; seed++)
		found = run_script(stays_equal, seed) == -EXDEV;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	assert_true(found);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(broker_changes_one_extent_is_one_row),
		cmocka_unit_test(broker_changes_too_many_are_everything),
		cmocka_unit_test(broker_changes_views_stay_equal),
		cmocka_unit_test(broker_changes_untold_removal_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
