/* keys.c - the pool's key, and what is derived from it.
 *
 * A text is a word for its kind and then the base32 (RFC 4648, lower case, no
 * padding) of
 *
 *	version 8 | fields | key 256 | CRC32C 32 over the word and all before
 *
 * A CRC and not a hash, because it finds every error in up to 32 bits in a row:
 * one character is 5 of them, two swapped neighbours are 10. */
#include "pool/keys.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system/private.h"
#include "wire/bytes.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <reef/error.h>
#include <string.h>

#define VERSION 1
#define LABEL_SIZE 16
#define FIELDS_MAX 9 /* of a token: space, rights, era */
#define PAYLOAD_MAX (1 + FIELDS_MAX + sizeof(struct reef_key) + 4)

enum kind { POOL, NODE, USER, SPACE };

static const struct {
	const char *word;
	size_t fields_size;
} kinds[] = {
	[POOL] = {"reef-pool-", 0},
	[NODE] = {"reef-node-", 4},
	[USER] = {"reef-user-", 8},
	[SPACE] = {"reef-space-", FIELDS_MAX},
};

static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";

static_assert(sizeof("reef-space-") + (PAYLOAD_MAX * 8 + 4) / 5 <=
		      REEF_KEY_TEXT_SIZE,
	      "a token's text has no room");

/* --- keys --- */

int reef_key_create(struct reef_key *out)
{
	struct reef_key key = {{0}};
	int rc = reef_random_secret(key.bytes, sizeof(key.bytes));

	if (rc == 0)
		*out = key;
	reef_key_wipe(&key);
	return rc;
}

static int derive_key(const struct reef_key *from, const char *label,
		      const uint8_t *fields, size_t size, struct reef_key *out)
{
	uint8_t input[LABEL_SIZE + FIELDS_MAX] = {0};
	struct reef_key key;
	unsigned int length = 0;

	reef_assert(strlen(label) < LABEL_SIZE && size <= FIELDS_MAX);
	memcpy(input, label, strnlen(label, LABEL_SIZE - 1));
	if (size > 0)
		memcpy(input + LABEL_SIZE, fields, size);
	if (!HMAC(EVP_sha256(), from->bytes, sizeof(from->bytes), input,
		  LABEL_SIZE + size, key.bytes, &length) ||
	    length != sizeof(key.bytes))
		return -ENOMEM;
	*out = key;
	reef_key_wipe(&key);
	return 0;
}

static int derive_from_number(const struct reef_key *from, const char *label,
			      uint32_t number, struct reef_key *out)
{
	uint8_t fields[4];

	reef_put32(fields, number);
	return derive_key(from, label, fields, sizeof(fields), out);
}

static int derive_from_two(const struct reef_key *from, const char *label,
			   uint32_t first, uint32_t second,
			   struct reef_key *out)
{
	uint8_t fields[8];

	reef_put32(fields, first);
	reef_put32(fields + 4, second);
	return derive_key(from, label, fields, sizeof(fields), out);
}

int reef_key_derive_user(const struct reef_key *pool, uint32_t user,
			 uint32_t era, struct reef_key *out)
{
	return derive_from_two(pool, "user", user, era, out);
}

int reef_key_derive_node(const struct reef_key *pool, uint32_t node,
			 struct reef_key *out)
{
	return derive_from_number(pool, "node", node, out);
}

int reef_key_derive_session(const struct reef_key *pool, uint32_t session,
			    struct reef_key *out)
{
	return derive_from_number(pool, "session", session, out);
}

int reef_key_derive_broker(const struct reef_key *node, struct reef_key *out)
{
	return derive_key(node, "broker", NULL, 0, out);
}

int reef_key_derive_link(const struct reef_key *node, uint32_t session,
			 struct reef_key *out)
{
	return derive_from_number(node, "link", session, out);
}

int reef_key_derive_pull(const struct reef_key *node, uint32_t extent,
			 uint32_t epoch, struct reef_key *out)
{
	return derive_from_two(node, "pull", extent, epoch, out);
}

static bool are_rights_valid(uint8_t rights)
{
	return rights != 0 && !(rights & ~REEF_RIGHT_ALL);
}

static void encode_token_fields(uint8_t fields[FIELDS_MAX], uint32_t space,
				uint8_t rights, uint32_t era)
{
	reef_put32(fields, space);
	fields[4] = rights;
	reef_put32(fields + 5, era);
}

