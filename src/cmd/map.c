/* map.c - `reef map`: the maps of a space, from the shell. */
#include "base/units.h"
#include "cmd/hold.h"
#include "cmd/json.h"

#include <ctype.h>
#include <errno.h>
#include <reef/map.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
	"usage: reef map list SPACE [--json]\n"
	"       reef map create SPACE MAP [--size SIZE] [--evict lru|lfu]\n"
	"       reef map get SPACE MAP KEY [--raw]\n"
	"       reef map put SPACE MAP KEY [VALUE] [--expire TIME]\n"
	"       reef map delete SPACE MAP KEY\n"
	"       reef map scan SPACE MAP [PREFIX]\n"
	"       reef map count SPACE MAP\n"
	"       reef map stats SPACE MAP [--json]\n"
	"       reef map drop SPACE MAP\n\n"
	"Hash maps in the memory of the pool. `put` makes the map if there is\n"
	"none, and reads the value from standard input if VALUE is left out.\n"
	"`get` prints the value and a newline; `scan` prints keys, a line "
	"each,\n"
	"with \\xHH for bytes that are not printable.\n";

static const char *const evictions[] = {"keep", "lru", "lfu"};

struct wish {
	const char *words[5]; /* VERB SPACE MAP KEY VALUE */
	uint32_t count;
	const char *expire, *size, *evict;
	bool json, raw;
};

/* --- keys and values --- */

static int get_key(struct reef_map *map, const struct wish *wish)
{
	struct reef_map_value value = {0};
	int rc = reef_map_get(map, wish->words[3], strlen(wish->words[3]),
			      &value);

	if (!rc) {
		fwrite(value.bytes, 1, value.size, stdout);
		if (!wish->raw)
			putchar('\n');
	}
	reef_map_value_free(&value);
	return rc;
}

/* Read all of standard input. 1: an error was printed. */
static int read_input(size_t max, char **out, size_t *size)
{
	size_t room = 65536, got = 0, more;
	char *bytes = NULL, *larger;

	do {
		larger = realloc(bytes, room);
		if (!larger) {
			free(bytes);
			return -ENOMEM;
		}
		bytes = larger;
		more = fread(bytes + got, 1, room - got, stdin);
		got += more;
		if (got == room)
			room *= 2;
	} while (more && got <= max);
	if (ferror(stdin) || got > max) {
		free(bytes);
		return operate_say("map", ferror(stdin)
						  ? "cannot read the value"
						  : "the value is too long");
	}
	*out = bytes;
	*size = got;
	return 0;
}

static int put_key(struct reef_map *map, const struct wish *wish)
{
	const char *value = wish->words[4];
	size_t size = value ? strlen(value) : 0;
	struct reef_map_options limits;
	uint64_t expires_ms = 0, ns;
	char *input = NULL;
	int rc = 0;

	if (wish->expire) {
		if (reef_duration_parse(wish->expire, &ns) || !ns)
			return operate_say("map",
					   "\"%.40s\" is not a time, as 10s",
					   wish->expire);
		rc = reef_map_now(map, &expires_ms);
		expires_ms += (ns + 999999) / 1000000;
	}
	if (!rc && !value) {
		reef_map_limits(map, &limits);
		rc = read_input(limits.value_max, &input, &size);
		value = input;
	}
	operate_tell_waiting("map");
	if (!rc)
		rc = reef_map_put(map, wish->words[3], strlen(wish->words[3]),
				  value, size, expires_ms, NULL);
	free(input);
	return rc == -EINVAL
		       ? operate_say("map", "the key or the value is longer "
					    "than this map takes")
		       : rc;
}

static int show_key(void *context, const struct reef_map_entry *entry)
{
	const char *prefix = context;
	const unsigned char *key = entry->key;

	if (strlen(prefix) > entry->key_size ||
	    memcmp(key, prefix, strlen(prefix)) != 0)
		return 0;
	for (size_t i = 0; i < entry->key_size; i++)
		if (isprint(key[i]) && key[i] != '\\')
			putchar(key[i]);
		else
			printf("\\x%02x", key[i]);
	putchar('\n');
	return 0;
}

static int scan_keys(struct reef_map *map, const struct wish *wish)
{
	const char *prefix = wish->words[3] ? wish->words[3] : "";
	uint64_t cursor = 0;
	int rc;

	do
		rc = reef_map_scan_keys(map, &cursor, 100, show_key,
					(void *)(uintptr_t)prefix);
	while (!rc && cursor);
	return rc;
}

/* --- whole maps --- */

/* The map was made by opening it. If it was there already, it must have the
 * limits that were asked for. */
