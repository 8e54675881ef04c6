/* table.c - what everyone may READ of the broker: epochs, the states of
 * sessions, and the words that tell a session to ask.
 *
 * (1) What is in the table is durable. A word is made of the state as it is,
 *     and written when everything that was applied by then is on disk.
 * (2) Within one use of a slot states and epochs only rise, so that of two that
 *     waited the older one cannot undo the newer.
 * (3) Notices are of this start alone: they say "look", and looking is what
 *     waits.
 *
 * Only the broker writes it, with whole words; each by itself is of one moment.
 * There is a copy for each fabric that it listens on, as their atomic domains
 * differ (F6). */
#include "pool/broker/internal.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdatomic.h>
#include <string.h>

int broker_memory_create(struct reef_fabric *fabric, uint64_t size,
			 bool read_only, struct reef_memory **out)
{
	bool simulated = strcmp(reef_fabric_kind(fabric), "sim") == 0;
	struct reef_memory_options options = {
		.size = size,
		.backing =
			simulated ? REEF_BACKING_SIMULATED : REEF_BACKING_MEMFD,
		.domain = reef_fabric_domain(fabric),
		.read_only = read_only,
	};

	return reef_memory_create(&options, out);
}

/* Read a word of the table; all copies have the same. */
static uint64_t get_word(const struct reef_broker *broker, uint64_t offset)
{
	_Atomic uint64_t *word;
	uint32_t i = 0;

	while (i < REEF_MESH_MAX - 1 && !broker->tables[i])
		i++;
	word = (void *)((uint8_t *)broker->tables[i]->base + offset);
	return atomic_load_explicit(word, memory_order_relaxed);
}

/* Write a word into every copy. It releases what was written before to whoever
 * READs it; the fabric does the other half (F4). */
static void put_word(struct reef_broker *broker, uint64_t offset,
		     uint64_t value)
{
	_Atomic uint64_t *word;
	uint32_t i;

	for (i = 0; i < REEF_MESH_MAX; i++) {
		if (!broker->tables[i])
			continue;
		word = (void *)((uint8_t *)broker->tables[i]->base + offset);
		atomic_store_explicit(word, value, memory_order_release);
	}
}

/* --- states --- */

static uint64_t current_pool_epoch(const struct reef_broker *broker)
{
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	return summary.pool_epoch;
}

static uint64_t state_word(const struct reef_broker *broker,
			   const struct reef_state_session *session)
{
	return reef_table_state((uint16_t)session->id, session->state,
				(uint32_t)current_pool_epoch(broker));
}

/* True if rule (2) lets `word` replace `than`. */
static bool is_newer(uint64_t word, uint64_t than)
{
	if ((uint16_t)word != (uint16_t)than)
		return true;
	return (uint8_t)(word >> 16) > (uint8_t)(than >> 16) ||
	       word >> 32 > than >> 32;
}

static int wait_for_table(struct reef_broker *broker)
{
	if (REEF_MUTATED(BROKER_EARLY_PUBLISH))
		return 0;
	return broker_wait_durable(broker, broker->applied);
}

int broker_publish_session(struct reef_broker *broker, uint32_t id)
{
	uint64_t at = reef_table_offset(id), word;
	const struct reef_state_session *session =
		reef_state_session(broker->state, id);
	int rc;

	if (!session)
		return -ENOENT;
	word = state_word(broker, session);
	rc = wait_for_table(broker);
	if (rc)
		return rc;
	/* A session that has taken the slot meanwhile has the newer word. */
	if (reef_state_session(broker->state, id) &&
	    is_newer(word, get_word(broker, at)))
		put_word(broker, at, word);
	return 0;
}

int broker_publish_pool_epoch(struct reef_broker *broker)
{
	uint64_t at = offsetof(struct reef_table_header, pool_epoch);
	uint64_t epoch = current_pool_epoch(broker);
	int rc = wait_for_table(broker);

	if (rc == 0 && epoch > get_word(broker, at))
		put_word(broker, at, epoch);
	return rc;
}

uint64_t broker_published_pool_epoch(const struct reef_broker *broker)
{
	return get_word(broker, offsetof(struct reef_table_header, pool_epoch));
}

void broker_publish_broker_epoch(struct reef_broker *broker)
{
	put_word(broker, offsetof(struct reef_table_header, broker_epoch),
		 broker->sure ? broker->epoch : 0);
}

void broker_publish_beat(struct reef_broker *broker)
{
	uint64_t at = offsetof(struct reef_table_header, beat);

	put_word(broker, at, get_word(broker, at) + 1);
}

/* How much is there that will bring memory back. */
static uint64_t count_coming(const struct reef_broker *broker)
{
	const struct broker_session *session = broker->sessions;
	const struct broker_node *node = broker->nodes;
	const struct reef_state_session *known;
	uint64_t count = 0;

	for (; session; session = session->next) {
		known = session->ending
				? reef_state_session(broker->state, session->id)
				: NULL;
		count += known && known->state != REEF_SESSION_RECOVERED;
		/* What the dead had is not of use yet when they are RECOVERED:
		 * a janitor has it, and others wait for an epoch (R8). */
		count += !session->ending && session->janitor && session->gives;
	}
	for (; node; node = node->next)
		count += node->drops_count;
	return count;
}

