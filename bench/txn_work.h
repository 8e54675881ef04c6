/* txn_work.h - what is done in transactions, word for word the same for all.
 *
 *   smallbank   banking (FaRM, FaSST, DrTM and FORD are measured by it): 15 of
 *               100 look at a customer's two balances, 15 pay in, 15 change
 *               savings, 15 put two customers' money together, 15 write a
 *               check, 25 send a payment. 90 of 100 go to 4 of 100 customers
 *   tatp        a phone network: 80 of 100 read one or two rows, 16 update one
 *               or two, 4 insert or delete a row
 *   tpcc-1, -4  of TPC-C, new-order (a district's next number, and for each of
 *               5 to 15 goods its price, its stock and an order line; 1 in 100
 *               of them from another warehouse) and payment, half each, with 1
 *               and 4 warehouses; other rows than these are left out
 *   ...-2       two processes; the figure is how many times one's rate
 *   ...-p99     the time that one of 100 transactions takes longer than
 *   ...-commits two processes: how many of 100 attempts did not lose
 *   ...-tcp16   16 fibers
 *
 * (1) A transaction is a list of steps on rows, each of which has a key of 8
 *     bytes and is a number, or bytes. Competitors in the process read and
 *     write rows (txn_ops); servers get the list in one request, and run it
 *     where the rows are.
 * (2) A step that is refused (a balance that would become negative, a row that
 *     is there already) ends its transaction, and nothing of it happened; it
 *     counts, as it is what was asked.
 * (3) Time is the thread's on the processor where a transaction is its own work
 *     alone, and the clock on the wall where a server answers.
 *
 * Thread: owner. */
#ifndef REEF_BENCH_TXN_WORK_H
#define REEF_BENCH_TXN_WORK_H

#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

/* driver_options.size in these: a customer, or a subscriber. */
#define TXN_UNIT 16u
#define TXN_STEPS_MAX 40u
#define TXN_BYTES_MAX 64u /* of a row of bytes */
#define TXN_FIBERS 16u
#define TXN_CHUNK 32u
#define TXN_TIMES_MAX (1u << 20)
#define TXN_BALANCE 100000
#define TXN_ANY INT64_MIN
#define TXN_REFUSED 1 /* (2) */

enum txn_kind {
	TXN_READ,   /* a number */
	TXN_ADD,    /* to a number; refused if it is below `least` then */
	TXN_MOVE,   /* all of a number to the one whose key is `amount` */
	TXN_STOCK,  /* take from a number; add 91 where less than 10 is left */
	TXN_READ_B, /* bytes; `amount` not 0: refused if they are not there */
	TXN_PUT_B,  /* bytes, so many as `amount` */
	TXN_INSERT, /* bytes; refused if they are there */
	TXN_DELETE, /* bytes */
	TXN_ORDER,  /* bytes, to key + 16 * the sum of the last TXN_ADD */
	TXN_KINDS
};

struct txn_step {
	enum txn_kind kind;
	uint64_t key;
	int64_t amount, least;
};

struct txn_list {
	struct txn_step steps[TXN_STEPS_MAX];
	uint32_t count;
	bool only_reads;
};

enum txn_table { TXN_SMALLBANK, TXN_TATP, TXN_TPCC, TXN_TABLES };

struct txn_work {
	const char *name;
	enum txn_table table;
	uint32_t warehouses;
	uint32_t processes; /* 0: one */
	bool fibers, commits, times;
};

