/* barrier_view.c - who takes part in a round, and what can be seen of them.
 *
 * (1) A view is all places at one version: C is read before and after them and
 *     must name the same version both times, not pending. Every change of a
 *     place's state goes through a version (barrier_change.c), so nothing of
 *     it changed in between. Marks change at any time, and only grow.
 * (2) The group of a round is computed from a view alone, and its tag is a hash
 *     of exactly who is in it: equal tags, equal groups.
 * (3) The group of a round that has begun only loses members, by death. */
#include "sync/barrier.h"

#include "base/checksum.h"
#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>
#include <string.h>

/* Each one more takes another member that changed something just then. */
#define LOOKS_MAX 10000
#define SUSPECTS_MAX 8u /* sessions looked up in one go */

static uint64_t first_of(const struct barrier_place *place)
{
	return barrier_round_of(place->joined) + 1;
}

static uint64_t last_of(const struct barrier_place *place)
{
	return barrier_round_of(place->gone);
}

/* True if the owner of a place takes, or took, part in that round and was not
 * struck off. */
static bool is_in(const struct barrier_place *place, uint64_t round)
{
	switch (barrier_state_of(place->word)) {
	case BARRIER_MEMBER:
		return first_of(place) <= round;
	case BARRIER_LEFT:
		return first_of(place) <= round && round <= last_of(place);
	default:
		return false;
	}
}

static bool has_come(const struct barrier_place *place, uint64_t round)
{
	return place->mark >> 2 >= round;
}

static bool has_passed(const struct barrier_place *place, uint64_t round)
{
	return place->mark >> 2 > round ||
	       (place->mark >> 2 == round && place->mark & BARRIER_MARK_PASSED);
}

/* --- looking --- */

/* READ C, X and all places.  0: they are of one version, and no change is under
 * way.  1: they are not. */
static int read_all(struct reef_barrier *barrier)
{
	uint64_t words[2], after;
	struct reef_access reads[] = {
		{.kind = REEF_READ,
		 .address = barrier->object.body,
		 .local = words,
		 .length = sizeof(words)},
		{.kind = REEF_READ,
		 .address = barrier_place_address(barrier, 0),
		 .local = barrier->places,
		 .length = barrier->places_max *
			   (uint32_t)sizeof(struct barrier_place)},
		{.kind = REEF_READ,
		 .address = barrier->object.body,
		 .local = &after,
		 .length = sizeof(after)},
	};
	int rc = reef_execute(barrier->reef, reads, 3);

	if (rc)
		return rc;
	if (words[0] == BARRIER_DROPPED || after == BARRIER_DROPPED)
		return -ENOENT;
	barrier->c = words[0];
	barrier->x = words[1];
	if (barrier_is_busy(words[1]) || words[0] & BARRIER_PENDING ||
	    after & BARRIER_PENDING)
		return 1;
	return barrier_version_of(words[0]) != barrier_version_of(after);
}

static bool is_ours(const struct reef_barrier *barrier)
{
	const struct barrier_place *place = &barrier->places[barrier->place];

	return barrier_tenure_of(place->word) == barrier->word &&
	       barrier_state_of(place->word) != BARRIER_DEAD;
}

int barrier_read_view(struct reef_barrier *barrier)
{
	uint32_t i;
	int rc = 1;

	barrier->group.from = barrier->group.until = 0;
	for (i = 0; i < LOOKS_MAX && rc == 1; i++) {
		rc = read_all(barrier);
		if (rc == -REEF_EINDOUBT)
			rc = 1;
		if (rc != 1)
			break;
		if (barrier_is_busy(barrier->x))
			rc = barrier_finish_change(barrier, barrier->x);
		if (rc < 0)
			break;
		rc = 1;
	}
	if (rc == 1)
		return -EBUSY;
	if (!rc && barrier->joined && !is_ours(barrier))
		return -REEF_EFENCED;
	return rc;
}

/* --- groups --- */

/* List the group of a round, hash it, and narrow down how long it is true;
 * returns our rank. */
static uint32_t list_group(struct reef_barrier *barrier, uint64_t round)
{
	struct barrier_group *group = &barrier->group;
	uint32_t i, rank = 0;

	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];
		enum barrier_state state = barrier_state_of(place->word);
		uint64_t named[3] = {i, barrier_tenure_of(place->word),
				     place->joined};

		if (state != BARRIER_MEMBER && state != BARRIER_LEFT)
			continue;
		if (first_of(place) > round && first_of(place) <= group->until)
			group->until = first_of(place) - 1;
		if (!is_in(place, round))
			continue;
		if (state == BARRIER_LEFT && last_of(place) < group->until)
			group->until = last_of(place);
		/* It may begin the next round, but not this one. */
		if (first_of(place) == round)
			group->until = round;
		if (i == barrier->place) {
			group->has_us = true;
			rank = group->count;
		}
		if (!group->is_old &&
		    (first_of(place) < round || !group->count ||
		     REEF_MUTATED(BARRIER_JOINER_BEGINS))) {
			group->beginner = i;
			group->is_old = first_of(place) < round;
			if (REEF_MUTATED(BARRIER_JOINER_BEGINS))
				group->is_old = true;
		}
		barrier->order[group->count++] = (uint16_t)i;
		group->tag = reef_hash(named, sizeof(named), group->tag);
	}
	return rank;
}

