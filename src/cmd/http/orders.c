/* orders.c - see orders.h.
 *
 *	parse --> submit: WAITING --(the thread)--> DONE, resumed --> free
 */
#include "cmd/http/orders.h"

#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "cmd/run.h"

#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECOND UINT64_C(1000000000)
#define EXPLAIN_PAUSE_NS (SECOND / 5)
#define EXPLAIN_MAX_NS (5 * SECOND)
#define NAME_MAX_SIZE 300u
#define BODY_MAX 65536u
#define BEARER "Bearer "

enum verb_kind { DRAIN, FENCE, REVOKE, EXPLAIN };

static const struct path {
	const char *before, *after, *done, *what;
	enum reef_row_kind row;
} paths[] = {
	[DRAIN] = {"/api/v1/nodes/", "/drain", "drain", "node", REEF_ROW_NODE},
	[FENCE] = {"/api/v1/sessions/", "/fence", "fence", "session",
		   REEF_ROW_SESSION},
	[REVOKE] = {"/api/v1/spaces/", "/revoke", "revoke", "space",
		    REEF_ROW_SPACE},
};
#define EXPLAIN_PATH "/api/v1/explain"

struct order {
	enum verb_kind verb;
	struct MHD_Connection *connection;
	struct orders *orders; /* NULL: it was not submitted */
	struct order *next;
	char name[NAME_MAX_SIZE];
	char token[REEF_KEY_TEXT_SIZE];
	char *asked[3]; /* EXPLAIN: space, map, key */
	size_t body;
	int status; /* 0: it is not done */
	char *text;
	size_t size;
};

struct orders {
	const struct reef_settings *settings;
	const char *const *words;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct order *waiting; /* the oldest first */
	uint32_t count, explains;
	bool is_over;
	uint64_t explained_ns;
};

/* --- requests --- */

void order_free(struct order *order)
{
	if (!order)
		return;
	for (uint32_t i = 0; i < 3; i++)
		free(order->asked[i]);
	free(order->text);
	explicit_bzero(order->token, sizeof(order->token));
	free(order);
}

/* Take the credential of a request. 0, or the status to answer with. */
static int take_token(struct MHD_Connection *connection, struct order *order,
		      const char **why)
{
	const char *given = MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, "Authorization");

	if (!given || strncasecmp(given, BEARER, strlen(BEARER)) != 0) {
		*why = "Orders need a credential: Authorization: Bearer "
		       "reef-user-...\n";
		return MHD_HTTP_UNAUTHORIZED;
	}
	given += strlen(BEARER);
	if (strlen(given) >= sizeof(order->token)) {
		*why = "This is not a credential.\n";
		return MHD_HTTP_UNAUTHORIZED;
	}
	snprintf(order->token, sizeof(order->token), "%s", given);
	return 0;
}

static int take_order(struct MHD_Connection *connection, const char *url,
		      struct order *order, const char **why)
{
	const size_t size = strlen(url);

	for (uint32_t i = DRAIN; i < EXPLAIN; i++) {
		const size_t before = strlen(paths[i].before);
		const size_t after = strlen(paths[i].after);

		if (size <= before + after ||
		    strncmp(url, paths[i].before, before) != 0 ||
		    strcmp(url + size - after, paths[i].after) != 0)
			continue;
		if (size - before - after >= sizeof(order->name)) {
			*why = "That name is too long.\n";
			return MHD_HTTP_BAD_REQUEST;
		}
		order->verb = (enum verb_kind)i;
		snprintf(order->name, sizeof(order->name), "%.*s",
			 (int)(size - before - after), url + before);
		return take_token(connection, order, why);
	}
	return -1;
}

static int take_explain(struct MHD_Connection *connection, struct order *order,
			const char **why)
{
	static const char *const names[3] = {"space", "map", "key"};
	const char *value;
	size_t size;

	order->verb = EXPLAIN;
	for (uint32_t i = 0; i < 3; i++) {
		if (MHD_lookup_connection_value_n(
			    connection, MHD_GET_ARGUMENT_KIND, names[i],
			    strlen(names[i]), &value, &size) != MHD_YES ||
		    !value || !size || memchr(value, 0, size)) {
			*why = "Say ?space=SPACE&map=MAP&key=KEY.\n";
			return MHD_HTTP_BAD_REQUEST;
		}
		order->asked[i] = strndup(value, size);
		if (!order->asked[i])
			return MHD_HTTP_SERVICE_UNAVAILABLE;
	}
	return 0;
}

