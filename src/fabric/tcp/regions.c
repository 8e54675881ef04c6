/* regions.c - exposed memory, in a table of keys. */
#include "fabric/tcp/regions.h"

#include "base/random.h"

#include <stdlib.h>

#define KEYS_MAX (1u << 20)
#define BUCKETS_FIRST 64

void tcp_regions_init(struct tcp_regions *regions)
{
	*regions = (struct tcp_regions){0};
	pthread_mutex_init(&regions->lock, NULL);
}

static struct tcp_key **find_bucket(const struct tcp_regions *regions,
				    uint64_t key)
{
	return &regions->buckets[key & (regions->count - 1)];
}

static void list_key(struct tcp_regions *regions, struct tcp_key *key)
{
	struct tcp_key **bucket = find_bucket(regions, key->key);

	key->next = *bucket;
	*bucket = key;
	regions->listed++;
}

static void unlist_key(struct tcp_regions *regions, struct tcp_key *key)
{
	struct tcp_key **at = find_bucket(regions, key->key);

	while (*at != key)
		at = &(*at)->next;
	*at = key->next;
	regions->listed--;
}

static struct tcp_region *find_region(const struct tcp_regions *regions,
				      uint64_t key)
{
	const struct tcp_key *at =
		regions->count ? *find_bucket(regions, key) : NULL;

	while (at && at->key != key)
		at = at->next;
	return at ? at->region : NULL;
}

void tcp_regions_fini(struct tcp_regions *regions)
{
	struct tcp_region *region;

	for (uint32_t i = 0; i < regions->count; i++) {
		while (regions->buckets[i]) {
			region = regions->buckets[i]->region;
			unlist_key(regions, &region->keys[0]);
			unlist_key(regions, &region->keys[1]);
			free(region);
		}
	}
	while ((region = regions->withdrawn)) {
		regions->withdrawn = region->next;
		free(region);
	}
	free(regions->buckets);
	pthread_mutex_destroy(&regions->lock);
}

/* Make room for two more keys: a bucket for each on average. */
static int grow_buckets(struct tcp_regions *regions)
{
	struct tcp_regions larger = {
		.count = regions->count ? regions->count * 2 : BUCKETS_FIRST};
	struct tcp_key *key;

	if (regions->listed + 2 <= regions->count)
		return 0;
	if (larger.count > KEYS_MAX)
		return -ENOSPC;
	larger.buckets = calloc(larger.count, sizeof(struct tcp_key *));
	if (!larger.buckets)
		return -ENOMEM;
	for (uint32_t i = 0; i < regions->count; i++) {
		while ((key = regions->buckets[i])) {
			regions->buckets[i] = key->next;
			list_key(&larger, key);
		}
	}
	free(regions->buckets);
	regions->buckets = larger.buckets;
	regions->count = larger.count;
	return 0;
}

/* Draw two keys that nobody has; 0 is no key. */
static int draw_keys(const struct tcp_regions *regions, uint64_t keys[2])
{
	int rc;

	do {
		rc = reef_random_secret(keys, 2 * sizeof(keys[0]));
		if (rc < 0)
			return rc;
	} while (!keys[0] || !keys[1] || keys[0] == keys[1] ||
		 find_region(regions, keys[0]) ||
		 find_region(regions, keys[1]));
	return 0;
}

int tcp_regions_add(struct tcp_regions *regions, struct tcp_region *region)
{
	uint64_t keys[2] = {0};
	int rc;

	pthread_mutex_lock(&regions->lock);
	rc = grow_buckets(regions);
	if (rc == 0)
		rc = draw_keys(regions, keys);
	for (uint32_t i = 0; rc == 0 && i < 2; i++) {
		region->keys[i] = (struct tcp_key){keys[i], region, NULL};
		list_key(regions, &region->keys[i]);
	}
	region->base.key = keys[0];
	region->base.read_key = keys[1];
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
	bool in_use;

	pthread_mutex_lock(&regions->lock);
	if (!atomic_load_explicit(&region->withdrawn, memory_order_relaxed)) {
		unlist_key(regions, &region->keys[0]);
		unlist_key(regions, &region->keys[1]);
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
	struct tcp_region *region;

	pthread_mutex_lock(&regions->lock);
	region = find_region(regions, key);
	if (region)
		atomic_fetch_add_explicit(&region->users, 1,
					  memory_order_relaxed);
	pthread_mutex_unlock(&regions->lock);
	return region;
}

void tcp_regions_give(struct tcp_region *region)
{
	if (region)
		atomic_fetch_sub_explicit(&region->users, 1,
					  memory_order_release);
}
