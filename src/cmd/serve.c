/* serve.c - `reef up`, `reef broker`, and `reef node` without a verb: start
 * what is asked for, say where it is, and run until a signal comes. */
#include "cmd/serve.h"

#include "base/private.h"
#include "base/process.h"
#include "base/sched.h"
#include "cmd/child.h"
#include "cmd/holder.h"
#include "cmd/http.h"
#include "cmd/image.h"
#include "cmd/notify.h"
#include "cmd/operate.h"
#include "cmd/table.h"
#include "pool/host.h"
#include "pool/target.h"

#include <errno.h>
#include <limits.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
	bool with_redis;
	struct child redis, janitor, saver, http;
	struct http_page *page; /* NULL: there is no HTTP */
	int page_fd;
	const char *redis_found; /* what the door says it found */
	int status;		 /* of the program */
	struct cmd_bar bar; /* of what is read at start, or saved at stop */
	uint64_t told_ns;   /* when that was told to the service manager */
	struct reef_keep_image_report saved;
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
	if (info.ssi_signo == SIGCHLD) {
		child_signal(&server->redis);
		child_signal(&server->janitor);
		child_signal(&server->saver);
		child_signal(&server->http);
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
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, &server->redis.signals))
		return -errno;
	server->janitor.signals = server->redis.signals;
	server->saver.signals = server->redis.signals;
	server->http.signals = server->redis.signals;
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

/* Print what was kept, or is: "3 extents, 192 MiB (0.14 s, ...)". */
static void print_kept(const char *what, uint32_t extents, uint64_t bytes,
		       uint64_t took_ns)
{
	double seconds = (double)took_ns / 1e9;
	char size[16];

	printf("  %-9s %s %u extent%s, %s (%.2f s", "", what, extents,
	       extents == 1 ? "" : "s", reef_table_bytes(bytes, size), seconds);
	if (bytes >= 1 << 20)
		printf(", %.2f s a GiB", seconds * (1 << 30) / (double)bytes);
	printf(")\n");
}

static void print_lost(void *context, const char *space, uint64_t bytes)
{
	const struct server *server = context;
	char size[16];

	operate_say(server->name,
		    "space %s has lost %s, with a node that died or was not "
		    "stopped cleanly; `reef space restore` brings back what "
		    "was saved",
		    space, reef_table_bytes(bytes, size));
}

static void print_node(const struct server *server)
{
	const struct reef_keep_both_report *kept = reef_host_kept(server->host);
	struct reef_node *node = reef_host_node(server->host);
	struct reef_node_status status;
	char size[16], name[256] = "it";

	reef_node_status(node, &status);
	print_addresses("node", reef_node_addresses(node));
	if (reef_node_name(node)[0])
		snprintf(name, sizeof(name), "%s", reef_node_name(node));
	printf("  %-9s %s, lends %s%s%s\n", "", name,
	       reef_table_bytes(status.capacity, size),
	       server->options.node.huge_pages
		       ? ", in huge pages where there are any"
		       : "",
	       status.link ? "; it looks for its broker" : "");
	if (kept && kept->extents)
		print_kept(kept->from_holder
				   ? "has what it lent, from its holder:"
				   : "has again what it lent before:",
			   kept->extents, kept->bytes, kept->took_ns);
}

/* Print how a client of Redis connects: to the port of the first address, else
 * to the socket. */
static void print_redis_use(const struct server *server)
{
	char first[CHILD_LINE_SIZE], use[CHILD_LINE_SIZE + 32];
	const char *port;

	if (!server->with_redis || !server->redis.is_ready)
		return;
	snprintf(first, sizeof(first), "%.*s",
		 (int)strcspn(server->redis.line, " "), server->redis.line);
	port = first[0] == '/' ? NULL : strrchr(first, ':');
	snprintf(use, sizeof(use), "redis-cli %s%s %s",
		 strncmp(first, "tls:", 4) ? "" : "--tls ", port ? "-p" : "-s",
		 port ? port + 1 : first);
	printf("  %-30s and any other client of Redis\n", use);
}

