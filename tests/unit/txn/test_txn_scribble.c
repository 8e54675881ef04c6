/* test_txn_scribble.c - R10: a transaction whose words anybody may have written
 * to: its status, its lines, the slots that name them. One word at a time gets
 * a bad value, in lines also with a checksum that fits. Then everything is done
 * with its keys that can be, by its coordinator, by others, and by whoever
 * recovers it. Errors are fine. Nothing may crash, every call returns soon, and
 * memory of another space, which who scribbles cannot write to, stays as it is.
 */
#include "fixture/pool_world.h"

#include "base/random.h"
#include "kv/internal.h"
#include "kv/seed.h"
#include "txn/internal.h"

#include <stdio.h>
#include <string.h>

#define KEYS 24u /* of two blocks */
#define CANARY 512u
#define SOON (20 * SECOND)

enum { READY, DEAD };

struct scene {
	struct reef_space *space, *other;
	struct reef_map *map;
	struct reef_tree *tree;
	struct reef_random random;
};

static uint64_t canary_at; /* zeros in the other space */

static uint64_t below(struct scene *scene, uint64_t bound)
{
	return reef_random_below(&scene->random, bound);
}

static int open_scene(struct member *member, struct scene *scene)
{
	const struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	const struct reef_tree_options small = {
		.leaf_bytes = 512,
		.inline_max = 40,
	};

	reef_random_init(&scene->random,
			 member->pool->seed * 8 + member->number);
	TRY(member_space(member, &scene->space));
	TRY(reef_space_open(member->reef, "other", &make, &scene->other));
	TRY(reef_map_open(scene->space, "m", NULL, &scene->map));
	return reef_tree_open(scene->space, "t", &small, &scene->tree);
}

static void close_scene(struct scene *scene)
{
	reef_tree_close(scene->tree);
	reef_map_close(scene->map);
}

static uint32_t name_of(char name[16], uint64_t i)
{
	return (uint32_t)snprintf(name, 16, "key %u", (uint32_t)i);
}

/* --- whatever can be done --- */

static int see(void *context, const struct reef_map_entry *entry)
{
	uint32_t *sum = context;

	for (size_t i = 0; i < entry->key_size; i++)
		*sum += ((const uint8_t *)entry->key)[i];
	for (size_t i = 0; entry->value && i < entry->value_size; i++)
		*sum += ((const uint8_t *)entry->value)[i];
	return 0;
}

static int body(struct reef_txn *txn, void *context)
{
	struct scene *scene = context;
	struct reef_map_value value = {0};
	char key[16];
	uint32_t size;
	int rc = 0;

	for (uint32_t i = 0; i < 4 && !rc; i++) {
		size = name_of(key, below(scene, KEYS));
		if (below(scene, 2))
			rc = reef_txn_take(txn, scene->map, key, size, &value);
		else
			rc = reef_txn_tree_put(txn, scene->tree, key, size, key,
					       size, 0);
		rc = rc == -ENOENT ? 0 : rc;
	}
	reef_map_value_free(&value);
	return rc;
}

