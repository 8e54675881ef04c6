/* secret.c - memory for keys: slabs of equal slots, which are never given back
 * to the kernel; a process has few keys at a time. */
#include "base/system/secret.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SLAB_SIZE 65536u
#define SLOTS (SLAB_SIZE / REEF_SECRET_MAX)

struct slab {
	struct slab *next;
	uint8_t *slots;
	uint64_t taken[SLOTS / 64];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slab *slabs;

static struct slab *add_slab(void)
{
	struct slab *slab = calloc(1, sizeof(*slab));

	if (!slab)
		return NULL;
	slab->slots = mmap(NULL, SLAB_SIZE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (slab->slots == MAP_FAILED) {
		free(slab);
		return NULL;
	}
	if (madvise(slab->slots, SLAB_SIZE, MADV_DONTDUMP)) {
		munmap(slab->slots, SLAB_SIZE);
		free(slab);
		return NULL;
	}
	(void)mlock(slab->slots, SLAB_SIZE); /* rule 1: as far as allowed */
	slab->next = slabs;
	slabs = slab;
	return slab;
}

/* Take a free slot; NULL: there is none. */
static void *take_slot(struct slab *slab)
{
	for (size_t i = 0; i < SLOTS / 64; i++) {
		size_t bit;

		if (!~slab->taken[i])
			continue;
		bit = (size_t)__builtin_ctzll(~slab->taken[i]);
		slab->taken[i] |= UINT64_C(1) << bit;
		return slab->slots + (i * 64 + bit) * REEF_SECRET_MAX;
	}
	return NULL;
}

void *reef_secret_create(size_t size)
{
	struct slab *slab;
	void *secret = NULL;

	if (size > REEF_SECRET_MAX)
		return NULL;
	pthread_mutex_lock(&lock);
	for (slab = slabs; slab && !secret; slab = slab->next)
		secret = take_slot(slab);
	if (!secret) {
		slab = add_slab();
		secret = slab ? take_slot(slab) : NULL;
	}
	pthread_mutex_unlock(&lock);
	return secret;
}

void reef_secret_destroy(void *secret)
{
	struct slab *slab;
	size_t slot;

	if (!secret)
		return;
	explicit_bzero(secret, REEF_SECRET_MAX);
	pthread_mutex_lock(&lock);
	slab = slabs;
	while ((uint8_t *)secret < slab->slots ||
	       (uint8_t *)secret >= slab->slots + SLAB_SIZE)
		slab = slab->next;
	slot = (size_t)((uint8_t *)secret - slab->slots) / REEF_SECRET_MAX;
	slab->taken[slot / 64] &= ~(UINT64_C(1) << slot % 64);
	pthread_mutex_unlock(&lock);
}
