/* txn_reef.c - the cases over Reef, as a program would: the public interface,
 * on a pool in another process (what `reef up` runs), options as they come.
 *
 * A transaction takes all rows that it will change at once, works on what it
 * read, puts, and commits. Over shm the client's thread does it all; over tcp
 * the fibers of one handle. A second process waits in its pipe for rounds.
 *
 * Thread: owner. */
#include "bench/units.h"
#include "pool.h"
#include "txn_bench.h"
#include "txn_work.h"

#include <reef/fiber.h>
#include <reef/txn.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXTENT (64 * MIB)
/* Bytes that the node lends: what rows take, new ones, what waits to be reused,
 * and some to spare. */
#define CAPACITY(units) (1600 * (units) + 4096 * MIB)
#define LOAD 64u /* rows at once */
#define TURNS 3u /* of two processes, in a round; odd */

/* What a thread, or a fiber, has of its own. */
struct hand {
	struct reef *reef;
	struct reef_space *space;
	struct reef_map *numbers, *bytes;
	struct txn_state state;
	const struct txn_list *list;
	struct reef_txn_item items[2 * TXN_STEPS_MAX];
	int64_t rows[2 * TXN_STEPS_MAX];
	bool is_changed[2 * TXN_STEPS_MAX];
	uint32_t count;
	uint64_t attempts, done;
};

/* What the second process is told, and tells. */
struct order {
	uint32_t work; /* in txn_works */
	double seconds;
};
struct outcome {
	int rc;
	double rate;
	uint64_t attempts, done;
};

struct ours {
	struct hand hand;
	struct reef_sched *sched; /* tcp; else NULL */
	const char *fabric;
	uint32_t fibers;
	bool is_loaded[TXN_TABLES];
	int to_second, from_second;
	/* The round that the fibers run. */
	const struct txn_work *work;
	double until;
	uint64_t done;
	int rc;
};

static struct ours ours;

/* --- a transaction --- */

/* The place of a row among those that are taken. */
static uint32_t place_of(struct hand *hand, struct reef_map *map, uint64_t key,
			 const uint64_t *kept)
{
	uint32_t i = 0;

	while (i < hand->count &&
	       (hand->items[i].map != map ||
		memcmp(hand->items[i].key, &key, sizeof(key)) != 0))
		i++;
	if (i == hand->count) {
		hand->items[i].map = map;
		hand->items[i].key = kept;
		hand->items[i].key_size = sizeof(key);
		hand->is_changed[i] = false;
		hand->count++;
	}
	return i;
}

/* List the rows that are read. */
static void list_rows(struct hand *hand)
{
	hand->count = 0;
	for (uint32_t i = 0; i < hand->list->count; i++) {
		const struct txn_step *step = &hand->list->steps[i];

		if (step->kind <= TXN_STOCK)
			place_of(hand, hand->numbers, step->key, &step->key);
		else if (step->kind == TXN_READ_B || step->kind == TXN_INSERT ||
			 step->kind == TXN_DELETE)
			place_of(hand, hand->bytes, step->key, &step->key);
		if (step->kind == TXN_MOVE)
			place_of(hand, hand->numbers, (uint64_t)step->amount,
				 (const uint64_t *)&step->amount);
	}
}

static int take_rows(struct hand *hand, struct reef_txn *txn)
{
	int rc = reef_txn_take_many(txn, hand->items, hand->count);

	for (uint32_t i = 0; i < hand->count && !rc; i++) {
		hand->is_changed[i] = false;
		if (hand->items[i].map != hand->numbers)
			continue;
		if (hand->items[i].status || hand->items[i].value.size != 8)
			return -EILSEQ;
		memcpy(&hand->rows[i], hand->items[i].value.bytes, 8);
	}
	return rc;
}

static int ours_get_number(void *context, uint64_t key, int64_t *number)
{
	struct hand *hand = context;

	*number = hand->rows[place_of(hand, hand->numbers, key, NULL)];
	return 0;
}

static int ours_put_number(void *context, uint64_t key, int64_t number)
{
	struct hand *hand = context;
	const uint32_t i = place_of(hand, hand->numbers, key, NULL);

	hand->rows[i] = number;
	hand->is_changed[i] = true;
	return 0;
}

