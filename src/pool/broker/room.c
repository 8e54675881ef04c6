/* room.c - requests for memory that wait for room.
 *
 * (1) Where a pool is full, but a drop is under way or a node away, who asks
 *     for an extent waits (extents.c, 3). That can be up to a tenant who held
 *     what is dropped: so it waits in a list, and has neither a handler nor a
 *     fiber.
 * (2) One fiber looks at the list when something has changed. Those for whom
 *     there may be room, or whose time is over, are tried again, each in a
 *     fiber of its own, TRIES_MAX at once, in the order in which they came.
 * (3) At most ADDERS_MAX wait, and of one user USER_MAX: others are told
 *     -EBUSY.
 * (4) A request is its session's: one whose link has become another session's,
 *     or is gone, is done with.
 *
 *   broker_extent_add --REEF_LATER--> waits --look_at_adders--> is tried
 *     --> answered, or waits again */
#include "pool/broker/lending.h"

#include <errno.h>
#include <stdlib.h>

#define ADDERS_MAX 1024
#define USER_MAX 256
#define TRIES_MAX 16

/* A request that waits. */
struct broker_adder {
	const struct reef_request *request;
	uint32_t number; /* no other that waits has it */
	uint32_t session, user;
	struct broker_adding adding;
	bool is_tried;
	struct broker_adder *next;
};

static struct broker_adder *find_adder(const struct reef_broker *broker,
				       uint32_t number)
{
	struct broker_adder *adder = broker->adders;

	while (adder && adder->number != number)
		adder = adder->next;
	return adder;
}

static void destroy_adder(struct reef_broker *broker,
			  struct broker_adder *adder)
{
	struct broker_adder **at = &broker->adders;

	while (*at != adder)
		at = &(*at)->next;
	*at = adder->next;
	free(adder);
}

/* The request is about to be answered, and not served any more (4). */
static void end_service(const struct broker_adder *adder)
{
	struct broker_member *member = broker_member_of(adder->request->peer);

	if (member)
		member->serving--;
}

/* --- trying again --- */

static int try_again(struct reef_broker *broker, struct broker_adder *adder,
		     struct reef_body *answer, struct reef_cursor_out *room)
{
	const struct broker_session *session =
		broker_session_of(adder->request);

	if (broker->stopping || broker->health)
		return -ECANCELED;
	if (!session || session->id != adder->session) /* (4) */
		return -REEF_EFENCED;
	return broker_extent_try_add(broker, adder->request, &adder->adding,
				     answer, room);
}

static void run_adder(struct reef_broker *broker, uint32_t number)
{
	struct broker_adder *adder = find_adder(broker, number);
	struct reef_cursor_out room = {0};
	struct reef_body answer = {0};
	int rc = try_again(broker, adder, &answer, &room);

	if (rc == 0 && room.failed)
		rc = -ENOMEM;
	if (rc == REEF_LATER && !broker->adds) /* nobody looks any more */
		rc = -ECANCELED;
	if (rc != REEF_LATER)
		end_service(adder);
	if (rc == -ECANCELED || rc == -REEF_EHOSTDEAD)
		reef_request_answer(adder->request, -REEF_EINDOUBT, NULL);
	else if (rc != REEF_LATER)
		broker_answer_later(broker, adder->request, rc, &answer);
	free(room.bytes);
	adder->is_tried = false;
	if (rc != REEF_LATER)
		destroy_adder(broker, adder);
	broker_wake(broker);
}

/* True if it is time to try a request again. *none: the size for which there
 * was just no room, so that one look is enough for all who want as much. */
static bool is_due(struct reef_broker *broker, const struct broker_adder *adder,
		   uint64_t now_ns, uint64_t *none)
{
	if (adder->adding.until_ns <= now_ns || !adder->request->peer->link)
		return true;
	if (!adder->adding.avoid.count && *none && adder->adding.size >= *none)
		return false;
	if (broker_may_have_room(broker, &adder->adding))
		return true;
	if (!adder->adding.avoid.count)
		*none = adder->adding.size;
	return false;
}

/* Start the tries that are due. Returns when the next one is by its time. */
static uint64_t look_at_adders(struct reef_broker *broker, uint64_t now_ns)
{
	uint64_t next_ns = now_ns + broker_node_ttl(broker), none = 0;
	struct broker_adder *adder;
	uint32_t tries = 0;

	for (adder = broker->adders; adder; adder = adder->next)
		tries += adder->is_tried;
	for (adder = broker->adders; adder; adder = adder->next) {
		if (adder->is_tried)
			continue;
		if (tries < TRIES_MAX && is_due(broker, adder, now_ns, &none)) {
			adder->is_tried = broker_spawn(broker, run_adder,
						       adder->number) == 0;
			tries += adder->is_tried;
		} else if (adder->adding.until_ns > now_ns &&
			   adder->adding.until_ns < next_ns) {
			next_ns = adder->adding.until_ns;
		}
	}
	return next_ns;
}

static void run_adders(struct reef_broker *broker, uint32_t ignored)
{
	uint64_t now_ns, next_ns;
	int rc = 0;

	(void)ignored;
	while (rc == 0 && !broker->health && broker->adders) {
		now_ns = reef_now_ns();
		next_ns = look_at_adders(broker, now_ns);
		rc = broker_sleep(broker, next_ns - now_ns);
	}
	broker->adds = false;
	if (broker->adders)
		broker_adders_end(broker);
}

void broker_adders_end(struct reef_broker *broker)
{
	struct broker_adder *adder, *next;

	for (adder = broker->adders; adder; adder = next) {
		next = adder->next;
		if (adder->is_tried)
			continue; /* it answers by itself */
		end_service(adder);
		reef_request_answer(adder->request, -REEF_EINDOUBT, NULL);
		destroy_adder(broker, adder);
	}
}

/* --- requests --- */

static bool has_place(const struct reef_broker *broker, uint32_t user)
{
	const struct broker_adder *adder = broker->adders;
	uint32_t all = 0, own = 0;

	for (; adder; adder = adder->next, all++)
		own += adder->user == user;
	return all < ADDERS_MAX && own < USER_MAX;
}

/* Put a request at the end of the list. */
static int wait_for_room(struct reef_broker *broker,
			 const struct reef_request *request,
			 const struct broker_adding *adding)
{
	const struct broker_session *session = broker_session_of(request);
	struct broker_adder **at = &broker->adders, *adder;
	int rc;

	if (broker->stopping)
		return -ECANCELED;
	if (!session)
		return -REEF_EFENCED;
	if (!has_place(broker, session->user))
		return -EBUSY;
	adder = calloc(1, sizeof(*adder));
	rc = adder ? 0 : -ENOMEM;
	if (rc == 0 && !broker->adds)
		rc = broker_spawn(broker, run_adders, 0);
	if (rc) {
		free(adder);
		return rc;
	}
	broker->adds = true;
	broker_member_of(request->peer)->serving++;
	*adder = (struct broker_adder){
		.request = request,
		.number = ++broker->adders_last,
		.session = session->id,
		.user = session->user,
		.adding = *adding,
	};
	while (*at)
		at = &(*at)->next;
	*at = adder;
	broker_wake(broker);
	return REEF_LATER;
}

BROKER_REQUEST(broker_extent_add)
{
	struct broker_adding adding = {0};
	int rc = broker_extent_try_add(broker, request, &adding, answer, room);

	return rc == REEF_LATER ? wait_for_room(broker, request, &adding) : rc;
}
