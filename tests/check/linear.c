/* linear.c - see linear.h.
 *
 * The events of one key stand in a list by time, a call before the returns of
 * the same moment: two operations that touch are taken to overlap, which is the
 * lenient side. From the front: a call may be done next (if the model agrees);
 * it is lifted out of the list with its return, and the search starts at the
 * front again. A return that is met first belongs to an operation that was not
 * done in time: the last one done is put back and the next call after it
 * tried. Done is when only operations that never returned are left. */
#include "check/linear.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct event {
	struct event *previous, *next; /* in the list */
	struct event *other;	       /* call: its return; NULL in a return */
	uint32_t op;		       /* in sorted, of this key */
	uint64_t at;
	bool is_call;
};

struct undo {
	struct event *call;
	uint64_t state[LINEAR_STATE]; /* before it */
};

struct seen { /* open addressing; bits follow in `bits` */
	uint64_t hash;
	uint64_t state[LINEAR_STATE];
	uint32_t bits; /* index of its set, + 1; 0: empty */
};

struct search {
	const struct linear_model *model;
	const struct linear_op *const *ops; /* of one key */
	uint32_t count, words;
	struct event *events;
	struct event head; /* head.next is the first */
	struct undo *undos;
	uint32_t depth, returned; /* done; of these, such that returned */
	uint32_t returned_all;
	uint64_t *done; /* a bit for each op */
	uint64_t state[LINEAR_STATE];
	struct seen *seen;
	uint64_t *bits;
	uint32_t seen_count, seen_room, bits_room;
	uint32_t longest, stuck_at;
};

static int by_key_and_call(const void *a, const void *b)
{
	const struct linear_op *x = *(const struct linear_op *const *)a;
	const struct linear_op *y = *(const struct linear_op *const *)b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	if (x->called_at != y->called_at)
		return x->called_at < y->called_at ? -1 : 1;
	return x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
	const struct event *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	if (x->is_call != y->is_call)
		return x->is_call ? -1 : 1;
	return x->op < y->op ? -1 : x->op > y->op;
}

/* --- what was tried --- */

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ hash >> 29;
}

static uint64_t hash_now(const struct search *search)
{
	uint64_t hash = 1;
	uint32_t i;

	for (i = 0; i < search->words; i++)
		hash = mix(hash, search->done[i]);
	for (i = 0; i < LINEAR_STATE; i++)
		hash = mix(hash, search->state[i]);
	return hash;
}

static int grow_seen(struct search *search)
{
	uint32_t room = search->seen_room ? 2 * search->seen_room : 1024;
	struct seen *seen = calloc(room, sizeof(*seen));
	uint64_t *bits = realloc(search->bits,
				 (size_t)room * search->words * sizeof(*bits));
	uint32_t i, at;

	if (bits)
		search->bits = bits;
	if (!seen || !bits) {
		free(seen);
		return -ENOMEM;
	}
	for (i = 0; i < search->seen_room; i++) {
		if (!search->seen[i].bits)
			continue;
		at = (uint32_t)search->seen[i].hash & (room - 1);
		while (seen[at].bits)
			at = (at + 1) & (room - 1);
		seen[at] = search->seen[i];
	}
	free(search->seen);
	search->seen = seen;
	search->seen_room = room;
	return 0;
}

/* Remember what is done and the state. 1: it is new.  0: it was tried. */
static int remember(struct search *search)
{
	size_t size = search->words * sizeof(*search->bits);
	uint64_t hash = hash_now(search);
	struct seen *seen;
	uint32_t at;
	int rc;

	if (search->seen_count * 2 >= search->seen_room) {
		rc = grow_seen(search);
		if (rc)
			return rc;
	}
	at = (uint32_t)hash & (search->seen_room - 1);
	for (seen = &search->seen[at]; seen->bits; seen = &search->seen[at]) {
		if (seen->hash == hash &&
		    !memcmp(seen->state, search->state, sizeof(seen->state)) &&
		    !memcmp(search->bits +
				    (size_t)(seen->bits - 1) * search->words,
			    search->done, size))
			return 0;
		at = (at + 1) & (search->seen_room - 1);
	}
	seen->hash = hash;
	memcpy(seen->state, search->state, sizeof(seen->state));
	memcpy(search->bits + (size_t)search->seen_count * search->words,
	       search->done, size);
	seen->bits = ++search->seen_count;
	return 1;
}

/* --- the list --- */

static void unlink_event(struct event *event)
{
	event->previous->next = event->next;
	if (event->next)
		event->next->previous = event->previous;
}

static void relink_event(struct event *event)
{
	event->previous->next = event;
	if (event->next)
		event->next->previous = event;
}

static bool has_returned(const struct search *search, uint32_t op)
{
	return search->ops[op]->returned_at != LINEAR_NEVER;
}

static void flip(struct search *search, uint32_t op)
{
	search->done[op / 64] ^= UINT64_C(1) << op % 64;
}

