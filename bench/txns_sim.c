/* txns_sim.c - see txns_sim.h.
 *
 *   FaRM (SOSP 2015): READs all objects; sends the node a record to lock those
 *     that are written, which its processors do; READs the version of what was
 *     only read; and WRITEs the record that commits, which is applied later.
 *   FaSST (OSDI 2016): requests to the node's processors: one that reads and
 *     locks, one that looks at versions again, one that commits.
 *   DrTM (SOSP 2015): two-phase locking: for each object a CAS (a lease where
 *     it is only read), then a READ; what is done meanwhile in the processor's
 *     transactional memory takes no time here, where it is but one more lock;
 *     then all is WRITTEN back and unlocked at once.
 *   FORD (FAST 2022): CAS and READ of what is written, and READs of the rest,
 *     in one batch; READs of versions; WRITEs and unlocks in one batch.
 *
 * A lock that is held, or a version that is another, aborts: what was locked is
 * let go, and after a pause by chance, longer the more often it has lost, it
 * begins anew. A request occupies one of the node's CORES for REQUEST_NS and
 * KEY_NS a key. Left out, in their favour: logs for recovery, copies,
 * allocation, looking keys up, coroutines' switches, and FaRM's processors when
 * they apply what was committed. Left out, to their disadvantage: several
 * nodes, and objects near their coordinator. */
#include "bench/txns_sim.h"

#include "base/histogram.h"
#include "bench/sim_pool.h"
#include "bench/units.h"

#include <errno.h>
#include <reef/fiber.h>
#include <reef/txn.h>
#include <stdlib.h>

#define HOSTS_MAX 16u
#define KEYS 8192u
#define HOT (KEYS / 100)
#define VALUE 64u
#define TXNS 2000u /* at least */
/* Of a coordinator: enough that how all begin does not matter. */
#define TXNS_EACH 30u
#define TXNS_EACH_HOT 10u
#define TAKEN 3u    /* keys of a transaction; all but the first change */
#define OBJECT 128u /* bytes: lock, version, value */
#define CORES 8u
#define REQUEST_NS 400u
#define KEY_NS 100u
/* Of who has lost: twice as long after some losses, else 512 never end. */
#define PAUSE_NS 4000u
#define PAUSE_LOSSES 4u
#define PAUSE_SHIFT_MAX 6u
#define ROUND_TRIP_NS 2000

const char *const txns_lines[TXNS_LINES + 1] = {"Reef", "FaRM", "FaSST",
						"DrTM", "FORD", NULL};
const uint64_t txns_points[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 0};
const uint64_t txns_quick_points[] = {1, 8, 64, 0};

const struct txns_study txns_studies[] = {
	{.name = "cold",
	 .title =
		 "Cold keys: round trips decide, then the node's processors or "
		 "NIC",
	 .subtitle = "3 of 8,192 keys, 2 of them changed; the real code, and "
		     "models of others, on the cost model, one node, one copy"},
	{.name = "hot",
	 .title =
		 "Hot keys: who waits lets go, so more coordinators do no harm",
	 .subtitle = "the same; 90 of 100 keys are among 81 hot ones",
	 .is_hot = true},
	{0},
};

const char txns_papers[] =
	"The papers' own words, of their hardware, which is not compared here: "
	"FaRM (SOSP 2015)\ndoes 140 million TATP transactions a second on 90 "
	"machines. FaSST (OSDI 2016) is almost\ntwice as fast as FaRM on TATP "
	"with half the hardware, and 1.7 times as fast as DrTM+R "
	"on\nSmallBank. "
	"DrTM (SOSP 2015) does 5.52 million new-orders a second on 6 machines. "
	"FORD (FAST\n2022) has up to 3 times the throughput, and up to 87.4 % "
	"less latency, than FaRM and\nDrTM+H on persistent memory.\n";

struct field {
	enum txns_line line;
	bool is_hot;
	uint32_t coordinators, hosts;
	uint32_t loaded, opened; /* of sim_pool_meet */
	struct sim_pool *pool;
	uint64_t objects; /* of models: their address */
	/* What the node's processors know: FaRM's and FaSST's. */
	bool is_locked[KEYS];
	uint32_t versions[KEYS];
	uint64_t core_free_ns[CORES];
	uint64_t done, warm, txns, aborts;
	uint64_t begin_ns, end_ns, begin_aborts, end_aborts;
	struct reef_counts before, after;
	struct reef_histogram waits;
};

