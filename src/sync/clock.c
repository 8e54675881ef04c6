/* clock.c - times that never go back, and follow the broker's clock.
 *
 * Two things make a clock: the *word* (counter.h), what it stands at, in the
 * memory of a node; and the *ceiling*, which the broker journals as the value
 * of a second name, NAME~ceiling. Not a record of its own kind, because a name
 * has all that is needed: durable before it is answered, and replaced only if
 * unchanged.
 *
 *    ceiling's value:   era 31 | ceiling 33, in units of 2^30 ns
 *
 * A call adds count + 1 to the word and gives out what lies between, so what it
 * stands at, which a read tells, is nobody's time.
 *
 * (1) The word only grows. It is 0 until it was started.
 * (2) Whatever a call gives out or tells is at most a ceiling that was
 *     journaled before: whoever draws over the one it knows raises it first.
 * (3) The era is the generation of the binding of the object. A ceiling counts
 *     only for the object of its era; eras only go up, because generations do.
 * (4) A word is started at the ceiling that was there, after its era was put
 *     into the ceiling. From then on nobody can raise it for an older object:
 *     what is drawn there is over the new start and not given out, or below it.
 * (5) An object counts for a client for VALID_NS after it last asked for the
 *     ceiling and found the object's era, counted from before it asked; what it
 *     has drawn by then it may give out, else it asks again first. Whoever puts
 *     another era in the place of one waits for longer than that, and starts
 *     the word then. So nobody still draws below it, from a node that the
 *     broker holds for dead and that this client still reaches, or after it
 *     stood still in the middle of a call.
 *
 *        object_open()         start_word()
 *    (no object) --> NOT STARTED ---------------> RUNS <--+ draw_times(),
 *                      word 0    era and ceiling   |  |   | raise_ceiling()
 *                        ^       journaled, then   |  +---+
 *                        |       CAS of the word   |
 *                        +-------------------------+
 *                 its node died: replace_object(), by whoever finds out
 *
 * What time it is, is asked of the broker with every look at the ceiling, and
 * carried on by the machine's own monotonic clock until the next one: what
 * people set on a client's machine plays no part. The word is moved up to that
 * time by CAS when it lags, but not into the last unit below the ceiling: with
 * the broker away, the clock stands nearly still there, and has a billion times
 * left to give. */

#include "base/mutant.h"
#include "sync/counter.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT 1
#define SUFFIX "~ceiling"

#define UNIT_BITS 30
#define UNIT (UINT64_C(1) << UNIT_BITS)
#define CEILING_BITS 33
#define ERA_BITS 31
#define LEAD_NS (10 * UNIT)	 /* a new ceiling over the time */
#define LEFT_NS (LEAD_NS / 2)	 /* when less is left, it is raised again */
#define VALID_NS OBJECT_VALID_NS /* (5); looked at when half of it is over */
#define LAG_NS UINT64_C(1000000) /* before the word is moved up to the time */

/* Each further attempt needs another client that changed the ceiling, or the
 * object, between two calls of ours. */
#define ATTEMPTS 64
#define MOVES_MAX 4 /* of the word by CAS, in one call */

struct reef_clock {
	struct object object;
	char *name, *ceiling_name;
	uint64_t ceiling_ns; /* known to be journaled for this object */
	uint64_t seen_ns;    /* the word, as last seen */
	uint64_t time_ns;    /* the broker's, as it said last */
	uint64_t asked_ns;   /* when that was, by our own clock */
	uint64_t found_ns;   /* (5), by our own clock */
};

static const struct object_shape shape = {
	.kind = OBJECT_CLOCK,
	.format = FORMAT,
	.body_size = 8, /* not started */
};

static uint64_t max_of(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* --- the ceiling --- */

struct ceiling {
	uint32_t era;
	uint64_t at_ns;
	uint64_t generation; /* of its name */
};

static uint32_t era_of(const struct object *object)
{
	return (uint32_t)object->generation & ((1u << ERA_BITS) - 1);
}

/* Below 0: era a is older than b. They are far less than half of all eras
 * apart.
 */
static int32_t era_compare(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << (32 - ERA_BITS));
}

