/* serve.c - a broker's start and end, who may ask what, and the way of a
 * request: who asks, what is asked, the function, the journal, the answer. */
#include "base/log.h"
#include "base/mutant.h"
#include "base/system/secret.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <string.h>

/* --- who is there --- */

/* "node:<number>", in the one way to write it. */
static bool parse_node(const char *identity, uint32_t *number)
{
	char again[REEF_IDENTITY_MAX + 1];

	if (sscanf(identity, "node:%u", number) != 1)
		return false;
	snprintf(again, sizeof(again), "node:%u", *number);
	return strcmp(identity, again) == 0;
}

/* Derive what a node that was added proves; one that was removed, nothing. */
static int derive_nodes_proof(const struct reef_broker *broker, uint32_t number,
			      struct reef_key *out)
{
	struct reef_key node;
	int rc;

	if (!reef_state_node(broker->state, number))
		return -REEF_EAUTH;
	rc = reef_key_derive_node(broker->key, number, &node);
	if (rc)
		return rc;
	rc = reef_key_derive_broker(&node, out);
	reef_key_wipe(&node);
	return rc;
}

static int broker_credential(void *context, const char *identity,
			     uint32_t session, uint8_t bytes[REEF_KEY_SIZE])
{
	struct reef_broker *broker = context;
	struct reef_key key;
	uint32_t user, era, number;
	int rc;

	/* Links to a broker are provisional ones: nobody comes as a session. */
	if (session >> 16 < 0x8000)
		return -REEF_EAUTH;
	if (parse_node(identity, &number))
		rc = derive_nodes_proof(broker, number, &key);
	else if (broker_parse_user(identity, &user, &era) &&
		 broker_is_current_era(broker, user, era))
		rc = reef_key_derive_user(broker->key, user, era, &key);
	else
		rc = -REEF_EAUTH;
	if (rc)
		return rc;
	memcpy(bytes, key.bytes, sizeof(key.bytes));
	reef_key_wipe(&key);
	return 0;
}

static uint32_t fabric_index(const struct reef_broker *broker,
			     const struct reef_link *link)
{
	uint32_t i, count = reef_mesh_count(broker->options.mesh);

	for (i = 0; i < count; i++)
		if (reef_mesh_fabric(broker->options.mesh, i) ==
		    reef_link_fabric(link))
			return i;
	reef_assert(!"a link of our mesh");
	return 0;
}

/* A peer for which there is no memory has no member: requests of it are
 * refused.
 */
static void broker_opened(void *context, struct reef_peer *peer)
{
	struct reef_broker *broker = context;
	struct broker_member *member = calloc(1, sizeof(*member));
	const char *identity = reef_link_identity(peer->link);

	peer->user = member;
	if (!member)
		return;
	member->peer = peer;
	member->fabric = fabric_index(broker, peer->link);
	/* Users are counted each for himself, and keep neither the owner's
	 * requests nor the nodes' waiting (rpc.h, 4). */
	if (broker_parse_user(identity, &member->user, &member->era)) {
		member->kind = BROKER_CLIENT;
		peer->room = member->user ? REEF_ROOM_USERS : REEF_ROOM_OWNER;
		peer->account = member->user;
	} else {
		member->kind = BROKER_NODE;
		parse_node(identity, &member->number);
		peer->room = REEF_ROOM_SERVERS;
		peer->account = peer->session;
	}
	broker_user_link_opened(broker, member->user);
}

static void broker_closed(void *context, struct reef_peer *peer, int reason)
{
	struct reef_broker *broker = context;
	struct broker_member *member = peer->user;

	peer->user = NULL;
	if (!member)
		return;
	broker_user_link_closed(broker, member->user);
	if (member->session)
		broker_session_link_lost(broker, member->session);
	if (member->node)
		broker_node_link_lost(broker, member->node);
	free(member);
}

/* --- requests --- */

enum who { NOBODY, NODE, STRANGER, SESSION, OWNER };

