/* reader_work.c - clients that append to a log and share a reader of it.
 *
 * A client is two handles and three fibers, each with the log and the reader
 * open once. They append, take, acknowledge, close and open again; now and then
 * somebody trims what is acknowledged, or makes a hole.
 *
 * (1) Nobody is given what was acknowledged before it asked.
 * (2) While one has an entry, and its session is not fenced, nobody else is
 *     given it, unless the reader gives again after a time.
 * (3) An entry is acknowledged once.
 * (4) In the end whatever was appended was acknowledged, or is given to the
 *     last one who asks.
 * (5) Nobody hangs.
 * (6) No value is given from two positions.
 *
 * Chosen once, from the seed: a group or one at a time, how large the window
 * is, whether entries are given again after a time, whether there is order by
 * cuts, early or not, and whether the log keeps only so much. */
#include "cluster.h"

#include "base/log.h"
#include "log/reader.h"

#include <stdlib.h>
#include <string.h>

#define HOME "home"
#define DATA "data"
#define POSITIONS_MAX 65536u
#define VALUES_MAX 65536u
#define REPEATS_MAX 1000
#define HELD_MAX 64u
#define MOST 6u

enum done { NOT_DONE, MAYBE_DONE, DONE };

struct fact { /* of a position */
	uint64_t value;
	bool is_appended;
	enum done done;
	uint32_t holder; /* session; 0: nobody */
	const struct worker *by;
};

struct value { /* that was appended */
	bool is_appended;
	uint64_t place; /* its position, when it was given, and 1; 0: not yet */
};

struct readers {
	struct cluster *cluster;
	struct reef_log_options log;
	struct reef_reader_options options;
	uint32_t parts;
	uint64_t values;
	struct fact facts[POSITIONS_MAX];
	struct value value[VALUES_MAX];
	uint64_t done_below; /* of one at a time */
	struct worker *workers;
};

struct worker {
	struct worker *next;
	struct client *client;
	struct reef *reef;
	struct reef_space *space;
	struct reef_random random;
	struct reef_log *log; /* NULL: none */
	struct reef_reader *reader;
	uint64_t held[HELD_MAX];
	uint32_t held_count;
	uint64_t since_ns; /* its step began; 0: it has none */
	bool is_last;
};

static struct readers *readers_of(const struct worker *worker)
{
	return worker->client->cluster->work;
}

static bool is_group(const struct readers *readers)
{
	return readers->options.flags & REEF_READER_GROUP;
}

/* True if the log trims by itself, whatever readers have. */
static bool is_trimming(const struct readers *readers)
{
	return readers->log.keep_entries || readers->log.keep_bytes;
}

static uint64_t below(struct worker *worker, uint64_t bound)
{
	return reef_random_below(&worker->random, bound);
}

static struct fact *fact_of(const struct worker *worker, uint64_t position)
{
	reef_assert(position < POSITIONS_MAX);
	return &readers_of(worker)->facts[position];
}

static struct value *value_of(const struct worker *worker, uint64_t value)
{
	reef_assert(value < VALUES_MAX);
	return &readers_of(worker)->value[value];
}

/* --- errors --- */

