/* users.c - users: their credentials, limits and links.
 *
 * (1) A credential is good while its era is that of its user. The new era is
 *     durable before anybody is told the new credential; from then on nobody
 *     comes in with an older one. A link that did before opens no session any
 *     more, takes none up again, and gives no orders.
 * (2) Sessions that are outdated by that go on for as long as whoever rotated
 *     the credential allows, and end then; a broker that starts ends them at
 *     once.
 * (3) A credential that is void at once was not only renewed, but has leaked:
 *     whoever had it may know keys of memory, which are changed (expel.c).
 * (4) A user's links are counted from the moment that they are let in. Those
 *     that were let in and never came up count until they must have failed,
 *     which harms only whose they were. Some links are left to the owner and to
 *     nodes, whatever users have. At nodes a session has one link (F5), so
 *     their limit follows from that of sessions.
 * (5) A session that holds memory back which others wait for is ended
 *     (lease.c, 10), or its lease is over; but its user could come back at
 *     once, or have others ready, and so hold everybody up for good. So each
 *     user is given *strikes*, one for all sessions that end like that within
 *     half a lease. After STRIKES_FREE of them, which is what crashes may
 *     cost, new sessions of that user have to wait: -EBUSY, for a lease, then
 *     two, up to JOIN_LEASES_MAX. Strikes for sessions that were alive are
 *     *pins*: with each of the first two half as much is waited for the next
 *     one, and from PINS_MAX on all sessions of the user end. After
 *     STRIKE_LEASES without another all is forgotten. The owner has none. */
#include "pool/broker/internal.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* After so long a link that was let in is up, or will never be. */
#define ADMITTED_NS UINT64_C(5000000000)
#define OWNER_LINKS 64u
#define TELL_NS UINT64_C(60000000000)
/* (5); in leases, of the session that ended. */
#define STRIKES_FREE 3u
#define PINS_MAX 5u
#define JOIN_LEASES_MAX 32u
#define STRIKE_LEASES 128u

/* What is known of a user in this start. */
struct broker_user {
	uint32_t id;
	uint32_t links;	   /* that are up */
	uint32_t admitted; /* let in, but not up yet */
	uint64_t admitted_ns;
	uint64_t outdated_ns; /* (2): when sessions end; 0: there are none */
	uint64_t told_ns;     /* when an event told of a refusal */
	/* (5) */
	uint32_t strikes, pins;
	uint64_t struck_ns; /* the last */
	uint64_t join_ns;   /* no new session before then */
	struct broker_user *next;
};

static struct broker_user *find_user(const struct reef_broker *broker,
				     uint32_t id)
{
	struct broker_user *user = broker->users;

	while (user && user->id != id)
		user = user->next;
	return user;
}

static struct broker_user *find_or_add_user(struct reef_broker *broker,
					    uint32_t id)
{
	struct broker_user *user = find_user(broker, id);

	if (user)
		return user;
	user = calloc(1, sizeof(*user));
	if (!user)
		return NULL;
	user->id = id;
	user->next = broker->users;
	broker->users = user;
	return user;
}

void broker_users_close(struct reef_broker *broker)
{
	struct broker_user *user;

	while ((user = broker->users)) {
		broker->users = user->next;
		free(user);
	}
}

/* --- eras (1) --- */

/* Find the era of a user's credential. False: there is no such user. */
static bool find_era(const struct reef_broker *broker, uint32_t id,
		     uint32_t *era)
{
	const struct reef_state_user *user = reef_state_user(broker->state, id);
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	if (id && !user)
		return false;
	*era = id ? user->era : summary.owner_era;
	return true;
}

bool broker_is_current_era(const struct reef_broker *broker, uint32_t id,
			   uint32_t era)
{
	uint32_t current;

	return find_era(broker, id, &current) && era == current;
}

bool broker_parse_user(const char *identity, uint32_t *user, uint32_t *era)
{
	char again[REEF_IDENTITY_MAX + 1];

	if (sscanf(identity, "user:%u:%u", user, era) != 2)
		return false;
	snprintf(again, sizeof(again), "user:%u:%u", *user, *era);
	return strcmp(identity, again) == 0;
}

/* --- links (4) --- */

static uint32_t count_links(const struct broker_user *user)
{
	bool fresh = user->admitted &&
		     reef_now_ns() - user->admitted_ns < ADMITTED_NS;

	return user->links + (fresh ? user->admitted : 0);
}

/* How many links all users may have together: what a fabric takes, without
 * those of the owner. */
static uint32_t links_for_users(const struct reef_broker *broker)
{
	uint32_t max =
		reef_fabric_limits(reef_mesh_fabric(broker->options.mesh, 0))
			->links_max;

	return max > 2 * OWNER_LINKS ? max - OWNER_LINKS : max / 2;
}

