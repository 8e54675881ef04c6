/* settle.c - links that a session lost, ended at their nodes: SETTLE.
 *
 * What was under way on a link that was lost may still happen (F5), until the
 * session has a new link to that node. Where it cannot make one, the broker,
 * which reaches both, has the node end the old one. Nobody is fenced.
 *
 *   session              broker                  node
 *     SETTLE {links} -->   END session, number -->  no link of it up to that
 *                          (each node side by side)  number is left, none comes
 *            <-- those     <-------- confirmed
 *            settled
 *
 * (1) A link is settled when its node has confirmed END, or when the life of
 *     the node that it was to is over: DEAD, removed, or another incarnation
 *     than the asker's is there, which comes only after the old one is DEAD.
 * (2) A session settles its own links: END names the session whose control link
 *     the question came by.
 * (3) Nothing is journaled. END may be repeated, and so may SETTLE: who gets no
 *     answer asks again, the next broker too.
 * (4) A question has at most REEF_SETTLE_MAX links, one to a node, a session at
 *     most SETTLES_MAX questions at once: nobody fills a node with ENDs. A node
 *     that is out of reach is asked again for as long as node_ttl, when it is
 *     DEAD, but for ANSWER_NS at most. The answer has the links that are
 *     settled; about others one asks again. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

#define SETTLES_MAX 4
#define ANSWER_NS UINT64_C(1000000000)

struct ending {
	struct reef_broker *broker;
	struct reef_fiber *fiber;
	uint32_t session;
	uint64_t until_ns;
	struct reef_row_link link;
};

/* True if the life of the node that the link was to is over: (1). */
static bool is_life_over(const struct reef_broker *broker,
			 const struct reef_row_link *link)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, link->node);

	return !node || node->state == REEF_NODE_DEAD ||
	       node->incarnation != link->incarnation;
}

/* Have a node end a link, until it has confirmed that or there is no more time.
 * Sets the link's fate. */
static int end_link(void *arg)
{
	struct ending *ending = arg;
	struct reef_broker *broker = ending->broker;
	struct reef_body body = {
		.ask.end = {.session = ending->session,
			    .number = ending->link.number},
	};
	uint64_t pause_ns = 0;
	int rc = 0;

	while (!rc) {
		if (is_life_over(broker, &ending->link)) {
			ending->link.fate = REEF_LINK_LOST;
			return 0;
		}
		if (reef_now_ns() >= ending->until_ns)
			return 0;
		rc = broker_node_call_early(broker, ending->link.node,
					    REEF_POOL_END, &body, NULL);
		if (rc == 0) {
			ending->link.fate = REEF_LINK_ENDED;
			return 0;
		}
		if (rc != -ECANCELED && rc != -REEF_EHOSTDEAD)
			rc = broker_sleep_longer(broker, &pause_ns);
	}
	return rc;
}

/* True if one of the links is to that node. */
static bool has_link_to(const struct ending *endings, uint32_t count,
			uint32_t node)
{
	while (count && endings[count - 1].link.node != node)
		count--;
	return count > 0;
}

/* Copy the links of a question.  -EINVAL: none, too many, a row of another
 * kind, number 0, a node that this pool never had, or one twice. */
static int copy_links(const struct reef_broker *broker,
		      const struct reef_request *request,
		      struct ending endings[REEF_SETTLE_MAX], uint32_t *count)
{
	struct reef_cursor_in in = {
		.bytes = request->body.rows,
		.left = request->body.rows_size,
	};
	struct reef_state_summary summary;
	struct reef_row row;
	int rc;

	reef_state_summary(broker->state, &summary);
	*count = 0;
	while ((rc = reef_row_decode(&in, &row)) > 0) {
		if (*count == REEF_SETTLE_MAX || row.row != REEF_ROW_LINK ||
		    !row.link.number || !row.link.node ||
		    row.link.node >= summary.next_node ||
		    has_link_to(endings, *count, row.link.node))
			return -EINVAL;
		row.link.fate = REEF_LINK_IN_DOUBT;
		endings[(*count)++].link = row.link;
	}
	if (rc)
		return rc;
	return *count ? 0 : -EINVAL;
}

/* End all links, side by side. Those for which there is no fiber are ended in
 * this one. */
static int end_links(struct ending *endings, uint32_t count)
{
	struct reef_broker *broker = endings[0].broker;
	uint32_t i;
	int rc, one;

	if (REEF_MUTATED(BROKER_SETTLE_ONE)) {
		for (i = 1; i < count; i++)
			endings[i].link.fate = REEF_LINK_ENDED;
		count = 1;
	}
	for (i = 1; i < count; i++)
		if (reef_fiber_spawn(broker->sched, end_link, &endings[i],
				     &endings[i].fiber))
			endings[i].fiber = NULL;
	rc = end_link(&endings[0]);
	for (i = 1; i < count; i++) {
		if (endings[i].fiber)
			reef_fiber_join(endings[i].fiber, &one);
		else
			one = end_link(&endings[i]);
		rc = rc ? rc : one;
	}
	return rc;
}

static void encode_settled(const struct ending *endings, uint32_t count,
			   struct reef_cursor_out *room)
{
	struct reef_row row = {.row = REEF_ROW_LINK};

	for (uint32_t i = 0; i < count; i++) {
		row.link = endings[i].link;
		if (row.link.fate != REEF_LINK_IN_DOUBT)
			reef_row_encode(&row, room);
	}
}

/* Answer a question that was counted in its session's settles. */
static int settle_links(struct reef_broker *broker,
			const struct reef_request *request, uint32_t session,
			struct reef_cursor_out *room)
{
	struct ending *endings = calloc(REEF_SETTLE_MAX, sizeof(*endings));
	uint64_t wait_ns = broker_node_ttl(broker), until_ns;
	uint32_t count, i;
	int rc;

	if (!endings)
		return -ENOMEM;
	until_ns = reef_now_ns() + (wait_ns < ANSWER_NS ? wait_ns : ANSWER_NS);
	rc = copy_links(broker, request, endings, &count);
	for (i = 0; rc == 0 && i < count; i++) {
		endings[i].broker = broker;
		endings[i].session = session;
		endings[i].until_ns = until_ns;
	}
	if (rc == 0)
		rc = end_links(endings, count);
	if (rc == 0)
		encode_settled(endings, count, room);
	free(endings);
	return rc;
}

BROKER_REQUEST(broker_settle)
{
	struct broker_session *session = broker_session_of(request);
	uint32_t id = session->id;
	int rc;

	if (session->settles >= SETTLES_MAX)
		return -EBUSY;
	session->settles++;
	rc = settle_links(broker, request, id, room);
	session = broker_session_find(broker, id);
	if (session)
		session->settles--;
	if (rc == 0)
		broker_rows_finish(answer, room);
	return rc;
}