static int judge(struct worker *worker, const char *what, int rc)
{
	struct cluster *cluster = worker->client->cluster;

	/* A link that is lost at each of many attempts, or others that are
	 * always quicker, are no error of a run with trouble. */
	if (!rc || rc == -REEF_EHOSTDEAD || rc == -REEF_EINDOUBT)
		return rc == -REEF_EINDOUBT ? 0 : rc;
	if (worker->reef && rc != -EFAULT &&
	    reef_health(worker->reef) == -REEF_EFENCED)
		rc = -REEF_EFENCED;
	if (rc == -REEF_EFENCED &&
	    (cluster->options.chaos || cluster->options.strike))
		return rc;
	cluster_fail(cluster, "client %u (session %08x): %s: %s",
		     worker->client->index, worker->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- what is true --- */

static void let_go(struct worker *worker, uint64_t position)
{
	struct fact *fact = fact_of(worker, position);

	if (fact->by == worker) {
		fact->by = NULL;
		fact->holder = 0;
	}
}

static void let_all_go(struct worker *worker)
{
	while (worker->held_count)
		let_go(worker, worker->held[--worker->held_count]);
}

static void close_reader(struct worker *worker)
{
	/* What it had can be another's as soon as the call has begun. */
	let_all_go(worker);
	reef_reader_close(worker->reader);
	worker->reader = NULL;
}

static void note_done(struct worker *worker, uint64_t position, int rc)
{
	struct fact *fact = fact_of(worker, position);

	if (!rc && fact->done == DONE && is_group(readers_of(worker)))
		cluster_fail(worker->client->cluster,
			     "%llu was acknowledged twice",
			     (unsigned long long)position);
	if (!rc)
		fact->done = DONE;
	else if (rc != -ESTALE && rc != -EINVAL && fact->done == NOT_DONE)
		fact->done = MAYBE_DONE;
}

/* --- appending --- */

static int do_append(struct worker *worker)
{
	struct readers *readers = readers_of(worker);
	uint8_t bytes[80] = {0};
	uint64_t value = ++readers->values, position = 0;
	int rc;

	memcpy(bytes, &value, 8);
	rc = reef_log_append(worker->log, bytes, 8 + value % 60, &position);
	if (!rc)
		value_of(worker, value)->is_appended = true;
	if (!rc && position != REEF_LOG_UNPLACED) {
		fact_of(worker, position)->is_appended = true;
		fact_of(worker, position)->value = value;
	}
	if (rc == -ENOSPC || rc == -EBUSY)
		rc = 0;
	return judge(worker, "append", rc);
}

/* --- taking --- */

static void note_place(struct worker *worker, uint64_t value, uint64_t position)
{
	struct value *known = value_of(worker, value);

	if (known->place && known->place != position + 1)
		cluster_fail(worker->client->cluster,
			     "%llu is given from %llu, and was from %llu",
			     (unsigned long long)value,
			     (unsigned long long)position,
			     (unsigned long long)known->place - 1);
	known->place = position + 1;
}

static int take_one(void *context, uint64_t position, const void *bytes,
		    size_t size)
{
	struct worker *worker = context;
	struct cluster *cluster = worker->client->cluster;
	struct fact *fact = fact_of(worker, position);
	uint64_t value = 0;

	memcpy(&value, bytes, size < 8 ? size : 8);
	note_place(worker, value, position);
	if (fact->is_appended && fact->value != value)
		cluster_fail(cluster, "%llu is not what was appended",
			     (unsigned long long)position);
	/* Who was fenced while it stood still between its claim and this is
	 * told by the acknowledgement. */
	if (fact->done == DONE &&
	    cluster_session(cluster, worker->client->session) < 2)
		cluster_fail(cluster, "%llu is given after it was done",
			     (unsigned long long)position);
	if (fact->by && fact->by != worker &&
	    !readers_of(worker)->options.redeliver_ns &&
	    cluster_session(cluster, fact->holder) < 2)
		cluster_fail(cluster, "session %08x is given %llu of %08x",
			     worker->client->session,
			     (unsigned long long)position, fact->holder);
	fact->by = worker;
	fact->holder = worker->client->session;
	reef_assert(worker->held_count < HELD_MAX);
	worker->held[worker->held_count++] = position;
	return 0;
}

static int do_take(struct worker *worker)
{
	uint32_t most = 1 + (uint32_t)below(worker, MOST);
	int rc;

	if (worker->held_count + most > HELD_MAX)
		return 0;
	rc = reef_reader_next(worker->reader, most, below(worker, MILLISECOND),
			      take_one, worker);
	if (rc == -ETIMEDOUT || rc == -EDEADLK || rc == -EBUSY)
		rc = 0;
	return judge(worker, "next", rc);
}

/* --- acknowledging --- */

/* One at a time: all up to the position are. */
static int do_done_up_to(struct worker *worker)
{
	uint32_t count = 1 + (uint32_t)below(worker, worker->held_count), i;
	int rc = reef_reader_done(worker->reader, worker->held[count - 1]);

	for (i = 0; i < count; i++) {
		note_done(worker, worker->held[i], rc);
		let_go(worker, worker->held[i]);
	}
	memmove(worker->held, worker->held + count,
		(worker->held_count - count) * sizeof(worker->held[0]));
	worker->held_count -= count;
	return rc;
}

static int do_done_one(struct worker *worker)
{
	uint32_t which = (uint32_t)below(worker, worker->held_count);
	uint64_t position = worker->held[which];
	int rc;

	let_go(worker, position);
	rc = reef_reader_done(worker->reader, position);
	note_done(worker, position, rc);
	worker->held[which] = worker->held[--worker->held_count];
	return rc;
}

static int do_done_all(struct worker *worker)
{
	uint32_t i;
	int rc;

	for (i = 0; i < worker->held_count; i++)
		let_go(worker, worker->held[i]);
	rc = reef_reader_done_all(worker->reader);
	for (i = 0; i < worker->held_count; i++)
		note_done(worker, worker->held[i], rc == -ESTALE ? -EIO : rc);
	worker->held_count = 0;
	return rc;
}

static int do_done(struct worker *worker)
{
	int rc = 0;

	if (!worker->held_count)
		return 0;
	if (!below(worker, 4))
		rc = do_done_all(worker);
	else
		rc = is_group(readers_of(worker)) ? do_done_one(worker)
						  : do_done_up_to(worker);
	/* It is another's now; or was given to this one twice. */
	if (readers_of(worker)->options.redeliver_ns &&
	    (rc == -ESTALE || rc == -EINVAL))
		rc = 0;
	if (is_trimming(readers_of(worker)) && rc == -ESTALE)
		rc = 0;
	return judge(worker, "done", rc);
}

/* --- the log --- */

static int do_trim(struct worker *worker)
{
	struct reef_reader_stats stats;
	int rc = reef_reader_stats(worker->log, "reader", &stats);

	if (!rc)
		rc = reef_log_trim(worker->log, stats.next);
	return judge(worker, "trim", rc == -ERANGE ? 0 : rc);
}

/* Draw a number, and forget it. By cuts there are none: tell the tail. */
static int do_hole(struct worker *worker)
{
	uint64_t position;
	int rc;

	if (readers_of(worker)->log.flags & REEF_LOG_SHARDED) {
		rc = reef_log_tail(worker->log, &position);
		return judge(worker, "tail", rc == -EBUSY ? 0 : rc);
	}
	rc = log_enter(worker->log, true);
	if (!rc) {
		rc = log_draw(worker->log, 1, NULL, 0, &position);
		log_leave(worker->log);
	}
	if (rc == -EAGAIN || rc == -E2BIG || rc == -ENOSPC || rc == -EBUSY)
		rc = 0;
	return judge(worker, "draw", rc);
}

static int open_all(struct worker *worker)
{
	struct readers *readers = readers_of(worker);
	int rc = 0;

	for (uint32_t i = 0; !worker->log && i < REPEATS_MAX; i++) {
		rc = reef_log_open(worker->space, "log", &readers->log,
				   &worker->log);
		if (rc != -REEF_EINDOUBT && rc != -EBUSY)
			break;
	}
	if (!rc)
		rc = reef_reader_open(worker->log, "reader", &readers->options,
				      &worker->reader);
	return judge(worker, "open",
		     rc == -EBUSY || rc == -ENOSPC || rc == -REEF_ENOLINK
			     ? -REEF_EINDOUBT
			     : rc);
}

/* --- steps --- */

static int choose(struct worker *worker)
{
	if (!below(worker, 60))
		return do_trim(worker);
	if (!below(worker, 40))
		return do_hole(worker);
	if (!worker->reader)
		return do_append(worker);
	if (!below(worker, 30)) {
		close_reader(worker);
		return 0;
	}
	switch (below(worker, 5)) {
	case 0:
	case 1:
		return do_append(worker);
	case 2:
		return do_take(worker);
	default:
		return do_done(worker);
	}
}

static int take_step(struct worker *worker)
{
	struct cluster *cluster = worker->client->cluster;
	int rc = 0;

	worker->since_ns = reef_sched_now_ns(reef_sim_sched(cluster->sim));
	worker->client->seat->counting = true;
	if (!worker->reader && (!worker->log || !below(worker, 8)))
		rc = open_all(worker);
	if (!rc && worker->log)
		rc = choose(worker);
	worker->since_ns = 0;
	return rc;
}

/* --- the cluster --- */

static void close_worker(struct worker *worker)
{
	struct worker **at = &readers_of(worker)->workers;

	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	close_reader(worker);
	reef_log_close(worker->log);
	worker->log = NULL;
}

static void init_worker(struct worker *worker, struct client *client,
			struct reef *reef, uint64_t stream)
{
	struct readers *readers = client->cluster->work;

	memset(worker, 0, sizeof(*worker));
	worker->client = client;
	worker->reef = reef;
	worker->random = reef_random_split(&client->random, stream);
	worker->next = readers->workers;
	readers->workers = worker;
}

int workload_setup(struct cluster *cluster)
{
	uint64_t seed = cluster->options.seed;
	struct readers *readers = calloc(1, sizeof(*readers));

	if (!readers)
		return -ENOMEM;
	readers->cluster = cluster;
	readers->log = (struct reef_log_options){
		.entry_max = 100,
		.cell = 40,
		.segment = 64,
		.segments = 256,
		.hole_ns = 20 * MICROSECOND,
	};
	if (seed % 3)
		readers->log.flags =
			seed % 3 == 1 ? REEF_LOG_SHARDED
				      : REEF_LOG_SHARDED | REEF_LOG_EARLY;
	readers->options.window = seed % 2 ? 8 : 64;
	if (seed % 4)
		readers->options.flags = REEF_READER_GROUP;
	if (seed % 8 == 5)
		readers->options.redeliver_ns = 2 * MILLISECOND;
	if (seed % 7 == 4)
		readers->log.keep_entries = 20;
	if (seed % 7 == 5)
		readers->log.keep_bytes = 600;
	if (is_trimming(readers))
		readers->log.segment = 8;
	readers->parts = 1 + seed / 2 % 3;
	cluster->work = readers;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	free(cluster->work);
	cluster->work = NULL;
}

void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct readers *readers = cluster->work;

	for (struct worker *at = readers->workers; at; at = at->next)
		if (at->since_ns &&
		    at_ns > at->since_ns + cluster->options.patience_ns)
			cluster_fail(cluster, "client %u (session %08x) hangs",
				     at->client->index, at->client->session);
}

static int open_space(struct worker *worker, struct reef *reef)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};

	return judge(worker, "open the space",
		     reef_space_open(reef, DATA, &options, &worker->space));
}

