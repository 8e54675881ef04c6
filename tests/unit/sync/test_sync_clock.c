/* test_sync_clock.c - times that never go back, in simulation: with nodes that
 * die or are cut off, brokers that restart, clients that are killed or stand
 * still, links that fall, clocks that drift. */
#include "base/clock.h"
#include "base/mutant.h"
#include "fixture/pool_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <reef/sync.h>

#define SEEDS 60

#define LEAD_NS (11 * (1ull << 30))

/* What was told so far, in plain memory: time stands still while a fiber runs.
 */
#define CALLS_MAX 100000
static struct {
	uint64_t given, told; /* the latest, by next and read */
	struct span {
		uint64_t first, last;
	} spans[CALLS_MAX];
	uint32_t count;
} truth;

/* One call, whichever; it has to be later than what others have returned when
 * it begins. */
static int draw(struct reef_clock *clock, uint32_t count)
{
	uint64_t given = truth.given, told = truth.told, first, last;
	int rc;

	rc = reef_clock_next(clock, count, &first);
	if (rc)
		return rc;
	last = first + count - 1;
	WANT(first > given && first > told);
	if (last > truth.given)
		truth.given = last;
	WANT(truth.count < CALLS_MAX);
	truth.spans[truth.count++] = (struct span){first, last};
	return 0;
}

static int look(struct reef_clock *clock)
{
	uint64_t given = truth.given, told = truth.told, now;
	int rc = reef_clock_read(clock, &now);

	if (rc)
		return rc;
	WANT(now > given && now >= told);
	if (now > truth.told)
		truth.told = now;
	return 0;
}

static int compare_spans(const void *a, const void *b)
{
	const struct span *one = a, *other = b;

	return (one->first > other->first) - (one->first < other->first);
}

/* No time was given twice. */
static int check_spans(void)
{
	uint32_t i;

	qsort(truth.spans, truth.count, sizeof(truth.spans[0]), compare_spans);
	for (i = 1; i < truth.count; i++)
		WANT(truth.spans[i].first > truth.spans[i - 1].last);
	return 0;
}

/* What scripts have open: one that failed leaves it to us. */
static struct reef_clock *opened[16];

static void note_open(struct reef_clock *clock)
{
	uint32_t i = 0;

	while (opened[i])
		i++;
	opened[i] = clock;
}

static void close_clock(struct reef_clock *clock)
{
	uint32_t i;

	for (i = 0; i < 16; i++)
		if (opened[i] == clock)
			opened[i] = NULL;
	reef_clock_close(clock);
}

static int run_pool(struct pool *pool, uint64_t seed,
		    int (*const *scripts)(struct member *), uint32_t count)
{
	uint32_t i;
	int rc;

	memset(&truth, 0, sizeof(truth));
	pool_start(pool, seed);
	for (i = 0; i < count; i++)
		pool_add(pool, scripts[i]);
	rc = pool_end(pool);
	for (i = 0; i < 16; i++)
		close_clock(opened[i]);
	return rc ? rc : check_spans();
}

static void run(int (*first)(struct member *), int (*second)(struct member *))
{
	int (*const scripts[])(struct member *) = {first, second};
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {0};

		assert_int_equal(run_pool(&pool, seed, scripts, second ? 2 : 1),
				 0);
	}
}

static int open_clock(struct member *member, struct reef_space **space,
		      struct reef_clock **clock)
{
	TRY(member_space(member, space));
	TRY(reef_clock_open(*space, "c", 0, clock));
	note_open(*clock);
	return 0;
}

static int wait_for(struct member *member, uint64_t note)
{
	while (member->pool->note[0] < note)
		TRY(reef_sleep(MILLISECOND / 4));
	return 0;
}

/* --- alone --- */

/* Hosts' clocks are set with an error of up to 100 ms, and drift. */
static bool is_near(uint64_t time_ns, uint64_t ahead_ns)
{
	uint64_t wall_ns = reef_wall_ns();

	return time_ns + 300 * MILLISECOND > wall_ns &&
	       time_ns < wall_ns + ahead_ns + 300 * MILLISECOND;
}

