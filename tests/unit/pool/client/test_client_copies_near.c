/* test_client_copies_near.c - memory with two copies in place: what is done
 * where, at what price, and what counts when the lease is over. The copies are
 * two extents of one node, of which the test says that they are. */
#include "fixture/local_pool.h"

#include "base/grace.h"
#include "base/mutant.h"
#include "pool/client/handle/near.h"
#include "pool/client/keeper/view.h"

#include <reef/map.h>
#include <reef/tree.h>
#include <string.h>

#define HOUR_NS UINT64_C(3600000000000)
#define BLOCK (UINT64_C(3) << 20) /* an extent of its own */
#define BLIND_WORD 8u		  /* offsets */
#define BYTES 64u

static struct {
	struct server server;
	struct reef *reef;
	struct reef_space *space;
	uint64_t primary, arbiter; /* addresses */
} scene;

/* True if memory is in place at all: not under a tool that knows no
 * membarrier(2). */
static bool is_near(void)
{
	return !reef_grace_is_strong;
}

/* --- the scene --- */

/* Long, as renewals would disturb; but shorter than the machine is up, so that
 * one that began with the machine is over. */
static uint64_t lease_ns(void)
{
	uint64_t now_ns = reef_now_ns();

	return now_ns / 2 < HOUR_NS ? now_ns / 2 : HOUR_NS;
}

static void open_space(void)
{
	const struct reef_options options = {.fabrics = "shm"};
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};

	server_start_brief(&scene.server, lease_ns());
	assert_int_equal(reef_open("local", &options, &scene.reef), 0);
	assert_int_equal(
		reef_space_open(scene.reef, "space", &make, &scene.space), 0);
}

static void close_space(void)
{
	reef_space_close(scene.space);
	reef_close(scene.reef);
	server_stop(&scene.server);
}

/* Let an extent have a twin; 0: none. */
static void pair(uint64_t primary, uint64_t arbiter)
{
	struct reef_client *client = scene.reef->client;
	struct client_extent *extent;

	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, (uint32_t)(primary >> 32));
	assert_non_null(extent);
	extent->twin = (uint32_t)(arbiter >> 32);
	client_view_bump(client);
	pthread_mutex_unlock(&client->lock);
}

static void make_copies(void)
{
	static const uint8_t zeros[2 * BYTES];

	open_space();
	assert_int_equal(reef_alloc(scene.space, BLOCK, &scene.primary), 0);
	assert_int_equal(reef_alloc(scene.space, BLOCK, &scene.arbiter), 0);
	assert_int_equal((uint32_t)scene.primary, (uint32_t)scene.arbiter);
	assert_int_equal(
		reef_write(scene.reef, scene.primary, zeros, sizeof(zeros)), 0);
	assert_int_equal(
		reef_write(scene.reef, scene.arbiter, zeros, sizeof(zeros)), 0);
	pair(scene.primary, scene.arbiter);
	/* The first change finds out where both are. */
	assert_int_equal(
		reef_write(scene.reef, scene.primary, zeros, sizeof(zeros)), 0);
}

static void end_copies(void)
{
	pair(scene.primary, 0);
	close_space();
}

/* What a copy has, asked for as memory with one. */
static uint64_t word_at(uint64_t address)
{
	uint64_t word;

	assert_int_equal(reef_read(scene.reef, address, &word, 8), 0);
	return word;
}

static void set_words(uint64_t primary, uint64_t arbiter)
{
	pair(scene.primary, 0);
	assert_int_equal(reef_write(scene.reef, scene.primary, &primary, 8), 0);
	assert_int_equal(reef_write(scene.reef, scene.arbiter, &arbiter, 8), 0);
	pair(scene.primary, scene.arbiter);
	assert_int_equal(
		reef_write(scene.reef, scene.primary + 2 * BYTES, &primary, 8),
		0);
}

/* How many calls the handle has made that were not in place. */
static uint64_t calls(void)
{
	const struct reef_counters *counters = &scene.reef->member.counters;
	uint64_t sum = 0;

	for (size_t i = 0;
	     i < sizeof(counters->latencies) / sizeof(counters->latencies[0]);
	     i++)
		sum += counters->latencies[i];
	return sum;
}

