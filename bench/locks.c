/* locks.c - see locks.h.
 *
 *   node registered --> client 0 makes all locks --> each client opens what it
 *   will use --> all are ready: go --> the last measured take: the run ends,
 *   everything is killed */
#include "bench/locks.h"

#include "base/histogram.h"
#include "base/random.h"
#include "bench/units.h"
#include "fabric/hook/count.h"
#include "fabric/sim/sim.h"
#include "pool/broker/broker.h"
#include "pool/client/inbox/inbox.h"
#include "pool/keys.h"
#include "pool/mesh.h"
#include "pool/node/node.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NS (600 * SECOND) /* of virtual time, with all preparations */
#define BROKER "sim:broker/1"
#define CLIENTS_MAX 4096
#define PLAN 64 /* takes until a client repeats itself */
#define LINE 64 /* bytes that a lock protects */
#define TTL_NS (10 * SECOND)
#define BLINK_NS 200

struct crowd;

struct client {
	struct crowd *crowd;
	uint32_t number;
	struct reef_random random;
	uint16_t plan[PLAN];	  /* which lock */
	struct reef_lock **locks; /* by number; NULL: not in the plan */
	struct reef_mesh *mesh;
	struct reef_client *client;
	struct reef *reef;
	struct reef_space *space;
	uint64_t inbox;	   /* address of its block */
	uint64_t began_ns; /* of the take that waits; 0: none does */
};

struct crowd {
	struct locks_load load;
	struct reef_sim *sim;
	struct reef_cost_model *model;
	struct reef_key key;
	struct reef_credential owner;
	struct reef_node *node;
	double *chances; /* of the locks up to each, from 0 to 1 */
	struct client *clients;
	uint64_t data;	     /* address of what they protect */
	uint64_t words;	     /* bare: that stand for the locks */
	uint32_t arrived[2]; /* clients, at each of the meetings */
	uint64_t done, takes, begin_ns, end_ns;
	struct reef_count count; /* of all clients */
	struct reef_counts before, after;
	struct reef_histogram waits;
	int error;
};

static uint64_t now_ns(const struct crowd *crowd)
{
	return reef_sched_now_ns(reef_sim_sched(crowd->sim));
}

/* End the run, with its first error: what fails later does so because
 * everything is killed. */
static void end_run(struct crowd *crowd, int error)
{
	if (crowd->end_ns)
		return;
	crowd->error = error;
	crowd->end_ns = now_ns(crowd);
	crowd->after = reef_count_read(&crowd->count);
	crowd->takes = crowd->waits.count;
	/* A client that still waits counts with the time it has waited. */
	for (uint32_t i = 0; i < crowd->load.clients; i++)
		if (crowd->clients[i].began_ns)
			reef_histogram_record(
				&crowd->waits,
				crowd->end_ns - crowd->clients[i].began_ns);
	reef_sched_stop(reef_sim_sched(crowd->sim));
}

/* --- hosts --- */

struct end_of_cable {
	struct crowd *crowd;
	const char *name;
	bool counted;
};

static int push_cost(void *context, struct reef_fabric *fabric)
{
	struct end_of_cable *cable = context;
	int rc = reef_cost_push(fabric, cable->crowd->model, cable->name);

	if (!rc && cable->counted)
		rc = reef_count_push(fabric, &cable->crowd->count);
	return rc;
}

static int open_mesh(struct crowd *crowd, struct reef_sim_host *host,
		     bool counted, struct reef_mesh **out)
{
	struct end_of_cable cable = {
		.crowd = crowd,
		.name = reef_sim_host_name(host),
		.counted = counted,
	};
	const struct reef_mesh_options options = {
		.kinds = "sim",
		.fabric = {.sim_host = host,
			   .links_max = 2 * CLIENTS_MAX,
			   .silence_ns = TTL_NS},
		.opened = push_cost,
		.context = &cable,
	};

	return reef_mesh_open(&options, out);
}

