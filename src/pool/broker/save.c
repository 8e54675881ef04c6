/* save.c - an image of one moment of a space, while it is used.
 *
 * The session that saves copies the memory itself, one-sidedly: neither broker
 * nor nodes touch files, and whatever fabric it came by carries the bytes.
 *
 * (1) From CLOSED to END every extent of the space is withdrawn from everybody,
 *     and opened to the session that saves alone, to read: it is told the keys
 *     by which nodes read what is closed (node/extent.c). So all that it reads
 *     is of one moment.
 * (2) END says whether that was so all the time. Whatever opened an extent in
 *     between (a death, a drop, another start of the broker, a session that was
 *     silent) has taken the mark off it that this save put there, or the save
 *     itself is not known any more: -ESTALE, and what was copied is no image.
 * (3) Names and the list of extents stay what they are meanwhile. Who would
 *     change them is told that it is in doubt, and asks again (is_saving).
 * (4) A save holds everybody up, so it ends by itself: when its session ends,
 *     or has not asked for half a lease; if the extents are not all closed
 *     after a lease: a holder that stands still is not waited for any longer;
 *     and if they are closed for a lease and as long as a copy by SAVE_BYTES a
 *     second takes, whatever its session says. So no drain waits for a tenant
 *     without a bound.
 * (5) At most one save of a space, and one of a session, is under way. The
 *     session that saves is not asked to recover anything there.
 *
 *   (none) --BEGIN: a fiber--> CLOSING --close_extents--> CLOSED
 *     CLOSING, CLOSED --END, (4), (2)--> opening: open_extents --> (none) */
#include "pool/broker/lending.h"

#include "base/mutant.h"

#include <errno.h>
#include <reef/error.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS_MIN UINT64_C(2000000000)
#define SECOND_NS UINT64_C(1000000000)
#define SAVE_BYTES UINT64_C(10000000) /* a second; who is slower is stuck */

struct broker_save {
	uint32_t space, session;
	uint64_t number;
	uint64_t mark; /* broker_extent.rekeying of what it has closed */
	enum reef_save_state state;
	bool ended;	    /* by END, or because of an error */
	int error;	    /* why; 0: END */
	uint64_t looked_ns; /* when its session asked last */
	uint64_t bytes;	    /* of the extents */
	uint64_t until_ns;  /* CLOSED: then it ends */
	uint32_t *extents, count;
	struct broker_save *next;
};

static struct broker_save *find_save(const struct reef_broker *broker,
				     uint32_t space)
{
	struct broker_save *save = broker->saves;

	while (save && save->space != space)
		save = save->next;
	return save;
}

bool broker_space_is_saving(const struct reef_broker *broker, uint32_t space)
{
	return find_save(broker, space) != NULL;
}

bool broker_session_is_saving(const struct reef_broker *broker, uint32_t id)
{
	const struct broker_save *save = broker->saves;

	while (save && save->session != id)
		save = save->next;
	return save != NULL;
}

static void destroy_save(struct reef_broker *broker, struct broker_save *save)
{
	struct broker_save **at = &broker->saves;

	while (*at != save)
		at = &(*at)->next;
	*at = save->next;
	free(save->extents);
	free(save);
}

static uint64_t lease_ns(const struct reef_broker *broker)
{
	uint64_t ns =
		reef_state_setting(broker->state, REEF_SETTING_LEASE_TTL_NS);

	return ns > LOOK_NS_MIN ? ns : LOOK_NS_MIN;
}

/* The mark that a save puts on what it has closed (2). */
static bool is_marked(struct reef_broker *broker,
		      const struct broker_save *save, uint32_t number)
{
	const struct broker_extent *told = broker_extent_find(broker, number);

	return REEF_MUTATED(BROKER_MIXED_IMAGE) ||
	       (told && told->closed && told->saver == save->session &&
		told->save == save->number);
}

/* 0, or why the save cannot go on. */
static int check_save(struct reef_broker *broker,
		      const struct broker_save *save)
{
	const struct broker_session *session =
		broker_session_find(broker, save->session);

	if (save->ended)
		return save->error ? save->error : -ECANCELED;
	if (broker->health || broker->stopping)
		return -ECANCELED;
	if (!reef_state_space(broker->state, save->space))
		return -ENOENT;
	if (!session || session->ending ||
	    reef_now_ns() - save->looked_ns > lease_ns(broker) / 2 ||
	    (save->state == REEF_SAVE_CLOSED &&
	     reef_now_ns() >= save->until_ns))
		return -ETIMEDOUT;
	return 0;
}

