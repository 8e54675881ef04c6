/* metrics.h - a pool as OpenMetrics, by the table of metrics_table.h.
 *
 * Thread: owner. */
#ifndef REEF_CMD_HTTP_METRICS_H
#define REEF_CMD_HTTP_METRICS_H

#include "cmd/http/http.h"
#include "pool/operator.h"

#include <stdio.h>

/* Write what the server's page says, what HTTP itself counts, and, where there
 * is a broker to ask (op not NULL), the pool. Ends with "# EOF". As
 * reef_operator_call. */
int metrics_write(const struct http_page *page, const struct http_stats *stats,
		  uint64_t now_ns, struct reef_operator *op, FILE *out);

/* Write the table and the alerts as one JSON object. */
void metrics_write_table(FILE *out);

#endif
