/* count.c - what sessions say that they did: the words behind their renewals
 * (wire/counters.h), and the sum of them since this broker started.
 *
 * (1) The sum only rises, and what a session that has ended did stays in it: of
 *     each session what is new since the last look is added.
 * (2) A session can say anything. What goes down, or up by more than any
 *     machine does in a day, is not added; what is said later is compared with
 *     that.
 * (3) A session that came before this broker started is counted from what it
 *     says first. */
#include "base/mutant.h"
#include "pool/broker/internal.h"
#include "wire/table.h"

#include <stdatomic.h>

#define RISE_MAX (UINT64_C(1) << 48)
#define LOOK_NS UINT64_C(200000000)

void broker_count_session(struct reef_broker *broker,
			  struct broker_session *session, uint64_t now_ns)
{
	const struct reef_memory *memory =
		session->renewals[session->fabric].memory;
	uint64_t *known = (uint64_t *)&session->counters;
	uint64_t *sum = (uint64_t *)&broker->counters;
	const _Atomic uint64_t *told;
	uint64_t value;

	if (!memory || (now_ns && now_ns - session->counted_ns < LOOK_NS))
		return;
	session->counted_ns = now_ns;
	told = (const _Atomic uint64_t *)((const char *)memory->base +
					  offsetof(struct reef_renewal,
						   counters));
	for (size_t i = 0; i < REEF_COUNTERS; i++) {
		/* The session's WRITE stores it; nothing depends on it. */
		value = atomic_load_explicit(&told[i], memory_order_relaxed);
		/* Nothing yet, on a fabric that it has just come by. */
		if (!value)
			continue;
		if ((value > known[i] && value - known[i] < RISE_MAX) ||
		    REEF_MUTATED(BROKER_COUNTS_BELIEVED))
			sum[i] += value - known[i];
		known[i] = value;
	}
}

uint64_t broker_counters_p99(const struct reef_counters *counters)
{
	uint64_t count = 0, seen = 0;
	uint32_t i;

	for (i = 0; i < REEF_LATENCIES; i++)
		count += counters->latencies[i];
	if (!count)
		return 0;
	for (i = 0; i + 2 < REEF_LATENCIES; i++) {
		seen += counters->latencies[i];
		if (seen >= count - count / 100)
			break;
	}
	return reef_latency_bounds_ns[i];
}
