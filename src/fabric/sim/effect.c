/* effect.c - flights: when the parts of a batch take effect, and what then.
 *
 * A batch becomes a flight with a copy of its ops (cargo) and a list of steps,
 * each with its instant, sorted: the words of a READ or WRITE in a few pieces,
 * the two halves of an atomic, a FLUSH, a SEND, and last the completion. One
 * timer walks through them.
 *
 *               last step                 reef_batch_ended
 *   FLYING ------------------> DONE step ------------------> freed
 *     |  ^ \
 *     |  |  cut before the first step, or before DONE: stalled; mended: goes on
 *     |  +---
 *     | connection lost (sim_flight_stray)
 *     v                 next link, fence, node gone (sim_flight_cancel)
 *   STRAY: a prefix of the steps, late -----------------------> no steps left
 *     the batch waits for its side's notice (sim_flights_tell) -> freed
 *
 * (1) Steps are in an order that F3 allows; any prefix of it then is as well.
 * (2) The target checks ops in the order of the batch, each before the first
 *     step of it or of any later op: what follows a failed op has not begun,
 *     though what was before it may still be under way.
 * (3) A word between the halves of an atomic is held: another atomic on it
 *     waits until the second half, whose instant never moves. READ, WRITE and
 *     the processor do not look at holds (F6).
 * (4) Local memory is touched only while the batch has not been told. Bytes to
 *     be written are taken from it at once, or when they are needed, or at the
 *     latest when the batch is told.
 * (5) A flight is freed when it has neither steps nor a batch. */
#include "base/checksum.h"
#include "fabric/sim/world.h"

#include <stdlib.h>
#include <string.h>

struct cargo {
	uint8_t kind;
	uint8_t pieces;
	bool ordered;
	bool captured;
	bool open; /* between the halves */
	bool kept; /* while straying: its first half will happen */
	uint32_t length;
	uint64_t key, offset, operand, compare, result;
	uint64_t salt;	/* which word is in which piece */
	uint8_t *local; /* the caller's */
	uint8_t *bytes; /* ours, once captured */
	struct hold hold;
};

enum step_kind { STEP_PIECE, STEP_FIRST_HALF, STEP_SECOND_HALF, STEP_DONE };

struct step {
	uint64_t at_ns;
	uint32_t serial; /* ties are in the order of planning */
	uint16_t op;
	uint8_t kind;
	uint8_t piece;
};

struct flight {
	struct reef_timer timer;
	struct flight *next, **at; /* of the connection */
	struct conn *conn;
	struct reef_batch *batch; /* NULL: told */
	uint8_t from;		  /* side that posted */
	bool begun, stray, stalled;
	uint32_t ops_count, ops_checked;
	uint32_t steps_count, step_next;
	uint32_t failed;	     /* op; ops_count: none */
	int status;		     /* of the failed op */
	uint64_t wait_ns, waited_ns; /* for room at the receiver */
	struct cargo *cargo;
	struct step *steps;
};

static struct side *target(const struct flight *flight)
{
	return &flight->conn->sides[1 - flight->from];
}

/* --- planning --- */

/* F3: what may not begin before everything earlier has ended. */
static bool waits_for_all(const struct reef_sim *sim, const struct cargo *cargo)
{
	if (cargo->kind == REEF_READ)
		return !sim_mutated(sim, REEF_MUTANT_F3B_EARLY_READ);
	if (cargo->ordered)
		return !sim_mutated(sim, REEF_MUTANT_F3C_UNORDERED);
	return cargo->kind == REEF_FLUSH;
}

/* F3: what nothing later may overtake. */
static bool holds_back(const struct reef_sim *sim, const struct cargo *cargo)
{
	if (cargo->kind == REEF_WRITE)
		return !sim_mutated(sim, REEF_MUTANT_F3A_OVERTAKE);
	return cargo->kind == REEF_FLUSH || cargo->kind == REEF_SEND;
}

/* How far apart things are: most batches are quick, some take their time. */
static uint64_t pick_window(struct reef_sim *sim)
{
	uint64_t max_ns = sim->options.delay_max_ns;

	switch (reef_random_below(&sim->net, 4)) {
	case 0:
		return max_ns + 1;
	case 1:
		return max_ns / 8 + 1;
	default:
		return max_ns / 64 + 2;
	}
}

