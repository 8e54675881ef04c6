/* tree.c - `reef tree`: the ordered maps of a space, from the shell. */
#include "cmd/object/objects.h"
#include "cmd/print/json.h"

#include <errno.h>
#include <reef/tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: reef tree list SPACE [--json]\n"
	"       reef tree create SPACE TREE\n"
	"       reef tree get SPACE TREE KEY [--raw]\n"
	"       reef tree put SPACE TREE KEY [VALUE] [--expire TIME]\n"
	"       reef tree delete SPACE TREE KEY\n"
	"       reef tree scan SPACE TREE [--from KEY] [--to KEY] [--limit N]\n"
	"                      [--reverse] [--values] [--json]\n"
	"       reef tree first|last SPACE TREE [--from KEY] [--to KEY]\n"
	"                      [--values] [--json]\n"
	"       reef tree floor|ceiling SPACE TREE KEY [--values] [--json]\n"
	"       reef tree count SPACE TREE [--from KEY] [--to KEY]\n"
	"       reef tree delete-range SPACE TREE [--from KEY] [--to KEY]\n"
	"                      [--limit N]\n"
	"       reef tree stats SPACE TREE [--json]\n"
	"       reef tree drop SPACE TREE\n\n"
	"Ordered maps in the memory of the pool. `put` makes the tree if there "
	"is\n"
	"none, and reads the value from standard input if VALUE is left out. "
	"Keys are\n"
	"in the order of their bytes; a range has the keys from --from on, "
	"below --to.\n"
	"`scan` prints keys, a line each, with \\xHH for bytes that are not "
	"printable;\n"
	"`floor` finds the greatest key up to KEY, `ceiling` the least from "
	"it on.\n";

struct wish {
	struct objects_wish asked; /* words: VERB SPACE TREE KEY VALUE */
	const char *expire, *from, *to, *limit;
	bool raw, reverse, values;
};

static const struct wish *wish_of(const struct objects_wish *asked)
{
	return (const struct wish *)asked;
}

/* --- keys and values --- */

static int get_key(void *tree, const struct objects_wish *asked)
{
	struct reef_map_value value = {0};
	int rc = reef_tree_get(tree, asked->words[3], strlen(asked->words[3]),
			       &value);

	if (!rc)
		objects_print_value(value.bytes, value.size,
				    wish_of(asked)->raw);
	reef_map_value_free(&value);
	return rc;
}

static int put_key(void *tree, const struct objects_wish *asked)
{
	const char *key = asked->words[3], *expire = wish_of(asked)->expire;
	struct objects_value value = {0};
	struct reef_tree_options limits;
	uint64_t now_ms = 0;
	int rc = expire ? reef_tree_now(tree, &now_ms) : 0;

	reef_tree_limits(tree, &limits);
	if (!rc)
		rc = objects_take_value("tree", asked, expire, now_ms,
					limits.value_max, &value);
	operate_tell_waiting("tree");
	if (!rc)
		rc = reef_tree_put(tree, key, strlen(key), value.bytes,
				   value.size, value.expires_ms, NULL);
	free(value.input);
	return rc;
}

static int remove_key(void *tree, const struct objects_wish *asked)
{
	return reef_tree_delete(tree, asked->words[3], strlen(asked->words[3]),
				0);
}

/* --- ranges --- */

#define ENOUGH 1 /* what show_entry returns to end a scan */

/* Make the range of the options. 0, or 2: an error was printed. A range that
 * goes backward has no end: show_entry ends it below --from, which a range of
 * the library cannot include. */
static int range_of(const struct wish *wish, bool reverse,
		    struct reef_range *range)
{
	const char *from = reverse ? wish->to : wish->from;
	const char *to = reverse ? NULL : wish->to;
	char *end = "";

	*range = (struct reef_range){
		.from = from,
		.from_size = from ? strlen(from) : 0,
		.to = to,
		.to_size = to ? strlen(to) : 0,
		.flags = reverse ? REEF_RANGE_BACKWARD | REEF_RANGE_AFTER : 0,
	};
	errno = 0;
	if (wish->limit)
		range->limit = strtoull(wish->limit, &end, 10);
	if (wish->limit && (errno || *end || !range->limit ||
			    wish->limit[0] < '0' || wish->limit[0] > '9'))
		return cmd_usage_error("tree", "\"%.40s\" is not a number",
				       wish->limit);
	return 0;
}

