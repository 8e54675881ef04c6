/* txn_work.c - clients of transactions over maps and trees, among plain calls.
 *
 * A client is two handles and three fibers, each with its own open maps: two
 * that stay, with small subtables, so that they split under intents, and one
 * that is dropped now and then. If the program says so (txn_work.h) some of
 * them are trees, of small leaves. In them are
 *
 *   lists     values of 8 bytes behind each other, to which transactions and
 *             plain calls append; what happened is checked by check/cycle.h
 *   accounts  numbers whose sum is 0; an account without money is not there
 *   others    keys that come, go and expire, and that nobody checks
 *
 * Beside them each client has blocks of its own in the same space, with a
 * pattern that must not change: whoever writes into memory that was reused is
 * found out.
 *
 * (1) Transactions and plain calls are strictly serializable.
 * (2) The sum of all accounts is 0 whenever a READ_ONLY transaction commits.
 * (3) In the end, when the maps are dropped, all memory comes back.
 * (4) Nobody waits for longer than the patience of a step. */
#include "txn_work.h"

#include "cluster.h"

#include "base/log.h"
#include "base/mutant.h"
#include "check/cycle.h"
#include "kv/hold.h"
#include "kv/seed.h"
#include "kv/tree.h"

#include <reef/txn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOME "home"
#define DATA "data"
#define MAPS 2u
#define LISTS_MAX 16u
#define ACCOUNTS 6u
#define OTHERS 120u
#define OPS_MAX 40u
#define RAWS_MAX 8u
#define RAW_WORDS 16u
#define WAITS_MAX 1000u

struct record { /* a transaction of the history */
	struct cycle_txn txn;
	struct cycle_op ops[OPS_MAX];
};

struct work {
	struct cluster *cluster;
	struct record **records;
	size_t count, room;
	uint64_t clock, values, serial;
	uint32_t lists, parts;
	bool with_drops, with_pauses;
	bool is_tree[MAPS + 1]; /* of the maps; the last: of what is dropped */
	struct worker *workers;
	uint64_t commits, losses, drops;
};

struct raw {
	uint64_t address, serial;
	uint32_t words;
};

struct worker {
	struct worker *next;
	struct client *client;
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *maps[MAPS], *fleeting;
	struct reef_random random;
	uint64_t since_ns;
	struct raw raws[RAWS_MAX];
	uint32_t raws_count;
	struct record *record; /* of the transaction that it runs */
	int64_t sum;
	bool may_scan;
};

static struct work *work_of(const struct worker *worker)
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

/* --- the history --- */

static struct record *begin_record(struct worker *worker)
{
	struct work *work = work_of(worker);
	struct record *record = calloc(1, sizeof(*record));
	size_t room = 2 * work->room + 64;

	reef_assert(record);
	if (work->count == work->room) {
		work->records =
			realloc(work->records, room * sizeof(struct record *));
		reef_assert(work->records);
		work->room = room;
	}
	record->txn.ops = record->ops;
	record->txn.client = worker->client->index;
	record->txn.called_at = ++work->clock;
	record->txn.returned_at = CYCLE_NEVER;
	work->records[work->count++] = record;
	return record;
}

static void end_record(struct worker *worker, struct record *record,
		       enum cycle_result result)
{
	record->txn.result = result;
	if (result == CYCLE_DONE)
		record->txn.returned_at = ++work_of(worker)->clock;
}

static uint64_t note_append(struct worker *worker, struct record *record,
			    uint64_t list)
{
	uint64_t value = ++work_of(worker)->values;

	reef_assert(record->txn.ops_count < OPS_MAX);
	record->ops[record->txn.ops_count++] = (struct cycle_op){
		.key = list,
		.is_append = true,
		.value = value,
	};
	return value;
}

