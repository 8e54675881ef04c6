/* test_broker_failover.c - a space with two copies, while nodes die, are cut
 * off and come back, nodes drain, and the broker dies, at any moment.
 *
 * A writer raises the numbers that stub nodes lend instead of memory: at the
 * arbiter, then at the primary, as clients do; then it counts as acknowledged.
 * A second client looks at the primary only, through a view of its own that it
 * renews when it likes. Both acknowledge what they have seen. After every step:
 *
 * (1) What a client reads by keys that open is not older than what was
 *     acknowledged, nor than what anybody has read: no copy in use lacks it,
 *     and none is used again that was given up.
 * (2) Both copies that a view names have what was acknowledged.
 * (3) Keys of before a failover open nothing afterwards. */
#include "base/mutant.h"
#include "fixture/seeds.h"
#include "fixture/stub_world.h"
#include "pool/broker/internal.h"
#include "pool/broker/lending.h"

#include <errno.h>
#include <reef/error.h>

#define EXTENTS 3u
#define STUBS 4u
#define TRIES 20000u

struct view {
	uint64_t epoch; /* of the pool, that it has acknowledged */
	struct reef_row_extent rows[4 * EXTENTS];
	uint32_t found;
};

struct story {
	struct stub_pool pool;
	struct view writer, reader;
	uint32_t space;
	uint32_t numbers[EXTENTS];
	uint64_t written[EXTENTS]; /* acknowledged */
	uint64_t seen[EXTENTS];
	uint32_t
		epochs[EXTENTS]; /* of the rows that were told last, and keys */
	uint64_t keys[EXTENTS], twin_keys[EXTENTS];
	bool down[STUBS], mute[STUBS];
	uint32_t drained; /* node; 0: none */
	uint32_t steps;
	bool calm; /* nobody dies: only drains, and nodes that come */
	bool saves;
	uint64_t save; /* that was begun last */
	uint32_t failovers, writes;
};

static uint64_t chance(struct story *story, uint64_t below)
{
	return reef_random_below(reef_sim_random(story->pool.sim), below);
}

static const struct reef_row_extent *find_row(const struct view *view,
					      uint32_t number)
{
	for (uint32_t i = 0; i < view->found; i++)
		if (view->rows[i].number == number)
			return &view->rows[i];
	return NULL;
}

/* --- views --- */

/* (3) */
static int check_keys(struct story *story, const struct view *view)
{
	const struct reef_row_extent *row, *twin;

	for (uint32_t i = 0; i < EXTENTS; i++) {
		row = find_row(view, story->numbers[i]);
		if (!row || row->state != REEF_EXTENT_LIVE || !row->keys[0])
			continue;
		if (row->epoch != story->epochs[i])
			WANT(row->keys[0] != story->keys[i] &&
			     row->keys[0] != story->twin_keys[i]);
		twin = find_row(view, row->twin);
		story->epochs[i] = row->epoch;
		story->keys[i] = row->keys[0];
		story->twin_keys[i] = twin ? twin->keys[0] : 0;
	}
	return 0;
}

/* Take in what is true now, and then acknowledge what was before. */
static int renew(struct story *story, struct view *view)
{
	struct stub_pool *pool = &story->pool;
	uint64_t epoch = pool->broker && pool->broker->tables[0]
				 ? broker_published_pool_epoch(pool->broker)
				 : 0;

	TRY(driver_extents(&pool->owner, story->space, view->rows, 4 * EXTENTS,
			   &view->found));
	TRY(check_keys(story, view));
	if (epoch > view->epoch)
		view->epoch = epoch;
	pool->acknowledged = story->writer.epoch < story->reader.epoch
				     ? story->writer.epoch
				     : story->reader.epoch;
	return 0;
}

/* What a row's key opens, at a node that is there; NULL: nothing. */
static struct stub_extent *reach(struct story *story,
				 const struct reef_row_extent *row)
{
	if (!row || row->state != REEF_EXTENT_LIVE || !row->keys[0])
		return NULL;
	for (uint32_t i = 0; i < story->pool.stubs_count; i++) {
		struct stub_life *life = story->pool.stubs[i].life;

		for (uint32_t j = 0; !story->down[i] && j < life->count; j++)
			if (life->extents[j].key == row->keys[0] &&
			    !life->extents[j].closed)
				return &life->extents[j];
	}
	return NULL;
}

/* --- clients --- */