static void add_step(struct flight *flight, uint16_t op, enum step_kind kind,
		     uint8_t piece, uint64_t at_ns)
{
	flight->steps[flight->steps_count] = (struct step){
		.at_ns = at_ns,
		.serial = flight->steps_count,
		.op = op,
		.kind = kind,
		.piece = piece,
	};
	flight->steps_count++;
}

/* Plan one op from start_ns on; returns when it has ended. */
static uint64_t plan_op(struct reef_sim *sim, struct flight *flight,
			uint16_t index, uint64_t start_ns, uint64_t window_ns)
{
	struct cargo *cargo = &flight->cargo[index];
	uint64_t at_ns, end_ns = start_ns;
	uint8_t piece;

	switch (cargo->kind) {
	case REEF_CAS:
	case REEF_FAA:
		add_step(flight, index, STEP_FIRST_HALF, 0, start_ns);
		end_ns += 1 + reef_random_below(&sim->net, window_ns);
		add_step(flight, index, STEP_SECOND_HALF, 0, end_ns);
		break;
	default:
		for (piece = 0; piece < cargo->pieces; piece++) {
			at_ns = start_ns;
			if (cargo->pieces > 1)
				at_ns +=
					reef_random_below(&sim->net, window_ns);
			add_step(flight, index, STEP_PIECE, piece, at_ns);
			if (at_ns > end_ns)
				end_ns = at_ns;
		}
	}
	return end_ns;
}

static int compare_steps(const void *a, const void *b)
{
	const struct step *x = a, *y = b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x->serial < y->serial ? -1 : x->serial > y->serial;
}

static void sort_steps(struct flight *flight)
{
	qsort(flight->steps + flight->step_next,
	      flight->steps_count - flight->step_next, sizeof(struct step),
	      compare_steps);
}

/* REEF_MUTANT_F4_EARLY_DONE needs a batch that nobody wants an answer of. */
static bool is_done_early(const struct reef_sim *sim,
			  const struct flight *flight)
{
	uint32_t i;

	if (!sim_mutated(sim, REEF_MUTANT_F4_EARLY_DONE))
		return false;
	for (i = 0; i < flight->ops_count; i++)
		if (flight->cargo[i].kind != REEF_WRITE &&
		    flight->cargo[i].kind != REEF_SEND)
			return false;
	return true;
}

static void plan(struct reef_sim *sim, struct flight *flight)
{
	uint64_t now_ns = sim_now(sim), window_ns = pick_window(sim);
	uint64_t all_ns = now_ns + sim_delay(sim), hard_ns = all_ns;
	uint64_t start_ns, end_ns;
	uint32_t i;

	for (i = 0; i < flight->ops_count; i++) {
		struct cargo *cargo = &flight->cargo[i];

		start_ns = hard_ns;
		if (waits_for_all(sim, cargo)) {
			start_ns = all_ns;
			if (i && cargo->ordered)
				start_ns += sim_delay(sim) + sim_delay(sim);
		}
		if (reef_random_chance(&sim->net, sim->options.slow_ppm,
				       1000000))
			start_ns += 100 * sim_delay(sim);
		start_ns += 1 + reef_random_below(&sim->net, window_ns);
		end_ns = plan_op(sim, flight, (uint16_t)i, start_ns, window_ns);
		if (end_ns > all_ns)
			all_ns = end_ns;
		if (holds_back(sim, cargo) && end_ns > hard_ns)
			hard_ns = end_ns;
	}
	all_ns += sim_delay(sim);
	if (is_done_early(sim, flight))
		all_ns = now_ns + 1;
	add_step(flight, 0, STEP_DONE, 0, all_ns);
	sort_steps(flight);
}

/* --- pieces --- */

static uint64_t word_count(const struct cargo *cargo)
{
	if (!cargo->length)
		return 0;
	return (cargo->offset + cargo->length - 1) / 8 - cargo->offset / 8 + 1;
}

