/* log_work.c - clients of one log, of every kind of call.
 *
 * A client is two handles and three fibers, each with the log open once. The
 * log is small: a few positions a segment, a few segments; so that segments are
 * made, trimmed and reused all the time. Now and then somebody replaces the
 * tail without need, leads (where there is one writer), seals it, or drops it:
 * then there is another of the same name.
 *
 * (1) What was answered is in one order (tests/check/order.h), log by log.
 * (2) In the end the last log is read: all that was acknowledged is there. When
 *     it is dropped then, all memory comes back, whoever died before.
 * (3) Nobody hangs; where a run is calm leases last a minute, so a lost message
 *     is a hang.
 *
 * Chosen once, from the seed: how large segments are, whether there is a single
 * writer, or order by cuts, early or not; how eager they are to drop. */
#include "cluster.h"

#include "base/log.h"
#include "base/mutant.h"
#include "check/order.h"
#include "log/internal.h"

#include <reef/log.h>
#include <stdlib.h>
#include <string.h>

#define HOME "home"
#define DATA "data"
#define LOGS_MAX 256u
#define ROW_MAX 4u
#define ENTRY_MAX 200u
#define REPEATS_MAX 1000
#define READ_MOST 12u
#define AMPLE (UINT64_C(16) << 20)

/* One log, from when it was made to when it was dropped. */
struct era {
	uint64_t generation; /* of its name */
	uint64_t trimmed;
	bool is_sealed;
};

struct logs {
	struct cluster *cluster;
	struct reef_log_options options;
	uint32_t drops; /* one step in so many; 0: none */
	uint32_t parts;
	uint64_t clock, values;
	struct order_event *events;
	uint32_t *eras; /* of the events */
	size_t count, room;
	struct era era[LOGS_MAX];
	uint32_t eras_count, handles;
	struct worker *workers;
	bool is_audited;
	uint32_t dropped;
};

struct worker {
	struct worker *next;
	struct client *client;
	struct reef *reef;
	struct reef_space *space;
	struct reef_random random;
	struct reef_log *log; /* NULL: none */
	uint32_t handle;
	uint32_t era;
	uint64_t cursor;
	uint64_t since_ns; /* its step began; 0: it has none */
	uint64_t called_at;
	bool is_last; /* it reads for the audit */
};

static struct logs *logs_of(const struct worker *worker)
{
	return worker->client->cluster->work;
}

static uint64_t now_ns(const struct cluster *cluster)
{
	return reef_sched_now_ns(reef_sim_sched(cluster->sim));
}

static uint64_t below(struct worker *worker, uint64_t bound)
{
	return reef_random_below(&worker->random, bound);
}

static struct era *era_of(const struct worker *worker)
{
	return &logs_of(worker)->era[worker->era];
}

/* --- what happened --- */

static size_t note(struct worker *worker, const struct order_event *event)
{
	struct logs *logs = logs_of(worker);

	if (logs->count == logs->room) {
		logs->room = logs->room ? 2 * logs->room : 4096;
		logs->events = realloc(logs->events,
				       logs->room * sizeof(*logs->events));
		logs->eras =
			realloc(logs->eras, logs->room * sizeof(*logs->eras));
		reef_assert(logs->events && logs->eras);
	}
	logs->events[logs->count] = *event;
	logs->events[logs->count].client = worker->client->index;
	logs->events[logs->count].handle = worker->handle;
	logs->eras[logs->count] = worker->era;
	return logs->count++;
}

static uint32_t find_era(struct logs *logs, uint64_t generation)
{
	uint32_t i;

	for (i = 0; i < logs->eras_count; i++)
		if (logs->era[i].generation == generation)
			return i;
	reef_assert(logs->eras_count < LOGS_MAX);
	logs->era[logs->eras_count].generation = generation;
	return logs->eras_count++;
}