static int broker_main(struct reef_sim_host *host, void *arg)
{
	struct crowd *crowd = arg;
	struct reef_broker_options options = {
		.store = reef_sim_host_store(host),
		.key = &crowd->key,
		.listen = BROKER,
		.sync_inline = true,
		.ttl_ns = TTL_NS,
		.node_ttl_ns = TTL_NS,
		.extent_size = 64 * MIB,
		.seed = 1,
	};
	struct reef_broker *broker = NULL;
	struct reef_node_key added;
	int rc = open_mesh(crowd, host, false, &options.mesh);

	if (!rc)
		rc = reef_broker_start(&options, &broker);
	if (!rc)
		rc = reef_broker_node_key(broker, "node", &added);
	if (rc)
		end_run(crowd, rc);
	while (!rc)
		rc = reef_sleep(SECOND);
	reef_broker_stop(broker);
	reef_mesh_close(options.mesh);
	return rc;
}

static int node_main(struct reef_sim_host *host, void *arg)
{
	struct crowd *crowd = arg;
	struct reef_node_key key = {.node = 1};
	struct reef_node_options options = {
		.key = &key,
		.broker = BROKER,
		.listen = "sim:node/1",
		.capacity = 2048 * MIB,
		.simulated = true,
		.seed = 1,
	};
	struct reef_node *node = NULL;
	int rc = open_mesh(crowd, host, false, &options.mesh);

	if (!rc)
		rc = reef_key_derive_node(&crowd->key, key.node, &key.key);
	if (!rc)
		rc = reef_node_start(&options, &node);
	if (rc)
		end_run(crowd, rc);
	else
		crowd->node = node;
	while (!rc)
		rc = reef_sleep(SECOND);
	crowd->node = NULL;
	reef_node_stop(node);
	reef_mesh_close(options.mesh);
	return rc;
}

/* --- a client --- */

static uint16_t choose_lock(struct client *client)
{
	const struct crowd *crowd = client->crowd;
	double chance = reef_random_unit(&client->random);
	uint32_t low = 0, high = crowd->load.locks - 1;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (crowd->chances[middle] > chance)
			high = middle;
		else
			low = middle + 1;
	}
	return (uint16_t)low;
}

static int open_lock(struct client *client, uint32_t number,
		     struct reef_lock **out)
{
	const struct locks_load *load = &client->crowd->load;
	uint32_t places = load->clients > 32 ? 2 * load->clients : 64;
	struct reef_lock_options options = {
		.kind = load->kind,
		.waiters_max = places,
		.readers_max = load->readers_percent ? places : 0,
	};
	char name[24];

	snprintf(name, sizeof(name), "lock%u", number);
	return reef_lock_open(client->space, name, &options, out);
}

/* Zeroed lines of 64 bytes, one per lock. */
static int make_lines(struct client *client, uint64_t *address)
{
	uint64_t size = (uint64_t)client->crowd->load.locks * LINE;
	void *zeroes = calloc(1, size);
	int rc = zeroes ? reef_alloc(client->space, size, address) : -ENOMEM;

	if (!rc)
		rc = reef_write(client->reef, *address, zeroes, size);
	free(zeroes);
	return rc;
}

static int make_all(struct client *client)
{
	struct crowd *crowd = client->crowd;
	struct reef_lock *lock;
	int rc;

	rc = make_lines(client, &crowd->data);
	if (!rc)
		rc = make_lines(client, &crowd->words);
	for (uint32_t i = 0; !rc && i < crowd->load.locks; i++) {
		if (crowd->load.bare)
			break;
		rc = open_lock(client, i, &lock);
		if (!rc)
			reef_lock_close(lock);
	}
	return rc;
}

static int open_planned(struct client *client)
{
	int rc = 0;

	for (uint32_t i = 0; !rc && i < PLAN; i++) {
		client->plan[i] = choose_lock(client);
		if (!client->locks[client->plan[i]] &&
		    !client->crowd->load.bare)
			rc = open_lock(client, client->plan[i],
				       &client->locks[client->plan[i]]);
	}
	return rc;
}

