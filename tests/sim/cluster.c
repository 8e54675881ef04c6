/* cluster.c - hosts and their mains.
 *
 * The broker's host keeps its disk over kills; a node's memory dies with it,
 * unless nodes keep it (keep.c). A
 * client's host, killed, is started again and joins as a new session. When all
 * clients are done, one more session audits; then the servers are stopped. */
#include "cluster.h"

#include "fixture/recurrence.h"

#include "fabric/hook/trace.h"
#include "pool/broker/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_TRIES 400

void cluster_fail(struct cluster *cluster, const char *format, ...)
{
	va_list arguments;

	if (cluster->failure[0])
		return;
	va_start(arguments, format);
	vsnprintf(cluster->failure, sizeof(cluster->failure), format,
		  arguments);
	va_end(arguments);
	cluster_trace(cluster, "VIOLATION: %s", cluster->failure);
}

void cluster_trace(struct cluster *cluster, const char *format, ...)
{
	va_list arguments;

	if (!cluster->options.trace)
		return;
	fprintf(stderr, "%12.6f  ",
		(double)reef_sched_now_ns(reef_sim_sched(cluster->sim)) / 1e9);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

static void tell_operation(void *context, const char *line)
{
	const struct seat *seat = context;

	cluster_trace(seat->cluster, "  client %u %s", seat->index, line);
}

/* What is put under a client: who replays a seed wants to see what it does. */
static int client_opened(void *context, struct reef_fabric *fabric)
{
	struct seat *seat = context;
	const struct reef_trace_options options = {
		.sink = tell_operation,
		.context = seat,
	};
	struct reef_trace *trace;
	int rc = 0;

	if (seat->cluster->options.trace)
		rc = reef_trace_push(fabric, &options, &trace);
	if (!rc && seat->cluster->options.strike)
		rc = strike_opened(seat, fabric);
	return rc;
}

static int open_mesh(const struct cluster *cluster, struct reef_sim_host *host,
		     struct seat *seat, struct reef_mesh **out)
{
	struct reef_mesh_options options = {
		.kinds = "sim",
		.fabric = {.sim_host = host,
			   .silence_ns = cluster->options.silence_ns},
	};

	if (seat) {
		options.opened = client_opened;
		options.context = seat;
	}
	return reef_mesh_open(&options, out);
}

int cluster_mesh(const struct cluster *cluster, struct reef_sim_host *host,
		 struct reef_mesh **out)
{
	return open_mesh(cluster, host, NULL, out);
}

const char *cluster_places(const struct cluster *cluster)
{
	return cluster->options.chaos & CHAOS_TAKEOVER
		       ? "sim:broker/1,sim:other/1"
		       : "sim:broker/1";
}

/* --- the broker --- */

/* Where a second broker may come to be: nobody is there yet. */
static int nobody(struct reef_sim_host *host, void *arg)
{
	(void)host;
	(void)arg;
	return 0;
}

/* Each start has a higher one (broker.h, rule 3). */
static void check_epoch(struct cluster *cluster, uint64_t epoch)
{
	cluster_trace(cluster, "broker epoch %llu serves",
		      (unsigned long long)epoch);
	if (epoch <= cluster->epoch)
		cluster_fail(cluster, "a broker starts with epoch %llu again",
			     (unsigned long long)epoch);
	cluster->epoch = epoch;
}

static uint64_t table_word(const struct reef_broker *broker, uint32_t slot)
{
	uint64_t word;

	memcpy(&word,
	       (char *)broker->tables[0]->base + reef_table_offset(slot << 16),
	       sizeof(word));
	return word;
}

/* The broker that the nodes have chosen; NULL: none that is up. */
static struct reef_broker *find_chosen(const struct cluster *cluster)
{
	struct reef_broker *best = NULL, *one;

	for (uint32_t i = 0; i < BROKERS_MAX; i++) {
		one = cluster->brokers[i];
		if (one && one->chosen && (!best || one->epoch > best->epoch))
			best = one;
	}
	return best;
}

bool cluster_is_whole(const struct cluster *cluster)
{
	const struct reef_broker *broker = find_chosen(cluster);
	const struct reef_state_extent *extents;
	size_t count;

	if (!broker)
		return false;
	extents = reef_state_extents(broker->state, &count);
	for (size_t i = 0; i < count; i++)
		if (extents[i].state != REEF_EXTENT_LIVE || !extents[i].twin)
			return false;
	for (uint32_t i = 0; i < cluster->options.nodes; i++)
		if (cluster->node_is_down[i])
			return false;
	return true;
}

/* It ends, but what it published was durable and confirmed. */
static void end_broker(struct cluster *cluster,
		       const struct reef_broker *broker)
{
	if (broker && find_chosen(cluster) == broker)
		for (uint32_t i = 0; i < SESSIONS_MAX; i++)
			cluster->table[i] = table_word(broker, i);
	for (uint32_t i = 0; i < BROKERS_MAX; i++)
		if (cluster->brokers[i] == broker)
			cluster->brokers[i] = NULL;
}

static void begin_broker(struct cluster *cluster, struct reef_broker *broker)
{
	uint32_t i = 0;

	while (i < BROKERS_MAX - 1 && cluster->brokers[i])
		i++;
	cluster->brokers[i] = broker;
}

/* Add the nodes, so that the one with index i is number i + 1. */
static int add_nodes(const struct cluster *cluster, struct reef_broker *broker)
{
	struct reef_node_key key;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < cluster->options.nodes; i++)
		rc = reef_broker_node_key(
			broker, reef_sim_host_name(cluster->nodes[i]), &key);
	return rc;
}

