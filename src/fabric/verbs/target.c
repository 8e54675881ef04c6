/* target.c - what this process lends, to whom, and who may not come back.
 *
 * The 64-bit keys of a region, of which whoever attaches must know one, are
 * ours; the device's 32-bit key is told to who did, and what that one is good
 * for is in window.c.
 *
 * How a key is taken back:
 *   withdraw: no new attach --WITHDRAW to each holder--> wait
 *     holder's batches that may use it have ended --DETACH--> one holder less
 *     holder's link ends (queue pair destroyed)            --> one holder less
 *     holder has not answered after silence_ns             --> its link ends
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

static void free_region(struct verbs_region *region)
{
	verbs_registrations_free(region);
	free(region);
}

/* What a registration is for if there is no window for who has this key. */
static enum verbs_use use_without_window(const struct reef_region *region,
					 uint64_t key)
{
	return reef_region_only_reads(region, key) ? VERBS_FOR_READING
						   : VERBS_FOR_WRITING;
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
	struct ibv_mr *registration;
	uint32_t bucket;
	int rc;

	if (memory->domain != layer->fabric->domain)
		return -REEF_EDOMAIN;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->region.fabric = layer->fabric;
	region->region.memory = memory;
	if (!atomic_load(&fabric->has_windows) && !memory->read_only)
		verbs_windows_missing(fabric, "the device has none");
	/* Now, so that memory that cannot be registered is not exposed; nobody
	 * else has the region yet. */
	rc = verbs_registration_find(fabric, region,
				     atomic_load(&fabric->has_windows)
					     ? VERBS_FOR_WINDOWS
				     : memory->read_only ? VERBS_FOR_READING
							 : VERBS_FOR_WRITING,
				     &registration);
	if (rc) {
		free_region(region);
		return rc;
	}
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
 * was not told yet. A peer that was, and has not answered in time, loses the
 * link, and with the queue pair whatever it could reach. */
static void notify_holder(struct verbs_link *link, struct verbs_queue *polling,
			  const struct verbs_region *region)
{
	uint64_t silence_ns = link->link.fabric->options.silence_ns;
	uint8_t payload[REEF_WIRE_KEY_SIZE];
	uint64_t now_ns = reef_now_ns();
	struct verbs_holding *holding;
	bool is_overdue = false;

	pthread_mutex_lock(&link->hub->lock);
	for (holding = link->holdings; holding; holding = holding->next) {
		if (holding->region != region || holding->binding)
			continue;
		if (holding->told_ns) {
			is_overdue |= now_ns > holding->told_ns + silence_ns;
			continue;
		}
		holding->told_ns = now_ns;
		reef_wire_key_encode(holding->key, payload);
		verbs_link_send(link, REEF_FRAME_WITHDRAW, 0, payload,
				sizeof(payload));
	}
	if (is_overdue && link->phase < VERBS_DRAINING)
		verbs_link_break(link, -REEF_ENOLINK);
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
	struct verbs_fabric *fabric = verbs_link_fabric(link);
	struct verbs_holding *holding = *at;
	struct verbs_waiter *waiter;

	*at = holding->next;
	verbs_window_close(holding);
	while ((waiter = holding->waiters)) {
		holding->waiters = waiter->next;
		free(waiter);
	}
	pthread_mutex_lock(&fabric->regions_lock);
	holding->region->holders--;
	pthread_mutex_unlock(&fabric->regions_lock);
	free(holding);
}

/* Let the link hold the region under this key. 1: it did before.  -REEF_EKEY.
 * -ENOMEM. */
static int add_holding(struct verbs_link *link, uint64_t key,
		       struct verbs_holding **out)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_holding *holding = *find_holding(link, key);
	struct verbs_region *region;
	bool is_fresh = !holding;

	if (is_fresh)
		holding = calloc(1, sizeof(*holding));
	if (!holding)
		return -ENOMEM;
	pthread_mutex_lock(&fabric->regions_lock);
	region = *find_region(fabric, key);
	if (region && region->withdrawn)
		region = NULL;
	if (region && is_fresh)
		region->holders++;
	pthread_mutex_unlock(&fabric->regions_lock);
	if (!region) {
		if (is_fresh)
			free(holding);
		return -REEF_EKEY;
	}
	*out = holding;
	if (!is_fresh)
		return 1;
	holding->region = region;
	holding->key = key;
	holding->next = link->holdings;
	link->holdings = holding;
	return 0;
}