static int join_pool(struct client *client, struct reef_sim_host *host)
{
	struct crowd *crowd = client->crowd;
	struct reef_client_options options = {
		.sched = reef_fiber_sched(),
		.broker = BROKER,
		.credential = &crowd->owner,
		.name = "crowd",
		.timeout_ns = LIMIT_NS,
		.seed = 1 + client->number,
	};
	const struct reef_space_options space = {.flags = REEF_SPACE_CREATE};
	struct reef_node_status status = {0};
	int rc = 0;

	while (!rc && (!status.id || status.link)) {
		rc = reef_sleep(SECOND / 1000);
		if (!rc && crowd->node)
			reef_node_status(crowd->node, &status);
	}
	if (!rc)
		rc = open_mesh(crowd, host, true, &client->mesh);
	options.mesh = client->mesh;
	if (!rc)
		rc = reef_client_create(&options, &client->client);
	if (!rc)
		rc = reef_client_handle(client->client, &client->reef);
	if (!rc)
		rc = reef_space_open(client->reef, "crowd", &space,
				     &client->space);
	return rc;
}

/* Wait until all clients have come to this meeting. */
static int wait_for_all(struct client *client, uint32_t meeting)
{
	struct crowd *crowd = client->crowd;
	int rc = 0;

	crowd->arrived[meeting]++;
	while (!rc && crowd->arrived[meeting] < crowd->load.clients)
		rc = reef_sleep(SECOND / 1000);
	return rc;
}

/* Attach all memory in which an inbox is, so that the first to wake a client
 * need not ask the broker about it. */
static int see_inboxes(struct client *client)
{
	const struct crowd *crowd = client->crowd;
	uint64_t last = 0, word, inbox;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < crowd->load.clients; i++) {
		inbox = crowd->clients[i].inbox;
		if (inbox >> 32 != last)
			rc = reef_read(client->reef, inbox, &word, 8);
		last = inbox >> 32;
	}
	return rc;
}

static int get_ready(struct client *client)
{
	struct crowd *crowd = client->crowd;
	int rc = 0;

	/* Clients come one after the other: together each would find the memory
	 * used up and add to it. */
	while (!rc && crowd->arrived[0] < client->number)
		rc = reef_sleep(SECOND / 10000);
	if (!rc && !client->number)
		rc = make_all(client);
	if (!rc)
		rc = open_planned(client);
	if (!rc)
		rc = reef_inbox_open(client->space, &client->inbox);
	if (!rc)
		rc = wait_for_all(client, 0);
	if (!rc)
		rc = see_inboxes(client);
	if (!rc)
		rc = wait_for_all(client, 1);
	/* Clients do not begin in the same nanosecond. */
	return rc ? rc : reef_sleep(reef_random_below(&client->random, 20000));
}

/* Count a lock that was taken, and end the run with the last. */
static void count_take(struct client *client)
{
	struct crowd *crowd = client->crowd;
	const struct locks_load *load = &crowd->load;
	uint64_t waited_ns = now_ns(crowd) - client->began_ns;

	client->began_ns = 0;
	crowd->done++;
	if (crowd->done == load->warm) {
		crowd->begin_ns = now_ns(crowd);
		crowd->before = reef_count_read(&crowd->count);
	}
	if (crowd->done > load->warm)
		reef_histogram_record(&crowd->waits, waited_ns);
	if (crowd->done == (uint64_t)load->warm + load->takes)
		end_run(crowd, 0);
}

/* Take a bare word, which locks are compared with: nobody ever pauses, but for
 * the blink that a processor needs; without it clients come in step, and some
 * never win. */
static int take_bare(struct client *client, uint64_t word)
{
	uint64_t before;
	int rc;

	do {
		rc = reef_sleep(reef_random_below(&client->random, BLINK_NS));
		if (!rc)
			rc = reef_cas(client->reef, word, 0, 1, &before);
	} while (!rc && before);
	return rc;
}

static int take_lock(struct client *client, uint32_t number, bool reads)
{
	const struct crowd *crowd = client->crowd;

	if (crowd->load.bare)
		return take_bare(client, crowd->words + number * LINE);
	return reef_lock_take(client->locks[number],
			      reads ? REEF_LOCK_SHARED : REEF_LOCK_EXCLUSIVE,
			      REEF_FOREVER);
}

static int give_lock(struct client *client, uint32_t number)
{
	const struct crowd *crowd = client->crowd;

	if (crowd->load.bare)
		return reef_cas(client->reef, crowd->words + number * LINE, 1,
				0, NULL);
	return reef_lock_give(client->locks[number]);
}