int cluster_broker_main(struct reef_sim_host *host, void *arg)
{
	struct cluster *cluster = arg;
	char listen[32];
	struct reef_broker_options options = {
		.store = reef_sim_host_store(host),
		.key = &cluster->key,
		.listen = listen,
		.ttl_ns = cluster->options.ttl_ns,
		.node_ttl_ns = cluster->options.node_ttl_ns,
		.extent_size = cluster->options.extent_size,
		.revoke_notice_ns = 20 * MILLISECOND,
		.sync_inline = true,
		.seed = reef_random_next(reef_sim_host_random(host)) | 1,
	};
	struct reef_broker *broker = NULL;
	struct reef_mesh *mesh;
	int rc;

	snprintf(listen, sizeof(listen), "sim:%s/1", reef_sim_host_name(host));
	rc = cluster_mesh(cluster, host, &mesh);
	if (rc)
		return rc;
	options.mesh = mesh;
	rc = reef_broker_start(&options, &broker);
	/* -EIO: its disk fails; then it is killed, and started again. */
	if (rc && rc != -REEF_EHOSTDEAD && rc != -EIO)
		cluster_fail(cluster, "the broker does not start: %s",
			     reef_error_text(rc));
	if (!rc) {
		check_epoch(cluster, reef_broker_epoch(broker));
		begin_broker(cluster, broker);
		rc = add_nodes(cluster, broker);
	}
	while (!rc && !cluster->is_over) {
		rc = reef_broker_wait(broker, 10 * MILLISECOND);
		if (rc == -ETIMEDOUT)
			rc = 0;
		else if (rc == -ESTALE && cluster->taken_over)
			cluster_trace(cluster, "the broker at %s gives up",
				      reef_sim_host_name(host));
		else if (rc && rc != -REEF_EHOSTDEAD && rc != -EIO)
			cluster_fail(cluster, "the broker gives up: %s",
				     reef_error_text(rc));
	}
	end_broker(cluster, broker);
	reef_broker_stop(broker);
	reef_mesh_close(mesh);
	return rc;
}

int cluster_session(const struct cluster *cluster, uint32_t session)
{
	const struct reef_broker *broker = find_chosen(cluster);
	uint32_t slot = session >> 16;
	uint64_t word =
		broker ? table_word(broker, slot) : cluster->table[slot];

	if ((uint16_t)word != (uint16_t)session)
		return 2;
	switch ((uint8_t)(word >> 16)) {
	case REEF_SESSION_ALIVE:
		return 0;
	case REEF_SESSION_EXPIRED:
		return 1;
	default:
		return 2;
	}
}