struct caller {
	struct field *field;
	struct sim_pool_client *host;
	struct reef_map *map;
	struct reef_random random;
	struct reef_txn_item items[TAKEN];
	uint64_t keys[TAKEN];
	uint8_t bytes[TAKEN][OBJECT]; /* what was read */
	uint64_t name;		      /* in lock words */
	struct reef_fiber *fiber;
	int rc;
};

/* --- Reef --- */

static int reef_body(struct reef_txn *txn, void *context)
{
	struct caller *caller = context;
	uint64_t value[VALUE / 8] = {0};
	int rc;

	caller->field->aborts++;
	for (uint32_t i = 0; i < TAKEN; i++) {
		caller->items[i].map = caller->map;
		caller->items[i].key = &caller->keys[i];
		caller->items[i].key_size = sizeof(caller->keys[i]);
	}
	rc = reef_txn_take_many(txn, caller->items, TAKEN);
	for (uint32_t i = 1; i < TAKEN && !rc; i++) {
		value[0] = caller->keys[i];
		rc = reef_txn_put(txn, caller->map, &caller->keys[i],
				  sizeof(caller->keys[i]), value, sizeof(value),
				  0);
	}
	return rc;
}

static int run_reef(struct caller *caller)
{
	/* As the models, it does not give up. */
	const struct reef_txn_options options = {.attempts = UINT32_MAX};
	int rc = reef_txn_run(caller->host->space, reef_body, caller, &options);

	caller->field->aborts -= !rc; /* the last attempt was none */
	return rc;
}

/* --- what the models share --- */

static uint64_t object_at(const struct caller *caller, uint32_t i)
{
	return caller->field->objects + caller->keys[i] * OBJECT;
}

static struct reef_access access_of(const struct caller *caller, uint8_t kind,
				    uint32_t i, uint32_t from, uint32_t length)
{
	return (struct reef_access){
		.kind = kind,
		.address = object_at(caller, i) + from,
		.local = (void *)(uintptr_t)&caller->bytes[i][from],
		.length = length,
	};
}

static int execute(struct caller *caller, struct reef_access *accesses,
		   uint32_t count)
{
	return count ? reef_execute(caller->host->reef, accesses, count) : 0;
}

/* A message to the node: as a WRITE of so many bytes. */
static int send_bytes(struct caller *caller, uint32_t length)
{
	struct reef_access one = {
		.kind = REEF_WRITE,
		/* Behind the objects there is room for what nobody reads. */
		.address = caller->field->objects + (uint64_t)KEYS * OBJECT,
		.local = caller->bytes,
		.length = length,
	};

	return execute(caller, &one, 1);
}

/* A request that occupies one of the node's processors. */
static int ask_node(struct caller *caller, uint32_t keys, uint32_t length)
{
	struct field *field = caller->field;
	uint64_t now_ns, begin_ns;
	uint32_t core = 0;
	int rc = send_bytes(caller, length);

	if (rc)
		return rc;
	for (uint32_t i = 1; i < CORES; i++)
		if (field->core_free_ns[i] < field->core_free_ns[core])
			core = i;
	now_ns = sim_pool_now_ns(field->pool);
	begin_ns = field->core_free_ns[core] > now_ns
			   ? field->core_free_ns[core]
			   : now_ns;
	field->core_free_ns[core] = begin_ns + REQUEST_NS + keys * KEY_NS;
	return reef_sleep(field->core_free_ns[core] - now_ns);
}

static int read_objects(struct caller *caller, uint32_t from, uint32_t length)
{
	struct reef_access accesses[TAKEN];

	for (uint32_t i = from; i < TAKEN; i++)
		accesses[i - from] = access_of(caller, REEF_READ, i, 0, length);
	return execute(caller, accesses, TAKEN - from);
}

static uint64_t word_of(const struct caller *caller, uint32_t i, uint32_t at)
{
	return *(const uint64_t *)(const void *)&caller->bytes[i][at];
}

/* --- FaRM, FaSST: locks are the node's processors' --- */

