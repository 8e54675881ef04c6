/* stage.c - see stage.h.
 *
 * Why: a SET of 4 MiB through a buffer cost the door 1.7 ms of processor time,
 * a redis-server 1.05: the kernel's copy 0.94, the checksum over bytes that had
 * left the cache meanwhile 0.25, the copy to the pool 0.4. Received in place,
 * with the checksum of each piece right behind it, the copy goes and the
 * checksum reads from the cache. Smaller receive buffers or windows, so that
 * what waits in the kernel stays in the cache, too, gained nothing. */
#include "kv/stage.h"

#include "base/checksum.h"
#include "kv/internal.h"
#include "pool/client/handle/near.h"

#include <errno.h>
#include <stdlib.h>

/* A piece stays in the cache until its checksum is made, and whoever takes the
 * memory away does not wait long for the end of it. */
#define PIECE (512u << 10)
/* Of one that cannot be had in place just now. */
#define DETOUR (16u << 10)

struct map_stage {
	struct reef *reef;
	struct reef_space *space;
	struct hash_staged staged;
	size_t filled, size; /* spare bytes too */
	int rc;		     /* of the memory: the first that went wrong */
};

int map_stage_begin(struct reef_map *map, size_t key_size, size_t value_size,
		    size_t spare, struct map_stage **out)
{
	struct map_stage *stage;
	int rc;

	if (!map->reef->near)
		return -EOPNOTSUPP;
	if (key_size > map->key_max || value_size > map->value_max)
		return -EINVAL;
	stage = calloc(1, sizeof(*stage));
	if (!stage)
		return -ENOMEM;
	stage->reef = map->reef;
	stage->space = map->object.space;
	stage->size = value_size + spare;
	rc = hash_staged_take(stage->space, (uint32_t)key_size,
			      (uint32_t)value_size, (uint32_t)spare,
			      &stage->staged);
	if (rc)
		free(stage);
	else
		*out = stage;
	return rc;
}

void map_stage_end(struct map_stage *stage)
{
	if (!stage)
		return;
	hash_staged_give(stage->space, &stage->staged);
	free(stage);
}

bool map_stage_is_whole(const struct map_stage *stage)
{
	return stage->filled == stage->size;
}

/* So many bytes more are there, and here, too. */
static void note(struct map_stage *stage, const void *bytes, size_t count)
{
	const size_t value_size = stage->staged.value_size;
	size_t part = 0;

	if (stage->filled < value_size)
		part = value_size - stage->filled;
	part = part < count ? part : count;
	stage->staged.crc = reef_crc32c(stage->staged.crc, bytes, part);
	stage->filled += count;
}

static uint64_t next_address(const struct map_stage *stage)
{
	return hash_staged_value(&stage->staged) + stage->filled;
}

/* Straight to where it belongs. False: not now. */
static bool take_near(struct map_stage *stage, map_source *source,
		      void *context, size_t size, ssize_t *got)
{
	uint8_t *to;

	if (!client_near_enter(stage->reef))
		return false;
	to = client_near_at(stage->reef, next_address(stage), size, true);
	if (to) {
		*got = source(context, to, size);
		if (*got > 0)
			note(stage, to, (size_t)*got);
	}
	client_near_leave(stage->reef);
	return to;
}

ssize_t map_stage_take(struct map_stage *stage, map_source *source,
		       void *context)
{
	char detour[DETOUR];
	size_t size = stage->size - stage->filled;
	ssize_t got;

	size = size < PIECE ? size : PIECE;
	if (!stage->rc && take_near(stage, source, context, size, &got))
		return got;
	/* What is due is done by an operation; then it is near again. */
	got = source(context, detour, size < DETOUR ? size : DETOUR);
	if (got <= 0)
		return got;
	if (!stage->rc)
		stage->rc = reef_write(stage->reef, next_address(stage), detour,
				       (size_t)got);
	note(stage, detour, (size_t)got);
	return got;
}

static int decide_put(void *context, const struct reef_map_entry *now,
		      struct reef_map_entry *put)
{
	(void)now;
	*put = *(const struct reef_map_entry *)context;
	return REEF_MAP_PUT;
}

int map_stage_put(struct map_stage *stage, struct reef_map *map,
		  const void *key, uint64_t expires_ms)
{
	struct reef_map_entry what = {
		.value_size = stage->staged.value_size,
		.expires_ms = expires_ms,
	};
	struct reef_map_change change = {
		.key = key,
		.key_size = stage->staged.key_size,
		.decide = decide_put,
		.context = &what,
		.ahead = &what,
		.blind = true,
	};

	reef_assert(map_stage_is_whole(stage) &&
		    map->object.space == stage->space);
	return stage->rc ? stage->rc : map_apply(map, &change, &stage->staged);
}

int map_stage_read(const struct map_stage *stage, void *to)
{
	if (stage->rc || !stage->filled)
		return stage->rc;
	return reef_read(stage->reef, hash_staged_value(&stage->staged), to,
			 stage->filled);
}
