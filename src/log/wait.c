/* wait.c - those who wait for an entry: (8) of layout.h.
 *
 *   look --nothing--> enlist --> look --nothing--> sleep --message--> look
 *
 * (1) Who waits for position p is in a place of p's segment, and of the next
 *     one, if that is there: should p's appender and all behind it in that
 *     segment be dead, the first in the next one tells. Where p's segment is
 *     not there yet, the place is in the last one, and who makes the next
 *     tells.
 * (2) Messages are hints. Who has no place, or is not told, looks for itself
 *     after a pause that grows from a 64th to a quarter of a session's TTL.
 * (3) A place is left by whoever took it, if that segment is still the log's;
 *     who finds that the inbox is gone clears it. */
#include "log/shard.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>

#define CLAIMS 4 /* places that are tried */
#define SEGMENTS 2

struct place {
	uint64_t index, at; /* of the segment; at 0: none */
	uint64_t word;	    /* as we set it */
	uint32_t number;
};

struct waiter {
	struct reef_log *log;
	uint64_t position;
	uint64_t index; /* of the word; SHARDED: of the next cut's */
	/* Where places are to be, as the last look found. */
	struct log_found wanted[SEGMENTS];
	struct place places[SEGMENTS];
};

/* --- waking --- */

static uint64_t place_at(uint64_t segment, uint32_t number)
{
	return segment + offsetof(struct log_segment, places) +
	       8 * (uint64_t)number;
}

void log_wake(struct reef_log *log, uint64_t segment, const uint64_t *places)
{
	const struct reef_wake wake = {.object = log->object.block};
	uint64_t inbox, any = 0;
	uint32_t i;
	int rc;

	/* Mostly nobody waits. */
	for (i = 0; i < LOG_PLACES; i++)
		any |= places[i];
	if (!(any & LOG_PLACE_TAKEN))
		return;
	for (i = 0; i < LOG_PLACES; i++) {
		inbox = places[i] & LOG_BLOCK_MASK;
		/* An inbox of our own may be that of another fiber. */
		if (!(places[i] & LOG_PLACE_TAKEN))
			continue;
		rc = reef_long_address(log->object.space, inbox, &inbox);
		if (!rc)
			rc = reef_inbox_send(log->object.space, inbox, &wake);
		/* (3), (R10) */
		if (rc == -ENOENT || rc == -EFAULT)
			(void)reef_cas(log->reef, place_at(segment, i),
				       places[i], log_place_after(places[i], 0),
				       NULL);
	}
}

void log_wake_all(struct reef_log *log, uint64_t segment)
{
	uint64_t places[LOG_PLACES];

	if (!reef_read(log->reef, place_at(segment, 0), places, sizeof(places)))
		log_wake(log, segment, places);
}

/* --- places --- */

static void note_message(struct reef_watch *watch, const struct reef_wake *wake)
{
	struct reef_log *log = watch->user;

	(void)wake;
	log->is_hinted = true;
}

static void watch_log(struct reef_log *log)
{
	uint64_t inbox;

	log->watch = (struct reef_watch){
		.object = log->object.block,
		.message = note_message,
		.user = log,
	};
	reef_inbox_watch(log->reef, &log->watch);
	/* Without an inbox (2) holds. */
	if (!log->inbox &&
	    (reef_inbox_open(log->object.space, &inbox) ||
	     reef_short_address(log->object.space, inbox, &log->inbox)))
		log->inbox = 0;
}

/* Take a place of a segment, inside. */
static void claim_place(struct reef_log *log, const struct log_found *segment,
			struct place *place)
{
	uint64_t places[LOG_PLACES], word, now;
	uint32_t i, tried = 0;

