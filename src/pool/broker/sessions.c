/* sessions.c - sessions as they come: open, resume, close; what they may reach;
 * settings.
 *
 * A session is known by its id and its key. Whoever knows both and proved to be
 * its user may take it up again on a new link, which is how it outlives a lost
 * link and a broker's restart; the old link, if there still is one, then speaks
 * for nobody.
 *
 * Where a control link tells its process (shm), that is journaled. A broker
 * that starts finds sessions whose processes ended while there was none: those
 * end at once, the others have their lease to come back, and end before if
 * their processes do: whoever dies with its broker may still be about to. */
#include "pool/broker/internal.h"

#include "base/log.h"
#include "base/mutant.h"
#include "base/text.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

/* How long a client that comes waits for a slot; less than its own patience. */
#define SLOT_WAIT_NS UINT64_C(3000000000)
#define SLOT_PAUSE_NS UINT64_C(10000000)
#define FORGIVE_LEASES 16u
/* How often processes of sessions from before are looked at: often at first,
 * because who dies with its broker may do so a moment later. */
#define DEAD_PAUSE_NS UINT64_C(10000000)
#define DEAD_PAUSE_MAX_NS UINT64_C(1000000000)

struct broker_session *broker_session_find(struct reef_broker *broker,
					   uint32_t id)
{
	const uint32_t slot = reef_session_slot(id);
	struct broker_session *session = broker->sessions;

	if (slot < broker->slots_count && broker->slots[slot] &&
	    broker->slots[slot]->id == id)
		return broker->slots[slot];
	while (session && session->id != id)
		session = session->next;
	return session;
}

/* Let a session be found by its slot; without memory for it the list is
 * searched. */
static void index_session(struct reef_broker *broker,
			  struct broker_session *session)
{
	const uint32_t slot = reef_session_slot(session->id);
	const uint32_t count = 2 * slot + 64;
	struct broker_session **slots = broker->slots;

	if (slot >= broker->slots_count) {
		slots = realloc(slots, count * sizeof(slots[0]));
		if (!slots)
			return;
		memset(&slots[broker->slots_count], 0,
		       (count - broker->slots_count) * sizeof(slots[0]));
		broker->slots = slots;
		broker->slots_count = count;
	}
	slots[slot] = session;
}

struct broker_session *broker_session_of(const struct reef_request *request)
{
	const struct broker_member *member = broker_member_of(request->peer);

	if (!member || !member->session || member->session->ending)
		return NULL;
	return member->session;
}

/* --- coming and going --- */

/* Make and expose a session's renewal word on a fabric: a page of its own,
 * whose key nobody else learns. */
static int open_renewal(struct reef_broker *broker,
			struct broker_session *session, uint32_t index)
{
	struct broker_renewal *renewal = &session->renewals[index];
	struct reef_fabric *fabric =
		reef_mesh_fabric(broker->options.mesh, index);
	int rc;

	if (renewal->region)
		return 0;
	rc = broker_memory_create(fabric, 4096, false, &renewal->memory);
	if (rc)
		return rc;
	rc = reef_expose(fabric, renewal->memory, &renewal->region);
	if (rc) {
		reef_memory_destroy(renewal->memory);
		renewal->memory = NULL;
	}
	return rc;
}

static struct broker_session *create_session(struct reef_broker *broker,
					     uint32_t id, uint32_t user)
{
	struct broker_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->id = id;
	session->user = user;
	session->ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);
	/* A new session counts as just renewed. */
	session->renewed_ns = reef_now_ns();
	return session;
}

/* Who comes now has the newest view, and nothing from before. */
static void acknowledge_as_new(const struct reef_broker *broker,
			       struct broker_session *session)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	session->acknowledged = summary.pool_epoch;
}

static void add_session(struct reef_broker *broker,
			struct broker_session *session)
{
	session->next = broker->sessions;
	broker->sessions = session;
	index_session(broker, session);
}

/* True while a request of another session is being served on this link: what it
 * asked for must not be taken for this session's. */
static bool is_shared(const struct broker_member *member,
		      const struct broker_session *session)
{
	return member->session && member->session != session &&
	       member->serving > 1;
}