static int alone(struct member *member)
{
	struct reef_clock *clock, *other;
	struct reef_space *space;
	uint64_t first, second, now, value;
	uint32_t i;

	TRY(member_space(member, &space));
	WANT_RC(reef_clock_open(space, "c", REEF_SYNC_EXISTING, &clock),
		-ENOENT);
	WANT_RC(reef_clock_open(space, "", 0, &clock), -EINVAL);
	TRY(open_clock(member, &space, &clock));
	TRY(reef_clock_open(space, "c", REEF_SYNC_EXISTING, &other));
	for (i = 0; i < 200; i++) {
		TRY(reef_clock_next(clock, 3, &first));
		WANT(is_near(first, 0));
		TRY(reef_clock_read(other, &now));
		WANT(now > first + 2);
		TRY(reef_clock_next(other, 1, &second));
		WANT(second > now && is_near(second, 0));
		TRY(reef_sleep(1 + i * i * MILLISECOND / 100));
	}
	/* Long after, a read shows where it stood. */
	TRY(reef_sleep(100 * SECOND));
	TRY(reef_clock_read(clock, &now));
	WANT(now == second + 1);
	TRY(reef_clock_next(clock, 1, &first));
	WANT(is_near(first, 0));
	WANT_RC(reef_clock_next(clock, 0, &first), -EINVAL);
	WANT_RC(reef_sequencer_drop(space, "c"), -EEXIST);
	TRY(reef_name_lookup(space, "c~ceiling", &value, NULL));
	TRY(reef_clock_drop(space, "c"));
	WANT_RC(reef_name_lookup(space, "c~ceiling", &value, NULL), -ENOENT);
	WANT_RC(reef_clock_drop(space, "c"), -ENOENT);
	WANT_RC(reef_clock_next(other, 1, &first), -ENOENT);
	WANT_RC(reef_clock_read(other, &first), -ENOENT);
	close_clock(other);
	close_clock(clock);
	TRY(open_clock(member, &space, &clock));
	TRY(reef_clock_next(clock, 1, &first));
	WANT(is_near(first, 0));
	close_clock(clock);
	reef_clock_close(NULL);
	return 0;
}

static void clock_is_near_the_brokers(void **state)
{
	run(alone, NULL);
}

static int budget(struct member *member)
{
	struct reef_counts before, cost;
	struct reef_space *space;
	struct reef_clock *clock;
	uint64_t first;
	uint32_t i;

	TRY(open_clock(member, &space, &clock));
	TRY(reef_clock_next(clock, 1, &first));
	before = reef_count_read(&member->count);
	for (i = 0; i < 10; i++)
		TRY(reef_clock_next(clock, 1000, &first));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	WANT(cost.faa + cost.cas == 10 && cost.sends == 0);
	/* When it lags: a CAS for it. */
	TRY(reef_sleep(2 * MILLISECOND));
	before = reef_count_read(&member->count);
	TRY(reef_clock_next(clock, 1000, &first));
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	WANT(cost.faa == 0 && cost.cas == 1 && cost.sends == 0);
	close_clock(clock);
	return 0;
}

static void clock_costs_one_atomic(void **state)
{
	run(budget, NULL);
}

/* Two that draw now and then: a CAS that is late, and the FAA. */
static int budget_of_two(struct member *member)
{
	struct reef_counts before, cost;
	struct reef_space *space;
	struct reef_clock *clock;
	uint64_t calls = 0;

	TRY(open_clock(member, &space, &clock));
	before = reef_count_read(&member->count);
	while (calls < 300) {
		TRY(draw(clock, 1));
		calls++;
		TRY(reef_sleep(3 * MILLISECOND));
	}
	cost = reef_count_read(&member->count);
	cost = reef_counts_between(&before, &cost);
	WANT(cost.faa <= calls && cost.faa + cost.cas <= 3 * calls);
	close_clock(clock);
	return 0;
}

static void clock_of_two_costs_one_faa_at_most(void **state)
{
	run(budget_of_two, budget_of_two);
}

/* --- the broker is away --- */

static int without_broker(struct member *member)
{
	struct reef_space *space;
	struct reef_clock *clock;
	uint64_t began_ns;
	uint32_t i;

	TRY(open_clock(member, &space, &clock));
	TRY(draw(clock, 1));
	reef_sim_host_kill(member->pool->host);
	began_ns = reef_now_ns();
	for (i = 0; i < 200; i++) {
		TRY(draw(clock, 1));
		TRY(reef_sleep(10 * MILLISECOND));
	}
	WANT(reef_now_ns() - began_ns < 4 * SECOND);
	TRY(reef_sleep(10 * SECOND));
	TRY(reef_sim_host_restart(member->pool->host, pool_broker_main,
				  member->pool));
	TRY(draw(clock, 1));
	WANT(is_near(truth.given, 0));
	close_clock(clock);
	return 0;
}

