/* metrics.c - see metrics.h. */
#include "cmd/http/metrics.h"

#include "cmd/http/metrics_table.h"
#include "cmd/operate.h"
#include "cmd/view.h"
#include "config.h"
#include "wire/states.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1e9

/* --- writing --- */

static void head(FILE *out, enum metric metric)
{
	fprintf(out, "# TYPE %s %s\n", metric_rows[metric].name,
		metric_rows[metric].type);
	if (metric_rows[metric].unit[0])
		fprintf(out, "# UNIT %s %s\n", metric_rows[metric].name,
			metric_rows[metric].unit);
	fprintf(out, "# HELP %s %s\n", metric_rows[metric].name,
		metric_rows[metric].help);
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
	metric_put_sample(metric, out);
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

static void write_server(const struct http_page *page,
			 const struct http_stats *stats, uint64_t now_ns,
			 FILE *out)
{
	const uint64_t beat_ns = atomic_load(&page->beat_ns);
	const uint64_t age_ns = now_ns > beat_ns ? now_ns - beat_ns : 0;

	head(out, BUILD);
	fprintf(out, "reef_build_info{version=\"%s\"} 1\n", REEF_VERSION);
	single(out, SERVER_ALIVE, age_ns <= HTTP_BEAT_MAX_NS);
	single(out, SERVER_BEAT, (double)age_ns / SECOND);
	single(out, SERVER_CPU, (double)atomic_load(&page->cpu_ns) / SECOND);
	single(out, SERVER_RESIDENT, (double)atomic_load(&page->resident));
	single(out, HTTP_REQUESTS, (double)atomic_load(&stats->requests));
	single(out, HTTP_REFUSED, (double)atomic_load(&stats->refused));
	single(out, HTTP_WATCHERS, atomic_load(&stats->watchers));
	single(out, HTTP_CONNECTIONS, atomic_load(&stats->connections));
	single(out, HTTP_ASKED, (double)atomic_load(&stats->asked));
	single(out, HTTP_ASK_TIME,
	       (double)atomic_load(&stats->ask_ns) / SECOND);
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

enum linked { LINKED_SHM, LINKED_TCP, LINKED_VERBS, LINKED_OTHER, LINKED };

/* What was gathered of all rows. */
struct gathered {
	struct labelled *labelled; /* of METRICS_LABELS_MAX */
	uint32_t count, users;
	uint32_t nodes[REEF_NODE_AWAY + 2], by_kind[2];
	uint32_t sessions[REEF_SESSION_RECOVERED + 2], linked[LINKED];
	double capacity, used, lost;
	uint32_t extents[REEF_EXTENT_LOST + 2], is_short;
	double waiting, hold_max, silent_max, p99_max;
	uint32_t holding, away;
	uint32_t gone[METRICS_LABELS_MAX], gone_count; /* nodes */
};

static void count_state(uint32_t *counts, uint32_t most, uint32_t state)
{
	counts[state <= most ? state : most + 1]++;
}

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

	count_state(all->nodes, REEF_NODE_AWAY, row->state);
	if (!reef_node_is_gone(row->state)) {
		all->capacity += (double)row->capacity;
		all->used += (double)row->used;
	} else if (all->gone_count < METRICS_LABELS_MAX) {
		all->gone[all->gone_count++] = row->number;
	}
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
	all->lost += (double)row->lost;
	all->is_short += row->degraded;
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

/* By which fabric a link is, as its description begins. */
static enum linked linked_by(struct reef_text fabric)
{
	if (fabric.size >= 3 && memcmp(fabric.bytes, "shm", 3) == 0)
		return LINKED_SHM;
	if (fabric.size >= 3 && memcmp(fabric.bytes, "tcp", 3) == 0)
		return LINKED_TCP;
	if (fabric.size >= 5 && memcmp(fabric.bytes, "verbs", 5) == 0)
		return LINKED_VERBS;
	return LINKED_OTHER;
}

/* An extent on a node that is gone has a copy that cannot be reached, if it is
 * not lost for good. (Of spaces with copies, take_space counts those that have
 * only one.) */
static int take_extent(void *context, const struct reef_row *any)
{
	const struct reef_row_extent *row = &any->extent;
	struct gathered *all = context;

	count_state(all->extents, REEF_EXTENT_LOST, row->state);
	if (row->state == REEF_EXTENT_LOST)
		return 0;
	for (uint32_t i = 0; i < all->gone_count; i++) {
		if (all->gone[i] != row->node)
			continue;
		all->is_short++;
		break;
	}
	return 0;
}

static int take_session(void *context, const struct reef_row *any)
{
	const struct reef_row_session *row = &any->session;
	struct gathered *all = context;

	count_state(all->sessions, REEF_SESSION_RECOVERED, row->state);
	if (row->fabric.size)
		all->linked[linked_by(row->fabric)]++;
	else
		all->away += row->state == REEF_SESSION_ALIVE;
	if ((double)row->counts[REEF_TOLD_P99_NS] > all->p99_max)
		all->p99_max = (double)row->counts[REEF_TOLD_P99_NS];
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
		[REEF_NODE_AWAY] = "away",
	};
	int rc = reef_operator_list(op, REEF_ROW_NODE, take_node, all);

	if (rc)
		return rc;
	head(out, NODES);
	for (uint32_t i = REEF_NODE_OK; i <= REEF_NODE_AWAY; i++)
		value_of(out, NODES, "state", states[i], 0, all->nodes[i]);
	for (uint32_t i = 0; i < 6; i++)
		write_labelled(all, out, "node",
			       (enum metric)(NODE_CAPACITY + i), i);
	single(out, POOL_CAPACITY, all->capacity);
	single(out, POOL_USED, all->used);
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
	single(out, POOL_LOST, all->lost);
	return 0;
}

static int write_extents(struct reef_operator *op, struct gathered *all,
			 FILE *out)
{
	static const char *const states[] = {
		[REEF_EXTENT_LIVE] = "live",
		[REEF_EXTENT_MOVING] = "moving",
		[REEF_EXTENT_LOST] = "lost",
	};
	int rc = reef_operator_list(op, REEF_ROW_EXTENT, take_extent, all);

	if (rc)
		return rc;
	head(out, EXTENTS);
	for (uint32_t i = REEF_EXTENT_LIVE; i <= REEF_EXTENT_LOST; i++)
		value_of(out, EXTENTS, "state", states[i], 0, all->extents[i]);
	single(out, EXTENTS_SHORT, all->is_short);
	return 0;
}

static int write_sessions(struct reef_operator *op, struct gathered *all,
			  FILE *out)
{
	static const char *const fabrics[LINKED] = {
		[LINKED_SHM] = "shm",
		[LINKED_TCP] = "tcp",
		[LINKED_VERBS] = "verbs",
		[LINKED_OTHER] = "other",
	};
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
	head(out, SESSIONS_FABRIC);
	for (uint32_t i = 0; i < LINKED; i++)
		value_of(out, SESSIONS_FABRIC, "fabric", fabrics[i], 0,
			 all->linked[i]);
	single(out, SESSIONS_AWAY, all->away);
	single(out, SESSIONS_P99_MAX, all->p99_max / SECOND);
	single(out, SESSIONS_WAITING, all->waiting);
	single(out, SESSIONS_HOLDING, all->holding);
	single(out, SESSIONS_HOLD_MAX, all->hold_max / SECOND);
	single(out, SESSIONS_SILENT_MAX, all->silent_max / SECOND);
	single(out, USERS, all->users);
	return 0;
}

/* What the sessions did. */
static void write_counters(const struct reef_counters *all, FILE *out)
{
	uint64_t lookups = 0, calls = 0;
	uint32_t i, j;

	head(out, OPERATIONS);
	for (i = 0; i < REEF_COUNTED_FABRICS; i++) {
		lookups += all->operations[i][REEF_COUNTED_LOOKUP];
		for (j = 0; j < REEF_COUNTED_KINDS; j++) {
			metric_put_sample(OPERATIONS, out);
			fprintf(out, "{fabric=\"%s\",kind=\"%s\"} %llu\n",
				view_fabrics[i], view_kinds[j],
				(unsigned long long)all->operations[i][j]);
		}
	}
	single(out, READ_BYTES, (double)reef_counted_read(all));
	single(out, WRITTEN_BYTES, (double)all->bytes[REEF_COUNTED_WRITE]);
	single(out, RETRIES, (double)all->retries);
	single(out, IN_DOUBT, (double)all->in_doubt);
	single(out, HITS, (double)(all->hits + lookups));
	single(out, MISSES, (double)all->misses);
	single(out, DAMAGED, (double)all->damaged);
	head(out, CALLS);
	for (i = 0; i < REEF_LATENCIES; i++) {
		calls += all->latencies[i];
		fprintf(out, "%s_bucket{le=\"", metric_rows[CALLS].name);
		if (i + 1 < REEF_LATENCIES)
			fprintf(out, "%g",
				(double)reef_latency_bounds_ns[i] / SECOND);
		else
			fprintf(out, "+Inf");
		fprintf(out, "\"} %llu\n", (unsigned long long)calls);
	}
	fprintf(out, "%s_sum %.15g\n%s_count %llu\n", metric_rows[CALLS].name,
		(double)all->latency_ns / SECOND, metric_rows[CALLS].name,
		(unsigned long long)calls);
}

static int write_broker(struct reef_operator *op, FILE *out)
{
	static const struct {
		enum metric metric;
		double unit;
	} own[REEF_BROKER_COUNTERS] = {
		[REEF_BROKER_COMMITS] = {BROKER_COMMITS, 1},
		[REEF_BROKER_COMMIT_NS] = {BROKER_COMMIT_TIME, SECOND},
		[REEF_BROKER_SLOW] = {BROKER_SLOW, 1},
		[REEF_BROKER_FENCES] = {BROKER_FENCES, 1},
		[REEF_BROKER_FENCE_FAILS] = {BROKER_FENCE_FAILS, 1},
		[REEF_BROKER_ENDED] = {BROKER_ENDED, 1},
		[REEF_BROKER_LOST] = {BROKER_LOST, 1},
		[REEF_BROKER_MOVED] = {BROKER_MOVED, 1},
		[REEF_BROKER_SHORTS] = {BROKER_SHORTS, 1},
	};
	const struct reef_reply_status *status;
	struct reef_answer answer = {0};
	struct reef_counters counters;
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
	for (uint32_t i = 0; i < REEF_BROKER_COUNTERS; i++)
		single(out, own[i].metric,
		       (double)status->broker[i] / own[i].unit);
	view_counters(status, &counters);
	write_counters(&counters, out);
	reef_answer_free(&answer);
	return 0;
}

static int write_pool(struct reef_operator *op, struct gathered *all, FILE *out)
{
	int rc = write_broker(op, out);

	if (!rc)
		rc = write_nodes(op, all, out);
	if (!rc)
		rc = write_spaces(op, all, out);
	if (!rc)
		rc = write_extents(op, all, out);
	return rc ? rc : write_sessions(op, all, out);
}

int metrics_write(const struct http_page *page, const struct http_stats *stats,
		  uint64_t now_ns, struct reef_operator *op, FILE *out)
{
	struct gathered *all = NULL;
	int rc = 0;

	write_server(page, stats, now_ns, out);
	if (op) {
		all = calloc(1, sizeof(*all));
		if (all)
			all->labelled = calloc(METRICS_LABELS_MAX,
					       sizeof(all->labelled[0]));
		rc = all && all->labelled ? write_pool(op, all, out) : -ENOMEM;
		if (all)
			free(all->labelled);
		free(all);
	}
	fprintf(out, "# EOF\n");
	return rc;
}
