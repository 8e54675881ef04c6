/* model.h - what the cost model knows of hosts, links and queues (cost.h).
 *
 * (1) A link is known by its pointer, from connect, or from the first post
 *     through an accepted one, until it is closed. Where nobody tells of its
 *     end (a listener's links go with it), what is found under its pointer is
 *     believed only if the session is the same.
 * (2) The two ends of a link have a state each, with the same connection
 *     number: that is what its contexts in the two NICs are called.
 *
 * Thread: owner, the simulation's. */
#ifndef REEF_FABRIC_HOOK_MODEL_H
#define REEF_FABRIC_HOOK_MODEL_H

#include "fabric/hook/nic.h"

struct cost_link {
	const struct reef_link *link;
	struct cost_link *chain;
	struct reef_nic *target; /* NULL: a host without a NIC here */
	uint64_t connection;
	uint32_t session;
	uint32_t depth; /* batches under way */
};

struct cost_queue {
	const struct reef_queue *queue;
	struct cost_queue *chain;
	uint64_t free_ps; /* its doorbell */
	uint32_t threads; /* that post in it */
};

/* The NIC of that name, made if there is none. NULL: no memory. */
struct reef_nic *cost_model_nic(struct reef_cost_model *model,
				const char *name);

/* A listener is behind this NIC.  -ENOMEM. */
int cost_model_listen(struct reef_cost_model *model,
		      const struct reef_listener *listener,
		      struct reef_nic *nic);
void cost_model_unlisten(struct reef_cost_model *model,
			 const struct reef_listener *listener);
/* A fabric is closed, and with it all its listeners. */
void cost_model_close(struct reef_cost_model *model,
		      const struct reef_fabric *fabric);

/* A link was opened from behind this NIC to an address.  -ENOMEM. */
int cost_model_connect(struct reef_cost_model *model,
		       const struct reef_link *link, struct reef_nic *from,
		       const char *address);
/* What is known of a link that `nic` posts through. NULL: no memory. */
struct cost_link *cost_model_link(struct reef_cost_model *model,
				  const struct reef_link *link,
				  const struct reef_nic *nic);
void cost_model_forget_link(struct reef_cost_model *model,
			    const struct reef_link *link);

/* What is known of a queue, made at the first call. NULL: no memory. */
struct cost_queue *cost_model_queue(struct reef_cost_model *model,
				    const struct reef_queue *queue);
void cost_model_forget_queue(struct reef_cost_model *model,
			     const struct reef_queue *queue);

#endif
