/* operator.h - questions and orders to a broker, from the command line.
 *
 * A link that reads lists and status, and, as far as the user's rights go,
 * manages users, spaces, nodes and sessions. It opens a session when it first
 * changes something.
 *
 * Blocks the calling thread, outside any fiber.
 *
 * Thread: owner. */
#ifndef REEF_POOL_OPERATOR_H
#define REEF_POOL_OPERATOR_H

#include "pool/rpc.h"

struct reef_credential;
struct reef_operator;

struct reef_operator_options {
	const char *broker; /* addresses; several places separated by ',' */
	const struct reef_credential *credential;
	const char *kinds; /* fabrics; NULL: all there are */
	const char *tls;   /* auto, yes or no; NULL: auto */
	/* Of each call, and to connect; 0: 5 s. What waits for holders of
	 * memory has six times that. */
	uint64_t timeout_ns;
};

/* Caller owns *out.  Errors as reef_rpc_connect. */
int reef_operator_open(const struct reef_operator_options *options,
		       struct reef_operator **out);
void reef_operator_close(struct reef_operator *op); /* NULL is fine */

/* Ask the broker something, as reef_rpc_call does. */
int reef_operator_call(struct reef_operator *op, uint16_t kind,
		       const struct reef_body *body,
		       struct reef_answer *answer);

/* Every row of a kind, in the order of their numbers; texts are borrowed until
 * `each` returns; an error of it ends the list and is returned. */
int reef_operator_list(struct reef_operator *op, enum reef_row_kind kind,
		       int (*each)(void *context, const struct reef_row *row),
		       void *context);

/* Whose credential it was opened with; 0: the owner's. */
uint32_t reef_operator_user(const struct reef_operator *op);
/* The fabric of the link, for people. */
const char *reef_operator_fabric(const struct reef_operator *op);

#endif