/* --- closing --- */

/* True if the extent can be closed now: nobody else has it in hand. */
static bool is_free_to_close(struct reef_broker *broker,
			     const struct reef_state_extent *extent)
{
	const struct broker_extent *told =
		broker_extent_find(broker, extent->number);

	return extent->state == REEF_EXTENT_LIVE && told && told->present &&
	       !told->closed && !told->rekeying && !told->revoking &&
	       !broker_extent_is_moving(broker, extent->number) &&
	       broker_node_is_ready(broker_node_find(broker, extent->node));
}

/* Note that an extent is closed, and by which keys the save may read it. */
static int note_closed(struct reef_broker *broker,
		       const struct broker_save *save, uint32_t number,
		       const struct reef_extent_keys *keys)
{
	struct broker_extent *told = broker_extent_find(broker, number);

	if (!told || !told->closed || told->rekeying != save->mark)
		return -ESTALE;
	told->saver = save->session;
	told->save = save->number;
	memcpy(told->save_keys, keys->keys, sizeof(told->save_keys));
	broker_extent_changed(broker, save->space, number);
	return 0;
}

static int close_extent(struct reef_broker *broker, struct broker_save *save,
			const struct reef_state_extent *extent,
			uint64_t until_ns)
{
	struct reef_body body = {.ask.extent_close.extent = extent->label};
	uint32_t number = extent->number, node = extent->node;
	struct reef_answer answer = {0};
	struct broker_extent *told = broker_extent_find(broker, number);
	uint64_t pause_ns = 0;
	int rc, slept = 0;

	/* Others who close and open extents leave this one alone. */
	told->rekeying = save->mark;
	broker_extent_set_closed(broker, number);
	for (;;) { /* -ETIMEDOUT: a holder does not let go yet */
		rc = broker_node_call(broker, node, REEF_POOL_EXTENT_CLOSE,
				      &body, &answer);
		if (rc != -ETIMEDOUT || slept || reef_now_ns() >= until_ns ||
		    check_save(broker, save))
			break;
		slept = broker_sleep_longer(broker, &pause_ns);
	}
	if (rc == 0) {
		rc = note_closed(broker, save, number,
				 &answer.body.reply.extent);
		reef_answer_free(&answer);
	}
	return rc;
}

/* Close one extent, once it can be. */
static int close_when_free(struct reef_broker *broker, struct broker_save *save,
			   uint32_t number, uint64_t until_ns)
{
	const struct reef_state_extent *extent;
	uint64_t pause_ns = 0;
	int rc = 0;

	while (rc == 0) {
		rc = check_save(broker, save);
		extent = reef_state_extent(broker->state, number);
		if (rc)
			return rc;
		if (!extent || reef_extent_is_lost(extent->state))
			return -REEF_ELOST;
		if (is_free_to_close(broker, extent) &&
		    REEF_MUTATED(BROKER_MIXED_IMAGE))
			return 0;
		if (is_free_to_close(broker, extent))
			return close_extent(broker, save, extent, until_ns);
		if (reef_now_ns() >= until_ns)
			return -EBUSY;
		rc = broker_sleep_longer(broker, &pause_ns);
	}
	return rc;
}

static int close_extents(struct reef_broker *broker, struct broker_save *save)
{
	uint64_t until_ns = reef_now_ns() + lease_ns(broker);
	uint32_t i;
	int rc = 0;

	for (i = 0; rc == 0 && i < save->count; i++)
		rc = close_when_free(broker, save, save->extents[i], until_ns);
	if (rc == 0 && reef_now_ns() >= until_ns)
		rc = -EBUSY;
	return rc;
}

/* --- opening --- */

static void open_extents(struct reef_broker *broker, struct broker_save *save)
{
	const struct reef_state_extent *extent;
	struct broker_extent *told;
	uint32_t i;

	for (i = 0; i < save->count; i++) {
		extent = reef_state_extent(broker->state, save->extents[i]);
		told = broker_extent_find(broker, save->extents[i]);
		if (!told || told->rekeying != save->mark)
			continue; /* somebody else's */
		told->saver = 0;
		told->save = 0;
		if (told->closed && extent && extent->state == REEF_EXTENT_LIVE)
			broker_extent_reopen_once(broker, save->extents[i]);
		told = broker_extent_find(broker, save->extents[i]);
		if (told && told->rekeying == save->mark)
			told->rekeying = 0;
	}
	/* What a node could not open at once is opened by move.c. */
	broker_moves_resume(broker);
}