static bool lock_all(struct caller *caller, const uint32_t *versions)
{
	struct field *field = caller->field;

	for (uint32_t i = 1; i < TAKEN; i++)
		if (field->is_locked[caller->keys[i]] ||
		    field->versions[caller->keys[i]] != versions[i])
			return false;
	for (uint32_t i = 1; i < TAKEN; i++)
		field->is_locked[caller->keys[i]] = true;
	return true;
}

static void unlock_all(struct caller *caller, bool is_done)
{
	struct field *field = caller->field;

	for (uint32_t i = 1; i < TAKEN; i++) {
		field->is_locked[caller->keys[i]] = false;
		field->versions[caller->keys[i]] += is_done;
	}
}

/* True if what was only read is as it was. */
static bool is_valid(const struct caller *caller, const uint32_t *versions)
{
	const struct field *field = caller->field;
	const uint64_t key = caller->keys[0];

	return !field->is_locked[key] && field->versions[key] == versions[0];
}

static void note_versions(const struct caller *caller, uint32_t *versions)
{
	for (uint32_t i = 0; i < TAKEN; i++)
		versions[i] = caller->field->versions[caller->keys[i]];
}

/* 1: committed.  0: aborted.  Negative: an error. */
static int try_farm(struct caller *caller)
{
	uint32_t versions[TAKEN];
	struct reef_access look = access_of(caller, REEF_READ, 0, 0, 16);
	int rc = read_objects(caller, 0, 16 + VALUE);

	note_versions(caller, versions);
	rc = rc ? rc : ask_node(caller, TAKEN - 1, (TAKEN - 1) * (16 + VALUE));
	if (rc)
		return rc;
	if (!lock_all(caller, versions))
		return 0;
	rc = execute(caller, &look, 1);
	if (rc || !is_valid(caller, versions)) {
		unlock_all(caller, false);
		return rc ? rc : send_bytes(caller, 16);
	}
	rc = send_bytes(caller, 16);
	unlock_all(caller, true);
	return rc ? rc : 1;
}

static int try_fasst(struct caller *caller)
{
	uint32_t versions[TAKEN];
	int rc = ask_node(caller, TAKEN, TAKEN * 16);

	note_versions(caller, versions);
	if (rc)
		return rc;
	if (!is_valid(caller, versions) || !lock_all(caller, versions))
		return 0;
	rc = ask_node(caller, 1, 16);
	if (rc || !is_valid(caller, versions)) {
		unlock_all(caller, false);
		return rc ? rc : ask_node(caller, TAKEN - 1, 32);
	}
	rc = ask_node(caller, TAKEN - 1, (TAKEN - 1) * (16 + VALUE));
	unlock_all(caller, true);
	return rc ? rc : 1;
}

/* --- DrTM, FORD: locks are words --- */

static struct reef_access cas_of(const struct caller *caller, uint32_t i)
{
	struct reef_access one = access_of(caller, REEF_CAS, i, 0, 8);

	one.operand = caller->name;
	return one;
}

/* WRITE what is held back, if it is done, with a new version; and unlock. */
static int let_go(struct caller *caller, const bool *is_held, bool is_done)
{
	struct reef_access accesses[2 * TAKEN];
	uint64_t *words;
	uint32_t count = 0;

	for (uint32_t i = 0; i < TAKEN; i++) {
		if (!is_held[i])
			continue;
		words = (uint64_t *)(void *)caller->bytes[i];
		words[1] += is_done;
		words[0] = 0;
		if (is_done && i)
			accesses[count++] =
				access_of(caller, REEF_WRITE, i, 8, 8 + VALUE);
		accesses[count++] = access_of(caller, REEF_WRITE, i, 0, 8);
	}
	return execute(caller, accesses, count);
}

static int try_drtm(struct caller *caller)
{
	bool is_held[TAKEN] = {false}, is_good = true;
	struct reef_access one;
	int rc = 0;

	for (uint32_t i = 0; i < TAKEN && !rc && is_good; i++) {
		one = cas_of(caller, i);
		rc = execute(caller, &one, 1);
		is_good = is_held[i] = !rc && !one.result;
		if (is_held[i]) {
			one = access_of(caller, REEF_READ, i, 0, 16 + VALUE);
			rc = execute(caller, &one, 1);
		}
	}
	rc = rc ? rc : let_go(caller, is_held, is_good);
	return rc ? rc : is_good;
}

