/* table_work.c - clients of one index, of every kind of call; here it is called
 * a table, be it a hash table or a tree (table_index.h).
 *
 * A client is two handles and three fibers: two fibers share one handle, and so
 * one open table. The table's root is named by a word, as a map does it: who
 * finds 0 makes a table, who drops one takes it out of there. Beside the table
 * each has blocks of its own in the same space, as large as entries and
 * subtables are, with a pattern that must not change: whoever writes into
 * memory that was reused is found out.
 *
 * (1) What is answered is linearizable, key by key (table_truth.c). A scan says
 *     of each key what it met, or that there was a moment in which it was not
 *     there.
 * (2) In the end get, scan and count agree; when the table is dropped then, all
 *     memory comes back, whoever died before.
 *
 * Chosen once, from the seed: how many keys, how eager they are to drop. */
#include "table_work.h"

#include "table_index.h"

#include "base/log.h"
#include "base/mutant.h"
#include "fixture/units.h"

#include <stdlib.h>
#include <string.h>

#define HOME "home" /* of the word */
#define DATA "data" /* of the table */
#define REPEATS_MAX 1000
#define WAITS_MAX 40
#define KEYS_MAX 128u
#define MANY_MAX 8u
#define RAWS_MAX 8u
#define RAW_WORDS 56u

struct tables {
	struct cluster *cluster;
	struct truth truth;
	uint64_t word;	    /* address; 0: not made yet */
	uint64_t taken_out; /* roots, out of it */
	uint32_t keys;
	uint32_t drops; /* one step in so many; 0: none */
	/* Only calls that end with a CAS on a slot. Then tags are enough, and
	 * entries may be reused at once (R8): a reader could meet one that is
	 * written, and not put yet. So what is found is that tags are missing.
	 */
	bool plain;
	uint32_t parts;
	uint64_t serial; /* of patterns */
	struct worker *workers;
	bool is_audited;
};

/* An open table, shared by the fibers of a handle. */
struct opened {
	void *table;
	uint64_t generation;
	uint32_t users;
	bool is_stale;
};

struct handle {
	struct reef *reef;
	struct reef_space *space;
	struct opened *opened; /* NULL: none */
};

struct raw {
	uint64_t address, serial;
	uint32_t words;
};

struct worker {
	struct worker *next;
	struct client *client;
	struct handle *handle, own;
	struct reef_random random;
	uint64_t since_ns; /* its step began; 0: it has none */
	uint32_t waits;	   /* for the first table */
	struct raw raws[RAWS_MAX];
	uint32_t raws_count;
	struct {
		uint64_t generation, value, version;
	} seen[KEYS_MAX];
};

static struct tables *tables_of(const struct worker *worker)
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