int reef_key_derive_space(const struct reef_key *pool, uint32_t space,
			  uint8_t rights, uint32_t era, struct reef_key *out)
{
	uint8_t fields[FIELDS_MAX];

	if (!are_rights_valid(rights))
		return -EINVAL;
	encode_token_fields(fields, space, rights, era);
	return derive_key(pool, "space", fields, sizeof(fields), out);
}

bool reef_key_equal(const struct reef_key *a, const struct reef_key *b)
{
	return CRYPTO_memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

void reef_key_wipe(struct reef_key *key)
{
	OPENSSL_cleanse(key->bytes, sizeof(key->bytes));
}

static int compare_and_wipe(int rc, struct reef_key *expected,
			    const struct reef_key *given)
{
	if (rc == 0 && !reef_key_equal(expected, given))
		rc = -REEF_EAUTH;
	reef_key_wipe(expected);
	return rc;
}

int reef_token_verify(const struct reef_token *token,
		      const struct reef_key *pool)
{
	struct reef_key expected = {0};
	int rc = reef_key_derive_space(pool, token->space, token->rights,
				       token->era, &expected);

	/* No pool makes a token with such rights. */
	if (rc == -EINVAL)
		rc = -REEF_EAUTH;
	return compare_and_wipe(rc, &expected, &token->key);
}

/* --- text --- */

static void encode_base32(const uint8_t *bytes, size_t size, char *text)
{
	uint32_t bits = 0;
	int held = 0;

	for (size_t i = 0; i < size; i++) {
		bits = bits << 8 | bytes[i];
		held += 8;
		while (held >= 5) {
			held -= 5;
			*text++ = digits[bits >> held & 31];
		}
	}
	if (held > 0)
		*text++ = digits[bits << (5 - held) & 31];
	*text = '\0';
}

/* Decode a text that has exactly `size` bytes; bits that are left in its last
 * character must be zero. */
static bool decode_base32(const char *text, uint8_t *bytes, size_t size)
{
	const char *found;
	uint32_t bits = 0;
	int held = 0;

	for (size_t i = 0; i < size;) {
		found = *text ? strchr(digits, *text++) : NULL;
		if (!found)
			return false;
		bits = bits << 5 | (uint32_t)(found - digits);
		held += 5;
		if (held >= 8) {
			held -= 8;
			bytes[i++] = (uint8_t)(bits >> held);
		}
	}
	return *text == '\0' && !(bits & ((1u << held) - 1));
}

static uint32_t checksum_of(enum kind kind, const uint8_t *payload, size_t size)
{
	uint32_t crc =
		reef_crc32c(0, kinds[kind].word, strlen(kinds[kind].word));

	return reef_crc32c(crc, payload, size);
}

static void format_key(enum kind kind, const uint8_t *fields,
		       const struct reef_key *key,
		       char text[REEF_KEY_TEXT_SIZE])
{
	size_t fields_size = kinds[kind].fields_size;
	size_t size = 1 + fields_size + sizeof(key->bytes);
	size_t word_size = strlen(kinds[kind].word);
	uint8_t payload[PAYLOAD_MAX] = {VERSION};

	if (fields)
		memcpy(payload + 1, fields, fields_size);
	memcpy(payload + 1 + fields_size, key->bytes, sizeof(key->bytes));
	reef_put32(payload + size, checksum_of(kind, payload, size));
	memcpy(text, kinds[kind].word, word_size);
	encode_base32(payload, size + 4, text + word_size);
	OPENSSL_cleanse(payload, sizeof(payload));
}

static int parse_key(enum kind kind, const char *text, uint8_t *fields,
		     struct reef_key *key)
{
	size_t fields_size = kinds[kind].fields_size;
	size_t size = 1 + fields_size + sizeof(key->bytes);
	size_t word_size = strlen(kinds[kind].word);
	uint8_t payload[PAYLOAD_MAX] = {0};
	int rc = -REEF_ECORRUPT;

	if (strncmp(text, kinds[kind].word, word_size) != 0)
		return -REEF_ECORRUPT;
	if (!decode_base32(text + word_size, payload, size + 4) ||
	    reef_get32(payload + size) != checksum_of(kind, payload, size))
		goto out;
	rc = payload[0] == VERSION ? 0 : -REEF_EVERSION;
	if (rc == 0 && fields)
		memcpy(fields, payload + 1, fields_size);
	if (rc == 0)
		memcpy(key->bytes, payload + 1 + fields_size,
		       sizeof(key->bytes));
out:
	OPENSSL_cleanse(payload, sizeof(payload));
	return rc;
}

void reef_key_format(const struct reef_key *key, char text[REEF_KEY_TEXT_SIZE])
{
	format_key(POOL, NULL, key, text);
}

void reef_node_key_format(const struct reef_node_key *key,
			  char text[REEF_KEY_TEXT_SIZE])
{
	uint8_t fields[4];

	reef_put32(fields, key->node);
	format_key(NODE, fields, &key->key, text);
}

void reef_credential_format(const struct reef_credential *credential,
			    char text[REEF_KEY_TEXT_SIZE])
{
	uint8_t fields[8];

	reef_put32(fields, credential->user);
	reef_put32(fields + 4, credential->era);
	format_key(USER, fields, &credential->key, text);
}

void reef_token_format(const struct reef_token *token,
		       char text[REEF_KEY_TEXT_SIZE])
{
	uint8_t fields[FIELDS_MAX];

	reef_assert(are_rights_valid(token->rights));
	encode_token_fields(fields, token->space, token->rights, token->era);
	format_key(SPACE, fields, &token->key, text);
}

int reef_key_parse(const char *text, struct reef_key *out)
{
	return parse_key(POOL, text, NULL, out);
}

int reef_node_key_parse(const char *text, struct reef_node_key *out)
{
	uint8_t fields[4] = {0};
	int rc = parse_key(NODE, text, fields, &out->key);

	if (rc == 0)
		out->node = reef_get32(fields);
	return rc;
}

int reef_credential_parse(const char *text, struct reef_credential *out)
{
	uint8_t fields[8] = {0};
	int rc = parse_key(USER, text, fields, &out->key);

	if (rc < 0)
		return rc;
	out->user = reef_get32(fields);
	out->era = reef_get32(fields + 4);
	return 0;
}

int reef_token_parse(const char *text, struct reef_token *out)
{
	uint8_t fields[FIELDS_MAX] = {0};
	struct reef_key key;
	int rc = parse_key(SPACE, text, fields, &key);

	if (rc == 0 && !are_rights_valid(fields[4]))
		rc = -REEF_ECORRUPT;
	if (rc == 0)
		*out = (struct reef_token){
			.space = reef_get32(fields),
			.era = reef_get32(fields + 5),
			.rights = fields[4],
			.key = key,
		};
	reef_key_wipe(&key);
	return rc;
}

/* --- files --- */

int reef_key_text_save(const char *path, char text[REEF_KEY_TEXT_SIZE])
{
	size_t size = strlen(text);
	int rc;

	reef_assert(size + 1 < REEF_KEY_TEXT_SIZE);
	text[size] = '\n';
	rc = reef_private_create(path, text, size + 1);
	OPENSSL_cleanse(text, REEF_KEY_TEXT_SIZE);
	return rc;
}

/* Load the one line of a file, without its newline. */
static int load_text(const char *path, char text[REEF_KEY_TEXT_SIZE])
{
	ssize_t size = reef_private_read(path, text, REEF_KEY_TEXT_SIZE - 1);

	if (size == -EFBIG)
		return -REEF_ECORRUPT;
	if (size < 0)
		return (int)size;
	if (size > 0 && text[size - 1] == '\n')
		size--;
	text[size] = '\0';
	return strlen(text) == (size_t)size ? 0 : -REEF_ECORRUPT;
}

/* Wipe the text, and log damage, since its code alone does not name the file.
 */
static int finish_load(const char *path, char text[REEF_KEY_TEXT_SIZE], int rc,
		       const char *what)
{
	OPENSSL_cleanse(text, REEF_KEY_TEXT_SIZE);
	if (rc == -REEF_ECORRUPT)
		reef_log(REEF_LOG_ERROR, "keys", "%s: not %s, or damaged", path,
			 what);
	return rc;
}

int reef_key_load(const char *path, struct reef_key *out)
{
	char text[REEF_KEY_TEXT_SIZE];
	int rc = load_text(path, text);

	if (rc == 0)
		rc = reef_key_parse(text, out);
	return finish_load(path, text, rc, "a pool's key");
}

int reef_node_key_load(const char *path, struct reef_node_key *out)
{
	char text[REEF_KEY_TEXT_SIZE];
	int rc = load_text(path, text);

	if (rc == 0)
		rc = reef_node_key_parse(text, out);
	return finish_load(path, text, rc, "a node's key");
}

int reef_credential_load(const char *path, struct reef_credential *out)
{
	char text[REEF_KEY_TEXT_SIZE];
	int rc = load_text(path, text);

	if (rc == 0)
		rc = reef_credential_parse(text, out);
	return finish_load(path, text, rc, "a user's credential");
}