static const struct service {
	/* STRANGER: whoever proved to be a user; SESSION: a session that is
	 * alive; OWNER: the pool's, who needs a session only for what is
	 * numbered. */
	enum who who;
	int (*serve)(struct reef_broker *broker,
		     const struct reef_request *request,
		     struct reef_body *answer, struct reef_cursor_out *room);
} services[REEF_POOL_KINDS] = {
	[REEF_POOL_SESSION_OPEN] = {STRANGER, broker_session_open},
	[REEF_POOL_SESSION_RESUME] = {STRANGER, broker_session_resume},
	[REEF_POOL_SESSION_CLOSE] = {SESSION, broker_session_close},
	[REEF_POOL_SPACE_OPEN] = {SESSION, broker_space_open},
	[REEF_POOL_SPACE_CLOSE] = {SESSION, broker_space_close},
	[REEF_POOL_SPACE_EXTENTS] = {SESSION, broker_space_extents},
	[REEF_POOL_SPACE_DROP] = {SESSION, broker_space_drop},
	[REEF_POOL_SPACE_QUOTA] = {SESSION, broker_space_quota},
	[REEF_POOL_SPACE_REVOKE] = {SESSION, broker_space_revoke},
	[REEF_POOL_SPACE_FORGET] = {SESSION, broker_space_forget},
	[REEF_POOL_SPACE_TOKEN] = {SESSION, broker_space_token},
	[REEF_POOL_SPACE_SAVE] = {SESSION, broker_space_save},
	[REEF_POOL_SPACE_RESTORE] = {OWNER, broker_space_restore},
	[REEF_POOL_EXTENT_ADD] = {SESSION, broker_extent_add},
	[REEF_POOL_EXTENT_REMOVE] = {SESSION, broker_extent_remove},
	[REEF_POOL_NAME_BIND] = {SESSION, broker_name_bind},
	[REEF_POOL_NAME_REPLACE] = {SESSION, broker_name_replace},
	[REEF_POOL_NAME_UNBIND] = {SESSION, broker_name_unbind},
	[REEF_POOL_NAME_LOOKUP] = {SESSION, broker_name_lookup},
	[REEF_POOL_NAME_LIST] = {SESSION, broker_name_list},
	[REEF_POOL_STATUS] = {STRANGER, broker_status},
	[REEF_POOL_LIST] = {STRANGER, broker_list},
	[REEF_POOL_USER_ADD] = {OWNER, broker_user_add},
	[REEF_POOL_USER_REMOVE] = {OWNER, broker_user_remove},
	[REEF_POOL_USER_ROTATE] = {OWNER, broker_user_rotate},
	[REEF_POOL_USER_LIMIT] = {OWNER, broker_user_limit},
	[REEF_POOL_NODE_ADD] = {OWNER, broker_node_add_request},
	[REEF_POOL_NODE_DRAIN] = {OWNER, broker_node_drain},
	[REEF_POOL_NODE_RECLAIM] = {OWNER, broker_node_reclaim},
	[REEF_POOL_NODE_REMOVE] = {OWNER, broker_node_remove},
	[REEF_POOL_SESSION_END] = {OWNER, broker_session_end_request},
	[REEF_POOL_SETTING] = {OWNER, broker_setting},
	[REEF_POOL_NODE_REGISTER] = {NODE, broker_node_register},
	[REEF_POOL_NODE_EXTENTS] = {NODE, broker_node_extents},
	[REEF_POOL_NODE_READY] = {NODE, broker_node_ready},
	[REEF_POOL_NODE_PULSE] = {NODE, broker_node_pulse},
	[REEF_POOL_TIME] = {SESSION, broker_time},
	[REEF_POOL_SETTLE] = {SESSION, broker_settle},
	[REEF_POOL_JANITOR] = {OWNER, broker_janitor},
};

/* True for what is answered also by a broker that is not sure (confirm.c, 6),
 * when it is durable, confirmed or not: what nodes say, what only looks, and
 * what an operator vouches for. */
static bool is_for_unsure(uint16_t kind)
{
	return services[kind].who == NODE || kind == REEF_POOL_STATUS ||
	       kind == REEF_POOL_LIST || kind == REEF_POOL_NODE_REMOVE;
}

/* 0: the peer may ask for what `who` may. */
static int check_asker(const struct reef_broker *broker,
		       const struct reef_request *request, enum who who)
{
	const struct broker_member *member = broker_member_of(request->peer);
	bool node = member && member->kind == BROKER_NODE;

	if (!member)
		return -REEF_ENOLINK;
	if (who == NOBODY)
		return -ENOSYS;
	if (who == NODE || node)
		return who == NODE && node ? 0 : -EPERM;
	/* users.c (1); sessions go on for as long as they are left to. */
	if (who != SESSION &&
	    !broker_is_current_era(broker, member->user, member->era))
		return -REEF_EAUTH;
	if (who == STRANGER)
		return 0;
	if (who == OWNER)
		return member->user != 0 ? -EPERM : 0;
	return broker_session_of(request) ? 0 : -REEF_EFENCED;
}