/* A save that was ended, well or not, holds nobody up. */
static int await_end_of_save(struct story *story)
{
	for (uint32_t tries = 0;
	     broker_space_is_saving(story->pool.broker, story->space);
	     tries++) {
		WANT(tries < TRIES);
		TRY(reef_sleep(MILLISECOND / 10));
		TRY(renew(story, &story->writer));
		TRY(renew(story, &story->reader));
	}
	return 0;
}

/* Begin to save the space, or end that, whether all was closed yet or not. */
static int save(struct story *story)
{
	struct reef_answer answer = {0};
	struct reef_body body = {
		.ask.space_save = {.space = story->space,
				   .step = story->save ? REEF_SAVE_END
						       : REEF_SAVE_BEGIN,
				   .number = story->save},
	};
	int rc = driver_do(&story->pool.owner, REEF_POOL_SPACE_SAVE, &body,
			   &answer);
	bool ended = story->save != 0;

	story->save = rc || ended ? 0 : answer.body.reply.space_save.number;
	if (!rc)
		reef_answer_free(&answer);
	if (rc && rc != -ESTALE && rc != -EBUSY)
		return rc;
	return ended ? await_end_of_save(story) : 0;
}

static int look(struct story *story, const struct view *view, uint32_t i)
{
	const struct reef_row_extent *row = find_row(view, story->numbers[i]);
	const struct stub_extent *extent = reach(story, row);

	if (!extent)
		return 0;
	WANT(extent->value >= story->written[i]);
	WANT(extent->value >= story->seen[i]);
	story->seen[i] = extent->value;
	return 0;
}

/* The reader looks, now and then takes in what is new, and looks again. */
static int look_as_reader(struct story *story)
{
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(look(story, &story->reader, i));
	if (chance(story, 4))
		return 0;
	TRY(renew(story, &story->reader));
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(look(story, &story->reader, i));
	return 0;
}

/* One try to write. 1: a key opens nothing. */
static int try_write(struct story *story, uint32_t i)
{
	const struct reef_row_extent *row =
		find_row(&story->writer, story->numbers[i]);
	uint64_t value = story->written[i] + 1;
	struct stub_extent *extent;
	uint32_t twin;

	if (!reach(story, row))
		return 1;
	twin = row->twin;
	if (twin) {
		extent = reach(story, find_row(&story->writer, twin));
		if (!extent)
			return 1;
		WANT(extent->value >= story->written[i]); /* (2) */
		extent->value = value;
		TRY(reef_sleep(chance(story, 2 * MILLISECOND)));
	}
	extent = reach(story, find_row(&story->writer, story->numbers[i]));
	if (!extent)
		return 1;
	WANT(extent->value >= story->written[i]);
	extent->value = value;
	story->written[i] = value;
	story->writes++;
	return 0;
}

static int write_one(struct story *story, uint32_t i)
{
	int rc = 1;

	for (uint32_t tries = 0; rc == 1; tries++) {
		WANT(tries < TRIES);
		rc = try_write(story, i);
		if (rc == 1) {
			TRY(reef_sleep(MILLISECOND));
			TRY(renew(story, &story->writer));
			TRY(look_as_reader(story));
			if (story->save && !chance(story, 16))
				TRY(save(story));
		}
	}
	return rc;
}

/* --- what happens to them --- */

/* True if all is well: every extent has two copies, which are told. */
static bool is_whole(struct story *story)
{
	const struct view *view = &story->writer;
	const struct reef_row_extent *row;

	for (uint32_t i = 0; i < EXTENTS; i++) {
		row = find_row(view, story->numbers[i]);
		if (!row || !row->twin || !reach(story, row) ||
		    !reach(story, find_row(view, row->twin)))
			return false;
	}
	return true;
}

static int drain(struct story *story, uint32_t node, bool stop)
{
	struct reef_body body = {.ask.node_drain = {node, stop}};

	int rc = driver_do(&story->pool.owner, REEF_POOL_NODE_DRAIN, &body,
			   NULL);

	return rc == -EBUSY ? 0 : rc; /* it is dead */
}

/* Those who are away come back. */
static int heal(struct story *story)
{
	for (uint32_t i = 0; i < STUBS; i++) {
		if (story->down[i])
			TRY(stub_restart(&story->pool.stubs[i]));
		story->down[i] = false;
		story->pool.stubs[i].mute = story->mute[i] = false;
	}
	if (story->drained)
		TRY(drain(story, story->drained, true));
	story->drained = 0;
	return 0;
}

