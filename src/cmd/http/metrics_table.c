/* metrics_table.c - see metrics_table.h. */
#include "cmd/http/metrics_table.h"

#include "cmd/http/metrics.h"
#include "cmd/print/json.h"

#include <stdlib.h>
#include <string.h>

#define SELF "$"
#define RATE "rate($[1m])"

const struct metric_row metric_rows[METRICS_COUNT] = {
	[BUILD] = {"reef_build", "info", "", "the version that serves this",
		   NULL, NULL},
	[SERVER_ALIVE] = {"reef_server_alive", "gauge", "",
			  "1: the loop of this server turns",
			  "Servers/Servers that work", SELF},
	[SERVER_BEAT] = {"reef_server_beat_age_seconds", "gauge", "seconds",
			 "time since its loop last turned", NULL, NULL},
	[SERVER_CPU] = {"reef_server_cpu_seconds", "counter", "seconds",
			"time on the processor of this server",
			"Servers/Processor", RATE},
	[SERVER_RESIDENT] = {"reef_server_resident_bytes", "gauge", "bytes",
			     "memory of this server, what it lends included",
			     "Servers/Memory", SELF},
	[HTTP_REQUESTS] = {"reef_http_requests", "counter", "",
			   "requests over HTTP", "Servers/HTTP", RATE},
	[HTTP_REFUSED] = {"reef_http_refused", "counter", "",
			  "requests that were refused: a foreign Host, a "
			  "token that is none, too many",
			  "Servers/HTTP", RATE},
	[HTTP_WATCHERS] = {"reef_http_watchers", "gauge", "",
			   "watchers of /events", "Servers/Watchers", SELF},
	[HTTP_CONNECTIONS] = {"reef_http_connections", "gauge", "",
			      "connections over HTTP", "Servers/Watchers",
			      SELF},
	[HTTP_ASKED] = {"reef_http_asked", "counter", "",
			"times that the broker was asked for HTTP", NULL, NULL},
	[HTTP_ASK_TIME] = {"reef_http_ask_seconds", "counter", "seconds",
			   "how long that took", NULL, NULL},
	[LENDER_CAPACITY] = {"reef_lender_capacity_bytes", "gauge", "bytes",
			     "what the node of this server lends at most", NULL,
			     NULL},
	[LENDER_LENT] = {"reef_lender_lent_bytes", "gauge", "bytes",
			 "what it has lent", NULL, NULL},
	[LENDER_HUGE] = {"reef_lender_huge_bytes", "gauge", "bytes",
			 "what of that is in huge pages", NULL, NULL},
	[LENDER_EXTENTS] = {"reef_lender_extents", "gauge", "",
			    "extents that it has lent", NULL, NULL},
	[LENDER_LINKS] = {"reef_lender_links", "gauge", "", "links to it",
			  "Servers/Links to nodes", SELF},
	[LENDER_REGISTERED] = {"reef_lender_registered", "gauge", "",
			       "1: it has a broker", NULL, NULL},
	[POOL_EPOCH] = {"reef_pool_epoch", "gauge", "",
			"rises when a node dies", NULL, NULL},
	[POOL_CAPACITY] = {"reef_pool_capacity_bytes", "gauge", "bytes",
			   "what nodes that are there lend at most",
			   "Pool/Memory", SELF},
	[POOL_USED] = {"reef_pool_used_bytes", "gauge", "bytes",
		       "what they have lent", "Pool/Memory", SELF},
	[POOL_LOST] = {"reef_pool_lost_bytes", "gauge", "bytes",
		       "memory of spaces that was lost with nodes",
		       "Pool/Memory", SELF},
	[BROKER_STARTS] = {"reef_broker_starts", "counter", "",
			   "starts of the broker", NULL, NULL},
	[BROKER_UPTIME] = {"reef_broker_uptime_seconds", "gauge", "seconds",
			   "time since the broker started",
			   "Pool/Time since the broker started", SELF},
	[BROKER_EVENTS] = {"reef_broker_events", "counter", "",
			   "events since it started", "Pool/Events", RATE},
	[BROKER_COMMITS] = {"reef_broker_commits", "counter", "",
			    "changes of the pool that were made durable",
			    "Pool/Commits", RATE},
	[BROKER_COMMIT_TIME] = {"reef_broker_commit_seconds", "counter",
				"seconds", "how long that took",
				"Pool/Time for commits", RATE},
	[BROKER_SLOW] = {"reef_broker_slow_commits", "counter", "",
			 "changes that took longer than 100 ms", "Pool/Commits",
			 RATE},
	[BROKER_FENCES] = {"reef_broker_fences", "counter", "",
			   "sessions that were fenced at all nodes",
			   "Pool/Fences", RATE},
	[BROKER_FENCE_FAILS] = {"reef_broker_fence_failures", "counter", "",
				"fences that a node did not confirm when it "
				"was asked",
				"Pool/Fences", RATE},
	[BROKER_ENDED] = {"reef_broker_sessions_ended", "counter", "",
			  "sessions that ended without being closed",
			  "Sessions/Sessions that ended", RATE},
	[BROKER_LOST] = {"reef_broker_extents_lost", "counter", "",
			 "extents that were lost", "Pool/Extents lost, moved",
			 RATE},
	[BROKER_MOVED] = {"reef_broker_extents_moved", "counter", "",
			  "extents that moved to another node",
			  "Pool/Extents lost, moved", RATE},
	[BROKER_SHORTS] = {"reef_broker_shortages", "counter", "",
			   "times that memory was asked for in vain",
			   "Pool/Shortages", RATE},
	[STUCK] = {"reef_stuck", "gauge", "",
		   "what ended sessions left and nobody could recover",
		   "Pool/Stuck", SELF},
	[OPERATIONS] = {"reef_operations", "counter", "",
			"what sessions did, by fabric and kind; lookup: a key "
			"read in place",
			"Data/Operations",
			"sum by (fabric, kind) (rate($[1m]))"},
	[READ_BYTES] = {"reef_read_bytes", "counter", "bytes",
			"bytes that sessions read", "Data/Bytes", RATE},
	[WRITTEN_BYTES] = {"reef_written_bytes", "counter", "bytes",
			   "bytes that sessions wrote", "Data/Bytes", RATE},
	[RETRIES] = {"reef_retries", "counter", "",
		     "batches of which something was done again",
		     "Data/Retries and doubts", RATE},
	[IN_DOUBT] = {"reef_in_doubt", "counter", "",
		      "batches that may have happened or not",
		      "Data/Retries and doubts", RATE},
	[HITS] = {"reef_map_hits", "counter", "",
		  "gets of keys that were there", "Data/Gets", RATE},
	[MISSES] = {"reef_map_misses", "counter", "",
		    "gets of keys that were not", "Data/Gets", RATE},
	[DAMAGED] = {"reef_checksum_errors", "counter", "",
		     "gets that met bytes that nobody wrote so",
		     "Data/Checksum errors", RATE},
	[CALLS] = {"reef_call_duration_seconds", "histogram", "seconds",
		   "calls that waited for a fabric, and lookups in place by a "
		   "sample",
		   "Data/99 of 100 calls",
		   "histogram_quantile(0.99, sum by (le) "
		   "(rate($_bucket[1m])))"},
	[NODES] = {"reef_nodes", "gauge", "", "nodes, by state", "Nodes/Nodes",
		   SELF},
	[NODE_CAPACITY] = {"reef_node_capacity_bytes", "gauge", "bytes",
			   "what a node lends at most", NULL, NULL},
	[NODE_USED] = {"reef_node_used_bytes", "gauge", "bytes",
		       "what a node has lent", "Nodes/Lent", SELF},
	[NODE_EXTENTS] = {"reef_node_extents", "gauge", "", "extents on a node",
			  "Nodes/Extents", SELF},
	[NODE_SILENT] = {"reef_node_silent_seconds", "gauge", "seconds",
			 "time since a node was heard", "Nodes/Silence", SELF},
	[NODE_FREE] = {"reef_node_machine_free_bytes", "gauge", "bytes",
		       "free memory of its machine",
		       "Nodes/Free memory of machines", SELF},
	[NODE_OK] = {"reef_node_ok", "gauge", "",
		     "1: a node is neither gone nor drained", "Nodes/In order",
		     SELF},
	[SPACES] = {"reef_spaces", "gauge", "", "spaces, by kind",
		    "Spaces/Spaces", SELF},
	[SPACE_USED] = {"reef_space_used_bytes", "gauge", "bytes",
			"memory of a space", "Spaces/Memory", SELF},
	[SPACE_LOST] = {"reef_space_lost_bytes", "gauge", "bytes",
			"memory of a space that was lost with nodes",
			"Spaces/Lost", SELF},
	[SPACE_QUOTA] = {"reef_space_quota_bytes", "gauge", "bytes",
			 "what a space may have; none: no limit",
			 "Spaces/Quota", SELF},
	[SPACE_EXTENTS] = {"reef_space_extents", "gauge", "",
			   "extents of a space", NULL, NULL},
	[EXTENTS] = {"reef_extents", "gauge", "", "extents, by state",
		     "Pool/Extents", SELF},
	[EXTENTS_SHORT] = {"reef_extents_short", "gauge", "",
			   "extents with fewer copies that can be reached than "
			   "they should have",
			   "Pool/Extents", SELF},
	[SESSIONS] = {"reef_sessions", "gauge", "", "sessions, by state",
		      "Sessions/Sessions", SELF},
	[SESSIONS_FABRIC] = {"reef_sessions_linked", "gauge", "",
			     "sessions with a link to the broker, by fabric",
			     "Sessions/By fabric", SELF},
	[SESSIONS_AWAY] = {"reef_sessions_away", "gauge", "",
			   "sessions that are alive and have no link",
			   "Sessions/Sessions", SELF},
	[SESSIONS_WAITING] = {"reef_sessions_waiting_bytes", "gauge", "bytes",
			      "freed memory that cannot be used again yet",
			      "Sessions/Waiting memory", SELF},
	[SESSIONS_HOLDING] = {"reef_sessions_holding", "gauge", "",
			      "sessions that hold freed memory back", NULL,
			      NULL},
	[SESSIONS_HOLD_MAX] = {"reef_sessions_hold_max_seconds", "gauge",
			       "seconds", "for how long the longest does",
			       "Sessions/Holding back", SELF},
	[SESSIONS_SILENT_MAX] = {"reef_sessions_silent_max_seconds", "gauge",
				 "seconds",
				 "time since the most silent renewed",
				 "Sessions/Silence", SELF},
	[SESSIONS_P99_MAX] = {"reef_sessions_p99_max_seconds", "gauge",
			      "seconds",
			      "99 of 100 calls of each session took no longer",
			      NULL, NULL},
	[USERS] = {"reef_users", "gauge", "", "users, without the owner", NULL,
		   NULL},
};

