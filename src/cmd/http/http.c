/* http.c - `reef http`, which `reef up`, `reef broker` and `reef node` start
 * beside themselves where --http says so (http.h).
 *
 * What it is asked for is kept for a second, as text. The main thread asks the
 * broker; the threads that serve tell it what is wanted, wait for a second at
 * the most, and then answer with what was known before, or that the broker does
 * not answer. So a broker that stands still holds up nobody for longer.
 *
 * Who is let in, and for how long, is guests.h. */
#include "cmd/http/http.h"

#include "cmd/http/guests.h"
#include "cmd/http/listen.h"
#include "cmd/http/metrics.h"
#include "cmd/http/orders.h"
#include "cmd/http/page.h"
#include "cmd/http/watch.h"
#include "cmd/operate.h"
#include "cmd/print/json.h"
#include "cmd/serve/child.h"
#include "cmd/view.h"

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <pthread.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define CONNECTIONS_MAX 128
#define THREADS 4
#define HEAD_MAX ((size_t)16384) /* and all else of a connection */
#define KEPT_NS SECOND		 /* how old an answer may be */
#define WORDS_MAX 60u		 /* flags that tell of the pool */
#define WAIT_NS SECOND		 /* how long a new one is waited for */
#define ASK_NS (2 * SECOND)	 /* how long the broker has for each */
#define STALE_NS (30 * SECOND)	 /* while there is none */

static const char usage[] =
	"usage: reef http --address HOST:PORT --page-fd N [OPTIONS]\n\n"
	"Serve metrics and status of a server. `reef up`, `reef broker` and "
	"`reef node`\nstart one by themselves where --http says so.\n";

/* What can be asked for of the broker. */
enum topic {
	METRICS,
	STATUS,
	NODES,
	SPACES,
	SESSIONS,
	EXTENTS,
	EVENTS,
	TOPICS
};

static const struct {
	const char *path, *type;
} topics[TOPICS] = {
#define API "/api/v1/"
#define JSON_TYPE "application/json"
	[METRICS] = {"/metrics", "application/openmetrics-text; "
				 "version=1.0.0; charset=utf-8"},
	[STATUS] = {API "status", JSON_TYPE},
	[NODES] = {API "nodes", JSON_TYPE},
	[SPACES] = {API "spaces", JSON_TYPE},
	[SESSIONS] = {API "sessions", JSON_TYPE},
	[EXTENTS] = {API "extents", JSON_TYPE},
	[EVENTS] = {API "events", JSON_TYPE},
};

/* An answer of the broker: sent by all who are asked for it, so that slow
 * readers have one text between them. */
struct answer {
	struct MHD_Response *response; /* NULL: there is none */
	uint64_t made_ns;
	int error; /* why the last attempt failed; 0: it did not */
};

struct http {
	const struct reef_settings *settings;
	const struct http_page *page;
	struct guests *guests;
	struct MHD_Daemon *daemon;
	struct reef_operator *op; /* the main thread's */
	int signal_fd, wake_fd;	  /* what the main thread waits for */
	struct watch *watch;
	struct orders *orders;
	struct http_stats stats;
	_Atomic uint64_t asking_ns; /* since when the broker is asked; or 0 */
	/* Of all threads, with the lock; `answered` tells of a new answer. */
	pthread_mutex_t lock;
	pthread_cond_t answered;
	uint32_t wanted; /* bits: topics to be asked for */
	struct answer answers[TOPICS];
};

/* --- asking the broker --- */

/* Note how many there are, for the metrics. */
static void note_crowd(struct http *http)
{
	const union MHD_DaemonInfo *info = MHD_get_daemon_info(
		http->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);

	atomic_store(&http->stats.connections,
		     info ? info->num_connections : 0);
	atomic_store(&http->stats.watchers, watch_count(http->watch));
}