static int ours_get_bytes(void *context, uint64_t key, uint8_t *bytes)
{
	struct hand *hand = context;
	const struct reef_txn_item *item =
		&hand->items[place_of(hand, hand->bytes, key, NULL)];

	if (item->status)
		return item->status;
	if (item->value.size > TXN_BYTES_MAX)
		return -EILSEQ;
	memcpy(bytes, item->value.bytes, item->value.size);
	return 0;
}

/* Within the body: the transaction under way. */
struct body {
	struct hand *hand;
	struct reef_txn *txn;
};

static int body_get_number(void *context, uint64_t key, int64_t *number)
{
	return ours_get_number(((struct body *)context)->hand, key, number);
}

static int body_put_number(void *context, uint64_t key, int64_t number)
{
	return ours_put_number(((struct body *)context)->hand, key, number);
}

static int body_get_bytes(void *context, uint64_t key, uint8_t *bytes)
{
	return ours_get_bytes(((struct body *)context)->hand, key, bytes);
}

static int body_put_bytes(void *context, uint64_t key, const uint8_t *bytes,
			  uint32_t size)
{
	struct body *body = context;

	return reef_txn_put(body->txn, body->hand->bytes, &key, sizeof(key),
			    bytes, size, 0);
}

static int body_remove_bytes(void *context, uint64_t key)
{
	struct body *body = context;

	return reef_txn_delete(body->txn, body->hand->bytes, &key, sizeof(key));
}

static const struct txn_ops body_ops = {
	.get_number = body_get_number,
	.put_number = body_put_number,
	.get_bytes = body_get_bytes,
	.put_bytes = body_put_bytes,
	.remove_bytes = body_remove_bytes,
};

static int run_steps(struct reef_txn *txn, void *context)
{
	struct hand *hand = context;
	struct body body = {.hand = hand, .txn = txn};
	int rc = take_rows(hand, txn);

	hand->attempts++;
	rc = rc ? rc : txn_do(&body_ops, &body, hand->list);
	for (uint32_t i = 0; i < hand->count && !rc; i++)
		if (hand->is_changed[i])
			rc = reef_txn_put(txn, hand->numbers,
					  hand->items[i].key, 8, &hand->rows[i],
					  8, 0);
	return rc;
}

static int ours_run(void *context, const struct txn_list *list)
{
	struct hand *hand = context;
	const struct reef_txn_options options = {
		.flags = list->only_reads ? REEF_TXN_READ_ONLY : 0,
	};
	int rc;

	hand->list = list;
	list_rows(hand);
	rc = reef_txn_run(hand->space, run_steps, hand, &options);
	hand->done++;
	return rc == TXN_REFUSED ? 0 : rc;
}

/* --- opening --- */

static int hand_open(struct hand *hand)
{
	const struct reef_space_options options = {.flags = REEF_SPACE_CREATE};
	const struct reef_options reef_options = {.fabrics = ours.fabric};
	int rc = reef_open("local", &reef_options, &hand->reef);

	rc = rc ? rc
		: reef_space_open(hand->reef, "bench", &options, &hand->space);
	rc = rc ? rc
		: reef_map_open(hand->space, "numbers", NULL, &hand->numbers);
	return rc ? rc
		  : reef_map_open(hand->space, "bytes", NULL, &hand->bytes);
}

static void hand_free(struct hand *hand)
{
	for (uint32_t i = 0; i < 2 * TXN_STEPS_MAX; i++)
		reef_map_value_free(&hand->items[i].value);
}

static void hand_close(struct hand *hand)
{
	hand_free(hand);
	reef_map_close(hand->numbers);
	reef_map_close(hand->bytes);
	reef_space_close(hand->space);
	reef_close(hand->reef);
}

/* Rows that are put together: of one map. */
struct loading {
	struct reef_map *map;
	struct reef_map_item items[LOAD];
	uint64_t keys[LOAD];
	uint8_t values[LOAD][TXN_BYTES_MAX];
	uint32_t count;
};

static int load_flush(struct loading *loading)
{
	int rc = loading->count
			 ? reef_map_put_many(loading->map, loading->items,
					     loading->count)
			 : 0;

	for (uint32_t i = 0; i < loading->count && !rc; i++)
		rc = loading->items[i].status;
	loading->count = 0;
	return rc;
}

