/* sim.c - the world: hosts, time, faults, the trace.
 *
 *              kill, power_off              restart
 *   RUNNING ----------------------> DEAD ------------> RUNNING, a new life
 *    |   ^
 *    v   | pause, resume: its fibers and queues stand still, its card does not
 *   PAUSED
 *
 * (1) Every choice comes from the seed, through streams that are split by
 *     purpose; nothing asks for the real time.
 * (2) The trace hash takes in what takes effect and when: never an address, and
 *     never a byte that nobody has set. */
#include "fabric/sim/sim.h"

#include "base/store/store.h"
#include "fabric/sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DELAY_MIN_NS 500
#define DELAY_MAX_NS 20000
#define SLOW_PPM 2000
#define DRIFT_MAX_PPM 200
#define CLOCK_OFFSET_MAX_NS 1000000000000ull
/* What the hosts' clocks show when it all begins, and how far they differ. */
#define WALL_NS 1700000000000000000ull
#define WALL_ERROR_MAX_NS 100000000ull

enum stream { STREAM_SHUFFLE, STREAM_TEST, STREAM_NET, STREAM_LIVES };

/* --- the trace --- */

void sim_trace(struct reef_sim *sim, enum trace_kind kind,
	       const struct reef_sim_host *host, uint64_t a, uint64_t b)
{
	sim_mix(sim, sim_now(sim));
	sim_mix(sim, (uint64_t)kind << 32 | host->index);
	sim_mix(sim, a);
	sim_mix(sim, b);
	sim->events++;
}

uint64_t reef_sim_trace_hash(const struct reef_sim *sim)
{
	return sim->hash;
}

uint64_t reef_sim_events(const struct reef_sim *sim)
{
	return sim->events;
}

/* --- time --- */

void sim_timer(struct reef_sim *sim, struct reef_timer *timer, uint64_t at_ns)
{
	int rc = reef_timer_set(sim->sched, timer, at_ns);

	reef_assert(!rc); /* a simulation that lacks memory proves nothing */
}

uint64_t sim_delay(struct reef_sim *sim)
{
	if (sim->options.calm)
		return 0;
	return reef_random_between(&sim->net, sim->options.delay_min_ns,
				   sim->options.delay_max_ns);
}

/* --- the world --- */

static void fill_in_options(struct reef_sim_options *options)
{
	if (!options->delay_max_ns) {
		options->delay_max_ns = DELAY_MAX_NS;
		if (options->delay_max_ns < options->delay_min_ns)
			options->delay_max_ns = options->delay_min_ns;
	}
	if (!options->delay_min_ns) {
		options->delay_min_ns = DELAY_MIN_NS;
		if (options->delay_min_ns > options->delay_max_ns)
			options->delay_min_ns = options->delay_max_ns;
	}
	if (!options->slow_ppm)
		options->slow_ppm = SLOW_PPM;
	if (!options->drift_max_ppm)
		options->drift_max_ppm = DRIFT_MAX_PPM;
}

int reef_sim_create(const struct reef_sim_options *options,
		    struct reef_sim **out)
{
	struct reef_sched_setup setup = {.virtual_time = true};
	struct reef_random root;
	struct reef_sim *sim;
	int rc;

	if (options->delay_max_ns &&
	    options->delay_min_ns > options->delay_max_ns)
		return -EINVAL;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return -ENOMEM;
	reef_fabric_set_sim(reef_sim_open);
	sim->options = *options;
	fill_in_options(&sim->options);
	reef_random_init(&root, options->seed);
	sim->shuffle = reef_random_split(&root, STREAM_SHUFFLE);
	sim->test = reef_random_split(&root, STREAM_TEST);
	sim->net = reef_random_split(&root, STREAM_NET);
	sim->lives = reef_random_split(&root, STREAM_LIVES);
	sim->hosts_tail = &sim->hosts;
	sim->conns_tail = &sim->conns;
	setup.options.fibers_max = options->fibers_max;
	setup.options.stack_size = options->stack_size;
	setup.shuffle = &sim->shuffle;
	rc = reef_sched_create_setup(&setup, &sim->sched);
	if (rc) {
		free(sim);
		return rc;
	}
	*out = sim;
	return 0;
}

/* Let every fiber return, whatever it waits for. */
static void end_all_fibers(struct reef_sim *sim)
{
	struct reef_sim_host *host;
	int rc;

	for (host = sim->hosts; host; host = host->next)
		reef_sim_host_kill(host);
	reef_group_kill(reef_sched_group(sim->sched));
	rc = reef_sched_run(sim->sched);
	reef_assert(!rc);
}

static void close_fabric(struct sim_fabric *fabric)
{
	while (fabric->queues)
		reef_queue_close(&fabric->queues->base);
	reef_fabric_close(&fabric->base);
}

static void free_host(struct reef_sim_host *host)
{
	struct life *life;

	while ((life = host->life)) {
		host->life = life->older;
		reef_store_destroy(life->store);
		free(life);
	}
	reef_store_destroy(host->disk);
	free(host);
}

