/* heap_recover.c - dead sessions. */
#include "pool/client/heap_internal.h"

int reef_heap_recover(struct reef_heap *heap, uint32_t session,
		      int (*page)(void *context, uint64_t address,
				  uint64_t size),
		      void *context)
{
	return -ENOSYS;
}