static void print_use(const struct server *server)
{
	const struct reef_settings *settings = &server->settings;

	printf("\nOn this machine, as this user:\n"
	       "  reef status                    what is where\n"
	       "  reef_open(NULL, NULL, &reef)   in a program; see "
	       "<reef/reef.h>\n");
	print_redis_use(server);
	printf("From elsewhere: `reef user add NAME` makes a credential, and "
	       "--listen an address\nthat others reach. `reef doctor` looks at "
	       "this machine.\n%s\nCtrl-C stops it%s.\n",
	       reef_host_broker(server->host)
		       ? "To lend more: `reef node add NAME FILE` makes a key "
			 "for another `reef node`.\n"
		       : "",
	       !server->options.with_node ? ""
	       : server->options.keep_image
		       ? ", and saves what it lends for the next start"
	       : reef_host_kept(server->host)
		       ? "; a holder keeps what it lends for a while"
		       : "; the memory it lends goes with it");
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
	if (server->with_redis && server->redis.is_ready) {
		print_addresses("redis", server->redis.line);
		printf("  %-9s found %s\n", "", server->redis_found);
	} else if (server->with_redis) {
		printf("  %-9s %s\n", "redis", "not open yet; see above");
	}
	if (server->page)
		print_addresses("http", server->http.line);
	if (broker)
		printf("  %-9s %s\n", "data", server->settings.data);
	print_use(server);
	fflush(stdout);
}

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

/* --- running --- */

/* Write down, for whoever asks over HTTP, how we are. */
static void fill_page(const struct server *server)
{
	struct reef_node *node = reef_host_node(server->host);
	struct http_page *page = server->page;
	struct reef_node_status status;
	uint64_t cpu_ns, resident;

	if (!page)
		return;
	if (node) {
		reef_node_status(node, &status);
		atomic_store(&page->has_node, 1);
		atomic_store(&page->link, status.link);
		atomic_store(&page->capacity, status.capacity);
		atomic_store(&page->lent, status.lent);
		atomic_store(&page->huge, status.huge);
		atomic_store(&page->extents, status.extents);
		atomic_store(&page->links, status.links);
	}
	reef_process_use(&cpu_ns, &resident);
	atomic_store(&page->cpu_ns, cpu_ns);
	atomic_store(&page->resident, resident);
	atomic_store(&page->has_broker, reef_host_broker(server->host) != NULL);
	atomic_store(&page->beat_ns, reef_now_ns());
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
		fill_page(server);
	}
	server->fiber = NULL;
	return rc;
}

/* --- what went wrong --- */

static const char *subject_of_step(const struct server *server,
				   enum reef_host_step step)
{
	const struct reef_settings *settings = &server->settings;

	switch (step) {
	case REEF_HOST_DATA:
	case REEF_HOST_STORE:
		return settings->data ? settings->data : "the data directory";
	case REEF_HOST_KEY:
		if (!server->options.with_broker)
			return settings->node_key ? settings->node_key
						  : "the node's key";
		return settings->key_file ? settings->key_file
					  : "the pool's key";
	case REEF_HOST_RUN:
	case REEF_HOST_ANNOUNCE:
		return settings->run;
	case REEF_HOST_FABRICS:
		return "the fabrics";
	case REEF_HOST_BROKER:
		return "the broker";
	case REEF_HOST_NODE:
		return "the node";
	default:
		return "start";
	}
}

static int report_taken(const struct server *server, enum reef_host_step step)
{
	const struct reef_settings *settings = &server->settings;
	bool node = step == REEF_HOST_NODE;

	return operate_say(
		server->name,
		"somebody listens already at one of shm:%s/%s.sock %s; see "
		"--run and --%slisten",
		settings->run, node ? "node" : "broker",
		node ? settings->node_listen : settings->listen,
		node ? "node-" : "");
}

