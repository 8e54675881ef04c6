/* commit.c - the one way that the state changes.
 *
 *   check -> append -> apply     at once, no fiber runs in between
 *                        |
 *                        v  journal
 *                     durable -> answer, publish, tell
 *
 * (1) Records are applied in the order of the journal, because nothing comes
 *     between append and apply.
 * (2) The state runs ahead of the disk. So does whoever reads it: `applied` is
 *     what must be durable before anything that was read is told.
 * (3) A journal that breaks ends the service: the state may hold what the next
 *     start will not find. */
#include "base/log.h"
#include "base/mutant.h"
#include "pool/broker/internal.h"

#include <errno.h>
#include <reef/error.h>

int broker_find_repeated(const struct reef_broker *broker,
			 const struct reef_request *request, uint16_t type,
			 uint64_t *result)
{
	const struct broker_session *session = broker_session_of(request);
	const struct reef_state_session *known;
	uint32_t number = request->header.sequence;

	if (REEF_MUTATED(BROKER_FORGET_REQUEST))
		return 0;
	if (!session)
		return -REEF_EFENCED;
	known = reef_state_session(broker->state, session->id);
	if (!known)
		return -REEF_EFENCED;
	if (number == 0)
		return -EINVAL;
	if (reef_request_is_later(number, known->request))
		return 0;
	if (number != known->request)
		return -ESTALE;
	if (known->request_type != type)
		return -EINVAL;
	*result = known->result;
	return 1;
}

static int set_origin(const struct reef_broker *broker,
		      struct reef_record *record,
		      const struct reef_request *request)
{
	const struct broker_session *session;

	record->origin = record->request = 0;
	if (!request || REEF_MUTATED(BROKER_FORGET_REQUEST))
		return 0;
	session = broker_session_of(request);
	if (!session)
		return -REEF_EFENCED;
	if (request->header.sequence == 0)
		return -EINVAL;
	record->origin = session->id;
	record->request = request->header.sequence;
	return 0;
}

/* Hand the journal a snapshot, once enough records have come since the last: so
 * a start need not read everything. */
static void take_snapshot(struct reef_broker *broker)
{
	struct reef_journal_status status;
	uint8_t *bytes;
	size_t size;

	reef_journal_status(broker->journal, &status);
	if (status.error || status.snapshot_busy ||
	    status.bytes <
		    broker->options.snapshot_bytes + broker->snapshot_size)
		return;
	if (reef_state_encode(broker->state, &bytes, &size))
		return; /* no memory: the next commit tries again */
	/* If it cannot be written, the journal goes on without it, or is
	 * broken, which the next append says. */
	if (reef_journal_snapshot(broker->journal, bytes, size) == 0)
		broker->snapshot_size = size;
	free(bytes);
}

static int append_record(struct reef_broker *broker,
			 const struct reef_record *record, uint64_t *sequence)
{
	uint8_t *bytes = malloc(reef_record_size_max(record));
	struct reef_journal_status status;
	size_t size;
	int rc;

	if (!bytes)
		return -ENOMEM;
	size = reef_record_encode(record, bytes);
	rc = reef_journal_append(broker->journal, record->type, bytes, size,
				 sequence);
	free(bytes);
	if (rc) {
		reef_journal_status(broker->journal, &status);
		if (status.error)
			broker_fail(broker, status.error);
	}
	return rc;
}

int broker_commit(struct reef_broker *broker, struct reef_record *record,
		  const struct reef_request *request, uint64_t *sequence)
{
	int rc = broker->health;

	if (rc == 0)
		rc = set_origin(broker, record, request);
	if (rc == 0)
		rc = reef_state_check(broker->state, record);
	if (rc == 0)
		rc = append_record(broker, record, &broker->applied);
	if (rc)
		return rc;
	broker_record_changes(broker, record);
	rc = reef_state_apply(broker->state, record);
	reef_assert(rc == 0);
	broker_council_update(broker);
	if (sequence)
		*sequence = broker->applied;
	take_snapshot(broker);
	return 0;
}

int broker_wait_journal(struct reef_broker *broker, uint64_t sequence)
{
	int rc = broker->health;

	if (rc == 0 && sequence)
		rc = reef_journal_wait(broker->journal, sequence);
	if (rc && rc != -REEF_EHOSTDEAD)
		broker_fail(broker, rc);
	if (rc == 0 && sequence > broker->durable)
		broker->durable = sequence;
	return rc;
}

int broker_wait_durable(struct reef_broker *broker, uint64_t sequence)
{
	const uint64_t begun_ns = reef_now_ns();
	int rc = broker_wait_journal(broker, sequence);
	uint64_t taken_ns;

	if (rc == 0)
		rc = broker_wait_confirmed(broker, sequence, REEF_FOREVER);
	taken_ns = reef_now_ns() - begun_ns;
	broker->counts[REEF_BROKER_COMMITS]++;
	broker->counts[REEF_BROKER_COMMIT_NS] += taken_ns;
	broker->counts[REEF_BROKER_SLOW] += taken_ns > REEF_COMMIT_SLOW_NS;
	return rc;
}

int broker_commit_wait(struct reef_broker *broker, struct reef_record *record,
		       const struct reef_request *request)
{
	uint64_t sequence;
	int rc = broker_commit(broker, record, request, &sequence);

	return rc ? rc : broker_wait_durable(broker, sequence);
}
