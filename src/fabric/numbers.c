/* numbers.c - see numbers.h. */
#include "fabric/numbers.h"

#include "base/mutant.h"
#include "fabric/provider.h"

#include <assert.h>
#include <stdlib.h>

#define PAGE_SLOTS 256

static_assert(REEF_NUMBERS_PAGES * PAGE_SLOTS == 65536, "a place per slot");

void reef_numbers_fini(struct reef_numbers *numbers)
{
	for (uint32_t i = 0; i < REEF_NUMBERS_PAGES; i++)
		free(numbers->pages[i]);
}

int reef_numbers_check(const struct reef_numbers *numbers, uint32_t session,
		       uint32_t number)
{
	uint32_t slot = session >> 16;
	const struct reef_number *page = numbers->pages[slot / PAGE_SLOTS];
	const struct reef_number *used = page ? page + slot % PAGE_SLOTS : NULL;

	if (!number || !used || !used->session ||
	    !reef_session_covers(used->session, session) ||
	    REEF_MUTATED(FABRIC_END_LATE_HELLO))
		return 0;
	if (used->session == session && number > used->number)
		return 0;
	return -ESTALE;
}

int reef_numbers_use(struct reef_numbers *numbers, uint32_t session,
		     uint32_t number)
{
	uint32_t slot = session >> 16;
	struct reef_number **page = &numbers->pages[slot / PAGE_SLOTS], *used;

	if (!number)
		return 0;
	if (!*page)
		*page = calloc(PAGE_SLOTS, sizeof(**page));
	if (!*page)
		return -ENOMEM;
	used = *page + slot % PAGE_SLOTS;
	if (used->session && reef_session_covers(used->session, session) &&
	    (used->session != session || number <= used->number))
		return 0;
	*used = (struct reef_number){.session = session, .number = number};
	return 0;
}

void reef_numbers_fence(struct reef_numbers *numbers, uint32_t session)
{
	uint32_t slot = session >> 16;
	const struct reef_number *page = numbers->pages[slot / PAGE_SLOTS];
	const struct reef_number *used = page ? page + slot % PAGE_SLOTS : NULL;

	/* A slot of which nobody was heard has nothing that could be old; and
	 * the session itself is to hear that it is fenced. */
	if (used && used->session && used->session != session)
		(void)reef_numbers_use(numbers, session, UINT32_MAX);
}

bool reef_numbers_end_covers(uint32_t session, uint32_t number,
			     uint32_t link_session, uint32_t link_number)
{
	return link_session == session && link_number &&
	       (link_number <= number || REEF_MUTATED(FABRIC_END_NEWER));
}
