/* barrier_change.c - members come, leave and are struck off.
 *
 * A change touches a place and C, and whoever makes it may die anywhere. So
 * there is one change at a time, which says in X what is to be done, and
 * whoever comes across it finishes it:
 *
 *   X (v, idle)                    place FREE, LEFT, DEAD
 *     |                              | take_place: CAS word; WRITE inbox, mark
 *     | barrier_change: CAS X        v
 *     v                            JOINING
 *   X (v + 1, place, kind, busy)
 *     | set_pending: CAS C (v, r) -> (v + 1, pending, r); from here on the
 *     v                       round cannot begin, so r is what goes by
 *   C pending
 *     | write_place: CAS joined or gone := C; CAS word: its new state
 *     v                            JOINING -> MEMBER -> LEFT -> DEAD
 *   C pending, place done                       |__________________^
 *     | finish: CAS C -> (v + 1, r); CAS X -> (v + 1, idle)
 *     v
 *   X (v + 1, idle)
 *
 * (1) All values are unlike any that stood there before (they have the version
 *     in them, the word its tenure), so a CAS of one who slept changes nothing.
 * (2) A place's state changes under X alone, but for taking one that is
 *     nobody's: FREE; LEFT by one who writes no more; DEAD, when everybody who
 *     has to know does (3); JOINING by one that died before it made X busy: its
 *     session was seen ENDED, and X idle after that.
 * (3) A DEAD place, struck off in round d, is kept until round d + 3 has begun.
 *     For then all have come to d + 2, so have passed d + 1, and did that by a
 *     view of after the death: round d + 1 began later, under a version that
 *     has it. Or until all who were members then are gone.
 * (4) X counts versions with 48 bits, C with the last 23 of them. */
#include "sync/barrier.h"

#include "base/log.h"
#include "base/mutant.h"

#include <errno.h>

/* Each one more takes another member that was quicker. */
#define ATTEMPTS_MAX 10000
#define PAUSE_NS UINT64_C(10000)
#define PAUSE_MAX_NS UINT64_C(2000000)

static uint64_t x_make(uint64_t version, enum barrier_change_kind kind,
		       uint32_t place)
{
	return version << 16 | (uint64_t)kind << 13 | (uint64_t)place << 1 | 1;
}

static uint64_t x_version(uint64_t x)
{
	return x >> 16;
}

static enum barrier_change_kind x_kind(uint64_t x)
{
	return (enum barrier_change_kind)(x >> 13 & 7);
}

static uint32_t x_place(uint64_t x)
{
	return (uint32_t)(x >> 1) & (BARRIER_MEMBERS_MAX - 1);
}

static uint64_t x_idle(uint64_t x)
{
	return x_version(x) << 16;
}

static bool is_of_version(uint64_t c, uint64_t version)
{
	return barrier_version_of(c) == (version & (BARRIER_VERSIONS - 1));
}

/* CAS a word, whatever it is. The caller reads it again, after a CAS in doubt
 * as after one that another forestalled: so only other errors count. */
static int try_cas(struct reef_barrier *barrier, uint64_t address,
		   uint64_t compare, uint64_t value)
{
	int rc = reef_cas(barrier->reef, address, compare, value, NULL);

	return rc == -REEF_EINDOUBT ? 0 : rc;
}

static int read_words(struct reef_barrier *barrier, uint64_t *words)
{
	int rc = reef_read(barrier->reef, barrier->object.body, words, 16);

	if (!rc && words[0] == BARRIER_DROPPED)
		return -ENOENT;
	return rc;
}

/* --- finishing --- */

/* Make C pending for the change that x tells of.  0: it is; *c is that.  1: the
 * change is finished already. */
static int set_pending(struct reef_barrier *barrier, uint64_t x, uint64_t *c)
{
	uint64_t version = x_version(x), words[2];
	uint32_t i;
	int rc;

	for (i = 0; i < ATTEMPTS_MAX; i++) {
		rc = read_words(barrier, words);
		if (rc)
			return rc;
		*c = words[0];
		if (is_of_version(*c, version))
			return *c & BARRIER_PENDING ? 0 : 1;
		if (!is_of_version(*c, version - 1) || *c & BARRIER_PENDING)
			return 1;
		rc = try_cas(barrier, barrier->object.body, *c,
			     (version & (BARRIER_VERSIONS - 1)) << 41 |
				     BARRIER_PENDING | barrier_round_of(*c));
		if (rc)
			return rc;
	}
	return -EBUSY;
}

