/* queue_pair.c - encode and decode what only verbs sends. */
#include "wire/queue_pair.h"
#include "wire/bytes.h"

#include <reef/error.h>

#define BITS_24 0xffffffu

void reef_wire_queue_pair_encode(const struct reef_wire_queue_pair *pair,
				 uint8_t bytes[REEF_WIRE_QUEUE_PAIR_SIZE])
{
	reef_put32(bytes, pair->number);
	reef_put32(bytes + 4, pair->packet);
	memcpy(bytes + 8, pair->gid, sizeof(pair->gid));
	reef_put16(bytes + 24, pair->lid);
	bytes[26] = pair->mtu;
	bytes[27] = pair->ethernet;
	reef_put16(bytes + 28, pair->initiates);
	reef_put16(bytes + 30, pair->serves);
	reef_put32(bytes + 32, pair->receives);
	reef_put32(bytes + 36, pair->fragment);
}

int reef_wire_queue_pair_decode(const uint8_t *bytes, size_t size,
				struct reef_wire_queue_pair *out)
{
	struct reef_wire_queue_pair pair;

	if (size != REEF_WIRE_QUEUE_PAIR_SIZE)
		return -REEF_EPROTO;
	pair = (struct reef_wire_queue_pair){
		.number = reef_get32(bytes),
		.packet = reef_get32(bytes + 4),
		.lid = reef_get16(bytes + 24),
		.mtu = bytes[26],
		.ethernet = bytes[27],
		.initiates = reef_get16(bytes + 28),
		.serves = reef_get16(bytes + 30),
		.receives = reef_get32(bytes + 32),
		.fragment = reef_get32(bytes + 36),
	};
	memcpy(pair.gid, bytes + 8, sizeof(pair.gid));
	if (!pair.number || pair.number > BITS_24 || pair.packet > BITS_24 ||
	    !pair.mtu || pair.mtu > 5 || pair.ethernet > 1 || !pair.initiates ||
	    !pair.serves || !pair.receives || !pair.fragment)
		return -REEF_EPROTO;
	if (pair.ethernet ? reef_all_zero(pair.gid, sizeof(pair.gid))
			  : !pair.lid)
		return -REEF_EPROTO;
	*out = pair;
	return 0;
}

void reef_wire_credit_encode(uint32_t count,
			     uint8_t bytes[REEF_WIRE_CREDIT_SIZE])
{
	reef_put32(bytes, count);
	reef_put32(bytes + 4, 0);
}

int reef_wire_credit_decode(const uint8_t *bytes, size_t size, uint32_t *count)
{
	if (size != REEF_WIRE_CREDIT_SIZE || reef_get32(bytes + 4) != 0)
		return -REEF_EPROTO;
	*count = reef_get32(bytes);
	return 0;
}