static int write_topic(struct http *http, enum topic topic, FILE *out)
{
	struct reef_json json = {.stream = out};
	int rc;

	if (topic == METRICS)
		note_crowd(http);
	if (topic == METRICS)
		return metrics_write(http->page, &http->stats, reef_now_ns(),
				     http->op, out);
	if (topic == STATUS)
		return view_write_pool(http->op, &json);
	reef_json_begin(&json, NULL, REEF_JSON_OBJECT);
	switch (topic) {
	case NODES:
		rc = view_write_section(http->op, VIEW_NODES, &json);
		break;
	case SPACES:
		rc = view_write_section(http->op, VIEW_SPACES, &json);
		break;
	case SESSIONS:
		rc = view_write_section(http->op, VIEW_SESSIONS, &json);
		break;
	case EXTENTS:
		rc = view_write_extents(http->op, &json);
		break;
	default:
		rc = view_write_events(http->op, &json);
		break;
	}
	reef_json_end(&json);
	return rc;
}

/* What watchers see: the events, and then all that STATUS has. */
static int write_picture(struct http *http, FILE *out)
{
	struct reef_json json = {.stream = out};
	struct reef_answer answer = {0};
	int rc = reef_operator_call(http->op, REEF_POOL_STATUS, NULL, &answer);

	if (rc)
		return rc;
	rc = view_write_answer(http->op, &answer, &json);
	if (!rc)
		watch_take_events(http->watch, &answer);
	reef_answer_free(&answer);
	return rc;
}

/* Ask for a topic; TOPICS: a picture. The link is opened when it is first
 * needed, and again after it failed. */
static int ask_broker(struct http *http, enum topic topic, char **text,
		      size_t *size)
{
	const bool has_broker = atomic_load(&http->page->has_broker);
	uint64_t begun_ns;
	FILE *out;
	int rc = 0;

	if (!has_broker && topic != METRICS)
		return -ENOENT;
	if (has_broker && !http->op)
		rc = operate_connect_quietly(http->settings, ASK_NS, &http->op);
	if (rc)
		return rc;
	out = open_memstream(text, size);
	if (!out)
		return -ENOMEM;
	begun_ns = reef_now_ns();
	rc = topic == TOPICS ? write_picture(http, out)
			     : write_topic(http, topic, out);
	atomic_fetch_add(&http->stats.asked, 1);
	atomic_fetch_add(&http->stats.ask_ns, reef_now_ns() - begun_ns);
	if (fclose(out) && !rc)
		rc = -ENOMEM;
	if (!rc)
		return 0;
	free(*text);
	reef_operator_close(http->op);
	http->op = NULL;
	return rc;
}

/* The same, so that others see since when it takes. */
static int ask(struct http *http, enum topic topic, char **text, size_t *size)
{
	int rc;

	atomic_store(&http->asking_ns, reef_now_ns());
	rc = ask_broker(http, topic, text, size);
	atomic_store(&http->asking_ns, 0);
	return rc;
}

static void add_headers(struct MHD_Response *response, const char *type)
{
	MHD_add_response_header(response, "Content-Type", type);
	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Content-Security-Policy",
				"default-src 'none'");
	MHD_add_response_header(response, "Cross-Origin-Resource-Policy",
				"same-origin");
}

/* Make a response of a text, which is taken over if `is_owned`, and otherwise
 * copied. NULL: there is no memory. */
static struct MHD_Response *make_response(const char *type, const char *text,
					  size_t size, bool is_owned)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(
		size, (void *)(uintptr_t)text,
		is_owned ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_MUST_COPY);

	if (response)
		add_headers(response, type);
	return response;
}

/* Ask for a topic, and make a response of what the broker says. */
static struct answer make_answer(struct http *http, enum topic topic)
{
	struct answer made = {0};
	char *text = NULL;
	size_t size = 0;

	made.error = ask(http, topic, &text, &size);
	if (!made.error) {
		made.response =
			make_response(topics[topic].type, text, size, true);
		if (!made.response) {
			free(text);
			made.error = -ENOMEM;
		}
	}
	made.made_ns = reef_now_ns();
	return made;
}

