/* locks.c - see locks.h.
 *
 *   client 0 makes all locks --> each client opens what it will use --> all are
 *   ready: go --> the last measured take: the run ends */
#include "bench/locks.h"

#include "base/histogram.h"
#include "bench/sim_pool.h"
#include "bench/units.h"
#include "pool/client/inbox/inbox.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS_MAX 4096
#define PLAN 64 /* takes until a client repeats itself */
#define LINE 64 /* bytes that a lock protects */
#define BLINK_NS 200

struct crowd;

struct client {
	struct crowd *crowd;
	uint32_t number;
	struct reef_random *random;
	uint16_t plan[PLAN];	  /* which lock */
	struct reef_lock **locks; /* by number; NULL: not in the plan */
	struct reef *reef;
	struct reef_space *space;
	uint64_t inbox;	   /* address of its block */
	uint64_t began_ns; /* of the take that waits; 0: none does */
};

struct crowd {
	struct locks_load load;
	struct sim_pool *pool;
	double *chances; /* of the locks up to each, from 0 to 1 */
	struct client *clients;
	uint64_t data;	     /* address of what they protect */
	uint64_t words;	     /* bare: that stand for the locks */
	uint32_t arrived[2]; /* clients, at each of the meetings */
	uint64_t done, takes, begin_ns, end_ns;
	struct reef_counts before, after;
	struct reef_histogram waits;
};

static uint64_t now_ns(const struct crowd *crowd)
{
	return sim_pool_now_ns(crowd->pool);
}

/* End the run, once. */
static void end_run(struct crowd *crowd)
{
	if (!sim_pool_end(crowd->pool, 0))
		return;
	crowd->end_ns = now_ns(crowd);
	crowd->after = sim_pool_counts(crowd->pool);
	crowd->takes = crowd->waits.count;
	/* A client that still waits counts with the time it has waited. */
	for (uint32_t i = 0; i < crowd->load.clients; i++)
		if (crowd->clients[i].began_ns)
			reef_histogram_record(
				&crowd->waits,
				crowd->end_ns - crowd->clients[i].began_ns);
}

/* --- a client --- */

static uint16_t choose_lock(struct client *client)
{
	const struct crowd *crowd = client->crowd;
	double chance = reef_random_unit(client->random);
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
		rc = sim_pool_meet(&crowd->arrived[0], crowd->load.clients);
	if (!rc)
		rc = see_inboxes(client);
	if (!rc)
		rc = sim_pool_meet(&crowd->arrived[1], crowd->load.clients);
	/* Clients do not begin in the same nanosecond. */
	return rc ? rc : reef_sleep(reef_random_below(client->random, 20000));
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
		crowd->before = sim_pool_counts(crowd->pool);
	}
	if (crowd->done > load->warm)
		reef_histogram_record(&crowd->waits, waited_ns);
	if (crowd->done == (uint64_t)load->warm + load->takes)
		end_run(crowd);
}

/* Take a bare word, which locks are compared with: nobody ever pauses, but for
 * the blink that a processor needs; without it clients come in step, and some
 * never win. */
static int take_bare(struct client *client, uint64_t word)
{
	uint64_t before;
	int rc;

	do {
		rc = reef_sleep(reef_random_below(client->random, BLINK_NS));
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
	bool reads = reef_random_below(client->random, 100) <
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
		rc = reef_sleep(reef_random_below(client->random,
						  2 * crowd->load.pause_ns));
	return rc;
}

static int client_main(struct sim_pool_client *joined)
{
	struct crowd *crowd = joined->context;
	struct client *client = &crowd->clients[joined->number];
	int rc;

	crowd->pool = joined->pool;
	client->crowd = crowd;
	client->number = joined->number;
	client->random = &joined->random;
	client->reef = joined->reef;
	client->space = joined->space;
	client->locks = calloc(crowd->load.locks, sizeof(client->locks[0]));
	rc = client->locks ? get_ready(client) : -ENOMEM;
	for (uint32_t i = 0; !rc; i++)
		rc = use_lock(client, client->plan[i % PLAN]);
	for (uint32_t i = 0; client->locks && i < crowd->load.locks; i++)
		reef_lock_close(client->locks[i]);
	free(client->locks);
	return rc;
}

/* --- around it --- */

/* End a run that takes too long. */
static void watch_run(struct sim_pool *pool, void *context)
{
	struct crowd *crowd = context;

	if (crowd->begin_ns &&
	    sim_pool_now_ns(pool) > crowd->begin_ns + crowd->load.limit_ns)
		end_run(crowd);
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
	struct sim_pool_options options = {
		.cost = load->cost,
		.seed = load->seed,
		.run = client_main,
		.watch = watch_run,
		.context = crowd,
	};
	int rc;

	if (!crowd)
		return -ENOMEM;
	crowd->load = *load;
	rc = fill_defaults(&crowd->load);
	if (rc)
		goto out;
	options.clients = crowd->load.clients;
	reef_histogram_init(&crowd->waits);
	crowd->chances = calloc(crowd->load.locks, sizeof(double));
	crowd->clients = calloc(crowd->load.clients, sizeof(crowd->clients[0]));
	rc = -ENOMEM;
	if (!crowd->chances || !crowd->clients)
		goto out;
	fill_chances(crowd);
	rc = sim_pool_run(&options);
	if (!rc && !crowd->takes)
		rc = -ETIMEDOUT;
	if (!rc)
		fill_result(crowd, out);
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
