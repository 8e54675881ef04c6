/* frame.c - the header of every frame, to bytes and back. */
#include "wire/frame.h"
#include "wire/bytes.h"

#include <reef/error.h>

void reef_frame_header_encode(const struct reef_frame_header *header,
			      uint8_t bytes[REEF_FRAME_HEADER_SIZE])
{
	reef_put32(bytes, header->length);
	bytes[4] = header->type;
	bytes[5] = header->flags;
	reef_put16(bytes + 6, 0);
	reef_put64(bytes + 8, header->tag);
}

int reef_frame_header_decode(const uint8_t bytes[REEF_FRAME_HEADER_SIZE],
			     struct reef_frame_header *out)
{
	if (bytes[4] < REEF_FRAME_HELLO || bytes[4] >= REEF_FRAME_TYPES)
		return -REEF_EPROTO;
	if (bytes[5] & ~REEF_FRAME_CARRIES_FD || reef_get16(bytes + 6) != 0)
		return -REEF_EPROTO;
	*out = (struct reef_frame_header){
		.length = reef_get32(bytes),
		.type = bytes[4],
		.flags = bytes[5],
		.tag = reef_get64(bytes + 8),
	};
	return 0;
}
