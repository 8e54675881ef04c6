/* block.h - what stands in the space about an inbox.
 *
 * Written once, before anybody is told its address; zeroed when its handle is
 * closed, or gone with its session. Its reader believes nothing: the memory may
 * have been freed and used again, and whoever may write the space may write
 * anything there. So what is decoded is well-formed, has only addresses that
 * can be an inbox's, with numbers for hosts, and may still be wrong: then the
 * connection fails.
 *
 *	 0 magic	 8 format, 4	12 session, 4	16 CPU domain, 8
 *	24 secret, 32	56 length of the addresses, 2	58 zero, 2
 *	60 checksum of everything else, 4		64 addresses, then zeros
 *
 * Thread: any. */
#ifndef REEF_POOL_CLIENT_INBOX_BLOCK_H
#define REEF_POOL_CLIENT_INBOX_BLOCK_H

#include <stdint.h>

#define INBOX_BLOCK_SIZE 512
#define INBOX_ADDRESSES_MAX 447 /* bytes */
#define INBOX_SECRET_SIZE 32
#define INBOX_SHM_PREFIX "@reef-inbox-"

struct inbox_block {
	uint32_t session;
	uint64_t domain;
	uint8_t secret[INBOX_SECRET_SIZE];
	char addresses[INBOX_ADDRESSES_MAX + 1];
};

void inbox_block_encode(const struct inbox_block *block,
			uint8_t bytes[INBOX_BLOCK_SIZE]);
/* -ENOENT: this is no inbox; *out may have changed. */
int inbox_block_decode(const uint8_t bytes[INBOX_BLOCK_SIZE],
		       struct inbox_block *out);

#endif