static void tell(const struct logs *logs, uint32_t era)
{
	static const char *const kinds[] = {"?",    "append", "sight",
					    "none", "tail",   "lost"};

	for (size_t i = 0; i < logs->count; i++) {
		const struct order_event *event = &logs->events[i];

		if (logs->eras[i] != era)
			continue;
		cluster_trace(logs->cluster,
			      "%6zu client %u %-6s %llx x%u at %lld: %d  "
			      "%llu..%lld%s",
			      i, event->client, kinds[event->kind],
			      (unsigned long long)event->value, event->count,
			      (long long)event->position, (int)event->result,
			      (unsigned long long)event->called_at,
			      (long long)event->returned_at,
			      event->is_last ? " last" : "");
	}
}

static void check_era(struct logs *logs, uint32_t era, bool is_complete)
{
	struct order_event *events =
		calloc(logs->count + 1, sizeof(*logs->events));
	struct order_history history = {
		.events = events,
		.trimmed = logs->era[era].trimmed,
		.is_complete = is_complete,
		.is_early = logs->options.flags & REEF_LOG_EARLY,
		.may_lose =
			logs->era[era].is_sealed || logs->cluster->nodes_died,
	};
	const char *wrong;
	size_t i, which = 0;

	reef_assert(events);
	for (i = 0; i < logs->count; i++)
		if (logs->eras[i] == era)
			events[history.count++] = logs->events[i];
	wrong = order_check(&history, &which);
	if (wrong) {
		tell(logs, era);
		cluster_fail(logs->cluster, "log %u: %s: value %llx, at %lld",
			     era, wrong,
			     (unsigned long long)events[which].value,
			     (long long)events[which].position);
	}
	free(events);
}

/* --- errors --- */

/* True if a call ended because the client had no more patience. */
static bool has_given_up(const struct worker *worker, int rc)
{
	return worker->client->cluster->options.gives_up_ns &&
	       (rc == -ETIMEDOUT || rc == -REEF_ENOLINK ||
		rc == -REEF_EINDOUBT);
}