static void note_read(struct record *record, uint64_t list,
		      const struct reef_map_value *value, bool is_there)
{
	size_t size = is_there ? value->size : 0;
	uint64_t *copy = malloc(size + 8);

	reef_assert(copy && record->txn.ops_count < OPS_MAX);
	if (size)
		memcpy(copy, value->bytes, size);
	record->ops[record->txn.ops_count++] = (struct cycle_op){
		.key = list,
		.list = copy,
		.list_count = (uint32_t)(size / 8),
	};
}

/* What is known of a change that returned rc. */
static enum cycle_result result_of(int rc)
{
	if (!rc)
		return CYCLE_DONE;
	return rc == -ECANCELED || rc == -ENOSPC || rc == -EDQUOT ||
			       rc == -EBUSY
		       ? CYCLE_REFUSED
		       : CYCLE_UNKNOWN;
}

/* --- errors --- */

static bool has_given_up(const struct worker *worker, int rc)
{
	return worker->client->cluster->options.gives_up_ns &&
	       (rc == -ETIMEDOUT || rc == -REEF_ENOLINK ||
		rc == -REEF_EINDOUBT);
}

static int judge(struct worker *worker, const char *what, int rc)
{
	struct cluster *cluster = worker->client->cluster;
	bool is_troubled = cluster->options.chaos || cluster->options.strike;

	if (!rc || rc == -REEF_EHOSTDEAD)
		return rc;
	if (has_given_up(worker, rc))
		return -REEF_EFENCED;
	if (worker->reef && rc != -EFAULT &&
	    reef_health(worker->reef) == -REEF_EFENCED)
		rc = -REEF_EFENCED;
	if (rc == -REEF_EFENCED && is_troubled)
		return rc;
	if (rc == -REEF_EINDOUBT && is_troubled)
		return 0;
	/* Fibers of a process that was killed unwind: whatever its own parts,
	 * which ended before them, tell them then, nobody hears it. */
	if (reef_sleep(0) == -REEF_EHOSTDEAD)
		return -REEF_EHOSTDEAD;
	cluster_fail(cluster, "client %u (session %08x): %s: %s",
		     worker->client->index, worker->client->session, what,
		     reef_error_text(rc));
	return -REEF_EFENCED;
}

/* --- maps --- */

/* A tree is used as the map that it is: the calls on keys are the same. */
static int open_tree(struct worker *worker, const char *name,
		     struct reef_map **map)
{
	const struct reef_tree_options options = {
		.leaf_bytes = 512,
		.inline_max = 40,
	};
	struct reef_tree *tree;
	int rc = reef_tree_open(worker->space, name, &options, &tree);

	if (!rc)
		*map = map_hold_of_tree(tree);
	return rc;
}

static int open_map(struct worker *worker, const char *name, bool is_tree,
		    struct reef_map **map)
{
	int rc = -REEF_EINDOUBT;

	if (*map)
		return 0;
	for (uint32_t i = 0; rc == -REEF_EINDOUBT && i < WAITS_MAX; i++)
		rc = is_tree ? open_tree(worker, name, map)
			     : reef_map_open(worker->space, name, NULL, map);
	return rc;
}

static int open_maps(struct worker *worker)
{
	static const char *const names[MAPS] = {"m0", "m1"};
	int rc = 0;

	for (uint32_t i = 0; i < MAPS && !rc; i++)
		rc = open_map(worker, names[i], work_of(worker)->is_tree[i],
			      &worker->maps[i]);
	if (!rc && work_of(worker)->with_drops)
		rc = open_map(worker, "fleeting",
			      work_of(worker)->is_tree[MAPS],
			      &worker->fleeting);
	return rc;
}

static struct reef_map *map_of(const struct worker *worker, uint64_t number)
{
	return worker->maps[number % MAPS];
}

/* --- parts of a transaction's body --- */

static uint32_t name_of(char name[16], char kind, uint64_t number)
{
	return (uint32_t)snprintf(name, 16, "%c%llu", kind,
				  (unsigned long long)number);
}

