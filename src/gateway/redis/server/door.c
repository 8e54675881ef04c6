/* door.c - see door.h. Its own thread takes connections and deals them out,
 * each to the thread with the fewest. */
#include "gateway/redis/server/internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/system/private.h"
#include "fabric/socket.h"
#include "gateway/redis/server/budget.h"
#include "gateway/redis/server/gather.h"
#include "gateway/redis/server/guess.h"
#include "gateway/redis/server/save.h"
#include "gateway/redis/server/task.h"
#include "gateway/redis/server/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <reef/error.h>
#include <reef/fiber.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define MIB (UINT64_C(1) << 20)
#define SPARE_MAX (64 * MIB) /* bytes of buffers that a thread keeps */
#define ACCEPTS_MAX 64	     /* connections accepted in a row */
#define SHORT_PAUSE (100 * MS)

/* --- what others ask --- */

struct redis_door_config *redis_door_config(struct redis_door *door)
{
	return &door->config;
}

const char *redis_door_found(const struct redis_door *door)
{
	return door->found;
}

struct redis_save *redis_door_save(const struct redis_door *door)
{
	return door->save;
}

const struct redis_door_options *
redis_door_options(const struct redis_door *door)
{
	return &door->options;
}

void redis_door_info(const struct redis_door *door, struct redis_door_info *out)
{
	*out = door->info;
	out->has_password = door->has_password;
	out->clients = atomic_load(&door->client_count);
	out->rejected = atomic_load(&door->rejected);
	out->charged = redis_budget_charged(door);
}

const char *redis_door_addresses(const struct redis_door *door)
{
	return door->addresses;
}

int redis_door_each(struct redis_door *door, struct redis_thread *self,
		    int (*each)(void *context, struct redis_thread *thread),
		    void *context)
{
	struct redis_thread *thread;
	uint32_t i;
	int rc = 0;

	pthread_mutex_unlock(&self->lock);
	for (i = 0; !rc && i < door->thread_count; i++) {
		thread = &door->threads[i];
		atomic_fetch_add(&thread->wanted, 1);
		pthread_mutex_lock(&thread->lock);
		rc = each(context, thread);
		atomic_fetch_sub(&thread->wanted, 1);
		pthread_cond_signal(&thread->turn);
		pthread_mutex_unlock(&thread->lock);
	}
	pthread_mutex_lock(&self->lock);
	return rc;
}

void redis_door_kill(struct redis_client *client)
{
	client->is_dead = true;
	client->thread->has_killed = true;
	redis_serve_wake(client->thread);
}

/* --- the password --- */

__attribute__((format(printf, 3, 4))) static int
fail_creation(struct redis_door *door, int rc, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(door->what, sizeof(door->what), format, arguments);
	va_end(arguments);
	return rc;
}

static int load_password(struct redis_door *door)
{
	const char *path = door->options.password_file;
	char text[REDIS_PASSWORD_MAX];
	ssize_t size;
	int rc;

	if (!path)
		return 0;
	size = reef_private_read(path, text, sizeof(text));
	if (size == -EPERM)
		return fail_creation(
			door, -EPERM,
			"%s: it must be this user's, and closed to others: "
			"chmod 600 %s",
			path, path);
	if (size == -EFBIG)
		return fail_creation(door, -EFBIG,
				     "%s: a password has %d bytes at the most",
				     path, REDIS_PASSWORD_MAX - 1);
	if (size < 0)
		return fail_creation(door, (int)size, "%s: %s", path,
				     reef_error_text((int)size));
	/* The line's end that editors and echo leave is not part of the
	 * password. */
	while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '\r'))
		size--;
	if (size == 0)
		return fail_creation(door, -EINVAL,
				     "%s: there is no password in it", path);
	rc = redis_password_digest(text, (size_t)size, door->password);
	OPENSSL_cleanse(text, sizeof(text));
	door->has_password = rc == 0;
	return rc;
}

/* --- listening --- */

