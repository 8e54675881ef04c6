/* keep.c - see keep.h. */
#include "pool/node/keep.h"

#include <stdlib.h>
#include <unistd.h>

void reef_kept_fini(struct reef_kept *kept)
{
	uint32_t i;

	for (i = 0; i < kept->extents_count; i++)
		reef_memory_destroy(kept->extents[i].memory);
	for (i = 0; i < kept->clients_count; i++)
		if (kept->clients[i].pidfd >= 0)
			close(kept->clients[i].pidfd);
	free(kept->extents);
	free(kept->clients);
	*kept = (struct reef_kept){0};
}
