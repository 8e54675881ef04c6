/* confirm.c - which of several brokers speaks for the pool.
 *
 * A broker may stand still, its journal be brought to another machine, another
 * broker be started there, and the old one go on. Both hold themselves for the
 * broker. The nodes decide, and neither acts before they have:
 *
 * (1) The *witnesses* are the first BROKER_WITNESSES_MAX nodes of the state
 *     that are not DEAD or AWAY. A *council* is what they were from one record
 * on. The councils that count are the one of the last confirmed record and all
 *     later ones, so that who is a witness changes under the eyes of both. A
 *     journal does not tell which record was confirmed: a start counts what it
 *     ends with. So a life of a node that is in no council yet is noted only by
 *     who is chosen, after the change of witnesses before it is confirmed, and
 *     when the witnesses have just confirmed that nobody else was chosen
 *     (broker_council_await): else nodes that come to a broker that nobody
 *     follows would choose it when it is started again, in place of those that
 *     were its witnesses and follow another.
 * (2) A node *follows* one start of a broker, the one of the highest epoch that
 *     it answered, and refuses whoever comes with less. It remembers the last
 *     record that it confirmed: of which epoch and start, and its sequence.
 * (3) A start is *chosen* when more than half of every council follow it. Who
 *     registers tells what it confirmed last: if the journal ended before that
 *     when it was opened, the start lacks what may have been acknowledged, and
 *     does not get this node (-REEF_EOLDER). If it was another start, chosen
 * with our epoch or a later one, this one is stale, and serves no more
 * (-ESTALE). Where a journal ends is told by its *base*: the last epoch that
 * was chosen with it, and the last record before the next start. Starts that
 *     were not chosen add epochs and records, but nothing to the base: an old
 *     copy stays one, however often it is started. The base is journaled by
 *     who is chosen, before a node is asked to confirm any record, and by each
 *     start before its epoch. Who was chosen by nobody (7) judges nodes like
 *     who is not chosen: its journal may be older than the first node.
 * (4) A record is *confirmed* when this start is chosen and at least half of
 *     every council have confirmed its sequence, after it was durable. Nothing
 *     is answered, published or told to a node before (broker_wait_durable), so
 *     neither a session's FENCED nor a node's death nor the drop of an extent.
 *     Any start that is chosen later has more than half, so one of those that
 *     confirmed it: it has the record, or is not chosen. A node that was the
 *     last witness of this broker can therefore not be declared dead.
 * (5) Who registers and has followed a higher epoch makes this start take a
 *     higher one still, and be chosen anew: whoever began that epoch was not
 *     chosen, as far as this node knows, and would be refused by (3) if it
 *     lacks anything.
 * (6) A broker is *sure* if it is chosen and half of every council were heard
 *     within half a node's ttl. One that is not judges nobody, and refuses its
 *     clients: requests wait for a moment and are in doubt then, the table has
 *     epoch 0, so that they look for another broker. Nodes are told by pulses.
 *     What it reads out without a change may so be old by half a node's ttl.
 * (7) Where nobody is a witness (no node yet, or all were removed), everything
 *     is confirmed: nobody else has nodes to confirm it either.
 * (8) An operator who removes a node vouches that no other broker has it; it is
 *     a witness no more, in no council.
 *
 * (9) A node that begins a new life leaves the councils for one record and
 * comes back in the next, so a start counts both: it may have forgotten what it
 *     confirmed, and a journal may end in between. Not so one that keeps its
 *     memory and *remembers*: what it confirmed last, and all since. Its two
 *     lives are one witness, which tells a start under (3) and (5) whatever it
 *     would have told before. Both ends are in one record then, and the council
 *     stays. What it forgot before it confirmed that does not matter: only who
 *     is chosen has records confirmed, and has all that was before.
 *
 * Cost: a message to each witness for all changes of that moment together, for
 * each step of the reclaim epoch, and for a session that is resumed; none while
 * nothing changes.
 *
 * A node that begins a new life has forgotten whom it followed, unless it keeps
 * its memory: then it knows that, too (node/keep.h). It counts all the same,
 * but for (9): else a pool of one node could not be started again.
 *
 * A node that is found AWAY is out of the councils as one that is DEAD is, and
 * comes back into them in the same way: by a life that is noted under (1). What
 * it confirmed before, and remembers, makes it refuse more, never less. That
 * its extents wait for it changes nothing here: nobody but a chosen broker
 * hands out keys for them. */
