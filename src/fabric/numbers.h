/* numbers.h - which numbers of a session's links are used up on a fabric (F10).
 *
 * (1) A number is used up once it, or a higher one of that session, was
 *     accepted or ended.
 * (2) A slot of sessions keeps the newest generation that it has heard of, and
 *     that one's highest number. The older ones are used up whole: they were
 *     fenced before the slot was given away again. So nothing that matters is
 *     forgotten, and the table grows with the slots in use, not with time.
 * (3) All zero is a table that has heard of nobody.
 *
 * Thread: locked by its fabric. */
#ifndef REEF_FABRIC_NUMBERS_H
#define REEF_FABRIC_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

#define REEF_NUMBERS_PAGES 256

struct reef_number {
	uint32_t session; /* 0: none */
	uint32_t number;
};

struct reef_numbers {
	/* Of 256 slots each; NULL: none of these was heard of. */
	struct reef_number *pages[REEF_NUMBERS_PAGES];
};

void reef_numbers_fini(struct reef_numbers *numbers);

/* Whether a link may be accepted: 0.  -ESTALE: its number is used up. Number 0
 * always may. */
int reef_numbers_check(const struct reef_numbers *numbers, uint32_t session,
		       uint32_t number);

/* Use up a session's numbers up to this one: it was accepted, or is ended.
 * -ENOMEM: nothing changed. */
int reef_numbers_use(struct reef_numbers *numbers, uint32_t session,
		     uint32_t number);

/* A session was fenced: the older ones of its slot are used up whole.
 * Generations are serial numbers, so what is kept must not be older than half
 * their range: whoever fences does so often enough (broker/nodes.c). */
void reef_numbers_fence(struct reef_numbers *numbers, uint32_t session);

/* True if ending the links of `session` up to `number` ends one that is of this
 * session and has this number. */
bool reef_numbers_end_covers(uint32_t session, uint32_t number,
			     uint32_t link_session, uint32_t link_number);

#endif