static uint64_t operations(uint8_t kind)
{
	return scene.reef->member.counters
		.operations[REEF_COUNTED_SHM][kind - 1];
}

/* How many gets were in place. */
static uint64_t lookups(void)
{
	return scene.reef->member.counters
		.operations[REEF_COUNTED_SHM][REEF_COUNTED_LOOKUP];
}

/* --- what is done where --- */

/* The checks of one CAS whose arbiter is one value ahead: somebody died
 * between the two. False: something is wrong. */
static bool loser_is_right(void)
{
	uint64_t before;

	set_words(4, 5);
	if (reef_cas(scene.reef, scene.primary, 4, 6, &before) || before != 5)
		return false;
	return word_at(scene.primary) == 5 && word_at(scene.arbiter) == 5;
}

static bool winner_is_right(void)
{
	uint64_t before;

	set_words(4, 4);
	if (reef_cas(scene.reef, scene.primary, 4, 6, &before) || before != 4)
		return false;
	return word_at(scene.primary) == 6 && word_at(scene.arbiter) == 6;
}

static bool sum_is_right(void)
{
	uint64_t before;

	set_words(4, 5);
	if (reef_faa(scene.reef, scene.primary, 10, &before) || before != 5)
		return false;
	return word_at(scene.primary) == 15 && word_at(scene.arbiter) == 15;
}

/* What is before a CAS in its list is on both copies. */
static bool list_is_right(void)
{
	uint8_t bytes[BYTES], seen[BYTES];
	struct reef_access list[] = {
		{
			.kind = REEF_WRITE,
			.address = scene.primary + BYTES,
			.length = BYTES,
			.local = bytes,
		},
		{
			.kind = REEF_CAS,
			.address = scene.primary,
			.compare = 7,
			.operand = 8,
		},
		{
			.kind = REEF_READ,
			.address = scene.primary + BYTES,
			.length = BYTES,
			.local = seen,
		},
	};

	set_words(7, 7);
	memset(bytes, 0x5a, sizeof(bytes));
	if (reef_execute(scene.reef, list, 3) || list[1].result != 7 ||
	    memcmp(bytes, seen, BYTES))
		return false;
	if (reef_read(scene.reef, scene.arbiter + BYTES, seen, BYTES) ||
	    memcmp(bytes, seen, BYTES))
		return false;
	memset(bytes, 0, sizeof(bytes));
	return !reef_write(scene.reef, scene.primary + BYTES, bytes, BYTES) &&
	       word_at(scene.arbiter + BYTES) == 0 &&
	       word_at(scene.arbiter) == 8;
}

static bool all_is_right(void)
{
	return winner_is_right() && loser_is_right() && sum_is_right() &&
	       list_is_right();
}

static void client_copies_near_are_changed_in_order(void **state)
{
	(void)state;
	make_copies();
	assert_true(all_is_right());
	end_copies();
}

static void client_copies_near_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANT_COPIES_PRIMARY_FIRST,
		REEF_MUTANT_COPIES_NO_HELP,
		REEF_MUTANT_COPIES_TELL_PENDING,
		REEF_MUTANT_COPIES_WRITE_ONE,
	};

	(void)state;
	make_copies();
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		reef_mutate(mutants[i]);
		if (all_is_right())
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
		reef_mutate(REEF_MUTANT_NONE);
	}
	assert_true(all_is_right());
	end_copies();
}

/* --- at what price --- */

