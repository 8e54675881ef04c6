/* say.c - what people read of a server: where it is, and what went wrong. */
#include "cmd/print/table.h"
#include "cmd/serve/server.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

void say_kept(const char *what, uint32_t extents, uint64_t bytes,
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

/* Say what becomes of memory that could not be saved, and what helps. */
static void say_unsaved(const struct server *server)
{
	const struct reef_keep_image_report *image = &server->saved.image;
	const char *data = server->settings.data;
	const bool is_full =
		image->failed == -ENOSPC || image->failed == -EDQUOT;
	const unsigned long long mib = (image->bytes >> 20) + 1;

	operate_say(server->name, "%s/node-*: what it lends was not saved: %s",
		    data, reef_error_text(image->failed));
	if (!server->saved.has_holder) {
		operate_say(server->name, "it is lost, as there is no holder "
					  "(--keep)");
		return;
	}
	operate_say(server->name,
		    "a holder keeps it for %llu s (--keep-for). Then it tries "
		    "to save it once more, and where it cannot, all is lost",
		    (unsigned long long)(server->settings.keep_for_ns /
					 1000000000));
	if (is_full)
		operate_say(server->name,
			    "free %llu MiB in %s before that; then start it "
			    "again, and stop it",
			    mib, data);
	else
		operate_say(server->name,
			    "mend that before; then start it again, and stop "
			    "it");
}

int say_saved(const struct server *server)
{
	const struct reef_keep_image_report *image = &server->saved.image;

	if (!image->extents || !(image->saved || image->failed))
		return 0;
	if (image->failed) {
		say_unsaved(server);
		return 1;
	}
	say_kept("saved", image->extents, image->bytes, image->took_ns);
	return 0;
}

void say_lost(void *context, const char *space, uint64_t bytes)
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
	const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) *
				(uint64_t)sysconf(_SC_PAGESIZE);
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
	if (status.capacity > memory)
		printf("  %-9s more than this machine has, %s: see `reef "
		       "doctor`\n",
		       "", reef_table_bytes(memory, size));
	if (kept && kept->extents)
		say_kept(kept->from_holder
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

/* Print how the pool is used, where its broker is. */
static void print_pool_use(const struct server *server)
{
	printf("On this machine, as this user:\n"
	       "  reef status                    what is where\n"
	       "  reef_open(NULL, NULL, &reef)   in a program; see "
	       "<reef/reef.h>\n");
	print_redis_use(server);
	printf("From elsewhere: `reef user add NAME` makes a credential, and "
	       "--listen an address\nthat others reach. To lend more: `reef "
	       "node add NAME FILE` makes a key for another\n`reef node`. ");
}

static void print_use(const struct server *server)
{
	const struct reef_settings *settings = &server->settings;

	printf("\n");
	if (reef_host_broker(server->host))
		print_pool_use(server);
	printf("`reef doctor` looks at this machine.\n\nCtrl-C stops it%s.\n",
	       !server->options.with_node ? ""
	       : server->options.keep_image
		       ? ", and saves what it lends for the next start"
	       : server->options.keep_holder
		       ? "; a holder keeps what it lends for a while"
		       : "; the memory it lends goes with it");
	if (!settings->data)
		printf("Nothing of it is kept.\n");
}

void say_start(const struct server *server)
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

/* --- what went wrong --- */

static const char *subject_of_step(const struct server *server,
				   enum reef_host_step step, int rc)
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
		return rc == -ENOSPC && settings->data ? settings->data
						       : "the broker";
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

int say_start_failed(const struct server *server, enum reef_host_step step,
		     int rc)
{
	const char *place = subject_of_step(server, step, rc);
	const char *name = server->name;

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

int say_refused(const struct server *server)
{
	const char *key = subject_of_step(server, REEF_HOST_KEY, 0);
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
