/* key.c - regions, attach and withdraw, what power leaves.
 *
 *              attach: ATTACH -> grant, ATTACHED        last grant gone
 *   EXPOSED --------------------------------> ...  WITHDRAWING ------> freed
 *      |                                             ^
 *      +--- withdraw: WITHDRAW to every grant -------+
 *
 * (1) A grant stands from the ATTACH until the holder has detached, or has
 *     acknowledged a WITHDRAW with nothing of it under way, or until the node
 *     has ended the holder's connection (lost and noticed, settled, fenced). A
 *     region is freed when no grant stands, and what then is still on its way
 *     finds no such key.
 * (2) Durable memory has a second image, what the last flush of each word left;
 *     when the power fails each word that is exposed becomes the one or stays
 *     the other. */
#include "fabric/sim/world.h"

#include "base/mutant.h"

#include <stdlib.h>
#include <string.h>

/* --- regions --- */

static struct sim_region **bucket_of(struct sim_fabric *fabric, uint64_t key)
{
	return &fabric->regions[key % REGION_BUCKETS];
}

struct sim_region *sim_region_find(struct sim_fabric *fabric, uint64_t key)
{
	struct sim_region *region = *bucket_of(fabric, key);

	while (region && region->base.key != key)
		region = region->next;
	if (region)
		return region;
	region = *bucket_of(fabric, ~key);
	while (region && region->base.read_key != key)
		region = region->next;
	return region;
}

void sim_region_free(struct sim_region *region)
{
	struct sim_region **at = bucket_of(region->fabric, region->base.key);

	while (*at != region)
		at = &(*at)->next;
	*at = region->next;
	if (region->kept) /* its memory is a copy, too */
		free(region->base.memory);
	free(region->kept);
	free(region->cased);
	free(region);
}

static bool is_domain_right(const struct sim_fabric *fabric,
			    const struct reef_memory *memory)
{
	return memory->domain == fabric->base.domain ||
	       REEF_MUTATED(SIM_F6_ANY_DOMAIN);
}

int sim_expose(struct reef_layer *layer, struct reef_memory *memory,
	       struct reef_region **out)
{
	struct sim_fabric *fabric =
		reef_container(layer->fabric, struct sim_fabric, base);
	struct sim_region *region;
	struct sim_region **at;

	if (fabric_is_dead(fabric))
		return -REEF_EHOSTDEAD;
	if (!is_domain_right(fabric, memory))
		return -REEF_EDOMAIN;
	region = calloc(1, sizeof(*region));
	if (!region)
		return -ENOMEM;
	region->base.fabric = &fabric->base;
	region->base.memory = memory;
	region->fabric = fabric;
	do
		region->base.key = reef_random_next(&fabric->sim->net);
	while (!region->base.key || !~region->base.key ||
	       sim_region_find(fabric, region->base.key));
	/* Nobody guesses here, and chance goes on as if there were one key. */
	region->base.read_key = ~region->base.key;
	at = bucket_of(fabric, region->base.key);
	region->next = *at;
	*at = region;
	*out = &region->base;
	return 0;
}

/* --- durability (2) --- */

void sim_region_flush(struct sim_region *region, uint64_t offset,
		      uint64_t length)
{
	int rc;

	if (REEF_MUTATED(SIM_F9_FORGET))
		return;
	rc = reef_memory_flush(region->base.memory, offset, length);
	reef_assert(!rc); /* it was checked, and is simulated */
}

static void lose_unflushed(struct reef_memory *memory,
			   struct reef_random *random)
{
	uint8_t *bytes = memory->base;
	uint64_t at;

	for (at = 0; at < memory->size; at += 8)
		if (memcmp(bytes + at, memory->flushed + at, 8) != 0 &&
		    reef_random_chance(random, 1, 2))
			memcpy(bytes + at, memory->flushed + at, 8);
	memcpy(memory->flushed, bytes, memory->size);
}