static bool is_below(const void *key, size_t size, const char *bound)
{
	size_t length = strlen(bound);
	int order = memcmp(key, bound, size < length ? size : length);

	return order < 0 || (order == 0 && size < length);
}

static int show_entry(void *context, const struct reef_map_entry *entry)
{
	const struct wish *wish = context;

	if (wish->reverse && wish->from &&
	    is_below(entry->key, entry->key_size, wish->from))
		return ENOUGH;
	objects_print_entry(&wish->asked, wish->values, entry);
	return 0;
}

static int scan_range(void *tree, const struct objects_wish *asked)
{
	const struct wish *wish = wish_of(asked);
	struct reef_range range;
	int rc = range_of(wish, wish->reverse, &range);

	if (rc)
		return rc;
	if (!asked->json && !wish->values)
		range.flags |= REEF_RANGE_KEYS;
	rc = reef_tree_scan(tree, &range, show_entry, (void *)(uintptr_t)wish);
	return rc == ENOUGH ? 0 : rc;
}

/* Print the first key of a range, unless it is below --from. */
static int show_first(struct reef_tree *tree, const struct wish *wish,
		      const struct reef_range *range)
{
	struct reef_map_value key = {0}, value = {0};
	int rc = reef_tree_first(tree, range, &key, &value);

	if (!rc && wish->from && is_below(key.bytes, key.size, wish->from))
		rc = -ENOENT;
	if (!rc)
		objects_print_entry(&wish->asked, wish->values,
				    &(const struct reef_map_entry){
					    .key = key.bytes,
					    .key_size = key.size,
					    .value = value.bytes,
					    .value_size = value.size});
	reef_map_value_free(&key);
	reef_map_value_free(&value);
	return rc == -ENOENT ? operate_say("tree", "%s has no such key",
					   wish->asked.words[2])
			     : rc;
}

static int show_end(void *tree, const struct objects_wish *asked)
{
	const struct wish *wish = wish_of(asked);
	struct reef_range range;
	int rc = range_of(wish, !strcmp(asked->words[0], "last"), &range);

	return rc ? rc : show_first(tree, wish, &range);
}

static int show_near(void *tree, const struct objects_wish *asked)
{
	bool is_floor = !strcmp(asked->words[0], "floor");
	const struct reef_range range = {
		.from = asked->words[3],
		.from_size = strlen(asked->words[3]),
		.flags = is_floor ? REEF_RANGE_BACKWARD : 0,
	};

	return show_first(tree, wish_of(asked), &range);
}

static int count_range(void *tree, const struct objects_wish *asked)
{
	struct reef_range range;
	uint64_t keys;
	int rc = range_of(wish_of(asked), false, &range);

	if (!rc)
		rc = reef_tree_count(tree, &range, &keys);
	if (!rc)
		printf("%llu\n", (unsigned long long)keys);
	return rc;
}

static int delete_range(void *tree, const struct objects_wish *asked)
{
	const struct wish *wish = wish_of(asked);
	struct reef_range range;
	uint64_t deleted = 0;
	int rc;

	if (!wish->from && !wish->to)
		return cmd_usage_error("tree", "say --from or --to; `reef tree "
					       "drop` removes all");
	rc = range_of(wish, false, &range);
	if (rc)
		return rc;
	rc = reef_tree_delete_range(tree, &range, &deleted);
	printf("%llu\n", (unsigned long long)deleted);
	return rc;
}

/* --- whole trees --- */

static int do_nothing(void *tree, const struct objects_wish *asked)
{
	(void)tree;
	(void)asked;
	return 0;
}

static void print_json(const char *name, const struct reef_tree_stats *stats)
{
	struct reef_json json = {.stream = stdout};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "tree", name);
	reef_json_number(&json, "keys", stats->keys);
	reef_json_number(&json, "nodes", stats->nodes);
	reef_json_number(&json, "node_bytes", stats->node_bytes);
	reef_json_number(&json, "height", stats->height);
	reef_json_number(&json, "key_max", stats->key_max);
	reef_json_number(&json, "value_max", stats->value_max);
	reef_json_end(&json);
}

static int print_stats(void *tree, const struct objects_wish *asked)
{
	struct reef_tree_stats found;
	char text[16];
	int rc = reef_tree_stats(tree, &found);

	if (rc)
		return rc;
	if (asked->json) {
		print_json(asked->words[2], &found);
		return 0;
	}
	printf("keys         %llu\n", (unsigned long long)found.keys);
	printf("nodes        %llu\n", (unsigned long long)found.nodes);
	printf("in nodes     %s\n", reef_table_bytes(found.node_bytes, text));
	printf("height       %u\n", found.height);
	printf("longest key  %s\n", reef_table_bytes(found.key_max, text));
	printf("     value   %s\n", reef_table_bytes(found.value_max, text));
	return 0;
}