static bool is_loopback(const struct reef_address *address)
{
	const struct sockaddr_in *four =
		(const struct sockaddr_in *)&address->storage;
	const struct sockaddr_in6 *six =
		(const struct sockaddr_in6 *)&address->storage;

	switch (address->storage.ss_family) {
	case AF_UNIX:
		return true;
	case AF_INET:
		return ntohl(four->sin_addr.s_addr) >> 24 == 127;
	case AF_INET6:
		return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
	default:
		return false;
	}
}

static uint16_t port_of(const struct reef_address *address)
{
	if (address->storage.ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)&address->storage)
				     ->sin_port);
	if (address->storage.ss_family == AF_INET6)
		return ntohs(((const struct sockaddr_in6 *)&address->storage)
				     ->sin6_port);
	return 0;
}

static int listen_at(struct redis_door *door, const char *text,
		     const struct reef_address *address, bool is_tls)
{
	const struct redis_tls_options *tls = &door->options.tls;
	struct reef_address bound;
	char name[256];
	size_t used = strlen(door->addresses);
	int fd, rc;

	if (door->listener_count == REDIS_LISTENERS_MAX)
		return fail_creation(door, -EINVAL,
				     "%s: more than %d addresses", text,
				     REDIS_LISTENERS_MAX);
	if (!door->has_password && !is_loopback(address) &&
	    !(is_tls &&
	      redis_tls_has_certificates(tls->clients, tls->authorities)))
		return fail_creation(
			door, -EACCES,
			"%s: others than this machine would reach it, and "
			"there is no password; see --redis-password-file",
			text);
	door->is_reached |= !is_loopback(address) && !is_tls;
	door->is_reached_by_tls |= !is_loopback(address) && is_tls;
	fd = reef_socket_listen(address, &bound);
	if (fd == -EADDRINUSE)
		return fail_creation(
			door, fd, "%s: somebody listens there already; see %s",
			text, is_tls ? "--redis-tls" : "--redis-listen");
	if (fd < 0)
		return fail_creation(door, fd, "%s: %s", text,
				     reef_error_text(fd));
	door->is_tls[door->listener_count] = is_tls;
	door->listeners[door->listener_count++] = fd;
	rc = reef_address_format(&bound, name, sizeof(name));
	if (rc)
		return rc;
	if (is_tls && !door->info.tls_port)
		door->info.tls_port = port_of(&bound);
	else if (!is_tls && !door->info.port)
		door->info.port = port_of(&bound);
	snprintf(door->addresses + used, sizeof(door->addresses) - used,
		 "%s%s%s", used ? " " : "", is_tls ? "tls:" : "", name);
	return 0;
}

static int listen_inet(struct redis_door *door, const char *at, bool is_tls)
{
	struct reef_address address;
	char text[300];
	size_t size;
	int rc;

	while (at && *at) {
		size = strcspn(at, " ");
		if (size >= sizeof(text))
			return fail_creation(door, -EINVAL,
					     "an address is too long");
		memcpy(text, at, size);
		text[size] = '\0';
		at += size + strspn(at + size, " ");
		rc = reef_address_parse_inet(text, &address);
		if (rc)
			return fail_creation(door, rc, "%s: %s", text,
					     rc == -EINVAL
						     ? "is not HOST:PORT"
						     : reef_error_text(rc));
		rc = listen_at(door, text, &address, is_tls);
		if (rc)
			return rc;
	}
	return 0;
}

static int listen_unix(struct redis_door *door)
{
	const char *path = door->options.unix_path;
	struct reef_address address;
	int rc;

	if (!path)
		return 0;
	rc = reef_address_parse_unix(path, &address);
	if (rc)
		return fail_creation(door, rc, "%s: %s", path,
				     reef_error_text(rc));
	return listen_at(door, path, &address, false);
}

/* --- TLS --- */