/* A node dies or is cut off; never two at a time, nor while there is one copy
 * of anything. */
static int strike(struct story *story)
{
	uint32_t i = (uint32_t)chance(story, STUBS);

	TRY(renew(story, &story->writer));
	if (!is_whole(story))
		return 0;
	for (uint32_t j = 0; j < STUBS; j++)
		if (story->down[j] || story->mute[j])
			return 0;
	story->failovers++;
	if (chance(story, 2)) {
		story->down[i] = true;
		return stub_kill(&story->pool.stubs[i]);
	}
	story->pool.stubs[i].mute = story->mute[i] = true;
	return 0;
}

static int take_step(struct story *story)
{
	uint64_t what = chance(story, story->saves ? 40 : 24);

	TRY(reef_sleep(chance(story, story->saves ? MILLISECOND / 2
						  : 4 * MILLISECOND)));
	if (what >= 24)
		return save(story);
	if (what == 0 && !story->calm)
		return strike(story);
	if (what == 1 && !story->calm)
		return stub_pool_broker_restart(&story->pool);
	if (what == 2 && !story->drained) {
		story->drained = 1 + (uint32_t)chance(story, STUBS);
		return drain(story, story->drained, false);
	}
	if (what == 3 && !chance(story, 3))
		return heal(story);
	if (what < 8)
		return look_as_reader(story);
	if (what < 9)
		return renew(story, &story->writer);
	return write_one(story, (uint32_t)chance(story, EXTENTS));
}

static uint32_t count_held(struct story *story)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < STUBS; i++)
		held += story->pool.stubs[i].life->count;
	return held;
}

/* In the end there are two copies of everything, the same, and no more. */
static int check_end(struct story *story)
{
	uint32_t tries;

	TRY(heal(story));
	if (story->save)
		TRY(save(story));
	for (tries = 0; !is_whole(story) || count_held(story) != 2 * EXTENTS;
	     tries++) {
		WANT(tries < TRIES);
		TRY(reef_sleep(MILLISECOND));
		TRY(renew(story, &story->writer));
		TRY(renew(story, &story->reader));
	}
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(write_one(story, i));
	TRY(renew(story, &story->reader));
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(look(story, &story->reader, i));
	return 0;
}

static int begin(struct story *story)
{
	struct stub_pool *pool = &story->pool;
	struct reef_row_extent row;

	TRY(stub_pool_ready(pool, STUBS));
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2,
			       &story->space));
	for (uint32_t i = 0; i < EXTENTS; i++) {
		TRY(driver_add(&pool->owner, story->space, MIB, &row));
		WANT(row.twin);
		story->numbers[i] = row.number;
	}
	pool->acknowledges = true;
	TRY(renew(story, &story->writer));
	return renew(story, &story->reader);
}

static int tell(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;

	TRY(begin(story));
	for (uint32_t i = 0; i < story->steps; i++)
		TRY(take_step(story));
	return check_end(story);
}

static int run_story(int (*script)(struct stub_pool *), uint64_t seed,
		     uint32_t steps, enum reef_mutant mutant,
		     struct story *story)
{
	int rc;

	story->steps = steps;
	reef_mutate(mutant);
	stub_pool_start(&story->pool, seed, script);
	for (uint32_t i = 0; i < STUBS; i++)
		stub_pool_add(&story->pool, 64 * MIB)->keeps =
			(seed >> i) % 2 == 0;
	rc = stub_pool_finish(&story->pool);
	reef_mutate(REEF_MUTANT_NONE);
	return rc;
}

static void broker_failover_loses_nothing(void **state)
{
	static struct story story;
	uint32_t failovers = 0, writes = 0;

	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(60, 60));
	     seed++) {
		story = (struct story){0};
		assert_int_equal(
			run_story(tell, seed, 400, REEF_MUTANT_NONE, &story),
			0);
		failovers += story.failovers;
		writes += story.writes;
	}
	print_message("%u writes, %u nodes lost\n", writes, failovers);
	assert_true(failovers > (SANITIZED ? 7 : 60));
}

/* The same, while somebody begins to save the space all the time, and changes
 * their mind: what is closed by others stays closed, above all what is being
 * copied. */
