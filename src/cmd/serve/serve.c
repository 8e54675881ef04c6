/* serve.c - `reef up`, `reef broker`, and `reef node` without a verb: start
 * what is asked for, say where it is, and run until a signal comes. */
#include "cmd/serve/serve.h"

#include "cmd/serve/holder.h"
#include "cmd/serve/notify.h"
#include "cmd/serve/server.h"
#include "pool/target.h"

#include <errno.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define SECOND 1000000000ull

/* --- signals --- */

static int signals_poll(struct reef_poller *poller)
{
	struct server *server =
		(struct server *)((char *)poller -
				  offsetof(struct server, signals));
	struct signalfd_siginfo info;

	if (read(poller->fd, &info, sizeof(info)) != sizeof(info))
		return 0;
	if (info.ssi_signo == SIGCHLD) {
		children_signal(server);
		return 1;
	}
	server->asked_to_stop = true;
	/* It may be waiting for what is to be brought back. */
	if (server->saver.pid && !server->saver.is_ready)
		kill(server->saver.pid, SIGTERM);
	if (server->fiber)
		reef_fiber_unpark(server->fiber);
	return 1;
}

/* Block and watch the signals, before any thread starts, so that all threads
 * have them blocked. */
static int watch_signals(struct server *server)
{
	sigset_t set, before;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, &before))
		return -errno;
	children_set_signals(server, &before);
	signal(SIGPIPE, SIG_IGN);
	server->signals.poll = signals_poll;
	server->signals.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	if (server->signals.fd < 0)
		return -errno;
	reef_sched_poller_add(server->sched, &server->signals);
	return 0;
}

/* Raise the limit of descriptors as far as we may: each session, link and
 * extent takes one. */