static int try_ford(struct caller *caller)
{
	struct reef_access accesses[2 * TAKEN], look;
	bool is_held[TAKEN] = {false}, is_good = true;
	uint64_t version;
	uint32_t count = 0;
	int rc;

	for (uint32_t i = 1; i < TAKEN; i++) {
		accesses[count++] = cas_of(caller, i);
		accesses[count++] =
			access_of(caller, REEF_READ, i, 0, 16 + VALUE);
	}
	accesses[count++] = access_of(caller, REEF_READ, 0, 0, 16 + VALUE);
	rc = execute(caller, accesses, count);
	for (uint32_t i = 1; i < TAKEN && !rc; i++) {
		is_held[i] = !accesses[2 * (i - 1)].result;
		is_good &= is_held[i];
	}
	is_good &= !word_of(caller, 0, 0);
	version = word_of(caller, 0, 8);
	if (!rc && is_good) {
		look = access_of(caller, REEF_READ, 0, 0, 16);
		rc = execute(caller, &look, 1);
		is_good = !word_of(caller, 0, 0) &&
			  word_of(caller, 0, 8) == version;
	}
	rc = rc ? rc : let_go(caller, is_held, is_good);
	return rc ? rc : is_good;
}

static int run_model(struct caller *caller)
{
	static int (*const tries[TXNS_LINES])(struct caller * caller) = {
		[TXNS_FARM] = try_farm,
		[TXNS_FASST] = try_fasst,
		[TXNS_DRTM] = try_drtm,
		[TXNS_FORD] = try_ford,
	};
	uint32_t losses = 0, shift;
	int rc;

	while ((rc = tries[caller->field->line](caller)) == 0) {
		caller->field->aborts++;
		shift = losses++ / PAUSE_LOSSES;
		if (shift > PAUSE_SHIFT_MAX)
			shift = PAUSE_SHIFT_MAX;
		rc = reef_sleep(reef_random_below(&caller->random,
						  (uint64_t)PAUSE_NS << shift));
		if (rc)
			return rc;
	}
	return rc < 0 ? rc : 0;
}

/* --- coordinators --- */

static void draw_keys(struct caller *caller)
{
	const struct field *field = caller->field;
	uint32_t i = 0, j;

	while (i < TAKEN) {
		caller->keys[i] = reef_random_below(
			&caller->random,
			field->is_hot && reef_random_below(&caller->random,
							   100) < 90
				? HOT
				: KEYS);
		for (j = 0; j < i && caller->keys[j] != caller->keys[i]; j++)
			;
		i += j == i;
	}
}

static void count_txn(struct field *field, uint64_t began_ns)
{
	uint64_t now_ns = sim_pool_now_ns(field->pool);

	field->done++;
	if (field->done == field->warm) {
		field->begin_ns = now_ns;
		field->before = sim_pool_counts(field->pool);
		field->begin_aborts = field->aborts;
	} else if (field->done > field->warm && !field->end_ns) {
		reef_histogram_record(&field->waits, now_ns - began_ns);
	}
	if (field->done == field->warm + field->txns) {
		field->end_ns = now_ns;
		field->after = sim_pool_counts(field->pool);
		field->end_aborts = field->aborts;
	}
}

static int caller_main(void *arg)
{
	struct caller *caller = arg;
	struct field *field = caller->field;
	uint64_t began_ns;
	int rc = sim_pool_meet(&field->opened, field->coordinators);

	while (!rc && !field->end_ns) {
		began_ns = sim_pool_now_ns(field->pool);
		draw_keys(caller);
		rc = field->line == TXNS_REEF ? run_reef(caller)
					      : run_model(caller);
		if (!rc)
			count_txn(field, began_ns);
	}
	for (uint32_t i = 0; i < TAKEN; i++)
		reef_map_value_free(&caller->items[i].value);
	caller->rc = rc;
	return 0;
}

/* The first host puts all keys; each goes through them once, so that it knows
 * where they are. */
