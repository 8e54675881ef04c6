/* renew.c - the lease: this session's word at the broker, and what is read of
 * the table along with it.
 *
 * R8, hurry (lease.c, rule 9). Memory that was freed waits for two or three
 * epochs, which last half a lease or so each:
 *
 *          client_hurry: the wish goes into the word, and a note
 *   CALM -----------------------------------------------> ASKING (again, with
 *    ^  \                                                   |   growing pause)
 *    |   \  the table has hurry_ns; a note lets us look     |
 *    |    +--------------------> HURRYING <------------------+
 *    +--- it has 0 ----------------+   renews every hurry_ns
 *
 * (1) A wish is an epoch, and over when safe_epoch is that; so it needs nobody
 *     to take it back.
 * (2) Who sees a new epoch in a hurry announces it at once: else each epoch
 *     would last for two renewals of everyone.
 * (3) What is announced never goes down, however often: pins are at least what
 *     was announced (handle.c), the newest only rises, and a link that is not
 *     settled (settle.c) holds on to what might have been announced when it was
 *     noted.
 * (4) Who has no room at all says so beside the word, by the same rule as (1),
 *     and how many bytes wait: the broker then ends whoever holds everybody up
 *     for longer than a lease (lease.c, rule 10), and tells operators.
 * (5) A janitor says so there while it has memory to give away, or may have:
 *     whoever has no room then waits for it.
 * (6) safe_epoch is believed once the view of the pool epoch that stands beside
 *     it was taken in: a session that is FENCED may still WRITE at a node that
 *     is gone by then, so memory there must not be used again.
 * (7) Counters of the data path (count.h) go with renewals, and once more when
 *     the session is closed. What was counted after the last of them is lost
 *     with a process that dies. */
#include "pool/client/keeper/renew.h"

#include "base/mutant.h"
#include "pool/client/keeper/acknowledge.h"
#include "pool/client/keeper/keeper.h"
#include "pool/client/keeper/member.h"
#include "pool/client/keeper/settle.h"
#include "pool/client/keeper/view.h"
#include "wire/states.h"

#define ASK_MIN_NS (4 * CLIENT_MILLISECOND)
#define LEASE_PAUSE_NS CLIENT_MILLISECOND
#define BEAT_NS (5 * CLIENT_SECOND / 2) /* from one beat to the next */
#define COUNT_NS (CLIENT_SECOND / 4)	/* from counters to the next */
#define TICK_NS (2 * CLIENT_MILLISECOND)

/* --- R8 --- */

static uint64_t oldest_pin(const struct client_member *member)
{
	uint64_t oldest = UINT64_MAX, youngest = 0, pin;

	for (uint32_t i = 0; i < CLIENT_COHORTS; i++) {
		/* Acquire: the partner is reef_leave. */
		pin = atomic_load_explicit(&member->pins[i],
					   memory_order_acquire);
		oldest = pin < oldest ? pin : oldest;
		youngest = pin != UINT64_MAX && pin > youngest ? pin : youngest;
	}
	if (REEF_MUTATED(CLIENT_YOUNG_PIN) && youngest)
		return youngest;
	return oldest;
}

uint64_t client_oldest_epoch(struct reef_client *client)
{
	uint64_t oldest = atomic_load(&client->reclaim_epoch), pin;
	struct client_member *member;

	if (REEF_MUTATED(CLIENT_NO_PIN))
		return oldest;
	pin = client_unsettled_epoch(client);
	if (pin < oldest && !REEF_MUTATED(CLIENT_PIN_DROPPED))
		oldest = pin;
	reef_grace_barrier();
	pthread_mutex_lock(&client->lock);
	for (member = client->members; member; member = member->next) {
		pin = oldest_pin(member);
		if (pin < oldest)
			oldest = pin;
	}
	pthread_mutex_unlock(&client->lock);
	return oldest;
}