/* Make this link the session's control link. */
static void bind_link(struct broker_member *member,
		      struct broker_session *session)
{
	struct broker_member *old;

	if (session->peer) {
		old = broker_member_of(session->peer);
		if (old)
			old->session = NULL;
	}
	/* A session that ends may still have this link. */
	if (member->session)
		member->session->peer = NULL;
	session->peer = member->peer;
	session->fabric = member->fabric;
	member->session = session;
}

/* Journal the process that the session's control link comes from, or that it is
 * not known any more. Where that fails, the lease decides alone. */
static void note_process(struct reef_broker *broker,
			 const struct broker_session *session)
{
	const struct reef_state_session *known =
		reef_state_session(broker->state, session->id);
	struct reef_process process = {0};
	struct reef_record record = {
		.type = REEF_RECORD_SESSION_PROCESS,
		.session = session->id,
	};
	uint32_t pid = session->peer->link
			       ? reef_link_process(session->peer->link)
			       : 0;

	if (pid && reef_process_find(pid, &process))
		process = (struct reef_process){0};
	record.id = process.pid;
	record.generation = process.started;
	record.value = process.place;
	if (process.pid != known->process.pid ||
	    process.started != known->process.started ||
	    process.place != known->process.place)
		(void)broker_commit(broker, &record, NULL, NULL);
}

static int fill_session_reply(struct reef_broker *broker,
			      const struct broker_session *session,
			      struct reef_reply_session *reply)
{
	struct reef_state_summary summary;
	struct reef_key key;
	int rc;

	rc = reef_key_derive_session(broker->key, session->id, &key);
	if (rc)
		return rc;
	reef_state_summary(broker->state, &summary);
	*reply = (struct reef_reply_session){
		.session = session->id,
		.ttl_ns = session->ttl_ns,
		.renewal_key = reef_region_key(
			session->renewals[session->fabric].region),
		.table_key =
			reef_region_key(broker->table_regions[session->fabric]),
		.pool = summary.pool,
		.pool_epoch = summary.pool_epoch,
		.extent_size = reef_state_setting(broker->state,
						  REEF_SETTING_EXTENT_SIZE),
	};
	memcpy(reply->secret, key.bytes, sizeof(reply->secret));
	reef_key_wipe(&key);
	return 0;
}

static void set_program_name(struct broker_session *session,
			     struct reef_text name)
{
	size_t size = name.size;

	if (size >= sizeof(session->name))
		size = sizeof(session->name) - 1;
	memcpy(session->name, name.bytes, size);
	reef_text_make_plain(session->name, size); /* terminals show it */
	session->name[size] = 0;
}

/* True if a session is on its way to be RECOVERED; of that user, or of
 * anybody. */
static bool is_anyone_ending(const struct reef_broker *broker, uint32_t user)
{
	const struct broker_session *session = broker->sessions;

	while (session &&
	       !(session->ending && (!user || session->user == user)))
		session = session->next;
	return session;
}

/* How many of the slots that are kept for the owner a session may take. */
static uint32_t count_reserved(uint32_t user, uint32_t flags)
{
	if (user)
		return 0;
	return flags & REEF_POOL_SERVANT
		       ? REEF_OWNER_SLOTS
		       : REEF_OWNER_SLOTS - REEF_SERVANT_SLOTS;
}

/* Pick a slot. Where all are taken, or all that the user may have, and some by
 * sessions that are on their way to be RECOVERED, wait for one, within a bound:
 * those who come and go quickly are slowed down to the pace of recovery.
 * -REEF_ENOLINK: whoever asked has gone meanwhile. */
static int pick_slot(struct reef_broker *broker,
		     const struct reef_request *request, uint32_t *id)
{
	uint32_t user = broker_member_of(request->peer)->user;
	uint32_t reserved =
		count_reserved(user, request->body.ask.session_open.flags);
	uint64_t until_ns = reef_now_ns() + SLOT_WAIT_NS;
	bool may_wait;
	int rc;

	for (;;) {
		rc = reef_state_check_user(broker->state, user,
					   REEF_LIMIT_SESSIONS, 1);
		may_wait = is_anyone_ending(broker, rc ? user : 0);
		if (rc == 0)
			rc = reef_state_pick_session(broker->state, reserved,
						     id);
		if ((rc != -ENOSPC && rc != -EDQUOT) || !may_wait ||
		    reef_now_ns() >= until_ns)
			return rc;
		rc = broker_sleep(broker, SLOT_PAUSE_NS);
		if (rc)
			return rc;
		if (!broker_member_of(request->peer))
			return -REEF_ENOLINK;
	}
}