int cluster_await_broker(const struct cluster *cluster)
{
	int rc = 0;

	while (!rc && !find_chosen(cluster))
		rc = reef_sleep(MILLISECOND / 4);
	return rc;
}

/* --- nodes --- */

static uint32_t node_index(struct cluster *cluster, struct reef_sim_host *host)
{
	uint32_t i = 0;

	while (cluster->nodes[i] != host)
		i++;
	return i;
}

int cluster_node_main(struct reef_sim_host *host, void *arg)
{
	struct cluster *cluster = arg;
	uint32_t index = node_index(cluster, host);
	char listen[32];
	struct reef_node_key key = {.node = index + 1};
	struct reef_node_options options = {
		.key = &key,
		.broker = cluster_places(cluster),
		.listen = listen,
		.capacity = cluster->options.capacity,
		.simulated = true,
		.seed = reef_random_next(reef_sim_host_random(host)) | 1,
	};
	struct reef_node *node = NULL;
	struct reef_mesh *mesh;
	int rc;

	snprintf(listen, sizeof(listen), "sim:%s/1", reef_sim_host_name(host));
	rc = reef_key_derive_node(&cluster->key, key.node, &key.key);
	if (!rc)
		rc = cluster_mesh(cluster, host, &mesh);
	if (rc)
		return rc;
	options.mesh = mesh;
	if (cluster->options.keeps)
		options.keep = &cluster->keeps[index].keep;
	rc = reef_node_start(&options, &node);
	if (rc && rc != -REEF_EHOSTDEAD)
		cluster_fail(cluster, "node %u does not start: %s", index,
			     reef_error_text(rc));
	if (!rc)
		cluster->running[index] = node;
	while (!rc && !cluster->is_over)
		rc = reef_sleep(10 * MILLISECOND);
	if (cluster->running[index] == node)
		cluster->running[index] = NULL;
	reef_node_stop(node);
	reef_mesh_close(mesh);
	return rc;
}

/* --- watching --- */

/* Whoever was taken for dead comes back with nothing (node.h, rule 7). */
static void watch_node(struct cluster *cluster, uint32_t index)
{
	struct reef_node_status now = {0};
	struct reef_node_status *seen = &cluster->seen[index];

	if (cluster->running[index])
		reef_node_status(cluster->running[index], &now);
	if (!cluster->options.keeps && seen->incarnation && now.incarnation &&
	    seen->incarnation != now.incarnation && seen->extents &&
	    now.extents >= seen->extents)
		cluster_fail(cluster,
			     "node %u is in another life, and has its %u "
			     "extents still",
			     index, now.extents);
	*seen = now;
}

/* The broker deals with no node that its state has for DEAD or AWAY
 * (broker/nodes.c, 1 and 3). */
static void watch_broker(struct cluster *cluster)
{
	const struct reef_broker *broker = find_chosen(cluster);
	const struct broker_node *node = broker ? broker->nodes : NULL;
	const struct reef_state_node *state;

	for (; node; node = node->next) {
		state = reef_state_node(broker->state, node->id);
		if (state && reef_node_is_gone(state->state))
			cluster_fail(cluster,
				     "node %u is gone, and the broker has it",
				     node->id);
	}
}

/* Nothing that can go wrong here takes that long. */
static void watch_client(struct cluster *cluster, const struct client *client)
{
	uint64_t now_ns = reef_sched_now_ns(reef_sim_sched(cluster->sim));

	if (client && client->stepped_ns &&
	    now_ns > client->stepped_ns + cluster->options.patience_ns)
		cluster_fail(cluster, "client %u (session %08x) hangs",
			     client->index, client->session);
}