static int read_list(struct worker *worker, struct reef_txn *txn, uint64_t list,
		     bool to_change, struct reef_map_value *value)
{
	char key[16];
	uint32_t size = name_of(key, 'l', list);
	struct reef_map *map = map_of(worker, list);
	int rc = to_change ? reef_txn_take(txn, map, key, size, value)
			   : reef_txn_get(txn, map, key, size, value);

	if (rc && rc != -ENOENT)
		return rc;
	note_read(worker->record, list, value, !rc);
	if (rc)
		value->size = 0;
	return 0;
}

static int append_to_list(struct worker *worker, struct reef_txn *txn,
			  uint64_t list)
{
	struct reef_map_value value = {0};
	uint64_t *grown;
	char key[16];
	uint32_t size = name_of(key, 'l', list);
	int rc = read_list(worker, txn, list, true, &value);

	grown = malloc(value.size + 8);
	reef_assert(grown);
	if (!rc) {
		if (value.size)
			memcpy(grown, value.bytes, value.size);
		grown[value.size / 8] =
			note_append(worker, worker->record, list);
		rc = reef_txn_put(txn, map_of(worker, list), key, size, grown,
				  value.size + 8, 0);
	}
	free(grown);
	reef_map_value_free(&value);
	return rc;
}

/* Append to neighbouring lists, all of which are taken at once. */
static int append_to_many(struct worker *worker, struct reef_txn *txn,
			  uint64_t first)
{
	uint32_t lists = work_of(worker)->lists, count = lists < 3 ? lists : 3;
	struct reef_txn_item items[3] = {0};
	char keys[3][16];
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		items[i].map = map_of(worker, (first + i) % lists);
		items[i].key = keys[i];
		items[i].key_size = name_of(keys[i], 'l', (first + i) % lists);
	}
	rc = reef_txn_take_many(txn, items, count);
	for (uint32_t i = 0; i < count; i++) {
		/* It is held, and read once more from there. */
		if (!rc)
			rc = append_to_list(worker, txn, (first + i) % lists);
		reef_map_value_free(&items[i].value);
	}
	return rc;
}

static int read_account(struct worker *worker, struct reef_txn *txn,
			uint64_t number, int64_t *money)
{
	struct reef_map_value value = {0};
	char key[16];
	uint32_t size = name_of(key, 'a', number);
	int rc = reef_txn_get(txn, map_of(worker, number), key, size, &value);

	*money = 0;
	if (!rc)
		memcpy(money, value.bytes, sizeof(*money));
	reef_map_value_free(&value);
	return rc == -ENOENT ? 0 : rc;
}

static int add_money(void *context, const struct reef_map_entry *entry)
{
	struct worker *worker = context;
	int64_t money = 0;

	memcpy(&money, entry->value, sizeof(money));
	worker->sum += money;
	return 0;
}

/* Sum the accounts up; those of a tree, now and then, by a scan. */
static int read_accounts(struct worker *worker, struct reef_txn *txn,
			 bool may_scan)
{
	static const struct reef_range range = {
		.from = "a",
		.from_size = 1,
		.to = "b",
		.to_size = 1,
	};
	bool scans[MAPS] = {0};
	int64_t money;
	int rc = 0;

	for (uint32_t i = 0; i < MAPS && !rc; i++) {
		scans[i] = may_scan && work_of(worker)->is_tree[i] &&
			   below(worker, 2);
		if (scans[i])
			rc = reef_txn_scan(txn,
					   (struct reef_tree *)worker->maps[i],
					   &range, add_money, worker);
	}
	for (uint64_t i = 0; i < ACCOUNTS && !rc; i++) {
		if (scans[i % MAPS])
			continue;
		rc = read_account(worker, txn, i, &money);
		worker->sum += money;
	}
	return rc;
}