int broker_admit(void *context, const char *identity)
{
	struct reef_broker *broker = context;
	uint32_t id, era, links, all = 0;
	struct broker_user *user;

	if (!broker_parse_user(identity, &id, &era) || id == 0)
		return 0;
	user = find_or_add_user(broker, id);
	if (!user)
		return -ENOMEM;
	links = count_links(user);
	if (links >= reef_state_limit(broker->state, id, REEF_LIMIT_LINKS)) {
		broker_user_refused(broker, id);
		return -EDQUOT;
	}
	for (struct broker_user *at = broker->users; at; at = at->next)
		all += count_links(at);
	if (all >= links_for_users(broker))
		return -EBUSY;
	user->admitted = links - user->links + 1;
	user->admitted_ns = reef_now_ns();
	return 0;
}

void broker_user_link_opened(struct reef_broker *broker, uint32_t id)
{
	struct broker_user *user = id ? find_or_add_user(broker, id) : NULL;

	if (!user)
		return;
	user->links++;
	if (user->admitted)
		user->admitted--;
}

void broker_user_link_closed(struct reef_broker *broker, uint32_t id)
{
	struct broker_user *user = id ? find_user(broker, id) : NULL;

	if (user && user->links)
		user->links--;
}

uint32_t broker_user_links(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_user *user = find_user(broker, id);

	return user ? count_links(user) : 0;
}

/* --- who holds memory back (5) --- */

static void delay_joins(struct reef_broker *broker, struct broker_user *user,
			uint64_t ttl_ns)
{
	uint32_t doublings = user->strikes - STRIKES_FREE - 1, leases;

	leases = doublings < 5 ? 1u << doublings : JOIN_LEASES_MAX;
	user->join_ns = user->struck_ns + leases * ttl_ns;
	broker_event(broker,
		     "user %u held memory back that others waited for, %u "
		     "times: no new session for %llu ms",
		     user->id, user->strikes,
		     (unsigned long long)(leases * ttl_ns / 1000000));
}

static void end_sessions_of(struct reef_broker *broker, uint32_t id)
{
	struct broker_session *session = broker->sessions;

	for (; session; session = session->next)
		if (session->user == id)
			(void)broker_session_end(broker, session,
						 "its user holds memory back "
						 "again and again");
}

void broker_user_strike(struct reef_broker *broker, uint32_t id,
			uint64_t ttl_ns, bool was_alive)
{
	struct broker_user *user = id ? find_or_add_user(broker, id) : NULL;
	uint64_t now_ns = reef_now_ns();

	if (!user)
		return;
	if (now_ns - user->struck_ns > STRIKE_LEASES * ttl_ns)
		user->strikes = user->pins = 0;
	if (user->strikes && now_ns - user->struck_ns < ttl_ns / 2)
		return;
	user->struck_ns = now_ns;
	user->strikes++;
	user->pins += was_alive;
	if (user->strikes > STRIKES_FREE)
		delay_joins(broker, user, ttl_ns);
	if (user->pins >= PINS_MAX)
		end_sessions_of(broker, id);
}

uint32_t broker_user_pins(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_user *user = id ? find_user(broker, id) : NULL;

	return user ? user->pins : 0;
}

bool broker_user_may_join(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_user *user = id ? find_user(broker, id) : NULL;

	return !user || reef_now_ns() >= user->join_ns;
}

/* --- limits --- */

void broker_user_refused(struct reef_broker *broker, uint32_t id)
{
	const struct reef_state_user *known =
		reef_state_user(broker->state, id);
	struct broker_user *user = known ? find_or_add_user(broker, id) : NULL;

	if (!user || (user->told_ns && reef_now_ns() - user->told_ns < TELL_NS))
		return;
	user->told_ns = reef_now_ns();
	broker_event(broker, "user %u (%.40s) was refused more than a limit",
		     id, known->name);
}

BROKER_REQUEST(broker_user_limit)
{
	struct reef_record record = {
		.type = REEF_RECORD_USER_LIMIT,
		.id = request->body.ask.user_limit.user,
		.kind = request->body.ask.user_limit.limit,
		.value = request->body.ask.user_limit.value,
	};
	uint64_t ignored;
	int rc;

	rc = broker_find_repeated(broker, request, record.type, &ignored);
	if (rc == 0) {
		rc = broker_commit(broker, &record, request, NULL);
		/* Whoever waits for memory may have some now. */
		if (rc == 0)
			broker_memory_came(broker);
	}
	return rc < 0 ? rc : 0;
}

/* --- coming --- */

/* Tell the credential of that era. */
static int fill_user_reply(const struct reef_broker *broker, uint32_t id,
			   uint32_t era, struct reef_body *answer)
{
	struct reef_key key;
	int rc;

	rc = reef_key_derive_user(broker->key, id, era, &key);
	if (rc)
		return rc;
	answer->reply.user_add.user = id;
	answer->reply.user_add.era = era;
	memcpy(answer->reply.user_add.secret, key.bytes, sizeof(key.bytes));
	reef_key_wipe(&key);
	return 0;
}

