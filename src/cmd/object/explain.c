/* explain.c - see explain.h. */
#include "cmd/object/explain.h"

#include "cmd/print/json.h"
#include "kv/explain.h"
#include "wire/states.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000ull
#define SILENT_NS (3 * SECOND) /* a node that is silent for longer */
#define LARGE (64u << 10)      /* a value that takes longer than a look */
#define PINS_MAX 16u
#define REASONS_MAX 10u

struct pin {
	uint32_t session;
	uint64_t holds_ns;
	char program[64];
};

struct explained {
	struct map_explanation key;
	struct reef_row_extent extent; /* number 0: it is not known */
	struct reef_row_node node;
	char node_name[64];
	uint64_t now_ms;
	struct pin pins[PINS_MAX];
	uint32_t pins_count;
	char *reasons[REASONS_MAX];
	uint32_t reasons_count;
};

/* --- asking --- */

static int take_extent(void *context, const struct reef_row *row)
{
	struct explained *all = context;
	const uint64_t at =
		all->key.is_there ? all->key.entry : all->key.subtable;

	if (row->extent.number != (uint32_t)(at >> 32))
		return 0;
	all->extent = row->extent;
	return 1;
}

static int take_node(void *context, const struct reef_row *row)
{
	struct explained *all = context;

	if (row->node.number != all->extent.node)
		return 0;
	all->node = row->node;
	snprintf(all->node_name, sizeof(all->node_name), "%.*s",
		 (int)row->node.name.size, row->node.name.bytes);
	return 1;
}

static int take_pin(void *context, const struct reef_row *row)
{
	struct explained *all = context;
	struct pin *pin = &all->pins[all->pins_count];

	if (!row->session.holds_ns || all->pins_count == PINS_MAX)
		return 0;
	pin->session = row->session.id;
	pin->holds_ns = row->session.holds_ns;
	snprintf(pin->program, sizeof(pin->program), "%.*s",
		 (int)row->session.program.size, row->session.program.bytes);
	all->pins_count++;
	return 0;
}

static int ask_broker(const struct reef_settings *settings,
		      struct explained *all)
{
	struct reef_operator *op;
	int rc = operate_connect_quietly(settings, 0, &op);

	if (rc)
		return rc;
	rc = reef_operator_list(op, REEF_ROW_EXTENT, take_extent, all);
	if (rc >= 0 && all->extent.number)
		rc = reef_operator_list(op, REEF_ROW_NODE, take_node, all);
	if (rc >= 0)
		rc = reef_operator_list(op, REEF_ROW_SESSION, take_pin, all);
	reef_operator_close(op);
	return rc < 0 ? rc : 0;
}

/* --- reasons --- */

__attribute__((format(printf, 2, 3))) static void
add_reason(struct explained *all, const char *format, ...)
{
	va_list arguments;
	char *text = NULL;

	va_start(arguments, format);
	if (all->reasons_count < REASONS_MAX &&
	    vasprintf(&text, format, arguments) >= 0)
		all->reasons[all->reasons_count++] = text;
	va_end(arguments);
}

static void find_reasons(struct explained *all)
{
	char text[16];

	if (!all->key.is_there)
		add_reason(all, "it is not there: both of its places in the "
				"table are read to say so");
	if (all->extent.state == REEF_EXTENT_MOVING)
		add_reason(all, "its memory is on its way to another node, and "
				"closed until it has arrived");
	if (reef_extent_is_lost(all->extent.state))
		add_reason(all, "its memory was lost with its node");
	if (all->extent.number && reef_node_is_gone(all->node.state))
		add_reason(all, "its node is %s",
			   operate_node_state(&all->node));
	else if (all->node.state == REEF_NODE_DRAINING)
		add_reason(all, "its node is being drained");
	if (all->node.silent_ns > SILENT_NS)
		add_reason(all, "its node has not been heard for %s",
			   reef_table_time((double)all->node.silent_ns, text));
	if (!all->key.is_near)
		add_reason(all,
			   "it is not in memory that this machine maps: a get "
			   "is one round trip, or two if the handle does not "
			   "remember where it lies");
	if (all->key.value_size > LARGE)
		add_reason(all, "its value has %s",
			   reef_table_bytes(all->key.value_size, text));
	if (all->key.expires_ms && all->key.expires_ms <= all->now_ms)
		add_reason(all, "it has expired: who reads it deletes it");
	if (all->pins_count)
		add_reason(all,
			   "%u sessions keep memory that was freed from "
			   "being used again: puts may wait for room",
			   all->pins_count);
}

