/* info.c - INFO: facts and figures, in the lines that clients and tools read.
 *
 * Only what is true of the door is told: what Redis has and the door has not
 * (replicas, snapshots, scripts) as none, what nobody counts not at all. */
#include "config.h"
#include "gateway/redis/commands/access.h"
#include "gateway/redis/server/door.h"
#include "gateway/redis/server/save.h"
#include "kv/figures.h"

#include <errno.h>
#include <malloc.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define SECOND_NS UINT64_C(1000000000)
#define DAY_S 86400
#define KEYS_MANY 100000u /* counting so many takes a millisecond or so */
#define COST_FACTOR 20	  /* counting may take a 20th of the time */

struct info {
	struct redis_thread *thread;
	struct redis_client *client;
	struct redis_door_info door;
	/* Sums over all threads: */
	struct redis_thread_stats stats;
	struct redis_error_count errors[REDIS_ERROR_NAMES_MAX];
	uint32_t error_names;
	uint64_t expired, evicted; /* by the maps that are open */
	FILE *text;
};

/* --- adding threads up --- */

static void add_error(struct info *info, const struct redis_error_count *error)
{
	struct redis_error_count *sum = info->errors;
	uint32_t i;

	for (i = 0; i < info->error_names; i++, sum++)
		if (!strcmp(sum->name, error->name))
			break;
	if (i == REDIS_ERROR_NAMES_MAX)
		return;
	if (i == info->error_names) {
		info->error_names++;
		*sum = *error;
		return;
	}
	sum->count += error->count;
}

static int add_thread(void *context, struct redis_thread *thread)
{
	struct info *info = context;
	struct redis_thread_stats *sum = &info->stats;
	const struct redis_thread_stats *stats = &thread->stats;
	uint64_t expired, evicted;
	uint32_t i;

	sum->connections += stats->connections;
	sum->commands += stats->commands;
	sum->errors += stats->errors;
	sum->bytes_in += stats->bytes_in;
	sum->bytes_out += stats->bytes_out;
	sum->keyspace_hits += stats->keyspace_hits;
	sum->keyspace_misses += stats->keyspace_misses;
	sum->query_limit_closed += stats->query_limit_closed;
	sum->output_limit_closed += stats->output_limit_closed;
	sum->auth_failed += stats->auth_failed;
	sum->auth_refused += stats->auth_refused;
	sum->pauses += stats->pauses;
	sum->evicted_clients += stats->evicted_clients;
	sum->batches += stats->batches;
	sum->batched += stats->batched;
	for (i = 0; i < REDIS_COMMANDS_MAX; i++) {
		sum->calls[i] += stats->calls[i];
		sum->calls_rejected[i] += stats->calls_rejected[i];
		sum->calls_failed[i] += stats->calls_failed[i];
	}
	for (i = 0; i < thread->error_names; i++)
		add_error(info, &thread->error_counts[i]);
	for (i = 0; i < REDIS_DATABASES_MAX; i++)
		if (thread->maps[i]) {
			map_removed(thread->maps[i], &expired, &evicted);
			info->expired += expired;
			info->evicted += evicted;
		}
	return 0;
}

/* --- lines --- */

static void write_number(struct info *info, const char *name, uint64_t value)
{
	fprintf(info->text, "%s:%llu\r\n", name, (unsigned long long)value);
}

static void write_text(struct info *info, const char *name, const char *value)
{
	fprintf(info->text, "%s:%s\r\n", name, value);
}

/* Write a size twice: in bytes, and as Redis writes it for people. */
static void write_size(struct info *info, const char *name, uint64_t size)
{
	static const char units[] = "KMGTP";
	double value = (double)size;
	uint32_t unit = 0;

	write_number(info, name, size);
	if (size < 1024) {
		fprintf(info->text, "%s_human:%lluB\r\n", name,
			(unsigned long long)size);
		return;
	}
	for (value /= 1024; value >= 1024 && unit < 4; unit++)
		value /= 1024;
	fprintf(info->text, "%s_human:%.2f%c\r\n", name, value, units[unit]);
}

/* --- sections --- */

