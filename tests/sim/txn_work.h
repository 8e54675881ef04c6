/* txn_work.h - what programs over txn_work.c share: what transactions go
 * through, and over what they go. */
#ifndef REEF_SIM_TXN_WORK_H
#define REEF_SIM_TXN_WORK_H

#include "program.h"

#include <stdbool.h>

/* Some of the maps are trees. Each program says it. */
extern const bool txn_work_trees;

/* Leases are as short as the network allows, so that several end in each run,
 * and memory that was freed is soon reused. */
#define TXN_BRIEF                                                              \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 32 * MILLISECOND,           \
	.silence_ns = 8 * MILLISECOND, .duration_ns = 100 * MILLISECOND,       \
	.clients = 3, .chaos_every_ns = 6 * MILLISECOND,                       \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true,                \
	.capacity = 16ull << 20

#define TXN_SCENARIOS                                                          \
	{"calm", "nothing goes wrong", {TXN_BRIEF}},                           \
		SCENARIOS_OF_TROUBLE(TXN_BRIEF),                               \
	{                                                                      \
		"away",                                                        \
			"clients give up on nodes that they do not reach, "    \
			"and go on",                                           \
		{                                                              \
			TXN_BRIEF, .chaos = CHAOS_CUT | CHAOS_LINKS,           \
				   .gives_up_ns = MILLISECOND                  \
		}                                                              \
	}

#endif