static int report_foreign(const struct server *server)
{
	return operate_say(server->name,
			   "the memory that is kept in %s, or by a holder (see "
			   "`reef doctor`), is another node's, or of another "
			   "pool; nothing was changed",
			   server->settings.data);
}

static int report_start_failed(const struct server *server,
			       enum reef_host_step step, int rc)
{
	const char *name = server->name, *place = subject_of_step(server, step);

	switch (rc) {
	case -EBUSY:
		if (step == REEF_HOST_NODE)
			return operate_say(name,
					   "the node runs already, with %s",
					   server->settings.run);
		return operate_say(name, "another broker has %s open already",
				   server->settings.data);
	case -EADDRINUSE:
		return report_taken(server, step);
	case -EPERM:
		return operate_say(name,
				   "%s: it must be this user's, and closed to "
				   "others: chmod %s %s",
				   place, step == REEF_HOST_KEY ? "600" : "700",
				   place);
	case -ENOENT:
		if (step == REEF_HOST_KEY)
			return operate_say(name,
					   "%s: no such file; a node needs "
					   "the key that `reef node add` "
					   "makes (--node-key)",
					   place);
		break;
	case -EEXIST:
		if (step == REEF_HOST_NODE)
			return operate_say(name,
					   "its holder (see `reef doctor`) has "
					   "other memory than the image in "
					   "%s/node-*; nothing was changed. "
					   "End the holder, or remove the file "
					   "`clean` there",
					   server->settings.data);
		break;
	case -REEF_EFOREIGN:
		return report_foreign(server);
	case -REEF_EVERSION:
		if (step == REEF_HOST_NODE)
			return operate_say(name,
					   "the image of its memory in "
					   "%s/node-* is of another version of "
					   "reef, or damaged; nothing was "
					   "changed. Remove the file `clean` "
					   "there to start without it",
					   server->settings.data);
		break;
	case -REEF_ECORRUPT:
		if (step == REEF_HOST_NODE)
			return operate_say(name,
					   "the image of its memory in "
					   "%s/node-* is damaged; nothing was "
					   "changed. Remove the file `clean` "
					   "there to start without it",
					   server->settings.data);
		if (step == REEF_HOST_BROKER)
			return operate_say(name,
					   "the journal in %s/journal is "
					   "damaged; nothing was changed",
					   server->settings.data);
		break;
	default:
		break;
	}
	return operate_say(name, "%s: %s (%s)", place, reef_error_text(rc),
			   reef_error_name(rc));
}

/* A node on its own waits for its broker; but if one of them has refused the
 * other for good, that is printed. Returns 1 then. */
static int report_refused(const struct server *server)
{
	const char *key = subject_of_step(server, REEF_HOST_KEY);
	struct reef_node_status status;

	if (!reef_host_node(server->host))
		return 0;
	reef_node_status(reef_host_node(server->host), &status);
	if (reef_host_broker(server->host)) {
		if (status.link == -REEF_EFOREIGN)
			return report_foreign(server);
		if (status.link == -REEF_EOLDER)
			return operate_say(server->name,
					   "the journal in %s is older than "
					   "the memory of the node: an old "
					   "copy; nothing was changed",
					   server->settings.data);
		return 0;
	}
	switch (status.link) {
	case -REEF_EAUTH:
		return operate_say(server->name,
				   "the broker does not take the key in %s: "
				   "the node was removed, or it is that of "
				   "another pool",
				   key);
	case -EEXIST:
		return operate_say(server->name,
				   "another node runs with the key in %s: each "
				   "has its own, from `reef node add`",
				   key);
	case -REEF_EVERSION:
		return operate_say(server->name, "the broker speaks %s",
				   "another version of the protocol");
	case -REEF_ETLS:
		return operate_say(server->name,
				   "the broker and this node disagree about "
				   "encryption; see --tls");
	default:
		return 0;
	}
}