/* True if a call ended because the client had no more patience: it may have
 * happened, not, or will yet. */
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
	/* Of a session that has ended nothing is known any more; that some
	 * memory is nowhere neither. */
	if (worker->handle->reef && rc != -EFAULT &&
	    reef_health(worker->handle->reef) == -REEF_EFENCED)
		rc = -REEF_EFENCED;
	if (rc == -REEF_EFENCED &&
	    (cluster->options.chaos || cluster->options.strike))
		return rc;
	cluster_fail(cluster, "client %u (session %08x): %s: %s",
		     worker->client->index, worker->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- the word, and the table it names --- */

/* The word is the address of a root, or, where there is none, a number that is
 * too small for one and new each time (R9). */
static bool is_root(uint64_t word)
{
	return word >> 32;
}

/* Who took it out frees it. */
static int take_out(struct worker *worker, uint64_t root)
{
	struct handle *handle = worker->handle;
	uint64_t before, none = ++tables_of(worker)->taken_out << 3;
	int rc = reef_cas(handle->reef, tables_of(worker)->word, root, none,
			  &before);

	if (!rc && before == root)
		reef_free(handle->space, root, REEF_FREE_LATER);
	/* In doubt: nobody does before the session that has it ends. */
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

/* Make a table, where the word has that number. */
static int make_table(struct worker *worker, uint64_t none)
{
	struct handle *handle = worker->handle;
	uint64_t word = tables_of(worker)->word, root, before;
	void *table;
	int rc = index_ops.create(handle->space,
				  worker->client->cluster->options.seed, word,
				  &root);

	if (rc)
		return rc;
	rc = reef_cas(handle->reef, word, none, root, &before);
	if (rc || before == none)
		return rc;
	rc = index_ops.open(handle->space, root, &table);
	if (rc)
		return rc;
	rc = index_ops.drop(table);
	index_ops.close(table);
	if (!rc)
		reef_free(handle->space, root, 0);
	return rc;
}

static int try_open(struct worker *worker, void **out)
{
	struct handle *handle = worker->handle;
	uint64_t root = 0;
	int rc;

	reef_enter(handle->reef);
	rc = reef_read(handle->reef, tables_of(worker)->word, &root, 8);
	if (!rc && is_root(root))
		rc = index_ops.open(handle->space, root, out);
	reef_leave(handle->reef);
	if (rc == -REEF_EDROPPED) {
		rc = take_out(worker, root);
		return rc ? rc : -EAGAIN;
	}
	if (!rc && !is_root(root)) {
		/* Mostly one makes the first, to save time. */
		if (!tables_of(worker)->truth.generations_count &&
		    worker->client->index && worker->waits++ < WAITS_MAX &&
		    worker->client->cluster->options.seed % 4) {
			rc = reef_sleep(MILLISECOND / 4);
			return rc ? rc : -EAGAIN;
		}
		rc = make_table(worker, root);
		return rc && rc != -REEF_EINDOUBT ? rc : -EAGAIN;
	}
	return rc;
}

static int open_table(struct worker *worker, struct opened **out)
{
	struct handle *handle = worker->handle;
	void *table = NULL;
	struct opened *opened;
	int rc = -EAGAIN;

	for (uint32_t i = 0; rc == -EAGAIN && i < REPEATS_MAX; i++)
		rc = try_open(worker, &table);
	if (rc)
		return judge(worker, "open the table", rc);
	if (handle->opened) { /* another fiber was quicker */
		index_ops.close(table);
		*out = handle->opened;
		return 0;
	}
	opened = calloc(1, sizeof(*opened));
	if (!opened) {
		index_ops.close(table);
		return -ENOMEM;
	}
	opened->table = table;
	opened->generation = truth_generation(&tables_of(worker)->truth,
					      index_ops.id(table));
	*out = handle->opened = opened;
	return 0;
}

static int use(struct worker *worker, struct opened **out)
{
	int rc = 0;

	*out = worker->handle->opened;
	if (!*out)
		rc = open_table(worker, out);
	if (rc)
		return rc;
	reef_assert(*out);
	(*out)->users++;
	return 0;
}

static void unuse(struct worker *worker, struct opened *opened, bool is_stale)
{
	if (is_stale && !opened->is_stale) {
		opened->is_stale = true;
		reef_assert(worker->handle->opened == opened);
		worker->handle->opened = NULL;
	}
	if (--opened->users || !opened->is_stale)
		return;
	index_ops.close(opened->table);
	free(opened);
}

/* --- calls on one key --- */

struct plan {
	struct worker *worker;
	uint32_t kind;
	uint64_t argument, expected, value;
	bool was_there;
	uint64_t before, version;
};

static int decide(void *context, const struct entry *now, struct entry *put)
{
	struct plan *plan = context;

	plan->was_there = now;
	plan->before = 0;
	plan->version = now ? now->version : 0;
	if (now)
		memcpy(&plan->before, now->value, 8);
	plan->value = plan->argument;
	put->value = &plan->value;
	put->value_size = 8;
	put->stamp = plan->value;
	switch (plan->kind) {
	case MAP_REMOVE:
		return ENTRY_DELETE;
	case MAP_REMOVE_IF:
		return now && now->version == plan->expected ? ENTRY_DELETE
							     : ENTRY_KEEP;
	case MAP_INSERT:
		return now ? ENTRY_KEEP : ENTRY_PUT;
	case MAP_UPDATE:
		return now ? ENTRY_PUT : ENTRY_KEEP;
	case MAP_REPLACE:
		return now && now->version == plan->expected ? ENTRY_PUT
							     : ENTRY_KEEP;
	case MAP_ADD:
		plan->value = plan->before + plan->argument;
		put->stamp = plan->value;
		return ENTRY_PUT;
	default:
		return ENTRY_PUT;
	}
}

/* What was answered; unknown: nothing is. */
static int answer(struct worker *worker, const char *what, size_t op, int rc,
		  bool was_there, uint64_t value)
{
	if (!rc || rc == -REEF_EDROPPED)
		truth_return(&tables_of(worker)->truth, op, rc, was_there,
			     value);
	else if (!has_given_up(worker, rc) && rc != -REEF_EINDOUBT)
		return judge(worker, what, rc);
	return rc == -REEF_EDROPPED ? rc : 0;
}

static size_t call(struct worker *worker, const struct opened *opened,
		   uint32_t kind, uint64_t key)
{
	size_t op = truth_call(&tables_of(worker)->truth, worker->client->index,
			       kind, key, opened->generation);

	reef_assert(op != SIZE_MAX);
	return op;
}

static void see(struct worker *worker, const struct opened *opened,
		uint64_t key, uint64_t value, uint64_t version)
{
	worker->seen[key].generation = opened->generation;
	worker->seen[key].value = value;
	worker->seen[key].version = version;
}

static int do_change(struct worker *worker, struct opened *opened)
{
	struct tables *tables = tables_of(worker);
	uint64_t key = below(worker, tables->keys);
	struct plan plan = {
		.worker = worker,
		.kind = MAP_PUT + (uint32_t)below(worker, MAP_BLIND - MAP_PUT),
	};
	struct entry ahead = {.value = &plan.argument, .value_size = 8};
	struct entry_change change = {
		.key = &key,
		.key_size = 8,
		.decide = decide,
		.context = &plan,
	};
	size_t op;
	int rc;

	if (tables->plain)
		plan.kind = below(worker, 4) ? MAP_ADD : MAP_PUT;
	if ((plan.kind == MAP_REPLACE || plan.kind == MAP_REMOVE_IF) &&
	    (worker->seen[key].generation != opened->generation ||
	     !worker->seen[key].version))
		plan.kind = MAP_PUT;
	if (plan.kind != MAP_ADD && below(worker, 2))
		change.ahead = &ahead;
	op = call(worker, opened, plan.kind, key);
	plan.argument = ahead.stamp = tables->truth.ops[op].arguments[0];
	plan.expected = worker->seen[key].version;
	tables->truth.ops[op].arguments[1] = worker->seen[key].value;
	rc = index_ops.apply(opened->table, &change);
	if (!rc && plan.was_there && plan.version)
		see(worker, opened, key, plan.before, plan.version);
	return answer(worker, "change", op, rc, plan.was_there, plan.before);
}

static int do_get(struct worker *worker, struct opened *opened)
{
	uint64_t key = below(worker, tables_of(worker)->keys), value = 0;
	uint64_t version;
	size_t op = call(worker, opened, MAP_GET, key);
	int rc = index_ops.get(opened->table, key, !below(worker, 4), &value,
			       &version);
	bool was_there = !rc;

	if (was_there)
		see(worker, opened, key, value, version);
	return answer(worker, "get", op, rc == -ENOENT ? 0 : rc, was_there,
		      value);
}

/* Remove keys that follow each other. */
static int do_ebb(struct worker *worker, struct opened *opened)
{
	uint32_t keys = tables_of(worker)->keys;
	uint64_t first = below(worker, keys);
	uint64_t count = 1 + below(worker, keys / 3 + 1);
	int rc = 0;

	for (uint64_t i = 0; i < count && !rc; i++) {
		uint64_t key = (first + i) % keys;
		struct plan plan = {.worker = worker, .kind = MAP_REMOVE};
		struct entry_change change = {
			.key = &key,
			.key_size = 8,
			.decide = decide,
			.context = &plan,
		};
		size_t op = call(worker, opened, plan.kind, key);

		rc = index_ops.apply(opened->table, &change);
		rc = answer(worker, "ebb", op, rc, plan.was_there, plan.before);
	}
	return rc;
}

/* --- on many --- */

static int do_put_many(struct worker *worker, struct opened *opened)
{
	/* All different, but for some at the end of the few. */
	uint64_t first = below(worker, tables_of(worker)->keys);
	uint32_t count = 1 + (uint32_t)below(worker, MANY_MAX), i;
	struct entry_change changes[MANY_MAX] = {0};
	struct entry ahead[MANY_MAX] = {0};
	struct plan plans[MANY_MAX] = {0};
	uint64_t keys[MANY_MAX];
	bool look = below(worker, 2);
	size_t ops[MANY_MAX];
	int rc, all;

	if (count > tables_of(worker)->keys + 1)
		count = tables_of(worker)->keys + 1;
	reef_assert(count > 0);
	for (i = 0; i < count; i++) {
		keys[i] = (first + i) % tables_of(worker)->keys;
		plans[i].kind = look ? MAP_PUT : MAP_BLIND;
		ops[i] = call(worker, opened, plans[i].kind, keys[i]);
		plans[i].argument = map_model_value(ops[i]);
		ahead[i] = (struct entry){
			.value = &plans[i].argument,
			.value_size = 8,
			.stamp = plans[i].argument,
		};
		changes[i] = (struct entry_change){
			.key = &keys[i],
			.key_size = 8,
			.ahead = &ahead[i],
			.decide = look ? decide : NULL,
			.context = &plans[i],
		};
	}
	all = index_ops.put_many(opened->table, changes, count);
	if (all)
		return answer(worker, "put many", ops[0], all, false, 0);
	for (i = 0; i < count; i++) {
		rc = answer(worker, "put many", ops[i], changes[i].status,
			    plans[i].was_there, plans[i].before);
		all = all ? all : rc;
	}
	return all;
}

static int do_get_many(struct worker *worker, struct opened *opened)
{
	uint32_t count = 1 + (uint32_t)below(worker, MANY_MAX), i;
	uint64_t keys[MANY_MAX], values[MANY_MAX] = {0};
	int statuses[MANY_MAX];
	size_t ops[MANY_MAX];
	int rc, last = 0;

	for (i = 0; i < count; i++) {
		keys[i] = below(worker, tables_of(worker)->keys);
		ops[i] = call(worker, opened, MAP_GET, keys[i]);
	}
	index_ops.get_many(opened->table, keys, count, values, statuses);
	for (i = 0; i < count; i++) {
		rc = statuses[i];
		rc = answer(worker, "get many", ops[i], rc == -ENOENT ? 0 : rc,
			    !rc, values[i]);
		last = last ? last : rc;
	}
	return last;
}

/* --- all of them --- */

struct scan {
	struct worker *worker;
	struct opened *opened;
	uint64_t called_at; /* of this part */
	uint8_t met[KEYS_MAX];
};

static int note_met(void *context, const struct entry *entry)
{
	struct scan *scan = context;
	struct truth *truth = &tables_of(scan->worker)->truth;
	uint64_t key, value;
	size_t op;

	memcpy(&key, entry->key, 8);
	memcpy(&value, entry->value, 8);
	reef_assert(entry->key_size == 8 && key < KEYS_MAX);
	scan->met[key]++;
	op = call(scan->worker, scan->opened, MAP_GET, key);
	truth->ops[op].called_at = scan->called_at;
	truth_return(truth, op, 0, true, value);
	return 0;
}

/* A part of a scan in a table that is opened for that, and knows nothing. */
static int scan_elsewhere(struct scan *scan, struct index_cursor *cursor)
{
	void *table;
	int rc = index_ops.open(scan->worker->handle->space,
				index_ops.root(scan->opened->table), &table);

	if (rc)
		return rc;
	/* The memory of the root may be another's by now. */
	rc = index_ops.id(table) == index_ops.id(scan->opened->table)
		     ? index_ops.scan(table, cursor, 1, note_met, scan)
		     : -REEF_EDROPPED;
	index_ops.close(table);
	return rc;
}

static int do_scan(struct worker *worker, struct opened *opened)
{
	struct truth *truth = &tables_of(worker)->truth;
	struct scan scan = {.worker = worker, .opened = opened};
	uint64_t begin = ++truth->clock;
	struct index_cursor cursor = {.is_backward = begin & 1};
	size_t op;
	int rc;

	do {
		scan.called_at = ++truth->clock;
		/* Now and then it goes on in another open table. */
		rc = scan.called_at % 8 ? index_ops.scan(opened->table, &cursor,
							 1, note_met, &scan)
					: scan_elsewhere(&scan, &cursor);
	} while (!rc && !cursor.is_done);
	if (rc == -REEF_EDROPPED)
		return rc;
	if (rc)
		return judge(worker, "scan", rc);
	for (uint64_t key = 0; key < tables_of(worker)->keys; key++) {
		if (scan.met[key])
			continue;
		op = call(worker, opened, MAP_GET, key);
		truth->ops[op].called_at = begin;
		truth_return(truth, op, 0, false, 0);
	}
	return 0;
}

/* True if a key comes before another, in that direction. */
static bool is_before(uint64_t a, uint64_t b, bool backward)
{
	int order = index_ops.compare(a, b);

	return backward ? order > 0 : order < 0;
}

/* The first key from one on: those between were not there. */
static int do_first(struct worker *worker, struct opened *opened)
{
	struct truth *truth = &tables_of(worker)->truth;
	uint32_t keys = tables_of(worker)->keys;
	uint64_t from = below(worker, keys), found = 0, value = 0, key;
	bool backward = below(worker, 2), is_there;
	uint64_t begin = ++truth->clock;
	size_t op;
	int rc = index_ops.first(opened->table, from, backward, &found, &value);

	if (rc == -REEF_EDROPPED)
		return rc;
	if (rc && rc != -ENOENT)
		return judge(worker, "first", rc);
	is_there = !rc;
	for (key = 0; key < keys; key++) {
		bool is_it = is_there && key == found;

		if (is_before(key, from, backward) ||
		    (is_there && is_before(found, key, backward)))
			continue;
		op = call(worker, opened, MAP_GET, key);
		truth->ops[op].called_at = begin;
		truth_return(truth, op, 0, is_it, is_it ? value : 0);
	}
	return 0;
}

/* While others change it a count is rough; but it ends. */
static int do_count(struct worker *worker, struct opened *opened)
{
	uint32_t keys = tables_of(worker)->keys;
	uint64_t from = below(worker, keys), to = below(worker, keys), count;
	int rc = index_ops.count_range(opened->table, from, to,
				       below(worker, 2), &count);

	return rc && rc != -REEF_EDROPPED ? judge(worker, "count", rc) : rc;
}

static int do_drop(struct worker *worker, struct opened *opened)
{
	struct truth *truth = &tables_of(worker)->truth;
	uint64_t root = index_ops.root(opened->table);
	size_t ops[KEYS_MAX];
	uint32_t keys = tables_of(worker)->keys, i;
	int rc;

	for (i = 0; i < keys; i++)
		ops[i] = call(worker, opened, MAP_DROP, i);
	rc = index_ops.drop(opened->table);
	if (rc)
		return judge(worker, "drop", rc);
	for (i = 0; i < keys; i++)
		truth_return(truth, ops[i], 0, false, 0);
	rc = judge(worker, "take the root out", take_out(worker, root));
	return rc ? rc : -REEF_EDROPPED;
}

/* --- blocks beside the table --- */

static int check_raw(struct worker *worker, const struct raw *raw)
{
	uint64_t words[RAW_WORDS];
	int rc = judge(worker, "read a block",
		       reef_read(worker->handle->reef, raw->address, words,
				 8 * (size_t)raw->words));

	for (uint32_t i = 0; !rc && i < raw->words; i++)
		if (words[i] != raw->serial + i) {
			cluster_fail(worker->client->cluster,
				     "a block of client %u was written into",
				     worker->client->index);
			return -REEF_EFENCED;
		}
	return rc;
}

static int do_raw(struct worker *worker)
{
	struct tables *tables = tables_of(worker);
	struct handle *handle = worker->handle;
	uint32_t at = (uint32_t)below(worker, RAWS_MAX);
	struct raw *raw = &worker->raws[at];
	uint64_t words[RAW_WORDS];
	int rc;

	if (at < worker->raws_count) {
		rc = check_raw(worker, raw);
		if (rc)
			return rc;
		reef_free(handle->space, raw->address, 0);
		*raw = worker->raws[--worker->raws_count];
		return 0;
	}
	raw = &worker->raws[worker->raws_count];
	raw->words = below(worker, 4) ? 7 : RAW_WORDS;
	raw->serial = tables->serial += RAW_WORDS;
	rc = reef_alloc(handle->space, 8 * (uint64_t)raw->words, &raw->address);
	if (rc)
		return judge(worker, "take a block", rc);
	for (uint32_t i = 0; i < raw->words; i++)
		words[i] = raw->serial + i;
	do
		rc = reef_write(handle->reef, raw->address, words,
				8 * (size_t)raw->words);
	while (rc == -REEF_EINDOUBT);
	worker->raws_count += !rc;
	/* Who has the memory next must not find these words in it. */
	if (has_given_up(worker, rc)) {
		reef_free(handle->space, raw->address, 0);
		return 0;
	}
	return judge(worker, "write a block", rc);
}

static int free_raws(struct worker *worker)
{
	int rc = 0;

	while (worker->raws_count && !rc) {
		rc = check_raw(worker, &worker->raws[worker->raws_count - 1]);
		if (!rc)
			reef_free(worker->handle->space,
				  worker->raws[--worker->raws_count].address,
				  0);
	}
	return rc;
}

/* --- steps --- */

static int on_table(struct worker *worker,
		    int (*act)(struct worker *worker, struct opened *opened))
{
	struct opened *opened;
	int rc = use(worker, &opened);

	if (rc)
		return rc;
	rc = act(worker, opened);
	/* Whoever began to drop it may be dead. */
	if (rc == -REEF_EDROPPED && act != do_drop)
		rc = do_drop(worker, opened);
	unuse(worker, opened, rc == -REEF_EDROPPED);
	return rc == -REEF_EDROPPED ? 0 : rc;
}

static int choose(struct worker *worker)
{
	struct tables *tables = tables_of(worker);

	if (tables->plain)
		return on_table(worker, do_change);
	if (tables->drops && !below(worker, tables->drops))
		return on_table(worker, do_drop);
	if (index_ops.shrinks && !below(worker, 24))
		return on_table(worker, do_ebb);
	if (index_ops.compare && !below(worker, 24))
		return on_table(worker, below(worker, 4) ? do_first : do_count);
	switch (below(worker, 32)) {
	case 0:
		return on_table(worker,
				below(worker, 2) ? do_scan : do_get_many);
	case 1:
	case 2:
		return on_table(worker, do_put_many);
	case 3:
	case 4:
	case 5:
	case 6:
		return do_raw(worker);
	case 7:
	case 8:
	case 9:
	case 10:
	case 11:
	case 12:
	case 13:
		return on_table(worker, do_get);
	default:
		return on_table(worker, do_change);
	}
}

static int take_step(struct worker *worker)
{
	int rc;

	worker->since_ns = now_ns(worker->client->cluster);
	worker->client->seat->counting = true;
	rc = choose(worker);
	worker->since_ns = 0;
	return rc;
}

/* --- the cluster --- */

static void close_worker(struct worker *worker)
{
	struct worker **at = &tables_of(worker)->workers;
	struct handle *handle = &worker->own;

	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	if (handle->opened) {
		reef_assert(!handle->opened->users);
		index_ops.close(handle->opened->table);
		free(handle->opened);
		handle->opened = NULL;
	}
}

static void init_worker(struct worker *worker, struct client *client,
			uint64_t stream)
{
	struct tables *tables = client->cluster->work;

	memset(worker, 0, sizeof(*worker));
	worker->client = client;
	worker->handle = &worker->own;
	worker->random = reef_random_split(&client->random, stream);
	worker->next = tables->workers;
	tables->workers = worker;
}

int workload_setup(struct cluster *cluster)
{
	static const uint32_t keys[] = {3, 12, 60, 120};
	struct tables *tables = calloc(1, sizeof(*tables));

	if (!tables)
		return -ENOMEM;
	tables->cluster = cluster;
	tables->keys = keys[cluster->options.seed % 4];
	tables->drops = cluster->options.seed / 4 % 4 ? 0 : 500;
	tables->parts = 1 + cluster->options.seed / 2 % 3;
	tables->plain = REEF_MUTATED(HASH_NO_TAG);
	cluster->work = tables;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	struct tables *tables = cluster->work;

	if (tables)
		truth_fini(&tables->truth);
	free(tables);
	cluster->work = NULL;
}

void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct tables *tables = cluster->work;

	for (struct worker *at = tables->workers; at; at = at->next)
		if (at->since_ns &&
		    at_ns > at->since_ns + cluster->options.patience_ns)
			cluster_fail(cluster, "client %u (session %08x) hangs",
				     at->client->index, at->client->session);
}

static int make_word(struct client *client)
{
	static const uint64_t zero;
	struct tables *tables = client->cluster->work;
	uint64_t address;
	int rc;

	if (tables->word)
		return 0;
	rc = reef_name_lookup(client->home, "word", &address, NULL);
	if (rc == -ENOENT) {
		rc = reef_alloc(client->home, 8, &address);
		if (!rc)
			rc = reef_write(client->reef, address, &zero, 8);
		if (!rc)
			rc = reef_keep(client->home, address);
		if (!rc)
			rc = reef_name_bind(client->home, "word", address,
					    NULL);
		if (rc == -EEXIST)
			rc = reef_name_lookup(client->home, "word", &address,
					      NULL);
	}
	if (!rc)
		tables->word = address;
	return rc;
}

static int open_space(struct worker *worker, struct reef *reef)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)worker->client->cluster->options.copies,
	};

	worker->own.reef = reef;
	return judge(worker, "open the space",
		     reef_space_open(reef, DATA, &options, &worker->own.space));
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
	init_worker(worker, client, 1);
	client->work = worker;
	rc = judge(
		worker, "open the home",
		reef_space_open(client->reef, HOME, &options, &client->home));
	if (!rc)
		rc = open_space(worker, client->reef);
	client->space = worker->own.space;
	for (uint32_t i = 0; !rc && i < REPEATS_MAX; i++) {
		rc = make_word(client);
		if (rc != -REEF_EINDOUBT && rc != -ENOSPC)
			break;
		rc = reef_sleep(MILLISECOND / 4);
	}
	return judge(worker, "make the word", rc);
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
	return rc ? rc : free_raws(worker);
}

