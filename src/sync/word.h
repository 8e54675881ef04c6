/* word.h - the words by which sync objects name who holds, waits or leads.
 *
 *    63        32 31    22 21     8 7     0
 *   |  session 32 | member | ticket | flags |
 *
 * (R2) session: the holder's, 0: nobody. member: which of a process's open
 * participants (member.h), 1 to 1,023. ticket: see who uses it. So two
 * participants never write the same word, and what one did can be told from
 * what another did after a connection was lost (F5).
 *
 * Such a word is changed by CAS and FAA only (F6).
 *
 * Thread: any. */
#ifndef REEF_SYNC_WORD_H
#define REEF_SYNC_WORD_H

#include <stdbool.h>
#include <stdint.h>

#define SYNC_MEMBERS_MAX 1023u
#define SYNC_TICKETS 16384u /* tickets count modulo this */

struct sync_word {
	uint32_t session;
	uint16_t member;
	uint16_t ticket;
	uint8_t flags;
};

static inline uint64_t sync_word_pack(struct sync_word word)
{
	return (uint64_t)word.session << 32 |
	       (uint64_t)(word.member & SYNC_MEMBERS_MAX) << 22 |
	       (uint64_t)(word.ticket & (SYNC_TICKETS - 1)) << 8 | word.flags;
}

static inline struct sync_word sync_word_unpack(uint64_t bits)
{
	return (struct sync_word){
		.session = (uint32_t)(bits >> 32),
		.member = (uint16_t)(bits >> 22 & SYNC_MEMBERS_MAX),
		.ticket = (uint16_t)(bits >> 8 & (SYNC_TICKETS - 1)),
		.flags = (uint8_t)bits,
	};
}

/* How many tickets `to` is after `from`; negative: before it. They are less
 * than half of SYNC_TICKETS apart. */
static inline int32_t sync_ticket_distance(uint16_t from, uint16_t to)
{
	int32_t distance = (to - from) & (int32_t)(SYNC_TICKETS - 1);

	return distance < (int32_t)(SYNC_TICKETS / 2)
		       ? distance
		       : distance - (int32_t)SYNC_TICKETS;
}

#endif
