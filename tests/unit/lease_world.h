/* lease_world.h - what befalls the members of a pool_world pool while they
 * hold leases and lead: a host of its own that pauses, kills and cuts them off,
 * often while one of them is inside a call.
 *
 * Nothing is asserted inside a fiber, see pool_world.h. */
#ifndef REEF_TESTS_LEASE_WORLD_H
#define REEF_TESTS_LEASE_WORLD_H

#include "pool_world.h"
#include "seeds.h"
#include "sync/lease.h"

enum fate {
	FATE_PAUSE = 1, /* for up to three TTLs */
	FATE_KILL = 2,	/* two at most */
	FATE_CUT = 4,	/* from a node or from the broker */
	FATE_BROKER = 8,
	FATE_FENCE = 16, /* one from the broker, and the nodes as its lease ends
			  */
	FATES = 5,
};

/* A participant, as the test knows it. */
struct actor {
	struct member *member;
	struct reef_space *space;
	struct reef_lease *lease;
	struct reef_election *election;
	struct reef_random random;
	bool is_busy; /* in a call */
	/* What it believes, in the scheduler's time. */
	bool holds;
	uint64_t until_ns;
};

/* What is true. One pool at a time. */
static struct {
	enum fate fates;
	enum lease_mutant mutant;
	bool is_quiet;
	uint64_t duration_ns;
	uint64_t ends_ns;
	struct actor actors[MEMBERS_MAX];
	uint64_t token; /* the highest so far */
	uint32_t takes; /* of all */
	uint32_t killed;
	uint64_t died_ns; /* a leader; 0: none, or the next leads already */
	uint64_t data;	  /* address of what leaders change */
	uint32_t ended[64], ended_count; /* sessions; somebody saw it */
	uint32_t fenced;		 /* that found out by themselves */
	char wrong[160];
} truth;

static inline uint64_t pool_now(const struct pool *pool)
{
	return reef_sched_now_ns(reef_sim_sched(pool->sim));
}

#define WRONG(...)                                                             \
	do {                                                                   \
		if (!truth.wrong[0])                                           \
			snprintf(truth.wrong, sizeof(truth.wrong),             \
				 __VA_ARGS__);                                 \
		return -EXDEV;                                                 \
	} while (0)

/* --- fate --- */

static inline struct actor *fate_victim(struct pool *pool)
{
	struct reef_random *random = reef_sim_random(pool->sim);
	struct actor *actor =
		&truth.actors[reef_random_below(random, pool->count)];
	uint32_t i;

	if (reef_random_below(random, 3) == 0)
		return actor;
	/* Whoever holds, or is in a call; wait for that a little. */
	for (i = 0; i < 200; i++) {
		actor = &truth.actors[i % pool->count];
		if (actor->member && actor->member->result == 1 &&
		    (actor->is_busy || (i > 100 && actor->holds))) {
			if (reef_random_below(random, 2) &&
			    reef_sleep(reef_random_below(random, 30000)))
				return NULL;
			return actor;
		}
		if (reef_sleep(20000))
			return NULL;
	}
	return actor;
}

static inline int fate_fence(struct pool *pool, struct reef_sim_host *host)
{
	uint32_t i;

	reef_sim_partition(host, pool->host, true);
	TRY(reef_sleep(pool->ttl_ns * 3 / 4));
	for (i = 0; i < NODES; i++)
		reef_sim_partition(pool->lenders[i].host, pool->host, true);
	TRY(reef_sleep(pool->ttl_ns));
	for (i = 0; i < NODES; i++)
		reef_sim_partition(pool->lenders[i].host, pool->host, false);
	TRY(reef_sleep(pool->ttl_ns));
	reef_sim_partition(host, pool->host, false);
	return 0;
}

static inline int fate_step(struct pool *pool)
{
	struct reef_random *random = reef_sim_random(pool->sim);
	enum fate fate = 1u << reef_random_below(random, FATES);
	uint64_t span_ns = reef_random_below(random, 3 * pool->ttl_ns);
	struct actor *actor;
	struct reef_sim_host *host, *other;

	if (!(truth.fates & fate))
		return reef_sleep(100000);
	actor = fate_victim(pool);
	if (!actor || !actor->member)
		return 0;
	host = actor->member->host;
	if (truth.duration_ns && reef_random_below(random, 2))
		span_ns = reef_random_below(random, 2 * truth.duration_ns);
	if (fate == FATE_PAUSE) {
		reef_sim_host_pause(host);
		TRY(reef_sleep(span_ns));
		reef_sim_host_resume(host);
	} else if (fate == FATE_KILL && truth.killed < 2) {
		truth.killed++;
		if (actor->holds && truth.fates == FATE_KILL)
			truth.died_ns = pool_now(pool);
		actor->holds = false;
		reef_sim_host_kill(host);
	} else if (fate == FATE_CUT) {
		other = reef_random_below(random, 2)
				? pool->host
				: pool->lenders[reef_random_below(random, 2)]
					  .host;
		reef_sim_partition(host, other, true);
		TRY(reef_sleep(span_ns));
		reef_sim_partition(host, other, false);
	} else if (fate == FATE_BROKER) {
		pool->broker = NULL;
		reef_sim_host_kill(pool->host);
		TRY(reef_sleep(span_ns / 8));
		TRY(reef_sim_host_restart(pool->host, pool_broker_main, pool));
	} else if (fate == FATE_FENCE) {
		TRY(fate_fence(pool, host));
	}
	return 0;
}