static uint8_t pick_pieces(struct reef_sim *sim, const struct cargo *cargo)
{
	bool torn = sim_mutated(sim, REEF_MUTANT_F2_TORN_WORD);

	if (cargo->kind != REEF_READ && cargo->kind != REEF_WRITE)
		return 1;
	if (word_count(cargo) < 2)
		return torn ? 2 : 1;
	return (uint8_t)reef_random_between(&sim->net, torn ? 2 : 1,
					    PIECES_MAX);
}

/* Long ops are torn in runs of words: at any word, but not at every one. */
static uint8_t piece_of(const struct cargo *cargo, uint64_t word)
{
	uint64_t run = word_count(cargo) / 1024 + 1;
	uint64_t x = (word + cargo->salt % run) / run + cargo->salt;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return (uint8_t)((x >> 33) % cargo->pieces);
}

static uint8_t *region_bytes(const struct sim_region *region)
{
	return region->kept ? region->kept : region->base.memory->base;
}

/* Move the bytes [low, high) of a region, all of one word. */
static void move(struct reef_sim *sim, const struct sim_region *region,
		 const struct cargo *cargo, uint64_t low, uint64_t high)
{
	uint64_t size = region->base.memory->size, value = 0;
	uint8_t *remote = region_bytes(region) + low, *local;

	/* Only REEF_MUTANT_F8_BOUNDS gets here with more than there is. */
	if (high > size)
		high = size;
	if (low >= high)
		return;
	if (cargo->kind == REEF_READ) {
		local = cargo->local + (low - cargo->offset);
		memcpy(local, remote, high - low);
	} else {
		local = cargo->captured ? cargo->bytes : cargo->local;
		memcpy(remote, local + (low - cargo->offset), high - low);
	}
	memcpy(&value, remote, high - low);
	sim_mix(sim, value);
}

static void move_piece(struct reef_sim *sim, const struct sim_region *region,
		       const struct cargo *cargo, uint8_t piece)
{
	bool torn = sim_mutated(sim, REEF_MUTANT_F2_TORN_WORD);
	uint64_t end = cargo->offset + cargo->length;
	uint64_t low, high, middle;
	uint8_t mine;

	for (low = cargo->offset; low < end; low = high) {
		high = (low | 7) + 1;
		if (high > end)
			high = end;
		mine = piece_of(cargo, low / 8);
		middle = torn ? (low + high) / 2 : high;
		if (mine == piece)
			move(sim, region, cargo, low, middle);
		if (torn && (mine + 1) % cargo->pieces == piece)
			move(sim, region, cargo, middle, high);
	}
}

/* --- atomics --- */

static struct hold **hold_bucket(struct reef_sim *sim, uint64_t offset)
{
	return &sim->holds[(offset / 8) % HOLD_BUCKETS];
}

/* When the word is free again; 0: it is. */
static uint64_t held_until(struct reef_sim *sim,
			   const struct reef_memory *memory, uint64_t offset)
{
	const struct hold *hold = *hold_bucket(sim, offset);

	if (sim_mutated(sim, REEF_MUTANT_F6_SPLIT))
		return 0;
	while (hold && (hold->memory != memory || hold->offset != offset))
		hold = hold->next;
	return hold ? hold->until_ns : 0;
}

static void hold(struct reef_sim *sim, struct cargo *cargo,
		 const struct reef_memory *memory, uint64_t until_ns)
{
	struct hold **bucket = hold_bucket(sim, cargo->offset);

	cargo->open = true;
	cargo->hold = (struct hold){
		.next = *bucket,
		.memory = memory,
		.offset = cargo->offset,
		.until_ns = until_ns,
	};
	*bucket = &cargo->hold;
}

static void let_go(struct reef_sim *sim, struct cargo *cargo)
{
	struct hold **at = hold_bucket(sim, cargo->offset);

	while (*at != &cargo->hold)
		at = &(*at)->next;
	*at = cargo->hold.next;
	cargo->open = false;
}

static bool first_half(struct cargo *cargo, const struct sim_region *region)
{
	memcpy(&cargo->result, region_bytes(region) + cargo->offset, 8);
	return cargo->kind == REEF_FAA || cargo->result == cargo->compare;
}