void sim_fabric_power_off(struct sim_fabric *fabric)
{
	struct sim_region *region;
	int i;

	for (i = 0; i < REGION_BUCKETS; i++)
		for (region = fabric->regions[i]; region; region = region->next)
			if (region->base.memory->flushed)
				lose_unflushed(region->base.memory,
					       &fabric->life->host->random);
}

/* --- attach --- */

static struct sim_remote *find_remote(struct sim_link *link, uint64_t id)
{
	struct sim_remote *remote = link->remotes;

	while (remote && remote->id != id)
		remote = remote->next;
	return remote;
}

int sim_attach(struct reef_layer *layer, struct reef_queue *queue,
	       struct reef_link *base, uint64_t key, struct reef_remote **out)
{
	struct sim_link *link = reef_container(base, struct sim_link, base);
	struct sim_remote *remote;

	if (fabric_is_dead(link->fabric))
		return -REEF_EHOSTDEAD;
	if (!link->conn)
		return -REEF_ENOLINK;
	remote = calloc(1, sizeof(*remote));
	if (!remote)
		return -ENOMEM;
	remote->base.link = base;
	remote->base.key = key;
	remote->base.state = 1;
	remote->id = ++link->conn->remotes_made;
	remote->next = link->remotes;
	link->remotes = remote;
	/* If the connection is lost already, the notice that is to come ends
	 * the attach. */
	sim_mail_send(link->conn, 1,
		      &(struct mail){.kind = MAIL_ATTACH,
				     .key = key,
				     .id = remote->id});
	*out = &remote->base;
	return 0;
}

/* Answer an ATTACH, at the node. */
void sim_attach_asked(struct conn *conn, const struct mail *mail)
{
	struct sim_fabric *fabric = conn->sides[1].fabric;
	struct sim_region *region = sim_region_find(fabric, mail->key);
	struct mail answer = {.kind = MAIL_ATTACHED, .id = mail->id};
	struct grant *grant;

	if (!region || region->withdrawing) {
		answer.code = -REEF_EKEY;
	} else if (!is_domain_right(fabric, region->base.memory)) {
		answer.code = -REEF_EDOMAIN;
	} else {
		grant = malloc(sizeof(*grant));
		reef_assert(grant);
		*grant = (struct grant){
			.next = conn->grants,
			.region = region,
			.id = mail->id,
		};
		conn->grants = grant;
		region->grants++;
		answer.region = region;
		answer.size = region->base.memory->size;
		answer.durable = region->base.memory->durable;
		answer.read_only =
			reef_region_only_reads(&region->base, mail->key);
	}
	sim_trace(conn->sim, TRACE_ATTACH, conn->sides[1].host, mail->key,
		  (uint64_t)answer.code);
	sim_mail_send(conn, 0, &answer);
}

void sim_attach_answered(struct conn *conn, const struct mail *mail)
{
	struct sim_link *link = conn->sides[0].link;
	struct sim_remote *remote = find_remote(link, mail->id);

	if (!remote)
		return;
	remote->region = mail->region;
	remote->base.size = mail->size;
	remote->base.durable = mail->durable;
	remote->base.read_only = mail->read_only;
	reef_attach_ended(link->base.queue, &remote->base, mail->code);
}

void sim_detach(struct reef_layer *layer, struct reef_queue *queue,
		struct reef_remote *base)
{
	struct sim_link *link =
		reef_container(base->link, struct sim_link, base);
	struct sim_remote *remote =
		reef_container(base, struct sim_remote, base);
	struct sim_remote **at = &link->remotes;

	reef_assert(!remote->under_way || !link->conn);
	while (*at != remote)
		at = &(*at)->next;
	*at = remote->next;
	if (link->conn)
		sim_mail_send(
			link->conn, 1,
			&(struct mail){.kind = MAIL_RELEASE, .id = remote->id});
	free(remote);
}

/* --- withdraw --- */

