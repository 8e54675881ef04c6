/* keep_both.c - see keep_both.h. */
#include "pool/node/keep_both.h"

#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>

struct both_keep {
	struct reef_keep keep;
	struct reef_keep *holder, *image;
	bool saves, holds;
	bool unlent; /* the image was taken, and nobody else has it yet */
	struct reef_keep_both_report report;
};

static struct both_keep *of(struct reef_keep *keep)
{
	return (struct both_keep *)keep;
}

/* Tell the holder which image has what it has (3). */
static void note_image(struct both_keep *own, const struct reef_keep_head *head,
		       uint64_t image)
{
	struct reef_keep_head noted = *head;

	noted.image = image;
	own->holder->ops->note(own->holder, &noted);
}

/* --- take --- */

/* Have the holder keep what came from the image. A holder that cannot is no
 * reason to give the memory up: it is in this process, and saved at its stop.
 */
static void give_to_holder(struct both_keep *own, const struct reef_kept *kept)
{
	struct reef_kept_extent *extent = kept->extents;
	int rc = 0;

	note_image(own, &kept->head, own->image->ops->number(own->image));
	for (uint32_t i = 0; !rc && i < kept->extents_count; i++, extent++) {
		rc = own->holder->ops->add(own->holder, &extent->line,
					   extent->memory);
		extent->memory->kept = !rc;
	}
	if (rc)
		reef_log(REEF_LOG_ERROR, "node",
			 "its holder does not take what was in the image: %s",
			 reef_error_text(rc));
}

/* (2) */
static int both_lend(struct reef_keep *keep, const struct reef_kept *kept)
{
	struct both_keep *own = of(keep);
	int rc;

	if (!own->unlent)
		return 0;
	if (own->holder)
		give_to_holder(own, kept);
	rc = own->image->ops->lend(own->image, kept);
	own->unlent = rc != 0;
	if (!rc && own->holder)
		note_image(own, &kept->head, 0);
	return rc;
}

/* Take the image in place of a holder's answer without memory. */
static int take_image(struct both_keep *own,
		      const struct reef_memory_options *like,
		      struct reef_kept *out)
{
	struct reef_kept kept = {0};
	int rc = own->image->ops->take(own->image, like, &kept);

	if (rc || !kept.head.pool)
		return rc;
	own->unlent = true;
	own->report.from_image = kept.extents_count > 0;
	reef_kept_fini(out);
	*out = kept;
	return 0;
}

/* Give up what the holder has: it is in the image (3). */
static void empty_holder(struct both_keep *own, struct reef_kept *kept)
{
	for (uint32_t i = 0; i < kept->extents_count; i++)
		own->holder->ops->forget(own->holder,
					 kept->extents[i].line.extent);
	reef_kept_fini(kept);
	own->report.from_holder = false;
}

/* Choose between what the holder has and a clean image (1). */
static int choose(struct both_keep *own, const struct reef_memory_options *like,
		  struct reef_kept *kept)
{
	int rc;

	if (!own->image)
		return 0;
	if (kept->extents_count) {
		if (REEF_MUTATED(KEEP_IMAGE_UNSPENT))
			return 0;
		rc = own->image->ops->has(own->image, &kept->head);
		if (rc <= 0)
			return rc;
		empty_holder(own, kept);
	}
	return take_image(own, like, kept);
}

static int both_take(struct reef_keep *keep,
		     const struct reef_memory_options *like,
		     struct reef_kept *out)
{
	struct both_keep *own = of(keep);
	uint64_t start_ns = reef_now_ns();
	struct reef_kept kept = {0};
	int rc = 0;

	own->report = (struct reef_keep_both_report){0};
	if (own->holder)
		rc = own->holder->ops->take(own->holder, like, &kept);
	if (rc)
		return rc;
	own->report.from_holder = kept.extents_count > 0;
	rc = choose(own, like, &kept);
	if (rc) {
		reef_kept_fini(&kept);
		return rc;
	}
	own->report.extents = kept.extents_count;
	for (uint32_t i = 0; i < kept.extents_count; i++)
		own->report.bytes += kept.extents[i].line.size;
	own->report.took_ns = reef_now_ns() - start_ns;
	*out = kept;
	return 0;
}

/* --- while the node runs --- */

static int both_add(struct reef_keep *keep, const struct reef_keep_line *line,
		    struct reef_memory *memory)
{
	struct both_keep *own = of(keep);

	return own->holder ? own->holder->ops->add(own->holder, line, memory)
			   : 0;
}

static void both_forget(struct reef_keep *keep, uint32_t extent)
{
	struct both_keep *own = of(keep);

	if (own->holder)
		own->holder->ops->forget(own->holder, extent);
}

static void both_note(struct reef_keep *keep, const struct reef_keep_head *head)
{
	struct both_keep *own = of(keep);

	if (own->holder)
		own->holder->ops->note(own->holder, head);
}

static void both_tend(struct reef_keep *keep)
{
	struct both_keep *own = of(keep);

	if (own->holder && own->holder->ops->tend)
		own->holder->ops->tend(own->holder);
}

/* --- save --- */

/* (4) */
static int both_save(struct reef_keep *keep, const struct reef_kept *kept)
{
	struct both_keep *own = of(keep);
	int rc = 0;

	if (own->holder && REEF_MUTATED(KEEP_RELEASE_FIRST))
		own->holder->ops->release(own->holder);
	if (own->image && own->saves) {
		if (own->holder)
			note_image(own, &kept->head,
				   own->image->ops->number(own->image));
		rc = own->image->ops->save(own->image, kept);
		if (rc == 0 && own->holder)
			own->holder->ops->release(own->holder);
		if (rc == 0 || !own->holder)
			return rc;
		reef_log(REEF_LOG_ERROR, "node",
			 "no image was saved, the memory stays with its "
			 "holder: %s",
			 reef_error_text(rc));
		return own->holder->ops->save(own->holder, kept);
	}
	if (own->holder && own->holds)
		return own->holder->ops->save(own->holder, kept);
	if (own->holder)
		own->holder->ops->release(own->holder);
	return 0;
}

static const struct reef_keep_ops both_ops = {
	.take = both_take,
	.add = both_add,
	.forget = both_forget,
	.note = both_note,
	.tend = both_tend,
	.lend = both_lend,
	.save = both_save,
};

int reef_keep_both_create(const struct reef_keep_both_options *options,
			  struct reef_keep **out)
{
	struct both_keep *own = calloc(1, sizeof(*own));

	if (!own)
		return -ENOMEM;
	*own = (struct both_keep){
		.keep = {&both_ops},
		.holder = options->holder,
		.image = options->image,
		.saves = options->saves,
		.holds = options->holds,
	};
	*out = &own->keep;
	return 0;
}

void reef_keep_both_destroy(struct reef_keep *keep)
{
	if (keep)
		free(of(keep));
}

const struct reef_keep_both_report *
reef_keep_both_report(const struct reef_keep *keep)
{
	return &((const struct both_keep *)keep)->report;
}