static void second_half(struct reef_sim *sim, struct cargo *cargo,
			const struct sim_region *region)
{
	uint64_t value = cargo->operand;

	if (cargo->kind == REEF_FAA) {
		value += cargo->result;
		if (sim_mutated(sim, REEF_MUTANT_F1_TWICE) &&
		    reef_random_chance(&sim->net, 1, 8))
			value += cargo->operand;
	}
	memcpy(region_bytes(region) + cargo->offset, &value, 8);
	sim_mix(sim, value);
}

/* --- messages --- */

static int deliver(struct reef_sim *sim, struct side *side,
		   const struct cargo *cargo)
{
	const uint8_t *bytes = cargo->captured ? cargo->bytes : cargo->local;
	struct parcel *parcel;

	if (!side->link)
		return 0; /* a stray, and nobody is there any more */
	if (side->pipe_count >= PIPE_MAX)
		return -EAGAIN;
	if (sim_mutated(sim, REEF_MUTANT_F1_LOST_SEND) &&
	    reef_random_chance(&sim->net, 1, 8))
		return 0;
	parcel = malloc(sizeof(*parcel) + cargo->length);
	if (!parcel)
		return -EAGAIN;
	parcel->next = NULL;
	parcel->length = cargo->length;
	if (cargo->length)
		memcpy(parcel->bytes, bytes, cargo->length);
	sim_mix(sim, reef_hash(parcel->bytes, cargo->length, 0));
	*side->pipe_tail = parcel;
	side->pipe_tail = &parcel->next;
	side->pipe_count++;
	sim_pipe_filled(side->link);
	return 0;
}

/* --- the walk --- */

static void unlink_and_free(struct flight *flight)
{
	struct conn *conn = flight->conn;

	reef_timer_cancel(conn->sim->sched, &flight->timer);
	*flight->at = flight->next;
	if (flight->next)
		flight->next->at = flight->at;
	else
		conn->flights_tail = flight->at;
	free(flight);
	sim_conn_unref(conn);
}

/* Set the timer for the next step; (5). */
static void go_on(struct flight *flight)
{
	if (flight->step_next < flight->steps_count)
		sim_timer(flight->conn->sim, &flight->timer,
			  flight->steps[flight->step_next].at_ns);
	else if (!flight->batch)
		unlink_and_free(flight);
}

/* All later by that much, except second halves that are due (3). */
static void shift(struct flight *flight, uint64_t by_ns)
{
	uint32_t i;

	for (i = flight->step_next; i < flight->steps_count; i++) {
		struct step *step = &flight->steps[i];

		if (step->kind != STEP_SECOND_HALF ||
		    !flight->cargo[step->op].open)
			step->at_ns += by_ns;
	}
	sort_steps(flight);
}

static int check(struct reef_sim *sim, const struct sim_region *region,
		 const struct cargo *cargo)
{
	uint64_t size;

	if (cargo->kind == REEF_SEND)
		return 0;
	if (!region || region->withdrawing)
		return -REEF_EKEY;
	size = region->base.memory->size;
	if (sim_mutated(sim, REEF_MUTANT_F8_BOUNDS))
		size++;
	if (cargo->offset > size || cargo->length > size - cargo->offset)
		return -ERANGE;
	if (cargo->kind == REEF_FLUSH && !region->base.memory->durable)
		return -REEF_ENOTDURABLE;
	return 0;
}

/* Drop the steps of op `index`, and unless a mutant goes on of all after it. */
static void end_at(struct flight *flight, uint32_t index)
{
	bool go = sim_mutated(flight->conn->sim, REEF_MUTANT_F3_GO_ON);
	uint32_t i, kept = flight->step_next;

	for (i = kept; i < flight->steps_count; i++) {
		const struct step *step = &flight->steps[i];

		if (step->kind == STEP_DONE || step->op < index ||
		    (go && step->op > index))
			flight->steps[kept++] = *step;
	}
	flight->steps_count = kept;
}

/* (2). False: op `index` is not to be done. */
static bool check_until(struct flight *flight, uint32_t index)
{
	struct reef_sim *sim = flight->conn->sim;
	const struct cargo *cargo;
	int rc;

	while (flight->ops_checked <= index) {
		cargo = &flight->cargo[flight->ops_checked];
		rc = check(sim,
			   sim_region_find(target(flight)->fabric, cargo->key),
			   cargo);
		if (rc && flight->failed == flight->ops_count) {
			flight->failed = flight->ops_checked;
			flight->status = rc;
		}
		flight->ops_checked++;
		if (rc) {
			end_at(flight, flight->ops_checked - 1);
			return false;
		}
	}
	return true;
}

