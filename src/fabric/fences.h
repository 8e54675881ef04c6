/* fences.h - which sessions were fenced on a fabric (F7).
 *
 * (1) A slot keeps the newest generation that was fenced. It covers the older
 *     ones, so nothing is ever forgotten, and the table does not grow.
 * (2) The table has 65,536 words, which cost memory only where they are used.
 *
 * Thread: any asks; those who add are locked by their fabric. */
#ifndef REEF_FABRIC_FENCES_H
#define REEF_FABRIC_FENCES_H

#include "fabric/provider.h"

struct reef_fences {
	_Atomic uint32_t *sessions; /* by slot; 0: none */
};

int reef_fences_init(struct reef_fences *fences); /* -ENOMEM */
void reef_fences_fini(struct reef_fences *fences);

/* Remember that a session was fenced. */
void reef_fences_add(struct reef_fences *fences, uint32_t session);

/* True if this session, or a later generation of its slot, was fenced. */
static inline bool reef_fences_cover(const struct reef_fences *fences,
				     uint32_t session)
{
	uint32_t fenced = atomic_load(&fences->sessions[session >> 16]);

	return fenced && reef_session_covers(fenced, session);
}

#endif