static const struct txn_work txn_works[] = {
	{.name = "smallbank", .table = TXN_SMALLBANK},
	{.name = "smallbank-p99", .table = TXN_SMALLBANK, .times = true},
	{.name = "smallbank-2", .table = TXN_SMALLBANK, .processes = 2},
	{.name = "smallbank-2-commits",
	 .table = TXN_SMALLBANK,
	 .processes = 2,
	 .commits = true},
	{.name = "tatp", .table = TXN_TATP},
	{.name = "tatp-p99", .table = TXN_TATP, .times = true},
	{.name = "tatp-2", .table = TXN_TATP, .processes = 2},
	{.name = "tpcc-1", .table = TXN_TPCC, .warehouses = 1},
	{.name = "tpcc-4", .table = TXN_TPCC, .warehouses = 4},
	{.name = "tpcc-4-p99",
	 .table = TXN_TPCC,
	 .warehouses = 4,
	 .times = true},
	{.name = "tpcc-1-2",
	 .table = TXN_TPCC,
	 .warehouses = 1,
	 .processes = 2},
	{.name = "tpcc-1-2-commits",
	 .table = TXN_TPCC,
	 .warehouses = 1,
	 .processes = 2,
	 .commits = true},
	{.name = "smallbank-tcp16", .table = TXN_SMALLBANK, .fibers = true},
	{.name = "tatp-tcp16", .table = TXN_TATP, .fibers = true},
	{.name = "tpcc-4-tcp16",
	 .table = TXN_TPCC,
	 .warehouses = 4,
	 .fibers = true},
};

static inline const struct txn_work *txn_work_find(const char *name)
{
	for (size_t i = 0; i < sizeof(txn_works) / sizeof(txn_works[0]); i++)
		if (strcmp(txn_works[i].name, name) == 0)
			return &txn_works[i];
	return NULL;
}

struct txn_state {
	uint64_t units; /* customers, or subscribers */
	uint64_t random;
	uint64_t serial; /* of rows that nobody else makes */
};

/* --- chance --- */

static inline uint64_t txn_below(struct txn_state *state, uint64_t limit)
{
	state->random = state->random * UINT64_C(6364136223846793005) +
			UINT64_C(1442695040888963407);
	return ((state->random >> 32) * limit) >> 32;
}

/* --- rows --- */

enum txn_row {
	TXN_SAVINGS = 1,
	TXN_CHECKING,
	TXN_SUBSCRIBER,
	TXN_ACCESS,
	TXN_FACILITY,
	TXN_FORWARDING,
	TXN_WAREHOUSE_YTD,
	TXN_DISTRICT_YTD,
	TXN_DISTRICT_NEXT,
	TXN_CUSTOMER_BALANCE,
	TXN_STOCKED,
	TXN_CUSTOMER,
	TXN_ITEM,
	TXN_ORDERS,
	TXN_HISTORY,
};

#define TXN_DISTRICTS 10u
#define TXN_WAREHOUSES 4u

/* Goods, and customers of a district: fewer where everything is small. */
static inline uint64_t txn_items(uint64_t units)
{
	return units < 100000 ? 1300 : units < 1000000 ? 10400 : 100100;
}

static inline uint64_t txn_customers(uint64_t units)
{
	return units < 100000 ? 30 : units < 1000000 ? 300 : 3000;
}

static inline uint64_t txn_key(enum txn_row row, uint64_t id)
{
	return (uint64_t)row << 56 | id;
}

/* What is in a row of bytes, and looked at when it is read. */
static inline void txn_fill(uint64_t key, uint8_t bytes[TXN_BYTES_MAX])
{
	memset(bytes, 'x', TXN_BYTES_MAX);
	memcpy(bytes, &key, 8);
}

/* Call `add` for all rows of a table at first: numbers with size 0. */
static inline int txn_load_customer(uint64_t i, void *context,
				    int (*add)(void *context, uint64_t key,
					       int64_t number, uint32_t size))
{
	int rc = add(context, txn_key(TXN_SAVINGS, i), TXN_BALANCE, 0);

	return rc ? rc : add(context, txn_key(TXN_CHECKING, i), TXN_BALANCE, 0);
}