/* Nothing here hangs on how large a pool is, or how busy. */
static const struct alert_row alerts[] = {
	{"ReefServerStandsStill", SERVER_ALIVE, 0, "$", "== 0", "10s",
	 "critical", "The loop of a server has not turned for 5 seconds."},
	{"ReefNodeSilent", NODE_SILENT, 0, "max by (node, id) ($)", "> 5",
	 "10s", "critical",
	 "A node has not been heard for more than 5 seconds; after node-ttl it "
	 "is taken for dead."},
	{"ReefNodeGone", NODE_OK, 0, "min by (node, id) ($)", "== 0", "1m",
	 "warning", "A node is dead, away or drained."},
	{"ReefExtentLost", POOL_LOST, 0, "$", "> 0", "0s", "critical",
	 "Memory of spaces was lost with nodes. `reef status` names them; "
	 "`reef space forget` gives up what was lost."},
	{"ReefCopiesShort", EXTENTS_SHORT, 0, "$", "> 0", "1m", "warning",
	 "Extents have fewer copies that can be reached than they should: a "
	 "node is away."},
	{"ReefSessionPins", SESSIONS_HOLD_MAX, 0, "$", "> 30", "30s", "warning",
	 "A session keeps memory that others freed from being used again. "
	 "`reef status` names it."},
	{"ReefPoolNearlyFull", POOL_USED, POOL_CAPACITY, "$ / (@ > 0)", "> 0.9",
	 "5m", "warning",
	 "More than nine tenths of the pool's memory are lent."},
	{"ReefShortages", BROKER_SHORTS, 0, "rate($[5m])", "> 0", "5m",
	 "warning", "Sessions ask for memory, and there is none."},
	{"ReefSlowCommits", BROKER_SLOW, 0, "rate($[5m])", "> 0.1", "5m",
	 "warning",
	 "Changes of the pool take longer than 100 ms: the broker's disk is "
	 "slow, or the nodes that confirm them."},
	{"ReefChecksumErrors", DAMAGED, 0, "increase($[10m])", "> 0", "0s",
	 "critical", "Sessions met bytes in the pool that nobody wrote so."},
	{"ReefFencesFail", BROKER_FENCE_FAILS, 0, "increase($[5m])", "> 0",
	 "2m", "critical",
	 "A node does not confirm that an ended session is kept out: what that "
	 "one held waits."},
	{"ReefStuck", STUCK, 0, "$", "> 0", "5m", "warning",
	 "What ended sessions left could not be recovered."},
};
#define ALERTS (sizeof(alerts) / sizeof(alerts[0]))

