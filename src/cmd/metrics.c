/* metrics.c - see metrics.h. */
#include "cmd/metrics.h"

#include "cmd/operate.h"
#include "config.h"
#include "wire/states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1e9

enum metric {
	BUILD,
	SERVER_ALIVE,
	SERVER_BEAT,
	LENDER_CAPACITY,
	LENDER_LENT,
	LENDER_HUGE,
	LENDER_EXTENTS,
	LENDER_LINKS,
	LENDER_REGISTERED,
	POOL_EPOCH,
	BROKER_STARTS,
	BROKER_UPTIME,
	BROKER_EVENTS,
	STUCK,
	NODES,
	NODE_CAPACITY,
	NODE_USED,
	NODE_EXTENTS,
	NODE_SILENT,
	NODE_FREE,
	NODE_STATE,
	SPACES,
	SPACE_USED,
	SPACE_LOST,
	SPACE_QUOTA,
	SPACE_EXTENTS,
	SESSIONS,
	SESSIONS_WAITING,
	SESSIONS_HOLDING,
	SESSIONS_HOLD_MAX,
	SESSIONS_SILENT_MAX,
	USERS,
	METRICS_COUNT
};

static const struct {
	const char *name, *type, *unit, *help;
} metrics[METRICS_COUNT] = {
	[BUILD] = {"reef_build", "info", "", "the version that serves this"},
	[SERVER_ALIVE] = {"reef_server_alive", "gauge", "",
			  "1: the loop of this server turns"},
	[SERVER_BEAT] = {"reef_server_beat_age_seconds", "gauge", "seconds",
			 "time since its loop last turned"},
	[LENDER_CAPACITY] = {"reef_lender_capacity_bytes", "gauge", "bytes",
			     "what the node of this server lends at most"},
	[LENDER_LENT] = {"reef_lender_lent_bytes", "gauge", "bytes",
			 "what it has lent"},
	[LENDER_HUGE] = {"reef_lender_huge_bytes", "gauge", "bytes",
			 "what of that is in huge pages"},
	[LENDER_EXTENTS] = {"reef_lender_extents", "gauge", "",
			    "extents that it has lent"},
	[LENDER_LINKS] = {"reef_lender_links", "gauge", "", "links to it"},
	[LENDER_REGISTERED] = {"reef_lender_registered", "gauge", "",
			       "1: it has a broker"},
	[POOL_EPOCH] = {"reef_pool_epoch", "gauge", "",
			"rises when a node dies"},
	[BROKER_STARTS] = {"reef_broker_starts", "counter", "",
			   "starts of the broker"},
	[BROKER_UPTIME] = {"reef_broker_uptime_seconds", "gauge", "seconds",
			   "time since the broker started"},
	[BROKER_EVENTS] = {"reef_broker_events", "counter", "",
			   "events since it started"},
	[STUCK] = {"reef_stuck", "gauge", "",
		   "what ended sessions left and nobody could recover"},
	[NODES] = {"reef_nodes", "gauge", "", "nodes, by state"},
	[NODE_CAPACITY] = {"reef_node_capacity_bytes", "gauge", "bytes",
			   "what a node lends at most"},
	[NODE_USED] = {"reef_node_used_bytes", "gauge", "bytes",
		       "what a node has lent"},
	[NODE_EXTENTS] = {"reef_node_extents", "gauge", "",
			  "extents on a node"},
	[NODE_SILENT] = {"reef_node_silent_seconds", "gauge", "seconds",
			 "time since a node was heard"},
	[NODE_FREE] = {"reef_node_machine_free_bytes", "gauge", "bytes",
		       "free memory of its machine"},
	[NODE_STATE] = {"reef_node_ok", "gauge", "",
			"1: a node is neither dead nor drained"},
	[SPACES] = {"reef_spaces", "gauge", "", "spaces, by kind"},
	[SPACE_USED] = {"reef_space_used_bytes", "gauge", "bytes",
			"memory of a space"},
	[SPACE_LOST] = {"reef_space_lost_bytes", "gauge", "bytes",
			"memory of a space that was lost with nodes"},
	[SPACE_QUOTA] = {"reef_space_quota_bytes", "gauge", "bytes",
			 "what a space may have; none: no limit"},
	[SPACE_EXTENTS] = {"reef_space_extents", "gauge", "",
			   "extents of a space"},
	[SESSIONS] = {"reef_sessions", "gauge", "", "sessions, by state"},
	[SESSIONS_WAITING] = {"reef_sessions_waiting_bytes", "gauge", "bytes",
			      "freed memory that cannot be used again yet"},
	[SESSIONS_HOLDING] = {"reef_sessions_holding", "gauge", "",
			      "sessions that hold freed memory back"},
	[SESSIONS_HOLD_MAX] = {"reef_sessions_hold_max_seconds", "gauge",
			       "seconds", "for how long the longest does"},
	[SESSIONS_SILENT_MAX] = {"reef_sessions_silent_max_seconds", "gauge",
				 "seconds",
				 "time since the most silent renewed"},
	[USERS] = {"reef_users", "gauge", "", "users, without the owner"},
};

