/* pair.c - a link's queue pair, from nothing to ready, and away.
 *
 *   create            connect                               stop     destroy
 *   ------> INIT ---------------> ready to receive, to send ---> ERR ---> gone
 *           (receives posted)
 *
 * A peer that does not answer is given up when 7 tries have gone unanswered;
 * how long a try is follows from silence_ns (1 s: 7 * 67 ms, and devices may
 * take longer). The control channel notices a dead process even sooner. */
#include "fabric/verbs/verbs.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>

/* Soft-RoCE goes on for ever if there are 7 after the first. */
#define TRIES 6
#define NOT_READY_TRIES 6 /* see verbs.h (4): a net that is not used */
#define NOT_READY_CODE 20 /* 10.24 ms between them */
#define READS_MAX 64u
#define INLINE_WANTED 128u

static size_t arena_size(uint32_t send_max)
{
	return (size_t)VERBS_RECEIVES * VERBS_FRAGMENT +
	       (size_t)send_max * VERBS_LANDING;
}

static int make_slots_and_receives(struct verbs_link *link)
{
	struct verbs_device *device = &link->owner->fabric->device;
	uint32_t i;

	link->slots = calloc(link->send_max, sizeof(*link->slots));
	if (!link->slots)
		return -ENOMEM;
	link->arena =
		verbs_arena_create(device->domain, arena_size(link->send_max),
				   &link->registration);
	if (!link->arena) {
		free(link->slots);
		link->slots = NULL;
		return -ENOMEM;
	}
	for (i = 0; i < link->send_max; i++)
		link->slots[i].work.link = link;
	for (i = 0; i < VERBS_RECEIVES; i++)
		link->receives[i] = (struct verbs_receive){
			.work = {.link = link, .kind = VERBS_WORK_RECEIVE},
			.bytes = link->arena + (size_t)i * VERBS_FRAGMENT,
		};
	return 0;
}

static int make_pair(struct verbs_link *link)
{
	struct verbs_device *device = &link->owner->fabric->device;
	struct ibv_qp_init_attr wanted = {
		.send_cq = link->hub->completions,
		.recv_cq = link->hub->completions,
		.cap = {.max_send_wr = link->send_max +
				       (link->link.listener ? VERBS_BINDS : 0),
			.max_recv_wr = VERBS_RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE_WANTED},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_init_attr given = wanted;

	link->pair = ibv_create_qp(device->domain, &given);
	if (!link->pair) { /* devices without inline data refuse it like this */
		given = wanted;
		given.cap.max_inline_data = 0;
		link->pair = ibv_create_qp(device->domain, &given);
	}
	if (!link->pair)
		return -errno;
	link->inline_max = given.cap.max_inline_data;
	return 0;
}

static int initialise_pair(struct verbs_link *link)
{
	/* Only the accepting side lends memory through a link. */
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_INIT,
		.port_num = link->owner->fabric->device.port,
		.qp_access_flags = link->link.listener
					   ? IBV_ACCESS_REMOTE_READ |
						     IBV_ACCESS_REMOTE_WRITE |
						     IBV_ACCESS_REMOTE_ATOMIC
					   : 0,
	};

	return -ibv_modify_qp(link->pair, &attributes,
			      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				      IBV_QP_ACCESS_FLAGS);
}

static uint16_t cap_reads(int limit)
{
	return (uint16_t)(limit < 1			? 1
			  : (uint32_t)limit > READS_MAX ? READS_MAX
							: (uint32_t)limit);
}

int verbs_pair_create(struct verbs_link *link, const struct reef_address *local,
		      struct reef_wire_queue_pair *own)
{
	struct verbs_device *device = &link->owner->fabric->device;
	union ibv_gid gid;
	int rc;