void reef_sim_destroy(struct reef_sim *sim)
{
	struct reef_sim_host *host;
	struct life *life;
	struct cut *cut;

	if (!sim)
		return;
	if (reef_sched_fibers(sim->sched))
		end_all_fibers(sim);
	for (host = sim->hosts; host; host = host->next)
		for (life = host->life; life; life = life->older)
			while (life->fabrics)
				close_fabric(life->fabrics);
	sim_mail_drop_late(sim);
	reef_assert(!sim->conns);
	while ((host = sim->hosts)) {
		sim->hosts = host->next;
		free_host(host);
	}
	while ((cut = sim->cuts)) {
		sim->cuts = cut->next;
		free(cut);
	}
	reef_sched_destroy(sim->sched);
	free(sim);
}

struct reef_sched *reef_sim_sched(struct reef_sim *sim)
{
	return sim->sched;
}

struct reef_random *reef_sim_random(struct reef_sim *sim)
{
	return &sim->test;
}

/* End the simulation at limit_ns. This is not a timer: while one is set,
 * nothing counts as deadlocked. */
static int watch_limit(struct reef_poller *poller)
{
	struct reef_sim *sim = reef_container(poller, struct reef_sim, watch);

	if (sim_now(sim) >= sim->limit_ns) {
		sim->timed_out = true;
		reef_sched_stop(sim->sched);
	}
	return 0;
}

void reef_sim_watch(struct reef_sim *sim,
		    void (*changed)(void *context,
				    const struct reef_sim_change *change),
		    void *context)
{
	sim->changed = changed;
	sim->changed_context = context;
}

int reef_sim_run(struct reef_sim *sim, uint64_t limit_ns)
{
	uint64_t now_ns = sim_now(sim);
	int rc;

	sim->timed_out = false;
	sim->limit_ns = limit_ns < REEF_FOREVER - now_ns ? now_ns + limit_ns
							 : REEF_FOREVER;
	sim->watch = (struct reef_poller){.poll = watch_limit, .fd = -1};
	reef_sched_poller_add(sim->sched, &sim->watch);
	rc = reef_sched_run(sim->sched);
	reef_sched_poller_remove(sim->sched, &sim->watch);
	if (!rc && sim->timed_out && reef_sched_fibers(sim->sched))
		rc = -ETIMEDOUT;
	if (rc == -EDEADLK || rc == -ETIMEDOUT)
		end_all_fibers(sim);
	return rc;
}

/* --- hosts --- */

static int host_main(void *arg)
{
	struct life *life = arg;

	life->result = life->main(life->host, life->arg);
	life->ended = true;
	return 0;
}

static int start_life(struct reef_sim_host *host,
		      int (*main)(struct reef_sim_host *host, void *arg),
		      void *arg)
{
	struct reef_sim *sim = host->sim;
	struct life *life = calloc(1, sizeof(*life));
	int rc;

	if (!life)
		return -ENOMEM;
	life->host = host;
	life->main = main;
	life->arg = arg;
	life->clock = (struct reef_local_clock){
		.virtual_ns = reef_sched_virtual_ns(sim->sched),
		.offset_ns =
			reef_random_below(&sim->lives, CLOCK_OFFSET_MAX_NS),
		.drift_ppm = host->drift_ppm,
	};
	life->clock.wall_ns = WALL_NS - life->clock.offset_ns +
			      life->clock.offset_ns % WALL_ERROR_MAX_NS;
	reef_group_init(sim->sched, &life->group, &life->clock, host);
	rc = sim_disk_open(life, &life->store);
	if (rc)
		goto err_life;
	rc = reef_fiber_spawn_in(&life->group, host_main, life, NULL);
	if (rc)
		goto err_store;
	life->older = host->life;
	host->life = life;
	sim_trace(sim, TRACE_HOST, host, 1, life->clock.offset_ns);
	return 0;

err_store:
	reef_store_destroy(life->store);
err_life:
	free(life);
	return rc;
}

int reef_sim_host_add(struct reef_sim *sim, const char *name,
		      int (*main)(struct reef_sim_host *host, void *arg),
		      void *arg, struct reef_sim_host **out)
{
	uint32_t drift_max = sim->options.drift_max_ppm;
	struct reef_sim_host *host;
	int rc;

	if (!*name || strlen(name) >= sizeof(host->name) || strchr(name, '/') ||
	    sim_find_host(sim, name, strlen(name)))
		return -EINVAL;
	host = calloc(1, sizeof(*host));
	if (!host)
		return -ENOMEM;
	host->sim = sim;
	host->index = sim->hosts_count + 1;
	snprintf(host->name, sizeof(host->name), "%s", name);
	host->random = reef_random_split(&sim->lives, host->index);
	host->drift_ppm =
		(int32_t)reef_random_below(&sim->lives, 2 * drift_max + 1) -
		(int32_t)drift_max;
	rc = reef_store_open_memory(&sim->lives, &host->disk);
	if (rc)
		goto err_host;
	rc = start_life(host, main, arg);
	if (rc)
		goto err_disk;
	*sim->hosts_tail = host;
	sim->hosts_tail = &host->next;
	sim->hosts_count++;
	if (out)
		*out = host;
	return 0;

err_disk:
	reef_store_destroy(host->disk);
err_host:
	free(host);
	return rc;
}