#include "pool/broker/lending.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

#define RAISE_MAX 4096 /* epochs at once */

/* --- councils --- */

static void list_witnesses(const struct reef_broker *broker,
			   struct broker_council *out)
{
	const struct reef_state_node *nodes;
	size_t count, i;

	*out = (struct broker_council){.since = broker->applied};
	nodes = reef_state_nodes(broker->state, &count);
	for (i = 0; i < count && out->count < BROKER_WITNESSES_MAX; i++)
		if (!reef_node_is_gone(nodes[i].state))
			out->nodes[out->count++] = nodes[i].id;
}

static bool is_same_council(const struct broker_council *a,
			    const struct broker_council *b)
{
	return a->count == b->count &&
	       memcmp(a->nodes, b->nodes, sizeof(a->nodes)) == 0;
}

void broker_council_update(struct reef_broker *broker)
{
	struct broker_council now, *councils = broker->councils;
	uint32_t i, count = broker->councils_count;

	list_witnesses(broker, &now);
	if (is_same_council(&now, &councils[count - 1]))
		return;
	/* One that was before counts once, so a node that begins one life after
	 * the other does not make the list long. */
	for (i = 0; i < count && !is_same_council(&now, &councils[i]); i++)
		;
	if (i < count)
		memmove(councils + i, councils + i + 1,
			(--count - i) * sizeof(*councils));
	/* Who adds nodes asked broker_council_has_room; deaths of others wait
	 * for confirmation. */
	reef_assert(count < BROKER_COUNCILS_MAX);
	councils[count++] = now;
	broker->councils_count = count;
}

bool broker_council_has_room(const struct reef_broker *broker)
{
	/* A node that returns leaves the council and comes back. */
	return broker->councils_count + 4 <= BROKER_COUNCILS_MAX;
}

static bool is_in_council(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_council *council = broker->councils;
	uint32_t i, j;

	for (i = 0; i < broker->councils_count; i++, council++)
		for (j = 0; j < council->count; j++)
			if (council->nodes[j] == id)
				return true;
	return false;
}

void broker_witness_forget(struct reef_broker *broker, uint32_t id)
{
	struct broker_council *council;
	uint32_t i, j, kept;

	for (i = 0; i < broker->councils_count; i++) {
		council = &broker->councils[i];
		for (j = kept = 0; j < council->count; j++)
			if (council->nodes[j] != id)
				council->nodes[kept++] = council->nodes[j];
		for (council->count = kept; kept < BROKER_WITNESSES_MAX; kept++)
			council->nodes[kept] = 0;
	}
}

int broker_confirm_open(struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	broker->base_epoch = summary.base_epoch;
	broker->base = summary.base;
	if (!summary.base) /* the last start was chosen, or did not say */
		broker->base = broker->applied;
	if (!summary.base && !summary.base_epoch)
		broker->base_epoch = summary.broker_epoch;
	do
		broker->start = reef_random_next(&broker->random);
	while (broker->start == 0);
	list_witnesses(broker, &broker->councils[0]);
	broker->councils_count = 1;
	return 0;
}

static int commit_base(struct reef_broker *broker, uint64_t epoch,
		       uint64_t last, uint64_t *sequence)
{
	struct reef_record record = {
		.type = REEF_RECORD_BASE,
		.value = epoch,
		.generation = last,
	};

	return broker_commit(broker, &record, NULL, sequence);
}

int broker_confirm_begin(struct reef_broker *broker)
{
	/* A new journal has had no epoch; 0 would say that it goes on. */
	return commit_base(broker, broker->base_epoch,
			   broker->base ? broker->base : 1, NULL);
}

/* --- what the councils say --- */

static bool is_linked(const struct broker_node *node)
{
	return node && node->peer && node->peer->link;
}