static void write_server(struct info *info)
{
	uint64_t up_s = (reef_now_ns() - info->door.started_ns) / SECOND_NS;
	struct utsname name;
	struct reef_map *map;
	uint64_t now_ms;

	write_text(info, "redis_version", "7.0.15");
	write_text(info, "redis_git_sha1", "00000000");
	write_text(info, "redis_git_dirty", "0");
	write_text(info, "redis_mode", "standalone");
	write_text(info, "reef_version", REEF_VERSION);
	if (!uname(&name))
		fprintf(info->text, "os:%s %s %s\r\n", name.sysname,
			name.release, name.machine);
	write_number(info, "arch_bits", 8 * sizeof(void *));
	write_text(info, "multiplexing_api", "epoll");
	write_number(info, "process_id", (uint64_t)getpid());
	write_text(info, "process_supervised", "no");
	write_text(info, "run_id", info->door.run_id);
	write_number(info, "tcp_port", info->door.port);
	map = info->thread->maps[info->client->db];
	if (map && !reef_map_now(map, &now_ms))
		write_number(info, "server_time_usec", now_ms * 1000);
	write_number(info, "uptime_in_seconds", up_s);
	write_number(info, "uptime_in_days", up_s / DAY_S);
	write_number(info, "io_threads_active", info->door.threads > 1);
	write_text(info, "listeners", redis_door_addresses(info->thread->door));
}

static void write_clients(struct info *info)
{
	write_number(info, "connected_clients", info->door.clients);
	write_number(info, "cluster_connections", 0);
	write_number(
		info, "maxclients",
		atomic_load_explicit(
			&redis_door_config(info->thread->door)->clients_max,
			memory_order_relaxed));
	write_number(info, "blocked_clients", 0);
	write_number(info, "tracking_clients", 0);
	write_number(info, "clients_in_timeout_table", 0);
}

/* The memory of the door itself: the values are in that of the pool. */
static void write_memory(struct info *info)
{
	struct mallinfo2 heap = mallinfo2();
	long page = sysconf(_SC_PAGESIZE), pages = sysconf(_SC_PHYS_PAGES);
	unsigned long size, resident = 0;
	struct rusage usage;
	FILE *file = fopen("/proc/self/statm", "re");

	if (file) {
		if (fscanf(file, "%lu %lu", &size, &resident) != 2)
			resident = 0;
		fclose(file);
	}
	write_size(info, "used_memory", heap.uordblks + heap.hblkhd);
	write_size(info, "used_memory_rss", resident * (uint64_t)page);
	if (!getrusage(RUSAGE_SELF, &usage))
		write_size(info, "used_memory_peak",
			   (uint64_t)usage.ru_maxrss * 1024);
	if (pages > 0)
		write_size(info, "total_system_memory",
			   (uint64_t)pages * (uint64_t)page);
	write_size(info, "maxmemory", 0);
	write_text(info, "maxmemory_policy", "noeviction");
	write_text(info, "mem_allocator", "libc");
	write_number(info, "active_defrag_running", 0);
	write_number(info, "lazyfree_pending_objects", 0);
}

/* Nothing is loaded: the pool's memory outlives the door. */
static void write_persistence(struct info *info)
{
	struct redis_save_info save;

	redis_save_info(redis_door_save(info->thread->door), &save);
	write_number(info, "loading",
		     !info->thread->reef || info->thread->is_fenced);
	write_number(info, "async_loading", 0);
	write_number(info, "rdb_changes_since_last_save", 0);
	write_number(info, "rdb_bgsave_in_progress", save.is_running);
	write_number(info, "rdb_last_save_time",
		     save.last_s ? save.last_s : info->door.started_ms / 1000);
	write_text(info, "rdb_last_bgsave_status",
		   save.has_failed ? "err" : "ok");
	write_number(info, "aof_enabled", 0);
	write_number(info, "aof_rewrite_in_progress", 0);
	write_number(info, "aof_rewrite_scheduled", 0);
	write_text(info, "aof_last_bgrewrite_status", "ok");
	write_text(info, "aof_last_write_status", "ok");
}

/* How many commands there were per second since somebody last asked; who asks
 * again within a tenth of a second is told the same. */
