/* map_history.c - one of several processes on the keys of one map, any of which
 * may be killed; and whether what they saw can have been.
 *
 *   map_history work SPACE MAP FILE NUMBER KEYS [tree]  until SIGTERM
 *   map_history read SPACE MAP FILE NUMBER KEYS [tree]  each key once, and
 * scans map_history check FILE...
 *
 * A call is written to the FILE before it is made, and again when it returned,
 * with the time, which all processes of a machine have in common: so what the
 * killed were about to do is known, too. NUMBER: of the process, each another.
 * Half of the calls are on a few keys, where they collide; the others make the
 * map grow. With `tree` it is an ordered map: then some calls scan a range, and
 * what a scan tells of each key of its range, there or not, counts as a get of
 * that key, which happened at some moment of the scan. Ends with 0; 1: an error
 * that was not expected, or a history that is not linearizable, which it
 * prints; 3: the session was fenced. */
#include "check/map_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <reef/key.h>
#include <reef/tree.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HOT 48u /* keys */
#define MANY 8u
#define RANGE 24u /* keys that a scan covers */
#define FENCED 3

struct record {
	uint64_t number; /* in its file */
	struct linear_op op;
};

struct worker {
	struct reef *reef;
	struct reef_map *map;
	struct reef_tree *tree; /* instead of the map */
	uint32_t number;
	uint64_t keys, random, count;
	int fd;
	struct {
		uint64_t value, version;
	} * seen;
	struct reef_map_value found;
};

static volatile sig_atomic_t stopping;

static void on_stop(int number)
{
	(void)number;
	stopping = 1;
}

static uint64_t now_ns(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t below(struct worker *worker, uint64_t bound)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return (worker->random >> 11) % bound;
}

/* --- the file --- */

static void note(const struct worker *worker, const struct record *record)
{
	if (write(worker->fd, record, sizeof(*record)) != sizeof(*record))
		_exit(1);
}

static struct record call(struct worker *worker, uint32_t kind, uint64_t key)
{
	uint64_t id = (uint64_t)worker->number << 40 | worker->count;
	struct record record = {
		.number = worker->count++,
		.op =
			{
				.key = key,
				.client = worker->number,
				.kind = kind,
				.arguments = {map_model_value(id),
					      worker->seen[key].value},
				.called_at = now_ns(),
				.returned_at = LINEAR_NEVER,
			},
	};

	note(worker, &record);
	return record;
}

/* 0: go on. */
static int answer(struct worker *worker, struct record *record, int rc,
		  bool was_there, uint64_t value)
{
	if (rc == -REEF_EFENCED)
		return FENCED;
	if (rc == -REEF_EINDOUBT)
		return 0;
	if (rc) {
		printf("process %u: %s: %s\n", worker->number,
		       map_op_names[record->op.kind], reef_error_text(rc));
		return 1;
	}
	record->op.results[0] = was_there;
	record->op.results[1] = was_there ? value : 0;
	record->op.returned_at = now_ns();
	note(worker, record);
	return 0;
}

/* --- the map, or the tree --- */

/* A key's bytes are in the order of the numbers. */
static void make_key(uint64_t key, uint8_t bytes[8])
{
	reef_key_u64(bytes, key);
}

static uint64_t key_of(const uint8_t *bytes)
{
	uint64_t key = 0;

	for (int i = 0; i < 8; i++)
		key = key << 8 | bytes[i];
	return key;
}

static int get_one(struct worker *worker, uint64_t key)
{
	uint8_t bytes[8];

	make_key(key, bytes);
	return worker->tree
		       ? reef_tree_get(worker->tree, bytes, 8, &worker->found)
		       : reef_map_get(worker->map, bytes, 8, &worker->found);
}

static int apply_one(struct worker *worker, struct reef_map_change *change)
{
	return worker->tree ? reef_tree_apply(worker->tree, change)
			    : reef_map_apply(worker->map, change);
}

static int put_items(struct worker *worker, struct reef_map_item *items)
{
	return worker->tree ? reef_tree_put_many(worker->tree, items, MANY)
			    : reef_map_put_many(worker->map, items, MANY);
}

/* --- calls --- */

static void see(struct worker *worker, uint64_t key, uint64_t value,
		uint64_t version)
{
	worker->seen[key].value = value;
	worker->seen[key].version = version;
}