int cluster_watch(struct reef_sim_host *host, void *arg)
{
	struct cluster *cluster = arg;
	int rc = 0;

	(void)host;
	while (!rc && !cluster->is_over && !cluster->failure[0]) {
		for (uint32_t i = 0; i < cluster->options.nodes; i++)
			watch_node(cluster, i);
		for (uint32_t i = 0; i < cluster->options.clients; i++)
			watch_client(cluster, cluster->seats[i].client);
		watch_broker(cluster);
		workload_watch(cluster,
			       reef_sched_now_ns(reef_sim_sched(cluster->sim)));
		rc = reef_sleep(MILLISECOND / 4);
	}
	/* Nobody would end what hangs. */
	if (cluster->failure[0])
		reef_sched_stop(reef_sim_sched(cluster->sim));
	return rc;
}

/* --- clients --- */

/* Join, and have a handle. A broker that is away is waited for. */
static int join(struct client *client, struct reef_mesh *mesh)
{
	struct cluster *cluster = client->cluster;
	struct reef_client_options options = {
		.mesh = mesh,
		.sched = reef_sim_sched(cluster->sim),
		.broker = cluster_places(cluster),
		.credential = &cluster->owner,
		.name = reef_sim_host_name(client->seat->host),
		.timeout_ns = 5 * SECOND,
		.seed = reef_random_next(&client->random) | 1,
	};
	int rc;

	/* The audit has all the patience that there is. */
	if (cluster->finished < cluster->options.clients)
		options.patience_ns = cluster->options.gives_up_ns;
	client->seat->disturbed = client->seat->troubles != 0;
	client->seat->has_waited = client->seat->waits != 0;
	for (uint32_t tries = 0; tries < JOIN_TRIES; tries++) {
		rc = reef_client_create(&options, &client->client);
		if (rc != -ECONNREFUSED && rc != -ETIMEDOUT &&
		    rc != -REEF_ENOLINK)
			break;
		rc = reef_sleep(5 * MILLISECOND);
		if (rc)
			return rc;
		rc = -ETIMEDOUT;
	}
	if (!rc)
		rc = reef_client_handle(client->client, &client->reef);
	if (rc)
		return rc;
	client->session = reef_session(client->reef);
	client->seat->session = client->session;
	client->seat->sessions++;
	cluster_trace(cluster, "client %u: session %08x", client->index,
		      client->session);
	return workload_begin(client);
}

static void leave(struct client *client, bool well)
{
	workload_forget(client, well);
	reef_close(client->reef);
	reef_client_unref(client->client);
	client->reef = NULL;
	client->client = NULL;
	client->space = client->home = NULL;
}

static bool is_time(const struct cluster *cluster)
{
	return cluster->failure[0] ||
	       reef_sched_now_ns(reef_sim_sched(cluster->sim)) >=
		       cluster->ends_ns;
}

/* More handles of the process. */
static int beside(struct client *client,
		  int (*work)(struct client *client, struct reef *reef))
{
	struct reef *reef;
	int rc;

	rc = reef_client_handle(client->client, &reef);
	if (rc)
		return rc;
	rc = work(client, reef);
	reef_close(reef);
	return rc;
}

static int count_main(void *arg)
{
	return beside(arg, workload_count);
}

static int stamp_main(void *arg)
{
	return beside(arg, workload_stamp);
}

/* One session, from its beginning to its end. */
static int live(struct client *client, struct reef_mesh *mesh)
{
	struct cluster *cluster = client->cluster;
	struct reef_fiber *counter = NULL, *stamper = NULL;
	struct reef_sched *sched = reef_sim_sched(cluster->sim);
	int rc;

	rc = join(client, mesh);
	client->leaving = false;
	if (!rc)
		rc = reef_fiber_spawn(sched, count_main, client, &counter);
	if (!rc)
		rc = reef_fiber_spawn(sched, stamp_main, client, &stamper);
	while (!rc && !is_time(cluster)) {
		client->stepped_ns = reef_sched_now_ns(sched);
		rc = workload_step(client);
		client->stepped_ns = 0;
		cluster->steps++;
		if (!rc)
			rc = reef_sleep(reef_random_below(
				&client->random, cluster->options.step_ns));
	}
	cluster_trace(cluster, "client %u: session %08x ends: %s",
		      client->index, client->session,
		      rc ? reef_error_name(rc) : "done");
	client->leaving = true;
	client->excused = client->seat->disturbed; /* before another life is */
	client->has_waited = client->seat->has_waited;
	if (counter)
		reef_fiber_join(counter, NULL);
	if (stamper)
		reef_fiber_join(stamper, NULL);
	leave(client, !rc);
	return rc;
}

