/* map.c - `reef map`: the maps of a space, from the shell. */
#include "cmd/object/explain.h"
#include "cmd/object/objects.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef map list SPACE [--json]\n"
	"       reef map create SPACE MAP [--size SIZE] [--evict lru|lfu]\n"
	"       reef map get SPACE MAP KEY [--raw]\n"
	"       reef map put SPACE MAP KEY [VALUE] [--expire TIME]\n"
	"       reef map delete SPACE MAP KEY\n"
	"       reef map scan SPACE MAP [PREFIX] [--values] [--json]\n"
	"       reef map count SPACE MAP\n"
	"       reef map stats SPACE MAP [--json]\n"
	"       reef map explain SPACE MAP KEY [--json]\n"
	"       reef map drop SPACE MAP\n\n"
	"Hash maps in the memory of the pool. `put` makes the map if there is\n"
	"none, and reads the value from standard input if VALUE is left out.\n"
	"`get` prints the value and a newline; `scan` prints keys, a line "
	"each,\n"
	"with \\xHH for bytes that are not printable.\n";

static const char *const evictions[] = {"keep", "lru", "lfu"};

struct wish {
	struct objects_wish asked; /* words: VERB SPACE MAP KEY VALUE */
	const char *expire, *size, *evict;
	bool raw, values;
};

static const struct wish *wish_of(const struct objects_wish *asked)
{
	return (const struct wish *)asked;
}

/* --- keys and values --- */

static int get_key(void *map, const struct objects_wish *asked)
{
	struct reef_map_value value = {0};
	int rc = reef_map_get(map, asked->words[3], strlen(asked->words[3]),
			      &value);

	if (!rc)
		objects_print_value(value.bytes, value.size,
				    wish_of(asked)->raw);
	reef_map_value_free(&value);
	return rc;
}

static int put_key(void *map, const struct objects_wish *asked)
{
	const char *key = asked->words[3], *expire = wish_of(asked)->expire;
	struct objects_value value = {0};
	struct reef_map_options limits;
	uint64_t now_ms = 0;
	int rc = expire ? reef_map_now(map, &now_ms) : 0;

	reef_map_limits(map, &limits);
	if (!rc)
		rc = objects_take_value("map", asked, expire, now_ms,
					limits.value_max, &value);
	operate_tell_waiting("map");
	if (!rc)
		rc = reef_map_put(map, key, strlen(key), value.bytes,
				  value.size, value.expires_ms, NULL);
	free(value.input);
	return rc;
}

static int show_entry(void *context, const struct reef_map_entry *entry)
{
	const struct wish *wish = context;
	const char *prefix = wish->asked.words[3] ? wish->asked.words[3] : "";

	if (strlen(prefix) <= entry->key_size &&
	    !memcmp(entry->key, prefix, strlen(prefix)))
		objects_print_entry(&wish->asked, wish->values, entry);
	return 0;
}

static int scan_entries(void *map, const struct objects_wish *asked)
{
	const struct wish *wish = wish_of(asked);
	bool keys_only = !asked->json && !wish->values;
	uint64_t cursor = 0;
	int rc;

	do
		rc = (keys_only ? reef_map_scan_keys : reef_map_scan)(
			map, &cursor, 100, show_entry, (void *)(uintptr_t)wish);
	while (!rc && cursor);
	return rc;
}

/* --- whole maps --- */

/* The map was made by opening it. If it was there already, it must have the
 * limits that were asked for. */
static int check_limits(void *map, const struct objects_wish *asked)
{
	const struct wish *wish = wish_of(asked);
	struct reef_map_options limits;
	uint64_t size = 0;

	reef_map_limits(map, &limits);
	if (wish->size && operate_size("map", wish->size, &size))
		return 1;
	if ((!wish->size || size == limits.size_max) &&
	    (!wish->evict || !strcmp(wish->evict, evictions[limits.eviction])))
		return 0;
	return operate_say("map",
			   "%.80s is there already, with other limits: see "
			   "`reef map stats`",
			   asked->words[2]);
}

static int print_count(void *map, const struct objects_wish *asked)
{
	uint64_t keys;
	int rc = reef_map_count(map, &keys);

	(void)asked;
	if (!rc)
		printf("%llu\n", (unsigned long long)keys);
	return rc;
}

static void print_json(const char *name, const struct reef_map_stats *stats)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "map", name);
	reef_json_number(&json, "keys", stats->keys);
	reef_json_number(&json, "slots", stats->slots);
	reef_json_number(&json, "subtables", stats->subtables);
	reef_json_number(&json, "depth", stats->depth);
	reef_json_number(&json, "table_bytes", stats->table_bytes);
	reef_json_number(&json, "entry_bytes", stats->entry_bytes);
	reef_json_number(&json, "size_max", stats->size_max);
	reef_json_string(&json, "eviction", evictions[stats->eviction]);
	reef_json_number(&json, "key_max", stats->key_max);
	reef_json_number(&json, "value_max", stats->value_max);
	reef_json_end(&json);
}