	if (!log->inbox || reef_read(log->reef, place_at(segment->at, 0),
				     places, sizeof(places)))
		return;
	for (i = 0; i < LOG_PLACES && tried < CLAIMS; i++) {
		if (places[i] & LOG_PLACE_TAKEN)
			continue;
		tried++;
		word = log_place_after(places[i], log->inbox);
		if (log_cas(log->reef, place_at(segment->at, i), places[i],
			    word, &now) ||
		    now != word)
			continue;
		*place = (struct place){
			.index = segment->index,
			.at = segment->at,
			.word = word,
			.number = i,
		};
		return;
	}
}

static void leave_place(struct reef_log *log, struct place *place)
{
	struct log_found found;

	/* (3): else the memory may be something else's by now. */
	if (place->at && !log_find(log, place->index, &found) &&
	    found.at == place->at)
		(void)log_cas(log->reef, place_at(place->at, place->number),
			      place->word, log_place_after(place->word, 0),
			      NULL);
	place->at = 0;
}

/* True if each wanted segment has a place, or needs none. */
static bool is_enlisted(const struct waiter *waiter)
{
	for (uint32_t i = 0; i < SEGMENTS; i++)
		if (waiter->wanted[i].at &&
		    (waiter->places[i].at != waiter->wanted[i].at ||
		     waiter->places[i].index != waiter->wanted[i].index))
			return false;
	return true;
}

/* Take the places that are wanted, and leave the others. */
static int enlist(struct waiter *waiter)
{
	struct reef_log *log = waiter->log;
	uint32_t i;
	int rc = log_enter(log, false);

	if (rc)
		return rc;
	for (i = 0; i < SEGMENTS; i++) {
		struct place *place = &waiter->places[i];
		struct log_found *wanted = &waiter->wanted[i];

		if (place->at == wanted->at && place->index == wanted->index)
			continue;
		leave_place(log, place);
		if (wanted->at)
			claim_place(log, wanted, place);
	}
	log_leave(log);
	return 0;
}

static void delist(struct waiter *waiter)
{
	for (uint32_t i = 0; i < SEGMENTS; i++)
		waiter->wanted[i].at = waiter->wanted[i].index = 0;
	if (waiter->places[0].at || waiter->places[1].at)
		(void)enlist(waiter);
}

/* --- looking --- */

/* The position's segment is not there: who waits is in the last one. */
static int want_last(struct waiter *waiter)
{
	struct reef_log *log = waiter->log;
	struct log_map map;
	int rc = log_map_read(log, &map);

	if (rc)
		return rc;
	free(map.slots);
	/* The first segment of an empty log is made by who waits, if it may: so
	 * that it can be told. */
	if (map.is_empty && log_refresh(log, true))
		return 0;
	rc = log_find(log, map.last, &waiter->wanted[0]);
	return rc == -REEF_ELOST || rc == -REEF_ECORRUPT || rc == -ESHUTDOWN ||
			       rc == -ERANGE || rc == -ENOENT
		       ? 0
		       : rc;
}

/* The segment is there. 1: a read has something to do. */
static int look_in(struct waiter *waiter, const struct log_found *segment)
{
	struct reef_log *log = waiter->log;
	uint64_t slot = waiter->index % log->options.segment, word;
	struct log_tail tail;
	int rc = reef_read(log->reef, segment->at + log_word_offset(slot),
			   &word, 8);

	if (rc)
		return rc;
	if (word)
		return 1;
	/* A segment of the next generation is not in use yet. */
	if (!log_is_single(log) && !log->sharded &&
	    segment->generation == log_generation(log)) {
		rc = log_tail_read(log, &tail);
		/* A new tail: there is a hole now. Who may only read, or has no
		 * room for one, goes by the word. */
		if (rc == -EAGAIN || rc == -ESHUTDOWN)
			return 1;
		if (rc && rc != -EACCES && !log_lacks_room(rc))
			return rc;
		if (!rc && log_draw_position(tail.draw) > waiter->position)
			return 1;
	}
	waiter->wanted[0] = *segment;
	rc = log_find(log, segment->index + 1, &waiter->wanted[1]);
	return rc == -ENOENT || rc == -ESHUTDOWN || rc == -REEF_ELOST ||
			       rc == -REEF_ECORRUPT
		       ? 0
		       : rc;
}

