/* read.c - what a journal holds, read without changing anything.
 *
 *   identity   snapshot   segments
 *   empty      none       any        not born yet: whatever is there is the
 *                                    rest of a birth that a crash ended
 *   some       none       any        the snapshot is lost: refused
 *   any        whole      first..    whole; the last one may have a torn tail
 *   any        bad        any        refused
 *
 * Records are read until the first that is not whole. If a whole one further on
 * says that the missing one had been durable, it is damage; else nobody was
 * told of it, and the rest is a torn tail. */
#include "pool/broker/journal/format.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/store/store.h"
#include "wire/bytes.h"

#include <errno.h>
#include <reef/error.h>
#include <stdlib.h>

struct content {
	uint8_t *bytes;
	size_t size;
};

/* Log where the damage is, and return -REEF_ECORRUPT. */
static int log_corrupt(const char *file, uint64_t position, const char *what)
{
	reef_log(REEF_LOG_ERROR, "journal", "%s at %llu: %s", file,
		 (unsigned long long)position, what);
	return -REEF_ECORRUPT;
}

static int log_refused(const char *file, int rc)
{
	if (rc == -REEF_ECORRUPT)
		return log_corrupt(file, 0, "the header is damaged");
	reef_log(REEF_LOG_ERROR, "journal", "%s: %s", file,
		 reef_error_text(rc));
	return rc;
}

static int read_open_file(struct reef_disk_file *file, struct content *out)
{
	int64_t size = reef_disk_size(file);
	uint8_t *bytes;
	ssize_t done;

	if (size < 0)
		return (int)size;
	bytes = malloc((size_t)size + 1);
	if (!bytes)
		return -ENOMEM;
	done = reef_disk_read(file, 0, bytes, (size_t)size);
	if (done != size) {
		free(bytes);
		return done < 0 ? (int)done : -EIO;
	}
	*out = (struct content){bytes, (size_t)size};
	return 0;
}

/* Read a whole file; the caller frees the bytes.  -ENOENT: there is none. */
static int read_file(struct reef_store *store, const char *name,
		     struct content *out)
{
	struct reef_disk_file *file;
	int rc;

	rc = reef_disk_open(store, name, 0, &file);
	if (rc)
		return rc;
	rc = read_open_file(file, out);
	reef_disk_close(file);
	return rc;
}

static int read_identity(struct reef_disk_file *file,
			 struct reef_journal_header *header, int64_t *size)
{
	uint8_t bytes[REEF_JOURNAL_HEADER_SIZE];
	ssize_t done;

	*size = reef_disk_size(file);
	if (*size < 0)
		return (int)*size;
	done = reef_disk_read(file, 0, bytes, sizeof(bytes));
	if (done < 0)
		return (int)done;
	return reef_journal_header_decode(bytes, (size_t)done,
					  REEF_JOURNAL_IDENTITY, header);
}

/* --- the snapshot --- */

/* Read the snapshot and hand it to the reader. 1: there is none. */
static int read_snapshot(struct reef_store *store,
			 const struct reef_journal_reader *reader,
			 struct reef_journal_header *header)
{
	const char *name = REEF_JOURNAL_SNAPSHOT_NAME;
	const uint8_t *bytes;
	struct content content;
	int rc;

	rc = read_file(store, name, &content);
	if (rc)
		return rc == -ENOENT ? 1 : rc;
	bytes = content.bytes + REEF_JOURNAL_HEADER_SIZE;
	rc = reef_journal_header_decode(content.bytes, content.size,
					REEF_JOURNAL_SNAPSHOT, header);
	if (rc)
		rc = log_refused(name, rc);
	else if (header->size != content.size - REEF_JOURNAL_HEADER_SIZE)
		rc = log_corrupt(name, content.size, "it has another size");
	else if (header->crc != reef_crc32c(0, bytes, header->size))
		rc = log_corrupt(name, REEF_JOURNAL_HEADER_SIZE,
				 "the checksum does not match");
	else if (header->segment == 0 || header->oldest > header->segment)
		rc = log_corrupt(name, 0, "the header makes no sense");
	else if (header->sequence > 0)
		rc = reader->snapshot(reader->context, bytes, header->size);
	free(content.bytes);
	return rc;
}

/* --- segments --- */

/* True if a whole record in these bytes says that `sequence` was durable. Every
 * record stands at a multiple of 8. */
static bool proves_durable(const uint8_t *bytes, size_t size, uint64_t salt,
			   uint64_t sequence)
{
	struct reef_journal_record record;
	size_t at;

	for (at = 0; at + REEF_JOURNAL_RECORD_SIZE <= size; at += 8) {
		/* This cheap check rules out nearly every position. */
		if (reef_get64(bytes + at + 8) - sequence > size ||
		    reef_get64(bytes + at + 16) < sequence)
			continue;
		if (reef_journal_record_get(bytes + at, size - at, salt,
					    &record))
			return true;
	}
	return false;
}

static int replay_records(const char *name, const struct content *content,
			  bool last, const struct reef_journal_reader *reader,
			  struct reef_journal_found *found)
{
	size_t at = REEF_JOURNAL_HEADER_SIZE;
	struct reef_journal_record record;
	int rc;