static void start_atomic(struct flight *flight, struct cargo *cargo,
			 const struct sim_region *region)
{
	uint32_t i = flight->step_next + 1, op = flight->steps[i - 1].op;

	while (flight->steps[i].op != op ||
	       flight->steps[i].kind != STEP_SECOND_HALF)
		i++;
	if (first_half(cargo, region)) {
		hold(flight->conn->sim, cargo, region->base.memory,
		     flight->steps[i].at_ns);
		return;
	}
	/* A CAS that does not match writes nothing. */
	flight->steps_count--;
	memmove(flight->steps + i, flight->steps + i + 1,
		(flight->steps_count - i) * sizeof(struct step));
}

static int do_piece(struct flight *flight, const struct step *step,
		    struct sim_region *region)
{
	struct cargo *cargo = &flight->cargo[step->op];
	struct reef_sim *sim = flight->conn->sim;

	switch (cargo->kind) {
	case REEF_SEND:
		return deliver(sim, target(flight), cargo);
	case REEF_FLUSH:
		sim_region_flush(region, cargo->offset, cargo->length);
		return 0;
	case REEF_READ:
		if (!flight->batch)
			return 0; /* (4) */
		break;
	}
	move_piece(sim, region, cargo, step->piece);
	return 0;
}

/* A receiver without room: look again later, and in the end give it up. */
static uint64_t wait_for_room(struct flight *flight)
{
	struct conn *conn = flight->conn;

	if (!flight->wait_ns)
		flight->wait_ns = conn->sim->options.delay_max_ns + 1;
	flight->waited_ns += flight->wait_ns;
	if (flight->waited_ns > sim_silence(conn, flight->from))
		return NEVER;
	return flight->wait_ns *= 2;
}

/* Do a step.  0, or by how much it and all after it are put off; NEVER: the
 * receiver counts as lost. */
static uint64_t do_step(struct flight *flight, const struct step *step)
{
	struct cargo *cargo = &flight->cargo[step->op];
	struct reef_sim *sim = flight->conn->sim;
	struct side *side = target(flight);
	struct sim_region *region = NULL;
	uint64_t until_ns;

	if (cargo->kind != REEF_SEND)
		region = sim_region_find(side->fabric, cargo->key);
	if (step->kind == STEP_FIRST_HALF && region) {
		until_ns = held_until(sim, region->base.memory, cargo->offset);
		if (until_ns)
			return until_ns - sim_now(sim) + 1 +
			       reef_random_below(&sim->net, 64);
	}
	if (cargo->kind != REEF_SEND && !region) {
		/* Gone since it was checked: only strays get here. */
		if (step->kind == STEP_SECOND_HALF && cargo->open)
			let_go(sim, cargo);
		return 0;
	}
	sim_trace(sim,
		  step->kind == STEP_SECOND_HALF ? TRACE_ATOMIC_LANDS
						 : (enum trace_kind)cargo->kind,
		  side->host, cargo->key ^ cargo->offset,
		  cargo->length + ((uint64_t)step->piece << 32));
	if (step->kind == STEP_FIRST_HALF) {
		start_atomic(flight, cargo, region);
	} else if (step->kind == STEP_SECOND_HALF) {
		let_go(sim, cargo);
		second_half(sim, cargo, region);
	} else if (do_piece(flight, step, region)) {
		return wait_for_room(flight);
	}
	return 0;
}

/* Capture what is still the caller's (4). */
static void capture(struct flight *flight)
{
	uint32_t i;

	for (i = 0; i < flight->ops_count; i++) {
		struct cargo *cargo = &flight->cargo[i];

		if (cargo->kind != REEF_WRITE && cargo->kind != REEF_SEND)
			continue;
		if (!cargo->captured && cargo->length)
			memcpy(cargo->bytes, cargo->local, cargo->length);
		cargo->captured = true;
	}
}

