/* frame.h - what every byte between two machines begins with.
 *
 * Every frame: a header of 16 bytes, then `length` bytes. Types up to
 * REEF_FRAME_BYE are the hello's and common; the rest belong to the fabrics.
 * The structs of src/wire lie in memory as on the wire: little-endian, no
 * holes. Nobody casts bytes to them: encode and decode convert, and decode
 * checks every byte that can be wrong.
 *
 * Thread: any. */
#ifndef REEF_WIRE_FRAME_H
#define REEF_WIRE_FRAME_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
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
	REEF_FRAME_BATCH_DONE, /* its end; the results, or the last of them */
	REEF_FRAME_MESSAGE,    /* a SEND; tag 0, or (shm) how many of the ring
				* are before it */
	REEF_FRAME_QUEUE_PAIR, /* verbs: how to reach a queue pair */
	REEF_FRAME_BATCH_PART, /* tcp: results that come before BATCH_DONE */
	REEF_FRAME_CONTROL,    /* shm: where the link's control word is */
	REEF_FRAME_CREDIT,     /* verbs: so many more messages may be sent */
	REEF_FRAME_RING,       /* shm: memory for short messages */
	REEF_FRAME_BELL,       /* shm: the ring is in use; or has something */
	REEF_FRAME_TYPES
};

/* A descriptor goes with this frame. */
#define REEF_FRAME_CARRIES_FD 1u

struct reef_frame_header {
	uint32_t length; /* of what follows */
	uint8_t type;
	uint8_t flags;
	uint8_t reserved[2]; /* 0 */
	uint64_t tag;
};
static_assert(sizeof(struct reef_frame_header) == 16, "wire layout");
static_assert(offsetof(struct reef_frame_header, tag) == 8, "wire layout");

#define REEF_FRAME_HEADER_SIZE 16

void reef_frame_header_encode(const struct reef_frame_header *header,
			      uint8_t bytes[REEF_FRAME_HEADER_SIZE]);

/* -REEF_EPROTO: unknown type or flag, or reserved bytes that are not 0. The
 * length is for the caller to judge. */
int reef_frame_header_decode(const uint8_t bytes[REEF_FRAME_HEADER_SIZE],
			     struct reef_frame_header *out);

#endif
