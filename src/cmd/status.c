/* status.c - `reef status`: nodes, spaces, sessions, events. */
#include "cmd/json.h"
#include "cmd/operate.h"
#include "cmd/table.h"
#include "wire/states.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND 1000000000ull

static const char usage[] =
	"usage: reef status [--json] [--watch] [OPTIONS]\n\n"
	"Shows what the pool consists of, and on which fabric each peer really "
	"is.\n";

/* Events shown to people; programs get all there are. */
#define EVENTS_SHOWN 12

struct view {
	struct reef_table *table;
	bool json, first;
	uint32_t rows;
	/* Of sessions: bytes that wait, and who holds them back for longest. */
	uint64_t waiting, holds_ns;
	uint32_t holder, holders;
};

static const char *text_of(struct reef_text text, char *room, size_t size)
{
	snprintf(room, size, "%.*s", (int)text.size, text.bytes);
	return room;
}

static void json_text(const char *key, struct reef_text text)
{
	char room[1100];

	printf(",\"%s\":", key);
	reef_json_string(stdout, text_of(text, room, sizeof(room)));
}

static void json_number(const char *key, uint64_t value)
{
	printf(",\"%s\":%llu", key, (unsigned long long)value);
}

/* Begin an object with its number; so every other member has a comma before
 * it. */
static void json_begin(struct view *view, const char *key, uint64_t value)
{
	printf("%s{\"%s\":%llu", view->first ? "" : ",", key,
	       (unsigned long long)value);
	view->first = false;
}

/* --- nodes --- */

static int show_node(void *context, const struct reef_row *any)
{
	const struct reef_row_node *row = &any->node;
	struct view *view = context;
	char size[16], age[16], name[300], addresses[1100];

	view->rows++;
	if (view->json) {
		json_begin(view, "node", row->number);
		json_text("name", row->name);
		printf(",\"state\":\"%s\"", operate_node_state(row));
		json_number("capacity", row->capacity);
		json_number("used", row->used);
		json_number("extents", row->extents);
		json_number("heard_ns", row->silent_ns);
		json_number("machine_free", row->machine_free);
		json_number("incarnation", row->incarnation);
		json_text("addresses", row->addresses);
		printf("}");
		return 0;
	}
	reef_table_cell(view->table, "%s",
			text_of(row->name, name, sizeof(name)));
	reef_table_cell(view->table, "%s", operate_node_state(row));
	reef_table_cell(view->table, "%s",
			reef_table_bytes(row->capacity, size));
	reef_table_bar(view->table,
		       row->capacity ? (double)row->used / (double)row->capacity
				     : 0,
		       12);
	reef_table_cell(view->table, "%s", reef_table_bytes(row->used, size));
	reef_table_cell(view->table, "%u", row->extents);
	reef_table_cell(view->table, "%s",
			row->state == REEF_NODE_DEAD
				? "-"
				: reef_table_time((double)row->silent_ns, age));
	reef_table_cell(view->table, "%s",
			text_of(row->addresses, addresses, sizeof(addresses)));
	reef_table_end_row(view->table);
	return 0;
}

/* --- spaces --- */

static int show_space(void *context, const struct reef_row *any)
{
	const struct reef_row_space *row = &any->space;
	struct view *view = context;
	bool scratch = row->kind == REEF_SPACE_SCRATCH;
	bool revocable = row->keeping == REEF_KEEPING_REVOCABLE;
	char size[16], name[300];

	view->rows++;
	if (view->json) {
		json_begin(view, "space", row->number);
		json_text("name", row->name);
		printf(",\"kind\":\"%s\",\"keeping\":\"%s\"",
		       scratch ? "scratch" : "shared",
		       revocable ? "revocable" : "kept");
		json_number("user", row->user);
		json_number("session", row->session);
		json_number("era", row->era);
		json_number("extents", row->extents);
		json_number("used", row->used);
		json_number("lost", row->lost);
		json_number("quota", row->quota);
		printf("}");
		return 0;
	}
	reef_table_cell(view->table, "%u", row->number);
	reef_table_cell(view->table, "%s",
			row->name.size ? text_of(row->name, name, sizeof(name))
				       : "-");
	reef_table_cell(view->table, "%s, %s", scratch ? "scratch" : "shared",
			revocable ? "revocable" : "kept");
	reef_table_cell(view->table, "%u", row->extents);
	reef_table_cell(view->table, "%s", reef_table_bytes(row->used, size));
	reef_table_cell(view->table, "%s", reef_table_bytes(row->lost, size));
	reef_table_cell(view->table, "%s",
			row->quota ? reef_table_bytes(row->quota, size) : "-");
	reef_table_end_row(view->table);
	return 0;
}