static void broker_failover_loses_nothing_while_it_is_saved(void **state)
{
	static struct story story;
	uint32_t failovers = 0;

	for (uint64_t seed = seeds_first(); seeds_has(seed, seeds_of(100, 100));
	     seed++) {
		story = (struct story){.saves = true};
		assert_int_equal(
			run_story(tell, seed, 400, REEF_MUTANT_NONE, &story),
			0);
		failovers += story.failovers;
	}
	print_message("%u nodes lost\n", failovers);
	assert_true(failovers > 3);
}

/* True while an extent has one copy, and is closed to be given another. */
static bool is_copied(struct story *story, uint32_t number)
{
	const struct reef_state_extent *extent =
		reef_state_extent(story->pool.broker->state, number);
	const struct broker_extent *told =
		broker_extent_find(story->pool.broker, number);

	return extent && extent->state == REEF_EXTENT_LIVE && !extent->twin &&
	       told && told->closed && told->rekeying;
}

static int await_copied(struct story *story, uint32_t number, bool is)
{
	for (uint32_t tries = 0; is_copied(story, number) != is; tries++) {
		WANT(tries < 100 * TRIES);
		TRY(reef_sleep(MILLISECOND / 50));
		if (tries % 50 == 0)
			TRY(renew(story, &story->writer));
		if (tries % 50 == 0)
			TRY(renew(story, &story->reader));
	}
	return 0;
}

/* An extent is copied again, and somebody begins to save the space just then,
 * and changes their mind: that opens what the save has closed, and not what is
 * being copied. So there are two copies at the first try. */
static int saves_while_it_is_copied(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	const struct reef_row_extent *row;
	uint32_t number, i;

	TRY(begin(story));
	number = story->numbers[EXTENTS - 1];
	row = find_row(&story->writer, number);
	row = find_row(&story->writer, row->twin);
	i = (uint32_t)(stub_pool_stub(pool, row->node) - pool->stubs);
	story->down[i] = true;
	TRY(stub_kill(&pool->stubs[i]));
	TRY(await_copied(story, number, true));
	TRY(save(story));
	story->failovers += is_copied(story, number);
	TRY(save(story));
	TRY(await_copied(story, number, false));
	WANT(reef_state_extent(pool->broker->state, number)->twin);
	return check_end(story);
}

static void broker_failover_copies_what_a_save_would_close(void **state)
{
	static struct story story;
	uint32_t hits = 0;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 40); seed++) {
		story = (struct story){0};
		assert_int_equal(run_story(saves_while_it_is_copied, seed, 0,
					   REEF_MUTANT_NONE, &story),
				 0);
		hits += story.failovers;
	}
	print_message("%u saves were begun in time\n", hits);
	assert_true(hits > 5);
}

/* A node goes while all is closed to be saved, which opens an extent: what was
 * copied is no image, and who ends the save holds nobody up any longer. */
static int ends_a_save_that_failed(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	uint32_t number, i, tries;

	TRY(begin(story));
	number = story->numbers[0];
	i = find_row(&story->writer, number)->twin;
	i = find_row(&story->writer, i)->node;
	i = (uint32_t)(stub_pool_stub(pool, i) - pool->stubs);
	TRY(save(story));
	for (tries = 0; !broker_extent_find(pool->broker, number)->save;
	     tries++) {
		WANT(tries < TRIES);
		TRY(reef_sleep(MILLISECOND));
	}
	TRY(reef_sleep(100 * MILLISECOND));
	story->down[i] = true;
	TRY(stub_kill(&pool->stubs[i]));
	for (tries = 0; broker_extent_find(pool->broker, number)->save;
	     tries++) {
		WANT(tries < TRIES);
		TRY(reef_sleep(MILLISECOND));
		TRY(renew(story, &story->writer));
		TRY(renew(story, &story->reader));
	}
	TRY(save(story));
	return check_end(story);
}

static void broker_failover_ends_a_save(void **state)
{
	static struct story story;

	story = (struct story){0};
	assert_int_equal(run_story(ends_a_save_that_failed, seeds_first(), 0,
				   REEF_MUTANT_NONE, &story),
			 0);
}

/* A node goes, and the broker dies at one request to a node after the other
 * while it fails over and copies again. */
