/* view.c - see view.h. */
#include "cmd/view.h"

#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "wire/states.h"

#include <stdio.h>
#include <string.h>

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
		reef_json_bool(view->json, "linked", operate_is_linked(row));
		reef_json_number(view->json, "machine_free", row->machine_free);
		reef_json_number(view->json, "incarnation", row->incarnation);
		reef_json_text(view->json, "addresses", row->addresses);
		reef_json_end(view->json);
		return 0;
	}
	reef_table_cell(view->table, "%s",
			text_of(row->name, name, sizeof(name)));
	reef_table_cell(view->table, "%s", operate_node_text(row));
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

const char *view_copies(const struct reef_row_space *row,
			char text[VIEW_COPIES_SIZE])
{
	if (row->degraded)
		snprintf(text, VIEW_COPIES_SIZE, "1 of %u (%u extent%s)",
			 row->copies, row->degraded,
			 row->degraded == 1 ? "" : "s");
	else
		snprintf(text, VIEW_COPIES_SIZE, "%u", row->copies);
	return text;
}

static int show_space(void *context, const struct reef_row *any)
{
	const struct reef_row_space *row = &any->space;
	struct view *view = context;
	bool scratch = row->kind == REEF_SPACE_SCRATCH;
	bool revocable = row->keeping == REEF_KEEPING_REVOCABLE;
	char size[16], name[300], copies[VIEW_COPIES_SIZE];

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
		reef_json_number(view->json, "copies", row->copies);
		reef_json_number(view->json, "copies_had",
				 row->degraded ? 1 : row->copies);
		reef_json_number(view->json, "degraded", row->degraded);
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
	reef_table_cell(view->table, "%s", view_copies(row, copies));
	reef_table_weigh(view->table, row->degraded);
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

static void show_counts(struct reef_table *table,
			const uint64_t counts[REEF_TOLD_COUNT])
{
	const uint64_t gets = counts[REEF_TOLD_HITS] + counts[REEF_TOLD_MISSES];
	char text[16];

	reef_table_cell(table, "%llu",
			(unsigned long long)counts[REEF_TOLD_OPERATIONS]);
	reef_table_weigh(table, (double)counts[REEF_TOLD_OPERATIONS]);
	reef_table_cell(table, "%s",
			reef_table_bytes(counts[REEF_TOLD_BYTES], text));
	reef_table_weigh(table, (double)counts[REEF_TOLD_BYTES]);
	if (gets)
		reef_table_cell(table, "%.0f %%",
				100.0 * (double)counts[REEF_TOLD_HITS] /
					(double)gets);
	else
		reef_table_cell(table, "-");
	reef_table_weigh(table,
			 gets ? (double)counts[REEF_TOLD_HITS] / (double)gets
			      : -1);
	reef_table_cell(
		table, "%s",
		counts[REEF_TOLD_P99_NS]
			? reef_table_time((double)counts[REEF_TOLD_P99_NS],
					  text)
			: "-");
	reef_table_weigh(table, (double)counts[REEF_TOLD_P99_NS]);
}

/* What the counters of a session are called in JSON. */
static const char *const told[REEF_TOLD_COUNT] = {
	[REEF_TOLD_OPERATIONS] = "operations",
	[REEF_TOLD_BYTES] = "bytes",
	[REEF_TOLD_RETRIES] = "retries",
	[REEF_TOLD_DOUBTS] = "in_doubt",
	[REEF_TOLD_HITS] = "hits",
	[REEF_TOLD_MISSES] = "misses",
	[REEF_TOLD_P99_NS] = "p99_ns",
};

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
		for (uint32_t i = 0; i < REEF_TOLD_COUNT; i++)
			reef_json_number(view->json, told[i], row->counts[i]);
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
	show_counts(view->table, row->counts);
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
	[VIEW_SPACES] =
		{"spaces", REEF_ROW_SPACE, show_space,
		 ">space|<name|<kind|>extents|>used|>lost|>quota|<copies"},
	[VIEW_SESSIONS] = {"sessions", REEF_ROW_SESSION, show_session,
			   ">session|<state|<program|>pid|>user|>renewed|>"
			   "waiting|>holds|>operations|>bytes|>hits|>p99|<"
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
			 row->state == REEF_EXTENT_LIVE	     ? "live"
			 : row->state == REEF_EXTENT_MOVING  ? "moving"
			 : row->state == REEF_EXTENT_FAILING ? "failing"
							     : "lost");
	reef_json_number(json, "twin", row->twin);
	reef_json_bool(json, "is_twin", row->is_twin);
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

const char *const view_fabrics[REEF_COUNTED_FABRICS] = {
	[REEF_COUNTED_SHM] = "shm",
	[REEF_COUNTED_TCP] = "tcp",
	[REEF_COUNTED_VERBS] = "verbs",
	[REEF_COUNTED_SIM] = "sim",
};

const char *const view_kinds[REEF_COUNTED_KINDS] = {
	[REEF_COUNTED_READ] = "read",	[REEF_COUNTED_WRITE] = "write",
	[REEF_COUNTED_CAS] = "cas",	[REEF_COUNTED_FAA] = "faa",
	[REEF_COUNTED_FLUSH] = "flush", [REEF_COUNTED_LOOKUP] = "lookup",
};

void view_counters(const struct reef_reply_status *status,
		   struct reef_counters *out)
{
	memcpy(out, status->counters, sizeof(*out));
}

/* Write what all sessions did, and what the broker did. */
static void write_counters(struct reef_json *json,
			   const struct reef_reply_status *status)
{
	static const char *const names[REEF_BROKER_COUNTERS] = {
		[REEF_BROKER_COMMITS] = "commits",
		[REEF_BROKER_COMMIT_NS] = "commits_ns",
		[REEF_BROKER_SLOW] = "slow_commits",
		[REEF_BROKER_FENCES] = "fences",
		[REEF_BROKER_FENCE_FAILS] = "fences_failed",
		[REEF_BROKER_ENDED] = "sessions_ended",
		[REEF_BROKER_LOST] = "extents_lost",
		[REEF_BROKER_MOVED] = "extents_moved",
		[REEF_BROKER_SHORTS] = "shorts",
	};
	struct reef_counters all;
	uint64_t hits = 0;
	uint32_t i, j;

	view_counters(status, &all);
	reef_json_begin(json, "counters", REEF_JSON_OBJECT);
	reef_json_begin(json, "operations", REEF_JSON_OBJECT);
	for (i = 0; i < REEF_COUNTED_FABRICS; i++) {
		reef_json_begin(json, view_fabrics[i], REEF_JSON_OBJECT);
		for (j = 0; j < REEF_COUNTED_KINDS; j++)
			reef_json_number(json, view_kinds[j],
					 all.operations[i][j]);
		reef_json_end(json);
		hits += all.operations[i][REEF_COUNTED_LOOKUP];
	}
	reef_json_end(json);
	reef_json_number(json, "read_bytes", reef_counted_read(&all));
	reef_json_number(json, "written_bytes", all.bytes[REEF_COUNTED_WRITE]);
	reef_json_number(json, "retries", all.retries);
	reef_json_number(json, "in_doubt", all.in_doubt);
	reef_json_number(json, "hits", all.hits + hits);
	reef_json_number(json, "misses", all.misses);
	reef_json_number(json, "damaged", all.damaged);
	reef_json_begin(json, "latencies", REEF_JSON_ARRAY);
	for (i = 0; i < REEF_LATENCIES; i++)
		reef_json_number(json, NULL, all.latencies[i]);
	reef_json_end(json);
	reef_json_begin(json, "latency_bounds_ns", REEF_JSON_ARRAY);
	for (i = 0; i + 1 < REEF_LATENCIES; i++)
		reef_json_number(json, NULL, reef_latency_bounds_ns[i]);
	reef_json_end(json);
	reef_json_number(json, "latency_ns", all.latency_ns);
	for (i = 0; i < REEF_BROKER_COUNTERS; i++)
		reef_json_number(json, names[i], status->broker[i]);
	reef_json_end(json);
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
	write_counters(json, status);
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