/* True if a broker that is up says that it ended a session because its lease
 * was over, not because it held memory back. One that is gone tells nothing. */
static bool has_expired(const struct cluster *cluster, uint32_t session)
{
	const struct reef_broker *broker;
	char text[64];

	snprintf(text, sizeof(text), "session %08x ends: lease expired",
		 session);
	for (uint32_t i = 0; i < BROKERS_MAX; i++) {
		broker = cluster->brokers[i];
		for (uint32_t j = 0; broker && j < BROKER_EVENTS; j++)
			if (!strcmp(broker->events[j].text, text))
				return true;
	}
	return false;
}

static bool is_excused(const struct client *client)
{
	return client->excused ||
	       (client->has_waited &&
		!has_expired(client->cluster, client->session));
}

/* Session after session, until the time is up. */
static int work(struct client *client, struct reef_mesh *mesh)
{
	struct cluster *cluster = client->cluster;
	int rc;

	do {
		rc = live(client, mesh);
		if (rc != -REEF_EFENCED)
			continue;
		cluster->fenced++;
		if (!is_excused(client) && !cluster->options.hasty)
			cluster_fail(cluster,
				     "client %u lost its lease, and nothing "
				     "had befallen it",
				     client->index);
	} while (rc == -REEF_EFENCED && !is_time(cluster));
	if (rc && rc != -REEF_EFENCED && rc != -REEF_EHOSTDEAD)
		cluster_fail(cluster, "client %u: %s", client->index,
			     reef_error_text(rc));
	return rc == -REEF_EHOSTDEAD ? rc : 0;
}

/* Everybody else has closed, and nothing is broken any more. */
static int audit(struct client *client, struct reef_mesh *mesh)
{
	struct cluster *cluster = client->cluster;
	int rc = 0;

	while (!rc && !cluster->failure[0] &&
	       (cluster->finished < cluster->options.clients ||
		cluster->troubles))
		rc = reef_sleep(MILLISECOND);
	if (rc || cluster->failure[0])
		return rc;
	rc = join(client, mesh);
	if (!rc)
		rc = workload_audit(client);
	leave(client, !rc);
	if (rc && rc != -REEF_EHOSTDEAD)
		cluster_fail(cluster, "the audit: %s", reef_error_text(rc));
	return rc;
}

int cluster_client_main(struct reef_sim_host *host, void *arg)
{
	struct seat *seat = arg;
	struct cluster *cluster = seat->cluster;
	struct client *client = calloc(1, sizeof(*client));
	struct reef_mesh *mesh = NULL;
	int rc;

	if (!client)
		return -ENOMEM;
	client->seat = seat;
	client->cluster = cluster;
	client->index = seat->index;
	client->random = reef_random_split(reef_sim_host_random(host), 1);
	seat->client = client;
	rc = open_mesh(cluster, host, seat, &mesh);
	if (!rc)
		rc = work(client, mesh);
	if (!rc) {
		seat->is_over = true;
		cluster->finished++;
	}
	if (!rc && client->index == 0) {
		rc = audit(client, mesh);
		cluster->is_over = true;
	}
	reef_mesh_close(mesh);
	if (seat->client == client)
		seat->client = NULL;
	free(client);
	return rc;
}

/* --- all together --- */

static void set_defaults(struct cluster_options *options)
{
#define DEFAULT(field, value)                                                  \
	do {                                                                   \
		if (!options->field)                                           \
			options->field = (value);                              \
	} while (0)
	DEFAULT(nodes, 2);
	DEFAULT(clients, 4);
	DEFAULT(capacity, 32ull << 20);
	DEFAULT(copies, 1);
	options->capacity *= options->copies;
	DEFAULT(extent_size, 2ull << 20);
	DEFAULT(ttl_ns, 100 * MILLISECOND);
	DEFAULT(node_ttl_ns, 200 * MILLISECOND);
	DEFAULT(duration_ns, 700 * MILLISECOND);
	DEFAULT(patience_ns, 3 * SECOND);
	DEFAULT(chaos_every_ns, 40 * MILLISECOND);
	DEFAULT(silence_ns, 50 * MILLISECOND);
	DEFAULT(strikes, 100);
	DEFAULT(step_ns, 2 * MILLISECOND);
#undef DEFAULT
}