	rc = reef_random_secret(&link->packet, sizeof(link->packet));
	if (rc)
		return rc;
	link->packet &= 0xffffff;
	rc = make_slots_and_receives(link);
	if (rc)
		return rc;
	rc = make_pair(link);
	if (!rc)
		rc = initialise_pair(link);
	if (!rc)
		rc = verbs_receive_start(link);
	if (rc) {
		verbs_pair_destroy(link);
		return rc;
	}
	verbs_device_gid(device, local, &link->gid_index, &gid);
	*own = (struct reef_wire_queue_pair){
		.number = link->pair->qp_num,
		.packet = link->packet,
		.lid = device->lid,
		.mtu = device->mtu,
		.ethernet = device->ethernet,
		.initiates = cap_reads(device->limits.max_qp_init_rd_atom),
		.serves = cap_reads(device->limits.max_qp_rd_atom),
		.receives = VERBS_RECEIVES,
		.fragment = VERBS_FRAGMENT,
	};
	memcpy(own->gid, gid.raw, sizeof(own->gid));
	return 0;
}

static int make_ready_to_receive(struct verbs_link *link,
				 const struct reef_wire_queue_pair *peer)
{
	struct verbs_device *device = &link->owner->fabric->device;
	uint16_t serves = cap_reads(device->limits.max_qp_rd_atom);
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = peer->mtu < device->mtu ? peer->mtu : device->mtu,
		.dest_qp_num = peer->number,
		.rq_psn = peer->packet,
		.max_dest_rd_atomic =
			(uint8_t)(peer->initiates < serves ? peer->initiates
							   : serves),
		.min_rnr_timer = NOT_READY_CODE,
		.ah_attr = {.dlid = peer->lid,
			    .is_global = device->ethernet,
			    .port_num = device->port},
	};

	if (device->ethernet) {
		attributes.ah_attr.grh.hop_limit = 64;
		attributes.ah_attr.grh.sgid_index = (uint8_t)link->gid_index;
		memcpy(attributes.ah_attr.grh.dgid.raw, peer->gid,
		       sizeof(peer->gid));
	}
	return -ibv_modify_qp(link->pair, &attributes,
			      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				      IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC |
				      IBV_QP_MIN_RNR_TIMER);
}

int verbs_pair_connect(struct verbs_link *link,
		       const struct reef_wire_queue_pair *peer)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	uint16_t initiates =
		cap_reads(fabric->device.limits.max_qp_init_rd_atom);
	struct ibv_qp_attr attributes = {
		.qp_state = IBV_QPS_RTS,
		.timeout = fabric->ack_timeout,
		.retry_cnt = TRIES,
		.rnr_retry = NOT_READY_TRIES,
		.sq_psn = link->packet,
		.max_rd_atomic =
			(uint8_t)(peer->serves < initiates ? peer->serves
							   : initiates),
	};
	int rc;

	if (peer->ethernet != fabric->device.ethernet)
		return -REEF_EPROTO;
	rc = make_ready_to_receive(link, peer);
	if (!rc)
		rc = -ibv_modify_qp(link->pair, &attributes,
				    IBV_QP_STATE | IBV_QP_TIMEOUT |
					    IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					    IBV_QP_MAX_QP_RD_ATOMIC);
	if (rc)
		return rc;
	link->credits = link->credits_max = peer->receives;
	link->fragment = peer->fragment;
	return 0;
}

void verbs_pair_stop(struct verbs_link *link)
{
	struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_ERR};

	if (link->pair)
		ibv_modify_qp(link->pair, &attributes, IBV_QP_STATE);
}

void verbs_pair_destroy(struct verbs_link *link)
{
	int rc;

	if (!link->pair)
		return;
	/* Devices stop sooner if it is stopped first, and F7 asks for it. */
	verbs_pair_stop(link);
	/* Some devices keep a queue pair while a window is bound to it. */
	verbs_windows_close(link);
	rc = ibv_destroy_qp(link->pair);
	/* If this could fail, the session could go on acting here. */
	reef_assert(rc == 0);
	link->pair = NULL;
}

void verbs_pair_free(struct verbs_link *link)
{
	reef_assert(!link->pair);
	if (link->arena)
		verbs_arena_destroy(link->arena, arena_size(link->send_max),
				    link->registration);
	link->arena = NULL;
	free(link->slots);
	link->slots = NULL;
}