static int print_stats(void *map, const struct objects_wish *asked)
{
	struct reef_map_stats found;
	char text[16];
	int rc = reef_map_stats(map, &found);

	if (rc)
		return rc;
	if (asked->json) {
		print_json(asked->words[2], &found);
		return 0;
	}
	printf("keys         %llu\n", (unsigned long long)found.keys);
	printf("slots        %llu\n", (unsigned long long)found.slots);
	printf("subtables    %u\n", found.subtables);
	printf("depth        %u\n", found.depth);
	printf("table        %s\n", reef_table_bytes(found.table_bytes, text));
	if (found.size_max) {
		printf("entries      %s\n",
		       reef_table_bytes(found.entry_bytes, text));
		printf("at most      %s\n",
		       reef_table_bytes(found.size_max, text));
	}
	printf("eviction     %s\n", evictions[found.eviction]);
	printf("longest key  %s\n", reef_table_bytes(found.key_max, text));
	printf("     value   %s\n", reef_table_bytes(found.value_max, text));
	return 0;
}

static int remove_key(void *map, const struct objects_wish *asked)
{
	return reef_map_delete(map, asked->words[3], strlen(asked->words[3]),
			       0);
}

static int list_map(void *map, const char *name, struct reef_table *table)
{
	struct reef_map_stats found;
	char text[16];
	int rc = reef_map_stats(map, &found);

	if (rc)
		return rc;
	if (!table) {
		print_json(name, &found);
		return 0;
	}
	reef_table_cell(table, "%s", name);
	reef_table_cell(table, "%llu", (unsigned long long)found.keys);
	reef_table_cell(table, "%s", reef_table_bytes(found.table_bytes, text));
	reef_table_cell(table, "%s",
			found.size_max ? reef_table_bytes(found.size_max, text)
				       : "-");
	reef_table_cell(table, "%s", evictions[found.eviction]);
	reef_table_end_row(table);
	return 0;
}

/* --- the kind --- */

static int open_map(struct reef_space *space, const struct objects_wish *asked,
		    const char *name, bool makes, void **out)
{
	const struct wish *wish = wish_of(asked);
	struct reef_map_options options = {
		.flags = makes ? 0 : REEF_MAP_EXISTING,
	};
	struct reef_map *map;
	int rc;

	if (wish->size && operate_size("map", wish->size, &options.size_max))
		return 2;
	for (uint32_t i = 0; wish->evict; i++) {
		if (i == REEF_MAP_EVICTIONS)
			return cmd_usage_error("map",
					       "--evict is keep, lru or lfu");
		if (!strcmp(wish->evict, evictions[i])) {
			options.eviction = (enum reef_map_eviction)i;
			break;
		}
	}
	rc = reef_map_open(space, name, &options, &map);
	if (!rc)
		*out = map;
	return rc;
}

static void close_map(void *map)
{
	reef_map_close(map);
}

static int explain_error(const struct objects_wish *asked, int rc)
{
	return objects_explain_key("map", asked, rc);
}

static const struct objects_verb verbs[] = {
	{"list", "SPACE", 2, 2, "json", OBJECTS_READS, NULL},
	{"create", "SPACE MAP", 3, 3, "size evict", OBJECTS_MAKES,
	 check_limits},
	{"get", "SPACE MAP KEY", 4, 4, "raw", OBJECTS_READS, get_key},
	{"put", "SPACE MAP KEY [VALUE]", 4, 5, "expire", OBJECTS_MAKES,
	 put_key},
	{"delete", "SPACE MAP KEY", 4, 4, NULL, OBJECTS_CHANGES, remove_key},
	{"scan", "SPACE MAP [PREFIX]", 3, 4, "values json", OBJECTS_READS,
	 scan_entries},
	{"count", "SPACE MAP", 3, 3, NULL, OBJECTS_READS, print_count},
	{"stats", "SPACE MAP", 3, 3, "json", OBJECTS_READS, print_stats},
	{"explain", "SPACE MAP KEY", 4, 4, "json", OBJECTS_READS, explain_key},
	{"drop", "SPACE MAP", 3, 3, NULL, OBJECTS_CHANGES, NULL},
	{0},
};

static const struct objects_kind maps = {
	.name = "map",
	.usage = usage,
	.verbs = verbs,
	.columns = "<map|>keys|>table|>at most|<eviction",
	.open = open_map,
	.close = close_map,
	.drop = reef_map_drop,
	.list = list_map,
	.explain = explain_error,
};

int cmd_map(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"expire", "TIME", "put: the key expires after that; never",
		 NULL, &wish.expire},
		{"size", "SIZE", "create: memory for its entries; no limit",
		 NULL, &wish.size},
		{"evict", "keep|lru|lfu",
		 "create: what goes when it is full; keep", NULL, &wish.evict},
		{"values", NULL, "scan: the value behind each key, and a tab",
		 &wish.values, NULL},
		{"json", NULL, "print a line of JSON for each",
		 &wish.asked.json, NULL},
		{"raw", NULL, "get: no newline after the value", &wish.raw,
		 NULL},
		{0},
	};

	return objects_main(&maps, argc, argv, flags, &wish.asked);
}
