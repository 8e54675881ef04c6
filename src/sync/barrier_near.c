/* barrier_near.c - messages of steps through memory, between members to which
 * it is near (reef_is_near): on one machine, outside fibers.
 *
 * Waking a process that sleeps takes longer than a round of those that run. So
 * a member that is near says in its place that it is AWAKE: it looks at memory
 * before it sleeps, and need not be sent messages of steps.
 *
 *   who sends step k               who waits for it
 *     WRITE its own `came`           READ `came` of the one before, for a
 *     READ AWAKE of the other        while; then
 *     not awake: a message, too      WRITE AWAKE: not any more
 *                                    READ `came` once more; sleep
 *
 * (1) In both the READ comes after the WRITE, for everybody (F4): so one of the
 *     two sees the other's.
 * (2) `came` says (round, tag, step) in one word, from which nobody can tell
 *     them, but whoever expects exactly those knows it: it counts as a message
 *     of them would. One is kept for each step of two rounds in a row. Who
 *     misses one because it was overwritten looks when it has waited long, as
 *     if a message had been lost.
 * (3) AWAKE is not set in a place when it is taken, nor by members that are not
 *     near; those write no `came` and always send.
 *
 * Written by the place's owner only, and by WRITE only. */
#include "sync/barrier.h"

#include <errno.h>
#include <sched.h>

/* How long one looks, letting others run in between, before it sleeps: about as
 * long as it takes to wake another, a few times over. */
#define LOOK_NS UINT64_C(50000)

static uint64_t token(const struct reef_barrier *barrier, uint32_t step)
{
	/* The token is another one for each round, step and tag. */
	return barrier->group.tag + ((barrier->passed + 1) * BARRIER_STEPS_MAX +
				     step) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t came_address(const struct reef_barrier *barrier, uint32_t place,
			     uint32_t step)
{
	return barrier_near_address(barrier, place) +
	       offsetof(struct barrier_near, came[step]) +
	       (barrier->passed + 1) % 2 * 8;
}

static int set_awake(struct reef_barrier *barrier, bool awake)
{
	uint64_t word = awake;
	int rc;

	if (barrier->is_awake == awake)
		return 0;
	rc = reef_write(barrier->reef,
			barrier_near_address(barrier, barrier->place), &word,
			sizeof(word));
	/* A WRITE in doubt left AWAKE as it was or as we want it; either way we
	 * read `came` next, and look by ourselves later. */
	if (!rc || rc == -REEF_EINDOUBT)
		barrier->is_awake = awake;
	barrier->was_awake |= awake;
	return rc == -REEF_EINDOUBT ? 0 : rc;
}

void barrier_near_begin(struct reef_barrier *barrier)
{
	if (!barrier->spin.max_ns)
		reef_spin_init(&barrier->spin, LOOK_NS);
	barrier->is_near = reef_is_near(barrier->reef, barrier->object.body);
}

int barrier_near_send(struct reef_barrier *barrier)
{
	const struct barrier_partner *partner =
		&barrier->group.partners[barrier->step];
	uint64_t word = token(barrier, barrier->step), awake = 0;
	struct reef_access accesses[] = {
		{.kind = REEF_WRITE,
		 .address =
			 came_address(barrier, barrier->place, barrier->step),
		 .local = &word,
		 .length = 8},
		{.kind = REEF_READ,
		 .address = barrier_near_address(barrier, partner->place),
		 .local = &awake,
		 .length = 8},
	};
	int rc;

	if (!barrier->is_near)
		return 0;
	rc = reef_execute(barrier->reef, accesses, 2);
	if (rc == -REEF_EINDOUBT)
		return 0;
	return rc ? rc : awake == 1;
}

static int has_come_once(struct reef_barrier *barrier, uint64_t address)
{
	uint64_t word;
	int rc = reef_read(barrier->reef, address, &word, sizeof(word));

	return rc ? rc : word == token(barrier, barrier->step);
}

/* Read `came` over and over, letting others run in between, as long as that
 * pays: where somebody who does not wait for us has the processor, letting it
 * run takes far longer than sleeping, from which one is woken at once. */
static int spin_until_come(struct reef_barrier *barrier, uint64_t address)
{
	uint64_t most_ns = reef_spin_begin(&barrier->spin);
	uint64_t start_ns, passed_ns = 0;
	int rc;

	if (!most_ns)
		return 0;
	rc = set_awake(barrier, true);
	start_ns = reef_now_ns();
	while (!rc) {
		rc = has_come_once(barrier, address);
		if (rc || passed_ns >= most_ns)
			break;
		sched_yield();
		passed_ns = reef_now_ns() - start_ns;
	}
	if (passed_ns > 2 * LOOK_NS)
		reef_spin_robbed(&barrier->spin);
	else if (rc == 1)
		reef_spin_paid(&barrier->spin);
	else
		reef_spin_failed(&barrier->spin);
	return rc;
}

int barrier_near_wait(struct reef_barrier *barrier, bool can_wait)
{
	uint64_t address;
	int rc = 0;

	if (barrier->step >= barrier->group.steps || !barrier->sent)
		return set_awake(barrier, false);
	address = came_address(barrier, barrier->group.before[barrier->step],
			       barrier->step);
	if (barrier->is_near && can_wait)
		rc = spin_until_come(barrier, address);
	if (!rc)
		rc = set_awake(barrier, false);
	return rc || !barrier->was_awake ? rc : has_come_once(barrier, address);
}
