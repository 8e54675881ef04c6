/* test_keep_both.c - a holder and an image as one keep: which of them counts,
 * and in which order they are told. Both are fakes that write down what they
 * are told. */
#include "base/mutant.h"
#include "pool/node/keep_both.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 4096u

static const struct reef_memory_options like = {
	.backing = REEF_BACKING_SIMULATED, .size = SIZE};

/* What both were told, a word each: "holder.take image.has". */
static char story[256];

struct fake {
	struct reef_keep keep;
	const char *name;
	uint32_t extents; /* has 1 to that */
	int take_rc, add_rc, save_rc;
	int has_rc;
};

static struct fake holder, image;

static void tell(struct reef_keep *keep, const char *what)
{
	size_t used = strlen(story);

	snprintf(story + used, sizeof(story) - used, "%s%s.%s", used ? " " : "",
		 ((struct fake *)keep)->name, what);
}

static int fake_take(struct reef_keep *keep,
		     const struct reef_memory_options *options,
		     struct reef_kept *out)
{
	struct fake *fake = (struct fake *)keep;

	tell(keep, "take");
	if (fake->take_rc || !fake->extents)
		return fake->take_rc;
	out->head = (struct reef_keep_head){.pool = 5, .node = 6};
	out->extents = calloc(fake->extents, sizeof(*out->extents));
	assert_non_null(out->extents);
	for (uint32_t i = 0; i < fake->extents; i++) {
		out->extents[i].line =
			(struct reef_keep_line){.extent = i + 1, .size = SIZE};
		assert_int_equal(
			reef_memory_create(options, &out->extents[i].memory),
			0);
		out->extents_count++;
	}
	return 0;
}

static int fake_add(struct reef_keep *keep, const struct reef_keep_line *line,
		    struct reef_memory *memory)
{
	tell(keep, "add");
	return ((struct fake *)keep)->add_rc;
}

static void fake_forget(struct reef_keep *keep, uint32_t extent)
{
	tell(keep, "forget");
}

static void fake_note(struct reef_keep *keep, const struct reef_keep_head *head)
{
	tell(keep, head->image ? "image" : "note");
}

static int fake_has(struct reef_keep *keep, const struct reef_keep_head *head)
{
	tell(keep, "has");
	return ((struct fake *)keep)->has_rc;
}

static uint64_t fake_number(struct reef_keep *keep)
{
	return 7;
}

static int fake_lend(struct reef_keep *keep, const struct reef_kept *kept)
{
	tell(keep, "lend");
	return 0;
}

static int fake_save(struct reef_keep *keep, const struct reef_kept *kept)
{
	tell(keep, "save");
	return ((struct fake *)keep)->save_rc;
}

static void fake_release(struct reef_keep *keep)
{
	tell(keep, "release");
}

static const struct reef_keep_ops fake_ops = {
	.take = fake_take,
	.add = fake_add,
	.forget = fake_forget,
	.note = fake_note,
	.lend = fake_lend,
	.has = fake_has,
	.number = fake_number,
	.save = fake_save,
	.release = fake_release,
};

static int reset(void **state)
{
	holder = (struct fake){
		.keep = {&fake_ops}, .name = "holder", .save_rc = 1};
	image = (struct fake){.keep = {&fake_ops}, .name = "image"};
	story[0] = '\0';
	reef_mutate(REEF_MUTANT_NONE);
	return 0;
}

/* `wanted`: both are, at a stop; else they are there from an earlier life. */
static struct reef_keep *join(bool with_holder, bool with_image, bool wanted)
{
	struct reef_keep *keep;

	assert_int_equal(
		reef_keep_both_create(
			&(struct reef_keep_both_options){
				.holder = with_holder ? &holder.keep : NULL,
				.image = with_image ? &image.keep : NULL,
				.saves = wanted,
				.holds = wanted},
			&keep),
		0);
	return keep;
}

/* Take and lend; returns how many extents, or an error. `told` is what both are
 * told. */
static int take(bool with_holder, bool with_image, bool wanted,
		const char *told)
{
	struct reef_keep *keep = join(with_holder, with_image, wanted);
	struct reef_kept kept = {0};
	int rc = keep->ops->take(keep, &like, &kept);

	if (!rc) {
		rc = (int)kept.extents_count;
		assert_int_equal(reef_keep_both_report(keep)->extents, rc);
		assert_int_equal(reef_keep_both_report(keep)->bytes, rc * SIZE);
		assert_int_equal(keep->ops->lend(keep, &kept), 0);
		assert_int_equal(keep->ops->lend(keep, &kept), 0); /* once */
	} else {
		assert_int_equal(kept.extents_count, 0);
	}
	assert_string_equal(story, told);
	reef_kept_fini(&kept);
	reef_keep_both_destroy(keep);
	return rc;
}

/* Save; returns what it does. `told` is what both are told. */
static int save(bool with_holder, bool with_image, bool wanted,
		const char *told)
{
	struct reef_keep *keep = join(with_holder, with_image, wanted);
	int rc = keep->ops->save(keep, &(struct reef_kept){0});

	assert_string_equal(story, told);
	reef_keep_both_destroy(keep);
	return rc;
}

static void keep_both_takes_from_the_holder(void **state)
{
	holder.extents = 2;
	image.extents = 3;
	assert_int_equal(take(true, true, true, "holder.take image.has"), 2);
	reset(state);
	holder.extents = 2;
	assert_int_equal(take(true, true, false, "holder.take image.has"), 2);
	reset(state);
	holder.extents = 2;
	assert_int_equal(take(true, false, true, "holder.take"), 2);
}