static void client_copies_near_make_no_call(void **state)
{
	uint64_t word = 0, before, begun, writes, cas, reads, faa;
	struct reef_access blind = {
		.kind = REEF_FAA,
		.flags = REEF_BLIND,
		.operand = 3,
	};

	(void)state;
	make_copies();
	blind.address = scene.primary + BLIND_WORD;
	if (!is_near())
		goto out;
	begun = calls();
	reads = operations(REEF_READ);
	writes = operations(REEF_WRITE);
	cas = operations(REEF_CAS);
	faa = operations(REEF_FAA);
	assert_int_equal(reef_read(scene.reef, scene.primary, &word, 8), 0);
	assert_int_equal(operations(REEF_READ), reads + 1);
	assert_int_equal(reef_write(scene.reef, scene.primary, &word, 8), 0);
	assert_int_equal(operations(REEF_WRITE), writes + 2);
	assert_int_equal(reef_cas(scene.reef, scene.primary, 0, 1, &before), 0);
	assert_int_equal(operations(REEF_CAS), cas + 2);
	assert_int_equal(reef_faa(scene.reef, scene.primary, 1, &before), 0);
	assert_int_equal(before, 1);
	assert_int_equal(operations(REEF_CAS), cas + 4);
	assert_int_equal(operations(REEF_READ), reads + 2);
	assert_int_equal(reef_execute(scene.reef, &blind, 1), 0);
	assert_int_equal(operations(REEF_FAA), faa + 2);
	assert_int_equal(calls(), begun);
	assert_int_equal(word_at(scene.arbiter), 2);
	assert_int_equal(word_at(scene.arbiter + BLIND_WORD), 3);
out:
	end_copies();
}

/* --- a lease --- */

/* Let the lease be over; the next renewal is far away. */
static void end_lease(void)
{
	struct reef_client *client = scene.reef->client;

	atomic_store(&client->looked_ns, 0);
	atomic_store(&client->lease_tick, 0);
}

/* True if somebody has had it renewed since. */
static bool is_renewed(void)
{
	return atomic_load(&scene.reef->client->looked_ns);
}

static bool read_waits(void)
{
	uint64_t word;

	end_lease();
	return !reef_read(scene.reef, scene.primary, &word, 8) && is_renewed();
}

static bool list_waits(void)
{
	uint64_t word = 1, seen = 0;
	struct reef_access list[] = {
		{
			.kind = REEF_WRITE,
			.address = scene.primary + BYTES,
			.length = 8,
			.local = &word,
		},
		{
			.kind = REEF_READ,
			.address = scene.primary + BYTES,
			.length = 8,
			.local = &seen,
		},
	};

	end_lease();
	return !reef_execute(scene.reef, list, 2) && seen == 1 && is_renewed();
}

static void client_copies_near_are_read_under_a_lease(void **state)
{
	(void)state;
	make_copies();
	assert_true(read_waits());
	assert_true(list_waits());
	reef_mutate(REEF_MUTANT_COPIES_READ_EXPIRED);
	assert_false(read_waits());
	assert_false(list_waits());
	reef_mutate(REEF_MUTANT_NONE);
	assert_true(read_waits());
	end_copies();
}

/* --- a map --- */

/* All extents of a map are given twins, while it is only read. */
static void pair_all(uint32_t twin)
{
	struct reef_client *client = scene.reef->client;

	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < client->extents_room; i++)
		if (client->extents[i])
			client->extents[i]->twin = twin;
	client_view_bump(client);
	pthread_mutex_unlock(&client->lock);
}

/* Else that comes with the next epoch, which is half an hour away. */
static void learn_addresses(void)
{
	uint64_t block, number;

	assert_int_equal(reef_alloc(scene.space, BYTES, &block), 0);
	assert_int_equal(reef_write(scene.reef, block, &block, 8), 0);
	assert_int_equal(reef_short_address(scene.space, block, &number), 0);
	assert_int_equal(reef_long_address(scene.space, number, &block), 0);
}

static int get(struct reef_map *map, uint32_t key, struct reef_map_value *value)
{
	return reef_map_get(map, &key, sizeof(key), value);
}

static bool get_waits(struct reef_map *map, struct reef_map_value *value)
{
	int rc = 0;

	/* So that the case is plain again, after another view. */
	for (uint32_t i = 0; i < 100 && !rc; i++)
		rc = get(map, i % 10, value);
	end_lease();
	return !rc && !get(map, 3, value) && is_renewed();
}

