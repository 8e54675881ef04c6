/* control.h - the payloads of the frames that shm, tcp and verbs share: who
 * may use which memory, and why a connection ends.
 *
 *   holder                    owner
 *     ATTACH key, tag T  -->
 *            <--  ATTACHED tag T: status, and where the memory is
 *            <--  WITHDRAW key
 *     DETACH key         -->                     (also unasked: no more use)
 *
 * Thread: any. */
#ifndef REEF_WIRE_CONTROL_H
#define REEF_WIRE_CONTROL_H

#include "wire/frame.h"

/* ATTACH, WITHDRAW and DETACH. */
struct reef_wire_key {
	uint64_t key; /* not 0 */
};
static_assert(sizeof(struct reef_wire_key) == 8, "wire layout");

#define REEF_WIRE_DURABLE 1u
#define REEF_WIRE_READ_ONLY 2u

struct reef_wire_attached {
	uint64_t key;	   /* the one asked for */
	int32_t status;	   /* 0, or a negative code; then all below is 0 */
	uint32_t flags;	   /* REEF_WIRE_DURABLE, REEF_WIRE_READ_ONLY */
	uint64_t size;	   /* not 0 */
	uint64_t domain;   /* not 0 */
	uint64_t address;  /* verbs: where the region begins at its owner */
	uint32_t rkey;	   /* verbs */
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct reef_wire_attached) == 48, "wire layout");

struct reef_wire_bye {
	uint32_t code;	   /* positive: errno's or Reef's own */
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct reef_wire_bye) == 8, "wire layout");

#define REEF_WIRE_KEY_SIZE 8
#define REEF_WIRE_ATTACHED_SIZE 48
#define REEF_WIRE_BYE_SIZE 8

void reef_wire_key_encode(uint64_t key, uint8_t bytes[REEF_WIRE_KEY_SIZE]);
void reef_wire_attached_encode(const struct reef_wire_attached *attached,
			       uint8_t bytes[REEF_WIRE_ATTACHED_SIZE]);
/* The reason is negative. */
void reef_wire_bye_encode(int reason, uint8_t bytes[REEF_WIRE_BYE_SIZE]);

/* All: -REEF_EPROTO if anything in it is not as said above. */
int reef_wire_key_decode(const uint8_t *bytes, size_t size, uint64_t *out);
int reef_wire_attached_decode(const uint8_t *bytes, size_t size,
			      struct reef_wire_attached *out);
/* *reason is negative. */
int reef_wire_bye_decode(const uint8_t *bytes, size_t size, int *reason);

/* True if `status` is a negative code that a peer may mean when it says what
 * went wrong: errno's but EAGAIN, or Reef's own. */
bool reef_wire_status_fits(int32_t status);

#endif