void broker_publish_reclaim(struct reef_broker *broker)
{
	put_word(broker, offsetof(struct reef_table_header, shorts),
		 (uint64_t)broker->returns << 32 | broker->shorts);
	put_word(broker, offsetof(struct reef_table_header, coming),
		 count_coming(broker));
	put_word(broker, offsetof(struct reef_table_header, reclaim_epoch),
		 broker->reclaim_epoch);
	put_word(broker, offsetof(struct reef_table_header, safe_epoch),
		 broker->safe_epoch);
	put_word(broker, offsetof(struct reef_table_header, safe_view),
		 reef_table_safe_view(broker->safe_epoch, broker->safe_view));
	put_word(broker, offsetof(struct reef_table_header, hurry_ns),
		 broker->hurry_ns);
}

void broker_memory_came(struct reef_broker *broker)
{
	broker->returns++;
	broker_publish_reclaim(broker);
}

/* --- notices --- */

static void put_notice(struct reef_broker *broker, uint32_t session,
		       uint32_t count)
{
	put_word(broker,
		 reef_table_offset(session) +
			 offsetof(struct reef_table_slot, notice),
		 broker->epoch << 32 | count);
}

void broker_notice_session(struct reef_broker *broker,
			   struct broker_session *session)
{
	put_notice(broker, session->id, ++session->notices);
	/* A note may be lost: the next renewal finds the word. */
	if (session->peer)
		(void)reef_rpc_note(session->peer, REEF_POOL_NOTICE, NULL);
}

void broker_notice_space(struct reef_broker *broker, uint32_t space)
{
	struct broker_session *session = broker->sessions;
	bool gone = !reef_state_space(broker->state, space);
	uint32_t i;

	if (gone)
		broker_version_forget(broker, space);
	for (; session; session = session->next) {
		for (i = 0; i < session->grants_count; i++) {
			if (session->grants[i].space != space)
				continue;
			broker_notice_session(broker, session);
			if (gone)
				broker_ungrant(session, space);
			break;
		}
	}
}

/* --- making --- */

static void fill_table(struct reef_broker *broker)
{
	const struct reef_state_session *sessions;
	size_t i, count;

	sessions = reef_state_sessions(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (sessions[i].id == 0)
			continue;
		put_word(broker, reef_table_offset(sessions[i].id),
			 state_word(broker, &sessions[i]));
		put_notice(broker, sessions[i].id, 0);
	}
	broker_publish_broker_epoch(broker);
	put_word(broker, offsetof(struct reef_table_header, pool_epoch),
		 current_pool_epoch(broker));
	broker_publish_reclaim(broker);
	/* The magic comes last: whoever sees it sees all the others. */
	put_word(broker, offsetof(struct reef_table_header, magic),
		 REEF_TABLE_MAGIC);
}

int broker_table_open(struct reef_broker *broker)
{
	struct reef_mesh *mesh = broker->options.mesh;
	struct reef_fabric *fabric;
	bool made = false;
	uint32_t i;
	int rc = 0;

	for (i = 0; i < reef_mesh_count(mesh) && rc == 0; i++) {
		if (!reef_mesh_names(mesh, broker->options.listen, i))
			continue;
		fabric = reef_mesh_fabric(mesh, i);
		rc = broker_memory_create(fabric, REEF_TABLE_SIZE, true,
					  &broker->tables[i]);
		if (rc == 0)
			rc = reef_expose(fabric, broker->tables[i],
					 &broker->table_regions[i]);
		made = true;
	}
	if (rc == 0 && !made)
		rc = -EINVAL; /* nobody could come in */
	if (rc == 0)
		fill_table(broker);
	return rc;
}

void broker_memory_retire(struct reef_fabric *fabric,
			  struct reef_region *region,
			  struct reef_memory *memory)
{
	struct reef_queue *queue;
	int rc = -REEF_EHOSTDEAD;

	if (region && reef_queue_open(fabric, NULL, &queue) == 0) {
		/* All links have ended, so holders let go soon. */
		rc = reef_withdraw(queue, region, 1000000000);
		reef_queue_close(queue);
		if (rc && rc != -REEF_EHOSTDEAD)
			reef_log(REEF_LOG_WARNING, "broker",
				 "memory stays until the fabric is closed: %s",
				 reef_error_text(rc));
	}
	/* Nobody can reach the memory of a killed host. */
	if (rc == 0 || rc == -REEF_EHOSTDEAD || !region)
		reef_memory_destroy(memory);
}

void broker_table_close(struct reef_broker *broker)
{
	uint32_t i;

	for (i = 0; i < REEF_MESH_MAX; i++)
		if (broker->tables[i])
			broker_memory_retire(
				reef_mesh_fabric(broker->options.mesh, i),
				broker->table_regions[i], broker->tables[i]);
}