static uint64_t ceiling_pack(uint32_t era, uint64_t at_ns)
{
	return (uint64_t)era << CEILING_BITS | at_ns >> UNIT_BITS;
}

static uint64_t round_up(uint64_t at_ns)
{
	return (at_ns + UNIT - 1) & ~(UNIT - 1);
}

static int read_ceiling(struct reef_space *space, const char *name,
			struct ceiling *out)
{
	uint64_t value;
	int rc = reef_name_lookup(space, name, &value, &out->generation);

	if (rc)
		return rc;
	out->era = (uint32_t)(value >> CEILING_BITS);
	out->at_ns = (value & ((UINT64_C(1) << CEILING_BITS) - 1)) << UNIT_BITS;
	return 0;
}

static int ask_time(struct reef_clock *clock)
{
	uint64_t time_ns;
	int rc = reef_pool_time(clock->object.reef, &time_ns);

	/* The answer was on its way since the broker read its clock, so the
	 * true time is this or later. */
	if (!rc) {
		clock->time_ns = time_ns;
		clock->asked_ns = reef_now_ns();
	}
	return rc;
}

static uint64_t time_of(const struct reef_clock *clock)
{
	return clock->time_ns + (reef_now_ns() - clock->asked_ns);
}

/* Read the ceiling, and raise it unless it is at least need_ns and has
 * something left of the lead.  -ESTALE: the name has another object by now.
 * -ENOENT: it was dropped. */
static int raise_ceiling(struct reef_clock *clock, uint64_t need_ns)
{
	uint32_t era = era_of(&clock->object);
	struct ceiling ceiling;
	uint64_t high_ns, found_ns;
	int rc, i;

	rc = ask_time(clock);
	for (i = 0; !rc && i < ATTEMPTS; i++) {
		found_ns = reef_now_ns();
		rc = read_ceiling(clock->object.space, clock->ceiling_name,
				  &ceiling);
		if (rc)
			break;
		if (REEF_MUTATED(CLOCK_NO_ERA))
			era = ceiling.era;
		if (era_compare(ceiling.era, era) > 0)
			return -ESTALE;
		/* The word was started, so its ceiling had our era: this number
		 * is no ceiling. */
		if (era_compare(ceiling.era, era) < 0)
			return -EEXIST;
		high_ns = ceiling.at_ns;
		if (high_ns < max_of(need_ns, time_of(clock) + LEFT_NS)) {
			high_ns = round_up(max_of(need_ns, time_of(clock))) +
				  LEAD_NS;
			rc = reef_name_replace(
				clock->object.space, clock->ceiling_name,
				ceiling.generation, ceiling_pack(era, high_ns),
				NULL);
		}
		if (!rc) {
			clock->ceiling_ns = high_ns;
			clock->found_ns = found_ns;
			return 0;
		}
		/* The ceiling was changed by another, or, in doubt, by us: read
		 * it again. */
		if (rc == -ESTALE || rc == -ENOENT || rc == -REEF_EINDOUBT)
			rc = 0;
	}
	return rc ? rc : -EBUSY;
}

/* --- starting --- */

/* Put our era into the ceiling; *start_ns is what the word has to start at, and
 * *first says that there was no other before it. -EAGAIN: another changed it.
 */
static int put_era(struct reef_clock *clock, uint64_t *start_ns, bool *first)
{
	struct reef_space *space = clock->object.space;
	uint32_t era = era_of(&clock->object);
	struct ceiling ceiling = {0};
	uint64_t low_ns, value;
	int rc, found;

	found = read_ceiling(space, clock->ceiling_name, &ceiling);
	if (found && found != -ENOENT)
		return found;
	if (!found && era_compare(ceiling.era, era) > 0)
		return -ESTALE;
	/* Another put our era there, and did not start the word, or has by now:
	 * to start at the higher ceiling is always right. */
	if (!found && ceiling.era == era) {
		*start_ns = ceiling.at_ns;
		*first = false;
		return 0;
	}
	low_ns = max_of(ceiling.at_ns, time_of(clock));
	if (REEF_MUTATED(CLOCK_OLD_WORD) && clock->seen_ns)
		low_ns = clock->seen_ns;
	value = ceiling_pack(era, round_up(low_ns) + LEAD_NS);
	if (found)
		rc = reef_name_bind(space, clock->ceiling_name, value, NULL);
	else
		rc = reef_name_replace(space, clock->ceiling_name,
				       ceiling.generation, value, NULL);
	if (!rc)
		*start_ns = low_ns;
	*first = found == -ENOENT;
	return rc == -EEXIST || rc == -ESTALE || rc == -ENOENT ||
			       rc == -REEF_EINDOUBT
		       ? -EAGAIN
		       : rc;
}

