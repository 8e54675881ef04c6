/* fence.c - fences, and the end of links by number.
 *
 *   asked --some time later--> confirmed --asked for more--> forgotten
 *
 * (1) From the moment that it is asked for, what is fenced or ended is not let
 *     in; but what is in may still act.
 * (2) Once it is confirmed, nothing that it covers is on its way to this fabric
 *     any more, and what waited at the card for the processor is thrown away
 *     (F7, F10). */
#include "fabric/sim/world.h"

#include "base/mutant.h"

#include <stdlib.h>

static struct sim_fabric *to_fabric(struct reef_layer *layer)
{
	return reef_container(layer->fabric, struct sim_fabric, base);
}

/* True if a fence ends a link of that session and number; number 0: all of the
 * session. */
static bool covers(const struct fence *fence, uint32_t session, uint32_t number)
{
	if (!fence->number)
		return reef_session_covers(fence->session, session);
	return reef_numbers_end_covers(fence->session, fence->number, session,
				       number);
}

static struct fence *find_fence(const struct sim_fabric *fabric,
				uint32_t session, uint32_t number)
{
	struct fence *fence = fabric->fences;

	while (fence && !covers(fence, session, number))
		fence = fence->next;
	return fence;
}

bool sim_is_fenced(const struct sim_fabric *fabric, uint32_t session)
{
	return find_fence(fabric, session, 0);
}

/* Forget what a newer fence covers as well. */
static void forget_covered(struct sim_fabric *fabric, const struct fence *by)
{
	struct fence **at = &fabric->fences, *fence;

	while ((fence = *at)) {
		if (fence == by || !fence->confirmed ||
		    !covers(by, fence->session, fence->number)) {
			at = &fence->next;
			continue;
		}
		*at = fence->next;
		free(fence);
	}
}

static void trace_fence(const struct fence *fence)
{
	const struct sim_fabric *fabric = fence->fabric;

	sim_trace(fabric->sim, fence->number ? TRACE_END_LINKS : TRACE_FENCE,
		  fabric->life->host, fence->session,
		  fence->confirmed + 2ull * fence->number);
}

static void confirm_fence(struct reef_timer *timer)
{
	struct fence *fence = reef_container(timer, struct fence, timer);
	struct sim_fabric *fabric = fence->fabric;
	int reason = fence->number ? -REEF_ENOLINK : -REEF_EFENCED;
	struct reef_sim *sim = fabric->sim;
	struct conn *conn, *next;

	if (fabric_is_dead(fabric))
		return;
	fence->confirmed = true;
	forget_covered(fabric, fence);
	trace_fence(fence);
	for (conn = sim->conns; conn; conn = next) {
		next = conn->next;
		if (conn->sides[1].fabric != fabric ||
		    !covers(fence, conn->hello.session, conn->hello.number))
			continue;
		sim_conn_ref(conn);
		sim_conn_lose(conn, sim_soon(sim), 0, reason);
		sim_side_notice(conn, 1, 0, reason);
		if (!REEF_MUTATED(SIM_F7_LATE))
			sim_flights_cancel(conn, 0);
		sim_pipe_drop(conn, 1);
		next = conn->next;
		sim_conn_unref(conn);
	}
	sim_fabric_happened(fabric);
}

/* Begin what is not under way yet. 0: it is confirmed. */
static int fence_links(struct sim_fabric *fabric, uint32_t session,
		       uint32_t number)
{
	struct fence *fence = find_fence(fabric, session, number);

	if (fence)
		return fence->confirmed ? 0 : -EAGAIN;
	fence = calloc(1, sizeof(*fence));
	if (!fence)
		return -ENOMEM;
	fence->timer.fire = confirm_fence;
	fence->fabric = fabric;
	fence->session = session;
	fence->number = number;
	fence->next = fabric->fences;
	fabric->fences = fence;
	trace_fence(fence);
	sim_timer(fabric->sim, &fence->timer,
		  sim_now(fabric->sim) + sim_soon(fabric->sim));
	return -EAGAIN;
}

int sim_fence(struct reef_layer *layer, struct reef_queue *queue,
	      uint32_t session)
{
	struct sim_fabric *fabric = to_fabric(layer);

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	reef_numbers_fence(&fabric->numbers, session);
	return fence_links(fabric, session, 0);
}

int sim_end_links(struct reef_layer *layer, struct reef_queue *queue,
		  uint32_t session, uint32_t number)
{
	struct sim_fabric *fabric = to_fabric(layer);
	int rc;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	rc = reef_numbers_use(&fabric->numbers, session, number);
	return rc ? rc : fence_links(fabric, session, number);
}