static int open_map(struct sim_pool_client *client, struct reef_map **out)
{
	const struct reef_map_options options = {.remember = 2 * KEYS};
	struct field *field = client->context;
	const uint64_t zero[VALUE / 8] = {0};
	struct reef_map_value value = {0};
	int rc = reef_map_open(client->space, "map", &options, out);

	for (uint64_t i = 0; !rc && !client->number && i < KEYS; i++)
		rc = reef_map_put(*out, &i, sizeof(i), zero, sizeof(zero), 0,
				  NULL);
	while (!rc && client->number && !field->loaded)
		rc = reef_sleep(SECOND / 1000);
	field->loaded |= !rc;
	for (uint64_t i = 0; !rc && i < KEYS; i++)
		rc = reef_map_get(*out, &i, sizeof(i), &value);
	reef_map_value_free(&value);
	return rc;
}

static int open_objects(struct sim_pool_client *client)
{
	struct field *field = client->context;
	const uint64_t size = (uint64_t)KEYS * OBJECT + 4096;
	uint8_t *zeros = calloc(1, size);
	int rc = zeros ? 0 : -ENOMEM;

	if (!client->number && !rc) {
		rc = reef_alloc(client->space, size, &field->objects);
		rc = rc ? rc
			: reef_write(client->reef, field->objects, zeros, size);
		field->loaded |= !rc;
	}
	free(zeros);
	while (!rc && !field->loaded)
		rc = reef_sleep(SECOND / 1000);
	return rc;
}

static int host_main(struct sim_pool_client *client)
{
	struct field *field = client->context;
	struct caller *callers = calloc(field->coordinators, sizeof(*callers));
	struct reef_map *map = NULL;
	int rc = callers ? 0 : -ENOMEM;

	field->pool = client->pool;
	if (!rc)
		rc = field->line == TXNS_REEF ? open_map(client, &map)
					      : open_objects(client);
	for (uint32_t i = client->number; !rc && i < field->coordinators;
	     i += field->hosts) {
		callers[i] = (struct caller){
			.field = field,
			.host = client,
			.map = map,
			.random = reef_random_split(&client->random, i),
			.name = i + 1,
		};
		rc = reef_fiber_spawn(reef_fiber_sched(), caller_main,
				      &callers[i], &callers[i].fiber);
	}
	for (uint32_t i = 0; callers && i < field->coordinators; i++) {
		if (!callers[i].fiber)
			continue;
		reef_fiber_join(callers[i].fiber, NULL);
		rc = rc ? rc : callers[i].rc;
	}
	reef_map_close(map);
	free(callers);
	return rc;
}

static struct txns_result result_of(const struct field *field)
{
	const struct reef_counts counts =
		reef_counts_between(&field->before, &field->after);
	const double txns = (double)field->txns;

	return (struct txns_result){
		.txns_per_s =
			txns * 1e9 / (double)(field->end_ns - field->begin_ns),
		.p50_ns = (double)reef_histogram_quantile(&field->waits, 0.5),
		.p99_ns = (double)reef_histogram_quantile(&field->waits, 0.99),
		.round_trips = (double)counts.round_trips / txns,
		.operations = (double)counts.memory_operations / txns,
		.aborts = (double)(field->end_aborts - field->begin_aborts) /
			  txns,
	};
}

int txns_line_run(enum txns_line line, bool is_hot, uint32_t coordinators,
		  uint64_t seed, struct txns_result *out)
{
	struct field *field = calloc(1, sizeof(*field));
	struct sim_pool_options options = {
		.cost = {.page_size = 2 * MIB, .round_trip_ns = ROUND_TRIP_NS},
		.seed = seed,
		.run = host_main,
		.context = field,
	};
	int rc;

	if (!field)
		return -ENOMEM;
	field->line = line;
	field->is_hot = is_hot;
	field->coordinators = coordinators;
	field->hosts = coordinators < HOSTS_MAX ? coordinators : HOSTS_MAX;
	field->txns =
		TXNS + (is_hot ? TXNS_EACH_HOT : TXNS_EACH) * coordinators;
	field->warm = field->txns / 4;
	options.clients = field->hosts;
	rc = sim_pool_run(&options);
	if (!rc)
		*out = result_of(field);
	free(field);
	return rc;
}
