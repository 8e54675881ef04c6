/* rekey.c - after a revocation: those who hold keys of a space hold nothing.
 *
 * (1) Every extent of the space is withdrawn from everybody at its node, and
 *     exposed anew under new keys, which only those learn who may still open
 *     the space. Data stays at its node, but where a process may have kept
 *     what it had mapped, in other memory (node/extent.c, 5); the extent's
 *     epoch stays, too.
 * (2) The revocation is answered when that is done, by the fiber that does it:
 *     nobody waits for holders in a handler. If the broker dies before, its
 *     repetition does it (again).
 * (3) What is on the move, or closed by somebody else, is waited for. If it has
 *     moved it has other memory and other keys; else it is done then.
 * (4) A holder that does not let go is waited for until it does, or is fenced.
 * (5) A space has one fiber for that, for all who ask; who asks while it is
 *     under way waits for its next round. At most WAITERS_MAX wait for a space,
 *     and at most USER_MAX spaces of one user are worked on at once, so that
 *     what one user's holders keep is not in others' way.
 *
 *   (none) --broker_space_rekey: a fiber--> waits for its turn --> a round for
 *     those who wait --> they are answered --> more wait? a round : (none) */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

#define WAITERS_MAX 32
#define USER_MAX 4

struct rekey_waiter {
	const struct reef_request *request;
	uint32_t era;
};

/* A space that is given new keys, or is to be. */
struct broker_rekey {
	uint32_t space, user;
	bool is_running; /* it has its turn */
	uint32_t count;
	struct rekey_waiter waiters[WAITERS_MAX];
	struct broker_rekey *next;
};

/* True if the extent is on that node. */
static bool is_on_node(struct reef_broker *broker, uint32_t number,
		       uint32_t node)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, number);

	return extent && extent->node == node;
}

/* Withdraw an extent and expose it anew. It stays marked as rekeying meanwhile,
 * so that nobody else opens it. */
static int rekey_open_extent(struct reef_broker *broker, uint32_t number,
			     uint32_t node)
{
	struct reef_body body = {
		.ask.extent_close = {.extent = number,
				     .flags = REEF_POOL_FRESH},
	};
	struct broker_extent *told;
	uint64_t pause_ns = 0;
	bool done = false;
	int rc = 0;

	while (rc == 0 && !done && is_on_node(broker, number, node)) {
		told = broker_extent_find(broker, number);
		if (told)
			told->rekeying = true;
		broker_extent_set_closed(broker, number);
		rc = broker_node_call(broker, node, REEF_POOL_EXTENT_CLOSE,
				      &body, NULL);
		done = rc == 0;
		if (rc == 0)
			rc = broker_extent_reopen(broker, number);
		else if (rc != -ECANCELED && rc != -REEF_EHOSTDEAD)
			rc = broker_sleep_longer(broker, &pause_ns);
	}
	told = broker_extent_find(broker, number);
	if (told)
		told->rekeying = false;
	return rc;
}

static int rekey_extent(struct reef_broker *broker, uint32_t number)
{
	const struct reef_state_extent *extent;
	struct broker_extent *told;
	struct broker_node *node;
	uint32_t epoch = 0;
	bool away;
	int rc;

	for (;;) {
		extent = reef_state_extent(broker->state, number);
		told = broker_extent_find(broker, number);
		if (!extent || reef_extent_is_lost(extent->state))
			return 0;
		if (!epoch)
			epoch = extent->epoch;
		away = extent->state == REEF_EXTENT_MOVING ||
		       (told && told->closed);
		if (!away && extent->epoch != epoch)
			return 0; /* it has moved */
		if (!away && told && !broker_extent_is_moving(broker, number)) {
			node = broker_node_find(broker, extent->node);
			if (broker_node_is_ready(node))
				return rekey_open_extent(broker, number,
							 node->id);
		}
		rc = broker_sleep(broker, broker_node_ttl(broker) / 4);
		if (rc || broker->health)
			return rc ? rc : -ECANCELED;
	}
}

