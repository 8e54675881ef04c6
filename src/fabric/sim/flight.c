/* flight.c - a batch on its way: from the post, or past the loss, to its end.
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
 *     the batch waits for its side's notice (sim_flights_end) -> freed
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
#include "fabric/sim/flight.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

static struct side *target_of(const struct flight *flight)
{
	return &flight->conn->sides[1 - flight->from];
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

/* Set the timer for the next step, or free a flight that has none left (5). */
static void set_next_timer(struct flight *flight)
{
	if (flight->step_next < flight->steps_count)
		sim_timer(flight->conn->sim, &flight->timer,
			  flight->steps[flight->step_next].at_ns);
	else if (!flight->batch)
		unlink_and_free(flight);
}

/* Put off all steps that are left, except second halves whose first is done
 * (3). */
static void put_off(struct flight *flight, uint64_t by_ns)
{
	uint32_t i;

	for (i = flight->step_next; i < flight->steps_count; i++) {
		struct step *step = &flight->steps[i];

		if (step->kind != STEP_SECOND_HALF ||
		    !flight->cargo[step->op].open)
			step->at_ns += by_ns;
	}
	sim_steps_sort(flight);
}

/* Drop the steps of op `index` and of all after it (which a mutant keeps). */
static void drop_steps_from(struct flight *flight, uint32_t index)
{
	bool go = REEF_MUTATED(SIM_F3_GO_ON);
	uint32_t i, kept = flight->step_next;

	for (i = kept; i < flight->steps_count; i++) {
		const struct step *step = &flight->steps[i];

		if (step->kind == STEP_DONE || step->op < index ||
		    (go && step->op > index))
			flight->steps[kept++] = *step;
	}
	flight->steps_count = kept;
}

/* Check the ops up to `index` at the target (2). Returns whether op `index` is
 * to be done. */
static bool check_ops_until(struct flight *flight, uint32_t index)
{
	struct reef_sim *sim = flight->conn->sim;
	const struct cargo *cargo;
	int rc;

	while (flight->ops_checked <= index) {
		cargo = &flight->cargo[flight->ops_checked];
		rc = sim_check(
			sim,
			sim_region_find(target_of(flight)->fabric, cargo->key),
			cargo);
		if (rc && flight->failed == flight->ops_count) {
			flight->failed = flight->ops_checked;
			flight->status = rc;
		}
		flight->ops_checked++;
		if (rc) {
			drop_steps_from(flight, flight->ops_checked - 1);
			return false;
		}
	}
	return true;
}

static void start_atomic(struct flight *flight, struct cargo *cargo,
			 struct sim_region *region)
{
	uint32_t i = flight->step_next + 1, op = flight->steps[i - 1].op;

	while (flight->steps[i].op != op ||
	       flight->steps[i].kind != STEP_SECOND_HALF)
		i++;
	if (sim_first_half(flight->conn->sim, cargo, region)) {
		sim_hold(flight->conn->sim, cargo, region->base.memory,
			 flight->steps[i].at_ns);
		return;
	}
	/* A CAS that does not match writes nothing. */
	flight->steps_count--;
	memmove(flight->steps + i, flight->steps + i + 1,
		(flight->steps_count - i) * sizeof(struct step));
}

/* How long to wait before trying a receiver without room again; NEVER: it is
 * given up. */
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

static void trace_step(const struct flight *flight, enum trace_kind kind,
		       const struct step *step)
{
	const struct cargo *cargo = &flight->cargo[step->op];

	sim_trace(flight->conn->sim, kind, target_of(flight)->host,
		  cargo->key ^ cargo->offset,
		  cargo->length + ((uint64_t)step->piece << 32));
}

static void do_piece(struct flight *flight, const struct step *step,
		     struct sim_region *region)
{
	struct cargo *cargo = &flight->cargo[step->op];

	trace_step(flight, (enum trace_kind)cargo->kind, step);
	if (cargo->kind == REEF_FLUSH)
		sim_region_flush(region, cargo->offset, cargo->length);
	else if (cargo->kind == REEF_WRITE || flight->batch) /* (4) */
		sim_move_piece(flight->conn->sim, region, cargo, step->piece);
}