int order_parse(struct MHD_Connection *connection, const char *method,
		const char *url, struct order **out, const char **why)
{
	struct order *order = calloc(1, sizeof(*order));
	const bool is_explain = strcmp(url, EXPLAIN_PATH) == 0;
	int status = -1;

	*why = "There is no memory for this now.\n";
	if (!order)
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	order->connection = connection;
	if (is_explain &&
	    (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0))
		status = take_explain(connection, order, why);
	else if (!is_explain && strcmp(method, "POST") == 0)
		status = take_order(connection, url, order, why);
	if (status)
		order_free(order);
	else
		*out = order;
	return status;
}

bool order_take_body(struct order *order, size_t size)
{
	order->body += size;
	return order->body <= BODY_MAX;
}

bool order_submit(struct orders *orders, struct order *order)
{
	const bool is_explain = order->verb == EXPLAIN;
	struct order **at = &orders->waiting;
	bool has_room;

	pthread_mutex_lock(&orders->lock);
	has_room = !orders->is_over && orders->count < ORDERS_MAX &&
		   (!is_explain || orders->explains < ORDERS_MAX / 2);
	if (has_room) {
		/* Orders go before what is to be explained. */
		while (*at && (is_explain || (*at)->verb != EXPLAIN))
			at = &(*at)->next;
		order->next = *at;
		*at = order;
		order->orders = orders;
		orders->count++;
		orders->explains += is_explain;
		MHD_suspend_connection(order->connection);
		pthread_cond_signal(&orders->changed);
	}
	pthread_mutex_unlock(&orders->lock);
	return has_room;
}

bool order_is_submitted(const struct order *order)
{
	return order->orders;
}

int order_status(const struct order *order, const char **text, size_t *size)
{
	*text = order->text ? order->text : "";
	*size = order->size;
	return order->status;
}

/* --- doing them --- */

/* Note how an order ended. An answer without memory is an empty one. */
static void conclude(struct order *order, int status, const char *format,
		     const char *what)
{
	int size = asprintf(&order->text, format, what);

	if (size < 0)
		order->text = NULL;
	order->size = size < 0 ? 0 : (size_t)size;
	order->status = status;
}

static void conclude_failed(struct order *order, int rc)
{
	switch (rc) {
	case -REEF_EAUTH:
		conclude(order, MHD_HTTP_FORBIDDEN, "%s",
			 "The pool does not take this credential: it was "
			 "revoked, or is another pool's.\n");
		break;
	case -EPERM:
	case -EACCES:
		conclude(order, MHD_HTTP_FORBIDDEN, "%s",
			 "This user may not do that.\n");
		break;
	case -ENOENT:
		conclude(order, MHD_HTTP_NOT_FOUND, "There is no such %s.\n",
			 paths[order->verb].what);
		break;
	case -EBUSY:
		conclude(order, MHD_HTTP_CONFLICT, "%s",
			 "That is not possible now.\n");
		break;
	case -ETIMEDOUT:
		conclude(order, MHD_HTTP_GATEWAY_TIMEOUT, "%s",
			 "The broker does not answer; it may have been "
			 "done.\n");
		break;
	default:
		conclude(order, MHD_HTTP_BAD_GATEWAY,
			 "The broker did not do it: %s\n", reef_error_text(rc));
		break;
	}
}

static int give_order(struct reef_operator *op, const struct order *order)
{
	struct reef_body body = {0};
	uint32_t number;
	int rc = operate_look_up(op, paths[order->verb].row, order->name,
				 &number);

	if (rc)
		return rc;
	switch (order->verb) {
	case DRAIN:
		body.ask.node_drain.node = number;
		return reef_operator_call(op, REEF_POOL_NODE_DRAIN, &body,
					  NULL);
	case FENCE:
		body.ask.session_end.session = number;
		return reef_operator_call(op, REEF_POOL_SESSION_END, &body,
					  NULL);
	default:
		body.ask.space_revoke.space = number;
		return reef_operator_call(op, REEF_POOL_SPACE_REVOKE, &body,
					  NULL);
	}
}

