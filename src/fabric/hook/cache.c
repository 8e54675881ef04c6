/* cache.c - see cache.h. A hash table with chains over an array of entries,
 * which are also in a ring from the latest used to the oldest; entry 0 is the
 * ring's head and "none" in chains. */
#include "fabric/hook/cache.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

struct entry {
	uint64_t tag;
	uint32_t size;
	uint32_t chain;	       /* the next in its bucket, or free */
	uint32_t newer, older; /* the ring */
};

struct reef_cache {
	uint64_t capacity, used;
	uint32_t entry_min;
	uint32_t free; /* chain of free entries */
	uint32_t mask; /* buckets - 1 */
	uint32_t *buckets;
	struct entry *entries;
};

int reef_cache_create(uint64_t capacity, uint32_t entry_min,
		      struct reef_cache **out)
{
	struct reef_cache *cache;
	uint64_t count = entry_min ? capacity / entry_min : 0;
	uint32_t buckets = 1;

	if (!count || count > 1u << 24)
		return -EINVAL;
	while (buckets < count)
		buckets *= 2;
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return -ENOMEM;
	cache->buckets = calloc(buckets, sizeof(uint32_t));
	cache->entries = calloc(count + 1, sizeof(struct entry));
	if (!cache->buckets || !cache->entries) {
		reef_cache_destroy(cache);
		return -ENOMEM;
	}
	cache->capacity = capacity;
	cache->entry_min = entry_min;
	cache->mask = buckets - 1;
	for (uint32_t i = (uint32_t)count; i > 0; i--) {
		cache->entries[i].chain = cache->free;
		cache->free = i;
	}
	*out = cache;
	return 0;
}

void reef_cache_destroy(struct reef_cache *cache)
{
	if (!cache)
		return;
	free(cache->buckets);
	free(cache->entries);
	free(cache);
}

uint64_t reef_cache_used(const struct reef_cache *cache)
{
	return cache->used;
}

static uint32_t *bucket_of(struct reef_cache *cache, uint64_t tag)
{
	/* Tags may be small numbers: spread them. */
	return &cache->buckets[(uint32_t)(tag * 0x9e3779b97f4a7c15ull >> 32) &
			       cache->mask];
}

static void unlink_entry(struct reef_cache *cache, struct entry *entry)
{
	cache->entries[entry->newer].older = entry->older;
	cache->entries[entry->older].newer = entry->newer;
}

static void link_newest(struct reef_cache *cache, uint32_t index)
{
	struct entry *head = &cache->entries[0], *entry;

	entry = &cache->entries[index];
	entry->newer = 0;
	entry->older = head->older;
	cache->entries[head->older].newer = index;
	head->older = index;
}

static void evict_oldest(struct reef_cache *cache)
{
	uint32_t index = cache->entries[0].newer, *at;
	struct entry *entry = &cache->entries[index];

	reef_assert(index);
	for (at = bucket_of(cache, entry->tag); *at != index;
	     at = &cache->entries[*at].chain)
		;
	*at = entry->chain;
	unlink_entry(cache, entry);
	cache->used -= entry->size;
	entry->chain = cache->free;
	cache->free = index;
}

bool reef_cache_touch(struct reef_cache *cache, uint64_t tag, uint32_t size)
{
	uint32_t *bucket = bucket_of(cache, tag), index;
	struct entry *entry;

	for (index = *bucket; index; index = cache->entries[index].chain)
		if (cache->entries[index].tag == tag)
			break;
	if (index) {
		unlink_entry(cache, &cache->entries[index]);
		link_newest(cache, index);
		return true;
	}
	if (size > cache->capacity)
		return false;
	if (size < cache->entry_min)
		size = cache->entry_min;
	while (cache->used + size > cache->capacity)
		evict_oldest(cache);
	index = cache->free;
	entry = &cache->entries[index];
	cache->free = entry->chain;
	entry->tag = tag;
	entry->size = size;
	entry->chain = *bucket;
	*bucket = index;
	link_newest(cache, index);
	cache->used += size;
	return false;
}
