/* order.c - see order.h. Everything is sorted, so that a history of many
 * thousand events takes no time. */
#include "check/order.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a value. */
struct entry {
	uint64_t value;
	uint64_t position; /* ORDER_NEVER: nobody saw it */
	size_t append;	   /* its event */
	bool in_last;	   /* the last read saw it */
};

struct check {
	const struct order_history *history;
	struct entry *entries; /* by value */
	size_t entries_count;
	size_t *lost, *sights; /* events, by position */
	size_t lost_count, sights_count;
	size_t event;
};

static const struct order_event *event_of(const struct check *check, size_t i)
{
	return &check->history->events[i];
}

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

static int compare_entries(const void *a, const void *b)
{
	return compare(((const struct entry *)a)->value,
		       ((const struct entry *)b)->value);
}

static const struct order_event *sorted; /* qsort has no context */

static int compare_positions(const void *a, const void *b)
{
	return compare(sorted[*(const size_t *)a].position,
		       sorted[*(const size_t *)b].position);
}

static struct entry *find_entry(const struct check *check, uint64_t value)
{
	const struct entry key = {.value = value};

	return bsearch(&key, check->entries, check->entries_count, sizeof(key),
		       compare_entries);
}

static bool is_lost(const struct check *check, uint64_t position)
{
	size_t low = 0, high = check->lost_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (event_of(check, check->lost[middle])->position < position)
			low = middle + 1;
		else
			high = middle;
	}
	return low < check->lost_count &&
	       event_of(check, check->lost[low])->position == position;
}

/* --- gathering --- */

static const char *gather(struct check *check)
{
	const struct order_history *history = check->history;
	size_t i, values = 0;

	for (i = 0; i < history->count; i++)
		if (history->events[i].kind == ORDER_APPEND)
			values += history->events[i].count;
	check->entries = calloc(values + 1, sizeof(*check->entries));
	check->lost = calloc(history->count + 1, sizeof(*check->lost));
	check->sights = calloc(history->count + 1, sizeof(*check->sights));
	if (!check->entries || !check->lost || !check->sights)
		return "no memory";
	for (i = 0; i < history->count; i++) {
		const struct order_event *event = &history->events[i];

		if (event->kind == ORDER_LOST)
			check->lost[check->lost_count++] = i;
		if (event->kind == ORDER_SIGHT)
			check->sights[check->sights_count++] = i;
		for (uint32_t j = 0;
		     event->kind == ORDER_APPEND && j < event->count; j++)
			check->entries[check->entries_count++] = (struct entry){
				.value = event->value + j,
				.position = event->result == ORDER_DONE &&
							    event->position !=
								    ORDER_NEVER
						    ? event->position + j
						    : ORDER_NEVER,
				.append = i,
			};
	}
	sorted = history->events;
	qsort(check->lost, check->lost_count, sizeof(*check->lost),
	      compare_positions);
	qsort(check->sights, check->sights_count, sizeof(*check->sights),
	      compare_positions);
	qsort(check->entries, check->entries_count, sizeof(*check->entries),
	      compare_entries);
	return NULL;
}

/* --- (1) to (4) --- */

static const char *check_sight(struct check *check, size_t i)
{
	const struct order_event *sight = event_of(check, i);
	struct entry *entry;

	check->event = i;
	if (sight->value == ORDER_HOLE)
		return NULL;
	entry = find_entry(check, sight->value);
	if (!entry)
		return "(3) a value was seen that nobody appended";
	if (event_of(check, entry->append)->result == ORDER_REFUSED)
		return "(3) an append that was refused was seen";
	if (event_of(check, entry->append)->called_at > sight->returned_at)
		return "(3) an entry was seen before it was appended";
	if (entry->position != ORDER_NEVER &&
	    entry->position != sight->position)
		return "(2) an entry stands at two positions";
	entry->position = sight->position;
	entry->in_last |= sight->is_last;
	return NULL;
}

static const char *check_sights(struct check *check)
{
	const char *wrong = NULL;
	size_t i;

	for (i = 0; !wrong && i < check->sights_count; i++) {
		const struct order_event *sight =
			event_of(check, check->sights[i]);

		wrong = check_sight(check, check->sights[i]);
		if (!wrong && i &&
		    event_of(check, check->sights[i - 1])->position ==
			    sight->position &&
		    event_of(check, check->sights[i - 1])->value !=
			    sight->value)
			wrong = "(1) a position was seen with two values";
	}
	return wrong;
}

/* Acknowledged entries against holes: a hole's sight is found by position. */
static const char *check_acknowledged(struct check *check)
{
	size_t i, low, high, middle;

	for (i = 0; i < check->entries_count; i++) {
		const struct entry *entry = &check->entries[i];

		if (entry->position == ORDER_NEVER)
			continue;
		for (low = 0, high = check->sights_count; low < high;) {
			middle = (low + high) / 2;
			if (event_of(check, check->sights[middle])->position <
			    entry->position)
				low = middle + 1;
			else
				high = middle;
		}
		if (low == check->sights_count)
			continue;
		check->event = check->sights[low];
		if (event_of(check, check->event)->position ==
			    entry->position &&
		    event_of(check, check->event)->value != entry->value)
			return "(3) another thing stands where an append was "
			       "acknowledged";
	}
	return NULL;
}

static const char *check_rows(struct check *check)
{
	size_t i;

	for (i = 0; i + 1 < check->entries_count; i++) {
		const struct entry *entry = &check->entries[i];
		const struct entry *next = entry + 1;

		if (entry->append != next->append)
			continue;
		check->event = entry->append;
		if (entry->position != ORDER_NEVER &&
		    next->position != ORDER_NEVER &&
		    entry->position + 1 != next->position)
			return "(4) a row is not in a row";
		if (entry->in_last != next->in_last &&
		    entry->position != ORDER_NEVER &&
		    entry->position >= check->history->trimmed &&
		    !is_lost(check, entry->position) &&
		    !is_lost(check, entry->position + 1))
			return "(4) a row is there in part";
	}
	return NULL;
}