static int open_session(struct reef_broker *broker,
			const struct reef_request *request,
			struct broker_session **out)
{
	const struct reef_ask_session_open *ask =
		&request->body.ask.session_open;
	struct reef_record record = {.type = REEF_RECORD_SESSION_OPEN};
	struct broker_session *session;
	struct broker_member *member;
	int rc;

	if (!broker_user_may_join(broker,
				  broker_member_of(request->peer)->user))
		return -EBUSY;
	rc = pick_slot(broker, request, &record.session);
	if (rc)
		return rc;
	/* It may have waited, and the link be another session's by now. */
	member = broker_member_of(request->peer);
	if (broker_session_of(request) || is_shared(member, NULL))
		return -EBUSY;
	if (!broker_is_current_era(broker, member->user, member->era))
		return -REEF_EAUTH;
	record.user = member->user;
	session = create_session(broker, record.session, member->user);
	if (!session)
		return -ENOMEM;
	set_program_name(session, ask->program);
	session->pid = ask->pid;
	/* R8: it can hold nothing that was let go before it came. */
	session->oldest = broker->reclaim_epoch;
	acknowledge_as_new(broker, session);
	rc = open_renewal(broker, session, member->fabric);
	if (rc == 0)
		rc = broker_commit(broker, &record, NULL, NULL);
	if (rc) {
		broker_session_free(broker, session);
		return rc;
	}
	add_session(broker, session);
	bind_link(member, session);
	note_process(broker, session);
	*out = session;
	return 0;
}

BROKER_REQUEST(broker_session_open)
{
	struct broker_session *session;
	uint32_t id;
	int rc;

	rc = open_session(broker, request, &session);
	if (rc)
		return rc;
	rc = fill_session_reply(broker, session, &answer->reply.session);
	if (rc) {
		broker_session_end(broker, session, "could not be told");
		return rc;
	}
	id = session->id;
	broker_event(broker, "session %08x of user %u opened: %s", id,
		     session->user, session->name);
	return broker_publish_session(broker, id);
}

/* Compare the session's key. One error for all cases: whoever does not know the
 * key learns nothing, not even whether there is such a session. */
static int check_proof(const struct reef_broker *broker,
		       const struct reef_ask_session_resume *ask)
{
	struct reef_key proof, key;
	bool equal;
	int rc;

	rc = reef_key_derive_session(broker->key, ask->session, &key);
	if (rc)
		return rc;
	memcpy(proof.bytes, ask->secret, sizeof(proof.bytes));
	equal = reef_key_equal(&proof, &key);
	reef_key_wipe(&proof);
	reef_key_wipe(&key);
	return equal ? 0 : -REEF_EAUTH;
}

/* Who had no link could not announce anything: lease.c (10). */
static void forgive_pin(struct broker_session *session)
{
	uint64_t now_ns = reef_now_ns();

	if (session->forgiven_ns &&
	    now_ns - session->forgiven_ns < FORGIVE_LEASES * session->ttl_ns)
		return;
	session->forgiven_ns = now_ns;
	session->pinning = 0;
	session->behind_ns = 0;
}

BROKER_REQUEST(broker_session_resume)
{
	struct broker_member *member = broker_member_of(request->peer);
	const struct reef_ask_session_resume *ask =
		&request->body.ask.session_resume;
	struct broker_session *session, *other = broker_session_of(request);
	int rc;

	rc = check_proof(broker, ask);
	if (rc)
		return rc;
	session = broker_session_find(broker, ask->session);
	if (!session || session->ending)
		return -REEF_EFENCED;
	if (session->user != member->user)
		return -REEF_EAUTH;
	if ((other && other != session) || is_shared(member, session))
		return -EBUSY;
	rc = open_renewal(broker, session, member->fabric);
	if (rc)
		return rc;
	if (session->peer != member->peer)
		bind_link(member, session);
	note_process(broker, session);
	session->ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);
	session->renewed_ns = reef_now_ns();
	session->unchanged = 0;
	forgive_pin(session);
	if (ask->program.size)
		set_program_name(session, ask->program);
	if (ask->pid)
		session->pid = ask->pid;
	return fill_session_reply(broker, session, &answer->reply.session);
}