static int start_tls(struct redis_door *door)
{
	const struct redis_tls_options *options = &door->options.tls;
	int rc = redis_tls_load(options, &door->tls, door->what,
				sizeof(door->what));

	if (!rc && !redis_tls_note(door, options))
		rc = fail_creation(door, -EINVAL, "a path is too long");
	return rc;
}

/* --- making --- */

static uint32_t default_threads(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN) - 1;

	return count < 1 ? 1 : count > 4 ? 4 : (uint32_t)count;
}

static int set_options(struct redis_door *door,
		       const struct redis_door_options *given)
{
	struct redis_door_options *options = &door->options;
	struct redis_door_config *config = &door->config;

	*options = *given;
	if (!options->space)
		options->space = "redis";
	if (!options->copies)
		options->copies = 1;
	if (!options->threads)
		options->threads = default_threads();
	if (!options->databases)
		options->databases = 16;
	if (!options->clients_max)
		options->clients_max = 10000;
	if (!options->keepalive_ns)
		options->keepalive_ns = 300 * SECOND;
	if (!options->limits.bulk_max)
		options->limits.bulk_max = 512 * MIB;
	if (!options->limits.query_max)
		options->limits.query_max = 1024 * MIB;
	if (!options->login_ns)
		options->login_ns = 60 * SECOND;
	if (!options->output_soft)
		options->output_soft = 64 * MIB;
	if (!options->output_max)
		options->output_max = 1024 * MIB;
	if (!options->memory_max)
		options->memory_max = 1024 * MIB;
	if (options->threads > REDIS_THREADS_MAX)
		return fail_creation(door, -EINVAL,
				     "%u threads are more than %d",
				     options->threads, REDIS_THREADS_MAX);
	if (options->databases > REDIS_DATABASES_MAX)
		return fail_creation(door, -EINVAL,
				     "%u databases are more than %d",
				     options->databases, REDIS_DATABASES_MAX);
	config->clients_max = options->clients_max;
	config->idle_ns = options->idle_ns;
	config->keepalive_ns =
		options->keepalive_ns == UINT64_MAX ? 0 : options->keepalive_ns;
	config->bulk_max = options->limits.bulk_max;
	config->query_max = options->limits.query_max;
	config->output_soft = options->output_soft;
	config->output_max = options->output_max;
	config->memory_max =
		options->memory_max == UINT64_MAX ? 0 : options->memory_max;
	return 0;
}

static int fill_info(struct redis_door *door)
{
	uint8_t bytes[20];
	size_t i;
	int rc = reef_random_secret(bytes, sizeof(bytes));

	if (rc)
		return rc;
	for (i = 0; i < sizeof(bytes); i++)
		snprintf(door->info.run_id + 2 * i, 3, "%02x", bytes[i]);
	door->info.started_ns = reef_now_ns();
	door->info.started_ms = reef_wall_ns() / MS;
	door->info.threads = door->options.threads;
	return 0;
}

static int init_thread(struct redis_door *door, uint32_t index)
{
	struct redis_thread *thread = &door->threads[index];
	struct epoll_event event = {.events = EPOLLIN};
	uint64_t seed;
	int rc;

	thread->door = door;
	thread->index = index;
	thread->epoll_fd = thread->wake_fd = -1;
	pthread_mutex_init(&thread->lock, NULL);
	pthread_mutex_init(&thread->inbox_lock, NULL);
	pthread_cond_init(&thread->turn, NULL);
	door->thread_count++;
	rc = redis_spare_init(&thread->spare, SPARE_MAX);
	if (!rc)
		rc = redis_gather_create(&thread->gather);
	if (!rc)
		rc = redis_tasks_init(thread);
	if (!rc)
		rc = reef_random_secret(&seed, sizeof(seed));
	if (rc)
		return rc;
	reef_random_init(&thread->random, seed);
	thread->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	thread->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (thread->epoll_fd < 0 || thread->wake_fd < 0 ||
	    epoll_ctl(thread->epoll_fd, EPOLL_CTL_ADD, thread->wake_fd, &event))
		return -errno;
	return 0;
}

