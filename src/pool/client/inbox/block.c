/* block.c - an inbox's block, to bytes and back. */
#include "pool/client/inbox/block.h"

#include "base/checksum.h"
#include "base/log.h"
#include "wire/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define MAGIC UINT64_C(0x786f626e49666552) /* "RefInbox" */
#define FORMAT 1u

#define AT_FORMAT 8
#define AT_SESSION 12
#define AT_DOMAIN 16
#define AT_SECRET 24
#define AT_LENGTH 56
#define AT_ZERO 58
#define AT_CHECKSUM 60
#define AT_ADDRESSES 64

static uint32_t checksum(const uint8_t *bytes)
{
	uint32_t crc = reef_crc32c(0, bytes, AT_CHECKSUM);

	return reef_crc32c(crc, bytes + AT_ADDRESSES,
			   INBOX_BLOCK_SIZE - AT_ADDRESSES);
}

void inbox_block_encode(const struct inbox_block *block,
			uint8_t bytes[INBOX_BLOCK_SIZE])
{
	size_t length = strlen(block->addresses);

	reef_assert(length <= INBOX_ADDRESSES_MAX);
	memset(bytes, 0, INBOX_BLOCK_SIZE);
	reef_put64(bytes, MAGIC);
	reef_put32(bytes + AT_FORMAT, FORMAT);
	reef_put32(bytes + AT_SESSION, block->session);
	reef_put64(bytes + AT_DOMAIN, block->domain);
	memcpy(bytes + AT_SECRET, block->secret, INBOX_SECRET_SIZE);
	reef_put16(bytes + AT_LENGTH, (uint16_t)length);
	memcpy(bytes + AT_ADDRESSES, block->addresses, length);
	reef_put32(bytes + AT_CHECKSUM, checksum(bytes));
}

/* True for HOST:PORT with a number for a host: a block must not keep the
 * reader's resolver busy. */
static bool is_numeric(const char *text, size_t length)
{
	char host[INET6_ADDRSTRLEN];
	struct in6_addr address;
	size_t end = length;

	while (end > 0 && text[end - 1] != ':')
		end--;
	if (!end--)
		return false;
	if (end >= 2 && text[0] == '[' && text[end - 1] == ']') {
		text++;
		end -= 2;
	}
	if (!end || end >= sizeof(host))
		return false;
	memcpy(host, text, end);
	host[end] = '\0';
	return inet_pton(AF_INET, host, &address) == 1 ||
	       inet_pton(AF_INET6, host, &address) == 1;
}

/* True for an address that can be an inbox's: a block must not send its reader
 * anywhere else. */
static bool is_inbox_address(const char *word, size_t length)
{
	static const char prefix[] = "shm:" INBOX_SHM_PREFIX;

	if (!strncmp(word, "shm:", 4))
		return length >= sizeof(prefix) &&
		       !strncmp(word, prefix, sizeof(prefix) - 1);
	if (!strncmp(word, "tcp:", 4))
		return is_numeric(word + 4, length - 4);
	if (!strncmp(word, "verbs:", 6))
		return is_numeric(word + 6, length - 6);
	return true;
}

static bool are_inbox_addresses(const char *text)
{
	size_t length;

	for (; *(text += strspn(text, " ")); text += length) {
		length = strcspn(text, " ");
		if (!is_inbox_address(text, length))
			return false;
	}
	return true;
}

int inbox_block_decode(const uint8_t bytes[INBOX_BLOCK_SIZE],
		       struct inbox_block *out)
{
	const uint8_t *text = bytes + AT_ADDRESSES;
	uint16_t length = reef_get16(bytes + AT_LENGTH);
	uint16_t i;

	if (reef_get64(bytes) != MAGIC ||
	    reef_get32(bytes + AT_FORMAT) != FORMAT ||
	    reef_get32(bytes + AT_CHECKSUM) != checksum(bytes))
		return -ENOENT;
	if (!length || length > INBOX_ADDRESSES_MAX ||
	    reef_get16(bytes + AT_ZERO))
		return -ENOENT;
	for (i = 0; i < length; i++)
		if (text[i] < ' ' || text[i] > '~')
			return -ENOENT;
	memcpy(out->addresses, text, length);
	out->addresses[length] = '\0';
	if (!are_inbox_addresses(out->addresses))
		return -ENOENT;
	out->session = reef_get32(bytes + AT_SESSION);
	out->domain = reef_get64(bytes + AT_DOMAIN);
	memcpy(out->secret, bytes + AT_SECRET, INBOX_SECRET_SIZE);
	return 0;
}