static enum barrier_state next_state(enum barrier_state now,
				     enum barrier_change_kind kind)
{
	if (kind == BARRIER_JOIN && now == BARRIER_JOINING)
		return BARRIER_MEMBER;
	if (kind == BARRIER_LEAVE && now == BARRIER_MEMBER)
		return BARRIER_LEFT;
	if (kind == BARRIER_STRIKE &&
	    (now == BARRIER_MEMBER || now == BARRIER_LEFT))
		return BARRIER_DEAD;
	return now;
}

/* CAS stamp and word of the place that the change is about, whichever is still
 * to be written. */
static int write_place(struct reef_barrier *barrier, uint64_t x, uint64_t c)
{
	uint64_t address = barrier_place_address(barrier, x_place(x)), now;
	uint64_t offset = x_kind(x) == BARRIER_JOIN
				  ? offsetof(struct barrier_place, joined)
				  : offsetof(struct barrier_place, gone);
	struct barrier_place place;
	struct reef_access reads[] = {
		{.kind = REEF_READ,
		 .address = address,
		 .local = &place,
		 .length = sizeof(place)},
		/* If C is still pending after this READ, the place was not yet
		 * another's. */
		{.kind = REEF_READ,
		 .address = barrier->object.body,
		 .local = &now,
		 .length = sizeof(now)},
	};
	uint64_t stamp;
	enum barrier_state next;
	int rc = reef_execute(barrier->reef, reads, 2);

	if (rc || now != c)
		return rc;
	stamp = x_kind(x) == BARRIER_JOIN ? place.joined : place.gone;
	next = next_state(barrier_state_of(place.word), x_kind(x));
	/* The stamp goes first, so that one who dies in between leaves it to be
	 * seen that the word is still to come. */
	if (stamp != c)
		rc = try_cas(barrier, address + offset, stamp, c);
	if (!rc && next != barrier_state_of(place.word))
		rc = try_cas(barrier, address, place.word,
			     barrier_tenure_of(place.word) | next);
	return rc;
}

static bool is_written(const struct barrier_place *place, uint64_t x,
		       uint64_t c)
{
	uint64_t stamp =
		x_kind(x) == BARRIER_JOIN ? place->joined : place->gone;

	return stamp == c &&
	       next_state(barrier_state_of(place->word), x_kind(x)) ==
		       barrier_state_of(place->word);
}

/* Write the place until both words are seen to stand there: a CAS in doubt may
 * not have happened. */
static int settle_place(struct reef_barrier *barrier, uint64_t x, uint64_t c)
{
	uint64_t address = barrier_place_address(barrier, x_place(x)), words[2];
	struct barrier_place place;
	uint32_t i;
	int rc;

	for (i = 0; i < ATTEMPTS_MAX; i++) {
		rc = write_place(barrier, x, c);
		if (!rc)
			rc = reef_read(barrier->reef, address, &place,
				       sizeof(place));
		if (rc || is_written(&place, x, c))
			return rc;
		rc = read_words(barrier, words);
		/* If C has moved on, another has finished the change. */
		if (rc || words[0] != c)
			return rc;
	}
	return -EBUSY;
}

int barrier_finish_change(struct reef_barrier *barrier, uint64_t x)
{
	uint64_t c;
	int rc;

	if (x_place(x) >= barrier->places_max)
		return -REEF_ECORRUPT;
	if (REEF_MUTATED(BARRIER_NO_HELP) && x_place(x) != barrier->place)
		return reef_sleep(PAUSE_NS);
	rc = set_pending(barrier, x, &c);
	if (rc < 0)
		return rc;
	if (!rc) {
		rc = settle_place(barrier, x, c);
		if (!rc)
			rc = try_cas(barrier, barrier->object.body, c,
				     c & ~BARRIER_PENDING);
		if (rc)
			return rc;
		/* X stays busy until C is seen to have moved: that CAS may be
		 * in doubt. */
		rc = reef_read(barrier->reef, barrier->object.body, &c, 8);
		if (rc ||
		    (is_of_version(c, x_version(x)) && c & BARRIER_PENDING))
			return rc;
	}
	return try_cas(barrier, barrier->object.body + 8, x, x_idle(x));
}