static uint64_t commands_per_second(uint64_t commands)
{
	static _Atomic uint64_t asked_ns, asked_commands, told;
	uint64_t now_ns = reef_now_ns(), before_ns = asked_ns;
	uint64_t before = asked_commands;

	if (now_ns - before_ns < SECOND_NS / 10)
		return told;
	asked_ns = now_ns;
	asked_commands = commands;
	if (commands >= before)
		told = (uint64_t)((double)(commands - before) *
				  (double)SECOND_NS /
				  (double)(now_ns - before_ns));
	return told;
}

static void write_stats(struct info *info)
{
	const struct redis_thread_stats *stats = &info->stats;

	write_number(info, "total_connections_received", stats->connections);
	write_number(info, "total_commands_processed", stats->commands);
	write_number(info, "instantaneous_ops_per_sec",
		     commands_per_second(stats->commands));
	write_number(info, "total_net_input_bytes", stats->bytes_in);
	write_number(info, "total_net_output_bytes", stats->bytes_out);
	write_number(info, "rejected_connections", info->door.rejected);
	write_number(info, "sync_full", 0);
	write_number(info, "sync_partial_ok", 0);
	write_number(info, "sync_partial_err", 0);
	write_number(info, "expired_keys", info->expired);
	write_number(info, "evicted_keys", info->evicted);
	write_number(info, "evicted_clients", stats->evicted_clients);
	write_number(info, "keyspace_hits", stats->keyspace_hits);
	write_number(info, "keyspace_misses", stats->keyspace_misses);
	write_number(info, "pubsub_channels", 0);
	write_number(info, "pubsub_patterns", 0);
	write_number(info, "latest_fork_usec", 0);
	write_number(info, "total_error_replies", stats->errors);
	write_number(info, "client_query_buffer_limit_disconnections",
		     stats->query_limit_closed);
	write_number(info, "client_output_buffer_limit_disconnections",
		     stats->output_limit_closed);
	write_number(info, "acl_access_denied_auth", stats->auth_failed);
	write_number(info, "reef_auth_refused", stats->auth_refused);
	write_number(info, "reef_pauses", stats->pauses);
	write_number(info, "reef_batches", stats->batches);
	write_number(info, "reef_batched_commands", stats->batched);
}

static void write_replication(struct info *info)
{
	write_text(info, "role", "master");
	write_number(info, "connected_slaves", 0);
	write_text(info, "master_failover_state", "no-failover");
	write_text(info, "master_replid", info->door.run_id);
	write_text(info, "master_replid2",
		   "0000000000000000000000000000000000000000");
	write_number(info, "master_repl_offset", 0);
	write_text(info, "second_repl_offset", "-1");
	write_number(info, "repl_backlog_active", 0);
}

static void write_seconds(struct info *info, const char *name,
			  struct timeval time)
{
	fprintf(info->text, "%s:%lld.%06ld\r\n", name, (long long)time.tv_sec,
		(long)time.tv_usec);
}

static void write_cpu(struct info *info)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage))
		return;
	write_seconds(info, "used_cpu_sys", usage.ru_stime);
	write_seconds(info, "used_cpu_user", usage.ru_utime);
	if (getrusage(RUSAGE_CHILDREN, &usage))
		return;
	write_seconds(info, "used_cpu_sys_children", usage.ru_stime);
	write_seconds(info, "used_cpu_user_children", usage.ru_utime);
}

static void write_nothing(struct info *info)
{
	(void)info;
}

static void write_commands(struct info *info)
{
	const struct redis_command *command;
	uint32_t i;

	for (i = 0; i < redis_command_count(); i++) {
		command = redis_command_by_index(i);
		if (!info->stats.calls[i] && !info->stats.calls_rejected[i])
			continue;
		fprintf(info->text,
			"cmdstat_%s%s%s:calls=%llu,rejected_calls=%llu,"
			"failed_calls=%llu\r\n",
			command->parent ? command->parent->name : "",
			command->parent ? "|" : "", command->name,
			(unsigned long long)info->stats.calls[i],
			(unsigned long long)info->stats.calls_rejected[i],
			(unsigned long long)info->stats.calls_failed[i]);
	}
}

static void write_errors(struct info *info)
{
	uint32_t i;

	for (i = 0; i < info->error_names; i++)
		fprintf(info->text, "errorstat_%s:count=%llu\r\n",
			info->errors[i].name,
			(unsigned long long)info->errors[i].count);
}