int workload_count(struct client *client, struct reef *reef)
{
	struct tables *tables = client->cluster->work;
	struct worker *worker;
	int rc;

	if (tables->parts < 2)
		return 0;
	worker = malloc(sizeof(*worker));
	if (!worker)
		return -ENOMEM;
	init_worker(worker, client, 2);
	rc = open_space(worker, reef);
	if (!rc)
		rc = work_on(worker);
	close_worker(worker);
	free(worker);
	return rc;
}

/* A second fiber of the first handle. */
int workload_stamp(struct client *client, struct reef *reef)
{
	struct tables *tables = client->cluster->work;
	struct worker *first = client->work, *worker;
	int rc;

	(void)reef;
	if (tables->parts < 3)
		return 0;
	worker = malloc(sizeof(*worker));
	if (!worker)
		return -ENOMEM;
	init_worker(worker, client, 3);
	worker->handle = &first->own;
	rc = work_on(worker);
	close_worker(worker);
	free(worker);
	return rc;
}

/* --- the audit --- */

/* Counts of ranges, when nobody changes anything. */
static int audit_counts(struct worker *worker, struct opened *opened,
			const uint8_t *met)
{
	struct tables *tables = tables_of(worker);
	uint64_t from, to, key, wanted, counted = 0;
	bool backward;
	int rc = 0;

	for (uint32_t i = 0; i < 24 && !rc && index_ops.compare; i++) {
		from = below(worker, tables->keys);
		to = below(worker, tables->keys);
		backward = below(worker, 2);
		for (wanted = key = 0; key < tables->keys; key++)
			wanted += met[key] && !is_before(key, from, backward) &&
				  (from == to || is_before(key, to, backward));
		rc = index_ops.count_range(opened->table, from, to, backward,
					   &counted);
		if (!rc && counted != wanted)
			cluster_fail(tables->cluster,
				     "%llu keys from %llu %s to %llu, %llu "
				     "counted",
				     (unsigned long long)wanted,
				     (unsigned long long)from,
				     backward ? "down" : "up",
				     (unsigned long long)to,
				     (unsigned long long)counted);
	}
	return rc;
}

