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
 *     settled; about others one asks again.
 * (5) Nobody waits in a handler, for how long a link takes to end can be up to
 *     who has it. One fiber answers questions, when all their links are
 *     settled, their time is over, or their own link is gone; one for each
 *     node asks that for END after END. A node that cannot confirm says so
 *     soon (node/later.c), and is asked again after a pause; users have their
 *     turn one after the other, however many ENDs each has. */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <stdlib.h>

#define SETTLES_MAX 4
#define ANSWER_NS UINT64_C(1000000000)
#define PAUSE_MIN_NS UINT64_C(1000000)
#define PAUSE_MAX_NS UINT64_C(100000000)

/* A link to be ended. */
struct ending {
	struct reef_row_link link;
	uint64_t due_ns, pause_ns;
};

/* A question that is not answered yet. */
struct broker_settling {
	const struct reef_request *request;
	uint64_t number; /* no other has it */
	uint32_t session, user;
	uint64_t until_ns;
	uint32_t count;
	struct broker_settling *next;
	struct ending endings[];
};

/* True if the life of the node that the link was to is over: (1). */
static bool is_life_over(const struct reef_broker *broker,
			 const struct reef_row_link *link)
{
	const struct reef_state_node *node =
		reef_state_node(broker->state, link->node);

	return !node || reef_node_is_gone(node->state) ||
	       node->incarnation != link->incarnation;
}

/* True if one of the links is to that node. */
static bool has_link_to(const struct reef_row_link *links, uint32_t count,
			uint32_t node)
{
	while (count && links[count - 1].node != node)
		count--;
	return count > 0;
}

/* Copy the links of a question.  -EINVAL: none, too many, a row of another
 * kind, number 0, a node that this pool never had, or one twice. */
static int copy_links(const struct reef_broker *broker,
		      const struct reef_request *request,
		      struct reef_row_link links[REEF_SETTLE_MAX],
		      uint32_t *count)
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
		    has_link_to(links, *count, row.link.node))
			return -EINVAL;
		row.link.fate = REEF_LINK_IN_DOUBT;
		links[(*count)++] = row.link;
	}
	if (rc)
		return rc;
	return *count ? 0 : -EINVAL;
}

/* --- the ENDs of a node --- */

static struct broker_settling *find_settling(const struct reef_broker *broker,
					     uint64_t number)
{
	struct broker_settling *at = broker->settlings;

	while (at && at->number != number)
		at = at->next;
	return at;
}

/* The link of a question to that node, in doubt. NULL: none. */
static struct ending *find_ending(struct broker_settling *settling,
				  uint32_t node)
{
	struct ending *at = settling->endings;

	for (uint32_t i = 0; i < settling->count; i++, at++)
		if (at->link.node == node &&
		    at->link.fate == REEF_LINK_IN_DOUBT)
			return at;
	return NULL;
}

/* How far a user is from being the next: (5). */
static uint32_t distance_of(const struct broker_node *node, uint32_t user)
{
	return user - node->settled_user - 1;
}

/* The question whose END at this node is next: of those that are due, of the
 * user whose turn it is, else the one that is due first. NULL: none. */
static struct broker_settling *find_next(struct reef_broker *broker,
					 const struct broker_node *node,
					 uint64_t now_ns)
{
	struct broker_settling *at, *next = NULL;
	const struct ending *ending, *best = NULL;
	bool is_due, is_better;

	for (at = broker->settlings; at; at = at->next) {
		ending = find_ending(at, node->id);
		if (!ending)
			continue;
		is_due = ending->due_ns <= now_ns;
		if (!best)
			is_better = true;
		else if (is_due && best->due_ns <= now_ns &&
			 at->user != next->user)
			is_better = distance_of(node, at->user) <
				    distance_of(node, next->user);
		else
			is_better = ending->due_ns < best->due_ns;
		if (is_better) {
			next = at;
			best = ending;
		}
	}
	return next;
}

