/* test_map_story.c - several clients of one map in simulation: histories of
 * their calls, with keys that expire, checked for linearizability; drops while
 * others use it, and droppers that die.
 *
 * Clients know the time only roughly, so the model leaves the moment open at
 * which a key expires: from some milliseconds before its time by the clock of
 * whoever finds it gone, to some after it by the clock of whoever finds it
 * there. What it does not leave open: once somebody has found it gone, it is
 * gone for everybody. */
#include "base/mutant.h"
#include "check/linear.h"
#include "fixture/pool_world.h"
#include "kv/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GET = 1, PUT, PUT_BRIEFLY, INSERT, UPDATE, REMOVE, ADD, EXPIRE, KINDS };

#define OPS_MAX 4096
#define APART_MS 5 /* clocks of two clients */

static struct {
	struct linear_op ops[OPS_MAX];
	size_t count;
	uint64_t clock;
	uint32_t keys, rounds;
	bool expiring;
} story;

/* arguments: the value, when it is to expire, the time when it was called.
 * results: was it there, the value, the time when it returned. */
static bool model_step(const uint64_t state[LINEAR_STATE],
		       const struct linear_op *op, uint64_t next[LINEAR_STATE])
{
	bool known = op->returned_at != LINEAR_NEVER, there = state[0];
	uint64_t expires = state[2];

	memcpy(next, state, LINEAR_STATE * sizeof(*next));
	if (known && there && op->results[0] != there) {
		if (!expires || op->results[2] + APART_MS < expires)
			return false;
		memset(next, 0, LINEAR_STATE * sizeof(*next));
		there = false;
	}
	if (known && op->results[0] != there)
		return false;
	if (known && there && expires && op->arguments[2] >= expires + APART_MS)
		return false;
	if (known && there && (op->kind == GET || op->kind == ADD) &&
	    op->results[1] != next[1])
		return false;
	if (op->kind == REMOVE) {
		memset(next, 0, LINEAR_STATE * sizeof(*next));
	} else if (op->kind == ADD) {
		next[0] = 1;
		next[1] += op->arguments[0];
	} else if (op->kind == EXPIRE && there) {
		next[2] = op->arguments[1];
	} else if (op->kind == PUT || op->kind == PUT_BRIEFLY ||
		   (op->kind == INSERT && !there) ||
		   (op->kind == UPDATE && there)) {
		next[0] = 1;
		next[1] = op->arguments[0];
		next[2] = op->arguments[1];
	}
	return true;
}

struct call {
	struct linear_op *op;
	char text[24];
	uint64_t now_value;
	bool was_there;
};

/* One decide that tells what there was, as the model wants to know. */
static int decide(void *context, const struct reef_map_entry *now,
		  struct reef_map_entry *put)
{
	struct call *call = context;
	const struct linear_op *op = call->op;
	uint64_t value = op->arguments[0];
	char number[24] = {0};

	call->was_there = now;
	if (now)
		memcpy(number, now->value, now->value_size);
	call->now_value = strtoull(number, NULL, 10);
	if (op->kind == REMOVE)
		return REEF_MAP_DELETE;
	if ((op->kind == INSERT && now) ||
	    ((op->kind == UPDATE || op->kind == EXPIRE) && !now))
		return REEF_MAP_LEAVE;
	if (op->kind == EXPIRE)
		value = call->now_value;
	if (op->kind == ADD)
		value += call->now_value;
	put->value_size = (size_t)snprintf(call->text, sizeof(call->text),
					   "%llu", (unsigned long long)value);
	put->value = call->text;
	put->expires_ms = op->kind == ADD ? (now ? now->expires_ms : 0)
					  : op->arguments[1];
	return REEF_MAP_PUT;
}

