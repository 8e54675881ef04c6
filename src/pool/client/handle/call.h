/* call.h - a list of accesses, from one state to the next. How: call.c.
 *
 * Thread: owner of the handle. */
#ifndef REEF_POOL_CLIENT_HANDLE_CALL_H
#define REEF_POOL_CLIENT_HANDLE_CALL_H

#include <reef/reef.h>

/* What an access may have for flags. */
#define CLIENT_FLAGS (REEF_ORDERED | REEF_BLIND | REEF_SINGLE)

struct client_call;

/* As reef_execute, without writing headers that wait first: for heaps. */
int client_execute(struct reef *reef, struct reef_access *accesses,
		   uint32_t count);

/* The same, and nothing of it in place. */
int client_execute_far(struct reef *reef, struct reef_access *accesses,
		       uint32_t count);

struct client_call *client_call_take(struct reef *reef, uint32_t count);
void client_call_give(struct reef *reef, struct client_call *call);
void client_call_free(struct client_call *calls);
void client_call_begin(struct client_call *call, struct reef *reef,
		       struct reef_access *accesses, uint32_t count);
/* Begin with the parts of accesses to memory with copies (copies.h), which are
 * posted in that version of the view and no other. What a node refused is not
 * repeated: -REEF_ENOTDONE, -ESTALE, when the keeper has seen to it. */
void client_call_begin_parts(struct client_call *call, struct reef *reef,
			     struct reef_access *accesses, uint32_t count,
			     uint64_t version);
/* Begin with asking the keeper to make an extent usable, and nothing else.
 * number: what was attached with that number, at that node over that link, is
 * of no use any more; 0: just that. */
void client_call_begin_touch(struct client_call *call, struct reef *reef,
			     uint32_t extent, uint32_t node,
			     uint32_t link_number, uint64_t number);
int client_call_touched(const struct client_call *call); /* what it said */
/* Go on as far as it goes without waiting. True: it has ended. */
bool client_call_step(struct client_call *call);
/* Wait until client_call_step can do something. */
int client_call_wait(struct client_call *call);
int client_call_status(const struct client_call *call);
struct client_call **client_call_next(struct client_call *call);
struct reef_task **client_call_task(struct client_call *call);
/* Do not do the accesses that are left: the first gets rc. */
void client_call_fail(struct client_call *call, int rc);
/* True if client_call_step would do something. */
bool client_call_is_ready(const struct client_call *call);
/* Headers of fresh blocks: put those that fit in front, write the others. */
int client_call_headers(struct client_call *call);

#endif
