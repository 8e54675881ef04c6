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
	struct reef_json *json; /* NULL: for people */
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

/* --- nodes --- */

static int show_node(void *context, const struct reef_row *any)
{
	const struct reef_row_node *row = &any->node;
	struct view *view = context;
	char size[16], age[16], name[300], addresses[1100];

	view->rows++;
	if (view->json) {
		reef_json_begin(view->json, NULL, REEF_JSON_OBJECT);
		reef_json_number(view->json, "node", row->number);
		reef_json_text(view->json, "name", row->name);
		reef_json_string(view->json, "state", operate_node_state(row));
		reef_json_number(view->json, "capacity", row->capacity);
		reef_json_number(view->json, "used", row->used);
		reef_json_number(view->json, "extents", row->extents);
		reef_json_number(view->json, "heard_ns", row->silent_ns);
		reef_json_number(view->json, "machine_free", row->machine_free);
		reef_json_number(view->json, "incarnation", row->incarnation);
		reef_json_text(view->json, "addresses", row->addresses);
		reef_json_end(view->json);
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
		reef_json_begin(view->json, NULL, REEF_JSON_OBJECT);
		reef_json_number(view->json, "space", row->number);
		reef_json_text(view->json, "name", row->name);
		reef_json_string(view->json, "kind",
				 scratch ? "scratch" : "shared");
		reef_json_string(view->json, "keeping",
				 revocable ? "revocable" : "kept");
		reef_json_number(view->json, "user", row->user);
		reef_json_number(view->json, "session", row->session);
		reef_json_number(view->json, "era", row->era);
		reef_json_number(view->json, "extents", row->extents);
		reef_json_number(view->json, "used", row->used);
		reef_json_number(view->json, "lost", row->lost);
		reef_json_number(view->json, "quota", row->quota);
		reef_json_end(view->json);
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
		reef_json_begin(view->json, NULL, REEF_JSON_OBJECT);
		reef_json_number(view->json, "session", row->id);
		reef_json_string(view->json, "state",
				 operate_session_state(row->state));
		reef_json_text(view->json, "name", row->program);
		reef_json_number(view->json, "user", row->user);
		reef_json_number(view->json, "pid", row->pid);
		reef_json_number(view->json, "renewed_ns", row->silent_ns);
		reef_json_number(view->json, "waiting", row->waiting);
		reef_json_number(view->json, "holds_ns", row->holds_ns);
		reef_json_text(view->json, "fabric", row->fabric);
		reef_json_end(view->json);
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
			struct reef_json *json)
{
	struct view view = {.json = json};
	int rc;

	if (json) {
		reef_json_begin(json, section->title, REEF_JSON_ARRAY);
		rc = reef_operator_list(op, section->kind, section->show,
					&view);
		reef_json_end(json);
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
		reef_json_begin(view->json, NULL, REEF_JSON_OBJECT);
		reef_json_number(view->json, "event", row->number);
		reef_json_number(view->json, "age_ns", row->age_ns);
		reef_json_text(view->json, "text", row->text);
		reef_json_end(view->json);
	} else {
		printf("  %10s ago  %.*s\n",
		       reef_table_time((double)row->age_ns, age),
		       (int)row->text.size, row->text.bytes);
	}
}

/* Show the events, the newest last. */
static int show_events(const struct reef_answer *answer, struct reef_json *json)
{
	const struct reef_cursor_in all = {.bytes = answer->body.rows,
					   .left = answer->body.rows_size};
	struct view view = {.json = json};
	struct reef_cursor_in in = all;
	struct reef_row row;
	uint32_t count = 0;
	int rc;

	while (reef_row_decode(&in, &row) > 0)
		count++;
	if (json)
		reef_json_begin(json, "events", REEF_JSON_ARRAY);
	else
		printf("\nevents\n");
	in = all;
	while ((rc = reef_row_decode(&in, &row)) > 0)
		if (row.row != REEF_ROW_EVENT)
			continue;
		else if (json || count - view.rows++ <= EVENTS_SHOWN)
			show_event(&view, &row.event);
	if (json)
		reef_json_end(json);
	return rc;
}

static void write_pool(struct reef_json *json, struct reef_operator *op,
		       const struct reef_reply_status *status)
{
	char pool[20];

	snprintf(pool, sizeof(pool), "%016llx",
		 (unsigned long long)status->pool);
	reef_json_string(json, "pool", pool);
	reef_json_number(json, "pool_epoch", status->pool_epoch);
	reef_json_number(json, "broker_epoch", status->broker_epoch);
	reef_json_number(json, "uptime_ns", status->uptime_ns);
	reef_json_string(json, "fabric", reef_operator_fabric(op));
	reef_json_number(json, "stuck", status->stuck);
}

static void print_pool(struct reef_operator *op,
		       const struct reef_reply_status *status)
{
	char time[16];

	printf("pool %016llx, epoch %llu; the broker (start %llu) has been up "
	       "for %s; asked over %s\n",
	       (unsigned long long)status->pool,
	       (unsigned long long)status->pool_epoch,
	       (unsigned long long)status->broker_epoch,
	       reef_table_time((double)status->uptime_ns, time),
	       reef_operator_fabric(op));
	if (status->stuck)
		printf("What ended sessions left is stuck in %u cases: nobody "
		       "could recover it.\n",
		       status->stuck);
}

static int show_all(struct reef_operator *op, bool as_json)
{
	struct reef_json writer = {.stream = stdout};
	struct reef_json *json = as_json ? &writer : NULL;
	struct reef_answer answer = {0};
	int rc;

	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (rc)
		return rc;
	if (json) {
		reef_json_begin(json, NULL, REEF_JSON_OBJECT);
		write_pool(json, op, &answer.body.reply.status);
	} else {
		print_pool(op, &answer.body.reply.status);
	}
	for (size_t i = 0; !rc && i < SECTIONS; i++)
		rc = show_section(op, &sections[i], json);
	if (!rc)
		rc = show_events(&answer, json);
	if (json)
		reef_json_end(json);
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
