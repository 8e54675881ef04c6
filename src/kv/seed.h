/* seed.h - what simulations set so that maps and trees are the same each time.
 *
 * Thread: any, while none is made. */
#ifndef REEF_KV_SEED_H
#define REEF_KV_SEED_H

#include <stdint.h>

/* The seed of the fingerprints of trees that are made from now on; 0: each its
 * own, from the kernel, so that nobody can make keys that collide. */
extern uint64_t tree_seed;

/* The same of maps and trees. */
void map_set_seed(uint64_t seed);

#endif