static int do_get(struct worker *worker, uint64_t key)
{
	struct record record = call(worker, MAP_GET, key);
	uint64_t value = 0;
	int rc = get_one(worker, key);
	bool was_there = !rc;

	if (was_there) {
		memcpy(&value, worker->found.bytes, sizeof(value));
		see(worker, key, value, worker->found.version);
	}
	return answer(worker, &record, rc == -ENOENT ? 0 : rc, was_there,
		      value);
}

struct plan {
	uint32_t kind;
	uint64_t argument, expected, value, before, version;
	bool was_there;
};

static int decide(void *context, const struct reef_map_entry *now,
		  struct reef_map_entry *put)
{
	struct plan *plan = context;
	bool is_seen = now && now->version == plan->expected;

	plan->was_there = now;
	plan->before = 0;
	plan->version = now ? now->version : 0;
	if (now)
		memcpy(&plan->before, now->value, sizeof(plan->before));
	plan->value = plan->argument;
	if (plan->kind == MAP_ADD)
		plan->value += plan->before;
	put->value = &plan->value;
	put->value_size = sizeof(plan->value);
	switch (plan->kind) {
	case MAP_REMOVE:
		return REEF_MAP_DELETE;
	case MAP_REMOVE_IF:
		return is_seen ? REEF_MAP_DELETE : REEF_MAP_LEAVE;
	case MAP_INSERT:
		return now ? REEF_MAP_LEAVE : REEF_MAP_PUT;
	case MAP_UPDATE:
		return now ? REEF_MAP_PUT : REEF_MAP_LEAVE;
	case MAP_REPLACE:
		return is_seen ? REEF_MAP_PUT : REEF_MAP_LEAVE;
	default:
		return REEF_MAP_PUT;
	}
}

static int do_change(struct worker *worker, uint64_t key)
{
	struct plan plan = {
		.kind = MAP_PUT + (uint32_t)below(worker, MAP_BLIND - MAP_PUT),
	};
	uint8_t bytes[8];
	struct reef_map_change change = {
		.key = bytes,
		.key_size = sizeof(bytes),
		.decide = decide,
		.context = &plan,
	};
	struct record record;
	int rc;

	make_key(key, bytes);
	if (!worker->seen[key].version &&
	    (plan.kind == MAP_REPLACE || plan.kind == MAP_REMOVE_IF))
		plan.kind = MAP_PUT;
	record = call(worker, plan.kind, key);
	plan.argument = record.op.arguments[0];
	plan.expected = worker->seen[key].version;
	rc = apply_one(worker, &change);
	if (!rc && plan.was_there)
		see(worker, key, plan.before, plan.version);
	return answer(worker, &record, rc, plan.was_there, plan.before);
}

static int do_put_many(struct worker *worker, uint64_t first)
{
	struct reef_map_item items[MANY] = {0};
	struct record records[MANY] = {0};
	uint8_t keys[MANY][8];
	int rc, all;

	for (uint32_t i = 0; i < MANY; i++) {
		uint64_t key = (first + i) % worker->keys;

		records[i] = call(worker, MAP_BLIND, key);
		make_key(key, keys[i]);
		items[i].key = keys[i];
		items[i].key_size = sizeof(keys[i]);
		items[i].value.bytes = &records[i].op.arguments[0];
		items[i].value.size = sizeof(uint64_t);
	}
	all = put_items(worker, items);
	for (uint32_t i = 0; i < MANY; i++) {
		rc = answer(worker, &records[i], all ? all : items[i].status,
			    false, 0);
		if (rc)
			return rc;
	}
	return 0;
}

/* A range under way: where it is, and what was there. */
struct range {
	uint64_t first, count;
	int64_t last; /* of those that were met; -1: none */
	bool backward;
	bool was_there[RANGE];
	uint64_t values[RANGE];
};

static int meet_key(void *context, const struct reef_map_entry *entry)
{
	struct range *range = context;
	uint64_t key, place;

	if (entry->key_size != 8 || entry->value_size != 8)
		return -EBADMSG;
	key = key_of(entry->key);
	place = key - range->first;
	/* In strict order, and in the range. */
	if (place >= range->count ||
	    (range->last >= 0 &&
	     (range->backward ? (int64_t)place >= range->last
			      : (int64_t)place <= range->last)))
		return -EBADMSG;
	range->last = (int64_t)place;
	range->was_there[place] = true;
	memcpy(&range->values[place], entry->value, 8);
	return 0;
}

