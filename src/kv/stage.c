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
#include <sys/socket.h>

/* The most that is received between an enter and a leave, by near.h (4). It
 * also stays in the cache until its checksum is made. */
#define PIECE (64u << 10)
/* The most that is received at once by a buffer, while the memory cannot be had
 * in place. */
#define DETOUR (16u << 10)

struct map_stage {
	struct reef *reef;
	struct reef_space *space;
	struct entry_staged staged;
	size_t filled, size; /* with spare bytes */
	int rc;		     /* the first error of the memory */
};

int map_stage_begin(struct reef_map *map, size_t key_size, size_t value_size,
		    size_t spare, struct map_stage **out)
{
	struct map_stage *stage;
	int rc;

	if (!client_is_near(map->reef))
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
	entry_staged_give(stage->space, &stage->staged);
	free(stage);
}

bool map_stage_is_whole(const struct map_stage *stage)
{
	return stage->filled == stage->size;
}

/* Count bytes that are in the pool now, and add them to the checksum; they are
 * at `bytes`, too. */
static void note_bytes(struct map_stage *stage, const void *bytes, size_t count)
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
	return entry_staged_value(&stage->staged) + stage->filled;
}

/* Receive what the socket has now straight into the pool, without waiting
 * (fabric/near.h (4)). False: the memory is not in place at the moment. */
static bool receive_in_place(struct map_stage *stage, int fd, size_t size,
			     ssize_t *got)
{
	uint8_t *to;

	if (stage->rc || !client_near_enter(stage->reef))
		return false;
	to = client_near_at(stage->reef, next_address(stage), size, true);
	if (to) {
		*got = recv(fd, to, size, MSG_DONTWAIT);
		if (*got > 0)
			note_bytes(stage, to, (size_t)*got);
	}
	client_near_leave(stage->reef);
	return to;
}

/* Receive into a buffer, and write that to the pool: the operation does what is
 * due, and then the memory is in place again. */
static ssize_t receive_by_buffer(struct map_stage *stage, int fd, size_t size)
{
	char detour[DETOUR];
	ssize_t got = recv(fd, detour, size, MSG_DONTWAIT);

	if (got > 0)
		map_stage_add(stage, detour, (size_t)got);
	return got;
}

ssize_t map_stage_receive(struct map_stage *stage, int fd, size_t most)
{
	size_t left = stage->size - stage->filled, size;
	ssize_t got, all = 0;

	left = left < most ? left : most;
	reef_assert(left);
	do {
		size = left < PIECE ? left : PIECE;
		if (!receive_in_place(stage, fd, size, &got)) {
			size = size < DETOUR ? size : DETOUR;
			got = receive_by_buffer(stage, fd, size);
		}
		if (got <= 0)
			return all ? all : got;
		all += got;
		left -= (size_t)got;
	} while (left && got == (ssize_t)size);
	return all;
}

void map_stage_add(struct map_stage *stage, const void *bytes, size_t size)
{
	reef_assert(size <= stage->size - stage->filled);
	if (!stage->rc && size)
		stage->rc = reef_write(stage->reef, next_address(stage), bytes,
				       size);
	note_bytes(stage, bytes, size);
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
	return reef_read(stage->reef, entry_staged_value(&stage->staged), to,
			 stage->filled);
}