/* 1: another has started the word. */
static int is_started(void *context)
{
	const struct reef_clock *clock = context;
	uint64_t word = 0;
	int rc = reef_read(clock->object.reef, clock->object.body, &word, 8);

	return rc ? rc : word != 0;
}

/* Wait as (5) says, or until another has started the word. */
static int wait_for_others(struct reef_clock *clock)
{
	if (REEF_MUTATED(CLOCK_NO_WAIT))
		return 0;
	return object_outwait(OBJECT_WAIT_NS, is_started, clock);
}

/* Start the word of our object.  -ESTALE: the name has another object by now.
 */
static int start_word(struct reef_clock *clock)
{
	uint64_t start_ns, before;
	bool first = false;
	int rc, i;

	rc = ask_time(clock);
	for (i = 0; !rc && i < ATTEMPTS; i++) {
		rc = put_era(clock, &start_ns, &first);
		if (rc == -EAGAIN) {
			rc = 0;
			continue;
		}
		if (!rc && !first)
			rc = wait_for_others(clock);
		if (rc)
			break;
		rc = reef_cas(clock->object.reef, clock->object.body, 0,
			      start_ns, &before);
		if (!rc && before >= SYNC_COUNTER_DROPPED)
			return -ENOENT;
		if (!rc) {
			clock->seen_ns = before ? before : start_ns;
			return 0;
		}
		/* In doubt the word may be started, by us or another, or not.
		 */
		if (rc == -REEF_EINDOUBT)
			rc = 0;
	}
	return rc ? rc : -EBUSY;
}

/* Begin to use an object that was just opened or made, and stood at `word`. */
static int adopt_word(struct reef_clock *clock, uint64_t word)
{
	int rc = 0;

	if (word)
		clock->seen_ns = word;
	else
		rc = start_word(clock);
	clock->ceiling_ns = 0;
	return rc ? rc : raise_ceiling(clock, clock->seen_ns);
}

/* --- the object --- */

/* Put another object in the place of ours, whose node died, or use the one that
 * somebody else has put there. */
static int replace_object(struct reef_clock *clock)
{
	uint64_t word;
	int rc = object_replace(&clock->object, clock->name, &shape);

	if (!rc)
		rc = reef_read(clock->object.reef, clock->object.body, &word,
			       8);
	return rc ? rc : adopt_word(clock, word);
}

/* Open what the name is bound to, or make it, unless flags forbid. */
static int open_object(struct reef_clock *clock, uint32_t flags)
{
	struct reef_space *space = clock->object.space;
	struct ceiling ceiling;
	uint64_t word;
	int rc;

	rc = sync_counter_open(space, clock->name, &shape, flags,
			       &clock->object, &word);
	if (!rc)
		return adopt_word(clock, word);
	if (rc != -REEF_ELOST)
		return rc;
	/* A lost object was a clock if it has a ceiling. */
	rc = read_ceiling(space, clock->ceiling_name, &ceiling);
	if (rc)
		return rc == -ENOENT ? -REEF_ELOST : rc;
	rc = reef_name_lookup(space, clock->name, &word,
			      &clock->object.generation);
	return rc ? rc : replace_object(clock);
}

/* Mend what the error rc of a call on the object says.  0: try that call again.
 */
static int mend_object(struct reef_clock *clock, int rc)
{
	int i;

	for (i = 0; i < ATTEMPTS; i++) {
		if (rc == -REEF_ELOST)
			rc = replace_object(clock);
		else if (rc == -ESTALE)
			rc = open_object(clock, OBJECT_EXISTING);
		else
			return rc;
	}
	return -EBUSY;
}