static inline int txn_load_subscriber(uint64_t i, void *context,
				      int (*add)(void *context, uint64_t key,
						 int64_t number, uint32_t size))
{
	int rc = add(context, txn_key(TXN_SUBSCRIBER, i), 0, 40);

	for (uint64_t j = 0; j < 2 && !rc; j++) {
		rc = add(context, txn_key(TXN_ACCESS, 4 * i + j), 0, 16);
		rc = rc ? rc
			: add(context, txn_key(TXN_FACILITY, 4 * i + j), 0, 16);
	}
	return rc ? rc : add(context, txn_key(TXN_FORWARDING, 16 * i), 0, 24);
}

static inline int txn_load_warehouse(uint64_t w, uint64_t units, void *context,
				     int (*add)(void *context, uint64_t key,
						int64_t number, uint32_t size))
{
	const uint64_t customers = txn_customers(units);
	const uint64_t items = txn_items(units);
	uint64_t d, id;
	int rc = add(context, txn_key(TXN_WAREHOUSE_YTD, w), 0, 0);

	for (d = w * TXN_DISTRICTS; d < (w + 1) * TXN_DISTRICTS && !rc; d++) {
		rc = add(context, txn_key(TXN_DISTRICT_YTD, d), 0, 0);
		rc = rc ? rc
			: add(context, txn_key(TXN_DISTRICT_NEXT, d), 1, 0);
		for (id = d * customers; id < (d + 1) * customers && !rc;
		     id++) {
			rc = add(context, txn_key(TXN_CUSTOMER_BALANCE, id), 0,
				 0);
			rc = rc ? rc
				: add(context, txn_key(TXN_CUSTOMER, id), 0,
				      64);
		}
	}
	for (id = 0; id < items && !rc; id++)
		rc = add(context, txn_key(TXN_STOCKED, w * items + id), 50, 0);
	return rc;
}

static inline int txn_load(enum txn_table table, uint64_t units, void *context,
			   int (*add)(void *context, uint64_t key,
				      int64_t number, uint32_t size))
{
	int rc = 0;

	if (table == TXN_SMALLBANK)
		for (uint64_t i = 0; i < units && !rc; i++)
			rc = txn_load_customer(i, context, add);
	else if (table == TXN_TATP)
		for (uint64_t i = 0; i < units && !rc; i++)
			rc = txn_load_subscriber(i, context, add);
	else {
		for (uint64_t w = 0; w < TXN_WAREHOUSES && !rc; w++)
			rc = txn_load_warehouse(w, units, context, add);
		for (uint64_t i = 0; i < txn_items(units) && !rc; i++)
			rc = add(context, txn_key(TXN_ITEM, i), 0, 64);
	}
	return rc;
}

/* --- lists --- */

static inline void txn_step(struct txn_list *list, enum txn_kind kind,
			    uint64_t key, int64_t amount, int64_t least)
{
	list->steps[list->count++] = (struct txn_step){
		.kind = kind,
		.key = key,
		.amount = amount,
		.least = least,
	};
	list->only_reads &= kind == TXN_READ || kind == TXN_READ_B;
}

static inline uint64_t txn_draw_customer(struct txn_state *state)
{
	const uint64_t hot = state->units / 25;

	return txn_below(state, 100) < 90 && hot
		       ? txn_below(state, hot)
		       : txn_below(state, state->units);
}

static inline void txn_draw_smallbank(struct txn_state *state,
				      struct txn_list *list)
{
	const uint64_t dice = txn_below(state, 100);
	uint64_t one = txn_draw_customer(state), other;
	const int64_t amount = 1 + (int64_t)txn_below(state, 50);