static int audit_table(struct worker *worker, struct opened *opened)
{
	struct tables *tables = tables_of(worker);
	struct scan scan = {.worker = worker, .opened = opened};
	struct index_cursor cursor = {0};
	uint64_t key, value, version, counted, there = 0;
	size_t op;
	int rc;

	scan.called_at = ++tables->truth.clock;
	do
		rc = index_ops.scan(opened->table, &cursor, 3, note_met, &scan);
	while (!rc && !cursor.is_done);
	if (rc == -REEF_EDROPPED)
		return rc; /* and once more */
	if (rc)
		return judge(worker, "scan", rc);
	tables->is_audited = true;
	for (key = 0; key < tables->keys; key++) {
		op = call(worker, opened, MAP_GET, key);
		value = 0;
		rc = index_ops.get(opened->table, key, false, &value, &version);
		if (rc && rc != -ENOENT)
			return judge(worker, "get", rc);
		truth_return(&tables->truth, op, 0, !rc, value);
		there += !rc;
		if (scan.met[key] != !rc)
			cluster_fail(tables->cluster,
				     "key %llu is %sthere, met %u times",
				     (unsigned long long)key, rc ? "not " : "",
				     scan.met[key]);
	}
	rc = index_ops.count(opened->table, &counted);
	if (!rc && counted != there)
		cluster_fail(
			tables->cluster, "%llu keys are there, %llu counted",
			(unsigned long long)there, (unsigned long long)counted);
	if (!rc)
		rc = audit_counts(worker, opened, scan.met);
	return judge(worker, "count", rc);
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct tables *tables = cluster->work;
	struct worker *worker = client->work;
	int rc = 0;

	if (cluster->options.chaos || cluster->options.strike)
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	while (!rc && !tables->is_audited)
		rc = on_table(worker, audit_table);
	if (rc)
		return rc;
	truth_check(&tables->truth, cluster);
	if (cluster->failure[0])
		return 0;
	rc = on_table(worker, do_drop);
	if (rc)
		return rc;
	/* Roots that were taken out in doubt are found when the session that
	 * has them ends: ours, too. */
	return audit_memory(client, cluster->options.chaos & CHAOS_LINKS
					    ? UINT64_C(16) * 4
					    : 0);
}
