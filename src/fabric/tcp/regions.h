/* regions.h - the memory that a tcp fabric exposes, by key.
 *
 * (1) A key is 64 random bits: whoever was not told one does not guess it, and
 *     one that is withdrawn is never given again. The two keys of a region have
 *     nothing in common. At 16 million guesses a second, which one link has
 *     been seen to make, one of a thousand regions takes 18 years on average.
 * (2) A region that is taken stays until it is given back, even if it is
 *     withdrawn meanwhile; but then nobody takes it again.
 *
 * Thread: any. */
#ifndef REEF_FABRIC_TCP_REGIONS_H
#define REEF_FABRIC_TCP_REGIONS_H

#include "fabric/provider.h"

#include <pthread.h>

/* One of the keys of a region, in its bucket. */
struct tcp_key {
	uint64_t key;
	struct tcp_region *region;
	struct tcp_key *next;
};

struct tcp_region {
	struct reef_region base;
	struct tcp_key keys[2]; /* of base; regions.lock */
	_Atomic uint32_t users;
	_Atomic int withdrawn;
	uint64_t withdrawn_ns;	 /* when; regions.lock */
	struct tcp_region *next; /* withdrawn, but still in use */
};

struct tcp_regions {
	pthread_mutex_t lock;
	struct tcp_key **buckets;
	uint32_t count;	 /* of buckets; a power of 2, or 0 */
	uint32_t listed; /* keys that are in them */
	struct tcp_region *withdrawn;
};

void tcp_regions_init(struct tcp_regions *regions);
void tcp_regions_fini(struct tcp_regions *regions); /* frees all */

/* Put a region in; sets its keys.  -ENOMEM.  -ENOSPC: 2^19 regions. */
int tcp_regions_add(struct tcp_regions *regions, struct tcp_region *region);

/* No more takes; 0: nobody has it, and it is freed.  -EAGAIN: call again. */
int tcp_regions_withdraw(struct tcp_regions *regions,
			 struct tcp_region *region);

/* NULL: no such key, or withdrawn. */
struct tcp_region *tcp_regions_take(struct tcp_regions *regions, uint64_t key);
void tcp_regions_give(struct tcp_region *region); /* NULL is fine */

#endif
