/* test_client_flap.c - fibers of a client whose links come and go, with a
 * broker and nodes that do: what each of them is told of its changes is how the
 * words are, and stay. */
#include "fixture/pool_world.h"

#include "fabric/provider.h"

#include <stdlib.h>
#include <string.h>

#define FIBERS 4
#define WORDS 3 /* of each fiber */
#define ROUNDS 12
#define LATE (17 * SECOND)

/* Simulated hosts share this memory. */
struct chain {
	struct member *member;
	struct reef_fiber *fiber;
	uint64_t words[WORDS];
	uint64_t value[WORDS]; /* what the word is known to be */
	uint64_t next;
	int rc;
};

static struct {
	struct chain chains[FIBERS];
	struct member *reader;
	bool is_ready, is_over;
	uint32_t done, settled, timeouts, unchanged;
} scene;

static uint64_t draw(const struct member *member, uint64_t below)
{
	return reef_random_below(reef_sim_random(member->pool->sim), below);
}

/* --- the reader, which is never cut off --- */

struct look {
	uint64_t address, first, then;
	int rc;
	bool is_asked, is_done;
};

static struct look looks[FIBERS * WORDS];

static int look_twice(void *arg)
{
	struct look *look = arg;

	look->rc =
		reef_read(scene.reader->reef, look->address, &look->first, 8);
	if (!look->rc)
		look->rc = reef_sleep(LATE);
	if (!look->rc)
		look->rc = reef_read(scene.reader->reef, look->address,
				     &look->then, 8);
	look->is_done = true;
	return 0;
}

static int reads(struct member *member)
{
	struct reef_space *space;
	uint32_t i, j;

	scene.reader = member;
	TRY(member_space(member, &space));
	for (i = 0; i < FIBERS; i++)
		for (j = 0; j < WORDS; j++) {
			uint64_t zero = 0, *at = &scene.chains[i].words[j];

			TRY(reef_alloc(space, 2 * MIB, at));
			TRY(reef_write(member->reef, *at, &zero, 8));
			TRY(reef_keep(space, *at));
		}
	scene.is_ready = true;
	while (!scene.is_over) {
		for (i = 0; i < FIBERS * WORDS; i++)
			if (looks[i].is_asked) {
				looks[i].is_asked = false;
				TRY(reef_fiber_spawn(reef_fiber_sched(),
						     look_twice, &looks[i],
						     NULL));
			}
		TRY(reef_sleep(100000));
	}
	return 0;
}

/* --- the writer --- */

/* Have the reader look at the words of a call, now and when nothing of it can
 * happen any more; they are as the call said. */
static int check_words(struct chain *chain, const struct reef_access *accesses,
		       const uint64_t *wanted)
{
	uint32_t base = (uint32_t)(chain - scene.chains) * WORDS, i;

	for (i = 0; i < WORDS; i++) {
		looks[base + i] = (struct look){.address = chain->words[i]};
		looks[base + i].is_asked = true;
	}
	/* All of them, as the reader goes when one was wrong. */
	for (i = 0; i < WORDS; i++)
		while (!looks[base + i].is_done)
			TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < WORDS; i++) {
		const struct look *look = &looks[base + i];

		TRY(look->rc);
		switch (accesses[i].status) {
		case 0:
			scene.done++;
			WANT(look->first == wanted[i]);
			WANT(look->then == wanted[i]);
			break;
		case -REEF_EINDOUBT:
			scene.settled++;
			WANT(look->first == look->then);
			WANT(look->first == wanted[i] ||
			     look->first == chain->value[i]);
			break;
		case -ETIMEDOUT:
			scene.timeouts++;
			WANT(look->then == wanted[i] ||
			     look->then == chain->value[i]);
			break;
		case -REEF_ENOLINK:
		case -REEF_ENOTDONE:
			scene.unchanged++;
			WANT(look->first == chain->value[i]);
			WANT(look->then == chain->value[i]);
			break;
		default:
			TRY(accesses[i].status);
		}
		chain->value[i] = look->then;
	}
	return 0;
}

/* Change words to values that they never had, by calls of WRITE, CAS and FAA.
 */
static int write_chain(struct chain *chain)
{
	struct member *member = chain->member;
	struct reef_access accesses[WORDS];
	uint64_t wanted[WORDS];

	for (uint32_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 0; i < WORDS; i++) {
			wanted[i] = ++chain->next;
			accesses[i] = (struct reef_access){
				.kind = REEF_WRITE,
				.address = chain->words[i],
				.local = &wanted[i],
				.length = 8,
				.compare = chain->value[i],
				.operand = wanted[i],
			};
			if (!i) /* one word is for WRITEs alone */
				continue;
			accesses[i].kind =
				draw(member, 2) ? REEF_CAS : REEF_FAA;
			if (accesses[i].kind == REEF_FAA)
				accesses[i].operand -= chain->value[i];
		}
		reef_enter(member->reef);
		reef_execute(member->reef, accesses, WORDS);
		reef_leave(member->reef);
		TRY(check_words(chain, accesses, wanted));
	}
	return 0;
}

static int run_chain(void *arg)
{
	struct chain *chain = arg;

	chain->rc = write_chain(chain);
	return 0;
}

static int writes(struct member *member)
{
	struct reef_space *space;
	uint32_t i;
	int rc = 0;

	TRY(member_space(member, &space));
	while (!scene.is_ready && !member->pool->over)
		TRY(reef_sleep(MILLISECOND));
	for (i = 0; i < FIBERS; i++) {
		scene.chains[i].member = member;
		TRY(reef_fiber_spawn(reef_fiber_sched(), run_chain,
				     &scene.chains[i], &scene.chains[i].fiber));
	}
	for (i = 0; i < FIBERS; i++) {
		reef_fiber_join(scene.chains[i].fiber, NULL);
		rc = rc ? rc : scene.chains[i].rc;
	}
	scene.is_over = true;
	return rc;
}