/* --- writing --- */

static void head(FILE *out, enum metric metric)
{
	fprintf(out, "# TYPE %s %s\n", metrics[metric].name,
		metrics[metric].type);
	if (metrics[metric].unit[0])
		fprintf(out, "# UNIT %s %s\n", metrics[metric].name,
			metrics[metric].unit);
	fprintf(out, "# HELP %s %s\n", metrics[metric].name,
		metrics[metric].help);
}

/* Write a text as a label has it between its quotes: a number beside it tells
 * apart what looks alike, so what is not plain may be shown as '?'. */
static void put_label(FILE *out, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '\n')
			fputs("\\n", out);
		else if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else
			fputc(c < ' ' || c >= 0x7f ? '?' : c, out);
	}
}

/* Write a value with a label, and the number of what it is about; label NULL:
 * with none; number 0: it has no number. */
static void value_of(FILE *out, enum metric metric, const char *label,
		     const char *text, uint32_t number, double value)
{
	fprintf(out, "%s%s", metrics[metric].name,
		strcmp(metrics[metric].type, "counter") == 0 ? "_total" : "");
	if (label) {
		fprintf(out, "{%s=\"", label);
		put_label(out, text, strlen(text));
		fprintf(out, "\"");
		if (number)
			fprintf(out, ",id=\"%u\"", number);
		fprintf(out, "}");
	}
	fprintf(out, " %.15g\n", value);
}

static void single(FILE *out, enum metric metric, double value)
{
	head(out, metric);
	value_of(out, metric, NULL, NULL, 0, value);
}

/* --- the server itself --- */

static void write_server(const struct http_page *page, uint64_t now_ns,
			 FILE *out)
{
	const uint64_t beat_ns = atomic_load(&page->beat_ns);
	const uint64_t age_ns = now_ns > beat_ns ? now_ns - beat_ns : 0;

	head(out, BUILD);
	fprintf(out, "reef_build_info{version=\"%s\"} 1\n", REEF_VERSION);
	single(out, SERVER_ALIVE, age_ns <= HTTP_BEAT_MAX_NS);
	single(out, SERVER_BEAT, (double)age_ns / SECOND);
	if (!atomic_load(&page->has_node))
		return;
	single(out, LENDER_CAPACITY, (double)atomic_load(&page->capacity));
	single(out, LENDER_LENT, (double)atomic_load(&page->lent));
	single(out, LENDER_HUGE, (double)atomic_load(&page->huge));
	single(out, LENDER_EXTENTS, atomic_load(&page->extents));
	single(out, LENDER_LINKS, atomic_load(&page->links));
	single(out, LENDER_REGISTERED, atomic_load(&page->link) == 0);
}

/* --- the pool --- */

struct labelled {
	char name[64];
	uint32_t number;
	double values[6];
};

/* What was gathered of all rows. */
struct gathered {
	struct labelled *labelled; /* of METRICS_LABELS_MAX */
	uint32_t count, users;
	uint32_t by_state[6], by_kind[2], sessions[6];
	double waiting, hold_max, silent_max;
	uint32_t holding;
};

static struct labelled *add_labelled(struct gathered *all,
				     struct reef_text name, uint32_t number)
{
	struct labelled *one;

	if (all->count == METRICS_LABELS_MAX)
		return NULL;
	one = &all->labelled[all->count++];
	one->number = number;
	snprintf(one->name, sizeof(one->name), "%.*s", (int)name.size,
		 name.bytes);
	return one;
}

static int take_node(void *context, const struct reef_row *any)
{
	const struct reef_row_node *row = &any->node;
	struct gathered *all = context;
	struct labelled *one = add_labelled(all, row->name, row->number);

	all->by_state[row->state < 5 ? row->state : 5]++;
	if (!one)
		return 0;
	one->values[0] = (double)row->capacity;
	one->values[1] = (double)row->used;
	one->values[2] = row->extents;
	one->values[3] = (double)row->silent_ns / SECOND;
	one->values[4] = (double)row->machine_free;
	one->values[5] =
		row->state == REEF_NODE_OK || row->state == REEF_NODE_DRAINING;
	return 0;
}

static int take_space(void *context, const struct reef_row *any)
{
	const struct reef_row_space *row = &any->space;
	struct gathered *all = context;
	struct labelled *one;

	all->by_kind[row->kind == REEF_SPACE_SCRATCH]++;
	/* Scratch spaces come and go without a name: they are counted. */
	if (row->kind == REEF_SPACE_SCRATCH)
		return 0;
	one = add_labelled(all, row->name, row->number);
	if (!one)
		return 0;
	one->values[0] = (double)row->used;
	one->values[1] = (double)row->lost;
	one->values[2] = (double)row->quota;
	one->values[3] = row->extents;
	return 0;
}

