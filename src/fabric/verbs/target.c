/* target.c - what this process lends, to whom, and who may not come back.
 *
 * A region is registered with the device once, and once more for reading when
 * somebody attaches by its read key: a registration is what the device checks.
 * The 64-bit keys, of which whoever attaches must know one, are ours, and the
 * device's 32-bit key is told to who did.
 *
 * How a key is taken back:
 *   withdraw: no new attach --WITHDRAW to each holder--> wait
 *     holder's batches that may use it have ended --DETACH--> one holder less
 *     holder's link ends (queue pair destroyed)            --> one holder less
 *   no holder: deregistered and freed. */
#include "fabric/verbs/verbs.h"

#include "base/random.h"
#include "wire/control.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bucket_of(uint64_t key)
{
	return (uint32_t)(key % VERBS_BUCKETS); /* keys are random */
}

static struct verbs_region **find_region(struct verbs_fabric *fabric,
					 uint64_t key)
{
	struct verbs_region **at = &fabric->regions[bucket_of(key)];

	while (*at && !reef_region_has_key(&(*at)->region, key))
		at = &(*at)->next;
	return at;
}

/* --- regions --- */

static int register_memory(struct verbs_fabric *fabric,
			   const struct reef_memory *memory, bool only_reads,
			   struct ibv_mr **out)
{
	int access = IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *made;

	if (!only_reads)
		access |= IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_ATOMIC;
	/* Addresses begin at 0: peers need not know where the memory lies. */
	made = ibv_reg_mr_iova(fabric->device.domain, memory->base,
			       memory->size, 0, access);
	if (!made)
		return errno ? -errno : -ENOMEM;
	*out = made;
	return 0;
}

static void free_region(struct verbs_region *region)
{
	ibv_dereg_mr(region->registration);
	if (region->read_registration)
		ibv_dereg_mr(region->read_registration);
	free(region);
}

/* Choose keys that fall into one bucket, so that either finds the region.
 * Locked by regions_lock. */
static int choose_keys(struct verbs_fabric *fabric, struct reef_region *region)
{
	uint64_t keys[2];
	int rc;

	do {
		rc = reef_random_secret(keys, sizeof(keys));
		keys[1] = keys[1] - bucket_of(keys[1]) + bucket_of(keys[0]);
	} while (!rc && (!keys[0] || !keys[1] || keys[0] == keys[1] ||
			 *find_region(fabric, keys[0]) ||
			 *find_region(fabric, keys[1])));
	if (rc)
		return rc;
	region->key = keys[0];
	region->read_key = keys[1];
	return 0;
}

int verbs_expose(struct reef_layer *layer, struct reef_memory *memory,
		 struct reef_region **out)
{
	struct verbs_fabric *fabric = verbs_fabric(layer);
	struct verbs_region *region;
	uint32_t bucket;
	int rc;

	if (memory->domain != layer->fabric->domain)
		return -REEF_EDOMAIN;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	rc = register_memory(fabric, memory, memory->read_only,
			     &region->registration);
	if (rc) {
		free(region);
		return rc;
	}
	region->region.fabric = layer->fabric;
	region->region.memory = memory;
	pthread_mutex_lock(&fabric->regions_lock);
	rc = choose_keys(fabric, &region->region);
	if (!rc) {
		bucket = bucket_of(region->region.key);
		region->next = fabric->regions[bucket];
		fabric->regions[bucket] = region;
	}
	pthread_mutex_unlock(&fabric->regions_lock);
	if (rc) {
		free_region(region);
		return rc;
	}
	*out = &region->region;
	return 0;
}

/* Tell a link's peer that the region is withdrawn, if it holds the region and
 * was not told yet. */
static void notify_holder(struct verbs_link *link, struct verbs_queue *polling,
			  const struct verbs_region *region)
{
	uint8_t payload[REEF_WIRE_KEY_SIZE];
	struct verbs_holding *holding;

	pthread_mutex_lock(&link->hub->lock);
	for (holding = link->holdings; holding; holding = holding->next) {
		if (holding->region != region || holding->told)
			continue;
		holding->told = true;
		reef_wire_key_encode(holding->key, payload);
		verbs_link_send(link, REEF_FRAME_WITHDRAW, 0, payload,
				sizeof(payload));
	}
	verbs_hub_settle(link->hub, polling);
	pthread_mutex_unlock(&link->hub->lock);
}