static int make_threads(struct redis_door *door)
{
	uint32_t i;
	int rc = 0;

	door->threads = calloc(door->options.threads, sizeof(*door->threads));
	if (!door->threads)
		return -ENOMEM;
	for (i = 0; !rc && i < door->options.threads; i++)
		rc = init_thread(door, i);
	return rc;
}

struct found {
	const struct redis_door *door;
	struct reef_space_info space;
	uint32_t databases;
};

static int find_space(void *context, const struct reef_space_info *info)
{
	struct found *found = context;

	if (!info->scratch && !strcmp(info->name, found->door->options.space))
		found->space = *info;
	return 0;
}

static int count_database(void *context, const char *name, uint64_t value,
			  uint64_t generation)
{
	struct found *found = context;

	(void)value;
	(void)generation;
	found->databases += name[2] >= '0' && name[2] <= '9';
	return 0;
}

/* Append how many copies the space has, and what is short of what was asked
 * for. A space with one copy, as asked, is not worth a word. */
static void note_copies(struct redis_door *door,
			const struct reef_space_info *space)
{
	const size_t size = strlen(door->found);
	char *end = door->found + size;
	const size_t room = sizeof(door->found) - size;

	if (space->copies < door->options.copies)
		snprintf(end, room,
			 "; one copy, not %u: the space was made with one",
			 door->options.copies);
	else if (space->copies > 1 &&
		 redis_link_has_nodes(door->reef, space->copies) == -ENOSPC)
		snprintf(end, room,
			 "; degraded: one copy of %u, because the pool has too "
			 "few nodes. Start another (`reef node`), and the "
			 "others are made",
			 space->copies);
	else if (space->copies > 1 && space->degraded)
		snprintf(end, room,
			 "; degraded: %u of %u extents have one copy of %u, "
			 "and the others are made",
			 space->degraded, space->extents, space->copies);
	else if (space->copies > 1)
		snprintf(end, room, "; %u copies", space->copies);
}

/* Note what is there already: a few questions to the broker, so that a door
 * also opens while memory is away. */
static void note_found(struct redis_door *door)
{
	struct found found = {.door = door};

	if (reef_space_list(door->reef, find_space, &found) ||
	    reef_name_list(door->space, "db", count_database, &found)) {
		snprintf(door->found, sizeof(door->found), "not known");
		return;
	}
	if (!found.databases)
		snprintf(door->found, sizeof(door->found), "nothing yet");
	else
		snprintf(door->found, sizeof(door->found),
			 "%llu MiB in %u database%s",
			 (unsigned long long)(found.space.used >> 20),
			 found.databases, found.databases > 1 ? "s" : "");
	note_copies(door, &found.space);
}

static int open_pool(struct redis_door *door)
{
	int rc = redis_link_open(&door->options, 0, &door->reef, &door->space);
	const char *pool = door->options.pool;

	if (rc == -ENOENT || rc == -ECONNREFUSED)
		return fail_creation(
			door, rc, "no pool %s%s. Is `reef up` running?",
			pool && strcmp(pool, "local") ? "at "
						      : "of this user here",
			pool && strcmp(pool, "local") ? pool : "");
	if (rc == -EXDEV)
		return fail_creation(door, rc,
				     "the space \"%.80s\" belongs to another "
				     "user, who could read what is put there; "
				     "see --redis-space",
				     door->options.space);
	if (rc == -EDQUOT)
		return fail_creation(door, rc,
				     "this user has as many sessions, links or "
				     "spaces as their limit allows (`reef user "
				     "list`)");
	return rc ? fail_creation(door, rc, "the pool: %s (%s)",
				  reef_error_text(rc), reef_error_name(rc))
		  : 0;
}

