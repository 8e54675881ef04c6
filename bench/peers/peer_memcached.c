/* peer_memcached.c - keys in a memcached server, for `reef bench map`.
 *
 * The server is on a unix socket and nothing else, has memory for all keys, and
 * ends with this process. The client is ours: the text protocol, synchronous,
 * one write and one read an operation.
 *
 * Thread: owner. */
#include "map_work.h"
#include "server.h"

#include <sys/socket.h>
#include <sys/un.h>

#define LOAD 512u /* commands at once */
/* Bytes per key, generously: slabs, the items' heads and the table. */
#define MEGABYTES(keys) (256 + (keys) / (1u << 20) * 512)

#define GET "get ................\r\n"
#define GET_KEY 4
#define SET                                                                    \
	"set ................ 0 0 64\r\n"                                      \
	"................................................................\r\n"
#define SET_KEY 4
#define SET_VALUE 29
#define QUIET                                                                  \
	"set ................ 0 0 64 noreply\r\n"                              \
	"................................................................\r\n"
#define QUIET_VALUE 37
/* The head of the answer to a get that finds its key. */
#define FOUND "VALUE ................ 0 64\r\n"
#define FOUND_KEY 6
#define FOUND_SIZE (sizeof(FOUND) - 1 + MAP_VALUE + 2 + 5)
#define STORED "STORED\r\n"

struct theirs {
	int fd;
	struct map_state state;
	char get[sizeof(GET)], set[sizeof(SET)];
	char load[LOAD * (sizeof(QUIET) - 1)];
	uint32_t loading;
	char answer[4096];
	double bytes;
};

static struct theirs theirs;

/* --- operations --- */

static int send_text(const char *text, size_t size)
{
	ssize_t sent;

	for (; size; size -= (size_t)sent, text += sent) {
		sent = send(theirs.fd, text, size, MSG_NOSIGNAL);
		if (sent < 0)
			return -errno;
	}
	return 0;
}

/* Read until `size` bytes are there, or what is there ends in `end`. */
static int receive_text(size_t size, const char *end, size_t *got)
{
	size_t tail = strlen(end);
	ssize_t some;

	*got = 0;
	while (*got < size) {
		some = recv(theirs.fd, theirs.answer + *got,
			    sizeof(theirs.answer) - 1 - *got, 0);
		if (some <= 0)
			return some ? -errno : -EPIPE;
		*got += (size_t)some;
		theirs.answer[*got] = '\0';
		if (*got >= tail &&
		    !memcmp(theirs.answer + *got - tail, end, tail))
			break;
	}
	return 0;
}

workload_inline int theirs_get(void *context, const char *key, uint64_t *value)
{
	size_t got;
	int rc;

	(void)context;
	memcpy(theirs.get + GET_KEY, key, MAP_KEY);
	rc = send_text(theirs.get, sizeof(GET) - 1);
	rc = rc ? rc : receive_text(FOUND_SIZE, "END\r\n", &got);
	if (rc)
		return rc;
	if (got != FOUND_SIZE ||
	    memcmp(theirs.answer + FOUND_KEY, key, MAP_KEY) != 0)
		return -EILSEQ;
	memcpy(value, theirs.answer + sizeof(FOUND) - 1, MAP_VALUE);
	return 0;
}

workload_inline int theirs_put(void *context, const char *key,
			       const uint64_t *value)
{
	size_t got;
	int rc;

	(void)context;
	memcpy(theirs.set + SET_KEY, key, MAP_KEY);
	memcpy(theirs.set + SET_VALUE, value, MAP_VALUE);
	rc = send_text(theirs.set, sizeof(SET) - 1);
	rc = rc ? rc : receive_text(sizeof(STORED) - 1, "\r\n", &got);
	if (rc)
		return rc;
	return memcmp(theirs.answer, STORED, sizeof(STORED) - 1) ? -EPROTO : 0;
}

static const struct map_ops theirs_ops = {
	.get = theirs_get,
	.put = theirs_put,
	.clock = CLOCK_MONOTONIC,
};

/* --- loading --- */

static int load_flush(void)
{
	size_t size = theirs.loading * (sizeof(QUIET) - 1);

	theirs.loading = 0;
	return send_text(theirs.load, size);
}

static int load_add(void *context, const char *key, const uint64_t *value)
{
	char *at = theirs.load + theirs.loading * (sizeof(QUIET) - 1);

	(void)context;
	memcpy(at, QUIET, sizeof(QUIET) - 1);
	memcpy(at + SET_KEY, key, MAP_KEY);
	memcpy(at + QUIET_VALUE, value, MAP_VALUE);
	return ++theirs.loading == LOAD ? load_flush() : 0;
}

/* A number of the server's statistics. */
static double stat_of(const char *name)
{
	const char *at;
	size_t got;

	if (send_text("stats\r\n", 7) ||
	    receive_text(sizeof(theirs.answer) - 1, "END\r\n", &got))
		return 0;
	at = strstr(theirs.answer, name);
	return at ? strtod(at + strlen(name), NULL) : 0;
}

/* --- the driver --- */

static bool theirs_connect(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s",
		 server.socket);
	theirs.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (theirs.fd >= 0 &&
	    !connect(theirs.fd, (struct sockaddr *)&address, sizeof(address)))
		return true;
	close(theirs.fd);
	return false;
}

static int memcached_open(struct driver_pair *pair)
{
	uint64_t keys = pair->options.size / MAP_ENTRY;
	int rc = server_prepare(pair, "memcached");
	char megabytes[16];

	if (rc)
		return rc;
	snprintf(megabytes, sizeof(megabytes), "%llu",
		 (unsigned long long)MEGABYTES(keys));
	/* -u names the user that it becomes, where it may. */
	server_arguments((const char *const[]){
		"memcached", "-s", server.socket, "-t", "1", "-m", megabytes,
		getuid() ? NULL : "-u", "root", NULL});
	rc = server_start(pair, theirs_connect);
	if (rc)
		return rc;
	memcpy(theirs.get, GET, sizeof(GET));
	memcpy(theirs.set, SET, sizeof(SET));
	rc = map_state_init(&theirs.state, keys);
	rc = rc ? rc : map_load(keys, NULL, load_add);
	rc = rc ? rc : load_flush();
	if (rc)
		return driver_fail(pair, rc, "memcached: %s", strerror(-rc));
	if (stat_of("curr_items ") != (double)keys)
		return driver_fail(pair, -ENOSPC,
				   "memcached has not kept all keys");
	theirs.bytes = (stat_of("STAT bytes ") + stat_of("hash_bytes ")) /
		       (double)keys;
	snprintf(pair->description, sizeof(pair->description),
		 "memcached on a unix socket, one synchronous client; %.0f "
		 "bytes of items and table a key",
		 theirs.bytes);
	return 0;
}

static int memcached_run(struct driver_pair *pair, const char *name,
			 double seconds, double *rate)
{
	(void)pair;
	return map_run(&theirs_ops, NULL, &theirs.state, theirs.bytes, name,
		       seconds, rate);
}

static void memcached_close(struct driver_pair *pair)
{
	close(theirs.fd);
	free(theirs.state.ranks);
	kill(pair->target, SIGTERM);
}

static const struct driver memcached_driver = {
	.name = "memcached",
	.open = memcached_open,
	.run = memcached_run,
	.close = memcached_close,
};

int main(int argc, char **argv)
{
	return driver_main(&memcached_driver, argc, argv);
}
