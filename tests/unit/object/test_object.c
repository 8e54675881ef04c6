/* test_object.c - named objects: made once, opened by all, dropped, lost with
 * their node, left behind by makers that die. */
#include "fixture/pool_world.h"
#include "object/object.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KIND OBJECT_SEQUENCER

static const uint64_t start_word = 4711;

static const struct object_shape shape = {
	.kind = KIND,
	.format = 3,
	.limits = {1, 2, 3, 4, 5, 6},
	.body_size = 640,
	.start = &start_word,
	.start_size = 8,
};

static void run(int (*first)(struct member *), int (*second)(struct member *))
{
	pool_run_lossy(0, first, second);
}

static int wait_for(struct member *member, uint64_t note)
{
	while (member->pool->note[0] < note)
		TRY(reef_sleep(MILLISECOND / 4));
	return 0;
}

/* --- opening --- */

static int make_and_open(struct member *member)
{
	struct object one, other;
	struct reef_space *space;
	uint64_t body[80], size;
	char long_name[OBJECT_NAME_MAX + 2];
	uint32_t i;

	TRY(member_space(member, &space));
	WANT_RC(object_open(space, "x", &shape, OBJECT_EXISTING, &one),
		-ENOENT);
	TRY(object_open(space, "x", &shape, 0, &one));
	TRY(object_open(space, "x", &shape, OBJECT_EXISTING, &other));
	WANT(one.block == other.block && one.generation == other.generation);
	WANT(one.body == one.block + OBJECT_BODY && one.body_size == 640);
	WANT(other.limits[0] == 1 && other.limits[5] == 6);
	TRY(reef_block_size(space, one.block, &size));
	WANT(size >= OBJECT_BODY + 640);
	TRY(reef_read(member->reef, one.body, body, sizeof(body)));
	WANT(body[0] == 4711);
	for (i = 1; i < 80; i++)
		WANT(body[i] == 0);
	/* It is kept. */
	WANT_RC(reef_keep(space, one.block), -EALREADY);
	WANT_RC(object_open(space, "", &shape, 0, &one), -EINVAL);
	WANT_RC(object_open(space, NULL, &shape, 0, &one), -EINVAL);
	WANT_RC(object_open(space, "x", &shape, 2, &one), -EINVAL);
	memset(long_name, 'n', sizeof(long_name));
	long_name[OBJECT_NAME_MAX + 1] = 0;
	WANT_RC(object_open(space, long_name, &shape, 0, &one), -ENAMETOOLONG);
	long_name[OBJECT_NAME_MAX] = 0;
	TRY(object_open(space, long_name, &shape, 0, &one));
	TRY(object_drop(space, long_name, KIND, NULL));
	return 0;
}

static void object_is_made_once(void **state)
{
	run(make_and_open, NULL);
}

static int wrong_things(struct member *member)
{
	struct object_shape other = shape;
	struct reef_space *space;
	struct object object;
	uint64_t block, zero[64] = {0};

	TRY(member_space(member, &space));
	TRY(object_open(space, "x", &shape, 0, &object));
	other.kind = OBJECT_LOCK;
	WANT_RC(object_open(space, "x", &other, 0, &object), -EEXIST);
	WANT_RC(object_drop(space, "x", OBJECT_LOCK, NULL), -EEXIST);
	other = shape;
	other.format++;
	WANT_RC(object_open(space, "x", &other, 0, &object), -REEF_EVERSION);
	/* A number that is no address, and a block that is no object. */
	TRY(reef_name_bind(space, "number", 77, NULL));
	WANT_RC(object_open(space, "number", &shape, 0, &object), -EEXIST);
	WANT_RC(object_drop(space, "number", KIND, NULL), -EEXIST);
	TRY(reef_alloc(space, sizeof(zero), &block));
	TRY(reef_write(member->reef, block, zero, sizeof(zero)));
	TRY(reef_name_bind(space, "block", block, NULL));
	WANT_RC(object_open(space, "block", &shape, 0, &object), -EEXIST);
	WANT_RC(object_drop(space, "block", KIND, NULL), -EEXIST);
	TRY(reef_name_lookup(space, "block", NULL, NULL));
	return 0;
}

static void object_of_another_kind_is_refused(void **state)
{
	run(wrong_things, NULL);
}

