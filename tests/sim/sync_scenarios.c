/* sync_scenarios.c - what locks and elections go through.
 *
 * A run in which nothing goes wrong has leases of a minute: whoever waits looks
 * for itself after a part of that, so a lost wake-up is a hang. The others have
 * leases as short as the network allows, so that several end in each run. */
#include "program.h"

#define BRIEF                                                                  \
	.ttl_ns = 16 * MILLISECOND, .node_ttl_ns = 32 * MILLISECOND,           \
	.silence_ns = 8 * MILLISECOND, .duration_ns = 60 * MILLISECOND,        \
	.clients = 3, .chaos_every_ns = 8 * MILLISECOND,                       \
	.patience_ns = 2 * SECOND, .step_ns = 1, .hasty = true

const struct scenario sync_scenarios[] = {
	{"calm",
	 "nothing goes wrong",
	 {.ttl_ns = 64 * SECOND,
	  .node_ttl_ns = 64 * SECOND,
	  .duration_ns = 40 * MILLISECOND,
	  .patience_ns = SECOND / 2,
	  .step_ns = 1}},
	SCENARIOS_OF_TROUBLE(BRIEF),
	SCENARIOS_OF_COPIES,
	{"cut",
	 "a client is cut off, at every operation in turn",
	 {BRIEF, .strike = STRIKE_CUT}},
	{"broker",
	 "the broker is killed, clients die and stand still",
	 {BRIEF, .chaos = CHAOS_BROKER_KILL | CHAOS_BROKER_POWER |
			  CHAOS_CLIENT_KILL | CHAOS_CLIENT_PAUSE}},
};
const size_t sync_scenarios_count =
	sizeof(sync_scenarios) / sizeof(sync_scenarios[0]);