/* Take in this session's slot: is the session alive, is there a notice? */
static void note_slot(struct reef_client *client,
		      const struct reef_table_slot *slot)
{
	uint16_t generation = (uint16_t)slot->state;
	uint8_t state = (uint8_t)(slot->state >> 16);

	if (generation != (uint16_t)client->session ||
	    state != REEF_SESSION_ALIVE) {
		client_session_end(client, -REEF_EFENCED);
		return;
	}
	if (slot->notice != client->notice) {
		client->notice = slot->notice;
		client_view_refresh_soon(client);
	}
}

/* What is to be believed of safe_epoch: (6). */
static uint64_t believed_safe_epoch(struct reef_client *client,
				    const struct reef_table_header *header)
{
	uint64_t known = atomic_load(&client->safe_epoch);
	uint64_t epoch = client_epoch_of(client, header->safe_view >> 32);

	if (REEF_MUTATED(CLIENT_SAFE_FIRST))
		return header->safe_epoch;
	/* Words of two moments: the next renewal brings others. */
	if ((uint32_t)header->safe_view != (uint32_t)header->safe_epoch)
		return known;
	if (epoch > client->view_epoch) {
		client_epoch_seen(client, epoch);
		return known;
	}
	return header->safe_epoch;
}

/* R8. Between two renewals the epoch rises by one at most, so what was freed
 * meanwhile was freed in the epoch after the one that was known (lease.c, rule
 * 8). Only a broker's start skips some: then what was stamped with the epoch
 * before counts as freed in the newest. */
static void note_epochs(struct reef_client *client,
			const struct reef_table_header *header)
{
	uint64_t known = atomic_load(&client->reclaim_epoch);
	uint64_t safe = believed_safe_epoch(client, header);

	if (header->reclaim_epoch > known + 1) {
		if (!client->skip_to)
			client->skip_from = known + 1;
		client->skip_to = header->reclaim_epoch + 1;
	}
	if (client->skip_to && safe > client->skip_to)
		client->skip_to = 0;
	if (client->skip_to && safe > client->skip_from)
		safe = client->skip_from;
	atomic_store(&client->reclaim_epoch, header->reclaim_epoch);
	if (atomic_exchange(&client->safe_epoch, safe) == safe)
		return;
	client_wake(&client->changed); /* client_collect_main waits for it */
	if (!atomic_load(&client->reclaimers))
		return;
	pthread_mutex_lock(&client->lock);
	client_members_wake(client);
	pthread_mutex_unlock(&client->lock);
}

/* Take in whether memory is short. Then whoever has some to spare gives it back
 * soon: handles when they next free something, by a beat; the keeper what no
 * handle has. */
static void note_shorts(struct reef_client *client,
			const struct reef_table_header *header)
{
	uint32_t shorts = (uint32_t)header->shorts;

	atomic_store(&client->coming, header->coming);
	atomic_store(&client->returns, (uint32_t)(header->shorts >> 32));
	if (atomic_exchange(&client->shorts, shorts) == shorts)
		return;
	atomic_fetch_add_explicit(&client->beats, 1, memory_order_relaxed);
	client_wake(&client->changed);
}

/* --- hurry --- */

static bool wants_hurry(const struct reef_client *client)
{
	return atomic_load(&client->hurry_epoch) >
	       atomic_load(&client->safe_epoch);
}

static void raise_epoch(_Atomic uint64_t *at, uint64_t epoch)
{
	uint64_t before = atomic_load(at);

	while (before < epoch &&
	       !atomic_compare_exchange_weak(at, &before, epoch))
		;
}

void client_hurry(struct reef_client *client, uint64_t epoch)
{
	raise_epoch(&client->hurry_epoch, epoch);
	if (atomic_exchange(&client->hurry_told, true))
		return; /* the keeper reads hurry_epoch with each renewal */
	pthread_mutex_lock(&client->lock);
	if (client->wake)
		reef_queue_wake(client->wake);
	pthread_mutex_unlock(&client->lock);
}

struct epoch_wait {
	const struct reef_client *client;
	uint64_t epoch;
};

static bool is_epoch_past(const void *what)
{
	const struct epoch_wait *wait = what;

	return atomic_load(&wait->client->safe_epoch) > wait->epoch ||
	       client_over(wait->client);
}

