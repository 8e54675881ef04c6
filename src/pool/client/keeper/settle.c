/* settle.c - links that were lost while something was under way on them.
 *
 * A WRITE, CAS or FAA whose link was lost may still happen (F5), long after its
 * call has returned. Until it cannot, the link is *unsettled*:
 *
 *             lost, and a call tells           a newer link is up (F5); SETTLE:
 *                  the keeper                  it was ended, or that life of
 *   link up ----------------------> UNSETTLED  its node is over; the view has
 *                                       |      a new life of the node
 *                                       +------------------------> settled
 *
 * (1) Links to a node are numbered upwards, over all its lives; every hello has
 *     a number of its own, also one that failed (F10); a session that has used
 *     them all up ends. All links to a node up
 *     to `settled` are settled; `doubt` is the last one on which something was
 *     in doubt. It is unsettled while doubt > settled. A newer link settles all
 *     before it, so one pair of numbers for each node says everything, and
 *     nothing has to be allocated.
 * (2) R8. While a link is unsettled the session announces no later epoch than
 *     it might have when the call told the keeper. A call tells the keeper
 *     before it returns, and so before its caller leaves the reef_enter that it
 *     may be inside. Whatever is freed with REEF_FREE_LATER by anyone who could
 *     know of the call's end is stamped with that epoch or a later one, so a
 *     WRITE that comes late does not meet memory that was reused. What this
 *     session frees itself meanwhile waits likewise (block.c).
 * (3) Until it is settled, the keeper tries to make a new link, and asks the
 *     broker to have the node end the old one: one question for all links,
 *     again and again, also after the calls have given up. A session that ends
 *     has nothing to settle: fencing does. */
#include "pool/client/keeper/settle.h"

#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/renew.h"
#include "pool/client/keeper/touch.h"
#include "pool/client/keeper/view.h"

#include <stdlib.h>

/* A new link comes sooner as a rule, and makes the question unnecessary. */
#define ASK_AFTER_NS (20 * CLIENT_MILLISECOND)
#define PAUSE_MIN_NS (5 * CLIENT_MILLISECOND)
#define PAUSE_MAX_NS (500 * CLIENT_MILLISECOND)
#define RELINK_MAX_NS (50 * CLIENT_MILLISECOND)

static bool is_unsettled(const struct client_node *node)
{
	return node->doubt > node->settled;
}

uint64_t client_unsettled_epoch(const struct reef_client *client)
{
	const struct client_node *node = client->nodes;
	uint64_t oldest = UINT64_MAX;

	for (; node; node = node->next)
		if (is_unsettled(node) && node->doubt_epoch < oldest)
			oldest = node->doubt_epoch;
	return oldest;
}

void client_settled(struct reef_client *client, struct client_node *node,
		    uint32_t number)
{
	bool was_unsettled = is_unsettled(node);

	if (number <= node->settled)
		return;
	node->settled = number;
	if (was_unsettled && !is_unsettled(node)) {
		atomic_fetch_sub(&client->unsettled, 1);
		client_wake(&client->changed);
	}
}

/* A link was lost, perhaps with something under way: (2). */
static void note_lost(struct reef_client *client, struct client_node *node,
		      uint32_t number)
{
	if (number <= node->settled)
		return;
	if (node->link && node->number == number)
		client_node_unlink(client, node);
	if (!is_unsettled(node)) {
		node->doubt_epoch = client_oldest_epoch(client);
		node->doubt_ns = reef_now_ns();
		atomic_fetch_add(&client->unsettled, 1);
	}
	if (node->doubt < number)
		node->doubt = number;
	client_wake(&client->changed);
}

void client_link_settle(struct reef_client *client, struct client_node *node)
{
	note_lost(client, node, node->number);
}

/* A call tells of a link that was lost with something under way. */
static void note_doubt(struct reef_client *client,
		       const struct client_lost_link *link)
{
	struct client_node *node = client_node_find(client, link->node);

	if (node)
		note_lost(client, node, link->number);
}

/* --- for a call --- */

/* True if all links of the job are settled. */
static bool are_settled(struct reef_client *client,
			struct client_settle_job *job)
{
	const struct client_node *node;
	bool all = true;

	for (uint32_t i = 0; i < job->count; i++) {
		node = client_node_find(client, job->links[i].node);
		job->links[i].is_settled =
			!node || job->links[i].number <= node->settled;
		all &= job->links[i].is_settled;
	}
	return all;
}

static int run_settle(struct reef_client *client, struct client_job *base)
{
	struct client_settle_job *job = (struct client_settle_job *)base;
	uint64_t until_ns = reef_now_ns() + client_patience_ns(client), now_ns;
	int rc = 0;

	for (uint32_t i = 0; i < job->count; i++)
		note_doubt(client, &job->links[i]);
	while (!are_settled(client, job)) {
		if (!rc)
			rc = client_over(client);
		if (rc)
			return rc;
		now_ns = reef_now_ns();
		if (now_ns >= until_ns || client->stopping)
			return -ETIMEDOUT;
		rc = client_wait(&client->changed, until_ns - now_ns);
	}
	return 0;
}

const struct client_job_ops client_settle_ops = {
	.size = sizeof(struct client_settle_job),
	.run = run_settle,
};

/* --- a new link --- */

struct relink {
	struct reef_client *client;
	struct client_node *node;
};