/* --- sessions --- */

static void note_holder(struct view *view, const struct reef_row_session *row)
{
	view->waiting += row->waiting;
	if (!row->holds_ns)
		return;
	view->holders++;
	if (row->holds_ns <= view->holds_ns)
		return;
	view->holds_ns = row->holds_ns;
	view->holder = row->id;
}

/* Say who keeps memory that was freed from being used again. */
static void show_holder(const struct view *view)
{
	char age[16], size[16];

	if (!view->holders)
		return;
	printf("\nsession %08x", view->holder);
	if (view->holders > 1)
		printf(" (and %u more)", view->holders - 1);
	printf(" has held memory back for %s; %s wait\n",
	       reef_table_time((double)view->holds_ns, age),
	       reef_table_bytes(view->waiting, size));
}

static int show_session(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;
	struct view *view = context;
	char age[16], size[16], name[300], fabric[300];

	view->rows++;
	note_holder(view, row);
	if (view->json) {
		json_begin(view, "session", row->id);
		printf(",\"state\":\"%s\"", operate_session_state(row->state));
		json_text("name", row->program);
		json_number("user", row->user);
		json_number("pid", row->pid);
		json_number("renewed_ns", row->silent_ns);
		json_number("waiting", row->waiting);
		json_number("holds_ns", row->holds_ns);
		json_text("fabric", row->fabric);
		printf("}");
		return 0;
	}
	reef_table_cell(view->table, "%08x", row->id);
	reef_table_cell(view->table, "%s", operate_session_text(row));
	reef_table_cell(view->table, "%s",
			row->program.size
				? text_of(row->program, name, sizeof(name))
				: "-");
	if (row->pid)
		reef_table_cell(view->table, "%u", row->pid);
	else
		reef_table_cell(view->table, "-");
	reef_table_cell(view->table, "%u", row->user);
	reef_table_cell(view->table, "%s",
			reef_table_time((double)row->silent_ns, age));
	reef_table_cell(view->table, "%s",
			reef_table_bytes(row->waiting, size));
	reef_table_cell(view->table, "%s",
			row->holds_ns
				? reef_table_time((double)row->holds_ns, age)
				: "-");
	reef_table_cell(view->table, "%s",
			row->fabric.size
				? text_of(row->fabric, fabric, sizeof(fabric))
				: "-");
	reef_table_end_row(view->table);
	return 0;
}

/* --- all of it --- */

static const struct section {
	const char *title;
	enum reef_row_kind kind;
	int (*show)(void *context, const struct reef_row *row);
	const char *columns; /* '<' or '>' in front of each, '|' between */
} sections[] = {
	{"nodes", REEF_ROW_NODE, show_node,
	 "<node|<state|>capacity|<use|>used|>extents|>heard|<addresses"},
	{"spaces", REEF_ROW_SPACE, show_space,
	 ">space|<name|<kind|>extents|>used|>lost|>quota"},
	{"sessions", REEF_ROW_SESSION, show_session,
	 ">session|<state|<program|>pid|>user|>renewed|>waiting|>holds|<"
	 "fabric"},
};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

static int show_section(struct reef_operator *op, const struct section *section,
			bool json)
{
	struct view view = {.json = json, .first = true};
	int rc;

	if (json) {
		printf(",\"%s\":[", section->title);
		rc = reef_operator_list(op, section->kind, section->show,
					&view);
		printf("]");
		return rc;
	}
	view.table = operate_table(section->columns);
	rc = reef_operator_list(op, section->kind, section->show, &view);
	if (!rc && view.rows) {
		printf("\n");
		rc = reef_table_print(view.table, stdout);
		show_holder(&view);
	} else if (!rc) {
		printf("\nno %s\n", section->title);
	}
	reef_table_destroy(view.table);
	return rc;
}