/* Give all extents that a space has new keys. */
static int rekey_extents(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	uint32_t *numbers, count, i;
	int rc = 0;

	if (!space || space->ordinals == 0)
		return 0;
	count = space->ordinals;
	numbers = malloc(count * sizeof(*numbers));
	if (!numbers)
		return -ENOMEM;
	memcpy(numbers, space->by_ordinal, count * sizeof(*numbers));
	for (i = 0; rc == 0 && i < count; i++)
		if (numbers[i])
			rc = rekey_extent(broker, numbers[i]);
	free(numbers);
	return rc;
}

/* --- the fiber of a space (5) --- */

static struct broker_rekey *find_rekey(const struct reef_broker *broker,
				       uint32_t space)
{
	struct broker_rekey *rekey = broker->rekeys;

	while (rekey && rekey->space != space)
		rekey = rekey->next;
	return rekey;
}

static void destroy_rekey(struct reef_broker *broker,
			  struct broker_rekey *rekey)
{
	struct broker_rekey **at = &broker->rekeys;

	while (*at != rekey)
		at = &(*at)->next;
	*at = rekey->next;
	free(rekey);
}

static bool has_turn(const struct reef_broker *broker, uint32_t user)
{
	const struct broker_rekey *rekey;
	uint32_t count = 0;

	for (rekey = broker->rekeys; rekey; rekey = rekey->next)
		count += rekey->is_running && rekey->user == user;
	return count < USER_MAX;
}

static int await_turn(struct reef_broker *broker, struct broker_rekey *rekey)
{
	int rc = 0;

	while (rc == 0 && !has_turn(broker, rekey->user)) {
		rc = broker_sleep(broker, broker_node_ttl(broker));
		if (broker->health)
			rc = -ECANCELED;
	}
	rekey->is_running = rc == 0;
	return rc;
}

/* One round: for those who wait when it begins. */
static int run_round(struct reef_broker *broker, struct broker_rekey *rekey,
		     int rc)
{
	struct rekey_waiter waiters[WAITERS_MAX];
	uint32_t count = rekey->count, i;
	struct reef_body answer = {0};

	memcpy(waiters, rekey->waiters, count * sizeof(*waiters));
	rekey->count = 0;
	if (rc == 0)
		rc = rekey_extents(broker, rekey->space);
	for (i = 0; i < count; i++) {
		answer.reply.space_revoke.era = waiters[i].era;
		broker_answer_later(broker, waiters[i].request, rc, &answer);
	}
	return rc;
}

static void run_rekey(struct reef_broker *broker, uint32_t space)
{
	struct broker_rekey *rekey = find_rekey(broker, space);
	int rc = await_turn(broker, rekey);

	while (rekey->count) {
		rc = run_round(broker, rekey, rc);
		if (rc != -ECANCELED && rc != -REEF_EHOSTDEAD)
			rc = 0;
	}
	destroy_rekey(broker, rekey);
	broker_wake(broker); /* another's turn */
}

int broker_space_rekey(struct reef_broker *broker,
		       const struct reef_request *request, uint32_t id,
		       uint32_t era)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	struct broker_rekey *rekey = find_rekey(broker, id);
	int rc;

	if (!space || space->ordinals == 0)
		return 0;
	if (!rekey) {
		rekey = calloc(1, sizeof(*rekey));
		if (!rekey)
			return -ENOMEM;
		rekey->space = id;
		rekey->user = space->user;
		rekey->next = broker->rekeys;
		broker->rekeys = rekey;
		rc = broker_spawn(broker, run_rekey, id);
		if (rc) {
			destroy_rekey(broker, rekey);
			return rc;
		}
	}
	if (rekey->count == WAITERS_MAX)
		return -EBUSY;
	rekey->waiters[rekey->count++] = (struct rekey_waiter){request, era};
	return REEF_LATER;
}
