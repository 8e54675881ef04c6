/* board.c - the shared page, and who may be inside at once. */
#include "board.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <reef/fiber.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const guard_names[GUARD_KINDS] = {
	[GUARD_SHIFT] = "shift",     [GUARD_SPIN] = "spin",
	[GUARD_MCS] = "mcs",	     [GUARD_RW] = "rw",
	[GUARD_LEASE] = "lease",     [GUARD_ELECTION] = "election",
	[GUARD_NOTHING] = "nothing", [GUARD_BARRIER] = "barrier",
};

const char *const spot_names[SPOTS] = {
	[SPOT_NONE] = "away",
	[SPOT_IDLE] = "idle",
	[SPOT_WAITS] = "waits",
	[SPOT_WAITS_READ] = "waits to read",
	[SPOT_HOLDS] = "holds",
	[SPOT_INTENT] = "will change",
	[SPOT_HALF] = "half done",
	[SPOT_DONE] = "done",
	[SPOT_GIVES] = "gives",
	[SPOT_READS] = "reads",
	[SPOT_GIVES_READ] = "stops reading",
};

static struct board *map_board(int fd)
{
	void *at = mmap(NULL, sizeof(struct board), PROT_READ | PROT_WRITE,
			MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

struct board *board_create(int *fd)
{
	*fd = memfd_create("board", 0);
	if (*fd < 0 || ftruncate(*fd, sizeof(struct board)))
		return NULL;
	return map_board(*fd);
}

struct board *board_attach(int fd)
{
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return map_board(fd);
}

int board_fail(struct board *board, const char *format, ...)
{
	uint32_t none = 0;
	va_list arguments;

	if (atomic_compare_exchange_strong(&board->bad, &none, 1)) {
		va_start(arguments, format);
		vsnprintf(board->text, TEXT_SIZE, format, arguments);
		va_end(arguments);
		atomic_store(&board->bad, 2);
	}
	return -EPROTO;
}

void board_at(struct board *board, uint32_t seat, enum spot spot)
{
	uint32_t wanted = spot;

	atomic_store(&board->seats[seat].since_ns, reef_now_ns());
	atomic_store(&board->seats[seat].spot, spot);
	if (spot == SPOT_NONE || atomic_load(&board->trap) != wanted ||
	    !atomic_compare_exchange_strong(&board->trap, &wanted, SPOT_NONE))
		return;
	atomic_store(&board->trapped, seat + 1);
	while (atomic_load(&board->trapped) == seat + 1)
		reef_sleep(1000000);
}

bool board_counts(const struct board *board, uint32_t seat,
		  const struct board_judge *judge)
{
	const struct seat *other = &board->seats[seat];

	return !atomic_load(&other->doomed) &&
	       !judge->is_over(judge->context, atomic_load(&other->session));
}

static int enter_alone(struct board *board, uint32_t seat,
		       const struct board_judge *judge)
{
	uint32_t was = atomic_exchange(&board->owner, seat + 1);
	uint32_t used = atomic_load(&board->seats_used);

	if (was && board_counts(board, was - 1, judge))
		return board_fail(board, "%u holds it, and so does %u", seat,
				  was - 1);
	for (uint32_t i = 0; i < used; i++)
		if (i != seat && atomic_load(&board->seats[i].reads) &&
		    board_counts(board, i, judge))
			return board_fail(board, "%u holds it, and %u reads",
					  seat, i);
	return 0;
}

/* Enter a section, and check who else is inside. Each of two first says that it
 * is there, and then looks, sequentially consistent: at least one sees the
 * other. */
int board_enter(struct board *board, uint32_t seat, bool reads,
		const struct board_judge *judge)
{
	uint32_t owner;

	if (!reads)
		return enter_alone(board, seat, judge);
	atomic_store(&board->seats[seat].reads, 1);
	owner = atomic_load(&board->owner);
	if (owner && board_counts(board, owner - 1, judge))
		return board_fail(board, "%u reads, and %u holds it", seat,
				  owner - 1);
	return 0;
}

int board_leave(struct board *board, uint32_t seat, bool reads,
		const struct board_judge *judge)
{
	uint32_t owner = seat + 1;

	if (reads) {
		atomic_store(&board->seats[seat].reads, 0);
		return 0;
	}
	if (atomic_compare_exchange_strong(&board->owner, &owner, 0) ||
	    !board_counts(board, seat, judge))
		return 0;
	return board_fail(board, "%u gives it, but %u holds it", seat,
			  owner - 1);
}
