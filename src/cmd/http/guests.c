/* guests.c - see guests.h.
 *
 * A connection is ended by shutting its socket down, which the daemon sees as
 * its end; the descriptor is closed by the daemon alone, after it has told us,
 * so what we shut down is still that connection. */
#include "cmd/http/guests.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SECOND UINT64_C(1000000000)
#define NAME_SIZE 256u
#define LOOK_MS 500 /* how often times are looked at while somebody is here */

enum doing { ASKS, IS_ANSWERED, WAITS };

struct guest {
	int fd; /* -1: it has left */
	enum doing doing;
	uint64_t since_ns;
};

struct guests {
	uint32_t most;
	const char *host;
	void (*wake)(void *context);
	void *context;
	char name[NAME_SIZE]; /* of this machine */
	/* Of all threads, with the lock. */
	pthread_mutex_t lock;
	uint32_t count;
	struct guest guests[];
};

struct guests *guests_create(uint32_t most, const char *host,
			     void (*wake)(void *context), void *context)
{
	struct guests *guests =
		calloc(1, sizeof(*guests) + most * sizeof(guests->guests[0]));

	if (!guests)
		return NULL;
	pthread_mutex_init(&guests->lock, NULL);
	guests->most = most;
	guests->host = host;
	guests->wake = wake;
	guests->context = context;
	gethostname(guests->name, sizeof(guests->name) - 1);
	for (uint32_t i = 0; i < most; i++)
		guests->guests[i].fd = -1;
	return guests;
}

/* --- who --- */

/* True if a name is this machine's, whole or without its domain. */
static bool is_own_name(const struct guests *guests, const char *name)
{
	const size_t size = strlen(name);

	return strcasecmp(name, "localhost") == 0 ||
	       strcasecmp(name, guests->host) == 0 ||
	       (strncasecmp(name, guests->name, size) == 0 &&
		(!guests->name[size] || guests->name[size] == '.'));
}

/* True if a Host is an address, or a name of this machine, with a port or
 * without. */
