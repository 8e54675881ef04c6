/* regions.c - exposed memory, in a table of slots that keys name. */
#include "fabric/tcp/regions.h"

#include "base/random.h"

#include <stdlib.h>

#define SLOT_BITS 20
#define SLOTS_MAX (1u << SLOT_BITS)
#define SLOTS_FIRST 64

void tcp_regions_init(struct tcp_regions *regions)
{
	*regions = (struct tcp_regions){0};
	pthread_mutex_init(&regions->lock, NULL);
}

void tcp_regions_fini(struct tcp_regions *regions)
{
	struct tcp_region *region;

	for (uint32_t i = 0; i < regions->count; i++)
		free(regions->slots[i]);
	while ((region = regions->withdrawn)) {
		regions->withdrawn = region->next;
		free(region);
	}
	free(regions->slots);
	pthread_mutex_destroy(&regions->lock);
}

static int grow_slots(struct tcp_regions *regions)
{
	uint32_t count = regions->count ? regions->count * 2 : SLOTS_FIRST;
	struct tcp_region **slots;

	if (regions->count == SLOTS_MAX)
		return -ENOSPC;
	slots = realloc(regions->slots, count * sizeof(struct tcp_region *));
	if (!slots)
		return -ENOMEM;
	for (uint32_t i = regions->count; i < count; i++)
		slots[i] = NULL;
	regions->slots = slots;
	regions->count = count;
	return 0;
}

static uint64_t key_of_slot(uint64_t random, uint32_t slot)
{
	return (random & ~(uint64_t)(SLOTS_MAX - 1)) | slot;
}

int tcp_regions_add(struct tcp_regions *regions, struct tcp_region *region)
{
	uint64_t keys[2];
	uint32_t slot = 0;
	int rc;

	/* The lowest bits give way to the slot; 0 is no key. */
	do {
		rc = reef_random_secret(keys, sizeof(keys));
		if (rc < 0)
			return rc;
	} while (keys[0] >> SLOT_BITS == 0 || keys[1] >> SLOT_BITS == 0 ||
		 keys[0] >> SLOT_BITS == keys[1] >> SLOT_BITS);
	pthread_mutex_lock(&regions->lock);
	while (slot < regions->count && regions->slots[slot])
		slot++;
	if (slot == regions->count)
		rc = grow_slots(regions);
	if (rc == 0) {
		region->base.key = key_of_slot(keys[0], slot);
		region->base.read_key = key_of_slot(keys[1], slot);
		regions->slots[slot] = region;
	}
	pthread_mutex_unlock(&regions->lock);
	return rc;
}

static void unlist_withdrawn(struct tcp_regions *regions,
			     struct tcp_region *region)
{
	struct tcp_region **at = &regions->withdrawn;

	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
}

int tcp_regions_withdraw(struct tcp_regions *regions, struct tcp_region *region)
{
	uint32_t slot = (uint32_t)(region->base.key & (SLOTS_MAX - 1));
	bool in_use;

	pthread_mutex_lock(&regions->lock);
	if (!atomic_load_explicit(&region->withdrawn, memory_order_relaxed)) {
		reef_assert(regions->slots[slot] == region);
		regions->slots[slot] = NULL;
		region->next = regions->withdrawn;
		regions->withdrawn = region;
		region->withdrawn_ns = reef_now_ns();
		/* Whoever has taken the region reads this before each
		 * operation. */
		atomic_store(&region->withdrawn, 1);
	}
	/* Acquire: all that its last user did lies before this; the partner is
	 * the release in give. */
	in_use = atomic_load_explicit(&region->users, memory_order_acquire);
	if (!in_use)
		unlist_withdrawn(regions, region);
	pthread_mutex_unlock(&regions->lock);
	if (in_use)
		return -EAGAIN;
	free(region);
	return 0;
}

struct tcp_region *tcp_regions_take(struct tcp_regions *regions, uint64_t key)
{
	uint32_t slot = (uint32_t)(key & (SLOTS_MAX - 1));
	struct tcp_region *region = NULL;

	pthread_mutex_lock(&regions->lock);
	if (slot < regions->count)
		region = regions->slots[slot];
	if (region && reef_region_has_key(&region->base, key))
		atomic_fetch_add_explicit(&region->users, 1,
					  memory_order_relaxed);
	else
		region = NULL;
	pthread_mutex_unlock(&regions->lock);
	return region;
}

void tcp_regions_give(struct tcp_region *region)
{
	if (region)
		atomic_fetch_sub_explicit(&region->users, 1,
					  memory_order_release);
}