/* Answer what is wanted. */
static void serve_wishes(struct http *http)
{
	for (uint32_t i = 0; i < TOPICS; i++) {
		struct answer *answer = &http->answers[i];
		struct answer made;
		bool is_wanted;

		pthread_mutex_lock(&http->lock);
		is_wanted = http->wanted & 1u << i;
		http->wanted &= ~(1u << i);
		pthread_mutex_unlock(&http->lock);
		if (!is_wanted)
			continue;
		made = make_answer(http, (enum topic)i);
		pthread_mutex_lock(&http->lock);
		/* Who is still sending the old one has a reference. */
		if (answer->response)
			MHD_destroy_response(answer->response);
		*answer = made;
		pthread_cond_broadcast(&http->answered);
		pthread_mutex_unlock(&http->lock);
	}
}

/* Wake the main thread; a write that fails means that it is awake. */
static void wake_main(void *context)
{
	const struct http *http = context;
	const uint64_t one = 1;

	(void)!write(http->wake_fd, &one, sizeof(one));
}

/* Show watchers the pool, if that is due. Milliseconds until it is again. */
static int serve_watchers(struct http *http)
{
	uint64_t due_ns = watch_due_ns(http->watch), now_ns = reef_now_ns();
	char *text = NULL;
	size_t size = 0;
	int rc;

	if (due_ns <= now_ns) {
		rc = ask(http, TOPICS, &text, &size);
		if (rc)
			watch_show_trouble(http->watch, rc);
		else
			watch_show(http->watch, text, size);
		due_ns = watch_due_ns(http->watch);
		now_ns = reef_now_ns();
	}
	if (due_ns == UINT64_MAX)
		return -1;
	return due_ns > now_ns ? (int)((due_ns - now_ns) / 1000000) + 1 : 0;
}

/* Serve wishes and watchers until a signal comes. */
static void ask_until_signal(struct http *http)
{
	struct pollfd fds[] = {{.fd = http->signal_fd, .events = POLLIN},
			       {.fd = http->wake_fd, .events = POLLIN}};
	uint64_t count;
	int guests_ms, watchers_ms;

	for (;;) {
		guests_ms = guests_end_overdue(http->guests);
		watchers_ms = serve_watchers(http);
		/* -1, forever, is the largest of unsigned numbers. */
		if (poll(fds, 2,
			 (unsigned int)guests_ms < (unsigned int)watchers_ms
				 ? guests_ms
				 : watchers_ms) < 0)
			continue;
		if (fds[0].revents)
			return;
		if (read(http->wake_fd, &count, sizeof(count)) > 0)
			serve_wishes(http);
	}
}

/* With the lock held: see that an answer is fresh, or wait for it, at most a
 * second from when the broker was asked for whatever it was: so one that stands
 * still holds up a thread once, and not for each who asks. */
static void freshen(struct http *http, enum topic topic)
{
	const struct answer *answer = &http->answers[topic];
	const uint64_t now_ns = reef_now_ns(), one = 1;
	const uint64_t asking_ns = atomic_load(&http->asking_ns);
	const uint64_t until_ns = (asking_ns ? asking_ns : now_ns) + WAIT_NS;
	const struct timespec until = {
		.tv_sec = (time_t)(until_ns / SECOND),
		.tv_nsec = (long)(until_ns % SECOND),
	};
	int rc = 0;

	if (answer->made_ns && now_ns - answer->made_ns < KEPT_NS)
		return;
	http->wanted |= 1u << topic;
	if (write(http->wake_fd, &one, sizeof(one)) < 0)
		return; /* it is awake, and comes to this */
	while (!rc && answer->made_ns < now_ns)
		rc = pthread_cond_clockwait(&http->answered, &http->lock,
					    CLOCK_MONOTONIC, &until);
}

/* --- answering --- */

static enum MHD_Result say(struct MHD_Connection *connection,
			   unsigned int status, const char *text)
{
	struct MHD_Response *response = make_response(
		"text/plain; charset=utf-8", text, strlen(text), false);
	enum MHD_Result sent;

	if (!response)
		return MHD_NO;
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, "Allow", "GET, HEAD");
	if (status == MHD_HTTP_SERVICE_UNAVAILABLE)
		MHD_add_response_header(response, "Retry-After", "1");
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	sent = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return sent;
}

