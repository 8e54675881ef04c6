/* cache.h - which contexts and translations a NIC has at hand.
 *
 * (1) Least recently used goes first; entries have sizes, and their sum stays
 *     within the capacity.
 * (2) An entry is known by a 64-bit tag. Tags are hashes of what they stand
 *     for; that two collide is possible and does not matter here.
 *
 * Thread: owner. */
#ifndef REEF_FABRIC_HOOK_CACHE_H
#define REEF_FABRIC_HOOK_CACHE_H

#include <stdbool.h>
#include <stdint.h>

struct reef_cache;

/* Entries are at least entry_min bytes each, which bounds their number. Caller
 * owns *out.  -EINVAL: capacity under entry_min, or over 2^24 entries.
 * -ENOMEM. */
int reef_cache_create(uint64_t capacity, uint32_t entry_min,
		      struct reef_cache **out);
void reef_cache_destroy(struct reef_cache *cache); /* NULL is fine */

/* Use an entry. True: it was there. False: it had to be fetched, and is there
 * now, unless it is larger than the whole cache. */
bool reef_cache_touch(struct reef_cache *cache, uint64_t tag, uint32_t size);

uint64_t reef_cache_used(const struct reef_cache *cache); /* bytes */

#endif