int client_epoch_wait(struct reef_client *client, struct client_member *member,
		      uint64_t epoch, uint64_t timeout_ns)
{
	struct epoch_wait wait = {client, epoch};
	int rc;

	/* Sequentially consistent, as note_epochs: it sees that we wait, or we
	 * see what it stored. */
	atomic_fetch_add(&client->reclaimers, 1);
	raise_epoch(&client->lacks_epoch, epoch + 1);
	client_hurry(client, epoch + 1);
	rc = reef_queue_wait_until(member->queue, is_epoch_past, &wait,
				   timeout_ns);
	atomic_fetch_sub(&client->reclaimers, 1);
	return rc ? rc : client_over(client);
}

/* Take in whether the broker hurries. announced: the epoch in the renewal. */
static void note_hurry(struct reef_client *client, uint64_t hurry_ns,
		       uint32_t announced)
{
	client->hurry_ns = hurry_ns;
	if (hurry_ns && (uint32_t)client_oldest_epoch(client) != announced)
		client->renew_now = true; /* (2) */
	if (!wants_hurry(client)) {
		client->ask_ns = 0;
		/* A wish that comes after this wakes the keeper; one from
		 * before is in hurry_epoch. */
		client->hurry_seen = false;
		atomic_store(&client->hurry_told, false);
		if (wants_hurry(client)) {
			client->hurry_seen = client->renew_now = true;
			atomic_store(&client->hurry_told, true);
		}
		return;
	}
	if (hurry_ns) {
		client->ask_ns = 0;
		return;
	}
	client->ask_ns = client->ask_ns ? 2 * client->ask_ns : ASK_MIN_NS;
	if (client->peer) /* may be lost: the broker looks by itself, too */
		(void)reef_rpc_note(client->peer, REEF_POOL_HURRY, NULL);
}

/* How long to wait from one renewal to the next. */
static uint64_t renewal_pause_ns(const struct reef_client *client)
{
	uint64_t quarter_ns = client->ttl_ns / 4;
	uint64_t pause_ns = client->hurry_ns;

	if (!pause_ns)
		pause_ns = client->ask_ns;
	return pause_ns && pause_ns < quarter_ns ? pause_ns : quarter_ns;
}

/* --- renewing --- */

/* A renewal. Its batch may be under way for longer than the keeper waits. */
struct renewal {
	struct reef_renewal words;
	struct reef_table_header header;
	struct reef_table_slot slot;
	struct reef_op ops[3];
	struct reef_batch batch;
};

/* What the session has freed and cannot use again yet (4). */
static uint64_t waiting_word(struct reef_client *client)
{
	const struct client_space *space;
	uint64_t word = 0;

	pthread_mutex_lock(&client->lock);
	for (space = client->spaces; space; space = space->next)
		word += atomic_load_explicit(&space->waiting,
					     memory_order_relaxed);
	pthread_mutex_unlock(&client->lock);
	word &= REEF_RENEWAL_BYTES;
	if (client->janitor && (word || client->giving))
		word |= REEF_RENEWAL_GIVES;
	if (atomic_load(&client->lacks_epoch) >
	    atomic_load(&client->safe_epoch))
		word |= REEF_RENEWAL_LACKS;
	return word;
}

static void sum_counters(struct reef_client *client, struct reef_counters *out)
{
	const struct client_member *member;

	pthread_mutex_lock(&client->lock);
	*out = client->counters;
	for (member = client->members; member; member = member->next)
		client_counters_sum(out, &member->counters);
	pthread_mutex_unlock(&client->lock);
}

/* Put the counters behind the words, if that is due: in a hurry renewals are
 * too many for it. The length of what is to be written. */
static uint32_t add_counters(struct reef_client *client,
			     struct reef_renewal *words)
{
	const uint64_t now_ns = reef_now_ns();

	if (client->counted_ns && now_ns - client->counted_ns < COUNT_NS)
		return offsetof(struct reef_renewal, counters);
	client->counted_ns = now_ns;
	sum_counters(client, &words->counters);
	return sizeof(*words);
}

