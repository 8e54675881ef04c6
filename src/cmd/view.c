/* view.c - see view.h. */
#include "cmd/view.h"

#include "cmd/json.h"
#include "cmd/operate.h"
#include "wire/states.h"

#include <stdio.h>

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
	reef_table_weigh(view->table, (double)row->capacity);
	reef_table_bar(view->table,
		       row->capacity ? (double)row->used / (double)row->capacity
				     : 0,
		       12);
	reef_table_weigh(view->table, (double)row->used);
	reef_table_cell(view->table, "%s", reef_table_bytes(row->used, size));
	reef_table_weigh(view->table, (double)row->used);
	reef_table_cell(view->table, "%u", row->extents);
	reef_table_weigh(view->table, row->extents);
	reef_table_cell(view->table, "%s",
			reef_node_is_gone(row->state)
				? "-"
				: reef_table_time((double)row->silent_ns, age));
	reef_table_weigh(view->table, (double)row->silent_ns);
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
	reef_table_weigh(view->table, row->number);
	reef_table_cell(view->table, "%s",
			row->name.size ? text_of(row->name, name, sizeof(name))
				       : "-");
	reef_table_cell(view->table, "%s, %s", scratch ? "scratch" : "shared",
			revocable ? "revocable" : "kept");
	reef_table_cell(view->table, "%u", row->extents);
	reef_table_weigh(view->table, row->extents);
	reef_table_cell(view->table, "%s", reef_table_bytes(row->used, size));
	reef_table_weigh(view->table, (double)row->used);
	reef_table_cell(view->table, "%s", reef_table_bytes(row->lost, size));
	reef_table_weigh(view->table, (double)row->lost);
	reef_table_cell(view->table, "%s",
			row->quota ? reef_table_bytes(row->quota, size) : "-");
	reef_table_weigh(view->table, (double)row->quota);
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

void view_say_holder(const struct view *view, FILE *out)
{
	char age[16], size[16];

	if (!view->holders)
		return;
	fprintf(out, "\nsession %08x", view->holder);
	if (view->holders > 1)
		fprintf(out, " (and %u more)", view->holders - 1);
	fprintf(out, " has held memory back for %s; %s wait\n",
		reef_table_time((double)view->holds_ns, age),
		reef_table_bytes(view->waiting, size));
}

static int show_session(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;
	struct view *view = context;
	char age[16], size[16], name[300], fabric[300];

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
	reef_table_weigh(view->table, row->pid);
	reef_table_cell(view->table, "%u", row->user);
	reef_table_weigh(view->table, (double)row->user);
	reef_table_cell(view->table, "%s",
			reef_table_time((double)row->silent_ns, age));
	reef_table_weigh(view->table, (double)row->silent_ns);
	reef_table_cell(view->table, "%s",
			reef_table_bytes(row->waiting, size));
	reef_table_weigh(view->table, (double)row->waiting);
	reef_table_cell(view->table, "%s",
			row->holds_ns
				? reef_table_time((double)row->holds_ns, age)
				: "-");
	reef_table_weigh(view->table, (double)row->holds_ns);
	reef_table_cell(view->table, "%s",
			row->fabric.size
				? text_of(row->fabric, fabric, sizeof(fabric))
				: "-");
	reef_table_end_row(view->table);
	return 0;
}

/* --- sections --- */

static const struct section {
	const char *title;
	enum reef_row_kind kind;
	int (*show)(void *context, const struct reef_row *row);
	const char *columns; /* '<' or '>' in front of each, '|' between */
} sections[VIEW_SECTIONS] = {
	[VIEW_NODES] = {"nodes", REEF_ROW_NODE, show_node,
			"<node|<state|>capacity|<use|>used|>extents|>heard|<"
			"addresses"},
	[VIEW_SPACES] = {"spaces", REEF_ROW_SPACE, show_space,
			 ">space|<name|<kind|>extents|>used|>lost|>quota"},
	[VIEW_SESSIONS] = {"sessions", REEF_ROW_SESSION, show_session,
			   ">session|<state|<program|>pid|>user|>renewed|>"
			   "waiting|>holds|<"
			   "fabric"},
};

const char *view_title(enum view_section section)
{
	return sections[section].title;
}

int view_fill(struct reef_operator *op, enum view_section section,
	      struct view *out)
{
	struct view view = {.table = operate_table(sections[section].columns)};
	int rc = reef_operator_list(op, sections[section].kind,
				    sections[section].show, &view);

	if (rc)
		view_fini(&view);
	else
		*out = view;
	return rc;
}

void view_fini(struct view *view)
{
	reef_table_destroy(view->table);
	*view = (struct view){0};
}

