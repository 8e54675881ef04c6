/* The checker of logs: a history that is right, and for each rule one that
 * breaks it and nothing else. */
#include "check/order.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct order_event append(uint64_t value, uint32_t count,
				 uint64_t position, uint64_t from, uint64_t to)
{
	return (struct order_event){
		.kind = ORDER_APPEND,
		.result = ORDER_DONE,
		.value = value,
		.count = count,
		.position = position,
		.called_at = from,
		.returned_at = to,
	};
}

static struct order_event sight(uint64_t position, uint64_t value, uint64_t at)
{
	return (struct order_event){
		.kind = ORDER_SIGHT,
		.value = value,
		.position = position,
		.called_at = at,
		.returned_at = at,
		.is_last = at >= 100,
	};
}

static struct order_event other(enum order_kind kind, uint64_t position,
				uint64_t from, uint64_t to)
{
	return (struct order_event){
		.kind = kind,
		.position = position,
		.called_at = from,
		.returned_at = to,
	};
}

/* A history that is in order: a single entry, a row of two, a hole, another
 * entry, one that nobody knows of and was seen, and one that was refused. */
enum { FIRST, ROW, LATE, UNKNOWN, REFUSED, NOTHING, TAIL, SEEN, COUNT = 14 };

static void fill(struct order_event *events)
{
	events[FIRST] = append(10, 1, 0, 1, 2);
	events[ROW] = append(20, 2, 1, 3, 6);
	events[LATE] = append(30, 1, 4, 7, 8);
	events[UNKNOWN] = append(40, 1, 0, 4, ORDER_NEVER);
	events[UNKNOWN].result = ORDER_UNKNOWN;
	events[REFUSED] = append(50, 1, 0, 1, 2);
	events[REFUSED].result = ORDER_REFUSED;
	events[NOTHING] = other(ORDER_NOTHING, 1, 2, 4);
	events[TAIL] = other(ORDER_TAIL, 4, 6, 7);
	events[SEEN] = sight(0, 10, 5);
	events[SEEN + 1] = sight(0, 10, 100);
	events[SEEN + 2] = sight(1, 20, 100);
	events[SEEN + 3] = sight(2, 21, 100);
	events[SEEN + 4] = sight(3, ORDER_HOLE, 100);
	events[SEEN + 5] = sight(4, 30, 100);
	events[SEEN + 6] = sight(5, 40, 100);
}

static void expect(const struct order_event *events, size_t count,
		   const char *rule)
{
	const struct order_history history = {
		.events = events,
		.count = count,
		.is_complete = true,
	};
	const char *wrong = order_check(&history, NULL);

	if (!rule)
		assert_null(wrong);
	else
		assert_memory_equal(wrong ? wrong : "none", rule, 3);
}

static void order_right_history_is_right(void **state)
{
	struct order_event events[COUNT];

	fill(events);
	expect(events, COUNT, NULL);
	expect(events, 0, NULL);
}

static void order_wrong_histories_are_found(void **state)
{
	static const struct {
		size_t at;
		struct order_event event;
		const char *rule;
	} wrong[] = {
		{SEEN,
		 {ORDER_SIGHT, 0, ORDER_HOLE, 0, 0, 0, 0, 5, 5, false},
		 "(1)"},
		{SEEN, {ORDER_SIGHT, 0, 40, 0, 0, 0, 7, 5, 5, false}, "(2)"},
		{SEEN, {ORDER_SIGHT, 0, 77, 0, 0, 0, 7, 5, 5, false}, "(3)"},
		{SEEN, {ORDER_SIGHT, 0, 50, 0, 0, 0, 7, 5, 5, false}, "(3)"},
		{SEEN, {ORDER_SIGHT, 0, 40, 0, 0, 0, 5, 3, 3, false}, "(3)"},
		{SEEN + 3,
		 {ORDER_SIGHT, 0, 21, 0, 0, 0, 2, 9, 9, false},
		 "(4)"},
		{ROW,
		 {ORDER_APPEND, ORDER_DONE, 20, 2, 0, 0, 1, 9, 10, false},
		 "(5)"},
		{NOTHING,
		 {ORDER_NOTHING, 0, 0, 0, 0, 0, 1, 7, 9, false},
		 "(6)"},
		{TAIL, {ORDER_TAIL, 0, 0, 0, 0, 0, 2, 7, 9, false}, "(7)"},
		{TAIL, {ORDER_TAIL, 0, 0, 0, 0, 0, 6, 5, 6, false}, "(5)"},
		{SEEN + 5,
		 {ORDER_SIGHT, 0, 30, 0, 0, 0, 4, 9, 9, false},
		 "(8)"},
	};
	struct order_event events[COUNT];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fill(events);
		events[wrong[i].at] = wrong[i].event;
		expect(events, COUNT, wrong[i].rule);
	}
}

/* What EARLY promises less, and what it promises still. */
static void order_early_holds_for_handles_and_tails(void **state)
{
	struct order_event events[] = {
		{ORDER_APPEND, ORDER_DONE, 8, 1, 0, 0, ORDER_NEVER, 1, 2,
		 false},
		{ORDER_APPEND, ORDER_DONE, 16, 1, 0, 1, ORDER_NEVER, 3, 4,
		 false},
		{ORDER_APPEND, ORDER_DONE, 24, 1, 0, 0, ORDER_NEVER, 5, 6,
		 false},
		{ORDER_SIGHT, 0, 8, 0, 0, 0, 1, 20, 20, true},
		{ORDER_SIGHT, 0, 16, 0, 0, 0, 0, 20, 20, true},
		{ORDER_SIGHT, 0, 24, 0, 0, 0, 2, 20, 20, true},
		{ORDER_TAIL, 0, 0, 0, 0, 0, 3, 10, 11, false},
	};
	struct order_history history = {
		.events = events,
		.count = sizeof(events) / sizeof(events[0]),
		.is_complete = true,
		.is_early = true,
	};

	/* One handle's entry may stand before another's. */
	assert_null(order_check(&history, NULL));
	/* But not those of one. */
	events[1].handle = 0;
	assert_memory_equal(order_check(&history, NULL), "(5)", 3);
	events[1].handle = 1;
	/* Nor behind a tail that was told before. */
	events[6].called_at = events[6].returned_at = 4;
	assert_memory_equal(order_check(&history, NULL), "(5)", 3);
	events[6].called_at = events[6].returned_at = 11;
	/* What nobody saw is missed, unless it may be lost. */
	events[5].value = ORDER_HOLE;
	assert_memory_equal(order_check(&history, NULL), "(8)", 3);
	history.may_lose = true;
	assert_null(order_check(&history, NULL));
}

static void order_lost_and_trimmed_are_not_judged(void **state)
{
	struct order_event events[COUNT];
	struct order_history history = {
		.events = events,
		.count = COUNT,
		.is_complete = true,
	};

	fill(events);
	events[SEEN + 5] = other(ORDER_LOST, 4, 9, 9);
	assert_null(order_check(&history, NULL));
	fill(events);
	events[SEEN + 5] = events[SEEN];
	assert_non_null(order_check(&history, NULL));
	history.trimmed = 5;
	assert_null(order_check(&history, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_right_history_is_right),
		cmocka_unit_test(order_wrong_histories_are_found),
		cmocka_unit_test(order_early_holds_for_handles_and_tails),
		cmocka_unit_test(order_lost_and_trimmed_are_not_judged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