/* Write what was done, as JSON. */
static void conclude_done(struct order *order)
{
	struct reef_json json = {
		.stream = open_memstream(&order->text, &order->size)};

	order->status = MHD_HTTP_OK;
	if (!json.stream)
		return;
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	reef_json_string(&json, "done", paths[order->verb].done);
	reef_json_string(&json, paths[order->verb].what, order->name);
	reef_json_end(&json);
	fclose(json.stream);
}

static void run_order(const struct orders *orders, struct order *order)
{
	struct reef_credential credential;
	struct reef_operator *op;
	int rc;

	if (reef_credential_parse(order->token, &credential)) {
		conclude(order, MHD_HTTP_UNAUTHORIZED, "%s",
			 "This is not a credential.\n");
		return;
	}
	rc = operate_connect_as(orders->settings, &credential, &op);
	reef_key_wipe(&credential.key);
	if (!rc) {
		rc = give_order(op, order);
		reef_operator_close(op);
	}
	if (rc)
		conclude_failed(order, rc);
	else
		conclude_done(order);
}

/* Have a process explain a key. */
static void run_explain(const struct orders *orders, struct order *order)
{
	const char *words[RUN_WORDS_MAX];
	uint32_t count = 0;
	int rc;

	words[count++] = "reef";
	words[count++] = "map";
	words[count++] = "explain";
	for (uint32_t i = 0; orders->words[i]; i++)
		if (count < RUN_WORDS_MAX - 6)
			words[count++] = orders->words[i];
	words[count++] = "--json";
	words[count++] = "--";
	for (uint32_t i = 0; i < 3; i++)
		words[count++] = order->asked[i];
	words[count] = NULL;
	rc = run_and_read(words, EXPLAIN_MAX_NS, &order->text, &order->size);
	order->status = rc == 0		   ? MHD_HTTP_OK
			: rc == -ETIMEDOUT ? MHD_HTTP_GATEWAY_TIMEOUT
			: rc < 0	   ? MHD_HTTP_SERVICE_UNAVAILABLE
					   : MHD_HTTP_NOT_FOUND;
}

/* With the lock held: wait for an order that is due. NULL: that was all. */
static struct order *take_next(struct orders *orders)
{
	struct order *order;
	struct timespec until;
	uint64_t due_ns;

	for (;;) {
		order = orders->waiting;
		if (!order && orders->is_over)
			return NULL;
		due_ns = orders->explained_ns + EXPLAIN_PAUSE_NS;
		if (order && (order->verb != EXPLAIN || orders->is_over ||
			      reef_now_ns() >= due_ns))
			break;
		until.tv_sec = (time_t)(due_ns / SECOND);
		until.tv_nsec = (long)(due_ns % SECOND);
		if (order)
			pthread_cond_clockwait(&orders->changed, &orders->lock,
					       CLOCK_MONOTONIC, &until);
		else
			pthread_cond_wait(&orders->changed, &orders->lock);
	}
	orders->waiting = order->next;
	return order;
}

static void *orders_main(void *context)
{
	struct orders *orders = context;
	struct order *order;
	bool is_explain;

	pthread_mutex_lock(&orders->lock);
	while ((order = take_next(orders))) {
		is_explain = order->verb == EXPLAIN;
		pthread_mutex_unlock(&orders->lock);
		if (is_explain)
			run_explain(orders, order);
		else
			run_order(orders, order);
		pthread_mutex_lock(&orders->lock);
		if (is_explain)
			orders->explained_ns = reef_now_ns();
		orders->count--;
		orders->explains -= is_explain;
		/* From here on it is its connection's, which may free it. */
		MHD_resume_connection(order->connection);
	}
	pthread_mutex_unlock(&orders->lock);
	return NULL;
}

struct orders *orders_start(const struct reef_settings *settings,
			    const char *const *words)
{
	struct orders *orders = calloc(1, sizeof(*orders));

	if (!orders)
		return NULL;
	orders->settings = settings;
	orders->words = words;
	pthread_mutex_init(&orders->lock, NULL);
	pthread_cond_init(&orders->changed, NULL);
	if (pthread_create(&orders->thread, NULL, orders_main, orders)) {
		free(orders);
		return NULL;
	}
	return orders;
}

void orders_end(struct orders *orders)
{
	pthread_mutex_lock(&orders->lock);
	orders->is_over = true;
	pthread_cond_signal(&orders->changed);
	pthread_mutex_unlock(&orders->lock);
	pthread_join(orders->thread, NULL);
}