static int run_service(struct reef_broker *broker,
		       const struct service *service,
		       const struct reef_request *request,
		       struct reef_body *answer, struct reef_cursor_out *room)
{
	int rc;

	broker_member_of(request->peer)->serving++;
	rc = service->serve(broker, request, answer, room);
	/* The link may be gone by now. */
	if (!broker_member_of(request->peer))
		return rc;
	broker_member_of(request->peer)->serving--;
	if (rc == -EDQUOT)
		broker_user_refused(broker,
				    broker_member_of(request->peer)->user);
	return rc;
}

/* Wait until what the function saw or did may be told. A request that nobody
 * confirms is in doubt after a while: its asker may find another broker. */
static int wait_for_answer(struct reef_broker *broker, uint16_t kind)
{
	uint64_t sequence = broker->applied;
	uint64_t ttl_ns =
		reef_state_setting(broker->state, REEF_SETTING_NODE_TTL_NS);
	int rc = broker_wait_journal(broker, sequence);

	if (rc || services[kind].who == NODE)
		return rc;
	if (!is_for_unsure(kind))
		return broker_wait_confirmed(broker, sequence, ttl_ns / 2);
	rc = broker_wait_confirmed(broker, sequence, ttl_ns / 8);
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int broker_handle(void *context, const struct reef_request *request,
			 struct reef_body *answer, struct reef_cursor_out *room)
{
	struct reef_broker *broker = context;
	const struct service *service;
	int rc, failed;

	/* The asker does not learn what became of it, and asks the next
	 * broker. */
	if (broker->health || broker->stopping)
		return -REEF_EINDOUBT;
	reef_assert(request->header.kind < REEF_POOL_KINDS);
	service = &services[request->header.kind];
	rc = check_asker(broker, request, service->who);
	if (rc == 0 && !is_for_unsure(request->header.kind)) {
		if (!broker_await_sure(broker))
			return -REEF_EINDOUBT;
		/* Who comes from another place is not kept here by pulses that
		 * waited while this broker stood still. */
		if (request->header.kind == REEF_POOL_SESSION_RESUME &&
		    broker_confirm_now(broker))
			return -REEF_EINDOUBT;
		/* The link may be gone by now. */
		rc = check_asker(broker, request, service->who);
	}
	if (rc == 0)
		rc = run_service(broker, service, request, answer, room);
	if (rc == REEF_LATER) /* broker_answer_later */
		return rc;
	/* What the function saw or did, even the reason of an error, is durable
	 * before anybody hears of it. */
	if (REEF_MUTATED(BROKER_EARLY_ANSWER))
		return rc;
	failed = wait_for_answer(broker, request->header.kind);
	return failed || broker->health ? -REEF_EINDOUBT : rc;
}

void broker_answer_later(struct reef_broker *broker,
			 const struct reef_request *request, int rc,
			 const struct reef_body *answer)
{
	if (wait_for_answer(broker, request->header.kind) || broker->health ||
	    rc == -ECANCELED)
		rc = -REEF_EINDOUBT;
	reef_request_answer(request, rc, answer);
}

static void broker_note(void *context, const struct reef_request *note)
{
	const struct broker_member *member = broker_member_of(note->peer);

	if (note->header.kind == REEF_POOL_HURRY && member && member->session)
		broker_hurry_asked_for(context);
}

size_t broker_rows_max(const struct reef_broker *broker,
		       const struct reef_request *request)
{
	const struct broker_member *member = broker_member_of(request->peer);
	struct reef_fabric *fabric = reef_mesh_fabric(
		broker->options.mesh, member ? member->fabric : 0);

	/* Half leaves room for what precedes the rows, and for one name of the
	 * greatest size. */
	return reef_fabric_limits(fabric)->message_max / 2;
}

/* --- start and stop --- */

static int replay_snapshot(void *context, const void *bytes, size_t size)
{
	struct reef_broker *broker = context;
	struct reef_state *state;
	int rc = reef_state_decode(bytes, size, &state);

	if (rc)
		return rc;
	reef_state_destroy(broker->state);
	broker->state = state;
	return 0;
}

static int replay_record(void *context, uint64_t sequence, uint16_t type,
			 const void *bytes, size_t size)
{
	struct reef_broker *broker = context;

	broker->applied = sequence;
	return reef_state_replay(broker->state, type, bytes, size);
}

static int open_journal(struct reef_broker *broker)
{
	struct reef_journal_options options = {
		.sync_inline = broker->options.sync_inline,
		.salt = broker->options.seed,
	};
	struct reef_journal_reader reader = {
		.snapshot = replay_snapshot,
		.record = replay_record,
		.context = broker,
	};
	struct reef_journal_status status;
	int rc;

	rc = reef_state_create(&broker->state);
	if (rc)
		return rc;
	rc = reef_journal_open(broker->options.store, broker->sched, &options,
			       &reader, &broker->journal);
	if (rc)
		return rc;
	reef_journal_status(broker->journal, &status);
	broker->applied = status.appended;
	return 0;
}

static int commit_option(struct reef_broker *broker, enum reef_setting setting,
			 uint64_t value)
{
	struct reef_record record = {
		.type = REEF_RECORD_SETTING,
		.id = setting,
		.value = value,
	};

	if (value == 0 || value == reef_state_setting(broker->state, setting))
		return 0;
	return broker_commit(broker, &record, NULL, NULL);
}

/* Commit the pool, if there is none yet, this start's epoch, and options that
 * differ from the settings. Durable before anybody is let in. */
/* Begin the numbers of extents, and the slots of sessions, by chance: so what
 * was saved in one pool can be restored in another, where its numbers are
 * hardly in use. There are enough above. */
static int scatter_numbers(struct reef_broker *broker)
{
	uint64_t slots =
		reef_state_setting(broker->state, REEF_SETTING_SESSIONS_MAX);
	struct reef_record record = {
		.type = REEF_RECORD_NUMBERS,
		.id = 1 +
		      (uint32_t)reef_random_below(&broker->random, 1u << 31),
		.ordinal = (uint32_t)reef_random_below(&broker->random, slots),
	};

	return broker_commit(broker, &record, NULL, NULL);
}

static int begin_epoch(struct reef_broker *broker)
{
	const struct reef_broker_options *options = &broker->options;
	struct reef_record record = {.type = REEF_RECORD_POOL};
	struct reef_state_summary summary;
	int rc = 0, i;

	reef_state_summary(broker->state, &summary);
	if (!summary.pool) {
		record.value = reef_random_next(&broker->random) | 1;
		rc = broker_commit(broker, &record, NULL, NULL);
		if (rc == 0 && options->scatter)
			rc = scatter_numbers(broker);
	}
	if (rc == 0)
		rc = broker_confirm_begin(broker);
	record = (struct reef_record){.type = REEF_RECORD_BROKER,
				      .value = summary.broker_epoch + 1};
	if (rc == 0 &&
	    (!REEF_MUTATED(BROKER_OLD_EPOCH) || summary.broker_epoch == 0))
		rc = broker_commit(broker, &record, NULL, NULL);
	if (rc == 0)
		rc = commit_option(broker, REEF_SETTING_LEASE_TTL_NS,
				   options->ttl_ns);
	if (rc == 0)
		rc = commit_option(broker, REEF_SETTING_NODE_TTL_NS,
				   options->node_ttl_ns);
	if (rc == 0)
		rc = commit_option(broker, REEF_SETTING_EXTENT_SIZE,
				   options->extent_size);
	if (rc == 0)
		rc = commit_option(broker, REEF_SETTING_REVOKE_NOTICE_NS,
				   options->revoke_notice_ns);
	if (rc == 0)
		rc = commit_option(broker, REEF_SETTING_LEASE_KILLS,
				   options->lease_kills);
	for (i = 0; rc == 0 && i < REEF_LIMIT_COUNT; i++)
		rc = commit_option(broker, REEF_SETTING_USER_SESSIONS + i,
				   options->user_limits[i]);
	if (rc == 0)
		rc = broker_epochs_begin(broker);
	if (rc == 0)
		rc = broker_wait_journal(broker, broker->applied);
	if (rc)
		return rc;
	reef_state_summary(broker->state, &summary);
	broker->epoch = summary.broker_epoch;
	broker_changes_begin(broker);
	return 0;
}

static int open_doors(struct reef_broker *broker)
{
	struct reef_rpc_options options = {
		.handle = broker_handle,
		.note = broker_note,
		.opened = broker_opened,
		.closed = broker_closed,
		.credential = broker_credential,
		.admit = broker_admit,
		.context = broker,
		.epoch = broker->epoch,
	};
	int rc;

	rc = reef_port_open(broker->options.mesh, broker->sched, &broker->port);
	if (rc == 0)
		rc = broker_table_open(broker);
	if (rc == 0)
		rc = broker_sessions_open(broker);
	if (rc == 0)
		rc = reef_rpc_create(broker->port, &options, &broker->rpc);
	/* The fibers that judge nodes and sessions start before anybody is let
	 * in, so that nobody's end goes unseen. */
	if (rc == 0)
		rc = broker_nodes_start(broker);
	if (rc == 0)
		rc = broker_confirm_start(broker);
	if (rc == 0)
		rc = broker_lease_start(broker);
	if (rc == 0)
		rc = broker_sessions_end_dead(broker);
	if (rc == 0) {
		broker_users_end_outdated(broker);
		rc = reef_rpc_listen(broker->rpc, broker->options.listen,
				     broker->addresses,
				     sizeof(broker->addresses));
	}
	if (rc == 0) {
		broker_moves_resume(broker);
		broker_copies_resume(broker);
	}
	return rc;
}

static int seed_random(struct reef_broker *broker)
{
	uint64_t value = broker->options.seed;
	int rc = 0;

	if (value == 0)
		rc = reef_random_secret(&value, sizeof(value));
	if (rc == 0)
		reef_random_init(&broker->random, value);
	return rc;
}

int reef_broker_start(const struct reef_broker_options *options,
		      struct reef_broker **out)
{
	struct reef_broker *broker = calloc(1, sizeof(*broker));
	int rc;

	if (!broker)
		return -ENOMEM;
	reef_assert(reef_fiber_self());
	broker->options = *options;
	broker->key = reef_secret_create(sizeof(*broker->key));
	if (!broker->key) {
		free(broker);
		return -ENOMEM;
	}
	*broker->key = *options->key;
	broker->options.key = broker->key;
	broker->sched = options->sched ? options->sched : reef_fiber_sched();
	broker->group = reef_fiber_group();
	broker->started_ns = reef_now_ns();
	if (!broker->options.snapshot_bytes)
		broker->options.snapshot_bytes = 4 << 20;
	rc = seed_random(broker);
	if (rc == 0)
		rc = open_journal(broker);
	if (rc == 0)
		rc = broker_confirm_open(broker);
	if (rc == 0)
		rc = begin_epoch(broker);
	if (rc == 0)
		rc = open_doors(broker);
	if (rc) {
		reef_broker_stop(broker);
		return rc;
	}
	broker_event(broker, "broker epoch %llu serves at %s",
		     (unsigned long long)broker->epoch, broker->addresses);
	*out = broker;
	return 0;
}

void reef_broker_stop(struct reef_broker *broker)
{
	if (!broker)
		return;
	broker->stopping = true;
	broker_wake(broker);
	broker_rekeys_end(broker);
	broker_settles_end(broker);
	broker_adders_end(broker);
	/* Calls of the broker's fibers fail first, so that they can end. */
	reef_rpc_destroy(broker->rpc);
	broker_tasks_end(broker);
	reef_port_close(broker->port);
	broker_sessions_close(broker);
	broker_nodes_close(broker);
	broker_users_close(broker);
	broker_tellings_close(broker);
	broker_table_close(broker);
	reef_journal_close(broker->journal);
	reef_state_destroy(broker->state);
	free(broker->versions);
	free(broker->slots);
	reef_secret_destroy(broker->key);
	free(broker);
}

const char *reef_broker_addresses(const struct reef_broker *broker)
{
	return broker->addresses;
}

uint64_t reef_broker_epoch(const struct reef_broker *broker)
{
	return broker->epoch;
}

uint64_t reef_broker_pool(const struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	return summary.pool;
}

uint32_t reef_broker_owner_era(const struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	return summary.owner_era;
}

void broker_fail(struct reef_broker *broker, int error)
{
	if (broker->health)
		return;
	broker->health = error;
	reef_log(REEF_LOG_ERROR, "broker", "serves no more: %s",
		 reef_error_text(error));
	broker_wake(broker);
}

int reef_broker_health(const struct reef_broker *broker)
{
	return broker->health;
}

int reef_broker_wait(struct reef_broker *broker, uint64_t timeout_ns)
{
	uint64_t begun = reef_now_ns(), passed = 0;
	int rc = 0;

	while (!broker->health && rc == 0 && passed < timeout_ns) {
		rc = broker_sleep(broker, timeout_ns == REEF_FOREVER
						  ? REEF_FOREVER
						  : timeout_ns - passed);
		passed = reef_now_ns() - begun;
	}
	if (broker->health)
		return broker->health;
	return rc ? rc : -ETIMEDOUT;
}