static void clock_goes_on_for_a_while_without_broker(void **state)
{
	run(without_broker, NULL);
}

/* --- the node dies --- */

static int both_nodes_die(struct member *member)
{
	struct pool *pool = member->pool;
	uint32_t i;

	for (i = 0; i < NODES; i++) {
		reef_sim_host_kill(pool->lenders[i].host);
		TRY(reef_sim_host_restart(pool->lenders[i].host, pool_node_main,
					  &pool->lenders[i]));
	}
	return 0;
}

static int loses_it(struct member *member)
{
	struct reef_clock *clock, *late;
	struct reef_space *space;
	uint32_t i;

	TRY(open_clock(member, &space, &clock));
	for (i = 0; i < 5; i++) {
		/* Now and then over the ceiling, and not a word of it yet. */
		TRY(draw(clock, i % 2 ? UINT32_MAX : 1));
		TRY(draw(clock, i % 2 ? UINT32_MAX : 1));
		TRY(draw(clock, i % 2 ? UINT32_MAX : 1));
		TRY(both_nodes_die(member));
		if (i % 2)
			TRY(look(clock));
		TRY(draw(clock, 1));
	}
	TRY(both_nodes_die(member));
	TRY(reef_sleep(5 * SECOND));
	/* Whoever opens it mends it, too. */
	TRY(reef_clock_open(space, "c", REEF_SYNC_EXISTING, &late));
	TRY(draw(late, 1));
	TRY(draw(clock, 1));
	close_clock(late);
	close_clock(clock);
	return 0;
}

static void clock_goes_on_after_its_node_died(void **state)
{
	run(loses_it, NULL);
}

static int loses_it_slowly(struct member *member)
{
	struct reef_space *space;
	struct reef_clock *clock;
	uint32_t i;

	TRY(open_clock(member, &space, &clock));
	TRY(reef_sleep(20 * SECOND));
	TRY(draw(clock, 1));
	TRY(both_nodes_die(member));
	TRY(draw(clock, 1));
	WANT(is_near(truth.given, LEAD_NS));
	/* It goes slowly until the time has caught up. */
	for (i = 0; i < 30; i++) {
		TRY(reef_sleep(SECOND));
		TRY(draw(clock, 1));
		WANT(is_near(truth.given, LEAD_NS));
	}
	WANT(is_near(truth.given, 0));
	close_clock(clock);
	return 0;
}

static void clock_comes_back_to_the_time(void **state)
{
	run(loses_it_slowly, NULL);
}

/* One that was dropped when its node was dead, and one dropped half. */
static int dropped_when_lost(struct member *member)
{
	struct reef_space *space;
	struct reef_clock *clock;
	uint64_t generation, value;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		TRY(open_clock(member, &space, &clock));
		TRY(draw(clock, 1));
		TRY(both_nodes_die(member));
		TRY(reef_sleep(5 * SECOND));
		TRY(reef_clock_drop(space, "c"));
		WANT_RC(reef_name_lookup(space, "c~ceiling", &value, NULL),
			-ENOENT);
		WANT_RC(reef_clock_next(clock, 1, &value), -ENOENT);
		close_clock(clock);
		memset(&truth, 0, sizeof(truth));
	}
	TRY(open_clock(member, &space, &clock));
	TRY(draw(clock, UINT32_MAX));
	TRY(reef_name_lookup(space, "c", &value, &generation));
	TRY(reef_name_unbind(space, "c", generation));
	close_clock(clock);
	/* The ceiling is still there, and holds. */
	TRY(open_clock(member, &space, &clock));
	TRY(draw(clock, 1));
	close_clock(clock);
	return 0;
}

static void clock_dropped_after_its_node_died_is_forgotten(void **state)
{
	run(dropped_when_lost, NULL);
}

/* --- the node is cut off --- */

/* Many: seconds, which take it over the ceiling soon. With few it can go on for
 * as long as it may without the broker. */
static uint32_t few_or_many(struct pool *pool)
{
	return pool->seed % 2 && reef_random_chance(reef_sim_random(pool->sim),
						    1, 2)
		       ? UINT32_MAX
		       : 1;
}

/* The broker does not hear from the nodes and holds them for dead, and this
 * client does not hear from the broker; but it hears from them. */