/* Give the batch back, without a word. */
static struct reef_batch *let_batch_go(struct flight *flight)
{
	struct sim_link *link = flight->conn->sides[flight->from].link;
	struct reef_batch *batch = flight->batch;
	struct sim_remote *remote;
	uint32_t i;

	if (flight->step_next < flight->steps_count)
		capture(flight);
	flight->batch = NULL;
	link->depth--;
	for (i = 0; i < batch->count; i++) {
		if (!batch->ops[i].remote || batch->ops[i].kind == REEF_SEND)
			continue;
		remote = reef_container(batch->ops[i].remote, struct sim_remote,
					base);
		if (!--remote->under_way && remote->release)
			sim_remote_idle(remote);
	}
	return batch;
}

static void tell(struct flight *flight, int status)
{
	struct conn *conn = flight->conn;
	struct reef_batch *batch = let_batch_go(flight);
	uint32_t i;

	batch->status = 0;
	for (i = 0; i < batch->count; i++) {
		batch->ops[i].status = 0;
		batch->ops[i].result = flight->cargo[i].result;
	}
	if (status)
		reef_batch_fail_all(batch, status);
	else if (flight->failed < flight->ops_count)
		reef_batch_fail(batch, flight->failed, flight->status);
	sim_trace(conn->sim, TRACE_DONE, conn->sides[flight->from].host,
		  (uint64_t)batch->status, batch->count);
	reef_batch_ended(batch->queue, batch);
	sim_kick(reef_container(batch->queue, struct sim_queue, base));
}

static bool is_cut(const struct flight *flight)
{
	const struct conn *conn = flight->conn;

	return sim_is_cut(conn->sim, conn->sides[0].host, conn->sides[1].host);
}

static void fire(struct reef_timer *timer)
{
	struct flight *flight = reef_container(timer, struct flight, timer);
	struct conn *conn = flight->conn;
	uint64_t now_ns = sim_now(conn->sim), put_off_ns;
	struct step step;

	while (flight->step_next < flight->steps_count) {
		step = flight->steps[flight->step_next];
		if (step.at_ns > now_ns)
			break;
		if (!flight->stray &&
		    (!flight->begun || step.kind == STEP_DONE) &&
		    is_cut(flight)) {
			flight->stalled = true;
			return;
		}
		flight->begun = true;
		if (step.kind == STEP_DONE) {
			flight->step_next++;
			tell(flight, 0);
			continue;
		}
		if (!check_until(flight, step.op))
			continue;
		put_off_ns = do_step(flight, &step);
		if (put_off_ns == NEVER) {
			/* The flight may be gone after either. */
			if (flight->stray)
				sim_flight_cancel(flight);
			else
				sim_conn_lose(conn, sim_soon(conn->sim),
					      sim_soon(conn->sim),
					      -REEF_ENOLINK);
			return;
		}
		if (put_off_ns)
			shift(flight, put_off_ns);
		else
			flight->step_next++;
	}
	go_on(flight);
}

/* --- from outside --- */

static void load(struct cargo *cargo, const struct reef_op *op)
{
	*cargo = (struct cargo){
		.kind = op->kind,
		.ordered = op->flags & REEF_ORDERED,
		.length = op->length,
		.key = op->remote ? op->remote->key : 0,
		.offset = op->offset,
		.operand = op->operand,
		.compare = op->compare,
		.local = op->local,
	};
	if (op->kind == REEF_CAS || op->kind == REEF_FAA)
		cargo->length = 8;
}

static size_t bytes_of(const struct reef_op *op)
{
	return op->kind == REEF_WRITE || op->kind == REEF_SEND ? op->length : 0;
}

static struct flight *make(const struct reef_batch *batch)
{
	struct flight *flight;
	uint32_t i, steps = batch->count * PIECES_MAX + 1;
	size_t size = 0;
	uint8_t *at;

	for (i = 0; i < batch->count; i++)
		size += bytes_of(&batch->ops[i]);
	at = malloc(sizeof(*flight) + steps * sizeof(struct step) +
		    batch->count * sizeof(struct cargo) + size);
	if (!at)
		return NULL;
	flight = (struct flight *)at;
	*flight = (struct flight){
		.ops_count = batch->count,
		.failed = batch->count,
		.steps = (struct step *)(at + sizeof(*flight)),
	};
	flight->cargo = (struct cargo *)(flight->steps + steps);
	return flight;
}