static int list_tree(void *tree, const char *name, struct reef_table *table)
{
	struct reef_tree_stats found;
	char text[16];
	int rc = reef_tree_stats(tree, &found);

	if (rc)
		return rc;
	if (!table) {
		print_json(name, &found);
		return 0;
	}
	reef_table_cell(table, "%s", name);
	reef_table_cell(table, "%llu", (unsigned long long)found.keys);
	reef_table_cell(table, "%llu", (unsigned long long)found.nodes);
	reef_table_cell(table, "%s", reef_table_bytes(found.node_bytes, text));
	reef_table_cell(table, "%u", found.height);
	reef_table_end_row(table);
	return 0;
}

/* --- the kind --- */

static int open_tree(struct reef_space *space, const struct objects_wish *asked,
		     const char *name, bool makes, void **out)
{
	const struct reef_tree_options options = {
		.flags = makes ? 0 : REEF_TREE_EXISTING,
	};
	struct reef_tree *tree;
	int rc = reef_tree_open(space, name, &options, &tree);

	(void)asked;
	if (!rc)
		*out = tree;
	return rc;
}

static void close_tree(void *tree)
{
	reef_tree_close(tree);
}

static int explain_error(const struct objects_wish *asked, int rc)
{
	return objects_explain_key("tree", asked, rc);
}

static const struct objects_verb verbs[] = {
	{"list", "SPACE", 2, 2, "json", OBJECTS_READS, NULL},
	{"create", "SPACE TREE", 3, 3, NULL, OBJECTS_MAKES, do_nothing},
	{"get", "SPACE TREE KEY", 4, 4, "raw", OBJECTS_READS, get_key},
	{"put", "SPACE TREE KEY [VALUE]", 4, 5, "expire", OBJECTS_MAKES,
	 put_key},
	{"delete", "SPACE TREE KEY", 4, 4, NULL, OBJECTS_CHANGES, remove_key},
	{"scan", "SPACE TREE", 3, 3, "from to limit reverse values json",
	 OBJECTS_READS, scan_range},
	{"first", "SPACE TREE", 3, 3, "from to values json", OBJECTS_READS,
	 show_end},
	{"last", "SPACE TREE", 3, 3, "from to values json", OBJECTS_READS,
	 show_end},
	{"floor", "SPACE TREE KEY", 4, 4, "values json", OBJECTS_READS,
	 show_near},
	{"ceiling", "SPACE TREE KEY", 4, 4, "values json", OBJECTS_READS,
	 show_near},
	{"count", "SPACE TREE", 3, 3, "from to", OBJECTS_READS, count_range},
	{"delete-range", "SPACE TREE", 3, 3, "from to limit", OBJECTS_CHANGES,
	 delete_range},
	{"stats", "SPACE TREE", 3, 3, "json", OBJECTS_READS, print_stats},
	{"drop", "SPACE TREE", 3, 3, NULL, OBJECTS_CHANGES, NULL},
	{0},
};

static const struct objects_kind trees = {
	.name = "tree",
	.usage = usage,
	.verbs = verbs,
	.columns = "<tree|>keys|>nodes|>in nodes|>height",
	.open = open_tree,
	.close = close_tree,
	.drop = reef_tree_drop,
	.list = list_tree,
	.explain = explain_error,
};

int cmd_tree(int argc, char **argv)
{
	struct wish wish = {0};
	const struct reef_config_flag flags[] = {
		{"from", "KEY", "the least key of a range; the first of all",
		 NULL, &wish.from},
		{"to", "KEY", "what a range ends before; behind the last", NULL,
		 &wish.to},
		{"limit", "N", "scan, delete-range: so many at most; all", NULL,
		 &wish.limit},
		{"reverse", NULL, "scan: from the greatest key to the least",
		 &wish.reverse, NULL},
		{"values", NULL, "print the value behind each key, and a tab",
		 &wish.values, NULL},
		{"expire", "TIME", "put: the key expires after that; never",
		 NULL, &wish.expire},
		{"json", NULL, "print a line of JSON for each",
		 &wish.asked.json, NULL},
		{"raw", NULL, "get: no newline after the value", &wish.raw,
		 NULL},
		{0},
	};

	return objects_main(&trees, argc, argv, flags, &wish.asked);
}
