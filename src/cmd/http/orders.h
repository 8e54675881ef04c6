/* orders.h - what is done for a request of HTTP that takes longer than a look:
 * an operator's order, by POST; or what explains a key.
 *
 *	POST /api/v1/nodes/NODE/drain		as `reef node drain NODE`
 *	POST /api/v1/sessions/SESSION/fence	as `reef session end SESSION`
 *	POST /api/v1/spaces/SPACE/revoke	as `reef space revoke SPACE`
 *	GET  /api/v1/explain?space=&map=&key=	as `reef map explain`
 *
 * (1) Whoever orders proves who they are as on the command line: by a
 *     credential, here as "Authorization: Bearer reef-user-...". The broker
 *     judges it, over a link that is opened with it: we do nothing in our own
 *     name.
 * (2) One is done at a time, by a thread of its own, while its connection is
 *     suspended; ORDERS_MAX wait at the most, of them ORDERS_MAX / 2 to have a
 *     key explained, and of these five are done in a second: each is a session
 *     of the pool. Orders go first.
 * (3) A key is explained by a process of its own: what it holds in the pool
 *goes with it.
 *
 * Thread: any. */
#ifndef REEF_CMD_HTTP_ORDERS_H
#define REEF_CMD_HTTP_ORDERS_H

#include <stdbool.h>
#include <stddef.h>

#define ORDERS_MAX 8u

struct MHD_Connection;
struct order;
struct orders;
struct reef_settings;

/* words: flags of this program that tell it the pool, to NULL. The thread is
 * started. NULL: there is no memory. */
struct orders *orders_start(const struct reef_settings *settings,
			    const char *const *words);
/* Finish what is under way, and end the thread; before the daemon is stopped.
 */
void orders_end(struct orders *orders);

/* What a request asks for. 0: *out is an order, to be given to order_submit
 * once the request has come in whole.  Else: the status to answer with, and
 * *why. -1: it is not one of these paths. */
int order_parse(struct MHD_Connection *connection, const char *method,
		const char *url, struct order **out, const char **why);
/* Note so many bytes of its body, which is not looked at. False: that is too
 * much. */
bool order_take_body(struct order *order, size_t size);
/* Suspend the connection until it is done. False: there are too many. */
bool order_submit(struct orders *orders, struct order *order);
bool order_is_submitted(const struct order *order);
/* Of one that is done: the status, and what is to be said, JSON if it is 200.
 */
int order_status(const struct order *order, const char **text, size_t *size);
void order_free(struct order *order); /* NULL is fine */

#endif