BROKER_REQUEST(broker_user_add)
{
	struct reef_record record = {
		.type = REEF_RECORD_USER_ADD,
		.name = request->body.ask.user_add.name,
	};
	struct reef_state_summary summary;
	uint32_t era;
	uint64_t id;
	int rc;

	reef_state_summary(broker->state, &summary);
	record.id = summary.next_user;
	rc = broker_find_repeated(broker, request, record.type, &id);
	if (rc == 0) {
		id = record.id;
		/* The name by which operators mean user 0. */
		rc = reef_text_is(record.name, BROKER_OWNER)
			     ? -EEXIST
			     : broker_commit(broker, &record, request, NULL);
	}
	if (rc < 0)
		return rc;
	if (!find_era(broker, (uint32_t)id, &era))
		return -ENOENT;
	return fill_user_reply(broker, (uint32_t)id, era, answer);
}

/* --- new credentials --- */

/* End the sessions of a user that are outdated; but not session `but`, which
 * closes by itself (0: all). */
static void end_outdated(struct reef_broker *broker, uint32_t id, uint32_t but)
{
	struct broker_session *session = broker->sessions;
	const struct reef_state_session *known;

	for (; session; session = session->next) {
		known = reef_state_session(broker->state, session->id);
		if (session->id != but && session->user == id &&
		    known->outdated)
			(void)broker_session_end(broker, session,
						 "its credential is void");
	}
}

void broker_users_end_outdated(struct reef_broker *broker)
{
	struct broker_session *session = broker->sessions;
	const struct reef_state_session *known;

	for (; session; session = session->next) {
		known = reef_state_session(broker->state, session->id);
		if (!known->outdated)
			continue;
		(void)broker_session_end(broker, session,
					 "its credential is void");
		broker_user_rekey(broker, session->user); /* (3) */
	}
}

/* Wait until the time has come at which outdated sessions of a user end. */
static void end_outdated_later(struct reef_broker *broker, uint32_t id)
{
	struct broker_user *user;
	uint64_t now_ns;

	/* It may be sooner by now, or done by another. */
	while ((user = find_user(broker, id)) && user->outdated_ns) {
		now_ns = reef_now_ns();
		if (now_ns >= user->outdated_ns) {
			user->outdated_ns = 0;
			end_outdated(broker, id, 0);
			return;
		}
		if (broker_sleep(broker, user->outdated_ns - now_ns))
			return;
	}
}

static int end_outdated_after(struct reef_broker *broker,
			      const struct reef_request *request)
{
	uint32_t id = request->body.ask.user_rotate.user;
	uint64_t after_ns = request->body.ask.user_rotate.after_ns;
	uint64_t at_ns = reef_now_ns() + after_ns;
	struct broker_user *user = find_or_add_user(broker, id);

	if (!user)
		return -ENOMEM;
	if (after_ns == 0 || at_ns < after_ns) {
		end_outdated(broker, id, broker_session_of(request)->id);
		broker_user_rekey(broker, id); /* (3) */
		return 0;
	}
	if (user->outdated_ns && user->outdated_ns <= at_ns)
		return 0;
	user->outdated_ns = at_ns;
	broker_wake(broker);
	return broker_spawn(broker, end_outdated_later, id);
}

int broker_user_void(struct reef_broker *broker, uint32_t id,
		     const struct reef_request *request, uint32_t *era)
{
	struct reef_record record = {.type = REEF_RECORD_USER_ERA, .id = id};
	int rc;

	if (!find_era(broker, id, &record.era))
		return -ENOENT;
	record.era++;
	rc = broker_commit(broker, &record, request, NULL);
	if (rc == 0)
		*era = record.era;
	return rc;
}

BROKER_REQUEST(broker_user_rotate)
{
	uint32_t id = request->body.ask.user_rotate.user, era = 0;
	uint64_t known;
	int rc = broker_find_repeated(broker, request, REEF_RECORD_USER_ERA,
				      &known);

	if (rc > 0 && !find_era(broker, id, &era))
		return -ENOENT;
	if (rc > 0)
		era = (uint32_t)known;
	else if (rc == 0)
		rc = broker_user_void(broker, id, request, &era);
	if (rc < 0)
		return rc;
	broker_event(broker, "user %u has a new credential", id);
	rc = broker_wait_durable(broker, broker->applied);
	if (rc)
		return rc;
	/* Before sessions end: who comes back finds the new one. */
	if (id == 0 && broker->options.owner_changed)
		broker->options.owner_changed(broker->options.context, era);
	rc = end_outdated_after(broker, request);
	return rc ? rc : fill_user_reply(broker, id, era, answer);
}

/* --- going --- */

BROKER_REQUEST(broker_user_remove)
{
	struct reef_record record = {
		.type = REEF_RECORD_USER_REMOVE,
		.id = request->body.ask.user_remove.user,
	};
	uint64_t ignored;
	int rc;

	if (request->body.ask.user_remove.flags & REEF_POOL_FORCE)
		return broker_user_expel(broker, request, answer);
	rc = broker_find_repeated(broker, request, record.type, &ignored);
	if (rc == 0)
		rc = broker_commit(broker, &record, request, NULL);
	return rc < 0 ? rc : 0;
}