static int do_scan(struct worker *worker, uint64_t first)
{
	struct range range = {
		.first = first,
		.count = worker->keys - first < RANGE ? worker->keys - first
						      : RANGE,
		.last = -1,
		.backward = below(worker, 2),
	};
	struct record records[RANGE] = {0};
	uint8_t low[8], high[8];
	struct reef_range asked = {.from_size = 8, .to_size = 8};
	int rc = 0, all;

	make_key(first, low);
	make_key(first + range.count, high);
	asked.from = low;
	asked.to = high;
	/* Backward the end is not in it, and may be below all keys. */
	if (range.backward) {
		make_key(first + range.count - 1, high);
		make_key(first - 1, low);
		asked.from = high;
		asked.to = first ? low : NULL;
		asked.flags = REEF_RANGE_BACKWARD;
	}
	for (uint64_t i = 0; i < range.count; i++)
		records[i] = call(worker, MAP_GET, first + i);
	all = reef_tree_scan(worker->tree, &asked, meet_key, &range);
	for (uint64_t i = 0; !rc && i < range.count; i++)
		rc = answer(worker, &records[i], all, range.was_there[i],
			    range.values[i]);
	return rc;
}

static int step(struct worker *worker)
{
	uint64_t key = below(worker, 2) ? below(worker, HOT)
					: below(worker, worker->keys);

	switch (below(worker, worker->tree ? 11 : 10)) {
	case 10:
		return do_scan(worker, key);
	case 0:
		return do_put_many(worker, key);
	case 1:
	case 2:
	case 3:
		return do_get(worker, key);
	default:
		return do_change(worker, key);
	}
}

/* --- all keys --- */

struct scan {
	struct worker *worker;
	uint8_t *met;
	uint64_t behind; /* the key that was met last, and one */
};

static int note_met(void *context, const struct reef_map_entry *entry)
{
	struct scan *scan = context;
	uint64_t key;

	if (entry->key_size != sizeof(key))
		return -EBADMSG;
	key = key_of(entry->key);
	if (key >= scan->worker->keys)
		return -EBADMSG;
	/* A tree's come in order. */
	if (scan->worker->tree && key + 1 <= scan->behind)
		return -EBADMSG;
	scan->behind = key + 1;
	scan->met[key]++;
	return 0;
}

static int scan_all(struct scan *scan)
{
	uint64_t cursor = 0;
	int rc;

	if (scan->worker->tree)
		return reef_tree_scan(scan->worker->tree, NULL, note_met, scan);
	do
		rc = reef_map_scan(scan->worker->map, &cursor, 64, note_met,
				   scan);
	while (!rc && cursor);
	return rc;
}

static int count_all(struct worker *worker, uint64_t *count)
{
	return worker->tree ? reef_tree_count(worker->tree, NULL, count)
			    : reef_map_count(worker->map, count);
}

/* Nobody else is there: scan, count and get agree. */
static int read_all(struct worker *worker)
{
	struct scan scan = {
		.worker = worker,
		.met = calloc(worker->keys, 1),
	};
	uint64_t there = 0, count;
	int rc, status;

	if (!scan.met)
		return 1;
	rc = scan_all(&scan);
	for (uint64_t key = 0; !rc && key < worker->keys; key++) {
		worker->seen[key].version = 0;
		status = do_get(worker, key);
		if (status)
			rc = status == FENCED ? -REEF_EFENCED : -EIO;
		else if (scan.met[key] != (worker->seen[key].version != 0))
			rc = -EBADMSG;
		there += worker->seen[key].version != 0;
	}
	free(scan.met);
	if (!rc)
		rc = count_all(worker, &count);
	if (!rc && count != there)
		rc = -EBADMSG;
	if (rc)
		printf("reading all: %s\n", reef_error_text(rc));
	else
		printf("%" PRIu64 " keys\n", there);
	return rc == -REEF_EFENCED ? FENCED : rc != 0;
}