static uint64_t do_send(struct flight *flight, const struct step *step)
{
	if (target_of(flight)->pipe_count >= PIPE_MAX)
		return wait_for_room(flight);
	trace_step(flight, TRACE_SEND, step);
	sim_deliver(flight->conn->sim, target_of(flight),
		    &flight->cargo[step->op]);
	return 0;
}

/* Do a step.  0, or by how much it and all after it are put off; NEVER: the
 * receiver counts as lost. */
static uint64_t do_step(struct flight *flight, const struct step *step)
{
	struct cargo *cargo = &flight->cargo[step->op];
	struct reef_sim *sim = flight->conn->sim;
	struct sim_region *region;
	uint64_t until_ns;

	if (cargo->kind == REEF_SEND)
		return do_send(flight, step);
	region = sim_region_find(target_of(flight)->fabric, cargo->key);
	if (!region) {
		/* The region of a stray may be gone since it was checked. */
		if (cargo->open)
			sim_let_go(sim, cargo);
		return 0;
	}
	switch (step->kind) {
	case STEP_FIRST_HALF:
		until_ns =
			sim_held_until(sim, region->base.memory, cargo->offset);
		if (until_ns)
			return until_ns - sim_now(sim) + 1 +
			       reef_random_below(&sim->net, 64);
		trace_step(flight, (enum trace_kind)cargo->kind, step);
		start_atomic(flight, cargo, region);
		break;
	case STEP_SECOND_HALF:
		/* The first half of a stray may have found no region: then the
		 * atomic is not open. */
		if (!cargo->open)
			break;
		trace_step(flight, TRACE_ATOMIC_LANDS, step);
		sim_let_go(sim, cargo);
		sim_second_half(sim, cargo, region);
		break;
	default:
		do_piece(flight, step, region);
	}
	return 0;
}

/* Copy the bytes that are still the caller's (4). */
static void capture_bytes(struct flight *flight)
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

/* Take the batch from its flight, without ending it. */
static struct reef_batch *release_batch(struct flight *flight)
{
	struct sim_link *link = flight->conn->sides[flight->from].link;
	struct reef_batch *batch = flight->batch;
	struct sim_remote *remote;
	uint32_t i;

	if (flight->step_next < flight->steps_count)
		capture_bytes(flight);
	flight->batch = NULL;
	link->depth--;
	for (i = 0; i < batch->count; i++) {
		if (batch->ops[i].kind == REEF_SEND)
			continue;
		remote = reef_container(batch->ops[i].remote, struct sim_remote,
					base);
		if (!--remote->under_way && remote->release)
			sim_remote_idle(remote);
	}
	return batch;
}

static void end_batch(struct flight *flight, int status)
{
	struct conn *conn = flight->conn;
	struct reef_batch *batch = release_batch(flight);
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

static void walk_steps(struct reef_timer *timer)
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
			end_batch(flight, 0);
			continue;
		}
		if (!check_ops_until(flight, step.op))
			continue;
		put_off_ns = do_step(flight, &step);
		if (put_off_ns == NEVER) {
			/* The flight may be freed by either call. */
			if (flight->stray)
				sim_flight_cancel(flight);
			else
				sim_conn_lose(conn, sim_soon(conn->sim),
					      sim_soon(conn->sim),
					      -REEF_ENOLINK);
			return;
		}
		if (put_off_ns)
			put_off(flight, put_off_ns);
		else
			flight->step_next++;
	}
	set_next_timer(flight);
}

/* --- from outside --- */

static size_t bytes_of(const struct reef_op *op)
{
	return op->kind == REEF_WRITE || op->kind == REEF_SEND ? op->length : 0;
}

static struct flight *make_flight(const struct reef_batch *batch)
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

static void copy_ops(struct reef_sim *sim, struct flight *flight,
		     struct reef_batch *batch)
{
	uint8_t *bytes = (uint8_t *)(flight->cargo + batch->count);
	bool at_once = reef_random_chance(&sim->net, 1, 2);
	uint32_t i;