/* Try to make a new link to a node, until that or something else has settled
 * the old one. */
static int relink_main(void *arg)
{
	struct reef_client *client = ((struct relink *)arg)->client;
	struct client_node *node = ((struct relink *)arg)->node;
	uint64_t pause_ns = CLIENT_MILLISECOND / 4;
	int rc = 0;

	free(arg);
	while (is_unsettled(node) && !client->stopping &&
	       !client_over(client)) {
		rc = client_node_link(client, node);
		if (rc == -REEF_EFENCED)
			client_session_end(client, rc);
		if (rc == -EAGAIN)
			continue;
		if (rc == -REEF_EHOSTDEAD || reef_sleep(pause_ns))
			break;
		if (pause_ns < RELINK_MAX_NS)
			pause_ns *= 2;
	}
	node->relinking = false;
	client_fiber_end(client);
	return 0;
}

/* Start a fiber for each unsettled link that has none. Where there is no memory
 * for one, the broker's answer has to do. */
static void start_relinks(struct reef_client *client)
{
	struct client_node *node = client->nodes;
	struct relink *relink;

	for (; node; node = node->next) {
		if (!is_unsettled(node) || node->relinking)
			continue;
		relink = malloc(sizeof(*relink));
		if (!relink)
			return;
		*relink = (struct relink){client, node};
		node->relinking = !client_spawn(client, relink_main, relink);
		if (!node->relinking) {
			free(relink);
			return;
		}
	}
}

/* --- SETTLE --- */

/* Put all unsettled links into a question; how many. */
static uint32_t encode_links(const struct reef_client *client,
			     struct reef_cursor_out *out)
{
	const struct client_node *node = client->nodes;
	struct reef_row row = {.row = REEF_ROW_LINK};
	uint32_t count = 0;

	for (; node && count < REEF_SETTLE_MAX; node = node->next) {
		if (!is_unsettled(node))
			continue;
		row.link = (struct reef_row_link){
			.node = node->id,
			.number = node->doubt,
			.incarnation = node->incarnation,
		};
		reef_row_encode(&row, out);
		count++;
	}
	return count;
}

/* Take in which links are settled. Where a node's life is over, the view is
 * taken in first: whoever is told that a link is settled must be able to see
 * that the memory is LOST. */
static int note_fates(struct reef_client *client, const struct reef_body *body)
{
	struct reef_cursor_in in = {
		.bytes = body->rows,
		.left = body->rows_size,
	};
	bool is_refreshed = false;
	struct client_node *node;
	struct reef_row row;
	int rc;

	while ((rc = reef_row_decode(&in, &row)) == 1) {
		node = row.row == REEF_ROW_LINK
			       ? client_node_find(client, row.link.node)
			       : NULL;
		if (!node || row.link.number > node->doubt)
			return -REEF_EPROTO;
		if (row.link.fate == REEF_LINK_LOST && !is_refreshed) {
			rc = client_view_refresh_all(
				client, client_patience_ns(client));
			if (rc)
				return rc;
			is_refreshed = true;
		}
		if (row.link.fate != REEF_LINK_IN_DOUBT)
			client_settled(client, node, row.link.number);
	}
	return rc;
}

/* Ask the broker once about all links that are unsettled. */
static int ask_broker(struct reef_client *client)
{
	struct reef_cursor_out out = {0};
	struct reef_answer answer = {0};
	struct reef_body body = {0};
	int rc = 0;

	if (encode_links(client, &out)) {
		body.rows = out.bytes;
		body.rows_size = out.size;
		rc = out.failed ? -ENOMEM
				: client_call(client, REEF_POOL_SETTLE, false,
					      &body, &answer, 0);
		if (!rc)
			rc = note_fates(client, &answer.body);
		reef_answer_free(&answer);
	}
	free(out.bytes);
	return rc;
}

/* When the broker is to be asked about the link that has waited longest;
 * UINT64_MAX: all are settled. */
static uint64_t first_due_ns(const struct reef_client *client)
{
	const struct client_node *node = client->nodes;
	uint64_t due_ns = UINT64_MAX;

	for (; node; node = node->next)
		if (is_unsettled(node) &&
		    node->doubt_ns + ASK_AFTER_NS < due_ns)
			due_ns = node->doubt_ns + ASK_AFTER_NS;
	return due_ns;
}

int client_settle_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t pause_ns = PAUSE_MIN_NS, again_ns = 0, due_ns, now_ns;
	int rc = 0;

	while (!rc && !client->stopping && !client_over(client)) {
		start_relinks(client);
		due_ns = first_due_ns(client);
		if (due_ns == UINT64_MAX) {
			pause_ns = PAUSE_MIN_NS;
			rc = client_wait(&client->changed, REEF_FOREVER);
			continue;
		}
		due_ns = due_ns > again_ns ? due_ns : again_ns;
		now_ns = reef_now_ns();
		if (now_ns < due_ns) {
			rc = client_wait(&client->changed, due_ns - now_ns);
			continue;
		}
		/* Whatever went wrong, it is asked again. */
		if (ask_broker(client) == -REEF_EHOSTDEAD)
			break;
		again_ns = reef_now_ns() + pause_ns;
		if (pause_ns < PAUSE_MAX_NS)
			pause_ns *= 2;
	}
	client_fiber_end(client);
	return 0;
}
