/* cycle.c - see cycle.h.
 *
 * Real time is a row of moments, one for each return: a transaction leads to
 * the moment of its return, each moment to the next, and the last one before a
 * call to what was called. So there are as many edges as transactions, and not
 * their square. Circles are found as components of more than one node
 * (Tarjan), with more kinds of edges each time. */
#include "check/cycle.h"

#include <stdlib.h>
#include <string.h>

enum edge { WW, WR, RW, RT, EDGES };

struct append {
	uint64_t key, value;
	size_t txn;
	uint32_t op;
	bool is_last; /* of this transaction to this key */
	bool is_seen;
};

struct list { /* the longest that was read of a key */
	uint64_t key;
	const uint64_t *values;
	uint32_t count;
};

struct link {
	size_t to;
	enum edge kind;
	size_t next; /* + 1; 0: none */
};

struct check {
	const struct cycle_txn *txns;
	size_t count;
	struct append *appends; /* by key and value */
	size_t appends_count;
	struct list *lists; /* by key */
	size_t lists_count;
	size_t *moments; /* transactions that returned, by that */
	size_t moments_count;
	size_t *first; /* links of a node, + 1: transactions, then moments */
	struct link *links;
	size_t links_count, links_room;
	bool *has_happened; /* by transaction */
	size_t txn;
	bool no_memory;
};

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_appends(const void *a, const void *b)
{
	const struct append *one = a, *other = b;
	int by_key = compare(one->key, other->key);

	return by_key ? by_key : compare(one->value, other->value);
}

static int compare_lists(const void *a, const void *b)
{
	const struct list *one = a, *other = b;
	int by_key = compare(one->key, other->key);

	return by_key ? by_key : compare(other->count, one->count);
}

static const struct cycle_txn *sorted; /* qsort has no context */

static int compare_returns(const void *a, const void *b)
{
	return compare(sorted[*(const size_t *)a].returned_at,
		       sorted[*(const size_t *)b].returned_at);
}

static struct append *find_append(const struct check *check, uint64_t key,
				  uint64_t value)
{
	const struct append wanted = {.key = key, .value = value};

	return bsearch(&wanted, check->appends, check->appends_count,
		       sizeof(wanted), compare_appends);
}

