/* control.c - attaching and parting, to bytes and back. */
#include "wire/control.h"
#include "wire/bytes.h"

#include <errno.h>
#include <reef/error.h>

/* Above every errno that Linux has; below Reef's own codes. */
#define ERRNO_MAX 4095

bool reef_wire_status_fits(int32_t status)
{
	switch (status) {
#define X(name, number, text)                                                  \
	case -(number):                                                        \
		return true;
		REEF_ERRORS(X)
#undef X
	case -EAGAIN: /* "try again" is never what went wrong */
		return false;
	default:
		return status < 0 && status >= -ERRNO_MAX;
	}
}

void reef_wire_key_encode(uint64_t key, uint8_t bytes[REEF_WIRE_KEY_SIZE])
{
	reef_put64(bytes, key);
}

int reef_wire_key_decode(const uint8_t *bytes, size_t size, uint64_t *out)
{
	if (size != REEF_WIRE_KEY_SIZE || reef_get64(bytes) == 0)
		return -REEF_EPROTO;
	*out = reef_get64(bytes);
	return 0;
}

void reef_wire_attached_encode(const struct reef_wire_attached *attached,
			       uint8_t bytes[REEF_WIRE_ATTACHED_SIZE])
{
	reef_put64(bytes, attached->key);
	reef_put32(bytes + 8, (uint32_t)attached->status);
	reef_put32(bytes + 12, attached->flags);
	reef_put64(bytes + 16, attached->size);
	reef_put64(bytes + 24, attached->domain);
	reef_put64(bytes + 32, attached->address);
	reef_put32(bytes + 40, attached->rkey);
	reef_put32(bytes + 44, 0);
}

int reef_wire_attached_decode(const uint8_t *bytes, size_t size,
			      struct reef_wire_attached *out)
{
	struct reef_wire_attached attached;

	if (size != REEF_WIRE_ATTACHED_SIZE)
		return -REEF_EPROTO;
	attached = (struct reef_wire_attached){
		.key = reef_get64(bytes),
		.status = (int32_t)reef_get32(bytes + 8),
		.flags = reef_get32(bytes + 12),
		.size = reef_get64(bytes + 16),
		.domain = reef_get64(bytes + 24),
		.address = reef_get64(bytes + 32),
		.rkey = reef_get32(bytes + 40),
	};
	if (attached.key == 0 || reef_get32(bytes + 44) != 0)
		return -REEF_EPROTO;
	if (attached.status == 0) {
		if (attached.size == 0 || attached.domain == 0 ||
		    attached.flags & ~(REEF_WIRE_DURABLE | REEF_WIRE_READ_ONLY))
			return -REEF_EPROTO;
	} else if (!reef_wire_status_fits(attached.status) ||
		   !reef_all_zero(bytes + 12, size - 12)) {
		return -REEF_EPROTO;
	}
	*out = attached;
	return 0;
}

void reef_wire_bye_encode(int reason, uint8_t bytes[REEF_WIRE_BYE_SIZE])
{
	reef_put32(bytes, (uint32_t)-reason);
	reef_put32(bytes + 4, 0);
}

int reef_wire_bye_decode(const uint8_t *bytes, size_t size, int *reason)
{
	int32_t status;

	if (size != REEF_WIRE_BYE_SIZE || reef_get32(bytes + 4) != 0 ||
	    reef_get32(bytes) > INT32_MAX)
		return -REEF_EPROTO;
	status = -(int32_t)reef_get32(bytes);
	if (!reef_wire_status_fits(status))
		return -REEF_EPROTO;
	*reason = status;
	return 0;
}