static int scan_body(struct reef_txn *txn, void *context)
{
	struct scene *scene = context;
	struct reef_map_value value = {0};
	const struct reef_range all = {0};
	uint32_t sum = 0, size;
	char key[16];
	int rc = reef_txn_scan(txn, scene->tree, &all, see, &sum);

	size = name_of(key, below(scene, KEYS));
	if (!rc)
		rc = reef_txn_get(txn, scene->map, key, size, &value);
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static void do_one(struct scene *scene, uint64_t what)
{
	static const struct reef_txn_options reads = {
		.flags = REEF_TXN_READ_ONLY,
		.attempts = 3,
	};
	static const struct reef_txn_options changes = {.attempts = 3};
	const struct reef_range some = {.limit = 3};
	struct reef_map_value value = {0};
	uint64_t cursor = 0;
	char key[16];
	uint32_t size = name_of(key, below(scene, 3 * KEYS)), sum = 0;

	switch (what) {
	case 0:
		(void)reef_map_get(scene->map, key, size, &value);
		(void)reef_tree_get(scene->tree, key, size, &value);
		break;
	case 1:
		(void)reef_map_put(scene->map, key, size, key, size, 0, NULL);
		break;
	case 2:
		(void)reef_tree_put(scene->tree, key, size, key, size, 0, NULL);
		break;
	case 3:
		(void)reef_map_delete(scene->map, key, size, 0);
		(void)reef_tree_delete(scene->tree, key, size, 0);
		break;
	case 4:
		(void)reef_tree_scan(scene->tree, NULL, see, &sum);
		(void)reef_map_scan(scene->map, &cursor, 100, see, &sum);
		break;
	case 5:
		(void)reef_txn_run(scene->space, body, scene, &changes);
		break;
	case 6:
		(void)reef_txn_run(scene->space, scan_body, scene, &reads);
		break;
	default:
		(void)reef_tree_delete_range(scene->tree, &some, &cursor);
		(void)reef_map_sweep(scene->map, 8);
	}
	reef_map_value_free(&value);
}

static int do_all(struct scene *scene)
{
	uint64_t began_ns;

	for (uint32_t i = 0; i < 60; i++) {
		began_ns = reef_now_ns();
		do_one(scene, below(scene, 8));
		WANT(reef_now_ns() - began_ns < SOON);
	}
	return 0;
}

/* --- scribbling --- */

static uint64_t bad_word(struct scene *scene, uint64_t word, uint64_t other)
{
	switch (below(scene, 8)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return word ^ UINT64_C(1) << below(scene, 64);
	case 3:
		return word + (UINT64_C(1) << below(scene, 64));
	case 4:
		return canary_at + 8 * below(scene, CANARY / 8);
	case 5:
		return 1 + below(scene, 2);
	case 6:
		return other;
	default:
		return reef_random_next(&scene->random);
	}
}

/* Bad words in a line; resealed: as who means it would do. */
static int scribble_line(struct scene *scene, struct reef_txn *txn,
			 const struct item *item, bool resealed)
{
	uint64_t at = txn_line_at(txn, item), words[8], which = below(scene, 8);
	struct intent_line line;

	TRY(reef_read(txn->reef, at, words, sizeof(words)));
	words[which] = bad_word(scene, words[which], words[below(scene, 8)]);
	memcpy(&line, words, sizeof(line));
	if (resealed)
		intent_line_seal(&line);
	return reef_write(txn->reef, at, &line, sizeof(line));
}

/* The status of a line is said to be a word that others must not change. */
static int misdirect(struct scene *scene, struct reef_txn *txn)
{
	struct intent_line line;
	uint64_t at;

	for (uint32_t i = 0; i < txn->items_count; i++) {
		at = txn_line_at(txn, txn->items[i]);
		TRY(reef_read(txn->reef, at, &line, sizeof(line)));
		line.main = canary_at + 8 * below(scene, CANARY / 8);
		intent_line_seal(&line);
		TRY(reef_write(txn->reef, at, &line, sizeof(line)));
	}
	return 0;
}

static int scribble(struct scene *scene, struct reef_txn *txn)
{
	const struct item *item = txn->items[below(scene, txn->items_count)];
	uint64_t at, word, other;

	switch (below(scene, 6)) {
	case 0:
		return scribble_line(scene, txn, item, false);
	case 1:
	case 2:
		return scribble_line(scene, txn, item, true);
	case 3:
		return misdirect(scene, txn);
	case 4:
		at = item->hold->slot_at;
		break;
	default:
		at = txn->blocks[below(scene, txn->blocks_count)].at +
		     8 * below(scene, INTENT_LINE / 8);
	}
	TRY(reef_read(txn->reef, at, &word, 8));
	TRY(reef_read(txn->reef, txn->items[0]->hold->slot_at, &other, 8));
	word = bad_word(scene, word, other);
	return reef_write(txn->reef, at, &word, 8);
}

/* --- who takes part --- */

static int check_canary(struct member *member)
{
	uint64_t words[CANARY / 8];

	TRY(reef_read(member->reef, canary_at, words, sizeof(words)));
	for (uint32_t i = 0; i < CANARY / 8; i++)
		WANT(!words[i]);
	return 0;
}

static int hold_keys(struct scene *scene, struct reef_txn *txn)
{
	struct reef_map_value value = {0};
	char key[16];
	uint32_t size;

	for (uint32_t i = 0; i < KEYS; i++) {
		size = name_of(key, i);
		TRY(i % 2 ? reef_txn_tree_take(txn, scene->tree, key, size,
					       &value)
			  : reef_txn_take(txn, scene->map, key, size, &value));
		TRY(i % 2 ? reef_txn_tree_put(txn, scene->tree, key, size, "x",
					      1, 0)
			  : reef_txn_put(txn, scene->map, key, size, "x", 1,
					 0));
	}
	reef_map_value_free(&value);
	return 0;
}

static int coordinator(struct member *member)
{
	const char zeros[CANARY] = {0};
	struct reef_txn *txn;
	struct scene scene = {0};
	char key[16];
	uint32_t size;

	TRY(open_scene(member, &scene));
	TRY(reef_alloc(scene.other, CANARY, &canary_at));
	TRY(reef_write(member->reef, canary_at, zeros, CANARY));
	for (uint32_t i = 0; i < KEYS; i++) {
		size = name_of(key, i);
		TRY(reef_tree_put(scene.tree, key, size, key, size, 0, NULL));
		TRY(reef_map_put(scene.map, key, size, key, size, 0, NULL));
	}
	TRY(reef_txn_begin(scene.space, NULL, &txn));
	TRY(hold_keys(&scene, txn));
	TRY(scribble(&scene, txn));
	member->pool->note[READY]++;
	switch (below(&scene, 4)) {
	case 0:
		member->pool->note[DEAD]++;
		reef_sim_host_kill(member->host);
		return reef_sleep(1);
	case 1:
		(void)reef_txn_check(txn);
		(void)reef_txn_commit(txn);
		break;
	case 2:
		TRY(do_all(&scene));
		(void)reef_txn_commit(txn);
		break;
	default:
		TRY(do_all(&scene));
		break;
	}
	reef_txn_close(txn);
	TRY(do_all(&scene));
	TRY(check_canary(member));
	close_scene(&scene);
	return 0;
}

static int other(struct member *member)
{
	struct scene scene = {0};

	while (!member->pool->note[READY] && !member->pool->over)
		TRY(reef_sleep(MILLISECOND));
	TRY(open_scene(member, &scene));
	TRY(do_all(&scene));
	if (member->pool->note[DEAD])
		TRY(reef_sleep(10 * TTL)); /* it is recovered */
	TRY(do_all(&scene));
	TRY(check_canary(member));
	close_scene(&scene);
	/* Whatever is left can be dropped, or says why not. */
	(void)reef_map_drop(scene.space, "m");
	(void)reef_tree_drop(scene.space, "t");
	return check_canary(member);
}

/* The last one. Words that are scribbled over may well return (R9). */
static int janitor(struct member *member)
{
	int rc = reef_janitor_run(member->reef, member_others_ended, member);

	member->pool->has_recurred = false;
	return rc;
}

static void txn_that_is_scribbled_over_costs_errors(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = seeds_first(); seeds_has(seed, seeds_of(60, 4000));
	     seed++) {
		struct pool pool = {.extent_size = 1 * MIB};

		pool_start(&pool, seed);
		pool.has_recurred = true; /* so nothing is said of it */
		pool_add(&pool, coordinator);
		pool_add(&pool, other);
		pool_add(&pool, janitor);
		pool_finish(&pool);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(txn_that_is_scribbled_over_costs_errors),
	};

	/* So that a seed means the same again. */
	map_set_seed(7);
	map_tables.groups = 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