static inline int fate_main(struct reef_sim_host *host, void *arg)
{
	struct pool *pool = arg;

	while (!pool->over && pool_now(pool) < truth.ends_ns) {
		TRY(reef_sleep(reef_random_below(reef_sim_random(pool->sim),
						 pool->ttl_ns / 4)));
		if (truth.takes)
			TRY(fate_step(pool));
	}
	return 0;
}

/* --- actors --- */

static inline bool actor_goes_on(const struct actor *actor)
{
	return pool_now(actor->member->pool) < truth.ends_ns &&
	       !actor->member->pool->over;
}

static inline uint64_t actor_below(struct actor *actor, uint64_t bound)
{
	return reef_random_below(&actor->random, bound);
}

/* The text that a session's participants call themselves: one letter. */
static inline void actor_text(uint32_t session, char text[LEASE_TEXT])
{
	memset(text, 'a' + (int)(session % 26), LEASE_TEXT - 1);
	text[LEASE_TEXT - 1] = 0;
}

static inline int actor_open(struct actor *actor)
{
	struct reef_lease_options options = {.duration_ns = truth.duration_ns};
	char text[LEASE_TEXT];
	int rc;

	rc = member_space(actor->member, &actor->space);
	if (!rc && truth.duration_ns) {
		rc = reef_lease_open(actor->space, "lease", &options,
				     &actor->lease);
	} else if (!rc) {
		actor_text(reef_session(actor->member->reef), text);
		rc = reef_election_open(actor->space, "election", 0, text,
					&actor->election);
		if (!rc)
			actor->lease = election_lease(actor->election);
	}
	if (!rc)
		actor->lease->mutant = truth.mutant;
	return rc;
}

static inline void actor_close(struct actor *actor)
{
	actor->holds = false;
	if (actor->election)
		reef_election_close(actor->election);
	else
		reef_lease_close(actor->lease);
	actor->election = NULL;
	actor->lease = NULL;
	reef_space_close(actor->space);
	actor->space = NULL;
}

static inline struct actor *actor_of(struct member *member)
{
	struct actor *actor = &truth.actors[member->number - 1];

	actor->member = member;
	reef_random_init(&actor->random,
			 member->pool->seed * 16 + member->number);
	return actor;
}

static inline bool has_ended(uint32_t session)
{
	uint32_t i;

	for (i = 0; i < truth.ended_count; i++)
		if (truth.ended[i] == session)
			return true;
	return false;
}

/* Nobody else may believe that it holds. */
static inline int actor_alone(struct actor *actor, const char *when)
{
	uint64_t now_ns = pool_now(actor->member->pool);
	uint32_t i;

	if (actor->lease->ended && !has_ended(actor->lease->ended) &&
	    truth.ended_count < 64)
		truth.ended[truth.ended_count++] = actor->lease->ended;
	for (i = 0; i < MEMBERS_MAX; i++) {
		const struct actor *other = &truth.actors[i];

		/* Fenced, and does not know yet: so it does no harm. */
		if (other->lease &&
		    has_ended(lease_session(other->lease->self)))
			continue;
		if (other != actor && other->holds && other->until_ns > now_ns)
			WRONG("%s of %u, while %u holds for %llu ns more", when,
			      actor->member->number, other->member->number,
			      (unsigned long long)(other->until_ns - now_ns));
	}
	return 0;
}

static inline void actor_believes(struct actor *actor)
{
	uint64_t left_ns = reef_lease_left(actor->lease);
	uint64_t real_ns;

	actor->holds = left_ns != 0;
	real_ns = left_ns == UINT64_MAX
			  ? UINT64_MAX / 2
			  : reef_local_clock_wait_ns(reef_fiber_group()->clock,
						     left_ns);
	actor->until_ns = pool_now(actor->member->pool) + real_ns;
}