static int on_the_island(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_clock *clock;
	int rc = 0;

	TRY(open_clock(member, &space, &clock));
	TRY(draw(clock, 1));
	pool->note[0] = 1;
	TRY(wait_for(member, 2)); /* the other has it open */
	for (uint32_t i = 0; i < NODES; i++)
		reef_sim_partition(pool->host, pool->lenders[i].host, true);
	reef_sim_partition(pool->host, member->host, true);
	pool->note[0] = 3;
	while (pool->note[0] < 4 && !rc) {
		rc = draw(clock, few_or_many(pool));
		if (rc == -EXDEV)
			break;
		/* -REEF_ENOLINK: the broker is away for too long; then wait
		 * for the other, who mends it all. */
		WANT(!rc || rc == -REEF_ENOLINK);
		rc = 0;
		if (reef_sleep(reef_random_below(reef_sim_random(pool->sim),
						 100 * MILLISECOND)))
			return -REEF_EHOSTDEAD;
	}
	close_clock(clock);
	return rc;
}

static int on_the_mainland(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_clock *clock;
	uint32_t i;
	int rc = 0;

	TRY(wait_for(member, 1));
	TRY(open_clock(member, &space, &clock));
	TRY(draw(clock, 1));
	pool->note[0] = 2;
	TRY(wait_for(member, 3));
	/* A node that is in reach. */
	TRY(reef_sleep(SECOND +
		       reef_random_below(reef_sim_random(pool->sim), SECOND)));
	reef_sim_partition(pool->host, pool->lenders[1].host, false);
	for (i = 0; i < 100 && !rc; i++) {
		rc = draw(clock, few_or_many(pool));
		if (rc == -ENOSPC)
			rc = 0;
		if (!rc)
			rc = reef_sleep(100 * MILLISECOND);
	}
	reef_sim_partition(pool->host, pool->lenders[0].host, false);
	reef_sim_partition(pool->host, pool->members[0].host, false);
	pool->note[0] = 4;
	close_clock(clock);
	TRY(rc);
	return 0;
}

static void clock_of_a_node_that_was_cut_off_is_left_alone(void **state)
{
	int (*const scripts[])(struct member *) = {on_the_island,
						   on_the_mainland};
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.witnesses = WITNESSES_MAX,
		};

		assert_int_equal(run_pool(&pool, seed, scripts, 2), 0);
	}
}

/* --- all at once --- */

/* A new session if need be; whatever is away is waited for. */
static int begin(struct member *member, struct reef_clock **clock)
{
	struct reef_space *space;
	int rc = -REEF_EFENCED;

	while (rc == -REEF_EFENCED || rc == -ENOSPC || rc == -REEF_ELOST) {
		if (reef_health(member->reef) == -REEF_EFENCED) {
			member_leave(member);
			TRY(member_join(member));
		}
		rc = member_space(member, &space);
		if (!rc)
			rc = reef_clock_open(space, "c", 0, clock);
		if (rc && reef_sleep(10 * MILLISECOND))
			return -REEF_EHOSTDEAD;
	}
	if (rc)
		return rc;
	note_open(*clock);
	return 0;
}

/* Draws until the storm is over. */
static int storm_draws(struct member *member)
{
	struct reef_random random = reef_random_split(
		reef_sim_host_random(member->host), member->number);
	struct reef_clock *clock = NULL;
	int rc;

	rc = begin(member, &clock);
	while (!rc && !member->pool->note[7]) {
		if (reef_random_chance(&random, 1, 4))
			rc = look(clock);
		else if (reef_random_chance(&random, 1, 4))
			rc = draw(clock, UINT32_MAX);
		else
			rc = draw(clock, (uint32_t)reef_random_between(
						 &random, 1, 1000));
		if (rc == -REEF_EFENCED) {
			close_clock(clock);
			clock = NULL;
			rc = begin(member, &clock);
		}
		/* Nodes were dead, all of them. */
		if (rc == -ENOSPC)
			rc = 0;
		if (!rc)
			rc = reef_sleep(
				reef_random_chance(&random, 1, 10)
					? reef_random_below(&random, SECOND)
					: reef_random_below(&random,
							    10 * MILLISECOND));
	}
	close_clock(clock);
	TRY(rc);
	return 0;
}

