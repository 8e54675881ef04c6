/* compare.c - do the two copies of a space say the same? See client.h.
 *
 *   READ both --same--> next part
 *      |  differ
 *      v
 *   look again, after a pause --a word has changed--> it is in use: once more
 *      |  neither copy has changed
 *      v
 *   it differs */
#include "pool/client/client.h"

#include "pool/client/handle/space.h"
#include "wire/states.h"

#include <stdlib.h>
#include <string.h>

#define PART 65536u /* bytes that are compared at once */
#define LOOKS 12u   /* at a part that differs, at most */
#define PAUSE_NS (2 * CLIENT_MILLISECOND)
#define PAUSE_MAX_NS (128 * CLIENT_MILLISECOND)

struct comparing {
	struct reef_space *space;
	struct reef_copies_report *report;
	void (*differs)(void *context, const struct reef_copies_part *part);
	void *context;
	uint64_t first[PART / 8], second[PART / 8]; /* as they are */
	uint64_t first_was[PART / 8], second_was[PART / 8];
};

struct pair {
	uint32_t extent, twin, node, twin_node;
	uint64_t size;
};

static int compare_pairs(const void *a, const void *b)
{
	const struct pair *one = a, *other = b;

	return (one->extent > other->extent) - (one->extent < other->extent);
}

/* List the extents of the space. Those without a second copy have twin 0. */
static int list_pairs(const struct reef_space *space, struct pair **out,
		      uint32_t *count)
{
	struct reef_client *client = space->reef->client;
	const struct client_extent *extent, *twin;
	struct pair *pairs;
	uint32_t i;

	*count = 0;
	pthread_mutex_lock(&client->lock);
	pairs = calloc(client->extents_count + 1, sizeof(*pairs));
	for (i = 0; pairs && i < client->extents_room; i++) {
		extent = client->extents[i];
		if (!extent || extent->space != space->space ||
		    extent->state == REEF_EXTENT_LOST || extent->is_twin)
			continue;
		twin = client_extent_find(client, extent->twin);
		pairs[(*count)++] = (struct pair){
			.extent = extent->extent,
			.twin = twin ? extent->twin : 0,
			.node = extent->node,
			.twin_node = twin ? twin->node : 0,
			.size = extent->size,
		};
	}
	pthread_mutex_unlock(&client->lock);
	if (!pairs)
		return -ENOMEM;
	qsort(pairs, *count, sizeof(*pairs), compare_pairs);
	*out = pairs;
	return 0;
}

/* READ a part of both copies. */
static int read_both(struct comparing *comparing, const struct pair *pair,
		     uint64_t offset, uint32_t length)
{
	struct reef *reef = comparing->space->reef;
	int rc = reef_read(reef, (uint64_t)pair->extent << 32 | offset,
			   comparing->first, length);

	return rc ? rc
		  : reef_read(reef, (uint64_t)pair->twin << 32 | offset,
			      comparing->second, length);
}

/* True if a word differs, and neither copy of it has changed since the last
 * look. *in_use: one differs, and has. */
static bool differs_still(const struct comparing *comparing, uint32_t i,
			  bool *in_use)
{
	if (comparing->first[i] == comparing->second[i])
		return false;
	if (comparing->first[i] == comparing->first_was[i] &&
	    comparing->second[i] == comparing->second_was[i])
		return true;
	*in_use = true;
	return false;
}

/* Tell of the words of a part that differ. */
static void note_part(struct comparing *comparing, const struct pair *pair,
		      uint64_t offset, uint32_t length)
{
	struct reef_copies_part part = {
		.extent = pair->extent,
		.node = pair->node,
		.twin_node = pair->twin_node,
	};
	bool in_use;

	for (uint32_t i = 0; i < length / 8; i++) {
		in_use = false;
		if (differs_still(comparing, i, &in_use)) {
			if (!part.words++)
				part.first = offset + 8ull * i;
			part.last = offset + 8ull * i;
		}
		comparing->report->in_use += in_use;
	}
	comparing->report->words += part.words;
	if (part.words)
		comparing->differs(comparing->context, &part);
}

static int compare_part(struct comparing *comparing, const struct pair *pair,
			uint64_t offset, uint32_t length)
{
	uint64_t pause_ns = PAUSE_NS;
	bool in_use = true;
	int rc = read_both(comparing, pair, offset, length);

	for (uint32_t look = 0; !rc && in_use && look < LOOKS; look++) {
		if (!memcmp(comparing->first, comparing->second, length))
			return 0;
		memcpy(comparing->first_was, comparing->first, length);
		memcpy(comparing->second_was, comparing->second, length);
		rc = reef_sleep(pause_ns);
		if (!rc)
			rc = read_both(comparing, pair, offset, length);
		if (pause_ns < PAUSE_MAX_NS)
			pause_ns *= 2;
		in_use = false;
		for (uint32_t i = 0; !rc && i < length / 8; i++)
			(void)differs_still(comparing, i, &in_use);
	}
	if (!rc)
		note_part(comparing, pair, offset, length);
	return rc;
}

static int compare_pair(struct comparing *comparing, const struct pair *pair)
{
	uint64_t offset = 0;
	uint32_t length;
	int rc = 0;

	for (; !rc && offset < pair->size; offset += length) {
		length = pair->size - offset < PART
				 ? (uint32_t)(pair->size - offset)
				 : PART;
		rc = compare_part(comparing, pair, offset, length);
		comparing->report->bytes += rc ? 0 : length;
	}
	return rc;
}

int reef_space_compare(struct reef_space *space,
		       void (*differs)(void *context,
				       const struct reef_copies_part *part),
		       void *context, struct reef_copies_report *report)
{
	struct comparing *comparing = malloc(sizeof(*comparing));
	struct pair *pairs = NULL;
	uint32_t count = 0;
	int rc = comparing ? list_pairs(space, &pairs, &count) : -ENOMEM;

	*report = (struct reef_copies_report){0};
	for (uint32_t i = 0; !rc && i < count; i++) {
		comparing->space = space;
		comparing->report = report;
		comparing->differs = differs;
		comparing->context = context;
		if (pairs[i].twin)
			rc = compare_pair(comparing, &pairs[i]);
		else
			report->alone++;
		report->extents++;
		/* It failed over, moved or was given back meanwhile. */
		if (rc && rc != -REEF_EFENCED && rc != -EACCES &&
		    rc != -REEF_EHOSTDEAD) {
			report->unread++;
			rc = 0;
		}
	}
	free(pairs);
	free(comparing);
	return rc;
}