static int use_lock(struct client *client, uint32_t number)
{
	struct crowd *crowd = client->crowd;
	bool reads = reef_random_below(&client->random, 100) <
		     crowd->load.readers_percent;
	uint64_t data = crowd->data + number * LINE;
	char bytes[LINE] = {0};
	int rc;

	client->began_ns = now_ns(crowd);
	rc = take_lock(client, number, reads);
	if (rc)
		return rc;
	count_take(client);
	rc = reads ? reef_read(client->reef, data, bytes, sizeof(bytes))
		   : reef_write(client->reef, data, bytes, sizeof(bytes));
	if (!rc)
		rc = give_lock(client, number);
	if (!rc && crowd->load.pause_ns)
		rc = reef_sleep(reef_random_below(&client->random,
						  2 * crowd->load.pause_ns));
	return rc;
}

static int client_main(struct reef_sim_host *host, void *arg)
{
	struct client *client = arg;
	struct crowd *crowd = client->crowd;
	int rc = join_pool(client, host);

	if (!rc)
		rc = get_ready(client);
	for (uint32_t i = 0; !rc; i++)
		rc = use_lock(client, client->plan[i % PLAN]);
	if (rc != -REEF_EHOSTDEAD)
		end_run(crowd, rc);
	for (uint32_t i = 0; i < crowd->load.locks; i++)
		reef_lock_close(client->locks[i]);
	reef_close(client->reef);
	reef_client_unref(client->client);
	reef_mesh_close(client->mesh);
	return rc;
}

/* --- around it --- */

/* End a run that takes too long. */
static int watch_main(struct reef_sim_host *host, void *arg)
{
	struct crowd *crowd = arg;
	int rc = 0;

	(void)host;
	while (!rc) {
		rc = reef_sleep(SECOND / 1000);
		if (crowd->begin_ns &&
		    now_ns(crowd) > crowd->begin_ns + crowd->load.limit_ns)
			end_run(crowd, 0);
	}
	return rc;
}

static int fill_defaults(struct locks_load *load)
{
	if (!load->clients)
		load->clients = 1;
	if (!load->locks)
		load->locks = 1;
	if (!load->warm)
		load->warm = 500 + 4 * load->clients;
	if (!load->takes)
		load->takes = 2000 + 16 * load->clients;
	if (!load->limit_ns)
		load->limit_ns = SECOND / 5;
	return load->clients > CLIENTS_MAX || load->locks > UINT16_MAX ||
			       load->readers_percent > 100
		       ? -EINVAL
		       : 0;
}

static void fill_chances(struct crowd *crowd)
{
	double sum = 0;
	uint32_t i;

	for (i = 0; i < crowd->load.locks; i++) {
		sum += pow(i + 1, -crowd->load.skew);
		crowd->chances[i] = sum;
	}
	for (i = 0; i < crowd->load.locks; i++)
		crowd->chances[i] /= sum;
}

static int add_hosts(struct crowd *crowd)
{
	struct reef_random random;
	char name[24];
	int rc;

	reef_random_init(&random, crowd->load.seed);
	rc = reef_sim_host_add(crowd->sim, "broker", broker_main, crowd, NULL);
	if (!rc)
		rc = reef_sim_host_add(crowd->sim, "node", node_main, crowd,
				       NULL);
	if (!rc)
		rc = reef_sim_host_add(crowd->sim, "watch", watch_main, crowd,
				       NULL);
	for (uint32_t i = 0; !rc && i < crowd->load.clients; i++) {
		struct client *client = &crowd->clients[i];

		client->crowd = crowd;
		client->number = i;
		client->random = reef_random_split(&random, i);
		client->locks =
			calloc(crowd->load.locks, sizeof(client->locks[0]));
		if (!client->locks)
			return -ENOMEM;
		snprintf(name, sizeof(name), "client%u", i);
		rc = reef_sim_host_add(crowd->sim, name, client_main, client,
				       NULL);
	}
	return rc;
}

static int run_sim(struct crowd *crowd)
{
	struct reef_sim_options options = {
		.seed = crowd->load.seed,
		.calm = true,
	};
	int rc;

	rc = reef_cost_model_create(&crowd->load.cost, &crowd->model);
	if (rc)
		return rc;
	rc = reef_sim_create(&options, &crowd->sim);
	if (!rc) {
		rc = add_hosts(crowd);
		if (!rc)
			rc = reef_sim_run(crowd->sim, LIMIT_NS);
		reef_sim_destroy(crowd->sim);
	}
	reef_cost_model_destroy(crowd->model);
	return crowd->end_ns ? crowd->error : rc;
}