static int add_to_account(struct worker *worker, struct reef_txn *txn,
			  uint64_t number, int64_t add)
{
	struct reef_map_value value = {0};
	struct reef_map *map = map_of(worker, number);
	char key[16];
	uint32_t size = name_of(key, 'a', number);
	int64_t money = 0;
	int rc = reef_txn_take(txn, map, key, size, &value);

	if (!rc)
		memcpy(&money, value.bytes, sizeof(money));
	reef_map_value_free(&value);
	if (rc && rc != -ENOENT)
		return rc;
	money += add;
	if (money)
		return reef_txn_put(txn, map, key, size, &money, sizeof(money),
				    0);
	rc = reef_txn_delete(txn, map, key, size);
	return rc == -ENOENT ? 0 : rc;
}

static int change_other(struct worker *worker, struct reef_txn *txn)
{
	bool is_fleeting = worker->fleeting && !below(worker, 2);
	uint64_t number = below(worker, OTHERS), now_ms = 0;
	struct reef_map *map =
		is_fleeting ? worker->fleeting : map_of(worker, number);
	char key[16];
	uint32_t size = name_of(key, 'o', number);
	int rc;

	if (below(worker, 2))
		rc = reef_map_now(map, &now_ms);
	else
		rc = 0;
	if (rc)
		return rc;
	switch (below(worker, 3)) {
	case 0:
		rc = reef_txn_put(txn, map, key, size, key, size,
				  now_ms ? now_ms + below(worker, 4) : 0);
		break;
	case 1:
		rc = reef_txn_insert(txn, map, key, size, key, size, 0);
		break;
	default:
		rc = reef_txn_delete(txn, map, key, size);
	}
	return rc == -ENOENT || rc == -EEXIST ? 0 : rc;
}

/* Now and then it stands still inside the body, for several epochs. */
static int linger(struct worker *worker)
{
	if (!work_of(worker)->with_pauses || below(worker, 8))
		return 0;
	return reef_sleep(below(worker, below(worker, 4) ? MILLISECOND
							 : 30 * MILLISECOND));
}

/* --- bodies --- */

static int change_body(struct reef_txn *txn, void *context)
{
	struct worker *worker = context;
	uint32_t lists = work_of(worker)->lists;
	uint64_t count = 1 + below(worker, 3);
	struct reef_map_value value = {0};
	int64_t money;
	int rc = 0;

	worker->record = begin_record(worker);
	worker->record->txn.result = CYCLE_REFUSED;
	for (uint64_t i = 0; i < count && !rc; i++) {
		switch (below(worker, 5)) {
		case 0:
			rc = append_to_list(worker, txn, below(worker, lists));
			break;
		case 1:
			rc = append_to_many(worker, txn, below(worker, lists));
			break;
		case 2:
			rc = read_list(worker, txn, below(worker, lists), false,
				       &value);
			break;
		case 3:
			money = (int64_t)below(worker, 2) + 1;
			rc = add_to_account(worker, txn,
					    below(worker, ACCOUNTS), money);
			if (!rc)
				rc = linger(worker);
			if (!rc)
				rc = add_to_account(worker, txn,
						    below(worker, ACCOUNTS),
						    -money);
			break;
		default:
			rc = change_other(worker, txn);
		}
		if (!rc)
			rc = linger(worker);
	}
	reef_map_value_free(&value);
	/* From here on it may happen. */
	if (!rc)
		worker->record->txn.result = CYCLE_UNKNOWN;
	return rc;
}

static int read_body(struct reef_txn *txn, void *context)
{
	struct worker *worker = context;
	uint32_t lists = work_of(worker)->lists;
	struct reef_map_value value = {0};
	uint64_t first = below(worker, lists);
	int rc = 0;

	worker->record = begin_record(worker);
	worker->sum = 0;
	for (uint64_t i = 0; i < 3 && i < lists && !rc; i++)
		rc = read_list(worker, txn, (first + i) % lists, false, &value);
	if (!rc)
		rc = linger(worker);
	if (!rc)
		rc = read_accounts(worker, txn, worker->may_scan);
	reef_map_value_free(&value);
	return rc;
}

/* True if the transaction ended because of a map that was dropped. */
static bool is_dropped(struct worker *worker, int rc)
{
	if (rc != -REEF_EDROPPED)
		return false;
	reef_map_close(worker->fleeting);
	worker->fleeting = NULL;
	return true;
}