static int judge(struct worker *worker, const char *what, int rc)
{
	struct cluster *cluster = worker->client->cluster;

	if (!rc || rc == -REEF_EHOSTDEAD)
		return rc;
	if (has_given_up(worker, rc))
		return -REEF_EFENCED; /* begin anew, with another session */
	if (worker->reef && rc != -EFAULT &&
	    reef_health(worker->reef) == -REEF_EFENCED)
		rc = -REEF_EFENCED;
	if (rc == -REEF_EFENCED &&
	    (cluster->options.chaos || cluster->options.strike))
		return rc;
	if (rc == -REEF_ELOST && cluster->nodes_died)
		return 0;
	cluster_fail(cluster, "client %u (session %08x): %s: %s",
		     worker->client->index, worker->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

static void close_log(struct worker *worker)
{
	reef_log_close(worker->log);
	worker->log = NULL;
}

/* What a call on the log said: it is closed when it is not there any more. */
static int answer(struct worker *worker, const char *what, int rc)
{
	if (rc == -ENOENT || rc == -REEF_ELOST)
		close_log(worker);
	/* A link that is lost at each of many attempts, or others that are
	 * always quicker, are no error of a run with trouble. */
	if (rc == -ENOENT || rc == -ESHUTDOWN || rc == -REEF_EINDOUBT)
		return 0;
	if (rc == -REEF_ELOST && worker->client->cluster->nodes_died)
		return 0;
	return judge(worker, what, rc);
}

/* --- the log --- */

static int open_log(struct worker *worker)
{
	struct logs *logs = logs_of(worker);
	struct reef_log_options options = logs->options;
	int rc = -EBUSY;

	if (worker->client->cluster->nodes_died)
		options.flags |= REEF_LOG_RENEW;
	for (uint32_t i = 0; i < REPEATS_MAX; i++) {
		rc = reef_log_open(worker->space, "log", &options,
				   &worker->log);
		if (rc != -REEF_EINDOUBT && rc != -ENOSPC && rc != -EBUSY)
			break;
		rc = reef_sleep(MILLISECOND / 4);
		if (rc)
			return rc;
	}
	if (rc == -REEF_ELOST && worker->client->cluster->nodes_died)
		return 0;
	if (rc)
		return judge(worker, "open the log", rc);
	worker->era = find_era(logs, worker->log->object.generation);
	worker->cursor = 0;
	worker->handle = logs->handles++;
	return 0;
}

/* --- appending --- */

static uint32_t size_of(uint64_t value)
{
	return 8 + (uint32_t)(value * 0x9e3779b1u >> 7) %
			   (value % 5 ? 24 : ENTRY_MAX - 8);
}

static void fill_entry(uint8_t *bytes, uint64_t value)
{
	uint32_t i, size = size_of(value);

	memcpy(bytes, &value, 8);
	for (i = 8; i < size; i++)
		bytes[i] = (uint8_t)(value + i);
}

/* True if the append did not happen, for certain. */
static bool is_refusal(int rc)
{
	return rc == -ESHUTDOWN || rc == -ENOSPC || rc == -EPERM ||
	       rc == -ESTALE || rc == -EBUSY || rc == -ENOENT;
}

static int make_place(struct worker *worker)
{
	uint64_t tail, keep = 2 * worker->log->options.segment;
	int rc = reef_log_tail(worker->log, &tail);
	const bool is_lost = rc == -ENOSPC;

	/* The tail is lost, and has no room: half of what is kept goes. */
	if (is_lost) {
		keep = worker->log->options.segment *
		       (worker->log->options.segments / 2);
		rc = reef_log_first(worker->log, &tail);
		tail += 2 * keep;
	}
	if (rc || tail < keep)
		return rc;
	if (era_of(worker)->trimmed < tail - keep)
		era_of(worker)->trimmed = tail - keep;
	rc = reef_log_trim(worker->log, tail - keep);
	/* Others have trimmed meanwhile, and there is a tail again. */
	return is_lost && rc == -ERANGE ? 0 : rc;
}

static int do_append(struct worker *worker)
{
	struct logs *logs = logs_of(worker);
	uint8_t bytes[ROW_MAX][ENTRY_MAX];
	struct iovec entries[ROW_MAX];
	uint32_t i, most = logs->options.segment / 4;
	struct order_event event = {.kind = ORDER_APPEND, .count = 1};
	size_t number;
	uint64_t first = 0;
	int rc;

	if (!below(worker, 4) && most > 1)
		event.count =
			2 +
			(uint32_t)below(worker,
					(most < ROW_MAX ? most : ROW_MAX) - 1);
	logs->values += 8;
	event.value = logs->values;
	for (i = 0; i < event.count; i++) {
		fill_entry(bytes[i], event.value + i);
		entries[i].iov_base = bytes[i];
		entries[i].iov_len = size_of(event.value + i);
	}
	event.called_at = ++logs->clock;
	event.returned_at = ORDER_NEVER;
	number = note(worker, &event);
	rc = reef_log_append_many(worker->log, entries, event.count, &first);
	logs->events[number].returned_at = ++logs->clock;
	logs->events[number].position =
		first == REEF_LOG_UNPLACED ? ORDER_NEVER : first;
	if (!rc)
		logs->events[number].result = ORDER_DONE;
	else if (is_refusal(rc))
		logs->events[number].result = ORDER_REFUSED;
	if (rc == -ENOSPC)
		rc = make_place(worker);
	if (rc == -EPERM || rc == -ESTALE)
		rc = below(worker, 4) ? 0 : reef_log_lead(worker->log);
	if (rc == -ENOSPC)
		rc = make_place(worker);
	/* The bound is grown by who loses; whoever loses for ever is starved.
	 */
	return answer(worker, "append", rc);
}

/* --- reading --- */

struct sights {
	struct worker *worker;
	uint64_t next; /* all below it was noted */
	uint32_t count;
};

static void note_sight(struct worker *worker, uint64_t position, uint64_t value)
{
	const struct order_event event = {
		.kind = ORDER_SIGHT,
		.value = value,
		.position = position,
		.called_at = worker->called_at,
		.returned_at = logs_of(worker)->clock,
		.is_last = worker->is_last,
	};

	(void)note(worker, &event);
}

static int see(void *context, uint64_t position, const void *bytes, size_t size)
{
	struct sights *sights = context;
	uint8_t wanted[ENTRY_MAX];
	uint64_t value = 0;

	++logs_of(sights->worker)->clock;
	for (; sights->next < position; sights->next++)
		note_sight(sights->worker, sights->next, ORDER_HOLE);
	memcpy(&value, bytes, size < 8 ? size : 8);
	if (size == size_of(value))
		fill_entry(wanted, value);
	if (size != size_of(value) || memcmp(bytes, wanted, size))
		cluster_fail(sights->worker->client->cluster,
			     "an entry is not what was appended");
	note_sight(sights->worker, position, value);
	sights->next = position + 1;
	sights->count++;
	return 0;
}

static void note_lost(struct worker *worker, uint64_t from, uint64_t next)
{
	struct order_event event = {.kind = ORDER_LOST};

	for (event.position = from; event.position < next; event.position++)
		(void)note(worker, &event);
}

/* False if an EARLY log may have no room for a cut: then tails and reads tell
 * what is cut. */
static bool tells_all(const struct worker *worker)
{
	return !(worker->log->options.flags & REEF_LOG_EARLY) ||
	       worker->client->cluster->options.capacity >= AMPLE;
}

/* READ once from a position. *next: where it goes on. */
static int read_from(struct worker *worker, uint64_t from, uint64_t *next)
{
	struct logs *logs = logs_of(worker);
	struct sights sights = {.worker = worker, .next = from};
	int rc;

	*next = from;
	worker->called_at = ++logs->clock;
	rc = reef_log_read(worker->log, from, READ_MOST, see, &sights, next);
	++logs->clock;
	if (rc == -REEF_ELOST && *next > from &&
	    worker->client->cluster->nodes_died) {
		note_lost(worker, from, *next);
		return 0;
	}
	if (rc == -ERANGE)
		return reef_log_first(worker->log, next);
	if (rc)
		return rc;
	for (; sights.next < *next; sights.next++)
		note_sight(worker, sights.next, ORDER_HOLE);
	if (*next == from && tells_all(worker)) {
		const struct order_event event = {
			.kind = ORDER_NOTHING,
			.position = from,
			.called_at = worker->called_at,
			.returned_at = logs->clock,
		};

		(void)note(worker, &event);
	}
	return 0;
}

static int do_read(struct worker *worker)
{
	uint64_t from = worker->cursor, next;
	int rc;

	/* Now and then from somewhere else. */
	if (!below(worker, 8))
		from = below(worker, from + 16);
	rc = read_from(worker, from, &next);
	if (!rc && from == worker->cursor)
		worker->cursor = next;
	if (rc == -ENOSPC)
		rc = make_place(worker);
	return answer(worker, "read", rc);
}

static int do_tail(struct worker *worker)
{
	struct logs *logs = logs_of(worker);
	struct order_event event = {.kind = ORDER_TAIL};
	int rc;

	event.called_at = ++logs->clock;
	rc = reef_log_tail(worker->log, &event.position);
	event.returned_at = ++logs->clock;
	if (!rc && tells_all(worker))
		(void)note(worker, &event);
	return answer(worker, "tail", rc == -ENOSPC ? make_place(worker) : rc);
}

static int do_wait(struct worker *worker)
{
	uint64_t timeout_ns = below(worker, MILLISECOND);
	int rc = reef_log_wait(worker->log, worker->cursor, timeout_ns);

	return rc == -ETIMEDOUT ? 0 : answer(worker, "wait", rc);
}

/* --- changing the log --- */

static int do_trim(struct worker *worker)
{
	uint64_t position = below(worker, worker->cursor + 1);
	int rc;

	if (era_of(worker)->trimmed < position)
		era_of(worker)->trimmed = position;
	rc = reef_log_trim(worker->log, position);
	return answer(worker, "trim", rc == -EACCES ? 0 : rc);
}

static int do_fill(struct worker *worker)
{
	int rc = reef_log_fill(worker->log, worker->cursor + below(worker, 4));

	return answer(worker, "fill", rc == -EEXIST || rc == -ERANGE ? 0 : rc);
}

/* A new tail, without need; of a SINGLE log a new writer. */
static int do_renew(struct worker *worker)
{
	struct reef_log *log = worker->log;
	int rc;

	if (log_is_single(log)) {
		rc = reef_log_lead(log);
	} else {
		rc = log_enter(log, true);
		if (!rc) {
			rc = log_renew(log, log_generation(log), false, NULL,
				       NULL);
			log_leave(log);
		}
	}
	if (rc == -ENOSPC || rc == -E2BIG)
		rc = make_place(worker);
	return answer(worker, "renew", rc);
}

static int do_drop(struct worker *worker)
{
	int rc;

	if (below(worker, 2)) {
		rc = reef_log_seal(worker->log);
		if (!rc)
			era_of(worker)->is_sealed = true;
		rc = rc == -ENOSPC ? 0 : answer(worker, "seal", rc);
		if (rc || !worker->log)
			return rc;
	}
	if (!era_of(worker)->is_sealed && below(worker, 2))
		return 0;
	rc = reef_log_drop(worker->space, "log");
	logs_of(worker)->dropped += !rc;
	close_log(worker);
	return answer(worker, "drop", rc);
}

/* --- steps --- */

static int choose(struct worker *worker)
{
	struct logs *logs = logs_of(worker);

	if (era_of(worker)->is_sealed && !below(worker, 20))
		return do_drop(worker);
	if (logs->drops && !below(worker, logs->drops))
		return do_drop(worker);
	if (!below(worker, 80))
		return do_renew(worker);
	if (!below(worker, 40))
		return do_trim(worker);
	switch (below(worker, 16)) {
	case 0:
		return do_tail(worker);
	case 1:
		return do_wait(worker);
	case 2:
		return below(worker, 4) ? do_read(worker) : do_fill(worker);
	case 3:
	case 4:
	case 5:
	case 6:
	case 7:
		return do_read(worker);
	default:
		return do_append(worker);
	}
}

static int take_step(struct worker *worker)
{
	int rc = 0;

	worker->since_ns = now_ns(worker->client->cluster);
	worker->client->seat->counting = true;
	if (!worker->log)
		rc = open_log(worker);
	if (!rc && worker->log)
		rc = choose(worker);
	worker->since_ns = 0;
	return rc;
}

/* --- the cluster --- */

static void close_worker(struct worker *worker)
{
	struct worker **at = &logs_of(worker)->workers;

	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	close_log(worker);
}

static void init_worker(struct worker *worker, struct client *client,
			struct reef *reef, uint64_t stream)
{
	struct logs *logs = client->cluster->work;

	memset(worker, 0, sizeof(*worker));
	worker->client = client;
	worker->reef = reef;
	worker->random = reef_random_split(&client->random, stream);
	worker->next = logs->workers;
	logs->workers = worker;
}

/* Half of the logs have the one order, half the other. */
static bool is_sharded(uint64_t seed)
{
	return (seed ^ seed / 2 ^ seed / 8) & 1;
}

int workload_setup(struct cluster *cluster)
{
	static const uint32_t sizes[] = {8, 16, 32};
	struct logs *logs = calloc(1, sizeof(*logs));

	if (!logs)
		return -ENOMEM;
	logs->cluster = cluster;
	logs->options = (struct reef_log_options){
		.entry_max = ENTRY_MAX,
		.cell = 40,
		.segment = sizes[cluster->options.seed % 3],
		.segments = 8 + 8 * (cluster->options.seed / 3 % 2),
		.hole_ns = 1 + 50 * MICROSECOND * (cluster->options.seed % 2),
		.keep_entries = cluster->options.seed / 8 % 4 ? 0 : 60,
	};
	if (cluster->options.seed / 2 % 4 == 1)
		logs->options.flags = REEF_LOG_SINGLE;
	if (is_sharded(cluster->options.seed)) {
		logs->options.flags = REEF_LOG_SHARDED;
		/* Each handle has one. */
		logs->options.segments = 16 + 8 * (cluster->options.seed % 2);
		if (cluster->options.seed / 16 % 3 == 1)
			logs->options.flags |= REEF_LOG_EARLY;
	}
	/* Now and then only who is late for several segments loses. */
	if (cluster->options.seed % 5 == 4)
		logs->options.hole_ns = 30 * MILLISECOND;
	logs->drops = cluster->options.seed / 4 % 3 ? 0 : 300;
	logs->parts = 1 + cluster->options.seed / 2 % 3;
	cluster->work = logs;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	struct logs *logs = cluster->work;

	if (logs) {
		free(logs->events);
		free(logs->eras);
	}
	free(logs);
	cluster->work = NULL;
}

void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct logs *logs = cluster->work;

	for (struct worker *at = logs->workers; at; at = at->next)
		if (at->since_ns &&
		    at_ns > at->since_ns + cluster->options.patience_ns)
			cluster_fail(cluster, "client %u (session %08x) hangs",
				     at->client->index, at->client->session);
}

static int open_space(struct worker *worker, struct reef *reef)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)worker->client->cluster->options.copies,
	};

	return judge(worker, "open the space",
		     reef_space_open(reef, DATA, &options, &worker->space));
}