/* --- children --- */

static bool is_redis_setting(uint32_t setting)
{
	return setting >= REEF_SET_REDIS_LISTEN &&
	       setting <= REEF_SET_REDIS_MEMORY_MAX;
}

/* Fill in the words of a child's command line. They hold every setting that it
 * needs: it does not see our flags. flags: room for their words. */
static int fill_words(const struct server *server, struct child *child,
		      const char *command, bool with_redis,
		      char flags[CHILD_WORDS_MAX][64])
{
	static char credential[PATH_MAX];
	const struct reef_settings *settings = &server->settings;
	const char **words = child->words, *text;
	uint32_t setting, count = 0;

	words[count++] = "reef";
	words[count++] = command;
	words[count++] = "--pool";
	words[count++] = "local";
	snprintf(credential, sizeof(credential), "%s/owner.credential",
		 settings->run);
	words[count++] = "--credential";
	words[count++] = credential;
	for (setting = 0; setting < REEF_SET_COUNT; setting++) {
		if (setting != REEF_SET_RUN && setting != REEF_SET_FABRICS &&
		    setting != REEF_SET_TLS && setting != REEF_SET_LOG &&
		    !(with_redis && is_redis_setting(setting)))
			continue;
		text = reef_config_text(settings->config, setting);
		if (!text)
			continue;
		if (count + 2 >= CHILD_WORDS_MAX)
			return -E2BIG;
		snprintf(flags[setting], sizeof(flags[setting]), "--%s",
			 reef_config_name(settings->config, setting));
		words[count++] = flags[setting];
		words[count++] = text;
	}
	words[count] = NULL;
	child->command = server->name;
	return 0;
}

/* A pool without a janitor works, but what the dead leave waits for whoever has
 * the space open. */
static void start_janitor(struct server *server)
{
	static char flags[CHILD_WORDS_MAX][64];
	int rc = fill_words(server, &server->janitor, "janitor", false, flags);

	server->janitor.name = "the janitor";
	server->janitor.is_optional = true;
	if (!rc)
		rc = child_start(&server->janitor, server->sched);
	if (rc)
		operate_failed(server->name, "the janitor", rc);
}

static int start_redis(struct server *server)
{
	static char flags[CHILD_WORDS_MAX][64];
	int rc = fill_words(server, &server->redis, "redis", true, flags);

	server->redis.name = "the Redis door";
	if (!rc)
		rc = child_start(&server->redis, server->sched);
	if (rc == -ECHILD)
		return operate_say(server->name,
				   "the Redis door could not start; see above. "
				   "--no-redis starts without it");
	return rc ? operate_failed(server->name, "the Redis door", rc) : 0;
}

/* The door's line has its addresses, and behind a tab what it found. */
static void split_line(struct server *server)
{
	char *tab = strchr(server->redis.line, '\t');

	server->redis_found = tab ? tab + 1 : "nothing yet";
	if (tab)
		*tab = '\0';
}