void metric_put_sample(enum metric metric, FILE *out)
{
	const struct metric_row *row = &metric_rows[metric];

	fputs(row->name, out);
	if (strcmp(row->type, "counter") == 0)
		fputs("_total", out);
}

/* An expression with the names in it. NULL: there is no memory. */
static char *expand(const char *expression, enum metric self, enum metric other)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	for (; *expression; expression++) {
		if (*expression == '$')
			metric_put_sample(self, out);
		else if (*expression == '@')
			metric_put_sample(other, out);
		else
			fputc(*expression, out);
	}
	fclose(out);
	return text;
}

static void write_expression(struct reef_json *json, const char *key,
			     const char *expression, enum metric self,
			     enum metric other)
{
	char *text = expand(expression, self, other);

	reef_json_string(json, key, text ? text : "");
	free(text);
}

void metrics_write_table(FILE *out)
{
	struct reef_json json = {.stream = out};

	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_begin(&json, "metrics", REEF_JSON_ARRAY);
	for (uint32_t i = 0; i < METRICS_COUNT; i++) {
		const struct metric_row *row = &metric_rows[i];

		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_string(&json, "name", row->name);
		reef_json_string(&json, "type", row->type);
		reef_json_string(&json, "unit", row->unit);
		reef_json_string(&json, "help", row->help);
		if (row->panel) {
			reef_json_string(&json, "panel", row->panel);
			write_expression(&json, "expression", row->shows,
					 (enum metric)i, (enum metric)i);
		}
		reef_json_end(&json);
	}
	reef_json_end(&json);
	reef_json_begin(&json, "alerts", REEF_JSON_ARRAY);
	for (uint32_t i = 0; i < ALERTS; i++) {
		const struct alert_row *row = &alerts[i];

		reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
		reef_json_string(&json, "name", row->name);
		write_expression(&json, "value", row->value, row->metric,
				 row->other);
		reef_json_string(&json, "bound", row->bound);
		reef_json_string(&json, "lasts", row->lasts);
		reef_json_string(&json, "severity", row->severity);
		reef_json_string(&json, "text", row->text);
		reef_json_end(&json);
	}
	reef_json_end(&json);
	reef_json_end(&json);
}
