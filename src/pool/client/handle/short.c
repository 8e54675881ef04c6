/* short.c - short addresses: 38 bits that name a block within its space.
 *
 *   ordinal of the extent in the space 18 | offset of the block's header / 64
 *
 * (1) An ordinal is given to an extent when it joins the space, and to another
 *     one only when that is gone and all ordinals have had their turn, so that
 *     everybody has long heard of it. What a handle has learned is kept in two
 *     tables of its own without a lock, until the view says that the extent is
 *     gone.
 * (2) Nobody's block begins at offset 0, so 0 names nothing.
 * (3) An ordinal is 64 MiB. A larger extent has several, one after the other;
 *     the broker tells the first. Where a journal of before that gave the
 *     following ones to others, those count, and what is behind the first 64
 *     MiB has no short address. */
#include "pool/client/handle/space.h"
#include "pool/client/keeper/space_job.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define OFFSET_MASK ((1u << CLIENT_SHORT_BITS) - 1)

/* --- what is known --- */

/* The end of the ordinals of all extents that the view has of this space.
 * Locked. */
static uint32_t ordinals_in_view(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t end = 0, last;

	for (uint32_t i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent || extent->space != space->space ||
		    extent->ordinal >= REEF_ORDINALS_MAX)
			continue;
		last = extent->ordinal + reef_extent_ordinals(extent->size);
		end = last > end ? last : end;
	}
	return end < REEF_ORDINALS_MAX ? end : REEF_ORDINALS_MAX;
}

static void learn_extent(struct reef_space *space,
			 const struct client_extent *extent)
{
	uint64_t base = (uint64_t)extent->extent << 32;
	uint32_t count = reef_extent_ordinals(extent->size), at;

	for (uint32_t i = 0; i < count; i++) {
		at = extent->ordinal + i;
		/* An ordinal that another extent has stays that one's: (3). */
		if (at < space->bases_count && (!i || !space->bases[at]))
			space->bases[at] = base + i * REEF_ORDINAL_SIZE;
	}
}

static int bases_grow(struct reef_space *space, uint32_t count)
{
	uint64_t *bases;

	if (count <= space->bases_count)
		return 0;
	bases = realloc(space->bases, count * sizeof(*bases));
	if (!bases)
		return -ENOMEM;
	memset(bases + space->bases_count, 0,
	       (count - space->bases_count) * sizeof(*bases));
	space->bases = bases;
	space->bases_count = count;
	return 0;
}

/* Learn the ordinals of all extents that the view has of this space. */
static int learn_view(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	int rc;

	pthread_mutex_lock(&client->lock);
	rc = bases_grow(space, ordinals_in_view(space));
	for (uint32_t i = 0; !rc && i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->space == space->space && !extent->removed)
			learn_extent(space, extent);
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

void client_short_forget(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	uint32_t number;

	pthread_mutex_lock(&client->lock);
	while (space->lost_seen < space->space->lost_count) {
		number = space->space->lost[space->lost_seen++];
		for (uint32_t i = 0; i < space->bases_count; i++)
			if (space->bases[i] >> 32 == number)
				space->bases[i] = 0;
		if (space->shorts[number % CLIENT_SHORTS].extent == number)
			space->shorts[number % CLIENT_SHORTS].extent = 0;
	}
	pthread_mutex_unlock(&client->lock);
}

static bool knows_ordinal(const struct reef_space *space, uint32_t ordinal)
{
	return ordinal < space->bases_count && space->bases[ordinal];
}

/* --- from an address --- */

static int ordinal_of_extent(struct reef_space *space, uint32_t number,
			     uint32_t *ordinal)
{
	struct reef_client *client = space->reef->client;
	struct client_extent *extent;
	int rc = -EFAULT;

	pthread_mutex_lock(&client->lock);
	extent = client_extent_find(client, number);
	if (extent && extent->space == space->space) {
		*ordinal = extent->ordinal;
		rc = 0;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

/* 0 if the ordinal begins at that address; -ERANGE: it is another's (3). */
static int check_ordinal(struct reef_space *space, uint32_t ordinal,
			 uint64_t base)
{
	int rc = 0;

	if (ordinal >= REEF_ORDINALS_MAX)
		return -ERANGE;
	if (!knows_ordinal(space, ordinal))
		rc = learn_view(space);
	if (rc)
		return rc;
	return knows_ordinal(space, ordinal) && space->bases[ordinal] == base
		       ? 0
		       : -ERANGE;
}

int reef_short_address(struct reef_space *space, uint64_t address,
		       uint64_t *out)
{
	uint32_t number = (uint32_t)(address >> 32);
	uint32_t offset = (uint32_t)address - CLIENT_BLOCK_HEADER, ordinal;
	struct client_short *known = &space->shorts[number % CLIENT_SHORTS];
	int rc;

	if (offset & 63)
		return -ERANGE;
	if (known->extent != number || !number) {
		rc = ordinal_of_extent(space, number, &ordinal);
		if (!rc && ordinal >= REEF_ORDINALS_MAX)
			rc = -ERANGE;
		if (rc)
			return rc;
		*known = (struct client_short){number, ordinal};
	}
	ordinal = known->ordinal;
	if (unlikely(offset >= REEF_ORDINAL_SIZE)) {
		ordinal += offset / REEF_ORDINAL_SIZE;
		rc = check_ordinal(space, ordinal,
				   address - CLIENT_BLOCK_HEADER -
					   offset % REEF_ORDINAL_SIZE);
		if (rc)
			return rc;
	}
	*out = (uint64_t)ordinal << CLIENT_SHORT_BITS |
	       (offset >> 6 & OFFSET_MASK);
	return 0;
}

/* --- to an address --- */

static int refresh_view(struct reef_space *space)
{
	struct client_space_job *job = client_job_create(&client_refresh_ops);
	int rc;

	if (!job)
		return -ENOMEM;
	job->space = space->space;
	rc = client_job_run(space->reef->client, &space->reef->member,
			    &job->job);
	client_job_unref(&job->job);
	return rc;
}

static int ask_for_ordinal(struct reef_space *space, uint32_t ordinal)
{
	int rc = learn_view(space);

	if (rc || knows_ordinal(space, ordinal))
		return rc;
	/* The extent may have joined the space since the view was taken. */
	rc = refresh_view(space);
	if (!rc)
		rc = learn_view(space);
	if (rc)
		return rc;
	return knows_ordinal(space, ordinal) ? 0 : -EFAULT;
}

int reef_long_address(struct reef_space *space, uint64_t short_address,
		      uint64_t *out)
{
	uint32_t ordinal = (uint32_t)(short_address >> CLIENT_SHORT_BITS);
	int rc;

	if (unlikely(!knows_ordinal(space, ordinal))) {
		if (!short_address || ordinal >= REEF_ORDINALS_MAX)
			return -EFAULT;
		rc = ask_for_ordinal(space, ordinal);
		if (rc)
			return rc;
	}
	*out = client_short_join(space->bases[ordinal], short_address);
	return 0;
}