static int check_limits(struct reef_map *map, const struct wish *wish)
{
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
			   wish->words[2]);
}

static int print_count(struct reef_map *map, const struct wish *wish)
{
	uint64_t keys;
	int rc = reef_map_count(map, &keys);

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

static int print_stats(struct reef_map *map, const struct wish *wish)
{
	struct reef_map_stats found;
	char text[16];
	int rc = reef_map_stats(map, &found);

	if (rc)
		return rc;
	if (wish->json) {
		print_json(wish->words[2], &found);
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

static int remove_key(struct reef_map *map, const struct wish *wish)
{
	return reef_map_delete(map, wish->words[3], strlen(wish->words[3]), 0);
}

struct list {
	struct reef_space *space;
	struct reef_table *table; /* NULL: JSON */
};

/* List a name of the space if it is a map; names of other things, and maps that
 * are lost, are passed over. */
static int list_if_map(void *context, const char *name)
{
	const struct reef_map_options options = {.flags = REEF_MAP_EXISTING};
	struct list *list = context;
	struct reef_map_stats found;
	struct reef_map *map;
	char text[16];
	int rc = reef_map_open(list->space, name, &options, &map);

	if (rc == -EEXIST || rc == -ENOENT || rc == -REEF_ELOST ||
	    rc == -REEF_EVERSION || rc == -EFAULT)
		return 0;
	if (rc)
		return rc;
	rc = reef_map_stats(map, &found);
	reef_map_close(map);
	if (rc)
		return rc == -REEF_EDROPPED ? 0 : rc;
	if (!list->table) {
		print_json(name, &found);
		return 0;
	}
	reef_table_cell(list->table, "%s", name);
	reef_table_cell(list->table, "%llu", (unsigned long long)found.keys);
	reef_table_cell(list->table, "%s",
			reef_table_bytes(found.table_bytes, text));
	reef_table_cell(list->table, "%s",
			found.size_max ? reef_table_bytes(found.size_max, text)
				       : "-");
	reef_table_cell(list->table, "%s", evictions[found.eviction]);
	reef_table_end_row(list->table);
	return 0;
}

static int list_maps(struct reef_space *space, const struct wish *wish)
{
	struct list view = {.space = space};
	int rc;

	if (!wish->json)
		view.table =
			operate_table("<map|>keys|>table|>at most|<eviction");
	rc = hold_each_name(space, list_if_map, &view);
	if (!rc && view.table)
		rc = reef_table_print(view.table, stdout);
	reef_table_destroy(view.table);
	return rc;
}

/* --- verbs --- */

enum option { EXPIRE = 1, SIZE = 2, EVICT = 4, JSON = 8, RAW = 16 };

static const struct verb_form {
	const char *name, *takes;
	uint32_t least, most; /* words, with the verb */
	uint32_t options;     /* that it takes */
	bool makes;	      /* make the map if there is none */
	int (*run)(struct reef_map *map, const struct wish *wish);
} verbs[] = {
	{"list", "SPACE", 2, 2, JSON, false, NULL},
	{"create", "SPACE MAP", 3, 3, SIZE | EVICT, true, check_limits},
	{"get", "SPACE MAP KEY", 4, 4, RAW, false, get_key},
	{"put", "SPACE MAP KEY [VALUE]", 4, 5, EXPIRE, true, put_key},
	{"delete", "SPACE MAP KEY", 4, 4, 0, false, remove_key},
	{"scan", "SPACE MAP [PREFIX]", 3, 4, 0, false, scan_keys},
	{"count", "SPACE MAP", 3, 3, 0, false, print_count},
	{"stats", "SPACE MAP", 3, 3, JSON, false, print_stats},
	{"drop", "SPACE MAP", 3, 3, 0, false, NULL},
	{0},
};

static const struct verb_form *verb_of(const struct wish *wish)
{
	const struct verb_form *verb = verbs;

	while (verb->name && strcmp(verb->name, wish->words[0]) != 0)
		verb++;
	return verb->name ? verb : NULL;
}

/* Check the words. -1: they are a verb and what it takes; otherwise the exit
 * status. */
static int check_words(const struct wish *wish)
{
	const struct verb_form *verb;
	uint32_t given = (wish->expire ? EXPIRE : 0) | (wish->size ? SIZE : 0) |
			 (wish->evict ? EVICT : 0) | (wish->json ? JSON : 0) |
			 (wish->raw ? RAW : 0);

	if (!wish->count)
		return cmd_usage_error("map", "a verb is missing: list, "
					      "create, get, put, delete, scan, "
					      "count, stats or drop");
	verb = verb_of(wish);
	if (!verb)
		return cmd_usage_error("map", "there is no `reef map %.40s`",
				       wish->words[0]);
	if (wish->count < verb->least || wish->count > verb->most)
		return cmd_usage_error("map", "%s takes %s", verb->name,
				       verb->takes);
	if (given & ~verb->options)
		return cmd_usage_error("map", "%s does not take that option",
				       verb->name);
	return -1;
}

/* Fill in the options to open the map with. -1: go on; otherwise the exit
 * status. */
static int options_of(const struct wish *wish, bool makes,
		      struct reef_map_options *options)
{
	if (!makes)
		options->flags = REEF_MAP_EXISTING;
	if (wish->size && operate_size("map", wish->size, &options->size_max))
		return 1;
	for (uint32_t i = 0; wish->evict; i++) {
		if (i == REEF_MAP_EVICTIONS)
			return cmd_usage_error("map",
					       "--evict is keep, lru or lfu");
		if (!strcmp(wish->evict, evictions[i])) {
			options->eviction = (enum reef_map_eviction)i;
			break;
		}
	}
	return -1;
}

/* is_open: the map as a whole is there. */
static int report_error(const struct wish *wish, int rc, bool is_open)
{
	const char *key = wish->words[3];

	if (rc >= 0)
		return rc;
	if (rc == -ENOENT && key)
		return operate_say("map", "there is no key \"%.80s\" in %s",
				   key, wish->words[2]);
	if (rc == -EEXIST)
		return operate_say("map", "\"%.80s\" is not a map",
				   wish->words[2]);
	if (rc == -EINVAL && wish->words[2])
		return operate_say("map", "\"%.80s\" is not a name for a map",
				   wish->words[2]);
	if (rc == -REEF_ELOST && is_open)
		return operate_say("map",
				   "%.80s: the node that lent this part of its "
				   "memory died, or was started anew",
				   wish->words[2]);
	if (rc == -REEF_ELOST && wish->words[2])
		return operate_say("map",
				   "%.80s: the node that lent its memory died, "
				   "or was started anew; `reef map drop` "
				   "forgets it",
				   wish->words[2]);
	return operate_failed(
		"map", wish->words[2] ? wish->words[2] : wish->words[1], rc);
}

static int run_verb(struct reef_space *space, const struct wish *wish)
{
	const struct verb_form *verb = verb_of(wish);
	struct reef_map_options options = {0};
	struct reef_map *map = NULL;
	int rc;

	if (!strcmp(verb->name, "list"))
		return report_error(wish, list_maps(space, wish), false);
	rc = options_of(wish, verb->makes, &options);
	if (rc >= 0)
		return rc;
	if (!strcmp(verb->name, "drop"))
		rc = reef_map_drop(space, wish->words[2]);
	else
		rc = reef_map_open(space, wish->words[2], &options, &map);
	operate_tell_waiting(NULL);
	if (rc == -ENOENT)
		return operate_say("map", "there is no map \"%.80s\" in %s",
				   wish->words[2], wish->words[1]);
	if (rc || !strcmp(verb->name, "drop"))
		return report_error(wish, rc, false);
	rc = verb->run ? verb->run(map, wish) : 0;
	reef_map_close(map);
	return report_error(wish, rc, true);
}

static int open_and_run(const struct reef_settings *settings,
			const struct wish *wish)
{
	struct reef_space *space;
	struct reef *reef;
	int rc;

	operate_tell_waiting("map");
	rc = operate_open("map", settings, NULL, &reef);
	if (rc >= 0)
		return rc;
	rc = reef_space_open(reef, wish->words[1], NULL, &space);
	if (rc == -ENOENT)
		rc = operate_say("map", "there is no space \"%.80s\"",
				 wish->words[1]);
	else if (rc)
		rc = operate_failed("map", wish->words[1], rc);
	else
		rc = run_verb(space, wish);
	reef_close(reef);
	return rc;
}

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
		{"json", NULL, "print a line of JSON for each", &wish.json,
		 NULL},
		{"raw", NULL, "get: no newline after the value", &wish.raw,
		 NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	int rc;

	for (const struct verb_form *verb = verbs; verb->name; verb++)
		cmd_tell_word(verb->name, verb->takes);
	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	wish.count = reef_config_rest_count(settings.config);
	for (uint32_t i = 0; i < wish.count && i < 5; i++)
		wish.words[i] = reef_config_rest(settings.config, i);
	rc = check_words(&wish);
	if (rc < 0)
		rc = open_and_run(&settings, &wish);
	reef_settings_fini(&settings);
	return rc;
}