static void send_attached(struct verbs_link *link, uint64_t tag,
			  const struct reef_wire_attached *attached)
{
	uint8_t payload[REEF_WIRE_ATTACHED_SIZE];

	reef_wire_attached_encode(attached, payload);
	verbs_link_send(link, REEF_FRAME_ATTACHED, tag, payload,
			sizeof(payload));
}

static void answer_attach(struct verbs_link *link, uint64_t tag,
			  const struct verbs_holding *holding)
{
	const struct reef_region *region = &holding->region->region;
	struct reef_wire_attached attached = {
		.key = holding->key,
		.flags = reef_region_wire_flags(region, holding->key),
		.size = region->memory->size,
		.domain = region->memory->domain,
		.rkey = holding->rkey,
	};

	send_attached(link, tag, &attached);
}

static void refuse_attach(struct verbs_link *link, uint64_t tag, uint64_t key,
			  int status)
{
	struct reef_wire_attached attached = {.key = key, .status = status};

	send_attached(link, tag, &attached);
}

void verbs_target_bound(struct verbs_link *link, struct verbs_holding *holding)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_waiter *waiter;
	bool withdrawn;

	pthread_mutex_lock(&fabric->regions_lock);
	withdrawn = holding->region->withdrawn;
	pthread_mutex_unlock(&fabric->regions_lock);
	while ((waiter = holding->waiters)) {
		holding->waiters = waiter->next;
		if (withdrawn)
			refuse_attach(link, waiter->tag, holding->key,
				      -REEF_EKEY);
		else
			answer_attach(link, waiter->tag, holding);
		free(waiter);
	}
	if (withdrawn)
		drop_holding(link, find_holding(link, holding->key));
}

/* Find what a fresh holding reaches its region through: a window, which is not
 * usable at once, or a registration. */
static int open_holding(struct verbs_link *link, struct verbs_holding *holding)
{
	struct verbs_fabric *fabric = link->owner->fabric;
	struct verbs_region *region = holding->region;
	struct ibv_mr *registration;
	int rc;

	if (!verbs_window_open(link, holding))
		return 0;
	pthread_mutex_lock(&fabric->regions_lock);
	rc = verbs_registration_find(
		fabric, region,
		use_without_window(&region->region, holding->key),
		&registration);
	pthread_mutex_unlock(&fabric->regions_lock);
	if (!rc)
		holding->rkey = registration->rkey;
	return rc;
}

static int add_waiter(struct verbs_holding *holding, uint64_t tag)
{
	struct verbs_waiter *waiter = malloc(sizeof(*waiter));

	if (!waiter)
		return -ENOMEM;
	*waiter = (struct verbs_waiter){tag, holding->waiters};
	holding->waiters = waiter;
	return 0;
}

int verbs_target_attach(struct verbs_link *link, const struct reef_frame *frame)
{
	struct verbs_holding *holding;
	bool is_fresh;
	uint64_t key;
	int rc;

	rc = reef_wire_key_decode(frame->payload, frame->length, &key);
	if (rc || !link->link.listener)
		return -REEF_EPROTO;
	rc = add_holding(link, key, &holding);
	if (rc < 0) {
		refuse_attach(link, frame->tag, key, rc);
		return 0;
	}
	is_fresh = !rc;
	rc = is_fresh ? open_holding(link, holding) : 0;
	if (!rc && holding->binding)
		rc = add_waiter(holding, frame->tag);
	else if (!rc)
		answer_attach(link, frame->tag, holding);
	if (rc) {
		refuse_attach(link, frame->tag, key, rc);
		if (is_fresh)
			drop_holding(link, find_holding(link, key));
	}
	verbs_window_start(link);
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
	if (*at && (*at)->binding)
		return -REEF_EPROTO; /* it was not told of it yet */
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
