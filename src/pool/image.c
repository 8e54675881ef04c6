/* image.c - see image.h.
 *
 *   header: magic 64, version 32, page 32, about's size 64, pieces 64, file's
 *   size 64, hash of about 64, hash of the sums 64, zeroes, and in the last 8
 *   bytes the hash of all before. What it is about begins at the second page
 *   and ends with zeroes up to a whole page, which are hashed with it.
 *
 * A hash is XXH3 with a seed that tells what is hashed. The sum of a piece of
 * zeroes is 0, of all others never; so a hole is known without being read. */
#include "pool/image.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/store/store.h"
#include "wire/states.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC UINT64_C(0x676d496665655221) /* "!ReefImg" */
#define PAGE 4096u
#define PIECES_MAX (UINT64_C(1) << 32)
#define ABOUT_MAX (UINT64_C(1) << 30)
#define FILE_NAME_MAX 240
#define TEMPORARY ".new"

enum seed { SEED_HEADER = 1, SEED_ABOUT, SEED_SUMS, SEED_MARK };

/* Where things are in the file. */
struct layout {
	uint64_t about_size; /* in whole pages */
	uint64_t pieces;
	uint64_t sums_at, file_size;
	/* Per extent: where its bytes begin, and its first piece. */
	uint64_t *at, *first;
};

struct reef_image_writer {
	struct reef_store *store;
	struct reef_disk_file *file;
	char name[FILE_NAME_MAX + 1];
	char temporary[FILE_NAME_MAX + sizeof(TEMPORARY)];
	struct reef_cursor_out about;
	struct reef_image_extent *extents;
	uint32_t extents_count;
	struct layout layout;
	uint64_t *sums; /* little-endian */
};

struct reef_image {
	struct reef_disk_file *file;
	uint8_t *bytes; /* what it is about; texts point into it */
	struct reef_image_about about;
	struct reef_image_extent *extents;
	struct reef_image_name *names;
	uint32_t *sessions;
	struct layout layout;
	uint64_t *sums;
};

uint32_t reef_image_pieces(uint64_t size)
{
	return (uint32_t)((size + REEF_IMAGE_PIECE - 1) / REEF_IMAGE_PIECE);
}

uint32_t reef_image_piece_size(uint64_t size, uint32_t piece)
{
	uint64_t left = size - piece * REEF_IMAGE_PIECE;

	return (uint32_t)(left < REEF_IMAGE_PIECE ? left : REEF_IMAGE_PIECE);
}

static bool is_size_valid(uint64_t size)
{
	return size && size <= REEF_EXTENT_SIZE_MAX &&
	       size % REEF_EXTENT_ALIGN == 0;
}

static uint64_t round_up(uint64_t size)
{
	return (size + PAGE - 1) / PAGE * PAGE;
}

static void layout_fini(struct layout *layout)
{
	free(layout->at);
	free(layout->first);
	*layout = (struct layout){0};
}