static void client_copies_near_gets_need_a_lease(void **state)
{
	struct reef_map_value value = {0};
	struct reef_map *map;
	uint64_t begun;

	(void)state;
	open_space();
	scene.space->space->copies = 2;
	assert_int_equal(reef_map_open(scene.space, "map", NULL, &map), 0);
	for (uint32_t key = 0; key < 10; key++)
		assert_int_equal(reef_map_put(map, &key, sizeof(key), &key,
					      sizeof(key), 0, NULL),
				 0);
	learn_addresses();
	pair_all(UINT32_MAX);
	assert_true(get_waits(map, &value));
	reef_mutate(REEF_MUTANT_COPIES_READ_EXPIRED);
	assert_false(get_waits(map, &value));
	reef_mutate(REEF_MUTANT_NONE);
	assert_true(get_waits(map, &value));
	assert_int_equal(*(const uint32_t *)value.bytes, 3);
	if (is_near()) {
		/* In place, but for what is refused now and then. */
		begun = lookups();
		for (uint32_t i = 0; i < 1000; i++)
			assert_int_equal(get(map, i % 10, &value), 0);
		assert_true(lookups() >= begun + 950);
	}
	pair_all(0);
	reef_map_value_free(&value);
	reef_map_close(map);
	close_space();
}

/* --- a tree --- */

static int count_entry(void *context, const struct reef_map_entry *entry)
{
	(void)entry;
	++*(uint32_t *)context;
	return 0;
}

static int tree_get(struct reef_tree *tree, uint32_t key,
		    struct reef_map_value *value)
{
	return reef_tree_get(tree, &key, sizeof(key), value);
}

static bool tree_get_waits(struct reef_tree *tree, struct reef_map_value *value)
{
	int rc = 0;

	for (uint32_t i = 0; i < 100 && !rc; i++)
		rc = tree_get(tree, i % 10, value);
	end_lease();
	return !rc && !tree_get(tree, 3, value) && is_renewed();
}

static bool scan_waits(struct reef_tree *tree)
{
	uint32_t count = 0;

	end_lease();
	return !reef_tree_scan(tree, NULL, count_entry, &count) &&
	       count == 10 && is_renewed();
}

static void client_copies_near_trees_need_a_lease(void **state)
{
	struct reef_map_value value = {0};
	struct reef_tree *tree;
	uint64_t begun;

	(void)state;
	open_space();
	scene.space->space->copies = 2;
	assert_int_equal(reef_tree_open(scene.space, "tree", NULL, &tree), 0);
	for (uint32_t key = 0; key < 10; key++)
		assert_int_equal(reef_tree_put(tree, &key, sizeof(key), &key,
					       sizeof(key), 0, NULL),
				 0);
	learn_addresses();
	pair_all(UINT32_MAX);
	assert_true(tree_get_waits(tree, &value));
	assert_true(scan_waits(tree));
	reef_mutate(REEF_MUTANT_COPIES_READ_EXPIRED);
	assert_false(tree_get_waits(tree, &value));
	assert_false(scan_waits(tree));
	reef_mutate(REEF_MUTANT_NONE);
	assert_true(tree_get_waits(tree, &value));
	assert_int_equal(*(const uint32_t *)value.bytes, 3);
	if (is_near()) {
		begun = lookups();
		for (uint32_t i = 0; i < 1000; i++)
			assert_int_equal(tree_get(tree, i % 10, &value), 0);
		assert_true(lookups() >= begun + 950);
	}
	pair_all(0);
	reef_map_value_free(&value);
	reef_tree_close(tree);
	close_space();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			client_copies_near_are_changed_in_order, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			client_copies_near_mutants_are_found, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(client_copies_near_make_no_call,
						scratch_make, scratch_remove),
		cmocka_unit_test_setup_teardown(
			client_copies_near_are_read_under_a_lease, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			client_copies_near_gets_need_a_lease, scratch_make,
			scratch_remove),
		cmocka_unit_test_setup_teardown(
			client_copies_near_trees_need_a_lease, scratch_make,
			scratch_remove),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