static int add_hosts(struct cluster *cluster)
{
	struct cluster_options *options = &cluster->options;
	char name[16];
	int rc;

	rc = reef_sim_host_add(cluster->sim, "broker", cluster_broker_main,
			       cluster, &cluster->broker);
	if (!rc && options->chaos & CHAOS_TAKEOVER)
		rc = reef_sim_host_add(cluster->sim, "other", nobody, NULL,
				       &cluster->other);
	for (uint32_t i = 0; !rc && i < options->nodes; i++) {
		snprintf(name, sizeof(name), "node%u", i);
		rc = reef_sim_host_add(cluster->sim, name, cluster_node_main,
				       cluster, &cluster->nodes[i]);
	}
	for (uint32_t i = 0; !rc && i < options->clients; i++) {
		struct seat *seat = &cluster->seats[i];

		seat->cluster = cluster;
		seat->index = i;
		snprintf(name, sizeof(name), "client%u", i);
		rc = reef_sim_host_add(cluster->sim, name, cluster_client_main,
				       seat, &seat->host);
	}
	if (!rc)
		rc = reef_sim_host_add(cluster->sim, "fate", chaos_main,
				       cluster, &cluster->fate);
	if (!rc)
		rc = reef_sim_host_add(cluster->sim, "watch", cluster_watch,
				       cluster, NULL);
	return rc;
}

static void fail_recurrence(void *context, const char *text)
{
	cluster_fail(context, "%s", text);
}

static int watch_recurrence(struct cluster *cluster)
{
	cluster->recurrence =
		recurrence_begin(cluster->sim, fail_recurrence, cluster);
	if (!cluster->recurrence)
		return -ENOMEM;
	recurrence_set_broker(cluster->recurrence, cluster->brokers,
			      BROKERS_MAX);
	return 0;
}

int cluster_run(const struct cluster_options *options, struct cluster *cluster)
{
	struct reef_sim_options sim = {0};
	int rc;

	memset(cluster, 0, sizeof(*cluster));
	cluster->options = *options;
	set_defaults(&cluster->options);
	if (options->strike)
		strike_choose(cluster);
	sim.seed = cluster->options.seed;
	reef_random_init(&cluster->random, sim.seed ^ 0x706f6f6c);
	reef_random_fill(&cluster->random, &cluster->key, sizeof(cluster->key));
	cluster->ends_ns = cluster->options.duration_ns;
	for (uint32_t i = 0; i < NODES_MAX; i++)
		sim_keep_init(&cluster->keeps[i]);
	if (options->chaos & CHAOS_LINKS)
		sim.lose_link_ppm = 300;
	rc = reef_key_derive_user(&cluster->key, 0, cluster->owner.era,
				  &cluster->owner.key);
	if (!rc)
		rc = workload_setup(cluster);
	if (!rc)
		rc = reef_sim_create(&sim, &cluster->sim);
	if (!rc)
		rc = watch_recurrence(cluster);
	if (!rc)
		rc = add_hosts(cluster);
	if (!rc)
		rc = reef_sim_run(cluster->sim, 60 * SECOND);
	if (rc)
		cluster_fail(cluster, "the run: %s", reef_error_text(rc));
	if (cluster->sim)
		cluster->hash = reef_sim_trace_hash(cluster->sim);
	reef_sim_destroy(cluster->sim);
	cluster->sim = NULL;
	recurrence_end(cluster->recurrence);
	for (uint32_t i = 0; i < NODES_MAX; i++)
		sim_keep_fini(&cluster->keeps[i]);
	workload_teardown(cluster);
	return cluster->failure[0] ? -1 : 0;
}
