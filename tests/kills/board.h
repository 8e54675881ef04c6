/* board.h - what the processes of a test of deaths share: plain memory that
 * outlives whoever is killed, so that it says where it was.
 *
 * The killer (killer.c) starts workers (worker.c), kills and stops them, and
 * starts others. A worker has one or two participants, each of which takes a
 * guard (guard.h), changes data of the pool under it (section.h), gives it, and
 * says on the board where it is. A participant has a *seat*, never used twice.
 *
 * (1) The board is also the judge: whoever comes in looks who else is there.
 *     Those whom the killer has *doomed*, just before the signal, do not count;
 *     whether they do any harm, the data tells.
 * (2) A *trap*: the first participant at that spot stays there until it is
 *     killed or let go. So the moments that matter are met every time.
 *
 * Thread: any; what is not atomic is set before the first worker starts. */
#ifndef REEF_TESTS_KILLS_BOARD_H
#define REEF_TESTS_KILLS_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SEATS_MAX 8192u
#define TEXT_SIZE 200

enum spot {
	SPOT_NONE, /* not there yet, or not any more */
	SPOT_IDLE,
	SPOT_WAITS,	 /* to write: about to take, or waiting */
	SPOT_WAITS_READ, /* to read */
	SPOT_HOLDS,	 /* before it changes anything */
	SPOT_INTENT,	 /* it has said what it will change */
	SPOT_HALF,	 /* half of it is changed */
	SPOT_DONE,	 /* all of it */
	SPOT_GIVES,
	SPOT_READS,
	SPOT_GIVES_READ,
	SPOTS
};

enum guard_kind {
	GUARD_SHIFT, /* in the order of enum reef_lock_kind */
	GUARD_SPIN,
	GUARD_MCS,
	GUARD_RW,
	GUARD_LEASE,
	GUARD_ELECTION,
	GUARD_NOTHING, /* takes nothing: to see whether the test can fail */
	GUARD_BARRIER, /* barrier.c */
	GUARD_KINDS
};

struct seat {
	_Atomic uint32_t spot;
	_Atomic uint32_t doomed;
	_Atomic uint32_t reads;
	_Atomic uint32_t ended;	   /* by itself, as it should */
	_Atomic uint64_t since_ns; /* at its spot */
	_Atomic uint64_t takes;
	_Atomic uint64_t updates;
	_Atomic uint64_t inherited; /* takes for which it was told so; deaths */
	_Atomic uint64_t repaired;  /* what others left half done */
	_Atomic uint64_t fenced;
	_Atomic uint64_t waited_ns; /* the longest */
	_Atomic uint32_t session;
	_Atomic uint64_t round;	   /* of a barrier: the one it comes to */
	_Atomic uint64_t joined;   /* its first; 0: none yet */
	_Atomic uint64_t expected; /* deaths that it is to hear of */
};

struct board {
	enum guard_kind kind;
	uint32_t mutant;       /* enum reef_mutant */
	uint32_t read_percent; /* of takes, where there are readers */
	uint32_t hold_us;      /* at most, at each of three moments */
	uint32_t members;      /* of a barrier, at first */
	uint32_t places;       /* of a lock; 0: the default */
	uint64_t seed;
	uint64_t data;	 /* address of what is protected */
	uint64_t ttl_ns; /* of a session */

	_Atomic uint32_t seats_used;
	_Atomic uint32_t stop;
	_Atomic uint32_t owner;	  /* seat + 1 */
	_Atomic uint32_t trap;	  /* enum spot */
	_Atomic uint32_t trapped; /* seat + 1 */
	_Atomic uint32_t bad;	  /* 1: text is being written, 2: it is */
	char text[TEXT_SIZE];
	struct seat seats[SEATS_MAX];
};

#define SPACE_NAME "kills"

extern const char *const guard_names[GUARD_KINDS]; /* of objects, too */
extern const char *const spot_names[SPOTS];

/* Make a board whose descriptor children inherit; or open the parent's. */
struct board *board_create(int *fd);
struct board *board_attach(int fd);

/* Fail the test; the first reason is kept. Returns -EPROTO. */
int board_fail(struct board *board, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Say that this participant is at a spot now, and stay if that is a trap. */
void board_at(struct board *board, uint32_t seat, enum spot spot);

/* Who tells whether a session is over: on a busy machine one may be that nobody
 * doomed. */
struct board_judge {
	bool (*is_over)(void *context, uint32_t session);
	void *context;
};
bool board_counts(const struct board *board, uint32_t seat,
		  const struct board_judge *judge);

/* Enter, or leave, and check that nobody is inside who should not be. 0, or
 * -EPROTO. */
int board_enter(struct board *board, uint32_t seat, bool reads,
		const struct board_judge *judge);
int board_leave(struct board *board, uint32_t seat, bool reads,
		const struct board_judge *judge);

#endif