	while (at < content->size) {
		if (!reef_journal_record_get(content->bytes + at,
					     content->size - at, found->salt,
					     &record))
			break;
		if (record.sequence != found->sequence + 1 ||
		    record.durable >= record.sequence)
			return log_corrupt(name, at,
					   "a record out of its order");
		rc = record.type == REEF_JOURNAL_SEAL
			     ? 0
			     : reader->record(reader->context, record.sequence,
					      record.type, record.payload,
					      record.size);
		if (rc) {
			reef_log(REEF_LOG_ERROR, "journal",
				 "%s at %zu: the record is refused: %s", name,
				 at, reef_error_text(rc));
			return rc;
		}
		found->sequence++;
		at += record.room;
	}
	found->bytes += at - REEF_JOURNAL_HEADER_SIZE;
	found->last_size = at;
	found->cut = content->size - at;
	if (found->cut > 0 &&
	    (!last || proves_durable(content->bytes + at, found->cut,
				     found->salt, found->sequence + 1)))
		return log_corrupt(name, at, "a record is damaged");
	return 0;
}

static int read_segment(struct reef_store *store, uint64_t number, bool last,
			const struct reef_journal_reader *reader,
			struct reef_journal_found *found)
{
	struct reef_journal_header header;
	char name[REEF_JOURNAL_NAME_SIZE];
	struct content content;
	int rc;

	reef_journal_segment_name(name, number);
	rc = read_file(store, name, &content);
	if (rc == -ENOENT)
		return log_corrupt(name, 0, "it is missing");
	if (rc)
		return rc;
	rc = reef_journal_header_decode(content.bytes, content.size,
					REEF_JOURNAL_SEGMENT, &header);
	if (rc)
		rc = log_refused(name, rc);
	else if (header.salt != found->salt || header.segment != number)
		rc = log_corrupt(name, 0, "it belongs elsewhere");
	else if (header.sequence != found->sequence + 1)
		rc = log_corrupt(name, 0, "records before it are missing");
	else
		rc = replay_records(name, &content, last, reader, found);
	free(content.bytes);
	return rc;
}

/* 1: there is such a segment.  0: there is none. */
static int segment_exists(struct reef_store *store, uint64_t number)
{
	char name[REEF_JOURNAL_NAME_SIZE];
	struct reef_disk_file *file;
	int rc;

	reef_journal_segment_name(name, number);
	rc = reef_disk_open(store, name, 0, &file);
	if (rc)
		return rc == -ENOENT ? 0 : rc;
	reef_disk_close(file);
	return 1;
}

/* 1: `number` is the last segment.  0: it is not. The one after the next is
 * looked for as well, so that a missing one does not pass for the end. */
static int is_last(struct reef_store *store, uint64_t number)
{
	char name[REEF_JOURNAL_NAME_SIZE];
	int rc = segment_exists(store, number + 1);

	if (rc)
		return rc < 0 ? rc : 0;
	rc = segment_exists(store, number + 2);
	if (rc == 0)
		return 1;
	reef_journal_segment_name(name, number + 1);
	return rc < 0 ? rc : log_corrupt(name, 0, "it is missing");
}

static int read_segments(struct reef_store *store,
			 const struct reef_journal_reader *reader,
			 struct reef_journal_found *found)
{
	uint64_t number = found->first;
	int last, rc;

	for (;; number++) {
		last = is_last(store, number);
		if (last < 0)
			return last;
		rc = read_segment(store, number, last, reader, found);
		if (rc)
			return rc;
		if (last)
			break;
	}
	found->last = number;
	return 0;
}

int reef_journal_read(struct reef_store *store, struct reef_disk_file *identity,
		      const struct reef_journal_reader *reader,
		      struct reef_journal_found *out)
{
	struct reef_journal_header header, own = {0};
	struct reef_journal_found found = {0};
	int64_t identity_size;
	int rc, identity_rc;

	identity_rc = read_identity(identity, &own, &identity_size);
	if (identity_rc && identity_rc != -REEF_ECORRUPT)
		return log_refused(REEF_JOURNAL_IDENTITY_NAME, identity_rc);
	rc = read_snapshot(store, reader, &header);
	if (rc == 1 && identity_size == 0) {
		*out = found;
		return 0;
	}
	if (rc == 1)
		return log_corrupt(REEF_JOURNAL_SNAPSHOT_NAME, 0,
				   "it is missing");
	if (rc)
		return rc;
	if (identity_rc == 0 && own.salt != header.salt)
		return log_corrupt(REEF_JOURNAL_SNAPSHOT_NAME, 0,
				   "it belongs elsewhere");
	found = (struct reef_journal_found){
		.exists = true,
		.identity = identity_rc == 0,
		.salt = header.salt,
		.snapshot = header.sequence,
		.sequence = header.sequence,
		.first = header.segment,
		.oldest = header.oldest,
	};
	rc = read_segments(store, reader, &found);
	if (rc == 0)
		*out = found;
	return rc;
}
