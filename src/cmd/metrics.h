/* metrics.h - a pool as OpenMetrics: names, types, units and values.
 *
 * (1) Every name is in one table, with its type and its explanation; what is
 *     written is what the table says.
 * (2) Units are seconds and bytes. Labels are nodes and spaces, at most
 *     METRICS_LABELS_MAX of each; sessions and users are counted, not named.
 *
 * Thread: owner. */
#ifndef REEF_CMD_METRICS_H
#define REEF_CMD_METRICS_H

#include "cmd/http.h"
#include "pool/operator.h"

#include <stdio.h>

#define METRICS_LABELS_MAX 1000u

/* Write what the server's page says, and, where there is a broker to ask (op
 * not NULL), the pool. Ends with "# EOF". As reef_operator_call. */
int metrics_write(const struct http_page *page, uint64_t now_ns,
		  struct reef_operator *op, FILE *out);

#endif