static void fill_result(const struct crowd *crowd, struct locks_result *out)
{
	struct reef_counts counts =
		reef_counts_between(&crowd->before, &crowd->after);
	double takes = (double)crowd->takes;

	*out = (struct locks_result){
		.takes_per_s =
			takes * 1e9 / (double)(crowd->end_ns - crowd->begin_ns),
		.mean_ns = reef_histogram_mean(&crowd->waits),
		.p50_ns = (double)reef_histogram_quantile(&crowd->waits, 0.5),
		.p99_ns = (double)reef_histogram_quantile(&crowd->waits, 0.99),
		.atomics = (double)(counts.cas + counts.faa) / takes,
		.messages = (double)counts.sends / takes,
		.takes = crowd->takes,
	};
}

int locks_run(const struct locks_load *load, struct locks_result *out)
{
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	int rc;

	if (!crowd)
		return -ENOMEM;
	crowd->load = *load;
	rc = fill_defaults(&crowd->load);
	if (rc)
		goto out;
	memset(crowd->key.bytes, 42, sizeof(crowd->key.bytes));
	reef_histogram_init(&crowd->waits);
	crowd->chances = calloc(crowd->load.locks, sizeof(double));
	crowd->clients = calloc(crowd->load.clients, sizeof(crowd->clients[0]));
	rc = -ENOMEM;
	if (!crowd->chances || !crowd->clients)
		goto out;
	fill_chances(crowd);
	rc = reef_key_derive_user(&crowd->key, 0, 0, &crowd->owner.key);
	if (!rc)
		rc = run_sim(crowd);
	if (!rc && !crowd->takes)
		rc = -ETIMEDOUT;
	if (!rc)
		fill_result(crowd, out);
	for (uint32_t i = 0; i < crowd->load.clients; i++)
		free(crowd->clients[i].locks);
out:
	free(crowd->clients);
	free(crowd->chances);
	free(crowd);
	return rc;
}

/* --- studies --- */

#define LINES                                                                  \
	{                                                                      \
		"bare CAS", "spin", "mcs", "rw, 90% read", "shift"             \
	}
#define POINTS                                                                 \
	{                                                                      \
		1, 2, 4, 8, 16, 32, 64, 128, 256, 512                          \
	}
#define QUICK_POINTS                                                           \
	{                                                                      \
		1, 8, 64                                                       \
	}

static const struct locks_study hot = {
	.name = "hot",
	.rate_title = "One hot lock: bare spinning collapses, queues do not",
	.wait_title = "One hot lock: a pause between attempts saves the rate, "
		      "not the wait",
	.subtitle =
		"Cost model: take, write 64 bytes, give, and again; rw: 90 in "
		"100 only read",
	.lines = LINES,
	.points = POINTS,
	.quick_points = QUICK_POINTS,
	.locks = 1,
};

static const struct locks_study zipf = {
	.name = "zipf",
	.rate_title = "1,000 locks, Zipf 0.99: the popular ones decide",
	.wait_title = "1,000 locks, Zipf 0.99: who waits, waits for the "
		      "popular ones",
	.subtitle = "Cost model: take one, write 64 bytes, give it, and again; "
		    "rw: 90 in 100 only read",
	.lines = LINES,
	.points = POINTS,
	.quick_points = QUICK_POINTS,
	.locks = 1000,
	.skew = 0.99,
};

const struct locks_study *const locks_studies[] = {&hot, &zipf, NULL};

int locks_study_run(const struct locks_study *study, uint32_t line,
		    uint64_t point, uint64_t seed, struct locks_result *out)
{
	static const struct locks_load lines[LOCKS_LINES_MAX] = {
		{.bare = true},
		{.kind = REEF_LOCK_SPIN},
		{.kind = REEF_LOCK_MCS},
		{.kind = REEF_LOCK_RW, .readers_percent = 90},
		{.kind = REEF_LOCK_SHIFT},
	};
	struct locks_load load = lines[line];

	load.seed = seed;
	load.clients = (uint32_t)point;
	load.locks = study->locks;
	load.skew = study->skew;
	return locks_run(&load, out);
}
