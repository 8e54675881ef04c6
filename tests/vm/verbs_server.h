/* verbs_server.h - the other end of test_verbs: a process that lends memory,
 * and does what messages of a session of its own tell it.
 *
 * Thread: one call per process. */
#ifndef REEF_TESTS_VM_VERBS_SERVER_H
#define REEF_TESTS_VM_VERBS_SERVER_H

#include "fabric/fabric.h"

#define PORT 7471
#define BOSS 0xfffe0001u /* the session that gives orders */

/* NAP: answer, do nothing for `a` nanoseconds, and from then on count what
 * session `b` sends instead of sending it back. COUNT: how much that was.
 * CLOSED: how many links have ended here. */
enum { EXPOSE = 1, WITHDRAW, FENCE, LOAD, CUT, DIE, QUIT, NAP, COUNT, CLOSED };

struct order {
	uint64_t what, a, b;
};

struct answer {
	int64_t result;
	uint64_t value;
};

extern const uint8_t server_key[REEF_KEY_SIZE];
extern const struct reef_fabric_options server_options; /* of both ends */

/* A variable of the environment, or else that. */
const char *server_variable(const char *name, const char *otherwise);

/* Send a message through a link; whether it arrives the answer tells. */
void send_bytes(struct reef_queue *queue, struct reef_link *link, void *bytes,
		uint32_t length);

/* Serve until an order ends it. Returns the exit status. */
int server_main(void);

#endif