struct reef_sim_host *sim_find_host(struct reef_sim *sim, const char *name,
				    size_t length)
{
	struct reef_sim_host *host = sim->hosts;

	while (host &&
	       (strncmp(host->name, name, length) != 0 || host->name[length]))
		host = host->next;
	return host;
}

const char *reef_sim_host_name(const struct reef_sim_host *host)
{
	return host->name;
}

struct reef_random *reef_sim_host_random(struct reef_sim_host *host)
{
	return &host->random;
}

struct reef_store *reef_sim_host_store(struct reef_sim_host *host)
{
	struct reef_group *group = reef_fiber_group();
	struct life *life = host->life;

	/* What is left of an older life must not reach what is the newer
	 * one's. */
	while (&life->group != group && life->older)
		life = life->older;
	return &life->group == group ? life->store : host->life->store;
}

struct reef_store *reef_sim_host_disk(struct reef_sim_host *host)
{
	return host->disk;
}

int reef_sim_host_result(const struct reef_sim_host *host, int *result)
{
	if (!host->life->ended)
		return -EAGAIN;
	*result = host->life->result;
	return 0;
}

/* --- faults --- */

void reef_sim_host_kill(struct reef_sim_host *host)
{
	struct life *life = host->life;
	struct sim_fabric *fabric;

	if (life->group.dead)
		return;
	sim_trace(host->sim, TRACE_HOST, host, 0, 0);
	reef_group_kill(&life->group);
	for (fabric = life->fabrics; fabric; fabric = fabric->next)
		sim_fabric_cut_off(fabric, -REEF_EHOSTDEAD);
	sim_disk_cut_off(life->store);
}

void reef_sim_host_power_off(struct reef_sim_host *host)
{
	struct sim_fabric *fabric;

	sim_trace(host->sim, TRACE_HOST, host, 2, 0);
	if (!host->life->group.dead)
		for (fabric = host->life->fabrics; fabric;
		     fabric = fabric->next)
			sim_fabric_power_off(fabric);
	reef_sim_host_kill(host);
	reef_store_crash(host->disk);
}

int reef_sim_host_restart(struct reef_sim_host *host,
			  int (*main)(struct reef_sim_host *host, void *arg),
			  void *arg)
{
	if (!host->life->group.dead)
		return -EBUSY;
	return start_life(host, main, arg);
}

void reef_sim_host_pause(struct reef_sim_host *host)
{
	sim_trace(host->sim, TRACE_HOST, host, 3, 0);
	reef_group_pause(&host->life->group);
}

void reef_sim_host_resume(struct reef_sim_host *host)
{
	struct sim_fabric *fabric;
	struct sim_queue *queue;

	sim_trace(host->sim, TRACE_HOST, host, 4, 0);
	reef_group_resume(&host->life->group);
	for (fabric = host->life->fabrics; fabric; fabric = fabric->next) {
		for (queue = fabric->queues; queue; queue = queue->next) {
			if (queue->kick_held)
				sim_kick(queue);
			queue->kick_held = false;
		}
	}
}

static struct cut **find_cut(const struct reef_sim *sim,
			     const struct reef_sim_host *a,
			     const struct reef_sim_host *b)
{
	struct cut **at = (struct cut **)&sim->cuts;

	while (*at && ((*at)->a != a || (*at)->b != b) &&
	       ((*at)->a != b || (*at)->b != a))
		at = &(*at)->next;
	return at;
}

bool sim_is_cut(const struct reef_sim *sim, const struct reef_sim_host *a,
		const struct reef_sim_host *b)
{
	return sim->cuts && *find_cut(sim, a, b);
}

void reef_sim_partition(struct reef_sim_host *a, struct reef_sim_host *b,
			bool cut)
{
	struct reef_sim *sim = a->sim;
	struct cut **at = find_cut(sim, a, b), *found = *at;
	struct conn *conn, *next;

	if (cut && !found) {
		*at = malloc(sizeof(**at));
		reef_assert(*at);
		**at = (struct cut){.a = a, .b = b};
	} else if (!cut && found) {
		*at = found->next;
		free(found);
	} else {
		return;
	}
	sim_trace(sim, TRACE_CUT, a, b->index, cut);
	for (conn = sim->conns; conn; conn = next) {
		sim_conn_ref(conn);
		if ((conn->sides[0].host == a && conn->sides[1].host == b) ||
		    (conn->sides[0].host == b && conn->sides[1].host == a))
			sim_conn_cut(conn, cut);
		next = conn->next;
		sim_conn_unref(conn);
	}
}

void reef_sim_lose_link(struct reef_link *link)
{
	struct conn *conn = reef_container(link, struct sim_link, base)->conn;

	if (conn)
		sim_conn_lose(conn, sim_soon(conn->sim), sim_soon(conn->sim),
			      -REEF_ENOLINK);
}
