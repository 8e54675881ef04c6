/* short.c - short addresses: 38 bits that name a block within its space.
 *
 *   ordinal of the extent in the space 18 | offset of the block's header / 64
 *
 * (1) An ordinal is given to an extent when it joins the space, and never to
 *     another one. So what a handle has learned stays true, and is kept in two
 *     tables of its own without a lock.
 * (2) Nobody's block begins at offset 0, so 0 names nothing. */
#include "pool/client/internal.h"

#include <stdlib.h>
#include <string.h>

#define ORDINALS_MAX (1u << 18)
#define OFFSET_MASK ((1u << CLIENT_SHORT_BITS) - 1)

static uint64_t join(uint32_t ordinal, uint32_t offset)
{
	return (uint64_t)ordinal << CLIENT_SHORT_BITS | offset >> 6;
}

/* --- from an address --- */

static int find_ordinal(struct reef_space *space, uint32_t number,
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

int reef_short_address(struct reef_space *space, uint64_t address,
		       uint64_t *out)
{
	uint32_t number = (uint32_t)(address >> 32);
	uint32_t offset = (uint32_t)address - CLIENT_BLOCK_HEADER, ordinal;
	struct client_short *known = &space->shorts[number % CLIENT_SHORTS];
	int rc;

	if (offset & 63 || offset >> 6 > OFFSET_MASK)
		return -ERANGE;
	if (known->extent != number || !number) {
		rc = find_ordinal(space, number, &ordinal);
		if (!rc && ordinal >= ORDINALS_MAX)
			rc = -ERANGE;
		if (rc)
			return rc;
		*known = (struct client_short){number, ordinal};
	}
	*out = join(known->ordinal, offset);
	return 0;
}

/* --- to an address --- */

static int refresh_job(struct reef_client *client, struct client_job *job)
{
	return client_view_refresh(client, job->space,
				   client_patience_ns(client));
}

static int refresh(struct reef_space *space)
{
	struct client_job *job = client_job_create(refresh_job);
	int rc;

	if (!job)
		return -ENOMEM;
	job->space = space->space;
	rc = client_job_run(space->reef, job);
	client_job_unref(job);
	return rc;
}

static uint32_t ordinals_in_view(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t end = 0;

	for (uint32_t i = 0; i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->space == space->space &&
		    extent->ordinal < ORDINALS_MAX && extent->ordinal >= end)
			end = extent->ordinal + 1;
	}
	return end;
}

/* Take in all of the view: numbers[ordinal], 0 where nothing is known. */
static int learn(struct reef_space *space)
{
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent;
	uint32_t *numbers, end, i;
	int rc = 0;

	pthread_mutex_lock(&client->lock);
	end = ordinals_in_view(space);
	if (end > space->numbers_count) {
		numbers = realloc(space->numbers, end * sizeof(*numbers));
		if (numbers) {
			memset(numbers + space->numbers_count, 0,
			       (end - space->numbers_count) * sizeof(*numbers));
			space->numbers = numbers;
			space->numbers_count = end;
		} else {
			rc = -ENOMEM;
		}
	}
	for (i = 0; !rc && i < client->extents_room; i++) {
		extent = client->extents[i];
		if (extent && extent->space == space->space &&
		    extent->ordinal < space->numbers_count)
			space->numbers[extent->ordinal] = extent->extent;
	}
	pthread_mutex_unlock(&client->lock);
	return rc;
}

static bool is_known(const struct reef_space *space, uint32_t ordinal)
{
	return ordinal < space->numbers_count && space->numbers[ordinal];
}

static int look_up(struct reef_space *space, uint32_t ordinal)
{
	int rc = learn(space);

	if (rc || is_known(space, ordinal))
		return rc;
	/* Joined since we looked? */
	rc = refresh(space);
	if (!rc)
		rc = learn(space);
	if (rc)
		return rc;
	return is_known(space, ordinal) ? 0 : -EFAULT;
}

int reef_long_address(struct reef_space *space, uint64_t short_address,
		      uint64_t *out)
{
	uint32_t ordinal = (uint32_t)(short_address >> CLIENT_SHORT_BITS);
	int rc;

	if (unlikely(!is_known(space, ordinal))) {
		if (!short_address || ordinal >= ORDINALS_MAX)
			return -EFAULT;
		rc = look_up(space, ordinal);
		if (rc)
			return rc;
	}
	*out = client_short_join(space->numbers[ordinal], short_address);
	return 0;
}