static inline int actor_took(struct actor *actor, uint64_t token)
{
	/* Fenced on the way back from its call: it will find out. */
	if (token <= truth.token &&
	    has_ended(lease_session(actor->lease->self)))
		return 0;
	if (token <= truth.token)
		WRONG("token %llu after %llu", (unsigned long long)token,
		      (unsigned long long)truth.token);
	truth.token = token;
	truth.takes++;
	/* Lapsed between its last look and our return: it does not hold. */
	actor_believes(actor);
	return actor->holds ? actor_alone(actor, "take") : 0;
}

/* The session has ended: another. */
static inline int actor_rejoin(struct actor *actor)
{
	int rc = -REEF_EFENCED, i;

	truth.fenced++;
	pool_quiet = true; /* the broker may be away */
	for (i = 0; rc && i < 500; i++) {
		actor_close(actor);
		member_leave(actor->member);
		rc = member_join(actor->member);
		if (!rc)
			rc = actor_open(actor);
		if (rc == -REEF_EHOSTDEAD || !actor_goes_on(actor))
			break;
		if (rc && reef_sleep(10 * MILLISECOND))
			rc = -REEF_EHOSTDEAD;
	}
	pool_quiet = truth.is_quiet;
	return rc;
}

static inline int actor_begin(struct actor *actor)
{
	int i, rc = actor_open(actor);

	/* While the links of all nodes are lost at once, nobody lends. */
	for (i = 0; rc == -ENOSPC && i < 100; i++) {
		actor_close(actor);
		if (reef_sleep(10 * MILLISECOND))
			return -REEF_EHOSTDEAD;
		rc = actor_open(actor);
	}
	return rc == -REEF_EFENCED ? actor_rejoin(actor) : rc;
}

/* --- runs --- */

struct lease_run {
	uint64_t seed;
	uint32_t members;
	enum fate fates;
	enum lease_mutant mutant;
	uint64_t duration_ns, lasts_ns, ttl_ns;
	uint32_t lose_link_ppm, drift_max_ppm;
	int (*script)(struct member *member);
	int (*other)(struct member *member); /* the last one's; NULL: script */
};

static inline int lease_run(const struct lease_run *run)
{
	struct pool pool = {
		.ttl_ns = run->ttl_ns,
		/* No cut lasts so long that a node is held for dead. */
		.node_ttl_ns = 4 * SECOND,
		.lose_link_ppm = run->lose_link_ppm,
		.drift_max_ppm = run->drift_max_ppm,
	};
	uint32_t i;
	int rc;

	memset(&truth, 0, sizeof(truth));
	truth.fates = run->fates;
	truth.mutant = run->mutant;
	truth.is_quiet = pool_quiet = run->mutant != LEASE_MUTANT_NONE;
	truth.duration_ns = run->duration_ns;
	truth.ends_ns = run->lasts_ns;
	pool_start(&pool, run->seed);
	for (i = 0; i < run->members; i++)
		pool_add(&pool, run->other && i + 1 == run->members
					? run->other
					: run->script);
	assert_int_equal(
		reef_sim_host_add(pool.sim, "fate", fate_main, &pool, NULL), 0);
	rc = pool_end(&pool);
	if (getenv("REEF_VERBOSE"))
		print_message("seed %llu: %u takes, %u killed, %u fenced\n",
			      (unsigned long long)run->seed, truth.takes,
			      truth.killed, truth.fenced);
	if (truth.wrong[0]) {
		if (!pool_quiet)
			print_message("seed %llu: %s\n",
				      (unsigned long long)run->seed,
				      truth.wrong);
		rc = -EXDEV;
	}
	return rc;
}

/* As many seeds as the test is to take. */
static inline void lease_seeds(struct lease_run run, uint64_t seeds,
			       uint64_t soak)
{
	const char *one = getenv("REEF_SEED");
	uint64_t last = seeds_of(seeds, soak);

	for (run.seed = one ? pool_first_seed() : 1;
	     run.seed <= (one ? pool_first_seed() : last); run.seed++)
		assert_int_equal(lease_run(&run), 0);
}

/* Some seed must find the mutant. */
static inline void lease_find(struct lease_run run, enum lease_mutant mutant,
			      uint64_t seeds)
{
	bool found = false;

	run.mutant = mutant;
	for (run.seed = 1; run.seed <= seeds && !found; run.seed++)
		found = lease_run(&run) == -EXDEV;
	pool_quiet = false;
	if (!found)
		print_message("mutant %d was not found\n", mutant);
	else if (getenv("REEF_VERBOSE"))
		print_message("mutant %d: seed %llu: %s\n", mutant,
			      (unsigned long long)run.seed - 1, truth.wrong);
	assert_true(found);
}

#endif