static bool has_more_than_half(struct reef_broker *broker,
			       const struct broker_council *council)
{
	const struct broker_node *node;
	uint32_t i, n = 0;

	for (i = 0; i < council->count; i++) {
		node = broker_node_find(broker, council->nodes[i]);
		n += node && node->followed == broker->epoch;
	}
	return council->count == 0 || n > council->count / 2;
}

/* The latest sequence that half of a council confirmed, and not before
 * since_ns. */
static uint64_t confirmed_by_half(struct reef_broker *broker,
				  const struct broker_council *council,
				  uint64_t since_ns)
{
	const struct broker_node *node;
	uint64_t best = 0, one;
	uint32_t i, j, n;

	if (council->count == 0)
		return broker->durable;
	for (i = 0; i < council->count; i++) {
		node = broker_node_find(broker, council->nodes[i]);
		one = node && node->confirmed_ns >= since_ns ? node->confirmed
							     : 0;
		for (j = n = 0; one > best && j < council->count; j++) {
			node = broker_node_find(broker, council->nodes[j]);
			n += node && node->confirmed >= one &&
			     node->confirmed_ns >= since_ns;
		}
		if (one > best && n >= (council->count + 1) / 2)
			best = one;
	}
	return best;
}

static uint64_t confirmed_by_all(struct reef_broker *broker, uint64_t since_ns)
{
	uint64_t least = UINT64_MAX, one;
	uint32_t i;

	if (!broker->chosen)
		return 0;
	for (i = 0; i < broker->councils_count; i++) {
		one = confirmed_by_half(broker, &broker->councils[i], since_ns);
		least = one < least ? one : least;
	}
	return least;
}

static bool is_chosen_by_nodes(const struct reef_broker *broker)
{
	return broker->chosen && !broker->chosen_by_nobody;
}

/* More than half of every council follow. If nobody is in them, the journal
 * does not say so: nodes that come may know more (3). */
static void note_choice(struct reef_broker *broker)
{
	bool by_nobody =
		broker->councils[broker->councils_count - 1].count == 0;

	if (broker->chosen && (by_nobody || is_chosen_by_nodes(broker)))
		return;
	if (!by_nobody &&
	    commit_base(broker, broker->epoch, 0, &broker->chosen_at))
		return;
	if (!broker->chosen)
		broker_event(broker, "broker epoch %llu is chosen",
			     (unsigned long long)broker->epoch);
	broker->chosen = true;
	broker->chosen_by_nobody = by_nobody;
}

/* Take in what nodes have confirmed; councils that are past go. */
static void count_confirmations(struct reef_broker *broker)
{
	bool chosen = true;
	uint64_t now;
	uint32_t i;

	if (broker->chosen && broker->confirmed >= broker->wanted &&
	    broker->councils_count == 1)
		return;
	for (i = 0; i < broker->councils_count; i++)
		chosen &= has_more_than_half(broker, &broker->councils[i]);
	if (chosen)
		note_choice(broker);
	now = confirmed_by_all(broker, 0);
	if (now > broker->confirmed)
		broker->confirmed = now;
	while (broker->councils_count > 1 &&
	       broker->councils[1].since <= broker->confirmed)
		memmove(broker->councils, broker->councils + 1,
			--broker->councils_count * sizeof(*broker->councils));
}

/* --- asking witnesses --- */

static uint64_t patience_ns(const struct reef_broker *broker)
{
	return broker_node_ttl(broker) / 8;
}

static uint64_t last_heard_ns(const struct broker_node *node)
{
	return node->heard_ns > node->answered_ns ? node->heard_ns
						  : node->answered_ns;
}

/* True if a witness has not yet said what is waited for. */
static bool is_asked(const struct reef_broker *broker,
		     const struct broker_node *node)
{
	if (node->followed != broker->epoch)
		return true;
	if (reef_now_ns() - last_heard_ns(node) >= 3 * patience_ns(broker))
		return true; /* its pulse is late */
	return is_chosen_by_nodes(broker) &&
	       (node->confirmed < broker->wanted ||
		node->confirmed_ns < broker->wanted_ns);
}

static bool is_base_durable(const struct reef_broker *broker)
{
	return is_chosen_by_nodes(broker) &&
	       broker->durable >= broker->chosen_at;
}