BROKER_REQUEST(broker_session_close)
{
	struct broker_session *session = broker_session_of(request);

	session->closed = true;
	return broker_session_end(broker, session, "closed");
}

BROKER_REQUEST(broker_session_end_request)
{
	struct broker_session *session = broker_session_find(
		broker, request->body.ask.session_end.session);

	if (!session)
		return -ENOENT;
	return broker_session_end(broker, session, "ended by its operator");
}

void broker_session_link_lost(struct reef_broker *broker,
			      struct broker_session *session)
{
	struct reef_fabric *fabric =
		reef_mesh_fabric(broker->options.mesh, session->fabric);

	session->peer = NULL;
	/* On shm that is the end of the process (F7). Elsewhere it says nothing
	 * about it, and the lease goes on. Who leaves a broker that is not sure
	 * looks for another one. */
	if (!broker->stopping && !session->ending && broker->sure &&
	    strcmp(reef_fabric_kind(fabric), "shm") == 0)
		(void)broker_session_end(broker, session, "process ended");
}

void broker_session_unlink(struct reef_broker *broker,
			   struct broker_session *session)
{
	const uint32_t slot = reef_session_slot(session->id);
	struct broker_session **at = &broker->sessions;
	struct broker_member *member;

	if (slot < broker->slots_count && broker->slots[slot] == session)
		broker->slots[slot] = NULL;
	while (*at && *at != session)
		at = &(*at)->next;
	if (*at)
		*at = session->next;
	member = session->peer ? broker_member_of(session->peer) : NULL;
	if (member && member->session == session)
		member->session = NULL;
	session->peer = NULL;
}

void broker_session_free(struct reef_broker *broker,
			 struct broker_session *session)
{
	uint32_t i;

	broker_session_unlink(broker, session);
	for (i = 0; i < REEF_MESH_MAX; i++)
		if (session->renewals[i].memory)
			broker_memory_retire(
				reef_mesh_fabric(broker->options.mesh, i),
				session->renewals[i].region,
				session->renewals[i].memory);
	free(session->grants);
	free(session->told);
	free(session);
}

int broker_sessions_open(struct reef_broker *broker)
{
	const struct reef_state_session *known;
	struct reef_state_summary summary;
	struct broker_session *session;
	size_t i, count;

	reef_state_summary(broker->state, &summary);
	known = reef_state_sessions(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (known[i].id == 0 ||
		    known[i].state == REEF_SESSION_RECOVERED)
			continue;
		session = create_session(broker, known[i].id, known[i].user);
		if (!session)
			return -ENOMEM;
		session->ending = known[i].state != REEF_SESSION_ALIVE;
		session->fenced = known[i].state == REEF_SESSION_FENCED;
		session->is_from_before = true;
		if (!REEF_MUTATED(BROKER_FENCE_FORGETS))
			session->told_below = summary.next_node;
		if (REEF_MUTATED(BROKER_NO_GRACE)) {
			session->sampled_ns = session->renewed_ns;
			session->unchanged = 3;
		}
		add_session(broker, session);
	}
	return 0;
}

/* End the sessions whose processes have ended. True if there are others of
 * before, which have not come back and whose processes are known. */
static bool end_dead(struct reef_broker *broker)
{
	struct broker_session *session = broker->sessions;
	const struct reef_state_session *known;
	bool others = false;

	for (; session; session = session->next) {
		if (session->ending || session->peer)
			continue;
		known = reef_state_session(broker->state, session->id);
		if (reef_process_has_ended(&known->process))
			(void)broker_session_end(broker, session,
						 "process ended");
		else if (session->is_from_before && known->process.pid)
			others = true;
	}
	return others;
}

