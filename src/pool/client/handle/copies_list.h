/* copies_list.h - a list of accesses to memory with copies while it is under
 * way: what copies.c, the engine, and copies_routes.c, which finds the places,
 * know of it.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_COPIES_LIST_H
#define REEF_POOL_CLIENT_HANDLE_COPIES_LIST_H

#include <reef/reef.h>

struct client_call;

#define AT_PRIMARY 1u
#define AT_ARBITER 2u

enum state { PREPARE, ASKING, POSTED, ENDED };
enum fate { UNDECIDED, WON, LOST, COVERED };

/* Where the copies of an access are, as of one view. */
struct route {
	uint32_t node, link_number;
	uint32_t twin; /* the arbiter's extent; 0: the primary is its own */
	uint32_t copy, twin_copy;     /* which memory that is */
	uint64_t number, twin_number; /* of their remotes */
};

/* How far an access is. */
struct item {
	struct route route;
	uint8_t fate;
	uint8_t written;  /* AT_PRIMARY, AT_ARBITER: a WRITE, and a blind FAA */
	bool is_compared; /* compare and operand are known */
	bool is_doubted;  /* a CAS at the arbiter was */
	bool has_won;	  /* before the row changed, at this copy: */
	uint32_t won_at;
	uint64_t compare, operand;
	uint64_t found; /* what the arbiter has */
	uint64_t told;	/* what the primary has */
	uint32_t adds;
};

struct owner {
	uint32_t item;
	uint8_t at;
	bool is_look; /* a READ for ourselves, not the caller's */
};

struct client_copies {
	struct reef *reef;
	struct client_call *call; /* what does a phase's parts */
	struct reef_access *accesses;
	uint32_t count;
	int pending;
	const uint64_t *header;
	enum state state;
	bool has_failed;   /* nothing more is begun */
	uint32_t from, to; /* the list under way */
	uint64_t version;  /* the view that its routes are of; 0: none yet */
	uint32_t attempts;
	uint32_t cohort;    /* of client_pin */
	bool is_unpinned;   /* while it waits, copies.h (8) */
	uint64_t until_ns;  /* how long it waits for another row; 0: not yet */
	uint32_t asked;	    /* the extent that the keeper was asked about */
	uint32_t asked_for; /* the access that it is for */
	uint32_t
		gone_for; /* the access of which a copy is gone, + 1; 0: none */
	uint32_t parts_count;
	struct client_copies *next;
	/* The members from here on stay when the storage is used again. */
	uint32_t room;
	struct item *items;
	struct owner *owners;
	struct reef_access *parts;
};

static inline struct item *item_of(struct client_copies *copies, uint32_t i)
{
	return &copies->items[i - copies->from];
}

static inline bool is_pending(const struct client_copies *copies, uint32_t i)
{
	return copies->accesses[i].status == copies->pending;
}

static inline uint32_t extent_of(const struct reef_access *access)
{
	return (uint32_t)(access->address >> 32);
}

/* The memory that arbitrates. */
static inline uint32_t arbiter_copy(const struct route *route)
{
	return route->twin ? route->twin_copy : route->copy;
}

/* --- copies.c --- */

/* An access has ended. */
void copies_finish(struct client_copies *copies, uint32_t i, int status);
/* An access cannot be carried on, because of rc: what is said of it. */
void copies_fail(struct client_copies *copies, uint32_t i, int rc);

/* --- copies_routes.c --- */

/* Look up where the accesses of the list go, all in one view: that of the phase
 * before, while it is the current one. 0: it is known, or an access has failed.
 * -EAGAIN: the keeper was asked. */
int copies_find_routes(struct client_copies *copies);
/* A copy of an access is gone, although its row named it: wait for another row.
 */
void copies_await_row(struct client_copies *copies, uint32_t i,
		      const struct route *gone);
/* Pin the epoch again that was let go while the keeper was asked. What an FAA
 * was to compare with is of another one. */
void copies_pin_again(struct client_copies *copies);
/* A WRITE was done at one more of the copies, or its row has changed: it is
 * done where it was at all that there are. */
void copies_note_written(struct client_copies *copies, uint32_t i, uint8_t at);

#endif