static void take_over(struct reef_sim *sim, struct flight *flight,
		      struct reef_batch *batch)
{
	uint8_t *bytes = (uint8_t *)(flight->cargo + batch->count);
	bool at_once = reef_random_chance(&sim->net, 1, 2);
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct reef_op *op = &batch->ops[i];
		struct cargo *cargo = &flight->cargo[i];

		load(cargo, op);
		cargo->salt = reef_random_next(&sim->net);
		cargo->pieces = pick_pieces(sim, cargo);
		cargo->bytes = bytes;
		bytes += bytes_of(op);
		if (op->remote && op->kind != REEF_SEND)
			reef_container(op->remote, struct sim_remote, base)
				->under_way++;
	}
	if (at_once)
		capture(flight);
}

struct flight *sim_flight_next(const struct flight *flight)
{
	return flight->next;
}

int sim_flight_start(struct sim_link *link, struct reef_batch *batch)
{
	struct conn *conn = link->conn;
	struct reef_sim *sim = conn->sim;
	struct flight *flight = make(batch);
	uint64_t last_ns;

	if (!flight)
		return -ENOMEM;
	flight->conn = sim_conn_ref(conn);
	flight->batch = batch;
	flight->from = link->base.listener ? 1 : 0;
	flight->timer.fire = fire;
	flight->at = conn->flights_tail;
	*conn->flights_tail = flight;
	conn->flights_tail = &flight->next;
	link->depth++;
	take_over(sim, flight, batch);
	/* Lost, but not yet noticed: it goes nowhere. */
	if (conn->state == CONN_LOST)
		return 0;
	plan(sim, flight);
	last_ns = flight->steps[flight->steps_count - 1].at_ns;
	if (!conn->doom.heap_index &&
	    reef_random_chance(&sim->net, sim->options.lose_link_ppm, 1000000))
		sim_timer(
			sim, &conn->doom,
			reef_random_between(&sim->net, sim_now(sim), last_ns));
	go_on(flight);
	return 0;
}

/* How many of the steps that are left will happen. */
static uint32_t pick_fate(struct reef_sim *sim, uint32_t left)
{
	switch (reef_random_below(&sim->net, 4)) {
	case 0:
		return 0;
	case 1:
		return left;
	default:
		return (uint32_t)reef_random_below(&sim->net,
						   (uint64_t)left + 1);
	}
}

static uint64_t pick_lateness(struct flight *flight)
{
	struct reef_sim *sim = flight->conn->sim;
	uint64_t max_ns = 10 * sim->options.delay_max_ns;

	if (reef_random_chance(&sim->net, 1, 2))
		max_ns = 4 * sim_silence(flight->conn, 1 - flight->from);
	return reef_random_below(&sim->net, max_ns + 1);
}

void sim_flight_stray(struct flight *flight)
{
	uint32_t i, kept = flight->step_next, last;
	uint64_t late_ns;

	flight->stray = true;
	flight->stalled = false;
	if (!side_is_alive(target(flight))) {
		sim_flight_cancel(flight);
		return;
	}
	last = kept + pick_fate(flight->conn->sim, flight->steps_count - kept);
	late_ns = pick_lateness(flight);
	for (i = kept; i < flight->steps_count; i++) {
		struct step step = flight->steps[i];
		struct cargo *cargo = &flight->cargo[step.op];
		bool second = step.kind == STEP_SECOND_HALF;

		if (step.kind == STEP_DONE ||
		    (i >= last && !(second && (cargo->open || cargo->kept))))
			continue;
		if (step.kind == STEP_FIRST_HALF)
			cargo->kept = true;
		if (!second || !cargo->open)
			step.at_ns += late_ns;
		flight->steps[kept++] = step;
	}
	flight->steps_count = kept;
	reef_timer_cancel(flight->conn->sim->sched, &flight->timer);
	sort_steps(flight);
	go_on(flight);
}