static int load_add(void *context, uint64_t key, int64_t number, uint32_t size)
{
	struct loading *loading = context;
	struct reef_map *map = size ? ours.hand.bytes : ours.hand.numbers;
	uint32_t i;
	int rc = 0;

	if (loading->map != map || loading->count == LOAD)
		rc = load_flush(loading);
	loading->map = map;
	i = loading->count++;
	loading->keys[i] = key;
	txn_fill(key, loading->values[i]);
	if (!size)
		memcpy(loading->values[i], &number, 8);
	loading->items[i] = (struct reef_map_item){
		.key = &loading->keys[i],
		.key_size = 8,
		.value.bytes = loading->values[i],
		.value.size = size ? size : 8,
	};
	return rc;
}

static int load_table(enum txn_table table)
{
	static struct loading loading;
	int rc;

	if (ours.is_loaded[table])
		return 0;
	rc = txn_load(table, ours.hand.state.units, &loading, load_add);
	rc = rc ? rc : load_flush(&loading);
	ours.is_loaded[table] = !rc;
	return rc;
}

/* --- the second process --- */

static void run_order(struct hand *hand, const struct order *order,
		      struct outcome *outcome)
{
	outcome->rc = hand->reef ? 0 : hand_open(hand);
	hand->attempts = hand->done = 0;
	if (!outcome->rc)
		outcome->rc = txn_loop(&txn_works[order->work], &hand->state,
				       order->seconds, CLOCK_MONOTONIC,
				       ours_run, hand, &outcome->rate);
	outcome->attempts = hand->attempts;
	outcome->done = hand->done;
}

static void second_main(int in, int out)
{
	struct hand *hand = &ours.hand;
	struct outcome outcome;
	struct order order;

	driver_pin(1);
	hand->state.random = 77;
	hand->state.serial = UINT64_C(1) << 40;
	while (read(in, &order, sizeof(order)) == sizeof(order)) {
		run_order(hand, &order, &outcome);
		if (write(out, &outcome, sizeof(outcome)) != sizeof(outcome))
			break;
	}
	if (hand->reef)
		hand_close(hand);
	_exit(0);
}