/* --- beginning one --- */

static int pause_by_place(struct reef_barrier *barrier, uint32_t attempt)
{
	uint64_t most = PAUSE_NS << (attempt < 8 ? attempt : 8);

	if (most > PAUSE_MAX_NS)
		most = PAUSE_MAX_NS;
	/* The pause depends on the place, so that members that met once do not
	 * meet again. */
	return reef_sleep(PAUSE_NS + most * (barrier->place % 16) / 16);
}

static bool is_reached(enum barrier_state state, enum barrier_change_kind kind)
{
	switch (kind) {
	case BARRIER_JOIN:
		return state >= BARRIER_MEMBER;
	case BARRIER_LEAVE:
		return state >= BARRIER_LEFT;
	default:
		return state == BARRIER_DEAD;
	}
}

int barrier_change(struct reef_barrier *barrier, uint32_t place, uint64_t word,
		   enum barrier_change_kind kind)
{
	uint64_t words[2], now;
	uint32_t i;
	int rc;

	for (i = 0; i < ATTEMPTS_MAX; i++) {
		rc = read_words(barrier, words);
		if (!rc)
			rc = reef_read(barrier->reef,
				       barrier_place_address(barrier, place),
				       &now, 8);
		if (rc)
			return rc;
		if (barrier_tenure_of(now) != barrier_tenure_of(word))
			return -ESTALE;
		if (barrier_is_busy(words[1])) {
			rc = barrier_finish_change(barrier, words[1]);
			if (rc)
				return rc;
			continue;
		}
		if (is_reached(barrier_state_of(now), kind))
			return 0;
		rc = reef_cas(barrier->reef, barrier->object.body + 8, words[1],
			      x_make(x_version(words[1]) + 1, kind, place),
			      &now);
		if (rc && rc != -REEF_EINDOUBT)
			return rc;
		if (!rc && now != words[1]) {
			rc = pause_by_place(barrier, i);
			if (rc)
				return rc;
		}
	}
	return -EBUSY;
}

/* --- joining --- */

int barrier_is_ended(struct reef_barrier *barrier, uint32_t session)
{
	enum reef_session_view view;
	int rc = reef_session_check(barrier->reef, session, &view);

	/* While the broker is away nobody knows. */
	if (rc == -REEF_ENOLINK)
		return 0;
	if (rc)
		return rc;
	if (REEF_MUTATED(BARRIER_EXPIRED))
		return view != REEF_VIEW_ALIVE;
	return view == REEF_VIEW_ENDED;
}

/* True if everybody who has to know of a death does: (3). */
static bool is_known_dead(const struct reef_barrier *barrier,
			  const struct barrier_place *dead)
{
	uint32_t i;

	if (barrier_round_of(barrier->c) >= barrier_round_of(dead->gone) + 3)
		return true;
	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];

		if (barrier_state_of(place->word) == BARRIER_MEMBER &&
		    barrier_age(barrier, place->joined) >
			    barrier_age(barrier, dead->gone))
			return false;
	}
	return true;
}

/* True if a place may be taken: (2). */
static bool is_nobodys(const struct reef_barrier *barrier,
		       const struct barrier_place *place)
{
	switch (barrier_state_of(place->word)) {
	case BARRIER_FREE:
		return true;
	case BARRIER_LEFT:
		return place->mark & BARRIER_MARK_FINISHED &&
		       place->mark >> 2 >= barrier_round_of(place->gone);
	case BARRIER_DEAD:
		return is_known_dead(barrier, place);
	default:
		return false;
	}
}

/* Strike off a member that died, or find a place that a dead one left JOINING
 * (*abandoned).  1: look again.  0: nobody has died. */
