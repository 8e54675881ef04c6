/* rekey.c - after a revocation: those who hold keys of a space hold nothing.
 * Also after a user was shut out who knew them: expel.c.
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
 *     It delays nothing but its own extent: a round asks for all extents of a
 *     space in turn, which makes their keys void at once, and then again for
 *     those that were held, after a pause that grows; meanwhile other spaces
 *     have their turn.
 * (5) At most USER_MAX fibers work on the spaces of one user, so that what one
 *     user's holders keep is not in others' way; and at most WAITERS_MAX
 *     requests wait for a space. Who asks while a round is under way waits for
 *     the next one.
 *
 *   (none) --broker_space_rekey--> waits --take_next--> is worked on
 *     --work_on: something is left--> waits
 *     --work_on: all done; those who waited are answered--> (none), or waits
 *       for those who came meanwhile */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

#define WAITERS_MAX 32
#define USER_MAX 4
#define PAUSE_MIN_NS UINT64_C(1000000)
#define PAUSE_MAX_NS UINT64_C(500000000)

struct rekey_waiter {
	const struct reef_request *request;
	uint32_t era;
};

/* An extent that a round has not done yet. */
struct rekey_item {
	uint32_t number, epoch; /* when the round began */
	uint64_t copy;
	uint64_t mark;	/* it is marked so as rekeying; 0: not yet */
	bool is_closed; /* by its node, for nobody holds it */
};

/* A space that is given new keys, or is to be. */
struct broker_rekey {
	uint32_t space, user;
	bool is_worked_on;
	/* A round is wanted that answers nobody, or is under way. */
	bool is_wanted, is_wanted_now;
	uint64_t due_ns, pause_ns;
	/* The round: what is left of it, and for how many of those who wait. */
	struct rekey_item *items;
	uint32_t items_count, answers;
	uint32_t count;
	struct rekey_waiter waiters[WAITERS_MAX];
	struct broker_rekey *next;
};

/* --- an extent --- */

/* True for an extent on the move, or that somebody else has closed. */
static bool is_away(struct reef_broker *broker,
		    const struct reef_state_extent *extent)
{
	const struct broker_extent *told =
		broker_extent_find(broker, extent->number);

	return extent->state == REEF_EXTENT_MOVING || (told && told->closed) ||
	       broker_extent_is_moving(broker, extent->number);
}

/* Withdraw an extent, tried once. It is marked as rekeying from then on, so
 * that nobody else opens it. */
static int close_extent(struct reef_broker *broker, struct rekey_item *item,
			uint32_t node, uint32_t label)
{
	struct reef_body body = {
		.ask.extent_close = {.extent = label, .flags = REEF_POOL_FRESH},
	};
	int rc;

	if (!item->mark)
		item->mark = broker_close_number(broker);
	broker_extent_find(broker, item->number)->rekeying = item->mark;
	broker_extent_set_closed(broker, item->number);
	rc = broker_node_call(broker, node, REEF_POOL_EXTENT_CLOSE, &body,
			      NULL);
	item->is_closed = rc == 0;
	return rc;
}

/* One of its copies was given up: what is left is done when it is open. */
static int restart_item(struct rekey_item *item,
			const struct reef_state_extent *extent)
{
	*item = (struct rekey_item){
		.number = item->number,
		.epoch = extent->epoch,
		.copy = extent->copy,
	};
	return -EAGAIN;
}

/* Take an extent as far as that is possible now. 0: it has new keys, or is
 * gone.  -ECANCELED, -REEF_EHOSTDEAD.  Else: try again. */
static int rekey_extent(struct reef_broker *broker, struct rekey_item *item)
{
	const struct reef_state_extent *extent =
		reef_state_extent(broker->state, item->number);
	struct broker_extent *told = broker_extent_find(broker, item->number);
	int rc = 0;

	if (!extent || reef_extent_is_lost(extent->state))
		return 0;
	if (extent->state == REEF_EXTENT_FAILING || extent->copy != item->copy)
		return restart_item(item, extent);
	if (item->mark && told && told->rekeying != item->mark)
		return restart_item(item, extent); /* somebody else has it */
	if (!item->mark && is_away(broker, extent))
		return -EAGAIN;
	if (!item->mark && extent->epoch != item->epoch &&
	    extent->copy == item->copy && !extent->twin)
		return 0; /* it has moved */
	if (!told ||
	    !broker_node_is_ready(broker_node_find(broker, extent->node)))
		return -EAGAIN;
	if (!item->is_closed)
		rc = close_extent(broker, item, extent->node, extent->label);
	extent = reef_state_extent(broker->state, item->number);
	told = broker_extent_find(broker, item->number);
	if (rc == 0 && told && told->rekeying != item->mark)
		return -EAGAIN;
	if (rc == 0 && extent && extent->state == REEF_EXTENT_LIVE)
		rc = broker_extent_reopen_once(broker, item->number);
	told = broker_extent_find(broker, item->number);
	if (rc == 0 && told && told->rekeying == item->mark)
		told->rekeying = 0;
	return rc;
}

