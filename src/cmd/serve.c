/* serve.c - `reef up`, `reef broker`, and `reef node` without a verb: start
 * what is asked for, say where it is, and run until a signal comes. */
#include "cmd/serve.h"

#include "base/sched.h"
#include "cmd/cmd.h"
#include "cmd/table.h"
#include "pool/host.h"
#include "pool/target.h"

#include <errno.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SECOND 1000000000ull

struct server {
	const char *name; /* of the command */
	struct reef_settings settings;
	struct reef_host_options options;
	struct reef_host *host;
	struct reef_sched *sched;
	struct reef_fiber *fiber; /* the one that waits for signals */
	struct reef_poller signals;
	bool asked_to_stop;
	int status; /* of the program */
};

/* --- signals --- */

static int signals_poll(struct reef_poller *poller)
{
	struct server *server =
		(struct server *)((char *)poller -
				  offsetof(struct server, signals));
	struct signalfd_siginfo info;

	if (read(poller->fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	server->asked_to_stop = true;
	if (server->fiber)
		reef_fiber_unpark(server->fiber);
	return 1;
}

/* Before any thread starts, so that they all have them blocked. */
static int watch_signals(struct server *server)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	server->signals.poll = signals_poll;
	server->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (server->signals.fd < 0)
		return -errno;
	reef_sched_poller_add(server->sched, &server->signals);
	return 0;
}

/* A descriptor per session, link and extent: take what we may. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- what people read --- */

static void print_addresses(const char *what, const char *addresses)
{
	size_t size;

	while (*addresses) {
		size = strcspn(addresses, " ");
		printf("  %-9s %.*s\n", what, (int)size, addresses);
		addresses += size + strspn(addresses + size, " ");
		what = "";
	}
}

static void print_node(const struct server *server)
{
	struct reef_node *node = reef_host_node(server->host);
	struct reef_node_status status;
	char size[16];

	reef_node_status(node, &status);
	print_addresses("node", reef_node_addresses(node));
	printf("  %-9s %s, lends %s%s%s\n", "", server->options.node.name,
	       reef_table_bytes(status.capacity, size),
	       server->options.node.huge_pages
		       ? ", in huge pages where there are any"
		       : "",
	       status.link ? "; it looks for its broker" : "");
}

static void print_use(const struct server *server)
{
	const struct reef_settings *settings = &server->settings;

	printf("\nOn this machine, as this user:\n"
	       "  reef status                    what is where\n"
	       "  reef_open(NULL, NULL, &reef)   in a program; see reef(3)\n"
	       "From elsewhere: `reef user add NAME` makes a credential, and "
	       "--listen an address\nthat others reach. `reef doctor` looks at "
	       "this machine.\n\nCtrl-C stops it%s.\n",
	       server->options.with_node ? "; the memory it lends goes with it"
					 : "");
	if (!settings->data)
		printf("Nothing of it is kept.\n");
}

static void print_start(const struct server *server)
{
	struct reef_broker *broker = reef_host_broker(server->host);

	if (broker) {
		printf("Reef pool %016llx is up.\n\n",
		       (unsigned long long)reef_broker_pool(broker));
		print_addresses("broker", reef_broker_addresses(broker));
	} else {
		printf("A node of Reef is up.\n\n");
		print_addresses("broker", server->options.node.broker);
	}
	if (reef_host_node(server->host))
		print_node(server);
	if (broker)
		printf("  %-9s %s\n", "data", server->settings.data);
	print_use(server);
	fflush(stdout);
}

/* --- running --- */

static int wait_for_end(struct server *server)
{
	struct reef_broker *broker = reef_host_broker(server->host);
	int rc = 0;

	server->fiber = reef_fiber_self();
	while (!rc && !server->asked_to_stop) {
		reef_fiber_park(broker ? SECOND : REEF_FOREVER);
		if (broker)
			rc = reef_broker_health(broker);
	}
	server->fiber = NULL;
	return rc;
}

static const char *advice(int rc)
{
	switch (rc) {
	case -EBUSY:
		return "another broker has this data directory open";
	case -EADDRINUSE:
		return "somebody listens there already; see --listen";
	case -EPERM:
		return "it must belong to this user, and be closed to others";
	case -ENOENT:
		return "there is none; a node needs the pool's key file "
		       "(--key-file)";
	default:
		return reef_error_text(rc);
	}
}

static int serve_fiber(void *arg)
{
	struct server *server = arg;
	const char *step = "";
	int rc;

	rc = reef_host_start(&server->options, &server->host, &step);
	if (rc) {
		fprintf(stderr, "reef %s: %s: %s (%s)\n", server->name, step,
			advice(rc), reef_error_name(rc));
		server->status = 1;
		reef_sched_stop(server->sched);
		return 0;
	}
	if (reef_host_node(server->host))
		reef_node_wait(reef_host_node(server->host),
			       reef_host_broker(server->host) ? 10 * SECOND
							      : SECOND);
	print_start(server);
	rc = wait_for_end(server);
	if (rc) {
		fprintf(stderr, "reef %s: the broker gives up: %s\n",
			server->name, reef_error_text(rc));
		server->status = 1;
	} else {
		printf("Stopping.\n");
		fflush(stdout);
	}
	reef_host_stop(server->host);
	reef_sched_stop(server->sched);
	return 0;
}

static int run(struct server *server)
{
	int rc;

	raise_limits();
	rc = reef_sched_create(NULL, &server->sched);
	if (!rc)
		rc = watch_signals(server);
	if (!rc)
		rc = reef_fiber_spawn(server->sched, serve_fiber, server, NULL);
	if (!rc)
		rc = reef_sched_run(server->sched);
	if (rc) {
		fprintf(stderr, "reef %s: %s\n", server->name,
			reef_error_text(rc));
		return 1;
	}
	/* The process ends: its scheduler may have fibers that wait for ever.
	 */
	return server->status;
}

/* --- settings --- */

static bool is_given(const struct reef_settings *settings, uint32_t setting)
{
	return reef_config_source(settings->config, setting) !=
	       REEF_CONFIG_DEFAULT;
}

static void take_settings(struct server *server)
{
	const struct reef_settings *settings = &server->settings;
	struct reef_host_options *options = &server->options;

	options->data = settings->data;
	options->run = settings->run;
	options->key_file = settings->key_file;
	options->mesh.fabric.spin_ns = settings->spin_ns;
	options->mesh.fabric.silence_ns = settings->silence_ns;
	options->broker.listen = settings->listen;
	options->node.listen = settings->node_listen;
	options->node.broker = settings->broker;
	/* What is not given stays as the journal has it. */
	if (is_given(settings, REEF_SET_TTL))
		options->broker.ttl_ns = settings->ttl_ns;
	if (is_given(settings, REEF_SET_NODE_TTL))
		options->broker.node_ttl_ns = settings->node_ttl_ns;
	if (is_given(settings, REEF_SET_EXTENT_SIZE))
		options->broker.extent_size = settings->extent_size;
	if (is_given(settings, REEF_SET_REVOKE_NOTICE))
		options->broker.revoke_notice_ns = settings->revoke_notice_ns;
	options->broker.lease_kills = settings->lease_kills;
	options->node.name = settings->name;
	options->node.capacity = settings->lend;
	options->node.huge_pages = settings->huge_pages != REEF_HUGE_OFF;
	options->node.pressure_low = settings->pressure_low;
	options->node.pressure_high = settings->pressure_high;
}

int serve(int argc, char **argv, bool with_broker, bool with_node,
	  const char *usage)
{
	static struct server server;
	static char brokers[REEF_TARGET_MAX];
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = (with_broker ? REEF_USE_BROKER : 0) |
			(with_node ? REEF_USE_NODE : 0),
	};
	const struct reef_settings *settings = &server.settings;
	int rc;

	rc = cmd_settings(&input, usage, &server.settings);
	if (rc >= 0)
		return rc;
	server.name = argv[0];
	server.options.with_broker = with_broker;
	server.options.with_node = with_node;
	take_settings(&server);
	if (!with_broker && !settings->broker) {
		if (reef_target_broker("local", settings->run, brokers))
			return cmd_usage_error(
				argv[0], "where is the broker? None runs here "
					 "as this user; say --broker ADDRESS");
		server.options.node.broker = brokers;
	}
	rc = run(&server);
	reef_settings_fini(&server.settings);
	return rc;
}

int cmd_up(int argc, char **argv)
{
	return serve(argc, argv, true, true,
		     "usage: reef up [OPTIONS]\n\n"
		     "A pool on this machine: a broker and a node in one "
		     "process, in the foreground.\nCtrl-C stops it.\n");
}

int cmd_broker(int argc, char **argv)
{
	return serve(argc, argv, true, false,
		     "usage: reef broker [OPTIONS]\n\n"
		     "The broker of a pool, in the foreground: it knows nodes, "
		     "spaces, sessions and\nnames, and keeps them in its data "
		     "directory.\n");
}