static void show_event(struct view *view, const struct reef_row_event *row)
{
	char age[16];

	if (view->json) {
		json_begin(view, "event", row->number);
		json_number("age_ns", row->age_ns);
		json_text("text", row->text);
		printf("}");
	} else {
		printf("  %10s ago  %.*s\n",
		       reef_table_time((double)row->age_ns, age),
		       (int)row->text.size, row->text.bytes);
	}
}

/* Show the events, the newest last. */
static int show_events(const struct reef_answer *answer, bool json)
{
	const struct reef_cursor_in all = {.bytes = answer->body.rows,
					   .left = answer->body.rows_size};
	struct view view = {.json = json, .first = true};
	struct reef_cursor_in in = all;
	struct reef_row row;
	uint32_t count = 0;
	int rc;

	while (reef_row_decode(&in, &row) > 0)
		count++;
	printf(json ? ",\"events\":[" : "\nevents\n");
	in = all;
	while ((rc = reef_row_decode(&in, &row)) > 0)
		if (row.row != REEF_ROW_EVENT)
			continue;
		else if (json || count - view.rows++ <= EVENTS_SHOWN)
			show_event(&view, &row.event);
	if (json)
		printf("]");
	return rc;
}

static void show_pool(struct reef_operator *op,
		      const struct reef_answer *answer, bool json)
{
	char time[16];

	if (json)
		printf("{\"pool\":\"%016llx\",\"pool_epoch\":%llu,"
		       "\"broker_epoch\":%llu,\"uptime_ns\":%llu,"
		       "\"fabric\":\"%s\",\"stuck\":%u",
		       (unsigned long long)answer->body.reply.status.pool,
		       (unsigned long long)answer->body.reply.status.pool_epoch,
		       (unsigned long long)
			       answer->body.reply.status.broker_epoch,
		       (unsigned long long)answer->body.reply.status.uptime_ns,
		       reef_operator_fabric(op),
		       answer->body.reply.status.stuck);
	else
		printf("pool %016llx, epoch %llu; the broker (start %llu) has "
		       "been up for %s; asked over %s\n",
		       (unsigned long long)answer->body.reply.status.pool,
		       (unsigned long long)answer->body.reply.status.pool_epoch,
		       (unsigned long long)
			       answer->body.reply.status.broker_epoch,
		       reef_table_time(
			       (double)answer->body.reply.status.uptime_ns,
			       time),
		       reef_operator_fabric(op));
	if (!json && answer->body.reply.status.stuck)
		printf("What ended sessions left is stuck in %u cases: nobody "
		       "could recover it.\n",
		       answer->body.reply.status.stuck);
}

static int show_all(struct reef_operator *op, bool json)
{
	struct reef_answer answer = {0};
	int rc;

	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (rc)
		return rc;
	show_pool(op, &answer, json);
	for (size_t i = 0; !rc && i < SECTIONS; i++)
		rc = show_section(op, &sections[i], json);
	if (!rc)
		rc = show_events(&answer, json);
	if (json)
		printf("}\n");
	reef_answer_free(&answer);
	return rc;
}

int cmd_status(int argc, char **argv)
{
	bool json = false, watch = false;
	const struct reef_config_flag flags[] = {
		{"json", NULL, "one line of JSON", &json, NULL},
		{"watch", NULL, "again every second, until interrupted", &watch,
		 NULL},
		{0},
	};
	const struct reef_config_input input = {.argc = argc,
						.argv = argv,
						.uses = REEF_USE_CLIENT,
						.flags = flags};
	struct reef_settings settings;
	struct reef_operator *op;
	int rc;

	setlocale(LC_CTYPE, "");
	rc = cmd_settings(&input, usage, &settings);
	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config)) {
		rc = cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				     reef_config_rest(settings.config, 0));
		reef_settings_fini(&settings);
		return rc;
	}
	rc = operate_connect(argv[0], &settings, &op);
	reef_settings_fini(&settings);
	if (rc >= 0)
		return rc;
	do {
		if (watch && !json && isatty(STDOUT_FILENO))
			printf("\033[H\033[2J");
		rc = show_all(op, json);
		if (!rc && cmd_flush())
			break;
	} while (!rc && watch && !reef_sleep(SECOND));
	reef_operator_close(op);
	return rc ? operate_failed(argv[0], "", rc) : 0;
}