/* Fork it before this process has opened anything. */
static int second_start(void)
{
	int to[2], from[2];
	pid_t pid;

	if (pipe(to) || pipe(from))
		return -errno;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		close(to[1]);
		close(from[0]);
		second_main(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	ours.to_second = to[1];
	ours.from_second = from[0];
	return 0;
}

static int second_begin(const struct order *order)
{
	return write(ours.to_second, order, sizeof(*order)) == sizeof(*order)
		       ? 0
		       : -EPIPE;
}

static int second_end(struct outcome *outcome)
{
	if (read(ours.from_second, outcome, sizeof(*outcome)) !=
	    sizeof(*outcome))
		return -EPIPE;
	return outcome->rc;
}

/* Each alone, then both at once. *times: how many times one's rate both reach
 * together. */
static int run_turn(const struct order *order, double *times, double *kept)
{
	struct outcome one, other, both, second;
	int rc;

	run_order(&ours.hand, order, &one);
	rc = one.rc ? one.rc : second_begin(order);
	rc = rc ? rc : second_end(&other);
	rc = rc ? rc : second_begin(order);
	if (rc)
		return rc;
	run_order(&ours.hand, order, &both);
	rc = second_end(&second);
	if (rc || both.rc)
		return rc ? rc : both.rc;
	*times = 2 * (both.rate + second.rate) / (one.rate + other.rate);
	*kept = 100 * (double)(both.done + second.done) /
		(double)(both.attempts + second.attempts);
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int run_two(const struct txn_work *work, double seconds, double *figure)
{
	const struct order order = {
		.work = (uint32_t)(work - txn_works),
		.seconds = seconds / (3 * TURNS),
	};
	double times[TURNS], kept[TURNS];
	int rc = 0;

	for (uint32_t i = 0; i < TURNS && !rc; i++)
		rc = run_turn(&order, &times[i], &kept[i]);
	if (rc)
		return rc;
	qsort(times, TURNS, sizeof(times[0]), by_value);
	qsort(kept, TURNS, sizeof(kept[0]), by_value);
	*figure = work->commits ? kept[TURNS / 2] : times[TURNS / 2];
	return 0;
}

/* --- fibers --- */

static int fiber_main(void *arg)
{
	struct hand *hand = malloc(sizeof(*hand));
	struct txn_list list;
	int rc = hand ? 0 : -ENOMEM;

	(void)arg;
	if (!rc)
		*hand = ours.hand;
	ours.hand.state.random += UINT64_C(0x9e3779b97f4a7c15);
	ours.hand.state.serial += UINT64_C(1) << 24;
	while (!rc && workload_seconds(CLOCK_MONOTONIC) < ours.until) {
		txn_draw(ours.work, &hand->state, &list);
		rc = ours_run(hand, &list);
		ours.done += !rc;
	}
	if (hand)
		hand_free(hand);
	free(hand);
	ours.rc = ours.rc ? ours.rc : rc;
	return 0;
}

static int load_fiber(void *arg)
{
	int rc = ours.hand.reef ? 0 : hand_open(&ours.hand);

	ours.rc = rc ? rc : load_table(*(const enum txn_table *)arg);
	reef_sched_stop(ours.sched);
	return 0;
}

static int run_fibers(const struct txn_work *work, double seconds, double *rate)
{
	enum txn_table table = work->table;
	double begin;
	int rc = 0;

	if (!ours.is_loaded[table]) {
		rc = reef_fiber_spawn(ours.sched, load_fiber, &table, NULL);
		rc = rc ? rc : reef_sched_run(ours.sched);
		rc = rc ? rc : ours.rc;
	}
	ours.work = work;
	ours.done = 0;
	ours.rc = 0;
	begin = workload_seconds(CLOCK_MONOTONIC);
	ours.until = begin + seconds;
	for (uint32_t i = 0; !rc && i < ours.fibers; i++)
		rc = reef_fiber_spawn(ours.sched, fiber_main, NULL, NULL);
	rc = rc ? rc : reef_sched_run(ours.sched);
	rc = rc ? rc : ours.rc;
	*rate = (double)ours.done / (workload_seconds(CLOCK_MONOTONIC) - begin);
	return rc;
}

/* --- the driver --- */

static int open_pool(struct driver_pair *pair, uint32_t fibers)
{
	uint64_t units = pair->options.size / TXN_UNIT;
	const bool tcp = strcmp(pair->options.fabric, "tcp") == 0;
	int rc;

	ours.fabric = pair->options.fabric;
	ours.fibers = fibers;
	ours.hand.state = (struct txn_state){.units = units, .random = 1};
	rc = bench_pool_start(pair, ours.fabric, CAPACITY(units), EXTENT,
			      false);
	if (rc)
		return rc;
	if (tcp)
		rc = reef_sched_create(NULL, &ours.sched);
	else
		rc = second_start();
	if (!rc && !tcp)
		rc = hand_open(&ours.hand);
	if (rc)
		return driver_fail(pair, rc, "%s", reef_error_text(rc));
	pair->target_rests = true;
	snprintf(pair->description, sizeof(pair->description),
		 "txn.h over %s, on a pool in another process, %llu customers",
		 ours.fabric, (unsigned long long)units);
	return 0;
}

static int txn_reef_open(struct driver_pair *pair)
{
	return open_pool(pair, TXN_FIBERS);
}

static int txn_onefiber_open(struct driver_pair *pair)
{
	return open_pool(pair, 1);
}

static int run_work(const char *name, double seconds, double *figure)
{
	const struct txn_work *work = txn_work_find(name);
	int rc;

	if (!work)
		return -ENOSYS;
	if (ours.sched)
		return run_fibers(work, seconds, figure);
	rc = load_table(work->table);
	if (rc)
		return rc;
	if (work->processes)
		return run_two(work, seconds, figure);
	return txn_loop(work, &ours.hand.state, seconds,
			CLOCK_THREAD_CPUTIME_ID, ours_run, &ours.hand, figure);
}

static int txn_reef_run(struct driver_pair *pair, const char *name,
			double seconds, double *figure)
{
	int rc = run_work(name, seconds, figure);

	return rc && rc != -ENOSYS && rc != -EILSEQ
		       ? driver_fail(pair, rc, "%s", reef_error_text(rc))
		       : rc;
}

static void txn_reef_close(struct driver_pair *pair)
{
	(void)pair;
	if (!ours.sched) {
		close(ours.to_second);
		close(ours.from_second);
		hand_close(&ours.hand);
	}
	reef_sched_destroy(ours.sched);
}

const struct driver txn_reef_driver = {
	.name = "reef",
	.open = txn_reef_open,
	.run = txn_reef_run,
	.close = txn_reef_close,
};

const struct driver txn_onefiber_driver = {
	.name = "onefiber",
	.open = txn_onefiber_open,
	.run = txn_reef_run,
	.close = txn_reef_close,
};