static int open_named(struct reef_clock *clock, const char *name,
		      uint32_t flags)
{
	if (asprintf(&clock->name, "%s", name) < 0) {
		clock->name = NULL;
		return -ENOMEM;
	}
	if (asprintf(&clock->ceiling_name, "%s" SUFFIX, name) < 0) {
		clock->ceiling_name = NULL;
		return -ENOMEM;
	}
	return mend_object(clock, open_object(clock, flags));
}

static int check_name(const char *name)
{
	size_t size = name ? strlen(name) : 0;

	if (!size)
		return -EINVAL;
	return size > OBJECT_NAME_MAX - strlen(SUFFIX) ? -ENAMETOOLONG : 0;
}

int reef_clock_open(struct reef_space *space, const char *name, uint32_t flags,
		    struct reef_clock **out)
{
	struct reef_clock *clock;
	int rc = check_name(name);

	if (rc)
		return rc;
	clock = calloc(1, sizeof(*clock));
	if (!clock)
		return -ENOMEM;
	clock->object.space = space;
	clock->object.reef = reef_space_handle(space);
	rc = open_named(clock, name, flags);
	if (rc)
		reef_clock_close(clock);
	else
		*out = clock;
	return rc;
}

void reef_clock_close(struct reef_clock *clock)
{
	if (!clock)
		return;
	free(clock->ceiling_name);
	free(clock->name);
	free(clock);
}

/* Unbind the ceiling, unless it is a younger object's. */
static int drop_ceiling(struct reef_space *space, const char *name,
			uint32_t era)
{
	struct ceiling ceiling;
	int rc = read_ceiling(space, name, &ceiling);

	if (!rc && era_compare(ceiling.era, era) <= 0)
		rc = reef_name_unbind(space, name, ceiling.generation);
	return rc == -ENOENT || rc == -ESTALE ? 0 : rc;
}

int reef_clock_drop(struct reef_space *space, const char *name)
{
	struct object object = {0};
	char *ceiling_name;
	int rc = check_name(name);

	if (rc)
		return rc;
	if (asprintf(&ceiling_name, "%s" SUFFIX, name) < 0)
		return -ENOMEM;
	rc = sync_counter_drop(space, name, &shape, &object.generation);
	if (!rc)
		rc = drop_ceiling(space, ceiling_name, era_of(&object));
	free(ceiling_name);
	return rc;
}

/* --- an image --- */

/* A ceiling of an image. Later ones may have been journaled since, all of them
 * for less than the time with its lead; so the clock goes on from there, as if
 * its word had been lost. */
static int restore_ceiling(struct reef_space *space, const char *name,
			   uint64_t value)
{
	struct reef_clock clock = {0};
	size_t size = strlen(name), suffix = strlen(SUFFIX);
	uint64_t at_ns = (value & ((UINT64_C(1) << CEILING_BITS) - 1))
			 << UNIT_BITS;
	uint64_t word, generation;
	char object[256];
	int rc;

	if (size <= suffix || size >= sizeof(object) ||
	    strcmp(name + size - suffix, SUFFIX))
		return 0;
	memcpy(object, name, size - suffix);
	object[size - suffix] = 0;
	rc = sync_counter_open(space, object, &shape, OBJECT_EXISTING,
			       &clock.object, &word);
	if (rc) /* a name that only looks like a ceiling */
		return rc == -ENOENT || rc == -EEXIST ? 0 : rc;
	rc = ask_time(&clock);
	at_ns = round_up(max_of(at_ns, time_of(&clock))) + LEAD_NS;
	if (!rc && word)
		rc = reef_write(clock.object.reef, clock.object.body, &at_ns,
				8);
	if (!rc)
		rc = reef_name_lookup(space, name, &word, &generation);
	if (!rc)
		rc = reef_name_replace(
			space, name, generation,
			ceiling_pack(era_of(&clock.object), at_ns + LEAD_NS),
			NULL);
	return rc ? rc : 1;
}

__attribute__((constructor)) static void register_restorer(void)
{
	reef_restorer_register(restore_ceiling);
}

