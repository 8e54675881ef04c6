/* format.h - the bytes of a journal's files, and how they are found.
 *
 * Every file begins with a header of 64 bytes, with a checksum of its own:
 *
 *   journal         identity: a journal was made here; also the lock
 *   snapshot        header, then the caller's bytes
 *   segment-N       header, then records; N counts up, 16 hexadecimal digits
 *   *.new           being written aside; means nothing after a crash
 *
 * A record is 32 bytes of header and a payload, padded with zeros to 8 bytes:
 *
 *   0 length 32   4 crc32c 32   8 sequence 64   16 durable 64   24 type 16
 *   26 zero 48    32 payload
 *
 * (1) A file gets its name once it is whole and synced, so a bad header is
 *     damage, never a torn write. (The identity alone is written in place.)
 * (2) A segment is synced before the next one is named: only in the last can
 *     there be a torn tail.
 * (3) A batch of records is written after the sync of the one before returned,
 *     and `durable` is the last sequence number of that one. So a whole record
 *     proves that everything up to its `durable` had been on the disk, and
 *     damage there is no torn write.
 *
 * Thread: any. */
#ifndef REEF_POOL_BROKER_JOURNAL_FORMAT_H
#define REEF_POOL_BROKER_JOURNAL_FORMAT_H

#include "pool/broker/journal/journal.h"

#include <stdio.h>

#define REEF_JOURNAL_VERSION 1
#define REEF_JOURNAL_HEADER_SIZE 64
#define REEF_JOURNAL_RECORD_SIZE 32
#define REEF_JOURNAL_NAME_SIZE 32

#define REEF_JOURNAL_IDENTITY_NAME "journal"
#define REEF_JOURNAL_SNAPSHOT_NAME "snapshot"
#define REEF_JOURNAL_SNAPSHOT_NEW "snapshot.new"
#define REEF_JOURNAL_SEGMENT_NEW "segment.new"

/* The type of the record that close writes to seal the ones before. */
#define REEF_JOURNAL_SEAL 0

struct reef_disk_file;

enum reef_journal_kind {
	REEF_JOURNAL_IDENTITY = 1,
	REEF_JOURNAL_SNAPSHOT = 2,
	REEF_JOURNAL_SEGMENT = 3,
};

struct reef_journal_header {
	uint32_t kind;
	uint32_t crc;	   /* snapshot: of its bytes */
	uint64_t salt;	   /* the journal's */
	uint64_t sequence; /* snapshot: the last covered; segment: the first */
	uint64_t segment;  /* snapshot: the first after it; segment: its own */
	uint64_t oldest; /* snapshot: segments from here may still lie about */
	uint64_t size;	 /* snapshot: of its bytes */
};

void reef_journal_header_encode(const struct reef_journal_header *header,
				uint8_t bytes[REEF_JOURNAL_HEADER_SIZE]);

/* -REEF_ECORRUPT: too short, damaged, or of another kind.  -REEF_EVERSION. */
int reef_journal_header_decode(const uint8_t *bytes, size_t size,
			       enum reef_journal_kind kind,
			       struct reef_journal_header *out);

/* What a record of that many bytes takes in a segment. */
static inline uint64_t reef_journal_record_room(uint64_t size)
{
	return REEF_JOURNAL_RECORD_SIZE + ((size + 7) & ~UINT64_C(7));
}

/* Lay out a record at `to`, which has room for it; seal completes it. */
void reef_journal_record_put(uint8_t *to, uint64_t sequence, uint16_t type,
			     const void *bytes, size_t size);

/* Complete the records in these bytes: `durable` and the checksums. */
void reef_journal_records_seal(uint8_t *bytes, size_t size, uint64_t salt,
			       uint64_t durable);

struct reef_journal_record {
	uint64_t sequence, durable;
	uint64_t room; /* header, payload and padding */
	uint32_t size;
	uint16_t type;
	const uint8_t *payload;
};

/* Decode the record at the beginning of these bytes. False: none is whole
 * there.
 */
bool reef_journal_record_get(const uint8_t *bytes, size_t size, uint64_t salt,
			     struct reef_journal_record *out);

static inline void reef_journal_segment_name(char name[REEF_JOURNAL_NAME_SIZE],
					     uint64_t number)
{
	snprintf(name, REEF_JOURNAL_NAME_SIZE, "segment-%016llx",
		 (unsigned long long)number);
}

/* --- what open finds (read.c) --- */

struct reef_journal_found {
	bool exists;	    /* else everything below is 0 */
	bool identity;	    /* the identity is whole */
	uint64_t salt;	    /* the journal's */
	uint64_t snapshot;  /* the last sequence number that it covers */
	uint64_t sequence;  /* the last of all */
	uint64_t first;	    /* segments from here follow the snapshot */
	uint64_t oldest;    /* segments from here to first are left over */
	uint64_t last;	    /* the last segment */
	uint64_t last_size; /* bytes of it that are whole */
	uint64_t cut;	    /* bytes of it after those: the torn tail */
	uint64_t bytes;	    /* of records in all segments */
};

/* Read the journal in store and hand it to the reader; changes nothing.
 * Errors as reef_journal_open. */
int reef_journal_read(struct reef_store *store, struct reef_disk_file *identity,
		      const struct reef_journal_reader *reader,
		      struct reef_journal_found *out);

#endif
