/* test_tree_image.c - a node's block is what was put together; anything else is
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "index/tree/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS_MAX 80u
#define KEY_MAX 300u
#define VALUE_MAX 1100u

struct made {
	struct tree_record records[RECORDS_MAX];
	uint8_t keys[RECORDS_MAX][KEY_MAX], values[RECORDS_MAX][VALUE_MAX];
	uint8_t high[KEY_MAX + 1];
	struct tree_shape shape;
	uint32_t count;
};

static int compare_records(const void *a, const void *b)
{
	const struct tree_record *first = a, *second = b;

	return tree_compare(first->key, first->key_size, second->key,
			    second->key_size);
}

/* Keys with much in common, of any length. */
static void make_records(struct reef_random *random, struct made *made)
{
	uint32_t most = (uint32_t)reef_random_below(random, RECORDS_MAX + 1);
	uint32_t common = (uint32_t)reef_random_below(random, 40), i, kept = 0;

	for (i = 0; i < most; i++) {
		struct tree_record *record = &made->records[i];

		*record = (struct tree_record){
			.key = made->keys[i],
			.key_size = common + (uint32_t)reef_random_below(
						     random, i % 9 ? 20 : 250),
			.value = made->values[i],
			.value_size = (uint32_t)reef_random_below(
				random, i % 7 ? 90 : VALUE_MAX),
			.version = reef_random_next(random),
			.stamp = reef_random_below(random, 2),
		};
		memset(made->keys[i], 'k', common);
		for (uint32_t j = common; j < record->key_size; j++)
			made->keys[i][j] =
				(uint8_t)reef_random_below(random, 3);
		reef_random_fill(random, made->values[i], record->value_size);
		if (reef_random_below(random, 8))
			continue;
		record->outside = 1 + reef_random_next(random);
		record->value_size = 0;
		record->stamp = 0;
	}
	qsort(made->records, most, sizeof(made->records[0]), compare_records);
	for (i = 0; i < most; i++)
		if (!kept || compare_records(&made->records[kept - 1],
					     &made->records[i]))
			made->records[kept++] = made->records[i];
	made->count = kept;
}

/* Fences around them: the first key, and one behind the last. */
static void make_shape(struct reef_random *random, struct made *made)
{
	bool fenced = made->count && reef_random_below(random, 2);
	const struct tree_record *last =
		&made->records[fenced ? made->count - 1 : 0];

	made->shape = (struct tree_shape){
		.id = reef_random_next(random) | 1,
		.head = 72,
		.right = fenced ? 5000 : 0,
		.number = 9,
		.level = (uint32_t)reef_random_below(random, 3),
		.low = (const uint8_t *)"",
	};
	if (!fenced)
		return;
	made->shape.low = made->records[0].key;
	made->shape.low_size = made->records[0].key_size;
	memcpy(made->high, last->key, last->key_size);
	made->high[last->key_size] = 0;
	made->shape.high = made->high;
	made->shape.high_size = last->key_size + 1;
}

static void check_same(const struct made *made, const struct tree_image *image)
{
	assert_int_equal(image->records_count, made->count);
	assert_true(image->id == made->shape.id);
	assert_true(image->right == made->shape.right);
	assert_int_equal(image->level, made->shape.level);
	assert_int_equal(image->high != NULL, made->shape.high != NULL);
	for (uint32_t i = 0; i < made->count; i++) {
		const struct tree_record *is = &image->records[i];
		const struct tree_record *was = &made->records[i];

		assert_int_equal(compare_records(is, was), 0);
		assert_true(is->version == was->version);
		assert_true(is->stamp == was->stamp);
		assert_true(is->outside == was->outside);
		assert_int_equal(is->value_size, was->value_size);
		if (was->value_size)
			assert_memory_equal(is->value, was->value,
					    was->value_size);
		assert_int_equal(
			tree_image_find(image, was->key, was->key_size), i);
	}
	for (uint32_t i = 0; i < image->intervals_count; i++)
		assert_true(image->intervals[i + 1] - image->intervals[i] <=
				    TREE_INTERVAL_MAX ||
			    image->firsts[i + 1] - image->firsts[i] == 1);
}

static void tree_image_is_what_was_put_together(void **state)
{
	struct made *made = calloc(1, sizeof(*made));
	struct reef_random random;

	(void)state;
	assert_non_null(made);
	reef_random_init(&random, 1);
	for (int i = 0; i < 300; i++) {
		struct tree_image image = {0};

		make_records(&random, made);
		make_shape(&random, made);
		assert_int_equal(tree_block_build(&made->shape, made->records,
						  made->count, &image.bytes,
						  &image.size),
				 0);
		assert_int_equal(image.size % 64, 56);
		assert_int_equal(tree_image_parse(&image, 9), 0);
		check_same(made, &image);
		for (uint32_t j = 0; j < image.records_count; j++)
			assert_false(image.records[j].mark);
		assert_int_equal(tree_image_find(&image, "zz", 2), -1);
		tree_image_free(&image);
	}
	free(made);
}

/* Whatever was written over it, nothing is read outside of it; and what is not
 * a slot, a mark or a word that says it is alive cannot be changed. */
static void tree_image_of_damaged_bytes_is_refused(void **state)
{
	struct made *made = calloc(1, sizeof(*made));
	struct reef_random random;
	uint32_t refused = 0;

	(void)state;
	assert_non_null(made);
	reef_random_init(&random, 2);
	for (int i = 0; i < 2000; i++) {
		struct tree_image image = {0};
		uint32_t at;
		int rc;

		make_records(&random, made);
		make_shape(&random, made);
		assert_int_equal(tree_block_build(&made->shape, made->records,
						  made->count, &image.bytes,
						  &image.size),
				 0);
		at = (uint32_t)reef_random_below(&random, image.size);
		if (i % 3 == 0)
			at = 8 + (uint32_t)reef_random_below(&random, 8);
		if (i % 3 == 1)
			at = TREE_FRONT +
			     (uint32_t)reef_random_below(&random, 60);
		image.bytes[at] ^=
			(uint8_t)(1 + reef_random_below(&random, 255));
		rc = tree_image_parse(&image, 9);
		assert_true(!rc || rc == -EBADMSG);
		if (!rc)
			check_same(made, &image);
		refused += rc != 0;
		tree_image_free(&image);
	}
	assert_true(refused > 1200);
	free(made);
}

static void tree_image_of_other_bytes_is_refused(void **state)
{
	struct reef_random random;

	(void)state;
	reef_random_init(&random, 3);
	for (int i = 0; i < 2000; i++) {
		struct tree_image image = {
			.size = (uint32_t)reef_random_below(&random, 600),
		};

		image.bytes = malloc(image.size + 1u);
		assert_non_null(image.bytes);
		reef_random_fill(&random, image.bytes, image.size);
		assert_int_equal(tree_image_parse(&image, 9), -EBADMSG);
		tree_image_free(&image);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tree_image_is_what_was_put_together),
		cmocka_unit_test(tree_image_of_damaged_bytes_is_refused),
		cmocka_unit_test(tree_image_of_other_bytes_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