static void fill_renewal(struct reef_client *client, struct renewal *renewal)
{
	renewal->words.word = reef_renewal_word(
		++client->counter, (uint32_t)client_oldest_epoch(client));
	if (wants_hurry(client))
		renewal->words.word |= REEF_RENEWAL_HURRY;
	renewal->words.waiting = waiting_word(client);
	renewal->words.acknowledged = client->acknowledged;
	renewal->words.reserved = 0;
	renewal->ops[0] = (struct reef_op){
		.kind = REEF_WRITE,
		.remote = client->renewal,
		.local = &renewal->words,
		.length = add_counters(client, &renewal->words),
	};
	renewal->ops[1] = (struct reef_op){
		.kind = REEF_READ,
		.remote = client->table,
		.local = &renewal->header,
		.length = sizeof(renewal->header),
	};
	renewal->ops[2] = (struct reef_op){
		.kind = REEF_READ,
		.remote = client->table,
		.offset = reef_table_offset(client->session),
		.local = &renewal->slot,
		.length = sizeof(renewal->slot),
	};
	renewal->batch = (struct reef_batch){
		.link = client->peer->link,
		.ops = renewal->ops,
		.count = 3,
	};
}

static bool batch_is_done(const void *what)
{
	return ((const struct reef_batch *)what)->done;
}

/* A broker that does not answer in time may have been replaced: the link is
 * closed, as a new one shows that sooner than silence. */
static int run_renewal(struct reef_client *client, struct renewal *renewal)
{
	struct reef_queue *queue =
		reef_port_queue_of(client->port, renewal->batch.link);
	struct reef_peer *peer = client->peer;
	int rc;

	rc = reef_post(queue, &renewal->batch);
	if (rc < 0)
		return rc;
	rc = reef_queue_wait_until(queue, batch_is_done, &renewal->batch,
				   client->ttl_ns / 3);
	if (rc == -ETIMEDOUT && peer == client->peer)
		client_link_drop(client);
	if (!renewal->batch.done)
		reef_wait(queue, &renewal->batch);
	return rc ? rc : renewal->batch.status;
}

/* True if the broker has stood still for half a lease: its memory answers all
 * the same, and another one may have taken over. On shm a link that is closed
 * would be the end of the process. */
static bool is_still(struct reef_client *client,
		     const struct reef_table_header *header)
{
	uint64_t now_ns = reef_now_ns();
	struct reef_link *link = client->peer ? client->peer->link : NULL;

	if (header->beat != client->beat)
		client->beat_ns = now_ns;
	client->beat = header->beat;
	return now_ns - client->beat_ns > client->ttl_ns / 2 && link &&
	       strcmp(reef_fabric_kind(reef_link_fabric(link)), "shm") != 0;
}

static uint64_t lease_end_ns(const struct reef_client *client)
{
	uint64_t ttl_ns = atomic_load(&client->ttl_ns);

	return atomic_load(&client->looked_ns) + ttl_ns - ttl_ns / 8;
}

/* Tell handles until which tick the lease runs. */
static void publish_lease(struct reef_client *client)
{
	if (client->threaded)
		atomic_store(&client->lease_tick,
			     reef_tick_of(&client->tick_speed,
					  lease_end_ns(client)));
}

static int renew_once(struct reef_client *client)
{
	uint64_t asked_ns = reef_now_ns();
	struct renewal renewal;
	int rc;

	fill_renewal(client, &renewal);
	rc = run_renewal(client, &renewal);
	if (rc)
		return rc;
	if (renewal.header.magic != REEF_TABLE_MAGIC)
		return -REEF_EPROTO;
	if (renewal.header.broker_epoch < client->broker_epoch ||
	    is_still(client, &renewal.header))
		return -ESTALE;
	/* Whoever waits for memory must not hear that epochs have passed before
	 * it hears that they did as our session is over. */
	note_slot(client, &renewal.slot);
	if (client_over(client))
		return 0;
	client_epoch_seen(client, renewal.header.pool_epoch);
	client_acknowledged(client, renewal.words.acknowledged);
	note_shorts(client, &renewal.header);
	note_epochs(client, &renewal.header);
	note_hurry(client, renewal.header.hurry_ns,
		   (uint32_t)renewal.words.word);
	atomic_store(&client->looked_ns, asked_ns);
	publish_lease(client);
	return 0;
}

