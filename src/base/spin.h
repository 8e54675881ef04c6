/* spin.h - how long to look again and again before sleeping.
 *
 * Looking is quicker than being woken, but takes a processor from whoever is to
 * bring what is waited for, if there are more of those than processors. So what
 * counts is whether it has paid lately: a wait that ends while looking allows
 * the next one more, one that has to sleep halves it, down to nothing. Now and
 * then the whole is tried again: two that wait for each other may both sleep
 * only because the other does.
 *
 * Thread: owner. */
#ifndef REEF_BASE_SPIN_H
#define REEF_BASE_SPIN_H

#include <stdint.h>

struct reef_spin {
	uint64_t max_ns;  /* 0: never */
	uint64_t part_ns; /* of it that a wait may take now */
	uint32_t waits;	  /* that slept at once since the last try */
	uint32_t robbed;  /* tries that were, in a row */
};

#define REEF_SPIN_LEAST_NS 500 /* less is not worth the clock */
#define REEF_SPIN_TRY 64u      /* waits between two tries */
#define REEF_SPIN_ROBBED_MAX 8 /* doublings of that */

static inline void reef_spin_init(struct reef_spin *spin, uint64_t max_ns)
{
	*spin = (struct reef_spin){.max_ns = max_ns, .part_ns = max_ns};
}

/* A wait begins. Returns how long it may look. */
static inline uint64_t reef_spin_begin(struct reef_spin *spin)
{
	if (spin->part_ns || ++spin->waits < REEF_SPIN_TRY << spin->robbed)
		return spin->part_ns;
	spin->waits = 0;
	return spin->max_ns;
}

/* The wait ended while it was looking. */
static inline void reef_spin_paid(struct reef_spin *spin)
{
	spin->robbed = 0;
	if (spin->part_ns < spin->max_ns / 4)
		spin->part_ns = spin->max_ns / 4;
	else if (spin->part_ns < spin->max_ns / 2)
		spin->part_ns *= 2;
	else
		spin->part_ns = spin->max_ns;
}

/* The wait has to sleep. */
static inline void reef_spin_failed(struct reef_spin *spin)
{
	spin->part_ns /= 2;
	if (spin->part_ns < REEF_SPIN_LEAST_NS)
		spin->part_ns = 0;
}

/* The wait let others run in between, and one of them that has nothing to do
 * with it kept the processor: that costs more than many sleeps. */
static inline void reef_spin_robbed(struct reef_spin *spin)
{
	spin->part_ns = 0;
	spin->waits = 0;
	if (spin->robbed < REEF_SPIN_ROBBED_MAX)
		spin->robbed++;
}

#endif