static int take_session(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;
	struct gathered *all = context;

	all->sessions[row->state < 5 ? row->state : 5]++;
	all->waiting += (double)row->waiting;
	all->holding += row->holds_ns != 0;
	if ((double)row->holds_ns > all->hold_max)
		all->hold_max = (double)row->holds_ns;
	if (row->state == REEF_SESSION_ALIVE &&
	    (double)row->silent_ns > all->silent_max)
		all->silent_max = (double)row->silent_ns;
	return 0;
}

static int count_user(void *context, const struct reef_row *any)
{
	struct gathered *all = context;

	all->users++;
	return 0;
}

static void write_labelled(const struct gathered *all, FILE *out,
			   const char *label, enum metric metric,
			   uint32_t value)
{
	head(out, metric);
	for (uint32_t i = 0; i < all->count; i++) {
		const struct labelled *one = &all->labelled[i];

		/* A quota that there is not is no value. */
		if (metric == SPACE_QUOTA && one->values[value] == 0)
			continue;
		value_of(out, metric, label, one->name, one->number,
			 one->values[value]);
	}
}

static int write_nodes(struct reef_operator *op, struct gathered *all,
		       FILE *out)
{
	static const char *const states[] = {
		[REEF_NODE_OK] = "ok",
		[REEF_NODE_DRAINING] = "draining",
		[REEF_NODE_DRAINED] = "drained",
		[REEF_NODE_DEAD] = "dead",
	};
	int rc = reef_operator_list(op, REEF_ROW_NODE, take_node, all);

	if (rc)
		return rc;
	head(out, NODES);
	for (uint32_t i = REEF_NODE_OK; i <= REEF_NODE_DEAD; i++)
		value_of(out, NODES, "state", states[i], 0, all->by_state[i]);
	for (uint32_t i = 0; i < 6; i++)
		write_labelled(all, out, "node",
			       (enum metric)(NODE_CAPACITY + i), i);
	return 0;
}

static int write_spaces(struct reef_operator *op, struct gathered *all,
			FILE *out)
{
	int rc;

	all->count = 0;
	rc = reef_operator_list(op, REEF_ROW_SPACE, take_space, all);
	if (rc)
		return rc;
	head(out, SPACES);
	value_of(out, SPACES, "kind", "shared", 0, all->by_kind[0]);
	value_of(out, SPACES, "kind", "scratch", 0, all->by_kind[1]);
	for (uint32_t i = 0; i < 4; i++)
		write_labelled(all, out, "space", (enum metric)(SPACE_USED + i),
			       i);
	return 0;
}

static int write_sessions(struct reef_operator *op, struct gathered *all,
			  FILE *out)
{
	int rc = reef_operator_list(op, REEF_ROW_SESSION, take_session, all);

	if (!rc)
		rc = reef_operator_list(op, REEF_ROW_USER, count_user, all);
	if (rc)
		return rc;
	head(out, SESSIONS);
	for (uint32_t i = REEF_SESSION_ALIVE; i <= REEF_SESSION_FENCED; i++) {
		value_of(out, SESSIONS, "state",
			 operate_session_state((uint8_t)i), 0,
			 all->sessions[i]);
	}
	single(out, SESSIONS_WAITING, all->waiting);
	single(out, SESSIONS_HOLDING, all->holding);
	single(out, SESSIONS_HOLD_MAX, all->hold_max / SECOND);
	single(out, SESSIONS_SILENT_MAX, all->silent_max / SECOND);
	single(out, USERS, all->users);
	return 0;
}

static int write_broker(struct reef_operator *op, FILE *out)
{
	const struct reef_reply_status *status;
	struct reef_answer answer = {0};
	int rc;

	rc = reef_operator_call(op, REEF_POOL_STATUS, NULL, &answer);
	if (rc)
		return rc;
	status = &answer.body.reply.status;
	single(out, POOL_EPOCH, (double)status->pool_epoch);
	single(out, BROKER_STARTS, (double)status->broker_epoch);
	single(out, BROKER_UPTIME, (double)status->uptime_ns / SECOND);
	single(out, BROKER_EVENTS, status->events);
	single(out, STUCK, status->stuck);
	reef_answer_free(&answer);
	return 0;
}

int metrics_write(const struct http_page *page, uint64_t now_ns,
		  struct reef_operator *op, FILE *out)
{
	struct gathered all = {0};
	int rc = 0;

	write_server(page, now_ns, out);
	if (op) {
		all.labelled =
			calloc(METRICS_LABELS_MAX, sizeof(all.labelled[0]));
		rc = all.labelled ? write_broker(op, out) : -ENOMEM;
		if (!rc)
			rc = write_nodes(op, &all, out);
		if (!rc)
			rc = write_spaces(op, &all, out);
		if (!rc)
			rc = write_sessions(op, &all, out);
		free(all.labelled);
	}
	fprintf(out, "# EOF\n");
	return rc;
}
