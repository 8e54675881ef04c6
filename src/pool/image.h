/* image.h - memory in a file: the extents of a node, or of one space.
 *
 *   header    one page: magic, version, sizes, how many pieces
 *   about     what the image is of: pool, node, extents; of a space also what
 *             it is called, its names, and the sessions that used it
 *   extents   their bytes, one after the other; pages of zeroes are holes
 *   sums      a checksum of each piece, 1 MiB of an extent or its rest
 *
 * (1) A file is an image when it has its name: it is written under another one,
 *     synced, renamed, and the folder synced. Who dies before leaves the image
 *     that was there.
 * (2) Every byte counts: the header has a checksum of itself, of what it is
 *     about and of the sums, the sums of all pieces. Opening checks the first
 *     three and the size, reading a piece its sum. So whatever was changed, cut
 *     off or added is refused, and said in the log.
 * (3) A sum depends on where its piece belongs: pieces that changed places are
 *     refused, too.
 * (4) An image of another version is -REEF_EVERSION, before anything else of it
 *     is believed.
 * (5) The *clean mark* is a file of its own, with the number of one image: that
 *     one is what its node had when it stopped, and nobody has changed anything
 *     since. Whoever takes the memory over takes the mark away first.
 *
 * Checksums find what was damaged. They are no defence against people who
 * write into the folder: it is its user's alone (base/system/private.h).
 *
 * Thread: owner. */
#ifndef REEF_POOL_IMAGE_H
#define REEF_POOL_IMAGE_H

#include "wire/cursor.h"

struct reef_store;
struct reef_image;
struct reef_image_writer;

#define REEF_IMAGE_VERSION 1
#define REEF_IMAGE_PIECE (UINT64_C(1) << 20)
#define REEF_IMAGE_EXTENTS_MAX (1u << 20)
#define REEF_IMAGE_NAMES_MAX (1u << 20)
#define REEF_IMAGE_SESSIONS_MAX (1u << 16)

enum reef_image_kind { REEF_IMAGE_NODE = 1, REEF_IMAGE_SPACE };

struct reef_image_extent {
	uint32_t number, space, ordinal;
	uint32_t epoch;
	uint64_t copy; /* copy id; 0: it had none */
	uint64_t size; /* bytes, in whole pages */
};

struct reef_image_name {
	struct reef_text name;
	uint64_t value, generation;
};

struct reef_image_about {
	enum reef_image_kind kind;
	uint64_t pool;	       /* its id */
	uint64_t broker_epoch; /* the highest that was heard of */
	uint64_t unix_ns;      /* when it was made */
	uint64_t number;       /* by chance, to tell it from others; not 0 */
	/* Of a node: its number, and whom it followed (node/keep.h). */
	uint32_t node;
	uint64_t followed_start;
	uint64_t confirmed_epoch, confirmed_start, confirmed;
	/* Of a space. */
	uint32_t space;
	uint8_t space_kind, keeping;
	uint8_t copies; /* that it is to have: 1, 2 */
	uint64_t quota; /* 0: none */
	struct reef_text name;
	const struct reef_image_name *names;
	uint32_t names_count;
	const uint32_t *sessions; /* that were not recovered */
	uint32_t sessions_count;
	/* Of both. */
	const struct reef_image_extent *extents;
	uint32_t extents_count;
};

/* --- writing --- */

/* Begin an image that is to be called that. Caller owns *out, and ends it by
 * finish or discard; `about` is copied. At most one image of a name is written
 * at a time.  -EINVAL: more of something than the limits above, or a size that
 * is none.  -ENAMETOOLONG.  -ENOMEM, or the store's. */
int reef_image_begin(struct reef_store *store, const char *name,
		     const struct reef_image_about *about,
		     struct reef_image_writer **out);

/* Write the piece of that index of the extent with that index: all of its
 * bytes. Each piece is written once, in any order; what is not written is
 * zeroes.  The store's errors. */
int reef_image_write(struct reef_image_writer *writer, uint32_t extent,
		     uint32_t piece, const void *bytes);

/* Make it what (1) says, then free the writer, whatever happened.  The store's
 * errors: there is no image, or the one of before, unless it was the folder's
 * sync that failed: then there is either. */
int reef_image_finish(struct reef_image_writer *writer);
void reef_image_discard(struct reef_image_writer *writer); /* NULL is fine */

/* --- reading --- */

/* Open an image, and check all of it but the pieces. Caller owns *out.
 * -ENOENT.  -REEF_EVERSION: (4).  -REEF_ECORRUPT: it is none, or was damaged.
 * -ENOMEM, or the store's. */
int reef_image_open(struct reef_store *store, const char *name,
		    struct reef_image **out);
void reef_image_close(struct reef_image *image); /* NULL is fine */

/* What it is about; borrowed until it is closed. */
const struct reef_image_about *reef_image_about(const struct reef_image *image);

/* How many pieces an extent of that size has, and how long one of them is. */
uint32_t reef_image_pieces(uint64_t size);
uint32_t reef_image_piece_size(uint64_t size, uint32_t piece);

/* Read a piece, and check it. *empty (may be NULL): it is all zeroes.
 * -REEF_ECORRUPT, or the store's. */
int reef_image_read(struct reef_image *image, uint32_t extent, uint32_t piece,
		    void *bytes, bool *empty);

/* Read all pieces, and check them: nothing of an image that was damaged is to
 * be used. tell (may be NULL) is told how many bytes were looked at.
 * -REEF_ECORRUPT, -ENOMEM, or the store's; or what tell said. */
int reef_image_verify(struct reef_image *image,
		      int (*tell)(void *context, uint64_t done, uint64_t all),
		      void *context);
/* Bytes of all extents. */
uint64_t reef_image_size(const struct reef_image *image);

/* --- the clean mark (5) --- */

/* Mark the image of that number as clean, durably. */
int reef_image_mark(struct reef_store *store, const char *mark,
		    uint64_t number);
/* Find out which image is marked. *number 0: none. */
int reef_image_marked(struct reef_store *store, const char *mark,
		      uint64_t *number);
/* Take the mark away, durably. *number: of which image it was; 0: there was
 * none that makes sense. */
int reef_image_unmark(struct reef_store *store, const char *mark,
		      uint64_t *number);

#endif