/* --- time --- */

static bool is_valid(const struct reef_clock *clock, uint64_t at_ns)
{
	return at_ns <= clock->ceiling_ns &&
	       reef_now_ns() - clock->found_ns < VALID_NS;
}

/* Ask the broker before what is known of it is too old. While it is away, a
 * ceiling that is still valid has to do. */
static int refresh(struct reef_clock *clock)
{
	int rc;

	if (reef_now_ns() - clock->found_ns < VALID_NS / 2 &&
	    clock->seen_ns + LEFT_NS < clock->ceiling_ns)
		return 0;
	if (is_valid(clock, clock->seen_ns) &&
	    reef_health(clock->object.reef) == -REEF_ENOLINK)
		return 0;
	rc = raise_ceiling(clock, clock->seen_ns);
	return rc == -REEF_ENOLINK && is_valid(clock, clock->seen_ns) ? 0 : rc;
}

/* CAS the word from what it was last seen at to the time and `step` further. 1:
 * done, *before is the time.  0: it does not lag, or another was quicker. */
static int move_word_up(struct reef_clock *clock, uint64_t step,
			uint64_t *before)
{
	uint64_t now_ns, was;
	int rc, i;

	for (i = 0; i < MOVES_MAX; i++) {
		now_ns = time_of(clock);
		if (now_ns > clock->ceiling_ns - UNIT &&
		    !REEF_MUTATED(CLOCK_NO_CEILING))
			now_ns = clock->ceiling_ns - UNIT;
		if (now_ns <= clock->seen_ns + LAG_NS)
			return 0;
		rc = reef_cas(clock->object.reef, clock->object.body,
			      clock->seen_ns, now_ns + step, &was);
		if (rc)
			return rc == -REEF_EINDOUBT ? 0 : rc;
		if (was >= SYNC_COUNTER_DROPPED)
			return -ENOENT;
		if (was == clock->seen_ns) {
			*before = now_ns;
			clock->seen_ns = now_ns + step;
			return 1;
		}
		clock->seen_ns = was;
	}
	return 0;
}

static int draw_times(struct reef_clock *clock, uint64_t step, uint64_t *before)
{
	int rc = move_word_up(clock, step, before);

	if (rc)
		return rc < 0 ? rc : 0;
	rc = sync_counter_draw(&clock->object, step, before);
	if (!rc)
		clock->seen_ns = *before + step;
	return rc;
}

/* Make sure that at_ns may be given out, or told: (2), (5). */
static int cover_by_ceiling(struct reef_clock *clock, uint64_t at_ns)
{
	if (is_valid(clock, at_ns) || REEF_MUTATED(CLOCK_NO_CEILING) ||
	    REEF_MUTATED(CLOCK_RAISE_LATE))
		return 0;
	return raise_ceiling(clock, at_ns);
}

int reef_clock_next(struct reef_clock *clock, uint32_t count, uint64_t *first)
{
	uint64_t before = 0;
	int rc, i;

	if (!count)
		return -EINVAL;
	for (i = 0; i < ATTEMPTS; i++) {
		rc = refresh(clock);
		if (!rc)
			rc = draw_times(clock, (uint64_t)count + 1, &before);
		if (!rc)
			rc = cover_by_ceiling(clock, before + count + 1);
		if (!rc) {
			*first = before + 1;
			return 0;
		}
		rc = mend_object(clock, rc);
		if (rc)
			return rc;
	}
	return -EBUSY;
}

int reef_clock_read(struct reef_clock *clock, uint64_t *now)
{
	uint64_t word;
	int rc, i;

	for (i = 0; i < ATTEMPTS; i++) {
		rc = reef_read(clock->object.reef, clock->object.body, &word,
			       8);
		if (!rc && word >= SYNC_COUNTER_DROPPED)
			return -ENOENT;
		if (!rc)
			rc = cover_by_ceiling(clock, word);
		if (!rc) {
			clock->seen_ns = word;
			*now = word;
			return 0;
		}
		rc = mend_object(clock, rc);
		if (rc)
			return rc;
	}
	return -EBUSY;
}
