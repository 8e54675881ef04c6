/* barrier.c - a participant of a barrier: comes, over and over, and looks on
 * the board whether all the others have come, too.
 *
 * Before it waits it says which round it comes to. When it has passed round r,
 * whoever is a member of r has said r, or a later one. Those who died are named
 * to each of the others, and nobody else is. */
#include "sync/barrier.h"

#include "base/clock.h"
#include "guard.h"
#include "section.h"
#include "worker.h"

#include <errno.h>
#include <inttypes.h>

#define NEVER UINT64_MAX
#define LEAVE_NS UINT64_C(60000000000)

static struct seat *seat_of(struct section *section)
{
	return &section->board->seats[section->seat];
}

static int check_others(struct section *section, uint64_t round)
{
	struct board_judge judge = section_judge(section);
	struct board *board = section->board;
	uint32_t used = atomic_load(&board->seats_used);

	for (uint32_t i = 0; i < used; i++) {
		struct seat *seat = &board->seats[i];
		uint64_t joined = atomic_load(&seat->joined);

		/* The round is read first: whoever leaves says so before. */
		if (atomic_load(&seat->round) >= round || !joined ||
		    joined > round || !board_counts(board, i, &judge) ||
		    atomic_load(&seat->joined) != joined)
			continue;
		return board_fail(board,
				  "%u passed round %" PRIu64 ", and %u is at "
				  "%" PRIu64,
				  section->seat, round, i,
				  atomic_load(&seat->round));
	}
	return 0;
}

static int check_dead(struct section *section, uint32_t session)
{
	struct board_judge judge = section_judge(section);

	if (judge.is_over(judge.context, session))
		return 0;
	return board_fail(section->board, "%u is told that %08x died",
			  section->seat, session);
}

/* Come to one round, or hear of a death. */
static int meet_others(struct section *section, struct reef_barrier *barrier)
{
	struct seat *seat = seat_of(section);
	uint64_t begun_ns = reef_now_ns(), waited_ns;
	uint32_t dead = 0;
	int rc;

	board_at(section->board, section->seat, SPOT_WAITS);
	atomic_store(&seat->round, reef_barrier_round(barrier) + 1);
	rc = reef_barrier_wait(barrier, REEF_FOREVER, &dead);
	if (rc == -REEF_EMEMBER) {
		atomic_fetch_add(&seat->inherited, 1);
		return check_dead(section, dead);
	}
	if (rc)
		return rc;
	waited_ns = reef_now_ns() - begun_ns;
	if (waited_ns > atomic_load(&seat->waited_ns))
		atomic_store(&seat->waited_ns, waited_ns);
	rc = check_others(section, reef_barrier_round(barrier));
	atomic_fetch_add(&seat->takes, 1);
	board_at(section->board, section->seat, SPOT_HOLDS);
	return rc;
}

/* Leave the barrier for good: the others would wait for a member that stays
 * away. */
static int leave_barrier(struct section *section, struct reef_barrier *barrier)
{
	int rc;

	atomic_store(&seat_of(section)->joined, NEVER);
	do
		rc = reef_barrier_leave(barrier, LEAVE_NS);
	while (rc == -REEF_EMEMBER);
	return rc;
}

int barrier_participate(struct section *section, struct reef_space *space)
{
	struct board *board = section->board;
	struct seat *seat = seat_of(section);
	struct reef_barrier *barrier;
	int rc;

	rc = reef_barrier_open(space, guard_names[GUARD_BARRIER], NULL,
			       board->members, &barrier);
	if (rc)
		return rc;
	atomic_store(&seat->round, reef_barrier_round(barrier));
	atomic_store(&seat->joined, reef_barrier_round(barrier) + 1);
	while (!rc && !atomic_load(&board->stop)) {
		rc = meet_others(section, barrier);
		if (!rc && section_random(section, 4) == 0)
			reef_sleep(section_random(section, 1000000));
	}
	if (!rc)
		rc = leave_barrier(section, barrier);
	reef_barrier_close(barrier);
	return rc;
}
