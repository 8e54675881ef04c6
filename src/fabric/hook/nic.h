/* nic.h - the resources of one NIC in the cost model (cost.h).
 *
 * (1) A resource is known by the time it is free; serving takes it from the
 *     later of that and the arrival.
 * (2) Arrivals come in order of time: each function is called when the message
 *     is there, never ahead of it. A reservation made ahead would let those who
 *     come in between wait for nothing.
 *
 * Times are picoseconds of the simulation.
 *
 * Thread: owner. */
#ifndef REEF_FABRIC_HOOK_NIC_H
#define REEF_FABRIC_HOOK_NIC_H

#include "fabric/hook/cache.h"
#include "fabric/hook/cost.h"

struct reef_nic {
	const struct reef_cost_options *options;
	uint64_t engine_ps, port_out_ps, port_in_ps; /* free at */
	uint64_t *atomic_ps;			     /* each unit: free at */
	struct reef_cache *cache;
	struct reef_cost_stats stats; /* busy_ns in picoseconds */
};

/* options must outlive it.  -EINVAL, -ENOMEM. */
int reef_nic_init(struct reef_nic *nic,
		  const struct reef_cost_options *options);
void reef_nic_fini(struct reef_nic *nic);

/* The ops of one segment are at the NIC. Returns when the last of them has
 * left. connection names the context. */
uint64_t reef_nic_send(struct reef_nic *nic, uint64_t connection,
		       const struct reef_op *ops, uint32_t count,
		       uint64_t now_ps);

/* They have come to the target. Returns when the last of them reaches the
 * memory. */
uint64_t reef_nic_receive(struct reef_nic *nic, uint64_t connection,
			  const struct reef_op *ops, uint32_t count,
			  uint64_t now_ps);

/* The target sends what they bring back. Returns when all of it has left. */
uint64_t reef_nic_answer(struct reef_nic *nic, const struct reef_op *ops,
			 uint32_t count, uint64_t now_ps);

/* The answer has come to the initiator. Returns when all of it is there. */
uint64_t reef_nic_answered(struct reef_nic *nic, const struct reef_op *ops,
			   uint32_t count, uint64_t now_ps);

#endif