/* --- the fiber of a save --- */

static void run_save(struct reef_broker *broker, uint32_t space)
{
	struct broker_save *save = find_save(broker, space);
	int rc = close_extents(broker, save);

	if (rc == 0) {
		save->state = REEF_SAVE_CLOSED;
		save->until_ns = reef_now_ns() + lease_ns(broker) +
				 save->bytes / SAVE_BYTES * SECOND_NS;
		broker_notice_space(broker, space);
	}
	while (rc == 0) {
		rc = check_save(broker, save);
		if (rc == 0)
			rc = broker_sleep(broker, lease_ns(broker) / 8);
	}
	if (!save->ended) {
		save->ended = true;
		save->error = rc;
		broker_event(broker, "saving space %u failed: %s", space,
			     reef_error_text(rc));
	}
	open_extents(broker, save);
	destroy_save(broker, save);
	broker_wake(broker);
}

/* Copy the numbers of a space's extents.  -REEF_ELOST: one is. */
static int list_extents(struct reef_broker *broker, struct broker_save *save)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, save->space);
	const struct reef_state_extent *extent;
	uint32_t i;

	save->extents = malloc((space->ordinals + 1) * sizeof(uint32_t));
	if (!save->extents)
		return -ENOMEM;
	for (i = 0; i < space->ordinals; i++) {
		if (!space->by_ordinal[i])
			continue;
		extent = reef_state_extent(broker->state, space->by_ordinal[i]);
		if (reef_extent_is_lost(extent->state))
			return -REEF_ELOST;
		save->extents[save->count++] = extent->number;
		save->bytes += extent->size;
	}
	return 0;
}

static int begin_save(struct reef_broker *broker, uint32_t space,
		      uint32_t session, struct broker_save **out)
{
	struct broker_save *save = calloc(1, sizeof(*save));
	int rc;

	if (!save)
		return -ENOMEM;
	save->space = space;
	save->session = session;
	save->number = reef_random_next(&broker->random) | 1;
	save->mark = broker_close_number(broker);
	save->state = REEF_SAVE_CLOSING;
	save->looked_ns = reef_now_ns();
	save->next = broker->saves;
	broker->saves = save;
	rc = list_extents(broker, save);
	if (rc == 0)
		rc = broker_spawn(broker, run_save, space);
	if (rc) {
		destroy_save(broker, save);
		return rc;
	}
	*out = save;
	return 0;
}

/* (2) */
static int end_save(struct reef_broker *broker, struct broker_save *save)
{
	uint32_t i;

	if (save->ended)
		return save->error ? -ESTALE : 0;
	if (save->state != REEF_SAVE_CLOSED)
		save->error = -ECANCELED; /* it changed its mind */
	for (i = 0; !save->error && i < save->count; i++)
		if (!is_marked(broker, save, save->extents[i]))
			save->error = -ESTALE;
	/* Whether it is an image or not, nobody waits any longer. */
	save->ended = true;
	broker_wake(broker);
	return save->error ? -ESTALE : 0;
}

/* --- requests --- */

#define ROW_ROOM 96

/* Rows of the sessions that used the space and are not recovered there. */
static void encode_sessions(struct reef_broker *broker,
			    const struct reef_request *request,
			    const struct broker_save *save,
			    struct reef_reply_space_save *reply,
			    struct reef_cursor_out *room)
{
	uint32_t after = request->body.ask.space_save.after;
	size_t max = broker_rows_max(broker, request), count, i;
	const struct reef_state_use *uses;
	struct reef_row row = {.row = REEF_ROW_SESSION};

	uses = reef_state_uses(broker->state, &count);
	for (i = 0; i < count; i++) {
		if (uses[i].space != save->space || uses[i].session <= after ||
		    uses[i].session == save->session)
			continue;
		if (room->size + ROW_ROOM > max) {
			reply->flags = REEF_POOL_MORE;
			return;
		}
		row.session.id = uses[i].session;
		reef_row_encode(&row, room);
	}
}

