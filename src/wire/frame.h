/* frame.h - what every byte between two machines begins with.
 *
 * Every frame: a header of 16 bytes, then `length` bytes. Types up to
 * REEF_FRAME_BYE are the hello's and common; the rest belong to the fabrics.
 *
 * Thread: any. */
#ifndef REEF_WIRE_FRAME_H
#define REEF_WIRE_FRAME_H

#include <assert.h>
#include <stdint.h>

/* Versions of the protocol this build speaks. */
#define REEF_WIRE_VERSION_MIN 1
#define REEF_WIRE_VERSION_MAX 1

enum reef_frame_type {
	REEF_FRAME_HELLO = 1,
	REEF_FRAME_CHALLENGE,
	REEF_FRAME_PROOF,
	REEF_FRAME_WELCOME,
	REEF_FRAME_BYE,
	REEF_FRAME_PING, /* answered by PONG with the same tag */
	REEF_FRAME_PONG,
	REEF_FRAME_ATTACH,   /* key; answered by ATTACHED with the same tag */
	REEF_FRAME_ATTACHED, /* status, size, domain, durable (+fabric's own) */
	REEF_FRAME_WITHDRAW, /* key; the holder stops, and answers DETACH */
	REEF_FRAME_DETACH,   /* key: this link does not use it any more */
	REEF_FRAME_BATCH,    /* tcp: operations; tag names the batch */
	REEF_FRAME_BATCH_DONE,
	REEF_FRAME_MESSAGE,    /* shm: a SEND; tag 0 */
	REEF_FRAME_QUEUE_PAIR, /* verbs: how to reach a queue pair */
	REEF_FRAME_TYPES
};

struct reef_frame_header {
	uint32_t length; /* of what follows */
	uint8_t type;
	uint8_t reserved[3]; /* 0 */
	uint64_t tag;
};
static_assert(sizeof(struct reef_frame_header) == 16, "wire layout");

#endif
