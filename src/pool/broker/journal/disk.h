/* disk.h - a journal's files while it is open: what commits do.
 *
 * Every function is one step that a crash may end anywhere; disk.c says
 * why each is safe. An error leaves the files as a crash would: only fini may
 * follow.
 *
 * Thread: whoever commits, one at a time. */
#ifndef REEF_POOL_BROKER_JOURNAL_DISK_H
#define REEF_POOL_BROKER_JOURNAL_DISK_H

#include "pool/broker/journal/format.h"

struct reef_journal_disk {
	struct reef_store *store;
	struct reef_disk_file *identity; /* holds the lock */
	struct reef_disk_file *segment;	 /* the last */
	uint64_t salt;
	uint64_t first;	 /* segments from here follow the snapshot */
	uint64_t number; /* of the last segment */
	uint64_t end;	 /* where its next record goes */
	/* The snapshot being written; NULL: none. */
	struct reef_disk_file *aside;
	struct reef_journal_header header; /* the snapshot's */
	const uint8_t *bytes;		   /* the caller's, until it is done */
	uint64_t written;
};

/* Open the identity and take its lock.  -EBUSY: another has it. */
int reef_journal_disk_init(struct reef_journal_disk *disk,
			   struct reef_store *store);
void reef_journal_disk_fini(struct reef_journal_disk *disk);

/* Make a journal with this salt where none was found; else cut its torn tail,
 * make what was found durable, and clean up. */
int reef_journal_disk_prepare(struct reef_journal_disk *disk,
			      const struct reef_journal_found *found,
			      uint64_t salt);

/* True if the last segment holds a record. */
static inline bool
reef_journal_disk_is_used(const struct reef_journal_disk *disk)
{
	return disk->end > REEF_JOURNAL_HEADER_SIZE;
}

/* Seal these records, write and sync them. Everything up to `durable` was
 * written so before. */
int reef_journal_disk_write(struct reef_journal_disk *disk, uint8_t *bytes,
			    size_t size, uint64_t durable);

/* Go on in a new segment, whose first record will be `sequence`. */
int reef_journal_disk_rotate(struct reef_journal_disk *disk, uint64_t sequence);

/* Begin a snapshot of everything up to `sequence`, which is durable and ends
 * the segment before the last one; the bytes stay until it is done. */
int reef_journal_disk_snapshot(struct reef_journal_disk *disk,
			       const uint8_t *bytes, size_t size,
			       uint64_t sequence);

/* Write a piece of the snapshot. 1: it is durable, and what it replaces is
 * removed. */
int reef_journal_disk_snapshot_step(struct reef_journal_disk *disk);

#endif
