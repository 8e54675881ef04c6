/* disk.c - the order of writes, syncs and names.
 *
 * A file with a name is made aside: write, sync, rename, sync the names. A
 * crash leaves the whole file under its name or nothing there.
 *
 *   birth     segment 1, then the snapshot (of nothing), then the identity. Up
 *             to the snapshot there is no journal and the next open begins
 *             again; from then on there is one. The identity, written last,
 *             tells a journal without its snapshot from one not yet born.
 *   open      write the last segment anew without its torn tail, then go on in
 *             a new one, whose header says how far the one before reaches, so
 *             that any damage there is seen. Anew, because what is read may
 *             never have reached the disk, and a sync of the old file could
 *             not change that: one that failed in an earlier life has dropped
 *             the pages, and the next says 0.
 *   rotate    only after the last write was synced, so that a segment which is
 *             not the last has no torn tail.
 *   snapshot  rotate; write it aside, piece by piece; rename; only then remove
 *             the segments before. Its header says which those are, so that an
 *             open after a crash removes what is left of them. */
#include "pool/broker/journal/disk.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/store/store.h"

#include <errno.h>
#include <stdlib.h>

#define PIECE_MAX (256 * 1024)

/* Create a file that is to be renamed once it is whole; an old one goes. */
static int open_aside(struct reef_store *store, const char *name,
		      struct reef_disk_file **out)
{
	int rc = reef_store_remove(store, name);

	if (rc && rc != -ENOENT)
		return rc;
	return reef_disk_open(store, name,
			      REEF_DISK_CREATE | REEF_DISK_EXCLUSIVE, out);
}

/* Give a file that was written aside its name. */
static int name_aside_file(struct reef_store *store,
			   struct reef_disk_file *file, const char *from,
			   const char *to)
{
	int rc;

	rc = reef_disk_sync(file);
	if (rc == 0)
		rc = reef_store_rename(store, from, to);
	if (rc == 0)
		rc = reef_store_sync_names(store);
	return rc;
}

static int write_header(struct reef_disk_file *file,
			const struct reef_journal_header *header)
{
	uint8_t bytes[REEF_JOURNAL_HEADER_SIZE];

	reef_journal_header_encode(header, bytes);
	return reef_disk_write(file, 0, bytes, sizeof(bytes));
}

/* Make a segment and go on in it. */
static int begin_segment(struct reef_journal_disk *disk, uint64_t number,
			 uint64_t sequence)
{
	struct reef_journal_header header = {
		.kind = REEF_JOURNAL_SEGMENT,
		.salt = disk->salt,
		.sequence = sequence,
		.segment = number,
	};
	char name[REEF_JOURNAL_NAME_SIZE];
	struct reef_disk_file *file;
	int rc;

	rc = open_aside(disk->store, REEF_JOURNAL_SEGMENT_NEW, &file);
	if (rc)
		return rc;
	reef_journal_segment_name(name, number);
	rc = write_header(file, &header);
	if (rc == 0)
		rc = name_aside_file(disk->store, file,
				     REEF_JOURNAL_SEGMENT_NEW, name);
	if (rc) {
		reef_disk_close(file);
		return rc;
	}
	reef_disk_close(disk->segment);
	disk->segment = file;
	disk->number = number;
	disk->end = REEF_JOURNAL_HEADER_SIZE;
	return 0;
}

/* Remove the segments from `from` up to `to`; some may be gone already. */
static int remove_segments(struct reef_journal_disk *disk, uint64_t from,
			   uint64_t to)
{
	char name[REEF_JOURNAL_NAME_SIZE];
	int rc;

	if (from == to)
		return 0;
	for (; from < to; from++) {
		reef_journal_segment_name(name, from);
		rc = reef_store_remove(disk->store, name);
		if (rc && rc != -ENOENT)
			return rc;
	}
	return reef_store_sync_names(disk->store);
}

/* --- open --- */

int reef_journal_disk_init(struct reef_journal_disk *disk,
			   struct reef_store *store)
{
	*disk = (struct reef_journal_disk){.store = store};
	return reef_disk_open(store, REEF_JOURNAL_IDENTITY_NAME,
			      REEF_DISK_CREATE | REEF_DISK_LOCK,
			      &disk->identity);
}

void reef_journal_disk_fini(struct reef_journal_disk *disk)
{
	reef_disk_close(disk->aside);
	reef_disk_close(disk->segment);
	reef_disk_close(disk->identity); /* the lock goes last */
	*disk = (struct reef_journal_disk){0};
}

static int write_identity(struct reef_journal_disk *disk)
{
	struct reef_journal_header header = {.kind = REEF_JOURNAL_IDENTITY,
					     .salt = disk->salt};
	int rc;

	rc = write_header(disk->identity, &header);
	if (rc == 0)
		rc = reef_disk_sync(disk->identity);
	if (rc == 0)
		rc = reef_store_sync_names(disk->store);
	return rc;
}

static int create_journal(struct reef_journal_disk *disk)
{
	int rc;

	rc = begin_segment(disk, 1, 1);
	if (rc)
		return rc;
	disk->first = 1;
	rc = reef_journal_disk_snapshot(disk, NULL, 0, 0);
	while (rc == 0)
		rc = reef_journal_disk_snapshot_step(disk);
	return rc < 0 ? rc : write_identity(disk);
}

