/* watch.h - who watches a pool: server-sent events, a picture each second.
 *
 *	retry: 1000
 *
 *	event: event            one for each event of the broker, in order
 *	id: 3-17                start of the broker, number of the event
 *	data: {"event":17,...}  as /api/v1/events has it
 *
 *	event: status           once a second, after the events
 *	id: 3-17                the newest event that was told
 *	data: {"pool":...}      as /api/v1/status has it
 *
 *	event: trouble          instead of status: the broker does not answer
 *	data: {"error":"ETIMEDOUT","text":"..."}
 *
 * (1) A picture is made once a second for all watchers together, and none while
 *     there are none.
 * (2) A watcher has at most one picture under way, which it shares with the
 *     others. One that reads slowly misses pictures, and no event that is among
 *     the WATCH_EVENTS newest.
 * (3) There are at most WATCHERS_MAX, fewer than connections: so they keep
 *     nobody from asking.
 * (4) Who comes back with the id that it saw last is told the events after
 *     that; if the broker has been started anew, all that are known.
 *
 * Thread: any, but for watch_due_ns and what publishes, which are one thread's.
 */
#ifndef REEF_CMD_HTTP_WATCH_H
#define REEF_CMD_HTTP_WATCH_H

#include <stddef.h>
#include <stdint.h>

#define WATCHERS_MAX 64u
#define WATCH_EVENTS 256u /* that are kept for who comes back */

struct MHD_Connection;
struct MHD_Response;
struct reef_answer;
struct watch;

/* wake: called, by any thread, when a picture is due sooner than watch_due_ns
 * said. NULL: there is no memory. */
struct watch *watch_create(void (*wake)(void *context), void *context);

/* When the next picture is due; UINT64_MAX: nobody watches. */
uint64_t watch_due_ns(struct watch *watch);
/* Take in the broker's start and its events, the rows of an answer to
 * REEF_POOL_STATUS; then show a status, which is taken over. */
void watch_take_events(struct watch *watch, const struct reef_answer *answer);
void watch_show(struct watch *watch, char *json, size_t size);
/* Show that the broker does not answer. */
void watch_show_trouble(struct watch *watch, int error);

/* Make the response of one more watcher. last_id: of its Last-Event-ID; NULL:
 * none.  -EINVAL: that is not one of ours.  -EAGAIN: there are enough.
 * -ENOMEM. */
int watch_begin(struct watch *watch, struct MHD_Connection *connection,
		const char *last_id, struct MHD_Response **out);

/* How many there are. */
uint32_t watch_count(struct watch *watch);
/* End all watchers, before the daemon is stopped. */
void watch_end(struct watch *watch);

#endif