static int make_page(struct server *server)
{
	void *page;

	server->page_fd = memfd_create("reef-http", MFD_CLOEXEC);
	if (server->page_fd < 0 ||
	    ftruncate(server->page_fd, sizeof(struct http_page)))
		return -errno;
	page = mmap(NULL, sizeof(struct http_page), PROT_READ | PROT_WRITE,
		    MAP_SHARED, server->page_fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	server->page = page;
	fill_page(server);
	return 0;
}

/* Append four words to a child's command line. */
static int append_words(struct child *child, const char *const more[4])
{
	uint32_t count = 0;

	while (child->words[count])
		count++;
	if (count + 5 >= CHILD_WORDS_MAX)
		return -E2BIG;
	memcpy(child->words + count, more, 4 * sizeof(*more));
	child->words[count + 4] = NULL;
	return 0;
}

/* Start who saves every so often, and wait until it has brought back what an
 * unclean end has cost. */
static int start_saver(struct server *server)
{
	static char flags[CHILD_WORDS_MAX][64], folder[PATH_MAX], every[32];
	int rc = fill_words(server, &server->saver, "saver", false, flags);

	snprintf(every, sizeof(every), "%lluns",
		 (unsigned long long)server->settings.save_every_ns);
	if ((size_t)snprintf(folder, sizeof(folder), "%s/saved",
			     server->settings.data) >= PATH_MAX - 20)
		rc = -ENAMETOOLONG;
	if (!rc)
		rc = reef_private_directory(folder);
	if (!rc) {
		/* What another pool left there is not ours to clear. */
		snprintf(folder + strlen(folder), 20, "/%016llx",
			 (unsigned long long)reef_broker_pool(
				 reef_host_broker(server->host)));
		rc = append_words(
			&server->saver,
			(const char *[]){"--folder", folder, "--every", every});
	}
	server->saver.name = "the saver";
	if (!rc)
		rc = child_start(&server->saver, server->sched);
	if (rc == -ECHILD)
		return operate_say(server->name,
				   "the saver could not start; see above, and "
				   "--save-every");
	return rc ? operate_failed(server->name, "the saver", rc) : 0;
}

static int start_http(struct server *server)
{
	static char flags[CHILD_WORDS_MAX][64], fd_text[16];
	int rc = make_page(server);

	if (!rc)
		rc = fill_words(server, &server->http, "http", false, flags);
	if (!rc) {
		snprintf(fd_text, sizeof(fd_text), "%d", server->page_fd);
		rc = append_words(&server->http,
				  (const char *[]){"--address",
						   server->settings.http,
						   "--page-fd", fd_text});
	}
	if (!rc) {
		server->http.pass_fd = server->page_fd;
		server->http.name = "HTTP";
		rc = child_start(&server->http, server->sched);
	}
	if (rc == -ECHILD)
		return operate_say(server->name,
				   "HTTP could not start; see above, and "
				   "--http");
	return rc ? operate_failed(server->name, "HTTP", rc) : 0;
}

static int serve_host(struct server *server)
{
	int rc;

	if (reef_host_node(server->host))
		reef_node_wait(reef_host_node(server->host),
			       reef_host_broker(server->host) ? 10 * SECOND
							      : SECOND);
	rc = report_refused(server);
	cmd_bar_end(&server->bar);
	if (!rc && reef_host_broker(server->host))
		reef_broker_lost(reef_host_broker(server->host), print_lost,
				 server);
	if (!rc && reef_host_broker(server->host))
		start_janitor(server);
	if (!rc && reef_host_broker(server->host) &&
	    server->settings.save_every_ns && server->settings.data)
		rc = start_saver(server);
	if (!rc && server->with_redis && !server->asked_to_stop)
		rc = start_redis(server);
	if (!rc && server->settings.http)
		rc = start_http(server);
	if (rc) {
		child_stop(&server->redis);
		child_stop(&server->saver);
		child_stop(&server->janitor);
		return rc;
	}
	split_line(server);
	print_start(server);
	notify_ready(server);
	rc = wait_for_end(server);
	notify_send("STOPPING=1");
	if (!rc)
		printf("Stopping.\n");
	fflush(stdout);
	child_stop(&server->http);
	child_stop(&server->redis);
	child_stop(&server->saver);
	child_stop(&server->janitor);
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
		rc ? report_start_failed(server, step, rc) : serve_host(server);
	server->bar.what = "saves";
	reef_host_stop(server->host);
	cmd_bar_end(&server->bar);
	if (server->saved.saved && server->saved.extents)
		print_kept("saved", server->saved.extents, server->saved.bytes,
			   server->saved.took_ns);
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
	if (settings->keep & REEF_KEEP_HOLDER) {
		options->start_holder = holder_start;
		options->holder_context = &server->settings.keep_for_ns;
	}
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