static bool is_own_host(const struct guests *guests, const char *given)
{
	const bool has_brackets = given[0] == '[';
	const char *start = given + has_brackets, *rest;
	struct in6_addr address;
	char host[NAME_SIZE];
	size_t size = strcspn(start, has_brackets ? "]" : ":");

	if (!size || size >= sizeof(host) || (has_brackets && !start[size]))
		return false;
	rest = start + size + has_brackets;
	if (*rest && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")]))
		return false;
	memcpy(host, start, size);
	host[size] = '\0';
	if (has_brackets)
		return inet_pton(AF_INET6, host, &address) == 1;
	return inet_pton(AF_INET, host, &address) == 1 ||
	       is_own_name(guests, host);
}

/* What a head says that we go by; NULL: nothing. */
enum said { HOST, ORIGIN, SITE, TARGET, AUTHORIZATION, BODY, SAID };

static const struct {
	const char *name;
	enum said said;
} said_by[] = {
	{"Host", HOST},
	{"Origin", ORIGIN},
	{"Sec-Fetch-Site", SITE},
	{"Sec-Fetch-Dest", TARGET},
	{"Authorization", AUTHORIZATION},
	{"Content-Length", BODY},
	{"Transfer-Encoding", BODY},
};

struct head {
	const char *values[SAID];
	bool is_twice; /* one of them */
};

static enum MHD_Result take_header(void *context, enum MHD_ValueKind kind,
				   const char *key, const char *value)
{
	struct head *head = context;
	const char **at;

	for (size_t i = 0; i < sizeof(said_by) / sizeof(said_by[0]); i++) {
		if (strcasecmp(key, said_by[i].name) != 0)
			continue;
		at = &head->values[said_by[i].said];
		head->is_twice |= *at != NULL;
		*at = value ? value : "";
	}
	return MHD_YES;
}

/* True if a browser says that the page of another server has it ask: only a
 * click that leads here is let through. Who is no browser says nothing of it,
 * and a browser says Sec-Fetch-Site only where it trusts the way to us. */
static bool is_strangers_page(const struct head *head)
{
	const char *origin = head->values[ORIGIN];
	const char *site = head->values[SITE], *target = head->values[TARGET];

	if (origin && strncmp(origin, "http", 4) == 0)
		origin += 4 + (origin[4] == 's');
	if (origin && (strncmp(origin, "://", 3) != 0 ||
		       strcasecmp(origin + 3, head->values[HOST]) != 0))
		return true;
	return site && strcmp(site, "same-origin") != 0 &&
	       strcmp(site, "none") != 0 &&
	       (!target || strcmp(target, "document") != 0);
}

const char *guest_check(const struct guests *guests,
			struct MHD_Connection *connection)
{
	struct head head = {0};

	MHD_get_connection_values(connection, MHD_HEADER_KIND, take_header,
				  &head);
	if (head.is_twice)
		return "This head says something twice.\n";
	if (!head.values[HOST] || !is_own_host(guests, head.values[HOST]))
		return "This Host is not served here.\n";
	if (is_strangers_page(&head))
		return "This is not for pages from elsewhere.\n";
	return NULL;
}

/* --- how long --- */

void guests_notify(void *context, struct MHD_Connection *connection, void **own,
		   enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct guests *guests = context;
	struct guest *guest = *own;

	pthread_mutex_lock(&guests->lock);
	if (what == MHD_CONNECTION_NOTIFY_CLOSED && guest) {
		guest->fd = -1;
		guests->count--;
	}
	for (uint32_t i = 0;
	     what == MHD_CONNECTION_NOTIFY_STARTED && info && i < guests->most;
	     i++) {
		guest = &guests->guests[i];
		if (guest->fd >= 0)
			continue;
		*guest = (struct guest){info->connect_fd, ASKS, reef_now_ns()};
		if (!guests->count++)
			guests->wake(guests->context);
		*own = guest;
		break;
	}
	pthread_mutex_unlock(&guests->lock);
}

static void set_doing(struct guests *guests, struct MHD_Connection *connection,
		      enum doing doing)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct guest *guest = info ? info->socket_context : NULL;

	if (!guest)
		return;
	pthread_mutex_lock(&guests->lock);
	guest->doing = doing;
	guest->since_ns = reef_now_ns();
	pthread_mutex_unlock(&guests->lock);
}

void guest_asks(struct guests *guests, struct MHD_Connection *connection)
{
	set_doing(guests, connection, ASKS);
}

void guest_is_answered(struct guests *guests, struct MHD_Connection *connection)
{
	set_doing(guests, connection, IS_ANSWERED);
}

void guest_waits(struct guests *guests, struct MHD_Connection *connection)
{
	set_doing(guests, connection, WAITS);
}

int guests_end_overdue(struct guests *guests)
{
	uint64_t most_ns[] = {[ASKS] = GUESTS_HEAD_S * SECOND,
			      [IS_ANSWERED] = GUESTS_ANSWER_S * SECOND,
			      [WAITS] = UINT64_MAX};
	uint64_t now_ns;
	int again_ms;

	pthread_mutex_lock(&guests->lock);
	/* Who came meanwhile would have been here for less than nothing. */
	now_ns = reef_now_ns();
	if (guests->count > guests->most / 2)
		most_ns[ASKS] = GUESTS_CROWDED_S * SECOND;
	for (uint32_t i = 0; i < guests->most; i++) {
		const struct guest *guest = &guests->guests[i];

		if (guest->fd >= 0 &&
		    now_ns - guest->since_ns > most_ns[guest->doing])
			shutdown(guest->fd, SHUT_RDWR);
	}
	again_ms = guests->count ? LOOK_MS : -1;
	pthread_mutex_unlock(&guests->lock);
	return again_ms;
}