static void raise_limits(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* --- running --- */

static void notify_ready(const struct server *server)
{
	struct reef_broker *broker = reef_host_broker(server->host);

	if (broker)
		notify_send("READY=1\nSTATUS=Pool %016llx, at %s",
			    (unsigned long long)reef_broker_pool(broker),
			    reef_broker_addresses(broker));
	else
		notify_send("READY=1\nSTATUS=A node, at %s",
			    reef_node_addresses(reef_host_node(server->host)));
}

/* Wait until a signal comes, or the broker cannot go on. The service manager is
 * told from here that we are alive: a scheduler that stands still tells
 * nothing. */
static int wait_for_end(struct server *server)
{
	struct reef_broker *broker = reef_host_broker(server->host);
	const uint64_t alive_ns = notify_alive_ns();
	uint64_t pause_ns = broker ? SECOND : REEF_FOREVER;
	int rc = 0;

	if (server->page)
		pause_ns = SECOND;
	if (alive_ns && alive_ns < pause_ns)
		pause_ns = alive_ns;

	server->fiber = reef_fiber_self();
	while (!rc && !server->asked_to_stop) {
		reef_fiber_park(pause_ns);
		if (broker)
			rc = reef_broker_health(broker);
		if (!rc)
			notify_alive();
		children_fill_page(server);
	}
	server->fiber = NULL;
	return rc;
}

static int serve_host(struct server *server)
{
	int rc;

	if (reef_host_node(server->host))
		reef_node_wait(reef_host_node(server->host),
			       reef_host_broker(server->host) ? 10 * SECOND
							      : SECOND);
	rc = say_refused(server);
	cmd_bar_end(&server->bar);
	if (!rc && reef_host_broker(server->host))
		reef_broker_lost(reef_host_broker(server->host), say_lost,
				 server);
	if (!rc)
		rc = children_start(server);
	if (rc)
		return rc;
	say_start(server);
	notify_ready(server);
	rc = wait_for_end(server);
	notify_send("STOPPING=1");
	if (!rc)
		printf("Stopping.\n");
	fflush(stdout);
	children_stop(server);
	if (rc)
		return operate_say(server->name, "the broker cannot go on: %s",
				   reef_error_text(rc));
	return 0;
}

static int serve_fiber(void *arg)
{
	struct server *server = arg;
	enum reef_host_step step;
	int rc;

	rc = reef_host_start(&server->options, &server->host, &step);
	server->status =
		rc ? say_start_failed(server, step, rc) : serve_host(server);
	server->bar.what = "saves";
	reef_host_stop(server->host);
	cmd_bar_end(&server->bar);
	rc = say_saved(server);
	if (!server->status)
		server->status = rc;
	reef_sched_stop(server->sched);
	return 0;
}

static int run_server(struct server *server)
{
	int rc;

	notify_begin();
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
	/* That nobody reads its output is no failure of a server: what could
	 * not be written is dropped. */
	fflush(stdout);
	__fpurge(stdout);
	clearerr(stdout);
	/* The scheduler is not destroyed: it may have fibers that wait for
	 * ever, and the process ends. */
	return server->status;
}

/* --- settings --- */

static bool is_given(const struct reef_settings *settings, uint32_t setting)
{
	return reef_config_source(settings->config, setting) !=
	       REEF_CONFIG_DEFAULT;
}

/* The addresses to listen on. The default is one of tcp: it is left out if the
 * fabrics that were chosen have no tcp. */
static const char *listen_addresses(const struct reef_settings *settings,
				    uint32_t setting, const char *addresses)
{
	if (!is_given(settings, setting) && settings->fabrics &&
	    !strstr(settings->fabrics, "tcp"))
		return NULL;
	return addresses;
}

/* Draw the bar, and tell the service manager that we are at work: the
 * scheduler stands still meanwhile. */
static int draw_progress(void *context, uint64_t done, uint64_t all)
{
	struct server *server = context;
	uint64_t now_ns = reef_now_ns();

	if (now_ns - server->told_ns > SECOND) {
		server->told_ns = now_ns;
		notify_alive();
		notify_send("EXTEND_TIMEOUT_USEC=30000000");
	}
	return cmd_bar_draw(&server->bar, done, all);
}

static void fill_options(struct server *server)
{
	const struct reef_settings *settings = &server->settings;
	struct reef_host_options *options = &server->options;

	options->data = settings->data;
	options->run = settings->run;
	options->key_file = settings->key_file;
	options->node_key_file = settings->node_key;
	options->node_name = settings->name;
	options->mesh.kinds = settings->fabrics;
	options->mesh.fabric.spin_ns = settings->spin_ns;
	options->mesh.fabric.silence_ns = settings->silence_ns;
	reef_tls_use_parse(settings->tls, &options->mesh.fabric.tls);
	options->mesh.fabric.answers_max = settings->unread;
	options->broker.listen =
		listen_addresses(settings, REEF_SET_LISTEN, settings->listen);
	options->node.listen = listen_addresses(settings, REEF_SET_NODE_LISTEN,
						settings->node_listen);
	options->node.broker = settings->broker;
	/* Settings that were not given stay as the journal has them. */
	if (is_given(settings, REEF_SET_TTL))
		options->broker.ttl_ns = settings->ttl_ns;
	if (is_given(settings, REEF_SET_NODE_TTL))
		options->broker.node_ttl_ns = settings->node_ttl_ns;
	if (is_given(settings, REEF_SET_EXTENT_SIZE))
		options->broker.extent_size = settings->extent_size;
	if (is_given(settings, REEF_SET_REVOKE_NOTICE))
		options->broker.revoke_notice_ns = settings->revoke_notice_ns;
	for (uint32_t i = 0; i < REEF_LIMIT_COUNT; i++)
		if (is_given(settings, REEF_SET_USER_SESSIONS + i))
			options->broker.user_limits[i] =
				settings->user_limits[i]
					? settings->user_limits[i]
					: REEF_NO_LIMIT;
	options->broker.reserved = settings->redis.space;
	options->broker.lease_kills = settings->lease_kills;
	options->node.capacity = settings->lend;
	options->node.huge_pages = settings->huge_pages != REEF_HUGE_OFF;
	server->bar.what = "reads";
	options->keep_image = settings->keep & REEF_KEEP_IMAGE;
	options->image = (struct reef_keep_image_options){
		.progress = draw_progress,
		.context = server,
	};
	options->saved = &server->saved;
	options->keep_holder = settings->keep & REEF_KEEP_HOLDER;
	options->start_holder = holder_start;
	options->holder_context = &server->settings.keep_for_ns;
	options->node.pressure_low = settings->pressure_low;
	options->node.pressure_high = settings->pressure_high;
}

int serve(int argc, char **argv, bool with_broker, bool with_node,
	  const char *usage)
{
	static struct server server;
	static char brokers[REEF_TARGET_MAX];
	const bool is_up = with_broker && with_node;
	bool no_redis = false;
	const struct reef_config_flag flags[] = {
		{"no-redis", NULL, "do not serve clients of Redis", &no_redis,
		 NULL},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = (with_broker ? REEF_USE_BROKER : 0) |
			(with_node ? REEF_USE_NODE : 0) |
			(is_up ? REEF_USE_UP : 0),
		.flags = is_up ? flags : NULL,
	};
	const struct reef_settings *settings = &server.settings;
	int rc;

	rc = cmd_settings(&input, usage, &server.settings);
	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings->config))
		return cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				       reef_config_rest(settings->config, 0));
	server.name = argv[0];
	server.options.with_broker = with_broker;
	server.options.with_node = with_node;
	server.with_redis = is_up && settings->with_redis && !no_redis;
	fill_options(&server);
	if (!with_broker && !settings->broker) {
		if (reef_target_broker("local", settings->run, brokers))
			return cmd_usage_error(
				argv[0], "where is the broker? None runs here "
					 "as this user; say --broker ADDRESS");
		server.options.node.broker = brokers;
	}
	rc = run_server(&server);
	reef_settings_fini(&server.settings);
	return rc;
}

int cmd_up(int argc, char **argv)
{
	return serve(argc, argv, true, true,
		     "usage: reef up [OPTIONS]\n\n"
		     "A pool on this machine: a broker and a node in one "
		     "process, and a door for\nclients of Redis beside it, in "
		     "the foreground. Ctrl-C stops it.\n");
}

int cmd_broker(int argc, char **argv)
{
	return serve(argc, argv, true, false,
		     "usage: reef broker [OPTIONS]\n\n"
		     "The broker of a pool, in the foreground: it knows nodes, "
		     "spaces, sessions and\nnames, and keeps them in its data "
		     "directory.\n");
}