static int ask_once(struct reef_broker *broker, struct broker_node *node)
{
	/* Before it is chosen, and its journal says so, a start has no record
	 * confirmed: else a node would refuse all others for the sake of one
	 * that nobody chose, or that does not know that it was (3). */
	struct reef_body body = {
		.ask.confirm = {.start = broker->start,
				.sequence = is_base_durable(broker)
						    ? broker->durable
						    : 0},
	};
	uint64_t epoch = broker->epoch, incarnation = node->incarnation;
	uint64_t asked_ns = reef_now_ns();
	uint32_t id = node->id;
	int rc;

	rc = broker_node_call_unconfirmed(broker, id, REEF_POOL_CONFIRM, &body);
	node = broker_node_find(broker, id);
	if (rc)
		return rc;
	if (!node || node->incarnation != incarnation || broker->epoch != epoch)
		return 0;
	node->followed = epoch;
	if (body.ask.confirm.sequence > node->confirmed)
		node->confirmed = body.ask.confirm.sequence;
	if (body.ask.confirm.sequence)
		node->confirmed_ns = asked_ns;
	node->answered_ns = asked_ns;
	count_confirmations(broker);
	broker_is_sure(broker);
	broker_confirm_ask(broker); /* it may be chosen now */
	broker_wake(broker);
	return 0;
}

static void ask_witness(struct reef_broker *broker, uint32_t id)
{
	struct broker_node *node = broker_node_find(broker, id);
	int rc = 0;

	while (rc == 0 && is_linked(node) && is_asked(broker, node) &&
	       !broker->stopping && !broker->health) {
		if (is_chosen_by_nodes(broker) && !is_base_durable(broker)) {
			rc = broker_wait_journal(broker, broker->chosen_at);
			node = broker_node_find(broker, id);
			continue;
		}
		rc = ask_once(broker, node);
		node = broker_node_find(broker, id);
	}
	if (node)
		node->asking = false;
}

void broker_confirm_ask(struct reef_broker *broker)
{
	const struct broker_council *council;
	struct broker_node *node;
	uint32_t i, j;

	count_confirmations(broker);
	for (i = 0; i < broker->councils_count; i++) {
		council = &broker->councils[i];
		for (j = 0; j < council->count; j++) {
			node = broker_node_find(broker, council->nodes[j]);
			if (is_linked(node) && !node->asking &&
			    is_asked(broker, node))
				node->asking = broker_spawn(broker, ask_witness,
							    node->id) == 0;
		}
	}
}

/* --- waiting --- */

int broker_wait_confirmed(struct reef_broker *broker, uint64_t sequence,
			  uint64_t timeout_ns)
{
	uint64_t begun_ns = reef_now_ns();
	int rc;

	if (REEF_MUTATED(BROKER_UNCONFIRMED))
		return 0;
	if (sequence > broker->wanted)
		broker->wanted = sequence;
	for (;;) {
		broker_confirm_ask(broker);
		if (broker->health || broker->confirmed >= sequence)
			return broker->health;
		if (reef_now_ns() - begun_ns >= timeout_ns)
			return -ETIMEDOUT;
		/* A witness that did not answer is asked again. */
		rc = broker_sleep(broker, patience_ns(broker));
		if (rc)
			return rc;
	}
}

int broker_confirm_now(struct reef_broker *broker)
{
	uint64_t now_ns = reef_now_ns(), sequence = broker->durable;
	int rc;

	if (REEF_MUTATED(BROKER_UNCONFIRMED))
		return 0;
	broker->wanted_ns = now_ns;
	for (;;) {
		broker_confirm_ask(broker);
		if (broker->health ||
		    (broker->chosen &&
		     confirmed_by_all(broker, now_ns) >= sequence))
			return broker->health;
		if (reef_now_ns() - now_ns >= 2 * patience_ns(broker))
			return -ETIMEDOUT;
		rc = broker_sleep(broker, patience_ns(broker));
		if (rc)
			return rc;
	}
}