	for (i = 0; i < batch->count; i++) {
		struct reef_op *op = &batch->ops[i];
		struct cargo *cargo = &flight->cargo[i];

		sim_load(cargo, op);
		cargo->salt = reef_random_next(&sim->net);
		cargo->pieces = sim_pick_pieces(sim, cargo);
		cargo->bytes = bytes;
		bytes += bytes_of(op);
		if (op->kind != REEF_SEND)
			reef_container(op->remote, struct sim_remote, base)
				->under_way++;
	}
	if (at_once)
		capture_bytes(flight);
}

struct flight *sim_flight_next(const struct flight *flight)
{
	return flight->next;
}

int sim_flight_start(struct sim_link *link, struct reef_batch *batch)
{
	struct conn *conn = link->conn;
	struct reef_sim *sim = conn->sim;
	struct flight *flight = make_flight(batch);
	uint64_t last_ns;

	if (!flight)
		return -ENOMEM;
	flight->conn = sim_conn_ref(conn);
	flight->batch = batch;
	flight->from = link->base.listener ? 1 : 0;
	flight->timer.fire = walk_steps;
	flight->at = conn->flights_tail;
	*conn->flights_tail = flight;
	conn->flights_tail = &flight->next;
	link->depth++;
	copy_ops(sim, flight, batch);
	/* On a connection that is lost, but not noticed yet, a batch goes
	 * nowhere. */
	if (conn->state == CONN_LOST)
		return 0;
	sim_plan(sim, flight);
	last_ns = flight->steps[flight->steps_count - 1].at_ns;
	if (!conn->doom.heap_index &&
	    reef_random_chance(&sim->net, sim->options.lose_link_ppm, 1000000))
		sim_timer(
			sim, &conn->doom,
			reef_random_between(&sim->net, sim_now(sim), last_ns));
	set_next_timer(flight);
	return 0;
}

/* Choose how many of the steps that are left will happen. */
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

void sim_flight_stray(struct flight *flight)
{
	uint32_t i, kept = flight->step_next, last;
	uint64_t late_ns;

	flight->stray = true;
	flight->stalled = false;
	if (!side_is_alive(target_of(flight))) {
		sim_flight_cancel(flight);
		return;
	}
	last = kept + pick_fate(flight->conn->sim, flight->steps_count - kept);
	late_ns = sim_lateness(flight->conn, 1 - flight->from);
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
	sim_steps_sort(flight);
	set_next_timer(flight);
}

void sim_flight_cancel(struct flight *flight)
{
	struct reef_sim *sim = flight->conn->sim;
	struct side *side = target_of(flight);
	struct sim_region *region;
	uint32_t i;

	for (i = 0; i < flight->ops_count; i++) {
		struct cargo *cargo = &flight->cargo[i];

		if (!cargo->open)
			continue;
		sim_let_go(sim, cargo);
		if (!side_is_alive(side))
			continue;
		/* An atomic that has begun is finished, while it still may. */
		region = sim_region_find(side->fabric, cargo->key);
		if (region)
			sim_second_half(sim, cargo, region);
	}
	flight->steps_count = flight->step_next;
	reef_timer_cancel(sim->sched, &flight->timer);
	set_next_timer(flight);
}

void sim_flight_resume(struct flight *flight)
{
	struct reef_sim *sim = flight->conn->sim;

	if (!flight->stalled)
		return;
	flight->stalled = false;
	put_off(flight, sim_now(sim) - flight->steps[flight->step_next].at_ns +
				sim_delay(sim));
	set_next_timer(flight);
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

void sim_flights_end(struct conn *conn, int from, int status)
{
	struct flight *flight, *next;

	if (REEF_MUTATED(SIM_F5_CLAIM_DONE) && status == -REEF_EINDOUBT)
		status = 0;
	for (flight = conn->flights; flight; flight = next) {
		next = flight->next;
		if (flight->from != from || !flight->batch)
			continue;
		end_batch(flight, status);
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
		release_batch(flight);
		if (flight->step_next == flight->steps_count)
			unlink_and_free(flight);
	}
}