/* What the server tells of itself, while nobody tells of the pool. */
static enum MHD_Result reply_own_metrics(struct http *http,
					 struct MHD_Connection *connection)
{
	struct MHD_Response *response = NULL;
	enum MHD_Result sent = MHD_NO;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return MHD_NO;
	note_crowd(http);
	metrics_write(http->page, &http->stats, reef_now_ns(), NULL, out);
	if (!fclose(out))
		response =
			make_response(topics[METRICS].type, text, size, false);
	free(text);
	if (response)
		sent = MHD_queue_response(connection, MHD_HTTP_OK, response);
	if (response)
		MHD_destroy_response(response);
	return sent;
}

static enum MHD_Result reply_topic(struct http *http,
				   struct MHD_Connection *connection,
				   enum topic topic)
{
	/* Figures of a moment that is over would be taken for new ones. */
	const uint64_t most_ns =
		topic == METRICS ? KEPT_NS + WAIT_NS : STALE_NS;
	struct answer *answer = &http->answers[topic];
	enum MHD_Result sent;
	char why[160];

	pthread_mutex_lock(&http->lock);
	freshen(http, topic);
	if (answer->response && reef_now_ns() - answer->made_ns < most_ns) {
		sent = MHD_queue_response(connection, MHD_HTTP_OK,
					  answer->response);
	} else if (topic == METRICS) {
		sent = reply_own_metrics(http, connection);
	} else if (answer->error == -ENOENT &&
		   !atomic_load(&http->page->has_broker)) {
		sent = say(connection, MHD_HTTP_NOT_FOUND,
			   "This is a node: ask its broker.\n");
	} else {
		snprintf(why, sizeof(why), "The broker does not answer: %s\n",
			 answer->error ? reef_error_text(answer->error)
				       : "it is being asked");
		sent = say(connection, MHD_HTTP_SERVICE_UNAVAILABLE, why);
	}
	pthread_mutex_unlock(&http->lock);
	return sent;
}

static enum MHD_Result reply_watch(struct http *http,
				   struct MHD_Connection *connection)
{
	const char *last_id = MHD_lookup_connection_value(
		connection, MHD_HEADER_KIND, "Last-Event-ID");
	struct MHD_Response *response;
	enum MHD_Result sent;
	int rc;

	if (!atomic_load(&http->page->has_broker))
		return say(connection, MHD_HTTP_NOT_FOUND,
			   "This is a node: ask its broker.\n");
	rc = watch_begin(http->watch, connection, last_id, &response);
	if (rc == -EINVAL)
		return say(connection, MHD_HTTP_BAD_REQUEST,
			   "This Last-Event-ID is not from here.\n");
	if (rc)
		return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
			   "There are too many watchers.\n");
	guest_waits(http->guests, connection);
	add_headers(response, "text/event-stream");
	sent = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return sent;
}

/* True if the loop of the server turns. */
static bool is_alive(const struct http *http)
{
	const uint64_t beat_ns = atomic_load(&http->page->beat_ns);
	const uint64_t now_ns = reef_now_ns();

	return now_ns < beat_ns || now_ns - beat_ns <= HTTP_BEAT_MAX_NS;
}

static enum MHD_Result reply_health(const struct http *http,
				    struct MHD_Connection *connection,
				    bool with_broker)
{
	if (!is_alive(http))
		return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
			   "The server stands still.\n");
	if (with_broker && atomic_load(&http->page->has_node) &&
	    atomic_load(&http->page->link))
		return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
			   "The node has no broker.\n");
	return say(connection, MHD_HTTP_OK, "ok\n");
}