bool client_lease_runs(const struct reef_client *client)
{
	return reef_now_ns() < lease_end_ns(client);
}

/* Wait for a while, whatever happens meanwhile, or until the lease runs: fibers
 * that have it renewed would else wake each other for ever. */
static int pause_for_lease(struct reef_client *client)
{
	uint64_t until_ns = reef_now_ns() + LEASE_PAUSE_NS, now_ns;
	int rc = 0;

	while (!rc && !client_lease_runs(client) && !client_over(client) &&
	       (now_ns = reef_now_ns()) < until_ns)
		rc = client_wait(&client->changed, until_ns - now_ns);
	return rc;
}

static int run_lease(struct reef_client *client, struct client_job *job)
{
	uint64_t until_ns = reef_now_ns() + client_patience_ns(client);
	int rc = 0;

	(void)job;
	while (!rc && !client_lease_runs(client)) {
		rc = client_over(client);
		if (!rc && (client->stopping || reef_now_ns() >= until_ns))
			rc = -REEF_ENOLINK;
		if (rc)
			break;
		client->renew_now = true;
		client_wake(&client->changed);
		rc = pause_for_lease(client);
	}
	return rc;
}

const struct client_job_ops client_lease_ops = {
	.size = sizeof(struct client_job),
	.run = run_lease,
};

void client_tell_counters(struct reef_client *client)
{
	struct renewal renewal;

	if (!client->peer || !client->peer->link || !client->renewal)
		return;
	sum_counters(client, &renewal.words.counters);
	renewal.ops[0] = (struct reef_op){
		.kind = REEF_WRITE,
		.remote = client->renewal,
		.offset = offsetof(struct reef_renewal, counters),
		.local = &renewal.words.counters,
		.length = sizeof(renewal.words.counters),
	};
	renewal.batch = (struct reef_batch){
		.link = client->peer->link,
		.ops = renewal.ops,
		.count = 1,
	};
	(void)run_renewal(client, &renewal);
}

int client_renew_main(void *arg)
{
	struct reef_client *client = arg;
	uint64_t next_ns = reef_now_ns(), now_ns, beat_ns = 0;
	uint64_t pause_ns;
	int rc = 0;

	while (!rc && !client->stopping && !client_over(client)) {
		now_ns = reef_now_ns();
		if (now_ns >= beat_ns) {
			beat_ns = now_ns + BEAT_NS;
			atomic_fetch_add_explicit(&client->beats, 1,
						  memory_order_relaxed);
		}
		if (now_ns < next_ns && !client->renew_now) {
			pause_ns = (next_ns < beat_ns ? next_ns : beat_ns) -
				   now_ns;
			/* After a while ticks tell their speed. */
			if (client->tick_speed.has_ticks &&
			    !atomic_load(&client->lease_tick) &&
			    client_lease_runs(client)) {
				publish_lease(client);
				pause_ns =
					pause_ns < TICK_NS ? pause_ns : TICK_NS;
			}
			rc = client_wait(&client->changed, pause_ns);
			continue;
		}
		client->renew_now = false;
		next_ns = now_ns + client->ttl_ns / 4;
		if (!client->present || !client->peer->link)
			continue;
		rc = renew_once(client);
		if (!rc)
			next_ns = now_ns + renewal_pause_ns(client);
		/* A session that was recovered has no word any more; nor can
		 * its slot be read, which comes after that. */
		if (rc == -REEF_EFENCED || rc == -REEF_EKEY)
			client_session_end(client, -REEF_EFENCED);
		if (!rc || rc == -REEF_EHOSTDEAD)
			continue;
		if (rc == -ESTALE)
			client_broker_leave(client);
		else
			client_link_check(client);
		rc = 0;
	}
	client_fiber_end(client);
	return 0;
}