/* --- (5) to (7) --- */

/* A moment at which something is known of positions. */
struct moment {
	uint64_t at, position;
	size_t event;
	enum { RETURNS, CALLS, FINDS_NOTHING, TELLS_TAIL } what;
};

static int compare_moments(const void *a, const void *b)
{
	return compare(((const struct moment *)a)->at,
		       ((const struct moment *)b)->at);
}

static size_t add_moments(const struct check *check, struct moment *moments)
{
	size_t i, count = 0;

	for (i = 0; i < check->entries_count; i++) {
		const struct entry *entry = &check->entries[i];
		const struct order_event *append =
			event_of(check, entry->append);

		if (entry->position == ORDER_NEVER)
			continue;
		moments[count++] =
			(struct moment){append->called_at, entry->position,
					entry->append, CALLS};
		if (append->result == ORDER_DONE)
			moments[count++] = (struct moment){
				append->returned_at, entry->position,
				entry->append, RETURNS};
	}
	for (i = 0; i < check->history->count; i++) {
		const struct order_event *event = event_of(check, i);

		if (event->kind == ORDER_NOTHING)
			moments[count++] = (struct moment){event->called_at,
							   event->position, i,
							   FINDS_NOTHING};
		if (event->kind != ORDER_TAIL)
			continue;
		moments[count++] = (struct moment){
			event->called_at, event->position, i, TELLS_TAIL};
		/* Nothing that is called later stands below it. */
		if (event->position)
			moments[count++] = (struct moment){event->returned_at,
							   event->position - 1,
							   i, RETURNS};
	}
	return count;
}

static const char *check_times(struct check *check)
{
	size_t count = 2 * (check->entries_count + check->history->count);
	struct moment *moments = calloc(count + 1, sizeof(*moments));
	uint64_t highest = 0; /* and 1, of what has returned */
	uint64_t acknowledged = 0;
	const char *wrong = NULL;
	size_t i;

	if (!moments)
		return "no memory";
	count = add_moments(check, moments);
	qsort(moments, count, sizeof(*moments), compare_moments);
	for (i = 0; !wrong && i < count; i++) {
		const struct moment *moment = &moments[i];

		check->event = moment->event;
		switch (moment->what) {
		case RETURNS:
			if (moment->position >= highest &&
			    (!check->history->is_early ||
			     event_of(check, moment->event)->kind ==
				     ORDER_TAIL))
				highest = moment->position + 1;
			if (event_of(check, moment->event)->kind ==
				    ORDER_APPEND &&
			    moment->position >= acknowledged &&
			    !is_lost(check, moment->position))
				acknowledged = moment->position + 1;
			break;
		case CALLS:
			if (moment->position < highest)
				wrong = "(5) an append stands before one that "
					"had returned";
			break;
		case FINDS_NOTHING:
			if (moment->position < acknowledged)
				wrong = "(6) a read found nothing where "
					"something was acknowledged";
			break;
		case TELLS_TAIL:
			if (moment->position < acknowledged)
				wrong = "(7) the tail is not behind what had "
					"returned";
			break;
		}
	}
	free(moments);
	return wrong;
}

/* --- EARLY: the appends of a handle; values grow as they are called --- */

static const char *check_handles(struct check *check)
{
	uint64_t *next;
	uint32_t handles = 0;
	const char *wrong = NULL;
	size_t i;

	for (i = 0; i < check->history->count; i++)
		if (event_of(check, i)->handle >= handles)
			handles = event_of(check, i)->handle + 1;
	next = calloc(handles + 1, sizeof(*next));
	if (!next)
		return "no memory";
	for (i = 0;
	     check->history->is_early && !wrong && i < check->entries_count;
	     i++) {
		const struct entry *entry = &check->entries[i];
		const struct order_event *append =
			event_of(check, entry->append);
		uint64_t *after = &next[append->handle];

		check->event = entry->append;
		if (append->result != ORDER_DONE)
			continue;
		if (entry->position == ORDER_NEVER) {
			if (check->history->is_complete &&
			    !check->history->may_lose &&
			    (*after || !check->history->trimmed) &&
			    *after >= check->history->trimmed)
				wrong = "(8) what was acknowledged early is "
					"nowhere";
			continue;
		}
		if (entry->position < *after)
			wrong = "(5) a handle's entries are out of order";
		*after = entry->position + 1;
	}
	free(next);
	return wrong;
}

/* --- (8) --- */

static const char *check_end(struct check *check)
{
	size_t i;

	for (i = 0; check->history->is_complete && i < check->entries_count;
	     i++) {
		const struct entry *entry = &check->entries[i];

		check->event = entry->append;
		if (event_of(check, entry->append)->result == ORDER_DONE &&
		    entry->position != ORDER_NEVER &&
		    entry->position >= check->history->trimmed &&
		    !entry->in_last && !is_lost(check, entry->position))
			return "(8) what was acknowledged is not there";
	}
	return NULL;
}

const char *order_check(const struct order_history *history, size_t *event)
{
	static const char *(*const rules[])(struct check *) = {
		gather,	     check_sights,  check_acknowledged, check_rows,
		check_times, check_handles, check_end,
	};
	struct check check = {.history = history};
	const char *wrong = NULL;
	size_t i;

	for (i = 0; !wrong && i < sizeof(rules) / sizeof(rules[0]); i++)
		wrong = rules[i](&check);
	if (wrong && event)
		*event = check.event;
	free(check.entries);
	free(check.lost);
	free(check.sights);
	return wrong;
}
