/* redis.c - `reef redis`: the door for clients of Redis, in the foreground. */
#include "base/system/private.h"
#include "cmd/operate.h"
#include "cmd/serve/child.h"
#include "cmd/serve/notify.h"
#include "gateway/redis/server/door.h"
#include "pool/client/client.h"

#include <errno.h>
#include <pthread.h>
#include <reef/error.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const char usage[] =
	"usage: reef redis [OPTIONS]\n\n"
	"Serve clients of Redis, in the foreground: their keys are in maps of "
	"a pool,\nwhere other doors and native clients find them, too. It "
	"keeps "
	"nothing itself.\n`reef up` has one already. Ctrl-C stops it; what was "
	"asked is answered first.\n";

#define SECOND UINT64_C(1000000000)

static enum redis_tls_clients tls_clients(enum reef_client_certs certs)
{
	switch (certs) {
	case REEF_CLIENT_CERTS_NO:
		return REDIS_TLS_CLIENTS_NO;
	case REEF_CLIENT_CERTS_OPTIONAL:
		return REDIS_TLS_CLIENTS_OPTIONAL;
	case REEF_CLIENT_CERTS_REQUIRED:
		return REDIS_TLS_CLIENTS_REQUIRED;
	case REEF_CLIENT_CERTS_AUTO:
		break;
	}
	return REDIS_TLS_CLIENTS_AUTO;
}

static struct redis_door_options
door_options(const struct reef_settings *settings)
{
	const struct reef_redis_settings *redis = &settings->redis;

	return (struct redis_door_options){
		.pool = settings->pool,
		.credential = settings->credential,
		.fabrics = settings->fabrics,
		.pool_tls = settings->tls,
		.space = redis->space,
		.copies = redis->copies,
		.listen = redis->listen,
		.listen_tls = redis->listen_tls,
		.tls = {.certificate = redis->certificate,
			.key = redis->key,
			.authorities = redis->authorities,
			.clients = tls_clients(redis->client_certs)},
		.unix_path = redis->unix_path,
		.password_file = redis->password_file,
		.threads = redis->threads,
		.databases = redis->databases,
		.clients_max = redis->clients_max,
		.idle_ns = redis->idle_ns,
		.login_ns = redis->login_ns,
		.keepalive_ns =
			redis->keepalive_ns ? redis->keepalive_ns : UINT64_MAX,
		.limits.query_max = redis->query_max,
		.output_soft = redis->output_soft,
		.output_max = redis->output_max,
		.memory_max =
			redis->memory_max ? redis->memory_max : UINT64_MAX,
	};
}

/* The words of `reef space save` for this door's space, by the same pool. NULL:
 * there is no file. */
static const char *const *save_words(const struct reef_settings *settings)
{
	static const char *words[20];
	const struct {
		const char *flag, *value;
	} flags[] = {
		{"--pool", settings->pool},
		{"--credential", settings->credential},
		{"--run", settings->run},
		{"--fabrics", settings->fabrics},
		{"--tls", settings->tls},
	};
	uint32_t count = 0;

	if (!settings->redis.save)
		return NULL;
	words[count++] = "/proc/self/exe";
	words[count++] = "space";
	words[count++] = "save";
	words[count++] = settings->redis.space;
	words[count++] = settings->redis.save;
	for (uint32_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!flags[i].value)
			continue;
		words[count++] = flags[i].flag;
		words[count++] = flags[i].value;
	}
	return words;
}

/* Raise the limit of descriptors: one for each client, and a few dozen of our
 * own. */
static void raise_limit(const struct redis_door_options *options)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < (rlim_t)options->clients_max + 128)
		fprintf(stderr,
			"reef redis: there are descriptors for %llu clients "
			"only: see ulimit -n\n",
			(unsigned long long)limit.rlim_cur > 128
				? (unsigned long long)limit.rlim_cur - 128
				: 0);
}

/* --- signals --- */

struct ending {
	struct redis_door *door;
	sigset_t set;
	_Atomic bool is_over; /* set before the last signal, which is ours */
};

/* Whether a door could not open because nodes are missing that may come. */
static bool is_out_of_reach(int rc)
{
	return rc == -REEF_ENOLINK || rc == -ETIMEDOUT || rc == -EAGAIN ||
	       rc == -ENOSPC;
}

/* Wait for a signal. Meanwhile the service manager is told that the door is
 * alive, each time that all of its threads have shown that they are. */