static void write_cluster(struct info *info)
{
	write_number(info, "cluster_enabled", 0);
}

/* Count the keys of a database. With millions of keys that takes a while, in
 * which the thread serves nobody, and some clients ask whenever they connect:
 * so a count holds for COST_FACTOR times what it took. */
static int count_keys(struct redis_thread *thread, uint32_t db, uint64_t *keys)
{
	struct redis_key_count *count = &thread->key_counts[db];
	uint64_t began_ns = reef_now_ns(), cost_ns;
	struct reef_map *map;
	int rc = redis_map_existing(thread, db, &map);

	if (rc)
		return rc;
	if (began_ns >= count->until_ns) {
		rc = reef_map_count(map, &count->keys);
		cost_ns = reef_now_ns() - began_ns;
		count->until_ns = rc || count->keys < KEYS_MANY
					  ? 0
					  : began_ns + COST_FACTOR * cost_ns;
	}
	*keys = count->keys;
	return rc;
}

/* expires and avg_ttl are 0: nobody counts which keys expire. */
static void write_keyspace(struct info *info)
{
	uint64_t keys;
	uint32_t db;
	int rc;

	for (db = 0; db < redis_databases(info->thread); db++) {
		rc = count_keys(info->thread, db, &keys);
		if (!rc && keys)
			fprintf(info->text,
				"db%u:keys=%llu,expires=0,avg_ttl=0\r\n", db,
				(unsigned long long)keys);
	}
}

static const struct section {
	const char *word, *title;
	bool is_default;
	void (*write)(struct info *info);
} sections[] = {
	{"server", "Server", true, write_server},
	{"clients", "Clients", true, write_clients},
	{"memory", "Memory", true, write_memory},
	{"persistence", "Persistence", true, write_persistence},
	{"stats", "Stats", true, write_stats},
	{"replication", "Replication", true, write_replication},
	{"cpu", "CPU", true, write_cpu},
	{"modules", "Modules", true, write_nothing},
	{"commandstats", "Commandstats", false, write_commands},
	{"errorstats", "Errorstats", true, write_errors},
	{"cluster", "Cluster", true, write_cluster},
	{"keyspace", "Keyspace", true, write_keyspace},
};
#define SECTIONS (sizeof(sections) / sizeof(sections[0]))

static bool is_asked(const struct redis_request *request,
		     const struct section *section)
{
	uint32_t i;

	if (request->argc == 1)
		return section->is_default;
	for (i = 1; i < request->argc; i++) {
		if (redis_bytes_is(&request->argv[i], section->word) ||
		    redis_bytes_is(&request->argv[i], "all") ||
		    redis_bytes_is(&request->argv[i], "everything"))
			return true;
		if (section->is_default &&
		    redis_bytes_is(&request->argv[i], "default"))
			return true;
	}
	return false;
}

static void run_info(struct redis_thread *thread, struct redis_client *client,
		     const struct redis_request *request)
{
	struct info *info = calloc(1, sizeof(*info));
	bool is_first = true;
	char *bytes = NULL;
	size_t size = 0, i;

	if (info)
		info->text = open_memstream(&bytes, &size);
	if (!info || !info->text) {
		redis_reply_failure(thread, client, -ENOMEM);
		free(info);
		return;
	}
	info->thread = thread;
	info->client = client;
	redis_door_info(thread->door, &info->door);
	redis_door_each(thread->door, thread, add_thread, info);
	for (i = 0; i < SECTIONS; i++) {
		if (!is_asked(request, &sections[i]))
			continue;
		fprintf(info->text, "%s# %s\r\n", is_first ? "" : "\r\n",
			sections[i].title);
		sections[i].write(info);
		is_first = false;
	}
	if (fclose(info->text))
		redis_reply_failure(thread, client, -ENOMEM);
	else
		redis_reply_verbatim(&client->reply, bytes, size, "txt");
	free(bytes);
	free(info);
}

struct redis_command redis_info_commands[] = {
	REDIS_COMMAND("info", -1, REDIS_LOADING | REDIS_STALE, 0, 0, 0,
		      run_info),
	{0},
};
