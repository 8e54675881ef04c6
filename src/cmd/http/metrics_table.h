/* metrics_table.h - the one table of metrics, and what is made of it: what
 * /metrics writes, the panels of ops/grafana/reef.json and the rules of
 * ops/alerts.yml (tools/dashboards makes both of `reef http --table`).
 *
 * (1) A name stands here once. Expressions name metrics by their place in this
 *     table: '$' stands for the samples of the row, '@' for those of another.
 * (2) Units are seconds and bytes. Counters end with _total in samples.
 * (3) Labels are nodes and spaces, at most METRICS_LABELS_MAX of each, and
 * words of this program; sessions and users are counted, not named.
 *
 * Thread: any. */
#ifndef REEF_CMD_HTTP_METRICS_TABLE_H
#define REEF_CMD_HTTP_METRICS_TABLE_H

#include <stdio.h>

#define METRICS_LABELS_MAX 1000u

enum metric {
	BUILD,
	SERVER_ALIVE,
	SERVER_BEAT,
	SERVER_CPU,
	SERVER_RESIDENT,
	HTTP_REQUESTS,
	HTTP_REFUSED,
	HTTP_WATCHERS,
	HTTP_CONNECTIONS,
	HTTP_ASKED,
	HTTP_ASK_TIME,
	LENDER_CAPACITY,
	LENDER_LENT,
	LENDER_HUGE,
	LENDER_EXTENTS,
	LENDER_LINKS,
	LENDER_REGISTERED,
	POOL_EPOCH,
	POOL_CAPACITY,
	POOL_USED,
	POOL_LOST,
	BROKER_STARTS,
	BROKER_UPTIME,
	BROKER_EVENTS,
	BROKER_COMMITS,
	BROKER_COMMIT_TIME,
	BROKER_SLOW,
	BROKER_FENCES,
	BROKER_FENCE_FAILS,
	BROKER_ENDED,
	BROKER_LOST,
	BROKER_MOVED,
	BROKER_SHORTS,
	STUCK,
	OPERATIONS,
	READ_BYTES,
	WRITTEN_BYTES,
	RETRIES,
	IN_DOUBT,
	HITS,
	MISSES,
	DAMAGED,
	CALLS,
	NODES,
	NODE_CAPACITY,
	NODE_USED,
	NODE_EXTENTS,
	NODE_SILENT,
	NODE_FREE,
	NODE_OK,
	SPACES,
	SPACE_USED,
	SPACE_LOST,
	SPACE_QUOTA,
	SPACE_EXTENTS,
	EXTENTS,
	EXTENTS_SHORT,
	SESSIONS,
	SESSIONS_FABRIC,
	SESSIONS_AWAY,
	SESSIONS_WAITING,
	SESSIONS_HOLDING,
	SESSIONS_HOLD_MAX,
	SESSIONS_SILENT_MAX,
	SESSIONS_P99_MAX,
	USERS,
	METRICS_COUNT
};

struct metric_row {
	const char *name, *type, *unit, *help;
	/* Where a dashboard shows it, "Row/Panel", and by which expression;
	 * NULL: nowhere. */
	const char *panel, *shows;
};

extern const struct metric_row metric_rows[METRICS_COUNT];

struct alert_row {
	const char *name;
	enum metric metric, other; /* of '$' and '@' */
	const char *value, *bound; /* value and bound are the expression */
	const char *lasts;	   /* for so long, until it is one */
	const char *severity, *text;
};

/* Write the name of a metric's samples. */
void metric_put_sample(enum metric metric, FILE *out);

#endif