/* Do the operation of that call, if the model agrees and it is new. */
static int try_call(struct search *search, struct event *call)
{
	struct undo *undo = &search->undos[search->depth];
	uint64_t next[LINEAR_STATE] = {0};
	int rc;

	if (!search->model->step(search->state, search->ops[call->op], next))
		return 0;
	undo->call = call;
	memcpy(undo->state, search->state, sizeof(next));
	memcpy(search->state, next, sizeof(next));
	flip(search, call->op);
	rc = remember(search);
	if (rc <= 0) {
		flip(search, call->op);
		memcpy(search->state, undo->state, sizeof(next));
		return rc;
	}
	unlink_event(call);
	unlink_event(call->other);
	search->depth++;
	search->returned += has_returned(search, call->op);
	if (search->depth > search->longest) {
		search->longest = search->depth;
		search->stuck_at = UINT32_MAX;
	}
	return 1;
}

/* Put the last one back. NULL: there is none; else its call. */
static struct event *take_back(struct search *search)
{
	struct undo *undo;

	if (!search->depth)
		return NULL;
	undo = &search->undos[--search->depth];
	relink_event(undo->call->other);
	relink_event(undo->call);
	flip(search, undo->call->op);
	memcpy(search->state, undo->state, sizeof(undo->state));
	search->returned -= has_returned(search, undo->call->op);
	return undo->call;
}

static int run(struct search *search, uint64_t steps_max, uint64_t *steps,
	       enum linear_verdict *verdict)
{
	struct event *event = search->head.next;
	uint64_t limit = *steps + steps_max;
	int rc;

	while (search->returned < search->returned_all) {
		if (event->is_call) {
			if ((*steps)++ >= limit) {
				*verdict = LINEAR_UNKNOWN;
				return 0;
			}
			rc = try_call(search, event);
			if (rc < 0)
				return rc;
			event = rc ? search->head.next : event->next;
			continue;
		}
		if (search->depth == search->longest &&
		    search->stuck_at == UINT32_MAX)
			search->stuck_at = event->op;
		event = take_back(search);
		if (!event) {
			*verdict = LINEAR_NO;
			return 0;
		}
		event = event->next;
	}
	*verdict = LINEAR_YES;
	return 0;
}

/* --- one key --- */

static void make_list(struct search *search)
{
	struct event *events = search->events, **calls;
	uint32_t i, count = search->count;

	for (i = 0; i < count; i++) {
		events[2 * i] = (struct event){
			.op = i,
			.at = search->ops[i]->called_at,
			.is_call = true,
		};
		events[2 * i + 1] = (struct event){
			.op = i,
			.at = search->ops[i]->returned_at,
		};
	}
	qsort(events, 2 * (size_t)count, sizeof(*events), by_time);
	/* The undos have room for a pointer per op, and are not used yet. */
	calls = (struct event **)(void *)search->undos;
	search->head.next = events;
	for (i = 0; i < 2 * count; i++) {
		events[i].previous = i ? &events[i - 1] : &search->head;
		events[i].next = i + 1 < 2 * count ? &events[i + 1] : NULL;
		if (events[i].is_call)
			calls[events[i].op] = &events[i];
		else
			calls[events[i].op]->other = &events[i];
	}
}

static int check_key(struct search *search, uint64_t steps_max,
		     struct linear_result *result)
{
	uint32_t i;
	int rc = -ENOMEM;

	search->words = (search->count + 63) / 64;
	search->events =
		calloc(2 * (size_t)search->count, sizeof(struct event));
	search->undos = calloc(search->count, sizeof(*search->undos));
	search->done = calloc(search->words, sizeof(*search->done));
	if (search->events && search->undos && search->done) {
		make_list(search);
		memcpy(search->state, search->model->start,
		       sizeof(search->state));
		search->stuck_at = UINT32_MAX;
		for (i = 0; i < search->count; i++)
			search->returned_all += has_returned(search, i);
		rc = run(search, steps_max, &result->steps, &result->verdict);
	}
	free(search->events);
	free(search->undos);
	free(search->done);
	free(search->seen);
	free(search->bits);
	return rc;
}

static int check_sorted(const struct linear_model *model,
			const struct linear_op *const *sorted, size_t count,
			uint64_t steps_max, const struct linear_op *first,
			struct linear_result *result)
{
	size_t from, to;
	int rc;

	for (from = 0; from < count; from = to) {
		struct search search = {.model = model, .ops = sorted + from};

		for (to = from;
		     to < count && sorted[to]->key == sorted[from]->key;)
			to++;
		search.count = (uint32_t)(to - from);
		rc = check_key(&search, steps_max, result);
		if (rc)
			return rc;
		if (result->verdict == LINEAR_YES)
			continue;
		result->key = sorted[from]->key;
		result->longest = search.longest;
		if (search.stuck_at != UINT32_MAX)
			result->op = (size_t)(sorted[from + search.stuck_at] -
					      first);
		return 0;
	}
	return 0;
}

int linear_check(const struct linear_model *model, const struct linear_op *ops,
		 size_t count, uint64_t steps_max, struct linear_result *result)
{
	struct linear_result found = {.verdict = LINEAR_YES};
	const struct linear_op **sorted;
	size_t i;
	int rc;

	for (i = 0; i < count; i++)
		if (ops[i].returned_at < ops[i].called_at)
			return -EINVAL;
	sorted = malloc((count + 1) * sizeof(*sorted));
	if (!sorted)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		sorted[i] = &ops[i];
	qsort(sorted, count, sizeof(*sorted), by_key_and_call);
	rc = check_sorted(model, sorted, count,
			  steps_max ? steps_max : 10000000, ops, &found);
	free(sorted);
	if (!rc)
		*result = found;
	return rc;
}