static int do_get(struct reef_map *map, struct linear_op *op)
{
	struct reef_map_value value = {0};
	char number[24] = {0};
	int rc = reef_map_get(map, &op->key, 8, &value);

	if (!rc && value.size)
		memcpy(number, value.bytes, value.size);
	op->results[0] = !rc;
	op->results[1] = strtoull(number, NULL, 10);
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static int do_change(struct reef_map *map, struct linear_op *op)
{
	struct call call = {.op = op};
	struct reef_map_change change = {
		.key = &op->key,
		.key_size = 8,
		.decide = decide,
		.context = &call,
	};
	int rc = reef_map_apply(map, &change);

	op->results[0] = call.was_there;
	op->results[1] = call.now_value;
	return rc;
}

/* Errors after which nobody knows. */
static bool is_unknown(int rc)
{
	return rc == -REEF_EINDOUBT || rc == -REEF_EHOSTDEAD ||
	       rc == -REEF_EFENCED;
}

static int one_op(struct reef_map *map, struct reef_random *random,
		  uint32_t client)
{
	struct linear_op *op;
	uint64_t now = 0;
	size_t at = story.count++;
	int rc;

	WANT(at < OPS_MAX);
	op = &story.ops[at];
	TRY(reef_map_now(map, &now));
	*op = (struct linear_op){
		.key = reef_random_below(random, story.keys),
		.client = client,
		.kind = 1 + (uint32_t)reef_random_below(random, KINDS - 1),
		.arguments = {1 + at, 0, now},
		.called_at = ++story.clock,
		.returned_at = LINEAR_NEVER,
	};
	if (story.expiring && (op->kind == PUT_BRIEFLY || op->kind == EXPIRE))
		op->arguments[1] = now + 1 + reef_random_below(random, 6);
	rc = op->kind == GET ? do_get(map, op) : do_change(map, op);
	if (is_unknown(rc))
		return rc == -REEF_EINDOUBT ? 0 : rc;
	TRY(rc);
	TRY(reef_map_now(map, &op->results[2]));
	op->returned_at = ++story.clock;
	return 0;
}

static int play(struct member *member)
{
	struct reef_random random;
	struct reef_space *space;
	struct reef_map *map;
	uint32_t i;
	int rc = 0;

	reef_random_init(&random, member->pool->seed * 8 + member->number);
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	for (i = 0; i < story.rounds && !rc; i++) {
		if (story.expiring && reef_random_chance(&random, 1, 4))
			rc = reef_sleep(
				reef_random_below(&random, 2 * MILLISECOND));
		if (!rc)
			rc = one_op(map, &random, member->number);
	}
	reef_map_close(map);
	return rc;
}

static int check_story(void)
{
	const struct linear_model model = {.step = model_step};
	struct linear_result result;
	int rc = linear_check(&model, story.ops, story.count, 0, &result);
	size_t i;

	if (rc || result.verdict == LINEAR_YES)
		return rc;
	for (i = 0; i < story.count && !try_quiet; i++) {
		const struct linear_op *op = &story.ops[i];

		if (op->key != result.key)
			continue;
		print_message("%zu: client %u kind %u (%llu, %llu) at %llu -> "
			      "%llu %llu at %llu  %llu..%lld\n",
			      i, op->client, op->kind,
			      (unsigned long long)op->arguments[0],
			      (unsigned long long)op->arguments[1],
			      (unsigned long long)op->arguments[2],
			      (unsigned long long)op->results[0],
			      (unsigned long long)op->results[1],
			      (unsigned long long)op->results[2],
			      (unsigned long long)op->called_at,
			      (long long)op->returned_at);
	}
	return -EXDEV;
}

static int reaper(struct member *member)
{
	struct reef_random random;

	reef_random_init(&random, member->pool->seed);
	TRY(reef_sleep(reef_random_below(&random, 5 * MILLISECOND)));
	reef_sim_host_kill(member->pool->members[1].host);
	return 0;
}

struct plot {
	uint32_t keys, rounds;
	bool expiring, death;
	uint32_t lose_link_ppm;
};

static int run_plot(const struct plot *plot, uint64_t seed)
{
	struct pool pool = {
		.lose_link_ppm = plot->lose_link_ppm,
		.drift_max_ppm = plot->expiring ? 20000 : 0,
	};
	uint32_t i;
	int rc;

	memset(&story, 0, sizeof(story));
	story.keys = plot->keys;
	story.rounds = plot->rounds;
	story.expiring = plot->expiring;
	map_tables = (struct hash_options){.groups = 2, .seed = seed};
	pool_start(&pool, seed);
	for (i = 0; i < 3; i++)
		pool_add(&pool, play);
	if (plot->death)
		pool_add(&pool, reaper);
	rc = pool_end(&pool);
	map_tables = (struct hash_options){0};
	return rc ? rc : check_story();
}

static void run_plots(const struct plot *plot)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 8 * POOL_SEEDS); seed++)
		assert_int_equal(run_plot(plot, seed), 0);
}

static void map_calls_of_several_are_linearizable(void **state)
{
	const struct plot plot = {.keys = 4, .rounds = 150};

	(void)state;
	run_plots(&plot);
}

static void map_death_of_a_client_is_linearizable(void **state)
{
	const struct plot plot = {.keys = 60, .rounds = 150, .death = true};

	(void)state;
	run_plots(&plot);
}

static void map_lost_links_are_linearizable(void **state)
{
	const struct plot plot = {
		.keys = 40,
		.rounds = 150,
		.lose_link_ppm = 500,
	};

	(void)state;
	run_plots(&plot);
}

static const struct plot brief = {.keys = 3, .rounds = 150, .expiring = true};

static void map_keys_that_expire_are_linearizable(void **state)
{
	(void)state;
	run_plots(&brief);
}