void barrier_group_make(struct reef_barrier *barrier, uint64_t round)
{
	struct barrier_group *group = &barrier->group;
	uint32_t rank, k, i;

	*group = (struct barrier_group){.from = round, .until = UINT64_MAX};
	rank = list_group(barrier, round);
	group->steps = barrier_steps_of(group->count);
	for (k = 0; k < group->steps; k++) {
		i = barrier->order[(rank + (1u << k)) % group->count];
		group->partners[k] = (struct barrier_partner){
			.inbox = barrier->places[i].inbox,
			.word = barrier_tenure_of(barrier->places[i].word),
			.place = i,
		};
		group->before[k] =
			barrier->order[(rank + group->count - (1u << k)) %
				       group->count];
	}
}

/* --- what a view says of our round --- */

bool barrier_is_complete(const struct reef_barrier *barrier)
{
	uint64_t round = barrier->passed + 1;
	bool all = barrier_round_of(barrier->c) >= round;
	uint32_t i;

	if (barrier_round_of(barrier->c) > round || barrier->ahead >= round)
		return true;
	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];

		if (i == barrier->place || !is_in(place, round))
			continue;
		if (has_passed(place, round))
			return true;
		all &= has_come(place, round);
	}
	return all;
}

/* How many have joined; those that died count. */
static uint32_t count_joined(const struct reef_barrier *barrier)
{
	uint32_t i, count = 0;

	for (i = 0; i < barrier->places_max; i++) {
		enum barrier_state state =
			barrier_state_of(barrier->places[i].word);

		count += state == BARRIER_MEMBER || state == BARRIER_DEAD;
	}
	return count;
}

bool barrier_may_begin(const struct reef_barrier *barrier)
{
	uint64_t before = barrier->passed;
	uint32_t i;

	if (!before && count_joined(barrier) < barrier->needed)
		return false;
	if (barrier->group.is_old)
		return true;
	/* All who were in the round before have left: each must have come to
	 * it. */
	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];

		if (is_in(place, before) && !has_come(place, before))
			return false;
	}
	return true;
}

bool barrier_is_kept_up(const struct reef_barrier *barrier)
{
	const struct barrier_group *group = &barrier->group;
	uint64_t round = barrier->passed + 1;

	return barrier_round_of(barrier->c) < round &&
	       group->beginner != barrier->place &&
	       has_come(&barrier->places[group->beginner], round) &&
	       (barrier->first < round || !group->is_old) &&
	       barrier_may_begin(barrier);
}

/* --- the dead --- */

static int strike_if_ended(struct reef_barrier *barrier, uint32_t index)
{
	const struct barrier_place *place = &barrier->places[index];
	int rc = barrier_is_ended(barrier,
				  sync_word_unpack(place->word).session);

	if (rc <= 0)
		return rc;
	rc = barrier_change(barrier, index, barrier_tenure_of(place->word),
			    BARRIER_STRIKE);
	return rc && rc != -ESTALE ? rc : 1;
}

/* True if our round waits for the owner of a place. */
static bool is_missing(const struct reef_barrier *barrier, uint32_t index)
{
	const struct barrier_place *place = &barrier->places[index];
	uint64_t round = barrier->passed + 1;

	if (is_in(place, round) &&
	    (!has_come(place, round) || (index == barrier->group.beginner &&
					 barrier_round_of(barrier->c) < round)))
		return true;
	/* If no member of the round before can begin ours, those who left it
	 * count, too. */
	return is_in(place, round - 1) && !has_come(place, round - 1);
}

int barrier_strike_dead(struct reef_barrier *barrier)
{
	uint32_t i, asked = 0;
	int rc = 0;

	reef_assert(barrier->places_max);
	for (i = 0; i < barrier->places_max && asked < SUSPECTS_MAX && !rc;
	     i++) {
		uint32_t index = (barrier->suspect + i) % barrier->places_max;

		if (index == barrier->place || !is_missing(barrier, index))
			continue;
		asked++;
		rc = strike_if_ended(barrier, index);
	}
	barrier->suspect = (barrier->suspect + i) % barrier->places_max;
	return rc;
}

uint64_t barrier_age(const struct reef_barrier *barrier, uint64_t c)
{
	return (barrier_version_of(barrier->c) - barrier_version_of(c)) &
	       (BARRIER_VERSIONS - 1);
}

bool barrier_next_dead(struct reef_barrier *barrier, uint32_t *session)
{
	uint64_t told = (barrier_version_of(barrier->c) - barrier->told) &
			(BARRIER_VERSIONS - 1);
	const struct barrier_place *oldest = NULL;
	uint32_t i;

	if (!told)
		return false;
	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];

		if (barrier_state_of(place->word) != BARRIER_DEAD ||
		    barrier_age(barrier, place->gone) >= told)
			continue;
		if (!oldest || barrier_age(barrier, place->gone) >
				       barrier_age(barrier, oldest->gone))
			oldest = place;
	}
	barrier->told = barrier_version_of(oldest ? oldest->gone : barrier->c);
	if (oldest)
		*session = sync_word_unpack(oldest->word).session;
	return oldest;
}