static int open_all(struct redis_door *door)
{
	int rc = redis_guesses_create(&door->guesses);

	if (!rc)
		rc = redis_save_create(door->options.save_words, &door->save);
	if (!rc)
		rc = load_password(door);
	if (!rc)
		rc = fill_info(door);
	if (!rc)
		rc = open_pool(door);
	if (!rc)
		note_found(door);
	if (!rc)
		rc = listen_inet(door, door->options.listen, false);
	if (!rc && door->options.listen_tls)
		rc = start_tls(door);
	if (!rc)
		rc = listen_inet(door, door->options.listen_tls, true);
	if (!rc)
		rc = listen_unix(door);
	if (!rc && !door->listener_count)
		rc = fail_creation(door, -EINVAL, "there is nowhere to listen");
	return rc ? rc : make_threads(door);
}

int redis_door_create(const struct redis_door_options *options,
		      struct redis_door **out, const char **what)
{
	static char text[sizeof(((struct redis_door *)0)->what)];
	struct redis_door *door = calloc(1, sizeof(*door));
	int rc = -ENOMEM;

	if (!door)
		return rc;
	redis_commands_init();
	pthread_mutex_init(&door->password_lock, NULL);
	pthread_mutex_init(&door->tls_lock, NULL);
	door->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (door->wake_fd < 0)
		rc = -errno;
	else
		rc = set_options(door, options);
	if (!rc)
		rc = open_all(door);
	if (!rc) {
		*out = door;
		return 0;
	}
	snprintf(text, sizeof(text), "%s",
		 door->what[0] ? door->what : reef_error_text(rc));
	if (what)
		*what = text;
	redis_door_destroy(door);
	return rc;
}

static void fini_thread(struct redis_thread *thread)
{
	reef_map_value_free(&thread->value);
	for (uint32_t i = 0; i < REDIS_MANY_MAX; i++)
		reef_map_value_free(&thread->items[i].value);
	redis_spare_fini(&thread->spare);
	redis_gather_destroy(thread->gather);
	redis_tasks_fini(thread);
	if (thread->epoll_fd >= 0)
		close(thread->epoll_fd);
	if (thread->wake_fd >= 0)
		close(thread->wake_fd);
	pthread_mutex_destroy(&thread->lock);
	pthread_mutex_destroy(&thread->inbox_lock);
	pthread_cond_destroy(&thread->turn);
}

static void close_listeners(struct redis_door *door)
{
	while (door->listener_count)
		reef_socket_unlisten(door->listeners[--door->listener_count]);
}

void redis_door_destroy(struct redis_door *door)
{
	if (!door)
		return;
	close_listeners(door);
	while (door->thread_count)
		fini_thread(&door->threads[--door->thread_count]);
	free(door->threads);
	reef_space_close(door->space);
	reef_close(door->reef);
	if (door->wake_fd >= 0)
		close(door->wake_fd);
	redis_guesses_destroy(door->guesses);
	redis_save_destroy(door->save);
	redis_tls_unload(door->tls);
	pthread_mutex_destroy(&door->tls_lock);
	pthread_mutex_destroy(&door->password_lock);
	OPENSSL_cleanse(door->password, sizeof(door->password));
	free(door);
}

/* --- running --- */

static void wake_accepting(struct redis_door *door)
{
	const uint64_t one = 1;
	ssize_t written = write(door->wake_fd, &one, sizeof(one));

	(void)written;
}

void redis_door_stop(struct redis_door *door)
{
	atomic_store(&door->is_stopping, true);
	wake_accepting(door);
}

void redis_door_ready(struct redis_door *door)
{
	atomic_fetch_add(&door->ready, 1);
	wake_accepting(door);
}

static struct redis_thread *least_busy_thread(struct redis_door *door)
{
	struct redis_thread *best = &door->threads[0];
	uint32_t i;

	for (i = 1; i < door->thread_count; i++)
		if (atomic_load(&door->threads[i].dealt) <
		    atomic_load(&best->dealt))
			best = &door->threads[i];
	return best;
}