int verbs_withdraw(struct reef_layer *layer, struct reef_queue *queue,
		   struct reef_region *base)
{
	struct verbs_fabric *fabric = verbs_fabric(layer);
	struct verbs_region *region =
		reef_container(base, struct verbs_region, region);
	struct verbs_link *link;
	uint32_t holders;

	pthread_mutex_lock(&fabric->regions_lock);
	region->withdrawn = true;
	holders = region->holders;
	pthread_mutex_unlock(&fabric->regions_lock);
	if (holders) {
		pthread_mutex_lock(&fabric->lock);
		for (link = fabric->sessions; link; link = link->next_session)
			notify_holder(link, verbs_queue(queue), region);
		pthread_mutex_unlock(&fabric->lock);
	}
	pthread_mutex_lock(&fabric->regions_lock);
	holders = region->holders;
	if (!holders)
		*find_region(fabric, base->key) = region->next;
	pthread_mutex_unlock(&fabric->regions_lock);
	if (holders)
		return -EAGAIN;
	free_region(region);
	return 0;
}

void verbs_regions_close(struct verbs_fabric *fabric)
{
	struct verbs_region *region;
	uint32_t i;

	for (i = 0; i < VERBS_BUCKETS; i++) {
		while ((region = fabric->regions[i])) {
			fabric->regions[i] = region->next;
			free_region(region);
		}
	}
}

/* --- holders --- */

static struct verbs_holding **find_holding(struct verbs_link *link,
					   uint64_t key)
{
	struct verbs_holding **at = &link->holdings;

	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

static void drop_holding(struct verbs_link *link, struct verbs_holding **at)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_holding *holding = *at;

	*at = holding->next;
	pthread_mutex_lock(&fabric->regions_lock);
	holding->region->holders--;
	pthread_mutex_unlock(&fabric->regions_lock);
	free(holding);
}

/* The registration of who has this key. Locked by regions_lock. */
static int find_registration(struct verbs_fabric *fabric,
			     struct verbs_region *region, uint64_t key,
			     struct ibv_mr **out)
{
	const struct reef_memory *memory = region->region.memory;
	int rc = 0;

	*out = region->registration;
	if (key != region->region.read_key || memory->read_only)
		return 0;
	if (!region->read_registration)
		rc = register_memory(fabric, memory, true,
				     &region->read_registration);
	*out = region->read_registration;
	return rc;
}

/* Let the link hold the region under this key.  -REEF_EKEY.  -ENOMEM. */
static int add_holding(struct verbs_link *link, uint64_t key,
		       struct reef_wire_attached *out)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_holding *holding;
	struct verbs_region *region;
	struct ibv_mr *registration;
	int rc = 0;

	holding = malloc(sizeof(*holding));
	if (!holding)
		return -ENOMEM;
	pthread_mutex_lock(&fabric->regions_lock);
	region = *find_region(fabric, key);
	if (!region || region->withdrawn) {
		rc = -REEF_EKEY;
		goto out;
	}
	rc = find_registration(fabric, region, key, &registration);
	if (rc)
		goto out;
	*out = (struct reef_wire_attached){
		.key = key,
		.flags = reef_region_wire_flags(&region->region, key),
		.size = region->region.memory->size,
		.domain = region->region.memory->domain,
		.rkey = registration->rkey,
	};
	if (*find_holding(link, key))
		goto out; /* a link holds a region once */
	region->holders++;
	*holding = (struct verbs_holding){
		.region = region,
		.key = key,
		.next = link->holdings,
	};
	link->holdings = holding;
	holding = NULL;
out:
	pthread_mutex_unlock(&fabric->regions_lock);
	free(holding);
	return rc;
}

int verbs_target_attach(struct verbs_link *link, const struct reef_frame *frame)
{
	uint8_t payload[REEF_WIRE_ATTACHED_SIZE];
	struct reef_wire_attached attached;
	uint64_t key;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc || !link->link.listener)
		return -REEF_EPROTO;
	rc = add_holding(link, key, &attached);
	if (rc)
		attached =
			(struct reef_wire_attached){.key = key, .status = rc};
	reef_wire_attached_encode(&attached, payload);
	verbs_link_send(link, REEF_FRAME_ATTACHED, frame->tag, payload,
			sizeof(payload));
	return 0;
}