/* The holder has it before the image is spent: whoever is killed in between
 * finds one of them. */
static void keep_both_takes_the_image_if_the_holder_is_empty(void **state)
{
	image.extents = 2;
	assert_int_equal(take(true, true, true,
			      "holder.take image.take holder.image holder.add "
			      "holder.add image.lend holder.note"),
			 2);
	reset(state);
	image.extents = 2;
	assert_int_equal(take(false, true, true, "image.take image.lend"), 2);
	reset(state);
	image.extents = 2;
	assert_int_equal(take(false, true, false, "image.take image.lend"), 2);
	reset(state);
	assert_int_equal(take(true, true, true, "holder.take image.take"), 0);
}

/* A node that is refused lends nothing: nothing is told of it. */
static void keep_both_spends_nothing_that_is_not_lent(void **state)
{
	struct reef_keep *keep = join(true, true, true);
	struct reef_kept kept = {0};

	image.extents = 2;
	assert_int_equal(keep->ops->take(keep, &like, &kept), 0);
	assert_int_equal(kept.extents_count, 2);
	assert_string_equal(story, "holder.take image.take");
	reef_kept_fini(&kept);
	reef_keep_both_destroy(keep);
}

static void keep_both_takes_the_image_without_a_working_holder(void **state)
{
	image.extents = 2;
	holder.add_rc = -EPIPE;
	assert_int_equal(take(true, true, true,
			      "holder.take image.take holder.image holder.add "
			      "image.lend holder.note"),
			 2);
}

/* A process was killed while it gave the holder what was in the image, or
 * before it let its holder go: then another may have run without that one. */
static void keep_both_takes_the_image_that_has_all(void **state)
{
	holder.extents = 1;
	image.extents = 2;
	image.has_rc = 1;
	assert_int_equal(take(true, true, false,
			      "holder.take image.has holder.forget "
			      "image.take holder.image holder.add holder.add "
			      "image.lend holder.note"),
			 2);
	reset(state);
	holder.extents = 1;
	image.extents = 2;
	image.has_rc = 1;
	assert_int_equal(take(true, true, true,
			      "holder.take image.has holder.forget "
			      "image.take holder.image holder.add holder.add "
			      "image.lend holder.note"),
			 2);
}

static void keep_both_takes_nothing_if_they_differ(void **state)
{
	holder.extents = 2;
	image.has_rc = -EEXIST;
	assert_int_equal(take(true, true, true, "holder.take image.has"),
			 -EEXIST);
	reset(state);
	holder.take_rc = -EBUSY;
	image.extents = 2;
	assert_int_equal(take(true, true, true, "holder.take"), -EBUSY);
}

static void keep_both_saves_the_image_before_the_holder_goes(void **state)
{
	assert_int_equal(save(true, true, true,
			      "holder.image image.save holder.release"),
			 0);
	reset(state);
	assert_int_equal(save(false, true, true, "image.save"), 0);
	reset(state);
	image.save_rc = -ENOSPC;
	assert_int_equal(save(false, true, true, "image.save"), -ENOSPC);
}

static void keep_both_leaves_memory_with_the_holder(void **state)
{
	image.save_rc = -ENOSPC;
	assert_int_equal(
		save(true, true, true, "holder.image image.save holder.save"),
		1);
	reset(state);
	assert_int_equal(save(true, false, true, "holder.save"), 1);
}

/* A holder of before goes with the memory that nobody wants to be kept. */
static void keep_both_keeps_nothing_that_is_not_wanted(void **state)
{
	assert_int_equal(save(true, true, false, "holder.release"), 0);
	reset(state);
	assert_int_equal(save(false, true, false, ""), 0);
}

static void keep_both_tells_the_holder_of_changes(void **state)
{
	struct reef_keep *keep = join(true, true, true);
	struct reef_keep_line line = {.extent = 1, .size = SIZE};

	holder.add_rc = -EPIPE;
	assert_int_equal(keep->ops->add(keep, &line, NULL), -EPIPE);
	keep->ops->note(keep, &(struct reef_keep_head){0});
	keep->ops->forget(keep, 1);
	assert_string_equal(story, "holder.add holder.note holder.forget");
	reef_keep_both_destroy(keep);
}

/* What the mutants do is told, so the tests above fail with them. */
static void keep_both_mutants_are_found(void **state)
{
	reef_mutate(REEF_MUTANT_KEEP_IMAGE_UNSPENT);
	holder.extents = 1;
	assert_int_equal(take(true, true, true, "holder.take"), 1);
	reset(state);
	reef_mutate(REEF_MUTANT_KEEP_RELEASE_FIRST);
	save(true, true, true,
	     "holder.release holder.image image.save holder.release");
	reef_mutate(REEF_MUTANT_NONE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, reset)
	const struct CMUnitTest tests[] = {
		TEST(keep_both_takes_from_the_holder),
		TEST(keep_both_takes_the_image_if_the_holder_is_empty),
		TEST(keep_both_spends_nothing_that_is_not_lent),
		TEST(keep_both_takes_the_image_without_a_working_holder),
		TEST(keep_both_takes_the_image_that_has_all),
		TEST(keep_both_takes_nothing_if_they_differ),
		TEST(keep_both_saves_the_image_before_the_holder_goes),
		TEST(keep_both_leaves_memory_with_the_holder),
		TEST(keep_both_keeps_nothing_that_is_not_wanted),
		TEST(keep_both_tells_the_holder_of_changes),
		TEST(keep_both_mutants_are_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