static int copy_bytes(struct reef_disk_file *from, struct reef_disk_file *to,
		      uint64_t size)
{
	uint8_t *piece = malloc(PIECE_MAX);
	uint64_t at = 0;
	ssize_t done;
	int rc = 0;

	if (!piece)
		return -ENOMEM;
	while (at < size && rc == 0) {
		done = reef_disk_read(from, at, piece,
				      size - at < PIECE_MAX ? size - at
							    : PIECE_MAX);
		if (done > 0)
			rc = reef_disk_write(to, at, piece, (size_t)done);
		else
			rc = done < 0 ? (int)done : -EIO;
		at += done > 0 ? (uint64_t)done : 0;
	}
	free(piece);
	return rc;
}

/* Replace the last segment by a new file with the part of it that is whole. */
static int rewrite_tail(struct reef_journal_disk *disk, const char *name,
			uint64_t size)
{
	struct reef_disk_file *file;
	int rc;

	rc = open_aside(disk->store, REEF_JOURNAL_SEGMENT_NEW, &file);
	if (rc)
		return rc;
	rc = copy_bytes(disk->segment, file, size);
	if (rc == 0)
		rc = name_aside_file(disk->store, file,
				     REEF_JOURNAL_SEGMENT_NEW, name);
	reef_disk_close(file);
	return rc;
}

static int replace_tail(struct reef_journal_disk *disk,
			const struct reef_journal_found *found)
{
	char name[REEF_JOURNAL_NAME_SIZE];
	int rc;

	reef_journal_segment_name(name, found->last);
	rc = reef_disk_open(disk->store, name, 0, &disk->segment);
	if (rc)
		return rc;
	disk->number = found->last;
	disk->end = found->last_size;
	if (found->cut == 0 && !reef_journal_disk_is_used(disk))
		return 0; /* only a header, which is synced before it is named
			   */
	if (found->cut > 0)
		reef_log(REEF_LOG_WARNING, "journal",
			 "%s at %llu: torn tail of %llu bytes cut", name,
			 (unsigned long long)found->last_size,
			 (unsigned long long)found->cut);
	rc = rewrite_tail(disk, name, found->last_size);
	if (rc == 0)
		rc = begin_segment(disk, found->last + 1, found->sequence + 1);
	return rc;
}

int reef_journal_disk_prepare(struct reef_journal_disk *disk,
			      const struct reef_journal_found *found,
			      uint64_t salt)
{
	int rc;

	disk->salt = found->exists ? found->salt : salt;
	if (!found->exists)
		return create_journal(disk);
	disk->first = found->first;
	/* Renames by a process that died may not have reached the disk. */
	rc = reef_store_sync_names(disk->store);
	if (rc == 0)
		rc = replace_tail(disk, found);
	if (rc == 0 && !found->identity)
		rc = write_identity(disk);
	if (rc == 0)
		rc = remove_segments(disk, found->oldest, found->first);
	return rc;
}

/* --- commits --- */

int reef_journal_disk_write(struct reef_journal_disk *disk, uint8_t *bytes,
			    size_t size, uint64_t durable)
{
	int rc;

	reef_journal_records_seal(bytes, size, disk->salt, durable);
	rc = reef_disk_write(disk->segment, disk->end, bytes, size);
	if (rc == 0)
		rc = reef_disk_sync(disk->segment);
	if (rc == 0)
		disk->end += size;
	return rc;
}

int reef_journal_disk_rotate(struct reef_journal_disk *disk, uint64_t sequence)
{
	return begin_segment(disk, disk->number + 1, sequence);
}

int reef_journal_disk_snapshot(struct reef_journal_disk *disk,
			       const uint8_t *bytes, size_t size,
			       uint64_t sequence)
{
	reef_assert(!disk->aside);
	reef_assert(!reef_journal_disk_is_used(disk));
	disk->header = (struct reef_journal_header){
		.kind = REEF_JOURNAL_SNAPSHOT,
		.crc = reef_crc32c(0, bytes, size),
		.salt = disk->salt,
		.sequence = sequence,
		.segment = disk->number,
		.oldest = disk->first,
		.size = size,
	};
	disk->bytes = bytes;
	disk->written = 0;
	return open_aside(disk->store, REEF_JOURNAL_SNAPSHOT_NEW, &disk->aside);
}

static int finish_snapshot(struct reef_journal_disk *disk)
{
	int rc;

	rc = write_header(disk->aside, &disk->header);
	if (rc == 0)
		rc = name_aside_file(disk->store, disk->aside,
				     REEF_JOURNAL_SNAPSHOT_NEW,
				     REEF_JOURNAL_SNAPSHOT_NAME);
	if (rc == 0)
		rc = remove_segments(disk, disk->header.oldest,
				     disk->header.segment);
	if (rc)
		return rc;
	reef_disk_close(disk->aside);
	disk->aside = NULL;
	disk->first = disk->header.segment;
	return 1;
}

int reef_journal_disk_snapshot_step(struct reef_journal_disk *disk)
{
	uint64_t size = disk->header.size - disk->written;
	int rc;

	if (size == 0)
		return finish_snapshot(disk);
	if (size > PIECE_MAX)
		size = PIECE_MAX;
	rc = reef_disk_write(disk->aside,
			     REEF_JOURNAL_HEADER_SIZE + disk->written,
			     disk->bytes + disk->written, size);
	/* Each piece is synced, so that no sync of records waits for all. */
	if (rc == 0)
		rc = reef_disk_sync(disk->aside);
	if (rc == 0)
		disk->written += size;
	return rc;
}