int verbs_target_detach(struct verbs_link *link, const struct reef_frame *frame)
{
	struct verbs_holding **at;
	uint64_t key;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc)
		return rc;
	/* There is no holding if a DETACH and a WITHDRAW have crossed. */
	at = find_holding(link, key);
	if (*at)
		drop_holding(link, at);
	return 0;
}

void verbs_target_release(struct verbs_link *link)
{
	while (link->holdings)
		drop_holding(link, &link->holdings);
}

/* --- sessions --- */

/* End an accepted link from any thread; its queue pair is gone on return.
 * Locked by the fabric. */
static void expel_link(struct verbs_link *link, struct verbs_queue *polling,
		       int reason)
{
	pthread_mutex_lock(&link->hub->lock);
	verbs_link_expel(link, polling, reason);
	pthread_mutex_unlock(&link->hub->lock);
}

/* Take an accepted link off the list of sessions. Locked by the fabric. */
static void forget_session(struct verbs_link *link)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_link **at = &fabric->sessions;

	if (!link->is_registered)
		return;
	while (*at != link)
		at = &(*at)->next_session;
	*at = link->next_session;
	fabric->accepted--;
	link->is_registered = false;
}

int verbs_admit(void *context, struct reef_hello_peer *peer)
{
	struct verbs_link *link = context, *other, *next;
	struct verbs_fabric *fabric = link->owner->fabric;
	int rc = 0;

	pthread_mutex_lock(&fabric->lock);
	if (reef_fences_cover(&fabric->fences, peer->session)) {
		rc = -REEF_EFENCED;
		goto out;
	}
	rc = reef_numbers_check(&fabric->numbers, peer->session, peer->number);
	if (rc)
		goto out;
	/* F5: what the old link left in doubt is settled by its end. */
	for (other = fabric->sessions; other; other = next) {
		next = other->next_session;
		if (other->link.session != peer->session)
			continue;
		expel_link(other, link->owner, -REEF_ENOLINK);
		forget_session(other); /* its place is free at once */
	}
	if (fabric->accepted >= fabric->fabric.options.links_max) {
		rc = -EBUSY;
		goto out;
	}
	rc = reef_numbers_use(&fabric->numbers, peer->session, peer->number);
	if (!rc)
		rc = verbs_hub_join(link->owner, link);
	if (rc)
		goto out;
	reef_link_set_owner(&link->link, peer->session, peer->number,
			    peer->identity);
	link->is_registered = true;
	link->next_session = fabric->sessions;
	fabric->sessions = link;
	fabric->accepted++;
out:
	pthread_mutex_unlock(&fabric->lock);
	return rc;
}

void verbs_session_forget(struct verbs_link *link)
{
	struct verbs_fabric *fabric = link->owner->fabric;

	pthread_mutex_lock(&fabric->lock);
	forget_session(link);
	pthread_mutex_unlock(&fabric->lock);
}

int verbs_fence(struct reef_layer *layer, struct reef_queue *queue,
		uint32_t session)
{
	struct verbs_fabric *fabric = verbs_fabric(layer);
	struct verbs_link *link;

	pthread_mutex_lock(&fabric->lock);
	reef_fences_add(&fabric->fences, session);
	reef_numbers_fence(&fabric->numbers, session);
	for (link = fabric->sessions; link; link = link->next_session)
		if (reef_fences_cover(&fabric->fences, link->link.session))
			expel_link(link, verbs_queue(queue), -REEF_EFENCED);
	pthread_mutex_unlock(&fabric->lock);
	return 0;
}

int verbs_end_links(struct reef_layer *layer, struct reef_queue *queue,
		    uint32_t session, uint32_t number)
{
	struct verbs_fabric *fabric = verbs_fabric(layer);
	struct verbs_link *link;
	int rc;

	pthread_mutex_lock(&fabric->lock);
	rc = reef_numbers_use(&fabric->numbers, session, number);
	for (link = fabric->sessions; !rc && link; link = link->next_session)
		if (reef_numbers_end_covers(session, number, link->link.session,
					    link->link.number))
			expel_link(link, verbs_queue(queue), -REEF_ENOLINK);
	pthread_mutex_unlock(&fabric->lock);
	return rc;
}