static void map_expiry_by_own_clocks_alone_is_found(void **state)
{
	bool found = false;
	uint64_t seed;

	(void)state;
	try_quiet = true;
	reef_mutate(REEF_MUTANT_MAP_NO_REMOVE);
	for (seed = seeds_first(); seeds_has(seed, 100) && !found; seed++)
		found = run_plot(&brief, seed) != 0;
	reef_mutate(REEF_MUTANT_NONE);
	try_quiet = false;
	print_message("at seed %llu\n", (unsigned long long)seed - 1);
	assert_true(found);
}

/* --- drops --- */

#define FILLED 300u
enum { READY, DROPPED }; /* of note[] */

static int number_call(struct reef_map *map, uint64_t key, uint32_t kind)
{
	struct linear_op op = {.key = key, .kind = kind, .arguments = {key}};

	return kind == GET ? do_get(map, &op) : do_change(map, &op);
}

/* Goes on until it is told; from when the drop has returned, at once. */
static int user(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_map *map;
	struct reef_random random;
	bool dropped;
	uint64_t count;
	int rc;

	reef_random_init(&random, pool->seed * 8 + member->number);
	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	pool->note[READY]++;
	do {
		dropped = pool->note[DROPPED];
		rc = number_call(map, reef_random_below(&random, 2 * FILLED),
				 1 + (uint32_t)reef_random_below(&random, ADD));
		WANT(!rc || rc == -REEF_EDROPPED);
		WANT(rc || !dropped);
	} while (!rc);
	while (!pool->note[DROPPED])
		TRY(reef_sleep(MILLISECOND));
	WANT_RC(number_call(map, 1, GET), -REEF_EDROPPED);
	WANT_RC(number_call(map, 1, PUT), -REEF_EDROPPED);
	WANT_RC(reef_map_count(map, &count), -REEF_EDROPPED);
	reef_map_close(map);
	return 0;
}

static int dropper(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t i;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(reef_map_open(space, "m", NULL, &map));
	for (i = 0; i < FILLED && !rc; i++)
		rc = number_call(map, i, PUT);
	while (!rc && pool->note[READY] < 2)
		rc = reef_sleep(MILLISECOND);
	reef_map_close(map);
	TRY(rc);
	pool->note[READY]++;
	rc = reef_map_drop(space, "m");
	/* Another was told to go on with it. */
	TRY(rc == -ENOENT ? 0 : rc);
	pool->note[DROPPED] = 1;
	return 0;
}

/* Whoever opens it afterwards has a new one. */
static int heir(struct member *member)
{
	struct pool *pool = member->pool;
	struct reef_random random;
	struct reef_space *space;
	struct reef_map *map;
	uint64_t count;

	reef_random_init(&random, pool->seed);
	while (pool->note[READY] < 3)
		TRY(reef_sleep(MILLISECOND / 10));
	if (pool->note[2]) {
		TRY(reef_sleep(reef_random_below(&random, 8 * MILLISECOND)));
		reef_sim_host_kill(pool->members[1].host);
	}
	TRY(reef_sleep(reef_random_below(&random, 10 * MILLISECOND)));
	TRY(member_space(member, &space));
	while (!pool->note[2] && !pool->note[DROPPED])
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_map_open(space, "m", NULL, &map));
	TRY(reef_map_count(map, &count));
	/* It died before it had said that it is to be dropped. */
	if (pool->note[2] && !pool->note[DROPPED] && count) {
		TRY(reef_map_drop(space, "m"));
		WANT_RC(reef_map_count(map, &count), -REEF_EDROPPED);
		reef_map_close(map);
		TRY(reef_map_open(space, "m", NULL, &map));
		TRY(reef_map_count(map, &count));
	}
	WANT(count == 0);
	pool->note[DROPPED] = 1;
	TRY(number_call(map, 1, PUT));
	TRY(reef_map_count(map, &count));
	WANT(count == 1);
	reef_map_close(map);
	return 0;
}

static void run_drops(bool death)
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, 4 * POOL_SEEDS); seed++) {
		struct pool pool = {.note = {[2] = death}};
		int rc;

		map_tables = (struct hash_options){.groups = 2, .seed = seed};
		pool_start(&pool, seed);
		pool_add(&pool, user);
		pool_add(&pool, dropper);
		pool_add(&pool, user);
		pool_add(&pool, heir);
		rc = pool_end(&pool);
		map_tables = (struct hash_options){0};
		assert_int_equal(rc, 0);
	}
}

static void map_drop_tells_everybody(void **state)
{
	(void)state;
	run_drops(false);
}

static void map_drop_whose_caller_dies_is_finished(void **state)
{
	(void)state;
	run_drops(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(map_calls_of_several_are_linearizable),
		cmocka_unit_test(map_death_of_a_client_is_linearizable),
		cmocka_unit_test(map_lost_links_are_linearizable),
		cmocka_unit_test(map_keys_that_expire_are_linearizable),
		cmocka_unit_test(map_expiry_by_own_clocks_alone_is_found),
		cmocka_unit_test(map_drop_tells_everybody),
		cmocka_unit_test(map_drop_whose_caller_dies_is_finished),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