static void end_dead_later(struct reef_broker *broker, uint32_t ignored)
{
	uint64_t pause_ns = DEAD_PAUSE_NS;

	(void)ignored;
	while (!broker_sleep(broker, pause_ns) && end_dead(broker))
		if (pause_ns < DEAD_PAUSE_MAX_NS)
			pause_ns *= 2;
}

int broker_sessions_end_dead(struct reef_broker *broker)
{
	return end_dead(broker) ? broker_spawn(broker, end_dead_later, 0) : 0;
}

void broker_sessions_close(struct reef_broker *broker)
{
	while (broker->sessions)
		broker_session_free(broker, broker->sessions);
}

/* --- what they may reach --- */

static struct broker_grant *find_grant(const struct broker_session *session,
				       uint32_t space)
{
	uint32_t i;

	for (i = 0; i < session->grants_count; i++)
		if (session->grants[i].space == space)
			return &session->grants[i];
	return NULL;
}

uint8_t broker_session_rights(struct reef_broker *broker,
			      const struct broker_session *session, uint32_t id)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, id);
	const struct broker_grant *grant = find_grant(session, id);

	if (!space)
		return 0;
	if (space->kind == REEF_SPACE_SCRATCH && space->session != session->id)
		return session->user == 0 ? REEF_RIGHT_ALL : 0;
	/* The pool's owner holds the key that all tokens are made with. */
	if (session->user == 0 || session->user == space->user)
		return REEF_RIGHT_ALL;
	return grant ? grant->rights : 0;
}

int broker_grant(struct reef_broker *broker, struct broker_session *session,
		 uint32_t space, uint8_t rights)
{
	struct reef_record record = {
		.type = REEF_RECORD_USE,
		.session = session->id,
		.space = space,
	};
	struct broker_grant *grant = find_grant(session, space), *grown;
	uint32_t room = session->grants_room ? 2 * session->grants_room : 8;
	int rc = 0;

	if (!grant && session->grants_count == session->grants_room) {
		grown = realloc(session->grants, room * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		session->grants = grown;
		session->grants_room = room;
	}
	if (rights & REEF_RIGHT_WRITE)
		rc = broker_commit(broker, &record, NULL, NULL);
	/* -EEXIST: it used it already.  -EINVAL: its own scratch space. */
	if (rc && rc != -EEXIST && rc != -EINVAL)
		return rc;
	if (!grant) {
		grant = &session->grants[session->grants_count++];
		*grant = (struct broker_grant){space, 0};
	}
	/* A token that allows less takes nothing away. */
	grant->rights |= rights;
	return 0;
}

void broker_ungrant(struct broker_session *session, uint32_t space)
{
	struct broker_grant *grant = find_grant(session, space);

	if (grant)
		*grant = session->grants[--session->grants_count];
}

void broker_ungrant_all(struct reef_broker *broker, uint32_t space)
{
	const struct reef_state_space *known =
		reef_state_space(broker->state, space);
	struct broker_session *session = broker->sessions;

	for (; session; session = session->next)
		if (!known || (session->user && session->user != known->user))
			broker_ungrant(session, space);
}

/* --- settings --- */

static int parse_setting(struct reef_text text, enum reef_setting *setting)
{
	char name[64];

	if (text.size >= sizeof(name))
		return -ENOENT;
	memcpy(name, text.bytes, text.size);
	name[text.size] = 0;
	return reef_setting_find(name, setting);
}

BROKER_REQUEST(broker_setting)
{
	struct reef_record record = {
		.type = REEF_RECORD_SETTING,
		.value = request->body.ask.setting.value,
	};
	enum reef_setting setting;
	uint64_t value;
	int rc;

	rc = parse_setting(request->body.ask.setting.name, &setting);
	if (rc)
		return rc;
	if (request->body.ask.setting.flags & REEF_POOL_SETTING_READ) {
		answer->reply.setting.value =
			reef_state_setting(broker->state, setting);
		return 0;
	}
	record.id = setting;
	rc = broker_find_repeated(broker, request, record.type, &value);
	if (rc == 0) {
		value = record.value;
		rc = broker_commit(broker, &record, request, NULL);
	}
	if (rc < 0)
		return rc;
	broker_wake(broker); /* some sleep for a time that is a setting */
	answer->reply.setting.value = value;
	return 0;
}
