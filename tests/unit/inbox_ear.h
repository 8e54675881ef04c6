/* inbox_ear.h - one who listens for messages of an object, for the tests of
 * inboxes.
 *
 * Thread: the handle's. */
#ifndef REEF_TESTS_INBOX_EAR_H
#define REEF_TESTS_INBOX_EAR_H

#include "pool/client/inbox/inbox.h"

#include <reef/reef.h>

/* Notes what comes for one object. */
struct ear {
	struct reef_watch watch;
	uint64_t count, last, wanted;
};

static inline void ear_message(struct reef_watch *watch,
			       const struct reef_wake *wake)
{
	struct ear *ear = watch->user;

	ear->count++;
	ear->last = wake->word;
}

static inline void ear_open(struct reef *reef, struct ear *ear, uint64_t object)
{
	*ear = (struct ear){
		.watch = {.object = object,
			  .message = ear_message,
			  .user = ear},
	};
	reef_inbox_watch(reef, &ear->watch);
}

static inline void ear_close(struct reef *reef, struct ear *ear)
{
	reef_inbox_unwatch(reef, &ear->watch);
}

static inline bool ear_has(const void *what)
{
	const struct ear *ear = what;

	return ear->last >= ear->wanted;
}

static inline int ear_wait(struct reef *reef, struct ear *ear, uint64_t wanted,
			   uint64_t timeout_ns)
{
	ear->wanted = wanted;
	return reef_inbox_wait(reef, ear_has, ear, timeout_ns);
}

static inline bool never(const void *what)
{
	return false;
}

#endif