void sim_flight_cancel(struct flight *flight)
{
	struct reef_sim *sim = flight->conn->sim;
	struct side *side = target(flight);
	struct sim_region *region;
	uint32_t i;

	for (i = 0; i < flight->ops_count; i++) {
		struct cargo *cargo = &flight->cargo[i];

		if (!cargo->open)
			continue;
		let_go(sim, cargo);
		if (!side_is_alive(side))
			continue;
		/* It has begun, so it ends, while it still may. */
		region = sim_region_find(side->fabric, cargo->key);
		if (region)
			second_half(sim, cargo, region);
	}
	flight->steps_count = flight->step_next;
	reef_timer_cancel(sim->sched, &flight->timer);
	go_on(flight);
}

void sim_flight_resume(struct flight *flight)
{
	struct reef_sim *sim = flight->conn->sim;

	if (!flight->stalled)
		return;
	flight->stalled = false;
	shift(flight, sim_now(sim) - flight->steps[flight->step_next].at_ns +
			      sim_delay(sim));
	go_on(flight);
}

void sim_flights_cancel(struct conn *conn, int from)
{
	struct flight *flight, *next;

	for (flight = conn->flights; flight; flight = next) {
		next = flight->next;
		if (flight->from == from)
			sim_flight_cancel(flight);
	}
}

void sim_flights_tell(struct conn *conn, int from, int status)
{
	struct flight *flight, *next;

	if (sim_mutated(conn->sim, REEF_MUTANT_F5_CLAIM_DONE) &&
	    status == -REEF_EINDOUBT)
		status = 0;
	for (flight = conn->flights; flight; flight = next) {
		next = flight->next;
		if (flight->from != from || !flight->batch)
			continue;
		tell(flight, status);
		if (flight->step_next == flight->steps_count)
			unlink_and_free(flight);
	}
}

void sim_flights_forget(struct conn *conn, const struct reef_queue *queue)
{
	struct flight *flight, *next;

	for (flight = conn->flights; flight; flight = next) {
		next = flight->next;
		if (!flight->batch || flight->batch->queue != queue)
			continue;
		let_batch_go(flight);
		if (flight->step_next == flight->steps_count)
			unlink_and_free(flight);
	}
}

/* --- calm --- */

static int calm_op(struct reef_sim *sim, struct side *side, struct reef_op *op)
{
	struct sim_region *region = NULL;
	struct cargo cargo;
	int rc;

	load(&cargo, op);
	cargo.pieces = 1;
	if (op->kind != REEF_SEND)
		region = reef_container(op->remote, struct sim_remote, base)
				 ->region;
	rc = check(sim, region, &cargo);
	if (rc)
		return rc;
	sim_trace(sim, (enum trace_kind)op->kind, side->host,
		  cargo.key ^ cargo.offset, cargo.length);
	if (!cargo.length && op->kind != REEF_SEND)
		return 0;
	switch (op->kind) {
	case REEF_READ:
		memcpy(op->local, region_bytes(region) + op->offset,
		       op->length);
		break;
	case REEF_WRITE:
		memcpy(region_bytes(region) + op->offset, op->local,
		       op->length);
		sim_mix(sim, reef_hash(op->local, op->length, 0));
		break;
	case REEF_FLUSH:
		sim_region_flush(region, op->offset, op->length);
		break;
	case REEF_SEND:
		return deliver(sim, side, &cargo);
	default:
		if (first_half(&cargo, region))
			second_half(sim, &cargo, region);
		op->result = cargo.result;
	}
	return 0;
}

int sim_batch_calm(struct sim_link *link, struct reef_batch *batch)
{
	struct conn *conn = link->conn;
	struct side *side = &conn->sides[link->base.listener ? 0 : 1];
	uint32_t i, sends = 0;
	int rc;

	if (conn->state != CONN_UP)
		return -REEF_ENOLINK;
	for (i = 0; i < batch->count; i++)
		sends += batch->ops[i].kind == REEF_SEND;
	if (sends && side->pipe_count + sends > PIPE_MAX)
		return side->pipe_count ? -EAGAIN : -EMSGSIZE;
	for (i = 0; i < batch->count; i++) {
		rc = calm_op(conn->sim, side, &batch->ops[i]);
		batch->ops[i].status = rc;
		if (rc) {
			reef_batch_fail(batch, i, rc);
			break;
		}
	}
	batch->done = true;
	return 1;
}
