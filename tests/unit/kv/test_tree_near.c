/* test_tree_near.c - an ordered map on shared memory, where it is read in
 * place: two handles change it in turn, so what each remembers of nodes is
 * often of another time; both must answer as a plain list does. */
#include "base/mutant.h"
#include "fixture/local_pool.h"
#include "fixture/seeds.h"
#include "fixture/try.h"

#include <errno.h>
#include <reef/tree.h>
#include <stdio.h>
#include <string.h>

#define KEYS 600u
#define KEY_SIZE 9u
#define VALUE_MAX 300u /* some lie outside of their leaf */
#define STEPS 4000u

struct handle {
	struct reef *reef;
	struct reef_space *space;
	struct reef_tree *tree;
	struct reef_map_value value, key;
};

struct world {
	struct handle handles[2];
	uint64_t random;
	uint32_t values[KEYS]; /* what each key was last put with; 0: none */
};

static uint32_t draw(struct world *world, uint32_t below)
{
	world->random = world->random * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
	return (uint32_t)(world->random >> 33) % below;
}

/* Keys have prefixes in common, in groups, and two lengths. */
static size_t make_key(uint32_t key, char *to)
{
	snprintf(to, KEY_SIZE + 1, "%c%c/%05u.", 'a' + (int)(key / 256),
		 'a' + (int)(key / 64 % 4), key);
	return key % 3 ? KEY_SIZE : KEY_SIZE - 1;
}

static size_t make_value(uint32_t number, char *to)
{
	size_t size = number % 7 ? number % 90 : number % VALUE_MAX;

	memset(to, 'a' + (int)(number % 26), size);
	return size;
}

static bool is_value(const void *bytes, size_t size, uint32_t number)
{
	char wanted[VALUE_MAX];

	return size == make_value(number, wanted) &&
	       !memcmp(bytes, wanted, size);
}

/* --- calls --- */

static int put(struct world *world, struct handle *handle, uint32_t key)
{
	uint32_t number = 1 + draw(world, 100000);
	char name[KEY_SIZE + 1], value[VALUE_MAX];
	size_t size = make_key(key, name);

	TRY(reef_tree_put(handle->tree, name, size, value,
			  make_value(number, value), 0, NULL));
	world->values[key] = number;
	return 0;
}

static int delete (struct world *world, struct handle *handle, uint32_t key)
{
	char name[KEY_SIZE + 1];
	size_t size = make_key(key, name);

	WANT_RC(reef_tree_delete(handle->tree, name, size, 0),
		world->values[key] ? 0 : -ENOENT);
	world->values[key] = 0;
	return 0;
}

static int get(struct world *world, struct handle *handle, uint32_t key)
{
	char name[KEY_SIZE + 1];
	size_t size = make_key(key, name);

	if (!world->values[key]) {
		WANT_RC(reef_tree_get(handle->tree, name, size, &handle->value),
			-ENOENT);
		return 0;
	}
	TRY(reef_tree_get(handle->tree, name, size, &handle->value));
	WANT(is_value(handle->value.bytes, handle->value.size,
		      world->values[key]));
	TRY(reef_tree_look(handle->tree, name, size, &handle->value));
	return 0;
}

struct range {
	struct world *world;
	int64_t next, step, end;
	int rc;
};

static void skip_absent(struct range *range)
{
	while (range->next != range->end && !range->world->values[range->next])
		range->next += range->step;
}

static int meet(void *context, const struct reef_map_entry *entry)
{
	struct range *range = context;
	char name[KEY_SIZE + 1];
	size_t size;

	skip_absent(range);
	if (range->next == range->end)
		return -EXDEV;
	size = make_key((uint32_t)range->next, name);
	if (entry->key_size != size || memcmp(entry->key, name, size) ||
	    !is_value(entry->value, entry->value_size,
		      range->world->values[range->next]))
		return -EXDEV;
	range->next += range->step;
	return 0;
}