static int dies_at_each_step(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	const struct reef_row_extent *row;
	uint32_t i;

	TRY(begin(story));
	for (uint32_t j = 0; j < EXTENTS; j++)
		TRY(write_one(story, j));
	row = find_row(&story->writer, story->numbers[0]);
	if (story->steps % 4 < 2)
		row = find_row(&story->writer, row->twin);
	i = (uint32_t)(stub_pool_stub(pool, row->node) - pool->stubs);
	pool->ends_after = 1 + story->steps / 4;
	story->down[i] = story->steps % 2;
	story->mute[i] = pool->stubs[i].mute = !story->down[i];
	if (story->down[i])
		TRY(stub_kill(&pool->stubs[i]));
	for (uint32_t j = 0; j < EXTENTS; j++)
		TRY(write_one(story, j));
	TRY(check_end(story));
	story->failovers = !pool->ends_after;
	return 0;
}

static void broker_failover_goes_on_where_a_broker_died(void **state)
{
	static struct story story;
	uint32_t died = 0;

	/* The primary's node or its twin's, killed or cut off, for each. */
	for (uint32_t step = 0; step < 4 * 12; step++) {
		story = (struct story){0};
		assert_int_equal(run_story(dies_at_each_step,
					   seeds_first() + step, step,
					   REEF_MUTANT_NONE, &story),
				 0);
		died += story.failovers;
	}
	print_message("%u brokers died\n", died);
	assert_true(died > 12);
}

/* Both nodes of a copy are away, one after the other: its users wait, and go on
 * with the one that was last. */
static int waits_for_the_last(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	const struct reef_row_extent *row;
	uint32_t first, last;

	TRY(begin(story));
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(write_one(story, i));
	row = find_row(&story->writer, story->numbers[0]);
	first = row->node;
	last = find_row(&story->writer, row->twin)->node;
	for (uint32_t i = 0; i < STUBS; i++)
		pool->stubs[i].refuses_pull = -ENOMEM; /* no third copy */
	story->down[stub_pool_stub(pool, first) - pool->stubs] = true;
	TRY(stub_kill(stub_pool_stub(pool, first)));
	TRY(write_one(story, 0));
	story->down[stub_pool_stub(pool, last) - pool->stubs] = true;
	TRY(stub_kill(stub_pool_stub(pool, last)));
	for (uint32_t i = 0; i < 4 * NODE_TTL / MILLISECOND; i++) {
		TRY(reef_sleep(MILLISECOND));
		TRY(renew(story, &story->writer));
		TRY(renew(story, &story->reader));
	}
	WANT(try_write(story, 0) == 1);
	/* The one that was given up first comes back: that is not it. */
	story->down[stub_pool_stub(pool, first) - pool->stubs] = false;
	TRY(stub_restart(stub_pool_stub(pool, first)));
	for (uint32_t i = 0; i < 4 * NODE_TTL / MILLISECOND; i++) {
		TRY(reef_sleep(MILLISECOND));
		TRY(renew(story, &story->writer));
	}
	WANT(try_write(story, 0) == 1);
	for (uint32_t i = 0; i < STUBS; i++)
		pool->stubs[i].refuses_pull = 0;
	return check_end(story);
}

static void broker_failover_waits_for_the_copy_that_was_last(void **state)
{
	static struct story story;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 8); seed++) {
		story = (struct story){0};
		/* All of them keep their memory. */
		assert_int_equal(run_story(waits_for_the_last, seed << STUBS, 0,
					   REEF_MUTANT_NONE, &story),
				 0);
	}
}

/* A node that keeps its memory and one that does not have the two copies of
 * something, die before anybody is missed, and come back: what is kept is
 * there.
 */
static int die_together(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	const struct reef_row_extent *row, *twin = NULL;
	struct stub *kept, *other;
	bool is_kept_first = chance(story, 2);

	TRY(begin(story));
	for (uint32_t i = 0; i < EXTENTS; i++)
		TRY(write_one(story, i));
	for (uint32_t i = 0; i < EXTENTS && !twin; i++) {
		row = find_row(&story->writer, story->numbers[i]);
		twin = find_row(&story->writer, row->twin);
		if (stub_pool_stub(pool, row->node)->keeps ==
		    stub_pool_stub(pool, twin->node)->keeps)
			twin = NULL;
	}
	if (!twin)
		return 0;
	story->failovers++;
	kept = stub_pool_stub(pool, row->node);
	other = stub_pool_stub(pool, twin->node);
	if (!kept->keeps) {
		kept = other;
		other = stub_pool_stub(pool, row->node);
	}
	story->down[kept - pool->stubs] = true;
	story->down[other - pool->stubs] = true;
	TRY(stub_kill(kept));
	TRY(reef_sleep(chance(story, 650 * MILLISECOND)));
	TRY(stub_kill(other));
	TRY(reef_sleep(chance(story, 4 * SECOND)));
	TRY(stub_restart(is_kept_first ? kept : other));
	TRY(reef_sleep(chance(story, SECOND)));
	TRY(stub_restart(is_kept_first ? other : kept));
	story->down[kept - pool->stubs] = false;
	story->down[other - pool->stubs] = false;
	return check_end(story);
}

