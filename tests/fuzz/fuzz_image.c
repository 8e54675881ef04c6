/* fuzz_image.c - an image's file, as someone may find it.
 *
 * Input: a mode, and then
 *   FILE     the whole file
 *   ABOUT    what it is about, under a header with the right sums, so that what
 *            reads it is reached behind the checksums; the file is as long as
 *            its header says
 *   CHANGES  changes to a good image: place (16), change
 *
 * It is refused, or opens and can be read. */
#include "fuzz.h"

#include "base/checksum.h"
#include "base/random.h"
#include "base/store/store.h"
#include "pool/image.h"

#include <string.h>

enum mode { WHOLE, ABOUT, CHANGES, MODES };

#define NAME "image"
#define PAGE 4096u
#define PIECES_MAX 4u

static void put_file(struct reef_store *store, uint64_t offset,
		     const void *bytes, size_t size, uint64_t length)
{
	struct reef_disk_file *file;

	FUZZ_CHECK(!reef_disk_open(store, NAME, REEF_DISK_CREATE, &file));
	if (length)
		FUZZ_CHECK(!reef_disk_truncate(file, length));
	if (size)
		FUZZ_CHECK(!reef_disk_write(file, offset, bytes, size));
	FUZZ_CHECK(!reef_disk_sync(file));
	reef_disk_close(file);
}

/* The seeds are those of image.c. */
static void seal(struct reef_store *store, struct fuzz_input *input)
{
	static uint8_t about[16 * PAGE], header[PAGE];
	uint64_t pieces = fuzz_take(input) % PIECES_MAX, length;
	uint64_t zeroes[PIECES_MAX] = {0};
	size_t size = input->size < sizeof(about) ? input->size : sizeof(about);
	size_t room = (size + PAGE - 1) / PAGE * PAGE;

	memset(about, 0, sizeof(about));
	memset(header, 0, sizeof(header));
	if (size)
		memcpy(about, input->bytes, size);
	length = PAGE + room + pieces * (PAGE + 8);
	reef_put64(header, UINT64_C(0x676d496665655221));
	reef_put64(header + 8, REEF_IMAGE_VERSION | (uint64_t)PAGE << 32);
	reef_put64(header + 16, room);
	reef_put64(header + 24, pieces);
	reef_put64(header + 32, length);
	reef_put64(header + 40, reef_hash(about, room, 2));
	reef_put64(header + 48, reef_hash(zeroes, pieces * 8, 3));
	reef_put64(header + PAGE - 8, reef_hash(header, PAGE - 8, 1));
	put_file(store, 0, header, PAGE, length);
	put_file(store, PAGE, about, room, 0);
}

static void make_good(struct reef_store *store)
{
	static const struct reef_image_extent extents[] = {
		{.number = 7, .space = 3, .epoch = 2, .size = 8192},
		{.number = 9,
		 .space = 3,
		 .ordinal = 1,
		 .epoch = 1,
		 .size = 4096},
	};
	static const struct reef_image_name names[] = {
		{.name = {"lock", 4}, .value = 5, .generation = 17},
	};
	static const uint32_t sessions[] = {0x10002};
	const struct reef_image_about about = {
		.kind = REEF_IMAGE_SPACE,
		.pool = 11,
		.number = 12,
		.name = {"space", 5},
		.names = names,
		.names_count = 1,
		.sessions = sessions,
		.sessions_count = 1,
		.extents = extents,
		.extents_count = 2,
	};
	struct reef_image_writer *writer;
	uint8_t bytes[8192];

	memset(bytes, 3, sizeof(bytes));
	FUZZ_CHECK(!reef_image_begin(store, NAME, &about, &writer));
	FUZZ_CHECK(!reef_image_write(writer, 0, 0, bytes));
	FUZZ_CHECK(!reef_image_finish(writer));
}

static void change(struct reef_store *store, struct fuzz_input *input)
{
	uint16_t place;
	uint8_t byte;

	make_good(store);
	while (input->size >= 3) {
		place = (uint16_t)(fuzz_take(input) << 8);
		place |= fuzz_take(input);
		byte = fuzz_take(input);
		put_file(store, place, &byte, 1, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	struct reef_random random;
	struct reef_image *image;
	struct reef_store *store;

	reef_random_init(&random, 1);
	FUZZ_CHECK(!reef_store_open_memory(&random, &store));
	switch (fuzz_take(&input) % MODES) {
	case WHOLE:
		put_file(store, 0, input.bytes, input.size, 0);
		break;
	case ABOUT:
		seal(store, &input);
		break;
	default:
		change(store, &input);
	}
	if (!reef_image_open(store, NAME, &image)) {
		/* An image may be about more than a memory store has. */
		if (reef_image_size(image) < UINT64_C(64) << 20)
			(void)reef_image_verify(image, NULL, NULL);
		reef_image_close(image);
	}
	reef_store_destroy(store);
	return 0;
}
