/* worker.c - take, change, give, over and over; each participant in a thread
 * with a handle of its own, so that a process dies with several of them. */
#include "worker.h"

#include "base/clock.h"
#include "base/mutant.h"
#include "fixture/units.h"
#include "guard.h"
#include "section.h"
#include "sync/lock.h"

#include <errno.h>
#include <pthread.h>
#include <reef/fiber.h>
#include <stdio.h>
#include <string.h>

struct participant {
	struct section section;
	struct guard guard;
	int rc;
	bool told; /* as a reader: to be repaired */
};

/* --- one turn --- */

static uint64_t choose_timeout(struct section *section)
{
	switch (section_random(section, 16)) {
	case 0:
		return 0;
	case 1:
	case 2:
		return section_random(section, 5 * MILLISECOND);
	default:
		return REEF_FOREVER;
	}
}

static void note_wait(struct seat *seat, uint64_t begun_ns)
{
	uint64_t waited_ns = reef_now_ns() - begun_ns;

	if (waited_ns > atomic_load(&seat->waited_ns))
		atomic_store(&seat->waited_ns, waited_ns);
}

static int act_inside(struct participant *participant, bool reads, bool told)
{
	struct section *section = &participant->section;
	struct board_judge judge = section_judge(section);
	struct board *board = section->board;
	int rc = board_enter(board, section->seat, reads, &judge);

	if (rc)
		return rc;
	participant->told = reads && told;
	rc = reads ? section_read(section, told)
		   : section_update(section, told);
	if (rc)
		return rc;
	rc = board_leave(board, section->seat, reads, &judge);
	if (rc)
		return rc;
	board_at(board, section->seat, reads ? SPOT_GIVES_READ : SPOT_GIVES);
	return guard_give(&participant->guard);
}

static int take_turn(struct participant *participant, bool reads)
{
	struct section *section = &participant->section;
	struct seat *seat = &section->board->seats[section->seat];
	uint64_t timeout_ns = choose_timeout(section), begun_ns;
	int rc;

	board_at(section->board, section->seat,
		 reads ? SPOT_WAITS_READ : SPOT_WAITS);
	begun_ns = reef_now_ns();
	rc = guard_take(&participant->guard, reads, timeout_ns);
	if (timeout_ns != REEF_FOREVER && (rc == -EBUSY || rc == -ETIMEDOUT))
		return 0;
	if (rc < 0)
		return rc;
	note_wait(seat, begun_ns);
	atomic_fetch_add(&seat->takes, 1);
	if (rc == REEF_LOCK_INHERITED)
		atomic_fetch_add(&seat->inherited, 1);
	return act_inside(participant, reads, rc == REEF_LOCK_INHERITED);
}

static int take_turns(struct participant *participant)
{
	struct section *section = &participant->section;
	struct board *board = section->board;
	bool readers = guard_has_readers(board->kind), reads;
	int rc = 0;

	while (!rc && !atomic_load(&board->stop)) {
		reads = readers && !participant->told &&
			section_random(section, 100) < board->read_percent;
		rc = take_turn(participant, reads);
		board_at(board, section->seat, SPOT_IDLE);
		if (!rc && section_random(section, 2))
			reef_sleep(section_random(section, MILLISECOND));
	}
	return rc;
}

/* --- a life --- */

static int join_pool(struct participant *participant, struct reef_space **space)
{
	struct section *section = &participant->section;
	int rc = reef_open(NULL, NULL, &section->reef);

	if (!rc)
		rc = reef_space_open(section->reef, SPACE_NAME, NULL, space);
	return rc;
}

/* Clear what this participant's last session, which was fenced, left on the
 * board. */
static void reset_seat(struct section *section)
{
	struct seat *seat = &section->board->seats[section->seat];
	uint32_t owner = section->seat + 1;

	atomic_compare_exchange_strong(&section->board->owner, &owner, 0);
	atomic_store(&seat->reads, 0);
	atomic_store(&seat->session, reef_session(section->reef));
	atomic_store(&seat->doomed, 0);
}

static void *run_participant(void *context)
{
	struct participant *participant = context;
	struct section *section = &participant->section;
	struct board *board = section->board;
	struct reef_space *space;
	int rc;

	rc = join_pool(participant, &space);
	if (!rc)
		reset_seat(section);
	if (!rc && board->kind == GUARD_BARRIER) {
		rc = barrier_participate(section, space);
	} else if (!rc) {
		rc = guard_open(&participant->guard, board->kind, board->places,
				space);
		if (!rc)
			rc = take_turns(participant);
		guard_close(&participant->guard);
	}
	reef_close(section->reef);
	board_at(board, section->seat, SPOT_NONE);
	participant->rc = rc;
	return NULL;
}

static int run_participants(struct participant *participants, uint32_t count)
{
	pthread_t threads[PARTICIPANTS_MAX];
	int rc = 0;

	for (uint32_t i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, run_participant,
				   &participants[i]))
			return -EAGAIN;
	for (uint32_t i = 0; i < count; i++) {
		pthread_join(threads[i], NULL);
		if (participants[i].rc && rc != -EPROTO)
			rc = participants[i].rc;
	}
	return rc;
}

static int run_sessions(struct board *board, struct participant *participants,
			uint32_t count)
{
	int rc;

	do {
		rc = run_participants(participants, count);
		if (rc != -REEF_EFENCED)
			break;
		for (uint32_t i = 0; i < count; i++)
			atomic_fetch_add(
				&board->seats[participants[i].section.seat]
					 .fenced,
				1);
	} while (!atomic_load(&board->stop));
	return rc == -REEF_EFENCED ? 0 : rc;
}

int worker_run(struct board *board, uint32_t first, uint32_t count)
{
	struct participant participants[PARTICIPANTS_MAX] = {0};
	struct section *section;
	int rc;

	for (uint32_t i = 0; i < count; i++) {
		section = &participants[i].section;
		section->board = board;
		section->seat = first + i;
		section->random = board->seed * 8191 + first + i + 1;
	}
	reef_mutate((enum reef_mutant)board->mutant);
	rc = run_sessions(board, participants, count);
	for (uint32_t i = 0; !rc && i < count; i++)
		atomic_store(&board->seats[first + i].ended,
			     !participants[i].section.unsure);
	if (rc)
		board_fail(board, "worker %u: %s, %s", first,
			   reef_error_name(rc), reef_error_text(rc));
	return rc != 0;
}
