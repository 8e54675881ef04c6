/* explain.c - see explain.h. */
#include "kv/explain.h"

#include "kv/internal.h"

#include <errno.h>
#include <stdlib.h>

int map_explain(struct reef_map *map, const void *key, size_t key_size,
		struct map_explanation *out)
{
	struct hash_reading reading;
	int rc;

	if (key_size > map->key_max)
		return -EINVAL;
	hash_reading_begin(&reading, key, (uint32_t)key_size, NULL, 0);
	reading.blind = true;
	reef_enter(map->reef);
	rc = hash_get(map->table, &reading, 1);
	if (!rc)
		rc = reading.status;
	if (!rc || rc == -ENOENT)
		*out = (struct map_explanation){
			.is_there = !rc,
			.subtable = reading.leaf,
			.depth = reading.depth,
			.entry = rc ? 0 : reading.entry_at,
			.value_size = rc ? 0 : reading.entry.value_size,
			.expires_ms = rc ? 0 : reading.entry.stamp,
			.is_near = reef_is_near(map->reef, reading.leaf) &&
				   (rc ||
				    reef_is_near(map->reef, reading.entry_at)),
		};
	reef_leave(map->reef);
	free(reading.room.bytes);
	return rc == -ENOENT ? 0 : rc;
}