int workload_begin(struct client *client)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	struct worker *worker = malloc(sizeof(*worker));
	int rc;

	if (!worker)
		return -ENOMEM;
	init_worker(worker, client, client->reef, 1);
	client->work = worker;
	rc = judge(
		worker, "open the home",
		reef_space_open(client->reef, HOME, &options, &client->home));
	if (!rc)
		rc = open_space(worker, client->reef);
	client->space = worker->space;
	return rc;
}

void workload_forget(struct client *client, bool well)
{
	(void)well;
	if (client->work)
		close_worker(client->work);
	free(client->work);
	client->work = NULL;
}

int workload_step(struct client *client)
{
	return take_step(client->work);
}

static int work_beside(struct client *client, struct reef *reef,
		       struct reef_space *space, uint64_t stream)
{
	struct worker *worker = malloc(sizeof(*worker));
	int rc = 0;

	if (!worker)
		return -ENOMEM;
	init_worker(worker, client, reef, stream);
	worker->space = space;
	if (!space)
		rc = open_space(worker, reef);
	while (!rc && !client->leaving) {
		rc = take_step(worker);
		if (!rc)
			rc = reef_sleep(1 + below(worker, 4 * MICROSECOND));
	}
	close_worker(worker);
	free(worker);
	return rc;
}

