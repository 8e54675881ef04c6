/* map.c - a hash map in the memory of a pool. With `reef up` running use NULL
 * instead of "embedded:64M": then any process, on any machine, has the same
 * map; so has `redis-cli -p 7379`, of the map "db0" in the space "redis". */
#include <reef/map.h>
#include <stdio.h>

static int show(void *context, const struct reef_map_entry *entry)
{
	(void)context;
	printf("%.*s: %zu bytes\n", (int)entry->key_size,
	       (const char *)entry->key, entry->value_size);
	return 0;
}

/* Every key, 100 groups of about 15 at a time; the cursor is 0 at the end. */
static int show_all(struct reef_map *map)
{
	uint64_t cursor = 0;
	int rc;

	do
		rc = reef_map_scan_keys(map, &cursor, 100, show, NULL);
	while (!rc && cursor);
	return rc;
}

static int use(struct reef_map *map)
{
	struct reef_map_value value = {0};
	uint64_t version, now_ms;
	int64_t visits;
	int rc;

	rc = reef_map_put(map, "color", 5, "red", 3, 0, &version);
	/* This puts only if nobody has changed the key since. */
	if (!rc)
		rc = reef_map_replace(map, "color", 5, version, "blue", 4, 0,
				      NULL);
	if (!rc)
		rc = reef_map_get(map, "color", 5, &value);
	if (!rc)
		printf("color: %.*s\n", (int)value.size,
		       (const char *)value.bytes);
	/* A counter is right whoever else counts at the same time. */
	if (!rc)
		rc = reef_map_add(map, "visits", 6, 1, &visits);
	if (!rc)
		printf("visits: %lld\n", (long long)visits);
	/* This key is gone in a minute. */
	if (!rc)
		rc = reef_map_now(map, &now_ms);
	if (!rc)
		rc = reef_map_put(map, "guest", 5, "ann", 3, now_ms + 60000,
				  NULL);
	if (!rc)
		rc = show_all(map);
	reef_map_value_free(&value);
	return rc;
}

int main(void)
{
	struct reef_space_options make = {.flags = REEF_SPACE_CREATE};
	struct reef_map *map = NULL;
	struct reef_space *space;
	struct reef *reef = NULL;
	int rc = reef_open("embedded:64M", NULL, &reef);

	if (!rc)
		rc = reef_space_open(reef, "examples", &make, &space);
	if (!rc)
		rc = reef_map_open(space, "things", NULL, &map);
	if (!rc)
		rc = use(map);
	if (rc)
		fprintf(stderr, "%s\n", reef_error_text(rc));
	reef_map_close(map);
	reef_close(reef);
	return rc != 0;
}
