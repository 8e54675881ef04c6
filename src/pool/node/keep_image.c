/* keep_image.c - see keep_image.h. */
#include "pool/node/keep_image.h"

#include "base/clock.h"
#include "base/fiber/sched.h"
#include "base/log.h"
#include "base/mutant.h"
#include "base/random.h"
#include "base/store/store.h"
#include "pool/image.h"

#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>

#define IMAGE "image"
#define MARK REEF_KEEP_IMAGE_MARK
#define LOCK "lock"
#define HUGE_PAGE_SIZE (UINT64_C(2) << 20)

struct image_keep {
	struct reef_keep keep;
	struct reef_store *store;
	struct reef_disk_file *lock; /* NULL: not taken yet */
	/* The image that was taken, and whose mark is still there; 0: none. */
	uint64_t taken;
	uint64_t next; /* of the image to be saved, odd */
	struct reef_keep_image_options options;
	struct reef_keep_image_report report;
};

static struct image_keep *of(struct reef_keep *keep)
{
	return (struct image_keep *)keep;
}

static void tell(const struct image_keep *own, uint64_t done, uint64_t all)
{
	if (own->options.progress)
		(void)own->options.progress(own->options.context, done, all);
}

/* (6) */
static int lock_folder(struct image_keep *own)
{
	if (own->lock)
		return 0;
	return reef_disk_open(own->store, LOCK,
			      REEF_DISK_CREATE | REEF_DISK_LOCK, &own->lock);
}

/* --- take --- */

static int read_extent(struct image_keep *own, struct reef_image *image,
		       uint32_t index, struct reef_memory *memory,
		       uint64_t *done)
{
	uint64_t size = reef_image_about(image)->extents[index].size;
	uint64_t all = reef_image_size(image);
	int rc = 0;

	for (uint32_t piece = 0; rc == 0 && piece < reef_image_pieces(size);
	     piece++) {
		rc = reef_image_read(image, index, piece,
				     (uint8_t *)memory->base +
					     piece * REEF_IMAGE_PIECE,
				     NULL);
		*done += reef_image_piece_size(size, piece);
		tell(own, *done, all);
	}
	return rc;
}

static int read_extents(struct image_keep *own, struct reef_image *image,
			const struct reef_memory_options *like,
			struct reef_kept *out)
{
	const struct reef_image_about *about = reef_image_about(image);
	const struct reef_image_extent *extent = about->extents;
	struct reef_memory_options options = *like;
	struct reef_kept_extent *kept;
	uint64_t done = 0;
	int rc = 0;

	out->extents = calloc(about->extents_count + 1, sizeof(*out->extents));
	if (!out->extents)
		return -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < about->extents_count;
	     i++, extent++) {
		kept = &out->extents[i];
		kept->line = (struct reef_keep_line){
			.extent = extent->number,
			.space = extent->space,
			.epoch = extent->epoch,
			.size = extent->size,
			.copy = extent->copy,
		};
		options.size = extent->size;
		options.huge_pages =
			like->huge_pages && extent->size % HUGE_PAGE_SIZE == 0;
		rc = reef_memory_create(&options, &kept->memory);
		if (rc)
			break;
		out->extents_count++;
		rc = read_extent(own, image, i, kept->memory, &done);
	}
	return rc;
}

static int read_image(struct image_keep *own, uint64_t number,
		      const struct reef_memory_options *like,
		      struct reef_kept *out)
{
	const struct reef_image_about *about;
	struct reef_image *image;
	int rc = reef_image_open(own->store, IMAGE, &image);