static void wait_and_watch(struct ending *ending)
{
	const uint64_t pause_ns = notify_alive_ns();
	const struct timespec pause = {
		.tv_sec = (time_t)(pause_ns / SECOND),
		.tv_nsec = (long)(pause_ns % SECOND),
	};
	int number;

	while (pause_ns && sigtimedwait(&ending->set, NULL, &pause) < 0)
		if (redis_door_is_alive(ending->door))
			notify_alive();
	while (!pause_ns && sigwait(&ending->set, &number))
		;
}

/* Stop the door at the first signal, and end the process at the second: who
 * asks twice does not want to wait for a pool that is out of reach. */
static void *wait_for_signal(void *arg)
{
	struct ending *ending = arg;
	int number;

	wait_and_watch(ending);
	notify_send("STOPPING=1");
	redis_door_stop(ending->door);
	while (!ending->is_over && sigwait(&ending->set, &number))
		;
	if (!ending->is_over)
		_exit(1);
	return NULL;
}

static int run_door(struct ending *ending)
{
	pthread_t waiter;
	int rc = -pthread_create(&waiter, NULL, wait_for_signal, ending);

	if (rc)
		return rc;
	rc = redis_door_run(ending->door);
	ending->is_over = true;
	/* It is blocked everywhere, and ends sigwait. NOLINTNEXTLINE */
	pthread_kill(waiter, SIGTERM);
	pthread_join(waiter, NULL);
	return rc;
}

/* --- what people read --- */

static void print_start(const struct redis_door *door)
{
	const char *at = redis_door_addresses(door), *what = "redis";
	struct redis_door_info info;
	size_t size;

	redis_door_info(door, &info);
	printf("The Redis door is open.\n\n");
	for (; *at; at += size + strspn(at + size, " "), what = "") {
		size = strcspn(at, " ");
		printf("  %-9s %.*s\n", what, (int)size, at);
	}
	printf("  %-9s %s\n", "found", redis_door_found(door));
	if (info.port)
		printf("\n  redis-cli -p %u\n", info.port);
	else if (info.tls_port)
		printf("\n  redis-cli -p %u --tls --cacert FILE\n",
		       info.tls_port);
	printf("\nCtrl-C stops it; what it serves stays in the pool.\n");
	fflush(stdout);
}

/* Make the runtime directory, where the library looks for the pool of this
 * machine; the door's socket is in it, even if the pool is elsewhere. */
static int prepare_run_directory(const char *name,
				 const struct reef_settings *settings)
{
	int rc;

	if (!settings->run)
		return 0;
	rc = reef_private_directory(settings->run);
	if (!rc && setenv("REEF_RUN", settings->run, 1))
		rc = -errno;
	return rc ? operate_failed(name, settings->run, rc) : 0;
}

static int announce(const struct redis_door *door, const char *ready_fd)
{
	char line[CHILD_LINE_SIZE];

	notify_send("READY=1\nSTATUS=The Redis door is at %s",
		    redis_door_addresses(door));
	if (ready_fd) {
		/* Who started us says the rest, too. */
		snprintf(line, sizeof(line), "%s\t%s",
			 redis_door_addresses(door), redis_door_found(door));
		return !child_tell_ready(ready_fd, line);
	}
	print_start(door);
	return 0;
}

int cmd_redis(int argc, char **argv)
{
	const char *ready_fd = NULL;
	const struct reef_config_flag flags[] = {
		{"ready-fd", "N", "write the addresses there once it is open",
		 NULL, &ready_fd},
		{0},
	};
	const struct reef_config_input input = {
		.argc = argc,
		.argv = argv,
		.uses = REEF_USE_CLIENT | REEF_USE_REDIS,
		.flags = flags,
	};
	struct redis_door_options options;
	struct reef_settings settings;
	struct ending ending = {.is_over = false};
	const char *what = "";
	int rc = cmd_settings(&input, usage, &settings);

	if (rc >= 0)
		return rc;
	if (reef_config_rest_count(settings.config))
		return cmd_usage_error(argv[0], "unexpected argument \"%s\"",
				       reef_config_rest(settings.config, 0));
	notify_begin();
	child_block_signals(&ending.set);
	reef_client_set_servant();
	options = door_options(&settings);
	options.save_words = save_words(&settings);
	raise_limit(&options);
	rc = prepare_run_directory(argv[0], &settings);
	if (!rc)
		rc = redis_door_create(&options, &ending.door, &what);
	if (rc < 0) {
		operate_say(argv[0], "%s", what);
		rc = is_out_of_reach(rc) ? CHILD_LATER : 1;
	} else if (rc == 0) {
		rc = announce(ending.door, ready_fd);
		if (!rc)
			rc = run_door(&ending);
		if (rc < 0)
			rc = operate_failed(argv[0], "threads", rc);
		redis_door_destroy(ending.door);
	}
	reef_settings_fini(&settings);
	return rc;
}
