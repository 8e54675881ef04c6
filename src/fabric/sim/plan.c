/* plan.c - when the parts of a batch take effect.
 *
 * (1) An op begins after every earlier one that it may not overtake has ended:
 *     READ, FLUSH and what is ORDERED overtake nothing, and nothing overtakes a
 *     WRITE, a FLUSH or a SEND (F3).
 * (2) Apart from that, chance decides. */
#include "fabric/sim/flight.h"

#include "base/mutant.h"

#include <stdlib.h>

/* True if the op may not begin before everything earlier has ended (F3). */
static bool must_wait_for_all(const struct reef_sim *sim,
			      const struct cargo *cargo)
{
	if (cargo->kind == REEF_READ)
		return !REEF_MUTATED(SIM_F3B_EARLY_READ);
	if (cargo->ordered)
		return !REEF_MUTATED(SIM_F3C_UNORDERED);
	return cargo->kind == REEF_FLUSH;
}

/* True if nothing later may overtake the op (F3). */
static bool must_not_be_passed(const struct reef_sim *sim,
			       const struct cargo *cargo)
{
	if (cargo->kind == REEF_WRITE)
		return !REEF_MUTATED(SIM_F3A_OVERTAKE);
	return cargo->kind == REEF_FLUSH || cargo->kind == REEF_SEND;
}

/* Choose over how long the parts of a batch are spread: most batches are quick,
 * some take their time. */
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

void sim_steps_sort(struct flight *flight)
{
	qsort(flight->steps + flight->step_next,
	      flight->steps_count - flight->step_next, sizeof(struct step),
	      compare_steps);
}

/* Mutant SIM_F4_EARLY_DONE needs a batch that nobody wants an answer of. */
static bool is_done_early(const struct reef_sim *sim,
			  const struct flight *flight)
{
	uint32_t i;

	if (!REEF_MUTATED(SIM_F4_EARLY_DONE))
		return false;
	for (i = 0; i < flight->ops_count; i++)
		if (flight->cargo[i].kind != REEF_WRITE &&
		    flight->cargo[i].kind != REEF_SEND)
			return false;
	return true;
}

void sim_plan(struct reef_sim *sim, struct flight *flight)
{
	uint64_t now_ns = sim_now(sim), window_ns = pick_window(sim);
	uint64_t all_ns = now_ns + sim_delay(sim), hard_ns = all_ns;
	uint64_t start_ns, end_ns;
	uint32_t i;

	for (i = 0; i < flight->ops_count; i++) {
		struct cargo *cargo = &flight->cargo[i];

		start_ns = hard_ns;
		if (must_wait_for_all(sim, cargo)) {
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
		if (must_not_be_passed(sim, cargo) && end_ns > hard_ns)
			hard_ns = end_ns;
	}
	all_ns += sim_delay(sim);
	if (is_done_early(sim, flight))
		all_ns = now_ns + 1;
	add_step(flight, 0, STEP_DONE, 0, all_ns);
	sim_steps_sort(flight);
}

uint8_t sim_pick_pieces(struct reef_sim *sim, const struct cargo *cargo)
{
	bool torn = REEF_MUTATED(SIM_F2_TORN_WORD);

	if (cargo->kind != REEF_READ && cargo->kind != REEF_WRITE)
		return 1;
	if (word_count(cargo) < 2)
		return torn ? 2 : 1;
	return (uint8_t)reef_random_between(&sim->net, torn ? 2 : 1,
					    PIECES_MAX);
}
