/* fuzz_journal.c - a journal's files, as someone may find them.
 *
 * Input: a mode, and then
 *   SEGMENT   what stands in segment 1 of a journal just made
 *   SNAPSHOT  what stands in its snapshot
 *   RECORDS   records (type, length, bytes) that are sealed as they should be,
 *             so that what replays them is reached behind the checksums
 *   CHANGES   changes to the files of a good journal: file, place (16), change
 *
 * It is refused, or opens; and then it opens again with the same content. */
#include "fuzz.h"

#include "base/checksum.h"
#include "base/random.h"
#include "base/store/store.h"
#include "pool/broker/journal/format.h"
#include "pool/broker/journal/journal.h"
#include "pool/broker/state/state.h"

#include <reef/error.h>
#include <string.h>

enum mode { SEGMENT, SNAPSHOT, RECORDS, CHANGES, MODES };

#define SALT 42
#define SEGMENT_1 "segment-0000000000000001"
#define SEGMENT_2 "segment-0000000000000002"

struct content {
	uint64_t hash;
	struct reef_state *state; /* NULL: do not replay */
};

static int read_snapshot(void *context, const void *bytes, size_t size)
{
	struct content *content = context;

	content->hash = reef_hash(bytes, size, content->hash);
	return 0;
}

static int read_record(void *context, uint64_t sequence, uint16_t type,
		       const void *bytes, size_t size)
{
	struct content *content = context;

	content->hash = reef_hash(bytes, size, content->hash + type);
	return content->state
		       ? reef_state_replay(content->state, type, bytes, size)
		       : 0;
}

static int open_journal(struct reef_store *store, struct content *content,
			struct reef_journal **out)
{
	struct reef_journal_options options = {.sync_inline = true,
					       .salt = SALT};
	struct reef_journal_reader reader = {read_snapshot, read_record,
					     content};

	return reef_journal_open(store, NULL, &options, &reader, out);
}

static void append(struct reef_journal *journal, const char *text)
{
	uint64_t sequence;

	FUZZ_CHECK(reef_journal_append(journal, 1, text, strlen(text),
				       &sequence) == 0);
	FUZZ_CHECK(reef_journal_wait(journal, sequence) == 0);
}

/* Make a journal, empty or with a snapshot and records. */
static void make_journal(struct reef_store *store, bool empty)
{
	struct content content = {0};
	struct reef_journal *journal;

	FUZZ_CHECK(open_journal(store, &content, &journal) == 0);
	if (!empty) {
		append(journal, "one");
		FUZZ_CHECK(reef_journal_snapshot(journal, "a snapshot", 10) ==
			   0);
		append(journal, "two");
		append(journal, "three");
		reef_store_crash(store);
	}
	reef_journal_close(journal);
}

static void overwrite(struct reef_store *store, const char *name,
		      uint64_t offset, const void *bytes, size_t size)
{
	struct reef_disk_file *file;

	FUZZ_CHECK(reef_disk_open(store, name, 0, &file) == 0);
	if (offset == 0)
		FUZZ_CHECK(reef_disk_truncate(file, 0) == 0);
	FUZZ_CHECK(reef_disk_write(file, offset, bytes, size) == 0);
	FUZZ_CHECK(reef_disk_sync(file) == 0);
	reef_disk_close(file);
}

static void put_records(struct reef_store *store, struct fuzz_input *input)
{
	uint64_t sequence = 1, end = REEF_JOURNAL_HEADER_SIZE;
	uint8_t record[REEF_JOURNAL_RECORD_SIZE + 256];
	uint16_t type;
	size_t size, room;

	while (input->size > 0) {
		type = fuzz_take(input);
		size = fuzz_take(input);
		size = size < input->size ? size : input->size;
		room = reef_journal_record_room(size);
		reef_journal_record_put(record, sequence, type, input->bytes,
					size);
		reef_journal_records_seal(record, room, SALT, sequence - 1);
		overwrite(store, SEGMENT_1, end, record, room);
		input->bytes += size;
		input->size -= size;
		sequence++;
		end += room;
	}
}

static void put_changes(struct reef_store *store, struct fuzz_input *input)
{
	static const char *const names[] = {"journal", "snapshot", SEGMENT_2};
	struct reef_disk_file *file;
	uint64_t at;
	uint8_t byte;

	while (input->size > 0) {
		FUZZ_CHECK(reef_disk_open(store, names[fuzz_take(input) % 3], 0,
					  &file) == 0);
		at = fuzz_take(input);
		at |= (uint64_t)fuzz_take(input) << 8;
		if (reef_disk_read(file, at, &byte, 1) == 1) {
			byte ^= fuzz_take(input);
			FUZZ_CHECK(reef_disk_write(file, at, &byte, 1) == 0);
			FUZZ_CHECK(reef_disk_sync(file) == 0);
		}
		reef_disk_close(file);
	}
}

static void open_twice(struct reef_store *store, bool replay)
{
	struct content content = {0}, again = {0};
	struct reef_journal *journal;
	int rc;

	if (replay)
		FUZZ_CHECK(reef_state_create(&content.state) == 0);
	rc = open_journal(store, &content, &journal);
	FUZZ_CHECK(rc == 0 || rc == -REEF_ECORRUPT || rc == -REEF_EVERSION);
	reef_state_destroy(content.state);
	if (rc)
		return;
	reef_journal_close(journal);
	reef_store_crash(store);
	FUZZ_CHECK(open_journal(store, &again, &journal) == 0);
	FUZZ_CHECK(again.hash == content.hash);
	reef_journal_close(journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct fuzz_input input = {bytes, size};
	enum mode mode = fuzz_take(&input) % MODES;
	struct reef_store *store;
	struct reef_random random;

	reef_random_init(&random, 1);
	FUZZ_CHECK(reef_store_open_memory(&random, &store) == 0);
	make_journal(store, mode != CHANGES);
	switch (mode) {
	case SEGMENT:
		overwrite(store, SEGMENT_1, 0, input.bytes, input.size);
		break;
	case SNAPSHOT:
		overwrite(store, "snapshot", 0, input.bytes, input.size);
		break;
	case RECORDS:
		put_records(store, &input);
		break;
	default:
		put_changes(store, &input);
	}
	open_twice(store, mode == RECORDS);
	reef_store_destroy(store);
	return 0;
}