/* 1: a read from the position has something to do, or to tell. */
static int look(struct waiter *waiter)
{
	struct reef_log *log = waiter->log;
	struct log_found found;
	uint64_t index;
	int rc;

	for (uint32_t i = 0; i < SEGMENTS; i++)
		waiter->wanted[i].at = waiter->wanted[i].index = 0;
	log_forget(log);
	rc = log_enter(log, false);
	if (rc)
		return rc;
	waiter->index = waiter->position;
	if (log->sharded && waiter->position >= log->first)
		rc = sharded_look(log, waiter->position, &waiter->index);
	if (rc) {
		log_leave(log);
		return rc;
	}
	index = waiter->index / log->options.segment;
	rc = !log->sharded && log_is_far(log, index)
		     ? -ENOENT
		     : log_find(log, index, &found);
	/* SHARDED: where the next cut's word cannot be found there is no place;
	 * a read has nothing to do, or sharded_look had said so. */
	if (waiter->position < log->first || rc == -ERANGE ||
	    rc == -REEF_ELOST || rc == -REEF_ECORRUPT)
		rc = waiter->position < log->first || !log->sharded;
	else if (!rc)
		rc = look_in(waiter, &found);
	else if (rc == -ENOENT && log_tail_state(log->tail_word) == LOG_SEALED)
		rc = -ESHUTDOWN;
	else if (rc == -ENOENT)
		rc = want_last(waiter);
	log_leave(log);
	return rc;
}

/* --- waiting --- */

static bool is_ready(const void *what)
{
	return ((const struct reef_log *)what)->is_hinted;
}

/* Sleep until a message, the deadline, or it is time to look. */
static int sleep_once(struct reef_log *log, uint64_t deadline_ns,
		      uint64_t *pause_ns)
{
	uint64_t now_ns = reef_now_ns(), until_ns = now_ns + *pause_ns;
	int rc;

	if (now_ns >= deadline_ns)
		return -ETIMEDOUT;
	if (until_ns > deadline_ns)
		until_ns = deadline_ns;
	if (*pause_ns < reef_session_ttl(log->reef) / 4)
		*pause_ns *= 2;
	rc = reef_inbox_wait(log->reef, is_ready, log, until_ns - now_ns);
	return rc == -ETIMEDOUT ? 0 : rc;
}

static int wait_on(struct waiter *waiter, uint64_t deadline_ns)
{
	struct reef_log *log = waiter->log;
	uint64_t pause_ns = reef_session_ttl(log->reef) / 64 + 1;
	bool has_tried = false;
	int rc;

	for (;;) {
		log->is_hinted = false;
		rc = look(waiter);
		if (rc)
			return rc;
		if (!has_tried && !is_enlisted(waiter)) {
			/* Then look again: (8). A place that could not be had
			 * is not waited for. */
			has_tried = true;
			rc = enlist(waiter);
		} else {
			has_tried = false;
			rc = sleep_once(log, deadline_ns, &pause_ns);
		}
		if (rc)
			return rc;
	}
}

int reef_log_wait(struct reef_log *log, uint64_t position, uint64_t timeout_ns)
{
	struct waiter waiter = {.log = log, .position = position};
	uint64_t now_ns = reef_now_ns();
	int rc = look(&waiter);

	if (!rc && !timeout_ns)
		rc = -ETIMEDOUT;
	if (!rc) {
		watch_log(log);
		rc = wait_on(&waiter, timeout_ns < UINT64_MAX - now_ns
					      ? now_ns + timeout_ns
					      : UINT64_MAX);
		delist(&waiter);
		reef_inbox_unwatch(log->reef, &log->watch);
	}
	return rc == 1 ? 0 : log_told(rc);
}