int view_write_section(struct reef_operator *op, enum view_section section,
		       struct reef_json *json)
{
	struct view view = {.json = json};
	int rc;

	reef_json_begin(json, sections[section].title, REEF_JSON_ARRAY);
	rc = reef_operator_list(op, sections[section].kind,
				sections[section].show, &view);
	reef_json_end(json);
	return rc;
}

/* --- extents --- */

static int write_extent(void *context, const struct reef_row *any)
{
	const struct reef_row_extent *row = &any->extent;
	struct reef_json *json = context;

	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	reef_json_number(json, "extent", row->number);
	reef_json_number(json, "space", row->space);
	reef_json_number(json, "node", row->node);
	reef_json_number(json, "epoch", row->epoch);
	reef_json_number(json, "size", row->size);
	reef_json_string(json, "state",
			 row->state == REEF_EXTENT_LIVE	    ? "live"
			 : row->state == REEF_EXTENT_MOVING ? "moving"
							    : "lost");
	reef_json_end(json);
	return 0;
}

int view_write_extents(struct reef_operator *op, struct reef_json *json)
{
	int rc;

	reef_json_begin(json, "extents", REEF_JSON_ARRAY);
	rc = reef_operator_list(op, REEF_ROW_EXTENT, write_extent, json);
	reef_json_end(json);
	return rc;
}

/* --- events --- */

static int write_events(const struct reef_answer *answer,
			struct reef_json *json)
{
	struct reef_cursor_in in = {.bytes = answer->body.rows,
				    .left = answer->body.rows_size};
	struct reef_row row;
	int rc;

	reef_json_begin(json, "events", REEF_JSON_ARRAY);
	while ((rc = reef_row_decode(&in, &row)) > 0) {
		if (row.row != REEF_ROW_EVENT)
			continue;
		reef_json_begin(json, NULL, REEF_JSON_OBJECT);
		reef_json_number(json, "event", row.event.number);
		reef_json_number(json, "age_ns", row.event.age_ns);
		reef_json_text(json, "text", row.event.text);
		reef_json_end(json);
	}
	reef_json_end(json);
	return rc;
}

int view_write_events(struct reef_operator *op, struct reef_json *json)
{
	struct reef_answer answer = {0};
	int rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);

	if (rc)
		return rc;
	rc = write_events(&answer, json);
	reef_answer_free(&answer);
	return rc;
}

int view_print_events(const struct reef_answer *answer, uint32_t most,
		      FILE *out)
{
	const struct reef_cursor_in all = {.bytes = answer->body.rows,
					   .left = answer->body.rows_size};
	struct reef_cursor_in in = all;
	struct reef_row row;
	uint32_t left = 0;
	char age[16];
	int rc;

	while (reef_row_decode(&in, &row) > 0)
		left += row.row == REEF_ROW_EVENT;
	in = all;
	while ((rc = reef_row_decode(&in, &row)) > 0)
		if (row.row == REEF_ROW_EVENT && left-- <= most)
			fprintf(out, "  %10s ago  %.*s\n",
				reef_table_time((double)row.event.age_ns, age),
				(int)row.event.text.size, row.event.text.bytes);
	return rc;
}

/* --- the pool --- */

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

int view_write_answer(struct reef_operator *op,
		      const struct reef_answer *answer, struct reef_json *json)
{
	int rc = 0;

	reef_json_begin(json, NULL, REEF_JSON_OBJECT);
	write_pool(json, op, &answer->body.reply.status);
	for (uint32_t i = 0; !rc && i < VIEW_SECTIONS; i++)
		rc = view_write_section(op, (enum view_section)i, json);
	if (!rc)
		rc = write_events(answer, json);
	reef_json_end(json);
	return rc;
}

int view_write_pool(struct reef_operator *op, struct reef_json *json)
{
	struct reef_answer answer = {0};
	int rc;

	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (rc)
		return rc;
	rc = view_write_answer(op, &answer, json);
	reef_answer_free(&answer);
	return rc;
}

void view_print_pool(struct reef_operator *op,
		     const struct reef_reply_status *status, FILE *out)
{
	char time[16];

	fprintf(out,
		"pool %016llx, epoch %llu; the broker (start %llu) has been up "
		"for %s; asked over %s\n",
		(unsigned long long)status->pool,
		(unsigned long long)status->pool_epoch,
		(unsigned long long)status->broker_epoch,
		reef_table_time((double)status->uptime_ns, time),
		reef_operator_fabric(op));
	if (status->stuck)
		fprintf(out,
			"What ended sessions left is stuck in %u cases: nobody "
			"could recover it.\n",
			status->stuck);
}