/* --- what goes wrong --- */

/* Cut, or mend, the network between a host and all nodes. */
static void cut_off(struct pool *pool, struct reef_sim_host *host, bool cut)
{
	for (uint32_t i = 0; i < NODES; i++)
		reef_sim_partition(host, pool->lenders[i].host, cut);
}

static int breaks_things(struct member *member)
{
	static const uint64_t whiles[] = {MILLISECOND, 8 * SECOND, 30 * SECOND};
	struct pool *pool = member->pool;
	struct reef_sim_host *writer = pool->members[1].host, *node;
	uint64_t what;

	while (!scene.is_ready && !pool->over)
		TRY(reef_sleep(MILLISECOND));
	while (!scene.is_over && !pool->over) {
		node = pool->lenders[draw(member, NODES)].host;
		what = draw(member, 8);
		if (what < 2)
			cut_off(pool, writer, true);
		else if (what == 2)
			reef_sim_partition(writer, node, true);
		else if (what == 3)
			reef_sim_partition(pool->host, node, true);
		else if (what == 4)
			reef_sim_partition(pool->host, writer, true);
		else if (what == 5) {
			reef_sim_host_kill(pool->host);
			TRY(reef_sleep(MILLISECOND));
			TRY(reef_sim_host_restart(pool->host, pool_broker_main,
						  pool));
		} else if (what == 6) {
			reef_sim_host_pause(writer);
			TRY(reef_sleep(draw(member, 9 * SECOND)));
			reef_sim_host_resume(writer);
		}
		TRY(reef_sleep(draw(member, whiles[draw(member, 3)])));
		if (draw(member, 3) == 0)
			continue;
		cut_off(pool, writer, false);
		cut_off(pool, pool->host, false);
		reef_sim_partition(pool->host, writer, false);
	}
	return 0;
}

static void client_flap_words_are_as_it_was_told(void **state)
{
	static const uint64_t patience[] = {MILLISECOND, 500 * MILLISECOND,
					    5 * SECOND, 0};
	uint64_t seed;

	for (seed = seeds_first(); seeds_has(seed, seeds_of(5, 200)); seed++) {
		struct pool pool = {
			.ttl_ns = 100 * SECOND,
			.node_ttl_ns = 200 * SECOND,
			.patience_ns = patience[seed % 4],
		};

		memset(&scene, 0, offsetof(typeof(scene), done));
		memset(looks, 0, sizeof(looks));
		pool_start(&pool, seed);
		pool_add(&pool, reads);
		pool_add(&pool, writes);
		pool_add(&pool, breaks_things);
		pool_finish(&pool);
	}
	/* Else it has shown nothing. */
	assert_true(scene.done &&
		    (scene.settled || scene.timeouts || scene.unchanged));
}

/* --- a door that stays shut --- */

/* Of the member that is cut off. */
static struct {
	struct reef_layer layer;
	bool is_shut; /* the first door of every node */
	bool is_over;
	bool writes;
} doors;

static int connect_unless_shut(struct reef_layer *layer,
			       struct reef_queue *queue, const char *address,
			       const struct reef_connect_options *options,
			       struct reef_link **out)
{
	size_t size = strlen(address);

	if (doors.is_shut && size > 2 && !strcmp(address + size - 2, "/1"))
		return -ECONNREFUSED;
	return layer->next->ops.connect(layer->next, queue, address, options,
					out);
}

static int watch_doors(struct member *member, struct reef_fabric *fabric)
{
	if (member->number != 1)
		return 0;
	doors.layer = (struct reef_layer){
		.ops = {.name = "doors", .connect = connect_unless_shut},
	};
	reef_fabric_push(fabric, &doors.layer);
	return 0;
}

/* Lose a link with nothing under way that is ever in doubt, or with a WRITE,
 * and go on through the other door. */
static int uses_other_door(struct member *member)
{
	struct reef_space *space;
	uint64_t address, value = 1;
	int rc;

	TRY(member_space(member, &space));
	TRY(reef_alloc(space, 8, &address));
	TRY(reef_write(member->reef, address, &value, 8));
	doors.is_shut = true;
	cut_off(member->pool, member->pool->members[0].host, true);
	if (doors.writes) {
		rc = reef_write(member->reef, address, &value, 8);
		WANT(!rc || rc == -REEF_EINDOUBT);
	}
	TRY(reef_read(member->reef, address, &value, 8));
	WANT(value == 1);
	doors.is_over = true;
	return 0;
}

static int mends_network(struct member *member)
{
	while (!doors.is_shut && !member->pool->over)
		TRY(reef_sleep(MILLISECOND));
	TRY(reef_sleep(4 * SECOND));
	cut_off(member->pool, member->pool->members[0].host, false);
	while (!doors.is_over && !member->pool->over)
		TRY(reef_sleep(MILLISECOND));
	return 0;
}

static void client_flap_shut_door_is_not_the_only_one(void **state)
{
	for (uint64_t seed = seeds_first(); seeds_has(seed, POOL_SEEDS);
	     seed++) {
		struct pool pool = {
			.ttl_ns = 60 * SECOND,
			.node_ttl_ns = 60 * SECOND,
			.has_two_doors = true,
			.opened = watch_doors,
		};

		memset(&doors, 0, sizeof(doors));
		doors.writes = seed % 2;
		pool_start(&pool, seed);
		pool_add(&pool, uses_other_door);
		pool_add(&pool, mends_network);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(client_flap_words_are_as_it_was_told),
		cmocka_unit_test(client_flap_shut_door_is_not_the_only_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