static int work(char **argv, bool all, bool tree)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	/* So that there are many leaves, and they are split often. */
	const struct reef_tree_options small = {.leaf_bytes = 512};
	struct worker worker = {
		.number = (uint32_t)strtoul(argv[3], NULL, 10),
		.keys = strtoull(argv[4], NULL, 10),
	};
	struct reef_space *space;
	int rc;

	signal(SIGTERM, on_stop);
	worker.random = map_model_value(worker.number);
	worker.seen = calloc(worker.keys, sizeof(*worker.seen));
	worker.fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (!worker.seen || worker.fd < 0)
		return 1;
	rc = reef_open(NULL, NULL, &worker.reef);
	if (!rc)
		rc = reef_space_open(worker.reef, argv[0], &options, &space);
	if (!rc)
		rc = tree ? reef_tree_open(space, argv[1], &small, &worker.tree)
			  : reef_map_open(space, argv[1], NULL, &worker.map);
	if (rc) {
		printf("opening: %s\n", reef_error_text(rc));
		return rc == -REEF_EFENCED ? FENCED : 1;
	}
	if (all)
		rc = read_all(&worker);
	while (!all && !rc && !stopping)
		rc = step(&worker);
	reef_map_value_free(&worker.found);
	reef_map_close(worker.map);
	reef_tree_close(worker.tree);
	reef_close(worker.reef);
	free(worker.seen);
	return rc;
}

/* --- checking --- */

struct history {
	struct linear_op *ops;
	size_t count, room;
	size_t never;
};

static int take(struct history *history, const char *name)
{
	size_t first = history->count;
	struct record record;
	FILE *file = fopen(name, "rb");

	if (!file)
		return -errno;
	while (fread(&record, sizeof(record), 1, file) == 1) {
		size_t at = first + record.number;

		if (at >= history->room) {
			history->room = 2 * at + 4096;
			history->ops =
				realloc(history->ops,
					history->room * sizeof(record.op));
			if (!history->ops)
				return -ENOMEM;
		}
		if (at >= history->count)
			history->count = at + 1;
		history->ops[at] = record.op;
	}
	fclose(file);
	return 0;
}

static void tell(const struct history *history, uint64_t key)
{
	for (size_t i = 0; i < history->count; i++) {
		const struct linear_op *op = &history->ops[i];

		if (op->key == key)
			printf("%u %-9s %016" PRIx64 " %016" PRIx64
			       " -> %d %016" PRIx64 "  %" PRIu64 "..%" PRId64
			       "\n",
			       op->client, map_op_names[op->kind],
			       op->arguments[0], op->arguments[1],
			       (int)op->results[0], op->results[1],
			       op->called_at, (int64_t)op->returned_at);
	}
}

static int check(char **names)
{
	struct history history = {0};
	struct linear_result result;
	size_t all;
	int rc = 0;

	for (; *names && !rc; names++)
		rc = take(&history, *names);
	all = history.count;
	for (size_t i = 0; i < all && !rc; i++)
		history.never += history.ops[i].returned_at == LINEAR_NEVER;
	if (!rc)
		rc = map_model_prune(history.ops, &history.count);
	if (!rc)
		rc = linear_check(&map_model, history.ops, history.count, 0,
				  &result);
	if (rc) {
		printf("cannot be checked: %s\n", reef_error_text(rc));
	} else if (result.verdict == LINEAR_YES) {
		printf("%zu calls, %zu of them never returned: linearizable\n",
		       all, history.never);
	} else {
		printf("%s: key %" PRIu64 ", %zu fit\n",
		       result.verdict == LINEAR_NO ? "NOT linearizable"
						   : "nobody knows",
		       result.key, result.longest);
		tell(&history, result.key);
		rc = 1;
	}
	free(history.ops);
	return rc != 0;
}

int main(int argc, char **argv)
{
	bool tree;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc >= 3 && !strcmp(argv[1], "check"))
		return check(argv + 2);
	tree = argc == 8 && !strcmp(argv[7], "tree");
	if ((argc == 7 || tree) && !strcmp(argv[1], "work"))
		return work(argv + 2, false, tree);
	if ((argc == 7 || tree) && !strcmp(argv[1], "read"))
		return work(argv + 2, true, tree);
	fprintf(stderr, "usage: see the source\n");
	return 2;
}