/* --- a space --- */

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
	free(rekey->items);
	free(rekey);
}

/* Tell all who wait that they do not learn what became of it. */
static void give_up(struct reef_broker *broker, struct broker_rekey *rekey)
{
	uint32_t i;

	for (i = 0; i < rekey->count; i++)
		reef_request_answer(rekey->waiters[i].request, -REEF_EINDOUBT,
				    NULL);
	destroy_rekey(broker, rekey);
}

/* Begin a round, for those who wait now: with all extents of the space, and
 * their twins. */
static int begin_round(struct reef_broker *broker, struct broker_rekey *rekey)
{
	const struct reef_state_extent *extents;
	struct rekey_item *items;
	size_t count, i;

	extents = reef_state_extents(broker->state, &count);
	items = calloc(count + 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	rekey->items = items;
	rekey->items_count = 0;
	for (i = 0; i < count; i++)
		if (extents[i].space == rekey->space)
			items[rekey->items_count++] = (struct rekey_item){
				.number = extents[i].number,
				.epoch = extents[i].epoch,
				.copy = extents[i].copy,
			};
	rekey->answers = rekey->count;
	rekey->is_wanted_now = rekey->is_wanted;
	rekey->is_wanted = false;
	rekey->pause_ns = 0;
	return 0;
}

/* Answer those that the round was for. */
static void end_round(struct reef_broker *broker, struct broker_rekey *rekey)
{
	uint32_t count = rekey->answers, i;
	struct reef_body answer = {0};

	free(rekey->items);
	rekey->items = NULL;
	rekey->is_wanted_now = false;
	for (i = 0; i < count; i++) {
		answer.reply.space_revoke.era = rekey->waiters[i].era;
		broker_answer_later(broker, rekey->waiters[i].request, 0,
				    &answer);
	}
	/* Others may have come while those were answered. */
	rekey->count -= count;
	memmove(rekey->waiters, rekey->waiters + count,
		rekey->count * sizeof(*rekey->waiters));
	broker_wake(broker); /* who waits for the end of it */
}

/* Ask for each extent of the round once, and keep those that are left. */
static int run_pass(struct reef_broker *broker, struct broker_rekey *rekey)
{
	uint32_t i, left = 0;
	int rc;

	for (i = 0; i < rekey->items_count; i++) {
		rc = rekey_extent(broker, &rekey->items[i]);
		if (rc == -ECANCELED || rc == -REEF_EHOSTDEAD ||
		    broker->health || broker->stopping)
			return -ECANCELED;
		if (rc)
			rekey->items[left++] = rekey->items[i];
	}
	rekey->items_count = left;
	return 0;
}

/* Take a space as far as that is possible now.  -ECANCELED. */
static int work_on(struct reef_broker *broker, struct broker_rekey *rekey)
{
	int rc = 0;

	if (!rekey->items)
		rc = begin_round(broker, rekey);
	if (rc == 0)
		rc = run_pass(broker, rekey);
	if (rc == -ECANCELED)
		return rc;
	if (rc == 0 && rekey->items_count == 0) {
		end_round(broker, rekey);
		rekey->due_ns = 0;
		return 0;
	}
	rekey->pause_ns = rekey->pause_ns ? 2 * rekey->pause_ns : PAUSE_MIN_NS;
	if (rekey->pause_ns > PAUSE_MAX_NS)
		rekey->pause_ns = PAUSE_MAX_NS;
	rekey->due_ns = reef_now_ns() + rekey->pause_ns;
	return 0;
}

/* --- the fibers (5) --- */

/* A fiber that works on the spaces of a user. */
struct broker_rekeyer {
	uint32_t user;
	bool is_begun;
	bool sleeps; /* until the next one is due */
	struct broker_rekeyer *next;
};

static struct broker_rekeyer *find_sleeper(const struct reef_broker *broker,
					   uint32_t user)
{
	struct broker_rekeyer *rekeyer = broker->rekeyers;

	while (rekeyer && !(rekeyer->user == user && rekeyer->sleeps))
		rekeyer = rekeyer->next;
	return rekeyer;
}

static uint32_t count_rekeyers(const struct reef_broker *broker, uint32_t user)
{
	const struct broker_rekeyer *rekeyer = broker->rekeyers;
	uint32_t count = 0;

	for (; rekeyer; rekeyer = rekeyer->next)
		count += rekeyer->user == user;
	return count;
}

/* The space of that user that is due first. NULL: none waits. */
static struct broker_rekey *find_next(const struct reef_broker *broker,
				      uint32_t user)
{
	struct broker_rekey *rekey, *next = NULL;

	for (rekey = broker->rekeys; rekey; rekey = rekey->next)
		if (!rekey->is_worked_on && rekey->user == user &&
		    (!next || rekey->due_ns < next->due_ns))
			next = rekey;
	return next;
}

/* Take the next step for a user. 0: look again.  -ENOENT: another fiber sees to
 * what is left, or nothing is.  -ECANCELED, -REEF_EHOSTDEAD. */
static int work_for_user(struct reef_broker *broker,
			 struct broker_rekeyer *rekeyer)
{
	struct broker_rekey *rekey = find_next(broker, rekeyer->user);
	uint64_t now_ns = reef_now_ns();
	int rc;

	if (!rekey)
		return -ENOENT;
	if (rekey->due_ns > now_ns) {
		if (find_sleeper(broker, rekeyer->user))
			return -ENOENT;
		rekeyer->sleeps = true;
		rc = broker_sleep(broker, rekey->due_ns - now_ns);
		rekeyer->sleeps = false;
		return rc;
	}
	rekey->is_worked_on = true;
	rc = work_on(broker, rekey);
	rekey->is_worked_on = false;
	if (rc == 0 && !rekey->items && !rekey->count && !rekey->is_wanted)
		destroy_rekey(broker, rekey);
	return rc;
}

static void destroy_rekeyer(struct reef_broker *broker,
			    struct broker_rekeyer *rekeyer)
{
	struct broker_rekeyer **at = &broker->rekeyers;

	while (*at != rekeyer)
		at = &(*at)->next;
	*at = rekeyer->next;
	free(rekeyer);
}

static void run_rekeyer(struct reef_broker *broker, uint32_t user)
{
	struct broker_rekeyer *rekeyer = broker->rekeyers;
	int rc;

	while (rekeyer->user != user || rekeyer->is_begun)
		rekeyer = rekeyer->next;
	rekeyer->is_begun = true;
	do
		rc = work_for_user(broker, rekeyer);
	while (rc == 0);
	destroy_rekeyer(broker, rekeyer);
	if (rc != -ENOENT)
		broker_rekeys_end(broker);
}

/* Have a fiber work on what the user has waiting. */
static int ensure_rekeyer(struct reef_broker *broker, uint32_t user)
{
	struct broker_rekeyer *rekeyer;
	int rc;

	if (find_sleeper(broker, user))
		broker_wake(broker);
	else if (count_rekeyers(broker, user) < USER_MAX) {
		rekeyer = calloc(1, sizeof(*rekeyer));
		if (!rekeyer)
			return -ENOMEM;
		rekeyer->user = user;
		rekeyer->next = broker->rekeyers;
		broker->rekeyers = rekeyer;
		rc = broker_spawn(broker, run_rekeyer, user);
		if (rc) {
			destroy_rekeyer(broker, rekeyer);
			return rc;
		}
	}
	return 0;
}

void broker_rekeys_end(struct reef_broker *broker)
{
	struct broker_rekey *rekey, *next;

	for (rekey = broker->rekeys; rekey; rekey = next) {
		next = rekey->next;
		if (!rekey->is_worked_on)
			give_up(broker, rekey);
	}
}

/* --- the interface --- */

bool broker_space_is_rekeying(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_rekey *rekey = find_rekey(broker, id);

	return rekey && (rekey->is_wanted || rekey->is_wanted_now);
}

static int add_rekey(struct reef_broker *broker,
		     const struct reef_state_space *space,
		     struct broker_rekey **out)
{
	struct broker_rekey *rekey = calloc(1, sizeof(*rekey));
	int rc;

	if (!rekey)
		return -ENOMEM;
	rekey->space = space->id;
	rekey->user = space->user;
	rekey->next = broker->rekeys;
	broker->rekeys = rekey;
	rc = ensure_rekeyer(broker, space->user);
	if (rc) {
		destroy_rekey(broker, rekey);
		return rc;
	}
	*out = rekey;
	return 0;
}

int broker_space_rekey(struct reef_broker *broker,
		       const struct reef_request *request, uint32_t id,
		       uint32_t era)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	struct broker_rekey *rekey = find_rekey(broker, id);
	int rc = 0;

	if (broker->stopping)
		return -ECANCELED;
	if (!space || space->ordinals == 0)
		return 0;
	if (request && rekey && rekey->count == WAITERS_MAX)
		return -EBUSY;
	if (!rekey)
		rc = add_rekey(broker, space, &rekey);
	if (rc)
		return rc;
	if (!request) {
		rekey->is_wanted = true;
		return 0;
	}
	rekey->waiters[rekey->count++] = (struct rekey_waiter){request, era};
	return REEF_LATER;
}