/* True if a new life of that node may be noted (1). */
static bool admits(struct reef_broker *broker, uint32_t id)
{
	count_confirmations(broker);
	return REEF_MUTATED(BROKER_UNCONFIRMED) || is_in_council(broker, id) ||
	       (broker->chosen && broker->councils_count == 1);
}

int broker_council_await(struct reef_broker *broker, uint32_t id)
{
	int rc;

	if (is_in_council(broker, id))
		return 0;
	rc = broker_wait_journal(broker, broker->applied);
	if (rc == 0)
		rc = broker_wait_confirmed(broker, broker->applied,
					   patience_ns(broker));
	if (rc == 0)
		rc = broker_confirm_now(broker);
	if (rc && rc != -ETIMEDOUT)
		return rc;
	return rc == 0 && admits(broker, id) ? 0 : -REEF_EINDOUBT;
}

/* --- sure or not --- */

/* True if a node follows this broker, and was heard a moment ago. */
static bool is_heard(struct reef_broker *broker, uint32_t id, uint64_t now_ns)
{
	const struct broker_node *node = broker_node_find(broker, id);

	return node && node->followed == broker->epoch &&
	       last_heard_ns(node) + broker_node_ttl(broker) / 2 > now_ns;
}

static bool was_half_heard(struct reef_broker *broker,
			   const struct broker_council *council,
			   uint64_t now_ns)
{
	uint32_t i, n = 0;

	for (i = 0; i < council->count; i++)
		n += is_heard(broker, council->nodes[i], now_ns);
	return n >= (council->count + 1) / 2;
}

/* Say which nodes are waited for, and what to do if one of them will not come:
 * once, when too few nodes have followed for as long as a node may be silent.
 */
static void tell_missing(struct reef_broker *broker, uint64_t now_ns)
{
	const struct broker_council *council =
		&broker->councils[broker->councils_count - 1];
	uint64_t since_ns = broker->sure_ns > broker->started_ns
				    ? broker->sure_ns
				    : broker->started_ns;
	const struct reef_state_node *node;
	char text[120] = "";
	uint32_t i;

	if (broker->told_missing || now_ns < since_ns + broker_node_ttl(broker))
		return;
	broker->told_missing = true;
	for (i = 0; i < council->count; i++) {
		node = reef_state_node(broker->state, council->nodes[i]);
		if (node && !is_heard(broker, node->id, now_ns))
			snprintf(text + strlen(text),
				 sizeof(text) - strlen(text), " %s",
				 node->name);
	}
	broker_event(broker, "too few nodes follow this broker; missing:%s",
		     text);
	reef_log(REEF_LOG_WARNING, "broker",
		 "too few nodes follow this broker, so it changes nothing; it "
		 "waits for:%s. Start them; for one that will not come back: "
		 "reef node remove NAME",
		 text);
}

bool broker_is_needed(struct reef_broker *broker, uint32_t id)
{
	const struct broker_council *council;
	const struct broker_node *node;
	uint32_t i, j, n;
	bool member;

	for (i = 0; i < broker->councils_count; i++) {
		council = &broker->councils[i];
		member = false;
		for (j = n = 0; j < council->count; j++) {
			node = broker_node_find(broker, council->nodes[j]);
			n += council->nodes[j] != id && is_linked(node);
			member |= council->nodes[j] == id;
		}
		if (member && n < (council->count + 1) / 2)
			return true;
	}
	return false;
}

bool broker_is_sure(struct reef_broker *broker)
{
	uint64_t now_ns = reef_now_ns();
	bool sure;
	uint32_t i;

	count_confirmations(broker);
	/* Who stood still has pulses to read first: they are waiting. */
	if (broker->watched_ns + 2 * patience_ns(broker) < now_ns &&
	    broker->sure)
		return true;
	sure = broker->chosen;
	for (i = 0; i < broker->councils_count; i++)
		sure &= was_half_heard(broker, &broker->councils[i], now_ns);
	sure |= REEF_MUTATED(BROKER_UNCONFIRMED);
	if (sure != broker->sure) {
		broker->sure = sure;
		broker->sure_ns = now_ns;
		broker->told_missing = false;
		broker_event(broker, sure ? "enough nodes follow this broker"
					  : "too few nodes follow this broker: "
					    "it changes nothing");
		broker_publish_broker_epoch(broker);
		broker_wake(broker);
	}
	if (!sure)
		tell_missing(broker, now_ns);
	return sure;
}

