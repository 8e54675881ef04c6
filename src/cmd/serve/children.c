/* children.c - what runs beside a server, as processes of their own: the
 * janitor, the saver, the Redis door, HTTP. */
#include "base/system/private.h"
#include "base/system/process.h"
#include "cmd/serve/server.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void children_fill_page(const struct server *server)
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
	children_fill_page(server);
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
	for (uint32_t i = 0; i < 4; i++)
		child->words[count++] = more[i];
	child->words[count] = NULL;
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

int children_start(struct server *server)
{
	const bool has_broker = reef_host_broker(server->host);
	int rc = 0;

	if (has_broker)
		start_janitor(server);
	if (has_broker && server->settings.save_every_ns &&
	    server->settings.data)
		rc = start_saver(server);
	if (!rc && server->with_redis && !server->asked_to_stop)
		rc = start_redis(server);
	if (!rc && server->settings.http)
		rc = start_http(server);
	if (rc)
		children_stop(server);
	else
		split_line(server);
	return rc;
}

void children_stop(struct server *server)
{
	child_stop(&server->http);
	child_stop(&server->redis);
	child_stop(&server->saver);
	child_stop(&server->janitor);
}

void children_set_signals(struct server *server, const sigset_t *signals)
{
	server->redis.signals = *signals;
	server->janitor.signals = *signals;
	server->saver.signals = *signals;
	server->http.signals = *signals;
}

void children_signal(struct server *server)
{
	child_signal(&server->redis);
	child_signal(&server->janitor);
	child_signal(&server->saver);
	child_signal(&server->http);
}