static int make_room(struct reef_barrier *barrier, uint32_t *abandoned)
{
	uint32_t i;
	int rc;

	for (i = 0; i < barrier->places_max; i++) {
		const struct barrier_place *place = &barrier->places[i];
		enum barrier_state state = barrier_state_of(place->word);

		if (state == BARRIER_DEAD)
			continue;
		rc = barrier_is_ended(barrier,
				      sync_word_unpack(place->word).session);
		if (rc < 0)
			return rc;
		if (!rc)
			continue;
		if (state == BARRIER_JOINING) {
			*abandoned = i;
			return 1;
		}
		rc = barrier_change(barrier, i, barrier_tenure_of(place->word),
				    BARRIER_STRIKE);
		return rc && rc != -ESTALE ? rc : 1;
	}
	return 0;
}

/* Find a place that may be taken. Each client begins somewhere else, so that
 * those who come at the same time do not all want the same. abandoned: a place
 * whose session was seen to have ended while it was JOINING with the word
 * `left`.
 */
static int find_place(struct reef_barrier *barrier, uint32_t *index)
{
	uint32_t mixed = (reef_session(barrier->reef) ^
			  (uint32_t)barrier->member << 16) *
			 UINT32_C(0x9e3779b9);
	uint32_t i, n, abandoned = UINT32_MAX, attempt;
	uint64_t left = 0;
	int rc;

	for (attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
		rc = barrier_read_view(barrier);
		if (rc)
			return rc;
		for (n = 0; n < barrier->places_max; n++) {
			i = ((mixed >> 16) + n) % barrier->places_max;
			if (is_nobodys(barrier, &barrier->places[i]) ||
			    (i == abandoned &&
			     barrier->places[i].word == left)) {
				*index = i;
				return 0;
			}
		}
		abandoned = UINT32_MAX;
		rc = make_room(barrier, &abandoned);
		if (rc <= 0)
			return rc ? rc : -ENOSPC;
		if (abandoned != UINT32_MAX)
			left = barrier->places[abandoned].word;
	}
	return -EBUSY;
}

/* Take a place and write our inbox into it.  0: it is ours.  1: another was
 * quicker. */
static int take_place(struct reef_barrier *barrier, uint32_t index)
{
	const struct barrier_place *place = &barrier->places[index];
	uint64_t address = barrier_place_address(barrier, index);
	uint64_t before = 0, zero = 0;
	struct sync_word word = {
		.session = reef_session(barrier->reef),
		.member = barrier->member,
		.ticket = (uint16_t)(sync_word_unpack(place->word).ticket + 1),
		.flags = BARRIER_JOINING,
	};
	struct reef_access writes[] = {
		{.kind = REEF_WRITE,
		 .address = address + offsetof(struct barrier_place, inbox),
		 .local = &barrier->inbox,
		 .length = 8},
		{.kind = REEF_WRITE,
		 .address = address + offsetof(struct barrier_place, mark),
		 .local = &zero,
		 .length = 8},
		{.kind = REEF_WRITE,
		 .address = barrier_near_address(barrier, index),
		 .local = &zero,
		 .length = 8},
	};
	bool is_ours;
	int rc;

	rc = reef_cas(barrier->reef, address, place->word, sync_word_pack(word),
		      &before);
	is_ours = before == place->word;
	if (rc == -REEF_EINDOUBT) {
		rc = reef_read(barrier->reef, address, &before, 8);
		is_ours = before == sync_word_pack(word);
	}
	if (rc || !is_ours)
		return rc ? rc : 1;
	barrier->place = index;
	barrier->word = barrier_tenure_of(sync_word_pack(word));
	do
		rc = reef_execute(barrier->reef, writes, 3);
	while (rc == -REEF_EINDOUBT);
	return rc;
}

int barrier_join(struct reef_barrier *barrier)
{
	uint32_t index, attempt;
	int rc = 1;

	for (attempt = 0; attempt < ATTEMPTS_MAX && rc == 1; attempt++) {
		rc = find_place(barrier, &index);
		if (!rc)
			rc = take_place(barrier, index);
	}
	if (rc)
		return rc == 1 ? -EBUSY : rc;
	rc = barrier_change(barrier, barrier->place, barrier->word,
			    BARRIER_JOIN);
	if (rc)
		return rc;
	barrier->joined = true;
	return barrier_read_view(barrier);
}