bool broker_await_sure(struct reef_broker *broker)
{
	uint64_t begun_ns = reef_now_ns(), passed_ns = 0;

	while (!broker_is_sure(broker)) {
		passed_ns = reef_now_ns() - begun_ns;
		if (passed_ns >= patience_ns(broker) || broker->health ||
		    broker_sleep(broker, patience_ns(broker) - passed_ns))
			return false;
	}
	return true;
}

/* Clients miss the beat after half a lease. */
static uint64_t watch_period_ns(const struct reef_broker *broker)
{
	uint64_t ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);

	return ttl_ns / 8 < patience_ns(broker) ? ttl_ns / 8
						: patience_ns(broker);
}

static void watch_sureness(struct reef_broker *broker, uint32_t ignored)
{
	uint64_t period_ns, passed_ns;
	int rc = 0;

	while (rc == 0 && !broker->health) {
		period_ns = watch_period_ns(broker);
		passed_ns = reef_now_ns() - broker->watched_ns;
		if (broker->watched_ns && passed_ns < period_ns) {
			rc = broker_sleep(broker, period_ns - passed_ns);
			continue;
		}
		broker_confirm_ask(broker);
		broker_is_sure(broker);
		broker_publish_beat(broker);
		broker->watched_ns = reef_now_ns();
	}
}

int broker_confirm_start(struct reef_broker *broker)
{
	return broker_spawn(broker, watch_sureness, 0);
}

/* --- who registers --- */

/* Commit epochs, one after the other as the state wants them, up to that one.
 */
static int commit_epochs(struct reef_broker *broker, uint64_t last)
{
	struct reef_record record = {.type = REEF_RECORD_BROKER};
	struct reef_state_summary summary;
	int rc = 0;

	reef_state_summary(broker->state, &summary);
	record.value = summary.broker_epoch;
	while (rc == 0 && record.value < last) {
		record.value++;
		rc = broker_commit(broker, &record, NULL, NULL);
	}
	return rc ? rc : broker_wait_journal(broker, broker->applied);
}

/* Take an epoch above that one, and be chosen anew (5). */
static int raise_epoch(struct reef_broker *broker, uint64_t above)
{
	struct broker_node *node;
	int rc;

	if (above - broker->epoch >= RAISE_MAX)
		return -EINVAL;
	rc = commit_epochs(broker, above + 1);
	if (rc || above < broker->epoch) /* another node made it rise */
		return rc;
	broker->epoch = above + 1;
	reef_rpc_set_epoch(broker->rpc, broker->epoch);
	broker->chosen = false;
	for (node = broker->nodes; node; node = node->next)
		node->confirmed = node->confirmed_ns = 0;
	broker_event(broker, "another broker had epoch %llu: now %llu",
		     (unsigned long long)above,
		     (unsigned long long)broker->epoch);
	broker_is_sure(broker);
	broker_confirm_ask(broker);
	return 0;
}

int broker_confirm_register(struct reef_broker *broker, uint32_t node,
			    const struct reef_ask_node_register *ask)
{
	bool other =
		ask->confirmed_start && ask->confirmed_start != broker->start;

	if (REEF_MUTATED(BROKER_UNCONFIRMED))
		return 0;
	if (other && ask->confirmed_epoch >= broker->epoch) {
		broker_fail(broker, -ESTALE);
		return -REEF_EINDOUBT;
	}
	if (other && !is_chosen_by_nodes(broker) &&
	    (ask->confirmed_epoch > broker->base_epoch ||
	     (ask->confirmed_epoch == broker->base_epoch &&
	      ask->confirmed > broker->base))) {
		broker_event(broker,
			     "node %u knows of later changes: this journal "
			     "is an old copy",
			     node);
		return -REEF_EOLDER;
	}
	if (ask->followed_epoch > broker->epoch ||
	    (ask->followed_epoch == broker->epoch && ask->followed_start &&
	     ask->followed_start != broker->start))
		return raise_epoch(broker, ask->followed_epoch);
	return 0;
}
