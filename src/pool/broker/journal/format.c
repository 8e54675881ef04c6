/* format.c - headers and records as bytes. */
#include "pool/broker/journal/format.h"

#include "base/checksum.h"
#include "base/log.h"
#include "wire/bytes.h"

#include <reef/error.h>

static const char magic[8] = {'r', 'e', 'e', 'f', 'j', 'r', 'n', 'l'};

/* The checksum of everything but the checksum itself, which stands at `at`. */
static uint32_t checksum_except(uint32_t crc, const uint8_t *bytes, size_t at,
				size_t size)
{
	crc = reef_crc32c(crc, bytes, at);
	return reef_crc32c(crc, bytes + at + 4, size - at - 4);
}

void reef_journal_header_encode(const struct reef_journal_header *header,
				uint8_t bytes[REEF_JOURNAL_HEADER_SIZE])
{
	memcpy(bytes, magic, 8);
	reef_put32(bytes + 8, REEF_JOURNAL_VERSION);
	reef_put64(bytes + 16, header->salt);
	reef_put32(bytes + 24, header->kind);
	reef_put32(bytes + 28, header->crc);
	reef_put64(bytes + 32, header->sequence);
	reef_put64(bytes + 40, header->segment);
	reef_put64(bytes + 48, header->oldest);
	reef_put64(bytes + 56, header->size);
	reef_put32(bytes + 12,
		   checksum_except(0, bytes, 12, REEF_JOURNAL_HEADER_SIZE));
}

int reef_journal_header_decode(const uint8_t *bytes, size_t size,
			       enum reef_journal_kind kind,
			       struct reef_journal_header *out)
{
	/* The checksum is checked first, and later versions keep its place: a
	 * damaged version number is damage, not a version. */
	if (size < REEF_JOURNAL_HEADER_SIZE || memcmp(bytes, magic, 8) != 0 ||
	    reef_get32(bytes + 12) !=
		    checksum_except(0, bytes, 12, REEF_JOURNAL_HEADER_SIZE))
		return -REEF_ECORRUPT;
	if (reef_get32(bytes + 8) != REEF_JOURNAL_VERSION)
		return -REEF_EVERSION;
	if (reef_get32(bytes + 24) != kind)
		return -REEF_ECORRUPT;
	*out = (struct reef_journal_header){
		.kind = kind,
		.crc = reef_get32(bytes + 28),
		.salt = reef_get64(bytes + 16),
		.sequence = reef_get64(bytes + 32),
		.segment = reef_get64(bytes + 40),
		.oldest = reef_get64(bytes + 48),
		.size = reef_get64(bytes + 56),
	};
	return 0;
}

/* What the checksum of every record begins with. */
static uint32_t crc_of_salt(uint64_t salt)
{
	uint8_t bytes[8];

	reef_put64(bytes, salt);
	return reef_crc32c(0, bytes, sizeof(bytes));
}

void reef_journal_record_put(uint8_t *to, uint64_t sequence, uint16_t type,
			     const void *bytes, size_t size)
{
	uint64_t room = reef_journal_record_room(size);

	memset(to, 0, REEF_JOURNAL_RECORD_SIZE);
	reef_put32(to, (uint32_t)size);
	reef_put64(to + 8, sequence);
	reef_put16(to + 24, type);
	if (size > 0)
		memcpy(to + REEF_JOURNAL_RECORD_SIZE, bytes, size);
	memset(to + REEF_JOURNAL_RECORD_SIZE + size, 0,
	       room - REEF_JOURNAL_RECORD_SIZE - size);
}

void reef_journal_records_seal(uint8_t *bytes, size_t size, uint64_t salt,
			       uint64_t durable)
{
	uint64_t room;

	for (; size > 0; bytes += room, size -= room) {
		room = reef_journal_record_room(reef_get32(bytes));
		reef_assert(room <= size);
		reef_put64(bytes + 16, durable);
		reef_put32(bytes + 4,
			   checksum_except(crc_of_salt(salt), bytes, 4, room));
	}
}

bool reef_journal_record_get(const uint8_t *bytes, size_t size, uint64_t salt,
			     struct reef_journal_record *out)
{
	uint64_t room;

	if (size < REEF_JOURNAL_RECORD_SIZE)
		return false;
	room = reef_journal_record_room(reef_get32(bytes));
	if (room > size || !reef_all_zero(bytes + 26, 6) ||
	    reef_get32(bytes + 4) !=
		    checksum_except(crc_of_salt(salt), bytes, 4, room))
		return false;
	*out = (struct reef_journal_record){
		.sequence = reef_get64(bytes + 8),
		.durable = reef_get64(bytes + 16),
		.room = room,
		.size = reef_get32(bytes),
		.type = reef_get16(bytes + 24),
		.payload = bytes + REEF_JOURNAL_RECORD_SIZE,
	};
	return true;
}