	if (rc)
		return rc == -ENOENT ? -REEF_ECORRUPT : rc;
	about = reef_image_about(image);
	if (REEF_MUTATED(KEEP_MIXED_IMAGE))
		number = about->number;
	if (about->number != number || about->kind != REEF_IMAGE_NODE)
		rc = -REEF_ECORRUPT;
	if (rc == 0)
		rc = read_extents(own, image, like, out);
	out->head = (struct reef_keep_head){
		.pool = about->pool,
		.node = about->node,
		.broker_epoch = about->broker_epoch,
		.followed_start = about->followed_start,
		.confirmed_epoch = about->confirmed_epoch,
		.confirmed_start = about->confirmed_start,
		.confirmed = about->confirmed,
	};
	own->report = (struct reef_keep_image_report){
		.done = rc == 0,
		.extents = about->extents_count,
		.bytes = reef_image_size(image),
		.unix_ns = about->unix_ns,
	};
	reef_image_close(image);
	return rc;
}

static int image_take(struct reef_keep *keep,
		      const struct reef_memory_options *like,
		      struct reef_kept *out)
{
	uint64_t start_ns = reef_now_ns(), number = 0;
	struct image_keep *own = of(keep);
	struct reef_kept kept = {0};
	int rc = lock_folder(own);

	own->report = (struct reef_keep_image_report){0};
	if (rc == 0)
		rc = reef_image_marked(own->store, MARK, &number);
	if (rc == 0 && (number || REEF_MUTATED(KEEP_MIXED_IMAGE)))
		rc = read_image(own, number, like, &kept);
	own->report.took_ns = reef_now_ns() - start_ns;
	if (rc) {
		own->report.done = false;
		reef_kept_fini(&kept);
		return rc;
	}
	own->taken = number;
	*out = kept;
	return 0;
}

/* --- lend, has --- */

static int image_lend(struct reef_keep *keep, const struct reef_kept *kept)
{
	struct image_keep *own = of(keep);
	uint64_t number;
	int rc;

	if (!own->taken || REEF_MUTATED(KEEP_CLEAN_TWICE))
		return 0;
	rc = reef_image_unmark(own->store, MARK, &number);
	if (!rc)
		own->taken = 0;
	return rc;
}

static int image_has(struct reef_keep *keep, const struct reef_keep_head *head)
{
	struct image_keep *own = of(keep);
	uint64_t number = 0;
	int rc = lock_folder(own);

	if (rc == 0)
		rc = reef_image_marked(own->store, MARK, &number);
	if (rc || !number || REEF_MUTATED(KEEP_CLEAN_TWICE))
		return rc;
	return number == head->image ? 1 : -EEXIST;
}

/* --- save --- */

static int write_extents(struct image_keep *own,
			 struct reef_image_writer *writer,
			 const struct reef_kept *kept, uint64_t all)
{
	const struct reef_kept_extent *extent = kept->extents;
	uint64_t done = 0, size;
	uint32_t i, piece;
	int rc = 0;

	for (i = 0; rc == 0 && i < kept->extents_count; i++, extent++) {
		size = extent->line.size;
		for (piece = 0; rc == 0 && piece < reef_image_pieces(size);
		     piece++) {
			rc = reef_image_write(writer, i, piece,
					      (uint8_t *)extent->memory->base +
						      piece * REEF_IMAGE_PIECE);
			done += reef_image_piece_size(size, piece);
			tell(own, done, all);
		}
	}
	return rc;
}

static void fill_about(const struct reef_kept *kept,
		       struct reef_image_extent *extents,
		       struct reef_image_about *about)
{
	const struct reef_keep_line *line;

	for (uint32_t i = 0; i < kept->extents_count; i++) {
		line = &kept->extents[i].line;
		extents[i] = (struct reef_image_extent){
			.number = line->extent,
			.space = line->space,
			.epoch = line->epoch,
			.copy = line->copy,
			.size = line->size,
		};
	}
	*about = (struct reef_image_about){
		.kind = REEF_IMAGE_NODE,
		.pool = kept->head.pool,
		.node = kept->head.node,
		.broker_epoch = kept->head.broker_epoch,
		.followed_start = kept->head.followed_start,
		.confirmed_epoch = kept->head.confirmed_epoch,
		.confirmed_start = kept->head.confirmed_start,
		.confirmed = kept->head.confirmed,
		.unix_ns = reef_wall_ns(),
		.extents = extents,
		.extents_count = kept->extents_count,
	};
}

