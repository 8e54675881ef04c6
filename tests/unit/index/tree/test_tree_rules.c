/* test_tree_rules.c - rules that no history shows: entries that nobody needs
 * any more come back, (7) of layout.h; and an interval that is not the block's
 * own is none, whatever it says. Each is broken once by a mutant. */
#include "fixture/plain_tree.h"

#include "base/mutant.h"
#include "fixture/seeds.h"
#include "index/tree/internal.h"

#include <string.h>

#define KEYS 300u
#define ROUNDS 12u
#define SHORT 8u  /* bytes of a value: in its leaf */
#define LONG 600u /* outside */

/* --- entries come back --- */

static int put_given(void *context, const struct entry *now, struct entry *put)
{
	(void)now;
	*put = *(struct entry *)context;
	return ENTRY_PUT;
}

static int put_value(struct tree *tree, uint64_t key, uint32_t size)
{
	static const uint8_t value[LONG];
	uint8_t bytes[8];
	struct entry put = {.value = value, .value_size = size};
	struct entry_change change = {
		.key = bytes,
		.key_size = 8,
		.decide = put_given,
		.context = &put,
	};

	reef_key_u64(bytes, key);
	return tree_apply(tree, &change);
}

/* Bytes of the space that are in use, when what waits has come back. */
static int live_bytes(struct reef_space *space, uint64_t *out)
{
	struct reef_block_stats stats;
	uint32_t tries = 0;

	do {
		TRY(reef_sleep(200 * MILLISECOND));
		TRY(reef_block_stats(space, &stats));
	} while (stats.bytes_waiting && tries++ < 100);
	*out = stats.bytes_live;
	return 0;
}

/* Keys that are put again and again take no more than at first, but for what
 * happens to be in slots. */
static int put_again(struct member *member, uint32_t size)
{
	uint64_t empty = 0, full = 0, now = 0;
	struct reef_space *space;
	struct tree *tree;

	TRY(plain_tree_begin(member, NULL, &space, &tree));
	TRY(live_bytes(space, &empty));
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (uint64_t key = 0; key < KEYS; key++)
			TRY(put_value(tree, key, size));
		if (!round)
			TRY(live_bytes(space, &full));
	}
	TRY(live_bytes(space, &now));
	print_message("%u keys of %u bytes: %llu bytes, put again: %llu\n",
		      KEYS, size, (unsigned long long)(full - empty),
		      (unsigned long long)(now - empty));
	WANT(now - empty <= 2 * (full - empty));
	tree_close(tree);
	return 0;
}

static int put_short(struct member *member)
{
	return put_again(member, SHORT);
}

static int put_long(struct member *member)
{
	return put_again(member, LONG);
}

static int run_pool(int (*story)(struct member *member))
{
	struct pool pool = {.calm = true, .ttl_ns = 10 * SECOND};

	pool_start(&pool, 1);
	pool_add(&pool, story);
	return pool_end(&pool);
}

/* --- intervals --- */

static int build_block(uint64_t id, const char *value, uint8_t **bytes,
		       struct tree_image *image)
{
	const struct tree_record record = {
		.key = (const uint8_t *)"key",
		.key_size = 3,
		.value = (const uint8_t *)value,
		.value_size = (uint32_t)strlen(value),
		.version = 1,
	};
	const struct tree_shape shape = {
		.id = id,
		.head = 8,
		.number = 1,
		.low = (const uint8_t *)"",
	};
	int rc = tree_block_build(&shape, &record, 1, bytes, &image->size);

	if (rc)
		return rc;
	image->bytes = *bytes;
	return tree_image_parse(image, 1);
}

/* An interval of another block, but for the word that says whose it is. */
static int borrow_interval(void)
{
	struct tree_image own = {0}, other = {0};
	uint8_t *bytes, *others;
	struct tree_walk walk;
	uint32_t at, size;
	bool is_taken;

	TRY(build_block(7, "mine", &bytes, &own));
	TRY(build_block(9, "none", &others, &other));
	at = own.intervals[0];
	size = own.intervals[1] - at;
	WANT(at == other.intervals[0] && size == other.intervals[1] - at);
	WANT(tree_interval_begin(&walk, bytes + at, size, 7));
	memcpy(bytes + at + 8, others + at + 8, size - 8);
	is_taken = tree_interval_begin(&walk, bytes + at, size, 7);
	tree_image_free(&own);
	tree_image_free(&other);
	WANT(!is_taken);
	return 0;
}

/* --- a head in its next life --- */

#define REUSED_KEYS 60u

/* The head of a leaf that has joined another may be the root's in its next
 * life: what is remembered of it is of the last one. */
static int find_reused_root(struct member *member)
{
	static const struct tree_options small = {.leaf_bytes = 256, .seed = 7};
	struct reef_space *space;
	struct tree_node *node;
	struct tree *tree;
	uint64_t value;

	TRY(plain_tree_begin(member, &small, &space, &tree));
	for (uint64_t i = 0; i < REUSED_KEYS; i++)
		TRY(plain_tree_put(tree, i, i));
	TRY(plain_tree_get(tree, 0, &value));
	WANT(tree->top_head);
	node = tree_node_known(tree, tree->top_head);
	WANT(node && node->level && !node->low_size);
	node->low_size = 1;
	for (uint64_t i = 0; i < REUSED_KEYS; i++)
		TRY(plain_tree_get(tree, i, &value));
	tree_close(tree);
	return 0;
}

static void tree_root_that_was_a_leaf_is_read_anew(void **state)
{
	(void)state;
	assert_int_equal(run_pool(find_reused_root), 0);
}

/* --- all of them --- */

static int check_rules(void)
{
	int rc = run_pool(put_short);

	rc = rc ? rc : run_pool(put_long);
	return rc ? rc : borrow_interval();
}

static void tree_rules_hold(void **state)
{
	(void)state;
	assert_int_equal(check_rules(), 0);
}

#if !SANITIZED
static void tree_rules_mutants_are_found(void **state)
{
	static const enum reef_mutant mutants[] = {
		REEF_MUTANTS_OF_TREE_RULES(REEF_MUTANT_NUMBER)};

	(void)state;
	for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
		bool found;

		try_quiet = true;
		reef_mutate(mutants[i]);
		found = check_rules() != 0;
		reef_mutate(REEF_MUTANT_NONE);
		try_quiet = false;
		if (!found)
			fail_msg("mutant %s was not found",
				 reef_mutant_name(mutants[i]));
		print_message("%s: found\n", reef_mutant_name(mutants[i]));
	}
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_root_that_was_a_leaf_is_read_anew),
		cmocka_unit_test(tree_rules_hold),
#if !SANITIZED
		cmocka_unit_test(tree_rules_mutants_are_found),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