/* Have the node end a link, tried once, and note what came of it. */
static int end_link(struct reef_broker *broker, uint32_t node, uint64_t number)
{
	struct broker_settling *settling = find_settling(broker, number);
	struct ending *ending = find_ending(settling, node);
	struct reef_body body = {
		.ask.end = {.session = settling->session,
			    .number = ending->link.number},
	};
	int rc;

	if (is_life_over(broker, &ending->link)) {
		ending->link.fate = REEF_LINK_LOST;
		broker_wake(broker);
		return 0;
	}
	rc = broker_node_call_early(broker, node, REEF_POOL_END, &body, NULL);
	if (rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
		return rc;
	settling = find_settling(broker, number);
	ending = settling ? find_ending(settling, node) : NULL;
	if (!ending)
		return 0;
	if (rc == 0) {
		ending->link.fate = REEF_LINK_ENDED;
		broker_wake(broker);
		return 0;
	}
	ending->pause_ns =
		ending->pause_ns ? 2 * ending->pause_ns : PAUSE_MIN_NS;
	if (ending->pause_ns > PAUSE_MAX_NS)
		ending->pause_ns = PAUSE_MAX_NS;
	ending->due_ns = reef_now_ns() + ending->pause_ns;
	return 0;
}

static void run_ends(struct reef_broker *broker, uint32_t id)
{
	struct broker_settling *next;
	struct broker_node *node;
	uint64_t now_ns, due_ns;
	int rc = 0;

	while (rc == 0 && (node = broker_node_find(broker, id))) {
		now_ns = reef_now_ns();
		next = find_next(broker, node, now_ns);
		if (!next)
			break;
		due_ns = find_ending(next, id)->due_ns;
		if (due_ns > now_ns) {
			rc = broker_sleep(broker, due_ns - now_ns);
			continue;
		}
		node->settled_user = next->user;
		rc = end_link(broker, id, next->number);
	}
	node = broker_node_find(broker, id);
	if (node)
		node->settling = false;
}

/* --- the answers --- */

/* True if nothing of the question is in doubt any more. */
static bool is_settled(struct reef_broker *broker,
		       struct broker_settling *settling)
{
	struct ending *at = settling->endings;
	bool settled = true;

	for (uint32_t i = 0; i < settling->count; i++, at++) {
		if (at->link.fate == REEF_LINK_IN_DOUBT &&
		    is_life_over(broker, &at->link))
			at->link.fate = REEF_LINK_LOST;
		settled &= at->link.fate != REEF_LINK_IN_DOUBT;
	}
	return settled;
}

/* Answer a question with what is settled of it; rc: or with that. */
static void answer_question(struct reef_broker *broker,
			    struct broker_settling *settling, int rc)
{
	struct broker_settling **at = &broker->settlings;
	struct reef_row row = {.row = REEF_ROW_LINK};
	struct broker_session *session =
		broker_session_find(broker, settling->session);
	struct reef_cursor_out room = {0};
	struct reef_body answer = {0};

	while (*at != settling)
		at = &(*at)->next;
	*at = settling->next;
	if (session)
		session->settles--;
	for (uint32_t i = 0; i < settling->count; i++) {
		row.link = settling->endings[i].link;
		if (row.link.fate != REEF_LINK_IN_DOUBT)
			reef_row_encode(&row, &room);
	}
	if (room.failed)
		rc = -ENOMEM;
	broker_rows_finish(&answer, &room);
	if (rc == -ECANCELED)
		reef_request_answer(settling->request, -REEF_EINDOUBT, NULL);
	else
		broker_answer_later(broker, settling->request, rc, &answer);
	free(room.bytes);
	free(settling);
}

/* The first question that can be answered; *next_ns: when one can be, else. */
static struct broker_settling *find_answerable(struct reef_broker *broker,
					       uint64_t now_ns,
					       uint64_t *next_ns)
{
	struct broker_settling *at;

	*next_ns = REEF_FOREVER;
	for (at = broker->settlings; at; at = at->next) {
		if (is_settled(broker, at) || at->until_ns <= now_ns ||
		    !at->request->peer->link)
			return at;
		if (at->until_ns < *next_ns)
			*next_ns = at->until_ns;
	}
	return NULL;
}

static void run_answers(struct reef_broker *broker, uint32_t ignored)
{
	struct broker_settling *settling;
	uint64_t now_ns, next_ns;
	int rc = 0;

	(void)ignored;
	while (rc == 0 && broker->settlings) {
		now_ns = reef_now_ns();
		settling = find_answerable(broker, now_ns, &next_ns);
		if (settling)
			answer_question(broker, settling, 0);
		else
			rc = broker_sleep(broker, next_ns - now_ns);
	}
	broker->settles = false;
	broker_settles_end(broker);
}

void broker_settles_end(struct reef_broker *broker)
{
	while (broker->settlings)
		answer_question(broker, broker->settlings, -ECANCELED);
}

/* --- questions --- */

static int create_settling(struct reef_broker *broker,
			   const struct reef_request *request,
			   const struct reef_row_link *links, uint32_t count,
			   struct broker_settling **out)
{
	const struct broker_session *session = broker_session_of(request);
	uint64_t wait_ns = broker_node_ttl(broker);
	struct broker_settling *settling;

	settling = calloc(1, sizeof(*settling) +
				     count * sizeof(settling->endings[0]));
	if (!settling)
		return -ENOMEM;
	settling->request = request;
	settling->number = ++broker->settlings_last;
	settling->session = session->id;
	settling->user = session->user;
	settling->until_ns =
		reef_now_ns() + (wait_ns < ANSWER_NS ? wait_ns : ANSWER_NS);
	settling->count = count;
	for (uint32_t i = 0; i < count; i++) {
		settling->endings[i].link = links[i];
		if (REEF_MUTATED(BROKER_SETTLE_ONE) && i > 0)
			settling->endings[i].link.fate = REEF_LINK_ENDED;
	}
	*out = settling;
	return 0;
}

/* Have fibers work on a question. A node without one is asked when the next
 * question comes, or the time of this is over. */
static int start_fibers(struct reef_broker *broker,
			const struct broker_settling *settling)
{
	struct broker_node *node;
	int rc = 0;

	if (!broker->settles)
		rc = broker_spawn(broker, run_answers, 0);
	if (rc)
		return rc;
	broker->settles = true;
	for (uint32_t i = 0; i < settling->count; i++) {
		node = broker_node_find(broker, settling->endings[i].link.node);
		if (node && !node->settling)
			node->settling =
				broker_spawn(broker, run_ends, node->id) == 0;
	}
	broker_wake(broker);
	return 0;
}

BROKER_REQUEST(broker_settle)
{
	struct broker_session *session = broker_session_of(request);
	struct reef_row_link links[REEF_SETTLE_MAX];
	struct broker_settling *settling;
	uint32_t count;
	int rc;

	if (session->settles >= SETTLES_MAX)
		return -EBUSY;
	rc = copy_links(broker, request, links, &count);
	if (rc == 0)
		rc = create_settling(broker, request, links, count, &settling);
	if (rc)
		return rc;
	rc = start_fibers(broker, settling);
	if (rc) {
		free(settling);
		return rc;
	}
	session->settles++;
	settling->next = broker->settlings;
	broker->settlings = settling;
	return REEF_LATER;
}