static const struct list *find_list(const struct check *check, uint64_t key)
{
	size_t low = 0, high = check->lists_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (check->lists[middle].key < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low < check->lists_count && check->lists[low].key == key
		       ? &check->lists[low]
		       : NULL;
}

/* --- gathering --- */

static bool is_last_of_key(const struct cycle_txn *txn, uint32_t op)
{
	for (uint32_t i = op + 1; i < txn->ops_count; i++)
		if (txn->ops[i].is_append &&
		    txn->ops[i].key == txn->ops[op].key)
			return false;
	return true;
}

static void gather_txn(struct check *check, size_t i)
{
	const struct cycle_txn *txn = &check->txns[i];

	check->has_happened[i] = txn->result == CYCLE_DONE;
	if (txn->result == CYCLE_DONE)
		check->moments[check->moments_count++] = i;
	for (uint32_t op = 0; op < txn->ops_count; op++) {
		const struct cycle_op *one = &txn->ops[op];

		if (one->is_append)
			check->appends[check->appends_count++] =
				(struct append){
					.key = one->key,
					.value = one->value,
					.txn = i,
					.op = op,
					.is_last = is_last_of_key(txn, op),
				};
		else if (txn->result == CYCLE_DONE)
			check->lists[check->lists_count++] = (struct list){
				.key = one->key,
				.values = one->list,
				.count = one->list_count,
			};
	}
}

static const char *gather(struct check *check)
{
	size_t i, ops = 1;

	for (i = 0; i < check->count; i++)
		ops += check->txns[i].ops_count;
	check->appends = calloc(ops, sizeof(*check->appends));
	check->lists = calloc(ops, sizeof(*check->lists));
	check->moments = calloc(check->count + 1, sizeof(*check->moments));
	check->first = calloc(2 * check->count + 1, sizeof(*check->first));
	check->has_happened =
		calloc(check->count + 1, sizeof(*check->has_happened));
	if (!check->appends || !check->lists || !check->moments ||
	    !check->first || !check->has_happened)
		return "no memory";
	for (i = 0; i < check->count; i++)
		gather_txn(check, i);
	qsort(check->appends, check->appends_count, sizeof(*check->appends),
	      compare_appends);
	qsort(check->lists, check->lists_count, sizeof(*check->lists),
	      compare_lists);
	sorted = check->txns;
	qsort(check->moments, check->moments_count, sizeof(*check->moments),
	      compare_returns);
	for (i = 1; i < check->appends_count; i++)
		if (!compare_appends(&check->appends[i - 1],
				     &check->appends[i])) {
			check->txn = check->appends[i].txn;
			return "two appends have the same value";
		}
	return NULL;
}

/* --- (1) to (4) --- */

static const char *check_prefix(const struct check *check,
				const struct cycle_op *op)
{
	const struct list *longest = find_list(check, op->key);

	if (op->list_count &&
	    memcmp(op->list, longest->values, 8 * (size_t)op->list_count) != 0)
		return "(2) two lists of a key do not agree";
	return NULL;
}

static const char *check_values(struct check *check)
{
	for (size_t i = 0; i < check->lists_count; i++) {
		const struct list *list = &check->lists[i];

		if (i && list[-1].key == list->key)
			continue;
		for (uint32_t j = 0; j < list->count; j++) {
			struct append *append =
				find_append(check, list->key, list->values[j]);

			if (!append)
				return "(1) a value was read that nobody "
				       "appended";
			check->txn = append->txn;
			if (append->is_seen)
				return "(1) a value is in a list twice";
			if (check->txns[append->txn].result == CYCLE_REFUSED)
				return "(1) G1a: what was refused was read";
			append->is_seen = true;
			/* One that nobody knew of happened, then. */
			check->has_happened[append->txn] = true;
		}
	}
	return NULL;
}

/* (3): a read against what the transaction did to the key before. */
static const char *check_own(const struct cycle_txn *txn, uint32_t op)
{
	const struct cycle_op *now = &txn->ops[op];
	const struct cycle_op *before = NULL;
	uint32_t at = now->list_count;

	for (uint32_t i = op; i-- && !before;) {
		const struct cycle_op *one = &txn->ops[i];

		if (one->key != now->key)
			continue;
		if (!one->is_append)
			before = one;
		else if (!at || now->list[--at] != one->value)
			return "(3) a transaction does not see its own append";
	}
	if (before &&
	    (at != before->list_count ||
	     (at && memcmp(now->list, before->list, 8 * (size_t)at) != 0)))
		return "(3) a transaction read two lists of one key";
	return NULL;
}

static const char *check_reads(struct check *check)
{
	const char *wrong = NULL;

	for (size_t i = 0; i < check->count && !wrong; i++) {
		const struct cycle_txn *txn = &check->txns[i];

		check->txn = i;
		for (uint32_t op = 0; op < txn->ops_count && !wrong; op++) {
			const struct cycle_op *one = &txn->ops[op];
			const struct append *last;

			if (one->is_append || txn->result != CYCLE_DONE)
				continue;
			wrong = check_prefix(check, one);
			if (!wrong)
				wrong = check_own(txn, op);
			if (wrong || !one->list_count)
				continue;
			last = find_append(check, one->key,
					   one->list[one->list_count - 1]);
			if (!last->is_last && last->txn != i)
				wrong = "(4) G1b: a list was read between two "
					"appends of one transaction";
		}
	}
	return wrong;
}

/* --- edges --- */

static void add_link(struct check *check, size_t from, size_t to,
		     enum edge kind)
{
	struct link *links = check->links;

	if (from == to || check->no_memory)
		return;
	if (check->links_count == check->links_room) {
		check->links_room = 2 * check->links_room + 64;
		links = realloc(links, check->links_room * sizeof(*links));
		if (!links) {
			check->no_memory = true;
			return;
		}
		check->links = links;
	}
	links[check->links_count] = (struct link){
		.to = to,
		.kind = kind,
		.next = check->first[from],
	};
	check->first[from] = ++check->links_count;
}

/* Link a transaction to all that appended to a key what no list has: they are
 * behind the longest. */
static void link_to_unseen(struct check *check, size_t from, uint64_t key,
			   enum edge kind)
{
	const struct append wanted = {.key = key};
	size_t low = 0, high = check->appends_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (compare_appends(&check->appends[middle], &wanted) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < check->appends_count && check->appends[low].key == key;
	     low++)
		if (!check->appends[low].is_seen &&
		    check->has_happened[check->appends[low].txn])
			add_link(check, from, check->appends[low].txn, kind);
}

static size_t writer_of(const struct check *check, uint64_t key, uint64_t value)
{
	return find_append(check, key, value)->txn;
}

static void link_appends(struct check *check)
{
	for (size_t i = 0; i < check->lists_count; i++) {
		const struct list *list = &check->lists[i];

		if ((i && list[-1].key == list->key) || !list->count)
			continue;
		for (uint32_t j = 1; j < list->count; j++)
			add_link(check,
				 writer_of(check, list->key,
					   list->values[j - 1]),
				 writer_of(check, list->key, list->values[j]),
				 WW);
		link_to_unseen(check,
			       writer_of(check, list->key,
					 list->values[list->count - 1]),
			       list->key, WW);
	}
}

static void link_read(struct check *check, size_t txn,
		      const struct cycle_op *read)
{
	const struct list *longest = find_list(check, read->key);
	uint32_t count = read->list_count;

	if (count)
		add_link(check,
			 writer_of(check, read->key, read->list[count - 1]),
			 txn, WR);
	/* Behind its own appends a transaction has read nothing that another
	 * changed; the link from before them is there as well. */
	if (count < longest->count)
		add_link(check, txn,
			 writer_of(check, read->key, longest->values[count]),
			 RW);
	else
		link_to_unseen(check, txn, read->key, RW);
}

static void link_reads(struct check *check)
{
	for (size_t i = 0; i < check->count; i++) {
		const struct cycle_txn *txn = &check->txns[i];

		if (txn->result != CYCLE_DONE)
			continue;
		for (uint32_t op = 0; op < txn->ops_count; op++)
			if (!txn->ops[op].is_append)
				link_read(check, i, &txn->ops[op]);
	}
}

static void link_moments(struct check *check)
{
	size_t i, low, high, middle;

	for (i = 0; i < check->moments_count; i++) {
		add_link(check, check->moments[i], check->count + i, RT);
		if (i)
			add_link(check, check->count + i - 1, check->count + i,
				 RT);
	}
	for (i = 0; i < check->count; i++) {
		if (check->txns[i].result == CYCLE_REFUSED)
			continue;
		for (low = 0, high = check->moments_count; low < high;) {
			middle = (low + high) / 2;
			if (check->txns[check->moments[middle]].returned_at <
			    check->txns[i].called_at)
				low = middle + 1;
			else
				high = middle;
		}
		if (low)
			add_link(check, check->count + low - 1, i, RT);
	}
}

/* --- circles --- */

struct walk {
	size_t *number, *lowest; /* of a node; 0: not met yet */
	size_t *path, *open;	 /* nodes on the way, and without component */
	size_t *link;		 /* the next of a node, + 1 */
	bool *is_open;
	size_t path_count, open_count, numbers;
};

static void meet(struct walk *walk, const struct check *check, size_t node)
{
	walk->number[node] = walk->lowest[node] = ++walk->numbers;
	walk->link[node] = check->first[node];
	walk->path[walk->path_count++] = node;
	walk->open[walk->open_count++] = node;
	walk->is_open[node] = true;
}

/* Go on from the last node of the way. True: it closes a circle. */
static bool step(struct walk *walk, const struct check *check, enum edge most)
{
	size_t node = walk->path[walk->path_count - 1], to, size = 0;
	const struct link *link;

	while (walk->link[node]) {
		link = &check->links[walk->link[node] - 1];
		to = link->to;
		walk->link[node] = link->next;
		if (link->kind > most)
			continue;
		if (!walk->number[to]) {
			meet(walk, check, to);
			return false;
		}
		if (walk->is_open[to] && walk->number[to] < walk->lowest[node])
			walk->lowest[node] = walk->number[to];
	}
	walk->path_count--;
	if (walk->path_count) {
		to = walk->path[walk->path_count - 1];
		if (walk->lowest[node] < walk->lowest[to])
			walk->lowest[to] = walk->lowest[node];
	}
	if (walk->lowest[node] != walk->number[node])
		return false;
	do {
		to = walk->open[--walk->open_count];
		walk->is_open[to] = false;
		size++;
	} while (to != node);
	return size > 1;
}

static bool has_circle(struct check *check, enum edge most)
{
	size_t nodes = 2 * check->count + 1, node;
	struct walk walk = {
		.number = calloc(nodes, sizeof(size_t)),
		.lowest = calloc(nodes, sizeof(size_t)),
		.path = calloc(nodes, sizeof(size_t)),
		.open = calloc(nodes, sizeof(size_t)),
		.link = calloc(nodes, sizeof(size_t)),
		.is_open = calloc(nodes, sizeof(bool)),
	};
	bool found = false;

	check->no_memory = !walk.number || !walk.lowest || !walk.path ||
			   !walk.open || !walk.link || !walk.is_open;
	for (node = 0; node < check->count && !found && !check->no_memory;
	     node++) {
		if (!walk.number[node])
			meet(&walk, check, node);
		while (walk.path_count && !found) {
			size_t at = walk.path[walk.path_count - 1];

			found = step(&walk, check, most);
			if (found && at < check->count)
				check->txn = at;
		}
	}
	free(walk.number);
	free(walk.lowest);
	free(walk.path);
	free(walk.open);
	free(walk.link);
	free(walk.is_open);
	return found;
}

static const char *find_circle(struct check *check)
{
	static const char *const names[EDGES] = {
		[WW] = "(5) G0: a circle of appends",
		[WR] = "(5) G1c: a circle of appends and what was read",
		[RW] = "(5) G2: a circle with what was not read yet",
		[RT] = "(5) a circle with real time",
	};

	link_appends(check);
	link_reads(check);
	link_moments(check);
	for (enum edge most = WW; most < EDGES && !check->no_memory; most++)
		if (has_circle(check, most))
			return names[most];
	return check->no_memory ? "no memory" : NULL;
}

const char *cycle_check(const struct cycle_txn *txns, size_t count, size_t *txn)
{
	struct check check = {.txns = txns, .count = count};
	const char *wrong = gather(&check);

	if (!wrong)
		wrong = check_values(&check);
	if (!wrong)
		wrong = check_reads(&check);
	if (!wrong)
		wrong = find_circle(&check);
	if (wrong)
		*txn = check.txn;
	free(check.appends);
	free(check.lists);
	free(check.moments);
	free(check.first);
	free(check.links);
	free(check.has_happened);
	return wrong;
}
