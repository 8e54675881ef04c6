/* flight.h - a batch on its way: what flight.c, plan.c and effect.c share.
 *
 * Thread: owner of the simulation. */
#ifndef REEF_FABRIC_SIM_FLIGHT_H
#define REEF_FABRIC_SIM_FLIGHT_H

#include "fabric/sim/world.h"

/* A flight's own copy of an op. */
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

/* The words that an op touches, whole or in part. */
static inline uint64_t word_count(const struct cargo *cargo)
{
	if (!cargo->length)
		return 0;
	return (cargo->offset + cargo->length - 1) / 8 - cargo->offset / 8 + 1;
}

/* --- plan.c --- */

/* Fill in the steps from now on, in an order that F3 allows. */
void sim_plan(struct reef_sim *sim, struct flight *flight);
/* Sort the steps that are left. */
void sim_steps_sort(struct flight *flight);
uint8_t sim_pick_pieces(struct reef_sim *sim, const struct cargo *cargo);

/* --- effect.c --- */

void sim_load(struct cargo *cargo, const struct reef_op *op);
/* F8 at the target: 0, or the op's status. */
int sim_check(struct reef_sim *sim, const struct sim_region *region,
	      const struct cargo *cargo);
void sim_move_piece(struct reef_sim *sim, const struct sim_region *region,
		    const struct cargo *cargo, uint8_t piece);
/* When a word that an atomic holds is free again; 0: it is free. */
uint64_t sim_held_until(struct reef_sim *sim, const struct reef_memory *memory,
			uint64_t offset);
void sim_hold(struct reef_sim *sim, struct cargo *cargo,
	      const struct reef_memory *memory, uint64_t until_ns);
void sim_let_go(struct reef_sim *sim, struct cargo *cargo);
/* Read the word of an atomic. Returns whether it is to be written. */
bool sim_first_half(struct reef_sim *sim, struct cargo *cargo,
		    struct sim_region *region);
void sim_second_half(struct reef_sim *sim, struct cargo *cargo,
		     const struct sim_region *region);
/* Put a message into a side's card. */
void sim_deliver(struct reef_sim *sim, struct side *side,
		 const struct cargo *cargo);

#endif