static int scan(struct world *world, struct handle *handle, uint32_t key)
{
	bool backward = draw(world, 2);
	struct range range = {
		.world = world,
		.next = key,
		.step = backward ? -1 : 1,
		.end = backward ? -1 : (int64_t)KEYS,
	};
	char from[KEY_SIZE + 1];
	const struct reef_range asked = {
		.from = from,
		.from_size = make_key(key, from),
		.flags = backward ? REEF_RANGE_BACKWARD : 0,
		.limit = draw(world, 2) ? 0 : 1 + draw(world, 100),
	};
	uint64_t count;

	TRY(reef_tree_scan(handle->tree, &asked, meet, &range));
	skip_absent(&range);
	WANT(asked.limit || range.next == range.end);
	TRY(reef_tree_count(handle->tree, NULL, &count));
	for (uint32_t i = 0; i < KEYS; i++)
		count -= world->values[i] != 0;
	WANT(!count);
	return 0;
}

/* --- a run --- */

static int step(struct world *world, uint32_t number)
{
	struct handle *handle = &world->handles[draw(world, 2)];
	uint32_t key = draw(world, KEYS), i;

	switch (draw(world, 8)) {
	case 0:
	case 1:
		return put(world, handle, key);
	case 2:
		/* In the second half leaves become few again. */
		for (i = 0; i < (number > STEPS / 2 ? 4u : 1u); i++)
			TRY(delete (world, handle, (key + i) % KEYS));
		return 0;
	case 3:
		return draw(world, 8) ? 0 : scan(world, handle, key);
	default:
		return get(world, handle, key);
	}
}

static int open_handle(struct handle *handle)
{
	const struct reef_space_options create = {.flags = REEF_SPACE_CREATE};
	const struct reef_options options = {.fabrics = "shm"};
	const struct reef_tree_options small = {.leaf_bytes = 512};

	TRY(reef_open("local", &options, &handle->reef));
	TRY(reef_space_open(handle->reef, "s", &create, &handle->space));
	return reef_tree_open(handle->space, "t", &small, &handle->tree);
}

static void close_handle(struct handle *handle)
{
	reef_map_value_free(&handle->value);
	reef_tree_close(handle->tree);
	reef_space_close(handle->space);
	reef_close(handle->reef);
}

static int run(uint64_t seed)
{
	struct world world = {.random = seed};
	int rc = 0;

	for (uint32_t i = 0; i < 2 && !rc; i++)
		rc = open_handle(&world.handles[i]);
	for (uint32_t i = 0; i < STEPS && !rc; i++)
		rc = step(&world, i);
	/* What follows is of the test, not of what it tests. */
	reef_mutate(REEF_MUTANT_NONE);
	if (world.handles[0].space && world.handles[0].tree) {
		reef_tree_close(world.handles[0].tree);
		world.handles[0].tree = NULL;
		reef_tree_drop(world.handles[0].space, "t");
	}
	for (uint32_t i = 0; i < 2; i++)
		close_handle(&world.handles[i]);
	return rc;
}

static void tree_near_handles_answer_as_a_list(void **state)
{
	struct server server;
	uint64_t seed;

	(void)state;
	server_start(&server);
	for (seed = seeds_first(); seeds_has(seed, seeds_of(8, 200)); seed++)
		assert_int_equal(run(seed), 0);
	server_stop(&server);
}

#if !SANITIZED
static void tree_near_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_NEAR_TREE(REEF_MUTANT_NUMBER)};
	struct server server;

	(void)state;
	server_start(&server);
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		bool found = false;

		try_quiet = true;
		for (uint64_t seed = 1; seed <= 8 && !found; seed++) {
			reef_mutate(mutants[i]);
			found = run(seed) != 0;
		}
		try_quiet = false;
		if (!found)
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
		print_message("%s: found\n", reef_mutant_name(mutants[i]));
	}
	server_stop(&server);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			tree_near_handles_answer_as_a_list, scratch_make,
			scratch_remove),
#if !SANITIZED
		cmocka_unit_test_setup_teardown(tree_near_mutants_are_found,
						scratch_make, scratch_remove),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