	do
		other = txn_draw_customer(state);
	while (other == one);
	if (dice < 15) {
		txn_step(list, TXN_READ, txn_key(TXN_SAVINGS, one), 0, 0);
		txn_step(list, TXN_READ, txn_key(TXN_CHECKING, one), 0, 0);
	} else if (dice < 30) {
		txn_step(list, TXN_ADD, txn_key(TXN_CHECKING, one), amount,
			 TXN_ANY);
	} else if (dice < 45) {
		txn_step(list, TXN_ADD, txn_key(TXN_SAVINGS, one), amount, 0);
	} else if (dice < 60) {
		txn_step(list, TXN_MOVE, txn_key(TXN_SAVINGS, one),
			 (int64_t)txn_key(TXN_CHECKING, other), 0);
		txn_step(list, TXN_MOVE, txn_key(TXN_CHECKING, one),
			 (int64_t)txn_key(TXN_CHECKING, other), 0);
	} else if (dice < 75) {
		txn_step(list, TXN_READ, txn_key(TXN_SAVINGS, one), 0, 0);
		txn_step(list, TXN_ADD, txn_key(TXN_CHECKING, one), -amount,
			 TXN_ANY);
	} else {
		txn_step(list, TXN_ADD, txn_key(TXN_CHECKING, one), -amount, 0);
		txn_step(list, TXN_ADD, txn_key(TXN_CHECKING, other), amount,
			 TXN_ANY);
	}
}

static inline void txn_draw_tatp(struct txn_state *state, struct txn_list *list)
{
	const uint64_t dice = txn_below(state, 100);
	const uint64_t id = txn_below(state, state->units);
	const uint64_t part = 4 * id + txn_below(state, 2);
	const uint64_t forward = 16 * id + txn_below(state, 6);

	if (dice < 35) {
		txn_step(list, TXN_READ_B, txn_key(TXN_SUBSCRIBER, id), 1, 0);
	} else if (dice < 45) {
		txn_step(list, TXN_READ_B, txn_key(TXN_FACILITY, part), 1, 0);
		txn_step(list, TXN_READ_B, txn_key(TXN_FORWARDING, forward), 0,
			 0);
	} else if (dice < 80) {
		txn_step(list, TXN_READ_B, txn_key(TXN_ACCESS, part), 1, 0);
	} else if (dice < 82) {
		txn_step(list, TXN_PUT_B, txn_key(TXN_SUBSCRIBER, id), 40, 0);
		txn_step(list, TXN_PUT_B, txn_key(TXN_FACILITY, part), 16, 0);
	} else if (dice < 96) {
		txn_step(list, TXN_PUT_B, txn_key(TXN_SUBSCRIBER, id), 40, 0);
	} else if (dice < 98) {
		txn_step(list, TXN_READ_B, txn_key(TXN_SUBSCRIBER, id), 1, 0);
		txn_step(list, TXN_READ_B, txn_key(TXN_FACILITY, part), 1, 0);
		txn_step(list, TXN_INSERT, txn_key(TXN_FORWARDING, forward), 24,
			 0);
	} else {
		txn_step(list, TXN_READ_B, txn_key(TXN_SUBSCRIBER, id), 1, 0);
		txn_step(list, TXN_DELETE, txn_key(TXN_FORWARDING, forward), 0,
			 0);
	}
}

static inline void txn_draw_order(struct txn_state *state,
				  struct txn_list *list, uint32_t warehouses)
{
	const uint64_t customers = txn_customers(state->units);
	const uint64_t w = txn_below(state, warehouses);
	const uint64_t d = w * TXN_DISTRICTS + txn_below(state, TXN_DISTRICTS);
	const uint64_t goods = 5 + txn_below(state, 8);
	const uint64_t c = d * customers + txn_below(state, customers);
	const uint64_t items = txn_items(state->units);
	uint64_t item, from, i;

	txn_step(list, TXN_READ_B, txn_key(TXN_CUSTOMER, c), 1, 0);
	for (i = 0; i < goods; i++) {
		/* Different ones: each of its own part of them. */
		item = txn_below(state, items / 13) * 13 + i;
		from = warehouses > 1 && !txn_below(state, 100)
			       ? txn_below(state, warehouses)
			       : w;
		txn_step(list, TXN_READ_B, txn_key(TXN_ITEM, item), 1, 0);
		txn_step(list, TXN_STOCK,
			 txn_key(TXN_STOCKED, from * items + item),
			 1 + (int64_t)txn_below(state, 10), 0);
	}
	txn_step(list, TXN_ADD, txn_key(TXN_DISTRICT_NEXT, d), 1, TXN_ANY);
	for (i = 0; i <= goods; i++)
		txn_step(list, TXN_ORDER, txn_key(TXN_ORDERS, d << 40 | i), 48,
			 0);
}