static int end_txn(struct worker *worker, const char *what, int rc)
{
	struct work *work = work_of(worker);
	struct record *record = worker->record;

	worker->record = NULL;
	work->commits += !rc;
	work->losses += rc == -ECANCELED;
	if (record && (!rc || record->txn.result != CYCLE_REFUSED))
		end_record(worker, record, result_of(rc));
	if (is_dropped(worker, rc) || rc == -ECANCELED || rc == -EBUSY)
		return 0;
	return judge(worker, what, rc);
}

/* --- steps --- */

static int do_change(struct worker *worker)
{
	struct reef_txn *txn;
	int rc;

	if (below(worker, 2))
		return end_txn(
			worker, "run",
			reef_txn_run(worker->space, change_body, worker, NULL));
	rc = reef_txn_begin(worker->space, NULL, &txn);
	if (rc)
		return judge(worker, "begin", rc);
	rc = change_body(txn, worker);
	if (!rc && !below(worker, 8)) {
		reef_txn_abort(txn);
		worker->record->txn.result = CYCLE_REFUSED;
		rc = -ECANCELED;
	}
	if (!rc)
		rc = reef_txn_commit(txn);
	reef_txn_close(txn);
	return end_txn(worker, "commit", rc);
}

static int do_read(struct worker *worker)
{
	const struct reef_txn_options options = {.flags = REEF_TXN_READ_ONLY};
	int rc;

	/* Who scans does not hold its keys in the end: then it reads them. */
	worker->may_scan = txn_work_trees && below(worker, 2);
	rc = reef_txn_run(worker->space, read_body, worker, &options);
	if (!rc && worker->sum)
		cluster_fail(worker->client->cluster,
			     "client %u: the accounts' sum is %lld",
			     worker->client->index, (long long)worker->sum);
	return end_txn(worker, "read", rc);
}

static int do_plain_append(struct worker *worker)
{
	uint64_t list = below(worker, work_of(worker)->lists), value;
	struct record *record = begin_record(worker);
	char key[16];
	uint32_t size = name_of(key, 'l', list);
	int rc;

	value = note_append(worker, record, list);
	rc = reef_map_append(map_of(worker, list), key, size, &value, 8, NULL);
	end_record(worker, record, result_of(rc));
	return rc == -EBUSY ? 0 : judge(worker, "append", rc);
}

static int do_plain_get(struct worker *worker)
{
	uint64_t list = below(worker, work_of(worker)->lists);
	struct reef_map_value value = {0};
	struct record *record = begin_record(worker);
	char key[16];
	uint32_t size = name_of(key, 'l', list);
	struct reef_map *map = map_of(worker, list);
	int rc = work_of(worker)->is_tree[list % MAPS]
			 ? reef_tree_get((struct reef_tree *)map, key, size,
					 &value)
			 : reef_map_get(map, key, size, &value);

	if (!rc || rc == -ENOENT) {
		note_read(record, list, &value, !rc);
		rc = 0;
	}
	end_record(worker, record, rc ? CYCLE_REFUSED : CYCLE_DONE);
	reef_map_value_free(&value);
	return judge(worker, "get", rc);
}

/* Some new keys at once: so subtables split. */
static int do_many(struct worker *worker)
{
	struct reef_map_item items[8] = {0};
	uint64_t first = below(worker, OTHERS);
	struct reef_map *map = map_of(worker, first);
	char keys[8][16] = {0}; /* values are longer than some of them */
	int rc;

	for (uint32_t i = 0; i < 8; i++) {
		items[i].key = keys[i];
		items[i].key_size =
			name_of(keys[i], 'o', (first + MAPS * i) % OTHERS);
		items[i].value.bytes = keys[i];
		items[i].value.size = 4;
	}
	rc = reef_map_put_many(map, items, 8);
	for (uint32_t i = 0; i < 8 && !rc; i++)
		rc = items[i].status;
	return rc == -EBUSY ? 0 : judge(worker, "many", rc);
}