/* Answer with what became of an order. */
static enum MHD_Result reply_order(struct MHD_Connection *connection,
				   const struct order *order)
{
	struct MHD_Response *response;
	enum MHD_Result sent;
	const char *text;
	size_t size;
	int status = order_status(order, &text, &size);

	response = make_response(
		status == MHD_HTTP_OK ? JSON_TYPE : "text/plain; charset=utf-8",
		text, size, false);
	if (!response)
		return MHD_NO;
	if (status == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
	sent = MHD_queue_response(connection, (unsigned int)status, response);
	MHD_destroy_response(response);
	return sent;
}

/* Go on with an order: its request comes in, whose body is not looked at; then
 * it waits, then it is answered. */
static enum MHD_Result go_on(struct http *http,
			     struct MHD_Connection *connection,
			     struct order *order, size_t *upload_size)
{
	const size_t body = *upload_size;

	*upload_size = 0;
	if (body)
		return order_take_body(order, body) ? MHD_YES : MHD_NO;
	if (order_is_submitted(order)) {
		guest_is_answered(http->guests, connection);
		return reply_order(connection, order);
	}
	/* Whoever resumes it, this thread goes on with it. */
	if (order_submit(http->orders, order)) {
		guest_waits(http->guests, connection);
		return MHD_YES;
	}
	guest_is_answered(http->guests, connection);
	atomic_fetch_add(&http->stats.refused, 1);
	return say(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
		   "There are too many orders.\n");
}

/* Begin an order, if the request is one. False: it is not. */
static bool begin_order(struct http *http, struct MHD_Connection *connection,
			const char *method, const char *url, void **state,
			enum MHD_Result *sent)
{
	struct order *order = NULL;
	const char *why;
	int status = order_parse(connection, method, url, &order, &why);

	if (status < 0)
		return false;
	*state = order;
	*sent = MHD_YES;
	if (status) {
		atomic_fetch_add(&http->stats.refused, 1);
		*sent = say(connection, (unsigned int)status, why);
	}
	return true;
}

/* The state of a request whose path is not what it seems. */
static char cut_path;

static void end_request(void *context, struct MHD_Connection *connection,
			void **state, enum MHD_RequestTerminationCode how)
{
	const struct http *http = context;

	if (*state != &cut_path)
		order_free(*state);
	*state = NULL;
	guest_asks(http->guests, connection);
}

/* Look at a path as it was sent: what we are given ends at the first NUL that
 * somebody wrote as %00. Those of keys are order_parse's. */
static void *note_path(void *context, const char *uri,
		       struct MHD_Connection *connection)
{
	const char *nul = strstr(uri, "%00");

	return nul && nul < uri + strcspn(uri, "?") ? &cut_path : NULL;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *connection,
			      const char *url, const char *method,
			      const char *version, const char *upload,
			      size_t *upload_size, void **state)
{
	struct MHD_Response *part;
	struct http *http = context;
	enum MHD_Result sent;
	const char *why;

	if (*state == &cut_path)
		return say(connection, MHD_HTTP_BAD_REQUEST,
			   "A path has no NUL.\n");
	if (*state)
		return go_on(http, connection, *state, upload_size);
	atomic_fetch_add(&http->stats.requests, 1);
	why = guest_check(http->guests, connection);
	if (why) {
		atomic_fetch_add(&http->stats.refused, 1);
		return say(connection, MHD_HTTP_FORBIDDEN, why);
	}
	if (atomic_load(&http->page->has_broker) &&
	    begin_order(http, connection, method, url, state, &sent))
		return sent;
	guest_is_answered(http->guests, connection);
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return say(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
			   "Only GET and HEAD.\n");
	if (strcmp(url, "/health") == 0)
		return reply_health(http, connection, false);
	if (strcmp(url, "/ready") == 0)
		return reply_health(http, connection, true);
	if (strcmp(url, "/events") == 0)
		return reply_watch(http, connection);
	for (uint32_t i = 0; i < TOPICS; i++)
		if (strcmp(url, topics[i].path) == 0)
			return reply_topic(http, connection, (enum topic)i);
	part = page_make_response(url);
	if (part) {
		sent = MHD_queue_response(connection, MHD_HTTP_OK, part);
		MHD_destroy_response(part);
		return sent;
	}
	return say(connection, MHD_HTTP_NOT_FOUND, "There is no such page.\n");
}

/* --- starting --- */

static int map_page(const char *fd_text, const struct http_page **out)
{
	struct stat status;
	void *page;
	int fd = atoi(fd_text);

	if (fstat(fd, &status) ||
	    status.st_size < (off_t)sizeof(struct http_page))
		return -EINVAL;
	page = mmap(NULL, sizeof(struct http_page), PROT_READ, MAP_SHARED, fd,
		    0);
	if (page == MAP_FAILED)
		return -errno;
	*out = page;
	return 0;
}

static int start_daemon(struct http *http, int fd)
{
	http->daemon = MHD_start_daemon(
		MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0,
		NULL, NULL, handle, http, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_THREAD_POOL_SIZE, (unsigned int)THREADS,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned int)CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned int)GUESTS_HEAD_S,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEAD_MAX,
		MHD_OPTION_NOTIFY_COMPLETED, end_request, http,
		MHD_OPTION_URI_LOG_CALLBACK, note_path, NULL,
		MHD_OPTION_NOTIFY_CONNECTION, guests_notify, http->guests,
		MHD_OPTION_END);
	return http->daemon ? 0 : -EIO;
}