static inline void txn_draw_payment(struct txn_state *state,
				    struct txn_list *list, uint32_t warehouses)
{
	const uint64_t customers = txn_customers(state->units);
	const uint64_t w = txn_below(state, warehouses);
	const uint64_t d = w * TXN_DISTRICTS + txn_below(state, TXN_DISTRICTS);
	const uint64_t c = d * customers + txn_below(state, customers);
	const int64_t amount = 1 + (int64_t)txn_below(state, 5000);

	txn_step(list, TXN_READ_B, txn_key(TXN_CUSTOMER, c), 1, 0);
	txn_step(list, TXN_ADD, txn_key(TXN_CUSTOMER_BALANCE, c), -amount,
		 TXN_ANY);
	txn_step(list, TXN_ADD, txn_key(TXN_DISTRICT_YTD, d), amount, TXN_ANY);
	txn_step(list, TXN_ADD, txn_key(TXN_WAREHOUSE_YTD, w), amount, TXN_ANY);
	txn_step(list, TXN_PUT_B, txn_key(TXN_HISTORY, state->serial++), 48, 0);
}

static inline void txn_draw(const struct txn_work *work,
			    struct txn_state *state, struct txn_list *list)
{
	list->count = 0;
	list->only_reads = true;
	if (work->table == TXN_SMALLBANK)
		txn_draw_smallbank(state, list);
	else if (work->table == TXN_TATP)
		txn_draw_tatp(state, list);
	else if (txn_below(state, 2))
		txn_draw_order(state, list, work->warehouses);
	else
		txn_draw_payment(state, list, work->warehouses);
}

/* --- in the process: steps by rows --- */

/* Rows within a transaction that was begun. 0, -ENOENT, or another error. */
struct txn_ops {
	int (*get_number)(void *context, uint64_t key, int64_t *number);
	int (*put_number)(void *context, uint64_t key, int64_t number);
	int (*get_bytes)(void *context, uint64_t key, uint8_t *bytes);
	int (*put_bytes)(void *context, uint64_t key, const uint8_t *bytes,
			 uint32_t size);
	int (*remove_bytes)(void *context, uint64_t key);
};

static inline int txn_do_move(const struct txn_ops *ops, void *context,
			      const struct txn_step *step)
{
	int64_t from = 0, to = 0;
	int rc = ops->get_number(context, step->key, &from);

	rc = rc ? rc : ops->get_number(context, (uint64_t)step->amount, &to);
	rc = rc ? rc : ops->put_number(context, step->key, 0);
	return rc ? rc
		  : ops->put_number(context, (uint64_t)step->amount, to + from);
}

static inline int txn_do_number(const struct txn_ops *ops, void *context,
				const struct txn_step *step, int64_t *sum)
{
	int64_t number = 0;
	int rc = ops->get_number(context, step->key, &number);

	if (rc || step->kind == TXN_READ)
		return rc;
	if (step->kind == TXN_STOCK) {
		number -= step->amount;
		number += number < 10 ? 91 : 0;
	} else {
		number += step->amount;
		if (number < step->least)
			return TXN_REFUSED;
		*sum = number;
	}
	return ops->put_number(context, step->key, number);
}

static inline int txn_do_bytes(const struct txn_ops *ops, void *context,
			       const struct txn_step *step, int64_t sum)
{
	const uint64_t key =
		step->key + (step->kind == TXN_ORDER ? 16 * (uint64_t)sum : 0);
	uint8_t bytes[TXN_BYTES_MAX];
	int rc;

	switch (step->kind) {
	case TXN_READ_B:
		rc = ops->get_bytes(context, key, bytes);
		if (!rc && memcmp(bytes, &key, 8) != 0)
			return -EILSEQ;
		return rc == -ENOENT ? (step->amount ? TXN_REFUSED : 0) : rc;
	case TXN_DELETE:
		rc = ops->remove_bytes(context, key);
		return rc == -ENOENT ? TXN_REFUSED : rc;
	case TXN_INSERT:
		rc = ops->get_bytes(context, key, bytes);
		if (rc != -ENOENT)
			return rc ? rc : TXN_REFUSED;
		break;
	default:
		break;
	}
	txn_fill(key, bytes);
	return ops->put_bytes(context, key, bytes, (uint32_t)step->amount);
}

