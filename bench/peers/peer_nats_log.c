/* peer_nats_log.c - a stream of NATS JetStream in memory, for `reef bench log`.
 *
 * nats-server listens on the loopback alone, as it knows no unix sockets; the
 * client publishes synchronously: each waits for the stream's answer.
 *
 * Thread: owner. */
#include "log_work.h"
#include "server.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <nats/nats.h>
#include <sys/socket.h>

#define STREAM_BYTES (INT64_C(256) << 20)

static char port[16], url[64];
static natsConnection *connection;
static jsCtx *stream;

static int theirs_begin(void *context)
{
	(void)context;
	return js_PurgeStream(stream, "LOG", NULL, NULL) == NATS_OK ? 0
								    : -EPROTO;
}

static int theirs_append(void *context, const char *bytes, size_t size)
{
	natsStatus rc =
		js_Publish(NULL, stream, "log", bytes, (int)size, NULL, NULL);

	(void)context;
	return rc == NATS_OK ? 0 : -EPROTO;
}

static const struct log_ops theirs_ops = {
	.begin = theirs_begin,
	.append = theirs_append,
	.clock = CLOCK_MONOTONIC,
};

/* --- the driver --- */

/* A port that was free a moment ago. */
static int find_port(void)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = 0;

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&address, size) ||
	    getsockname(fd, (struct sockaddr *)&address, &size))
		rc = -errno;
	close(fd);
	snprintf(port, sizeof(port), "%u", ntohs(address.sin_port));
	snprintf(url, sizeof(url), "nats://127.0.0.1:%s", port);
	return rc;
}

static bool connect_stream(void)
{
	jsStreamConfig config;
	const char *subjects[] = {"log"};
	jsErrCode error;

	if (!connection &&
	    natsConnection_ConnectTo(&connection, url) != NATS_OK)
		return false;
	if (!stream &&
	    natsConnection_JetStream(&stream, connection, NULL) != NATS_OK)
		return false;
	jsStreamConfig_Init(&config);
	config.Name = "LOG";
	config.Subjects = subjects;
	config.SubjectsLen = 1;
	config.Storage = js_MemoryStorage;
	config.MaxBytes = STREAM_BYTES;
	return js_AddStream(NULL, stream, &config, NULL, &error) == NATS_OK;
}

static int remove_one(const char *path, const struct stat *about, int flag,
		      struct FTW *at)
{
	(void)about;
	(void)flag;
	(void)at;
	return remove(path);
}

static int nats_open(struct driver_pair *pair)
{
	int rc = server_prepare(pair, "nats-server");

	rc = rc ? rc : find_port();
	if (rc)
		return rc;
	server_arguments((const char *const[]){"nats-server", "-a", "127.0.0.1",
					       "-p", port, "-js", "-sd",
					       server.directory, NULL});
	rc = server_start(pair, connect_stream);
	/* It keeps nothing there, as the stream is in memory. */
	nftw(server.directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	if (rc)
		return rc;
	snprintf(pair->description, sizeof(pair->description),
		 "JetStream of nats-server, a stream in memory, over the "
		 "loopback, libnats %s",
		 nats_GetVersion());
	return 0;
}

static int nats_run(struct driver_pair *pair, const char *name, double seconds,
		    double *rate)
{
	(void)pair;
	return log_run(&theirs_ops, NULL, name, seconds, rate);
}

static void nats_close(struct driver_pair *pair)
{
	jsCtx_Destroy(stream);
	natsConnection_Destroy(connection);
	kill(pair->target, SIGTERM);
}

static const struct driver nats_driver = {
	.name = "nats",
	.open = nats_open,
	.run = nats_run,
	.close = nats_close,
};

int main(int argc, char **argv)
{
	return driver_main(&nats_driver, argc, argv);
}
