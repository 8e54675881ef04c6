/* guests.h - who may ask over HTTP, and how long they may take.
 *
 *	arrive --> the request comes in --> is answered --> leave
 *	           HEAD_S, or               ANSWER_S          |
 *	           CROWDED_S  <-------------------------------+
 *
 * (1) A request is served if its Host is an address, or a name that means this
 *     machine, if no page from elsewhere has a browser ask, and if it says
 *     nothing twice that is gone by: who stands before us may have gone by the
 *     other one.
 * (2) However slowly somebody sends or reads, and be it a byte now and then, a
 *     connection ends when its time is over. Who waits for what we do, or
 *     watches, has no such end.
 * (3) Once half of the connections that there may be are taken, requests have
 *     CROWDED_S to come in: so a crowd keeps others waiting, and does not shut
 *     them out. (Nearly every connection is for one request: whoever answers
 *     before the daemon has looked for a body has it closed. Who waited for
 *     what we did may go on.)
 *
 * Thread: any; guests_end_overdue is one thread's. */
#ifndef REEF_CMD_HTTP_GUESTS_H
#define REEF_CMD_HTTP_GUESTS_H

#include <microhttpd.h>
#include <stdint.h>

#define GUESTS_HEAD_S 10
#define GUESTS_CROWDED_S 2
#define GUESTS_ANSWER_S 30

struct guests;

/* most: connections. host: that we listen on, which stays the caller's. wake:
 * called, by any thread, when guests_end_overdue said -1 and somebody came.
 * NULL: there is no memory. */
struct guests *guests_create(uint32_t most, const char *host,
			     void (*wake)(void *context), void *context);

/* For the daemon, whose context is the guests: a connection came, or goes
 * before its descriptor is closed. */
void guests_notify(void *context, struct MHD_Connection *connection, void **own,
		   enum MHD_ConnectionNotificationCode what);

/* The head of a request is there. NULL: it may be served; else why not. */
const char *guest_check(const struct guests *guests,
			struct MHD_Connection *connection);
/* The request was answered, and another may come. */
void guest_asks(struct guests *guests, struct MHD_Connection *connection);
/* All of a request is there: it is about to be answered; or it waits for what
 * is done for it, or watches. */
void guest_is_answered(struct guests *guests,
		       struct MHD_Connection *connection);
void guest_waits(struct guests *guests, struct MHD_Connection *connection);

/* End connections whose time is over. Milliseconds until that is to be called
 * again; -1: there are none. */
int guests_end_overdue(struct guests *guests);

#endif