/* Do the steps. 0: commit.  TXN_REFUSED: abort.  Else: an error. */
static inline int txn_do(const struct txn_ops *ops, void *context,
			 const struct txn_list *list)
{
	int64_t sum = 0;
	int rc = 0;

	for (uint32_t i = 0; i < list->count && !rc; i++) {
		const struct txn_step *step = &list->steps[i];

		if (step->kind == TXN_MOVE)
			rc = txn_do_move(ops, context, step);
		else if (step->kind <= TXN_STOCK)
			rc = txn_do_number(ops, context, step, &sum);
		else
			rc = txn_do_bytes(ops, context, step, sum);
	}
	return rc;
}

/* --- the loop --- */

/* Run a transaction to its end; 0 also if it was refused. */
typedef int txn_run(void *context, const struct txn_list *list);

static inline int txn_by_value(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static inline int txn_times(const struct txn_work *work,
			    struct txn_state *state, double seconds,
			    txn_run *run, void *context, double *p99)
{
	uint32_t *times = malloc(TXN_TIMES_MAX * sizeof(*times)), count = 0;
	const double begin = workload_seconds(CLOCK_MONOTONIC);
	double before, after = begin;
	struct txn_list list;
	int rc = times ? 0 : -ENOMEM;

	while (!rc && count < TXN_TIMES_MAX && after - begin < seconds) {
		txn_draw(work, state, &list);
		before = workload_seconds(CLOCK_MONOTONIC);
		rc = run(context, &list);
		after = workload_seconds(CLOCK_MONOTONIC);
		times[count++] = (uint32_t)((after - before) * 1e9);
	}
	if (!rc) {
		qsort(times, count, sizeof(*times), txn_by_value);
		*p99 = times[(uint64_t)count * 99 / 100] / 1e3;
	}
	free(times);
	return rc;
}

/* Run transactions for so long. *figure: a second, or microseconds. */
static inline int txn_loop(const struct txn_work *work, struct txn_state *state,
			   double seconds, clockid_t clock, txn_run *run,
			   void *context, double *figure)
{
	double begin = workload_seconds(clock), now = begin;
	struct txn_list list;
	uint64_t done = 0;
	int rc = 0;

	if (work->times)
		return txn_times(work, state, seconds, run, context, figure);
	while (!rc && now - begin < seconds) {
		for (uint32_t i = 0; i < TXN_CHUNK && !rc; i++, done++) {
			txn_draw(work, state, &list);
			rc = run(context, &list);
		}
		now = workload_seconds(clock);
	}
	*figure = (double)done / (now - begin);
	return rc;
}

/* A peer's run: of one process, each table loaded at its first use. */
struct txn_peer {
	struct txn_state state;
	bool is_loaded[TXN_TABLES];
	clockid_t clock;
	txn_run *run;
	int (*load)(enum txn_table table, uint64_t units);
	void *context;
};

static inline int txn_peer_run(struct txn_peer *peer, const char *name,
			       double seconds, double *figure)
{
	const struct txn_work *work = txn_work_find(name);
	int rc = 0;

	if (!work || work->processes || work->fibers)
		return -ENOSYS;
	if (!peer->is_loaded[work->table])
		rc = peer->load(work->table, peer->state.units);
	peer->is_loaded[work->table] = !rc;
	return rc ? rc
		  : txn_loop(work, &peer->state, seconds, peer->clock,
			     peer->run, peer->context, figure);
}

#endif