int workload_begin(struct client *client)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
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

static int work_on(struct worker *worker)
{
	int rc = 0;

	while (!rc && !worker->client->leaving) {
		rc = take_step(worker);
		if (!rc)
			rc = reef_sleep(1 + below(worker, 4 * MICROSECOND));
	}
	return rc;
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
	if (!rc)
		rc = work_on(worker);
	close_worker(worker);
	free(worker);
	return rc;
}

int workload_count(struct client *client, struct reef *reef)
{
	struct logs *logs = client->cluster->work;

	return logs->parts < 2 ? 0 : work_beside(client, reef, NULL, 2);
}

/* A second fiber of the first handle. */
int workload_stamp(struct client *client, struct reef *reef)
{
	struct logs *logs = client->cluster->work;

	(void)reef;
	return logs->parts < 3
		       ? 0
		       : work_beside(client, client->reef, client->space, 3);
}

/* --- the audit --- */

static int audit_log(struct worker *worker)
{
	uint64_t tail = 0, at, next;
	int rc = reef_log_first(worker->log, &next);

	if (!rc)
		rc = reef_log_tail(worker->log, &tail);
	/* What is kept is at least as much as was asked for. */
	if (!rc && worker->log->options.keep_entries &&
	    era_of(worker)->trimmed < next) {
		if (next + worker->log->options.keep_entries > tail)
			cluster_fail(worker->client->cluster,
				     "too much was trimmed");
		era_of(worker)->trimmed = next;
	}
	worker->is_last = true;
	do {
		at = next;
		if (!rc)
			rc = read_from(worker, at, &next);
	} while (!rc && next != at);
	worker->is_last = false;
	return rc;
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct logs *logs = cluster->work;
	struct worker *worker = client->work;
	uint64_t pinned;
	int rc = 0;

	if (cluster->options.chaos || cluster->options.strike)
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	while (!rc && !worker->log) {
		rc = open_log(worker);
		if (!rc && worker->log)
			rc = answer(worker, "the last read", audit_log(worker));
	}
	if (rc)
		return rc;
	for (uint32_t i = 0; i < logs->eras_count; i++)
		check_era(logs, i, i == worker->era);
	if (cluster->failure[0])
		return 0;
	close_log(worker);
	do
		rc = reef_log_drop(worker->space, "log");
	while (rc == -REEF_EINDOUBT);
	if (rc || cluster->nodes_died)
		return judge(worker, "drop", rc);
	/* The bodies of logs stay, also of those that were dropped before
	 * anybody had them open. */
	pinned = logs->eras_count + logs->dropped;
	if (cluster->options.chaos & CHAOS_LINKS)
		pinned += 64;
	return audit_memory(client, pinned);
}
