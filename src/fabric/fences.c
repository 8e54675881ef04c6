/* fences.c - see fences.h. */
#include "fabric/fences.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS 65536

int reef_fences_init(struct reef_fences *fences)
{
	fences->sessions = calloc(SLOTS, sizeof(*fences->sessions));
	return fences->sessions ? 0 : -ENOMEM;
}

void reef_fences_fini(struct reef_fences *fences)
{
	free(fences->sessions);
}

void reef_fences_add(struct reef_fences *fences, uint32_t session)
{
	reef_assert(session);
	if (!reef_fences_cover(fences, session))
		atomic_store(&fences->sessions[session >> 16], session);
}