/* Accept one connection, or refuse it if there are too many. -EAGAIN: nobody
 * waits. */
static int accept_one(struct redis_door *door, int listener, bool is_tls)
{
	static const char full[] = "-ERR max number of clients reached\r\n";
	struct sockaddr_storage name = {0};
	socklen_t size = sizeof(name);
	int fd = reef_socket_accept(listener);
	ssize_t sent = 0;

	if (fd < 0)
		return fd;
	if (atomic_load(&door->client_count) >= door->config.clients_max) {
		/* It is counted first: the client may ask for the count as soon
		 * as it is refused. */
		atomic_fetch_add(&door->rejected, 1);
		if (!is_tls)
			sent = send(fd, full, sizeof(full) - 1, MSG_NOSIGNAL);
		(void)sent;
		close(fd);
		return 0;
	}
	if (getsockname(fd, (struct sockaddr *)&name, &size))
		name.ss_family = AF_UNSPEC;
	redis_serve_accept(least_busy_thread(door), fd,
			   name.ss_family == AF_UNIX, is_tls);
	return 0;
}

/* Accept the connections that wait. One that cannot be accepted stays in the
 * queue and would be tried again at once, for ever: so there is a pause. */
static void accept_some(struct redis_door *door, int listener, bool is_tls)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < ACCEPTS_MAX; i++)
		rc = accept_one(door, listener, is_tls);
	if (!rc || rc == -EAGAIN) {
		door->is_short = false;
		return;
	}
	if (!door->is_short)
		reef_log(REEF_LOG_WARNING, "redis",
			 "connections cannot be taken: %s",
			 reef_error_text(rc));
	door->is_short = true;
	reef_sleep(SHORT_PAUSE);
}

/* Close the handle of the door's creation once every thread has its own. */
static void close_own_handle(struct redis_door *door)
{
	uint64_t wakes;
	ssize_t got = read(door->wake_fd, &wakes, sizeof(wakes));

	(void)got;
	if (atomic_load(&door->ready) < door->thread_count)
		return;
	reef_space_close(door->space);
	reef_close(door->reef);
	door->space = NULL;
	door->reef = NULL;
}

static void accept_until_stop(struct redis_door *door)
{
	struct pollfd polls[REDIS_LISTENERS_MAX + 1];
	uint32_t i;

	for (i = 0; i < door->listener_count; i++)
		polls[i] = (struct pollfd){door->listeners[i], POLLIN, 0};
	polls[i] = (struct pollfd){door->wake_fd, POLLIN, 0};
	while (!atomic_load(&door->is_stopping)) {
		if (poll(polls, door->listener_count + 1, -1) < 0)
			continue;
		for (i = 0; i < door->listener_count; i++)
			if (polls[i].revents)
				accept_some(door, door->listeners[i],
					    door->is_tls[i]);
		if (polls[i].revents)
			close_own_handle(door);
	}
}

bool redis_door_is_alive(struct redis_door *door)
{
	bool is_alive = true;

	for (uint32_t i = 0; i < door->thread_count; i++) {
		struct redis_thread *thread = &door->threads[i];
		uint64_t rounds = atomic_load_explicit(&thread->rounds,
						       memory_order_relaxed);

		if (rounds == thread->rounds_known)
			is_alive = false;
		thread->rounds_known = rounds;
		redis_serve_wake(thread);
	}
	return is_alive;
}

int redis_door_run(struct redis_door *door)
{
	uint32_t i, started = 0;
	int rc = 0;

	for (i = 0; !rc && i < door->thread_count; i++) {
		rc = -pthread_create(&door->threads[i].id, NULL, redis_serve,
				     &door->threads[i]);
		started += !rc;
	}
	if (!rc)
		accept_until_stop(door);
	close_listeners(door);
	redis_door_stop(door);
	for (i = 0; i < started; i++) {
		redis_serve_wake(&door->threads[i]);
		pthread_join(door->threads[i].id, NULL);
	}
	return rc;
}
