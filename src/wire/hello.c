/* hello.c - the frames of the hello, to bytes and back. */
#include "wire/hello.h"
#include "base/text.h"
#include "wire/bytes.h"

#include <reef/error.h>

static void encode_limits(const struct reef_wire_limits *limits, uint8_t *bytes)
{
	reef_put32(bytes, limits->ops_max);
	reef_put32(bytes + 4, limits->length_max);
	reef_put32(bytes + 8, limits->message_max);
	reef_put32(bytes + 12, 0);
}

static int decode_limits(const uint8_t *bytes, struct reef_wire_limits *out)
{
	*out = (struct reef_wire_limits){
		.ops_max = reef_get32(bytes),
		.length_max = reef_get32(bytes + 4),
		.message_max = reef_get32(bytes + 8),
	};
	if (out->ops_max == 0 || out->length_max == 0 || out->message_max == 0)
		return -REEF_EPROTO;
	return reef_get32(bytes + 12) == 0 ? 0 : -REEF_EPROTO;
}

/* True for text followed by zero bytes to the end, at least one of each. */
static bool is_text_valid(const uint8_t *bytes, size_t size)
{
	size_t length = strnlen((const char *)bytes, size);

	if (length == 0 || length == size)
		return false;
	if (!reef_text_is_plain((const char *)bytes, length))
		return false;
	return reef_all_zero(bytes + length, size - length);
}

bool reef_wire_identity_fits(const char *text)
{
	uint8_t padded[sizeof(((struct reef_wire_hello *)0)->identity)] = {0};
	size_t length = strnlen(text, sizeof(padded));

	memcpy(padded, text, length);
	return is_text_valid(padded, sizeof(padded));
}

void reef_wire_hello_encode(const struct reef_wire_hello *hello,
			    uint8_t bytes[REEF_WIRE_HELLO_SIZE])
{
	reef_put32(bytes, hello->magic);
	reef_put16(bytes + 4, hello->version_min);
	reef_put16(bytes + 6, hello->version_max);
	reef_put32(bytes + 8, hello->session);
	reef_put32(bytes + 12, hello->number);
	reef_put64(bytes + 16, hello->domain);
	encode_limits(&hello->limits, bytes + 24);
	memcpy(bytes + 40, hello->nonce, sizeof(hello->nonce));
	memcpy(bytes + 72, hello->fabric, sizeof(hello->fabric));
	memcpy(bytes + 80, hello->identity, sizeof(hello->identity));
}

int reef_wire_hello_decode(const uint8_t *bytes, size_t size,
			   struct reef_wire_hello *out)
{
	struct reef_wire_hello hello = {0};

	if (size != REEF_WIRE_HELLO_SIZE)
		return -REEF_EPROTO;
	hello.magic = reef_get32(bytes);
	hello.version_min = reef_get16(bytes + 4);
	hello.version_max = reef_get16(bytes + 6);
	hello.session = reef_get32(bytes + 8);
	if (hello.magic != REEF_WIRE_MAGIC || hello.version_min == 0 ||
	    hello.version_min > hello.version_max || hello.session == 0)
		return -REEF_EPROTO;
	hello.number = reef_get32(bytes + 12);
	hello.domain = reef_get64(bytes + 16);
	if (decode_limits(bytes + 24, &hello.limits) < 0)
		return -REEF_EPROTO;
	if (!is_text_valid(bytes + 72, sizeof(hello.fabric)) ||
	    !is_text_valid(bytes + 80, sizeof(hello.identity)))
		return -REEF_EPROTO;
	memcpy(hello.nonce, bytes + 40, sizeof(hello.nonce));
	memcpy(hello.fabric, bytes + 72, sizeof(hello.fabric));
	memcpy(hello.identity, bytes + 80, sizeof(hello.identity));
	*out = hello;
	return 0;
}

void reef_wire_challenge_encode(const struct reef_wire_challenge *challenge,
				uint8_t bytes[REEF_WIRE_CHALLENGE_SIZE])
{
	memset(bytes, 0, 8);
	reef_put16(bytes, challenge->version);
	memcpy(bytes + 8, challenge->nonce, sizeof(challenge->nonce));
	memcpy(bytes + 40, challenge->proof, sizeof(challenge->proof));
}

int reef_wire_challenge_decode(const uint8_t *bytes, size_t size,
			       struct reef_wire_challenge *out)
{
	if (size != REEF_WIRE_CHALLENGE_SIZE || !reef_all_zero(bytes + 2, 6) ||
	    reef_get16(bytes) == 0)
		return -REEF_EPROTO;
	*out = (struct reef_wire_challenge){.version = reef_get16(bytes)};
	memcpy(out->nonce, bytes + 8, sizeof(out->nonce));
	memcpy(out->proof, bytes + 40, sizeof(out->proof));
	return 0;
}

int reef_wire_proof_decode(const uint8_t *bytes, size_t size,
			   struct reef_wire_proof *out)
{
	if (size != sizeof(*out))
		return -REEF_EPROTO;
	memcpy(out->proof, bytes, sizeof(out->proof));
	return 0;
}

void reef_wire_welcome_encode(const struct reef_wire_welcome *welcome,
			      uint8_t bytes[REEF_WIRE_WELCOME_SIZE])
{
	reef_put64(bytes, welcome->domain);
	encode_limits(&welcome->limits, bytes + 8);
	memcpy(bytes + 24, welcome->proof, sizeof(welcome->proof));
}

int reef_wire_welcome_decode(const uint8_t *bytes, size_t size,
			     struct reef_wire_welcome *out)
{
	struct reef_wire_welcome welcome = {0};

	if (size != REEF_WIRE_WELCOME_SIZE)
		return -REEF_EPROTO;
	welcome.domain = reef_get64(bytes);
	if (decode_limits(bytes + 8, &welcome.limits) < 0)
		return -REEF_EPROTO;
	memcpy(welcome.proof, bytes + 24, sizeof(welcome.proof));
	*out = welcome;
	return 0;
}

void reef_wire_psk_encode(const struct reef_wire_psk *psk,
			  uint8_t bytes[REEF_WIRE_PSK_SIZE])
{
	reef_put32(bytes, REEF_WIRE_MAGIC);
	reef_put32(bytes + 4, psk->session);
	memcpy(bytes + 8, psk->identity, sizeof(psk->identity));
}

int reef_wire_psk_decode(const uint8_t *bytes, size_t size,
			 struct reef_wire_psk *out)
{
	if (size != REEF_WIRE_PSK_SIZE ||
	    reef_get32(bytes) != REEF_WIRE_MAGIC ||
	    reef_get32(bytes + 4) == 0 ||
	    !is_text_valid(bytes + 8, sizeof(out->identity)))
		return -REEF_EPROTO;
	*out = (struct reef_wire_psk){.magic = REEF_WIRE_MAGIC,
				      .session = reef_get32(bytes + 4)};
	memcpy(out->identity, bytes + 8, sizeof(out->identity));
	return 0;
}
