/* receive.c - messages that come in.
 *
 *   (posted) --completion--> arrived --deliver--> (posted again) --> untold
 *                               |  inbox full: stalled, looked at in each poll
 *
 * (1) posted + arrived = VERBS_RECEIVES; the peer has credits for those posted,
 *     but for the untold. So a sender that keeps to its credits always finds a
 *     receive, and one whose messages nobody takes runs out of credits.
 * (2) Credits go back with the next message the other way, or, once half are
 *     untold, in a CREDIT frame, which also wakes a peer that sleeps. A peer
 *     whose next batch needs more credits than it has asks for the untold ones
 *     by CREDIT 0, and is told of them at once, or of the first that there is.
 * (3) A message in several pieces is put together here; between its pieces
 *     nothing else comes on its link.
 * (4) What has arrived outlives its link, unless the session was expelled. */
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

static int post_receive(struct verbs_link *link, struct verbs_receive *receive)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)receive->bytes,
		.length = VERBS_FRAGMENT,
		.lkey = link->registration->lkey,
	};
	struct ibv_recv_wr request = {
		.wr_id = (uintptr_t)&receive->work,
		.sg_list = &sge,
		.num_sge = 1,
	};
	struct ibv_recv_wr *bad;

	return -ibv_post_recv(link->pair, &request, &bad);
}

int verbs_receive_start(struct verbs_link *link)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; !rc && i < VERBS_RECEIVES; i++)
		rc = post_receive(link, &link->receives[i]);
	return rc;
}

int verbs_credits_add(struct verbs_link *link, uint32_t count)
{
	if (count > link->credits_max - link->credits)
		return -REEF_EPROTO;
	link->credits += count;
	if (count) {
		link->has_asked = false;
		verbs_send_hungry(link);
	}
	return 0;
}

void verbs_receive_completed(struct verbs_queue *polling,
			     struct verbs_receive *receive,
			     const struct ibv_wc *completion)
{
	struct verbs_link *link = receive->work.link;
	uint32_t last;

	/* What came before the link broke has arrived (F1). */
	if (link->is_expelled ||
	    (link->broken && completion->status != IBV_WC_SUCCESS))
		return;
	if (completion->status != IBV_WC_SUCCESS) {
		verbs_link_break(link, -REEF_ENOLINK);
		return;
	}
	receive->length = completion->byte_len;
	receive->immediate = ntohl(completion->imm_data);
	if (!(completion->wc_flags & IBV_WC_WITH_IMM) ||
	    verbs_credits_add(link,
			      receive->immediate & REEF_WIRE_CREDITS_MASK)) {
		verbs_link_break(link, -REEF_EPROTO);
		return;
	}
	last = (link->arrived_first + link->arrived_count++) % VERBS_RECEIVES;
	link->arrived[last] = receive;
	if (!link->is_stalled)
		verbs_receive_deliver(link, polling);
}

/* Append a piece to the message that is being put together. */
static int append_piece(struct verbs_link *link,
			const struct verbs_receive *receive)
{
	uint32_t most = link->link.fabric->options.message_max;

	if (receive->length > most - link->message_length)
		return -REEF_EPROTO;
	if (!link->message)
		link->message = malloc(most);
	if (!link->message)
		return -ENOMEM;
	memcpy(link->message + link->message_length, receive->bytes,
	       receive->length);
	link->message_length += receive->length;
	link->message_complete = !(receive->immediate & REEF_WIRE_MORE);
	return 0;
}

/* Deliver the oldest arrival. 0: its receive is free again.  -ENOSPC: the inbox
 * is full. */
static int deliver_oldest(struct verbs_link *link, struct verbs_queue *polling,
			  const struct verbs_receive *receive)
{
	bool is_whole = !(receive->immediate & REEF_WIRE_MORE);
	int rc;

	if (is_whole && !link->message_length) {
		if (receive->length > link->link.fabric->options.message_max)
			return -REEF_EPROTO;
		return reef_message_arrived(&polling->queue, &link->link,
					    receive->bytes, receive->length);
	}
	if (!link->message_complete) {
		rc = append_piece(link, receive);
		if (rc || !link->message_complete)
			return rc;
	}
	rc = reef_message_arrived(&polling->queue, &link->link, link->message,
				  link->message_length);
	if (!rc) {
		link->message_length = 0;
		link->message_complete = false;
	}
	return rc;
}

static void stall_link(struct verbs_link *link)
{
	if (link->is_stalled)
		return;
	link->is_stalled = true;
	link->next_stalled = link->hub->stalled;
	link->hub->stalled = link;
}

static void tell_credits(struct verbs_link *link)
{
	if (link->untold >= VERBS_RECEIVES / 2 ||
	    (link->is_asked && link->untold))
		verbs_receive_credit(link);
}

void verbs_receive_asked(struct verbs_link *link)
{
	link->is_asked = true;
	tell_credits(link);
}

int verbs_receive_deliver(struct verbs_link *link, struct verbs_queue *polling)
{
	struct verbs_receive *receive;
	int count = 0, rc;

	/* An accepted link may have messages before it is UP: they wait. */
	if (link->phase != VERBS_UP && link->phase != VERBS_DRAINING)
		return 0;
	while (link->arrived_count) {
		receive = link->arrived[link->arrived_first];
		rc = deliver_oldest(link, polling, receive);
		if (rc == -ENOSPC) {
			stall_link(link);
			break;
		}
		if (!rc && !link->broken)
			rc = post_receive(link, receive);
		if (rc) {
			link->arrived_count = 0;
			verbs_link_break(link, rc);
			break;
		}
		link->arrived_first =
			(link->arrived_first + 1) % VERBS_RECEIVES;
		link->arrived_count--;
		link->untold++;
		count++;
	}
	if (link->phase == VERBS_DRAINING && !link->arrived_count)
		verbs_link_drained(link, polling);
	else if (!link->broken)
		tell_credits(link);
	return count;
}

void verbs_receive_credit(struct verbs_link *link)
{
	uint8_t payload[REEF_WIRE_CREDIT_SIZE];

	reef_wire_credit_encode(link->untold, payload);
	link->untold = 0;
	link->is_asked = false;
	verbs_link_send(link, REEF_FRAME_CREDIT, 0, payload, sizeof(payload));
}