static int trouble(struct member *member, struct reef_random *random)
{
	struct pool *pool = member->pool;
	struct member *other = &pool->members[reef_random_below(random, 2)];
	struct lender *lender =
		&pool->lenders[reef_random_below(random, NODES)];
	uint64_t pause_ns = reef_random_below(random, 2 * SECOND);

	switch (reef_random_below(random, 6)) {
	case 0:
	case 1:
		reef_sim_host_kill(lender->host);
		TRY(reef_sleep(pause_ns));
		TRY(reef_sim_host_restart(lender->host, pool_node_main,
					  lender));
		break;
	case 2:
		reef_sim_host_kill(pool->host);
		TRY(reef_sleep(pause_ns));
		TRY(reef_sim_host_restart(pool->host, pool_broker_main, pool));
		break;
	case 3:
		reef_sim_host_pause(other->host);
		TRY(reef_sleep(pause_ns * 8));
		reef_sim_host_resume(other->host);
		break;
	case 4:
		reef_sim_partition(pool->host, lender->host, true);
		TRY(reef_sleep(pause_ns));
		reef_sim_partition(pool->host, lender->host, false);
		break;
	default:
		reef_sim_partition(pool->host, other->host, true);
		TRY(reef_sleep(pause_ns));
		reef_sim_partition(pool->host, other->host, false);
	}
	return 0;
}

static int storm(struct member *member)
{
	struct reef_random *random = reef_sim_random(member->pool->sim);
	uint32_t i;

	TRY(reef_sleep(reef_random_below(random, SECOND)));
	for (i = 0; i < 5; i++) {
		TRY(trouble(member, random));
		TRY(reef_sleep(reef_random_below(random, SECOND)));
		if (i == 3 && reef_random_chance(random, 1, 2))
			reef_sim_host_kill(member->pool->members[2].host);
	}
	TRY(reef_sleep(10 * SECOND));
	member->pool->note[7] = 1;
	return 0;
}

static int run_storm(uint64_t seed)
{
	int (*const scripts[])(struct member *) = {storm_draws, storm_draws,
						   storm_draws, storm};
	struct pool pool = {
		.lose_link_ppm = seed % 3 ? 0 : 2000,
		.ttl_ns = 2 * SECOND,
		.node_ttl_ns = seed % 2 ? SECOND : 4 * SECOND,
		.witnesses = WITNESSES_MAX,
	};

	return run_pool(&pool, seed, scripts, 4);
}

static void clock_storm_never_turns_it_back(void **state)
{
	uint64_t seed, count = seeds_of(SEEDS, 10000);

	for (seed = seeds_first(); seeds_has(seed, count); seed++)
		assert_int_equal(run_storm(seed), 0);
}

/* --- mutants --- */

#if !SANITIZED
static bool is_found(enum reef_mutant which)
{
	int (*const island[])(struct member *) = {on_the_island,
						  on_the_mainland};
	int (*const lost[])(struct member *) = {loses_it};
	bool found = false;
	uint64_t seed;

	try_quiet = true;
	reef_mutate(which);
	for (seed = seeds_first(); seeds_has(seed, 400) && !found; seed++) {
		struct pool cut = {.ttl_ns = 60 * SECOND,
				   .witnesses = WITNESSES_MAX},
			    pool = {.witnesses = WITNESSES_MAX};

		found = run_pool(&pool, seed, lost, 1) == -EXDEV ||
			run_pool(&cut, seed, island, 2) == -EXDEV ||
			run_storm(seed) == -EXDEV;
	}
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	return found;
}

static void clock_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_CLOCK(REEF_MUTANT_NUMBER)};
	size_t i;

	for (i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++)
		if (!is_found(mutants[i]))
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] =
	{ cmocka_unit_test(clock_is_near_the_brokers),
	  cmocka_unit_test(clock_costs_one_atomic),
	  cmocka_unit_test(clock_of_two_costs_one_faa_at_most),
	  cmocka_unit_test(clock_goes_on_for_a_while_without_broker),
	  cmocka_unit_test(clock_goes_on_after_its_node_died),
	  cmocka_unit_test(clock_comes_back_to_the_time),
	  cmocka_unit_test(clock_dropped_after_its_node_died_is_forgotten),
	  cmocka_unit_test(clock_of_a_node_that_was_cut_off_is_left_alone),
	  cmocka_unit_test(clock_storm_never_turns_it_back),
#if !SANITIZED
	  cmocka_unit_test(clock_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