static int drops(struct member *member)
{
	struct object one, dropped, next;
	struct reef_space *space;
	uint64_t word;

	TRY(member_space(member, &space));
	WANT_RC(object_drop(space, "x", KIND, NULL), -ENOENT);
	TRY(object_open(space, "x", &shape, 0, &one));
	TRY(object_drop(space, "x", KIND, &dropped));
	WANT(dropped.block == one.block && dropped.body == one.body);
	WANT_RC(object_drop(space, "x", KIND, NULL), -ENOENT);
	WANT_RC(object_drop(space, "", KIND, NULL), -EINVAL);
	TRY(object_open(space, "x", &shape, 0, &next));
	/* Who has the old one open can harm nobody. */
	WANT(next.block != one.block && next.generation > one.generation);
	TRY(reef_faa(member->reef, one.body, 1, &word));
	TRY(reef_read(member->reef, next.body, &word, 8));
	WANT(word == 4711);
	return 0;
}

static void object_dropped_is_forgotten(void **state)
{
	run(drops, NULL);
}

/* --- several at once --- */

#define ROUNDS 30

/* Both open, count, and one drops: note[2 + number] says how far they are. */
static int race(struct member *member)
{
	uint64_t *mine = &member->pool->note[1 + member->number];
	uint64_t *other = &member->pool->note[4 - member->number];
	struct object object;
	struct reef_space *space;
	uint64_t word;
	char name[16];
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	for (i = 1; i <= ROUNDS; i++) {
		snprintf(name, sizeof(name), "race%u", i);
		TRY(object_open(space, name, &shape, 0, &object));
		do
			rc = reef_faa(member->reef, object.body, 1000, NULL);
		while (rc == -REEF_EINDOUBT);
		TRY(rc);
		*mine = i;
		while (*other < i)
			TRY(reef_sleep(MILLISECOND / 10));
		/* Both counted in one. */
		TRY(reef_read(member->reef, object.body, &word, 8));
		WANT(word >= 2000 + 4711 && word % 1000 == 711);
	}
	return 0;
}

static void object_of_two_makers_is_one(void **state)
{
	run(race, race);
}

static void object_is_made_while_links_fall(void **state)
{
	pool_run_lossy(20000, race, race);
}

static int opens_and_drops(struct member *member)
{
	struct reef_random *random = reef_sim_host_random(member->host);
	struct object object;
	struct reef_space *space;
	uint32_t i;
	int rc;

	TRY(member_space(member, &space));
	for (i = 0; i < 60; i++) {
		if (reef_random_chance(random, 1, 2)) {
			TRY(object_open(space, "x", &shape, 0, &object));
			WANT(object.body_size == 640);
			continue;
		}
		rc = object_drop(space, "x", KIND, NULL);
		WANT(!rc || rc == -ENOENT);
	}
	return 0;
}

static void object_is_made_and_dropped_by_many(void **state)
{
	run(opens_and_drops, opens_and_drops);
}

/* --- death --- */

static int dying_maker(struct member *member)
{
	struct object object;
	struct reef_space *space;
	char name[16];
	uint32_t i;

	TRY(member_space(member, &space));
	member->pool->note[0] = 1;
	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof(name), "x%u", i);
		TRY(object_open(space, name, &shape, 0, &object));
	}
	return 0;
}

/* Whatever is bound is an object, and stays one while we use up all memory
 * that came back. */
static int check_objects(struct member *member, struct reef_space *space,
			 uint32_t count)
{
	uint64_t block, rubbish[128];
	struct object object;
	uint64_t word;
	char name[16];
	uint32_t i;

	memset(rubbish, 0xee, sizeof(rubbish));
	for (i = 0; i < 500; i++) {
		TRY(reef_alloc(space, sizeof(rubbish), &block));
		TRY(reef_write(member->reef, block, rubbish, sizeof(rubbish)));
	}
	for (i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "x%u", i);
		TRY(object_open(space, name, &shape, OBJECT_EXISTING, &object));
		TRY(reef_read(member->reef, object.body, &word, 8));
		WANT(word == 4711);
	}
	return 0;
}

/* Kills it as soon as name number `last` is bound: so after the bind, of which
 * it has not even heard, and before the keep. */
static int kills_maker(struct member *member)
{
	uint32_t last = (uint32_t)reef_random_below(
		reef_sim_host_random(member->host), 20);
	enum reef_session_view view = REEF_VIEW_ALIVE;
	struct reef_space *space;
	uint32_t session;
	char name[16];
	int rc;

	TRY(member_space(member, &space));
	TRY(wait_for(member, 1));
	session = reef_session(member->pool->members[0].reef);
	snprintf(name, sizeof(name), "x%u", last);
	while ((rc = reef_name_lookup(space, name, NULL, NULL)) == -ENOENT)
		;
	reef_sim_host_kill(member->pool->members[0].host);
	TRY(rc);
	while (view != REEF_VIEW_ENDED) {
		TRY(reef_sleep(MILLISECOND));
		TRY(reef_session_check(member->reef, session, &view));
	}
	TRY(reef_sleep(10 * SECOND)); /* recovered, and its blocks reusable */
	return check_objects(member, space, last + 1);
}

