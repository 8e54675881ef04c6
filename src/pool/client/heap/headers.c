/* headers.c - reading the headers of whole runs.
 *
 * Of small blocks the units are read, as one READ of a unit costs less than
 * those of many words in it; of others the words. */
#include "pool/client/heap/internal.h"

#define BULK_MAX 512u /* block size up to which whole units are read */
#define BULK_BATCH 16u

struct reader {
	struct reef_heap *heap;
	heap_header_fn *each;
	void *context;
	uint8_t *bulk; /* BULK_BATCH units */
	struct reef_access accesses[HEAP_BATCH];
	struct {
		struct run *run;
		uint32_t index; /* of a block; UINT32_MAX: a whole unit */
		uint64_t header;
	} reads[HEAP_BATCH];
	uint32_t count, bulk_count;
};

/* Tell the headers of the blocks that begin in a unit that was read. */
static void tell_unit(struct reader *reader, struct run *run,
		      const struct reef_access *access)
{
	uint64_t start = access->address, header, at;

	for (uint32_t b = 0; b < run->count; b++) {
		at = heap_block_address(run, b) - HEAP_HEADER;
		if (at < start || at >= start + REEF_UNIT_SIZE)
			continue;
		memcpy(&header, (uint8_t *)access->local + (at - start), 8);
		reader->each(reader->context, run, b, header);
	}
}

static int read_batch(struct reader *reader)
{
	int rc = reader->count ? heap_execute(reader->heap, reader->accesses,
					      reader->count)
			       : 0;

	for (uint32_t i = 0; i < reader->count && !rc; i++) {
		if (reader->reads[i].index == UINT32_MAX)
			tell_unit(reader, reader->reads[i].run,
				  &reader->accesses[i]);
		else
			reader->each(reader->context, reader->reads[i].run,
				     reader->reads[i].index,
				     reader->reads[i].header);
	}
	reader->count = reader->bulk_count = 0;
	return rc;
}

static int read_later(struct reader *reader, struct run *run, uint32_t index,
		      uint64_t address)
{
	uint32_t at = reader->count++;

	reader->reads[at].run = run;
	reader->reads[at].index = index;
	if (index == UINT32_MAX)
		reader->accesses[at] = heap_read(
			address,
			reader->bulk + reader->bulk_count++ * REEF_UNIT_SIZE,
			REEF_UNIT_SIZE);
	else
		reader->accesses[at] =
			heap_read(address, &reader->reads[at].header, 8);
	if (reader->count == HEAP_BATCH || reader->bulk_count == BULK_BATCH)
		return read_batch(reader);
	return 0;
}

static int read_run(struct reader *reader, struct run *run)
{
	int rc = 0;

	if (run->block_size > BULK_MAX) {
		for (uint32_t b = 0; b < run->count && !rc; b++)
			rc = read_later(reader, run, b,
					heap_block_address(run, b) -
						HEAP_HEADER);
		return rc;
	}
	for (uint32_t u = 0; u < run->units && !rc; u++)
		rc = read_later(reader, run, UINT32_MAX,
				run->address - HEAP_HEADER +
					u * REEF_UNIT_SIZE);
	return rc;
}

int heap_read_headers(struct reef_heap *heap, struct run **runs, uint32_t count,
		      heap_header_fn *each, void *context)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int rc = 0;

	if (!reader)
		return -ENOMEM;
	reader->heap = heap;
	reader->each = each;
	reader->context = context;
	reader->bulk = malloc(BULK_BATCH * REEF_UNIT_SIZE);
	if (!reader->bulk)
		rc = -ENOMEM;
	for (uint32_t i = 0; i < count && !rc; i++)
		rc = read_run(reader, runs[i]);
	if (!rc)
		rc = read_batch(reader);
	free(reader->bulk);
	free(reader);
	return rc;
}
