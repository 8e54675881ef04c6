/* hello.h - the payloads of the four frames that open a connection.
 *
 * (1) Every size is fixed; text is padded with zero bytes.
 * (2) All that matters for who may do what stands under a proof: HELLO and
 *     CHALLENGE under both sides' proofs, WELCOME under its own.
 * (3) HELLO keeps its layout in every version, so that two builds that have
 *     none in common can still say so.
 *
 * Where TLS is spoken (fabric/tls.h) the frames are inside it, and the PSK
 * identity of its ClientHello says who connects, as HELLO does.
 *
 * Thread: any. */
#ifndef REEF_WIRE_HELLO_H
#define REEF_WIRE_HELLO_H

#include "wire/frame.h"

#define REEF_WIRE_NONCE_SIZE 32
#define REEF_WIRE_PROOF_SIZE 32

#define REEF_WIRE_MAGIC 0x46454552u /* "REEF" */

/* What a side accepts from the other. None is 0. */
struct reef_wire_limits {
	uint32_t ops_max;
	uint32_t length_max;
	uint32_t message_max;
	uint32_t reserved; /* 0 */
};
static_assert(sizeof(struct reef_wire_limits) == 16, "wire layout");

struct reef_wire_hello {
	uint32_t magic;
	uint16_t version_min, version_max;
	uint32_t session; /* not 0 */
	uint32_t number;  /* of this link among the session's; 0: none */
	uint64_t domain;
	struct reef_wire_limits limits;
	uint8_t nonce[REEF_WIRE_NONCE_SIZE];
	char fabric[8];	   /* at least one byte of padding, as identity */
	char identity[64]; /* not empty, plain */
};
static_assert(sizeof(struct reef_wire_hello) == 144, "wire layout");
static_assert(offsetof(struct reef_wire_hello, domain) == 16, "wire layout");
static_assert(offsetof(struct reef_wire_hello, nonce) == 40, "wire layout");
static_assert(offsetof(struct reef_wire_hello, identity) == 80, "wire layout");

struct reef_wire_challenge {
	uint16_t version;
	uint8_t reserved[6]; /* 0 */
	uint8_t nonce[REEF_WIRE_NONCE_SIZE];
	uint8_t proof[REEF_WIRE_PROOF_SIZE]; /* over all before it */
};
static_assert(sizeof(struct reef_wire_challenge) == 72, "wire layout");

struct reef_wire_proof {
	uint8_t proof[REEF_WIRE_PROOF_SIZE];
};
static_assert(sizeof(struct reef_wire_proof) == 32, "wire layout");

struct reef_wire_welcome {
	uint64_t domain;
	struct reef_wire_limits limits;
	uint8_t proof[REEF_WIRE_PROOF_SIZE]; /* over all before it */
};
static_assert(sizeof(struct reef_wire_welcome) == 56, "wire layout");

struct reef_wire_psk {
	uint32_t magic;	   /* REEF_WIRE_MAGIC; encode sees to it */
	uint32_t session;  /* not 0 */
	char identity[64]; /* as HELLO's */
};
static_assert(sizeof(struct reef_wire_psk) == 72, "wire layout");

#define REEF_WIRE_PSK_SIZE 72
#define REEF_WIRE_HELLO_SIZE 144
#define REEF_WIRE_CHALLENGE_SIZE 72
#define REEF_WIRE_WELCOME_SIZE 56

void reef_wire_hello_encode(const struct reef_wire_hello *hello,
			    uint8_t bytes[REEF_WIRE_HELLO_SIZE]);
void reef_wire_challenge_encode(const struct reef_wire_challenge *challenge,
				uint8_t bytes[REEF_WIRE_CHALLENGE_SIZE]);
void reef_wire_welcome_encode(const struct reef_wire_welcome *welcome,
			      uint8_t bytes[REEF_WIRE_WELCOME_SIZE]);
void reef_wire_psk_encode(const struct reef_wire_psk *psk,
			  uint8_t bytes[REEF_WIRE_PSK_SIZE]);

/* All: -REEF_EPROTO if anything in it is not as said above. */
int reef_wire_hello_decode(const uint8_t *bytes, size_t size,
			   struct reef_wire_hello *out);
int reef_wire_challenge_decode(const uint8_t *bytes, size_t size,
			       struct reef_wire_challenge *out);
int reef_wire_proof_decode(const uint8_t *bytes, size_t size,
			   struct reef_wire_proof *out);
int reef_wire_welcome_decode(const uint8_t *bytes, size_t size,
			     struct reef_wire_welcome *out);
int reef_wire_psk_decode(const uint8_t *bytes, size_t size,
			 struct reef_wire_psk *out);

/* True if `text` can be an identity: 1 to 63 bytes, plain
 * (base/text.h). */
bool reef_wire_identity_fits(const char *text);

#endif