static int run_together(uint64_t seed, enum reef_mutant mutant,
			uint32_t *failovers)
{
	static struct story story;
	int rc;

	story = (struct story){0};
	story.pool.options.node_ttl_ns = 3 * SECOND;
	/* Two of them keep their memory. */
	rc = run_story(die_together, (seed << STUBS) + 5, 0, mutant, &story);
	*failovers += story.failovers;
	return rc;
}

static void broker_failover_gives_up_what_is_not_kept(void **state)
{
	uint32_t failovers = 0;

	for (uint64_t seed = seeds_first();
	     seeds_has(seed, seeds_of(100, 3000)); seed++)
		assert_int_equal(
			run_together(seed, REEF_MUTANT_NONE, &failovers), 0);
	assert_true(failovers > 2);
#if !SANITIZED
	int found = 0;

	for (uint64_t seed = 1; seed <= 100 && !found; seed++)
		found = run_together(seed, REEF_MUTANT_BROKER_KEPT_FIRST,
				     &failovers);
	assert_int_not_equal(found, 0);
#endif
}

/* Where nodes may be silent for long, a copy is missed after a second all the
 * same; but not a node that keeps nothing and has the only copy of something.
 */
static int is_missed_soon(struct stub_pool *pool)
{
	struct story *story = (struct story *)pool;
	const struct reef_row_extent *row;
	struct reef_row_extent single;
	uint64_t began_ns, took_ns;
	struct reef_row look_at;
	uint32_t plain, i;

	TRY(begin(story));
	pool->acknowledges = false;
	TRY(driver_open(&pool->owner, "plain", REEF_POOL_CREATE, 0, 0, &plain));
	TRY(driver_add(&pool->owner, plain, MIB, &single));
	TRY(reef_sleep(SECOND));
	i = (uint32_t)(stub_pool_stub(pool, single.node) - pool->stubs);
	pool->stubs[i].mute = true;
	TRY(reef_sleep(4 * SECOND));
	TRY(driver_look(&pool->owner, REEF_ROW_NODE, single.node, &look_at));
	WANT(look_at.node.state == REEF_NODE_OK);
	pool->stubs[i].mute = false;
	TRY(reef_sleep(SECOND));
	TRY(renew(story, &story->writer));
	row = find_row(&story->writer, story->numbers[0]);
	if (row->node == single.node)
		row = find_row(&story->writer, row->twin);
	i = (uint32_t)(stub_pool_stub(pool, row->node) - pool->stubs);
	began_ns = reef_now_ns();
	story->down[i] = true;
	TRY(stub_kill(&pool->stubs[i]));
	while (find_row(&story->writer, story->numbers[0])->epoch == 1 ||
	       try_write(story, 0)) {
		TRY(reef_sleep(MILLISECOND));
		TRY(renew(story, &story->writer));
	}
	took_ns = reef_now_ns() - began_ns;
	WANT(took_ns > 700 * MILLISECOND && took_ns < 2 * SECOND);
	return 0;
}

static void broker_failover_node_with_copies_is_missed_soon(void **state)
{
	static struct story story;

	for (uint64_t seed = seeds_first(); seeds_has(seed, 8); seed++) {
		story = (struct story){0};
		story.pool.options.node_ttl_ns = 10 * SECOND;
		/* None of them keeps its memory. */
		assert_int_equal(run_story(is_missed_soon, (seed << STUBS) - 1,
					   0, REEF_MUTANT_NONE, &story),
				 0);
	}
}

/* A session ends after a node that it was told of has fallen silent, and before
 * that is given up: then it is fenced, and nobody waits for that node to
 * answer. */