void sim_grant_drop(struct conn *conn, uint64_t id)
{
	struct grant **at = &conn->grants, *grant;

	while (*at && (*at)->id != id)
		at = &(*at)->next;
	grant = *at;
	if (!grant)
		return;
	*at = grant->next;
	grant->region->grants--;
	if (grant->region->withdrawing)
		sim_fabric_happened(grant->region->fabric);
	free(grant);
}

void sim_grants_drop(struct conn *conn)
{
	while (conn->grants)
		sim_grant_drop(conn, conn->grants->id);
}

/* Mutant SIM_F8_WITHDRAWN: say that the region is gone, and let holders go on,
 * in a copy: the memory is the caller's again, who may free it. */
static int pretend_withdrawn(struct sim_region *region)
{
	struct reef_memory *memory = malloc(sizeof(*memory));

	region->kept = malloc(region->base.memory->size);
	reef_assert(memory && region->kept);
	*memory = *region->base.memory;
	memcpy(region->kept, memory->base, memory->size);
	memory->base = region->kept;
	memory->flushed = NULL;
	region->base.memory = memory;
	return 0;
}

static void notify_holders(struct sim_region *region)
{
	struct conn *conn;
	struct grant *grant;

	sim_trace(region->fabric->sim, TRACE_WITHDRAW,
		  region->fabric->life->host, region->base.key, region->grants);
	for (conn = region->fabric->sim->conns; conn; conn = conn->next)
		for (grant = conn->grants; grant; grant = grant->next)
			if (grant->region == region)
				sim_mail_send(
					conn, 0,
					&(struct mail){.kind = MAIL_WITHDRAW,
						       .id = grant->id});
}

static bool has_grant(const struct conn *conn, const struct sim_region *region)
{
	const struct grant *grant = conn->grants;

	while (grant && grant->region != region)
		grant = grant->next;
	return grant != NULL;
}

/* Lose the connections of those who have not let go in time. */
static void lose_holders(struct sim_region *region)
{
	struct reef_sim *sim = region->fabric->sim;
	struct conn *conn, *next;

	for (conn = sim->conns; conn; conn = next) {
		next = conn->next;
		if (!has_grant(conn, region))
			continue;
		sim_conn_ref(conn);
		sim_conn_lose(conn, sim_soon(sim), 0, -REEF_ENOLINK);
		sim_side_notice(conn, 1, 0, -REEF_ENOLINK);
		next = conn->next;
		sim_conn_unref(conn);
	}
}

int sim_withdraw(struct reef_layer *layer, struct reef_queue *queue,
		 struct reef_region *base)
{
	struct sim_region *region =
		reef_container(base, struct sim_region, base);
	struct sim_fabric *fabric = region->fabric;

	if (fabric_is_dead(region->fabric))
		return -REEF_EHOSTDEAD;
	if (REEF_MUTATED(SIM_F8_WITHDRAWN))
		return pretend_withdrawn(region);
	if (!region->withdrawing) {
		region->withdrawing = true;
		region->overdue_ns = sim_now(fabric->sim) +
				     reef_local_clock_wait_ns(
					     &fabric->life->clock,
					     fabric->base.options.silence_ns);
		notify_holders(region);
	}
	if (region->grants && sim_now(fabric->sim) > region->overdue_ns)
		lose_holders(region);
	if (region->grants)
		return -EAGAIN;
	sim_region_free(region);
	return 0;
}

/* Take a WITHDRAW, at the holder. */
void sim_withdraw_asked(struct conn *conn, const struct mail *mail)
{
	struct sim_remote *remote = find_remote(conn->sides[0].link, mail->id);

	if (!remote)
		return; /* it has detached, and said so */
	atomic_store(&remote->base.state, -REEF_EKEY);
	remote->release = true;
	if (!remote->under_way)
		sim_remote_idle(remote);
}

void sim_remote_idle(struct sim_remote *remote)
{
	struct sim_link *link =
		reef_container(remote->base.link, struct sim_link, base);

	if (link->conn)
		sim_mail_send(
			link->conn, 1,
			&(struct mail){.kind = MAIL_RELEASE, .id = remote->id});
}