static void object_outlives_its_maker(void **state)
{
	run(dying_maker, kills_maker);
}

/* --- lost nodes --- */

/* The broker goes on when all of them are lost. */
static void run_witnessed(int (*first)(struct member *),
			  int (*second)(struct member *))
{
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, POOL_SEEDS); seed++) {
		struct pool pool = {.witnesses = WITNESSES_MAX};

		pool_start(&pool, seed);
		pool_add(&pool, first);
		if (second)
			pool_add(&pool, second);
		pool_finish(&pool);
	}
}

static int on_lost_node(struct member *member)
{
	struct object object, old;
	struct reef_space *space;
	int rc = 0;

	TRY(member_space(member, &space));
	TRY(object_open(space, "x", &shape, 0, &object));
	TRY(object_open(space, "y", &shape, 0, &old));
	member->pool->note[0] = 1;
	TRY(wait_for(member, 2)); /* the other one has them open */
	reef_sim_host_kill(member->pool->lenders[0].host);
	reef_sim_host_kill(member->pool->lenders[1].host);
	TRY(reef_sim_host_restart(member->pool->lenders[0].host, pool_node_main,
				  &member->pool->lenders[0]));
	while (!rc) {
		TRY(reef_sleep(100 * MILLISECOND));
		rc = object_open(space, "x", &shape, 0, &object);
	}
	WANT(rc == -REEF_ELOST);
	/* Dropped, and made anew. */
	TRY(object_drop(space, "x", KIND, &object));
	WANT(!object.block && object.generation);
	TRY(member_await_room(space));
	TRY(object_open(space, "x", &shape, 0, &object));
	WANT_RC(reef_faa(member->reef, object.body, 1, NULL), 0);
	member->pool->note[0] = 3;
	/* Both replace. */
	TRY(object_replace(&old, "y", &shape));
	TRY(reef_faa(member->reef, old.body, 1, NULL));
	member->pool->note[1] = old.block;
	TRY(wait_for(member, 4));
	return 0;
}

static int replaces_too(struct member *member)
{
	struct object object;
	struct reef_space *space;
	uint64_t word = 0;

	TRY(member_space(member, &space));
	TRY(wait_for(member, 1));
	TRY(object_open(space, "y", &shape, 0, &object));
	member->pool->note[0] = 2;
	TRY(wait_for(member, 3));
	TRY(object_replace(&object, "y", &shape));
	while (!member->pool->note[1])
		TRY(reef_sleep(MILLISECOND));
	WANT(object.block == member->pool->note[1]);
	TRY(reef_read(member->reef, object.body, &word, 8));
	WANT(word == 4712);
	TRY(object_drop(space, "y", KIND, NULL));
	WANT_RC(object_replace(&object, "y", &shape), -ENOENT);
	member->pool->note[0] = 4;
	return 0;
}

static void object_lost_is_replaced_once(void **state)
{
	run_witnessed(on_lost_node, replaces_too);
}

/* The one that took its place is lost, too. */
static int lost_again(struct member *member)
{
	struct reef_sim_host *host = member->pool->lenders[0].host;
	struct object object, stale;
	struct reef_space *space;
	uint64_t word;
	uint32_t i;
	int rc;

	reef_sim_host_kill(member->pool->lenders[1].host);
	TRY(reef_sleep(5 * SECOND));
	TRY(member_space(member, &space));
	TRY(object_open(space, "x", &shape, 0, &object));
	stale = object;
	for (i = 0; i < 3; i++) {
		reef_sim_host_kill(host);
		TRY(reef_sim_host_restart(host, pool_node_main,
					  &member->pool->lenders[0]));
		while ((rc = reef_read(member->reef, object.body, &word, 8)) !=
		       -REEF_ELOST) {
			WANT(!rc || rc == -REEF_ENOLINK);
			TRY(reef_sleep(10 * MILLISECOND));
		}
		TRY(member_await_room(space));
		if (i < 2)
			TRY(object_replace(&object, "x", &shape));
	}
	TRY(object_replace(&stale, "x", &shape));
	TRY(reef_read(member->reef, stale.body, &word, 8));
	WANT(word == 4711);
	return 0;
}

static void object_lost_twice_is_replaced(void **state)
{
	run_witnessed(lost_again, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(object_is_made_once),
		cmocka_unit_test(object_of_another_kind_is_refused),
		cmocka_unit_test(object_dropped_is_forgotten),
		cmocka_unit_test(object_of_two_makers_is_one),
		cmocka_unit_test(object_is_made_while_links_fall),
		cmocka_unit_test(object_is_made_and_dropped_by_many),
		cmocka_unit_test(object_outlives_its_maker),
		cmocka_unit_test(object_lost_is_replaced_once),
		cmocka_unit_test(object_lost_twice_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