static int is_fenced_soon(struct stub_pool *pool)
{
	const struct reef_state_session *session;
	struct reef_row_extent row;
	uint64_t began_ns;
	uint32_t space;

	TRY(begin((struct story *)pool));
	pool->acknowledges = false;
	TRY(stub_pool_add_guest(pool));
	TRY(driver_open_copies(&pool->guest, "g", REEF_POOL_CREATE, 2, &space));
	TRY(driver_add(&pool->guest, space, MIB, &row));
	TRY(reef_sleep(SECOND));
	began_ns = reef_now_ns();
	stub_pool_stub(pool, row.node)->mute = true;
	TRY(driver_do(&pool->guest, REEF_POOL_SESSION_CLOSE, NULL, NULL));
	while ((session = reef_state_session(pool->broker->state,
					     pool->guest.session)) &&
	       session->state < REEF_SESSION_FENCED)
		TRY(reef_sleep(MILLISECOND));
	WANT(reef_now_ns() - began_ns < 3 * SECOND);
	return 0;
}

static int run_fenced(uint64_t seed, enum reef_mutant mutant)
{
	static struct story story;

	story = (struct story){0};
	story.pool.options.node_ttl_ns = 10 * SECOND;
	/* All of them keep their memory. */
	return run_story(is_fenced_soon, seed << STUBS, 0, mutant, &story);
}

static void broker_failover_waits_for_no_answer_of_who_is_gone(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, 8); seed++)
		assert_int_equal(run_fenced(seed, REEF_MUTANT_NONE), 0);
#if !SANITIZED
	assert_int_not_equal(run_fenced(1, REEF_MUTANT_BROKER_CALLS_KEPT), 0);
#endif
}

/* Nodes pulse often before there is a copy that could fail, and while none is
 * left: else the next failover would wait for nodes that pulse seldom. */
static int pulses_often(struct stub_pool *pool)
{
	uint64_t seldom_ns = broker_pulse_period(pool->broker);
	uint32_t space;

	TRY(stub_pool_ready(pool, STUBS));
	WANT(seldom_ns == pool->options.node_ttl_ns / 4);
	TRY(driver_open_copies(&pool->owner, "a", REEF_POOL_CREATE, 2, &space));
	WANT(broker_pulse_period(pool->broker) == SECOND / 4);
	return 0;
}

static void broker_failover_pulses_often_without_copies(void **state)
{
	static struct story story;

	story = (struct story){.pool.options.node_ttl_ns = 10 * SECOND};
	assert_int_equal(run_story(pulses_often, seeds_first(), 0,
				   REEF_MUTANT_NONE, &story),
			 0);
}

#if !SANITIZED
static void find_mutant(enum reef_mutant mutant, bool calm)
{
	static struct story story;
	uint64_t seed;
	int rc = 0;

	for (seed = 1; rc == 0 && seed < 200; seed++) {
		story = (struct story){.calm = calm};
		rc = run_story(tell, seed, 400, mutant, &story);
	}
	print_message("%s: found by seed %lu\n", reef_mutant_name(mutant),
		      (unsigned long)seed - 1);
	assert_int_not_equal(rc, 0);
}

static void broker_failover_mutants_are_found(void **state)
{
	find_mutant(REEF_MUTANT_BROKER_EARLY_OPEN, false);
	find_mutant(REEF_MUTANT_BROKER_FORGET_FAILING, false);
	find_mutant(REEF_MUTANT_BROKER_COPY_OPEN, false);
	find_mutant(REEF_MUTANT_BROKER_CROSS_PULL, true);
	find_mutant(REEF_MUTANT_BROKER_OLD_COPY, false);
	find_mutant(REEF_MUTANT_BROKER_NO_REKEY, false);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(broker_failover_loses_nothing),
	  cmocka_unit_test(broker_failover_loses_nothing_while_it_is_saved),
	  cmocka_unit_test(broker_failover_copies_what_a_save_would_close),
	  cmocka_unit_test(broker_failover_ends_a_save),
	  cmocka_unit_test(broker_failover_goes_on_where_a_broker_died),
	  cmocka_unit_test(broker_failover_waits_for_the_copy_that_was_last),
	  cmocka_unit_test(broker_failover_gives_up_what_is_not_kept),
	  cmocka_unit_test(broker_failover_node_with_copies_is_missed_soon),
	  cmocka_unit_test(broker_failover_waits_for_no_answer_of_who_is_gone),
	  cmocka_unit_test(broker_failover_pulses_often_without_copies),
#if !SANITIZED
	  cmocka_unit_test(broker_failover_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