static int do_plain_other(struct worker *worker)
{
	uint64_t number = below(worker, OTHERS), now_ms = 0;
	struct reef_map *map = worker->fleeting && !below(worker, 2)
				       ? worker->fleeting
				       : map_of(worker, number);
	char key[16];
	uint32_t size = name_of(key, 'o', number);
	int rc = 0;

	if (!below(worker, 3))
		rc = reef_map_now(map, &now_ms);
	if (!rc && below(worker, 3))
		rc = reef_map_put(map, key, size, key, size,
				  now_ms ? now_ms + below(worker, 4) : 0, NULL);
	else if (!rc)
		rc = reef_map_delete(map, key, size, 0);
	if (!rc && !below(worker, 8))
		rc = reef_map_sweep(map, 4);
	if (is_dropped(worker, rc) || rc == -ENOENT || rc == -EBUSY)
		return 0;
	return rc > 0 ? 0 : judge(worker, "other", rc);
}

static int drop_map(struct worker *worker, const char *name, bool is_tree)
{
	return is_tree ? reef_tree_drop(worker->space, name)
		       : reef_map_drop(worker->space, name);
}

static int do_drop(struct worker *worker)
{
	int rc = drop_map(worker, "fleeting", work_of(worker)->is_tree[MAPS]);

	work_of(worker)->drops++;
	reef_map_close(worker->fleeting);
	worker->fleeting = NULL;
	return rc == -ENOENT || rc == -EBUSY ? 0 : judge(worker, "drop", rc);
}

/* --- blocks of one's own --- */

static uint64_t word_of(const struct raw *raw, uint32_t i)
{
	return (raw->serial << 8 | i) * UINT64_C(0x9e3779b97f4a7c15) | 1;
}

static int make_raw(struct worker *worker)
{
	uint64_t words[RAW_WORDS];
	struct raw raw = {
		.serial = ++work_of(worker)->serial,
		.words = 7 + (uint32_t)below(worker, RAW_WORDS - 6),
	};
	int rc = reef_alloc(worker->space, 8 * (uint64_t)raw.words,
			    &raw.address);

	for (uint32_t i = 0; i < raw.words; i++)
		words[i] = word_of(&raw, i);
	if (!rc)
		rc = reef_write(worker->reef, raw.address, words,
				8 * (size_t)raw.words);
	if (!rc)
		worker->raws[worker->raws_count++] = raw;
	return rc;
}

/* Check the last one, and free it. */
static int end_raw(struct worker *worker)
{
	struct raw *raw = &worker->raws[worker->raws_count - 1];
	uint64_t words[RAW_WORDS];
	int rc = reef_read(worker->reef, raw->address, words,
			   8 * (size_t)raw->words);

	for (uint32_t i = 0; i < raw->words && !rc; i++)
		if (words[i] != word_of(raw, i))
			cluster_fail(worker->client->cluster,
				     "client %u: word %u of block %llx was "
				     "written into",
				     worker->client->index, i,
				     (unsigned long long)raw->address);
	if (!rc)
		rc = reef_free(worker->space, raw->address, 0);
	worker->raws_count -= !rc;
	return rc;
}

static int do_raw(struct worker *worker)
{
	bool more = worker->raws_count < RAWS_MAX &&
		    (!worker->raws_count || below(worker, 2));
	int rc = more ? make_raw(worker) : end_raw(worker);

	if (rc == -REEF_EINDOUBT) {
		work_of(worker)->cluster->leaks++;
		if (!more)
			worker->raws_count--;
		rc = 0;
	}
	return rc == -ENOSPC ? 0 : judge(worker, "raw", rc);
}