/* Lay out a file of these extents. */
static int layout_init(struct layout *layout, uint64_t about_size,
		       const struct reef_image_extent *extents, uint32_t count)
{
	uint64_t at = PAGE + about_size;
	uint32_t i;

	*layout = (struct layout){
		.about_size = about_size,
		.at = calloc(count + 1, sizeof(*layout->at)),
		.first = calloc(count + 1, sizeof(*layout->first)),
	};
	if (!layout->at || !layout->first) {
		layout_fini(layout);
		return -ENOMEM;
	}
	for (i = 0; i < count; i++) {
		layout->at[i] = at;
		layout->first[i] = layout->pieces;
		at += extents[i].size;
		layout->pieces += reef_image_pieces(extents[i].size);
	}
	layout->sums_at = at;
	layout->file_size = at + layout->pieces * 8;
	if (layout->pieces <= PIECES_MAX)
		return 0;
	layout_fini(layout);
	return -EINVAL;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	return size == 0 ||
	       (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* The sum of a piece, by where it belongs (3). */
static uint64_t sum_of(const void *bytes, size_t size, uint64_t index)
{
	uint64_t sum = reef_hash(bytes, size, ~index);

	return sum ? sum : 1;
}

/* --- what it is about --- */

static void put_text(struct reef_cursor_out *out, struct reef_text text)
{
	reef_cursor_put(out, 2, text.size);
	reef_cursor_bytes(out, text.bytes, text.size);
}

static void put_about(struct reef_cursor_out *out,
		      const struct reef_image_about *about)
{
	static const uint8_t zeroes[PAGE];
	const struct reef_image_extent *extent = about->extents;
	uint32_t i;

	reef_cursor_put(out, 4, about->kind);
	reef_cursor_put(out, 8, about->pool);
	reef_cursor_put(out, 8, about->broker_epoch);
	reef_cursor_put(out, 8, about->unix_ns);
	reef_cursor_put(out, 8, about->number);
	reef_cursor_put(out, 4, about->node);
	reef_cursor_put(out, 8, about->followed_start);
	reef_cursor_put(out, 8, about->confirmed_epoch);
	reef_cursor_put(out, 8, about->confirmed_start);
	reef_cursor_put(out, 8, about->confirmed);
	reef_cursor_put(out, 4, about->space);
	reef_cursor_put(out, 1, about->space_kind);
	/* The upper half of the byte was 0 before spaces had copies. */
	reef_cursor_put(out, 1,
			about->keeping |
				(about->copies > 1 ? about->copies << 4 : 0));
	reef_cursor_put(out, 8, about->quota);
	put_text(out, about->name);
	reef_cursor_put(out, 4, about->extents_count);
	for (i = 0; i < about->extents_count; i++, extent++) {
		reef_cursor_put(out, 4, extent->number);
		reef_cursor_put(out, 4, extent->space);
		reef_cursor_put(out, 4, extent->ordinal);
		reef_cursor_put(out, 4, extent->epoch);
		reef_cursor_put(out, 8, extent->copy);
		reef_cursor_put(out, 8, extent->size);
	}
	reef_cursor_put(out, 4, about->sessions_count);
	for (i = 0; i < about->sessions_count; i++)
		reef_cursor_put(out, 4, about->sessions[i]);
	reef_cursor_put(out, 4, about->names_count);
	for (i = 0; i < about->names_count; i++) {
		put_text(out, about->names[i].name);
		reef_cursor_put(out, 8, about->names[i].value);
		reef_cursor_put(out, 8, about->names[i].generation);
	}
	reef_cursor_bytes(out, zeroes,
			  (size_t)(round_up(out->size) - out->size));
}

static struct reef_text get_text(struct reef_cursor_in *in)
{
	uint16_t size = (uint16_t)reef_cursor_get(in, 2);
	const char *bytes = (const char *)reef_cursor_take(in, size);

	return (struct reef_text){bytes ? bytes : "", bytes ? size : 0};
}

/* Read how many of something there are, each of at least that many bytes, and
 * take memory for them. */
static int get_count(struct reef_cursor_in *in, uint64_t most, size_t least,
		     size_t size, uint32_t *count, void **out)
{
	uint64_t found = reef_cursor_get(in, 4);

	if (in->failed || found > most || found * least > in->left)
		return -REEF_ECORRUPT;
	*out = calloc(found + 1, size);
	if (!*out)
		return -ENOMEM;
	*count = (uint32_t)found;
	return 0;
}

static int get_extents(struct reef_cursor_in *in, struct reef_image *image)
{
	struct reef_image_extent *extent;
	uint32_t i;
	int rc;

	rc = get_count(in, REEF_IMAGE_EXTENTS_MAX, 32, sizeof(*extent),
		       &image->about.extents_count, (void **)&image->extents);
	for (i = 0; rc == 0 && i < image->about.extents_count; i++) {
		extent = &image->extents[i];
		extent->number = (uint32_t)reef_cursor_get(in, 4);
		extent->space = (uint32_t)reef_cursor_get(in, 4);
		extent->ordinal = (uint32_t)reef_cursor_get(in, 4);
		extent->epoch = (uint32_t)reef_cursor_get(in, 4);
		extent->copy = reef_cursor_get(in, 8);
		extent->size = reef_cursor_get(in, 8);
		if (!is_size_valid(extent->size) || !extent->number ||
		    (i && extent->number <= extent[-1].number))
			rc = -REEF_ECORRUPT;
	}
	image->about.extents = image->extents;
	return rc;
}

static int get_names(struct reef_cursor_in *in, struct reef_image *image)
{
	uint32_t i;
	int rc;

	rc = get_count(in, REEF_IMAGE_NAMES_MAX, 18, sizeof(*image->names),
		       &image->about.names_count, (void **)&image->names);
	for (i = 0; rc == 0 && i < image->about.names_count; i++) {
		image->names[i].name = get_text(in);
		image->names[i].value = reef_cursor_get(in, 8);
		image->names[i].generation = reef_cursor_get(in, 8);
	}
	image->about.names = image->names;
	return rc;
}

static int get_sessions(struct reef_cursor_in *in, struct reef_image *image)
{
	uint32_t i;
	int rc;

	rc = get_count(in, REEF_IMAGE_SESSIONS_MAX, 4, 4,
		       &image->about.sessions_count, (void **)&image->sessions);
	for (i = 0; rc == 0 && i < image->about.sessions_count; i++)
		image->sessions[i] = (uint32_t)reef_cursor_get(in, 4);
	image->about.sessions = image->sessions;
	return rc;
}

static int get_about(struct reef_image *image, uint64_t size)
{
	struct reef_cursor_in in = {.bytes = image->bytes, .left = size};
	struct reef_image_about *about = &image->about;
	int rc;

	about->kind = (enum reef_image_kind)reef_cursor_get(&in, 4);
	about->pool = reef_cursor_get(&in, 8);
	about->broker_epoch = reef_cursor_get(&in, 8);
	about->unix_ns = reef_cursor_get(&in, 8);
	about->number = reef_cursor_get(&in, 8);
	about->node = (uint32_t)reef_cursor_get(&in, 4);
	about->followed_start = reef_cursor_get(&in, 8);
	about->confirmed_epoch = reef_cursor_get(&in, 8);
	about->confirmed_start = reef_cursor_get(&in, 8);
	about->confirmed = reef_cursor_get(&in, 8);
	about->space = (uint32_t)reef_cursor_get(&in, 4);
	about->space_kind = (uint8_t)reef_cursor_get(&in, 1);
	about->keeping = (uint8_t)reef_cursor_get(&in, 1);
	about->copies = about->keeping >> 4 ? about->keeping >> 4 : 1;
	about->keeping &= 15;
	about->quota = reef_cursor_get(&in, 8);
	about->name = get_text(&in);
	rc = get_extents(&in, image);
	if (rc == 0)
		rc = get_sessions(&in, image);
	if (rc == 0)
		rc = get_names(&in, image);
	if (rc)
		return rc;
	if (in.failed || in.left >= PAGE || !is_zero(in.bytes, in.left) ||
	    about->copies > 2 ||
	    (about->kind != REEF_IMAGE_NODE && about->kind != REEF_IMAGE_SPACE))
		return -REEF_ECORRUPT;
	return 0;
}

/* --- writing --- */

static int check_about(const struct reef_image_about *about)
{
	uint32_t i;

	if (about->extents_count > REEF_IMAGE_EXTENTS_MAX ||
	    about->names_count > REEF_IMAGE_NAMES_MAX ||
	    about->sessions_count > REEF_IMAGE_SESSIONS_MAX)
		return -EINVAL;
	for (i = 0; i < about->extents_count; i++)
		if (!is_size_valid(about->extents[i].size) ||
		    !about->extents[i].number ||
		    (i &&
		     about->extents[i].number <= about->extents[i - 1].number))
			return -EINVAL;
	return 0;
}

static void free_writer(struct reef_image_writer *writer)
{
	reef_disk_close(writer->file);
	layout_fini(&writer->layout);
	free(writer->about.bytes);
	free(writer->extents);
	free(writer->sums);
	free(writer);
}

static int prepare_writer(struct reef_image_writer *writer,
			  const struct reef_image_about *about)
{
	size_t extents_size = about->extents_count * sizeof(*writer->extents);
	int rc;

	put_about(&writer->about, about);
	if (writer->about.failed)
		return -ENOMEM;
	if (writer->about.size > ABOUT_MAX)
		return -EINVAL;
	writer->extents = malloc(extents_size + 1);
	if (!writer->extents)
		return -ENOMEM;
	if (extents_size)
		memcpy(writer->extents, about->extents, extents_size);
	writer->extents_count = about->extents_count;
	rc = layout_init(&writer->layout, writer->about.size, writer->extents,
			 writer->extents_count);
	if (rc)
		return rc;
	writer->sums = calloc(writer->layout.pieces + 1, 8);
	return writer->sums ? 0 : -ENOMEM;
}

int reef_image_begin(struct reef_store *store, const char *name,
		     const struct reef_image_about *about,
		     struct reef_image_writer **out)
{
	struct reef_image_writer *writer;
	int rc = check_about(about);

	if (rc == 0 && strlen(name) > FILE_NAME_MAX)
		rc = -ENAMETOOLONG;
	if (rc)
		return rc;
	writer = calloc(1, sizeof(*writer));
	if (!writer)
		return -ENOMEM;
	writer->store = store;
	snprintf(writer->name, sizeof(writer->name), "%s", name);
	snprintf(writer->temporary, sizeof(writer->temporary), "%s%s", name,
		 TEMPORARY);
	rc = prepare_writer(writer, about);
	if (rc == 0)
		rc = reef_disk_open(store, writer->temporary, REEF_DISK_CREATE,
				    &writer->file);
	/* What another one left there is cut off, so that holes are zeroes. */
	if (rc == 0)
		rc = reef_disk_truncate(writer->file, 0);
	if (rc == 0)
		rc = reef_disk_truncate(writer->file, writer->layout.file_size);
	if (rc) {
		reef_image_discard(writer);
		return rc;
	}
	*out = writer;
	return 0;
}

/* Write those pages that are not zeroes, as many at once as follow each other.
 * The last bytes of a disk are left to the broker's journal, which may be
 * there, too: a broker that cannot write it ends. */
static int write_pages(struct reef_disk_file *file, uint64_t at,
		       const uint8_t *bytes, uint32_t size)
{
	uint32_t from, to;
	int rc = 0;

	for (from = 0; rc == 0 && from < size; from = to) {
		to = from + PAGE;
		if (is_zero(bytes + from, PAGE))
			continue;
		while (to < size && !is_zero(bytes + to, PAGE))
			to += PAGE;
		if (reef_store_room(file->store) < to - from)
			return -ENOSPC;
		rc = reef_disk_write(file, at + from, bytes + from, to - from);
	}
	return rc;
}

int reef_image_write(struct reef_image_writer *writer, uint32_t extent,
		     uint32_t piece, const void *bytes)
{
	const struct reef_image_extent *of = &writer->extents[extent];
	uint64_t index = writer->layout.first[extent] + piece;
	uint32_t size = reef_image_piece_size(of->size, piece);

	reef_assert(extent < writer->extents_count &&
		    piece < reef_image_pieces(of->size));
	if (is_zero(bytes, size))
		return 0;
	reef_put64((uint8_t *)&writer->sums[index], sum_of(bytes, size, index));
	return write_pages(writer->file,
			   writer->layout.at[extent] + piece * REEF_IMAGE_PIECE,
			   bytes, size);
}

static void fill_header(const struct reef_image_writer *writer,
			uint8_t header[PAGE])
{
	const struct layout *layout = &writer->layout;

	memset(header, 0, PAGE);
	reef_put64(header, MAGIC);
	reef_put64(header + 8, REEF_IMAGE_VERSION | (uint64_t)PAGE << 32);
	reef_put64(header + 16, layout->about_size);
	reef_put64(header + 24, layout->pieces);
	reef_put64(header + 32, layout->file_size);
	reef_put64(header + 40, reef_hash(writer->about.bytes,
					  writer->about.size, SEED_ABOUT));
	reef_put64(header + 48,
		   reef_hash(writer->sums, layout->pieces * 8, SEED_SUMS));
	reef_put64(header + PAGE - 8, reef_hash(header, PAGE - 8, SEED_HEADER));
}

int reef_image_finish(struct reef_image_writer *writer)
{
	uint8_t header[PAGE];
	int rc;

	fill_header(writer, header);
	rc = reef_disk_write(writer->file, PAGE, writer->about.bytes,
			     writer->about.size);
	if (rc == 0 && writer->layout.pieces)
		rc = reef_disk_write(writer->file, writer->layout.sums_at,
				     writer->sums, writer->layout.pieces * 8);
	if (rc == 0)
		rc = reef_disk_write(writer->file, 0, header, PAGE);
	if (rc == 0)
		rc = reef_disk_sync(writer->file);
	if (rc == 0)
		rc = reef_store_rename(writer->store, writer->temporary,
				       writer->name);
	if (rc) {
		reef_image_discard(writer);
		return rc;
	}
	rc = reef_store_sync_names(writer->store);
	free_writer(writer);
	return rc;
}

void reef_image_discard(struct reef_image_writer *writer)
{
	if (!writer)
		return;
	if (writer->file)
		reef_store_remove(writer->store, writer->temporary);
	free_writer(writer);
}

/* --- reading --- */

static int refuse(const char *name, int rc, const char *why)
{
	reef_log(REEF_LOG_ERROR, "image", "%s: %s", name, why);
	return rc;
}

/* Read exactly that much. */
static int read_whole(struct reef_disk_file *file, uint64_t at, void *bytes,
		      uint64_t size)
{
	ssize_t n = reef_disk_read(file, at, bytes, size);

	if (n < 0)
		return (int)n;
	return (uint64_t)n == size ? 0 : -REEF_ECORRUPT;
}

static int check_header(const uint8_t header[PAGE], const char *name)
{
	if (reef_get64(header) != MAGIC)
		return refuse(name, -REEF_ECORRUPT, "this is no image");
	if ((uint32_t)reef_get64(header + 8) != REEF_IMAGE_VERSION)
		return refuse(name, -REEF_EVERSION,
			      "an image of another version, or damaged");
	if (reef_get64(header + PAGE - 8) !=
		    reef_hash(header, PAGE - 8, SEED_HEADER) ||
	    reef_get64(header + 8) >> 32 != PAGE ||
	    reef_get64(header + 16) % PAGE ||
	    reef_get64(header + 16) > ABOUT_MAX)
		return refuse(name, -REEF_ECORRUPT, "its header is damaged");
	return 0;
}

/* Read what it is about, of which the header is valid. */
static int read_about(struct reef_image *image, const uint8_t header[PAGE],
		      const char *name)
{
	uint64_t size = reef_get64(header + 16);
	int rc;

	image->bytes = malloc(size + 1);
	if (!image->bytes)
		return -ENOMEM;
	rc = read_whole(image->file, PAGE, image->bytes, size);
	if (rc == 0 && reef_hash(image->bytes, size, SEED_ABOUT) !=
			       reef_get64(header + 40))
		rc = -REEF_ECORRUPT;
	if (rc == 0)
		rc = get_about(image, size);
	if (rc == 0)
		rc = layout_init(&image->layout, size, image->extents,
				 image->about.extents_count);
	return rc == -REEF_ECORRUPT
		       ? refuse(name, rc, "what it is about is damaged")
		       : rc;
}

static int read_sums(struct reef_image *image, const uint8_t header[PAGE],
		     const char *name)
{
	const struct layout *layout = &image->layout;
	int64_t size = reef_disk_size(image->file);
	int rc;

	if (size < 0)
		return (int)size;
	if (reef_get64(header + 24) != layout->pieces ||
	    reef_get64(header + 32) != layout->file_size)
		return refuse(name, -REEF_ECORRUPT, "its header is damaged");
	if ((uint64_t)size != layout->file_size)
		return refuse(name, -REEF_ECORRUPT,
			      (uint64_t)size < layout->file_size
				      ? "its end is missing"
				      : "it is longer than it says");
	image->sums = malloc(layout->pieces * 8 + 1);
	if (!image->sums)
		return -ENOMEM;
	rc = read_whole(image->file, layout->sums_at, image->sums,
			layout->pieces * 8);
	if (rc)
		return rc;
	if (reef_hash(image->sums, layout->pieces * 8, SEED_SUMS) !=
	    reef_get64(header + 48))
		return refuse(name, -REEF_ECORRUPT, "its sums are damaged");
	return 0;
}

int reef_image_open(struct reef_store *store, const char *name,
		    struct reef_image **out)
{
	struct reef_image *image = calloc(1, sizeof(*image));
	uint8_t header[PAGE];
	ssize_t n;
	int rc;

	if (!image)
		return -ENOMEM;
	rc = reef_disk_open(store, name, 0, &image->file);
	if (rc == 0) {
		n = reef_disk_read(image->file, 0, header, PAGE);
		if (n < 0)
			rc = (int)n;
		else if (n < (ssize_t)PAGE)
			rc = refuse(name, -REEF_ECORRUPT,
				    "too short for an image");
	}
	if (rc == 0)
		rc = check_header(header, name);
	if (rc == 0)
		rc = read_about(image, header, name);
	if (rc == 0)
		rc = read_sums(image, header, name);
	if (rc) {
		reef_image_close(image);
		return rc;
	}
	*out = image;
	return 0;
}

void reef_image_close(struct reef_image *image)
{
	if (!image)
		return;
	reef_disk_close(image->file);
	layout_fini(&image->layout);
	free(image->bytes);
	free(image->extents);
	free(image->names);
	free(image->sessions);
	free(image->sums);
	free(image);
}

const struct reef_image_about *reef_image_about(const struct reef_image *image)
{
	return &image->about;
}

uint64_t reef_image_size(const struct reef_image *image)
{
	uint64_t size = 0;

	for (uint32_t i = 0; i < image->about.extents_count; i++)
		size += image->extents[i].size;
	return size;
}

int reef_image_read(struct reef_image *image, uint32_t extent, uint32_t piece,
		    void *bytes, bool *empty)
{
	const struct reef_image_extent *of = &image->extents[extent];
	uint64_t index = image->layout.first[extent] + piece, sum;
	uint32_t size = reef_image_piece_size(of->size, piece);
	bool zero;
	int rc;

	reef_assert(extent < image->about.extents_count &&
		    piece < reef_image_pieces(of->size));
	rc = read_whole(image->file,
			image->layout.at[extent] + piece * REEF_IMAGE_PIECE,
			bytes, size);
	if (rc)
		return rc;
	sum = reef_get64((uint8_t *)&image->sums[index]);
	zero = is_zero(bytes, size);
	if (zero ? sum != 0 : sum != sum_of(bytes, size, index)) {
		reef_log(REEF_LOG_ERROR, "image",
			 "extent %u is damaged, in its MiB %u", of->number,
			 piece);
		return -REEF_ECORRUPT;
	}
	if (empty)
		*empty = zero;
	return 0;
}

int reef_image_verify(struct reef_image *image,
		      int (*tell)(void *context, uint64_t done, uint64_t all),
		      void *context)
{
	uint64_t done = 0, all = reef_image_size(image);
	void *bytes = malloc(REEF_IMAGE_PIECE);
	int rc = bytes ? 0 : -ENOMEM;
	uint32_t i, piece;

	for (i = 0; rc == 0 && i < image->about.extents_count; i++)
		for (piece = 0;
		     rc == 0 &&
		     piece < reef_image_pieces(image->extents[i].size);
		     piece++) {
			rc = reef_image_read(image, i, piece, bytes, NULL);
			done += reef_image_piece_size(image->extents[i].size,
						      piece);
			if (rc == 0 && tell)
				rc = tell(context, done, all);
		}
	free(bytes);
	return rc;
}

/* --- the clean mark --- */

#define MARK_SIZE 16

int reef_image_mark(struct reef_store *store, const char *mark, uint64_t number)
{
	struct reef_disk_file *file = NULL;
	uint8_t bytes[MARK_SIZE];
	int rc;

	reef_put64(bytes, number);
	reef_put64(bytes + 8, reef_hash(bytes, 8, SEED_MARK));
	rc = reef_disk_open(store, mark, REEF_DISK_CREATE, &file);
	if (rc == 0)
		rc = reef_disk_truncate(file, 0);
	if (rc == 0)
		rc = reef_disk_write(file, 0, bytes, sizeof(bytes));
	if (rc == 0)
		rc = reef_disk_sync(file);
	reef_disk_close(file);
	return rc ? rc : reef_store_sync_names(store);
}

int reef_image_marked(struct reef_store *store, const char *mark,
		      uint64_t *number)
{
	struct reef_disk_file *file = NULL;
	uint8_t bytes[MARK_SIZE] = {0};
	ssize_t n;
	int rc;

	*number = 0;
	rc = reef_disk_open(store, mark, 0, &file);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	n = reef_disk_read(file, 0, bytes, sizeof(bytes));
	reef_disk_close(file);
	if (n < 0)
		return (int)n;
	if (n == MARK_SIZE &&
	    reef_get64(bytes + 8) == reef_hash(bytes, 8, SEED_MARK))
		*number = reef_get64(bytes);
	return 0;
}

int reef_image_unmark(struct reef_store *store, const char *mark,
		      uint64_t *number)
{
	int rc = reef_image_marked(store, mark, number);

	if (rc == 0)
		rc = reef_store_remove(store, mark);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	return reef_store_sync_names(store);
}
