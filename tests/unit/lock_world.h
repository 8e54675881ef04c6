/* lock_world.h - members of a simulated pool that compete for a lock.
 *
 * What the lock protects is two words far apart, read and written by remote
 * operations: a violation shows as a difference between them, or as a sum that
 * is wrong. */
#ifndef REEF_TESTS_LOCK_WORLD_H
#define REEF_TESTS_LOCK_WORLD_H

#include "pool_world.h"
#include "sync/lock.h"

#define RIVALS_MAX 8u /* fibers of a member */

struct contest {
	struct reef_lock_options options;
	uint32_t rivals, rounds;
	uint32_t readers; /* of a hundred */
	uint64_t timeout_ns;
	uint32_t deaths; /* somebody may have been cut off inside */
	/* what came of it */
	uint64_t data; /* address; 0: not made yet */
	uint64_t taken, timeouts, inherited;
	uint64_t longest_ns; /* wait */
	uint32_t running;
};

struct rival {
	struct member *member;
	struct contest *contest;
	struct reef_space *space;
	struct reef_lock *lock;
	struct reef_random random;
	bool over;
	int rc;
};

static inline int contest_data(struct rival *rival)
{
	const uint64_t zeroes[16] = {0};
	struct contest *contest = rival->contest;
	struct reef *reef = rival->member->reef;
	uint64_t address;
	int rc;

	if (contest->data)
		return 0;
	TRY(reef_alloc(rival->space, sizeof(zeroes), &address));
	do
		rc = reef_write(reef, address, zeroes, sizeof(zeroes));
	while (rc == -REEF_EINDOUBT);
	TRY(rc);
	do
		rc = reef_keep(rival->space, address);
	while (rc == -REEF_EINDOUBT);
	if (rc != -EALREADY)
		TRY(rc);
	if (!contest->data)
		contest->data = address;
	return 0;
}

/* Retries what is in doubt: it may be done twice, as it is the same. */
static inline int contest_write(struct reef *reef, uint64_t address,
				uint64_t value)
{
	int rc;

	do
		rc = reef_write(reef, address, &value, 8);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

static inline int contest_inside(struct rival *rival, bool shared,
				 bool inherited)
{
	uint64_t first, second, data = rival->contest->data;
	struct reef *reef = rival->member->reef;

	TRY(reef_read(reef, data, &first, 8));
	if (reef_random_chance(&rival->random, 1, 4))
		TRY(reef_sleep(reef_random_below(&rival->random, 200000)));
	TRY(reef_read(reef, data + 64, &second, 8));
	if (inherited && first != second && !shared) {
		TRY(contest_write(reef, data + 64, first));
		second = first;
	}
	if (!inherited || !shared)
		WANT(first == second);
	if (!rival->contest->deaths && !shared)
		WANT(first == rival->contest->taken);
	if (shared)
		return 0;
	TRY(contest_write(reef, data, first + 1));
	TRY(contest_write(reef, data + 64, first + 1));
	rival->contest->taken++;
	return 0;
}

static inline int rival_round(struct rival *rival)
{
	struct contest *contest = rival->contest;
	bool shared = reef_random_below(&rival->random, 100) < contest->readers;
	uint64_t began_ns = reef_now_ns(), waited_ns;
	int rc;

	rc = reef_lock_take(
		rival->lock, shared ? REEF_LOCK_SHARED : REEF_LOCK_EXCLUSIVE,
		contest->timeout_ns ? contest->timeout_ns : REEF_FOREVER);
	if (contest->timeout_ns && rc == -ETIMEDOUT) {
		contest->timeouts++;
		return 0;
	}
	if (rc < 0)
		TRY(rc);
	waited_ns = reef_now_ns() - began_ns;
	if (waited_ns > contest->longest_ns)
		contest->longest_ns = waited_ns;
	contest->inherited += rc == REEF_LOCK_INHERITED;
	TRY(contest_inside(rival, shared, rc == REEF_LOCK_INHERITED));
	TRY(reef_lock_give(rival->lock));
	if (reef_random_chance(&rival->random, 1, 3))
		TRY(reef_sleep(reef_random_below(&rival->random, 100000)));
	return 0;
}

static inline int rival_rounds(struct rival *rival)
{
	uint32_t i;

	for (i = 0; i < rival->contest->rounds; i++)
		TRY(rival_round(rival));
	return 0;
}

static inline int rival_main(void *arg)
{
	struct rival *rival = arg;

	rival->rc = reef_lock_open(rival->space, "lock",
				   &rival->contest->options, &rival->lock);
	if (!rival->rc)
		rival->rc = rival_rounds(rival);
	reef_lock_close(rival->lock);
	rival->over = true;
	return 0;
}

/* A member's script; the contest is the pool's note[0]. */
static inline int contest_script(struct member *member)
{
	struct contest *contest =
		(struct contest *)(uintptr_t)member->pool->note[0];
	struct rival rivals[RIVALS_MAX] = {0};
	struct reef_fiber *fibers[RIVALS_MAX];
	struct reef_space *space;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < contest->rivals; i++) {
		rivals[i].member = member;
		rivals[i].contest = contest;
		rivals[i].space = space;
		reef_random_init(&rivals[i].random, member->pool->seed * 64 +
							    member->number * 8 +
							    i);
	}
	TRY(contest_data(&rivals[0]));
	for (i = 0; i < contest->rivals; i++)
		TRY(reef_fiber_spawn(reef_fiber_sched(), rival_main, &rivals[i],
				     &fibers[i]));
	rc = 0;
	for (i = 0; i < contest->rivals; i++) {
		reef_fiber_join(fibers[i], NULL);
		rc = rc ? rc : rivals[i].rc;
	}
	return rc;
}

static inline int contest_run(struct contest *contest, uint64_t seed,
			      uint32_t members, uint32_t lose_link_ppm)
{
	struct pool pool = {
		.lose_link_ppm = lose_link_ppm,
		.note = {(uintptr_t)contest},
	};
	uint32_t i;

	pool_start(&pool, seed);
	for (i = 0; i < members; i++)
		pool_add(&pool, contest_script);
	return pool_end(&pool);
}

#endif