static int choose(struct worker *worker)
{
	int rc = judge(worker, "open", open_maps(worker));

	if (rc)
		return rc;
	if (!worker->maps[MAPS - 1])
		return 0; /* in doubt; once more */
	if (work_of(worker)->with_drops && !below(worker, 40))
		return do_drop(worker);
	switch (below(worker, 16)) {
	case 0:
	case 1:
		return do_raw(worker);
	case 2:
	case 3:
		return do_plain_append(worker);
	case 4:
	case 5:
		return do_plain_get(worker);
	case 6:
		return do_many(worker);
	case 7:
		return do_plain_other(worker);
	case 8:
	case 9:
		return do_read(worker);
	default:
		return do_change(worker);
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

int workload_setup(struct cluster *cluster)
{
	static const uint32_t lists[] = {2, 5, LISTS_MAX};
	struct work *work = calloc(1, sizeof(*work));
	struct reef_random random;

	if (!work)
		return -ENOMEM;
	reef_random_init(&random, cluster->options.seed);
	work->cluster = cluster;
	work->lists = lists[reef_random_below(&random, 3)];
	work->parts = 1 + (uint32_t)reef_random_below(&random, 3);
	work->with_drops = reef_random_below(&random, 2);
	work->with_pauses = reef_random_below(&random, 2);
	for (uint32_t i = 0; txn_work_trees && i <= MAPS; i++)
		work->is_tree[i] = i == 1 || reef_random_below(&random, 2);
	map_tables.groups = 2;
	map_tables.seed = 7;
	tree_seed = 7;
	cluster->work = work;
	return 0;
}

void workload_teardown(struct cluster *cluster)
{
	struct work *work = cluster->work;

	if (!work)
		return;
	for (size_t i = 0; i < work->count; i++) {
		for (uint32_t j = 0; j < work->records[i]->txn.ops_count; j++)
			free((void *)(uintptr_t)work->records[i]->ops[j].list);
		free(work->records[i]);
	}
	free(work->records);
	free(work);
	cluster->work = NULL;
	map_tables = (struct hash_options){0};
	tree_seed = 0;
}

void workload_watch(struct cluster *cluster, uint64_t at_ns)
{
	struct work *work = cluster->work;

	for (struct worker *at = work->workers; at; at = at->next)
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

	worker->reef = reef;
	return judge(worker, "open the space",
		     reef_space_open(reef, DATA, &options, &worker->space));
}

static struct worker *create_worker(struct client *client, uint64_t stream)
{
	struct work *work = client->cluster->work;
	struct worker *worker = calloc(1, sizeof(*worker));

	if (!worker)
		return NULL;
	worker->client = client;
	worker->random = reef_random_split(&client->random, stream);
	worker->next = work->workers;
	work->workers = worker;
	return worker;
}

static void destroy_worker(struct worker *worker)
{
	struct worker **at = &work_of(worker)->workers;

	while (*at != worker)
		at = &(*at)->next;
	*at = worker->next;
	for (uint32_t i = 0; i < MAPS; i++)
		reef_map_close(worker->maps[i]);
	reef_map_close(worker->fleeting);
	free(worker);
}

int workload_begin(struct client *client)
{
	const struct reef_space_options options = {
		.flags = REEF_SPACE_CREATE,
		.copies = (uint8_t)client->cluster->options.copies,
	};
	struct worker *worker = create_worker(client, 1);
	int rc;

	if (!worker)
		return -ENOMEM;
	client->work = worker;
	rc = judge(
		worker, "open the home",
		reef_space_open(client->reef, HOME, &options, &client->home));
	if (!rc)
		rc = open_space(worker, client->reef);
	client->space = worker->space;
	return rc;
}

static int free_raws(struct worker *worker)
{
	int rc = 0;

	while (worker->raws_count && !rc) {
		rc = end_raw(worker);
		if (rc == -REEF_EINDOUBT) {
			work_of(worker)->cluster->leaks++;
			worker->raws_count--;
			rc = 0;
		}
	}
	return judge(worker, "free", rc);
}

void workload_forget(struct client *client, bool well)
{
	if (client->work && well)
		free_raws(client->work);
	if (client->work)
		destroy_worker(client->work);
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
	struct work *work = client->cluster->work;
	struct worker *worker;
	int rc;

	if (work->parts < 2)
		return 0;
	worker = create_worker(client, 2);
	if (!worker)
		return -ENOMEM;
	rc = open_space(worker, reef);
	if (!rc)
		rc = work_on(worker);
	destroy_worker(worker);
	return rc;
}

/* A second fiber of the first handle. */
int workload_stamp(struct client *client, struct reef *reef)
{
	struct work *work = client->cluster->work;
	struct worker *first = client->work, *worker;
	int rc;

	(void)reef;
	if (work->parts < 3)
		return 0;
	worker = create_worker(client, 3);
	if (!worker)
		return -ENOMEM;
	worker->reef = first->reef;
	worker->space = first->space;
	rc = work_on(worker);
	destroy_worker(worker);
	return rc;
}

/* --- the audit --- */

static int read_all_body(struct reef_txn *txn, void *context)
{
	struct worker *worker = context;
	struct reef_map_value value = {0};
	int rc = 0;

	worker->record = begin_record(worker);
	worker->sum = 0;
	for (uint64_t i = 0; i < work_of(worker)->lists && !rc; i++)
		rc = read_list(worker, txn, i, false, &value);
	if (!rc)
		rc = read_accounts(worker, txn, false);
	reef_map_value_free(&value);
	return rc;
}

static void check_history(struct work *work)
{
	struct cycle_txn *txns = calloc(work->count + 1, sizeof(*txns));
	const char *wrong;
	size_t txn;

	reef_assert(txns);
	for (size_t i = 0; i < work->count; i++)
		txns[i] = work->records[i]->txn;
	wrong = cycle_check(txns, work->count, &txn);
	if (wrong)
		cluster_fail(work->cluster, "%s: transaction %zu of client %u",
			     wrong, txn, txns[txn].client);
	free(txns);
}

static int drop_maps(struct worker *worker)
{
	static const char *const names[] = {"m0", "m1", "fleeting"};
	int rc = 0;

	for (uint32_t i = 0; i < MAPS; i++) {
		reef_map_close(worker->maps[i]);
		worker->maps[i] = NULL;
	}
	for (uint32_t i = 0; i < 3 && !rc; i++) {
		do
			rc = drop_map(worker, names[i],
				      work_of(worker)->is_tree[i]);
		while (rc == -REEF_EINDOUBT);
		if (rc == -ENOENT)
			rc = 0;
	}
	return judge(worker, "drop", rc);
}

int workload_audit(struct client *client)
{
	struct cluster *cluster = client->cluster;
	struct work *work = cluster->work;
	struct worker *worker = client->work;
	uint64_t pinned;
	int rc = 0;

	if (cluster->options.chaos || cluster->options.strike)
		rc = reef_sleep(4 * cluster->options.ttl_ns);
	for (uint32_t i = 0; !rc && !worker->maps[MAPS - 1] && i < WAITS_MAX;
	     i++)
		rc = judge(worker, "open", open_maps(worker));
	if (!rc)
		rc = reef_txn_run(worker->space, read_all_body, worker, NULL);
	if (!rc && worker->sum)
		cluster_fail(cluster, "in the end the accounts' sum is %lld",
			     (long long)worker->sum);
	rc = end_txn(worker, "read all", rc);
	if (rc)
		return rc;
	check_history(work);
	cluster_trace(cluster, "%llu commits, %llu losses, %zu in all",
		      (unsigned long long)work->commits,
		      (unsigned long long)work->losses, work->count);
	if (cluster->failure[0])
		return 0;
	rc = drop_maps(worker);
	if (rc)
		return rc;
	/* Blocks of objects that were dropped are not freed (object.h, 4). */
	pinned = MAPS + (work->with_drops ? 1 : 0) + work->drops;
	if (cluster->options.chaos & CHAOS_LINKS)
		pinned += UINT64_C(16) * 4;
	return audit_memory(client, pinned);
}