/* --- telling --- */

static void write_json(const struct explained *all,
		       const struct objects_wish *asked)
{
	const uint64_t at =
		all->key.is_there ? all->key.entry : all->key.subtable;
	struct reef_json json = {.stream = stdout};
	uint32_t i;

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "space", asked->words[1]);
	reef_json_string(&json, "map", asked->words[2]);
	reef_json_string(&json, "key", asked->words[3]);
	reef_json_bool(&json, "there", all->key.is_there);
	reef_json_number(&json, "extent", at >> 32);
	reef_json_number(&json, "offset", (uint32_t)at);
	reef_json_number(&json, "depth", all->key.depth);
	reef_json_number(&json, "value_size", all->key.value_size);
	reef_json_number(&json, "expires_ms", all->key.expires_ms);
	reef_json_bool(&json, "near", all->key.is_near);
	reef_json_number(&json, "node", all->extent.node);
	reef_json_string(&json, "node_name", all->node_name);
	reef_json_string(&json, "node_state",
			 all->extent.number ? operate_node_state(&all->node)
					    : "unknown");
	reef_json_begin(&json, "pins", REEF_JSON_ARRAY);
	for (i = 0; i < all->pins_count; i++) {
		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_number(&json, "session", all->pins[i].session);
		reef_json_string(&json, "name", all->pins[i].program);
		reef_json_number(&json, "holds_ns", all->pins[i].holds_ns);
		reef_json_end(&json);
	}
	reef_json_end(&json);
	reef_json_begin(&json, "slow", REEF_JSON_ARRAY);
	for (i = 0; i < all->reasons_count; i++)
		reef_json_string(&json, NULL, all->reasons[i]);
	reef_json_end(&json);
	reef_json_end(&json);
}

static void print_text(const struct explained *all)
{
	const uint64_t at =
		all->key.is_there ? all->key.entry : all->key.subtable;
	char text[16];
	uint32_t i;

	printf("%s extent %u, at %#x, on node %s (%s)\n",
	       all->key.is_there ? "It lies in" : "It would be named in",
	       (uint32_t)(at >> 32), (uint32_t)at,
	       all->node_name[0] ? all->node_name : "-",
	       all->extent.number ? operate_node_state(&all->node) : "unknown");
	if (all->key.is_there)
		printf("value        %s\n",
		       reef_table_bytes(all->key.value_size, text));
	for (i = 0; i < all->pins_count; i++)
		printf("pinned by    session %08x, %s, for %s\n",
		       all->pins[i].session, all->pins[i].program,
		       reef_table_time((double)all->pins[i].holds_ns, text));
	for (i = 0; i < all->reasons_count; i++)
		printf("slow         %s\n", all->reasons[i]);
}

int explain_key(void *map, const struct objects_wish *asked)
{
	const char *key = asked->words[3];
	struct explained *all = calloc(1, sizeof(*all));
	int rc;

	if (!all)
		return -ENOMEM;
	rc = map_explain(map, key, strlen(key), &all->key);
	if (!rc)
		rc = reef_map_now(map, &all->now_ms);
	if (!rc)
		rc = ask_broker(asked->settings, all);
	if (!rc) {
		find_reasons(all);
		if (asked->json)
			write_json(all, asked);
		else
			print_text(all);
	}
	for (uint32_t i = 0; i < all->reasons_count; i++)
		free(all->reasons[i]);
	free(all);
	return rc;
}