static void fill_reply(struct reef_broker *broker,
		       const struct broker_save *save,
		       struct reef_reply_space_save *reply)
{
	const struct reef_state_space *space =
		reef_state_space(broker->state, save->space);
	struct reef_state_summary summary;

	reef_state_summary(broker->state, &summary);
	reply->number = save->number;
	reply->state = (uint8_t)(save->ended ? REEF_SAVE_OPENING : save->state);
	reply->pool = summary.pool;
	reply->broker_epoch = broker->epoch;
	reply->kind = space->kind;
	reply->keeping = space->keeping;
	reply->quota = space->quota == UINT64_MAX ? 0 : space->quota;
}

/* The save that a request is about, which may be begun by it. */
static int find_or_begin(struct reef_broker *broker,
			 const struct reef_request *request,
			 struct broker_save **out)
{
	uint32_t space = request->body.ask.space_save.space;
	uint64_t number = request->body.ask.space_save.number;
	uint32_t session = broker_session_of(request)->id;
	struct broker_save *save = find_save(broker, space);

	if (request->body.ask.space_save.step != REEF_SAVE_BEGIN) {
		if (!save || save->number != number || save->session != session)
			return -ESTALE;
		*out = save;
		return 0;
	}
	if (save && save->session == session && !save->ended) {
		*out = save; /* a repetition */
		return 0;
	}
	if (save || broker_session_is_saving(broker, session))
		return -EBUSY;
	return begin_save(broker, space, session, out);
}

/* True if what was said last of a space's saves begins like that. */
static bool was_said_last(const struct reef_broker *broker, const char *saved,
			  const char *failed, const char *now)
{
	uint64_t count = broker->events_count, i;
	const char *text;

	for (i = 0; i < count && i < BROKER_EVENTS; i++) {
		text = broker->events[(count - 1 - i) % BROKER_EVENTS].text;
		if (!strncmp(text, saved, strlen(saved)) ||
		    !strncmp(text, failed, strlen(failed)))
			return !strncmp(text, now, strlen(now));
	}
	return false;
}

/* Say what came of a save: what the session did with the copy we cannot see. Of
 * a space that is saved again and again only what changes is said. */
static void tell_outcome(struct reef_broker *broker, uint32_t space, int rc)
{
	const struct reef_state_space *row =
		reef_state_space(broker->state, space);
	char saved[64], failed[64];

	snprintf(saved, sizeof(saved), "space %u (%.40s) was saved", space,
		 row ? row->name : "");
	snprintf(failed, sizeof(failed), "saving space %u failed", space);
	if (was_said_last(broker, saved, failed, rc ? failed : saved))
		return;
	if (rc)
		broker_event(broker, "%s: %s", failed, reef_error_text(rc));
	else
		broker_event(broker, "%s", saved);
}

BROKER_REQUEST(broker_space_save)
{
	uint32_t space = request->body.ask.space_save.space;
	uint8_t step = request->body.ask.space_save.step;
	struct broker_session *session = broker_session_of(request);
	struct broker_save *save;
	int rc = broker_check_rights(broker, request, space,
				     REEF_RIGHT_MANAGE | REEF_RIGHT_READ);

	if (rc)
		return rc;
	if (step < REEF_SAVE_BEGIN || step > REEF_SAVE_TELL)
		return -EINVAL;
	if (step == REEF_SAVE_TELL) {
		tell_outcome(
			broker, space,
			-(int)(request->body.ask.space_save.after & INT32_MAX));
		return 0;
	}
	/* The answer to its END was lost, and it is over. */
	if (step == REEF_SAVE_END && session->saved &&
	    session->saved == request->body.ask.space_save.number)
		return 0;
	rc = find_or_begin(broker, request, &save);
	if (rc)
		return rc;
	save->looked_ns = reef_now_ns();
	if (step == REEF_SAVE_END) {
		rc = end_save(broker, save);
		if (rc == 0)
			session->saved = save->number;
		return rc;
	}
	if (save->ended && save->error)
		return save->error == -ECANCELED ? -ESTALE : save->error;
	if (!reef_state_space(broker->state, space))
		return -ENOENT;
	fill_reply(broker, save, &answer->reply.space_save);
	if (step == REEF_SAVE_SESSIONS) {
		encode_sessions(broker, request, save,
				&answer->reply.space_save, room);
		broker_rows_finish(answer, room);
	}
	return 0;
}