static int serve_http(const struct reef_settings *settings, const char *address,
		      const char *page_fd, const char *ready_fd,
		      const char *const *words)
{
	struct http http = {.lock = PTHREAD_MUTEX_INITIALIZER,
			    .answered = PTHREAD_COND_INITIALIZER};
	char host[256];
	sigset_t set;
	int fd, rc;

	child_block_signals(&set);
	http.signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	http.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (http.signal_fd < 0 || http.wake_fd < 0)
		return operate_failed("http", "descriptors", -errno);
	http.settings = settings;
	rc = map_page(page_fd, &http.page);
	if (rc)
		return operate_failed("http", "--page-fd", rc);
	fd = listen_at(address, CONNECTIONS_MAX, host, sizeof(host));
	if (fd < 0)
		return operate_failed("http", address, fd);
	http.guests = guests_create(CONNECTIONS_MAX, host, wake_main, &http);
	http.watch = watch_create(wake_main, &http);
	http.orders = orders_start(settings, words);
	rc = http.guests && http.watch && http.orders ? start_daemon(&http, fd)
						      : -ENOMEM;
	if (rc)
		return operate_failed("http", address, rc);
	listen_tell_ready(fd, ready_fd);
	ask_until_signal(&http);
	watch_end(http.watch);
	orders_end(http.orders);
	MHD_stop_daemon(http.daemon);
	reef_operator_close(http.op);
	return 0;
}

/* The flags that we were given to find the pool by, for another command: all
 * but our own, which have a value each. */
static void keep_words(int argc, char **argv, const char **out)
{
	static const char *const own[] = {"--address", "--page-fd",
					  "--ready-fd"};
	uint32_t count = 0;
	bool is_own;

	for (int i = 1; i < argc && count < WORDS_MAX; i++) {
		is_own = false;
		for (uint32_t j = 0; j < 3; j++)
			is_own |= strcmp(argv[i], own[j]) == 0;
		if (is_own)
			i++;
		else
			out[count++] = argv[i];
	}
	out[count] = NULL;
}

int cmd_http(int argc, char **argv)
{
	const char *words[WORDS_MAX + 1];
	const char *address = NULL, *page_fd = NULL, *ready_fd = NULL;
	bool table = false;
	const struct reef_config_flag flags[] = {
		{"address", "HOST:PORT", "where to listen", NULL, &address},
		{"page-fd", "N", "the page of the server", NULL, &page_fd},
		{"ready-fd", "N", "write a line there once it is open", NULL,
		 &ready_fd},
		{"table", NULL, "print all metrics and alerts as JSON, and end",
		 &table, NULL},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_CLIENT,
		.flags = flags,
	};
	struct reef_settings settings;
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	keep_words(argc, argv, words);
	if (table) {
		metrics_write_table(stdout);
		rc = 0;
	} else if (!address || !page_fd ||
		   reef_config_rest_count(settings.config)) {
		rc = cmd_usage_error(argv[0],
				     "--address and --page-fd, and no more");
	} else {
		rc = serve_http(&settings, address, page_fd, ready_fd, words);
	}
	reef_settings_fini(&settings);
	return rc;
}