/* Remove the image that lies there, which is of no use (4): its room may be
 * needed. */
static int clear_folder(struct image_keep *own)
{
	uint64_t number;
	int rc = reef_image_unmark(own->store, MARK, &number);

	if (rc == 0)
		rc = reef_store_remove(own->store, IMAGE);
	return rc == -ENOENT ? 0 : rc;
}

static int write_image(struct image_keep *own, const struct reef_kept *kept,
		       const struct reef_image_about *about)
{
	struct reef_image_writer *writer;
	uint64_t all = 0;
	int rc;

	for (uint32_t i = 0; i < kept->extents_count; i++)
		all += kept->extents[i].line.size;
	own->report.bytes = all;
	own->report.unix_ns = about->unix_ns;
	rc = clear_folder(own);
	if (rc == 0)
		rc = reef_image_begin(own->store, IMAGE, about, &writer);
	if (rc)
		return rc;
	rc = write_extents(own, writer, kept, all);
	if (rc) {
		reef_image_discard(writer);
		return rc;
	}
	rc = reef_image_finish(writer);
	if (rc == 0)
		rc = reef_image_mark(own->store, MARK, about->number);
	return rc;
}

static uint64_t image_number(struct reef_keep *keep)
{
	const struct image_keep *own = of(keep);

	return own->taken ? own->taken : own->next;
}

static int image_save(struct reef_keep *keep, const struct reef_kept *kept)
{
	struct image_keep *own = of(keep);
	uint64_t start_ns = reef_now_ns();
	struct reef_image_extent *extents;
	struct reef_image_about about;
	int rc = lock_folder(own);

	own->report = (struct reef_keep_image_report){
		.failed = rc, .extents = kept->extents_count};
	if (rc)
		return rc;
	extents = calloc(kept->extents_count + 1, sizeof(*extents));
	if (!extents)
		return own->report.failed = -ENOMEM;
	fill_about(kept, extents, &about);
	own->taken = 0;
	about.number = own->next;
	own->next += 2;
	rc = write_image(own, kept, &about);
	own->report.took_ns = reef_now_ns() - start_ns;
	own->report.done = own->report.saved = rc == 0;
	own->report.failed = rc;
	free(extents);
	return rc;
}

/* --- while the node runs an image knows of nothing --- */

static int image_add(struct reef_keep *keep, const struct reef_keep_line *line,
		     struct reef_memory *memory)
{
	return 0;
}

static void image_forget(struct reef_keep *keep, uint32_t extent)
{
}

static void image_note(struct reef_keep *keep,
		       const struct reef_keep_head *head)
{
}

static const struct reef_keep_ops image_ops = {
	.take = image_take,
	.add = image_add,
	.forget = image_forget,
	.note = image_note,
	.lend = image_lend,
	.has = image_has,
	.number = image_number,
	.save = image_save,
};

int reef_keep_image_create(struct reef_store *store,
			   const struct reef_keep_image_options *options,
			   struct reef_keep **out)
{
	struct image_keep *own = calloc(1, sizeof(*own));
	int rc;

	if (!own)
		return -ENOMEM;
	rc = reef_random_secret(&own->next, sizeof(own->next));
	if (rc) {
		free(own);
		return rc;
	}
	own->next |= 1;
	own->keep.ops = &image_ops;
	own->store = store;
	if (options)
		own->options = *options;
	*out = &own->keep;
	return 0;
}

void reef_keep_image_destroy(struct reef_keep *keep)
{
	if (!keep)
		return;
	reef_disk_close(of(keep)->lock);
	free(of(keep));
}

const struct reef_keep_image_report *
reef_keep_image_report(const struct reef_keep *keep)
{
	return &((const struct image_keep *)keep)->report;
}