int workload_count(struct client *client, struct reef *reef)
{
	struct readers *readers = client->cluster->work;

	return readers->parts < 2 ? 0 : work_beside(client, reef, NULL, 2);
}

int workload_stamp(struct client *client, struct reef *reef)
{
	struct readers *readers = client->cluster->work;

	(void)reef;
	return readers->parts < 3
		       ? 0
		       : work_beside(client, client->reef, client->space, 3);
}

/* --- the audit --- */

/* Take all that is left, and acknowledge it. */
static int drain(struct worker *worker)
{
	uint64_t wait_ns = 8 * worker->client->cluster->options.ttl_ns;
	uint32_t i;
	int rc = 0;

	while (!rc) {
		rc = reef_reader_next(worker->reader, HELD_MAX, wait_ns,
				      take_one, worker);
		if (rc)
			break;
		do
			rc = reef_reader_done_all(worker->reader);
		while (rc == -REEF_EINDOUBT);
		if (is_trimming(readers_of(worker)) && rc == -ESTALE)
			rc = 0;
		for (i = 0; i < worker->held_count; i++)
			fact_of(worker, worker->held[i])->done = DONE;
		let_all_go(worker);
	}
	return rc == -ETIMEDOUT ? 0 : rc;
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct readers *readers = cluster->work;
	struct worker *worker = client->work;
	uint64_t i, first = 0;
	int rc = 0;

	if (cluster->options.chaos || cluster->options.strike)
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	while (!rc && !worker->reader)
		rc = open_all(worker);
	if (!rc)
		rc = judge(worker, "the last entries", drain(worker));
	if (rc)
		return rc;
	/* What was trimmed before anybody was given it counts as acknowledged.
	 */
	if (is_trimming(readers))
		rc = judge(worker, "first",
			   reef_log_first(worker->log, &first));
	for (i = 0; !rc && !first && i < VALUES_MAX; i++)
		if (readers->value[i].is_appended && !readers->value[i].place)
			cluster_fail(cluster, "%llu was never given",
				     (unsigned long long)i);
	for (i = first; !rc && i < POSITIONS_MAX; i++)
		if (readers->facts[i].is_appended &&
		    readers->facts[i].done == NOT_DONE)
			cluster_fail(cluster, "%llu was never acknowledged",
				     (unsigned long long)i);
	return rc;
}
